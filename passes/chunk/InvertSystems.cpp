//===- InvertSystems.cpp - Systems of equations become products -----------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/ImplicitLocOpBuilder.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"
#include "passes/declaration/KernelNames.h"
#include "llvm/ADT/MapVector.h"

namespace stretto {
#define GEN_PASS_DEF_INVERTSYSTEMS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;
using namespace stretto::chunk;

namespace {

/// The operations that a tile is made with, in the order of their block, and the arguments that these meet. None where
/// it depends on what a kernel carries, or on a loop over other chunks.
struct Making {
  SetVector<Operation *> operations;
  SetVector<BlockArgument> arguments;
};

std::optional<Making> makingOf(Value tile, KernelOp kernel) {
  Making making;
  llvm::DenseSet<Operation *> needed;
  SmallVector<Value> pending = {tile};
  while (!pending.empty()) {
    Value value = pending.pop_back_val();
    if (auto argument = dyn_cast<BlockArgument>(value)) {
      ArgumentAttr described = kernel.getArgument(argument.getArgNumber());
      bool isKnown =
          llvm::is_contained({ArgumentKind::Input, ArgumentKind::Table, ArgumentKind::Valid}, described.getKind());
      if (!isKnown || described.getSliced())
        return std::nullopt;
      making.arguments.insert(argument);
      continue;
    }
    Operation *op = value.getDefiningOp();
    if (op->getNumRegions() > 0)
      return std::nullopt;
    if (needed.insert(op).second)
      llvm::append_range(pending, op->getOperands());
  }
  for (Operation &op : *kernel.getBlock())
    if (needed.contains(&op))
      making.operations.insert(&op);
  return making;
}

/// The kernel that finds inverses, of each chunk for itself.
class Inverses {
public:
  explicit Inverses(KernelOp results);

  /// The output with the inverse of what a system has below its diagonal.
  StringAttr find(SolveOp solve, KernelOp kernel, const Making &making);
  void finish();

private:
  Value argumentLike(BlockArgument argument, KernelOp kernel);
  /// The tile in the type of inputs, which is an output then.
  Value leave(Value tile, StringAttr name);

