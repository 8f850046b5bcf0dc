"""How two writings of one formula are compared."""

import math

import torch

TOLERANCE = 1e-12
GRADIENT_TOLERANCE = 1e-11


def deviation(value, expected):
    """|value - expected| / |expected| in the Frobenius norm; the absolute difference where the reference is small."""
    assert value.shape == expected.shape, f"shape {tuple(value.shape)}, expected {tuple(expected.shape)}"
    if not value.is_floating_point():
        return 0.0 if torch.equal(value, expected) else math.inf
    same = value == expected  # equal infinities, the logsumexp of nothing, have no difference
    difference = torch.where(same, 0.0, value - expected)
    return float(
        difference.detach().norm() / expected.detach().masked_fill(same & expected.isinf(), 0.0).norm().clamp(min=1.0)
    )


def differentiable(arguments, state):
    """Copies that ask for gradients, and the list of them by name."""
    leaves = {}

    def copy(name, value):
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        leaves[name] = value.clone().requires_grad_()
        return leaves[name]

    arguments = {name: copy(name, value) for name, value in arguments.items()}
    if state is not None:
        state = tuple(copy(f"state {index}", value) for index, value in enumerate(state))
    return arguments, state, leaves


def value_and_gradients(function, arguments, state):
    """Output, final state, and the gradients under fixed random cotangents at the output and at every member of the
    final state.
    """
    arguments, state, leaves = differentiable(arguments, state)
    output, final = function(**arguments, initial_state=state)
    generator = torch.Generator().manual_seed(1)
    total = output.new_zeros(())
    for result in (output, *final):
        if result.is_floating_point():
            cotangent = torch.randn(result.shape, dtype=torch.float64, generator=generator)
            total = total + torch.where(result.isfinite(), result * cotangent, 0.0).sum()
    gradients = (
        torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        if total.requires_grad
        else [None] * len(leaves)
    )
    gradients = {
        name: torch.zeros_like(leaf) if gradient is None else gradient
        for (name, leaf), gradient in zip(leaves.items(), gradients, strict=True)
    }
    return output, final, gradients
