"""Rows that a call saves for its gradient: what a recorded call leaves, that the gradient takes it in place of a walk
that finds it, and that PyTorch sees an operator like others.
"""

import pathlib
import sys

import pytest
import stretto
import torch
from functorch.compile import make_boxed_func
from stretto import lang as sl
from test_lookback_gradients import gradients, relation_loss
from test_lookbacks import RELATIONS, relation
from torch._dynamo.backends.common import aot_autograd
from torch.utils.checkpoint import checkpoint

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "bench"))
from baselines import inputs
from operators import OPERATORS

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


@stretto.variant
def normalised_gla(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row["K"](heads="G")):
    S = sl.decay(sl.state("K", "V + 1"), log=g, along="K")
    S = sl.write(S, k, sl.append(v, 1.0))
    numerator, denominator = sl.split(sl.read(S, q, along="K"), "V")
    return numerator / denominator


def decayed_sums(q, k, v, g):
    """The same by its definition in fp64, a token after the other, and what its tokens are divided by."""
    keys, state, rows, sums = 0, 0, [], []
    k, v, g = (x.repeat_interleave(q.shape[2] // x.shape[2], 2) for x in (k, v, g))
    for t in range(q.shape[1]):
        decay = g[:, t].exp()
        keys = decay * keys + k[:, t]
        state = decay[..., None] * state + k[:, t, :, :, None] * v[:, t, :, None]
        sums.append((q[:, t] * keys).sum(-1))
        rows.append((q[:, t, :, None] @ state)[..., 0, :] / sums[-1][..., None])
    return torch.stack(rows, 1), torch.stack(sums, 1)


# How many rows calls save, with which their gradients take the result.
SAVED = {"normalised_gla": 1, "lawcat": 1, "linear_attn_normalized": 0, "swa": 0, "lolcats": 0, "supra": 0, "gla": 0}


def leaves_of(name, shape=(2, 70, 2, 16), key_heads=None, dtype=torch.float64, device="cpu"):
    B, T, H, D = shape
    made_as = "gla" if name == "normalised_gla" else name
    given = inputs.make(made_as, B, T, H, D, dtype=torch.float64, device=device, key_heads=key_heads)
    if name == "normalised_gla":
        given |= {key: given[key].exp() for key in "qk"}
    return {key: x.to(dtype).requires_grad_() for key, x in given.items()}


def run(name, leaves):
    return normalised_gla(**leaves) if name == "normalised_gla" else OPERATORS[name].call()(**leaves)


def gradients_of(name, leaves):
    o = run(name, leaves)
    cotangent = torch.randn(o.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1)).to(o)
    return torch.autograd.grad(o, leaves.values(), cotangent)


def check_what_calls_save(name, dtype=torch.float64, device="cpu"):
    """A graph holds a few numbers of each token, and the result; the gradient is made of these."""
    leaves = leaves_of(name, dtype=dtype, device=device)
    given = {x.data_ptr() for x in leaves.values()}
    expected = gradients_of(name, leaves)
    B, T, H = leaves["q"].shape[:3]
    for shape in ((B, T, H), (B, T, H, leaves["v"].shape[-1])):
        met = []

        def unpack(x, shape=shape, met=met):
            if x.shape != shape or x.data_ptr() in given:
                return x
            met.append(x)
            return x * 1.5

        with torch.autograd.graph.saved_tensors_hooks(lambda x: x, unpack):
            found = gradients_of(name, leaves)
        assert len(met) == SAVED[name]
        same = all(torch.equal(a, b) for a, b in zip(found, expected, strict=True))
        assert same == (not met)


@pytest.mark.parametrize("name", SAVED)
def test_what_calls_save(name):
    check_what_calls_save(name)


def check_normalisers(dtype, bound, shape=(2, 150, 4, 32), device="cpu"):
    """What tokens are divided by, and gradients that are made of it, against the definition in fp64."""
    leaves = leaves_of("normalised_gla", shape, key_heads=2, dtype=dtype, device=device)
    packed = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: packed.append(x) or x, lambda x: x):
        o = run("normalised_gla", leaves)
    (found,) = (x for x in packed if x.dim() == 3)
    assert found.dtype == torch.promote_types(dtype, torch.float32)
    assert any(x.data_ptr() == o.data_ptr() for x in packed)
    wide = {key: x.detach().double().requires_grad_() for key, x in leaves.items()}
    rows, sums = decayed_sums(**wide)
    assert ((found - sums).abs() / sums).max() < bound
    cotangent = torch.randn(o.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(rows, wide.values(), cotangent.to(rows))
    for a, b in zip(torch.autograd.grad(o, leaves.values(), cotangent.to(o)), expected, strict=True):
        assert (a.double() - b).norm() / b.norm() < bound


@pytest.mark.parametrize("dtype, bound", [(torch.float64, 1e-10), (torch.float32, 1e-4), (torch.bfloat16, 2e-2)])
def test_normalisers_are_saved(dtype, bound):
    check_normalisers(dtype, bound)


@pytest.mark.parametrize("T", [1, 64, 70, 200])
def test_gradients_that_find_all_anew_are_the_same(T):
    leaves = leaves_of("lawcat", (2, T, 2, 16))
    given = [x.detach() for x in leaves.values()]
    o, _, saved = torch.ops.stretto.lawcat_recorded(*given)
    wanted = [True] * len(given)
    cotangent = torch.randn(o.shape, dtype=o.dtype, generator=torch.Generator().manual_seed(1))
    backward = torch.ops.stretto.lawcat_backward
    anew, found = (backward(*given, wanted=wanted, cotangents=[cotangent], saved=rows) for rows in (None, [*saved, o]))
    for a, b in zip(found, anew, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10 * max(b.abs().max().item(), 1))
    with pytest.raises(RuntimeError, match=r"\[R14\] 'saved' has 1 rows, expected 2"):
        backward(*given, wanted=wanted, cotangents=[cotangent], saved=saved)


def test_a_result_that_was_changed_is_refused():
    loss = run("lawcat", leaves_of("lawcat")).mul_(2).sum()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


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


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_calls_hand_results_on(dynamic):
    torch._dynamo.reset()
    graphs = []

    def keep(graph, _):
        graphs.extend(graph.graph.nodes)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    compiled = torch.compile(
        lambda **leaves: stretto.ops.lawcat(**leaves)[0] * 1.0, fullgraph=True, dynamic=dynamic, backend=backend
    )
    for T in (70, 90):
        leaves = leaves_of("lawcat", (1, T, 2, 16))
        found = torch.autograd.grad(compiled(**leaves).sum(), leaves.values())
        expected = torch.autograd.grad(run("lawcat", leaves).sum(), leaves.values())
        for a, b in zip(found, expected, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    (backward, *_) = (node for node in graphs if str(node.target) == "stretto.lawcat_backward.default")
    (saved,) = (given for given in (*backward.args, *backward.kwargs.values())[-1:])
    assert "stretto.lawcat_recorded.default" in {str(node.target) for node in graphs} and len(saved) == 2


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
