//===- FeatureGradient.cpp - Gradients of declarations that are split -----===//
//
// A gradient is to take no more than twice the memory of its largest input beyond what it is given, what it leaves, and
// rows that are saved, as features are. Their cotangents take memory where that of gradients is not needed yet, and are
// let go part by part. Where they would take too much all the same, as wide ones do, sequences and heads come in
// groups, which know of no others (runtime/torch/Groups.h); and where there are too few of these, a call has the
// gradient of the whole.
//
//===----------------------------------------------------------------------===//

#include "runtime/torch/Call.h"
#include "runtime/torch/Features.h"
#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

using namespace stretto::torch_layer;

using Parts = TorchOperator::Parts;

//===----------------------------------------------------------------------===//
// Groups
//===----------------------------------------------------------------------===//

/// What a call may take that takes no more memory than anybody minds.
static constexpr int64_t littleBytes = int64_t(16) << 20;

int64_t Parts::headAxis(size_t place) const {
  if (place < whole.inputs.size())
    return whole.inputs[place].isParameter ? 0 : 2;
  return areTails[place - whole.inputs.size()] ? 2 : 1;
}

Parts::Bytes Parts::cotangentsOf(const Part &part, const Arguments &arguments) const {
  Arguments own = argumentsOf(part, arguments, {});
  const at::Tensor &row = whole.firstRow(arguments);
  RunningCall call(part.op, own);
  Bytes bytes;
  for (size_t i = 0; i < part.op.resultCount(); ++i) {
    StrettoShape shape = strettoSignatureResult(call.signature, i);
    int64_t numbers = c10::multiply_integers(joined({row.size(0), row.size(1)}, shape));
    int64_t ofResult = numbers * static_cast<int64_t>(c10::elementSize(scalarTypeOf(shape.element)));
    (shape.sizes[0] == 1 ? bytes.shared : bytes.ofHeads) += ofResult;
  }
  return bytes;
}

std::optional<Parts::Division> Parts::divide(const Arguments &arguments, const std::vector<bool> &wanted) const {
  int64_t largest = 0, heads = 1;
  for (size_t place = 0; place < whole.inputs.size(); ++place) {
    const OptionalTensor &input = arguments.inputs[place];
    if (!input)
      continue;
    if (isOfSequences(place))
      largest = std::max(largest, static_cast<int64_t>(input->nbytes()));
    if (int64_t count = input->size(headAxis(place)); count > 1)
      heads = heads == 1 ? count : std::min(heads, count);
  }
  // Of each part bytes of cotangents, and of gradients that only parts leave.
  auto isWanted = [&](size_t place) { return place < wanted.size() && wanted[place]; };
  std::vector<int64_t> cotangents, gradients;
  std::set<size_t> seen(rest->inputs.begin(), rest->inputs.end());
  Bytes all;
  for (const std::unique_ptr<const Part> &part : features) {
    cotangents.push_back(0);
    gradients.push_back(0);
    for (size_t place : part->inputs)
      if (seen.insert(place).second && isWanted(place))
        gradients.back() += static_cast<int64_t>(arguments.inputs[place]->nbytes());
    if (wantedOf(*part, argumentsOf(*part, arguments, {}), isWanted).places.empty())
      continue;
    Bytes bytes = cotangentsOf(*part, arguments);
    cotangents.back() = bytes.ofHeads + bytes.shared;
    all.ofHeads += bytes.ofHeads;
    all.shared += bytes.shared;
  }
  int64_t batch = whole.firstRow(arguments).size(0),
          enough = largest * strettoInputsOfGradient(whole.firstRow(arguments).is_cuda());
  if (int64_t forced = strettoGroups())
    return Division{Groups::of(forced, batch, heads), enough, enough / 2, enough / 2};

  int64_t beside = all.ofHeads + all.shared - std::accumulate(gradients.begin(), gradients.end(), int64_t(0));
  Division division = {Groups{.sequences = batch}, enough, std::max<int64_t>(beside, 0), 0};
  for (size_t index = 0; index < features.size(); ++index) {
    beside += gradients[index];
    division.besideFeatures = std::max(division.besideFeatures, beside);
    beside -= cotangents[index];
  }
  // Kernels want some memory, too.
  auto fits = [](const Division &division) {
    return std::max(division.besideRest, division.besideFeatures) <= std::max(division.enough, littleBytes) / 4 * 3;
  };
  if (fits(division))
    return division;
  // Memory for the gradients of all groups is there before the first.
  auto ofGroup = [&](int64_t count) {
    Groups groups = Groups::of(count, batch, heads);
    int64_t bytes = (all.shared + all.ofHeads / groups.ofHeads) / batch * groups.sequences;
    return Division{groups, enough, bytes, bytes};
  };
  for (int64_t count = 2; count <= batch * heads; ++count) {
    division = ofGroup(count);
    if (division.besideRest <= enough / 2)
      break;
  }
  return fits(division) ? std::optional(division) : std::nullopt;
}

Group Parts::firstOf(const Division &division, const Arguments &arguments) const {
  return {division.groups, /*index=*/0, whole.firstRow(arguments).size(0)};
}

