//===- KernelOp.cpp - The kernel: syntax and verification -----------------===//

#include "dialect/chunk/ChunkDialect.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSet.h"

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

int64_t stretto::chunk::columnsOfState(Type state) {
  auto type = dyn_cast<RankedTensorType>(state);
  return type && type.getRank() == 2 ? type.getDimSize(1) : 1;
}

/// Whether a state is all of the entry of its own name.
static bool isWholeEntry(ArgumentAttr state, Type type) {
  return state.getEntry() == state.getName() && state.getColumn() == 0 && state.getRows() == 0 &&
         state.getColumns() == columnsOfState(type);
}

//===----------------------------------------------------------------------===//
// Syntax
//
//   chunk.kernel @name chunk 64 reverse slices 2 segments apart recorded earlier between @other
//       (input %q: type group 4 sliced, parameter %w: type of "parameter" column 0 columns 128, table %t: type,
//       checkpoint %R: type
//        state %S: type of "entry" column 64 columns 65 row 17 rows 273 lowest, valid %n: index)
//       -> (o: type sliced, d_k: type group 4 partial, R: type checkpoint) attributes {...} { ... }
//===----------------------------------------------------------------------===//

ParseResult KernelOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  int64_t chunk, slices = 1;
  if (parser.parseSymbolName(name, SymbolTable::getSymbolAttrName(), result.attributes) ||
      parser.parseKeyword("chunk") || parser.parseInteger(chunk))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("reverse")))
    result.addAttribute(getReverseAttrName(result.name), builder.getUnitAttr());
  if (succeeded(parser.parseOptionalKeyword("slices")) && parser.parseInteger(slices))
    return failure();
  if (succeeded(parser.parseOptionalKeyword("segments"))) {
    FailureOr<Segments> segments = FieldParser<Segments>::parse(parser);
    if (failed(segments))
      return failure();
    result.addAttribute(getSegmentsAttrName(result.name), SegmentsAttr::get(builder.getContext(), *segments));
  }
  if (succeeded(parser.parseOptionalKeyword("recorded")))
    result.addAttribute(getRecordedAttrName(result.name), builder.getUnitAttr());
  if (succeeded(parser.parseOptionalKeyword("earlier")))
    result.addAttribute(getEarlierAttrName(result.name), builder.getUnitAttr());
  if (succeeded(parser.parseOptionalKeyword("between"))) {
    StringAttr other;
    if (parser.parseSymbolName(other))
      return failure();
    result.addAttribute(getBetweenAttrName(result.name), FlatSymbolRefAttr::get(other));
  }
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
    StringAttr entry;
    int64_t column = 0, columns = 0, row = 0, rows = 0;
    bool lowest = false, partial = false;
    auto parseColumns = [&]() -> ParseResult {
      if (failed(parser.parseOptionalKeyword("of")))
        return success();
      return failure(parser.parseAttribute(entry) || parser.parseKeyword("column") || parser.parseInteger(column) ||
                     parser.parseKeyword("columns") || parser.parseInteger(columns));
    };
    if (kind == ArgumentKind::Parameter) {
      if (parseColumns())
        return failure();
    } else if (kind == ArgumentKind::State) {
      entry = argumentName;
      columns = columnsOfState(arguments.back().type);
      if (parseColumns())
        return failure();
      if (succeeded(parser.parseOptionalKeyword("row")) &&
          (parser.parseInteger(row) || parser.parseKeyword("rows") || parser.parseInteger(rows)))
        return failure();
      lowest = succeeded(parser.parseOptionalKeyword("lowest"));
      partial = succeeded(parser.parseOptionalKeyword("partial"));
    } else if (kind == ArgumentKind::Window && (parser.parseKeyword("of") || parser.parseAttribute(entry))) {
      return failure();
    }
    descriptions.push_back(ArgumentAttr::get(builder.getContext(), kind, argumentName, group, sliced, entry, column,
                                             columns, lowest, partial, row, rows));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseArgument) || parser.parseArrow())
    return failure();
  result.addAttribute(getArgumentsAttrName(result.name), builder.getArrayAttr(descriptions));

  SmallVector<Attribute> outputs;
  auto parseOutput = [&]() -> ParseResult {
    std::string output;
    RankedTensorType type;
    int64_t group = 1;
    if (parser.parseKeywordOrString(&output) || parser.parseColonType(type))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("group")) && parser.parseInteger(group))
      return failure();
    bool sliced = succeeded(parser.parseOptionalKeyword("sliced"));
    bool checkpoint = succeeded(parser.parseOptionalKeyword("checkpoint"));
    bool partial = succeeded(parser.parseOptionalKeyword("partial"));
    outputs.push_back(
        OutputAttr::get(builder.getContext(), builder.getStringAttr(output), type, group, sliced, checkpoint, partial));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Paren, parseOutput))
    return failure();
  result.addAttribute(getOutputsAttrName(result.name), builder.getArrayAttr(outputs));

  if (parser.parseOptionalAttrDictWithKeyword(result.attributes))
    return failure();
  return parser.parseRegion(*result.addRegion(), arguments);
}

