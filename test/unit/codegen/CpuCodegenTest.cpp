//===- CpuCodegenTest.cpp - Generated CPU code against the interpreter ----===//

#include "KernelText.h"
#include <cmath>

namespace stretto {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

//===----------------------------------------------------------------------===//
// Linear attention, with its normaliser beside the state
//===----------------------------------------------------------------------===//

std::string linear(const Shape &shape) {
  return write(shape, R"( (input %q: !inK, input %k: !inK group 2, input %v: !inV group 2,
      state %S: !S group 2 of "S" column 0 columns )" +
                          std::to_string(shape.valueWidth + 1) + R"(,
      state %z: !k group 2 of "S" column )" +
                          std::to_string(shape.valueWidth) + " columns " + std::to_string(shape.valueWidth + 1) + R"(,
      valid %n: index) -> (o: !inV) {
    %q32 = arith.extf %q : !inK to !K
    %k32 = arith.extf %k : !inK to !K
    %v32 = arith.extf %v : !inV to !V
    %scale = arith.constant dense<0.25> : !K
    %qs = arith.mulf %q32 , %scale : !K
    %qk = chunk.dot %qs, %k32 transpose_right : !K, !K -> !P
    %p = chunk.causal %qk : !P
    %s = chunk.dot %qs, %S : !K, !S -> !V
    %num = chunk.dot %p, %v32 add %s : !P, !V -> !V
    %inner = chunk.reduce sum %p over columns : !P -> !t
    %zs = chunk.broadcast %z along columns : !k to !K
    %qz = arith.mulf %qs, %zs : !K
    %outer = chunk.reduce sum %qz over columns : !K -> !t
    %den = arith.addf %inner, %outer : !t
    %three = arith.constant dense<9.0> : !t
    %safe = arith.addf %den, %three : !t
    %dens = chunk.broadcast %safe along rows : !t to !V
    %o = arith.divf %num, %dens : !V
    %next = chunk.dot %k32 , %v32 transpose_left add %S : !K, !V -> !S
    %sums = chunk.reduce sum %k32 over rows : !K -> !k
    %nextz = arith.addf %z, %sums : !k
    %o16 = arith.truncf %o : !V to !inV
    chunk.yield %o16 next %next, %nextz : !inV, !S, !k
  })");
}

class Lengths : public CpuKernelTest {
protected:
  static constexpr int64_t lengths[] = {0, 1, 15, 16, 17, 33};
};

/// Rows of one sign: a normaliser that sums their products stays away from 0, where no division would be exact.
class Normalised : public Lengths {
protected:
  Normalised() {
    for (const char *name : {"q", "k"})
      uniform(name, 0, 1);
    // The last column of the state is the normaliser's.
    uniform("S", 0, 1);
  }
};

TEST_F(Normalised, LinearAttentionInEveryType) {
  struct Type {
    const char *memory, *compute;
    double tolerance;
  };
  for (auto [memory, compute, tolerance] :
       {Type{"f32", "f32", 1e-6}, Type{"bf16", "f32", 3e-3}, Type{"f16", "f32", 4e-4}, Type{"f64", "f64", 1e-14}}) {
    SCOPED_TRACE(memory);
    compile(linear({16, 32, 48, memory, compute}));
    Problem problem;
    problem.heads = 4;
    problem.tolerance = tolerance;
    checkLengths(lengths, problem);
  }
}

TEST_F(Normalised, ShorterVectors) {
  for (const char *memory : {"f32", "bf16", "f64"}) {
    SCOPED_TRACE(memory);
    compile(linear({16, 24, 40, memory, memory == std::string("f64") ? "f64" : "f32"}), cpu::Instructions{256});
    Problem problem;
    problem.tolerance = memory == std::string("bf16") ? 3e-3 : 1e-6;
    checkLengths(lengths, problem);
  }
}

TEST_F(Normalised, WidthsAndChunks) {
  for (auto [chunk, K, V] : {std::array<int64_t, 3>{16, 16, 16},
                             {16, 24, 40},
                             {32, 40, 24},
                             {64, 64, 64},
                             {16, 256, 24},
                             {24, 8, 200},
                             {16, 7, 5},
                             {5, 3, 17},
                             {40, 96, 128}}) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk << " K " << K << " V " << V);
    compile(linear({chunk, K, V}));
    checkLengths({1, chunk - 1, 2 * chunk + 3}, Problem());
  }
}

