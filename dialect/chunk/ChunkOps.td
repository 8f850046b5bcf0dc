//===- ChunkOps.td - The chunk dialect ---------------------------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_CHUNK_OPS
#define STRETTO_DIALECT_CHUNK_OPS

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
    `entry`. A state of one axis is one column. Where no initial state is given, a state is 0, or -inf if it is `lowest`.
    A parameter may be such columns of the parameter `entry`, which is a matrix.
    A window is the entry of its own name and holds the last L rows of the input `entry` before the first token: that of
    position t is row t mod L. For other kinds `entry` is absent.
  }];
  let parameters = (ins "::stretto::chunk::ArgumentKind":$kind, "::mlir::StringAttr":$name,
                        DefaultValuedParameter<"int64_t", "1">:$group, DefaultValuedParameter<"bool", "false">:$sliced,
                        OptionalParameter<"::mlir::StringAttr">:$entry, DefaultValuedParameter<"int64_t", "0">:$column,
                        DefaultValuedParameter<"int64_t", "0">:$columns,
                        DefaultValuedParameter<"bool", "false">:$lowest,
                        DefaultValuedParameter<"bool", "false">:$partial);
  let assemblyFormat = [{ `<` custom<Kind>($kind) $name (`group` $group^)? (`sliced` $sliced^)? (`of` $entry^)?
                          (`column` $column^)? (`columns` $columns^)? (`lowest` $lowest^)? (`partial` $partial^)? `>` }];
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

//===----------------------------------------------------------------------===//
// The kernel
//===----------------------------------------------------------------------===//

def Chunk_KernelOp : Chunk_Op<"kernel", [
    Symbol, IsolatedFromAbove, SingleBlock, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "what one chunk of tokens of one head does";
  let description = [{
    The body's arguments, in the order of `arguments`: tiles of the inputs (element type as in memory), parameters,
    tables, states as the chunk before left them (the initial state, or 0, before the first), and last the number of
    valid tokens. It yields tiles of the outputs and, after `next`, the states in the order of the state arguments.

    A `reverse` kernel meets the last chunk of a sequence first, and "before" means the chunk after. Rows of a tile are
    in the order of time all the same. What another kernel knew at the start of a chunk reaches it as a checkpoint: an
    output marked `checkpoint` is a matrix or vector for each chunk, and the argument `checkpoint` of another kernel
    with chunks of as many tokens is that for the same chunk. A checkpoint with `group` g is the same for g heads. An
    output with `group` g belongs to a head that g heads of the kernel share: it is the part of one of them, and the
    output proper is their sum.

    `chunk` is C. A state is all of the entry of its own name in the state object, or
    some columns of another: `state %z: tensor<32xf32> of "S" column 64 columns 65`. A state with `group` g is the
    same for g neighbouring heads, which each compute it. A parameter may be columns of another, too. A state after `lowest` is -inf where none is given, not 0.
    `slices` divides the value axis among independent blocks: of arguments and outputs that are `sliced` a block has
    its columns, and those that are `partial` are the sum of what the blocks have.

    A segment is a number of consecutive chunks that a launch chooses. With `segments apart` the segments of a sequence
    are walked side by side, each from states that are known at its start, which a launch provides: the initial ones
    for the first segment. With `segments turns` the body is executed once for each segment of a sequence, one after
    the other, and its checkpoints are those of segments in place of chunks.

    Constraints: `kernel_c1` every argument is described, and the last alone is the number of valid tokens, of type
    index; `kernel_c2` all others are tensors of real numbers of static shape; `kernel_c3` inputs and outputs have C
    rows, checkpoints one axis or two; `kernel_c4` the body yields the declared types; `kernel_c5` a group has at least one head; `kernel_c6` a
    state is a range of columns of an entry, of one axis or two, a parameter of two may be, and nothing else is; `kernel_c7` a table is a
    `chunk.table` of the module; `kernel_c8` there is at least one token in a chunk, and one slice; `kernel_c9`
    names of arguments are distinct; `kernel_c10` a window has rows of an input; `kernel_c11` nothing is both sliced and
    partial, states that heads share and checkpoints are not partial; `kernel_c12` a kernel with segments is not `reverse`;
    one whose segments are apart has no checkpoints, and one whose turns are segments has states and
    checkpoints alone.

    Example:
    ```mlir
    chunk.kernel @linear chunk 16 (input %q: tensor<16x32xbf16>, input %k: tensor<16x32xbf16> group 2,
        input %v: tensor<16x64xbf16> group 2, state %S: tensor<32x64xf32> group 2, valid %n: index)
        -> (o: tensor<16x64xbf16>) {
      %q32 = arith.extf %q : tensor<16x32xbf16> to tensor<16x32xf32>
      %k32 = arith.extf %k : tensor<16x32xbf16> to tensor<16x32xf32>
      %v32 = arith.extf %v : tensor<16x64xbf16> to tensor<16x64xf32>
      %qk = chunk.dot %q32, %k32 transpose_right : tensor<16x32xf32>, tensor<16x32xf32> -> tensor<16x16xf32>
      %p = chunk.causal %qk : tensor<16x16xf32>
      %inner = chunk.dot %p, %v32 : tensor<16x16xf32>, tensor<16x64xf32> -> tensor<16x64xf32>
      %o = chunk.dot %q32, %S add %inner : tensor<16x32xf32>, tensor<32x64xf32> -> tensor<16x64xf32>
      %next = chunk.dot %k32, %v32 transpose_left add %S : tensor<16x32xf32>, tensor<16x64xf32> -> tensor<32x64xf32>
      %o16 = arith.truncf %o : tensor<16x64xf32> to tensor<16x64xbf16>
      chunk.yield %o16 next %next : tensor<16x64xbf16>, tensor<32x64xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$chunk, UnitAttr:$reverse,
                       Chunk_ArgumentArrayAttr:$arguments, Chunk_OutputArrayAttr:$outputs,
                       DefaultValuedAttr<I64Attr, "1">:$slices, OptionalAttr<Chunk_SegmentsAttr>:$segments);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block *getBlock() { return &getBody().front(); }
    ArgumentAttr getArgument(unsigned index) { return ::llvm::cast<ArgumentAttr>(getArguments()[index]); }
    OutputAttr getOutput(unsigned index) { return ::llvm::cast<OutputAttr>(getOutputs()[index]); }
    /// The body's arguments of one kind, in order.
    ::llvm::SmallVector<::mlir::BlockArgument> argumentsOf(ArgumentKind kind);
    ::mlir::BlockArgument getValid() { return getBlock()->getArguments().back(); }
    bool takesSegments(Segments how) { return getSegments() == how; }
  }];
}

def Chunk_YieldOp : Chunk_Op<"yield", [Pure, Terminator, ReturnLike, AttrSizedOperandSegments, HasParent<"KernelOp">]> {
  let summary = "ends a kernel's body with output tiles and next states";
  let arguments = (ins Variadic<Chunk_Tensor>:$outputs, Variadic<Chunk_Tensor>:$states);
  let hasCustomAssemblyFormat = 1;
}

def Chunk_TableOp : Chunk_Op<"table", [Symbol, IsolatedFromAbove, SingleBlock, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "numbers that the host computes before a kernel runs";
  let description = [{
    `f(t, h, d)` in fp64, as in `stretto.table`, all options and sizes folded. Kernels refer to it by name. Without
    `period` it does not depend on `t` unless `varying` says so.

    Constraints: `table_c1` the body takes three numbers and ends with `chunk.result`.

    Example:
    ```mlir
    chunk.table @decay {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %l = arith.negf %h : f64
      chunk.result %l : f64
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, OptionalAttr<I64Attr>:$period, UnitAttr:$varying);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "$sym_name (`period` $period^)? (`varying` $varying^)? attr-dict-with-keyword $body";
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether it is the position of a token itself.
    bool isPosition();
    /// Whether it has other numbers at every position, so that nobody can write down all of them.
    bool isUnbounded() { return getVarying() && !getPeriod(); }
  }];
}

