//===- Passes.td - Every pass of the compiler --------------------------*- tablegen -*-===//
//
// One pass, one .cpp, one lit test, one name. The folder of a pass is the level it works on: declaration, chunk,
// kernel. Pipelines.cpp holds the order.
//
//===----------------------------------------------------------------------===//

#ifndef STRETTO_PASSES
#define STRETTO_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// Declarations
//===----------------------------------------------------------------------===//

def Specialize : Pass<"stretto-specialize", "::stretto::VariantOp"> {
  let summary = "Fixes sizes, options, head ratios and optional arguments";
  let description = [{
    Chooses one program of those that a declaration describes. Conditions and choices take the value given or their
    default, alternatives that they decide are inlined, optional arguments that are absent go. Sizes that are given make
    types static; with sizes, numeric options take their defaults too. What is not given stays symbolic: with options
    alone, the result is the readable program of that alternative. Head counts leave their ratios in the attribute
    `group`: how many heads of the finest set share one head of each. Two ways to the same program give the same text.

    ```mlir
    stretto.variant @f(%x: !K, %D: !parameter {stretto.optional}) -> !K options(gate = true, scale = "K**-0.5") {
      %gate = stretto.option "gate" : i1
      %y = scf.if %gate -> !K {
        %s = stretto.option "scale" : !K
        %z = arith.mulf %x, %s : !K
        scf.yield %z : !K
      } else {
        scf.yield %x : !K
      }
      stretto.yield %y : !K
    }
    ```
    with `dims=K=64 heads=H=8 absent=D` =>
    ```mlir
    !K = tensor<64xf64, #stretto.row<K>>
    stretto.variant @f(%x: !K) -> !K attributes {group = {H = 1 : i64}} {
      %cst = arith.constant dense<1.250000e-01> : !K
      %0 = arith.mulf %x, %cst : !K
      stretto.yield %0 : !K
    }
    ```
  }];
  let options = [
    ListOption<"dims", "dims", "std::string", "Sizes, as in K=128,V=64">,
    ListOption<"heads", "heads", "std::string", "Head counts, as in H=8,G=2">,
    ListOption<"optionValues", "options", "std::string", "Options, as in scale=0.5,decay=abs">,
    ListOption<"absent", "absent", "std::string", "Optional arguments that are not given">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // STRETTO_PASSES
