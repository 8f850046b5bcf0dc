/* operator.h - Calling variants, for the layers that connect tensor libraries.
 *
 * An operator is made from the text of a module with one variant. A call describes its tensors; checking it gives a
 * signature, which says what the results look like; running it needs their memory and what the executor lends.
 *
 * Conventions are those of stretto.h. Operators may be called from several threads. */
#ifndef STRETTO_FRONTENDS_C_OPERATOR_H
#define STRETTO_FRONTENDS_C_OPERATOR_H

/* C has no `using`, and its names are the compiler's. NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */

#include "frontends/c/stretto.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct StrettoOperator StrettoOperator;
typedef struct StrettoSignature StrettoSignature;
typedef struct StrettoCheckedCall StrettoCheckedCall;

/* Types of the entries of a tensor. */
typedef enum { STRETTO_F16, STRETTO_BF16, STRETTO_F32, STRETTO_F64, STRETTO_I64, STRETTO_OTHER } StrettoElement;

typedef struct {
  const char *name;
  bool isParameter, isOptional;
} StrettoInput;

typedef enum { STRETTO_NUMBER, STRETTO_CONDITION, STRETTO_WORD } StrettoOptionKind;

typedef struct {
  const char *name;
  StrettoOptionKind kind;
  const char *fallback; /* the default, as text */
} StrettoOption;

/* A tensor of the caller. Strides count elements. */
typedef struct {
  bool isPresent;
  void *data;
  StrettoElement element;
  const char *elementName; /* for messages */
  int32_t device;          /* -1: the CPU; otherwise the number of a CUDA device */
  int32_t rank;
  const int64_t *sizes, *strides;
} StrettoTensor;

/* A step is one token for each sequence, whose rows have no axis for time; its state is updated where it lies, the row
 * of each sequence being that of its slot, if slots are given; a sequence of slot -1 is left out. */
typedef struct {
  bool isStep;
  const StrettoTensor *arguments;    /* one for each input */
  const char *const *options;        /* one for each option; null for the default */
  const StrettoTensor *initialState; /* one for each entry, or none */
  size_t initialStateCount;
  StrettoTensor sequenceOffsets;
  StrettoTensor slots;
  const StrettoForm *form; /* of its kernels; null: as is chosen for such calls */
  bool savesRows;          /* rows are left for its gradient, behind the results */
  int64_t gradientBytes; /* of memory that its gradient may take to work with; 0: as its largest input so many times */
} StrettoOperatorCall;

/* What a result (after batch and time) or an entry of the state (after the sequences) looks like. */
typedef struct {
  const char *name; /* of an entry */
  bool isTail;      /* an entry with rows before its heads */
  StrettoElement element;
  size_t rank;
  const int64_t *sizes;
  int32_t window; /* of an entry that the caller keeps: the input whose last rows it holds; otherwise -1 */
} StrettoShape;

/* What the caller lends. On the CPU `threads` and `parallelFor`; on a CUDA device, whose context is current, `stream`
 * and `upload`, which copies to memory of the device that is never released. `warn` tells the user. `addUp` leaves in
 * `sum` the sums over the axis 3 of `parts`, whose device and type's name are not told. With `packed` these are the
 * tokens [first, first + tokens) of each of packed sequences, as far as they exist: those of sequence n lie from the
 * place min(n * tokens, offsets[n]) of `parts` on, and their sums belong to the token offsets[n] + first and on. */
typedef struct {
  StrettoTensor offsets;
  int64_t first, tokens;
} StrettoPackedSegment;
typedef void (*StrettoBody)(int64_t begin, int64_t end, void *context);
typedef struct {
  void *context;
  int64_t threads;
  void (*parallelFor)(void *context, int64_t count, StrettoBody body, void *bodyContext);
  void *stream;
  void *(*upload)(void *context, const void *bytes, size_t count);
  void (*warn)(void *context, const char *message);
  void (*addUp)(void *context, const StrettoTensor *parts, const StrettoTensor *sum,
                const StrettoPackedSegment *packed);
} StrettoExecutor;

