//===- Plan.cpp - Where the values of a kernel live on a CPU --------------===//

#include "codegen/cpu/Plan.h"
#include "codegen/cpu/VectorBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Transforms/RegionUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// Properties of operations
//===----------------------------------------------------------------------===//

bool cpu::isPointwise(Operation *op) {
  if (!op)
    return false;
  if (auto columns = dyn_cast<chunk::ColumnsOp>(op))
    return rankOf(columns.getOperand()) == rankOf(columns.getResult());
  if (isa<chunk::BroadcastOp, chunk::CausalOp, chunk::MaskOp, chunk::AgainOp, chunk::ConvOp, chunk::DelayOp,
          chunk::DecayFromStartOp, chunk::DecayToEndOp, chunk::DecayStateOp, chunk::DecayMatrixOp>(op))
    return true;
  return isa<arith::ArithDialect, math::MathDialect>(op->getDialect());
}

bool cpu::keepsPlace(OpOperand &use) {
  Operation *user = use.getOwner();
  if (!isPointwise(user) ||
      isa<chunk::BroadcastOp, chunk::ColumnsOp, chunk::ConvOp, chunk::DelayOp, chunk::DecayMatrixOp>(user))
    return false;
  return !isa<chunk::ChunkDialect>(user->getDialect()) || use.getOperandNumber() == 0; // not an amount of decay
}

bool cpu::isProduct(Operation *op) {
  auto decayed = dyn_cast_or_null<chunk::DecayDotOp>(op);
  return isa_and_nonnull<chunk::DotOp>(op) || (decayed && rankOf(decayed.getAmount()) == 1);
}

bool cpu::isCausal(Value value) {
  Operation *op = value.getDefiningOp();
  if (isa_and_nonnull<chunk::CausalOp, chunk::DecayDotOp>(op))
    return true;
  if (auto mask = dyn_cast_or_null<chunk::MaskOp>(op); mask && !mask.getOtherwise().isZero())
    return false;
  return isa_and_nonnull<arith::ExtFOp, arith::TruncFOp, chunk::MaskOp>(op) && isCausal(op->getOperand(0));
}

/// Whether the operation costs much more than a load and a store.
static bool isCostly(Operation *op) {
  return isa<arith::DivFOp, arith::RemFOp, chunk::ConvOp>(op) ||
         (isa<math::MathDialect>(op->getDialect()) && !isa<math::AbsFOp, math::FloorOp, math::RoundEvenOp>(op));
}

//===----------------------------------------------------------------------===//
// The plan
//===----------------------------------------------------------------------===//

SmallVector<Operation *> cpu::operationsOf(chunk::KernelOp kernel) {
  SmallVector<Operation *> operations;
  kernel.walk<WalkOrder::PostOrder>([&](Operation *op) {
    if (op != kernel && !op->hasTrait<OpTrait::IsTerminator>())
      operations.push_back(op);
  });
  return operations;
}

Plan::Plan(chunk::KernelOp kernel, const SweepPlan &sweeps, PairProducts pairs)
    : operations(operationsOf(kernel)), sweeps(sweeps) {
  findPairs(pairs);
  findInvariant(kernel);
  findDecays(kernel);
  storeOperands(kernel);
  storeCostly(kernel);
  fuseProducts(kernel);
  findUpdatesInPlace(kernel);
  findLastReads(kernel);
}

/// Whether the argument's tile is the same for all chunks of a sequence.
static bool isInvariantArgument(chunk::KernelOp kernel, BlockArgument argument) {
  chunk::ArgumentAttr description = kernel.getArgument(argument.getArgNumber());
  if (description.getKind() != chunk::ArgumentKind::Table)
    return description.getKind() == chunk::ArgumentKind::Parameter;
  auto table = SymbolTable::lookupNearestSymbolFrom<chunk::TableOp>(kernel, description.getName());
  return table && !table.getPeriod() && !table.getVarying();
}

/// Whether tiles take less time for a product than vectors. A multiplication of tiles takes as many cycles as the left
/// one has rows, whether these are filled or not, and sums go through memory; those of vectors take one cycle for two
/// entries along the contracted axis, be they pairs or not.
static bool gainsFromTiles(Operation *product) {
  constexpr int64_t tileRows = VectorBuilder::tileRows, tileDepth = 2 * VectorBuilder::tileWords, throughMemory = 32;
  auto dot = dyn_cast<chunk::DotOp>(product);
  int64_t rows = shapeOf(product->getResult(0))[0];
  int64_t depth = shapeOf(product->getOperand(0))[dot && dot.getTransposeLeft() ? 0 : 1];
  int64_t ofTiles = llvm::divideCeil(rows, tileRows) * (llvm::divideCeil(depth, tileDepth) * tileRows + throughMemory);
  return ofTiles < rows * static_cast<int64_t>(llvm::divideCeil(depth, 2));
}

