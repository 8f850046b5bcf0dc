"""What operators compute on a CUDA device: the matrix of test/python, against the fp64 interpreter on the CPU."""

import dataclasses
import math
import os
import threading

import pytest
import stretto
import torch
from operator_cases import (
    BOUNDS,
    CASES,
    Case,
    Shape,
    check,
    check_ordinary_inputs_in_bf16,
    check_that_a_nan_stays,
    error,
    initial_state,
    offsets,
)
from test_operators import LENGTHS, hard_gates, spread

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
    # A key has a feature for each pair of its channels: those of more than 16 channels do not fit shared memory.
    return dataclasses.replace(case, make=lambda s, g: case.make(dataclasses.replace(s, K=16), g))


@pytest.fixture(params=TYPES, ids=str)
def dtype(request) -> torch.dtype:
    return request.param


@pytest.mark.parametrize("width", [16, 32, 64, 96, 128, 256])
def test_widths(case, dtype, width):
    check(case, case.inputs(Shape(T=150, K=width, V=width), dtype, DEVICE))


@pytest.mark.parametrize("K, V", [(16, 64), (64, 16), (64, 128), (128, 64), (256, 64)])
def test_unequal_widths(case, dtype, K, V):
    check(case, case.inputs(Shape(K=K, V=V), dtype, DEVICE))


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_more_blocks_than_multiprocessors(case, dtype, width):
    """Two of each may have fewer warps, one more roles: the same results as of the heads of one sequence."""
    inputs = case.inputs(Shape(B=10, T=150, H=32, G=32, K=width, V=width), dtype, DEVICE)
    o, state = case(inputs, output_final_state=True)
    for row in (0, 9):
        one = {name: x[row : row + 1] if x.dim() >= 3 and x.shape[0] == 10 else x for name, x in inputs.items()}
        expected, final = case(one, output_final_state=True)
        assert error(o[row : row + 1], expected) < BOUNDS[dtype][0]
        assert all(error(state[name][row : row + 1], final[name]) < BOUNDS[dtype][1] for name in state)
    first = {name: x[:1, :, :1] if x.dim() >= 3 and x.shape[0] == 10 else x[:1] for name, x in inputs.items()}
    if all(x.dim() >= 3 and x.shape[0] == 10 for x in inputs.values()):
        expected = case.reference(first)[0]
        assert error(o[:1, :, :1], expected) < BOUNDS[dtype][0]


@pytest.mark.parametrize("H, G", [(1, 1), (8, 8), (8, 1), (8, 4)])
def test_head_ratios(case, dtype, H, G):
    check(case, case.inputs(Shape(H=H, G=G), dtype, DEVICE))


def test_lengths(case, dtype):
    for length in (*LENGTHS, 1000):
        check(case, case.inputs(Shape(B=1, T=length), dtype, DEVICE))


def test_initial_state(case, dtype):
    inputs = case.inputs(Shape(), dtype, DEVICE)
    check(case, inputs, initial_state=initial_state(case, inputs))
    state = initial_state(case, inputs)
    _, final = case(case.inputs(Shape(T=0), dtype, DEVICE), initial_state=state, output_final_state=True)
    for name in state:
        torch.testing.assert_close(final[name], state[name], rtol=0, atol=0)


@pytest.mark.parametrize("offset_type", [torch.int32, torch.int64], ids=str)
def test_packed_sequences(case, dtype, offset_type):
    lengths = [0, 17, 1, 0, 64, 200, 0]
    inputs = case.inputs(Shape(B=1, T=sum(lengths)), dtype, DEVICE)
    check(case, inputs, cu_seqlens=offsets(lengths, offset_type, DEVICE))
    state = initial_state(case, inputs, cu_seqlens=offsets(lengths, offset_type, DEVICE))
    check(case, inputs, cu_seqlens=offsets(lengths, offset_type, DEVICE), initial_state=state)


