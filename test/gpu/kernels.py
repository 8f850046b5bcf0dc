"""Chunk kernels for tests of generated PTX: their IR by name, their inputs, and what they must compute.

A kernel's name is that of a family and its sizes, as in `gla_bf16_k64_v64`; `family` finds the former. The references
are loops over tokens in fp64 that share nothing with the compiler.
"""

import ast
import dataclasses
import itertools

import numpy as np

CHUNK = 64


# ------------------------------------------------------------------------------------------------ chunk IR
class Body:
    """Text of a kernel's body. Values are `(name, type)`; every operation is written where it is called."""

    def __init__(self, element, chunk=CHUNK):
        self.element, self.chunk, self.lines, self.count = element, chunk, [], 0

    def emit(self, text, kind):
        self.count += 1
        name = f"%x{self.count}"
        self.lines.append(f"  {name} = {text}")
        return name, kind

    def tile(self, *shape, element="f32"):
        return f"tensor<{'x'.join(map(str, (*shape, element)))}>"

    def wide(self, value):
        name, kind = value
        if kind.endswith("xf32>") or kind == "tensor<f32>":
            return value
        target = kind.replace(self.element, "f32")
        return self.emit(f"arith.extf {name} : {kind} to {target}", target)

    def narrow(self, value):
        name, kind = value
        if self.element == "f32":
            return value
        target = kind.replace("f32", self.element)
        return self.emit(f"arith.truncf {name} : {kind} to {target}", target)

    def elementwise(self, op, *values):
        kind = values[0][1]
        return self.emit(f"{op} {', '.join(v[0] for v in values)} : {kind}", kind)

    def constant(self, number, kind):
        return self.emit(f"arith.constant dense<{number:e}> : {kind}", kind)

    def dot(self, a, b, result, left=False, right=False, add=None):
        text = f"chunk.dot {a[0]}, {b[0]}"
        text += " transpose_left" * left + " transpose_right" * right + (f" add {add[0]}" if add else "")
        return self.emit(f"{text} : {a[1]}, {b[1]} -> {result}", result)

    def decay(self, op, value, amount, form="log", result=None, suffix=""):
        target = result or value[-1][1]
        operands = ", ".join(v[0] for v in value)
        kinds = ", ".join(v[1] for v in (*value, amount))
        arrow = f" -> {result}" if result else ""
        return self.emit(f"chunk.{op} {operands} {form} {amount[0]}{suffix} : {kinds}{arrow}", target)


def kernel(name, arguments, outputs, body, yields, states, slices=1, chunk=CHUNK, tables=()):
    """The text of a `chunk.kernel`. Arguments and outputs are texts, yields and states are values."""
    arguments = ",\n    ".join((*arguments, "valid %n: index"))
    slices = f" slices {slices}" if slices > 1 else ""
    lines = "\n".join(body.lines)
    types = ", ".join(v[1] for v in (*yields, *states))
    then = f" next {', '.join(v[0] for v in states)}" if states else ""
    end = f"  chunk.yield {', '.join(v[0] for v in yields)}{then} : {types}"
    return (
        "\n".join(tables)
        + f"\nchunk.kernel @{name} chunk {chunk}{slices} ({arguments})\n    -> ({', '.join(outputs)}) {{\n"
        + f"{lines}\n{end}\n}}\n"
    )


def recurrent(
    name,
    element,
    K,
    V,
    decay=None,
    form="log",
    group=1,
    gate=None,
    slices=1,
    normalize=False,
    before=False,
    chunk=CHUNK,
):
    """Linear attention with no decay, one per head ("scalar") or one per channel ("channel")."""
    b = Body(element, chunk)
    C, gate = chunk, gate or element
    q = ("%q", b.tile(C, K, element=element))
    k = ("%k", b.tile(C, K, element=element))
    v = ("%v", b.tile(C, V, element=element))
    S, z = ("%S", b.tile(K, V)), ("%z", b.tile(K))
    g = None
    shared = f" group {group}" if group > 1 else ""
    sliced = " sliced" if slices > 1 else ""
    arguments = [f"input {q[0]}: {q[1]}", f"input {k[0]}: {k[1]}{shared}", f"input {v[0]}: {v[1]}{shared}{sliced}"]
    if decay:
        raw = ("%g", b.tile(*((C,) if decay == "scalar" else (C, K)), element=gate))
        arguments.append(f"input {raw[0]}: {raw[1]}{shared}")
        g = raw
        if gate != "f32":
            target = raw[1].replace(gate, "f32")
            g = b.emit(f"arith.extf {raw[0]} : {raw[1]} to {target}", target)
        if form == "factor":
            g = b.emit(f"chunk.mask {g[0]} valid %n else 1.0 : {g[1]}", g[1])
    entry = f' of "S" column 0 columns {V + 1}' if normalize else ""
    arguments.append(f"state %S: {S[1]}{shared}{sliced}{entry}")
    if normalize:
        arguments.append(f'state %z: {z[1]}{shared} of "S" column {V} columns {V + 1}')
    square, out = b.tile(C, C), b.tile(C, V)
    q32, k32, v32 = b.wide(q), b.wide(k), b.wide(v)
    suffix = " before" if before else ""
    if g:
        p = b.decay("decay_dot", (q32, k32), g, form, square, suffix)
        fromStart = b.decay("decay_from_start", (q32,), g, form, suffix=suffix)
        toEnd = b.decay("decay_to_end", (k32,), g, form)
        decayed = b.emit(f"chunk.decay_state %S {form} {g[0]} along rows : {S[1]}, {g[1]}", S[1])
    else:
        p = b.dot(q32, k32, square, right=True)
        p = b.emit(f"chunk.causal {p[0]} : {square}", square)
        fromStart, toEnd, decayed = q32, k32, S
    o = b.dot(p, v32, out)
    o = b.dot(fromStart, S, out, add=o)
    S1 = b.dot(toEnd, v32, S[1], left=True, add=decayed)
    states = [S1]
    if normalize:
        column = b.tile(C)
        inner = b.emit(f"chunk.reduce sum {p[0]} over columns : {p[1]} -> {column}", column)
        zs = b.emit(f"chunk.broadcast %z along columns : {z[1]} to {q32[1]}", q32[1])
        product = b.elementwise("arith.mulf", fromStart, zs)
        outer = b.emit(f"chunk.reduce sum {product[0]} over columns : {product[1]} -> {column}", column)
        total = b.elementwise("arith.addf", inner, outer)
        eps = b.constant(1e-10, column)
        total = b.elementwise("arith.addf", total, eps)
        total = b.emit(f"chunk.broadcast {total[0]} along rows : {column} to {out}", out)
        o = b.elementwise("arith.divf", o, total)
        keys = b.emit(f"chunk.reduce sum {toEnd[0]} over rows : {toEnd[1]} -> {z[1]}", z[1])
        z0 = z
        if g:
            z0 = b.emit(f"chunk.decay_state %z {form} {g[0]} along rows : {z[1]}, {g[1]}", z[1])
        states.append(b.elementwise("arith.addf", z0, keys))
    o = b.narrow(o)
    return kernel(name, arguments, [f"o: {o[1]}{sliced}"], b, [o], states, slices, chunk)


