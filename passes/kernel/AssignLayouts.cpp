//===- AssignLayouts.cpp - Where each tile is -----------------------------===//

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"
#include "passes/Passes.h"
#include "passes/kernel/FreeTiles.h"
#include "passes/kernel/LeftTiles.h"
#include "passes/kernel/RegisterEstimate.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_ASSIGNLAYOUTS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

class LayoutAssigner {
public:
  LayoutAssigner(FuncOp function, int64_t perAccess, bool readAgain, bool repeatLeft, bool warpgroups)
      : warps(function.getWarps()), tokens(function.getChunk()), sweeps(function.getChunk() == 1),
        forWarpgroups(warpgroups && hasNarrow(function)), readsAllAgain(sweeps || walksInReverse(function)),
        readsNarrowAgain(readAgain), storesEarly(walksInReverse(function)), ofGradient(isOfGradient(function)),
        perAccess(perAccess), builder(function.getContext()) {
    if (repeatLeft)
      leftTiles = LeftTiles(function, warps);
  }

  LogicalResult assign(Block &block) {
    if (forWarpgroups && !sweeps)
      freeTiles.findRows(block);
    if (!sweeps)
      freeTiles.findRuns(block);
    for (Operation &op : llvm::make_early_inc_range(block)) {
      builder.setInsertionPoint(&op);
      if (failed(assign(&op)))
        return failure();
    }
    return success();
  }

private:
  //===--------------------------------------------------------------------===//
  // Places
  //===--------------------------------------------------------------------===//

  Layout registersFor(RankedTensorType tile) {
    return sweeps ? sweepLayout(tile.getShape(), perAccess, warps) : fragmentsFor(tile);
  }

  /// Where products leave a tile.
  Layout fragmentsFor(RankedTensorType tile) {
    return forWarpgroups ? warpgroupLayout(tile.getShape(), warps, /*rowsApart=*/isBesideTokens(tile))
                         : registerLayout(tile.getShape(), warps);
  }

  /// Whether the rows of a tile are channels whose tokens lie across: a warp then has the same channels of both, and
  /// what a channel of a state sums up to, or decays by, stays in it.
  bool isBesideTokens(RankedTensorType tile) {
    return ofGradient && tile.getRank() == 2 && liesAcross(warpgroupLayout({tokens, tile.getDimSize(0)}, warps));
  }

  /// Whether a function has products of numbers of 16 bits, which warpgroups form.
  static bool hasNarrow(FuncOp function) {
    WalkResult result = function.walk([](chunk::DotOp product) {
      return WalkResult(failure(tileTypeOf(product.getLeft()).getElementTypeBitWidth() == 16));
    });
    return result.wasInterrupted();
  }

  /// Where a value is made best: where products want it, or in the places of the parts that it is put together from, if
  /// all that it is made of is.
  Layout registersFor(Value value) {
    if (std::optional<Layout> left = leftTiles.layoutFor(value))
      return *left;
    std::optional<Layout> joined = layoutOfJoined(value);
    return joined ? *joined : registersFor(tileTypeOf(value));
  }

  std::optional<Layout> layoutOfJoined(Value value) {
    if (auto known = joined.find(value); known != joined.end())
      return known->second;
    std::optional<Layout> result;
    Operation *op = value.getDefiningOp();
    if (auto concat = dyn_cast_if_present<chunk::ConcatOp>(op); concat && staysInPlace(concat))
      result = sideBySide(registersFor(tileTypeOf(concat.getOperand(0))), tileTypeOf(value).getShape());
    else if (op && isInPlace(op) && tileTypeOf(value) && tileTypeOf(value).getRank() == 2)
      for (Value operand : op->getOperands()) {
        if (!tileTypeOf(operand) || isa_and_nonnull<chunk::BroadcastOp, arith::ConstantOp>(operand.getDefiningOp()))
          continue;
        result = layoutOfJoined(operand);
        if (!result)
          break;
      }
    return joined[value] = result;
  }

  Layout sharedFor(RankedTensorType tile) {
    return sharedLayout(tile.getShape(), llvm::divideCeil(tile.getElementTypeBitWidth(), 8));
  }

