//===- ChunkPasses.td - Passes over chunk kernels -----------------*- tablegen -*-===//
#ifndef STRETTO_PASSES_CHUNK_CHUNKPASSES
#define STRETTO_PASSES_CHUNK_CHUNKPASSES

include "mlir/Pass/PassBase.td"

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

def SeparatePairs : Pass<"stretto-separate-pairs", "::stretto::chunk::KernelOp"> {
  let summary = "Separates what crosses a token from the start of a chunk, and to its end, from pairs of its tokens";
  let description = [{
    What walks from token to token forms pairs of a chunk; what comes from its start and goes to its end are rows that
    decay, each on its own (`chunk.decay_pairs`).

    ```mlir
    %y = chunk.decay_pairs %q, %k, %p factor %f seen %s : tensor<64x32xf32>
           : tensor<64x32xf32>, tensor<64x64xf32>, tensor<64x32xf32>
    ```
    =>
    ```mlir
    %x = arith.mulf %q, %s : tensor<64x32xf32>
    %from = chunk.decay_mix %ones, %x factor %f transpose : tensor<64x64xf32>, tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x32xf32>
    %a = chunk.decay_from_start %from factor %f before : tensor<64x32xf32>, tensor<64x32xf32>
    %b = chunk.decay_pairs %q, %k, %p factor %f : tensor<64x32xf32>, tensor<64x64xf32>, tensor<64x32xf32>
    %y = arith.addf %a, %b : tensor<64x32xf32>
    ```
  }];
}

