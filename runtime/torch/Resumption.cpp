//===- Resumption.cpp - Gradients that windows have a part in -------------===//
//
// The gradient of a call that continues from windows is that of one longer call: on the tokens that the windows hold,
// which ask for nothing, and its own after them (stretto-resume). The sequences lie one after another. Windows are
// rings: the row of a token is its position modulo their rows.
//
//===----------------------------------------------------------------------===//

#include "runtime/torch/TorchOperator.h"
#include <algorithm>

using namespace stretto::torch_layer;

namespace {

/// The tokens of sequences that lie one after another.
struct Tokens {
  explicit Tokens(const at::Tensor &lengths)
      : lengths(lengths), starts(lengths.cumsum(0) - lengths), sequence(at::repeat_interleave(lengths)),
        offset(at::arange(sequence.size(0), lengths.options()) - starts.index_select(0, sequence)) {}

  /// What each token has of a number of each sequence.
  at::Tensor ofSequence(const at::Tensor &numbers) const { return numbers.index_select(0, sequence); }
  int64_t count() const { return sequence.size(0); }

  at::Tensor lengths, starts;
  at::Tensor sequence, offset; // of each token: its sequence, and how many of it lie before
};

/// The position of the first token of each sequence, 0 without a state.
at::Tensor firstPositions(const Arguments &arguments, const std::vector<std::string> &entries,
                          const at::Tensor &lengths) {
  if (arguments.initialState.empty())
    return at::zeros_like(lengths);
  return arguments.initialState[std::find(entries.begin(), entries.end(), "position") - entries.begin()];
}

at::Tensor lengthsOf(const Arguments &arguments, const at::Tensor &row) {
  return arguments.sequenceOffsets ? arguments.sequenceOffsets->diff()
                                   : at::full({row.size(0)}, row.size(1), row.options().dtype(at::kLong));
}

/// Rows of the result are those of the operand that are counted, and 0 where the condition does not hold.
at::Tensor gather(const at::Tensor &rows, const at::Tensor &index, const at::Tensor &condition) {
  std::vector<int64_t> sizes(rows.dim(), 1);
  sizes[0] = index.size(0);
  if (rows.size(0) == 0) {
    std::vector<int64_t> all = rows.sizes().vec();
    all[0] = index.size(0);
    return at::zeros(all, rows.options());
  }
  at::Tensor found = rows.index_select(0, index.clamp(0, rows.size(0) - 1));
  return at::where(condition.view(sizes), found, at::zeros({}, rows.options()));
}

/// The name without what makes it one of several.
std::string stem(const std::string &entry) { return entry.substr(0, entry.find('.')); }

} // namespace

at::Tensor TorchOperator::fromFinalWindow(const Arguments &arguments, const std::vector<std::string> &entries,
                                          const at::Tensor &cotangent) const {
  const at::Tensor &row = firstRow(arguments);
  Tokens tokens(lengthsOf(arguments, row));
  int64_t length = cotangent.size(1);
  at::Tensor position = tokens.ofSequence(firstPositions(arguments, entries, tokens.lengths)) + tokens.offset;
  at::Tensor isLast = tokens.offset >= tokens.ofSequence(tokens.lengths) - length;
  at::Tensor found = gather(cotangent.flatten(0, 1), tokens.sequence * length + position.remainder(length), isLast);
  return found.unflatten(0, {row.size(0), row.size(1)});
}

const TorchOperator &TorchOperator::resumed(StrettoSignature *signature) const {
  std::lock_guard<std::mutex> lock(mutex);
  std::unique_ptr<TorchOperator> &longer = resumedOperators[signature];
  if (!longer) {
    char *text = checked(variant(), strettoSignatureResumed, signature);
    std::string module = text;
    strettoStringDestroy(text);
    longer = std::make_unique<TorchOperator>(module);
  }
  return *longer;
}

