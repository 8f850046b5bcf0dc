//===- Expression.h - Arithmetic over named sizes ---------------*- C++ -*-===//
//
// Two readings of one small grammar,
//
//   sum     := product (('+' | '-') product)*
//   product := unary (('*' | '/') unary)*
//   unary   := '-' unary | power
//   power   := atom ('**' unary)?
//   atom    := number | name | '(' sum ')'
//
// `Extent` reads it as the size of an axis: a polynomial over named sizes with rational coefficients, kept in a
// normal form so that "V + 1" and "1 + V" are one axis. `evaluateExpression` reads it as a number, for the
// defaults of options such as "K**-0.5".
//
//===----------------------------------------------------------------------===//
#ifndef STRETTO_DIALECT_STRETTO_EXPRESSION_H
#define STRETTO_DIALECT_STRETTO_EXPRESSION_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace stretto {

/// Gives the value of a name, or nothing where the name is unknown.
using NameLookup = llvm::function_ref<std::optional<double>(llvm::StringRef)>;

/// The value of `text`; an error names the first unknown name or the place where the text does not parse.
llvm::Expected<double> evaluateExpression(llvm::StringRef text, NameLookup lookup);

/// The size of an axis, for instance `D/2` or `1 + K + K*K`.
class Extent {
public:
  Extent() = default;
  explicit Extent(int64_t constant);

  static llvm::Expected<Extent> parse(llvm::StringRef text);

  /// Whether the extent is within the limits of what a file may hold: 32 terms of at most 8 names, numbers below 2^31.
  bool isModerate() const;

  /// Whether the extent is above zero for all sizes of at least one, as far as the signs of its terms tell.
  bool isPositive() const;

  /// The normal form: monomials by degree, highest first, names in order, the constant last.
  std::string str() const;

  std::optional<int64_t> constant() const;
  /// The name, where the extent is a single name.
  std::optional<std::string> name() const;
  std::vector<std::string> names() const;

  Extent operator+(const Extent &other) const;
  Extent operator-(const Extent &other) const;
  Extent operator*(const Extent &other) const;
  /// Division by a constant; nothing where `other` is not a constant or is zero.
  std::optional<Extent> dividedBy(const Extent &other) const;
  bool operator==(const Extent &other) const { return terms == other.terms; }
  /// The extent with `replacement` in place of the name.
  Extent with(llvm::StringRef name, const Extent &replacement) const;

  /// The size of the one name of an extent `a name + b` that has some size. Nothing where there are other names or
  /// terms, or no whole number of at least 0 has it.
  std::optional<int64_t> solvedFor(int64_t size) const;

  /// The size under given sizes of the names. Fails where a name is unknown or a size is no integer from 0 to 1e9.
  llvm::Expected<int64_t> evaluate(NameLookup lookup) const;

private:
  /// A fraction in lowest terms. One that does not fit becomes `overflow()`, which every operation hands on and
  /// `isModerate` refuses.
  struct Rational {
    int64_t numerator = 0, denominator = 1;
    bool operator==(const Rational &) const = default;
    static Rational overflow() { return {std::numeric_limits<int64_t>::max(), 1}; }
    std::string str() const;
  };
  using Wide = __int128; // holds the intermediate results of one operation
  static Rational add(Rational a, Rational b);
  static Rational multiply(Rational a, Rational b);
  static Rational normalised(Wide numerator, Wide denominator);

  /// Sorted names of a monomial (with repetition) to its coefficient, which is never zero.
  std::map<std::vector<std::string>, Rational> terms;
};

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_EXPRESSION_H
