"""The main job on real input, in one screen: declare, look, compile, run, check, measure, draw.

The operator is none of those in models/: a short convolution on the keys, softmax features, a gate for each channel,
a normaliser and a learned skip, in eleven lines. It runs over the text of Python's own documentation, which is on
every machine, through a small byte-level attention layer of fixed random weights.
"""

import argparse
import functools
import math
import os
import pathlib
import statistics
import time

import torch

import stretto
from stretto import lang as sl

HEADS, WIDTH = 4, 64


@stretto.variant
def fading(
    q: sl.Row["K"],
    k: sl.Row["K"],
    v: sl.Row["V"],
    z: sl.Row["K"],
    taps: sl.Param["H", "K", 4],
    skip: sl.Param["H"],
    tau=sl.Option(16.0),
    eps=sl.Option(1e-6),
):
    "Softmax features behind a short convolution, a gate for each channel, a normaliser and a learned skip."
    S = sl.state("K", "V + 1")
    S = sl.decay(S, log=sl.logsigmoid(z) / tau, along="K")
    S = sl.write(S, sl.softmax(sl.conv(k, taps)), sl.append(v, 1.0))
    num, den = sl.split(sl.read(S, sl.softmax(q), along="K"), "V")
    return num / (den + eps) + skip * v


def fading_in_pytorch(q, k, v, z, taps, skip, tau: float = 16.0, eps: float = 1e-6, chunk: int = 64):
    """The same operator as one would write it in PyTorch: matrix products over chunks, and a scan over their states in
    a logarithmic number of steps. `z` must not be so strong that a chunk's decay leaves the range of fp32.
    """
    B, T, H, _ = q.shape
    length = -(-T // chunk) * chunk

    def chunks(x):
        padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 0, length - T))
        return padded.view(B, -1, chunk, H, x.shape[-1]).transpose(2, 3)

    delayed = torch.nn.functional.pad(k, (0, 0, 0, 0, 3, 0)).unfold(1, 4, 1)
    k = (delayed * taps).sum(-1).softmax(-1)
    b = chunks(torch.nn.functional.logsigmoid(z) / tau).cumsum(-2)
    queries = chunks(q.softmax(-1)) * b.exp()
    keys = chunks(k) * (-b).exp()
    values = chunks(torch.cat([v, torch.ones_like(v[..., :1])], -1))
    inner = (queries @ keys.transpose(-1, -2)).tril() @ values
    decay = b[..., -1:, :].exp().transpose(-1, -2)
    states = (keys * decay.transpose(-1, -2)).transpose(-1, -2) @ values
    step = 1
    while step < length // chunk:
        states = torch.cat([states[:, :step], states[:, step:] + decay[:, step:] * states[:, :-step]], 1)
        decay = torch.cat([decay[:, :step], decay[:, step:] * decay[:, :-step]], 1)
        step *= 2
    before = torch.nn.functional.pad(states, (0, 0, 0, 0, 0, 0, 1, 0))[:, :-1]
    o = (inner + queries @ before).permute(0, 1, 3, 2, 4).reshape(B, length, H, -1)[:, :T]
    return o[..., :-1] / (o[..., -1:] + eps) + skip[:, None] * v


def text_of(length: int) -> torch.Tensor:
    """The first bytes of Python's documentation, as byte values."""
    import pydoc_data.topics

    text = "\n".join(pydoc_data.topics.topics.values()).encode()
    return torch.frombuffer(bytearray(text[:length]), dtype=torch.uint8).long()


def layer_inputs(tokens: torch.Tensor, device: str) -> dict[str, torch.Tensor]:
    """What a byte-level attention layer of fixed random weights makes of a text."""
    generator = torch.Generator().manual_seed(0)
    model = HEADS * WIDTH

    def weights(*shape):
        return torch.randn(shape, generator=generator) / math.sqrt(shape[0])

    hidden = (weights(256, model) * 16)[tokens]
    hidden = torch.nn.functional.layer_norm(hidden, (model,))
    rows = {name: (hidden @ weights(model, model)).view(1, -1, HEADS, WIDTH) for name in "qkvz"}
    taps = torch.tensor([0.1, 0.1, 0.2, 0.6]).expand(HEADS, WIDTH, 4).contiguous()
    inputs = {**rows, "taps": taps, "skip": weights(HEADS)}
    return {name: tensor.to(device) for name, tensor in inputs.items()}


