//===- Assembler.cpp - From PTX to the code of a chip ---------------------===//

#include "runtime/Assembler.h"
#include "dialect/kernel/Chip.h"
#include <dlfcn.h>

using namespace stretto;

namespace {

// The part of the library's interface that is used, as its documentation declares it. Handles are opaque pointers, and
// every function returns 0 for success.
struct JitLink {
  int (*create)(void **, unsigned, const char **) = nullptr;
  int (*destroy)(void **) = nullptr;
  int (*addData)(void *, int, const void *, size_t, const char *) = nullptr;
  int (*complete)(void *) = nullptr;
  int (*getLinkedCubinSize)(void *, size_t *) = nullptr;
  int (*getLinkedCubin)(void *, void *) = nullptr;
  int (*getErrorLogSize)(void *, size_t *) = nullptr;
  int (*getErrorLog)(void *, char *) = nullptr;
  std::string problem;

  static const JitLink &instance() {
    static const JitLink library;
    return library;
  }

private:
  JitLink() {
    // PyTorch has opened that of its own CUDA.
    void *library = dlopen("libnvJitLink.so.13", RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      problem = "nvJitLink cannot be opened: " + std::string(dlerror());
      return;
    }
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function)
        problem = "nvJitLink has no function " + std::string(name);
    };
    find(create, "nvJitLinkCreate");
    find(destroy, "nvJitLinkDestroy");
    find(addData, "nvJitLinkAddData");
    find(complete, "nvJitLinkComplete");
    find(getLinkedCubinSize, "nvJitLinkGetLinkedCubinSize");
    find(getLinkedCubin, "nvJitLinkGetLinkedCubin");
    find(getErrorLogSize, "nvJitLinkGetErrorLogSize");
    find(getErrorLog, "nvJitLinkGetErrorLog");
  }
};

constexpr int inputIsPtx = 2;

/// One kernel that is assembled.
class Link {
public:
  explicit Link(const std::string &architecture) {
    const char *options[] = {architecture.c_str()};
    code = library.create(&handle, std::size(options), options);
  }
  ~Link() {
    if (handle)
      library.destroy(&handle);
  }
  Link(const Link &) = delete;
  Link &operator=(const Link &) = delete;

  llvm::Expected<std::string> assemble(llvm::StringRef ptx) {
    size_t size = 0;
    auto succeeds = [&](int result) { return (code = result) == 0; };
    if (code != 0 || !succeeds(library.addData(handle, inputIsPtx, ptx.data(), ptx.size(), "kernel")) ||
        !succeeds(library.complete(handle)) || !succeeds(library.getLinkedCubinSize(handle, &size)))
      return refusal();
    std::string cubin(size, '\0');
    if (!succeeds(library.getLinkedCubin(handle, cubin.data())))
      return refusal();
    return cubin;
  }

private:
  llvm::Error refusal() {
    std::string log;
    if (size_t size = 0; handle && library.getErrorLogSize(handle, &size) == 0 && size) {
      log.resize(size);
      if (library.getErrorLog(handle, log.data()) != 0)
        log.clear();
    }
    return llvm::createStringError("nvJitLink returns %d (%s)", code, log.c_str());
  }

  const JitLink &library = JitLink::instance();
  void *handle = nullptr;
  int code = 0;
};

} // namespace

const std::string &Assembler::problem() { return JitLink::instance().problem; }

llvm::Expected<std::string> Assembler::assemble(llvm::StringRef ptx, llvm::StringRef chip) {
  if (!problem().empty())
    return llvm::createStringError(problem());
  // Of others it ends the process. It knows those that we compile for.
  if (!kernel::Chip::find(chip))
    return llvm::createStringError("nvJitLink is not asked for code of '%s', which is no known chip",
                                   chip.str().c_str());
  return Link("-arch=" + chip.str()).assemble(ptx);
}
