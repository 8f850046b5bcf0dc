"""Gradients whose sequences are divided into segments that are walked side by side, forwards and back, against autograd
through closed formulas, and against walks over whole sequences.
"""

import itertools

import pytest
import stretto
import torch
from formulas.examples import WITH_DECAY, example
from test_gradients import LOOKING_BACK
from test_operator_gradients import FIRST, WIDE, check, explanation, gradients, segments_of, walks_of
from test_segments import segments

# What a walk back carries depends on reads of it.
FEEDS_BACK = {
    "delta_rule": "what changes the state 'd_S' depends on this read",
    "gated_delta_rule": "what changes the state 'd_S' depends on this read",
    "abc": "what changes the state 'd_s_logaddexp' depends on this read",
}
# One walk would carry what is added to earlier rows, too.
OF_TWO_WALKS = ("lawcat",)
ADDING_UP = ("ssd", "lawcat", "supra", "lolcats", "rwkv6")
SIDE_BY_SIDE = [name for name in FIRST if name not in {*FEEDS_BACK, "swa"}]
WALKS = [(name, walks) for name in SIDE_BY_SIDE for walks in (1, 2) if walks == 2 or name not in OF_TWO_WALKS]
TOKENS = 200


@pytest.mark.parametrize(("name", "walks"), WALKS)
def test_gradients_agree_with_autograd(name, walks):
    """From states, and with cotangents of the final ones; in segments of several chunks, and of one. The last has fewer
    tokens than convolutions look back to."""
    with segments(2 if walks == 1 else 1000), walks_of(walks):
        for tokens in (33, 130, TOKENS):
            arguments, state = example(name, tokens=tokens, **FIRST[name])
            check(name, arguments, state)
        found, _ = explanation(name, TOKENS, torch.float64)
    schedules = {kernel["kernel"].removeprefix(f"{name}_backward"): kernel["schedule"] for kernel in found["kernels"]}
    back = "_cotangents" if walks == 2 else ""
    assert {"_checkpoints", "_cotangent_writes", "_cotangent_starts", back} <= schedules.keys()
    assert {schedules[kernel] for kernel in ("_checkpoints", "_cotangent_writes", back)} == {"segmented"}
    others = {*(["_sum_turns"] if name in ADDING_UP else []), *(["_cotangent_tails"] if name == "lawcat" else [])}
    assert {kernel for kernel in schedules if kernel in ("_sum_turns", "_cotangent_tails")} == others
    adds_up_apart = walks == 2 and name in ("lolcats", "lawcat", "supra")
    assert not others or schedules["_sums" if adds_up_apart else ""] == "segmented"
    assert "why_serial" not in found
    assert found["segments"] * found["side_by_side"] > 1


@pytest.mark.parametrize("name", SIDE_BY_SIDE)
def test_narrow_types(name):
    with segments(3), walks_of(2):
        check(name, *example(name, tokens=150, **FIRST[name] | WIDE.get(name, {})), torch.bfloat16)


@pytest.mark.parametrize("name", sorted(set(WITH_DECAY) & set(SIDE_BY_SIDE)))
def test_regimes_of_decay(name):
    with segments(4), walks_of(2):
        for regime in ("strong", "zeros", "mixed"):
            check(name, *example(name, tokens=130, regime=regime, **FIRST[name]))


def packed_gradients(name, lengths, dtype=torch.float64, device="cpu", options=None):
    """With a state for each sequence, where it can be continued."""
    offsets = torch.tensor([0, *lengths], device=device).cumsum(0)
    options = options or FIRST[name]
    arguments, _ = example(name, tokens=sum(lengths), batch=1, **options)
    state = example(name, tokens=1, batch=len(lengths), **options)[1] if name not in LOOKING_BACK else []
    arguments = {
        key: x.to(dtype) if isinstance(x, torch.Tensor) and x.is_floating_point() else x for key, x in arguments.items()
    }
    state = [x.to(dtype) if x.is_floating_point() else x for x in state]
    generator = torch.Generator().manual_seed(1)
    values = arguments["x" if "x" in arguments else "v"]
    d_output = torch.randn(*values.shape[:2], 4, values.shape[-1], generator=generator)
    return gradients(name, arguments, state, d_output, {}, device, cu_seqlens=offsets)


