"""Operators as code for a GPU: ptxas assembles it, without spills for heads of up to 128."""

import importlib.util
import pathlib
import re
import subprocess

import pytest
import stretto

# The named sizes that are a head's width.
OPERATORS = {
    "linear_attn": "KV",
    "retention": "KV",
    "simple_gla": "KV",
    "gla": "KV",
    "ssd": "NP",
    "lawcat": "DV",
    "hgrn2": "KV",
    "rwkv6": "KV",
    "supra": "DFV",
    "gsa": "KNV",
    "abc": "KNV",
    "bla": "KV",
    "delta_rule": "KV",
    "gated_delta_rule": "KV",
}
OPTIONS = {"bla": {"decay": "signed"}}


@pytest.fixture(scope="module")
def ptxas() -> pathlib.Path:
    """The assembler of the pinned nvidia-cuda-nvcc."""
    folders = importlib.util.find_spec("nvidia").submodule_search_locations
    return next(path for folder in folders if (path := pathlib.Path(folder, "cu13/bin/ptxas")).exists())


@pytest.mark.parametrize("dtype, width", [("bf16", 16), ("bf16", 64), ("bf16", 128), ("fp32", 64), ("fp32", 128)])
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("step", [False, True], ids=["chunk", "step"])
def test_assembles_without_spills(ptxas, tmp_path, operator, dtype, width, step):
    sizes = dict.fromkeys(OPERATORS[operator], width)
    (tmp_path / "kernel.ptx").write_text(
        getattr(stretto.ops, operator).variant.lower(
            "ptx", target="sm_90a", dtype=dtype, step=step, **sizes, **OPTIONS.get(operator, {})
        )
    )
    command = [ptxas, "-v", "-arch=sm_90a", tmp_path / "kernel.ptx", "-o", tmp_path / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    assert "warning" not in report
    assert re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", report) == [("0", "0")]
