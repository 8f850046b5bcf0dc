//===- WindowsTest.cpp - How far a range looks back -----------------------===//

#include "dialect/stretto/Windows.h"
#include "../interpreter/InterpreterTest.h"

namespace stretto {
namespace {

class WindowsTest : public InterpreterTest {
protected:
  /// The length of the windows of a variant whose range begins at what `first` computes from %t and %w.
  int64_t length(const std::string &first, double window) {
    declare("(%x: !n) -> !n {\n %t = stretto.position\n %w = stretto.constant " + std::to_string(window) + " : !t\n" +
            "%one = stretto.constant 1.0 : !t\n" + first + R"(
      %o = stretto.lookback sum from %first {
        %xj = stretto.past %x : !n
        stretto.yield %xj : !n
      } : !n
      stretto.yield %o : !n
    })");
    auto windows = deriveWindows(*module->getOps<VariantOp>().begin());
    if (!windows)
      return -1;
    EXPECT_EQ(windows->size(), 1u);
    EXPECT_EQ(windows->front().name, "x_window");
    return windows->front().length;
  }
};

TEST_F(WindowsTest, OfAConstantLag) {
  for (double window : {1.0, 7.0, 64.0})
    EXPECT_EQ(length("%a = arith.subf %t, %w : !t\n%first = arith.addf %a, %one : !t", window), window);
}

TEST_F(WindowsTest, OfBlocks) {
  // The last token of a block looks back to the first of the block before.
  for (double window : {1.0, 3.0, 20.0, 64.0, 100.0})
    EXPECT_EQ(length(R"(%a = arith.divf %t, %w : !t
                        %b = math.floor %a : !t
                        %c = arith.subf %b, %one : !t
                        %first = arith.mulf %c, %w : !t)",
                     window),
              2 * window);
}

TEST_F(WindowsTest, WithoutABound) {
  EXPECT_EQ(length("%first = arith.subf %one, %w : !t", 3), -1);
  EXPECT_EQ(length("%a = arith.divf %t, %w : !t\n%first = math.floor %a : !t", 2), -1);
}

} // namespace
} // namespace stretto
