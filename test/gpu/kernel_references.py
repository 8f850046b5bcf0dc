"""What the kernels of tests must compute: loops over tokens in fp64 that share nothing with the compiler."""

import numpy as np
from kernel_text import TABLES, expressions_of


def reference_computed(x, states):
    T, K = x["x"].shape
    t, d = np.meshgrid(x["position"] + np.arange(T, dtype=float), np.arange(K, dtype=float), indexing="ij")
    names = {"t": t, "d": d, "h": float(x["head"])}
    out = {}
    for table, (_, _, function) in TABLES.items():
        values = [eval(text, {}, names) * np.ones((T, K)) for text in expressions_of(table)]
        out[f"{table}_o"] = function(*values)
    return out, {}


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
            if block == 8:
                out.setdefault("within8", np.zeros(v.shape))[i] = sum((q[i] @ k[j]) * v[j] for j in range(start, i + 1))
            if block > 1:
                joined = 2 * q[i] if later else 4 * k[i]
                out.setdefault(f"rows{block}", np.zeros(q.shape))[i] = joined + 3 * k[start + half - 1]
    return {name: rows[:T] for name, rows in out.items()}, {}


def reference_turns(x, states, chunk):
    """What blocks of one size have, summed over sizes: a pair that meets in one is in all blocks of larger sizes."""
    of_sizes, _ = reference_halves(x, states, chunk)
    sizes = [2**bit for bit in range(chunk.bit_length())]
    pairs = [of_sizes[f"pairs{block}"] for block in sizes]
    within = sum(own * (len(sizes) - place) for place, own in enumerate(pairs))
    rows = sum((of_sizes[f"rows{block}"] for block in sizes[1:] if len(x["q"])), np.zeros(x["q"].shape))
    return {"met": sum(pairs), "within": within, "turns": sum(pairs[1:]), "rows": rows}, {}


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
