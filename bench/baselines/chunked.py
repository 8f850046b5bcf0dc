"""Chunked linear attention in plain PyTorch, as a careful engineer writes it: the opponent of the compiled kernels.

A sequence is walked in **segments** of several **chunks**. Within a segment everything is a batched matrix product over
all heads and chunks; the states of its chunks follow one another in a short loop of elementwise updates. One segment
for the whole sequence is the fully parallel form, good for a GPU; segments of a few hundred tokens keep all temporaries
in a CPU's cache.

    q' = q e^(b - m), k' = k e^(m - b)         b the running sum of log decays in the chunk, m = b_last / 2
    A  = tril(q' k'^T)                         o = scale (A v + q' (e^m S))          S' = e^m (e^m S + k'^T v)

The rescaling around the middle of the chunk makes a decay cost two products for an element, whether it is one number a
head or one a channel. It is safe while the decay over half a chunk stays above e^-LIMIT. The step reports the strongest
decay it met, and the caller repeats the call in `exact_step`, with pairwise decays in chunks of 16, where that was
exceeded: optimistic, so that mild gates pay nothing for the safety. Sums and states are fp32. Steps are functional:
autograd differentiates them.
"""

from dataclasses import dataclass

import torch

EXACT_CHUNK = 16
#: Largest |m|: the operands grow by e^LIMIT and their products by twice that, which the type must hold.
LIMIT = {torch.float16: 4.0, torch.bfloat16: 40.0, torch.float32: 40.0, torch.float64: 200.0}


def tiles(rows, chunk, groups=1):
    """[B, L, groups * G, D] to [B * G * (L / chunk), groups * chunk, D]: the query heads that share a key head become
    rows of one tile.
    """
    batch, length, heads, width = rows.shape
    key_heads, chunks = heads // groups, length // chunk
    rows = rows.view(batch, chunks, chunk, key_heads, groups, width).permute(0, 3, 1, 4, 2, 5)
    return rows.reshape(batch * key_heads * chunks, groups * chunk, width)


def untile(rows, batch, key_heads, chunk, groups):
    """The inverse of `tiles`, up to the order of memory: [B, L, groups * G, V]."""
    rows = rows.view(batch, key_heads, -1, groups, chunk, rows.shape[-1]).permute(0, 2, 4, 1, 3, 5)
    return rows.reshape(batch, -1, key_heads * groups, rows.shape[-1])


def with_ones(value):
    return torch.cat([value, torch.ones_like(value[..., :1])], -1)


@dataclass(frozen=True)
class Decay:
    """Of a chunk: S' = after * (before * S + k'^T v), and queries read before * S if `faded`, else S. [N, K|1, 1]."""

    before: torch.Tensor
    after: torch.Tensor | None
    faded: bool


def one_chunk(state, key, value, decay):
    """The state that the queries of the only chunk of a segment read, and the state after it, added up inside the
    product.
    """
    faded = state if decay is None else state * decay.before
    read = state if decay is None or not decay.faded else faded
    same_type = key.dtype == state.dtype
    state = torch.baddbmm(faded, key.mT, value) if same_type else faded + torch.bmm(key.mT, value)
    return read, state if decay is None or decay.after is None else state * decay.after


def several_chunks(state, key, value, decay):
    """The states that the queries of each chunk read, and the state after the last: a loop of one elementwise operation
    a chunk.
    """
    heads, chunks = state.shape[0], key.shape[0] // state.shape[0]
    written = torch.bmm(key.mT, value).to(state.dtype)
    if decay is not None:
        carry = decay.before
        if decay.after is not None:
            written, carry = written * decay.after, carry * decay.after
        carry = carry.view(heads, chunks, -1, 1)
    written = written.view(heads, chunks, *written.shape[1:])
    states = []
    for chunk in range(chunks):
        states.append(state)
        state = state + written[:, chunk] if decay is None else torch.addcmul(written[:, chunk], carry[:, chunk], state)
    read = torch.stack(states, 1).flatten(0, 1)
    return read * decay.before if decay is not None and decay.faded else read, state


def attend(state, weights, query, key, value, decay, scale, epsilon):
    """What all steps end with: the states, and the output (A v + q' S), divided by its last column if normalised."""
    pass_state = one_chunk if len(key) == len(state) else several_chunks
    read, state = pass_state(state, key, value, decay)
    inside, read = torch.bmm(weights, value), read.to(query.dtype)
    if epsilon is None:
        return torch.baddbmm(inside, query, read, beta=scale, alpha=scale), state
    sums = torch.baddbmm(inside, query, read)
    return sums[..., :-1] / (sums[..., -1:] + epsilon / scale), state


