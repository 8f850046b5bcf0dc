//===- KernelBase.td - Types and attributes of the kernel dialect ------*- tablegen -*-===//

#ifndef STRETTO_DIALECT_KERNEL_KERNELBASE
#define STRETTO_DIALECT_KERNEL_KERNELBASE

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

#endif // STRETTO_DIALECT_KERNEL_KERNELBASE
