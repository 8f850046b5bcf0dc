"""Executes generated kernels on the host, thread by thread: `simulate.py BUILD [family ...] [--sizes 16x16,...]`.

BUILD is the build folder that holds `stretto-opt` and `simulate-block`. Every kernel of kernels.py is lowered to what
one thread does and run by the simulator in test/simulator, on small launches; each line is a launch and its errors.
`make check` runs a few of them.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import kernels
import launch
import numpy as np

LOWERING = (
    "builtin.module({chunk}stretto-fold-over-chunks,kernel.func(stretto-assign-layouts,stretto-plan-shared-memory,"
    "stretto-insert-barriers),stretto-lower-to-threads,llvm.func(cse{math}))"
)


def manifest_of(text):
    """The manifest of the one function in a lowered module."""
    start = text.index('stretto.manifest = "') + len('stretto.manifest = "')
    return json.loads(text[start : text.index('"}', text.index("]}", start))].replace("\\22", '"').replace('\\"', '"'))


def simulate(tool, threads, run, folder):
    """Runs a launch; its buffers then hold what the kernel left."""
    words = [
        np.array([run.manifest["threads"], run.blocks, run.manifest["sharedBytes"], len(run.block), len(run.buffers)])
    ]
    words.append(run.block)
    for buffer in run.buffers:
        data = buffer.tobytes()
        words += [np.array([len(data)]), np.frombuffer(data + bytes(-len(data) % 8), dtype=np.int64)]
    memory = folder / "memory.bin"
    np.concatenate([w.astype(np.int64) for w in words]).tofile(memory)
    subprocess.run([tool, threads, memory], check=True)
    data, position = np.fromfile(memory, dtype=np.int64), 5 + len(run.block)
    for index, buffer in enumerate(run.buffers):
        count = (buffer.nbytes + 7) // 8
        whole = data[position + 1 : position + 1 + count].tobytes()[: buffer.nbytes]
        run.buffers[index] = np.frombuffer(whole, dtype=buffer.dtype)
        position += 1 + count


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--sizes", default="16x16,64x32")
    parser.add_argument("--elements", default="bf16,f16,f32")
    parser.add_argument("--math", action="store_true", help="expand elementary functions too")
    parser.add_argument("--chunk-passes", default="chunk.kernel(stretto-expand-decay,stretto-round-operands,cse)")
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    tools = options.build / "bin"
    chunk = f"{options.chunk_passes}," if options.chunk_passes else ""
    pipeline = LOWERING.format(chunk=chunk, math=",stretto-expand-math-for-nvptx" if options.math else "")
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kernel, text in kernels.all_kernels(options.families, options.elements.split(","), sizes):
            (folder / "kernel.mlir").write_text(text)
            threads = folder / "threads.mlir"
            command = [tools / "stretto-opt", f"--pass-pipeline={pipeline}", folder / "kernel.mlir", "-o", threads]
            lowered = subprocess.run(command, capture_output=True, text=True)
            if lowered.returncode:
                failed += 1
                print(f"FAIL {kernel}: does not compile: {lowered.stderr.splitlines()[0]}", flush=True)
                continue
            manifest = manifest_of(threads.read_text())
            # Tables stay in the module for the host.
            threads.write_text(re.sub(r"\n  chunk\.table .*?\n  }(?=\n)", "", threads.read_text(), flags=re.DOTALL))
            for case, settings in launch.cases(manifest):
                run = launch.Launch(manifest, **settings)
                try:
                    simulate(tools / "simulate-block", threads, run, folder)
                except subprocess.CalledProcessError:
                    failed += 1
                    print(f"FAIL {kernel} {case}: the simulator stopped", flush=True)
                    continue
                good, line = launch.verdict(kernel, case, run.errors())
                failed += not good
                print(line, flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
