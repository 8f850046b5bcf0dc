// RUN: stretto-opt %s --pass-pipeline='builtin.module(chunk.kernel(stretto-merge-lookbacks),cse)' | FileCheck %s

// Values and their normaliser have the same weights: one look-back meets the tokens for both.
// CHECK-LABEL: chunk.kernel @sums
// CHECK: %[[Y:.*]]:2 = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x4xf32>) {
// CHECK: %[[S:.*]] = chunk.dot %k, %k_j transpose_right
// CHECK-NOT: chunk.dot
// CHECK: chunk.contribute %[[S]], %v_j, %[[S]], %{{.*}} : tensor<16x16xf32>, tensor<16x4xf32>, tensor<16x16xf32>, tensor<16x1xf32>
// CHECK-NOT: chunk.lookback
// CHECK: chunk.yield %[[Y]]#0, %[[Y]]#1
chunk.kernel @sums chunk 16 (input %k: tensor<16x8xf32>, input %v: tensor<16x4xf32>, input %f: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x4xf32>, z: tensor<16x1xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x1xf32>
  %y = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x4xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %v_j : tensor<16x16xf32>, tensor<16x4xf32>
  } : tensor<16x4xf32>
  %z = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %one : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  chunk.yield %y, %z : tensor<16x4xf32>, tensor<16x1xf32>
}

// Outer products with the same rows on the left, which a continued sequence alone has.
// CHECK-LABEL: chunk.kernel @outer
// CHECK: %{{.*}}:2 = chunk.lookback outer from %f to %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x4xf32>) attributes {continued} {
// CHECK: chunk.contribute %k_j, %v_j, %k_j, %{{.*}} : tensor<16x8xf32>, tensor<16x4xf32>, tensor<16x8xf32>, tensor<16x1xf32>
// CHECK-NOT: chunk.lookback
chunk.kernel @outer chunk 16 (input %k: tensor<16x8xf32>, input %v: tensor<16x4xf32>, input %f: tensor<16xf32>, state %S: tensor<8x4xf32>, state %Z: tensor<8x1xf32>, valid %n: index)
    -> (o: tensor<16x4xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x1xf32>
  %y = chunk.lookback outer from %f to %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x4xf32>) attributes {continued} {
    chunk.contribute %k_j, %v_j : tensor<16x8xf32>, tensor<16x4xf32>
  } : tensor<8x4xf32>
  %z = chunk.lookback outer from %f to %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) attributes {continued} {
    chunk.contribute %k_j, %one : tensor<16x8xf32>, tensor<16x1xf32>
  } : tensor<8x1xf32>
  chunk.yield %v next %y, %z : tensor<16x4xf32>, tensor<8x4xf32>, tensor<8x1xf32>
}

// Other weights, other tokens, and what needs the result of the first stay apart.
// CHECK-LABEL: chunk.kernel @apart
// CHECK-COUNT-4: chunk.lookback sum
chunk.kernel @apart chunk 16 (input %k: tensor<16x8xf32>, input %q: tensor<16x8xf32>, input %f: tensor<16xf32>,
                              input %g: tensor<16xf32>, valid %n: index)
    -> (a: tensor<16x8xf32>, b: tensor<16x8xf32>, c: tensor<16x8xf32>, d: tensor<16x8xf32>) {
  %a = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %b = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %c = chunk.lookback sum from %g : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  %scaled = arith.mulf %a, %k : tensor<16x8xf32>
  %d = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %x = arith.addf %k_j, %scaled : tensor<16x8xf32>
    chunk.contribute %s, %x : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16x8xf32>
  chunk.yield %a, %b, %c, %d : tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>, tensor<16x8xf32>
}

