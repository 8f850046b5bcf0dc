"""What the committed results of the benchmark have to show, and its own parts. No speed is judged here."""

import argparse
import json
import os
import pathlib
import subprocess
import sys
import types

import pytest
import torch
from formulas import FORMULAS

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = [path for path in sorted((ROOT / "bench/results").glob("*.json")) if "chunks" in json.loads(path.read_text())]
WITHOUT_STEPS = {"relation_kl"}  # a loss


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_no_chunk_form_is_slower_than_its_step_form(path):
    """Of a GPU some kernels may be refused, where shared memory is too small for a width."""
    results = json.loads(path.read_text())
    lines = results["chunks"]
    measured = [line for line in lines if "refused" not in line]
    ratios = {(line["operator"], line["T"], line["dtype"]): line["ratio"] for line in measured}
    slower = {form: ratio for form, ratio in ratios.items() if not ratio >= 1}
    assert measured
    assert not slower
    assert all(line["T"] >= 256 for line in lines)
    assert {line["operator"] for line in lines} == {path.name for path in (ROOT / "models").iterdir()} - WITHOUT_STEPS
    assert "NVIDIA" in results["machine"]["processor"] or measured == lines


def test_forms_were_measured():
    assert RESULTS, "no file of bench/results/ has the table 'chunks'; bench/run.py --tables chunks writes it"


# ---------------------------------------------------------------------------------------------------------------------
# Ratios that were reached once
# ---------------------------------------------------------------------------------------------------------------------


def results_of(to_floor=2.0, refused=None, **ratios):
    """Made-up results of one call, beside peers with these ratios."""
    line = {"operator": "gla", "B": 1, "T": 8, "H": 1, "D": 16, "dtype": "bfloat16", "gates": "bfloat16"}
    peers = [{"peer": name, "same": name != "attention", "ratio": ratio} for name, ratio in ratios.items()]
    measured = {"refused": refused} if refused else {"to_floor": to_floor, "peers": peers}
    return {"commit": "abc", "forward": [{**line, **measured}]}


@pytest.mark.parametrize(
    ("new", "expected"),
    [
        (results_of(fla=3.0), []),
        (results_of(fla=2.75), []),  # within the tolerance
        (results_of(fla=2.6), ["2.6 times as fast as fla"]),
        (results_of(to_floor=2.5, fla=3.0), ["0.4 times as fast as the floor"]),
        (results_of(to_floor=2.5, fla=1.0), ["the floor", "fla"]),
        (results_of(), []),  # a peer that is absent says nothing
        (results_of(fla=4.0, attention=0.1), []),  # another function
        (results_of(refused="no room"), ["refused (no room), where it ran before"]),
        ({"forward": []}, []),
    ],
    ids=str,
)
def test_a_lost_ratio_is_named(bench, new, expected):
    import ratios

    sentences = ratios.lost(new, results_of(fla=3.0, attention=1.0), tolerance=0.1)
    assert len(sentences) == len(expected)
    for sentence, part in zip(sentences, expected, strict=True):
        assert part in sentence
        assert sentence.startswith("forward of gla 1 8 1 16 bfloat16 bfloat16: ")


def test_ratios_of_other_shapes_are_not_compared(bench):
    import ratios

    new = results_of(to_floor=9.0, fla=1.0)
    new["forward"][0]["T"] = 16
    assert ratios.lost(new, results_of(fla=3.0)) == []


def test_no_committed_ratio_is_lost(bench):
    """Of each machine the last file that measured a line holds what earlier ones reached. A ratio that is given up on
    purpose leaves with the file that has it.
    """
    import ratios

    committed = [json.loads(path.read_text()) for path in (ROOT / "bench/results").glob("*.json")]
    committed.sort(key=lambda results: results.get("at", results["date"]))
    machines = {results["machine"]["processor"] for results in committed}
    lost = []
    for machine in machines:
        files = [results for results in committed if results["machine"]["processor"] == machine]
        for index, new in enumerate(files):
            for old in files[:index]:
                lost += ratios.lost(new, old)
    assert lost == []


# ---------------------------------------------------------------------------------------------------------------------
# Peers and the driver
# ---------------------------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(monkeypatch):
    """The folder of the benchmark, as its driver finds it."""
    monkeypatch.syspath_prepend(str(ROOT / "bench"))


