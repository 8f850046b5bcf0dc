//===- TensorBoxesTest.cpp - What the memory system knows of a tensor -----===//

#include "runtime/TensorBoxes.h"
#include "gtest/gtest.h"

using namespace stretto;

TEST(TensorBoxes, AreDescribedInWords) {
  TensorBoxes boxes;
  boxes.pointer = 4096;
  boxes.type = ElementType::BF16;
  boxes.sizes = {128, 4, 1000, 2};
  boxes.strides = {256, 1024, 1024000};
  boxes.columns = 64;
  boxes.tokens = 32;
  std::array<int64_t, Manifest::boxWords> expected = {4096, 9, 2, 128, 4, 1000, 2, 256, 1024, 1024000, 64, 32};
  EXPECT_EQ(boxes.words(), expected);
}

TEST(TensorBoxes, HaveStridesThatTheDriverTakes) {
  // Of a single head or sequence any stride may be given; nothing can be empty.
  TensorBoxes boxes;
  boxes.sizes = {32, 1, 0, 1};
  boxes.strides = {3, 128, 5};
  std::array<int64_t, Manifest::boxWords> words = boxes.words();
  EXPECT_EQ(words[5], 1);
  EXPECT_EQ(words[7], 16);
  EXPECT_EQ(words[8], 16);
  EXPECT_EQ(words[9], 16);
}
