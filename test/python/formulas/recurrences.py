"""A second writing of the specification: one token after the other, as its sections define it.

As simple as can be: Python loops over batch, heads and tokens are avoided only where a row of the specification is
already a tensor expression. They share nothing with the other formulas, not even the feature maps. A row at token t is
[B, H, D]; a state is [B, H, K, V].
"""

import math

import torch

from . import FORMULAS


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
