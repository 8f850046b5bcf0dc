//===- Flops.h - What a kernel multiplies and adds --------------*- C++ -*-===//
#ifndef STRETTO_DIALECT_CHUNK_FLOPS_H
#define STRETTO_DIALECT_CHUNK_FLOPS_H

#include "dialect/chunk/ChunkDialect.h"

namespace stretto::chunk {

/// Multiplications and additions of the products of one chunk of one head, pairs of tokens that are masked included;
/// what is computed entry by entry is not counted.
struct Flops {
  int64_t ofChunk = 0;
  /// For each chunk of tokens that a look-back meets.
  int64_t ofMeeting = 0;
};

Flops countFlops(KernelOp kernel);

} // namespace stretto::chunk

#endif // STRETTO_DIALECT_CHUNK_FLOPS_H
