"""Runs every operator on small inputs under compute-sanitizer, forwards, backwards and stepped, in each schedule.

    python test/gpu/sanitize.py --results bench/results/FILE.json            # three tools, every operator
    python test/gpu/sanitize.py --tools racecheck --operators gla gsa

A tool, an operator and a type are a process, and as many run at a time as there are processors. What the tool says of
each, and how long it took, is printed and written to the results as it comes; the exit status is 1 where a tool found
an error or broke. Kernels are compiled once, by runs without a tool that come first.
"""

import argparse
import datetime
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path[:0] = [str(ROOT / "test/python"), str(ROOT / "frontends/python")]

import stretto  # noqa: E402
import torch  # noqa: E402
from formulas.examples import example  # noqa: E402
from test_gradients import LOOKING_BACK, entry_names  # noqa: E402
from test_lookbacks import RELATIONS, relation  # noqa: E402
from test_operator_gradients import FIRST, gradients, segments_of, walks_of  # noqa: E402
from test_reference import in_our_words  # noqa: E402
from test_segments import segments  # noqa: E402

# What each tool reports of at last.
SUMMARIES = {
    "memcheck": r"ERROR SUMMARY: (?P<errors>\d+) error",
    "initcheck": r"ERROR SUMMARY: (?P<errors>\d+) error",
    "racecheck": r"RACECHECK SUMMARY: \d+ hazards? displayed \((?P<errors>\d+) errors?, (?P<warnings>\d+) warning",
}
DEVICE = "cuda"


# How a schedule is asked for: segments side by side, chunks of a segment that memory asks for, walks back.
SCHEDULES = {
    "serial": (1, 0, 1),
    "divided": (1, 0, 2),
    "side by side": (3, 0, 1),
    "side by side, divided": (3, 0, 2),
    "one after the other": (1, 1, 1),
    "one after the other, side by side": (3, 3, 2),
}


# With the width of rows and the lengths of sequences: of fp32 few, as racecheck follows each of its products number by
# number.
TYPES = {
    "bf16": (torch.bfloat16, 64, [0, 17, 1, 0, 64, 133, 0]),
    "fp32": (torch.float32, 16, [0, 9, 1, 0, 32, 37, 0]),
}


