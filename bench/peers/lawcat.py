"""LAWCAT as it is composed of flash-linear-attention's pieces: a short convolution, the feature map in PyTorch, gated
linear attention on values with a column of ones, and the division.
"""

import torch

from .peer import Peer, missing_module


def features(rows, weight):
    logits = torch.einsum("bthd,hdf->bthf", rows, weight)
    return torch.cat([logits.softmax(-1), (-logits).softmax(-1)], -1).clamp(min=1e-12)


def composition(q, k, v, z, conv_q, conv_k, w_phi):
    from fla.modules.convolution import causal_conv1d
    from fla.ops.gla import chunk_gla

    def convolved(rows, taps):
        heads, width = rows.shape[2:]
        output, _ = causal_conv1d(x=rows.flatten(2), weight=taps.flatten(0, 1))
        return output.unflatten(-1, (heads, width))

    query, key = features(convolved(q, conv_q), w_phi), features(convolved(k, conv_k), w_phi)
    decay = torch.nn.functional.logsigmoid(z) / 16
    values = torch.cat([v, torch.ones_like(v[..., :1])], -1)
    output, _ = chunk_gla(q=query, k=key, v=values, g=decay)
    return output[..., :-1] / (output[..., -1:] + 1e-10)


PEER = Peer("FLA composition", ("lawcat",), missing_module("fla"), lambda **_: {"": composition})
