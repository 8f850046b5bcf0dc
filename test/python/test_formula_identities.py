"""Identities of the specification between the reference formulas: what one family is a special case of."""

import math

import pytest
import torch
from formulas import FORMULAS, dirichlet_weights
from formulas.comparison import TOLERANCE, deviation
from formulas.examples import example
from formulas.recurrences import repeated, two_softmaxes


def softmax_attention(q, k, v, window=None):
    """Causal softmax attention, by torch itself; with `window`, over the last so many tokens."""
    heads, tokens = q.shape[2], q.shape[1]
    q, k, v = q.transpose(1, 2), repeated(k.transpose(1, 2), heads), repeated(v.transpose(1, 2), heads)
    mask = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if window is not None:
        mask = mask.triu(1 - window)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2)


def formula(name, *arguments, **options):
    return FORMULAS[name].function(*arguments, **options)[0]


@pytest.mark.parametrize("decay", ["none", "abs", "signed"])
def test_bla_with_period_of_slots_is_softmax_attention(decay):
    """Section 3.5: P = N, T <= N."""
    arguments, _ = example("gsa", tokens=9)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("bla", q, k, v, 4, 9.0, decay), softmax_attention(q, k, v)) < TOLERANCE
    assert deviation(formula("bla", q, k, v, 4, 9.0, decay, masked=False), softmax_attention(q, k, v)) > 1e-3


@pytest.mark.parametrize("decay", ["abs", "signed"])
def test_bla_with_period_of_slots_is_sliding_window(decay):
    """Section 3.5: P = N, any T."""
    arguments, _ = example("gsa", tokens=40)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("bla", q, k, v, 3, 7.0, decay), softmax_attention(q, k, v, window=7)) < TOLERANCE


def test_bla_without_decay_adds_up_residue_classes():
    """Section 3.5: with P = N slot n holds the sum of all k_t with t mod N = n."""
    arguments, _ = example("gsa", tokens=23)
    _, (keys, _, _) = FORMULAS["bla"].function(*(arguments[name] for name in "qkv"), modes=2, period=5.0)
    expected = torch.stack([arguments["k"][:, n::5].sum(1) for n in range(5)], 2)
    assert deviation(keys, expected) < TOLERANCE


@pytest.mark.parametrize(("modes", "period"), [(4, 9.0), (4, 13.5), (4, 18.0), (16, 49.5)])
def test_bla_slot_weights(modes, period):
    """Section 3.5: signed weights of a slot sum to 1 once it was hit; absolute weights of `abs` at most 1."""
    ones = torch.ones(1, 150, 1, 1, dtype=torch.float64)
    for decay in ("signed", "abs"):
        _, (_, values, _) = FORMULAS["bla"].function(ones, ones, ones, modes, period, decay)
        if decay == "signed":
            assert deviation(values[:, :, :1], torch.ones_like(values[:, :, :1])) < TOLERANCE
        else:
            assert float(values.abs().max()) <= 1 + TOLERANCE


@pytest.mark.parametrize(("modes", "period"), [(0, 3), (1, 4), (4, 18), (4, 9)])
def test_dirichlet_weights(modes, period):
    """Sections 3.1 and 3.5: range, period, sum over a period equal to r = P / N."""
    slots = 2 * modes + 1
    weights = dirichlet_weights(torch.arange(5 * period)[None], modes, float(period))[0]
    assert float(weights.max()) <= 1 and float(weights.min()) >= -1 / 3 - TOLERANCE
    assert torch.equal(weights[:period], weights[-period:])
    if period >= slots:
        assert deviation(weights[:period].sum(0), torch.full((slots,), period / slots, dtype=torch.float64)) < TOLERANCE
    far = dirichlet_weights(torch.tensor([[10**9 * period + 1]]), modes, float(period))[0]
    assert torch.equal(far[0], weights[1])


def test_dirichlet_weights_just_below_the_end_of_a_period():
    """Section 3.4: 21 is five periods of 4.2, and yet fmod(21, 4.2) is a rounding below 4.2."""
    assert math.fmod(21, 4.2) > 4
    assert dirichlet_weights(torch.tensor([[21]]), 1, 4.2).tolist() == [[[1.0, 0.0, 0.0]]]