void Plan::findPairs(PairProducts pairs) {
  for (Operation *op : operations) {
    bool isOfBf16 = isProduct(op) && llvm::all_of(op->getOperands().take_front(2), [](Value operand) {
                      return getElementTypeOrSelf(operand.getType()).isBF16();
                    });
    if (!isOfBf16)
      continue;
    if (pairs.tiles && gainsFromTiles(op))
      ofTiles.insert(op);
    if (pairs.vectors || isOfTiles(op))
      ofPairs.insert(op);
  }
}

void Plan::findInvariant(chunk::KernelOp kernel) {
  for (BlockArgument argument : kernel.getBlock()->getArguments())
    if (isInvariantArgument(kernel, argument))
      invariant.insert(argument);
  for (Operation *op : operations)
    if (!isa<chunk::LookbackOp>(op) &&
        llvm::all_of(op->getOperands(), [&](Value operand) { return isInvariant(operand); }))
      invariant.insert(op->result_begin(), op->result_end());
}

void Plan::findDecays(chunk::KernelOp kernel) {
  // The loop of `decay_dot` decays its keys to the end as it goes; a `decay_to_end` of the same keys is then free.
  kernel.walk([&](chunk::DecayDotOp product) {
    if (rankOf(product.getAmount()) == 1)
      return;
    for (Operation *user : product.getKey().getUsers()) {
      auto keys = dyn_cast<chunk::DecayToEndOp>(user);
      if (keys && keys.getOperand() == product.getKey() && keys.getAmount() == product.getAmount() &&
          keys.getForm() == product.getForm() && product->isBeforeInBlock(keys))
        decayed[product] = keys;
    }
  });
  for (Operation &op : *kernel.getBlock()) {
    TypeSwitch<Operation *>(&op)
        .Case([&](chunk::DecayDotOp dot) {
          DecayUses &uses = decayUses[{dot.getAmount(), dot.getForm()}];
          (rankOf(dot.getAmount()) == 1 ? uses.pairs : uses.factors) = true;
        })
        .Case([&](chunk::DecayMixOp mix) { decayUses[{mix.getAmount(), mix.getForm()}].factors = true; })
        .Case([&](chunk::DecayPairsOp pairs) { decayUses[{pairs.getAmount(), pairs.getForm()}].factors = true; })
        .Case([&](chunk::DecayMatrixOp matrix) { decayUses[{matrix.getAmount(), matrix.getForm()}].pairs = true; })
        .Case([&](chunk::DecayFromStartOp start) { decayUses[{start.getAmount(), start.getForm()}].prefix = true; })
        .Case([&](chunk::DecayStateOp state) { decayUses[{state.getAmount(), state.getForm()}].total = true; })
        .Case([&](chunk::DecayToEndOp end) {
          bool free = llvm::any_of(decayed, [&](auto &entry) { return entry.second == end; });
          decayUses[{end.getAmount(), end.getForm()}].suffix |= !free;
        });
  }
}

