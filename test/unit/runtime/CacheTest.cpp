//===- CacheTest.cpp - Compiled kernels on disk ---------------------------===//

#include "runtime/Cache.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "gtest/gtest.h"
#include <sys/stat.h>
#include <thread>

using namespace stretto;

namespace {

class CacheTest : public testing::Test {
protected:
  CacheTest() {
    testing::internal::CaptureStderr();
    llvm::SmallString<128> path;
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("stretto-cache-test", path));
    folder = path.str();
  }
  ~CacheTest() override {
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "what is noted is expected by a test";
    EXPECT_FALSE(llvm::sys::fs::remove_directories(folder));
  }

  /// Since the last call the user was told `count` times of what `text` is a part of, and of nothing else.
  void expectNotes(size_t count, llvm::StringRef text) {
    std::string noted = testing::internal::GetCapturedStderr();
    testing::internal::CaptureStderr();
    EXPECT_EQ(llvm::StringRef(noted).count(text), count) << noted;
    EXPECT_EQ(llvm::StringRef(noted).count('\n'), count) << noted;
  }

  DiskCache open(uint64_t limitBytes = 1 << 20) { return {folder + "/kernels", folder + "/secret", limitBytes}; }
  std::string fileOf(const CacheKey &key) const { return folder + "/kernels/" + key.digest + ".kernel"; }

  std::string contentsOf(const CacheKey &key) const {
    auto buffer = llvm::MemoryBuffer::getFile(fileOf(key));
    return buffer ? (*buffer)->getBuffer().str() : "";
  }
  void overwrite(const CacheKey &key, const std::string &contents) const {
    std::error_code error;
    llvm::raw_fd_ostream file(fileOf(key), error);
    ASSERT_FALSE(error);
    file << contents;
  }

  std::string folder;
  CacheKey key = CacheKey::of({"a", "kernel"});
};

TEST_F(CacheTest, KeysTellPartsApart) {
  EXPECT_EQ(key.digest, CacheKey::of({"a", "kernel"}).digest);
  EXPECT_NE(key.digest, CacheKey::of({"ak", "ernel"}).digest);
  EXPECT_NE(key.digest, CacheKey::of({"a", "kernel", ""}).digest);
  EXPECT_EQ(key.digest.size(), 64u);
}

TEST_F(CacheTest, AnotherProcessFindsWhatWasStored) {
  std::string payload("code\0with zeros\n", 16);
  EXPECT_EQ(open().load(key), std::nullopt);
  open().store(key, payload);
  EXPECT_EQ(open().load(key), payload);
}

TEST_F(CacheTest, EveryDamageIsFound) {
  open().store(key, "the payload");
  std::string whole = contentsOf(key);
  ASSERT_FALSE(whole.empty());
  for (size_t size = 0; size < whole.size(); ++size) {
    overwrite(key, whole.substr(0, size));
    EXPECT_EQ(open().load(key), std::nullopt) << "truncated to " << size << " bytes";
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] ^= 1;
    overwrite(key, damaged);
    EXPECT_EQ(open().load(key), std::nullopt) << "another byte at " << at;
  }
  expectNotes(2 * whole.size(), "is damaged or not ours; compiling it again");
  open().store(key, "the payload");
  EXPECT_EQ(open().load(key), "the payload");
}

TEST_F(CacheTest, AnEntryUnderAnotherNameIsRefused) {
  open().store(key, "the payload");
  CacheKey other = CacheKey::of({"another"});
  overwrite(other, contentsOf(key));
  EXPECT_EQ(open().load(other), std::nullopt);
  expectNotes(1, "is damaged or not ours");
}

TEST_F(CacheTest, AnEntryOfAnotherUserIsRefused) {
  open().store(key, "the payload");
  DiskCache other(folder + "/kernels", folder + "/another secret", 1 << 20);
  EXPECT_EQ(other.load(key), std::nullopt);
  expectNotes(1, "is damaged or not ours");
}

TEST_F(CacheTest, AFolderThatOthersMayWriteToIsNotUsed) {
  ASSERT_TRUE(open().enabled());
  ASSERT_EQ(::chmod((folder + "/kernels").c_str(), 0777), 0);
  EXPECT_FALSE(open().enabled());
  expectNotes(1, "belongs to another user or can be written by others");
}

TEST_F(CacheTest, FilesAreTheOwnersAlone) {
  open().store(key, "the payload");
  for (const std::string &file : {fileOf(key), folder + "/secret"}) {
    struct stat status;
    ASSERT_EQ(::stat(file.c_str(), &status), 0) << file;
    EXPECT_EQ(status.st_mode & 0777, 0600u) << file;
  }
}

TEST_F(CacheTest, WhatWasUsedLeastRecentlyGoes) {
  DiskCache cache = open(/*limitBytes=*/3000);
  std::string payload(1000, 'x');
  CacheKey keys[] = {CacheKey::of({"0"}), CacheKey::of({"1"}), CacheKey::of({"2"})};
  auto wait = [] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); };
  cache.store(keys[0], payload);
  wait();
  cache.store(keys[1], payload);
  wait();
  EXPECT_TRUE(cache.load(keys[0]));
  wait();
  cache.store(keys[2], payload);
  EXPECT_TRUE(cache.load(keys[0]));
  EXPECT_FALSE(cache.load(keys[1]));
  EXPECT_TRUE(cache.load(keys[2]));
}

TEST_F(CacheTest, ThreadsThatStoreOneEntryAtOnceLeaveAWholeOne) {
  std::vector<std::thread> threads;
  threads.reserve(8);
  for (int i = 0; i < 8; ++i)
    threads.emplace_back([&] {
      DiskCache cache = open();
      for (int j = 0; j < 20; ++j) {
        cache.store(key, std::string(5000, 'x'));
        std::optional<std::string> found = cache.load(key);
        ASSERT_TRUE(found);
        ASSERT_EQ(*found, std::string(5000, 'x'));
      }
    });
  for (std::thread &thread : threads)
    thread.join();
}

} // namespace
