"""Measures stretto beside others: `make bench`, `stretto bench`, or `python bench/run.py --help`.

- **forward** and **gradients**: every operator of `stretto.ops` beside its peers (bench/peers), in turns, with a cold
  cache on a GPU (see `timed`). The floor is the larger of its bytes at the rate of a large copy and its flops at the
  rate of torch.mm, both measured here.
- **compilation**: what a first call costs beyond a second one, with an empty cache, for some operators and each type.
- **dispatch**: a call of a cached kernel on one token, and a step.
- **decode**: steps beside the time that a copy of their states takes.
- **chunks**: every operator in chunks beside the same tokens in steps, from 256 tokens on.
- **accuracy**: errors of outputs and gradients over several draws of the inputs beside those of peers.
- **cold**: from the start of a process to a result, with every cache empty, forwards and with gradients.
- **sweep**: forwards and forwards with gradients of every operator beside its peer over a grid of sizes, few calls each
  (see `sweep`), to find where it is slower. Measured where it is asked for alone; begun again, it goes on where it was.

The results go to bench/results/<machine>-<date>.json with the machine and the commit, line by line: an interrupted run
leaves what it measured, and one that is begun again on the same commit replaces what it measures again and keeps the
rest. Pictures of the tables lie beside them. With `--against` the run fails where a ratio of an earlier file is lost.
"""

import argparse
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

import accuracy
import chunks
import coldstart
import decode
import peers
import pictures
import ratios
import sweep
import timed
import torch
from baselines import inputs, measure
from operators import OPERATORS, Shape

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
COMPILED = ("linear_attn", "simple_gla", "gla", "lawcat")