  /// `value` in a place. Constants are made where they are wanted, and numbers repeated there; what would cross warps
  /// passes through shared memory.
  Value place(Value value, const Layout &layout) {
    RankedTensorType target = withLayout(tileTypeOf(value), layout);
    if (value.getType() == target)
      return value;
    DenseElementsAttr constant;
    if (matchPattern(value, m_Constant(&constant)) && constant.isSplat()) {
      // Threads have constants, and shared memory what they store there.
      if (layout.inSharedMemory() && !layoutOf(value.getType()))
        return place(inRegisters(value), layout);
      if (!layout.inSharedMemory())
        return arith::ConstantOp::create(builder, value.getLoc(), constant.resizeSplat(target));
    }
    if (auto repeated = value.getDefiningOp<chunk::BroadcastOp>();
        repeated && !layout.inSharedMemory() && layout.rank() == 2) {
      Value numbers = repeated.getOperand();
      if (isVector(numbers))
        numbers = place(numbers, layout.onto(repeated.getAlong() == chunk::Side::Rows ? 0 : 1));
      return chunk::BroadcastOp::create(builder, value.getLoc(), target, numbers, repeated.getAlong());
    }

    if (Value again = makeAgain(value, layout))
      return again;

    // A tile that was converted before is used again within the same block, or in a loop that it is not made in. What
    // is in shared memory is read again by a gradient, which has more tiles than registers, and by a walk over states;
    // so is what any kernel reads there at other rows, too, or in whole rows, once for all turns of a loop.
    bool isNarrow = getElementTypeOrSelf(value).getIntOrFloatBitWidth() == 16;
    bool isReadAtOthers = llvm::any_of(value.getUsers(), llvm::IsaPred<chunk::MiddleOp>);
    bool isReadAgain =
        (readsAllAgain || isReadAtOthers || (readsNarrowAgain && isNarrow)) && inSharedMemory(value.getType());
    bool isOfRows = isReadAtOthers && layout == rowsLayout(tileTypeOf(value).getShape(), warps);
    OpBuilder::InsertionGuard guard(builder);
    if (!isReadAgain || isOfRows)
      leaveLoops(value);
    if (layout.inSharedMemory())
      leaveConditions(value);
    auto key = std::tuple(value, Type(target), builder.getInsertionBlock());
    if (Value known = conversions.lookup(key); known && !isReadAgain)
      return known;
    bool betweenRegisters = !inSharedMemory(value.getType()) && !layout.inSharedMemory();
    Operation *made = value.getDefiningOp();
    // An operand that is stored as soon as it is made needs no registers, of which a walk back has few, and shares a
    // barrier with others, as a vector does.
    bool isOperand = layout.inSharedMemory() && !isReadAgain && tileTypeOf(value).getElementTypeBitWidth() <= 16;
    if ((storesEarly || isVector(value)) && isOperand && made && made->getBlock() == builder.getInsertionBlock())
      builder.setInsertionPointAfter(made);
    Value source = value;
    if (betweenRegisters && Conversion::between(*layoutOf(value.getType()), layout).kind == Conversion::SharedMemory)
      source = place(value, sharedFor(tileTypeOf(value)));
    Value converted = ConvertOp::create(builder, value.getLoc(), target, source, nullptr);
    return conversions[key] = converted;
  }

  /// A vector that is made of others in shared memory, number by number, is made again where it is wanted: threads
  /// would pass its numbers to each other one by one. Null where it is made of others.
  Value makeAgain(Value value, const Layout &layout) {
    if (!isVector(value) || layout.inSharedMemory() || inSharedMemory(value.getType()) || !isOfShared(value))
      return {};
    auto key = std::tuple(value, Type(withLayout(tileTypeOf(value), layout)), builder.getInsertionBlock());
    if (Value known = conversions.lookup(key))
      return known;
    Operation *op = value.getDefiningOp();
    IRMapping mapping;
    for (Value operand : op->getOperands())
      if (tileTypeOf(operand))
        mapping.map(operand, place(originOf(operand), layout));
    Value again = builder.clone(*op, mapping)->getResult(0);
    setLayout(again, layout);
    return conversions[key] = again;
  }

  /// What lies in shared memory, where a value was read from there.
  static Value originOf(Value value) {
    auto read = value.getDefiningOp<ConvertOp>();
    return read && inSharedMemory(read.getOperand().getType()) ? read.getOperand() : value;
  }

  /// Whether a vector is made, number by number, of vectors in shared memory and of constants.
  static bool isOfShared(Value value) {
    value = originOf(value);
    Operation *op = value.getDefiningOp();
    if (inSharedMemory(value.getType()) || isa_and_nonnull<arith::ConstantOp>(op))
      return true;
    return op && op->hasTrait<OpTrait::Elementwise>() && op->getNumResults() == 1 &&
           llvm::all_of(op->getOperands(), [](Value operand) {
             return !tileTypeOf(operand) || (isVector(operand) && isOfShared(operand));
           });
  }