def test_nothing_to_do(case):
    inputs = case.inputs(Shape(B=1, T=0), device=DEVICE)
    check(case, inputs, cu_seqlens=offsets([0, 0, 0], device=DEVICE))
    o, _ = case(case.inputs(Shape(B=0), device=DEVICE))
    assert o.shape[0] == 0


@pytest.mark.parametrize("how", ["transposed", "gaps", "channels first", "expanded"])
def test_strides(case, dtype, how):
    inputs = case.inputs(Shape(), dtype)
    rows = {name: spread(x, how) for name, x in inputs.items() if x.dim() >= 3 and x.shape[:2] == (2, 65)}
    # A copy to the device keeps strides where memory is dense; so make the views there.
    inputs = {name: x.to(DEVICE) for name, x in inputs.items()}
    check(case, {**inputs, **{name: spread(inputs[name], how) for name in rows}})


@pytest.mark.parametrize("shift", [1, 2, 3, 5, 8])
def test_memory_that_is_not_aligned(case, dtype, shift):
    def shifted(x: torch.Tensor) -> torch.Tensor:
        memory = torch.empty(x.numel() + shift, dtype=x.dtype, device=DEVICE)[shift:].view(x.shape)
        return memory.copy_(x)

    inputs = case.inputs(Shape(), dtype, DEVICE)
    check(case, {name: shifted(x) for name, x in inputs.items()})


@pytest.mark.parametrize("kind", ["-50", "-inf", "0", "one channel in ten", "near in places", "mixed"])
@pytest.mark.parametrize("name", ["gla", "simple_gla"])
def test_hard_gates(name, kind, dtype):
    case = CASES[name]
    inputs = case.inputs(Shape(T=200, K=64, V=64), dtype)
    inputs["g"] = hard_gates(kind, inputs["g"])
    check(case, {name: x.to(DEVICE) for name, x in inputs.items()})


@pytest.mark.parametrize("logit", [-math.inf, -800.0, 800.0, math.inf])
def test_gate_logits_at_their_extremes(logit):
    inputs = CASES["lawcat"].inputs(Shape(T=70), device=DEVICE)
    chance = torch.rand(inputs["z"].shape, generator=torch.Generator().manual_seed(3)).to(DEVICE)
    inputs["z"] = torch.where(chance < 0.2, logit, inputs["z"])
    check(CASES["lawcat"], inputs)


@pytest.mark.parametrize("name", ["gla", "simple_gla"])
def test_decay_near_one_over_a_long_sequence(name, dtype):
    inputs = CASES[name].inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16), dtype)
    inputs["g"] = -torch.rand(inputs["g"].shape, generator=torch.Generator().manual_seed(2)) * 1e-4
    check(CASES[name], {name: x.to(DEVICE) for name, x in inputs.items()})


def test_ordinary_inputs_in_bf16(case):
    check_ordinary_inputs_in_bf16(case, case.inputs(Shape(T=1000, K=64, V=64), torch.bfloat16, DEVICE))


@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_a_nan_stays_in_its_sequence_and_head(case, dtype, packed):
    check_that_a_nan_stays(case, dtype, packed, DEVICE)


def test_kernels_say_who_assembled_them(case):
    inputs = case.inputs(Shape(T=70), torch.bfloat16, DEVICE)
    explained = getattr(stretto.ops, case.operator).variant.explain(**inputs, **case.options)
    assert explained["assembler"] == ("ptxas" if os.environ["STRETTO_PTXAS"] else "driver")


def test_results_are_the_same_bits(case):
    inputs = case.inputs(Shape(T=300), torch.bfloat16, DEVICE)
    first = case(inputs)[0]
    for _ in range(5):
        assert torch.equal(first, case(inputs)[0])