def rowmaps(name, element, K, V, chunk=CHUNK):
    """Every row map: softmax features of a convolution, tables, columns and their join, a delay and a parameter."""
    b = Body(element, chunk)
    C, F = chunk, K // 2
    x = ("%x", b.tile(C, K, element=element))
    w = ("%w", b.tile(K, F, element=element))
    arguments = [
        f"input %x: {x[1]}",
        f"parameter %w: {w[1]}",
        f"parameter %taps: {b.tile(K, 4)}",
        f"parameter %bias: {b.tile(F)}",
        f"table %angles: {b.tile(C, K)}",
        "table %slope: tensor<f32>",
        f"state %tail: {b.tile(3, K, element=element)}",
        f"state %late: {b.tile(2, K, element=element)}",
    ]
    tables = [
        "chunk.table @angles period 5 {\n^bb0(%t: f64, %h: f64, %d: f64):\n  chunk.result %t : f64\n}",
        "chunk.table @slope {\n^bb0(%t: f64, %h: f64, %d: f64):\n  chunk.result %h : f64\n}",
    ]
    tile, half, column = b.tile(C, K), b.tile(C, F), b.tile(C)
    x32 = b.wide(x)
    tail = b.wide(("%tail", b.tile(3, K, element=element)))
    late = b.wide(("%late", b.tile(2, K, element=element)))
    y = b.emit(f"chunk.conv {x32[0]}, %taps tail {tail[0]} : {tile}, {b.tile(K, 4)}, {tail[1]} -> {tile}", tile)
    y16 = b.narrow(y)
    z = b.dot(y16, w, half)
    bias = b.emit(f"chunk.broadcast %bias along columns : {b.tile(F)} to {half}", half)
    z = b.elementwise("arith.addf", z, bias)
    power = b.elementwise("math.exp", b.elementwise("arith.negf", b.elementwise("math.absf", z)))
    z = b.elementwise("arith.addf", z, b.elementwise("math.log1p", power))

    def softmax(row):
        m = b.emit(f"chunk.reduce max {row[0]} over columns : {half} -> {column}", column)
        m = b.emit(f"chunk.broadcast {m[0]} along rows : {column} to {half}", half)
        e = b.elementwise("math.exp", b.elementwise("arith.subf", row, m))
        s = b.emit(f"chunk.reduce sum {e[0]} over columns : {half} -> {column}", column)
        s = b.emit(f"chunk.broadcast {s[0]} along rows : {column} to {half}", half)
        return b.elementwise("arith.divf", e, s)

    negative = b.elementwise("arith.negf", z)
    features = (softmax(z), softmax(negative))
    joined = b.emit(f"chunk.concat {features[0][0]}, {features[1][0]} : {half}, {half} -> {tile}", tile)
    floor = b.constant(1e-12, tile)
    joined = b.elementwise("arith.maximumf", joined, floor)
    # Rotated by a table, with the halves exchanged.
    first = b.emit(f"chunk.columns {x32[0]} from 0 : {tile} -> {half}", half)
    second = b.emit(f"chunk.columns {x32[0]} from {F} : {tile} -> {half}", half)
    second = b.elementwise("arith.negf", second)
    swapped = b.emit(f"chunk.concat {second[0]}, {first[0]} : {half}, {half} -> {tile}", tile)
    turned = b.elementwise("arith.mulf", swapped, ("%angles", tile))
    slope = b.emit(f"chunk.broadcast %slope along rows : tensor<f32> to {tile}", tile)
    turned = b.elementwise("arith.mulf", turned, slope)
    before = b.emit(f"chunk.delay {x32[0]} by 1 tail {late[0]} : {tile}, {late[1]}", tile)
    o = b.elementwise("arith.addf", b.elementwise("arith.addf", joined, turned), before)
    o = b.narrow(o)
    one = b.emit(f"chunk.columns {x32[0]} from 1 : {tile} -> {column}", column)
    one = b.narrow(one)
    nextTail = b.emit(
        f"chunk.tail %x valid %n after %tail : {x[1]}, {b.tile(3, K, element=element)}", b.tile(3, K, element=element)
    )
    nextLate = b.emit(
        f"chunk.tail %x valid %n after %late : {x[1]}, {b.tile(2, K, element=element)}", b.tile(2, K, element=element)
    )
    return kernel(
        name, arguments, [f"o: {o[1]}", f"c: {one[1]}"], b, [o, one], [nextTail, nextLate], chunk=chunk, tables=tables
    )


