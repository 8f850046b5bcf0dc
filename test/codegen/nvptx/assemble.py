# RUN: %python %s %ptxas sm_90a bf16 f32
# RUN: %python %s %ptxas sm_90a f16
# RUN: %python %s %ptxas sm_80 bf16
# RUN: %python %s %ptxas sm_89 bf16
# RUN: %python %s %ptxas sm_120 bf16
"""Kernels of all families compile and assemble without a warning, spills, stack or local memory, and products find
their operands as they were left.
"""

import functools
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import kernels
from machine_code import has_operands_in_registers, overwritten_operands

# Widths of keys and values, where chips and types have most ways to form products, and elsewhere.
SIZES = ((16, 16), (96, 32), (64, 64), (128, 128))
FEWER_SIZES = ((64, 64), (128, 128))

# Products of 64 x 64 x 64, four of them. Four warps form one together in 4 steps; on other chips 8 warps have 16 x 32
# of a result, four fragments, and each step loads the left operand and two pairs of fragments of the right one. Three
# tiles of 64 x 64 numbers are copied by 256 threads in pieces of 8 numbers, before the loop and in it, or by the memory
# system, one box each.
BY_THREADS, IN_BOXES = {"cp.async.cg": 3 * 2 * 2, "cp.async.bulk.tensor": 0}, {"cp.async.cg": 0}
BY_WARPS = {"wgmma.mma_async": 0, "mma.sync": 4 * 4 * 4, "ldmatrix": 4 * 4 * 3}
BY_WARPGROUPS = {"wgmma.mma_async": 4 * 4, "mma.sync": 0, "ldmatrix": 0}
INSTRUCTIONS = {"sm_90a": BY_WARPGROUPS | IN_BOXES}
COUNTED = "linear_bf16_k64_v64"

# Beside a state of 64 by 64 numbers, inverses and a scan want four registers more than a thread has on this chip.
BYTES_SPILLED = {("scans_bf16_k64_v64", "sm_120"): 16}


def modules(elements):
    """Names, and texts of kernels by their names: a family at a time, because a process takes a while to start. Tables
    are symbols, so that kernels with tables do not share a module.
    """
    for family in kernels.FAMILIES:
        texts = {}
        for element in elements:
            sizes = ((64, 64),) if len(elements) == 1 else SIZES if element == "bf16" else FEWER_SIZES
            texts |= kernels.all_kernels([family], [element], sizes)
        alone = [name for name, text in texts.items() if "chunk.table" in text]
        yield from ((name, {name: texts.pop(name)}) for name in alone)
        in_place = {name: texts.pop(name) for name in list(texts) if kernels.fold_options(name)}
        if texts:
            yield family, texts
        if in_place:
            yield family + "_inplace", in_place


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.stderr.strip() or done.returncode}")
    return done.stderr


def body_of(ptx, name):
    """The instructions of one kernel."""
    start = ptx.index(f".entry {name}(")
    return ptx[start : ptx.index("\n}", start)]


def problems_of(texts, ptx, report, expected, chip):
    """What is wrong with the kernels of a module, by name, once it is compiled and assembled."""
    if "warning" in report.lower() or "serialized" in report:
        yield "module", report
    reports = dict(re.findall(r"Compiling entry function '(\w+)'(.*?Used \d+ registers)", report, re.DOTALL))
    for name in texts:
        spilled = BYTES_SPILLED.get((name, chip), 0)
        clean = f"{spilled} bytes stack frame, {spilled} bytes spill stores, {spilled} bytes spill loads"
        if clean not in reports.get(name, ""):
            yield name, reports.get(name, "is not in the report of ptxas")
        if name == COUNTED:
            found = {word: body_of(ptx, name).count(word) for word in expected}
            if found != expected:
                yield name, f"has {found}, expected {expected}"


def check(folder, ptxas, chip, module):
    """Whether every kernel of a module is as it should be, and one line for each that is not."""
    title, texts = module
    source, code = folder / f"{title}.mlir", folder / f"{title}.ptx"
    source.write_text("\n".join(texts.values()))
    try:
        fold = [f"--{option}" for option in kernels.fold_options(title)]
        run("stretto-translate", "--chunk-to-ptx", *fold, f"--chip={chip}", source, "-o", code)
        report = run(ptxas, "-v", f"-arch={chip}", code, "-o", folder / f"{title}.cubin")
    except RuntimeError as error:
        return False, f"FAIL {title}: {error}"
    expected = INSTRUCTIONS.get(chip, BY_WARPS | BY_THREADS)
    ptx = code.read_text()
    problems = [f"FAIL {name}: {text}" for name, text in problems_of(texts, ptx, report, expected, chip)]
    if has_operands_in_registers(ptx):
        problems += [f"FAIL {text}" for text in overwritten_operands(folder / f"{title}.cubin")]
    return not problems, "\n".join(problems) or f"ok   {title}: {len(texts)} kernels"


def main():
    ptxas, chip, *elements = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        results = list(pool.map(functools.partial(check, pathlib.Path(folder), ptxas, chip), modules(elements)))
    print("\n".join(line for _, line in results))
    sys.exit(not all(good for good, _ in results))


if __name__ == "__main__":
    main()
