"""Calls whose sequences are divided into segments that are walked side by side, against the fp64 interpreter."""

import contextlib

import pytest
import stretto
import torch
from operator_cases import CASES, Shape, check, check_that_a_nan_stays, error, initial_state, offsets
from stretto import lang as sl
from test_lookbacks import CASES as LOOKBACKS
from test_lookbacks import check_continuing, run

pytestmark = pytest.mark.usefixtures("no_gradients")


@contextlib.contextmanager
def segments(count):
    """Sequences are divided into so many segments at most; 1: walked one chunk after the other."""
    before = torch.ops.stretto._set_segments(count)
    try:
        yield
    finally:
        torch.ops.stretto._set_segments(before)


@pytest.fixture(params=CASES)
def case(request):
    return CASES[request.param]


def explain(case, inputs, **keywords):
    return getattr(stretto.ops, case.operator).variant.explain(**inputs, **case.options, **keywords)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [2, 3, 1000])
def test_lengths(case, count, dtype):
    """Segments of many chunks, of one, and sequences that end within one or have fewer chunks than segments."""
    with segments(count):
        for length in (1, 16, 17, 33, 150):
            check(case, case.inputs(Shape(T=length), dtype))
        inputs = case.inputs(Shape(T=150), dtype)
        check(case, inputs, initial_state=initial_state(case, inputs))
        found = explain(case, inputs)
    assert found["schedule"] == "segmented"
    assert found["chosen_by"] == "knob"
    assert 2 <= found["segments"] <= count
    kernels = [kernel["kernel"] for kernel in found["kernels"]]
    feedback = ["transitions"]
    parts = {
        "lawcat": ["tails"],
        "abc": ["totals", "total_starts"],
        "delta_rule": feedback,
        "gated_delta_rule": feedback,
    }.get(case.operator, [])
    assert kernels == [*(f"{case.operator}_{part}" for part in (*parts, "writes", "starts")), case.operator]
    assert found["workspace_bytes"] > 0


@pytest.mark.parametrize("count", [2, 1000])
def test_packed_sequences(case, count):
    """Some are empty, or shorter than a segment; one has more chunks than all others."""
    for lengths in ([0, 17, 1, 0, 64, 133, 0], [300, 1, 1], [0, 0, 7], [0, 0]):
        inputs = case.inputs(Shape(B=1, T=sum(lengths)))
        cu_seqlens = offsets(lengths)
        with segments(count):
            check(case, inputs, cu_seqlens=cu_seqlens)
            state = initial_state(case, inputs, cu_seqlens=cu_seqlens)
            check(case, inputs, cu_seqlens=cu_seqlens, initial_state=state)


def test_results_are_the_same_bits(case):
    """From run to run, on one thread and on two, and of the first segment what a walk over the whole computes."""
    inputs = case.inputs(Shape(T=150))
    serial = case(inputs)[0]
    threads, found = torch.get_num_threads(), []
    try:
        for count in (1, 2, 2):
            torch.set_num_threads(count)
            with segments(3):
                found.append(case(inputs, output_final_state=True))
    finally:
        torch.set_num_threads(threads)
    (first, state), *others = found
    for o, final in others:
        assert torch.equal(o, first)
        assert all(torch.equal(final[name], state[name]) for name in state)
    assert torch.equal(first[:, :16], serial[:, :16])


def test_values_are_divided_as_well(case):
    threads = torch.get_num_threads()
    torch.set_num_threads(8)
    try:
        with segments(2):
            inputs = case.inputs(Shape(B=1, T=150, H=1, G=1, V=64))
            assert explain(case, inputs)["slices"] == (1 if case.operator == "supra" else 4)
            check(case, inputs, initial_state=initial_state(case, inputs))
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("packed", [False, True])
def test_a_nan_stays_in_its_sequence_and_head(case, packed):
    with segments(1000):
        check_that_a_nan_stays(case, torch.float32, packed)


