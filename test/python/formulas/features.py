"""Diagonal recurrences behind feature maps of their own: LAWCAT (section 2), SUPRA (6.7), Based (6.10), and the maps
themselves.
"""

import torch

from .algebra import (
    decay_products,
    default_scale,
    divide,
    double,
    heads_first,
    spread,
    state_or_zero,
    time_first,
    weighted_values,
    with_ones,
)


def hedgehog(row, weight):
    """max([softmax(y), softmax(-y)], 1e-12), y = x W: two softmaxes over F features each. Sections 2.2 and 4.4.

    `row` [B, H, T, D], `weight` [H, D, F], result [B, H, T, 2F].
    """
    logits = torch.einsum("bhtd,hdf->bhtf", row, weight)
    return torch.cat([logits.softmax(-1), (-logits).softmax(-1)], -1).clamp(min=1e-12)


def t2r(row, weight, bias=None, floor=1e-12):
    """max(relu(x W + b), floor), `weight` [H, D, F], `bias` [H, F] or [H, 1], one a head. Sections 4.4 and 6.7."""
    logits = torch.einsum("bhtd,hdf->bhtf", row, weight)
    if bias is not None:
        logits = logits + bias[:, None]
    return logits.relu().clamp(min=floor)


def rotary(row, position, theta):
    """Rotate the channel pairs (i, i + F/2) by position * theta^(-2i/F). Section 6.7. `row` [B, H, T, F], `position`
    [B, T].

    Written as a product of complex numbers, one for a pair.
    """
    half = row.shape[-1] // 2
    frequency = theta ** (-torch.arange(half, dtype=torch.float64, device=row.device) / half)
    angle = position.double()[:, None, :, None] * frequency
    turned = torch.complex(row[..., :half], row[..., half:]) * torch.polar(torch.ones_like(angle), angle)
    return torch.cat([turned.real, turned.imag], -1)


def convolve(row, taps, tail):
    """y_t = sum_{j=0..3} taps[3-j] * x_{t-j} for each head and channel, and the last three inputs as the new tail.
    Section 2.2.

    `row` [B, T, H, D], `taps` [H, D, 4] (or [H*D, 4]), `tail` [B, 3, H, D]: the inputs before the first, in time order.
    """
    tokens = row.shape[1]
    taps = taps.reshape(*row.shape[2:], taps.shape[-1])
    reach = taps.shape[-1] - 1
    padded = torch.cat([tail, row], 1)
    output = sum(taps[..., reach - lag] * padded[:, reach - lag : reach - lag + tokens] for lag in range(reach + 1))
    return output, padded[:, tokens:]


def lawcat(q, k, v, z, conv_q, conv_k, w_phi, tau=16.0, eps=1e-10, scale=None, initial_state=None):
    """GLA on Hedgehog features of convolved queries and keys, divided by the sum of its weights. Section 2.

    q [B,T,H,D]; k, v, z [B,T,G,D]; conv_q [H,D,4], conv_k [G,D,4]; w_phi [H,D,D/2]; log decay logsigmoid(z)/tau.
    State: S [B, H, D, V+1] (last column: sum of the features), then the tails tail_q [B, 3, H, D] and tail_k [B, 3, G,
    D].
    """
    batch, _, heads, width = q.shape
    query, key, value, gate, taps_q, taps_k, weight = double(q, k, v, z, conv_q, conv_k, w_phi)
    initial, tail_q, tail_k = state_or_zero(
        initial_state,
        (batch, heads, width, v.shape[-1] + 1),
        (batch, taps_q.shape[-1] - 1, heads, width),
        (batch, taps_k.shape[-1] - 1, k.shape[2], width),
        like=query,
    )
    query, tail_q = convolve(query, taps_q, tail_q)
    key, tail_k = convolve(key, taps_k, tail_k)
    query, key, value, gate = heads_first(query, key, value, gate)
    query = hedgehog(query, weight) * default_scale(scale, width)
    key = hedgehog(spread(key, heads), weight)
    log_decay = spread(torch.nn.functional.logsigmoid(gate) / tau, heads)
    value = with_ones(spread(value, heads))
    output, final = weighted_values(query, key, value, decay_products(log=log_decay), initial)
    return time_first(divide(output, eps)), (final, tail_q, tail_k)


