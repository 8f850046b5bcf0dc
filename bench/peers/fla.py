"""flash-linear-attention, whose Triton kernels tune themselves on their first call, for up to minutes.

An operator that it has under another name, or only as its layers compose it, is composed in the same way: HGRN2 and
SSD are its gated linear attention on other rows, SUPRA is that with a fixed decay behind features and before a norm.
"""

import torch

from .peer import Peer, first_of, missing_module


def hgrn2(q, f, v):
    from fla.ops.gla import chunk_gla

    return chunk_gla(q=q, k=1 - f, v=v, g=f.log())[0]


def ssd(x, dt, A_log, B, C):
    from fla.ops.simple_gla import chunk_simple_gla

    return chunk_simple_gla(q=C, k=B * dt.to(B.dtype)[..., None], v=x, g=-dt * A_log.exp(), scale=1.0)[0]


def rotated(rows, theta=10000.0):
    """Rotary embedding of pairs half a row apart."""
    half = rows.shape[-1] // 2
    rates = theta ** (-torch.arange(half, device=rows.device, dtype=torch.float32) / half)
    angles = torch.arange(rows.shape[1], device=rows.device, dtype=torch.float32)[:, None] * rates
    cosine, sine = (x.to(rows.dtype)[None, :, None] for x in (angles.cos(), angles.sin()))
    first, second = rows.chunk(2, -1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], -1)


def supra(q, k, v, w_q, w_k, b_q, b_k, log_gamma):
    from fla.ops.simple_gla import chunk_simple_gla

    def features(rows, weight, bias):
        product = torch.einsum("bthd,hdf->bthf", rows, weight)
        return rotated(torch.relu(product + bias.to(rows.dtype)))

    decay = log_gamma.expand(q.shape[:3])
    output, _ = chunk_simple_gla(q=features(q, w_q, b_q), k=features(k, w_k, b_k), v=v, g=decay, scale=1.0)
    return torch.nn.functional.layer_norm(output.float(), output.shape[-1:], eps=1e-5).to(q.dtype)


def forms(operator, **_):
    from fla.ops import (
        abc,
        based,
        delta_rule,
        gated_delta_rule,
        gla,
        gsa,
        kda,
        linear_attn,
        retention,
        rwkv6,
        simple_gla,
    )
    from fla.ops.attn.parallel import parallel_attn

    def linear(normalize):
        return lambda q, k, v: linear_attn.chunk_linear_attn(q=q, k=k, v=v, normalize=normalize)[0]

    functions = {
        "linear_attn": linear(normalize=False),
        "linear_attn_normalized": linear(normalize=True),
        "retention": first_of(retention.chunk_retention),
        "simple_gla": first_of(simple_gla.chunk_simple_gla),
        "ssd": ssd,
        "gla": first_of(gla.chunk_gla),
        "gla_strong": first_of(gla.chunk_gla),
        "hgrn2": hgrn2,
        "rwkv6": first_of(rwkv6.chunk_rwkv6),
        "supra": supra,
        "based": based.parallel_based,
        "gsa": first_of(gsa.chunk_gsa),
        "abc": first_of(abc.chunk_abc),
        "delta_rule": first_of(delta_rule.chunk_delta_rule),
        "gated_delta_rule": first_of(gated_delta_rule.chunk_gated_delta_rule),
        "kda": first_of(kda.chunk_kda),
        "swa": lambda q, k, v: parallel_attn(q=q, k=k, v=v, window_size=operator.options["window"]),
    }
    return {"": functions[operator.name]}


OPERATORS = (
    "linear_attn", "linear_attn_normalized", "retention", "simple_gla", "ssd", "gla", "gla_strong", "hgrn2", "rwkv6",
    "supra", "based", "gsa", "abc", "delta_rule", "gated_delta_rule", "kda", "swa",
)  # fmt: skip

PEER = Peer("flash-linear-attention", OPERATORS, missing_module("fla"), forms)
