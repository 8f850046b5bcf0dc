//===- HostTable.h - Numbers that the host computes for kernels -*- C++ -*-===//
#ifndef STRETTO_RUNTIME_HOSTTABLE_H
#define STRETTO_RUNTIME_HOSTTABLE_H

#include "dialect/chunk/ChunkDialect.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <deque>
#include <memory>
#include <mutex>
#include <vector>

namespace stretto {

/// The values f(t, h, d) of a table, computed in fp64 and rounded to a type of memory, as `[heads, positions, width]`,
/// for positions from 0 on, of which each has as many elements as `Manifest::strideOfTable` says.
std::vector<char> evaluateTable(chunk::TableOp table, int64_t heads, int64_t positions, int64_t width,
                                ElementType type);

/// The numbers of a table where kernels read them: on the host, or on a device. Kernels that read the same numbers have
/// one between them, whatever operator they are of.
class PlacedTable {
public:
  /// Copies to memory of the device that is never freed.
  using Upload = llvm::function_ref<void *(llvm::ArrayRef<char>)>;
  struct Numbers {
    const void *data = nullptr;
    /// For those from 0 on.
    int64_t positions = 0;
  };

  /// That of a table with so many heads and channels on a device; on the host, which is -1.
  static std::shared_ptr<PlacedTable> of(chunk::TableOp table, int64_t heads, int64_t width, ElementType type,
                                         int device);

  /// Those of so many positions at least. `table` is the one that it was asked for with, or another like it.
  Numbers upTo(int64_t positions, chunk::TableOp table, Upload upload);

private:
  PlacedTable(int64_t heads, int64_t width, ElementType type, int device)
      : heads(heads), width(width), type(type), device(device) {}

  const int64_t heads, width;
  const ElementType type;
  const int device;
  std::mutex mutex;
  Numbers numbers;
  /// A table that grows leaves what calls may still read.
  std::deque<std::vector<char>> onHost;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_HOSTTABLE_H