def supra(q, k, v, w_q, b_q, w_k, b_k, log_gamma, weight=None, bias=None, theta=10000.0, eps=1e-5, initial_state=None):
    """GroupNorm of sum_{j<=t} gamma^(t-j) (phi_q(q_t) . phi_k(k_j)) v_j, phi(x) = RoPE(relu(x W + b)). Section 6.7.

    q [B,T,H,D]; k [B,T,G,D]; v [B,T,G,V]; w_q, w_k [H,D,F]; b_q, b_k [H,F]; log_gamma [H]; weight, bias [H,V].
    State: S [B, H, F, V], then position [B] int64, the tokens seen so far.
    """
    batch, tokens, heads, _ = q.shape
    query, key, value = heads_first(q, k, v)
    map_q, shift_q, map_k, shift_k, log_decay, gain, offset = double(w_q, b_q, w_k, b_k, log_gamma, weight, bias)
    start = torch.zeros(batch, dtype=torch.int64, device=q.device)
    if initial_state is not None:
        *initial_state, start = initial_state
    (initial,) = state_or_zero(initial_state, (batch, heads, map_k.shape[-1], v.shape[-1]), like=query)
    position = start[:, None] + torch.arange(tokens, device=q.device)
    query = rotary(t2r(query, map_q, shift_q, 0.0), position, theta)
    key = rotary(t2r(spread(key, heads), map_k, shift_k, 0.0), position, theta)
    edge = torch.arange(tokens + 1, device=q.device)
    age = (edge[:, None] - edge[None, :]).clamp(min=0)
    # A log decay of -inf still keeps the token itself: e^(0 * -inf) is an empty product.
    exponent = torch.where(age > 0, age * log_decay[:, None, None], 0.0)
    products = (
        torch.where(edge[:, None] >= edge[None, :], exponent.exp(), 0.0).unsqueeze(-1).expand(batch, -1, -1, -1, -1)
    )
    output, final = weighted_values(query, key, spread(value, heads), products, initial)
    output = torch.nn.functional.layer_norm(output, output.shape[-1:], eps=eps)
    if gain is not None:
        output = output * gain[:, None] + offset[:, None]
    return time_first(output), (final, start + tokens)


def based(q, k, v, eps=1e-6, scale=None, initial_state=None):
    """Normalised attention with weights 1 + s + s^2/2, s = scale q_t . k_j. Section 6.10.

    The weights are taken from s itself, not from features; features appear only for the state, whose rows are the map
    of an unscaled key, (1, k, vec(k k^T) / sqrt 2). State: S [B, G, 1+K+K*K, V+1].
    """
    query, key, value = heads_first(q, k, v)
    batch, key_heads, _, width = key.shape
    query = query * default_scale(scale, width)
    value = with_ones(value)
    (initial,) = state_or_zero(initial_state, (batch, key_heads, 1 + width + width**2, value.shape[-1]), like=key)

    def features(row):
        square = torch.einsum("...i,...j->...ij", row, row).flatten(-2) / 2**0.5
        return torch.cat([torch.ones_like(row[..., :1]), row, square], -1)

    logits = torch.einsum("bhik,bhjk->bhij", query, spread(key, query.shape[1]))
    weights = (1 + logits + logits**2 / 2).tril()
    output = torch.einsum("bhij,bhjv->bhiv", weights, spread(value, query.shape[1]))
    output = output + torch.einsum("bhip,bhpv->bhiv", features(query), spread(initial, query.shape[1]))
    final = initial + torch.einsum("bgjp,bgjv->bgpv", features(key), value)
    return time_first(divide(output, eps)), (final,)
