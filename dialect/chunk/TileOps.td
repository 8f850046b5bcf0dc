//===- TileOps.td - Shapes, sums and products, rows over time -----*- tablegen -*-===//
#ifndef STRETTO_DIALECT_CHUNK_TILEOPS
#define STRETTO_DIALECT_CHUNK_TILEOPS

include "dialect/chunk/ChunkBase.td"

//===----------------------------------------------------------------------===//
// Shape
//===----------------------------------------------------------------------===//

def Chunk_BroadcastOp : Chunk_Op<"broadcast", [Pure]> {
  let summary = "repeats a vector over the columns or the rows of a tile";
  let description = [{
    `along rows`: `y_ij = x_i`, one number for each row. `along columns`: `y_ij = x_j`, one row for all. A tensor of
    rank 0 is repeated over everything (`along` is then of no consequence). Conditions (`i1`) are repeated alike.

    Constraints: `broadcast_c1` operand and result have one element type; `broadcast_c2` the operand has one number
    for each row or column of the result, or none but one.

    Example:
    ```mlir
    %y = chunk.broadcast %x along rows : tensor<64xf32> to tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_TensorOrCondition:$operand, Chunk_SideAttr:$along);
  let results = (outs Chunk_TensorOrCondition:$result);
  let assemblyFormat = "$operand `along` `` $along attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Chunk_ColumnsOp : Chunk_Op<"columns", [Pure]> {
  let summary = "consecutive columns of a tile";
  let description = [{
    `y_ij = x_i,(from + j)`. A vector result takes one column of a tile, or entries of a vector.

    Constraints: `columns_c1` the columns exist, and operand and result agree in everything else.

    Example:
    ```mlir
    %y = chunk.columns %x from 32 : tensor<64x64xf32> -> tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Chunk_Tensor:$operand, I64Attr:$from);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$operand `from` $from attr-dict `:` type($operand) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

def Chunk_ConcatOp : Chunk_Op<"concat", [Pure]> {
  let summary = "tiles side by side";
  let description = [{
    A vector counts as a tile of one column.

    Constraints: `concat_c1` operands have the rows and the element type of the result; `concat_c2` their columns add
    up to the result's.

    Example:
    ```mlir
    %y = chunk.concat %a, %b : tensor<64x32xf32>, tensor<64x32xf32> -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Variadic<Chunk_Tensor>:$operands);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operands attr-dict `:` type($operands) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizer = 1;
}

//===----------------------------------------------------------------------===//
// Sums and products
//===----------------------------------------------------------------------===//

def Chunk_DotOp : Chunk_Op<"dot", [Pure]> {
  let summary = "matrix product";
  let description = [{
    `C = A B (+ D)`; `transpose_left` takes `A^T`, `transpose_right` `B^T`. Operands have one element type, at most as
    wide as the result's, in which sums are formed.

    Constraints: `dot_c1` the shapes multiply; `dot_c2` what is added has the result's type; `dot_c3` element types
    are as said.

    Example:
    ```mlir
    %c = chunk.dot %a, %b transpose_right add %d : tensor<64x128xbf16>, tensor<64x128xbf16> -> tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$left, Chunk_Matrix:$right, Optional<Chunk_Matrix>:$addend,
                       UnitAttr:$transpose_left, UnitAttr:$transpose_right);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ $left `,` $right (`transpose_left` $transpose_left^)? (`transpose_right` $transpose_right^)?
                          (`add` $addend^)? attr-dict `:` type($left) `,` type($right) `->`
                          custom<SumType>(type($result), ref($addend), type($addend)) }];
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
}

def Chunk_SolveOp : Chunk_Op<"solve", [Pure, AllTypesMatch<["rows", "result"]>]> {
  let summary = "rows that each depend on those before them";
  let description = [{
    The `X` with `x_i + sum_{j<i} L_ij x_j = b_i`, which is `(1 + L)^-1 B` for the entries of L below the diagonal. Others
    are not looked at. `transpose`: `x_i + sum_{j>i} L_ji x_j = b_i`, which is `(1 + L^T)^-1 B`.

    Constraints: `solve_c1` L has the rows' element type, and a row and a column for each of them.

    Example:
    ```mlir
    %x = chunk.solve %l, %b : tensor<64x64xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$matrix, Chunk_Matrix:$rows, UnitAttr:$transpose);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$matrix `,` $rows (`transpose` $transpose^)? attr-dict `:` type($matrix) `,` type($rows)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Chunk_InverseOp : Chunk_Op<"inverse", [Pure, SameOperandsAndResultType]> {
  let summary = "the inverse of a matrix with ones on its diagonal";
  let description = [{
    `(1 + L)^-1` for the entries of L below the diagonal. Others are not looked at. Above its diagonal the inverse is 0.
    `chunk.dot` of it and rows is what `chunk.solve` finds, transposed on the left where that is.

    Constraints: `inverse_c1` there are as many rows as columns.

    Example:
    ```mlir
    %t = chunk.inverse %l : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$matrix);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$matrix attr-dict `:` type($matrix)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{
    /// The same by a system whose right side is the identity.
    ::mlir::Value solve(::mlir::OpBuilder &builder);
  }];
}

def Chunk_ReduceOp : Chunk_Op<"reduce", [Pure]> {
  let summary = "sum or maximum over the columns or the rows of a tile";
  let description = [{
    `over columns`: `y_i = sum_j x_ij`, one number for each row; `over rows`: `y_j = sum_i x_ij`.

    Constraints: `reduce_c1` the result has one number of the operand's type for each row or column that is kept.

    Example:
    ```mlir
    %m = chunk.reduce max %x over columns : tensor<64x128xf32> -> tensor<64xf32>
    ```
  }];
  let arguments = (ins Chunk_ReductionAttr:$kind, Chunk_Matrix:$operand, Chunk_SideAttr:$over);
  let results = (outs Chunk_Vector:$result);
  let assemblyFormat = "`` $kind $operand `over` `` $over attr-dict `:` type($operand) `->` type($result)";
  let hasVerifier = 1;
  let hasCanonicalizer = 1;
}

def Chunk_CausalOp : Chunk_Op<"causal", [Pure, SameOperandsAndResultType]> {
  let summary = "selects the pairs of a token with itself and earlier ones";
  let description = [{
    `y_ij = x_ij` for `j <= i` (`strict`: `j < i`), else 0: a selection, so that what is left out may be infinite.

    Constraints: `causal_c1` there are as many rows as columns.

    Example:
    ```mlir
    %p = chunk.causal %s : tensor<64x64xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, UnitAttr:$strict);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand (`strict` $strict^)? attr-dict `:` type($operand)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Chunk_MaskOp : Chunk_Op<"mask", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "selects the rows of tokens that exist";
  let description = [{
    `y_i = x_i` for `i < valid`, else 0, or the number after `else`: what does nothing to a state, which is 1 for a
    factor. A selection, so that what is left out may be infinite.

    Constraints: `mask_c1` the operand has rows.

    Example:
    ```mlir
    %y = chunk.mask %x valid %n : tensor<64x128xf32>
    %f = chunk.mask %x valid %n else 1.0 : tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Tensor:$operand, Index:$valid, DefaultValuedAttr<F64Attr, "0.0">:$otherwise);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$operand `valid` $valid (`else` $otherwise^)? attr-dict `:` type($operand)";
  let builders = [OpBuilder<(ins "::mlir::Value":$operand, "::mlir::Value":$valid, CArg<"double", "0.0">:$otherwise)>];
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Chunk_AgainOp : Chunk_Op<"again", [Pure, SameOperandsAndResultType]> {
  let summary = "a tile of which all that is made is made anew";
  let description = [{
    `y = x`: the tile as it is, and no instructions. Equal operations on `x` and on `y` stay two, as what the first makes
    would take registers until the second asks for it.

    Example:
    ```mlir
    %y = chunk.again %x : tensor<64x128xbf16>
    ```
  }];
  let arguments = (ins Chunk_Tensor:$operand);
  let results = (outs Chunk_Tensor:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
}

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

def Chunk_ConvOp : Chunk_Op<"conv", [Pure]> {
  let summary = "causal depthwise convolution";
  let description = [{
    `y_id = sum_{j=0..J-1} taps_d,(J-1-j) * x_(i-j)d`, where rows before the chunk are the last rows of the tail, in
    time order. Like the operands of a product, rows and taps may be of fewer bits than the result.

    Constraints: `conv_c1` operand, taps and tail have the same channels, and the tail has at least `J-1` rows;
    `conv_c2` the result has the shape of the operand, and no operand has wider elements; `conv_c3` operand and tail
    have elements of one type.

    Example:
    ```mlir
    %y = chunk.conv %x, %taps tail %tail : tensor<64x128xbf16>, tensor<128x4xf32>, tensor<3x128xbf16> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$taps, Chunk_Matrix:$tail);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $operand `,` $taps `tail` $tail attr-dict `:` type($operand) `,` type($taps) `,` type($tail) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Chunk_DelayOp : Chunk_Op<"delay", [Pure]> {
  let summary = "rows of earlier tokens";
  let description = [{
    `y_i = x_(i-n)`, where rows before the chunk are the last rows of the tail, in time order. Like the operands of a
    convolution, both may be of fewer bits than the result.

    Constraints: `delay_c1` operand and tail have the same channels; `delay_c2` the tail has at least `n` rows, and
    `n` is at least 0; `delay_c3` the result has the shape of the operand, and no operand has wider elements;
    `delay_c4` operand and tail have elements of one type.

    Example:
    ```mlir
    %y = chunk.delay %x by 1 tail %tail : tensor<64x128xbf16>, tensor<3x128xbf16> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$tail, I64Attr:$by);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand `by` $by `tail` $tail attr-dict `:` type($operand) `,` type($tail) `->` type($result)";
  let hasVerifier = 1;
}

def Chunk_ConvBackOp : Chunk_Op<"conv_back", [Pure, AllTypesMatch<["carry", "next"]>]> {
  let summary = "anti-causal depthwise convolution, which hands sums on to the chunk before";
  let description = [{
    With `e_sd = sum_{j=0..J-1} taps_d,(J-1-j) * x_(s+j)d` over the valid rows of the operand, for `s` from `-(J-1)` on,
    and the carry, sums for the last `J-1` tokens that exist, added to those: `y_i = e_i`, and the next carry is what
    is left for the tokens before the chunk, in time order.

    Constraints: `conv_back_c1` operand, taps and carry have the same channels, and the carry has `J-1` rows;
    `conv_back_c2` the result has the shape and elements of the operand.

    Example:
    ```mlir
    %y, %next = chunk.conv_back %x, %taps valid %n after %carry
      : tensor<64x128xf32>, tensor<128x4xf32>, tensor<3x128xf32> -> tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$taps, Index:$valid, Chunk_Matrix:$carry);
  let results = (outs Chunk_Matrix:$result, Chunk_Matrix:$next);
  let assemblyFormat = [{
    $operand `,` $taps `valid` $valid `after` $carry attr-dict
    `:` type($operand) `,` type($taps) `,` type($carry) `->` type($result)
  }];
  let hasVerifier = 1;
}

def Chunk_ConvTapsOp : Chunk_Op<"conv_taps", [Pure]> {
  let summary = "the gradient of the taps of a convolution, over the tokens of a chunk";
  let description = [{
    `y_d,(J-1-j) = sum_i weights_id * x_(i-j)d` for the `J` columns of the result, where rows before the chunk are the
    last rows of the tail, in time order. Like the operands of a convolution, rows and their tail may be of fewer bits
    than the result. All rows of the chunk are met: weights of tokens that do not exist are to be 0.

    Constraints: `conv_taps_c1` weights, operand, tail and result have the same channels, and the tail has at least
    `J-1` rows; `conv_taps_c2` weights and operand have as many rows, and no operand has wider elements than the result;
    `conv_taps_c3` operand and tail have elements of one type.

    Example:
    ```mlir
    %d = chunk.conv_taps %dy, %x tail %tail
      : tensor<64x128xf32>, tensor<64x128xbf16>, tensor<3x128xbf16> -> tensor<128x4xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$weights, Chunk_Matrix:$operand, Chunk_Matrix:$tail);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{
    $weights `,` $operand `tail` $tail attr-dict `:` type($weights) `,` type($operand) `,` type($tail) `->`
    type($result)
  }];
  let hasVerifier = 1;
}

def Chunk_TailOp : Chunk_Op<"tail", [Pure, AllTypesMatch<["tail", "result"]>]> {
  let summary = "the last rows that exist, for the next chunk";
  let description = [{
    The last rows of the old tail followed by the valid rows of the operand, as many as the tail has.

    Constraints: `tail_c1` operand and tail have the same channels and element type.

    Example:
    ```mlir
    %next = chunk.tail %x valid %n after %tail : tensor<64x128xf32>, tensor<3x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Index:$valid, Chunk_Matrix:$tail);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand `valid` $valid `after` $tail attr-dict `:` type($operand) `,` type($tail)";
  let hasVerifier = 1;
}

def Chunk_ScanOp : Chunk_Op<"scan", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "running sum, maximum or log-sum-exp over the tokens";
  let description = [{
    In each column `add`: `y_i = e^(g_i) y_(i-1) + x_i`; `logaddexp`: `y_i = log(e^(y_(i-1) + g_i) + e^(x_i))`;
    `max`: `y_i = max(y_(i-1) + g_i, x_i)`. Before the first token stands the row `carry`. Without `log`, `g = 0`.

    Constraints: `scan_c1` the carry is one row of the operand's columns and element type; `scan_c2` the log tile has
    the operand's type.

    Example:
    ```mlir
    %y = chunk.scan logaddexp %x from %carry : tensor<64x32xf32>, tensor<1x32xf32>
    %z = chunk.scan add %x from %carry log %g : tensor<64x32xf32>, tensor<1x32xf32>, tensor<64x32xf32>
    ```
  }];
  let arguments = (ins Chunk_ScanKindAttr:$kind, Chunk_Matrix:$operand, Chunk_Matrix:$carry,
                       Optional<Chunk_Matrix>:$log);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ `` $kind $operand `from` $carry (`log` $log^)? attr-dict
                          `:` type($operand) `,` type($carry) (`,` type($log)^)? }];
  let hasVerifier = 1;
}

#endif // STRETTO_DIALECT_CHUNK_TILEOPS
