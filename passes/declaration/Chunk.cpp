//===- Chunk.cpp - From one token to a chunk of tokens --------------------===//

#include "passes/Passes.h"
#include "passes/declaration/ChunkTransition.h"
#include "passes/declaration/ChunkVariant.h"
#include "passes/declaration/KeptRows.h"
#include "passes/declaration/KernelNames.h"

namespace stretto {
#define GEN_PASS_DEF_CHUNK
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

/// Heads that share a row each have a part of its gradient, and the parts stay apart until the end.
static void separateHeads(VariantOp gradient) {
  gradient.walk([](GroupSumOp sum) {
    sum.replaceAllUsesWith(sum.getOperand());
    sum.erase();
  });
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

struct ChunkPass : stretto::impl::ChunkBase<ChunkPass> {
  using ChunkBase::ChunkBase;

  void runOnOperation() override {
    FailureOr<ElementTypes> types = ElementTypes::read(getOperation(), element, elements);
    if (failed(types))
      return signalPassFailure();
    if (chunk < 1 || chunk > 1024) {
      getOperation().emitError() << "chunks have " << chunk << " tokens, expected 1 to 1024";
      return signalPassFailure();
    }
    for (VariantOp variant : llvm::make_early_inc_range(getOperation().getOps<VariantOp>())) {
      if (failed(variant.getGradient() ? chunkGradient(variant, *types)
                 : segments            ? chunkSegments(variant, *types)
                                       : ChunkVariant(variant, chunk, *types).run()))
        return signalPassFailure();
      variant.erase();
    }
  }

private:
  LogicalResult chunkSegments(VariantOp variant, const ElementTypes &types) {
    if (std::optional<SegmentProblem> problem = findSegmentProblem(variant))
      return refuseForm("segmented", problem->op) << problem->reason;
    std::vector<StateEntry> entries = deriveState(variant);
    auto has = [&](StateEntry::Kind kind) {
      return llvm::any_of(entries, [&](const StateEntry &entry) { return entry.kind == kind; });
    };
    auto build = [&](Part part, StringRef starts = {}) {
      return chunkApart(variant, types, part, /*parts=*/{}, starts);
    };
    if (failed(build(Part::Whole)) || (has(StateEntry::Kind::Tail) && failed(build(Part::Tails))) ||
        (has(StateEntry::Kind::Scan) && failed(build(Part::Totals, suffix::totalStarts))))
      return failure();
    if (stateChains(variant).empty())
      return success();
    if (!feedsBack(variant))
      return build(Part::Writes, suffix::starts);
    ChunkVariant transitions(variant, chunk, types, Part::Transitions, /*parts=*/{},
                             chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart));
    return failed(transitions.run())
               ? failure()
               : chunkApart(variant, types, Part::Writes, /*parts=*/{}, suffix::starts, transitions.getEffects());
  }

  /// A kernel whose segments are walked side by side, and one that finds from what it leaves what segments begin with,
  /// if that is to have a name.
  LogicalResult chunkApart(VariantOp variant, const ElementTypes &types, Part part, const GradientParts &parts,
                           StringRef starts = {}, ArrayRef<SegmentEffect> transitions = {}) {
    ChunkVariant kernel(variant, chunk, types, part, parts,
                        chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart), transitions);
    if (failed(kernel.run()))
      return failure();
    StringRef name = variant.getSymName();
    if (!starts.empty())
      buildSegmentStarts(getOperation().lookupSymbol<chunk::KernelOp>((name + suffixOf(part)).str()),
                         (name + starts).str(), kernel.getEffects(),
                         /*isRounded=*/types.standard.getIntOrFloatBitWidth() == 16,
                         /*reverse=*/starts == suffix::cotangentStarts);
    return success();
  }

