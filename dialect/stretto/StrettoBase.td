//===- StrettoBase.td - The stretto dialect: types and attributes ------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_STRETTO_BASE
#define STRETTO_DIALECT_STRETTO_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/BuiltinAttributeInterfaces.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Stretto_Dialect : Dialect {
  let name = "stretto";
  let cppNamespace = "::stretto";
  let summary = "Token level: what one token does to a state and what it reads from it";
  let description = [{
    A `stretto.variant` declares a recurrence by what one token of one head does. Its values are

    - **rows**: builtin tensors of real numbers (`f64`; `i1` for conditions) that belong to one token and one
      head. Their encoding `#stretto.row<K, G>` names the axis and the head set. Rows of one type combine with the
      operations of `arith` and `math`.
    - **parameters**: the same for every token, `#stretto.param<[D, F], H>`.
    - **states**: `!stretto.state<K, V, G>`, a matrix per head that is carried from token to token.

    An axis is identified by its size, an expression over named sizes: `K`, `"V + 1"`, `"1 + K + K*K"`. A head set
    is a name: `H`, the query heads; `G`, the heads of keys and values, which divides every other set; `"1"`, one
    for all heads. Other sets are joined by `|` (`"H|W"`): whichever is larger when sizes are known, and one must
    divide the other. Head `h` of a set of size `n` meets head `h / (n/m)` of a set of size `m`.

    Statements are executed in the order in which they stand, once for each token, in time order; what carries
    `reverse` is executed in reverse time.

    Every constraint beyond the kinds of operands has an id, such as `read_c2`. The id stands in the description of
    the operation, type or attribute, in the verifier's message, and at the test that violates it. Two kinds belong
    to all of them:

    Constraints: `axis_c1` an axis is an expression that parses; `axis_c2` it is in normal form (text is brought to
    it); `axis_c3` it may be at least 1; `axis_c4` an axis that is a number has that dimension; `axis_c5` a known
    dimension is at least 1; `heads_c1` a head set is a name, `"1"`, or names joined by `|` in alphabetical order,
    without `"1"` and `G`.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect"];
  let hasConstantMaterializer = 1;
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

class Stretto_Attr<string name, string attrMnemonic, list<Trait> traits = []>
    : AttrDef<Stretto_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def Stretto_RowAttr : Stretto_Attr<"Row", "row", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "Encoding of a tensor that is a row of one token and one head";
  let description = [{
    `tensor<?xf64, #stretto.row<K, G>>` is a row on the axis of size `K` for each head of the set `G`;
    `tensor<f64, #stretto.row<(), G>>` is a number for each head of `G`. The head set is left out where it is `H`.

    Constraints: `row_c1` the rank is 1 with an axis, 0 without; `row_c2` the entries have type `f64` or `i1`.
  }];
  let parameters = (ins StringRefParameter<"size of the axis, empty for a number">:$axis,
                        StringRefParameter<"head set">:$heads);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Stretto_ParamAttr : Stretto_Attr<"Param", "param", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "Encoding of a tensor that is a parameter: the same for every token";
  let description = [{
    `tensor<?x?xf64, #stretto.param<[D, F], H>>` is a `D` by `F` matrix for each head of `H`.

    Constraints: `param_c1` the rank is the number of axes; `param_c2` the entries have type `f64`.
  }];
  let parameters = (ins ArrayRefParameter<"::mlir::StringAttr", "sizes of the axes">:$axes,
                        StringRefParameter<"head set">:$heads);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
}

def Stretto_ChoiceAttr : Stretto_Attr<"Choice", "choice"> {
  let summary = "Default of an option that is one of several words";
  let description = [{
    `#stretto.choice<"none" of ["none", "abs", "signed"]>`

    Constraints: `choice_c1` the value is one of the choices.
  }];
  let parameters = (ins "::mlir::StringAttr":$value, ArrayRefParameter<"::mlir::StringAttr">:$choices);
  let assemblyFormat = "`<` $value `of` ` ` `[` $choices `]` `>`";
  let genVerifyDecl = 1;
}

def Stretto_DecayForm : I32EnumAttr<"DecayForm", "what the amount of a decay is", [
    I32EnumAttrCase<"Log", 0, "log">, I32EnumAttrCase<"Factor", 1, "factor">]> {
  let cppNamespace = "::stretto";
  let genSpecializedAttr = 0;
}
def Stretto_DecayFormAttr : EnumAttr<Stretto_Dialect, Stretto_DecayForm, "decay_form"> {
  let assemblyFormat = "$value";
}

def Stretto_Reduction : I32EnumAttr<"Reduction", "reduction of a row to a number", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Mean", 1, "mean">, I32EnumAttrCase<"Max", 2, "max">]> {
  let cppNamespace = "::stretto";
  let genSpecializedAttr = 0;
}
def Stretto_ReductionAttr : EnumAttr<Stretto_Dialect, Stretto_Reduction, "reduction"> {
  let assemblyFormat = "$value";
}

