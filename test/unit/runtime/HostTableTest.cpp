//===- HostTableTest.cpp - Numbers that the host computes for kernels -----===//

#include "runtime/HostTable.h"
#include "dialect/chunk/ChunkInterpreter.h"
#include "frontends/c/Registration.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"
#include <cstring>

using namespace mlir;
using namespace stretto;

namespace {

class HostTableTest : public testing::Test {
protected:
  HostTableTest() {
    DialectRegistry registry;
    registerDialects(registry);
    context.appendDialectRegistry(registry);
    module = parseSourceString<ModuleOp>(text, &context);
  }

  chunk::TableOp table(StringRef name) { return module->lookupSymbol<chunk::TableOp>(name); }

  static constexpr const char *text = R"(
    chunk.table @angles varying {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %base = arith.constant 1.0e4 : f64
      %quarter = arith.constant -0.25 : f64
      %exponent = arith.mulf %d, %quarter : f64
      %frequency = math.powf %base, %exponent : f64
      %angle = arith.mulf %t, %frequency : f64
      %of_head = arith.mulf %h, %quarter : f64
      %shifted = arith.addf %angle, %of_head : f64
      %cos = math.cos %shifted : f64
      chunk.result %cos : f64
    }
    chunk.table @the_same varying {
    ^bb0(%time: f64, %head: f64, %channel: f64):
      %base = arith.constant 1.0e4 : f64
      %quarter = arith.constant -0.25 : f64
      %exponent = arith.mulf %channel, %quarter : f64
      %frequency = math.powf %base, %exponent : f64
      %angle = arith.mulf %time, %frequency : f64
      %of_head = arith.mulf %head, %quarter : f64
      %shifted = arith.addf %angle, %of_head : f64
      %cos = math.cos %shifted : f64
      chunk.result %cos : f64
    }
    chunk.table @of_channels varying {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %half = arith.constant 0.5 : f64
      %product = arith.mulf %d, %half : f64
      chunk.result %product : f64
    }
  )";
  MLIRContext context{MLIRContext::Threading::DISABLED};
  OwningOpRef<ModuleOp> module;
};

double decode(const char *bytes, ElementType type) {
  auto as = [&](auto number) {
    std::memcpy(&number, bytes, sizeof(number));
    return number;
  };
  if (type == ElementType::F64)
    return as(double());
  if (type == ElementType::F32)
    return as(float());
  uint32_t widened = static_cast<uint32_t>(as(uint16_t())) << 16;
  float number;
  std::memcpy(&number, &widened, sizeof(number));
  return number;
}

TEST_F(HostTableTest, NumbersAreThoseOfTheInterpreter) {
  constexpr int64_t heads = 3, positions = 700, width = 9; // several blocks of positions, and a part of one
  for (auto [type, error] : {std::pair(ElementType::F64, 0.0), {ElementType::F32, 6e-8}, {ElementType::BF16, 4e-3}})
    for (StringRef name : {"angles", "of_channels"}) {
      std::vector<char> bytes = evaluateTable(table(name), heads, positions, width, type);
      int64_t stride = Manifest::strideOfTable(width, type);
      ASSERT_EQ(static_cast<int64_t>(bytes.size()), heads * positions * stride * bytesOf(type));
      for (int64_t head = 0; head < heads; ++head)
        for (int64_t position = 0; position < positions; ++position)
          for (int64_t channel = 0; channel < width; ++channel) {
            double expected = *chunk::evaluateTable(table(name), position, head, channel);
            double found = decode(&bytes[((head * positions + position) * stride + channel) * bytesOf(type)], type);
            ASSERT_NEAR(found, expected, error * std::max(std::abs(expected), 1e-3))
                << name.str() << " at " << head << ", " << position << ", " << channel;
          }
    }
}

TEST_F(HostTableTest, KernelsThatReadTheSameNumbersHaveOneTable) {
  auto placed = [&](StringRef name, int64_t width, ElementType type = ElementType::F32, int device = -1) {
    return PlacedTable::of(table(name), /*heads=*/1, width, type, device);
  };
  std::shared_ptr<PlacedTable> first = placed("angles", 8);
  EXPECT_EQ(first, placed("the_same", 8));
  EXPECT_NE(first, placed("of_channels", 8));
  EXPECT_NE(first, placed("angles", 16));
  EXPECT_NE(first, placed("angles", 8, ElementType::F64));
  EXPECT_NE(first, placed("angles", 8, ElementType::F32, /*device=*/0));
}

TEST_F(HostTableTest, ATableThatGrowsLeavesWhatCallsRead) {
  std::shared_ptr<PlacedTable> placed =
      PlacedTable::of(table("angles"), /*heads=*/1, /*width=*/8, ElementType::F32, -1);
  auto none = [](ArrayRef<char>) -> void * { return nullptr; };
  PlacedTable::Numbers before = placed->upTo(16, table("angles"), none);
  auto number = static_cast<const float *>(before.data)[15 * 8];
  PlacedTable::Numbers after = placed->upTo(1000, table("angles"), none);
  EXPECT_EQ(after.positions, 1000);
  EXPECT_EQ(static_cast<const float *>(before.data)[15 * 8], number);
  EXPECT_EQ(static_cast<const float *>(after.data)[15 * 8], number);
  EXPECT_EQ(placed->upTo(16, table("angles"), none).data, after.data);
}

TEST_F(HostTableTest, ATableOfADeviceIsCopiedThereOnce) {
  std::shared_ptr<PlacedTable> placed = PlacedTable::of(table("angles"), /*heads=*/2, /*width=*/8, ElementType::F32, 5);
  std::vector<std::vector<char>> copies;
  auto upload = [&](ArrayRef<char> bytes) -> void * { return copies.emplace_back(bytes.vec()).data(); };
  placed->upTo(64, table("angles"), upload);
  placed->upTo(32, table("angles"), upload);
  ASSERT_EQ(copies.size(), 1U);
  EXPECT_EQ(copies.front(), evaluateTable(table("angles"), 2, 64, 8, ElementType::F32));
}

} // namespace
