"""The command line, each command as a process of its own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest
from stretto import cli

ROOT = pathlib.Path(__file__).parents[2]


def run(*arguments, **variables):
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/frontends/python", "STRETTO_CACHE_DIR": "", **variables}
    command = [sys.executable, "-m", "stretto", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT)


def test_commands():
    listed = run("info")
    assert listed.returncode == 0, listed.stderr
    for name in ("gla", "relation_kl", "lolcats"):
        assert f"\n{name} " in "\n" + listed.stdout
    shown = run("info", "models/gla/variant.mlir")
    assert "inputs   q, k, v, g" in shown.stdout
    assert "option   scale = K**-0.5" in shown.stdout
    assert "stretto.variant @gla" in shown.stdout
    compiled = run("compile", "simple_gla", "--dtype", "bf16", "K=64", "V=64")
    assert ".target sm_90a" in compiled.stdout, compiled.stderr
    explained = run("explain", "lawcat", "--shape", "1,64,2", "--device", "cpu", "--backward", "D=16", "V=16")
    assert "lawcat_backward" in explained.stdout, explained.stderr
    tuned = run("tune", "retention", "--shape", "1,64,2", "--device", "cpu", "--seconds", "1", "K=16", "V=16")
    assert "forward\noperator" in tuned.stdout, tuned.stderr
    assert "candidates" in tuned.stdout


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("compile", "glas"), "stretto: there is no variant 'glas'"),
        (("explain", "gla", "M=3", "--shape", "1,8,2", "--device", "cpu"), "there is no setting 'M'"),
        (("explain", "gla", "K", "--shape", "1,8,2", "--device", "cpu"), "unrecognized arguments: K"),
        (("tune", "gla", "--shape", "1,8"), "1,8 has 2 sizes, expected B,T,H"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_what_is_wrong_is_said(arguments, expected):
    refused = run(*arguments)
    assert refused.returncode != 0
    assert expected in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_benchmark_is_the_checkouts():
    helped = run("bench", "--help")
    assert helped.returncode == 0, helped.stderr
    assert "bench/results/" in helped.stdout


@pytest.mark.parametrize("name", cli.shipped())
def test_inputs_can_be_made_for_every_variant(name):
    """Those of `stretto tune`: their contents pass the checks, too."""
    variant = cli.variant_of(name)
    options = cli.parse(["tune", name, "--shape", "1,5,2", "--device", "cpu", "--dtype", "fp32", "--positive", "dt"])
    (declared,) = json.loads(variant.program(variant.signature.split({})[0], frozenset()).signatures())
    tensors, chosen = cli.inputs_of(variant, options, dict.fromkeys(declared["sizes"], 16))
    assert variant(**tensors, **chosen) is not None


def test_axes():
    assert cli.width_of("1 + K + K*K", {"K": 4}) == 21
    assert cli.width_of("D/2", {}) == 64
    assert cli.settings_of(["K=64", "mode=sliding", "masked=true", "scale=0.5"]) == {
        "K": 64,
        "mode": "sliding",
        "masked": True,
        "scale": 0.5,
    }
