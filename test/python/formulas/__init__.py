"""Independent fp64 formulas for every operator of the specification: the references that the compiler is judged
against.

Each formula is a closed form in plain torch (masked attention matrices, products of decays, a triangular solve), never
the token recurrence that the declarations state, so that an error of the language, of its interpreter or of its adjoint
cannot hide in the reference too. All of them

- take tensors [B, T, H, D] of any floating type and compute in fp64; q has H heads, keys and values have G or as the
  docstring says, and query head h reads head h // (H / G);
- are differentiable by autograd in every floating argument and in the initial state, with exact zeros among the decays
  too;
- accept T = 0 and B = 0;
- take the options of `stretto.ops` (design.md, section 4), and `initial_state=`, a tuple of tensors (a bare tensor for
  a state of one);
- return `(o, state)`, where `state` is **always a tuple**, in the order: matrices [B, Hstate, K, V], scans, convolution
  tails, window caches, position [B] int64. `FORMULAS[name].state` names its members; the zero state is
  `initial_state=None`. The returned state may be passed on to continue the sequence. `relation_kl` alone returns a loss
  and nothing else, and `relation_kl_rows` its rows.

They cost memory quadratic in T, times K where the decay is per channel: about 8 T^2 K bytes for each batch row and key
head, a few times that with gradients. `in_segments` applies one to a long sequence piece by piece, with the state
passed on; `packed` applies one to every sequence of a packed batch.

    from formulas import FORMULAS
    gla = FORMULAS["gla"]
    o, (S,) = gla.function(q, k, v, g, scale=1.0, initial_state=S0)
    o, (S,) = in_segments("gla", dict(q=q, k=k, v=v, g=g), length=128)

`examples.py` makes random arguments and states for each of them, in every regime of decay that the specification names.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch

from .delta import delta_rule, gated_delta_rule
from .diagonal import gla, hgrn2, linear_attn, retention, rwkv6, simple_gla, ssd
from .features import based, hedgehog, lawcat, rotary, supra, t2r
from .slots import abc, bla, dirichlet_weights, gsa
from .windows import lolcats, relation_kl, relation_kl_rows, swa


@dataclass(frozen=True)
class Formula:
    """A formula, the names of its arguments with a time axis, of its parameters, and of the members of its state."""

    function: Callable
    rows: tuple[str, ...]
    parameters: tuple[str, ...] = ()
    state: tuple[str, ...] = ("S",)


FORMULAS = {
    "linear_attn": Formula(linear_attn, ("q", "k", "v")),
    "gla": Formula(gla, ("q", "k", "v", "g")),
    "simple_gla": Formula(simple_gla, ("q", "k", "v", "g")),
    "retention": Formula(retention, ("q", "k", "v")),
    "ssd": Formula(ssd, ("x", "dt", "B", "C"), ("A_log", "D")),
    "hgrn2": Formula(hgrn2, ("q", "f", "v")),
    "rwkv6": Formula(rwkv6, ("r", "k", "v", "w"), ("u",)),
    "supra": Formula(
        supra, ("q", "k", "v"), ("w_q", "b_q", "w_k", "b_k", "log_gamma", "weight", "bias"), ("S", "position")
    ),
    "based": Formula(based, ("q", "k", "v")),
    "lawcat": Formula(lawcat, ("q", "k", "v", "z"), ("conv_q", "conv_k", "w_phi"), ("S", "tail_q", "tail_k")),
    "delta_rule": Formula(delta_rule, ("q", "k", "v", "beta")),
    "gated_delta_rule": Formula(gated_delta_rule, ("q", "k", "v", "g", "beta")),
    "gsa": Formula(gsa, ("q", "k", "v", "s", "g"), (), ("keys", "values")),
    "abc": Formula(abc, ("q", "k", "v", "s"), (), ("keys", "values", "total")),
    "bla": Formula(bla, ("q", "k", "v"), (), ("keys", "values", "position")),
    "swa": Formula(swa, ("q", "k", "v"), (), ("cached_k", "cached_v")),
    "lolcats": Formula(
        lolcats, ("q", "k", "v"), ("w_q", "w_k", "factor", "b_q", "b_k"), ("S", "cached_k", "cached_v", "position")
    ),
    "relation_kl": Formula(relation_kl, ("q_s", "q_t", "k_s", "k_t", "mask"), (), ()),
}


def pieces_of(name, arguments, cuts):
    """The arguments of tokens [cuts[i], cuts[i+1]) for every i."""
    rows = FORMULAS[name].rows
    for first, last in itertools.pairwise(cuts):
        yield {
            key: value[:, first:last] if key in rows and value is not None else value
            for key, value in arguments.items()
        }


def in_segments(name, arguments, length=128, initial_state=None):
    """The formula applied to `length` tokens at a time, the state passed on: the same result in memory linear in T."""
    rows = FORMULAS[name].rows
    tokens = arguments[rows[0]].shape[1]
    outputs, state = [], initial_state
    for piece in pieces_of(name, arguments, [*range(0, tokens, length), tokens] if tokens else [0, 0]):
        output, state = FORMULAS[name].function(**piece, initial_state=state)
        outputs.append(output)
    return torch.cat(outputs, 1), state


def packed(name, arguments, cu_seqlens, initial_states=None):
    """The formula applied to each sequence of a packed batch [1, Ttotal, ...]: the packed output, and a list of states,
    one a sequence.

    `initial_states` is a list too. Each state has batch size 1: caches of windows differ in length from sequence to
    sequence.
    """
    cuts = [int(cut) for cut in cu_seqlens]
    outputs, states = [], []
    for index, piece in enumerate(pieces_of(name, arguments, cuts)):
        output, state = FORMULAS[name].function(
            **piece, initial_state=None if initial_states is None else initial_states[index]
        )
        outputs.append(output)
        states.append(state)
    return torch.cat(outputs, 1), states


__all__ = [
    "FORMULAS",
    "Formula",
    "abc",
    "based",
    "bla",
    "delta_rule",
    "dirichlet_weights",
    "gated_delta_rule",
    "gla",
    "gsa",
    "hedgehog",
    "hgrn2",
    "in_segments",
    "lawcat",
    "linear_attn",
    "lolcats",
    "packed",
    "relation_kl",
    "relation_kl_rows",
    "retention",
    "rotary",
    "rwkv6",
    "simple_gla",
    "ssd",
    "supra",
    "swa",
    "t2r",
]
