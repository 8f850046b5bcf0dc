"""The texts of kernels that take single tokens."""

from kernel_text import Body, kernel


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
    last = b.emit(f"chunk.delay {x32[0]} by 1 tail {late[0]} : {row}, {late[1]} -> {row}", row)
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