def ExpandDecay : Pass<"stretto-expand-decay", "::stretto::chunk::KernelOp"> {
  let summary = "Decides how products of decay factors are formed";
  let description = [{
    Rows and states are multiplied by exponentials of sums of their own logarithms (or products of their factors).
    Products of queries with decayed keys are multiplied by the matrix of decays where all channels share it. Where
    each has its own, queries and keys are rescaled by the decay from the chunk's middle, which makes a plain product;
    whether the factors and the operands that this needs are in range is tested once per chunk, and where they are not,
    the products are formed one by one, marked `exact`. In a walk over states in bf16 the same rows, rescaled around the
    chunk's end, serve for products, reads and writes; in a walk back, whose state is met at the chunk's end, around its
    start, and for the sums of all gradients, which are added to what is read of the state and scaled once. Columns of a
    state that are tiles of their own, as a normaliser is, decay with it, and meet the same rows. A state of reverse time that
    is only written has its start for an anchor, too. In chunks of 32 tokens and more exact forms of logarithms come by
    halves of blocks of 2, 4, ... tokens: a query of a second half and a key of its first are rescaled by what each has
    decayed from the middle, a factor of 1 at most, and one product has all pairs that meet in blocks of one size. A loop over sizes, from that of the chunk on, forms them all;
    where pairs within eight tokens are in range it ends before these. Sums over pairs, and totals of such sums, come
    from products with the weights of the pairs that meet, and are rescaled behind them; what solves systems, has several
    recurrences, or a normaliser beside its state in a walk back leaves no registers for that. A `decay_mix` is formed
    alike: its rows are rescaled before the plain product, and its sums after it. The range is e^60, e^8 for operands of fp16, and e^20 for fp32,
    whose rounding of longer sums would show. Where all channels share
    a factor and inputs have 16 bits, every factor is the exponential of a difference of one token's sum and another's:
    their rounding does not show. A logarithm below -110, whose factor fp32 does not have, counts as that, so that
    differences exist. Logarithms of channels are added up by a product with ones in a triangle, which rounds neither:
    those of an input in the type of operands as they are, others as the sum of two of that type. Not in a walk of a gradient,
    back or to keep states, where lanes of one warp have all tokens of a channel (`warps`), which then know the totals as
    well: what a segment decays by is one of them.

    With `within` rows of a walk over states in bf16 are rescaled whatever their range: there are no other forms, and a
    `chunk.expect` ends the walk where rows are out of it. Then logarithms of later tokens are added up, of which what
    keys and queries are multiplied by follows without a row that all tokens share, by threads that walk down columns.

    The gradient of factors of channels in bf16 (`chunk.decay_pairs`) is that of their logarithms, a sum over tokens of the
    same totals, divided by the factors where all of these are from 2^-8 to 1; where one is not it is formed in parts,
    exactly.

    The gradient of logarithms that decay a state behind its read, with inputs of bf16, is one sum over earlier tokens from
    the pairs of state and cotangent at the start of the chunk, of the totals that other gradients have, where sums stood to
    either side of a token. What the token itself has read is taken away, so that the cotangent has the rests of queries.

    Of bf16, whose 8 bits are fewer than those of rescaled rows, products multiply two parts: rows as they are rounded and
    what that takes of them. An output of one recurrence has the rests of keys and of scores, a gradient those of queries,
    keys, weights and scores, and no product has that of both rests. Kernels of several recurrences, or that solve systems
    of equations, have none.

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
  let options = [Option<"within", "within", "bool", "false",
                        "Rescale rows whatever their range, and expect it">,
                 Option<"warps", "warps", "int64_t", "0",
                        "Warps of a walk of a gradient whose warpgroups form products; 0: there are none">];
}

def DivideResults : Pass<"stretto-divide-results", "::mlir::ModuleOp"> {
  let summary = "Leaves what later tokens have a part in to a kernel of its own";
  let description = [{
    Of a gradient whose chunks are independent, a query's is made of the tokens that it looks back to, those of keys and
    values of the later ones that look back to them. Where the two have no product or look-back in common, they are
    two kernels, as in backward passes of attention: each has fewer tiles at a time, of its own chunk and of those that
    it meets, so that several blocks share a multiprocessor. Rows that both need are read twice, operations on single
    numbers that both need are repeated.

    ```mlir
    chunk.kernel @f chunk 16 reverse(input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %d_o: tensor<16x8xf32>, ...)
        -> (d_q: tensor<16x8xf32>, d_k: tensor<16x8xf32>) {
      %d_q = chunk.lookback sum ... past(%k_j = %k : tensor<16x8xf32>) { ... %d_o ... } : tensor<16x8xf32>
      %d_k = chunk.lookback sum ahead ... past(%q_i = %q : tensor<16x8xf32>, %d_i = %d_o : tensor<16x8xf32>) { ... } : tensor<16x8xf32>
      chunk.yield %d_q, %d_k : tensor<16x8xf32>, tensor<16x8xf32>
    }
    ```
    =>
    ```mlir
    chunk.kernel @f chunk 16 reverse earlier(...) -> (d_q: tensor<16x8xf32>) { ... }
    chunk.kernel @f_later chunk 16 reverse(...) -> (d_k: tensor<16x8xf32>) { ... }
    ```
  }];
}

def KeepWithResults : Pass<"stretto-keep-with-results", "::mlir::ModuleOp"> {
  let summary = "Leaves rows that are kept to the kernel of results that asks for them first";
  let description = [{
    Of a gradient that looks back, rows that are kept have a kernel of chunks of their own, which reads what the kernel
    of earlier results reads once more, and meets the same tokens. Where that asks for those of its own tokens alone, it
    finds them itself, and keeps them for the kernels behind it. It comes before the walk back then: not where it reads
    states of reverse time.

    ```mlir
    chunk.kernel @f_backward_rows chunk 16(input %q: tensor<16x8xf32>, ...) -> (kept.0: tensor<16xf32>) { ... }
    chunk.kernel @f_backward chunk 16 reverse earlier(input %q: tensor<16x8xf32>, input %kept.0: tensor<16xf32>, ...)
        -> (d_q: tensor<16x8xf32>) { ... }
    ```
    =>
    ```mlir
    chunk.kernel @f_backward chunk 16 reverse earlier(input %q: tensor<16x8xf32>, ...)
        -> (d_q: tensor<16x8xf32>, kept.0: tensor<16xf32>) { ... }
    ```
  }];
}

def ThinCheckpoints : Pass<"stretto-thin-checkpoints", "::mlir::ModuleOp"> {
  let summary = "Keeps checkpoints of every second chunk where all would take much memory";
  let description = [{
    A walk back asks for the states at the start of each chunk. Where registers hold few tokens, those of all chunks
    take more than two inputs do: 32 tokens of width 128 have rows of 8 KiB in 16 bits and a state of 32. What the walk
    forward does to the state of the chunk before takes one product, of tiles that come in the next turn anyway. So
    every second chunk has a checkpoint, and the walk forward stands between: the walk back finds the others by what
    that does. It is where the walk forward takes inputs that the walk back has, and nothing else, and no third kernel
    asks for the checkpoints.

    ```mlir
    chunk.kernel @f_checkpoints chunk 32(input %k: tensor<32x128xbf16>, ..., state %S: tensor<128x128xf32>, ...)
        -> (S: tensor<128x128xbf16> checkpoint) { ... }
    chunk.kernel @f chunk 32 reverse(input %k: tensor<32x128xbf16>, ..., checkpoint %S: tensor<128x128xbf16>, ...) ...
    ```
    =>
    ```mlir
    chunk.kernel @f chunk 32 reverse between @f_checkpoints(input %k: tensor<32x128xbf16>, ...) ...
    ```
  }];
}

def KeepStates : Pass<"stretto-keep-states", "::stretto::chunk::KernelOp"> {
  let summary = "Keeps the states at the start of each chunk, or of segments, for a gradient";
  let description = [{
    A walk forward that finds results has the states at the start of each chunk, which are what the walk back of a
    gradient asks for: where a call is recorded, its kernel keeps them as checkpoints, before its outputs, and the
    gradient walks forward no more. They have the type in which the gradient's own kernel would keep them: matrices that
    of inputs in bf16, all else that of arithmetic.

    A gradient whose walk forward finds more than states walks all the same, and where it does so in segments side by
    side asks only for what these begin with: with `of-segments` states are kept as they are, at the start of as many
    chunks as the launch says.

    ```mlir
    chunk.kernel @f chunk 64 (input %q: tensor<64x32xbf16>, state %S: tensor<32x16xf32>, valid %n: index)
        -> (o: tensor<64x16xbf16>) {
      ...
      chunk.yield %o next %next : tensor<64x16xbf16>, tensor<32x16xf32>
    }
    ```
    =>
    ```mlir
    chunk.kernel @f chunk 64 recorded (input %q: tensor<64x32xbf16>, state %S: tensor<32x16xf32>, valid %n: index)
        -> (S: tensor<32x16xbf16> checkpoint, o: tensor<64x16xbf16>) {
      %kept = arith.truncf %S : tensor<32x16xf32> to tensor<32x16xbf16>
      ...
      chunk.yield %kept, %o next %next : tensor<32x16xbf16>, tensor<64x16xbf16>, tensor<32x16xf32>
    }
    ```
  }];
  let options = [
    Option<"ofSegments", "of-segments", "bool", /*default=*/"false",
           "Keep those at the start of segments, as they are">,
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def InvertSystems : Pass<"stretto-invert-systems", "::mlir::ModuleOp"> {
  let summary = "Multiplies by inverses, which a kernel of their own finds";
  let description = [{
    A row that depends on what its own state recalls, as a delta rule's does, is found for a whole chunk by a unit
    triangular system, row after row, where products take a few instructions. Its matrix depends on the chunk's inputs
    alone. So a kernel without states, whose chunks run side by side, finds the inverse of each, `(1 + L)^-1`, and
    leaves it in the type of the inputs, a row for each token, and beside it what rounding takes from it; where a system
    was solved, its right side is multiplied by both. Kernels of one gradient share inverses, transposed or not. Systems
    whose matrix depends on a state or a parameter, or is divided among slices, stay, and so do kernels whose inputs do
    not have 16 bits.

    ```mlir
    chunk.kernel @f chunk 64 (input %k: tensor<64x32xbf16>, state %S: tensor<32x16xf32>, valid %n: index) -> ... {
      %p = chunk.dot %k1, %k1 transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
      %u = chunk.solve %p, %x : tensor<64x64xf32>, tensor<64x16xf32>
      ...
    ```
    =>
    ```mlir
    chunk.kernel @f chunk 64 (input %k: tensor<64x32xbf16>, input %inverse.0: tensor<64x64xbf16>,
                              input %inverse.0.rest: tensor<64x64xbf16>, ...) -> ... {
      %t = arith.extf %inverse.0 : tensor<64x64xbf16> to tensor<64x64xf32>
      %y = chunk.dot %t, %x : tensor<64x64xf32>, tensor<64x16xf32> -> tensor<64x16xf32>
      %r = arith.extf %inverse.0.rest : tensor<64x64xbf16> to tensor<64x64xf32>
      %u = chunk.dot %r, %x add %y : tensor<64x64xf32>, tensor<64x16xf32> -> tensor<64x16xf32>
      ...
    }
    chunk.kernel @f_systems chunk 64 (input %k: tensor<64x32xbf16>, valid %n: index)
        -> (inverse.0: tensor<64x64xbf16>, inverse.0.rest: tensor<64x64xbf16>) {
      %p = chunk.dot %k1, %k1 transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
      %t = chunk.inverse %p : tensor<64x64xf32>
      ...
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def MergeLookbacks : Pass<"stretto-merge-lookbacks", "::stretto::chunk::KernelOp"> {
  let summary = "Makes one look-back of several that share a factor";
  let description = [{
    Sums over the same tokens that have the same weights, or outer products with the same left rows, become one
    look-back with the results of all: its tiles come once, and what all of them need of a tile is computed once. So it
    is with values and their normaliser, which are parts of one state that is read at an earlier time. A softmax counts the
    pairs that attain its largest score itself, where a sum over the same pairs would meet all tiles again for that.

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

def MergeTotals : Pass<"stretto-merge-totals", "::stretto::chunk::KernelOp"> {
  let summary = "Finds once what several states have of one decay";
  let description = [{
    The gradient of a decay is the sum of what each state has of it, a state and its normaliser for instance. Sums over
    tokens that are added up become one of the sum, and in such a sum totals of the same rows one of the sum of their
    weights, which the gradients of rows have as well.

    ```mlir
    %q1, %k1 = chunk.decay_totals %q, %k, %p log %g
    %a1 = arith.negf %q1
    %b1 = arith.addf %k1, %a1
    %y1 = chunk.accumulate sum %b1 exclusive
    %q2, %k2 = chunk.decay_totals %q, %k, %r log %g
    %a2 = arith.negf %q2
    %b2 = arith.addf %k2, %a2
    %y2 = chunk.accumulate sum %b2 exclusive
    %y = arith.addf %y1, %y2
    ```
    =>
    ```mlir
    %s = arith.addf %p, %r
    %q1, %k1 = chunk.decay_totals %q, %k, %s log %g
    %a1 = arith.negf %q1
    %b1 = arith.addf %k1, %a1
    %y = chunk.accumulate sum %b1 exclusive
    ```
  }];
}

def SumTaps : Pass<"stretto-sum-taps", "::stretto::chunk::KernelOp"> {
  let summary = "Finds the gradient of a convolution's taps at once";
  let description = [{
    Each tap has the sum over tokens of a cotangent and of an earlier row, which is a product with a column of ones for
    each: as many tiles are multiplied, rounded, stored and met by matrix products. All of them together walk over the
    tokens once (`chunk.conv_taps`). Only where every tap is there, of the same rows.

    ```mlir
    %y0 = arith.mulf %dy, %x
    %d0 = chunk.dot %y0, %second transpose_left add %d        // %second, %first: columns of ones beside one of zeros
    %x1 = chunk.delay %x by 1 tail %tail
    %y1 = arith.mulf %dy, %x1
    %d1 = chunk.dot %y1, %first transpose_left add %d0
    ```
    =>
    ```mlir
    %sums = chunk.conv_taps %dy, %x tail %tail
    %d1 = arith.addf %d, %sums
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

def SinkFactors : Pass<"stretto-sink-factors", "::stretto::chunk::KernelOp"> {
  let summary = "Moves factors behind products";
  let description = [{
    A product of scaled rows of an input is the scaled product of the rows, which need not be scaled, rounded and stored
    then. A factor moves on through masks and products of elements, and behind a sum of which both terms have it. In a
    kernel with inputs of fp16 it moves no further than behind the first product: scores without it may be too large.

    What else is added to, `dot(x, c y) + z` with rows `y` of an input, has the factor on `x`, where all products of `x`
    have it: `x` is rounded in any case. At last, with inputs of 16 bits, decays have it: `c (x_ij 2^(a_i - b_j)) =
    x_ij 2^((a_i + log2 c) - b_j)`, and numbers of tokens that are repeated in place of the tile that they multiply.

    Numbers of tokens themselves, with inputs of bf16, leave rows of an input for which products alone ask: `a (diag(f)
    x) = (a diag(f)) x`, where `a` is computed, and `(diag(f) x) b = diag(f) (x b)`. So do those of rows that a look-back
    meets, whose weights, or the other side of an outer product, take them, and, where it meets few chunks, of rows that
    its products take of the chunk itself. A sum along a row has its numbers behind it, if only such sums ask for the row.

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
    What a look-back contributes to products is rounded, too, and stays in its wide type. A convolution and a delay take
    operands that were widened as they were, too, and round nothing.
    A state to which tokens add, which nothing makes smaller and which is exponentiated once it is read, is the sum of two
    operands: its scores grow, too, and their errors are relative ones of weights. So is what tables alone make, whose
    errors are the same at every token; a `decay_dot` takes that as it is.

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
    widened and scaled, are made anew where they are used, in branches as well. Operands of several products of a walk
    back come first: they are stored in shared memory together. Each output is computed as a whole, with all that it is made of, before the
    next is begun, first what needs the most room on the way; what is carried comes last, and what is made of it. Of chunks
    for themselves what the sums of a look-back are added to comes before it, as they begin with that. In
    reverse a second order is tried, in which what is the last to ask for a tile comes before all that leaves one, and
    taken where it keeps less at a time. Kernels
    that walk forwards have fewer tiles: they keep their order, in which the assembler finds more to do at the same time,
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

#endif // STRETTO_PASSES_CHUNK_CHUNKPASSES