STRETTO_EXPORT StrettoOperator *strettoOperatorCreate(const char *module, size_t length, char **error);
STRETTO_EXPORT void strettoOperatorDestroy(StrettoOperator *op);
STRETTO_EXPORT const char *strettoOperatorName(const StrettoOperator *op);
/* 64 hexadecimal digits, the same for two declarations that print the same. */
STRETTO_EXPORT const char *strettoOperatorDigest(const StrettoOperator *op);
STRETTO_EXPORT size_t strettoOperatorInputCount(const StrettoOperator *op);
STRETTO_EXPORT StrettoInput strettoOperatorInput(const StrettoOperator *op, size_t index);
STRETTO_EXPORT size_t strettoOperatorOptionCount(const StrettoOperator *op);
STRETTO_EXPORT StrettoOption strettoOperatorOption(const StrettoOperator *op, size_t index);
STRETTO_EXPORT size_t strettoOperatorResultCount(const StrettoOperator *op);
/* Whether some calls can save rows for their gradients. */
STRETTO_EXPORT bool strettoOperatorMaySaveRows(const StrettoOperator *op);

/* Checks all of a call but contents. The signature belongs to the operator. */
STRETTO_EXPORT StrettoSignature *strettoOperatorCheck(StrettoOperator *op, const StrettoOperatorCall *call,
                                                      char **error);
STRETTO_EXPORT size_t strettoSignatureStateCount(const StrettoSignature *signature);
STRETTO_EXPORT StrettoShape strettoSignatureState(const StrettoSignature *signature, size_t index);
STRETTO_EXPORT StrettoShape strettoSignatureResult(const StrettoSignature *signature, size_t index);
/* What a call that saves rows for its gradient leaves behind its results. */
STRETTO_EXPORT size_t strettoSignatureSavedCount(const StrettoSignature *signature);
STRETTO_EXPORT StrettoShape strettoSignatureSaved(const StrettoSignature *signature, size_t index);
/* The results that a gradient takes beside these, by position. */
STRETTO_EXPORT size_t strettoSignatureTakenResultCount(const StrettoSignature *signature);
STRETTO_EXPORT size_t strettoSignatureTakenResult(const StrettoSignature *signature, size_t index);

/* The same of a call that is to run. What describes its tensors outlives it; it is used by one thread. */
STRETTO_EXPORT StrettoCheckedCall *strettoCheckedCallCreate(StrettoOperator *op, const StrettoOperatorCall *call,
                                                            char **error);
STRETTO_EXPORT void strettoCheckedCallDestroy(StrettoCheckedCall *call);
STRETTO_EXPORT StrettoSignature *strettoCheckedCallSignature(const StrettoCheckedCall *call);

/* Checks the contents of the tensors of a call, which lie on the CPU. */
STRETTO_EXPORT int strettoCheckedCallContents(const StrettoCheckedCall *call, const StrettoExecutor *executor,
                                              char **error);

/* Chooses and makes the kernels that the call runs, once. The bytes of the workspace that they take; -1 where they
 * cannot be made. */
STRETTO_EXPORT int64_t strettoCheckedCallPrepare(StrettoCheckedCall *call, int64_t threads, char **error);

/* Runs a call that was prepared. `results` (behind them what it saves) and `finalState` (one tensor for each entry,
 * those of type I64 left out, or null) and the initial state are contiguous. The last stride of a row is 1, and
 * parameters are contiguous. `states` has as many bytes as strettoCheckedCallKeepStates said, for what is kept; else it
 * is null. */
STRETTO_EXPORT int strettoCheckedCallRun(StrettoCheckedCall *call, const StrettoTensor *results,
                                         const StrettoTensor *finalState, void *workspace, void *states,
                                         const StrettoExecutor *executor, char **error);

/* A tensor that a gradient leaves, and what of the call it is the gradient of: an input, or an entry of the state. Its
 * shape is that after batch and time (rows) or after the sequences (states and parameters). Of states and parameters it
 * has all heads of the kernel, or several places for each of them: the parts of `group` neighbours are to be added up,
 * and those of all sequences for a parameter. Where
 * several belong to one entry, they too; the cotangent of the final value of an entry goes with the first. */
typedef enum { STRETTO_OF_ROW, STRETTO_OF_STATE, STRETTO_OF_PARAMETER } StrettoSubject;
typedef struct {
  StrettoSubject of;
  size_t index;
  StrettoShape shape;
  int64_t group;
  bool isWanted; /* otherwise an entry's, whose cotangent is taken, and what is left of no use */
} StrettoGradientPart;

/* Which gradients of a call are wanted: of inputs and of entries of the initial state; and which results have a
 * cotangent, which is 0 for the others; and whether it takes what the call has saved for it. */
typedef struct {
  const bool *inputs, *entries, *results;
  bool takesSaved;
} StrettoGradientRequest;