TEST_F(Normalised, PackedSequencesAndNoState) {
  compile(linear({16, 32, 32}));
  Problem problem;
  problem.offsets = {0, 0, 17, 18, 18, 50, 50};
  check(problem);
  problem.initialState = false;
  check(problem);
  problem.offsets = {0, 0, 0};
  check(problem);
}

TEST_F(Lengths, SlicesOfTheValues) {
  Shape whole = {16, 32, 64}, half = {16, 32, 32};
  auto text = [](const Shape &shape, const std::string &sliced) {
    std::string kernel =
        write(shape, R"( (input %q: !inK, input %k: !inK, input %v: !inV SLICED, parameter %w: !v SLICED,
          state %S: !S SLICED of "S" column 0 columns 64, valid %n: index) -> (o: !inV SLICED) {
        %qk = chunk.dot %q, %k transpose_right : !K, !K -> !P
        %p = chunk.causal %qk : !P
        %ws = chunk.broadcast %w along columns : !v to !V
        %vw = arith.mulf %v, %ws : !V
        %s = chunk.dot %q, %S : !K, !S -> !V
        %o = chunk.dot %p, %vw add %s : !P, !V -> !V
        %next = chunk.dot %k, %vw transpose_left add %S : !K, !V -> !S
        chunk.yield %o next %next : !V, !S
      })");
    return replaced(kernel, " SLICED", sliced);
  };
  std::string slicedText = replaced(text(half, " sliced"), "@kernel chunk 16", "@kernel chunk 16 slices 2");
  compile(slicedText);
  Problem problem;
  problem.slices = 2;
  check(problem, text(whole, ""));
}

//===----------------------------------------------------------------------===//
// Decay
//===----------------------------------------------------------------------===//

/// Gated linear attention; `amount` is !inK or !int, `form` log or factor, `before` "" or "before".
std::string gated(const Shape &shape, const std::string &amount, const std::string &form, const std::string &before) {
  std::string text =
      R"( (input %q: !inK, input %k: !inK, input %v: !inV, input %g: AMOUNT, state %S: !S, valid %n: index)
      -> (o: !inV) {
    %gm = chunk.mask %g valid %n else NEUTRAL : AMOUNT
    %p = chunk.decay_dot %q, %k FORM %gm BEFORE : !K, !K, AMOUNT -> !P
    %qd = chunk.decay_from_start %q FORM %gm BEFORE : !K, AMOUNT
    %s = chunk.dot %qd, %S : !K, !S -> !V
    %o = chunk.dot %p, %v add %s : !P, !V -> !V
    %ke = chunk.decay_to_end %k FORM %gm : !K, AMOUNT
    %Sd = chunk.decay_state %S FORM %gm along rows : !S, AMOUNT
    %next = chunk.dot %ke, %v transpose_left add %Sd : !K, !V -> !S
    chunk.yield %o next %next : !V, !S
  })";
  text = replaced(replaced(text, "AMOUNT", amount), "FORM", form);
  text = replaced(replaced(text, "BEFORE", before), "NEUTRAL", form == "log" ? "0.0" : "1.0");
  return write(shape, text);
}

class Decay : public CpuKernelTest {
protected:
  /// Checks decay for each channel and for each token, read after and before the write.
  void checkAll(const Shape &shape, const std::string &form,
                std::optional<cpu::Instructions> instructions = std::nullopt) {
    for (const char *amount : {"!inK", "!int"})
      for (const char *before : {"", "before"}) {
        SCOPED_TRACE(testing::Message() << amount << " " << form << " " << before << " chunk " << shape.chunk << " K "
                                        << shape.keyWidth);
        compile(gated(shape, amount, form, before), instructions);
        checkLengths({1, shape.chunk, 2 * shape.chunk + 5}, Problem());
      }
  }
};

TEST_F(Decay, GatesBelowOne) {
  uniform("g", -0.3, 0);
  for (auto [chunk, K, V] :
       {std::array<int64_t, 3>{16, 64, 64}, {16, 24, 40}, {32, 40, 24}, {64, 16, 16}, {8, 160, 16}, {20, 7, 5}})
    checkAll({chunk, K, V}, "log");
  checkAll({16, 40, 24}, "log", cpu::Instructions{256});
  checkAll({32, 24, 16, "f64", "f64"}, "log");
}

