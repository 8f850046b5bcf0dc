//===- LookbackOp.cpp - Look-backs: syntax and verification ---------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace stretto::chunk;

ContributeOp LookbackOp::getContribution() { return cast<ContributeOp>(getBlock()->getTerminator()); }

int64_t LookbackOp::getPastTokens() {
  if (getBlock()->getNumArguments())
    return cast<RankedTensorType>(getBlock()->getArgumentTypes().front()).getDimSize(0);
  auto first = cast<RankedTensorType>(getContribution().getGiven().front().getType());
  return getFold() == Fold::Outer ? first.getDimSize(0) : first.getDimSize(1);
}

std::optional<int64_t> LookbackOp::getLag() {
  bool isOne = getFold() == Fold::Outer && getMet() && getMet() == getWholly() && getMet()->front() == getMet()->back();
  return isOne && getMet()->front() > 0 ? std::optional(getMet()->front()) : std::nullopt;
}

void LookbackOp::getAsmBlockArgumentNames(Region &, OpAsmSetValueNameFn setName) {
  auto kernel = (*this)->getParentOfType<KernelOp>();
  for (auto [past, argument] : llvm::zip(getPast(), getBody().getArguments()))
    if (auto source = dyn_cast<BlockArgument>(past); source && source.getOwner() == kernel.getBlock())
      setName(argument, (kernel.getArgument(source.getArgNumber()).getName().getValue() + "_j").str());
}

//===----------------------------------------------------------------------===//
// Syntax
//
//   %m, %l, %acc = chunk.lookback softmax from %first to %last to_end past(%k_j = %k, %v_j = %v) attributes {...} { ...
//   }
//       : types of the results
//   %y = chunk.lookback sum ahead to_end past(...) { ... } : types of the results
//
// The bounds have one type; what is past has the type of its argument.
//===----------------------------------------------------------------------===//

ParseResult LookbackOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringRef word;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseKeyword(&word))
    return failure();
  std::optional<Fold> fold = symbolizeFold(word);
  if (!fold)
    return parser.emitError(location) << "'" << word << "' is no fold";
  result.addAttribute(getFoldAttrName(result.name), FoldAttr::get(builder.getContext(), *fold));

  SmallVector<OpAsmParser::UnresolvedOperand, 2> bounds;
  Type boundType;
  bool isAhead = succeeded(parser.parseOptionalKeyword("ahead"));
  if (isAhead)
    result.addAttribute(getAheadAttrName(result.name), builder.getUnitAttr());
  else if (parser.parseKeyword("from") || parser.parseOperand(bounds.emplace_back()))
    return failure();
  if (!isAhead && succeeded(parser.parseOptionalKeyword("to")) && parser.parseOperand(bounds.emplace_back()))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("to_end")))
    result.addAttribute(getToEndAttrName(result.name), builder.getUnitAttr());
  if (!isAhead && (parser.parseColonType(boundType) || parser.resolveOperands(bounds, boundType, result.operands)))
    return failure();

  SmallVector<OpAsmParser::Argument> arguments;
  auto parsePast = [&]() -> ParseResult {
    OpAsmParser::UnresolvedOperand source;
    OpAsmParser::Argument &argument = arguments.emplace_back();
    Type type;
    if (parser.parseArgument(argument) || parser.parseEqual() || parser.parseOperand(source) ||
        parser.parseColonType(type) || parser.resolveOperand(source, type, result.operands))
      return failure();
    argument.type = type;
    return failure(succeeded(parser.parseOptionalKeyword("to")) && parser.parseType(argument.type));
  };
  if (succeeded(parser.parseOptionalKeyword("past")) &&
      parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parsePast))
    return failure();
  result.getOrAddProperties<Properties>().operandSegmentSizes = {static_cast<int32_t>(!bounds.empty()),
                                                                 static_cast<int32_t>(bounds.size() > 1),
                                                                 static_cast<int32_t>(arguments.size())};
  if (parser.parseOptionalAttrDictWithKeyword(result.attributes) || parser.parseRegion(*result.addRegion(), arguments))
    return failure();
  return parser.parseColonTypeList(result.types);
}

