//===- CudaDriver.cpp - Loading and launching kernels ---------------------===//

#include "runtime/CudaDriver.h"
#include "llvm/ADT/Twine.h"
#include <array>
#include <dlfcn.h>
#include <limits>

using namespace llvm;
using namespace stretto;

namespace {

// The part of the driver's interface that is used, as its documentation declares it. Handles are opaque pointers, and
// every function returns 0 for success.
struct Driver {
  int (*cuInit)(unsigned) = nullptr;
  int (*cuGetErrorString)(int, const char **) = nullptr;
  int (*cuDeviceGet)(int *, int) = nullptr;
  int (*cuDeviceGetAttribute)(int *, int, int) = nullptr;
  int (*cuDeviceGetName)(char *, int, int) = nullptr;
  int (*cuDevicePrimaryCtxRetain)(void **, int) = nullptr;
  int (*cuCtxGetCurrent)(void **) = nullptr;
  int (*cuCtxSetCurrent)(void *) = nullptr;
  int (*cuModuleLoadDataEx)(void **, const void *, unsigned, int *, void **) = nullptr;
  int (*cuModuleGetFunction)(void **, void *, const char *) = nullptr;
  int (*cuFuncSetAttribute)(void *, int, int) = nullptr;
  int (*cuFuncGetAttribute)(int *, int, void *) = nullptr;
  int (*cuOccupancyMaxActiveBlocksPerMultiprocessor)(int *, void *, int, size_t) = nullptr;
  int (*cuLaunchKernelEx)(const void *, void *, void **, void **) = nullptr;
  int (*cuMemsetD8Async)(uint64_t, unsigned char, size_t, void *) = nullptr;
  int (*cuTensorMapEncodeTiled)(void *, int, unsigned, void *, const uint64_t *, const uint64_t *, const unsigned *,
                                const unsigned *, int, int, int, int) = nullptr;
  std::string problem; // why the driver cannot be used, or empty

  static Driver &instance() {
    static Driver driver;
    return driver;
  }

private:
  Driver() {
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (!library) {
      problem = "the CUDA driver cannot be opened: " + std::string(dlerror());
      return;
    }
    auto find = [&](auto &function, const char *name) {
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (!function)
        problem = "the CUDA driver has no function " + std::string(name);
    };
    find(cuInit, "cuInit");
    find(cuGetErrorString, "cuGetErrorString");
    find(cuDeviceGet, "cuDeviceGet");
    find(cuDeviceGetAttribute, "cuDeviceGetAttribute");
    find(cuDeviceGetName, "cuDeviceGetName");
    find(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain");
    find(cuCtxGetCurrent, "cuCtxGetCurrent");
    find(cuCtxSetCurrent, "cuCtxSetCurrent");
    find(cuModuleLoadDataEx, "cuModuleLoadDataEx");
    find(cuModuleGetFunction, "cuModuleGetFunction");
    find(cuFuncSetAttribute, "cuFuncSetAttribute");
    find(cuFuncGetAttribute, "cuFuncGetAttribute");
    find(cuOccupancyMaxActiveBlocksPerMultiprocessor, "cuOccupancyMaxActiveBlocksPerMultiprocessor");
    find(cuLaunchKernelEx, "cuLaunchKernelEx");
    find(cuMemsetD8Async, "cuMemsetD8Async");
    find(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled");
    if (problem.empty() && cuInit(0) != 0)
      problem = "the CUDA driver cannot be initialised (is there a device?)";
  }
};

// A launch as the driver's interface describes it, with the one attribute that is used.
struct LaunchAttribute {
  unsigned id;
  alignas(8) int value;
  char otherBytes[60]; // of values that take more
};
struct LaunchDescription {
  unsigned blocks, blocksY, blocksZ, threads, threadsY, threadsZ, sharedBytes;
  void *stream;
  LaunchAttribute *attributes;
  unsigned attributeCount;
};
static_assert(sizeof(LaunchAttribute) == 72 && sizeof(LaunchDescription) == 56);

// Numbers of the driver's enumerations.
constexpr unsigned programmaticStreamSerialization = 6;
constexpr int localBytes = 3, maxDynamicSharedBytes = 8;
constexpr int multiprocessorCount = 16, secondLevelCacheBytes = 38, capabilityMajor = 75, capabilityMinor = 76;
constexpr int errorLogBuffer = 5, errorLogBytes = 6;

Error failed(const Twine &message) { return createStringError(inconvertibleErrorCode(), message); }

Error check(int code, const Twine &what) {
  if (code == 0)
    return Error::success();
  const char *text = nullptr;
  Driver::instance().cuGetErrorString(code, &text);
  return failed(what + ": " + (text ? text : "error " + std::to_string(code)));
}

/// The context that a device shares with PyTorch, made the calling thread's. A thread that has not used the device yet
/// has none.
Expected<void *> enterContext(int number) {
  static std::mutex mutex;
  static auto &contexts = *new std::map<int, void *>(); // kept until the process ends
  Driver &driver = Driver::instance();
  void *context = nullptr, *current = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex);
    void *&known = contexts[number];
    int device;
    if (!known) {
      if (Error error = check(driver.cuDeviceGet(&device, number), "cuDeviceGet"))
        return error;
      if (Error error = check(driver.cuDevicePrimaryCtxRetain(&known, device), "cuDevicePrimaryCtxRetain"))
        return error;
    }
    context = known;
  }
  if (Error error = check(driver.cuCtxGetCurrent(&current), "cuCtxGetCurrent"))
    return error;
  if (current != context)
    if (Error error = check(driver.cuCtxSetCurrent(context), "cuCtxSetCurrent"))
      return error;
  return context;
}

} // namespace

