//===- LoweringSteps.h - The steps from a program to code -------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_LOWERINGSTEPS_H
#define STRETTO_RUNTIME_LOWERINGSTEPS_H

#include "codegen/cpu/NativeCode.h"
#include "codegen/nvptx/Nvptx.h"
#include "dialect/kernel/KernelDialect.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "passes/Pipelines.h"
#include "runtime/Candidates.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Lowering.h"

namespace stretto {

/// A program on its way down. Each step returns the module at its stage, or what went wrong.
class Lowering {
public:
  Lowering(VariantOp program, const KernelRequest &request)
      : request(request), diagnostics(program.getContext()), module(mlir::ModuleOp::create(program.getLoc())),
        name(program.getSymName()), isOfGradient(program.getGradient()) {
    module->push_back(program->clone());
  }

  /// Takes the form that is asked for, or the one that suits the target: all its kernels, at the chunk level.
  llvm::Error chooseForm();
  /// The same, or what another of its family has chosen: the kernels of a gradient, or of segments, agree.
  llvm::Error chooseFormOf(llvm::StringRef family);
  /// Leaves of these the one that is asked for.
  llvm::Error keepPart();
  /// Has the kernel of the results keep states, where that is asked for.
  llvm::Error keepStates();
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
  struct ChosenForm;
  /// The form but for what its roles expect.
  llvm::Error chooseShape();
  bool isCpu() const { return request.target.kind == Target::Kind::Cpu; }
  bool isStep() const { return request.part == KernelRequest::Part::Step; }
  KernelForm kernelForm() const {
    constexpr int64_t mostOutputsOfGradient = 4; // two groups have too few registers
    bool continues = isStep() || request.continues;
    return {.chip = request.target.name,
            .inPlace = isStep(),
            .computeTables = continues,
            .warps = warps,
            .ahead = isStep() ? 0 : ahead,
            .outputs = isStep()       ? 0
                       : isOfGradient ? std::min(outputs, mostOutputsOfGradient)
                                      : outputs,
            .fromStart = !continues,
            .within = within,
            .takesLeft = request.takesLeft};
  }
  cpu::Processor processor() const { return request.target.processor(); }
  llvm::Error run(mlir::ModuleOp target, llvm::function_ref<void(mlir::OpPassManager &)> addPasses);
  /// The step form, or the chunk form for so many tokens, its value axis divided as far as asked for and as the kernel
  /// allows.
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> stepped(int64_t slices);
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> chunked(int64_t tokens, int64_t slices);
  llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> formed(PipelineOptions &options, int64_t slices);
  /// The form that is asked for, and no other.
  llvm::Error takeFixedForm();
  llvm::Error chooseForCpu();
  /// Takes the step form of what has no chunk form; `refusal` says why it has none.
  llvm::Error standIn(std::string refusal, llvm::function_ref<llvm::Error()> takeSteps);
  llvm::Error stepOnGpu();
  /// Whether the kernels could be divided as far as asked for, or half as far, and so on.
  bool divide(mlir::OwningOpRef<mlir::ModuleOp> &kernels, int64_t slices);
  void divideWalks();
  /// Whether a kernel finds from what segments have left where others begin, or adds that up.
  bool isOfTurns(llvm::StringRef kernel) const;
  /// Divides wide matrices into panels, where those are what fits.
  llvm::Error takePanels(mlir::ModuleOp form);
  llvm::Error takeNeededPanels();
  int64_t tokensForCpu();
  static constexpr int64_t fewRegisters = 244; // of 255
  bool looksBack();
  /// Whether walks of a divided gradient carry states and nothing else: those of what looks back, where a walk would
  /// meet other chunks in each of its own, and those of what has matrices of parameters, which with the sums of their
  /// gradients leave few registers. Slices leave parts of rows, which are no rows that could be kept.
  bool carriesStatesAlone(int64_t slices);
  /// A chunk form for a GPU, its slices and the registers that it wants; or none that fits, and why.
  struct GpuForm {
    Candidate::Shape shape = {}; // no tokens where there is none
    int64_t slices = 1, warps = 0, ahead = 0, outputs = 0, registers = std::numeric_limits<int64_t>::max();
    double flopsOfToken = 0;
    bool readsStates = false, thinsCheckpoints = true;
    std::string problem;
    /// The other registers hold offsets. In 16 bits a dozen numbers were seen to spill beyond, a few dozen in
    /// gradients, which may set tiles aside, and more where walks carry nothing but states; that is worth twice the
    /// tokens.
    int64_t limit = fewRegisters;
    bool fits() const { return shape.tokens != 0; }
    bool suffices() const { return registers <= limit; }
    /// Whether more slices, each of which forms most products anew, would cost more than what spills.
    bool outdoesSlices() const { return registers <= limit + (limit == fewRegisters ? 0 : 12); }
  };
  /// The form of so many slices with the most tokens whose registers suffice, or that wants the fewest.
  llvm::Expected<GpuForm> fittingForm(int64_t slices);
  /// The slices that suffice, or else the fewest that fit; where heads fill the chip, none that form most products
  /// anew.
  llvm::Expected<GpuForm> formOfFewestSlices();
  llvm::Error chooseForGpu();
  llvm::Error take(const GpuForm &form);
  /// Takes the divided form where it is to be; whether one fits shared memory.
  llvm::Expected<bool> divideGradient(GpuForm &form);
  /// The registers of the kernel that takes the most: of all, and of those whose slices are to be found.
  struct Registers {
    int64_t ofAll = 0, ofSlices = 0;
  };
  Registers registersOf(mlir::ModuleOp planned) const;
  /// The registers that the kernels of a chunk form keep tiles and addresses in, and the bytes of shared memory of a
  /// block, the most of all, and these kernels; an error where one does not fit.
  struct Needs {
    Registers registers;
    int64_t bytes;
    mlir::OwningOpRef<mlir::ModuleOp> planned;
  };
  llvm::Expected<Needs> needsOf(mlir::ModuleOp form, int64_t warpsOfForm);
  /// The registers of a form, and of how many warps where the request leaves that open, 0: as many as suit it, and how
  /// many run ahead of these, or find outputs behind them; and its kernels of so many warps.
  struct Blocks {
    int64_t registers = 0, warps = 0, ahead = 0, outputs = 0;
    mlir::OwningOpRef<mlir::ModuleOp> planned = {};
  };
  llvm::Expected<Blocks> blocksOf(mlir::ModuleOp form);
  bool thinsInVain(mlir::ModuleOp form, llvm::Expected<Blocks> &blocks, int64_t slices);
  /// What there is to know of the form of a shape; and the same of the shapes that others are to look at.
  Candidate lookAt(const Candidate::Shape &shape);
  void lookAtShapes(Candidates &shared);
  /// Has threads look at forms of so many slices, which are likely to be asked for.
  void expectForms(bool divided, llvm::ArrayRef<int64_t> ofSlices);
  int64_t registerLimit(int64_t slices);
  bool gainsFromFewWarps(mlir::ModuleOp form);
  bool mayHaveTwoBlocks(mlir::ModuleOp form, int64_t warpsOfForm);
  /// Whether blocks of different slices store states of their own.
  static bool dividesStates(chunk::KernelOp kernel);
  bool mayHaveRoles() const;
  int64_t warpsOfRoles(mlir::ModuleOp form, const KernelForm &roles,
                       llvm::function_ref<int64_t(kernel::FuncOp walk, kernel::FuncOp beside)> wanted);
  int64_t warpsAhead(mlir::ModuleOp form, int64_t warpsOfWalk);
  int64_t warpsAheadOfWalks(mlir::ModuleOp form);
  int64_t warpsOfOutputs(mlir::ModuleOp form, int64_t warpsOfWalk);
  /// Warps before and behind those that walk, with a producer that sends for all; none where that has not been seen to
  /// gain.
  struct Roles {
    int64_t ahead = 0, outputs = 0;
  };
  Roles rolesOfProducer(mlir::ModuleOp form, int64_t warpsOfWalk);
  /// Whether roles that are asked for divide a walk only if it expects its rows to be in range, and do so then.
  bool divideWithin(mlir::ModuleOp form, KernelForm roles);
  mlir::LLVM::LLVMFuncOp function(llvm::StringRef symbol) {
    return module->lookupSymbol<mlir::LLVM::LLVMFuncOp>(symbol);
  }

  const KernelRequest &request;
  DiagnosticText diagnostics;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string name;              // of the program
  bool isOfGradient;             // the program is one
  bool isChoosing = false;       // among forms
  std::string noChunkForm;       // why, where the step form stands in for it
  int64_t warps = request.warps; // of a block; 0: as many as suit it
  /// Further warps, which run ahead of those, or find outputs behind them.
  int64_t ahead = request.isOfGradient() ? 0 : std::max<int64_t>(request.ahead, 0);
  int64_t outputs = std::max<int64_t>(request.outputs, 0);
  bool within = false;              // walks expect their rows to be in range
  int64_t panels = 0;               // the columns of panels of matrices; 0: those are whole
  bool thinsCheckpoints = true;     // where all would take much memory
  bool dividesGradients = false;    // states of reverse time have a kernel of their own
  Candidates *candidates = nullptr; // while one is chosen for a GPU
};

} // namespace stretto

#endif // STRETTO_RUNTIME_LOWERINGSTEPS_H
