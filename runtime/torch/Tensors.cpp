//===- Tensors.cpp - Tensors as the C interface has them ------------------===//

#include "runtime/torch/Tensors.h"
#include "runtime/torch/HostMemory.h"
#include <ATen/EmptyTensor.h>

using namespace stretto::torch_layer;

at::Tensor stretto::torch_layer::allocate(at::IntArrayRef sizes, const at::TensorOptions &options) {
  caffe2::TypeMeta type = options.dtype();
  size_t bytes = c10::multiply_integers(sizes) * type.itemsize();
  // What is not yet written to PyTorch fills where results are to be the same each time.
  if (!options.device().is_cpu() || bytes < leastHostMemory || at::globalContext().deterministicAlgorithms())
    return at::empty(sizes, options);
  return at::detail::empty_generic(sizes, hostMemory(), c10::DispatchKeySet(c10::DispatchKey::CPU), type.toScalarType(),
                                   std::nullopt);
}

static StrettoElement elementOf(at::ScalarType type) {
  switch (type) {
  case at::kHalf:
    return STRETTO_F16;
  case at::kBFloat16:
    return STRETTO_BF16;
  case at::kFloat:
    return STRETTO_F32;
  case at::kDouble:
    return STRETTO_F64;
  case at::kLong:
    return STRETTO_I64;
  default:
    return STRETTO_OTHER;
  }
}

at::ScalarType stretto::torch_layer::scalarTypeOf(StrettoElement element) {
  static constexpr at::ScalarType types[] = {at::kHalf, at::kBFloat16, at::kFloat, at::kDouble, at::kLong};
  return types[element];
}

/// The name that Python gives a type: "bfloat16".
static const char *spell(at::ScalarType type) {
  switch (type) {
  case at::kHalf:
    return "float16";
  case at::kBFloat16:
    return "bfloat16";
  case at::kFloat:
    return "float32";
  case at::kDouble:
    return "float64";
  case at::kInt:
    return "int32";
  case at::kLong:
    return "int64";
  default:
    return at::toString(type);
  }
}

StrettoTensor stretto::torch_layer::describeTensor(const at::Tensor &tensor, at::IntArrayRef sizes,
                                                   at::IntArrayRef strides, void *data) {
  StrettoTensor result = {};
  result.isPresent = true;
  result.data = data;
  result.element = elementOf(tensor.scalar_type());
  result.elementName = spell(tensor.scalar_type());
  result.device = tensor.is_cuda() ? tensor.get_device() : -1;
  result.rank = static_cast<int32_t>(sizes.size());
  result.sizes = sizes.data();
  result.strides = strides.data();
  return result;
}

StrettoTensor stretto::torch_layer::describeTensor(const at::Tensor &tensor) {
  return describeTensor(tensor, tensor.sizes(), tensor.strides(), const_cast<void *>(tensor.const_data_ptr()));
}

StrettoTensor stretto::torch_layer::describeTensor(const OptionalTensor &tensor) {
  return tensor ? describeTensor(*tensor) : StrettoTensor{};
}

int64_t stretto::torch_layer::alignmentOf(const at::Tensor &tensor, int64_t width) {
  int64_t bytes = width * tensor.element_size();
  return std::min<int64_t>(16, bytes & -bytes);
}

bool stretto::torch_layer::isAligned(const at::Tensor &tensor, int64_t alignment) {
  if (reinterpret_cast<intptr_t>(tensor.const_data_ptr()) % alignment)
    return false;
  for (int64_t axis = 0; axis + 1 < tensor.dim(); ++axis)
    if (tensor.size(axis) > 1 && tensor.stride(axis) * tensor.element_size() % alignment)
      return false;
  return true;
}

bool stretto::torch_layer::isReadableRow(const at::Tensor &row, int64_t width) {
  return (width == 1 || row.stride(-1) == 1) && (!row.is_cuda() || isAligned(row, alignmentOf(row, width)));
}

at::DimVector stretto::torch_layer::joined(at::IntArrayRef leading, const StrettoShape &shape) {
  at::DimVector sizes(leading.begin(), leading.end());
  sizes.append(shape.sizes, shape.sizes + shape.rank);
  return sizes;
}
