//===- KernelOp.cpp - The kernel: syntax and verification -----------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace stretto::chunk;

SmallVector<BlockArgument> KernelOp::argumentsOf(ArgumentKind kind) {
  SmallVector<BlockArgument> result;
  for (BlockArgument argument : getBlock()->getArguments())
    if (getArgument(argument.getArgNumber()).getKind() == kind)
      result.push_back(argument);
  return result;
}

void KernelOp::getAsmBlockArgumentNames(Region &, OpAsmSetValueNameFn setName) {
  for (auto [argument, attribute] : llvm::zip(getBody().getArguments(), getArguments()))
    setName(argument, cast<ArgumentAttr>(attribute).getName());
}

void TableOp::getAsmBlockArgumentNames(Region &region, OpAsmSetValueNameFn setName) {
  static constexpr StringLiteral names[] = {"t", "h", "d"};
  for (auto [argument, name] : llvm::zip(region.getArguments(), names))
    setName(argument, name);
}

//===----------------------------------------------------------------------===//
// Syntax
//
//   chunk.kernel @name chunk 64 slices 2
//       (input %q: type group 4 sliced, parameter %w: type, table %t: type, state %S: type, valid %n: index)
//       -> (o: type sliced) attributes {...} { ... }
//===----------------------------------------------------------------------===//

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  int64_t chunk, slices = 1;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes) ||
      parser.parseKeyword("chunk") || parser.parseInteger(chunk))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("slices")) && parser.parseInteger(slices))
    return failure();
  result.addAttribute(getChunkAttrName(result.name), builder.getI64IntegerAttr(chunk));
  result.addAttribute(getSlicesAttrName(result.name), builder.getI64IntegerAttr(slices));

  SmallVector<OpAsmParser::Argument> arguments;
  SmallVector<Attribute> descriptions;
  auto parseArgument = [&]() -> ParseResult {
    ArgumentKind kind;
    int64_t group = 1;
    if (failed(parseArgumentKind(parser, kind)) || parser.parseArgument(arguments.emplace_back(), /*allowType=*/true))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("group")) && parser.parseInteger(group))
      return failure();
    bool sliced = succeeded(parser.parseOptionalKeyword("sliced"));
    StringAttr argumentName = builder.getStringAttr(arguments.back().ssaName.name.drop_front());
    descriptions.push_back(ArgumentAttr::get(builder.getContext(), kind, argumentName, group, sliced));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseArgument) || parser.parseArrow())
    return failure();
  result.addAttribute(getArgumentsAttrName(result.name), builder.getArrayAttr(descriptions));

  SmallVector<Attribute> outputs, types;
  SmallVector<int64_t> sliced;
  auto parseOutput = [&]() -> ParseResult {
    std::string output;
    Type type;
    if (parser.parseKeywordOrString(&output) || parser.parseColonType(type))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("sliced")))
      sliced.push_back(outputs.size());
    outputs.push_back(builder.getStringAttr(output));
    types.push_back(TypeAttr::get(type));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOutput))
    return failure();
  result.addAttribute(getOutputsAttrName(result.name), builder.getArrayAttr(outputs));
  result.addAttribute(getOutputTypesAttrName(result.name), builder.getArrayAttr(types));
  if (!sliced.empty())
    result.addAttribute(getSlicedOutputsAttrName(result.name), builder.getDenseI64ArrayAttr(sliced));

  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << " chunk " << getChunk();
  if (getSlices() != 1)
    printer << " slices " << getSlices();
  printer << "(";
  llvm::interleaveComma(getBody().getArguments(), printer, [&](BlockArgument argument) {
    ArgumentAttr description = getArgument(argument.getArgNumber());
    printer << stringifyArgumentKind(description.getKind()) << " ";
    printer.printRegionArgument(argument);
    if (description.getGroup() != 1)
      printer << " group " << description.getGroup();
    if (description.getSliced())
      printer << " sliced";
  });
  printer << ") -> (";
  ArrayRef<int64_t> sliced = getSlicedOutputs().value_or(ArrayRef<int64_t>());
  for (auto [index, output] : llvm::enumerate(llvm::zip(getOutputs(), getOutputTypes()))) {
    printer << (index ? ", " : "");
    printer.printKeywordOrString(cast<StringAttr>(std::get<0>(output)).getValue());
    printer << ": " << cast<TypeAttr>(std::get<1>(output)).getValue();
    if (llvm::is_contained(sliced, static_cast<int64_t>(index)))
      printer << " sliced";
  }
  printer << ")";
  printer.printOptionalAttrDictWithKeyword((*this)->getAttrs(),
                                           {getSymNameAttrName(), getChunkAttrName(), getSlicesAttrName(),
                                            getArgumentsAttrName(), getOutputsAttrName(), getOutputTypesAttrName(),
                                            getSlicedOutputsAttrName()});
  printer << " ";
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false);
}

