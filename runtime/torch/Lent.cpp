//===- Lent.cpp - What kernels are lent -----------------------------------===//

#include "runtime/torch/Lent.h"
#include "runtime/torch/Tensors.h"
#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <mutex>
#include <torch/csrc/stable/c/shim.h>

using namespace stretto::torch_layer;

/// Copies the rows of a segment of packed sequences, which lie beside each other, to the places of their tokens. Only
/// the device knows which there are: a place without one gives what another has, which is written twice. Where there is
/// none, some row is written that an earlier segment has yet to find: segments come from the last to the first.
static void putInPlace(const at::Tensor &rows, const at::Tensor &whole, const at::Tensor &offsets, int64_t first,
                       int64_t tokens) {
  int64_t sequences = offsets.size(0) - 1, all = whole.size(1);
  at::Tensor bounds = offsets.clamp(0, all), begins = bounds.slice(0, 0, sequences), ends = bounds.slice(0, 1);
  at::Tensor begin = at::minimum(at::arange(sequences, bounds.options()) * tokens, begins);
  at::Tensor place = at::arange(rows.size(1), bounds.options());
  at::Tensor sequence = at::searchsorted(begin, place, /*out_int32=*/false, /*right=*/true) - 1;
  at::Tensor inSegment = place - begin.index_select(0, sequence);
  at::Tensor token = begins.index_select(0, sequence) + first + inSegment;
  at::Tensor exists = (inSegment < tokens).logical_and(token < ends.index_select(0, sequence));
  at::Tensor existing = exists.to(at::kLong).argmax().view({1});
  at::Tensor source = at::where(exists, place, existing);
  token = at::where(exists, token, token.index_select(0, existing)).clamp(0, all - 1);
  whole.index_copy_(1, token, rows.index_select(1, source).to(whole.scalar_type()));
}

Lent::Lent(at::Device device) : device(device) {
  executor.context = this;
  executor.threads = at::get_num_threads();
  // PyTorch's own function, so that its threads are used whichever OpenMP it was built with.
  executor.parallelFor = [](void *, int64_t count, StrettoBody body, void *context) {
    TORCH_CHECK(torch_parallel_for(0, count, /*grain_size=*/1, body, context) == 0, "stretto: cannot use threads");
  };
  executor.upload = [](void *context, const void *bytes, size_t count) {
    return static_cast<Lent *>(context)->upload(bytes, count);
  };
  executor.warn = [](void *, const char *message) { TorchOperator::warn(message); };
  executor.addUp = [](void *context, const StrettoTensor *parts, const StrettoTensor *sum,
                      const StrettoPackedSegment *packed) {
    const Lent &lent = *static_cast<Lent *>(context);
    at::Tensor total = lent.tensorOf(*parts).sum(/*dim=*/3);
    if (packed)
      putInPlace(total, lent.tensorOf(*sum), lent.tensorOf(packed->offsets), packed->first, packed->tokens);
    else
      lent.tensorOf(*sum).copy_(total);
  };
  if (!device.is_cuda())
    return;
  guard.reset_device(device);
  executor.stream = c10::impl::VirtualGuardImpl(device.type()).getStream(device).native_handle();
}

at::Tensor Lent::tensorOf(const StrettoTensor &described) const {
  auto shape = [&](const int64_t *numbers) { return at::IntArrayRef(numbers, described.rank); };
  return at::from_blob(described.data, shape(described.sizes), shape(described.strides),
                       at::TensorOptions(device).dtype(scalarTypeOf(described.element)));
}

/// Tables of kernels live as long as the process.
void *Lent::upload(const void *bytes, size_t count) const {
  static std::mutex mutex;
  static auto &tables = *new std::vector<at::Tensor>();
  at::Tensor host = at::empty({static_cast<int64_t>(count)}, at::kByte);
  std::memcpy(host.mutable_data_ptr(), bytes, count);
  at::Tensor table = host.to(device);
  std::lock_guard<std::mutex> lock(mutex);
  tables.push_back(table);
  return table.mutable_data_ptr();
}
