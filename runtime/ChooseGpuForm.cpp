//===- ChooseGpuForm.cpp - The form of a kernel that suits a GPU ----------===//

#include "dialect/chunk/Flops.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "passes/kernel/Meetings.h"
#include "passes/kernel/RegisterEstimate.h"
#include "runtime/LoweringSteps.h"
#include "runtime/OwnModule.h"
#include "llvm/Support/SaveAndRestore.h"

using namespace mlir;
using namespace stretto;

/// A chunk for itself that meets others computes an address when it wants one. What adds up what segments leave has as
/// many warps as others, but slices of its own (divideWalks).
Lowering::Registers Lowering::registersOf(ModuleOp planned) const {
  Registers most;
  for (kernel::FuncOp function : planned.getOps<kernel::FuncOp>()) {
    bool meetsOthers =
        kernel::isItemOfChunk(function) && llvm::any_of(function.getOps<kernel::ChannelOp>(), kernel::bringsMetTiles);
    int64_t ofAddresses = meetsOthers ? kernel::registersOfAddresses(function) : 0;
    int64_t registers = kernel::estimateRegisters(function) - ofAddresses;
    most.ofAll = std::max(most.ofAll, registers);
    if (!isOfTurns(function.getName()))
      most.ofSlices = std::max(most.ofSlices, registers);
  }
  return most;
}

llvm::Expected<Lowering::Needs> Lowering::needsOf(ModuleOp form, int64_t warpsOfForm) {
  OwningOpRef<ModuleOp> planned = form.clone();
  KernelForm kernel = kernelForm();
  kernel.setTilesAside = false;
  kernel.warps = warpsOfForm;
  llvm::Error error = run(*planned, [&](OpPassManager &passes) { buildKernelPipeline(passes, kernel); });
  if (error)
    return error;
  int64_t bytes = 0;
  for (kernel::FuncOp function : planned->getOps<kernel::FuncOp>())
    bytes = std::max(bytes, static_cast<int64_t>(*function.getShared()));
  Registers registers = registersOf(*planned);
  return Needs{registers, bytes, std::move(planned)};
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

/// The entries of the states of a block.
static int64_t entriesOfStates(chunk::KernelOp kernel) {
  int64_t entries = 0;
  for (BlockArgument state : kernel.argumentsOf(chunk::ArgumentKind::State))
    entries += cast<RankedTensorType>(state.getType()).getNumElements();
  return entries;
}

/// Whether chunks wait for each other. Those that do not are blocks of their own, of which there are many.
static bool carriesStates(ModuleOp form) {
  return llvm::any_of(form.getOps<chunk::KernelOp>(),
                      [](chunk::KernelOp kernel) { return entriesOfStates(kernel) > 0; });
}

/// Whether all that is carried are sums, and rows of tails: nothing is made of a state but the next one.
static bool carriesSumsAlone(ModuleOp form) {
  return llvm::all_of(form.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return llvm::all_of(kernel.argumentsOf(chunk::ArgumentKind::State), [](BlockArgument state) {
      return llvm::all_of(state.getUses(), [](OpOperand &use) {
        auto product = dyn_cast<chunk::DotOp>(use.getOwner());
        return product ? product.getAddend() == use.get()
                       : isa<arith::AddFOp, chunk::ConvBackOp, chunk::TailOp, chunk::YieldOp>(use.getOwner());
      });
    });
  });
}

