//===- TimeOps.td - What rows of other tokens have a part in ---*- tablegen -*-===//
#ifndef STRETTO_DIALECT_STRETTO_TIMEOPS
#define STRETTO_DIALECT_STRETTO_TIMEOPS

include "dialect/stretto/StrettoBase.td"
include "mlir/IR/OpAsmInterface.td"

def Stretto_PositionOp : Stretto_Op<"position", [Pure]> {
  let summary = "position of the token in its sequence";
  let description = [{
    `t`, counted from 0 at the start of the sequence; it continues when a sequence continues from a state.

    Example:
    ```mlir
    %t = stretto.position
    ```
  }];
  let results = (outs Stretto_Time:$result);
  let assemblyFormat = "attr-dict";
}

def Stretto_TableOp : Stretto_Op<"table", [Pure, SingleBlock,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "a row that is known before the data: a function of position, head and channel";
  let description = [{
    `y[h, d] = f(t, h, d)`, evaluated in fp64 on the host. The body's arguments are `t`, `h` and `d` as real
    numbers; it may use options and sizes from outside. With a period `p`, `t` is first reduced to `t mod p`: an
    integer period makes the table finite. A row that does not use `t` is constant in time. Conditions may choose
    between values by `arith.select` or `scf.if`.

    Constraints: `table_c1` the body has three arguments of type `f64` and yields one `f64`; `table_c2` the body
    holds arithmetic on real numbers, conditions, options and sizes only.

    Example (RetNet's decay):
    ```mlir
    %g = stretto.table {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %c = arith.constant -5.0 : f64
      %e = arith.subf %c, %h : f64
      %two = math.exp2 %e : f64
      %n = arith.negf %two : f64
      %l = math.log1p %n : f64
      stretto.yield %l : f64
    } : tensor<f64, #stretto.row<(), G>>
    ```
  }];
  let arguments = (ins Optional<F64>:$period);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "(`period` $period^)? $body attr-dict `:` type($result)";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    bool variesOverTime() { return !getBody().getArgument(0).use_empty(); }
    /// The period, where it is a known number of whole tokens, after which the numbers return.
    ::std::optional<int64_t> getWholePeriod();
  }];
}

