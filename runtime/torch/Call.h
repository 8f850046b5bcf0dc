//===- Call.h - One call of the C interface ---------------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_TORCH_CALL_H
#define STRETTO_RUNTIME_TORCH_CALL_H

#include "runtime/torch/Tensors.h"

namespace stretto::torch_layer {

/// Words as C has them.
struct Flags {
  template <typename Flag> Flags(size_t count, Flag flag) : flags(std::make_unique<bool[]>(count)) {
    for (size_t i = 0; i < count; ++i)
      flags[i] = flag(i);
  }
  const bool *data() const { return flags.get(); }
  bool operator[](size_t index) const { return flags[index]; }

private:
  std::unique_ptr<bool[]> flags;
};

/// Describes the arguments of a call, which have to outlive it.
class TorchOperator::Call {
public:
  explicit Call(const TorchOperator &op, const Arguments &arguments) {
    for (const OptionalTensor &input : arguments.inputs)
      tensors.push_back(describeTensor(input));
    for (const std::optional<std::string> &option : arguments.options)
      options.push_back(option ? option->c_str() : nullptr);
    for (const at::Tensor &entry : arguments.initialState)
      state.push_back(describeTensor(entry));
    call = {arguments.isStep,
            tensors.data(),
            options.data(),
            state.data(),
            state.size(),
            describeTensor(arguments.sequenceOffsets),
            describeTensor(arguments.slots),
            arguments.form ? &*arguments.form : nullptr};
    signature = checked(op.variant(), strettoOperatorCheck, op.op.get(), &call);
    if (!arguments.hasWindows)
      for (size_t i = 0; i < state.size(); ++i)
        if (strettoSignatureState(signature, i).window >= 0)
          state[i].data = nullptr;
  }

  StrettoOperatorCall call;
  StrettoSignature *signature;

private:
  c10::SmallVector<StrettoTensor, 8> tensors;
  c10::SmallVector<const char *, 4> options;
  c10::SmallVector<StrettoTensor, 4> state;
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_CALL_H
