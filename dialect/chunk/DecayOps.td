//===- DecayOps.td - Decay, and what it is made of ----------------*- tablegen -*-===//
#ifndef STRETTO_DIALECT_CHUNK_DECAYOPS
#define STRETTO_DIALECT_CHUNK_DECAYOPS

include "dialect/chunk/ChunkBase.td"

//===----------------------------------------------------------------------===//
// Decay
//
// `a_u` is the factor of token u: e^(amount_u) for `log`, amount_u for `factor`; one number for each token and
// channel (an amount of two axes) or for each token (one axis). An empty product is 1. Factors may be exactly 0.
// How products over tokens are formed without overflow and without 0 times infinity is decided below this level.
//===----------------------------------------------------------------------===//

class Chunk_DecayBase<string name, list<Trait> traits = []> : Chunk_Op<name, !listconcat([Pure], traits)> {
  let hasCanonicalizer = 1;
}

def Chunk_DecayDotOp : Chunk_DecayBase<"decay_dot"> {
  let summary = "products of queries with decayed keys";
  let description = [{
    `P_ij = sum_d q_id k_jd prod_{u=j+1..i} a_ud` for `j <= i`, else 0. `before`: the query reads before its own
    token's decay and write, so that the product runs over `j+1..i-1` and `j < i`.

    Constraints: `decay_dot_c1` queries and keys have one type and the result a row and a column for each of their
    tokens; `decay_dot_c2` the amount has one number for each token, or for each token and channel.

    Example:
    ```mlir
    %p = chunk.decay_dot %q, %k log %g : tensor<64x128xf32>, tensor<64x128xf32>, tensor<64x128xf32> -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$query, Chunk_Matrix:$key, Chunk_DecayFormAttr:$form, Chunk_Tensor:$amount,
                       UnitAttr:$before);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ $query `,` $key `` $form $amount (`before` $before^)? attr-dict
                          `:` type($query) `,` type($key) `,` type($amount) `->` type($result) }];
  let hasVerifier = 1;
}

def Chunk_DecayMixOp : Chunk_DecayBase<"decay_mix"> {
  let summary = "rows of other tokens, each decayed on its way, mixed by weights";
  let description = [{
    `y_id = sum_{j<=i} P_ij k_jd prod_{u=j+1..i} a_ud (+ x_id)`: what a query, whose products with the keys are the
    weights, sees of rows that decay. `before`: the query reads before its own token's decay and write, so that the
    product runs over `j+1..i-1` and `j < i`.
    `transpose`: what a token gives to those after it, `y_jd = sum_{i>=j} P_ij k_id prod_{u=j+1..i} a_ud (+ x_jd)`;
    with `before` the product runs over `j+1..i-1` and `i > j`.

    Weights of pairs that are not summed are not looked at: they may be infinite.

    Constraints: `decay_mix_c1` the weights have the rows' element type, and a row and a column for each token, and the
    result has the rows' shape and an element type at least as wide, in which sums are formed; `decay_mix_c2` the amount has one number for each token, or for each token and channel; `decay_mix_c3` what is
    added has the result's type.

    Example:
    ```mlir
    %y = chunk.decay_mix %p, %k log %g add %x : tensor<64x64xf32>, tensor<64x128xf32>, tensor<64x128xf32> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$weights, Chunk_Matrix:$rows, Chunk_DecayFormAttr:$form, Chunk_Tensor:$amount,
                       Optional<Chunk_Matrix>:$addend, UnitAttr:$before, UnitAttr:$transpose);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ $weights `,` $rows `` $form $amount (`before` $before^)? (`transpose` $transpose^)?
                          (`add` $addend^)? attr-dict `:` type($weights) `,` type($rows) `,` type($amount) `->`
                          custom<SumType>(type($result), ref($addend), type($addend)) }];
  let hasVerifier = 1;
}

