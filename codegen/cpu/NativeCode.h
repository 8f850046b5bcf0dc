//===- NativeCode.h - From vector code to machine code ----------*- C++ -*-===//
#ifndef STRETTO_CODEGEN_CPU_NATIVECODE_H
#define STRETTO_CODEGEN_CPU_NATIVECODE_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/JSON.h"
#include <memory>
#include <string>

namespace stretto::cpu {

/// The instructions that vector code is made of.
struct Instructions {
  /// Bits of a vector register: 256, or 512 with AVX512's F, VL, BW and DQ.
  int64_t vectorBits = 512;
  /// Whether there is AVX512_BF16: registers are rounded to bf16, and pairs of such numbers multiplied, summed in fp32.
  bool bf16 = false;
  /// Whether products of such pairs are faster than those of fp32 numbers.
  bool bf16Dot = false;
  /// Whether there is AMX_BF16: products of tiles of such pairs.
  bool bf16Tiles = false;
};

/// A processor, as LLVM spells its name and features.
struct Processor {
  std::string name, features;
  /// Why code for it does without tiles that the processor has; empty where it has none, or they are used.
  std::string whyNoTiles = {};

  /// This machine's. Of tiles the operating system is asked first, once in a process: it may refuse them.
  static const Processor &host();
  /// One that LLVM knows, such as "skylake-avx512"; without features if it does not.
  static Processor named(llvm::StringRef name);
  bool has(llvm::StringRef feature) const;
  bool hasTiles() const { return has("amx-tile") && has("amx-bf16"); }
  /// The same processor, whose tiles are not used.
  Processor withoutTiles(llvm::StringRef reason) const;
  Instructions instructions() const;
  /// Says what code for it is made of.
  void explain(llvm::json::OStream &json) const;
};

/// The passes from chunk kernels to the LLVM dialect.
void buildPipeline(mlir::OpPassManager &passes, Instructions instructions);
void registerPipeline();
void registerTranslation();

/// Object code for a module that the pipeline lowered.
llvm::Expected<std::string> emitObject(mlir::ModuleOp module, const Processor &processor);
/// The same as assembly, for tests and for reading.
llvm::Expected<std::string> emitAssembly(mlir::ModuleOp module, const Processor &processor);

/// Object code in this process, until it is destroyed.
class LoadedCode {
public:
  static llvm::Expected<std::unique_ptr<LoadedCode>> load(llvm::StringRef object);
  virtual ~LoadedCode() = default;
  virtual llvm::Expected<void *> find(llvm::StringRef symbol) = 0;
};

} // namespace stretto::cpu

#endif // STRETTO_CODEGEN_CPU_NATIVECODE_H