# Functions of a position `t`, a head `h` and a channel `d`: in the IR, by the names of its operations, and in numpy.
# Angles and positions are large, as they become in long sequences.
TABLES = {
    "exp": ("math.exp", "(d - t) / 8", np.exp),
    "exp2": ("math.exp2", "(d - t) / 8", np.exp2),
    "log": ("math.log", "t + d / 8 + h / 4 + 1 / 16", np.log),
    "log1p": ("math.log1p", "(d + 1) / (t * t + 1)", np.log1p),
    "sqrt": ("math.sqrt", "t + d", np.sqrt),
    "rsqrt": ("math.rsqrt", "t + d + 1", lambda x: x**-0.5),
    "tanh": ("math.tanh", "(t - 30) / (d + 4)", np.tanh),
    "sin": ("math.sin", "(t + 100000) * (d + 1) / 7", np.sin),
    "cos": ("math.cos", "(t + 100000) * (d - 40) / 7", np.cos),
    "floor": ("math.floor", "t * (d - 8) / 7", np.floor),
    "round": ("math.roundeven", "t * (d - 8) / 4", np.round),
    "power": ("math.powf", ("(d + 1) / (t + 1)", "(d - h) / 8"), np.power),
    "oddpower": ("math.powf", ("0 - (d + 1) / (t + 1)", "3 + t * 0"), np.power),
    "remainder": ("arith.remf", ("t + 100000", "7.3 + d / 4"), np.fmod),
    "quotient": ("arith.divf", ("t", "d + 3"), np.divide),
}


def table_body(operation, expressions):
    """The body of a table: an operation on expressions, which Python parses and the IR spells out."""
    lines, operations = [], {ast.Add: "addf", ast.Sub: "subf", ast.Mult: "mulf", ast.Div: "divf"}

    def emit(text):
        lines.append(f"  %{len(lines)} = {text} : f64")
        return f"%{len(lines) - 1}"

    def value(node):
        if isinstance(node, ast.Name):
            return f"%{node.id}"
        if isinstance(node, ast.Constant):
            return emit(f"arith.constant {float(node.value):e}")
        return emit(f"arith.{operations[type(node.op)]} {value(node.left)}, {value(node.right)}")

    operands = [value(ast.parse(text, mode="eval").body) for text in expressions]
    result = emit(f"{operation} {', '.join(operands)}")
    return "\n".join(["^bb0(%t: f64, %h: f64, %d: f64):", *lines, f"  chunk.result {result} : f64"])


def expressions_of(name):
    expressions = TABLES[name][1]
    return expressions if isinstance(expressions, tuple) else (expressions,)


def computed(name, element, K, V, chunk=CHUNK):
    """Tables that the kernel computes at positions which only the device knows: an output for each function."""
    b = Body(element, chunk)
    tile = b.tile(chunk, K)
    arguments = [f"input %x: {b.tile(chunk, K, element=element)}", *(f"table %{table}: {tile}" for table in TABLES)]
    tables = [
        f"chunk.table @{table} varying {{\n{table_body(operation, expressions_of(table))}\n}}"
        for table, (operation, _, _) in TABLES.items()
    ]
    x = b.elementwise("arith.mulf", b.wide(("%x", b.tile(chunk, K, element=element))), b.constant(0.0, tile))
    sums = [b.elementwise("arith.addf", x, (f"%{table}", tile)) for table in TABLES]
    return kernel(name, arguments, [f"{t}_o: {tile}" for t in TABLES], b, sums, [], chunk=chunk, tables=tables)


def reference_computed(x, states):
    T, K = x["x"].shape
    t, d = np.meshgrid(x["position"] + np.arange(T, dtype=float), np.arange(K, dtype=float), indexing="ij")
    names = {"t": t, "d": d, "h": float(x["head"])}
    out = {}
    for table, (_, _, function) in TABLES.items():
        values = [eval(text, {}, names) * np.ones((T, K)) for text in expressions_of(table)]
        out[f"{table}_o"] = function(*values)
    return out, {}


def slots(name, element, K, V, form="log", chunk=CHUNK):
    """Two states whose slots decay, with a softmax between their reads."""
    b = Body(element, chunk)
    C, N = chunk, min(K, 64)
    q, k = (("%" + x, b.tile(C, K, element=element)) for x in "qk")
    v, s = ("%v", b.tile(C, V, element=element)), ("%s", b.tile(C, N, element=element))
    g, keys, values = ("%g", b.tile(C, N)), ("%keys", b.tile(N, K)), ("%values", b.tile(N, V))
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v, s, g)]
    arguments += [f"state {x[0]}: {x[1]}" for x in (keys, values)]
    square, slot, column = b.tile(C, C), b.tile(C, N), b.tile(C)
    q32, k32, v32, s32 = (b.wide(x) for x in (q, k, v, s))
    if form == "factor":
        g = b.emit(f"chunk.mask %g valid %n else 1.0 : {g[1]}", g[1])
    w = b.dot(q32, k32, square, right=True)
    z = b.dot(q32, keys, slot, right=True)
    z = b.decay("decay_from_start", (z,), g, form)
    z = b.decay("decay_mix", (w, s32), g, form, slot, f" add {z[0]}")
    m = b.emit(f"chunk.reduce max {z[0]} over columns : {slot} -> {column}", column)
    m = b.emit(f"chunk.broadcast {m[0]} along rows : {column} to {slot}", slot)
    e = b.elementwise("math.exp", b.elementwise("arith.subf", z, m))
    t = b.emit(f"chunk.reduce sum {e[0]} over columns : {slot} -> {column}", column)
    t = b.emit(f"chunk.broadcast {t[0]} along rows : {column} to {slot}", slot)
    p = b.elementwise("arith.divf", e, t)
    inner = b.decay("decay_dot", (p, s32), g, form, square)
    fromStart = b.decay("decay_from_start", (p,), g, form)
    o = b.dot(inner, v32, b.tile(C, V))
    o = b.narrow(b.dot(fromStart, values, b.tile(C, V), add=o))
    toEnd = b.decay("decay_to_end", (s32,), g, form)
    states = []
    for state, rows in ((keys, k32), (values, v32)):
        kept = b.emit(f"chunk.decay_state {state[0]} {form} {g[0]} along rows : {state[1]}, {g[1]}", state[1])
        states.append(b.dot(toEnd, rows, state[1], left=True, add=kept))
    return kernel(name, arguments, [f"o: {o[1]}"], b, [o], states, chunk=chunk)