llvm::Expected<Lowering::Blocks> Lowering::blocksOf(ModuleOp form) {
  constexpr int64_t fewWarps = 4;
  llvm::Expected<Needs> needs = needsOf(form, request.warps);
  if (!needs)
    return needs.takeError();
  if (int64_t further = isOfGradient && request.outputs <= 0 ? warpsAheadOfWalks(form) : 0)
    return Blocks{needs->registers.ofSlices, request.warps, further, /*outputs=*/0, std::move(needs->planned)};
  // The walks of a gradient that have no results have as many warps as without roles.
  int64_t warpsOfWalk = isOfGradient ? 0 : fewWarps;
  if (request.warps == 0 && request.ahead < 0 && request.outputs < 0)
    if (Roles roles = rolesOfProducer(form, fewWarps); roles.outputs)
      return Blocks{needs->registers.ofSlices, fewWarps, roles.ahead, roles.outputs, std::move(needs->planned)};
  if (request.warps == 0 && request.outputs < 0)
    if (int64_t further = warpsOfOutputs(form, warpsOfWalk))
      return Blocks{needs->registers.ofSlices, warpsOfWalk, /*ahead=*/0, further, std::move(needs->planned)};
  bool gains = request.warps == 0 && gainsFromFewWarps(form);
  bool hasManyBlocks = request.blocks > 1 || !carriesStates(form) || (isOfGradient && carriesSumsAlone(form));
  if (gains || (request.warps == 0 && hasManyBlocks && mayHaveTwoBlocks(form, fewWarps))) {
    // What products keep beside tiles was seen to spill at a few more than these; of walks that keep states the
    // estimate has more than the assembler takes.
    const int64_t registersOfTwo = carriesStates(form) ? 234 : 220;
    if (llvm::Expected<Needs> ofFew = needsOf(form, fewWarps); !ofFew)
      llvm::consumeError(ofFew.takeError());
    else if ((gains && ofFew->registers.ofAll <= fewRegisters) ||
             (ofFew->registers.ofAll <= registersOfTwo && ofFew->bytes <= kernel::bytesOfBlock(2)))
      return Blocks{ofFew->registers.ofSlices, fewWarps, ahead, outputs, std::move(ofFew->planned)};
  }
  if (request.warps == 0 && request.ahead < 0)
    if (int64_t further = warpsAhead(form, fewWarps))
      return Blocks{needs->registers.ofSlices, fewWarps, further, /*outputs=*/0, std::move(needs->planned)};
  return Blocks{needs->registers.ofSlices, request.warps, ahead, outputs, std::move(needs->planned)};
}

/// Whether a block of so few warps may have the states of a slice beside much else, as one of two.
bool Lowering::mayHaveTwoBlocks(ModuleOp form, int64_t warpsOfForm) {
  constexpr int64_t mostEntriesOfThread = 64;
  if (isCpu() || isStep() || (isOfGradient && !carriesSumsAlone(form)) || bytesOf(request.element) != 2)
    return false;
  return llvm::all_of(form.getOps<chunk::KernelOp>(), [&](chunk::KernelOp kernel) {
    return entriesOfStates(kernel) <= warpsOfForm * 32 * mostEntriesOfThread;
  });
}

/// Whether walks solve systems of equations, one for each token, row after row: those of more tokens take longer than
/// what fewer barriers and products save.
static bool walksSolve(ModuleOp form) {
  return llvm::any_of(form.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return !kernel.argumentsOf(chunk::ArgumentKind::State).empty() && !kernel.getOps<chunk::SolveOp>().empty();
  });
}

/// What the blocks of all slices multiply and add for a token.
static double flopsOfToken(ModuleOp form) {
  double flops = 0;
  for (auto kernel : form.getOps<chunk::KernelOp>())
    flops += static_cast<double>(chunk::countFlops(kernel).ofChunk * static_cast<int64_t>(kernel.getSlices())) /
             static_cast<double>(kernel.getChunk());
  return flops;
}

/// Whether a kernel that walks back asks for the states of a walk forward.
static bool readsStates(ModuleOp gradient) {
  return llvm::any_of(gradient.getOps<chunk::KernelOp>(), [](chunk::KernelOp kernel) {
    return kernel.getReverse() && !kernel.argumentsOf(chunk::ArgumentKind::Checkpoint).empty();
  });
}

