//===- Signature.cpp - What calls with the same kernels share -------------===//

#include "runtime/Signature.h"
#include "dialect/stretto/Windows.h"
#include "mlir/Parser/Parser.h"
#include "passes/declaration/ChunkSegments.h"
#include "passes/declaration/ChunkTransition.h"
#include "passes/declaration/KernelNames.h"
#include "passes/declaration/SaveRows.h"
#include "passes/declaration/Specialize.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Gradient.h"
#include "runtime/KeptStates.h"
#include "runtime/Knobs.h"
#include "runtime/OperatorImpl.h"
#include "runtime/Segments.h"
#include "runtime/WholeWalks.h"
#include "llvm/Support/FormatVariadic.h"
#include <numeric>

using namespace mlir;
using namespace stretto;

static llvm::Error error(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Why the matrices that feedback leaves do not fit the shared memory of a GPU beside the state that they multiply. In
/// 16 bits their operands are half as large.
static std::string problemOfTransitions(VariantOp program, ElementType element) {
  constexpr int64_t most = 128;
  if (bytesOf(element) == 2)
    return "";
  for (const auto &[name, size] : sizesOfTransitions(program))
    if (size > most)
      return llvm::formatv(
          "what feedback does to the state '{0}' is a matrix of {1} by {1} numbers of {2} bits, expected "
          "{3} by {3} at most",
          name, size, 8 * bytesOf(element), most);
  return "";
}

//===----------------------------------------------------------------------===//
// From a call
//===----------------------------------------------------------------------===//

/// The heads of a call up to a common factor, on which alone the code depends.
static std::map<std::string, int64_t> ratios(std::map<std::string, int64_t> heads) {
  int64_t divisor = 0;
  for (const auto &[set, count] : heads)
    divisor = std::gcd(divisor, count);
  for (auto &[set, count] : heads)
    count /= divisor;
  return heads;
}

/// Whether channels of a state have decays of their own which a block has no room for beside another one: then kernels
/// may expect rows to be in range, and leave what is not (runtime/ChooseRoles.cpp).
static bool hasWideDecays(VariantOp program) {
  constexpr int64_t mostOfTwoBlocks = int64_t{64} * 128;
  WalkResult result = program.walk([](DecayOp decay) {
    StateType state = decay.getType();
    return WalkResult(failure(decay.getAlong() && state.getFirstSize() * state.getSecondSize() > mostOfTwoBlocks));
  });
  return result.wasInterrupted();
}

/// Whether a program reads tables that have other numbers at every position.
static bool readsUnboundedTables(VariantOp program) {
  WalkResult result = program.walk(
      [](TableOp table) { return WalkResult(failure(table.variesOverTime() && !table.getWholePeriod())); });
  return result.wasInterrupted();
}

Operator::Signature::Signature(Operator &op, int device) : op(op), device(device) {}
Operator::Signature::~Signature() = default;

llvm::Expected<std::unique_ptr<Operator::Signature>> Operator::Signature::create(Operator &op, const OperatorCall &call,
                                                                                 int device) {
  std::unique_ptr<Signature> signature(new Signature(op, device));
  Implementation &impl = *op.implementation;
  llvm::Expected<unsigned> principal = checkTypes(op, call, impl.gates);
  if (!principal)
    return principal.takeError();
  KernelRequest &request = signature->request;
  request.element = *call.arguments[*principal]->type;
  request.part = call.isStep ? KernelRequest::Part::Step : KernelRequest::Part::Results;

  std::vector<ArgumentShape> shapes;
  std::optional<unsigned> row;
  for (auto [index, input, view] : llvm::enumerate(op.inputs(), call.arguments)) {
    if (!view)
      continue;
    shapes.push_back({input.name, SmallVector<int64_t, 4>(view->sizes)});
    if (!input.isParameter && !row)
      row = index;
    if (*view->type != request.element)
      request.others[input.name] = *view->type;
  }
  std::map<std::string, std::string> options;
  for (auto [option, text] : llvm::zip_equal(op.options(), call.options))
    if (!text.empty())
      options[option.name] = text;

  DiagnosticText diagnostics(&impl.context);
  FailureOr<CallSizes> bound = bindShapes(impl.variant, shapes, options, call.isStep);
  if (failed(bound))
    return diagnostics.takeError();
  FailureOr<Sizes> sizes = Sizes::get(impl.variant, bound->settings);
  if (failed(sizes))
    return diagnostics.takeError();
  OwningOpRef<ModuleOp> specialised = impl.module->clone();
  VariantOp program = *specialised->getOps<VariantOp>().begin();
  if (failed(specialize(program, bound->settings)))
    return diagnostics.takeError();

  signature->row = *row; // bound shapes have one
  for (const auto &[set, count] : bound->settings.heads)
    signature->heads = std::max(signature->heads, count);
  signature->decays = decayConditions(program);
  if (std::optional<SegmentProblem> problem = findSegmentProblem(program))
    signature->serialBecause = std::move(problem->reason);
  signature->feedsBack = stretto::feedsBack(program);
  if (device >= 0 && !call.isStep && bytesOf(request.element) == 2)
    signature->weightOfTurn = weightOfPlainTurn(program);
  if (!call.isStep && Knobs::instance().features.value_or(device >= 0))
    signature->features = chooseFeatureSplit(program);
  signature->mayLeave = device >= 0 && !call.isStep && request.element == ElementType::BF16 && hasWideDecays(program);
  if (device >= 0 && signature->serialBecause.empty())
    signature->serialBecause = problemOfTransitions(program, request.element);
  signature->describe(program, *sizes);
  request.settings = std::move(bound->settings);
  request.settings.heads = ratios(std::move(request.settings.heads));
  if (device < 0) {
    request.target = Target::host();
  } else {
    llvm::Expected<CudaDevice> found = CudaDevice::get(device);
    if (!found)
      return found.takeError();
    request.target = Target::cuda(found->capability);
    std::optional<std::vector<Window>> windows = deriveWindows(program);
    bool hasWindows = !windows || !windows->empty();
    request.continues = !call.initialState.empty() && (hasWindows || readsUnboundedTables(program));
    signature->multiprocessors = found->multiprocessors;
    signature->cacheBytes = found->cacheBytes;
    signature->deviceName = found->name;
  }
  return signature;
}

//===----------------------------------------------------------------------===//
// Results and state
//===----------------------------------------------------------------------===//

/// Of an entry [rows, heads(, width)].
static Operator::Signature::EntryStrides stridesOfRows(ArrayRef<int64_t> sizes) {
  int64_t width = sizes.size() == 3 ? sizes[2] : 1;
  return {.sequence = llvm::product_of(sizes), .head = width, .row = sizes[1] * width};
}

/// The position of an input of the operator; a specialised program lacks those that are absent.
unsigned Operator::Signature::inputOf(StringRef name) const {
  auto inputs = op.inputs();
  return llvm::find_if(inputs, [&](const Input &input) { return input.name == name; }) - inputs.begin();
}

ElementType Operator::Signature::typeOfArgument(VariantOp program, unsigned argument) const {
  auto other = request.others.find(program.getArgName(argument).str());
  return other == request.others.end() ? request.element : other->second;
}

/// Whether a row is computed with a parameter.
static bool dependsOnParameter(Value row) {
  SmallVector<Value> pending = {row};
  llvm::DenseSet<Value> seen;
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (isParam(value.getType()))
      return true;
    if (Operation *maker = value.getDefiningOp(); maker && seen.insert(value).second)
      llvm::append_range(pending, maker->getOperands());
  }
  return false;
}

