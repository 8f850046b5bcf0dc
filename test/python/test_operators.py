"""What operators compute on the CPU: every shipped operator that has a kernel, against the fp64 interpreter."""

import math

import pytest
import stretto
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_cases import (
    BOUNDS,
    CASES,
    Case,
    Shape,
    check,
    check_ordinary_inputs_in_bf16,
    check_that_a_nan_stays,
    error,
    gla,
    hgrn2,
    initial_state,
    offsets,
    simple_gla,
)

pytestmark = pytest.mark.usefixtures("no_gradients")

LENGTHS = (0, 1, 15, 16, 17, 63, 64, 65, 127)


@pytest.fixture(params=CASES)
def case(request) -> Case:
    return CASES[request.param]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_types(case, dtype):
    check(case, case.inputs(Shape(), dtype))


def test_ordinary_inputs_in_bf16(case):
    check_ordinary_inputs_in_bf16(case, case.inputs(Shape(T=1000, K=min(64, case.widest // 4), V=64), torch.bfloat16))


def test_lengths(case):
    for length in (*LENGTHS, 1000):
        check(case, case.inputs(Shape(B=1, T=length)))


@pytest.mark.parametrize(("K", "V"), [(256, 16), (40, 100)])
def test_widths(case, K, V):
    check(case, case.inputs(Shape(T=33, K=min(K, case.widest), V=V)))


def test_initial_state(case):
    inputs = case.inputs(Shape())
    check(case, inputs, initial_state=initial_state(case, inputs))
    empty = case.inputs(Shape(T=0))
    state = initial_state(case, inputs)
    _, final = case(empty, initial_state=state, output_final_state=True)
    for name in state:
        torch.testing.assert_close(final[name], state[name], rtol=0, atol=0)


def test_continuing_equals_running_at_once(case):
    inputs = case.inputs(Shape(T=75))
    rows = [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == 75]
    whole, final = case(inputs, output_final_state=True)
    for cut in (0, 1, 2, 31, 32, 33, 74, 75):
        first = {**inputs, **{name: inputs[name][:, :cut] for name in rows}}
        second = {**inputs, **{name: inputs[name][:, cut:] for name in rows}}
        o1, state = case(first, output_final_state=True)
        o2, state = case(second, initial_state=state, output_final_state=True)
        assert error(torch.cat([o1, o2], 1), whole) < 2e-6
        for name in final:
            assert error(state[name], final[name]) < 4e-6


def test_continuing_packed_sequences(case):
    """Each sequence is cut somewhere else, one before its first token and one behind its last."""
    lengths, cuts = [40, 0, 33, 17, 70], [0, 0, 33, 5, 31]
    inputs = case.inputs(Shape(B=1, T=sum(lengths)))
    rows = [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == sum(lengths)]
    whole, final = case(inputs, cu_seqlens=offsets(lengths), output_final_state=True)

    def part(name, first):
        sequences = inputs[name].split(lengths, 1)
        pieces = [x[:, :cut] if first else x[:, cut:] for x, cut in zip(sequences, cuts, strict=True)]
        return torch.cat(pieces, 1)

    first = {**inputs, **{name: part(name, True) for name in rows}}
    second = {**inputs, **{name: part(name, False) for name in rows}}
    rest = [length - cut for length, cut in zip(lengths, cuts, strict=True)]
    o1, state = case(first, cu_seqlens=offsets(cuts), output_final_state=True)
    o2, state = case(second, cu_seqlens=offsets(rest), initial_state=state, output_final_state=True)
    pieces = zip(o1.split(cuts, 1), o2.split(rest, 1), strict=True)
    assert error(torch.cat([x for pair in pieces for x in pair], 1), whole) < 2e-6
    for name in final:
        assert error(state[name], final[name]) < 4e-6


def test_a_state_of_other_strides(case):
    inputs = case.inputs(Shape())
    state = initial_state(case, inputs)
    spread_out = {name: spread(entry, "gaps") if entry.is_floating_point() else entry for name, entry in state.items()}
    o, final = case(inputs, initial_state=spread_out, output_final_state=True)
    expected, expected_final = case(inputs, initial_state=state, output_final_state=True)
    assert torch.equal(o, expected)
    assert all(torch.equal(final[name], expected_final[name]) for name in final)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64], ids=str)
def test_packed_sequences(case, dtype):
    lengths = [0, 17, 1, 0, 64, 33, 0]
    inputs = case.inputs(Shape(B=1, T=sum(lengths)))
    cu_seqlens = offsets(lengths, dtype)
    check(case, inputs, cu_seqlens=cu_seqlens)
    check(case, inputs, cu_seqlens=cu_seqlens, initial_state=initial_state(case, inputs, cu_seqlens=cu_seqlens))


def test_only_empty_sequences(case):
    inputs = case.inputs(Shape(B=1, T=0))
    check(case, inputs, cu_seqlens=offsets([0, 0, 0]))
    o, state = case(inputs, cu_seqlens=offsets([]), output_final_state=True)
    assert o.shape[:2] == (1, 0)
    assert all(entry.shape[0] == 0 for entry in state.values())


def test_empty_batch(case):
    inputs = case.inputs(Shape(B=0))
    o, state = case(inputs, output_final_state=True)
    assert o.shape[0] == 0
    assert all(entry.shape[0] == 0 for entry in state.values())


def spread(x: torch.Tensor, how: str) -> torch.Tensor:
    """The same numbers with other strides."""
    if how == "transposed":  # [B, H, T, D] in memory
        return x.transpose(1, 2).contiguous().transpose(1, 2)
    if how == "gaps":  # every second token, head and channel of a larger tensor
        larger = torch.full([2 * size for size in x.shape], math.nan, dtype=x.dtype, device=x.device)
        view = larger[tuple(slice(None, None, 2) for _ in x.shape)]
        view.copy_(x)
        return view
    if how == "channels first":
        return x.movedim(-1, 0).contiguous().movedim(0, -1)
    return x[:, :1].expand_as(x)  # one token for all, stride 0


@pytest.mark.parametrize("name", ["supra", "bla", "bla with a period between tokens"])
def test_a_state_from_far_on(name):
    """Tables are made for positions that no call before has met."""
    case = CASES[name]
    inputs = case.inputs(Shape(T=9))
    state = initial_state(case, inputs)
    for position in (5, 200_000, 31):
        state["position"][1] = position
        check(case, inputs, initial_state=state)


@pytest.mark.parametrize("how", ["transposed", "gaps", "channels first", "expanded"])
def test_strides(case, how):
    inputs = case.inputs(Shape())
    rows = {name: spread(x, how) for name, x in inputs.items() if x.dim() >= 3 and x.shape[:2] == (2, 65)}
    parameters = {name: spread(x, "gaps") for name, x in inputs.items() if name not in rows}
    check(case, {**inputs, **rows, **parameters})


def test_expanded_channels(case):
    inputs = case.inputs(Shape())
    # Values that are all the same have no variance to divide by, and a sum of a thousand equal products, which are all
    # rounded to the same side, is off by more than the bound.
    kept = {"supra": {"v"}, "based": {"q", "k"}}.get(case.operator, set())
    rows = {
        name: x[..., :1].expand_as(x)
        for name, x in inputs.items()
        if x.dim() == 4 and x.shape[:2] == (2, 65) and name not in kept
    }
    check(case, {**inputs, **rows})


def test_a_call_leaves_its_inputs_alone(case):
    inputs = case.inputs(Shape())
    before = {name: x.clone() for name, x in inputs.items()}
    case(inputs, output_final_state=True)
    for name, x in inputs.items():
        assert torch.equal(x, before[name])


def test_results_are_the_same_bits(case):
    inputs = case.inputs(Shape(T=300))
    first = case(inputs)[0]
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        assert torch.equal(first, case(inputs)[0])
    finally:
        torch.set_num_threads(threads)


widths = st.sampled_from([16, 24, 32, 40, 64, 96, 100, 128, 256])


@st.composite
def calls(draw):
    name = draw(st.sampled_from(sorted(CASES)))
    group = draw(st.sampled_from([1, 2, 4]))
    G = draw(st.sampled_from([1, 2]))
    lengths = draw(st.lists(st.sampled_from(LENGTHS), min_size=1, max_size=4))
    packed = draw(st.booleans())
    K, V = min(draw(widths), CASES[name].widest), draw(widths)
    shape = Shape(B=1 if packed else draw(st.integers(1, 2)), T=sum(lengths), H=G * group, G=G, K=K, V=V)
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16, torch.float16, torch.float64]))
    return name, shape, dtype, lengths if packed else None, draw(st.booleans()), draw(st.booleans())


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(calls())
def test_any_shape(call):
    name, shape, dtype, lengths, starts, transposed = call
    case = CASES[name]
    inputs = case.inputs(shape, dtype)
    if transposed:
        inputs = {name: spread(x, "transposed") if x.dim() == 4 else x for name, x in inputs.items()}
    keywords = {} if lengths is None else {"cu_seqlens": offsets(lengths, torch.int32)}
    if starts:
        keywords["initial_state"] = initial_state(case, inputs, **keywords)
    check(case, inputs, **keywords)