/// Rows that decay and are mixed by weights, infinite where nothing looks at them; the weights are stored by rows or
/// transposed, and a decay of their products is added.
std::string mixed(const Shape &shape, const std::string &amount, const std::string &form, const std::string &flags) {
  std::string text = R"( (input %q: !inK, input %k: !inK, input %v: !inV, input %g: AMOUNT, state %S: !S,
      valid %n: index) -> (o: !inV, r: !inV) {
    %gm = chunk.mask %g valid %n else NEUTRAL : AMOUNT
    %p = chunk.dot %q, %k transpose_right : !K, !K -> !P
    %zero = arith.constant dense<0.0> : !P
    %one = arith.constant dense<1.0> : !P
    %ones = chunk.causal %one CAUSAL : !P
    %unseen = arith.divf %one, %ones : !P
    %poison = arith.addf %p, %unseen : !P
    %finite = arith.subf %poison, %one : !P
    %w = chunk.dot %q, %S : !K, !S -> !V
    %start = chunk.decay_from_start %w FORM %gm : !V, AMOUNT
    %o = chunk.decay_mix WEIGHTS, %v FORM %gm FLAGS add %start : !P, !V, AMOUNT -> !V
    %key = chunk.decay_dot %q, %k log %k : !K, !K, !K -> !P
    %r = chunk.decay_mix %key, %v FORM %gm FLAGS : !P, !V, AMOUNT -> !V
    chunk.yield %o, %r next %S : !V, !V, !S
  })";
  text = replaced(replaced(text, "AMOUNT", amount), "FORM", form);
  text = replaced(replaced(text, "FLAGS", flags), "NEUTRAL", form == "log" ? "0.0" : "1.0");
  text = replaced(text, "CAUSAL", flags.find("before") == 0 ? "strict" : "");
  return write(shape, replaced(text, "WEIGHTS", "%finite"));
}

class Mix : public CpuKernelTest {
protected:
  void checkAll(const Shape &shape, const std::string &form,
                std::optional<cpu::Instructions> instructions = std::nullopt) {
    uniform("k", -1, 0); // also a gate
    for (const char *amount : {"!inV", "!int"})
      for (const char *flags : {"", "before", "transpose", "before transpose"}) {
        SCOPED_TRACE(testing::Message() << amount << " " << form << " " << flags << " chunk " << shape.chunk << " V "
                                        << shape.valueWidth);
        compile(mixed(shape, amount, form, flags), instructions);
        checkLengths({1, shape.chunk, 2 * shape.chunk + 5}, Problem());
      }
  }
};

TEST_F(Mix, GatesBelowOne) {
  uniform("g", -0.3, 0);
  for (auto [chunk, K, V] : {std::array<int64_t, 3>{16, 24, 40}, {64, 16, 16}, {21, 7, 5}})
    checkAll({chunk, K, V}, "log");
  checkAll({16, 16, 136, "f64", "f64"}, "log", cpu::Instructions{256});
}

TEST_F(Mix, StrongGates) {
  fill("g", [](size_t index) { return index % 7 == 3 ? 0.0 : -50.0; });
  checkAll({32, 32, 32}, "log");
}

TEST_F(Mix, ExactZerosCutWhatCameBefore) {
  fill("g", [](size_t index) { return index % 5 == 2 ? -infinity : -0.01 * static_cast<double>(index % 11); });
  checkAll({32, 32, 32}, "log");
  fill("g", [](size_t index) { return index % 5 == 2 ? 0.0 : 0.5; });
  checkAll({16, 32, 32}, "factor");
}

TEST_F(Mix, FactorsAboveOneAndBelowZero) {
  uniform("g", -1.3, 1.3);
  checkAll({32, 24, 40}, "factor");
}

TEST_F(Decay, StrongGates) {
  fill("g", [](size_t index) { return index % 7 == 3 ? 0.0 : -50.0; });
  checkAll({16, 32, 32}, "log");
  checkAll({32, 32, 32}, "log");
}

TEST_F(Decay, ExactZerosCutWhatCameBefore) {
  fill("g", [](size_t index) { return index % 5 == 2 ? -infinity : -0.01 * static_cast<double>(index % 11); });
  checkAll({16, 32, 32}, "log");
  checkAll({32, 32, 32}, "log");
  fill("g", [](size_t index) { return index % 5 == 2 ? 0.0 : 0.5; });
  checkAll({16, 32, 32}, "factor");
}