def mixes(name, element, K, V, form="log", chunk=CHUNK):
    """Every form of `decay_mix`, with weights that are infinite where nothing looks at them."""
    b = Body(element, chunk)
    C = chunk
    q, k = (("%" + x, b.tile(C, K, element=element)) for x in "qk")
    v, g = ("%v", b.tile(C, V, element=element)), ("%g", b.tile(C, V))
    square, tile = b.tile(C, C), b.tile(C, V)
    q32, k32, v32 = (b.wide(x) for x in (q, k, v))
    w = b.dot(q32, k32, square, right=True)
    one = b.constant(1, square)
    outputs = []
    for strict, transpose in itertools.product((False, True), repeat=2):
        ones = b.emit(f"chunk.causal {one[0]}{' strict' * strict} : {square}", square)
        poison = b.elementwise("arith.mulf", w, b.elementwise("arith.divf", one, ones))
        flags = " before" * strict + " transpose" * transpose
        outputs.append(b.narrow(b.decay("decay_mix", (poison, v32), g, form, tile, flags)))
    names = ("forward", "transposed", "before", "beforetransposed")
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v, g)]
    return kernel(
        name, arguments, [f"{n}: {o[1]}" for n, o in zip(names, outputs, strict=True)], b, outputs, [], chunk=chunk
    )


def halves(name, element, K, V, chunk=CHUNK):
    """Rows before the middles of blocks, rows of both halves beside each other, and sums over pairs that meet there."""
    b = Body(element, chunk)
    q, k, v = (("%" + x, b.tile(chunk, K, element=element)) for x in "qkv")
    square, rows = b.tile(chunk, chunk), b.tile(chunk, K)
    q32, k32, v32 = (b.wide(x) for x in (q, k, v))
    tripled = b.elementwise("arith.addf", b.elementwise("arith.addf", k32, k32), k32)
    weights, outputs = b.dot(q32, k32, square, right=True), {}
    one = b.constant(1, square)
    ones = b.emit(f"chunk.causal {one[0]} : {square}", square)
    poison = b.elementwise("arith.mulf", weights, b.elementwise("arith.divf", one, ones))
    for block in (2**bit for bit in range(chunk.bit_length())):
        zero = b.constant(0, square)
        pairs = b.emit(f"chunk.meet {poison[0]} else {zero[0]} block {block} : {square}", square)
        outputs[f"pairs{block}"] = b.dot(pairs, v32, rows)
        if block > 1:
            # Rows in shared memory as they came, rows that are made, and those before the middle.
            total = b.emit(f"chunk.middle {tripled[0]} block {block} : {rows} -> {rows}", rows)
            for x, y in ((q, k), (q32, tripled)):
                joined = b.emit(f"chunk.join_halves {x[0]}, {y[0]} block {block} : {x[1]} -> {x[1]}", x[1])
                total = b.elementwise("arith.addf", total, b.wide(joined))
            outputs[f"rows{block}"] = total
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v)]
    narrow = {n: b.narrow(o) for n, o in outputs.items()}
    return kernel(name, arguments, [f"{n}: {o[1]}" for n, o in narrow.items()], b, [*narrow.values()], [], chunk=chunk)


def delta(name, element, K, V, decay="scalar", chunk=CHUNK):
    """A gated delta rule: the rows that are written are solved for."""
    b = Body(element, chunk)
    C = chunk
    q, k = (("%" + x, b.tile(C, K, element=element)) for x in "qk")
    v, beta, S = ("%v", b.tile(C, V, element=element)), ("%b", b.tile(C)), ("%S", b.tile(K, V))
    g = ("%g", b.tile(C) if decay == "scalar" else b.tile(C, K))
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v, beta, g)] + [f"state %S: {S[1]}"]
    square, tile = b.tile(C, C), b.tile(C, V)
    q32, k32, v32 = (b.wide(x) for x in (q, k, v))

    def times_beta(x):
        return b.elementwise("arith.mulf", b.emit(f"chunk.broadcast %b along rows : {beta[1]} to {x[1]}", x[1]), x)

    matrix = times_beta(b.decay("decay_dot", (k32, k32), g, "log", square))
    known = b.dot(b.decay("decay_from_start", (k32,), g), S, tile)
    rows = times_beta(b.elementwise("arith.subf", v32, known))
    rows = b.emit(f"chunk.solve {matrix[0]}, {rows[0]} : {square}, {tile}", tile)
    o = b.dot(b.decay("decay_dot", (q32, k32), g, "log", square), rows, tile)
    o = b.narrow(b.dot(b.decay("decay_from_start", (q32,), g), S, tile, add=o))
    kept = b.emit(f"chunk.decay_state %S log %g along rows : {S[1]}, {g[1]}", S[1])
    S1 = b.dot(b.decay("decay_to_end", (k32,), g), rows, S[1], left=True, add=kept)
    return kernel(name, arguments, [f"o: {o[1]}"], b, [o], [S1], chunk=chunk)


