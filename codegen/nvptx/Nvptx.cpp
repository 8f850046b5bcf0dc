//===- Nvptx.cpp - From chunks to PTX -------------------------------------===//

#include "codegen/nvptx/Nvptx.h"
#include "dialect/kernel/Chip.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/NVVMToLLVM/NVVMToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/Instructions.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/OptBisect.h"
#include "llvm/IR/PatternMatch.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/Transforms/InstCombine/InstCombine.h"
#include "llvm/Transforms/Scalar/ADCE.h"
#include "llvm/Transforms/Scalar/EarlyCSE.h"
#include "llvm/Transforms/Scalar/SimplifyCFG.h"
#include <mutex>

using namespace mlir;
using namespace stretto;

void stretto::buildKernelPipeline(OpPassManager &passes, const KernelForm &form) {
  // Chunks of 64 tokens are what warpgroups want: tiles make room for them.
  const kernel::Chip *chip = kernel::Chip::find(form.chip);
  bool makesRoom = chip && chip->hasWarpgroups;
  OpPassManager &kernels = passes.nest<chunk::KernelOp>();
  constexpr int64_t warpsOfGradient = 8; // as walks back have where nothing else is asked for
  kernels.addPass(createExpandDecay({form.within, !makesRoom ? 0 : form.warps ? form.warps : warpsOfGradient}));
  kernels.addPass(createSinkFactors());
  kernels.addPass(createRoundOperands());
  kernels.addPass(createCSEPass());
  kernels.addPass(createShortenLifetimes({/*forwards=*/makesRoom}));
  FoldOverChunksOptions fold;
  fold.inPlace = form.inPlace;
  fold.computeTables = form.computeTables;
  fold.warps = form.warps;
  fold.fromStart = form.fromStart;
  fold.takesLeft = form.takesLeft;
  fold.warpgroups = makesRoom;
  passes.addPass(createFoldOverChunks(fold));
  passes.addNestedPass<kernel::FuncOp>(createBaseTwoExponentials());
  passes.addNestedPass<kernel::FuncOp>(createMultiplyVectors());
  passes.addPass(createDivideRoles({form.ahead, form.warps, form.outputs}));
  passes.addNestedPass<kernel::FuncOp>(createFetchStates({form.chip.str()}));
  passes.addNestedPass<kernel::FuncOp>(
      createAssignLayouts({/*readAgain=*/makesRoom, /*repeatLeft=*/makesRoom, /*warpgroups=*/makesRoom}));
  // What one branch alone wants is found there.
  passes.addNestedPass<kernel::FuncOp>(createControlFlowSinkPass());
  passes.addNestedPass<kernel::FuncOp>(createSelectProducts({form.chip.str()}));
  passes.addNestedPass<kernel::FuncOp>(createOverlapProducts());
  passes.addNestedPass<kernel::FuncOp>(createSelectCopies({form.chip.str()}));
  passes.addPass(createPassLate());
  passes.addPass(createShareChannels());
  passes.addPass(createPlanSharedMemory({form.chip.str()}));
  passes.addNestedPass<kernel::FuncOp>(createSendAhead());
  passes.addNestedPass<kernel::FuncOp>(createInsertBarriers());
  passes.addNestedPass<kernel::FuncOp>(createStoreBehindBarriers({form.chip.str()}));
  if (form.setTilesAside)
    passes.addNestedPass<kernel::FuncOp>(createSetTilesAside({form.chip.str()}));
}

void stretto::buildThreadPipeline(OpPassManager &passes, StringRef chip) {
  passes.addPass(createLowerToThreads({chip.str()}));
  OpPassManager &functions = passes.nest<LLVM::LLVMFuncOp>();
  functions.addPass(createCSEPass());
  functions.addPass(createMergeChoices());
  functions.addPass(createExpandDeviceMath());
  functions.addPass(createLowerWarpgroups());
  functions.addPass(createSCFToControlFlowPass());
  functions.addPass(createArithToLLVMConversionPass());
  passes.addPass(createConvertControlFlowToLLVMPass());
  passes.addPass(createConvertNVVMToLLVMPass());
  passes.addPass(createReconcileUnrealizedCastsPass());
}

void stretto::buildNvptxPipeline(OpPassManager &passes, const KernelForm &form) {
  buildKernelPipeline(passes, form);
  buildThreadPipeline(passes, form.chip);
}

//===----------------------------------------------------------------------===//
// LLVM
//===----------------------------------------------------------------------===//

static const llvm::Target *nvptxTarget(const llvm::Triple &triple) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  std::string error;
  return llvm::TargetRegistry::lookupTarget(triple, error);
}

/// Inline assembly has no way to say in MLIR that all lanes must execute it together; without it LLVM may move it.
static void markConvergent(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function))
      if (auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction); call && call->isInlineAsm())
        call->addFnAttr(llvm::Attribute::Convergent);
}

