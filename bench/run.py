"""Measures stretto beside PyTorch: `make bench`, or `python bench/run.py --help`.

Six tables, all of one run:

- **speed**: the operator beside the fastest of PyTorch's forms of it (see `baselines`) and softmax attention, timed in
  turns. `floor` is the larger of its bytes at the rate of a large copy and its flops at the rate of torch.mm, both
  measured here; `mm` is the rate that it reaches as a part of torch.mm's.
- **compilation**: what a first call costs beyond a second one, with an empty cache, for every operator and type.
- **dispatch**: a call of a cached kernel on one token, and a step.
- **decode**: steps beside the time that a copy of their states takes.
- **chunks**: every operator in chunks beside the same tokens in steps, from 256 tokens on.
- **gradients**: forwards and backwards, beside the time that a copy of all inputs, outputs and gradients takes, beside
  autograd through the fastest of PyTorch's forms on a CPU, and the most memory that a call on a GPU holds, its results
  and gradients included.

The results go to bench/results/<machine>-<date>.json with the machine and the commit, line by line: an interrupted run
leaves what it measured.
"""

import argparse
import dataclasses
import datetime
import functools
import itertools
import json
import os
import pathlib
import platform
import subprocess
import sys
import time

# Compilation is measured: nothing may be found on disk. Read once by the library, so before it is loaded.
os.environ["STRETTO_CACHE_DIR"] = ""

import baselines
import chunks
import decode
import gradients
import stretto
import torch
from baselines import inputs, measure

ROOT = pathlib.Path(__file__).resolve().parents[1]
OPERATORS = ("linear_attn", "simple_gla", "gla", "lawcat")
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
NOMINAL_CHUNK = 64


@dataclasses.dataclass(frozen=True)
class Shape:
    """Batch, tokens, heads and width of q, k and v."""

    B: int
    T: int
    H: int
    D: int

    @classmethod
    def parse(cls, text):
        return cls(*(int(part) for part in text.split(",")))

    def __str__(self):
        return " ".join(f"{name}{size}" for name, size in dataclasses.asdict(self).items())


def operator_of(name):
    """A shipped operator as a function of `inputs.make`'s tensors that returns its output alone."""
    if name == "linear_attn":
        return functools.partial(stretto.ops.linear_attn.variant, normalize=False)
    return getattr(stretto.ops, name).variant


def flops_of(name, shape):
    """Multiplications and additions in chunks of 64 tokens, half of the pairs of tokens: the least that is customary.

    What another chunk size saves is speed. For each token and head: reading and writing the state, 4 K V; products of
    pairs, (K + V) (64 + 1). LAWCAT adds two matrices of features, 2 * 2 K K/2, and a column of values.
    """
    key_width, value_width = shape.D, shape.D + (name == "lawcat")
    each = 4 * key_width * value_width + (key_width + value_width) * (NOMINAL_CHUNK + 1)
    if name == "lawcat":
        each += 2 * shape.D * shape.D
    return shape.B * shape.T * shape.H * each


def bytes_of(tensors, output):
    """Every input and the output once."""
    return sum(tensor.numel() * tensor.element_size() for tensor in [*tensors.values(), output])


def speed(name, shape, dtype, rates, options):
    """One line of the first table, as a dictionary."""
    run = operator_of(name)
    tensors = inputs.make(name, *dataclasses.astuple(shape), dtype=TYPES[dtype], device=options.device)
    softmax = {key: tensors[key] for key in ("q", "k", "v")}
    beside = {
        "stretto": functools.partial(run, **tensors),
        "softmax": functools.partial(baselines.softmax_attn, **softmax),
    }
    peer = baselines.best(
        name,
        dataclasses.astuple(shape),
        TYPES[dtype],
        options.device,
        compile_too=not options.eager,
        beside=beside,
        rounds=options.rounds,
    )
    ours, attention = peer.timings["stretto"], peer.timings["softmax"]
    flops, size = flops_of(name, shape), bytes_of(tensors, beside["stretto"]())
    matmul, copy = rates["matmul_flops"][dtype], rates["copy_bytes"]
    return {
        "operator": name,
        **dataclasses.asdict(shape),
        "dtype": dtype,
        "milliseconds": 1e3 * ours.median,
        "fastest_milliseconds": 1e3 * ours.fastest,
        "floor_milliseconds": 1e3 * max(size / copy, flops / matmul),
        "peer": peer.name,
        "peer_milliseconds": 1e3 * peer.seconds,
        "against_peer": peer.seconds / ours.median,
        "softmax_milliseconds": 1e3 * attention.median,
        "against_softmax": attention.median / ours.median,
        "part_of_matmul": flops / ours.median / matmul,
    }


