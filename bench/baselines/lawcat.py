"""LAWCAT (section 2 of the specification) composed from PyTorch operations: convolution, feature map and gate in the
segment walk.

A segment brings its convolution along: its state is (S, tail_q, tail_k), the tails being the last three raw queries and
keys. All temporaries of a segment then stay in the cache, as those of the attention do.
"""

import torch

from .chunked import EXACT_CHUNK, LIMIT, exact_step, rescaled_step, walk


def convolve(rows, taps, tail):
    """Causal depthwise convolution of width 4 on [B, L, H, D], `taps` [4, H, D]. Four passes: faster than conv1d on a
    CPU.
    """
    length = rows.shape[1]
    rows = torch.cat([tail, rows], 1)
    output = rows[:, :length] * taps[0]
    for lag in range(1, 4):
        output = torch.addcmul(output, rows[:, lag : lag + length], taps[lag])
    return output, rows[:, length:]


def hedgehog(rows, weight):
    """max([softmax(x W), softmax(-x W)], 1e-12) on [B, L, H, D], `weight` [H, D, 2F] = [W, -W].

    The sign in the weights makes both softmaxes one call, which costs less than the larger product.
    """
    batch, length, heads, width = rows.shape
    logits = torch.bmm(rows.permute(2, 0, 1, 3).reshape(heads, batch * length, width), weight)
    features = logits.unflatten(-1, (2, -1)).softmax(-1).clamp(min=1e-12)
    return features.view(heads, batch, length, -1).permute(1, 2, 0, 3)


def log_sigmoid(logits):
    """min(z, 0) - log(1 + e^-|z|), a third faster than PyTorch's, whose log1p is slow, and a multiple of that when
    compiled.

    The last term returns to the logarithm what was rounded away in 1 + e^-|z|: accurate to the last digits on both
    sides.
    """
    small = logits.abs().neg().exp()
    shifted = small + 1
    return torch.minimum(logits, logits.new_zeros(())) - (shifted.log() + (small - (shifted - 1)) / shifted)


def repeated(rows, heads):
    return rows if rows.shape[2] == heads else rows.repeat_interleave(heads // rows.shape[2], 2)


def features_step(state, q, k, v, z, conv_q, conv_k, w_phi, chunk, tau, scale, epsilon, attention_step):
    """One segment of LAWCAT: features and log decays, then a step of the attention."""
    state, tail_q, tail_k = state
    heads = q.shape[2]
    query, tail_q = convolve(q, conv_q, tail_q)
    key, tail_k = convolve(k, conv_k, tail_k)
    query, key = hedgehog(query, w_phi), hedgehog(repeated(key, heads), w_phi)
    log_decay = log_sigmoid(repeated(z, heads).to(state.dtype)) / tau
    output, state, met = attention_step(state, query, key, repeated(v, heads), log_decay, chunk, 1, scale, epsilon)
    return output, (state, tail_q, tail_k), met


def rescaled_lawcat_step(state, q, k, v, z, conv_q, conv_k, w_phi, chunk, tau, scale, epsilon):
    return features_step(state, q, k, v, z, conv_q, conv_k, w_phi, chunk, tau, scale, epsilon, rescaled_step)


def lawcat(
    q, k, v, z, conv_q, conv_k, w_phi, tau=16.0, eps=1e-10, scale=None, chunk=64, segment=256, step=rescaled_lawcat_step
):
    """The operator, from projected rows: q [B,T,H,D]; k, v, z [B,T,G,D]; conv_q [H,D,4]; conv_k [G,D,4]; w_phi
    [H,D,D/2].
    """
    batch, tokens, heads, width = q.shape
    scale = width**-0.5 if scale is None else scale
    precision = torch.promote_types(q.dtype, torch.float32)
    state = (
        torch.zeros(batch * heads, width, v.shape[-1] + 1, dtype=precision, device=q.device),
        q.new_zeros(batch, 3, heads, width),
        q.new_zeros(batch, 3, k.shape[2], width),
    )
    whole = -(-tokens // chunk) * chunk
    parameters = *(taps.permute(2, 0, 1).contiguous() for taps in (conv_q, conv_k)), torch.cat([w_phi, -w_phi], -1)
    output, strongest = walk(
        lambda state, *rows: step(state, *rows, *parameters, chunk, tau, scale, eps),
        (q, k, v, z),
        tokens,
        segment or whole,
        chunk,
        state,
    )
    if not strongest >= -LIMIT[q.dtype]:
        output, _ = walk(
            lambda state, *rows: features_step(state, *rows, *parameters, EXACT_CHUNK, tau, scale, eps, exact_step),
            (q, k, v, z),
            tokens,
            256,
            EXACT_CHUNK,
            state,
        )
    return output.contiguous()
