// RUN: stretto-opt %s --split-input-file --verify-diagnostics

// expected-error @+1 {{[kernel_c1] the argument 'x' is the last but not the number of valid tokens}}
chunk.kernel @kernel_c1 chunk 16 (input %x: tensor<16x8xf32>) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c1] the argument 'n' is not the last but the number of valid tokens}}
chunk.kernel @kernel_c1_first chunk 16 (valid %n: index, input %x: tensor<16x8xf32>) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c1] the number of valid tokens has type 'i64', expected index}}
chunk.kernel @kernel_c1_type chunk 16 (input %x: tensor<16x8xf32>, valid %n: i64) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c2] the argument 'x' has type 'tensor<16x?xf32>', expected a tensor of real numbers of static shape}}
chunk.kernel @kernel_c2 chunk 16 (input %x: tensor<16x?xf32>, valid %n: index) -> () {
  chunk.yield
}

// -----

// expected-error @+1 {{[kernel_c2] the argument 'x' has type 'tensor<16x8xi32>', expected a tensor of real numbers of static shape}}
chunk.kernel @kernel_c2_integers chunk 16 (input %x: tensor<16x8xi32>, valid %n: index) -> () {
  chunk.yield
}

// -----

// expected-error @+1 {{[kernel_c3] the input 'x' has type 'tensor<8x8xf32>', expected tiles of 16 tokens}}
chunk.kernel @kernel_c3 chunk 16 (input %x: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield
}

// -----

// expected-error @+1 {{[kernel_c3] the output "o" has type 'tensor<8x8xf32>', expected tiles of 16 tokens}}
chunk.kernel @kernel_c3_output chunk 16 (parameter %x: tensor<8x8xf32>, valid %n: index) -> (o: tensor<8x8xf32>) {
  chunk.yield %x : tensor<8x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c4] yields 'tensor<16x8xf32>' next , expected 'tensor<16x8xf32>' next 'tensor<8x8xf32>'}}
chunk.kernel @kernel_c4 chunk 16 (input %x: tensor<16x8xf32>, state %S: tensor<8x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c5] the argument 'x' is shared by 0 heads, expected at least 1}}
chunk.kernel @kernel_c5 chunk 16 (input %x: tensor<16x8xf32> group 0, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c6] the state 'S' has type 'tensor<8x8xf32>' and begins at column 60 of the 65 columns of the entry "S"}}
chunk.kernel @kernel_c6 chunk 16 (input %x: tensor<16x8xf32>, state %S: tensor<8x8xf32> of "S" column 60 columns 65, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x next %S : tensor<16x8xf32>, tensor<8x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c6] the argument 'S' has type 'tensor<8x8xf32>' and begins at row 4 of the 10 rows of an entry, expected a state that the entry has}}
chunk.kernel @kernel_c6_rows chunk 16 (input %x: tensor<16x8xf32>, state %S: tensor<8x8xf32> of "S" column 0 columns 8 row 4 rows 10, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x next %S : tensor<16x8xf32>, tensor<8x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c6] the parameter 'w' has type 'tensor<8x8xf32>' and begins at column 4 of the 8 columns of "w"}}
chunk.kernel @kernel_c6_parameter chunk 16 (input %x: tensor<16x8xf32>, parameter %w: tensor<8x8xf32> of "w" column 4 columns 8, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c6] the state 'S' has type 'tensor<f32>'}}
chunk.kernel @kernel_c6_rank chunk 16 (input %x: tensor<16x8xf32>, state %S: tensor<f32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x next %S : tensor<16x8xf32>, tensor<f32>
}

// -----

