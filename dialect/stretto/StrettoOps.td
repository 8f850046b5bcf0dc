//===- StrettoOps.td - The stretto dialect: operations -----------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_STRETTO_OPS
#define STRETTO_DIALECT_STRETTO_OPS

include "dialect/stretto/RowOps.td"
include "dialect/stretto/StateOps.td"
include "dialect/stretto/TimeOps.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"

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
    `wanted` names. `saved` counts the last results, which `stretto-save-rows` adds for a gradient, or, of a gradient, the
    last arguments, which it takes: they have the type of arithmetic in memory.

    Constraints: `variant_c1` arguments are rows or parameters, results rows, and every argument has one name;
    `variant_c2` argument names are identifiers and distinct; `variant_c3` an option's default is a number, a
    condition, a choice or an expression, and its name is not that of a size; `variant_c4` the body takes the
    declared arguments and yields the declared results; `variant_c5` an axis has an identifier for a name and is fixed
    by an expression; `variant_c6` operations, nesting and settings stay within the closed list and its limits;
    `variant_c7` values are rows, parameters, states, `f64` or `i1`; `variant_c8` an axis has one dimension wherever
    it is known; `variant_c9` expressions use known sizes and numeric options, and do not depend on themselves;
    `variant_c10` `group` gives each head set a positive integer; `variant_c11` the results of a gradient have the
    types of the first rows of real numbers among its arguments, or of the rows of real numbers that `wanted` names;
    `variant_c12` `saved` counts some of the results behind the first, or arguments of a gradient.

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
    unsigned getResultCount() { return getType().getNumResults() - (getGradient() ? 0 : getSaved().value_or(0)); }
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

#endif // STRETTO_DIALECT_STRETTO_OPS
