"""flash-linear-attention's gated slot attention beside BLA, which it lacks: 64 slots beside 65, another function of as
many rows.
"""

from baselines import inputs

from .peer import Peer, first_of, missing_module


def forms(**_):
    from fla.ops.gsa import chunk_gsa

    return {"": first_of(chunk_gsa)}


def own_inputs(shape, dtype, device, gates):
    return inputs.make("gsa", shape.B, shape.T, shape.H, shape.D, dtype=dtype, device=device, gates=gates)


PEER = Peer("flash-linear-attention's GSA", ("bla",), missing_module("fla"), forms, same=False, own_inputs=own_inputs)
