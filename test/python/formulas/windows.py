"""Attention that looks back at tokens: sliding windows (section 6.6), LoLCATs (4), the relation KL of LinearARD (5)."""

import math

import torch

from .algebra import (
    default_scale,
    divide,
    double,
    heads_first,
    masked_softmax,
    spread,
    state_or_zero,
    time_first,
    with_ones,
)
from .features import hedgehog, t2r


def swa(q, k, v, window, scale=None, initial_state=None):
    """Softmax attention of token t over the tokens t-w+1 .. t. Section 6.6.

    State: the newest min(t, w) keys [B, n, G, K] and values [B, n, G, V] in time order. Of a given state the newest w-1
    count.
    """
    heads, tokens = q.shape[2], q.shape[1]
    query, key, value = double(q, k, v)
    cached = 0
    if initial_state is not None:
        keys, values = double(*initial_state)
        cached = keys.shape[1]
        key, value = torch.cat([keys, key], 1), torch.cat([values, value], 1)
    token = torch.arange(tokens, device=q.device)[:, None]
    past = torch.arange(-cached, tokens, device=q.device)
    mask = (past <= token) & (past > token - window)
    logits = torch.einsum("bihd,bjhd->bhij", query, spread(key, heads, 2)) * default_scale(scale, q.shape[-1])
    output = torch.einsum("bhij,bjhv->bihv", masked_softmax(logits, mask), spread(value, heads, 2))
    kept = max(0, cached + tokens - window)
    return output, (key[:, kept:], value[:, kept:])


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
    """Softmax over a window and linear attention over all older tokens, with one denominator. Sections 4.2 to 4.5.

    o_t = (sum_Win e_tj v_j + beta sum_Old (phi_q(q_t).phi_k(k_j)) v_j) / (the same without v), e_tj = sigmoid(factor)
    e^{s_tj - max s_t}. q [B,T,H,D]; k, v [B,T,G,.]; w_q, w_k [H,D,F]; factor [H]; b_q, b_k [H,F] or [H,1], used by t2r
    only (Hedgehog has no bias). `beta` is a number or "affine", 1 - sigmoid(factor). Without `max_gradient` the maximum
    counts as a constant in the gradient.

    State: S [B, H, 2F or F, V+1], the sum over the keys that have left the window of the last token (last column: sum
    of the features); then the keys [B, n, G, D] and values [B, n, G, V] from the first token of that window on; then
    position [B] int64, the tokens seen so far, the same number throughout the batch.
    """
    batch, tokens, heads, width = q.shape
    query, key, value, map_q, map_k, shift_q, shift_k = double(q, k, v, w_q, w_k, b_q, b_k)
    features = t2r if feature == "t2r" else lambda row, weight, bias: hedgehog(row, weight)
    feature_width = map_k.shape[-1] * (1 if feature == "t2r" else 2)

    start = 0
    position = torch.zeros(batch, dtype=torch.int64, device=q.device)
    if initial_state is not None:
        *initial_state, keys, values, position = initial_state
        start = int(position[0]) if batch else 0
        if (position != start).any():
            raise ValueError("positions differ within the batch")
        key, value = torch.cat([keys.double(), key], 1), torch.cat([values.double(), value], 1)
    (initial,) = state_or_zero(initial_state, (batch, heads, feature_width, v.shape[-1] + 1), like=query)

    def first_of_window(token):
        first = token - window + 1 if mode == "sliding" else (token // window - prev_blocks) * window
        return first.clamp(min=0)

    past = torch.arange(start + tokens - key.shape[1], start + tokens, device=q.device)
    token = torch.arange(start, start + tokens, device=q.device)[:, None]
    in_window = (past <= token) & (past >= first_of_window(token))
    older = past < first_of_window(token)

    raw_key, raw_value = key, value
    query, key, value = heads_first(query, spread(key, heads, 2), with_ones(spread(value, heads, 2)))
    logits = torch.where(
        in_window, torch.einsum("bhid,bhjd->bhij", query, key) * default_scale(scale, width), -math.inf
    )
    if tokens:
        maximum = logits.amax(-1, keepdim=True)
        logits = logits - (maximum if max_gradient else maximum.detach())
    gamma = factor.double().sigmoid()[:, None, None]
    mix = 1 - gamma if beta == "affine" else beta
    mapped_query, mapped_key = features(query, map_q, shift_q), features(key, map_k, shift_k)
    linear = torch.einsum("bhip,bhjp->bhij", mapped_query, mapped_key)
    sums = torch.einsum("bhij,bhjv->bhiv", gamma * logits.exp() + mix * torch.where(older, linear, 0.0), value)
    sums = sums + mix * torch.einsum("bhip,bhpv->bhiv", mapped_query, initial)

    last = torch.tensor(start + tokens - 1, device=q.device)
    left = past < first_of_window(last)
    final = initial + torch.einsum("bhjp,bhjv->bhpv", mapped_key[:, :, left], value[:, :, left])
    return time_first(divide(sums, 0.0)), (final, raw_key[:, ~left], raw_value[:, ~left], position + tokens)


def relation_kl_rows(q_s, q_t, k_s=None, k_t=None, mask=None, scale_s=None, scale_t=None, causal=True):
    """KL(teacher || student) of every row of two relations, [B, T, H]. Section 5.1. Arguments as in `relation_kl`."""
    heads = q_s.shape[2]

    def log_relation(query, key, scale):
        query, key = heads_first(query, query if key is None else key)
        logits = torch.einsum("bhid,bhjd->bhij", query, spread(key, heads)) * default_scale(scale, query.shape[-1])
        logits = torch.where(allowed, logits, -math.inf)
        return torch.where(allowed, torch.where(row_counts, logits, 0.0).log_softmax(-1), 0.0)

    token = torch.arange(q_s.shape[1], device=q_s.device)
    allowed = (token <= token[:, None]) if causal else torch.ones_like(token, dtype=torch.bool).expand(len(token), -1)
    allowed = allowed[None, None].expand(q_s.shape[0], 1, -1, -1)
    if mask is not None:
        allowed = allowed & mask.bool()[:, None, None] & mask.bool()[:, None, :, None]
    row_counts = allowed.any(-1, keepdim=True)
    student = log_relation(q_s, k_s, scale_s)
    teacher = log_relation(q_t.detach(), None if k_t is None else k_t.detach(), scale_t)
    return time_first(torch.where(allowed, teacher.exp() * (teacher - student), 0.0).sum(-1))


def relation_kl(
    q_s, q_t, k_s=None, k_t=None, mask=None, scale_s=None, scale_t=None, causal=True, denominator_heads=None
):
    """sum over batch, heads, rows of KL(softmax(scale_t q_t k_t^T) || softmax(scale_s q_s k_s^T)) / (valid tokens *
    heads). Section 5.1.

    q_s [B,T,H,Ds], q_t [B,T,H,Dt]; keys with G heads, by default the queries themselves; mask [B,T] of valid tokens;
    the divisor counts `denominator_heads`, by default H. The teacher gets no gradient. Returns the loss alone: there is
    no state.
    """
    batch, tokens, heads, _ = q_s.shape
    valid = batch * tokens if mask is None else int(mask.bool().sum())
    rows = relation_kl_rows(q_s, q_t, k_s, k_t, mask, scale_s, scale_t, causal)
    return rows.sum() / (max(1, valid) * (heads if denominator_heads is None else denominator_heads))
