"""Decoding in plain PyTorch: a token of each sequence, by products and sums alone, for torch.compile to fuse.

The formulas are those of `stretto.ops` with default options. States are fp32 and rows of any type, as there. A step
returns its states anew: written in place, torch 2.11 adds what it fuses with a read twice.
"""

import torch


def _read(state, row):
    """`row S`, for a state of keys by values."""
    return (row[..., None] * state).sum(-2)


def _written(state, decay, row, values):
    return decay * state + row[..., None] * values[..., None, :]


def linear_attn(q, k, v, *, S, z):
    q, k, v = q.float() * q.shape[-1] ** -0.5, k.float(), v.float()
    S, z = _written(S, 1, k, v), z + k
    return _read(S, q) / ((q * z).sum(-1, keepdim=True) + 1e-10), S, z


def simple_gla(q, k, v, g, *, S):
    S = _written(S, g.float().exp()[..., None, None], k.float(), v.float())
    return _read(S, q.float() * q.shape[-1] ** -0.5), S


def gla(q, k, v, g, *, S):
    S = _written(S, g.float().exp()[..., None], k.float(), v.float())
    return _read(S, q.float() * q.shape[-1] ** -0.5), S


def gated_delta_rule(q, k, v, g, beta, *, S):
    k, decay = k.float(), g.float().exp()[..., None]
    S = _written(S, decay[..., None], k, beta.float()[..., None] * (v.float() - decay * _read(S, k)))
    return _read(S, q.float() * q.shape[-1] ** -0.5), S


def gsa(q, k, v, s, g, *, keys, values):
    s, decay = s.float(), g.float().exp()[..., None]
    keys, values = _written(keys, decay, s, k.float()), _written(values, decay, s, v.float())
    scores = (keys * q.float()[..., None, :]).sum(-1) * q.shape[-1] ** -0.5
    return _read(values, torch.softmax(scores, -1)), keys, values


#: The step of each operator, and what its states are called, with the rows whose widths are their axes.
STEPS = {
    "linear_attn": (linear_attn, {"S": "kv", "z": "k"}),
    "simple_gla": (simple_gla, {"S": "kv"}),
    "gla": (gla, {"S": "kv"}),
    "gated_delta_rule": (gated_delta_rule, {"S": "kv"}),
    "gsa": (gsa, {"keys": "sk", "values": "sv"}),
}


def step(operator, rows, compile_too=True):
    """A function that runs a step on states of its own, zero at first, and returns the output; None where there is no
    such form.
    """
    if operator not in STEPS:
        return None
    function, states = STEPS[operator]
    leading, device = rows["k"].shape[:-1], rows["k"].device
    own = {
        name: torch.zeros((*leading, *(rows[row].shape[-1] for row in axes)), device=device)
        for name, axes in states.items()
    }
    function = torch.compile(function, fullgraph=True, dynamic=False) if compile_too else function

    def call():
        output, *after = function(**rows, **own)
        own.update(zip(states, after, strict=True))
        return output

    return call