def stand_ins(operators):
    """What flash-linear-attention has, by our formulas, under its names and in its conventions."""

    def by(name, **fixed):
        return lambda **tensors: (FORMULAS[name].function(**tensors, **fixed)[0], None)

    def simple_gla(**tensors):
        return by("simple_gla")(**tensors)

    def convolution(x, weight):
        padded = torch.nn.functional.pad(x, (0, 0, weight.shape[1] - 1, 0))
        return (padded.unfold(1, weight.shape[1], 1) * weight).sum(-1), None

    def linear_attn(**tensors):
        return FORMULAS["linear_attn"].function(**tensors)[0], None

    functions = {
        "ops.abc": {"chunk_abc": by("abc")},
        "ops.based": {"parallel_based": lambda **tensors: by("based")(**tensors)[0]},
        "ops.delta_rule": {"chunk_delta_rule": by("delta_rule")},
        "ops.gated_delta_rule": {"chunk_gated_delta_rule": by("gated_delta_rule")},
        "ops.gla": {"chunk_gla": by("gla")},
        "ops.gsa": {"chunk_gsa": by("gsa")},
        "ops.kda": {"chunk_kda": lambda **tensors: (operators.kda_by_tokens(**tensors), None)},
        "ops.linear_attn": {"chunk_linear_attn": linear_attn},
        "ops.retention": {"chunk_retention": by("retention")},
        "ops.rwkv6": {"chunk_rwkv6": by("rwkv6")},
        "ops.simple_gla": {"chunk_simple_gla": simple_gla},
        "ops.attn": {},
        "ops.attn.parallel": {
            "parallel_attn": lambda q, k, v, window_size: by("swa", window=window_size)(q=q, k=k, v=v)[0]
        },
        "modules": {},
        "modules.convolution": {"causal_conv1d": convolution},
    }

    def align(student, keys_of_student, teacher, keys_of_teacher, mask, causal, *scales):
        assert keys_of_student is student and keys_of_teacher is teacher and mask is None and causal
        assert scales == (student.shape[-1] ** -0.5,) * 2
        loss = FORMULAS["relation_kl"].function(student.transpose(1, 2), teacher.transpose(1, 2))
        return loss * student.shape[:3].numel()

    project = types.ModuleType("kernels.attention_KL.integration")
    project.attn_kl_align = align
    modules = {name: types.ModuleType(name) for name in ("fla", "fla.ops", "kernels", "kernels.attention_KL")}
    modules[project.__name__] = project
    for name, content in functions.items():
        module = modules[f"fla.{name}"] = types.ModuleType(f"fla.{name}")
        vars(module).update(content)
        parent, _, child = f"fla.{name}".rpartition(".")
        setattr(modules[parent], child, module)
    return modules


def compared_operators():
    names = sorted(path.name for path in (ROOT / "models").iterdir())
    return [*names, "linear_attn_normalized", "gla_strong", "kda"]


@pytest.mark.parametrize("name", compared_operators())
def test_peers_compute_the_same(bench, monkeypatch, name):
    """Compositions of a library's functions are checked with formulas in their place, so that no GPU is needed."""
    import operators
    import peers
    import timed

    for module, content in stand_ins(operators).items():
        monkeypatch.setitem(sys.modules, module, content)

    operator = operators.OPERATORS[name]
    check = timed.Check(operator, operators.Shape(1, 70, 4, 16), torch.float64, "cpu", torch.float64, "gradients")
    for peer in peers.PEERS.values():
        if not peer.same or not peer.covers(name) or peer.missing():
            continue
        for form, function in peer.forms(operator=operator, dtype=torch.float64, device="cpu", eager=True).items():
            assert check.error(function) < 1e-5, (peer.name, form)


def test_every_operator_is_measured(bench):
    import operators

    measured = {operator.function for operator in operators.OPERATORS.values()} - set(operators.DECLARED)
    assert measured == {path.name for path in (ROOT / "models").iterdir()}


def test_the_declaration_of_the_benchmark(bench):
    """The operator whose peer is KDA, against its definition."""
    import operators
    import timed

    operator = operators.OPERATORS["kda"]
    check = timed.Check(operator, operators.Shape(1, 70, 2, 16), torch.float64, "cpu", torch.float64, "gradients")
    assert check.error(operator.call()) < 1e-10


