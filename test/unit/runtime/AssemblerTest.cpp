//===- AssemblerTest.cpp - From PTX to the code of a chip -----------------===//

#include "runtime/Assembler.h"
#include "gtest/gtest.h"
#include <array>
#include <thread>
#include <vector>

using namespace stretto;

namespace {

constexpr llvm::StringLiteral nothing = ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry nothing()\n{\n"
                                        "  ret;\n}\n";

TEST(AssemblerTest, MakesCodeOfSeveralKernelsAtATime) {
  Assembler assembler(STRETTO_TEST_PTXAS);
  EXPECT_FALSE(Assembler::isAssembled(nothing));
  std::array<std::string, 3> codes;
  std::vector<std::thread> threads;
  threads.reserve(codes.size());
  for (std::string &code : codes)
    threads.emplace_back([&] { code = llvm::cantFail(assembler.assemble(nothing, "sm_90a")); });
  for (std::thread &thread : threads)
    thread.join();
  for (const std::string &code : codes) {
    EXPECT_TRUE(Assembler::isAssembled(code));
    EXPECT_EQ(code.size(), codes.front().size());
  }
}

TEST(AssemblerTest, SaysWhatTheProgramSays) {
  Assembler assembler(STRETTO_TEST_PTXAS);
  auto code = assembler.assemble(".version 8.0\n.target sm_80\n.address_size 64\n.entry f() { turn; }\n", "sm_90a");
  std::string message = llvm::toString(code.takeError());
  EXPECT_NE(message.find(STRETTO_TEST_PTXAS " returns 255"), std::string::npos) << message;
  EXPECT_NE(message.find("turn"), std::string::npos) << message;
  auto ofNoChip = assembler.assemble(nothing, "sm_1");
  EXPECT_NE(llvm::toString(ofNoChip.takeError()).find("sm_1"), std::string::npos);
}

TEST(AssemblerTest, SaysThatThereIsNoProgram) {
  auto code = Assembler("/no/ptxas").assemble(nothing, "sm_90a");
  std::string message = llvm::toString(code.takeError());
  EXPECT_NE(message.find("/no/ptxas returns -1"), std::string::npos) << message;
}

TEST(AssemblerTest, TakesNoOtherFileForCode) {
  // `true` succeeds, and makes nothing.
  auto code = Assembler("/bin/true").assemble(nothing, "sm_90a");
  EXPECT_EQ(llvm::toString(code.takeError()), "/bin/true returns 0 ()");
}

} // namespace
