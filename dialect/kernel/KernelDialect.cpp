//===- KernelDialect.cpp - The kernel dialect -----------------------------===//

#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto::kernel;

#include "dialect/kernel/KernelDialect.cpp.inc"
#include "dialect/kernel/KernelEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/kernel/KernelAttributes.cpp.inc"

#define GET_TYPEDEF_CLASSES
#include "dialect/kernel/KernelTypes.cpp.inc"

#define GET_OP_CLASSES
#include "dialect/kernel/KernelOps.cpp.inc"

namespace {
/// Layouts are long: print them once, under a name that says where a tile is.
struct LayoutAliases : OpAsmDialectInterface {
  using OpAsmDialectInterface::OpAsmDialectInterface;
  AliasResult getAlias(Attribute attribute, raw_ostream &out) const override {
    auto layout = dyn_cast<LayoutAttr>(attribute);
    if (!layout)
      return AliasResult::NoAlias;
    out << (layout.getLayout().inSharedMemory() ? "shared" : "registers");
    return AliasResult::OverridableAlias;
  }
};
} // namespace

void KernelDialect::initialize() {
  addInterfaces<LayoutAliases>();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/kernel/KernelAttributes.cpp.inc"
      >();
  addTypes<
#define GET_TYPEDEF_LIST
#include "dialect/kernel/KernelTypes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/kernel/KernelOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Layouts
//===----------------------------------------------------------------------===//

LayoutAttr LayoutAttr::get(MLIRContext *context, const Layout &layout) {
  SmallVector<unsigned, 2> sides;
  for (unsigned side = 0; side < layout.rank(); ++side)
    sides.push_back(layout.bitsOf(side));
  return get(context, sides, layout.basis(Layout::Register), layout.basis(Layout::Lane), layout.basis(Layout::Warp),
             layout.basis(Layout::Offset));
}

Layout LayoutAttr::getLayout() const {
  Layout layout(getSides());
  ArrayRef<uint64_t> bases[] = {getRegisters(), getLanes(), getWarps(), getOffsets()};
  for (unsigned space = 0; space < Layout::numSpaces; ++space)
    for (uint64_t vector : bases[space])
      layout.addFlat(static_cast<Layout::Space>(space), vector);
  return layout;
}

LogicalResult LayoutAttr::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<unsigned> sides,
                                 ArrayRef<uint64_t> registers, ArrayRef<uint64_t> lanes, ArrayRef<uint64_t> warps,
                                 ArrayRef<uint64_t> offsets) {
  constexpr unsigned maximalBits = 32;
  unsigned bits = 0;
  for (unsigned side : sides)
    bits += std::min(side, maximalBits + 1);
  if (sides.size() > 2 || bits > maximalBits)
    return emitError() << "[layout_c1] a tile of " << sides.size() << " sides and 2^" << bits
                       << " elements, expected at most 2 sides and 2^" << maximalBits << " elements";
  if (!offsets.empty() && !(registers.empty() && lanes.empty() && warps.empty()))
    return emitError() << "[layout_c2] places a tile in shared memory and in registers";
  for (ArrayRef<uint64_t> basis : {registers, lanes, warps, offsets}) {
    if (basis.size() > maximalBits)
      return emitError() << "[layout_c1] " << basis.size() << " basis vectors, expected at most " << maximalBits;
    for (uint64_t vector : basis)
      if (vector >> bits)
        return emitError() << "[layout_c3] a basis vector lies outside the tile";
  }
  Layout layout(sides);
  for (uint64_t vector : offsets)
    layout.addFlat(Layout::Offset, vector);
  if (lanes.empty() && !layout.offsetsOfCoordinates())
    return emitError() << "[layout_c5] the offsets in shared memory do not reach each element once";
  return success();
}

LogicalResult LayoutAttr::verifyEncoding(ArrayRef<int64_t> shape, Type,
                                         function_ref<InFlightDiagnostic()> emitError) const {
  if (shape.size() != getSides().size())
    return emitError() << "[layout_c4] a layout of " << getSides().size() << " sides for a tile of " << shape.size();
  for (auto [size, bits] : llvm::zip(shape, getSides()))
    if (size > (int64_t(1) << bits))
      return emitError() << "[layout_c4] a side of " << size << " in a layout of 2^" << bits;
  return success();
}