// expected-error @+1 {{[kernel_c7] the module has no chunk.table @missing}}
chunk.kernel @kernel_c7 chunk 16 (input %x: tensor<16x8xf32>, table %missing: tensor<f32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c8] has chunks of 0 tokens and 1 slices, expected at least 1 of each}}
chunk.kernel @kernel_c8 chunk 0 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c9] two arguments have the name "x"}}
"chunk.kernel"() <{arguments = [#chunk.argument<input "x">, #chunk.argument<input "x">, #chunk.argument<valid "n">],
    chunk = 16 : i64, outputs = [], sym_name = "kernel_c9"}> ({
^bb0(%x: tensor<16x8xf32>, %y: tensor<16x8xf32>, %n: index):
  chunk.yield
}) : () -> ()

// -----

// expected-error @+1 {{[kernel_c1] the body has 2 arguments and 1 descriptions of them}}
"chunk.kernel"() <{arguments = [#chunk.argument<valid "n">], chunk = 16 : i64, outputs = [],
    sym_name = "kernel_c1_descriptions"}> ({
^bb0(%x: tensor<16x8xf32>, %n: index):
  chunk.yield
}) : () -> ()

// -----

// expected-error @+1 {{[kernel_c6] the argument 'x' is no state, but of an entry}}
"chunk.kernel"() <{arguments = [#chunk.argument<input "x" of "S">, #chunk.argument<valid "n">], chunk = 16 : i64,
    outputs = [], sym_name = "kernel_c6_input"}> ({
^bb0(%x: tensor<16x8xf32>, %n: index):
  chunk.yield
}) : () -> ()

// -----

// expected-error @+1 {{[kernel_c3] the output "S" has type 'tensor<2x8x8xf32>', expected a matrix or a vector}}
"chunk.kernel"() <{arguments = [#chunk.argument<input "x">, #chunk.argument<valid "n">], chunk = 16 : i64,
    outputs = [#chunk.output<"S", tensor<2x8x8xf32> checkpoint true>], sym_name = "kernel_c3_checkpoint"}> ({
^bb0(%x: tensor<16x8xf32>, %n: index):
  %y = arith.constant dense<0.0> : tensor<2x8x8xf32>
  chunk.yield %y : tensor<2x8x8xf32>
}) : () -> ()

// -----

// expected-error @+1 {{[kernel_c5] the output "o" is shared by 0 heads, expected at least 1}}
chunk.kernel @kernel_c5_output chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32> group 0) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[table_c1] expected a body with three arguments of type f64 that ends with chunk.result}}
chunk.table @table_c1 {
^bb0(%t: f64, %h: f64):
  chunk.result %t : f64
}

// -----

chunk.kernel @broadcast_c1 chunk 16 (input %x: tensor<16x8xf32>, input %v: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[broadcast_c1] changes the element type}}
  %y = chunk.broadcast %v along rows : tensor<16xf32> to tensor<16x8xbf16>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @broadcast_c2 chunk 16 (input %x: tensor<16x8xf32>, input %v: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[broadcast_c2] the operand has shape 'tensor<16xf32>', expected one number for each column of 'tensor<16x8xf32>'}}
  %y = chunk.broadcast %v along columns : tensor<16xf32> to tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @columns_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[columns_c1] takes 'tensor<16x4xf32>' from column 5 of 'tensor<16x8xf32>'}}
  %y = chunk.columns %x from 5 : tensor<16x8xf32> -> tensor<16x4xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @columns_c1_rows chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[columns_c1] takes 'tensor<8xf32>' from column 0 of 'tensor<16x8xf32>'}}
  %y = chunk.columns %x from 0 : tensor<16x8xf32> -> tensor<8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @concat_c1 chunk 16 (input %x: tensor<16x8xf32>, input %v: tensor<16x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[concat_c1] an operand has type 'tensor<16x8xbf16>', the result 'tensor<16x16xf32>'}}
  %y = chunk.concat %x, %v : tensor<16x8xf32>, tensor<16x8xbf16> -> tensor<16x16xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @concat_c2 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[concat_c2] the operands have 16 columns, the result 17}}
  %y = chunk.concat %x, %x : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x17xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @dot_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[dot_c1] multiplies 16x8 by 16x8 to 'tensor<16x8xf32>'}}
  %y = chunk.dot %x, %x : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @dot_c2 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[dot_c2] adds 'tensor<16x8xf32>' to 'tensor<16x16xf32>'}}
  %y = "chunk.dot"(%x, %x, %x) {transpose_right} : (tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>) -> tensor<16x16xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @dot_c3 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[dot_c3] multiplies 'f32' by 'f32' to 'bf16'}}
  %y = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xbf16>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @reduce_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[reduce_c1] reduces 'tensor<16x8xf32>' over columns to 'tensor<8xf32>'}}
  %y = chunk.reduce sum %x over columns : tensor<16x8xf32> -> tensor<8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @causal_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[causal_c1] the operand has type 'tensor<16x8xf32>', expected as many rows as columns}}
  %y = chunk.causal %x : tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @mask_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %c: tensor<f32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[mask_c1] the operand has type 'tensor<f32>', which has no rows}}
  %y = chunk.mask %c valid %n : tensor<f32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @conv_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, parameter %tail: tensor<2x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[conv_c1] has an operand of type 'tensor<16x8xf32>', taps of type 'tensor<8x4xf32>' and a tail of type 'tensor<2x8xf32>'}}
  %y = chunk.conv %x, %taps tail %tail : tensor<16x8xf32>, tensor<8x4xf32>, tensor<2x8xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @conv_c2 chunk 16 (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, parameter %tail: tensor<3x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[conv_c2] has a result of type 'tensor<16x8xbf16>', expected the shape of the operand of type 'tensor<16x8xf32>' and elements as wide as those of any operand}}
  %y = chunk.conv %x, %taps tail %tail : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xbf16>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @conv_c3 chunk 16 (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, parameter %tail: tensor<3x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[conv_c3] has a tail of 'bf16', expected 'f32' as of the operand}}
  %y = chunk.conv %x, %taps tail %tail : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xbf16> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @delay_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %tail: tensor<2x4xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[delay_c1] has an operand of type 'tensor<16x8xf32>' and a tail of type 'tensor<2x4xf32>'}}
  %y = chunk.delay %x by 1 tail %tail : tensor<16x8xf32>, tensor<2x4xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @delay_c2 chunk 16 (input %x: tensor<16x8xf32>, parameter %tail: tensor<2x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[delay_c2] delays by 3, the tail has 2 rows}}
  %y = chunk.delay %x by 3 tail %tail : tensor<16x8xf32>, tensor<2x8xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @delay_c3 chunk 16 (input %x: tensor<16x8xbf16>, parameter %tail: tensor<2x8xf32>, valid %n: index) -> (o: tensor<16x8xbf16>) {
  // expected-error @+1 {{[delay_c3] has operands of types 'tensor<16x8xbf16>' and 'tensor<2x8xf32>' and a result of type 'tensor<16x8xbf16>'}}
  %y = chunk.delay %x by 2 tail %tail : tensor<16x8xbf16>, tensor<2x8xf32> -> tensor<16x8xbf16>
  chunk.yield %x : tensor<16x8xbf16>
}

