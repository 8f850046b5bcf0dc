//===- Compiler.cpp - From a variant to a kernel that runs ----------------===//

#include "runtime/Compiler.h"
#include "mlir/IR/BuiltinOps.h"
#include "passes/declaration/Specialize.h"
#include "runtime/Cache.h"
#include "runtime/DiagnosticText.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/TargetParser/Host.h"
#include "llvm/TargetParser/SubtargetFeature.h"
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
    llvm::SubtargetFeatures features;
    for (const auto &[feature, enabled] : llvm::sys::getHostCPUFeatures())
      features.AddFeature(feature, enabled);
    return Target{Kind::Cpu, llvm::sys::getHostCPUName().str(), features.getString()};
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
