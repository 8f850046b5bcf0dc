//===- ChunkCanonicalization.cpp - The chunk dialect: folders and patterns ===//
//
// What makes two ways of writing a computation one, and the cheaper one. Every rewrite is exact on real numbers; none
// changes which numbers are selected away.
//
//===----------------------------------------------------------------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"

using namespace mlir;
using namespace stretto::chunk;

static RankedTensorType typeOf(Value value) { return cast<RankedTensorType>(value.getType()); }

/// The constant that all entries of a value are.
static std::optional<APFloat> splatOf(Attribute attribute) {
  auto splat = dyn_cast_if_present<SplatElementsAttr>(attribute);
  if (!splat || !isa<FloatType>(splat.getElementType()))
    return std::nullopt;
  return splat.getSplatValue<APFloat>();
}

static std::optional<APFloat> splatOf(Value value) {
  Attribute attribute;
  return matchPattern(value, m_Constant(&attribute)) ? splatOf(attribute) : std::nullopt;
}

/// What a broadcast repeats over the given side.
static Value repeatedAlong(Value value, Side along) {
  auto broadcast = value.getDefiningOp<BroadcastOp>();
  bool oneNumber = broadcast && typeOf(broadcast.getOperand()).getRank() == 0;
  return broadcast && !oneNumber && broadcast.getAlong() == along ? broadcast.getOperand() : Value();
}

static RankedTensorType columnType(RankedTensorType tile) { return tile.clone({tile.getDimSize(0)}); }

/// The only column of a tile, or the only row.
static Value onlyColumn(OpBuilder &builder, Location location, Value tile) {
  return ColumnsOp::create(builder, location, columnType(typeOf(tile)), tile, 0);
}

static Value onlyRow(OpBuilder &builder, Location location, Value tile) {
  return ReduceOp::create(builder, location, typeOf(tile).clone({typeOf(tile).getDimSize(1)}), Reduction::Sum, tile,
                          Side::Rows);
}

//===----------------------------------------------------------------------===//
// Broadcast
//===----------------------------------------------------------------------===//

OpFoldResult BroadcastOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (auto splat = dyn_cast_if_present<SplatElementsAttr>(adaptor.getOperand()))
    return splat.resizeSplat(getType());
  // A number that is repeated over a vector, which is repeated over a tile.
  auto inner = getOperand().getDefiningOp<BroadcastOp>();
  bool isNumber = inner && typeOf(inner.getOperand()).getRank() == 0;
  if (isNumber)
    getOperandMutable().assign(inner.getOperand());
  // A number has no sides: one spelling for both.
  bool isTurned = typeOf(getOperand()).getRank() == 0 && getAlong() != Side::Rows;
  if (isTurned)
    setAlong(Side::Rows);
  return isNumber || isTurned ? getResult() : Value();
}

namespace {
/// An elementwise operation on repeated values is done once on what is repeated.
struct RepeatLast : RewritePattern {
  RepeatLast(MLIRContext *context) : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context) {}

  LogicalResult matchAndRewrite(Operation *op, PatternRewriter &rewriter) const override {
    if (!op->hasTrait<OpTrait::Elementwise>() || op->getNumResults() != 1 || op->getNumOperands() == 0)
      return failure();
    auto resultType = dyn_cast<RankedTensorType>(op->getResult(0).getType());
    if (!resultType)
      return failure();

    // The largest of what is repeated; numbers and constants fit to it.
    std::optional<Side> along;
    SmallVector<int64_t> shape;
    bool anyBroadcast = false;
    for (Value operand : op->getOperands()) {
      Attribute constant;
      if (matchPattern(operand, m_Constant(&constant)) && isa<SplatElementsAttr>(constant))
        continue;
      auto broadcast = operand.getDefiningOp<BroadcastOp>();
      if (!broadcast)
        return failure();
      anyBroadcast = true;
      if (typeOf(broadcast.getOperand()).getRank() == 0)
        continue;
      if (along && *along != broadcast.getAlong())
        return failure();
      along = broadcast.getAlong();
      shape = llvm::to_vector(typeOf(broadcast.getOperand()).getShape());
    }
    if (!anyBroadcast)
      return failure();

    IRMapping mapping;
    for (Value operand : op->getOperands()) {
      RankedTensorType type = typeOf(operand).clone(shape);
      Attribute constant;
      Value small;
      if (matchPattern(operand, m_Constant(&constant)))
        small = arith::ConstantOp::create(rewriter, op->getLoc(), cast<SplatElementsAttr>(constant).resizeSplat(type));
      else
        small = operand.getDefiningOp<BroadcastOp>().getOperand();
      if (small.getType() != type)
        small = BroadcastOp::create(rewriter, op->getLoc(), type, small, Side::Rows);
      mapping.map(operand, small);
    }
    Operation *once = rewriter.clone(*op, mapping);
    once->getResult(0).setType(resultType.clone(shape));
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, resultType, once->getResult(0), along.value_or(Side::Rows));
    return success();
  }
};
} // namespace

