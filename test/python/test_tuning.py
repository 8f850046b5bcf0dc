"""Forms that are chosen by measuring. Each check has a process of its own, with folders of its own: what is tuned stays
for all that come later.
"""

import json
import os
import pathlib
import pty
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]

PRELUDE = textwrap.dedent(
    """
    import json, sys, torch, stretto
    from operator_cases import BOUNDS, CASES, Shape, error

    def call(name="gla", dtype=torch.float32, gradients=False, device="cpu", **shape):
        case = CASES[name]
        inputs = case.inputs(Shape(**{"B": 1, "T": 300, "H": 2, "G": 2, **shape}), dtype, device)
        return case, {key: x.requires_grad_(gradients) for key, x in inputs.items()}

    def variant(case):
        return getattr(stretto.ops, case.operator).variant

    def form(explained):
        return explained["chosen_by"], explained["chunk"], explained["slices"]
    """
)


@pytest.fixture
def environment(tmp_path):
    return {
        **{name: value for name, value in os.environ.items() if name != "STRETTO_CACHE_DIR"},
        "STRETTO_TUNED": "1",
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTHONPATH": f"{ROOT}/frontends/python:{ROOT}/test/python",
    }


def start(environment, program, **keywords) -> subprocess.Popen:
    command = [sys.executable, "-c", PRELUDE + textwrap.dedent(program)]
    keywords = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, **keywords}
    return subprocess.Popen(command, env=environment, **keywords)


def run(environment, program) -> tuple[str, str]:
    """What a program prints, and what it was told on the way."""
    process = start(environment, program)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out, "\n".join(line for line in err.splitlines() if line.startswith("stretto: "))


TUNE = """
    case, inputs = call(gradients=True)
    found = variant(case).tune(**inputs, seconds=8)
    assert set(found) == {"forward", "backward"}
    for part, tuning in found.items():
        measured = [x for x in tuning["candidates"] if "milliseconds" in x]
        assert len(measured) > 1 and len(tuning["candidates"]) + tuning["untried"] > 4, tuning
        assert tuning["milliseconds"] <= tuning["model_milliseconds"]
        assert tuning["floor_milliseconds"] > 0
        assert (tuning["chosen_by"] == "model") == (tuning["milliseconds"] == tuning["model_milliseconds"])
    print(json.dumps({part: [tuning["chunk"], tuning["slices"]] for part, tuning in found.items()}))
"""


def test_a_later_process_takes_what_was_found(environment, tmp_path):
    out, notes = run(environment, TUNE)
    tuned = json.loads(out)
    assert notes == ""
    assert len(list((tmp_path / "state/stretto/tuned").glob("*.tuned"))) == 2
    program = """
        case, inputs = call(gradients=True, T=290)  # of the same class
        forwards = variant(case).explain(**inputs)
        backwards = variant(case).explain(**inputs, backward=True)
        assert forwards["chosen_by"] == backwards["chosen_by"] == "tuner"
        assert forwards["tuned_ms"] > 0 and forwards["to_floor"] > 0
        print(json.dumps({"forward": [forwards["chunk"], forwards["slices"]],
                          "backward": [backwards["kernels"][-1]["chunk"], backwards["kernels"][-1]["slices"]]}))
        # Results are those that there are without, but for the order of sums.
        o, _ = case(inputs)
        gradients = torch.autograd.grad(o, list(inputs.values()), torch.ones_like(o))
        assert error(o.detach(), case.reference(inputs)[0].detach()) < BOUNDS[torch.float32][0]
        torch.ops.stretto._set_slices(1)  # the model's, by a knob
        assert variant(case).explain(**inputs, backward=True)["chosen_by"] == "knob"
        others = torch.autograd.grad(case(inputs)[0], list(inputs.values()), torch.ones_like(o))
        for x, y in zip(gradients, others):
            assert error(x, y) < 2e-5
        torch.ops.stretto._set_slices(0)

        # Lengths in a packed batch may vary; other classes have the model's form.
        tokens = variant(case).explain(**inputs, cu_seqlens=torch.tensor([0, 290]))["chosen_by"]
        assert tokens == "tuner"
        for other in ({"T": 600}, {"H": 4, "G": 4}, {"K": 16}):
            _, inputs = call(**other)
            assert variant(case).explain(**inputs)["chosen_by"] == "model", other
        _, inputs = call(dtype=torch.bfloat16)
        assert variant(case).explain(**inputs)["chosen_by"] == "model"
    """
    out, notes = run(environment, program)
    assert json.loads(out) == tuned
    assert notes == ""


