//===- NativeCode.cpp - From vector code to machine code ------------------===//

#include "codegen/cpu/NativeCode.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Pass.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/X86TargetParser.h"
#include "llvm/Transforms/Scalar.h"
#include <atomic>
#include <cmath>
#include <cstring>
#include <system_error>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif

using namespace mlir;
using namespace stretto::cpu;

//===----------------------------------------------------------------------===//
// The processor
//===----------------------------------------------------------------------===//

/// Asks Linux for the registers of tiles, which a process has only then: for all its threads, those to come as well.
/// What it says if it refuses; else nothing. It does where a stack for signals has no room for what they hold.
static std::string askForTiles() {
#ifdef __linux__
  constexpr long askForPermission = 0x1023 /* ARCH_REQ_XCOMP_PERM */, dataOfTiles = 18 /* XFEATURE_XTILEDATA */;
  if (syscall(SYS_arch_prctl, askForPermission, dataOfTiles) != 0)
    return "the operating system refuses them to this process: " + std::generic_category().message(errno);
  return "";
#else
  return "this operating system is not known to permit them";
#endif
}

const Processor &Processor::host() {
  static const Processor host = [] {
    Processor host;
    host.name = llvm::sys::getHostCPUName().str();
    for (const auto &[feature, present] : llvm::sys::getHostCPUFeatures())
      host.features += (llvm::Twine(host.features.empty() ? "" : ",") + (present ? "+" : "-") + feature).str();
    std::string refusal = host.hasTiles() ? askForTiles() : "";
    return refusal.empty() ? host : host.withoutTiles(refusal);
  }();
  return host;
}

Processor Processor::withoutTiles(llvm::StringRef reason) const {
  // Taken away one by one: the processor's name alone stands for them.
  std::vector<std::string> items;
  for (llvm::StringRef item : llvm::split(features, ','))
    items.push_back(item.consume_front("+amx-") ? ("-amx-" + item).str() : item.str());
  return {name, llvm::join(items, ","), reason.str()};
}

Processor Processor::named(llvm::StringRef name) {
  llvm::SmallVector<llvm::StringRef> features;
  if (llvm::X86::parseArchX86(name) != llvm::X86::CK_None)
    llvm::X86::getFeaturesForCPU(name, features, /*NeedPlus=*/true);
  return {name.str(), llvm::join(features, ",")};
}

bool Processor::has(llvm::StringRef feature) const {
  for (llvm::StringRef item : llvm::split(features, ','))
    if (item.consume_front("+") && item == feature)
      return true;
  return false;
}

Instructions Processor::instructions() const {
  bool isWide = has("avx512f") && has("avx512vl") && has("avx512bw") && has("avx512dq");
  bool bf16 = isWide && has("avx512bf16");
  // Zen takes up a product of pairs in each cycle, as it does two of fp32 numbers in 512 bits in two. On Intel's
  // processors one of pairs takes two cycles, in which there is time for four of the others.
  bool gainsFromPairs = bf16 && llvm::StringRef(name).starts_with("znver");
  return {isWide ? 512 : 256, bf16, gainsFromPairs, bf16 && hasTiles()};
}

void Processor::explain(llvm::json::OStream &json) const {
  Instructions used = instructions();
  json.attributeArray("instructions", [&] {
    json.value(used.vectorBits == 512 ? "AVX512" : "AVX2");
    if (used.bf16)
      json.value("AVX512_BF16");
    if (used.bf16Tiles)
      json.value("AMX_BF16");
  });
  if (!whyNoTiles.empty())
    json.attribute("why_no_tiles", whyNoTiles);
}

//===----------------------------------------------------------------------===//
// Code generation
//===----------------------------------------------------------------------===//

static llvm::Error codegenError(const llvm::Twine &message) {
  return llvm::createStringError("CPU code generation failed: " + message);
}

static llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machineFor(const Processor &processor) {
  static const bool initialised = [] {
    return !llvm::InitializeNativeTarget() && !llvm::InitializeNativeTargetAsmPrinter();
  }();
  if (!initialised)
    return codegenError("LLVM was built without this machine's architecture");
  if (!processor.has("avx2") || !processor.has("fma"))
    return codegenError("the processor '" + processor.name + "' lacks AVX2 or FMA, which generated code needs");
  std::string error;
  llvm::Triple triple(llvm::sys::getProcessTriple());
  const llvm::Target *target = llvm::TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return codegenError(error);
  llvm::TargetOptions options;
  std::unique_ptr<llvm::TargetMachine> machine(target->createTargetMachine(triple, processor.name, processor.features,
                                                                           options, llvm::Reloc::PIC_, std::nullopt,
                                                                           llvm::CodeGenOptLevel::Default));
  if (!machine)
    return codegenError("no target machine for " + triple.str());
  return machine;
}

static llvm::Expected<std::string> emit(ModuleOp module, const Processor &processor, llvm::CodeGenFileType kind) {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = machineFor(processor);
  if (!machine)
    return machine.takeError();
  DialectRegistry registry;
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  module.getContext()->appendDialectRegistry(registry);
  llvm::LLVMContext context;
  std::unique_ptr<llvm::Module> code = translateModuleToLLVMIR(module, context);
  if (!code)
    return codegenError("the module has no LLVM IR");
  code->setTargetTriple((*machine)->getTargetTriple());
  code->setDataLayout((*machine)->createDataLayout());

  llvm::SmallVector<char, 0> buffer;
  llvm::raw_svector_ostream stream(buffer);
  // The code is explicit: what is left to do on LLVM IR is to share addresses and to move them out of loops.
  llvm::legacy::PassManager passes;
  passes.add(llvm::createEarlyCSEPass());
  passes.add(llvm::createLICMPass());
  if ((*machine)->addPassesToEmitFile(passes, stream, nullptr, kind, /*DisableVerify=*/true))
    return codegenError("the target emits no such file");
  passes.run(*code);
  return std::string(buffer.begin(), buffer.end());
}

