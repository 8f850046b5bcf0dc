//===- RowFactors.h - Numbers of tokens behind products ---------*- C++ -*-===//
#ifndef STRETTO_PASSES_CHUNK_ROWFACTORS_H
#define STRETTO_PASSES_CHUNK_ROWFACTORS_H

#include "dialect/chunk/ChunkDialect.h"

namespace stretto {

/// Takes numbers of tokens from the rows of inputs that they multiply or divide, `y = diag(f) x`, where nothing but
/// products asks for these. A sum over tokens has them on the other operand, if that is computed and rounded in any
/// case, `a y = (a diag(f)) x`, and so have the weights of a look-back's sum over rows that it meets; another product
/// has them behind it, `y b = diag(f) (x b)`, if it does not meet many tiles of other chunks. Then products read the
/// rows where they came, which need not be rounded and stored again. So has the other side of an outer product that a
/// look-ahead adds up; one of the same rows and a column takes rows that were divided, too. Where
/// both operands of a sum over tokens are rows of inputs, the narrower ones keep the numbers: as values of which each
/// of several slices has some. A sum along a row has the numbers behind it, where nothing but such sums asks for the
/// row.
void sinkRowFactors(chunk::KernelOp kernel);

} // namespace stretto

#endif // STRETTO_PASSES_CHUNK_ROWFACTORS_H
