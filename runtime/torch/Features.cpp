//===- Features.cpp - Calls of declarations that are split ----------------===//
//
// Where a declaration has feature maps, these are operators of their own, and the rest is another
// (passes/declaration/Features.h): a call runs all, its gradient finds the features again and goes back through the
// rest and through these (FeatureGradient.cpp). An entry of the state belongs to the part that has one of its name.
//
//===----------------------------------------------------------------------===//

#include "runtime/torch/Features.h"
#include "runtime/torch/Call.h"
#include "runtime/torch/Lent.h"
#include <algorithm>
#include <thread>
#include <utility>

using namespace stretto::torch_layer;

using Parts = TorchOperator::Parts;

static std::string textOf(const std::string &variant, const StrettoSignature *signature, size_t index,
                          bool ofGradient) {
  char *text = checked(variant, strettoSignaturePart, signature, index, ofGradient);
  std::string module = text;
  strettoStringDestroy(text);
  return module;
}

template <typename List> static size_t positionIn(const List &list, const std::string &name) {
  return std::find_if(list.begin(), list.end(), [&](const auto &item) { return item.name == name; }) - list.begin();
}

Parts::Part::Part(const Parts &parts, size_t index)
    : op(textOf(parts.whole.variant(), parts.signature, index, parts.ofGradient)) {
  const std::vector<Input> &ofWhole = parts.whole.inputs;
  const std::string prefix = "feature_";
  for (const Input &input : op.inputs) {
    size_t place = positionIn(ofWhole, input.name);
    inputs.push_back(place < ofWhole.size() ? place : place + std::stoul(input.name.substr(prefix.size())));
  }
  for (const Option &option : op.options)
    options.push_back(positionIn(parts.whole.options, option.name));
}

Parts::Parts(const TorchOperator &whole, const StrettoSignature *signature, bool ofGradient)
    : whole(whole), signature(signature), ofGradient(ofGradient) {
  for (size_t i = 0; i < strettoSignatureStateCount(signature); ++i) {
    entryNames.emplace_back(strettoSignatureState(signature, i).name);
    areTails.push_back(strettoSignatureState(signature, i).isTail);
  }
  size_t count = strettoSignatureFeatureParts(signature, ofGradient);
  for (size_t i = 0; i < count; ++i)
    features.push_back(std::make_unique<const Part>(*this, i));
  rest = std::make_unique<const Part>(*this, count);
}

//===----------------------------------------------------------------------===//
// The arguments of a part
//===----------------------------------------------------------------------===//

const std::vector<size_t> &Parts::entriesOf(const Part &part, const Arguments &own) const {
  std::lock_guard<std::mutex> lock(mutex);
  if (!part.entries) {
    part.entries.emplace();
    for (const std::string &name : part.op.entryNames(own))
      part.entries->push_back(std::find(entryNames.begin(), entryNames.end(), name) - entryNames.begin());
  }
  return *part.entries;
}

Arguments Parts::argumentsOf(const Part &part, const Arguments &arguments, const Tensors &found,
                             const Division *division) const {
  Arguments own;
  own.outputFinalState = arguments.outputFinalState;
  own.sequenceOffsets = arguments.sequenceOffsets;
  own.hasWindows = arguments.hasWindows;
  own.savesRows = arguments.savesRows && &part == rest.get();
  if (division) {
    int64_t beside = &part == rest.get() ? division->besideRest : division->besideFeatures;
    own.gradientBytes = std::max(division->enough - beside, division->enough / 4);
  }
  for (size_t place : part.inputs)
    own.inputs.push_back(isFeature(place) ? found[numberOf(place)] : arguments.inputs[place]);
  for (size_t option : part.options)
    own.options.push_back(arguments.options[option]);
  if (!arguments.initialState.empty())
    for (size_t entry : entriesOf(part, own))
      own.initialState.push_back(arguments.initialState[entry]);
  return own;
}

Parts::Tensors Parts::emptyFeatures(const Part &part, const Arguments &own) {
  RunningCall call(part.op, own);
  return part.op.allocateResults(call, own, part.op.firstRow(own));
}

//===----------------------------------------------------------------------===//
// Running
//===----------------------------------------------------------------------===//

