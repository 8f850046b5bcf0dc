"""Every operator of models/ in the language of stretto.lang: tests hold the files and these against each other."""

import math

import stretto
from stretto import lang as sl

# ---------------------------------------------------------------------------------------------------------------------
# Feature maps and rotations
# ---------------------------------------------------------------------------------------------------------------------


def hedgehog(x, w):
    y = sl.matvec(x, w)
    return sl.maximum(sl.concat(sl.softmax(y), sl.softmax(-y)), 1e-12)


def t2r(x, w, b=None, floor=1e-12):
    y = sl.matvec(x, w)
    return sl.maximum(y if b is None else y + b, floor)


def rotated(x, cos, sin):
    "Turns the pairs (i, i + width/2) of a row."
    first, second = sl.split(x, x.width // 2)
    return x * cos + sl.concat(-second, first) * sin


def normalised(S, x, along, values, eps):
    "Reads a state whose last column holds the sum of the keys, and divides by it."
    num, den = sl.split(sl.read(S, x, along=along), values)
    return num / (den + eps)


# ---------------------------------------------------------------------------------------------------------------------
# Diagonal decay
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def linear_attn(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    normalize=sl.Option(True),
    eps=sl.Option(1e-10),
    scale=sl.Option("K**-0.5"),
):
    "Linear attention."
    if not normalize:
        return sl.read(sl.write(sl.state("K", "V"), k, v), q * scale, along="K")
    S = sl.write(sl.state("K", "V + 1"), k, sl.append(v, 1.0))
    return normalised(S, q * scale, "K", "V", eps)


@stretto.variant
def gla(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    g: sl.Row["K"](heads="G"),
    scale=sl.Option("K**-0.5"),
):
    "Gated linear attention."
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, k, v)
    return sl.read(S, q * scale, along="K")


@stretto.variant
def simple_gla(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    g: sl.Row[()](heads="G"),
    scale=sl.Option("K**-0.5"),
):
    "Gated linear attention with one gate for each head."
    S = sl.decay(sl.state("K", "V"), log=g)
    S = sl.write(S, k, v)
    return sl.read(S, q * scale, along="K")


@stretto.variant
def retention(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), scale=sl.Option("K**-0.5")):
    "Retention: linear attention with a fixed decay for each head."
    S = sl.state("K", "V")
    S = sl.decay(S, log=sl.per_head(lambda h: sl.log1p(-(2.0 ** (-5.0 - h))), heads="G"))
    S = sl.write(S, k, v)
    return sl.read(S, q * scale, along="K")


@stretto.variant
def hgrn2(q: sl.Row["K"], f: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), scale=sl.Option("K**-0.5")):
    "HGRN2: what the forget gate lets go, the input replaces."
    S = sl.decay(sl.state("K", "V"), factor=f, along="K")
    S = sl.write(S, 1.0 - f, v)
    return sl.read(S, q * scale, along="K")


@stretto.variant
def ssd(
    x: sl.Row["P"],
    dt: sl.Row[()],
    A_log: sl.Param["H"],
    B: sl.Row["N"](heads="G"),
    C: sl.Row["N"](heads="G"),
    D: sl.Param["H"] = None,
):
    "Mamba-2: a state space model with one decay for each head."
    S = sl.state("N", "P")
    S = sl.decay(S, log=-dt * sl.exp(A_log))
    S = sl.write(S, B, dt * x)
    y = sl.read(S, C, along="N")
    return y if D is None else y + D * x


@stretto.variant
def rwkv6(
    r: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    w: sl.Row["K"](heads="G"),
    u: sl.Param["G", "K"],
    scale=sl.Option("K**-0.5"),
):
    "RWKV-6: the token itself is seen through a bonus, before it is written."
    S = sl.state("K", "V")
    r = r * scale
    o = sl.read(S, r, along="K") + sl.dot(r, u * k) * v
    sl.write(sl.decay(S, log=w, along="K"), k, v)
    return o


@stretto.variant
def supra(
    q: sl.Row["D"],
    k: sl.Row["D"](heads="G"),
    v: sl.Row["V"](heads="G"),
    w_q: sl.Param["H", "D", "F"],
    b_q: sl.Param["H", "F"],
    w_k: sl.Param["H", "D", "F"],
    b_k: sl.Param["H", "F"],
    log_gamma: sl.Param["H"],
    weight: sl.Param["H", "V"] = None,
    bias: sl.Param["H", "V"] = None,
    theta=sl.Option(10000.0),
    eps=sl.Option(1e-5),
):
    "SUPRA: rotated ReLU features, a fixed decay, and a norm in place of the denominator."
    fq, fk = t2r(q, w_q, b_q, 0.0), t2r(k, w_k, b_k, 0.0)
    half = fq.width // 2

    def angle(t, i):
        return t * theta ** -(sl.fmod(i, half) / half)

    cos = sl.table(lambda t, i: sl.cos(angle(t, i)), "F")
    sin = sl.table(lambda t, i: sl.sin(angle(t, i)), "F")
    fq, fk = rotated(fq, cos, sin), rotated(fk, cos, sin)
    S = sl.decay(sl.state("F", "V"), log=log_gamma)
    o = sl.read(sl.write(S, fk, v), fq, along="F")
    o = o - sl.mean(o)
    o = o / sl.sqrt(sl.mean(sl.square(o)) + eps)
    o = o if weight is None else o * weight
    return o if bias is None else o + bias


