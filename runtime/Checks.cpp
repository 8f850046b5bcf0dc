//===- Checks.cpp - What is refused before anything runs ------------------===//

#include "runtime/Checks.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "passes/declaration/Features.h"
#include "llvm/ADT/StringExtras.h"
#include <atomic>

using namespace mlir;
using namespace stretto;
using llvm::Twine;

static llvm::Error refuse(const Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

static std::string spell(ArrayRef<int64_t> sizes) {
  return "[" + llvm::join(llvm::map_range(sizes, [](int64_t size) { return std::to_string(size); }), ", ") + "]";
}

//===----------------------------------------------------------------------===//
// Devices and types
//===----------------------------------------------------------------------===//

static std::string spellDevice(int device) { return device < 0 ? "the CPU" : "CUDA device " + std::to_string(device); }

static StringRef nameOfState(const OperatorCall &call) { return call.isStep ? "state" : "initial_state"; }

llvm::Expected<int> stretto::checkDevices(const Operator &op, const OperatorCall &call) {
  StringRef first;
  int device = -1;
  auto differs = [&](StringRef name, const TensorView &view) {
    if (first.empty()) {
      first = name;
      device = view.device;
    }
    return view.device != device;
  };
  auto refusal = [&](StringRef name, const TensorView &view) {
    return refuse("[R5] '" + name + "' is on " + spellDevice(view.device) + ", expected " + spellDevice(device) +
                  ", where '" + first + "' is");
  };
  for (auto [input, view] : llvm::zip_equal(op.inputs(), call.arguments))
    if (view && differs(input.name, *view))
      return refusal(input.name, *view);
  for (const TensorView &view : call.initialState)
    if (differs(nameOfState(call), view))
      return refusal(nameOfState(call), view);
  if (call.slots && differs("slots", *call.slots))
    return refusal("slots", *call.slots);
  if (call.sequenceOffsets && differs("cu_seqlens", *call.sequenceOffsets))
    return refusal("cu_seqlens", *call.sequenceOffsets);
  return device;
}

llvm::SmallBitVector stretto::findGates(VariantOp variant) {
  llvm::SmallBitVector gates(variant.getType().getNumInputs());
  for (auto [index, type] : llvm::enumerate(variant.getType().getInputs()))
    gates[index] = isParam(type) || axisOf(type).empty() ||
                   variant.getArgAttrDict(static_cast<unsigned>(index)).contains(gateAttribute);

  SmallVector<Value> pending;
  variant.getBody().walk([&](Operation *op) {
    if (auto decay = dyn_cast<DecayOp>(op))
      pending.push_back(decay.getAmount());
    else if (auto scan = dyn_cast<ScanOp>(op))
      llvm::append_range(pending, scan->getOperands());
  });
  llvm::SmallDenseSet<Value> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (!seen.insert(value).second)
      continue;
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      if (isa<VariantOp>(argument.getOwner()->getParentOp()))
        gates.set(argument.getArgNumber());
    } else if (!isa<ReadOp, LookbackOp>(value.getDefiningOp())) {
      llvm::append_range(pending, value.getDefiningOp()->getOperands());
      // Alternatives that are not decided yield from within.
      if (auto alternative = dyn_cast<scf::IfOp>(value.getDefiningOp()))
        for (Region &region : alternative->getRegions())
          if (!region.empty())
            llvm::append_range(pending, region.front().getTerminator()->getOperands());
    }
  }
  return gates;
}

llvm::Expected<unsigned> stretto::checkTypes(const Operator &op, const OperatorCall &call,
                                             const llvm::SmallBitVector &gates) {
  std::optional<unsigned> principal;
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view)
      continue;
    if (!view->type)
      return refuse("[R4] '" + input.name + "' has entries of type " + view->typeName +
                    ", expected float16, bfloat16, float32 or float64");
    if (*view->type == ElementType::F64 && view->device >= 0)
      return refuse("[R4] '" + input.name +
                    "' has entries of type float64, which is for the CPU only; expected "
                    "float16, bfloat16 or float32");
    if (!principal && !gates[index])
      principal = index;
  }
  if (!principal)
    for (auto [index, view] : llvm::enumerate(call.arguments))
      if (view && !principal)
        principal = index;
  const TensorView &first = *call.arguments[*principal];
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view || view->type == first.type)
      continue;
    bool mayBeWide = gates[index] && *first.type != ElementType::F64;
    if (!mayBeWide || *view->type != ElementType::F32)
      return refuse("[R4] '" + input.name + "' has entries of type " + view->typeName + ", expected " + first.typeName +
                    " as '" + op.inputs()[*principal].name + "' has" + (mayBeWide ? ", or float32" : ""));
  }
  return *principal;
}

