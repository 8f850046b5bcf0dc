//===- TensorBoxes.cpp - What the memory system knows of a tensor ---------===//

#include "runtime/TensorBoxes.h"
#include <algorithm>

using namespace stretto;

/// CUtensorMapDataType of the driver's interface.
static int64_t numberInDriver(ElementType type) {
  switch (type) {
  case ElementType::F16:
    return 6;
  case ElementType::F32:
    return 7;
  case ElementType::F64:
    return 8;
  case ElementType::BF16:
    return 9;
  }
  llvm_unreachable("covered switch");
}

std::array<int64_t, Manifest::boxWords> TensorBoxes::words() const {
  std::array<int64_t, Manifest::boxWords> words = {pointer, numberInDriver(type), bytesOf(type)};
  int64_t *next = words.data() + 3;
  // An axis without entries cannot be described; then nothing is copied either. The stride of a single entry is never
  // taken, but has to be one that the driver accepts.
  constexpr int64_t anyStride = 16;
  for (int64_t size : sizes)
    *next++ = std::max<int64_t>(size, 1);
  for (int64_t axis = 1; axis < axes; ++axis)
    *next++ = sizes[axis] > 1 ? strides[axis - 1] : anyStride;
  *next++ = columns;
  *next++ = tokens;
  return words;
}
