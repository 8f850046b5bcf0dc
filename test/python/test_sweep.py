"""The sweep of the benchmark: what its processes do that do not end, break or find no room, and its summary."""

import argparse
import dataclasses
import json
import math
import os
import pathlib
import subprocess
import sys
import time

import pytest
import torch

ROOT = pathlib.Path(__file__).parents[2]

# A library in the place of flash-linear-attention: some of its functions by our formulas, one that does not end, one
# that takes its process along at 128 tokens, and one that refuses gradients.
LIBRARY = """
import os
import sys
import time
import types

import torch
from formulas import FORMULAS


def by(name):
    return lambda **tensors: (FORMULAS[name].function(**tensors)[0], None)


def endless(**tensors):
    with open(os.path.dirname(__file__) + "/begun", "a") as begun:
        begun.write("x")
    time.sleep(600)


def deadly(**tensors):
    if tensors["q"].shape[1] == 128:
        print("out of luck", file=sys.stderr, flush=True)
        os._exit(3)
    return by("gla")(**tensors)


class Forward(torch.autograd.Function):
    @staticmethod
    def forward(context, q, k, v, beta):
        return by("delta_rule")(q=q, k=k, v=v, beta=beta)[0]

    @staticmethod
    def backward(context, cotangent):
        raise RuntimeError("wrong results on Hopper")


def delta_rule(**tensors):
    return Forward.apply(*(tensors[name] for name in ("q", "k", "v", "beta"))), None


print("a library may print")
names = "abc based delta_rule gated_delta_rule gla gsa kda linear_attn retention rwkv6 simple_gla".split()
modules = {name: types.SimpleNamespace(**{f"chunk_{name}": by("retention")}) for name in names}
modules["based"].parallel_based = None
modules["simple_gla"].chunk_simple_gla = endless
modules["gla"].chunk_gla = deadly
modules["delta_rule"].chunk_delta_rule = delta_rule
globals().update(modules)
"""
RATES = {"copy_bytes": 1e9, "matmul_flops": {"float32": 1e9}}


@pytest.fixture
def sweep(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "bench"))
    import sweep

    return sweep


@pytest.fixture
def library(monkeypatch, tmp_path):
    """Puts the library where the processes of the sweep find it."""
    for name, text in {"__init__": "", "ops/__init__": LIBRARY, "ops/attn/__init__": ""}.items():
        path = tmp_path / "fla" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    (tmp_path / "fla/ops/attn/parallel.py").write_text("parallel_attn = None")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))


def options_of(sweep, *arguments):
    """The options of a small sweep on the CPU, beside the library that stands in."""
    parser = argparse.ArgumentParser()
    sweep.add_options(parser)
    small = ["--heads", "2", "--tokens", "64", "128", "--widths", "16", "--directions", "forward"]
    options = parser.parse_args([*small, *arguments])
    options.device, options.gates, options.peers = "cpu", "same", ["flash-linear-attention"]
    return options


def jobs_of(sweep, options, *names):
    import operators

    return sweep.jobs_of([operators.OPERATORS[name] for name in names], ["float32"], options)


def measured(sweep, options, *names):
    """The lines of a sweep over some operators, with their tokens."""
    return [(line["T"], line) for line in sweep.lines(jobs_of(sweep, options, *names), RATES, options)]


def test_points_beside_a_peer(sweep, library, capsys):
    """Both directions, with what the floor takes and how far the results differ."""
    import operators
    import timed

    options = options_of(sweep, "--tokens", "100", "5000", "--directions", "forward", "gradients")
    lines = measured(sweep, options, "retention")
    directions = [(tokens, line["direction"]) for tokens, line in lines]
    assert directions == [(tokens, table) for table in ("forward", "gradients") for tokens in (100, 5000)]
    operator = operators.OPERATORS["retention"]
    for tokens, line in lines:
        (peer,) = line["peers"]
        assert peer["ratio"] == pytest.approx(peer["milliseconds"] / line["milliseconds"])
        assert 0 < peer["difference"] < 1e-5
        shape = operators.Shape(1, tokens, 2, 16)
        tensors = operator.inputs(shape, torch.float32, "cpu")
        size = timed.bytes_of(tensors, tensors["v"], (), line["direction"])
        flops = timed.flops_of(operator, shape, torch.float32, line["direction"])
        assert line["needed_bytes"] == size
        assert line["floor_milliseconds"] == pytest.approx(max(size, flops) / 1e6)
        assert line["to_floor"] == pytest.approx(line["milliseconds"] / line["floor_milliseconds"])
        sweep.show(line)
    assert capsys.readouterr().out.count("difference") == 4
    assert sweep.summary([line for _, line in lines])[0].startswith("4 points, 4 beside a peer, 0 without one")


