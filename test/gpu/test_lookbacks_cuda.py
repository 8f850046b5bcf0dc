"""Operators that look back, on a CUDA device: the cases of test/python/test_lookbacks.py, against independent
formulas.
"""

import itertools

import pytest
import stretto
import torch
from formulas import relation_kl
from lookbacks import computed_values
from operator_cases import BOUNDS, Shape, error, offsets
from test_lookbacks import BOUNDED, CASES, RELATIONS, check_continuing, relation, run, step, tokens_of
from test_operators import spread

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU"),
    pytest.mark.usefixtures("no_gradients"),
]

DEVICE = "cuda"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
SOME = pytest.mark.parametrize(
    "name",
    [
        "swa of few tokens",
        "swa of everything",
        "lolcats",
        "lolcats sliding over few tokens",
        "lolcats t2r with one bias",
    ],
)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def on_device(inputs):
    return {name: x.to(DEVICE) for name, x in inputs.items()}


def made(case, shape, dtype=torch.float32):
    return on_device(case.inputs(shape, dtype))


@DTYPES
def test_types(case, dtype):
    case.check(made(case, Shape(T=150), dtype))


@pytest.mark.parametrize("T", [0, 1, 15, 16, 17, 63, 64, 65, 127, 128, 500, 1000])
def test_lengths(case, T):
    case.check(made(case, Shape(B=1, T=T)))


@SOME
@DTYPES
@pytest.mark.parametrize(
    ("K", "V", "H", "G"),
    [(16, 16, 2, 1), (32, 64, 4, 4), (64, 16, 4, 4), (128, 40, 4, 1), (24, 256, 2, 2), (128, 128, 8, 2), (96, 7, 3, 3)],
)
def test_widths_and_heads(name, dtype, K, V, H, G):
    inputs = made(CASES[name], Shape(T=140, K=K, V=V, H=H, G=G), dtype)
    CASES[name].check(inputs)


@pytest.mark.parametrize("name", ["swa of more than a chunk", "lolcats"])
@DTYPES
def test_the_widest_heads(name, dtype):
    case = CASES[name]
    case.check(made(case, Shape(T=140, K=256, V=256), dtype))


def test_packed_sequences(case):
    lengths = [0, 17, 1, 130, 64, 0]
    inputs = made(case, Shape(B=1, T=sum(lengths)))
    o = case(inputs, cu_seqlens=offsets(lengths, device=DEVICE))
    starts = offsets(lengths).tolist()
    for first, last in itertools.pairwise(starts):
        part = {name: x[:, first:last] if x.dim() == 4 and x.shape[0] == 1 else x for name, x in inputs.items()}
        assert torch.equal(o[:, first:last], case(part))


@pytest.mark.parametrize("values", [[0, 1 << 40], [-5, 65], [70, 3], [0, 100, 20, 65]])
@SOME
def test_bad_offsets_are_safe(name, values):
    inputs = made(CASES[name], Shape(B=1))
    CASES[name](inputs, cu_seqlens=torch.tensor(values, device=DEVICE))
    torch.cuda.synchronize()
    CASES[name].check(inputs)


@pytest.mark.parametrize("how", ["transposed", "gaps", "channels first", "expanded"])
@SOME
def test_strides(name, how):
    case = CASES[name]
    inputs = made(case, Shape(T=140))
    case.check({name: spread(x, how) if name in ("q", "k", "v") else x for name, x in inputs.items()})


def test_results_are_the_same_bits(case):
    inputs = made(case, Shape(T=300), torch.bfloat16)
    first = case(inputs)
    for _ in range(5):
        assert torch.equal(first, case(inputs))


def test_a_nan_reaches_no_earlier_chunk_and_no_other_head(case):
    inputs = made(case, Shape(B=1, T=200))
    clean = case(inputs)
    inputs["k"][0, 130, 0, 3] = float("nan")
    o = case(inputs)
    assert torch.equal(o[:, :128], clean[:, :128])
    assert torch.equal(o[:, :, 2:], clean[:, :, 2:])
    assert o[0, 130:, :2].isnan().any()


@pytest.mark.parametrize("name", ["swa of more than a chunk", "lolcats"])
def test_large_scores(name):
    inputs = made(CASES[name], Shape(T=150))
    inputs["q"] *= 100
    CASES[name].check(inputs)


@DTYPES
@pytest.mark.parametrize("name", ["swa of a chunk", "lolcats", "lolcats sliding"])
def test_long_sequences(name, dtype):
    """The end of a long sequence, as the CPU finds it in fp64."""
    case = CASES[name]
    inputs = case.inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16), dtype)
    exact = case({name: x.double() for name, x in inputs.items()})
    assert error(case(on_device(inputs)), exact) <= BOUNDS[dtype][0]


# ---------------------------------------------------------------------------------------------------------------------
# Relations
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", RELATIONS)
@DTYPES
def test_relation(name, dtype):
    arguments = relation(dtype=dtype, **RELATIONS[name])
    expected = relation_kl(**arguments)
    arguments = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
    loss = stretto.ops.relation_kl(**arguments)
    assert error(loss, expected) < BOUNDS[dtype][0]


