//===- SomeSequences.cpp - A part of a call's sequences -------------------===//

#include "runtime/SomeSequences.h"

using namespace stretto;

SomeSequences::SomeSequences(const Operator &op, const OperatorCall &whole, int64_t first, int64_t count)
    : first(first), count(count), some(whole) {
  assert(!whole.sequenceOffsets && "packed sequences lie in one");
  for (auto [input, view] : llvm::zip_equal(op.inputs(), some.arguments))
    if (!input.isParameter)
      narrow(view);
  for (TensorView &entry : some.initialState)
    narrow(entry);
}

SomeSequences::SomeSequences(const Operator &op, const OperatorCall &whole, const GradientCall &gradient, int64_t first,
                             int64_t count)
    : SomeSequences(op, whole, first, count) {
  someOfGradient = gradient;
  for (std::optional<TensorView> &cotangent : someOfGradient.resultCotangents)
    narrow(cotangent);
  for (std::optional<TensorView> &cotangent : someOfGradient.entryCotangents)
    narrow(cotangent);
  for (TensorView &row : someOfGradient.saved)
    narrow(row);
  // Parameters, too: each sequence leaves a part of their gradient.
  for (TensorView &row : someOfGradient.rows)
    narrow(row);
  for (TensorView &entry : someOfGradient.entries)
    narrow(entry);
}

void SomeSequences::narrow(TensorView &view) {
  int64_t stride = view.strides.empty() ? llvm::product_of(view.sizes.drop_front()) : view.strides.front();
  int64_t bytes = view.type ? bytesOf(*view.type) : sizeof(int64_t); // kernels know no type of positions
  if (view.data)
    view.data = static_cast<char *>(view.data) + first * stride * bytes;
  sizes.emplace_back(view.sizes).front() = count;
  view.sizes = sizes.back();
}
