"""What is refused before anything runs: each message has the id of the refusal and names the argument, what was found
and what was expected.
"""

import math
import pathlib
import re

import pytest
import stretto
import torch
from operator_cases import CASES, Shape, initial_state, offsets

pytestmark = pytest.mark.usefixtures("no_gradients")


def refused(match: str, operator=stretto.ops.gla):
    """A decorator's worth of context: the call inside must raise exactly this."""
    return pytest.raises(stretto.Error, match=match)


@pytest.fixture
def inputs() -> dict[str, torch.Tensor]:
    return CASES["gla"].inputs(Shape())


def test_rank(inputs):
    inputs["k"] = inputs["k"][0]
    with refused(r"^gla: \[R1\] the argument 'k' has shape \[65, 2, 32\], expected rank 4"):
        stretto.ops.gla(**inputs)


@pytest.mark.parametrize("axis, name", [(0, "B"), (1, "T")])
def test_batch_and_time(inputs, axis, name):
    stretto.ops.gla(**inputs)  # the signature is known from here on; the check is made at each call
    size = inputs["v"].shape[axis]
    inputs["v"] = inputs["v"].narrow(axis, 0, size - 1)
    with refused(rf"\[R1\] the argument 'v' has {name} = {size - 1}, expected {size} as 'q' has"):
        stretto.ops.gla(**inputs)


def test_heads_of_keys_and_values_differ(inputs):
    inputs["v"] = torch.cat([inputs["v"], inputs["v"]], 2)
    with refused(r"\[R1\] the argument 'v' has .*4.*, expected 2"):
        stretto.ops.gla(**inputs)


def test_head_ratio():
    inputs = CASES["gla"].inputs(Shape(H=4, G=3))
    with refused(r"\[R2\].*4.*3"):
        stretto.ops.gla(**inputs)


def test_head_ratio_of_groups():
    inputs = CASES["ssd"].inputs(Shape(H=4, G=3))
    with refused(r"^ssd: \[R2\]"):
        stretto.ops.ssd(**inputs)


def test_widths(inputs):
    inputs["k"] = inputs["k"][..., :16]
    with refused(r"\[R3\].*'k'.*16.*32"):
        stretto.ops.gla(**inputs)


def test_width_of_a_gate(inputs):
    inputs["g"] = inputs["g"][..., :1]
    with refused(r"\[R3\].*'g'.*1.*32"):
        stretto.ops.gla(**inputs)


def test_mixed_types(inputs):
    inputs["v"] = inputs["v"].bfloat16()
    with refused(r"\[R4\] 'v' has entries of type bfloat16, expected float32 as 'q' has"):
        stretto.ops.gla(**inputs)


@pytest.mark.parametrize("dtype", [torch.int32, torch.complex64, torch.float8_e4m3fn], ids=str)
def test_types_that_kernels_do_not_know(inputs, dtype):
    inputs["g"] = inputs["g"].to(dtype)
    with refused(r"\[R4\] 'g' has entries of type \w+, expected float16, bfloat16, float32 or float64"):
        stretto.ops.gla(**inputs)


@pytest.mark.parametrize("name", ["q", "k", "g"])
def test_another_device(inputs, name):
    inputs[name] = inputs[name].to("meta")
    with refused(r"^gla: \[R5\] '\w' is on \w+, expected \w+"):
        stretto.ops.gla(**inputs)


def test_a_state_or_offsets_on_another_device():
    inputs = CASES["gla"].inputs(Shape(B=1))
    with refused(r"^gla: \[R5\] 'initial_state' is on meta, expected cpu"):
        stretto.ops.gla(**inputs, initial_state=torch.zeros(1, 2, 32, 32, device="meta"))
    with refused(r"^gla: \[R5\] 'cu_seqlens' is on meta, expected cpu"):
        stretto.ops.gla(**inputs, cu_seqlens=offsets([65], device="meta"))


def test_what_is_no_tensor(inputs):
    with refused(r"^gla: \[R4\] 'k' is a ndarray, expected a tensor$"):
        stretto.ops.gla(**{**inputs, "k": inputs["k"].numpy()})
    with refused(r"^gla: \[R4\] 'cu_seqlens' is a list, expected a tensor$"):
        stretto.ops.gla(**inputs, cu_seqlens=[0, 65])
    with refused(r"^gla: \[R4\] 'initial_state' is a list, expected a tensor$"):
        stretto.ops.gla(**inputs, initial_state={"S": [0.0]})


def test_a_state_of_the_wrong_shape(inputs):
    with refused(r"\[R6\] 'S' of 'initial_state' is float32\[2, 2, 32, 16\], expected float32\[2, 2, 32, 32\]"):
        stretto.ops.gla(**inputs, initial_state=torch.zeros(2, 2, 32, 16))


def test_a_state_of_the_wrong_type(inputs):
    inputs = {name: x.bfloat16() for name, x in inputs.items()}
    with refused(r"\[R6\] 'S' of 'initial_state' is bfloat16\[.*\], expected float32"):
        stretto.ops.gla(**inputs, initial_state=torch.zeros(2, 2, 32, 32, dtype=torch.bfloat16))


def test_a_state_with_other_entries(inputs):
    with refused(r"\[R6\] 'initial_state' has T, expected a stretto.State or a mapping with S"):
        stretto.ops.gla(**inputs, initial_state={"T": torch.zeros(2, 2, 32, 32)})
    with refused(r"\[R6\] 'initial_state' is a int, expected"):
        stretto.ops.gla(**inputs, initial_state=3)


@pytest.mark.parametrize("position", [-1, (1 << 24) + 1, 1 << 62])
def test_a_position_that_no_token_has(position):
    case = CASES["supra"]
    inputs = case.inputs(Shape())
    state = initial_state(case, inputs)
    state["position"][1] = position
    with refused(rf"^supra: \[R6\] 'position' of 'initial_state' is {position} for sequence 1, expected 0 to 16777216"):
        case(inputs, initial_state=state)