void KernelOp::print(OpAsmPrinter &printer) {
  printer << " ";
  printer.printSymbolName(getSymName());
  printer << " chunk " << getChunk();
  if (getReverse())
    printer << " reverse";
  if (getSlices() != 1)
    printer << " slices " << getSlices();
  if (std::optional<Segments> segments = getSegments())
    printer << " segments " << stringifySegments(*segments);
  if (getRecorded())
    printer << " recorded";
  if (getEarlier())
    printer << " earlier";
  if (std::optional<StringRef> other = getBetween()) {
    printer << " between ";
    printer.printSymbolName(*other);
  }
  printer << "(";
  llvm::interleaveComma(getBody().getArguments(), printer, [&](BlockArgument argument) {
    ArgumentAttr description = getArgument(argument.getArgNumber());
    printer << stringifyArgumentKind(description.getKind()) << " ";
    printer.printRegionArgument(argument);
    if (description.getGroup() != 1)
      printer << " group " << description.getGroup();
    if (description.getSliced())
      printer << " sliced";
    bool isParameter = description.getKind() == ArgumentKind::Parameter && description.getEntry();
    if (isParameter || (description.getKind() == ArgumentKind::State && !isWholeEntry(description, argument.getType())))
      printer << " of " << description.getEntry() << " column " << description.getColumn() << " columns "
              << description.getColumns();
    if (description.getRows())
      printer << " row " << description.getRow() << " rows " << description.getRows();
    if (description.getLowest())
      printer << " lowest";
    if (description.getPartial())
      printer << " partial";
    if (description.getKind() == ArgumentKind::Window)
      printer << " of " << description.getEntry();
  });
  printer << ") -> (";
  llvm::interleaveComma(getOutputs().getAsRange<OutputAttr>(), printer, [&](OutputAttr output) {
    printer.printKeywordOrString(output.getName());
    printer << ": " << output.getType();
    if (output.getGroup() != 1)
      printer << " group " << output.getGroup();
    if (output.getSliced())
      printer << " sliced";
    if (output.getCheckpoint())
      printer << " checkpoint";
    if (output.getPartial())
      printer << " partial";
  });
  printer << ")";
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getSymNameAttrName(), getChunkAttrName(), getReverseAttrName(), getSlicesAttrName(),
                            getSegmentsAttrName(), getBetweenAttrName(), getRecordedAttrName(), getEarlierAttrName(),
                            getArgumentsAttrName(), getOutputsAttrName()});
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

