"""Gradients: an operator forwards and backwards, and the memory that it takes; on a CPU beside the fastest of PyTorch's
chunked forms with autograd through it, on a GPU beside flash-linear-attention where that is installed. A table of
bench/run.py.
"""

import baselines
import stretto
import torch
from baselines import inputs, measure, peers

OPERATORS = ("linear_attn", "simple_gla", "gla", "lawcat", "gsa", "gated_delta_rule")
#: The baselines that compute the same; there is none of the others.
OF_PYTORCH = {"linear_attn": "linear_attn_normalized", "simple_gla": "simple_gla", "gla": "gla", "lawcat": "lawcat"}


def prepare(name, shape, dtype, device, peer=None):
    """Forwards and backwards as a function, of the operator or of a peer with the same inputs, and the bytes of every
    input, output, cotangent and gradient once.
    """
    tensors = inputs.make(OF_PYTORCH.get(name, name), *shape, dtype=dtype, device=device)
    if name == "lawcat":
        tensors["z"] = tensors["z"].float()
    leaves = {key: x.requires_grad_() for key, x in tensors.items()}
    variant = peer or getattr(stretto.ops, name).variant
    with torch.no_grad():
        output = variant(**tensors)
    cotangent = torch.randn_like(output)

    def run():
        with torch.enable_grad():
            torch.autograd.grad(variant(**leaves), list(leaves.values()), cotangent)

    of_rows = sum(x.numel() * x.element_size() for x in leaves.values())
    return run, 2 * of_rows + 2 * output.numel() * output.element_size()


def of_peer(name, shape, dtype, device, run, rounds, eager):
    """What a peer takes, in turns with the operator, and what it needs; or why there is nothing to compare with."""
    if device == "cpu":
        return of_pytorch(name, shape, dtype, run, rounds, eager)
    return of_library(name, shape, dtype, device, run, rounds)


def of_pytorch(name, shape, dtype, run, rounds, eager):
    if name not in OF_PYTORCH:
        return {}
    peer = baselines.best(
        OF_PYTORCH[name], shape, dtype, backward=True, compile_too=not eager, rounds=rounds, beside={"both": run}
    )
    return {
        "peer": f"PyTorch, {peer.name}",
        "peer_milliseconds": 1e3 * peer.seconds,
        "peer_memory_bytes": None,
        "ratio": peer.seconds / peer.timings["both"].median,
    }


def of_library(name, shape, dtype, device, run, rounds):
    peer = peers.operators().get(name)
    if not peer:
        return {}
    try:
        other, _ = prepare(name, shape, dtype, device, peer)
        memory = memory_of(other, device)
        timings = measure.in_turns({"both": run, "peer": other}, device, rounds=rounds)
    except RuntimeError as error:  # of what it knows to be wrong on a device
        return {"peer_refused": str(error).splitlines()[0]}
    both, other = timings["both"], timings["peer"]
    return {
        "peer": "flash-linear-attention",
        "peer_milliseconds": 1e3 * other.median,
        "peer_cold_seconds": other.cold,
        "peer_memory_bytes": memory,
        "ratio": other.median / both.median,
    }


def memory_of(run, device):
    """The most bytes that a call holds beyond what there was before it: its output and gradients, and its workspace.
    None on a CPU, where nothing counts them.
    """
    if device == "cpu":
        return None
    run()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def lines(types, shapes, device, copy_rate, rounds, eager):
    """The lines of the table, one by one, as dictionaries."""
    for dtype in types:
        for shape in shapes:
            for name in OPERATORS:
                call = {"operator": name, **dict(zip(("B", "T", "H", "D"), shape, strict=True)), "dtype": dtype}
                run, size = prepare(name, shape, getattr(torch, dtype), device)
                try:
                    memory = memory_of(run, device)
                    timing = measure.in_turns({"both": run}, device, rounds=rounds)["both"]
                except RuntimeError as error:  # there may be no kernel of this width
                    yield {**call, "refused": str(error).splitlines()[0]}
                    continue
                yield {
                    **call,
                    "milliseconds": 1e3 * timing.median,
                    "fastest_milliseconds": 1e3 * timing.fastest,
                    "floor_milliseconds": 1e3 * size / copy_rate,
                    "bytes": size,
                    "memory_bytes": memory,
                    **of_peer(name, shape, getattr(torch, dtype), device, run, rounds, eager),
                    "bytes_of_an_input": shape[0] * shape[1] * shape[2] * shape[3] * getattr(torch, dtype).itemsize,
                }


def show(line):
    shape, memory = " ".join(f"{name}{line[name]}" for name in "BTHD"), ""
    if "refused" in line:
        print(f"{line['operator']:18} {shape:20} {line['dtype']:9} {line['refused']}", flush=True)
        return
    if line["memory_bytes"] is not None:
        inputs_of_memory = line["memory_bytes"] / line["bytes_of_an_input"]
        memory = f"  memory {line['memory_bytes'] / 1e6:8.0f} MB = {inputs_of_memory:5.1f} inputs"
    peer = f"  peer: {line['peer_refused']}" if "peer_refused" in line else ""
    if "peer" in line:
        peer = f"  {line['peer']} {line['ratio']:.2f}x the time"
        if line["peer_memory_bytes"] is not None:
            peer += f", {line['peer_memory_bytes'] / 1e6:.0f} MB"
    print(
        f"{line['operator']:18} {shape:20} {line['dtype']:9} {line['milliseconds']:9.2f} ms"
        f"  floor {line['floor_milliseconds']:8.2f}{memory}{peer}",
        flush=True,
    )
