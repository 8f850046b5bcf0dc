//===- Expression.cpp - Arithmetic over named sizes -----------------------===//

#include "dialect/stretto/Expression.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MathExtras.h"
#include <cmath>

using namespace stretto;

namespace {

llvm::Error failure(const llvm::Twine &message) {
  return llvm::createStringError(llvm::inconvertibleErrorCode(), message);
}

/// Recursive descent over the grammar of the header. `Algebra` supplies the values and their operations, each of
/// which may fail.
template <typename Algebra> class Parser {
public:
  using Value = typename Algebra::Value;

  Parser(llvm::StringRef text, Algebra algebra) : text(text), rest(text), algebra(algebra) {}

  llvm::Expected<Value> parse() {
    llvm::Expected<Value> value = sum();
    if (!value)
      return value.takeError();
    skipSpace();
    if (!rest.empty())
      return unexpected();
    return value;
  }

private:
  // Parentheses and signs recurse; text from outside must not exhaust the stack.
  static constexpr int maximalDepth = 64;

  void skipSpace() { rest = rest.ltrim(); }

  bool consume(llvm::StringRef token) {
    skipSpace();
    return rest.consume_front(token);
  }

  llvm::Error unexpected() {
    return failure(rest.empty() ? llvm::formatv("'{0}' ends where a number or a name is expected", text).str()
                                : llvm::formatv("unexpected '{0}' in '{1}'", rest.take_front(1), text).str());
  }

  llvm::Expected<Value> sum() {
    llvm::Expected<Value> left = product();
    while (left) {
      bool plus = consume("+");
      if (!plus && !consume("-"))
        break;
      llvm::Expected<Value> right = product();
      if (!right)
        return right.takeError();
      left = plus ? algebra.add(*left, *right) : algebra.subtract(*left, *right);
    }
    return left;
  }

  llvm::Expected<Value> product() {
    llvm::Expected<Value> left = unary();
    while (left) {
      skipSpace();
      if (rest.starts_with("**"))
        break;
      bool times = consume("*");
      if (!times && !consume("/"))
        break;
      llvm::Expected<Value> right = unary();
      if (!right)
        return right.takeError();
      left = times ? algebra.multiply(*left, *right) : algebra.divide(*left, *right);
    }
    return left;
  }

  llvm::Expected<Value> unary() {
    if (++depth > maximalDepth)
      return failure("'" + text + "' is nested more than " + llvm::Twine(maximalDepth) + " deep");
    llvm::scope_exit leave([&] { --depth; });
    if (!consume("-"))
      return power();
    llvm::Expected<Value> value = unary();
    if (!value)
      return value.takeError();
    return algebra.subtract(algebra.zero(), *value);
  }

  llvm::Expected<Value> power() {
    llvm::Expected<Value> base = atom();
    if (!base || !consume("**"))
      return base;
    llvm::Expected<Value> exponent = unary();
    if (!exponent)
      return exponent.takeError();
    return algebra.power(*base, *exponent);
  }

  llvm::Expected<Value> atom() {
    skipSpace();
    if (consume("(")) {
      llvm::Expected<Value> value = sum();
      if (value && !consume(")"))
        return unexpected();
      return value;
    }
    if (rest.empty())
      return unexpected();
    if (llvm::isDigit(rest.front()) || rest.front() == '.')
      return number();
    if (llvm::isAlpha(rest.front()) || rest.front() == '_')
      return algebra.name(take([](char c) { return llvm::isAlnum(c) || c == '_'; }));
    return unexpected();
  }

  llvm::Expected<Value> number() {
    llvm::StringRef start = rest;
    take([](char c) { return llvm::isDigit(c) || c == '.'; });
    bool hasExponent = true; // or none is begun
    if (!rest.empty() && (rest.front() == 'e' || rest.front() == 'E')) {
      rest = rest.drop_front();
      if (!rest.empty() && (rest.front() == '-' || rest.front() == '+'))
        rest = rest.drop_front();
      hasExponent = !take(llvm::isDigit).empty();
    }
    llvm::StringRef digits = start.drop_back(rest.size());
    double value;
    if (!hasExponent || digits.getAsDouble(value))
      return failure("'" + digits + "' in '" + text + "' is no number");
    return algebra.number(value);
  }

  template <typename Predicate> llvm::StringRef take(Predicate predicate) {
    llvm::StringRef taken = rest.take_while(predicate);
    rest = rest.drop_front(taken.size());
    return taken;
  }

  llvm::StringRef text, rest;
  Algebra algebra;
  int depth = 0;
};

struct Numbers {
  using Value = double;
  NameLookup lookup;

  llvm::Expected<double> name(llvm::StringRef name) const {
    if (std::optional<double> value = lookup(name))
      return *value;
    return failure("'" + name + "' is not a known size or option");
  }
  double zero() const { return 0; }
  llvm::Expected<double> number(double value) const { return value; }
  llvm::Expected<double> add(double a, double b) const { return a + b; }
  llvm::Expected<double> subtract(double a, double b) const { return a - b; }
  llvm::Expected<double> multiply(double a, double b) const { return a * b; }
  llvm::Expected<double> divide(double a, double b) const { return a / b; }
  llvm::Expected<double> power(double a, double b) const { return std::pow(a, b); }
};

struct Extents {
  using Value = Extent;
  llvm::StringRef text;