def test_bla_with_absolute_decay_is_gsa():
    """Section 3.5: without mask, s = w and log a = log(1 - |w|), -inf on the grid."""
    arguments, state = example("bla", tokens=31, modes=3, period=10.5, decay="abs", masked=False)
    q, k, v = (arguments[name] for name in "qkv")
    weights = dirichlet_weights(state[2][:, None] + torch.arange(31), 3, 10.5)[:, :, None].expand(
        -1, -1, k.shape[2], -1
    )
    log_decay = (1 - weights.abs()).log()
    assert bool((log_decay == -math.inf).any())
    output, final = FORMULAS["bla"].function(**arguments, initial_state=state)
    expected, expected_final = FORMULAS["gsa"].function(q, k, v, weights, log_decay, initial_state=state[:2])
    assert deviation(output, expected) < TOLERANCE
    assert deviation(final[0], expected_final[0]) < TOLERANCE and deviation(final[1], expected_final[1]) < TOLERANCE


def test_abc_is_gsa_with_running_softmax():
    """Section 6.5: the stable form."""
    arguments, _ = example("abc", tokens=17)
    total = arguments["s"].logcumsumexp(1)
    before = torch.cat([torch.full_like(total[:, :1], -math.inf), total[:, :-1]], 1)
    q, k, v = (arguments[name] for name in "qkv")
    assert (
        deviation(formula("abc", **arguments), formula("gsa", q, k, v, (arguments["s"] - total).exp(), before - total))
        < TOLERANCE
    )


def test_gsa_with_one_hot_writes_is_softmax_attention():
    arguments, _ = example("gsa", tokens=6, slots=6)
    q, k, v = (arguments[name] for name in "qkv")
    write = torch.eye(6, dtype=torch.float64)[None, :, None].expand(2, 6, 2, 6)
    # A slot not yet written holds a zero key that takes weight, so that only the last token sees plain softmax
    # attention.
    output = formula("gsa", q, k, v, write, torch.zeros_like(write))
    assert deviation(output[:, -1], softmax_attention(q, k, v)[:, -1]) < TOLERANCE


def test_lawcat_averages_its_values():
    """Section 2.2: with all values equal to 1, o = 1, up to the epsilon."""
    arguments, _ = example("lawcat", tokens=19, eps=0.0)
    arguments["v"] = torch.ones_like(arguments["v"])
    output = formula("lawcat", **arguments)
    assert deviation(output, torch.ones_like(output)) < TOLERANCE


def test_lawcat_with_open_gate_and_identity_taps_is_linear_attention():
    """Sections 2.2, 2.6 and 6.1, written with the feature maps of this file."""
    arguments, _ = example("lawcat", tokens=12, key_heads=4)
    taps = torch.zeros(4, 8, 4, dtype=torch.float64)
    taps[..., -1] = 1
    arguments.update(conv_q=taps, conv_k=taps, z=torch.full_like(arguments["z"], math.inf))
    q, k = (two_softmaxes(arguments[name], arguments["w_phi"]) for name in "qk")
    assert deviation(formula("lawcat", **arguments), formula("linear_attn", q, k, arguments["v"])) < TOLERANCE


def test_decays_of_one_are_linear_attention():
    arguments, _ = example("gla", tokens=15)
    q, k, v = (arguments[name] for name in "qkv")
    expected = formula("linear_attn", q, k, v, normalize=False)
    zeros = torch.zeros_like(arguments["g"])
    assert deviation(formula("gla", q, k, v, zeros), expected) < TOLERANCE
    assert deviation(formula("simple_gla", q, k, v, zeros[..., 0]), expected) < TOLERANCE
    # RWKV-6 with a bonus of 1 reads the token's own write; without it, only the earlier ones.
    assert deviation(formula("rwkv6", q, k, v, zeros, torch.ones(2, 8)), expected) < TOLERANCE
    # A key that is not erased: the delta rule without recall, on orthogonal keys.
    orthogonal = torch.eye(15, dtype=torch.float64)[None, :, None].expand(2, -1, 2, -1)
    query = torch.randn(2, 15, 4, 15, dtype=torch.float64)
    beta = torch.ones(2, 15, 2, dtype=torch.float64)
    assert (
        deviation(
            formula("delta_rule", query, orthogonal, v, beta),
            formula("linear_attn", query, orthogonal, v, normalize=False),
        )
        < TOLERANCE
    )


