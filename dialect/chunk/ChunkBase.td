//===- ChunkBase.td - The chunk dialect's attributes and types ----*- tablegen -*-===//
#ifndef STRETTO_DIALECT_CHUNK_CHUNKBASE
#define STRETTO_DIALECT_CHUNK_CHUNKBASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Chunk_Dialect : Dialect {
  let name = "chunk";
  let cppNamespace = "::stretto::chunk";
  let summary = "Chunk level: tiles of C tokens and carried states";
  let description = [{
    A `chunk.kernel` says what one chunk of C consecutive tokens of one head does: from tiles of its inputs and the
    states that the chunk before left, it computes tiles of its outputs and the states that it leaves. The kernel as
    a whole is the fold of this body over the chunks of each sequence and head; how the fold is executed is its
    schedule, and memory does not occur at this level.

    Values are builtin tensors of static shape: `tensor<64x128xbf16>` a tile (tokens by channels), `tensor<64xf32>` a
    number for each token, `tensor<128xf32>` a row, `tensor<128x64xf32>` a state or a parameter. Elementwise
    arithmetic is that of `arith` and `math`. All other arithmetic is below; sums are formed in the type of the
    result.

    The number of tokens that exist in a chunk is the kernel's `valid` argument: C, except in the last chunk of a
    sequence. Rows beyond it load as 0, from inputs and from tables that vary over time, and are never stored.
  }];
  let hasCanonicalizer = 1;
  let hasConstantMaterializer = 1;
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect"];
  let useDefaultAttributePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes and types
//===----------------------------------------------------------------------===//

def Chunk_ArgumentKind : I32EnumAttr<"ArgumentKind", "what an argument of a kernel is", [
    I32EnumAttrCase<"Input", 0, "input">, I32EnumAttrCase<"Parameter", 1, "parameter">,
    I32EnumAttrCase<"Table", 2, "table">, I32EnumAttrCase<"State", 3, "state">,
    I32EnumAttrCase<"Valid", 4, "valid">, I32EnumAttrCase<"Checkpoint", 5, "checkpoint">,
    I32EnumAttrCase<"Window", 6, "window">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}

def Chunk_ArgumentAttr : AttrDef<Chunk_Dialect, "Argument"> {
  let mnemonic = "argument";
  let summary = "What one argument of a kernel is";
  let description = [{
    `group` is the number of the kernel's heads that share one head of the argument. `sliced` says that the last axis
    is divided among the slices of the kernel; a state is `partial` where each slice has its part of it, and their sum
    is the state. For a table, the name is that of its `chunk.table`.

    A state is a part of an entry of the state object: the columns from `column` on of the `columns` columns of
    `entry`; with `rows`, the rows of these from `row` on of the `rows` rows that the entry has. A state of one axis is
    one column. Where no initial state is given, a state is 0, or -inf if it is `lowest`.
    A parameter may be such columns of the parameter `entry`, which is a matrix.
    A window is the entry of its own name and holds the last L rows of the input `entry` before the first token: that of
    position t is row t mod L. For other kinds `entry` is absent.
  }];
  let parameters = (ins "::stretto::chunk::ArgumentKind":$kind, "::mlir::StringAttr":$name,
                        DefaultValuedParameter<"int64_t", "1">:$group, DefaultValuedParameter<"bool", "false">:$sliced,
                        OptionalParameter<"::mlir::StringAttr">:$entry, DefaultValuedParameter<"int64_t", "0">:$column,
                        DefaultValuedParameter<"int64_t", "0">:$columns,
                        DefaultValuedParameter<"bool", "false">:$lowest,
                        DefaultValuedParameter<"bool", "false">:$partial,
                        DefaultValuedParameter<"int64_t", "0">:$row, DefaultValuedParameter<"int64_t", "0">:$rows);
  let builders = [AttrBuilder<(ins "::stretto::chunk::ArgumentKind":$kind, "::mlir::StringAttr":$name,
                                   "int64_t":$group), [{
    return $_get($_ctxt, kind, name, group, /*sliced=*/false, /*entry=*/::mlir::StringAttr(), /*column=*/0,
                 /*columns=*/0, /*lowest=*/false, /*partial=*/false, /*row=*/0, /*rows=*/0);
  }]>];
  let assemblyFormat = [{ `<` custom<Kind>($kind) $name (`group` $group^)? (`sliced` $sliced^)? (`of` $entry^)?
                          (`column` $column^)? (`columns` $columns^)? (`lowest` $lowest^)? (`partial` $partial^)?
                          (`row` $row^)? (`rows` $rows^)? `>` }];
}
def Chunk_ArgumentArrayAttr : TypedArrayAttrBase<Chunk_ArgumentAttr, "what each argument is">;

