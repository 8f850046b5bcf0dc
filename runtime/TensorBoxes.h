//===- TensorBoxes.h - What the memory system knows of a tensor -*- C++ -*-===//
//
// A tensor of which a GPU's memory system copies boxes has four axes: the columns of a row, heads, tokens and sequences
// (of a packed batch one), or the columns, heads, rows and numbers of checkpoints. A box is so many columns of so many
// tokens of one head, or rows of one checkpoint of it. Its description in the argument
// block of a kernel is sixteen words,
//
//   pointer, the driver's number of the element type, bytes of an element, columns, heads, tokens, sequences, strides
//   of heads, tokens and sequences in bytes, columns and tokens of a box,
//
// which the launch on a GPU replaces by the 128 bytes that the driver makes of them (a tensor map).
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_TENSORBOXES_H
#define STRETTO_RUNTIME_TENSORBOXES_H

#include "runtime/Manifest.h"
#include <array>

namespace stretto {

struct TensorBoxes {
  static constexpr int64_t axes = 4;

  int64_t pointer = 0;
  ElementType type = ElementType::F32;
  std::array<int64_t, axes> sizes = {};
  std::array<int64_t, axes - 1> strides = {}; // in bytes, from the second axis on
  int64_t columns = 0, tokens = 0;            // of a box

  std::array<int64_t, Manifest::boxWords> words() const;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_TENSORBOXES_H
