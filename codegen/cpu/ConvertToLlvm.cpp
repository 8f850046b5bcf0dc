//===- ConvertToLlvm.cpp - What is left beside vectors, at once -----------===//
//
// Each dialect has a pass of its own to LLVM, and each of these walks over all that there is, with casts between the
// types of what it converted and the rest. Their patterns together take one walk.
//
//===----------------------------------------------------------------------===//

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVM.h"
#include "mlir/Conversion/IndexToLLVM/IndexToLLVM.h"
#include "mlir/Conversion/LLVMCommon/ConversionTarget.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "passes/Passes.h"

using namespace mlir;

namespace stretto {
#define GEN_PASS_DEF_CONVERTTOLLVM
#include "passes/Passes.h.inc"
} // namespace stretto

namespace {
struct ConvertToLlvm : stretto::impl::ConvertToLlvmBase<ConvertToLlvm> {
  void runOnOperation() override {
    LowerToLLVMOptions options(&getContext());
    options.useBarePtrCallConv = true; // kernels have the addresses of what they are given
    LLVMTypeConverter types(&getContext(), options);
    RewritePatternSet patterns(&getContext());
    // What LLVM has no operation for goes to the C library.
    const PatternBenefit ofLlvm = 2, ofLibrary = 1;
    populateMathToLLVMConversionPatterns(types, patterns, /*approximateLog1p=*/true, ofLlvm);
    populateMathToLibmConversionPatterns(patterns, ofLibrary);
    arith::populateCeilFloorDivExpandOpsPatterns(patterns);
    arith::populateArithToLLVMConversionPatterns(types, patterns);
    populateFinalizeMemRefToLLVMConversionPatterns(types, patterns);
    populateFuncToLLVMConversionPatterns(types, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(types, patterns);
    index::populateIndexToLLVMConversionPatterns(types, patterns);
    ub::populateUBToLLVMConversionPatterns(types, patterns);
    LLVMConversionTarget target(getContext());
    if (failed(applyPartialConversion(getOperation(), target, std::move(patterns))))
      signalPassFailure();
  }
};
} // namespace