  /// Coefficients that stay below 2^31 can be added and multiplied without overflow, whatever a file holds.
  llvm::Expected<Extent> limited(Extent extent) const {
    if (extent.isModerate())
      return extent;
    return failure("the size '" + text + "' has too many terms or too large a coefficient");
  }
  llvm::Expected<Extent> name(llvm::StringRef name) const { return Extent::parse(name); }
  Extent zero() const { return Extent(0); }
  llvm::Expected<Extent> number(double value) const {
    if (value != std::floor(value) || std::abs(value) > 1e9)
      return failure(
          llvm::formatv("the size '{0}' holds {1}, which is no integer of at most 1e9", text, llvm::format("%g", value))
              .str());
    return Extent(static_cast<int64_t>(value));
  }
  llvm::Expected<Extent> add(const Extent &a, const Extent &b) const { return limited(a + b); }
  llvm::Expected<Extent> subtract(const Extent &a, const Extent &b) const { return limited(a - b); }
  llvm::Expected<Extent> multiply(const Extent &a, const Extent &b) const { return limited(a * b); }
  llvm::Expected<Extent> divide(const Extent &a, const Extent &b) const {
    if (std::optional<Extent> quotient = a.dividedBy(b))
      return limited(*quotient);
    return failure("the size '" + text + "' divides by something that is not a constant other than 0");
  }
  llvm::Expected<Extent> power(const Extent &a, const Extent &b) const {
    std::optional<int64_t> exponent = b.constant();
    if (!exponent || *exponent < 0 || *exponent > 4)
      return failure("the size '" + text + "' holds a power other than 0 to 4");
    llvm::Expected<Extent> result = Extent(1);
    for (int64_t i = 0; i < *exponent && result; ++i)
      result = multiply(*result, a);
    return result;
  }
};

} // namespace

llvm::Expected<double> stretto::evaluateExpression(llvm::StringRef text, NameLookup lookup) {
  return Parser<Numbers>(text, Numbers{lookup}).parse();
}

//===----------------------------------------------------------------------===//
// Extent
//===----------------------------------------------------------------------===//

Extent::Rational Extent::normalised(Wide numerator, Wide denominator) {
  if (denominator < 0)
    numerator = -numerator, denominator = -denominator;
  Wide a = numerator < 0 ? -numerator : numerator, divisor = denominator;
  while (a)
    std::swap(a, divisor %= a);
  constexpr int64_t limit = std::numeric_limits<int64_t>::max();
  numerator /= divisor, denominator /= divisor;
  if (numerator <= -limit || numerator >= limit || denominator >= limit)
    return Rational::overflow();
  return {static_cast<int64_t>(numerator), static_cast<int64_t>(denominator)};
}

Extent::Rational Extent::add(Rational a, Rational b) {
  if (a == Rational::overflow() || b == Rational::overflow())
    return Rational::overflow();
  return normalised(Wide(a.numerator) * b.denominator + Wide(b.numerator) * a.denominator,
                    Wide(a.denominator) * b.denominator);
}

Extent::Rational Extent::multiply(Rational a, Rational b) {
  if (a == Rational::overflow() || b == Rational::overflow())
    return Rational::overflow();
  return normalised(Wide(a.numerator) * b.numerator, Wide(a.denominator) * b.denominator);
}

Extent::Extent(int64_t constant) {
  if (constant)
    terms[{}] = {constant, 1};
}

llvm::Expected<Extent> Extent::parse(llvm::StringRef text) {
  bool isName = !text.empty() && (llvm::isAlpha(text.front()) || text.front() == '_') &&
                llvm::all_of(text, [](char c) { return llvm::isAlnum(c) || c == '_'; });
  if (isName) {
    Extent extent;
    extent.terms[{text.str()}] = {1, 1};
    return extent;
  }
  return Parser<Extents>(text, Extents{text}).parse();
}

std::string Extent::Rational::str() const {
  if (*this == overflow())
    return "a number beyond 2^63";
  return std::to_string(numerator) + (denominator == 1 ? "" : "/" + std::to_string(denominator));
}

bool Extent::isModerate() const {
  constexpr int64_t limit = int64_t(1) << 31;
  return terms.size() <= 32 && llvm::all_of(terms, [](const auto &term) {
           return term.first.size() <= 8 && std::abs(term.second.numerator) < limit && term.second.denominator < limit;
         });
}

bool Extent::isPositive() const {
  // Sizes are at least one, so a product of them is, and what is added counts at least its coefficient.
  Rational least;
  for (const auto &[names, coefficient] : terms) {
    if (!names.empty() && coefficient.numerator < 0)
      return false;
    least = add(least, coefficient);
  }
  return least.numerator > 0 && !(least == Rational::overflow());
}