// -----

chunk.kernel @delay_c4 chunk 16 (input %x: tensor<16x8xbf16>, parameter %tail: tensor<2x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[delay_c4] has a tail of 'f32', expected 'bf16' as of the operand}}
  %y = chunk.delay %x by 2 tail %tail : tensor<16x8xbf16>, tensor<2x8xf32> -> tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @tail_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %tail: tensor<2x8xbf16>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[tail_c1] has an operand of type 'tensor<16x8xf32>' and a tail of type 'tensor<2x8xbf16>'}}
  %y = chunk.tail %x valid %n after %tail : tensor<16x8xf32>, tensor<2x8xbf16>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_dot_c1 chunk 16 (input %x: tensor<16x8xf32>, input %k: tensor<16x4xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_dot_c1] multiplies 'tensor<16x8xf32>' by 'tensor<16x4xf32>' to 'tensor<16x16xf32>'}}
  %y = chunk.decay_dot %x, %k log %x : tensor<16x8xf32>, tensor<16x4xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_dot_c2 chunk 16 (input %x: tensor<16x8xf32>, input %g: tensor<16x4xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_dot_c2] the amount has type 'tensor<16x4xf32>', expected one number for each of 16 tokens, or for each token and 8 channels}}
  %y = chunk.decay_dot %x, %x log %g : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x4xf32> -> tensor<16x16xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_mix_c1 chunk 16 (input %x: tensor<16x8xf32>, input %p: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_mix_c1] mixes 'tensor<16x8xf32>' by 'tensor<16x8xf32>' to 'tensor<16x8xf32>'}}
  %y = chunk.decay_mix %p, %x log %x : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_mix_c2 chunk 16 (input %x: tensor<16x8xf32>, input %p: tensor<16x16xf32>, input %g: tensor<16x4xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_mix_c2] the amount has type 'tensor<16x4xf32>', expected one number for each of 16 tokens, or for each token and 8 channels}}
  %y = chunk.decay_mix %p, %x log %g before : tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x4xf32> -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_mix_c3 chunk 16 (input %x: tensor<16x8xf32>, input %p: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_mix_c3] adds 'tensor<16x16xf32>' to 'tensor<16x8xf32>'}}
  %y = "chunk.decay_mix"(%p, %x, %x, %p) <{form = #chunk<decay_form log>}> : (tensor<16x16xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x16xf32>) -> tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_from_start_c1 chunk 16 (input %x: tensor<16x8xf32>, input %g: tensor<16x4xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_from_start_c1] the amount has type 'tensor<16x4xf32>'}}
  %y = chunk.decay_from_start %x log %g : tensor<16x8xf32>, tensor<16x4xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_to_end_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %g: tensor<8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_to_end_c1] the amount has type 'tensor<8xf32>', expected one number for each of 16 tokens, or for each token and 8 channels}}
  %y = chunk.decay_to_end %x log %g : tensor<16x8xf32>, tensor<8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_state_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %z: tensor<8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_state_c1] decays 'tensor<8xf32>' along columns}}
  %y = chunk.decay_state %z log %x along columns : tensor<8xf32>, tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_state_c2 chunk 16 (input %x: tensor<16x8xf32>, parameter %S: tensor<4x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_state_c2] the amount has type 'tensor<16x8xf32>', expected one number for each of the tokens, or for each token and 4 channels}}
  %y = chunk.decay_state %S log %x along rows : tensor<4x8xf32>, tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @accumulate_c1 chunk 16 (input %x: tensor<16x8xf32>, parameter %z: tensor<f32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[accumulate_c1] the operand has type 'tensor<f32>', which has no tokens}}
  %y = chunk.accumulate sum %z : tensor<f32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @total_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[total_c1] takes 'tensor<8xf32>' of 'tensor<16x8xf32>', which no chunk.accumulate makes}}
  %y = chunk.total %x : tensor<16x8xf32> -> tensor<8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @total_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %sums = chunk.accumulate sum %x : tensor<16x8xf32>
  // expected-error @+1 {{[total_c1] takes 'tensor<16xf32>' of 'tensor<16x8xf32>'}}
  %y = chunk.total %sums : tensor<16x8xf32> -> tensor<16xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @row_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[row_c1] takes 'tensor<8xf32>' at row 16 of 'tensor<16x8xf32>'}}
  %y = chunk.row %x at 16 : tensor<16x8xf32> -> tensor<8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_matrix_c1 chunk 16 (input %x: tensor<16xf32>, valid %n: index) -> (o: tensor<16xf32>) {
  // expected-error @+1 {{[decay_matrix_c1] makes 'tensor<8x8xf32>' of 'tensor<16xf32>'}}
  %y = chunk.decay_matrix log %x : tensor<16xf32> -> tensor<8x8xf32>
  chunk.yield %x : tensor<16xf32>
}

