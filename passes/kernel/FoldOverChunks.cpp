//===- FoldOverChunks.cpp - What a block does, chunk after chunk ----------===//

#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "mlir/IR/SymbolTable.h"
#include "passes/Passes.h"
#include "runtime/Manifest.h"

namespace stretto {
#define GEN_PASS_DEF_FOLDOVERCHUNKS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::kernel;

namespace {

/// What becomes of the argument of a kernel that is neither a state nor the number of valid tokens.
struct Stream {
  Value view, channel, tile;
  bool perChunk;
};

/// Products of matrices: four warps where their registers hold the states with room to spare, else eight, and so for a
/// gradient, which has many other tiles. Walks over states: up to four warps with 32 entries for each thread, or half
/// as many again; more where it would have twice that.
int64_t chooseWarps(chunk::KernelOp kernel) {
  constexpr int64_t lanes = 32, few = 32 * lanes, small = few, many = 64 * lanes, mostWarps = 16;
  auto elementsOf = [&](chunk::ArgumentKind kind) {
    int64_t elements = 0;
    for (BlockArgument argument : kernel.argumentsOf(kind))
      elements += cast<RankedTensorType>(argument.getType()).getNumElements();
    return elements;
  };
  int64_t elements = elementsOf(chunk::ArgumentKind::State), warps = 1;
  if (kernel.getChunk() > 1)
    return elements <= small && !kernel.getReverse() ? 4 : 8;
  elements += elementsOf(chunk::ArgumentKind::Parameter) / 2; // they come and go
  while (2 * elements > 3 * warps * (warps < 4 ? few : many) && warps < mostWarps)
    warps *= 2;
  return warps;
}

class Folder {
public:
  Folder(chunk::KernelOp kernel, FuncOp function, bool computeTables, SymbolTableCollection &symbols)
      : kernel(kernel), function(function), computeTables(computeTables), symbols(symbols),
        builder(kernel.getLoc(), OpBuilder::atBlockEnd(function.getBlock())) {}

  /// All chunks of a sequence, or of its segment, one after the other.
  void foldOverChunks() {
    zero = constant(0);
    one = constant(1);
    Value perChunk = constant(kernel.getChunk());
    Value tokens = TokensOp::create(builder), begin = zero, end;
    if (hasCheckpoints()) {
      auto segment = SegmentOp::create(builder);
      begin = segment.getBegin();
      end = segment.getEnd();
    } else {
      Value rounded = arith::AddIOp::create(builder, tokens, constant(kernel.getChunk() - 1));
      end = arith::DivUIOp::create(builder, rounded, perChunk);
    }
    // In reverse the last chunk, which may have fewer tokens, comes first.
    Value last = kernel.getReverse() ? arith::SubIOp::create(builder, end, one).getResult() : Value();
    firstChunk = last ? last : begin;

    SmallVector<Value> initial;
    for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
      if (isState(argument))
        initial.push_back(LoadOp::create(builder, argument.getType(), view(argument.getArgNumber()), /*chunk=*/Value(),
                                         kernel.getArgument(argument.getArgNumber()).getLowest()));
      else if (!isComputed(argument))
        open(argument);
    }
    auto loop = scf::ForOp::create(builder, begin, end, one, initial);
    builder.setInsertionPointToStart(loop.getBody());
    index = loop.getInductionVar();
    if (last)
      index = arith::SubIOp::create(builder, arith::AddIOp::create(builder, begin, last), index);
    AwaitOp::create(builder);
    Value next = last ? arith::SubIOp::create(builder, index, one).getResult()
                      : arith::AddIOp::create(builder, index, one).getResult();
    for (Stream &stream : streams)
      if (stream.perChunk)
        SendOp::create(builder, stream.view, next, stream.channel);
    Value first = arith::MulIOp::create(builder, index, perChunk);
    Value left = arith::SubIOp::create(builder, tokens, first);
    mapping.map(kernel.getValid(), arith::MinSIOp::create(builder, left, perChunk));
    mapArguments(loop);
    // The many tiles of a gradient are stored as soon as they are known: then they need no registers any longer.
    bool early = kernel.getReverse() || keepsCheckpoints();
    if (early)
      store(kernel.getBlock()->getArguments());
    for (Operation &op : kernel.getBlock()->without_terminator()) {
      builder.clone(op, mapping);
      if (early)
        store(op.getResults());
    }

    auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
    if (!early)
      store(llvm::SmallSetVector<Value, 4>(yield.getOutputs().begin(), yield.getOutputs().end()).getArrayRef());
    SmallVector<Value> states;
    for (Value state : yield.getStates())
      states.push_back(mapping.lookup(state));
    if (!states.empty())
      scf::YieldOp::create(builder, states);

    builder.setInsertionPointAfter(loop);
    for (auto [state, last] : llvm::zip(kernel.argumentsOf(chunk::ArgumentKind::State), loop.getResults()))
      SaveOp::create(builder, last, view(state.getArgNumber()));
    ReturnOp::create(builder);
  }

  /// One token, whose states lie where their next ones go: nobody stores before all have loaded.
  void stepInPlace() {
    zero = constant(0);
    // What takes longest comes first, so that nothing it could overlap with is waited for. Parameters come when they
    // are asked for, as there may be more of them than registers.
    mapping.map(kernel.getValid(), constant(1));
    for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::State))
      mapping.map(argument, load(argument));
    for (BlockArgument argument : kernel.argumentsOf(chunk::ArgumentKind::Input))
      mapping.map(argument, load(argument));
    for (Operation &op : kernel.getBlock()->without_terminator()) {
      for (Value operand : op.getOperands())
        if (!mapping.contains(operand))
          mapping.map(operand, load(cast<BlockArgument>(operand)));
      builder.clone(op, mapping);
    }
    auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
    unsigned output = kernel.getBlock()->getNumArguments() - 1;
    for (Value tile : yield.getOutputs())
      StoreOp::create(builder, mapping.lookup(tile), view(output++), zero);
    BarrierOp::create(builder);
    for (auto [state, next] : llvm::zip_equal(kernel.argumentsOf(chunk::ArgumentKind::State), yield.getStates()))
      SaveOp::create(builder, mapping.lookup(next), view(state.getArgNumber()));
    ReturnOp::create(builder);
  }

private:
  Value load(BlockArgument argument) {
    if (isComputed(argument))
      return evaluate(argument, zero);
    return LoadOp::create(builder, argument.getType(), view(argument.getArgNumber()),
                          isPerChunk(argument) ? zero : Value(),
                          kernel.getArgument(argument.getArgNumber()).getLowest());
  }

  bool keepsCheckpoints() {
    return llvm::any_of(kernel.getOutputs().getAsRange<chunk::OutputAttr>(),
                        std::mem_fn(&chunk::OutputAttr::getCheckpoint));
  }
  bool hasCheckpoints() {
    return keepsCheckpoints() || !kernel.argumentsOf(chunk::ArgumentKind::Checkpoint).empty();
  }

  chunk::ArgumentKind kindOf(BlockArgument argument) { return kernel.getArgument(argument.getArgNumber()).getKind(); }
  bool isState(BlockArgument argument) { return kindOf(argument) == chunk::ArgumentKind::State; }
  Value view(unsigned index) { return function.getBlock()->getArgument(index); }
  Value constant(int64_t value) { return arith::ConstantIndexOp::create(builder, value); }

  chunk::TableOp tableOf(BlockArgument argument) {
    StringAttr name = kernel.getArgument(argument.getArgNumber()).getName();
    return symbols.lookupNearestSymbolFrom<chunk::TableOp>(kernel, name);
  }
  bool isTable(BlockArgument argument) { return kindOf(argument) == chunk::ArgumentKind::Table; }
  /// Positions are computed, as they take less time than a table of them.
  bool isComputed(BlockArgument argument) {
    if (!isTable(argument))
      return false;
    chunk::TableOp table = tableOf(argument);
    return table.isPosition() || (computeTables && table.isUnbounded());
  }
  Value evaluate(BlockArgument argument, Value chunk) {
    return EvaluateOp::create(builder, argument.getType(), view(argument.getArgNumber()), chunk);
  }

  /// Whether each chunk has a tile of its own: of inputs, of checkpoints, and of tables that vary over time.
  bool isPerChunk(BlockArgument argument) {
    chunk::ArgumentKind kind = kindOf(argument);
    if (kind != chunk::ArgumentKind::Table)
      return kind == chunk::ArgumentKind::Input || kind == chunk::ArgumentKind::Checkpoint;
    chunk::TableOp table = tableOf(argument);
    return table.getPeriod() || table.getVarying();
  }

  /// Makes the channel of an argument and sends its first tile.
  void open(BlockArgument argument) {
    constexpr int64_t ahead = 2;
    Stream stream;
    stream.view = view(argument.getArgNumber());
    stream.perChunk = isPerChunk(argument);
    auto type = ChannelType::get(builder.getContext(), cast<RankedTensorType>(argument.getType()));
    stream.channel = ChannelOp::create(builder, type, builder.getI64IntegerAttr(stream.perChunk ? ahead : 1), nullptr);
    SendOp::create(builder, stream.view, stream.perChunk ? firstChunk : Value(), stream.channel);
    streams.push_back(stream);
  }

  void mapArguments(scf::ForOp loop) {
    unsigned stream = 0, state = 0;
    for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back()) {
      if (isState(argument)) {
        mapping.map(argument, loop.getRegionIterArg(state++));
        continue;
      }
      if (isComputed(argument)) {
        mapping.map(argument, evaluate(argument, index));
        continue;
      }
      const Stream &from = streams[stream++];
      mapping.map(argument,
                  ReceiveOp::create(builder, argument.getType(), from.channel, from.perChunk ? index : Value()));
    }
  }

  /// Stores those of some values that are outputs.
  void store(ValueRange values) {
    auto yield = cast<chunk::YieldOp>(kernel.getBlock()->getTerminator());
    unsigned first = kernel.getBlock()->getNumArguments() - 1;
    for (Value value : values)
      for (auto [number, output] : llvm::enumerate(yield.getOutputs()))
        if (output == value)
          StoreOp::create(builder, mapping.lookup(value), view(first + number), index);
  }

  chunk::KernelOp kernel;
  FuncOp function;
  bool computeTables;
  SymbolTableCollection &symbols;
  ImplicitLocOpBuilder builder;
  IRMapping mapping;
  SmallVector<Stream> streams;
  Value zero, one, firstChunk;
  Value index; // the chunk that the loop is at
};

