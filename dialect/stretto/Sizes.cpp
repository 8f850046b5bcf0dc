//===- Sizes.cpp - Sizes, head counts and options of a variant ------------===//
//
// Messages carry the id of the refusal they are, R1 (rank, batch, time, heads), R2 (head sets that do not divide) or
// R3 (widths).
//
//===----------------------------------------------------------------------===//

#include "dialect/stretto/Sizes.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;
using namespace stretto;

static std::string listed(const std::set<std::string> &names) {
  return names.empty() ? "none" : llvm::join(names, ", ");
}

//===----------------------------------------------------------------------===//
// What a variant names
//===----------------------------------------------------------------------===//

/// Calls `visit` with every type of the declaration.
static void forEachType(VariantOp variant, function_ref<void(Type)> visit) {
  for (BlockArgument argument : variant.getBody().getArguments())
    visit(argument.getType());
  variant.getBody().walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      visit(type);
  });
}

static ArrayRef<StringAttr> axesOfParam(Type type) {
  return cast<ParamAttr>(cast<RankedTensorType>(type).getEncoding()).getAxes();
}

void stretto::forEachAxis(Type type, function_ref<void(StringRef, int64_t)> visit) {
  if (auto state = dyn_cast<StateType>(type)) {
    visit(state.getFirst(), state.getFirstSize());
    visit(state.getSecond(), state.getSecondSize());
  } else if (isRow(type) && !axisOf(type).empty()) {
    visit(axisOf(type), cast<RankedTensorType>(type).getDimSize(0));
  } else if (isParam(type)) {
    for (auto [axis, size] : llvm::zip_equal(axesOfParam(type), cast<RankedTensorType>(type).getShape()))
      visit(axis.getValue(), size);
  }
}

std::set<std::string> stretto::namedHeadSets(VariantOp variant) {
  std::set<std::string> sets;
  forEachType(variant, [&](Type type) {
    if (!isRow(type) && !isParam(type) && !isa<StateType>(type))
      return;
    for (StringRef set : llvm::split(headsOf(type), '|'))
      if (set != allHeads)
        sets.insert(set.str());
  });
  return sets;
}

static std::set<std::string> namedSizes(VariantOp variant) {
  std::set<std::string> names;
  auto insert = [&](const Extent &extent) {
    for (const std::string &name : extent.names())
      names.insert(name);
  };
  forEachType(variant, [&](Type type) { forEachAxis(type, [&](StringRef axis, int64_t) { insert(extentOf(axis)); }); });
  variant.getBody().walk([&](SizeOp size) { insert(extentOf(size.getExtent())); });
  for (NamedAttribute axis : variant.getAxes())
    names.insert(axis.getName().str());
  return names;
}

//===----------------------------------------------------------------------===//
// Options
//===----------------------------------------------------------------------===//

/// What the caller wrote, read as the kind of value that the declared default is.
static FailureOr<Attribute> readOption(VariantOp variant, StringRef name, StringRef text, Attribute declared) {
  auto refuse = [&](const Twine &expected) {
    return variant.emitError() << "the option '" << name << "' is '" << text << "', expected " << expected;
  };
  if (isa<BoolAttr>(declared)) {
    if (text != "true" && text != "false")
      return refuse("true or false");
    return Attribute(BoolAttr::get(variant.getContext(), text == "true"));
  }
  auto word = StringAttr::get(variant.getContext(), text);
  if (auto choice = dyn_cast<ChoiceAttr>(declared)) {
    if (llvm::is_contained(choice.getChoices(), word))
      return Attribute(ChoiceAttr::get(variant.getContext(), word, choice.getChoices()));
    std::string choices =
        llvm::join(llvm::map_range(choice.getChoices(), [](StringAttr each) { return "'" + each.str() + "'"; }), ", ");
    return refuse("one of " + choices);
  }
  bool usesNames = false;
  llvm::Expected<double> number = evaluateExpression(text, [&](StringRef) {
    usesNames = true;
    return 1.0;
  });
  if (!number)
    return refuse("a number or an expression: " + llvm::toString(number.takeError()));
  if (usesNames)
    return Attribute(word);
  return Attribute(FloatAttr::get(Float64Type::get(variant.getContext()), *number));
}

