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

  /// Whether the extent is small enough for arithmetic on it to be safe from overflow.
  bool isModerate() const;

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

  /// The size under given sizes of the names. Fails where a name is unknown or the size is no integer >= 0.
  llvm::Expected<int64_t> evaluate(NameLookup lookup) const;

private:
  struct Rational {
    int64_t numerator = 0, denominator = 1;
    bool operator==(const Rational &) const = default;
  };
  static Rational add(Rational a, Rational b);
  static Rational multiply(Rational a, Rational b);
  static Rational normalised(int64_t numerator, int64_t denominator);

  /// Sorted names of a monomial (with repetition) to its coefficient, which is never zero.
  std::map<std::vector<std::string>, Rational> terms;
};

} // namespace stretto

#endif // STRETTO_DIALECT_STRETTO_EXPRESSION_H