@pytest.mark.parametrize(
    ("name", "walks"),
    [
        *((name, 2) for name in ("linear_attn", "gla", "ssd", "lawcat", "gsa", "rwkv6", "lolcats")),
        *((name, 1) for name in ("gla", "ssd", "rwkv6", "lolcats")),
    ],
)
@pytest.mark.parametrize("chunks", [0, 3])
def test_packed_sequences(name, walks, chunks):
    """Some are empty, or end before others: in each of the segments that memory asks for, of so many chunks."""
    for lengths in ([0, 17, 1, 0, 64, 133, 0], [300, 1, 1], [40] * 8):
        with walks_of(walks):
            whole = packed_gradients(name, lengths)
            with segments(1000), segments_of(chunks):
                found = packed_gradients(name, lengths)
        for key, expected in whole.items():
            assert (found[key] - expected).norm() <= 1e-10 * expected.norm().clamp(min=1), (key, lengths)


@pytest.mark.parametrize("name", ["gla", "rwkv6", "ssd"])
@pytest.mark.parametrize(("chunks", "count"), [*itertools.product([1, 2, 5], [2, 7])])
def test_segments_in_segments(name, chunks, count):
    """What memory divides once more, sums over all tokens among it."""
    with segments(count), segments_of(chunks):
        check(name, *example(name, tokens=330, **FIRST[name]))


@pytest.mark.parametrize(("chunks", "count"), [*itertools.product([0, 1, 2, 5], [2, 7])])
def test_the_walk_forward_finds_what_only_adds_up(chunks, count):
    """Of linear attention it leaves the gradient of queries, and what each segment writes to the state of reverse time,
    of segments that memory asks for one after the other as well."""
    options = {"normalize": False}
    lengths = [300, 1, 0, 133, 64]
    whole = packed_gradients("linear_attn", lengths, options=options)
    with segments(count), segments_of(chunks), walks_of(1):
        check("linear_attn", *example("linear_attn", tokens=330, **options))
        found, _ = explanation("linear_attn", 330, torch.float64, **options)
        divided = packed_gradients("linear_attn", lengths, options=options)
    kernels = [kernel["kernel"].removeprefix("linear_attn_backward") for kernel in found["kernels"]]
    assert kernels == ["_checkpoints", "_cotangent_starts", ""]
    for key, expected in whole.items():
        assert (divided[key] - expected).norm() <= 1e-10 * expected.norm().clamp(min=1), key


@pytest.mark.parametrize("wanted", [("q",), ("v",), ("g",), ("S",), ("k", "S")])
def test_some_gradients(wanted):
    """What is not asked for has no kernel: a walk forwards alone, or back alone."""
    arguments, state = example("gla", tokens=150, **FIRST["gla"])
    rows = {
        key: x.detach().requires_grad_(key in wanted) for key, x in arguments.items() if isinstance(x, torch.Tensor)
    }
    found = []
    for count in (1, 3):
        entry = state[0].detach().clone().requires_grad_("S" in wanted)
        leaves = [*(rows[key] for key in wanted if key != "S"), *([entry] if "S" in wanted else [])]
        with segments(count):
            output, final = stretto.ops.gla(**rows, initial_state={"S": entry}, output_final_state=True)
            found.append(torch.autograd.grad(output.sum() + final["S"].square().sum(), leaves))
    for one, other in zip(*found, strict=True):
        assert (one - other).norm() <= 1e-10 * one.norm()


@pytest.mark.parametrize(("name", "walks"), [(name, 2) for name in FEEDS_BACK] + [(name, 1) for name in OF_TWO_WALKS])
def test_what_is_walked_one_segment_after_the_other_says_why(name, walks):
    with segments(3), walks_of(walks):
        check(name, *example(name, tokens=100, **FIRST[name]))
        found, _ = explanation(name, TOKENS, torch.float64)
        variant = getattr(stretto.ops, name).variant
        why = FEEDS_BACK.get(name, "what is added to earlier rows is carried with the states")
        with pytest.raises(stretto.Error, match=f"no segmented form: {why}"):
            variant.lower("chunk", backward=True, segments=True)
    assert found["why_serial"].startswith(f"no segments side by side: {why}")
    assert "side_by_side" not in found
    assert all(kernel["schedule"] != "segmented" for kernel in found["kernels"])


def test_a_gradient_without_states_has_no_segments():
    with pytest.raises(stretto.Error, match="'swa_backward': no segmented form: it carries no state"):
        stretto.ops.swa.variant.lower("chunk", backward=True, segments=True, window=64)
