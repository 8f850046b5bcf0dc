"""What is found once for calls that look alike, what makes them look different, and which of them Python makes."""

import gc
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import stretto
import torch
from stretto import calls
from stretto import lang as sl
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode


@stretto.variant
def scaled(q: sl.Row["K"], bias: sl.Row["K"] = None, scale=sl.Option(1.0), flip=sl.Option(False)):
    "Rows by a number, and beside another row."
    if bias is not None:
        q = q + bias
    return -q * scale if flip else q * scale


@stretto.variant
def summed(q: sl.Row["K"], v: sl.Row["V"]):
    "Linear attention to itself."
    return sl.read(sl.write(sl.state("K", "V"), q, v), q, along="K")


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, 5, 2, 4, generator=generator).unbind()


@pytest.fixture
def in_python(monkeypatch):
    """What Python made of the calls of these variants, in order."""
    made = []

    def count(variant, name):
        run = getattr(variant, name)
        monkeypatch.setattr(variant, name, lambda *values: made.append(name) or run(*values))

    for variant in (scaled, summed, stretto.ops.gla.variant, stretto.ops.linear_attn.variant):
        count(variant, "run")
        count(variant, "run_step")
    return made


class Marked(torch.Tensor):
    """A tensor as far as types go, which PyTorch's functions hand on."""


def test_every_form_of_a_call_is_its_own(rows):
    q, bias = rows
    for _ in range(2):
        torch.testing.assert_close(scaled(q), q)
        torch.testing.assert_close(scaled(q=q), q)
        torch.testing.assert_close(scaled(q, None), q)
        torch.testing.assert_close(scaled(q, bias), q + bias)
        torch.testing.assert_close(scaled(bias, q), q + bias)
        torch.testing.assert_close(scaled(bias=bias, q=q), q + bias)
        torch.testing.assert_close(scaled(q, scale=2.0), 2 * q)
        torch.testing.assert_close(scaled(q, scale=3), 3 * q)
        torch.testing.assert_close(scaled(q, scale=1, flip=True), -q)
        torch.testing.assert_close(scaled(q, scale="K / 2"), 2 * q)
        torch.testing.assert_close(scaled(torch.nn.Parameter(q)), q)


def test_equal_values_of_other_types_are_other_forms(rows):
    q, _ = rows
    torch.testing.assert_close(scaled(q, flip=True), -q)
    with pytest.raises(stretto.Error, match="the option 'flip' is 1, expected True or False"):
        scaled(q, flip=1)
    torch.testing.assert_close(scaled(q, scale=1), q)
    with pytest.raises(stretto.Error, match="the option 'scale' is True, expected a number"):
        scaled(q, scale=True)
    with pytest.raises(stretto.Error, match="the option 'scale' is a tensor, expected a number"):
        scaled(q, scale=torch.tensor(2.0))


def test_what_only_looks_like_itself_is_found_anew(rows):
    q, _ = rows
    for scale in (2.0, 3.0):
        torch.testing.assert_close(scaled(q, scale=np.float64(scale)), scale * q)
        torch.testing.assert_close(scaled(q, scale=np.float32(scale)), scale * q)
    with pytest.raises(stretto.Error, match=r"\[R4\] 'q' is a list, expected a tensor"):
        scaled([1.0])


def test_plans_are_kept_and_bounded(rows, monkeypatch):
    q, _ = rows
    made = []
    plans = calls.Plans(lambda arguments, keywords: made.append(keywords) or scaled.plan(arguments, keywords))
    for _ in range(3):
        plans.find((q,), {"scale": 2.0})
    assert len(made) == 1
    monkeypatch.setattr(calls, "_MOST_PLANS", 4)
    for number in range(10):
        plans.find((q,), {"scale": float(number)})
    assert len(plans._plans) <= 4


def test_what_operators_have_in_common_may_be_given_by_position():
    q, k, v = torch.randn(3, 1, 5, 2, 16).unbind()
    expected, state = stretto.ops.linear_attn(q, k, v, output_final_state=True)
    found, other = stretto.ops.linear_attn(q, k, v, True, 1e-10, None, None, True, None)
    assert torch.equal(found, expected) and torch.equal(other["S"], state["S"])
    with pytest.raises(stretto.Error, match="'initial_state' is given twice"):
        stretto.ops.linear_attn(q, k, v, True, 1e-10, None, state, initial_state=state)
    with pytest.raises(stretto.Error, match="is given 10 arguments, expected at most 9"):
        stretto.ops.linear_attn(q, k, v, True, 1e-10, None, None, True, None, None)