def test_positions_of_the_wrong_type():
    case = CASES["supra"]
    inputs = case.inputs(Shape())
    state = {**initial_state(case, inputs), "position": torch.zeros(2, dtype=torch.int32)}
    with refused(r"\[R6\] 'position' of 'initial_state' is int32\[2\], expected int64\[2\]"):
        case(inputs, initial_state=state)


def test_a_number_of_states_other_than_of_sequences():
    inputs = CASES["gla"].inputs(Shape(B=1))
    with refused(r"\[R7\] 'S' of 'initial_state' is float32\[2, .*, expected float32\[3"):
        stretto.ops.gla(**inputs, initial_state=torch.zeros(2, 2, 32, 32), cu_seqlens=offsets([5, 20, 40]))


def test_packing_with_a_batch(inputs):
    with refused(r"\[R7\] 'cu_seqlens' is given with B = 2, expected B = 1"):
        stretto.ops.gla(**inputs, cu_seqlens=offsets([65]))


@pytest.mark.parametrize(
    "values, message",
    [
        ([1, 65], r"starts at 1, expected 0"),
        ([0, 40, 30, 65], r"falls from 40 to 30 at index 2"),
        ([0, 64], r"ends at 64, expected the number of tokens, 65"),
        ([0, 66], r"ends at 66, expected the number of tokens, 65"),
    ],
)
def test_offsets(values, message):
    inputs = CASES["gla"].inputs(Shape(B=1))
    with refused(r"\[R7\] 'cu_seqlens' " + message):
        stretto.ops.gla(**inputs, cu_seqlens=torch.tensor(values))


def test_offsets_of_another_kind():
    inputs = CASES["gla"].inputs(Shape(B=1))
    with refused(r"\[R7\] 'cu_seqlens' has entries of type float32, expected int32 or int64"):
        stretto.ops.gla(**inputs, cu_seqlens=torch.tensor([0.0, 65.0]))
    with refused(r"\[R7\] 'cu_seqlens' has shape \[1, 2\], expected \[sequences \+ 1\]"):
        stretto.ops.gla(**inputs, cu_seqlens=torch.tensor([[0, 65]]))


@pytest.mark.parametrize("name, argument", [("gla", "g"), ("simple_gla", "g"), ("rwkv6", "w")])
@pytest.mark.parametrize("value", [1e-6, 3.0, math.inf])
def test_a_positive_log_decay(name, argument, value):
    inputs = CASES[name].inputs(Shape())
    inputs[argument].view(-1)[-7] = value
    with refused(rf"^{name}: \[R13\] '{argument}' has an entry above 0"):
        getattr(stretto.ops, name)(**inputs)


def test_a_step_that_would_grow_the_state():
    inputs = CASES["ssd"].inputs(Shape())
    inputs["dt"][1, 3, 2] = -0.5
    with refused(r"^ssd: \[R13\] 'dt' has an entry below 0"):
        stretto.ops.ssd(**inputs)


def test_a_decay_of_zero_and_a_nan_are_no_refusal():
    inputs = CASES["gla"].inputs(Shape())
    inputs["g"][0, 0, 0, 0] = math.nan
    inputs["g"][0, 1, 0, 0] = 0.0
    inputs["g"][0, 2, 0, 0] = -math.inf
    assert stretto.ops.gla(**inputs)[0].isnan().any()


def test_computed_gates_are_proven():
    for name in ("lawcat", "retention"):
        inputs = CASES[name].inputs(Shape())
        assert getattr(stretto.ops, name).variant.explain(**inputs)["decay_proven"]


def test_a_missing_input(inputs):
    del inputs["v"]
    with refused(r"'v' is missing; the inputs are q, k, v, g"):
        stretto.ops.gla(**inputs)


def test_an_option_that_does_not_exist(inputs):
    with refused(r"there is no option 'scales'; the options are scale"):
        stretto.ops.gla(**inputs, scales=1.0)
    with refused(r"the option 'normalize' is 'yes', expected True or False"):
        stretto.ops.linear_attn(inputs["q"], inputs["k"], inputs["v"], normalize="yes")


def test_too_many_arguments(inputs):
    with refused(r"gla is given 9 arguments, expected at most 8"):
        stretto.ops.gla(*inputs.values(), None, None, False, None, 1)


def test_an_odd_width_of_lawcat():
    with refused(r"^lawcat: \[R3\].*D/2"):
        stretto.ops.lawcat(**CASES["lawcat"].inputs(Shape(K=33)))


def test_nothing_but_our_refusals_becomes_our_error(monkeypatch):
    """An error of PyTorch, such as memory that is not there, is passed on as it is."""
    x = torch.empty(1, 1, 1, 1).expand(1, 1 << 40, 1, 1)
    with pytest.raises(RuntimeError) as caught:
        stretto.ops.retention(x, x, x)
    assert not isinstance(caught.value, stretto.Error)
    assert re.search("memory|overflow|invalid|allocate", str(caught.value))


def test_parts_of_entries(tmp_path, inputs):
    # A state that lies in another's memory would be read and written wherever its declaration says.
    text = (pathlib.Path(stretto.__file__).parent / "models/linear_attn/variant.mlir").read_text()
    name = tmp_path / "variant.mlir"
    name.write_text(text.replace('stretto.state "S"', 'stretto.state "S" of "S" column 4 columns 100000000'))
    assert name.read_text() != text
    with pytest.raises(RuntimeError, match="'S' is declared as a part of the entry 'S', expected a state of its own"):
        stretto.load(name)(q=inputs["q"], k=inputs["k"], v=inputs["v"])
