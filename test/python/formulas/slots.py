"""Slot attention: every slot is a weighted sum of the keys and of the values so far. BLA (section 3), GSA and ABC
(6.5).
"""

import math

import torch

from .algebra import decay_products, default_scale, heads_first, masked_softmax, state_or_zero, time_first


def read_slots(query, key, value, from_start, from_token, initial_keys, initial_values, scale, open_slots=None):
    """o_t = softmax_n(scale q_t . K_t[n]) V_t, with K_t[n] = c_t[n] K_0[n] + sum_{j<=t} c_tj[n] k_j, and V_t likewise.

    `from_start` [B, G, T+1, N] and `from_token` [B, G, T+1, T, N] hold the weights c at every edge. `open_slots` [B, T,
    N] is the mask.
    """

    def contents(rows, initial):
        return from_start.unsqueeze(-1) * initial.unsqueeze(2) + torch.einsum("bgejn,bgjd->bgend", from_token, rows)

    keys, values = contents(key, initial_keys), contents(value, initial_values)
    query = query.unflatten(1, (key.shape[1], query.shape[1] // key.shape[1])) * scale
    logits = torch.einsum("bgrtk,bgtnk->bgrtn", query, keys[:, :, 1:])
    mask = (
        torch.ones_like(logits, dtype=torch.bool) if open_slots is None else open_slots[:, None, None].expand_as(logits)
    )
    output = torch.einsum("bgrtn,bgtnv->bgrtv", masked_softmax(logits, mask), values[:, :, 1:])
    return output.flatten(1, 2), (keys[:, :, -1], values[:, :, -1])


def gsa(q, k, v, s, g, scale=None, initial_state=None):
    """Slot n of token t holds sum_{j<=t} s_j[n] e^{g_{j+1} + .. + g_t}[n] k_j, and the same of v. Section 6.5.

    s and g (log decay) are [B,T,G,N]. State: keys [B, G, N, K], values [B, G, N, V].
    """
    query, key, value, write, log_decay = heads_first(q, k, v, s, g)
    slots = write.shape[-1]
    initial_keys, initial_values = state_or_zero(
        initial_state, (*key.shape[:2], slots, key.shape[-1]), (*key.shape[:2], slots, value.shape[-1]), like=key
    )
    products = decay_products(log=log_decay)
    output, final = read_slots(
        query,
        key,
        value,
        products[:, :, :, 0],
        products[:, :, :, 1:] * write.unsqueeze(2),
        initial_keys,
        initial_values,
        default_scale(scale, key.shape[-1]),
    )
    return time_first(output), final


def abc(q, k, v, s, scale=None, initial_state=None):
    """Slot n of token t holds sum_{j<=t} softmax_{j<=t}(s_j[n]) k_j, and the same of v. Section 6.5.

    An initial state counts as one more token, whose score is L. s is [B,T,G,N].
    State: keys [B, G, N, K], values [B, G, N, V], then the scan total [B, G, N], the logsumexp of all scores, -inf
    before the first token.
    """
    query, key, value, score = heads_first(q, k, v, s)
    tokens, slots = score.shape[2:]
    shapes = (*key.shape[:2], slots, key.shape[-1]), (*key.shape[:2], slots, value.shape[-1]), (*key.shape[:2], slots)
    if initial_state is None:
        initial_keys, initial_values, total = state_or_zero(None, *shapes, like=key)
        total = total - math.inf
    else:
        initial_keys, initial_values, total = state_or_zero(initial_state, *shapes, like=key)
    scores = torch.cat([total.unsqueeze(2), score], 2)
    edge = torch.arange(tokens + 1, device=key.device)
    seen = (edge[:, None] >= edge[None, :])[:, :, None]
    # At edge 0 without a state nothing has been seen: masked_softmax gives weights of 0, and the slots are the zero
    # state.
    weights = masked_softmax(scores.unsqueeze(2), seen & (scores > -math.inf).unsqueeze(2), dim=3)
    output, final = read_slots(
        query,
        key,
        value,
        weights[:, :, :, 0],
        weights[:, :, :, 1:],
        initial_keys,
        initial_values,
        default_scale(scale, key.shape[-1]),
    )
    return time_first(output), (*final, scores.logsumexp(2) if tokens else total)


def dirichlet_weights(position, modes, period):
    """w[t, n] = D(N t / P - n), exactly 0 or 1 on the grid. Sections 3.1 and 3.4. `position` [B, T] int64, result [B,
    T, N] fp64.
    """
    slots = 2 * modes + 1
    time = slots * torch.fmod(position.double(), period) / period
    offset = time.unsqueeze(-1) - torch.arange(slots, device=position.device)
    mode = torch.arange(1, modes + 1, dtype=torch.float64, device=position.device)
    kernel = (1 + 2 * torch.cos(2 * math.pi * mode * offset.unsqueeze(-1) / slots).sum(-1)) / slots
    nearest = offset.round()
    on_grid = (offset - nearest).abs() < 1e-9
    return torch.where(on_grid, (nearest % slots == 0).double(), kernel)


def bla(q, k, v, modes, period, decay="none", masked=True, scale=None, initial_state=None):
    """Slot n of token t holds sum_{j<=t} w_{j,n} a_{j+1,n} .. a_{t,n} k_j, a = 1, 1 - |w| or 1 - w; open once n P / N
    <= t. Section 3.

    N = 2 modes + 1. State: keys [B, G, N, K], values [B, G, N, V], then position [B] int64, the tokens seen so far.
    """
    query, key, value = heads_first(q, k, v)
    batch, key_heads, tokens, _ = key.shape
    slots = 2 * modes + 1
    start = torch.zeros(batch, dtype=torch.int64, device=key.device)
    if initial_state is not None:
        *initial_state, start = initial_state
    initial_keys, initial_values = state_or_zero(
        initial_state, (batch, key_heads, slots, key.shape[-1]), (batch, key_heads, slots, value.shape[-1]), like=key
    )
    position = start[:, None] + torch.arange(tokens, device=key.device)
    write = dirichlet_weights(position, modes, period)
    factor = {"none": torch.ones_like(write), "abs": 1 - write.abs(), "signed": 1 - write}[decay]
    products = decay_products(factor=factor.unsqueeze(1)).expand(-1, key_heads, -1, -1, -1)
    centre = torch.arange(slots, dtype=torch.float64, device=key.device) * period / slots
    open_slots = centre <= position.unsqueeze(-1) + 1e-9 if masked else None
    output, final = read_slots(
        query,
        key,
        value,
        products[:, :, :, 0],
        products[:, :, :, 1:] * write[:, None, None],
        initial_keys,
        initial_values,
        default_scale(scale, key.shape[-1]),
        open_slots,
    )
    return time_first(output), (*final, start + tokens)
