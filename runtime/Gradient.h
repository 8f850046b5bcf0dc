//===- Gradient.h - The gradient of calls of one signature ------*- C++ -*-===//
//
// One for each choice of gradients that are wanted, which its kernels compute and no others.
//
// Two kernels, both with chunks of as many tokens: one walks the sequence and leaves the gradients that are found so;
// it keeps what the other asks for of the forward states, at the start of each chunk, as checkpoints in a workspace
// that the caller lends, and there too rows of each token; the other walks the sequence back and computes all else.
// Where that is divided, a kernel between them walks back and keeps the states of reverse time
// (passes/declaration/GradientParts.h).
//
// Where checkpoints of all chunks would take more than a few inputs do (inputsOfGradient), some sequences are walked
// after the others, so far as those of a turn fill the machine. Where that does not suffice, sequences are divided into
// segments: a walk keeps the states at the start of each segment; then, from the last segment to the first, the first
// kernel walks the segment again from there, and the others walk it back. The first walk is by the first kernel, too,
// or, where checkpoints are not all that it carries as it is, by one that is made when it is first needed. Where so
// many segments would be needed that their starts take much, those of a few long ones are kept, and of the segments of
// one of these at a time.
//
// Where sequences and heads are few, the walks that carry states take their segments side by side, forwards and back,
// each after kernels that find what segments begin with (SegmentStarts.h); forwards those of the operator itself. Where
// memory asks for segments one after the other, too, each of these consists of several that are side by side.
//
// Of a call that continues from windows these are the gradients of its own tokens; where those of the windows have a
// part in what is asked for, whoever calls makes one call of both (Signature::resumes).
//
// Heads that share a row, a state or a parameter leave a part of its gradient each, sequences one of a parameter's, and
// slices one of what is summed over the axis that they divide. Those of the rows of a segment are added up when it has
// been walked, so that they take no more memory than a segment's; the others the caller adds up.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_RUNTIME_GRADIENT_H
#define STRETTO_RUNTIME_GRADIENT_H

#include "runtime/KeptStates.h"
#include "runtime/Segments.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/JSON.h"

namespace stretto {

struct Operator::Signature::Gradient {
  /// The gradient of a row.
  struct Row {
    unsigned index;   // among the arguments
    std::string name; // in kernels
    ElementType type;
    /// The heads of the row, and what follows them; before them come batch and time.
    llvm::SmallVector<int64_t, 3> sizes;
    /// So many parts of each head lie beside each other where kernels leave them, before they are added up.
    int64_t parts = 1;
    ElementType partType = type;

    int64_t width() const { return llvm::product_of(llvm::ArrayRef(sizes).drop_front()); }
    /// Numbers that kernels leave for each token.
    int64_t placesOfToken() const { return sizes.front() * parts * width(); }
    int64_t bytesOfParts(int64_t tokens) const {
      return parts == 1 ? 0 : llvm::alignTo(tokens * placesOfToken() * bytesOf(partType), 64);
    }
  };
  /// What the gradient leaves of an entry of the state, or of a parameter.
  struct Part {
    enum class Of { State, Parameter } of;
    unsigned index; // among the entries, or the arguments
    ElementType type;
    /// The heads of the kernel, with so many places each as slices leave parts, and what follows them; before them come
    /// the sequences. A tail has its rows before the heads.
    llvm::SmallVector<int64_t, 3> sizes;
    /// Neighbouring places whose parts are to be added up.
    int64_t group = 1;
    /// Of a state: otherwise the cotangent of its final value is taken, and what is left is of no use.
    bool isWanted = true;
  };

  /// Fails with the reason where `sideBySide` asks for what there is not.
  static llvm::Expected<std::unique_ptr<Gradient>> create(Signature &signature, GradientRequest request,
                                                          const Form &form, bool sideBySide);

  /// The names of what a request counts.
  static GradientOf names(const Signature &signature, const GradientRequest &request);
  GradientOf names() const { return names(signature, request); }