//===----------------------------------------------------------------------===//
// Columns and concatenation
//===----------------------------------------------------------------------===//

static int64_t widthOf(RankedTensorType type) { return type.getRank() == 2 ? type.getDimSize(1) : 1; }

OpFoldResult ColumnsOp::fold(FoldAdaptor adaptor) {
  if (getOperand().getType() == getType())
    return getOperand();
  if (auto splat = dyn_cast_if_present<SplatElementsAttr>(adaptor.getOperand()))
    return splat.resizeSplat(cast<ShapedType>(getType()));
  auto type = cast<RankedTensorType>(getType());
  if (Value repeated = repeatedAlong(getOperand(), Side::Rows); repeated && repeated.getType() == type)
    return repeated;
  if (auto inner = getOperand().getDefiningOp<ColumnsOp>(); inner && typeOf(inner).getRank() == 2) {
    setFrom(getFrom() + inner.getFrom());
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  return {};
}

/// Columns of tiles side by side are columns of the tiles that they lie in.
static LogicalResult columnsOfConcat(ColumnsOp op, PatternRewriter &rewriter) {
  auto concat = op.getOperand().getDefiningOp<ConcatOp>();
  if (!concat)
    return failure();
  auto type = cast<RankedTensorType>(op.getType());
  int64_t begin = op.getFrom(), end = begin + widthOf(type), start = 0;
  SmallVector<Value> pieces;
  for (Value operand : concat.getOperands()) {
    int64_t width = widthOf(typeOf(operand)), from = std::max(begin - start, int64_t(0)),
            to = std::min(end - start, width);
    start += width;
    if (from >= to)
      continue;
    if (typeOf(operand).getRank() == 1 || to - from == width) {
      pieces.push_back(operand);
      continue;
    }
    auto piece = type.getRank() == 1 ? type : typeOf(operand).clone({type.getDimSize(0), to - from});
    pieces.push_back(ColumnsOp::create(rewriter, op.getLoc(), piece, operand, from));
  }
  if (type.getRank() == 1) {
    // One column lies in one piece, which is a vector or a tile of one column.
    Value piece = pieces.front();
    rewriter.replaceOp(op, piece.getType() == type ? piece : onlyColumn(rewriter, op.getLoc(), piece));
    return success();
  }
  rewriter.replaceOpWithNewOp<ConcatOp>(op, type, pieces);
  return success();
}

/// Columns of a row that is repeated, or of a number that is repeated.
static LogicalResult columnsOfBroadcast(ColumnsOp op, PatternRewriter &rewriter) {
  auto broadcast = op.getOperand().getDefiningOp<BroadcastOp>();
  if (!broadcast)
    return failure();
  auto type = cast<RankedTensorType>(op.getType());
  Value repeated = broadcast.getOperand();
  bool perColumn = typeOf(repeated).getRank() == 1 && broadcast.getAlong() == Side::Columns;
  if (perColumn && type.getRank() == 1)
    return failure();
  if (perColumn)
    repeated =
        ColumnsOp::create(rewriter, op.getLoc(), typeOf(repeated).clone({type.getDimSize(1)}), repeated, op.getFrom());
  rewriter.replaceOpWithNewOp<BroadcastOp>(op, type, repeated, broadcast.getAlong());
  return success();
}

static bool isNumberByNumber(Operation *op) {
  return op && op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1 && op->getNumRegions() == 0;
}

namespace {

/// Columns of a tile that is made, number by number, of tiles side by side, where nobody asks for the whole, are made
/// of columns: nothing is put together then. So it is in the gradient of a softmax that is a part of a feature map.
/// What else it is made of are inputs, numbers that are repeated, and one tile at most whose columns are taken instead.
class ColumnsOfJoined {
public:
  ColumnsOfJoined(ColumnsOp columns, PatternRewriter &rewriter) : columns(columns), rewriter(rewriter) {}

  bool isWorthIt() {
    constexpr size_t mostOperations = 64;
    if (find(columns.getOperand()) != Made::OfJoined || found.size() > mostOperations)
      return false;
    collectOthers(columns.getOperand());
    return others.size() <= 1;
  }

  Value make() { return columnsOf(columns.getOperand()); }

private:
  enum class Made { OfJoined, OfRepeated, Otherwise };

  Made find(Value tile) {
    if (auto known = found.find(tile); known != found.end())
      return known->second;
    Made made = findAnew(tile);
    return found[tile] = made;
  }

  Made findAnew(Value tile) {
    Operation *op = tile.getDefiningOp();
    if (isa_and_nonnull<ConcatOp>(op))
      return Made::OfJoined;
    if (!op || isa<BroadcastOp>(op) || op->hasTrait<OpTrait::ConstantLike>())
      return Made::OfRepeated;
    if (!isNumberByNumber(op) || !llvm::all_of(op->getOperandTypes(), llvm::IsaPred<RankedTensorType>))
      return Made::Otherwise;
    Made made = Made::OfRepeated;
    for (Value operand : op->getOperands()) {
      Made ofOperand = find(operand);
      if (ofOperand == Made::OfJoined || (ofOperand == Made::Otherwise && made == Made::OfRepeated))
        made = ofOperand;
    }
    return made;
  }

  /// Finds the tiles whose columns are to be taken, where operations make them of one other alone, of that.
  void collectOthers(Value tile) {
    Operation *op = tile.getDefiningOp();
    Made made = found.lookup(tile);
    if (made == Made::OfRepeated || isa_and_nonnull<ConcatOp>(op))
      return;
    auto isOther = [&](Value operand) { return found.lookup(operand) == Made::Otherwise; };
    bool isTaken =
        made == Made::Otherwise && (!isNumberByNumber(op) || llvm::count_if(op->getOperands(), isOther) != 1);
    if (isTaken)
      others.insert(tile);
    else
      llvm::for_each(op->getOperands(), [&](Value operand) { collectOthers(operand); });
  }

  Value columnsOf(Value tile) {
    if (Value made = known.lookup(tile))
      return made;
    Operation *op = tile.getDefiningOp();
    auto type = typeOf(tile).clone(typeOf(columns).getShape());
    if (!isNumberByNumber(op) || others.contains(tile))
      return known[tile] = ColumnsOp::create(rewriter, tile.getLoc(), type, tile, columns.getFrom());
    SmallVector<Value> operands =
        llvm::map_to_vector(op->getOperands(), [&](Value operand) { return columnsOf(operand); });
    OperationState state(op->getLoc(), op->getName(), operands, type, op->getAttrs());
    state.propertiesAttr = op->getPropertiesAsAttribute();
    return known[tile] = rewriter.create(state)->getResult(0);
  }

  ColumnsOp columns;
  PatternRewriter &rewriter;
  DenseMap<Value, Made> found;
  llvm::SetVector<Value> others;
  DenseMap<Value, Value> known;
};

} // namespace

static LogicalResult columnsOfElementwise(ColumnsOp op, PatternRewriter &rewriter) {
  Operation *made = op.getOperand().getDefiningOp();
  if (!isNumberByNumber(made) || typeOf(op).getRank() != 2 || !llvm::all_of(made->getUsers(), llvm::IsaPred<ColumnsOp>))
    return failure();
  ColumnsOfJoined columns(op, rewriter);
  if (!columns.isWorthIt())
    return failure();
  rewriter.replaceOp(op, columns.make());
  return success();
}

/// Whether a tile is an input of its kernel.
static bool isInput(Value tile) {
  auto argument = dyn_cast<BlockArgument>(tile);
  auto kernel = argument ? dyn_cast<KernelOp>(argument.getOwner()->getParentOp()) : KernelOp();
  return kernel && kernel.getArgument(argument.getArgNumber()).getKind() == ArgumentKind::Input;
}

/// One column of what is made of an input, number by number, with nothing but constants, is made of the input's column:
/// that lies where every thread finds it, so that none waits for others.
static LogicalResult columnOfInput(ColumnsOp op, PatternRewriter &rewriter) {
  if (typeOf(op).getRank() != 1 || typeOf(op.getOperand()).getRank() != 2)
    return failure();
  auto isConstant = [](Value operand) { return matchPattern(operand, m_Constant()); };
  SmallVector<Operation *> made;
  Value tile = op.getOperand();
  while (Operation *each = tile.getDefiningOp()) {
    if (!isNumberByNumber(each) || llvm::count_if(each->getOperands(), isConstant) + 1 != each->getNumOperands() ||
        !llvm::all_of(each->getOperandTypes(), llvm::IsaPred<RankedTensorType>))
      return failure();
    made.push_back(each);
    tile = *llvm::find_if_not(each->getOperands(), isConstant);
  }
  if (made.empty() || !isInput(tile))
    return failure();
  auto columnOf = [&](Value whole) -> Value {
    return ColumnsOp::create(rewriter, op.getLoc(), typeOf(whole).clone(typeOf(op).getShape()), whole, op.getFrom());
  };
  Value column = columnOf(tile);
  for (Operation *each : llvm::reverse(made)) {
    auto operands = llvm::map_to_vector(
        each->getOperands(), [&](Value operand) { return isConstant(operand) ? columnOf(operand) : column; });
    OperationState state(each->getLoc(), each->getName(), operands,
                         typeOf(each->getResult(0)).clone(typeOf(op).getShape()), each->getAttrs());
    state.propertiesAttr = each->getPropertiesAsAttribute();
    column = rewriter.create(state)->getResult(0);
  }
  rewriter.replaceOp(op, column);
  return success();
}

void ColumnsOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(columnsOfConcat);
  results.add(columnsOfBroadcast);
  results.add(columnsOfElementwise);
  results.add(columnOfInput);
}

