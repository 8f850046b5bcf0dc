"""The reference formulas against a second writing of the specification, formulas/recurrences.py."""

import math

import pytest
import torch
from formulas import FORMULAS, in_segments, packed
from formulas.comparison import GRADIENT_TOLERANCE, TOLERANCE, deviation, value_and_gradients
from formulas.examples import REGIMES, WITH_DECAY, example
from formulas.recurrences import RECURRENCES


def case(name, label="", **settings):
    return pytest.param(name, settings, id=f"{name}-{label}" if label else name)


LOLCATS = [
    case("lolcats", "sliding", window=5, mode="sliding"),
    case("lolcats", "sliding-one", window=1, mode="sliding"),
    case("lolcats", "terraced", window=4),
    case("lolcats", "own-block", window=4, prev_blocks=0),
    case("lolcats", "window-of-all", window=64),
    case("lolcats", "affine", window=4, beta="affine"),
    case("lolcats", "beta-half", window=3, beta=0.5, scale=1.0),
    case("lolcats", "t2r", window=4, feature="t2r"),
    case("lolcats", "t2r-bias", window=4, feature="t2r", bias="vector", mode="sliding"),
    case("lolcats", "t2r-scalar-bias", window=4, feature="t2r", bias="scalar"),
    case("lolcats", "constant-maximum", window=4, max_gradient=False),
    case("lolcats", "grouped", window=3, heads=4, key_heads=1, width=4, value_width=8),
]
BLA = [
    case(
        "bla",
        f"{decay}-{'masked' if masked else 'open'}-{modes}-{period}",
        modes=modes,
        period=period,
        decay=decay,
        masked=masked,
    )
    for decay in ("none", "abs", "signed")
    for masked, modes, period in (
        (True, 2, 5.0),
        (True, 2, 7.0),
        (False, 1, 4.5),
        (True, 3, 14 * math.pi / 3),
        (True, 0, 3.0),
    )
]
CASES = [
    case("linear_attn", "normalised"),
    case("linear_attn", "plain", normalize=False),
    case("linear_attn", "scale", normalize=True, eps=0.1, scale=0.7, heads=3, key_heads=3, width=3, value_width=2),
    case("gla"),
    case("gla", "grouped", heads=4, key_heads=1, width=3, value_width=5, scale=1.0),
    case("simple_gla"),
    case("simple_gla", "grouped", heads=6, key_heads=3, width=4, value_width=7),
    case("retention"),
    case("ssd"),
    case("ssd", "without-D", heads=3, key_heads=1, D=None),
    case("hgrn2"),
    case("hgrn2", "scale", scale=1.0, key_heads=4),
    case("rwkv6"),
    case("rwkv6", "scale", scale=1.0, key_heads=1),
    case("supra"),
    case("supra", "not-affine", weight=None, bias=None, theta=500000.0, eps=1e-3, key_heads=1),
    case("based"),
    case("based", "odd", width=3, value_width=5, scale=0.3, heads=3, key_heads=1, eps=1e-12),
    case("lawcat"),
    case("lawcat", "options", tau=4.0, eps=1e-2, scale=1.0, key_heads=1, width=6, value_width=9),
    case("delta_rule"),
    case("delta_rule", "more-queries", heads=4, key_heads=2, value_heads=2),
    case("gated_delta_rule"),
    case("gated_delta_rule", "more-values", heads=2, key_heads=2, value_heads=4, scale=1.0),
    case("gated_delta_rule", "more-queries", heads=6, key_heads=1, value_heads=3),
    case("gsa"),
    case("gsa", "one-slot", slots=1, key_heads=4, scale=1.0),
    case("abc"),
    case("abc", "grouped", key_heads=1, slots=3),
    *BLA,
    case("swa", "short", window=4),
    case("swa", "one", window=1),
    case("swa", "all", window=100, heads=3, key_heads=1, scale=1.0),
    *LOLCATS,
]
REGIME_CASES = [
    pytest.param(*one.values, regime, id=f"{one.id}-{regime}")
    for one in CASES
    for regime in (REGIMES if one.values[0] in WITH_DECAY else ("ordinary",))
]


