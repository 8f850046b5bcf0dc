//===- Gradient.cpp - The gradients of a call -----------------------------===//

#include "runtime/torch/Call.h"
#include "runtime/torch/Features.h"
#include "runtime/torch/Lent.h"
#include <deque>
#include <set>

using namespace stretto::torch_layer;

/// The inputs and entries of the initial state whose gradients are wanted.
static std::vector<at::Tensor> differentiated(const std::string &variant, const Arguments &arguments,
                                              const std::vector<bool> &wanted) {
  std::vector<OptionalTensor> all = arguments.inputs;
  all.insert(all.end(), arguments.initialState.begin(), arguments.initialState.end());
  TORCH_CHECK(wanted.size() == all.size(), "stretto: ", variant, ": [R14] 'wanted' has ", wanted.size(),
              " words, expected ", all.size(), ": one for each input and each entry of 'initial_state'");
  std::vector<at::Tensor> tensors;
  for (size_t i = 0; i < all.size(); ++i) {
    if (!wanted[i])
      continue;
    TORCH_CHECK(all[i] && all[i]->is_floating_point(), "stretto: ", variant, ": [R14] the gradient of argument ", i,
                " is wanted, which is absent or no real numbers");
    tensors.push_back(*all[i]);
  }
  return tensors;
}

std::vector<at::Tensor> TorchOperator::describeGradient(const Arguments &arguments,
                                                        const std::vector<bool> &wanted) const {
  std::vector<at::Tensor> gradients;
  for (const at::Tensor &tensor : differentiated(variant(), arguments, wanted))
    gradients.push_back(at::empty_symint(tensor.sym_sizes(), tensor.options()));
  return gradients;
}

/// The sum over groups of neighbours on an axis.
static at::Tensor sumOfGroups(const at::Tensor &parts, int64_t axis, int64_t group) {
  return group == 1 ? parts : parts.unflatten(axis, {parts.size(axis) / group, group}).sum(axis + 1);
}

/// All with the first of each group of neighbours on an axis, and 0 with the others.
static at::Tensor withFirstOfGroups(const at::Tensor &tensor, int64_t axis, int64_t group) {
  if (group == 1)
    return tensor.contiguous();
  std::vector<int64_t> sizes = tensor.sizes().vec();
  sizes.insert(sizes.begin() + axis + 1, group);
  at::Tensor parts = at::zeros(sizes, tensor.options());
  parts.select(axis + 1, 0).copy_(tensor);
  return parts.flatten(axis, axis + 1);
}

static std::vector<StrettoShape> shapesOfSaved(const StrettoSignature *signature) {
  std::vector<StrettoShape> shapes;
  shapes.reserve(strettoSignatureSavedCount(signature) + strettoSignatureTakenResultCount(signature));
  for (size_t i = 0; i < strettoSignatureSavedCount(signature); ++i)
    shapes.push_back(strettoSignatureSaved(signature, i));
  for (size_t i = 0; i < strettoSignatureTakenResultCount(signature); ++i)
    shapes.push_back(strettoSignatureResult(signature, strettoSignatureTakenResult(signature, i)));
  return shapes;
}

void TorchOperator::checkSaved(const at::Tensor &row, const StrettoSignature *signature,
                               const std::vector<at::Tensor> &saved) const {
  std::vector<StrettoShape> shapes = shapesOfSaved(signature);
  TORCH_CHECK(saved.empty() || saved.size() == shapes.size(), "stretto: ", variant(), ": [R14] 'saved' has ",
              saved.size(), " rows, expected ", shapes.size(),
              ": what the recorded call has saved, and behind it the results that its gradient takes");
  for (size_t i = 0; i < saved.size(); ++i) {
    at::DimVector sizes = joined({row.size(0), row.size(1)}, shapes[i]);
    at::ScalarType type = scalarTypeOf(shapes[i].element);
    TORCH_CHECK(saved[i].sizes() == sizes && saved[i].scalar_type() == type && saved[i].device() == row.device(),
                "stretto: ", variant(), ": [R14] the row ", i, " of 'saved' has shape ", saved[i].sizes(), " and type ",
                saved[i].scalar_type(), " on ", saved[i].device(), ", expected ", sizes, ", ", type, " and ",
                row.device());
  }
}