OpFoldResult RowOp::fold(FoldAdaptor) {
  // One of rows that are all the same.
  auto broadcast = getOperand().getDefiningOp<BroadcastOp>();
  bool isRepeated = broadcast && broadcast.getAlong() == Side::Columns;
  return isRepeated && broadcast.getOperand().getType() == getType() ? broadcast.getOperand() : OpFoldResult();
}

OpFoldResult ConcatOp::fold(FoldAdaptor) {
  if (getOperands().size() == 1 && getOperands().front().getType() == getType())
    return getOperands().front();
  return {};
}

/// Joins neighbours: tiles of an inner concatenation, and columns of one tile that follow each other.
static LogicalResult joinNeighbours(ConcatOp op, PatternRewriter &rewriter) {
  SmallVector<Value> joined;
  bool changed = false;
  for (Value operand : op.getOperands()) {
    if (auto inner = operand.getDefiningOp<ConcatOp>()) {
      llvm::append_range(joined, inner.getOperands());
      changed = true;
      continue;
    }
    auto next = operand.getDefiningOp<ColumnsOp>();
    auto previous = joined.empty() ? ColumnsOp() : joined.back().getDefiningOp<ColumnsOp>();
    if (next && previous && next.getOperand() == previous.getOperand() && typeOf(next.getOperand()).getRank() == 2 &&
        static_cast<int64_t>(previous.getFrom()) + widthOf(typeOf(previous)) == static_cast<int64_t>(next.getFrom())) {
      auto type = typeOf(next.getOperand())
                      .clone({typeOf(next).getDimSize(0), widthOf(typeOf(previous)) + widthOf(typeOf(next))});
      joined.back() = ColumnsOp::create(rewriter, op.getLoc(), type, next.getOperand(), previous.getFrom());
      changed = true;
      continue;
    }
    joined.push_back(operand);
  }
  // A vector that is all there is becomes a tile of one column.
  if (joined.size() == 1 && typeOf(joined.front()).getRank() == 1) {
    rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), joined.front(), Side::Rows);
    return success();
  }
  if (!changed)
    return failure();
  rewriter.replaceOpWithNewOp<ConcatOp>(op, op.getType(), joined);
  return success();
}

void ConcatOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) { results.add(joinNeighbours); }

//===----------------------------------------------------------------------===//
// Masks
//===----------------------------------------------------------------------===//

OpFoldResult CausalOp::fold(FoldAdaptor) {
  if (auto inner = getOperand().getDefiningOp<CausalOp>()) {
    if (inner.getStrict() || !getStrict())
      return inner.getResult();
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  // Decayed products are causal, and strictly so before the token.
  if (auto product = getOperand().getDefiningOp<DecayDotOp>(); product && (product.getBefore() || !getStrict()))
    return product.getResult();
  return {};
}

/// What a selection leaves of the entries below the diagonal is all of them.
template <typename Op> static OpFoldResult takeWholeMatrix(Op op) {
  auto causal = op.getMatrix().template getDefiningOp<CausalOp>();
  if (!causal)
    return {};
  op.getMatrixMutable().assign(causal.getOperand());
  return op.getResult();
}

OpFoldResult SolveOp::fold(FoldAdaptor) { return takeWholeMatrix(*this); }
OpFoldResult InverseOp::fold(FoldAdaptor) { return takeWholeMatrix(*this); }

OpFoldResult MaskOp::fold(FoldAdaptor adaptor) {
  if (auto inner = getOperand().getDefiningOp<MaskOp>(); inner && inner.getValid() == getValid()) {
    if (inner.getOtherwise() == getOtherwise())
      return inner.getResult();
    getOperandMutable().assign(inner.getOperand());
    return getResult();
  }
  if (std::optional<APFloat> splat = splatOf(adaptor.getOperand()))
    if (splat->convertToDouble() == getOtherwise().convertToDouble())
      return getOperand();
  return {};
}

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

/// Products with one number each way need no matrix multiplication. Sums are formed in the type of the result.
static LogicalResult dotOfVectors(DotOp op, PatternRewriter &rewriter) {
  Location location = op.getLoc();
  auto type = cast<RankedTensorType>(op.getType());
  auto wide = [&](Value operand) -> Value {
    RankedTensorType wideType = typeOf(operand).clone(type.getElementType());
    return wideType == operand.getType() ? operand : arith::ExtFOp::create(rewriter, location, wideType, operand);
  };
  bool leftTransposed = op.getTransposeLeft(), rightTransposed = op.getTransposeRight();
  int64_t inner = typeOf(op.getLeft()).getDimSize(leftTransposed ? 0 : 1);
  int64_t rows = type.getDimSize(0), columns = type.getDimSize(1);

  // `rows over` of the left operand, summed: one number for each row of the result.
  auto sumOverInner = [&](Value operand, bool innerIsRows) -> Value {
    int64_t kept = typeOf(operand).getDimSize(innerIsRows ? 1 : 0);
    return ReduceOp::create(rewriter, location, typeOf(operand).clone({kept}), Reduction::Sum, operand,
                            innerIsRows ? Side::Rows : Side::Columns);
  };
  // The operand as a vector where one of its sides has size one.
  auto vectorOf = [&](Value operand) -> Value {
    bool oneColumn = typeOf(operand).getDimSize(1) == 1;
    return oneColumn ? onlyColumn(rewriter, location, operand) : onlyRow(rewriter, location, operand);
  };
  auto repeat = [&](Value vector, RankedTensorType tile, Side along) -> Value {
    return BroadcastOp::create(rewriter, location, tile, vector, along);
  };

  Value product;
  if (std::optional<APFloat> splat = splatOf(op.getRight())) {
    Value sums = sumOverInner(wide(op.getLeft()), leftTransposed);
    bool losesInfo;
    APFloat value = *splat;
    value.convert(cast<FloatType>(type.getElementType()).getFloatSemantics(), APFloat::rmNearestTiesToEven, &losesInfo);
    Value number = arith::ConstantOp::create(rewriter, location, DenseElementsAttr::get(typeOf(sums), value));
    product = repeat(arith::MulFOp::create(rewriter, location, sums, number), type, Side::Rows);
  } else if (inner == 1) {
    Value left = repeat(vectorOf(wide(op.getLeft())), type, Side::Rows);
    product =
        arith::MulFOp::create(rewriter, location, left, repeat(vectorOf(wide(op.getRight())), type, Side::Columns));
  } else if (rows == 1 || columns == 1) {
    // One operand is a vector over the inner axis: the sums of the other's products with it.
    bool vectorIsRight = columns == 1;
    Value matrix = wide(vectorIsRight ? op.getLeft() : op.getRight());
    bool innerIsRows = vectorIsRight ? leftTransposed : !rightTransposed;
    Value vector = repeat(vectorOf(wide(vectorIsRight ? op.getRight() : op.getLeft())), typeOf(matrix),
                          innerIsRows ? Side::Rows : Side::Columns);
    Value sums = sumOverInner(arith::MulFOp::create(rewriter, location, matrix, vector), innerIsRows);
    product = repeat(sums, type, vectorIsRight ? Side::Rows : Side::Columns);
  } else {
    return failure();
  }
  if (op.getAddend())
    product = arith::AddFOp::create(rewriter, location, product, op.getAddend());
  rewriter.replaceOp(op, product);
  return success();
}

void DotOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) { results.add(dotOfVectors); }