TEST_F(Decay, FactorsAboveOneAndBelowZero) {
  uniform("g", -1.3, 1.3);
  checkAll({16, 32, 32}, "factor");
  checkAll({32, 24, 40}, "factor");
}

TEST_F(Decay, ReachesNoEarlierTokenThanItsOwn) {
  // An infinite key at the end of a chunk must not meet the queries before it.
  compile(gated({16, 16, 16}, "!inK", "log", ""));
  fill("k", [](size_t index) { return index / 16 % 16 == 15 ? infinity : 0.5; });
  uniform("g", -0.3, 0);
  Problem problem;
  problem.tokens = 16;
  problem.batch = problem.heads = 1;
  check(problem);
}

TEST_F(Decay, OfTheColumnsOfAStateAndOfAVector) {
  uniform("g", -0.3, 0);
  for (const char *amount : {"!inV", "!int"}) {
    SCOPED_TRACE(amount);
    compile(write({16, 24, 40}, replaced(R"( (input %k: !inK, input %v: !inV, input %g: AMOUNT, input %h: !inK,
        state %S: !S, state %z: !k, valid %n: index) -> (o: !inV) {
      %gm = chunk.mask %g valid %n : AMOUNT
      %hm = chunk.mask %h valid %n : !K
      %ve = chunk.decay_to_end %v log %gm : !V, AMOUNT
      %Sd = chunk.decay_state %S log %gm along columns : !S, AMOUNT
      %next = chunk.dot %k, %ve transpose_left add %Sd : !K, !V -> !S
      %ke = chunk.decay_to_end %k factor %hm : !K, !K
      %sums = chunk.reduce sum %ke over rows : !K -> !k
      %zd = chunk.decay_state %z factor %hm along rows : !k, !K
      %nextz = arith.addf %zd, %sums : !k
      %o = chunk.decay_from_start %v log %gm before : !V, AMOUNT
      chunk.yield %o next %next, %nextz : !V, !S, !k
    })",
                                         "AMOUNT", amount)));
    check();
  }
}

TEST_F(Decay, OfProductsThatAreUsedInOtherWays) {
  // The products between pairs of tokens, elementwise, transposed, and as both operands.
  uniform("g", -0.3, 0);
  for (int64_t chunk : {16, 40}) {
    compile(write({chunk, 24, 24}, R"( (input %q: !inK, input %k: !inK, input %g: !inK, input %v: !inV, valid %n: index)
        -> (o: !inV, r: !inV) {
      %p = chunk.decay_dot %q, %k log %g : !K, !K, !K -> !P
      %two = arith.constant dense<2.0> : !P
      %pp = arith.mulf %p, %two : !P
      %pq = chunk.dot %pp, %p transpose_right : !P, !P -> !P
      %o = chunk.dot %pq, %v : !P, !V -> !V
      %r = chunk.dot %p, %v transpose_left : !P, !V -> !V
      chunk.yield %o, %r : !V, !V
    })"));
    check();
  }
}

//===----------------------------------------------------------------------===//
// Substitution and scans
//===----------------------------------------------------------------------===//

class Walks : public CpuKernelTest {};

TEST_F(Walks, Substitution) {
  // What stands on the diagonal and behind it is infinite, and not looked at.
  uniform("k", -0.3, 0.3);
  for (auto [chunk, K, V, type] : {std::tuple<int64_t, int64_t, int64_t, const char *>{16, 24, 40, "f32"},
                                   {64, 16, 16, "f32"},
                                   {21, 7, 5, "f64"}}) {
    SCOPED_TRACE(testing::Message() << "chunk " << chunk << " V " << V);
    compile(write({chunk, K, V, type, type}, R"( (input %k: !inK, input %v: !inV, valid %n: index)
          -> (o: !inV, r: !inV, t: !inV) {
      %p = chunk.dot %k, %k transpose_right : !K, !K -> !P
      %one = arith.constant dense<1.0> : !P
      %ones = chunk.causal %one strict : !P
      %unseen = arith.divf %one, %ones : !P
      %l = arith.mulf %p, %unseen : !P
      %o = chunk.solve %l, %v : !P, !V
      %scale = arith.constant dense<0.5> : !V
      %w = arith.mulf %v, %scale : !V
      %r = chunk.solve %l, %w transpose : !P, !V
      %i = chunk.inverse %l : !P
      %t = chunk.dot %i, %w transpose_left : !P, !V -> !V
      chunk.yield %o, %r, %t : !V, !V, !V
    })"));
    Problem problem;
    problem.tolerance = 5e-6;
    checkLengths({chunk, 2 * chunk + 5}, problem);
  }
}

TEST_F(Walks, ScansInEveryKind) {
  uniform("g", -0.3, 0);
  for (const char *type : {"f32", "f64"}) {
    compile(write({16, 24, 40, type, type},
                  replaced(R"( (input %x: !inK, input %g: !inK, state %L: tensor<1x24xTYPE> lowest,
        state %M: tensor<1x24xTYPE> lowest, state %A: tensor<1x24xTYPE>, valid %n: index)
        -> (a: !inK, b: !inK, c: !inK, d: !inK) {
      %a = chunk.scan logaddexp %x from %L : !K, tensor<1x24xTYPE>
      %b = chunk.scan max %x from %M log %g : !K, tensor<1x24xTYPE>, !K
      %c = chunk.scan add %x from %A log %g : !K, tensor<1x24xTYPE>, !K
      %d = chunk.delay %a by 1 tail %L : !K, tensor<1x24xTYPE> -> !K
      %nl = chunk.tail %a valid %n after %L : !K, tensor<1x24xTYPE>
      %nm = chunk.tail %b valid %n after %M : !K, tensor<1x24xTYPE>
      %na = chunk.tail %c valid %n after %A : !K, tensor<1x24xTYPE>
      chunk.yield %a, %b, %c, %d next %nl, %nm, %na
        : !K, !K, !K, !K, tensor<1x24xTYPE>, tensor<1x24xTYPE>, tensor<1x24xTYPE>
    })",
                           "TYPE", type)));
    checkLengths({1, 16, 37}, Problem());
    Problem empty;
    empty.initialState = false;
    checkLengths({5, 16, 37}, empty);
  }
}