# Windows that end with a chunk, within one, and that are longer; of blocks of tokens and sliding.
WITH_STATES = [
    "lolcats",
    "lolcats of few tokens",
    "lolcats of its own block",
    "lolcats sliding",
    "lolcats over one token",
    "lolcats t2r with one bias",
]


@pytest.mark.parametrize("count", [2, 3, 1000])
@pytest.mark.parametrize("name", WITH_STATES)
def test_lookbacks_beside_states(name, count):
    """What a segment looks back at lies in segments before it, or in windows."""
    case = LOOKBACKS[name]
    variant = getattr(stretto.ops, case.operator).variant
    for length in (1, 64, 65, 500):
        inputs = case.inputs(Shape(T=length))
        o, state = run(case, inputs)
        with segments(count):
            explained = variant.explain(**inputs, **case.options)
            found, final = run(case, inputs)
        assert explained["schedule"] == "segmented"
        assert (explained["segments"] > 1) == (length > 64)
        assert error(found, o) < 1e-6
        assert all(error(final[entry], state[entry]) < 1e-6 for entry in state)


@pytest.mark.parametrize("name", WITH_STATES)
def test_lookbacks_continue_from_windows(name):
    with segments(1000):
        check_continuing(LOOKBACKS[name], LOOKBACKS[name].inputs(Shape(T=150)))


@pytest.mark.parametrize("name", WITH_STATES)
def test_lookbacks_in_packed_sequences(name):
    case = LOOKBACKS[name]
    for lengths in ([0, 17, 1, 0, 64, 133, 0], [300, 1, 1], [0, 0]):
        inputs = case.inputs(Shape(B=1, T=sum(lengths)))
        keywords = {"cu_seqlens": offsets(lengths)}
        for _ in range(2):  # from the start, and from there
            o, state = run(case, inputs, **keywords)
            with segments(1000):
                found, final = run(case, inputs, **keywords)
            assert error(found, o) < 1e-6
            assert all(error(final[entry], state[entry]) < 1e-6 for entry in state)
            keywords["initial_state"] = state


@stretto.variant
def kept_of_another(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"]):
    """What is written to a state depends on a read of another."""
    S = sl.write(sl.state("K", "V", name="S"), k, v)
    T = sl.write(sl.state("K", "V", name="T"), k, sl.read(S, q, along="K"))
    return sl.read(T, q, along="K")


def test_what_runs_one_chunk_after_the_other_says_why():
    generator = torch.Generator().manual_seed(0)
    inputs = {name: torch.randn(1, 100, 2, 8, generator=generator) / 3 for name in ("q", "k", "v")}
    with segments(3):
        explained = kept_of_another.explain(**inputs)
        found = kept_of_another(**inputs)
    why = "what changes the state 'T' depends on this read"
    assert explained["schedule"] == "serial"
    assert explained["why"] == f"no segments side by side: {why}"
    with pytest.raises(stretto.Error, match="no segmented form: " + why):
        kept_of_another.lower("chunk", segments=True, K=8, V=8)
    assert error(found, kept_of_another.reference(**inputs)) < 5e-6


@stretto.variant
def faded_along_both_axes(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], h: sl.Row["V"]):
    """Without a chunk form."""
    S = sl.decay(sl.decay(sl.state("K", "V"), log=-g * g, along="K"), log=-h * h, along="V")
    return sl.read(sl.write(S, k, v), q, along="K")


def test_what_has_no_chunk_form_runs_token_by_token():
    generator = torch.Generator().manual_seed(0)
    inputs = {name: torch.randn(1, 40, 2, 8, generator=generator) for name in ("q", "k", "v", "g", "h")}
    with segments(3), pytest.warns(UserWarning, match="runs token by token"):
        found = faded_along_both_axes(**inputs)
        explained = faded_along_both_axes.explain(**inputs)
    assert explained["form"] == "step"
    assert explained["why"] == "no segments side by side: the state 'S' has no chunk form"
    assert error(found, faded_along_both_axes.reference(**inputs)) < 5e-6


