//===- LowerToVector.cpp - Chunk kernels to vector code for a CPU ---------===//

#include "codegen/cpu/KernelLowering.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Dialect/X86Vector/X86VectorDialect.h"
#include "passes/Passes.h"

using namespace mlir;
using namespace stretto;

namespace stretto {
#define GEN_PASS_DEF_LOWERTOVECTOR
#include "passes/Passes.h.inc"
} // namespace stretto

/// fp64 where any tensor is fp64, else fp32.
static FloatType computeType(chunk::KernelOp kernel) {
  auto isDouble = [](Type type) { return getElementTypeOrSelf(type).isF64(); };
  WalkResult result = kernel.walk([&](Operation *op) {
    return llvm::any_of(op->getResultTypes(), isDouble) ? WalkResult::interrupt() : WalkResult::advance();
  });
  if (result.wasInterrupted() || llvm::any_of(kernel.getBlock()->getArgumentTypes(), isDouble))
    return Float64Type::get(kernel.getContext());
  return Float32Type::get(kernel.getContext());
}

/// Totals by two mixes, which on a CPU are made of the same numbers up to a rounding of sums.
static void expandTotals(chunk::KernelOp kernel) {
  kernel.walk([](chunk::DecayTotalsOp op) {
    OpBuilder builder(op);
    auto [ofQueries, ofKeys] = op.mix(builder, op.getQuery(), op.getKey());
    auto times = [&](Value rows, Value mixed) -> Value {
      return arith::MulFOp::create(builder, op.getLoc(), rows, mixed);
    };
    op->replaceAllUsesWith(ValueRange{times(op.getQuery(), ofQueries), times(op.getKey(), ofKeys)});
    op.erase();
  });
}

/// Inverses by substitution in the rows of the identity.
static void expandInverses(chunk::KernelOp kernel) {
  kernel.walk([](chunk::InverseOp op) {
    OpBuilder builder(op);
    op.replaceAllUsesWith(op.solve(builder));
    op.erase();
  });
}

namespace {
struct LowerToVector : stretto::impl::LowerToVectorBase<LowerToVector> {
  using LowerToVectorBase::LowerToVectorBase;

  void runOnOperation() override {
    if (vectorBits != 256 && vectorBits != 512) {
      getOperation().emitError("the option vector-bits of ")
          << getArgument() << " is " << vectorBits << ", expected 256 or 512";
      return signalPassFailure();
    }
    if ((bf16Dot || bf16Tiles) && vectorBits != 512) {
      getOperation().emitError("the option ")
          << (bf16Dot ? "bf16-dot" : "bf16-tiles") << " of " << getArgument() << " needs vectors of 512 bits";
      return signalPassFailure();
    }
    cpu::Machine machine = {vectorBits, vectorBits == 512 ? 32 : 16, bf16Dot, bf16Tiles};
    for (auto kernel : llvm::make_early_inc_range(getOperation().getOps<chunk::KernelOp>())) {
      expandTotals(kernel);
      expandInverses(kernel);
      cpu::KernelLowering lowering(kernel, computeType(kernel), machine);
      FailureOr<func::FuncOp> function = lowering.lower();
      if (failed(function))
        return signalPassFailure();
      if (lowering.hasIndependentChunks())
        (*function)->setAttr("stretto.independent_chunks", UnitAttr::get(kernel.getContext()));
      StringAttr symbol = kernel.getSymNameAttr();
      kernel.erase();
      function->setSymNameAttr(symbol);
      (*function)->setAttr("stretto.scratch_bytes",
                           Builder(symbol.getContext()).getI64IntegerAttr(lowering.scratchBytes()));
    }
    // The host fills tables, from what the chunk level says of them; code reads only memory.
    for (auto table : llvm::make_early_inc_range(getOperation().getOps<chunk::TableOp>()))
      table.erase();
  }
};
} // namespace