  /// Moves on to the front of all loops that do not make `value`: it is the same in each of their iterations.
  void leaveLoops(Value value) {
    Region *made = value.getParentRegion();
    for (Region *inner = builder.getInsertionBlock()->getParent(); inner != made; inner = inner->getParentRegion())
      if (auto loop = dyn_cast<scf::ForOp>(inner->getParentOp()))
        builder.setInsertionPoint(loop);
  }

  /// Moves on to the front of conditions where an operand is wanted outside of them, too.
  void leaveConditions(Value value) {
    while (auto condition = dyn_cast<scf::IfOp>(builder.getInsertionBlock()->getParentOp())) {
      auto isOutside = [&](Operation *user) { return !condition->isAncestor(user); };
      bool isOfInner = condition->isAncestor(value.getParentRegion()->getParentOp());
      if (isOfInner || llvm::none_of(value.getUsers(), isOutside))
        return;
      builder.setInsertionPoint(condition);
    }
  }

  Value inRegisters(Value value) {
    if (std::optional<Layout> layout = layoutOf(value.getType()); layout && !layout->inSharedMemory())
      return value;
    return place(value, registersFor(tileTypeOf(value)));
  }

  void setLayout(Value value, const Layout &layout) { value.setType(withLayout(tileTypeOf(value), layout)); }

  void placeOperand(OpOperand &operand, const Layout &layout) { operand.set(place(operand.get(), layout)); }

  /// Whether several columns or parts of a tile in registers are asked for which its threads do not have themselves.
  bool isTakenApart(Value tile) {
    RankedTensorType type = tileTypeOf(tile);
    auto isOfOthers = [&](Operation *user) {
      auto columns = dyn_cast<chunk::ColumnsOp>(user);
      if (!columns || user->getBlock() != tile.getParentBlock())
        return false;
      RankedTensorType part = tileTypeOf(columns.getResult());
      return !columnsWithinThreads(withLayout(type, registersFor(type)), withLayout(part, registersFor(part)),
                                   static_cast<int64_t>(columns.getFrom()));
    };
    // The first part that is met decides for all of them.
    if (!inSharedMemory(type) && llvm::count_if(tile.getUsers(), isOfOthers) > 1)
      takenApart.insert(tile);
    return takenApart.contains(tile);
  }

  //===--------------------------------------------------------------------===//
  // Operations
  //===--------------------------------------------------------------------===//