@stretto.variant
def based(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    eps=sl.Option(1e-6),
    scale=sl.Option("K**-0.5"),
):
    "Based: linear attention on the second-order expansion of the exponential."

    def phi(x):
        return sl.concat(1.0, x, sl.outer(x, x) * 0.5**0.5)

    S = sl.write(sl.state("1 + K + K*K", "V + 1"), phi(k), sl.append(v, 1.0))
    return normalised(S, phi(q * scale), "1 + K + K*K", "V", eps)


@stretto.variant
def lawcat(
    q: sl.Row["D"],
    k: sl.Row["D"](heads="G"),
    v: sl.Row["V"](heads="G"),
    z: sl.Row["D"](heads="G"),
    conv_q: sl.Param["H", "D", 4],
    conv_k: sl.Param["G", "D", 4],
    w_phi: sl.Param["H", "D", "D/2"],
    tau=sl.Option(16.0),
    eps=sl.Option(1e-10),
    scale=sl.Option("D**-0.5"),
):
    "LAWCAT: convolution, shared Hedgehog features, a gate for each channel, a denominator."
    S = sl.decay(sl.state("D", "V + 1"), log=sl.logsigmoid(z) / tau, along="D")
    S = sl.write(S, hedgehog(sl.conv(k, conv_k), w_phi), sl.append(v, 1.0))
    return normalised(S, hedgehog(sl.conv(q, conv_q), w_phi) * scale, "D", "V", eps)


# ---------------------------------------------------------------------------------------------------------------------
# Delta rule
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def delta_rule(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="W"),
    beta: sl.Row[()](heads="W"),
    scale=sl.Option("K**-0.5"),
):
    "DeltaNet: the row that is written corrects what the state recalls."
    S = sl.state("K", "V")
    S = sl.write(S, k, beta * (v - sl.read(S, k, along="K")))
    return sl.read(S, q * scale, along="K")


@stretto.variant
def gated_delta_rule(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="W"),
    g: sl.Row[()](heads="W"),
    beta: sl.Row[()](heads="W"),
    scale=sl.Option("K**-0.5"),
):
    "Gated DeltaNet: the delta rule on a state that decays. Value heads W may be more than key heads G."
    S = sl.decay(sl.state("K", "V"), log=g)
    S = sl.write(S, k, beta * (v - sl.read(S, k, along="K")))
    return sl.read(S, q * scale, along="K")


# ---------------------------------------------------------------------------------------------------------------------
# Slots
# ---------------------------------------------------------------------------------------------------------------------


def slots():
    "Two states with one row for each slot."
    return sl.state("N", "K", name="keys"), sl.state("N", "V", name="values")


def slot_attention(keys, values, q):
    "A softmax over slots stands between the two reads."
    return sl.read(values, sl.softmax(sl.read(keys, q, along="K")), along="N")


@stretto.variant
def gsa(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    s: sl.Row["N"](heads="G"),
    g: sl.Row["N"](heads="G"),
    scale=sl.Option("K**-0.5"),
):
    "Gated slot attention."
    keys, values = (sl.decay(S, log=g, along="N") for S in slots())
    keys, values = sl.write(keys, s, k), sl.write(values, s, v)
    return slot_attention(keys, values, q * scale)


@stretto.variant
def abc(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    s: sl.Row["N"](heads="G"),
    scale=sl.Option("K**-0.5"),
):
    "Attention with bounded-memory control: a slot holds the softmax average of all tokens so far."
    total, before = sl.scan(s, "logaddexp"), sl.scan(s, "logaddexp", exclusive=True)
    g, w = before - total, sl.exp(s - total)
    keys, values = (sl.decay(S, log=g, along="N") for S in slots())
    keys, values = sl.write(keys, w, k), sl.write(values, w, v)
    return slot_attention(keys, values, q * scale)