struct FoldOverChunks : stretto::impl::FoldOverChunksBase<FoldOverChunks> {
  using FoldOverChunksBase::FoldOverChunksBase;

  void runOnOperation() override {
    SymbolTableCollection symbols;
    for (chunk::KernelOp kernel : llvm::make_early_inc_range(getOperation().getOps<chunk::KernelOp>())) {
      if (failed(fold(kernel, symbols)))
        return signalPassFailure();
      kernel.erase();
    }
  }

  LogicalResult fold(chunk::KernelOp kernel, SymbolTableCollection &symbols) {
    FailureOr<Manifest> manifest = Manifest::of(kernel);
    if (failed(manifest))
      return failure();
    for (const Manifest::Argument &argument : manifest->arguments)
      if (argument.type == ElementType::F64)
        return kernel.emitOpError("the argument '")
               << argument.name << "' has entries of type f64, expected f32, bf16 or f16: f64 runs on the CPU only";

    if (inPlace && kernel.getChunk() != 1)
      return kernel.emitOpError("takes ") << kernel.getChunk() << " tokens at a time, expected 1 in a step";
    WalkResult looksBack = kernel.walk([](chunk::LookbackOp) { return WalkResult::interrupt(); });
    if (looksBack.wasInterrupted())
      return kernel.emitOpError("[R14] looks back at earlier chunks: there is no form of it for a GPU yet");

    OpBuilder builder(kernel);
    auto role = RoleAttr::get(&getContext(), RoleKind::All, warps ? warps : chooseWarps(kernel));
    manifest->threads = 32 * role.getWarps();
    manifest->inPlace = inPlace;
    auto function = FuncOp::create(builder, kernel.getLoc(), kernel.getSymName(), kernel.getChunk(),
                                   builder.getArrayAttr(role), nullptr, nullptr);
    function->setAttr(Manifest::attributeName, manifest->toAttribute(&getContext()));
    Block &block = function.getBody().emplaceBlock();
    SmallVector<StringRef> names;
    auto addView = [&](Type tile) {
      block.addArgument(ViewType::get(&getContext(), cast<RankedTensorType>(tile)), kernel.getLoc());
    };
    for (BlockArgument argument : kernel.getBlock()->getArguments().drop_back())
      addView(argument.getType());
    for (auto output : kernel.getOutputs().getAsRange<chunk::OutputAttr>())
      addView(output.getType());
    for (const Manifest::Argument &argument : manifest->arguments)
      names.push_back(argument.name);
    function.setArgNamesAttr(builder.getStrArrayAttr(names));
    Folder folder(kernel, function, computeTables, symbols);
    inPlace ? folder.stepInPlace() : folder.foldOverChunks();
    return success();
  }
};
} // namespace