  LogicalResult chunkGradient(VariantOp variant, ElementTypes types) {
    for (Attribute name : variant.getArgNames().getValue().take_back(variant.getSaved().value_or(0)))
      types.others[cast<StringAttr>(name).str()] = types.compute;
    separateHeads(variant);
    FailureOr<GradientParts> parts = GradientParts::find(variant, chunk, divideGradients, independentChunks);
    if (failed(parts))
      return failure();
    if (segments)
      if (std::optional<SegmentProblem> problem = findSegmentProblem(variant, *parts))
        return refuseForm("segmented", problem->op) << problem->reason;
    auto build = [&](Part part, bool isApart = false) {
      return isApart ? chunkApart(variant, types, part, *parts)
                     : ChunkVariant(variant, chunk, types, part, *parts).run();
    };
    bool isRounded = types.standard.isBF16(), isAllAsked = parts->asked == parts->carried;
    bool isOfReads = llvm::any_of(stateChains(variant), [&](const StateChain &chain) {
      return parts->asked.contains(chain.root) && goesOnFirst(chain, chunk);
    });
    bool beginsElsewhere = !parts->asked.empty() && (isRounded || !isAllAsked || isOfReads);
    if (!segments && beginsElsewhere && failed(build(Part::SegmentStarts)))
      return failure();
    bool writesForward = segments && !parts->writtenForward.empty();
    if (writesForward && failed(chunkApart(variant, types, Part::Checkpoints, *parts, suffix::cotangentStarts)))
      return failure();
    bool walksForward = parts->walksForward() && !writesForward;
    if (walksForward && failed(build(Part::Checkpoints, segments && !parts->carried.empty())))
      return failure();
    if (!parts->walksBack)
      return success();
    if (parts->findsRowsApart && failed(build(Part::Rows)))
      return failure();
    replaceByArguments(variant, parts->kept.getArrayRef());
    for (size_t index = 0; index < parts->kept.size(); ++index)
      types.others[nameOfKeptRow(index)] = types.compute;
    bool carriesBack =
        segments && !parts->onlyAddsUp && llvm::any_of(stateChains(variant), [&](const StateChain &chain) {
          return chain.getRoot().getType().getReverse() && parts->isCarriedBack(chain.root);
        });
    if (!parts->apart.empty() && failed(build(Part::Cotangents, carriesBack)))
      return failure();
    if (failed(chunkResults(variant, types, *parts, carriesBack)))
      return failure();
    bool findsWrites = carriesBack && !writesForward;
    if (findsWrites && failed(chunkApart(variant, types, Part::CotangentWrites, *parts, suffix::cotangentStarts)))
      return failure();
    if (!parts->addsUpApart())
      return success();
    for (auto [index, row] : llvm::enumerate(parts->keptForSums))
      types.others[nameOfKeptRow(parts->kept.size() + index)] = typeOfSummedRow(row, types);
    replaceByArguments(variant, parts->keptForSums.getArrayRef(), parts->kept.size());
    if (!carriesBack)
      return build(Part::Sums);
    if (failed(parts->sums.empty() ? chunkApart(variant, types, Part::Sums, *parts)
                                   : chunkSums(variant, types, Part::Sums, *parts)))
      return failure();
    return parts->tailsOfSums.empty() ? success() : chunkApart(variant, types, Part::CotangentTails, *parts);
  }

  /// The kernel of all else. Where segments are side by side, it takes those, too, if it carries anything: states of
  /// reverse time that have no walk of their own, sums over all tokens, and what is added to rows of earlier ones.
  LogicalResult chunkResults(VariantOp variant, const ElementTypes &types, const GradientParts &parts,
                             bool carriesBack) {
    bool addsSegmentsUp = segments && parts.onlyAddsUp;
    if (!carriesBack && !addsSegmentsUp)
      return ChunkVariant(variant, chunk, types, Part::Gradient, parts).run();
    bool hasSums = !parts.addedUp.empty() && parts.sums.empty();
    if (!hasSums && parts.apart.empty())
      return chunkApart(variant, types, Part::Gradient, parts);
    bool handsRowsOn = parts.tailsOfSums.empty() && llvm::any_of(deriveState(variant), [](const StateEntry &entry) {
                         return entry.reverse && entry.kind == StateEntry::Kind::Tail;
                       });
    if (!hasSums && !handsRowsOn)
      return ChunkVariant(variant, chunk, types, Part::Gradient, parts).run();
    if (failed(hasSums ? chunkSums(variant, types, Part::Gradient, parts)
                       : chunkApart(variant, types, Part::Gradient, parts)))
      return failure();
    return handsRowsOn ? chunkApart(variant, types, Part::CotangentTails, parts) : success();
  }

  /// A kernel whose segments each leave a part of sums over all tokens, and one that adds these up.
  LogicalResult chunkSums(VariantOp variant, const ElementTypes &types, Part part, const GradientParts &parts) {
    ChunkVariant kernel(variant, chunk, types, part, parts,
                        chunk::SegmentsAttr::get(&getContext(), chunk::Segments::Apart));
    if (failed(kernel.run()))
      return failure();
    StringRef name = variant.getSymName();
    buildSegmentSums(getOperation().lookupSymbol<chunk::KernelOp>((name + suffixOf(part)).str()),
                     (name + suffix::sumTurns).str(), kernel.getAddedUp());
    return success();
  }
};

} // namespace
