"""Pieces that several formulas share: types, head layouts, products of decays, weighted sums.

All tensors in here are fp64 with heads before time, [B, H, T, ...]. **Edges** count the moments between tokens: edge e
is the moment after e tokens, so a sequence of T tokens has T + 1 edges, edge 0 holds the initial state and edge T the
final one.
"""

import math

import torch


def double(*tensors):
    """Every tensor in fp64, None left alone. One tensor in, one tensor out."""
    converted = tuple(None if tensor is None else tensor.double() for tensor in tensors)
    return converted if len(converted) > 1 else converted[0]


def heads_first(*rows):
    """[B, T, H, ...] to fp64 [B, H, T, ...]; None is left alone."""
    converted = tuple(None if row is None else row.double().transpose(1, 2) for row in rows)
    return converted if len(converted) > 1 else converted[0]


def time_first(row):
    """[B, H, T, ...] back to [B, T, H, ...]."""
    return row.transpose(1, 2)


def spread(row, heads, axis=1):
    """Repeat a coarser head set so that head h of the result is head h // (heads / present) of `row` (section 1.1)."""
    present = row.shape[axis]
    if present == 0 or heads % present:
        raise ValueError(f"{heads} heads cannot share {present}")
    return row.repeat_interleave(heads // present, dim=axis)


def state_or_zero(initial_state, *shapes, like):
    """The tensors of `initial_state` in fp64, or zeros of the given shapes. A bare tensor stands for a state of one
    tensor.
    """
    if initial_state is None:
        return tuple(torch.zeros(shape, dtype=torch.float64, device=like.device) for shape in shapes)
    tensors = (initial_state,) if isinstance(initial_state, torch.Tensor) else tuple(initial_state)
    for given, expected in zip(tensors, shapes, strict=True):
        if tuple(given.shape) != tuple(expected):
            raise ValueError(f"initial state is {tuple(given.shape)}, expected {tuple(expected)}")
    return tuple(tensor.double() for tensor in tensors)


def default_scale(scale, width):
    return width**-0.5 if scale is None else scale


def decay_products(log=None, factor=None):
    """P[e, f] = product of the decays of tokens f .. e-1, which takes a state from edge f to edge e; 0 where f > e.

    Takes [B, H, T, ...], gives [B, H, T+1, T+1, ...]. Every product is formed from its own start: no difference of two
    long sums, so nothing is lost behind a decay of -50 a token, and log a = -inf is an exact zero. Factors may be 0 or
    above 1. Quadratic memory.
    """
    decay = factor if log is None else log
    neutral = 1.0 if log is None else 0.0
    tokens = decay.shape[2]
    first = decay.new_full((*decay.shape[:2], 1, *decay.shape[3:]), neutral)
    by_edge = torch.cat([first, decay], 2).unsqueeze(3)
    edge = torch.arange(tokens + 1, device=decay.device)
    trailing = (1,) * (decay.dim() - 3)
    later = (edge[:, None] > edge[None, :]).view(tokens + 1, tokens + 1, *trailing)
    steps = torch.where(later, by_edge, neutral)
    product = steps.cumprod(2) if log is None else steps.cumsum(2).exp()
    reached = (edge[:, None] >= edge[None, :]).view(tokens + 1, tokens + 1, *trailing)
    return torch.where(reached, product, 0.0)


def weighted_values(query, key, value, products, initial, read_before_write=False):
    """The masked attention that a diagonal recurrence S_t = diag(a_t) S_{t-1} + k_t^T v_t amounts to, and its final
    state.

    o_i = sum_j (q_i . (P_ij * k_j)) v_j + (q_i * P_i0) S_0, section 7.1 with the whole sequence as one chunk.
    `products` is [B, G, T+1, T+1, K], or with a last axis of 1 for a decay of the whole head. `query` [B, H, T, K] may
    have more heads than `key` and `value` [B, G, T, .]. With `read_before_write` token i reads the state of edge i,
    which holds tokens 0 .. i-1 (RWKV-6).
    """
    tokens, key_heads = key.shape[2], key.shape[1]
    query = query.unflatten(1, (key_heads, query.shape[1] // key_heads))
    read = products[:, :, :tokens] if read_before_write else products[:, :, 1:]
    from_token, from_start = read[:, :, :, 1:], read[:, :, :, 0]
    if products.shape[-1] == 1:
        weights = torch.einsum("bgrik,bgjk->bgrij", query, key) * from_token[..., 0].unsqueeze(2)
    else:
        weights = torch.einsum("bgrik,bgijk->bgrij", query, from_token * key.unsqueeze(2))
    output = torch.einsum("bgrij,bgjv->bgriv", weights, value)
    output = output + torch.einsum("bgrik,bgkv->bgriv", query * from_start.unsqueeze(2), initial)
    last = products[:, :, tokens]
    final = last[:, :, 0].unsqueeze(-1) * initial + torch.einsum("bgjk,bgjv->bgkv", last[:, :, 1:] * key, value)
    return output.flatten(1, 2), final


def with_ones(value):
    """Append the column that turns a sum of values into the sum of their weights (section 7.6)."""
    return torch.cat([value, torch.ones_like(value[..., :1])], -1)


def divide(sums, epsilon):
    """The numerator divided by its last column, the denominator (section 7.6)."""
    return sums[..., :-1] / (sums[..., -1:] + epsilon)


def masked_softmax(logits, mask, dim=-1):
    """Softmax over the entries that `mask` selects; a row with none is 0 and passes no gradient (section 9.1)."""
    selected = torch.where(mask, logits, -math.inf)
    filled = torch.where(mask.any(dim, keepdim=True), selected, 0.0)
    return torch.where(mask, filled.softmax(dim), 0.0)