def Stretto_ConvOp : Stretto_Op<"conv", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "causal depthwise convolution over time";
  let description = [{
    `y_t = sum_{j=0..J-1} taps[:, J-1-j] * x_(t-j)`: the last tap meets the token itself. Rows before the start of
    the sequence are 0, or those of the initial state: the `J-1` rows of a tail. With `reverse`, `x_(t+j)`: anti-causal.
    Then the tail holds sums, what comes from beyond the end for each of the last `J-1` tokens, and what the sequence
    gives in turn to the `J-1` tokens before it: the gradients of a tail. `of` names the entry of the state that it is.

    Constraints: `conv_c1` the taps have two axes, the first that of the row; `conv_c2` their head set divides the
    row's; `conv_c3` the number of taps is a constant of at least 1 (at most 64).

    Example:
    ```mlir
    %y = stretto.conv %x, %taps : tensor<?xf64, #stretto.row<D>>, tensor<?x4xf64, #stretto.param<[D, 4], H>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand, Stretto_Param:$taps, UnitAttr:$reverse, OptionalAttr<StrAttr>:$entry);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = [{ $operand `,` $taps (`reverse` $reverse^)? (`of` $entry^)? attr-dict
                          `:` type($operand) `,` type($taps) }];
  let hasVerifier = 1;
}

def Stretto_DelayOp : Stretto_Op<"delay", [Pure, SameOperandsAndResultType]> {
  let summary = "the row of an earlier token";
  let description = [{
    `y_t = x_(t-n)`, 0 before the start or the rows of the initial state; with `reverse`, `x_(t+n)`. `of` names the
    entry of the state that holds these rows.

    Constraints: `delay_c1` `n` is from 0 to 1024.

    Example:
    ```mlir
    %y = stretto.delay %x by 1 : tensor<?xf64, #stretto.row<D>>
    ```
  }];
  let arguments = (ins Stretto_Row:$operand, I64Attr:$by, UnitAttr:$reverse, OptionalAttr<StrAttr>:$entry);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = "$operand `by` $by (`reverse` $reverse^)? (`of` $entry^)? attr-dict `:` type($operand)";
  let hasVerifier = 1;
  let hasFolder = 1;
  let extraClassDeclaration = [{ static constexpr uint64_t maximalDelay = 1024; }];
}

def Stretto_ScanOp : Stretto_Op<"scan", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "running sum, maximum or log-sum-exp over time";
  let description = [{
    `add`: `y_t = e^(g_t) y_(t-1) + x_t`, from 0; `logaddexp`: `y_t = log(e^(y_(t-1) + g_t) + e^(x_t))`, from -inf;
    `max`: `y_t = max(y_(t-1) + g_t, x_t)`, from -inf. Without `log`, `g = 0`. With `exclusive` the result is
    `y_(t-1)`. With `reverse`, time runs backwards.

    Constraints: `scan_c1` the log row has the operand's type.

    Example:
    ```mlir
    %total = stretto.scan logaddexp %s : tensor<?xf64, #stretto.row<N, G>>
    %before = stretto.scan logaddexp %s exclusive : tensor<?xf64, #stretto.row<N, G>>
    ```
  }];
  let arguments = (ins Stretto_ScanKindAttr:$kind, Stretto_Row:$operand, Optional<Stretto_Row>:$log,
                       UnitAttr:$exclusive, UnitAttr:$reverse);
  let results = (outs Stretto_Row:$result);
  let assemblyFormat = [{ `` $kind $operand (`log` $log^)? (`exclusive` $exclusive^)? (`reverse` $reverse^)? attr-dict
                          `:` type($operand) (`,` type($log)^)? }];
  let hasVerifier = 1;
}

def Stretto_LookbackOp : Stretto_Op<"lookback", [Pure, SingleBlock]> {
  let summary = "a fold over the keys of a range that ends at the token";
  let description = [{
    Folds the pairs of token `t` with every token `j` in `[first_t, t]`, or `[first_t, end of the sequence]` with
    `to_end`. `first` never decreases over time; what lies before token 0 is left out. In the body plain rows
    belong to `t`, `stretto.past` takes those of `j`. The body yields

    - `sum`: contributions `c`; the results are `sum_j c_j` of each.
    - `softmax`: a score `s` and a contribution `c`; the results are `m = max_j s_j`, `l = sum_j e^(s_j - m)`,
      `acc = sum_j e^(s_j - m) c_j`.
    - `divergence`: a teacher's score and a student's score; the results are
      `kl = sum_j p_j (log p_j - log r_j)`, with `p` and `r` the softmaxes of the teacher's and the student's scores,
      and the log-sum-exp of the teacher's and of the student's scores.

    A score of `-inf` leaves its pair out. A range without pairs gives 0 (`m` and log-sum-exp: `-inf`).
    With `reverse` the fold runs over `{u : first_u <= t <= u}`, the look-ahead, and `stretto.past` takes rows of `u`.

    Constraints: `lookback_c1` the body has no arguments and yields what the fold needs; `lookback_c2` results have
    the fold's types; `lookback_c3` scores are numbers; `lookback_c4` the body holds row operations only, and `scf.if`
    around them; `lookback_c5` a score and its contribution, or two scores, share one head set.

    Example:
    ```mlir
    %m, %l, %acc = stretto.lookback softmax from %first {
      %kj = stretto.past %k : tensor<?xf64, #stretto.row<K>>
      %vj = stretto.past %v : tensor<?xf64, #stretto.row<V>>
      %s = stretto.dot %q, %kj : tensor<?xf64, #stretto.row<K>> -> tensor<f64, #stretto.row<()>>
      stretto.yield %s, %vj : tensor<f64, #stretto.row<()>>, tensor<?xf64, #stretto.row<V>>
    } : tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>, tensor<?xf64, #stretto.row<V>>
    ```
  }];
  let arguments = (ins Stretto_FoldAttr:$fold, Stretto_Time:$first, UnitAttr:$to_end, UnitAttr:$reverse);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Variadic<Stretto_Row>:$results);
  let assemblyFormat = [{ `` $fold `from` $first (`to_end` $to_end^)? (`reverse` $reverse^)? $body attr-dict
                          `:` type($results) }];
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// The types of the results of a fold whose body yields rows of these types.
    static ::llvm::SmallVector<::mlir::Type> resultTypes(Fold fold, ::mlir::TypeRange yielded);
  }];
}

def Stretto_PastOp : Stretto_Op<"past", [Pure, SameOperandsAndResultType]> {
  let summary = "a row of the other token of a look-back's pair";
  let description = [{
    Constraints: `past_c1` it stands in a look-back, its operand outside.

    Example: see `stretto.lookback`.
  }];
  let arguments = (ins Stretto_AnyRow:$operand);
  let results = (outs Stretto_AnyRow:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

#endif // STRETTO_DIALECT_STRETTO_TIMEOPS
