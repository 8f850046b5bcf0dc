//===- DeclarationBuilder.cpp - IR of a traced declaration ----------------===//

#include "dialect/stretto/DeclarationBuilder.h"
#include "dialect/stretto/DeclarationTrace.h"

using namespace mlir;
using namespace stretto;

DeclarationBuilder::DeclarationBuilder(StringRef name, StringRef summary, Location location)
    : name(name), summary(summary), location(location),
      trace(std::make_unique<DeclarationTrace>(name, summary, location, SmallVector<std::string>())) {}

DeclarationBuilder::~DeclarationBuilder() = default;

static FailureOr<Handles> carryOut(DeclarationTrace &trace, const DeclarationRequest &request) {
  DeclarationCall call(trace, request);
  return failed(call.checkOperands()) ? FailureOr<Handles>() : carryOutByName(call);
}

LogicalResult DeclarationBuilder::checkIsOpen(Location at) const {
  if (trace)
    return success();
  return emitError(at) << "the declaration '" << name << "' was given up at an earlier error, or is finished";
}

FailureOr<Handles> DeclarationBuilder::apply(DeclarationRequest request) {
  if (failed(checkIsOpen(request.location)))
    return failure();
  requests.push_back(std::move(request));
  FailureOr<Handles> results = carryOut(*trace, requests.back());
  while (failed(results) && !trace->headsAreFound()) {
    trace = std::make_unique<DeclarationTrace>(name, summary, location, trace->neededHeads());
    for (const DeclarationRequest &each : requests)
      if (failed(results = carryOut(*trace, each)))
        break;
  }
  if (failed(results))
    trace.reset();
  return results;
}

FailureOr<std::string> DeclarationBuilder::size(Handle handle, Location location) {
  DeclarationRequest request{"size", {handle}, {}, location};
  if (failed(checkIsOpen(location)))
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
  if (failed(checkIsOpen(end)))
    return failure();
  std::unique_ptr<DeclarationTrace> ended = std::move(trace);
  if (failed(ended->finish(results, end)))
    return failure();
  return std::move(ended->module);
}
