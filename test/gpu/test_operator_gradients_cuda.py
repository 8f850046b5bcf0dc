"""Gradients of the operators on a CUDA device: the matrix of test/python/test_operator_gradients.py."""

import contextlib
import os
import subprocess
import sys

import pytest
import stretto
import torch
from formulas import FORMULAS
from formulas.examples import REGIMES, WITH_DECAY, example
from test_gradients import LOOKING_BACK
from test_long_gradients import OPERATORS as LONG
from test_long_gradients import check_long
from test_operator_gradients import (
    FIRST,
    RUNNING,
    WALKS,
    WIDE,
    WITH_WALKS_OF_STATES,
    bytes_taken,
    check,
    check_division,
    check_segments,
    check_slices,
    check_walk_slices,
    check_walks,
    explanation,
    long_segments_of,
    most_bytes,
    segments_of,
    sequences_of,
    setting,
    slices_of,
    walks_of,
)
from test_reference import CASES, in_our_words

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

DEVICE = "cuda"
# Look-backs have tests of their own.
ON_DEVICE = [(name, options) for name, options in RUNNING if name not in LOOKING_BACK]
TYPES = [torch.float32, torch.bfloat16, torch.float16]


@pytest.fixture(params=TYPES, ids=str)
def dtype(request) -> torch.dtype:
    return request.param


def check_on_device(name, dtype, **settings):
    arguments, state = example(name, **settings)
    check(name, arguments, state, dtype, DEVICE)


@pytest.mark.parametrize(("name", "options"), ON_DEVICE)
@pytest.mark.parametrize("tokens", [0, 1, 64, 65, 130])
def test_lengths(name, options, tokens):
    check_on_device(name, torch.float32, tokens=tokens, **options)


@pytest.mark.parametrize("name", dict(ON_DEVICE))
def test_types(name, dtype):
    check_on_device(name, dtype, tokens=200, **(FIRST[name] | WIDE.get(name, {})))


@pytest.mark.parametrize("width, value_width", [(16, 16), (64, 64), (128, 128), (128, 64), (64, 128), (96, 32)])
@pytest.mark.parametrize("name", ["linear_attn", "simple_gla", "gla", "hgrn2", "rwkv6", "ssd", "delta_rule"])
def test_widths(name, dtype, width, value_width):
    check_on_device(name, dtype, tokens=150, width=width, value_width=value_width)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", [name for name in WITH_DECAY if name not in LOOKING_BACK])
def test_regimes_of_decay(name, regime):
    options = next(options for other, options in CASES if other == name)
    check_on_device(name, torch.float32, tokens=100, regime=regime, **(options | WIDE.get(name, {})))


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("name", ["gla", "rwkv6"])
def test_regimes_of_decay_by_halves(name, width, regime):
    """Chunks of 32 tokens and more form pairs out of range from products."""
    check_on_device(name, torch.bfloat16, tokens=100, width=width, value_width=width, regime=regime)


@pytest.mark.parametrize("name", ["gla", "simple_gla", "linear_attn", "delta_rule", "gsa", "ssd", "lawcat"])
@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (6, 3), (4, 4), (4, 1)])
def test_grouped_heads(name, heads, key_heads):
    check_on_device(name, torch.float32, tokens=70, heads=heads, key_heads=key_heads)


def inputs(tokens=90, dtype=torch.float32, width=64):
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, tokens, 2, size, generator=generator) for size in (width, width, 32, width))
    return [x.to(DEVICE, dtype).requires_grad_() for x in (q, k / width**0.5, v, -g.abs() / 8)]


def gradients_of_gla(rows, **keywords):
    return torch.autograd.grad(stretto.ops.gla(*rows, **keywords)[0].square().sum(), rows)


def test_packed_sequences_are_apart():
    rows = inputs()
    offsets = torch.tensor([0, 0, 17, 17, 81, 90], device=DEVICE)
    output, state = stretto.ops.gla(*rows, output_final_state=True, cu_seqlens=offsets)
    d_output, d_state = torch.randn_like(output), torch.randn_like(state["S"])
    packed = torch.autograd.grad([output, state["S"]], rows, [d_output, d_state])
    for index, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        own_rows = [x[:, start:end].detach().clone().requires_grad_() for x in rows]
        alone, own = stretto.ops.gla(*own_rows, output_final_state=True)
        cotangents = [d_output[:, start:end], d_state[index : index + 1]]
        expected = torch.autograd.grad([alone, own["S"]], own_rows, cotangents)
        for found, x in zip(packed, expected, strict=True):
            assert torch.equal(found[:, start:end], x)


def test_gradients_are_the_same_bits():
    rows = inputs(tokens=300, dtype=torch.bfloat16)
    first = gradients_of_gla(rows)
    for _ in range(5):
        assert all(torch.equal(x, y) for x, y in zip(first, gradients_of_gla(rows), strict=True))