// -----

chunk.kernel @within_c1 chunk 16 (input %x: tensor<16xf32>, valid %n: index) -> (o: tensor<16xf32>) {
  // expected-error @+1 {{[within_c1] has}}
  %y = chunk.within %x limits [1.0, 2.0] : tensor<16xf32>
  chunk.yield %x : tensor<16xf32>
}

// -----

chunk.kernel @within_c2 chunk 16 (input %x: tensor<16xf32>, valid %n: index) -> (o: tensor<16xf32>) {
  // expected-error @+1 {{[within_c2] has no matrix for its first operand}}
  %y = chunk.within %x rising limits [1.0] : tensor<16xf32>
  chunk.yield %x : tensor<16xf32>
}

// -----

chunk.kernel @inverse_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[inverse_c1] inverts 'tensor<16x8xf32>', expected as many rows as columns}}
  %y = chunk.inverse %x : tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @solve_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[solve_c1] solves 'tensor<16x8xf32>' for 'tensor<16x8xf32>'}}
  %y = chunk.solve %x, %x : tensor<16x8xf32>, tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @scan_c1 chunk 16 (input %x: tensor<16x8xf32>, state %L: tensor<2x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[scan_c1] has an operand of type 'tensor<16x8xf32>' and a carry of type 'tensor<2x8xf32>'}}
  %y = chunk.scan add %x from %L : tensor<16x8xf32>, tensor<2x8xf32>
  chunk.yield %x next %L : tensor<16x8xf32>, tensor<2x8xf32>
}

