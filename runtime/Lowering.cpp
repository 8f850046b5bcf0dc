//===- Lowering.cpp - From a program to code for a target -----------------===//

#include "runtime/Lowering.h"
#include "codegen/cpu/NativeCode.h"
#include "codegen/nvptx/Nvptx.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "passes/Pipelines.h"
#include "passes/declaration/KernelNames.h"
#include "passes/kernel/RegisterEstimate.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Dump.h"

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Images
//===----------------------------------------------------------------------===//

/// Each part follows its size and a line end.
std::string KernelImage::pack() const {
  std::string packed;
  for (const std::string &part : {manifest.toJson(), tables, code})
    packed += std::to_string(part.size()) + "\n" + part;
  return packed;
}

llvm::Expected<KernelImage> KernelImage::unpack(StringRef packed) {
  SmallVector<StringRef, 3> parts;
  while (!packed.empty()) {
    auto [digits, rest] = packed.split('\n');
    size_t size;
    if (digits.getAsInteger(10, size) || size > rest.size())
      return llvm::createStringError("the parts of the entry do not fit its size");
    parts.push_back(rest.take_front(size));
    packed = rest.drop_front(size);
  }
  if (parts.size() != 3)
    return llvm::createStringError("the entry has %zu parts, expected 3", parts.size());
  llvm::Expected<Manifest> manifest = Manifest::fromJson(parts[0]);
  if (!manifest)
    return manifest.takeError();
  return KernelImage{std::move(*manifest), parts[1].str(), parts[2].str()};
}

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

namespace {

/// A program on its way down. Each step returns the module at its stage, or what went wrong.
class Lowering {
public:
  Lowering(VariantOp program, const KernelRequest &request)
      : request(request), diagnostics(program.getContext()), module(ModuleOp::create(program.getLoc())),
        name(program.getSymName()), isOfGradient(program.getGradient()) {
    module->push_back(program->clone());
  }

  /// Takes the form that is asked for, or the one that suits the target: all its kernels, at the chunk level.
  llvm::Error chooseForm();
  /// Leaves of these the one that is asked for.
  llvm::Error keepPart();
  /// What the host has to know of the kernel at the chunk level.
  llvm::Expected<KernelImage> describe();
  llvm::Error toKernel();
  llvm::Error toLlvm();
  llvm::Expected<std::string> toCode();
  llvm::Expected<std::string> toAssembly();
  /// Adds to the description what the back end planned.
  llvm::Error completeManifest(Manifest &manifest);

