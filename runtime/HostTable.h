//===- HostTable.h - Numbers that the host computes for kernels -*- C++ -*-===//
#ifndef STRETTO_RUNTIME_HOSTTABLE_H
#define STRETTO_RUNTIME_HOSTTABLE_H

#include "dialect/chunk/ChunkDialect.h"
#include "runtime/Manifest.h"
#include <vector>

namespace stretto {

/// The values f(t, h, d) of a table in fp64, as `[heads, positions, width]`, for positions from 0 on.
std::vector<double> evaluateTable(chunk::TableOp table, int64_t heads, int64_t positions, int64_t width);

/// Numbers in a type of memory.
std::vector<char> encode(llvm::ArrayRef<double> numbers, ElementType type);

} // namespace stretto

#endif // STRETTO_RUNTIME_HOSTTABLE_H
