"""Gradients that stretto-differentiate declares, executed token by token, against autograd through the closed formulas.

Everything is in double precision. Cotangents come in at the results and at the final state, gradients go out at rows,
parameters and the initial state.
"""

import json
import pathlib
import re

import pytest
import stretto
import torch
from formulas import FORMULAS, relation_kl_rows
from formulas.examples import REGIMES, WITH_DECAY, example
from stretto import lang as sl
from test_reference import CASES, ENTRIES, in_our_words

MODELS = pathlib.Path(__file__).parents[2] / "models"
TOLERANCE = 1e-10
# They keep rows of earlier tokens, which are no entries of a state: no cotangent goes through a state.
LOOKING_BACK = ("swa", "lolcats", "relation_kl")


@pytest.fixture(scope="module")
def models():
    return {name: stretto.load(MODELS / name / "variant.mlir") for name in FORMULAS}


def error(x, y):
    """The deviation relative to the size of the reference, or to one where that is smaller."""
    x, y = x.detach(), y.detach()
    if not x.numel():
        return 0.0
    return ((x - y).norm() / max(y.norm(), 1.0)).item()


def entry_names(name):
    return [ENTRIES.get(entry, entry) for entry in FORMULAS[name].state]


def by_autograd(name, arguments, state, generator):
    """Cotangents of the output and of the final state, and the gradients of arguments and initial state, by name."""
    rows = {key: x for key, x in arguments.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    leaves = {key: x.detach().clone().requires_grad_() for key, x in rows.items()}
    entries = {} if name in LOOKING_BACK else dict(zip(entry_names(name), state, strict=True))
    given = {key: x.detach().clone().requires_grad_(x.is_floating_point()) for key, x in entries.items()}
    with torch.enable_grad():
        if name == "relation_kl":
            output, final = relation_kl_rows(**{**arguments, **leaves}), ()
        else:
            output, final = FORMULAS[name].function(
                **{**arguments, **leaves}, initial_state=tuple(given.values()) or None
            )
    final = {key: x for key, x in zip(given, final if given else (), strict=True) if x.requires_grad}
    results = [output, *final.values()]
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in results]
    wanted = leaves | {key: x for key, x in given.items() if x.requires_grad}
    gradients = torch.autograd.grad(results, wanted.values(), cotangents, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, wanted.values(), strict=True)]
    return cotangents[0], dict(zip(final, cotangents[1:], strict=True)), dict(zip(wanted, gradients, strict=True))


def by_declaration(model, name, arguments, state, d_output, d_state):
    """The same gradients from the adjoint declaration."""
    given, options = model.signature.bind((), in_our_words(arguments))
    structure, numeric = model.signature.split(options)
    program = model.program(structure, frozenset(given))
    if "b_q" in given and name == "lolcats":
        # One number or one for each feature: sizes decide which.
        sizes = {"E": given["b_q"].shape[-1], "F": given["w_q"].shape[-1]}
        program = program.specialize(dims={axis: str(size) for axis, size in sizes.items()}, options=numeric)
        numeric = {}
    backward = program.run("stretto-differentiate").variant(f"{name}_backward")
    entries = {entry["name"]: entry for entry in json.loads(backward.state())}
    initial = {f"d_{entry}": x for entry, x in d_state.items()}
    if name not in LOOKING_BACK:
        initial |= dict(zip(entry_names(name), state, strict=True))
    # The cotangent of a scan is a state of one column.
    initial = {
        entry: x.double().unsqueeze(-1) if entries[entry]["axes"][-1:] == ["1"] else x.double()
        for entry, x in initial.items()
        if entry in entries
    }
    results, final = backward.interpret(
        {key: x.double().numpy() for key, x in {**given, "d_o": d_output}.items()},
        options=numeric,
        initial_state={entry: x.numpy() for entry, x in initial.items()},
        final_entries=[entry for entry in entries if entry.startswith("d_")],
    )
    rows = [key for key in given if key in FORMULAS[name].rows]
    gradients = {key: torch.from_numpy(x) for key, x in zip(rows, results, strict=True)}
    for entry, x in final.items():
        target = entry[2:].split(".")[0]
        x = torch.from_numpy(x)
        gradients[target] = gradients.get(target, 0) + (x.sum(0) if target in FORMULAS[name].parameters else x)
    return gradients


def check(model, name, arguments, state, tolerance=TOLERANCE):
    generator = torch.Generator().manual_seed(1)
    d_output, d_state, expected = by_autograd(name, arguments, state, generator)
    found = by_declaration(model, name, arguments, state, d_output, d_state)
    errors = {key: error(found[key].reshape(value.shape), value) for key, value in expected.items()}
    assert max(errors.values()) < tolerance, errors


@pytest.mark.parametrize(("name", "options"), CASES)
@pytest.mark.parametrize("tokens", [1, 13])
def test_gradients_agree_with_autograd(models, name, options, tokens):
    arguments, state = example(name, tokens=tokens, **options)
    check(models[name], name, arguments, state)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", WITH_DECAY)
def test_gradients_in_regimes_of_decay(models, name, regime):
    arguments, state = example(name, tokens=29, regime=regime, **dict(next(o for n, o in CASES if n == name)))
    check(models[name], name, arguments, state)


@pytest.mark.parametrize("name", ["gla", "linear_attn", "delta_rule", "gsa", "lawcat"])
def test_gradients_of_grouped_and_single_heads(models, name):
    for heads, key_heads in ((1, 1), (6, 3), (4, 4)):
        arguments, state = example(name, tokens=9, heads=heads, key_heads=key_heads)
        check(models[name], name, arguments, state)


def test_the_gradient_is_a_declaration(models):
    gla = models["gla"]
    text = gla.mlir(backward=True)
    assert "@gla_backward(%q: !K, %k: !K_per_G, %v: !V_per_G, %g: !K_per_G, %d_o: !V)" in text
    assert 'stretto.state "d_S" : !reverse_state_K_by_V_per_G' in text
    assert "tensor<16xf64, #stretto.row<K, G>>" in gla.lower("stretto", backward=True, K=16, V=8)
    kernels = gla.lower("chunk", backward=True)
    assert re.search(r"@gla_backward_checkpoints chunk \d+\(", kernels)
    assert re.search(r"@gla_backward chunk \d+ reverse\(", kernels)


def test_a_parameter_of_pairs_has_no_gradient():
    @stretto.variant
    def scores(q: sl.Row["K"], w: sl.Param["H", "K"]):
        return sl.lookback(0, lambda past: sl.dot(q * w, past(q)), fold="sum")

    with pytest.raises(
        stretto.Error, match="uses a parameter in its body, whose gradient would be a sum over all pairs"
    ):
        scores.mlir(backward=True)
    with pytest.raises(stretto.Error, match="uses a parameter in its body"):
        scores.explain(torch.ones(1, 4, 1, 8), torch.ones(1, 8), backward=True)
