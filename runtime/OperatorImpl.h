//===- OperatorImpl.h - What an operator holds ------------------*- C++ -*-===//
#ifndef STRETTO_RUNTIME_OPERATORIMPL_H
#define STRETTO_RUNTIME_OPERATORIMPL_H

#include "runtime/Checks.h"
#include "runtime/Signature.h"
#include <atomic>
#include <shared_mutex>
#include <unordered_map>

namespace stretto {

struct SignatureKey {
  llvm::SmallVector<int64_t, 48> numbers;
  llvm::SmallVector<std::string, 4> options;
  bool operator==(const SignatureKey &) const = default;
};

struct HashSignatureKey {
  size_t operator()(const SignatureKey &key) const {
    return llvm::hash_combine(llvm::hash_combine_range(key.numbers), llvm::hash_combine_range(key.options));
  }
};

struct Operator::Implementation {
  // A context of its own, so that operators do not wait for each other's compilation.
  mlir::MLIRContext context{mlir::MLIRContext::Threading::DISABLED};
  mlir::OwningOpRef<mlir::ModuleOp> module;
  VariantOp variant;
  llvm::SmallBitVector gates;
  /// Held by whoever works in the context.
  std::mutex contextMutex;

  std::shared_mutex guard;
  /// Whether the user knows that a slower form runs.
  std::atomic<bool> hasWarned = false;
  std::unordered_map<SignatureKey, std::unique_ptr<Signature>, HashSignatureKey> signatures;
};

} // namespace stretto

#endif // STRETTO_RUNTIME_OPERATORIMPL_H