// -----

chunk.kernel @scan_c2 chunk 16 (input %x: tensor<16x8xf32>, input %g: tensor<16x4xf32>, state %L: tensor<1x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[scan_c2] has an operand of type 'tensor<16x8xf32>' and logarithms of type 'tensor<16x4xf32>'}}
  %y = chunk.scan max %x from %L log %g : tensor<16x8xf32>, tensor<1x8xf32>, tensor<16x4xf32>
  chunk.yield %x next %L : tensor<16x8xf32>, tensor<1x8xf32>
}

// -----

chunk.kernel @lookback_c1 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %first = chunk.columns %t from 0 : tensor<16xf32> -> tensor<8xf32>
  // expected-error @+1 {{[lookback_c1] a bound has type 'tensor<8xf32>', expected a number for each of 16 tokens}}
  %y = chunk.lookback outer from %first : tensor<8xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c2 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %z = arith.negf %x : tensor<16x8xf32>
  // expected-error @+1 {{[lookback_c2] what is past is no argument of the kernel}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %z : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c2_parameter chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, parameter %w: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c2] what is past, "w", is neither an input nor a table of the kernel}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %w : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.table @decay {
^bb0(%t: f64, %h: f64, %d: f64):
  chunk.result %h : f64
}
chunk.kernel @lookback_c2_table chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, table %decay: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c2] the table "decay" does not vary in time}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %decay : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c3_outer chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c3] a fold of kind outer is given 'tensor<16x8xf32>', 'tensor<16x8xf32>', 'tensor<16x8xf32>' for chunks of 16 tokens, and tiles of 16}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j, %j : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c3 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c3] a fold of kind softmax is given 'tensor<16x8xf32>', 'tensor<16x8xf32>' for chunks of 16 tokens, and tiles of 16}}
  %m, %l, %acc = chunk.lookback softmax from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c4 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c4] makes 'tensor<16x8xf32>' of 'tensor<16x8xf32>', 'tensor<16x8xf32>', expected 'tensor<8x8xf32>'}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c5 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c5] ends both at a position and at the end of the sequence}}
  %y = chunk.lookback outer from %t to %t to_end : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c6 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    // expected-error @+1 {{[lookback_c6] stands in the body of a look-back}}
    %sums = chunk.accumulate sum %j : tensor<16x8xf32>
    chunk.contribute %sums, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c7 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c7] is a fold of kind outer ahead whose range is given by nothing, expected the body for a sum or outer ahead and the operation for others}}
  %y = chunk.lookback outer ahead past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c7_back chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c7] is a fold of kind outer whose range is given by the operation, expected}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32> from %t : tensor<16xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c8 chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c8] meets chunks at the distances 1, 2, expected two, not below 0, the farther one first}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) attributes {met = array<i64: 1, 2>} {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c8_wholly chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c8] meets chunks at the distances 1, -1, expected}}
  %y = chunk.lookback outer from %t : tensor<16xf32> past(%j = %x : tensor<16x8xf32>) attributes {wholly = array<i64: 1, -1>} {
    chunk.contribute %j, %j : tensor<16x8xf32>, tensor<16x8xf32>
  } : tensor<8x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @lookback_c7_softmax chunk 16 (input %x: tensor<16x8xf32>, input %t: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[lookback_c7] is a fold of kind softmax ahead whose range is given by the body, expected}}
  %m, %l, %acc = chunk.lookback softmax ahead past(%j = %x : tensor<16x8xf32>) {
    %s = chunk.dot %x, %j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %j : tensor<16x16xf32>, tensor<16x8xf32> from %t : tensor<16xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @conv_back_c1 chunk 16 reverse (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, state %t: tensor<4x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[conv_back_c1] has an operand of type 'tensor<16x8xf32>', taps of type 'tensor<8x4xf32>' and a carry of type 'tensor<4x8xf32>'}}
  %y, %next = chunk.conv_back %x, %taps valid %n after %t : tensor<16x8xf32>, tensor<8x4xf32>, tensor<4x8xf32> -> tensor<16x8xf32>
  chunk.yield %y next %next : tensor<16x8xf32>, tensor<4x8xf32>
}

