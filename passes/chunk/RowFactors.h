//===- RowFactors.h - Numbers of tokens behind products ---------*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_ROWFACTORS_H
#define STRETTO_PASSES_CHUNK_ROWFACTORS_H

#include "dialect/chunk/ChunkDialect.h"

namespace stretto {

/// Takes numbers of tokens from the rows of inputs that they multiply or divide, `y = diag(f) x`, where nothing but
/// products asks for these. A sum over tokens has them on the other operand, if that is computed and rounded in any
/// case, `a y = (a diag(f)) x`, and so have the weights of a look-back's sum over rows that it meets; another product
/// has them behind it, `y b = diag(f) (x b)`, if it does not meet many tiles of other chunks. Then products read the
/// rows where they came, which need not be rounded and stored again. Where both operands of a sum over tokens are rows
/// of inputs, the narrower ones keep the numbers: as values of which each of several slices has some.
void sinkRowFactors(chunk::KernelOp kernel);

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_ROWFACTORS_H