/// A tail keeps raw rows in the type that their argument has in memory, and computed rows in that of arithmetic.
ElementType Operator::Signature::typeOfTail(const StateEntry &entry, VariantOp program) const {
  auto argument = dyn_cast<BlockArgument>(entry.operations.front()->getOperand(0));
  return argument ? typeOfArgument(program, argument.getArgNumber()) : accumulatorOf(request.element);
}

void Operator::Signature::describe(VariantOp program, const Sizes &sizes) {
  auto headsIn = [&](StringRef set) { return sizes.heads(set).value_or(1); };
  auto shapeOf = [&](Type type, ElementType element) {
    ResultShape result = {element, {headsIn(headsOf(type))}};
    llvm::append_range(result.sizes, cast<RankedTensorType>(type).getShape());
    return result;
  };
  for (Type type : program.getType().getResults())
    results.push_back(shapeOf(type, request.element));
  SavedRows saved = isStep() ? SavedRows() : findSavedRows(program);
  for (Value row : saved.rows)
    savedRows.push_back(shapeOf(row.getType(), accumulatorOf(request.element)));
  llvm::append_range(takenResults, saved.results);
  for (const StateEntry &entry : deriveState(program)) {
    bool isTail = entry.kind == StateEntry::Kind::Tail;
    carried.push_back(entry.kind);
    carriesStates |= entry.kind == StateEntry::Kind::Matrix;
    int64_t headCount = headsIn(entry.heads);
    EntryShape &shape = state.emplace_back();
    shape.name = entry.name;
    shape.isPosition = entry.kind == StateEntry::Kind::Position;
    shape.isTail = isTail;
    shape.isDelayed = llvm::any_of(program.getBlock()->getOps<ReadOp>(), [&](ReadOp read) {
      return read.getAt() && rootOf(read.getState()).getOperation() == entry.operations.front();
    });
    if (shape.isPosition)
      positionEntry = state.size() - 1;
    shape.type = isTail ? typeOfTail(entry, program) : accumulatorOf(request.element);
    llvm::append_range(shape.sizes, llvm::drop_begin(entry.shape(/*sequences=*/1, headCount)));
    stateStrides.push_back(stridesOf(entry, headCount));
  }
  std::optional<std::vector<Window>> windows = deriveWindows(program);
  looksBackWithoutBound = !windows;
  program.walk([&](PastOp past) { windowsMeetParameters |= dependsOnParameter(past.getOperand()); });
  for (const Window &window : windows.value_or(std::vector<Window>())) {
    auto row = cast<RankedTensorType>(program.getBody().getArgument(window.argument).getType());
    EntryShape &shape = state.emplace_back();
    shape.name = window.name;
    shape.isPosition = false;
    shape.isTail = true;
    shape.isDelayed = false;
    shape.window = inputOf(program.getArgName(window.argument));
    shape.type = typeOfArgument(program, window.argument);
    shape.sizes = {window.length, headsIn(headsOf(row))};
    llvm::append_range(shape.sizes, row.getShape());
    stateStrides.push_back(stridesOfRows(shape.sizes));
  }
}

