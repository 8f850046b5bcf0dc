//===- Manifest.h - What a launcher knows of a compiled kernel --*- C++ -*-===//
//
// A compiled kernel executes a `chunk.kernel`. Its work items are the triples (sequence n, head h, slice s), flattened
// as (n * heads + h) * slices + s, where `heads` counts the finest head set; one item walks the chunks of its sequence
// in order and carries the states. Where chunks are independent, each chunk c of a batch that is not packed is an item
// of its own: item * chunks + c. On a GPU that is so in a packed batch, and for the chunks of a segment, too: the c-th
// chunk of sequence n has the number firstCheckpoint(n, chunks, 1) + c, and the item of number m of as many as there
// may be is (h * numbers + m) * slices + s. There, heads that share a state which is updated in place are one item. Two
// calling conventions share one argument block:
//
//   CPU   void symbol(const int64_t *block, int64_t begin, int64_t end, char *scratch), items [begin, end), `scratch`
//         a buffer of `scratchBytes` of the calling thread, aligned to 64 bytes.
//   GPU   kernel symbol(block by value), one block of `threads` threads for each item, `sharedBytes` of dynamic
//         shared memory.
//
// The argument block is a sequence of 64-bit words. First the header
//
//   sequences, tokens of each sequence (packed: of all), heads, pointer to offsets (int64[sequences + 1], 0: dense),
//   pointer to the position of the first token of each row of the state (int64[rows], 0: 0 for all), pointer to the
//   slots (int64[sequences], 0: none), rows of the state, first chunk and chunks of the segment, chunks from one
//   checkpoint to the next, chunks from one initial state to the next (0: the initial state is the caller's), chunks
//   before a segment that are walked in its place (0: its own are), first chunk and chunks that have places for what
//   segments begin with and leave, pointer to what kernels that expect something say of each work item (int32[items])
//
// then for each argument in order (strides in elements; the last axis has stride 1)
//
//   input, output  pointer, sequence stride, token stride, head stride
//   parameter      pointer, head stride
//   table          pointer, head stride, position stride (0: constant in time), period (0: none)
//   state, window  initial pointer (0: the zero state, or nothing came before), final pointer (0: not wanted),
//   sequence,
//                  head and row stride
//   checkpoint     pointer, stride from chunk to chunk, head stride; read, or kept for another kernel
//
// and of a kernel whose segments are apart, after the words of each state
//
//   pointer to what segments begin with (0: the zero state), pointer for what they leave (0: not wanted), stride from
//   segment to segment, head stride
//
// Then, from the next multiple of eight words on, sixteen words for each argument of which the memory system copies
// boxes, in order, as TensorBoxes.h describes them; on the device they are what the driver makes of that.
//
// A kernel with checkpoints, or one that walks back, walks a segment: of each sequence the chunks [first, first +
// chunks), as far as they exist. What it carries begins and ends with the segment, and passes through where there are
// no chunks. Every i-th chunk has checkpoints, the first of the segment among them. Those of sequence n begin at the
// number
//
//   firstCheckpoint(n, chunks, i) = min(n * ceil(chunks / i), offsets[n] / (C * i) + n)
//
// rounded down, where of a dense batch offsets[n] is n * tokens: no more than what earlier sequences need, whether they
// are long or many. Where checkpoints of every j-th chunk of those that have places are the initial states, the
// sequence n has row firstCheckpoint(n, chunks that have places, j) + (first - the first of these) / j of them. An
// output of a group g holds the parts of g heads beside each other, which the caller adds up.
//
// A kernel whose segments are apart has a work item for each of j chunks, j from one initial state to the next, in the
// chunks [first, first + chunks) of each sequence: with `items` as above, the segment first / j + s of an item is item
// + s * items. On a GPU all segments of a packed batch have numbers, as chunks have where these are independent:
// offsets[n] / (C * j) + n + s. The segment s walks its chunks, [s * j, (s + 1) * j), or so many before them, as far as
// they exist and are of the range. Where that is from the first chunk on, it begins with the initial state; elsewhere
// with what it is given in the place p + s, the places of the sequence n beginning at firstCheckpoint(n, chunks that
// have places, j) with that of the first chunk that has one. What it leaves goes to the same place, if it walks any;
// the final state is left by the segment that comes to the end of the sequence, or of one without tokens the first. In
// reverse all segments begin with what they are given, and the one that comes first in the range leaves the final
// state, which may lie where the initial one does; where the sequence has ended before the range the first passes that
// through. Chunks before a segment are there those behind it; where the range has none, what it leaves is the initial
// state. Checkpoints are those of the range.
//
// A kernel whose turns are segments has a turn for every i-th chunk of the range, and the checkpoint p + t of the t-th
// turn of all.
//
// The sequence n has the row slots[n] of the state, or without slots row n. A sequence whose slot is no row is left
// out. Head h of the kernel meets head h / group of an argument; a state shared by a group is computed by each of its
// heads and stored by the first. A sliced argument starts at channel s * width; of a partial output or state, whose
// parts the caller adds up, slice s has that of head h * slices + s. Packed batches address token offsets[n]
// + t and leave the sequence stride unused, except outputs that the caller adds up: there the sequence n begins at the
// smaller of offsets[n] tokens and n sequence strides, so that the parts of a segment of all sequences lie together. A
// window is a ring: its row of a token is the token's position modulo as many rows as its shape says, and holds the
// last token of those. Rows of tokens that there were not are never used. Tables are read at positions; they hold all
// that occur. A period is repeated until it has as many rows as a chunk; rows of more than one number begin at
// multiples of 16 bytes, with zeros in between.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_MANIFEST_H
#define STRETTO_RUNTIME_MANIFEST_H

