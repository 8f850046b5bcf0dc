"""Compiles the kernels of kernels.py: `build_ptx.py BUILD OUT [family ...] [--chip sm_90a] [--sizes 16x16,...]`.

Leaves NAME.ptx and NAME.json (the manifest) in OUT, for run_ptx.py, which needs nothing else of the compiler.
"""

import argparse
import pathlib
import subprocess
import sys

import kernels


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--chip", default="sm_90a")
    parser.add_argument("--sizes", default="16x16,32x64,64x64,96x32,128x128")
    parser.add_argument("--elements", default="bf16,f16,f32")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    translate = [options.build / "bin/stretto-translate", f"--chip={options.chip}"]
    failed = 0
    for name, text in kernels.all_kernels(options.families, options.elements.split(","), sizes):
        source = options.out / f"{name}.mlir"
        source.write_text(text)
        for action, suffix in (("--chunk-to-ptx", "ptx"), ("--chunk-to-manifests", "json")):
            command = [*translate, action, source, "-o", options.out / f"{name}.{suffix}"]
            done = subprocess.run(command, capture_output=True, text=True)
            if done.returncode:
                failed += 1
                print(f"{name}: {done.stderr.splitlines()[0]}")
                break
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
