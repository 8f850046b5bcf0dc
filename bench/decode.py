"""Steps: one token of each sequence, whose state is updated in place. A table of bench/run.py."""

import functools

import stretto
import torch
from baselines import inputs, measure, pointwise

OPERATORS = ("linear_attn", "simple_gla", "gla", "lawcat", "gsa", "gated_delta_rule")
# Batch, heads, width.
SHAPES = {"cpu": ((1, 4, 128), (16, 16, 128)), "cuda": ((1, 32, 128), (64, 32, 128), (256, 32, 128))}


def prepare(name, shape, dtype, device):
    """A step as a function, its rows, and the bytes that it reads and writes at least: rows once, states twice."""
    batch, heads, width = shape
    tensors = inputs.make(name, batch, 1, heads, width, dtype=dtype, device=device)
    variant = getattr(stretto.ops, name).variant
    output, state = variant(**tensors, output_final_state=True)
    rows = {key: x[:, 0] if x.shape[:2] == (batch, 1) else x for key, x in tensors.items()}
    size = sum(x.numel() * x.element_size() for x in [*rows.values(), output])
    size += 2 * sum(x.numel() * x.element_size() for x in state.values())
    return functools.partial(variant.step, **rows, state=state), rows, size


def peer_of(name, rows):
    """The step that torch.compile makes of PyTorch's operations, checked against ours; None where there is none."""
    peer = pointwise.step(name, rows)
    if peer is None:
        return None
    tokens = {key: x[:, None] for key, x in rows.items()}
    ours = getattr(stretto.ops, name)(**tokens)[0][:, 0].float()
    difference = float((peer() - ours).norm() / ours.norm())
    if not difference < 2e-2:
        raise RuntimeError(f"the peer of {name}'s step differs from it by {difference:.1e} of its norm")
    return peer


def copy_of(size, device):
    """A copy that reads and writes so many bytes together."""
    source = torch.ones(size // 2, dtype=torch.uint8, device=device)
    return functools.partial(torch.empty_like(source).copy_, source)


def lines(types, device, copy_rate):
    """The lines of the table, one by one, as dictionaries."""
    for dtype in types:
        for shape in SHAPES[device]:
            for name in OPERATORS:
                step, rows, size = prepare(name, shape, getattr(torch, dtype), device)
                calls = {"step": step, "copy": copy_of(size, device)}
                if peer := peer_of(name, rows):
                    calls["compiled"] = peer
                if device == "cuda":
                    timings = measure.in_bursts(calls)
                else:
                    timings = measure.in_turns(calls, device, rounds=200, seconds=3)
                step, copy, peer = (timings.get(one) for one in ("step", "copy", "compiled"))
                yield {
                    "operator": name,
                    **dict(zip(("B", "H", "D"), shape, strict=True)),
                    "dtype": dtype,
                    "bytes": size,
                    "microseconds": 1e6 * step.median,
                    "fastest_microseconds": 1e6 * step.fastest,
                    "floor_microseconds": 1e6 * size / copy_rate,
                    "terabytes_per_second": 1e-12 * size / step.median,
                    "share_of_copy": copy.median / step.median,
                    "peers": {"torch.compile": 1e6 * peer.median} if peer else {},
                    "to_peer": peer.median / step.median if peer else None,
                }


def show(line):
    shape = " ".join(f"{name}{line[name]}" for name in "BHD")
    print(
        f"{line['operator']:18} {shape:14} {line['dtype']:9} {line['microseconds']:9.1f} us"
        f"  fastest {line['fastest_microseconds']:9.1f}  floor {line['floor_microseconds']:8.1f}"
        f"  {line['terabytes_per_second']:6.3f} TB/s  {100 * line['share_of_copy']:4.0f} % of a copy"
        + (f"  {line['to_peer']:5.2f}x torch.compile" if line["to_peer"] else ""),
        flush=True,
    )
