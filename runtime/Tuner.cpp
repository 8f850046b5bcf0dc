//===- Tuner.cpp - Choosing the form of a kernel by measuring -------------===//

#include "runtime/Tuner.h"
#include "runtime/Gradient.h"
#include "runtime/Knobs.h"
#include "runtime/Work.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/Support/Format.h"
#include <chrono>
#include <cmath>
#include <unistd.h>

using namespace mlir;
using namespace stretto;

using Signature = Operator::Signature;

namespace {

/// A form that is tried.
struct Candidate {
  Form form;
  std::vector<double> samples; // seconds
  std::string refused;         // why it does not run

  double fastest() const { return *llvm::min_element(samples); }
  double median() const {
    std::vector<double> sorted = samples;
    llvm::sort(sorted);
    size_t half = sorted.size() / 2;
    return sorted.size() % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
  }
  bool runs() const { return refused.empty() && !samples.empty(); }
};

class Tuner {
public:
  Tuner(Signature &signature, const OperatorCall &call, const GradientRequest *request, int64_t threads,
        const Tuning &tuning)
      : signature(signature), call(call), request(request), threads(threads), tuning(tuning) {}

  llvm::Expected<std::string> run();

private:
  using Clock = std::chrono::steady_clock;

  double elapsed() const { return std::chrono::duration<double>(Clock::now() - start).count(); }
  bool hasTime() const { return elapsed() < tuning.seconds; }
  /// What a candidate is judged by: other processes disturb a CPU, and the fastest call least.
  double secondsOf(const Candidate &candidate) const {
    return signature.device < 0 ? candidate.fastest() : candidate.median();
  }

  /// The kernel of a form, of a gradient the one that walks back; it is compiled if need be.
  llvm::Expected<const CompiledKernel *> kernelOf(const Form &form, const Signature::Gradient **gradient = nullptr);
  /// Fails where a form has no kernels, or some that are not to run.
  llvm::Error checkKernels(const Form &form);
  llvm::Error describeModel();
  /// Forms around that of the model.
  std::vector<Form> neighbours() const;
  /// The same with other numbers of warps.
  std::vector<Form> withOtherWarps(const Form &form) const;
  /// Forms in which further warps run ahead: that of the model, and those with as many tokens as another.
  std::vector<Form> withWarpsAhead(const Form &form) const;
  void compileAll(ArrayRef<Form> forms);

  /// Runs the candidate once; false where it does not run.
  bool sample(Candidate &candidate);
  /// Measures a form, shortly where it is much slower than the best.
  void measure(const Form &form);
  void measureAll(ArrayRef<Form> forms);
  /// Measures the fastest and the model's again in turns; the chosen one, by its position.
  size_t decide();
  std::string report(size_t chosen);
  void show(llvm::StringRef what, size_t done, size_t of) const;

  Signature &signature;
  const OperatorCall &call;
  const GradientRequest *request;
  const int64_t threads;
  const Tuning &tuning;
  const Clock::time_point start = Clock::now();
  /// Numbers that stand where the model leaves them open.
  Form model;
  bool hasChunks = true;
  double floorSeconds = 0;
  std::vector<Candidate> candidates; // the model's form first
  size_t untried = 0;
};

} // namespace

//===----------------------------------------------------------------------===//
// Forms
//===----------------------------------------------------------------------===//

llvm::Expected<const CompiledKernel *> Tuner::kernelOf(const Form &form, const Signature::Gradient **gradient) {
  OperatorCall inForm = call;
  inForm.form = form;
  if (!request) {
    llvm::Expected<Signature::Kernel *> kernel = signature.kernelFor(inForm, threads);
    if (!kernel)
      return kernel.takeError();
    return (*kernel)->code.get();
  }
  llvm::Expected<Signature::Gradient *> made = signature.gradientFor(inForm, *request, threads);
  if (!made)
    return made.takeError();
  if (gradient)
    *gradient = *made;
  return (*made)->lastKernel().code.get();
}