/// Sums over the same rows that are added up are one sum, whose weights are added up: those of pairs of tokens.
template <typename Sum> static LogicalResult addWeights(arith::AddFOp op, PatternRewriter &rewriter) {
  auto first = op.getLhs().getDefiningOp<Sum>(), second = op.getRhs().getDefiningOp<Sum>();
  if (!first || !second || !first->hasOneUse() || !second->hasOneUse() ||
      first->getAttrDictionary() != second->getAttrDictionary())
    return failure();
  auto weightsOf = [](Sum sum) { return sum->getOperand(0); };
  auto isOfPairs = [&](Sum sum) {
    return isa<DecayMixOp>(sum) || isa_and_present<CausalOp, DecayDotOp>(weightsOf(sum).getDefiningOp());
  };
  auto rowsOf = [](Sum sum) { return sum->getOperands().drop_front().drop_back(sum.getAddend() ? 1 : 0); };
  if (!isOfPairs(first) || !isOfPairs(second) || weightsOf(first).getType() != weightsOf(second).getType() ||
      !llvm::equal(rowsOf(first), rowsOf(second)))
    return failure();
  auto add = [&](Value left, Value right) -> Value {
    return left && right ? arith::AddFOp::create(rewriter, op.getLoc(), left, right).getResult()
                         : (left ? left : right);
  };
  Value weights = add(weightsOf(first), weightsOf(second)), addend = add(first.getAddend(), second.getAddend());
  auto joined = cast<Sum>(rewriter.clone(*first));
  joined->setOperand(0, weights);
  if (addend)
    joined.getAddendMutable().assign(addend);
  rewriter.replaceOp(op, joined);
  return success();
}