//===----------------------------------------------------------------------===//
// Elementary functions
//===----------------------------------------------------------------------===//

class Functions : public CpuKernelTest {
protected:
  void checkFunction(const std::string &operation, double low, double high, double tolerance) {
    for (int64_t bits : {512, 256}) {
      if (bits > cpu::Processor::host().instructions().vectorBits)
        continue;
      for (const char *type : {"f32", "f64"}) {
        SCOPED_TRACE(testing::Message() << operation << " " << type << " " << bits);
        compile(write({16, 24, 24, type, type}, R"( (input %x: !inK, input %z: !inK, valid %n: index) -> (y: !inK) {
            %y = )" + operation + R"( : !K
            chunk.yield %y : !K
          })"),
                cpu::Instructions{bits});
        uniform("x", low, high);
        Problem problem;
        problem.tokens = 200;
        problem.tolerance = type == std::string("f64") ? 1e-15 : tolerance;
        check(problem);
        // Infinities, NaN, zeros and results that are denormal.
        static constexpr double special[] = {0.0,   -0.0,   infinity, -infinity, NAN, -88,  -100,  -104.5,
                                             1e-20, -1e-20, 89,       -1,        1,   3e38, -3e38, 1e-40};
        fill("x", [](size_t index) { return special[index % std::size(special)]; });
        check(problem);
      }
    }
  }
};

TEST_F(Functions, Exponentials) {
  checkFunction("math.exp %x", -20, 10, 1e-7);
  checkFunction("math.exp2 %x", -20, 10, 1e-7);
  // Each by itself: a large result does not hide the error of a small one.
  checkFunction("math.exp %x", -86, -85, 1e-7);
  checkFunction("math.exp %x", -0.1, 0.1, 1e-7);
  checkFunction("math.exp %x", -103, -88, 1e-2); // denormal
}

TEST_F(Functions, Logarithms) {
  checkFunction("math.log %x", 0, 2, 1e-7);
  checkFunction("math.log %x", 0.99, 1.01, 1e-7);
  checkFunction("math.log %x", 1e30, 1e38, 1e-7);
  checkFunction("math.log1p %x", -1, 1, 1e-7);
  checkFunction("math.log1p %x", -1e-6, 1e-6, 1e-7);
  checkFunction("math.log1p %x", 0, 1e6, 1e-7);
}

