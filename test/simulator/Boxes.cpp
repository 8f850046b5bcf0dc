//===- Boxes.cpp - Copies by the memory system, and their barriers --------===//

#include "ThreadBlock.h"
#include <algorithm>
#include <array>

using namespace mlir;
using namespace stretto::simulator;

/// What the memory system copies at a time.
constexpr int64_t pieceBytes = 16;

Action ThreadBlock::compileBarrierInit(NVVM::MBarrierInitOp op) {
  Slot address = slotOf(op.getAddr()), count = slotOf(op.getCount());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      memory.at(operation, address.words[thread], 8);
      auto [barrier, isNew] = memory.barriers.try_emplace(address.words[thread]);
      if (!isNew || !count.words[thread])
        fail(operation, "a barrier that there is already, or that expects nobody");
      barrier->second.count = count.words[thread];
    }
  };
}

Action ThreadBlock::compileExpect(NVVM::MBarrierArriveExpectTxOp op) {
  Slot address = slotOf(op.getAddr()), bytes = slotOf(op.getTxcount());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      Memory::PhaseBarrier &own = memory.barrierAt(operation, address.words[thread]);
      if (own.arrived)
        fail(operation, "an arrival at a barrier whose phase is not complete");
      own.arrived = 1;
      own.expected += static_cast<int64_t>(bytes.words[thread]);
    }
  };
}

Action ThreadBlock::compileBarrierWait(NVVM::MBarrierTryWaitParityOp op) {
  Slot address = slotOf(op.getAddr()), parity = slotOf(op.getPhase());
  Operation *operation = op;
  return [=, this] {
    // All wait, or the one thread that sends.
    auto first = std::find(active.begin(), active.end(), 1) - active.begin();
    if (std::count(active.begin(), active.end(), 1) != 1)
      mustConverge(operation);
    Memory::PhaseBarrier &own = memory.barrierAt(operation, address.words[first]);
    waitUntil(operation, [&] {
      if ((own.phases & 1) != parity.words[first])
        return true;
      memory.finishCopiesOf(address.words[first]);
      if (own.arrived && own.expected)
        fail(operation, "a wait for a phase that is never complete: " + std::to_string(own.expected) + " bytes miss");
      return own.complete();
    });
  };
}

Action ThreadBlock::compileArrive(NVVM::MBarrierArriveOp op) {
  Slot address = slotOf(op.getAddr());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      Memory::PhaseBarrier &own = memory.barrierAt(operation, address.words[thread]);
      ++own.arrived;
      own.complete();
      turns->noteChange();
    }
  };
}

namespace {
/// A description of a tensor in the argument block (runtime/TensorBoxes.h).
struct Description {
  static constexpr int axes = 4;
  int64_t pointer, number, bytes;
  std::array<int64_t, axes> sizes;
  std::array<int64_t, axes - 1> strides;
  int64_t columns, tokens;
};
} // namespace

namespace {
/// The box of a tensor that a thread orders a copy of, piece by piece.
class Box {
public:
  Box(Operation *op, Memory &memory, uint64_t map, std::array<int64_t, Description::axes> first) : first(first) {
    if (map % 64)
      fail(op, "a description of a tensor that is not at a multiple of 64 bytes");
    for (size_t word = 0; word < sizeof(Description) / 8; ++word)
      std::memcpy(reinterpret_cast<char *>(&tensor) + word * 8, memory.at(op, map + word * 8, 8), 8);
  }

  /// Calls a function with the place of each piece in shared memory, and its address where it exists, else 0.
  template <typename Function> void forPieces(Operation *op, uint64_t start, Function function) const {
    constexpr int64_t banks = 128;
    int64_t rowBytes = tensor.columns * tensor.bytes, width = std::min(rowBytes, banks);
    if (start % (8 * width))
      fail(op, "a box at " + std::to_string(start) + ", expected a multiple of " + std::to_string(8 * width));
    for (int64_t row = 0; row < tensor.tokens; ++row)
      for (int64_t piece = 0; piece < rowBytes; piece += pieceBytes) {
        std::array<int64_t, Description::axes> place = first;
        place[0] += piece / tensor.bytes;
        place[2] += row;
        bool exists = true;
        int64_t address = tensor.pointer + place[0] * tensor.bytes;
        for (int axis = 0; axis < Description::axes; ++axis)
          exists &= place[axis] >= 0 && place[axis] < tensor.sizes[axis];
        for (int axis = 1; axis < Description::axes; ++axis)
          address += place[axis] * tensor.strides[axis - 1];
        uint64_t shared = start + row * rowBytes + piece;
        shared ^= (shared / banks % (width / pieceBytes)) * pieceBytes;
        function(shared, exists ? address : 0);
      }
  }

private:
  Description tensor;
  std::array<int64_t, Description::axes> first;
};

/// The first entry of a box of a thread.
std::array<int64_t, Description::axes> firstOf(const std::vector<Slot> &coordinates, int thread) {
  std::array<int64_t, Description::axes> first;
  for (int axis = 0; axis < Description::axes; ++axis)
    first[axis] = static_cast<int32_t>(coordinates[axis].words[thread]);
  return first;
}
} // namespace

