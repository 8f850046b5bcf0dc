//===- Lowering.cpp - From a program to code for a target -----------------===//

#include "runtime/Lowering.h"
#include "mlir/IR/Verifier.h"
#include "passes/Passes.h"
#include "passes/declaration/KernelNames.h"
#include "runtime/Dump.h"
#include "runtime/LoweringSteps.h"

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

llvm::Error Lowering::run(ModuleOp target, llvm::function_ref<void(OpPassManager &)> addPasses) {
  if (candidates && candidates->areOver())
    return llvm::createStringError("a form has been chosen"); // nobody reads that
  PassManager passes(target.getContext());
  addPasses(passes);
  // A stage is verified once, at its end, which takes a third of the time that it took after every pass (stretto-opt
  // does that, and finds the one that left what is wrong); of forms among which one is chosen, that one alone.
  passes.enableVerifier(false);
  bool isValid = succeeded(passes.run(target)) && (isChoosing || succeeded(verify(target)));
  return isValid ? llvm::Error::success() : diagnostics.takeError();
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
    case Part::Transitions:
      return suffix::transitions;
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
    case Part::Later:
      return suffix::later;
    case Part::Sums:
      return suffix::sums;
    case Part::Systems:
    case Part::SegmentSystems:
      return suffix::systems;
    default:
      return "";
    }
  };
  std::string asked = name + suffixOfPart().str();
  auto kept = module->lookupSymbol<chunk::KernelOp>(asked);
  if (!kept)
    return llvm::createStringError("there is no kernel '" + asked + "' in this form");
  // What stands between its chunks becomes a part of it.
  std::optional<StringRef> between = kept.getBetween();
  for (auto kernel : llvm::make_early_inc_range(module->getOps<chunk::KernelOp>()))
    if (kernel.getSymName() == between)
      kernel.setPrivate();
    else if (kernel != kept)
      kernel.erase();
  return keepStates();
}

llvm::Error Lowering::keepStates() {
  auto results = request.keeps != Keeps::Nothing ? module->lookupSymbol<chunk::KernelOp>(name) : chunk::KernelOp();
  if (!results)
    return llvm::Error::success();
  PassManager passes(module->getContext(), chunk::KernelOp::getOperationName());
  passes.addPass(createKeepStates({.ofSegments = request.keeps == Keeps::Segments}));
  return succeeded(passes.run(results)) ? llvm::Error::success() : diagnostics.takeError();
}

llvm::Expected<KernelImage> Lowering::describe() {
  auto isAsked = [](chunk::KernelOp kernel) { return kernel.isPublic(); };
  FailureOr<Manifest> manifest = Manifest::of(*llvm::find_if(module->getOps<chunk::KernelOp>(), isAsked));
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
      buildThreadPipeline(passes, kernelForm().chip);
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

llvm::Expected<KernelImage> stretto::generate(VariantOp program, const KernelRequest &request, StringRef family) {
  Dump dump(program.getSymName(), request.target.name);
  Lowering lowering(program, request);
  if (llvm::Error error = lowering.chooseFormOf(family))
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
  if (llvm::Error error = lowering.keepStates())
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