  std::string text();

private:
  bool isCpu() const { return request.target.kind == Target::Kind::Cpu; }
  bool isStep() const { return request.part == KernelRequest::Part::Step; }
  KernelForm kernelForm() const {
    bool continues = isStep() || request.continues;
    return {.chip = request.target.name,
            .inPlace = isStep(),
            .computeTables = continues,
            .warps = warps,
            .fromStart = !continues};
  }
  cpu::Processor processor() const { return {request.target.name, request.target.features}; }
  llvm::Error run(ModuleOp target, llvm::function_ref<void(OpPassManager &)> addPasses);
  /// The step form, or the chunk form for so many tokens, its value axis divided as far as asked for and as the kernel
  /// allows.
  llvm::Expected<OwningOpRef<ModuleOp>> stepped(int64_t slices);
  llvm::Expected<OwningOpRef<ModuleOp>> chunked(int64_t tokens, int64_t slices);
  llvm::Expected<OwningOpRef<ModuleOp>> formed(PipelineOptions &options, int64_t slices);
  /// The form that is asked for, and no other.
  llvm::Error takeFixedForm();
  llvm::Error chooseForCpu();
  /// Takes the step form of what has no chunk form; `refusal` says why it has none.
  llvm::Error standIn(std::string refusal, llvm::function_ref<llvm::Error()> takeSteps);
  llvm::Error stepOnGpu();
  /// Whether the kernels could be divided as far as asked for, or half as far, and so on.
  bool divide(OwningOpRef<ModuleOp> &kernels, int64_t slices);
  void divideWalks();
  /// Divides wide matrices into panels, where those are what fits.
  llvm::Error takePanels(ModuleOp form);
  llvm::Error takeNeededPanels();
  int64_t tokensForCpu();
  static constexpr int64_t fewRegisters = 244; // of 255
  /// Whether walks of a divided gradient carry states and nothing else: those of what looks back, where a walk would
  /// meet other chunks in each of its own. Slices leave parts of rows, which are no rows that could be kept.
  bool carriesStatesAlone(int64_t slices);
  /// A chunk form for a GPU, its slices and the registers that it wants; or none that fits, and why.
  struct GpuForm {
    OwningOpRef<ModuleOp> module;
    int64_t slices = 1, warps = 0, registers = std::numeric_limits<int64_t>::max();
    std::string problem;
    /// The other registers hold offsets. In 16 bits a dozen numbers were seen to spill beyond, a few dozen in
    /// gradients, which may set tiles aside, and more where walks carry nothing but states; that is worth twice the
    /// tokens.
    int64_t limit = fewRegisters;
    bool suffices() const { return registers <= limit; }
    /// Whether more slices, each of which forms most products anew, would cost more than what spills.
    bool outdoesSlices() const { return registers <= limit + (limit == fewRegisters ? 0 : 12); }
  };
  /// The form of so many slices with the most tokens whose registers suffice, or that wants the fewest.
  llvm::Expected<GpuForm> fittingForm(int64_t slices);
  /// The slices that suffice, or else the fewest that fit.
  llvm::Expected<GpuForm> formOfFewestSlices();
  llvm::Error chooseForGpu();
  llvm::Error divideGradient(GpuForm &form);
  llvm::Expected<int64_t> registersOf(ModuleOp form, int64_t warpsOfForm, bool setTilesAside = false);
  /// The registers of a form, and of how many warps where the request leaves that open; 0: as many as suit it.
  struct Blocks {
    int64_t registers, warps;
  };
  llvm::Expected<Blocks> blocksOf(ModuleOp form);
  bool gainsFromFewWarps(ModuleOp form);
  LLVM::LLVMFuncOp function(StringRef symbol) { return module->lookupSymbol<LLVM::LLVMFuncOp>(symbol); }

  const KernelRequest &request;
  DiagnosticText diagnostics;
  OwningOpRef<ModuleOp> module;
  std::string name;              // of the program
  bool isOfGradient;             // the program is one
  std::string noChunkForm;       // why, where the step form stands in for it
  int64_t warps = request.warps; // of a block; 0: as many as suit it
  int64_t panels = 0;            // the columns of panels of matrices; 0: those are whole
  bool dividesGradients = false; // states of reverse time have a kernel of their own
};

} // namespace

llvm::Error Lowering::run(ModuleOp target, llvm::function_ref<void(OpPassManager &)> addPasses) {
  PassManager passes(target.getContext());
  addPasses(passes);
  if (failed(passes.run(target)))
    return diagnostics.takeError();
  return llvm::Error::success();
}

llvm::Error Lowering::chooseForm() {
  if (isStep())
    return isCpu() ? stepped(request.slices).moveInto(module) : stepOnGpu();
  if (request.chunk)
    return takeFixedForm();
  if (!isCpu()) {
    if (llvm::Error error = chooseForGpu())
      return error;
    divideWalks();
    return llvm::Error::success();
  }
  // Checkpoints of the gradient are to be few.
  dividesGradients = request.walks == 2;
  constexpr int64_t tokensOfGradient = 32;
  if (request.isOfGradient() || (isOfGradient && request.isOfSegments())) {
    if (llvm::Error error = chunked(tokensOfGradient, request.slices).moveInto(module))
      return error;
    divideWalks();
    return llvm::Error::success();
  }
  return request.isOfSegments() ? chunked(tokensForCpu(), request.slices).moveInto(module) : chooseForCpu();
}