def test_damaged_files_are_left_out(environment, tmp_path):
    run(environment, "case, inputs = call(); variant(case).tune(**inputs, seconds=0)")
    for path in (tmp_path / "state/stretto/tuned").iterdir():
        path.write_text("{}")
    program = """
        case, inputs = call()
        print(variant(case).explain(**inputs)["chosen_by"])
    """
    out, notes = run(environment, program)
    assert out.strip() == "model"
    assert "is damaged or not ours; leaving it out" in notes


def test_two_processes_tune_at_once(environment, tmp_path):
    program = """
        case, inputs = call({name!r})
        variant(case).tune(**inputs, seconds=5)
    """
    processes = [start(environment, program.format(name=name)) for name in ("gla", "retention", "gla")]
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
    assert len(list((tmp_path / "state/stretto/tuned").glob("*.tuned"))) == 2


@pytest.mark.parametrize(("tuned", "by"), [("1", "tuner"), ("0", "model")])
def test_nothing_is_kept_without_a_place(environment, tmp_path, tuned, by):
    """In the process it is known all the same, and taken unless that is not wanted."""
    program = """
        case, inputs = call()
        variant(case).tune(**inputs, seconds=0)
        print(variant(case).explain(**inputs)["chosen_by"])
    """
    out, notes = run({**environment, "STRETTO_CACHE_DIR": "", "STRETTO_TUNED": tuned}, program)
    assert (out.strip(), notes) == (by, "")
    assert not (tmp_path / "state/stretto/tuned").exists()


def test_gradients_that_take_saved_rows_have_forms_of_their_own(environment):
    """They have other kernels than those that find all anew."""
    program = """
        for name in ("lawcat", "gla"):
            case, inputs = call(name, gradients=True)
            variant(case).tune(**inputs, seconds=0)
        for entry in json.loads(torch.ops.stretto._tuned_table())["entries"]:
            words = entry["key"].split()
            print(words[0], "gradient" in words, "with saved rows" in entry["key"])
    """
    out, _ = run({**environment, "STRETTO_CACHE_DIR": ""}, program)
    found = {tuple(line.split()) for line in out.splitlines()}
    rests = {line for line in found if line[0].startswith("lawcat") and line[1] == "True"}
    assert any(line[2] == "True" for line in rests)
    assert {line[1:] for line in found if line[0] == "gla"} == {("False", "False"), ("True", "False")}


def test_every_form_computes_the_same(environment, tmp_path):
    """Any form that a tuner may choose, forced by a shipped table."""
    program = """
        table = {table!r}
        def key(case, inputs, **keywords):
            variant(case).tune(**inputs, seconds=0, **keywords)
            return [entry["key"] for entry in json.loads(torch.ops.stretto._tuned_table())["entries"]]

        case, inputs = call("gated_delta_rule", gradients=True)
        names = key(case, inputs)
        assert len(names) == 2
        with open("{keys}", "w") as file:
            json.dump(names, file)
    """
    keys, table = tmp_path / "keys.json", tmp_path / "table.json"
    nothing = {**environment, "STRETTO_CACHE_DIR": ""}
    run(nothing, program.format(table=str(table), keys=keys))
    check = """
        case, inputs = call("gated_delta_rule", gradients=True)
        reference = case.reference(inputs)[0].detach()
        def gradients():
            o, _ = case(inputs)
            assert error(o.detach(), reference) < BOUNDS[torch.float32][0]
            return torch.autograd.grad(o, list(inputs.values()), torch.ones_like(o))
        expected = gradients()
        for chunk, slices in ((8, 1), (16, 2), (32, 1), (32, 2), (64, 4)):
            # No table says it from before there were two.
            walks = {{}} if chunk == 8 else dict(walks=1 + ((chunk, slices) == (32, 1)))
            keys = json.load(open("{keys}"))
            entries = [dict(key=key, chunk=chunk, slices=slices, warps=0, **walks) for key in keys]
            json.dump(dict(entries=entries), open("{table}", "w"))
            torch.ops.stretto._set_tuned_table("{table}")
            for x, y in zip(gradients(), expected):
                assert error(x, y) < 2e-5, (chunk, slices)
            kernels = variant(case).explain(**inputs, backward=True)["kernels"]
            assert len(kernels) == 1 + walks.get("walks", 1) or chunk == 64
            print(form(variant(case).explain(**inputs)),
                  kernels[-1]["chunk"])
    """
    out, notes = run(nothing, check.format(keys=keys, table=table))
    expected = [
        f"('shipped table', {chunk}, {slices}) {chunk}" for chunk, slices in ((8, 1), (16, 2), (32, 1), (32, 2))
    ]
    assert out.splitlines()[:4] == expected
    # Values of 32 are not divided by four: a form that there is not is left out, with a note.
    assert out.splitlines()[4].startswith("('model'")
    assert "the tuned form of gated_delta_rule cannot be used" in notes


