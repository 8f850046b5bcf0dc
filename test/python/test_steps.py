"""Decoding: one token of each sequence, whose state is updated where it lies."""

import warnings

import pytest
import stretto
import torch
from operator_cases import BOUNDS, CASES, Case, Shape, error, initial_state
from stretto import lang as sl

pytestmark = pytest.mark.usefixtures("no_gradients")


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


def rows_of(inputs, T: int) -> list[str]:
    return [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == T]


def step(case: Case, inputs, token: int, state, T: int, **keywords):
    """The token's results and the state that it left."""
    rows = {name: inputs[name][:, token] for name in rows_of(inputs, T)}
    operator = getattr(stretto.ops, case.operator)
    return operator.step(**{**inputs, **rows}, **case.options, state=state, **keywords)


def decode(case: Case, inputs, state, tokens: range, T: int) -> torch.Tensor:
    results = []
    for token in tokens:
        o, returned = step(case, inputs, token, state, T)
        assert returned is state
        results.append(o)
    return torch.stack(results, 1) if results else torch.empty(0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_steps_against_the_interpreter(case, dtype):
    inputs = case.inputs(Shape(T=9), dtype)
    expected, expected_state = case.reference(inputs)
    _, state = case({**inputs, **{name: inputs[name][:, :0] for name in rows_of(inputs, 9)}}, output_final_state=True)
    o = decode(case, inputs, state, range(9), T=9)
    output_bound, state_bound = BOUNDS[dtype]
    assert o.dtype == dtype
    assert error(o, expected) <= output_bound
    assert tuple(state) == tuple(expected_state)
    for name, entry in state.items():
        assert error(entry, expected_state[name]) <= state_bound


@pytest.mark.parametrize("cut", [0, 1, 19, 37])
def test_prefill_then_step_equals_one_pass(case, cut):
    T = 38
    inputs = case.inputs(Shape(T=T))
    whole, final = case(inputs, output_final_state=True)
    first = {**inputs, **{name: inputs[name][:, :cut] for name in rows_of(inputs, T)}}
    o1, state = case(first, output_final_state=True)
    o2 = decode(case, inputs, state, range(cut, T), T)
    assert error(torch.cat([o1, o2], 1), whole) < 5e-6
    for name in final:
        assert error(state[name], final[name]) < 5e-6


@pytest.mark.parametrize(("K", "V"), [(256, 16), (40, 100), (16, 7)])
def test_widths(case, K, V):
    if case.operator == "based" and K == 40:
        pytest.skip("a state of 1641 rows is too wide to test here")
    inputs = case.inputs(Shape(T=3, K=min(K, case.widest), V=V))
    expected, _ = case.reference(inputs)
    _, state = case({**inputs, **{name: inputs[name][:, :0] for name in rows_of(inputs, 3)}}, output_final_state=True)
    assert error(decode(case, inputs, state, range(3), T=3), expected) <= BOUNDS[torch.float32][0]


def check_pool(case: Case, dtype: torch.dtype, device: str = "cpu") -> None:
    """Sequences have rows of their own, in any order; one of -1 is left out, and rows of nobody stay as they are."""
    inputs = case.inputs(Shape(B=4, T=5), device=device)
    slots = torch.tensor([6, -1, 0, 3], dtype=dtype, device=device)
    larger = case.inputs(Shape(B=8, T=5), device=device, seed=3)
    pool = initial_state(case, larger)
    before = {name: entry.clone() for name, entry in pool.items()}
    held = slots >= 0
    dense = stretto.State(tuple(pool), tuple(entry[slots.clamp(min=0).long()].clone() for entry in pool.values()))
    for token in range(2):
        expected, _ = step(case, inputs, token, dense, T=5)
        o, returned = step(case, inputs, token, pool, T=5, slots=slots)
        assert returned is pool
        assert torch.equal(o[held], expected[held])
        assert not o[~held].any()
    for name, entry in pool.items():
        assert torch.equal(entry[slots[held].long()], dense[name][held])
        others = [row for row in range(8) if row not in slots]
        assert torch.equal(entry[others], before[name][others])


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_a_pool_of_states(case, dtype):
    check_pool(case, dtype)


def test_what_has_no_slot_is_0_whatever_lay_there():
    q, k, v = torch.randn(3, 4, 2, 16).unbind()
    pool = torch.zeros(4, 2, 16, 16)
    torch.use_deterministic_algorithms(True)  # then memory holds NaN before anything is written to it
    try:
        assert torch.empty(4).isnan().all()
        o, _ = stretto.ops.retention.step(q, k, v, state=pool, slots=torch.tensor([-1, 2, -1, 0]))
    finally:
        torch.use_deterministic_algorithms(False)
    expected, _ = stretto.ops.retention.step(q, k, v, state=torch.zeros(4, 2, 16, 16))
    assert torch.equal(o[1::2], expected[1::2]) and not o[::2].any()


def test_a_batch_of_none(case):
    inputs = case.inputs(Shape(B=0, T=1))
    _, state = case(inputs, output_final_state=True)
    o, _ = step(case, inputs, 0, state, T=1)
    assert o.shape[0] == 0


def test_grouped_heads_share_a_state(case):
    inputs = case.inputs(Shape(T=4, H=6, G=3))
    expected, expected_state = case.reference(inputs)
    _, state = case({**inputs, **{name: inputs[name][:, :0] for name in rows_of(inputs, 4)}}, output_final_state=True)
    assert error(decode(case, inputs, state, range(4), T=4), expected) <= BOUNDS[torch.float32][0]
    for name, entry in state.items():
        assert error(entry, expected_state[name]) <= BOUNDS[torch.float32][1]


#
# What is refused, before anything runs
#


@pytest.fixture
def decoding():
    """A step of gated linear attention: its inputs by name, and a state."""
    inputs = CASES["gla"].inputs(Shape(B=3, T=1))
    _, state = CASES["gla"](inputs, output_final_state=True)
    return {name: x[:, 0] for name, x in inputs.items()}, state


def refused(decoding, message: str, **changes) -> None:
    inputs, state = decoding
    before = state["S"].clone()
    with pytest.raises(stretto.Error, match=message):
        stretto.ops.gla.step(**{**inputs, "state": state, **changes})
    assert torch.equal(state["S"], before)


def test_a_row_with_time_is_refused(decoding):
    q = decoding[0]["q"]
    message = r"\[R1\] the argument 'q' has shape \[3, 1, 4, 32\], expected rank 3: \[B, H, K\]"
    refused(decoding, message, q=q[:, None])


def test_rows_of_another_batch_or_width_are_refused(decoding):
    refused(decoding, r"\[R1\] the argument 'k' has B = 2, expected 3", k=decoding[0]["k"][:2])
    refused(decoding, r"\[R3\] the argument 'k' has the axis K = 16, expected 32", k=decoding[0]["k"][..., :16])


def test_states_of_another_kind_are_refused(decoding):
    S = decoding[1]["S"]
    refused(decoding, r"\[R6\] 'S' of 'state' is float32\[2, 2, 32, 32\], expected float32\[3,", state={"S": S[:2]})
    refused(decoding, r"\[R6\] 'S' of 'state' is bfloat16", state={"S": S.bfloat16()})
    refused(decoding, r"\[R6\] 'state' has T, expected a stretto.State or a mapping with S", state={"T": S})
    refused(decoding, r"\[R6\] 'state' has 0 tensors, expected 1", state=None)
    message = r"\[R6\] a tensor of 'state' with shape .* has the strides .*: it is updated where it lies"
    refused(decoding, message, state={"S": S.transpose(2, 3)})
    refused(decoding, r"\[R5\] 'S' of|\[R5\] 'state' is on meta, expected cpu", state={"S": S.to("meta")})


@pytest.mark.parametrize(
    ("slots", "message"),
    [
        ([0, 1, 3], r"\[R13\] 'slots' is 3 for sequence 2, expected -1 or 0 to 2"),
        ([0, -2, 1], r"\[R13\] 'slots' is -2 for sequence 1, expected -1 or 0 to 2"),
        ([2, -1, 2], r"\[R13\] 'slots' is 2 for the sequences 0 and 2, expected a slot of its own for each"),
        ([0, 1], r"\[R7\] 'slots' has shape \[2\], expected \[3\]"),
        ([0.0, 1.0, 2.0], r"\[R7\] 'slots' has entries of type float32, expected int32 or int64"),
    ],
)
def test_slots(decoding, slots, message):
    refused(decoding, message, slots=torch.tensor(slots))


def test_a_positive_log_decay(decoding):
    refused(decoding, r"\[R13\] 'g' has an entry above 0", g=decoding[0]["g"] + 5)


def test_gradients(decoding):
    with torch.enable_grad():
        refused(decoding, r"\[R14\] a step has no gradient", q=decoding[0]["q"].clone().requires_grad_())


def test_positions_count_up():
    case = CASES["bla"]
    inputs = case.inputs(Shape(B=3, T=2))
    _, state = case(inputs, output_final_state=True)
    assert state["position"].tolist() == [2, 2, 2]
    step(case, inputs, 1, state, T=2, slots=torch.tensor([2, -1, 0]))
    assert state["position"].tolist() == [3, 2, 3]


#
# As an operator of PyTorch
#


def test_the_schema_is_the_declaration():
    assert str(torch.ops.stretto.ssd_step.default._schema) == (
        "stretto::ssd_step(Tensor x, Tensor dt, Tensor A_log, Tensor B, Tensor C, Tensor? D=None, *, "
        "Tensor(a!)[] state, Tensor? slots=None) -> Tensor o"
    )


@pytest.mark.parametrize("name", ["gla", "ssd", "lawcat", "gated_delta_rule", "bla"])
def test_opcheck(name):
    case = CASES[name]
    inputs = case.inputs(Shape(B=2, T=3))
    _, state = case(inputs, output_final_state=True)
    rows = {name: inputs[name][:, 0].clone() for name in rows_of(inputs, 3)}
    overload = getattr(torch.ops.stretto, f"{case.operator}_step").default
    given = {**inputs, **rows}
    arguments = [given.get(argument.name) for argument in overload._schema.arguments if not argument.kwarg_only]
    numbers = {name: float(value) if isinstance(value, int) else value for name, value in case.options.items()}
    keywords = {"state": [entry.clone() for entry in state.tensors], **numbers}
    torch.library.opcheck(overload, tuple(arguments), keywords)
    torch.library.opcheck(overload, tuple(arguments), {**keywords, "slots": torch.tensor([1, -1])})


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(dynamic):
    torch._dynamo.reset()

    @torch.compile(fullgraph=True, dynamic=dynamic)
    def layer(q, k, v, g, state):
        o, state = stretto.ops.gla.step(q * 1.0, k, v, g, state=state)
        return o + 1.0, state

    case = CASES["gla"]
    for B in (2, 5):
        inputs = case.inputs(Shape(B=B, T=4))
        _, state = case(inputs, output_final_state=True)
        expected_state = stretto.State(state.names, [entry.clone() for entry in state.tensors])
        expected, _ = step(case, inputs, 2, expected_state, T=4)
        o, returned = layer(**{name: x[:, 2] for name, x in inputs.items()}, state=state)
        torch.testing.assert_close(o, expected + 1.0)
        torch.testing.assert_close(returned["S"], expected_state["S"])
        torch.testing.assert_close(state["S"], expected_state["S"])


def test_a_variant_is_given_its_state_last():
    case = CASES["gla"]
    inputs = case.inputs(Shape(T=1))
    _, state = case(inputs, output_final_state=True)
    other = stretto.State(state.names, [entry.clone() for entry in state.tensors])
    q, k, v, g = (inputs[name][:, 0] for name in "qkvg")
    o, returned = stretto.ops.gla.variant.step(q, k, v, g, state)
    assert returned is state
    expected, _ = stretto.ops.gla.step(q, k, v, g, state=other)
    assert torch.equal(o, expected)
    tensor = other["S"]
    assert stretto.ops.gla.variant.step(q, k, v, g, tensor)[1] is tensor


def test_the_step_form_as_text():
    text = stretto.ops.gsa.variant.lower("chunk", step=True, K=16, V=16, N=4)
    assert "chunk.kernel @gsa chunk 1(" in text
    assert "func" in stretto.ops.gsa.variant.lower("llvm", step=True, K=16, V=16, N=4)


#
# What has no chunk form
#


def test_what_has_no_chunk_form_says_so_once():
    @stretto.variant
    def corrected(k: sl.Row["K"], v: sl.Row["V"]):
        S = sl.state("K", "V")
        r = sl.read(S, k, along="K")
        S = sl.decay(S, log=sl.logsigmoid(r), along="V")
        sl.write(S, k, v - r)
        return r

    inputs = torch.randn(1, 5, 2, 8), torch.randn(1, 5, 2, 4)
    with pytest.warns(UserWarning, match=r"corrected: no chunk form: .*; runs token by token") as warned:
        o = corrected(*inputs)
    assert len(warned) == 1 and warned[0].filename == __file__
    assert error(o, corrected.reference(*inputs)) <= BOUNDS[torch.float32][0]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        corrected(*inputs)
        corrected(*(x.double() for x in inputs))
    explanation = corrected.explain(*inputs)
    assert explanation["form"] == "step"
    assert "decays the state 'S' by what is read from it" in explanation["no_chunk_form"]
    assert stretto.ops.gla.variant.explain(**CASES["gla"].inputs(Shape()))["form"] == "chunk"