llvm::Error Lowering::takeFixedForm() {
  dividesGradients = request.walks == 2;
  if (llvm::Error error = chunked(request.chunk, request.slices).moveInto(module))
    return error;
  int64_t slices = (*module->getOps<chunk::KernelOp>().begin()).getSlices();
  if (slices != request.slices)
    return llvm::createStringError("the values are divided into %lld slices, expected %lld", (long long)slices,
                                   (long long)request.slices);
  divideWalks();
  if (isCpu())
    return llvm::Error::success();
  // What does not fit says so when it is lowered.
  if (llvm::Expected<Blocks> blocks = blocksOf(*module))
    warps = blocks->warps;
  else
    llvm::consumeError(blocks.takeError());
  return llvm::Error::success();
}

llvm::Error Lowering::keepPart() {
  using Part = KernelRequest::Part;
  if (isStep())
    return llvm::Error::success();
  auto suffixOfPart = [&]() -> StringRef {
    switch (request.part) {
    case Part::Tails:
      return suffix::tails;
    case Part::Totals:
      return suffix::totals;
    case Part::TotalStarts:
      return suffix::totalStarts;
    case Part::Writes:
      return suffix::writes;
    case Part::Starts:
      return suffix::starts;
    case Part::SegmentStarts:
      return suffix::segmentStarts;
    case Part::Checkpoints:
      return suffix::checkpoints;
    case Part::Rows:
      return suffix::rows;
    case Part::Cotangents:
      return suffix::cotangents;
    case Part::CotangentWrites:
      return suffix::cotangentWrites;
    case Part::CotangentStarts:
      return suffix::cotangentStarts;
    case Part::CotangentTails:
      return suffix::cotangentTails;
    case Part::SumTurns:
      return suffix::sumTurns;
    case Part::Sums:
      return suffix::sums;
    case Part::Systems:
      return suffix::systems;
    default:
      return "";
    }
  };
  std::string asked = name + suffixOfPart().str();
  for (auto kernel : llvm::make_early_inc_range(module->getOps<chunk::KernelOp>()))
    if (kernel.getSymName() != asked)
      kernel.erase();
  if (module->getOps<chunk::KernelOp>().empty())
    return llvm::createStringError("there is no kernel '" + asked + "' in this form");
  return llvm::Error::success();
}

/// A core's caches hold the tiles of few tokens; the matrix instructions of a GPU want more. So does a look-back, in
/// which each token of a chunk meets each of another's, and a scan, whose total is rounded once a chunk.
int64_t Lowering::tokensForCpu() {
  WalkResult result = module->walk([](Operation *op) { return WalkResult(failure(isa<LookbackOp, ScanOp>(op))); });
  return result.wasInterrupted() ? 64 : 16;
}

bool Lowering::carriesStatesAlone(int64_t slices) {
  WalkResult result = module->walk([](LookbackOp) { return WalkResult::interrupt(); });
  return slices == 1 && result.wasInterrupted();
}

llvm::Error Lowering::chooseForCpu() {
  llvm::Expected<OwningOpRef<ModuleOp>> chunks = chunked(tokensForCpu(), request.slices);
  if (chunks)
    return std::move(chunks).moveInto(module);
  return standIn(llvm::toString(chunks.takeError()), [&] { return stepped(request.slices).moveInto(module); });
}

/// What has no chunk form runs token by token.
llvm::Error Lowering::standIn(std::string refusal, llvm::function_ref<llvm::Error()> takeSteps) {
  StringRef reason = StringRef(refusal).split("no chunk form: ").second;
  if (reason.empty() || request.isOfSegments())
    return llvm::createStringError(refusal);
  if (llvm::Error error = takeSteps()) {
    llvm::consumeError(std::move(error));
    return llvm::createStringError(refusal);
  }
  noChunkForm = reason;
  return llvm::Error::success();
}

llvm::Expected<OwningOpRef<ModuleOp>> Lowering::stepped(int64_t slices) {
  PipelineOptions options;
  options.step = true;
  return formed(options, slices);
}

llvm::Expected<OwningOpRef<ModuleOp>> Lowering::chunked(int64_t tokens, int64_t slices) {
  PipelineOptions options;
  options.chunk = tokens;
  options.divideGradients = dividesGradients;
  options.independentChunks = carriesStatesAlone(slices);
  options.segments = request.isOfSegments();
  return formed(options, slices);
}

