//===- AbsorbFactors.cpp - Constant factors of decays ---------------------===//

#include "passes/chunk/AbsorbFactors.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "passes/chunk/Scaled.h"
#include <cmath>

using namespace mlir;
using namespace stretto;

namespace {

class Absorber {
public:
  explicit Absorber(chunk::KernelOp kernel) : kernel(kernel), builder(kernel.getContext()) {}

  void run() {
    shareScaled();
    SmallVector<Operation *> products;
    kernel.walk([&](arith::MulFOp op) { products.push_back(op); });
    for (Operation *op : products) {
      std::optional<Scaled> whole = Scaled::of(op->getResult(0));
      if (!whole || cast<RankedTensorType>(whole->tile.getType()).getRank() != 2)
        continue;
      factor = whole->factor;
      if (factor.getValueAsDouble() <= 0 || !absorbs(whole->tile))
        continue;
      op->getResult(0).replaceAllUsesWith(absorbed(whole->tile));
      op->erase();
    }
  }

private:
  /// `(c x) y = x (c y)` where `c y` is asked for by itself.
  void shareScaled() {
    SmallVector<arith::MulFOp> products;
    kernel.walk([&](arith::MulFOp op) { products.push_back(op); });
    DenseSet<Operation *> erased;
    for (arith::MulFOp op : products) {
      if (erased.contains(op))
        continue;
      for (auto [mine, others] : {std::pair(op.getLhs(), op.getRhs()), {op.getRhs(), op.getLhs()}}) {
        std::optional<Scaled> own = Scaled::of(mine);
        Operation *wanted = own ? scaledUse(others, own->factor, op) : nullptr;
        if (!wanted)
          continue;
        builder.setInsertionPointAfterValue(others);
        Value scaled = Scaled::make(builder, op.getLoc(), others, own->factor.getValue());
        wanted->getResult(0).replaceAllUsesWith(scaled);
        erased.insert(wanted);
        wanted->erase();
        op->setOperands({own->tile, scaled});
        break;
      }
    }
  }

  /// What else multiplies a tile by a factor, and nothing else.
  static Operation *scaledUse(Value tile, FloatAttr factor, Operation *except) {
    for (Operation *user : tile.getUsers())
      if (user != except && user->getNumResults() == 1 && user->getBlock() == except->getBlock())
        if (std::optional<Scaled> scaled = Scaled::of(user->getResult(0)))
          if (scaled->tile == tile && scaled->factor == factor)
            return user;
    return nullptr;
  }

  static bool isRepeated(Value tile) {
    auto repeated = tile.getDefiningOp<chunk::BroadcastOp>();
    return repeated && !matchPattern(repeated.getOperand(), m_Constant());
  }

  /// The repeated exponents of rows of a matrix of decays.
  static chunk::BroadcastOp exponentsOf(Value tile) {
    auto power = tile.getDefiningOp<math::Exp2Op>();
    auto difference = power ? power.getOperand().getDefiningOp<arith::SubFOp>() : arith::SubFOp();
    return difference ? difference.getLhs().getDefiningOp<chunk::BroadcastOp>() : chunk::BroadcastOp();
  }

  /// Whether numbers of tokens may have the factor in place of a tile for which one operation asks.
  bool absorbs(Value tile) {
    if (isRepeated(tile))
      return true;
    if (exponentsOf(tile))
      return llvm::all_of(tile.getUsers(), [&](Operation *user) { return isScaled(user); });
    if (!tile.hasOneUse())
      return false;
    if (auto product = tile.getDefiningOp<arith::MulFOp>())
      return absorbs(product.getLhs()) || absorbs(product.getRhs());
    if (auto mask = tile.getDefiningOp<chunk::CausalOp>())
      return absorbs(mask.getOperand());
    auto dot = tile.getDefiningOp<chunk::DotOp>();
    return dot && absorbs(dot.getLeft()) && (!dot.getAddend() || absorbs(dot.getAddend()));
  }

  /// Whether what a product of decays goes on to has the factor.
  bool isScaled(Operation *op) {
    while (isa<arith::MulFOp, chunk::CausalOp, chunk::DotOp>(op)) {
      if (std::optional<Scaled> scaled = Scaled::of(op->getResult(0)))
        return scaled->factor == factor;
      if (!op->hasOneUse())
        return false;
      Operation *user = *op->user_begin();
      if (auto dot = dyn_cast<chunk::DotOp>(user); dot && dot.getLeft() != op->getResult(0))
        return false;
      op = user;
    }
    return false;
  }

  /// The tile with the factor.
  Value absorbed(Value tile) {
    Operation *op = tile.getDefiningOp();
    builder.setInsertionPoint(op);
    if (isRepeated(tile)) {
      auto repeated = cast<chunk::BroadcastOp>(op);
      Value numbers = Scaled::make(builder, op->getLoc(), repeated.getOperand(), factor.getValue());
      return chunk::BroadcastOp::create(builder, op->getLoc(), tile.getType(), numbers, repeated.getAlong());
    }
    if (chunk::BroadcastOp exponents = exponentsOf(tile))
      return withExponents(tile, exponents);
    if (auto product = dyn_cast<arith::MulFOp>(op)) {
      unsigned side = absorbs(product.getLhs()) ? 0 : 1;
      op->setOperand(side, absorbed(op->getOperand(side)));
    } else {
      op->setOperand(0, absorbed(op->getOperand(0)));
      if (auto dot = dyn_cast<chunk::DotOp>(op); dot && dot.getAddend())
        dot.getAddendMutable().assign(absorbed(dot.getAddend()));
    }
    return tile;
  }

  Value withExponents(Value tile, chunk::BroadcastOp exponents) {
    Value &known = decays[{tile, factor}];
    if (known)
      return known;
    auto power = tile.getDefiningOp<math::Exp2Op>();
    auto difference = power.getOperand().getDefiningOp<arith::SubFOp>();
    Location loc = tile.getLoc();
    Value numbers = exponents.getOperand();
    auto type = cast<RankedTensorType>(numbers.getType());
    TypedAttr logs = FloatAttr::get(type.getElementType(), std::log2(factor.getValueAsDouble()));
    Value constant = arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, logs));
    Value sums = arith::AddFOp::create(builder, loc, numbers, constant);
    sums = chunk::BroadcastOp::create(builder, loc, exponents.getType(), sums, exponents.getAlong());
    sums = arith::SubFOp::create(builder, loc, sums, difference.getRhs());
    return known = math::Exp2Op::create(builder, loc, sums);
  }

  chunk::KernelOp kernel;
  OpBuilder builder;
  FloatAttr factor;
  DenseMap<std::pair<Value, Attribute>, Value> decays;
};
} // namespace

void stretto::absorbFactors(chunk::KernelOp kernel) { Absorber(kernel).run(); }