/// More registers are worth twice the tokens, as GpuForm says. One walk back over all values that keeps some in memory
/// takes half as many states out of it as with half the tokens, and was seen to gain.
int64_t Lowering::registerLimit(int64_t slices) {
  constexpr int64_t few = 267, many = 292, most = 304;
  if (bytesOf(request.element) != 2)
    return fewRegisters;
  if (!isOfGradient)
    return few;
  bool isOfAllValues = slices == 1 && !dividesGradients;
  return isOfAllValues || (dividesGradients && carriesStatesAlone(slices)) ? most : many;
}

/// Whether checkpoints of every second chunk want more registers than there are, and all are to be kept from now on.
bool Lowering::thinsInVain(ModuleOp form, llvm::Expected<Blocks> &blocks, int64_t slices) {
  bool areThin = llvm::any_of(form.getOps<chunk::KernelOp>(),
                              [](chunk::KernelOp kernel) { return kernel.getBetween().has_value(); });
  if (!areThin || (blocks && blocks->registers <= registerLimit(slices)))
    return false;
  if (!blocks)
    llvm::consumeError(blocks.takeError());
  thinsCheckpoints = false;
  return true;
}

Candidate Lowering::lookAt(const Candidate::Shape &shape) {
  constexpr int64_t mostOfSystem = 32;
  dividesGradients = shape.dividesGradients;
  panels = shape.panels;
  thinsCheckpoints = true;
  Candidate candidate;
  auto refuse = [&](llvm::Error error) {
    candidate.refusal = llvm::toString(std::move(error));
    return candidate;
  };
  llvm::Expected<OwningOpRef<ModuleOp>> form = chunked(shape.tokens, shape.slices);
  if (!form)
    return refuse(form.takeError());
  candidate.solvesTooMuch = shape.tokens > mostOfSystem && walksSolve(**form);
  if (candidate.solvesTooMuch)
    return candidate;
  candidate.slices = (*(*form)->getOps<chunk::KernelOp>().begin()).getSlices();
  // Where kernels are divided no further, they are the same again.
  Candidate::Shape ofFewer = shape;
  ofFewer.slices /= 2;
  if (candidate.slices < shape.slices && carriesStatesAlone(shape.slices) == carriesStatesAlone(ofFewer.slices))
    if (std::optional<Candidate> same = candidates->known(ofFewer); same && same->slices == candidate.slices)
      return *same;
  if (llvm::Error error = takePanels(**form))
    return refuse(std::move(error));
  llvm::Expected<Blocks> blocks = blocksOf(**form);
  if (thinsInVain(**form, blocks, shape.slices)) {
    if (llvm::Error error = chunked(shape.tokens, shape.slices).moveInto(*form))
      return refuse(std::move(error));
    if (llvm::Error error = takePanels(**form))
      return refuse(std::move(error));
    blocks = blocksOf(**form);
  }
  candidate.thinsCheckpoints = thinsCheckpoints;
  if (!blocks) {
    candidate.problem = llvm::toString(blocks.takeError());
    return candidate;
  }
  std::tie(candidate.registers, candidate.warps, candidate.ahead, candidate.outputs) =
      std::tie(blocks->registers, blocks->warps, blocks->ahead, blocks->outputs);
  candidate.flopsOfToken = flopsOfToken(**form);
  candidate.readsStates = readsStates(**form);
  // Chunks that run side by side set tiles aside.
  if (dividesGradients && bytesOf(request.element) == 2 && candidate.registers > registerLimit(shape.slices)) {
    llvm::Error error = run(*blocks->planned, [&](OpPassManager &passes) {
      passes.addNestedPass<kernel::FuncOp>(createSetTilesAside({request.target.name}));
    });
    if (error)
      return refuse(std::move(error));
    candidate.besideTilesAside = registersOf(*blocks->planned).ofSlices;
  }
  return candidate;
}

void Lowering::lookAtShapes(Candidates &shared) {
  candidates = &shared;
  isChoosing = true;
  while (std::optional<Candidate::Shape> shape = shared.next())
    shared.keep(*shape, lookAt(*shape));
}

static constexpr int64_t fewestTokensOnGpu = 16;