std::string Extent::str() const {
  if (terms.empty())
    return "0";
  std::vector<std::pair<std::vector<std::string>, Rational>> ordered(terms.begin(), terms.end());
  llvm::sort(ordered, [](const auto &a, const auto &b) {
    return a.first.size() != b.first.size() ? a.first.size() > b.first.size() : a.first < b.first;
  });
  std::string text;
  for (const auto &[names, coefficient] : ordered) {
    bool negative = coefficient.numerator < 0;
    text += text.empty() ? (negative ? "-" : "") : (negative ? " - " : " + ");
    int64_t magnitude = std::abs(coefficient.numerator);
    if (names.empty() || magnitude != 1)
      text += std::to_string(magnitude) + (names.empty() ? "" : "*");
    text += llvm::join(names, "*");
    if (coefficient.denominator != 1)
      text += "/" + std::to_string(coefficient.denominator);
  }
  return text;
}

std::optional<int64_t> Extent::constant() const {
  if (terms.empty())
    return 0;
  auto it = terms.find({});
  if (terms.size() == 1 && it != terms.end() && it->second.denominator == 1)
    return it->second.numerator;
  return std::nullopt;
}

std::optional<std::string> Extent::name() const {
  if (terms.size() == 1 && terms.begin()->first.size() == 1 && terms.begin()->second == Rational{1, 1})
    return terms.begin()->first.front();
  return std::nullopt;
}

std::vector<std::string> Extent::names() const {
  llvm::StringSet<> seen;
  std::vector<std::string> result;
  for (const auto &[monomial, coefficient] : terms)
    for (const std::string &name : monomial)
      if (seen.insert(name).second)
        result.push_back(name);
  return result;
}

Extent Extent::operator+(const Extent &other) const {
  Extent result = *this;
  for (const auto &[names, coefficient] : other.terms) {
    Rational &term = result.terms[names];
    term = add(term, coefficient);
    if (term.numerator == 0)
      result.terms.erase(names);
  }
  return result;
}

Extent Extent::operator-(const Extent &other) const { return *this + other * Extent(-1); }

Extent Extent::operator*(const Extent &other) const {
  Extent result;
  for (const auto &[names, coefficient] : terms)
    for (const auto &[otherNames, otherCoefficient] : other.terms) {
      std::vector<std::string> product = names;
      product.insert(product.end(), otherNames.begin(), otherNames.end());
      llvm::sort(product);
      Extent term;
      term.terms[product] = multiply(coefficient, otherCoefficient);
      result = result + term;
    }
  return result;
}

std::optional<Extent> Extent::dividedBy(const Extent &other) const {
  std::optional<int64_t> divisor = other.constant();
  if (!divisor || *divisor == 0)
    return std::nullopt;
  Extent result = *this;
  for (auto &[names, coefficient] : result.terms)
    coefficient = multiply(coefficient, normalised(1, *divisor));
  return result;
}

Extent Extent::with(llvm::StringRef name, const Extent &replacement) const {
  Extent result;
  for (const auto &[names, coefficient] : terms) {
    Extent term;
    term.terms[{}] = coefficient;
    for (const std::string &factor : names) {
      Extent plain;
      plain.terms[{factor}] = {1, 1};
      term = term * (factor == name ? replacement : plain);
    }
    result = result + term;
  }
  return result;
}

std::optional<int64_t> Extent::solvedFor(int64_t size) const {
  std::vector<std::string> unknown = names();
  if (unknown.size() != 1)
    return std::nullopt;
  auto slope = terms.find(unknown), offset = terms.find({});
  bool hasOffset = offset != terms.end();
  if (slope == terms.end() || terms.size() != (hasOffset ? 2 : 1))
    return std::nullopt;
  Rational rest = add({size, 1}, hasOffset ? multiply(offset->second, {-1, 1}) : Rational());
  Rational found = multiply(rest, normalised(slope->second.denominator, slope->second.numerator));
  if (found.denominator != 1 || found.numerator < 0 || found == Rational::overflow())
    return std::nullopt;
  return found.numerator;
}

llvm::Expected<int64_t> Extent::evaluate(NameLookup lookup) const {
  constexpr int64_t limit = 1'000'000'000;
  Rational sum;
  for (const auto &[names, coefficient] : terms) {
    Rational product = coefficient;
    for (const std::string &name : names) {
      std::optional<double> value = lookup(name);
      if (!value)
        return failure("the size '" + name + "' is not known");
      if (*value != std::floor(*value) || *value < 0 || *value > limit)
        return failure(
            llvm::formatv("the size '{0}' is {1}, which is no integer from 0 to 1e9", name, llvm::format("%g", *value))
                .str());
      product = multiply(product, {static_cast<int64_t>(*value), 1});
    }
    sum = add(sum, product);
  }
  if (sum.denominator != 1 || sum.numerator < 0 || sum.numerator > limit)
    return failure("the size '" + str() + "' comes to " + sum.str() + ", which is no integer from 0 to 1e9");
  return sum.numerator;
}