def test_ordinary_calls_are_made_directly(rows, in_python):
    q, bias = rows
    v = torch.randn(1, 5, 2, 3)
    for _ in range(2):
        for scale in (2.0, 2, "K / 2"):
            torch.testing.assert_close(scaled(q, scale=scale), 2 * q)
        torch.testing.assert_close(scaled(bias=bias, q=q, flip=True), -q - bias)
        torch.testing.assert_close(scaled(torch.nn.Parameter(q), None), q)
        o, state = summed(q, v, output_final_state=True)
        assert isinstance(state, stretto.State) and list(state) == ["S"]
        _, after = summed(v=v, q=q, initial_state=state, output_final_state=True)
        torch.testing.assert_close(after["S"], 2 * state["S"])
        continued = summed(q, v, initial_state=state["S"])  # a tensor stands for the only entry
        torch.testing.assert_close(continued, summed.reference(q, v, initial_state=state).float())
        packed = summed(q, v, cu_seqlens=torch.tensor([0, 2, 5]))
        torch.testing.assert_close(packed[:, 2:], summed(q[:, 2:], v[:, 2:]))
        assert torch.equal(summed(q, v), o)
    assert not in_python


def test_ordinary_steps_are_made_directly(rows, in_python):
    q, _ = rows
    v = torch.randn(1, 5, 2, 3)
    expected, last = summed(q, v, output_final_state=True)
    for form in ("position", "keyword", "tensor", "slots"):
        state = stretto.State(("S",), [torch.zeros(2 if form == "slots" else 1, 2, 4, 3)])
        for token in range(5):
            row, value = q[:, token], v[:, token]
            if form == "position":
                o, same = summed.step(row, value, state)
            elif form == "keyword":
                o, same = summed.step(state=state, v=value, q=row)
            elif form == "tensor":
                o, same = summed.step(row, value, state["S"])
            else:
                o, same = summed.step(row, value, state, slots=torch.tensor([1]))
            torch.testing.assert_close(o, expected[:, token])
            assert same is (state["S"] if form == "tensor" else state)
        torch.testing.assert_close(state["S"][-1:], last["S"])
    assert not in_python


def test_shipped_operators_are_called_directly(in_python):
    q, k, v = torch.randn(3, 1, 5, 2, 16).unbind()
    g = -torch.rand(1, 5, 2, 16)
    o, nothing = stretto.ops.gla(q, k, v, g)
    assert nothing is None
    torch.testing.assert_close(stretto.ops.gla(q, k, g=g, v=v, scale=0.25)[0], o)
    _, state = stretto.ops.gla(q, k, v, g, output_final_state=True)
    row = [x[:, 0] for x in (q, k, v, g)]
    o, _ = stretto.ops.gla.step(*row, state=stretto.State(state.names, [state["S"].clone()]))
    torch.testing.assert_close(o, stretto.ops.gla(*(x[:, :1] for x in (q, k, v, g)), initial_state=state)[0][:, 0])
    normalised = stretto.ops.linear_attn(q, k, v, True, 1e-10, None, None, True, None)
    assert sorted(normalised[1]) == sorted(stretto.ops.linear_attn(q, k, v, output_final_state=True)[1])
    assert not in_python


def test_gradients_are_recorded(rows, in_python):
    q, _ = rows
    v = torch.randn(1, 5, 2, 3)
    wanted = q.clone().requires_grad_()
    o = summed(wanted, v)
    assert o.grad_fn is not None
    (found,) = torch.autograd.grad(o.sum(), wanted)
    (expected,) = torch.autograd.grad(getattr(torch.ops.stretto, o.grad_fn.name()[9:-9])(wanted, v)[0].sum(), wanted)
    assert torch.equal(found, expected)
    with torch.no_grad():
        assert summed(wanted, v).grad_fn is None
    with torch.inference_mode():
        assert summed(q, v).is_inference()
    with pytest.raises(stretto.Error, match=r"\[R14\] a step has no gradient"):
        summed.step(wanted[:, 0], v[:, 0], torch.zeros(1, 2, 4, 3))
    assert not in_python


def test_subclasses_of_tensors_are_met_by_their_functions(rows, in_python):
    q, _ = rows
    v = torch.randn(1, 5, 2, 3)
    expected, state = summed(q, v, output_final_state=True)
    assert not in_python
    found = summed(q.as_subclass(Marked), v)
    assert type(found) is Marked and torch.equal(found.as_subclass(torch.Tensor), expected)
    marked = stretto.State(("S",), [state["S"].as_subclass(Marked)])
    assert type(summed(q, v, initial_state=marked)) is Marked
    o, _ = summed.step(q[:, 0], v[:, 0], stretto.State(("S",), [state["S"].clone().as_subclass(Marked)]))
    assert type(o) is Marked
    assert in_python == ["run", "run", "run_step"]