std::vector<at::Tensor> TorchOperator::gradient(Arguments arguments, const std::vector<bool> &wanted,
                                                const std::vector<OptionalTensor> &cotangents, const Kept &kept,
                                                const std::vector<OptionalTensor> &places) const {
  checkMemory(arguments);
  std::vector<at::Tensor> of = differentiated(variant(), arguments, wanted);
  if (of.empty())
    return {};
  arrange(arguments);
  const at::Tensor &row = firstRow(arguments);
  Lent lent(row.device());
  Call call(*this, arguments);
  int64_t batch = row.size(0), time = row.size(1);
  int64_t sequences = arguments.sequenceOffsets ? arguments.sequenceOffsets->size(0) - 1 : batch;
  size_t resultCount = this->resultCount(), entryCount = strettoSignatureStateCount(call.signature);
  TORCH_CHECK(cotangents.size() >= resultCount, "stretto: ", variant(), ": [R1] there are ", cotangents.size(),
              " cotangents, expected at least ", resultCount);

  // What is asked for, as the C interface has it. Without an initial state none of its entries is.
  auto isWanted = [&](size_t i) { return i < wanted.size() && wanted[i]; };
  Flags ofInputs(inputs.size(), isWanted);
  Flags ofEntries(entryCount, [&](size_t i) { return isWanted(inputs.size() + i); });
  Flags ofResults(resultCount, [&](size_t i) { return cotangents[i].has_value(); });
  Flags ofFinal(entryCount, [&](size_t i) {
    return resultCount + i < cotangents.size() && cotangents[resultCount + i].has_value();
  });
  StrettoGradientRequest asked = {ofInputs.data(), ofEntries.data(), ofResults.data(), !kept.saved.empty()};
  checkSaved(row, call.signature, kept.saved);
  if (arguments.hasWindows && strettoSignatureResumes(call.signature, &call.call, &asked, ofFinal.data()))
    return resumedGradient(arguments, call.signature, wanted, cotangents);
  if (const Parts *parts = partsOf(arguments, call.signature, /*ofGradient=*/true))
    if (auto division = parts->divide(arguments, wanted))
      return parts->gradient(arguments, *division, wanted, cotangents, kept);
  auto isReadable = [](const at::Tensor &row, const StrettoShape &shape) {
    return isReadableRow(row, shape.rank > 1 ? row.size(-1) : 1);
  };
  std::deque<at::Tensor> described; // they have to outlive the call
  auto describe = [&](at::Tensor tensor) { return describeTensor(described.emplace_back(std::move(tensor))); };
  std::vector<StrettoTensor> ofSaved;
  ofSaved.reserve(kept.saved.size());
  std::vector<StrettoShape> shapes = shapesOfSaved(call.signature);
  for (size_t i = 0; i < kept.saved.size(); ++i)
    ofSaved.push_back(describe(isReadable(kept.saved[i], shapes[i]) ? kept.saved[i] : kept.saved[i].contiguous()));
  StrettoGradient *gradient =
      checked(variant(), strettoSignatureGradient, call.signature, &call.call, &asked, lent.executor.threads);

  std::vector<StrettoTensor> resultCotangents, entryCotangents, rows, entries;
  for (size_t i = 0; i < resultCount; ++i) {
    if (!cotangents[i]) {
      resultCotangents.emplace_back();
      continue;
    }
    StrettoShape shape = strettoSignatureResult(call.signature, i);
    at::DimVector sizes = joined({batch, time}, shape);
    TORCH_CHECK(cotangents[i]->sizes() == sizes, "stretto: ", variant(), ": [R1] the cotangent of result ", i,
                " has shape ", cotangents[i]->sizes(), ", expected ", sizes);
    at::Tensor cotangent = cotangents[i]->to(row.options().dtype(scalarTypeOf(shape.element)));
    if (!isReadable(cotangent, shape))
      cotangent = cotangent.clone(at::MemoryFormat::Contiguous);
    resultCotangents.push_back(describe(std::move(cotangent)));
  }
  std::vector<at::Tensor> ofRows, entryParts;
  size_t rowCount = strettoGradientRowCount(gradient);
  std::vector<size_t> rowsOfInputs(inputs.size());
  for (size_t i = 0; i < rowCount; ++i)
    ++rowsOfInputs[strettoGradientRow(gradient, i).index];
  for (size_t i = 0; i < rowCount; ++i) {
    StrettoGradientPart part = strettoGradientRow(gradient, i);
    at::DimVector sizes = joined({batch, time}, part.shape);
    at::TensorOptions options = row.options().dtype(scalarTypeOf(part.shape.element));
    bool hasPlace = part.index < places.size() && places[part.index] && rowsOfInputs[part.index] == 1;
    if (hasPlace && places[part.index]->sizes() == sizes && places[part.index]->dtype() == options.dtype() &&
        isReadable(*places[part.index], part.shape))
      ofRows.push_back(*places[part.index]);
    else
      ofRows.push_back(allocate(sizes, options));
    rows.push_back(describe(ofRows.back()));
  }
  std::set<size_t> hasCotangent;
  for (size_t i = 0; i < strettoGradientEntryCount(gradient); ++i) {
    StrettoGradientPart part = strettoGradientEntry(gradient, i);
    at::TensorOptions options = row.options().dtype(scalarTypeOf(part.shape.element));
    // What nobody wants is carried from segment to segment all the same.
    entryParts.push_back(at::zeros(joined({sequences}, part.shape), options));
    entries.push_back(describe(entryParts.back()));
    OptionalTensor cotangent;
    bool isGiven = part.of == STRETTO_OF_STATE && resultCount + part.index < cotangents.size();
    if (isGiven && hasCotangent.insert(part.index).second)
      cotangent = cotangents[resultCount + part.index];
    int64_t axis = headAxis(call.signature, part);
    entryCotangents.push_back(cotangent ? describe(withFirstOfGroups(cotangent->to(options), axis, part.group))
                                        : StrettoTensor{});
  }
  // What was kept for another gradient than this one, which has other cotangents, is found anew.
  bool hasStates = false;
  if (const ChunkStates &states = kept.states; states.memory.defined()) {
    StrettoKeptStates taken = strettoGradientStates(gradient, &call.call);
    hasStates = taken.bytes == states.memory.numel() && taken.chunk == states.chunk &&
                states.memory.device() == row.device() && states.memory.is_contiguous();
  }
  at::Tensor workspace =
      allocate({strettoGradientWorkspace(gradient, &call.call, hasStates)}, row.options().dtype(at::kByte));
  StrettoGradientCall tensors = {resultCotangents.data(),
                                 entryCotangents.data(),
                                 rows.data(),
                                 entries.data(),
                                 ofSaved.empty() ? nullptr : ofSaved.data(),
                                 hasStates ? kept.states.memory.const_data_ptr() : nullptr,
                                 workspace.mutable_data_ptr()};
  checked(variant(), strettoGradientRun, gradient, &call.call, &tensors, &lent.executor);

  // What belongs together is added up.
  std::vector<at::Tensor> sums(inputs.size() + entryCount);
  auto addTo = [](at::Tensor &sum, const at::Tensor &part) { sum = sum.defined() ? sum + part : part; };
  for (size_t i = 0; i < ofRows.size(); ++i)
    addTo(sums[strettoGradientRow(gradient, i).index], ofRows[i]);
  for (size_t i = 0; i < entryParts.size(); ++i) {
    StrettoGradientPart part = strettoGradientEntry(gradient, i);
    if (!part.isWanted)
      continue;
    at::Tensor sum = sumOfGroups(entryParts[i], headAxis(call.signature, part), part.group);
    if (part.of == STRETTO_OF_PARAMETER)
      addTo(sums[part.index], sequences == 1 ? sum.squeeze(0) : sum.sum(0));
    else
      addTo(sums[inputs.size() + part.index], sum);
  }
  for (size_t i = 0; i < entryCount; ++i) {
    int64_t window = strettoSignatureState(call.signature, i).window;
    if (window >= 0 && wanted[window] && ofFinal[i])
      addTo(sums[window], fromFinalWindow(arguments, entryNames(arguments), *cotangents[resultCount + i]));
  }
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i])
      continue;
    const at::Tensor &like = of[gradients.size()];
    at::Tensor found = sums[i];
    // What tokens leave alone hands its cotangent on.
    if (i >= inputs.size() && !found.defined() && ofFinal[i - inputs.size()])
      found = *cotangents[resultCount + i - inputs.size()];
    gradients.push_back(found.defined() ? found.reshape(like.sizes()).to(like.options())
                                        : at::zeros(like.sizes(), like.options()));
  }
  return gradients;
}

std::vector<std::string> TorchOperator::entryNames(const Arguments &arguments) const {
  Call call(*this, arguments);
  size_t count = strettoSignatureStateCount(call.signature);
  std::vector<std::string> names;
  names.reserve(count);
  for (size_t i = 0; i < count; ++i)
    names.emplace_back(strettoSignatureState(call.signature, i).name);
  return names;
}

int64_t TorchOperator::headAxis(StrettoSignature *signature, const StrettoGradientPart &part) {
  // A tail has its rows before the heads.
  if (part.of != STRETTO_OF_STATE)
    return 1;
  StrettoShape entry = strettoSignatureState(signature, part.index);
  return entry.isTail ? 2 : 1;
}