TEST_F(Functions, Others) {
  for (const char *operation :
       {"math.sqrt %x", "math.absf %x", "math.tanh %x", "math.floor %x", "math.roundeven %x", "arith.negf %x"})
    checkFunction(operation, -3, 3, 1e-7);
  checkFunction("math.rsqrt %x", 0.1, 10, 1e-7);
  checkFunction("math.tanh %x", -1e-3, 1e-3, 1e-7);
  for (const char *operation : {"arith.addf %x, %z", "arith.subf %x, %z", "arith.mulf %x, %z", "arith.divf %x, %z",
                                "arith.maximumf %x, %z", "arith.minimumf %x, %z"})
    checkFunction(operation, -3, 3, 1e-7);
}

TEST_F(Functions, OfTheLibrary) {
  // These are called one lane at a time; their special values are the library's.
  for (const char *operation : {"math.sin %x", "math.cos %x", "math.powf %x, %z", "arith.remf %x, %z"}) {
    SCOPED_TRACE(operation);
    compile(write({16, 24, 24}, std::string(R"( (input %x: !inK, input %z: !inK, valid %n: index) -> (y: !inK) {
        %y = )") + operation + R"( : !K
        chunk.yield %y : !K
      })"));
    uniform("x", 0.1, 100);
    uniform("z", 0.5, 2);
    check();
  }
}

TEST_F(Functions, ColumnsOfAParameter) {
  compile(write({16, 24, 24}, R"( (input %x: !inK, parameter %w: tensor<24x16xf32> of "w" column 0 columns 24,
                                   parameter %w$16: tensor<24x8xf32> of "w" column 16 columns 24, valid %n: index)
                                  -> (y: !inK, z: !inK) {
      %a = chunk.dot %x, %w : !K, tensor<24x16xf32> -> tensor<16x16xf32>
      %b = chunk.dot %x, %w$16 : !K, tensor<24x8xf32> -> tensor<16x8xf32>
      %y = chunk.concat %a, %b : tensor<16x16xf32>, tensor<16x8xf32> -> !K
      %s = chunk.dot %a, %w transpose_right : tensor<16x16xf32>, tensor<24x16xf32> -> !K
      %z = chunk.dot %b, %w$16 transpose_right add %s : tensor<16x8xf32>, tensor<24x8xf32> -> !K
      chunk.yield %y, %z : !K, !K
    })"));
  check();
}

TEST_F(Functions, Conditions) {
  compile(write({16, 24, 24}, R"( (input %x: !inK, input %a: !int, parameter %b: !k, valid %n: index) -> (y: !inK) {
      %zero = arith.constant dense<0.0> : !K
      %zerot = arith.constant dense<0.0> : !t
      %isPositive = arith.cmpf ogt, %x, %zero : !K
      %bs = chunk.broadcast %b along columns : !k to !K
      %isLess = arith.cmpf olt, %x, %bs : !K
      %isToken = arith.cmpf ogt, %a, %zerot : tensor<16xf32>
      %isTokens = chunk.broadcast %isToken along rows : tensor<16xi1> to tensor<16x24xi1>
      %both = arith.andi %isPositive, %isLess : tensor<16x24xi1>
      %any = arith.ori %both, %isTokens : tensor<16x24xi1>
      %y = arith.select %any, %x, %bs : tensor<16x24xi1>, !K
      chunk.yield %y : !K
    })"));
  check();
}

//===----------------------------------------------------------------------===//
// Shape and time
//===----------------------------------------------------------------------===//

TEST_F(Lengths, ColumnsAndConcatenation) {
  compile(write({16, 40, 33}, R"( (input %x: !inK, input %y: !inV, input %a: !int, parameter %b: !k, valid %n: index)
      -> (o: tensor<16x42xf32>, c: !int, m: !int) {
    %left = chunk.columns %x from 7 : !K -> tensor<16x21xf32>
    %right = chunk.columns %y from 12 : !V -> tensor<16x20xf32>
    %all = chunk.concat %left, %a, %right : tensor<16x21xf32>, !t, tensor<16x20xf32> -> tensor<16x42xf32>
    %bc = chunk.columns %b from 5 : !k -> tensor<21xf32>
    %bs = chunk.broadcast %bc along columns : tensor<21xf32> to tensor<16x21xf32>
    %lb = arith.mulf %left, %bs : tensor<16x21xf32>
    %m = chunk.reduce max %lb over columns : tensor<16x21xf32> -> !t
    %e = math.exp %all : tensor<16x42xf32>
    %c = chunk.columns %e from 23 : tensor<16x42xf32> -> !t
    %part = chunk.columns %e from 1 : tensor<16x42xf32> -> tensor<16x41xf32>
    %o = chunk.concat %part, %c : tensor<16x41xf32>, !t -> tensor<16x42xf32>
    chunk.yield %o, %c, %m : tensor<16x42xf32>, !t, !t
  })"));
  checkLengths(lengths);
}

TEST_F(Lengths, Softmax) {
  for (int64_t width : {16, 24, 200}) {
    SCOPED_TRACE(width);
    compile(write({16, width, width}, R"( (input %x: !inK, valid %n: index) -> (y: !inK) {
      %m = chunk.reduce max %x over columns : !K -> !t
      %ms = chunk.broadcast %m along rows : !t to !K
      %d = arith.subf %x, %ms : !K
      %e = math.exp %d : !K
      %s = chunk.reduce sum %e over columns : !K -> !t
      %ss = chunk.broadcast %s along rows : !t to !K
      %y = arith.divf %e, %ss : !K
      chunk.yield %y : !K
    })"));
    checkLengths(lengths);
  }
}

TEST_F(Lengths, ConvolutionDelayAndTail) {
  for (const char *memory : {"f32", "bf16"}) {
    SCOPED_TRACE(memory);
    compile(write({16, 40, 40, memory, "f32"}, replaced(R"( (input %x: !inK, parameter %taps: tensor<40x4xMEMORY>,
        state %tail: tensor<5x40xMEMORY>, valid %n: index) -> (y: !inK) {
      %x32 = arith.extf %x : !inK to !K
      %taps32 = arith.extf %taps : tensor<40x4xMEMORY> to tensor<40x4xf32>
      %tail32 = arith.extf %tail : tensor<5x40xMEMORY> to tensor<5x40xf32>
      %c = chunk.conv %x32 , %taps32 tail %tail32 : !K, tensor<40x4xf32>, tensor<5x40xf32> -> !K
      %d = chunk.delay %x32 by 5 tail %tail32 : !K, tensor<5x40xf32> -> !K
      %y = arith.subf %c, %d : !K
      %next = chunk.tail %x valid %n after %tail : !inK, tensor<5x40xMEMORY>
      %y16 = arith.truncf %y : !K to !inK
      chunk.yield %y16 next %next : !inK, tensor<5x40xMEMORY>
    })",
                                                        "MEMORY", memory)));
    Problem problem;
    problem.tolerance = memory == std::string("f32") ? 1e-6 : 3e-3;
    checkLengths(lengths, problem);
    checkLengths({2, 3, 4}, problem);
  }
}