  LogicalResult assign(Operation *op) {
    if (auto loop = dyn_cast<scf::ForOp>(op))
      return assignLoop(loop);
    if (auto condition = dyn_cast<scf::IfOp>(op))
      return assignCondition(condition);
    if (auto channel = dyn_cast<ChannelOp>(op)) {
      RankedTensorType tile = channel.getType().getTile();
      channel.getResult().setType(ChannelType::get(op->getContext(), withLayout(tile, sharedFor(tile))));
    } else if (auto receive = dyn_cast<ReceiveOp>(op)) {
      receive.getResult().setType(receive.getChannel().getType().getTile());
    } else if (auto pass = dyn_cast<PassOp>(op)) {
      // Whoever wants the tile in shared memory finds it where it is passed.
      Value tile = pass.getOperand();
      pass.getOperandMutable().assign(inRegisters(tile));
      pass.getResult().setType(pass.getChannel().getType().getTile());
      conversions[std::tuple(tile, Type(pass.getType()), op->getBlock())] = pass.getResult();
    } else if (auto condition = dyn_cast<ConditionOp>(op)) {
      placeOperand(condition.getTileMutable(), sharedFor(tileTypeOf(condition.getTile())));
    } else if (auto dot = dyn_cast<chunk::DotOp>(op)) {
      assignProduct(dot);
    } else if (auto matvec = dyn_cast<MatvecOp>(op)) {
      placeLeft(matvec.getMatrixMutable(), matvec.getTranspose(), gridOf(matvec));
      placeOperand(matvec.getVectorMutable(), rightVectorLayout(tileTypeOf(matvec.getVector()).getDimSize(0), warps));
      setLayout(matvec.getResult(), layoutOfSums(matvec));
    } else if (auto broadcast = dyn_cast<chunk::BroadcastOp>(op)) {
      assignBroadcast(broadcast);
    } else if (auto reduce = dyn_cast<chunk::ReduceOp>(op)) {
      // What all warps of a row have needs no exchange; what leaves the same numbers in the same places stays.
      unsigned kept = reduce.getOver() == chunk::Side::Columns ? 0 : 1;
      Layout wanted = registersFor(reduce.getOperand());
      std::optional<Layout> own = layoutOf(reduce.getOperand().getType());
      if (!own || own->inSharedMemory() || own->onto(kept) != wanted.onto(kept))
        placeOperand(reduce.getOperandMutable(), wanted);
      // Numbers of tokens that nothing but further sums over tokens asks for are in the lanes of every warp, which
      // exchange them without a barrier.
      setLayout(reduce.getResult(), !sweeps && isForSums(reduce.getResult())
                                        ? registersFor(tileTypeOf(reduce.getResult()))
                                        : layoutOf(reduce.getOperand().getType())->onto(kept));
    } else if (auto row = dyn_cast<chunk::RowOp>(op)) {
      row.getOperandMutable().assign(inRegisters(row.getOperand()));
      // One of several rows goes to shared memory, from where each thread takes what it wants of it: what it is
      // combined with may be anywhere.
      Layout source = *layoutOf(row.getOperand().getType());
      bool isOnly = source.rank() == 2 && (sweeps || source.side(0) == 1);
      RankedTensorType vector = tileTypeOf(row.getResult());
      setLayout(row.getResult(), isOnly               ? source.onto(1)
                                 : source.rank() == 2 ? sharedFor(vector)
                                                      : registersFor(vector));
    } else if (auto total = dyn_cast<chunk::TotalOp>(op)) {
      setLayout(total.getResult(), layoutOf(total.getAccumulated().getType())->onto(1));
    } else if (isa<chunk::WithinOp, chunk::DecayMatrixOp>(op)) {
      // What is asked of tiles in memory is asked by those who have the numbers that are made of them.
      bool isOfRuns = freeTiles.isOfRuns(op->getOperand(0));
      for (OpOperand &operand : op->getOpOperands())
        operand.set(isOfRuns ? place(operand.get(), runLayout(tileTypeOf(operand.get()).getShape(), warps))
                             : inRegisters(operand.get()));
      if (isa<chunk::DecayMatrixOp>(op))
        setLayout(op->getResult(0), registersFor(op->getResult(0)));
    } else if (auto conv = dyn_cast<chunk::ConvOp>(op)) {
      // Rows of other threads come from shared memory. What only goes on to products, which are formed from there, too,
      // may be where it shares most of what it reads.
      RankedTensorType tile = tileTypeOf(conv.getResult());
      bool isFree = !sweeps && isMadeAlone(conv.getResult());
      setLayout(conv.getResult(), isFree ? runLayout(tile.getShape(), warps) : registersFor(tile));
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType own = tileTypeOf(operand.get()); !inSharedMemory(own))
          placeOperand(operand, sweeps ? registersFor(own) : sharedFor(own));
    } else if (auto middle = dyn_cast<chunk::MiddleOp>(op)) {
      // Rows of other threads, which several such operations take from the same place.
      // So do the threads that want their own rows beside these: as many numbers of each thread would wait for that.
      Value rows = middle.getOperand();
      placeOperand(middle.getOperandMutable(), sharedFor(tileTypeOf(rows)));
      rows.replaceUsesWithIf(middle.getOperand(), [&](OpOperand &use) {
        return use.getOwner()->getBlock() == op->getBlock() && op->isBeforeInBlock(use.getOwner());
      });
      setLayout(middle.getResult(), layoutOfRows(middle.getResult()));
    } else if (auto join = dyn_cast<chunk::JoinHalvesOp>(op); join && inSharedMemory(join.getSecond().getType()) &&
                                                              join.getSecond().getType() == join.getFirst().getType()) {
      // Rows that lie in shared memory alike are taken from there, each thread those of its halves.
      setLayout(join.getResult(), layoutOfRows(join.getResult()));
    } else if (isa<chunk::DelayOp>(op)) {
      setLayout(op->getResult(0), registersFor(tileTypeOf(op->getResult(0))));
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType own = tileTypeOf(operand.get()); !inSharedMemory(own))
          placeOperand(operand, registersFor(own));
    } else if (auto back = dyn_cast<chunk::ConvBackOp>(op)) {
      // The same of rows behind. The threads of the rows have stored them where any others find them.
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType own = tileTypeOf(operand.get()); own && !inSharedMemory(own))
          placeOperand(operand, sweeps || !meetsTaps(operand.get()) ? registersFor(own) : sharedFor(own));
      RankedTensorType tile = tileTypeOf(back.getResult());
      bool isFree = !sweeps && isMadeAlone(back.getResult(), /*stored=*/true);
      setLayout(back.getResult(), isFree ? runLayout(tile.getShape(), warps) : registersFor(tile));
      setLayout(back.getNext(), registersFor(tileTypeOf(back.getNext())));
    } else if (auto taps = dyn_cast<chunk::ConvTapsOp>(op)) {
      // Threads walk down columns of what lies in shared memory, and leave sums of their rows there.
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType own = tileTypeOf(operand.get()); !inSharedMemory(own))
          placeOperand(operand, sweeps ? registersFor(own) : sharedFor(own));
      setLayout(taps.getResult(), layoutOfAdded(taps));
    } else if (auto columns = dyn_cast<chunk::ColumnsOp>(op); columns && isTakenApart(columns.getOperand())) {
      // What is taken apart is stored once, for all of its parts.
      placeOperand(columns.getOperandMutable(), sharedFor(tileTypeOf(columns.getOperand())));
      setLayout(columns.getResult(), registersFor(tileTypeOf(columns.getResult())));
    } else if (isa<chunk::ColumnsOp, chunk::TailOp>(op)) {
      // These read elements of other threads, from shared memory, where some operands are already. An operand of the
      // result's type is where the result is.
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType tile = tileTypeOf(operand.get()))
          if (!inSharedMemory(tile) || tile.getShape() == tileTypeOf(op->getResult(0)).getShape())
            placeOperand(operand, registersFor(tile));
      for (Value result : op->getResults())
        setLayout(result, registersFor(tileTypeOf(result)));
    } else if (auto concat = dyn_cast<chunk::ConcatOp>(op); concat && leftTiles.layoutFor(concat.getOperand(0))) {
      setLayout(op->getResult(0), registersFor(tileTypeOf(concat.getResult())));
    } else if (auto concat = dyn_cast<chunk::ConcatOp>(op); concat && staysInPlace(concat)) {
      Layout part = registersFor(tileTypeOf(concat.getOperand(0)));
      for (OpOperand &operand : op->getOpOperands())
        placeOperand(operand, part);
      setLayout(op->getResult(0), sideBySide(part, tileTypeOf(concat.getResult()).getShape()));
    } else if (isa<chunk::ConcatOp, chunk::DecayDotOp, chunk::DecayMixOp, chunk::DecayPairsOp, chunk::SolveOp,
                   chunk::ScanOp>(op)) {
      // These move elements between threads anyway: all in the registers that suit their shape.
      for (OpOperand &operand : op->getOpOperands()) {
        // Keys that lie in shared memory are read there.
        RankedTensorType tile = tileTypeOf(operand.get());
        bool isKeyInPlace =
            tile && inSharedMemory(tile) && isa<chunk::DecayDotOp>(op) && operand.getOperandNumber() == 1;
        if (tile && !isKeyInPlace)
          placeOperand(operand, registersFor(tile));
      }
      setLayout(op->getResult(0), registersFor(op->getResult(0)));
    } else if (auto inverse = dyn_cast<chunk::InverseOp>(op)) {
      // Whole rows of a warp, in blocks that are operands of products. The inverse goes on where others of its shape
      // are, if all of that stays within warps.
      ArrayRef<int64_t> shape = inverse.getType().getShape();
      Layout rows = leftOperandLayout(shape[0], shape[1], WarpGrid::of(shape[0], shape[1], warps));
      Layout wanted = registersFor(inverse.getResult());
      placeOperand(inverse.getMatrixMutable(), rows);
      setLayout(inverse.getResult(), rows);
      if (wanted != rows && Conversion::between(rows, wanted).kind != Conversion::SharedMemory) {
        builder.setInsertionPointAfter(op);
        auto placed = ConvertOp::create(builder, op->getLoc(), withLayout(inverse.getType(), wanted),
                                        inverse.getResult(), IntegerAttr());
        inverse.getResult().replaceAllUsesExcept(placed, placed);
      }
    } else if (isa<SpanOp>(op)) {
      // Bounds that any thread may ask for.
      for (OpOperand &operand : op->getOpOperands())
        if (RankedTensorType tile = tileTypeOf(operand.get()); tile && !inSharedMemory(tile))
          placeOperand(operand, registersFor(tile));
    } else if (auto inRange = dyn_cast<InRangeOp>(op)) {
      assignInRange(inRange);
    } else if (isa<LoadOp, EvaluateOp>(op)) {
      setLayout(op->getResult(0), registersFor(tileTypeOf(op->getResult(0))));
    } else if (isa<StoreOp, SaveOp, ReplaceOp>(op)) {
      op->setOperand(0, inRegisters(op->getOperand(0)));
    } else if (isInPlace(op)) {
      assignElementwise(op);
    } else if (!isa<arith::ConstantOp, SendOp, AwaitOp, ReleaseOp, TokensOp, SegmentOp, GroupOp, kernel::ChunkOp,
                    CarryOp, FetchOp, LeaveOp, ReturnOp, BarrierOp, chunk::ExpectOp, scf::YieldOp>(op)) {
      return op->emitOpError("has no form on a GPU");
    }
    return success();
  }

  /// Whether the gradient of taps takes rows from where the convolution back does.
  static bool meetsTaps(Value rows) { return llvm::any_of(rows.getUsers(), llvm::IsaPred<chunk::ConvTapsOp>); }

  /// Whether parts that are as wide as each other may stay where they are: a thread then has its columns of each.
  bool staysInPlace(chunk::ConcatOp op) {
    RankedTensorType first = tileTypeOf(op.getOperand(0));
    return !sweeps && !leftTiles.layoutFor(op.getOperand(0)) && isMadeAlone(op.getResult()) && first.getRank() == 2 &&
           llvm::isPowerOf2_64(op.getNumOperands()) &&
           paddedBits(first.getShape())[1] == bitsToCount(first.getDimSize(1)) &&
           llvm::isPowerOf2_64(first.getDimSize(1)) &&
           llvm::all_of(op.getOperands(), [&](Value part) { return tileTypeOf(part).getShape() == first.getShape(); });
  }

  /// All operands are in the layout of the first one that is in registers; numbers that are repeated have any.
  void assignElementwise(Operation *op) {
    if (op->getNumResults() != 1 || !tileTypeOf(op->getResult(0)))
      return;
    std::optional<Layout> ofTile, ofRepeated;
    for (Value operand : op->getOperands())
      if (std::optional<Layout> own = layoutOf(operand.getType()); own && !own->inSharedMemory()) {
        bool isRepeated = operand.getDefiningOp<chunk::BroadcastOp>() && own->rank() == 2;
        std::optional<Layout> &first = isRepeated ? ofRepeated : ofTile;
        first = first ? first : own;
      }
    Layout layout = freeTiles.isOfRuns(op->getResult(0))   ? runLayout(tileTypeOf(op->getResult(0)).getShape(), warps)
                    : freeTiles.isOfRows(op->getResult(0)) ? layoutOfRows(op->getResult(0))
                    : ofTile                               ? *ofTile
                    : ofRepeated                           ? *ofRepeated
                                                           : layoutOfFirst(op->getResult(0));
    for (OpOperand &operand : op->getOpOperands())
      if (tileTypeOf(operand.get()))
        placeOperand(operand, layout);
    setLayout(op->getResult(0), layout);
  }

  Layout layoutOfRows(Value value) {
    return freeTiles.isOfRows(value) ? rowsLayout(tileTypeOf(value).getShape(), warps)
                                     : registersFor(tileTypeOf(value));
  }

  /// Where a value is that is made of nothing in registers. What only goes back to shared memory, for products, each
  /// warp makes a part of, if it would be made by several in the places where products leave it.
  Layout layoutOfFirst(Value value) {
    bool goesBack = forWarpgroups && !sweeps && !leftTiles.layoutFor(value) &&
                    llvm::all_of(value.getDefiningOp()->getOperands(), [](Value operand) {
                      return tileTypeOf(operand) && inSharedMemory(operand.getType()) && isMadeAlone(operand);
                    });
    return goesBack ? registerLayout(tileTypeOf(value).getShape(), warps) : registersFor(value);
  }

  void assignBroadcast(chunk::BroadcastOp op) {
    Layout tile = registersFor(op.getResult());
    for (Operation *user : op->getUsers())
      if (user->getNumResults() == 1 && tileTypeOf(user->getResult(0)))
        tile = layoutOfJoined(user->getResult(0)).value_or(tile);
    bool isVector = tileTypeOf(op.getOperand()).getRank() == 1;
    Layout source = registersFor(tileTypeOf(op.getOperand()));
    if (isVector && tile.rank() == 2)
      source = tile.onto(op.getAlong() == chunk::Side::Rows ? 0 : 1);
    placeOperand(op.getOperandMutable(), source);
    setLayout(op.getResult(), tile);
  }

  /// Bounds are where the tokens that have them are in pairs, conditions of tokens alone where those of any tile's rows
  /// are. Of the bounds of a whole chunk any thread may ask.
  void assignInRange(InRangeOp op) {
    RankedTensorType bounds = tileTypeOf(op.getFirst()), result = tileTypeOf(op.getResult());
    bool isOfPairs = result.getRank() == 2;
    Layout pairs = isOfPairs ? registersFor(op.getResult())
                             : registersFor(result.clone({result.getDimSize(0), result.getDimSize(0)}));
    setLayout(op.getResult(), isOfPairs ? pairs : pairs.onto(0));
    Layout places = isOfPairs && op.getAhead()   ? pairs.onto(1)
                    : isOfPairs || op.getAhead() ? pairs.onto(0)
                                                 : registersFor(bounds);
    for (OpOperand &operand : op->getOpOperands())
      if (tileTypeOf(operand.get()))
        placeOperand(operand, places);
  }

  void assignProduct(chunk::DotOp op) {
    RankedTensorType result = tileTypeOf(op.getResult());
    // Fragments, in a walk over states, too.
    Layout sums = leftTiles.layoutFor(op.getResult()).value_or(fragmentsFor(result));
    setLayout(op.getResult(), sums);
    if (op.getAddend())
      placeOperand(op.getAddendMutable()[0], sums);

    if (liesAcross(sums)) // the left operand is on the right of what is formed
      placeOperand(op.getLeftMutable(), sharedFor(tileTypeOf(op.getLeft())));
    else
      placeLeft(op.getLeftMutable(), op.getTransposeLeft(),
                WarpGrid::of(result.getDimSize(0), result.getDimSize(1), warps));
    placeOperand(op.getRightMutable(), sharedFor(tileTypeOf(op.getRight())));
  }

  /// Whether a tile is there before the loop in whose turns an operation asks for it.
  static bool isThereBeforeLoop(OpOperand &operand) {
    auto loop = operand.getOwner()->getParentOfType<scf::ForOp>();
    return loop && !loop.getBodyRegion().isAncestor(operand.get().getParentRegion());
  }

  /// A left operand in fragments that agree stays where it is; where a walk back stores it in any case it is read
  /// there, unless nothing has to be masked. One that is there before a loop does not: ptxas 13.0 was seen to give
  /// another operand of the loop its registers.
  void placeLeft(OpOperand &operand, bool transposed, WarpGrid grid) {
    RankedTensorType left = tileTypeOf(operand.get());
    Layout fragments = leftOperandLayout(left.getDimSize(0), left.getDimSize(1), grid);
    std::optional<Layout> own = layoutOf(left);
    bool isWhole = left.getDimSize(1) % 16 == 0;
    bool agrees = own && !own->inSharedMemory() && !transposed && left.getElementTypeBitWidth() == 16 &&
                  !isThereBeforeLoop(operand) && (isWhole || !storesEarly) &&
                  Conversion::between(*own, fragments).kind == Conversion::SameRegisters;
    placeOperand(operand, agrees ? fragments : sharedFor(left));
  }

  WarpGrid gridOf(MatvecOp op) {
    return WarpGrid::ofMatvec(tileTypeOf(op.getResult()).getDimSize(0), op.getTranspose(), warps);
  }

  Layout layoutOfSums(MatvecOp op) {
    return matvecLayout(tileTypeOf(op.getResult()).getDimSize(0), op.getTranspose(), warps);
  }

  /// The reduction, total, gradient of taps or product with a vector that a loop adds to numbers which it carries.
  static Operation *addedTo(Value next) {
    SmallVector<Value> pending = {next};
    while (tileTypeOf(next) && !pending.empty()) {
      Value value = pending.pop_back_val();
      Operation *op = value.getDefiningOp();
      if (isVector(next) ? isa_and_nonnull<chunk::ReduceOp, chunk::TotalOp, MatvecOp>(op)
                         : isa_and_nonnull<chunk::ConvTapsOp>(op))
        return op;
      if (auto loop = dyn_cast_if_present<scf::ForOp>(op))
        pending.push_back(loop.getBody()->getTerminator()->getOperand(cast<OpResult>(value).getResultNumber()));
      else if (op && op->hasTrait<OpTrait::Elementwise>())
        llvm::append_range(pending, op->getOperands());
    }
    return nullptr;
  }

  /// Where an operation leaves such numbers.
  Layout layoutOfAdded(Operation *op) {
    if (auto reduce = dyn_cast<chunk::ReduceOp>(op))
      return registersFor(reduce.getOperand()).onto(reduce.getOver() == chunk::Side::Columns ? 0 : 1);
    if (auto total = dyn_cast<chunk::TotalOp>(op))
      return registersFor(total.getAccumulated()).onto(1);
    if (auto taps = dyn_cast<chunk::ConvTapsOp>(op))
      return tapsLayout(tileTypeOf(taps.getResult()).getShape(), warps);
    return layoutOfSums(cast<MatvecOp>(op));
  }

  LogicalResult assignLoop(scf::ForOp loop) {
    for (auto [initial, argument, result, next] :
         llvm::zip(loop.getInitArgsMutable(), loop.getRegionIterArgs(), loop.getResults(),
                   loop.getBody()->getTerminator()->getOperands())) {
      if (!tileTypeOf(next))
        continue;
      std::optional<Layout> own = layoutOf(initial.get().getType());
      // Where a reduction leaves them, but not where totals are, numbers take more registers than a gradient has.
      Operation *added = addedTo(next);
      bool stays = own && !own->inSharedMemory() &&
                   (!added || (readsAllAgain && !isa<chunk::TotalOp, chunk::ConvTapsOp>(added)));
      Layout wanted =
          added ? layoutOfAdded(added) : leftTiles.layoutFor(result).value_or(registersFor(tileTypeOf(next)));
      initial.set(stays ? initial.get() : place(initial.get(), wanted));
      argument.setType(initial.get().getType());
      result.setType(initial.get().getType());
    }
    if (failed(assign(*loop.getBody())))
      return failure();
    Operation *yield = loop.getBody()->getTerminator();
    builder.setInsertionPoint(yield);
    for (auto [operand, argument] : llvm::zip(yield->getOpOperands(), loop.getRegionIterArgs()))
      if (tileTypeOf(argument))
        placeOperand(operand, *layoutOf(argument.getType()));
    return success();
  }

  LogicalResult assignCondition(scf::IfOp condition) {
    for (Region *region : condition.getRegions())
      for (Block &block : *region)
        if (failed(assign(block)))
          return failure();
    for (Block *block : {condition.thenBlock(), condition.elseBlock()}) {
      if (!block)
        continue;
      builder.setInsertionPoint(block->getTerminator());
      for (auto [operand, result] : llvm::zip(block->getTerminator()->getOpOperands(), condition.getResults()))
        if (tileTypeOf(operand.get()))
          placeOperand(operand, registersFor(result));
    }
    for (Value result : condition.getResults())
      if (tileTypeOf(result))
        setLayout(result, registersFor(result));
    return success();
  }

  int64_t warps, tokens;
  LeftTiles leftTiles;
  /// Whether matrices are walked over, as those of single tokens are, so many columns at a time.
  bool sweeps;
  /// Whether warpgroups are to form the products.
  bool forWarpgroups;
  /// Whether what is in shared memory is read for each operation that asks for it, all of it or numbers of 16 bits.
  bool readsAllAgain, readsNarrowAgain, storesEarly;
  bool ofGradient;
  int64_t perAccess;
  OpBuilder builder;
  DenseMap<std::tuple<Value, Type, Block *>, Value> conversions;
  DenseSet<Value> takenApart; // tiles that are stored for all of their parts
  DenseMap<Value, std::optional<Layout>> joined;
  FreeTiles freeTiles;
};