/// An inverse looks at no entry that a selection of those below the diagonal takes away before others are multiplied.
static LogicalResult invertWholeProduct(InverseOp op, PatternRewriter &rewriter) {
  auto product = op.getMatrix().getDefiningOp<arith::MulFOp>();
  if (!product || !product->hasOneUse())
    return failure();
  for (OpOperand &factor : product->getOpOperands())
    if (auto causal = factor.get().getDefiningOp<CausalOp>()) {
      rewriter.modifyOpInPlace(product, [&] { factor.set(causal.getOperand()); });
      return success();
    }
  return failure();
}

void ChunkDialect::getCanonicalizationPatterns(RewritePatternSet &results) const {
  results.add<RepeatLast>(getContext());
  results.add(invertWholeProduct);
  results.add(addWeights<DotOp>);
  results.add(addWeights<DecayMixOp>);
}

/// A reduction over one number is that number; the maximum or a sum over one row of repeated ones likewise.
static LogicalResult reduceOfOne(ReduceOp op, PatternRewriter &rewriter) {
  RankedTensorType type = typeOf(op.getOperand());
  bool overColumns = op.getOver() == Side::Columns;
  if (type.getDimSize(overColumns ? 1 : 0) != 1)
    return failure();
  if (overColumns) {
    rewriter.replaceOp(op, onlyColumn(rewriter, op.getLoc(), op.getOperand()));
    return success();
  }
  Value repeated = repeatedAlong(op.getOperand(), Side::Columns);
  if (!repeated)
    return failure();
  rewriter.replaceOp(op, repeated);
  return success();
}

void ReduceOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) { results.add(reduceOfOne); }

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

/// An amount that all channels share is one number for each token.
template <typename Op> static LogicalResult shareAmount(Op op, PatternRewriter &rewriter) {
  Value amount = op.getAmount();
  auto mask = amount.template getDefiningOp<MaskOp>();
  auto broadcast = (mask ? mask.getOperand() : amount).template getDefiningOp<BroadcastOp>();
  if (typeOf(amount).getRank() != 2 || !broadcast)
    return failure();
  bool oneNumber = typeOf(broadcast.getOperand()).getRank() == 0;
  if (!oneNumber && broadcast.getAlong() != Side::Rows)
    return failure();
  RankedTensorType perToken = columnType(typeOf(amount));
  Value shared = broadcast.getOperand();
  if (oneNumber)
    shared = BroadcastOp::create(rewriter, op.getLoc(), perToken, shared, Side::Rows);
  if (mask)
    shared = MaskOp::create(rewriter, op.getLoc(), perToken, shared, mask.getValid(), mask.getOtherwiseAttr());
  rewriter.modifyOpInPlace(op, [&] { op.getAmountMutable().assign(shared); });
  return success();
}

