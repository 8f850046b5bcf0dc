"""stretto-opt refuses text that MLIR's parser cannot bear, says in which line, and goes on with the next part.

RUN: %python %s
"""

import subprocess


def opt(text: str, *options: str) -> tuple[int, str, str]:
    result = subprocess.run(["stretto-opt", *options], input=text, capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


def declaration(body: str) -> str:
    return f"stretto.variant @f(%x: tensor<f64, #stretto.row<()>>) -> () {{\n{body}\nstretto.yield\n}}"


DEEP = "line 2 is nested more than 200 deep"
LONG = "line 1 is in an expression of more than 1000 operators"
BODY = "^bb0(%t: f64, %h: f64, %d: f64):\nstretto.yield %t : f64"
TABLE = f"%w = stretto.table {{\n{BODY}\n}} : tensor<f64, #stretto.row<()>>"
FORWARD = TABLE.replace("yield %t", "yield %y")
REFUSED = {
    "\n" + "module {" * 5000 + "}" * 5000: DEEP,
    "\nmodule attributes {a = " + "[" * 5000 + "]" * 5000 + "} {}": DEEP,
    "\nfunc.func private @f(" + "tuple<" * 5000 + "f64" + ">" * 5000 + ")": DEEP,
    # A comparison closes no bracket, nor does what stands in a string or a comment.
    "\n" + "module attributes {a = affine_set<(d0) : (d0 >= 0)>} {" * 300: DEEP,
    "\n" + 'module attributes {a = "}"} { // }\n' * 300: "is nested more than 200 deep",
    "#map = affine_map<(d0) -> (" + "-" * 100000 + "d0)>": LONG,
    "#map = affine_map<(d0) -> (" + "d0 + " * 100000 + "d0)>": LONG,
    # Forward references, on which MLIR's parser would leave dangling pointers.
    declaration("%y = arith.negf %z : f64"): "line 2 uses %z before its definition",
    declaration(FORWARD + TABLE.replace("%t", "%y")): "line 4 uses %y before its definition",
    declaration(TABLE + "\n%y = arith.negf %t : f64"): "line 6 uses %t before its definition",
    declaration(TABLE + "\n" + TABLE): "line 6 defines %w again",
    declaration("scf.for %i = %x to %x step %x {}"): "line 2 holds scf.for, which declarations do not have",
    declaration("%t = stretto.position\n^next:"): "line 3 holds a block other than the first of a region",
    declaration("stretto.variant @g() -> () {}"): "line 2 holds a declaration inside of a declaration",
    '"stretto.variant"() <{a = {}}> ({\n^bb0(%x: f64):\n"a"(%y) : (f64) -> ()': "line 3 uses %y before its definition",
}
for text, message in REFUSED.items():
    status, output, error = opt(text)
    assert status == 1 and message in error, (text[:200], status, error[:500])

ACCEPTED = [
    "module {" * 150 + "}" * 150,
    "func.func @f() {\n" + "".join(f"%c{i} = arith.constant -1.0 : f64\n" for i in range(2000)) + "return }",
    # Functions may have loops and blocks, and regions may use a name again that an inner region used.
    "func.func @f(%a: index) {\nscf.for %i = %a to %a step %a {}\nscf.for %i = %a to %a step %a {}\nreturn }",
    declaration(TABLE + "\n" + TABLE.replace("%w", "%v")),
    declaration(TABLE) + "\n" + declaration(TABLE).replace("@f", "@g"),
]
for text in ACCEPTED:
    status, _, error = opt(text)
    assert status == 0, (text[:200], error[:500])

# A part that is refused does not keep the next from being read, nor move its lines.
parts = ["module {}", "\n" + "module {" * 300, "\nmodule @kept {}", "\n\nmodule {"]
status, output, error = opt("\n// -----".join(parts), "--split-input-file")
assert status == 1 and "module @kept" in output, output
assert "line 3 is nested" in error and "<stdin>:8:7: error: expected operation name" in error, error