@pytest.mark.parametrize("T", [0, 1, 64, 200])
def test_relation_lengths(T):
    for options in RELATIONS.values():
        arguments = relation(T=T, **options)
        expected = relation_kl(**arguments)
        arguments = {name: x.to(DEVICE) if isinstance(x, torch.Tensor) else x for name, x in arguments.items()}
        assert error(stretto.ops.relation_kl(**arguments), expected) < 5e-6


def test_relation_of_large_scores():
    arguments = on_device(relation())
    for name in ("q_s", "q_t"):
        arguments[name][..., 0] = 50.0
    assert error(stretto.ops.relation_kl(**arguments), relation_kl(**arguments)) < 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# States
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", BOUNDED)
def test_continuing_equals_running_at_once(name):
    check_continuing(CASES[name], made(CASES[name], Shape(T=150)))


@pytest.mark.parametrize("name", BOUNDED)
@DTYPES
def test_the_state_is_that_of_the_cpu(name, dtype):
    inputs = CASES[name].inputs(Shape(T=150), dtype)
    _, expected = run(CASES[name], inputs)
    _, state = run(CASES[name], on_device(inputs))
    for entry in expected:
        assert error(state[entry], expected[entry]) <= BOUNDS[dtype][1]


# ---------------------------------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("name", BOUNDED)
def test_steps_equal_running_at_once(name, dtype):
    """From no token on, and from the middle of a window."""
    case = CASES[name]
    inputs = made(case, Shape(T=75), dtype)
    expected = case.formula(inputs)
    for first in (0, 61):
        _, state = run(case, tokens_of(inputs, 0, first))
        last = min(first + 14, 75)
        o = torch.stack([step(case, inputs, token, state)[0] for token in range(first, last)], 1)
        assert o.dtype == dtype
        assert error(o, expected[:, first:last]) <= BOUNDS[dtype][0]
    _, final = run(case, inputs)
    for entry in final:
        assert error(state[entry], final[entry]) <= BOUNDS[dtype][1]


@pytest.mark.parametrize(("K", "V", "H", "G"), [(64, 64, 4, 1), (128, 128, 2, 2), (24, 256, 2, 1), (256, 256, 2, 1)])
@pytest.mark.parametrize("name", ["swa of more than a chunk", "lolcats", "lolcats sliding over few tokens"])
def test_steps_of_widths_and_heads(name, K, V, H, G):
    case = CASES[name]
    inputs = made(case, Shape(T=140, K=K, V=V, H=H, G=G), torch.bfloat16)
    _, state = run(case, tokens_of(inputs, 0, 139))
    assert error(step(case, inputs, 139, state)[0], case.formula(inputs)[:, 139]) <= BOUNDS[torch.bfloat16][0]


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats of few tokens", "lolcats sliding"])
def test_a_pool_of_windows(name):
    """Sequences have rows of their own, at positions of their own; -1 is left out, rows of nobody stay as they are."""
    case = CASES[name]
    inputs = made(case, Shape(B=4, T=30))
    slots = torch.tensor([6, -1, 0, 3], device=DEVICE)
    states = [run(case, tokens_of(inputs, 0, 5 * sequence))[1] for sequence in range(4)]
    pool = {name: torch.zeros_like(entry).repeat(2, *[1] * (entry.dim() - 1)) for name, entry in states[0].items()}
    pool["position"] += 3
    for sequence, slot in enumerate(slots.tolist()):
        for entry in pool:
            if slot >= 0:
                pool[entry][slot] = states[sequence][entry][sequence]
    before = {name: entry.clone() for name, entry in pool.items()}
    o, _ = step(case, inputs, 25, pool, slots=slots)
    for sequence, slot in enumerate(slots.tolist()):
        if slot < 0:
            continue
        expected, _ = step(case, inputs, 25, states[sequence])
        assert torch.equal(o[sequence], expected[sequence])
        for entry in pool:
            assert torch.equal(pool[entry][slot], states[sequence][entry][sequence])
    others = [row for row in range(8) if row not in slots.tolist()]
    for entry in pool:
        assert torch.equal(pool[entry][others], before[entry][others])


def test_cuda_graph_of_steps():
    """A replay decodes one token more, from the rows and the windows that are in place then."""
    case = CASES["swa of few tokens"]
    inputs = made(case, Shape(T=20))
    expected = case.formula(inputs)
    rows = {name: inputs[name][:, 0].clone() for name in ("q", "k", "v")}
    _, state = run(case, tokens_of(inputs, 0, 0))
    stretto.ops.swa.step(**rows, **case.options, state=state)  # compiled and loaded before the capture
    for name, entry in run(case, tokens_of(inputs, 0, 0))[1].items():
        state[name].copy_(entry)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o = stretto.ops.swa.step(**rows, **case.options, state=state)[0]
    for token in range(20):
        for name, row in rows.items():
            row.copy_(inputs[name][:, token])
        graph.replay()
        assert error(o, expected[:, token]) <= BOUNDS[torch.float32][0]


# ---------------------------------------------------------------------------------------------------------------------
# Declarations of one's own
# ---------------------------------------------------------------------------------------------------------------------


@DTYPES
@pytest.mark.parametrize("T", [1, 64, 150])
def test_values_that_are_computed(T, dtype):
    inputs = made(CASES["swa of everything"], Shape(T=T, G=4), dtype)
    expected = computed_values.reference(**{name: x.cpu() for name, x in inputs.items()})
    assert error(computed_values(**inputs), expected) <= BOUNDS[dtype][0]
