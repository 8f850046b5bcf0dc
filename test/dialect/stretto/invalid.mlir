// One test for each constraint of the dialect, under the constraint's id.
//
// RUN: stretto-opt %s --split-input-file --verify-diagnostics

// axis_c1: an axis is an expression that parses.
// expected-error @+1 {{[axis_c1] 'K +' ends where a number or a name is expected}}
func.func private @axis_c1() -> tensor<?xf64, #stretto.row<"K +">>

// -----

// axis_c1, as the axis of a parameter and of a state.
// expected-error @+1 {{[axis_c1] the size 'K/V' divides by something that is not a constant other than 0}}
func.func private @axis_c1() -> tensor<?xf64, #stretto.param<["K/V"]>>

// -----

// expected-error @+1 {{[axis_c1] unexpected '?' in '?'}}
func.func private @axis_c1() -> !stretto.state<K, "?">

// -----

// axis_c3: an axis may be at least 1.
// expected-error @+1 {{[axis_c3] the size of an axis is '0', expected at least 1}}
func.func private @axis_c3() -> tensor<0xf64, #stretto.row<0>>

// -----

// expected-error @+1 {{[axis_c3] the size of an axis is '-K - V + 2', expected at least 1}}
func.func private @axis_c3() -> !stretto.state<K, "2 - K - V">

// -----

// axis_c4: an axis that is a number has that dimension.
// expected-error @+1 {{[axis_c4] the axis '4' has dimension 5, expected 4}}
func.func private @axis_c4() -> tensor<5xf64, #stretto.row<4>>

// -----

// expected-error @+1 {{[axis_c4] the axis '4' has an unknown dimension, expected 4}}
func.func private @axis_c4() -> tensor<?x?xf64, #stretto.param<[K, 4]>>

// -----

// expected-error @+1 {{[axis_c4] the axis '4' has dimension 5, expected 4}}
func.func private @axis_c4() -> !stretto.state<K, 4 : 5>

// -----

// axis_c5: a known dimension is at least 1.
// expected-error @+1 {{[axis_c5] the axis 'K' has dimension 0, expected at least 1}}
func.func private @axis_c5() -> tensor<0xf64, #stretto.row<K>>

// -----

// expected-error @+1 {{[axis_c5] the axis 'K' has dimension -3, expected at least 1}}
func.func private @axis_c5() -> !stretto.state<K : -3, V>

// -----

// heads_c1: a head set is a name, "1", or names joined by '|' in alphabetical order, without "1" and "G".
// expected-error @+1 {{[heads_c1] 'W|H' is no head set; expected a name, "1", or names joined by '|'}}
func.func private @heads_c1() -> tensor<?xf64, #stretto.row<K, "W|H">>

// -----

// expected-error @+1 {{[heads_c1] 'G|H' is no head set}}
func.func private @heads_c1() -> tensor<?xf64, #stretto.param<[K], "G|H">>

// -----

// expected-error @+1 {{[heads_c1] '2' is no head set}}
func.func private @heads_c1() -> !stretto.state<K, V, 2>

// -----

// row_c1: the rank of a row is 1 with an axis, 0 without.
// expected-error @+1 {{[row_c1] a row with an axis has rank 1, found 2}}
func.func private @row_c1() -> tensor<?x?xf64, #stretto.row<K>>

// -----

// expected-error @+1 {{[row_c1] a row with no axis has rank 0, found 1}}
func.func private @row_c1() -> tensor<?xf64, #stretto.row<()>>

// -----

// row_c2: the entries of a row have type f64 or i1.
// expected-error @+1 {{[row_c2] the entries of a row have type f64 or i1, found 'f32'}}
func.func private @row_c2() -> tensor<?xf32, #stretto.row<K>>

// -----

// param_c1: the rank of a parameter is the number of its axes.
// expected-error @+1 {{[param_c1] a parameter with axes ["D", "F"] has rank 2, found 1}}
func.func private @param_c1() -> tensor<?xf64, #stretto.param<[D, F]>>

// -----

// param_c2: the entries of a parameter have type f64.
// expected-error @+1 {{[param_c2] the entries of a parameter have type f64, found 'i1'}}
func.func private @param_c2() -> tensor<?xi1, #stretto.param<[D]>>

// -----

// choice_c1: the value of a choice is one of the choices.
// expected-error @+1 {{[choice_c1] "some" is not one of the choices ["none", "all"]}}
stretto.variant @choice_c1() -> () options(which = #stretto.choice<"some" of ["none", "all"]>) {
  stretto.yield
}

// -----

// state_type_c1: the axes of a state are not the same.
// expected-error @+1 {{[state_type_c1] both axes of a state are 'K'; operations could not tell them apart}}
func.func private @state_type_c1() -> !stretto.state<K, K>

// -----

// expected-error @+1 {{[state_type_c1] both axes of a state are '4'}}
func.func private @state_type_c1() -> !stretto.state<4, 4>

// -----

//===----------------------------------------------------------------------===//
// The declaration
//===----------------------------------------------------------------------===//

// variant_c1: arguments are rows or parameters, results rows, and every argument has one name.
// expected-error @+1 {{[variant_c1] an argument has type 'f64', expected a row or a parameter}}
stretto.variant @variant_c1(%x: f64) -> () {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c1] a result has type 'tensor<?xf64, #stretto.param<[K]>>', expected a row}}
stretto.variant @variant_c1(%x: tensor<?xf64, #stretto.param<[K]>>) -> tensor<?xf64, #stretto.param<[K]>> {
  stretto.yield %x : tensor<?xf64, #stretto.param<[K]>>
}

// -----

