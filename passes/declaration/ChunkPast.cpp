//===- ChunkPast.cpp - Tiles of other chunks ------------------------------===//

#include "passes/declaration/ChunkPast.h"
#include "mlir/Analysis/SliceAnalysis.h"
#include "mlir/Analysis/TopologicalSortUtils.h"
#include "passes/declaration/ChunkRows.h"

using namespace mlir;
using namespace stretto;

/// Whether an argument of a kernel has other numbers for other tokens.
static bool varies(BlockArgument raw) {
  auto kernel = cast<chunk::KernelOp>(raw.getOwner()->getParentOp());
  chunk::ArgumentAttr description = kernel.getArgument(raw.getArgNumber());
  if (description.getKind() != chunk::ArgumentKind::Table)
    return description.getKind() == chunk::ArgumentKind::Input;
  auto table = SymbolTable::lookupNearestSymbolFrom<chunk::TableOp>(kernel, description.getName());
  return table.getVarying() || table.getPeriod();
}

LogicalResult PastTiles::load(Value source) {
  if (body.tileOf(source))
    return success();
  BlockArgument raw = rawTileOf(source);
  if (!varies(raw)) {
    body.loadTile(source, raw);
    return success();
  }
  sources.push_back(raw);
  auto type = cast<RankedTensorType>(raw.getType());
  SmallVector<int64_t, 2> shape(type.getShape());
  shape.front() = body.tokens;
  body.loadTile(source, block.addArgument(type.clone(shape), op->getLoc()));
  return success();
}

LogicalResult PastTiles::build(Value row) {
  if (isa<BlockArgument>(row))
    return load(row);
  SetVector<Operation *> makers;
  BackwardSliceOptions options;
  options.inclusive = true;
  if (failed(getBackwardSlice(row.getDefiningOp(), &makers, options)))
    return refuseForm(b.form, op) << "looks back to what is no row";
  for (Operation *maker : topologicalSort(makers)) {
    if (body.tileOf(maker->getResult(0)))
      continue;
    if (isa<StateOp, WriteOp, DecayOp, ReadOp, LookbackOp, ScanOp, ConvOp, DelayOp>(maker))
      return refuseForm(b.form, op) << "looks back to rows that are made of other tokens' by '"
                                    << maker->getName().getStringRef() << "'";
    if (rawTileOf(maker->getResult(0))) {
      if (failed(load(maker->getResult(0))))
        return failure();
      continue;
    }
    if (!isRow(maker->getResult(0).getType()))
      continue; // what a table is made of
    for (Value operand : maker->getOperands())
      if (isa<BlockArgument>(operand) && failed(load(operand)))
        return failure();
    if (failed(buildRowMap(maker, body, sizes, [](Operation *) { return Value(); })))
      return failure();
  }
  return success();
}

chunk::LookbackOp PastTiles::finish(chunk::Fold fold, Range range, ValueRange contribution, TypeRange results,
                                    const ChunksMet &met) {
  body.setLoc(op->getLoc());
  Range none, ofToken = range.ahead ? none : range, ofPast = range.ahead ? range : none;
  body.create<chunk::ContributeOp>(contribution, ofPast.first, ofPast.last);
  b.setLoc(op->getLoc());
  auto lookback =
      b.create<chunk::LookbackOp>(results, fold, ofToken.first, ofToken.last, sources, range.ahead, range.toEnd,
                                  /*continued=*/false, /*met=*/nullptr, /*wholly=*/nullptr);
  met.setOn(lookback);
  Block &target = lookback.getBody().emplaceBlock();
  for (BlockArgument argument : block.getArguments())
    argument.replaceAllUsesWith(target.addArgument(argument.getType(), argument.getLoc()));
  target.getOperations().splice(target.end(), block.getOperations());
  return lookback;
}
