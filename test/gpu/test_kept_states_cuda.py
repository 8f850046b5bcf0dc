"""States that a recorded call keeps for its gradient (runtime/KeptStates.h), beside gradients that find them anew."""

import pytest
import stretto
import torch
from formulas.examples import example
from test_operator_gradients import FIRST

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

# Those that keep the states at the start of chunks, and others, which in segments keep what these begin with.
KEEPING = ["gla", "hgrn2", "rwkv6", "simple_gla", "delta_rule", "gated_delta_rule"]
OF_SEGMENTS = ["linear_attn", "retention", "bla", "gsa", "lolcats", "supra"]
# What is found anew is rounded at other places.
CLOSE = 4e-3


def rows_of(name, batch, tokens, heads, width=128, value_width=None):
    generator = torch.Generator("cuda").manual_seed(1)

    def draw(*sizes):
        return torch.randn(batch, tokens, heads, *sizes, device="cuda", generator=generator)

    rows = {key: draw(width) for key in ("q", "k")} | {"v": draw(value_width or width)}
    if name == "gla":
        rows["g"] = torch.nn.functional.logsigmoid(draw(width)) / 16
    elif name == "hgrn2":
        rows["f"] = torch.sigmoid(draw(width) + 3)
        del rows["k"]
    elif name == "rwkv6":
        rows = {"r": rows.pop("q")} | rows | {"w": torch.nn.functional.logsigmoid(draw(width)) / 16}
        rows["u"] = torch.randn(heads, width, device="cuda", generator=generator)
    elif name in ("simple_gla", "gated_delta_rule"):
        rows["g"] = torch.nn.functional.logsigmoid(draw()) / 16
    if "delta" in name:
        rows["k"] = torch.nn.functional.normalize(rows["k"], dim=-1)
        rows["beta"] = torch.sigmoid(draw())
    return {key: x.to(torch.bfloat16).requires_grad_() for key, x in rows.items()}


def gradients(name, rows, keep, **keywords):
    before = torch.ops.stretto._set_keep_states(keep)
    try:
        allocated = torch.cuda.memory_allocated()
        output = getattr(stretto.ops, name)(**rows, **keywords)
        output = output[0] if isinstance(output, tuple) else output
        kept = torch.cuda.memory_allocated() - allocated - output.nbytes
        cotangent = torch.randn(output.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(2))
        return (
            torch.autograd.grad(output, list(rows.values()), cotangent.to(output.dtype), retain_graph=True),
            kept,
            output,
        )
    finally:
        torch.ops.stretto._set_keep_states(before)