typedef struct {
  const StrettoTensor *resultCotangents; /* one for each result; absent for 0 */
  const StrettoTensor *entryCotangents;  /* one for each part of an entry or parameter; absent for 0; of a group, all
                                            lies with the first place */
  const StrettoTensor *rows, *entries;   /* what is left: rows whose last stride is 1, and contiguous entries */
  const StrettoTensor *saved;            /* where it takes them, the rows that the call has saved, and results */
  const void *states;                    /* the states that it has kept; null: the same */
  void *workspace;
} StrettoGradientCall;

/* Whether the gradient of a call is that of a longer one, on the tokens of the windows too, and the text of its
 * declaration, which strettoStringDestroy releases. It takes two more rows, `first` and `last`, and no windows.
 * `finalEntries` says which entries of the final state have a cotangent. */
STRETTO_EXPORT bool strettoSignatureResumes(const StrettoSignature *signature, const StrettoOperatorCall *call,
                                            const StrettoGradientRequest *request, const bool *finalEntries);
STRETTO_EXPORT char *strettoSignatureResumed(const StrettoSignature *signature, char **error);

/* How many declarations that find features calls, or their gradients, are run by, in front of one of the rest; 0: they
 * are run as they are declared. The results of the former are inputs of the latter, `feature_0`, ..., one part after
 * the other. The text of a part, that of the rest behind the others, strettoStringDestroy releases. */
STRETTO_EXPORT size_t strettoSignatureFeatureParts(const StrettoSignature *signature, bool ofGradient);
STRETTO_EXPORT char *strettoSignaturePart(const StrettoSignature *signature, size_t index, bool ofGradient,
                                          char **error);

typedef struct StrettoGradient StrettoGradient;

/* The gradient of a call, and of others as parallel as it, that has so many threads on a CPU. It belongs to the
 * signature. */
STRETTO_EXPORT StrettoGradient *strettoSignatureGradient(StrettoSignature *signature, const StrettoOperatorCall *call,
                                                         const StrettoGradientRequest *request, int64_t threads,
                                                         char **error);
/* Has the kernels of a call on a GPU compiled beside those of its gradient, which will be asked for, once for a
 * signature: where that is awaited. `keepsStates` says whether the call may keep states for it. */
STRETTO_EXPORT bool strettoSignatureAwaitsGradient(const StrettoSignature *signature);
STRETTO_EXPORT void strettoCheckedCallCompileWithGradient(const StrettoCheckedCall *call,
                                                          const StrettoGradientRequest *request, bool keepsStates,
                                                          int64_t threads);
/* What a call on a GPU keeps of its states for the gradient that will be asked for, at the start of chunks or of
 * segments: the bytes, 0 where it keeps none, and the tokens of each. Asked before the call is prepared, which then
 * keeps them. */
typedef struct {
  int64_t bytes, chunk;
} StrettoKeptStates;
STRETTO_EXPORT StrettoKeptStates strettoCheckedCallKeepStates(StrettoCheckedCall *call,
                                                              const StrettoGradientRequest *request, int64_t threads);
STRETTO_EXPORT size_t strettoGradientRowCount(const StrettoGradient *gradient);
STRETTO_EXPORT StrettoGradientPart strettoGradientRow(const StrettoGradient *gradient, size_t index);
STRETTO_EXPORT size_t strettoGradientEntryCount(const StrettoGradient *gradient);
STRETTO_EXPORT StrettoGradientPart strettoGradientEntry(const StrettoGradient *gradient, size_t index);
/* What the gradient takes of the states that its call may have kept; the bytes of its workspace, where it has them or
 * where it has not. */
STRETTO_EXPORT StrettoKeptStates strettoGradientStates(const StrettoGradient *gradient,
                                                       const StrettoOperatorCall *call);
STRETTO_EXPORT int64_t strettoGradientWorkspace(const StrettoGradient *gradient, const StrettoOperatorCall *call,
                                                bool hasStates);
STRETTO_EXPORT int strettoGradientRun(StrettoGradient *gradient, const StrettoOperatorCall *call,
                                      const StrettoGradientCall *tensors, const StrettoExecutor *executor,
                                      char **error);

/* Which kernel runs the call, and what its gradient takes, as JSON. */
STRETTO_EXPORT char *strettoExplain(StrettoSignature *signature, const StrettoOperatorCall *call, int64_t threads,
                                    char **error);

STRETTO_EXPORT char *strettoExplainGradient(StrettoSignature *signature, const StrettoOperatorCall *call,
                                            const StrettoGradientRequest *request, int64_t threads, char **error);