/// What keeps many registers in memory is slow, and wrong where products of warpgroups find too few: the assembler of
/// CUDA 13.0 then lets them overwrite addresses, as one form of GSA showed.
llvm::Error Tuner::checkKernels(const Form &form) {
  constexpr int64_t most = 128;
  const Signature::Gradient *gradient = nullptr;
  llvm::Expected<const CompiledKernel *> kernel = kernelOf(form, &gradient);
  if (!kernel)
    return kernel.takeError();
  if (signature.device < 0)
    return llvm::Error::success();
  if (form.ahead && !(*kernel)->manifest.threadsAhead)
    return llvm::createStringError("there is nothing that warps could compute ahead of others");
  if (form.outputs && !(*kernel)->manifest.threadsOfOutputs)
    return llvm::createStringError("there are no outputs that warps could find behind others");
  SmallVector<const CompiledKernel *> kernels = {*kernel};
  if (gradient)
    kernels = llvm::map_to_vector(
        gradient->all(), [](const Signature::Kernel *each) -> const CompiledKernel * { return each->code.get(); });
  for (const CompiledKernel *each : kernels) {
    llvm::Expected<int64_t> bytes = each->cuda->spilledBytes(signature.device);
    if (!bytes)
      return bytes.takeError();
    if (*bytes > most)
      return llvm::createStringError("each thread of '" + each->manifest.symbol + "' keeps registers in " +
                                     std::to_string(*bytes) + " bytes of memory, expected at most " +
                                     std::to_string(most));
  }
  return llvm::Error::success();
}

llvm::Error Tuner::describeModel() {
  Form open = signature.modelForm(call, threads, request != nullptr,
                                  request ? 1 : signature.segmentsFor(call, /*isOfGradient=*/false));
  candidates.push_back({.form = open, .samples = {}, .refused = {}});
  const Signature::Gradient *gradient = nullptr;
  llvm::Expected<const CompiledKernel *> kernel = kernelOf(open, &gradient);
  if (!kernel)
    return kernel.takeError();
  const Manifest &manifest = (*kernel)->manifest;
  model = {.chunk = manifest.chunk,
           .slices = manifest.slices,
           .warps = manifest.threadsOfWalk() / 32,
           .ahead = manifest.threadsAhead / 32,
           .outputs = manifest.threadsOfOutputs / 32,
           .walks = gradient ? gradient->walks() : 0,
           .walkSlices = open.walkSlices};
  hasChunks = manifest.noChunkForm.empty() && manifest.chunk > 1;
  double bytes = static_cast<double>(request ? bytesOfTensors(*gradient, call) : bytesOfCall(signature, call));
  auto flops = static_cast<double>(flopsOf(signature, call, manifest));
  if (tuning.bytesPerSecond > 0)
    floorSeconds = bytes / tuning.bytesPerSecond;
  if (tuning.flopsPerSecond > 0)
    floorSeconds = std::max(floorSeconds, flops / tuning.flopsPerSecond);
  return llvm::Error::success();
}

std::vector<Form> Tuner::neighbours() const {
  bool isOfGpu = signature.device >= 0;
  // The sizes of tiles that back ends have: fragments of 16 rows on a GPU, where more than 64 fit nowhere, and vectors
  // on a CPU.
  const int64_t fewest = isOfGpu ? 16 : 8, most = isOfGpu ? Form::mostTokensOnGpu : 128;
  std::vector<Form> forms;
  for (int64_t chunk : {model.chunk, model.chunk / 2, 2 * model.chunk, 4 * model.chunk})
    for (int64_t slices : {model.slices, model.slices / 2, 2 * model.slices, 4 * model.slices})
      if (chunk >= fewest && chunk <= most && slices >= 1 && (chunk != model.chunk || slices != model.slices))
        forms.push_back({.chunk = chunk, .slices = slices, .walks = model.walks, .walkSlices = model.walkSlices});
  if (model.walks)
    for (int64_t chunk : {model.chunk, model.chunk / 2, 2 * model.chunk})
      if (chunk >= fewest && chunk <= most)
        forms.push_back({.chunk = chunk,
                         .slices = model.slices,
                         .walks = model.walks == 1 ? 2 : 1,
                         .walkSlices = model.walkSlices});
  return forms;
}

std::vector<Form> Tuner::withOtherWarps(const Form &form) const {
  std::vector<Form> forms;
  for (int64_t warps : {4, 8, 16})
    if (Form other = {.chunk = form.chunk,
                      .slices = form.slices,
                      .warps = warps,
                      .walks = form.walks,
                      .walkSlices = form.walkSlices};
        other != model)
      forms.push_back(other);
  return forms;
}