@pytest.mark.parametrize("batch, tokens, heads", [(1, 8192, 32), (1, 2100, 8), (8, 1024, 32), (200, 130, 2)])
@pytest.mark.parametrize("name", KEEPING)
def test_they_are_those_that_are_found_anew(name, batch, tokens, heads):
    rows = rows_of(name, batch, tokens, heads)
    kept, bytes_kept, _ = gradients(name, rows, keep=True)
    anew, bytes_anew, _ = gradients(name, rows, keep=False)
    for one, other in zip(kept, anew, strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()
    # A state of 32 KiB for each 64 tokens of a head, and no more than two inputs where that is much. With many heads
    # the gated delta rule's gradient has cotangents of all chunks beside, which take as much.
    states = batch * -(-tokens // 64) * heads * 128 * 128 * 2
    is_kept = states <= max(2 * rows["v"].nbytes, 32 << 20) and (name, batch) != ("gated_delta_rule", 8)
    # Where few heads have their walks divided among slices, gradients of channels ask for states of 32 tokens.
    is_kept = is_kept and (name, batch, heads) not in {(of_channels, 1, 8) for of_channels in ("gla", "hgrn2", "rwkv6")}
    assert bytes_anew < states / 2
    if is_kept:
        assert states <= bytes_kept < 1.1 * states
    else:
        assert bytes_kept < states / 2


@pytest.mark.parametrize("batch, tokens, heads", [(1, 8192, 32), (8, 1024, 32)])
def test_values_whose_tiles_leave_others_one_place(batch, tokens, heads):
    rows = rows_of("gla", batch, tokens, heads, value_width=96)
    kept, bytes_kept, output = gradients("gla", rows, keep=True)
    anew, _, expected = gradients("gla", rows, keep=False)
    assert bytes_kept
    assert (output.float() - expected.float()).norm() <= CLOSE * expected.float().norm()
    for one, other in zip(kept, anew, strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()


@pytest.mark.parametrize("name", KEEPING)
def test_packed_sequences(name):
    lengths = [1, 700, 0, 63, 64, 65, 1155]
    offsets = torch.tensor([sum(lengths[:count]) for count in range(len(lengths) + 1)], device="cuda")
    rows = rows_of(name, 1, int(offsets[-1]), 16)
    kept, _, _ = gradients(name, rows, keep=True, cu_seqlens=offsets)
    anew, _, _ = gradients(name, rows, keep=False, cu_seqlens=offsets)
    for one, other in zip(kept, anew, strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()


def example_rows(name, batch, tokens, heads, key_heads=None):
    """bf16 rows on the device that gradients are asked of, and what else a call takes."""
    torch.manual_seed(3)
    sizes = {} if name == "bla" else {"width": 64, "value_width": 64}
    sizes |= {"heads": heads, "key_heads": key_heads or heads}
    arguments = example(name, tokens=tokens, batch=batch, **FIRST[name] | sizes)[0]
    rows = {
        key: x.to("cuda", torch.bfloat16).requires_grad_()
        for key, x in arguments.items()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
    }
    return rows, {key: x for key, x in arguments.items() if key not in rows}


@pytest.mark.parametrize("lengths", [None, [1500, 0, 1645]])
@pytest.mark.parametrize("name", OF_SEGMENTS)
def test_what_segments_begin_with_is_kept(name, lengths):
    rows, others = example_rows(name, 1, sum(lengths) if lengths else 4000, 8)
    if lengths:
        others["cu_seqlens"] = torch.tensor([0, *lengths], device="cuda").cumsum(0)
    kept, bytes_kept, _ = gradients(name, rows, keep=True, **others)
    anew, bytes_anew, _ = gradients(name, rows, keep=False, **others)
    assert bytes_kept > bytes_anew or lengths
    for one, other in zip(kept, anew, strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()


@pytest.mark.parametrize("lengths", [None, [1500, 0, 2500]])
@pytest.mark.parametrize("name, key_heads", [("lawcat", 16), ("lawcat", 4), ("supra", 16)])
def test_features_are_kept(name, key_heads, lengths):
    """Of LAWCAT two rows of each head and one of its keys, of SUPRA two. Where keys have fewer heads, those of a call's
    one part would be others than the gradient's three take."""
    rows, others = example_rows(name, 1, 4000, 16, key_heads)
    if lengths:
        others["cu_seqlens"] = torch.tensor([0, *lengths], device="cuda").cumsum(0)
    kept, bytes_kept, _ = gradients(name, rows, keep=True, **others)
    anew, bytes_anew, _ = gradients(name, rows, keep=False, **others)
    features = 2 * rows["q"].nbytes + (rows["z"].nbytes if name == "lawcat" else 0)
    assert features <= bytes_kept - bytes_anew < features + 2 * rows["q"].nbytes
    for one, other in zip(kept, anew, strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()


def test_features_whose_gradients_nobody_wants_are_kept():
    rows, others = example_rows("lawcat", 1, 4000, 16)
    for name, row in rows.items():
        row.requires_grad_(name in ("q", "conv_q"))
    output, _ = stretto.ops.lawcat(**rows, **others)
    cotangent = torch.randn_like(output)
    found = torch.autograd.grad(output, [rows["q"], rows["conv_q"]], cotangent)
    for row in rows.values():
        row.requires_grad_(True)
    output, _ = stretto.ops.lawcat(**rows, **others)
    for one, other in zip(found, torch.autograd.grad(output, [rows["q"], rows["conv_q"]], cotangent), strict=True):
        assert (one.float() - other.float()).norm() <= CLOSE * other.float().norm()


def test_calls_of_few_rows_keep_no_features():
    rows, others = example_rows("lawcat", 1, 1000, 16)
    _, bytes_kept, _ = gradients("lawcat", rows, keep=True, **others)
    assert bytes_kept < rows["q"].nbytes


def test_a_gradient_may_be_asked_for_again_and_is_the_same():
    rows = rows_of("gla", 1, 4096, 16)
    first, _, output = gradients("gla", rows, keep=True)
    cotangent = torch.randn(output.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    again = torch.autograd.grad(output, list(rows.values()), cotangent.to(output.dtype))
    assert all(torch.equal(one, other) for one, other in zip(first, again, strict=True))


def test_compiled_graphs_find_them_anew():
    rows = rows_of("gla", 1, 2048, 16)
    eager, _, _ = gradients("gla", rows, keep=False)

    def loss(*given):
        output = stretto.ops.gla(**dict(zip(rows, given, strict=True)))
        return output[0] if isinstance(output, tuple) else output

    output = torch.compile(loss, backend="aot_eager", fullgraph=True)(*rows.values())
    cotangent = torch.randn(output.shape, device="cuda", generator=torch.Generator("cuda").manual_seed(2))
    found = torch.autograd.grad(output, list(rows.values()), cotangent.to(output.dtype))
    assert all(torch.equal(one, other) for one, other in zip(found, eager, strict=True))
