// RUN: stretto-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{[layout_c1] expected at most 2 sides of at most 16 bits}}
#three = #kernel.layout<[4, 4, 4], lane = [[0, 0, 1]]>

// -----

// expected-error @+1 {{[layout_c2] places a tile in shared memory and in registers}}
#both = #kernel.layout<[1, 1], lane = [[0, 1]], offset = [[0, 1], [1, 0]]>

// -----

// expected-error @+1 {{[layout_c3] a basis vector lies outside the tile}}
#outside = #kernel.layout<[4, 4], lane = [[0, 16]]>

// -----

// expected-error @+1 {{expected one of register, lane, warp, offset, in this order}}
#order = #kernel.layout<[4, 4], lane = [[0, 1]], register = [[1, 0]]>

// -----

// expected-error @+1 {{[layout_c5] the offsets in shared memory do not reach each element once}}
#twice = #kernel.layout<[1, 1], offset = [[0, 1], [0, 1]]>

// -----

#registers = #kernel.layout<[4], lane = [[1], [2], [4], [8], [0]]>
// expected-error @+1 {{[layout_c4] a side of 32 in a layout of 2^4}}
func.func private @f(tensor<32xf32, #registers>)

// -----

// expected-error @+1 {{[role_c1] a role of 3 warps, expected a power of two up to 32}}
kernel.func @f() chunk 16 roles [#kernel.role<all, 3>] {
  kernel.return
}

// -----

// expected-error @+1 {{[func_c1] has 0 roles, expected one}}
kernel.func @f() chunk 16 roles [] {
  kernel.return
}

// -----

// expected-error @+1 {{[func_c2] argument 0 has type 'f32', expected a view}}
kernel.func @f(%x: f32) chunk 16 roles [#kernel.role<all, 1>] {
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %a = kernel.load %x : <tensor<16xf32>> -> tensor<16xf32>
  // expected-error @+1 {{[convert_c1] converts 'tensor<16xf32>' to 'tensor<16xf32>', expected a layout on both}}
  %b = kernel.convert %a : tensor<16xf32> -> tensor<16xf32>
  kernel.return
}

// -----

#rows = #kernel.layout<[4], lane = [[1], [2], [4], [0], [0]], warp = [[8]]>
#all = #kernel.layout<[4], lane = [[1], [2], [4], [8], [0]], warp = [[0]]>
kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 2>] {
  %a = kernel.load %x : <tensor<16xf32>> -> tensor<16xf32, #rows>
  // expected-error-re @+1 {{[convert_c2] converts {{.*}} without passing through shared memory}}
  %b = kernel.convert %a : tensor<16xf32, #rows> -> tensor<16xf32, #all>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<8xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<8xf32>> -> tensor<8xf32>
  // expected-error @+1 {{[span_c1] a bound has type 'tensor<8xf32>', expected a number for each of 16 tokens}}
  %begin, %end = kernel.span %first at %c by 16 : tensor<8xf32>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  // expected-error @+1 {{[span_c2] ends both at a position and at the end of the sequence}}
  %begin, %end = kernel.span %first to %first to_end at %c by 16 : tensor<16xf32>, tensor<16xf32>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>, %y: !kernel.view<tensor<16x16xf32>>) chunk 16
    roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  %last = kernel.load %y at %c : <tensor<16x16xf32>> -> tensor<16x16xf32>
  // expected-error @+1 {{[in_range_c1] a bound has type 'tensor<16x16xf32>', expected a number for each of 16 tokens}}
  %pairs = kernel.in_range %first to %last of %c in %c : tensor<16xf32>, tensor<16x16xf32> -> tensor<16x16xi1>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  // expected-error @+1 {{[in_range_c2] ends both at a position and at the end of the sequence}}
  %pairs = kernel.in_range %first to %first to_end of %c in %c : tensor<16xf32>, tensor<16xf32> -> tensor<16x16xi1>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  // expected-error @+1 {{[in_range_c3] makes 'tensor<8x16xi1>', expected conditions of tokens, or of their pairs with 16 that have bounds}}
  %pairs = kernel.in_range %first of %c in %c : tensor<16xf32> -> tensor<8x16xi1>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 1>] {
  %c = kernel.chunk
  %first = kernel.load %x at %c : <tensor<16xf32>> -> tensor<16xf32>
  // expected-error @+1 {{[span_c3] counts chunks of 0 tokens, expected at least 1}}
  %begin, %end = kernel.span %first at %c by 0 : tensor<16xf32>
  kernel.return
}

// -----

func.func @f(%descriptor: i64, %word: i32) {
  // expected-error @+1 {{[warpgroup_product_c1] has 1 words and descriptor on the left, expected the one or the other}}
  %r:4 = "kernel.warpgroup_product"(%descriptor, %word, %descriptor) <{
    operandSegmentSizes = array<i32: 1, 1, 1, 0>, element = bf16, columns = 8 : i64, blocks = 1 : i64,
    left_offsets = array<i64: 0>, right_offsets = array<i64: 0>}> : (i64, i32, i64) -> (f32, f32, f32, f32)
  return
}