def print_speed(line):
    shape = Shape(*(line[name] for name in "BTHD"))
    print(
        f"{line['operator']:12} {shape!s:20} {line['dtype']} {line['milliseconds']:9.2f} ms"
        f"  floor {line['floor_milliseconds']:8.2f}  mm {100 * line['part_of_matmul']:4.0f} %"
        f"  PyTorch {line['peer_milliseconds']:9.2f} = {line['against_peer']:5.2f}x"
        f"  softmax {line['softmax_milliseconds']:9.2f} = {line['against_softmax']:5.1f}x   ({line['peer']})",
        flush=True,
    )


def compilation(name, dtype, options):
    """What the first call with a type and a width costs beyond the second, and PTX for a GPU that need not be here."""
    run = operator_of(name)
    width = 128
    tensors = inputs.make(name, 1, 64, 2, width, dtype=TYPES[dtype], device=options.device)
    first = measure.seconds_of(lambda: run(**tensors), torch.device(options.device))
    second = measure.seconds_of(lambda: run(**tensors), torch.device(options.device))
    variant = getattr(stretto.ops, name).variant
    start = time.perf_counter()
    variant.lower("ptx", target="sm_90a", dtype=dtype)
    return {
        "operator": name,
        "dtype": dtype,
        "width": width,
        "compile_milliseconds": 1e3 * (first - second),
        "ptx_milliseconds": 1e3 * (time.perf_counter() - start),
    }


def print_compilation(line):
    print(
        f"{line['operator']:12} {line['dtype']} width {line['width']}: {line['compile_milliseconds']:6.0f} ms to a"
        f" running kernel, {line['ptx_milliseconds']:6.0f} ms to PTX",
        flush=True,
    )


def dispatch(options):
    """Microseconds of a call whose kernel has nothing to do but one token."""
    device, calls = torch.device(options.device), 2000

    def microseconds(run):
        run()
        return 1e6 / calls * measure.seconds_of(lambda: [run() for _ in range(calls)], device)

    tensors = inputs.make("gla", 1, 1, 1, 16, device=options.device)
    step, _ = decode.prepare("gla", (1, 1, 16), torch.float32, options.device)
    return {
        "microseconds": microseconds(functools.partial(operator_of("gla"), **tensors)),
        "step_microseconds": microseconds(step),
    }


def machine(device):
    """What the figures depend on."""
    if device == "cuda":
        processor = torch.cuda.get_device_name()
    else:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines() if sys.platform == "linux" else []
        models = [line.split(":")[1].strip() for line in lines if line.startswith("model name")]
        processor = models[0] if models else platform.processor()
    return {
        "processor": processor,
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "system": platform.platform(),
    }


