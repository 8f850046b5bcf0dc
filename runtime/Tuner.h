//===- Tuner.h - Choosing the form of a kernel by measuring -----*- C++ -*-===//
//
// A tuner compiles the forms around the one that the model chooses, on all threads, has each run on the caller's
// tensors and keeps the one that took the least time for all calls of the same class (runtime/TunedForms.h). What is
// slow from the first is not measured again; the fastest are measured again in turns with the model's form, which stays
// unless another is faster beyond what repeated measurements differ by.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_TUNER_H
#define STRETTO_RUNTIME_TUNER_H

#include "runtime/Signature.h"

namespace stretto {

struct Tuning {
  /// What whoever lends the tensors is asked for: a call in a form, and the seconds that it took by the clock of its
  /// device, with what was in the device's caches before replaced; or why there was none.
  llvm::function_ref<llvm::Expected<double>(const Form &)> trial;
  /// Rates of the device, for the floor: bytes and floating-point operations per second; 0 where they are not known.
  double bytesPerSecond = 0, flopsPerSecond = 0;
  /// After so many seconds no further form is tried.
  double seconds = 30;
  /// Whether the progress is shown on standard error, where that is a terminal.
  bool isShown = true;
};

/// Tunes a call that was checked, or its gradient where one is asked for. Says as JSON what was tried and chosen.
llvm::Expected<std::string> tune(Operator::Signature &signature, const OperatorCall &call,
                                 const GradientRequest *request, int64_t threads, const Tuning &tuning);

} // namespace stretto

#endif // STRETTO_RUNTIME_TUNER_H
