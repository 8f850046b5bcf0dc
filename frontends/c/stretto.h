/* stretto.h - the C interface of libstretto.so, the only symbols it exports.
 *
 * Handles are opaque and belong to whoever created them. A context and everything made in it are used by one thread at
 * a time; a context outlives what was made in it.
 *
 * A function that can fail returns NULL or -1 then and sets `*error`, unless `error` is NULL, to a message of one or
 * more lines `file:line:column: error: ...`. Strings that are returned, messages among them, belong to the caller, who
 * releases them with strettoStringDestroy. Nothing keeps a pointer that it was passed. */
#ifndef STRETTO_FRONTENDS_C_STRETTO_H
#define STRETTO_FRONTENDS_C_STRETTO_H

/* C has no `using`, and its names are the compiler's. NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define STRETTO_EXPORT __attribute__((visibility("default")))

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StrettoContext StrettoContext;
typedef struct StrettoModule StrettoModule;
typedef struct StrettoBuilder StrettoBuilder;
typedef struct StrettoOutcome StrettoOutcome;

/* What of a kernel's form may be chosen: the tokens of a chunk, with which come the slices of the values, a power of
 * two, on a GPU the warps of a block and further ones that run ahead of these or find outputs behind them, and of a
 * gradient the walks back and the slices of walks that carry states alone. 0 tokens, warps or walks: the model chooses;
 * of the warps ahead and of outputs 0: none, fewer: it chooses. The blocks that a call has for each multiprocessor, 2
 * for more, are no choice, but what the model may go by. */
typedef struct {
  int64_t chunk, slices, warps, walks, walkSlices, ahead, blocks, outputs;
} StrettoForm;

/* A name and its value as text. */
typedef struct {
  const char *name, *value;
} StrettoSetting;

typedef struct {
  const StrettoSetting *items;
  size_t count;
} StrettoSettings;

typedef struct {
  const char *file;
  unsigned line, column;
} StrettoLocation;

STRETTO_EXPORT void strettoStringDestroy(char *text);

STRETTO_EXPORT StrettoContext *strettoContextCreate(void);
STRETTO_EXPORT void strettoContextDestroy(StrettoContext *context);

/*===-- Modules ------------------------------------------------------------------------------------------------===*/

/* Reads a module and verifies it. `name` stands for the file in messages. */
STRETTO_EXPORT StrettoModule *strettoModuleParse(StrettoContext *context, const char *text, size_t length,
                                                 const char *name, char **error);
STRETTO_EXPORT StrettoModule *strettoModuleLoad(StrettoContext *context, const char *path, char **error);
STRETTO_EXPORT void strettoModuleDestroy(StrettoModule *module);

STRETTO_EXPORT char *strettoModulePrint(const StrettoModule *module);

/* The signatures of all variants as JSON, a list of
 *   {"name", "summary",
 *    "arguments": [{"name", "kind": "row" | "parameter", "axes": [...], "heads", "optional", "attributes": {...}}],
 *    "results": [{"axes", "heads"}],
 *    "options": {name: {"default", "choices": [...] for a word}},
 *    "sizes": [named sizes of the arguments], "heads": [head sets]} */
STRETTO_EXPORT char *strettoModuleSignatures(const StrettoModule *module);

/* The state that the only variant carries from call to call as JSON, a list of
 *   {"name", "kind": "matrix" | "scan" | "tail" | "position", "heads", "axes": [...], "length" of a tail}
 * Its alternatives have to be decided (strettoModuleSpecialize). */
STRETTO_EXPORT char *strettoModuleState(const StrettoModule *module, char **error);

/* A module of one variant of this one, which may be left unnamed where there is only one. */
STRETTO_EXPORT StrettoModule *strettoModuleVariant(const StrettoModule *module, const char *name, char **error);

/* What a caller fixes of a variant. Values of `dims` and `heads` are integers; `absent` names optional arguments. */
typedef struct {
  StrettoSettings dims, heads, options;
  const char *const *absent;
  size_t absentCount;
} StrettoSpecialization;

/* A copy in which every variant is the program that the specialization chooses: what the pass stretto-specialize does.
 */
STRETTO_EXPORT StrettoModule *strettoModuleSpecialize(const StrettoModule *module,
                                                      const StrettoSpecialization *specialization, char **error);