def Chunk_DecayPairsOp : Chunk_Op<"decay_pairs", [
    Pure, AttrSizedOperandSegments, AllTypesMatch<["query", "key", "result"]>]> {
  let summary = "what crosses a token on its way from keys to queries, but for the token's own decay";
  let description = [{
    `y_td = sum_{i>=t} sum_{j<t} q_id P_ij k_jd prod_{u=j+1..i, u!=t} a_ud`: the gradient of the factor `a_td`, which
    may be 0, of what queries see of keys in the chunk, where `P_ij` is what the two have in common.

    What comes from the start of the chunk, or goes to its end, crosses tokens as well. `seen`: what queries see of the
    state at the start, before it has decayed; it adds `sum_{i>=t} q_id s_id prod_{u<=i, u!=t} a_ud`. `kept`: what the
    state at the end has of keys, but for their decay; it adds `sum_{j<t} k_jd z_jd prod_{u>j, u!=t} a_ud`. `ends`: what
    both states have in common; it adds `e_d prod_{u!=t} a_ud`.

    Constraints: `decay_pairs_c1` the weights have the rows' element type, and a row and a column for each token;
    `decay_pairs_c2` the amount has one number for each token and channel; `decay_pairs_c3` what is seen and kept has the
    shape and the element type of the rows, and what ends have in common a number of it for each channel.

    Example:
    ```mlir
    %y = chunk.decay_pairs %q, %k, %p factor %f : tensor<64x128xf32>, tensor<64x64xf32>, tensor<64x128xf32>
    %z = chunk.decay_pairs %q, %k, %p factor %f seen %s : tensor<64x128xf32> kept %w : tensor<64x128xf32>
           ends %e : tensor<128xf32> : tensor<64x128xf32>, tensor<64x64xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$query, Chunk_Matrix:$key, Chunk_Matrix:$weights, Chunk_DecayFormAttr:$form,
                       Chunk_Matrix:$amount, Optional<Chunk_Matrix>:$seen, Optional<Chunk_Matrix>:$kept,
                       Optional<Chunk_Vector>:$ends);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ $query `,` $key `,` $weights `` $form $amount (`seen` $seen^ `:` type($seen))?
                          (`kept` $kept^ `:` type($kept))? (`ends` $ends^ `:` type($ends))? attr-dict
                          `:` type($query) `,` type($weights) `,` type($amount) }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The same as a sum of what crosses tokens of the chunk alone and of what each of the others adds: rows that decay
    /// up to a token and from it on, of which none is divided by a factor.
    ::mlir::Value inParts(::mlir::OpBuilder &builder);
    bool hasParts() { return getSeen() || getKept() || getEnds(); }
  }];
}

def Chunk_DecayTotalsOp : Chunk_Op<"decay_totals", [
    Pure, AllTypesMatch<["query", "key", "ofQueries", "ofKeys"]>]> {
  let summary = "what queries have of all earlier keys, and keys of all later queries";
  let description = [{
    `x_id = sum_{j<i} z_ijd` and `y_jd = sum_{i>j} z_ijd` with `z_ijd = q_id P_ij k_jd prod_{u=j+1..i} a_ud`, for the
    gradient of a logarithm of `a`, which is a sum over pairs around a token, a difference of such totals. Both are made
    of the same numbers, however those are rounded, so that what is in both cancels. `before`: the product runs over
    `j+1..i-1`.

    Constraints: `decay_totals_c1` the weights have the rows' element type, and a row and a column for each token;
    `decay_totals_c2` the amount has one number for each token and channel.

    Example:
    ```mlir
    %x, %y = chunk.decay_totals %q, %k, %p log %g : tensor<64x128xf32>, tensor<64x64xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$query, Chunk_Matrix:$key, Chunk_Matrix:$weights, Chunk_DecayFormAttr:$form,
                       Chunk_Matrix:$amount, UnitAttr:$before);
  let results = (outs Chunk_Matrix:$ofQueries, Chunk_Matrix:$ofKeys);
  let assemblyFormat = [{ $query `,` $key `,` $weights `` $form $amount (`before` $before^)? attr-dict
                          `:` type($query) `,` type($weights) `,` type($amount) }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The totals by two `decay_mix`es, with other rows in place of the query and the key.
    ::std::pair<::stretto::chunk::DecayMixOp, ::stretto::chunk::DecayMixOp>
    mix(::mlir::OpBuilder &builder, ::mlir::Value query, ::mlir::Value key);
  }];
}

