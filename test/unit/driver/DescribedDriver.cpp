//===- DescribedDriver.cpp - A CUDA driver of a device that is not there --===//
//
// What the runtime asks of a driver (runtime/CudaDriver.cpp), answered for a described H200: kernels are taken without
// being looked at, and nothing runs. Tests see with it what calls on a GPU would be given.
//
//===----------------------------------------------------------------------===//

#include <cstddef>
#include <cstdint>
#include <cstdio>

namespace {
constexpr int invalidValue = 1;
int handle; // what every handle points to
} // namespace

extern "C" {

int cuInit(unsigned) { return 0; }

int cuGetErrorString(int, const char **text) {
  *text = "the described device does not do that";
  return 0;
}

int cuDeviceGet(int *device, int number) {
  *device = number;
  return number == 0 ? 0 : invalidValue;
}

int cuDeviceGetAttribute(int *value, int attribute, int) {
  switch (attribute) {
  case 16: // multiprocessors
    *value = 132;
    return 0;
  case 38: // bytes of the second-level cache
    *value = 62914560;
    return 0;
  case 75: // compute capability, major and minor
    *value = 9;
    return 0;
  case 76:
    *value = 0;
    return 0;
  default:
    return invalidValue;
  }
}

int cuDeviceGetName(char *name, int size, int) {
  std::snprintf(name, size, "a described H200");
  return 0;
}

int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &handle;
  return 0;
}

int cuCtxGetCurrent(void **context) {
  *context = &handle;
  return 0;
}

int cuCtxSetCurrent(void *) { return 0; }

int cuModuleLoadDataEx(void **module, const void *, unsigned, int *, void **) {
  *module = &handle;
  return 0;
}

int cuModuleGetFunction(void **function, void *, const char *) {
  *function = &handle;
  return 0;
}

int cuFuncSetAttribute(void *, int, int) { return 0; }

int cuFuncGetAttribute(int *value, int, void *) {
  *value = 0;
  return 0;
}

int cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *, int threads, size_t) {
  *blocks = threads > 128 ? 1 : 2;
  return 0;
}

int cuLaunchKernelEx(const void *, void *, void **, void **) { return invalidValue; }

int cuMemsetD8Async(uint64_t, unsigned char, size_t, void *) { return invalidValue; }

/// The first word of a description is its number.
int cuTensorMapEncodeTiled(void *map, int, unsigned, void *pointer, const uint64_t *, const uint64_t *,
                           const unsigned *, const unsigned *, int, int, int, int) {
  static uint64_t made = 0;
  if (!pointer)
    return invalidValue;
  *static_cast<uint64_t *>(map) = ++made;
  return 0;
}
}
