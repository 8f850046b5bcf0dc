//===- AbsorbFactors.h - Constant factors of decays --------------*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_ABSORBFACTORS_H
#define STRETTO_PASSES_CHUNK_ABSORBFACTORS_H

#include "dialect/chunk/ChunkDialect.h"

namespace stretto {

/// Multiplies numbers of tokens, in place of the tiles that they multiply, by constant factors of these: `c (x_ij f_i)
/// = x_ij (c f_i)`, and `c (x_ij 2^(a_i - b_j)) = x_ij 2^((a_i + log2 c) - b_j)`. Exponents are rounded once more, so
/// that this is for products that are rounded to 16 bits.
void absorbFactors(chunk::KernelOp kernel);

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_ABSORBFACTORS_H