/// A window has rows of an input.
static LogicalResult verifyWindow(KernelOp kernel, ArgumentAttr window, RankedTensorType type) {
  for (BlockArgument input : kernel.argumentsOf(ArgumentKind::Input)) {
    auto tile = cast<RankedTensorType>(input.getType());
    int64_t width = tile.getRank() == 2 ? tile.getDimSize(1) : 1;
    if (kernel.getArgument(input.getArgNumber()).getName() == window.getEntry() && type.getRank() == 2 &&
        type.getDimSize(1) == width && type.getElementType() == tile.getElementType())
      return success();
  }
  return kernel.emitOpError("[kernel_c10] the window ")
         << window.getName() << " has type " << type << ", expected rows of an input " << window.getEntry();
}

/// A launch provides what a segment begins with: nothing else may depend on where it begins.
static LogicalResult verifySegments(KernelOp kernel) {
  if (!kernel.takesSegments(Segments::Turns))
    return success();
  auto refuse = [&](const Twine &what) {
    return kernel.emitOpError("[kernel_c12] with segments turns the kernel ") << what;
  };
  for (auto argument : kernel.getArguments().getAsRange<ArgumentAttr>()) {
    ArgumentKind kind = argument.getKind();
    bool isOfTurns = kind == ArgumentKind::State || kind == ArgumentKind::Checkpoint || kind == ArgumentKind::Valid;
    if (!isOfTurns)
      return refuse("has the " + stringifyArgumentKind(kind) + " '" + argument.getName().getValue() + "'");
  }
  for (auto output : kernel.getOutputs().getAsRange<OutputAttr>())
    if (!output.getCheckpoint())
      return refuse("has the output '" + output.getName().getValue() + "', which is no checkpoint");
  return success();
}

/// What is wrong with one argument is said about its name.
static LogicalResult verifyArgument(KernelOp kernel, BlockArgument argument) {
  ArgumentAttr description = kernel.getArgument(argument.getArgNumber());
  StringRef name = description.getName().getValue();
  bool isLast = argument.getArgNumber() + 1 == kernel.getBlock()->getNumArguments();
  if (isLast != (description.getKind() == ArgumentKind::Valid))
    return kernel.emitOpError("[kernel_c1] the argument '")
           << name << "' is " << (isLast ? "the last but not" : "not the last but") << " the number of valid tokens";
  if (isLast) {
    if (!argument.getType().isIndex())
      return kernel.emitOpError("[kernel_c1] the number of valid tokens has type ")
             << argument.getType() << ", expected index";
    return success();
  }
  auto type = dyn_cast<RankedTensorType>(argument.getType());
  if (!type || !type.hasStaticShape() || !isa<FloatType>(type.getElementType()))
    return kernel.emitOpError("[kernel_c2] the argument '")
           << name << "' has type " << argument.getType() << ", expected a tensor of real numbers of static shape";
  int64_t tokens = type.getRank() ? type.getDimSize(0) : 0;
  if (description.getKind() == ArgumentKind::Input && tokens != static_cast<int64_t>(kernel.getChunk()))
    return kernel.emitOpError("[kernel_c3] the input '")
           << name << "' has type " << type << ", expected tiles of " << kernel.getChunk() << " tokens";
  if (description.getGroup() < 1)
    return kernel.emitOpError("[kernel_c5] the argument '")
           << name << "' is shared by " << description.getGroup() << " heads, expected at least 1";
  if (description.getKind() == ArgumentKind::Window)
    return verifyWindow(kernel, description, type);
  bool isState = description.getKind() == ArgumentKind::State;
  if (description.getLowest() && !isState)
    return kernel.emitOpError("[kernel_c6] the argument '") << name << "' is no state, but lowest";
  if (description.getPartial() && (!isState || description.getSliced() || description.getGroup() != 1))
    return kernel.emitOpError("[kernel_c11] the argument '")
           << name << "' is partial, expected of a state alone, of each head's own, whose columns are not sliced";
  bool isParameter = description.getKind() == ArgumentKind::Parameter;
  if (isState != (description.getEntry() != nullptr) && !isParameter)
    return kernel.emitOpError("[kernel_c6] the argument '")
           << name << "' is " << (isState ? "a state of no entry" : "no state, but of an entry");
  int64_t column = description.getColumn(), width = columnsOfState(type), columns = description.getColumns();
  if (isState && (type.getRank() < 1 || type.getRank() > 2 || column < 0 || column > columns - width))
    return kernel.emitOpError("[kernel_c6] the state '")
           << name << "' has type " << type << " and begins at column " << column << " of the " << columns
           << " columns of the entry " << description.getEntry();
  int64_t row = description.getRow(), rows = description.getRows();
  if ((row || rows) && (!isState || row < 0 || rows < row || type.getDimSize(0) > rows - row))
    return kernel.emitOpError("[kernel_c6] the argument '")
           << name << "' has type " << type << " and begins at row " << row << " of the " << rows
           << " rows of an entry, expected a state that the entry has";
  if (isParameter && description.getEntry() && (type.getRank() != 2 || column < 0 || column > columns - width))
    return kernel.emitOpError("[kernel_c6] the parameter '")
           << name << "' has type " << type << " and begins at column " << column << " of the " << columns
           << " columns of " << description.getEntry();
  return success();
}