def scans(name, element, K, V, chunk=CHUNK):
    """Scans in every kind, the first without decay, a system solved from its last row up, and the inverse of another,
    of which only what is below the diagonal counts.
    """
    b = Body(element, chunk)
    C = chunk
    x, g, v = ("%x", b.tile(C, K, element=element)), ("%g", b.tile(C, K)), ("%v", b.tile(C, V, element=element))
    row, tile, square = b.tile(1, K), b.tile(C, K), b.tile(C, C)
    x32, v32 = b.wide(x), b.wide(v)
    outputs, states = [], []
    for kind, state in (("logaddexp", "%L"), ("max", "%M"), ("add", "%A")):
        log = " log %g" if kind != "logaddexp" else ""
        more = f", {tile}" if log else ""
        y = b.emit(f"chunk.scan {kind} {x32[0]} from {state}{log} : {tile}, {row}{more}", tile)
        outputs.append(b.narrow(y))
        states.append(b.emit(f"chunk.tail {y[0]} valid %n after {state} : {tile}, {row}", row))
    small = b.elementwise("arith.mulf", b.dot(x32, x32, square, right=True), b.constant(0.02 / K, square))
    outputs.append(b.narrow(b.emit(f"chunk.solve {small[0]}, {v32[0]} transpose : {square}, {v32[1]}", v32[1])))
    inverse = b.emit(f"chunk.inverse {small[0]} : {square}", square)
    outputs.append(b.narrow(b.dot(inverse, v32, v32[1])))
    arguments = [f"input {y[0]}: {y[1]}" for y in (x, g, v)]
    arguments += [f"state %L: {row} lowest", f"state %M: {row} lowest", f"state %A: {row}"]
    results = ("logaddexp", "max", "add", "solved", "inverted")
    names = [f"{n}: {o[1]}" for n, o in zip(results, outputs, strict=True)]
    return kernel(name, arguments, names, b, outputs, states, chunk=chunk)


# ------------------------------------------------------------------------------------------------ single tokens
def along_rows(b, row, matrix):
    """The numbers of a row of one token, one for each row of a matrix."""
    vector = b.tile(int(row[1].split("x")[1]))
    numbers = b.emit(f"chunk.reduce sum {row[0]} over rows : {row[1]} -> {vector}", vector)
    return b.emit(f"chunk.broadcast {numbers[0]} along rows : {vector} to {matrix}", matrix)


def along_columns(b, row, matrix):
    vector = b.tile(int(row[1].split("x")[1]))
    numbers = b.emit(f"chunk.reduce sum {row[0]} over rows : {row[1]} -> {vector}", vector)
    return b.emit(f"chunk.broadcast {numbers[0]} along columns : {vector} to {matrix}", matrix)


def read_step(b, matrix, weights, over, width):
    """The sum of a matrix's weighted rows or columns, as a row of one token."""
    vector, row = b.tile(width), b.tile(1, width)
    product = b.elementwise("arith.mulf", matrix, weights)
    total = b.emit(f"chunk.reduce sum {product[0]} over {over} : {product[1]} -> {vector}", vector)
    return b.emit(f"chunk.broadcast {total[0]} along columns : {vector} to {row}", row)


def write_step(b, state, keys, values, amount=None):
    if amount:
        state = b.emit(f"chunk.decay_state {state[0]} log {amount[0]} along rows : {state[1]}, {amount[1]}", state[1])
    return b.elementwise("arith.addf", b.elementwise("arith.mulf", keys, values), state)


def step(name, element, K, V, decay=None, group=1, slices=1, normalize=False, delta=False, chunk=1):
    """One token of linear attention, decayed or corrected by what the state recalls."""
    b = Body(element, chunk)
    q, k = (("%" + x, b.tile(1, K, element=element)) for x in "qk")
    v, S, z = ("%v", b.tile(1, V, element=element)), ("%S", b.tile(K, V)), ("%z", b.tile(K))
    shared, sliced = f" group {group}" * (group > 1), " sliced" * (slices > 1)
    arguments = [f"input {q[0]}: {q[1]}", f"input {k[0]}: {k[1]}{shared}", f"input {v[0]}: {v[1]}{shared}{sliced}"]
    g = None
    if decay:
        g = ("%g", b.tile(1) if decay == "scalar" else b.tile(1, K))
        arguments.append(f"input %g: {g[1]}{shared}")
    if delta:
        arguments.append(f"input %b: {b.tile(1)}{shared}")
    entry = f' of "S" column 0 columns {V + 1}' if normalize else ""
    arguments.append(f"state %S: {S[1]}{shared}{sliced}{entry}")
    if normalize:
        arguments.append(f'state %z: {z[1]}{shared} of "S" column {V} columns {V + 1}')
    row = b.tile(1, V)
    keys, queries, values = along_rows(b, b.wide(k), S[1]), along_rows(b, b.wide(q), S[1]), b.wide(v)
    if delta:
        S = b.emit(f"chunk.decay_state %S log %g along rows : {S[1]}, {g[1]}", S[1])
        rest = b.elementwise("arith.subf", values, read_step(b, S, keys, "rows", V))
        beta = b.emit(f"chunk.broadcast %b along rows : {b.tile(1)} to {row}", row)
        values, g = b.elementwise("arith.mulf", beta, rest), None
    after = write_step(b, S, keys, along_columns(b, values, S[1]), g)
    o, states = read_step(b, after, queries, "rows", V), [after]
    if normalize:
        kept, wide, one = b.tile(1, K), b.wide(k), b.tile(1)
        zs = b.emit(f"chunk.broadcast %z along columns : {z[1]} to {kept}", kept)
        zs = b.elementwise("arith.addf", zs, wide)
        product = b.elementwise("arith.mulf", b.wide(q), zs)
        total = b.emit(f"chunk.reduce sum {product[0]} over columns : {kept} -> {one}", one)
        total = b.elementwise("arith.addf", total, b.constant(1e-10, one))
        total = b.emit(f"chunk.broadcast {total[0]} along rows : {one} to {row}", row)
        o = b.elementwise("arith.divf", o, total)
        states.append(b.emit(f"chunk.row {zs[0]} at 0 : {kept} -> {z[1]}", z[1]))
    o = b.narrow(o)
    return kernel(name, arguments, [f"o: {o[1]}{sliced}"], b, [o], states, slices, chunk)