def Chunk_ResultOp : Chunk_Op<"result", [Pure, Terminator, ReturnLike, HasParent<"TableOp">]> {
  let summary = "ends a table's body";
  let arguments = (ins F64:$value);
  let assemblyFormat = "$value attr-dict `:` type($value)";
}

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

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

def Chunk_ConvOp : Chunk_Op<"conv", [Pure]> {
  let summary = "causal depthwise convolution";
  let description = [{
    `y_id = sum_{j=0..J-1} taps_d,(J-1-j) * x_(i-j)d`, where rows before the chunk are the last rows of the tail, in
    time order. Like the operands of a product, each of the three may be of fewer bits than the result.

    Constraints: `conv_c1` operand, taps and tail have the same channels, and the tail has at least `J-1` rows;
    `conv_c2` the result has the shape of the operand, and no operand has wider elements.

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

def Chunk_DelayOp : Chunk_Op<"delay", [Pure, AllTypesMatch<["operand", "result"]>]> {
  let summary = "rows of earlier tokens";
  let description = [{
    `y_i = x_(i-n)`, where rows before the chunk are the last rows of the tail, in time order.

    Constraints: `delay_c1` operand and tail have the same channels; `delay_c2` the tail has at least `n` rows, and
    `n` is at least 0.

    Example:
    ```mlir
    %y = chunk.delay %x by 1 tail %tail : tensor<64x128xf32>, tensor<3x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$tail, I64Attr:$by);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = "$operand `by` $by `tail` $tail attr-dict `:` type($operand) `,` type($tail)";
  let hasVerifier = 1;
}

def Chunk_ConvBackOp : Chunk_Op<"conv_back", [Pure, AllTypesMatch<["operand", "result"]>,
                                              AllTypesMatch<["carry", "next"]>]> {
  let summary = "anti-causal depthwise convolution, which hands sums on to the chunk before";
  let description = [{
    With `e_sd = sum_{j=0..J-1} taps_d,(J-1-j) * x_(s+j)d` over the valid rows of the operand, for `s` from `-(J-1)` on,
    and the carry, sums for the last `J-1` tokens that exist, added to those: `y_i = e_i`, and the next carry is what
    is left for the tokens before the chunk, in time order.

    Constraints: `conv_back_c1` operand, taps and carry have the same channels, and the carry has `J-1` rows.

    Example:
    ```mlir
    %y, %next = chunk.conv_back %x, %taps valid %n after %carry : tensor<64x128xf32>, tensor<128x4xf32>, tensor<3x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$operand, Chunk_Matrix:$taps, Index:$valid, Chunk_Matrix:$carry);
  let results = (outs Chunk_Matrix:$result, Chunk_Matrix:$next);
  let assemblyFormat = [{ $operand `,` $taps `valid` $valid `after` $carry attr-dict
                          `:` type($operand) `,` type($taps) `,` type($carry) }];
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
      `acc_i = sum_j e^(s_ij - m_i) x_j`.
    - `divergence`: scores `s` of the teacher and `r` of the student; the results are, with `p` and `u` the softmaxes of
      `s_i` and `r_i` over j, `kl_i = sum_j p_j (log p_j - log u_j)`, and the log-sum-exp of `s_i` and of `r_i`.
    - `outer`: rows `x` and `y`, once for each result: the matrix `sum_j x_j^T y_j` over the tokens j in the range of any
      token.

    A score of `-inf` (of either side of a divergence) leaves its pair out. A token without pairs has `m = -inf`, `l = 0`,
    `acc = 0`; `kl = 0` and logarithms of `-inf`. Pairs outside of the range are left out by selection, and so are tokens
    beyond the end of the sequence, whatever the body makes of their zeros.

    `ahead` asks the other way round, as gradients do: it pairs each token i with the tokens j that look back at it, those
    from its own on (`to_end`: all of the sequence) in whose range it is. A range is that of j then, and the body
    contributes its bounds, too: `sum` and `outer` are summed over `first_j <= i <= last_j`, `last_j` where it is given.
    For an `outer` product a range that ends before the sequence ends at its first token: there the matrix is handed on.

    What is `continued` meets nothing in a sequence whose first token has position 0: only where a sequence goes on from
    another position are ranges not empty.

    Constraints: `lookback_c1` the bounds have a number for each token; `lookback_c2` what is past is an input of the
    kernel or a table that varies, and the body has an argument of the type of each; `lookback_c3` the body ends with
    `chunk.contribute` of what the fold takes: scores and weights are C by P, rows have P rows; `lookback_c4` the results
    have the shapes that follow from it and one element type with it; `lookback_c5` a range ends at `to` or at the end;
    `lookback_c6` an operation in the body has one result and no region, and no decay and nothing that reaches across
    tokens: `tail`, `conv`, `delay`, `mask`, `accumulate`; `lookback_c7` a range begins somewhere: at `from` of the
    operation or, of a `sum` or `outer` that is `ahead`, at `from` of what the body contributes.

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
                       Variadic<Chunk_Tensor>:$past, UnitAttr:$ahead, UnitAttr:$to_end, UnitAttr:$continued);
  let regions = (region SizedRegion<1>:$body);
  let results = (outs Variadic<Chunk_Tensor>:$results);
  let hasCustomAssemblyFormat = 1;
  let hasRegionVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block *getBlock() { return &getBody().front(); }
    ContributeOp getContribution();
    /// P.
    int64_t getPastTokens();
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

def Chunk_DecayPairsOp : Chunk_Op<"decay_pairs", [Pure, AllTypesMatch<["query", "key", "result"]>]> {
  let summary = "what crosses a token on its way from keys to queries, but for the token's own decay";
  let description = [{
    `y_td = sum_{i>=t} sum_{j<t} q_id P_ij k_jd prod_{u=j+1..i, u!=t} a_ud`: the gradient of the factor `a_td`, which
    may be 0, of what queries see of keys in the chunk, where `P_ij` is what the two have in common.

    Constraints: `decay_pairs_c1` the weights have the rows' element type, and a row and a column for each token;
    `decay_pairs_c2` the amount has one number for each token and channel.

    Example:
    ```mlir
    %y = chunk.decay_pairs %q, %k, %p factor %f : tensor<64x128xf32>, tensor<64x64xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Chunk_Matrix:$query, Chunk_Matrix:$key, Chunk_Matrix:$weights, Chunk_DecayFormAttr:$form,
                       Chunk_Matrix:$amount);
  let results = (outs Chunk_Matrix:$result);
  let assemblyFormat = [{ $query `,` $key `,` $weights `` $form $amount attr-dict
                          `:` type($query) `,` type($weights) `,` type($amount) }];
  let hasVerifier = 1;
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

    Constraints: `within_c1` there is a limit for each operand.

    Example:
    ```mlir
    %good = chunk.within %x, %y limits [60.0, 3.0e38] : tensor<64x128xf32>, tensor<64x128xf32>
    ```
  }];
  let arguments = (ins Variadic<Chunk_Tensor>:$operands, DenseF64ArrayAttr:$limits);
  let results = (outs I1:$result);
  let assemblyFormat = "$operands `limits` $limits attr-dict `:` type($operands)";
  let hasVerifier = 1;
}

#endif // STRETTO_DIALECT_CHUNK_OPS
