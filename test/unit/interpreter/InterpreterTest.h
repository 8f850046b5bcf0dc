//===- InterpreterTest.h - Runs small declarations --------------*- C++ -*-===//
#ifndef STRETTO_TEST_UNIT_INTERPRETER_INTERPRETERTEST_H
#define STRETTO_TEST_UNIT_INTERPRETER_INTERPRETERTEST_H

#include "dialect/stretto/Interpreter.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "gtest/gtest.h"
#include <limits>

namespace stretto {

inline constexpr double infinity = std::numeric_limits<double>::infinity();

/// Holds one declaration, the arguments of a call, and what the compiler says.
class InterpreterTest : public testing::Test {
protected:
  InterpreterTest();

  /// Parses the body of `stretto.variant @f`, from its argument list on. These types have names: !K, !V, !N rows of
  /// those axes, !n a number, !t a position, each also for the heads G (!K_G) and W (!K_W), !S a state K by V.
  void declare(const std::string &signatureAndBody);

  /// Sets an argument; its numbers stay with the test.
  void set(const std::string &name, llvm::SmallVector<int64_t, 4> shape, std::vector<double> values);
  /// An argument of a call with one sequence of one head: `[1, T, 1, width]`, or `[1, T, 1]` for width 0.
  void row(const std::string &name, int64_t width, std::vector<double> values);
  void initial(const std::string &name, llvm::SmallVector<int64_t, 4> shape, std::vector<double> values);

  /// The outcome of the call; the test fails where it is refused.
  Outcome run();
  /// The first result of the call.
  std::vector<double> result();
  std::vector<double> finalEntry(const std::string &name);
  /// What the compiler says of a call that it refuses.
  std::string refusal();

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::string messages;
  Call call;

private:
  VariantOp variant();
  std::map<std::string, std::vector<double>> numbers, initialNumbers;
};

/// Whether all numbers agree up to rounding; equal infinities agree.
void expectNear(llvm::ArrayRef<double> found, llvm::ArrayRef<double> expected, double tolerance = 1e-12);

} // namespace stretto

#endif // STRETTO_TEST_UNIT_INTERPRETER_INTERPRETERTEST_H