def step_slots(name, element, K, V, chunk=1):
    """One token of two states with a softmax between; the first is read along its columns. 65 slots at most."""
    b = Body(element, chunk)
    N = min(K + 1, 65)
    q, k = (("%" + x, b.tile(1, K, element=element)) for x in "qk")
    v, s, g = ("%v", b.tile(1, V, element=element)), ("%s", b.tile(1, N, element=element)), ("%g", b.tile(1, N))
    keys, values = ("%keys", b.tile(N, K)), ("%values", b.tile(N, V))
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v, s, g)]
    arguments += [f"state {x[0]}: {x[1]}" for x in (keys, values)]
    row, one = b.tile(1, N), b.tile(1)
    s32 = b.wide(s)
    keys = write_step(b, keys, along_rows(b, s32, keys[1]), along_columns(b, b.wide(k), keys[1]), g)
    values = write_step(b, values, along_rows(b, s32, values[1]), along_columns(b, b.wide(v), values[1]), g)
    scores = read_step(b, keys, along_columns(b, b.wide(q), keys[1]), "columns", N)
    m = b.emit(f"chunk.reduce max {scores[0]} over columns : {row} -> {one}", one)
    m = b.emit(f"chunk.broadcast {m[0]} along rows : {one} to {row}", row)
    e = b.elementwise("math.exp", b.elementwise("arith.subf", scores, m))
    t = b.emit(f"chunk.reduce sum {e[0]} over columns : {row} -> {one}", one)
    t = b.emit(f"chunk.broadcast {t[0]} along rows : {one} to {row}", row)
    p = b.elementwise("arith.divf", e, t)
    o = b.narrow(read_step(b, values, along_rows(b, p, values[1]), "rows", V))
    return kernel(name, arguments, [f"o: {o[1]}"], b, [o], [keys, values], chunk=chunk)


def step_rowmaps(name, element, K, V, chunk=1):
    """Row maps of one token: a convolution, a product with a parameter, a scan, a delay, columns and tables."""
    b = Body(element, chunk)
    F = K // 2
    x, w = ("%x", b.tile(1, K, element=element)), ("%w", b.tile(K, F, element=element))
    tail = b.tile(3, K, element=element)
    row, half, one = b.tile(1, K), b.tile(1, F), b.tile(1)
    arguments = [
        f"input %x: {x[1]}",
        f"parameter %w: {w[1]}",
        f"parameter %taps: {b.tile(K, 4)}",
        f"parameter %bias: {b.tile(F)}",
        f"table %angles: {row}",
        "table %slope: tensor<f32>",
        f"table %place: {one}",
        f"state %tail: {tail}",
        f"state %late: {tail.replace('3x', '2x')}",
        f"state %L: {half} lowest",
    ]
    tables = [
        "chunk.table @angles period 5 {\n^bb0(%t: f64, %h: f64, %d: f64):\n  chunk.result %t : f64\n}",
        "chunk.table @slope {\n^bb0(%t: f64, %h: f64, %d: f64):\n  chunk.result %h : f64\n}",
        "chunk.table @place varying {\n^bb0(%t: f64, %h: f64, %d: f64):\n  chunk.result %t : f64\n}",
    ]
    x32, before = b.wide(x), b.wide(("%tail", tail))
    y = b.emit(f"chunk.conv {x32[0]}, %taps tail {before[0]} : {row}, {b.tile(K, 4)}, {before[1]} -> {row}", row)
    w32 = b.wide(w)
    z = read_step(b, w32, along_rows(b, y, w32[1]), "rows", F)
    bias = b.emit(f"chunk.broadcast %bias along columns : {b.tile(F)} to {half}", half)
    z = b.elementwise("arith.addf", z, bias)
    total = b.emit(f"chunk.scan logaddexp {z[0]} from %L : {half}, {half}", half)
    first = b.emit(f"chunk.columns {x32[0]} from 0 : {row} -> {half}", half)
    joined = b.emit(f"chunk.concat {total[0]}, {first[0]} : {half}, {half} -> {row}", row)
    turned = b.elementwise("arith.mulf", joined, ("%angles", row))
    slope = b.emit(f"chunk.broadcast %slope along rows : tensor<f32> to {row}", row)
    turned = b.elementwise("arith.mulf", turned, slope)
    place = b.emit(f"chunk.broadcast %place along rows : {one} to {row}", row)
    place = b.elementwise("arith.mulf", place, b.constant(0.02, row))
    turned = b.elementwise("arith.addf", turned, place)
    late = b.wide(("%late", tail.replace("3x", "2x")))
    last = b.emit(f"chunk.delay {x32[0]} by 1 tail {late[0]} : {row}, {late[1]}", row)
    o = b.narrow(b.elementwise("arith.addf", turned, last))
    states = [
        b.emit(f"chunk.tail {y} valid %n after {state} : {kind}, {old}", old)
        for y, kind, state, old in (
            ("%x", x[1], "%tail", tail),
            ("%x", x[1], "%late", tail.replace("3x", "2x")),
            (total[0], half, "%L", half),
        )
    ]
    return kernel(name, arguments, [f"o: {o[1]}"], b, [o], states, chunk=chunk, tables=tables)