def test_hgrn2_is_gla_with_complementary_keys():
    """Section 6.4."""
    arguments, state = example("hgrn2", tokens=21, regime="zeros")
    q, f, v = (arguments[name] for name in "qfv")
    assert (
        deviation(
            formula("hgrn2", q, f, v, initial_state=state), formula("gla", q, 1 - f, v, f.log(), initial_state=state)
        )
        < TOLERANCE
    )


def test_hgrn2_gradient_at_zero_has_both_terms():
    """Section 6.4: df = rowsum(dS_t * S_{t-1}) - dk, by differences on one side."""
    arguments, state = example("hgrn2", tokens=6, batch=1, heads=1, key_heads=1)
    q, v = arguments["q"], arguments["v"]
    forget = torch.zeros_like(arguments["f"]).requires_grad_()
    output = formula("hgrn2", q, forget, v, initial_state=state)
    cotangent = torch.randn_like(output)
    (gradient,) = torch.autograd.grad((output * cotangent).sum(), forget)
    step = torch.zeros_like(forget)
    step[0, 3, 0, 2] = 1e-3
    moved, output = formula("hgrn2", q, forget.detach() + step, v, initial_state=state), output.detach()
    # The output is linear in a single factor, so that the difference is exact.
    assert abs(float(((moved - output) * cotangent).sum()) / 1e-3 - float(gradient[0, 3, 0, 2])) < 1e-10


def test_ssd_is_gla_with_one_decay():
    """Section 6.3."""
    arguments, state = example("ssd", tokens=14, key_heads=4, D=None)
    decay = -arguments["dt"] * arguments["A_log"].exp()
    expected = formula(
        "simple_gla",
        arguments["C"],
        arguments["B"],
        arguments["dt"][..., None] * arguments["x"],
        decay,
        scale=1.0,
        initial_state=state,
    )
    assert deviation(formula("ssd", **arguments, initial_state=state), expected) < TOLERANCE


def test_retention_is_simple_gla():
    arguments, state = example("retention", tokens=14)
    decay = torch.log1p(-(2.0 ** (-5 - torch.arange(2, dtype=torch.float64)))).expand(2, 14, 2)
    expected = formula("simple_gla", **arguments, g=decay, initial_state=state)
    assert deviation(formula("retention", **arguments, initial_state=state), expected) < TOLERANCE


def test_delta_rule_recalls_the_last_value_of_a_key():
    """Section 6.8 with beta = 1 and keys of length 1: q = k reads back v."""
    arguments, state = example("delta_rule", tokens=10, key_heads=4)
    arguments.update(q=arguments["k"], beta=torch.ones_like(arguments["beta"]))
    assert deviation(formula("delta_rule", **arguments, scale=1.0, initial_state=state), arguments["v"]) < TOLERANCE


def test_exact_zero_forgets_everything_before():
    arguments, state = example("gated_delta_rule", tokens=12)
    arguments["g"][:, 5] = -math.inf
    whole = formula("gated_delta_rule", **arguments, initial_state=state)
    rest = formula("gated_delta_rule", **{name: value[:, 5:] for name, value in arguments.items()})
    assert deviation(whole[:, 5:], rest) < TOLERANCE


def test_based_weights_are_a_polynomial():
    """Section 6.10: 1 + s + s^2/2, here through the 153 features of the upper triangle."""
    arguments, _ = example("based", tokens=10, key_heads=4, width=16)
    rows, columns = torch.triu_indices(16, 16)

    def features(x):
        square = x[..., rows] * x[..., columns]
        square = torch.where(rows == columns, square / math.sqrt(2), square)
        return torch.cat([torch.ones_like(x[..., :1]), x, square], -1)

    q, k = (features(arguments[name] * 16**-0.25) for name in "qk")
    assert q.shape[-1] == 153
    expected = formula("linear_attn", q, k, arguments["v"], eps=1e-6, scale=1.0)
    assert deviation(formula("based", **arguments), expected) < TOLERANCE


