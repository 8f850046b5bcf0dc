//===- Lent.h - What kernels are lent ---------------------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_LENT_H
#define STRETTO_RUNTIME_TORCH_LENT_H

#include "frontends/c/operator.h"
#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

namespace stretto::torch_layer {

/// The threads of the CPU, or the current stream of a device, which is the current one for as long as a call takes.
struct Lent {
  explicit Lent(at::Device device);

  StrettoExecutor executor = {};

private:
  at::Tensor tensorOf(const StrettoTensor &described) const;
  void *upload(const void *bytes, size_t count) const;

  at::Device device;
  c10::OptionalDeviceGuard guard;
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_LENT_H
