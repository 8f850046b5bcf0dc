/* stretto.h - the C interface of libstretto.so, the only symbols it exports. */
#ifndef STRETTO_FRONTENDS_C_STRETTO_H
#define STRETTO_FRONTENDS_C_STRETTO_H

#define STRETTO_EXPORT __attribute__((visibility("default")))

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The command-line tools. */
STRETTO_EXPORT int strettoOptMain(int argc, char **argv);
STRETTO_EXPORT int strettoTranslateMain(int argc, char **argv);
STRETTO_EXPORT int strettoLspServerMain(int argc, char **argv);

/* One chunk kernel compiled for this machine's CPU, below all that the runtime does about it: for tests and benchmarks
   of code generation. `text` is a module that holds a single chunk.kernel. On failure the result is null and `*error`
   a message, to be freed by strettoFree. */
typedef struct StrettoCpuKernel StrettoCpuKernel;
typedef void (*StrettoCpuFunction)(const int64_t *block, int64_t begin, int64_t end, char *scratch);
typedef struct {
  StrettoCpuFunction function;
  int64_t scratchBytes;
  double milliseconds; /* from text to function */
} StrettoCpuKernelInfo;
STRETTO_EXPORT StrettoCpuKernel *strettoCpuKernelCompile(const char *text, int64_t vectorBits,
                                                         StrettoCpuKernelInfo *info, char **error);
STRETTO_EXPORT void strettoCpuKernelDestroy(StrettoCpuKernel *kernel);
STRETTO_EXPORT void strettoFree(char *text);

#ifdef __cplusplus
}
#endif

#endif /* STRETTO_FRONTENDS_C_STRETTO_H */
