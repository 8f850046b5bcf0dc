"""Operators that look back at tokens, on the CPU: sliding windows, LoLCATs and the relation divergence, against
independent formulas in fp64.
"""

import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import pytest
import stretto
import torch
from formulas import relation_kl, windows
from operator_cases import BOUNDS, Shape, error, offsets, qkv, rows

pytestmark = pytest.mark.usefixtures("no_gradients")

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)


def maps(s: Shape, g: torch.Generator, feature: str, bias: int) -> dict[str, torch.Tensor]:
    width = s.K if feature == "t2r" else s.K // 2
    made = {name: rows(g, s.H, s.K, width) / math.sqrt(s.K) for name in ("w_q", "w_k")}
    if bias:
        made |= {name: rows(g, s.H, bias if bias == 1 else width) / 4 for name in ("b_q", "b_k")}
    return {**made, "factor": rows(g, s.H)}


@dataclass(frozen=True)
class Case:
    operator: str
    options: Mapping[str, object]
    # Those of the formula, where they differ.
    formula_options: Mapping[str, object] = field(default_factory=dict)
    make: Callable[[Shape, torch.Generator], dict[str, torch.Tensor]] = lambda shape, generator: {}

    def inputs(self, shape: Shape, dtype: torch.dtype = torch.float32, seed: int = 0) -> dict[str, torch.Tensor]:
        generator = torch.Generator().manual_seed(seed)
        made = {**qkv(shape, generator), **self.make(shape, generator)}
        return {name: x.to(dtype) for name, x in made.items()}

    def __call__(self, inputs, **keywords) -> torch.Tensor:
        return getattr(stretto.ops, self.operator)(**inputs, **self.options, **keywords)[0]

    def formula(self, inputs) -> torch.Tensor:
        options = {name: value for name, value in self.options.items() if name != "affine"}
        return getattr(windows, self.operator)(**inputs, **options, **self.formula_options)[0]

    def check(self, inputs) -> None:
        o = self(inputs)
        found = error(o, self.formula(inputs))
        assert found <= BOUNDS[o.dtype][0], f"the output's error is {found:.2e}"


def lolcats(feature="hedgehog", bias=0, formula=None, **options) -> Case:
    return Case(
        "lolcats",
        {"feature": feature, **options},
        formula or {},
        lambda shape, generator: maps(shape, generator, feature, bias),
    )


CASES = {
    "swa of one token": Case("swa", {"window": 1}),
    "swa of few tokens": Case("swa", {"window": 9}),
    "swa of a chunk": Case("swa", {"window": 64}),
    "swa of more than a chunk": Case("swa", {"window": 100}),
    "swa of everything": Case("swa", {"window": 100_000}),
    "lolcats": lolcats(),
    "lolcats of few tokens": lolcats(window=5),
    "lolcats of its own block": lolcats(window=16, prev_blocks=0),
    "lolcats sliding": lolcats(mode="sliding"),
    "lolcats sliding over few tokens": lolcats(mode="sliding", window=7, beta=0.5),
    "lolcats over one token": lolcats(mode="sliding", window=1),
    "lolcats over everything": lolcats(window=100_000),
    "lolcats affine": lolcats(window=20, affine=True, formula={"beta": "affine"}),
    "lolcats t2r": lolcats("t2r", window=20),
    "lolcats t2r with biases": lolcats("t2r", bias=32, window=20),
    "lolcats t2r with one bias": lolcats("t2r", bias=1, window=20, mode="sliding"),
    "lolcats with a constant maximum": lolcats(window=20, max_gradient=False),
}


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


# One of each kind, where every combination is a kernel of its own.
SOME = pytest.mark.parametrize(
    "name", ["swa of more than a chunk", "lolcats", "lolcats sliding over few tokens", "lolcats t2r with one bias"]
)


@SOME
@DTYPES
def test_types(name, dtype):
    CASES[name].check(CASES[name].inputs(Shape(T=150), dtype))


@pytest.mark.parametrize("T", [0, 1, 63, 64, 65, 127, 500])
def test_lengths(case, T):
    case.check(case.inputs(Shape(B=1, T=T)))


