//===- Compiler.cpp - From a variant to a kernel that runs ----------------===//

#include "runtime/Compiler.h"
#include "mlir/Pass/PassManager.h"
#include "passes/Passes.h"
#include "passes/declaration/Specialize.h"
#include "runtime/Assembler.h"
#include "runtime/Cache.h"
#include "runtime/DiagnosticText.h"
#include "runtime/Knobs.h"
#include "runtime/Lowering.h"
#include "runtime/OwnModule.h"
#include "llvm/Config/llvm-config.h"
#include <chrono>
#include <elf.h>
#include <link.h>
#include <mutex>
#include <thread>

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Targets and builds
//===----------------------------------------------------------------------===//

Target Target::host() {
  static const Target host = [] {
    cpu::Processor processor = cpu::Processor::host();
    if (!processor.whyNoTiles.empty())
      note("products of bf16 do without AMX, which the processor has: " + processor.whyNoTiles);
    else if (processor.hasTiles() && !Knobs::instance().tiles)
      processor = processor.withoutTiles("STRETTO_TILES is 0");
    return Target{Kind::Cpu, processor.name, processor.features, processor.whyNoTiles};
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
          bool isOurs = llvm::any_of(segments, [&](const ElfW(Phdr) & segment) {
            return segment.p_type == PT_LOAD && search.address - object->dlpi_addr - segment.p_vaddr < segment.p_memsz;
          });
          if (!isOurs)
            return 0;
          for (const ElfW(Phdr) &segment : segments) {
            if (segment.p_type != PT_NOTE)
              continue;
            // The loader gives addresses as numbers. NOLINTNEXTLINE(performance-no-int-to-ptr)
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
// Loading
//===----------------------------------------------------------------------===//

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
    kernel->cuda = std::make_unique<CudaKernel>(std::move(image.code), image.manifest);
  }
  kernel->manifest = std::move(image.manifest);
  kernel->tables = std::move(image.tables);
  return kernel;
}

//===----------------------------------------------------------------------===//
// Finding and keeping
//===----------------------------------------------------------------------===//

KernelRequest KernelRequest::ofLeft(int64_t chunkOfItems, int64_t slicesOfItems) const {
  KernelRequest left = *this;
  left.takesLeft = true;
  // Work items, and their chunks, are the same.
  left.chunk = chunkOfItems;
  left.slices = slicesOfItems;
  left.warps = left.ahead = left.outputs = 0;
  return left;
}

/// All that the code depends on.
static CacheKey keyOf(ModuleOp specialised, const KernelRequest &request) {
  std::string program, types = nameOf(request.element).str();
  llvm::raw_string_ostream(program) << specialised;
  for (const auto &[name, type] : request.others)
    types += (" " + name + "=" + nameOf(type)).str();
  static constexpr const char *parts[] = {"results",
                                          "step",
                                          "segment starts",
                                          "checkpoints",
                                          "rows",
                                          "cotangents",
                                          "cotangent writes",
                                          "cotangent starts",
                                          "cotangent tails",
                                          "sum turns",
                                          "gradient",
                                          "later",
                                          "sums",
                                          "systems",
                                          "segments",
                                          "segment systems",
                                          "apart",
                                          "tails",
                                          "totals",
                                          "total starts",
                                          "transitions",
                                          "writes",
                                          "starts"};
  static_assert(std::size(parts) == static_cast<size_t>(KernelRequest::Part::Starts) + 1, "each part has its name");
  static constexpr const char *keeps[] = {"", "keeps states of chunks", "keeps states of segments"};
  return CacheKey::of({buildIdentity(), program, types, parts[static_cast<int>(request.part)],
                       std::to_string(request.slices), std::to_string(request.chunk), std::to_string(request.warps),
                       std::to_string(request.ahead), std::to_string(request.outputs), std::to_string(request.blocks),
                       std::to_string(request.walks), std::to_string(request.isOfGradient() ? request.walkSlices : 1),
                       request.continues ? "continues" : "", request.sideBySide ? "side by side" : "",
                       request.takesLeft ? "takes left" : "", keeps[static_cast<int>(request.keeps)],
                       request.target.name, request.target.features});
}

/// All requests of a program that choose a form together: one key for what segments, or a gradient, consist of.
static std::string familyOf(ModuleOp specialised, KernelRequest request) {
  request.part = request.isOfGradient() ? KernelRequest::Part::Checkpoints : KernelRequest::Part::Segments;
  request.keeps = Keeps::Nothing;
  return keyOf(specialised, request).digest;
}

/// Takes the code of the chip in place of PTX, where there is a program that makes it. What the driver assembles, one
/// kernel after the other, `explain` tells.
static void assemble(KernelImage &image, const Target &target) {
  const Assembler *assembler = target.kind == Target::Kind::Cuda ? Assembler::instance() : nullptr;
  if (!assembler)
    return;
  if (llvm::Expected<std::string> code = assembler->assemble(image.code, target.name))
    image.code = std::move(*code);
  else
    note("the kernel '" + image.manifest.symbol +
         "' is left to the driver's assembler: " + llvm::toString(code.takeError()));
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

llvm::Expected<OwningOpRef<ModuleOp>> stretto::differentiated(VariantOp program, const GradientOf &request) {
  DiagnosticText diagnostics(program.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(program.getLoc());
  module->push_back(program->clone());
  PassManager passes(program.getContext());
  DifferentiateOptions options;
  llvm::append_range(options.wanted, request.wanted);
  llvm::append_range(options.zero, request.zero);
  options.saved = request.takesSaved;
  passes.addPass(createDifferentiate(options));
  if (failed(passes.run(*module)))
    return diagnostics.takeError();
  (*module->getOps<VariantOp>().begin())->erase(); // the program itself
  return module;
}

llvm::Expected<std::shared_ptr<CompiledKernel>> stretto::compileKernel(VariantOp variant,
                                                                       const KernelRequest &request) {
  auto start = std::chrono::steady_clock::now();
  DiagnosticText diagnostics(variant.getContext());
  OwningOpRef<ModuleOp> module = ModuleOp::create(variant.getLoc());
  module->push_back(variant->clone());
  VariantOp program = *module->getOps<VariantOp>().begin();
  if (failed(specialize(program, request.settings)))
    return diagnostics.takeError();
  if (request.savesRows) {
    PassManager passes(program.getContext());
    passes.addNestedPass<VariantOp>(createSaveRows());
    if (failed(passes.run(*module)))
      return diagnostics.takeError();
  }
  if (request.isOfGradient()) {
    if (llvm::Error error = differentiated(program, *request.gradient).moveInto(module))
      return error;
    program = *module->getOps<VariantOp>().begin();
  }
  CacheKey key = keyOf(*module, request);

  // Whoever asks for a kernel that is being compiled waits for it here.
  struct Entry {
    std::mutex mutex;
    std::shared_ptr<CompiledKernel> kernel;
  };
  static std::mutex mutex;
  static std::map<std::string, Entry> entries;
  Entry &entry = [&]() -> Entry & {
    std::lock_guard<std::mutex> lock(mutex);
    return entries[key.digest];
  }();
  std::lock_guard<std::mutex> lock(entry.mutex);
  std::shared_ptr<CompiledKernel> &kernel = entry.kernel;
  if (!kernel)
    kernel = loadKept(key, request.target.kind);
  if (!kernel) {
    llvm::Expected<KernelImage> image = generate(program, request, familyOf(*module, request));
    if (!image)
      return image.takeError();
    assemble(*image, request.target);
    DiskCache::instance().store(key, image->pack());
    auto loaded = load(std::move(*image), request.target.kind);
    if (!loaded)
      return loaded.takeError();
    kernel = std::move(*loaded);
    kernel->milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  }
  return kernel;
}

void stretto::compileAhead(StringRef text, ArrayRef<KernelRequest> requests, int device,
                           llvm::function_ref<bool()> mayBegin) {
  std::atomic<size_t> next = 0;
  auto work = [&] {
    OwnModule own(text);
    VariantOp variant = own.variant();
    if (!variant)
      return;
    for (size_t index = next++; index < requests.size() && mayBegin(); index = next++)
      if (auto kernel = compileKernel(variant, requests[index]); !kernel)
        llvm::consumeError(kernel.takeError());
      else if ((*kernel)->cuda)
        llvm::consumeError((*kernel)->cuda->load(device));
  };
  size_t count = std::min<size_t>(std::max(std::thread::hardware_concurrency(), 1u), requests.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < count; ++i)
    threads.emplace_back(work);
  work();
  for (std::thread &thread : threads)
    thread.join();
}