#include "dialect/chunk/ChunkDialect.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MathExtras.h"
#include <cstdint>
#include <string>
#include <vector>

namespace stretto {

enum class ElementType { F16, BF16, F32, F64 };

llvm::StringRef nameOf(ElementType type);
/// As a framework spells it: "bfloat16".
llvm::StringRef spellType(ElementType type);
std::optional<ElementType> elementTypeNamed(llvm::StringRef name);
int64_t bytesOf(ElementType type);
/// The type that arithmetic on entries of a type is done in, and states have.
inline ElementType accumulatorOf(ElementType type) { return type == ElementType::F64 ? type : ElementType::F32; }

struct Manifest {
  enum class Kind { Input, Parameter, Table, State, Output, Checkpoint, Kept, Window };

  /// The words of the header by their place, which is also where the kernels find them.
  enum HeaderWord : int64_t {
    Sequences,
    Tokens,
    Heads,
    Offsets,
    Positions,
    Slots,
    StateRows,
    FirstChunk,
    Chunks,
    CheckpointInterval,
    StartInterval,
    ChunksBefore,
    FirstPlaced,
    ChunksPlaced,
    Left
  };

  struct Argument {
    Kind kind = Kind::Input;
    std::string name;
    ElementType type = ElementType::F32;
    /// One head's part, without the tokens: empty for a number, the width of a row, the two sides of a matrix.
    std::vector<int64_t> shape;
    int64_t group = 1;
    /// A slice has its columns; or a part, the sum of which is the whole.
    bool sliced = false, partial = false;
    /// Windows: the input whose rows they hold. States: the entry of the state object that holds them, their first
    /// column there, the entry's columns and their first row. Parameters: the same of the parameter whose columns they
    /// are, if they are not all of it.
    std::string entry;
    int64_t column = 0, columns = 0, row = 0;
    /// Where their first number lies in the entry.
    int64_t offset() const { return row * columns + column; }
    /// Inputs, checkpoints and outputs that the memory system copies: the columns and rows of the boxes that it takes.
    int64_t box = 0, boxRows = 0;

    /// An output whose parts, of heads or slices, the caller adds up.
    bool isInParts() const { return kind == Kind::Output && (group > 1 || partial); }

    /// How many slices divide its columns, of so many.
    int64_t parts(int64_t slices) const { return sliced ? slices : 1; }

    /// How many neighbouring entries of a row one access may take: up to 16 bytes of them, from multiples of as many
    /// on.
    int64_t perAccess() const;

    bool operator==(const Argument &) const = default;
  };

