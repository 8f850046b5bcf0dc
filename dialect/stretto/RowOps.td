//===- RowOps.td - Maps of the rows of one token ---------*- tablegen -*-===//
#ifndef STRETTO_DIALECT_STRETTO_ROWOPS
#define STRETTO_DIALECT_STRETTO_ROWOPS

include "dialect/stretto/StrettoBase.td"

def Stretto_ConstantOp : Stretto_Op<"constant", [Pure, ConstantLike]> {
  let summary = "a row of one number";
  let description = [{
    `y_d = value`. What `arith.constant` is where the size is known.

    Example:
    ```mlir
    %floor = stretto.constant 1.0e-12 : tensor<?xf64, #stretto.row<D>>
    ```
  }];
  let arguments = (ins F64Attr:$value);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$value attr-dict `:` type($result)";
  let hasFolder = 1;
}

def Stretto_BroadcastOp : Stretto_Op<"broadcast", [Pure]> {
  let summary = "repeats a value over heads, channels or time";
  let description = [{
    Repeats a coarser head set over a finer one, a number (or an axis of size one) over an axis, a parameter of at
    most one axis over time, or a real number over all of these: `y[h, d] = x[h / (n/m), 0 or d]`. An axis of
    another name is accepted where it may be of size one; this is checked when sizes are known.

    Constraints: `broadcast_c1` the head set of the operand divides that of the result; `broadcast_c2` the axis of
    the operand is absent, of size one or that of the result; `broadcast_c3` a parameter has at most one axis;
    `broadcast_c4` the result is a row, its entries of the operand's type.

    Example:
    ```mlir
    %z = stretto.broadcast %den : tensor<1xf64, #stretto.row<1>> to tensor<?xf64, #stretto.row<V>>
    ```
  }];
  let arguments = (ins AnyType:$operand);
  let results = (outs AnyType:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Stretto_GroupSumOp : Stretto_Op<"group_sum", [Pure]> {
  let summary = "sums a row over the heads that share one head: the adjoint of repeating it";
  let description = [{
    `y[h, d] = sum of x[h', d] over the heads h' of the operand's set that head h of the result's set is shared by`.

    Constraints: `group_sum_c1` the head set of the result divides that of the operand; `group_sum_c2` the axes are
    the same.

    Example:
    ```mlir
    %dk = stretto.group_sum %dks : tensor<?xf64, #stretto.row<K>> to tensor<?xf64, #stretto.row<K, G>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand) `to` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Stretto_ReduceOp : Stretto_Op<"reduce", [Pure]> {
  let summary = "sum, mean or maximum of a row";
  let description = [{
    `y = sum_d x_d`, `y = (1/D) sum_d x_d` or `y = max_d x_d`.

    Constraints: `reduce_c1` the operand has an axis and the result is the number of the same head set.

    Example:
    ```mlir
    %m = stretto.reduce mean %o : tensor<?xf64, #stretto.row<V>> -> tensor<f64, #stretto.row<()>>
    ```
  }];
  let arguments = (ins Stretto_ReductionAttr:$kind, Stretto_Row:$operand);
  let results = (outs Stretto_ScalarRow:$result);
  let assemblyFormat = "`` $kind $operand attr-dict `:` type($operand) `->` type($result)";
  let hasVerifier = 1;
}

def Stretto_SoftmaxOp : Stretto_Op<"softmax", [Pure, SameOperandsAndResultType]> {
  let summary = "softmax of a row";
  let description = [{
    `y_d = e^(x_d - m) / sum_c e^(x_c - m)`, `m = max_c x_c`. Entries of `-inf` get 0; a row of nothing else gives 0.

    Constraints: `softmax_c1` the operand has an axis.

    Example:
    ```mlir
    %p = stretto.softmax %z : tensor<?xf64, #stretto.row<N>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
  let hasVerifier = 1;
}

def Stretto_LogSigmoidOp : Stretto_Op<"logsigmoid", [Pure, SameOperandsAndResultType]> {
  let summary = "logarithm of the logistic function, accurate on both sides";
  let description = [{
    `y = -log(1 + e^-x) = min(x, 0) - log1p(e^-|x|)`, never positive.

    Example:
    ```mlir
    %g = stretto.logsigmoid %z : tensor<?xf64, #stretto.row<D>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
}

def Stretto_StopGradientOp : Stretto_Op<"stop_gradient", [Pure, SameOperandsAndResultType]> {
  let summary = "the operand, through which no gradient flows";
  let description = [{
    Example:
    ```mlir
    %c = stretto.stop_gradient %m : tensor<f64, #stretto.row<()>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
  let hasFolder = 1;
}

def Stretto_ConcatOp : Stretto_Op<"concat", [Pure]> {
  let summary = "rows side by side";
  let description = [{
    A number counts as a row of size one.

    Constraints: `concat_c1` all rows share one head set with the result; `concat_c2` the result's size is the sum
    of the operands'.

    Example:
    ```mlir
    %f = stretto.concat %a, %b : tensor<?xf64, #stretto.row<"D/2">>, tensor<?xf64, #stretto.row<"D/2">> -> tensor<?xf64, #stretto.row<D>>
    ```
  }];
  let arguments = (ins Variadic<Stretto_Row>:$operands);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operands attr-dict `:` type($operands) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}

def Stretto_SliceOp : Stretto_Op<"slice", [Pure]> {
  let summary = "consecutive entries of a row";
  let description = [{
    `y_d = x_(offset + d)`; the result's axis says how many. A result without axis is the one entry at the offset.

    Constraints: `slice_c1` the offset is a size; `slice_c2` it is at least 0, and offset plus size is at most the
    operand's size, where these can be compared; `slice_c3` operand and result share the head set; `slice_c4` the
    variant knows the sizes in the offset.

    Example:
    ```mlir
    %den = stretto.slice %r from "V" : tensor<?xf64, #stretto.row<"V + 1">> -> tensor<f64, #stretto.row<()>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand, StrAttr:$offset);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand `from` $offset attr-dict `:` type($operand) `->` type($result)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let hasCanonicalizeMethod = 1;
}

def Stretto_DotOp : Stretto_Op<"dot", [Pure, AllTypesMatch<["left", "right"]>]> {
  let summary = "inner product of two rows";
  let description = [{
    `z = sum_d x_d y_d`.

    Constraints: `dot_c1` the operands have an axis, and the result is the number of their head set.

    Example:
    ```mlir
    %s = stretto.dot %q, %k : tensor<?xf64, #stretto.row<K>> -> tensor<f64, #stretto.row<()>>
    ```
  }];
  let arguments = (ins Stretto_Row:$left, Stretto_Row:$right);
  let results = (outs Stretto_ScalarRow:$result);
  let assemblyFormat = "$left `,` $right attr-dict `:` type($left) `->` type($result)";
  let hasVerifier = 1;
}

def Stretto_OuterOp : Stretto_Op<"outer", [Pure]> {
  let summary = "all products of two rows, flattened";
  let description = [{
    `z_(a*n + b) = x_a y_b`, `n` the size of `y`.

    Constraints: `outer_c1` operands and result share one head set; `outer_c2` the result's size is the product.

    Example:
    ```mlir
    %xx = stretto.outer %x, %x : tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<"K*K">>
    ```
  }];
  let arguments = (ins Stretto_Row:$left, Stretto_Row:$right);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$left `,` $right attr-dict `:` type($left) `,` type($right) `->` type($result)";
  let hasVerifier = 1;
}

def Stretto_InnerOp : Stretto_Op<"inner", [Pure]> {
  let summary = "a flattened matrix times a row: the adjoint of outer";
  let description = [{
    `y_a = sum_b z_(a*n + b) x_b`, `n` the size of `x`; with `transpose`, `y_b = sum_a z_(a*n + b) x_a`, `n` the
    size of `y`.

    Constraints: `inner_c1` operands and result share one head set; `inner_c2` the matrix's size is the product of
    the sizes of the row and the result.

    Example:
    ```mlir
    %dx = stretto.inner %dz, %y : tensor<?xf64, #stretto.row<"K*N">>, tensor<?xf64, #stretto.row<N>> -> tensor<?xf64, #stretto.row<K>>
    ```
  }];
  let arguments = (ins Stretto_Row:$matrix, Stretto_Row:$row, UnitAttr:$transpose);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$matrix `,` $row (`transpose` $transpose^)? attr-dict `:` type($matrix) `,` type($row) `->` type($result)";
  let hasVerifier = 1;
}

def Stretto_ContractOp : Stretto_Op<"contract", [Pure]> {
  let summary = "row times parameter";
  let description = [{
    `y_f = sum_d x_d W_df`, with the matrix of the row's own head; with `transpose`, `y_d = sum_f x_f W_df`.

    Constraints: `contract_c1` the parameter has two axes; `contract_c2` the contracted axis is the row's, the other
    the result's; `contract_c3` row and result share a head set, which the parameter's divides.

    Example:
    ```mlir
    %y = stretto.contract %x, %W : tensor<?xf64, #stretto.row<D>>, tensor<?x?xf64, #stretto.param<[D, F], H>> -> tensor<?xf64, #stretto.row<F>>
    ```
  }];
  let arguments = (ins Stretto_Row:$row, Stretto_Param:$parameter, UnitAttr:$transpose);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$row `,` $parameter (`transpose` $transpose^)? attr-dict `:` type($row) `,` type($parameter) `->` type($result)";
  let hasVerifier = 1;
}

#endif // STRETTO_DIALECT_STRETTO_ROWOPS