/* Tuning: runs calls, or their gradients where a request is not null, in several forms and keeps the best for calls
 * like it. `trial` runs the call once in a form and says how many seconds the device took, or leaves a message, which
 * the tuner releases, and returns a negative number. Says as JSON what was tried and chosen. */
typedef struct {
  void *context;
  double (*trial)(void *context, const StrettoForm *form, char **error);
  double bytesPerSecond, flopsPerSecond; /* of the device, for the floor; 0: not known */
  double seconds;                        /* after which nothing more is tried */
} StrettoTuning;
STRETTO_EXPORT char *strettoTune(StrettoSignature *signature, const StrettoOperatorCall *call,
                                 const StrettoGradientRequest *request, int64_t threads, const StrettoTuning *tuning,
                                 char **error);
/* A copy of a message for `trial` to leave. */
STRETTO_EXPORT char *strettoStringCopy(const char *text);
/* Bytes of the cache that the multiprocessors of the call's device share; 0 on a CPU. */
STRETTO_EXPORT int64_t strettoSignatureCacheBytes(const StrettoSignature *signature);
/* The file of tuned forms that is shipped, and the forms that this process has met, as the text of such a file. */
STRETTO_EXPORT void strettoSetTunedTable(const char *path);
STRETTO_EXPORT char *strettoTunedTable(void);

/* Whether contents are checked on devices too; STRETTO_DEBUG says what it is at first. */
STRETTO_EXPORT bool strettoDebug(void);
/// STRETTO_IDLE_MEGABYTES, in bytes.
STRETTO_EXPORT size_t strettoIdleBytes(void);
STRETTO_EXPORT void strettoSetDebug(bool debug);

/* How many segments of a gradient a long one consists of, or 0: none; STRETTO_LONG_SEGMENT says it at first. */
STRETTO_EXPORT int64_t strettoLongSegment(void);
STRETTO_EXPORT void strettoSetLongSegment(int64_t segments);

/* How many sequences a gradient walks at a time, or 0: as memory allows; STRETTO_SEQUENCES says it at first. */
STRETTO_EXPORT int64_t strettoSequences(void);
STRETTO_EXPORT void strettoSetSequences(int64_t sequences);

/* The chunks of a segment of a gradient, or 0: as memory allows; STRETTO_SEGMENT says what it is at first. */
STRETTO_EXPORT int64_t strettoSegment(void);
STRETTO_EXPORT void strettoSetSegment(int64_t chunks);

/* Whether calls that are recorded keep states, and features, for their gradients; STRETTO_KEEP_STATES says it at first.
 */
STRETTO_EXPORT bool strettoKeepStates(void);
STRETTO_EXPORT void strettoSetKeepStates(bool keepStates);

/* Into how many segments sequences of calls are divided that run side by side, 1 for none, and 0 for as many as idle
 * multiprocessors take; STRETTO_SEGMENTS says it at first. */
STRETTO_EXPORT int64_t strettoSegments(void);
STRETTO_EXPORT void strettoSetSegments(int64_t segments);

/* Among how many blocks or threads the values of a head's gradient are divided at least, a power of two, and 0 for as
 * many as the call leaves idle; STRETTO_SLICES says it at first. */
STRETTO_EXPORT int64_t strettoSlices(void);
STRETTO_EXPORT void strettoSetSlices(int64_t slices);

/* How many of its largest input a gradient may take as memory to work with, of calls on a GPU or a CPU. */
STRETTO_EXPORT int64_t strettoInputsOfGradient(bool onGpu);

/* Into how many groups of sequences and heads a gradient is divided whose features were found before all else, or 0: as
 * memory allows; STRETTO_GROUPS says it at first. */
STRETTO_EXPORT int64_t strettoGroups(void);
STRETTO_EXPORT void strettoSetGroups(int64_t groups);

/* How many walks back a gradient has, 1 or 2, and 0 for what the model chooses; STRETTO_WALKS says it at first. */
STRETTO_EXPORT int64_t strettoWalks(void);
STRETTO_EXPORT void strettoSetWalks(int64_t walks);

/* Among how many slices at most walks of a gradient divide the states that they carry alone, a power of two, and 0 for
 * as many as a call leaves idle; STRETTO_WALK_SLICES says it at first. */
STRETTO_EXPORT int64_t strettoWalkSlices(void);
STRETTO_EXPORT void strettoSetWalkSlices(int64_t slices);

#ifdef __cplusplus
}
#endif

/* NOLINTEND(modernize-use-using,readability-identifier-naming) */

#endif /* STRETTO_FRONTENDS_C_OPERATOR_H */