/// Cleans up what the lowering repeats. Nothing is moved out of loops: addresses that live as long as a kernel take the
/// registers of its tiles, and the assembler knows better how many there are.
static void optimize(llvm::Module &module, llvm::TargetMachine &machine) {
  llvm::LoopAnalysisManager loops;
  llvm::FunctionAnalysisManager functions;
  llvm::CGSCCAnalysisManager components;
  llvm::ModuleAnalysisManager modules;
  llvm::PassBuilder builder(&machine);
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(components);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, components, modules);
  llvm::FunctionPassManager passes;
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::InstCombinePass());
  passes.addPass(llvm::SimplifyCFGPass());
  passes.addPass(llvm::EarlyCSEPass(/*UseMemorySSA=*/true));
  passes.addPass(llvm::ADCEPass());
  llvm::createModuleToFunctionPassAdaptor(std::move(passes)).run(module, modules);
}

/// Hides the constants among the registers that products of warpgroups read: ptxas 13.0 writes a register that holds
/// one where it likes until the last product that reads it, behind the first one, too, which reads what was there. They
/// are made of a number that is 0, which only a run can tell: whether so many heads are fewer than none.
static void hideConstantsOfProducts(llvm::Module &module) {
  constexpr uint64_t offsetOfHeads = Manifest::Heads * sizeof(int64_t), sign = 31;
  for (llvm::Function &function : module) {
    llvm::Value *zero = nullptr;
    for (llvm::Instruction &instruction : llvm::instructions(function)) {
      auto *call = llvm::dyn_cast<llvm::CallInst>(&instruction);
      auto *assembly = call ? llvm::dyn_cast<llvm::InlineAsm>(call->getCalledOperand()) : nullptr;
      if (!assembly || !assembly->getAsmString().contains("wgmma.mma_async"))
        continue;
      for (llvm::Use &operand : call->args()) {
        if (!llvm::isa<llvm::Constant>(operand) || !operand->getType()->isIntegerTy(32))
          continue;
        if (!zero) {
          llvm::IRBuilder<> builder(&*function.getEntryBlock().getFirstInsertionPt());
          llvm::Value *heads = builder.CreateLoad(
              builder.getInt32Ty(), builder.CreatePtrAdd(function.getArg(0), builder.getInt64(offsetOfHeads)));
          llvm::Value *lane = builder.CreateIntrinsic(llvm::Intrinsic::nvvm_read_ptx_sreg_laneid, {});
          zero = builder.CreateLShr(builder.CreateAdd(heads, lane), sign);
        }
        llvm::IRBuilder<> builder(call);
        operand.set(builder.CreateOr(zero, operand.get()));
      }
    }
  }
}

/// Compares numbers of 16 bits, and takes magnitudes of them, as those of fp32, which they may have been before LLVM
/// narrowed them: it writes comparisons of bf16 with a modifier that PTX has for fp32 only, and for fp16 both with one
/// that takes its small numbers for 0.
static void widen(llvm::Module &module) {
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::instructions(function)) {
      auto *call = llvm::dyn_cast<llvm::IntrinsicInst>(&instruction);
      bool isMagnitude = call && call->getIntrinsicID() == llvm::Intrinsic::fabs;
      if (!isMagnitude && !llvm::isa<llvm::FCmpInst>(instruction))
        continue;
      llvm::Type *narrow = instruction.getOperand(0)->getType();
      if (!narrow->is16bitFPTy())
        continue;
      llvm::IRBuilder<> builder(&instruction);
      auto wide = [&](llvm::Value *number) { return builder.CreateFPExt(number, builder.getFloatTy()); };
      if (!isMagnitude) {
        for (llvm::Use &operand : instruction.operands())
          operand.set(wide(operand.get()));
        continue;
      }
      llvm::Value *magnitude = builder.CreateUnaryIntrinsic(llvm::Intrinsic::fabs, wide(call->getArgOperand(0)));
      for (llvm::User *user : call->users())
        if (auto *extension = llvm::dyn_cast<llvm::FPExtInst>(user); extension && extension->getType()->isFloatTy())
          extension->replaceAllUsesWith(magnitude);
      call->replaceAllUsesWith(builder.CreateFPTrunc(magnitude, narrow));
    }
}

/// Negates magnitudes by instructions that keep denormals, which ptxas makes a part of what takes them: those that do
/// not, as LLVM writes them, are two steps.
static void negateMagnitudes(llvm::Module &module) {
  using namespace llvm::PatternMatch;
  llvm::IRBuilder<> builder(module.getContext());
  auto *negated = llvm::InlineAsm::get(llvm::FunctionType::get(builder.getFloatTy(), builder.getFloatTy(), false),
                                       "{ .reg .f32 magnitude; abs.f32 magnitude, $1; neg.f32 $0, magnitude; }", "=f,f",
                                       /*hasSideEffects=*/false);
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      llvm::Value *number = nullptr;
      if (!instruction.getType()->isFloatTy() || !match(&instruction, m_FNeg(m_FAbs(m_Value(number)))))
        continue;
      builder.SetInsertPoint(&instruction);
      instruction.replaceAllUsesWith(builder.CreateCall(negated, number));
      instruction.eraseFromParent();
    }
}

