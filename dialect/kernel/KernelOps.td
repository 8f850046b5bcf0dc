//===- KernelOps.td - The kernel dialect -------------------------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_KERNEL_OPS
#define STRETTO_DIALECT_KERNEL_OPS

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/IR/TensorEncoding.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Kernel_Dialect : Dialect {
  let name = "kernel";
  let cppNamespace = "::stretto::kernel";
  let summary = "Kernels on a GPU: a block of warps, its memory and where tiles are in it";
  let description = [{
    A `kernel.func` is what one block of threads does with one work item, a sequence and a head (and a slice of the
    values). Its operations are those of a whole block: tiles are still values, computed by the operations of `arith`,
    `math` and `chunk`, and this dialect adds what memory adds.

    Where a tile is, is the encoding of its type, a `#kernel.layout`: spread over the registers of lanes and warps, or
    in shared memory. `kernel.convert` takes a tile from one place to another. A tile in shared memory begins at the
    byte `offset` of the operation that makes it; operations that exchange elements between threads through shared
    memory have a `scratch` region of their own. Both are decided by `stretto-plan-shared-memory` and can be read, and
    overridden, as attributes. Entries of a tile beyond its shape (layouts cover powers of two) are 0 in shared
    memory and anything in registers.

    Tiles come from global memory through a `kernel.channel`, a ring of tiles in shared memory that one operation
    fills (`kernel.send`) ahead of the one that reads it (`kernel.receive`). Work may be divided among `roles`, groups
    of warps of one block, each of which has a function of its own: what one makes for another passes through a channel,
    too (`kernel.pass`, `kernel.release`).

    A look-back is a loop over the chunks of a `kernel.span`, whose tiles come through channels like those of the chunk
    itself; pairs of tokens are selected by `kernel.in_range`. Chunks below 0 hold tokens before the first, of which a
    window has the last.

    `stretto-lower-to-threads` makes of this what one thread does.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect", "::mlir::scf::SCFDialect",
                           "::stretto::chunk::ChunkDialect"];
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
}

//===----------------------------------------------------------------------===//
// Attributes and types
//===----------------------------------------------------------------------===//

def Kernel_LayoutAttr : AttrDef<Kernel_Dialect, "Layout", [
    DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let mnemonic = "layout";
  let summary = "where the elements of a tile are";
  let description = [{
    The basis vectors of a layout, for each bit of the number of a register, a lane and a warp, or of an offset in
    shared memory, the coordinate that it contributes; `sides` are the numbers of bits of the padded tile's
    coordinates. dialect/kernel/Layout.h explains the algebra.

    Constraints: `layout_c1` at most 2 sides of 32 bits together, at most 32 vectors of each kind; `layout_c2` a tile is
    in registers or in shared memory; `layout_c3` a vector lies within the tile; `layout_c4` the tile has the layout's
    sides, none longer than the layout covers; `layout_c5` offsets reach each element once.

    Example, in registers and in shared memory:
    ```
    #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
    #kernel.layout<[4, 4], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 8], [8, 0]]>
    ```
  }];
  let parameters = (ins ArrayRefParameter<"unsigned">:$sides, ArrayRefParameter<"uint64_t">:$registers,
                        ArrayRefParameter<"uint64_t">:$lanes, ArrayRefParameter<"uint64_t">:$warps,
                        ArrayRefParameter<"uint64_t">:$offsets);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let builders = [AttrBuilder<(ins "const ::stretto::kernel::Layout &":$layout)>];
  let extraClassDeclaration = [{
    ::stretto::kernel::Layout getLayout() const;
  }];
}

def Kernel_RoleKind : I32EnumAttr<"RoleKind", "what a group of warps does", [
    I32EnumAttrCase<"All", 0, "all">, I32EnumAttrCase<"Ahead", 1, "ahead">, I32EnumAttrCase<"Walk", 2, "walk">,
    I32EnumAttrCase<"Outputs", 3, "outputs">, I32EnumAttrCase<"Producer", 4, "producer">]> {
  let cppNamespace = "::stretto::kernel";
  let genSpecializedAttr = 0;
}

def Kernel_RoleAttr : AttrDef<Kernel_Dialect, "Role"> {
  let mnemonic = "role";
  let summary = "a group of warps and what it does";
  let description = [{
    `#kernel.role<all, 8>`: eight warps that do everything. `ahead` are those that compute what no state reaches, chunks
    before it is asked for by those that `walk` over states. `outputs` are those that compute behind a walk what no state
    depends on. A `producer` does nothing but send for tiles that the others read.

    `#kernel.role<outputs, 4, 2>`: two groups of four warps, which take the chunks of the loop in turns.

    Constraints: `role_c1` the warps are a power of two up to 32; `role_c2` there is one group, or of `ahead` and `outputs` up
    to four.
  }];
  let parameters = (ins EnumParameter<Kernel_RoleKind>:$kind, "int64_t":$warps,
                        DefaultValuedParameter<"int64_t", "1">:$groups);
  let builders = [AttrBuilder<(ins "::stretto::kernel::RoleKind":$kind, "int64_t":$warps), [{
    return $_get($_ctxt, kind, warps, 1);
  }]>];
  let assemblyFormat = "`<` $kind `,` $warps (`,` $groups^)? `>`";
  let genVerifyDecl = 1;
}
def Kernel_RoleArrayAttr : TypedArrayAttrBase<Kernel_RoleAttr, "groups of warps">;

def Kernel_Instruction : I32EnumAttr<"Instruction", "what forms a matrix product", [
    I32EnumAttrCase<"Fma", 0, "fma">, I32EnumAttrCase<"Mma", 1, "mma">, I32EnumAttrCase<"Wgmma", 2, "wgmma">]> {
  let cppNamespace = "::stretto::kernel";
  let genSpecializedAttr = 0;
}

def Kernel_InstructionAttr : EnumAttr<Kernel_Dialect, Kernel_Instruction, "instruction"> {
  let summary = "what forms a matrix product";
  let description = [{
    The attribute `kernel.instruction` of a `chunk.dot`: number by number, by the fragments of a warp, or by the tiles of
    four warps, a warpgroup. `stretto-select-products` decides it and keeps what is there.
  }];
  let assemblyFormat = "`<` $value `>`";
}

class Kernel_TileType<string name, string typeMnemonic> : TypeDef<Kernel_Dialect, name> {
  let mnemonic = typeMnemonic;
  let parameters = (ins "::mlir::RankedTensorType":$tile);
  let assemblyFormat = "`<` $tile `>`";
}
def Kernel_View : Kernel_TileType<"View", "view"> {
  let summary = "the part of an argument in global memory that belongs to the block's work item";
  let description = [{
    The type is that of the argument's tile. Address, strides and heads are those of the argument in the kernel's
    manifest.
  }];
}
def Kernel_Channel : Kernel_TileType<"Channel", "channel"> {
  let summary = "a ring of tiles in shared memory";
}

def Kernel_Tile : RankedTensorOf<[AnyFloat, I1]>;

class Kernel_Op<string name, list<Trait> traits = []> : Op<Kernel_Dialect, name, traits>;

//===----------------------------------------------------------------------===//
// The function
//===----------------------------------------------------------------------===//

def Kernel_FuncOp : Kernel_Op<"func", [
    Symbol, IsolatedFromAbove, SingleBlock, HasParent<"::mlir::ModuleOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "what a block does with one work item";
  let description = [{
    The body's arguments are views of the arguments in `stretto.manifest`, in order. `chunk` is the number of tokens
    of a chunk. `shared` is the shared memory of a block in bytes, once it is planned. `beside` names the function of the
    same arguments that the next warps of the block execute at the same time, with the same work item; that may have
    another one beside it.

    Constraints: `func_c1` there is one role; `func_c2` the body's arguments are views, one for each argument of the
    manifest; `func_c3` a function beside another has the same arguments and chunks, and a block has at most four.

    Example:
    ```mlir
    kernel.func @copy(%x: !kernel.view<tensor<16x32xbf16>>, %o: !kernel.view<tensor<16x32xbf16>>) chunk 16
        roles [#kernel.role<all, 4>] {
      %c0 = arith.constant 0 : index
      %tiles = kernel.channel depth 2 : !kernel.channel<tensor<16x32xbf16>>
      kernel.send %x at %c0 to %tiles : !kernel.view<tensor<16x32xbf16>>, !kernel.channel<tensor<16x32xbf16>>
      kernel.await
      %tile = kernel.receive %tiles at %c0 : !kernel.channel<tensor<16x32xbf16>> -> tensor<16x32xbf16>
      kernel.store %tile to %o at %c0 : tensor<16x32xbf16>, !kernel.view<tensor<16x32xbf16>>
      kernel.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name, I64Attr:$chunk, Kernel_RoleArrayAttr:$roles,
                       OptionalAttr<FlatSymbolRefAttr>:$beside, OptionalAttr<I64Attr>:$shared,
                       OptionalAttr<StrArrayAttr>:$arg_names);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    ::mlir::Block *getBlock() { return &getBody().front(); }
    RoleAttr getRole() { return llvm::cast<RoleAttr>(getRoles()[0]); }
    /// Those that work on a chunk together, and how many such groups there are.
    int64_t getWarps() { return getRole().getWarps(); }
    int64_t getGroups() { return getRole().getGroups(); }
    int64_t getThreads();
    /// What the warps of a block execute: this function, the one beside it, and so on.
    ::llvm::SmallVector<FuncOp, 4> getRolesOfBlock();
  }];
}

def Kernel_ReturnOp : Kernel_Op<"return", [Terminator, HasParent<"FuncOp">]> {
  let summary = "ends a function";
  let assemblyFormat = "attr-dict";
}

def Kernel_TokensOp : Kernel_Op<"tokens", [Pure]> {
  let summary = "the number of tokens of the work item's sequence";
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Kernel_GroupOp : Kernel_Op<"group", [Pure]> {
  let summary = "which group of its role executes the function";
  let description = [{
    From 0 on. The first chunk that a group takes of a loop is so many behind that of the first group.
  }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

def Kernel_SegmentOp : Kernel_Op<"segment", [Pure]> {
  let summary = "the chunks of the work item's sequence that the launch walks";
  let description = [{
    Chunks from `begin` to before `end`, none where the sequence has ended before the segment. Checkpoints are those of
    a segment; what is carried begins and ends with it.

    Example:

    ```mlir
    %begin, %end = kernel.segment
    ```
  }];
  let results = (outs Index:$begin, Index:$end);
  let assemblyFormat = "attr-dict";
}

def Kernel_ChunkOp : Kernel_Op<"chunk", [Pure]> {
  let summary = "the chunk of the work item";
  let description = [{ In a kernel whose chunks are independent: each is a work item of its own. }];
  let results = (outs Index:$result);
  let assemblyFormat = "attr-dict";
}

//===----------------------------------------------------------------------===//
// Look-backs
//===----------------------------------------------------------------------===//

def Kernel_SpanOp : Kernel_Op<"span"> {
  let summary = "the chunks that the ranges of a chunk's tokens reach";
  let description = [{
    The range of token i of the chunk is that of a `chunk.lookback`: from position `first_i` to its own, or with `to` to
    `last_i` where that is earlier, or `to_end` to that of the last token of the sequence. As bounds never fall from
    token to token, all ranges lie in the chunks from `begin`, that of the first bound, to `end`, the one behind that of
    the last bound of a token that exists. There are none where `end` is no greater. These chunks have as many tokens as
    `by` says.

    `wholly` asks for those of which every range holds all tokens: from the first behind the last bound to the last before
    the end of the first range; none where not all tokens of the chunk exist.

    Constraints: `span_c1` bounds are numbers of the chunk's tokens; `span_c2` ranges end at `to` or at the end; `span_c3`
    chunks have tokens.

    Example:
    ```mlir
    kernel.func @f(%first: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
      %c0 = arith.constant 0 : index
      %bounds = kernel.load %first at %c0 : !kernel.view<tensor<16xf32>> -> tensor<16xf32>
      %begin, %end = kernel.span %bounds at %c0 by 16 : tensor<16xf32>
      %whole_begin, %whole_end = kernel.span wholly %bounds at %c0 by 16 : tensor<16xf32>
      %pairs = kernel.in_range %bounds of %c0 in %begin : tensor<16xf32> -> tensor<16x16xi1>
      kernel.return
    }
    ```
  }];
  let arguments = (ins Kernel_Tile:$first, Optional<Kernel_Tile>:$last, Index:$chunk, UnitAttr:$to_end, I64Attr:$by,
                       UnitAttr:$wholly);
  let results = (outs Index:$begin, Index:$end);
  let assemblyFormat = [{ (`wholly` $wholly^)? $first (`to` $last^)? (`to_end` $to_end^)? `at` $chunk `by` $by attr-dict
                          `:` type($first) (`,` type($last)^)? }];
  let hasVerifier = 1;
}

def Kernel_InRangeOp : Kernel_Op<"in_range", [Pure]> {
  let summary = "which tokens of another chunk are in the ranges of a chunk's tokens";
  let description = [{
    `y_ij`: whether token j of the chunk `other` exists, in the sequence or in the windows before it, and lies in the
    range of token i of `chunk`, as in `kernel.span`. Other chunks have as many tokens as the result has columns. A vector says of each j whether the range of any token reaches it.
    `ahead` asks the other way round: the bounds are those of the other chunk, and `y_ij` is whether token i lies in the
    range of token j, a vector whether that reaches any token of `chunk`.

    Constraints: `in_range_c1` bounds are numbers of a chunk's tokens; `in_range_c2` ranges end at `to` or at the end;
    `in_range_c3` the result has conditions: a row for each token and a column for each of the other chunk, or one for
    each of those alone.
  }];
  let arguments = (ins Kernel_Tile:$first, Optional<Kernel_Tile>:$last, Index:$chunk, Index:$other, UnitAttr:$to_end,
                       UnitAttr:$ahead);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ (`ahead` $ahead^)? $first (`to` $last^)? (`to_end` $to_end^)? `of` $chunk `in` $other attr-dict
                          `:` type($first) (`,` type($last)^)? `->` type($result) }];
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

def Kernel_ChannelOp : Kernel_Op<"channel"> {
  let summary = "makes a ring of tiles in shared memory";
  let description = [{
    `depth` tiles, from the byte `offset` on. The tile of chunk `c` is the one of number `c mod depth`.

    The tiles of a `bulk` channel are copied by the memory system on the order of one thread (TMA), box by box. Each has
    a barrier (mbarrier), which a copy completes, from the byte `barriers` on. What is sent and received has a turn, counted
    from 0 on; the tile of turn `n` is the one of number `n mod depth`. `stretto-select-copies` decides it,
    `stretto-plan-shared-memory` how deep it is, and `stretto-send-ahead` counts the turns, unless they were counted when
    the kernel was made, as those of tiles that look-backs meet.

    What one role makes for others goes through a channel that their functions have, under one number: `passed`. Each of
    its tiles has two barriers, one that is complete when the tile is there and one when all have read it.

    A bulk channel that is passed, too, has tiles that several roles read: a producer sends them, or one of those that
    receive them, and the others receive and release them. Beside the two barriers of each tile it has one at which these
    wait where rows without a token are cleared.

    Constraints: `channel_c1` the tiles of a bulk channel have rows and columns.
  }];
  let arguments = (ins I64Attr:$depth, OptionalAttr<I64Attr>:$passed, UnitAttr:$bulk, OptionalAttr<I64Attr>:$offset,
                       OptionalAttr<I64Attr>:$barriers);
  let results = (outs Kernel_Channel:$result);
  let assemblyFormat = [{ (`passed` $passed^)? (`bulk` $bulk^)? `depth` $depth (`offset` $offset^)?
                          (`barriers` $barriers^)? attr-dict `:` type($result) }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// Whether the memory system copies tiles for several roles.
    bool isShared() { return getBulk() && getPassed(); }
    /// The bytes of all tiles, and those of their barriers.
    int64_t bytesOfTiles();
    int64_t bytesOfBarriers();
  }];
}

def Kernel_SendOp : Kernel_Op<"send", [AttrSizedOperandSegments]> {
  let summary = "starts to copy a chunk's tile from global memory to a channel";
  let description = [{
    Rows of tokens beyond the end of the sequence, or before its start, become 0 and are not read; so does the checkpoint
    of a chunk that has no tokens. Without a chunk the argument has no tokens and all of it is copied. The view of a
    window has the tokens of chunks below 0, as far as they were kept. The copy is complete for every thread after the
    next `kernel.await`; of a bulk channel, after the `kernel.receive` of its turn.
  }];
  let arguments = (ins Kernel_View:$view, Optional<Index>:$chunk, Kernel_Channel:$channel, Optional<Index>:$turn);
  let assemblyFormat = [{ $view (`at` $chunk^)? `to` $channel (`turn` $turn^)? attr-dict
                          `:` type($view) `,` type($channel) }];
}

def Kernel_AwaitOp : Kernel_Op<"await"> {
  let summary = "waits until everything sent so far has arrived, for all threads";
  let description = [{ Like a `kernel.barrier`, for what has arrived too. }];
  let arguments = (ins UnitAttr:$fence);
  let assemblyFormat = "(`fence` $fence^)? attr-dict";
}

def Kernel_ReceiveOp : Kernel_Op<"receive", [AttrSizedOperandSegments]> {
  let summary = "a chunk's tile in a channel";
  let description = [{
    Valid until the tile `depth` chunks later is sent. Without a chunk it is the first tile of the ring. Of a bulk
    channel it waits for the tile.
  }];
  let arguments = (ins Kernel_Channel:$channel, Optional<Index>:$chunk, Optional<Index>:$turn);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ $channel (`at` $chunk^)? (`turn` $turn^)? attr-dict
                          `:` type($channel) `->` type($result) }];
}

def Kernel_PassOp : Kernel_Op<"pass"> {
  let summary = "leaves a tile in a channel for another role";
  let description = [{
    Waits until the tile that is in the turn's place has been released, stores the tile there and says so to those that
    receive it. The result is the tile in shared memory, for who passes it: as with a `kernel.convert`, other warps of
    the role see it behind a barrier. With `matrices` warps store matrices of eight rows of 16 bytes.

    Constraints: `pass_c1` the tile is the channel's, but for its layout, and the channel is passed, not in bulk.

    Example, with the other role's part under `kernel.release`:
    ```mlir
    %c0 = arith.constant 0 : index
    %rows = kernel.channel passed 0 depth 1 : !kernel.channel<tensor<16xf32>>
    %left = kernel.pass %row to %rows turn %c0 : tensor<16xf32>, !kernel.channel<tensor<16xf32>> -> tensor<16xf32>
    ```
  }];
  let arguments = (ins Kernel_Tile:$operand, Kernel_Channel:$channel, Index:$turn, UnitAttr:$matrices);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ $operand `to` $channel `turn` $turn (`matrices` $matrices^)? attr-dict
                          `:` type($operand) `,` type($channel) `->` type($result) }];
  let hasVerifier = 1;
}

def Kernel_ReleaseOp : Kernel_Op<"release"> {
  let summary = "says that a tile another role has passed or sent is read no longer";
  let description = [{
    With `fence` what a thread has loaded before it is there, so that the memory system may copy over it.

    Constraints: `release_c1` the channel is passed.

    Example:
    ```mlir
    %c0 = arith.constant 0 : index
    %rows = kernel.channel passed 0 depth 1 : !kernel.channel<tensor<16xf32>>
    %row = kernel.receive %rows turn %c0 : !kernel.channel<tensor<16xf32>> -> tensor<16xf32>
    kernel.release %rows turn %c0 : !kernel.channel<tensor<16xf32>>
    ```
  }];
  let arguments = (ins Kernel_Channel:$channel, Index:$turn, UnitAttr:$fence);
  let assemblyFormat = "$channel `turn` $turn (`fence` $fence^)? attr-dict `:` type($channel)";
  let hasVerifier = 1;
}

def Kernel_ConditionOp : Kernel_Op<"condition"> {
  let summary = "the number of a tile of one, as a condition of all threads";
  let description = [{
    Constraints: `condition_c1` the tile has one number.
  }];
  let arguments = (ins Kernel_Tile:$tile);
  let results = (outs I1:$result);
  let assemblyFormat = "$tile attr-dict `:` type($tile)";
  let hasVerifier = 1;
}

def Kernel_LoadOp : Kernel_Op<"load"> {
  let summary = "an argument's tile in registers";
  let description = [{
    Of a state the one that the launch was given; without one 0, or -inf if `lowest`. Of an argument with tokens the
    rows of a chunk, those beyond the end of the sequence 0. Otherwise all of the argument.

    Example:
    ```mlir
    kernel.func @add(%x: !kernel.view<tensor<1x32xf32>>, %S: !kernel.view<tensor<1x32xf32>>) chunk 1
        roles [#kernel.role<all, 1>] {
      %c0 = arith.constant 0 : index
      %row = kernel.load %x at %c0 : !kernel.view<tensor<1x32xf32>> -> tensor<1x32xf32>
      %before = kernel.load %S : !kernel.view<tensor<1x32xf32>> -> tensor<1x32xf32>
      %after = arith.addf %before, %row : tensor<1x32xf32>
      kernel.save %after to %S : tensor<1x32xf32>, !kernel.view<tensor<1x32xf32>>
      kernel.return
    }
    ```
  }];
  let arguments = (ins Kernel_View:$view, Optional<Index>:$chunk, UnitAttr:$lowest);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$view (`at` $chunk^)? (`lowest` $lowest^)? attr-dict `:` type($view) `->` type($result)";
}

def Kernel_EvaluateOp : Kernel_Op<"evaluate", [Pure]> {
  let summary = "rows of a table, computed where they are read";
  let description = [{
    `y_id = f(p + C c + i, h, d)`, where `f` is the `chunk.table` of the view's name, evaluated in fp64 and rounded once,
    and `p` the position of the first token of the work item's sequence; 0 beyond its end. For tables that no host can
    lay out, because it does not know the positions.

    Example:
    ```mlir
    kernel.func @f(%angles: !kernel.view<tensor<16x8xf32>>, %o: !kernel.view<tensor<16x8xf32>>) chunk 16
        roles [#kernel.role<all, 4>] {
      %c0 = arith.constant 0 : index
      %tile = kernel.evaluate %angles at %c0 : !kernel.view<tensor<16x8xf32>> -> tensor<16x8xf32>
      kernel.store %tile to %o at %c0 : tensor<16x8xf32>, !kernel.view<tensor<16x8xf32>>
      kernel.return
    }
    ```
  }];
  let arguments = (ins Kernel_View:$table, Index:$chunk);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$table `at` $chunk attr-dict `:` type($table) `->` type($result)";
}

def Kernel_SaveOp : Kernel_Op<"save"> {
  let summary = "stores the final state";
  let description = [{ Nothing is stored where the launch does not want it, or where another head of a group does. }];
  let arguments = (ins Kernel_Tile:$tile, Kernel_View:$view);
  let assemblyFormat = "$tile `to` $view attr-dict `:` type($tile) `,` type($view)";
}

def Kernel_FetchOp : Kernel_Op<"fetch", [DeclareOpInterfaceMethods<InferTypeOpInterface>]> {
  let summary = "lets the memory system copy an entry of the state object to shared memory";
  let description = [{
    The views are parts of one entry: as many rows, and some of its `columns`. All of the entry's rows lie side by side, so
    that one copy moves them, whether rows are a multiple of 16 bytes or not. The results are views of the same parts in
    shared memory: a `kernel.load` of one waits for the copy, what `kernel.save` leaves there `kernel.leave` copies back.
    A barrier (mbarrier) that the copy completes lies behind the rows.

    Constraints: `fetch_c1` there is a part; `fetch_c2` the parts have as many rows, of numbers of one type; `fetch_c3` the
    rows of the entry are a multiple of 16 bytes together, and hold the parts; `fetch_c4` the results are loaded, saved and
    left, and nothing else.

    Example:
    ```mlir
    kernel.func @f(%S: !kernel.view<tensor<64x64xf32>>, %z: !kernel.view<tensor<64xf32>>) chunk 1
        roles [#kernel.role<all, 4>] {
      %entry:2 = kernel.fetch %S, %z columns 65 : !kernel.view<tensor<64x64xf32>>, !kernel.view<tensor<64xf32>>
      %tile = kernel.load %entry#0 : !kernel.view<tensor<64x64xf32>> -> tensor<64x64xf32>
      kernel.barrier
      kernel.save %tile to %entry#0 : tensor<64x64xf32>, !kernel.view<tensor<64x64xf32>>
      kernel.leave %entry#0 : !kernel.view<tensor<64x64xf32>>
      kernel.return
    }
    ```
  }];
  let arguments = (ins Variadic<Kernel_View>:$views, I64Attr:$columns);
  let results = (outs Variadic<Kernel_View>:$fetched);
  let assemblyFormat = "$views `columns` $columns attr-dict `:` type($views)";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    /// The bytes of all rows.
    int64_t bytesOfRows();
  }];
}

def Kernel_LeaveOp : Kernel_Op<"leave"> {
  let summary = "lets the memory system copy what was fetched back to the state object";
  let description = [{
    All rows of the entry, when all threads have saved. Nothing is copied where another head of a group does that.

    Constraints: `leave_c1` the view is one that `kernel.fetch` made.
  }];
  let arguments = (ins Kernel_View:$fetched);
  let assemblyFormat = "$fetched attr-dict `:` type($fetched)";
  let hasVerifier = 1;
}

def Kernel_StoreOp : Kernel_Op<"store"> {
  let summary = "stores a chunk's tile of an output, or its checkpoint";
  let description = [{
    Rows of tokens beyond the end of the sequence are not stored. A checkpoint that heads share is stored by the first.

    With `staged` the threads of a warp exchange their numbers through shared memory, so that each stores pieces of 16
    bytes, and neighbours neighbouring ones; with `matrices` they leave them there as `kernel.convert` does.
  }];
  let arguments = (ins Kernel_Tile:$tile, Kernel_View:$view, Index:$chunk, UnitAttr:$staged, UnitAttr:$matrices);
  let assemblyFormat = [{ $tile `to` $view `at` $chunk (`staged` $staged^)? (`matrices` $matrices^)? attr-dict
                          `:` type($tile) `,` type($view) }];
}

def Kernel_CarryOp : Kernel_Op<"carry"> {
  let summary = "leaves a chunk's rows of an input in its window";
  let description = [{
    Of the chunk's tokens those that are among the last of the sequence, as many as the window has rows. Nothing is
    stored where the launch does not want it, or where another head of a group does.

    Example:
    ```mlir
    kernel.func @f(%k: !kernel.view<tensor<16x32xbf16>>, %k_window: !kernel.view<tensor<24x32xbf16>>) chunk 16
        roles [#kernel.role<all, 4>] {
      %c0 = arith.constant 0 : index
      kernel.carry %k at %c0 to %k_window : !kernel.view<tensor<16x32xbf16>>, !kernel.view<tensor<24x32xbf16>>
      kernel.return
    }
    ```
  }];
  let arguments = (ins Kernel_View:$view, Index:$chunk, Kernel_View:$window);
  let assemblyFormat = "$view `at` $chunk `to` $window attr-dict `:` type($view) `,` type($window)";
}

//===----------------------------------------------------------------------===//
// The block
//===----------------------------------------------------------------------===//

def Kernel_ConvertOp : Kernel_Op<"convert", [Pure, SameOperandsAndResultElementType, SameOperandsAndResultShape]> {
  let summary = "takes a tile from one place to another";
  let description = [{
    Between registers: by renaming or by shuffles within warps. To shared memory: to the byte `offset` on. What must
    cross warps goes by two conversions, through shared memory. With `matrices` a warp stores, or loads, matrices of eight rows
    of 16 bytes at a time (`stmatrix`, `ldmatrix`).

    Constraints: `convert_c1` both types have a layout; `convert_c2` not both are in shared memory, and elements do
    not cross warps between registers.

    Example:
    ```mlir
    %b = kernel.convert %a offset 1024
        : tensor<16x16xbf16, #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]],
                                            lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>>
       -> tensor<16x16xbf16, #kernel.layout<[4, 4], offset = [[0, 1], [0, 2], [0, 4], [0, 8], [1, 0], [2, 0], [4, 8],
                                                              [8, 0]]>>
    ```
  }];
  let arguments = (ins Kernel_Tile:$operand, OptionalAttr<I64Attr>:$offset, UnitAttr:$matrices);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ $operand (`offset` $offset^)? (`matrices` $matrices^)? attr-dict
                          `:` type($operand) `->` type($result) }];
  let hasVerifier = 1;
}

def Kernel_BarrierOp : Kernel_Op<"barrier"> {
  let summary = "no thread goes on before all have come";
  let description = [{
    With `fence` the products of warpgroups behind it see what threads have stored before it: they read shared memory by
    a way of their own. And what threads have loaded before it is there, so that the memory system may copy over it.
  }];
  let arguments = (ins UnitAttr:$fence);
  let assemblyFormat = "(`fence` $fence^)? attr-dict";
}

def Kernel_MatvecOp : Kernel_Op<"matvec", [Pure]> {
  let summary = "product of a matrix and a vector";
  let description = [{
    `y = A x`, or `A^T x` with `transpose`, of operands of one 16-bit type, in sums of fp32. The vector takes the place of
    every column of a product's right operand, so that a thread is left with the numbers of its rows, without exchange.

    Constraints: `matvec_c1` the shapes multiply; `matvec_c2` the operands have one type of 16 bits, and sums are f32;
    `matvec_c3` both sides of the matrix are multiples of 16, as fragments are.

    Example:
    ```mlir
    %y = kernel.matvec %a, %x : tensor<64x128xbf16>, tensor<128xbf16> -> tensor<64xf32>
    ```
  }];
  let arguments = (ins Kernel_Tile:$matrix, Kernel_Tile:$vector, UnitAttr:$transpose);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ $matrix `,` $vector (`transpose` $transpose^)? attr-dict
                          `:` type($matrix) `,` type($vector) `->` type($result) }];
  let hasVerifier = 1;
}

def Kernel_FinishOp : Kernel_Op<"finish", [Pure, SameOperandsAndResultType]> {
  let summary = "the result of a product, once it is there";
  let description = [{
    A product of warpgroups runs beside what follows it until it is finished; before, its result may be nothing but the
    addend of another one, and what it reads in shared memory must stay. A product without a `kernel.finish` is
    finished where it stands.
  }];
  let arguments = (ins Kernel_Tile:$product);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$product attr-dict `:` type($product)";
}

def Kernel_SetAsideOp : Kernel_Op<"set_aside", [SameOperandsAndResultType]> {
  let summary = "leaves a tile of registers in shared memory, each thread its own part";
  let description = [{
    From the byte `offset` on, 16 bytes of each thread beside those of the next, as often as it has so many. Nobody but
    the thread reads them, by `kernel.take_back`, so that no barrier is needed: the result stands for what was left.

    Example: see `kernel.take_back`.
  }];
  let arguments = (ins Kernel_Tile:$operand, OptionalAttr<I64Attr>:$offset);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$operand (`offset` $offset^)? attr-dict `:` type($operand)";
}

def Kernel_TakeBackOp : Kernel_Op<"take_back", [SameOperandsAndResultType]> {
  let summary = "a tile that was set aside, in registers again";
  let description = [{
    Constraints: `take_back_c1` the operand was set aside.

    Example:
    ```mlir
    %aside = kernel.set_aside %a offset 1024
        : tensor<16x16xf32, #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]],
                                           lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>>
    %b = kernel.take_back %aside
        : tensor<16x16xf32, #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]],
                                           lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>>
    ```
  }];
  let arguments = (ins Kernel_Tile:$operand);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = "$operand attr-dict `:` type($operand)";
  let hasVerifier = 1;
}

//===----------------------------------------------------------------------===//
// A thread of a warpgroup
//===----------------------------------------------------------------------===//

def Kernel_WarpgroupProductOp : Kernel_Op<"warpgroup_product", [AttrSizedOperandSegments]> {
  let summary = "starts a product of a warpgroup";
  let description = [{
    What one thread of four warps does of a product: `wgmma` instructions of 64 rows, `columns` columns and 16 inner
    elements, for each of `blocks` tiles of the result and each step along the inner axis, as one group. The right
    operand is in shared memory, where a matrix descriptor says; the left one, too, or it is in registers, pairs of
    elements in four words for each block of rows and step. `left_offsets` and `right_offsets` are added to the
    descriptors, for each block and step; of a left operand in registers they number the words' first. An operand is
    `transpose`d where its inner axis is the first of the stored tile. The results are those of the blocks, each
    `columns` / 2 numbers of the fragment that `wgmma` leaves; sums begin at 0 where there are none. Results must not be
    touched before a `kernel.warpgroup_wait`, except as the sums of another product.

    It has no form of assembly of its own, so that tools without this dialect read it.

    Constraints: `warpgroup_product_c1` the left operand is a descriptor or words; `warpgroup_product_c2` the results,
    and the sums if there are any, are those of the blocks; `warpgroup_product_c3` there are as many offsets of both
    sides, and as many for each block.
  }];
  let arguments = (ins Optional<I64>:$left, Variadic<I32>:$left_words, I64:$right, Variadic<F32>:$sums,
                       TypeAttr:$element, I64Attr:$columns, I64Attr:$blocks, DenseI64ArrayAttr:$left_offsets,
                       DenseI64ArrayAttr:$right_offsets, UnitAttr:$transpose_left, UnitAttr:$transpose_right);
  let results = (outs Variadic<F32>:$results);
  let hasVerifier = 1;
}

def Kernel_WarpgroupWaitOp : Kernel_Op<"warpgroup_wait", [SameOperandsAndResultType]> {
  let summary = "the results of products of a warpgroup, once they are there";
  let description = [{
    Waits until no more than the last `pending` products that were started are under way. `sums` are results of those
    that are then done.

    It has no form of assembly of its own, so that tools without this dialect read it.
  }];
  let arguments = (ins Variadic<F32>:$sums, I64Attr:$pending);
  let results = (outs Variadic<F32>:$results);
}

#endif // STRETTO_DIALECT_KERNEL_OPS
