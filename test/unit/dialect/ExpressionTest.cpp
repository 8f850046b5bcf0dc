//===- ExpressionTest.cpp - Arithmetic over named sizes -------------------===//

#include "dialect/stretto/Expression.h"
#include "dialect/stretto/StrettoDialect.h"
#include "mlir/IR/Diagnostics.h"
#include "gtest/gtest.h"

namespace stretto {
namespace {

Extent parsed(llvm::StringRef text) {
  llvm::Expected<Extent> extent = Extent::parse(text);
  EXPECT_TRUE(static_cast<bool>(extent)) << text.str();
  return extent ? *extent : (llvm::consumeError(extent.takeError()), Extent());
}

/// The normal form of a size, or the error.
std::string normal(llvm::StringRef text) {
  llvm::Expected<Extent> extent = Extent::parse(text);
  return extent ? extent->str() : "error: " + llvm::toString(extent.takeError());
}

std::string evaluated(llvm::StringRef text, double K = 6, double V = 5) {
  llvm::Expected<int64_t> size = parsed(text).evaluate([&](llvm::StringRef name) -> std::optional<double> {
    return name == "K" ? std::optional(K) : name == "V" ? std::optional(V) : std::nullopt;
  });
  return size ? std::to_string(*size) : "error: " + llvm::toString(size.takeError());
}

TEST(ExtentTest, OneNormalFormForEachSize) {
  EXPECT_EQ(normal("V+1"), "V + 1");
  EXPECT_EQ(normal("1 + V"), "V + 1");
  EXPECT_EQ(normal("1 + K*K + K"), "K*K + K + 1");
  EXPECT_EQ(normal("V*K*2 - K*V"), "K*V");
  EXPECT_EQ(normal("(K + 1)*(K - 1)"), "K*K - 1");
  EXPECT_EQ(normal("(K + V)**2"), "K*K + 2*K*V + V*V");
  EXPECT_EQ(normal("K**0"), "1");
  EXPECT_EQ(normal("K - K"), "0");
  EXPECT_EQ(normal("-K + 8"), "-K + 8");
  EXPECT_EQ(normal("- - K"), "K");
  EXPECT_EQ(normal("-K**2"), "-K*K");
  EXPECT_EQ(normal("10/4*K"), "5*K/2");
  EXPECT_EQ(normal("K/2 + K/3"), "5*K/6");
  EXPECT_EQ(normal("K/2 + K/2"), "K");
  EXPECT_EQ(normal("3*(K/-6)"), "-K/2");
  EXPECT_EQ(normal("  _a1  "), "_a1");
  EXPECT_EQ(normal("1e3"), "1000");
  for (const char *text : {"V + 1", "K*K + K + 1", "-K + 8", "5*K/6", "K*K/2 - V/2 + 3", "0", "-1/2"})
    EXPECT_EQ(normal(text), text);
}

TEST(ExtentTest, OneNameIsSolvedFor) {
  EXPECT_EQ(parsed("2*F").solvedFor(128), 64);
  EXPECT_EQ(parsed("F/2 + 1").solvedFor(5), 8);
  EXPECT_EQ(parsed("10 - F").solvedFor(10), 0);
  EXPECT_EQ(parsed("F").solvedFor(7), 7);
  // No whole number, none at least 0, none of one name, none of the first degree.
  EXPECT_EQ(parsed("2*F").solvedFor(7), std::nullopt);
  EXPECT_EQ(parsed("F + 2").solvedFor(1), std::nullopt);
  EXPECT_EQ(parsed("F + K").solvedFor(9), std::nullopt);
  EXPECT_EQ(parsed("F*F").solvedFor(9), std::nullopt);
  EXPECT_EQ(parsed("F*F + F").solvedFor(6), std::nullopt);
  EXPECT_EQ(parsed("3").solvedFor(3), std::nullopt);
}

TEST(ExtentTest, SizesThatDoNotParse) {
  EXPECT_EQ(normal(""), "error: '' ends where a number or a name is expected");
  EXPECT_EQ(normal("K +"), "error: 'K +' ends where a number or a name is expected");
  EXPECT_EQ(normal("(K"), "error: '(K' ends where a number or a name is expected");
  EXPECT_EQ(normal("K V"), "error: unexpected 'V' in 'K V'");
  EXPECT_EQ(normal("2K"), "error: unexpected 'K' in '2K'");
  EXPECT_EQ(normal("K)"), "error: unexpected ')' in 'K)'");
  EXPECT_EQ(normal("1.5"), "error: the size '1.5' holds 1.5, which is no integer of at most 1e9");
  EXPECT_EQ(normal("1000000001"), "error: the size '1000000001' holds 1e+09, which is no integer of at most 1e9");
  EXPECT_EQ(normal("1e"), "error: '1e' in '1e' is no number");
  EXPECT_EQ(normal("K/V"), "error: the size 'K/V' divides by something that is not a constant other than 0");
  EXPECT_EQ(normal("K/(1-1)"), "error: the size 'K/(1-1)' divides by something that is not a constant other than 0");
  EXPECT_EQ(normal("K**5"), "error: the size 'K**5' holds a power other than 0 to 4");
  EXPECT_EQ(normal("K**V"), "error: the size 'K**V' holds a power other than 0 to 4");
  EXPECT_EQ(normal(std::string(100, '(') + "K"), "error: '" + std::string(100, '(') + "K' is nested more than 64 deep");
}

TEST(ExtentTest, ArithmeticThatOverflowsIsRefused) {
  for (const char *text : {"1000000000*1000000000", "(1000000000*K)**3", "K/999999937/999999929", "K**4*K**4*K",
                           "K/999999937 + K/999999929", "(A + B + C + D + E)**3"})
    EXPECT_EQ(normal(text),
              "error: the size '" + std::string(text) + "' has too many terms or too large a coefficient");

  // Products of sizes that a file may hold overflow after a few steps; what comes then stays refused.
  Extent product = parsed("2*K + 1000000000");
  for (int i = 0; i < 40; ++i) {
    product = product * product + Extent(1);
    if (!product.isModerate())
      break;
  }
  Extent overflown = parsed("1000000000*K");
  for (int i = 0; i < 5; ++i)
    overflown = overflown * overflown;
  EXPECT_FALSE(product.isModerate());
  EXPECT_FALSE(overflown.isModerate());
  EXPECT_FALSE((overflown - overflown).isModerate());
  EXPECT_FALSE(overflown.isPositive());
  EXPECT_FALSE((Extent(0) - overflown).isPositive());
}

TEST(ExtentTest, KnownNumbersAndNames) {
  EXPECT_EQ(parsed("3 + 4").constant(), 7);
  EXPECT_EQ(parsed("K - K").constant(), 0);
  EXPECT_EQ(parsed("1/2").constant(), std::nullopt);
  EXPECT_EQ(parsed("K").constant(), std::nullopt);
  EXPECT_EQ(parsed("K").name(), "K");
  EXPECT_EQ(parsed("2*K").name(), std::nullopt);
  EXPECT_EQ(parsed("K*K").name(), std::nullopt);
  EXPECT_EQ(parsed("K*V + K + 1").names(), (std::vector<std::string>{"K", "V"}));
  EXPECT_EQ(parsed("K*K + V").with("K", parsed("V + 1")), parsed("V*V + 3*V + 1"));
}

TEST(ExtentTest, PositiveForAllSizes) {
  for (const char *text : {"1", "K", "K*V", "K + V - 1", "K/2", "2*K - 1", "1/2"})
    EXPECT_TRUE(parsed(text).isPositive()) << text;
  // Zero for the smallest sizes, negative for some, or for all.
  for (const char *text : {"0", "K - 1", "K - V", "K*V - K", "-K", "-1", "K/2 - 1"})
    EXPECT_FALSE(parsed(text).isPositive()) << text;
}

TEST(ExtentTest, Evaluation) {
  EXPECT_EQ(evaluated("K*V + K/2"), "33");
  EXPECT_EQ(evaluated("K - 6"), "0");
  // Exact where a sum of floating-point fractions is not.
  EXPECT_EQ(evaluated("K/49 + 48*V/49", 1, 1), "1");
  EXPECT_EQ(evaluated("V/2"), "error: the size 'V/2' comes to 5/2, which is no integer from 0 to 1e9");
  EXPECT_EQ(evaluated("K - V", 5, 6), "error: the size 'K - V' comes to -1, which is no integer from 0 to 1e9");
  EXPECT_EQ(evaluated("K*K", 1e5), "error: the size 'K*K' comes to 10000000000, which is no integer from 0 to 1e9");
  EXPECT_EQ(evaluated("K**4*V**4", 1e9, 1e9),
            "error: the size 'K*K*K*K*V*V*V*V' comes to a number beyond 2^63, which is no integer from 0 to 1e9");
  EXPECT_EQ(evaluated("Q"), "error: the size 'Q' is not known");
  EXPECT_EQ(evaluated("K", 2.5), "error: the size 'K' is 2.5, which is no integer from 0 to 1e9");
  EXPECT_EQ(evaluated("K", NAN), "error: the size 'K' is nan, which is no integer from 0 to 1e9");
}

TEST(ExpressionTest, NumbersOverNames) {
  auto value = [](llvm::StringRef text) -> double {
    llvm::Expected<double> result =
        evaluateExpression(text, [](llvm::StringRef name) { return name == "K" ? std::optional(16.0) : std::nullopt; });
    return result ? *result : (llvm::consumeError(result.takeError()), NAN);
  };
  EXPECT_EQ(value("K**-0.5"), 0.25);
  EXPECT_EQ(value("2**3**2"), 512);
  EXPECT_EQ(value("-2**2"), -4);
  EXPECT_EQ(value("1 - 2 - 3"), -4);
  EXPECT_EQ(value("8/4/2"), 1);
  EXPECT_EQ(value("2 + 3*K"), 50);
  EXPECT_EQ(value("(2 + 3)*K"), 80);
  EXPECT_EQ(value("1.5e1 + .5"), 15.5);
  EXPECT_EQ(value("1/0"), INFINITY);
  EXPECT_EQ(value("1e999"), INFINITY);

  auto error = [](llvm::StringRef text) {
    return llvm::toString(evaluateExpression(text, [](llvm::StringRef) { return std::nullopt; }).takeError());
  };
  EXPECT_EQ(error("2*Q"), "'Q' is not a known size or option");
  EXPECT_EQ(error("2 % 3"), "unexpected '%' in '2 % 3'");
  EXPECT_EQ(error("-"), "'-' ends where a number or a name is expected");
}

// Text is brought to normal form when it is read, so that only code can violate this.
TEST(AxisTest, ConstraintC2) {
  mlir::MLIRContext context;
  context.loadDialect<StrettoDialect>();
  std::string message;
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &diagnostic) { message = diagnostic.str(); });
  auto emit = [&] { return mlir::emitError(mlir::UnknownLoc::get(&context)); };
  EXPECT_TRUE(failed(RowAttr::verify(emit, "1 + V", "H")));
  EXPECT_EQ(message, "[axis_c2] the size '1 + V' is not in normal form; expected 'V + 1'");
  EXPECT_TRUE(succeeded(RowAttr::verify(emit, "V + 1", "H")));
}

} // namespace
} // namespace stretto