// -----

chunk.kernel @conv_back_c2 chunk 16 reverse (input %x: tensor<16x8xf32>, parameter %taps: tensor<8x4xf32>, state %t: tensor<3x8xf32>, valid %n: index) -> (o: tensor<16x8xbf16>) {
  // expected-error @+1 {{[conv_back_c2] has a result of type 'tensor<16x8xbf16>', expected the shape and elements of the operand of type 'tensor<16x8xf32>'}}
  %y, %next = chunk.conv_back %x, %taps valid %n after %t : tensor<16x8xf32>, tensor<8x4xf32>, tensor<3x8xf32> -> tensor<16x8xbf16>
  chunk.yield %y next %next : tensor<16x8xbf16>, tensor<3x8xf32>
}

// -----

chunk.kernel @conv_taps_c1 chunk 16 reverse (input %x: tensor<16x8xf32>, checkpoint %t: tensor<2x8xf32>, valid %n: index) -> (o: tensor<8x4xf32>) {
  // expected-error @+1 {{[conv_taps_c1] has weights of type 'tensor<16x8xf32>', an operand of type 'tensor<16x8xf32>', a tail of type 'tensor<2x8xf32>' and a result of type 'tensor<8x4xf32>'}}
  %y = chunk.conv_taps %x, %x tail %t : tensor<16x8xf32>, tensor<16x8xf32>, tensor<2x8xf32> -> tensor<8x4xf32>
  chunk.yield %y : tensor<8x4xf32>
}

// -----

chunk.kernel @conv_taps_c2 chunk 16 reverse (input %x: tensor<16x8xf32>, checkpoint %t: tensor<3x8xf32>, valid %n: index) -> (o: tensor<8x4xbf16>) {
  // expected-error @+1 {{[conv_taps_c2] has weights of type 'tensor<16x8xf32>', an operand of type 'tensor<16x8xf32>' and a result of type 'tensor<8x4xbf16>', expected as many rows and elements of the result as wide as those of any operand}}
  %y = chunk.conv_taps %x, %x tail %t : tensor<16x8xf32>, tensor<16x8xf32>, tensor<3x8xf32> -> tensor<8x4xbf16>
  chunk.yield %y : tensor<8x4xbf16>
}

// -----

