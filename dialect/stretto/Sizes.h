//===- Sizes.h - Sizes, head counts and options of a variant ----*- C++ -*-===//
//
// A declaration speaks of named sizes ("K", "V + 1"), head sets ("H", "G") and options. `Settings` is what a caller
// fixes of them; `Sizes` is what follows from that: the value of every expression whose names are known.
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_SIZES_H
#define STRETTO_DIALECT_STRETTO_SIZES_H

#include "dialect/stretto/StrettoDialect.h"
#include "llvm/ADT/SmallVector.h"
#include <map>
#include <set>
#include <string>

namespace stretto {

/// What a caller fixes. The value of an option is spelled as in a declaration and read as the declared default is: a
/// number or an expression over sizes and options ("0.5", "K**-0.5"), "true" or "false", or one of the words of a
/// choice.
struct Settings {
  std::map<std::string, int64_t> dims;
  std::map<std::string, int64_t> heads;
  std::map<std::string, std::string> options;
  /// Whether numeric options that are not given have their defaults; otherwise they stay symbolic.
  bool numericDefaults = false;
  /// Optional arguments that are not given.
  std::set<std::string> absent;
};

/// The shape of one argument of a call: `[B, T, heads]` for a number, `[B, T, heads, width]` for a row with an axis,
/// `[heads, axes...]` for a parameter. Rows of a step, which is one token, have no axis T.
struct ArgumentShape {
  std::string name;
  llvm::SmallVector<int64_t, 4> shape;
};

/// What the shapes of a call say.
struct CallSizes {
  int64_t batch = 0, time = 0;
  Settings settings;
};

/// Binds the named sizes and head sets of `variant` to the shapes of a call. Arguments that are not listed are absent,
/// which only optional ones may be. An error names the argument, the value found and the value expected.
mlir::FailureOr<CallSizes> bindShapes(VariantOp variant, llvm::ArrayRef<ArgumentShape> arguments,
                                      const std::map<std::string, std::string> &options = {}, bool isStep = false);

/// The number that each name and expression of a variant stands for, as far as it is known.
class Sizes {
public:
  /// Checks `settings` against `variant`: names that exist, options of the declared kind, head counts of which one
  /// divides the other, sizes that agree with `axes(...)` and with types that are static already.
  static mlir::FailureOr<Sizes> get(VariantOp variant, const Settings &settings);

  /// The number that a name stands for, a size or a numeric option, or nothing where it is not known.
  std::optional<double> number(llvm::StringRef name) const;

  /// The size of an axis (1 for no axis), or nothing where one of its names is not known. Fails where the size is no
  /// integer of at least 1; the error says so.
  llvm::Expected<std::optional<int64_t>> width(llvm::StringRef axis) const;

  /// The same for any expression over sizes, which may come to 0.
  llvm::Expected<std::optional<int64_t>> extent(const Extent &extent) const;

  /// The number of heads of a set, or nothing where it is not known. A joined set has as many as its largest.
  std::optional<int64_t> heads(llvm::StringRef set) const;

  /// The options with the caller's values in place of defaults: number, expression, condition or choice.
  const std::map<std::string, mlir::Attribute> &options() const { return values; }

private:
  std::optional<double> evaluate(llvm::StringRef name, llvm::SmallVectorImpl<llvm::StringRef> &open) const;

  std::map<std::string, int64_t> dims, headCounts;
  std::map<std::string, mlir::Attribute> values;
  /// Numeric options that stay symbolic.
  std::set<std::string> symbolic;
};

/// Calls `visit` with every axis of a row, parameter or state and its size.
void forEachAxis(mlir::Type type, llvm::function_ref<void(llvm::StringRef, int64_t)> visit);

/// The head sets that the arguments and the body of `variant` name, without "1" and joined ones.
std::set<std::string> namedHeadSets(VariantOp variant);

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_SIZES_H