// Look-aheads whose ranges are computed alike, each in its body, are one as well.
// CHECK-LABEL: chunk.kernel @ahead
// CHECK: %{{.*}}:2 = chunk.lookback outer ahead past(
// CHECK: %[[FIRST:.*]] = arith.subf
// CHECK-NOT: arith.subf
// CHECK: chunk.contribute %k_j, %v_j, %k_j, %{{.*}} : {{.*}} from %[[FIRST]] : tensor<16xf32> to %p_j : tensor<16xf32>
// CHECK-NOT: chunk.lookback
chunk.kernel @ahead chunk 16 reverse (input %k: tensor<16x8xf32>, input %v: tensor<16x4xf32>, input %p: tensor<16xf32>, state %S: tensor<8x4xf32>, state %Z: tensor<8x1xf32>, valid %n: index)
    -> (o: tensor<16x4xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x1xf32>
  %nine = arith.constant dense<9.0> : tensor<16xf32>
  %y = chunk.lookback outer ahead past(%k_j = %k : tensor<16x8xf32>, %v_j = %v : tensor<16x4xf32>, %p_j = %p : tensor<16xf32>) {
    %first = arith.subf %p_j, %nine : tensor<16xf32>
    chunk.contribute %k_j, %v_j : tensor<16x8xf32>, tensor<16x4xf32> from %first : tensor<16xf32> to %p_j : tensor<16xf32>
  } : tensor<8x4xf32>
  %z = chunk.lookback outer ahead past(%k_j = %k : tensor<16x8xf32>, %p_j = %p : tensor<16xf32>) {
    %first = arith.subf %p_j, %nine : tensor<16xf32>
    chunk.contribute %k_j, %one : tensor<16x8xf32>, tensor<16x1xf32> from %first : tensor<16xf32> to %p_j : tensor<16xf32>
  } : tensor<8x1xf32>
  chunk.yield %v next %y, %z : tensor<16x4xf32>, tensor<8x4xf32>, tensor<8x1xf32>
}

// Of other ranges they stay apart.
// CHECK-LABEL: chunk.kernel @ahead_apart
// CHECK-COUNT-2: chunk.lookback outer ahead
chunk.kernel @ahead_apart chunk 16 reverse (input %k: tensor<16x8xf32>, input %p: tensor<16xf32>, input %f: tensor<16xf32>, state %S: tensor<8x8xf32>, state %Z: tensor<8x8xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>) {
  %y = chunk.lookback outer ahead past(%k_j = %k : tensor<16x8xf32>, %p_j = %p : tensor<16xf32>) {
    chunk.contribute %k_j, %k_j : tensor<16x8xf32>, tensor<16x8xf32> from %p_j : tensor<16xf32>
  } : tensor<8x8xf32>
  %z = chunk.lookback outer ahead past(%k_j = %k : tensor<16x8xf32>, %f_j = %f : tensor<16xf32>) {
    chunk.contribute %k_j, %k_j : tensor<16x8xf32>, tensor<16x8xf32> from %f_j : tensor<16xf32>
  } : tensor<8x8xf32>
  chunk.yield %k next %y, %z : tensor<16x8xf32>, tensor<8x8xf32>, tensor<8x8xf32>
}

// A softmax counts the pairs that attain its largest score, where a sum over the same pairs does nothing else.
// CHECK-LABEL: chunk.kernel @ties
// CHECK: %[[M:.*]]:4 = chunk.lookback softmax from
// CHECK-NOT: chunk.lookback
// CHECK: %[[TIES:.*]] = chunk.broadcast %[[M]]#3 along rows : tensor<16xf32> to tensor<16x1xf32>
// CHECK: chunk.yield %[[M]]#2, %[[TIES]] :
chunk.kernel @ties chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %f: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>, ties: tensor<16x1xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x16xf32>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %column = arith.constant dense<1.0> : tensor<16x1xf32>
  %m, %l, %acc = chunk.lookback softmax from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  %ties = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %largest = chunk.broadcast %m along rows : tensor<16xf32> to tensor<16x16xf32>
    %hit = arith.cmpf oeq, %s, %largest : tensor<16x16xf32>
    %w = arith.select %hit, %one, %zero : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %w, %column : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  chunk.yield %acc, %ties : tensor<16x8xf32>, tensor<16x1xf32>
}