// -----

func.func @f(%descriptor: i64) {
  // expected-error @+1 {{[warpgroup_product_c2] has 3 results and 0 sums, expected 4, and as many sums or none}}
  %r:3 = "kernel.warpgroup_product"(%descriptor, %descriptor) <{
    operandSegmentSizes = array<i32: 1, 0, 1, 0>, element = bf16, columns = 8 : i64, blocks = 1 : i64,
    left_offsets = array<i64: 0>, right_offsets = array<i64: 0>}> : (i64, i64) -> (f32, f32, f32)
  return
}

// -----

func.func @f(%descriptor: i64) {
  // expected-error @+1 {{[warpgroup_product_c3] has 2 and 1 offsets, expected as many of both sides, a multiple of 1}}
  %r:4 = "kernel.warpgroup_product"(%descriptor, %descriptor) <{
    operandSegmentSizes = array<i32: 1, 0, 1, 0>, element = bf16, columns = 8 : i64, blocks = 1 : i64,
    left_offsets = array<i64: 0, 2>, right_offsets = array<i64: 0>}> : (i64, i64) -> (f32, f32, f32, f32)
  return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  // expected-error @+1 {{[channel_c1] copies 'tensor<16xf32>' in bulk, expected rows and columns}}
  %tiles = kernel.channel bulk depth 2 : !kernel.channel<tensor<16xf32>>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  // expected-error @+1 {{[channel_c2] has the places of the channel 3, expected one that is passed, not in bulk}}
  %tiles = kernel.channel over 3 depth 2 : !kernel.channel<tensor<16x16xf32>>
  kernel.return
}

// -----

#registers = #kernel.layout<[4, 4], register = [[0, 1], [8, 0], [0, 8]], lane = [[0, 2], [0, 4], [1, 0], [2, 0], [4, 0]]>
func.func @f(%tile: tensor<16x16xf32, #registers>) {
  // expected-error @+1 {{[take_back_c1] takes back what was not set aside}}
  %a = kernel.take_back %tile : tensor<16x16xf32, #registers>
  return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  %a = arith.constant dense<1.0> : tensor<16x32xbf16>
  %v = arith.constant dense<1.0> : tensor<16xbf16>
  // expected-error @+1 {{[matvec_c1] multiplies 'tensor<16x32xbf16>' by 'tensor<16xbf16>' to 'tensor<16xf32>'}}
  %y = kernel.matvec %a, %v : tensor<16x32xbf16>, tensor<16xbf16> -> tensor<16xf32>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  %a = arith.constant dense<1.0> : tensor<16x32xf32>
  %v = arith.constant dense<1.0> : tensor<16xf32>
  // expected-error @+1 {{[matvec_c2] multiplies 'f32' by 'f32' to 'f32', expected numbers of one 16-bit type and sums of f32}}
  %y = kernel.matvec %a, %v transpose : tensor<16x32xf32>, tensor<16xf32> -> tensor<32xf32>
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16x16xf32>>) chunk 16 roles [#kernel.role<all, 4>] {
  %a = arith.constant dense<1.0> : tensor<16x24xbf16>
  %v = arith.constant dense<1.0> : tensor<24xbf16>
  // expected-error @+1 {{[matvec_c3] multiplies 'tensor<16x24xbf16>', expected sides that are multiples of 16}}
  %y = kernel.matvec %a, %v : tensor<16x24xbf16>, tensor<24xbf16> -> tensor<16xf32>
  kernel.return
}

// -----

// expected-error @+1 {{[func_c3] is beside 'f', and so on, expected at most 4 functions of a block}}
kernel.func @f() chunk 16 roles [#kernel.role<walk, 4>] beside @f {
  kernel.return
}

// -----

// expected-error @+1 {{[func_c3] is beside 'g', which has other arguments or chunks}}
kernel.func @f() chunk 16 roles [#kernel.role<walk, 4>] beside @g {
  kernel.return
}
kernel.func @g() chunk 32 roles [#kernel.role<ahead, 4>] {
  kernel.return
}

// -----

// expected-error @+1 {{[role_c2] a role 'walk' of 2 groups, expected one, or up to four of 'ahead' and 'outputs'}}
kernel.func @f() chunk 16 roles [#kernel.role<walk, 4, 2>] {
  kernel.return
}

// -----

kernel.func @f() chunk 16 roles [#kernel.role<all, 1>] {
  %c0 = arith.constant 0 : index
  %x = arith.constant dense<0.0> : tensor<16x8xbf16>
  %ring = kernel.channel depth 2 : !kernel.channel<tensor<16x16xbf16>>
  // expected-error @+1 {{[replace_c1] leaves 'tensor<16x8xbf16>' in a channel of 'tensor<16x16xbf16>'}}
  kernel.replace %x in %ring at %c0 : tensor<16x8xbf16>, !kernel.channel<tensor<16x16xbf16>>
  kernel.return
}

