//===- DeclarationBuilder.cpp - IR of a traced declaration ----------------===//

#include "dialect/stretto/DeclarationBuilder.h"
#include "dialect/stretto/DeclarationTrace.h"

using namespace mlir;
using namespace stretto;

DeclarationBuilder::DeclarationBuilder(StringRef name, StringRef summary, Location location)
    : name(name), summary(summary), location(location),
      trace(std::make_unique<DeclarationTrace>(name, summary, location, SmallVector<std::string>())) {}

DeclarationBuilder::~DeclarationBuilder() = default;

FailureOr<Handles> DeclarationBuilder::carryOut(const DeclarationRequest &request) {
  FailureOr<Handles> results = failure();
  if (trace) {
    DeclarationCall call(*trace, request);
    if (succeeded(call.checkOperands()))
      results = carryOutByName(call);
  } else {
    emitError(request.location) << "the declaration '" << name << "' was given up at an earlier error, or is finished";
  }
  if (failed(results))
    trace.reset();
  return results;
}

FailureOr<Handles> DeclarationBuilder::apply(DeclarationRequest request) {
  FailureOr<Handles> results = carryOut(request);
  if (succeeded(results))
    requests.push_back(std::move(request));
  return results;
}

FailureOr<std::string> DeclarationBuilder::size(Handle handle, Location location) {
  DeclarationRequest request{"size", {handle}, {}, location};
  if (!trace)
    return failure();
  DeclarationCall call(*trace, request);
  if (failed(call.checkOperands()))
    return failure();
  if (auto *extent = call.get<Extent>(handle))
    return extent->str();
  if (auto *number = call.get<double>(handle); number && *number == static_cast<int32_t>(*number))
    return Extent(static_cast<int32_t>(*number)).str();
  return call.error() << "expected a size, found " << call.describe(handle);
}

FailureOr<OwningOpRef<ModuleOp>> DeclarationBuilder::finish(ArrayRef<Handle> results, Location end) {
  while (trace && !trace->headsAreFound()) {
    trace = std::make_unique<DeclarationTrace>(name, summary, location, trace->neededHeads());
    for (const DeclarationRequest &request : requests)
      if (failed(carryOut(request)))
        return failure();
  }
  if (!trace || failed(trace->finish(results, end)))
    return failure();
  OwningOpRef<ModuleOp> module = std::move(trace->module);
  trace.reset();
  return module;
}
