//===- Compiler.h - From a variant to a kernel that runs --------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_COMPILER_H
#define STRETTO_RUNTIME_COMPILER_H

#include "codegen/cpu/NativeCode.h"
#include "dialect/stretto/Sizes.h"
#include "mlir/IR/OwningOpRef.h"
#include "runtime/CudaDriver.h"
#include "runtime/Form.h"
#include "runtime/Keeps.h"
#include "runtime/Manifest.h"
#include <map>
#include <memory>
#include <string>

namespace stretto {

/// What code is generated for: this machine's CPU, or a CUDA chip.
struct Target {
  enum class Kind { Cpu, Cuda } kind = Kind::Cpu;
  /// The CPU's name and features as LLVM spells them, or the chip, such as "sm_90a".
  std::string name, features;
  /// Of a CPU, why code for it does without tiles that it has (codegen/cpu/NativeCode.h).
  std::string whyNoTiles = {};

  static Target host();
  /// The target of a compute capability, such as 90: the chip's own instructions where it has any.
  static Target cuda(int capability);
  /// The same as a CPU.
  cpu::Processor processor() const { return {name, features, whyNoTiles}; }
};

/// What of a declaration's gradient is asked for.
struct GradientOf {
  /// The arguments and entries of the state whose gradients are wanted; none: all.
  std::vector<std::string> wanted;
  /// The positions of results whose cotangent is 0.
  std::vector<int64_t> zero;
  /// Whether it takes what the call has saved (passes/declaration/SaveRows.h).
  bool takesSaved = false;
};

/// All that the code of a kernel depends on besides the declaration.
struct KernelRequest {
  Settings settings;
  /// The element type of the principal inputs and the outputs in memory, and those of arguments that differ.
  ElementType element = ElementType::F32;
  std::map<std::string, ElementType> others;
  /// What of the program the kernel computes: its results, those of single tokens, or of its gradient the states at the
  /// start of each segment, those at the start of each chunk, rows that are kept, states of reverse time at the end of
  /// each chunk, what segments do to these and begin with, all else, that of it which later tokens have a part in where
  /// this is apart, or sums over all tokens; or, of either, the inverses that the others multiply by
  /// (stretto-invert-systems); or, where segments are walked side by side (passes/declaration/ChunkSegments.h), such
  /// inverses, its results, the rows that segments look back to, what they add to totals, what their feedback does to
  /// states, what they write, and what they start with, or all of these.
  enum class Part {
    Results,
    Step,
    SegmentStarts,
    Checkpoints,
    Rows,
    Cotangents,
    CotangentWrites,
    CotangentStarts,
    CotangentTails,
    SumTurns,
    Gradient,
    Later,
    Sums,
    Systems,
    Segments,
    SegmentSystems,
    Apart,
    Tails,
    Totals,
    TotalStarts,
    Transitions,
    Writes,
    Starts
  } part = Part::Results;
  /// What of the program's gradient is asked for, if that is what the kernel is of.
  std::optional<GradientOf> gradient = {};
  bool isOfGradient() const { return gradient.has_value(); }
  /// Whether the results' kernel leaves rows for a gradient behind them (stretto-save-rows).
  bool savesRows = false;
  /// What it keeps of its states for one. The form is the same.
  Keeps keeps = Keeps::Nothing;
  /// Of a gradient, whether the walks that carry states take their segments side by side.
  bool sideBySide = false;
  bool isOfSegments() const { return part >= Part::Segments || sideBySide; }
  /// Whether the kernel may be a walk that carries states alone.
  bool isWalkOfGradient() const {
    return part == Part::SegmentStarts || part == Part::Checkpoints || part == Part::Cotangents;
  }
  /// Into how many parts the value axis is to be divided: a power of two. A kernel that mixes the columns of its
  /// outputs is divided less, or not at all.
  int64_t slices = 1;
  /// The tokens of a chunk, which also fix the slices; 0: the model chooses. The warps of a block; 0: the same.
  int64_t chunk = 0, warps = 0;
  /// Further warps, which run ahead of those or find outputs behind them, and how many blocks calls have for each
  /// multiprocessor (Form.h).
  int64_t ahead = 0, outputs = 0, blocks = 1;
  /// The walks back of a gradient; 0: the same. The slices of what carries states alone.
  int64_t walks = 0, walkSlices = 1;
  void take(const Form &form) {
    slices = form.slices;
    chunk = form.chunk;
    warps = form.warps;
    ahead = form.ahead;
    outputs = form.outputs;
    blocks = form.blocks;
    walks = form.walks;
    walkSlices = form.walkSlices;
  }
  /// Whether the kernel takes the work items that one which expects something has left: any form that expects nothing.
  bool takesLeft = false;
  /// The same of the work items that a kernel of such chunks and slices has left.
  KernelRequest ofLeft(int64_t chunkOfItems, int64_t slicesOfItems) const;
  /// Whether the calls continue from positions that only a device knows, or from windows. Steps do anyway.
  bool continues = false;
  Target target;
};

/// A kernel that can be launched.
struct CompiledKernel {
  using CpuFunction = void (*)(const int64_t *block, int64_t begin, int64_t end, char *scratch);

  Manifest manifest;
  /// A module of the `chunk.table`s that the kernel reads.
  std::string tables;
  /// One of the two, by target.
  CpuFunction function = nullptr;
  std::unique_ptr<cpu::LoadedCode> code; // holds it
  std::unique_ptr<CudaKernel> cuda;

  bool fromCache = false;
  double milliseconds = 0; // from request to kernel
};

/// The declaration of the gradient of a specialised one. The error is the compiler's diagnostic.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>> differentiated(VariantOp program, const GradientOf &request);

/// Compiles a kernel, or finds it among those of the process or in the cache on disk. The error is the compiler's
/// diagnostic, with its place. May be called from several threads as long as each has a context of its own; one that
/// asks for a kernel that another compiles waits for it.
llvm::Expected<std::shared_ptr<CompiledKernel>> compileKernel(VariantOp variant, const KernelRequest &request);

/// Compiles kernels of the variant that a module declares on several threads, so that `compileKernel` finds them. What
/// cannot be compiled is left out. For a device of CUDA, whose number it is, the driver compiles them, too. No kernel
/// is begun when `mayBegin` says no.
void compileAhead(llvm::StringRef module, llvm::ArrayRef<KernelRequest> requests, int device,
                  llvm::function_ref<bool()> mayBegin);

/// A digest of the build of this library, which changes whenever generated code might; empty where there is none.
llvm::StringRef buildIdentity();

} // namespace stretto

#endif // STRETTO_RUNTIME_COMPILER_H