//===----------------------------------------------------------------------===//
// Packing and states
//===----------------------------------------------------------------------===//

llvm::Error stretto::checkPacking(const OperatorCall &call, int64_t batch) {
  if (!call.sequenceOffsets)
    return llvm::Error::success();
  ArrayRef<int64_t> sizes = call.sequenceOffsets->sizes;
  if (sizes.size() != 1 || sizes[0] < 1)
    return refuse("[R7] 'cu_seqlens' has shape " + spell(sizes) + ", expected [sequences + 1]");
  if (call.sequenceOffsets->typeName != "int64")
    return refuse("[R7] 'cu_seqlens' has entries of type " + call.sequenceOffsets->typeName +
                  ", expected int32 or int64");
  if (batch != 1)
    return refuse("[R7] 'cu_seqlens' is given with B = " + Twine(batch) + ", expected B = 1");
  return llvm::Error::success();
}

llvm::Error stretto::checkInitialState(const Operator::Signature &signature, const OperatorCall &call) {
  if (call.initialState.empty() && !call.isStep)
    return llvm::Error::success();
  if (call.initialState.size() != signature.state.size())
    return refuse("[R6] '" + nameOfState(call) + "' has " + Twine(call.initialState.size()) + " tensors, expected " +
                  Twine(signature.state.size()));
  int64_t sequences = signature.stateRows(call);
  for (auto [view, entry] : llvm::zip_equal(call.initialState, signature.state)) {
    SmallVector<int64_t> expected = {sequences};
    llvm::append_range(expected, entry.sizes);
    StringRef type = entry.isPosition ? "int64" : spellType(entry.type);
    StringRef id = call.sequenceOffsets && !view.sizes.empty() && view.sizes[0] != sequences ? "R7" : "R6";
    if (view.typeName != type || view.sizes != ArrayRef(expected))
      return refuse("[" + id + "] '" + entry.name + "' of '" + nameOfState(call) + "' is " + view.typeName +
                    spell(view.sizes) + ", expected " + type + spell(expected));
  }
  return llvm::Error::success();
}

llvm::Error stretto::checkSlots(const Operator::Signature &signature, const OperatorCall &call) {
  if (!call.slots)
    return llvm::Error::success();
  if (call.slots->typeName != "int64")
    return refuse("[R7] 'slots' has entries of type " + call.slots->typeName + ", expected int32 or int64");
  if (int64_t sequences = signature.sequences(call); call.slots->sizes != ArrayRef(sequences))
    return refuse("[R7] 'slots' has shape " + spell(call.slots->sizes) + ", expected " + spell(ArrayRef(sequences)));
  return llvm::Error::success();
}

//===----------------------------------------------------------------------===//
// Contents
//===----------------------------------------------------------------------===//

/// Whether numbers in memory are of the wrong sign; a NaN is not, it shows in the result.
template <typename Wrong, typename Number> static bool anyWrong(const Number *numbers, int64_t count, Wrong wrong) {
  bool found = false;
#pragma clang loop vectorize(enable)
  for (int64_t i = 0; i < count; ++i)
    found |= wrong(numbers[i]);
  return found;
}

static bool anyOfSign(const char *numbers, ElementType type, int64_t count, bool positive) {
  auto floating = [&](auto *typed) {
    using Number = std::remove_cvref_t<decltype(*typed)>;
    return positive ? anyWrong(typed, count, [](Number x) { return x > 0; })
                    : anyWrong(typed, count, [](Number x) { return x < 0; });
  };
  // Numbers of 16 bits are compared as integers: those of one sign are in the order of their bits, up to infinity.
  auto half = [&](uint16_t infinity) {
    auto *typed = reinterpret_cast<const uint16_t *>(numbers);
    uint16_t zero = positive ? 0 : 0x8000;
    return anyWrong(typed, count, [=](uint16_t bits) { return uint16_t(bits - zero - 1) < infinity; });
  };
  switch (type) {
  case ElementType::F16:
    return half(0x7c00);
  case ElementType::BF16:
    return half(0x7f80);
  case ElementType::F32:
    return floating(reinterpret_cast<const float *>(numbers));
  case ElementType::F64:
    return floating(reinterpret_cast<const double *>(numbers));
  }
  llvm_unreachable("covered switch");
}

