//===- InterpreterTest.cpp - Runs small declarations ----------------------===//

#include "InterpreterTest.h"
#include "frontends/c/Registration.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include <cmath>

using namespace mlir;

namespace stretto {

InterpreterTest::InterpreterTest() {
  DialectRegistry registry;
  registerDialects(registry);
  context.appendDialectRegistry(registry);
  context.loadAllAvailableDialects();
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) { messages += diagnostic.str() + "\n"; });
}

void InterpreterTest::declare(const std::string &signatureAndBody) {
  std::string text;
  for (const std::string &heads : {"H", "G", "W", "1"}) {
    std::string suffix = heads == "H" ? "" : "_" + heads;
    for (const std::string &axis : {"K", "V", "N"})
      text += "!" + axis + suffix + " = tensor<?xf64, #stretto.row<" + axis + ", " + heads + ">>\n";
    text += "!n" + suffix + " = tensor<f64, #stretto.row<(), " + heads + ">>\n";
    text += "!S" + suffix + " = !stretto.state<K, V, " + heads + ">\n";
  }
  text += "!t = !n_1\n!R = !stretto.state<K, V, reverse>\n";
  module = parseSourceString<ModuleOp>(text + "stretto.variant @f" + signatureAndBody, &context);
  ASSERT_TRUE(module) << messages;
}

VariantOp InterpreterTest::variant() { return *module->getOps<VariantOp>().begin(); }

void InterpreterTest::set(const std::string &name, llvm::SmallVector<int64_t, 4> shape, std::vector<double> values) {
  numbers[name] = std::move(values);
  call.arguments[name] = {std::move(shape), numbers[name]};
}

void InterpreterTest::row(const std::string &name, int64_t width, std::vector<double> values) {
  llvm::SmallVector<int64_t, 4> shape = {1, static_cast<int64_t>(values.size()) / std::max<int64_t>(width, 1), 1};
  if (width)
    shape.push_back(width);
  set(name, std::move(shape), std::move(values));
}

void InterpreterTest::initial(const std::string &name, llvm::SmallVector<int64_t, 4> shape,
                              std::vector<double> values) {
  initialNumbers[name] = std::move(values);
  call.initialState[name] = {std::move(shape), initialNumbers[name]};
}

Outcome InterpreterTest::run() {
  messages.clear();
  FailureOr<Outcome> outcome = interpret(variant(), call);
  EXPECT_TRUE(succeeded(outcome)) << messages;
  return succeeded(outcome) ? std::move(*outcome) : Outcome();
}

std::vector<double> InterpreterTest::result() {
  Outcome outcome = run();
  return outcome.results.empty() ? std::vector<double>() : outcome.results.front().values;
}

std::vector<double> InterpreterTest::finalEntry(const std::string &name) {
  call.finalEntries = {name};
  Outcome outcome = run();
  return outcome.finalState.empty() ? std::vector<double>() : outcome.finalState.front().second.values;
}

std::string InterpreterTest::refusal() {
  messages.clear();
  EXPECT_TRUE(failed(interpret(variant(), call))) << "the call was expected to be refused";
  return messages;
}

void expectNear(llvm::ArrayRef<double> found, llvm::ArrayRef<double> expected, double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) {
    if (std::isfinite(expected[i]))
      EXPECT_NEAR(found[i], expected[i], tolerance) << "at " << i;
    else
      EXPECT_TRUE(found[i] == expected[i] || (std::isnan(found[i]) && std::isnan(expected[i])))
          << "at " << i << ": " << found[i] << ", expected " << expected[i];
  }
}

} // namespace stretto
