//===- Features.cpp - Calls of declarations that are split ----------------===//
//
// Where a declaration has feature maps, these are operators of their own, and the rest is another
// (passes/declaration/Features.h): a call runs all, its gradient finds the features again and goes back through the
// rest and through these. An entry of the state belongs to the part that has one of its name.
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

static std::string textOf(const std::string &variant, const StrettoSignature *signature, size_t index) {
  char *text = checked(variant, strettoSignaturePart, signature, index);
  std::string module = text;
  strettoStringDestroy(text);
  return module;
}

template <typename List> static size_t positionIn(const List &list, const std::string &name) {
  return std::find_if(list.begin(), list.end(), [&](const auto &item) { return item.name == name; }) - list.begin();
}

Parts::Part::Part(const Parts &parts, const StrettoSignature *signature, size_t index)
    : op(textOf(parts.whole.variant(), signature, index)) {
  const std::vector<Input> &ofWhole = parts.whole.inputs;
  const std::string prefix = "feature_";
  for (const Input &input : op.inputs) {
    size_t place = positionIn(ofWhole, input.name);
    inputs.push_back(place < ofWhole.size() ? place : place + std::stoul(input.name.substr(prefix.size())));
  }
  for (const Option &option : op.options)
    options.push_back(positionIn(parts.whole.options, option.name));
}

Parts::Parts(const TorchOperator &whole, const StrettoSignature *signature) : whole(whole) {
  for (size_t i = 0; i < strettoSignatureStateCount(signature); ++i)
    entryNames.emplace_back(strettoSignatureState(signature, i).name);
  size_t count = strettoSignatureFeatureParts(signature);
  for (size_t i = 0; i < count; ++i)
    features.push_back(std::make_unique<const Part>(*this, signature, i));
  rest = std::make_unique<const Part>(*this, signature, count);
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

Arguments Parts::argumentsOf(const Part &part, const Arguments &arguments, const Tensors &found) const {
  Arguments own;
  own.outputFinalState = arguments.outputFinalState;
  own.sequenceOffsets = arguments.sequenceOffsets;
  own.hasWindows = arguments.hasWindows;
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

void Parts::compile(const Arguments &arguments, bool isRecorded) const {
  Tensors found;
  std::vector<Arguments> ofParts;
  std::vector<const TorchOperator *> ops;
  for (const std::unique_ptr<const Part> &part : features) {
    ofParts.push_back(argumentsOf(*part, arguments, {}));
    ops.push_back(&part->op);
    for (at::Tensor &feature : emptyFeatures(*part, ofParts.back()))
      found.push_back(feature.set_requires_grad(isRecorded));
  }
  ofParts.push_back(argumentsOf(*rest, arguments, found));
  ops.push_back(&rest->op);
  // What cannot be compiled is said when it runs.
  auto prepare = [&](size_t index) {
    at::AutoGradMode recording(isRecorded);
    try {
      ops[index]->prepare(ofParts[index]);
    } catch (const std::exception &error) {
      return std::string(error.what());
    }
    return std::string();
  };
  std::vector<std::thread> threads;
  for (size_t index = 1; index < ops.size(); ++index)
    threads.emplace_back([&prepare, index] { prepare(index); });
  prepare(0);
  for (std::thread &thread : threads)
    thread.join();
}

Outputs Parts::run(const Arguments &arguments) const {
  bool isRecorded = whole.requiresGradient(arguments);
  if (!(isRecorded ? isCompiledWithGradient : isCompiled).exchange(true))
    compile(arguments, isRecorded);
  Tensors found, state(arguments.outputFinalState ? entryNames.size() : 0);
  auto runPart = [&](const Part &part) {
    Arguments own = argumentsOf(part, arguments, found);
    Outputs outputs = part.op.run(own);
    for (size_t i = 0; i < outputs.finalState.size(); ++i)
      state[entriesOf(part, own)[i]] = outputs.finalState[i];
    return outputs;
  };
  for (const std::unique_ptr<const Part> &part : features)
    for (at::Tensor &feature : runPart(*part).results)
      found.push_back(feature.set_requires_grad(isRecorded));
  Outputs outputs = runPart(*rest);
  outputs.finalState = std::move(state);
  return outputs;
}

//===----------------------------------------------------------------------===//
// The gradient
//===----------------------------------------------------------------------===//

Parts::Wanted Parts::wantedOf(const Part &part, const Arguments &own,
                              const std::function<bool(size_t place)> &isWanted) const {
  Wanted wanted;
  auto add = [&](size_t place, bool flag) {
    wanted.flags.push_back(flag);
    if (flag)
      wanted.places.push_back(place);
  };
  for (size_t place : part.inputs)
    add(place, isWanted(place));
  if (!own.initialState.empty())
    for (size_t entry : entriesOf(part, own))
      add(whole.inputs.size() + entry, isWanted(whole.inputs.size() + entry));
  return wanted;
}

std::vector<at::Tensor> Parts::gradient(const Arguments &arguments, const std::vector<bool> &wanted,
                                        const std::vector<OptionalTensor> &cotangents) const {
  size_t inputCount = whole.inputs.size(), resultCount = whole.resultCount();
  Arguments withoutFinal = arguments;
  withoutFinal.outputFinalState = false;
  auto isAsked = [&](size_t place) { return place < wanted.size() && wanted[place]; };

  // Features are found again. Of those whose own gradients are not asked for none is.
  std::vector<Arguments> ofParts;
  std::vector<Wanted> ofWanted;
  Tensors found;
  std::vector<bool> isFeatureWanted;
  for (const std::unique_ptr<const Part> &part : features) {
    const Arguments &own = ofParts.emplace_back(argumentsOf(*part, withoutFinal, {}));
    ofWanted.push_back(wantedOf(*part, own, isAsked));
    for (at::Tensor &feature : part->op.run(own).results) {
      found.push_back(std::move(feature));
      isFeatureWanted.push_back(!ofWanted.back().places.empty());
    }
  }
  Arguments ofRest = argumentsOf(*rest, withoutFinal, found);
  std::vector<bool> ofRestWanted;
  for (size_t place : rest->inputs)
    ofRestWanted.push_back(isFeature(place) ? isFeatureWanted[numberOf(place)] : isAsked(place));
  if (!ofRest.initialState.empty())
    for (size_t entry : entriesOf(*rest, ofRest))
      ofRestWanted.push_back(isAsked(inputCount + entry));

  Tensors sums(inputCount + entryNames.size());
  std::vector<OptionalTensor> ofFeatures(found.size());
  auto add = [&](size_t place, const at::Tensor &part) {
    sums[place] = sums[place].defined() ? sums[place] + part : part;
  };
  auto addCotangents = [&](std::vector<OptionalTensor> &to, const Part &part, const Arguments &own) {
    for (size_t entry : entriesOf(part, own))
      to.push_back(resultCount + entry < cotangents.size() ? cotangents[resultCount + entry] : std::nullopt);
  };
  std::vector<OptionalTensor> ofResults(cotangents.begin(), cotangents.begin() + static_cast<int64_t>(resultCount));
  addCotangents(ofResults, *rest, ofRest);
  Tensors gradients = rest->op.gradient(ofRest, ofRestWanted, ofResults, {});
  auto next = gradients.begin();
  for (size_t i = 0; i < ofRestWanted.size(); ++i) {
    if (!ofRestWanted[i])
      continue;
    if (i >= rest->inputs.size())
      add(inputCount + entriesOf(*rest, ofRest)[i - rest->inputs.size()], *next++);
    else if (isFeature(rest->inputs[i]))
      ofFeatures[numberOf(rest->inputs[i])] = *next++;
    else
      add(rest->inputs[i], *next++);
  }
  // What is behind takes no memory any longer.
  for (Tensors *passed : {&gradients, &found})
    passed->clear();
  ofRest.inputs.clear();
  auto nextFeature = ofFeatures.begin();
  for (size_t index = 0; index < features.size(); ++index) {
    const Part &part = *features[index];
    std::vector<OptionalTensor> ofPart;
    for (size_t i = 0; i < part.op.resultCount(); ++i)
      ofPart.push_back(std::exchange(*nextFeature++, std::nullopt));
    if (ofWanted[index].places.empty())
      continue;
    addCotangents(ofPart, part, ofParts[index]);
    gradients = part.op.gradient(ofParts[index], ofWanted[index].flags, ofPart, {});
    for (size_t i = 0; i < gradients.size(); ++i)
      add(ofWanted[index].places[i], gradients[i]);
  }

  Tensors all;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i])
      continue;
    const at::Tensor &like = i < inputCount ? *arguments.inputs[i] : arguments.initialState[i - inputCount];
    all.push_back(sums[i].defined() ? sums[i] : at::zeros(like.sizes(), like.options()));
  }
  return all;
}

