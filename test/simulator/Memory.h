//===- Memory.h - What the threads of a block read and write ----*- C++ -*-===//
#ifndef STRETTO_TEST_SIMULATOR_MEMORY_H
#define STRETTO_TEST_SIMULATOR_MEMORY_H

#include "mlir/IR/Operation.h"
#include <cstring>
#include <string>
#include <vector>

namespace stretto::simulator {

/// Ends the process with a message about an operation.
[[noreturn]] void fail(mlir::Operation *op, const std::string &message);

constexpr uint64_t sharedAddress = uint64_t(1) << 62, parameterAddress = uint64_t(1) << 61;

struct Memory {
  std::vector<std::vector<uint8_t>> buffers;
  std::vector<uint8_t> parameters, shared;
  /// Who touched a byte of shared memory since the last barrier: -1 nobody, -2 several threads.
  std::vector<int> reader, writer;
  /// Bytes that an asynchronous copy will write.
  std::vector<uint8_t> pending;
  /// Bytes that threads have written and products of warpgroups do not see yet; how many of these are reading a byte.
  std::vector<uint8_t> unfenced;
  std::vector<int> underWay;
  struct Copy {
    uint64_t target;
    std::vector<uint8_t> bytes;
  };
  std::vector<Copy> copies;

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
    for (uint64_t byte = address - sharedAddress, end = byte + bytes; address >= sharedAddress && byte < end; ++byte) {
      if (pending[byte])
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      if (writer[byte] != -1 && writer[byte] != thread)
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      reader[byte] = reader[byte] == -1 || reader[byte] == thread ? thread : -2;
    }
  }

  void noteWrite(mlir::Operation *op, uint64_t address, size_t bytes, int thread, const uint8_t *value) {
    for (uint64_t byte = address - sharedAddress, end = byte + bytes, i = 0; address >= sharedAddress && byte < end;
         ++byte, ++i) {
      if (pending[byte])
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory before its copy was awaited");
      bool sameAgain = writer[byte] != -1 && value && shared[byte] == value[i];
      if (writer[byte] != -1 && writer[byte] != thread && !sameAgain)
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      if (reader[byte] != -1 && reader[byte] != thread)
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, read since the last barrier");
      if (underWay[byte])
        fail(op, "writes byte " + std::to_string(byte) + " of shared memory, which a product is reading");
      writer[byte] = thread;
      unfenced[byte] = 1;
    }
  }

  /// What a product of a warpgroup reads until it is done.
  void noteReadUnderWay(mlir::Operation *op, uint64_t offset, size_t bytes) {
    for (uint64_t byte = offset, end = byte + bytes; byte < end; ++byte) {
      if (pending[byte] || writer[byte] != -1)
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written since the last barrier");
      if (unfenced[byte])
        fail(op, "reads byte " + std::to_string(byte) + " of shared memory, written without a fence behind");
      ++underWay[byte];
    }
  }

  void finishRead(uint64_t offset, size_t bytes) {
    for (uint64_t byte = offset, end = byte + bytes; byte < end; ++byte) {
      --underWay[byte];
      reader[byte] = -2;
    }
  }

  void fence() { std::fill(unfenced.begin(), unfenced.end(), 0); }

  void clear(size_t sharedBytes) {
    // What a block finds in shared memory is arbitrary: not-a-number, so that it does not go unnoticed.
    shared.assign(sharedBytes, 0xff);
    pending.assign(sharedBytes, 0);
    unfenced.assign(sharedBytes, 0);
    underWay.assign(sharedBytes, 0);
    reader.assign(sharedBytes, -1);
    writer.assign(sharedBytes, -1);
    copies.clear();
  }

  void barrier() {
    std::fill(reader.begin(), reader.end(), -1);
    std::fill(writer.begin(), writer.end(), -1);
  }

  void finishCopies() {
    for (Copy &copy : copies) {
      std::memcpy(shared.data() + copy.target, copy.bytes.data(), copy.bytes.size());
      std::fill_n(pending.begin() + copy.target, copy.bytes.size(), 0);
      std::fill_n(unfenced.begin() + copy.target, copy.bytes.size(), 1);
    }
    copies.clear();
  }
};

} // namespace stretto::simulator

#endif // STRETTO_TEST_SIMULATOR_MEMORY_H
