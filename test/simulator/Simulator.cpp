//===- Simulator.cpp - Executes the threads of a block on the host --------===//
//
//   simulate-block threads.mlir memory.bin
//
// Executes the one kernel in `threads.mlir`, which `stretto-lower-to-threads` has left in arith, math, scf, llvm and
// nvvm, for every block of a grid, so that errors in layouts, addresses and barriers are found where there is no GPU.
// All threads take each operation together, so that a missing barrier would go unnoticed; therefore every byte of
// shared memory remembers who touched it since the last barrier, and an access that is not ordered is an error. So is
// one outside of a buffer, or one that is not aligned.
//
// `memory.bin` holds 64-bit words: threads, blocks, bytes of shared memory, words of the argument block, buffers; the
// argument block; then for each buffer its bytes in number and itself, rounded up to a word. Buffer i begins at the
// address (i + 1) << 32. The buffers are written back in place.
//
//===----------------------------------------------------------------------===//

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/APFloat.h"
#include "llvm/ADT/TypeSwitch.h"
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <vector>

using namespace mlir;

namespace {

constexpr uint64_t sharedAddress = uint64_t(1) << 62, parameterAddress = uint64_t(1) << 61;
constexpr int lanes = 32;

[[noreturn]] void fail(Operation *op, const std::string &message) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, OpPrintingFlags().skipRegions());
  std::fprintf(stderr, "simulate-block: %s\n  in %s\n", message.c_str(), text.c_str());
  std::exit(1);
}

//===----------------------------------------------------------------------===//
// Numbers, as bits
//===----------------------------------------------------------------------===//

float toFloat(uint64_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits)); }
uint64_t fromFloat(float value) { return std::bit_cast<uint32_t>(value); }

const llvm::fltSemantics &semanticsOf(Type type) { return cast<FloatType>(type).getFloatSemantics(); }

double widen(uint64_t bits, Type type) {
  if (type.isF64())
    return std::bit_cast<double>(bits);
  if (type.isF32())
    return toFloat(bits);
  if (type.isBF16())
    return toFloat(bits << 16);
  llvm::APFloat value(semanticsOf(type), llvm::APInt(16, bits));
  return value.convertToFloat();
}