Parts::Back Parts::backOf(const Arguments &arguments, const Recorded &wanted) const {
  const Parts *parts = whole.partsOf(arguments, signature, /*ofGradient=*/true);
  Back back = {parts, parts->divide(arguments, std::vector<bool>(wanted.begin(), wanted.end()))};
  // Fewer rows are found sooner than memory for them.
  constexpr int64_t fewestRows = 16384;
  const at::Tensor &row = whole.firstRow(arguments);
  back.keeps = arguments.keeps && strettoKeepStates() && back.division && !back.isDivided() &&
               row.numel() >= fewestRows * row.size(-1);
  back.takesOwn = !back.keeps || parts == this || hasFeaturesLike(*parts, arguments);
  return back;
}

bool Parts::hasFeaturesLike(const Parts &others, const Arguments &arguments) const {
  {
    std::lock_guard<std::mutex> lock(mutex);
    if (areFeaturesAlike)
      return *areFeaturesAlike;
  }
  auto featuresOf = [&](const Parts &parts) {
    std::vector<std::pair<at::ScalarType, at::DimVector>> found;
    for (const std::unique_ptr<const Part> &part : parts.features) {
      Arguments own = parts.argumentsOf(*part, arguments, {});
      RunningCall call(part->op, own);
      for (size_t i = 0; i < part->op.resultCount(); ++i) {
        StrettoShape shape = strettoSignatureResult(call.signature, i);
        found.emplace_back(scalarTypeOf(shape.element), joined({1, 1}, shape));
      }
    }
    return found;
  };
  bool areAlike = featuresOf(*this) == featuresOf(others);
  std::lock_guard<std::mutex> lock(mutex);
  return *(areFeaturesAlike = areAlike);
}

std::vector<bool> Parts::areFeaturesWanted(const Arguments &arguments, const Recorded &wanted) const {
  std::vector<bool> flags;
  for (const std::unique_ptr<const Part> &part : features) {
    Wanted ofPart = wantedOf(*part, argumentsOf(*part, arguments, {}),
                             [&](size_t place) { return place < wanted.size() && wanted[place]; });
    flags.insert(flags.end(), part->op.resultCount(), !ofPart.places.empty());
  }
  return flags;
}

void Parts::addFeatureCalls(std::vector<Prepared> &calls, const Arguments &arguments, const Back *back) const {
  for (const std::unique_ptr<const Part> &part : features)
    calls.push_back({&part->op, argumentsOf(*part, arguments, {}, back ? &*back->division : nullptr), back != nullptr});
}

void Parts::addRestCall(std::vector<Prepared> &calls, const Arguments &arguments, const Recorded &wanted,
                        const Back *back) const {
  Tensors found;
  std::vector<bool> areWanted = areFeaturesWanted(arguments, wanted);
  for (const std::unique_ptr<const Part> &part : features)
    for (at::Tensor &feature : emptyFeatures(*part, argumentsOf(*part, arguments, {})))
      found.push_back(feature.set_requires_grad(back && areWanted[found.size()]));
  Arguments own = argumentsOf(*rest, arguments, found, back ? &*back->division : nullptr);
  own.keeps = back && back->keeps;
  calls.push_back({&rest->op, std::move(own), back != nullptr});
}