/// What finds the states between the checkpoints of a walk back has nothing that this has not.
static LogicalResult verifyBetween(KernelOp kernel, KernelOp other) {
  auto refuse = [&](const Twine &what) {
    return kernel.emitOpError("[kernel_c13] between its chunks stands ") << what;
  };
  StringRef name = *kernel.getBetween();
  if (!other)
    return refuse("'" + name + "', which is no chunk.kernel");
  if (!kernel.getReverse() || other.getReverse() || other.getChunk() != kernel.getChunk() ||
      other.getSlices() != kernel.getSlices())
    return refuse("'" + name + "' of " + Twine(other.getChunk()) + " tokens and " + Twine(other.getSlices()) +
                  " slices that walks " + (other.getReverse() ? "back" : "forward") + ", expected " +
                  Twine(kernel.getChunk()) + " and " + Twine(kernel.getSlices()) + ", of a walk forward for one back");
  auto has = [&](ArgumentKind kind, ArgumentAttr argument) {
    return llvm::any_of(kernel.argumentsOf(kind), [&](BlockArgument own) {
      return kernel.getArgument(own.getArgNumber()).getName() == argument.getName();
    });
  };
  for (auto argument : other.getArguments().getAsRange<ArgumentAttr>()) {
    ArgumentKind kind = argument.getKind();
    bool isKnown = kind == ArgumentKind::Valid || (kind == ArgumentKind::Input && has(kind, argument)) ||
                   (kind == ArgumentKind::State && has(ArgumentKind::Checkpoint, argument));
    if (!isKnown)
      return refuse("'" + name + "' with the " + stringifyArgumentKind(kind) + " '" + argument.getName().getValue() +
                    "', which it has not");
  }
  for (BlockArgument checkpoint : kernel.argumentsOf(ArgumentKind::Checkpoint)) {
    StringAttr ofState = kernel.getArgument(checkpoint.getArgNumber()).getName();
    bool isCarried = llvm::any_of(other.argumentsOf(ArgumentKind::State), [&](BlockArgument state) {
      return other.getArgument(state.getArgNumber()).getName() == ofState;
    });
    if (!isCarried)
      return refuse("'" + name + "', which does not carry '" + ofState.getValue() + "'");
  }
  return success();
}

LogicalResult KernelOp::verifySymbolUses(SymbolTableCollection &symbols) {
  if (FlatSymbolRefAttr other = getBetweenAttr())
    if (failed(verifyBetween(*this, symbols.lookupNearestSymbolFrom<KernelOp>(*this, other.getAttr()))))
      return failure();
  for (BlockArgument table : argumentsOf(ArgumentKind::Table)) {
    StringAttr name = getArgument(table.getArgNumber()).getName();
    if (!symbols.lookupNearestSymbolFrom<TableOp>(*this, name))
      return emitOpError("[kernel_c7] the module has no chunk.table @") << name.getValue();
  }
  return success();
}