ParseResult YieldOp::parse(OpAsmParser &parser, OperationState &result) {
  SmallVector<OpAsmParser::UnresolvedOperand> operands;
  SmallVector<Type> types;
  SMLoc location = parser.getCurrentLocation();
  if (parser.parseOperandList(operands))
    return failure();
  size_t outputs = operands.size();
  if (succeeded(parser.parseOptionalKeyword("next")) && parser.parseOperandList(operands))
    return failure();
  if (parser.parseOptionalAttrDict(result.attributes))
    return failure();
  if (!operands.empty() && parser.parseColonTypeList(types))
    return failure();
  result.getOrAddProperties<Properties>().operandSegmentSizes = {static_cast<int32_t>(outputs),
                                                                 static_cast<int32_t>(operands.size() - outputs)};
  return parser.resolveOperands(operands, types, location, result.operands);
}

void YieldOp::print(OpAsmPrinter &printer) {
  if (!getOutputs().empty())
    printer << " " << getOutputs();
  if (!getStates().empty())
    printer << " next " << getStates();
  printer.printOptionalAttrDict((*this)->getAttrs(), {getOperandSegmentSizesAttrName()});
  if (getNumOperands())
    printer << " : " << getOperandTypes();
}

//===----------------------------------------------------------------------===//
// Verification
//===----------------------------------------------------------------------===//

LogicalResult KernelOp::verifyRegions() {
  Block &block = *getBlock();
  if (block.getNumArguments() != getArguments().size() || block.getNumArguments() == 0 ||
      getArgument(block.getNumArguments() - 1).getKind() != ArgumentKind::Valid ||
      !block.getArguments().back().getType().isIndex())
    return emitOpError("[kernel_c1] the body's arguments do not match their descriptions, or the last is not the "
                       "number of valid tokens, of type index");
  for (BlockArgument argument : block.getArguments().drop_back()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    ArgumentAttr description = getArgument(argument.getArgNumber());
    if (!type || !type.hasStaticShape())
      return emitOpError("[kernel_c2] the argument '") << description.getName().getValue() << "' has type "
                                                       << argument.getType() << ", expected a tensor of static shape";
    if (description.getKind() == ArgumentKind::Input && (type.getRank() < 1 || type.getDimSize(0) != static_cast<int64_t>(getChunk())))
      return emitOpError("[kernel_c3] the input '") << description.getName().getValue() << "' has type " << type
                                                    << ", expected tiles of " << getChunk() << " tokens";
    if (description.getKind() == ArgumentKind::Valid || description.getGroup() < 1)
      return emitOpError("[kernel_c1] the argument '") << description.getName().getValue() << "' has a wrong description";
  }
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield)
    return emitOpError("[kernel_c4] the body does not end with a chunk.yield");
  SmallVector<Type> outputs, states;
  for (Attribute type : getOutputTypes())
    outputs.push_back(cast<TypeAttr>(type).getValue());
  for (BlockArgument state : argumentsOf(ArgumentKind::State))
    states.push_back(state.getType());
  if (!llvm::equal(yield.getOutputs().getTypes(), outputs) || !llvm::equal(yield.getStates().getTypes(), states) ||
      outputs.size() != getOutputs().size())
    return emitOpError("[kernel_c4] yields ")
           << yield.getOutputs().getTypes() << " next " << yield.getStates().getTypes() << ", expected "
           << TypeRange(outputs) << " next " << TypeRange(states);
  return success();
}

LogicalResult TableOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 3 || !llvm::all_of(block.getArgumentTypes(), [](Type type) { return type.isF64(); }) ||
      !isa<ResultOp>(block.getTerminator()))
    return emitOpError("[table_c1] expected a body with three arguments of type f64 that ends with chunk.result");
  return success();
}
