//===- Builder.cpp - Declarations built through the C interface -----------===//

#include "frontends/c/Handles.h"

using namespace mlir;
using namespace stretto;

StrettoBuilder *strettoBuilderCreate(StrettoContext *context, const char *name, const char *summary,
                                     StrettoLocation location) {
  return new StrettoBuilder{{name, summary, fileLocation(&context->context, location)}};
}

void strettoBuilderDestroy(StrettoBuilder *builder) { delete builder; }

int strettoBuilderApply(StrettoBuilder *handle, const char *operation, const uint32_t *operands, size_t operandCount,
                        StrettoSettings settings, StrettoLocation at, uint32_t *results, size_t capacity,
                        char **error) {
  MLIRContext *context = handle->builder.getContext();
  Messages messages(context);
  DeclarationRequest request{operation, Handles(operands, operands + operandCount), {}, fileLocation(context, at)};
  for (const auto &[name, value] : llvm::ArrayRef(settings.items, settings.count))
    request.settings.emplace_back(name, value);
  FailureOr<Handles> made = handle->builder.apply(std::move(request));
  if (failed(made)) {
    messages.give(error);
    return -1;
  }
  std::copy_n(made->begin(), std::min(made->size(), capacity), results);
  return made->size();
}

char *strettoBuilderSize(StrettoBuilder *handle, uint32_t value, StrettoLocation location, char **error) {
  MLIRContext *context = handle->builder.getContext();
  Messages messages(context);
  FailureOr<std::string> size = handle->builder.size(value, fileLocation(context, location));
  if (succeeded(size))
    return ownedString(*size);
  messages.give(error);
  return nullptr;
}

StrettoModule *strettoBuilderFinish(StrettoBuilder *handle, const uint32_t *results, size_t resultCount,
                                    StrettoLocation location, char **error) {
  MLIRContext *context = handle->builder.getContext();
  Messages messages(context);
  return messages.handle<StrettoModule>(
      handle->builder.finish(llvm::ArrayRef(results, resultCount), fileLocation(context, location)), error);
}
