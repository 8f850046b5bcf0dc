//===- Memory.h - What the threads of a block read and write ----*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_MEMORY_H
#define STRETTO_TEST_SIMULATOR_MEMORY_H

#include "mlir/IR/Operation.h"
#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace stretto::simulator {

/// Ends the process with a message about an operation.
[[noreturn]] void fail(mlir::Operation *op, const std::string &message);

constexpr uint64_t sharedAddress = uint64_t(1) << 62, parameterAddress = uint64_t(1) << 61;

struct Memory {
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<uint8_t> parameters, shared;
  /// What is noted of shared memory is noted of two bytes, which the smallest numbers have.
  static constexpr uint64_t bytesOfCell = 2;
  /// Who touched a cell of shared memory: which warp since the last barrier, and which thread since the last barrier of
  /// its warp. Marks are as old as the barriers in front of them, so that a barrier need not clear what nobody touched.
  class Marks {
  public:
    bool isMarked(uint64_t cell) const { return warpOf(cell) != nobody; }
    bool isOfOthers(uint64_t cell, int thread) const {
      auto isOther = [](int earlier, int own) { return earlier != nobody && earlier != own; };
      return isMarked(cell) && (isOther(warpOf(cell), thread / 32) || isOther(threadOf(cell), thread));
    }
    void set(uint64_t cell, int warp, int thread) {
      marks[cell] = {barriers, barriersOfWarps, static_cast<int16_t>(warp), static_cast<int16_t>(thread)};
    }
    void add(uint64_t cell, int thread) {
      auto both = [](int earlier, int own) { return earlier == nobody || earlier == own ? own : several; };
      set(cell, both(warpOf(cell), thread / 32), both(threadOf(cell), thread));
    }
    void addAll(uint64_t cell) { set(cell, several, several); }
    void forget(uint64_t cell) { marks[cell].barriers = 0; }
    void clear() { ++barriers; }
    void clearThreads() { ++barriersOfWarps; }
    void resize(size_t cells) {
      marks.resize(cells);
      clear();
    }

  private:
    static constexpr int nobody = -1, several = -2;
    struct Mark {
      uint32_t barriers = 0, barriersOfWarps = 0;
      int16_t warp = nobody, thread = nobody;
    };

    int warpOf(uint64_t cell) const { return marks[cell].barriers == barriers ? marks[cell].warp : nobody; }
    int threadOf(uint64_t cell) const {
      const Mark &mark = marks[cell];
      return mark.barriers == barriers && mark.barriersOfWarps == barriersOfWarps ? mark.thread : nobody;
    }

    std::vector<Mark> marks;
    uint32_t barriers = 1, barriersOfWarps = 1;
  };
  /// Those of each role, which meets alone; the one whose turn it is.
  struct OfRole {
    Marks reader, writer;
  };
  std::vector<OfRole> ofRoles = std::vector<OfRole>(1);
  int role = 0;
  /// How often a role has come to a barrier of the whole block.
  uint64_t met = 0;
  /// Cells that an asynchronous copy will write.
  std::vector<uint8_t> pending;
  /// Cells that threads have written and products of warpgroups do not see yet: the role that did, counted from 1. How
  /// many products are reading a cell.
  std::vector<uint8_t> unfenced;
  std::vector<int> underWay;
  /// Pieces of 16 bytes that the memory system reads until it is awaited: the thread of a role that ordered the copy.
  std::map<uint64_t, std::pair<int, int>> leaving;
  struct Copy {
    uint64_t target;
    std::vector<uint8_t> bytes;
    uint64_t barrier = 0; // that the memory system tells of the copy; 0 where threads copy
    int role = 0;
    uint64_t group = 0; // of those that threads copy, counted in a role
  };
  std::vector<Copy> copies;
  /// How many groups of copies a role has committed: what its threads copy next is of another.
  std::map<int, uint64_t> groupsOfCopies;
  /// Barriers in shared memory: how many phases are complete, the bytes that the next one still expects, how many have
  /// arrived of how many.
  struct PhaseBarrier {
    uint64_t phases = 0;
    int64_t expected = 0;
    uint64_t arrived = 0, count = 1;

    /// Completes the phase if all have arrived.
    bool complete() {
      bool areAll = arrived == count;
      phases += areAll ? 1 : 0;
      arrived = areAll ? 0 : arrived;
      return areAll;
    }
  };
  std::map<uint64_t, PhaseBarrier> barriers;

  PhaseBarrier &barrierAt(mlir::Operation *op, uint64_t address) {
    auto found = barriers.find(address);
    if (found == barriers.end())
      fail(op, "an arrival or a wait at no barrier");
    return found->second;
  }

