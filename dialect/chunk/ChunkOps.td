//===- ChunkOps.td - The chunk dialect ----------------------------*- tablegen -*-===//
#ifndef STRETTO_DIALECT_CHUNK_CHUNKOPS
#define STRETTO_DIALECT_CHUNK_CHUNKOPS

include "dialect/chunk/DecayOps.td"
include "dialect/chunk/LookbackOps.td"
include "dialect/chunk/TileOps.td"

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
    are walked side by side, each from states that are known where it begins, which a launch provides: the initial ones
    for the first segment. With `segments turns` the body is executed once for each segment of a
    sequence, one after the other, and its checkpoints are those of segments in place of chunks.

    A `recorded` kernel keeps the states at the start of each chunk beside its outputs, for a gradient, whatever other
    kernels are asked to keep by a launch. A reverse kernel may have checkpoints of every second chunk alone: with `between @other` those of a chunk of odd
    number are what the kernel @other, which keeps them, makes of the tiles and checkpoints of the chunk before.

    An `earlier` kernel leaves those results that are made of earlier tokens and its own; others, which later tokens have
    a part in, are left by one whose name ends with `_later` (stretto-divide-results).

    Constraints: `kernel_c1` every argument is described, and the last alone is the number of valid tokens, of type
    index; `kernel_c2` all others are tensors of real numbers of static shape; `kernel_c3` inputs and outputs have C
    rows, checkpoints one axis or two; `kernel_c4` the body yields the declared types; `kernel_c5` a group has at least one head; `kernel_c6` a
    state is a range of columns of an entry, of one axis or two, a parameter of two may be, and nothing else is; `kernel_c7` a table is a
    `chunk.table` of the module; `kernel_c8` there is at least one token in a chunk, and one slice; `kernel_c9`
    names of arguments are distinct; `kernel_c10` a window has rows of an input; `kernel_c11` nothing is both sliced and
    partial, states that heads share and checkpoints are not partial; `kernel_c12` a kernel whose
    turns are segments has states and checkpoints alone; `kernel_c13` between chunks of a reverse kernel stands one of
    the module that walks forward in chunks of as many tokens, keeps all of its checkpoints, and has inputs and states
    that it has as inputs and checkpoints, and nothing else; `kernel_c14` an `earlier` kernel carries no states.

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
                       DefaultValuedAttr<I64Attr, "1">:$slices, OptionalAttr<Chunk_SegmentsAttr>:$segments,
                       OptionalAttr<FlatSymbolRefAttr>:$between, UnitAttr:$recorded, UnitAttr:$earlier);
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

#endif // STRETTO_DIALECT_CHUNK_CHUNKOPS
