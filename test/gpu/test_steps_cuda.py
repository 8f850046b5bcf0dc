"""Steps on a CUDA device: the cases of test/python/test_steps.py, against the fp64 interpreter on the CPU."""

import dataclasses
import warnings

import pytest
import stretto
import torch
from operator_cases import BOUNDS, CASES, Case, Shape, error, initial_state
from stretto import lang as sl
from test_steps import check_pool, decode, rows_of, step

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
    pytest.mark.usefixtures("no_gradients"),
]

DEVICE = "cuda"
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=CASES)
def case(request) -> Case:
    case = CASES[request.param]
    if case.operator != "based":
        return case
    # A key has a feature for each pair of its channels.
    return dataclasses.replace(case, make=lambda s, g: case.make(dataclasses.replace(s, K=16), g))


def prefill(case: Case, inputs, tokens: int, T: int):
    """The results for the first tokens, and the state that they leave."""
    first = {**inputs, **{name: inputs[name][:, :tokens].contiguous() for name in rows_of(inputs, T)}}
    return case(first, output_final_state=True)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_steps_against_the_interpreter(case, dtype):
    inputs = case.inputs(Shape(T=9), dtype, DEVICE)
    expected, expected_state = case.reference(inputs)
    _, state = prefill(case, inputs, 0, T=9)
    o = decode(case, inputs, state, range(9), T=9)
    output_bound, state_bound = BOUNDS[dtype]
    assert o.dtype == dtype
    assert error(o, expected) <= output_bound
    for name, entry in state.items():
        assert error(entry, expected_state[name]) <= state_bound


@pytest.mark.parametrize("cut", [0, 1, 19, 37])
def test_prefill_then_step_equals_one_pass(case, cut):
    T = 38
    inputs = case.inputs(Shape(T=T), device=DEVICE)
    whole, final = case(inputs, output_final_state=True)
    o1, state = prefill(case, inputs, cut, T)
    o2 = decode(case, inputs, state, range(cut, T), T)
    assert error(torch.cat([o1, o2], 1), whole) < 5e-6
    for name in final:
        assert error(state[name], final[name]) < 5e-6