@SOME
@pytest.mark.parametrize(("K", "V", "H", "G"), [(64, 16, 4, 4), (128, 40, 4, 1), (24, 256, 2, 2)])
def test_widths_and_heads(name, K, V, H, G):
    case = CASES[name]
    case.check(case.inputs(Shape(T=140, K=K, V=V, H=H, G=G)))


@pytest.mark.parametrize("name", ["swa of more than a chunk", "lolcats", "lolcats sliding over few tokens"])
def test_interpreter(name):
    case = CASES[name]
    inputs = case.inputs(Shape(B=1, T=70, K=8, V=8))
    variant = getattr(stretto.ops, case.operator).variant
    assert error(case(inputs), variant.reference(**inputs, **case.options)) < 5e-6


def test_packed_sequences(case):
    lengths = [0, 17, 1, 130, 64, 0]
    inputs = case.inputs(Shape(B=1, T=sum(lengths)))
    o = case(inputs, cu_seqlens=offsets(lengths))
    starts = offsets(lengths).tolist()
    for first, last in itertools.pairwise(starts):
        part = {name: x[:, first:last] if x.dim() == 4 and x.shape[0] == 1 else x for name, x in inputs.items()}
        assert torch.equal(o[:, first:last], case(part))


def test_strides(case):
    inputs = case.inputs(Shape(T=140))
    expected = case(inputs)
    spread = {name: x.transpose(1, 2).contiguous().transpose(1, 2) if x.dim() == 4 else x for name, x in inputs.items()}
    assert torch.equal(case(spread), expected)


def test_results_are_the_same_bits(case):
    inputs = case.inputs(Shape(T=300))
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(4)
        first = case(inputs)
        torch.set_num_threads(1)
        assert torch.equal(first, case(inputs))
    finally:
        torch.set_num_threads(threads)


def test_a_nan_reaches_no_earlier_chunk_and_no_other_head(case):
    inputs = case.inputs(Shape(B=1, T=200))
    clean = case(inputs)
    inputs["k"][0, 130, 0, 3] = math.nan
    o = case(inputs)
    assert torch.equal(o[:, :128], clean[:, :128])
    assert torch.equal(o[:, :, 2:], clean[:, :, 2:])
    assert o[0, 130:, :2].isnan().any()


def test_large_scores():
    """A softmax that is all but a choice, of scores up to a thousand."""
    for name in ("swa of more than a chunk", "lolcats"):
        inputs = CASES[name].inputs(Shape(T=150))
        inputs["q"] *= 100
        CASES[name].check(inputs)


def test_long_sequences():
    """The end of a long sequence is that of its last tokens, where nothing older is seen."""
    case = CASES["swa of a chunk"]
    inputs = case.inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16))
    tail = {name: x[:, -256:] for name, x in inputs.items()}
    assert error(case(inputs)[:, -128:], case.formula(tail)[:, -128:]) < 5e-6


@pytest.mark.parametrize("name", ["lolcats", "lolcats sliding"])
def test_a_state_over_a_long_sequence(name):
    case = CASES[name]
    inputs = case.inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16))
    exact = {name: x.double() for name, x in inputs.items()}
    assert error(case(inputs), case(exact)) < 5e-6


# ---------------------------------------------------------------------------------------------------------------------
# Identities
# ---------------------------------------------------------------------------------------------------------------------


def test_a_window_of_all_tokens_is_causal_softmax_attention():
    inputs = CASES["swa of everything"].inputs(Shape(T=300, G=4))
    o, _ = stretto.ops.swa(**inputs, window=300)
    q, k, v = (x.double().transpose(1, 2) for x in inputs.values())
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
    assert error(o, expected) < 5e-6