# ---------------------------------------------------------------------------------------------------------------------
# Gates at their extremes
# ---------------------------------------------------------------------------------------------------------------------


def hard_gates(kind: str, like: torch.Tensor) -> torch.Tensor:
    """Log decays of one kind, a little of it everywhere or a lot in places."""
    generator = torch.Generator().manual_seed(5)
    chance = torch.rand(like.shape, generator=generator)
    mild = like * 0.1
    strong = {"-50": -50.0, "-inf": -math.inf}.get(kind)
    if kind == "0":
        return torch.zeros_like(like)
    if kind == "one channel in ten":
        return torch.where(chance < 0.1, -50.0, mild)
    if kind == "near in places":  # few tokens are near enough for one product, and a chunk is not
        return torch.where(chance < 0.15, -14.0, mild)
    if kind == "mixed":
        return torch.where(chance < 0.05, -math.inf, torch.where(chance < 0.1, -50.0, mild))
    return torch.where(chance < 0.5, strong, mild)


@pytest.mark.parametrize("kind", ["-50", "-inf", "0", "one channel in ten", "near in places", "mixed"])
@pytest.mark.parametrize(
    ("name", "gate"), [("gla", "g"), ("simple_gla", "g"), ("rwkv6", "w"), ("gsa", "g"), ("gated_delta_rule", "g")]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_hard_gates(name, gate, kind, dtype):
    case = CASES[name]
    inputs = case.inputs(Shape(T=200, K=64, V=64), dtype)
    inputs[gate] = hard_gates(kind, inputs[gate])
    check(case, inputs)


def test_steps_of_zero_and_very_long_ones():
    inputs = CASES["ssd"].inputs(Shape(T=150))
    chance = torch.rand(inputs["dt"].shape, generator=torch.Generator().manual_seed(3))
    inputs["dt"] = torch.where(chance < 0.2, 0.0, torch.where(chance > 0.8, 100.0, inputs["dt"]))
    check(CASES["ssd"], inputs)


def test_every_gate_closed():
    inputs = CASES["gla"].inputs(Shape(T=70))
    inputs["g"] = torch.full_like(inputs["g"], -math.inf)
    check(CASES["gla"], inputs)


def test_scores_far_apart():
    # A slot is taken over by one token, and then hardly changes.
    inputs = CASES["abc"].inputs(Shape(T=150))
    chance = torch.rand(inputs["s"].shape, generator=torch.Generator().manual_seed(3))
    inputs["s"] = torch.where(chance < 0.1, 60.0, torch.where(chance > 0.9, -200.0, inputs["s"]))
    check(CASES["abc"], inputs)


def test_forget_gates_of_zero_and_one():
    inputs = CASES["hgrn2"].inputs(Shape(T=150))
    chance = torch.rand(inputs["f"].shape, generator=torch.Generator().manual_seed(3))
    inputs["f"] = torch.where(chance < 0.1, 0.0, torch.where(chance > 0.9, 1.0, inputs["f"]))
    check(CASES["hgrn2"], inputs)


@pytest.mark.parametrize("logit", [-math.inf, -800.0, 800.0, math.inf])
def test_gate_logits_at_their_extremes(logit):
    inputs = CASES["lawcat"].inputs(Shape(T=70))
    chance = torch.rand(inputs["z"].shape, generator=torch.Generator().manual_seed(3))
    inputs["z"] = torch.where(chance < 0.2, logit, inputs["z"])
    check(CASES["lawcat"], inputs)


@pytest.mark.parametrize("make", [gla, simple_gla, hgrn2], ids=lambda make: make.__name__)
@pytest.mark.parametrize("rate, varies", [(1e-4, True), (1e-5, False), (1e-6, False), (0.0, False)])
def test_decay_near_one_over_a_long_sequence(make, rate, varies):
    # What is lost of a constant factor is lost the same way at every chunk.
    case = CASES[make.__name__]
    inputs = case.inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16))
    decay = "f" if make is hgrn2 else "g"
    chance = torch.rand(inputs[decay].shape, generator=torch.Generator().manual_seed(2))
    amounts = -rate * (chance if varies else torch.ones_like(chance))
    inputs[decay] = 1 + amounts if make is hgrn2 else amounts
    check(case, inputs)