llvm::Expected<OwningOpRef<ModuleOp>> Lowering::formed(PipelineOptions &options, int64_t slices) {
  options.element = nameOf(request.element).str();
  for (const auto &[name, type] : request.others)
    options.elements.push_back((name + "=" + nameOf(type)).str());
  OwningOpRef<ModuleOp> kernels = module->clone();
  if (llvm::Error error = run(*kernels, [&](OpPassManager &passes) { buildPipeline(passes, options, Level::Chunk); }))
    return error;
  divide(kernels, slices);
  // Products of 16-bit operands take a matrix few instructions; fp32 has none of those.
  if (!isCpu() && !options.step && bytesOf(request.element) == 2)
    if (llvm::Error error = run(*kernels, [](OpPassManager &passes) {
          passes.addPass(createInvertSystems());
          passes.addPass(createCanonicalizerPass());
          passes.addPass(createCSEPass());
        }))
      return error;
  return kernels;
}

/// Whether the slices of a kernel's outputs are as wide as a vector of a CPU or a fragment of a matrix on a GPU.
static bool fillsVectors(chunk::KernelOp kernel) {
  constexpr int64_t width = 16;
  return llvm::all_of(kernel.getOutputs().getAsRange<chunk::OutputAttr>(), [&](chunk::OutputAttr output) {
    return !output.getSliced() || output.getType().getShape().back() >= width;
  });
}

bool Lowering::divide(OwningOpRef<ModuleOp> &kernels, int64_t slices) {
  for (; slices > 1; slices /= 2) {
    OwningOpRef<ModuleOp> divided = kernels->clone();
    llvm::Error error = run(*divided, [&](OpPassManager &passes) {
      passes.addPass(createSliceValues({slices}));
      passes.addPass(createCSEPass());
    });
    if (error) {
      llvm::consumeError(std::move(error));
      continue;
    }
    if (fillsVectors(*divided->getOps<chunk::KernelOp>().begin())) {
      kernels = std::move(divided);
      return true;
    }
  }
  return false;
}

/// Whether what a kernel leaves is whole, or divided among its slices, and no part of a sum.
static bool leavesNoParts(chunk::KernelOp kernel) {
  return llvm::none_of(kernel.getOutputs().getAsRange<chunk::OutputAttr>(),
                       [](chunk::OutputAttr output) { return output.getPartial(); }) &&
         llvm::none_of(kernel.getArguments().getAsRange<chunk::ArgumentAttr>(),
                       [](chunk::ArgumentAttr argument) { return argument.getPartial(); });
}

/// Divides walks that carry states and nothing else among slices, each of which has its columns of them: where heads
/// are few, what the chunks of such a walk wait for is each other.
void Lowering::divideWalks() {
  if (request.walkSlices == 1 || request.isOfSegments())
    return;
  for (auto kernel : llvm::make_early_inc_range(module->getOps<chunk::KernelOp>())) {
    bool isWalk = llvm::any_of(ArrayRef{suffix::segmentStarts, suffix::checkpoints, suffix::cotangents},
                               [&](StringRef part) { return kernel.getSymName() == name + part.str(); });
    if (!isWalk || kernel.getSlices() != 1)
      continue;
    OwningOpRef<ModuleOp> alone = module->clone();
    for (auto other : llvm::make_early_inc_range(alone->getOps<chunk::KernelOp>()))
      if (other.getSymName() != kernel.getSymName())
        other.erase();
    if (!divide(alone, request.walkSlices) || !leavesNoParts(*alone->getOps<chunk::KernelOp>().begin()))
      continue;
    (*alone->getOps<chunk::KernelOp>().begin())->moveBefore(kernel);
    kernel.erase();
  }
}

