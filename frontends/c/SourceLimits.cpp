//===- SourceLimits.cpp - What text the parser can bear -------------------===//

#include "frontends/c/SourceLimits.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

namespace {

/// Splits text into tokens: a string, a name with its sigil (%x, ^bb0, @f, #row, !K), a word or number, or a single
/// character. Arrows and comparisons are one token, for their '>' is no bracket.
class Scanner {
public:
  Scanner(StringRef text, size_t firstLine) : rest(text), lines(firstLine) {}

  /// The next token, empty at the end.
  StringRef next() {
    skipBlank();
    if (rest.empty())
      return rest;
    auto isNamePart = [](char c) { return isAlnum(c) || c == '_' || c == '.' || c == '$'; };
    if (rest.front() == '"') {
      // A string ends on its line.
      size_t end = 1;
      while (end < rest.size() && rest[end] != '"' && rest[end] != '\n')
        end += rest[end] == '\\' ? 2 : 1;
      return take(end + 1);
    }
    for (StringRef token : {"->", ">=", "<="})
      if (rest.starts_with(token))
        return take(token.size());
    if (isNamePart(rest.front()) || StringRef("%^@#!").contains(rest.front()))
      return take(1 + rest.drop_front().take_while(isNamePart).size());
    return take(1);
  }

  size_t line() const { return lines; }

private:
  void skipBlank() {
    while (!rest.empty()) {
      if (rest.front() == '\n')
        ++lines;
      if (rest.starts_with("//"))
        rest = rest.drop_front(std::min(rest.find('\n'), rest.size()));
      else if (isSpace(rest.front()))
        rest = rest.drop_front();
      else
        return;
    }
  }

  StringRef take(size_t size) {
    StringRef token = rest.take_front(size);
    rest = rest.drop_front(token.size());
    lines += token.count('\n');
    return token;
  }

  StringRef rest;
  size_t lines;
};

bool opens(StringRef token) { return token.size() == 1 && StringRef("([{<").contains(token); }
bool closes(StringRef token) { return token.size() == 1 && StringRef(")]}>").contains(token); }

/// Follows the names of declarations: those of the header, the body and the regions inside are defined where they occur
/// first.
class Names {
public:
  /// Takes in a token, before which `depth` brackets are open. `following` stands after it. Returns what is wrong, or
  /// an empty string.
  std::string see(StringRef token, int depth, const Scanner &following) {
    StringRef before = std::exchange(previous, token);
    bool isDeclaration = token == "stretto.variant" || token == "\"stretto.variant\"";
    if (isDeclaration && place == Place::Body)
      return "holds a declaration inside of a declaration";
    if (isDeclaration) {
      place = Place::Header;
      scopes.assign(1, {});
      base = depth;
      return {};
    }
    if (place == Place::Outside)
      return {};
    if (token.starts_with("%"))
      return name(token, before, depth, following);
    if (place == Place::Header) {
      // Braces of attributes stand in other brackets or after their keyword.
      if (token == "{" && (before == "(" || (depth == base && before != "attributes")))
        place = Place::Body;
      return {};
    }
    // Regions of other operations may name their arguments in ways of their own.
    if (token.starts_with("scf.") && token != "scf.if" && token != "scf.yield")
      return "holds " + token.str() + ", which declarations do not have";
    if (token == "{") {
      scopes.emplace_back();
    } else if (token == "}") {
      scopes.pop_back();
      if (scopes.empty())
        place = Place::Outside;
    } else if (token.starts_with("^")) {
      if (before != "{")
        return "holds a block other than the first of a region, which declarations do not have";
      label = depth;
    } else if (token == ")" && depth - 1 == label) {
      label = -1;
    }
    return {};
  }

private:
  std::string name(StringRef token, StringRef before, int depth, const Scanner &following) {
    bool known = any_of(scopes, [&](const StringSet<> &scope) { return scope.contains(token); });
    bool isArgument = place == Place::Header || (label >= 0 && depth == label + 1 && (before == "(" || before == ","));
    if (isArgument || (before != "(" && isResult(following))) {
      bool isNew = scopes.back().insert(token).second;
      return isNew ? std::string() : ("defines " + token + " again").str();
    }
    return known ? std::string() : ("uses " + token + " before its definition").str();
  }

  /// Whether a name is one of those in front of an equals sign: `%a, %b:2 = ...`.
  static bool isResult(Scanner following) {
    while (true) {
      StringRef token = following.next();
      if (token == ":") {
        following.next(); // the number of results
        token = following.next();
      }
      if (token != ",")
        return token == "=";
      if (!following.next().starts_with("%"))
        return false;
    }
  }

  enum class Place { Outside, Header, Body } place = Place::Outside;
  StringRef previous;
  /// The names of each open region of a declaration.
  SmallVector<StringSet<>> scopes;
  /// The number of brackets around a declaration, and around the arguments of the block that is being read.
  int base = 0, label = -1;
};

} // namespace

Error stretto::checkSource(StringRef text, size_t firstLine) {
  constexpr int maximalDepth = 200, maximalOperators = 1000;
  int depth = 0, operators = 0;
  Scanner scanner(text, firstLine);
  Names names;
  while (true) {
    StringRef token = scanner.next();
    if (token.empty())
      return Error::success();
    auto refuse = [&](const Twine &what) { return createStringError("line " + Twine(scanner.line()) + " " + what); };
    if (std::string problem = names.see(token, depth, scanner); !problem.empty())
      return refuse(problem);
    if (opens(token))
      ++depth;
    else if (closes(token))
      depth = std::max(0, depth - 1);
    if (depth > maximalDepth)
      return refuse("is nested more than " + Twine(maximalDepth) + " deep");
    if (token == "+" || token == "-" || token == "*")
      ++operators;
    else if (opens(token) || closes(token) || token == "," || token == ":" || token == "=" || token.starts_with("%"))
      operators = 0;
    if (operators > maximalOperators)
      return refuse("is in an expression of more than " + Twine(maximalOperators) + " operators");
  }
}
