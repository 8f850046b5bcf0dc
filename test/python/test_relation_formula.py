"""The formula of the relation divergence against its rows, one at a time, and the gradient of section 5.2."""

import pytest
import torch
from formulas import relation_kl, relation_kl_rows
from formulas.comparison import GRADIENT_TOLERANCE, TOLERANCE, deviation, differentiable
from formulas.examples import example
from formulas.recurrences import relation_kl_by_rows

KL_CASES = [
    pytest.param(settings, id=label)
    for label, settings in {
        "self": {},
        "grouped": {"keys": True, "key_heads": 1},
        "masked": {"masked": True},
        "masked-keys": {"masked": True, "keys": True, "key_heads": 2, "scale_s": 0.5, "scale_t": 0.9},
        "non-causal": {"causal": False},
        "non-causal-masked": {"causal": False, "masked": True, "keys": True, "denominator_heads": 8},
    }.items()
]


@pytest.mark.parametrize("tokens", [0, 1, 5, 21])
@pytest.mark.parametrize("settings", KL_CASES)
def test_relation_kl_agrees_with_rows(settings, tokens):
    arguments, _ = example("relation_kl", tokens=tokens, **settings)
    arguments, _, leaves = differentiable(arguments, None)
    loss, expected = relation_kl(**arguments), relation_kl_by_rows(**arguments)
    assert deviation(loss, expected) < TOLERANCE
    if tokens:
        students = [leaves[name] for name in ("q_s", "k_s") if name in leaves]
        for gradient, gradient_expected in zip(
            torch.autograd.grad(loss, students), torch.autograd.grad(expected, students), strict=True
        ):
            assert deviation(gradient, gradient_expected) < GRADIENT_TOLERANCE


def test_relation_kl_gradient_of_section_5_2():
    arguments, _ = example("relation_kl", tokens=11, batch=1, heads=1, masked=True)
    student, teacher, mask = arguments["q_s"].requires_grad_(), arguments["q_t"].requires_grad_(), arguments["mask"]
    loss = relation_kl(student, teacher, mask=mask)
    (gradient,) = torch.autograd.grad(loss, student, retain_graph=True)
    assert torch.autograd.grad(loss, teacher, allow_unused=True) == (None,)
    valid = mask[0].nonzero()[:, 0]
    difference = torch.zeros(11, 11, dtype=torch.float64)
    for i in valid.tolist():
        columns = valid[valid <= i]
        for sign, x in ((1, student), (-1, teacher)):
            x = x.detach()[0, :, 0]
            difference[i, columns] += sign * (x.shape[-1] ** -0.5 * x[columns] @ x[i]).softmax(0)
    x = student.detach()[0, :, 0]
    expected = x.shape[-1] ** -0.5 * (difference + difference.T) @ x / len(valid)
    assert deviation(gradient[0, :, 0], expected) < TOLERANCE
    assert deviation(gradient[0, ~mask[0]], torch.zeros(int((~mask).sum()), 1, 8, dtype=torch.float64)) == 0


def test_relation_kl_of_equal_relations_is_zero():
    arguments, _ = example("relation_kl", tokens=7)
    assert float(relation_kl_rows(arguments["q_s"], arguments["q_s"]).abs().max()) < TOLERANCE


@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_relation_kl_without_valid_tokens():
    arguments, _ = example("relation_kl", tokens=4)
    student = arguments["q_s"].requires_grad_()
    with torch.autograd.detect_anomaly(check_nan=True):
        loss = relation_kl(student, arguments["q_t"], mask=torch.zeros(2, 4, dtype=torch.bool))
        (gradient,) = torch.autograd.grad(loss, student)
    assert float(loss.detach()) == 0 and not gradient.any()