/// The registers that the kernels of a chunk form keep tiles and addresses in, the most of all; an error where one does
/// not fit shared memory.
llvm::Expected<int64_t> Lowering::registersOf(ModuleOp form, int64_t warpsOfForm, bool setTilesAside) {
  OwningOpRef<ModuleOp> planned = form.clone();
  KernelForm kernel = kernelForm();
  kernel.setTilesAside = setTilesAside;
  kernel.warps = warpsOfForm;
  llvm::Error error = run(*planned, [&](OpPassManager &passes) { buildKernelPipeline(passes, kernel); });
  if (error)
    return error;
  int64_t most = 0;
  for (kernel::FuncOp function : planned->getOps<kernel::FuncOp>())
    most = std::max(most, kernel::estimateRegisters(function));
  return most;
}

/// Whether a product adds to another with the same rows, as one with what rounding took from its matrix.
static bool isRestOfProduct(chunk::DotOp product) {
  auto addend = product.getAddend() ? product.getAddend().getDefiningOp<chunk::DotOp>() : chunk::DotOp();
  return addend && addend.getRight() == product.getRight();
}

/// Four warps form once what each four of eight would form for themselves: that is worth having half as many threads
/// for everything else where several products share operands, and nothing else takes long.
bool Lowering::gainsFromFewWarps(ModuleOp form) {
  constexpr int64_t severalProducts = 3, manyProducts = 7;
  if (isCpu() || isStep() || isOfGradient || bytesOf(request.element) != 2)
    return false;
  int64_t products = 0;
  WalkResult result = form.walk([&](chunk::KernelOp kernel) {
    if (kernel.argumentsOf(chunk::ArgumentKind::State).empty())
      return WalkResult::skip(); // what walks has most of the work
    return kernel.walk([&](Operation *op) {
      auto product = dyn_cast<chunk::DotOp>(op);
      products += (product && !isRestOfProduct(product)) || isa<chunk::DecayDotOp>(op) ? 1 : 0;
      auto scores = dyn_cast<chunk::DecayDotOp>(op);
      bool hasOwnDecays = scores && cast<RankedTensorType>(scores.getAmount().getType()).getRank() > 1;
      return WalkResult(failure(hasOwnDecays || isa<chunk::SolveOp, chunk::LookbackOp>(op)));
    });
  });
  return !result.wasInterrupted() && products >= severalProducts && products < manyProducts;
}

llvm::Expected<Lowering::Blocks> Lowering::blocksOf(ModuleOp form) {
  constexpr int64_t fewWarps = 4;
  llvm::Expected<int64_t> registers = registersOf(form, request.warps);
  if (!registers)
    return registers.takeError();
  if (request.warps == 0 && gainsFromFewWarps(form)) {
    if (llvm::Expected<int64_t> ofFew = registersOf(form, fewWarps); !ofFew)
      llvm::consumeError(ofFew.takeError());
    else if (*ofFew <= fewRegisters)
      return Blocks{*ofFew, fewWarps};
  }
  return Blocks{*registers, request.warps};
}

/// Whether walks solve systems of equations, one for each token, row after row: those of more tokens take longer than
/// what fewer barriers and products save.
static bool walksSolve(ModuleOp form) {
  return llvm::any_of(form.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return !kernel.argumentsOf(chunk::ArgumentKind::State).empty() && !kernel.getOps<chunk::SolveOp>().empty();
  });
}