/// Whether a decay does nothing: log 0 or factor 1.
template <typename Op> static bool isIdentity(Op op) {
  std::optional<APFloat> splat = splatOf(op.getAmount());
  return splat && (op.getForm() == DecayForm::Log ? splat->isZero() : splat->isExactlyValue(1.0));
}

template <typename Op> static LogicalResult dropIdentity(Op op, PatternRewriter &rewriter) {
  if (!isIdentity(op))
    return failure();
  rewriter.replaceOp(op, op->getOperand(0));
  return success();
}

static LogicalResult dotWithoutDecay(DecayDotOp op, PatternRewriter &rewriter) {
  if (!isIdentity(op))
    return failure();
  Value product = DotOp::create(rewriter, op.getLoc(), op.getType(), op.getQuery(), op.getKey(), Value(),
                                /*transpose_left=*/false, /*transpose_right=*/true);
  rewriter.replaceOpWithNewOp<CausalOp>(op, op.getType(), product, op.getBefore());
  return success();
}

/// Products of one number of each token are no matrix multiplication, which the decay of tokens leaves as it is.
static LogicalResult decayDotOfVectors(DecayDotOp op, PatternRewriter &rewriter) {
  if (typeOf(op.getAmount()).getRank() != 1 || typeOf(op.getQuery()).getDimSize(1) != 1)
    return failure();
  Value product = DotOp::create(rewriter, op.getLoc(), op.getType(), op.getQuery(), op.getKey(), Value(),
                                /*transpose_left=*/false, /*transpose_right=*/true);
  Value decay =
      DecayMatrixOp::create(rewriter, op.getLoc(), op.getType(), op.getForm(), op.getAmount(), op.getBefore());
  Value weights = arith::MulFOp::create(rewriter, op.getLoc(), product, decay);
  rewriter.replaceOpWithNewOp<CausalOp>(op, op.getType(), weights, op.getBefore());
  return success();
}

/// With one factor for each token, or none, the decay is a matter of the weights.
static LogicalResult mixOfWeights(DecayMixOp op, PatternRewriter &rewriter) {
  Value weights = op.getWeights();
  if (!isIdentity(op)) {
    if (typeOf(op.getAmount()).getRank() != 1)
      return failure();
    Value decay =
        DecayMatrixOp::create(rewriter, op.getLoc(), weights.getType(), op.getForm(), op.getAmount(), op.getBefore());
    weights = arith::MulFOp::create(rewriter, op.getLoc(), weights, decay);
  }
  weights = CausalOp::create(rewriter, op.getLoc(), weights.getType(), weights, op.getBefore());
  rewriter.replaceOpWithNewOp<DotOp>(op, op.getType(), weights, op.getRows(), op.getAddend(),
                                     /*transpose_left=*/op.getTranspose(), /*transpose_right=*/false);
  return success();
}

/// A state of one column is decayed as a vector.
static LogicalResult decayOfColumn(DecayStateOp op, PatternRewriter &rewriter) {
  Value column = repeatedAlong(op.getState(), Side::Rows);
  if (!column || typeOf(op.getState()).getDimSize(1) != 1 || op.getAlong() != Side::Rows)
    return failure();
  Value decayed =
      DecayStateOp::create(rewriter, op.getLoc(), column.getType(), column, op.getForm(), op.getAmount(), Side::Rows);
  rewriter.replaceOpWithNewOp<BroadcastOp>(op, op.getType(), decayed, Side::Rows);
  return success();
}

void DecayDotOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(shareAmount<DecayDotOp>);
  results.add(dotWithoutDecay);
  results.add(decayDotOfVectors);
}

void DecayMixOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(shareAmount<DecayMixOp>);
  results.add(mixOfWeights);
}

void DecayFromStartOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(shareAmount<DecayFromStartOp>);
  results.add(dropIdentity<DecayFromStartOp>);
}

void DecayToEndOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(shareAmount<DecayToEndOp>);
  results.add(dropIdentity<DecayToEndOp>);
}

void DecayStateOp::getCanonicalizationPatterns(RewritePatternSet &results, MLIRContext *) {
  results.add(shareAmount<DecayStateOp>);
  results.add(dropIdentity<DecayStateOp>);
  results.add(decayOfColumn);
}
