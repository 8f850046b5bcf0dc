//===- CudaDriver.h - Loading and launching kernels -------------*- C++ -*-===//
//
// The CUDA driver, opened when the first GPU kernel is loaded, so that one build serves machines with and without it.
// Nothing of the CUDA toolkit is needed, at build time or at run time; runtime/Assembler.h tells what gains from it.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_CUDADRIVER_H
#define STRETTO_RUNTIME_CUDADRIVER_H

#include "runtime/Assembler.h"
#include "runtime/Manifest.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <array>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace stretto {

/// A kernel as code of a chip, or in PTX, which the driver assembles for each device on which it is launched.
class CudaKernel {
public:
  CudaKernel(std::string code, const Manifest &manifest)
      : code(std::move(code)), symbol(manifest.symbol), threads(manifest.threads), sharedBytes(manifest.sharedBytes),
        awaitsLaunches(manifest.awaitsLaunches) {}

  /// Who made code of the PTX.
  llvm::StringRef assembler() const { return Assembler::isAssembled(code) ? "ptxas" : "driver"; }

  /// Has the driver load the kernel for a device before it is launched there.
  llvm::Error load(int device);

  /// Launches `blocks` blocks on a stream of a device, with the words of `argument` as the kernel's one parameter; from
  /// the word `firstBox` on they describe tensors (runtime/TensorBoxes.h), in place of which the driver's own
  /// descriptions come first. The error says what the driver says.
  llvm::Error launch(int device, int64_t blocks, llvm::MutableArrayRef<int64_t> argument, int64_t firstBox,
                     void *stream);
  /// The bytes of memory that each thread keeps registers in which the chip has no room for.
  llvm::Expected<int64_t> spilledBytes(int device);
  /// The blocks that run on a multiprocessor at the same time.
  llvm::Expected<int64_t> residentBlocks(int device);

private:
  /// The loaded function on a device, whose context is the thread's then, and in a context.
  llvm::Expected<void *> functionOn(int device);
  llvm::Expected<void *> functionIn(void *context);
  /// Puts the driver's description of a tensor in the place of ours.
  llvm::Error encodeBoxes(llvm::MutableArrayRef<int64_t> words);

  std::string code, symbol;
  int64_t threads, sharedBytes;
  bool awaitsLaunches;
  std::mutex mutex;
  std::map<void *, void *> functions; // by context; modules live as long as the process

  /// What the driver made of descriptions last. Calls that follow each other often find their tensors where others
  /// were, and the driver takes longer to describe one than to compare what it would be told.
  struct Encoded {
    std::array<int64_t, Manifest::boxWords> words = {}, map = {};
  };
  static constexpr size_t encodedPlaces = 64;
  std::vector<Encoded> encoded; // by a hash of the pointer
};

struct CudaDevice {
  int capability = 0; // such as 90 for an H200
  int multiprocessors = 0;
  int cacheBytes = 0; // of the second level
  std::string name;   // such as "NVIDIA H200"

  /// A device by its number, or an error where there is no driver or device.
  static llvm::Expected<CudaDevice> get(int number);
  /// Sets bytes of a device's memory to 0 on a stream of it.
  static llvm::Error clear(int number, void *memory, size_t bytes, void *stream);
};

} // namespace stretto

#endif // STRETTO_RUNTIME_CUDADRIVER_H