@pytest.mark.parametrize("with_state", [False, True], ids=["zero-state", "given-state"])
@pytest.mark.parametrize("tokens", [0, 1, 5, 33])
@pytest.mark.parametrize(("name", "settings", "regime"), REGIME_CASES)
def test_formula_agrees_with_recurrence(name, settings, regime, tokens, with_state):
    arguments, state = example(name, tokens=tokens, regime=regime, with_state=with_state, **settings)
    output, final = FORMULAS[name].function(**arguments, initial_state=state)
    expected, expected_final = RECURRENCES[name](**arguments, initial_state=state)
    assert output.dtype == torch.float64
    assert deviation(output, expected) < TOLERANCE
    assert len(final) == len(FORMULAS[name].state)
    for member, value, value_expected in zip(FORMULAS[name].state, final, expected_final, strict=True):
        assert deviation(value, value_expected) < TOLERANCE, member


@pytest.mark.parametrize("with_state", [False, True], ids=["zero-state", "given-state"])
@pytest.mark.parametrize(("name", "settings", "regime"), REGIME_CASES)
def test_gradients_agree_with_recurrence(name, settings, regime, with_state):
    """Autograd through both writings, with a cotangent at the final state and a gradient at the initial one."""
    arguments, state = example(name, tokens=9, regime=regime, with_state=with_state, **settings)
    _, _, gradients = value_and_gradients(FORMULAS[name].function, arguments, state)
    _, _, expected = value_and_gradients(RECURRENCES[name], arguments, state)
    assert gradients.keys() == expected.keys()
    for argument, gradient in gradients.items():
        assert deviation(gradient, expected[argument]) < GRADIENT_TOLERANCE, argument


@pytest.mark.parametrize(("name", "settings"), CASES)
def test_output_continues_from_any_cut(name, settings):
    """Section 1.3: [0, T) equals [0, c), then [c, T) from the returned state; the batch of nothing is empty."""
    arguments, state = example(name, tokens=13, **settings)
    whole, final = FORMULAS[name].function(**arguments, initial_state=state)
    for length in (1, 4, 12):
        output, last = in_segments(name, arguments, length, initial_state=state)
        assert deviation(output, whole) < TOLERANCE
        for value, expected in zip(last, final, strict=True):
            assert deviation(value, expected) < TOLERANCE
    empty, state = example(name, batch=0, tokens=3, **settings)
    output, _ = FORMULAS[name].function(**empty, initial_state=state)
    assert output.shape == (0, 3, *whole.shape[2:])


def test_packed_sequences_are_separate():
    arguments, _ = example("lolcats", batch=1, tokens=12, window=3)
    output, states = packed("lolcats", arguments, torch.tensor([0, 5, 5, 12]))
    rows = FORMULAS["lolcats"].rows
    alone, final = FORMULAS["lolcats"].function(
        **{name: x[:, 5:] if name in rows else x for name, x in arguments.items()}
    )
    assert torch.equal(output[:, 5:], alone)
    assert all(torch.equal(value, expected) for value, expected in zip(states[2], final, strict=True))
    assert int(states[1][-1]) == 0 and states[1][1].shape[1] == 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_inputs_of_any_type_are_computed_in_fp64(dtype):
    arguments, _ = example("gla", tokens=5)
    rounded = {name: value.to(dtype) for name, value in arguments.items()}
    output, (final,) = FORMULAS["gla"].function(**rounded)
    expected, (expected_final,) = FORMULAS["gla"].function(**{name: value.double() for name, value in rounded.items()})
    assert torch.equal(output, expected) and torch.equal(final, expected_final)


def test_example_regimes_reach_their_extremes():
    for name in WITH_DECAY:
        for regime in REGIMES:
            arguments, _ = example(name, regime=regime)
            assert all(not value.isnan().any() for value in arguments.values() if isinstance(value, torch.Tensor)), (
                name,
                regime,
            )
    arguments, _ = example("gla", regime="zeros")
    assert bool((arguments["g"] == -math.inf).any())
    arguments, _ = example("lawcat", regime="mixed")
    assert bool((arguments["z"] == -math.inf).any()) and bool((arguments["z"] == math.inf).any())
