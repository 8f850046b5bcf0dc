//===- ChunkDialect.cpp - The chunk dialect -------------------------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace stretto::chunk;

ParseResult stretto::chunk::parseArgumentKind(AsmParser &parser, ArgumentKind &kind) {
  StringRef word;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<ArgumentKind> parsed = symbolizeArgumentKind(word);
  if (!parsed)
    return parser.emitError(location) << "'" << word << "' is no kind of argument";
  kind = *parsed;
  return success();
}

static ParseResult parseKind(AsmParser &parser, ArgumentKind &kind) { return parseArgumentKind(parser, kind); }
static void printKind(AsmPrinter &printer, ArgumentKind kind) { printer << stringifyArgumentKind(kind); }

#include "dialect/chunk/ChunkDialect.cpp.inc"
#include "dialect/chunk/ChunkEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "dialect/chunk/ChunkAttributes.cpp.inc"

void ChunkDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "dialect/chunk/ChunkAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "dialect/chunk/ChunkOps.cpp.inc"
      >();
}

Operation *ChunkDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location location) {
  return arith::ConstantOp::materialize(builder, value, type, location);
}
