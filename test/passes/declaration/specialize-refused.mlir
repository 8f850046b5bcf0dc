// What the caller names must exist and have the declared kind.
// RUN: not stretto-opt %s --stretto-specialize="dims=Q=3" 2>&1 | FileCheck %s --check-prefix=SIZE
// SIZE: 'Q' is no size of the variant; its sizes are D, E, F, N
// RUN: not stretto-opt %s --stretto-specialize="dims=D=0" 2>&1 | FileCheck %s --check-prefix=POSITIVE
// POSITIVE: [R3] the size 'D' is 0, expected at least 1
// RUN: not stretto-opt %s --stretto-specialize="dims=D" 2>&1 | FileCheck %s --check-prefix=PAIR
// PAIR: 'D' does not read as a name and its value
// RUN: not stretto-opt %s --stretto-specialize="dims=D=many" 2>&1 | FileCheck %s --check-prefix=NUMBER
// NUMBER: 'D=many' does not read as a name and its value
// RUN: not stretto-opt %s --stretto-specialize="options=decays=abs" 2>&1 | FileCheck %s --check-prefix=OPTION
// OPTION: 'decays' is no option of the variant; its options are decay, gate, modes, scale
// RUN: not stretto-opt %s --stretto-specialize="options=decay=abz" 2>&1 | FileCheck %s --check-prefix=WORD
// WORD: the option 'decay' is 'abz', expected one of 'none', 'abs'
// RUN: not stretto-opt %s --stretto-specialize="options=gate=1" 2>&1 | FileCheck %s --check-prefix=CONDITION
// CONDITION: the option 'gate' is '1', expected true or false
// RUN: not stretto-opt %s --stretto-specialize="options=scale=big*" 2>&1 | FileCheck %s --check-prefix=EXPRESSION
// EXPRESSION: the option 'scale' is 'big*', expected a number or an expression: 'big*' ends where a number or a name is expected
// RUN: not stretto-opt %s --stretto-specialize="options=scale=gate" 2>&1 | FileCheck %s --check-prefix=NAME
// NAME: the option 'scale' refers to 'gate', which is neither a size nor a numeric option of the variant
// RUN: not stretto-opt %s --stretto-specialize="absent=x" 2>&1 | FileCheck %s --check-prefix=OPTIONAL
// OPTIONAL: 'x' is no optional argument of the variant; they are b
// RUN: not stretto-opt %s --stretto-specialize="heads=W=4" 2>&1 | FileCheck %s --check-prefix=HEADS
// HEADS: 'W' is no head set of the variant; its head sets are G, H

// Sizes and head counts must fit together; what is wrong in an operation is said at that operation.
// RUN: not stretto-opt %s --stretto-specialize="heads=H=6,G=4" 2>&1 | FileCheck %s --check-prefix=DIVIDE
// DIVIDE: [R2] the head set 'H' has 6 heads, expected a multiple of the 4 of the head set 'G'
// RUN: not stretto-opt %s --stretto-specialize="heads=H=2,G=4" 2>&1 | FileCheck %s --check-prefix=COARSER
// COARSER: [R2] the head set 'H' has 2 heads, expected a multiple of the 4 of the head set 'G'
// RUN: not stretto-opt %s --stretto-specialize="heads=H=4,G=2" --stretto-specialize="heads=H=4,G=4" 2>&1 | FileCheck %s --check-prefix=RATIO
// RATIO: [R2] the head ratios are {G = 1 : i64, H = 1 : i64}, expected {G = 2 : i64, H = 1 : i64}
// RUN: not stretto-opt %s --stretto-specialize="dims=D=8" --stretto-specialize="dims=D=9" 2>&1 | FileCheck %s --check-prefix=AGAIN
// AGAIN: [R3] the size 'D' is 9, expected 8, which the variant is specialised for
// RUN: not stretto-opt %s --stretto-specialize="dims=N=8 options=modes=4" 2>&1 | FileCheck %s --check-prefix=AXIS
// AXIS: [R3] the size 'N' is 8, expected 9 = 2*modes + 1
// RUN: not stretto-opt %s --stretto-specialize="options=modes=-1" 2>&1 | FileCheck %s --check-prefix=AXIS-SIZE
// AXIS-SIZE: the axis 'N' = 2*modes + 1 comes to -1
// RUN: not stretto-opt %s --stretto-specialize="dims=D=7" 2>&1 | FileCheck %s --check-prefix=ODD
// ODD: [R3] the size 'D/2' comes to 7/2, which is no integer
// ODD-NEXT: %half = stretto.slice
// RUN: not stretto-opt %s --stretto-specialize="dims=E=7,F=64" 2>&1 | FileCheck %s --check-prefix=BROADCAST
// BROADCAST: [R3] repeats the axis 'E' of size 7 over 'F' of size 64, expected size 1 or that size
// BROADCAST-NEXT: %c = stretto.broadcast
// RUN: not stretto-opt %s --stretto-specialize="dims=D=8,F=6" 2>&1 | FileCheck %s --check-prefix=SLICE
// SLICE: [R3] takes the entries 6 to 10 of a row of size 8
// SLICE-NEXT: %half = stretto.slice
// RUN: not stretto-opt %s --stretto-specialize="absent=b options=gate=false" 2>&1 | FileCheck %s --check-prefix=ABSENT
// ABSENT: uses the argument 'b', which is absent
// ABSENT-NEXT: %c = stretto.broadcast

// An axis that turns out to be another gets its name; one of size one is repeated.
// RUN: stretto-opt %s --stretto-specialize="dims=E=64,F=64" | FileCheck %s --check-prefix=RENAMED
// RENAMED-DAG: !parameter_F{{.*}} = tensor<64xf64, #stretto.param<[F]
// RENAMED: stretto.broadcast %b : !parameter_F{{.*}} to !F
// RUN: stretto-opt %s --stretto-specialize="dims=E=1,F=64" | FileCheck %s --check-prefix=ONE
// ONE-DAG: !parameter_E{{.*}} = tensor<1xf64, #stretto.param<[E]
// ONE: stretto.broadcast %b : !parameter_E{{.*}} to !F

!D = tensor<?xf64, #stretto.row<D>>
!half = tensor<?xf64, #stretto.row<"D/2">>
!F = tensor<?xf64, #stretto.row<F>>
!N = tensor<?xf64, #stretto.row<N, G>>
!b = tensor<?xf64, #stretto.param<[E], H>>

stretto.variant @f(%x: !D, %y: !F, %n: !N, %b: !b {stretto.optional}) -> (!half, !F)
    options(gate = true, decay = #stretto.choice<"none" of ["none", "abs"]>, modes = 4.0, scale = "D**-0.5")
    axes(N = "2*modes + 1") {
  %half = stretto.slice %x from "F" : !D -> !half
  %gate = stretto.option "gate" : i1
  %z = scf.if %gate -> !F {
    %c = stretto.broadcast %b : !b to !F
    scf.yield %c : !F
  } else {
    %c = stretto.broadcast %b : !b to !F
    %d = arith.addf %c, %y : !F
    scf.yield %d : !F
  }
  stretto.yield %half, %z : !half, !F
}