llvm::Expected<Lowering::GpuForm> Lowering::fittingForm(int64_t slices) {
  constexpr int64_t fewestTokens = 16, mostOfSystem = 32, ofRest = 4;
  GpuForm best;
  if (bytesOf(request.element) == 2)
    best.limit = !isOfGradient ? 264 : dividesGradients && carriesStatesAlone(slices) ? 304 : 292;
  for (int64_t tokens = Form::mostTokensOnGpu; tokens >= fewestTokens; tokens /= 2) {
    llvm::Expected<OwningOpRef<ModuleOp>> form = chunked(tokens, slices);
    if (!form)
      return form.takeError();
    if (tokens > mostOfSystem && walksSolve(**form))
      continue;
    if (llvm::Error error = takePanels(**form))
      return error;
    best.slices = (*(*form)->getOps<chunk::KernelOp>().begin()).getSlices();
    llvm::Expected<Blocks> blocks = blocksOf(**form);
    if (!blocks) {
      best.problem = llvm::toString(blocks.takeError());
      continue;
    }
    if (blocks->registers < best.registers) {
      best.registers = blocks->registers;
      best.warps = blocks->warps;
      best.module = std::move(*form);
    }
    if (best.suffices())
      break;
    // Chunks that run side by side set tiles aside, of which a few registers remain.
    if (dividesGradients && best.module && bytesOf(request.element) == 2) {
      llvm::Expected<int64_t> beside = registersOf(*best.module, best.warps, /*setTilesAside=*/true);
      if (!beside)
        return beside.takeError();
      bool isSetAside = *beside < best.registers;
      if (isSetAside && *beside <= best.limit + ofRest) {
        best.registers = best.limit;
        break;
      }
    }
  }
  return best;
}

llvm::Expected<Lowering::GpuForm> Lowering::formOfFewestSlices() {
  GpuForm best;
  for (int64_t slices = request.slices;; slices *= 2) {
    llvm::Expected<GpuForm> form = fittingForm(slices);
    if (!form)
      return form.takeError();
    bool isLast = form->outdoesSlices() || form->slices < slices; // the kernel divides no further
    if (!best.module || form->outdoesSlices())
      best = std::move(*form);
    if (isLast)
      return best;
  }
}

llvm::Error Lowering::takePanels(ModuleOp form) {
  if (!panels)
    return llvm::Error::success();
  return run(form, [&](OpPassManager &passes) {
    passes.addNestedPass<chunk::KernelOp>(createDivideMatrices({panels}));
    passes.addPass(createCanonicalizerPass());
    passes.addPass(createCSEPass());
  });
}

/// Takes as many tokens in as few slices as the registers and the shared memory of a block allow. Where registers never
/// suffice, the fewest slices that fit: each computes anew much of what the others do. Where shared memory does not
/// hold the matrices that a product reads, it holds panels of them, as wide as can be. The kernels of a gradient agree,
/// whichever of them is asked for.
llvm::Error Lowering::chooseForGpu() {
  std::string problem;
  for (int64_t columns : {0, 128, 64, 32}) {
    panels = columns;
    llvm::Expected<GpuForm> form = formOfFewestSlices();
    if (!form && request.sideBySide && request.walks != 1) {
      // What one walk cannot have, a walk of states alone may.
      std::string refusal = llvm::toString(form.takeError());
      form = GpuForm();
      form->problem = refusal;
    }
    if (!form)
      return standIn(llvm::toString(form.takeError()), [&] { return stepOnGpu(); });
    if (llvm::Error error = divideGradient(*form))
      return error;
    if (form->module) {
      module = std::move(form->module);
      warps = form->warps;
      return llvm::Error::success();
    }
    problem = form->problem;
  }
  return llvm::createStringError(problem);
}

/// Whether a kernel that walks back asks for the states of a walk forward.
static bool readsStates(ModuleOp gradient) {
  return llvm::any_of(gradient.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return kernel.getReverse() && !kernel.argumentsOf(chunk::ArgumentKind::Checkpoint).empty();
  });
}