@stretto.variant
def bla(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    modes=sl.Option(4),
    period=sl.Option(18.0),
    decay=sl.Option("none", choices=("none", "abs", "signed")),
    masked=sl.Option(True),
    scale=sl.Option("K**-0.5"),
):
    "Blurry window attention: tokens are written to slots with the weights of a Dirichlet kernel."
    n = sl.axis(N=2 * modes + 1)

    def dirichlet(t, i):
        x = n * t / period - i
        grid = sl.round(x)
        on_grid = sl.where(sl.fmod(grid, n) == 0.0, 1.0, 0.0)
        between = sl.sin(math.pi * x) / (n * sl.sin(math.pi * x / n))
        return sl.where(sl.absolute(x - grid) < 1e-9, on_grid, between)

    w = sl.table(dirichlet, "N", period=period)
    keys, values = slots()
    if decay != "none":
        a = 1.0 - (sl.absolute(w) if decay == "abs" else w)
        keys, values = (sl.decay(S, factor=a, along="N") for S in (keys, values))
    keys, values = sl.write(keys, w, k), sl.write(values, w, v)
    logits = sl.read(keys, q * scale, along="K")
    if masked:
        centre = sl.table(lambda t, i: i * period / n, "N")
        logits = sl.where(centre <= sl.position() + 1e-9, logits, -math.inf)
    return sl.read(values, sl.softmax(logits), along="N")


# ---------------------------------------------------------------------------------------------------------------------
# Look-back
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def swa(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    window=sl.Option(64),
    scale=sl.Option("K**-0.5"),
):
    "Sliding window attention."
    qs = q * scale
    first = sl.position() - window + 1.0
    _, l, acc = sl.lookback(first, lambda past: (sl.dot(qs, past(k)), past(v)), fold="softmax")
    return acc / l


@stretto.variant
def lolcats(
    q: sl.Row["D"],
    k: sl.Row["D"](heads="G"),
    v: sl.Row["V"](heads="G"),
    w_q: sl.Param["H", "D", "F"],
    w_k: sl.Param["H", "D", "F"],
    factor: sl.Param["H"],
    b_q: sl.Param["H", "E"] = None,
    b_k: sl.Param["H", "E"] = None,
    window=sl.Option(64),
    mode=sl.Option("terraced", choices=("terraced", "sliding")),
    prev_blocks=sl.Option(1),
    beta=sl.Option(1.0),
    affine=sl.Option(False),
    feature=sl.Option("hedgehog", choices=("hedgehog", "t2r")),
    max_gradient=sl.Option(True),
    scale=sl.Option("D**-0.5"),
):
    "LoLCATs: softmax over a window and linear attention over all that left it, with one denominator."
    t = sl.position()
    first = t - window + 1.0 if mode == "sliding" else (t // window - prev_blocks) * window
    m, l, acc = sl.lookback(first, lambda past: (sl.dot(q, past(k)) * scale, past(v)), fold="softmax")
    if not max_gradient:  # a factor of one that takes the maximum's part of the gradient away
        one = sl.exp(m - sl.stop_gradient(m))
        l, acc = l * one, acc * one

    v1 = sl.append(v, 1.0)
    if feature == "t2r":
        fk, fq = t2r(k, w_k, b_k), t2r(q, w_q, b_q)
    else:
        fk, fq = hedgehog(k, w_k), hedgehog(q, w_q)
    S = sl.write(sl.state(fk.width, "V + 1"), fk, v1)
    num, den = sl.split(sl.read(S, fq, along=fk.width, at=first - 1.0), "V")

    gamma = sl.sigmoid(factor)
    if affine:
        beta = 1.0 - gamma
    return (gamma * acc + beta * num) / (gamma * l + beta * den)


@stretto.variant
def relation_kl(
    q_s: sl.Row["Ds"],
    q_t: sl.Row["Dt"],
    k_s: sl.Row["Ds"](heads="G") = None,
    k_t: sl.Row["Dt"](heads="G") = None,
    mask: sl.Row[()](heads=1) = None,
    scale_s=sl.Option("Ds**-0.5"),
    scale_t=sl.Option("Dt**-0.5"),
    causal=sl.Option(True),
):
    "Kullback-Leibler divergence of one row of a student's relation from its teacher's. The teacher is a constant."
    k_s, k_t = (q if k is None else k for q, k in ((q_s, k_s), (q_t, k_t)))
    teacher_q, teacher_k = sl.stop_gradient(q_t), sl.stop_gradient(k_t)
    student_q, teacher_q = q_s * scale_s, teacher_q * scale_t

    def scores(past):
        teacher, student = sl.dot(teacher_q, past(teacher_k)), sl.dot(student_q, past(k_s))
        if mask is None:
            return teacher, student
        valid = (mask > 0.0) & (past(mask) > 0.0)
        return sl.where(valid, teacher, -math.inf), sl.where(valid, student, -math.inf)

    kl, _, _ = sl.lookback(0.0, scores, fold="divergence", stop=None if causal else math.inf)
    return kl