def rescaled_step(state, query, key, value, log_decay, chunk, groups, scale, epsilon):
    """One segment. Returns its output, the state after it, and the smallest m, or None without a decay."""
    batch, _, key_heads, _ = key.shape
    dtype = query.dtype
    if epsilon is not None:
        value = with_ones(value)
    query, key, value = tiles(query, chunk, groups), tiles(key, chunk), tiles(value, chunk)
    decay = strongest = None
    if log_decay is not None:
        # A sum along strided rows takes three times as long as the copy and the sum.
        running = tiles(log_decay, chunk).to(state.dtype).contiguous().cumsum(1)
        middle = running[:, -1:] * 0.5
        growth = (running - middle).exp()
        query = (query.unflatten(1, (groups, chunk)) * growth.unsqueeze(1)).flatten(1, 2).to(dtype)
        key = (key / growth).to(dtype)
        half = middle.exp().mT
        decay = Decay(half, half, faded=True)
        strongest = middle.detach().amin()
    weights = torch.bmm(query, key.mT).unflatten(1, (groups, chunk)).tril_().flatten(1, 2)
    output, state = attend(state, weights, query, key, value, decay, scale, epsilon)
    return untile(output, batch, key_heads, chunk, groups), state, strongest


def exact_step(state, query, key, value, log_decay, chunk, groups, scale, epsilon):
    """One segment with pairwise decays e^(b_i - b_j), for any decay: nothing positive is ever exponentiated.

    Logarithms are cut at -40, which is 0 in fp32, and summed in fp64, so that a mild decay behind a strong one keeps
    its digits.
    """
    batch, _, key_heads, _ = key.shape
    dtype = query.dtype
    if epsilon is not None:
        value = with_ones(value)
    query, key, value = tiles(query, chunk, groups), tiles(key, chunk), tiles(value, chunk)
    running = tiles(log_decay, chunk).double().clamp(min=-40).cumsum(1)
    later = torch.ones(chunk, chunk, dtype=torch.bool, device=key.device).triu(1)[..., None]
    between = (running[:, :, None] - running[:, None]).masked_fill(later, -torch.inf).to(state.dtype).exp()
    weights = torch.einsum(
        "nrid,nijd->nrij", query.unflatten(1, (groups, chunk)).to(state.dtype), between * key.unsqueeze(1)
    )
    query = query.unflatten(1, (groups, chunk)) * running.exp().to(state.dtype).unsqueeze(1)
    key = key * (running[:, -1:] - running).exp().to(state.dtype)
    decay = Decay(running[:, -1:].exp().to(state.dtype).mT, None, faded=False)
    output, state = attend(
        state,
        weights.flatten(1, 2).to(dtype),
        query.flatten(1, 2).to(dtype),
        key.to(dtype),
        value,
        decay,
        scale,
        epsilon,
    )
    return untile(output, batch, key_heads, chunk, groups), state, None


def padded(rows, tokens):
    """Zeros behind the last token: k = 0 and log a = 0 change nothing."""
    return torch.nn.functional.pad(rows, (0, 0) * (rows.dim() - 2) + (0, tokens - rows.shape[1]))


def walk(step, rows, tokens, segment, chunk, state):
    """Apply `step(state, *rows of the segment)` along the sequence. Returns the output and the strongest decay met, a
    tensor or None.
    """
    whole = -(-tokens // chunk) * chunk
    rows = [row if row is None or whole == tokens else padded(row, whole) for row in rows]
    segment = min(max(segment, chunk), whole)
    outputs, strongest = [], []
    for start in range(0, whole, segment):
        piece = [None if row is None else row[:, start : start + segment] for row in rows]
        output, state, met = step(state, *piece)
        outputs.append(output)
        strongest.append(met)
    output = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
    return output[:, :tokens], None if strongest[0] is None else torch.stack(strongest).amin()


def attention(query, key, value, log_decay=None, scale=1.0, epsilon=None, chunk=64, segment=256, step=rescaled_step):
    """Causal linear attention [B, T, H, .] with any decay: `log_decay` is None, [B, T, G] or [B, T, G, K].

    `epsilon` asks for the normalised form. `segment` is a number of tokens, or None for the whole sequence. `step` may
    be a compiled `rescaled_step`.
    """
    batch, tokens, heads, width = query.shape
    key_heads = key.shape[2]
    groups = heads // key_heads
    if log_decay is not None and log_decay.dim() == 3:
        log_decay = log_decay.unsqueeze(-1)
    precision = torch.promote_types(query.dtype, torch.float32)
    columns = value.shape[-1] + (epsilon is not None)
    state = torch.zeros(batch * key_heads, width, columns, dtype=precision, device=query.device)
    rows = (query, key, value, log_decay)
    whole = -(-tokens // chunk) * chunk
    output, strongest = walk(
        lambda state, *piece: step(state, *piece, chunk, groups, scale, epsilon),
        rows,
        tokens,
        segment or whole,
        chunk,
        state,
    )
    if strongest is not None and not strongest >= -LIMIT[query.dtype]:
        output, _ = walk(
            lambda state, *piece: exact_step(state, *piece, EXACT_CHUNK, groups, scale, epsilon),
            rows,
            tokens,
            256,
            EXACT_CHUNK,
            state,
        )
    return output.contiguous()