std::vector<Form> Tuner::withWarpsAhead(const Form &form) const {
  std::vector<Form> forms;
  if (request || signature.device < 0)
    return forms;
  bool triesOutputs = Knobs::instance().outputs.load() != 0;
  // Where the model leaves the tokens open it may divide sequences among segments, too.
  for (auto [ahead, outputs] : {std::pair(4, 0), {8, 0}, {0, 4}, {0, 8}, {4, 4}}) {
    if (outputs && !triesOutputs)
      continue;
    forms.push_back(candidates.front().form);
    forms.back().ahead = ahead;
    forms.back().outputs = outputs;
  }
  for (int64_t slices : {form.slices, 2 * form.slices, 4 * form.slices})
    for (auto [warps, ahead, outputs] :
         {std::tuple(4, 4, 0), {4, 8, 0}, {8, 4, 0}, {4, 0, 4}, {4, 0, 8}, {4, 4, 4}, {4, 4, 8}, {4, 8, 8}})
      if (!outputs || triesOutputs)
        forms.push_back({.chunk = form.chunk, .slices = slices, .warps = warps, .ahead = ahead, .outputs = outputs});
  return forms;
}

void Tuner::compileAll(ArrayRef<Form> forms) {
  const Signature::Gradient *gradient = nullptr;
  if (request)
    if (llvm::Expected<const CompiledKernel *> kernel = kernelOf(candidates.front().form, &gradient); !kernel)
      llvm::consumeError(kernel.takeError());
  std::vector<KernelRequest> requests;
  for (const Form &form : forms)
    llvm::append_range(requests, signature.requestsFor(form, gradient));
  show("compiles", 0, forms.size());
  compileAhead(signature.declaration(), requests, signature.device, [&] { return elapsed() < tuning.seconds / 2; });
}

//===----------------------------------------------------------------------===//
// Measuring
//===----------------------------------------------------------------------===//

bool Tuner::sample(Candidate &candidate) {
  llvm::Expected<double> seconds = tuning.trial(candidate.form);
  if (!seconds) {
    candidate.refused = llvm::toString(seconds.takeError());
    return false;
  }
  candidate.samples.push_back(*seconds);
  return true;
}

void Tuner::measure(const Form &form) {
  constexpr double muchSlower = 1.5;
  constexpr size_t enough = 3;
  Candidate candidate = {.form = form, .samples = {}, .refused = {}};
  double best = INFINITY;
  for (const Candidate &other : candidates)
    if (!other.samples.empty())
      best = std::min(best, other.fastest());
  if (llvm::Error error = checkKernels(form)) {
    candidate.refused = llvm::toString(std::move(error));
  } else if (sample(candidate)) { // the first call loads the kernel
    candidate.samples.clear();
    while (candidate.samples.size() < enough && sample(candidate) && candidate.fastest() < muchSlower * best) {
    }
  }
  candidates.push_back(std::move(candidate));
}

void Tuner::measureAll(ArrayRef<Form> forms) {
  for (auto [index, form] : llvm::enumerate(forms)) {
    show("measures", index, forms.size());
    if (!hasTime()) {
      untried += forms.size() - index;
      return;
    }
    measure(form);
  }
}

size_t Tuner::decide() {
  constexpr size_t rounds = 7, finalists = 4;
  constexpr double worthAChange = 0.97;
  SmallVector<size_t> order;
  for (size_t i = 1; i < candidates.size(); ++i)
    if (candidates[i].runs())
      order.push_back(i);
  llvm::sort(order, [&](size_t a, size_t b) { return candidates[a].fastest() < candidates[b].fastest(); });
  order.truncate(std::min(order.size(), finalists));
  order.push_back(0);
  for (size_t i : order)
    candidates[i].samples.clear();
  // One round there is in any case, so that the model's form has been measured beside the others.
  for (size_t round = 0; round < rounds && (round == 0 || elapsed() < 1.2 * tuning.seconds); ++round) {
    show("measures again", round, rounds);
    for (size_t i : order)
      if (candidates[i].refused.empty())
        sample(candidates[i]);
  }
  size_t best = 0;
  for (size_t i : order)
    if (candidates[i].runs() && (!candidates[best].runs() || secondsOf(candidates[i]) < secondsOf(candidates[best])))
      best = i;
  const Candidate &open = candidates.front();
  bool isWorthIt = !open.runs() || secondsOf(candidates[best]) < worthAChange * secondsOf(open);
  return isWorthIt ? best : 0;
}

//===----------------------------------------------------------------------===//
// All of it
//===----------------------------------------------------------------------===//