std::vector<at::Tensor> TorchOperator::resumedGradient(const Arguments &arguments, StrettoSignature *signature,
                                                       const std::vector<bool> &wanted,
                                                       const std::vector<OptionalTensor> &cotangents) const {
  const TorchOperator &longer = resumed(signature);
  const at::Tensor &row = firstRow(arguments);
  size_t resultCount = this->resultCount(), entryCount = strettoSignatureStateCount(signature);
  std::vector<std::string> entries;
  std::vector<int64_t> windowOf(inputs.size(), -1); // the entry that holds tokens of an input
  std::vector<size_t> tails;                        // entries whose rows the longer call has behind all other rows
  int64_t length = 0;
  for (size_t i = 0; i < entryCount; ++i) {
    StrettoShape shape = strettoSignatureState(signature, i);
    entries.emplace_back(shape.name);
    if (shape.window >= 0) {
      windowOf[shape.window] = static_cast<int64_t>(i);
      length = shape.sizes[0];
    } else if (shape.isTail) {
      tails.push_back(i);
    }
  }
  bool continues = !arguments.initialState.empty();

  // The tokens of the call, and those of the longer one.
  Tokens own(lengthsOf(arguments, row));
  at::Tensor first = firstPositions(arguments, entries, own.lengths);
  at::Tensor before = continues ? first.clamp_max(length) : first;
  Tokens all(before + own.lengths);
  at::Tensor isOwn = all.offset >= all.ofSequence(before);
  at::Tensor ownIndex = all.ofSequence(own.starts) + all.offset - all.ofSequence(before);
  at::Tensor slot = (all.ofSequence(first - before) + all.offset).remainder(length);
  at::Tensor windowIndex = all.sequence * length + slot;
  at::Tensor always = at::ones_like(isOwn);
  auto lengthen = [&](const at::Tensor &tensor, int64_t window) {
    at::Tensor rows = tensor.flatten(0, 1);
    if (window < 0 || !continues) // any number is as good as another
      return gather(rows, at::where(isOwn, ownIndex, all.ofSequence(own.starts)), always).unsqueeze(0);
    at::Tensor index = at::where(isOwn, ownIndex, windowIndex + own.count());
    return gather(at::cat({rows, arguments.initialState[window].flatten(0, 1)}), index, always).unsqueeze(0);
  };

  Arguments call;
  call.hasWindows = false;
  call.sequenceOffsets = at::cat({at::zeros({1}, all.lengths.options()), all.lengths.cumsum(0)});
  call.options.resize(longer.options.size());
  at::TensorOptions wide = row.options().dtype(row.scalar_type() == at::kDouble ? at::kDouble : at::kFloat);
  std::vector<size_t> inputOf; // of the longer call, which has two more rows and none that is absent
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (!arguments.inputs[i])
      continue;
    inputOf.push_back(i);
    call.inputs.emplace_back(inputs[i].isParameter ? *arguments.inputs[i]
                                                   : lengthen(*arguments.inputs[i], windowOf[i]));
  }
  for (const at::Tensor &position : {first, first + own.lengths - 1})
    call.inputs.emplace_back(all.ofSequence(position).to(wide).view({1, all.count(), 1}));
  // A tail's rows: the latest are those of tokens of windows, the longer call begins with the others.
  // Rows have one type, that of computed ones is wider.
  at::TensorOptions narrow = wide;
  for (const OptionalTensor &input : arguments.inputs)
    if (input && input->element_size() == 2)
      narrow = input->options();
  at::Tensor sequences = at::arange(own.lengths.size(0), own.lengths.options()).unsqueeze(1);
  size_t inputsBeforeTails = call.inputs.size();
  for (size_t tail : tails) {
    StrettoShape shape = strettoSignatureState(signature, tail);
    std::vector<int64_t> sizes(shape.sizes, shape.sizes + shape.rank);
    sizes.insert(sizes.begin(), own.lengths.size(0));
    at::Tensor rows = (continues ? arguments.initialState[tail] : at::zeros(sizes, wide)).flatten(0, 1);
    at::Tensor age = all.ofSequence(before) - all.offset;
    call.inputs.emplace_back(
        gather(rows.to(narrow), all.sequence * sizes[1] + sizes[1] - age, ~isOwn & (age <= sizes[1])).unsqueeze(0));
  }
  std::vector<bool> wantedOfCall;
  for (size_t i : inputOf) {
    bool isOfWindow = continues && windowOf[i] >= 0 && wanted[inputs.size() + windowOf[i]];
    wantedOfCall.push_back(wanted[i] || isOfWindow);
  }
  wantedOfCall.resize(inputsBeforeTails, false);
  for (size_t tail : tails)
    wantedOfCall.push_back(continues && wanted[inputs.size() + tail]);

  std::vector<OptionalTensor> cotangentsOfCall;
  cotangentsOfCall.reserve(cotangents.size());
  for (size_t i = 0; i < resultCount; ++i)
    cotangentsOfCall.push_back(cotangents[i]
                                   ? OptionalTensor(gather(cotangents[i]->flatten(0, 1), ownIndex, isOwn).unsqueeze(0))
                                   : OptionalTensor());
  std::vector<std::string> entriesOfCall = longer.entryNames(call);
  std::vector<at::Tensor> state;
  for (const std::string &name : entriesOfCall) {
    size_t entry = std::find(entries.begin(), entries.end(), stem(name)) - entries.begin();
    bool isKnown = entry < entryCount,
         isFinal = isKnown && name == entries[entry] && resultCount + entry < cotangents.size();
    cotangentsOfCall.push_back(isFinal ? cotangents[resultCount + entry] : OptionalTensor());
    bool isTail = isKnown && std::find(tails.begin(), tails.end(), entry) != tails.end();
    if (isTail && cotangentsOfCall.back()) // of rows that are chosen, which are computed
      cotangentsOfCall.back() = cotangentsOfCall.back()->to(wide);
    bool isState = isKnown && entries[entry] != "position" && strettoSignatureState(signature, entry).window < 0;
    if (!continues)
      continue;
    wantedOfCall.push_back(isState && wanted[inputs.size() + entry]);
    // A window that nothing has been put into has no numbers.
    if (!isKnown)
      state.push_back(at::empty({all.lengths.size(0), length, 1}, wide));
    else if (isTail) {
      const at::Tensor &tail = arguments.initialState[entry];
      at::Tensor slot = at::arange(tail.size(1), first.options()) - before.unsqueeze(1);
      at::Tensor index = (sequences * tail.size(1) + slot).flatten();
      state.push_back(gather(tail.flatten(0, 1), index, (slot >= 0).flatten()).view(tail.sizes()).to(wide));
    } else
      state.push_back(entries[entry] == "position" ? first - before : arguments.initialState[entry]);
  }
  call.initialState = std::move(state);
  std::vector<at::Tensor> found = longer.gradient(call, wantedOfCall, cotangentsOfCall);

  // What each input and entry of the call has of it.
  std::vector<at::Tensor> ofInputs(inputs.size()), ofEntries(entryCount), ofTails(entryCount);
  auto next = found.begin();
  for (size_t i = 0; i < wantedOfCall.size(); ++i) {
    if (!wantedOfCall[i])
      continue;
    if (i < inputOf.size()) {
      ofInputs[inputOf[i]] = *next++;
      continue;
    }
    if (i < call.inputs.size()) {
      ofTails[tails[i - inputsBeforeTails]] = *next++;
      continue;
    }
    std::string name = stem(entriesOfCall[i - call.inputs.size()]);
    at::Tensor &sum = ofEntries[std::find(entries.begin(), entries.end(), name) - entries.begin()];
    sum = sum.defined() ? sum + *next : *next;
    ++next;
  }
  at::Tensor ownPlace = own.ofSequence(all.starts + before) + own.offset;
  // The token of a slot is the last before the first of the call whose position it is.
  at::Tensor slots = at::arange(length, first.options());
  at::Tensor age = (first.unsqueeze(1) - 1 - slots).remainder(length) + 1;
  at::Tensor isHeld = (age <= before.unsqueeze(1)).flatten();
  at::Tensor windowPlace = ((all.starts + before).unsqueeze(1) - age).flatten();
  std::vector<at::Tensor> gradients;
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (!wanted[i])
      continue;
    if (i < inputs.size()) {
      const at::Tensor &gradient = ofInputs[i];
      gradients.push_back(
          inputs[i].isParameter
              ? gradient
              : gather(gradient[0], ownPlace, at::ones_like(ownPlace, at::kBool)).view(arguments.inputs[i]->sizes()));
      continue;
    }
    size_t entry = i - inputs.size();
    int64_t argument = strettoSignatureState(signature, entry).window;
    if (ofTails[entry].defined()) {
      const at::Tensor &tail = arguments.initialState[entry];
      at::Tensor slot = at::arange(tail.size(1), first.options()), age = tail.size(1) - slot;
      at::Tensor place = ((all.starts + before).unsqueeze(1) - age).flatten();
      at::Tensor later = slot + before.unsqueeze(1), index = (sequences * tail.size(1) + later).flatten();
      at::Tensor ofRows = gather(ofTails[entry][0], place, (age <= before.unsqueeze(1)).flatten());
      at::Tensor ofOthers = gather(ofEntries[entry].flatten(0, 1), index, (later < tail.size(1)).flatten());
      gradients.push_back((ofRows + ofOthers).to(tail.scalar_type()).view(tail.sizes()));
      continue;
    }
    gradients.push_back(
        argument < 0 ? ofEntries[entry]
                     : gather(ofInputs[argument][0], windowPlace, isHeld).view(arguments.initialState[entry].sizes()));
  }
  return gradients;
}
