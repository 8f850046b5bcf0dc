//===- Adjoint.cpp - States, parameters and the walk ----------------------===//

#include "passes/declaration/Adjoint.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace stretto;

Adjoint::Adjoint(VariantOp variant, const Sizes &sizes, IsWanted isWanted)
    : ImplicitLocOpBuilder(variant.getLoc(), variant.getContext()), variant(variant), sizes(sizes), isWanted(isWanted) {
  setInsertionPoint(variant.getBlock()->getTerminator());
  for (Operation &op : variant.getBlock()->without_terminator())
    program.push_back(&op);
  for (const StateEntry &entry : deriveState(variant)) {
    auto shared = std::make_shared<Carried>(Carried{entry.name, entry.operations, isWanted(entry.name)});
    for (Operation *op : entry.operations)
      carried[op] = shared;
  }
}

//===----------------------------------------------------------------------===//
// What is asked for
//===----------------------------------------------------------------------===//

/// Operations through which no gradient flows.
static bool isConstant(Operation *op) {
  return isa<StopGradientOp, TableOp, PositionOp, OptionOp, SizeOp, ConstantOp, arith::ConstantOp, arith::CmpFOp,
             math::FloorOp, math::RoundEvenOp>(op);
}

void Adjoint::findActive() {
  SmallVector<StateChain> chains = stateChains(variant);
  size_t before;
  do {
    before = active.size();
    for (Operation *op : program) {
      auto dependsOnActive = [&](Operation *inner) {
        return llvm::any_of(inner->getOperands(), [&](Value row) { return isActive(row); });
      };
      auto holdsDependent = [&](Operation *) {
        return op->walk([&](Operation *inner) { return WalkResult(failure(dependsOnActive(inner))); }).wasInterrupted();
      };
      if (!isConstant(op) && (isEntryWanted(op) || holdsDependent(op)))
        active.insert(op->result_begin(), op->result_end());
    }
    // A token begins with what the one before has left.
    for (const StateChain &chain : chains)
      if (!chain.steps.empty() && isActive(chain.steps.back()->getResult(0)))
        active.insert(chain.getRoot().getResult());
  } while (active.size() != before);
}

void Adjoint::add(Value value, Value cotangent) {
  if (!isActive(value))
    return;
  cotangent = forHeads(cotangent, headsOf(value.getType()));
  Value &present = cotangents[value];
  present = present ? plus(present, cotangent) : cotangent;
}

Value Adjoint::cotangentOf(Value row) {
  if (auto slices = slicesOf.find(row); slices != slicesOf.end()) {
    Value joined = join(row, std::move(slices->second));
    slicesOf.erase(slices);
    add(row, joined);
  }
  return cotangents.lookup(row);
}