  /// How many kernels walk back, where one does.
  int64_t walks() const { return cotangents ? 2 : 1; }
  /// The kernels of every call.
  std::vector<KernelRequest::Part> parts() const;
  /// The same as they run.
  llvm::SmallVector<const Kernel *, 5> all() const;
  /// The kernel that walks back, or the only one.
  const Kernel &lastKernel() const { return *kernel; }

  /// Runs the gradient of a call that was checked. Cotangents of results have unit strides in their last axis; all that
  /// is left is contiguous.
  llvm::Error run(const OperatorCall &call, const GradientCall &tensors, const Executor &executor);

  /// How a call is divided: how many sequences are walked at a time, the chunks of the longest that there may be, those
  /// of a segment, those of each of the segments that it consists of where these are side by side, and those of a long
  /// segment, a multiple of its segments'.
  struct Division {
    int64_t sequences, chunks, length, apart = 0, ofLong = chunks;
    /// Whether the call has kept the states that it takes: then there is no walk forward; or what segments of that
    /// begin with.
    bool hasStates = false, hasStarts = false;
    int64_t count() const { return llvm::divideCeil(chunks, length); }
    bool isNested() const { return ofLong < chunks; }
  };
  /// As few walks as the memory for checkpoints allows, or those that take the least.
  Division divisionOf(const OperatorCall &call) const;
  /// The states that the gradient of a call takes, if the call has kept them: those of chunks, or what segments begin
  /// with; null where it takes none, or where all sequences at once would take too much memory.
  std::shared_ptr<const KeptStates> statesOf(const OperatorCall &call) const;
  int64_t workspaceBytes(const OperatorCall &call, bool hasStates = false) const;
  /// Whether there are several segments side by side in the memory that is thought to be enough.
  bool fitsSegments(const OperatorCall &call) const;
  /// Whether all segments are walked at once, in that memory.
  bool hasOneTurn(const OperatorCall &call) const;
  /// Bytes of checkpoints and of parts that are added up, which grow with what is walked at a time; and how many are
  /// thought to be enough.
  int64_t workingBytes(const OperatorCall &call) const;
  int64_t enoughBytes(const OperatorCall &call) const;
  /// What a call may keep for it.
  int64_t keepableBytes(const OperatorCall &call) const;
  /// Segments that are few, and the chunks of each, as what it begins with takes the time of about one, or of less
  /// where few are found.
  static constexpr int64_t few = 16, fewestOfFew = 2, fewestOfMany = 4;
  /// Whether a short sequence of a call has so many chunks, small as they are, that segments are worth their while.
  bool hasSmallChunks(const OperatorCall &call) const;
  /// Says what the gradient of a call takes: its kernels, what is saved and what is computed anew
  /// (ExplainGradient.cpp).
  void explain(llvm::json::OStream &json, const OperatorCall &call) const;

  const Signature &signature;
  const GradientRequest request;
  const bool sideBySide;
  /// In the order of the arguments.
  std::vector<Row> rows;
  /// Of entries of the state and of parameters. A tail may have several, which are added up.
  std::vector<Part> entries;

private:
  friend class GradientLauncher;
  Gradient(const Signature &signature, GradientRequest request, bool sideBySide)
      : signature(signature), request(std::move(request)), sideBySide(sideBySide) {}

  /// Of the sequences that are walked at a time, too, as a call of their own.
  void explain(llvm::json::OStream &json, const OperatorCall &call, const OperatorCall &atATime,
               Division division) const;

  /// So many chunks from one checkpoint of those that the walk back asks for to the next.
  int64_t interval() const { return kernel->code->manifest.interval; }
  llvm::Error describe(VariantOp gradient);
  llvm::Error makeKernels(std::vector<std::string> inputs, const Form &form);
  /// Of how many tokens of each sequence, or of a packed batch, the parts of rows are kept at a time.
  int64_t tokensOfParts(const OperatorCall &call, Division division) const;
  int64_t bytesOfParts(const OperatorCall &call, Division division) const;
  /// Both, of the sequences that are walked at a time, and those of rows that are kept of all tokens.
  int64_t workingBytes(const OperatorCall &call, Division division) const;
  int64_t keptBytes(const OperatorCall &call, Division division) const;
  /// Makes room for what each slice has a part of.
  void divide(const Manifest &manifest);