Arguments Parts::argumentsOf(const Group &group, const Arguments &arguments) const {
  Arguments own = arguments;
  auto narrow = [&](at::Tensor &tensor, size_t place) {
    tensor = group.of(tensor, isOfSequences(place), headAxis(place));
  };
  for (size_t place = 0; place < whole.inputs.size(); ++place)
    if (OptionalTensor &input = own.inputs[place])
      narrow(*input, place);
  for (size_t entry = 0; entry < own.initialState.size(); ++entry)
    narrow(own.initialState[entry], whole.inputs.size() + entry);
  return own;
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

std::vector<at::Tensor> Parts::gradient(const Arguments &arguments, const Division &division,
                                        const std::vector<bool> &wanted, const std::vector<OptionalTensor> &cotangents,
                                        const Kept &kept) const {
  if (division.groups.count <= 1)
    return gradientOf(arguments, division, wanted, cotangents, {}, kept);
  size_t inputCount = whole.inputs.size(), resultCount = whole.resultCount();
  int64_t batch = whole.firstRow(arguments).size(0);
  auto likeOf = [&](size_t place) {
    return place < inputCount ? *arguments.inputs[place] : arguments.initialState[place - inputCount];
  };
  auto partOf = [&](const Group &group, const at::Tensor &tensor, size_t place) {
    return group.of(tensor, isOfSequences(place), headAxis(place));
  };
  // What groups leave each in a place of its own, and sums of what several leave in one.
  Tensors all(wanted.size());
  for (int64_t index = 0; index < division.groups.count; ++index) {
    Group group(division.groups, index, batch);
    std::vector<OptionalTensor> places(wanted.size()), ofGroup(cotangents.size());
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place])
        continue;
      at::Tensor like = likeOf(place);
      bool isAlone = group.isAlone(like, isOfSequences(place), headAxis(place));
      at::ScalarType ofSums = like.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
      if (!all[place].defined())
        all[place] =
            isAlone ? allocate(like.sizes(), like.options()) : at::zeros(like.sizes(), like.options().dtype(ofSums));
      if (isAlone)
        places[place] = partOf(group, all[place], place);
    }
    for (size_t i = 0; i < cotangents.size(); ++i) {
      int64_t axis = i < resultCount ? 2 : headAxis(inputCount + i - resultCount);
      // That of what groups of heads share counts once.
      if (cotangents[i] && (group.isFirstOfHeads() || group.isAlone(*cotangents[i], /*ofSequences=*/true, axis)))
        ofGroup[i] = group.of(*cotangents[i], /*ofSequences=*/true, axis);
    }
    Kept ofKept;
    for (const at::Tensor &row : kept.saved)
      ofKept.saved.push_back(group.of(row, /*ofSequences=*/true, /*headAxis=*/2));
    Tensors found = gradientOf(argumentsOf(group, arguments), division, wanted, ofGroup, places, ofKept);
    auto next = found.begin();
    for (size_t place = 0; place < wanted.size(); ++place) {
      if (!wanted[place])
        continue;
      at::Tensor part = std::move(*next++);
      if (!places[place])
        partOf(group, all[place], place).add_(part);
      else if (part.const_data_ptr() != places[place]->const_data_ptr())
        places[place]->copy_(part);
    }
  }
  Tensors gradients;
  for (size_t place = 0; place < wanted.size(); ++place)
    if (wanted[place])
      gradients.push_back(all[place].to(likeOf(place).scalar_type()));
  return gradients;
}

std::vector<at::Tensor> Parts::gradientOf(const Arguments &arguments, const Division &division,
                                          const std::vector<bool> &wanted,
                                          const std::vector<OptionalTensor> &cotangents,
                                          const std::vector<OptionalTensor> &places, const Kept &kept) const {
  size_t inputCount = whole.inputs.size(), resultCount = whole.resultCount();
  Arguments withoutFinal = arguments;
  withoutFinal.outputFinalState = false;
  auto isAsked = [&](size_t place) { return place < wanted.size() && wanted[place]; };

  // Features that were not kept are found again. Of those whose own gradients are not asked for none is.
  std::vector<Arguments> ofParts;
  std::vector<Wanted> ofWanted;
  Tensors found = kept.features;
  std::vector<bool> isFeatureWanted;
  for (const std::unique_ptr<const Part> &part : features) {
    const Arguments &own = ofParts.emplace_back(argumentsOf(*part, withoutFinal, {}, &division));
    ofWanted.push_back(wantedOf(*part, own, isAsked));
    if (kept.features.empty())
      for (at::Tensor &feature : part->op.run(own).results)
        found.push_back(std::move(feature));
    isFeatureWanted.insert(isFeatureWanted.end(), part->op.resultCount(), !ofWanted.back().places.empty());
  }
  Arguments ofRest = argumentsOf(*rest, withoutFinal, found, &division);
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
  // Where rows of a part are to be left, if no other part has left some there.
  auto placesOf = [&](const Part &part) {
    std::vector<OptionalTensor> own(part.inputs.size());
    for (size_t i = 0; i < own.size(); ++i)
      if (size_t place = part.inputs[i]; place < places.size() && !isFeature(place) && !sums[place].defined())
        own[i] = places[place];
    return own;
  };
  auto addCotangents = [&](std::vector<OptionalTensor> &to, const Part &part, const Arguments &own) {
    for (size_t entry : entriesOf(part, own))
      to.push_back(resultCount + entry < cotangents.size() ? cotangents[resultCount + entry] : std::nullopt);
  };
  std::vector<OptionalTensor> ofResults(cotangents.begin(), cotangents.begin() + static_cast<int64_t>(resultCount));
  addCotangents(ofResults, *rest, ofRest);
  Tensors gradients =
      rest->op.gradient(ofRest, ofRestWanted, ofResults, {.states = kept.states, .saved = kept.saved}, placesOf(*rest));
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
    std::vector<OptionalTensor> ofPart(part.op.resultCount());
    for (OptionalTensor &cotangent : ofPart)
      cotangent = std::exchange(*nextFeature++, std::nullopt);
    if (ofWanted[index].places.empty())
      continue;
    addCotangents(ofPart, part, ofParts[index]);
    gradients = part.op.gradient(ofParts[index], ofWanted[index].flags, ofPart, {}, placesOf(part));
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
