//===- Memory.h - What the threads of a block read and write ----*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_MEMORY_H
#define STRETTO_TEST_SIMULATOR_MEMORY_H

#include "mlir/IR/Operation.h"
#include <algorithm>
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
  /// Who touched a byte of shared memory: which warp since the last barrier, and which thread since the last barrier of
  /// its warp: -1 nobody, -2 several.
  struct Marks {
    std::vector<int> warps, threads;

    bool isOfOthers(uint64_t byte, int thread) const {
      return (warps[byte] != -1 && warps[byte] != thread / 32) || (threads[byte] != -1 && threads[byte] != thread);
    }
    void set(uint64_t byte, int warp, int thread) {
      warps[byte] = warp;
      threads[byte] = thread;
    }
    void add(uint64_t byte, int thread) {
      auto both = [](int earlier, int own) { return earlier == -1 || earlier == own ? own : -2; };
      set(byte, both(warps[byte], thread / 32), both(threads[byte], thread));
    }
    void clear(size_t bytes) {
      warps.assign(bytes, -1);
      threads.assign(bytes, -1);
    }
  };
  /// Those of each role, which meets alone; the one whose turn it is.
  struct OfRole {
    Marks reader, writer;
  };
  std::vector<OfRole> ofRoles = std::vector<OfRole>(1);
  int role = 0;
  /// How often a role has come to a barrier of the whole block.
  uint64_t met = 0;
  /// Bytes that an asynchronous copy will write.
  std::vector<uint8_t> pending;
  /// Bytes that threads have written and products of warpgroups do not see yet: the role that did, counted from 1. How
  /// many products are reading a byte.
  std::vector<uint8_t> unfenced;
  std::vector<int> underWay;
  /// Pieces of 16 bytes that the memory system reads until it is awaited: the thread of a role that ordered the copy.
  std::map<uint64_t, std::pair<int, int>> leaving;
  struct Copy {
    uint64_t target;
    std::vector<uint8_t> bytes;
    uint64_t barrier = 0; // that the memory system tells of the copy; 0 where threads copy
    int role = 0;
  };
  std::vector<Copy> copies;
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

  void noteRead(mlir::Operation *op, uint64_t address, size_t bytes, int thread) {
    auto &[reader, writer] = ofRoles[role];
    for (uint64_t byte = address - sharedAddress, end = byte + bytes; address >= sharedAddress && byte < end; ++byte) {
      if (pending[byte])
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      if (writer.isOfOthers(byte, thread))
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      reader.add(byte, thread);
    }
  }

  void noteWrite(mlir::Operation *op, uint64_t address, size_t bytes, int thread, const uint8_t *value) {
    auto &[reader, writer] = ofRoles[role];
    for (uint64_t byte = address - sharedAddress, end = byte + bytes, i = 0; address >= sharedAddress && byte < end;
         ++byte, ++i) {
      if (pending[byte])
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      bool sameAgain = writer.warps[byte] != -1 && value && shared[byte] == value[i];
      if (writer.isOfOthers(byte, thread) && !sameAgain)
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      if (reader.isOfOthers(byte, thread))
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, read since the last barrier");
      if (leaving.count(byte / 16))
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, which the memory system is reading");
      if (underWay[byte])
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, which a product is reading");
      writer.set(byte, thread / 32, thread);
      unfenced[byte] = static_cast<uint8_t>(role + 1);
    }
  }

  /// What a product of a warpgroup reads until it is done.
  void noteReadUnderWay(mlir::Operation *op, uint64_t offset, size_t bytes) {
    for (uint64_t byte = offset, end = byte + bytes; byte < end; ++byte) {
      if (pending[byte] || ofRoles[role].writer.warps[byte] != -1)
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      if (unfenced[byte])
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written without a fence behind");
      ++underWay[byte];
    }
  }

  void finishRead(uint64_t offset, size_t bytes) {
    for (uint64_t byte = offset, end = byte + bytes; byte < end; ++byte) {
      --underWay[byte];
      ofRoles[role].reader.set(byte, -2, -2);
    }
  }

  void fence() { std::replace(unfenced.begin(), unfenced.end(), static_cast<uint8_t>(role + 1), uint8_t(0)); }

  void clear(size_t sharedBytes) {
    // What a block finds in shared memory is arbitrary: not-a-number, so that it does not go unnoticed.
    shared.assign(sharedBytes, 0xff);
    pending.assign(sharedBytes, 0);
    unfenced.assign(sharedBytes, 0);
    underWay.assign(sharedBytes, 0);
    leaving.clear();
    barrierOfAll();
    met = 0;
    copies.clear();
    barriers.clear();
  }

  /// The threads of a role have met.
  void barrier() {
    ofRoles[role].reader.clear(shared.size());
    ofRoles[role].writer.clear(shared.size());
  }
  void barrierOfAll() {
    for (OfRole &each : ofRoles) {
      each.reader.clear(shared.size());
      each.writer.clear(shared.size());
    }
  }
  void barrierOfWarps() {
    ofRoles[role].reader.threads.assign(shared.size(), -1);
    ofRoles[role].writer.threads.assign(shared.size(), -1);
  }

  /// Delivers what threads of the role have copied.
  void finishCopies() {
    std::erase_if(copies, [&](Copy &copy) { return !copy.barrier && copy.role == role && (deliver(copy), true); });
  }

  /// Delivers what the memory system has copied and tells a barrier of: to all threads, products of warpgroups
  /// included.
  void finishCopies(uint64_t barrier) {
    std::erase_if(copies, [&](Copy &copy) { return copy.barrier == barrier && (deliver(copy), true); });
  }

private:
  void deliver(Copy &copy) {
    auto fill = [&](auto &of, auto value) { std::fill_n(of.begin() + copy.target, copy.bytes.size(), value); };
    std::memcpy(shared.data() + copy.target, copy.bytes.data(), copy.bytes.size());
    fill(pending, 0);
    fill(unfenced, copy.barrier ? 0 : copy.role + 1);
    if (copy.barrier) {
      fill(ofRoles[copy.role].writer.warps, -1);
      fill(ofRoles[copy.role].writer.threads, -1);
      barriers[copy.barrier].expected -= static_cast<int64_t>(copy.bytes.size());
    }
  }
};

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_MEMORY_H