llvm::Expected<std::string> stretto::cpu::emitObject(ModuleOp module, const Processor &processor) {
  return emit(module, processor, llvm::CodeGenFileType::ObjectFile);
}

llvm::Expected<std::string> stretto::cpu::emitAssembly(ModuleOp module, const Processor &processor) {
  return emit(module, processor, llvm::CodeGenFileType::AssemblyFile);
}

//===----------------------------------------------------------------------===//
// Loading
//===----------------------------------------------------------------------===//

/// What generated code may call: elementary functions without a vector form, and what LLVM makes of copies.
static llvm::orc::SymbolMap callableFunctions(llvm::orc::LLJIT &jit) {
  llvm::orc::SymbolMap symbols;
  auto add = [&](llvm::StringRef name, auto *function) {
    symbols[jit.mangleAndIntern(name)] = {llvm::orc::ExecutorAddr::fromPtr(function),
                                          llvm::JITSymbolFlags::Exported | llvm::JITSymbolFlags::Callable};
  };
#define STRETTO_ELEMENTARY(name)                                                                                       \
  add(#name, static_cast<double (*)(double)>(::name));                                                                 \
  add(#name "f", static_cast<float (*)(float)>(::name##f));
  STRETTO_ELEMENTARY(exp)
  STRETTO_ELEMENTARY(exp2)
  STRETTO_ELEMENTARY(log)
  STRETTO_ELEMENTARY(log1p)
  STRETTO_ELEMENTARY(tanh)
  STRETTO_ELEMENTARY(sin)
  STRETTO_ELEMENTARY(cos)
#undef STRETTO_ELEMENTARY
  add("pow", static_cast<double (*)(double, double)>(::pow));
  add("powf", static_cast<float (*)(float, float)>(::powf));
  add("fmod", static_cast<double (*)(double, double)>(::fmod));
  add("fmodf", static_cast<float (*)(float, float)>(::fmodf));
  add("memset", ::memset);
  add("memcpy", static_cast<void *(*)(void *, const void *, size_t)>(::memcpy));
  return symbols;
}

namespace {

/// One linker for the process; each object has a name space of its own.
struct Linker {
  std::unique_ptr<llvm::orc::LLJIT> jit;
  llvm::orc::JITDylib *library = nullptr; // the callable functions
  std::atomic<unsigned> objects = 0;

  explicit Linker(std::unique_ptr<llvm::orc::LLJIT> jit) : jit(std::move(jit)) {}
  static llvm::Expected<Linker *> instance();
};

class LoadedObject : public LoadedCode {
public:
  LoadedObject(Linker &linker, llvm::orc::JITDylib &names) : linker(linker), names(names) {}

  ~LoadedObject() override {
    // Nobody is left to hear of a failure; the memory is then kept.
    llvm::consumeError(linker.jit->getExecutionSession().removeJITDylib(names));
  }

  llvm::Expected<void *> find(llvm::StringRef symbol) override {
    llvm::Expected<llvm::orc::ExecutorAddr> address = linker.jit->lookup(names, symbol);
    if (!address)
      return address.takeError();
    return address->toPtr<void *>();
  }

private:
  Linker &linker;
  llvm::orc::JITDylib &names;
};

} // namespace

static llvm::Expected<Linker *> makeLinker() {
  llvm::Expected<std::unique_ptr<llvm::TargetMachine>> machine = machineFor(Processor::host());
  if (!machine)
    return machine.takeError();
  llvm::Expected<std::unique_ptr<llvm::orc::LLJIT>> jit =
      llvm::orc::LLJITBuilder()
          .setJITTargetMachineBuilder(llvm::orc::JITTargetMachineBuilder((*machine)->getTargetTriple()))
          .setLinkProcessSymbolsByDefault(false)
          .setPlatformSetUp(llvm::orc::setUpInactivePlatform)
          .create();
  if (!jit)
    return jit.takeError();
  auto linker = std::make_unique<Linker>(std::move(*jit));
  linker->library = &linker->jit->getExecutionSession().createBareJITDylib("library");
  if (llvm::Error error = linker->library->define(llvm::orc::absoluteSymbols(callableFunctions(*linker->jit))))
    return std::move(error);
  return linker.release(); // lives as long as the process, at whose end kernels may still run
}

llvm::Expected<Linker *> Linker::instance() {
  static std::string error;
  static Linker *const linker = [] {
    llvm::Expected<Linker *> made = makeLinker();
    if (!made)
      error = llvm::toString(made.takeError());
    return made ? *made : nullptr;
  }();
  if (!linker)
    return llvm::createStringError(error);
  return linker;
}

llvm::Expected<std::unique_ptr<LoadedCode>> LoadedCode::load(llvm::StringRef object) {
  llvm::Expected<Linker *> linker = Linker::instance();
  if (!linker)
    return linker.takeError();
  llvm::orc::LLJIT &jit = *(*linker)->jit;
  std::string name = "kernel" + std::to_string((*linker)->objects++);
  llvm::orc::JITDylib &names = jit.getExecutionSession().createBareJITDylib(name);
  auto loaded = std::make_unique<LoadedObject>(**linker, names);
  names.addToLinkOrder(*(*linker)->library);
  if (llvm::Error error = jit.addObjectFile(names, llvm::MemoryBuffer::getMemBufferCopy(object, name)))
    return std::move(error);
  return loaded;
}