// expected-error @+1 {{[variant_c1] has 1 arguments and 2 argument names}}
"stretto.variant"() <{arg_names = ["x", "y"], axes = {}, function_type = (tensor<?xf64, #stretto.row<K>>) -> (),
                      options = {}, sym_name = "variant_c1"}> ({
^bb0(%x: tensor<?xf64, #stretto.row<K>>):
  stretto.yield
}) : () -> ()

// -----

// expected-error @+1 {{[variant_c1] has 1 arguments and attributes of 2}}
"stretto.variant"() <{arg_names = ["x"], arg_attrs = [{}, {}], axes = {}, options = {}, sym_name = "variant_c1",
                      function_type = (tensor<?xf64, #stretto.row<K>>) -> ()}> ({
^bb0(%x: tensor<?xf64, #stretto.row<K>>):
  stretto.yield
}) : () -> ()

// -----

// variant_c2: argument names are identifiers and distinct.
// expected-error @+1 {{[variant_c2] the argument name "0" is not an identifier}}
stretto.variant @variant_c2(%0: tensor<?xf64, #stretto.row<K>>) -> () {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c2] two arguments have the name "x"}}
"stretto.variant"() <{arg_names = ["x", "x"], axes = {}, options = {}, sym_name = "variant_c2",
                      function_type = (tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>) -> ()}> ({
^bb0(%x: tensor<f64, #stretto.row<()>>, %y: tensor<f64, #stretto.row<()>>):
  stretto.yield
}) : () -> ()

// -----

// variant_c3: an option's default is a number, a condition, a choice or an expression.
// expected-error @+1 {{[variant_c3] the default of the option "n" is 4 : i64, expected a number of type f64, a condition, a choice or an expression}}
stretto.variant @variant_c3() -> () options(n = 4) {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c3] the default of the option "scale": unexpected '%' in 'K % 2'}}
stretto.variant @variant_c3(%x: tensor<?xf64, #stretto.row<K>>) -> () options(scale = "K % 2") {
  stretto.yield
}

// -----

// variant_c3: the name of an option is not that of a size.
// expected-error @+1 {{[variant_c3] the option "K" has the name of a size}}
stretto.variant @variant_c3(%x: tensor<?xf64, #stretto.row<K>>) -> () options(K = 4.0) {
  stretto.yield
}

// -----

// variant_c4: the body takes the declared arguments and yields the declared results.
// expected-error @+1 {{[variant_c4] the body's arguments have types ('f64'), expected ('tensor<?xf64, #stretto.row<K>>')}}
"stretto.variant"() <{arg_names = ["x"], axes = {}, function_type = (tensor<?xf64, #stretto.row<K>>) -> (),
                      options = {}, sym_name = "variant_c4"}> ({
^bb0(%x: f64):
  stretto.yield
}) : () -> ()

// -----

// expected-error @+1 {{[variant_c4] the body does not end with a stretto.yield of types ('tensor<?xf64, #stretto.row<V>>')}}
stretto.variant @variant_c4(%x: tensor<?xf64, #stretto.row<K>>) -> tensor<?xf64, #stretto.row<V>> {
  stretto.yield %x : tensor<?xf64, #stretto.row<K>>
}

// -----

// variant_c5: an axis has an identifier for a name and is fixed by an expression.
// expected-error @+1 {{[variant_c5] the axis name "N + 1" is not an identifier}}
stretto.variant @variant_c5() -> () axes("N + 1" = "4") {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c5] the size of the axis "N" is 4.000000e+00 : f64, expected an expression in quotes}}
stretto.variant @variant_c5() -> () axes(N = 4.0) {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c5] the size of the axis "N": '(4' ends where a number or a name is expected}}
stretto.variant @variant_c5() -> () axes(N = "(4") {
  stretto.yield
}

// -----

// variant_c6: operations, nesting and settings stay within the closed list and its limits.
stretto.variant @variant_c6(%x: tensor<?xf64, #stretto.row<K>>) -> () {
  // expected-error @+1 {{'math.cbrt' op [variant_c6] is not on the closed list of operations that a declaration may use}}
  %y = math.cbrt %x : tensor<?xf64, #stretto.row<K>>
  stretto.yield
}

// -----

stretto.variant @variant_c6() -> () options(c = true) {
  %c = stretto.option "c" : i1
  scf.if %c { scf.if %c { scf.if %c { scf.if %c { scf.if %c { scf.if %c { scf.if %c { scf.if %c {
    // expected-error @+1 {{[variant_c6] is nested 9 deep, expected at most 8}}
    scf.if %c { }
  } } } } } } } }
  stretto.yield
}

// -----

// variant_c7: values are rows, parameters, states, f64 or i1.
stretto.variant @variant_c7() -> () {
  // expected-error @+1 {{[variant_c7] a value has type 'f32', expected a row, a parameter, a state, f64 or i1}}
  %x = arith.constant 1.0 : f32
  stretto.yield
}

// -----

// variant_c8: an axis has one dimension wherever it is known.
// expected-error @+1 {{[variant_c8] the axis 'K' has dimension 128 in one place and 64 in another}}
stretto.variant @variant_c8(%x: tensor<128xf64, #stretto.row<K>>) -> () {
  %S = stretto.state "S" : !stretto.state<K : 64, V>
  stretto.yield
}

// -----

