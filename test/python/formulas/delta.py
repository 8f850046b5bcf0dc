"""The delta rule, with and without a gate, as one triangular solve over the sequence: sections 6.8 and 7.8."""

import torch

from .algebra import decay_products, default_scale, heads_first, spread, state_or_zero, time_first


def gated_delta_rule(q, k, v, g, beta, scale=None, initial_state=None):
    """S' = a_t S_{t-1}, S_t = S' + beta_t k_t^T (v_t - k_t S'), o_t = scale q_t S_t. Sections 6.8 and 7.8.

    Written rows: (I + L) U = beta (V - P_{i0} K S_0), L_ij = beta_i P_ij k_i . k_j for j < i. They then join a plain
    decayed attention. q [B,T,H,K]; k [B,T,G,K]; v [B,T,W,V]; g (log a), beta [B,T,W]; G divides W, and one of H and W
    divides the other: the output has as many heads as the larger. State: S [B, W, K, V].
    """
    query, key, value, log_decay, strength = heads_first(q, k, v, g, beta)
    value_heads = value.shape[1]
    heads = max(query.shape[1], value_heads)
    key = spread(key, value_heads)
    query = spread(query, heads) * default_scale(scale, key.shape[-1])
    (initial,) = state_or_zero(initial_state, (*key.shape[:2], key.shape[-1], value.shape[-1]), like=key)
    products = decay_products(log=log_decay)
    from_token, from_start = products[:, :, 1:, 1:], products[:, :, 1:, 0].unsqueeze(-1)
    strength = strength.unsqueeze(-1)
    recalled = strength * torch.einsum("bhik,bhjk->bhij", key, key) * from_token
    target = strength * (value - from_start * torch.einsum("bhik,bhkv->bhiv", key, initial))
    written = torch.linalg.solve_triangular(recalled.tril(-1), target, upper=False, unitriangular=True)

    weights = torch.einsum("bhik,bhjk->bhij", query, spread(key, heads)) * spread(from_token, heads)
    output = torch.einsum("bhij,bhjv->bhiv", weights, spread(written, heads))
    output = output + spread(from_start, heads) * torch.einsum("bhik,bhkv->bhiv", query, spread(initial, heads))
    last = products[:, :, -1]
    final = last[:, :, 0, None, None] * initial
    final = final + torch.einsum("bhj,bhjk,bhjv->bhkv", last[:, :, 1:], key, written)
    return time_first(output), (final,)


def delta_rule(q, k, v, beta, scale=None, initial_state=None):
    """S_t = S_{t-1} + beta_t k_t^T (v_t - k_t S_{t-1}), o_t = scale q_t S_t. Section 6.8. State: S [B, W, K, V]."""
    return gated_delta_rule(q, k, v, torch.zeros_like(beta), beta, scale=scale, initial_state=initial_state)