def test_a_peer_that_does_not_end(sweep, library, tmp_path):
    """It is called once, cut and named, the rest is measured without it, and other operators are as they would be."""
    lines = measured(sweep, options_of(sweep, "--limit", "12"), "simple_gla", "retention")
    assert [(line["operator"], tokens) for tokens, line in lines] == [
        (name, tokens) for name in ("simple_gla", "retention") for tokens in (64, 128)
    ]
    for _, line in lines:
        assert line["to_floor"] > 0
        (peer,) = line["peers"]
        assert peer.get("refused") == ("no result in 12 s" if line["operator"] == "simple_gla" else None)
        assert ("ratio" in peer) == (line["operator"] == "retention")
    summary = sweep.summary([line for _, line in lines])
    assert (tmp_path / "fla/ops/begun").read_text() == "x"
    assert "without a peer, 2 points of simple_gla, forward: no result in 12 s" in summary


def test_time_that_is_over(sweep, library):
    """What was under way then is no line."""
    options = options_of(sweep)
    options.within = time.monotonic() - sweep.BEGUN + 0.3  # its process loads libraries still
    assert measured(sweep, options, "simple_gla", "retention") == []
    assert time.monotonic() - sweep.BEGUN < options.within + 5


def test_a_peer_that_takes_its_process_along(sweep, library):
    """That costs no other point."""
    lines = dict(measured(sweep, options_of(sweep, "--tokens", "64", "128", "192"), "gla"))
    assert all(lines[tokens]["peers"][0]["difference"] < 1e-5 for tokens in (64, 192))
    assert lines[128]["to_floor"] > 0
    assert lines[128]["peers"][0]["refused"] == "the process ended with status 3: out of luck"


def test_a_peer_that_refuses(sweep, library, capsys):
    """Gradients that a library refuses are lines with our time. All was compiled ahead."""
    options = options_of(sweep, "--tokens", "64", "--directions", "gradients", "--prepare", "100")
    ((_, line),) = measured(sweep, options, "delta_rule")
    assert line["to_floor"] > 0
    assert line["peers"][0]["refused"] == "wrong results on Hopper"
    assert capsys.readouterr().out.startswith("1 of 1 jobs were compiled ahead in ")


def test_a_point_that_does_not_fit(sweep, library, capsys):
    lines = dict(measured(sweep, options_of(sweep, "--gigabytes", "5e-5"), "retention"))
    assert "ratio" in lines[64]["peers"][0]
    why = "does not fit: 6.55e-05 GB are needed, expected at most 5e-05 GB"
    assert lines[128]["left_out"] == why
    sweep.show(lines[128])
    assert f"left out: {why}" in capsys.readouterr().out
    assert "1 do not fit" in sweep.summary(list(lines.values()))[0]


def test_an_operator_of_ours_that_refuses(sweep, monkeypatch):
    """What is refused is one line; what does not begin is a line for each point."""
    options = options_of(sweep)
    (job,) = jobs_of(sweep, options, "retention")
    broken = dataclasses.replace(job, dtype="float32", gates="nonsense")
    monkeypatch.setattr(sweep.Job, "start_of_line", lambda job, shape: {"T": shape.T})
    lines = list(sweep.lines([broken], RATES, options))
    assert [line["T"] for line in lines] == [64, 128]
    assert all("has no attribute 'nonsense'" in line["refused"] for line in lines)


def line_of(ratio=None, to_floor=2.0, operator="gla", difference=1e-3, host=None, **others):
    """A made-up line."""
    start = dict(operator=operator, B=1, T=64, H=1, D=64, dtype="bfloat16", gates="bfloat16", direction="forward")
    peer = {"peer": "fla", "same": True, "refused": "wrong results"}
    if ratio:
        peer = dict(ratio=ratio, milliseconds=ratio, host_milliseconds=None, difference=difference, differs="v")
    times = dict(milliseconds=1.0, host_milliseconds=host, to_floor=to_floor, peers=[peer])
    return start | (others if "refused" in others or "left_out" in others else times | others)