/// Numbers are computed with in fp64 and rounded to their type, which for sums, products and quotients of fp32 is the
/// rounding of fp32.
uint64_t narrow(double value, Type type) {
  if (type.isF64())
    return std::bit_cast<uint64_t>(value);
  if (type.isF32())
    return fromFloat(static_cast<float>(value));
  llvm::APFloat result(value);
  bool losesInformation;
  result.convert(semanticsOf(type), llvm::APFloat::rmNearestTiesToEven, &losesInformation);
  return result.bitcastToAPInt().getZExtValue();
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

struct Memory {
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<uint8_t> parameters, shared;
  /// Who touched a byte of shared memory since the last barrier: -1 nobody, -2 several threads.
  std::vector<int> reader, writer;
  /// Bytes that an asynchronous copy will write.
  std::vector<uint8_t> pending;
  struct Copy {
    uint64_t target;
    std::vector<uint8_t> bytes;
  };
  std::vector<Copy> copies;

  uint8_t *at(Operation *op, uint64_t address, size_t bytes) {
    if (address % bytes)
      fail(op, "an access of " + std::to_string(bytes) + " bytes at an address that is no multiple of it");
    std::vector<uint8_t> *space;
    uint64_t offset;
    if (address >= sharedAddress) {
      space = &shared, offset = address - sharedAddress;
    } else if (address >= parameterAddress) {
      space = &parameters, offset = address - parameterAddress;
    } else {
      uint64_t index = (address >> 32) - 1;
      if (index >= buffers.size())
        fail(op, "an access to no buffer");
      space = &buffers[index], offset = address & 0xffffffff;
    }
    if (offset + bytes > space->size())
      fail(op, "an access to bytes " + std::to_string(offset) + " to " + std::to_string(offset + bytes) + " of " +
                   std::to_string(space->size()));
    return space->data() + offset;
  }

  void noteRead(Operation *op, uint64_t address, size_t bytes, int thread) {
    for (uint64_t byte = address - sharedAddress, end = byte + bytes; address >= sharedAddress && byte < end; ++byte) {
      if (pending[byte])
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      if (writer[byte] != -1 && writer[byte] != thread)
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      reader[byte] = reader[byte] == -1 || reader[byte] == thread ? thread : -2;
    }
  }

  void noteWrite(Operation *op, uint64_t address, size_t bytes, int thread, const uint8_t *value) {
    for (uint64_t byte = address - sharedAddress, end = byte + bytes, i = 0; address >= sharedAddress && byte < end;
         ++byte, ++i) {
      if (pending[byte])
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      bool sameAgain = writer[byte] != -1 && value && shared[byte] == value[i];
      if (writer[byte] != -1 && writer[byte] != thread && !sameAgain)
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      if (reader[byte] != -1 && reader[byte] != thread)
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, read since the last barrier");
      writer[byte] = thread;
    }
  }

  void barrier() {
    std::fill(reader.begin(), reader.end(), -1);
    std::fill(writer.begin(), writer.end(), -1);
  }

  void finishCopies() {
    for (Copy &copy : copies) {
      std::memcpy(shared.data() + copy.target, copy.bytes.data(), copy.bytes.size());
      std::fill_n(pending.begin() + copy.target, copy.bytes.size(), 0);
    }
    copies.clear();
  }
};

//===----------------------------------------------------------------------===//
// Operations, compiled to closures
//===----------------------------------------------------------------------===//

/// The components of a value, each with one word for every thread: one, or those of a vector or structure.
struct Slot {
  uint64_t *words = nullptr;
  int components = 0;
};

int componentsOf(Type type) {
  if (auto vector = dyn_cast<VectorType>(type))
    return vector.getNumElements();
  if (auto structure = dyn_cast<LLVM::LLVMStructType>(type))
    return structure.getBody().size();
  return 1;
}

unsigned widthOf(Type type) {
  if (isa<LLVM::LLVMPointerType>(type))
    return 64;
  return getElementTypeOrSelf(type).getIntOrFloatBitWidth();
}

uint64_t truncated(uint64_t value, unsigned width) {
  return width >= 64 ? value : value & ((uint64_t(1) << width) - 1);
}
int64_t asSigned(uint64_t value, unsigned width) { return llvm::SignExtend64(value, width); }

using Action = std::function<void()>;

class ThreadBlock {
public:
  ThreadBlock(LLVM::LLVMFuncOp function, int threads, Memory &memory)
      : threads(threads), memory(memory), active(threads, 1) {
    mlir::Block &entry = function.getBody().front();
    Slot parameter = slotOf(entry.getArgument(0));
    std::fill_n(parameter.words, threads, parameterAddress);
    program = compile(entry);
  }

  void run(int64_t block) {
    number = block;
    execute(program);
  }

private:
  void execute(const std::vector<Action> &actions) {
    for (const Action &action : actions)
      action();
  }

  Slot slotOf(Value value) {
    Slot &slot = slots[value];
    if (!slot.words) {
      slot.components = componentsOf(value.getType());
      storage.push_back(std::vector<uint64_t>(slot.components * threads));
      slot.words = storage.back().data();
    }
    return slot;
  }

  std::vector<Action> compile(mlir::Block &block) {
    std::vector<Action> actions;
    for (Operation &op : block)
      if (Action action = compile(&op))
        actions.push_back(std::move(action));
    return actions;
  }

  void mustConverge(Operation *op) {
    for (uint8_t each : active)
      if (!each)
        fail(op, "not all threads take part");
  }

  /// An operation on each component and thread on its own. Inactive threads compute too; nobody sees it.
  template <typename Function> Action perThread(Operation *op, Function function) {
    Slot result = slotOf(op->getResult(0));
    std::vector<Slot> operands;
    for (Value operand : op->getOperands())
      operands.push_back(slotOf(operand));
    int count = result.components * threads;
    return [=] {
      for (int i = 0; i < count; ++i)
        result.words[i] = function([&](int operand) { return operands[operand].words[i]; });
    };
  }

  template <typename Function> Action real(Operation *op, Function function) {
    Type from = getElementTypeOrSelf(op->getOperand(0)), to = getElementTypeOrSelf(op->getResult(0));
    return perThread(
        op, [=](auto word) { return narrow(function([&](int operand) { return widen(word(operand), from); }), to); });
  }

  template <typename Function> Action integer(Operation *op, Function function) {
    unsigned width = widthOf(op->getResult(0).getType());
    return perThread(op, [=](auto word) { return truncated(function(word), width); });
  }

  Action compile(Operation *op);
  Action compileFor(scf::ForOp op);
  Action compileIf(scf::IfOp op);
  Action compileLoad(LLVM::LoadOp op);
  Action compileStore(LLVM::StoreOp op);
  Action compileCopy(NVVM::CpAsyncOp op);
  Action compileLoadMatrix(NVVM::LdMatrixOp op);
  Action compileMultiply(NVVM::MmaOp op);
  Action compileShuffle(NVVM::ShflOp op);
  Action compileBarrier(NVVM::BarrierOp op);
  Action compileIntrinsic(LLVM::CallIntrinsicOp op);

  int threads;
  int64_t number = 0;
  Memory &memory;
  std::vector<uint8_t> active;
  llvm::DenseMap<Value, Slot> slots;
  std::vector<std::vector<uint64_t>> storage;
  std::vector<Action> program;
};

void assign(const std::vector<Slot> &targets, const std::vector<Slot> &sources, const std::vector<uint8_t> &active) {
  // Targets may be sources too: a loop can exchange two values.
  std::vector<std::vector<uint64_t>> values;
  for (const Slot &source : sources)
    values.emplace_back(source.words, source.words + source.components * active.size());
  for (size_t i = 0; i < targets.size(); ++i)
    for (size_t word = 0; word < values[i].size(); ++word)
      if (active[word % active.size()])
        targets[i].words[word] = values[i][word];
}

Action ThreadBlock::compileFor(scf::ForOp op) {
  std::vector<Slot> initial, arguments, yielded, results;
  for (Value value : op.getInitArgs())
    initial.push_back(slotOf(value));
  for (Value value : op.getRegionIterArgs())
    arguments.push_back(slotOf(value));
  for (Value value : op.getResults())
    results.push_back(slotOf(value));
  auto body = std::make_shared<std::vector<Action>>(compile(*op.getBody()));
  for (Value value : op.getBody()->getTerminator()->getOperands())
    yielded.push_back(slotOf(value));
  Slot from = slotOf(op.getLowerBound()), to = slotOf(op.getUpperBound()), step = slotOf(op.getStep()),
       variable = slotOf(op.getInductionVar());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 1; thread < threads; ++thread)
      if (to.words[thread] != to.words[0] || from.words[thread] != from.words[0])
        fail(operation, "threads disagree about the bounds of a loop");
    assign(arguments, initial, active);
    for (int64_t i = from.words[0]; i < static_cast<int64_t>(to.words[0]); i += step.words[0]) {
      std::fill_n(variable.words, threads, i);
      execute(*body);
      assign(arguments, yielded, active);
    }
    assign(results, arguments, active);
  };
}