Operator::Signature::EntryStrides Operator::Signature::stridesOf(const StateEntry &entry, int64_t headCount) {
  EntryStrides strides;
  strides.sequence = llvm::product_of(entry.shape(/*sequences=*/1, headCount));
  // Axes after the heads: those of a row, or both of a matrix.
  int64_t columns = entry.sizes.empty() ? 1 : entry.sizes.back();
  if (entry.kind == StateEntry::Kind::Tail) {
    strides.head = columns;
    strides.row = headCount * columns;
  } else {
    strides.head = strides.sequence / headCount;
    strides.row = entry.kind == StateEntry::Kind::Matrix ? columns : 1;
  }
  return strides;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Slices of the values for a call: fewer items than processors leave some idle. The time of a block hardly depends on
/// how many values it has, and blocks that wait for a multiprocessor would double it: no more blocks than those.
int64_t Operator::Signature::slicesFor(const OperatorCall &call, int64_t threads, int64_t segments) const {
  // Waking threads of a CPU costs more than a few tokens do.
  constexpr int64_t tokensWorthThreads = 16;
  int64_t parallel = std::max<int64_t>(items(call), 1) * segments;
  if (device < 0 && rowOf(call).sizes[0] * tokens(call) < tokensWorthThreads * sequences(call))
    return 1;
  if (device >= 0)
    return llvm::bit_floor<uint64_t>(std::max<int64_t>(multiprocessors / parallel, 1));
  return llvm::PowerOf2Ceil(llvm::divideCeil(threads, parallel));
}

llvm::Expected<Operator::Signature::Kernel *> Operator::Signature::kernelFor(const OperatorCall &call,
                                                                             int64_t threads) {
  return kernelFor(call, threads, choose(call, threads));
}

llvm::Expected<Operator::Signature::Kernel *> Operator::Signature::kernelFor(const OperatorCall &call, int64_t threads,
                                                                             const Choice &choice) {
  bool savesRows = savesRowsFor(call);
  llvm::Expected<Kernel *> kernel = kernelOf(choice.form, savesRows, keepsOf(call));
  if (kernel || !choice.tuned)
    return kernel;
  forget(call, threads, /*request=*/nullptr, llvm::toString(kernel.takeError()));
  return kernelOf(modelForm(call, threads, /*isOfGradient=*/false), savesRows, keepsOf(call));
}

llvm::Expected<Operator::Signature::Kernel *> Operator::Signature::kernelOf(const Form &form, bool savesRows,
                                                                            Keeps keeps) {
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = kernels.find({form, savesRows, keeps}); found != kernels.end())
    return found->second.get();
  std::vector<std::string> inputs, entries;
  for (const Input &input : op.inputs())
    inputs.push_back(input.name);
  for (const EntryShape &entry : state)
    entries.push_back(entry.name);
  KernelRequest asked = request;
  asked.take(form);
  asked.savesRows = savesRows;
  asked.keeps = keeps;
  if (solvesSystems())
    compileTogether(asked, {asked.part, KernelRequest::Part::Systems});
  else if (mayLeave && asked.ahead && asked.outputs)
    compileTogether(asked, asked.part);
  llvm::Expected<std::shared_ptr<CompiledKernel>> code = compile(asked);
  if (!code) {
    keepsInVain = keepsInVain || keeps != Keeps::Nothing;
    return code.takeError();
  }
  KernelRequest ofSystems = asked;
  ofSystems.part = KernelRequest::Part::Systems;
  ofSystems.keeps = Keeps::Nothing;
  llvm::Expected<Systems> systems = makeSystems(ofSystems, (*code)->manifest, {inputs, entries, {}, {}});
  if (!systems)
    return systems.takeError();
  for (const KeptRow &row : systems->inverses)
    inputs.push_back(row.name);
  KeptStates kept = KeptStates::of(*this, (*code)->manifest, keeps);
  llvm::Expected<std::unique_ptr<Kernel>> made = makeKernel(std::move(*code), {inputs, entries, kept.names(), {}});
  if (!made)
    return made.takeError();
  (*made)->systems = std::move(*systems);
  if ((*made)->code->manifest.expects) {
    llvm::Expected<std::shared_ptr<CompiledKernel>> ofLeft =
        compile(asked.ofLeft((*made)->code->manifest.chunk, (*made)->code->manifest.slices));
    if (!ofLeft)
      return ofLeft.takeError();
    if (llvm::Error error =
            makeKernel(std::move(*ofLeft), {inputs, entries, kept.names(), {}}).moveInto((*made)->ofLeft))
      return error;
  }
  if (keeps != Keeps::Nothing)
    (*made)->keeps = std::make_shared<const KeptStates>(std::move(kept));
  for (const EntryShape &entry : state)
    if (!entry.isPosition && llvm::none_of((*made)->code->manifest.arguments, [&](const Manifest::Argument &argument) {
          return argument.kind == Manifest::Kind::Window
                     ? argument.name == entry.name
                     : argument.kind == Manifest::Kind::State && argument.entry == entry.name;
        }))
      return error("internal: no kernel of " + op.name() + " carries the entry '" + entry.name + "' of its state");
  return kernels.emplace(std::tuple(form, savesRows, keeps), std::move(*made)).first->second.get();
}

