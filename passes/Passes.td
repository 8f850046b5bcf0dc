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

def SplitStates : Pass<"stretto-split-states", "::stretto::VariantOp"> {
  let summary = "Divides states whose columns are written and read in parts";
  let description = [{
    Where every row that is written is put together from parts on the state's second axis, and every read is taken
    apart at the same places, the parts never meet: each becomes a state of its own, which remains those columns of the
    entry. Values and their normaliser are the usual case: the state's width stays a power of two, and the extra column
    becomes a vector. Works on declarations of known sizes.

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
  let statistics = [Statistic<"numSplit", "states-split", "States that were divided">];
}

def Chunk : Pass<"stretto-chunk", "::mlir::ModuleOp"> {
  let summary = "Derives what a chunk of tokens does from what one token does";
  let description = [{
    Turns every specialised variant into a `chunk.kernel`: rows become tiles of `chunk` tokens, tables become
    `chunk.table`s, and reads of a state become matrix products over the chunk. With the decay `a` of one token, a read
    of the state after decay and write is

        o_i = (q_i a_1..a_i) S + sum_{j<=i} (q_i a_{j+1}..a_i . k_j) v_j

    and the state at the end `(a_1..a_C) S + sum_j (k_j a_{j+1}..a_C)^T v_j`; docs/chunk-level.md has the general case.
    Rows beyond the end of a sequence do nothing to a state: where that does not follow from inputs that load as 0,
    they are masked. A variant without such a form is refused at the operation that prevents it ([R14]).

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
  ];
  let dependentDialects = ["::stretto::chunk::ChunkDialect", "::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

//===----------------------------------------------------------------------===//
// Chunk kernels
//===----------------------------------------------------------------------===//

def SliceValues : Pass<"stretto-slice-values", "::stretto::chunk::KernelOp"> {
  let summary = "Divides the value axis of a kernel among slices";
  let description = [{
    Fewer heads than processors leave some idle. The columns of outputs, and of all that they come from, are divided
    among `slices` copies of the kernel, of which each does everything else too: scores, decays, a normaliser. The
    values must meet their columns only one by one, as elements and as columns of a product's right operand; an
    operation that mixes columns, such as a norm over the output, is an error that names it.

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
  }];
  let options = [Option<"slices", "slices", "int64_t", "1", "Slices of the value axis">];
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
    func.func @sum(%block: memref<18xi64>, %begin: index, %end: index, %scratch: memref<10240xi8>) {
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
  let options = [Option<"vectorBits", "vector-bits", "int64_t", "512", "bits of a vector register: 256 or 512">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def ExpandMath : Pass<"stretto-expand-math"> {
  let summary = "elementary functions on vectors as polynomials";
  let description = [{
    `math.exp` and `math.exp2` (fp32 and fp64), `math.log` and `math.log1p` (fp32) on vectors become polynomials with an
    error of about one unit in the last place, right for infinities, NaN and denormal results. Conversions from and to
    bf16 become integer operations.

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
  let options = [Option<"scalef", "scalef", "bool", "true", "use AVX512's scalef on vectors of 512 bits">];
}

#endif // STRETTO_PASSES