Action ThreadBlock::compileIf(scf::IfOp op) {
  Slot condition = slotOf(op.getCondition());
  std::vector<Slot> results;
  for (Value value : op.getResults())
    results.push_back(slotOf(value));
  struct Branch {
    std::vector<Action> body;
    std::vector<Slot> yielded;
  };
  auto branches = std::make_shared<std::vector<Branch>>();
  for (mlir::Block *block : {op.thenBlock(), op.elseBlock()}) {
    Branch &branch = branches->emplace_back();
    if (!block)
      continue;
    branch.body = compile(*block);
    for (Value value : block->getTerminator()->getOperands())
      branch.yielded.push_back(slotOf(value));
  }
  return [=, this] {
    std::vector<uint8_t> outer = active;
    for (int taken : {1, 0}) {
      bool any = false;
      for (int thread = 0; thread < threads; ++thread) {
        active[thread] = outer[thread] && (condition.words[thread] & 1) == static_cast<uint64_t>(taken);
        any |= active[thread];
      }
      const Branch &branch = (*branches)[taken ? 0 : 1];
      if (any && !branch.body.empty())
        execute(branch.body);
      if (any)
        assign(results, branch.yielded, active);
    }
    active = outer;
  };
}

Action ThreadBlock::compileLoad(LLVM::LoadOp op) {
  Slot address = slotOf(op.getAddr()), result = slotOf(op.getResult());
  size_t bytes = widthOf(op.getResult().getType()) / 8;
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      size_t all = bytes * result.components;
      const uint8_t *source = memory.at(operation, address.words[thread], all);
      memory.noteRead(operation, address.words[thread], all, thread);
      for (int i = 0; i < result.components; ++i) {
        uint64_t word = 0;
        std::memcpy(&word, source + i * bytes, bytes);
        result.words[i * threads + thread] = word;
      }
    }
  };
}

