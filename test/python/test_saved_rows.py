"""Rows that a call saves for its gradient: what a recorded call leaves, that the gradient takes it in place of a walk
that finds it, and that PyTorch sees an operator like others.
"""

import pytest
import stretto
import torch
from functorch.compile import make_boxed_func
from test_lookback_gradients import gradients, relation_loss
from test_lookbacks import RELATIONS, relation
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

# Of scores in 16 bits, whose queries are scaled before they are multiplied.
BOUNDS = {torch.float64: 1e-10, torch.float32: 1e-4, torch.float16: 4e-3, torch.bfloat16: 3e-2}
SAVING = [name for name in RELATIONS if name != "scaled"]


def recorded(arguments):
    """What the operator and its `_recorded` are given."""
    rows = {name: arguments.get(name) for name in ("q_s", "q_t", "k_s", "k_t")}
    mask = arguments["mask"].to(rows["q_s"].dtype)[..., None] if "mask" in arguments else None
    return (*rows.values(), mask), {"causal": arguments.get("causal", True)}


def log_sum_exps(q, k, mask, causal):
    """[B, T, H] of the scores of each query, in fp64."""
    k = q if k is None else k.repeat_interleave(q.shape[2] // k.shape[2], 2)
    scores = torch.einsum("bihd,bjhd->bhij", q.double(), k.double()) * q.shape[-1] ** -0.5
    allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device)
    allowed = allowed.tril() if causal else allowed
    if mask is not None:
        valid = mask[..., 0] > 0
        allowed = allowed & (valid[:, None, :, None] & valid[:, None, None, :])
    return scores.masked_fill(~allowed, -torch.inf).logsumexp(-1).transpose(1, 2)


@pytest.mark.parametrize("name", SAVING)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_a_recorded_call_saves_log_sum_exps(name, dtype):
    (q_s, q_t, k_s, k_t, mask), options = recorded(relation(dtype=dtype, **RELATIONS[name]))
    o, state, saved = torch.ops.stretto.relation_kl_recorded(q_s, q_t, k_s, k_t, mask, **options)
    expected, _ = torch.ops.stretto.relation_kl(q_s, q_t, k_s, k_t, mask, **options)
    assert torch.equal(o, expected)
    assert state == []
    of_arithmetic = torch.promote_types(dtype, torch.float32)
    for found, (q, k) in zip(saved, ((q_t, k_t), (q_s, k_s)), strict=True):
        rows = log_sum_exps(q, k, mask, **options)
        seen = rows.isfinite()
        assert found.dtype == of_arithmetic
        assert (found.double() - rows)[seen].abs().max() < BOUNDS[dtype]


@pytest.mark.parametrize("name", SAVING)
def test_the_gradient_takes_what_was_saved(name):
    inputs, options = recorded(relation(dtype=torch.float64, **RELATIONS[name]))
    o, _, saved = torch.ops.stretto.relation_kl_recorded(*inputs, **options)
    wanted = [name in ("q_s", "k_s") and x is not None for name, x in zip(("q_s", "q_t", "k_s"), inputs, strict=False)]
    wanted += [False] * (len(inputs) - len(wanted))
    cotangent = torch.randn(o.shape, dtype=o.dtype, generator=torch.Generator().manual_seed(1))

    def run(saved):
        return torch.ops.stretto.relation_kl_backward(
            *inputs, **options, wanted=wanted, cotangents=[cotangent], saved=saved
        )

    for anew, found, other in zip(run(None), run(saved), run([x + 1 for x in saved]), strict=True):
        torch.testing.assert_close(found, anew, rtol=0, atol=1e-12)
        assert not torch.allclose(other, found)


def test_the_gradient_of_some_takes_its_own():
    """The gradient of keys keeps the same rows as that of all."""
    arguments = relation(keys=True, dtype=torch.float64)
    every = gradients(relation_loss, arguments, torch.tensor(1.0))
    for name in ("q_s", "k_s"):
        leaf = arguments[name].clone().requires_grad_()
        (found,) = torch.autograd.grad(relation_loss({**arguments, name: leaf}), leaf)
        torch.testing.assert_close(found, every[name], rtol=0, atol=1e-14)
        leaves = {name: arguments[name].clone().requires_grad_() for name in ("q_s", "k_s")}
        (found,) = torch.autograd.grad(relation_loss({**arguments, **leaves}), leaves[name])
        torch.testing.assert_close(found, every[name], rtol=0, atol=1e-14)


