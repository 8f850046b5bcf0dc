"""The driver of the benchmark on a CUDA device: its clock and its columns. No speed is judged here."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

ROOT = pathlib.Path(__file__).parents[2]


def test_the_driver(tmp_path):
    output = tmp_path / "results.json"
    command = [sys.executable, ROOT / "bench/run.py", "--device", "cuda", "--eager", "--rounds", "3"]
    command += ["--tables", "forward", "gradients", "--operators", "gla", "relation_kl", "--shapes", "1,1024,8,64"]
    command += ["--output", output]
    finished = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    results = json.loads(output.read_text())
    for line in [*results["forward"], *results["gradients"]]:
        assert line["dtype"] == line["gates"] == "bfloat16"
        assert line["milliseconds"] >= 0.5 * line["floor_milliseconds"]
        assert line["memory_bytes"] > 0
        assert line["host_milliseconds"] > 0
        assert line["error"] < 2e-2
        names = {peer["peer"] for peer in line["peers"]}
        assert {"cuDNN attention", "FlashAttention-2"} < names
        for peer in line["peers"]:
            assert {"absent", "refused", "milliseconds"} & set(peer)