# ------------------------------------------------------------------------------------------------ references
def reference_recurrent(x, states, decay=None, form="log", normalize=False, before=False):
    q, k, v = x["q"], x["k"], x["v"]
    S = states["S"].copy()
    z = states["z"].copy() if normalize else None
    out = np.zeros((len(q), v.shape[1]))
    for t in range(len(q)):
        a = 1.0
        if decay:
            a = np.exp(x["g"][t]) if form == "log" else x["g"][t]

        def read():
            row = q[t] @ S
            return row / (q[t] @ z + 1e-10) if normalize else row

        if before:
            out[t] = read()
        S *= np.reshape(a, (-1, 1))
        S += np.outer(k[t], v[t])
        if normalize:
            z = a * z + k[t]
        if not before:
            out[t] = read()
    return {"o": out}, {"S": S, "z": z} if normalize else {"S": S}


def reference_rowmaps(x, states):
    rows, w, taps, bias = x["x"], x["w"], x["taps"], x["bias"]
    T, K = rows.shape
    F = K // 2
    past = np.concatenate([states["tail"], rows])
    conv = sum(taps[:, 3 - j] * past[3 - j : 3 - j + T] for j in range(4))
    z = conv @ w + bias
    z += np.log1p(np.exp(-np.abs(z)))

    def softmax(y):
        e = np.exp(y - y.max(axis=1, keepdims=True))
        return e / e.sum(axis=1, keepdims=True)

    joined = np.maximum(np.concatenate([softmax(z), softmax(-z)], axis=1), 1e-12)
    swapped = np.concatenate([-rows[:, F:], rows[:, :F]], axis=1)
    angles = x["angles"][(x["position"] + np.arange(T)) % 5]
    late = np.concatenate([states["late"], rows])
    o = joined + swapped * angles * x["slope"] + late[1 : T + 1]
    return {"o": o, "c": rows[:, 1]}, {"tail": past[T : T + 3], "late": late[T : T + 2]}


def reference_slots(x, states, form="log"):
    keys, values = states["keys"].copy(), states["values"].copy()
    out = np.zeros((len(x["q"]), x["v"].shape[1]))
    for t in range(len(out)):
        a = (np.exp(x["g"][t]) if form == "log" else x["g"][t])[:, None]
        keys = a * keys + np.outer(x["s"][t], x["k"][t])
        values = a * values + np.outer(x["s"][t], x["v"][t])
        z = keys @ x["q"][t]
        p = np.exp(z - z.max())
        out[t] = p / p.sum() @ values
    return {"o": out}, {"keys": keys, "values": values}


