"""What Python finds once for calls that look alike, and what makes them look different."""

import numpy as np
import pytest
import stretto
import torch
from stretto import calls
from stretto import lang as sl


@stretto.variant
def scaled(q: sl.Row["K"], bias: sl.Row["K"] = None, scale=sl.Option(1.0), flip=sl.Option(False)):
    "Rows by a number, and beside another row."
    if bias is not None:
        q = q + bias
    return -q * scale if flip else q * scale


@pytest.fixture
def rows():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 1, 5, 2, 4, generator=generator).unbind()


def test_every_form_of_a_call_is_its_own(rows):
    q, bias = rows
    for _ in range(2):
        torch.testing.assert_close(scaled(q), q)
        torch.testing.assert_close(scaled(q=q), q)
        torch.testing.assert_close(scaled(q, None), q)
        torch.testing.assert_close(scaled(q, bias), q + bias)
        torch.testing.assert_close(scaled(bias, q), q + bias)
        torch.testing.assert_close(scaled(bias=bias, q=q), q + bias)
        torch.testing.assert_close(scaled(q, scale=2.0), 2 * q)
        torch.testing.assert_close(scaled(q, scale=3), 3 * q)
        torch.testing.assert_close(scaled(q, scale=1, flip=True), -q)
        torch.testing.assert_close(scaled(q, scale="K / 2"), 2 * q)
        torch.testing.assert_close(scaled(torch.nn.Parameter(q)), q)


def test_equal_values_of_other_types_are_other_forms(rows):
    q, _ = rows
    torch.testing.assert_close(scaled(q, flip=True), -q)
    with pytest.raises(stretto.Error, match="the option 'flip' is 1, expected True or False"):
        scaled(q, flip=1)
    torch.testing.assert_close(scaled(q, scale=1), q)
    with pytest.raises(stretto.Error, match="the option 'scale' is True, expected a number"):
        scaled(q, scale=True)


def test_what_only_looks_like_itself_is_found_anew(rows):
    q, _ = rows
    for scale in (2.0, 3.0):
        torch.testing.assert_close(scaled(q, scale=np.float64(scale)), scale * q)
        torch.testing.assert_close(scaled(q, scale=np.float32(scale)), scale * q)
    with pytest.raises(stretto.Error, match=r"\[R4\] 'q' is a list, expected a tensor"):
        scaled([1.0])


def test_plans_are_kept_and_bounded(rows, monkeypatch):
    q, _ = rows
    made = []
    plans = calls.Plans(lambda arguments, keywords: made.append(keywords) or scaled.plan(arguments, keywords))
    for _ in range(3):
        plans.find((q,), {"scale": 2.0})
    assert len(made) == 1
    monkeypatch.setattr(calls, "_MOST_PLANS", 4)
    for number in range(10):
        plans.find((q,), {"scale": float(number)})
    assert len(plans._plans) <= 4


def test_what_operators_have_in_common_may_be_given_by_position():
    q, k, v = torch.randn(3, 1, 5, 2, 16).unbind()
    expected, state = stretto.ops.linear_attn(q, k, v, output_final_state=True)
    found, other = stretto.ops.linear_attn(q, k, v, True, 1e-10, None, None, True, None)
    assert torch.equal(found, expected) and torch.equal(other["S"], state["S"])
    with pytest.raises(stretto.Error, match="'initial_state' is given twice"):
        stretto.ops.linear_attn(q, k, v, True, 1e-10, None, state, initial_state=state)
    with pytest.raises(stretto.Error, match="is given 10 arguments, expected at most 9"):
        stretto.ops.linear_attn(q, k, v, True, 1e-10, None, None, True, None, None)
