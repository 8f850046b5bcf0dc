//===- ThreadBlock.h - A block of threads, operation by operation -*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_THREADBLOCK_H
#define STRETTO_TEST_SIMULATOR_THREADBLOCK_H

#include "Memory.h"
#include "Numbers.h"
#include "Turns.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <array>
#include <functional>
#include <map>

namespace stretto::simulator {

/// The components of a value, each with one word for every thread: one, or those of a vector or structure.
struct Slot {
  uint64_t *words = nullptr;
  int components = 0;
};

inline int componentsOf(mlir::Type type) {
  if (auto vector = llvm::dyn_cast<mlir::VectorType>(type))
    return vector.getNumElements();
  if (auto structure = llvm::dyn_cast<mlir::LLVM::LLVMStructType>(type))
    return structure.getBody().size();
  return 1;
}

inline unsigned widthOf(mlir::Type type) {
  if (llvm::isa<mlir::LLVM::LLVMPointerType>(type))
    return 64;
  return mlir::getElementTypeOrSelf(type).getIntOrFloatBitWidth();
}

constexpr int lanes = 32;

using Action = std::function<void()>;

/// The threads of one role of a block, or of all of it.
class ThreadBlock {
public:
  ThreadBlock(mlir::LLVM::LLVMFuncOp function, int role, int firstThread, int threads, Memory &memory)
      : role(role), firstThread(firstThread), threads(threads), memory(memory), active(threads, 1) {
    mlir::Block &entry = function.getBody().front();
    Slot parameter = slotOf(entry.getArgument(0));
    std::fill_n(parameter.words, threads, parameterAddress);
    program = compile(entry);
  }

  void run(int64_t block, Turns &others) {
    number = block;
    turns = &others;
    memory.role = role;
    groups.clear();
    execute(program);
  }

private:
  void execute(const std::vector<Action> &actions) {
    for (const Action &action : actions)
      action();
  }

  std::vector<Slot> slotsOf(mlir::ValueRange values) {
    std::vector<Slot> result;
    for (mlir::Value value : values)
      result.push_back(slotOf(value));
    return result;
  }

  Slot slotOf(mlir::Value value) {
    Slot &slot = slots[value];
    if (!slot.words) {
      slot.components = componentsOf(value.getType());
      storage.emplace_back(size_t(slot.components) * threads);
      slot.words = storage.back().data();
    }
    return slot;
  }

  std::vector<Action> compile(mlir::Block &block) {
    std::vector<Action> actions;
    for (mlir::Operation &op : block)
      if (Action action = compile(&op))
        actions.push_back(std::move(action));
    return actions;
  }

  /// A warp takes part as a whole or not at all.
  void warpsMustConverge(mlir::Operation *op) {
    for (int thread = 0; thread < threads; ++thread)
      if (active[thread] != active[thread - thread % lanes])
        fail(op, "not all threads of a warp take part");
  }

  void mustConverge(mlir::Operation *op) {
    for (uint8_t each : active)
      if (!each)
        fail(op, "not all threads take part");
  }

  /// The first threads of the warps that take part.
  std::vector<int> activeWarps() const {
    std::vector<int> warps;
    for (int warp = 0; warp < threads; warp += lanes)
      if (active[warp])
        warps.push_back(warp);
    return warps;
  }

  /// An operation on each component and thread on its own, for all of which an operand of one component, such as a
  /// condition, holds. Inactive threads compute too; nobody sees it.
  template <typename Function> Action perThread(mlir::Operation *op, Function function) {
    Slot result = slotOf(op->getResult(0));
    std::vector<Slot> operands;
    if (op->getNumOperands() > 3)
      fail(op, "more than three operands");
    for (mlir::Value value : op->getOperands()) {
      operands.push_back(slotOf(value));
      if (operands.back().components != 1 && operands.back().components != result.components)
        fail(op, "components of an operand that are not those of the result");
    }
    return [=, threads = threads] {
      for (int component = 0; component < result.components; ++component) {
        std::array<const uint64_t *, 3> words;
        for (size_t number = 0; number < operands.size(); ++number)
          words[number] = operands[number].words + (operands[number].components == 1 ? 0 : component * threads);
        uint64_t *into = result.words + component * threads;
        for (int thread = 0; thread < threads; ++thread)
          into[thread] = function([&](int number) { return words[number][thread]; });
      }
    };
  }

