//===- ChunkVariant.cpp - A kernel of one variant, or of a part -----------===//

#include "passes/declaration/ChunkVariant.h"
#include "passes/declaration/ChunkCotangent.h"
#include "passes/declaration/ChunkLookback.h"
#include "passes/declaration/ChunkRows.h"
#include "passes/declaration/ChunkTransition.h"
#include "passes/declaration/KeptRows.h"
#include "passes/declaration/KernelNames.h"

using namespace mlir;
using namespace stretto;

StringRef stretto::suffixOf(Part part) {
  switch (part) {
  case Part::Whole:
  case Part::Gradient:
    return "";
  case Part::Tails:
    return suffix::tails;
  case Part::Totals:
    return suffix::totals;
  case Part::Transitions:
    return suffix::transitions;
  case Part::Writes:
    return suffix::writes;
  case Part::SegmentStarts:
    return suffix::segmentStarts;
  case Part::Checkpoints:
    return suffix::checkpoints;
  case Part::Rows:
    return suffix::rows;
  case Part::Cotangents:
    return suffix::cotangents;
  case Part::CotangentWrites:
    return suffix::cotangentWrites;
  case Part::CotangentTails:
    return suffix::cotangentTails;
  case Part::Sums:
    return suffix::sums;
  }
  llvm_unreachable("every part has its name");
}

FloatType stretto::typeOfSummedRow(Value row, const ElementTypes &types) {
  bool isRounded = types.standard.isBF16() && cast<RankedTensorType>(row.getType()).getRank() > 0;
  return isRounded ? types.standard : types.compute;
}

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

SmallVector<chunk::OutputAttr> ChunkVariant::describeOutputs() {
  if (part == Part::Whole)
    return kernel.describeResults();
  SmallVector<chunk::OutputAttr> outputs;
  if (llvm::is_contained({Part::Tails, Part::Totals, Part::Transitions, Part::Writes, Part::CotangentTails}, part))
    return outputs;
  for (const StateEntry &tail : forwardTails) {
    RankedTensorType type = kernel.typeOfTail(tail);
    if (keeps(tail.operations.front()))
      outputs.push_back(kernel.describeOutput(tail.name, type.getShape(), type.getElementType(),
                                              kernel.groupOf(tail.heads), /*checkpoint=*/true));
  }
  for (StateChain &chain : chains) {
    StateType state = chain.getRoot().getType();
    if (keeps(chain.root))
      outputs.push_back(kernel.describeOutput(nameOfCheckpoint(chain), KernelBuilder::shapeOf(state),
                                              typeOfCheckpoint(state), groupOf(state), /*checkpoint=*/true));
  }
  SmallVector<unsigned> rows = variant.getDifferentiableRows();
  for (auto [index, result] : llvm::enumerate(variant.getType().getResults())) {
    if (!leaves(index))
      continue;
    // A gradient has the type of its row; parts that are still to be added up are not rounded.
    StringRef row = variant.getArgName(rows[index]);
    int64_t group = kernel.groupOf(headsOf(result));
    FloatType element = group == 1 ? types.of(row) : types.compute;
    outputs.push_back(kernel.describeOutput("d_" + row, kernel.tileShape(result), element, group));
  }
  if (keepsRows())
    for (auto [index, row] : llvm::enumerate(parts.kept))
      outputs.push_back(kernel.describeOutput(nameOfKeptRow(index), kernel.tileShape(row.getType()), types.compute));
  if (part == Part::Gradient)
    for (auto [index, row] : llvm::enumerate(parts.keptForSums))
      outputs.push_back(kernel.describeOutput(nameOfKeptRow(parts.kept.size() + index), kernel.tileShape(row.getType()),
                                              typeOfSummedRow(row, types)));
  return outputs;
}

bool ChunkVariant::isCarried(StateOp root) {
  if (!walksBack())
    return part != Part::Rows;
  bool meetsCotangents = part == Part::Gradient || part == Part::CotangentTails;
  return root.getType().getReverse() && !(meetsCotangents && parts.apart.contains(root));
}

bool ChunkVariant::takesReverse(Operation *root) {
  switch (part) {
  case Part::Sums:
    return parts.sums.contains(root);
  case Part::Cotangents:
    return parts.apart.contains(root);
  case Part::CotangentTails:
    return parts.tailsOfSums.empty() && parts.keptApart.contains(root);
  case Part::CotangentWrites:
    return parts.isCarriedBack(root);
  case Part::Checkpoints:
    return segments && parts.writtenForward.contains(root);
  default:
    return part == Part::Gradient && !parts.sums.contains(root) &&
           (!parts.apart.contains(root) || parts.keptApart.contains(root));
  }
}

bool ChunkVariant::keeps(Operation *op) {
  switch (part) {
  case Part::SegmentStarts:
    return true;
  case Part::Checkpoints:
    return parts.asked.contains(op);
  case Part::Cotangents:
    return parts.keptApart.contains(op);
  default:
    return false;
  }
}

