// What no one would write, and someone will: each is refused with a message, none crashes.
//
// RUN: stretto-opt %s --split-input-file --verify-diagnostics --allow-unregistered-dialect

// expected-error @+1 {{[axis_c1] '((((}}
func.func private @nested_axis() -> tensor<?xf64, #stretto.row<"((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((K">>

// -----

// expected-error @+1 {{is nested more than 64 deep}}
func.func private @signs() -> tensor<?xf64, #stretto.row<"----------------------------------------------------------------------K">>

// -----

// expected-error @+1 {{is nested more than 64 deep}}
func.func private @powers() -> tensor<?xf64, #stretto.row<"2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2**2">>

// -----

// expected-error @+1 {{[axis_c1] the size 'K*K*K*K*K*K*K*K*K*K' has too many terms or too large a coefficient}}
func.func private @degree() -> tensor<?xf64, #stretto.row<"K*K*K*K*K*K*K*K*K*K">>

// -----

// expected-error @+1 {{has too many terms or too large a coefficient}}
func.func private @terms() -> tensor<?xf64, #stretto.row<"(A+B+C+D)**4">>

// -----

// expected-error @+1 {{[axis_c1] the size '1/0' divides by something that is not a constant other than 0}}
func.func private @zero() -> tensor<?xf64, #stretto.row<"1/0">>

// -----

// expected-error @+1 {{[axis_c1] the size 'K**-1' holds a power other than 0 to 4}}
func.func private @power() -> tensor<?xf64, #stretto.row<"K**-1">>

// -----

// expected-error @+1 {{[axis_c1] the size '1e999' holds inf, which is no integer of at most 1e9}}
func.func private @infinite() -> tensor<?xf64, #stretto.row<"1e999">>

// -----

// expected-error @+1 {{[axis_c1] the size '9223372036854775808' holds 9.22337e+18, which is no integer of at most 1e9}}
func.func private @two_to_63() -> tensor<?xf64, #stretto.row<9223372036854775808>>

// -----

// expected-error @+1 {{integer value too large}}
func.func private @two_to_65() -> !stretto.state<36893488147419103232, V>

// -----

// expected-error @+1 {{has too many terms or too large a coefficient}}
func.func private @product() -> !stretto.state<"1000000000*1000000000*1000000000*1000000000*K", V>

// -----

// expected-error @+1 {{has too many terms or too large a coefficient}}
func.func private @fraction() -> !stretto.state<"K/999999999/999999998 + K/999999997/999999996", V>

// -----

// expected-error @+1 {{[axis_c1] '1..2' in '1..2' is no number}}
func.func private @dots() -> tensor<?xf64, #stretto.row<"1..2">>

// -----

// expected-error @+1 {{[axis_c1] '' ends where a number or a name is expected}}
func.func private @empty_axis() -> tensor<?xf64, #stretto.row<"">>

// -----

// expected-error @+1 {{[heads_c1] '' is no head set}}
func.func private @empty_heads() -> tensor<?xf64, #stretto.row<K, "">>

// -----

// expected-error @+1 {{[heads_c1] '|' is no head set}}
func.func private @bar() -> tensor<?xf64, #stretto.row<K, "|">>

// -----

// Bytes that are no UTF-8.
// expected-error @+1 {{[axis_c1] unexpected}}
func.func private @not_utf8() -> tensor<?xf64, #stretto.row<"\FF\FE\00K">>

// -----

// expected-error @+1 {{expected an axis}}
func.func private @kind_of_axis() -> tensor<?xf64, #stretto.row<4.5>>

// -----

// expected-error @+1 {{[axis_c4] the axis '4' has dimension 9223372036854775807, expected 4}}
func.func private @huge() -> tensor<9223372036854775807xf64, #stretto.row<4>>

// -----