/// Whether any entry of a view is of a sign, looked for on several threads.
static bool anyOfSign(const TensorView &view, bool positive, ParallelFor parallelFor) {
  // Axes that lie one behind the other in memory are one; the first has stride 1.
  SmallVector<int64_t, 4> sizes = {1}, strides = {1};
  for (auto [size, stride] : llvm::reverse(llvm::zip_equal(view.sizes, view.strides))) {
    if (size == 0)
      return false;
    if (size == 1)
      continue;
    if (stride == sizes.back() * strides.back()) {
      sizes.back() *= size;
    } else {
      sizes.push_back(size);
      strides.push_back(stride);
    }
  }
  constexpr int64_t pieceSize = 1 << 14;
  int64_t bytes = bytesOf(*view.type), run = sizes[0], pieces = llvm::divideCeil(run, pieceSize), rows = 1;
  for (int64_t size : ArrayRef(sizes).drop_front())
    rows *= size;
  std::atomic<bool> found = false;
  parallelFor(rows * pieces, [&](int64_t begin, int64_t end) {
    for (int64_t index = begin; index < end && !found.load(std::memory_order_relaxed); ++index) {
      int64_t first = index % pieces * pieceSize, offset = first, rest = index / pieces;
      for (auto [size, stride] : llvm::drop_begin(llvm::zip_equal(sizes, strides))) {
        offset += rest % size * stride;
        rest /= size;
      }
      const char *numbers = static_cast<const char *>(view.data) + offset * bytes;
      if (anyOfSign(numbers, *view.type, std::min(pieceSize, run - first), positive))
        found.store(true, std::memory_order_relaxed);
    }
  });
  return found;
}

static llvm::Error checkOffsets(const TensorView &view, int64_t tokens) {
  auto offsets = static_cast<const int64_t *>(view.data);
  int64_t count = view.sizes[0], stride = view.strides[0];
  if (offsets[0] != 0)
    return refuse("[R7] 'cu_seqlens' starts at " + Twine(offsets[0]) + ", expected 0");
  for (int64_t n = 1; n < count; ++n)
    if (int64_t before = offsets[(n - 1) * stride], here = offsets[n * stride]; here < before)
      return refuse("[R7] 'cu_seqlens' falls from " + Twine(before) + " to " + Twine(here) + " at index " + Twine(n) +
                    ", expected offsets that never fall");
  if (int64_t last = offsets[(count - 1) * stride]; last != tokens)
    return refuse("[R7] 'cu_seqlens' ends at " + Twine(last) + ", expected the number of tokens, " + Twine(tokens));
  return llvm::Error::success();
}

/// Sequences have rows of their own.
static llvm::Error checkSlotNumbers(ArrayRef<int64_t> slots, int64_t rows) {
  llvm::SmallDenseMap<int64_t, size_t, 64> owners;
  for (auto [sequence, slot] : llvm::enumerate(slots)) {
    if (slot < -1 || slot >= rows)
      return refuse("[R13] 'slots' is " + Twine(slot) + " for sequence " + Twine(sequence) + ", expected -1 or 0 to " +
                    Twine(rows - 1));
    if (slot < 0)
      continue;
    if (auto [owner, isNew] = owners.try_emplace(slot, sequence); !isNew)
      return refuse("[R13] 'slots' is " + Twine(slot) + " for the sequences " + Twine(owner->second) + " and " +
                    Twine(sequence) + ", expected a slot of its own for each");
  }
  return llvm::Error::success();
}

static llvm::Error checkPositions(ArrayRef<int64_t> positions, StringRef state, StringRef entry) {
  constexpr int64_t maximum = int64_t(1) << 24; // above, two positions may be one number of fp32
  for (auto [sequence, position] : llvm::enumerate(positions))
    if (position < 0 || position > maximum)
      return refuse("[R6] '" + entry + "' of '" + state + "' is " + Twine(position) + " for sequence " +
                    Twine(sequence) + ", expected 0 to " + Twine(maximum));
  return llvm::Error::success();
}

llvm::Error Operator::checkContents(const Signature &signature, const OperatorCall &call, ParallelFor parallelFor) {
  if (call.sequenceOffsets)
    if (llvm::Error error = checkOffsets(*call.sequenceOffsets, signature.rowOf(call).sizes[1]))
      return error;
  if (call.slots) {
    ArrayRef<int64_t> slots(static_cast<const int64_t *>(call.slots->data), call.slots->sizes[0]);
    if (llvm::Error error = checkSlotNumbers(slots, signature.stateRows(call)))
      return error;
  }
  if (const int64_t *positions = signature.positions(call)) {
    StringRef entry = signature.state[*signature.positionEntry].name;
    if (llvm::Error error = checkPositions(ArrayRef(positions, signature.stateRows(call)), nameOfState(call), entry))
      return error;
  }
  for (auto [argument, sign] : signature.decays.conditions) {
    bool positive = sign == Sign::NonPositive;
    if (anyOfSign(*call.arguments[argument], positive, parallelFor))
      return refuse("[R13] '" + signature.op.inputs()[argument].name + "' has an entry " +
                    (positive ? "above 0, expected a logarithm of a decay: at most 0 everywhere"
                              : "below 0, expected at least 0 everywhere: the state would grow"));
  }
  return llvm::Error::success();
}
