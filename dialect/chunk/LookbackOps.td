//===- LookbackOps.td - Folds over the tiles of other chunks ------*- tablegen -*-===//
#ifndef STRETTO_DIALECT_CHUNK_LOOKBACKOPS
#define STRETTO_DIALECT_CHUNK_LOOKBACKOPS

include "dialect/chunk/ChunkBase.td"

//===----------------------------------------------------------------------===//
// Look-backs
//===----------------------------------------------------------------------===//

def Chunk_LookbackOp : Chunk_Op<"lookback", [Pure, SingleBlock, AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a fold over the pairs of the chunk's tokens with earlier tokens, or with later ones";
  let description = [{
    Pairs each token i of the chunk with the tokens j of its sequence from position `first_i` to its own; `to` ends the
    range at `last_i` where that is earlier; `to_end` ends it with the sequence. Both bounds are positions, as tables are
    read at, and never fall from token to token.

    The sequence is met in tiles of P tokens j: as many as a chunk has, or more where a chunk is a single token. Where the
    kernel has windows of the inputs `past`, the tokens before the first that these hold are met as well. The body's
    arguments are tiles of the arguments `past` there, inputs of the kernel and tables that vary in time, and what it
    computes from these are rows of j; all other values belong to the chunk itself. It ends with

    - `sum`: weights `w` (C by P, a row for each i) and rows `x`, once for each result: `y_i = sum_j w_ij x_j`.
    - `softmax`: scores `s` and rows `x`; the results are `m_i = max_j s_ij`, `l_i = sum_j e^(s_ij - m_i)`,
      `acc_i = sum_j e^(s_ij - m_i) x_j` and, where it is asked for, `ties_i`, the number of j with `s_ij = m_i`, which
      share the gradient of the largest score.
    - `divergence`: scores `s` of the teacher and `r` of the student; the results are, with `p` and `u` the softmaxes of
      `s_i` and `r_i` over j, `kl_i = sum_j p_j (log p_j - log u_j)`, and the log-sum-exp of `s_i` and of `r_i`.
    - `outer`: rows `x` and `y`, once for each result: the matrix `sum_j x_j^T y_j` over the tokens j in the range of any
      token.

    A score of `-inf` (of either side of a divergence) leaves its pair out. A token without pairs has `m = -inf`, `l = 0`,
    `acc = 0` and `ties = 0`; `kl = 0` and logarithms of `-inf`. Pairs outside of the range are left out by selection, and so are tokens
    beyond the end of the sequence, whatever the body makes of their zeros.

    `ahead` asks the other way round, as gradients do: it pairs each token i with the tokens j that look back at it, those
    from its own on (`to_end`: all of the sequence) in whose range it is. A range is that of j then, and the body
    contributes its bounds, too: `sum` and `outer` are summed over `first_j <= i <= last_j`, `last_j` where it is given.
    For an `outer` product a range that ends before the sequence ends at its first token: there the matrix is handed on.

    What is `continued` meets nothing in a sequence whose first token has position 0: only where a sequence goes on from
    another position are ranges not empty.

    What a kernel may know beforehand of a sequence whose first token has position 0, and of whose states before it nobody
    asks: with `met = [m, n]` a chunk has pairs with the chunks from m before it to n before it alone, ahead from n behind
    it to m behind it, as far as there are such; with `wholly = [m, n]` all of its tokens have pairs with all tokens of
    those, of an `outer` product each of these tokens with some. Where that is one chunk, its tile can be asked for like
    those of the chunk itself.

    Constraints: `lookback_c1` the bounds have a number for each token; `lookback_c2` what is past is an input of the
    kernel or a table that varies, and the body has an argument of the type of each; `lookback_c3` the body ends with
    `chunk.contribute` of what the fold takes: scores and weights are C by P, rows have P rows; `lookback_c4` the results
    have the shapes that follow from it and one element type with it; `lookback_c5` a range ends at `to` or at the end;
    `lookback_c6` an operation in the body has one result and no region, and no decay and nothing that reaches across
    tokens: `tail`, `conv`, `delay`, `mask`, `accumulate`; `lookback_c7` a range begins somewhere: at `from` of the
    operation or, of a `sum` or `outer` that is `ahead`, at `from` of what the body contributes; `lookback_c8` what is
    met, and wholly so, is two distances of chunks, not below 0, the farther one first.

    Example:
    ```mlir
    chunk.table @position varying {
    ^bb0(%t: f64, %h: f64, %d: f64):
      chunk.result %t : f64
    }
    chunk.kernel @window chunk 64 (input %q: tensor<64x32xf32>, input %k: tensor<64x32xf32> group 2,
        input %v: tensor<64x16xf32> group 2, table %position: tensor<64xf32>, valid %n: index)
        -> (o: tensor<64x16xf32>) {
      %before = arith.constant dense<127.0> : tensor<64xf32>
      %first = arith.subf %position, %before : tensor<64xf32>
      %m, %l, %acc = chunk.lookback softmax from %first : tensor<64xf32>
          past(%k_j = %k : tensor<64x32xf32>, %v_j = %v : tensor<64x16xf32>) {
        %s = chunk.dot %q, %k_j transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
        chunk.contribute %s, %v_j : tensor<64x64xf32>, tensor<64x16xf32>
      } : tensor<64xf32>, tensor<64xf32>, tensor<64x16xf32>
      %ls = chunk.broadcast %l along rows : tensor<64xf32> to tensor<64x16xf32>
      %o = arith.divf %acc, %ls : tensor<64x16xf32>
      chunk.yield %o : tensor<64x16xf32>
    }
    chunk.kernel @seen chunk 64 (input %q: tensor<64x32xf32>, input %k: tensor<64x32xf32>, table %position: tensor<64xf32>,
        valid %n: index) -> (o: tensor<64x32xf32>) {
      %seen = chunk.lookback sum ahead past(%q_j = %q : tensor<64x32xf32>, %position_j = %position : tensor<64xf32>) {
        %s = chunk.dot %k, %q_j transpose_right : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
        %before = arith.constant dense<127.0> : tensor<64xf32>
        %first = arith.subf %position_j, %before : tensor<64xf32>
        chunk.contribute %s, %q_j : tensor<64x64xf32>, tensor<64x32xf32> from %first : tensor<64xf32>
      } : tensor<64x32xf32>
      chunk.yield %seen : tensor<64x32xf32>
    }
    ```
  }];
  let arguments = (ins Chunk_FoldAttr:$fold, Optional<Chunk_Vector>:$first, Optional<Chunk_Vector>:$last,
                       Variadic<Chunk_Tensor>:$past, UnitAttr:$ahead, UnitAttr:$to_end, UnitAttr:$continued,
                       OptionalAttr<DenseI64ArrayAttr>:$met, OptionalAttr<DenseI64ArrayAttr>:$wholly);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Variadic<Chunk_Tensor>:$results);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block *getBlock() { return &getBody().front(); }
    ContributeOp getContribution();
    /// P.
    int64_t getPastTokens();
    /// How far away the one chunk stands that is met, and wholly so, in a sequence as `met` speaks of.
    std::optional<int64_t> getLag();
  }];
}

def Chunk_ContributeOp : Chunk_Op<"contribute", [Pure, Terminator, ReturnLike, AttrSizedOperandSegments,
    HasParent<"LookbackOp">]> {
  let summary = "ends a look-back's body with what a tile of pairs contributes";
  let description = [{
    What the fold takes and, where a look-back is `ahead`, the ranges of the tokens j.

    Example: see `chunk.lookback`.
  }];
  let arguments = (ins Variadic<Chunk_Tensor>:$given, Optional<Chunk_Vector>:$first, Optional<Chunk_Vector>:$last);
  let assemblyFormat = [{ $given `:` type($given) (`from` $first^ `:` type($first))? (`to` $last^ `:` type($last))?
                          attr-dict }];
}

#endif // STRETTO_DIALECT_CHUNK_LOOKBACKOPS
