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
# Groups of heads are divided as well as their gradients are; what is continued or wanted is not asked of them again.
WITH_GROUPS = ["operator_gradients", "gradient_segments"]
# What kernels there are is told otherwise, and compiled graphs do not depend on it.
NOT_OF_PARTS = ["test_walks", "test_lengths", "says_why", "fullgraph"]
DESELECTED = [
    f"test_gradient_segments.py::test_gradients_agree_with_autograd[{name}]"
    for name in ("lawcat-2", "supra-1", "supra-2")
]


@pytest.mark.parametrize("groups", [0, 3])
def test_parts_agree_with_formulas(groups):
    """The tests of outputs, states and gradients, with initial states, packed, divided and continued."""
    chosen = f"(lawcat or supra or convolved_projections) and not ({' or '.join(NOT_OF_PARTS)})"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", chosen]
    command += [f"--deselect=test/python/{name}" for name in DESELECTED]
    command += [f"test/python/test_{name}.py" for name in (WITH_GROUPS if groups else FILES)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment |= {"STRETTO_FEATURES": "1", "STRETTO_GROUPS": str(groups)}
    if groups:
        command += ["--deselect=test/python/test_operator_gradients.py::test_checkpoints_take_no_more_than_two_inputs"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=HERE.parent.parent)
    passed = re.search(r"(\d+) passed", finished.stdout)
    assert finished.returncode == 0, finished.stdout[-4000:]
    assert passed and int(passed[1]) > (60 if groups else 150)


@pytest.mark.parametrize("groups", ["0", "2", "4"])
def test_other_feature_maps(groups):
    """Layers, heads of keys, values and outputs, features that are written and read; gradients of groups of heads."""
    environment = os.environ | {"STRETTO_FEATURES": "1", "STRETTO_GROUPS": groups}
    command = [sys.executable, HERE / "feature_maps.py"]
    finished = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert (finished.returncode, finished.stdout) == (0, "agrees\n"), finished.stderr


def test_what_is_split():
    """Features of at most 192 numbers are found together, as LAWCAT's three of width 64 and SUPRA's two of 96; those of
    more than twice the rows that they are made of, with the declaration."""
    script = """
import stretto, torch
from stretto import lang as sl

@stretto.variant
def map_to(k: sl.Row["D"], v: sl.Row["V"], w: sl.Param["H", "D", "F"]):
    S = sl.write(sl.state("F", "V"), sl.softmax(sl.matvec(k, w)), v)
    return sl.read(S, sl.softmax(sl.matvec(k, w)), along="F")

def count(variant, *inputs):
    print(len(variant.explain(*inputs).get("features", [])), end=" ")

def row(width):
    return torch.randn(1, 20, 1, width)

for width in (64, 72):
    taps = torch.randn(1, width, 4)
    count(stretto.ops.lawcat.variant, *[row(width)] * 4, taps, taps, torch.randn(1, width, width // 2))
for width in (96, 104):
    weight, bias = torch.randn(1, width, width), torch.randn(1, width)
    count(stretto.ops.supra.variant, *[row(width)] * 3, weight, bias, weight, bias, -torch.rand(1))
for features in (16, 20):
    count(map_to, row(8), row(8), torch.randn(1, 8, features))
"""
    environment = os.environ | {"STRETTO_FEATURES": "1"}
    finished = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True)
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == ["1", "3", "1", "2", "1", "0"]


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
        # Nothing of what features are made of is wanted, or something is: gradients have parts of each feature.
        "['v'] []",
        "['feature_1'] [['q']]",
        "[1, 1]",
    ]


def test_gradients_of_parts_take_no_more_than_two_inputs():
    """Cotangents of features counted, and what gradients of features take. Where these are wider than rows, heads and
    sequences come in groups, and those that are too few have the gradient of the whole."""
    script = """
import sys
sys.path.insert(0, "test/python")
import stretto, torch
from stretto import lang as sl
from test_operator_gradients import bytes_taken, explanation, most_bytes

def check(found, size):
    assert bytes_taken(found) <= most_bytes(found, size), (found, size)
    for part in found.get("features", []):
        assert bytes_taken(part) <= most_bytes(found, size), (part, size)
    print(found.get("groups", "whole"), end=" ")

for name in ("lawcat", "supra"):
    for width, heads, tokens, lengths in ((128, 8, 8192, None), (64, 8, 8192, [5000, 3192]), (128, 1, 65536, None)):
        found, size = explanation(name, tokens, torch.bfloat16, heads=heads, key_heads=heads, width=width,
                                  value_width=width, lengths=lengths)
        assert found["feature_bytes"] >= 2 * size
        check(found, size)

@stretto.variant
def wide(q: sl.Row["D"], k: sl.Row["D"](heads="G"), v: sl.Row["V"](heads="G"), w: sl.Param["G", "D", "F"]):
    "Features that are twice as wide as rows."
    S = sl.write(sl.state("F", "V"), sl.softmax(sl.matvec(k, w)), v)
    return sl.read(S, sl.softmax(sl.matvec(q, w)), along="F")

for batch, tokens, heads, keys in ((1, 16384, 8, 8), (6, 8192, 3, 3), (1, 65536, 8, 2), (1, 65536, 8, 1),
                                   (1, 131072, 1, 1)):
    q, k, v, w = (torch.ones(1, dtype=torch.bfloat16).expand(sizes) for sizes in (
        (batch, tokens, heads, 64), *[(batch, tokens, keys, 64)] * 2, (keys, 64, 128)))
    found = wide.explain(q, k, v, w.contiguous(), backward=True)
    check(found, 2 * q.numel())
"""
    environment = os.environ | {"STRETTO_FEATURES": "1"}
    finished = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, cwd=HERE.parent.parent
    )
    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.split() == [*"111111", *"4624", "whole"]


# The most bytes that a thread of a kernel spills, of parts, in bf16; others spill none.
SPILLS = {("lawcat", 64, True): 120, ("lawcat", 128, True): 28, ("lawcat", 128, False): 32}


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