void Parts::compile(const Arguments &arguments, const Recorded &wanted, const Back *back) const {
  std::vector<Prepared> calls;
  bool isOfParts = back && back->division;
  if (!isOfParts || back->parts != this || back->isDivided()) {
    if (!isOfParts || back->takesOwn)
      addFeatureCalls(calls, arguments, nullptr);
    if (!isOfParts || !back->keeps)
      addRestCall(calls, arguments, wanted, nullptr);
  }
  if (isOfParts) {
    Arguments own = back->isDivided() ? argumentsOf(firstOf(*back->division, arguments), arguments) : arguments;
    back->parts->addFeatureCalls(calls, own, back);
    back->parts->addRestCall(calls, own, wanted, back);
  }
  // What cannot be compiled is said when it runs.
  auto prepare = [](const Prepared &call) {
    at::AutoGradMode recording(call.isRecorded);
    try {
      call.op->prepare(call.arguments);
    } catch (const std::exception &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::vector<std::thread> threads;
  for (size_t index = 1; index < calls.size(); ++index)
    threads.emplace_back([&, index] { prepare(calls[index]); });
  prepare(calls.front());
  for (std::thread &thread : threads)
    thread.join();
}

Outputs Parts::run(const Arguments &arguments, const Recorded &wanted) const {
  std::optional<Back> back;
  if (!wanted.empty())
    back = backOf(arguments, wanted);
  if (!(back ? isCompiledWithGradient : isCompiled).exchange(true))
    compile(arguments, wanted, back ? &*back : nullptr);
  bool keeps = back && back->keeps;
  at::AutoGradMode recording(false); // the kernels of gradients are there
  Tensors found, state(arguments.outputFinalState ? entryNames.size() : 0);
  auto runPart = [&](const Parts &parts, const Part &part, const Arguments &own) {
    Outputs outputs = part.op.run(own);
    for (size_t i = 0; i < outputs.finalState.size(); ++i)
      state[parts.entriesOf(part, own)[i]] = outputs.finalState[i];
    return outputs;
  };
  const Parts &ofFeatures = back && !back->takesOwn ? *back->parts : *this;
  for (const std::unique_ptr<const Part> &part : ofFeatures.features)
    for (at::Tensor &feature : runPart(ofFeatures, *part, ofFeatures.argumentsOf(*part, arguments, found)).results)
      found.push_back(std::move(feature));
  const Parts &ofRest = keeps ? *back->parts : *this;
  Arguments own = ofRest.argumentsOf(*ofRest.rest, arguments, found, keeps ? &*back->division : nullptr);
  own.keeps = keeps;
  // The gradient that it keeps states for is of these.
  at::AutoGradMode recordingRest(keeps);
  if (keeps) {
    std::vector<bool> areWanted = ofRest.areFeaturesWanted(arguments, wanted);
    for (size_t i = 0; i < found.size(); ++i)
      found[i].set_requires_grad(areWanted[i]);
  }
  Outputs outputs = runPart(ofRest, *ofRest.rest, own);
  outputs.finalState = std::move(state);
  if (keeps)
    for (at::Tensor &feature : found)
      outputs.kept.features.push_back(feature.set_requires_grad(false));
  return outputs;
}

//===----------------------------------------------------------------------===//
// Explaining and tuning
//===----------------------------------------------------------------------===//

std::string Parts::forEach(const Arguments &given, const Division *division, const Names &wanted, bool findsFeatures,
                           const Visit &visit) const {
  auto isWanted = [&](const std::string &name) { return std::count(wanted.begin(), wanted.end(), name) > 0; };
  bool isDivided = division && division->groups.count > 1;
  Arguments arguments = isDivided ? argumentsOf(firstOf(*division, given), given) : given;
  auto namesOf = [&](const Part &part, const Arguments &own, const std::vector<bool> &areFeaturesWanted) {
    Names names;
    for (size_t i = 0; i < part.inputs.size(); ++i)
      if (isFeature(part.inputs[i]) ? areFeaturesWanted[numberOf(part.inputs[i])] : isWanted(part.op.inputs[i].name))
        names.push_back(part.op.inputs[i].name);
    for (size_t entry : entriesOf(part, own))
      if (isWanted(entryNames[entry]))
        names.push_back(entryNames[entry]);
    return names;
  };
  Tensors found;
  std::vector<bool> areFeaturesWanted;
  std::string ofFeatures;
  int64_t bytes = 0;
  for (const std::unique_ptr<const Part> &part : features) {
    Arguments own = argumentsOf(*part, arguments, {}, division);
    Names names = namesOf(*part, own, {});
    for (at::Tensor &feature : findsFeatures ? part->op.run(own).results : emptyFeatures(*part, own)) {
      bytes += static_cast<int64_t>(feature.nbytes());
      found.push_back(std::move(feature));
      areFeaturesWanted.push_back(!names.empty());
    }
    if (wanted.empty() || !names.empty())
      ofFeatures += (ofFeatures.empty() ? "" : ",") + visit(part->op, own, names);
  }
  Arguments ofRest = argumentsOf(*rest, arguments, found, division);
  std::string text = visit(rest->op, ofRest, wanted.empty() ? wanted : namesOf(*rest, ofRest, areFeaturesWanted));
  text.erase(text.rfind('}'));
  text += ",\"features\":[" + ofFeatures + "],\"feature_bytes\":" + std::to_string(bytes);
  if (division)
    text += ",\"feature_cotangent_bytes\":" + std::to_string(division->besideRest) +
            ",\"groups\":" + std::to_string(isDivided ? division->groups.count : 1);
  return text + "}";
}
