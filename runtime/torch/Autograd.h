//===- Autograd.h - Recording gradients of operators ------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_AUTOGRAD_H
#define STRETTO_RUNTIME_TORCH_AUTOGRAD_H

#include "runtime/torch/TorchOperator.h"
#include <ATen/core/dispatch/Dispatcher.h>

namespace stretto::torch_layer {

/// Where gradients are recorded: runs the operator and, if a gradient is asked for, leaves on its outputs a node of the
/// graph, which calls the operator's `_backward`. Where calls may save rows for that, `_recorded` is run instead.
struct RecordGradient : c10::OperatorKernel {
  RecordGradient(std::shared_ptr<const TorchOperator> op, std::string name)
      : op(std::move(op)), name(std::move(name)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

  std::shared_ptr<const TorchOperator> op;
  std::string name;
};

/// Of `_backward`: it has no gradient of its own.
struct RefuseSecondOrder : c10::OperatorKernel {
  RefuseSecondOrder(std::shared_ptr<const TorchOperator> op, std::string) : op(std::move(op)) {}
  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

  std::shared_ptr<const TorchOperator> op;
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_AUTOGRAD_H