// -----

kernel.func @f() chunk 16 roles [#kernel.role<all, 1>] {
  %c0 = arith.constant 0 : index
  %x = arith.constant dense<0.0> : tensor<16x16xbf16>
  %ring = kernel.channel passed 0 bulk depth 2 : !kernel.channel<tensor<16x16xbf16>>
  // expected-error @+1 {{[pass_c1] passes 'tensor<16x16xbf16>' as 'tensor<16x16xbf16>' to a channel of 'tensor<16x16xbf16>', expected one that is passed, not in bulk, of such tiles}}
  %y = kernel.pass %x to %ring turn %c0 : tensor<16x16xbf16>, !kernel.channel<tensor<16x16xbf16>> -> tensor<16x16xbf16>
  kernel.return
}

// -----

kernel.func @f() chunk 16 roles [#kernel.role<all, 1>] {
  %c0 = arith.constant 0 : index
  %x = arith.constant dense<0.0> : tensor<8xf32>
  %ring = kernel.channel passed 0 depth 2 : !kernel.channel<tensor<16xf32>>
  // expected-error @+1 {{[pass_c1] passes 'tensor<8xf32>' as 'tensor<8xf32>' to a channel of 'tensor<16xf32>', expected one that is passed, not in bulk, of such tiles}}
  %y = kernel.pass %x to %ring turn %c0 : tensor<8xf32>, !kernel.channel<tensor<16xf32>> -> tensor<8xf32>
  kernel.return
}

// -----

kernel.func @f() chunk 16 roles [#kernel.role<all, 1>] {
  %c0 = arith.constant 0 : index
  %ring = kernel.channel depth 2 : !kernel.channel<tensor<16xf32>>
  // expected-error @+1 {{[release_c1] releases the tile of a channel that is not passed}}
  kernel.release %ring turn %c0 : !kernel.channel<tensor<16xf32>>
  kernel.return
}

// -----

kernel.func @f() chunk 16 roles [#kernel.role<all, 1>] {
  %x = arith.constant dense<0.0> : tensor<1xf32>
  // expected-error @+1 {{[condition_c1] takes 'tensor<1xf32>' as a condition, expected one number of i1}}
  %y = kernel.condition %x : tensor<1xf32>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<64x64xf32>>, %z: !kernel.view<tensor<32xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c2] has the parts 'tensor<64x64xf32>' and 'tensor<32xf32>', expected as many rows of both}}
  %entry:2 = kernel.fetch %S, %z columns 65 : !kernel.view<tensor<64x64xf32>>, !kernel.view<tensor<32xf32>>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<64x64xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c3] has the part 'tensor<64x64xf32>', expected at most 60 columns}}
  %entry = kernel.fetch %S columns 60 : !kernel.view<tensor<64x64xf32>>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<3x64xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c3] copies 780 bytes, expected a multiple of 16}}
  %entry = kernel.fetch %S columns 65 : !kernel.view<tensor<3x64xf32>>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<3x64xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c3] has -1 columns, expected 1 to 65536}}
  %entry = kernel.fetch %S columns -1 : !kernel.view<tensor<3x64xf32>>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<64x64xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[leave_c1] leaves an argument, expected what was fetched}}
  kernel.leave %S : !kernel.view<tensor<64x64xf32>>
  kernel.return
}

// -----

kernel.func @f() chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c1] fetches nothing, expected parts of an entry}}
  "kernel.fetch"() <{columns = 65 : i64}> : () -> ()
  kernel.return
}

// -----

kernel.func @f(%x: !kernel.view<tensor<16x32xbf16>>, %k_window: !kernel.view<tensor<24x32xbf16>>) chunk 16 roles [#kernel.role<all, 4>] {
  %c0 = arith.constant 0 : index
  // expected-error @+1 {{[fetch_c4] has the user 'kernel.carry', expected kernel.load, kernel.save and kernel.leave}}
  %rows = kernel.fetch %k_window columns 32 : !kernel.view<tensor<24x32xbf16>>
  kernel.carry %x at %c0 to %rows : !kernel.view<tensor<16x32xbf16>>, !kernel.view<tensor<24x32xbf16>>
  kernel.return
}

// -----

kernel.func @f(%S: !kernel.view<tensor<64x64xf32>>) chunk 1 roles [#kernel.role<all, 1>] {
  // expected-error @+1 {{[fetch_c4] has the user 'kernel.fetch', expected kernel.load, kernel.save and kernel.leave}}
  %once = kernel.fetch %S columns 65 : !kernel.view<tensor<64x64xf32>>
  %twice = kernel.fetch %once columns 65 : !kernel.view<tensor<64x64xf32>>
  kernel.return
}