def compilation(name, dtype, options):
    """What the first call with a type and a width costs beyond the second, and PTX for a GPU that need not be here."""
    run = OPERATORS[name].call()
    width = 128
    tensors = inputs.make(name, 1, 64, 2, width, dtype=TYPES[dtype], device=options.device)
    first = measure.seconds_of(lambda: run(**tensors), torch.device(options.device))
    second = measure.seconds_of(lambda: run(**tensors), torch.device(options.device))
    start = time.perf_counter()
    OPERATORS[name].variant.lower("ptx", target="sm_90a", dtype=dtype)
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
    step, *_ = decode.prepare("gla", (1, 1, 16), torch.float32, options.device)
    return {
        "microseconds": microseconds(functools.partial(OPERATORS["gla"].variant, **tensors)),
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
    """The commit that was measured, marked where files differ from it. Outside a checkout STRETTO_COMMIT names it."""
    described = subprocess.run(
        ["git", "-C", ROOT, "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        capture_output=True,
        text=True,
    )
    return os.environ.get("STRETTO_COMMIT") or described.stdout.strip() or None


def spelled(dtype):
    """The name that PyTorch gives a type."""
    return str(TYPES[dtype]).removeprefix("torch.")


def rates_of(options):
    """Those of torch.mm for each type, by both of its names, and of a large copy, measured here."""
    matmul = {dtype: measure.matmul_rate(TYPES[dtype], device=options.device) for dtype in options.types}
    matmul |= {spelled(dtype): rate for dtype, rate in matmul.items()}
    rates = {"matmul_flops": matmul, "copy_bytes": measure.copy_rate(device=options.device)}
    if options.device == "cuda":
        torch.cuda.empty_cache()  # processes of their own may need it
    return rates


# ---------------------------------------------------------------------------------------------------------------------
# Tables
# ---------------------------------------------------------------------------------------------------------------------


def chosen(options):
    """The operators and the names of the types."""
    return [OPERATORS[name] for name in options.operators], [spelled(dtype) for dtype in options.types]


def lines_of(table, options, rates, measured):
    """The lines of a table, one by one, and how to print one; `measured` are those that there are."""
    operators, types = chosen(options)
    if table == "compilation":
        compiled = (compilation(name, dtype, options) for name, dtype in itertools.product(COMPILED, options.types))
        return compiled, print_compilation
    if table == "decode":
        return decode.lines(types, options.device, rates()["copy_bytes"]), decode.show
    if table == "chunks":
        return chunks.lines(options.types, options.device, rates(), options.rounds), chunks.show
    if table == "cold":
        return coldstart.lines(operators, options.device, options.peers), coldstart.show
    if table == "accuracy":
        return accuracy.lines(operators, types, options.device, options), accuracy.show
    if table == "sweep":
        return sweep.lines(sweep_left(options, measured), rates(), options), sweep.show
    measure.reuse_memory()
    return timed.lines(table, operators, options.shapes, types, rates(), options.device, options), timed.show


TABLES = ("compilation", "dispatch", "decode", "chunks", "accuracy", "forward", "gradients", "cold", "sweep")
BY_DEFAULT = TABLES[:-1]
ONE_EACH = ("operator", "B", "T", "H", "D", "dtype", "gates", "width", "direction", "who")


def key_of(line):
    """What two lines that measure the same share."""
    return tuple(line.get(name) for name in ONE_EACH)


def sweep_left(options, measured):
    """The jobs of the sweep, without what was measured."""
    return sweep.left_of(sweep.jobs_of(*chosen(options), options), measured, key_of)


def merge(lines, line):
    """The lines with one that is new, in the place of that which measured the same before."""
    for index, other in enumerate(lines):
        if key_of(other) == key_of(line):
            lines[index] = line
            return
    lines.append(line)


def opened(results, path):
    """The path to write to, and results with what an earlier run on the same machine and commit left there."""
    if path is None:
        processor = "".join(letter if letter.isalnum() else " " for letter in results["machine"]["processor"].lower())
        path = ROOT / "bench/results" / f"{'-'.join(processor.split())}-{results['date']}.json"
    if path.exists():
        before = json.loads(path.read_text())
        if all(before.get(name) == results[name] for name in ("machine", "commit")):
            return path, before
        path = path.with_name(f"{path.stem}-{results['commit'] or 'unknown'}.json")
        if path.exists():
            return path, json.loads(path.read_text())
    return path, results


def write(results, path):
    write_text(json.dumps(results, indent=1) + "\n", path)


def write_text(text, path):
    """A file that is whole at any time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    temporary.write_text(text)
    os.replace(temporary, path)


def parse():
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if cuda else "cpu", choices=("cpu", "cuda"))
    parser.add_argument("--operators", nargs="+", default=[*OPERATORS], choices=OPERATORS, metavar="NAME")
    parser.add_argument(
        "--shapes", nargs="+", type=Shape.parse, metavar="B,T,H,D", help="instead of those of each operator"
    )
    parser.add_argument("--types", nargs="+", choices=TYPES, help="default: bf16 on a GPU, fp32 and bf16 on a CPU")
    parser.add_argument(
        "--gates", default="same", choices=("same", "fp32"), help="the type of gates; default: the rows'"
    )
    parser.add_argument("--tables", nargs="+", default=[*BY_DEFAULT], choices=TABLES)
    parser.add_argument("--peers", nargs="*", choices=peers.PEERS, metavar="PEER", help="some only, or none")
    parser.add_argument(
        "--eager", action="store_true", help="leave out the forms that take torch.compile a minute each"
    )
    parser.add_argument("--tune", action="store_true", help="tune each call before it is timed")
    parser.add_argument(
        "--tuned-table", type=pathlib.Path, metavar="FILE", help="where what was tuned goes, as a table to ship"
    )
    parser.add_argument("--rounds", type=int, default=15, help="timed calls of each at most")
    parser.add_argument("--seconds", type=float, default=30.0, help="for the timed calls of a line at most")
    parser.add_argument(
        "--output", type=pathlib.Path, help="where the results go; default: bench/results/<machine>-<date>.json"
    )
    parser.add_argument("--against", type=pathlib.Path, help="an earlier file: fail where one of its ratios is lost")
    parser.add_argument("--tolerance", type=float, default=ratios.TOLERANCE, help="what a ratio may lose")
    sweep.add_options(parser)
    options = parser.parse_args()
    options.types = options.types or (["bf16"] if options.device == "cuda" else ["fp32", "bf16"])
    return options


def main():
    options = parse()
    torch.set_grad_enabled(False)
    now = datetime.datetime.now(datetime.UTC).replace(microsecond=0)
    results = {
        "machine": machine(options.device),
        "commit": commit(),
        "date": now.date().isoformat(),
        "at": now.isoformat(),
    }
    print(f"{results['machine']['processor']}, {results['machine']['threads']} threads, commit {results['commit']}")
    path, results = opened(results, options.output)
    rates = functools.cache(lambda: rates_of(options))
    for table in options.tables:
        print(f"\n{table}", flush=True)
        if table == "dispatch":
            results["dispatch"] = spent = dispatch(options)
            print(f"{spent['microseconds']:.1f} us for a call of one token", end=", ")
            print(f"{spent['step_microseconds']:.1f} us for a step")
            write(results, path)
            continue
        lines, show = lines_of(table, options, rates, results.get(table, []))
        if rates.cache_info().currsize:
            results["rates"] = rates()
            shown = ", ".join(f"{name} {rate / 1e12:.2f}" for name, rate in rates()["matmul_flops"].items())
            print(f"torch.mm, TF/s: {shown}; copy {rates()['copy_bytes'] / 1e12:.3f} TB/s", flush=True)
        for line in lines:
            merge(results.setdefault(table, []), line)
            show(line)
            write(results, path)
            if options.tuned_table:
                write_text(torch.ops.stretto._tuned_table(), options.tuned_table)
        if table == "sweep":
            swept = results.get(table, [])
            left = sum(len(job.shapes) for job in sweep_left(options, swept))
            print("\n".join(sweep.summary(swept, left)), flush=True)
    print(f"\nThe results are in {path}.")
    for picture in pictures.draw(results, path):
        print(f"A picture of them is in {picture}.")
    if options.against:
        lost = ratios.lost(results, json.loads(options.against.read_text()), options.tolerance)
        print("\n".join(lost) or f"No ratio of {options.against} is lost.")
        sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
