//===- Signs.h - What is known of the sign of a row -------------*- C++ -*-===//
//
// A logarithm of a decay may not be positive. For a gate that a variant computes, such as logsigmoid(z) / 16, this
// follows from the operations; for one that arrives as it is used, or times a factor of known sign, it is a condition
// on the argument, which a caller can check.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_SIGNS_H
#define STRETTO_DIALECT_STRETTO_SIGNS_H

#include "dialect/stretto/StrettoDialect.h"
#include "llvm/ADT/DenseMap.h"

namespace stretto {

/// The sign of every entry of a value that is a number. `Zero` is both of the next two.
enum class Sign { Zero, NonPositive, NonNegative, Unknown };

/// What operations say of the signs of their results, for all values of a variant whose alternatives are decided.
class Signs {
public:
  explicit Signs(VariantOp variant);
  Sign of(mlir::Value value) const;

private:
  Sign ofResult(mlir::Operation *op) const;
  llvm::DenseMap<mlir::Value, Sign> signs;
};

/// What must hold for every logarithmic decay to be at most 1.
struct DecayConditions {
  struct Condition {
    unsigned argument;
    /// NonPositive or NonNegative.
    Sign sign;
    bool operator==(const Condition &) const = default;
  };
  /// Conditions on arguments, which are sufficient where `proven`.
  llvm::SmallVector<Condition, 2> conditions;
  /// False where a gate's sign depends on arguments in another way.
  bool proven = true;
};

DecayConditions decayConditions(VariantOp variant);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_SIGNS_H