Error CudaDevice::clear(int number, void *memory, size_t bytes, void *stream) {
  if (Expected<void *> context = enterContext(number); !context)
    return context.takeError();
  return check(Driver::instance().cuMemsetD8Async(reinterpret_cast<uint64_t>(memory), 0, bytes, stream),
               "cuMemsetD8Async");
}

Expected<CudaDevice> CudaDevice::get(int number) {
  Driver &driver = Driver::instance();
  if (!driver.problem.empty())
    return failed(driver.problem);
  int device, major, minor;
  CudaDevice result;
  if (Error error = check(driver.cuDeviceGet(&device, number), "cuDeviceGet"))
    return error;
  for (auto [attribute, value] :
       {std::pair(capabilityMajor, &major), std::pair(capabilityMinor, &minor),
        std::pair(multiprocessorCount, &result.multiprocessors), std::pair(secondLevelCacheBytes, &result.cacheBytes)})
    if (Error error = check(driver.cuDeviceGetAttribute(value, attribute, device), "cuDeviceGetAttribute"))
      return error;
  result.capability = major * 10 + minor;
  std::array<char, 256> name = {};
  if (Error error = check(driver.cuDeviceGetName(name.data(), name.size(), device), "cuDeviceGetName"))
    return error;
  result.name = name.data();
  return result;
}

Expected<void *> CudaKernel::functionIn(void *context) {
  std::lock_guard<std::mutex> lock(mutex);
  if (auto found = functions.find(context); found != functions.end())
    return found->second;
  Driver &driver = Driver::instance();
  std::array<char, 8192> log = {};
  std::array<int, 2> options = {errorLogBuffer, errorLogBytes};
  // Options that are numbers travel as pointers. NOLINTNEXTLINE(performance-no-int-to-ptr)
  std::array<void *, 2> values = {log.data(), reinterpret_cast<void *>(log.size())};
  void *module = nullptr, *function = nullptr;
  int result = driver.cuModuleLoadDataEx(&module, code.c_str(), options.size(), options.data(), values.data());
  if (Error error = check(result, "the driver refuses the kernel '" + symbol + "' (" + log.data() + ")"))
    return error;
  if (Error error = check(driver.cuModuleGetFunction(&function, module, symbol.c_str()), "cuModuleGetFunction"))
    return error;
  if (Error error = check(driver.cuFuncSetAttribute(function, maxDynamicSharedBytes, static_cast<int>(sharedBytes)),
                          "the kernel '" + symbol + "' needs " + Twine(sharedBytes) + " bytes of shared memory"))
    return error;
  functions[context] = function;
  return function;
}

