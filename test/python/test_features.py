"""Declarations with feature maps, which run as several where STRETTO_FEATURES says so, as on GPUs they do: all that
holds of the whole holds of its parts.
"""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import stretto
from test_ptx import ptxas, spilled

__all__ = ["ptxas"]
HERE = pathlib.Path(__file__).parent
FILES = ["operators", "operator_gradients", "continued_gradients", "wanted_gradients", "segments", "inventions",
         "gradient_segments", "operator_torch", "long_gradients"]  # fmt: skip
# What kernels there are is told otherwise, and compiled graphs do not depend on it.
NOT_OF_PARTS = ["test_walks", "test_lengths", "says_why", "fullgraph"]
DESELECTED = [
    f"test_gradient_segments.py::test_gradients_agree_with_autograd[{name}-2]" for name in ("lawcat", "supra")
]


def test_parts_agree_with_formulas():
    """The tests of outputs, states and gradients, with initial states, packed, divided and continued."""
    chosen = f"(lawcat or supra or convolved_projections) and not ({' or '.join(NOT_OF_PARTS)})"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += [f"--deselect=test/python/{name}" for name in DESELECTED]
    command += [f"test/python/test_{name}.py" for name in FILES]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["STRETTO_FEATURES"] = "1"
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    passed = re.search(r"(\d+) passed", finished.stdout)
    assert finished.returncode == 0, finished.stdout[-4000:]
    assert passed and int(passed[1]) > 150


def test_other_feature_maps():
    """Layers, heads of keys, values and outputs, features that are written and read."""
    environment = os.environ | {"STRETTO_FEATURES": "1"}
    command = [sys.executable, HERE / "feature_maps.py"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (0, "agrees\n"), finished.stderr


def test_parts_are_explained_and_tuned(tmp_path):
    script = """
import torch, stretto
row, taps, matrix = torch.randn(1, 70, 2, 8), torch.randn(2, 8, 4), torch.randn(2, 8, 4)
inputs = (row, row, row, row, taps, taps, matrix)
lawcat = stretto.ops.lawcat.variant
found = lawcat.explain(*inputs)
print(found["kernel"], [part["kernel"] for part in found["features"]], found["feature_bytes"] // row.nbytes)
for wanted in (["v"], ["q"]):
    found = lawcat.explain(*inputs, backward=True, wanted=wanted)
    print(found["gradients"], [part["gradients"] for part in found["features"]])
found = lawcat.tune(*inputs, backward=True, wanted=["q"], seconds=2)
print([len(found[way]["candidates"]) > 0 and len(found[way]["features"]) for way in ("forward", "backward")])
"""
    environment = os.environ | {"STRETTO_FEATURES": "1", "XDG_STATE_HOME": str(tmp_path)}
    finished = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == [
        "lawcat_rest ['lawcat_features_0'] 3",
        # Nothing of what features are made of is wanted, or something is.
        "['v'] []",
        "['feature_0', 'feature_1', 'feature_2'] [['q']]",
        "[1, 1]",
    ]


# The most bytes that a thread of a kernel spills, of parts, in bf16; others spill none.
SPILLS = {("lawcat", 64, True): 80, ("lawcat", 128, True): 16, ("lawcat", 128, False): 16}


def parts_of(operator, width):
    """The parts of a declaration by their names, with sizes and heads."""
    absent = ["weight", "bias"] if operator == "supra" else []
    together = "{together}" if width == 64 else ""
    module = getattr(stretto.ops, operator).variant.module.specialize(absent=absent)
    module = module.run(f"stretto-split-features{together}")
    for name in re.findall(r"stretto.variant @(\w+)", str(module)):
        part = module.variant(name)
        sizes = {size: str(width) for size in "DFV" if re.search(rf"row<{size}[,>]", str(part))}
        heads = {"G": "32"} if name == "lawcat_features_2" else {"H": "32", "G": "32"}
        if "G>" not in str(part):
            heads.pop("G")
        yield name, part.specialize(dims=sizes, heads=heads)


@pytest.mark.parametrize("kind", ["results", "segments"])
@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("operator, width", [("lawcat", 64), ("lawcat", 128), ("supra", 64), ("supra", 128)])
def test_parts_assemble(ptxas, tmp_path, operator, width, backward, kind):
    names = []
    for name, part in parts_of(operator, width):
        names.append(name)
        if kind == "segments" and name == "lawcat_features_2":
            continue  # carries nothing
        if backward:
            part = part.run("stretto-differentiate").variant(f"{name}_backward")
        ptx = part.lower("ptx", "sm_90a", "bf16", kind)
        most = max(int(spills) for _, spills in spilled(ptxas, tmp_path, ptx))
        assert most <= SPILLS.get((operator, width, backward), 0), name
    count = {("lawcat", 128): 3, ("supra", 128): 2}.get((operator, width), 1)
    assert names == [*(f"{operator}_features_{number}" for number in range(count)), f"{operator}_rest"]