def Chunk_DecayFromStartOp : Chunk_DecayBase<"decay_from_start", [AllTypesMatch<["operand", "result"]>]> {
  let summary = "rows decayed since the start of the chunk";
  let description = [{
    `y_id = x_id prod_{u<=i} a_ud`; `before`: `u < i`. What a query sees of the state at the start.

    Constraints: `decay_from_start_c1` the amount has one number for each token, or for each token and channel.

    Example:
    ```mlir
    %y = chunk.decay_from_start %q log %g : tensor<64x128xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_DecayFormAttr:$form, Chunk_Tensor:$amount, UnitAttr:$before);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand `` $form $amount (`before` $before^)? attr-dict `:` type($operand) `,` type($amount)";
  let hasVerifier = 1;
}

def Chunk_DecayToEndOp : Chunk_DecayBase<"decay_to_end", [AllTypesMatch<["operand", "result"]>]> {
  let summary = "rows decayed until the end of the chunk";
  let description = [{
    `y_jd = x_jd prod_{u>j} a_ud`. What the state at the end holds of a key.

    Constraints: `decay_to_end_c1` the amount has one number for each token, or for each token and channel.

    Example:
    ```mlir
    %y = chunk.decay_to_end %k log %g : tensor<64x128xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_DecayFormAttr:$form, Chunk_Tensor:$amount);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand `` $form $amount attr-dict `:` type($operand) `,` type($amount)";
  let hasVerifier = 1;
}

def Chunk_DecayStateOp : Chunk_DecayBase<"decay_state", [AllTypesMatch<["state", "result"]>]> {
  let summary = "a state decayed by a whole chunk";
  let description = [{
    `S'_dv = S_dv prod_u a_ud`; `along columns`: `S'_dv = S_dv prod_u a_uv`.

    A state of one axis has rows only.

    Constraints: `decay_state_c1` the state has the side; `decay_state_c2` the amount has one number for each token,
    or for each token and entry of that side.

    Example:
    ```mlir
    %s = chunk.decay_state %S log %g along rows : tensor<128x64xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Tensor:$state, Chunk_DecayFormAttr:$form, Chunk_Tensor:$amount, Chunk_SideAttr:$along);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$state `` $form $amount `along` `` $along attr-dict `:` type($state) `,` type($amount)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// What decay is made of, once it is decided how its products are formed
//===----------------------------------------------------------------------===//

def Chunk_Accumulation : I32EnumAttr<"Accumulation", "how numbers are accumulated", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Product", 1, "product">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_AccumulationAttr : EnumAttr<Chunk_Dialect, Chunk_Accumulation, "accumulation"> {
  let assemblyFormat = "$value";
}

def Chunk_AccumulateOp : Chunk_Op<"accumulate", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "running sum or product over the tokens of a chunk";
  let description = [{
    `y_i = sum_{u<=i} x_u` in each column; `reverse`: `u >= i`; `exclusive`: without `u = i`. An empty sum is 0, an
    empty product 1.

    Constraints: `accumulate_c1` the operand has tokens.

    Example:
    ```mlir
    %b = chunk.accumulate sum %g : tensor<64x128xf32>
    %e = chunk.accumulate product %f reverse exclusive : tensor<64xf32>
    ```
  }];
  let arguments = (ins Chunk_AccumulationAttr:$kind, Chunk_Tensor:$operand, UnitAttr:$reverse, UnitAttr:$exclusive);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$kind $operand (`reverse` $reverse^)? (`exclusive` $exclusive^)? attr-dict `:` type($operand)";
  let hasVerifier = 1;
}

def Chunk_TotalOp : Chunk_Op<"total", [Pure]> {
  let summary = "what has been accumulated of all tokens of a chunk";
  let description = [{
    `y_j = sum_i x_ij`, or the product, of the tile `x` whose running sums or products the operand has: whoever has
    accumulated these knows that as well.

    Constraints: `total_c1` the operand is a matrix that a `chunk.accumulate` makes, the result has a number of its type
    for each of its columns.

    Example:
    ```mlir
    %later = chunk.accumulate sum %g reverse exclusive : tensor<64x128xf32>
    %all = chunk.total %later : tensor<64x128xf32> -> tensor<128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$accumulated);
  let results = (outs Chunk_Vector:$result);
  let assemblyFormat = "$accumulated attr-dict `:` type($accumulated) `->` type($result)";
  let hasVerifier = 1;
}

def Chunk_RowOp : Chunk_Op<"row", [Pure]> {
  let summary = "one row of a tile, or one number of a vector";
  let description = [{
    `y_j = x_(at)j`.

    Constraints: `row_c1` the row exists, and operand and result agree in everything else.

    Example:
    ```mlir
    %y = chunk.row %x at 31 : tensor<64x128xf32> -> tensor<128xf32>
    ```
  }];
  let arguments = (ins Chunk_Tensor:$operand, I64Attr:$at);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$operand `at` $at attr-dict `:` type($operand) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Chunk_DecayMatrixOp : Chunk_Op<"decay_matrix", [Pure]> {
  let summary = "products of the factors between two tokens";
  let description = [{
    `D_ij = prod_{u=j+1..i} a_u` for `j <= i`, else 0. `before`: the product runs over `j+1..i-1`, for `j < i`. Each
    entry is formed from its own factors (or the sum of its own logarithms): no difference, and no quotient, occurs.

    Constraints: `decay_matrix_c1` the result has a row and a column for each token of the amount.

    Example:
    ```mlir
    %d = chunk.decay_matrix log %g : tensor<64xf32> -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_DecayFormAttr:$form, Chunk_Vector:$amount, UnitAttr:$before);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$form $amount (`before` $before^)? attr-dict `:` type($amount) `->` type($result)";
  let hasVerifier = 1;
}

def Chunk_WithinOp : Chunk_Op<"within", [Pure]> {
  let summary = "whether no number exceeds a limit";
  let description = [{
    Whether all numbers of each operand have at most the magnitude of its limit. What is not a number exceeds every
    limit.

    With `rising` no magnitude of the first operand is larger than the one below it, and the last one of a column that
    has what is not a number is none either, or infinite: the last row says it all. Sums of logarithms of decays up to
    each token are so.

    Constraints: `within_c1` there is a limit for each operand; `within_c2` what is `rising` is a matrix.

    Example:
    ```mlir
    %good = chunk.within %x, %y limits [60.0, 3.0e38] : tensor<64x128xf32>, tensor<64x128xf32>
    %near = chunk.within %sums, %y rising limits [60.0, 3.0e38] : tensor<64x128xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Variadic<Chunk_Tensor>:$operands, DenseF64ArrayAttr:$limits, UnitAttr:$rising);
  let results = (outs I1:$result);
  let assemblyFormat = "$operands (`rising` $rising^)? `limits` $limits attr-dict `:` type($operands)";
  let skipDefaultBuilders = 1;
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$operands, "::llvm::ArrayRef<double>":$limits,
                                 CArg<"bool", "false">:$rising)>];
  let hasVerifier = 1;
}

def Chunk_ExpectOp : Chunk_Op<"expect"> {
  let summary = "ends a walk where a condition does not hold";
  let description = [{
    A kernel that expects something of its chunks is right where all of them hold it. Where one does not, a walk ends
    with that chunk, and says of its work item that it has to be walked anew, by a kernel that expects nothing: what it
    has stored so far, and the chunk's own results, are of no use.

    Example:
    ```mlir
    %good = chunk.within %total limits [60.0] : tensor<128xf32>
    chunk.expect %good
    ```
  }];
  let arguments = (ins I1:$condition);
  let assemblyFormat = "$condition attr-dict";
}

//===----------------------------------------------------------------------===//
// Pairs of tokens by halves
//
// Blocks of 1, 2, 4, ... tokens divide a chunk. Two tokens meet in the smallest block that has both: an earlier one in
// its first half and a later one in its second. What happens between them is what happens from each to the middle.
// A loop over sizes of blocks halves them once more in each turn.
//===----------------------------------------------------------------------===//

/// An operation on blocks of `block` tokens, or, with `halved %i`, of `block / 2^i`.
class Chunk_BlockOp<string mnemonic, list<Trait> traits = []> : Chunk_Op<mnemonic, !listconcat(traits, [Pure])> {
  let results = (outs Chunk_Matrix:$result);
  let hasVerifier = 1;
}

def Chunk_MeetOp : Chunk_BlockOp<"meet", [AllTypesMatch<["operand", "otherwise", "result"]>]> {
  let summary = "selects the pairs of tokens that meet in blocks of a size";
  let description = [{
    `y_ij = x_ij` for `j <= i` where the smallest block that has both has `block` tokens, and `otherwise_ij` elsewhere:
    a selection, so that what is left out may be infinite. Every pair with `j <= i` meets in blocks of one size, and a
    token itself in its block of 1. With `whole`, `y_ij = x_ij` for `j <= i` where both are in the same block of `block`
    tokens: all pairs that meet in blocks of that size or of smaller ones.

    With `halved %i` blocks have `block / 2^i` tokens, for an `i` that only the run knows: one or more, or what is made
    is undefined.

    Constraints: `meet_c1` there are as many rows as columns. `meet_c2` the block is a power of two that
    divides the rows.

    Example:
    ```mlir
    %p = chunk.meet %s else %others block 32 : tensor<64x64xf32>
    %q = chunk.meet %t else %p block 16 whole : tensor<64x64xf32>
    %r = chunk.meet %u else %q block 64 halved %i : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$otherwise, Optional<Index>:$halved, I64Attr:$block,
                       UnitAttr:$whole);
  let assemblyFormat = [{ $operand `else` $otherwise `block` $block (`halved` $halved^)? (`whole` $whole^)? attr-dict
                          `:` type($operand) }];
}

def Chunk_MiddleOp : Chunk_BlockOp<"middle"> {
  let summary = "the row before the middle of each token's block";
  let description = [{
    `y_id = x_md` with `m` the last token of the first half of the block of token `i`.

    With `halved %i` blocks have `block / 2^i` tokens, for an `i` that only the run knows: two or more, or what is made
    is undefined.

    Constraints: `middle_c1` blocks of a power of two of tokens, two or more, divide the rows; `middle_c2` the result
    has the operand's shape and element type.

    Example:
    ```mlir
    %y = chunk.middle %x block 32 : tensor<64x128xf32> -> tensor<64x128xf32>
    %z = chunk.middle %x block 64 halved %i : tensor<64x128xf32> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Optional<Index>:$halved, I64Attr:$block);
  let assemblyFormat = [{ $operand `block` $block (`halved` $halved^)? attr-dict `:` type($operand) `->`
                          type($result) }];
}

def Chunk_JoinHalvesOp : Chunk_BlockOp<"join_halves", [AllTypesMatch<["second", "first"]>]> {
  let summary = "rows of second halves beside rows of first halves";
  let description = [{
    `y_id = second_id` where token `i` is in the second half of its block, and `first_id` elsewhere.

    With `halved %i` blocks have `block / 2^i` tokens, for an `i` that only the run knows: two or more, or what is made
    is undefined.

    Constraints: `join_halves_c1` blocks of a power of two of tokens, two or more, divide the rows; `join_halves_c2` the
    result has the operands' shape and element type.

    Example:
    ```mlir
    %y = chunk.join_halves %q, %k block 32 : tensor<64x128xbf16> -> tensor<64x128xbf16>
    %z = chunk.join_halves %q, %k block 64 halved %i : tensor<64x128xbf16> -> tensor<64x128xbf16>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$second, Chunk_Matrix:$first, Optional<Index>:$halved, I64Attr:$block);
  let assemblyFormat = [{ $second `,` $first `block` $block (`halved` $halved^)? attr-dict `:` type($second) `->`
                          type($result) }];
}

#endif // STRETTO_DIALECT_CHUNK_DECAYOPS
