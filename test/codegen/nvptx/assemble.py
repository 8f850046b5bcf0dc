# RUN: %python %s %ptxas sm_90a
# RUN: %python %s %ptxas sm_80 --brief
# RUN: %python %s %ptxas sm_89 --brief
# RUN: %python %s %ptxas sm_120 --brief
"""Kernels of all families compile and assemble, without spills, stack or local memory."""

import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "gpu"))
import kernels

ptxas, chip, *brief = sys.argv[1:]
elements = ("bf16",) if brief else ("bf16", "f16", "f32")
sizes = ((64, 64),) if brief else ((16, 16), (64, 64), (128, 128))
failed = 0
with tempfile.TemporaryDirectory() as folder:
    for name, text in kernels.all_kernels(None, elements, sizes):
        source, ptx = pathlib.Path(folder, "kernel.mlir"), pathlib.Path(folder, "kernel.ptx")
        source.write_text(text)
        done = subprocess.run(["stretto-translate", "--chunk-to-ptx", f"--chip={chip}", source, "-o", ptx], capture_output=True, text=True)
        if not done.returncode:
            done = subprocess.run([ptxas, "-v", f"-arch={chip}", ptx, "-o", "/dev/null"], capture_output=True, text=True)
        registers = re.search(r"Used (\d+) registers", done.stderr)
        clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in done.stderr
        good = done.returncode == 0 and clean
        failed += not good
        print("ok  " if good else "FAIL", name, f"{registers[1]} registers" if registers else done.stderr, "" if clean or not registers else done.stderr)
sys.exit(bool(failed))
