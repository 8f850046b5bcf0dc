"""The interpreter of every model's file against the closed formulas, in double precision."""

import itertools
import pathlib

import pytest
import stretto
import torch
from formulas import FORMULAS, packed, relation_kl_rows
from formulas.examples import REGIMES, WITH_DECAY, example

MODELS = pathlib.Path(__file__).parents[2] / "models"
TOLERANCE = 1e-12

# What the formulas call the entries of a state that the compiler names otherwise.
ENTRIES = {"tail_q": "q_tail", "tail_k": "k_tail", "total": "s_logaddexp"}

# Options of every operator, the first of them those of the tests that do not vary options.
OPTIONS = {
    "linear_attn": [{}, {"normalize": False}, {"eps": 0.5, "scale": 2.0}],
    "gla": [{}, {"scale": 0.7}],
    "supra": [{}, {"theta": 100.0, "eps": 0.1}],
    "based": [{}, {"eps": 1e-3}],
    "lawcat": [{}, {"tau": 4.0}],
    "bla": [
        {"modes": 2, "period": 5.0},
        {"modes": 2, "period": 10.0, "decay": "abs"},
        {"modes": 3, "period": 7.5, "decay": "signed"},
        {"modes": 1, "period": 3.7, "decay": "signed"},
        {"modes": 0, "period": 2.0, "masked": False},
        {"modes": 4, "period": 18.0, "masked": False, "scale": 3.0},
    ],
    "swa": [{"window": 4}, {"window": 1}, {"window": 64}],
    "lolcats": [
        {"window": 4},
        {"window": 4, "prev_blocks": 0},
        {"window": 5, "mode": "sliding"},
        {"window": 64, "mode": "sliding", "feature": "t2r"},
        {"window": 3, "feature": "t2r", "bias": "vector", "beta": 0.3},
        {"window": 3, "feature": "t2r", "bias": "scalar", "max_gradient": False},
        {"window": 4, "beta": "affine"},
    ],
    "relation_kl": [
        {},
        {"causal": False},
        {"keys": True},
        {"masked": True},
        {"keys": True, "masked": True, "causal": False, "scale_s": 0.3, "scale_t": 0.9},
    ],
}
CASES = [(name, options) for name in FORMULAS for options in OPTIONS.get(name, [{}])]

# A look-back keeps the keys and values of its window, which are not entries of a chain's state.
WITH_STATE = [name for name in FORMULAS if name not in ("swa", "lolcats", "relation_kl")]


@pytest.fixture(scope="module")
def models():
    return {name: stretto.load(MODELS / name / "variant.mlir") for name in FORMULAS}


def formula(name, arguments, state=None):
    """The formula's output, and its final state by the compiler's names."""
    if name == "relation_kl":
        return relation_kl_rows(**arguments), {}
    output, final = FORMULAS[name].function(**arguments, initial_state=state)
    return output, by_name(name, final)


def by_name(name, state):
    if state is None:
        return None
    return {ENTRIES.get(entry, entry): tensor for entry, tensor in zip(FORMULAS[name].state, state, strict=True)}


def in_our_words(arguments):
    """The arguments of a formula as a declaration takes them."""
    arguments = dict(arguments)
    if arguments.get("beta") == "affine":
        arguments.update(affine=True)
        del arguments["beta"]
    if "mask" in arguments:
        arguments["mask"] = arguments["mask"].unsqueeze(-1)
    return arguments


def assert_close(found, expected):
    assert found.shape == expected.shape
    assert found.dtype == (torch.int64 if expected.dtype == torch.int64 else torch.float64)
    expected = expected.double()
    assert (found - expected).norm() <= TOLERANCE * max(1.0, float(expected.norm()))


def assert_states_close(found, expected):
    assert found.keys() == expected.keys()
    for entry in expected:
        assert_close(found[entry], expected[entry])


@pytest.mark.parametrize("tokens", [0, 1, 5, 33])
@pytest.mark.parametrize(("name", "options"), CASES)
def test_output(models, name, options, tokens):
    arguments, _ = example(name, tokens=tokens, with_state=False, **options)
    assert_close(models[name].reference(**in_our_words(arguments)), formula(name, arguments)[0])


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", WITH_DECAY)
def test_regimes_of_decay(models, name, regime):
    arguments, state = example(name, regime=regime, **OPTIONS.get(name, [{}])[0])
    output, final = models[name].reference(**arguments, initial_state=by_name(name, state), output_final_state=True)
    expected, expected_final = formula(name, arguments, state)
    assert_close(output, expected)
    assert_states_close(final, expected_final)