def test_a_cpu_takes_segments_only_where_it_is_told_to():
    inputs = CASES["gla"].inputs(Shape(B=1, T=4096, H=1, G=1))
    assert explain(CASES["gla"], inputs)["schedule"] == "serial"
    with segments(1):
        assert explain(CASES["gla"], inputs)["schedule"] == "serial"
    with pytest.raises(RuntimeError, match="the number of segments is -1, expected 0 or more"):
        torch.ops.stretto._set_segments(-1)


@stretto.variant
def convolved_twice(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], taps: sl.Param["H", "K", 4]):
    """Rows that are looked back to look back in turn, further than a chunk of 16 tokens."""
    far = sl.delay(sl.conv(sl.conv(k, taps), taps), 40)
    S = sl.write(sl.decay(sl.state("K", "V"), log=-0.1 * sl.sum(far * far)), far, v)
    return sl.read(S, sl.delay(q, 2), along="K")


@pytest.mark.parametrize("count", [2, 5, 1000])
def test_tails_of_rows_that_look_back_in_turn(count):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 170, 2, 16, generator=generator) for _ in range(3))
    inputs = {"q": q, "k": k, "v": v, "taps": torch.randn(2, 16, 4, generator=generator) / 2}
    o, state = convolved_twice.reference(**inputs, output_final_state=True)
    with segments(count):
        found, final = convolved_twice(**inputs, output_final_state=True)
        again, last = convolved_twice(**inputs, initial_state=final, output_final_state=True)
    assert error(found, o) < 5e-6
    assert all(error(final[name], state[name]) < 1e-5 for name in state)
    o, state = convolved_twice.reference(**inputs, initial_state=state, output_final_state=True)
    assert error(again, o) < 5e-6
    assert all(error(last[name], state[name]) < 1e-5 for name in state)


@stretto.variant
def totals(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row[()], taps: sl.Param["H", "K", 4]):
    """Totals of each kind, of rows that look back; some decay. A decay depends on one, and so does a result."""
    convolved = sl.conv(k, taps)
    largest = sl.scan(convolved, "max")
    fading = sl.scan(convolved, "logaddexp", log=-0.1 * convolved * convolved)
    S = sl.decay(sl.state("K", "V"), log=-0.1 * sl.sigmoid(sl.scan(g, "add", log=-0.5 * g * g)))
    S = sl.write(S, largest - fading, v)
    return sl.read(S, q, along="K") * sl.sigmoid(sl.scan(g, exclusive=True))


def continued_in_segments(variant, inputs, count):
    """The output and the state of a call, and of one that continues from there with the same inputs."""
    with segments(count):
        assert variant.explain(**inputs)["segments"] > 1
        first = variant(**inputs, output_final_state=True)
        return first, variant(**inputs, initial_state=first[1], output_final_state=True)


@pytest.mark.parametrize("count", [2, 5, 1000])
def test_totals(count):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 170, 2, 16, generator=generator) for _ in range(3))
    g, taps = torch.randn(2, 170, 2, generator=generator), torch.randn(2, 16, 4, generator=generator) / 2
    inputs = {"q": q, "k": k, "v": v, "g": g, "taps": taps}
    o, state = totals.reference(**inputs, output_final_state=True)
    o2, state2 = totals.reference(**inputs, initial_state=state, output_final_state=True)
    (found, final), (again, last) = continued_in_segments(totals, inputs, count)
    assert error(found, o) < 5e-6
    assert error(again, o2) < 5e-6
    assert all(error(final[name], state[name]) < 1e-5 for name in state)
    assert all(error(last[name], state2[name]) < 1e-5 for name in state)


def test_gradients_are_those_of_a_walk_over_the_whole():
    found = []
    for count in (1, 3):
        inputs = {key: x.requires_grad_() for key, x in CASES["gla"].inputs(Shape(T=150)).items()}
        with segments(count), torch.enable_grad():
            CASES["gla"](inputs)[0].square().sum().backward()
        found.append([x.grad for x in inputs.values()])
    for serial, segmented in zip(*found, strict=True):
        assert error(segmented, serial) < 1e-6


