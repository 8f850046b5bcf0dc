//===- KernelBuilder.h - Makes the kernel of a variant ----------*- C++ -*-===//
//
// What the forms of a variant share: the kernel with its arguments, tables and tails, row maps on tiles, and the yield.
// A form says in which order operations are executed, and what becomes of states.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_PASSES_DECLARATION_KERNELBUILDER_H
#define STRETTO_PASSES_DECLARATION_KERNELBUILDER_H

#include "dialect/stretto/Sizes.h"
#include "dialect/stretto/StateEntries.h"
#include "passes/declaration/ChunkTiles.h"
#include "passes/declaration/ElementTypes.h"
#include <functional>

namespace stretto {

class KernelBuilder {
public:
  /// Of chunks of so many tokens, which look back at tiles of so many.
  KernelBuilder(VariantOp variant, llvm::StringRef form, int64_t tokens, int64_t pastTokens, const ElementTypes &types);
  KernelBuilder(const KernelBuilder &) = delete;
  KernelBuilder &operator=(const KernelBuilder &) = delete;

  /// Refuses a variant whose sizes or heads are not known, and one whose results are not those of every head.
  mlir::LogicalResult check();
  mlir::LogicalResult checkResults();

  /// How many of the kernel's heads share one head of a set.
  int64_t groupOf(llvm::StringRef heads);
  /// The shape of the tile of a row, and that of a state in memory: one column is a vector.
  llvm::SmallVector<int64_t> tileShape(mlir::Type row);
  static llvm::SmallVector<int64_t> shapeOf(StateType type);
  chunk::OutputAttr describeOutput(const llvm::Twine &name, llvm::ArrayRef<int64_t> shape, mlir::Type element,
                                   int64_t group = 1, bool checkpoint = false);
  /// The outputs of a kernel that computes the results of the variant.
  llvm::SmallVector<chunk::OutputAttr> describeResults();

  mlir::LogicalResult create(llvm::StringRef name, bool reverse, llvm::ArrayRef<chunk::OutputAttr> outputs,
                             chunk::SegmentsAttr segments = {});
  /// Adds arguments for the rows and parameters that operations in `order`, and what is wanted besides, use, and for
  /// the tables of operations in `order`.
  mlir::LogicalResult addArguments(llvm::ArrayRef<mlir::Operation *> order, llvm::ArrayRef<mlir::Value> wanted);
  /// Adds the tails and the totals of operations in `order`.
  void addTails(llvm::ArrayRef<mlir::Operation *> order);
  /// Adds a tail or a total, carried by the kernel or as a checkpoint of another, which knows it by the same type.
  mlir::BlockArgument addTail(const StateEntry &entry, chunk::ArgumentKind kind, int64_t group);
  mlir::RankedTensorType typeOfTail(const StateEntry &entry);
  /// Adds a state, in the type of arithmetic and under its own name if there is no other.
  mlir::BlockArgument addState(StateOp root, chunk::ArgumentKind kind, int64_t group, mlir::FloatType element = {},
                               llvm::StringRef name = {});
  /// Adds what all decays of a state do to it, carried by the kernel as an entry of its own.
  mlir::BlockArgument addTotalDecay(llvm::StringRef name, llvm::ArrayRef<int64_t> shape, int64_t group,
                                    bool lowest = false);
  /// What an operation looks back to, once it was added: a tail, or the total of a scan.
  mlir::BlockArgument carriedFor(mlir::Operation *op) const {
    return llvm::cast<mlir::BlockArgument>(tailOf.lookup(op));
  }
  /// Adds the windows of look-backs, where they continue a sequence.
  void addWindows();
  /// Begins the body, once all arguments are there.
  mlir::LogicalResult beginBody();
  /// The tiles of the body that have been made so far.
  TileBuilder &tiles() { return *builder; }
  /// Computes the tile of a row map.
  mlir::LogicalResult buildRow(mlir::Operation *op);
  /// Ends the body with its outputs, the tails, the totals, and what `makeNext` carries on, in the order in which
  /// states were added.
  mlir::LogicalResult finish(llvm::ArrayRef<mlir::Value> outputs,
                             llvm::function_ref<mlir::FailureOr<llvm::SmallVector<mlir::Value>>()> makeNext);

  const Sizes &sizes() const { return *knownSizes; }
  /// The argument that is the raw tile of a row, or null where the row is computed.
  std::function<mlir::BlockArgument(mlir::Value)> rawTileOf = [this](mlir::Value row) {
    return llvm::cast_if_present<mlir::BlockArgument>(rawTiles.lookup(row));
  };

private:
  mlir::BlockArgument addArgument(chunk::ArgumentKind kind, llvm::StringRef name, mlir::Type type, int64_t group,
                                  llvm::StringRef entry = {}, int64_t column = 0, int64_t columns = 0,
                                  bool lowest = false, int64_t row = 0, int64_t rows = 0);
  void addInputs(llvm::ArrayRef<mlir::Operation *> order, llvm::ArrayRef<mlir::Value> wanted);
  mlir::LogicalResult addTables(llvm::ArrayRef<mlir::Operation *> order);
  void addTable(mlir::Operation *op, chunk::TableOp table);
  mlir::FailureOr<chunk::TableOp> createTable(TableOp op);
  chunk::TableOp createPositions(mlir::Location location);
  chunk::TableOp createTableOp(mlir::Location location);

  VariantOp variant;
  llvm::StringRef form;
  int64_t tokens, pastTokens;
  const ElementTypes &types;
  mlir::OpBuilder moduleBuilder;
  std::optional<Sizes> knownSizes;

  chunk::KernelOp kernel;
  std::unique_ptr<TileBuilder> builder;
  llvm::SmallVector<mlir::Attribute> descriptions;
  /// The row that a tail follows, and the tail.
  struct Tail {
    mlir::Value row;
    mlir::BlockArgument argument;
  };
  llvm::SmallVector<Tail> tails;
  /// A scan, one of those that share a total, and the total.
  struct Total {
    ScanOp scan;
    mlir::BlockArgument argument;
  };
  llvm::SmallVector<Total> totals;
  /// What operations look back to: a tail, or the total of a scan.
  llvm::DenseMap<mlir::Operation *, mlir::Value> tailOf;
  /// What comes from outside, in memory's types.
  llvm::MapVector<mlir::Value, mlir::Value> rawTiles;
};

} // namespace stretto

#endif // STRETTO_PASSES_DECLARATION_KERNELBUILDER_H
