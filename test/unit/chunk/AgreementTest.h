//===- AgreementTest.h - One declaration at two levels ----------*- C++ -*-===//
//
// Executes a declaration token by token and as kernels over chunks, both in double precision. They must agree.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_TEST_UNIT_CHUNK_AGREEMENTTEST_H
#define STRETTO_TEST_UNIT_CHUNK_AGREEMENTTEST_H

#include "../interpreter/InterpreterTest.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include <random>

namespace stretto {

/// What fixes the program of a declaration. Sizes and head sets that it does not name are left out.
struct Program {
  std::map<std::string, int64_t> dims = {{"K", 8}, {"V", 4}, {"N", 3}}, heads = {{"H", 4}, {"G", 2}};
  std::map<std::string, std::string> options;
  std::set<std::string> absent;
};

/// What log decays and factors are like. Arguments are told apart by name: those that begin with "log_" and "g", "w"
/// are log decays, "f" is a factor, "z" a gate before its logsigmoid.
enum class Gates { Gentle, Strong };

class AgreementTest : public InterpreterTest {
protected:
  /// Compares results and final states of the step form, where there is one, and over lengths around chunks of 16
  /// tokens, for gentle and for strong gates, from no state and from some state.
  void expectAgreement(const Program &program = {});
  /// The same of the step form alone.
  void expectStepAgreement(const Program &program = {});
  /// The kernel of the declaration, and how it prints; a chunk of 1 is the step form. The test fails where there is
  /// none.
  chunk::KernelOp lower(const Program &program, int64_t chunk);
  std::string kernelText(const Program &program = {}, int64_t chunk = 16);
  std::string stepText(const Program &program = {}) { return kernelText(program, 1); }
  /// What the compiler says of a declaration that has no chunk form.
  std::string chunkRefusal(const Program &program = {});

private:
  void expectAgreement(const Program &program, llvm::ArrayRef<int64_t> chunks);
  mlir::LogicalResult runPipeline(const Program &program, int64_t chunk);
  void fillArguments(VariantOp variant, const Program &program, int64_t time, Gates gates);
  void fillState(VariantOp variant, const Program &program, int64_t sequences);
  std::vector<double> randomNumbers(llvm::StringRef name, int64_t count, Gates gates);
  void compare(chunk::KernelOp kernel);

  mlir::OwningOpRef<mlir::ModuleOp> lowered;
  std::mt19937 random{7}; // the same in each run: NOLINT(bugprone-random-generator-seed)
};

} // namespace stretto

#endif // STRETTO_TEST_UNIT_CHUNK_AGREEMENTTEST_H