def test_a_cotangent_that_is_not_aligned():
    rows = inputs()
    output, _ = stretto.ops.gla(*rows)
    cotangent = torch.randn(output.numel() + 1, device=DEVICE)[1:].view(output.shape)
    found = torch.autograd.grad(output, rows, cotangent, retain_graph=True)
    expected = torch.autograd.grad(output, rows, cotangent.clone())
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def test_the_current_stream_is_used():
    rows = inputs(tokens=300)
    expected = gradients_of_gla(rows)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        late = [torch.zeros_like(x) for x in rows]
        torch.cuda._sleep(20_000_000)  # a kernel on another stream would read the zeros
        for target, x in zip(late, rows, strict=True):
            target.copy_(x.detach())
        found = gradients_of_gla([x.requires_grad_() for x in late])
    stream.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(found, expected, strict=True))


def check_capture(rows, chunks=None):
    """A captured gradient follows its inputs; `chunks` is how many a segment has, where that is not chosen."""
    with segments_of(chunks) if chunks else contextlib.nullcontext():
        gradients_of_gla(rows)  # compiled and loaded before the capture
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            found = gradients_of_gla(rows)
    with torch.no_grad():
        rows[0].mul_(2)
    graph.replay()
    torch.cuda.synchronize()
    assert all(torch.equal(x, y) for x, y in zip(found, gradients_of_gla(rows), strict=True))


def test_cuda_graph():
    check_capture(inputs())


def test_the_backward_operator_is_checked_by_pytorch():
    rows = inputs(tokens=20)
    torch.library.opcheck(torch.ops.stretto.gla.default, tuple(rows))
    compiled = torch.compile(lambda *rows: stretto.ops.gla(*rows)[0].square().sum(), fullgraph=True)
    found = torch.autograd.grad(compiled(*rows), rows)
    for x, y in zip(found, gradients_of_gla(rows), strict=True):
        torch.testing.assert_close(x, y)


@pytest.mark.parametrize(("name", "options"), ON_DEVICE)
def test_segments_change_nothing(name, options):
    check_segments(name, chunks=2, tokens=330, dtype=torch.float32, device=DEVICE, **options)


