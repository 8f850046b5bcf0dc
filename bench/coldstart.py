"""From the start of a process to a result, with every cache empty: stretto's, the CUDA driver's, Triton's and
torch.compile's. A table of bench/run.py. Each call has a process of its own: `python bench/coldstart.py --help`.
"""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time

TABLES = ("forward", "gradients")
SHAPE = {"cpu": (1, 1024, 4, 128), "cuda": (1, 8192, 32, 128)}
SECONDS = 300
OURS = "stretto"


def child(operator, table, device, who, started):
    """Runs the one call and says how long what took."""
    seconds, before = {}, time.time()
    seconds["interpreter"] = before - started

    def lap(name):
        nonlocal before
        now = time.time()
        seconds[name] = now - before
        before = now

    import torch

    lap("torch")
    if device == "cuda":
        torch.zeros(1, device=device)
        torch.cuda.synchronize()
        lap("context")
    import peers
    from operators import OPERATORS, Shape

    lap("stretto")
    found, dtype = OPERATORS[operator], torch.bfloat16 if device == "cuda" else torch.float32
    shape = Shape(*SHAPE[device])
    tensors = found.inputs(shape, dtype, device, dtype)
    if table == "gradients":
        for name, x in tensors.items():
            x.requires_grad_(name not in found.constants)
    function = found.call()
    if who != OURS:
        forms = peers.PEERS[who].forms(operator=found, dtype=dtype, device=device, eager=False)
        function = max(forms.items(), key=lambda form: form[0].startswith("compiled"))[1]
    if device == "cuda":
        torch.cuda.synchronize()
    lap("inputs")
    with torch.set_grad_enabled(table == "gradients"):
        output = function(**tensors)
        if table == "gradients":
            torch.autograd.grad(output.sum(), [x for x in tensors.values() if x.requires_grad])
    if device == "cuda":
        torch.cuda.synchronize()
    lap("call")
    print(json.dumps(seconds))


def measured(operator, table, device, who):
    """One line: what a process of its own took."""
    batch, tokens, heads, width = SHAPE[device]
    line = {"operator": operator.name, "B": batch, "T": tokens, "H": heads, "D": width, "direction": table, "who": who}
    with tempfile.TemporaryDirectory() as folder:
        places = ("CUDA_CACHE_PATH", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "XDG_CACHE_HOME")
        environment = os.environ | {name: str(pathlib.Path(folder) / name) for name in places}
        environment |= {"STRETTO_CACHE_DIR": str(pathlib.Path(folder) / "stretto")}
        started = time.time()
        command = [sys.executable, __file__, operator.name, table, device, who, repr(started)]
        try:
            run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=SECONDS)
        except subprocess.TimeoutExpired:
            return {**line, "refused": f"no result in {SECONDS} s"}
        whole = time.time() - started
    if run.returncode:
        return {**line, "refused": (run.stderr.strip() or "no message").splitlines()[-1]}
    parts = json.loads(run.stdout.splitlines()[-1])
    return {**line, "call_seconds": parts["call"], "process_seconds": whole, "parts": parts}


def lines(operators, device, wanted):
    """The lines of the table, one by one; `wanted` are the names of peers, None for all that can be used here."""
    import peers

    for operator in operators:
        beside = [
            peer.name
            for peer in peers.of(operator.name, device)
            if peer.same and (peer.name in wanted if wanted is not None else True) and not peer.missing()
        ]
        for table in TABLES:
            for who in (OURS, *beside):
                yield measured(operator, table, device, who)


def show(line):
    shape = " ".join(f"{name}{line[name]}" for name in "BTHD")
    start = f"{line['operator']:22} {shape:20} {line['direction']:9} {line['who']:28}"
    if "refused" in line:
        print(f"{start} refused: {line['refused']}", flush=True)
        return
    print(f"{start} call {line['call_seconds']:6.2f} s, process {line['process_seconds']:6.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("operator", "table", "device", "who"):
        parser.add_argument(name)
    parser.add_argument("started", type=float)
    child(**vars(parser.parse_args()))