llvm::Expected<Operator::Signature::Systems> Operator::Signature::makeSystems(const KernelRequest &request,
                                                                              const Manifest &taker,
                                                                              const ArgumentNames &names) const {
  Systems systems;
  bool takesInverses = llvm::any_of(taker.arguments, [](const Manifest::Argument &argument) {
    return argument.kind == Manifest::Kind::Input && StringRef(argument.name).starts_with(inversePrefix);
  });
  if (!takesInverses)
    return systems;
  llvm::Expected<std::shared_ptr<CompiledKernel>> code = compile(request);
  if (!code)
    return code.takeError();
  systems.inverses = KeptRow::of((*code)->manifest, heads);
  if (llvm::Error error = makeKernel(std::move(*code), names).moveInto(systems.kernel))
    return error;
  return systems;
}

int64_t Operator::Signature::Systems::bytes(const Signature &signature, const OperatorCall &call) const {
  int64_t tokens = signature.rowOf(call).sizes[0] * signature.rowOf(call).sizes[1], bytes = 0;
  for (const KeptRow &inverse : inverses)
    bytes += inverse.bytes(tokens);
  return bytes;
}

std::vector<KeptRow> KeptRow::of(const Manifest &manifest, int64_t heads, ArrayRef<std::string> names) {
  std::vector<KeptRow> rows;
  for (const Manifest::Argument &argument : manifest.arguments)
    if (argument.kind == Manifest::Kind::Output && !llvm::is_contained(names, argument.name))
      rows.push_back({argument.name, heads,
                      static_cast<int64_t>(llvm::product_of(argument.shape)) * argument.parts(manifest.slices),
                      argument.type});
  return rows;
}