Value Adjoint::gradientOf(Value row) {
  Value cotangent = cotangentOf(row);
  return cotangent ? cotangent : constant(row.getType(), 0);
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

LogicalResult Adjoint::run(ArrayRef<Value> resultCotangents) {
  for (auto [argument, name] :
       llvm::zip(variant.getBody().getArguments(), variant.getArgNames().getAsRange<StringAttr>()))
    if (getElementTypeOrSelf(argument).isF64() && isWanted(name))
      active.insert(argument);
  findActive();
  for (const StateChain &chain : stateChains(variant)) {
    StateOp root = chain.getRoot();
    if (!isActive(root.getResult()))
      continue;
    setLoc(root.getLoc());
    auto cotangent = create<StateOp>(reversed(root.getType()), ("d_" + root.getName()).str());
    pairs[root].cotangent = cotangent.getResult();
    if (isEntryWanted(root))
      leaving.push_back(cotangent);
  }
  for (auto [result, cotangent] : llvm::zip_equal(variant.getBlock()->getTerminator()->getOperands(), resultCotangents))
    if (cotangent)
      add(result, cotangent);
  for (Operation *op : llvm::reverse(program)) {
    setLoc(op->getLoc());
    if (failed(visit(op)))
      return failure();
  }
  setLoc(variant.getLoc());
  writeParameters();
  return success();
}

LogicalResult Adjoint::visit(Operation *op) {
  if (isa<StateOp, WriteOp, DecayOp>(op) && !isActive(op->getResult(0)))
    return success();
  if (isa<StateOp>(op))
    return writeReadsOf(op->getResult(0)), success();
  if (auto write = dyn_cast<WriteOp>(op))
    return visitWrite(write), success();
  if (auto decay = dyn_cast<DecayOp>(op))
    return visitDecay(decay), success();
  // Scans that share a carry share its cotangent, which is complete at the first of them.
  if (auto scan = dyn_cast<ScanOp>(op)) {
    ArrayRef<Operation *> scans = carried.at(op)->operations;
    if (scans.front() == op && isActive(scan.getResult()))
      visitScans(scans);
    return success();
  }
  if (auto lookback = dyn_cast<LookbackOp>(op))
    return visitLookback(lookback);
  if (isa<PairOp>(op))
    return op->emitError("[R14] stands in a gradient; second derivatives are not supported");
  if (op->getNumRegions() != 0 && !isa<TableOp>(op))
    return op->emitError("[R14] is not decided; run stretto-specialize with the options that decide it");
  bool isLeaf = isConstant(op) || isa<PastOp>(op);
  if (op->getNumResults() != 1 || !isActive(op->getResult(0)) || isLeaf)
    return success();
  Value cotangent = cotangentOf(op->getResult(0));
  if (!cotangent) {
    if (isa<ConvOp, DelayOp>(op))
      visitUnusedTail(op);
    return success();
  }
  if (auto read = dyn_cast<ReadOp>(op))
    return visitRead(read, cotangent), success();
  if (auto conv = dyn_cast<ConvOp>(op))
    return visitConv(conv, cotangent), success();
  if (auto broadcast = dyn_cast<BroadcastOp>(op))
    return visitBroadcast(broadcast, cotangent);
  if (isa<DelayOp>(op))
    return addThroughTail(op, cotangent), success();
  if (visitElementwise(op, op->getResult(0), cotangent) || visitRowMap(op, cotangent))
    return success();
  return op->emitError("[R14] has no gradient");
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

StateType Adjoint::reversed(StateType type) const {
  return StateType::get(getContext(), type.getFirst(), type.getSecond(), type.getHeads(), type.getFirstSize(),
                        type.getSecondSize(), /*reverse=*/true);
}

/// A row like `row` as it is read for the heads of `other` and of a state.
static RankedTensorType readType(Value row, Value other, StateType state) {
  return withHeads(cast<RankedTensorType>(row.getType()), joinHeads(headsOf(other.getType()), state.getHeads()));
}

void Adjoint::visitRead(ReadOp op, Value cotangent) {
  Value state = op.getState(), row = op.getRow();
  if (isActive(state))
    pairOf(state).waiting[state].push_back(op);
  if (!isActive(row))
    return;
  StateType type = op.getState().getType();
  StringRef other = type.otherAxis(op.getAlong());
  add(row, create<ReadOp>(readType(row, cotangent, type), state, cotangent, other, op.getAt()));
}

/// Writes what reads of a value hand to its state's cotangent. Reads of later values have been met by then, and the
/// changes after this value been walked.
void Adjoint::writeReadsOf(Value state) {
  Pair &pair = pairOf(state);
  auto waiting = pair.waiting.find(state);
  if (waiting == pair.waiting.end())
    return;
  for (ReadOp read : waiting->second) {
    Value first = read.getRow(), second = cotangentOf(read.getResult());
    // Head sets that cannot be compared meet in those of the result.
    StringRef heads = read.getState().getType().getHeads(), rowHeads = headsOf(first.getType());
    if (!headsDivide(rowHeads, heads) && !headsDivide(heads, rowHeads))
      first = forHeads(first, headsOf(second.getType()));
    if (read.getAlong() != read.getState().getType().getFirst())
      std::swap(first, second);
    pair.cotangent = create<WriteOp>(pair.cotangent.getType(), pair.cotangent, first, second, read.getAt());
  }
}

void Adjoint::visitWrite(WriteOp op) {
  writeReadsOf(op.getResult());
  Pair &pair = pairOf(op.getState());
  auto type = cast<StateType>(pair.cotangent.getType());
  Value first = op.getFirst(), second = op.getSecond();
  if (isActive(first))
    add(first, create<ReadOp>(readType(first, second, type), pair.cotangent, second, type.getSecond(), /*at=*/Value()));
  if (isActive(second))
    add(second, create<ReadOp>(readType(second, first, type), pair.cotangent, first, type.getFirst(), /*at=*/Value()));
}

void Adjoint::visitDecay(DecayOp op) {
  writeReadsOf(op.getResult());
  Pair &pair = pairOf(op.getState());
  Value amount = op.getAmount();
  if (isActive(amount)) {
    Value state = op.getForm() == DecayForm::Log ? op.getResult() : op.getState();
    auto type = withHeads(cast<RankedTensorType>(amount.getType()), op.getState().getType().getHeads());
    Value gradient = create<PairOp>(type, state, pair.cotangent, op.getAlongAttr());
    // Nothing is left of what e^-inf met, though sums that should cancel may not quite.
    if (op.getForm() == DecayForm::Log) {
      Value none = constant(amount.getType(), -std::numeric_limits<double>::infinity());
      Value decays = forHeads(create<arith::CmpFOp>(arith::CmpFPredicate::OGT, amount, none), headsOf(type));
      gradient = zeroUnless(decays, gradient);
    }
    add(amount, gradient);
  }
  pair.cotangent =
      create<DecayOp>(pair.cotangent.getType(), pair.cotangent, op.getFormAttr(), amount, op.getAlongAttr());
}

//===----------------------------------------------------------------------===//
// Parameters
//===----------------------------------------------------------------------===//

void Adjoint::addToParameter(Value parameter, Value first, Value second) {
  if (isActive(parameter))
    parameterProducts[parameter].push_back({first, second});
}

void Adjoint::writeParameters() {
  llvm::StringMap<bool> taken;
  for (auto &[root, pair] : pairs)
    taken[("d_" + cast<StateOp>(root).getName()).str()] = true;
  for (auto &[parameter, products] : parameterProducts) {
    auto tensor = cast<RankedTensorType>(parameter.getType());
    auto encoding = cast<ParamAttr>(tensor.getEncoding());
    ArrayRef<StringAttr> axes = encoding.getAxes();
    auto axisAt = [&](size_t index) { return index < axes.size() ? axes[index].str() : std::string("1"); };
    auto sizeAt = [&](size_t index) { return index < axes.size() ? tensor.getDimSize(index) : 1; };
    std::string first = sizeAt(0) == 1 ? "1" : axisAt(0), second = axisAt(1);
    // The axes of a state have different names: a square matrix's second axis gets one of its own.
    bool isSquare = first == second && first != "1";
    if (isSquare) {
      second = variant.getArgName(cast<BlockArgument>(parameter).getArgNumber()).str() + "_columns";
      NamedAttrList named(variant.getAxes());
      named.set(second, getStringAttr(first));
      variant.setAxesAttr(named.getDictionary(getContext()));
    }
    auto type =
        StateType::get(getContext(), first, second, encoding.getHeads(), sizeAt(0), sizeAt(1), /*reverse=*/true);
    std::string name = "d_" + variant.getArgName(cast<BlockArgument>(parameter).getArgNumber()).str();
    while (!taken.try_emplace(name, true).second)
      name += "_";
    auto root = create<StateOp>(type, name);
    leaving.push_back(root);
    Value state = root;
    for (auto [x, y] : products) {
      if (isSquare)
        y = create<SliceOp>(rowType(getContext(), second, headsOf(y.getType()), type.getSecondSize()), y, "0");
      state = create<WriteOp>(type, state, x, y, /*at=*/Value());
    }
  }
}