Action ThreadBlock::compileStore(LLVM::StoreOp op) {
  Slot address = slotOf(op.getAddr()), value = slotOf(op.getValue());
  size_t bytes = widthOf(op.getValue().getType()) / 8;
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      size_t all = bytes * value.components;
      std::vector<uint8_t> data(all);
      for (int i = 0; i < value.components; ++i)
        std::memcpy(data.data() + i * bytes, &value.words[i * threads + thread], bytes);
      uint8_t *target = memory.at(operation, address.words[thread], all);
      memory.noteWrite(operation, address.words[thread], all, thread, data.data());
      std::memcpy(target, data.data(), all);
    }
  };
}

Action ThreadBlock::compileCopy(NVVM::CpAsyncOp op) {
  Slot target = slotOf(op.getDst()), source = slotOf(op.getSrc());
  Slot given = op.getCpSize() ? slotOf(op.getCpSize()) : Slot();
  size_t bytes = op.getSize();
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      uint64_t read = given.words ? given.words[thread] : bytes, address = target.words[thread];
      memory.at(operation, address, bytes);
      std::vector<uint8_t> data(bytes, 0);
      if (read)
        std::memcpy(data.data(), memory.at(operation, source.words[thread], bytes), read);
      uint64_t offset = address - sharedAddress;
      // Several threads may copy the same.
      bool again = memory.pending[offset];
      if (!again)
        memory.noteWrite(operation, address, bytes, thread, nullptr);
      std::fill_n(memory.pending.begin() + offset, bytes, 1);
      memory.copies.push_back({offset, std::move(data)});
    }
  };
}

Action ThreadBlock::compileLoadMatrix(NVVM::LdMatrixOp op) {
  Slot address = slotOf(op.getPtr()), result = slotOf(op.getResult());
  int matrices = op.getNum();
  bool transposed = op.getLayout() == NVVM::MMALayout::col;
  Operation *operation = op;
  return [=, this] {
    mustConverge(operation);
    for (int warp = 0; warp < threads; warp += lanes)
      for (int matrix = 0; matrix < matrices; ++matrix) {
        uint16_t elements[8][8];
        for (int row = 0; row < 8; ++row) {
          int giver = warp + matrix * 8 + row;
          const uint8_t *source = memory.at(operation, address.words[giver], 16);
          memory.noteRead(operation, address.words[giver], 16, giver);
          std::memcpy(elements[row], source, 16);
        }
        for (int lane = 0; lane < lanes; ++lane) {
          int row = lane / 4, column = lane % 4 * 2;
          uint64_t low = transposed ? elements[column][row] : elements[row][column];
          uint64_t high = transposed ? elements[column + 1][row] : elements[row][column + 1];
          result.words[matrix * threads + warp + lane] = low | high << 16;
        }
      }
  };
}

Action ThreadBlock::compileMultiply(NVVM::MmaOp op) {
  std::vector<Slot> left, right, sums;
  for (Value value : op.getOperandA())
    left.push_back(slotOf(value));
  for (Value value : op.getOperandB())
    right.push_back(slotOf(value));
  for (Value value : op.getOperandC())
    sums.push_back(slotOf(value));
  Slot result = slotOf(op.getResult());
  Type element = *op.getMultiplicandAPtxType() == NVVM::MMATypes::f16 ? Type(Float16Type::get(op.getContext()))
                                                                      : Type(BFloat16Type::get(op.getContext()));
  Operation *operation = op;
  return [=, this] {
    mustConverge(operation);
    // Half `half` of a register, which is a word or a vector of two.
    auto part = [&](const Slot &slot, int thread, int half) {
      uint64_t word = slot.components == 2 ? slot.words[half * threads + thread] : slot.words[thread] >> (16 * half);
      return widen(word & 0xffff, element);
    };
    for (int warp = 0; warp < threads; warp += lanes) {
      float a[16][16], b[16][8];
      for (int lane = 0; lane < lanes; ++lane)
        for (int half = 0; half < 2; ++half) {
          int group = lane / 4, pair = lane % 4 * 2 + half;
          for (int reg = 0; reg < 4; ++reg)
            a[group + 8 * (reg & 1)][pair + 8 * (reg >> 1)] = part(left[reg], warp + lane, half);
          for (int reg = 0; reg < 2; ++reg)
            b[pair + 8 * reg][group] = part(right[reg], warp + lane, half);
        }
      for (int lane = 0; lane < lanes; ++lane)
        for (int reg = 0; reg < 4; ++reg) {
          int row = lane / 4 + 8 * (reg >> 1), column = lane % 4 * 2 + (reg & 1);
          float sum = 0;
          for (int inner = 0; inner < 16; ++inner)
            sum += a[row][inner] * b[inner][column];
          result.words[reg * threads + warp + lane] = fromFloat(toFloat(sums[reg].words[warp + lane]) + sum);
        }
    }
  };
}

