//===- ChunksMet.h - Which other chunks a chunk meets -----------*- C++ -*-===//
//
// Of ranges whose bounds are times, computed from the position of a token: in a sequence that begins with position 0
// they are known beforehand where they follow each token at the same pace, as those of windows do, or repeat themselves
// block by block.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_CHUNKSMET_H
#define STRETTO_PASSES_DECLARATION_CHUNKSMET_H

#include "dialect/chunk/ChunkDialect.h"

namespace stretto {

/// A time at a position, where it can be told.
std::optional<double> timeAt(mlir::Value time, double position);

/// What `chunk.lookback` says of them under `met` and `wholly`; nothing where that is not known.
struct ChunksMet {
  struct Distances {
    int64_t farthest, nearest;
  };
  std::optional<Distances> met = {}, wholly = {};

  /// Of tokens that look back from the time `first` up to themselves; ahead, the chunks whose tokens do so.
  static ChunksMet seen(mlir::Value first, int64_t tokens);
  /// Of a state that is read as of `time`: the one chunk that joins it with another.
  static ChunksMet joining(mlir::Value time, int64_t tokens);
  /// Of a state of reverse time that tokens write to as of `time`: the one chunk behind whose tokens join it with
  /// another, at the last token of this one.
  static ChunksMet joinedAhead(mlir::Value time, int64_t tokens);

  void setOn(chunk::LookbackOp op) const;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_CHUNKSMET_H