  std::vector<EntryStrides> entryStrides;
  std::vector<std::string> entryNames;
  /// Those that the kernel which walks back asks for, and what the other begins with; what segments of that leave of
  /// states of reverse time.
  std::vector<Checkpoint> ofChunks, ofSegments, ofWrites;
  static std::vector<std::string> namesOf(llvm::ArrayRef<Checkpoint> checkpoints);
  /// Those of them that a call may have kept; none where the walk forward finds other things, too.
  std::shared_ptr<const KeptStates> statesOfCall;
  std::optional<Division> divisionWithStates(const OperatorCall &call) const;
  /// Where a walk forward has segments side by side: what these begin with, if all of that are states.
  std::shared_ptr<const KeptStates> startsOf(const OperatorCall &call) const;
  /// The division of a call that has kept what `statesOf` says, or has not.
  Division divisionOf(const OperatorCall &call, bool hasKept) const;
  /// Whether kernels of the gradient find what segments begin with forwards.
  bool findsStarts(Division division) const { return forwardWalk() && !division.hasStates && !division.hasStarts; }
  int64_t checkpointCount(const OperatorCall &call, int64_t chunks, int64_t interval) const {
    return signature.checkpointCount(call, kernel->code->manifest.chunk, chunks, interval);
  }
  /// The checkpoints at the start of long segments and of segments, where there are several, and those of the chunks of
  /// a segment.
  struct CheckpointCounts {
    int64_t ofLong, ofSegments, ofChunks;
  };
  CheckpointCounts checkpointCounts(const OperatorCall &call, Division division) const;
  /// Whether the first kernel of results reads no states but those of the walk forward, and the second none but those
  /// of reverse time, which take the same memory then, one behind the other.
  bool readsStatesInTurns = false;
  /// Whether that kernel keeps rows which the walk back asks for.
  bool resultsKeepRows = false;
  /// Whether it is run before the walk back: what it asks for makes room for that then, or it keeps what that asks for.
  bool resultsComeFirst() const { return readsStatesInTurns || resultsKeepRows; }
  /// The bytes of the checkpoints of a segment's chunks that the call has not kept, of which of both kinds.
  struct ChunkBytes {
    int64_t ofForward = 0, ofReverse = 0;
  };
  ChunkBytes chunkBytes(Division division, int64_t count) const;
  bool isOfReverseTime(const Checkpoint &checkpoint) const;
  /// Those of checkpoints, and what segments begin with.
  int64_t checkpointBytes(const OperatorCall &call, Division division) const;
  /// The kernel that keeps what a walk begins with at the start of each segment.
  llvm::Expected<Kernel *> kernelOfSegments();
  std::vector<KeptRow> keptRows;
  std::unique_ptr<Kernel> systems;     // null where none takes inverses (stretto-invert-systems)
  std::unique_ptr<Kernel> checkpoints; // null where there is no walk forward
  std::unique_ptr<Kernel> keeping;     // null where that kernel or none keeps rows
  std::unique_ptr<Kernel> cotangents;  // null where `kernel` carries all states of reverse time
  std::unique_ptr<Kernel> kernel;
  std::unique_ptr<Kernel> later; // of the results that later tokens have a part in, where they are apart
  std::unique_ptr<Kernel> sums;  // null where `kernel` adds up all else, too
  /// What is needed to make another, and that one.
  KernelRequest kernelRequest;
  std::vector<std::string> inputNames, allEntries;
  llvm::Expected<std::shared_ptr<CompiledKernel>> compile(KernelRequest::Part part) const;
  std::mutex makingSegments;
  std::unique_ptr<Kernel> segmentStarts;