TEST_F(Lengths, TablesAndParameters) {
  compile(R"(
    chunk.table @slope {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %c = arith.constant 0.25 : f64
      %x = arith.mulf %h, %c : f64
      %y = arith.addf %x, %d : f64
      chunk.result %y : f64
    }
    chunk.table @wave period 7 {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %x = arith.addf %t, %d : f64
      %y = math.sin %x : f64
      chunk.result %y : f64
    }
    chunk.table @angle varying {
    ^bb0(%t: f64, %h: f64, %d: f64):
      %y = math.cos %t : f64
      chunk.result %y : f64
    }
  )" + write({16, 24, 40},
             R"( (input %x: !inK, table %slope: !v, table %wave: !V, table %angle: !t, parameter %w: !S group 2,
        parameter %b: !v group 2147483647, valid %n: index) -> (y: !inV) {
      %e = math.exp %w : !S
      %xw = chunk.dot %x, %e : !K, !S -> !V
      %bs = chunk.broadcast %b along columns : !v to !V
      %slopes = chunk.broadcast %slope along columns : !v to !V
      %angles = chunk.broadcast %angle along rows : !t to !V
      %0 = arith.addf %xw, %bs : !V
      %1 = arith.mulf %0, %slopes : !V
      %2 = arith.mulf %wave, %angles : !V
      %y = arith.addf %1, %2 : !V
      chunk.yield %y : !V
    })"));
  Problem problem;
  problem.heads = 4;
  checkLengths(lengths, problem);
  problem.positions = {5, 100};
  checkLengths(lengths, problem);
  problem.offsets = {0, 17, 17, 20};
  problem.positions = {0, 3, 50};
  check(problem);
}

