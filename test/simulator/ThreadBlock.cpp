//===- ThreadBlock.cpp - Control, memory, and what threads do together ----===//

#include "ThreadBlock.h"
#include <algorithm>
#include <array>
#include <memory>

using namespace mlir;
using namespace stretto::simulator;

static void assign(const std::vector<Slot> &targets, const std::vector<Slot> &sources,
                   const std::vector<uint8_t> &active) {
  // Targets may be sources too: a loop can exchange two values.
  std::vector<std::vector<uint64_t>> values;
  values.reserve(sources.size());
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

Action ThreadBlock::compileWhile(scf::WhileOp op) {
  auto slotsOf = [&](auto values) {
    std::vector<Slot> slots;
    for (Value value : values)
      slots.push_back(slotOf(value));
    return slots;
  };
  auto ask = std::make_shared<std::vector<Action>>(compile(*op.getBeforeBody()));
  auto body = std::make_shared<std::vector<Action>>(compile(*op.getAfterBody()));
  std::vector<Slot> initial = slotsOf(op.getInits()), asked = slotsOf(op.getBeforeArguments()),
                    given = slotsOf(op.getConditionOp().getArgs()), arguments = slotsOf(op.getAfterArguments()),
                    yielded = slotsOf(op.getYieldOp().getOperands()), results = slotsOf(op.getResults());
  Slot condition = slotOf(op.getConditionOp().getCondition());
  Operation *operation = op;
  return [=, this] {
    assign(asked, initial, active);
    for (;;) {
      execute(*ask);
      for (int thread = 1; thread < threads; ++thread)
        if ((condition.words[thread] & 1) != (condition.words[0] & 1))
          fail(operation, "threads disagree about the end of a loop");
      if (!(condition.words[0] & 1))
        break;
      assign(arguments, given, active);
      execute(*body);
      assign(asked, yielded, active);
    }
    assign(results, given, active);
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

/// The most that a thread reads or writes at a time.
static constexpr size_t bytesOfAccess = 16;

/// A number of so many bytes; most have four or two, which the host reads at once.
static uint64_t wordAt(const uint8_t *source, size_t bytes) {
  auto read = [&]<typename Number>(Number number) -> uint64_t {
    std::memcpy(&number, source, sizeof(number));
    return number;
  };
  if (bytes == 4)
    return read(uint32_t());
  if (bytes == 2)
    return read(uint16_t());
  uint64_t word = 0;
  std::memcpy(&word, source, bytes);
  return word;
}

Action ThreadBlock::compileLoad(LLVM::LoadOp op) {
  Slot address = slotOf(op.getAddr()), result = slotOf(op.getResult());
  size_t bytes = widthOf(op.getResult().getType()) / 8;
  Operation *operation = op;
  // Of what is volatile either number will do that another thread may leave meanwhile.
  bool isOrdered = !op.getVolatile_();
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      size_t all = bytes * result.components;
      const uint8_t *source = memory.at(operation, address.words[thread], all);
      if (isOrdered)
        memory.noteRead(operation, address.words[thread], all, thread);
      for (int i = 0; i < result.components; ++i)
        result.words[i * threads + thread] = wordAt(source + i * bytes, bytes);
    }
  };
}

Action ThreadBlock::compileStore(LLVM::StoreOp op) {
  Slot address = slotOf(op.getAddr()), value = slotOf(op.getValue());
  size_t bytes = widthOf(op.getValue().getType()) / 8;
  Operation *operation = op;
  bool isOrdered = !op.getVolatile_();
  if (bytes * value.components > bytesOfAccess)
    fail(operation, "a store of " + std::to_string(bytes * value.components) + " bytes, expected at most 16");
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      size_t all = bytes * value.components;
      std::array<uint8_t, bytesOfAccess> data;
      for (int i = 0; i < value.components; ++i)
        std::memcpy(data.data() + i * bytes, &value.words[i * threads + thread], bytes);
      uint8_t *target = memory.at(operation, address.words[thread], all);
      if (isOrdered)
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
      if (!memory.isExpected(address))
        memory.noteWrite(operation, address, bytes, thread, nullptr);
      memory.expect(operation, address, bytes);
      memory.copies.push_back({offset, std::move(data), 0, role, memory.groupsOfCopies[role]});
    }
  };
}