def test_the_current_stream_is_used(case):
    inputs = case.inputs(Shape(T=300), device=DEVICE)
    expected = case(inputs)[0]
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = {name: torch.zeros_like(x) for name, x in inputs.items()}
        torch.cuda._sleep(20_000_000)  # a kernel on another stream would read the zeros
        for name, x in inputs.items():
            late[name].copy_(x)
        o = case(late)[0]
    stream.synchronize()
    assert torch.equal(o, expected)


def test_cuda_graph(case):
    inputs = case.inputs(Shape(T=100), device=DEVICE)
    case(inputs)  # compiled and loaded before the capture
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = case(inputs)[0]
    fresh = case.inputs(Shape(T=100), device=DEVICE, seed=9)
    for name, x in inputs.items():
        x.copy_(fresh[name])
    graph.replay()
    torch.cuda.synchronize()
    assert error(o, case.reference(fresh)[0]) < 5e-6


def test_threads(case):
    inputs = case.inputs(Shape(T=100, K=48), device=DEVICE)
    results, problems = [], []

    def call():
        try:
            with torch.no_grad():
                results.append(case(inputs)[0])
        except Exception as problem:
            problems.append(problem)

    threads = [threading.Thread(target=call) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not problems
    for o in results:
        assert torch.equal(o, results[0])


def test_contents_are_checked_on_request():
    inputs = CASES["gla"].inputs(Shape(B=1), device=DEVICE)
    inputs["g"][0, 3, 1, 2] = 0.5
    stretto.ops.gla(**inputs)
    with stretto.debug(), pytest.raises(stretto.Error, match=r"\[R13\] 'g' has an entry above 0"):
        stretto.ops.gla(**inputs)
    inputs["g"].clamp_(max=0)
    with stretto.debug(), pytest.raises(stretto.Error, match=r"\[R7\] 'cu_seqlens' ends at 64"):
        stretto.ops.gla(**inputs, cu_seqlens=torch.tensor([0, 64], device=DEVICE))
    with stretto.debug():
        stretto.ops.gla(**inputs, cu_seqlens=torch.tensor([0, 65], device=DEVICE))


@pytest.mark.parametrize("values", [[0, 1 << 40], [-5, 65], [70, 3], [0, 100, 20, 65]])
def test_bad_offsets_are_safe(values):
    inputs = CASES["gla"].inputs(Shape(B=1), device=DEVICE)
    stretto.ops.gla(**inputs, cu_seqlens=torch.tensor(values, device=DEVICE))
    torch.cuda.synchronize()
    check(CASES["gla"], inputs)


def test_mixed_devices():
    inputs = CASES["gla"].inputs(Shape(), device=DEVICE)
    inputs["k"] = inputs["k"].cpu()
    with pytest.raises(stretto.Error, match=r"\[R5\] 'k' is on the CPU, expected CUDA device 0, where 'q' is"):
        stretto.ops.gla(**inputs)


def test_double_precision_is_for_the_cpu():
    inputs = CASES["gla"].inputs(Shape(), torch.float64, DEVICE)
    with pytest.raises(stretto.Error, match=r"\[R4\] 'q' has entries of type float64"):
        stretto.ops.gla(**inputs)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", ["gla", "lawcat"])
def test_compile_fullgraph(name, dynamic):
    torch._dynamo.reset()
    case, operator = CASES[name], getattr(stretto.ops, name)

    @torch.compile(fullgraph=True, dynamic=dynamic)
    def layer(inputs):
        o, final = operator(**{name: x * 1.0 for name, x in inputs.items()}, output_final_state=True)
        return o + 1.0, final

    for T in (64, 70):
        inputs = case.inputs(Shape(T=T), device=DEVICE)
        o, final = layer(inputs)
        expected, expected_final = operator(**inputs, output_final_state=True)
        torch.testing.assert_close(o, expected + 1.0)
        torch.testing.assert_close(final["S"], expected_final["S"])


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_device_other_than_the_current_one():
    inputs = CASES["gla"].inputs(Shape(), device="cuda:1")
    check(CASES["gla"], inputs)