@pytest.mark.parametrize("mode", ["sliding", "terraced"])
def test_lolcats_without_its_window_is_linear_attention(mode):
    window, case = 20, CASES["lolcats"]
    inputs = case.inputs(Shape(T=150))
    inputs["factor"] = torch.full((4,), -200.0)  # gamma is 0
    o, _ = stretto.ops.lolcats(**inputs, window=window, mode=mode)

    def features(x, w):
        y = torch.einsum("bthd,hdf->bthf", x.double(), w.double())
        return torch.cat([y.softmax(-1), (-y).softmax(-1)], -1).clamp(min=1e-12)

    q = features(inputs["q"], inputs["w_q"])
    k = features(inputs["k"].repeat_interleave(2, 2), inputs["w_k"])
    v = inputs["v"].double().repeat_interleave(2, 2)
    # The keys outside of the window: all but the last, or those before the block before the token's own.
    t = torch.arange(150)
    first = t - window + 1 if mode == "sliding" else (t // window - 1) * window
    linear = torch.einsum("bihf,bjhf->bhij", q, k) * (t[None] < first[:, None])
    sums = torch.einsum("bhij,bjhv->bihv", linear, v)
    expected = sums / linear.sum(-1).transpose(1, 2)[..., None]
    some = first > 0
    assert error(o[:, some], expected[:, some]) < 5e-6


# ---------------------------------------------------------------------------------------------------------------------
# Relations
# ---------------------------------------------------------------------------------------------------------------------

RELATIONS = {
    "self": {},
    "self, not causal": {"causal": False},
    "cross, grouped heads": {"keys": True},
    "cross, masked, not causal": {"keys": True, "mask": True, "causal": False},
    "masked": {"mask": True},
    "scaled": {"scale_s": 1.0, "scale_t": 0.25, "denominator_heads": 8},
}


def relation(T=130, keys=False, mask=False, dtype=torch.float32, **options):
    g = torch.Generator().manual_seed(3)
    made = {"q_s": rows(g, 2, T, 4, 32), "q_t": rows(g, 2, T, 4, 48)}
    if keys:
        made |= {"k_s": rows(g, 2, T, 2, 32), "k_t": rows(g, 2, T, 2, 48)}
    made = {name: x.to(dtype) for name, x in made.items()}
    if mask:
        made["mask"] = torch.rand(2, T, generator=g) > 0.3
    return {**made, **options}


@pytest.mark.parametrize("name", RELATIONS)
@DTYPES
def test_relation(name, dtype):
    arguments = relation(dtype=dtype, **RELATIONS[name])
    loss = stretto.ops.relation_kl(**arguments)
    assert loss.dtype == torch.promote_types(dtype, torch.float32)
    assert error(loss, relation_kl(**arguments)) < BOUNDS[dtype][0]


@pytest.mark.parametrize("T", [0, 1, 64, 200])
def test_relation_lengths(T):
    for options in RELATIONS.values():
        arguments = relation(T=T, **options)
        assert error(stretto.ops.relation_kl(**arguments), relation_kl(**arguments)) < 5e-6


def test_relation_with_itself_is_zero():
    x = relation()["q_s"] * 4
    assert stretto.ops.relation_kl(x, x).abs() < 1e-6


def test_relation_of_large_scores():
    """Scores that have several hundred in common."""
    arguments = relation()
    for name in ("q_s", "q_t"):
        arguments[name][..., 0] = 50.0
    assert error(stretto.ops.relation_kl(**arguments), relation_kl(**arguments)) < 1e-3


def test_relation_of_masks():
    arguments = relation(mask=True)
    expected = stretto.ops.relation_kl(**arguments)
    assert torch.equal(stretto.ops.relation_kl(**{**arguments, "mask": arguments["mask"].long() * 7}), expected)
    none = {**arguments, "mask": torch.zeros_like(arguments["mask"])}
    assert stretto.ops.relation_kl(**none) == 0
    with pytest.raises(stretto.Error, match=r"relation_kl: \[R12\] 'mask' has shape \[2, 129\].*\[2, 130\]"):
        stretto.ops.relation_kl(**{**arguments, "mask": arguments["mask"][:, 1:]})
    with pytest.raises(stretto.Error, match=r"relation_kl: \[R12\] 'mask' has entries of type torch.float32"):
        stretto.ops.relation_kl(**{**arguments, "mask": arguments["mask"].float()})


def test_relation_of_masked_tokens_that_are_infinite():
    """Left out by selection: what a masked token holds does not matter."""
    arguments = relation(mask=True)
    expected = stretto.ops.relation_kl(**arguments)
    arguments["q_s"] = torch.where(arguments["mask"][..., None, None], arguments["q_s"], math.inf)
    assert torch.equal(stretto.ops.relation_kl(**arguments), expected)


# ---------------------------------------------------------------------------------------------------------------------
# Running
# ---------------------------------------------------------------------------------------------------------------------


def test_chunks_without_a_state_are_items_of_their_own():
    inputs = CASES["swa of a chunk"].inputs(Shape(B=1, T=1000, H=2, G=1))
    plan = stretto.ops.swa.variant.explain(**inputs, window=64)
    assert (plan["schedule"], plan["chunk"], plan["items"]) == ("parallel", 64, 2 * 16)
    inputs = CASES["lolcats"].inputs(Shape(B=1, T=1000))
    assert stretto.ops.lolcats.variant.explain(**inputs)["schedule"] == "serial"


# ---------------------------------------------------------------------------------------------------------------------
# States
# ---------------------------------------------------------------------------------------------------------------------

BOUNDED = [name for name in CASES if "everything" not in name]


def run(case, inputs, **keywords):
    return getattr(stretto.ops, case.operator)(**inputs, **case.options, output_final_state=True, **keywords)


def tokens_of(inputs, first, last):
    return {name: x[:, first:last] if name in ("q", "k", "v") else x for name, x in inputs.items()}


def check_continuing(case, inputs):
    """150 tokens, cut in places about which chunks and windows may stumble, on any device."""
    whole, final = run(case, inputs)
    for cuts in ([0], [1], [20], [63], [64, 65], [128], [149], [150], [3, 40, 41, 100]):
        outputs, state = [], None
        for first, last in itertools.pairwise([0, *cuts, 150]):
            o, state = run(case, tokens_of(inputs, first, last), initial_state=state)
            outputs.append(o)
        assert error(torch.cat(outputs, 1), whole) < 2e-6
        assert tuple(state) == tuple(final)
        for entry in final:
            assert error(state[entry], final[entry]) < 4e-6


@pytest.mark.parametrize("name", BOUNDED)
def test_continuing_equals_running_at_once(name):
    check_continuing(CASES[name], CASES[name].inputs(Shape(T=150)))


@pytest.mark.parametrize("name", BOUNDED)
def test_continuing_packed_sequences(name):
    case = CASES[name]
    lengths, cuts = [40, 0, 133, 17, 90], [0, 0, 70, 5, 90]
    inputs = case.inputs(Shape(B=1, T=sum(lengths)))
    whole, final = run(case, inputs, cu_seqlens=offsets(lengths))

    def part(x, first):
        pieces = [p[:, :cut] if first else p[:, cut:] for p, cut in zip(x.split(lengths, 1), cuts, strict=True)]
        return torch.cat(pieces, 1)

    rest = [length - cut for length, cut in zip(lengths, cuts, strict=True)]
    first, second = ({n: part(x, f) if n in ("q", "k", "v") else x for n, x in inputs.items()} for f in (True, False))
    o1, state = run(case, first, cu_seqlens=offsets(cuts))
    o2, state = run(case, second, cu_seqlens=offsets(rest), initial_state=state)
    pieces = zip(o1.split(cuts, 1), o2.split(rest, 1), strict=True)
    assert error(torch.cat([x for pair in pieces for x in pair], 1), whole) < 2e-6
    for entry in final:
        assert error(state[entry], final[entry]) < 4e-6


@DTYPES
def test_what_a_window_holds(dtype):
    inputs = CASES["swa of few tokens"].inputs(Shape(T=20), dtype)
    _, state = run(CASES["swa of few tokens"], inputs)
    assert {name: tuple(x.shape) for name, x in state.items()} == {
        "position": (2,),
        "k_window": (2, 9, 2, 32),
        "v_window": (2, 9, 2, 32),
    }
    # The row of a token is its position modulo the rows.
    assert torch.equal(state["k_window"], inputs["k"][:, [18, 19, *range(11, 18)]])
    _, state = run(CASES["swa of few tokens"], tokens_of(inputs, 0, 4))
    assert torch.equal(state["v_window"][:, :4], inputs["v"][:, :4])
    assert not state["v_window"][:, 4:].any()


def test_the_state_of_lolcats_is_that_of_its_formula():
    case = CASES["lolcats of few tokens"]
    inputs = case.inputs(Shape(T=33))
    _, state = run(case, inputs)
    _, (S, keys, _, position) = windows.lolcats(**inputs, **case.options)
    assert error(state["S"], S) < 1e-5
    held = torch.arange(33 - keys.shape[1], 33) % state["k_window"].shape[1]
    assert torch.equal(state["k_window"][:, held], keys.float())
    assert torch.equal(state["position"], position)


# ---------------------------------------------------------------------------------------------------------------------
# Steps
# ---------------------------------------------------------------------------------------------------------------------


def step(case, inputs, token, state, **keywords):
    rows = {name: x[:, token] for name, x in inputs.items() if name in ("q", "k", "v")}
    return getattr(stretto.ops, case.operator).step(**{**inputs, **rows}, **case.options, state=state, **keywords)


@DTYPES
@pytest.mark.parametrize("name", BOUNDED)
def test_steps_equal_running_at_once(name, dtype):
    """From no token on, and from the middle of a window."""
    case = CASES[name]
    inputs = case.inputs(Shape(T=75), dtype)
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


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats of few tokens", "lolcats sliding"])
def test_a_pool_of_windows(name):
    """Sequences have rows of their own, at positions of their own; -1 is left out, rows of nobody stay as they are."""
    case = CASES[name]
    inputs = case.inputs(Shape(B=4, T=30))
    slots = torch.tensor([6, -1, 0, 3])
    states = [run(case, tokens_of(inputs, 0, 5 * sequence))[1] for sequence in range(4)]
    pool = {name: torch.zeros(8, *entry.shape[1:], dtype=entry.dtype) for name, entry in states[0].items()}
    pool["position"] += 3
    for sequence, slot in enumerate(slots.tolist()):
        for entry in pool:
            if slot >= 0:
                pool[entry][slot] = states[sequence][entry][sequence]
    before = {name: entry.clone() for name, entry in pool.items()}
    o, _ = step(case, inputs, 25, pool, slots=slots)
    for sequence, slot in enumerate(slots.tolist()):
        if slot < 0:
            assert not o[sequence].any()
            continue
        expected, _ = step(case, inputs, 25, states[sequence])
        assert torch.equal(o[sequence], expected[sequence])
        for entry in pool:
            assert torch.equal(pool[entry][slot], states[sequence][entry][sequence])
    others = [row for row in range(8) if row not in slots]
    for entry in pool:
        assert torch.equal(pool[entry][others], before[entry][others])


def test_what_looks_back_without_a_bound_is_not_continued():
    from stretto import lang as sl

    @stretto.variant
    def full_attention(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], scale=sl.Option("K**-0.5")):
        first = sl.position() * 0.0
        _m, l, acc = sl.lookback(first, lambda past: (sl.dot(q * scale, past(k)), past(v)), fold="softmax")
        return acc / l

    inputs = CASES["swa of everything"].inputs(Shape(T=100, G=4))
    assert error(full_attention(**inputs), CASES["swa of everything"].formula(inputs)) < 5e-6
    with pytest.raises(stretto.Error, match=r"\[R14\] full_attention.* looks back at earlier tokens without a bound"):
        full_attention(**inputs, output_final_state=True)


