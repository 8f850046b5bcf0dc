//===- AssemblerTest.cpp - From PTX to the code of a chip -----------------===//

#include "runtime/Assembler.h"
#include "gtest/gtest.h"
#include <dlfcn.h>
#include <thread>

using namespace stretto;

namespace {

constexpr llvm::StringLiteral nothing = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n"
                                        "  ret;\n}\n";

/// The library is that of the Python environment, as PyTorch opens it.
class AssemblerTest : public testing::Test {
protected:
  void SetUp() override {
    ASSERT_TRUE(dlopen(STRETTO_JIT_LINK, RTLD_NOW | RTLD_LOCAL)) << dlerror();
    ASSERT_EQ(Assembler::problem(), "");
  }
};

TEST_F(AssemblerTest, MakesCodeOfSeveralKernelsAtATime) {
  EXPECT_FALSE(Assembler::isAssembled(nothing));
  std::array<std::string, 3> codes;
  std::vector<std::thread> threads;
  for (std::string &code : codes)
    threads.emplace_back([&] { code = llvm::cantFail(Assembler::assemble(nothing, "sm_90a")); });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &code : codes) {
    EXPECT_TRUE(Assembler::isAssembled(code));
    EXPECT_EQ(code, codes.front());
  }
}

TEST_F(AssemblerTest, SaysWhatItDoesNotUnderstand) {
  auto code = Assembler::assemble(".version 8.0\n.target sm_80\n.address_size 64\n.entry f() { turn; }\n", "sm_90a");
  std::string message = llvm::toString(code.takeError());
  EXPECT_NE(message.find("nvJitLink returns"), std::string::npos) << message;
  EXPECT_NE(message.find("turn"), std::string::npos) << message;
}

TEST_F(AssemblerTest, IsNotAskedForAChipThatThereIsNot) {
  auto code = Assembler::assemble(nothing, "sm_1");
  EXPECT_EQ(llvm::toString(code.takeError()), "nvJitLink is not asked for code of 'sm_1', which is no known chip");
}

} // namespace