  KernelOp inverses;
  ImplicitLocOpBuilder b;
  FloatType type; // of an inverse
  SmallVector<Attribute> arguments, outputs;
  /// What was cloned: operations that are the same are made once.
  SmallVector<Operation *> made;
  llvm::MapVector<Value, StringAttr> names; // of inverses, by the matrix
  SmallVector<Value> left;
};

} // namespace

Inverses::Inverses(KernelOp results)
    : b(results.getLoc(), results.getContext()), type(cast<FloatType>(inputTypeOf(results))) {
  b.setInsertionPointToEnd(results->getBlock());
  inverses = KernelOp::create(b, (results.getSymName() + suffix::systems).str(), results.getChunk(), /*reverse=*/false,
                              b.getArrayAttr({}), b.getArrayAttr({}), /*slices=*/1, /*segments=*/SegmentsAttr(),
                              /*between=*/FlatSymbolRefAttr(), /*recorded=*/false, /*earlier=*/false);
  b.setInsertionPointToEnd(&inverses.getBody().emplaceBlock());
}

static bool isValid(Attribute attribute) { return cast<ArgumentAttr>(attribute).getKind() == ArgumentKind::Valid; }

Value Inverses::argumentLike(BlockArgument argument, KernelOp kernel) {
  ArgumentAttr described = kernel.getArgument(argument.getArgNumber());
  Block *block = inverses.getBlock();
  for (auto [attribute, own] : llvm::zip_equal(arguments, block->getArguments()))
    if (attribute == described)
      return own;
  // The number of valid tokens is the last.
  auto position = static_cast<unsigned>(arguments.size() - (!arguments.empty() && isValid(arguments.back())));
  arguments.insert(arguments.begin() + position, described);
  return block->insertArgument(position, argument.getType(), argument.getLoc());
}

Value Inverses::leave(Value tile, StringAttr name) {
  auto rounded = RankedTensorType::get(cast<RankedTensorType>(tile.getType()).getShape(), type);
  outputs.push_back(OutputAttr::get(b.getContext(), name, rounded, /*group=*/1, /*sliced=*/false, /*checkpoint=*/false,
                                    /*partial=*/false));
  return left.emplace_back(arith::TruncFOp::create(b, rounded, tile));
}

StringAttr Inverses::find(SolveOp solve, KernelOp kernel, const Making &making) {
  IRMapping mapping;
  for (BlockArgument argument : making.arguments)
    mapping.map(argument, argumentLike(argument, kernel));
  for (Operation *op : making.operations) {
    Operation *clone = b.clone(*op, mapping);
    auto *same = llvm::find_if(made, [&](Operation *other) {
      return OperationEquivalence::isEquivalentTo(other, clone, OperationEquivalence::IgnoreLocations);
    });
    if (same == made.end()) {
      made.push_back(clone);
      continue;
    }
    for (auto [from, to] : llvm::zip_equal(op->getResults(), (*same)->getResults()))
      mapping.map(from, to);
    clone->erase();
  }
  Value matrix = mapping.lookup(solve.getMatrix());
  StringAttr &name = names[matrix];
  if (name)
    return name;
  name = b.getStringAttr(inversePrefix + Twine(names.size() - 1));
  // What rounding takes from it is left beside it: rows that nearly cancel each other show it.
  auto square = cast<RankedTensorType>(matrix.getType());
  Value inverse = chunk::InverseOp::create(b, square, matrix), rounded = leave(inverse, name);
  Value lost = arith::SubFOp::create(b, inverse, arith::ExtFOp::create(b, square, rounded));
  leave(lost, b.getStringAttr(name.getValue() + inverseRestSuffix));
  return name;
}

void Inverses::finish() {
  if (left.empty())
    return inverses.erase();
  if (llvm::none_of(arguments, isValid)) {
    arguments.push_back(ArgumentAttr::get(b.getContext(), ArgumentKind::Valid, b.getStringAttr("valid"), /*group=*/1));
    inverses.getBlock()->addArgument(b.getIndexType(), b.getLoc());
  }
  inverses.setArgumentsAttr(b.getArrayAttr(arguments));
  inverses.setOutputsAttr(b.getArrayAttr(outputs));
  chunk::YieldOp::create(b, left, ValueRange());
}

/// A row that a kernel is given, beside its inputs.
static Value addInput(KernelOp kernel, StringAttr name, RankedTensorType type) {
  Block *block = kernel.getBlock();
  SmallVector<Attribute> arguments(kernel.getArguments().begin(), kernel.getArguments().end());
  for (auto [attribute, argument] : llvm::zip_equal(arguments, block->getArguments()))
    if (cast<ArgumentAttr>(attribute).getName() == name)
      return argument;
  auto position = static_cast<unsigned>(kernel.argumentsOf(ArgumentKind::Input).back().getArgNumber() + 1);
  MLIRContext *context = kernel.getContext();
  arguments.insert(arguments.begin() + position, ArgumentAttr::get(context, ArgumentKind::Input, name, /*group=*/1));
  kernel.setArgumentsAttr(ArrayAttr::get(context, arguments));
  return block->insertArgument(position, type, kernel.getLoc());
}

namespace {

struct InvertSystems : stretto::impl::InvertSystemsBase<InvertSystems> {
  void runOnOperation() override {
    SmallVector<KernelOp> kernels(getOperation().getOps<KernelOp>());
    if (kernels.empty())
      return;
    // The names of all others begin with that of the kernel of results.
    KernelOp results = *llvm::min_element(
        kernels, [](KernelOp left, KernelOp right) { return left.getSymName().size() < right.getSymName().size(); });
    Type type = inputTypeOf(results);
    if (type.getIntOrFloatBitWidth() != 16)
      return;
    Inverses inverses(results);
    for (KernelOp kernel : kernels) {
      if (inputTypeOf(kernel) != type || kernel.getChunk() != results.getChunk())
        continue;
      for (SolveOp solve : llvm::make_early_inc_range(kernel.getBlock()->getOps<SolveOp>()))
        if (std::optional<Making> making = makingOf(solve.getMatrix(), kernel))
          replace(solve, kernel, inverses.find(solve, kernel, *making));
    }
    inverses.finish();
  }

private:
  static void replace(SolveOp solve, KernelOp kernel, StringAttr name) {
    ImplicitLocOpBuilder b(solve.getLoc(), solve);
    auto square = cast<RankedTensorType>(solve.getMatrix().getType());
    auto rounded = RankedTensorType::get(square.getShape(), inputTypeOf(kernel));
    Value rows;
    for (StringAttr part : {name, b.getStringAttr(name.getValue() + inverseRestSuffix)}) {
      Value inverse = arith::ExtFOp::create(b, square, addInput(kernel, part, rounded));
      rows = chunk::DotOp::create(b, solve.getType(), inverse, solve.getRows(), /*addend=*/rows,
                                  /*transpose_left=*/solve.getTranspose(), /*transpose_right=*/false);
    }
    solve.replaceAllUsesWith(rows);
    solve.erase();
  }
};

} // namespace