def commit():
    """The commit that was measured, marked where files differ from it; None outside a checkout."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
    )
    return described.stdout.strip() or None


def rates_of(options):
    """Those of torch.mm for each type and of a large copy, measured here."""
    return {
        "matmul_flops": {dtype: measure.matmul_rate(TYPES[dtype], device=options.device) for dtype in options.types},
        "copy_bytes": measure.copy_rate(device=options.device),
    }


def write(results, path):
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(json.dumps(results, indent=2) + "\n")
    os.replace(temporary, path)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--operators", nargs="+", default=OPERATORS, choices=OPERATORS)
    parser.add_argument(
        "--shapes",
        nargs="+",
        type=Shape.parse,
        metavar="B,T,H,D",
        default=[Shape(1, 2048, 8, 64), Shape(1, 4096, 16, 128)],
    )
    parser.add_argument("--types", nargs="+", default=["fp32", "bf16"], choices=TYPES)
    parser.add_argument(
        "--tables",
        nargs="+",
        default=["speed", "compilation", "dispatch", "decode", "chunks", "gradients"],
        choices=("speed", "compilation", "dispatch", "decode", "chunks", "gradients"),
    )
    parser.add_argument(
        "--eager", action="store_true", help="leave out the forms that take torch.compile a minute each"
    )
    parser.add_argument("--rounds", type=int, default=15, help="timed calls of each finalist")
    parser.add_argument(
        "--output", type=pathlib.Path, help="where the results go; default: bench/results/<machine>-<date>.json"
    )
    options = parser.parse_args()
    torch.set_grad_enabled(False)

    results = {"machine": machine(options.device), "commit": commit(), "date": datetime.date.today().isoformat()}
    processor = "".join(letter if letter.isalnum() else " " for letter in results["machine"]["processor"].lower())
    path = options.output or ROOT / "bench/results" / f"{'-'.join(processor.split())}-{results['date']}.json"
    print(f"{results['machine']['processor']}, {results['machine']['threads']} threads, commit {results['commit']}")
    if "compilation" in options.tables:
        print("\ncompilation, cold")
        results["compilation"] = []
        for name, dtype in itertools.product(OPERATORS, options.types):
            results["compilation"].append(line := compilation(name, dtype, options))
            print_compilation(line)
            write(results, path)
    if "dispatch" in options.tables:
        results["dispatch"] = dispatch(options)
        spent = results["dispatch"]
        print(f"\ndispatch: {spent['microseconds']:.1f} us for a call of one token", end=", ")
        print(f"{spent['step_microseconds']:.1f} us for a step")
        write(results, path)
    if "decode" in options.tables:
        rate = measure.copy_rate(device=options.device)
        print(f"\ndecode; copy {rate / 1e9:.0f} GB/s")
        results["decode"] = []
        names = [str(TYPES[dtype]).removeprefix("torch.") for dtype in options.types]
        for line in decode.lines(names, options.device, rate):
            results["decode"].append(line)
            decode.show(line)
            write(results, path)
    if "chunks" in options.tables:
        print("\nchunks beside steps")
        results["chunks"] = []
        for line in chunks.lines(options.types, options.device, rates_of(options), options.rounds):
            results["chunks"].append(line)
            chunks.show(line)
            write(results, path)
    if "gradients" in options.tables:
        measure.reuse_memory()
        rate = measure.copy_rate(device=options.device)
        print(f"\ngradients; copy {rate / 1e9:.0f} GB/s")
        results["gradients"] = []
        names = [str(TYPES[dtype]).removeprefix("torch.") for dtype in options.types]
        shapes = [dataclasses.astuple(shape) for shape in options.shapes]
        for line in gradients.lines(names, shapes, options.device, rate, options.rounds, options.eager):
            results["gradients"].append(line)
            gradients.show(line)
            write(results, path)
    if "speed" in options.tables:
        measure.reuse_memory()
        rates = rates_of(options)
        results |= {"rates": rates, "forms": "eager" if options.eager else "eager and compiled", "speed": []}
        shown = ", ".join(f"{dtype} {rate / 1e9:.0f} GF/s" for dtype, rate in rates["matmul_flops"].items())
        print(f"\nspeed; torch.mm {shown}, copy {rates['copy_bytes'] / 1e9:.0f} GB/s")
        for dtype, shape, name in itertools.product(options.types, options.shapes, options.operators):
            results["speed"].append(line := speed(name, shape, dtype, rates, options))
            print_speed(line)
            write(results, path)
    print(f"\nThe results are in {path}.")


if __name__ == "__main__":
    main()