static constexpr StringLiteral spaceNames[] = {"register", "lane", "warp", "offset"};

void LayoutAttr::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(getSides(), printer);
  std::string bases = getLayout().str();
  printer << "]" << (bases.empty() ? "" : ", ") << bases << ">";
}

/// Parses `[[0, 1], [8, 0]]` as flat coordinates.
static ParseResult parseBasis(AsmParser &parser, const Layout &layout, SmallVectorImpl<uint64_t> &basis) {
  auto parseVector = [&]() -> ParseResult {
    SmallVector<int64_t, 2> vector;
    SMLoc location = parser.getCurrentLocation();
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                       [&] { return parser.parseInteger(vector.emplace_back()); }))
      return failure();
    bool inside = vector.size() == layout.rank();
    for (unsigned side = 0; inside && side < layout.rank(); ++side)
      inside = vector[side] >= 0 && vector[side] < layout.side(side);
    if (!inside)
      return parser.emitError(location, "[layout_c3] a basis vector lies outside the tile");
    basis.push_back(layout.flat(vector));
    return success();
  };
  return parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseVector);
}

Attribute LayoutAttr::parse(AsmParser &parser, Type) {
  SmallVector<unsigned> sides;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square,
                                                           [&] { return parser.parseInteger(sides.emplace_back()); }))
    return {};
  if (sides.size() > 2 || llvm::any_of(sides, [](unsigned side) { return side > 16; })) {
    parser.emitError(location, "[layout_c1] expected at most 2 sides of at most 16 bits");
    return {};
  }
  Layout layout(sides);
  std::array<SmallVector<uint64_t>, Layout::numSpaces> bases;
  for (unsigned space = 0; space < Layout::numSpaces && succeeded(parser.parseOptionalComma());) {
    // Spaces stand in their order; any may be left out.
    StringRef name;
    if (parser.parseKeyword(&name) || parser.parseEqual())
      return {};
    while (space < Layout::numSpaces && spaceNames[space] != name)
      ++space;
    if (space == Layout::numSpaces) {
      parser.emitError(parser.getCurrentLocation()) << "expected one of register, lane, warp, offset, in this order";
      return {};
    }
    if (parseBasis(parser, layout, bases[space++]))
      return {};
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<LayoutAttr>(location, parser.getContext(), sides, bases[0], bases[1], bases[2], bases[3]);
}

std::optional<Layout> stretto::kernel::layoutOf(Type tile) {
  auto type = dyn_cast<RankedTensorType>(tile);
  auto layout = type ? dyn_cast_if_present<LayoutAttr>(type.getEncoding()) : LayoutAttr();
  return layout ? std::optional(layout.getLayout()) : std::nullopt;
}

bool stretto::kernel::inSharedMemory(Type tile) {
  std::optional<Layout> layout = layoutOf(tile);
  return layout && layout->inSharedMemory();
}

RankedTensorType stretto::kernel::withLayout(RankedTensorType tile, const Layout &layout) {
  return RankedTensorType::get(tile.getShape(), tile.getElementType(), LayoutAttr::get(tile.getContext(), layout));
}

bool stretto::kernel::isOfWarpgroups(Operation *product) {
  auto instruction = product->getAttrOfType<InstructionAttr>(instructionAttribute);
  return instruction && instruction.getValue() == Instruction::Wgmma;
}

bool stretto::kernel::isOnlyAddend(chunk::DotOp product) {
  if (!isOfWarpgroups(product) || !product->hasOneUse())
    return false;
  auto next = dyn_cast<chunk::DotOp>(*product->user_begin());
  return next && isOfWarpgroups(next) && next->getBlock() == product->getBlock() &&
         next.getAddend() == product.getResult();
}

