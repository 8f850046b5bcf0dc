//===- SignsTest.cpp - What is known of the sign of a row -----------------===//

#include "dialect/stretto/Signs.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace stretto;

namespace {

/// The conditions under which the gate %a, which the operations make of %x, %y and %w, is no growth.
DecayConditions conditionsOf(const std::string &operations) {
  MLIRContext context;
  context.loadDialect<StrettoDialect, arith::ArithDialect, math::MathDialect>();
  std::string text = R"(
    !K = tensor<8xf64, #stretto.row<K>>
    !S = !stretto.state<K : 8, V : 8>
    stretto.variant @f(%x: !K, %y: !K, %w: tensor<8xf64, #stretto.param<[K]>>, %v: tensor<8xf64, #stretto.row<V>>)
        -> tensor<8xf64, #stretto.row<V>> {
      %minus = arith.constant dense<-2.0> : !K
      %plus = arith.constant dense<2.0> : !K
      )" + operations +
                     R"(
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %a along "K" : !S, !K
      %S2 = stretto.write %S1, %x, %v : !S, !K, tensor<8xf64, #stretto.row<V>>
      %o = stretto.read %S2, %y along "K" : !S, !K -> tensor<8xf64, #stretto.row<V>>
      stretto.yield %o : tensor<8xf64, #stretto.row<V>>
    })";
  auto module = parseSourceString<ModuleOp>(text, &context);
  EXPECT_TRUE(module) << operations;
  return decayConditions(*module->getOps<VariantOp>().begin());
}

using Condition = DecayConditions::Condition;

void expectProven(const std::string &operations) {
  DecayConditions found = conditionsOf(operations);
  EXPECT_TRUE(found.proven) << operations;
  EXPECT_TRUE(found.conditions.empty()) << operations;
}

void expectCondition(const std::string &operations, Condition condition) {
  DecayConditions found = conditionsOf(operations);
  EXPECT_TRUE(found.proven) << operations;
  ASSERT_EQ(found.conditions.size(), 1u) << operations;
  EXPECT_EQ(found.conditions[0], condition) << operations;
}

TEST(Signs, GatesThatCannotGrow) {
  expectProven("%z = stretto.logsigmoid %x : !K\n %a = arith.divf %z, %plus : !K");
  expectProven("%e = math.exp %x : !K\n %a = arith.negf %e : !K");
  expectProven("%e = arith.mulf %x, %x : !K\n %a = arith.mulf %e, %minus : !K");
  expectProven("%z = arith.minimumf %x, %minus : !K\n %a = math.tanh %z : !K");
  expectProven("%e = math.absf %x : !K\n %s = math.log1p %e : !K\n %a = arith.subf %minus, %s : !K");
}

TEST(Signs, ConditionsOnArguments) {
  expectCondition("%a = stretto.stop_gradient %x : !K", {0, Sign::NonPositive});
  expectCondition("%a = arith.negf %y : !K", {1, Sign::NonNegative});
  expectCondition("%a = arith.mulf %plus, %y : !K", {1, Sign::NonPositive});
  expectCondition("%e = math.exp %x : !K\n %z = arith.negf %y : !K\n %a = arith.mulf %z, %e : !K",
                  {1, Sign::NonNegative});
  expectCondition("%b = stretto.broadcast %w : tensor<8xf64, #stretto.param<[K]>> to !K\n %a = arith.negf %b : !K",
                  {2, Sign::NonNegative});
}

TEST(Signs, ATableOfPositions) {
  expectProven(R"(%t = stretto.table {
    ^bb0(%t0: f64, %h: f64, %d: f64):
      %c = arith.constant -5.0 : f64
      %e = arith.subf %c, %h : f64
      %p = math.exp2 %e : f64
      %n = arith.negf %p : f64
      %l = math.log1p %n : f64
      stretto.yield %l : f64
    } : !K
    %a = arith.mulf %t, %plus : !K)");
}

TEST(Signs, WhatCannotBeSaid) {
  EXPECT_FALSE(conditionsOf("%a = arith.addf %x, %y : !K").proven);
  EXPECT_FALSE(conditionsOf("%a = arith.mulf %x, %y : !K").proven);
  EXPECT_FALSE(conditionsOf("%a = math.exp %x : !K").proven);
}

} // namespace
