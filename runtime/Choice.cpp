//===- Choice.cpp - Who chooses the form of a kernel ----------------------===//

#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "runtime/OperatorImpl.h"

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;

/// On a GPU the kernels of a gradient say how far they have to be divided. Where heads leave much of it idle they may
/// have a walk of their own for the states of reverse time, so that rows come from all multiprocessors; where they do
/// not, that would move these states through memory once more for nothing (docs/performance.md), but for what looks
/// back: its chunks meet others, for which a walk that carries states as well has few tokens. What is idle then, walks
/// of states alone take by slices.
Form Signature::modelForm(const OperatorCall &call, int64_t threads, bool isOfGradient, int64_t segments) const {
  if (device < 0)
    return {.slices = slicesFor(call, threads, segments)};
  if (!isOfGradient) {
    return {.slices = slicesFor(call, threads, segments),
            .ahead = Knobs::instance().ahead.load(),
            .outputs = Knobs::instance().outputs.load(),
            .blocks = blocksOfMultiprocessor(call, segments)};
  }
  bool isIdle = 4 * items(call) < 3 * multiprocessors;
  bool looksBack = looksBackWithoutBound || llvm::any_of(state, [](const EntryShape &entry) { return !!entry.window; });
  // More would be narrower than fragments of a matrix at the usual widths.
  constexpr int64_t mostWalkSlices = 8;
  return {.ahead = Knobs::instance().ahead.load(),
          .outputs = Knobs::instance().outputs.load(),
          .walks = isIdle || looksBack ? 0 : 1,
          .walkSlices = std::min(slicesFor(call, threads, segments), mostWalkSlices)};
}

Signature::CallClass Signature::classOf(const OperatorCall &call, int64_t threads,
                                        const GradientRequest *request) const {
  int64_t parallel = std::max<int64_t>(sequences(call), 1);
  int64_t all = call.isStep ? 1 : rowOf(call).sizes[0] * rowOf(call).sizes[1];
  CallClass found = {.items = llvm::Log2_64_Ceil(std::max<int64_t>(parallel * heads, 1)),
                     .tokens = llvm::Log2_64_Ceil(std::max<int64_t>(llvm::divideCeil(all, parallel), 1)),
                     .threads = device < 0 ? threads : 0,
                     .gradient = {}};
  if (request)
    found.gradient = *request;
  return found;
}

Signature::Choice Signature::choose(const OperatorCall &call, int64_t threads, const GradientRequest *request) {
  // What a caller leaves open is the model's; a form that is fixed is that of kernels which walk whole sequences.
  int64_t segments = call.form && call.form->isFixed() ? 1 : segmentsFor(call, request != nullptr);
  if (call.form)
    return {.form = *call.form, .segments = segments, .by = Choice::By::Caller};
  bool isForced = segments > 1 && Knobs::instance().segments;
  Choice model = {.form = modelForm(call, threads, request != nullptr, segments),
                  .segments = segments,
                  .by = isForced ? Choice::By::Knob : Choice::By::Model};
  int64_t slices = Knobs::instance().slices, walks = Knobs::instance().walks, walkSlices = Knobs::instance().walkSlices;
  if (request && (slices || walks || walkSlices))
    return {.form = {.slices = slices ? slices : model.form.slices,
                     .walks = walks,
                     .walkSlices = walkSlices ? walkSlices : model.form.walkSlices},
            .segments = segments,
            .by = Choice::By::Knob};
  if (isStep() || isForced || !Knobs::instance().tuned)
    return model;

  CallClass callClass = classOf(call, threads, request);
  std::lock_guard<std::mutex> lock(tunedMutex);
  TunedForms &all = TunedForms::instance();
  if (uint64_t changes = all.generation(); changes != changesSeen) {
    tunedForms.clear();
    changesSeen = changes;
  }
  auto [known, isNew] = tunedForms.try_emplace(std::move(callClass));
  if (isNew)
    known->second = all.find(tuningKey(call, threads, request));
  const std::optional<TunedForm> &tuned = known->second;
  if (!tuned)
    return model;
  Choice choice = model;
  if (tuned->form.isFixed())
    choice = {.form = tuned->form};
  else if (tuned->form.ahead || tuned->form.outputs)
    std::tie(choice.form.ahead, choice.form.outputs) = std::pair(tuned->form.ahead, tuned->form.outputs);
  choice.by = tuned->isShipped ? Choice::By::Table : Choice::By::Tuner;
  choice.tuned = tuned;
  return choice;
}

