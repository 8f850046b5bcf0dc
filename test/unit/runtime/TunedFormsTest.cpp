//===- TunedFormsTest.cpp - What tuners found, and whose it is ------------===//

#include "runtime/TunedForms.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <thread>

using namespace stretto;
using testing::HasSubstr;

namespace {

class TunedFormsTest : public testing::Test {
protected:
  TunedFormsTest() {
    testing::internal::CaptureStderr();
    llvm::SmallString<128> path;
    EXPECT_FALSE(llvm::sys::fs::createUniqueDirectory("stretto-tuned-test", path));
    folder = path.str();
  }
  ~TunedFormsTest() override {
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "what is noted is expected by a test";
    EXPECT_FALSE(llvm::sys::fs::remove_directories(folder));
  }

  /// What is kept, as another process sees it.
  std::unique_ptr<TunedForms> open() {
    return std::make_unique<TunedForms>(DiskCache(folder + "/tuned", folder + "/secret", 1 << 20, words));
  }
  std::vector<std::string> files() const {
    std::vector<std::string> found;
    std::error_code error;
    for (llvm::sys::fs::directory_iterator file(folder + "/tuned", error), end; !error && file != end;
         file.increment(error))
      found.push_back(file->path());
    return found;
  }
  static void write(const std::string &path, llvm::StringRef text) {
    std::error_code error;
    llvm::raw_fd_ostream file(path, error);
    ASSERT_FALSE(error);
    file << text;
  }
  void expectNote(const std::string &text) {
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(text));
    testing::internal::CaptureStderr();
  }

  static constexpr DiskCache::Words words = {"tuned forms", "tuned form", "leaving it out", "tuned"};
  std::string folder;
  TunedForm entry = {.form = {.chunk = 32, .slices = 2, .warps = 4, .ahead = -1, .walks = 2, .walkSlices = 4},
                     .milliseconds = 1.5,
                     .modelMilliseconds = 2};
};

TEST_F(TunedFormsTest, AnotherProcessFindsWhatIsKept) {
  auto forms = open();
  EXPECT_FALSE(forms->find("gla"));
  uint64_t before = forms->generation();
  forms->keep("gla", entry);
  EXPECT_NE(forms->generation(), before);
  for (const auto &process : {std::move(forms), open()}) {
    std::optional<TunedForm> found = process->find("gla");
    ASSERT_TRUE(found);
    EXPECT_EQ(found->form, entry.form);
    EXPECT_EQ(found->modelMilliseconds, 2);
    EXPECT_FALSE(found->isShipped);
    EXPECT_FALSE(process->find("simple_gla"));
  }
}

TEST_F(TunedFormsTest, NothingIsLostBetweenProcesses) {
  constexpr int processes = 8, entries = 16;
  std::vector<std::thread> threads;
  threads.reserve(processes);
  for (int process = 0; process < processes; ++process)
    threads.emplace_back([&, process] {
      auto forms = open();
      for (int i = 0; i < entries; ++i)
        forms->keep("key " + std::to_string(process) + " " + std::to_string(i), entry);
    });
  for (std::thread &thread : threads)
    thread.join();
  auto forms = open();
  for (int process = 0; process < processes; ++process)
    for (int i = 0; i < entries; ++i)
      EXPECT_TRUE(forms->find("key " + std::to_string(process) + " " + std::to_string(i)));
}

TEST_F(TunedFormsTest, DamagedEntriesAreLeftOut) {
  open()->keep("gla", entry);
  ASSERT_EQ(files().size(), 1u);
  for (const char *contents : {"", "{", "stretto kernel 1\n{}", "nonsense \xff\n"}) {
    write(files().front(), contents);
    EXPECT_FALSE(open()->find("gla"));
    expectNote("is damaged or not ours; leaving it out");
  }
  open()->keep("gla", entry);
  EXPECT_TRUE(open()->find("gla"));
}

TEST_F(TunedFormsTest, FormsThatNoKernelHasAreLeftOut) {
  for (Form form : {Form{.chunk = -1}, Form{.chunk = 32, .slices = 3}, Form{.chunk = 32, .slices = 0},
                    Form{.chunk = 4096}, Form{.chunk = 32, .warps = 64}}) {
    open()->keep("gla", {.form = form});
    EXPECT_FALSE(open()->find("gla"));
    expectNote("a tuned form of another kind is left out");
  }
}

TEST_F(TunedFormsTest, TheShippedTableComesLast) {
  std::string path = folder + "/table.json";
  auto first = open();
  first->keep("gla", entry);
  first->keep("gsa", entry);
  write(path, first->table());

  TunedForms other(DiskCache("", "", 0)); // nothing is kept
  other.setTable(path);
  std::optional<TunedForm> found = other.find("gla");
  ASSERT_TRUE(found);
  EXPECT_TRUE(found->isShipped);
  EXPECT_EQ(found->form, entry.form);
  other.keep("gla", {.form = {.chunk = 16}});
  EXPECT_EQ(other.find("gla")->form.chunk, 16);
  EXPECT_TRUE(other.find("gsa")->isShipped);
  EXPECT_FALSE(other.find("abc"));
}

TEST_F(TunedFormsTest, ABrokenTableIsLeftOut) {
  std::string path = folder + "/table.json";
  TunedForms forms(DiskCache("", "", 0));
  forms.setTable(path);
  EXPECT_FALSE(forms.find("gla"));
  expectNote("is left out: No such file");
  for (auto [contents, reason] : {std::pair("[", "is left out: "), std::pair("[]", "it has no entries"),
                                  std::pair(R"({"entries": [7]})", "is left out: 7"),
                                  std::pair(R"({"entries": [{"key": "gla", "chunk": 16}]})", "is left out: {")}) {
    write(path, contents);
    forms.setTable(path);
    EXPECT_FALSE(forms.find("gla"));
    expectNote(reason);
  }
}

} // namespace
