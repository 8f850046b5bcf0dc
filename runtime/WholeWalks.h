//===- WholeWalks.h - Whole sequences in slices, or segments ----*- C++ -*-===//
#ifndef STRETTO_RUNTIME_WHOLEWALKS_H
#define STRETTO_RUNTIME_WHOLEWALKS_H

#include "dialect/stretto/StrettoDialect.h"
#include <optional>

namespace stretto {

/// How much a chunk takes, beside a state that is written to and read and nothing else, which has 1: a further one for
/// each further state, for decays, and for numbers of tokens that are computed. Nothing for what does more than that,
/// whose walks do not leave all else to other warps (Lowering::rolesOfProducer).
std::optional<int64_t> weightOfPlainTurn(VariantOp program);

/// Where heads are few, the values of each are divided among blocks, which walk whole sequences, or sequences are
/// divided into segments (runtime/Segments.h). The first is sooner for short sequences, as there is one launch and
/// nothing is walked over twice; how long is short follows from what a chunk takes of either. `columns` are those of a
/// slice, `width` those of the state.
bool walksWholeSooner(int64_t weight, int64_t width, int64_t columns, int64_t chunks, int64_t segments);

/// Into how many segments, `most` at most, sequences of so many chunks are best divided where nothing is carried but
/// rows that are looked back to, and sums: those whose blocks take the least time, so many of them at once, turn by
/// turn. A segment walks a chunk more than it has, for the rows at its end. `blocks` are those of whole sequences.
int64_t segmentsOfLeastTime(int64_t blocks, int64_t chunks, int64_t blocksAtOnce, int64_t most);

} // namespace stretto

#endif // STRETTO_RUNTIME_WHOLEWALKS_H