  uint8_t *at(mlir::Operation *op, uint64_t address, size_t bytes) {
    if (!std::has_single_bit(bytes) || address & (bytes - 1))
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

  /// The cells of some bytes at an address, or none outside of shared memory.
  struct Cells {
    uint64_t first, end;
  };
  static Cells cellsOf(mlir::Operation *op, uint64_t address, size_t bytes) {
    if (address < sharedAddress)
      return {0, 0};
    uint64_t offset = address - sharedAddress;
    if ((offset | bytes) % bytesOfCell)
      fail(op, "an access of " + std::to_string(bytes) + " bytes of shared memory, expected a multiple of 2");
    return {offset / bytesOfCell, (offset + bytes) / bytesOfCell};
  }

  [[noreturn]] static void failAt(mlir::Operation *op, const char *does, uint64_t cell, const char *why) {
    fail(op, std::string(does) + " byte " + std::to_string(cell * bytesOfCell) + " of shared memory, " + why);
  }

  void noteRead(mlir::Operation *op, uint64_t address, size_t bytes, int thread) {
    auto &[reader, writer] = ofRoles[role];
    auto [first, end] = cellsOf(op, address, bytes);
    for (uint64_t cell = first; cell < end; ++cell) {
      if (pending[cell])
        failAt(op, "reads", cell, "before its copy was awaited");
      if (writer.isOfOthers(cell, thread))
        failAt(op, "reads", cell, "written since the last barrier");
      reader.add(cell, thread);
    }
  }

  void noteWrite(mlir::Operation *op, uint64_t address, size_t bytes, int thread, const uint8_t *value) {
    auto &[reader, writer] = ofRoles[role];
    auto [first, end] = cellsOf(op, address, bytes);
    for (uint64_t cell = first; cell < end; ++cell) {
      if (pending[cell])
        failAt(op, "writes", cell, "before its copy was awaited");
      auto isSameAgain = [&] {
        uint64_t i = (cell - first) * bytesOfCell;
        return value && !std::memcmp(&shared[cell * bytesOfCell], value + i, bytesOfCell);
      };
      if (writer.isOfOthers(cell, thread) && !isSameAgain())
        failAt(op, "writes", cell, "written since the last barrier");
      if (reader.isOfOthers(cell, thread))
        failAt(op, "writes", cell, "read since the last barrier");
      if (!leaving.empty() && leaving.count(cell * bytesOfCell / 16))
        failAt(op, "writes", cell, "which the memory system is reading");
      if (underWay[cell])
        failAt(op, "writes", cell, "which a product is reading");
      writer.set(cell, thread / 32, thread);
      unfenced[cell] = static_cast<uint8_t>(role + 1);
    }
  }

  /// What an asynchronous copy will write.
  void expect(mlir::Operation *op, uint64_t address, size_t bytes) {
    auto [first, end] = cellsOf(op, address, bytes);
    std::fill(pending.begin() + first, pending.begin() + end, 1);
  }
  bool isExpected(uint64_t address) const { return pending[(address - sharedAddress) / bytesOfCell]; }

  /// What a product of a warpgroup reads until it is done.
  void noteReadUnderWay(mlir::Operation *op, uint64_t offset, size_t bytes) {
    for (uint64_t cell = offset / bytesOfCell, end = cell + bytes / bytesOfCell; cell < end; ++cell) {
      if (pending[cell] || ofRoles[role].writer.isMarked(cell))
        failAt(op, "reads", cell, "written since the last barrier");
      if (unfenced[cell])
        failAt(op, "reads", cell, "written without a fence behind");
      ++underWay[cell];
    }
  }

  void finishRead(uint64_t offset, size_t bytes) {
    for (uint64_t cell = offset / bytesOfCell, end = cell + bytes / bytesOfCell; cell < end; ++cell) {
      --underWay[cell];
      ofRoles[role].reader.addAll(cell);
    }
  }

  void fence() { std::replace(unfenced.begin(), unfenced.end(), static_cast<uint8_t>(role + 1), uint8_t(0)); }

  void clear(size_t sharedBytes) {
    // What a block finds in shared memory is arbitrary: not-a-number, so that it does not go unnoticed.
    shared.assign(sharedBytes, 0xff);
    size_t cells = (sharedBytes + bytesOfCell - 1) / bytesOfCell;
    pending.assign(cells, 0);
    unfenced.assign(cells, 0);
    underWay.assign(cells, 0);
    for (OfRole &each : ofRoles) {
      each.reader.resize(cells);
      each.writer.resize(cells);
    }
    leaving.clear();
    met = 0;
    copies.clear();
    groupsOfCopies.clear();
    barriers.clear();
  }

  /// The threads of a role have met.
  void barrier() {
    ofRoles[role].reader.clear();
    ofRoles[role].writer.clear();
  }
  void barrierOfWarps() {
    ofRoles[role].reader.clearThreads();
    ofRoles[role].writer.clearThreads();
  }

  /// What threads of the role have copied since it did so before is a group.
  void commitCopies() { ++groupsOfCopies[role]; }

  /// Delivers what threads of the role have copied, but for the last groups.
  void finishCopies(uint64_t pendingGroups) {
    std::erase_if(copies, [&](Copy &copy) {
      bool isDone = !copy.barrier && copy.role == role && copy.group + pendingGroups < groupsOfCopies[role];
      return isDone && (deliver(copy), true);
    });
  }

  /// Delivers what the memory system has copied and tells a barrier of: to all threads, products of warpgroups
  /// included.
  void finishCopiesOf(uint64_t barrier) {
    std::erase_if(copies, [&](Copy &copy) { return copy.barrier == barrier && (deliver(copy), true); });
  }

private:
  void deliver(Copy &copy) {
    std::memcpy(shared.data() + copy.target, copy.bytes.data(), copy.bytes.size());
    uint64_t first = copy.target / bytesOfCell, end = first + copy.bytes.size() / bytesOfCell;
    for (uint64_t cell = first; cell < end; ++cell) {
      pending[cell] = 0;
      unfenced[cell] = static_cast<uint8_t>(copy.barrier ? 0 : copy.role + 1);
      // Whoever had a tile there before has released it, or met those who sent for this one.
      if (copy.barrier)
        for (OfRole &each : ofRoles) {
          each.reader.forget(cell);
          each.writer.forget(cell);
        }
    }
    if (copy.barrier)
      barriers[copy.barrier].expected -= static_cast<int64_t>(copy.bytes.size());
  }
};

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_MEMORY_H
