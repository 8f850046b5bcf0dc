"""Gradients that stretto-differentiate declares, executed token by token, against autograd through the closed formulas.

Everything is in double precision. Cotangents come in at the results and at the final state, gradients go out at rows,
parameters and the initial state.
"""

import json
import pathlib

import pytest
import stretto
import torch
from formulas import FORMULAS
from formulas.examples import REGIMES, WITH_DECAY, example
from test_reference import CASES, ENTRIES, in_our_words

MODELS = pathlib.Path(__file__).parents[2] / "models"
TOLERANCE = 1e-10
WITHOUT_GRADIENT = ("swa", "lolcats", "relation_kl")
DIFFERENTIABLE = [(name, options) for name, options in CASES if name not in WITHOUT_GRADIENT]


@pytest.fixture(scope="module")
def models():
    return {name: stretto.load(MODELS / name / "variant.mlir") for name in FORMULAS if name not in WITHOUT_GRADIENT}


def error(x, y):
    """The deviation relative to the size of the reference, or to one where that is smaller."""
    x, y = x.detach(), y.detach()
    if not x.numel():
        return 0.0
    return ((x - y).norm() / max(y.norm(), 1.0)).item()


def numbers(tensors):
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def entry_names(name):
    return [ENTRIES.get(entry, entry) for entry in FORMULAS[name].state]


def by_autograd(name, arguments, state, generator):
    """Cotangents of the output and of the final state, and the gradients of arguments and initial state, by name."""
    rows = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    leaves = {key: value.detach().clone().requires_grad_() for key, value in rows.items()}
    given = [entry.detach().clone() for entry in state]
    for entry in given:
        entry.requires_grad_(entry.is_floating_point())
    with torch.enable_grad():
        output, final = FORMULAS[name].function(**{**arguments, **leaves}, initial_state=tuple(given))
    results = [output, *(entry for entry in final if entry.is_floating_point() and entry.requires_grad)]
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in results]
    wanted = [*leaves.values(), *(entry for entry in given if entry.requires_grad)]
    gradients = torch.autograd.grad(results, wanted, cotangents, allow_unused=True)
    gradients = [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, wanted, strict=True)]
    names = [*leaves, *(entry for entry, x in zip(entry_names(name), given, strict=True) if x.requires_grad)]
    of_state = iter(cotangents[1:])
    states = {
        entry: next(of_state)
        for entry, x in zip(entry_names(name), final, strict=True)
        if x.is_floating_point() and x.requires_grad
    }
    return cotangents[0], states, dict(zip(names, gradients, strict=True))


def by_declaration(model, name, arguments, state, d_output, d_state):
    """The same gradients from the adjoint declaration."""
    given, options = model.signature.bind((), in_our_words(arguments))
    structure, numeric = model.signature.split(options)
    program = model.program(structure, frozenset(given))
    backward = program.run("stretto-differentiate").variant(f"{name}_backward")
    initial = {entry: value for entry, value in zip(entry_names(name), state, strict=True)}
    initial |= {f"d_{entry}": value for entry, value in d_state.items()}
    entries = {entry["name"]: entry for entry in json.loads(backward.state())}
    # The cotangent of a scan is a state of one column.
    initial = {
        entry: value.double().unsqueeze(-1) if entries[entry]["axes"][-1:] == ["1"] else value.double()
        for entry, value in initial.items()
        if entry in entries
    }
    results, final = backward.interpret(
        numbers({**given, "d_o": d_output}), options=numeric, initial_state=numbers(initial), final_state=True
    )
    rows = [key for key in given if key in FORMULAS[name].rows]
    gradients = {key: torch.from_numpy(value) for key, value in zip(rows, results, strict=True)}
    for entry, value in final.items():
        if not entry.startswith("d_"):
            continue
        target = entry[2:].split(".")[0]
        value = torch.from_numpy(value)
        gradients[target] = gradients.get(target, 0) + (value.sum(0) if target in FORMULAS[name].parameters else value)
    return gradients


def check(model, name, arguments, state, tolerance=TOLERANCE):
    generator = torch.Generator().manual_seed(1)
    d_output, d_state, expected = by_autograd(name, arguments, state, generator)
    found = by_declaration(model, name, arguments, state, d_output, d_state)
    errors = {key: error(found[key].reshape(value.shape), value) for key, value in expected.items()}
    assert max(errors.values()) < tolerance, errors


@pytest.mark.parametrize(("name", "options"), DIFFERENTIABLE)
@pytest.mark.parametrize("tokens", [1, 13])
def test_gradients_agree_with_autograd(models, name, options, tokens):
    arguments, state = example(name, tokens=tokens, **options)
    check(models[name], name, arguments, state)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", WITH_DECAY)
def test_gradients_in_regimes_of_decay(models, name, regime):
    arguments, state = example(name, tokens=29, regime=regime, **dict(next(o for n, o in DIFFERENTIABLE if n == name)))
    check(models[name], name, arguments, state)


@pytest.mark.parametrize("name", ["gla", "linear_attn", "delta_rule", "gsa", "lawcat"])
def test_gradients_of_grouped_and_single_heads(models, name):
    for heads, key_heads in ((1, 1), (6, 3), (4, 4)):
        arguments, state = example(name, tokens=9, heads=heads, key_heads=key_heads)
        check(models[name], name, arguments, state)
