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
    Results that `zero` counts have no cotangent: it is 0. What follows from that is left out, too.

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
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
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
  let summary = "Divides states whose columns are written and read in parts";
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
  }];
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
    `@f_backward`, too. With `independent-chunks` as well `@f_backward` carries nothing: what is added up over all tokens,
    such as the gradient of a parameter, `@f_backward_sums` adds up, of rows that are outputs `kept.n` of `@f_backward`; and
    rows `kept.0`, ... that depend on states are found by `@f_backward_rows`, of each chunk from its checkpoints. So the
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

//===----------------------------------------------------------------------===//
// CPU (codegen/cpu)
//===----------------------------------------------------------------------===//

def LowerToVector : Pass<"stretto-lower-to-vector", "::mlir::ModuleOp"> {
  let summary = "chunk kernels to functions of vector code for a CPU";
  let description = [{
    Each `chunk.kernel` becomes a function over work items (sequence, head, slice) that walks the chunks of a sequence
    with its states in scratch. Its arguments are the argument block, the first item and the one behind the last, and
    scratch of `stretto.scratch_bytes`, aligned to 64 bytes.

    Before:
    ```mlir
    chunk.kernel @sum chunk 16 (input %x: tensor<16x32xf32>, state %s: tensor<32x32xf32>, valid %n: index)
        -> (y: tensor<16x32xf32>) {
      %y = chunk.dot %x, %s : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
      chunk.yield %y next %s : tensor<16x32xf32>, tensor<32x32xf32>
    }
    ```
    after, in part:
    ```mlir
    func.func @sum(%block: memref<20xi64>, %begin: index, %end: index, %scratch: memref<10240xi8>) {
      scf.for %item = %begin to %end step %c1 {
        scf.for %token = %c0 to %tokens step %c16 {
          scf.for %row = %c0 to %c16 step %c8 {
            %sums:16 = scf.for %k = %c0 to %c32 step %c1 iter_args(%s0 = %zero, ...) -> (vector<16xf32>, ...) {
              %right = vector.load %state[%k, %c0] : memref<32x32xf32>, vector<16xf32>
              %left = memref.load %x[%row, %k] : memref<16x32xf32>
              %lanes = vector.broadcast %left : f32 to vector<16xf32>
              %next = vector.fma %lanes, %right, %s0 : vector<16xf32>
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "512", "bits of a vector register: 256 or 512">,
    Option<"bf16Dot", "bf16-dot", "bool", "false", "form products of bf16 operands with AVX512_BF16, from pairs">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect", "::mlir::x86vector::X86VectorDialect"];
}

def ExpandMath : Pass<"stretto-expand-math"> {
  let summary = "elementary functions on vectors as polynomials";
  let description = [{
    `math.exp`, `math.exp2`, `math.expm1`, `math.tanh` and `math.log1p` (fp32 and fp64) and `math.log` (fp32) on vectors
    become polynomials with an error of about one unit in the last place, right for infinities, NaN and denormal
    results; a quotient by a power of two becomes a product. Conversions from and to bf16 become integer operations, or,
    to bf16 and where there is one, the instruction that rounds a register.

    Before:
    ```mlir
    %y = math.exp %x : vector<16xf32>
    ```
    after, in part:
    ```mlir
    %n = math.roundeven %1 : vector<16xf32>
    %r = math.fma %n, %minus_log_2, %x : vector<16xf32>
    %p = math.fma %c5, %r, %c4 : vector<16xf32>
    %y = x86vector.avx512.mask.scalef %p, %n, %p, %all, %rounding : vector<16xf32>
    ```
  }];
  let options = [
    Option<"scalef", "scalef", "bool", "true", "use AVX512's scalef on vectors of 512 bits">,
    Option<"bf16", "bf16", "bool", "false", "round vectors to bf16 with AVX512_BF16">
  ];
}

//===----------------------------------------------------------------------===//
// Chunk kernels
//===----------------------------------------------------------------------===//

def DivideMatrices : Pass<"stretto-divide-matrices", "::stretto::chunk::KernelOp"> {
  let summary = "Takes wide states and parameters in panels of columns";
  let description = [{
    A product reads a matrix as a whole, which a block's memory may not hold. Here states, parameters and checkpoints
    with more than `columns` columns, and at least as many rows, become panels of so many columns each, where one column
    would remain of fewer for the last two: arguments of their own, which remain those columns of the state's entry or of the parameter. A product with a matrix becomes the
    products with its panels, side by side, or summed over them where their columns are summed over; what changes a
    matrix changes its panels one by one. Rows of tokens stay whole, and so do arguments that slices divide.

    ```mlir
    chunk.kernel @f chunk 16 (input %q: tensor<16x64xf32>, parameter %w: tensor<64x64xf32>,
                              state %S: tensor<64x64xf32>, valid %n: index) -> (o: tensor<16x64xf32>) {
      %x = chunk.dot %q, %w : tensor<16x64xf32>, tensor<64x64xf32> -> tensor<16x64xf32>
      %o = chunk.dot %x, %S transpose_right : tensor<16x64xf32>, tensor<64x64xf32> -> tensor<16x64xf32>
      chunk.yield %o next %S : tensor<16x64xf32>, tensor<64x64xf32>
    }
    ```
    with `columns=32` =>
    ```mlir
    chunk.kernel @f chunk 16 (input %q: tensor<16x64xf32>,
                              parameter %w: tensor<64x32xf32> of "w" column 0 columns 64,
                              parameter %w$32: tensor<64x32xf32> of "w" column 32 columns 64,
                              state %S: tensor<64x32xf32> of "S" column 0 columns 64,
                              state %S$32: tensor<64x32xf32> of "S" column 32 columns 64, valid %n: index)
        -> (o: tensor<16x64xf32>) {
      %x0 = chunk.dot %q, %w : tensor<16x64xf32>, tensor<64x32xf32> -> tensor<16x32xf32>
      %x1 = chunk.dot %q, %w$32 : tensor<16x64xf32>, tensor<64x32xf32> -> tensor<16x32xf32>
      %o0 = chunk.dot %x0, %S transpose_right : tensor<16x32xf32>, tensor<64x32xf32> -> tensor<16x64xf32>
      %o1 = chunk.dot %x1, %S$32 transpose_right add %o0 : tensor<16x32xf32>, tensor<64x32xf32> -> tensor<16x64xf32>
      chunk.yield %o1 next %S, %S$32 : tensor<16x64xf32>, tensor<64x32xf32>, tensor<64x32xf32>
    }
    ```
    (with the columns of tiles that were put together taken from where they come).
  }];
  let options = [Option<"columns", "columns", "int64_t", "128", "Columns of a panel, at most">];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def SliceValues : Pass<"stretto-slice-values", "::mlir::ModuleOp"> {
  let summary = "Divides the value axis of a kernel among slices";
  let description = [{
    Fewer heads than processors leave some idle. The columns of outputs, and of all that they come from, are divided
    among `slices` copies of the kernel, of which each does everything else too: scores, decays, a normaliser. Values
    meet their columns one by one, as elements and as columns of a product's right operand. What is summed over the
    columns, each slice has a part of, and of all that follows from it by sums and by products with numbers that every
    slice has; what every slice has whole is divided by their number where it is added to a part. An operation that mixes
    columns otherwise, such as a norm over the output, is an error that names it, and so is a result of which there are
    parts.

    Of a gradient the columns of a state are divided, of the first for which that can be done, beginning with the
    largest. Its rows, states and gradients of parameters may be left in parts: the gradient is linear in the
    cotangents. The kernel that keeps checkpoints for it divides those that are divided there; and of segments that are
    walked side by side all kernels the states that the one with the results divides.

    ```mlir
    chunk.kernel @f chunk 16 (input %x: tensor<16x8xf32>, input %v: tensor<16x64xf32>, valid %n: index)
        -> (o: tensor<16x64xf32>) {
      %p = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      %o = chunk.dot %p, %v : tensor<16x16xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
      chunk.yield %o : tensor<16x64xf32>
    }
    ```
    with `slices=2` =>
    ```mlir
    chunk.kernel @f chunk 16 slices 2 (input %x: tensor<16x8xf32>, input %v: tensor<16x32xf32> sliced, valid %n: index)
        -> (o: tensor<16x32xf32> sliced) {
      %p = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      %o = chunk.dot %p, %v : tensor<16x16xf32>, tensor<16x32xf32> -> tensor<16x32xf32>
      chunk.yield %o : tensor<16x32xf32>
    }
    ```

    The gradient of a query is a sum over the values' columns:
    ```mlir
    %d = chunk.dot %d_o, %S transpose_right : tensor<16x64xf32>, tensor<8x64xf32> -> tensor<16x8xf32>
    %d16 = arith.truncf %d : tensor<16x8xf32> to tensor<16x8xbf16>
    chunk.yield %d16 : tensor<16x8xbf16>
    ```
    with `slices=2` => of an output `d_q: tensor<16x8xf32> partial`
    ```mlir
    %d = chunk.dot %d_o, %S transpose_right : tensor<16x32xf32>, tensor<8x32xf32> -> tensor<16x8xf32>
    chunk.yield %d : tensor<16x8xf32>
    ```
  }];
  let options = [Option<"slices", "slices", "int64_t", "1", "Slices of the value axis">];
}

//===----------------------------------------------------------------------===//
// Chunks, for a GPU
//===----------------------------------------------------------------------===//

def ExpandDecay : Pass<"stretto-expand-decay", "::stretto::chunk::KernelOp"> {
  let summary = "Decides how products of decay factors are formed";
  let description = [{
    Rows and states are multiplied by exponentials of sums of their own logarithms (or products of their factors).
    Products of queries with decayed keys are multiplied by the matrix of decays where all channels share it. Where
    each has its own, queries and keys are rescaled by the decay from the chunk's middle, which makes a plain product;
    whether the factors and the operands that this needs are in range is tested once per chunk, and where they are not,
    the products are formed one by one, marked `exact`. Those of a walk over states in bf16, which are rescaled for reads
    and writes, too, come by halves of blocks of 2, 4, ... tokens instead: a query of a second half and a key of its
    first are rescaled by what each has decayed from the middle, a factor of 1 at most, and one product has all pairs
    that meet in blocks of one size. A `decay_mix` is formed alike: its rows are rescaled before the
    plain product, and its sums after it. The range is e^60, e^8 for operands of fp16, and e^20 for fp32,
    whose rounding of longer sums would show. Where all channels share
    a factor and inputs have 16 bits, every factor is the exponential of a difference of one token's sum and another's:
    their rounding does not show. A logarithm below -110, whose factor fp32 does not have, counts as that, so that
    differences exist. Logarithms of channels are added up by a product with ones in a triangle, which rounds neither:
    those of an input in the type of operands as they are, others as the sum of two of that type.

    ```mlir
    %p = chunk.decay_dot %q, %k log %g : tensor<64x32xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
    ```
    =>
    ```mlir
    %b = chunk.accumulate sum %g : tensor<64x32xf32>
    %middle = chunk.row %b at 31 : tensor<64x32xf32> -> tensor<32xf32>
    ...
    %good = chunk.within %up, %down, %q1, %k1 limits [...]
    %p = scf.if %good -> (tensor<64x64xf32>) {
      %s = chunk.dot %q1, %k1 transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
      %c = chunk.causal %s : tensor<64x64xf32>
      scf.yield %c : tensor<64x64xf32>
    } else {
      %e = chunk.decay_dot %q, %k log %g {exact} : ...
      scf.yield %e : tensor<64x64xf32>
    }
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect"];
}

def MergeLookbacks : Pass<"stretto-merge-lookbacks", "::stretto::chunk::KernelOp"> {
  let summary = "Makes one look-back of several that share a factor";
  let description = [{
    Sums over the same tokens that have the same weights, or outer products with the same left rows, become one
    look-back with the results of all: its tiles come once, and what all of them need of a tile is computed once. So it
    is with values and their normaliser, which are parts of one state that is read at an earlier time.

    ```mlir
    %y = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x8xf32>) {
      %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      chunk.contribute %s, %v_j : tensor<16x16xf32>, tensor<16x8xf32>
    } : tensor<16x8xf32>
    %z = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
      %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      chunk.contribute %s, %ones : tensor<16x16xf32>, tensor<16x1xf32>
    } : tensor<16x1xf32>
    ```
    =>
    ```mlir
    %y, %z = chunk.lookback sum from %f : tensor<16xf32>
        past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x8xf32>) {
      %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
      chunk.contribute %s, %v_j, %s, %ones : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x1xf32>
    } : tensor<16x8xf32>, tensor<16x1xf32>
    ```
  }];
}

def SinkFactors : Pass<"stretto-sink-factors", "::stretto::chunk::KernelOp"> {
  let summary = "Moves constant factors behind products";
  let description = [{
    A product of scaled rows of an input is the scaled product of the rows, which need not be scaled, rounded and stored
    then. A factor moves on through masks and products of elements, and behind a sum of which both terms have it. In a
    kernel with inputs of fp16 it moves no further than behind the first product: scores without it may be too large.

    ```mlir
    %s = arith.mulf %q, %scale : tensor<64x32xf32>
    %p = chunk.dot %s, %k transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
    ```
    =>
    ```mlir
    %d = chunk.dot %q, %k transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
    %p = arith.mulf %d, %scale : tensor<64x64xf32>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def RoundOperands : Pass<"stretto-round-operands", "::stretto::chunk::KernelOp"> {
  let summary = "Rounds operands of products to the type of the inputs";
  let description = [{
    In a kernel with inputs of 16 bits, operands of products are rounded to their type, as matrix units want them; sums
    stay wide, and so does everything that is carried. An operand that was widened from that type is taken as it was, and
    the larger of that and of a constant which the type has is found there.
    What a look-back contributes to products is rounded, too, and stays in its wide type. A convolution takes operands
    that were widened as they were, too, and rounds nothing.

    A CPU that multiplies bf16 does that beside fp32, and rounds only where it gains: it asks for the one `element`, and
    is `sparing`. What stays as it is: a `decay_dot` with a factor for each channel and a `decay_mix`, which are no
    products of matrices there; a product with numbers of tables alone, whose errors would be the same at every token; and what is read from a
    state and then exponentiated, as an error of a large score is a relative one of its weight.

    ```mlir
    %q1 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
    %o = chunk.dot %q1, %S : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
    ```
    =>
    ```mlir
    %S1 = arith.truncf %S : tensor<32x32xf32> to tensor<32x32xbf16>
    %o = chunk.dot %q, %S1 : tensor<16x32xbf16>, tensor<32x32xbf16> -> tensor<16x32xf32>
    ```
  }];
  let options = [
    Option<"element", "element", "std::string", "\"\"", "round to this type only: bf16 or f16; default: both">,
    Option<"sparing", "sparing", "bool", "false", "leave products of which less is gained than lost">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def ShortenLifetimes : Pass<"stretto-shorten-lifetimes", "::stretto::chunk::KernelOp"> {
  let summary = "Orders the operations of a kernel so that few tiles are kept at a time";
  let description = [{
    A kernel that meets chunks in reverse has more tiles than a GPU has registers. Tiles that cost little, inputs that are
    widened and scaled, are made anew where they are used. Each output is computed as a whole, with all that it is made
    of, before the next is begun, first what needs the most room on the way; what is carried comes last. Kernels that
    walk forwards have fewer tiles: they keep their order, in which the assembler finds more to do at the same time,
    unless `forwards` asks for room, too: where warpgroups form products, chunks of more tokens are worth more.

    ```mlir
    %a = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
    %b = math.exp %a : tensor<16x32xf32>
    %c = arith.addf %b, %a : tensor<16x32xf32>
    ```
    =>
    ```mlir
    %a = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
    %b = math.exp %a : tensor<16x32xf32>
    %d = arith.extf %x : tensor<16x32xbf16> to tensor<16x32xf32>
    %c = arith.addf %b, %d : tensor<16x32xf32>
    ```
  }];
  let options = [Option<"forwards", "forwards", "bool", "false", "Kernels that walk forwards with products of 16-bit operands, too">];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

def FoldOverChunks : Pass<"stretto-fold-over-chunks", "::mlir::ModuleOp"> {
  let summary = "Makes of each kernel what a block does, chunk after chunk";
  let description = [{
    One block takes one work item and walks the chunks of its sequence. Inputs come through channels two tiles deep, so
    that a chunk is read from memory while the one before it is computed; states are carried in registers. The roles
    of a function are eight warps that do everything, or four where the states are small (`warps` overrides).

    Where there are no states, chunks do not depend on each other, and each is a work item of its own. A look-back becomes
    a loop over the chunks that the ranges of this one's tokens reach. Their tiles come through channels of their own,
    those of chunks before the first token from windows, and the loop carries what the fold has so far.

    With `in-place` a kernel over single tokens is given one token of each sequence, and states are updated where they
    lie: rows and states are loaded to registers, all at once, and states stored when every thread has read its own.
    Its warps are so many that each thread has the entries of states that memory is to be asked for at a time.

    With `compute-tables` a kernel evaluates what tables without a period say of its tokens: where a call continues
    from a state, their positions are known on the device alone. With `from-start` no sequence continues: windows hold
    nothing that could be met, and look-backs that are `continued` meet nothing.

    ```mlir
    chunk.kernel @f chunk 16 (input %x: tensor<16x32xbf16>, state %S: tensor<32x32xf32>, valid %n: index)
        -> (o: tensor<16x32xbf16>) {
      ...
      chunk.yield %o next %T : tensor<16x32xbf16>, tensor<32x32xf32>
    }
    ```
    =>
    ```mlir
    kernel.func @f(%x: !kernel.view<tensor<16x32xbf16>>, %S: !kernel.view<tensor<32x32xf32>>,
                   %o: !kernel.view<tensor<16x32xbf16>>) chunk 16 roles [#kernel.role<all, 4>] {
      %channel = kernel.channel depth 2 : !kernel.channel<tensor<16x32xbf16>>
      kernel.send %x at %c0 to %channel
      %S0 = kernel.load %S
      %last = scf.for %c = %c0 to %chunks step %c1 iter_args(%S1 = %S0) {
        kernel.await
        kernel.send %x at %next to %channel
        %tile = kernel.receive %channel at %c
        ...
        kernel.store %o1 to %o at %c
        scf.yield %T
      }
      kernel.save %last to %S
      kernel.return
    }
    ```
    and a look-back
    ```mlir
    %m, %l, %acc = chunk.lookback softmax from %first : tensor<16xf32> past(%k_j = %k : tensor<16x32xf32>, ...) {
      ...
      chunk.contribute %s, %v_j
    }
    ```
    =>
    ```mlir
    %begin, %end = kernel.span %first at %c : tensor<16xf32>
    kernel.send %k at %begin to %ring
    %m, %l, %acc = scf.for %j = %begin to %end step %c1 iter_args(%m0 = %lowest, %l0 = %zero, %acc0 = %zeros) {
      kernel.await
      kernel.send %k at %next to %ring
      %k_j = kernel.receive %ring at %j
      ...
      %pairs = kernel.in_range %first of %c in %j : tensor<16xf32> -> tensor<16x16xi1>
      %scores = arith.select %pairs, %s, %lowest
      ...
      scf.yield %m1, %l1, %acc1
    }
    ```
  }];
  let options = [Option<"warps", "warps", "int64_t", "0", "Warps of a block; 0 chooses">,
                 Option<"warpgroups", "warpgroups", "bool", "false", "Four warps form products together">,
                 Option<"inPlace", "in-place", "bool", "false", "One token of each sequence, whose states are updated">,
                 Option<"computeTables", "compute-tables", "bool", "false",
                        "Compute tables that have other numbers at every position, which only the device knows">,
                 Option<"fromStart", "from-start", "bool", "false", "All sequences begin with their first tokens">];
  let dependentDialects = ["::stretto::kernel::KernelDialect", "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def AssignLayouts : Pass<"stretto-assign-layouts", "::stretto::kernel::FuncOp"> {
  let summary = "Decides where each tile is";
  let description = [{
    Matrices are in registers in the fragments of a matrix product, vectors in the layout of what they are reduced
    from or combined with; operands of products are in shared memory, or stay in registers where a left operand's
    fragments agree: with `repeat-left` scores that are nothing but left operands are formed by all warps that want them,
    rather than by one and exchanged, and parts that are put together, one for each warpgroup, by both, so that sums over
    their rows cross no warps (`stretto-merge-choices` leaves each its own). A convolution that products alone take is
    where threads walk down columns. Matrices that are put together from parts of one shape stay where the parts are, and
    so does what is made of them alone. Matrices of single tokens are where a walk over their entries wants them. Where a
    value is wanted in another place than it is, a `kernel.convert` takes it there, in front of loops that do not make it;
    numbers that are repeated over a matrix are repeated there. One row of several goes to shared memory, from where each
    thread reads what it wants, and vectors that are made of such rows number by number are made again in each place.

    ```mlir
    %c = chunk.dot %a, %b : tensor<16x32xbf16>, tensor<32x16xbf16> -> tensor<16x16xf32>
    ```
    =>
    ```mlir
    %a1 = kernel.convert %a : tensor<16x32xbf16, #registers> -> tensor<16x32xbf16, #shared>
    %b1 = kernel.convert %b : tensor<32x16xbf16, #registers1> -> tensor<32x16xbf16, #shared1>
    %c = chunk.dot %a1, %b1 : tensor<16x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<16x16xf32, #registers2>
    ```
  }];
  let options = [Option<"readAgain", "read-again", "bool", "false",
                        "Tiles of 16 bits in shared memory are read for each operation that asks for them, as in a gradient">,
                 Option<"repeatLeft", "repeat-left", "bool", "false",
                        "What products take from the left, and parts that are put together, are computed by all warps that divide their columns">];
}

def SelectProducts : Pass<"stretto-select-products", "::stretto::kernel::FuncOp"> {
  let summary = "Decides which instruction forms each matrix product";
  let description = [{
    Products of 16-bit operands are formed by `mma.sync`, whose fragments each warp loads, or, on a chip whose four
    warps of a group form them together, by `wgmma`: where the result has a multiple of 64 rows, four warps divide them,
    and operands lie in shared memory as that instruction reads them, in any orientation, or on the left in registers.
    Tiles of eight columns are left to single warps, which wait for less. Wider operands are multiplied number by number. What a product says already is kept.

    ```mlir
    %c = chunk.dot %a, %b : tensor<64x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<64x16xf32, #registers>
    ```
    =>
    ```mlir
    %c = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>}
        : tensor<64x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<64x16xf32, #registers>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def OverlapProducts : Pass<"stretto-overlap-products", "::stretto::kernel::FuncOp"> {
  let summary = "Lets other work run beside products of warpgroups";
  let description = [{
    Operations stand in the order of how many products they wait for, one after the other, as far as registers reach: so
    what does not depend on a product, and what other products need or add to, is done while it runs. A `kernel.finish` waits for
    it where its result is first asked for, but by another product that adds to it.

    ```mlir
    %p = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %n = arith.negf %p : tensor<64x64xf32>
    %e = math.exp %x : tensor<64x64xf32>
    ```
    =>
    ```mlir
    %p = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %e = math.exp %x : tensor<64x64xf32>
    %done = kernel.finish %p : tensor<64x64xf32>
    %n = arith.negf %done : tensor<64x64xf32>
    ```
  }];
  let options = [Option<"registers", "registers", "int64_t", "240", "How many a thread may have for tiles">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def SelectCopies : Pass<"stretto-select-copies", "::stretto::kernel::FuncOp"> {
  let summary = "Decides which channels the memory system fills";
  let description = [{
    On a chip that copies boxes of tensors by itself (TMA), the tiles of chunks of an input come that way where rows are
    a multiple of 16 bytes and a loop of the function receives them, one chunk after another, or look-backs do, which
    count the turns. Others are copied by all threads, piece by piece, and so are rows of a window, which is a ring. What a channel says already is kept. Warps store the fragments of products in shared memory
    by whole matrices where the chip has an instruction for that, and outputs by way of shared memory, in pieces of 16
    bytes.

    ```mlir
    %q_tiles = kernel.channel depth 2 : <tensor<64x64xbf16, #shared>>
    ```
    =>
    ```mlir
    %q_tiles = kernel.channel bulk depth 2 : <tensor<64x64xbf16, #shared>>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
}

def SetTilesAside : Pass<"stretto-set-tiles-aside", "::stretto::kernel::FuncOp"> {
  let summary = "Leaves tiles in shared memory while nobody reads them, where registers do not suffice";
  let description = [{
    Tiles that are used now and much later take registers in between. Where more are wanted than a thread may have, those
    that rest for the longest at that time are set aside, in shared memory that the kernel leaves free: each thread
    leaves its own part and takes it back before the next use. The assembler would leave them in memory of the device.

    ```mlir
    %a = math.exp %x : tensor<64x64xf32>
    // much else
    %b = arith.addf %a, %y : tensor<64x64xf32>
    ```
    =>
    ```mlir
    %a = math.exp %x : tensor<64x64xf32>
    %aside = kernel.set_aside %a offset 32768 : tensor<64x64xf32>
    // much else
    %back = kernel.take_back %aside : tensor<64x64xf32>
    %b = arith.addf %back, %y : tensor<64x64xf32>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The one whose shared memory is taken">,
                 Option<"registers", "registers", "int64_t", "0", "How many a thread may have for tiles; 0: of walks back as many as ptxas was seen to keep">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def PlanSharedMemory : Pass<"stretto-plan-shared-memory", "::stretto::kernel::FuncOp"> {
  let summary = "Decides where in shared memory tiles and scratch regions are";
  let description = [{
    Every tile has memory of its own where that suffices, and bulk channels are as deep as it allows, up to 4 tiles; with
    less than 2 they are bulk channels no more. Where registers suffice for several blocks on a multiprocessor memory is to
    suffice for them, too. Where memory does not suffice, outputs are stored without a stage and tiles that are never
    needed at the same time share it, first with what is needed on a condition alone. Then channels become one tile deep,
    those of the largest tiles first: the next tile is sent when this one has been read, or, where that does not do either,
    when its whole chunk has been computed. At last what is carried is stored for each operation that reads it, and the largest tiles are sent where they
    are read, which waits for them. Offsets that stand in the IR already are kept. An error names the bytes that are needed and that the chip has.

    ```mlir
    %b = kernel.convert %a : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    ```
    =>
    ```mlir
    %b = kernel.convert %a offset 1024 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
}

def SendAhead : Pass<"stretto-send-ahead", "::stretto::kernel::FuncOp"> {
  let summary = "Sends the tiles of bulk channels as far ahead as these are deep";
  let description = [{
    Counts the turns of a loop that receives tiles of bulk channels. Before it, tiles are sent for all turns but the one
    that takes the last place of the ring; in each turn, the tile that takes the place of the turn before. Nothing is sent
    for turns that there are not. Threads wait for all copies of a turn only where other channels want it.

    ```mlir
    kernel.send %q at %c0 to %q_tiles : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
    scf.for %c = %c0 to %chunks step %c1 {
      kernel.await
      %next = arith.addi %c, %c1 : index
      kernel.send %q at %next to %q_tiles : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
      %tile = kernel.receive %q_tiles at %c : <tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    ```
    =>
    ```mlir
    %any = arith.cmpi slt, %c0, %chunks : index
    scf.if %any {
      kernel.send %q at %c0 to %q_tiles turn %c0 : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
    }
    kernel.barrier
    scf.for %c = %c0 to %chunks step %c1 {
      %ahead = arith.addi %c, %c1 : index
      %more = arith.cmpi slt, %ahead, %chunks : index
      scf.if %more {
        kernel.send %q at %ahead to %q_tiles turn %ahead : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
      }
      %tile = kernel.receive %q_tiles at %c turn %c : <tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def InsertBarriers : Pass<"stretto-insert-barriers", "::stretto::kernel::FuncOp"> {
  let summary = "Orders the accesses of different threads to shared memory";
  let description = [{
    Puts a `kernel.barrier` before an operation that touches bytes of shared memory which another has written, or
    writes bytes that another has read, since the last barrier. Where a product of warpgroups is still reading them, its
    `kernel.finish` comes before the barrier. What a loop sends to bulk channels moves behind the first barrier of an
    iteration: all have read then what it replaces.

    ```mlir
    %b = kernel.convert %a offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    %c = chunk.dot %b, %b : tensor<16x16xbf16, #shared>, tensor<16x16xbf16, #shared> -> tensor<16x16xf32, #registers>
    ```
    =>
    ```mlir
    %b = kernel.convert %a offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    kernel.barrier
    %c = chunk.dot %b, %b : tensor<16x16xbf16, #shared>, tensor<16x16xbf16, #shared> -> tensor<16x16xf32, #registers>
    ```
  }];
}

def LowerToThreads : Pass<"stretto-lower-to-threads", "::mlir::ModuleOp"> {
  let summary = "Makes of what a block does what one of its threads does";
  let description = [{
    A tile in registers becomes this thread's registers of it, plain numbers; a product becomes `mma.sync` and
    `ldmatrix` instructions, or a `kernel.warpgroup_product`, or multiplications and additions for fp32. Loops and conditions stay structured: they
    are the same for all threads, or guard stores.

    ```mlir
    %y = arith.addf %x, %x : tensor<16x16xf32, #registers>
    ```
    with four registers =>
    ```mlir
    %y0 = arith.addf %x0, %x0 : f32
    %y1 = arith.addf %x1, %x1 : f32
    %y2 = arith.addf %x2, %x2 : f32
    %y3 = arith.addf %x3, %x3 : f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
}

def MergeChoices : Pass<"stretto-merge-choices"> {
  let summary = "Computes once what either of two choices of a warp is";
  let description = [{
    Where a warp takes one of two numbers that are computed alike, and nothing else asks for either, it chooses what they
    are computed from instead, and computes one: of a tile that is put together from parts each warp forms its own part.
    Numbers that lanes exchange may be chosen first, since all threads of a warp make the same choice.

    ```mlir
    %a = math.exp %x : f32
    %b = math.exp %y : f32
    %z = arith.select %second, %b, %a {kernel.choice_of_warp} : f32
    ```
    =>
    ```mlir
    %c = arith.select %second, %y, %x {kernel.choice_of_warp} : f32
    %z = math.exp %c : f32
    ```
  }];
  let statistics = [Statistic<"merged", "merged", "Operations in place of two">];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def LowerWarpgroups : Pass<"stretto-lower-warpgroups"> {
  let summary = "Writes the instructions of warpgroups, for NVPTX";
  let description = [{
    `kernel.warpgroup_product` and `kernel.warpgroup_wait` become inline assembly, whose sums are operands that stay in
    their registers. So nothing comes between the instructions of a product, nor touches its sums.

    ```mlir
    %r:4 = "kernel.warpgroup_wait"(%s0, %s1, %s2, %s3) <{pending = 0 : i64}> : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
    ```
    =>
    ```mlir
    %r = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,0,1,2,3" %s0, %s1, %s2, %s3
        : (f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ExpandDeviceMath : Pass<"stretto-expand-device-math"> {
  let summary = "Makes arithmetic of elementary functions, for NVPTX";
  let description = [{
    LLVM's back end for NVPTX has few functions and aborts on the others.

    ```mlir
    %y = math.exp %x : f32
    ```
    =>
    ```mlir
    %0 = arith.mulf %x, %log2e : f32
    %y = llvm.intr.exp2(%0) : (f32) -> f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"];
}

#endif // STRETTO_PASSES