def test_modes_see_operators(rows, in_python):
    q, bias = rows
    seen = []

    class OfFunctions(TorchFunctionMode):
        def __torch_function__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    class OfDispatch(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, arguments=(), keywords=None):
            seen.append(str(function))
            return function(*arguments, **(keywords or {}))

    scaled(q, bias)
    with OfFunctions():
        scaled(q, bias)
    (name,) = seen
    assert name.startswith("stretto.scaled_") and in_python == ["run"]
    with OfDispatch():
        scaled(q, bias)
    assert seen == [name] * 2 and in_python == ["run"]


def test_tracers_record_operators(rows):
    q, bias = rows
    for _ in range(2):  # before there is a plan, and with it
        graph = make_fx(lambda q: scaled(q, bias) + 1)(q).graph
        assert sum("stretto.scaled_" in str(node.target) for node in graph.nodes) == 1
        traced = torch.jit.trace(lambda q: scaled(q, bias) + 1, (q,))
        assert str(traced.graph).count("stretto::scaled_") == 1
        with torch.profiler.profile() as profile:
            scaled(q, bias)
        assert sum(event.key.startswith("stretto::scaled_") for event in profile.key_averages()) == 1
        with FakeTensorMode() as mode:
            fake = scaled(mode.from_tensor(q), mode.from_tensor(bias))
        assert isinstance(fake, FakeTensor) and fake.shape == q.shape
        expected = torch.compile(lambda q: scaled(q, bias) + 1, fullgraph=True, backend="eager")(q)
        torch.testing.assert_close(scaled(q, bias) + 1, expected)


def test_transformations_meet_operators_as_ever(rows):
    q, _ = rows
    several = torch.stack([q, 2 * q])
    for _ in range(2):
        with pytest.raises(RuntimeError, match="Batching rule not implemented for stretto::scaled_"):
            torch.func.vmap(scaled)(several)
        with torch.autocast("cpu", torch.bfloat16):
            assert scaled(q).dtype == torch.float32


def test_what_is_wrong_is_said_as_ever(rows, in_python):
    q, bias = rows
    v = torch.randn(1, 5, 2, 3)
    _, state = summed(q, v, output_final_state=True)
    wrong = [
        (lambda: scaled(), "'q' is missing; the inputs are q, bias"),
        (lambda: scaled(q, bias, q), "takes 2 inputs .q, bias., found 3"),
        (lambda: scaled(q, q=q), "'q' is given twice"),
        (lambda: scaled(q, scales=1.0), "there is no option 'scales'"),
        (lambda: scaled(q, bias=3.0), r"\[R4\] 'bias' is a float, expected a tensor"),
        (lambda: scaled(q, bias[:, :4]), r"\[R1\]"),
        (lambda: scaled(q, bias.double()), r"\[R4\] 'bias' has entries of type float64"),
        (lambda: summed(state, v), r"\[R4\] 'q' is a State, expected a tensor"),
        (lambda: summed(q, v, initial_state=stretto.State(("Z",), [q])), r"\[R6\] 'initial_state' has Z, expected"),
        (lambda: summed(q, v, initial_state=3), r"\[R6\] 'initial_state' is a int, expected"),
        (lambda: summed(q, v, cu_seqlens=state), r"\[R4\] 'cu_seqlens' is a State, expected a tensor"),
        (lambda: summed.step(q[:, 0], v[:, 0], None), r"\[R6\] 'state' has 0 tensors, expected 1"),
        (lambda: summed.step(q[:, 0], v[:, 0], state, slots=0), r"\[R4\] 'slots' is a int, expected a tensor"),
        (lambda: summed.step(q[:, 0], v[:, 0], state, slots=torch.tensor([1])), r"\[R13\] 'slots' is 1 for sequence 0"),
    ]
    for call, message in wrong:
        for _ in range(2):
            with pytest.raises(stretto.Error, match=message) as raised:
                call()
            assert raised.value.__cause__ is None
    with pytest.raises(TypeError, match="state"):
        stretto.ops.gla.step(q)


def test_more_forms_than_are_kept(rows):
    q, _ = rows
    for _ in range(2):
        for number in range(40):
            torch.testing.assert_close(scaled(q, scale=float(number)), number * q)


def test_forms_are_told_apart_by_all_threads(rows):
    q, bias = rows

    def call(number):
        scale = float(number % 23)
        return torch.equal(scaled(q, scale=scale), scale * q) and torch.equal(scaled(q, bias, scale=1.0), q + bias)

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(call, range(800)))


def test_variants_go_when_nobody_has_them(rows):
    @stretto.variant
    def gone(q: sl.Row["K"]):
        return q + q

    gone(rows[0])
    reference = weakref.ref(gone)
    del gone
    gc.collect()
    assert reference() is None