def test_the_summary(sweep):
    lines = [line_of(4.0), line_of(0.9, host=3.0, T=128), line_of(1.0, 7.0, difference=math.inf)]
    lines += [line_of(operator="kda", to_floor=3.0), line_of(refused="no room"), line_of(left_out="does not fit")]
    first, *others = sweep.summary(lines, left=3)
    assert first == "6 points, 3 beside a peer, 1 without one, 1 do not fit, 1 refused"
    expected = [
        "3 points were not reached",
        "without a peer, 1 points of kda, forward: wrong results",
        "refused: gla no room",
        "1 slower than the peer",
        "slower: T128 1.000 ms host 3.00! for 0.900 ms = 0.900x",
        "different: T64 v by inf",
        "forward: the geometric mean of 3 ratios is 1.53",
        "furthest from the floor: gla 7.00x",
        "furthest from the floor: kda 3.00x",
    ]
    assert len(others) == len(expected)
    for sentence, words in zip(others, expected, strict=True):
        assert [word for word in words.split() if word not in sentence.split()] == []


def test_parts_and_order(sweep):
    """Parts share nothing and leave nothing; a peer tunes itself on long sequences."""
    names = ("retention", "gla", "based", "kda", "lolcats")
    options = options_of(sweep)
    options.heads, options.tokens, options.widths, options.device = sweep.HEADS, sweep.TOKENS, sweep.WIDTHS, "cuda"

    def keys(part):
        options.part = part
        jobs = jobs_of(sweep, options, *names)
        return [(job.operator.name, shape) for job in jobs for shape in job.shapes]

    whole, halves = keys((1, 1)), [keys((1, 2)), keys((2, 2))]
    assert sorted(halves[0] + halves[1], key=str) == sorted(whole, key=str)
    assert len(set(whole)) == len(whole) == 4 * 7 * 5 * 2  # LoLCATs has no peer there
    assert {name for name, _ in halves[0]} == {name for name, _ in halves[1]} == set(names[:4])
    assert [{shape.D for _, shape in half} for half in halves] == [{64, 128}] * 2
    shapes = [shape for name, shape in whole if name == "gla" and shape.D == 64]
    assert [(shape.B, shape.T, shape.H) for shape in shapes[:4]] == [(1, 8192, heads) for heads in (32, 16, 4, 1)]
    assert {shape.B * shape.H for shape in shapes} == set(sweep.HEADS)
    assert max(shape.H for shape in shapes) == 32
    with pytest.raises(ValueError, match="no multiple of 32"):
        sweep.split(48)


def test_inputs_of_every_operator(sweep):
    """Stretches of the same tokens, and their bytes without any tensor."""
    import operators
    import timed

    for operator in operators.OPERATORS.values():
        sizes = sweep.Sizes(operator, 2, 16, torch.float32, torch.float32, "cpu")
        tensors = sizes.tensors(operators.Shape(2, 4100, 2, 16))
        assert sizes.linear(lambda some, output: timed.bytes_of(some, output, (), "forward"))(2 * 4100) == sum(
            x.numel() * x.element_size() for x in [*tensors.values(), operator.call()(**meta(tensors))]
        ), operator.name
        for name, x in operator.inputs(operators.Shape(2, 4100, 2, 16), torch.float32, "cpu", torch.float32).items():
            assert tensors[name].shape == x.shape and tensors[name].dtype == x.dtype, (operator.name, name)
            assert tensors[name].is_contiguous()


def meta(tensors):
    return {name: x.to("meta") for name, x in tensors.items()}


def test_the_driver_goes_on(library, tmp_path):
    """A run that was stopped is begun again: what there is stays, and what is missing is measured."""
    output = tmp_path / "results.json"

    def run(*arguments):
        command = [sys.executable, ROOT / "bench/run.py", "--device", "cpu", "--tables", "sweep", "--types", "fp32"]
        command += ["--operators", "retention", "--peers", "flash-linear-attention", "--directions", "forward"]
        command += ["--heads", "2", "--tokens", "64", "128", "--widths", "16", "--output", output, *arguments]
        environment = os.environ | {"STRETTO_COMMIT": "abc123"}
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        assert finished.returncode == 0, finished.stdout + finished.stderr
        return finished.stdout, json.loads(output.read_text())["sweep"] if output.exists() else []

    text, lines = run("--within", "0")
    assert "2 points were not reached" in text
    assert lines == []
    text, first = run()
    assert "2 points, 2 beside a peer" in text and "not reached" not in text
    results = json.loads(output.read_text())
    results["sweep"] = [{**first[1], "milliseconds": 123.0}]
    output.write_text(json.dumps(results))
    text, lines = run()
    assert [line["T"] for line in lines] == [128, 64]
    assert lines[0]["milliseconds"] == 123.0
    assert "milliseconds" in lines[1]
    assert "2 points, 2 beside a peer" in text
    summed_up = subprocess.run([sys.executable, ROOT / "bench/sweep.py", output], capture_output=True, text=True)
    assert summed_up.stdout.splitlines()[0] in text