Action ThreadBlock::compileLoadMatrix(NVVM::LdMatrixOp op) {
  Slot address = slotOf(op.getPtr()), result = slotOf(op.getResult());
  int matrices = op.getNum();
  bool transposed = op.getLayout() == NVVM::MMALayout::col;
  Operation *operation = op;
  return [=, this] {
    warpsMustConverge(operation);
    for (int warp : activeWarps())
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

Action ThreadBlock::compileStoreMatrix(NVVM::StMatrixOp op) {
  Slot address = slotOf(op.getPtr());
  std::vector<Slot> sources;
  for (Value source : op.getSources())
    sources.push_back(slotOf(source));
  bool transposed = op.getLayout() == NVVM::MMALayout::col;
  Operation *operation = op;
  return [=, this] {
    warpsMustConverge(operation);
    for (int warp : activeWarps())
      for (size_t matrix = 0; matrix < sources.size(); ++matrix)
        for (int lane = 0; lane < lanes; ++lane) {
          auto store = [&](int row, int column, auto number) {
            // Lane 8 m + r gives the address of row r.
            uint64_t target = address.words[warp + matrix * 8 + row];
            if (target % 16)
              fail(operation, "a row of a matrix at an address that is no multiple of 16");
            target += uint64_t(2) * column;
            uint8_t *place = memory.at(operation, target, sizeof(number));
            memory.noteWrite(operation, target, sizeof(number), warp + lane, reinterpret_cast<uint8_t *>(&number));
            std::memcpy(place, &number, sizeof(number));
          };
          // Two numbers of row l / 4, or of that column.
          auto word = static_cast<uint32_t>(sources[matrix].words[warp + lane]);
          int across = lane % 4 * 2;
          if (!transposed) {
            store(lane / 4, across, word);
            continue;
          }
          store(across, lane / 4, static_cast<uint16_t>(word));
          store(across + 1, lane / 4, static_cast<uint16_t>(word >> 16));
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
  Format element = *op.getMultiplicandAPtxType() == NVVM::MMATypes::f16 ? Format::F16 : Format::BF16;
  Operation *operation = op;
  return [=, this] {
    warpsMustConverge(operation);
    // Half `half` of a register, which is a word or a vector of two.
    auto part = [&](const Slot &slot, int thread, int half) {
      uint64_t word = slot.components == 2 ? slot.words[half * threads + thread] : slot.words[thread] >> (16 * half);
      return widen(word & 0xffff, element);
    };
    for (int warp : activeWarps()) {
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
    warpsMustConverge(operation);
    std::vector<uint64_t> before(value.words, value.words + threads);
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      int lane = thread % lanes, other = offset.words[thread] & (lanes - 1);
      result.words[thread] = before[thread - lane + (butterfly ? lane ^ other : other)];
    }
  };
}

void ThreadBlock::waitUntil(Operation *op, llvm::function_ref<bool()> condition) {
  while (!condition()) {
    uint64_t seen = turns->changesSeen();
    if (!turns->yield(role))
      fail(op, "a wait for what no other role does");
    memory.role = role;
    if (turns->changesSeen() == seen && !condition())
      fail(op, "roles that wait for each other");
  }
}

Action ThreadBlock::compileBarrier(NVVM::BarrierOp op) {
  Slot predicate = op.getReductionPredicate() ? slotOf(op.getReductionPredicate()) : Slot();
  Slot result = predicate.words ? slotOf(op.getRes()) : Slot();
  bool isOr = predicate.words && *op.getReductionOp() == NVVM::BarrierReduction::OR;
  Operation *operation = op;
  bool isOfRole = static_cast<bool>(op.getBarrierId());
  return [=, this] {
    mustConverge(operation);
    if (!isOfRole && memory.ofRoles.size() > 1) {
      uint64_t meeting = memory.met++ / memory.ofRoles.size() + 1;
      turns->noteChange();
      waitUntil(operation, [&] { return memory.met >= meeting * memory.ofRoles.size(); });
    }
    memory.barrier();
    if (!predicate.words)
      return;
    bool combined = !isOr;
    for (int thread = 0; thread < threads; ++thread)
      combined = isOr ? combined || predicate.words[thread] : combined && predicate.words[thread];
    std::fill_n(result.words, threads, combined);
  };
}
