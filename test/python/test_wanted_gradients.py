"""Gradients that nobody asked for are not computed: whatever is asked for is the same as in the full gradient."""

import random

import pytest
import stretto
import torch
from formulas.examples import example
from operator_cases import Shape
from test_gradients import entry_names
from test_lookbacks import CASES as LOOKBACKS
from test_lookbacks import relation
from test_operator_gradients import FIRST, segments_of, walks_of
from test_reference import in_our_words
from test_segments import segments


def leaves_of(tensors):
    return {
        name: x.detach().clone().requires_grad_()
        for name, x in tensors.items()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
    }


def check(run, leaves, seed):
    """`run` gives the results of a call by name. Draws which have cotangents, and which gradients are asked for."""
    choose = random.Random(seed)

    def some(names):
        return sorted(choose.sample(sorted(names), choose.randint(1, len(names))))

    results = {name: x for name, x in run().items() if x.requires_grad}
    generator = torch.Generator().manual_seed(seed)
    cotangents = {name: torch.randn(x.shape, dtype=x.dtype, generator=generator) for name, x in results.items()}

    def gradients(wanted, given, zero=()):
        outputs = [results[name] for name in (*given, *zero)]
        incoming = [cotangents[name] for name in given] + [torch.zeros_like(results[name]) for name in zero]
        found = torch.autograd.grad(
            outputs, [leaves[name] for name in wanted], incoming, retain_graph=True, allow_unused=True
        )
        return dict(zip(wanted, found, strict=True))

    given = some(results)
    expected = gradients(list(leaves), given, sorted(set(results) - set(given)))
    for name, x in gradients(some(leaves), given).items():
        torch.testing.assert_close(x, expected[name], rtol=1e-11, atol=1e-11)
    # However walks and segments divide the work.
    for count in (1, 2, 2):
        wanted = sorted(choose.sample(sorted(leaves), min(count, len(leaves))))
        with walks_of(choose.choice([1, 2])), segments(choose.choice([1, 3])), segments_of(choose.choice([0, 2])):
            for name, x in gradients(wanted, given).items():
                torch.testing.assert_close(x, expected[name], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", FIRST)
def test_some_gradients_are_those_of_the_full_gradient(name):
    arguments, state = example(name, tokens=70, **FIRST[name])
    arguments = in_our_words(arguments)
    entries = dict(zip(entry_names(name), state, strict=True)) if name not in ("swa", "lolcats") else {}
    leaves, initial = leaves_of(arguments), leaves_of(entries)

    def run():
        variant = getattr(stretto.ops, name).variant
        given = {**entries, **initial}
        output, final = variant(**{**arguments, **leaves}, initial_state=given or None, output_final_state=True)
        return {"o": output} | {key: x for key, x in final.items() if not key.endswith("_window")}

    check(run, leaves | initial, seed=len(name))


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats of few tokens", "lolcats t2r with one bias"])
def test_some_gradients_of_what_looks_back(name):
    case = LOOKBACKS[name]
    leaves = leaves_of(case.inputs(Shape(B=1, T=70, H=2, G=1, K=8, V=4), torch.float64))
    check(lambda: {"o": case(leaves)}, leaves, seed=len(name))


@pytest.mark.parametrize(
    "name, wanted",
    [
        ("gla", ["v"]),
        ("gla", ["k", "S"]),
        ("gla", ["q"]),
        ("ssd", ["x", "D"]),
        ("lawcat", ["v", "S"]),
        ("abc", ["values", "s_logaddexp"]),
    ],
)
@pytest.mark.parametrize("count, chunks", [(1, 0), (3, 0), (1, 2), (3, 2)])
def test_some_gradients_in_two_walks(name, wanted, count, chunks):
    """Some ask for no forward state; or no row asks for what one of reverse time leaves, whose decays it has all the
    same, from segment to segment."""
    arguments, state = example(name, tokens=150, **FIRST[name])
    given = in_our_words(arguments) | {"initial_state": dict(zip(entry_names(name), state, strict=True))}

    def gradients():
        entries = {key: x.detach().requires_grad_(x.is_floating_point()) for key, x in given["initial_state"].items()}
        leaves = leaves_of({key: x for key, x in given.items() if key != "initial_state"})
        output, _ = getattr(stretto.ops, name).variant(
            **{**given, **leaves, "initial_state": entries}, output_final_state=True
        )
        return torch.autograd.grad(output.square().sum(), [(leaves | entries)[key] for key in wanted])

    whole = gradients()
    with walks_of(2), segments(count), segments_of(chunks):
        for one, other in zip(gradients(), whole, strict=True):
            assert (one - other).norm() <= 1e-10 * other.norm()


@pytest.mark.parametrize("walks", [1, 2])
@pytest.mark.parametrize("row", ["v", "k", "w_q"])
def test_the_weight_of_a_window_beside_one_other(row, walks):
    """Whatever rows the walk that adds its gradient up asks for."""
    case = LOOKBACKS["lolcats"]
    leaves = leaves_of(case.inputs(Shape(B=1, T=130, H=2, G=1, K=8, V=4), torch.float64))
    with walks_of(walks):
        loss = case(leaves).square().sum()
        whole = dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values()), retain_graph=True), strict=True))
        found = torch.autograd.grad(loss, [leaves[row], leaves["factor"]])
    for name, gradient in zip((row, "factor"), found, strict=True):
        assert whole[name].norm() > 0
        assert (gradient - whole[name]).norm() <= 1e-10 * whole[name].norm()