def test_rows_that_are_made_of_other_tokens_are_refused_by_name():
    """They have a meaning, which the reference knows; a chunk would need them of all tokens that it looks back to."""
    from stretto import lang as sl

    @stretto.variant
    def over_convolved(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], taps: sl.Param["H", "K", 3]):
        mixed = sl.conv(k, taps)
        _m, l, acc = sl.lookback(sl.position() - 7.0, lambda past: (sl.dot(q, past(mixed)), past(v)), fold="softmax")
        return acc / l

    @stretto.variant
    def over_windows(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"]):
        for _ in range(2):
            body = lambda past, v=v: (sl.dot(q, past(k)), past(v))  # noqa: E731
            _m, l, acc = sl.lookback(sl.position() - 7.0, body, fold="softmax")
            v = acc / l
        return v

    q, k, v = (torch.randn(1, 20, 2, 8) for _ in range(3))
    for variant, taps, maker in ((over_convolved, [torch.randn(2, 8, 3)], "conv"), (over_windows, [], "lookback")):
        assert variant.reference(q, k, v, *taps).isfinite().all()
        for keywords in ({}, {"output_final_state": True}):
            with pytest.raises(
                stretto.Error, match=f"looks back to rows that are made of other tokens' by 'stretto.{maker}'"
            ):
                variant(q, k, v, *taps, **keywords)
