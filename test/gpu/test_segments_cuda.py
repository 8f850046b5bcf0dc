"""Calls on a CUDA device whose sequences are divided into segments that are walked side by side."""

import pytest
import stretto
import torch
from operator_cases import CASES, Shape, check, error, initial_state, offsets
from test_lookbacks import CASES as LOOKBACKS
from test_lookbacks import check_continuing, run
from test_segments import FED, WITH_STATES, explain, fed_inputs, segments

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
    pytest.mark.usefixtures("no_gradients"),
]

DEVICE = "cuda"


@pytest.fixture(params=[name for name, case in CASES.items() if case.operator != "based"])
def case(request):
    return CASES[request.param]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [2, 1000])
def test_lengths(case, count, dtype):
    with segments(count):
        for length in (1, 64, 65, 700):
            check(case, case.inputs(Shape(T=length), dtype, DEVICE))
        inputs = case.inputs(Shape(T=700), dtype, DEVICE)
        check(case, inputs, initial_state=initial_state(case, inputs))


def test_packed_sequences(case):
    for lengths in ([0, 17, 1, 0, 64, 433, 0], [900, 1, 1], [0, 0, 7]):
        inputs = case.inputs(Shape(B=1, T=sum(lengths)), torch.bfloat16, DEVICE)
        with segments(1000):
            check(case, inputs, cu_seqlens=offsets(lengths).to(DEVICE))


@pytest.mark.parametrize("name", WITH_STATES)
def test_lookbacks_beside_states(name):
    case = LOOKBACKS[name]
    for shape, keywords in (
        (Shape(T=500), {}),
        (Shape(B=1, T=600), {"cu_seqlens": offsets([0, 71, 1, 528]).to(DEVICE)}),
    ):
        inputs = {key: x.to(DEVICE) for key, x in case.inputs(shape).items()}
        o, state = run(case, inputs, **keywords)
        with segments(1000):
            found, final = run(case, inputs, **keywords)
        assert error(found, o) < 4e-6
        assert all(error(final[entry], state[entry]) < 4e-6 for entry in state)


@pytest.mark.parametrize("name", WITH_STATES)
def test_lookbacks_continue_from_windows(name):
    inputs = {key: x.to(DEVICE) for key, x in LOOKBACKS[name].inputs(Shape(T=150)).items()}
    with segments(1000):
        check_continuing(LOOKBACKS[name], inputs)


def test_few_heads_are_divided_by_themselves(case):
    inputs = case.inputs(Shape(B=1, T=4096, H=2, G=2, K=64, V=64), torch.bfloat16, DEVICE)
    found = explain(case, inputs)
    assert found["schedule"] == "segmented"
    assert found["segments"] == 8
    o, state = case(inputs, output_final_state=True)
    again, final = case(inputs, output_final_state=True)
    assert torch.equal(o, again)
    assert all(torch.equal(final[name], state[name]) for name in state)
    check(case, inputs)


def test_a_cuda_graph_follows_its_inputs(case):
    inputs = case.inputs(Shape(B=1, T=2048, H=2, G=2), torch.bfloat16, DEVICE)
    with segments(4):
        case(inputs)  # compiled and loaded before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = case(inputs)[0]
        next(x for x in inputs.values() if x.dim() == 4).mul_(2)
        graph.replay()
        torch.cuda.synchronize()
        assert torch.equal(found, case(inputs)[0])


def test_many_heads_walk_whole_sequences():
    inputs = CASES["gla"].inputs(Shape(B=8, T=2048, H=16, G=16), torch.bfloat16, DEVICE)
    assert stretto.ops.gla.variant.explain(**inputs)["schedule"] == "serial"


@pytest.mark.parametrize("T", [100, 1024, 2048])
@pytest.mark.parametrize("name", ["linear_attn", "simple_gla", "retention", "ssd"])
def test_slices_walk_short_sequences_of_few_heads(name, T):
    """A producer sends for all roles of a block: of whole sequences, packed ones, and such as continue others."""
    case = CASES[name]
    inputs = case.inputs(Shape(B=1, T=T, H=32, G=32, K=128, V=128), torch.bfloat16, DEVICE)
    inputs.pop("D", None)  # a parameter of outputs, which groups of warps do not copy
    found = explain(case, inputs)
    assert found["schedule"] == "serial"
    assert found["slices"] == 4
    assert found["threads_of_producer"] == 128
    check(case, inputs, initial_state=initial_state(case, inputs))
    lengths = offsets([T // 2, 0, T - T // 2 - 3, 3], device=DEVICE)
    check(case, inputs, cu_seqlens=lengths)


@pytest.mark.parametrize("name", ["gla", "simple_gla", "linear_attn", "gsa"])
def test_as_many_segments_as_multiprocessors_have_blocks(name):
    """Where two blocks of four warps fit, and compute enough that they do not wait for memory alone, twice as many."""
    case = CASES[name]
    # Shorter sequences of linear attention are walked whole, in slices.
    T = 8192 if name == "linear_attn" else 4096
    inputs = case.inputs(Shape(B=1, T=T, H=32, G=32, K=64, V=64), torch.bfloat16, DEVICE)
    found = explain(case, inputs)
    assert found["segments"] == (4 if name == "linear_attn" else 8)
    o, state = case(inputs, output_final_state=True)
    with segments(1):
        expected, final = case(inputs, output_final_state=True)
    assert error(o, expected) < 8e-3
    assert all(error(state[entry], final[entry]) < 8e-3 for entry in state)


@pytest.mark.parametrize("name", WITH_STATES)
def test_two_blocks_of_lookbacks_for_each_multiprocessor(name):
    inputs = {
        key: x.to(DEVICE) for key, x in LOOKBACKS[name].inputs(Shape(B=10, T=300, H=32, G=32, K=64, V=64)).items()
    }
    inputs = {key: x.to(torch.bfloat16) for key, x in inputs.items()}
    o, state = run(LOOKBACKS[name], inputs)
    for row in (0, 9):
        one = {key: x[row : row + 1] if key in ("q", "k", "v") else x for key, x in inputs.items()}
        expected, final = run(LOOKBACKS[name], one)
        assert error(o[row : row + 1], expected) < 8e-3
        assert all(error(state[entry][row : row + 1], final[entry]) < 8e-3 for entry in state)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("variant", FED, ids=lambda variant: variant.__name__)
def test_feedback(variant, dtype):
    """In both directions of a product, and with widths that fill no tile of a product of warpgroups."""
    bound = 5e-6 if dtype == torch.float32 else 1e-2
    for keys, values in ((16, 24), (64, 128)):
        inputs = {name: x.to(DEVICE) for name, x in fed_inputs(700, dtype, keys, values).items()}
        exact = {name: x.cpu().double() for name, x in inputs.items()}
        o, state = variant.reference(**exact, output_final_state=True)
        with segments(5):
            assert variant.explain(**inputs)["segments"] > 1
            found, final = variant(**inputs, output_final_state=True)
        assert error(found.cpu(), o) < bound
        assert all(error(final[name].cpu(), state[name]) < bound for name in state)