// variant_c9: expressions use known sizes and numeric options, and do not depend on themselves.
// expected-error @+1 {{[variant_c9] the expression of "scale" uses 'Q', which is neither a size nor a numeric option}}
stretto.variant @variant_c9(%x: tensor<?xf64, #stretto.row<K>>) -> () options(scale = "Q**-0.5") {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c9] the expression of "N" uses 'c', which is neither a size nor a numeric option}}
stretto.variant @variant_c9() -> () options(c = true) axes(N = "c + 1") {
  stretto.yield
}

// -----

// expected-error @+1 {{[variant_c9] the expression of "a" depends on itself}}
stretto.variant @variant_c9() -> () options(a = "N + 1", b = 1.0) axes(N = "2*a + b", M = "b") {
  stretto.yield
}

// -----

// variant_c10: `group` gives each head set a positive integer.
// expected-error @+1 {{[variant_c10] the group of the head set "G" is 0 : i64, expected a name and a positive i64}}
stretto.variant @variant_c10() -> () attributes {group = {G = 0 : i64, H = 1 : i64}} {
  stretto.yield
}

// -----

// variant_c11: the results of a gradient have the types of its first rows.
// expected-error @+1 {{[variant_c11] a gradient has results of the types 'tensor<f64, #stretto.row<()>>', expected those of its first rows: 'tensor<4xf64, #stretto.row<K>>'}}
stretto.variant @variant_c11(%k: tensor<4xf64, #stretto.row<K>>) -> tensor<f64, #stretto.row<()>> attributes {gradient} {
  %n = stretto.reduce sum %k : tensor<4xf64, #stretto.row<K>> -> tensor<f64, #stretto.row<()>>
  stretto.yield %n : tensor<f64, #stretto.row<()>>
}

// -----

// variant_c11: or of the rows that are wanted, and no others.
// expected-error @+1 {{[variant_c11] a gradient has results of the types 'tensor<4xf64, #stretto.row<K>>', expected those of the rows that are wanted: }}
stretto.variant @variant_c11_wanted(%k: tensor<4xf64, #stretto.row<K>>) -> tensor<4xf64, #stretto.row<K>>
    attributes {gradient, wanted = ["q"]} {
  stretto.yield %k : tensor<4xf64, #stretto.row<K>>
}

// -----

// variant_c12: `saved` counts results behind the first.
// expected-error @+1 {{[variant_c12] saves 1 of 1 results, expected fewer}}
stretto.variant @variant_c12(%n: tensor<f64, #stretto.row<()>>) -> tensor<f64, #stretto.row<()>>
    attributes {saved = 1 : i64} {
  stretto.yield %n : tensor<f64, #stretto.row<()>>
}

// -----

// variant_c12: a gradient takes rows that were saved as arguments.
// expected-error @+1 {{[variant_c12] takes 3 saved rows of 2 arguments, expected no more than these}}
stretto.variant @variant_c12_gradient(%a: tensor<f64, #stretto.row<()>>, %b: tensor<f64, #stretto.row<()>>)
    -> (tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>) attributes {gradient, saved = 3 : i64} {
  stretto.yield %a, %b : tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>
}

// -----

//===----------------------------------------------------------------------===//
// Options and sizes
//===----------------------------------------------------------------------===//

// option_c1: the option is declared.
stretto.variant @option_c1() -> () {
  // expected-error @+1 {{[option_c1] the variant declares no option 'scale'}}
  %s = stretto.option "scale" : f64
  stretto.yield
}

// -----

// option_c2: the option's kind fits the type.
stretto.variant @option_c2() -> () options(scale = 1.0) {
  // expected-error @+1 {{[option_c2] the option 'scale' has the default 1.000000e+00 : f64, expected a condition}}
  %s = stretto.option "scale" : i1
  stretto.yield
}

// -----

stretto.variant @option_c2() -> () options(decay = #stretto.choice<"none" of ["none"]>) {
  // expected-error @+1 {{[option_c2] the option 'decay' has the default #stretto.choice<"none" of ["none"]>, expected a number}}
  %s = stretto.option "decay" : f64
  stretto.yield
}

// -----

// option_is_c1: the option is declared as a choice.
stretto.variant @option_is_c1() -> () {
  // expected-error @+1 {{[option_is_c1] the variant declares no option 'decay'}}
  %s = stretto.option_is "decay" "none"
  stretto.yield
}

// -----

stretto.variant @option_is_c1() -> () options(decay = true) {
  // expected-error @+1 {{[option_is_c1] the option 'decay' has the default true, expected a choice}}
  %s = stretto.option_is "decay" "none"
  stretto.yield
}

// -----

// option_is_c2: the word is one of its choices.
stretto.variant @option_is_c2() -> () options(decay = #stretto.choice<"none" of ["none", "abs"]>) {
  // expected-error @+1 {{[option_is_c2] 'signed' is not one of the choices ["none", "abs"] of the option 'decay'}}
  %s = stretto.option_is "decay" "signed"
  stretto.yield
}

// -----

// present_c1: the operand is an argument marked {stretto.optional}.
stretto.variant @present_c1(%x: tensor<?xf64, #stretto.row<K>>) -> () {
  // expected-error @+1 {{[present_c1] the operand is not an argument marked {stretto.optional}}}
  %has = stretto.present %x : tensor<?xf64, #stretto.row<K>>
  stretto.yield
}

// -----

stretto.variant @present_c1(%x: tensor<?xf64, #stretto.row<K>> {stretto.optional}) -> () {
  %y = arith.negf %x : tensor<?xf64, #stretto.row<K>>
  // expected-error @+1 {{[present_c1] the operand is not an argument marked {stretto.optional}}}
  %has = stretto.present %y : tensor<?xf64, #stretto.row<K>>
  stretto.yield
}

// -----

// size_c1: the expression is a size.
func.func @size_c1() {
  // expected-error @+1 {{[size_c1] the size 'K*1.5' holds 1.5, which is no integer of at most 1e9}}
  %n = stretto.size "K*1.5" : f64
  return
}

// -----

// size_c2: the variant knows the sizes in it.
stretto.variant @size_c2(%x: tensor<?xf64, #stretto.row<K>>) -> () {
  // expected-error @+1 {{[size_c2] 'Q' is not a size of the variant}}
  %n = stretto.size "K + Q" : f64
  stretto.yield
}

// -----

//===----------------------------------------------------------------------===//
// Row maps
//===----------------------------------------------------------------------===//

// broadcast_c1: the head set of the operand divides that of the result.
func.func @broadcast_c1(%x: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[broadcast_c1] the head set 'H' does not divide 'G'}}
  %y = stretto.broadcast %x : tensor<?xf64, #stretto.row<K>> to tensor<?xf64, #stretto.row<K, G>>
  return
}

// -----

// broadcast_c2: the axis of the operand is absent, of size one or that of the result.
func.func @broadcast_c2(%x: tensor<4xf64, #stretto.row<4>>) {
  // expected-error @+1 {{[broadcast_c2] the operand's axis is '4', expected none, size one or 'K'}}
  %y = stretto.broadcast %x : tensor<4xf64, #stretto.row<4>> to tensor<?xf64, #stretto.row<K>>
  return
}

// -----

func.func @broadcast_c2(%x: tensor<64xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[broadcast_c2] the operand's axis is 'V', expected none, size one or 'K'}}
  %y = stretto.broadcast %x : tensor<64xf64, #stretto.row<V>> to tensor<?xf64, #stretto.row<K>>
  return
}

// -----

func.func @broadcast_c2(%x: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[broadcast_c2] the operand's axis is 'V', expected none}}
  %y = stretto.broadcast %x : tensor<?xf64, #stretto.row<V>> to tensor<f64, #stretto.row<()>>
  return
}

// -----

// broadcast_c3: a parameter has at most one axis.
func.func @broadcast_c3(%W: tensor<?x?xf64, #stretto.param<[D, F]>>) {
  // expected-error @+1 {{[broadcast_c3] the parameter has 2 axes, expected at most 1}}
  %y = stretto.broadcast %W : tensor<?x?xf64, #stretto.param<[D, F]>> to tensor<?xf64, #stretto.row<D>>
  return
}

// -----

// broadcast_c4: the result is a row of entries of the operand's type.
func.func @broadcast_c4(%x: f64) {
  // expected-error @+1 {{[broadcast_c4] the result has type 'tensor<?xf64, #stretto.param<[K]>>', expected a row}}
  %y = stretto.broadcast %x : f64 to tensor<?xf64, #stretto.param<[K]>>
  return
}

// -----

func.func @broadcast_c4(%x: i1) {
  // expected-error @+1 {{[broadcast_c4] the operand's entries have type 'i1', the result's 'f64'}}
  %y = stretto.broadcast %x : i1 to tensor<?xf64, #stretto.row<K>>
  return
}

// -----

func.func @broadcast_c4(%x: tensor<?xf64>) {
  // expected-error @+1 {{[broadcast_c4] the operand has type 'tensor<?xf64>', expected a row, a parameter or a number}}
  %y = stretto.broadcast %x : tensor<?xf64> to tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// reduce_c1: the operand has an axis and the result is the number of the same head set.
func.func @reduce_c1(%x: tensor<?xf64, #stretto.row<K, G>>) {
  // expected-error @+1 {{[reduce_c1] reduces 'tensor<?xf64, #stretto.row<K, G>>' to 'tensor<f64, #stretto.row<()>>', expected a row with an axis and the number of its head set}}
  %y = stretto.reduce sum %x : tensor<?xf64, #stretto.row<K, G>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @reduce_c1(%x: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[reduce_c1] reduces 'tensor<f64, #stretto.row<()>>'}}
  %y = stretto.reduce sum %x : tensor<f64, #stretto.row<()>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

// softmax_c1: the operand has an axis.
func.func @softmax_c1(%x: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[softmax_c1] the operand is a number, expected a row with an axis}}
  %y = stretto.softmax %x : tensor<f64, #stretto.row<()>>
  return
}

// -----

// concat_c1: all rows share one head set with the result.
func.func @concat_c1(%x: tensor<?xf64, #stretto.row<K>>, %y: tensor<f64, #stretto.row<(), G>>) {
  // expected-error @+1 {{[concat_c1] the head set of an operand is 'G', that of the result 'H'}}
  %z = stretto.concat %x, %y : tensor<?xf64, #stretto.row<K>>, tensor<f64, #stretto.row<(), G>> -> tensor<?xf64, #stretto.row<"K + 1">>
  return
}

// -----

// concat_c2: the result's size is the sum of the operands'.
func.func @concat_c2(%x: tensor<?xf64, #stretto.row<K>>, %y: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[concat_c2] the operands' sizes add up to '2*K + 1', the result's is 'K + 2'}}
  %z = stretto.concat %x, %y, %x : tensor<?xf64, #stretto.row<K>>, tensor<f64, #stretto.row<()>>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<"K + 2">>
  return
}

// -----

// slice_c1: the offset is a size.
func.func @slice_c1(%x: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[slice_c1] 'K -' ends where a number or a name is expected}}
  %z = stretto.slice %x from "K -" : tensor<?xf64, #stretto.row<K>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

// slice_c2: it is at least 0, and offset plus size is at most the operand's size, where these can be compared.
func.func @slice_c2(%x: tensor<?xf64, #stretto.row<"V + 1">>) {
  // expected-error @+1 {{[slice_c2] takes entries 'V + 1' to 'V + 2' of a row of size 'V + 1'}}
  %z = stretto.slice %x from "V + 1" : tensor<?xf64, #stretto.row<"V + 1">> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @slice_c2(%x: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[slice_c2] takes entries '-1' to 'V - 1' of a row of size 'V'}}
  %z = stretto.slice %x from "-1" : tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @slice_c2(%x: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[slice_c2] takes entries 'V' to 'K + V' of a row of size 'V'}}
  %z = stretto.slice %x from "V" : tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// slice_c3: operand and result share the head set.
func.func @slice_c3(%x: tensor<?xf64, #stretto.row<V, G>>) {
  // expected-error @+1 {{[slice_c3] the head set of the operand is 'G', that of the result 'H'}}
  %z = stretto.slice %x from "0" : tensor<?xf64, #stretto.row<V, G>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

// slice_c4: the variant knows the sizes in the offset.
stretto.variant @slice_c4(%x: tensor<?xf64, #stretto.row<V>>) -> () {
  // expected-error @+1 {{[slice_c4] 'Q' is not a size of the variant}}
  %z = stretto.slice %x from "Q" : tensor<?xf64, #stretto.row<V>> -> tensor<f64, #stretto.row<()>>
  stretto.yield
}

// -----

// dot_c1: the operands have an axis, and the result is the number of their head set.
func.func @dot_c1(%x: tensor<?xf64, #stretto.row<K, G>>) {
  // expected-error @+1 {{[dot_c1] multiplies rows of type 'tensor<?xf64, #stretto.row<K, G>>' to 'tensor<f64, #stretto.row<()>>', expected rows with an axis and the number of their head set}}
  %z = stretto.dot %x, %x : tensor<?xf64, #stretto.row<K, G>> -> tensor<f64, #stretto.row<()>>
  return
}

// -----

// outer_c1: operands and result share one head set.
func.func @outer_c1(%x: tensor<?xf64, #stretto.row<K, G>>, %y: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[outer_c1] the head set of an operand is 'G', that of the result 'H'}}
  %z = stretto.outer %x, %y : tensor<?xf64, #stretto.row<K, G>>, tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<"K*V">>
  return
}

// -----

// outer_c2: the result's size is the product.
func.func @outer_c2(%x: tensor<?xf64, #stretto.row<K>>, %y: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[outer_c2] the flattened size is 'K + V', expected 'K*V'}}
  %z = stretto.outer %x, %y : tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<"K + V">>
  return
}

// -----

// inner_c1: operands and result share one head set.
func.func @inner_c1(%z: tensor<?xf64, #stretto.row<"K*V">>, %y: tensor<?xf64, #stretto.row<V, G>>) {
  // expected-error @+1 {{[inner_c1] the head set of an operand is 'G', that of the result 'H'}}
  %x = stretto.inner %z, %y : tensor<?xf64, #stretto.row<"K*V">>, tensor<?xf64, #stretto.row<V, G>> -> tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// inner_c2: the matrix's size is the product of the sizes of the row and the result.
func.func @inner_c2(%z: tensor<?xf64, #stretto.row<"K*V">>, %y: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[inner_c2] the flattened size is 'K*V', expected 'V*V'}}
  %x = stretto.inner %z, %y transpose : tensor<?xf64, #stretto.row<"K*V">>, tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// contract_c1: the parameter has two axes.
func.func @contract_c1(%x: tensor<?xf64, #stretto.row<D>>, %b: tensor<?xf64, #stretto.param<[D]>>) {
  // expected-error @+1 {{[contract_c1] the parameter has 1 axes, expected 2}}
  %y = stretto.contract %x, %b : tensor<?xf64, #stretto.row<D>>, tensor<?xf64, #stretto.param<[D]>> -> tensor<?xf64, #stretto.row<D>>
  return
}

// -----

// contract_c2: the contracted axis is the row's, the other the result's.
func.func @contract_c2(%x: tensor<?xf64, #stretto.row<D>>, %W: tensor<?x?xf64, #stretto.param<[D, F]>>) {
  // expected-error @+1 {{[contract_c2] takes 'D' to 'F', the parameter takes 'F' to 'D'}}
  %y = stretto.contract %x, %W transpose : tensor<?xf64, #stretto.row<D>>, tensor<?x?xf64, #stretto.param<[D, F]>> -> tensor<?xf64, #stretto.row<F>>
  return
}

// -----

// contract_c3: row and result share a head set, which the parameter's divides.
func.func @contract_c3(%x: tensor<?xf64, #stretto.row<D, G>>, %W: tensor<?x?xf64, #stretto.param<[D, F]>>) {
  // expected-error @+1 {{[contract_c3] the head sets of row, parameter and result are 'G', 'H' and 'G'; expected row and result to share one that the parameter's divides}}
  %y = stretto.contract %x, %W : tensor<?xf64, #stretto.row<D, G>>, tensor<?x?xf64, #stretto.param<[D, F]>> -> tensor<?xf64, #stretto.row<F, G>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// Time
//===----------------------------------------------------------------------===//

// table_c1: the body has three arguments of type f64 and yields one f64.
func.func @table_c1() {
  // expected-error @+1 {{[table_c1] has a body of ('f64', 'f64') that yields ('f64'), expected three arguments of type f64 and one f64}}
  %w = stretto.table {
  ^bb0(%t: f64, %h: f64):
    stretto.yield %t : f64
  } : tensor<?xf64, #stretto.row<N>>
  return
}

// -----

// table_c2: the body holds arithmetic on real numbers, conditions, options and sizes only.
func.func @table_c2() {
  %w = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    // expected-error @+1 {{[table_c2] stands in a table, whose body holds arithmetic on real numbers, conditions, options and sizes only}}
    %p = stretto.position
    stretto.yield %t : f64
  } : tensor<?xf64, #stretto.row<N>>
  return
}

// -----

func.func @table_c2(%x: tensor<?xf64, #stretto.row<N>>, %c: i1) {
  %w = stretto.table {
  ^bb0(%t: f64, %h: f64, %d: f64):
    scf.if %c {
      // expected-error @+1 {{[table_c2] stands in a table}}
      %p = arith.negf %x : tensor<?xf64, #stretto.row<N>>
    }
    stretto.yield %t : f64
  } : tensor<?xf64, #stretto.row<N>>
  return
}

// -----

// conv_c1: the taps have two axes, the first that of the row.
func.func @conv_c1(%x: tensor<?xf64, #stretto.row<D>>, %taps: tensor<4x?xf64, #stretto.param<[4, D]>>) {
  // expected-error @+1 {{[conv_c1] the taps have type 'tensor<4x?xf64, #stretto.param<[4, D]>>', expected two axes, the first 'D'}}
  %y = stretto.conv %x, %taps : tensor<?xf64, #stretto.row<D>>, tensor<4x?xf64, #stretto.param<[4, D]>>
  return
}

// -----

// conv_c2: the head set of the taps divides the row's.
func.func @conv_c2(%x: tensor<?xf64, #stretto.row<D, G>>, %taps: tensor<?x4xf64, #stretto.param<[D, 4], H>>) {
  // expected-error @+1 {{[conv_c2] the head set of the taps, 'H', does not divide that of the row, 'G'}}
  %y = stretto.conv %x, %taps : tensor<?xf64, #stretto.row<D, G>>, tensor<?x4xf64, #stretto.param<[D, 4], H>>
  return
}

// -----

// conv_c3: the number of taps is a constant of at least 1 (at most 64).
func.func @conv_c3(%x: tensor<?xf64, #stretto.row<D>>, %taps: tensor<?x65xf64, #stretto.param<[D, 65]>>) {
  // expected-error @+1 {{[conv_c3] the number of taps is '65', expected a number from 1 to 64}}
  %y = stretto.conv %x, %taps : tensor<?xf64, #stretto.row<D>>, tensor<?x65xf64, #stretto.param<[D, 65]>>
  return
}

// -----

func.func @conv_c3(%x: tensor<?xf64, #stretto.row<D>>, %taps: tensor<?x?xf64, #stretto.param<[D, J]>>) {
  // expected-error @+1 {{[conv_c3] the number of taps is 'J', expected a number from 1 to 64}}
  %y = stretto.conv %x, %taps : tensor<?xf64, #stretto.row<D>>, tensor<?x?xf64, #stretto.param<[D, J]>>
  return
}

// -----

// delay_c1: n is from 0 to 1024.
func.func @delay_c1(%x: tensor<?xf64, #stretto.row<D>>) {
  // expected-error @+1 {{[delay_c1] delays by -1, expected 0 to 1024}}
  %y = stretto.delay %x by -1 : tensor<?xf64, #stretto.row<D>>
  return
}

// -----

func.func @delay_c1(%x: tensor<?xf64, #stretto.row<D>>) {
  // expected-error @+1 {{[delay_c1] delays by 1025, expected 0 to 1024}}
  %y = stretto.delay %x by 1025 : tensor<?xf64, #stretto.row<D>>
  return
}

// -----

// scan_c1: the log row has the operand's type.
func.func @scan_c1(%x: tensor<?xf64, #stretto.row<N>>, %g: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[scan_c1] the log row has type 'tensor<f64, #stretto.row<()>>', the operand 'tensor<?xf64, #stretto.row<N>>'}}
  %y = stretto.scan add %x log %g : tensor<?xf64, #stretto.row<N>>, tensor<f64, #stretto.row<()>>
  return
}

// -----

// lookback_c1: the body has no arguments and yields what the fold needs.
func.func @lookback_c1(%first: tensor<f64, #stretto.row<(), 1>>, %s: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[lookback_c1] the body of a fold of kind softmax takes () and yields ('tensor<f64, #stretto.row<()>>'), expected no argument and two rows of real numbers}}
  %m = stretto.lookback softmax from %first {
    stretto.yield %s : tensor<f64, #stretto.row<()>>
  } : tensor<f64, #stretto.row<()>>
  return
}

// -----

func.func @lookback_c1(%first: tensor<f64, #stretto.row<(), 1>>, %s: tensor<i1, #stretto.row<()>>) {
  // expected-error @+1 {{[lookback_c1] the body of a fold of kind sum takes () and yields ('tensor<i1, #stretto.row<()>>'), expected no argument and one row or more of real numbers}}
  %m = stretto.lookback sum from %first {
    stretto.yield %s : tensor<i1, #stretto.row<()>>
  } : tensor<f64, #stretto.row<()>>
  return
}

// -----

// lookback_c2: results have the fold's types.
func.func @lookback_c2(%first: tensor<f64, #stretto.row<(), 1>>, %s: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[lookback_c2] the results have types ('tensor<f64, #stretto.row<()>>'), expected ('tensor<f64, #stretto.row<()>>', 'tensor<f64, #stretto.row<()>>', 'tensor<f64, #stretto.row<()>>')}}
  %m = stretto.lookback softmax from %first {
    stretto.yield %s, %s : tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>
  } : tensor<f64, #stretto.row<()>>
  return
}

// -----

// lookback_c3: scores are numbers.
func.func @lookback_c3(%first: tensor<f64, #stretto.row<(), 1>>, %v: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[lookback_c3] a score has the axis 'V', expected a number}}
  %m, %l, %acc = stretto.lookback softmax from %first {
    stretto.yield %v, %v : tensor<?xf64, #stretto.row<V>>, tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>, tensor<?xf64, #stretto.row<V>>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// lookback_c4: the body holds row operations only, and scf.if around them.
func.func @lookback_c4(%first: tensor<f64, #stretto.row<(), 1>>, %v: tensor<?xf64, #stretto.row<V>>) {
  %sum = stretto.lookback sum from %first {
    // expected-error @+1 {{'stretto.delay' op [lookback_c4] stands in a look-back, whose body holds row operations only}}
    %y = stretto.delay %v by 1 : tensor<?xf64, #stretto.row<V>>
    stretto.yield %y : tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @lookback_c4(%first: tensor<f64, #stretto.row<(), 1>>, %v: tensor<?xf64, #stretto.row<V>>, %c: i1) {
  %sum = stretto.lookback sum from %first {
    scf.if %c {
      // expected-error @+1 {{'stretto.state' op [lookback_c4] stands in a look-back}}
      %S = stretto.state "S" : !stretto.state<K, V>
    }
    stretto.yield %v : tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// lookback_c5: a score and its contribution share one head set.
func.func @lookback_c5(%first: tensor<f64, #stretto.row<(), 1>>, %s: tensor<f64, #stretto.row<()>>,
                       %v: tensor<?xf64, #stretto.row<V, G>>) {
  // expected-error @+1 {{[lookback_c5] folds rows of the head sets 'H' and 'G', expected one head set}}
  %m, %l, %acc = stretto.lookback softmax from %first {
    %vj = stretto.past %v : tensor<?xf64, #stretto.row<V, G>>
    stretto.yield %s, %vj : tensor<f64, #stretto.row<()>>, tensor<?xf64, #stretto.row<V, G>>
  } : tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>, tensor<?xf64, #stretto.row<V, G>>
  return
}

// -----

// past_c1: it stands in a look-back, its operand outside.
func.func @past_c1(%v: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[past_c1] stands outside a look-back}}
  %y = stretto.past %v : tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @past_c1(%first: tensor<f64, #stretto.row<(), 1>>, %v: tensor<?xf64, #stretto.row<V>>) {
  %sum = stretto.lookback sum from %first {
    %vj = stretto.past %v : tensor<?xf64, #stretto.row<V>>
    // expected-error @+1 {{[past_c1] the operand is defined inside the look-back, expected a row of the token}}
    %y = stretto.past %vj : tensor<?xf64, #stretto.row<V>>
    stretto.yield %y : tensor<?xf64, #stretto.row<V>>
  } : tensor<?xf64, #stretto.row<V>>
  return
}

// -----

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

// state_c1: names are distinct, except in branches of which only one is taken.
stretto.variant @state_c1() -> () {
  // expected-note @+1 {{the other state}}
  %S = stretto.state "S" : !stretto.state<K, V>
  // expected-error @+1 {{[state_c1] another state has the name 'S'}}
  %R = stretto.state "S" : !stretto.state<N, V>
  stretto.yield
}

// -----

// state_c1: a branch is no alternative to what stands around it.
stretto.variant @state_c1() -> () options(more = true) {
  // expected-note @+1 {{the other state}}
  %S = stretto.state "S" : !stretto.state<K, V>
  %more = stretto.option "more" : i1
  scf.if %more {
    // expected-error @+1 {{[state_c1] another state has the name 'S'}}
    %R = stretto.state "S" : !stretto.state<N, V>
  }
  stretto.yield
}

// -----

// state_c4: the entry has the columns that the state takes.
stretto.variant @state_c4() -> () {
  // expected-error @+1 {{[state_c4] takes 2 columns from column 3 of the 4 columns of 'T'}}
  %S = stretto.state "S" of "T" column 3 columns 4 : !stretto.state<K, 2>
  stretto.yield
}

// -----

// state_c4: and the rows.
stretto.variant @state_c4_rows() -> () {
  // expected-error @+1 {{[state_c4] takes 16 rows from row 8 of the 20 rows of 'T'}}
  %S = stretto.state "S" of "T" column 0 columns 2 row 8 rows 20 : !stretto.state<K : 16, 2>
  stretto.yield
}

// -----

// state_c4: rows are those of an entry.
stretto.variant @state_c4_no_entry() -> () {
  // expected-error @+1 {{[state_c4] takes rows of no entry}}
  %S = stretto.state "S" row 0 rows 20 : !stretto.state<K : 16, 2>
  stretto.yield
}

// -----

// state_c2: each value has at most one change: a decay or write that stands in the same block, or one scf.if whose
// branches both yield what they make of it as the same result.
stretto.variant @state_c2(%k: tensor<?xf64, #stretto.row<K>>, %v: tensor<?xf64, #stretto.row<V>>) -> () {
  %S = stretto.state "S" : !stretto.state<K, V>
  // expected-note @+1 {{the other change}}
  %S1 = stretto.decay %S log %k along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>
  // expected-error @+1 {{[state_c2] the state 'S' is changed twice; expected a chain}}
  %S2 = stretto.write %S, %k, %v : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<V>>
  stretto.yield
}

// -----

stretto.variant @state_c2(%g: tensor<?xf64, #stretto.row<K>>) -> () options(gated = true) {
  %S = stretto.state "S" : !stretto.state<K, V>
  %gated = stretto.option "gated" : i1
  // expected-error @+1 {{[state_c2] the state 'S' is changed under a condition; expected both branches to yield it as the same result}}
  scf.if %gated {
    %S1 = stretto.decay %S log %g along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>
  }
  stretto.yield
}

// -----

!state = !stretto.state<K, V>
!K = tensor<?xf64, #stretto.row<K>>
stretto.variant @state_c2(%g: !K) -> () options(gated = true) {
  %S = stretto.state "S" : !state
  %R = stretto.state "R" : !state
  %gated = stretto.option "gated" : i1
  // expected-error @+1 {{[state_c2] the state 'S' is changed under a condition; expected both branches to yield it as the same result}}
  %T:2 = scf.if %gated -> (!state, !state) {
    scf.yield %S, %R : !state, !state
  } else {
    scf.yield %R, %S : !state, !state
  }
  stretto.yield
}

// -----

!state = !stretto.state<K, V>
!K = tensor<?xf64, #stretto.row<K>>
stretto.variant @state_c2(%g: !K) -> () options(gated = true) {
  %gated = stretto.option "gated" : i1
  %T = scf.if %gated -> !state {
    %S = stretto.state "S" : !state
    // expected-error @+1 {{[state_c2] the state 'S' leaves the branch in which it comes about}}
    scf.yield %S : !state
  } else {
    %S = stretto.state "R" : !state
    scf.yield %S : !state
  }
  stretto.yield
}

// -----

// After a condition the chain goes on from the result, not from the value before.
!state = !stretto.state<K, V>
!K = tensor<?xf64, #stretto.row<K>>
stretto.variant @state_c2(%g: !K) -> () options(gated = true) {
  %S = stretto.state "S" : !state
  %gated = stretto.option "gated" : i1
  %T = scf.if %gated -> !state {
    %S1 = stretto.decay %S log %g along "K" : !state, !K
    scf.yield %S1 : !state
  } else {
    // expected-note @+1 {{the other change}}
    scf.yield %S : !state
  }
  // expected-error @+1 {{[state_c2] the state 'S' is changed twice; expected a chain}}
  %S2 = stretto.decay %S log %g along "K" : !state, !K
  stretto.yield
}

// -----

// state_c3: nothing but decay, write, read, pair and scf.if uses a state.
stretto.variant @state_c3() -> () options(first = true) {
  %S = stretto.state "S" : !stretto.state<K, V>
  %R = stretto.state "R" : !stretto.state<K, V>
  %first = stretto.option "first" : i1
  // expected-error @+1 {{'arith.select' op [state_c3] the state 'S' is used by something other than a decay, a write, a read, a pair or an scf.if}}
  %T = arith.select %first, %S, %R : !stretto.state<K, V>
  stretto.yield
}

// -----

// decay_c1: `along` is an axis of the state.
func.func @decay_c1(%S: !stretto.state<K, V>, %g: tensor<?xf64, #stretto.row<N>>) {
  // expected-error @+1 {{[decay_c1] decays along 'N', the axes of the state are 'K' and 'V'}}
  %S1 = stretto.decay %S log %g along "N" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<N>>
  return
}

// -----

// decay_c2: the amount's axis is that axis (a number: none).
func.func @decay_c2(%S: !stretto.state<K, V>, %g: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[decay_c2] the amount's axis is 'V', expected 'K'}}
  %S1 = stretto.decay %S log %g along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

func.func @decay_c2(%S: !stretto.state<K, V>, %g: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[decay_c2] the amount's axis is 'V', expected none}}
  %S1 = stretto.decay %S factor %g : !stretto.state<K, V>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// decay_c3: the amount's head set divides the state's.
func.func @decay_c3(%S: !stretto.state<K, V, G>, %g: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[decay_c3] the head set of the amount, 'H', does not divide that of the state, 'G'}}
  %S1 = stretto.decay %S log %g : !stretto.state<K, V, G>, tensor<f64, #stretto.row<()>>
  return
}

// -----

// write_c1: the axis of the first row is the first of the state.
func.func @write_c1(%S: !stretto.state<K, V>, %v: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[write_c1] the first row's axis is 'V', expected 'K'}}
  %S1 = stretto.write %S, %v, %v : !stretto.state<K, V>, tensor<?xf64, #stretto.row<V>>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// write_c2: the axis of the second row is the second of the state (a number stands for an axis of size one).
func.func @write_c2(%S: !stretto.state<1, V>, %n: tensor<f64, #stretto.row<()>>) {
  // expected-error @+1 {{[write_c2] the second row's axis is none, expected 'V'}}
  %S1 = stretto.write %S, %n, %n : !stretto.state<1, V>, tensor<f64, #stretto.row<()>>, tensor<f64, #stretto.row<()>>
  return
}

// -----

// write_c3: head sets can be compared.
func.func @write_c3(%S: !stretto.state<K, V, W>, %k: tensor<?xf64, #stretto.row<K, G>>, %v: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[write_c3] the head sets of a row and the state, 'H' and 'W', cannot be compared}}
  %S1 = stretto.write %S, %k, %v : !stretto.state<K, V, W>, tensor<?xf64, #stretto.row<K, G>>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// write_c4: `at` needs a reverse state.
func.func @write_c4(%S: !stretto.state<K, V>, %k: tensor<?xf64, #stretto.row<K>>, %v: tensor<?xf64, #stretto.row<V>>) {
  %t = stretto.position
  // expected-error @+1 {{[write_c4] writes at another token into a state that is carried forwards}}
  %S1 = stretto.write %S, %k, %v at %t : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>>, tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// read_c1: `along` is an axis of the state.
func.func @read_c1(%S: !stretto.state<K, V>, %q: tensor<?xf64, #stretto.row<N>>) {
  // expected-error @+1 {{[read_c1] reads along 'N', the axes of the state are 'K' and 'V'}}
  %o = stretto.read %S, %q along "N" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<N>> -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// read_c2: the row's axis is that axis.
func.func @read_c2(%S: !stretto.state<K, V>, %q: tensor<?xf64, #stretto.row<V>>) {
  // expected-error @+1 {{[read_c2] the row's axis is 'V', expected 'K'}}
  %o = stretto.read %S, %q along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<V>> -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// read_c3: the result's axis is the other.
func.func @read_c3(%S: !stretto.state<K, V>, %q: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[read_c3] the result's axis is 'K', expected 'V'}}
  %o = stretto.read %S, %q along "K" : !stretto.state<K, V>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// read_c4: the result's head set is the join of the row's and the state's.
func.func @read_c4(%S: !stretto.state<K, V, W>, %q: tensor<?xf64, #stretto.row<K>>) {
  // expected-error @+1 {{[read_c4] the result's head set is 'W', expected 'H|W'}}
  %o = stretto.read %S, %q along "K" : !stretto.state<K, V, W>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<V, W>>
  return
}

// -----

// read_c5: `at` needs a forward state.
func.func @read_c5(%S: !stretto.state<K, V, reverse>, %q: tensor<?xf64, #stretto.row<K>>) {
  %t = stretto.position
  // expected-error @+1 {{[read_c5] reads at an earlier token from a state that is carried backwards}}
  %o = stretto.read %S, %q along "K" at %t : !stretto.state<K, V, reverse>, tensor<?xf64, #stretto.row<K>> -> tensor<?xf64, #stretto.row<V>>
  return
}

// -----

// group_sum_c1: the head set of the result divides that of the operand.
func.func @group_sum_c1(%x: tensor<?xf64, #stretto.row<K, G>>) {
  // expected-error @+1 {{[group_sum_c1] the head set of the result, 'H', does not divide that of the operand, 'G'}}
  %y = stretto.group_sum %x : tensor<?xf64, #stretto.row<K, G>> to tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// group_sum_c2: the axes are the same.
func.func @group_sum_c2(%x: tensor<?xf64, #stretto.row<K>>) {
  // expected-error-re @+1 {{[group_sum_c2] the operand has type {{.*}}, the result {{.*}}, expected the same axis}}
  %y = stretto.group_sum %x : tensor<?xf64, #stretto.row<K>> to tensor<?xf64, #stretto.row<V, G>>
  return
}

// -----

// pair_c1: the first state is carried forwards, the second is the same carried backwards.
func.func @pair_c1(%S: !stretto.state<K, V>) {
  // expected-error @+1 {{[pair_c1] pairs '!stretto.state<K, V>' with '!stretto.state<K, V>', expected a state that is carried forwards and the same backwards}}
  %p = stretto.pair %S, %S along "K" : !stretto.state<K, V>, !stretto.state<K, V> -> tensor<?xf64, #stretto.row<K>>
  return
}

// -----

// pair_c2: `along` is an axis of the states.
func.func @pair_c2(%S: !stretto.state<K, V>, %dS: !stretto.state<K, V, reverse>) {
  // expected-error @+1 {{[pair_c2] pairs along 'N', the axes of the states are 'K' and 'V'}}
  %p = stretto.pair %S, %dS along "N" : !stretto.state<K, V>, !stretto.state<K, V, reverse> -> tensor<?xf64, #stretto.row<N>>
  return
}

// -----

// pair_c3: the result is a row on that axis of the states' heads.
func.func @pair_c3(%S: !stretto.state<K, V, G>, %dS: !stretto.state<K, V, G, reverse>) {
  // expected-error-re @+1 {{[pair_c3] the result has type {{.*}}, expected the axis 'V' and the heads 'G'}}
  %p = stretto.pair %S, %dS along "V" : !stretto.state<K, V, G>, !stretto.state<K, V, G, reverse> -> tensor<?xf64, #stretto.row<K, G>>
  return
}
