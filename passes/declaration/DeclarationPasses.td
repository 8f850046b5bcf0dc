//===- DeclarationPasses.td - Passes over declarations ------------*- tablegen -*-===//
#ifndef STRETTO_PASSES_DECLARATION_DECLARATIONPASSES
#define STRETTO_PASSES_DECLARATION_DECLARATIONPASSES

include "mlir/Pass/PassBase.td"

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

def Differentiate : Pass<"stretto-differentiate", "::mlir::ModuleOp"> {
  let summary = "Adds to each declaration the declaration of its gradient";
  let description = [{
    `@f_backward`, marked `gradient`, takes the arguments of `@f` and, in `d_o` (`d_o0`, `d_o1`, ... of several), the cotangents of its
    results; its results are the gradients of the rows of `@f`, in order. Gradients of what has no place among rows are
    final entries of its state: `d_S` that of the initial value of a state `S`, and in the same way of scans and tails,
    `d_w` that of a parameter `w`, for each sequence. The initial value of `d_S` is the cotangent of the final value of
    `S`. Where several operations share a tail, further parts of its gradient are in `d_x_tail.1` and so on.

    With `wanted` only the gradients of these arguments, and of the initial values of these entries of the state, are
    computed, in the order of the declaration; what nobody wants is not there, and `wanted` stands among the attributes.
    The gradient of a tail leaves with those of rows, which all are there then.
    Results that `zero` counts have no cotangent: it is 0. What follows from that is left out, too. With `saved` what
    a call saves for its gradient are arguments behind the cotangents: results that the gradient takes as `result_0`,
    ..., and rows as `saved_0`, ..., which `saved` counts.

    The rules are those of passes/declaration/Adjoint.h. A declaration whose alternatives are not decided, or that is a
    gradient itself, is refused.

    ```mlir
    stretto.variant @decayed(%k: !K, %v: !V, %g: !number) -> !V {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %g : !S, !number
      %S2 = stretto.write %S1, %k, %v : !S, !K, !V
      %o = stretto.read %S2, %k along "K" : !S, !K -> !V
      stretto.yield %o : !V
    }
    ```
    => `@decayed` and
    ```mlir
    stretto.variant @decayed_backward(%k: !K, %v: !V, %g: !number, %d_o: !V) -> (!K, !V, !number) attributes {gradient} {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %g : !S, !number
      %S2 = stretto.write %S1, %k, %v : !S, !K, !V
      %dS0 = stretto.state "d_S" : !dS
      %dk0 = stretto.read %S2, %d_o along "V" : !S, !V -> !K
      %dS1 = stretto.write %dS0, %k, %d_o : !dS, !K, !V
      %dk1 = stretto.read %dS1, %v along "V" : !dS, !V -> !K
      %dk = arith.addf %dk0, %dk1 : !K
      %dv = stretto.read %dS1, %k along "K" : !dS, !K -> !V
      %pair = stretto.pair %S1, %dS1 : !S, !dS -> !number
      %left = arith.cmpf ogt, %g, %minus_infinity : !number
      %dg = arith.select %left, %pair, %zero : !condition, !number
      %dS2 = stretto.decay %dS1 log %g : !dS, !number
      stretto.yield %dk, %dv, %dg : !K, !V, !number
    }
    ```
  }];
  let options = [
    ListOption<"wanted", "wanted", "std::string", "arguments and entries of the state; none: all">,
    ListOption<"zero", "zero", "int64_t", "positions of results whose cotangent is 0">,
    Option<"saved", "saved", "bool", "false", "take what the call has saved (stretto-save-rows)">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def SaveRows : Pass<"stretto-save-rows", "::stretto::VariantOp"> {
  let summary = "Has a program leave rows that its gradient would find again";
  let description = [{
    A few numbers of each token that are made of others, as what a softmax or a normalised state is divided by, become
    results behind the program's own, which `saved` counts: a call whose gradient will be asked for runs this program,
    and the gradient, which takes them and perhaps the results, reads no token and no state for them again
    (passes/declaration/SaveRows.h). They have the type of arithmetic in memory. A program whose gradient would have to
    keep other rows all the same (passes/declaration/KeptRows.h) is left as it is. Works on specialised declarations.

    ```mlir
    %kl, %lse_t, %lse_s = stretto.lookback divergence from %first { ... } : !number, !number, !number
    stretto.yield %kl : !number
    ```
    =>
    ```mlir
    %kl, %lse_t, %lse_s = stretto.lookback divergence from %first { ... } : !number, !number, !number
    stretto.yield %kl, %lse_t, %lse_s : !number, !number, !number
    ```
  }];
}

def SplitFeatures : Pass<"stretto-split-features", "::mlir::ModuleOp"> {
  let summary = "Splits a declaration with feature maps into these and the rest";
  let description = [{
    A row that is made of a product of a row and a matrix of parameters, that no state has a part in, and that meets
    states or makes results, is a feature (passes/declaration/Features.h). A program with features becomes several:
    `@f_features_0`, ..., whose results they are, one for each head, and `@f_rest`, which has the arguments `feature_0`,
    ... for them. Features that are made of one costly row are found by one part, all with `together`. Beside them,
    logarithms of decays that cost something to find are found so. Each part has the arguments that it uses, and
    `stretto.gate` marks those of which decays are made: they may have a wider type than other rows. A program that
    looks back at rows is left as it is. Works on programs whose options are fixed.

    ```mlir
    stretto.variant @f(%q: !D, %k: !D, %v: !V, %w: !matrix) -> !V {
      %y = stretto.contract %k, %w : !D, !matrix -> !F
      %phi = stretto.softmax %y : !F
      %0 = stretto.state "S" : !state
      %1 = stretto.write %0, %phi, %v : !state, !F, !V
      %o = stretto.read %1, %q along "F" : !state, !F -> !V
      stretto.yield %o : !V
    }
    ```
    =>
    ```mlir
    stretto.variant @f_features_0(%k: !D, %w: !matrix) -> !F {
      %y = stretto.contract %k, %w : !D, !matrix -> !F
      %phi = stretto.softmax %y : !F
      stretto.yield %phi : !F
    }
    stretto.variant @f_rest(%q: !D, %v: !V, %feature_0: !F) -> !V {
      %0 = stretto.state "S" : !state
      %1 = stretto.write %0, %feature_0, %v : !state, !F, !V
      %o = stretto.read %1, %q along "F" : !state, !F -> !V
      stretto.yield %o : !V
    }
    ```
  }];
  let options = [Option<"together", "together", "bool", "false", "One part finds all features">];
}

def Resume : Pass<"stretto-resume", "::stretto::VariantOp"> {
  let summary = "Makes of a declaration one whose first tokens are those that windows hold";
  let description = [{
    A call that continues from windows is one on the tokens of these and on its own, where the former ask for nothing:
    they are there for others to look back to. Two rows say which tokens are the call's: `first` is the position of its
    first, `last` that of its last. For tokens before `first` decays and writes change nothing, and scans stay what they
    are. A state that is read at an earlier time is given as of that time of the token before `first`: what those before
    have written it holds, what those behind have written is written again. As it is left, as of the time of `last`, it
    is a state of its own, `S.last`. Of a tail, the rows of tokens that windows hold come from a row, `x_tail_rows`, as
    they may differ from what a window says of these tokens; it begins with those before. So gradients of windows are those of their tokens, and cotangents and gradients of
    states enter and leave as always. Works on declarations whose alternatives are decided.

    ```mlir
    %t = stretto.position
    %at = arith.subf %t, %w : !number_per_1
    %S0 = stretto.state "S" : !S
    %S1 = stretto.write %S0, %k, %v : !S, !K, !V
    %o = stretto.read %S1, %q along "K" at %at : !S, !K -> !V
    ```
    =>
    ```mlir
    %one = stretto.constant 1.0 : !number_per_1
    %before = arith.subf %first, %one : !number_per_1
    %given = arith.subf %before, %w : !number_per_1
    %left = arith.subf %last, %w : !number_per_1
    %is_lacking = arith.cmpf ogt, %t, %given : !number_per_1
    %is_left = arith.cmpf ole, %t, %left : !number_per_1
    %is_both = arith.andi %is_lacking, %is_left : !condition_per_1
    %L0 = stretto.state "S.last" : !S
    %S0 = stretto.state "S" : !S
    %k_lacking = arith.select %is_lackings, %k, %zero : !conditions, !K
    %S1 = stretto.write %S0, %k_lacking, %v : !S, !K, !V
    %k_both = arith.select %is_boths, %k, %zero : !conditions, !K
    %L1 = stretto.write %L0, %k_both, %v : !S, !K, !V
    %o = stretto.read %S1, %q along "K" at %at : !S, !K -> !V
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def SplitStates : Pass<"stretto-split-states", "::stretto::VariantOp"> {
  let summary = "Divides states whose columns, or rows, are written and read in parts";
  let description = [{
    Where every row that is written is put together from parts on the state's second axis, and every read is taken
    apart at the same places, the parts never meet: each becomes a state of its own, which remains those columns of the
    entry. Values and their normaliser are the usual case: the state's width stays a power of two, and the extra column
    becomes a vector. In a gradient rows that are put together from the same parts are also read along that axis, and two
    states that are divided alike are paired: these are sums of what the parts give. Reads at an earlier time are divided
    as well, `stretto-merge-lookbacks` joins again what they meet. Works on declarations of known sizes.

    ```mlir
    %S0 = stretto.state "S" : !stretto.state<K : 16, "V + 1" : 9>
    %v1 = stretto.concat %v, %one : !V, !number -> !V_plus_1
    %S1 = stretto.write %S0, %k, %v1 : !stretto.state<K : 16, "V + 1" : 9>, !K, !V_plus_1
    %r = stretto.read %S1, %q along "K" : !stretto.state<K : 16, "V + 1" : 9>, !K -> !V_plus_1
    %num = stretto.slice %r from "0" : !V_plus_1 -> !V
    %den = stretto.slice %r from "V" : !V_plus_1 -> !number
    ```
    =>
    ```mlir
    %S0 = stretto.state "S" of "S" column 0 columns 9 : !stretto.state<K : 16, V : 8>
    %z0 = stretto.state "S.8" of "S" column 8 columns 9 : !stretto.state<K : 16, 1 : 1>
    %S1 = stretto.write %S0, %k, %v : !stretto.state<K : 16, V : 8>, !K, !V
    %z1 = stretto.write %z0, %k, %one : !stretto.state<K : 16, 1 : 1>, !K, !number
    %num = stretto.read %S1, %q along "K" : !stretto.state<K : 16, V : 8>, !K -> !V
    %den = stretto.read %z1, %q along "K" : !stretto.state<K : 16, 1 : 1>, !K -> !number
    ```

    With `rows` the same is done to rows, where features that are put together would have a wide matrix begin in the middle
    of a fragment: of `1 + K + K*K` rows the last `K*K` become a state of their own, `row 17 rows 273` of the entry, whose
    sides are multiples of 16; what is narrow stays together.
  }];
  let options = [Option<"rows", "rows", "bool", "false", "Whether rows are divided, too">];
}

def Chunk : Pass<"stretto-chunk", "::mlir::ModuleOp"> {
  let summary = "Derives what a chunk of tokens does from what one token does";
  let description = [{
    Turns every specialised variant into a `chunk.kernel`: rows become tiles of `chunk` tokens, tables become
    `chunk.table`s, and reads of a state become matrix products over the chunk. With the decay `a` of one token, a read
    of the state after decay and write is

        o_i = (q_i a_1..a_i) S + sum_{j<=i} (q_i a_{j+1}..a_i . k_j) v_j

    and the state at the end `(a_1..a_C) S + sum_j (k_j a_{j+1}..a_C)^T v_j`; passes/declaration/ChunkRecurrence.h has the general case.
    Written rows that depend on a read of their own state are solved for (passes/declaration/ChunkFeedback.h).
    Rows beyond the end of a sequence do nothing to a state: where that does not follow from inputs that load as 0,
    they are masked. A variant without such a form is refused at the operation that prevents it ([R14]).

    A gradient becomes several kernels (passes/declaration/GradientParts.h). `@f_backward_checkpoints` walks forward: it
    leaves the gradients that are found so, and keeps what `@f_backward` asks for, which meets chunks in reverse and has
    it as checkpoints. What heads share has a part for each of them (passes/declaration/ChunkCotangent.h). Rows of later
    tokens that the gradient of a look-back meets, and that are made of other tokens, are outputs `kept.0`, ... of the
    first kernel and inputs of the second (passes/declaration/KeptRows.h). With `divide-gradients`, states of reverse
    time are carried by `@f_backward_cotangents` where nothing else is carried for them, and are checkpoints of
    `@f_backward`, too. With `independent-chunks` as well `@f_backward` carries nothing: what is added up over all
    tokens, such as the gradient of a parameter, `@f_backward_sums` adds up, of rows that are outputs `kept.n` of
    `@f_backward`; it also carries what convolutions and delays hand on to earlier tokens, and leaves the results
    that are made of that; and rows `kept.0`, ... that depend on states are found by `@f_backward_rows`, of each
    chunk from its checkpoints. So the
    gradient of a parameter that keys are multiplied with, of which a state is made, has

    ```mlir
    chunk.kernel @f_backward_sums chunk 16 reverse(input %k: tensor<16x8xf32>, input %kept.0: tensor<16x4xf32>,
        state %d_w: tensor<8x4xf32>, valid %valid: index) -> () {
      %0 = chunk.dot %k, %kept.0 transpose_left add %d_w
        : tensor<16x8xf32>, tensor<16x4xf32> -> tensor<8x4xf32>
      chunk.yield next %0 : tensor<8x4xf32>
    }
    ```

    With `segments` a variant becomes kernels over segments that are walked side by side: beside `@f`, which computes the
    results of a segment from the states at its start, `@f_writes` finds what its tokens do to a state, and `@f_starts`
    what each segment begins with; where there are convolutions or delays, `@f_tails` finds the rows that they look back
    to, and where there are scans, `@f_totals` and `@f_total_starts` the totals that segments begin with
    (passes/declaration/ChunkSegments.h). So the state of simple GLA with one decay for each token has

    ```mlir
    chunk.kernel @f_starts chunk 16 segments turns(checkpoint %S.left: tensor<32x64xf32>,
        checkpoint %S.decay: tensor<32xf32>, state %S: tensor<32x64xf32>, valid %valid: index)
        -> (S: tensor<32x64xf32> checkpoint) {
      %factor = math.exp %S.decay : tensor<32xf32>
      %factors = chunk.broadcast %factor along rows : tensor<32xf32> to tensor<32x64xf32>
      %kept = arith.mulf %S, %factors : tensor<32x64xf32>
      %next = arith.addf %kept, %S.left : tensor<32x64xf32>
      chunk.yield %S next %next : tensor<32x64xf32>, tensor<32x64xf32>
    }
    ```

    Of a gradient the walks that carry states take segments, `@f_checkpoints` and `@f_cotangents`, or `@f` where that
    carries them; `@f_cotangent_writes` finds what the tokens of a segment do to the states of reverse time, and
    `@f_cotangent_starts`, in reverse, what each segment begins with at its end. The forward states begin with what
    the kernels above find.

    ```mlir
    stretto.variant @linear(%q: !K, %k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.write %S0, %k, %v : !S, !K, !V
      %o = stretto.read %S1, %q along "K" : !S, !K -> !V
      stretto.yield %o : !V
    }
    ```
    with `chunk=16 element=f32` =>
    ```mlir
    chunk.kernel @linear chunk 16 (input %q: tensor<16x32xf32>, input %k: tensor<16x32xf32>,
        input %v: tensor<16x64xf32>, state %S: tensor<32x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
      %s = chunk.dot %q, %S : tensor<16x32xf32>, tensor<32x64xf32> -> tensor<16x64xf32>
      %qk = chunk.dot %q, %k transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
      %p = chunk.causal %qk : tensor<16x16xf32>
      %o = chunk.dot %p, %v add %s : tensor<16x16xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
      %next = chunk.dot %k, %v transpose_left add %S : tensor<16x32xf32>, tensor<16x64xf32> -> tensor<32x64xf32>
      chunk.yield %o next %next : tensor<16x64xf32>, tensor<32x64xf32>
    }
    ```
  }];
  let options = [
    Option<"chunk", "chunk", "int64_t", "64", "Tokens of a chunk">,
    Option<"element", "element", "std::string", "\"f32\"", "Type of inputs, parameters and outputs in memory">,
    ListOption<"elements", "elements", "std::string", "Types of arguments that differ, as in g=f32,dt=f32">,
    Option<"divideGradients", "divide-gradients", "bool", "false", "States of reverse time have a kernel of their own">,
    Option<"independentChunks", "independent-chunks", "bool", "false",
           "Of divided gradients only states are carried, and sums by a kernel of their own">,
    Option<"segments", "segments", "bool", "false", "Kernels whose segments are walked side by side">,
  ];
  let dependentDialects = ["::stretto::chunk::ChunkDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def Step : Pass<"stretto-step", "::mlir::ModuleOp"> {
  let summary = "Makes a kernel over single tokens of what one token does";
  let description = [{
    Turns every specialised variant into a `chunk.kernel` whose chunks have one token: what decodes, and what runs a
    variant that has no chunk form. Operations stand in the order of the declaration: a decay scales the state's matrix,
    a write adds an outer product, a read is a product with a row, so that nothing is refused that runs forwards in
    time. A state of one column is carried as a vector, and so is the total of a scan. A look-back, or a read of the
    state of an earlier token, is refused at the operation ([R14]).

    ```mlir
    stretto.variant @delta(%k: !K, %v: !V) -> !V attributes {group = {H = 1 : i64}} {
      %S0 = stretto.state "S" : !S
      %r = stretto.read %S0, %k along "K" : !S, !K -> !V
      %e = arith.subf %v, %r : !V
      %S1 = stretto.write %S0, %k, %e : !S, !K, !V
      stretto.yield %r : !V
    }
    ```
    with `element=f32` =>
    ```mlir
    chunk.kernel @delta chunk 1 (input %k: tensor<1x32xf32>, input %v: tensor<1x64xf32>, state %S: tensor<32x64xf32>,
        valid %n: index) -> (o: tensor<1x64xf32>) {
      %r = chunk.dot %k, %S : tensor<1x32xf32>, tensor<32x64xf32> -> tensor<1x64xf32>
      %e = arith.subf %v, %r : tensor<1x64xf32>
      %next = chunk.dot %k, %e transpose_left add %S : tensor<1x32xf32>, tensor<1x64xf32> -> tensor<32x64xf32>
      chunk.yield %r next %next : tensor<1x64xf32>, tensor<32x64xf32>
    }
    ```
  }];
  let options = [
    Option<"element", "element", "std::string", "\"f32\"", "Type of inputs, parameters and outputs in memory">,
    ListOption<"elements", "elements", "std::string", "Types of arguments that differ, as in g=f32,dt=f32">,
  ];
  let dependentDialects = ["::stretto::chunk::ChunkDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

#endif // STRETTO_PASSES_DECLARATION_DECLARATIONPASSES
