//===- RoundOperands.cpp - Operands of products in the inputs' type -------===//

#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/Passes.h"
#include "passes/chunk/InputType.h"

namespace stretto {
#define GEN_PASS_DEF_ROUNDOPERANDS
#include "passes/Passes.h.inc"
} // namespace stretto

using namespace mlir;
using namespace stretto;

namespace {
struct RoundOperands : stretto::impl::RoundOperandsBase<RoundOperands> {
  using RoundOperandsBase::RoundOperandsBase;

  void runOnOperation() override {
    inputType = inputTypeOf(getOperation());
    if (inputType.getIntOrFloatBitWidth() != 16 || (!element.empty() && element != spell(inputType)))
      return;
    getOperation().walk([&](Operation *op) {
      if (sparing && isSpared(op))
        return;
      if (auto dot = dyn_cast<chunk::DotOp>(op)) {
        multiplyRest(dot);
        round(dot.getLeftMutable());
        round(dot.getRightMutable());
      } else if (auto dot = dyn_cast<chunk::DecayDotOp>(op)) {
        // No matrix instruction forms it: what tables make stays as it is.
        if (isOfTables(dot.getKey()))
          return;
        round(dot.getQueryMutable());
        round(dot.getKeyMutable());
      } else if (auto mix = dyn_cast<chunk::DecayMixOp>(op)) {
        round(mix.getWeightsMutable());
        round(mix.getRowsMutable());
      } else if (auto conv = dyn_cast<chunk::ConvOp>(op); conv && !sparing) {
        narrow(conv.getOperandMutable(), conv.getTailMutable());
        narrow(conv.getTapsMutable());
      } else if (auto delay = dyn_cast<chunk::DelayOp>(op); delay && !sparing) {
        narrow(delay.getOperandMutable(), delay.getTailMutable());
      } else if (auto taps = dyn_cast<chunk::ConvTapsOp>(op); taps && !sparing) {
        narrow(taps.getOperandMutable(), taps.getTailMutable());
      } else if (auto contribution = dyn_cast<chunk::ContributeOp>(op);
                 contribution && !sparing && getOperation().getChunk() > 1) {
        roundValues(contribution);
      }
    });
    // Widened inputs that only products used.
    getOperation().walk([](arith::ExtFOp extension) {
      if (extension.use_empty())
        extension.erase();
    });
  }

  /// What a value was before it was widened from the inputs' type; null where it was not.
  Value beforeWidening(Value value) {
    auto extension = value.getDefiningOp<arith::ExtFOp>();
    return extension && getElementTypeOrSelf(extension.getIn()) == inputType ? extension.getIn() : Value();
  }

  /// Takes what operands were before they were widened, if all of them were: rows and their tail are of one type.
  template <typename... Operand> void narrow(Operand &...operands) {
    if ((beforeWidening(operands.get()) && ...))
      (operands.set(beforeWidening(operands.get())), ...);
  }

  void round(OpOperand &operand) {
    auto type = cast<RankedTensorType>(operand.get().getType());
    if (type.getElementType() == inputType)
      return;
    if (Value narrow = beforeWidening(operand.get()))
      return operand.set(narrow);
    // Of numbers that came in the type the larger ones are found there.
    if (auto larger = operand.get().getDefiningOp<arith::MaximumFOp>())
      if (Value narrow = narrowed(larger))
        return operand.set(narrow);
    // What a look-back takes from outside of its body is the same in all tiles that it meets.
    Operation *user = operand.getOwner();
    if (auto lookback = dyn_cast<chunk::LookbackOp>(user->getParentOp());
        lookback && operand.get().getParentBlock() != user->getBlock())
      user = lookback;
    Value &known = rounded[{operand.get(), user->getBlock()}];
    if (!known) {
      OpBuilder builder(user);
      known = arith::TruncFOp::create(builder, operand.getOwner()->getLoc(), type.clone(inputType), operand.get());
    }
    operand.set(known);
  }

  /// Of a state that grows with the tokens and is exponentiated once it is read, and of what tables alone make, whose
  /// errors would be the same at every token, what rounding takes is multiplied, too.
  void multiplyRest(chunk::DotOp dot) {
    bool gains = (growsWithTokens(dot.getRight()) && isExponentiated(dot)) ||
                 (isOfTables(dot.getRight()) && !isOfConstants(dot.getRight()));
    if (sparing || !gains || getElementTypeOrSelf(dot.getRight()) == inputType)
      return;
    OpBuilder builder(dot);
    Location loc = dot.getLoc();
    auto type = cast<RankedTensorType>(dot.getRight().getType());
    Value operand = arith::TruncFOp::create(builder, loc, type.clone(inputType), dot.getRight());
    Value rest =
        arith::SubFOp::create(builder, loc, dot.getRight(), arith::ExtFOp::create(builder, loc, type, operand));
    rest = arith::TruncFOp::create(builder, loc, type.clone(inputType), rest);
    auto product = cast<chunk::DotOp>(builder.clone(*dot));
    product.getRightMutable().assign(rest);
    round(product.getLeftMutable());
    dot.getRightMutable().assign(operand);
    dot.getAddendMutable().assign(product);
  }