  /// Where segments are side by side: the operator's, null where it carries nothing; and what its states of reverse
  /// time begin with, if it has some.
  Signature::Segments *forwardSegments = nullptr;
  std::optional<SegmentStarts> cotangentStarts;
  /// Whether the walk forward finds what the tokens of segments do to states of reverse time (GradientParts.h).
  bool writesForward() const { return cotangentStarts && cotangentStarts->walks.empty(); }
  /// Whether a kernel carries what others begin with.
  bool carriesBack(const Kernel &each) const {
    return cotangentStarts && &each == (cotangents ? cotangents.get() : kernel.get());
  }
  /// Whether it begins with a state that was found for each segment.
  bool isBegunApart(const Kernel &each, llvm::StringRef state) const {
    return carriesBack(each) &&
           llvm::any_of(cotangentStarts->begun, [&](const SegmentStarts::Kept &kept) { return kept.name == state; });
  }
  /// What is added to the rows of segments by tokens behind them, and what they leave of sums over all tokens; the
  /// kernels that find these and add those up. Null where there are none.
  std::vector<SegmentStarts::Kept> ofTails, ofSums;
  std::unique_ptr<Kernel> cotangentTails, sumTurns;
  /// The kernel that carries states so, forwards; null where there is none.
  const Kernel *forwardWalk() const {
    const Kernel *walk = checkpoints ? checkpoints.get() : kernel.get();
    return walk->isApart() && !walk->code->manifest.reverse ? walk : nullptr;
  }
  llvm::Error makeCotangentStarts();
  llvm::Error makeSums(const SegmentStarts::Names &names);
  int64_t chunksOfTails() const;
  /// So many segments one after the other, and side by side in each of these; and how many of the latter there may be.
  Division divide(const OperatorCall &call, int64_t turns, int64_t sideBySideSegments) const;
  Division divideSequences(const OperatorCall &call) const;
  /// Divisions that were found, by all that they depend on: sequences, batch, time, packing, what is forced, and
  /// memory. To find one takes up to some ten microseconds.
  using CallShape = std::array<int64_t, 9>;
  mutable std::mutex dividing;
  mutable std::map<CallShape, Division> divisions;
  /// As many sequences at a time as memory allows, or 0; and at most so many, but so that turns of as many take no
  /// longer than all at once, or 0 where there is no such number.
  int64_t mostSequences(const OperatorCall &call, Division division) const;
  int64_t sequencesFillingTurns(const OperatorCall &call, int64_t most) const;
  /// The kernel that walks a sequence back, and its blocks, or threads, that the machine runs at the same time.
  const Kernel &walkBack() const;
  int64_t blocksAtOnce() const;
  mutable std::once_flag countingBlocks;
  mutable int64_t blocksOfMachine = 1;
  int64_t fewestChunks(int64_t chunks) const {
    return signature.carriesStates && chunks < few * fewestOfMany ? fewestOfFew : fewestOfMany;
  }
  int64_t mostSideBySide(const OperatorCall &call) const;
  /// Whether slices carry something back that is the same for all. It has one place, where in turns one slice would
  /// read what another has left for the next: then there is one turn.
  bool carriesAlike() const;
  /// Whether the walk forward is one over whole sequences however these are divided, as it keeps nothing for the walk
  /// back and leaves no parts. Then only parts take memory that grows with a segment.
  bool walksForwardFirst() const;
  /// Whether there is one that begins anew with each segment, one after the other.
  bool walksForwardAnew() const { return checkpoints && !sideBySide && !walksForwardFirst(); }
  Signature::Segments::Division forwardDivision(const OperatorCall &call, Division division) const;
  int64_t bytesOfInputs(const OperatorCall &call, int64_t inputs, int64_t given) const;
  int64_t bytesOfForwardStarts(const OperatorCall &call, Division division) const;
  /// The chunks whose segments have places for states of reverse time: of one segment after the other, or of all where
  /// one walk forward, before all else, leaves what their tokens do to these.
  int64_t chunksOfCotangents(Division division) const { return writesForward() ? division.chunks : division.length; }
  int64_t placesOfCotangents(const OperatorCall &call, Division division) const;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_GRADIENT_H