/// Takes the form of a gradient with a kernel for the states of reverse time where that is asked for, and, where it is
/// left open, where independent chunks gain from it: of enough tokens for matrix instructions, or of as many as one
/// walk whose registers do not suffice, and of states that the walk back would ask for in any case; of what looks back,
/// which meets other chunks in each walk, those of more tokens.
llvm::Error Lowering::divideGradient(GpuForm &form) {
  constexpr int64_t enoughTokens = 32;
  auto tokensOf = [](const GpuForm &form) -> int64_t {
    return form.module ? (*(*form.module).getOps<chunk::KernelOp>().begin()).getChunk() : 0;
  };
  bool looksBack = carriesStatesAlone(/*slices=*/1);
  bool isOpen =
      request.walks == 0 && bytesOf(request.element) == 2 && (looksBack || !form.module || readsStates(*form.module));
  // Segments side by side leave no multiprocessor idle: one walk moves least through memory.
  if (request.sideBySide && tokensOf(form) >= enoughTokens && form.suffices())
    isOpen = false;
  if (!isOfGradient || (request.walks != 2 && !isOpen))
    return llvm::Error::success();
  dividesGradients = true;
  llvm::Expected<GpuForm> divided = formOfFewestSlices();
  dividesGradients = false;
  if (!divided)
    return divided.takeError();
  int64_t fewest = looksBack ? tokensOf(form) + 1 : std::max(enoughTokens, tokensOf(form));
  bool gains = divided->suffices() && tokensOf(*divided) >= fewest;
  bool spillsLess =
      form.module && !form.suffices() && tokensOf(*divided) >= tokensOf(form) && divided->registers < form.registers;
  if (divided->module && (gains || spillsLess || request.walks == 2))
    form = std::move(*divided);
  return llvm::Error::success();
}

/// The entries of the states of a block.
static int64_t entriesOfStates(chunk::KernelOp kernel) {
  int64_t entries = 0;
  for (BlockArgument state : kernel.argumentsOf(chunk::ArgumentKind::State))
    entries += cast<RankedTensorType>(state.getType()).getNumElements();
  return entries;
}

/// Whether blocks of different slices store states of their own.
static bool dividesStates(chunk::KernelOp kernel) {
  return llvm::all_of(kernel.getArguments().getAsRange<chunk::ArgumentAttr>(), [](chunk::ArgumentAttr argument) {
    return argument.getKind() != chunk::ArgumentKind::State || argument.getSliced();
  });
}

/// Divides states until four warps hold them. One that all slices compute cannot be replaced where they read it.
llvm::Error Lowering::stepOnGpu() {
  constexpr int64_t enoughEntries = int64_t(4) * 32 * 64;
  for (int64_t slices = request.slices, before = 0;; slices *= 2) {
    llvm::Expected<OwningOpRef<ModuleOp>> form = stepped(slices);
    if (!form)
      return form.takeError();
    chunk::KernelOp kernel = *(*form)->getOps<chunk::KernelOp>().begin();
    int64_t divided = kernel.getSlices();
    if (isStep() && divided > 1 && !dividesStates(kernel)) {
      if (llvm::Error error = stepped(1).moveInto(module))
        return error;
      return takeNeededPanels();
    }
    bool isLast = divided == before || entriesOfStates(kernel) <= enoughEntries;
    before = divided;
    if (!isLast)
      continue;
    module = std::move(*form);
    return takeNeededPanels();
  }
}

/// Divides the wide matrices of steps, where shared memory does not hold them, into panels that are as wide as can be.
llvm::Error Lowering::takeNeededPanels() {
  for (int64_t columns : {0, 128, 64, 32}) {
    panels = columns;
    OwningOpRef<ModuleOp> form = module->clone();
    if (llvm::Error error = takePanels(*form))
      return error;
    llvm::Expected<int64_t> registers = registersOf(*form, request.warps);
    if (!registers) {
      llvm::consumeError(registers.takeError());
      continue;
    }
    module = std::move(form);
    break;
  }
  return llvm::Error::success(); // what still does not fit says so when it is lowered
}

llvm::Expected<KernelImage> Lowering::describe() {
  FailureOr<Manifest> manifest = Manifest::of(*module->getOps<chunk::KernelOp>().begin());
  if (failed(manifest))
    return diagnostics.takeError();
  manifest->noChunkForm = noChunkForm;
  OwningOpRef<ModuleOp> tables = ModuleOp::create(module->getLoc());
  for (auto table : module->getOps<chunk::TableOp>())
    tables->push_back(table->clone());
  std::string text;
  llvm::raw_string_ostream(text) << *tables;
  return KernelImage{std::move(*manifest), text, ""};
}

llvm::Error Lowering::toKernel() {
  return run(*module, [&](OpPassManager &passes) { buildKernelPipeline(passes, kernelForm()); });
}

