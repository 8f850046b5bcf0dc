"""PyTorch peers of the compiled operators, as fast as we can honestly make them.

Operators, with inputs named as in `stretto.ops` (design.md, section 4), [B, T, H, D], fewer key heads allowed:

| operator | inputs | what runs |
|---|---|---|
| `linear_attn` | q, k, v | chunked, no normaliser |
| `linear_attn_normalized` | q, k, v | chunked, normaliser as an extra column of the values |
| `simple_gla` | q, k, v, g [B,T,G] | chunked, log decay of a head |
| `gla` | q, k, v, g [B,T,G,K] | chunked, log decay of a channel |
| `lawcat` | q, k, v, z, conv_q, conv_k, w_phi | convolution, Hedgehog features, gate, chunked |
| `softmax_attn` | q, k, v | `scaled_dot_product_attention`, causal |

Each has several **forms**: chunks of 32, 64 or 128 tokens; in segments that fit a CPU's cache, or the whole sequence at
once; eager, or with the step of a segment compiled by `torch.compile`; for 16-bit inputs also with fp32 operands,
faster where a CPU has no fast 16-bit products. A form is a callable of the operator's inputs and returns o [B,T,H,V],
contiguous, of the inputs' type. Default scales and epsilons are those of `stretto.ops`. All of them can be
differentiated by autograd, and run on CUDA.

    from baselines import fastest, forms, inputs

    all_forms = forms("gla", torch.float32)               # {name: callable}
    tensors = inputs.make("gla", 1, 2048, 8, 64)          # {"q": ..., "k": ..., "v": ..., "g": ...}
    o = all_forms["eager chunk 64 segment 256"](**tensors)
    fastest({name: partial(form, **tensors) for name, form in all_forms.items()})       # ["compiled chunk 64 ...", ...]
    measure.matmul_rate(torch.bfloat16), measure.copy_rate()         # the ceilings: flops/s of torch.mm, bytes/s of a
    copy

`fastest` calls `measure.reuse_memory`, without which malloc makes the baselines slower. It takes one to three minutes
for an operator and shape, most of it in `torch.compile`; forms that are not compiled take seconds. `check.py` compares
every form with the fp64 formulas of test/python/formulas: `python -m baselines.check`, in bench/.

Log decays must be finite or -inf, and at most 0. Strong decays are exact but slow: the rescaled form is tried first
(see `chunked.py`).
"""

import functools
import types

import torch

from . import measure
from .chunked import attention, rescaled_step
from .lawcat import lawcat, rescaled_lawcat_step

CHUNKS = (32, 64, 128)
#: Tokens of a segment: 1 is one chunk, None the whole sequence. Longer ones gain nothing on a CPU.
SEGMENTS = {"cpu": (1, 256, 512), "cuda": (None,)}
#: A compiled step costs its guards on every call: never the fastest with one chunk.
COMPILED_SEGMENTS = {"cpu": (256, 512), "cuda": (None,)}


def linear_attn(q, k, v, **form):
    return attention(q, k, v, scale=q.shape[-1] ** -0.5, **form)


def linear_attn_normalized(q, k, v, **form):
    return attention(q, k, v, scale=q.shape[-1] ** -0.5, epsilon=1e-10, **form)


def gla(q, k, v, g, **form):
    return attention(q, k, v, g, scale=q.shape[-1] ** -0.5, **form)


def softmax_attn(q, k, v):
    query, key, value = (row.transpose(1, 2) for row in (q, k, v))
    output = torch.nn.functional.scaled_dot_product_attention(
        query, key, value, is_causal=True, enable_gqa=q.shape[2] != k.shape[2]
    )
    return output.transpose(1, 2).contiguous()


#: The chunked operators: the function, and the step that is worth compiling.
OPERATORS = {
    "linear_attn": (linear_attn, rescaled_step),
    "linear_attn_normalized": (linear_attn_normalized, rescaled_step),
    "simple_gla": (gla, rescaled_step),
    "gla": (gla, rescaled_step),
    "lawcat": (lawcat, rescaled_lawcat_step),
}


def compiled(function):
    """`torch.compile` of a copy: each copy has its own cache, so that a call searches no other form's guards."""
    copy = types.FunctionType(function.__code__.replace(), function.__globals__, function.__name__)
    return torch.compile(copy, fullgraph=True, dynamic=False)


def in_fp32(function, **tensors):
    """The function on operands converted to fp32, its result converted back."""
    dtype = tensors["q"].dtype
    return function(**{name: tensor.float() for name, tensor in tensors.items()}).to(dtype)


def forms(operator, dtype=torch.float32, device="cpu", compile_too=True):
    """Every form of an operator that is worth timing on this device: {name: callable of the inputs}."""
    if operator == "softmax_attn":
        found = {"scaled_dot_product_attention": softmax_attn}
    else:
        function, step = OPERATORS[operator]
        found = {}
        for chunk in CHUNKS:
            for segment in SEGMENTS[torch.device(device).type]:
                name = f"chunk {chunk} " + {None: "whole", 1: "serial"}.get(segment, f"segment {segment}")
                form = functools.partial(function, chunk=chunk, segment=segment)
                found[f"eager {name}"] = form
                if compile_too and segment in COMPILED_SEGMENTS[torch.device(device).type]:
                    found[f"compiled {name}"] = functools.partial(form, step=compiled(step))
    if dtype.itemsize == 2 and torch.device(device).type == "cpu":
        found |= {f"{name}, fp32 operands": functools.partial(in_fp32, form) for name, form in found.items()}
    return found


def fastest(calls, device="cpu", count=4):
    """The names of so many of the calls {name: callable} as were fastest in a few rounds, the best first. It goes by
    the fastest sample, which other users of the machine disturb least.
    """
    measure.reuse_memory()
    timings = measure.in_turns(calls, device, rounds=5)
    return sorted(timings, key=lambda name: timings[name].fastest)[:count]
