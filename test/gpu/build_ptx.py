"""Compiles the kernels of kernels.py: `build_ptx.py BUILD OUT [family ...] [--chip sm_90a] [--sizes 16x16,...]`.

Leaves NAME.ptx and NAME.json (the manifest) in OUT, for run_ptx.py, which needs nothing else of the compiler. With
`--gradients` these are the kernels of gradients of operators, NAME.0 and NAME.1, and problems NAME.CASE.npz with the
gradients that autograd finds.
"""

import argparse
import itertools
import pathlib
import subprocess
import sys

import kernels
import launch


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--chip", default="sm_90a")
    parser.add_argument("--sizes", default="16x16,32x64,64x64,96x32,128x128")
    parser.add_argument("--elements", default="bf16,f16,f32")
    parser.add_argument("--gradients", action="store_true", help="gradients of the operators that are named")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    translate = [options.build / "bin/stretto-translate", f"--chip={options.chip}"]
    elements = options.elements.split(",")
    if options.gradients:
        failed = build_gradients(translate, options, elements, sizes)
    else:
        built = kernels.all_kernels(options.families, elements, sizes)
        failed = sum(not build(translate, options.out / name, text) for name, text in built)
    sys.exit(bool(failed))


def build(translate, target, text):
    """Leaves the PTX and the manifest of a kernel beside each other; whether there are any."""
    source = target.with_name(target.name + ".mlir")
    source.write_text(text)
    fold = [f"--{option}" for option in kernels.fold_options(target.name)]
    for action, suffix in (("--chunk-to-ptx", "ptx"), ("--chunk-to-manifests", "json")):
        command = [*translate, *fold, action, source, "-o", target.with_name(f"{target.name}.{suffix}")]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{target.name}: {done.stderr.splitlines()[0]}")
            return False
    return True


def build_gradients(translate, options, elements, sizes):
    """The kernels and problems of gradients; the number of failures."""
    import gradients

    failed = 0
    for operator, element, (K, V) in itertools.product(options.families or gradients.SIZES, elements, sizes):
        name = f"{operator}_{element}_k{K}_v{V}"
        try:
            texts = gradients.gradient_kernels(operator, element, K, V, chip=options.chip)
        except gradients.stretto.Error as error:
            failed += 1
            print(f"{name}: {error}")
            continue
        failed += sum(not build(translate, options.out / f"{name}.{i}", text) for i, text in enumerate(texts))
        for case, settings in gradients.gradient_cases(operator, element):
            division = launch.division_of(settings)
            tables = {}
            for text in texts:
                tables |= gradients.tables_of(text, settings["heads"])
            problem = gradients.gradient_problem(operator, element, K, V, **settings)
            launch.save_problem(options.out / f"{name}.{case.replace(' ', '-')}.npz", problem, tables, division)
    return failed


if __name__ == "__main__":
    main()
