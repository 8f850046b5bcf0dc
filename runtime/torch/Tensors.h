//===- Tensors.h - Tensors as the C interface has them ----------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_TENSORS_H
#define STRETTO_RUNTIME_TORCH_TENSORS_H

#include "runtime/torch/TorchOperator.h"

namespace stretto::torch_layer {

at::ScalarType scalarTypeOf(StrettoElement element);

StrettoTensor describeTensor(const at::Tensor &tensor);
StrettoTensor describeTensor(const OptionalTensor &tensor);
/// With sizes, strides and memory other than its own, which have to outlive the description.
StrettoTensor describeTensor(const at::Tensor &tensor, at::IntArrayRef sizes, at::IntArrayRef strides, void *data);

/// Bytes to which a kernel on a GPU wants rows of this width aligned.
int64_t alignmentOf(const at::Tensor &tensor, int64_t width);
/// Whether kernels read or write the numbers of such rows, of this width, where they lie.
bool isReadableRow(const at::Tensor &row, int64_t width);
/// Whether the tensor begins, and each of its rows, at a multiple of so many bytes.
bool isAligned(const at::Tensor &tensor, int64_t alignment);

/// Memory whose contents do not matter. Large memory of the host is kept when it is free (runtime/torch/HostMemory.h).
at::Tensor allocate(at::IntArrayRef sizes, const at::TensorOptions &options);

/// Leading sizes and those of one token, head or sequence.
at::DimVector joined(at::IntArrayRef leading, const StrettoShape &shape);

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_TENSORS_H