/// Subtracts numbers of 16 bits from products by instructions that ptxas makes a part of the sum: LLVM would flip the
/// sign of the word that such a number was widened to, in a step of its own.
static void subtractFromProducts(llvm::Module &module) {
  using namespace llvm::PatternMatch;
  llvm::IRBuilder<> builder(module.getContext());
  auto *negated = llvm::InlineAsm::get(llvm::FunctionType::get(builder.getFloatTy(), builder.getFloatTy(), false),
                                       "neg.f32 $0, $1;", "=f,f", /*hasSideEffects=*/false);
  for (llvm::Function &function : module)
    for (llvm::Instruction &instruction : llvm::make_early_inc_range(llvm::instructions(function))) {
      llvm::Value *product = nullptr, *rounded = nullptr;
      if (!match(&instruction, m_FSub(m_Value(product), m_Value(rounded))) ||
          !match(product, m_FMul(m_Value(), m_Value())) || !match(rounded, m_BitCast(m_Value())) ||
          !rounded->getType()->isFloatTy())
        continue;
      builder.SetInsertPoint(&instruction);
      instruction.replaceAllUsesWith(builder.CreateFAdd(product, builder.CreateCall(negated, rounded)));
      instruction.eraseFromParent();
    }
}

namespace {
/// Leaves a pass of those that write PTX out of the longest kernels: strength reduction of straight lines compares each
/// sum and each address with those alike before it, which took half of LLVM's time there and left ptxas as many
/// instructions within three of a hundred. Elsewhere it stays: loops without it were unrolled by ptxas, and took half
/// as much again.
class LongKernels : public llvm::OptPassGate {
public:
  explicit LongKernels(const llvm::Module &module) {
    for (const llvm::Function &function : module)
      if (numbersOf(function) > mostNumbers)
        descriptions.insert(("function (" + function.getName() + ")").str());
  }

  bool isEnabled() const override { return !descriptions.empty(); }
  bool shouldRunPass(StringRef pass, StringRef description) const override {
    return pass != "Straight line strength reduction" || !descriptions.contains(description);
  }

private:
  static constexpr int64_t mostNumbers = 1500;

  /// How many numbers the pass would compare.
  static int64_t numbersOf(const llvm::Function &function) {
    return llvm::count_if(llvm::instructions(function), [](const llvm::Instruction &instruction) {
      unsigned kind = instruction.getOpcode();
      return kind == llvm::Instruction::Add || kind == llvm::Instruction::Mul ||
             kind == llvm::Instruction::GetElementPtr;
    });
  }

  llvm::StringSet<> descriptions; // of kernels, as passes are asked about them
};
} // namespace

FailureOr<std::string> stretto::translateToPtx(ModuleOp module, StringRef chipName) {
  FailureOr<kernel::Chip> chip = kernel::Chip::named(chipName, [&] { return module.emitError(); });
  if (failed(chip))
    return failure();
  MLIRContext *context = module.getContext();
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
  context->appendDialectRegistry(registry);

  // Tables stay behind: the host computes them.
  OpBuilder builder(context);
  OwningOpRef<ModuleOp> functions = ModuleOp::create(module.getLoc());
  builder.setInsertionPointToEnd(functions->getBody());
  for (Operation &op : *module.getBody()) {
    if (isa<LLVM::LLVMFuncOp, LLVM::GlobalOp>(op))
      builder.clone(op)->removeAttr(Manifest::attributeName);
    else if (!isa<chunk::TableOp>(op))
      return op.emitOpError("cannot be translated to PTX; run the passes of the pipeline stretto-to-nvptx first");
  }

  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule = translateModuleToLLVMIR(*functions, llvmContext);
  llvm::Triple triple("nvptx64-nvidia-cuda");
  const llvm::Target *target = nvptxTarget(triple);
  if (!llvmModule || !target)
    return module.emitError("LLVM cannot compile for ") << triple.str();
  llvm::TargetOptions options;
  options.AllowFPOpFusion = llvm::FPOpFusion::Fast; // a * b + c in one instruction
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(
      triple, chip->name, chip->ptxFeature, options, std::nullopt, std::nullopt, llvm::CodeGenOptLevel::Aggressive));
  llvmModule->setTargetTriple(triple);
  llvmModule->setDataLayout(machine->createDataLayout());
  markConvergent(*llvmModule);
  optimize(*llvmModule, *machine);
  widen(*llvmModule);
  negateMagnitudes(*llvmModule);
  subtractFromProducts(*llvmModule);
  hideConstantsOfProducts(*llvmModule);
  LongKernels longKernels(*llvmModule);
  llvmContext.setOptPassGate(longKernels);

  llvm::SmallString<0> ptx;
  llvm::raw_svector_ostream stream(ptx);
  llvm::legacy::PassManager emission;
  if (machine->addPassesToEmitFile(emission, stream, nullptr, llvm::CodeGenFileType::AssemblyFile))
    return module.emitError("LLVM cannot write PTX");
  emission.run(*llvmModule);
  return std::string(ptx);
}