def Stretto_ScanKind : I32EnumAttr<"ScanKind", "operation of a scan over time", [
    I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"LogAddExp", 1, "logaddexp">,
    I32EnumAttrCase<"Max", 2, "max">]> {
  let cppNamespace = "::stretto";
  let genSpecializedAttr = 0;
}
def Stretto_ScanKindAttr : EnumAttr<Stretto_Dialect, Stretto_ScanKind, "scan_kind"> {
  let assemblyFormat = "$value";
}

def Stretto_Fold : I32EnumAttr<"Fold", "how a look-back folds its pairs", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Softmax", 1, "softmax">,
    I32EnumAttrCase<"Divergence", 2, "divergence">]> {
  let cppNamespace = "::stretto";
  let genSpecializedAttr = 0;
}
def Stretto_FoldAttr : EnumAttr<Stretto_Dialect, Stretto_Fold, "fold"> {
  let assemblyFormat = "$value";
}

//===----------------------------------------------------------------------===//
// Types
//===----------------------------------------------------------------------===//

def Stretto_State : TypeDef<Stretto_Dialect, "State"> {
  let mnemonic = "state";
  let summary = "A matrix for each head, carried from token to token";
  let description = [{
    `!stretto.state<K, V, G>` is a `K` by `V` matrix for each head of `G`, carried forwards in time;
    `!stretto.state<K, V, reverse>` is carried from the last token to the first. The head set is left out where it
    is `H`. Once sizes are known they stand beside the axes: `!stretto.state<K : 128, "V + 1" : 129, G>`.

    Constraints: `state_type_c1` the axes are not the same, or operations could not tell them apart (both may be of
    size 1).
  }];
  let parameters = (ins
    StringRefParameter<"first axis">:$first, StringRefParameter<"second axis">:$second,
    StringRefParameter<"head set">:$heads, "int64_t":$firstSize, "int64_t":$secondSize, "bool":$reverse);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    /// The axis that is not `axis`.
    ::llvm::StringRef otherAxis(::llvm::StringRef axis) const { return axis == getFirst() ? getSecond() : getFirst(); }
    bool hasAxis(::llvm::StringRef axis) const { return axis == getFirst() || axis == getSecond(); }
    int64_t sizeOf(::llvm::StringRef axis) const { return axis == getFirst() ? getFirstSize() : getSecondSize(); }
  }];
}

def Stretto_IsRow : CPred<"::stretto::isRow($_self)">;
def Stretto_IsRealRow : And<[Stretto_IsRow, CPred<"::llvm::cast<::mlir::ShapedType>($_self).getElementType().isF64()">]>;
def Stretto_Row : Type<Stretto_IsRealRow, "row of real numbers", "::mlir::RankedTensorType">;
def Stretto_AnyRow : Type<Stretto_IsRow, "row", "::mlir::RankedTensorType">;
def Stretto_Param : Type<CPred<"::stretto::isParam($_self)">, "parameter", "::mlir::RankedTensorType">;
def Stretto_ScalarRow : Type<And<[Stretto_IsRealRow, CPred<"::llvm::cast<::mlir::ShapedType>($_self).getRank() == 0">]>,
                             "row without axis (a number for each token and head)", "::mlir::RankedTensorType">;
def Stretto_Time : Type<CPred<"$_self == ::stretto::timeType($_self.getContext())">,
                        "number for each token that is the same for all heads", "::mlir::RankedTensorType">,
                   BuildableType<"::stretto::timeType($_builder.getContext())">;
def Stretto_RowOrReal : AnyTypeOf<[Stretto_Row, F64], "row or real number">;
def Stretto_Input : AnyTypeOf<[Stretto_AnyRow, Stretto_Param], "row or parameter">;

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

/// What a token leaves to the next. The last value of a state's chain is carried on though nothing uses it, so what
/// changes a state is never dead.
def Stretto_Carried : Resource<"::stretto::CarriedState">;

class Stretto_Op<string name, list<Trait> traits = []> : Op<Stretto_Dialect, name, traits>;

#endif // STRETTO_DIALECT_STRETTO_BASE