void Lowering::expectForms(bool divided, ArrayRef<int64_t> ofSlices) {
  SmallVector<Candidate::Shape> shapes;
  for (int64_t slices : ofSlices)
    for (int64_t tokens = Form::mostTokensOnGpu; tokens >= fewestTokensOnGpu; tokens /= 2)
      shapes.push_back({divided, panels, slices, tokens});
  candidates->expect(shapes);
}

llvm::Expected<Lowering::GpuForm> Lowering::fittingForm(int64_t slices) {
  constexpr int64_t ofRest = 4;
  GpuForm best;
  best.limit = registerLimit(slices);
  best.shape = {dividesGradients, panels, slices, /*tokens=*/0};
  for (int64_t tokens = Form::mostTokensOnGpu; tokens >= fewestTokensOnGpu; tokens /= 2) {
    Candidate::Shape shape = {dividesGradients, panels, slices, tokens};
    Candidate candidate = candidates->find(shape, [&] { return lookAt(shape); });
    if (!candidate.refusal.empty())
      return llvm::createStringError(candidate.refusal);
    if (candidate.solvesTooMuch)
      continue;
    best.slices = candidate.slices;
    if (!candidate.problem.empty()) {
      best.problem = candidate.problem;
      continue;
    }
    bool isBetter = candidate.registers < best.registers;
    if (isBetter) {
      best.registers = candidate.registers;
      best.warps = candidate.warps;
      best.ahead = candidate.ahead;
      best.outputs = candidate.outputs;
      best.flopsOfToken = candidate.flopsOfToken;
      best.readsStates = candidate.readsStates;
      best.shape.tokens = tokens;
      best.thinsCheckpoints = candidate.thinsCheckpoints;
    }
    if (best.suffices())
      break;
    // Of tiles that are set aside a few registers remain.
    bool isSetAside = candidate.besideTilesAside && candidate.besideTilesAside < candidate.registers;
    if (isBetter && isSetAside && candidate.besideTilesAside <= best.limit + ofRest) {
      best.registers = best.limit;
      break;
    }
  }
  return best;
}