void Plan::storeOperands(chunk::KernelOp kernel) {
  SmallVector<Value> left; // in either order
  for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
    chunk::ArgumentKind kind = kernel.getArgument(argument.getArgNumber()).getKind();
    bool isStored = rankOf(argument) < 2 || kind == chunk::ArgumentKind::State || kind == chunk::ArgumentKind::Table;
    if (isStored && !sweeps.isMatrix(argument))
      stored[argument].rows = true;
  }
  for (Operation *op : operations) {
    for (Value result : op->getResults())
      if (isFloat(result) && !isa<arith::ConstantOp, chunk::DecayDotOp>(op) &&
          (rankOf(result) < 2 || !(isPointwise(op) || isProduct(op))))
        stored[result].rows = true;
    TypeSwitch<Operation *>(op)
        .Case([&](chunk::DotOp dot) {
          if (isOfPairs(dot)) {
            Orders &left = stored[dot.getLeft()];
            (!dot.getTransposeLeft() ? left.columnPairs
             : isOfTiles(dot)        ? left.transposedRowPairs
                                     : left.rowPairs) = true;
            (dot.getTransposeRight() ? stored[dot.getRight()].transposedPairs : stored[dot.getRight()].rowPairs) = true;
            return;
          }
          left.push_back(dot.getLeft());
          (dot.getTransposeRight() ? stored[dot.getRight()].transposed : stored[dot.getRight()].rows) = true;
        })
        .Case([&](chunk::LookbackOp lookback) { storePast(kernel, lookback); })
        .Case([&](chunk::ConvOp conv) { stored[conv.getTaps()].transposed = true; })
        .Case([&](chunk::ConvBackOp conv) {
          stored[conv.getTaps()].transposed = true;
          stored[conv.getOperand()].rows = true;
        })
        .Case([&](chunk::ConvTapsOp taps) { stored[taps.getWeights()].rows = true; })
        .Case([&](chunk::DecayPairsOp pairs) {
          left.push_back(pairs.getWeights());
          stored[pairs.getQuery()].rows = stored[pairs.getKey()].rows = true;
        })
        .Case([&](chunk::SolveOp solve) { left.push_back(solve.getMatrix()); })
        .Case([&](chunk::DecayMixOp mix) {
          left.push_back(mix.getWeights());
          stored[mix.getRows()].rows = true;
        })
        .Case([&](chunk::DecayDotOp dot) {
          if (isOfPairs(dot)) {
            stored[dot.getQuery()].columnPairs = stored[dot.getKey()].transposedPairs = true;
            return;
          }
          if (isProduct(dot)) {
            left.push_back(dot.getQuery());
            stored[dot.getKey()].transposed = true;
            return;
          }
          stored[dot.getQuery()].rows = stored[dot.getKey()].rows = true;
          stored[dot.getResult()].transposed = true;
          if (chunk::DecayToEndOp keys = decayedKeys(dot))
            stored[keys.getResult()].rows = true;
        });
  }
  for (Value value : left)
    if (!orders(value).rows && !orders(value).transposed)
      stored[value].rows = true;
  // What is made transposed is read by rows where it is computed with.
  kernel.walk([&](chunk::DecayDotOp dot) {
    for (OpOperand &use : dot.getResult().getUses())
      if (!isProduct(dot) && !isa<chunk::DotOp, chunk::DecayMixOp, chunk::SolveOp>(use.getOwner()))
        stored[dot.getResult()].rows = true;
  });
}

/// What tables hold of other tokens is gathered, and numbers of tokens too; what the body contributes is met by
/// products.
void Plan::storePast(chunk::KernelOp kernel, chunk::LookbackOp lookback) {
  for (auto [argument, source] : llvm::zip_equal(lookback.getBlock()->getArguments(), lookback.getPast())) {
    unsigned number = cast<BlockArgument>(source).getArgNumber();
    if (rankOf(argument) < 2 || kernel.getArgument(number).getKind() == chunk::ArgumentKind::Table)
      stored[argument].rows = true;
  }
  for (Value contribution : lookback.getContribution().getGiven())
    stored[contribution].rows = true;
}

void Plan::storeCostly(chunk::KernelOp kernel) {
  // What a value computed in place costs its user includes what it computes in place itself.
  llvm::DenseSet<Value> costly;
  for (Operation *op : operations) {
    if (!isPointwise(op) || !isFloat(op->getResult(0)) || orders(op->getResult(0)).any() ||
        sweeps.isMatrix(op->getResult(0)))
      continue;
    Value result = op->getResult(0);
    if (!isCostly(op) && llvm::none_of(op->getOperands(), [&](Value operand) { return costly.contains(operand); }))
      continue;
    bool isRepeated = isInvariant(result) && llvm::any_of(result.getUsers(), [&](Operation *user) {
                        return user->getNumResults() == 0 || !isInvariant(user->getResult(0));
                      });
    if (isRepeated || (!result.use_empty() && !result.hasOneUse()))
      stored[result].rows = true;
    else
      costly.insert(result);
  }
}

void Plan::fuseProducts(chunk::KernelOp kernel) {
  for (Operation *op : operations) {
    if (!isProduct(op))
      continue;
    Value sums = op->getResult(0);
    if (isa<chunk::DotOp>(op) && sums.hasOneUse() && !orders(sums).any()) {
      auto total = dyn_cast<chunk::DotOp>(*sums.user_begin());
      if (total && total.getAddend() == sums && isInvariant(total.getResult()) == isInvariant(sums) &&
          isOfTiles(total) == isOfTiles(op)) {
        fused.insert(op);
        continue;
      }
    }
    // Follow the only user while it needs nothing but the same entry.
    Value root = sums;
    for (Value value = sums; !orders(value).any() && value.hasOneUse() && keepsPlace(*value.use_begin());) {
      value = value.getUses().begin()->getOwner()->getResult(0);
      if (shapeOf(value) != shapeOf(sums) || isInvariant(value) != isInvariant(sums))
        break;
      if (isFloat(value))
        root = value;
    }
    // Sums are stored as they come, and an expression holds at most one product.
    if ((orders(root).isTurned() && !orders(root).rows) || product(root))
      root = sums;
    bool isYielded = root.hasOneUse() && isa<chunk::YieldOp>(*root.user_begin());
    bool onlyInPairs = orders(root).columnPairs && llvm::all_of(root.getUses(), [&](OpOperand &use) {
                         return isOfPairs(use.getOwner()) && use.getOperandNumber() < 2;
                       });
    if (!isYielded && !onlyInPairs)
      stored[root].rows = true;
    products[root] = op;
    if (root != sums)
      fused.insert(op);
  }
}