//===----------------------------------------------------------------------===//
// Explaining and tuning
//===----------------------------------------------------------------------===//

std::string Parts::forEach(const Arguments &arguments, const std::vector<std::string> &wanted, bool findsFeatures,
                           const Visit &visit) const {
  auto namesOf = [&](const Part &part, const Arguments &own, const std::vector<bool> &areFeaturesWanted) {
    std::vector<std::string> names;
    auto isWanted = [&](const std::string &name) { return std::count(wanted.begin(), wanted.end(), name) > 0; };
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
    Arguments own = argumentsOf(*part, arguments, {});
    std::vector<std::string> names = namesOf(*part, own, {});
    for (at::Tensor &feature : findsFeatures ? part->op.run(own).results : emptyFeatures(*part, own)) {
      bytes += static_cast<int64_t>(feature.nbytes());
      found.push_back(std::move(feature));
      areFeaturesWanted.push_back(!names.empty());
    }
    if (wanted.empty() || !names.empty())
      ofFeatures += (ofFeatures.empty() ? "" : ",") + visit(part->op, own, names);
  }
  Arguments ofRest = argumentsOf(*rest, arguments, found);
  std::string text = visit(rest->op, ofRest, wanted.empty() ? wanted : namesOf(*rest, ofRest, areFeaturesWanted));
  text.erase(text.rfind('}'));
  return text + ",\"features\":[" + ofFeatures + "],\"feature_bytes\":" + std::to_string(bytes) + "}";
}
