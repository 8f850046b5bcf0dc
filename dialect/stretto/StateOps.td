//===- StateOps.td - States, and what one token does to them ---*- tablegen -*-===//
#ifndef STRETTO_DIALECT_STRETTO_STATEOPS
#define STRETTO_DIALECT_STRETTO_STATEOPS

include "dialect/stretto/StrettoBase.td"

def Stretto_StateOp : Stretto_Op<"state", [MemoryEffects<[MemRead<Stretto_Carried>]>]> {
  let summary = "the state that the previous token left";
  let description = [{
    What the chain of operations on this state yielded at the previous token; at the first token the initial state,
    or 0. The name is that of the entry in the state object and is unique in the variant. A state is a chain: each
    of its values is decayed or written at most once, and any value of the token may be read. The last value is
    carried to the next token, so a decay or a write is never dead, though nothing may use its result. Under a
    condition the chain goes through both branches of an `scf.if` and on from its result.

    With `of`, the state is some columns of an entry that other states share: those from `column` on, of `columns`. With
    `rows`, it is some of their rows: those from `row` on.

    Constraints: `state_c1` names are distinct, except in branches of which only one is taken; `state_c2` each value
    has at most one change: a decay or write that stands in the same block, or one `scf.if` whose branches both yield
    what they make of it as the same result; `state_c3` nothing but decay, write, read, pair and `scf.if` uses a state;
    `state_c4` the entry has the columns and rows that the state takes, where their number is known.

    Example:
    ```mlir
    %S = stretto.state "S" : !stretto.state<K, V, G>
    ```
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<StrAttr>:$entry, DefaultValuedAttr<I64Attr, "0">:$column,
                       DefaultValuedAttr<I64Attr, "0">:$columns, DefaultValuedAttr<I64Attr, "0">:$row,
                       DefaultValuedAttr<I64Attr, "0">:$rows);
  let results = (outs Stretto_State:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::llvm::StringRef":$name)>];
  let assemblyFormat = [{ $name (`of` $entry^ `column` custom<Number>($column) `columns` custom<Number>($columns))?
                          (`row` custom<Number>($row) `rows` custom<Number>($rows)^)? attr-dict `:` type($result) }];
  let hasVerifier = 1;
}

def Stretto_DecayOp : Stretto_Op<"decay", [
    MemoryEffects<[MemWrite<Stretto_Carried>]>, AllTypesMatch<["state", "result"]>]> {
  let summary = "multiplies a state by a factor along one axis or as a whole";
  let description = [{
    `S' = diag(a) S` along the first axis, `S diag(a)` along the second, `a S` without an axis; `a = e^g` for `log g`
    (`g <= 0`; `-inf` is an exact zero) and `a = f` for `factor f`.

    Constraints: `decay_c1` `along` is an axis of the state; `decay_c2` the amount's axis is that axis (a number:
    none); `decay_c3` the amount's head set divides the state's.

    Example:
    ```mlir
    %S1 = stretto.decay %S0 log %g along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>
    %S2 = stretto.decay %S1 factor %f : !stretto.state<K, V>, tensor<f64, #stretto.row<()>>
    ```
  }];
  let arguments = (ins Stretto_State:$state, Stretto_DecayFormAttr:$form, Stretto_Row:$amount, OptionalAttr<StrAttr>:$along);
  let results = (outs Stretto_State:$result);
  let assemblyFormat = "$state `` $form $amount (`along` $along^)? attr-dict `:` type($state) `,` type($amount)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

def Stretto_WriteOp : Stretto_Op<"write", [
    MemoryEffects<[MemWrite<Stretto_Carried>]>, AllTypesMatch<["state", "result"]>]> {
  let summary = "adds the outer product of two rows to a state";
  let description = [{
    `S' = S + x^T y`, `x` on the state's first axis, `y` on its second. Rows of coarser head sets are repeated; rows
    of finer ones are summed over each head's group. With `at`, the pair of token `t` is written at token `at_t`, as
    gradients of earlier reads are (`reverse` states only).

    Constraints: `write_c1` the axis of `x` is the first, `write_c2` the axis of `y` the second (a number stands for
    an axis of size one); `write_c3` head sets can be compared; `write_c4` `at` needs a reverse state.

    Example:
    ```mlir
    %S1 = stretto.write %S0, %k, %v : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<V>>
    ```
  }];
  let arguments = (ins Stretto_State:$state, Stretto_Row:$first, Stretto_Row:$second, Optional<Stretto_Time>:$at);
  let results = (outs Stretto_State:$result);
  let assemblyFormat = [{ $state `,` $first `,` $second (`at` $at^)? attr-dict
                          `:` type($state) `,` type($first) `,` type($second) }];
  let hasVerifier = 1;
}

def Stretto_ReadOp : Stretto_Op<"read", [Pure]> {
  let summary = "row times state, along either axis, now or at an earlier time";
  let description = [{
    `o = x S` along the first axis, `o = S x` along the second: the axis of `x` is contracted. The result has the
    finer of the two head sets. With `at`, the state is the one that this value had at token `at_t <= t`, which never
    decreases; before token 0 it is the initial state.

    Constraints: `read_c1` `along` is an axis of the state; `read_c2` the row's axis is that axis; `read_c3` the
    result's axis is the other; `read_c4` the result's head set is the join of the row's and the state's; `read_c5`
    `at` needs a forward state.

    Example:
    ```mlir
    %o = stretto.read %S, %q along "K" : !stretto.state<K, V, G>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<V>>
    ```
  }];
  let arguments = (ins Stretto_State:$state, Stretto_Row:$row, StrAttr:$along, Optional<Stretto_Time>:$at);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = [{ $state `,` $row `along` $along (`at` $at^)? attr-dict
                          `:` type($state) `,` type($row) `->` type($result) }];
  let hasVerifier = 1;
}

def Stretto_PairOp : Stretto_Op<"pair", [Pure]> {
  let summary = "products of a state and the cotangent of a state: the gradient of a decay";
  let description = [{
    `p_a = sum_b S_ab D_ab` along the first axis, `p_b = sum_a S_ab D_ab` along the second, the sum of all products
    without an axis. `S` is carried forwards, `D` backwards; both are values of the same token. A decay by the factor
    `a` has the gradient `pair(S, D)` with `S` before and `D` after it, a decay by `e^g` has for `g` the same with `S`
    after it.

    Constraints: `pair_c1` the first state is carried forwards, the second is the same carried backwards; `pair_c2`
    `along` is an axis of the states; `pair_c3` the result is a row on that axis (a number without one) of the states'
    heads.

    Example:
    ```mlir
    %dg = stretto.pair %S, %dS along "K" : !stretto.state<K, V>, !stretto.state<K, V, reverse> -> tensor<?xf64, #stretto.row<K>>
    ```
  }];
  let arguments = (ins Stretto_State:$state, Stretto_State:$cotangent, OptionalAttr<StrAttr>:$along);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = [{ $state `,` $cotangent (`along` $along^)? attr-dict
                          `:` type($state) `,` type($cotangent) `->` type($result) }];
  let hasVerifier = 1;
}

#endif // STRETTO_DIALECT_STRETTO_STATEOPS