  template <typename Function> Action real(mlir::Operation *op, Function function) {
    Format from = formatOf(mlir::getElementTypeOrSelf(op->getOperand(0))),
           to = formatOf(mlir::getElementTypeOrSelf(op->getResult(0)));
    if (from == Format::F32 && to == Format::F32) // as most are
      return perThread(op, [=](auto word) {
        return narrow(function([&](int operand) { return widen(word(operand), Format::F32); }), Format::F32);
      });
    return perThread(
        op, [=](auto word) { return narrow(function([&](int operand) { return widen(word(operand), from); }), to); });
  }

  template <typename Function> Action integer(mlir::Operation *op, Function function) {
    unsigned width = widthOf(op->getResult(0).getType());
    return perThread(op, [=](auto word) { return truncated(function(word), width); });
  }

  Action compile(mlir::Operation *op);
  Action compileFor(mlir::scf::ForOp op);
  Action compileWhile(mlir::scf::WhileOp op);
  Action compileIf(mlir::scf::IfOp op);
  Action compileLoad(mlir::LLVM::LoadOp op);
  Action compileStore(mlir::LLVM::StoreOp op);
  Action compileCopy(mlir::NVVM::CpAsyncOp op);
  Action compileLoadMatrix(mlir::NVVM::LdMatrixOp op);
  Action compileStoreMatrix(mlir::NVVM::StMatrixOp op);
  Action compileMultiply(mlir::NVVM::MmaOp op);
  Action compileShuffle(mlir::NVVM::ShflOp op);
  Action compileBarrier(mlir::NVVM::BarrierOp op);
  Action compileIntrinsic(mlir::LLVM::CallIntrinsicOp op);
  Action compileAssembly(mlir::LLVM::InlineAsmOp op);
  Action compileBarrierInit(mlir::NVVM::MBarrierInitOp op);
  Action compileExpect(mlir::NVVM::MBarrierArriveExpectTxOp op);
  Action compileArrive(mlir::NVVM::MBarrierArriveOp op);
  Action compileBarrierWait(mlir::NVVM::MBarrierTryWaitParityOp op);
  Action compileBox(mlir::NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp op);
  Action compileBulkLoad(mlir::NVVM::CpAsyncBulkGlobalToSharedClusterOp op);
  Action compileBulkStore(mlir::NVVM::CpAsyncBulkSharedCTAToGlobalOp op);
  Action compileBoxStore(mlir::NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp op);
  Action compileBulkWait(mlir::NVVM::CpAsyncBulkWaitGroupOp op);
  /// Copies a piece of shared memory to an address, or nowhere.
  void storePiece(mlir::Operation *op, uint64_t shared, int64_t target, int thread);
  Action compileBarrierEnd(mlir::NVVM::MBarrierInvalOp op);
  Action compileWarpgroupProduct(mlir::Operation *op);
  Action compileWarpgroupWait(mlir::Operation *op);

  /// A product of warpgroups: what it leaves in its results, by their words, and what it reads until it is done.
  struct Group {
    std::map<uint64_t *, std::vector<uint64_t>> results;
    std::vector<uint64_t> pieces;
    bool isDone = false;
  };

  /// Lets other roles go on until a condition holds.
  void waitUntil(mlir::Operation *op, llvm::function_ref<bool()> condition);

  int role, firstThread, threads;
  Turns *turns = nullptr;
  int64_t number = 0;
  Memory &memory;
  std::vector<uint8_t> active;
  llvm::DenseMap<mlir::Value, Slot> slots;
  std::vector<std::vector<uint64_t>> storage;
  std::vector<Action> program;
  std::vector<Group> groups;
};

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_THREADBLOCK_H
