//===- HostTable.h - Numbers that the host computes for kernels -*- C++ -*-===//
#ifndef STRETTO_RUNTIME_HOSTTABLE_H
#define STRETTO_RUNTIME_HOSTTABLE_H

#include "dialect/chunk/ChunkDialect.h"
#include "runtime/Manifest.h"
#include <vector>

namespace stretto {

/// The values f(t, h, d) of a table, computed in fp64 and rounded to a type of memory, as `[heads, positions, width]`,
/// for positions from 0 on, of which each has as many elements as `Manifest::strideOfTable` says.
std::vector<char> evaluateTable(chunk::TableOp table, int64_t heads, int64_t positions, int64_t width,
                                ElementType type);

} // namespace stretto

#endif // STRETTO_RUNTIME_HOSTTABLE_H