@pytest.mark.parametrize(("K", "V"), [(16, 16), (64, 64), (128, 128), (256, 16), (40, 100), (16, 7), (16, 24)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_widths(case, K, V, dtype):
    inputs = case.inputs(Shape(T=3, K=min(K, case.widest), V=V), dtype, DEVICE)
    expected, _ = case.reference(inputs)
    _, state = prefill(case, inputs, 0, T=3)
    assert error(decode(case, inputs, state, range(3), T=3), expected) <= BOUNDS[dtype][0]


@pytest.mark.parametrize("B", [1, 7, 64])
def test_many_sequences_and_heads(B):
    """Few of them: values are divided among blocks."""
    case = CASES["gla"]
    inputs = case.inputs(Shape(B=B, T=2, H=8, G=8, K=128, V=128), torch.bfloat16, DEVICE)
    expected, expected_state = case.reference(inputs)
    _, state = prefill(case, inputs, 0, T=2)
    assert error(decode(case, inputs, state, range(2), T=2), expected) <= BOUNDS[torch.bfloat16][0]
    assert error(state["S"], expected_state["S"]) <= BOUNDS[torch.bfloat16][1]


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_a_pool_of_states(case, dtype):
    check_pool(case, dtype, DEVICE)


@pytest.mark.parametrize("values", [[9, -7, 1 << 40], [-1, -1, -1]])
def test_slots_that_are_no_rows_are_safe(values):
    case = CASES["gla"]
    inputs = case.inputs(Shape(B=3, T=1), device=DEVICE)
    state = initial_state(case, inputs)
    before = state["S"].clone()
    step(case, inputs, 0, state, T=1, slots=torch.tensor(values, device=DEVICE))
    assert torch.equal(state["S"], before)


def test_a_batch_of_none(case):
    inputs = case.inputs(Shape(B=0, T=1), device=DEVICE)
    _, state = case(inputs, output_final_state=True)
    assert step(case, inputs, 0, state, T=1)[0].shape[0] == 0


@pytest.mark.parametrize("H, G", [(6, 3), (8, 1), (4, 2)])
def test_grouped_heads_share_a_state(case, H, G):
    inputs = case.inputs(Shape(T=4, H=H, G=G), device=DEVICE)
    expected, expected_state = case.reference(inputs)
    _, state = prefill(case, inputs, 0, T=4)
    assert error(decode(case, inputs, state, range(4), T=4), expected) <= BOUNDS[torch.float32][0]
    for name, entry in state.items():
        assert error(entry, expected_state[name]) <= BOUNDS[torch.float32][1]


def test_results_are_the_same_bits(case):
    inputs = case.inputs(Shape(B=5, T=2), torch.bfloat16, DEVICE)
    state = initial_state(case, inputs)
    copies = [stretto.State(state.names, [entry.clone() for entry in state.tensors]) for _ in range(4)]
    outputs = [step(case, inputs, 1, copy, T=2)[0] for copy in copies]
    for o, copy in zip(outputs[1:], copies[1:], strict=True):
        assert torch.equal(o, outputs[0])
        assert all(torch.equal(copy[name], copies[0][name]) for name in copy)


def test_cuda_graph(case):
    """A replay decodes one token more, from the rows and the state that are in place then."""
    inputs = case.inputs(Shape(T=6), device=DEVICE)
    _, state = prefill(case, inputs, 0, T=6)
    _, other = prefill(case, inputs, 0, T=6)
    expected = decode(case, inputs, other, range(6), T=6)
    rows = {name: inputs[name][:, 0].clone() for name in rows_of(inputs, 6)}
    operator = getattr(stretto.ops, case.operator)

    def call():
        return operator.step(**{**inputs, **rows}, **case.options, state=state)[0]

    call()  # compiled and loaded before the capture
    for name, entry in prefill(case, inputs, 0, T=6)[1].items():
        state[name].copy_(entry)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = call()
    for token in range(6):
        for name, row in rows.items():
            row.copy_(inputs[name][:, token])
        graph.replay()
        assert torch.equal(o, expected[:, token])


def test_positions_count_up():
    case = CASES["bla"]
    inputs = case.inputs(Shape(B=3, T=2), device=DEVICE)
    _, state = case(inputs, output_final_state=True)
    assert state["position"].tolist() == [2, 2, 2]
    step(case, inputs, 1, state, T=2, slots=torch.tensor([2, -1, 0], device=DEVICE))
    assert state["position"].tolist() == [3, 2, 3]


def test_slots_are_checked_on_request():
    case = CASES["gla"]
    inputs = case.inputs(Shape(B=2, T=1), device=DEVICE)
    state = initial_state(case, inputs)
    with stretto.debug(), pytest.raises(stretto.Error, match=r"\[R13\] 'slots' is 5 for sequence 1"):
        step(case, inputs, 0, state, T=1, slots=torch.tensor([0, 5], device=DEVICE))


def test_what_has_no_chunk_form_runs_token_by_token():
    @stretto.variant
    def corrected(k: sl.Row["K"], v: sl.Row["V"]):
        S = sl.state("K", "V")
        r = sl.read(S, k, along="K")
        S = sl.decay(S, log=sl.logsigmoid(r), along="V")
        sl.write(S, k, v - r)
        return r

    k, v = torch.randn(2, 70, 2, 16, device=DEVICE), torch.randn(2, 70, 2, 24, device=DEVICE)
    inputs = k / k.norm(dim=-1, keepdim=True), v
    with pytest.warns(UserWarning, match=r"corrected: no chunk form: .*; runs token by token") as warned:
        o = corrected(*inputs)
    assert len(warned) == 1
    assert error(o, corrected.reference(*inputs)) <= BOUNDS[torch.float32][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corrected(*(x.bfloat16() for x in inputs))
    assert corrected.explain(*inputs)["form"] == "step"
