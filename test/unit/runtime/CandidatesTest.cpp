//===- CandidatesTest.cpp - The forms among which one is chosen -----------===//

#include "runtime/Candidates.h"
#include "gtest/gtest.h"
#include <atomic>
#include <chrono>
#include <future>

using namespace stretto;

namespace {

std::vector<Candidate::Shape> shapesOf(int64_t count) {
  std::vector<Candidate::Shape> shapes;
  for (int64_t tokens = 1; tokens <= count; ++tokens)
    shapes.push_back({false, 0, 1, tokens});
  return shapes;
}

/// Says of each shape how many tokens it has, and counts how often it was asked.
struct Looks {
  std::atomic<int64_t> all = 0;

  Candidate at(const Candidate::Shape &shape) {
    ++all;
    Candidate candidate;
    candidate.registers = shape.tokens;
    return candidate;
  }
  void work(Candidates &candidates) {
    while (std::optional<Candidate::Shape> shape = candidates.next())
      candidates.keep(*shape, at(*shape));
  }
};

TEST(CandidatesTest, WhatIsExpectedTwiceIsLookedAtOnce) {
  Candidates candidates([](Candidates &) {});
  std::vector<Candidate::Shape> shapes = shapesOf(3);
  candidates.expect(llvm::ArrayRef(shapes).take_front(2));
  candidates.expect(shapes);
  for (const Candidate::Shape &shape : shapes)
    EXPECT_EQ(candidates.next(), shape);
}

TEST(CandidatesTest, TheSearchFindsWhatThreadsFindInAnyOrder) {
  Looks looks;
  Candidates candidates([&](Candidates &shared) { looks.work(shared); });
  std::vector<Candidate::Shape> shapes = shapesOf(64);
  candidates.expect(llvm::ArrayRef(shapes).take_front(48));
  for (const Candidate::Shape &shape : llvm::reverse(shapes))
    EXPECT_EQ(candidates.find(shape, [&] { return looks.at(shape); }).registers, shape.tokens);
  for (const Candidate::Shape &shape : shapes)
    EXPECT_EQ(candidates.known(shape)->registers, shape.tokens);
  EXPECT_EQ(looks.all, 64);
}

TEST(CandidatesTest, ThreadsLeaveOutWhatTheSearchHasFound) {
  Looks looks;
  Candidates candidates([](Candidates &) {});
  std::vector<Candidate::Shape> shapes = shapesOf(3);
  candidates.find(shapes[1], [&] { return looks.at(shapes[1]); });
  candidates.expect(shapes);
  EXPECT_EQ(candidates.next(), shapes[0]);
  EXPECT_EQ(candidates.next(), shapes[2]);
}

TEST(CandidatesTest, TheSearchWaitsForWhatIsBeingLookedAt) {
  Candidate::Shape shape = shapesOf(1).front();
  Candidates candidates([](Candidates &) {});
  std::promise<void> begun;
  Looks looks;
  std::thread other([&] {
    candidates.find(shape, [&] {
      begun.set_value();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      return looks.at(shape);
    });
  });
  begun.get_future().wait();
  EXPECT_FALSE(candidates.known(shape));
  EXPECT_EQ(candidates.find(shape, [&] { return looks.at(shape); }).registers, shape.tokens);
  other.join();
  EXPECT_EQ(looks.all, 1);
}

TEST(CandidatesTest, NothingMoreIsLookedAtWhenTheSearchIsOver) {
  Looks looks;
  std::atomic<bool> mayLook = false;
  size_t threads = std::max(std::thread::hardware_concurrency(), 1u) - 1;
  {
    Candidates candidates([&](Candidates &shared) {
      while (std::optional<Candidate::Shape> shape = shared.next()) {
        while (!mayLook)
          std::this_thread::yield();
        // Long enough for the search to be over.
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        shared.keep(*shape, looks.at(*shape));
      }
    });
    candidates.expect(shapesOf(64));
    mayLook = true;
  }
  EXPECT_LE(looks.all, std::min<int64_t>(threads, 63));
}

} // namespace