void LookbackOp::print(OpAsmPrinter &printer) {
  printer << " " << stringifyFold(getFold());
  if (getAhead())
    printer << " ahead";
  if (getFirst())
    printer << " from " << getFirst();
  if (getLast())
    printer << " to " << getLast();
  if (getToEnd())
    printer << " to_end";
  if (getFirst())
    printer << " : " << getFirst().getType();
  if (!getPast().empty()) {
    printer << " past(";
    llvm::interleaveComma(llvm::zip(getBody().getArguments(), getPast()), printer, [&](auto pair) {
      auto [argument, source] = pair;
      printer << argument << " = " << source << " : " << source.getType();
      if (argument.getType() != source.getType())
        printer << " to " << argument.getType();
    });
    printer << ")";
  }
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(), {getOperandSegmentSizesAttrName(), getFoldAttrName(),
                                                                 getAheadAttrName(), getToEndAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
  printer << " : " << getResultTypes();
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

static ArrayRef<int64_t> shapeOf(Value value) { return cast<ShapedType>(value.getType()).getShape(); }

/// What is past can be loaded for any chunk.
static LogicalResult verifyPast(LookbackOp op, KernelOp kernel, Value past, Type argument, int64_t pastTokens) {
  auto source = dyn_cast<BlockArgument>(past);
  if (!source || source.getOwner() != kernel.getBlock())
    return op.emitOpError("[lookback_c2] what is past is no argument of the kernel");
  ArgumentAttr description = kernel.getArgument(source.getArgNumber());
  if (description.getKind() == ArgumentKind::Table) {
    auto table = SymbolTable::lookupNearestSymbolFrom<TableOp>(kernel, description.getName());
    if (table && !table.getVarying() && !table.getPeriod())
      return op.emitOpError("[lookback_c2] the table ") << description.getName() << " does not vary in time";
  } else if (description.getKind() != ArgumentKind::Input) {
    return op.emitOpError("[lookback_c2] what is past, ")
           << description.getName() << ", is neither an input nor a table of the kernel";
  }
  auto type = cast<RankedTensorType>(past.getType());
  SmallVector<int64_t, 2> shape(type.getShape());
  shape.front() = pastTokens;
  if (type.clone(shape) != argument)
    return op.emitOpError("[lookback_c2] the body's argument for ")
           << description.getName() << " has type " << argument << ", expected " << type.clone(shape);
  return success();
}

/// The shapes of what a fold of C tokens with P takes, the channels of rows wherever they are free, and of what it
/// gives.
static LogicalResult verifyFold(LookbackOp op, int64_t tokens, int64_t pastTokens) {
  OperandRange given = op.getContribution().getGiven();
  auto isPairs = [&](Value value) { return shapeOf(value) == ArrayRef<int64_t>{tokens, pastTokens}; };
  auto isRows = [&](Value value) { return shapeOf(value).size() == 2 && shapeOf(value)[0] == pastTokens; };
  auto width = [&](unsigned index) { return shapeOf(given[index])[1]; };
  bool fits = false;
  SmallVector<SmallVector<int64_t, 2>> expected;
  switch (op.getFold()) {
  case Fold::Sum:
    fits = !given.empty() && given.size() % 2 == 0;
    for (unsigned index = 0; fits && index < given.size(); index += 2) {
      fits = isPairs(given[index]) && isRows(given[index + 1]);
      if (fits)
        expected.push_back({tokens, width(index + 1)});
    }
    break;
  case Fold::Softmax:
    fits = given.size() == 2 && isPairs(given[0]) && isRows(given[1]);
    if (fits)
      expected = {{tokens}, {tokens}, {tokens, width(1)}};
    if (fits && op.getNumResults() == 4)
      expected.push_back({tokens});
    break;
  case Fold::Divergence:
    fits = given.size() == 2 && isPairs(given[0]) && isPairs(given[1]);
    expected = {{tokens}, {tokens}, {tokens}};
    break;
  case Fold::Outer:
    fits = !given.empty() && given.size() % 2 == 0 && llvm::all_of(given, isRows);
    for (unsigned index = 0; fits && index < given.size(); index += 2)
      expected.push_back({width(index), width(index + 1)});
    break;
  }
  if (!fits)
    return op.emitOpError("[lookback_c3] a fold of kind ")
           << stringifyFold(op.getFold()) << " is given " << given.getTypes() << " for chunks of " << tokens
           << " tokens, and tiles of " << pastTokens;
  Type element = getElementTypeOrSelf(given.front());
  SmallVector<Type> types;
  for (ArrayRef<int64_t> shape : expected)
    types.push_back(RankedTensorType::get(shape, element));
  bool oneType = llvm::all_of(given, [&](Value value) { return getElementTypeOrSelf(value) == element; });
  if (!oneType || !llvm::equal(op.getResultTypes(), types))
    return op.emitOpError("[lookback_c4] makes ")
           << op.getResultTypes() << " of " << given.getTypes() << ", expected " << TypeRange(types);
  return success();
}

LogicalResult LookbackOp::verifyRegions() {
  auto kernel = (*this)->getParentOfType<KernelOp>();
  if (!kernel || (*this)->getParentOp() != kernel)
    return emitOpError("[lookback_c2] stands in no kernel");
  auto tokens = static_cast<int64_t>(kernel.getChunk());
  if (!isa<ContributeOp>(getBlock()->getTerminator()))
    return emitOpError("[lookback_c3] the body does not end with chunk.contribute");
  ContributeOp contribution = getContribution();
  if (contribution.getGiven().empty() || shapeOf(contribution.getGiven().front()).size() != 2)
    return emitOpError("[lookback_c3] the body does not end with pairs or rows");
  int64_t pastTokens = getPastTokens();
  auto verifyBounds = [&](ValueRange bounds, int64_t expected) -> LogicalResult {
    for (Value bound : bounds)
      if (bound && shapeOf(bound) != ArrayRef<int64_t>{expected})
        return emitOpError("[lookback_c1] a bound has type ")
               << bound.getType() << ", expected a number for each of " << expected << " tokens";
    return success();
  };
  if (failed(verifyBounds({getFirst(), getLast()}, tokens)) ||
      failed(verifyBounds({contribution.getFirst(), contribution.getLast()}, pastTokens)))
    return failure();
  bool fromBody = contribution.getFirst() != nullptr, endsInBody = contribution.getLast() != nullptr;
  if (fromBody != getAhead() || (endsInBody && !getAhead()) || (getFirst() != nullptr) == getAhead() ||
      (getAhead() && getFold() != Fold::Sum && getFold() != Fold::Outer))
    return emitOpError("[lookback_c7] is a fold of kind ")
           << stringifyFold(getFold()) << (getAhead() ? " ahead" : "") << " whose range is given by "
           << (getFirst() ? "the operation"
               : fromBody ? "the body"
                          : "nothing")
           << ", expected the body for a sum or outer ahead and the operation for others";
  for (std::optional<ArrayRef<int64_t>> distances : {getMet(), getWholly()})
    if (distances && (distances->size() != 2 || distances->back() < 0 || distances->front() < distances->back()))
      return emitOpError("[lookback_c8] meets chunks at the distances ")
             << *distances << ", expected two, not below 0, the farther one first";
  if (getLast() && getToEnd())
    return emitOpError("[lookback_c5] ends both at a position and at the end of the sequence");
  if (getPast().size() != getBlock()->getNumArguments())
    return emitOpError("[lookback_c2] the body has ")
           << getBlock()->getNumArguments() << " arguments, expected " << getPast().size();
  for (auto [past, type] : llvm::zip_equal(getPast(), getBlock()->getArgumentTypes()))
    if (failed(verifyPast(*this, kernel, past, type, pastTokens)))
      return failure();
  for (Operation &op : getBlock()->without_terminator()) {
    bool reachesAcross = isa<TailOp, ConvOp, ConvTapsOp, DelayOp, MaskOp, AccumulateOp, DecayDotOp, DecayFromStartOp,
                             DecayToEndOp, DecayStateOp, DecayMatrixOp>(op);
    if (op.getNumResults() != 1 || op.getNumRegions() != 0 || reachesAcross)
      return op.emitOpError("[lookback_c6] stands in the body of a look-back");
  }
  return verifyFold(*this, tokens, pastTokens);
}
