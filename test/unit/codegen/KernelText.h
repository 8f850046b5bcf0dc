//===- KernelText.h - Texts of chunk kernels of many sizes ------*- C++ -*-===//
#ifndef STRETTO_TEST_UNIT_CODEGEN_KERNELTEXT_H
#define STRETTO_TEST_UNIT_CODEGEN_KERNELTEXT_H

#include "CpuKernelTest.h"
#include "llvm/ADT/StringExtras.h"
#include <regex>

namespace stretto {

/// The sizes and types that a kernel's text is written in: !K, !V, !t, !P, !S, !k, !v are tiles of the channels of keys
/// or values, one number a token, pairs of tokens, a state, and rows, of the compute type; !inK, !inV, !int as they lie
/// in memory.
struct Shape {
  int64_t chunk = 16, keyWidth = 32, valueWidth = 32;
  std::string memory = "f32", compute = "f32";
};

inline std::string replaced(std::string text, const std::string &what, const std::string &with) {
  for (size_t place = 0; (place = text.find(what, place)) != std::string::npos; place += with.size())
    text.replace(place, what.size(), with);
  return text;
}

/// A kernel: `signature` and `body` use the names above, and %x32 for the widened %x, %x16 for the rounded %x.
inline std::string write(const Shape &shape, std::string kernel) {
  auto alias = [&](const std::string &name, std::initializer_list<int64_t> sizes, const std::string &element) {
    std::string text = name + " = tensor<";
    for (int64_t size : sizes)
      text += std::to_string(size) + "x";
    return text + element + ">\n";
  };
  if (shape.memory == shape.compute) {
    std::string kept;
    for (llvm::StringRef line : llvm::split(llvm::StringRef(kernel), '\n'))
      if (!line.contains("arith.extf") && !line.contains("arith.truncf"))
        kept += (line + "\n").str();
    kernel = std::regex_replace(kept, std::regex("(%[A-Za-z]+)(16|32)\\b"), "$1");
  }
  const std::string &in = shape.memory, &f = shape.compute;
  return alias("!inK", {shape.chunk, shape.keyWidth}, in) + alias("!inV", {shape.chunk, shape.valueWidth}, in) +
         alias("!int", {shape.chunk}, in) + alias("!K", {shape.chunk, shape.keyWidth}, f) +
         alias("!V", {shape.chunk, shape.valueWidth}, f) + alias("!t", {shape.chunk}, f) +
         alias("!P", {shape.chunk, shape.chunk}, f) + alias("!S", {shape.keyWidth, shape.valueWidth}, f) +
         alias("!k", {shape.keyWidth}, f) + alias("!v", {shape.valueWidth}, f) + "chunk.kernel @kernel chunk " +
         std::to_string(shape.chunk) + kernel;
}

} // namespace stretto

#endif // STRETTO_TEST_UNIT_CODEGEN_KERNELTEXT_H