  /// Whether a value is a constant, or constants side by side, as the columns of which the gradient of a convolution's
  /// taps takes one each.
  static bool isOfConstants(Value value) {
    auto joined = value.getDefiningOp<chunk::ConcatOp>();
    return joined ? llvm::all_of(joined.getOperands(), isOfConstants) : matchPattern(value, m_Constant());
  }

  /// Whether a value is a state to which each chunk adds and which nothing makes smaller.
  bool growsWithTokens(Value value) {
    if (!isOfKind(value, chunk::ArgumentKind::State))
      return false;
    auto yield = cast<chunk::YieldOp>(getOperation().getBody().front().getTerminator());
    SmallVector<BlockArgument> states = getOperation().argumentsOf(chunk::ArgumentKind::State);
    Value next = yield.getStates()[llvm::find(states, value) - states.begin()];
    auto sum = next.getDefiningOp<chunk::DotOp>();
    return sum && sum.getAddend() == value;
  }

  /// The larger of an input and of a constant in the input's type, where that has the constant; else null.
  Value narrowed(arith::MaximumFOp larger) {
    Value input = beforeWidening(larger.getLhs());
    std::optional<APFloat> bound = exactBound(larger, inputType);
    if (!input || !bound)
      return {};
    Value &known = rounded[{larger.getResult(), larger->getBlock()}];
    if (!known) {
      OpBuilder builder(larger);
      auto type = cast<RankedTensorType>(input.getType());
      Value least = arith::ConstantOp::create(builder, larger.getLoc(), DenseElementsAttr::get(type, *bound));
      known = arith::MaximumFOp::create(builder, larger.getLoc(), input, least);
    }
    return known;
  }

  /// A fold has numbers of one type: what it multiplies is rounded and widened again. Weights of a softmax it makes
  /// itself.
  void roundValues(chunk::ContributeOp contribution) {
    chunk::Fold fold = cast<chunk::LookbackOp>(contribution->getParentOp()).getFold();
    if (fold == chunk::Fold::Divergence)
      return;
    OpBuilder builder(contribution);
    for (OpOperand &operand : contribution.getGivenMutable()) {
      if (fold == chunk::Fold::Softmax && operand.getOperandNumber() == 0)
        continue;
      auto type = cast<RankedTensorType>(operand.get().getType());
      if (beforeWidening(operand.get()))
        continue;
      Value narrow = builder.createOrFold<arith::TruncFOp>(contribution.getLoc(), type.clone(inputType), operand.get());
      operand.set(arith::ExtFOp::create(builder, contribution.getLoc(), type, narrow));
    }
  }

  bool isSpared(Operation *op) {
    if (auto dot = dyn_cast<chunk::DecayDotOp>(op))
      return cast<RankedTensorType>(dot.getAmount().getType()).getRank() > 1;
    if (isa<chunk::DecayMixOp>(op))
      return true;
    auto dot = dyn_cast<chunk::DotOp>(op);
    if (!dot)
      return false;
    bool isRead =
        isOfKind(dot.getLeft(), chunk::ArgumentKind::State) || isOfKind(dot.getRight(), chunk::ArgumentKind::State);
    return isOfTables(dot.getLeft()) || isOfTables(dot.getRight()) || (isRead && isExponentiated(dot));
  }
  bool isOfKind(Value value, chunk::ArgumentKind kind) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && argument.getOwner() == getOperation().getBlock() &&
           getOperation().getArgument(argument.getArgNumber()).getKind() == kind;
  }
  /// Whether the numbers are made of tables and constants alone.
  bool isOfTables(Value value) {
    SmallVector<Value> pending = {value};
    for (DenseSet<Value> seen; !pending.empty();) {
      Value next = pending.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      if (Operation *op = next.getDefiningOp())
        llvm::append_range(pending, op->getOperands());
      else if (!isOfKind(next, chunk::ArgumentKind::Table))
        return false;
    }
    return true;
  }
  /// Whether the sums, or those that they are added to, reach an exponential one by one.
  static bool isExponentiated(Value sums) {
    SmallVector<Value> pending = {sums};
    for (DenseSet<Value> seen; !pending.empty();) {
      Value next = pending.pop_back_val();
      if (!seen.insert(next).second)
        continue;
      for (OpOperand &use : next.getUses()) {
        Operation *user = use.getOwner();
        if (isa<math::ExpOp, math::Exp2Op>(user))
          return true;
        bool isAddend = isa<chunk::DotOp>(user) && use.getOperandNumber() == 2;
        if (isAddend || isa<arith::ArithDialect>(user->getDialect()) || isa<chunk::CausalOp, chunk::MaskOp>(user))
          pending.push_back(user->getResult(0));
      }
    }
    return false;
  }
  static std::string spell(Type type) {
    std::string name;
    llvm::raw_string_ostream(name) << type;
    return name;
  }

  Type inputType;
  /// One rounding for all uses in a block, which stands before the first.
  DenseMap<std::pair<Value, Block *>, Value> rounded;
};
} // namespace
