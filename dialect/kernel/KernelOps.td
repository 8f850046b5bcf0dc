//===- KernelOps.td - The kernel dialect -------------------------------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_KERNEL_KERNELOPS
#define STRETTO_DIALECT_KERNEL_KERNELOPS

include "dialect/kernel/MemoryOps.td"

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
    a way of their own. So does the memory system what it is to store. And what threads have loaded before it is there, so
    that the memory system may copy over it. With `copied` what it was to store of shared memory before has been read, so
    that threads may write there again.
  }];
  let arguments = (ins UnitAttr:$fence, UnitAttr:$copied);
  let assemblyFormat = "(`fence` $fence^)? (`copied` $copied^)? attr-dict";
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

#endif // STRETTO_DIALECT_KERNEL_KERNELOPS
