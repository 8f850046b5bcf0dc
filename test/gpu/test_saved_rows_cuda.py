"""Rows that a call saves for its gradient, on a CUDA device: the cases of test/python/test_saved_rows.py, and that no
kernel finds them again.
"""

import pytest
import stretto
import torch
from test_lookback_gradients import gradients, relation_loss
from test_lookbacks import RELATIONS, relation
from test_saved_rows import BOUNDS, SAVING, check_normalisers, check_what_calls_save, log_sum_exps, recorded

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

DEVICE = "cuda"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)


def on_device(inputs):
    return {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in inputs.items()}


@pytest.mark.parametrize("name", SAVING)
@DTYPES
def test_a_recorded_call_saves_log_sum_exps(name, dtype):
    (q_s, q_t, k_s, k_t, mask), options = recorded(on_device(relation(dtype=dtype, **RELATIONS[name])))
    o, _, saved = torch.ops.stretto.relation_kl_recorded(q_s, q_t, k_s, k_t, mask, **options)
    expected, _ = torch.ops.stretto.relation_kl(q_s, q_t, k_s, k_t, mask, **options)
    assert torch.equal(o, expected)
    for found, (q, k) in zip(saved, ((q_t, k_t), (q_s, k_s)), strict=True):
        rows = log_sum_exps(q, k, mask, **options)
        seen = rows.isfinite()
        assert found.dtype == torch.float32
        assert (found.double() - rows)[seen].abs().max() < BOUNDS[dtype]


@pytest.mark.parametrize("name", RELATIONS)
@DTYPES
def test_results_are_the_same_bits(name, dtype):
    arguments = on_device(relation(T=300, dtype=dtype, **RELATIONS[name]))
    first = gradients(relation_loss, arguments, torch.tensor(1.0))
    for _ in range(3):
        again = gradients(relation_loss, arguments, torch.tensor(1.0))
        assert all(torch.equal(first[name], again[name]) for name in first)


def test_no_kernel_finds_saved_rows_again():
    q_s, q_t = (torch.randn(1, 300, 4, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    q_s.requires_grad_()

    def run():
        torch.autograd.grad(stretto.ops.relation_kl(q_s, q_t), q_s)

    run()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run()
        torch.cuda.synchronize()
    kernels = sorted(event.name for event in profile.events() if "relation_kl" in event.name)
    assert kernels == ["relation_kl", "relation_kl_backward"]


def test_a_graph_of_a_device_replays_the_same_bits():
    q_s, q_t = (torch.randn(1, 300, 4, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    q_s.requires_grad_()
    (expected,) = torch.autograd.grad(stretto.ops.relation_kl(q_s, q_t), q_s)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.autograd.grad(stretto.ops.relation_kl(q_s, q_t), q_s)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        (found,) = torch.autograd.grad(stretto.ops.relation_kl(q_s, q_t), q_s)
    for _ in range(2):
        found.zero_()
        graph.replay()
        assert torch.equal(found, expected)


def test_a_compiled_call_is_the_same():
    q_s, q_t = (torch.randn(1, 300, 4, 64, device=DEVICE, dtype=torch.bfloat16) for _ in range(2))
    q_s.requires_grad_()
    (expected,) = torch.autograd.grad(stretto.ops.relation_kl(q_s, q_t), q_s)
    compiled = torch.compile(stretto.ops.relation_kl, fullgraph=True)
    (found,) = torch.autograd.grad(compiled(q_s, q_t), q_s)
    torch.testing.assert_close(found, expected, rtol=1e-2, atol=1e-6)


@pytest.mark.parametrize(
    "dtype, bound", [(torch.float32, 1e-4), (torch.bfloat16, 2e-2), (torch.float16, 4e-3)], ids=str
)
@pytest.mark.parametrize("shape", [(2, 150, 4, 32), (1, 1500, 4, 64), (1, 700, 2, 128)], ids=str)
def test_normalisers_are_saved(shape, dtype, bound):
    check_normalisers(dtype, bound, shape, DEVICE)


@DTYPES
def test_what_calls_save(dtype):
    check_what_calls_save("normalised_gla", dtype, DEVICE)