def seconds_of(function, device: str, budget: float = 1.5) -> float:
    """The median time of a call, after two that warm up."""
    wait = torch.cuda.synchronize if device == "cuda" else lambda: None
    for _ in range(2):
        function()
    wait()
    times, start = [], time.perf_counter()
    while len(times) < 3 or (time.perf_counter() - start < budget and len(times) < 50):
        before = time.perf_counter()
        function()
        wait()
        times.append(time.perf_counter() - before)
    return statistics.median(times)


def relative_error(x: torch.Tensor, reference: torch.Tensor) -> float:
    return ((x.double().cpu() - reference).norm() / reference.norm()).item()


def draw(path: pathlib.Path, lengths, times: dict[str, list[float]], errors: list[float], where: str) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.2), layout="constrained")
    for name, seconds in times.items():
        left.loglog(lengths, [1e3 * s for s in seconds], marker="o", label=name)
    left.set(title=f"time on {where}", xlabel="tokens", ylabel="milliseconds")
    left.legend()
    right.semilogx(lengths, errors, marker="o", color="black")
    right.set(title="error against fp64, token by token", xlabel="tokens", ylabel="relative error", yscale="log")
    for axes in (left, right):
        axes.grid(alpha=0.3)
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp.png")
    figure.savefig(temporary, dpi=120)
    os.replace(temporary, path)


@torch.no_grad()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--picture", type=pathlib.Path, default=pathlib.Path("build/demo.png"))
    parser.add_argument("--lengths", type=int, nargs="+", default=[1024, 2048, 4096, 8192, 16384])
    options = parser.parse_args()
    device = options.device

    print("1. The declaration\n")
    print(fading.mlir())
    print("2. What one chunk of tokens does\n")
    print(fading.lower("chunk", K=WIDTH, V=WIDTH, dtype="fp32"))

    inputs = layer_inputs(text_of(max(options.lengths)), device)
    rows, parameters = "qkvz", {name: inputs[name] for name in ("taps", "skip")}

    def first(length):
        return {**{name: inputs[name][:, :length] for name in rows}, **parameters}

    lengths = sorted(set(options.lengths))
    longest = first(lengths[-1])
    start = time.perf_counter()
    fading(**longest)
    print(f"3. The first call, compilation included: {time.perf_counter() - start:.2f} s")
    print(fading.explain(**longest))

    # Causal: the reference of a longer text begins with that of a shorter one.
    reference = fading.reference(**longest).cpu()
    by_hand = relative_error(fading_in_pytorch(**longest), reference)
    errors = [relative_error(fading(**first(length)), reference[:, :length]) for length in lengths]
    worst = max(errors)
    print(
        f"\n4. Against fp64, token by token, on {lengths[-1]} tokens of text: error {worst:.1e}"
        f" (PyTorch: {by_hand:.1e})"
    )
    if not worst < 5e-6:
        raise SystemExit(f"the error is {worst:.1e}, expected less than 5e-6")

    print(f"\n5. Milliseconds on {device}\n\n   tokens   stretto     eager   compiled   against the better")
    compiled = torch.compile(fading_in_pytorch, dynamic=False)
    times = {"stretto": [], "PyTorch, eager": [], "PyTorch, compiled": []}
    for length in lengths:
        arguments = first(length)
        forms = (fading, fading_in_pytorch, compiled)
        measured = [seconds_of(functools.partial(form, **arguments), device) for form in forms]
        for name, value in zip(times, measured, strict=True):
            times[name].append(value)
        shown = "  ".join(f"{1e3 * value:8.2f}" for value in measured)
        print(f"  {length:7d}  {shown}   {min(measured[1:]) / measured[0]:8.1f}x", flush=True)
    draw(options.picture, lengths, times, errors, "the GPU" if device == "cuda" else "the CPU")
    print(f"\nThe picture is in {options.picture}.")


if __name__ == "__main__":
    main()