/// Every name of an expression must be a size, a numeric option or an axis of the variant.
static LogicalResult checkNames(VariantOp variant, const Twine &owner, StringRef expression,
                                const std::set<std::string> &sizes, const std::map<std::string, Attribute> &options) {
  std::set<std::string> unknown;
  llvm::Expected<double> value = evaluateExpression(expression, [&](StringRef name) {
    auto option = options.find(name.str());
    if (!sizes.count(name.str()) && (option == options.end() || !isa<FloatAttr, StringAttr>(option->second)))
      unknown.insert(name.str());
    return 1.0;
  });
  if (!value)
    return variant.emitError() << owner << ": " << llvm::toString(value.takeError());
  if (!unknown.empty())
    return variant.emitError() << owner << " refers to '" << *unknown.begin()
                               << "', which is neither a size nor a numeric option of the variant";
  return success();
}

//===----------------------------------------------------------------------===//
// Head sets
//===----------------------------------------------------------------------===//

/// One of any two head sets divides the other, and the key and value heads divide all. `describe` says whose heads
/// those of a set are.
static LogicalResult checkHeadCounts(VariantOp variant, const std::map<std::string, int64_t> &counts,
                                     function_ref<std::string(StringRef)> describe) {
  for (const auto &[set, count] : counts)
    if (count < 1)
      return variant.emitError() << "[R1] " << describe(set) << " has " << count << " heads, expected at least 1";
  for (auto a = counts.begin(); a != counts.end(); ++a)
    for (auto b = std::next(a); b != counts.end(); ++b) {
      bool aFiner = b->first == keyValueHeads || (a->first != keyValueHeads && a->second >= b->second);
      const auto &[fine, coarse] = aFiner ? std::pair(*a, *b) : std::pair(*b, *a);
      if (fine.second % coarse.second)
        return variant.emitError() << "[R2] " << describe(fine.first) << " has " << fine.second
                                   << " heads, expected a multiple of the " << coarse.second << " of "
                                   << describe(coarse.first);
    }
  return success();
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

FailureOr<Sizes> Sizes::get(VariantOp variant, const Settings &settings) {
  Sizes result;
  std::set<std::string> sizeNames = namedSizes(variant), headSets = namedHeadSets(variant);

  // Sizes that an earlier specialisation fixed.
  bool consistent = true;
  forEachType(variant, [&](Type type) {
    forEachAxis(type, [&](StringRef axis, int64_t size) {
      std::optional<std::string> name = extentOf(axis).name();
      if (!name || ShapedType::isDynamic(size))
        return;
      auto [known, isNew] = result.dims.try_emplace(*name, size);
      if (!isNew && known->second != size && std::exchange(consistent, false))
        variant.emitError() << "[R3] the axis '" << *name << "' has size " << size << " in one place and "
                            << known->second << " in another";
    });
  });
  if (!consistent)
    return failure();
  for (const auto &[name, size] : settings.dims) {
    if (!sizeNames.count(name))
      return variant.emitError() << "'" << name << "' is no size of the variant; its sizes are " << listed(sizeNames);
    if (size < 1)
      return variant.emitError() << "[R3] the size '" << name << "' is " << size << ", expected at least 1";
    auto [known, isNew] = result.dims.try_emplace(name, size);
    if (!isNew && known->second != size)
      return variant.emitError() << "[R3] the size '" << name << "' is " << size << ", expected " << known->second
                                 << ", which the variant is specialised for";
  }

  std::set<std::string> optionNames;
  for (NamedAttribute option : variant.getOptions()) {
    optionNames.insert(option.getName().str());
    result.values[option.getName().str()] = option.getValue();
    if (!settings.numericDefaults && !settings.options.count(option.getName().str()))
      result.symbolic.insert(option.getName().str());
  }
  for (const auto &[name, text] : settings.options) {
    auto option = result.values.find(name);
    if (option == result.values.end())
      return variant.emitError() << "'" << name << "' is no option of the variant; its options are "
                                 << listed(optionNames);
    FailureOr<Attribute> value = readOption(variant, name, text, option->second);
    if (failed(value))
      return failure();
    option->second = *value;
  }
  for (const auto &[name, value] : result.values)
    if (auto expression = dyn_cast<StringAttr>(value);
        expression && failed(checkNames(variant, "the option '" + name + "'", expression, sizeNames, result.values)))
      return failure();
  // An axis that options fix is a size and agrees with what arguments say.
  for (NamedAttribute axis : variant.getAxes()) {
    std::string name = axis.getName().str();
    StringRef expression = cast<StringAttr>(axis.getValue());
    if (failed(checkNames(variant, "the axis '" + name + "'", expression, sizeNames, result.values)))
      return failure();
    llvm::Expected<double> value =
        evaluateExpression(expression, [&](StringRef inner) { return result.number(inner); });
    if (!value) {
      llvm::consumeError(value.takeError()); // a name of it is not known yet
      continue;
    }
    if (*value < 1 || *value > 1e9 || *value != std::floor(*value))
      return variant.emitError() << "the axis '" << name << "' = " << expression << " comes to "
                                 << llvm::formatv("{0}", *value).str() << ", expected an integer of at least 1";
    auto [known, isNew] = result.dims.try_emplace(name, static_cast<int64_t>(*value));
    if (!isNew && known->second != *value)
      return variant.emitError() << "[R3] the size '" << name << "' is " << known->second << ", expected "
                                 << static_cast<int64_t>(*value) << " = " << expression;
  }

  for (const auto &[set, count] : settings.heads) {
    if (set == allHeads && count == 1)
      continue;
    if (!headSets.count(set))
      return variant.emitError() << "'" << set << "' is no head set of the variant; its head sets are "
                                 << listed(headSets);
    result.headCounts[set] = count;
  }
  auto describe = [](StringRef set) { return "the head set '" + set.str() + "'"; };
  if (failed(checkHeadCounts(variant, result.headCounts, describe)))
    return failure();
  return result;
}

std::optional<double> Sizes::evaluate(StringRef name, SmallVectorImpl<StringRef> &open) const {
  auto size = dims.find(name.str());
  if (size != dims.end())
    return static_cast<double>(size->second);
  auto option = values.find(name.str());
  if (option == values.end() || symbolic.count(name.str()))
    return std::nullopt;
  if (auto number = dyn_cast<FloatAttr>(option->second))
    return number.getValueAsDouble();
  auto expression = dyn_cast<StringAttr>(option->second);
  // An option that refers to itself has no value.
  if (!expression || llvm::is_contained(open, name))
    return std::nullopt;
  open.push_back(name);
  llvm::Expected<double> value = evaluateExpression(expression, [&](StringRef inner) { return evaluate(inner, open); });
  open.pop_back();
  if (value)
    return *value;
  llvm::consumeError(value.takeError());
  return std::nullopt;
}

std::optional<double> Sizes::number(StringRef name) const {
  SmallVector<StringRef> open;
  return evaluate(name, open);
}

llvm::Expected<std::optional<int64_t>> Sizes::extent(const Extent &extent) const {
  auto lookup = [&](StringRef name) -> std::optional<double> {
    auto size = dims.find(name.str());
    return size == dims.end() ? std::nullopt : std::optional<double>(size->second);
  };
  for (const std::string &name : extent.names())
    if (!lookup(name))
      return std::nullopt;
  llvm::Expected<int64_t> value = extent.evaluate(lookup);
  if (!value)
    return value.takeError();
  return *value;
}

llvm::Expected<std::optional<int64_t>> Sizes::width(StringRef axis) const {
  if (axis.empty())
    return 1;
  llvm::Expected<std::optional<int64_t>> size = extent(extentOf(axis));
  if (size && *size && **size < 1)
    return llvm::createStringError("the size '" + axis + "' comes to 0, expected at least 1");
  return size;
}

std::optional<int64_t> Sizes::heads(StringRef set) const {
  int64_t count = 1;
  for (StringRef name : llvm::split(set, '|')) {
    if (name == allHeads)
      continue;
    auto known = headCounts.find(name.str());
    if (known == headCounts.end())
      return std::nullopt;
    count = std::max(count, known->second);
  }
  return count;
}

//===----------------------------------------------------------------------===//
// Shapes of a call
//===----------------------------------------------------------------------===//

namespace {

/// Binds names to the sizes found in the shapes of a call. The first argument that shows a name decides; what is no
/// plain name (an expression, a joined head set) is checked once all names are known, of which an axis such as `2*F`
/// may be the only one to tell.
class ShapeBinder {
public:
  ShapeBinder(VariantOp variant, bool isStep) : variant(variant), isStep(isStep) {}

  LogicalResult bind(StringRef argument, Type type, ArrayRef<int64_t> shape);
  /// The head sets divide as they must.
  LogicalResult checkHeads();
  LogicalResult checkExpressions(const Sizes &sizes);
  /// Binds names that expressions alone have.
  void solveExpressions();

  struct Bound {
    int64_t size;
    std::string argument;
  };
  using Binding = std::map<std::string, Bound>;
  Binding batchAndTime, heads, dims;

private:
  LogicalResult bindName(Binding &binding, StringRef id, const Twine &what, StringRef name, int64_t found,
                         StringRef argument);

  struct Expression {
    std::string argument, text;
    int64_t found;
  };
  VariantOp variant;
  bool isStep;
  SmallVector<Expression> axisExpressions, joinedHeads;
};

} // namespace

static std::string spell(ArrayRef<int64_t> shape) {
  auto sizes = llvm::map_range(shape, [](int64_t size) { return std::to_string(size); });
  return "[" + llvm::join(sizes, ", ") + "]";
}

LogicalResult ShapeBinder::bindName(Binding &binding, StringRef id, const Twine &what, StringRef name, int64_t found,
                                    StringRef argument) {
  auto [known, isNew] = binding.try_emplace(name.str(), Bound{found, argument.str()});
  if (isNew || known->second.size == found)
    return success();
  return variant.emitError() << "[" << id << "] the argument '" << argument << "' has " << what << " = " << found
                             << ", expected " << known->second.size << " as '" << known->second.argument << "' has";
}

LogicalResult ShapeBinder::bind(StringRef argument, Type type, ArrayRef<int64_t> shape) {
  SmallVector<StringRef> axes;
  forEachAxis(type, [&](StringRef axis, int64_t) { axes.push_back(axis); });
  StringRef set = headsOf(type);
  std::string layout = !isRow(type) ? "[" : isStep ? "[B, " : "[B, T, ";
  layout += set;
  for (StringRef axis : axes)
    layout += ", " + axis.str();
  size_t leading = !isRow(type) ? 1 : isStep ? 2 : 3;
  if (shape.size() != leading + axes.size())
    return variant.emitError() << "[R1] the argument '" << argument << "' has shape " << spell(shape)
                               << ", expected rank " << leading + axes.size() << ": " << layout << "]";
  for (int64_t size : shape)
    if (size < 0)
      return variant.emitError() << "[R1] the argument '" << argument << "' has shape " << spell(shape)
                                 << ", expected no negative size";
  if (isRow(type) && (failed(bindName(batchAndTime, "R1", "B", "B", shape[0], argument)) ||
                      failed(bindName(batchAndTime, "R1", "T", "T", isStep ? 1 : shape[1], argument))))
    return failure();

  int64_t headCount = shape[leading - 1];
  if (set == allHeads && headCount != 1)
    return variant.emitError() << "[R1] the argument '" << argument << "' has " << headCount
                               << " heads, expected 1: it is the same for all heads";
  if (set.contains('|'))
    joinedHeads.push_back({argument.str(), set.str(), headCount});
  else if (set != allHeads && failed(bindName(heads, "R1", set + " heads", set, headCount, argument)))
    return failure();

  for (auto [axis, size] : llvm::zip_equal(axes, shape.drop_front(leading))) {
    if (!extentOf(axis).name())
      axisExpressions.push_back({argument.str(), axis.str(), size});
    else if (failed(bindName(dims, isRow(type) ? "R3" : "R1", "the axis " + axis, axis, size, argument)))
      return failure();
  }
  return success();
}

LogicalResult ShapeBinder::checkHeads() {
  std::map<std::string, int64_t> counts;
  for (const auto &[set, bound] : heads)
    counts[set] = bound.size;
  return checkHeadCounts(variant, counts, [&](StringRef set) {
    return "the argument '" + heads.at(set.str()).argument + "' (" + set.str() + ")";
  });
}

void ShapeBinder::solveExpressions() {
  for (bool hasSolved = true; std::exchange(hasSolved, false);)
    for (const Expression &axis : axisExpressions) {
      Extent extent = extentOf(axis.text);
      for (const std::string &name : extent.names())
        if (auto known = dims.find(name); known != dims.end())
          extent = extent.with(name, Extent(known->second.size));
      if (extent.names().size() != 1)
        continue;
      std::string name = extent.names().front();
      if (std::optional<int64_t> size = extent.solvedFor(axis.found)) {
        dims[name] = {*size, axis.argument};
        hasSolved = true;
      }
    }
}

LogicalResult ShapeBinder::checkExpressions(const Sizes &sizes) {
  for (const Expression &axis : axisExpressions) {
    llvm::Expected<std::optional<int64_t>> size = sizes.width(axis.text);
    if (!size)
      return variant.emitError() << "[R3] the argument '" << axis.argument << "': " << llvm::toString(size.takeError());
    if (!*size)
      return variant.emitError() << "[R3] the argument '" << axis.argument << "' has the axis '" << axis.text
                                 << "', in which a size is fixed by no argument";
    if (**size != axis.found)
      return variant.emitError() << "[R3] the argument '" << axis.argument << "' has size " << axis.found
                                 << " on the axis '" << axis.text << "', expected " << **size;
  }
  for (const Expression &joined : joinedHeads)
    if (std::optional<int64_t> count = sizes.heads(joined.text); !count || *count != joined.found)
      return variant.emitError() << "[R1] the argument '" << joined.argument << "' has " << joined.found << " heads ("
                                 << joined.text << "), expected "
                                 << (count ? std::to_string(*count) : "a known number");
  return success();
}

FailureOr<CallSizes> stretto::bindShapes(VariantOp variant, ArrayRef<ArgumentShape> arguments,
                                         const std::map<std::string, std::string> &options, bool isStep) {
  std::map<StringRef, ArrayRef<int64_t>> shapes;
  for (const ArgumentShape &argument : arguments)
    if (!shapes.try_emplace(argument.name, argument.shape).second)
      return variant.emitError() << "the argument '" << argument.name << "' is given twice";

  CallSizes call;
  call.settings.options = options;
  call.settings.numericDefaults = true;
  ShapeBinder binder(variant, isStep);
  std::set<std::string> names;
  for (auto [index, type] : llvm::enumerate(variant.getBody().getArgumentTypes())) {
    StringRef name = variant.getArgName(index);
    names.insert(name.str());
    auto given = shapes.find(name);
    if (given != shapes.end()) {
      if (failed(binder.bind(name, type, given->second)))
        return failure();
    } else if (variant.isOptional(index)) {
      call.settings.absent.insert(name.str());
    } else {
      return variant.emitError() << "[R1] the argument '" << name << "' is missing";
    }
  }
  for (const auto &[name, shape] : shapes)
    if (!names.count(name.str()))
      return variant.emitError() << "'" << name << "' is no argument of the variant; its arguments are "
                                 << listed(names);
  if (binder.batchAndTime.empty())
    return variant.emitError() << "[R1] no row is given, expected at least one: its shape says B and T";

  binder.solveExpressions();
  for (const auto &[name, bound] : binder.dims)
    call.settings.dims[name] = bound.size;
  for (const auto &[set, bound] : binder.heads)
    call.settings.heads[set] = bound.size;
  call.batch = binder.batchAndTime.at("B").size;
  call.time = binder.batchAndTime.at("T").size;
  if (failed(binder.checkHeads()))
    return failure();
  FailureOr<Sizes> sizes = Sizes::get(variant, call.settings);
  if (failed(sizes) || failed(binder.checkExpressions(*sizes)))
    return failure();
  return call;
}
