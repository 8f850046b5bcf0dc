//===- Compiler.cpp - From a variant to a kernel that runs ----------------===//

#include "runtime/Compiler.h"
#include "codegen/cpu/NativeCode.h"
#include "codegen/nvptx/Nvptx.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "passes/Pipelines.h"
#include "passes/declaration/Specialize.h"
#include "runtime/Cache.h"
#include "runtime/DiagnosticText.h"
#include "llvm/Config/llvm-config.h"
#include <chrono>
#include <elf.h>
#include <link.h>
#include <mutex>

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Targets and builds
//===----------------------------------------------------------------------===//

Target Target::host() {
  static const Target host = [] {
    cpu::Processor processor = cpu::Processor::host();
    return Target{Kind::Cpu, processor.name, processor.features};
  }();
  return host;
}

Target Target::cuda(int capability) {
  // Only these chips have instructions of their own, which no later chip takes over.
  bool hasOwn = capability == 90;
  return {Kind::Cuda, "sm_" + std::to_string(capability) + (hasOwn ? "a" : ""), ""};
}

StringRef stretto::buildIdentity() {
  // The linker's digest of this library, from the notes of the object that this function lies in.
  static const std::string identity = [] {
    struct Search {
      uintptr_t address;
      std::string found;
    } search{reinterpret_cast<uintptr_t>(&stretto::buildIdentity), {}};
    dl_iterate_phdr(
        [](dl_phdr_info *object, size_t, void *data) -> int {
          auto &search = *static_cast<Search *>(data);
          ArrayRef<ElfW(Phdr)> segments(object->dlpi_phdr, object->dlpi_phnum);
          bool isOurs = llvm::any_of(segments, [&](const ElfW(Phdr) &segment) {
            return segment.p_type == PT_LOAD && search.address - object->dlpi_addr - segment.p_vaddr < segment.p_memsz;
          });
          if (!isOurs)
            return 0;
          for (const ElfW(Phdr) &segment : segments) {
            if (segment.p_type != PT_NOTE)
              continue;
            auto *position = reinterpret_cast<const char *>(object->dlpi_addr + segment.p_vaddr);
            for (const char *end = position + segment.p_memsz; position < end;) {
              auto *note = reinterpret_cast<const ElfW(Nhdr) *>(position);
              const char *name = position + sizeof(*note), *content = name + llvm::alignTo(note->n_namesz, 4);
              if (note->n_type == NT_GNU_BUILD_ID && StringRef(name, note->n_namesz) == StringRef("GNU\0", 4))
                search.found.assign(content, note->n_descsz);
              position = content + llvm::alignTo(note->n_descsz, 4);
            }
          }
          return 1;
        },
        &search);
    return search.found.empty() ? "" : search.found + LLVM_VERSION_STRING;
  }();
  return identity;
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

namespace {

/// What is kept of a compiled kernel: all that another process needs to run it.
struct KernelImage {
  Manifest manifest;
  std::string tables; // the text of a module of chunk.tables
  std::string code;   // object code, or PTX

  std::string pack() const;
  static llvm::Expected<KernelImage> unpack(StringRef packed);
};

} // namespace

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

/// What the pipeline to the chunk level needs. A core's caches hold the tiles of few tokens; the matrix instructions of
/// a GPU want more.
static void fillOptions(PipelineOptions &options, const KernelRequest &request) {
  options.chunk = request.target.kind == Target::Kind::Cpu ? 32 : 64;
  options.slices = request.slices;
  options.element = nameOf(request.element).str();
  for (const auto &[name, type] : request.others)
    options.elements.push_back((name + "=" + nameOf(type)).str());
}

/// The text of the tables of a module.
static std::string printTables(ModuleOp module) {
  OwningOpRef<ModuleOp> tables = ModuleOp::create(module.getLoc());
  for (auto table : module.getOps<chunk::TableOp>())
    tables->push_back(table->clone());
  std::string text;
  llvm::raw_string_ostream(text) << *tables;
  return text;
}

/// Lowers the only chunk kernel of a module to code for a target.
static llvm::Expected<KernelImage> generate(ModuleOp module, const Target &target, DiagnosticText &diagnostics) {
  chunk::KernelOp kernel = *module.getOps<chunk::KernelOp>().begin();
  FailureOr<Manifest> manifest = Manifest::of(kernel);
  if (failed(manifest))
    return diagnostics.takeError();
  KernelImage image = {std::move(*manifest), printTables(module), ""};

  PassManager passes(module.getContext());
  if (target.kind == Target::Kind::Cpu) {
    cpu::Processor processor = {target.name, target.features};
    cpu::buildPipeline(passes, processor.vectorBits());
    if (failed(passes.run(module)))
      return diagnostics.takeError();
    auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(image.manifest.symbol);
    image.manifest.scratchBytes = function->getAttrOfType<IntegerAttr>("stretto.scratch_bytes").getInt();
    llvm::Expected<std::string> object = cpu::emitObject(module, processor);
    if (!object)
      return object.takeError();
    image.code = std::move(*object);
    return image;
  }
  buildNvptxPipeline(passes, target.name);
  if (failed(passes.run(module)))
    return diagnostics.takeError();
  auto function = module.lookupSymbol<LLVM::LLVMFuncOp>(image.manifest.symbol);
  llvm::Expected<Manifest> planned =
      Manifest::fromJson(function->getAttrOfType<StringAttr>(Manifest::attributeName).getValue());
  if (!planned)
    return planned.takeError();
  image.manifest = std::move(*planned);
  FailureOr<std::string> ptx = translateToPtx(module, target.name);
  if (failed(ptx))
    return diagnostics.takeError();
  image.code = std::move(*ptx);
  return image;
}

static llvm::Expected<KernelImage> compile(VariantOp program, const KernelRequest &request) {
  DiagnosticText diagnostics(program.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(program.getLoc());
  module->push_back(program->clone());
  PassManager passes(program.getContext());
  PipelineOptions options;
  fillOptions(options, request);
  buildPipeline(passes, options, Level::Chunk);
  if (failed(passes.run(*module)))
    return diagnostics.takeError();
  return generate(*module, request.target, diagnostics);
}

/// Makes an image executable in this process.
static llvm::Expected<std::shared_ptr<CompiledKernel>> load(KernelImage image, Target::Kind target) {
  auto kernel = std::make_shared<CompiledKernel>();
  if (target == Target::Kind::Cpu) {
    llvm::Expected<std::unique_ptr<cpu::LoadedCode>> code = cpu::LoadedCode::load(image.code);
    if (!code)
      return code.takeError();
    llvm::Expected<void *> function = (*code)->find(image.manifest.symbol);
    if (!function)
      return function.takeError();
    kernel->function = reinterpret_cast<CompiledKernel::CpuFunction>(*function);
    kernel->code = std::move(*code);
  } else {
    kernel->cuda = std::make_unique<CudaKernel>(std::move(image.code), image.manifest.symbol, image.manifest.threads,
                                                image.manifest.sharedBytes);
  }
  kernel->manifest = std::move(image.manifest);
  kernel->tables = std::move(image.tables);
  return kernel;
}

//===----------------------------------------------------------------------===//
// Finding and keeping
//===----------------------------------------------------------------------===//

/// All that the code depends on.
static CacheKey keyOf(ModuleOp specialised, const KernelRequest &request) {
  std::string program, types = nameOf(request.element).str();
  llvm::raw_string_ostream(program) << specialised;
  for (const auto &[name, type] : request.others)
    types += (" " + name + "=" + nameOf(type)).str();
  return CacheKey::of(
      {buildIdentity(), program, types, std::to_string(request.slices), request.target.name, request.target.features});
}

/// The kernel of an entry of the cache on disk, or nothing; what cannot be read is compiled again.
static std::shared_ptr<CompiledKernel> loadKept(const CacheKey &key, Target::Kind target) {
  std::optional<std::string> packed = DiskCache::instance().load(key);
  if (!packed)
    return nullptr;
  llvm::Expected<KernelImage> image = KernelImage::unpack(*packed);
  auto kernel = image ? load(std::move(*image), target) : image.takeError();
  if (!kernel) {
    note("a cached kernel cannot be used (" + llvm::toString(kernel.takeError()) + "); compiling it again");
    return nullptr;
  }
  (*kernel)->fromCache = true;
  return *kernel;
}

llvm::Expected<std::shared_ptr<CompiledKernel>> stretto::compileKernel(VariantOp variant, const KernelRequest &request) {
  auto start = std::chrono::steady_clock::now();
  DiagnosticText diagnostics(variant.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(variant.getLoc());
  module->push_back(variant->clone());
  VariantOp program = *module->getOps<VariantOp>().begin();
  if (failed(specialize(program, request.settings)))
    return diagnostics.takeError();
  CacheKey key = keyOf(*module, request);

  // Whoever asks for a kernel that is being compiled waits for it here.
  static std::mutex mutex;
  static std::map<std::string, std::shared_ptr<CompiledKernel>> kernels;
  std::lock_guard<std::mutex> lock(mutex);
  std::shared_ptr<CompiledKernel> &kernel = kernels[key.digest];
  if (!kernel)
    kernel = loadKept(key, request.target.kind);
  if (!kernel) {
    llvm::Expected<KernelImage> image = compile(program, request);
    if (!image)
      return image.takeError();
    DiskCache::instance().store(key, image->pack());
    auto loaded = load(std::move(*image), request.target.kind);
    if (!loaded)
      return loaded.takeError();
    kernel = std::move(*loaded);
    kernel->milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return kernel;
}