bool ChunkVariant::takes(ArrayRef<Operation *> operations) {
  if (!walksForward() && !walksBack() && part != Part::Rows)
    return true;
  bool isOfSums = part == Part::Sums || (part == Part::CotangentTails && !parts.tailsOfSums.empty());
  const llvm::DenseSet<Operation *> &those = walksForward()       ? parts.carried
                                             : part == Part::Rows ? parts.askedForRows
                                             : carriesAlone()     ? parts.askedApart
                                             : isOfSums           ? parts.askedForSums
                                                                  : parts.asked;
  return llvm::any_of(operations, [&](Operation *op) { return those.contains(op); });
}

bool ChunkVariant::leaves(unsigned result) {
  if (llvm::is_contained(parts.forwardResults, result))
    return part == Part::Checkpoints;
  bool isOfSums = llvm::is_contained(parts.resultsOfSums, result);
  return part == Part::Whole || part == (isOfSums ? Part::Sums : Part::Gradient);
}

SmallVector<Value> ChunkVariant::leftRows() {
  SmallVector<Value> rows;
  for (auto [index, result] : llvm::enumerate(variant.getBlock()->getTerminator()->getOperands()))
    if (leaves(index))
      rows.push_back(result);
  if (keepsRows())
    llvm::append_range(rows, parts.kept);
  if (part == Part::Gradient)
    llvm::append_range(rows, parts.keptForSums);
  return rows;
}

SmallVector<Value> ChunkVariant::wanted() {
  if (part == Part::Totals)
    return llvm::map_to_vector(scans,
                               [](const StateEntry &entry) -> Value { return entry.operations.front()->getResult(0); });
  SmallVector<Value> rows = leftRows();
  if (part == Part::Transitions)
    for (const StateChain &chain : chains)
      llvm::append_range(rows, ChunkTransition::rowsOf(chain));
  if (part == Part::CotangentTails)
    for (const StateEntry &tail : reverseTails)
      llvm::append_range(rows, tail.operations.front()->getOperands());
  if (!walksForward() && part != Part::Tails)
    return rows;
  for (const StateEntry &tail : forwardTails)
    for (Operation *op : tail.operations)
      llvm::append_range(rows, part == Part::Tails ? op->getOperands().take_front() : op->getOperands());
  return rows;
}

LogicalResult ChunkVariant::buildTile(Operation *op) {
  TileBuilder &b = kernel.tiles();
  auto recurrenceOf = [&](Value state) { return recurrences[rootOf(state)].get(); };
  if (auto read = dyn_cast<ReadOp>(op)) {
    auto earlier = earlierReads.find(rootOf(read.getState()));
    FailureOr<Value> tile =
        earlier != earlierReads.end() ? earlier->second->read(read) : recurrenceOf(read.getState())->read(read);
    if (failed(tile))
      return failure();
    b.setTile(read.getResult(), *tile);
  } else if (auto fold = dyn_cast<LookbackOp>(op)) {
    if (fold.getReverse() && !walksBack())
      return refuseChunkForm(fold) << "runs in reverse time";
    if (failed(buildLookback(fold, b, kernel.sizes(), kernel.rawTileOf)))
      return failure();
  } else if (auto pair = dyn_cast<PairOp>(op)) {
    auto *cotangent = static_cast<ChunkCotangent *>(recurrenceOf(pair.getCotangent()));
    b.setTile(pair.getResult(), cotangent->pair(pair, *recurrenceOf(pair.getState())));
  } else if (carryOf.contains(op)) {
    buildReverseConv(op);
  } else if (failed(kernel.buildRow(op))) {
    return failure();
  }
  // Asking in order keeps the recursion of the answer flat.
  Value row = op->getResult(0), tile = b.tileOf(row);
  bool isFinite = b.padding.rowsOf(tile).isFinite();
  // What is written must be finite beyond the end of the sequence. All else that meets the row has it so, too: of a
  // token that there is not nothing is stored, and products with the row are formed once.
  if (!isFinite && written.contains(row))
    b.setTile(row, b.create<chunk::MaskOp>(tile, b.valid));
  return success();
}

/// What a chunk's checkpoint of a state is.
FailureOr<Value> ChunkVariant::keptState(const StateChain &chain) {
  auto earlier = earlierReads.find(chain.root);
  if (earlier == earlierReads.end() || part == Part::SegmentStarts)
    return starts.at(chain.root);
  FailureOr<Value> state = earlier->second->stateOfReads();
  if (failed(state))
    return failure();
  return chain.getRoot().getType().getSecondSize() == 1 ? kernel.tiles().column(*state, 0) : *state;
}

FailureOr<SmallVector<Value>> ChunkVariant::results() {
  SmallVector<Value> tiles;
  for (auto [tail, start] : llvm::zip(forwardTails, tailStarts))
    if (keeps(tail.operations.front()))
      tiles.push_back(start);
  for (const StateChain &chain : chains) {
    if (!keeps(chain.root))
      continue;
    FailureOr<Value> state = keptState(chain);
    if (failed(state))
      return failure();
    tiles.push_back(*state);
  }
  for (Value row : leftRows())
    tiles.push_back(kernel.tiles().tileOf(row));
  return tiles;
}