// Of other scores, another range, or a number that is not the largest it does not.
// CHECK-LABEL: chunk.kernel @no_ties
// CHECK: %{{.*}}:3 = chunk.lookback softmax from
// CHECK-COUNT-3: chunk.lookback sum
// CHECK-NOT: :4 = chunk.lookback
chunk.kernel @no_ties chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %f: tensor<16xf32>, input %g: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>, a: tensor<16x1xf32>, b: tensor<16x1xf32>, c: tensor<16x1xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x16xf32>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %column = arith.constant dense<1.0> : tensor<16x1xf32>
  %m, %l, %acc = chunk.lookback softmax from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  %a = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %k, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %largest = chunk.broadcast %m along rows : tensor<16xf32> to tensor<16x16xf32>
    %hit = arith.cmpf oeq, %s, %largest : tensor<16x16xf32>
    %w = arith.select %hit, %one, %zero : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %w, %column : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  %b = chunk.lookback sum from %g : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %largest = chunk.broadcast %m along rows : tensor<16xf32> to tensor<16x16xf32>
    %hit = arith.cmpf oeq, %s, %largest : tensor<16x16xf32>
    %w = arith.select %hit, %one, %zero : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %w, %column : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  %c = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %s = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %sum = chunk.broadcast %l along rows : tensor<16xf32> to tensor<16x16xf32>
    %hit = arith.cmpf oeq, %s, %sum : tensor<16x16xf32>
    %w = arith.select %hit, %one, %zero : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %w, %column : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  chunk.yield %acc, %a, %b, %c : tensor<16x8xf32>, tensor<16x1xf32>, tensor<16x1xf32>, tensor<16x1xf32>
}

// Nor where scores may leave pairs out: those that are would be as large as the largest of none.
// CHECK-LABEL: chunk.kernel @left_out
// CHECK: %{{.*}}:3 = chunk.lookback softmax from
// CHECK: chunk.lookback sum
chunk.kernel @left_out chunk 16 (input %q: tensor<16x8xf32>, input %k: tensor<16x8xf32>, input %f: tensor<16xf32>, valid %n: index)
    -> (o: tensor<16x8xf32>, ties: tensor<16x1xf32>) {
  %one = arith.constant dense<1.0> : tensor<16x16xf32>
  %zero = arith.constant dense<0.0> : tensor<16x16xf32>
  %none = arith.constant dense<0xFF800000> : tensor<16x16xf32>
  %column = arith.constant dense<1.0> : tensor<16x1xf32>
  %m, %l, %acc = chunk.lookback softmax from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %p = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %isIn = arith.cmpf ogt, %p, %zero : tensor<16x16xf32>
    %s = arith.select %isIn, %p, %none : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %s, %k_j : tensor<16x16xf32>, tensor<16x8xf32>
  } : tensor<16xf32>, tensor<16xf32>, tensor<16x8xf32>
  %ties = chunk.lookback sum from %f : tensor<16xf32> past(%k_j = %k : tensor<16x8xf32>) {
    %p = chunk.dot %q, %k_j transpose_right : tensor<16x8xf32>, tensor<16x8xf32> -> tensor<16x16xf32>
    %isIn = arith.cmpf ogt, %p, %zero : tensor<16x16xf32>
    %s = arith.select %isIn, %p, %none : tensor<16x16xi1>, tensor<16x16xf32>
    %largest = chunk.broadcast %m along rows : tensor<16xf32> to tensor<16x16xf32>
    %hit = arith.cmpf oeq, %s, %largest : tensor<16x16xf32>
    %w = arith.select %hit, %one, %zero : tensor<16x16xi1>, tensor<16x16xf32>
    chunk.contribute %w, %column : tensor<16x16xf32>, tensor<16x1xf32>
  } : tensor<16x1xf32>
  chunk.yield %acc, %ties : tensor<16x8xf32>, tensor<16x1xf32>
}