Action ThreadBlock::compileShuffle(NVVM::ShflOp op) {
  Slot value = slotOf(op.getVal()), offset = slotOf(op.getOffset()), result = slotOf(op.getResult());
  bool butterfly = op.getKind() == NVVM::ShflKind::bfly;
  Operation *operation = op;
  return [=, this] {
    mustConverge(operation);
    std::vector<uint64_t> before(value.words, value.words + threads);
    for (int thread = 0; thread < threads; ++thread) {
      int lane = thread % lanes, other = offset.words[thread] & (lanes - 1);
      result.words[thread] = before[thread - lane + (butterfly ? lane ^ other : other)];
    }
  };
}

Action ThreadBlock::compileBarrier(NVVM::BarrierOp op) {
  Slot predicate = op.getReductionPredicate() ? slotOf(op.getReductionPredicate()) : Slot();
  Slot result = predicate.words ? slotOf(op.getRes()) : Slot();
  bool isOr = predicate.words && *op.getReductionOp() == NVVM::BarrierReduction::OR;
  Operation *operation = op;
  return [=, this] {
    mustConverge(operation);
    memory.barrier();
    if (!predicate.words)
      return;
    bool combined = !isOr;
    for (int thread = 0; thread < threads; ++thread)
      combined = isOr ? combined || predicate.words[thread] : combined && predicate.words[thread];
    std::fill_n(result.words, threads, combined);
  };
}

Action ThreadBlock::compileIntrinsic(LLVM::CallIntrinsicOp op) {
  StringRef name = op.getIntrin();
  Operation *operation = op;
  if (name == "llvm.nvvm.div.full.ftz")
    return real(operation, [](auto x) { return x(0) / x(1); });
  if (name == "llvm.nvvm.rsqrt.approx.ftz.f")
    return real(operation, [](auto x) { return 1 / std::sqrt(x(0)); });
  fail(operation, "an intrinsic that the simulator does not know");
}

bool ordered(arith::CmpFPredicate predicate) { return static_cast<int>(predicate) < 8; }

bool compareReal(arith::CmpFPredicate predicate, double a, double b) {
  if (std::isnan(a) || std::isnan(b))
    return predicate == arith::CmpFPredicate::AlwaysTrue ||
           (!ordered(predicate) && predicate != arith::CmpFPredicate::AlwaysFalse);
  switch (predicate) {
  case arith::CmpFPredicate::OEQ:
  case arith::CmpFPredicate::UEQ:
    return a == b;
  case arith::CmpFPredicate::OGT:
  case arith::CmpFPredicate::UGT:
    return a > b;
  case arith::CmpFPredicate::OGE:
  case arith::CmpFPredicate::UGE:
    return a >= b;
  case arith::CmpFPredicate::OLT:
  case arith::CmpFPredicate::ULT:
    return a < b;
  case arith::CmpFPredicate::OLE:
  case arith::CmpFPredicate::ULE:
    return a <= b;
  case arith::CmpFPredicate::ONE:
  case arith::CmpFPredicate::UNE:
    return a != b;
  case arith::CmpFPredicate::ORD:
  case arith::CmpFPredicate::AlwaysTrue:
    return true;
  case arith::CmpFPredicate::UNO:
  case arith::CmpFPredicate::AlwaysFalse:
    return false;
  }
  return false;
}

double maximum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b); }
double minimum(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::min(a, b); }

