//===- Specialize.cpp - Fixes sizes, options and arguments ----------------===//
//
// Alternatives come first: a branch that is not taken may hold sizes that make no sense. Then axes become static, then
// everything that is constant now is folded.
//
//===----------------------------------------------------------------------===//

#include "passes/declaration/Specialize.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/Dominance.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Transforms/CSE.h"
#include "mlir/Transforms/GreedyPatternRewriteDriver.h"
#include "passes/Passes.h"
#include "llvm/ADT/StringExtras.h"

namespace stretto {
#define GEN_PASS_DEF_SPECIALIZE
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

//===----------------------------------------------------------------------===//
// Folding
//===----------------------------------------------------------------------===//

/// A value whose every entry is `value`: an arith.constant, or a stretto.constant where the size is not known.
static Value createConstant(OpBuilder &builder, Location location, Type type, double value) {
  auto shaped = dyn_cast<ShapedType>(type);
  if (shaped && !shaped.hasStaticShape())
    return ConstantOp::create(builder, location, type, builder.getF64FloatAttr(value));
  Type element = getElementTypeOrSelf(type);
  TypedAttr entry = element.isInteger(1) ? TypedAttr(builder.getBoolAttr(value != 0)) : builder.getF64FloatAttr(value);
  if (shaped)
    entry = SplatElementsAttr::get(shaped, Attribute(entry));
  return arith::ConstantOp::create(builder, location, entry);
}

namespace {

struct InlineDecidedIf : OpRewritePattern<scf::IfOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(scf::IfOp op, PatternRewriter &rewriter) const override {
    APInt condition;
    if (!matchPattern(op.getCondition(), m_ConstantInt(&condition)))
      return failure();
    Region &taken = condition.isZero() ? op.getElseRegion() : op.getThenRegion();
    if (taken.empty()) {
      rewriter.eraseOp(op);
      return success();
    }
    Operation *yield = taken.front().getTerminator();
    SmallVector<Value> results(yield->getOperands());
    rewriter.eraseOp(yield);
    rewriter.inlineBlockBefore(&taken.front(), op);
    rewriter.replaceOp(op, results);
    return success();
  }
};

/// A state that only alternatives not taken used.
struct EraseUnusedState : OpRewritePattern<StateOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(StateOp op, PatternRewriter &rewriter) const override {
    if (!op->use_empty())
      return failure();
    rewriter.eraseOp(op);
    return success();
  }
};

/// An option or a size that is repeated is that option or size as a larger row.
template <typename Op> struct FoldSymbolBroadcast : OpRewritePattern<BroadcastOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(BroadcastOp op, PatternRewriter &rewriter) const override {
    auto symbol = op.getOperand().getDefiningOp<Op>();
    if (!symbol || !getElementTypeOrSelf(op.getType()).isF64())
      return failure();
    rewriter.replaceOpWithNewOp<Op>(op, TypeRange(op.getType()), ValueRange(), symbol->getAttrs());
    return success();
  }
};

/// A stretto.constant of known size is an arith.constant, which upstream folders understand.
struct FixConstant : OpRewritePattern<ConstantOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(ConstantOp op, PatternRewriter &rewriter) const override {
    if (!op.getType().hasStaticShape())
      return failure();
    rewriter.replaceOp(op, createConstant(rewriter, op.getLoc(), op.getType(), op.getValue().convertToDouble()));
    return success();
  }
};

} // namespace

static LogicalResult fold(VariantOp variant) {
  RewritePatternSet patterns(variant.getContext());
  patterns
      .add<InlineDecidedIf, EraseUnusedState, FoldSymbolBroadcast<OptionOp>, FoldSymbolBroadcast<SizeOp>, FixConstant>(
          variant.getContext());
  GreedyRewriteConfig config;
  config.setRegionSimplificationLevel(GreedySimplifyRegionLevel::Disabled);
  return applyPatternsGreedily(variant, std::move(patterns), config);
}

/// Puts every operation without operands before its first user in its block, in the order in which operands name them.
static void placeConstants(Block &block) {
  auto isMovable = [&](Operation *op) {
    return op && op->getBlock() == &block && op->getNumOperands() == 0 && op->getNumRegions() == 0 && isPure(op);
  };
  llvm::SmallPtrSet<Operation *, 16> placed;
  for (Operation &user : llvm::make_early_inc_range(block)) {
    if (isMovable(&user))
      continue;
    user.walk<WalkOrder::PreOrder>([&](Operation *op) {
      for (Value operand : op->getOperands())
        if (Operation *constant = operand.getDefiningOp(); isMovable(constant) && placed.insert(constant).second)
          constant->moveBefore(&user);
    });
    for (Region &region : user.getRegions())
      for (Block &body : region)
        placeConstants(body);
  }
}

