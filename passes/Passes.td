//===- Passes.td - Every pass of the compiler --------------------------*- tablegen -*-===//
//
// One pass, one .cpp, one lit test, one name. The folder of a pass is the level it works on: declaration, chunk,
// kernel. Pipelines.cpp holds the order.
//
//===----------------------------------------------------------------------===//

#ifndef STRETTO_PASSES
#define STRETTO_PASSES

include "mlir/Pass/PassBase.td"

//===----------------------------------------------------------------------===//
// CPU (codegen/cpu)
//===----------------------------------------------------------------------===//

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
    func.func @sum(%block: memref<18xi64>, %begin: index, %end: index, %scratch: memref<10240xi8>) {
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
  let options = [Option<"vectorBits", "vector-bits", "int64_t", "512", "bits of a vector register: 256 or 512">];
  let dependentDialects = ["::mlir::arith::ArithDialect", "::mlir::func::FuncDialect", "::mlir::LLVM::LLVMDialect",
                           "::mlir::math::MathDialect", "::mlir::memref::MemRefDialect", "::mlir::scf::SCFDialect",
                           "::mlir::vector::VectorDialect"];
}

def ExpandMath : Pass<"stretto-expand-math"> {
  let summary = "elementary functions on vectors as polynomials";
  let description = [{
    `math.exp` and `math.exp2` (fp32 and fp64), `math.log` and `math.log1p` (fp32) on vectors become polynomials with an
    error of about one unit in the last place, right for infinities, NaN and denormal results. Conversions from and to
    bf16 become integer operations.

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
  let options = [Option<"scalef", "scalef", "bool", "true", "use AVX512's scalef on vectors of 512 bits">];
}

#endif // STRETTO_PASSES