chunk.kernel @conv_taps_c3 chunk 16 reverse (input %x: tensor<16x8xf32>, input %k: tensor<16x8xbf16>, checkpoint %t: tensor<3x8xf32>, valid %n: index) -> (o: tensor<8x4xf32>) {
  // expected-error @+1 {{[conv_taps_c3] has a tail of 'f32', expected 'bf16' as of the operand}}
  %y = chunk.conv_taps %x, %k tail %t : tensor<16x8xf32>, tensor<16x8xbf16>, tensor<3x8xf32> -> tensor<8x4xf32>
  chunk.yield %y : tensor<8x4xf32>
}

// -----

chunk.kernel @decay_pairs_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_pairs_c1] weighs rows of 'tensor<16x8xf32>' by 'tensor<16x8xf32>'}}
  %y = chunk.decay_pairs %x, %x, %x factor %x : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_pairs_c2 chunk 16 (input %x: tensor<16x8xf32>, input %f: tensor<16x1xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // expected-error @+1 {{[decay_pairs_c2] has an amount of type 'tensor<16x1xf32>', expected a number for each of 16 tokens and 8 channels}}
  %y = chunk.decay_pairs %x, %x, %p factor %f : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x1xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_pairs_c3 chunk 16 (input %x: tensor<16x8xf32>, input %e: tensor<16xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // expected-error @+1 {{[decay_pairs_c3] has rows of 'tensor<16x8xf32>' and of the states 'tensor<16xf32>'}}
  %y = chunk.decay_pairs %x, %x, %p factor %x seen %x : tensor<16x8xf32> ends %e : tensor<16xf32> : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c10] the window "k_window" has type 'tensor<9x4xf32>', expected rows of an input "k"}}
chunk.kernel @kernel_c10 chunk 16 (input %k: tensor<16x8xf32>, window %k_window: tensor<9x4xf32> of "k", valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %k : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_totals_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[decay_totals_c1] weighs rows of 'tensor<16x8xf32>' by 'tensor<16x8xf32>'}}
  %y, %z = chunk.decay_totals %x, %x, %x log %x : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @decay_totals_c2 chunk 16 (input %x: tensor<16x8xf32>, input %f: tensor<16x1xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  %p = chunk.dot %x, %x transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
  // expected-error @+1 {{[decay_totals_c2] has an amount of type 'tensor<16x1xf32>', expected a number for each of 16 tokens and 8 channels}}
  %y, %z = chunk.decay_totals %x, %x, %p log %f : tensor<16x8xf32>, tensor<16x16xf32>, tensor<16x1xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c11] the argument 'x' is partial, expected of a state alone, of each head's own, whose columns are not sliced}}
"chunk.kernel"() <{sym_name = "f", chunk = 16, arguments = [#chunk.argument<input "x" partial true>, #chunk.argument<valid "n">], outputs = []}> ({
^bb0(%x: tensor<16x8xf32>, %n: index):
  chunk.yield
}) : () -> ()

// -----

// expected-error @+1 {{[kernel_c11] the output "o" is partial and sliced}}
chunk.kernel @f chunk 16 slices 2 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32> sliced partial) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c12] with segments turns the kernel has the input 'x'}}
chunk.kernel @f chunk 16 segments turns(input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c12] with segments turns the kernel has the output 'o', which is no checkpoint}}
chunk.kernel @f chunk 16 segments turns(state %S: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %S next %S : tensor<16x8xf32>, tensor<16x8xf32>
}

// -----

// expected-error @+1 {{expected one of [apart, turns] for how a kernel takes the segments of a sequence, got: together}}
chunk.kernel @f chunk 16 segments together(input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  chunk.yield %x : tensor<16x8xf32>
}

// -----