Action ThreadBlock::compileBox(NVVM::CpAsyncBulkTensorGlobalToSharedClusterOp op) {
  Slot target = slotOf(op.getDstMem()), map = slotOf(op.getTmaDescriptor()), barrier = slotOf(op.getMbar());
  std::vector<Slot> coordinates = slotsOf(op.getCoordinates());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      Box box(operation, memory, map.words[thread], firstOf(coordinates, thread));
      box.forPieces(operation, target.words[thread] - sharedAddress, [&](uint64_t shared, int64_t source) {
        std::vector<uint8_t> data(pieceBytes, 0);
        if (source)
          std::memcpy(data.data(), memory.at(operation, source, pieceBytes), pieceBytes);
        memory.noteWrite(operation, sharedAddress + shared, pieceBytes, thread, nullptr);
        memory.expect(operation, sharedAddress + shared, pieceBytes);
        memory.copies.push_back({shared, std::move(data), barrier.words[thread], role});
      });
    }
  };
}

Action ThreadBlock::compileBoxStore(NVVM::CpAsyncBulkTensorSharedCTAToGlobalOp op) {
  Slot source = slotOf(op.getSrcMem()), map = slotOf(op.getTmaDescriptor());
  std::vector<Slot> coordinates = slotsOf(op.getCoordinates());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      Box box(operation, memory, map.words[thread], firstOf(coordinates, thread));
      box.forPieces(operation, source.words[thread] - sharedAddress,
                    [&](uint64_t shared, int64_t target) { storePiece(operation, shared, target, thread); });
    }
  };
}

void ThreadBlock::storePiece(Operation *operation, uint64_t shared, int64_t target, int thread) {
  memory.noteRead(operation, sharedAddress + shared, pieceBytes, thread);
  if (memory.unfenced[shared / Memory::bytesOfCell])
    fail(operation, "copies byte " + std::to_string(shared) + " of shared memory, written without a fence behind");
  memory.leaving[shared / pieceBytes] = {role, thread};
  if (target)
    std::memcpy(memory.at(operation, target, pieceBytes), memory.at(operation, sharedAddress + shared, pieceBytes),
                pieceBytes);
}

Action ThreadBlock::compileBulkLoad(NVVM::CpAsyncBulkGlobalToSharedClusterOp op) {
  Slot target = slotOf(op.getDstMem()), source = slotOf(op.getSrcMem()), barrier = slotOf(op.getMbar()),
       size = slotOf(op.getSize());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      uint64_t bytes = size.words[thread], start = target.words[thread] - sharedAddress;
      if (bytes % pieceBytes)
        fail(operation, "a copy of " + std::to_string(bytes) + " bytes, expected a multiple of 16");
      for (uint64_t piece = 0; piece < bytes; piece += pieceBytes) {
        std::vector<uint8_t> data(pieceBytes);
        std::memcpy(data.data(), memory.at(operation, source.words[thread] + piece, pieceBytes), pieceBytes);
        memory.at(operation, target.words[thread] + piece, pieceBytes);
        memory.noteWrite(operation, target.words[thread] + piece, pieceBytes, thread, nullptr);
        memory.expect(operation, target.words[thread] + piece, pieceBytes);
        memory.copies.push_back({start + piece, std::move(data), barrier.words[thread], role});
      }
    }
  };
}

Action ThreadBlock::compileBulkStore(NVVM::CpAsyncBulkSharedCTAToGlobalOp op) {
  Slot target = slotOf(op.getDstMem()), source = slotOf(op.getSrcMem()), size = slotOf(op.getSize());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      uint64_t start = source.words[thread] - sharedAddress;
      for (uint64_t piece = 0; piece < size.words[thread]; piece += pieceBytes) {
        storePiece(operation, start + piece, static_cast<int64_t>(target.words[thread] + piece), thread);
      }
    }
  };
}

Action ThreadBlock::compileBulkWait(NVVM::CpAsyncBulkWaitGroupOp) {
  return [this] {
    std::erase_if(memory.leaving, [&](const auto &piece) {
      auto [owner, thread] = piece.second;
      return owner == role && active[thread];
    });
  };
}

Action ThreadBlock::compileBarrierEnd(NVVM::MBarrierInvalOp op) {
  Slot address = slotOf(op.getAddr());
  Operation *operation = op;
  return [=, this] {
    for (int thread = 0; thread < threads; ++thread) {
      if (!active[thread])
        continue;
      memory.barrierAt(operation, address.words[thread]);
      memory.barriers.erase(address.words[thread]);
    }
  };
}