LogicalResult MatvecOp::verify() {
  auto matrix = cast<RankedTensorType>(getMatrix().getType()), vector = cast<RankedTensorType>(getVector().getType());
  auto result = cast<RankedTensorType>(getType());
  unsigned inner = getTranspose() ? 0 : 1;
  if (matrix.getRank() != 2 || vector.getShape() != ArrayRef<int64_t>{matrix.getDimSize(inner)} ||
      result.getShape() != ArrayRef<int64_t>{matrix.getDimSize(1 - inner)})
    return emitOpError("[matvec_c1] multiplies ") << matrix << " by " << vector << " to " << result;
  constexpr int64_t side = 16;
  if (matrix.getDimSize(0) % side || matrix.getDimSize(1) % side)
    return emitOpError("[matvec_c3] multiplies ") << matrix << ", expected sides that are multiples of " << side;
  Type element = matrix.getElementType();
  if (element != vector.getElementType() || !(element.isBF16() || element.isF16()) || !result.getElementType().isF32())
    return emitOpError("[matvec_c2] multiplies ")
           << element << " by " << vector.getElementType() << " to " << result.getElementType()
           << ", expected numbers of one 16-bit type and sums of f32";
  return success();
}

LogicalResult TakeBackOp::verify() {
  if (!getOperand().getDefiningOp<SetAsideOp>())
    return emitOpError("[take_back_c1] takes back what was not set aside");
  return success();
}

ChannelOp stretto::kernel::channelPassed(ArrayRef<FuncOp> roles, uint64_t number) {
  for (FuncOp role : roles)
    for (auto channel : role.getOps<ChannelOp>())
      if (channel.getPassed() == number)
        return channel;
  return {};
}

int64_t stretto::kernel::numberBehindPassed(ArrayRef<FuncOp> roles) {
  int64_t behind = 0;
  for (FuncOp role : roles)
    for (auto channel : role.getOps<ChannelOp>())
      if (std::optional<uint64_t> passed = channel.getPassed())
        behind = std::max(behind, static_cast<int64_t>(*passed) + 1);
  return behind;
}

bool stretto::kernel::runsBesideOthers(chunk::DotOp product) {
  return isOnlyAddend(product) ||
         llvm::any_of(product->getUsers(), [](Operation *user) { return isa<FinishOp>(user); });
}

int64_t stretto::kernel::sharedBytesOf(RankedTensorType tile) {
  int64_t elements = 1;
  for (unsigned bits : paddedBits(tile.getShape()))
    elements <<= bits;
  return llvm::alignTo(elements * llvm::divideCeil(tile.getElementTypeBitWidth(), 8), 16);
}

int64_t stretto::kernel::alignmentOfShared(int64_t bytes) {
  constexpr int64_t banks = 128;
  return std::clamp<int64_t>(llvm::bit_floor<uint64_t>(bytes), banks, sharedAlignment);
}

int64_t stretto::kernel::bytesOfGroup(int64_t bytes) { return llvm::alignTo(bytes, alignmentOfShared(bytes)); }

int64_t stretto::kernel::boxColumnsOf(RankedTensorType tile) {
  int64_t bytes = llvm::divideCeil(tile.getElementTypeBitWidth(), 8), padded = int64_t(1)
                                                                               << paddedBits(tile.getShape())[1];
  return std::min(padded, bytesOfBanks / bytes);
}

//===----------------------------------------------------------------------===//
// Roles and functions
//===----------------------------------------------------------------------===//

LogicalResult RoleAttr::verify(function_ref<InFlightDiagnostic()> emitError, RoleKind kind, int64_t warps,
                               int64_t groups) {
  constexpr int64_t mostGroups = 4;
  if (warps < 1 || warps > 32 || !llvm::isPowerOf2_64(warps))
    return emitError() << "[role_c1] a role of " << warps << " warps, expected a power of two up to 32";
  bool takesTurns = kind == RoleKind::Ahead || kind == RoleKind::Outputs;
  if (groups < 1 || groups > (takesTurns ? mostGroups : 1))
    return emitError() << "[role_c2] a role '" << stringifyRoleKind(kind) << "' of " << groups
                       << " groups, expected one, or up to four of 'ahead' and 'outputs'";
  return success();
}

void FuncOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  if (!getArgNames())
    return;
  for (auto [argument, name] : llvm::zip(region.getArguments(), *getArgNames()))
    setName(argument, cast<StringAttr>(name).getValue());
}

