"""The reference formulas against a second writing of the specification: one token after the other, as the sections
define it.

The recurrences below are as simple as they can be: Python loops over batch, heads and tokens are avoided only where a
row of the specification is already a tensor expression. They share nothing with `formulas`, not even the feature maps.
"""

import math

import pytest
import torch
from formulas import FORMULAS, dirichlet_weights, in_segments, packed, relation_kl, relation_kl_rows
from formulas.examples import REGIMES, WITH_DECAY, example

TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-11


# ------------------------------------------------------------------------------------------------------------
# recurrences A row at token t is [B, H, D]; a state is [B, H, K, V].
def repeated(row, heads):
    """Key/value heads repeated to `heads`, axis 1: head h takes floor(h / group)."""
    group = heads // row.shape[1]
    return row[:, [head // group for head in range(heads)]]


def outer(key, value):
    return key[..., :, None] * value[..., None, :]


def read(query, state):
    """q S for every head."""
    state = repeated(state, query.shape[1])
    return (query[..., :, None] * state).sum(-2)


def stacked(outputs, tokens_like, heads, width):
    return torch.stack(outputs, 1) if outputs else tokens_like.new_zeros(tokens_like.shape[0], 0, heads, width)


def zeros(reference, *shape):
    return torch.zeros(reference.shape[0], *shape, dtype=torch.float64)


def linear_attn(q, k, v, normalize=True, eps=1e-10, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    width, value_width = k.shape[-1], v.shape[-1]
    S, z = zeros(k, k.shape[2], width, value_width), zeros(k, k.shape[2], width)
    if initial_state is not None:
        S = initial_state[0][..., :value_width]
        z = initial_state[0][..., -1]
    outputs = []
    for t in range(q.shape[1]):
        S = S + outer(k[:, t], v[:, t])
        z = z + k[:, t]
        numerator = scale * read(q[:, t], S)
        if normalize:
            numerator = numerator / (scale * (q[:, t] * repeated(z, q.shape[2])).sum(-1, keepdim=True) + eps)
        outputs.append(numerator)
    state = torch.cat([S, z[..., None]], -1) if normalize else S
    return stacked(outputs, q, q.shape[2], value_width), (state,)


def gla(q, k, v, g, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    S = zeros(k, k.shape[2], k.shape[-1], v.shape[-1]) if initial_state is None else initial_state[0]
    outputs = []
    for t in range(q.shape[1]):
        S = g[:, t].exp()[..., None] * S + outer(k[:, t], v[:, t])
        outputs.append(scale * read(q[:, t], S))
    return stacked(outputs, q, q.shape[2], v.shape[-1]), (S,)


def simple_gla(q, k, v, g, **options):
    return gla(q, k, v, g[..., None].expand(k.shape), **options)


def retention(q, k, v, **options):
    g = torch.tensor([math.log1p(-(2.0 ** (-5 - head))) for head in range(k.shape[2])], dtype=torch.float64)
    return simple_gla(q, k, v, g.expand(k.shape[:3]), **options)


def ssd(x, dt, A_log, B, C, D=None, initial_state=None):
    heads = x.shape[2]
    S = zeros(x, heads, B.shape[-1], x.shape[-1]) if initial_state is None else initial_state[0]
    outputs = []
    for t in range(x.shape[1]):
        decay = torch.exp(-dt[:, t] * torch.exp(A_log))
        S = decay[..., None, None] * S + dt[:, t][..., None, None] * outer(repeated(B[:, t], heads), x[:, t])
        y = read(repeated(C[:, t], heads), S)
        outputs.append(y if D is None else y + D[:, None] * x[:, t])
    return stacked(outputs, x, heads, x.shape[-1]), (S,)


def hgrn2(q, f, v, scale=None, initial_state=None):
    scale = f.shape[-1] ** -0.5 if scale is None else scale
    S = zeros(f, f.shape[2], f.shape[-1], v.shape[-1]) if initial_state is None else initial_state[0]
    outputs = []
    for t in range(q.shape[1]):
        S = f[:, t][..., None] * S + outer(1 - f[:, t], v[:, t])
        outputs.append(scale * read(q[:, t], S))
    return stacked(outputs, q, q.shape[2], v.shape[-1]), (S,)


def rwkv6(r, k, v, w, u, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    S = zeros(k, k.shape[2], k.shape[-1], v.shape[-1]) if initial_state is None else initial_state[0]
    outputs = []
    for t in range(r.shape[1]):
        write = outer(k[:, t], v[:, t])
        outputs.append(scale * read(r[:, t], S + u[..., None] * write))
        S = w[:, t].exp()[..., None] * S + write
    return stacked(outputs, r, r.shape[2], v.shape[-1]), (S,)


def two_softmaxes(x, weight):
    y = (x[..., :, None] * weight).sum(-2)
    positive, negative = (torch.exp(s - s.max(-1, keepdim=True).values.detach()) for s in (y, -y))
    features = [part / part.sum(-1, keepdim=True) for part in (positive, negative)]
    return torch.cat(features, -1).clamp(min=1e-12)


def rectified(x, weight, bias, floor):
    y = (x[..., :, None] * weight).sum(-2)
    y = y if bias is None else y + bias
    return torch.where(y > floor, y, floor)


def turned(x, position, theta):
    half = x.shape[-1] // 2
    columns = [None] * (2 * half)
    for i in range(half):
        angle = position.double() * theta ** (-2 * i / (2 * half))
        cos, sin = angle.cos()[:, None], angle.sin()[:, None]
        columns[i] = x[..., i] * cos - x[..., i + half] * sin
        columns[i + half] = x[..., i] * sin + x[..., i + half] * cos
    return torch.stack(columns, -1)


def supra(q, k, v, w_q, b_q, w_k, b_k, log_gamma, weight=None, bias=None, theta=10000.0, eps=1e-5, initial_state=None):
    heads = q.shape[2]
    S, position = zeros(q, heads, w_k.shape[-1], v.shape[-1]), torch.zeros(q.shape[0], dtype=torch.int64)
    if initial_state is not None:
        S, position = initial_state
    outputs = []
    for t in range(q.shape[1]):
        query = turned(rectified(q[:, t], w_q, b_q, 0.0), position, theta)
        key = turned(rectified(repeated(k[:, t], heads), w_k, b_k, 0.0), position, theta)
        S = log_gamma.exp()[:, None, None] * S + outer(key, repeated(v[:, t], heads))
        u = read(query, S)
        u = u - u.mean(-1, keepdim=True)
        u = u / torch.sqrt((u * u).mean(-1, keepdim=True) + eps)
        outputs.append(u if weight is None else u * weight + bias)
        position = position + 1
    return stacked(outputs, q, heads, v.shape[-1]), (S, position)


def based(q, k, v, eps=1e-6, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale

    def taylor(x):
        return torch.cat([torch.ones_like(x[..., :1]), x, outer(x, x).flatten(-2) / math.sqrt(2)], -1)

    return linear_attn(taylor(scale * q), taylor(k), v, eps=eps, scale=1.0, initial_state=initial_state)


def lawcat(q, k, v, z, conv_q, conv_k, w_phi, tau=16.0, eps=1e-10, scale=None, initial_state=None):
    heads, width = q.shape[2:]
    scale = width**-0.5 if scale is None else scale
    S = zeros(q, heads, width, v.shape[-1] + 1)
    tail_q, tail_k = zeros(q, 3, heads, width), zeros(q, 3, k.shape[2], width)
    if initial_state is not None:
        S, tail_q, tail_k = initial_state
    outputs = []
    for t in range(q.shape[1]):
        recent_q, recent_k = (torch.cat([tail, x[:, t : t + 1]], 1) for tail, x in ((tail_q, q), (tail_k, k)))
        query, key = (
            sum(taps[..., 3 - j] * recent[:, 3 - j] for j in range(4))
            for taps, recent in ((conv_q, recent_q), (conv_k, recent_k))
        )
        query, key = two_softmaxes(query, w_phi), two_softmaxes(repeated(key, heads), w_phi)
        alpha = repeated(torch.exp(-torch.logaddexp(torch.zeros(()), -z[:, t]) / tau), heads)  # sigmoid(z)^(1/tau)
        value = torch.cat([v[:, t], torch.ones_like(v[:, t, :, :1])], -1)
        S = alpha[..., None] * S + outer(key, repeated(value, heads))
        sums = scale * read(query, S)
        outputs.append(sums[..., :-1] / (sums[..., -1:] + eps))
        tail_q, tail_k = recent_q[:, 1:], recent_k[:, 1:]
    return stacked(outputs, q, heads, v.shape[-1]), (S, tail_q, tail_k)


def gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    value_heads = v.shape[2]
    heads = max(q.shape[2], value_heads)
    S = zeros(k, value_heads, k.shape[-1], v.shape[-1]) if initial_state is None else initial_state[0]
    outputs = []
    for t in range(q.shape[1]):
        key = repeated(k[:, t], value_heads)
        S = g[:, t].exp()[..., None, None] * S
        S = S + outer(key, beta[:, t][..., None] * (v[:, t] - read(key, S)))
        outputs.append(scale * read(repeated(q[:, t], heads), S))
    return stacked(outputs, q, heads, v.shape[-1]), (S,)


def delta_rule(q, k, v, beta, **options):
    return gated_delta_rule(q, k, v, torch.zeros_like(beta), beta, **options)


def slot_token(q, k, v, write, decay, keys, values, scale, open_slots=None):
    keys = decay[..., None] * keys + write[..., None] * k[..., None, :]
    values = decay[..., None] * values + write[..., None] * v[..., None, :]
    logits = scale * (q[..., None, :] * repeated(keys, q.shape[1])).sum(-1)
    if open_slots is not None:
        logits = torch.where(open_slots, logits, -math.inf)
    return read(logits.softmax(-1), values), keys, values


def slot_states(k, v, slots, initial_state):
    if initial_state is not None:
        return initial_state
    return zeros(k, k.shape[2], slots, k.shape[-1]), zeros(k, k.shape[2], slots, v.shape[-1])


def gsa(q, k, v, s, g, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    keys, values = slot_states(k, v, s.shape[-1], initial_state)
    outputs = []
    for t in range(q.shape[1]):
        output, keys, values = slot_token(q[:, t], k[:, t], v[:, t], s[:, t], g[:, t].exp(), keys, values, scale)
        outputs.append(output)
    return stacked(outputs, q, q.shape[2], v.shape[-1]), (keys, values)


def abc(q, k, v, s, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    if initial_state is None:
        keys, values = slot_states(k, v, s.shape[-1], None)
        total = zeros(k, *s.shape[2:]) - math.inf
    else:
        keys, values, total = initial_state
    outputs = []
    for t in range(q.shape[1]):
        before, total = total, torch.logaddexp(total, s[:, t])
        write, decay = torch.exp(s[:, t] - total), torch.exp(before - total)
        output, keys, values = slot_token(q[:, t], k[:, t], v[:, t], write, decay, keys, values, scale)
        outputs.append(output)
    return stacked(outputs, q, q.shape[2], v.shape[-1]), (keys, values, total)


def dirichlet(t, n, slots, period):
    x = slots * math.fmod(t, period) / period - n
    if abs(x - round(x)) < 1e-9:
        return 1.0 if round(x) % slots == 0 else 0.0
    return math.sin(math.pi * x) / (slots * math.sin(math.pi * x / slots))


def bla(q, k, v, modes, period, decay="none", masked=True, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    slots = 2 * modes + 1
    position = torch.zeros(q.shape[0], dtype=torch.int64)
    if initial_state is not None:
        *initial_state, position = initial_state
    keys, values = slot_states(k, v, slots, initial_state)
    outputs = []
    for t in range(q.shape[1]):
        w = torch.tensor(
            [[dirichlet(p, n, slots, period) for n in range(slots)] for p in position.tolist()], dtype=torch.float64
        )
        w = w.reshape(-1, 1, slots)
        a = {"none": torch.ones_like(w), "abs": 1 - w.abs(), "signed": 1 - w}[decay]
        is_open = torch.tensor([[n * period / slots <= p + 1e-9 for n in range(slots)] for p in position.tolist()])
        output, keys, values = slot_token(
            q[:, t], k[:, t], v[:, t], w, a, keys, values, scale, is_open.reshape(-1, 1, slots) if masked else None
        )
        outputs.append(output)
        position = position + 1
    return stacked(outputs, q, q.shape[2], v.shape[-1]), (keys, values, position)


def swa(q, k, v, window, scale=None, initial_state=None):
    scale = k.shape[-1] ** -0.5 if scale is None else scale
    keys = [] if initial_state is None else list(initial_state[0].unbind(1))
    values = [] if initial_state is None else list(initial_state[1].unbind(1))
    outputs = []
    for t in range(q.shape[1]):
        keys, values = ([*keys, k[:, t]])[-window:], ([*values, v[:, t]])[-window:]
        logits = torch.stack([scale * (q[:, t] * repeated(key, q.shape[2])).sum(-1) for key in keys], -1)
        outputs.append(
            sum(
                p[..., None] * repeated(value, q.shape[2])
                for p, value in zip(logits.softmax(-1).unbind(-1), values, strict=True)
            )
        )
    cached = (torch.stack(cache, 1) if cache else row[:, :0] for cache, row in ((keys, k), (values, v)))
    return stacked(outputs, q, q.shape[2], v.shape[-1]), tuple(cached)


def lolcats(
    q,
    k,
    v,
    w_q,
    w_k,
    factor,
    window=64,
    mode="terraced",
    prev_blocks=1,
    beta=1.0,
    feature="hedgehog",
    b_q=None,
    b_k=None,
    max_gradient=True,
    scale=None,
    initial_state=None,
):
    """As a decoder would: a key enters the state when it leaves the window."""
    heads, width = q.shape[2:]
    scale = width**-0.5 if scale is None else scale
    gamma = torch.sigmoid(factor)[:, None]
    beta = 1 - gamma if beta == "affine" else beta

    def mapped(x, weight, bias):
        return rectified(x, weight, bias, 1e-12) if feature == "t2r" else two_softmaxes(x, weight)

    S = zeros(q, heads, w_k.shape[-1] * (1 if feature == "t2r" else 2), v.shape[-1] + 1)
    cache, position = [], 0
    if initial_state is not None:
        S, keys, values, position = initial_state
        cache, position = list(zip(keys.unbind(1), values.unbind(1), strict=True)), int(position[0])
    outputs = []
    for t in range(q.shape[1]):
        cache = [*cache, (k[:, t], v[:, t])]
        kept = min(window, position + 1)
        if mode == "terraced":
            kept = position % window + 1 + min(prev_blocks * window, position // window * window)
        while len(cache) > kept:
            key, value = (repeated(x, heads) for x in cache[0])
            S = S + outer(mapped(key, w_k, b_k), torch.cat([value, torch.ones_like(value[..., :1])], -1))
            cache = cache[1:]
        scores = torch.stack([scale * (q[:, t] * repeated(key, heads)).sum(-1) for key, _ in cache], -1)
        largest = scores.max(-1, keepdim=True).values
        e = gamma * torch.exp(scores - (largest if max_gradient else largest.detach()))
        sums = beta * read(mapped(q[:, t], w_q, b_q), S)
        numerator = sums[..., :-1] + sum(
            weight[..., None] * repeated(value, heads) for weight, (_, value) in zip(e.unbind(-1), cache, strict=True)
        )
        outputs.append(numerator / (sums[..., -1:] + e.sum(-1, keepdim=True)))
        position += 1
    keys, values = (torch.stack(rows, 1) for rows in zip(*cache, strict=True)) if cache else (k[:, :0], v[:, :0])
    return stacked(outputs, q, heads, v.shape[-1]), (S, keys, values, torch.full(q.shape[:1], position))


def relation_kl_by_rows(
    q_s, q_t, k_s=None, k_t=None, mask=None, scale_s=None, scale_t=None, causal=True, denominator_heads=None
):
    k_s, k_t = (q if k is None else k for q, k in ((q_s, k_s), (q_t, k_t)))
    scale_s, scale_t = (
        q.shape[-1] ** -0.5 if scale is None else scale for q, scale in ((q_s, scale_s), (q_t, scale_t))
    )
    batch, tokens, heads, _ = q_s.shape
    group = heads // k_s.shape[2]
    total = 0 * q_s.sum()  # a loss of nothing still has a gradient
    for b in range(batch):
        for h in range(heads):
            for i in range(tokens):
                columns = [j for j in range(i + 1 if causal else tokens) if mask is None or (mask[b, i] and mask[b, j])]
                if columns:
                    student = (scale_s * (k_s[b, columns, h // group] @ q_s[b, i, h])).softmax(-1)
                    teacher = (scale_t * (k_t[b, columns, h // group] @ q_t[b, i, h])).softmax(-1).detach()
                    total = total + (teacher * (teacher.log() - student.log())).sum()
    valid = batch * tokens if mask is None else max(1, int(mask.sum()))
    return total / (max(1, valid) * (heads if denominator_heads is None else denominator_heads))


RECURRENCES = {name: globals()[name] for name in FORMULAS if name != "relation_kl"}


# -----------------------------------------------------------------------------------------------------------------
# tools
def deviation(value, expected):
    """|value - expected| / |expected| in the Frobenius norm; the absolute difference where the reference is small."""
    assert value.shape == expected.shape, f"shape {tuple(value.shape)}, expected {tuple(expected.shape)}"
    if not value.is_floating_point():
        return 0.0 if torch.equal(value, expected) else math.inf
    same = value == expected  # equal infinities, the logsumexp of nothing, have no difference
    difference = torch.where(same, 0.0, value - expected)
    return float(
        difference.detach().norm() / expected.detach().masked_fill(same & expected.isinf(), 0.0).norm().clamp(min=1.0)
    )


def differentiable(arguments, state):
    """Copies that ask for gradients, and the list of them by name."""
    leaves = {}

    def copy(name, value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        leaves[name] = value.clone().requires_grad_()
        return leaves[name]

    arguments = {name: copy(name, value) for name, value in arguments.items()}
    if state is not None:
        state = tuple(copy(f"state {index}", value) for index, value in enumerate(state))
    return arguments, state, leaves


def value_and_gradients(function, arguments, state):
    """Output, final state, and the gradients under fixed random cotangents at the output and at every member of the
    final state.
    """
    arguments, state, leaves = differentiable(arguments, state)
    output, final = function(**arguments, initial_state=state)
    generator = torch.Generator().manual_seed(1)
    total = output.new_zeros(())
    for result in (output, *final):
        if result.is_floating_point():
            cotangent = torch.randn(result.shape, dtype=torch.float64, generator=generator)
            total = total + torch.where(result.isfinite(), result * cotangent, 0.0).sum()
    gradients = (
        torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(leaves)
    )
    gradients = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
    return output, final, gradients


def case(name, label="", **settings):
    return pytest.param(name, settings, id=f"{name}-{label}" if label else name)


LOLCATS = [
    case("lolcats", "sliding", window=5, mode="sliding"),
    case("lolcats", "sliding-one", window=1, mode="sliding"),
    case("lolcats", "terraced", window=4),
    case("lolcats", "own-block", window=4, prev_blocks=0),
    case("lolcats", "window-of-all", window=64),
    case("lolcats", "affine", window=4, beta="affine"),
    case("lolcats", "beta-half", window=3, beta=0.5, scale=1.0),
    case("lolcats", "t2r", window=4, feature="t2r"),
    case("lolcats", "t2r-bias", window=4, feature="t2r", bias="vector", mode="sliding"),
    case("lolcats", "t2r-scalar-bias", window=4, feature="t2r", bias="scalar"),
    case("lolcats", "constant-maximum", window=4, max_gradient=False),
    case("lolcats", "grouped", window=3, heads=4, key_heads=1, width=4, value_width=8),
]
BLA = [
    case(
        "bla",
        f"{decay}-{'masked' if masked else 'open'}-{modes}-{period}",
        modes=modes,
        period=period,
        decay=decay,
        masked=masked,
    )
    for decay in ("none", "abs", "signed")
    for masked, modes, period in (
        (True, 2, 5.0),
        (True, 2, 7.0),
        (False, 1, 4.5),
        (True, 3, 14 * math.pi / 3),
        (True, 0, 3.0),
    )
]
CASES = [
    case("linear_attn", "normalised"),
    case("linear_attn", "plain", normalize=False),
    case("linear_attn", "scale", normalize=True, eps=0.1, scale=0.7, heads=3, key_heads=3, width=3, value_width=2),
    case("gla"),
    case("gla", "grouped", heads=4, key_heads=1, width=3, value_width=5, scale=1.0),
    case("simple_gla"),
    case("simple_gla", "grouped", heads=6, key_heads=3, width=4, value_width=7),
    case("retention"),
    case("ssd"),
    case("ssd", "without-D", heads=3, key_heads=1, D=None),
    case("hgrn2"),
    case("hgrn2", "scale", scale=1.0, key_heads=4),
    case("rwkv6"),
    case("rwkv6", "scale", scale=1.0, key_heads=1),
    case("supra"),
    case("supra", "not-affine", weight=None, bias=None, theta=500000.0, eps=1e-3, key_heads=1),
    case("based"),
    case("based", "odd", width=3, value_width=5, scale=0.3, heads=3, key_heads=1, eps=1e-12),
    case("lawcat"),
    case("lawcat", "options", tau=4.0, eps=1e-2, scale=1.0, key_heads=1, width=6, value_width=9),
    case("delta_rule"),
    case("delta_rule", "more-queries", heads=4, key_heads=2, value_heads=2),
    case("gated_delta_rule"),
    case("gated_delta_rule", "more-values", heads=2, key_heads=2, value_heads=4, scale=1.0),
    case("gated_delta_rule", "more-queries", heads=6, key_heads=1, value_heads=3),
    case("gsa"),
    case("gsa", "one-slot", slots=1, key_heads=4, scale=1.0),
    case("abc"),
    case("abc", "grouped", key_heads=1, slots=3),
    *BLA,
    case("swa", "short", window=4),
    case("swa", "one", window=1),
    case("swa", "all", window=100, heads=3, key_heads=1, scale=1.0),
    *LOLCATS,
]
REGIME_CASES = [
    pytest.param(*one.values, regime, id=f"{one.id}-{regime}")
    for one in CASES
    for regime in (REGIMES if one.values[0] in WITH_DECAY else ("ordinary",))
]


# ----------------------------------------------------------------------------------------------- formula against
# recurrence
@pytest.mark.parametrize("with_state", [False, True], ids=["zero-state", "given-state"])
@pytest.mark.parametrize("tokens", [0, 1, 5, 33])
@pytest.mark.parametrize(("name", "settings", "regime"), REGIME_CASES)
def test_formula_agrees_with_recurrence(name, settings, regime, tokens, with_state):
    arguments, state = example(name, tokens=tokens, regime=regime, with_state=with_state, **settings)
    output, final = FORMULAS[name].function(**arguments, initial_state=state)
    expected, expected_final = RECURRENCES[name](**arguments, initial_state=state)
    assert output.dtype == torch.float64
    assert deviation(output, expected) < TOLERANCE
    assert len(final) == len(FORMULAS[name].state)
    for member, value, value_expected in zip(FORMULAS[name].state, final, expected_final, strict=True):
        assert deviation(value, value_expected) < TOLERANCE, member


@pytest.mark.parametrize("with_state", [False, True], ids=["zero-state", "given-state"])
@pytest.mark.parametrize(("name", "settings", "regime"), REGIME_CASES)
def test_gradients_agree_with_recurrence(name, settings, regime, with_state):
    """Autograd through both writings, with a cotangent at the final state and a gradient at the initial one."""
    arguments, state = example(name, tokens=9, regime=regime, with_state=with_state, **settings)
    _, _, gradients = value_and_gradients(FORMULAS[name].function, arguments, state)
    _, _, expected = value_and_gradients(RECURRENCES[name], arguments, state)
    assert gradients.keys() == expected.keys()
    for argument, gradient in gradients.items():
        assert deviation(gradient, expected[argument]) < GRADIENT_TOLERANCE, argument


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_output_continues_from_any_cut(name, settings):
    """Section 1.3: [0, T) equals [0, c), then [c, T) from the returned state; the batch of nothing is empty."""
    arguments, state = example(name, tokens=13, **settings)
    whole, final = FORMULAS[name].function(**arguments, initial_state=state)
    for length in (1, 4, 12):
        output, last = in_segments(name, arguments, length, initial_state=state)
        assert deviation(output, whole) < TOLERANCE
        for value, expected in zip(last, final, strict=True):
            assert deviation(value, expected) < TOLERANCE
    empty, state = example(name, batch=0, tokens=3, **settings)
    output, _ = FORMULAS[name].function(**empty, initial_state=state)
    assert output.shape == (0, 3, *whole.shape[2:])


def test_packed_sequences_are_separate():
    arguments, _ = example("lolcats", batch=1, tokens=12, window=3)
    output, states = packed("lolcats", arguments, torch.tensor([0, 5, 5, 12]))
    rows = FORMULAS["lolcats"].rows
    alone, final = FORMULAS["lolcats"].function(
        **{name: x[:, 5:] if name in rows else x for name, x in arguments.items()}
    )
    assert torch.equal(output[:, 5:], alone)
    assert all(torch.equal(value, expected) for value, expected in zip(states[2], final, strict=True))
    assert int(states[1][-1]) == 0 and states[1][1].shape[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_inputs_of_any_type_are_computed_in_fp64(dtype):
    arguments, _ = example("gla", tokens=5)
    rounded = {name: value.to(dtype) for name, value in arguments.items()}
    output, (final,) = FORMULAS["gla"].function(**rounded)
    expected, (expected_final,) = FORMULAS["gla"].function(**{name: value.double() for name, value in rounded.items()})
    assert torch.equal(output, expected) and torch.equal(final, expected_final)


# ------------------------------------------------------------------------------------------------------------- relation
# KL
KL_CASES = [
    pytest.param(settings, id=label)
    for label, settings in {
        "self": {},
        "grouped": {"keys": True, "key_heads": 1},
        "masked": {"masked": True},
        "masked-keys": {"masked": True, "keys": True, "key_heads": 2, "scale_s": 0.5, "scale_t": 0.9},
        "non-causal": {"causal": False},
        "non-causal-masked": {"causal": False, "masked": True, "keys": True, "denominator_heads": 8},
    }.items()
]


@pytest.mark.parametrize("tokens", [0, 1, 5, 21])
@pytest.mark.parametrize("settings", KL_CASES)
def test_relation_kl_agrees_with_rows(settings, tokens):
    arguments, _ = example("relation_kl", tokens=tokens, **settings)
    arguments, _, leaves = differentiable(arguments, None)
    loss, expected = relation_kl(**arguments), relation_kl_by_rows(**arguments)
    assert deviation(loss, expected) < TOLERANCE
    if tokens:
        students = [leaves[name] for name in ("q_s", "k_s") if name in leaves]
        for gradient, gradient_expected in zip(
            torch.autograd.grad(loss, students), torch.autograd.grad(expected, students), strict=True
        ):
            assert deviation(gradient, gradient_expected) < GRADIENT_TOLERANCE


def test_relation_kl_gradient_of_section_5_2():
    arguments, _ = example("relation_kl", tokens=11, batch=1, heads=1, masked=True)
    student, teacher, mask = arguments["q_s"].requires_grad_(), arguments["q_t"].requires_grad_(), arguments["mask"]
    loss = relation_kl(student, teacher, mask=mask)
    (gradient,) = torch.autograd.grad(loss, student, retain_graph=True)
    assert torch.autograd.grad(loss, teacher, allow_unused=True) == (None,)
    valid = mask[0].nonzero()[:, 0]
    difference = torch.zeros(11, 11, dtype=torch.float64)
    for i in valid.tolist():
        columns = valid[valid <= i]
        for sign, x in ((1, student), (-1, teacher)):
            x = x.detach()[0, :, 0]
            difference[i, columns] += sign * (x.shape[-1] ** -0.5 * x[columns] @ x[i]).softmax(0)
    x = student.detach()[0, :, 0]
    expected = x.shape[-1] ** -0.5 * (difference + difference.T) @ x / len(valid)
    assert deviation(gradient[0, :, 0], expected) < TOLERANCE
    assert deviation(gradient[0, ~mask[0]], torch.zeros(int((~mask).sum()), 1, 8, dtype=torch.float64)) == 0


def test_relation_kl_of_equal_relations_is_zero():
    arguments, _ = example("relation_kl", tokens=7)
    assert float(relation_kl_rows(arguments["q_s"], arguments["q_s"]).abs().max()) < TOLERANCE


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_relation_kl_without_valid_tokens():
    arguments, _ = example("relation_kl", tokens=4)
    student = arguments["q_s"].requires_grad_()
    with torch.autograd.detect_anomaly(check_nan=True):
        loss = relation_kl(student, arguments["q_t"], mask=torch.zeros(2, 4, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(loss, student)
    assert float(loss.detach()) == 0 and not gradient.any()


# ---------------------------------------------------------------------------------------------------------------
# identities
def softmax_attention(q, k, v, window=None):
    """Causal softmax attention, by torch itself; with `window`, over the last so many tokens."""
    heads, tokens = q.shape[2], q.shape[1]
    q, k, v = q.transpose(1, 2), repeated(k.transpose(1, 2), heads), repeated(v.transpose(1, 2), heads)
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if window is not None:
        mask = mask.triu(1 - window)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def formula(name, *arguments, **options):
    return FORMULAS[name].function(*arguments, **options)[0]


@pytest.mark.parametrize("decay", ["none", "abs", "signed"])
def test_bla_with_period_of_slots_is_softmax_attention(decay):
    """Section 3.5: P = N, T <= N."""
    arguments, _ = example("gsa", tokens=9)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("bla", q, k, v, 4, 9.0, decay), softmax_attention(q, k, v)) < TOLERANCE
    assert deviation(formula("bla", q, k, v, 4, 9.0, decay, masked=False), softmax_attention(q, k, v)) > 1e-3


@pytest.mark.parametrize("decay", ["abs", "signed"])
def test_bla_with_period_of_slots_is_sliding_window(decay):
    """Section 3.5: P = N, any T."""
    arguments, _ = example("gsa", tokens=40)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("bla", q, k, v, 3, 7.0, decay), softmax_attention(q, k, v, window=7)) < TOLERANCE


def test_bla_without_decay_adds_up_residue_classes():
    """Section 3.5: with P = N slot n holds the sum of all k_t with t mod N = n."""
    arguments, _ = example("gsa", tokens=23)
    _, (keys, _, _) = FORMULAS["bla"].function(*(arguments[name] for name in "qkv"), modes=2, period=5.0)
    expected = torch.stack([arguments["k"][:, n::5].sum(1) for n in range(5)], 2)
    assert deviation(keys, expected) < TOLERANCE


@pytest.mark.parametrize(("modes", "period"), [(4, 9.0), (4, 13.5), (4, 18.0), (16, 49.5)])
def test_bla_slot_weights(modes, period):
    """Section 3.5: signed weights of a slot sum to 1 once it was hit; absolute weights of `abs` at most 1."""
    ones = torch.ones(1, 150, 1, 1, dtype=torch.float64)
    for decay in ("signed", "abs"):
        _, (_, values, _) = FORMULAS["bla"].function(ones, ones, ones, modes, period, decay)
        if decay == "signed":
            assert deviation(values[:, :, :1], torch.ones_like(values[:, :, :1])) < TOLERANCE
        else:
            assert float(values.abs().max()) <= 1 + TOLERANCE


@pytest.mark.parametrize(("modes", "period"), [(0, 3), (1, 4), (4, 18), (4, 9)])
def test_dirichlet_weights(modes, period):
    """Sections 3.1 and 3.5: range, period, sum over a period equal to r = P / N."""
    slots = 2 * modes + 1
    weights = dirichlet_weights(torch.arange(5 * period)[None], modes, float(period))[0]
    assert float(weights.max()) <= 1 and float(weights.min()) >= -1 / 3 - TOLERANCE
    assert torch.equal(weights[:period], weights[-period:])
    if period >= slots:
        assert deviation(weights[:period].sum(0), torch.full((slots,), period / slots, dtype=torch.float64)) < TOLERANCE
    far = dirichlet_weights(torch.tensor([[10**9 * period + 1]]), modes, float(period))[0]
    assert torch.equal(far[0], weights[1])


def test_dirichlet_weights_just_below_the_end_of_a_period():
    """Section 3.4: 21 is five periods of 4.2, and yet fmod(21, 4.2) is a rounding below 4.2."""
    assert math.fmod(21, 4.2) > 4
    assert dirichlet_weights(torch.tensor([[21]]), 1, 4.2).tolist() == [[[1.0, 0.0, 0.0]]]


def test_bla_with_absolute_decay_is_gsa():
    """Section 3.5: without mask, s = w and log a = log(1 - |w|), -inf on the grid."""
    arguments, state = example("bla", tokens=31, modes=3, period=10.5, decay="abs", masked=False)
    q, k, v = (arguments[name] for name in "qkv")
    weights = dirichlet_weights(state[2][:, None] + torch.arange(31), 3, 10.5)[:, :, None].expand(
        -1, -1, k.shape[2], -1
    )
    log_decay = (1 - weights.abs()).log()
    assert bool((log_decay == -math.inf).any())
    output, final = FORMULAS["bla"].function(**arguments, initial_state=state)
    expected, expected_final = FORMULAS["gsa"].function(q, k, v, weights, log_decay, initial_state=state[:2])
    assert deviation(output, expected) < TOLERANCE
    assert deviation(final[0], expected_final[0]) < TOLERANCE and deviation(final[1], expected_final[1]) < TOLERANCE


def test_abc_is_gsa_with_running_softmax():
    """Section 6.5: the stable form."""
    arguments, _ = example("abc", tokens=17)
    total = arguments["s"].logcumsumexp(1)
    before = torch.cat([torch.full_like(total[:, :1], -math.inf), total[:, :-1]], 1)
    q, k, v = (arguments[name] for name in "qkv")
    assert (
        deviation(formula("abc", **arguments), formula("gsa", q, k, v, (arguments["s"] - total).exp(), before - total))
        < TOLERANCE
    )


def test_gsa_with_one_hot_writes_is_softmax_attention():
    arguments, _ = example("gsa", tokens=6, slots=6)
    q, k, v = (arguments[name] for name in "qkv")
    write = torch.eye(6, dtype=torch.float64)[None, :, None].expand(2, 6, 2, 6)
    # A slot not yet written holds a zero key that takes weight, so that only the last token sees plain softmax
    # attention.
    output = formula("gsa", q, k, v, write, torch.zeros_like(write))
    assert deviation(output[:, -1], softmax_attention(q, k, v)[:, -1]) < TOLERANCE


def test_lawcat_averages_its_values():
    """Section 2.2: with all values equal to 1, o = 1, up to the epsilon."""
    arguments, _ = example("lawcat", tokens=19, eps=0.0)
    arguments["v"] = torch.ones_like(arguments["v"])
    output = formula("lawcat", **arguments)
    assert deviation(output, torch.ones_like(output)) < TOLERANCE


def test_lawcat_with_open_gate_and_identity_taps_is_linear_attention():
    """Sections 2.2, 2.6 and 6.1, written with the feature maps of this file."""
    arguments, _ = example("lawcat", tokens=12, key_heads=4)
    taps = torch.zeros(4, 8, 4, dtype=torch.float64)
    taps[..., -1] = 1
    arguments.update(conv_q=taps, conv_k=taps, z=torch.full_like(arguments["z"], math.inf))
    q, k = (two_softmaxes(arguments[name], arguments["w_phi"]) for name in "qk")
    assert deviation(formula("lawcat", **arguments), formula("linear_attn", q, k, arguments["v"])) < TOLERANCE


def test_decays_of_one_are_linear_attention():
    arguments, _ = example("gla", tokens=15)
    q, k, v = (arguments[name] for name in "qkv")
    expected = formula("linear_attn", q, k, v, normalize=False)
    zeros = torch.zeros_like(arguments["g"])
    assert deviation(formula("gla", q, k, v, zeros), expected) < TOLERANCE
    assert deviation(formula("simple_gla", q, k, v, zeros[..., 0]), expected) < TOLERANCE
    # RWKV-6 with a bonus of 1 reads the token's own write; without it, only the earlier ones.
    assert deviation(formula("rwkv6", q, k, v, zeros, torch.ones(2, 8)), expected) < TOLERANCE
    # A key that is not erased: the delta rule without recall, on orthogonal keys.
    orthogonal = torch.eye(15, dtype=torch.float64)[None, :, None].expand(2, -1, 2, -1)
    query = torch.randn(2, 15, 4, 15, dtype=torch.float64)
    beta = torch.ones(2, 15, 2, dtype=torch.float64)
    assert (
        deviation(
            formula("delta_rule", query, orthogonal, v, beta),
            formula("linear_attn", query, orthogonal, v, normalize=False),
        )
        < TOLERANCE
    )


def test_hgrn2_is_gla_with_complementary_keys():
    """Section 6.4."""
    arguments, state = example("hgrn2", tokens=21, regime="zeros")
    q, f, v = (arguments[name] for name in "qfv")
    assert (
        deviation(
            formula("hgrn2", q, f, v, initial_state=state), formula("gla", q, 1 - f, v, f.log(), initial_state=state)
        )
        < TOLERANCE
    )


def test_hgrn2_gradient_at_zero_has_both_terms():
    """Section 6.4: df = rowsum(dS_t * S_{t-1}) - dk, by differences on one side."""
    arguments, state = example("hgrn2", tokens=6, batch=1, heads=1, key_heads=1)
    q, v = arguments["q"], arguments["v"]
    forget = torch.zeros_like(arguments["f"]).requires_grad_()
    output = formula("hgrn2", q, forget, v, initial_state=state)
    cotangent = torch.randn_like(output)
    (gradient,) = torch.autograd.grad((output * cotangent).sum(), forget)
    step = torch.zeros_like(forget)
    step[0, 3, 0, 2] = 1e-3
    moved, output = formula("hgrn2", q, forget.detach() + step, v, initial_state=state), output.detach()
    # The output is linear in a single factor, so that the difference is exact.
    assert abs(float(((moved - output) * cotangent).sum()) / 1e-3 - float(gradient[0, 3, 0, 2])) < 1e-10


def test_ssd_is_gla_with_one_decay():
    """Section 6.3."""
    arguments, state = example("ssd", tokens=14, key_heads=4, D=None)
    decay = -arguments["dt"] * arguments["A_log"].exp()
    expected = formula(
        "simple_gla",
        arguments["C"],
        arguments["B"],
        arguments["dt"][..., None] * arguments["x"],
        decay,
        scale=1.0,
        initial_state=state,
    )
    assert deviation(formula("ssd", **arguments, initial_state=state), expected) < TOLERANCE


def test_retention_is_simple_gla():
    arguments, state = example("retention", tokens=14)
    decay = torch.log1p(-(2.0 ** (-5 - torch.arange(2, dtype=torch.float64)))).expand(2, 14, 2)
    expected = formula("simple_gla", **arguments, g=decay, initial_state=state)
    assert deviation(formula("retention", **arguments, initial_state=state), expected) < TOLERANCE


def test_delta_rule_recalls_the_last_value_of_a_key():
    """Section 6.8 with beta = 1 and keys of length 1: q = k reads back v."""
    arguments, state = example("delta_rule", tokens=10, key_heads=4)
    arguments.update(q=arguments["k"], beta=torch.ones_like(arguments["beta"]))
    assert deviation(formula("delta_rule", **arguments, scale=1.0, initial_state=state), arguments["v"]) < TOLERANCE


def test_exact_zero_forgets_everything_before():
    arguments, state = example("gated_delta_rule", tokens=12)
    arguments["g"][:, 5] = -math.inf
    whole = formula("gated_delta_rule", **arguments, initial_state=state)
    rest = formula("gated_delta_rule", **{name: value[:, 5:] for name, value in arguments.items()})
    assert deviation(whole[:, 5:], rest) < TOLERANCE


def test_based_weights_are_a_polynomial():
    """Section 6.10: 1 + s + s^2/2, here through the 153 features of the upper triangle."""
    arguments, _ = example("based", tokens=10, key_heads=4, width=16)
    rows, columns = torch.triu_indices(16, 16)

    def features(x):
        square = x[..., rows] * x[..., columns]
        square = torch.where(rows == columns, square / math.sqrt(2), square)
        return torch.cat([torch.ones_like(x[..., :1]), x, square], -1)

    q, k = (features(arguments[name] * 16**-0.25) for name in "qk")
    assert q.shape[-1] == 153
    expected = formula("linear_attn", q, k, arguments["v"], eps=1e-6, scale=1.0)
    assert deviation(formula("based", **arguments), expected) < TOLERANCE


def test_supra_has_centred_outputs_and_relative_positions():
    """Section 6.7: the norm, and the rotation, which makes the output independent of the position of the start."""
    arguments, _ = example("supra", tokens=8, weight=None, bias=None, eps=1e-12)
    output = formula("supra", **arguments)
    assert float(output.mean(-1).abs().max()) < TOLERANCE
    zero = torch.zeros(2, 4, 8, 6, dtype=torch.float64)
    shifted = formula("supra", **arguments, initial_state=(zero, torch.tensor([1000, 3])))
    assert deviation(shifted, output) < 1e-10


@pytest.mark.parametrize("window", [1, 3, 50])
def test_swa_is_masked_attention(window):
    arguments, _ = example("swa", tokens=20, window=window)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("swa", q, k, v, window), softmax_attention(q, k, v, window)) < TOLERANCE


@pytest.mark.parametrize(
    "settings", [{"mode": "sliding"}, {}, {"prev_blocks": 0}], ids=["sliding", "terraced", "own-block"]
)
def test_lolcats_within_a_window_is_softmax_attention(settings):
    """Section 4.2 while no key is old: gamma cancels."""
    arguments, _ = example("lolcats", tokens=16, window=16, **settings)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("lolcats", **arguments), softmax_attention(q, k, v)) < TOLERANCE


def test_lolcats_without_window_is_linear_attention():
    """Sections 4.4 and 6.1: gamma -> 0 leaves the old keys; at a window of 1 those are all but the last."""
    arguments, _ = example("lolcats", tokens=16, window=1, mode="sliding", key_heads=4)
    arguments["factor"] = torch.full((4,), -800.0, dtype=torch.float64)
    q, k = two_softmaxes(arguments["q"], arguments["w_q"]), two_softmaxes(arguments["k"], arguments["w_k"])
    expected = formula("linear_attn", q[:, 1:], k[:, :-1], arguments["v"][:, :-1], eps=0.0, scale=1.0)
    assert deviation(formula("lolcats", **arguments)[:, 1:], expected) < TOLERANCE


def test_lolcats_splits_the_gradient_of_a_tied_maximum():
    """Section 4.2: equal keys share the gradient that flows through the maximum."""
    arguments, _ = example("lolcats", tokens=12, window=4, batch=1, heads=1, key_heads=1)
    arguments["k"][:] = arguments["k"][:, :1]
    keys = arguments["k"].requires_grad_()
    output = formula("lolcats", **arguments)
    (gradient,) = torch.autograd.grad(output[:, -1].sum(), keys)
    # Tokens 4 .. 11 are the window of token 11; the values differ, the parts through the maximum do not. Those parts
    # alone remain in the difference to the gradient with a constant maximum.
    constant = formula("lolcats", **arguments, max_gradient=False)
    (without,) = torch.autograd.grad(constant[:, -1].sum(), keys)
    through_maximum = (gradient - without)[0, 4:, 0]
    assert float(through_maximum.abs().max()) > 1e-6
    assert deviation(through_maximum, through_maximum[:1].expand(8, -1)) < TOLERANCE
    assert torch.equal(gradient[0, :4], without[0, :4])


def test_lolcats_maximum_is_the_exact_one():
    """Section 4.2: a constant added to all scores is removed by the maximum; one left in them changes the output."""
    arguments, _ = example("lolcats", tokens=12, window=3, heads=2, key_heads=2, scale=1.0)
    output = formula("lolcats", **arguments)
    # One more channel adds 5 to every score; the feature maps do not see it.
    query, key = (
        torch.nn.functional.pad(arguments[name], (0, 1), value=value) for name, value in (("q", 1.0), ("k", 5.0))
    )
    blind = {name: torch.nn.functional.pad(arguments[name], (0, 0, 0, 1)) for name in ("w_q", "w_k")}
    shifted = formula("lolcats", **{**arguments, **blind, "q": query, "k": key})
    assert deviation(shifted, output) < TOLERANCE
    # Window weights too small by e^-5, as a bound 5 above the maximum would make them: the same until keys are old.
    gamma = torch.sigmoid(arguments["factor"]) * math.exp(-5)
    bounded = formula("lolcats", **{**arguments, "factor": torch.log(gamma / (1 - gamma))})
    assert deviation(bounded[:, :6], output[:, :6]) < TOLERANCE
    assert deviation(bounded[:, 6:], output[:, 6:]) > 1e-3


def test_example_regimes_reach_their_extremes():
    for name in WITH_DECAY:
        for regime in REGIMES:
            arguments, _ = example(name, regime=regime)
            assert all(not value.isnan().any() for value in arguments.values() if isinstance(value, torch.Tensor)), (
                name,
                regime,
            )
    arguments, _ = example("gla", regime="zeros")
    assert bool((arguments["g"] == -math.inf).any())
    arguments, _ = example("lawcat", regime="mixed")
    assert bool((arguments["z"] == -math.inf).any()) and bool((arguments["z"] == math.inf).any())