/* A copy after a pipeline: passes and named pipelines, spelled as for stretto-opt's --pass-pipeline. */
STRETTO_EXPORT StrettoModule *strettoModuleRun(const StrettoModule *module, const char *pipeline, char **error);

/* The only variant of a specialised module as text at a stage of the compiler: "chunk", "kernel" (for a GPU), "llvm",
 * and "asm" (CPU) or "ptx" (GPU). `target` is "cpu" or a chip such as "sm_90a", `element` the type of its principal
 * inputs in memory: "f16", "bf16", "f32" or "f64". `part` is what computes its results, its form over single tokens, or
 * the kernels over segments that are walked side by side; of a call that is recorded the kernel of the results keeps
 * the states at the start of each chunk or of segments (`keeps`). `form` may fix what is null for the model to choose,
 * but of single tokens. */
typedef enum { STRETTO_RESULTS, STRETTO_STEP, STRETTO_SEGMENTS } StrettoPart;
typedef enum { STRETTO_KEEPS_NOTHING, STRETTO_KEEPS_CHUNKS, STRETTO_KEEPS_SEGMENTS } StrettoKeeps;
STRETTO_EXPORT char *strettoModuleLower(const StrettoModule *module, const char *stage, const char *target,
                                        const char *element, StrettoPart part, StrettoKeeps keeps,
                                        const StrettoForm *form, char **error);

/*===-- Building a declaration ---------------------------------------------------------------------------------===*/

/* A builder makes one variant, operation by operation; dialect/stretto/DeclarationBuilder.h says what it infers and
 * DeclarationVocabulary.cpp what the operations are. */
STRETTO_EXPORT StrettoBuilder *strettoBuilderCreate(StrettoContext *context, const char *name, const char *summary,
                                                    StrettoLocation location);
STRETTO_EXPORT void strettoBuilderDestroy(StrettoBuilder *builder);

/* Carries out one operation. Returns the number of its results and writes as many of them as `results` holds. */
STRETTO_EXPORT int strettoBuilderApply(StrettoBuilder *builder, const char *operation, const uint32_t *operands,
                                       size_t operandCount, StrettoSettings settings, StrettoLocation location,
                                       uint32_t *results, size_t capacity, char **error);

/* The size that a value stands for, as an expression over named sizes. */
STRETTO_EXPORT char *strettoBuilderSize(StrettoBuilder *builder, uint32_t value, StrettoLocation location,
                                        char **error);

/* Ends the declaration with the rows that it returns. */
STRETTO_EXPORT StrettoModule *strettoBuilderFinish(StrettoBuilder *builder, const uint32_t *results, size_t resultCount,
                                                   StrettoLocation location, char **error);

/*===-- Reference execution ------------------------------------------------------------------------------------===*/

/* A contiguous array with a name, last axis fastest. */
typedef struct {
  const char *name;
  const int64_t *shape;
  size_t rank;
  const double *values;
} StrettoArray;

typedef struct {
  const StrettoArray *items;
  size_t count;
} StrettoArrays;

/* A call of a variant: rows [B, T, heads(, width)] and parameters [heads, axes...] by name. `sequenceOffsets`, if not
 * NULL, are the starts of packed sequences and the end of the last. */
typedef struct {
  StrettoArrays arguments, initialState;
  StrettoSettings options;
  const int64_t *sequenceOffsets;
  size_t sequenceOffsetCount;
  int finalState;
  /* Entries of the final state that are wanted although the variant looks back at earlier tokens. */
  const char *const *finalEntries;
  size_t finalEntryCount;
} StrettoCall;

/* Runs a module's only variant in double precision, token by token (dialect/stretto/Interpreter.h). */
STRETTO_EXPORT StrettoOutcome *strettoModuleInterpret(const StrettoModule *module, const StrettoCall *call,
                                                      char **error);
STRETTO_EXPORT void strettoOutcomeDestroy(StrettoOutcome *outcome);

/* The results, named "", then the entries of the final state; they live as long as the outcome. */
STRETTO_EXPORT size_t strettoOutcomeCount(const StrettoOutcome *outcome);
STRETTO_EXPORT StrettoArray strettoOutcomeArray(const StrettoOutcome *outcome, size_t index);

/*===-- The command-line tools ---------------------------------------------------------------------------------===*/

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

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */

#endif /* STRETTO_FRONTENDS_C_STRETTO_H */