std::optional<unsigned> stretto::positionIn(ArrayRef<std::string> names, StringRef name) {
  const auto *found = llvm::find(names, name);
  return found == names.end() ? std::nullopt : std::optional<unsigned>(found - names.begin());
}

llvm::Expected<std::shared_ptr<CompiledKernel>> Operator::Signature::compile(const KernelRequest &request) const {
  Implementation &impl = *op.implementation;
  std::lock_guard<std::mutex> context(impl.contextMutex);
  return compileKernel(impl.variant, request);
}

void Operator::Signature::compileTogether(KernelRequest request, ArrayRef<KernelRequest::Part> parts) const {
  std::vector<KernelRequest> requests;
  Keeps keeps = request.keeps;
  for (KernelRequest::Part part : parts) {
    request.part = part;
    bool findsResults = part == KernelRequest::Part::Results || part == KernelRequest::Part::Apart;
    request.keeps = findsResults ? keeps : Keeps::Nothing;
    requests.push_back(request);
    if (mayLeave && (part == KernelRequest::Part::Results || part == KernelRequest::Part::Apart))
      requests.push_back(request.ofLeft(Form::mostTokensOnGpu, request.slices));
  }
  compileAhead(declaration(), requests, device, [] { return true; });
}

/// Whether kernels compute a table, as they do where its positions are known on a device alone.
bool Operator::Signature::computes(chunk::TableOp table) const {
  return device >= 0 && (table.isPosition() || (request.continues && table.isUnbounded()));
}

llvm::Expected<std::unique_ptr<Operator::Signature::Kernel>>
Operator::Signature::makeKernel(std::shared_ptr<CompiledKernel> code, const ArgumentNames &names) const {
  Implementation &impl = *op.implementation;
  std::lock_guard<std::mutex> context(impl.contextMutex);
  auto kernel = std::make_unique<Kernel>();
  kernel->code = std::move(code);

  DiagnosticText diagnostics(&impl.context);
  kernel->tableModule = parseSourceString<ModuleOp>(kernel->code->tables, &impl.context);
  if (!kernel->tableModule)
    return diagnostics.takeError();
  for (const Manifest::Argument &argument : kernel->code->manifest.arguments) {
    std::optional<unsigned> position;
    switch (argument.kind) {
    case Manifest::Kind::Input:
      position = positionIn(names.inputs, argument.name);
      break;
    case Manifest::Kind::Parameter:
      position = positionIn(names.inputs, argument.entry.empty() ? argument.name : argument.entry);
      break;
    case Manifest::Kind::Checkpoint:
    case Manifest::Kind::Kept:
      position = positionIn(names.checkpoints, argument.name);
      break;
    case Manifest::Kind::Window:
      position = positionIn(names.entries, argument.name);
      break;
    case Manifest::Kind::State:
      position = positionIn(names.entries, argument.entry);
      break;
    case Manifest::Kind::Output:
      if (!names.results.empty()) {
        position = positionIn(names.results, argument.name);
        break;
      }
      position = llvm::count_if(kernel->code->manifest.arguments, [&](const Manifest::Argument &other) {
        return other.kind == Manifest::Kind::Output && &other < &argument;
      });
      break;
    case Manifest::Kind::Table: {
      position = kernel->tables.size();
      auto table = kernel->tableModule->lookupSymbol<chunk::TableOp>(argument.name);
      if (!table)
        return error("internal: the kernel's table '" + argument.name + "' is missing");
      auto headsOfTable = static_cast<int64_t>(llvm::divideCeil(heads, argument.group));
      int64_t width = argument.shape.empty() ? 1 : argument.shape.back();
      std::shared_ptr<PlacedTable> placed;
      if (!computes(table))
        placed = PlacedTable::of(table, headsOfTable, width, argument.type, device);
      kernel->tables.push_back({.op = table, .type = argument.type, .width = width, .placed = std::move(placed)});
      break;
    }
    }
    if (!position)
      return error("internal: the kernel's argument '" + argument.name + "' is nothing that a call has");
    kernel->positions.push_back(*position);
  }
  return kernel;
}