LogicalResult KernelOp::verifyRegions() {
  Block &block = *getBlock();
  if (block.getNumArguments() != getArguments().size() || block.getNumArguments() == 0)
    return emitOpError("[kernel_c1] the body has ")
           << block.getNumArguments() << " arguments and " << getArguments().size() << " descriptions of them";
  if (static_cast<int64_t>(getChunk()) < 1 || static_cast<int64_t>(getSlices()) < 1)
    return emitOpError("[kernel_c8] has chunks of ")
           << getChunk() << " tokens and " << getSlices() << " slices, expected at least 1 of each";
  if (failed(verifySegments(*this)))
    return failure();
  if (getEarlier() && !argumentsOf(ArgumentKind::State).empty())
    return emitOpError("[kernel_c14] leaves earlier results and carries ")
           << argumentsOf(ArgumentKind::State).size() << " states, expected none";
  llvm::StringSet<> names;
  for (BlockArgument argument : block.getArguments()) {
    if (failed(verifyArgument(*this, argument)))
      return failure();
    StringAttr name = getArgument(argument.getArgNumber()).getName();
    if (!names.insert(name.getValue()).second)
      return emitOpError("[kernel_c9] two arguments have the name ") << name;
  }
  auto yield = dyn_cast<YieldOp>(block.getTerminator());
  if (!yield)
    return emitOpError("[kernel_c4] the body does not end with a chunk.yield");
  SmallVector<Type> outputs, states;
  for (auto output : getOutputs().getAsRange<OutputAttr>())
    outputs.push_back(output.getType());
  for (BlockArgument state : argumentsOf(ArgumentKind::State))
    states.push_back(state.getType());
  if (!llvm::equal(yield.getOutputs().getTypes(), outputs) || !llvm::equal(yield.getStates().getTypes(), states))
    return emitOpError("[kernel_c4] yields ")
           << yield.getOutputs().getTypes() << " next " << yield.getStates().getTypes() << ", expected "
           << TypeRange(outputs) << " next " << TypeRange(states);
  for (auto output : getOutputs().getAsRange<OutputAttr>()) {
    RankedTensorType type = output.getType();
    if (output.getCheckpoint() ? type.getRank() < 1 || type.getRank() > 2 || !type.hasStaticShape()
                               : type.getRank() < 1 || type.getDimSize(0) != static_cast<int64_t>(getChunk()))
      return emitOpError("[kernel_c3] the output ")
             << output.getName() << " has type " << type << ", expected "
             << (output.getCheckpoint() ? "a matrix or a vector"
                                        : "tiles of " + std::to_string(getChunk()) + " tokens");
    if (output.getPartial() && (output.getSliced() || output.getCheckpoint()))
      return emitOpError("[kernel_c11] the output ")
             << output.getName() << " is partial and " << (output.getSliced() ? "sliced" : "a checkpoint");
    if (output.getGroup() < 1)
      return emitOpError("[kernel_c5] the output ")
             << output.getName() << " is shared by " << output.getGroup() << " heads, expected at least 1";
  }
  return success();
}

bool TableOp::isPosition() {
  Block &block = getBody().front();
  return isUnbounded() && block.getTerminator()->getOperand(0) == block.getArgument(0);
}

LogicalResult TableOp::verifyRegions() {
  Block &block = getBody().front();
  if (block.getNumArguments() != 3 || !llvm::all_of(block.getArgumentTypes(), [](Type type) { return type.isF64(); }) ||
      !isa<ResultOp>(block.getTerminator()))
    return emitOpError("[table_c1] expected a body with three arguments of type f64 that ends with chunk.result");
  return success();
}