  std::string symbol;
  int64_t chunk = 0, slices = 1;
  /// So many chunks from one of the checkpoints that it reads to the next.
  int64_t interval = 1;
  /// It keeps checkpoints of each chunk, whatever the interval of the launch.
  bool recorded = false;
  /// Another kernel leaves the results that later tokens have a part in (stretto-divide-results).
  bool earlier = false;
  /// Chunks are met from the last to the first.
  bool reverse = false;
  bool independentChunks = false;
  /// GPU: the kernel takes one token of each sequence and updates states where they lie. Heads that share a state are
  /// one work item, whose block takes them from the last to the first, which stores what they share.
  bool inPlace = false;
  /// GPU: the kernel walks as if what it expects of chunks held, and says 1 of each work item where that was not so,
  /// and 0 elsewhere; or it walks the work items of which that was said, and no others.
  bool expects = false, takesLeft = false;
  /// GPU: the kernel waits for those that were launched before it, so that its blocks may be there before they end.
  bool awaitsLaunches = false;
  /// How the kernel takes segments of sequences, where it does.
  enum class Segments { None, Apart, Turns } segments = Segments::None;
  /// Why the kernel takes single tokens, where it stands in for a chunk form that there is not.
  std::string noChunkForm;
  /// Multiplications and additions of a chunk of one head, and for each chunk that a look-back meets.
  int64_t flops = 0, flopsOfMeeting = 0;
  /// GPU: threads of a block, those of them that run ahead of the others, find outputs behind them or send, and its
  /// bytes of shared memory. CPU: bytes of scratch of a thread.
  int64_t threads = 0, threadsAhead = 0, threadsOfOutputs = 0, threadsOfProducer = 0, sharedBytes = 0, scratchBytes = 0;
  /// GPU: numbers that a thread computes for a chunk, roughly.
  int64_t work = 0;
  ElementType computeType = ElementType::F32;
  std::vector<Argument> arguments;

  /// The manifest of a kernel, before a back end adds what it plans. Fails where a type has no form in memory.
  static mlir::FailureOr<Manifest> of(chunk::KernelOp kernel);

  /// The manifest that was left on a function. Fails, with an error at the function, where there is none.
  static mlir::FailureOr<Manifest> leftOn(mlir::Operation *function);

  /// Whether there is an argument of a kind with a name.
  bool has(Kind kind, llvm::StringRef name) const;

  std::string toJson() const;
  static llvm::Expected<Manifest> fromJson(llvm::StringRef text);

  /// Those that walk, or do everything.
  int64_t threadsOfWalk() const { return threads - threadsAhead - threadsOfOutputs - threadsOfProducer; }

  /// The JSON as an attribute, which a back end leaves on the function it makes under the name `stretto.manifest`.
  mlir::StringAttr toAttribute(mlir::MLIRContext *context) const;
  static constexpr llvm::StringLiteral attributeName = "stretto.manifest";

  bool operator==(const Manifest &) const = default;

  /// Words of the block that an argument takes, of the header, and of the description of a tensor in boxes; and those
  /// of a state that come before what segments begin with and leave.
  int64_t words(Kind kind) const;
  /// From one row of a table to the next, in elements.
  static int64_t strideOfTable(int64_t width, ElementType type);

  static constexpr int64_t headerWords = Left + 1, stateWords = 5, segmentWords = 4, boxWords = 16;
  /// Where in the block the descriptions begin, and its length.
  int64_t firstBoxWord() const;
  int64_t blockWords() const;

  /// Whether the kernel walks a segment: it says so, or reads or keeps checkpoints, or may follow kernels that do, as
  /// what walks back does.
  bool walksSegment() const {
    return reverse || segments != Segments::None || llvm::any_of(arguments, [](const Argument &argument) {
             return argument.kind == Kind::Checkpoint || argument.kind == Kind::Kept;
           });
  }

  /// How many neighbouring heads, of so many, read states that one of them stores.
  int64_t headsTogether(int64_t heads) const;

  /// The work items of a batch of so many sequences and heads, each with so many chunks at most to walk.
  int64_t items(int64_t sequences, int64_t heads, int64_t tokens, int64_t chunks, bool isPacked) const {
    bool isOfGpu = threads > 0;
    if (independentChunks && isPacked && isOfGpu)
      return std::min(sequences * chunks, tokens / chunk + sequences) * heads * slices;
    int64_t together = inPlace ? headsTogether(heads) : 1;
    int64_t ofSequence =
        independentChunks && !isPacked ? std::min<int64_t>(chunks, llvm::divideCeil(tokens, chunk)) : 1;
    return sequences * heads / together * slices * ofSequence;
  }
};

} // namespace stretto

#endif // STRETTO_RUNTIME_MANIFEST_H