def run_operator(name: str, element: str) -> None:
    """Each schedule of an operator, forwards and backwards, as a batch and packed, and its step."""
    assert torch.cuda.is_available(), "PyTorch sees no GPU"
    dtype, width, packed = TYPES[element]
    if name == "relation_kl":
        return run_relations(dtype)
    # Based's features are as many as the square of a width.
    sizes = {} if name == "bla" else {"width": width // 4 if name == "based" else width, "value_width": width}
    options = {"heads": 2, "key_heads": 1} | FIRST[name] | sizes
    for schedule, (count, chunks, walks) in SCHEDULES.items():
        for is_packed in (False, True):
            with segments(count), segments_of(chunks), walks_of(walks):
                run_both_ways(name, dtype, packed, is_packed, options)
            torch.cuda.synchronize()
            print(f"{name}: {schedule}, {'packed' if is_packed else 'a batch'}", flush=True)
    run_steps(name, dtype, options)
    print(f"{name}: steps", flush=True)
    return None


def narrow(tensors, dtype):
    return {
        key: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for key, x in tensors.items()
    }


def on_device(tensors):
    return {key: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for key, x in tensors.items()}


def run_both_ways(name, dtype, lengths, is_packed, options) -> None:
    """A packed batch of sequences of some lengths, or two sequences of as many tokens as all these have."""
    tokens = sum(lengths)
    batch, sequences = (1, len(lengths)) if is_packed else (2, 2)
    arguments = narrow(example(name, tokens=tokens, batch=batch, **options)[0], dtype)
    state = [] if name in LOOKING_BACK else example(name, tokens=1, batch=sequences, **options)[1]
    accumulator = torch.promote_types(dtype, torch.float32)
    entries = {
        key: x.to(dtype if key.endswith("_tail") else accumulator) if x.is_floating_point() else x
        for key, x in zip(entry_names(name) if state else (), state, strict=True)
    }
    values = arguments["x" if "x" in arguments else "v"]
    d_output = torch.randn(*values.shape[:2], options["heads"], values.shape[-1])
    d_state = {key: torch.randn(x.shape) for key, x in entries.items() if x.is_floating_point()}
    packed = {"cu_seqlens": torch.tensor([0, *lengths], device=DEVICE).cumsum(0)} if is_packed else {}
    gradients(name, arguments, entries.values(), d_output, d_state, DEVICE, **packed)


def run_relations(dtype) -> None:
    for name, options in RELATIONS.items():
        arguments = on_device(relation(dtype=dtype, **options))
        leaves = [x.requires_grad_() for key, x in arguments.items() if key in ("q_s", "k_s")]
        torch.autograd.grad(stretto.ops.relation_kl(**arguments), leaves)
        torch.cuda.synchronize()
        print(f"relation_kl: {name}", flush=True)


def run_steps(name, dtype, options) -> None:
    variant = getattr(stretto.ops, name).variant
    arguments = on_device(in_our_words(narrow(example(name, tokens=2, **options)[0], dtype)))
    rows = [key for key, x in arguments.items() if isinstance(x, torch.Tensor) and x.dim() >= 3 and x.shape[1] == 2]
    with torch.no_grad():
        state = variant(**arguments, output_final_state=True)[1]
        token = {**arguments, **{key: arguments[key][:, 1].contiguous() for key in rows}}
        for slots in (None, torch.tensor([1, -1], device=DEVICE)):
            variant.step(**token, state=state, slots=slots)
    torch.cuda.synchronize()


# ---------------------------------------------------------------------------------------------------------------------
# Processes
# ---------------------------------------------------------------------------------------------------------------------


def devices() -> list[str]:
    """The GPUs that processes are divided among, by the numbers that the driver gives them."""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    return visible.split(",") if visible else [str(index) for index in range(max(torch.cuda.device_count(), 1))]


def check(tool: str | None, operator: str, element: str, seconds: float, device: str) -> dict[str, object]:
    """What a tool says of an operator on a device; without a tool, whether it runs."""
    sanitizer = ["compute-sanitizer", "--tool", tool, "--print-limit", "200"] if tool else []
    command = [*sanitizer, sys.executable, __file__, "--run", operator, element]
    environment = os.environ | {
        "PYTORCH_NO_CUDA_MEMORY_CACHING": "1",  # memory that PyTorch keeps is as if it had been written
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": device,
    }
    start = time.monotonic()
    found: dict[str, object] = {"tool": tool, "operator": operator, "type": element}
    try:
        # Both streams in one, so that each schedule stands behind what the tool reports of it.
        streams = dict(stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        result = subprocess.run(command, **streams, timeout=seconds, env=environment)
        output = result.stdout
        if result.returncode:
            found["problem"] = f"exit status {result.returncode}"
    except subprocess.TimeoutExpired as error:
        output = error.stdout.decode() if isinstance(error.stdout, bytes) else error.stdout or ""
        found["problem"] = f"cut after {seconds:.0f} s"
    found["seconds"] = round(time.monotonic() - start, 1)
    found["schedules"] = len(re.findall(rf"^{operator}: .*$", output, re.MULTILINE))
    summary = re.search(SUMMARIES[tool], output) if tool else None
    if tool and not summary:
        found.setdefault("problem", "the tool gave no summary")
    if summary:
        found |= {key: int(number) for key, number in summary.groupdict().items()}
    if found.get("problem") or found.get("errors") or found.get("warnings"):
        found["output"] = first_reports(output) or output[-1500:]
        found["reported_of"] = reports_by_schedule(operator, output)
    print({key: value for key, value in found.items() if key != "output"}, flush=True)
    return found


def reports_by_schedule(operator: str, output: str) -> dict[str, int]:
    """How many reports came while each schedule ran, which says its name when all its kernels have ended."""
    found: dict[str, int] = {}
    count = 0
    for line in output.splitlines():
        if re.match(r"=+ (Uninitialized|Invalid|Error: |Warning: )", line):
            count += 1
        elif line.startswith(f"{operator}: ") and count:
            found[line.removeprefix(f"{operator}: ")], count = count, 0
    return found | ({"afterwards": count} if count else {})


def first_reports(output: str, most: int = 10) -> list[str]:
    """What a tool reported, errors before warnings."""
    said = "\n".join(line for line in output.splitlines() if line.startswith("=====") and "Host Frame" not in line)
    reports = re.split(r"^=+ *\n", said, flags=re.MULTILINE)
    return sorted((report for report in reports if report), key=lambda report: "Warning:" in report)[:most]


class Record:
    """What was found, in a file that is whole at any time."""

    def __init__(self, file: pathlib.Path | None):
        self.file = file
        self.found: list[dict[str, object]] = []
        self.writing = threading.Lock()

    def add(self, found: dict[str, object]) -> None:
        with self.writing:
            self.found.append(found)
            if not self.file:
                return
            contents = {
                "machine": {"processor": torch.cuda.get_device_name(), "torch": torch.__version__},
                "commit": os.environ.get("STRETTO_COMMIT", ""),
                "date": datetime.date.today().isoformat(),
                "sanitizers": self.found,
            }
            temporary = self.file.with_suffix(".writing")
            temporary.write_text(json.dumps(contents, indent=1) + "\n")
            temporary.replace(self.file)

    def has_problems(self) -> bool:
        return any(found.get("problem") or found.get("errors") for found in self.found)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tools", nargs="+", choices=SUMMARIES, default=list(SUMMARIES))
    parser.add_argument("--operators", nargs="+", help="all that there are by default")
    parser.add_argument("--seconds", type=float, default=1800, help="the longest that a process may take")
    parser.add_argument("--processes", type=int, default=os.cpu_count())
    parser.add_argument("--results", type=pathlib.Path, help="the JSON file to write")
    parser.add_argument("--run", nargs=2, metavar=("OPERATOR", "TYPE"), help="in this process, without a tool")
    options = parser.parse_args()
    if options.run:
        run_operator(*options.run)
        return 0

    operators = options.operators or [*FIRST, "relation_kl"]
    turns = itertools.cycle(devices())
    record = Record(options.results)
    pool = ThreadPoolExecutor(options.processes)
    try:
        for tools in ([None], options.tools):
            asked = [(*each, options.seconds, next(turns)) for each in itertools.product(tools, operators, TYPES)]
            list(pool.map(lambda each: record.add(check(*each)), asked))
    finally:
        pool.shutdown(cancel_futures=True)  # an interruption begins no more
    return int(record.has_problems())


if __name__ == "__main__":
    sys.exit(main())