def test_supra_has_centred_outputs_and_relative_positions():
    """Section 6.7: the norm, and the rotation, which makes the output independent of the position of the start."""
    arguments, _ = example("supra", tokens=8, weight=None, bias=None, eps=1e-12)
    output = formula("supra", **arguments)
    assert float(output.mean(-1).abs().max()) < TOLERANCE
    zero = torch.zeros(2, 4, 8, 6, dtype=torch.float64)
    shifted = formula("supra", **arguments, initial_state=(zero, torch.tensor([1000, 3])))
    assert deviation(shifted, output) < 1e-10


@pytest.mark.parametrize("window", [1, 3, 50])
def test_swa_is_masked_attention(window):
    arguments, _ = example("swa", tokens=20, window=window)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("swa", q, k, v, window), softmax_attention(q, k, v, window)) < TOLERANCE


@pytest.mark.parametrize(
    "settings", [{"mode": "sliding"}, {}, {"prev_blocks": 0}], ids=["sliding", "terraced", "own-block"]
)
def test_lolcats_within_a_window_is_softmax_attention(settings):
    """Section 4.2 while no key is old: gamma cancels."""
    arguments, _ = example("lolcats", tokens=16, window=16, **settings)
    q, k, v = (arguments[name] for name in "qkv")
    assert deviation(formula("lolcats", **arguments), softmax_attention(q, k, v)) < TOLERANCE


def test_lolcats_without_window_is_linear_attention():
    """Sections 4.4 and 6.1: gamma -> 0 leaves the old keys; at a window of 1 those are all but the last."""
    arguments, _ = example("lolcats", tokens=16, window=1, mode="sliding", key_heads=4)
    arguments["factor"] = torch.full((4,), -800.0, dtype=torch.float64)
    q, k = two_softmaxes(arguments["q"], arguments["w_q"]), two_softmaxes(arguments["k"], arguments["w_k"])
    expected = formula("linear_attn", q[:, 1:], k[:, :-1], arguments["v"][:, :-1], eps=0.0, scale=1.0)
    assert deviation(formula("lolcats", **arguments)[:, 1:], expected) < TOLERANCE


def test_lolcats_splits_the_gradient_of_a_tied_maximum():
    """Section 4.2: equal keys share the gradient that flows through the maximum."""
    arguments, _ = example("lolcats", tokens=12, window=4, batch=1, heads=1, key_heads=1)
    arguments["k"][:] = arguments["k"][:, :1]
    keys = arguments["k"].requires_grad_()
    output = formula("lolcats", **arguments)
    (gradient,) = torch.autograd.grad(output[:, -1].sum(), keys)
    # Tokens 4 .. 11 are the window of token 11; the values differ, the parts through the maximum do not. Those parts
    # alone remain in the difference to the gradient with a constant maximum.
    constant = formula("lolcats", **arguments, max_gradient=False)
    (without,) = torch.autograd.grad(constant[:, -1].sum(), keys)
    through_maximum = (gradient - without)[0, 4:, 0]
    assert float(through_maximum.abs().max()) > 1e-6
    assert deviation(through_maximum, through_maximum[:1].expand(8, -1)) < TOLERANCE
    assert torch.equal(gradient[0, :4], without[0, :4])


def test_lolcats_maximum_is_the_exact_one():
    """Section 4.2: a constant added to all scores is removed by the maximum; one left in them changes the output."""
    arguments, _ = example("lolcats", tokens=12, window=3, heads=2, key_heads=2, scale=1.0)
    output = formula("lolcats", **arguments)
    # One more channel adds 5 to every score; the feature maps do not see it.
    query, key = (
        torch.nn.functional.pad(arguments[name], (0, 1), value=value) for name, value in (("q", 1.0), ("k", 5.0))
    )
    blind = {name: torch.nn.functional.pad(arguments[name], (0, 0, 0, 1)) for name in ("w_q", "w_k")}
    shifted = formula("lolcats", **{**arguments, **blind, "q": query, "k": key})
    assert deviation(shifted, output) < TOLERANCE
    # Window weights too small by e^-5, as a bound 5 above the maximum would make them: the same until keys are old.
    gamma = torch.sigmoid(arguments["factor"]) * math.exp(-5)
    bounded = formula("lolcats", **{**arguments, "factor": torch.log(gamma / (1 - gamma))})
    assert deviation(bounded[:, :6], output[:, :6]) < TOLERANCE
    assert deviation(bounded[:, 6:], output[:, 6:]) > 1e-3
