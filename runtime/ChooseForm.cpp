//===- ChooseForm.cpp - The form of a kernel that suits its target --------===//

#include "dialect/kernel/Chip.h"
#include "dialect/stretto/StateChain.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "runtime/LoweringSteps.h"
#include "llvm/Support/SaveAndRestore.h"
#include <deque>
#include <mutex>

using namespace mlir;
using namespace stretto;

llvm::Error Lowering::chooseForm() {
  if (llvm::Error error = chooseShape())
    return error;
  // All kernels of a call are as one of them needs it.
  within = divideWithin(*module, kernelForm());
  return llvm::Error::success();
}

llvm::Error Lowering::chooseShape() {
  llvm::SaveAndRestore choosing(isChoosing, true);
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

/// What one kernel of a family has chosen for all, as text that each context reads for itself; or why it could not.
struct Lowering::ChosenForm {
  std::mutex mutex;
  bool isKnown = false;
  std::string kernels, noChunkForm, refusal;
  int64_t warps = 0, ahead = 0, outputs = 0;
  bool within = false;

  /// That of a family, of which the last few are kept: kernels of a family are compiled together.
  static std::shared_ptr<ChosenForm> of(StringRef family) {
    constexpr size_t most = 8;
    static std::mutex mutex;
    static std::deque<std::pair<std::string, std::shared_ptr<ChosenForm>>> families;
    std::lock_guard<std::mutex> lock(mutex);
    auto found = llvm::find_if(families, [&](const auto &known) { return known.first == family; });
    if (found != families.end())
      return found->second;
    if (families.size() == most)
      families.pop_front();
    return families.emplace_back(family.str(), std::make_shared<ChosenForm>()).second;
  }
};

llvm::Error Lowering::chooseFormOf(StringRef family) {
  if (!request.isOfGradient() && !request.isOfSegments())
    return chooseForm();
  std::shared_ptr<ChosenForm> chosen = ChosenForm::of(family);
  std::lock_guard<std::mutex> lock(chosen->mutex);
  if (!chosen->isKnown) {
    llvm::Error error = chooseForm();
    chosen->isKnown = true;
    if (error)
      return llvm::createStringError(chosen->refusal = llvm::toString(std::move(error)));
    chosen->kernels = text();
    chosen->noChunkForm = noChunkForm;
    chosen->warps = warps;
    chosen->ahead = ahead;
    chosen->outputs = outputs;
    chosen->within = within;
    return llvm::Error::success();
  }
  if (!chosen->refusal.empty())
    return llvm::createStringError(chosen->refusal);
  module = parseSourceString<ModuleOp>(chosen->kernels, module->getContext());
  if (!module)
    return diagnostics.takeError();
  noChunkForm = chosen->noChunkForm;
  warps = chosen->warps;
  ahead = chosen->ahead;
  outputs = chosen->outputs;
  within = chosen->within;
  return llvm::Error::success();
}

llvm::Error Lowering::takeFixedForm() {
  dividesGradients = request.walks == 2;
  OwningOpRef<ModuleOp> declared = module->clone();
  if (llvm::Error error = chunked(request.chunk, request.slices).moveInto(module))
    return error;
  int64_t slices = (*module->getOps<chunk::KernelOp>().begin()).getSlices();
  if (slices != request.slices)
    return llvm::createStringError("the values are divided into %lld slices, expected %lld", (long long)slices,
                                   (long long)request.slices);
  divideWalks();
  if (isCpu())
    return llvm::Error::success();
  llvm::Expected<Blocks> blocks = blocksOf(*module);
  if (thinsInVain(*module, blocks, slices)) {
    module = std::move(declared);
    return takeFixedForm();
  }
  // What does not fit says so when it is lowered.
  if (blocks)
    std::tie(warps, ahead, outputs) = std::tie(blocks->warps, blocks->ahead, blocks->outputs);
  else
    llvm::consumeError(blocks.takeError());
  return llvm::Error::success();
}

/// A core's caches hold the tiles of few tokens; matrix instructions, a GPU's or those of tiles, want more. So does a
/// look-back, in which each token of a chunk meets each of another's, and a scan, whose total is rounded once a chunk.
int64_t Lowering::tokensForCpu() {
  constexpr int64_t few = 16, some = 32, many = 64;
  auto hasAny = [&](llvm::function_ref<bool(Operation *)> is) {
    return module->walk([&](Operation *op) { return WalkResult(failure(is(op))); }).wasInterrupted();
  };
  if (hasAny([](Operation *op) { return isa<LookbackOp, ScanOp>(op); }))
    return many;
  if (request.element != ElementType::BF16 || !processor().instructions().bf16Tiles)
    return few;
  // With a decay of each channel pairs of tokens are no product of tiles: there are the more of them the more tokens.
  auto isOfChannels = [](Operation *op) {
    auto decay = dyn_cast<DecayOp>(op);
    return decay && decay.getAlong();
  };
  return hasAny(isOfChannels) ? some : many;
}

bool Lowering::looksBack() {
  return module->walk([](LookbackOp) { return WalkResult::interrupt(); }).wasInterrupted();
}

/// Whether gradients of matrices are added up over all tokens: states of reverse time that no row reads.
static bool addsMatricesUp(ModuleOp module) {
  return llvm::any_of(module.getOps<VariantOp>(), [](VariantOp variant) {
    return llvm::any_of(stateChains(variant), [](const StateChain &chain) {
      StateType state = chain.getRoot().getType();
      return state.getReverse() && state.getFirstSize() > 1 && state.getSecondSize() > 1 && chain.reads().empty();
    });
  });
}

bool Lowering::carriesStatesAlone(int64_t slices) {
  return slices == 1 && (looksBack() || (isOfGradient && addsMatricesUp(*module)));
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
  // Beside gradients of matrices registers decide, which the assembler needs fewer of for one sum of all states, but
  // the estimate has more: of LAWCAT's gradient as a whole 354 for 316, with which it would lose its form.
  options.mergeTotals = isCpu() || !addsMatricesUp(*module);
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
  if (isOfGradient && !isCpu() && !options.step)
    if (llvm::Error error = run(*kernels, [](OpPassManager &passes) {
          passes.addPass(createDivideResults());
          passes.addPass(createKeepWithResults());
          passes.addPass(createCSEPass());
        }))
      return error;
  // Slices of walks, and panels, would be others in each kernel.
  const kernel::Chip *chip = isCpu() ? nullptr : kernel::Chip::find(request.target.name);
  if (isOfGradient && chip && chip->hasBulkCopies && !options.step && request.walkSlices == 1 && panels == 0 &&
      thinsCheckpoints)
    if (llvm::Error error = run(*kernels, [](OpPassManager &passes) { passes.addPass(createThinCheckpoints()); }))
      return error;
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

bool Lowering::dividesStates(chunk::KernelOp kernel) {
  return llvm::all_of(kernel.getArguments().getAsRange<chunk::ArgumentAttr>(), [](chunk::ArgumentAttr argument) {
    return argument.getKind() != chunk::ArgumentKind::State || argument.getSliced();
  });
}

bool Lowering::isOfTurns(StringRef kernel) const {
  return kernel.consume_front(name) &&
         llvm::is_contained(ArrayRef<StringRef>({suffix::starts, suffix::cotangentStarts, suffix::sumTurns}), kernel);
}

/// Divides walks that carry states and nothing else among slices, each of which has its columns of them: where heads
/// are few, what the chunks of such a walk wait for is each other. What finds the starts of segments adds numbers up
/// that lie in memory, and is asked for where heads are few.
void Lowering::divideWalks() {
  constexpr int64_t slicesOfTurns = 8;
  for (auto kernel : llvm::make_early_inc_range(module->getOps<chunk::KernelOp>())) {
    auto isOneOf = [&](ArrayRef<llvm::StringLiteral> parts) {
      return llvm::any_of(parts, [&](StringRef part) { return kernel.getSymName() == name + part.str(); });
    };
    int64_t slices = 1;
    bool isTurns = isOfTurns(kernel.getSymName());
    if (!request.isOfSegments() && isOneOf({suffix::segmentStarts, suffix::checkpoints, suffix::cotangents}))
      slices = request.walkSlices;
    else if (!isCpu() && isTurns)
      slices = slicesOfTurns;
    if (slices == 1 || kernel.getSlices() != 1)
      continue;
    OwningOpRef<ModuleOp> alone = module->clone();
    for (auto other : llvm::make_early_inc_range(alone->getOps<chunk::KernelOp>()))
      if (other.getSymName() != kernel.getSymName())
        other.erase();
    if (!divide(alone, slices))
      continue;
    chunk::KernelOp divided = *alone->getOps<chunk::KernelOp>().begin();
    // Backwards states are left where they began: one that all slices carry could be gone for those that come later.
    if (!leavesNoParts(divided) || (isTurns && divided.getReverse() && !dividesStates(divided)))
      continue;
    divided->moveBefore(kernel);
    kernel.erase();
  }
}
