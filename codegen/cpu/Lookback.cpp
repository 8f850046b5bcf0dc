//===- Lookback.cpp - Folds over the tiles of other chunks ----------------===//
//
// A look-back is a loop over the tiles of the tokens that any token of this chunk sees. For each, the body is computed,
// and what it leaves joins the sums so far (LookbackSums.cpp), as far as pairs are in a range (LookbackRanges.cpp).
//
// A fold ahead does not know before which tile is the last: it goes on until the last token of a tile looks back to
// none of the chunk's. Of a tile that meets none of them the ranges alone are found.
//
//===----------------------------------------------------------------------===//

#include "codegen/cpu/LookbackFold.h"

using namespace mlir;
using namespace stretto;
using namespace stretto::cpu;

void KernelLowering::emitLookback(chunk::LookbackOp op) {
  LookbackFold fold;
  fold.isAhead = op.getAhead();
  fold.pastTokens = op.getPastTokens();
  int64_t bounded = fold.isAhead ? fold.pastTokens : kernel.getChunk();
  for (Value *bounds : {&fold.begins, &fold.ends})
    *bounds = allocate({padded(bounded)}, builder.getI64Type());
  beginFold(op, fold);
  if (fold.isAhead)
    foldAhead(op, fold);
  else
    foldBack(op, fold);
  endFold(op, fold);
}

void KernelLowering::foldBack(chunk::LookbackOp op, LookbackFold &fold) {
  findRanges(op, op.getFirst(), op.getLast(), chunkStart, fold);
  Value begin = loadIndex(builder, fold.begins, builder.index(0));
  Value end = loadIndex(builder, fold.ends, builder.subtract(valid, builder.index(1)));
  Value tokens = builder.index(fold.pastTokens);
  // Tiles before the first token are counted from it, too.
  int64_t before = llvm::alignTo(windowLength(), fold.pastTokens);
  Value firstTile = builder.createOrFold<arith::DivUIOp>(builder.add(begin, before), tokens);
  firstTile = builder.subtract(builder.multiply(firstTile, tokens), builder.index(before));
  builder.loop(firstTile, end, fold.pastTokens, [&](Value firstPast) {
    fold.first = firstPast;
    fold.count = builder.minimum(builder.subtract(itemTokens, firstPast), tokens);
    loadPast(op, fold);
    emitBody(op.getBlock()->without_terminator());
    foldTile(op, fold);
  });
}

void KernelLowering::foldAhead(chunk::LookbackOp op, LookbackFold &fold) {
  chunk::ContributeOp contribution = op.getContribution();
  // What the bounds need stands before what only pairs do.
  auto operations = op.getBlock()->without_terminator();
  auto rest = operations.begin();
  for (auto next = operations.begin(); next != operations.end(); ++next)
    if (llvm::is_contained({contribution.getFirst(), contribution.getLast()}, next->getResult(0)))
      rest = std::next(next);
  Value tokens = builder.index(fold.pastTokens), chunkEnd = builder.add(chunkStart, valid);
  auto isAfter = [&](Value left, Value right) { return builder.compare(arith::CmpIPredicate::sgt, left, right); };
  builder.loopWhile(op.getToEnd() ? builder.index(0) : chunkStart, itemTokens, fold.pastTokens, [&](Value firstPast) {
    fold.first = firstPast;
    fold.count = builder.minimum(builder.subtract(itemTokens, firstPast), tokens);
    loadPast(op, fold);
    emitBody({operations.begin(), rest});
    findRanges(op, contribution.getFirst(), contribution.getLast(), firstPast, fold);
    Value last = builder.subtract(fold.count, builder.index(1));
    Value begun = isAfter(chunkEnd, loadIndex(builder, fold.begins, builder.index(0)));
    Value reached = isAfter(loadIndex(builder, fold.ends, last), chunkStart);
    builder.ifTrue(arith::AndIOp::create(builder, begun, reached), [&] {
      emitBody({rest, operations.end()});
      foldTile(op, fold);
    });
    return isAfter(chunkEnd, loadIndex(builder, fold.begins, last));
  });
}

void KernelLowering::foldTile(chunk::LookbackOp op, LookbackFold &fold) {
  builder.setLoc(op.getLoc());
  switch (op.getFold()) {
  case chunk::Fold::Sum:
    return foldWeights(op, fold);
  case chunk::Fold::Softmax:
    return foldSoftmax(op, fold);
  case chunk::Fold::Divergence:
    return foldDivergence(op, fold);
  case chunk::Fold::Outer:
    return foldOuter(op, fold);
  }
}

void KernelLowering::loadPast(chunk::LookbackOp op, const LookbackFold &fold) {
  SmallVector<const Argument *> tiles;
  SmallVector<Value> inputs;
  for (auto [argument, source] : llvm::zip_equal(op.getBlock()->getArguments(), op.getPast())) {
    const Argument &described = arguments[cast<BlockArgument>(source).getArgNumber()];
    if (described.kind == chunk::ArgumentKind::Table) {
      storage[argument].rows = allocateFor(argument);
      loadTable(described, builder.add(itemPosition, fold.first), fold.count, fold.pastTokens, storage[argument].rows);
      continue;
    }
    tiles.push_back(&described);
    inputs.push_back(argument);
  }
  for (auto [argument, view] : llvm::zip_equal(inputs, viewPast(tiles, fold.first, fold.count, fold.pastTokens)))
    views[argument] = view;
  for (BlockArgument argument : op.getBlock()->getArguments())
    emitValue(argument);
}

void KernelLowering::emitBody(llvm::iterator_range<Block::iterator> operations) {
  for (Operation &inner : operations)
    if (!plan.isInvariant(inner.getResult(0)))
      emitValue(inner.getResult(0));
}