SmallVector<BlockArgument> ChunkVariant::getAddedUp() {
  SmallVector<BlockArgument> states;
  for (const StateChain &chain : chains)
    if (parts.addedUp.contains(chain.root))
      states.push_back(cast<BlockArgument>(starts.at(chain.root)));
  return states;
}

FailureOr<SmallVector<Value>> ChunkVariant::next() {
  SmallVector<Value> states;
  if (part == Part::Transitions) {
    for (auto [chain, effect] : llvm::zip_equal(chains, effects)) {
      Value transition = recurrences[chain.root]->next();
      bool isVector = cast<RankedTensorType>(effect.transition.getType()).getRank() == 1;
      states.push_back(isVector ? kernel.tiles().column(transition, 0) : transition);
      if (effect.decay)
        states.push_back(recurrences[chain.root]->nextTotalDecay(effect.decay));
    }
    return states;
  }
  for (const StateChain &chain : chains) {
    if (!isCarried(chain.root))
      continue;
    StateOp root = chain.getRoot();
    auto earlier = earlierReads.find(root);
    FailureOr<Value> end = earlier != earlierReads.end() ? earlier->second->next() : recurrences[root]->next();
    if (failed(end))
      return failure();
    states.push_back(root.getType().getSecondSize() == 1 ? kernel.tiles().column(*end, 0) : *end);
  }
  if (scans.empty()) {
    auto carried = llvm::make_filter_range(chains, [&](const StateChain &chain) { return isCarried(chain.getRoot()); });
    for (auto [chain, effect] : llvm::zip(carried, effects))
      if (effect.decay && !effect.transition)
        states.push_back(recurrences[chain.root]->nextTotalDecay(effect.decay));
  }
  for (auto [entry, effect] : llvm::zip(scans, effects))
    if (effect.decay)
      states.push_back(nextShift(entry, effect.decay));
  if (carriesTailsBack())
    for (const StateEntry &tail : reverseTails)
      states.push_back(nextCarry.lookup(tail.operations.front()));
  return states;
}

std::string ChunkVariant::name() {
  bool isAll = part == Part::Checkpoints && !parts.walksBack;
  return (variant.getSymName() + suffixOf(isAll ? Part::Whole : part)).str();
}

LogicalResult ChunkVariant::run() {
  if (failed(kernel.check()) || (part == Part::Whole && failed(kernel.checkResults())))
    return failure();
  chains = stateChains(variant);
  if (part != Part::Whole)
    for (StateEntry &entry : deriveState(variant))
      if ((entry.kind == StateEntry::Kind::Tail || entry.kind == StateEntry::Kind::Scan) &&
          (entry.reverse ? carriesTailsBack() : takes(entry.operations)))
        (entry.reverse ? reverseTails : forwardTails).push_back(std::move(entry));
  if (part == Part::Tails || part == Part::Totals)
    chains.clear();
  else if (part != Part::Whole)
    llvm::erase_if(chains, [&](const StateChain &chain) {
      return chain.getRoot().getType().getReverse() ? !takesReverse(chain.root)
                                                    : !takes(chain.getRoot().getOperation());
    });
  if (part == Part::Tails)
    llvm::erase_if(forwardTails, [](const StateEntry &entry) { return entry.kind != StateEntry::Kind::Tail; });
  if (part == Part::Totals)
    llvm::copy_if(forwardTails, std::back_inserter(scans),
                  [](const StateEntry &entry) { return entry.kind == StateEntry::Kind::Scan; });
  if (failed(checkChains()))
    return failure();
  if (part == Part::Transitions)
    llvm::erase_if(chains, [](const StateChain &chain) { return !chain.feedback; });
  // What is handed on to earlier tokens may be all that is wanted.
  SmallVector<Value> needed = wanted();
  if (carriesTailsBack())
    for (const StateEntry &tail : reverseTails)
      needed.push_back(tail.operations.front()->getResult(0));
  // What a state takes in later depends on the time of its reads.
  for (const StateChain &chain : chains)
    for (ReadOp read : chain.reads())
      if (read.getAt())
        needed.push_back(read.getAt());
  // Of what feeds back the rows that are wanted are all.
  ArrayRef<StateChain> complete = part == Part::Transitions ? ArrayRef<StateChain>() : chains;
  FailureOr<SmallVector<Operation *>> order = orderOfTiles(complete, needed);
  if (failed(order))
    return failure();
  SmallVector<Value> used = wanted();
  for (const StateChain &chain : complete)
    llvm::append_range(used, chain.rows());
  if (failed(kernel.create(name(), /*reverse=*/walksBack(), describeOutputs(), segments)) ||
      failed(kernel.addArguments(*order, used)))
    return failure();
  addTails(*order);
  addStates();
  kernel.addWindows();
  if (failed(kernel.beginBody()))
    return failure();
  for (Operation *op : *order)
    if (!kernel.tiles().tileOf(op->getResult(0)) && failed(buildTile(op)))
      return failure();
  FailureOr<SmallVector<Value>> left = results();
  return failed(left) ? failure() : kernel.finish(*left, [&] { return next(); });
}