def test_long_sequences(case):
    inputs = case.inputs(Shape(B=1, T=131072, H=1, G=1, K=16, V=16))
    if case.operator == "bla":
        # Sums of all keys would make a softmax so sharp that fp32 cannot say where, and its slots cancel.
        inputs["k"] /= 256
        inputs["v"] += 1
    if case.operator == "abc":
        # Slots hold averages. Those of so many numbers around 0 are nearly 0 themselves: fp32 token by token misses
        # them by 7e-5, and the kernel by 2e-5.
        inputs["k"] += 1
        inputs["v"] += 1
    check(case, inputs)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("packed", [False, True], ids=["dense", "packed"])
def test_a_nan_stays_in_its_sequence_and_head(case, dtype, packed):
    check_that_a_nan_stays(case, dtype, packed)


# ---------------------------------------------------------------------------------------------------------------------
# Identities
# ---------------------------------------------------------------------------------------------------------------------


def causal_attention(q, k, v, window=None):
    k, v = (x.repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    scores = torch.einsum("bthd,bshd->bhts", q, k) * q.shape[-1] ** -0.5
    distance = torch.arange(q.shape[1])[:, None] - torch.arange(q.shape[1])
    seen = (distance >= 0) & (distance < (window or q.shape[1]))
    return torch.einsum("bhts,bshd->bthd", scores.masked_fill(~seen, -math.inf).softmax(-1), v)


@pytest.mark.parametrize("decay", ["none", "abs", "signed"])
def test_bla_with_a_slot_for_each_token_is_softmax_attention(decay):
    inputs = CASES["bla"].inputs(Shape(T=33), torch.float64)
    o, _ = stretto.ops.bla(**inputs, modes=16, period=33, decay=decay)
    assert error(o, causal_attention(**inputs)) < 1e-12


@pytest.mark.parametrize("decay", ["abs", "signed"])
def test_bla_with_decay_is_a_sliding_window(decay):
    inputs = CASES["bla"].inputs(Shape(T=100), torch.float64)
    o, _ = stretto.ops.bla(**inputs, modes=4, period=9, decay=decay)
    assert error(o, causal_attention(**inputs, window=9)) < 1e-12


def test_bla_with_absolute_decay_is_gsa():
    inputs = CASES["bla"].inputs(Shape(T=70), torch.float64)
    slots, period = 7, 14.0
    places = slots * (torch.arange(70, dtype=torch.float64)[:, None] % period) / period - torch.arange(slots)
    modes = torch.arange(1, slots // 2 + 1)
    w = (1 + 2 * torch.cos(2 * math.pi * places[..., None] * modes / slots).sum(-1)) / slots
    on_grid = (places - places.round()).abs() < 1e-9
    w = torch.where(on_grid, (places.round() % slots == 0).double(), w)[None, :, None].expand(2, -1, 2, -1)
    expected, _ = stretto.ops.gsa(**inputs, s=w, g=torch.log(1 - w.abs()))
    o, _ = stretto.ops.bla(**inputs, modes=3, period=period, decay="abs", masked=False)
    assert error(o, expected) < 1e-12


def test_a_delta_rule_recalls_the_last_value_of_a_key():
    q, k, v = torch.eye(16), torch.eye(16).repeat(3, 1), torch.randn(48, 16)
    rows = {name: x.view(1, -1, 1, 16) for name, x in {"k": k, "v": v}.items()}
    query = torch.cat([q, q, q]).view(1, 48, 1, 16)
    o, state = stretto.ops.delta_rule(q=query, **rows, beta=torch.ones(1, 48, 1), scale=1.0, output_final_state=True)
    torch.testing.assert_close(o[0, :, 0], v, rtol=0, atol=1e-6)
    torch.testing.assert_close(state["S"][0, 0], v[32:], rtol=0, atol=1e-6)


@pytest.mark.parametrize("kind", ["gentle", "-50", "-inf", "mixed"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64], ids=str)
def test_a_delta_rule_with_a_gate_for_each_channel(kind, dtype):
    from stretto import lang as sl

    @stretto.variant
    def channel_delta_rule(
        q: sl.Row["K"],
        k: sl.Row["K"](heads="G"),
        v: sl.Row["V"](heads="W"),
        g: sl.Row["K"](heads="G"),
        beta: sl.Row[()](heads="W"),
        scale=sl.Option("K**-0.5"),
    ):
        S = sl.decay(sl.state("K", "V"), log=g, along="K")
        S = sl.write(S, k, beta * (v - sl.read(S, k, along="K")))
        return sl.read(S, q * scale, along="K")

    inputs = CASES["delta_rule"].inputs(Shape(T=200, K=24, V=40), dtype)
    inputs["g"] = CASES["gla"].inputs(Shape(T=200, K=24, V=40), dtype)["g"]
    if kind != "gentle":
        inputs["g"] = hard_gates(kind, inputs["g"])
    o, state = channel_delta_rule(**inputs, output_final_state=True)
    expected, expected_state = channel_delta_rule.reference(**inputs, output_final_state=True)
    assert error(o, expected) <= BOUNDS[dtype][0]
    assert error(state["S"], expected_state["S"]) <= BOUNDS[dtype][1]


# ---------------------------------------------------------------------------------------------------------------------
# Calling
# ---------------------------------------------------------------------------------------------------------------------


def test_a_declaration_in_python_runs():
    from stretto import lang as sl

    @stretto.variant
    def leaky(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row[()], floor=sl.Option(0.5)):
        S = sl.write(sl.decay(sl.state("K", "V"), log=g), sl.maximum(k, floor), v)
        return sl.read(S, q, along="K")

    inputs = CASES["simple_gla"].inputs(Shape(G=4))
    assert error(leaky(**inputs), leaky.reference(**inputs)) < 5e-6
    assert error(leaky(**inputs, floor=-1.0), leaky.reference(**inputs, floor=-1.0)) < 5e-6
    _o, state = leaky(**inputs, output_final_state=True)
    assert isinstance(state, stretto.State)
    assert tuple(state) == ("S",)


def test_a_declaration_may_be_changed_and_run_again():
    from stretto import lang as sl

    def declare(factor):
        @stretto.variant
        def changing(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"]):
            S = sl.write(sl.state("K", "V"), k, v)
            return sl.read(S, q * factor, along="K")

        return changing

    inputs = CASES["retention"].inputs(Shape(G=4))
    first, second = declare(1.0), declare(2.0)
    torch.testing.assert_close(2 * first(**inputs), second(**inputs))
    torch.testing.assert_close(declare(1.0)(**inputs), first(**inputs), rtol=0, atol=0)


def test_positional_arguments_are_those_of_flash_linear_attention():
    inputs = CASES["gla"].inputs(Shape())
    q, k, v, g = inputs.values()
    state = initial_state(CASES["gla"], inputs)
    o, final = stretto.ops.gla(q, k, v, g, 0.25, state, True)
    expected, expected_final = CASES["gla"].reference(inputs, scale=0.25, initial_state=state)
    assert error(o, expected) < 5e-6
    assert error(final["S"], expected_final["S"]) < 1e-5
    assert stretto.ops.gla(q, k, v, g)[1] is None


def test_a_tensor_stands_for_the_only_entry():
    inputs = CASES["gla"].inputs(Shape())
    state = initial_state(CASES["gla"], inputs)
    o, _ = CASES["gla"](inputs, initial_state=state)
    torch.testing.assert_close(CASES["gla"](inputs, initial_state=state["S"])[0], o, rtol=0, atol=0)
    torch.testing.assert_close(CASES["gla"](inputs, initial_state=dict(state))[0], o, rtol=0, atol=0)


def test_a_state_is_a_pytree():
    from torch.utils._pytree import tree_map

    state = stretto.State(("S", "k_tail"), (torch.ones(2), torch.ones(3)))
    doubled = tree_map(lambda x: 2 * x, state)
    assert isinstance(doubled, stretto.State)
    assert list(doubled) == ["S", "k_tail"]
    assert doubled["k_tail"].tolist() == [2, 2, 2]


def test_few_heads_use_all_threads_by_slices():
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        inputs = CASES["gla"].inputs(Shape(B=1, T=130, H=1, G=1, K=64, V=64))
        variant = stretto.ops.gla.variant
        assert variant.explain(**inputs)["slices"] == 4
        check(CASES["gla"], inputs, initial_state=initial_state(CASES["gla"], inputs))
        linear = CASES["linear_attn"]
        check(linear, linear.inputs(Shape(B=1, T=130, H=1, G=1, K=64, V=64)))
        # A norm over the output mixes what slices would divide: one slice, and the same numbers.
        supra = CASES["supra"]
        check(supra, supra.inputs(Shape(B=1, T=130, H=1, G=1, K=64, V=64)))
    finally:
        torch.set_num_threads(threads)


def test_every_shipped_operator_runs():
    shipped = [value.__name__ for value in vars(stretto.ops).values() if isinstance(value, stretto.ops.ShippedOperator)]
    look_back = {"swa", "lolcats", "relation_kl"}  # in test_lookbacks.py
    assert set(shipped) == {case.operator for case in CASES.values()} | look_back


@pytest.mark.parametrize(
    ("tokens", "heads", "width", "slices"),
    [(200, 1, 64, 2), (1, 1, 64, 1), (200, 2, 64, 1), (200, 1, 16, 1)],
    ids=["idle thread", "few tokens", "a head for each thread", "narrow values"],
)
def test_values_are_divided_where_it_pays(tokens, heads, width, slices):
    threads = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        inputs = CASES["gla"].inputs(Shape(B=1, T=tokens, H=heads, G=heads, K=16, V=width))
        assert stretto.ops.gla.variant.explain(**inputs)["slices"] == slices
    finally:
        torch.set_num_threads(threads)
