"""Gradients of what looks back, on a CUDA device: the cases of test/python/test_lookback_gradients.py, against autograd
through independent formulas in fp64.
"""

import itertools

import pytest
import torch
from operator_cases import Shape, offsets
from test_continued_gradients import check_types_of_tails
from test_lookback_gradients import (
    DISTINCT,
    check,
    check_full_attention,
    gradients,
    relation_formula,
    relation_loss,
    windows_of,
)
from test_lookbacks import CASES, RELATIONS, relation, run, tokens_of
from test_operator_gradients import walks_of

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

DEVICE = "cuda"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
SOME = pytest.mark.parametrize(
    "name", ["swa of one token", "swa of more than a chunk", "lolcats", "lolcats t2r with one bias"]
)


def on_device(inputs):
    return {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("T", [1, 64, 65, 130])
def test_gradients_agree_with_autograd(name, T):
    case = CASES[name]
    inputs = on_device(case.inputs(Shape(B=2, T=T, K=16, V=16), torch.float32))
    check(case, case.formula, inputs, torch.float32)


@DTYPES
def test_full_attention(dtype):
    check_full_attention(Shape(B=1, T=300, K=64, V=64), dtype, DEVICE)


@SOME
@DTYPES
def test_types(name, dtype):
    case = CASES[name]
    check(case, case.formula, on_device(case.inputs(Shape(T=150), dtype)), dtype)


@pytest.mark.parametrize("name", ["swa of more than a chunk", "swa of everything", "lolcats"])
@DTYPES
@pytest.mark.parametrize(("K", "V", "H", "G"), [(64, 64, 4, 4), (128, 40, 4, 1), (24, 128, 2, 2), (128, 128, 2, 1)])
def test_widths_and_heads(name, dtype, K, V, H, G):
    case = CASES[name]
    inputs = on_device(case.inputs(Shape(B=1, T=140, K=K, V=V, H=H, G=G), dtype))
    check(case, case.formula, inputs, dtype)


@pytest.mark.parametrize("name", ["swa of more than a chunk", "lolcats"])
@DTYPES
def test_the_widest_heads(name, dtype):
    case = CASES[name]
    inputs = on_device(case.inputs(Shape(B=1, T=140, K=256, V=256, H=2, G=1), dtype))
    check(case, case.formula, inputs, dtype)


@SOME
def test_long_sequences(name):
    case = CASES[name]
    inputs = on_device(case.inputs(Shape(B=1, T=1517, K=16, V=16), torch.float32))
    check(case, case.formula, inputs, torch.float32)


@pytest.mark.parametrize("name", DISTINCT)
def test_packed_sequences(name):
    case, lengths = CASES[name], [0, 17, 1, 130, 64, 0]
    inputs = on_device(case.inputs(Shape(B=1, T=sum(lengths), K=16, V=16), torch.float32))
    cotangent = torch.randn(1, sum(lengths), 4, 16)
    packed = gradients(lambda given: case(given, cu_seqlens=offsets(lengths, device=DEVICE)), inputs, cotangent)
    for first, last in itertools.pairwise(offsets(lengths).tolist()):
        alone = gradients(case, tokens_of(inputs, first, last), cotangent[:, first:last])
        for name in ("q", "k", "v"):
            torch.testing.assert_close(packed[name][:, first:last], alone[name], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [name for name in DISTINCT if name.startswith("lolcats")])
@pytest.mark.parametrize("walks", [1, 2])
def test_independent_chunks(name, walks):
    """States and sums have walks of their own, or not; checkpoints of the longer call take several segments."""
    case = CASES[name]
    with walks_of(walks):
        for T in (65, 517):
            inputs = on_device(case.inputs(Shape(B=2, T=T, K=64, V=64), torch.bfloat16))
            check(case, case.formula, inputs, torch.bfloat16)
        test_packed_sequences(name)


@pytest.mark.parametrize("cut", [1, 40, 64, 100])
def test_a_call_that_continues(cut):
    case = CASES["swa of few tokens"]
    inputs = on_device(case.inputs(Shape(T=170, K=16, V=16), torch.float32))
    before, after = tokens_of(inputs, 0, cut), tokens_of(inputs, cut, 170)
    _, state = run(case, before)
    _, past = windows_of(case, before)
    check(
        lambda given: case(given, initial_state=state),
        lambda given: windows_of(case, given, initial_state=past)[0],
        after,
        torch.float32,
    )


@pytest.mark.parametrize("name", RELATIONS)
@DTYPES
def test_relation(name, dtype):
    """The mean of a row's gradient is tiny: it is judged as that of the sum."""
    arguments = on_device(relation(dtype=dtype, **RELATIONS[name]))
    heads = arguments.get("denominator_heads", arguments["q_s"].shape[2])
    tokens = arguments["mask"].sum().item() if "mask" in arguments else 2 * 130
    scaled = lambda loss: lambda given: loss(given) * tokens * heads  # noqa: E731
    check(scaled(relation_loss), scaled(relation_formula), arguments, dtype)


@DTYPES
@pytest.mark.parametrize("width", [16, 64])
def test_ties_share_the_gradient_of_the_maximum(dtype, width):
    """Tokens with the same key attain the largest score together; scores of small integers are exact."""
    case = CASES["lolcats"]
    inputs = case.inputs(Shape(B=1, T=150, K=width, V=width), dtype)
    inputs["q"] = inputs["q"].round()
    inputs["k"] = inputs["k"].round()[:, ::3].repeat_interleave(3, 1)
    check(case, case.formula, on_device(inputs), dtype)


@SOME
def test_results_are_the_same_bits(name):
    inputs = on_device(CASES[name].inputs(Shape(T=150), torch.bfloat16))
    first = gradients(CASES[name], inputs, torch.tensor(1.0))
    for _ in range(3):
        again = gradients(CASES[name], inputs, torch.tensor(1.0))
        assert all(torch.equal(first[name], again[name]) for name in first)


@DTYPES
def test_tails_beside_windows(dtype):
    check_types_of_tails(dtype, DEVICE)