/// Puts in front of each look-back what its body computes of rows of the token that looks back, and of constants: it is
/// the same for all tokens that are met. Parameters stay where they are: their gradients are refused there.
static void takeOutOfLookbacks(VariantOp variant) {
  variant.walk([](LookbackOp lookback) {
    auto isInside = [&](Operation *op) { return op && lookback->isProperAncestor(op); };
    auto isConstant = [](Operation *op) { return op->getNumOperands() == 0 && op->getNumRegions() == 0 && isPure(op); };
    lookback.walk([&](Operation *op) {
      if (op == lookback || isa<PastOp>(op) || isConstant(op) || op->getNumRegions() || !isPure(op))
        return;
      bool isSame = llvm::all_of(op->getOperands(), [&](Value operand) {
        Operation *made = operand.getDefiningOp();
        if (isParam(operand.getType()))
          return false;
        return made ? !isInside(made) || isConstant(made) : !isInside(operand.getParentBlock()->getParentOp());
      });
      if (!isSame || op->hasTrait<OpTrait::IsTerminator>())
        return;
      for (Value operand : op->getOperands())
        if (Operation *constant = operand.getDefiningOp(); isInside(constant))
          constant->moveBefore(lookback);
      op->moveBefore(lookback);
    });
  });
}

//===----------------------------------------------------------------------===//
// Alternatives
//===----------------------------------------------------------------------===//

static LogicalResult checkAbsent(VariantOp variant, const Settings &settings) {
  std::set<std::string> optional;
  for (unsigned i = 0, e = variant.getType().getNumInputs(); i < e; ++i)
    if (variant.isOptional(i))
      optional.insert(variant.getArgName(i).str());
  for (const std::string &name : settings.absent)
    if (!optional.count(name))
      return variant.emitError() << "'" << name << "' is no optional argument of the variant; they are "
                                 << (optional.empty() ? "none" : llvm::join(optional, ", "));
  return success();
}

