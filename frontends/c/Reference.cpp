//===- Reference.cpp - Reference execution in the C interface -------------===//

#include "dialect/stretto/Interpreter.h"
#include "frontends/c/Handles.h"

using namespace mlir;
using namespace stretto;

struct StrettoOutcome {
  Outcome outcome;
};

static std::map<std::string, ArrayView> viewsOf(StrettoArrays arrays) {
  std::map<std::string, ArrayView> views;
  for (const StrettoArray &array : llvm::ArrayRef(arrays.items, arrays.count)) {
    size_t size = 1;
    for (int64_t extent : llvm::ArrayRef(array.shape, array.rank))
      size *= extent;
    views[array.name] = {SmallVector<int64_t, 4>(array.shape, array.shape + array.rank), {array.values, size}};
  }
  return views;
}

StrettoOutcome *strettoModuleInterpret(const StrettoModule *handle, const StrettoCall *request, char **error) {
  ModuleOp module = handle->module.get();
  Messages messages(module.getContext());
  auto run = [&]() -> FailureOr<Outcome> {
    SmallVector<VariantOp> variants(module.getOps<VariantOp>());
    if (variants.size() != 1)
      return module.emitError() << "holds " << variants.size() << " variants, expected one";
    Call call;
    call.arguments = viewsOf(request->arguments);
    call.initialState = viewsOf(request->initialState);
    for (const auto &[name, value] : llvm::ArrayRef(request->options.items, request->options.count))
      call.options[name] = value;
    if (request->sequenceOffsets)
      call.sequenceOffsets = llvm::ArrayRef(request->sequenceOffsets, request->sequenceOffsetCount);
    call.finalState = request->finalState;
    call.finalEntries.assign(request->finalEntries, request->finalEntries + request->finalEntryCount);
    return interpret(variants.front(), call);
  };
  return messages.handle<StrettoOutcome>(run(), error);
}

void strettoOutcomeDestroy(StrettoOutcome *outcome) { delete outcome; }

size_t strettoOutcomeCount(const StrettoOutcome *handle) {
  return handle->outcome.results.size() + handle->outcome.finalState.size();
}

StrettoArray strettoOutcomeArray(const StrettoOutcome *handle, size_t index) {
  const Outcome &outcome = handle->outcome;
  bool isResult = index < outcome.results.size();
  const char *name = isResult ? "" : outcome.finalState[index - outcome.results.size()].first.c_str();
  const Array &array = isResult ? outcome.results[index] : outcome.finalState[index - outcome.results.size()].second;
  return {name, array.shape.data(), array.shape.size(), array.values.data()};
}