void Signature::forget(const OperatorCall &call, int64_t threads, const GradientRequest *request,
                       llvm::StringRef problem) {
  note("the tuned form of " + op.name() + " cannot be used (" + problem + "); taking the model's");
  std::lock_guard<std::mutex> lock(tunedMutex);
  tunedForms[classOf(call, threads, request)] = std::nullopt;
}

void Signature::Choice::explain(llvm::json::OStream &json) const {
  static constexpr const char *words[] = {"model", "tuner", "shipped table", "knob", "caller"};
  json.attribute("chosen_by", words[static_cast<int>(by)]);
  if (!tuned)
    return;
  json.attribute("tuned_ms", tuned->milliseconds);
  json.attribute("model_ms", tuned->modelMilliseconds);
  json.attribute("floor_ms", tuned->floorMilliseconds);
  if (tuned->floorMilliseconds > 0)
    json.attribute("to_floor", tuned->milliseconds / tuned->floorMilliseconds);
}

//===----------------------------------------------------------------------===//
// Keys
//===----------------------------------------------------------------------===//

template <typename Map> static void print(llvm::raw_ostream &stream, llvm::StringRef title, const Map &map) {
  if (!map.empty())
    stream << " " << title;
  for (const auto &[name, value] : map)
    stream << " " << name << "=" << value;
}

std::string Signature::tuningKey(const OperatorCall &call, int64_t threads, const GradientRequest *request) const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << op.name() << " " << op.digest().take_front(16);
  if (request) {
    stream << " gradient of";
    for (auto [input, isWanted] : llvm::zip_equal(op.inputs(), request->inputs))
      stream << (isWanted ? " " + input.name : "");
    for (auto [entry, isWanted] : llvm::zip_equal(state, request->entries))
      stream << (isWanted ? " " + entry.name : "");
    for (auto [index, isGiven] : llvm::enumerate(request->results))
      stream << (isGiven ? "" : " without " + std::to_string(index));
    stream << (request->takesSaved ? " with saved rows" : "");
  }
  stream << " " << nameOf(this->request.element);
  std::map<std::string, llvm::StringRef> types;
  for (const auto &[name, type] : this->request.others)
    types[name] = nameOf(type);
  const Settings &settings = this->request.settings;
  print(stream, "types", types);
  print(stream, "sizes", settings.dims);
  print(stream, "heads", settings.heads);
  print(stream, "options", settings.options);
  for (const std::string &name : settings.absent)
    stream << " without " << name;
  if (this->request.continues)
    stream << " continued";
  CallClass callClass = classOf(call, threads, request);
  stream << " items 2^" << callClass.items << " tokens 2^" << callClass.tokens;
  if (device < 0)
    stream << " threads " << threads;
  stream << " on " << (device < 0 ? target().name : deviceName + " " + target().name);
  return text;
}

std::string Signature::declaration() const {
  std::lock_guard<std::mutex> context(op.implementation->contextMutex);
  std::string text;
  llvm::raw_string_ostream(text) << *op.implementation->module;
  return text;
}

std::vector<KernelRequest> Signature::requestsFor(const Form &form, const Gradient *gradient) const {
  KernelRequest one = request;
  one.take(form);
  if (!gradient) {
    std::vector<KernelRequest> requests = {one};
    if (solvesSystems()) {
      one.part = KernelRequest::Part::Systems;
      requests.push_back(one);
    }
    return requests;
  }
  one.gradient = gradient->names();
  std::vector<KernelRequest> requests;
  for (KernelRequest::Part part : gradient->parts()) {
    one.part = part;
    if (part != KernelRequest::Part::Cotangents || form.walks != 1)
      requests.push_back(one);
  }
  if (form.walks == 2 && gradient->walks() == 1) {
    one.part = KernelRequest::Part::Cotangents;
    requests.push_back(one);
  }
  return requests;
}