/// The columns that one access may take of each state.
FailureOr<int64_t> columnsPerAccess(FuncOp function) {
  int64_t columns = 4;
  if (!function->hasAttr(Manifest::attributeName))
    return columns;
  FailureOr<Manifest> manifest = Manifest::leftOn(function);
  if (failed(manifest))
    return failure();
  for (const Manifest::Argument &argument : manifest->arguments)
    if (argument.kind == Manifest::Kind::State && argument.shape.size() == 2)
      columns = std::min(columns, argument.perAccess());
  return columns;
}

struct AssignLayouts : stretto::impl::AssignLayoutsBase<AssignLayouts> {
  using AssignLayoutsBase::AssignLayoutsBase;

  void runOnOperation() override {
    FailureOr<int64_t> perAccess = columnsPerAccess(getOperation());
    if (failed(perAccess) || failed(LayoutAssigner(getOperation(), *perAccess, readAgain, repeatLeft, warpgroups)
                                        .assign(*getOperation().getBlock())))
      return signalPassFailure();
    // Constants and vectors were made anew in every layout.
    SmallVector<Operation *> made;
    getOperation().walk([&](Operation *op) {
      if (isa<arith::ConstantOp, ConvertOp>(op) || op->hasTrait<OpTrait::Elementwise>())
        made.push_back(op);
    });
    for (Operation *op : llvm::reverse(made))
      if (op->use_empty())
        op->erase();
  }
};
} // namespace
