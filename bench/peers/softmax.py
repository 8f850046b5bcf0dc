"""Causal softmax attention on tensors of the same shape, by whatever PyTorch chooses on a CPU."""

import baselines
from baselines import inputs

from .peer import Peer


def own_inputs(shape, dtype, device, gates):
    return inputs.make("softmax_attn", shape.B, shape.T, shape.H, shape.D, dtype=dtype, device=device)


def beside(name, devices, missing, forms):
    """A peer that computes softmax attention, beside every operator."""
    return Peer(name, None, missing, forms, devices=devices, same=False, own_inputs=own_inputs)


PEER = beside("softmax attention", ("cpu",), lambda: None, lambda **_: {"": baselines.softmax_attn})
