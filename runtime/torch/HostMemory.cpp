//===- HostMemory.cpp - Large memory of the host, used again --------------===//

#include "runtime/torch/HostMemory.h"
#include "frontends/c/operator.h"
#include <c10/core/impl/alloc_cpu.h>
#include <deque>
#include <mutex>
#ifdef __linux__
#include <sys/mman.h>
#endif

using namespace stretto::torch_layer;

namespace {

constexpr size_t largePage = size_t(2) << 20;

struct Block {
  void *data = nullptr;
  size_t bytes = 0;
};

/// New memory, in large pages as far as the system gives these to who asks.
Block map(size_t bytes) {
  Block block = {nullptr, (bytes + largePage - 1) / largePage * largePage};
  block.data = std::aligned_alloc(largePage, block.bytes);
  // What there is not is PyTorch's to say.
  if (!block.data)
    block.data = c10::alloc_cpu(block.bytes);
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  // A system that has none refuses, and nothing is lost.
  madvise(block.data, block.bytes, MADV_HUGEPAGE);
#endif
  return block;
}

class HostMemory final : public c10::Allocator {
public:
  c10::DataPtr allocate(size_t bytes) override {
    auto *block = new Block(bytes ? take(bytes) : Block());
    return {block->data, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; } // the context is not the memory
  void copy_data(void *to, const void *from, size_t bytes) const override { default_copy_data(to, from, bytes); }

private:
  Block take(size_t bytes);
  void giveBack(Block block);
  static void release(void *context);

  std::mutex mutex;
  std::deque<Block> idle; // what has been so for longest comes first
  size_t idleBytes = 0;
};

/// Threads may still give memory back when the process ends.
HostMemory &instance() {
  static auto *memory = new HostMemory;
  return *memory;
}

} // namespace

/// The smallest block that suffices, if no more than half of it is left over.
Block HostMemory::take(size_t bytes) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    auto best = idle.end();
    for (auto block = idle.begin(); block != idle.end(); ++block)
      if (block->bytes >= bytes && block->bytes / 2 <= bytes && (best == idle.end() || block->bytes < best->bytes))
        best = block;
    if (best != idle.end()) {
      Block block = *best;
      idle.erase(best);
      idleBytes -= block.bytes;
      return block;
    }
  }
  return map(bytes);
}

void HostMemory::giveBack(Block block) {
  if (block.bytes > strettoIdleBytes())
    return std::free(block.data);
  std::deque<Block> tooMany;
  {
    std::lock_guard<std::mutex> lock(mutex);
    idle.push_back(block);
    idleBytes += block.bytes;
    for (; idleBytes > strettoIdleBytes(); idle.pop_front()) {
      idleBytes -= idle.front().bytes;
      tooMany.push_back(idle.front());
    }
  }
  for (Block each : tooMany)
    std::free(each.data);
}

void HostMemory::release(void *context) {
  auto *block = static_cast<Block *>(context);
  if (block->data)
    instance().giveBack(*block);
  delete block;
}

c10::Allocator *stretto::torch_layer::hostMemory() { return &instance(); }