/// Replaces every option, size and question about an argument whose answer is known. Rows wait until axes are static.
static LogicalResult replaceKnown(VariantOp variant, const Settings &settings, const Sizes &sizes, bool rows) {
  auto replace = [](Operation *op, double value) {
    OpBuilder builder(op);
    op->replaceAllUsesWith(ValueRange(createConstant(builder, op->getLoc(), op->getResult(0).getType(), value)));
    op->erase();
  };
  WalkResult result = variant.getBody().walk([&](Operation *op) -> WalkResult {
    if (op->getNumResults() != 1 || isa<ShapedType>(op->getResult(0).getType()) != rows)
      return WalkResult::advance();
    if (auto option = dyn_cast<OptionOp>(op)) {
      Attribute value = sizes.options().at(option.getName().str());
      if (auto condition = dyn_cast<BoolAttr>(value))
        replace(op, condition.getValue());
      else if (std::optional<double> number = sizes.number(option.getName()))
        replace(op, *number);
    } else if (auto question = dyn_cast<OptionIsOp>(op)) {
      auto choice = cast<ChoiceAttr>(sizes.options().at(question.getName().str()));
      replace(op, choice.getValue() == question.getWordAttr());
    } else if (auto present = dyn_cast<PresentOp>(op)) {
      unsigned index = cast<BlockArgument>(present.getArgument()).getArgNumber();
      replace(op, !settings.absent.count(variant.getArgName(index).str()));
    } else if (auto size = dyn_cast<SizeOp>(op)) {
      llvm::Expected<std::optional<int64_t>> extent = sizes.extent(extentOf(size.getExtent()));
      if (!extent)
        return size.emitError() << "[R3] " << llvm::toString(extent.takeError());
      if (*extent)
        replace(op, static_cast<double>(**extent));
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

/// Removes absent arguments; the others are not optional any more.
static LogicalResult dropAbsentArguments(VariantOp variant, const Settings &settings) {
  Builder builder(variant.getContext());
  Block &block = *variant.getBlock();
  SmallVector<Attribute> names, attributes;
  llvm::BitVector absent(block.getNumArguments());
  for (BlockArgument argument : block.getArguments()) {
    unsigned index = argument.getArgNumber();
    if (settings.absent.count(variant.getArgName(index).str())) {
      if (!argument.use_empty())
        return argument.user_begin()->emitError() << "uses the argument '" << variant.getArgName(index)
                                                  << "', which is absent, outside of a test that it is present";
      absent.set(index);
      continue;
    }
    NamedAttrList kept(variant.getArgAttrDict(index));
    kept.erase("stretto.optional");
    names.push_back(builder.getStringAttr(variant.getArgName(index)));
    attributes.push_back(kept.getDictionary(variant.getContext()));
  }
  block.eraseArguments(absent);
  variant.setArgNamesAttr(builder.getArrayAttr(names));
  bool anyAttribute = llvm::any_of(attributes, [](Attribute each) { return !cast<DictionaryAttr>(each).empty(); });
  variant.setArgAttrsAttr(anyAttribute ? builder.getArrayAttr(attributes) : ArrayAttr());
  variant.setFunctionType(builder.getFunctionType(block.getArgumentTypes(), variant.getType().getResults()));
  return success();
}

//===----------------------------------------------------------------------===//
// Sizes
//===----------------------------------------------------------------------===//

/// Rewrites the types of a variant: axes by `spell`, sizes by `sizeOf`.
static void rewriteTypes(VariantOp variant, function_ref<std::string(StringRef)> spell,
                         function_ref<int64_t(StringRef, int64_t)> sizeOf) {
  AttrTypeReplacer replacer;
  MLIRContext *context = variant.getContext();
  replacer.addReplacement([&](RankedTensorType type) -> Type {
    if (isRow(type)) {
      if (axisOf(type).empty())
        return type;
      return rowType(context, spell(axisOf(type)), headsOf(type), sizeOf(axisOf(type), type.getDimSize(0)),
                     type.getElementType());
    }
    if (!isParam(type))
      return type;
    SmallVector<StringAttr> axes;
    SmallVector<int64_t> shape;
    auto encoding = cast<ParamAttr>(type.getEncoding());
    for (auto [axis, size] : llvm::zip_equal(encoding.getAxes(), type.getShape())) {
      axes.push_back(StringAttr::get(context, spell(axis)));
      shape.push_back(sizeOf(axis, size));
    }
    return RankedTensorType::get(shape, type.getElementType(), ParamAttr::get(context, axes, encoding.getHeads()));
  });
  replacer.addReplacement([&](StateType type) -> Type {
    return StateType::get(context, spell(type.getFirst()), spell(type.getSecond()), type.getHeads(),
                          sizeOf(type.getFirst(), type.getFirstSize()), sizeOf(type.getSecond(), type.getSecondSize()),
                          type.getReverse());
  });
  replacer.addReplacement([&](DenseElementsAttr constant) -> Attribute {
    return constant.reshape(cast<ShapedType>(replacer.replace(constant.getType())));
  });
  replacer.recursivelyReplaceElementsIn(variant, /*replaceAttrs=*/true, /*replaceLocs=*/false, /*replaceTypes=*/true);
}

/// Calls the axis `from` by the extent `to` everywhere.
static void renameAxis(VariantOp variant, StringRef from, const Extent &to) {
  auto spell = [&](StringRef axis) { return extentOf(axis).with(from, to).str(); };
  rewriteTypes(variant, spell, [](StringRef, int64_t size) { return size; });
  variant.getBody().walk([&](Operation *op) {
    if (auto read = dyn_cast<ReadOp>(op))
      read.setAlong(spell(read.getAlong()));
    else if (auto decay = dyn_cast<DecayOp>(op); decay && decay.getAlong())
      decay.setAlong(spell(*decay.getAlong()));
    else if (auto pair = dyn_cast<PairOp>(op); pair && pair.getAlong())
      pair.setAlong(spell(*pair.getAlong()));
    else if (auto slice = dyn_cast<SliceOp>(op))
      slice.setOffset(spell(slice.getOffset()));
    else if (auto size = dyn_cast<SizeOp>(op))
      size.setExtent(spell(size.getExtent()));
  });
}

/// The axis of a row, or of a parameter with at most one.
static StringRef broadcastAxis(Type type) {
  if (isRow(type))
    return axisOf(type);
  if (!isParam(type))
    return {};
  ArrayRef<StringAttr> axes = cast<ParamAttr>(cast<RankedTensorType>(type).getEncoding()).getAxes();
  return axes.empty() ? StringRef() : axes.front().getValue();
}

/// The size of an axis where it is known; an error stands at `op`.
static FailureOr<std::optional<int64_t>> knownWidth(Operation *op, const Sizes &sizes, StringRef axis) {
  llvm::Expected<std::optional<int64_t>> size = sizes.width(axis);
  if (!size)
    return op->emitError() << "[R3] " << llvm::toString(size.takeError());
  return *size;
}

/// An axis that is repeated over one of another name has size one, or is that axis by another name.
static LogicalResult resolveBroadcast(VariantOp variant, BroadcastOp op, const Sizes &sizes) {
  StringRef source = broadcastAxis(op.getOperand().getType()), target = axisOf(op.getType());
  if (source.empty() || source == target)
    return success();
  FailureOr<std::optional<int64_t>> from = knownWidth(op, sizes, source), to = knownWidth(op, sizes, target);
  if (failed(from) || failed(to))
    return failure();
  if (!*from || !*to || **from == 1)
    return success();
  std::optional<std::string> name = extentOf(source).name();
  if (**from != **to || !name)
    return op.emitError() << "[R3] repeats the axis '" << source << "' of size " << **from << " over '" << target
                          << "' of size " << **to << ", expected size 1" << (name ? " or that size" : "");
  renameAxis(variant, *name, extentOf(target));
  return success();
}

static LogicalResult checkSlice(SliceOp op, const Sizes &sizes) {
  FailureOr<std::optional<int64_t>> available = knownWidth(op, sizes, axisOf(op.getOperand().getType()));
  FailureOr<std::optional<int64_t>> taken = knownWidth(op, sizes, axisOf(op.getType()));
  if (failed(available) || failed(taken))
    return failure();
  llvm::Expected<std::optional<int64_t>> offset = sizes.extent(extentOf(op.getOffset()));
  if (!offset)
    return op.emitError() << "[R3] " << llvm::toString(offset.takeError());
  if (*available && *taken && *offset && **offset + **taken > **available)
    return op.emitError() << "[R3] takes the entries " << **offset << " to " << **offset + **taken
                          << " of a row of size " << **available;
  return success();
}

/// Makes types static where sizes are known.
static LogicalResult fixSizes(VariantOp variant, const Sizes &sizes) {
  auto check = [&](Operation *op, TypeRange types) {
    bool valid = true;
    for (Type type : types)
      forEachAxis(type, [&](StringRef axis, int64_t) { valid = valid && succeeded(knownWidth(op, sizes, axis)); });
    return success(valid);
  };
  if (failed(check(variant, variant.getBody().getArgumentTypes())))
    return failure();
  WalkResult result = variant.getBody().walk([&](Operation *op) -> WalkResult {
    if (failed(check(op, op->getResultTypes())))
      return failure();
    if (auto slice = dyn_cast<SliceOp>(op))
      return checkSlice(slice, sizes);
    if (auto broadcast = dyn_cast<BroadcastOp>(op))
      return resolveBroadcast(variant, broadcast, sizes);
    return success();
  });
  if (result.wasInterrupted())
    return failure();
  auto sizeOf = [&](StringRef axis, int64_t size) { return llvm::cantFail(sizes.width(axis)).value_or(size); };
  rewriteTypes(variant, [](StringRef axis) { return axis.str(); }, sizeOf);
  return success();
}

//===----------------------------------------------------------------------===//
// What remains of options, axes and heads
//===----------------------------------------------------------------------===//

/// Keeps the options and axes that the program still refers to, with the caller's values as defaults. Axes whose size
/// is known are fixed in the types.
static void keepSymbolic(VariantOp variant, const Sizes &sizes) {
  llvm::StringSet<> used;
  auto useTypes = [&](TypeRange types) {
    for (Type type : types)
      forEachAxis(type, [&](StringRef axis, int64_t) {
        for (const std::string &name : extentOf(axis).names())
          used.insert(name);
      });
  };
  useTypes(variant.getBody().getArgumentTypes());
  variant.getBody().walk([&](Operation *op) {
    useTypes(op->getResultTypes());
    if (auto option = dyn_cast<OptionOp>(op))
      used.insert(option.getName());
  });
  NamedAttrList options, axes;
  auto keep = [&](NamedAttrList &list, StringRef name, Attribute value) {
    if (!used.contains(name))
      return;
    list.append(name, value);
    // A setting may refer to others.
    if (auto expression = dyn_cast<StringAttr>(value))
      llvm::consumeError(evaluateExpression(expression, [&](StringRef other) {
                           used.insert(other);
                           return 1.0;
                         }).takeError());
  };
  for (size_t before = ~size_t(0); before != used.size();) {
    before = used.size();
    options.clear();
    axes.clear();
    for (const auto &[name, value] : sizes.options())
      keep(options, name, value);
    for (NamedAttribute axis : variant.getAxes())
      if (!sizes.number(axis.getName()))
        keep(axes, axis.getName(), axis.getValue());
  }
  variant.setOptionsAttr(options.getDictionary(variant.getContext()));
  variant.setAxesAttr(axes.getDictionary(variant.getContext()));
}

/// Records how many heads of the finest head set share one head of each, once all are known.
static LogicalResult recordGroup(VariantOp variant, const Sizes &sizes) {
  std::set<std::string> sets = namedHeadSets(variant);
  int64_t finest = 1;
  for (const std::string &set : sets) {
    if (!sizes.heads(set))
      return success();
    finest = std::max(finest, *sizes.heads(set));
  }
  if (sets.empty())
    return success();
  Builder builder(variant.getContext());
  NamedAttrList group;
  for (const std::string &set : sets)
    group.append(set, builder.getI64IntegerAttr(finest / *sizes.heads(set)));
  DictionaryAttr ratios = group.getDictionary(variant.getContext());
  if (variant.getGroupAttr() && variant.getGroupAttr() != ratios)
    return variant.emitError() << "[R2] the head ratios are " << ratios << ", expected " << variant.getGroupAttr()
                               << ", which the variant is specialised for";
  variant.setGroupAttr(ratios);
  return success();
}

LogicalResult stretto::specialize(VariantOp variant, const Settings &settings) {
  FailureOr<Sizes> sizes = Sizes::get(variant, settings);
  if (failed(sizes) || failed(checkAbsent(variant, settings)))
    return failure();

  if (failed(replaceKnown(variant, settings, *sizes, /*rows=*/false)) || failed(fold(variant)) ||
      failed(dropAbsentArguments(variant, settings)))
    return failure();

  if (failed(fixSizes(variant, *sizes)) || failed(replaceKnown(variant, settings, *sizes, /*rows=*/true)) ||
      failed(fold(variant)))
    return failure();
  IRRewriter rewriter(variant.getContext());
  DominanceInfo dominance(variant);
  takeOutOfLookbacks(variant);
  eliminateCommonSubExpressions(rewriter, dominance, variant);
  placeConstants(*variant.getBlock());

  keepSymbolic(variant, *sizes);
  if (failed(recordGroup(variant, *sizes)))
    return failure();
  return verify(variant);
}

//===----------------------------------------------------------------------===//
// The pass
//===----------------------------------------------------------------------===//

namespace {

struct SpecializePass : stretto::impl::SpecializeBase<SpecializePass> {
  using SpecializeBase::SpecializeBase;

  /// Reads `name=value` pairs of one pass option.
  LogicalResult readPairs(ArrayRef<std::string> pairs, function_ref<bool(StringRef, StringRef)> accept) {
    for (StringRef pair : pairs) {
      auto [name, value] = pair.split('=');
      if (!accept(name.trim(), value.trim()))
        return getOperation().emitError() << "'" << pair << "' does not read as a name and its value, expected for "
                                          << "instance K=128";
    }
    return success();
  }

  LogicalResult readCounts(ArrayRef<std::string> pairs, std::map<std::string, int64_t> &counts) {
    return readPairs(pairs, [&](StringRef name, StringRef value) {
      int64_t count;
      bool valid = !name.empty() && !value.getAsInteger(10, count);
      if (valid)
        counts[name.str()] = count;
      return valid;
    });
  }

  void runOnOperation() override {
    Settings settings;
    auto readOption = [&](StringRef name, StringRef value) {
      settings.options[name.str()] = value.str();
      return !name.empty() && !value.empty();
    };
    settings.absent.insert(absent.begin(), absent.end());
    settings.numericDefaults = !dims.empty();
    if (failed(readCounts(dims, settings.dims)) || failed(readCounts(heads, settings.heads)) ||
        failed(readPairs(optionValues, readOption)) || failed(specialize(getOperation(), settings)))
      signalPassFailure();
  }
};

} // namespace