Action ThreadBlock::compile(Operation *op) {
  return llvm::TypeSwitch<Operation *, Action>(op)
      .Case([&](scf::ForOp op) { return compileFor(op); })
      .Case([&](scf::IfOp op) { return compileIf(op); })
      .Case<scf::YieldOp, LLVM::ReturnOp, NVVM::CpAsyncCommitGroupOp>([&](auto) { return Action(); })
      .Case([&](LLVM::LoadOp op) { return compileLoad(op); })
      .Case([&](LLVM::StoreOp op) { return compileStore(op); })
      .Case([&](NVVM::CpAsyncOp op) { return compileCopy(op); })
      .Case([&](NVVM::CpAsyncWaitGroupOp) { return [this] { memory.finishCopies(); }; })
      .Case([&](NVVM::LdMatrixOp op) { return compileLoadMatrix(op); })
      .Case([&](NVVM::MmaOp op) { return compileMultiply(op); })
      .Case([&](NVVM::ShflOp op) { return compileShuffle(op); })
      .Case([&](NVVM::BarrierOp op) { return compileBarrier(op); })
      .Case([&](LLVM::CallIntrinsicOp op) { return compileIntrinsic(op); })
      .Case([&](NVVM::ThreadIdXOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread)
            result.words[thread] = thread;
        };
      })
      .Case([&](NVVM::BlockIdXOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] { std::fill_n(result.words, threads, number); };
      })
      .Case([&](LLVM::AddressOfOp op) {
        Slot result = slotOf(op.getResult());
        return [=, this] { std::fill_n(result.words, threads, sharedAddress); };
      })
      .Case([&](arith::ConstantOp op) {
        Slot result = slotOf(op.getResult());
        uint64_t bits = isa<FloatAttr>(op.getValue())
                            ? cast<FloatAttr>(op.getValue()).getValue().bitcastToAPInt().getZExtValue()
                            : cast<IntegerAttr>(op.getValue()).getValue().getZExtValue();
        return [=, this] { std::fill_n(result.words, threads, bits); };
      })
      .Case([&](LLVM::PoisonOp op) {
        slotOf(op.getResult());
        return Action();
      })
      .Case([&](LLVM::GEPOp op) {
        Slot base = slotOf(op.getBase()), result = slotOf(op.getResult());
        bool dynamic = !op.getDynamicIndices().empty();
        Slot index = dynamic ? slotOf(op.getDynamicIndices()[0]) : Slot();
        unsigned width = dynamic ? widthOf(op.getDynamicIndices()[0].getType()) : 64;
        int64_t constant = dynamic ? 0 : op.getRawConstantIndices()[0];
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread)
            result.words[thread] = base.words[thread] + (dynamic ? asSigned(index.words[thread], width) : constant);
        };
      })
      .Case([&](LLVM::InsertElementOp op) {
        Slot vector = slotOf(op.getVector()), value = slotOf(op.getValue()), position = slotOf(op.getPosition()),
             result = slotOf(op.getResult());
        return [=, this] {
          std::copy_n(vector.words, vector.components * threads, result.words);
          std::copy_n(value.words, threads, result.words + position.words[0] * threads);
        };
      })
      .Case([&](LLVM::ExtractElementOp op) {
        Slot vector = slotOf(op.getVector()), position = slotOf(op.getPosition()), result = slotOf(op.getResult());
        return [=, this] { std::copy_n(vector.words + position.words[0] * threads, threads, result.words); };
      })
      .Case([&](LLVM::ExtractValueOp op) {
        Slot whole = slotOf(op.getContainer()), result = slotOf(op.getResult());
        int64_t position = op.getPosition()[0];
        return [=, this] { std::copy_n(whole.words + position * threads, threads, result.words); };
      })
      .Case([&](LLVM::BitcastOp op) {
        // Words to pairs of 16 bits and back.
        Slot source = slotOf(op.getArg()), result = slotOf(op.getResult());
        return [=, this] {
          for (int thread = 0; thread < threads; ++thread) {
            uint64_t word = source.components == 2 ? source.words[thread] | source.words[threads + thread] << 16
                                                   : source.words[thread];
            result.words[thread] = result.components == 2 ? word & 0xffff : word;
            if (result.components == 2)
              result.words[threads + thread] = word >> 16 & 0xffff;
          }
        };
      })
      .Case<LLVM::IntToPtrOp, arith::BitcastOp>([&](auto op) { return perThread(op, [](auto x) { return x(0); }); })
      .Case([&](arith::SelectOp op) { return perThread(op, [](auto x) { return x(0) & 1 ? x(1) : x(2); }); })
      .Case([&](arith::AddIOp op) { return integer(op, [](auto x) { return x(0) + x(1); }); })
      .Case([&](arith::SubIOp op) { return integer(op, [](auto x) { return x(0) - x(1); }); })
      .Case([&](arith::MulIOp op) { return integer(op, [](auto x) { return x(0) * x(1); }); })
      .Case([&](arith::DivUIOp op) { return integer(op, [](auto x) { return x(1) ? x(0) / x(1) : 0; }); })
      .Case([&](arith::RemUIOp op) { return integer(op, [](auto x) { return x(1) ? x(0) % x(1) : 0; }); })
      .Case([&](arith::AndIOp op) { return integer(op, [](auto x) { return x(0) & x(1); }); })
      .Case([&](arith::OrIOp op) { return integer(op, [](auto x) { return x(0) | x(1); }); })
      .Case([&](arith::XOrIOp op) { return integer(op, [](auto x) { return x(0) ^ x(1); }); })
      .Case([&](arith::ShLIOp op) { return integer(op, [](auto x) { return x(0) << x(1); }); })
      .Case([&](arith::ShRUIOp op) { return integer(op, [](auto x) { return x(0) >> x(1); }); })
      .Case<arith::ExtUIOp, arith::TruncIOp>([&](auto op) { return integer(op, [](auto x) { return x(0); }); })
      .Case<arith::ShRSIOp, arith::MaxSIOp, arith::MinSIOp, arith::ExtSIOp>([&](auto op) {
        Operation *operation = op;
        unsigned width = widthOf(operation->getOperand(0).getType());
        return integer(operation, [=](auto x) -> uint64_t {
          int64_t a = asSigned(x(0), width);
          if (isa<arith::ExtSIOp>(operation))
            return a;
          int64_t b = asSigned(x(1), width);
          return isa<arith::ShRSIOp>(operation)   ? a >> b
                 : isa<arith::MaxSIOp>(operation) ? std::max(a, b)
                                                  : std::min(a, b);
        });
      })
      .Case([&](arith::CmpIOp op) {
        unsigned width = widthOf(op.getLhs().getType());
        arith::CmpIPredicate predicate = op.getPredicate();
        return perThread(op, [=](auto x) -> uint64_t {
          return arith::applyCmpPredicate(predicate, llvm::APInt(width, x(0)), llvm::APInt(width, x(1)));
        });
      })
      .Case([&](arith::CmpFOp op) {
        Type type = getElementTypeOrSelf(op.getLhs());
        arith::CmpFPredicate predicate = op.getPredicate();
        return perThread(
            op, [=](auto x) -> uint64_t { return compareReal(predicate, widen(x(0), type), widen(x(1), type)); });
      })
      .Case([&](arith::SIToFPOp op) {
        unsigned width = widthOf(op.getIn().getType());
        Type type = getElementTypeOrSelf(op.getType());
        return perThread(op, [=](auto x) { return narrow(static_cast<double>(asSigned(x(0), width)), type); });
      })
      .Case([&](arith::FPToSIOp op) {
        Type type = getElementTypeOrSelf(op.getIn());
        return integer(op, [=](auto x) { return static_cast<uint64_t>(static_cast<int64_t>(widen(x(0), type))); });
      })
      .Case<arith::ExtFOp, arith::TruncFOp>([&](auto op) { return real(op, [](auto x) { return x(0); }); })
      .Case([&](arith::AddFOp op) { return real(op, [](auto x) { return x(0) + x(1); }); })
      .Case([&](arith::SubFOp op) { return real(op, [](auto x) { return x(0) - x(1); }); })
      .Case([&](arith::MulFOp op) { return real(op, [](auto x) { return x(0) * x(1); }); })
      .Case<arith::DivFOp, LLVM::FDivOp>([&](auto op) { return real(op, [](auto x) { return x(0) / x(1); }); })
      .Case([&](arith::RemFOp op) { return real(op, [](auto x) { return std::fmod(x(0), x(1)); }); })
      .Case([&](arith::NegFOp op) { return real(op, [](auto x) { return -x(0); }); })
      .Case([&](arith::MaximumFOp op) { return real(op, [](auto x) { return maximum(x(0), x(1)); }); })
      .Case([&](arith::MinimumFOp op) { return real(op, [](auto x) { return minimum(x(0), x(1)); }); })
      .Case([&](math::ExpOp op) { return real(op, [](auto x) { return std::exp(x(0)); }); })
      .Case<math::Exp2Op, LLVM::Exp2Op>([&](auto op) { return real(op, [](auto x) { return std::exp2(x(0)); }); })
      .Case([&](math::LogOp op) { return real(op, [](auto x) { return std::log(x(0)); }); })
      .Case([&](math::Log1pOp op) { return real(op, [](auto x) { return std::log1p(x(0)); }); })
      .Case<math::SqrtOp, LLVM::SqrtOp>([&](auto op) { return real(op, [](auto x) { return std::sqrt(x(0)); }); })
      .Case([&](math::RsqrtOp op) { return real(op, [](auto x) { return 1 / std::sqrt(x(0)); }); })
      .Case<math::AbsFOp, LLVM::FAbsOp>([&](auto op) { return real(op, [](auto x) { return std::fabs(x(0)); }); })
      .Case([&](math::TanhOp op) { return real(op, [](auto x) { return std::tanh(x(0)); }); })
      .Case([&](math::SinOp op) { return real(op, [](auto x) { return std::sin(x(0)); }); })
      .Case([&](math::CosOp op) { return real(op, [](auto x) { return std::cos(x(0)); }); })
      .Case<math::FloorOp, LLVM::FFloorOp>([&](auto op) { return real(op, [](auto x) { return std::floor(x(0)); }); })
      .Case([&](LLVM::FTruncOp op) { return real(op, [](auto x) { return std::trunc(x(0)); }); })
      .Case<math::RoundEvenOp, LLVM::RoundEvenOp>(
          [&](auto op) { return real(op, [](auto x) { return std::nearbyint(x(0)); }); })
      .Case([&](math::PowFOp op) { return real(op, [](auto x) { return std::pow(x(0), x(1)); }); })
      .Case([&](LLVM::FMAOp op) { return real(op, [](auto x) { return std::fma(x(0), x(1), x(2)); }); })
      .Case([&](LLVM::CopySignOp op) { return real(op, [](auto x) { return std::copysign(x(0), x(1)); }); })
      .Default([&](Operation *op) -> Action { fail(op, "an operation that the simulator does not know"); });
}