/// Whether computing `value` in place reads `state`, at the same entry or, if `elsewhere`, only at others.
static bool reads(const Plan &plan, Value value, Value state, bool elsewhere) {
  SmallVector<std::pair<Value, bool>> pending = {{value, !elsewhere}};
  llvm::DenseSet<std::pair<Value, unsigned>> seen;
  while (!pending.empty()) {
    auto [current, counts] = pending.pop_back_val();
    if (current == state && counts)
      return true;
    Operation *op = current.getDefiningOp();
    if (!op || !seen.insert({current, unsigned(counts)}).second)
      continue;
    for (OpOperand &operand : op->getOpOperands()) {
      bool isAddend = isa<chunk::DotOp>(op) && operand.getOperandNumber() == 2;
      bool samePlace = isAddend || keepsPlace(operand);
      bool isOperand = plan.isOfPairs(op) && operand.getOperandNumber() < 2;
      Orders orders = plan.orders(operand.get());
      if (operand.get() == state || !(isOperand ? orders.any() : orders.rows))
        pending.push_back({operand.get(), counts || !samePlace});
    }
  }
  return false;
}

void Plan::findUpdatesInPlace(chunk::KernelOp kernel) {
  auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
  for (auto [index, state] : llvm::enumerate(kernel.argumentsOf(chunk::ArgumentKind::State))) {
    bool isReadLater = llvm::any_of(yield.getStates().drop_front(index + 1),
                                    [&](Value next) { return reads(*this, next, state, /*elsewhere=*/false); });
    inPlace.push_back(!isReadLater && !reads(*this, yield.getStates()[index], state, /*elsewhere=*/true));
  }
}

ArrayRef<Value> Plan::readLastBy(Value value) const {
  auto found = lastReads.find(value);
  return found == lastReads.end() ? ArrayRef<Value>() : found->second;
}

void Plan::findLastReads(chunk::KernelOp kernel) {
  // The stages, in order, each with the stored values that it reads; the yield is the last, under no value.
  llvm::MapVector<Value, Value> readers; // the last one of each stored value
  auto read = [&](Value reader, ValueRange operands) {
    SmallVector<Value> pending = llvm::to_vector(operands);
    llvm::DenseSet<Value> seen;
    while (!pending.empty()) {
      Value value = pending.pop_back_val();
      if (!seen.insert(value).second)
        continue;
      if (orders(value).any())
        readers[value] = reader;
      // What is stored transposed alone is computed in place once more where it is not a product's operand.
      if (Operation *op = value.getDefiningOp(); op && !orders(value).rows)
        llvm::append_range(pending, op->getOperands());
    }
  };
  for (Operation *op : operations) {
    Value result = op->getResult(0);
    bool copiesRows = isa<chunk::ConvOp, chunk::DelayOp>(op); // to what precedes them
    bool isAmount = llvm::any_of(decayUses, [&](auto &entry) { return entry.first.first == result; });
    if (orders(result).any() || copiesRows || isAmount)
      read(result, op->getOperands());
    // Every tile that a look-back meets is computed from the same values from outside of its body.
    if (auto lookback = dyn_cast<chunk::LookbackOp>(op)) {
      SetVector<Value> outside;
      getUsedValuesDefinedAbove(lookback.getBody(), outside);
      read(result, outside.getArrayRef());
      read(result, lookback.getContribution().getOperands());
    }
  }
  read(Value(), kernel.getBlock()->getTerminator()->getOperands());

  for (auto [value, reader] : readers) {
    auto argument = dyn_cast<BlockArgument>(value);
    bool isTile = !argument || argument.getOwner() != kernel.getBlock() ||
                  kernel.getArgument(argument.getArgNumber()).getKind() == chunk::ArgumentKind::Input;
    if (reader && isTile && !isInvariant(value))
      lastReads[reader].push_back(value);
  }
}