# What is written depends on a read of the state: of the state before its decays, behind some of them, along the second
# axis, with further writes, rows that look back and a scan beside it; a state of one column, or row.
@stretto.variant
def fed_before_it_decays(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    S = sl.state("K", "V")
    recalled = sl.read(S, k, along="K")
    S = sl.write(sl.decay(S, factor=sl.sigmoid(g + 5.0), along="K"), k, b * v - 0.5 * (b * recalled))
    return sl.read(S, q, along="K")


@stretto.variant
def fed_between_decays(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    S = sl.decay(sl.state("K", "V"), log=-0.02 * g * g, along="K")
    recalled = sl.read(S, k, along="K")
    S = sl.write(sl.decay(S, log=-0.02 * b * b), k, v - sl.sigmoid(b) * recalled)
    return sl.read(S, q, along="K")


@stretto.variant
def fed_along_columns(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    S = sl.decay(sl.decay(sl.state("V", "K"), log=-0.02 * g * g, along="K"), factor=sl.sigmoid(b + 5.0))
    S = sl.write(S, v - sl.sigmoid(b) * sl.read(S, k, along="K"), k)
    return sl.read(S, q, along="K")


@stretto.variant
def fed_as_a_whole_along_columns(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    S = sl.decay(sl.state("V", "K"), log=-0.02 * b * b)
    S = sl.write(S, v - sl.read(S, k, along="K"), k)
    return sl.read(S, q, along="K") + 0 * sl.sum(g)


@stretto.variant
def fed_beside_others(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    key = sl.delay(k, 3)
    S = sl.write(sl.decay(sl.state("K", "V"), log=-0.1 * sl.sigmoid(sl.scan(b, log=-0.02 * b * b))), g * 0.1, v)
    S = sl.write(S, key, v - sl.sigmoid(b) * sl.read(S, key, along="K"))
    return sl.read(sl.write(S, q * 0.1, v), q, along="K")


@stretto.variant
def fed_in_one_column(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], b: sl.Row[()]):
    S = sl.decay(sl.state("K", "1"), log=-0.02 * g * g, along="K")
    S = sl.write(S, k, b - 0.5 * sl.read(S, k, along="K"))
    return sl.read(S, q, along="K") * v


FED = [
    fed_before_it_decays,
    fed_between_decays,
    fed_along_columns,
    fed_as_a_whole_along_columns,
    fed_beside_others,
    fed_in_one_column,
]


def fed_inputs(tokens, dtype=torch.float32, keys=16, values=24):
    generator = torch.Generator().manual_seed(0)
    rows = {"q": (2, keys), "k": (2, keys), "v": (2, values), "g": (2, keys), "b": (2,)}
    inputs = {name: torch.randn(2, tokens, *sizes, generator=generator) for name, sizes in rows.items()}
    inputs["k"] = torch.nn.functional.normalize(inputs["k"], dim=-1)
    return {name: x.to(dtype) for name, x in inputs.items()}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("count", [2, 5, 1000])
@pytest.mark.parametrize("variant", FED, ids=lambda variant: variant.__name__)
def test_feedback(variant, count, dtype):
    inputs = fed_inputs(170, dtype)
    exact = {name: x.double() for name, x in inputs.items()}
    o, state = variant.reference(**exact, output_final_state=True)
    o2, state2 = variant.reference(**exact, initial_state=state, output_final_state=True)
    (found, final), (again, last) = continued_in_segments(variant, inputs, count)
    bound = 5e-6 if dtype == torch.float32 else 1e-2
    assert error(found, o) < bound
    assert error(again, o2) < bound
    assert all(error(final[name], state[name]) < bound for name in state)
    assert all(error(last[name], state2[name]) < bound for name in state)
