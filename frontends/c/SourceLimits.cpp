//===- SourceLimits.cpp - What text the parser can bear -------------------===//

#include "frontends/c/SourceLimits.h"
#include "llvm/Support/FormatVariadic.h"

using namespace llvm;

Error stretto::checkSourceLimits(StringRef text) {
  constexpr int maximalDepth = 200, maximalOperators = 1000;
  int depth = 0, operators = 0;
  size_t line = 1;
  for (size_t at = 0; at < text.size(); ++at) {
    switch (text[at]) {
    case '\n':
      ++line;
      break;
    case '"': // a string ends on its line
      for (++at; at < text.size() && text[at] != '"' && text[at] != '\n'; ++at)
        if (text[at] == '\\')
          ++at;
      if (at < text.size() && text[at] == '\n')
        ++line;
      break;
    case '/': // a comment, or a division
      if (text.substr(at).starts_with("//"))
        at = std::min(text.find('\n', at), text.size()) - 1;
      break;
    case '<':
    case '>':
      if (text.substr(at + 1).starts_with("=")) // a comparison, not a bracket
        break;
      [[fallthrough]];
    case '(':
    case '[':
    case '{':
    case ')':
    case ']':
    case '}':
      depth = StringRef("([{<").contains(text[at]) ? depth + 1 : std::max(0, depth - 1);
      [[fallthrough]];
    case ',':
    case ':':
    case '=':
    case '%':
      operators = 0;
      break;
    case '-':
      if (text.substr(at + 1).starts_with(">")) { // an arrow
        ++at;
        break;
      }
      [[fallthrough]];
    case '+':
    case '*':
      ++operators;
      break;
    default:
      break;
    }
    if (depth > maximalDepth)
      return createStringError(formatv("line {0} is nested more than {1} deep", line, maximalDepth));
    if (operators > maximalOperators)
      return createStringError(
          formatv("line {0} is in an expression of more than {1} operators", line, maximalOperators));
  }
  return Error::success();
}
