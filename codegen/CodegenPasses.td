//===- CodegenPasses.td - What back ends lower by -----------------*- tablegen -*-===//
#ifndef STRETTO_CODEGEN_CODEGENPASSES
#define STRETTO_CODEGEN_CODEGENPASSES

include "mlir/Pass/PassBase.td"

def LowerToVector : Pass<"stretto-lower-to-vector", "::mlir::ModuleOp"> {
  let summary = "chunk kernels to functions of vector code for a CPU";
  let description = [{
    Each `chunk.kernel` becomes a function over work items (sequence, head, slice) that walks the chunks of a sequence
    with its states in scratch. Its arguments are the argument block, the first item and the one behind the last, and
    scratch of `stretto.scratch_bytes`, aligned to 64 bytes.

    Before:
    ```mlir
    chunk.kernel @sum chunk 16 (input %x: tensor<16x32xf32>, state %s: tensor<32x32xf32>, valid %n: index)
        -> (y: tensor<16x32xf32>) {
      %y = chunk.dot %x, %s : tensor<16x32xf32>, tensor<32x32xf32> -> tensor<16x32xf32>
      chunk.yield %y next %s : tensor<16x32xf32>, tensor<32x32xf32>
    }
    ```
    after, in part:
    ```mlir
    func.func @sum(%block: memref<20xi64>, %begin: index, %end: index, %scratch: memref<10240xi8>) {
      scf.for %item = %begin to %end step %c1 {
        scf.for %token = %c0 to %tokens step %c16 {
          scf.for %row = %c0 to %c16 step %c8 {
            %sums:16 = scf.for %k = %c0 to %c32 step %c1 iter_args(%s0 = %zero, ...) -> (vector<16xf32>, ...) {
              %right = vector.load %state[%k, %c0] : memref<32x32xf32>, vector<16xf32>
              %left = memref.load %x[%row, %k] : memref<16x32xf32>
              %lanes = vector.broadcast %left : f32 to vector<16xf32>
              %next = vector.fma %lanes, %right, %s0 : vector<16xf32>
    ```
  }];
  let options = [
    Option<"vectorBits", "vector-bits", "int64_t", "512", "bits of a vector register: 256 or 512">,
    Option<"bf16Dot", "bf16-dot", "bool", "false", "form products of bf16 operands with AVX512_BF16, from pairs">,
    Option<"bf16Tiles", "bf16-tiles", "bool", "false",
           "form those that tiles of 16 by 16 pairs suit with AMX_BF16">
  ];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect", "::mlir::x86vector::X86VectorDialect"];
}

def ConvertToLlvm : Pass<"stretto-convert-to-llvm", "::mlir::ModuleOp"> {
  let summary = "all but vectors to the LLVM dialect, in one walk";
  let description = [{
    What MLIR's passes for arithmetic, control flow, functions, indices, memory and elementary functions do one after the
    other. Functions take the addresses of their buffers. It comes behind `convert-vector-to-llvm` and
    `convert-scf-to-cf`; casts between types are left for `reconcile-unrealized-casts`.

    Before:
    ```mlir
    func.func @copy(%x: memref<4xf32>, %y: memref<4xf32>, %i: index) {
      %number = memref.load %x[%i] : memref<4xf32>
      memref.store %number, %y[%i] : memref<4xf32>
      return
    }
    ```
    after, in part:
    ```mlir
    llvm.func @copy(%x: !llvm.ptr, %y: !llvm.ptr, %i: i64) {
      %place = llvm.getelementptr inbounds|nuw %x[%i] : (!llvm.ptr, i64) -> !llvm.ptr, f32
      %number = llvm.load %place : !llvm.ptr -> f32
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ExpandMath : Pass<"stretto-expand-math"> {
  let summary = "elementary functions on vectors as polynomials";
  let description = [{
    `math.exp`, `math.exp2`, `math.expm1`, `math.tanh` and `math.log1p` (fp32 and fp64) and `math.log` (fp32) on vectors
    become polynomials with an error of about one unit in the last place, right for infinities, NaN and denormal
    results; a quotient by a power of two becomes a product. Conversions from and to bf16 become integer operations, or,
    to bf16 and where there is one, the instruction that rounds a register.

    Before:
    ```mlir
    %y = math.exp %x : vector<16xf32>
    ```
    after, in part:
    ```mlir
    %n = math.roundeven %1 : vector<16xf32>
    %r = math.fma %n, %minus_log_2, %x : vector<16xf32>
    %p = math.fma %c5, %r, %c4 : vector<16xf32>
    %y = x86vector.avx512.mask.scalef %p, %n, %p, %all, %rounding : vector<16xf32>
    ```
  }];
  let options = [
    Option<"scalef", "scalef", "bool", "true", "use AVX512's scalef on vectors of 512 bits">,
    Option<"bf16", "bf16", "bool", "false", "round vectors to bf16 with AVX512_BF16">
  ];
}

def LowerWarpgroups : Pass<"stretto-lower-warpgroups"> {
  let summary = "Writes the instructions of warpgroups, for NVPTX";
  let description = [{
    `kernel.warpgroup_product` and `kernel.warpgroup_wait` become inline assembly, whose sums are operands that stay in
    their registers. So nothing comes between the instructions of a product, nor touches its sums.

    ```mlir
    %r:4 = "kernel.warpgroup_wait"(%s0, %s1, %s2, %s3) <{pending = 0 : i64}> : (f32, f32, f32, f32) -> (f32, f32, f32, f32)
    ```
    =>
    ```mlir
    %r = llvm.inline_asm has_side_effects "wgmma.wait_group.sync.aligned 0;", "=f,=f,=f,=f,0,1,2,3" %s0, %s1, %s2, %s3
        : (f32, f32, f32, f32) -> !llvm.struct<(f32, f32, f32, f32)>
    ```
  }];
  let dependentDialects = ["::mlir::LLVM::LLVMDialect"];
}

def ExpandDeviceMath : Pass<"stretto-expand-device-math"> {
  let summary = "Makes arithmetic of elementary functions, for NVPTX";
  let description = [{
    LLVM's back end for NVPTX has few functions and aborts on the others.

    ```mlir
    %y = math.exp %x : f32
    ```
    =>
    ```mlir
    %0 = arith.mulf %x, %log2e : f32
    %y = llvm.intr.exp2(%0) : (f32) -> f32
    ```
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::LLVM::LLVMDialect"];
}

#endif // STRETTO_CODEGEN_CODEGENPASSES