def test_walks_of_a_gradient_for_a_gpu():
    """For few heads the model gives states of reverse time a walk of their own: of whole sequences, and of segments
    where the walk back would ask for states of the walk forward; a form says how many there are.
    """
    import stretto

    def has_cotangents(name="simple_gla", dtype="bf16", **settings):
        lower = getattr(stretto.ops, name).variant.lower
        text = lower("kernel", target="sm_90a", dtype=dtype, backward=True, **settings)
        assert f"kernel.func @{name}_backward(" in text
        return f"kernel.func @{name}_backward_cotangents(" in text

    assert has_cotangents(K=128, V=128)
    assert has_cotangents(K=64, V=64)
    assert not has_cotangents(K=64, V=64, dtype="fp32")
    assert has_cotangents("linear_attn", K=128, V=128, normalize=False)
    assert not has_cotangents("linear_attn", K=128, V=128, normalize=False, segments=True)
    assert not has_cotangents(K=64, V=64, form=(0, 1, 0, 1))
    assert has_cotangents(K=64, V=64, form=(64, 1, 8, 2))
    assert not has_cotangents(K=128, V=128, form=(32, 1, 8, 1))
    assert not has_cotangents(K=128, V=128, form=(32, 1, 8))


@pytest.mark.parametrize("name", ["gla", "gated_delta_rule", "lolcats", "gsa"])
def test_forms_for_a_gpu(name):
    """What a tuner would try there becomes a kernel of that form, or is refused."""
    import stretto

    lower = getattr(stretto.ops, name).variant.lower
    kernels = 0
    for chunk, slices, warps in ((16, 1, 0), (32, 2, 4), (64, 1, 8), (64, 4, 16)):
        try:
            text = lower("kernel", target="sm_90a", dtype="bf16", form=(chunk, slices, warps))
        except stretto.Error as error:
            assert "shared memory" in str(error) or f"expected {slices}" in str(error)
            continue
        kernels += 1
        (signature,) = [line for line in text.splitlines() if f"kernel.func @{name}(" in line]
        assert f" chunk {chunk} " in signature
        assert f'"slices":{slices},' in signature.replace("\\22", '"')
        assert not warps or f"#kernel.role<all, {warps}>" in signature
    assert kernels >= 2


def test_a_budget_is_kept(environment):
    program = """
        case, inputs = call(T=64)
        found = variant(case).tune(**inputs, seconds=0)["forward"]
        assert len(found["candidates"]) == 1 and found["untried"] > 3, found
        assert found["chosen_by"] == "model"
    """
    run(environment, program)


def test_what_cannot_be_measured_is_refused(environment):
    program = """
        case, inputs = call()
        def refused(inputs, expected):
            try:
                variant(case).tune(**inputs)
            except stretto.Error as error:
                assert expected in str(error), error
            else:
                raise AssertionError(expected)
        refused({key: x[:, :0] for key, x in inputs.items()}, "there is nothing to measure")
        refused({key: x.to("meta") for key, x in inputs.items()}, "without memory cannot be measured")
        refused({**inputs, "g": inputs["g"][..., :3]}, "'g'")
    """
    run(environment, program)


def test_segments_are_measured_beside_forms_of_whole_walks(environment):
    program = """
        torch.ops.stretto._set_segments(3)
        case, inputs = call(T=200)
        before = variant(case).explain(**inputs)
        found = variant(case).tune(**inputs, backward=False)["forward"]
        torch.ops.stretto._set_segments(0)
        after = variant(case).explain(**inputs)
        measured = [candidate for candidate in found["candidates"] if "milliseconds" in candidate]
        print(before["schedule"], after["schedule"], len(measured) > 1, found["model_milliseconds"] > 0)
    """
    assert run(environment, program)[0].split() == ["segmented", "serial", "True", "True"]


def test_progress_is_shown_on_a_terminal(environment):
    program = """
        case, inputs = call(T=64)
        variant(case).tune(**inputs, seconds=2)
    """
    assert run(environment, program) == ("", "")
    terminal, end = pty.openpty()
    process = start(environment, program, stderr=end)
    os.close(end)
    shown = b""
    while True:
        try:
            piece = os.read(terminal, 4096)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        shown += piece
    assert process.wait(timeout=300) == 0
    assert b"tuning gla [" in shown
    assert b"measures 1 of " in shown
    assert shown.endswith(b"\r\x1b[K")