@pytest.mark.parametrize("tokens", [0, 1, 33])
@pytest.mark.parametrize("name", WITH_STATE)
def test_initial_and_final_state(models, name, tokens):
    arguments, state = example(name, tokens=tokens, **OPTIONS.get(name, [{}])[0])
    output, final = models[name].reference(**arguments, initial_state=by_name(name, state), output_final_state=True)
    expected, expected_final = formula(name, arguments, state)
    assert_close(output, expected)
    assert_states_close(final, expected_final)


@pytest.mark.parametrize("name", FORMULAS)
def test_packed_sequences(models, name):
    lengths = [5, 0, 1, 0, 17]
    cuts = torch.tensor([0, *lengths]).cumsum(0)
    arguments, _ = example(name, batch=1, tokens=int(cuts[-1]), with_state=False, **OPTIONS.get(name, [{}])[0])
    if name == "relation_kl":
        pieces = [{k: v[:, a:b] for k, v in arguments.items()} for a, b in itertools.pairwise(cuts)]
        assert_close(
            models[name].reference(**arguments, cu_seqlens=cuts),
            torch.cat([relation_kl_rows(**piece) for piece in pieces], 1),
        )
        return
    states = None
    if name in WITH_STATE:
        states = [example(name, batch=1, seed=i, **OPTIONS.get(name, [{}])[0])[1] for i in range(len(lengths))]
    expected, finals = packed(name, arguments, cuts, states)
    if states is None:
        assert_close(models[name].reference(**arguments, cu_seqlens=cuts), expected)
        return
    together = [torch.cat(entries) for entries in zip(*states, strict=True)]
    output, final = models[name].reference(
        **arguments, cu_seqlens=cuts, initial_state=by_name(name, together), output_final_state=True
    )
    assert_close(output, expected)
    assert_states_close(final, by_name(name, [torch.cat(entries) for entries in zip(*finals, strict=True)]))


@pytest.mark.parametrize("key_heads", [1, 2, 4])
@pytest.mark.parametrize("name", FORMULAS)
def test_head_groups(models, name, key_heads):
    options = {**OPTIONS.get(name, [{}])[0], **({"keys": True} if name == "relation_kl" else {})}
    arguments, _ = example(name, tokens=9, heads=4, key_heads=key_heads, with_state=False, **options)
    assert_close(models[name].reference(**in_our_words(arguments)), formula(name, arguments)[0])


@pytest.mark.parametrize("name", ["delta_rule", "gated_delta_rule"])
@pytest.mark.parametrize("value_heads", [2, 4, 8])
def test_value_heads(models, name, value_heads):
    arguments, state = example(name, heads=4, value_heads=value_heads)
    output, final = models[name].reference(**arguments, initial_state=by_name(name, state), output_final_state=True)
    expected, expected_final = formula(name, arguments, state)
    assert_close(output, expected)
    assert_states_close(final, expected_final)


@pytest.mark.parametrize(("name", "absent"), [("ssd", ["D"]), ("supra", ["weight", "bias"])])
def test_optional_inputs(models, name, absent):
    arguments, _ = example(name, with_state=False)
    for argument in absent:
        del arguments[argument]
    assert_close(models[name].reference(**arguments), formula(name, arguments)[0])


def test_inputs_of_any_type(models):
    arguments, _ = example("gla", with_state=False)
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rounded = {name: tensor.to(dtype) for name, tensor in arguments.items()}
        assert_close(models["gla"].reference(**rounded), formula("gla", rounded)[0])


def test_strided_inputs(models):
    arguments, _ = example("gla", with_state=False)
    strided = {name: tensor.transpose(1, 2).contiguous().transpose(1, 2) for name, tensor in arguments.items()}
    strided["q"] = arguments["q"][:, :, :1].expand_as(arguments["q"])
    assert_close(models["gla"].reference(**strided), formula("gla", strided)[0])


def test_state_continues(models):
    """Two halves, the state passed on, are the whole."""
    arguments, _ = example("lawcat", with_state=False)
    whole = models["lawcat"].reference(**arguments)
    rows = FORMULAS["lawcat"].rows
    first = {name: tensor[:, :11] if name in rows else tensor for name, tensor in arguments.items()}
    second = {name: tensor[:, 11:] if name in rows else tensor for name, tensor in arguments.items()}
    begun, state = models["lawcat"].reference(**first, output_final_state=True)
    assert_close(torch.cat([begun, models["lawcat"].reference(**second, initial_state=state)], 1), whole)


def test_lone_state_as_a_tensor(models):
    arguments, (state,) = example("gla")
    assert_close(models["gla"].reference(**arguments, initial_state=state), formula("gla", arguments, (state,))[0])