TEST_F(Lengths, StatesThatReadEachOther) {
  // Each of these updates must see the values before all of them, also where a product reads the whole state.
  compile(
      write({16, 24, 24}, R"( (input %x: !inK, state %A: !S, state %B: !S, state %D: !S, valid %n: index) -> (y: !inK) {
      %h = arith.constant dense<0.03> : !S
      %BA = chunk.dot %B, %A : !S, !S -> !S
      %nextA = arith.mulf %BA, %h : !S
      %nextB = arith.mulf %A, %h : !S
      %y = chunk.dot %x, %B : !K, !S -> !K
      %AD = chunk.dot %A, %D transpose_right : !S, !S -> !S
      %nextD = arith.mulf %AD, %h : !S
      chunk.yield %y next %nextA, %nextB, %nextD : !K, !S, !S, !S
    })"));
  checkLengths(lengths);
}

TEST_F(Lengths, ProductsInEveryPlace) {
  // Transposed either way, of two products in one expression, added to each other, of a constant, and of causal
  // factors.
  compile(
      write({32, 24, 40}, R"( (input %x: !inK, input %y: !inV, state %S: !S, valid %n: index) -> (a: !inV, b: !inK) {
      %ones = arith.constant dense<1.0> : !P
      %xs = chunk.dot %x, %S : !K, !S -> !V
      %xs2 = arith.addf %xs, %xs : !V
      %yT = chunk.dot %y, %S transpose_right : !V, !S -> !K
      %P0 = chunk.dot %x, %x transpose_right : !K, !K -> !P
      %P = chunk.causal %P0 strict : !P
      %PT = chunk.dot %P, %y transpose_left add %xs2 : !P, !V -> !V
      %1 = chunk.dot %ones, %y : !P, !V -> !V
      %prod = arith.mulf %1, %PT : !V
      %PP = chunk.dot %P, %P : !P, !P -> !P
      %b0 = chunk.dot %PP, %x add %yT : !P, !K -> !K
      %b1 = chunk.dot %P, %x transpose_left add %b0 : !P, !K -> !K
      %SS = chunk.dot %S, %S transpose_left : !S, !S -> tensor<40x40xf32>
      %a = chunk.dot %prod, %SS : !V, tensor<40x40xf32> -> !V
      chunk.yield %a, %b1 next %S : !V, !K, !S
    })"));
  checkLengths(lengths);
}

TEST_F(Lengths, WhatIsStoredTransposedIsAlsoReadByRows) {
  // %k is stored by columns for its product with %x and computed again for the state, when %x2, whose buffer has the
  // size of many others, is long done with.
  compile(write({16, 16, 16}, R"( (input %x: !inK, input %y: !inV, state %S: !S, valid %n: index) -> (a: !inV) {
      %two = arith.constant dense<2.0> : !K
      %xm = chunk.mask %x valid %n : !K
      %x0 = chunk.dot %xm, %xm transpose_right : !K, !K -> !P
      %x1 = arith.maximumf %x0, %two : !P
      %x2 = chunk.mask %x1 valid %n : !P
      %xx = chunk.dot %x2, %x2 : !P, !P -> !P
      %k = arith.mulf %x2, %xm : !K
      %p = chunk.dot %xx, %k transpose_right : !P, !K -> !P
      %q = chunk.dot %p, %y : !P, !V -> !V
      %r = chunk.dot %p, %q : !P, !V -> !V
      %a = chunk.dot %q, %r : !V, !V -> !V
      %ks = arith.mulf %k, %two : !K
      %h = arith.constant dense<0.03> : !S
      %Sh = arith.mulf %S, %h : !S
      %next = chunk.dot %ks, %y transpose_left add %Sh : !K, !V -> !S
      chunk.yield %a next %next : !V, !S
    })"));
  checkLengths(lengths);
}

TEST_F(CpuKernelTest, RefusesWhatItCannotLower) {
  EXPECT_NE(refusal(write({16, 24, 24}, R"( (input %x: !inK, valid %n: index) -> (y: !inK) {
      %c = arith.constant dense<[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0]> : !t
      %cs = chunk.broadcast %c along rows : !t to !K
      %y = arith.addf %x, %cs : !K
      chunk.yield %y : !K
    })"))
                .find("only constants whose entries are all the same are supported"),
            std::string::npos);
}

} // namespace
} // namespace stretto
