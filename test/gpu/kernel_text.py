"""The texts of chunk kernels for tests, by the name, the element type and the sizes of a kernel."""

import ast
import itertools

import numpy as np

CHUNK = 64


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

    def loop(self, turns, initial, body):
        """What a loop leaves of each of several values that it carries: `body` makes the next ones in turn `%i`."""
        zero, one, end = (self.emit(f"arith.constant {n} : index", "index")[0] for n in (0, 1, turns))
        self.count += 1
        loop, kinds = f"%x{self.count}", ", ".join(kind for _, kind in initial)
        carried = [(f"{loop}_{n}", kind) for n, (_, kind) in enumerate(initial)]
        begun = ", ".join(f"{c[0]} = {x[0]}" for c, x in zip(carried, initial, strict=True))
        head = f"  {loop}:{len(carried)} = scf.for %i{loop[1:]} = {zero} to {end} step {one} iter_args({begun})"
        self.lines.append(f"{head} -> ({kinds}) {{")
        following = body(f"%i{loop[1:]}", carried)
        self.lines.append(f"  scf.yield {', '.join(x[0] for x in following)} : {kinds}\n  }}")
        return [(f"{loop}#{n}", kind) for n, (_, kind) in enumerate(initial)]

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
    rescaled=False,
    chunk=CHUNK,
):
    """Linear attention with no decay, one per head ("scalar") or one per channel ("channel").

    `rescaled`: what is read of the state comes first, as in kernels of operators, whose rows are then rescaled for all
    products.
    """
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
    if rescaled:
        o = b.dot(p, v32, out, add=b.dot(fromStart, S, out))
    else:
        o = b.dot(fromStart, S, out, add=b.dot(p, v32, out))
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
    before = b.emit(f"chunk.delay {x32[0]} by 1 tail {late[0]} : {tile}, {late[1]} -> {tile}", tile)
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
        if block == 8:
            within = b.emit(f"chunk.meet {poison[0]} else {zero[0]} block {block} whole : {square}", square)
            outputs["within8"] = b.dot(within, v32, rows)
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


def turns(name, element, K, V, chunk=CHUNK):
    """The same in loops whose turns halve the blocks: each pair once, pairs in all blocks that have both, what meets of
    rows of both halves, and rows of all sizes.
    """
    b = Body(element, chunk)
    q, k, v = (("%" + x, b.tile(chunk, K, element=element)) for x in "qkv")
    square, rows = b.tile(chunk, chunk), b.tile(chunk, K)
    q32, k32, v32 = (b.wide(x) for x in (q, k, v))
    tripled = b.elementwise("arith.addf", b.elementwise("arith.addf", k32, k32), k32)
    one, zero = b.constant(1, square), b.constant(0, square)
    ones = b.emit(f"chunk.causal {one[0]} : {square}", square)
    poison = b.elementwise("arith.mulf", b.dot(q32, k32, square, right=True), b.elementwise("arith.divf", one, ones))

    def each_pair(turn, carried):
        met, count = carried
        halved = f"block {chunk} halved {turn}"
        met = b.emit(f"chunk.meet {poison[0]} else {met[0]} {halved} : {square}", square)
        within = b.emit(f"chunk.meet {poison[0]} else {zero[0]} {halved} whole : {square}", square)
        return met, b.elementwise("arith.addf", count, within)

    def each_size(turn, carried):
        met, total = carried
        halved = f"block {chunk} halved {turn}"
        # Rows in shared memory as they came, rows that are made, and those before the middle.
        joined = b.emit(f"chunk.join_halves {q[0]}, {k[0]} {halved} : {q[1]} -> {q[1]}", q[1])
        products = b.dot(joined, joined, square, right=True)
        met = b.emit(f"chunk.meet {products[0]} else {met[0]} {halved} : {square}", square)
        middle = b.emit(f"chunk.middle {tripled[0]} {halved} : {rows} -> {rows}", rows)
        made = b.emit(f"chunk.join_halves {q32[0]}, {tripled[0]} {halved} : {rows} -> {rows}", rows)
        for x in (middle, made, b.wide(joined)):
            total = b.elementwise("arith.addf", total, x)
        return met, total

    sizes = chunk.bit_length()
    met, count = b.loop(sizes, [zero, zero], each_pair)
    of_rows, total = b.loop(sizes - 1, [zero, b.constant(0, rows)], each_size)
    outputs = {"met": b.dot(met, v32, rows), "within": b.dot(count, v32, rows), "turns": b.dot(of_rows, v32, rows)}
    narrow = {n: b.narrow(o) for n, o in (outputs | {"rows": total}).items()}
    arguments = [f"input {x[0]}: {x[1]}" for x in (q, k, v)]
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