@pytest.mark.parametrize("name", ["gla", "linear_attn", "lawcat", "gsa", "rwkv6", "delta_rule"])
def test_segments_of_packed_sequences(name, dtype):
    """With as many walks back in both, which memory would decide."""
    lengths = [0, 1, 70, 128, 300, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    for chunks in (1, 3):
        with walks_of(2):
            check_segments(name, chunks, offsets[-1], offsets, dtype, DEVICE, **FIRST[name])


@pytest.mark.parametrize(("name", "options"), ON_DEVICE)
def test_sequences_at_a_time_change_nothing(name, options):
    check_division(name, sequences_of(2), tokens=70, batch=3, dtype=torch.float32, device=DEVICE, **options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("groups", [2, 3, 8])
@pytest.mark.parametrize("name", ["lawcat", "supra"])
def test_groups_of_sequences_and_heads(name, groups, dtype):
    """Of two sequences of four heads, two of which share a key: with features that are found before all else."""
    with setting(torch.ops.stretto._set_groups, groups):
        check_on_device(name, dtype, tokens=130, heads=4, key_heads=2, width=32, value_width=64, **FIRST[name])


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "rwkv6", "delta_rule"])
def test_long_segments_change_nothing(name, dtype):
    check_division(name, long_segments_of(2, chunks=1), tokens=330, dtype=dtype, device=DEVICE, **FIRST[name])
    lengths = [0, 1, 70, 128, 420, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    check_division(name, long_segments_of(3, chunks=1), offsets[-1], offsets, dtype, DEVICE, **FIRST[name])


@pytest.mark.parametrize("name", LONG)
def test_gradients_of_long_sequences(name):
    check_long(name, DEVICE)


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("name", dict(ON_DEVICE))
def test_checkpoints_take_no_more_than_two_inputs(name, width):
    sizes = {"width": 16 if name == "based" else width, "value_width": width}
    for tokens in (8192, 32768):
        found, size = explanation(name, tokens, torch.bfloat16, DEVICE, **sizes)
        assert bytes_taken(found) <= most_bytes(found, size, DEVICE), (tokens, found)


@pytest.mark.parametrize(("batch", "heads", "width"), [(1, 32, 128), (4, 8, 128), (1, 32, 64)])
@pytest.mark.parametrize("name", [name for name in dict(ON_DEVICE) if name != "based"])
def test_memory(name, batch, heads, width):
    """What PyTorch's allocator lends a gradient beside what it leaves, that of the initial state and of parameters, in
    fp32 and of each sequence, and rows that are saved."""
    sizes = {"heads": heads, "key_heads": heads, "width": width, "value_width": width}
    arguments, _ = example(name, batch=batch, tokens=1, **FIRST[name] | sizes)
    arguments = in_our_words(arguments)
    tensors = {}
    for key, x in arguments.items():
        if isinstance(x, torch.Tensor):
            is_row = key not in FORMULAS[name].parameters
            x = x.expand(batch, 4096, *x.shape[2:]) if is_row else x
            tensors[key] = x.to(DEVICE, torch.bfloat16).contiguous().requires_grad_()
    variant = getattr(stretto.ops, name).variant
    output, states = variant(**arguments | tensors, output_final_state=True)
    output = output if isinstance(output, torch.Tensor) else output[0]
    cotangent = torch.randn_like(output)

    def gradients():
        return torch.autograd.grad(output, tensors.values(), cotangent, retain_graph=True)

    gradients()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    left = sum(x.nbytes for x in gradients())
    torch.cuda.synchronize()
    taken = torch.cuda.max_memory_allocated() - before - left
    found = variant.explain(**arguments | tensors, backward=True)
    rows = [kept["bytes"] for kept in found["saved"] if kept["what"].startswith(("a row", "the inverse"))]
    saved = sum(rows) + found.get("feature_bytes", 0)
    size = max(x.nbytes for x in tensors.values())
    sums = 4 * sum(batch * x.numel() for key, x in tensors.items() if key in FORMULAS[name].parameters)
    sums += 4 * sum(x.numel() for x in states.values())
    assert taken <= most_bytes(found, size, DEVICE) + saved + sums, (taken / size, saved / size, sums / size)


@pytest.mark.parametrize(("slices", "dtype"), [(2, torch.float32), (4, torch.bfloat16)])
@pytest.mark.parametrize("name", dict(ON_DEVICE))
def test_slices(name, slices, dtype):
    check_slices(name, slices, dtype, DEVICE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", dict(ON_DEVICE))
def test_walks(name, dtype):
    # A key has a feature for each pair of its channels. What finds features on a GPU has walks of its own.
    sizes = {"width": 16 if name == "based" else 32, "value_width": 32}
    check_walks(name, dtype, DEVICE, walks_back=WALKS | {"lawcat": 2, "supra": 2}, **sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", WITH_WALKS_OF_STATES)
def test_slices_of_walks(name, dtype):
    check_walk_slices(name, dtype, DEVICE, width=32)


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "delta_rule"])
def test_segments_of_two_walks(name):
    lengths = [0, 1, 70, 128, 300, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    with walks_of(2):
        check_segments(name, 2, offsets[-1], offsets, torch.float32, DEVICE, **FIRST[name])


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "rwkv6", "delta_rule"])
def test_segments_of_slices(name):
    with slices_of(2):
        check_segments(
            name, 1, tokens=330, dtype=torch.float32, device=DEVICE, **FIRST[name] | {"width": 16, "value_width": 64}
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in dict(ON_DEVICE) if name != "based"])
def test_states_that_are_divided_to_fit(name, dtype):
    """Among slices or, of SUPRA, GSA and ABC, into panels, parameters too."""
    sizes = {"width": 256, "value_width": 256} | ({"slots": 256} if name in ("gsa", "abc") else {})
    check_on_device(name, dtype, tokens=70, **FIRST[name] | sizes)


@pytest.mark.parametrize("value_width", [128, 256])
def test_taylor_features_are_divided_to_fit(value_width):
    check_on_device("based", torch.bfloat16, tokens=70, width=16, value_width=value_width)


def test_cuda_graph_of_segments():
    check_capture(inputs(tokens=300), chunks=1)


@pytest.mark.parametrize("wanted", [[2], [0], [3], [1, 2]], ids=["v", "q", "g", "k and v"])
def test_some_gradients_are_those_of_the_full_gradient(wanted):
    rows = inputs(tokens=200)
    output = stretto.ops.gla(*rows)[0]
    full = torch.autograd.grad(output.square().sum(), rows, retain_graph=True)
    found = torch.autograd.grad(output.square().sum(), [rows[index] for index in wanted])
    for index, x in zip(wanted, found, strict=True):
        assert (x - full[index]).norm() <= 1e-6 * full[index].norm()


FIRST_CALLS = """
import os, pathlib, stretto, torch

def count():
    return sum("_backward" in path.name for path in pathlib.Path(os.environ["STRETTO_DUMP"]).glob("*.ptx"))

q, k, v = (torch.randn(1, 64, 2, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
with torch.no_grad():
    stretto.ops.linear_attn(q, k, v)
counts = [count()]
output, _ = stretto.ops.linear_attn(q, k, v)
counts.append(count())
output.sum().backward()
counts.append(count())
print(*counts)
"""


def test_the_first_call_that_is_recorded_compiles_its_gradient(tmp_path):
    environment = os.environ | {"STRETTO_DUMP": str(tmp_path), "STRETTO_CACHE_DIR": ""}
    command = [sys.executable, "-c", FIRST_CALLS]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=300)
    none, recorded, after = map(int, run.stdout.split())
    assert none == 0 and recorded > 0 and after == recorded
