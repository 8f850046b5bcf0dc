//===- StrettoOps.td - The stretto dialect: operations -----------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_STRETTO_OPS
#define STRETTO_DIALECT_STRETTO_OPS

include "dialect/stretto/StrettoBase.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

class Stretto_Op<string name, list<Trait> traits = []> : Op<Stretto_Dialect, name, traits>;

//===----------------------------------------------------------------------===//
// The declaration
//===----------------------------------------------------------------------===//

def Stretto_VariantOp : Stretto_Op<"variant", [
    Symbol, IsolatedFromAbove, SingleBlock, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "declares what one token does";
  let description = [{
    The arguments are rows and parameters, the results rows of the token. An argument marked `{stretto.optional}`
    may be absent. Options are compile-time values with a default: a number, a condition, one of several words
    (`#stretto.choice`), or an expression over sizes and other numeric options (`"K**-0.5"`). `axes` fixes named
    sizes by such expressions. A size is known where the type of a value or an entry of `axes` names it. A specialised
    variant says in the attribute `group` how many heads of its finest head set share one head of each set. What
    `stretto-differentiate` makes is marked `gradient`: its results are the gradients of its first rows, or of those that
    `wanted` names. `saved` counts the last results, which `stretto-save-rows` adds for a gradient: they have the type of
    arithmetic in memory.

    Constraints: `variant_c1` arguments are rows or parameters, results rows, and every argument has one name;
    `variant_c2` argument names are identifiers and distinct; `variant_c3` an option's default is a number, a
    condition, a choice or an expression, and its name is not that of a size; `variant_c4` the body takes the
    declared arguments and yields the declared results; `variant_c5` an axis has an identifier for a name and is fixed
    by an expression; `variant_c6` operations, nesting and settings stay within the closed list and its limits;
    `variant_c7` values are rows, parameters, states, `f64` or `i1`; `variant_c8` an axis has one dimension wherever
    it is known; `variant_c9` expressions use known sizes and numeric options, and do not depend on themselves;
    `variant_c10` `group` gives each head set a positive integer; `variant_c11` the results of a gradient have the
    types of the first rows of real numbers among its arguments, or of the rows of real numbers that `wanted` names;
    `variant_c12` `saved` counts some of the results behind the first, and a gradient has none.

    Example:
    ```mlir
    !K = tensor<?xf64, #stretto.row<K>>
    !K_per_G = tensor<?xf64, #stretto.row<K, G>>
    !V_per_G = tensor<?xf64, #stretto.row<V, G>>
    !V = tensor<?xf64, #stretto.row<V>>
    !S = !stretto.state<K, V, G>
    stretto.variant @gla(%q: !K, %k: !K_per_G, %v: !V_per_G, %g: !K_per_G) -> !V options(scale = "K**-0.5") {
      %S0 = stretto.state "S" : !S
      %S1 = stretto.decay %S0 log %g along "K" : !S, !K_per_G
      %S2 = stretto.write %S1, %k, %v : !S, !K_per_G, !V_per_G
      %scale = stretto.option "scale" : !K
      %qs = arith.mulf %q, %scale : !K
      %o = stretto.read %S2, %qs along "K" : !S, !K -> !V
      stretto.yield %o : !V
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, TypeAttrOf<FunctionType>:$function_type,
                       StrArrayAttr:$arg_names, OptionalAttr<DictArrayAttr>:$arg_attrs,
                       DictionaryAttr:$options, DictionaryAttr:$axes, OptionalAttr<StrAttr>:$summary,
                       OptionalAttr<DictionaryAttr>:$group, UnitAttr:$gradient,
                       OptionalAttr<StrArrayAttr>:$wanted, OptionalAttr<I64Attr>:$saved);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::FunctionType getType() { return getFunctionType(); }
    ::mlir::Block *getBlock() { return &getBody().front(); }
    ::llvm::StringRef getArgName(unsigned index) {
      return ::llvm::cast<::mlir::StringAttr>(getArgNames()[index]).getValue();
    }
    /// Attributes of one argument, or an empty dictionary.
    ::mlir::DictionaryAttr getArgAttrDict(unsigned index);
    bool isOptional(unsigned index) { return getArgAttrDict(index).contains("stretto.optional"); }
    /// The rows that a gradient of the variant is of, or that this gradient is of.
    ::llvm::SmallVector<unsigned> getDifferentiableRows();
    /// Results but for those that are saved for a gradient.
    unsigned getResultCount() { return getType().getNumResults() - getSaved().value_or(0); }
  }];
}

def Stretto_YieldOp : Stretto_Op<"yield", [Pure, Terminator, ReturnLike,
    ParentOneOf<["VariantOp", "TableOp", "LookbackOp"]>]> {
  let summary = "ends a region with its results";
  let description = [{
    Example: see `stretto.variant`, `stretto.table` and `stretto.lookback`.
  }];
  let arguments = (ins Variadic<AnyType>:$values);
  let builders = [OpBuilder<(ins)>];
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

def Stretto_OptionOp : Stretto_Op<"option", [Pure]> {
  let summary = "value of an option";
  let description = [{
    The value of an option of the variant: a condition (`i1`), a number (`f64`), or that number as a row.

    Constraints: `option_c1` the option is declared; `option_c2` its kind fits the type.

    Example:
    ```mlir
    stretto.variant @scaled(%x: tensor<?xf64, #stretto.row<K>>) -> tensor<?xf64, #stretto.row<K>>
        options(scale = "K**-0.5") {
      %scale = stretto.option "scale" : tensor<?xf64, #stretto.row<K>>
      %y = arith.mulf %x, %scale : tensor<?xf64, #stretto.row<K>>
      stretto.yield %y : tensor<?xf64, #stretto.row<K>>
    }
    ```
  }];
  let arguments = (ins StrAttr:$name);
  let results = (outs AnyTypeOf<[Stretto_Row, F64, I1]>:$value);
  let assemblyFormat = "$name attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Stretto_OptionIsOp : Stretto_Op<"option_is", [Pure]> {
  let summary = "whether an option has a given word";
  let description = [{
    Constraints: `option_is_c1` the option is declared as a choice; `option_is_c2` the word is one of its choices.

    Example:
    ```mlir
    stretto.variant @signed() -> () options(decay = #stretto.choice<"none" of ["none", "abs", "signed"]>) {
      %signed = stretto.option_is "decay" "signed"
      stretto.yield
    }
    ```
  }];
  let arguments = (ins StrAttr:$name, StrAttr:$word);
  let results = (outs I1:$value);
  let assemblyFormat = "$name $word attr-dict";
  let hasVerifier = 1;
}

def Stretto_PresentOp : Stretto_Op<"present", [Pure]> {
  let summary = "whether an optional argument is present";
  let description = [{
    Constraints: `present_c1` the operand is an argument marked `{stretto.optional}`.

    Example:
    ```mlir
    stretto.variant @skip(%x: tensor<f64, #stretto.row<()>>, %D: tensor<f64, #stretto.param<[]>> {stretto.optional})
        -> tensor<f64, #stretto.row<()>> {
      %has = stretto.present %D : tensor<f64, #stretto.param<[]>>
      %y = scf.if %has -> tensor<f64, #stretto.row<()>> {
        %d = stretto.broadcast %D : tensor<f64, #stretto.param<[]>> to tensor<f64, #stretto.row<()>>
        %dx = arith.mulf %d, %x : tensor<f64, #stretto.row<()>>
        scf.yield %dx : tensor<f64, #stretto.row<()>>
      } else {
        scf.yield %x : tensor<f64, #stretto.row<()>>
      }
      stretto.yield %y : tensor<f64, #stretto.row<()>>
    }
    ```
  }];
  let arguments = (ins Stretto_Input:$argument);
  let results = (outs I1:$value);
  let assemblyFormat = "$argument attr-dict `:` type($argument)";
  let hasVerifier = 1;
}

def Stretto_SizeOp : Stretto_Op<"size", [Pure]> {
  let summary = "a size as a real number";
  let description = [{
    Constraints: `size_c1` the expression is a size; `size_c2` the variant knows the sizes in it.

    Example:
    ```mlir
    %half = stretto.size "F/2" : f64
    ```
  }];
  let arguments = (ins StrAttr:$extent);
  let results = (outs Stretto_RowOrReal:$value);
  let assemblyFormat = "$extent attr-dict `:` type($value)";
  let hasVerifier = 1;
  let hasFolder = 1;
}

//===----------------------------------------------------------------------===//
// Row maps
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

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

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

def Stretto_StateOp : Stretto_Op<"state", [MemoryEffects<[MemRead<Stretto_Carried>]>]> {
  let summary = "the state that the previous token left";
  let description = [{
    What the chain of operations on this state yielded at the previous token; at the first token the initial state,
    or 0. The name is that of the entry in the state object and is unique in the variant. A state is a chain: each
    of its values is decayed or written at most once, and any value of the token may be read. The last value is
    carried to the next token, so a decay or a write is never dead, though nothing may use its result. Under a
    condition the chain goes through both branches of an `scf.if` and on from its result.

    With `of`, the state is some columns of an entry that other states share: those from `column` on, of `columns`.

    Constraints: `state_c1` names are distinct, except in branches of which only one is taken; `state_c2` each value
    has at most one change: a decay or write that stands in the same block, or one `scf.if` whose branches both yield
    what they make of it as the same result; `state_c3` nothing but decay, write, read, pair and `scf.if` uses a state;
    `state_c4` the entry has the columns that the state takes, where their number is known.

    Example:
    ```mlir
    %S = stretto.state "S" : !stretto.state<K, V, G>
    ```
  }];
  let arguments = (ins StrAttr:$name, OptionalAttr<StrAttr>:$entry, DefaultValuedAttr<I64Attr, "0">:$column,
                       DefaultValuedAttr<I64Attr, "0">:$columns);
  let results = (outs Stretto_State:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$type, "::llvm::StringRef":$name)>];
  let assemblyFormat = [{ $name (`of` $entry^ `column` custom<Number>($column) `columns` custom<Number>($columns))? attr-dict
                          `:` type($result) }];
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

#endif // STRETTO_DIALECT_STRETTO_OPS