// kernel.func @name(%q: !kernel.view<...>, ...) chunk 64 roles [...] beside @other shared 1024 attributes {...} { ... }
ParseResult FuncOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  int64_t chunk, shared;
  ArrayAttr roles;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes) ||
      parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren, /*allowType=*/true) ||
      parser.parseKeyword("chunk") || parser.parseInteger(chunk) || parser.parseKeyword("roles") ||
      parser.parseAttribute(roles, getRolesAttrName(result.name), result.attributes))
    return failure();
  result.addAttribute(getChunkAttrName(result.name), builder.getI64IntegerAttr(chunk));
  if (succeeded(parser.parseOptionalKeyword("beside"))) {
    StringAttr beside;
    if (parser.parseSymbolName(beside))
      return failure();
    result.addAttribute(getBesideAttrName(result.name), FlatSymbolRefAttr::get(beside));
  }
  if (succeeded(parser.parseOptionalKeyword("shared"))) {
    if (parser.parseInteger(shared))
      return failure();
    result.addAttribute(getSharedAttrName(result.name), builder.getI64IntegerAttr(shared));
  }
  SmallVector<StringRef> names;
  for (OpAsmParser::Argument &argument : arguments)
    names.push_back(argument.ssaName.name.drop_front());
  result.addAttribute(getArgNamesAttrName(result.name), builder.getStrArrayAttr(names));
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void FuncOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << "(";
  llvm::interleaveComma(getBody().getArguments(), printer,
                        [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ") chunk " << getChunk() << " roles " << getRoles();
  if (getBeside()) {
    printer << " beside ";
    printer.printSymbolName(*getBeside());
  }
  if (getShared())
    printer << " shared " << *getShared();
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSymNameAttrName(), getChunkAttrName(), getRolesAttrName(),
                                            getBesideAttrName(), getSharedAttrName(), getArgNamesAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

int64_t FuncOp::getThreads() { return getWarps() * getGroups() * lanesOfWarp; }

SmallVector<FuncOp, 4> FuncOp::getRolesOfBlock() {
  // One more than there may be: functions that come from a file may stand in a ring.
  constexpr size_t most = 5;
  SmallVector<FuncOp, 4> roles = {*this};
  while (roles.back().getBeside() && roles.size() < most) {
    auto next = SymbolTable::lookupNearestSymbolFrom<FuncOp>(roles.back(), roles.back().getBesideAttr());
    if (!next)
      break;
    roles.push_back(next);
  }
  return roles;
}

LogicalResult FuncOp::verify() {
  if (getRoles().size() != 1)
    return emitOpError("[func_c1] has ") << getRoles().size() << " roles, expected one";
  for (BlockArgument argument : getBody().getArguments())
    if (!isa<ViewType>(argument.getType()))
      return emitOpError("[func_c2] argument ")
             << argument.getArgNumber() << " has type " << argument.getType() << ", expected a view";
  return success();
}

LogicalResult FuncOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (!getBeside())
    return success();
  auto other = symbols.lookupNearestSymbolFrom<FuncOp>(*this, getBesideAttr());
  if (!other)
    return emitOpError("[func_c3] is beside '") << *getBeside() << "', which is no function of a role";
  constexpr size_t mostRoles = 4;
  if (getRolesOfBlock().size() > mostRoles)
    return emitOpError("[func_c3] is beside '")
           << *getBeside() << "', and so on, expected at most " << mostRoles << " functions of a block";
  if (other.getChunk() != getChunk() || other.getBody().getArgumentTypes() != getBody().getArgumentTypes())
    return emitOpError("[func_c3] is beside '") << *getBeside() << "', which has other arguments or chunks";
  return success();
}

int64_t ChannelOp::bytesOfTiles() { return static_cast<int64_t>(getDepth()) * sharedBytesOf(getType().getTile()); }

int64_t ChannelOp::bytesOfBarriers() {
  // What is left over other tiles is released as these are.
  int64_t ofTile = getOver() ? 1 : getPassed() ? 2 : getBulk() ? 1 : 0, ofAll = isShared() ? 1 : 0;
  return (static_cast<int64_t>(getDepth()) * ofTile + ofAll) * bytesOfBarrier;
}

LogicalResult ChannelOp::verify() {
  if (getBulk() && getType().getTile().getRank() != 2)
    return emitOpError("[channel_c1] copies ") << getType().getTile() << " in bulk, expected rows and columns";
  if (getOver() && (getBulk() || !getPassed()))
    return emitOpError("[channel_c2] has the places of the channel ")
           << *getOver() << ", expected one that is passed, not in bulk";
  return success();
}

static bool isPassed(Value channel) {
  auto made = channel.getDefiningOp<ChannelOp>();
  return made && made.getPassed();
}

/// Whether a tile is one of a channel, but for its layout.
static bool isTileOf(Type type, RankedTensorType ofChannel) {
  auto tile = cast<RankedTensorType>(type);
  return tile.getShape() == ofChannel.getShape() && tile.getElementType() == ofChannel.getElementType();
}

LogicalResult ReplaceOp::verify() {
  if (RankedTensorType ofChannel = getChannel().getType().getTile(); !isTileOf(getTile().getType(), ofChannel))
    return emitOpError("[replace_c1] leaves ") << getTile().getType() << " in a channel of " << ofChannel;
  return success();
}

LogicalResult PassOp::verify() {
  auto tile = cast<RankedTensorType>(getOperand().getType()), result = cast<RankedTensorType>(getType());
  RankedTensorType ofChannel = getChannel().getType().getTile();
  auto isLike = [&](RankedTensorType type) { return isTileOf(type, ofChannel); };
  auto made = getChannel().getDefiningOp<ChannelOp>();
  if (!isPassed(getChannel()) || made.getBulk() || !isLike(tile) || !isLike(result))
    return emitOpError("[pass_c1] passes ") << tile << " as " << result << " to a channel of " << ofChannel
                                            << ", expected one that is passed, not in bulk, of such tiles";
  return success();
}

LogicalResult ReleaseOp::verify() {
  if (!isPassed(getChannel()))
    return emitOpError("[release_c1] releases the tile of a channel that is not passed");
  return success();
}

LogicalResult ConditionOp::verify() {
  auto tile = cast<RankedTensorType>(getTile().getType());
  if (tile.getNumElements() != 1 || !tile.getElementType().isInteger(1))
    return emitOpError("[condition_c1] takes ") << tile << " as a condition, expected one number of i1";
  return success();
}

/// What `kernel.span` and `kernel.in_range` share.
template <typename Op> static LogicalResult verifyRanges(Op op, StringRef boundsId, StringRef endId) {
  auto function = op->template getParentOfType<FuncOp>();
  if (!function)
    return op.emitOpError("stands in no kernel.func");
  auto tokens = static_cast<int64_t>(function.getChunk());
  for (Value bound : {op.getFirst(), op.getLast()}) {
    auto type = bound ? cast<RankedTensorType>(bound.getType()) : RankedTensorType();
    if (type && (type.getShape() != ArrayRef<int64_t>{tokens} || !isa<FloatType>(type.getElementType())))
      return op.emitOpError() << "[" << boundsId << "] a bound has type " << type << ", expected a number for each of "
                              << tokens << " tokens";
  }
  if (op.getLast() && op.getToEnd())
    return op.emitOpError() << "[" << endId << "] ends both at a position and at the end of the sequence";
  return success();
}

LogicalResult SpanOp::verify() {
  if (failed(verifyRanges(*this, "span_c1", "span_c2")))
    return failure();
  if (static_cast<int64_t>(getBy()) < 1)
    return emitOpError("[span_c3] counts chunks of ") << getBy() << " tokens, expected at least 1";
  return success();
}

LogicalResult InRangeOp::verify() {
  if (failed(verifyRanges(*this, "in_range_c1", "in_range_c2")))
    return failure();
  auto tokens = static_cast<int64_t>((*this)->getParentOfType<FuncOp>().getChunk());
  auto type = cast<RankedTensorType>(getType());
  // Bounds ahead are those of columns, others those of rows.
  bool fits = type.getRank() == 2 ? type.getDimSize(getAhead() ? 1 : 0) == tokens : type.getRank() == 1;
  if (!fits || !type.getElementType().isInteger(1))
    return emitOpError("[in_range_c3] makes ")
           << type << ", expected conditions of tokens, or of their pairs with " << tokens << " that have bounds";
  return success();
}

LogicalResult ConvertOp::verify() {
  std::optional<Layout> source = layoutOf(getOperand().getType()), target = layoutOf(getType());
  if (!source || !target)
    return emitOpError("[convert_c1] converts ")
           << getOperand().getType() << " to " << getType() << ", expected a layout on both";
  bool bothShared = source->inSharedMemory() && target->inSharedMemory();
  bool bothRegisters = !source->inSharedMemory() && !target->inSharedMemory();
  if (bothShared || (bothRegisters && Conversion::between(*source, *target).kind == Conversion::SharedMemory))
    return emitOpError("[convert_c2] converts ")
           << getOperand().getType() << " to " << getType() << (bothShared ? " within" : " without passing through")
           << " shared memory";
  return success();
}

int64_t FetchOp::bytesOfRows() {
  RankedTensorType tile = cast<ViewType>(getViews()[0].getType()).getTile();
  return tile.getDimSize(0) * static_cast<int64_t>(getColumns()) * (tile.getElementTypeBitWidth() / 8);
}

LogicalResult FetchOp::inferReturnTypes(MLIRContext *, std::optional<Location>, ValueRange views, DictionaryAttr,
                                        OpaqueProperties, RegionRange, SmallVectorImpl<Type> &types) {
  llvm::append_range(types, views.getTypes());
  return success();
}

LogicalResult FetchOp::verify() {
  constexpr int64_t pieceBytes = 16, mostColumns = 1 << 16;
  auto columns = static_cast<int64_t>(getColumns());
  if (columns <= 0 || columns > mostColumns)
    return emitOpError("[fetch_c3] has ") << columns << " columns, expected 1 to " << mostColumns;
  if (getViews().empty())
    return emitOpError("[fetch_c1] fetches nothing, expected parts of an entry");
  RankedTensorType first = cast<ViewType>(getViews()[0].getType()).getTile();
  for (Value view : getViews()) {
    RankedTensorType tile = cast<ViewType>(view.getType()).getTile();
    bool hasRows = tile.getRank() > 0 && tile.getRank() <= 2 && first.getRank() > 0;
    if (!hasRows || tile.getDimSize(0) != first.getDimSize(0) || tile.getElementType() != first.getElementType())
      return emitOpError("[fetch_c2] has the parts ") << first << " and " << tile << ", expected as many rows of both";
    if (tile.getRank() == 2 && tile.getDimSize(1) > columns)
      return emitOpError("[fetch_c3] has the part ") << tile << ", expected at most " << columns << " columns";
  }
  if (bytesOfRows() % pieceBytes)
    return emitOpError("[fetch_c3] copies ") << bytesOfRows() << " bytes, expected a multiple of " << pieceBytes;
  for (Operation *user : (*this)->getUsers())
    if (!isa<LoadOp, SaveOp, LeaveOp>(user))
      return emitOpError("[fetch_c4] has the user '")
             << user->getName() << "', expected kernel.load, kernel.save and kernel.leave";
  return success();
}

LogicalResult LeaveOp::verify() {
  if (!getFetched().getDefiningOp<FetchOp>())
    return emitOpError("[leave_c1] leaves an argument, expected what was fetched");
  return success();
}

BlockArgument stretto::kernel::argumentOf(Value view) {
  if (auto fetch = view.getDefiningOp<FetchOp>())
    view = fetch.getViews()[cast<OpResult>(view).getResultNumber()];
  return cast<BlockArgument>(view);
}

LogicalResult WarpgroupProductOp::verify() {
  if (static_cast<bool>(getLeft()) == !getLeftWords().empty())
    return emitOpError("[warpgroup_product_c1] has ")
           << getLeftWords().size() << " words " << (getLeft() ? "and" : "and no")
           << " descriptor on the left, expected the one or the other";
  int64_t blocks = getBlocks(), numbers = blocks * static_cast<int64_t>(getColumns()) / 2;
  int64_t results = getResults().size(), sums = getSums().size();
  if (results != numbers || (sums && sums != numbers))
    return emitOpError("[warpgroup_product_c2] has ")
           << results << " results and " << sums << " sums, expected " << numbers << ", and as many sums or none";
  int64_t left = getLeftOffsets().size(), right = getRightOffsets().size();
  if (left != right || left == 0 || left % blocks)
    return emitOpError("[warpgroup_product_c3] has ")
           << left << " and " << right << " offsets, expected as many of both sides, a multiple of " << blocks;
  return success();
}
