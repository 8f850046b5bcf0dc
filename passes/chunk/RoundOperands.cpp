//===- RoundOperands.cpp - Operands of products in the inputs' type -------===//

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
      if (auto dot = dyn_cast<chunk::DotOp>(op)) {
        round(dot.getLeftMutable());
        round(dot.getRightMutable());
      } else if (auto dot = dyn_cast<chunk::DecayDotOp>(op); dot && (channelDecays || isOfTokens(dot.getAmount()))) {
        round(dot.getQueryMutable());
        round(dot.getKeyMutable());
      }
    });
    // Widened inputs that only products used.
    getOperation().walk([](arith::ExtFOp extension) {
      if (extension.use_empty())
        extension.erase();
    });
  }

  void round(OpOperand &operand) {
    auto type = cast<RankedTensorType>(operand.get().getType());
    if (type.getElementType() == inputType)
      return;
    if (auto extension = operand.get().getDefiningOp<arith::ExtFOp>();
        extension && getElementTypeOrSelf(extension.getIn()) == inputType) {
      operand.set(extension.getIn());
      return;
    }
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

  static bool isOfTokens(Value amount) { return cast<RankedTensorType>(amount.getType()).getRank() == 1; }
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
