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

#include "ThreadBlock.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <fstream>

using namespace mlir;
using namespace stretto::simulator;

void stretto::simulator::fail(Operation *op, const std::string &message) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  op->print(stream, OpPrintingFlags().skipRegions());
  std::fprintf(stderr, "simulate-block: %s\n  in %s\n", message.c_str(), text.c_str());
  std::exit(1);
}

static std::vector<uint64_t> readWords(const char *path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  std::vector<uint64_t> words(file ? static_cast<size_t>(file.tellg()) / 8 : 0);
  file.seekg(0);
  file.read(reinterpret_cast<char *>(words.data()), words.size() * 8);
  return words;
}

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
  auto function = *module->getOps<LLVM::LLVMFuncOp>().begin();
  // Each condition has the threads of a role, or of one of its groups, and leaves the rest to others.
  std::deque<ThreadBlock> roles;
  int before = 0;
  auto add = [&](int count) {
    roles.emplace_back(function, static_cast<int>(roles.size()), before, count, memory);
    before += count;
  };
  function.walk<WalkOrder::PreOrder>([&](scf::IfOp condition) {
    if (auto divided = condition->getAttrOfType<IntegerAttr>("kernel.roles"))
      add(static_cast<int>(divided.getInt()));
  });
  add(threads - before);
  memory.ofRoles.resize(roles.size());
  for (int64_t number = 0; number < blocks; ++number) {
    memory.clear(sharedBytes);
    Turns turns(static_cast<int>(roles.size()));
    turns.run([&](int role) { roles[role].run(number, turns); });
    if (!memory.leaving.empty())
      fail(function, "a block ends while the memory system is reading what was left for it");
  }
  for (size_t buffer = 0; buffer < memory.buffers.size(); ++buffer)
    std::memcpy(&words[places[buffer]], memory.buffers[buffer].data(), memory.buffers[buffer].size());
  std::ofstream(argv[2], std::ios::binary).write(reinterpret_cast<const char *>(words.data()), words.size() * 8);
}