def test_what_is_refused_is_a_line(bench, capsys):
    """No refusal, of ours or of a peer, ends a run."""
    import dataclasses
    import functools

    import operators
    import peers
    import timed

    options = argparse.Namespace(gates="same", peers=None, rounds=1, seconds=1.0, eager=True, tune=False)
    rates = {"copy_bytes": 1e9, "matmul_flops": {"float32": 1e9}}
    shape = operators.Shape(1, 64, 2, 16)
    line_of = functools.partial(timed.line_of, "forward", rates=rates, device="cpu", options=options)
    refused = line_of(operators.Operator("gla", options={"nonsense": 1}), shape, "float32")
    assert "nonsense" in refused["refused"]

    def forms(**_):
        def form(q, k, v):
            if q.shape[0] == 1:
                raise ValueError("at least two sequences\nand more")
            return torch.zeros_like(q)

        return {"": form}

    def beside(name, **changes):
        return dataclasses.replace(peers.PEERS["PyTorch"], name=name, forms=forms, operators=("retention",), **changes)

    some = {"picky": beside("picky"), "gone": beside("gone", missing=lambda: "not installed (gone)")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(peers, "PEERS", some)
        one, two = (
            line_of(operators.OPERATORS["retention"], dataclasses.replace(shape, B=batch), "float32")
            for batch in (1, 2)
        )
    assert one["peers"][0] == {"peer": "picky", "same": True, "refused": "at least two sequences"}
    assert two["peers"][0]["error"] is None
    assert two["peers"][0]["error_refused"] == "at least two sequences"
    assert two["peers"][0]["difference"] == pytest.approx(1)
    assert two["peers"][1] == {"peer": "gone", "same": True, "absent": "not installed (gone)"}
    for line in (refused, one, two):
        timed.show(line)
    shown = capsys.readouterr().out
    assert "refused: at least two sequences" in shown
    assert "absent: not installed (gone)" in shown


def test_the_driver(tmp_path):
    """A line of each table has all columns, names absent peers, and takes the place of one that measured the same."""
    output = tmp_path / "results.json"

    def run(*arguments, commit="abc123"):
        command = [sys.executable, ROOT / "bench/run.py", "--device", "cpu", "--eager", "--rounds", "2"]
        command += ["--shapes", "1,64,2,16", "--types", "fp32", "--output", output, *arguments]
        environment = os.environ | {"STRETTO_COMMIT": commit}
        finished = subprocess.run(command, env=environment, capture_output=True, text=True)
        return finished.returncode, finished.stdout + finished.stderr

    status, text = run("--tables", "forward", "--operators", "gla", "lawcat")
    assert status == 0, text
    first = json.loads(output.read_text())
    assert first["commit"] == "abc123"
    status, text = run("--tables", "forward", "gradients", "--operators", "gla", "--against", output)
    assert status in (0, 1), text  # times of a busy machine may say anything
    results = json.loads(output.read_text())
    assert [line["operator"] for line in results["forward"]] == ["gla", "lawcat"]
    assert results["forward"][0]["milliseconds"] != first["forward"][0]["milliseconds"]
    assert results["forward"][1] == first["forward"][1]
    for line in [*results["forward"], *results["gradients"]]:
        assert line["floor_milliseconds"] > 0
        assert line["to_floor"] == pytest.approx(line["milliseconds"] / line["floor_milliseconds"])
        assert line["error"] < 1e-5
        assert {peer["peer"] for peer in line["peers"]} == {"PyTorch", "softmax attention"}
        for peer in line["peers"]:
            assert peer["ratio"] == pytest.approx(peer["milliseconds"] / line["milliseconds"])
            assert not peer["same"] or (peer["error"] < 1e-5 and peer["difference"] < 1e-5)
    assert (tmp_path / "results-forward.svg").exists()

    # Another commit's results have a file of their own.
    status, text = run("--tables", "forward", "--operators", "gla", commit="def456")
    assert status == 0, text
    assert json.loads((tmp_path / "results-def456.json").read_text())["commit"] == "def456"
    assert json.loads(output.read_text()) == results


def test_errors_over_several_draws(bench, monkeypatch, capsys):
    """The median of each gradient is compared with that of a peer, and the worst ratio counts."""
    import dataclasses

    import accuracy
    import operators
    import peers

    operator = operators.OPERATORS["retention"]
    exact = operator.formula()

    def off(q, k, v):  # by a hundredth, as far as the gradient of the values goes
        return exact(q=q, k=k, v=v * 1.01 - (v * 0.01).detach())

    def beside(name, function):
        forms = {"": function}
        return dataclasses.replace(peers.PEERS["PyTorch"], name=name, operators=("retention",), forms=lambda **_: forms)

    def refuse(**_):
        raise ValueError("not today")

    monkeypatch.setattr(accuracy, "DRAWS", 3)
    monkeypatch.setattr(accuracy, "TOKENS", 32)
    monkeypatch.setattr(peers, "PEERS", {"off": beside("off", off), "picky": beside("picky", refuse)})
    options = argparse.Namespace(gates="same", peers=None)
    line = accuracy.line_of("gradients", operator, "float32", "cpu", options)
    assert set(line["medians"]) == {"q", "k", "v"}
    assert all(0 < error < 1e-5 for error in line["medians"].values())
    of_off, of_picky = line["peers"]
    assert of_off["medians"]["v"] == pytest.approx(0.01, rel=1e-3)
    ratios = [line["medians"][name] / of_off["medians"][name] for name in "qkv"]
    assert of_off["ratio"] == max(ratios)
    assert of_picky["refused"] == "not today"
    accuracy.show(line)
    assert "refused: not today" in capsys.readouterr().out


def test_peers_whose_errors_are_asked_for_do_not_tune_themselves(bench, monkeypatch):
    """Of made-up kernels, as no Triton is here; and they do again behind that, whatever happened."""
    from peers.untuned import untuned

    class Autotuner:
        def __init__(self, configs):
            self.configs = configs

        def run(self, sign):
            return [sign * config for config in self.configs]

    with untuned():  # without Triton
        assert Autotuner([1, 2]).run(1) == [1, 2]
    module = types.ModuleType("triton.runtime.autotuner")
    module.Autotuner = Autotuner
    for name in ("triton", "triton.runtime", "triton.runtime.autotuner"):
        monkeypatch.setitem(sys.modules, name, module)
    kernel = Autotuner([1, 2, 3])
    with pytest.raises(ValueError, match="broken"), untuned():
        assert kernel.run(-1) == [-1]
        assert kernel.configs == [1, 2, 3]
        raise ValueError("broken")
    assert kernel.run(1) == [1, 2, 3]