chunk.kernel @meet_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[meet_c1] the operand has type 'tensor<16x8xf32>', expected as many rows as columns}}
  %y = chunk.meet %x else %x block 2 : tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @meet_c2 chunk 16 (input %x: tensor<16x16xf32>, valid %n: index) -> (o: tensor<16x16xf32>) {
  // expected-error @+1 {{[meet_c2] has blocks of 3 tokens, expected a power of two that divides 16}}
  %y = chunk.meet %x else %x block 3 : tensor<16x16xf32>
  chunk.yield %y : tensor<16x16xf32>
}

// -----

chunk.kernel @middle_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[middle_c1] has blocks of 1 tokens, expected a power of two, 2 or more, that divides 16}}
  %y = chunk.middle %x block 1 : tensor<16x8xf32> -> tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @middle_c2 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x4xf32>) {
  // expected-error @+1 {{[middle_c2] makes 'tensor<16x4xf32>' of 'tensor<16x8xf32>'}}
  %y = chunk.middle %x block 2 : tensor<16x8xf32> -> tensor<16x4xf32>
  chunk.yield %y : tensor<16x4xf32>
}

// -----

chunk.kernel @join_halves_c1 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xf32>) {
  // expected-error @+1 {{[join_halves_c1] has blocks of 32 tokens, expected a power of two, 2 or more, that divides 16}}
  %y = chunk.join_halves %x, %x block 32 : tensor<16x8xf32> -> tensor<16x8xf32>
  chunk.yield %y : tensor<16x8xf32>
}

// -----

chunk.kernel @join_halves_c2 chunk 16 (input %x: tensor<16x8xf32>, valid %n: index) -> (o: tensor<16x8xbf16>) {
  // expected-error @+1 {{[join_halves_c2] makes 'tensor<16x8xbf16>' of 'tensor<16x8xf32>'}}
  %y = chunk.join_halves %x, %x block 2 : tensor<16x8xf32> -> tensor<16x8xbf16>
  chunk.yield %y : tensor<16x8xbf16>
}

// -----

// expected-error @+1 {{[kernel_c14] leaves earlier results and carries 1 states, expected none}}
chunk.kernel @kernel_c14 chunk 16 reverse earlier (state %S: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield next %S : tensor<8x8xf32>
}

// -----

// expected-error @+1 {{[kernel_c13] between its chunks stands 'f', which is no chunk.kernel}}
chunk.kernel @kernel_c13 chunk 16 reverse between @f (checkpoint %S: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield
}

// -----

chunk.kernel @f chunk 32 (state %S: tensor<8x8xf32>, valid %n: index) -> (S: tensor<8x8xf32> checkpoint) {
  chunk.yield %S next %S : tensor<8x8xf32>, tensor<8x8xf32>
}
// expected-error @+1 {{[kernel_c13] between its chunks stands 'f' of 32 tokens and 1 slices that walks forward, expected 16 and 1, of a walk forward for one back}}
chunk.kernel @kernel_c13 chunk 16 reverse between @f (checkpoint %S: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield
}

// -----

chunk.kernel @f chunk 16 (input %k: tensor<16x8xf32>, state %S: tensor<8x8xf32>, valid %n: index) -> (S: tensor<8x8xf32> checkpoint) {
  chunk.yield %S next %S : tensor<8x8xf32>, tensor<8x8xf32>
}
// expected-error @+1 {{[kernel_c13] between its chunks stands 'f' with the input 'k', which it has not}}
chunk.kernel @kernel_c13 chunk 16 reverse between @f (checkpoint %S: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield
}

// -----

chunk.kernel @f chunk 16 (state %S: tensor<8x8xf32>, valid %n: index) -> (S: tensor<8x8xf32> checkpoint) {
  chunk.yield %S next %S : tensor<8x8xf32>, tensor<8x8xf32>
}
// expected-error @+1 {{[kernel_c13] between its chunks stands 'f', which does not carry 'Z'}}
chunk.kernel @kernel_c13 chunk 16 reverse between @f (checkpoint %S: tensor<8x8xf32>, checkpoint %Z: tensor<8x8xf32>, valid %n: index) -> () {
  chunk.yield
}