def test_saved_rows_that_do_not_fit_are_refused():
    q = torch.randn(1, 8, 2, 16)
    (row, *_), given = torch.ops.stretto.relation_kl_recorded(q, q)[2], {"wanted": [True, False, False, False, False]}
    backward = torch.ops.stretto.relation_kl_backward
    with pytest.raises(RuntimeError, match=r"relation_kl: \[R14\] 'saved' has 1 rows, expected 2"):
        backward(q, q, **given, cotangents=[row], saved=[row])
    with pytest.raises(RuntimeError, match=r"the row 1 of 'saved' has shape \[1, 7, 2\].*expected \[1, 8, 2\]"):
        backward(q, q, **given, cotangents=[row], saved=[row, row[:, 1:]])
    with pytest.raises(RuntimeError, match=r"the row 0 of 'saved' has .* type Double .*, Float"):
        backward(q, q, **given, cotangents=[row], saved=[row.double(), row])


def test_a_recorded_call_is_not_differentiated():
    q = torch.randn(1, 8, 2, 16, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"\[R14\] a recorded call has no gradient; call the operator itself"):
        torch.ops.stretto.relation_kl_recorded(q, q)


def test_softmax_saves_nothing():
    """What its gradient keeps is made of a cotangent, too."""
    q, k, v = (torch.randn(1, 20, 2, 16) for _ in range(3))
    *_, saved = torch.ops.stretto.swa_recorded(q, k, v, window=9.0)
    assert saved == []
    assert not hasattr(torch.ops.stretto, "gla_recorded")


def test_a_graph_may_be_walked_twice():
    leaf = torch.randn(1, 70, 2, 16, dtype=torch.float64, requires_grad=True)
    loss = stretto.ops.relation_kl(leaf, torch.randn(1, 70, 2, 16, dtype=torch.float64))
    first, second = (torch.autograd.grad(loss, leaf, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


def test_opcheck():
    q_s, q_t = (torch.randn(1, 20, 2, 16, dtype=torch.float64) for _ in range(2))
    torch.library.opcheck(torch.ops.stretto.relation_kl.default, (q_s.requires_grad_(), q_t))
    torch.library.opcheck(torch.ops.stretto.relation_kl_recorded.default, (q_s.detach(), q_t))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_calls_save_rows(dynamic):
    torch._dynamo.reset()
    graphs = []

    def keep(graph, _):
        graphs.extend(str(node.target) for node in graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    run = torch.compile(
        lambda q, k: stretto.ops.relation_kl(q * 1.0, k), fullgraph=True, dynamic=dynamic, backend=backend
    )
    for T in (70, 90):
        q = torch.randn(1, T, 2, 16, dtype=torch.float64, requires_grad=True)
        k = torch.randn(1, T, 2, 16, dtype=torch.float64)
        (found,) = torch.autograd.grad(run(q, k), q)
        (expected,) = torch.autograd.grad(stretto.ops.relation_kl(q, k), q)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-14)
    assert "stretto.relation_kl_recorded.default" in graphs
    assert "stretto.relation_kl_backward.default" in graphs
    assert "stretto.relation_kl.default" not in graphs


def test_saved_rows_are_seen_by_hooks_and_made_again_by_checkpoints():
    q, k = (torch.randn(1, 70, 2, 16, dtype=torch.float64) for _ in range(2))
    q.requires_grad_()
    (expected,) = torch.autograd.grad(stretto.ops.relation_kl(q, k), q)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x.shape) or x, lambda x: x):
        loss = stretto.ops.relation_kl(q, k)
    assert packed.count(torch.Size([1, 70, 2])) == 2
    assert torch.equal(torch.autograd.grad(loss, q)[0], expected)
    again = checkpoint(stretto.ops.relation_kl, q, k, use_reentrant=False)
    assert torch.equal(torch.autograd.grad(again, q)[0], expected)


def test_explain_says_what_the_call_saves():
    q_s, q_t = (torch.randn(1, 70, 2, 16) for _ in range(2))
    found = stretto.ops.relation_kl.variant.explain(q_s=q_s, q_t=q_t, backward=True)
    assert [row["by_the_call"] for row in found["saved"]] == [True, True]
    q, k, v = (torch.randn(1, 70, 2, 16) for _ in range(3))
    found = stretto.ops.swa.variant.explain(q=q, k=k, v=v, window=9, backward=True)
    assert [row["by_the_call"] for row in found["saved"]] == [False, False, False]
