//===- MemoryOps.td - Global memory, channels and roles ---------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_KERNEL_MEMORYOPS
#define STRETTO_DIALECT_KERNEL_MEMORYOPS

include "dialect/kernel/KernelBase.td"

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

    What a role makes of tiles that it receives it may leave where these came: `over` the number of a bulk channel, which
    is as deep and which nobody else receives. A place is then vacant when what was left there has been released, and
    the memory system copies the next tile to it.

    A bulk channel that is passed, too, has tiles that several roles read: a producer sends them, or one of those that
    receive them, and the others receive and release them. Beside the two barriers of each tile it has one at which these
    wait where rows without a token are cleared.

    Constraints: `channel_c1` the tiles of a bulk channel have rows and columns; `channel_c2` what is left over other
    tiles is passed, not in bulk.
  }];
  let arguments = (ins I64Attr:$depth, OptionalAttr<I64Attr>:$passed, UnitAttr:$bulk, OptionalAttr<I64Attr>:$offset,
                       OptionalAttr<I64Attr>:$barriers, OptionalAttr<I64Attr>:$over);
  let results = (outs Kernel_Channel:$result);
  let assemblyFormat = [{ (`passed` $passed^)? (`over` $over^)? (`bulk` $bulk^)? `depth` $depth (`offset` $offset^)?
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
  let description = [{
    Like a `kernel.barrier`, for what has arrived too. With `pending` a number n, what threads have sent behind the n-th
    await before this one may still be on its way.
  }];
  let arguments = (ins UnitAttr:$fence,
                       ConfinedAttr<DefaultValuedAttr<I64Attr, "0">, [IntNonNegative]>:$pending);
  let assemblyFormat = "(`pending` $pending^)? (`fence` $fence^)? attr-dict";
}

def Kernel_ReceiveOp : Kernel_Op<"receive", [AttrSizedOperandSegments]> {
  let summary = "a chunk's tile in a channel";
  let description = [{
    Valid until the tile `depth` chunks later is sent, or it is replaced. Without a chunk it is the first tile of the ring. Of a bulk
    channel it waits for the tile.
  }];
  let arguments = (ins Kernel_Channel:$channel, Optional<Index>:$chunk, Optional<Index>:$turn);
  let results = (outs Kernel_Tile:$result);
  let assemblyFormat = [{ $channel (`at` $chunk^)? (`turn` $turn^)? attr-dict
                          `:` type($channel) `->` type($result) }];
}

def Kernel_ReplaceOp : Kernel_Op<"replace", [AttrSizedOperandSegments]> {
  let summary = "leaves a tile in the place of one that has arrived";
  let description = [{
    Stores the tile where that of the chunk, or of the turn, lies in the channel. Whoever receives it behind the next
    barrier has the new one. With `matrices` warps store matrices of eight rows of 16 bytes.

    Constraints: `replace_c1` the tile is the channel's, but for its layout.
  }];
  let arguments = (ins Kernel_Tile:$tile, Kernel_Channel:$channel, Optional<Index>:$chunk, Optional<Index>:$turn,
                       UnitAttr:$matrices);
  let assemblyFormat = [{ $tile `in` $channel (`at` $chunk^)? (`turn` $turn^)? (`matrices` $matrices^)? attr-dict
                          `:` type($tile) `,` type($channel) }];
  let hasVerifier = 1;
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
    bytes, and neighbours neighbouring ones; with `matrices` they leave them there as `kernel.convert` does. With `bulk`
    the memory system copies each warp's boxes from there (TMA), while the warp goes on; of a chunk that is cut it stores
    its rows itself. A tile that lies in shared memory, in boxes, is stored so as well, at once: all threads have met
    since they left it there, behind a fence.
  }];
  let arguments = (ins Kernel_Tile:$tile, Kernel_View:$view, Index:$chunk, UnitAttr:$staged, UnitAttr:$matrices,
                       UnitAttr:$bulk);
  let assemblyFormat = [{ $tile `to` $view `at` $chunk (`staged` $staged^)? (`matrices` $matrices^)? (`bulk` $bulk^)?
                          attr-dict
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

#endif // STRETTO_DIALECT_KERNEL_MEMORYOPS
