"""Recurrences with a diagonal decay and no feature map of their own: sections 6.1 to 6.4 and 6.9."""

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


def linear_attn(q, k, v, normalize=True, eps=1e-10, scale=None, initial_state=None):
    """o_t = sum_{j<=t} (scale q_t . k_j) v_j, divided by eps + sum_{j<=t} scale q_t . k_j if normalised. Section 6.1.

    State: S [B, G, K, V], with the sum of the keys as a last column, [B, G, K, V+1], if normalised.
    """
    query, key, value = heads_first(q, k, v)
    if normalize:
        value = with_ones(value)
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], value.shape[-1]), like=key)
    products = decay_products(log=torch.zeros_like(key[..., :1]))
    output, final = weighted_values(query * default_scale(scale, key.shape[-1]), key, value, products, initial)
    return time_first(divide(output, eps) if normalize else output), (final,)


def gla(q, k, v, g, scale=None, initial_state=None):
    """o_t = sum_{j<=t} sum_d scale q_td k_jd e^{b_td - b_jd} v_j, b the running sum of the log decay g [B,T,G,K].
    Section 6.2.

    State: S [B, G, K, V].
    """
    query, key, value, log_decay = heads_first(q, k, v, g)
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], value.shape[-1]), like=key)
    query = query * default_scale(scale, key.shape[-1])
    output, final = weighted_values(query, key, value, decay_products(log=log_decay), initial)
    return time_first(output), (final,)


def simple_gla(q, k, v, g, scale=None, initial_state=None):
    """`gla` with one log decay for a head and token, g [B, T, G]. Section 6.3. State: S [B, G, K, V]."""
    return gla(q, k, v, g.unsqueeze(-1), scale=scale, initial_state=initial_state)


def retention(q, k, v, scale=None, initial_state=None):
    """o_t = sum_{j<=t} (scale q_t . k_j) (1 - 2^(-5-h))^(t-j) v_j, h the key/value head. Section 6.3. State: S [B, G,
    K, V].
    """
    query, key, value = heads_first(q, k, v)
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], value.shape[-1]), like=key)
    gamma = 1 - 2.0 ** (-5 - torch.arange(key.shape[1], dtype=torch.float64, device=key.device))
    edge = torch.arange(key.shape[2] + 1, device=key.device)
    age = edge[:, None] - edge[None, :]
    products = torch.where(age >= 0, gamma[:, None, None] ** age.clamp(min=0), 0.0)
    products = products.unsqueeze(-1).expand(key.shape[0], -1, -1, -1, -1)
    query = query * default_scale(scale, key.shape[-1])
    output, final = weighted_values(query, key, value, products, initial)
    return time_first(output), (final,)


def ssd(x, dt, A_log, B, C, D=None, initial_state=None):
    """y_t = sum_{j<=t} (C_t . B_j) e^{-e^A_log (dt_{j+1} + .. + dt_t)} dt_j x_j + D x_t. Section 6.3, Mamba-2.

    x [B,T,H,P], dt [B,T,H], A_log and D [H], B and C [B,T,G,N]. State: S [B, H, N, P].
    """
    heads = x.shape[2]
    inputs, step, key, query = heads_first(x, dt, B, C)
    key, query = spread(key, heads), spread(query, heads)
    rate, skip = double(A_log, D)
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], inputs.shape[-1]), like=key)
    log_decay = -step * rate.exp()[:, None]
    products = decay_products(log=log_decay.unsqueeze(-1))
    output, final = weighted_values(query, key, step.unsqueeze(-1) * inputs, products, initial)
    if skip is not None:
        output = output + skip[:, None, None] * inputs
    return time_first(output), (final,)


def hgrn2(q, f, v, scale=None, initial_state=None):
    """o_t = sum_{j<=t} sum_d scale q_td (f_{j+1} .. f_t)_d (1 - f_j)_d v_j, f in [0, 1] [B,T,G,K]. Section 6.4.

    The products are of the factors themselves, so that the gradient at f = 0 is the true one. State: S [B, G, K, V].
    """
    query, forget, value = heads_first(q, f, v)
    (initial,) = state_or_zero(initial_state, (*forget.shape[:2], forget.shape[-1], value.shape[-1]), like=value)
    query = query * default_scale(scale, forget.shape[-1])
    output, final = weighted_values(query, 1 - forget, value, decay_products(factor=forget), initial)
    return time_first(output), (final,)


def rwkv6(r, k, v, w, u, scale=None, initial_state=None):
    """o_t = sum_{j<t} sum_d scale r_td k_jd e^{w_{j+1} + .. + w_{t-1}}_d v_j + (scale r_t . (u * k_t)) v_t. Section
    6.9.

    w [B,T,G,K] is the log decay and u [G,K] the bonus; the read of a token precedes its decay and its write. State: S
    [B, G, K, V].
    """
    query, key, value, log_decay = heads_first(r, k, v, w)
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], value.shape[-1]), like=key)
    query = query * default_scale(scale, key.shape[-1])
    output, final = weighted_values(query, key, value, decay_products(log=log_decay), initial, read_before_write=True)
    heads = query.shape[1]
    own_weight = (query * spread(u.double()[:, None] * key, heads)).sum(-1, keepdim=True)
    return time_first(output + own_weight * spread(value, heads)), (final,)