def reference_mixes(x, states, chunk, form="log"):
    """Sums over the pairs of a chunk."""
    q, k, v = x["q"], x["k"], x["v"]
    a = np.exp(x["g"]) if form == "log" else x["g"]
    out = {name: np.zeros(v.shape) for name in ("forward", "transposed", "before", "beforetransposed")}
    for j in range(len(q)):
        product = np.ones(v.shape[1])
        for i in range(j, min(len(q), (j // chunk + 1) * chunk)):
            weight = q[i] @ k[j]
            if i > j:
                out["before"][i] += weight * v[j] * product
                out["beforetransposed"][j] += weight * v[i] * product
                product = product * a[i]
            out["forward"][i] += weight * v[j] * product
            out["transposed"][j] += weight * v[i] * product
    return out, {}


def reference_halves(x, states, chunk):
    """Chunk by chunk; rows that are not there are 0."""
    T = len(x["q"])
    q, k, v = (np.concatenate([x[name], np.zeros((-T % chunk, x[name].shape[1]))]) for name in "qkv")
    out = {}
    for block in (2**bit for bit in range(chunk.bit_length())):
        pairs = out[f"pairs{block}"] = np.zeros(v.shape)
        for i in range(len(q)):
            half = max(block // 2, 1)
            start = i - i % block  # of the block, whose first half the second half meets
            later = i % block >= half
            for j in range(start, start + half) if later else [i] * (block == 1):
                pairs[i] += (q[i] @ k[j]) * v[j]
            if block > 1:
                joined = 2 * q[i] if later else 4 * k[i]
                out.setdefault(f"rows{block}", np.zeros(q.shape))[i] = joined + 3 * k[start + half - 1]
    return {name: rows[:T] for name, rows in out.items()}, {}


def reference_delta(x, states):
    S = states["S"].copy()
    out = np.zeros((len(x["q"]), x["v"].shape[1]))
    for t in range(len(out)):
        S = np.reshape(np.exp(x["g"][t]), (-1, 1)) * S
        S += np.outer(x["k"][t], x["b"][t] * (x["v"][t] - x["k"][t] @ S))
        out[t] = x["q"][t] @ S
    return {"o": out}, {"S": S}


def reference_scans(x, states, chunk):
    rows, T = x["x"], len(x["x"])
    L, M, A = (states[name][0].copy() for name in "LMA")
    out = {name: np.zeros(rows.shape) for name in ("logaddexp", "max", "add")}
    for t in range(T):
        L = out["logaddexp"][t] = np.logaddexp(L, rows[t])
        M = out["max"][t] = np.maximum(M + x["g"][t], rows[t])
        A = out["add"][t] = A * np.exp(x["g"][t]) + rows[t]
    solved = x["v"].copy()
    for t in reversed(range(T)):
        later = slice(t + 1, min(T, (t // chunk + 1) * chunk))
        solved[t] -= 0.02 / rows.shape[1] * (rows[later] @ rows[t]) @ solved[later]
    inverted = x["v"].copy()
    for t in range(T):
        earlier = slice(t // chunk * chunk, t)
        inverted[t] -= 0.02 / rows.shape[1] * (rows[earlier] @ rows[t]) @ inverted[earlier]
    return {**out, "solved": solved, "inverted": inverted}, {"L": L[None], "M": M[None], "A": A[None]}


def reference_step_rowmaps(x, states):
    rows, w, taps, bias = x["x"], x["w"], x["taps"], x["bias"]
    T, K = rows.shape
    past, late = np.concatenate([states["tail"], rows]), np.concatenate([states["late"], rows])
    conv = sum(taps[:, 3 - j] * past[3 - j : 3 - j + T] for j in range(4))
    L, out = states["L"][0].copy(), np.zeros(rows.shape)
    for t in range(T):
        L, place = np.logaddexp(L, conv[t] @ w + bias), x["position"] + t
        joined = np.concatenate([L, rows[t, : K // 2]])
        out[t] = joined * x["angles"][place % 5] * x["slope"] + late[t + 1] + 0.02 * place
    return {"o": out}, {"tail": past[T : T + 3], "late": late[T : T + 2], "L": L[None]}


@dataclasses.dataclass
class Family:
    """How to write a kernel of a family, and what it computes."""

    write: object
    reference: object
    options: dict = dataclasses.field(default_factory=dict)
    # States that are -inf where none is given.
    lowest: tuple = ()
    # Whether the reference has to know where chunks begin.
    by_chunk: bool = False
    # Whether it takes single tokens: then there is a kernel that updates states in place, too.
    steps: bool = False
    # Whether the kernel computes tables at positions that only the device knows.
    computes_tables: bool = False
    # How many times more registers a token takes than in other families.
    weight: int = 1

    def text(self, name, element, K, V, **more):
        return self.write(name, element, K, V, **{**self.options, **more})


def family_of(**options):
    reference_options = {k: v for k, v in options.items() if k in ("decay", "form", "normalize", "before")}
    return Family(recurrent, lambda x, s: reference_recurrent(x, s, **reference_options), options)


def step_family(**options):
    return dataclasses.replace(family_of(**options), write=step, steps=True)


FAMILIES = {
    "linear": family_of(),
    "normalized": family_of(normalize=True),
    "simple": family_of(decay="scalar", gate="f32"),
    "simplebefore": family_of(decay="scalar", gate="f32", before=True),
    "simplefactor": family_of(decay="scalar", gate="f32", form="factor"),
    "gla": family_of(decay="channel", gate="f32"),
    "glanorm": family_of(decay="channel", normalize=True),
    "glabefore": family_of(decay="channel", before=True),
    "hgrn": family_of(decay="channel", form="factor"),
    "rowmaps": Family(rowmaps, reference_rowmaps),
    "computed": Family(computed, reference_computed, computes_tables=True, weight=4),
    "slots": Family(slots, reference_slots, weight=2),
    "slotsfactor": Family(slots, lambda x, s: reference_slots(x, s, "factor"), {"form": "factor"}, weight=2),
    "mixes": Family(mixes, reference_mixes, by_chunk=True, weight=4),
    "halves": Family(halves, reference_halves, by_chunk=True, weight=4),
    "delta": Family(delta, reference_delta, weight=2),
    "deltachannel": Family(delta, reference_delta, {"decay": "channel"}, weight=2),
    "steplinear": step_family(normalize=True),
    "stepsimple": step_family(decay="scalar"),
    "stepgla": step_family(decay="channel"),
    "stepdelta": Family(step, reference_delta, {"decay": "scalar", "delta": True}, steps=True),
    "stepslots": Family(step_slots, reference_slots, steps=True),
    "steprowmaps": Family(step_rowmaps, reference_step_rowmaps, lowest=("L",), steps=True),
    "scans": Family(scans, reference_scans, lowest=("L", "M"), by_chunk=True, weight=2),
}


def family(name):
    return FAMILIES[name.split("_")[0]]


def chunk_of(family, K):
    """As many tokens as registers have room for."""
    if FAMILIES[family].steps:
        return 1
    return max(16, (CHUNK if K <= 64 else CHUNK // 2) // FAMILIES[family].weight)


def fold_options(name):
    """What `stretto-fold-over-chunks` is told."""
    written = FAMILIES.get(name.split("_")[0])
    options = ["in-place"] if name.endswith("_inplace") else []
    return options + (["compute-tables"] if written and written.computes_tables else [])


def all_kernels(
    families=None, elements=("bf16", "f16", "f32"), sizes=((16, 16), (32, 64), (64, 64), (96, 32), (128, 128))
):
    """Names and texts of the kernels that tests run."""
    for name, text in written(families, elements, sizes):
        yield name, text
        if family(name).steps:
            yield name + "_inplace", text.replace(f"@{name} ", f"@{name}_inplace ")


def written(families, elements, sizes):
    for name, element, (K, V) in itertools.product(families or FAMILIES, elements, sizes):
        full = f"{name}_{element}_k{K}_v{V}"
        yield full, FAMILIES[name].text(full, element, K, V, chunk=chunk_of(name, K))
    for name, element, K, V, options in (
        ("linear_group", "bf16", 64, 64, {"group": 2}),
        ("linear_slices", "bf16", 128, 32, {"slices": 4}),
        ("gla_group", "bf16", 64, 32, {"group": 4, "slices": 2}),
        ("stepgla_group", "bf16", 64, 32, {"group": 2, "slices": 2}),
        ("steplinear_group", "bf16", 16, 24, {"group": 4}),
    ):
        if not families or name.split("_")[0] in families:
            yield name, family(name).text(name, element, K, V, **options)