std::vector<uint64_t> readWords(const char *path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<uint64_t> words(file ? static_cast<size_t>(file.tellg()) / 8 : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char *>(words.data()), words.size() * 8);
  return words;
}
} // namespace

int main(int argc, char **argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: simulate-block threads.mlir memory.bin\n");
    return 2;
  }
  DialectRegistry registry;
  registry.insert<arith::ArithDialect, math::MathDialect, scf::SCFDialect, LLVM::LLVMDialect, NVVM::NVVMDialect>();
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.allowUnregisteredDialects();
  OwningOpRef<ModuleOp> module = parseSourceFile<ModuleOp>(argv[1], &context);
  if (!module || module->getOps<LLVM::LLVMFuncOp>().empty())
    return 1;

  std::vector<uint64_t> words = readWords(argv[2]);
  if (words.size() < 5)
    return 1;
  int threads = words[0];
  int64_t blocks = words[1], sharedBytes = words[2], blockWords = words[3], buffers = words[4];
  Memory memory;
  const auto *parameters = reinterpret_cast<const uint8_t *>(&words[5]);
  memory.parameters.assign(parameters, parameters + blockWords * 8);
  size_t position = 5 + blockWords;
  std::vector<size_t> places;
  for (int64_t buffer = 0; buffer < buffers; ++buffer) {
    size_t bytes = words[position++];
    const auto *data = reinterpret_cast<const uint8_t *>(&words[position]);
    memory.buffers.emplace_back(data, data + bytes);
    places.push_back(position);
    position += (bytes + 7) / 8;
  }
  memory.shared.resize(sharedBytes);
  memory.pending.resize(sharedBytes);
  memory.reader.resize(sharedBytes);
  memory.writer.resize(sharedBytes);

  ThreadBlock block(*module->getOps<LLVM::LLVMFuncOp>().begin(), threads, memory);
  for (int64_t number = 0; number < blocks; ++number) {
    // What a block finds in shared memory is arbitrary: not-a-number, so that it does not go unnoticed.
    std::fill(memory.shared.begin(), memory.shared.end(), 0xff);
    std::fill(memory.pending.begin(), memory.pending.end(), 0);
    memory.copies.clear();
    memory.barrier();
    block.run(number);
  }
  for (size_t buffer = 0; buffer < memory.buffers.size(); ++buffer)
    std::memcpy(&words[places[buffer]], memory.buffers[buffer].data(), memory.buffers[buffer].size());
  std::ofstream(argv[2], std::ios::binary).write(reinterpret_cast<const char *>(words.data()), words.size() * 8);
}
