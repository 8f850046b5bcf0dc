//===- CudaDriverTest.cpp - What a launch tells the driver ----------------===//

#include "runtime/CudaDriver.h"
#include "runtime/TensorBoxes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <dlfcn.h>

using namespace stretto;
using testing::HasSubstr;

namespace {

class CudaDriverTest : public testing::Test {
protected:
  // The runtime takes what has the driver's name already.
  static void SetUpTestSuite() { ASSERT_TRUE(dlopen(STRETTO_DESCRIBED_DRIVER, RTLD_NOW | RTLD_GLOBAL)) << dlerror(); }

  /// The first word of what the driver made of each tensor of a launch, and what it says: nothing runs there.
  std::pair<std::vector<int64_t>, std::string> launch(llvm::ArrayRef<TensorBoxes> tensors) {
    std::vector<int64_t> block(firstBox);
    for (const TensorBoxes &tensor : tensors)
      llvm::append_range(block, tensor.words());
    std::string message = llvm::toString(kernel.launch(/*device=*/0, /*blocks=*/1, block, firstBox, nullptr));
    std::vector<int64_t> numbers;
    for (size_t box = firstBox; box < block.size(); box += Manifest::boxWords)
      numbers.push_back(block[box]);
    return {numbers, message};
  }

  static TensorBoxes boxesAt(int64_t pointer, int64_t tokens = 64) {
    return {.pointer = pointer,
            .type = ElementType::BF16,
            .sizes = {128, 2, tokens, 1},
            .strides = {256, 512, 512 * tokens},
            .columns = 64,
            .tokens = 64};
  }

  static constexpr int64_t firstBox = 8;
  CudaKernel kernel{"", Manifest()};
};

TEST_F(CudaDriverTest, TensorsThatWereDescribedAreFoundAgain) {
  TensorBoxes first = boxesAt(1 << 20), second = boxesAt(1 << 21);
  auto [made, message] = launch({first, second});
  EXPECT_NE(made[0], made[1]);
  EXPECT_THAT(message, HasSubstr("launching the kernel"));
  EXPECT_EQ(launch({second, first}).first, (std::vector{made[1], made[0]}));
  // Others at the same place take it over.
  int64_t shorter = launch({boxesAt(1 << 20, /*tokens=*/63)}).first[0];
  EXPECT_GT(shorter, made[1]);
  EXPECT_GT(launch({first}).first[0], shorter);
  EXPECT_EQ(launch({second}).first[0], made[1]);
}

TEST_F(CudaDriverTest, WhatTheDriverRefusesIsRefusedAgain) {
  for (int turn = 0; turn < 2; ++turn)
    EXPECT_THAT(launch({boxesAt(0)}).second, HasSubstr("cuTensorMapEncodeTiled of 128 columns, 2 heads"));
}

} // namespace