def test_some_gradients_of_relations():
    arguments = relation(T=70, dtype=torch.float64, keys=True)
    leaves = leaves_of({name: x for name, x in arguments.items() if name.endswith("_s")})
    check(lambda: {"o": stretto.ops.relation_kl(**{**arguments, **leaves})}, leaves, seed=1)


@pytest.mark.parametrize("name", ["linear_attn", "gla"])
def test_gradients_that_walk_one_way(name):
    """Queries alone need nothing of reverse time; through the final state alone, a state that nothing changes hands its
    cotangent on.
    """
    arguments, state = example(name, tokens=200)
    leaves, initial = leaves_of(arguments), leaves_of(dict(zip(entry_names(name), state, strict=True)))
    variant = getattr(stretto.ops, name).variant
    output, final = variant(**{**arguments, **leaves}, initial_state=initial, output_final_state=True)
    both = [output.square().sum(), final["S"].square().sum()]
    for result, x in zip(both, (leaves["q"], initial["S"]), strict=True):
        (full, *_) = torch.autograd.grad(result, [x, *leaves.values()], retain_graph=True, allow_unused=True)
        (found,) = torch.autograd.grad(result, [x], retain_graph=True)
        assert full.any()
        torch.testing.assert_close(found, full, rtol=1e-11, atol=1e-11)


def test_what_is_typical():
    """Everything; all but gates; gates alone; parameters alone; all but parameters; the initial state alone."""
    arguments, state = example("lawcat", tokens=70)
    arguments = in_our_words(arguments)
    entries = dict(zip(entry_names("lawcat"), state, strict=True))
    leaves, initial = leaves_of(arguments), leaves_of(entries)
    output, final = stretto.ops.lawcat.variant(
        **{**arguments, **leaves}, initial_state={**entries, **initial}, output_final_state=True
    )
    every = leaves | initial
    total = output.square().sum() + sum(x.square().sum() for x in final.values() if x.requires_grad)
    full = dict(zip(every, torch.autograd.grad(total, list(every.values()), retain_graph=True), strict=True))
    parameters = {"conv_q", "conv_k", "w_phi"}
    for wanted in (
        {"q", "k", "v"},
        {"z"},
        parameters,
        set(leaves) - parameters,
        set(initial),
    ):
        names = sorted(wanted)
        found = torch.autograd.grad(total, [every[name] for name in names], retain_graph=True)
        for name, x in zip(names, found, strict=True):
            torch.testing.assert_close(x, full[name], rtol=1e-11, atol=1e-11)


def test_inputs_without_gradients():
    """Where only some require a gradient, PyTorch asks for theirs."""
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, 20, 2, 8, dtype=torch.float64, generator=generator) for _ in range(4))
    g = -g.abs()
    full = [x.clone().requires_grad_() for x in (q, k, v, g)]
    stretto.ops.gla(*full)[0].square().sum().backward()
    v.requires_grad_()
    stretto.ops.gla(q, k, v, g)[0].square().sum().backward()
    torch.testing.assert_close(v.grad, full[2].grad, rtol=0, atol=1e-12)
    assert q.grad is None


def test_the_declaration_of_some_gradients():
    text = stretto.ops.gla.variant.mlir(backward=True, wanted=["v"])
    assert "@gla_backward(%q: !K, %k: !K_per_G, %v: !V_per_G, %g: !K_per_G, %d_o: !V) -> !V_per_G" in text
    assert "stretto.pair" not in text
    assert 'stretto.state "S"' not in text
    assert "gla_backward_checkpoints" not in stretto.ops.gla.variant.lower("chunk", backward=True, wanted=["v"])
    with pytest.raises(stretto.Error, match="the gradient of 'w' is wanted, expected some of: q, k, v, g, S"):
        stretto.ops.gla.variant.mlir(backward=True, wanted=["w"])
