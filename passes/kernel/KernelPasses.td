//===- KernelPasses.td - Passes over kernels for a GPU ------------*- tablegen -*-===//
#ifndef STRETTO_PASSES_KERNEL_KERNELPASSES
#define STRETTO_PASSES_KERNEL_KERNELPASSES

include "mlir/Pass/PassBase.td"

def FoldOverChunks : Pass<"stretto-fold-over-chunks", "::mlir::ModuleOp"> {
  let summary = "Makes of each kernel what a block does, chunk after chunk";
  let description = [{
    One block takes one work item and walks the chunks of its sequence. Inputs come through channels two tiles deep, so
    that a chunk is read from memory while the one before it is computed; states are carried in registers. The roles
    of a function are eight warps that do everything, or four where the states are small, and where a chunk for itself
    meets others (`warps` overrides).

    Where there are no states, chunks do not depend on each other, and each is a work item of its own. A look-back becomes
    a loop over the chunks that the ranges of this one's tokens reach. Their tiles come through channels of their own,
    those of chunks before the first token from windows, and the loop carries what the fold has so far.

    With `in-place` a kernel over single tokens is given one token of each sequence, and states are updated where they
    lie: rows and states are loaded to registers, all at once, and states stored when every thread has read its own.
    Its warps are so many that each thread has the entries of states that memory is to be asked for at a time.

    With `compute-tables` a kernel evaluates what tables without a period say of its tokens: where a call continues
    from a state, their positions are known on the device alone. With `from-start` no sequence continues: windows hold
    nothing that could be met, and look-backs that are `continued` meet nothing. With `takes-left` a block walks its work
    item where a kernel that expects something of its chunks (`chunk.expect`) has left it.

    ```mlir
    chunk.kernel @f chunk 16 (input %x: tensor<16x32xbf16>, state %S: tensor<32x32xf32>, valid %n: index)
        -> (o: tensor<16x32xbf16>) {
      ...
      chunk.yield %o next %T : tensor<16x32xbf16>, tensor<32x32xf32>
    }
    ```
    =>
    ```mlir
    kernel.func @f(%x: !kernel.view<tensor<16x32xbf16>>, %S: !kernel.view<tensor<32x32xf32>>,
                   %o: !kernel.view<tensor<16x32xbf16>>) chunk 16 roles [#kernel.role<all, 4>] {
      %channel = kernel.channel depth 2 : !kernel.channel<tensor<16x32xbf16>>
      kernel.send %x at %c0 to %channel
      %S0 = kernel.load %S
      %last = scf.for %c = %c0 to %chunks step %c1 iter_args(%S1 = %S0) {
        kernel.await
        kernel.send %x at %next to %channel
        %tile = kernel.receive %channel at %c
        ...
        kernel.store %o1 to %o at %c
        scf.yield %T
      }
      kernel.save %last to %S
      kernel.return
    }
    ```
    and a look-back
    ```mlir
    %m, %l, %acc = chunk.lookback softmax from %first : tensor<16xf32> past(%k_j = %k : tensor<16x32xf32>, ...) {
      ...
      chunk.contribute %s, %v_j
    }
    ```
    =>
    ```mlir
    %begin, %end = kernel.span %first at %c : tensor<16xf32>
    kernel.send %k at %begin to %ring
    %m, %l, %acc = scf.for %j = %begin to %end step %c1 iter_args(%m0 = %lowest, %l0 = %zero, %acc0 = %zeros) {
      kernel.await
      kernel.send %k at %next to %ring
      %k_j = kernel.receive %ring at %j
      ...
      %pairs = kernel.in_range %first of %c in %j : tensor<16xf32> -> tensor<16x16xi1>
      %scores = arith.select %pairs, %s, %lowest
      ...
      scf.yield %m1, %l1, %acc1
    }
    ```
  }];
  let options = [Option<"warps", "warps", "int64_t", "0", "Warps of a block; 0 chooses">,
                 Option<"warpgroups", "warpgroups", "bool", "false", "Four warps form products together">,
                 Option<"inPlace", "in-place", "bool", "false", "One token of each sequence, whose states are updated">,
                 Option<"computeTables", "compute-tables", "bool", "false",
                        "Compute tables that have other numbers at every position, which only the device knows">,
                 Option<"fromStart", "from-start", "bool", "false", "All sequences begin with their first tokens">,
                 Option<"takesLeft", "takes-left", "bool", "false",
                        "Take work items that a kernel which expects something has left">];
  let dependentDialects = ["::stretto::kernel::KernelDialect", "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def DivideRoles : Pass<"stretto-divide-roles", "::mlir::ModuleOp"> {
  let summary = "Lets warps of their own compute what no state reaches, ahead of those that walk, or outputs behind them";
  let description = [{
    What a chunk needs of the states that a loop carries, and what follows from that, is a short chain, which each chunk
    waits for. The rest, gates, rescaled rows and scores, needs no state: with `ahead` so many warps of the block compute
    it in a function of its own, and pass it on by way of shared memory, as far ahead as that has room. The function keeps
    the walk, for which it has `walk` warps. Conditions are passed as tiles of one number; what is
    constant, repeated or widened is made again. Functions without states, that leave nothing but these, or whose chunks have
    nothing to do but walk, stay as they are, and so do those with several loops, or whose chunks meet others in a loop.

    With `outputs` so many warps find outputs behind the walk, which keeps what the next states depend on, and passes the
    states as they are read: in groups of four, which take chunks in turns. One group alone also makes what the walk would
    make number by number of tiles from memory, and passes it back. Functions stay as they are of whose outputs all products
    are needed for states, too, or none.

    With both, those who run ahead make what is left to the walk beside products of states, as tiles that are scaled, and
    pass it to the walk and to those behind it; more than four warps of them in groups, too, where they carry nothing but what
    they load for the next chunk. Then two such groups run ahead of a walk that leaves nothing but states, too, if their tiles
    are ones that the memory system copies; that walk carries all that is left. A walk that leaves nothing else, or beside
    which others expect a range, sums up what it multiplies over tokens, too, so that these keep nothing of it. Where outputs
    have a part in what is expected nobody finds them behind a walk.

    ```mlir
    kernel.func @f(...) chunk 64 roles [#kernel.role<all, 8>] {
      %last = scf.for %c = %c0 to %chunks step %c1 iter_args(%S = %S0) {
        %s = chunk.dot %q, %k transpose_right
        %o1 = chunk.dot %q, %S
        %o2 = chunk.dot %s, %v add %o1
    ```
    =>
    ```mlir
    kernel.func @f(...) chunk 64 roles [#kernel.role<walk, 4>] beside @f.ahead {
      %scores = kernel.channel passed 0 depth 1
      %last = scf.for %c = %c0 to %chunks step %c1 iter_args(%S = %S0) {
        %o1 = chunk.dot %q, %S
        %s = kernel.receive %scores turn %c
        %o2 = chunk.dot %s, %v add %o1
    ...
    kernel.func @f.ahead(...) chunk 64 roles [#kernel.role<ahead, 4>] {
      %scores = kernel.channel passed 0 depth 1
      scf.for %c = %c0 to %chunks step %c1 {
        %s = chunk.dot %q, %k transpose_right
        %left = kernel.pass %s to %scores turn %c
    ```
    or
    ```mlir
    kernel.func @f(...) chunk 64 roles [#kernel.role<walk, 4>] beside @f.outputs {
      %states = kernel.channel passed 0 depth 1
      %last = scf.for %c = %c0 to %chunks step %c1 iter_args(%S = %S0) {
        %left = kernel.pass %S to %states turn %c
    ...
    kernel.func @f.outputs(...) chunk 64 roles [#kernel.role<outputs, 4>] {
      %states = kernel.channel passed 0 depth 1
      scf.for %c = %c0 to %chunks step %c1 {
        %s = chunk.dot %q, %k transpose_right
        %S = kernel.receive %states turn %c
        %o1 = chunk.dot %q, %S
        %o2 = chunk.dot %s, %v add %o1
    ```
  }];
  let options = [Option<"ahead", "ahead", "int64_t", "0", "Warps that run ahead; 0: none do">,
                 Option<"walk", "walk", "int64_t", "0", "Warps that walk; 0: four">,
                 Option<"outputs", "outputs", "int64_t", "0", "Warps that find outputs behind the walk; 0: none do">];
  let dependentDialects = ["::stretto::kernel::KernelDialect", "::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def PassLate : Pass<"stretto-pass-late", "::mlir::ModuleOp"> {
  let summary = "Passes states beside the products that change them";
  let description = [{
    A walk passes its states as they are read, and then multiplies. What follows from a state, rounded, is a copy of it: it
    is passed while the products run, so that the next turn comes sooner. Those who find outputs have it a little later,
    for which they have time. Where they pass anything back, which may wait for what they are passed, and where the copies
    leave the walk too few registers, states are passed first.

    ```mlir
    %copy = arith.truncf %S
    %left = kernel.pass %copy to %states turn %c
    %sum = chunk.dot %k, %v transpose_left add %S
    %next = kernel.finish %sum
    ```
    =>
    ```mlir
    %copy = arith.truncf %S
    %sum = chunk.dot %k, %v transpose_left add %S
    %left = kernel.pass %copy to %states turn %c
    %next = kernel.finish %sum
    ```
  }];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def ShareChannels : Pass<"stretto-share-channels", "::mlir::ModuleOp"> {
  let summary = "Copies tiles once that several roles of a block read";
  let description = [{
    Both roles send for an input that both read. Where the memory system copies it for both alike, chunk after chunk, a walk
    sends for those that find outputs behind it, too; they receive the tiles, and release them. That halves what such
    inputs take of shared memory, and of what the L2 cache is asked for. The walk sends what they alone read as well:
    groups that take chunks in turns do not wait for each other. It waits for such a tile at the end of a turn, or before
    it waits for what is passed back; they wait for each tile where they first read it. Two roles of which one runs ahead
    keep copies of their own.

    Where groups take chunks in turns, or there are three roles, a role of its own sends for all of them, a `producer`: a
    walk that waited in each turn for tiles to be read would be no further ahead than that.

    ```mlir
    kernel.func @f(...) chunk 64 roles [#kernel.role<walk, 4>] beside @f.outputs {
      %rows = kernel.channel bulk depth 2
      ...
    kernel.func @f.outputs(...) chunk 64 roles [#kernel.role<outputs, 4>] {
      %rows = kernel.channel bulk depth 2
      kernel.send %k at %c0 to %rows
      scf.for %c = %c0 to %chunks step %c1 {
        kernel.send %k at %next to %rows
        %tile = kernel.receive %rows at %c
    ```
    =>
    ```mlir
    kernel.func @f(...) chunk 64 roles [#kernel.role<walk, 4>] beside @f.outputs {
      %rows = kernel.channel passed 1 bulk depth 2
      ...
    kernel.func @f.outputs(...) chunk 64 roles [#kernel.role<outputs, 4>] {
      %rows = kernel.channel passed 1 bulk depth 2
      scf.for %c = %c0 to %chunks step %c1 {
        %tile = kernel.receive %rows at %c turn %c
    ```
  }];
  let dependentDialects = ["::stretto::kernel::KernelDialect", "::mlir::arith::ArithDialect"];
}

def FetchStates : Pass<"stretto-fetch-states", "::stretto::kernel::FuncOp"> {
  let summary = "Lets the memory system copy states whose rows are no multiple of 16 bytes";
  let description = [{
    A step moves each state once in and once out. Threads load and store rows 16 bytes at a time; rows of other sizes, as
    those of 128 values and their normaliser have, number by number. All rows of an entry lie side by side: one copy moves
    them to shared memory, another one back, where two blocks of a multiprocessor have memory for that. What was fetched is
    loaded where it is wanted first, so that nothing waits for it in registers.

    ```mlir
    %tile = kernel.load %S : !kernel.view<tensor<128x128xf32>> -> tensor<128x128xf32>
    %sums = kernel.load %z : !kernel.view<tensor<128xf32>> -> tensor<128xf32>
    ...
    kernel.save %next to %S : tensor<128x128xf32>, !kernel.view<tensor<128x128xf32>>
    ```
    =>
    ```mlir
    %entry:2 = kernel.fetch %S, %z columns 129 : !kernel.view<tensor<128x128xf32>>, !kernel.view<tensor<128xf32>>
    ...
    %tile = kernel.load %entry#0 : !kernel.view<tensor<128x128xf32>> -> tensor<128x128xf32>
    ...
    kernel.save %next to %entry#0 : tensor<128x128xf32>, !kernel.view<tensor<128x128xf32>>
    kernel.leave %entry#0 : !kernel.view<tensor<128x128xf32>>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, which may copy by itself">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def AssignLayouts : Pass<"stretto-assign-layouts", "::stretto::kernel::FuncOp"> {
  let summary = "Decides where each tile is";
  let description = [{
    Matrices are in registers in the fragments of a matrix product, vectors in the layout of what they are reduced
    from or combined with; operands of products are in shared memory, or stay in registers where a left operand's
    fragments agree and it is not there before the loop that asks for it: with `repeat-left` scores that are nothing but left operands are formed by all warps that want them,
    rather than by one and exchanged, also where a loop carries them, and parts that are put together, one for each
    warpgroup, by both, so that sums over their rows cross no warps (`stretto-merge-choices` leaves each its own). With `warpgroups` products of 16-bit operands
    have any number of columns by the eight: a matrix of 65 rows lies across, as the transpose of what a product of the
    transposed operands leaves, and of 65 columns each warpgroup has all; numbers that only go back to shared memory all
    warps divide. A convolution that products alone take is
    where threads walk down columns. Matrices that are put together from parts of one shape stay where the parts are, and
    so does what is made of them alone. Matrices of single tokens are where a walk over their entries wants them. Where a
    value is wanted in another place than it is, a `kernel.convert` takes it there, in front of loops that do not make it;
    numbers that are repeated over a matrix are repeated there. One row of several goes to shared memory, from where each
    thread reads what it wants, and vectors that are made of such rows number by number are made again in each place.

    ```mlir
    %c = chunk.dot %a, %b : tensor<16x32xbf16>, tensor<32x16xbf16> -> tensor<16x16xf32>
    ```
    =>
    ```mlir
    %a1 = kernel.convert %a : tensor<16x32xbf16, #registers> -> tensor<16x32xbf16, #shared>
    %b1 = kernel.convert %b : tensor<32x16xbf16, #registers1> -> tensor<32x16xbf16, #shared1>
    %c = chunk.dot %a1, %b1 : tensor<16x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<16x16xf32, #registers2>
    ```
  }];
  let options = [Option<"readAgain", "read-again", "bool", "false",
                        "Tiles of 16 bits in shared memory are read for each operation that asks for them, as in a gradient">,
                 Option<"repeatLeft", "repeat-left", "bool", "false",
                        "What products take from the left, and parts that are put together, are computed by all warps that divide their columns">,
                 Option<"warpgroups", "warpgroups", "bool", "false",
                        "Products of 16-bit operands are for warpgroups to form, of any number of columns by the eight">];
}

def BaseTwoExponentials : Pass<"stretto-base-two-exponentials", "::stretto::kernel::FuncOp"> {
  let summary = "Exponentials of differences become powers of two";
  let description = [{
    The factor of log2 e goes into the constant that scales what is raised, and into the numbers of rows or columns that are
    subtracted from it, of which there are few: one instruction less for each element. Where inputs have 16 bits, as the
    numbers are rounded once more. The largest of numbers that a positive constant scales is scaled when it is found.

    ```mlir
    %s = arith.mulf %x, %c : tensor<64x64xf32>
    %m = chunk.reduce max %s over columns : tensor<64x64xf32> -> tensor<64xf32>
    %y = chunk.broadcast %m along rows : tensor<64xf32> to tensor<64x64xf32>
    %d = arith.subf %s, %y : tensor<64x64xf32>
    %w = math.exp %d : tensor<64x64xf32>
    ```
    =>
    ```mlir
    %m0 = chunk.reduce max %x over columns : tensor<64x64xf32> -> tensor<64xf32>
    %m = arith.mulf %m0, %c0 : tensor<64xf32>
    %m2 = arith.mulf %m, %log2e : tensor<64xf32>
    %y = chunk.broadcast %m2 along rows : tensor<64xf32> to tensor<64x64xf32>
    %s = arith.mulf %x, %c_log2e : tensor<64x64xf32>
    %d = arith.subf %s, %y : tensor<64x64xf32>
    %w = math.exp2 %d : tensor<64x64xf32>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::math::MathDialect"];
}

def MultiplyVectors : Pass<"stretto-multiply-vectors", "::stretto::kernel::FuncOp"> {
  let summary = "Products with vectors and sums over tokens become matrix products";
  let description = [{
    Of a matrix that is an input of 16 bits, or is rounded to that as an operand of another product: its sum over rows,
    weighted or not, and over columns where it is weighted. Threads then hold the sums of their rows of fragments, where
    they held those of all columns and added them up across lanes and warps. Weights are rounded to bf16 like operands;
    sums that f16 may be too narrow for are left as they are. Steps, which read a state once, are as well.

    ```mlir
    %w = chunk.broadcast %z along columns : tensor<128xf32> to tensor<64x128xf32>
    %p = arith.mulf %q, %w : tensor<64x128xf32>
    %y = chunk.reduce sum %p over columns : tensor<64x128xf32> -> tensor<64xf32>
    ```
    =>
    ```mlir
    %x = arith.truncf %z : tensor<128xf32> to tensor<128xbf16>
    %y = kernel.matvec %q16, %x : tensor<64x128xbf16>, tensor<128xbf16> -> tensor<64xf32>
    ```
  }];
  let dependentDialects = ["::stretto::kernel::KernelDialect", "::mlir::arith::ArithDialect"];
}

def SelectProducts : Pass<"stretto-select-products", "::stretto::kernel::FuncOp"> {
  let summary = "Decides which instruction forms each matrix product";
  let description = [{
    Products of 16-bit operands are formed by `mma.sync`, whose fragments each warp loads, or, on a chip whose four
    warps of a group form them together, by `wgmma`: where the result has a multiple of 64 rows, four warps divide them,
    and operands lie in shared memory as that instruction reads them, in any orientation, or on the left in registers.
    Tiles of eight columns are left to single warps, which wait for less. Wider operands are multiplied number by number. What a product says already is kept.

    ```mlir
    %c = chunk.dot %a, %b : tensor<64x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<64x16xf32, #registers>
    ```
    =>
    ```mlir
    %c = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>}
        : tensor<64x32xbf16, #shared>, tensor<32x16xbf16, #shared1> -> tensor<64x16xf32, #registers>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def OverlapProducts : Pass<"stretto-overlap-products", "::stretto::kernel::FuncOp"> {
  let summary = "Lets other work run beside products of warpgroups";
  let description = [{
    Operations stand in the order of how many products they wait for, one after the other, as far as registers reach: so
    what does not depend on a product, and what other products need or add to, is done while it runs. A `kernel.finish` waits for
    it where its result is first asked for, but by another product that adds to it. What is seldom wanted, on a condition or in
    a loop there, stays as it stands. Those who find outputs for a walk sum up what they have rounded before they multiply it.

    In a walk back, which seldom has the registers for that, a product is started before the one before it is waited for,
    where its operands are there by then; and of the products behind a choice, in whose first branch single warps form
    products, the first one that takes nothing of it moves into both branches, so that it runs beside those.

    ```mlir
    %p = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %n = arith.negf %p : tensor<64x64xf32>
    %e = math.exp %x : tensor<64x64xf32>
    ```
    =>
    ```mlir
    %p = chunk.dot %a, %b {kernel.instruction = #kernel.instruction<wgmma>} : tensor<64x64xbf16>, tensor<64x64xbf16> -> tensor<64x64xf32>
    %e = math.exp %x : tensor<64x64xf32>
    %done = kernel.finish %p : tensor<64x64xf32>
    %n = arith.negf %done : tensor<64x64xf32>
    ```
  }];
  let options = [Option<"registers", "registers", "int64_t", "240", "How many a thread may have for tiles">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def SelectCopies : Pass<"stretto-select-copies", "::stretto::kernel::FuncOp"> {
  let summary = "Decides which channels the memory system fills";
  let description = [{
    On a chip that copies boxes of tensors by itself (TMA), the tiles of chunks of an input come that way where rows are
    a multiple of 16 bytes and a loop of the function receives them, one chunk after another, or look-backs do, which
    count the turns; and so do checkpoints of states of at most 256 rows, but those that turns read. Others are copied by
    all threads, piece by piece, and so are rows of a window, which is a ring. What a channel says already is kept. Warps store the fragments of products in shared memory
    by whole matrices where the chip has an instruction for that, and outputs by way of shared memory, in pieces of 16
    bytes.

    ```mlir
    %q_tiles = kernel.channel depth 2 : <tensor<64x64xbf16, #shared>>
    ```
    =>
    ```mlir
    %q_tiles = kernel.channel bulk depth 2 : <tensor<64x64xbf16, #shared>>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
}

def SetTilesAside : Pass<"stretto-set-tiles-aside", "::stretto::kernel::FuncOp"> {
  let summary = "Leaves tiles in shared memory while nobody reads them, where registers do not suffice";
  let description = [{
    Tiles that are used now and much later take registers in between. Where more are wanted than a thread may have, those
    that rest for the longest at that time are set aside, in shared memory that the kernel leaves free: each thread
    leaves its own part and takes it back before the next use. The assembler would leave them in memory of the device.

    ```mlir
    %a = math.exp %x : tensor<64x64xf32>
    // much else
    %b = arith.addf %a, %y : tensor<64x64xf32>
    ```
    =>
    ```mlir
    %a = math.exp %x : tensor<64x64xf32>
    %aside = kernel.set_aside %a offset 32768 : tensor<64x64xf32>
    // much else
    %back = kernel.take_back %aside : tensor<64x64xf32>
    %b = arith.addf %back, %y : tensor<64x64xf32>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The one whose shared memory is taken">,
                 Option<"registers", "registers", "int64_t", "0", "How many a thread may have for tiles; 0: of walks back as many as ptxas was seen to keep">];
  let dependentDialects = ["::stretto::kernel::KernelDialect"];
}

def PlanSharedMemory : Pass<"stretto-plan-shared-memory"> {
  let summary = "Decides where in shared memory tiles and scratch regions are";
  let description = [{
    Every tile has memory of its own where that suffices, and bulk channels are as deep as it allows, up to 4 tiles; with
    less than 2 they are bulk channels no more, but for those of roles. What threads send to turns of segments is as deep,
    as far as two blocks share a multiprocessor's memory. Functions of several roles are planned together, in a module: they share
    nothing but what they pass to each other. Where registers suffice for two blocks on a multiprocessor, or for three that carry nothing but rows that later chunks
    look back to, memory is to suffice for them, too: where chunks are items of their own and tiles of others are read before most of the work on them, these come one at a time
    for that, each when it has been read for the last time; so they do where there would be one block of four warps otherwise, and at last they lie where something was
    that is computed first (`kernel.late` on their channels). Where it does not suffice for all, regions up to a size have memory of their own, the smallest last of all
    without: each saves a barrier. Where memory does not suffice, outputs are stored without a stage and tiles that are never
    needed at the same time share it, first with what is needed on a condition alone. Then channels become one tile deep,
    those of the largest tiles first: the next tile is sent when this one has been read, or, where that does not do either,
    when its whole chunk has been computed. At last what is carried is stored for each operation that reads it, and the largest tiles are sent where they
    are read, which waits for them. Offsets that stand in the IR already are kept. An error names the bytes that are needed and that the chip has.

    ```mlir
    %b = kernel.convert %a : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    ```
    =>
    ```mlir
    %b = kernel.convert %a offset 1024 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
}

def SendAhead : Pass<"stretto-send-ahead", "::stretto::kernel::FuncOp"> {
  let summary = "Sends the tiles of bulk channels as far ahead as these are deep";
  let description = [{
    Counts the turns of a loop that receives tiles of bulk channels. Before it, tiles are sent for all turns but the one
    that takes the last place of the ring; in each turn, the tile that takes the place of the turn before. Nothing is sent
    for turns that there are not. Threads wait for all copies of a turn only where other channels want it. Where turns are
    segments, threads send as far ahead themselves, and a turn waits for all but what comes behind its own
    (`kernel.await pending`). Tiles of other
    chunks, which have turns already, are sent beside the first products of a turn, so that these do not wait for it, where
    chunks are items of their own and meet all on one side of them.

    A tile of a ring with one place is received where it is first read, and so are all that a chunk for itself has copied
    by the memory system, which it sends for in that order, and behind these for the first tiles of other chunks, where
    their places are free from the start, or, of a second look-back, when the one before has read its last; numbers of its
    tokens are loaded before that. Tiles that it meets one at a time are received behind what is reduced of the first product, if they are first read there. Where a walk back wants many registers and most tiles come a
    turn ahead, threads meet at the start of a turn. What is one number, made of a parameter alone, is made before the
    loop.

    ```mlir
    kernel.send %q at %c0 to %q_tiles : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
    scf.for %c = %c0 to %chunks step %c1 {
      kernel.await
      %next = arith.addi %c, %c1 : index
      kernel.send %q at %next to %q_tiles : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
      %tile = kernel.receive %q_tiles at %c : <tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    ```
    =>
    ```mlir
    %any = arith.cmpi slt, %c0, %chunks : index
    scf.if %any {
      kernel.send %q at %c0 to %q_tiles turn %c0 : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
    }
    kernel.barrier
    scf.for %c = %c0 to %chunks step %c1 {
      %ahead = arith.addi %c, %c1 : index
      %more = arith.cmpi slt, %ahead, %chunks : index
      scf.if %more {
        kernel.send %q at %ahead to %q_tiles turn %ahead : <tensor<64x64xbf16>>, <tensor<64x64xbf16, #shared>>
      }
      %tile = kernel.receive %q_tiles at %c turn %c : <tensor<64x64xbf16, #shared>> -> tensor<64x64xbf16, #shared>
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect"];
}

def InsertBarriers : Pass<"stretto-insert-barriers", "::stretto::kernel::FuncOp"> {
  let summary = "Orders the accesses of different threads to shared memory";
  let description = [{
    Puts a `kernel.barrier` before an operation that touches bytes of shared memory which another has written, or
    writes bytes that another has read, since the last barrier. Where a product of warpgroups is still reading them, its
    `kernel.finish` comes before the barrier. Threads arrive there when their loads are issued, which what the memory system
    copies may overtake: where the next tile of a channel that is one tile deep takes the place of one that threads load, the
    barrier has a fence. Where threads meet in one of two branches, or in a loop there, they meet at the end of the second,
    which is the rarer one: what it has touched asks for no barrier behind both. What a loop sends to bulk channels moves behind
    the first barrier of an iteration: all have read then what it replaces. Where chunks are items of their own a `kernel.await`
    has a fence only for copies that products read, and where threads copy nothing it is a barrier, or nothing if channels are
    one tile deep. Bulk channels come first, and threads meet before the first tile is sent: whoever waits for one finds the
    channels' own barriers made.

    ```mlir
    %b = kernel.convert %a offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    %c = chunk.dot %b, %b : tensor<16x16xbf16, #shared>, tensor<16x16xbf16, #shared> -> tensor<16x16xf32, #registers>
    ```
    =>
    ```mlir
    %b = kernel.convert %a offset 0 : tensor<16x16xbf16, #registers> -> tensor<16x16xbf16, #shared>
    kernel.barrier
    %c = chunk.dot %b, %b : tensor<16x16xbf16, #shared>, tensor<16x16xbf16, #shared> -> tensor<16x16xf32, #registers>
    ```
  }];
}

def StoreBehindBarriers : Pass<"stretto-store-behind-barriers", "::stretto::kernel::FuncOp"> {
  let summary = "Has the memory system store what a walk back leaves, once threads have met";
  let description = [{
    Of what a turn of a walk back stores as an output, by way of shared memory where nothing else ever lies, threads leave
    their part there and go on. Behind the next barrier of the turn, which has a fence then, and the products that are
    started there, one of them has the memory system store all of it. At the first barrier of a turn what it was to store in the turn before has been read. Outputs
    behind which no barrier follows in their turn threads store as before.

    ```mlir
    scf.for %c = %c0 to %chunks step %c1 {
      kernel.barrier
      kernel.store %tile to %o at %c staged matrices {kernel.scratch = 4096 : i64} : tensor<64x64xbf16, #registers>, ...
      kernel.barrier
    ```
    =>
    ```mlir
    scf.for %c = %c0 to %chunks step %c1 {
      kernel.barrier copied
      %left = kernel.convert %tile offset 4096 matrices : tensor<64x64xbf16, #registers> -> tensor<64x64xbf16, #shared>
      kernel.barrier fence
      kernel.store %left to %o at %c bulk : tensor<64x64xbf16, #shared>, ...
    ```
  }];
  let options = [Option<"chip", "chip", "std::string", [{"sm_90a"}], "The chip that is compiled for">];
}

def LowerToThreads : Pass<"stretto-lower-to-threads", "::mlir::ModuleOp"> {
  let summary = "Makes of what a block does what one of its threads does";
  let description = [{
    A tile in registers becomes this thread's registers of it, plain numbers; a product becomes `mma.sync` and
    `ldmatrix` instructions, or a `kernel.warpgroup_product`, or multiplications and additions for fp32. Loops and conditions stay structured: they
    are the same for all threads, or guard stores.

    ```mlir
    %y = arith.addf %x, %x : tensor<16x16xf32, #registers>
    ```
    with four registers =>
    ```mlir
    %y0 = arith.addf %x0, %x0 : f32
    %y1 = arith.addf %x1, %x1 : f32
    %y2 = arith.addf %x2, %x2 : f32
    %y3 = arith.addf %x3, %x3 : f32
    ```

    On chips that launch a kernel before the one in front of it has ended, each thread first waits for all that were
    launched before (`griddepcontrol`), and the manifest says so. A kernel whose turns are segments lets the next one come
    before it waits itself.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::scf::SCFDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::NVVM::NVVMDialect"];
  let options = [Option<"chip", "chip", "std::string", "\"sm_90a\"", "The chip, for instance sm_80">];
}

def MergeChoices : Pass<"stretto-merge-choices"> {
  let summary = "Computes once what either of two choices of a warp is";
  let description = [{
    Where a warp takes one of two numbers that are computed alike, and nothing else asks for either, it chooses what they
    are computed from instead, and computes one: of a tile that is put together from parts each warp forms its own part.
    Numbers that lanes exchange may be chosen first, since all threads of a warp make the same choice.

    ```mlir
    %a = math.exp %x : f32
    %b = math.exp %y : f32
    %z = arith.select %second, %b, %a {kernel.choice_of_warp} : f32
    ```
    =>
    ```mlir
    %c = arith.select %second, %y, %x {kernel.choice_of_warp} : f32
    %z = math.exp %c : f32
    ```
  }];
  let statistics = [Statistic<"merged", "merged", "Operations in place of two">];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
}

#endif // STRETTO_PASSES_KERNEL_KERNELPASSES