llvm::Expected<Lowering::GpuForm> Lowering::formOfFewestSlices() {
  // What spills was seen to cost less than twice the products. Where a walk for the states of reverse time may be
  // worth its while, heads leave room for slices on the chip (runtime/Choice.cpp).
  constexpr double mostRepeated = 2;
  bool isFull = isOfGradient && request.walks == 1;
  GpuForm best;
  // The first form is seldom that of a gradient.
  if (isOfGradient)
    expectForms(dividesGradients, {request.slices});
  // What walks for states alone are taken for if they fit is compared with the whole at last.
  if (isOfGradient && !dividesGradients && request.walks == 0 && carriesStatesAlone(/*slices=*/1))
    expectForms(/*divided=*/true, {request.slices});
  for (int64_t slices = request.slices;; slices *= 2) {
    llvm::Expected<GpuForm> form = fittingForm(slices);
    if (!form)
      return form.takeError();
    if (isFull && best.fits() && form->fits() && form->flopsOfToken > mostRepeated * best.flopsOfToken)
      return best;
    bool isLast = form->outdoesSlices() || form->slices < slices; // the kernel divides no further
    if (!best.fits() || form->outdoesSlices())
      best = std::move(*form);
    if (isLast)
      return best;
    expectForms(dividesGradients, {2 * slices, 4 * slices});
    if (slices == request.slices && isOfGradient && !dividesGradients && request.walks == 0)
      expectForms(/*divided=*/true, {slices, 2 * slices});
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

llvm::Error Lowering::take(const GpuForm &form) {
  llvm::SaveAndRestore dividing(dividesGradients, form.shape.dividesGradients);
  thinsCheckpoints = form.thinsCheckpoints;
  if (llvm::Error error = chunked(form.shape.tokens, form.shape.slices).moveInto(module))
    return error;
  warps = form.warps;
  ahead = form.ahead;
  outputs = form.outputs;
  return takePanels(*module);
}

/// Takes as many tokens in as few slices as the registers and the shared memory of a block allow. Where registers never
/// suffice, the fewest slices that fit: each computes anew much of what the others do. Where shared memory does not
/// hold the matrices that a product reads, it holds panels of them, as wide as can be. The kernels of a gradient agree,
/// whichever of them is asked for.
llvm::Error Lowering::chooseForGpu() {
  std::string text, problem;
  // With the places that diagnostics name.
  llvm::raw_string_ostream stream(text);
  module->print(stream, OpPrintingFlags().enableDebugInfo());
  Candidates shared([&](Candidates &shared) {
    OwnModule own(text);
    Lowering(own.variant(), request).lookAtShapes(shared);
  });
  llvm::SaveAndRestore sharing(candidates, &shared);
  for (int64_t columns : {0, 128, 64, 32}) {
    panels = columns;
    llvm::Expected<GpuForm> form = formOfFewestSlices();
    bool isRefused = !form && request.sideBySide && request.walks != 1;
    if (isRefused) {
      // What one walk cannot have, a walk of states alone may.
      std::string refusal = llvm::toString(form.takeError());
      form = GpuForm();
      form->problem = refusal;
    }
    if (!form)
      return standIn(llvm::toString(form.takeError()), [&] { return stepOnGpu(); });
    bool fitsDivided = false;
    if (llvm::Error error = divideGradient(*form).moveInto(fitsDivided))
      return error;
    if (form->fits())
      return take(*form);
    problem = form->problem;
    if (isRefused && fitsDivided)
      break; // what it lacks are registers
  }
  return llvm::createStringError(problem);
}

/// Takes the form of a gradient with a kernel for the states of reverse time where that is asked for, and, where it is
/// left open, where independent chunks gain from it: of enough tokens for matrix instructions, or of as many as one
/// walk whose registers do not suffice, and, of segments side by side, of states that the walk back would ask for in
/// any case; and of what looks back, whose walks then meet other chunks for the states alone.
llvm::Expected<bool> Lowering::divideGradient(GpuForm &form) {
  constexpr int64_t enoughTokens = 32;
  bool isOfStatesAlone = carriesStatesAlone(/*slices=*/1);
  // Segments side by side leave no multiprocessor idle: one walk moves least through memory, unless it does so much, or
  // has so much to do for each token that two have more tokens in a chunk.
  constexpr int64_t manyTokens = 64;
  bool isOneEnough = request.sideBySide && !isOfStatesAlone && form.shape.tokens >= enoughTokens && form.suffices();
  bool mayGain = isOneEnough ? form.shape.tokens < manyTokens
                             : isOfStatesAlone || !form.fits() || form.readsStates || !request.sideBySide;
  bool isOpen = request.walks == 0 && bytesOf(request.element) == 2 && mayGain;
  if (!isOfGradient || (request.walks != 2 && !isOpen))
    return false;
  dividesGradients = true;
  expectForms(/*divided=*/true, {request.slices, 2 * request.slices});
  llvm::Expected<GpuForm> divided = formOfFewestSlices();
  dividesGradients = false;
  if (!divided && isOpen && isOneEnough)
    return llvm::consumeError(divided.takeError()), false;
  if (!divided)
    return divided.takeError();
  int64_t fewest = isOneEnough       ? form.shape.tokens + 1
                   : isOfStatesAlone ? form.shape.tokens
                                     : std::max(enoughTokens, form.shape.tokens);
  bool gains = divided->suffices() && divided->shape.tokens >= fewest;
  bool spillsLess = form.fits() && !form.suffices() && divided->shape.tokens >= form.shape.tokens &&
                    divided->registers < form.registers;
  bool fits = divided->fits();
  if (fits && (gains || spillsLess || request.walks == 2))
    form = std::move(*divided);
  return fits;
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
    if (llvm::Error error = needsOf(*form, request.warps).takeError()) {
      llvm::consumeError(std::move(error));
      continue;
    }
    module = std::move(form);
    break;
  }
  return llvm::Error::success(); // what still does not fit says so when it is lowered
}
