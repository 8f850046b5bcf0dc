//===- CpuKernelTest.h - Runs kernels compiled for this CPU -----*- C++ -*-===//
//
// Compiles the text of one chunk.kernel for this machine, runs it on random numbers, and holds what it stores against
// the interpreter of the chunk level. Tensors lie in memory with gaps between tokens, sequences and heads, and the gaps
// and all of scratch hold NaN, so that whatever is read or written where nothing lies is seen.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_TEST_UNIT_CODEGEN_CPUKERNELTEST_H
#define STRETTO_TEST_UNIT_CODEGEN_CPUKERNELTEST_H

#include "codegen/cpu/NativeCode.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "mlir/IR/OwningOpRef.h"
#include "gtest/gtest.h"
#include <functional>
#include <map>
#include <optional>

namespace stretto {

class CpuKernelTest : public testing::Test {
protected:
  /// What a kernel is run on.
  struct Problem {
    int64_t batch = 2, tokens = 20, heads = 2;
    /// Ends of the sequences of a packed batch, whose tokens are then those of one batch row.
    std::vector<int64_t> offsets = {};
    bool initialState = true;
    /// Positions of the first token of each sequence; none: all 0.
    std::vector<int64_t> positions = {};
    /// Slices that `text` divides the kernel into; the interpreter is given the whole one.
    int64_t slices = 1;
    double tolerance = 2e-6;
  };

  CpuKernelTest();

  /// Compiles a kernel, from the host's instructions or, on demand, from others that it has.
  void compile(const std::string &text, std::optional<cpu::Instructions> instructions = std::nullopt);
  /// Runs what was compiled and compares outputs and final states with the interpreter, which executes `whole` if it is
  /// not the same kernel.
  void check(const Problem &problem, const std::string &whole = "");
  void check() { check(Problem()); }
  /// Checks sequences of these lengths.
  void checkLengths(llvm::ArrayRef<int64_t> lengths, Problem problem);
  void checkLengths(llvm::ArrayRef<int64_t> lengths) { checkLengths(lengths, Problem()); }

  /// What the compiler says of a kernel that it refuses.
  std::string refusal(const std::string &text);

  /// Numbers of an argument, by position; others are uniform in [-1, 1).
  void fill(const std::string &name, std::function<double(size_t)> number) { fillers[name] = std::move(number); }
  /// Uniform numbers in [low, high).
  void uniform(const std::string &name, double low, double high);

private:
  using Kernel = mlir::OwningOpRef<mlir::ModuleOp>;
  Kernel parse(const std::string &text);

  mlir::MLIRContext context;
  std::string messages;
  Kernel module;
  std::unique_ptr<cpu::LoadedCode> code;
  void (*function)(const int64_t *, int64_t, int64_t, char *) = nullptr;
  int64_t scratchBytes = 0;
  std::map<std::string, std::function<double(size_t)>> fillers;
};

} // namespace stretto

#endif // STRETTO_TEST_UNIT_CODEGEN_CPUKERNELTEST_H