llvm::Error Lowering::toLlvm() {
  llvm::Error error = run(*module, [&](OpPassManager &passes) {
    if (isCpu())
      cpu::buildPipeline(passes, processor().instructions());
    else
      buildThreadPipeline(passes);
  });
  // Tables are the host's.
  for (auto table : llvm::make_early_inc_range(module->getOps<chunk::TableOp>()))
    table.erase();
  return error;
}

llvm::Error Lowering::completeManifest(Manifest &manifest) {
  LLVM::LLVMFuncOp lowered = function(manifest.symbol);
  if (isCpu()) {
    manifest.scratchBytes = lowered->getAttrOfType<IntegerAttr>("stretto.scratch_bytes").getInt();
    manifest.independentChunks = lowered->hasAttr("stretto.independent_chunks");
    return llvm::Error::success();
  }
  llvm::Expected<Manifest> planned =
      Manifest::fromJson(lowered->getAttrOfType<StringAttr>(Manifest::attributeName).getValue());
  if (!planned)
    return planned.takeError();
  planned->noChunkForm = noChunkForm;
  manifest = std::move(*planned);
  return llvm::Error::success();
}

llvm::Expected<std::string> Lowering::toCode() {
  if (isCpu())
    return cpu::emitObject(*module, processor());
  FailureOr<std::string> ptx = translateToPtx(*module, request.target.name);
  if (failed(ptx))
    return diagnostics.takeError();
  return *ptx;
}

llvm::Expected<std::string> Lowering::toAssembly() {
  return isCpu() ? cpu::emitAssembly(*module, processor()) : toCode();
}

std::string Lowering::text() {
  std::string text;
  llvm::raw_string_ostream(text) << *module;
  return text;
}

//===----------------------------------------------------------------------===//
// All the way, and part of it
//===----------------------------------------------------------------------===//

llvm::Expected<KernelImage> stretto::generate(VariantOp program, const KernelRequest &request) {
  Dump dump(program.getSymName(), request.target.name);
  Lowering lowering(program, request);
  if (llvm::Error error = lowering.chooseForm())
    return error;
  if (llvm::Error error = lowering.keepPart())
    return error;
  dump.write("chunk.mlir", [&] { return lowering.text(); });
  llvm::Expected<KernelImage> image = lowering.describe();
  if (!image)
    return image.takeError();
  if (request.target.kind == Target::Kind::Cuda) {
    if (llvm::Error error = lowering.toKernel())
      return error;
    dump.write("kernel.mlir", [&] { return lowering.text(); });
  }
  if (llvm::Error error = lowering.toLlvm())
    return error;
  dump.write("llvm.mlir", [&] { return lowering.text(); });
  if (llvm::Error error = lowering.completeManifest(image->manifest))
    return error;
  if (llvm::Error error = lowering.toCode().moveInto(image->code))
    return error;
  dump.write(request.target.kind == Target::Kind::Cpu ? "o" : "ptx", [&] { return image->code; });
  return image;
}

llvm::Expected<std::string> stretto::lowerToText(VariantOp program, const KernelRequest &request, StringRef stage) {
  bool isCpu = request.target.kind == Target::Kind::Cpu;
  StringRef code = isCpu ? "asm" : "ptx";
  SmallVector<StringRef> stages =
      isCpu ? SmallVector<StringRef>{"chunk", "llvm", code} : SmallVector<StringRef>{"chunk", "kernel", "llvm", code};
  if (!llvm::is_contained(stages, stage))
    return llvm::createStringError("there is no stage '" + stage + "' on the way to " + request.target.name +
                                   "; the stages are stretto, " + llvm::join(stages, ", "));
  Lowering lowering(program, request);
  if (llvm::Error error = lowering.chooseForm())
    return error;
  if (stage == "chunk")
    return lowering.text();
  if (!isCpu)
    if (llvm::Error error = lowering.toKernel())
      return error;
  if (stage == "kernel")
    return lowering.text();
  if (llvm::Error error = lowering.toLlvm())
    return error;
  return stage == "llvm" ? lowering.text() : lowering.toAssembly();
}