void Tuner::show(StringRef what, size_t done, size_t of) const {
  if (!tuning.isShown || !::isatty(STDERR_FILENO))
    return;
  constexpr size_t width = 24;
  size_t filled = of ? width * done / of : width;
  double best = INFINITY;
  for (const Candidate &candidate : candidates)
    if (!candidate.samples.empty())
      best = std::min(best, candidate.fastest());
  llvm::errs() << "\r\033[Kstretto: tuning " << signature.op.name() << (request ? ", gradient " : " ") << "["
               << std::string(filled, '#') << std::string(width - filled, '.') << "] " << what << " " << done << " of "
               << of;
  if (std::isfinite(best))
    llvm::errs() << llvm::format(", best %.3f ms", 1e3 * best);
  if (what.empty())
    llvm::errs() << "\r\033[K";
}

std::string Tuner::report(size_t chosen) {
  auto milliseconds = [&](const Candidate &candidate) { return 1e3 * secondsOf(candidate); };
  std::string text;
  llvm::raw_string_ostream stream(text);
  llvm::json::OStream json(stream);
  auto describe = [&](const Form &form) {
    const Form &shown = form.isFixed() ? form : model;
    json.attribute("chunk", shown.chunk);
    json.attribute("slices", shown.slices);
    json.attribute("warps", shown.warps ? shown.warps : model.warps);
    if (int64_t ahead = form == candidates.front().form ? model.ahead : form.ahead)
      json.attribute("ahead", ahead);
    if (int64_t outputs = form == candidates.front().form ? model.outputs : form.outputs)
      json.attribute("outputs", outputs);
    if (shown.walks)
      json.attribute("walks", shown.walks);
  };
  const Candidate &best = candidates[chosen];
  json.object([&] {
    json.attribute("chosen_by", chosen == 0 ? "model" : "tuner");
    describe(best.form);
    json.attribute("milliseconds", milliseconds(best));
    if (candidates.front().runs())
      json.attribute("model_milliseconds", milliseconds(candidates.front()));
    if (floorSeconds > 0) {
      json.attribute("floor_milliseconds", 1e3 * floorSeconds);
      json.attribute("to_floor", secondsOf(best) / floorSeconds);
    }
    json.attribute("seconds", elapsed());
    json.attribute("untried", untried);
    json.attributeArray("candidates", [&] {
      for (const Candidate &candidate : candidates)
        json.object([&] {
          describe(candidate.form);
          if (candidate.runs())
            json.attribute("milliseconds", milliseconds(candidate));
          else
            json.attribute("refused", candidate.refused);
        });
    });
  });
  return text;
}

llvm::Expected<std::string> Tuner::run() {
  if (llvm::Error error = describeModel())
    return error;
  // The first call loads the kernel.
  if (!sample(candidates.front()) || (candidates.front().samples.clear(), !sample(candidates.front())))
    return llvm::createStringError(candidates.front().refused);
  if (hasChunks) {
    std::vector<Form> around = neighbours();
    compileAll(around);
    measureAll(around);
    if (signature.device >= 0) {
      const Candidate *best = &candidates.front();
      for (const Candidate &candidate : candidates)
        if (candidate.runs() && candidate.fastest() < best->fastest())
          best = &candidate;
      Form fastest = best->form.isFixed() ? best->form : model;
      std::vector<Form> others = withOtherWarps(fastest);
      llvm::append_range(others, withWarpsAhead(fastest));
      compileAll(others);
      measureAll(others);
    }
  }
  size_t chosen = decide();
  show("", 0, 1);
  const Candidate &best = candidates[chosen];
  TunedForm found = {.form = chosen == 0 ? Form() : best.form, .milliseconds = 1e3 * secondsOf(best)};
  if (candidates.front().runs())
    found.modelMilliseconds = 1e3 * secondsOf(candidates.front());
  found.floorMilliseconds = 1e3 * floorSeconds;
  TunedForms::instance().keep(signature.tuningKey(call, threads, request), found);
  return report(chosen);
}

llvm::Expected<std::string> stretto::tune(Signature &signature, const OperatorCall &call,
                                          const GradientRequest *request, int64_t threads, const Tuning &tuning) {
  if (call.isStep)
    return llvm::createStringError("[R14] a step has one form, and is not tuned");
  if (signature.items(call) == 0 || signature.tokens(call) == 0)
    return llvm::createStringError("[R1] there is nothing to measure: the call has no tokens or no sequences");
  return Tuner(signature, call, request, threads, tuning).run();
}
