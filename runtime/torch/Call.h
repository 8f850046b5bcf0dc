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
class TorchOperator::Described {
public:
  explicit Described(const Arguments &arguments) {
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
            arguments.form ? &*arguments.form : nullptr,
            arguments.savesRows,
            arguments.gradientBytes};
  }
  Described(const Described &) = delete;

  StrettoOperatorCall call;

protected:
  c10::SmallVector<StrettoTensor, 8> tensors;
  c10::SmallVector<const char *, 4> options;
  c10::SmallVector<StrettoTensor, 4> state;
};

/// The same, checked.
class TorchOperator::Call : public Described {
public:
  explicit Call(const TorchOperator &op, const Arguments &arguments)
      : Described(arguments), signature(checked(op.variant(), strettoOperatorCheck, op.op.get(), &call)) {
    if (!arguments.hasWindows)
      for (size_t i = 0; i < state.size(); ++i)
        if (strettoSignatureState(signature, i).window >= 0)
          state[i].data = nullptr;
  }

  StrettoSignature *signature;
};

/// The same of a call that runs.
class TorchOperator::RunningCall {
public:
  RunningCall(const TorchOperator &op, const Arguments &arguments)
      : described(arguments),
        call(checked(op.variant(), strettoCheckedCallCreate, op.op.get(), &described.call), strettoCheckedCallDestroy),
        signature(strettoCheckedCallSignature(call.get())) {}
  StrettoCheckedCall *get() const { return call.get(); }

private:
  Described described;
  std::unique_ptr<StrettoCheckedCall, decltype(&strettoCheckedCallDestroy)> call;

public:
  StrettoSignature *const signature;
};

} // namespace stretto::torch_layer

#endif // STRETTO_RUNTIME_TORCH_CALL_H