func.func private @numbers_that_fit() -> (tensor<?xf64, #stretto.row<"1000000000*K + 1000000000">>,
  tensor<1000000000x1000000000xf64, #stretto.param<[1000000000, 1000000000]>>, !stretto.state<1000000000, V : 9223372036854775807>)

// -----

// expected-error @+1 {{expected}}
func.func private @no_element() -> tensor<, #stretto.row<()>>

// -----

// expected-error @+1 {{expected}}
func.func private @no_element() -> tensor<?x, #stretto.param<[K]>>

// -----

// expected-error @+1 {{expected}}
func.func private @state_without_axes() -> !stretto.state<>

// -----

// expected-error @+1 {{expected}}
stretto.variant @no_body() -> ()

// -----

// expected-error @+1 {{region #0 ('body') failed to verify constraint: region with 1 blocks}}
stretto.variant @empty_body() -> () {}

// -----

// expected-error @+1 {{expects a non-empty block}}
stretto.variant @empty_block(%x: tensor<?xf64, #stretto.row<K>>) -> () {}

// -----

// expected-error @+1 {{requires attribute 'arg_names'}}
"stretto.variant"() ({ }) : () -> ()

// -----

// expected-error @+1 {{requires one region}}
"stretto.variant"() {arg_names = [], axes = {}, function_type = () -> (), options = {}, sym_name = "no_region"} : () -> ()

// -----

// expected-error @+1 {{attribute 'arg_names' failed to satisfy constraint: string array attribute}}
"stretto.variant"() ({
  "stretto.yield"() : () -> ()
}) {arg_names = dense<0> : tensor<2xi64>, axes = {}, function_type = () -> (), options = {}, sym_name = "wrong_kinds"} : () -> ()

// -----

// expected-error @+1 {{attribute 'options' failed to satisfy constraint: dictionary of named attribute values}}
"stretto.variant"() ({
  "stretto.yield"() : () -> ()
}) {arg_names = [], axes = {}, function_type = () -> (), options = dense<0> : tensor<2xi64>, sym_name = "wrong_kinds"} : () -> ()

// -----

// expected-error @+1 {{attribute 'function_type' failed to satisfy constraint: type attribute of function type}}
"stretto.variant"() ({
  "stretto.yield"() : () -> ()
}) {arg_names = [], axes = {}, function_type = f64, options = {}, sym_name = "wrong_kinds"} : () -> ()

// -----

"stretto.variant"() ({
  // expected-error @+1 {{block with no terminator}}
  %t = "stretto.position"() : () -> tensor<f64, #stretto.row<(), "1">>
}) {arg_names = [], axes = {}, function_type = () -> (), options = {}, sym_name = "no_terminator"} : () -> ()

// -----

// More arguments in the body than in the declaration, and a question about the one too many.
// expected-error @+1 {{[variant_c4] the body's arguments have types ('tensor<?xf64, #stretto.row<K>>'), expected ()}}
"stretto.variant"() ({
^bb0(%x: tensor<?xf64, #stretto.row<K>>):
  %has = "stretto.present"(%x) : (tensor<?xf64, #stretto.row<K>>) -> i1
  "stretto.yield"() : () -> ()
}) {arg_names = [], arg_attrs = [], axes = {}, function_type = () -> (), options = {}, sym_name = "arguments"} : () -> ()

// -----

func.func @inside() {
  // expected-error @+1 {{expects parent op 'builtin.module'}}
  stretto.variant @variant() -> () { stretto.yield }
  return
}

// -----

// Operations that no one knows, in each body.
stretto.variant @unknown() -> () {
  // expected-error @+1 {{[variant_c6] is not on the closed list}}
  "unknown.operation"() : () -> ()
  stretto.yield
}

// -----

stretto.variant @unknown_in_table() -> () {
  %w = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    // expected-error @+1 {{[table_c2] stands in a table}}
    "unknown.operation"() : () -> ()
    stretto.yield %t : f64
  } : tensor<?xf64, #stretto.row<N>>
  stretto.yield
}

// -----

stretto.variant @unknown_in_lookback(%v: tensor<?xf64, #stretto.row<V>>) -> () {
  %t = stretto.position
  %sum = stretto.lookback sum from %t {
    // expected-error @+1 {{[lookback_c4] stands in a look-back}}
    "unknown.operation"() : () -> ()
    stretto.yield %v : tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>
  stretto.yield
}

// -----

stretto.variant @unknown_terminator() -> () {
  // expected-error @+1 {{[table_c1] has a body of () that yields (), expected three arguments of type f64 and one f64}}
  %w = "stretto.table"() ({
    "unknown.terminator"() : () -> ()
  }) : () -> tensor<?xf64, #stretto.row<N>>
  stretto.yield
}

// -----

func.func @parents() {
  // expected-error @+1 {{[option_c1] the variant declares no option 'scale'}}
  %s = stretto.option "scale" : f64
  return
}

// -----

func.func @parents() {
  // expected-error @+1 {{expects parent op to be one of 'stretto.variant, stretto.table, stretto.lookback'}}
  stretto.yield
}

// -----

func.func @wrong_attribute(%S: !stretto.state<K, V>, %q: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{attribute 'along' failed to satisfy constraint: string attribute}}
  %o = "stretto.read"(%S, %q) {along = dense<1.0> : tensor<3xf64>} : (!stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>) -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @empty_name(%S: !stretto.state<K, V>, %q: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[read_c1] reads along '', the axes of the state are 'K' and 'V'}}
  %o = "stretto.read"(%S, %q) {along = ""} : (!stretto.state<K, V>, tensor<f64, #stretto.row<()>>) -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @no_attribute(%S: !stretto.state<K, V>, %q: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{requires attribute 'along'}}
  %o = "stretto.read"(%S, %q) : (!stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>) -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @wrong_types(%x: f64) {
  // expected-error @+1 {{operand #0 must be row of real numbers, but got 'f64'}}
  %o = "stretto.softmax"(%x) : (f64) -> f64
  return
}

// -----

func.func @wrong_count(%S: !stretto.state<K, V>) {
  // expected-error @+1 {{expected 2 or more operands, but found 1}}
  %o = "stretto.read"(%S) {along = "K"} : (!stretto.state<K, V>) -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @different_types(%x: tensor<?xf64, #stretto.row<K>>, %y: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{failed to verify that all of {left, right} have same type}}
  %z = "stretto.dot"(%x, %y) : (tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<V>>) -> tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @other_result(%S: !stretto.state<K, V>, %f: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{failed to verify that all of {state, result} have same type}}
  %z = "stretto.decay"(%S, %f) {form = #stretto<decay_form log>} : (!stretto.state<K, V>, tensor<f64, #stretto.row<()>>) -> !stretto.state<V, K>
  return
}

// -----

func.func @nothing_to_concatenate() {
  // expected-error @+1 {{[concat_c2] the operands' sizes add up to '0', the result's is '1'}}
  %z = "stretto.concat"() : () -> tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @delay(%x: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[delay_c1] delays by -9223372036854775808, expected 0 to 1024}}
  %z = stretto.delay %x by -9223372036854775808 : tensor<?xf64, #stretto.row<K>>
  return
}

// -----

func.func @offset(%x: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[slice_c1] the size '-9223372036854775808' holds}}
  %z = stretto.slice %x from "-9223372036854775808" : tensor<?xf64, #stretto.row<K>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @large_product(%x: tensor<?xf64, #stretto.row<"1000000000*K">>) {
  // expected-error @+1 {{[outer_c2] the flattened size is 'K*K', expected '1000000000000000000*K*K'}}
  %z = stretto.outer %x, %x : tensor<?xf64, #stretto.row<"1000000000*K">>, tensor<?xf64, #stretto.row<"1000000000*K">> -> tensor<?xf64, #stretto.row<"K*K">>
  return
}

// -----

// A state that goes through what is no condition.
stretto.variant @state_in_lookback(%v: tensor<?xf64, #stretto.row<V>>) -> () options(c = true) {
  %t = stretto.position
  %c = stretto.option "c" : i1
  %S = stretto.state "S" : !stretto.state<K, V>
  // expected-error @+1 {{[state_c2] the state 'S' is changed under a condition}}
  %sum = stretto.lookback sum from %t {
    %T = scf.if %c -> !stretto.state<K, V> {
      scf.yield %S : !stretto.state<K, V>
    } else {
      scf.yield %S : !stretto.state<K, V>
    }
    stretto.yield %v : tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>
  stretto.yield
}