/// The driver's description of a tensor in place of ours.
static Error encode(MutableArrayRef<int64_t> words) {
  constexpr unsigned axes = 4;
  constexpr int promoteTo256Bytes = 3;
  // The driver wants 64 bytes' alignment of what it writes.
  struct alignas(64) {
    std::array<int64_t, Manifest::boxWords> words;
  } map;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  void *pointer = reinterpret_cast<void *>(static_cast<intptr_t>(words[0]));
  auto type = static_cast<int>(words[1]);
  int64_t bytesOfBox = words[2] * words[10];
  std::array<uint64_t, axes> sizes;
  std::array<uint64_t, axes - 1> strides;
  llvm::copy(words.slice(3, axes), sizes.begin());
  llvm::copy(words.slice(3 + axes, axes - 1), strides.begin());
  std::array<unsigned, axes> box = {static_cast<unsigned>(words[10]), 1, static_cast<unsigned>(words[11]), 1};
  std::array<unsigned, axes> everyElement = {1, 1, 1, 1};
  // The exchange of 16-byte pieces of as many bytes as a row of a box has: 32, 64 or 128; none of fewer.
  int exchange = bytesOfBox >= 128 ? 3 : bytesOfBox >= 64 ? 2 : bytesOfBox >= 32 ? 1 : 0;
  int code = Driver::instance().cuTensorMapEncodeTiled(&map, type, axes, pointer, sizes.data(), strides.data(),
                                                       box.data(), everyElement.data(), /*interleave=*/0, exchange,
                                                       promoteTo256Bytes, /*fill=*/0);
  if (code != 0)
    return check(code, "cuTensorMapEncodeTiled of " + Twine(sizes[0]) + " columns, " + Twine(sizes[1]) + " heads, " +
                           Twine(sizes[2]) + " tokens and " + Twine(sizes[3]) + " sequences, " + Twine(strides[0]) +
                           ", " + Twine(strides[1]) + " and " + Twine(strides[2]) + " bytes apart");
  llvm::copy(map.words, words.begin());
  return Error::success();
}

Error CudaKernel::encodeBoxes(MutableArrayRef<int64_t> words) {
  size_t place = hash_value(words[0]) % encodedPlaces;
  {
    std::lock_guard<std::mutex> lock(mutex);
    encoded.resize(encodedPlaces);
    if (const Encoded &known = encoded[place]; words == ArrayRef(known.words)) {
      llvm::copy(known.map, words.begin());
      return Error::success();
    }
  }
  Encoded made;
  llvm::copy(words, made.words.begin());
  if (Error error = encode(words))
    return error;
  llvm::copy(words, made.map.begin());
  std::lock_guard<std::mutex> lock(mutex);
  encoded[place] = made;
  return Error::success();
}

Expected<void *> CudaKernel::functionOn(int device) {
  if (const std::string &problem = Driver::instance().problem; !problem.empty())
    return failed(problem);
  Expected<void *> context = enterContext(device);
  if (!context)
    return context.takeError();
  return functionIn(*context);
}

Error CudaKernel::load(int device) { return functionOn(device).takeError(); }

Expected<int64_t> CudaKernel::spilledBytes(int device) {
  Expected<void *> function = functionOn(device);
  if (!function)
    return function.takeError();
  int bytes = 0;
  if (Error error = check(Driver::instance().cuFuncGetAttribute(&bytes, localBytes, *function), "cuFuncGetAttribute"))
    return error;
  return bytes;
}

Expected<int64_t> CudaKernel::residentBlocks(int device) {
  Expected<void *> function = functionOn(device);
  if (!function)
    return function.takeError();
  int blocks = 0;
  int code = Driver::instance().cuOccupancyMaxActiveBlocksPerMultiprocessor(
      &blocks, *function, static_cast<int>(threads), static_cast<size_t>(sharedBytes));
  if (Error error = check(code, "cuOccupancyMaxActiveBlocksPerMultiprocessor"))
    return error;
  return blocks;
}

Error CudaKernel::launch(int device, int64_t blocks, MutableArrayRef<int64_t> argument, int64_t firstBox,
                         void *stream) {
  if (blocks > std::numeric_limits<int32_t>::max())
    return failed("the kernel '" + symbol + "' needs " + Twine(blocks) + " blocks, more than a launch takes");
  Expected<void *> function = functionOn(device);
  if (!function)
    return function.takeError();
  for (size_t box = firstBox; box < argument.size(); box += Manifest::boxWords)
    if (Error error = encodeBoxes(argument.slice(box, Manifest::boxWords)))
      return error;
  void *parameters[] = {argument.data()};
  LaunchAttribute overlaps = {programmaticStreamSerialization, 1, {}};
  LaunchDescription launch = {.blocks = static_cast<unsigned>(blocks),
                              .blocksY = 1,
                              .blocksZ = 1,
                              .threads = static_cast<unsigned>(threads),
                              .threadsY = 1,
                              .threadsZ = 1,
                              .sharedBytes = static_cast<unsigned>(sharedBytes),
                              .stream = stream,
                              .attributes = &overlaps,
                              .attributeCount = awaitsLaunches ? 1u : 0u};
  return check(Driver::instance().cuLaunchKernelEx(&launch, *function, parameters, nullptr),
               "launching the kernel '" + symbol + "'");
}