def Chunk_OutputAttr : AttrDef<Chunk_Dialect, "Output"> {
  let mnemonic = "output";
  let summary = "What one output of a kernel is";
  let description = [{
    `group` is the number of the kernel's heads that share one head of the output: it is the sum of what each of them
    yields. `sliced` says that the last axis is divided among the slices of the kernel, `partial` that it is the sum of
    what they yield. A `checkpoint` is one matrix or vector for each chunk, all others have a row for each token.
  }];
  let parameters = (ins "::mlir::StringAttr":$name, "::mlir::RankedTensorType":$type,
                        DefaultValuedParameter<"int64_t", "1">:$group, DefaultValuedParameter<"bool", "false">:$sliced,
                        DefaultValuedParameter<"bool", "false">:$checkpoint,
                        DefaultValuedParameter<"bool", "false">:$partial);
  let assemblyFormat = [{ `<` $name `,` $type (`group` $group^)? (`sliced` $sliced^)? (`checkpoint` $checkpoint^)?
                          (`partial` $partial^)? `>` }];
}
def Chunk_OutputArrayAttr : TypedArrayAttrBase<Chunk_OutputAttr, "what each output is">;

def Chunk_Side : I32EnumAttr<"Side", "an axis of a tile or matrix", [
    I32EnumAttrCase<"Rows", 0, "rows">, I32EnumAttrCase<"Columns", 1, "columns">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_SideAttr : EnumAttr<Chunk_Dialect, Chunk_Side, "side"> { let assemblyFormat = "$value"; }

def Chunk_Reduction : I32EnumAttr<"Reduction", "a reduction", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Max", 1, "max">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_ReductionAttr : EnumAttr<Chunk_Dialect, Chunk_Reduction, "reduction"> { let assemblyFormat = "$value"; }

def Chunk_Fold : I32EnumAttr<"Fold", "how the pairs of a look-back are folded", [
    I32EnumAttrCase<"Sum", 0, "sum">, I32EnumAttrCase<"Softmax", 1, "softmax">,
    I32EnumAttrCase<"Divergence", 2, "divergence">, I32EnumAttrCase<"Outer", 3, "outer">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_FoldAttr : EnumAttr<Chunk_Dialect, Chunk_Fold, "fold"> { let assemblyFormat = "$value"; }

def Chunk_DecayForm : I32EnumAttr<"DecayForm", "what the amount of a decay is", [
    I32EnumAttrCase<"Log", 0, "log">, I32EnumAttrCase<"Factor", 1, "factor">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_DecayFormAttr : EnumAttr<Chunk_Dialect, Chunk_DecayForm, "decay_form"> { let assemblyFormat = "$value"; }

def Chunk_ScanKind : I32EnumAttr<"ScanKind", "operation of a scan over time", [
    I32EnumAttrCase<"Add", 0, "add">, I32EnumAttrCase<"LogAddExp", 1, "logaddexp">,
    I32EnumAttrCase<"Max", 2, "max">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_ScanKindAttr : EnumAttr<Chunk_Dialect, Chunk_ScanKind, "scan_kind"> { let assemblyFormat = "$value"; }

def Chunk_Segments : I32EnumAttr<"Segments", "how a kernel takes the segments of a sequence", [
    I32EnumAttrCase<"Apart", 0, "apart">, I32EnumAttrCase<"Turns", 1, "turns">]> {
  let cppNamespace = "::stretto::chunk";
  let genSpecializedAttr = 0;
}
def Chunk_SegmentsAttr : EnumAttr<Chunk_Dialect, Chunk_Segments, "segments"> { let assemblyFormat = "$value"; }

def Chunk_Tensor : StaticShapeTensorOf<[AnyFloat]>;
def Chunk_TensorOrCondition : StaticShapeTensorOf<[AnyFloat, I1]>;
def Chunk_Vector : 1DTensorOf<[AnyFloat]>;
def Chunk_Matrix : 2DTensorOf<[AnyFloat]>;

class Chunk_Op<string name, list<Trait> traits = []> : Op<Chunk_Dialect, name, traits>;

#endif // STRETTO_DIALECT_CHUNK_CHUNKBASE
