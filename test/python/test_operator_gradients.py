"""Gradients of the operators in PyTorch, on the CPU, against autograd through the closed formulas.

Cotangents come in at the results and at the final state, gradients go out at rows, parameters and the initial state.
"""

import contextlib
import itertools

import pytest
import stretto
import torch
from formulas import FORMULAS
from formulas.examples import REGIMES, WITH_DECAY, example
from stretto import lang as sl
from test_gradients import LOOKING_BACK, by_autograd, entry_names
from test_reference import CASES, in_our_words

RUNNING = [(name, options) for name, options in CASES if name != "relation_kl"]  # that one is a loss, without a state
FIRST = dict(reversed(RUNNING))  # of each name, its first options
# Of states and rows, and of gates and parameters (design, section 5; in fp64 as the token-by-token gradients).
TOLERANCES = {torch.float64: (1e-10, 1e-10), torch.float32: (2e-5, 1e-4), torch.bfloat16: (1.2e-2, 2e-2),
              torch.float16: (3e-3, 5e-3)}  # fmt: skip


def gradients(name, arguments, state, d_output, d_state, device="cpu", **keywords):
    """Those of the operator, by the names of arguments and entries. Without a state there is no initial one."""

    def fresh(x):
        return x.detach().to(device, copy=True) if isinstance(x, torch.Tensor) else x

    leaves = {key: fresh(x) for key, x in in_our_words(arguments).items()}
    has_state = state and name not in LOOKING_BACK
    entries = {key: fresh(x) for key, x in zip(entry_names(name), state, strict=True)} if has_state else {}
    wanted = {
        key: x.requires_grad_()
        for key, x in (leaves | entries).items()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
    }
    output, final = getattr(stretto.ops, name).variant(
        **leaves, initial_state=entries or None, output_final_state=True, **keywords
    )
    results = [output, *(final[key] for key in d_state)]
    cotangents = [x.to(y) for x, y in zip([d_output, *d_state.values()], results, strict=True)]
    found = torch.autograd.grad(results, list(wanted.values()), cotangents, allow_unused=True)
    return dict(zip(wanted, found, strict=True))


def check(name, arguments, state, dtype=torch.float64, device="cpu", **keywords):
    """Judges each gradient by its own size, or by the size that the terms of its sum have by nature. Without a state,
    the one that is given is what no tokens have left.
    """
    rows = {key: x for key, x in arguments.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    arguments = arguments | {key: x.to(dtype) for key, x in rows.items()}
    accumulator = torch.promote_types(dtype, torch.float32)
    types = [dtype if entry.endswith("_tail") else accumulator for entry in entry_names(name)]
    state = [x.to(own) if x.is_floating_point() else x for x, own in zip(state, types, strict=True)]
    exact = arguments | {key: arguments[key].double() for key in rows}
    generator = torch.Generator().manual_seed(1)
    d_output, d_state, expected = by_autograd(
        name, exact, [x.double() if x.is_floating_point() else x for x in state], generator
    )
    d_output = d_output.to(dtype).double()
    generator = torch.Generator().manual_seed(1)
    found = gradients(name, arguments, state, d_output, d_state, device, **keywords)
    expected = {key: value for key, value in expected.items() if key in found}
    of_rows, of_others = TOLERANCES[dtype]
    for key, value in expected.items():
        tolerance = of_rows if key in ("q", "k", "v", "r", "x", "B", "C") else of_others
        deviation = (found[key].cpu().double().reshape(value.shape) - value).norm().item()
        assert deviation <= tolerance * max(value.norm().item(), 1.0), (key, deviation, value.norm().item())


@pytest.mark.parametrize(("name", "options"), RUNNING)
@pytest.mark.parametrize("tokens", [0, 1, 64, 65, 130])
def test_gradients_agree_with_autograd(name, options, tokens):
    arguments, state = example(name, tokens=tokens, **options)
    check(name, arguments, state)


# SUPRA's norm divides by the deviation of an output row. A row of few numbers may have next to none, and then its
# gradient is as ill-conditioned as it is large: what rounds is judged where rows are as wide as in use.
WIDE = {"supra": {"width": 32, "value_width": 32}}


# A GPU runs all operators in all types; here fp16 differs from bf16 in how numbers are read and rounded, whatever reads
# them.
NARROW = ["gla", "lawcat", "gsa", "gated_delta_rule", "lolcats"]
TYPES = [*itertools.product(FIRST, [torch.float32, torch.bfloat16]), *((name, torch.float16) for name in NARROW)]


@pytest.mark.parametrize(("name", "dtype"), TYPES)
def test_gradients_of_types(name, dtype):
    arguments, state = example(name, tokens=100, **(FIRST[name] | WIDE.get(name, {})))
    check(name, arguments, state, dtype)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", WITH_DECAY)
def test_gradients_in_regimes_of_decay(name, regime):
    options = next(options for other, options in CASES if other == name)
    arguments, state = example(name, tokens=100, regime=regime, **options)
    check(name, arguments, state)


@pytest.mark.parametrize("regime", REGIMES)
@pytest.mark.parametrize("name", ["gla", "simple_gla", "ssd"])
def test_gradients_in_regimes_of_decay_in_fp32(name, regime):
    """A sum over pairs of tokens around one that forgets everything is 0, and no remainder of larger sums."""
    arguments, state = example(name, tokens=100, regime=regime, **FIRST[name])
    check(name, arguments, state, torch.float32)


@pytest.mark.parametrize("name", ["gla", "simple_gla", "linear_attn", "delta_rule", "gsa", "ssd"])
@pytest.mark.parametrize(("heads", "key_heads"), [(1, 1), (6, 3), (4, 4), (4, 1)])
def test_gradients_of_grouped_heads(name, heads, key_heads):
    arguments, state = example(name, tokens=70, heads=heads, key_heads=key_heads)
    check(name, arguments, state)


def inputs(tokens=20):
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, tokens, 2, width, dtype=torch.float64, generator=generator) for width in (8, 8, 4, 8))
    return [x.requires_grad_() for x in (q, k, v, -g.abs())]


def test_gradcheck():
    assert torch.autograd.gradcheck(lambda *rows: stretto.ops.gla(*rows)[0], inputs(tokens=5), fast_mode=True)


def test_second_derivatives_are_refused():
    q, k, v, g = inputs()
    output, _ = stretto.ops.gla(q, k, v, g)
    with pytest.raises(RuntimeError, match=r"\[R14\] a second derivative is asked for"):
        torch.autograd.grad(output.sum(), q, create_graph=True)


def test_packed_sequences_are_apart():
    q, k, v, g = inputs(tokens=90)
    offsets = torch.tensor([0, 0, 17, 17, 81, 90])
    output, state = stretto.ops.gla(q, k, v, g, output_final_state=True, cu_seqlens=offsets)
    d_output, d_state = torch.randn_like(output), torch.randn_like(state["S"])
    packed = torch.autograd.grad([output, state["S"]], [q, k, v, g], [d_output, d_state])
    for index, (start, end) in enumerate(zip(offsets[:-1].tolist(), offsets[1:].tolist(), strict=True)):
        rows = [x[:, start:end].detach().clone().requires_grad_() for x in (q, k, v, g)]
        alone, own = stretto.ops.gla(*rows, output_final_state=True)
        expected = torch.autograd.grad([alone, own["S"]], rows, [d_output[:, start:end], d_state[index : index + 1]])
        for found, x in zip(packed, expected, strict=True):
            torch.testing.assert_close(found[:, start:end], x, rtol=0, atol=1e-12)


def test_strided_and_expanded_inputs():
    q, k, v, g = inputs(tokens=33)
    expected = torch.autograd.grad(stretto.ops.gla(q, k, v, g)[0].square().sum(), [q, k, v, g])
    wide = [torch.cat([x, x], -1).detach().transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v, g)]
    strided = [x[..., : x.shape[-1] // 2].requires_grad_() for x in wide]
    found = torch.autograd.grad(stretto.ops.gla(*strided)[0].square().sum(), strided)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)
    one = v[:, :, :1].detach().expand_as(v).requires_grad_()
    (gradient,) = torch.autograd.grad(stretto.ops.gla(q, k, one, g)[0].sum(), one)
    assert gradient.shape == v.shape


def test_reruns_are_identical():
    q, k, v, g = inputs(tokens=200)
    first, second = (torch.autograd.grad(stretto.ops.gla(q, k, v, g)[0].sum(), [q, k, v, g]) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


def test_the_backward_operator_is_checked_by_pytorch():
    q, k, v, g = inputs(tokens=20)
    torch.library.opcheck(torch.ops.stretto.gla.default, (q, k, v, g))
    compiled = torch.compile(lambda *rows: stretto.ops.gla(*rows)[0].square().sum(), fullgraph=True)
    found = torch.autograd.grad(compiled(q, k, v, g), [q, k, v, g])
    expected = torch.autograd.grad(stretto.ops.gla(q, k, v, g)[0].square().sum(), [q, k, v, g])
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


# ------------------------------------------------------------------------------------------------ segments
@contextlib.contextmanager
def setting(change, value):
    before = change(value)
    try:
        yield
    finally:
        change(before)


def segments_of(chunks):
    """Sequences are walked in segments of as many chunks."""
    return setting(torch.ops.stretto._set_segment, chunks)


def sequences_of(count):
    """So many sequences are walked at a time."""
    return setting(torch.ops.stretto._set_sequences, count)


def check_division(
    name, division, tokens, offsets=None, dtype=torch.float64, device="cpu", with_state=True, batch=2, **options
):
    """What is divided leaves the same bits as the whole."""
    arguments, state = example(name, tokens=tokens, batch=1 if offsets else batch, **options)
    sequences = len(offsets) - 1 if offsets else batch
    accumulator = torch.promote_types(dtype, torch.float32)
    rows = {key: x for key, x in arguments.items() if isinstance(x, torch.Tensor) and x.is_floating_point()}
    arguments = arguments | {key: x.to(dtype) for key, x in rows.items()}
    state = [x[torch.arange(sequences) % len(x)] for x in state] if with_state and name not in LOOKING_BACK else []
    entries = {
        key: x.to(dtype if key.endswith("_tail") else accumulator) if x.is_floating_point() else x
        for key, x in zip(entry_names(name) if state else (), state, strict=True)
    }
    keywords = {"cu_seqlens": torch.tensor(offsets, device=device)} if offsets else {}
    generator = torch.Generator().manual_seed(1)
    d_state = {key: torch.randn(x.shape, generator=generator) for key, x in entries.items() if x.is_floating_point()}
    heads = 4 if name != "relation_kl" else 1
    of_values = arguments["x" if "x" in arguments else "v"]
    d_output = torch.randn(*of_values.shape[:2], heads, of_values.shape[-1], generator=generator)
    found = []
    # What a call has kept is not what a walk finds anew, bit by bit, and what is divided takes none of it.
    for setting_of_run in (contextlib.nullcontext(), division):
        with setting(torch.ops.stretto._set_keep_states, False), setting_of_run:
            found.append(gradients(name, arguments, entries.values(), d_output, d_state, device, **keywords))
    whole, divided = found
    assert all(torch.equal(divided[key], x) for key, x in whole.items() if x is not None)
    assert any(x is not None and x.any() for x in whole.values())


def check_segments(name, chunks, *arguments, **keywords):
    """Segments of so many chunks leave the same bits as a walk over all of them."""
    check_division(name, segments_of(chunks), *arguments, **keywords)


@pytest.mark.parametrize(("name", "options"), RUNNING)
def test_segments_change_nothing(name, options):
    check_segments(name, chunks=2, tokens=330, **options)


@pytest.mark.parametrize(("name", "options"), RUNNING)
def test_sequences_at_a_time_change_nothing(name, options):
    check_division(name, sequences_of(2), tokens=70, batch=3, **options)


@pytest.mark.parametrize("name", ["lawcat", "gated_delta_rule", "lolcats"])
def test_segments_of_sequences_at_a_time(name):
    with segments_of(1):
        check_division(name, sequences_of(1), tokens=150, batch=2, **FIRST[name])


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "rwkv6", "supra", "delta_rule", "lolcats"])
def test_segments_of_packed_sequences(name):
    """Some are empty, shorter than a chunk or than a segment, or end with one."""
    lengths = [0, 1, 70, 128, 300, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    for chunks in (1, 2):
        check_segments(name, chunks, offsets[-1], offsets, **FIRST[name])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("key_heads", [1, 4])
@pytest.mark.parametrize("name", ["gla", "delta_rule"])
def test_parts_of_packed_segments(name, key_heads, dtype):
    """Parts of heads and slices lie together, whichever sequences reach into a segment."""
    for lengths in ([1] * 70, [0, 0, 1, 300, 0], [64, 129, 0, 5, 70], [3, 200]):
        offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
        sizes = FIRST[name] | dict(heads=4, key_heads=key_heads, width=16, value_width=32)
        with slices_of(2):
            check_segments(name, 1, offsets[-1], offsets, dtype, **sizes)


def explanation(name, tokens, dtype, device="cpu", lengths=None, **sizes):
    """What there is to know of the gradient of a call, and the bytes of its largest row."""
    arguments, _ = example(name, batch=1, tokens=1, slots=64, **{"heads": 2, "key_heads": 2} | FIRST[name] | sizes)
    arguments = {
        key: x.to(device, dtype if x.is_floating_point() else x.dtype) if isinstance(x, torch.Tensor) else x
        for key, x in in_our_words(arguments).items()
    }
    rows = {
        key: x.expand(1, tokens, *x.shape[2:])
        for key, x in arguments.items()
        if isinstance(x, torch.Tensor) and key not in FORMULAS[name].parameters
    }
    packed = {"cu_seqlens": torch.tensor([0, *lengths], device=device).cumsum(0)} if lengths else {}
    found = getattr(stretto.ops, name).variant.explain(**arguments | rows | packed, backward=True)
    return found, max(x.numel() * x.element_size() for x in rows.values())


def bytes_taken(found):
    """What a gradient takes beside rows that it saves: of calls in parts also for cotangents of features."""
    return found["checkpoint_bytes"] + found["part_bytes"] + found.get("feature_cotangent_bytes", 0)


def most_bytes(found, size, device="cpu"):
    """Twice the largest input, on a GPU three times, or what nobody minds there or where features are found before all
    else."""
    little = 32 << 20 if device == "cuda" else 16 << 20 if "feature_bytes" in found else 0
    return max((3 if device == "cuda" else 2) * size, little)


def walks_of(walks):
    """Gradients have as many walks back, as far as states of reverse time can be told apart."""
    return setting(torch.ops.stretto._set_walks, walks)


# How many walk back: one where there is no state of reverse time, and of look-backs beside a state, and of matrices of
# parameters, another one adds up what parameters have of each token.
WALKS = {"swa": 1, "relation_kl": 1, "lolcats": 3, "lawcat": 3, "supra": 3}


def check_walks(name, dtype, device="cpu", tokens=150, walks_back=WALKS, **options):
    """States of reverse time that a walk of their own carries make the same gradients."""
    arguments, state = example(name, tokens=tokens, **FIRST[name] | options)
    with walks_of(2):
        found, _ = explanation(name, tokens, dtype, device, **options)
        walks = [kernel["walks"] for kernel in found["kernels"]]
        assert walks.count("backwards") == walks_back.get(name, 2)
        check(name, arguments, state, dtype, device)


# How a gradient is divided and which types it has change different things: a GPU runs all of both.
@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float64) for name in FIRST), *((name, torch.bfloat16) for name in NARROW)]
)
def test_walks(name, dtype):
    # A norm divides by the deviation of a row, which is next to 0 in rows of few numbers.
    sizes = {"width": 32, "value_width": 32} if name == "supra" else {}
    check_walks(name, dtype, **sizes)


@contextlib.contextmanager
def long_segments_of(segments, chunks):
    with segments_of(chunks), setting(torch.ops.stretto._set_long_segment, segments):
        yield


@pytest.mark.parametrize(("name", "options"), RUNNING)
def test_long_segments_change_nothing(name, options):
    check_division(name, long_segments_of(2, chunks=1), tokens=330, **options)


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "rwkv6", "supra", "delta_rule", "lolcats"])
def test_long_segments_of_packed_sequences(name):
    lengths = [0, 1, 70, 128, 420, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    for segments, chunks in ((2, 1), (3, 1), (2, 2)):
        check_division(name, long_segments_of(segments, chunks), offsets[-1], offsets, **FIRST[name])


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "supra", "delta_rule", "lolcats"])
def test_segments_of_two_walks(name):
    """Each of a segment's walks begins with what the same walk of the segment behind has left."""
    lengths = [0, 1, 70, 128, 300, 0, 5, 129]
    offsets = [sum(lengths[:count]) for count in range(len(lengths) + 1)]
    with walks_of(2):
        check_segments(name, 2, offsets[-1], offsets, **FIRST[name])


def walk_slices_of(slices):
    """Walks that carry states and nothing else divide them among so many slices at most."""
    return setting(torch.ops.stretto._set_walk_slices, slices)


# Others have walks whose states have no columns in common, or that leave rows, too: normalisers, slots, norms.
WITH_WALKS_OF_STATES = ("retention", "simple_gla", "gla", "ssd", "hgrn2", "rwkv6", "delta_rule", "gated_delta_rule")


def check_walk_slices(name, dtype, device="cpu", tokens=150, **options):
    """Walks that carry states alone are divided, and nothing else is."""
    options = {"width": 16, "value_width": 64} | options
    arguments, state = example(name, tokens=tokens, **FIRST[name] | options)
    with walk_slices_of(4), walks_of(2):
        found, _ = explanation(name, tokens, dtype, device, **options)
        slices = {kernel["kernel"].rpartition("_")[2]: kernel["slices"] for kernel in found["kernels"]}
        assert {part for part, count in slices.items() if count > 1} == {"checkpoints", "cotangents"}, slices
        check(name, arguments, state, dtype, device)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", WITH_WALKS_OF_STATES)
def test_slices_of_walks(name, dtype):
    check_walk_slices(name, dtype)


# Norms of outputs mix the columns of values, and look-backs have no values that are written to a state.
UNDIVIDED = ("supra", "lolcats", "swa")


def slices_of(slices):
    """Values are divided into as many slices at least."""
    return setting(torch.ops.stretto._set_slices, slices)


def check_slices(name, slices, dtype, device="cpu", tokens=150, **options):
    """Each slice has its columns of the values, and a part of all else, which make the same gradients."""
    sizes = {"width": 16, "value_width": 64}
    arguments, state = example(name, tokens=tokens, **FIRST[name] | sizes | options)
    with slices_of(slices), walk_slices_of(1), walks_of(1):
        found, _ = explanation(name, tokens, dtype, device, **sizes)
        least = 1 if name in UNDIVIDED else slices
        # A GPU may ask for more. Systems of equations have no values.
        slices_found = [kernel["slices"] for kernel in found["kernels"] if not kernel["kernel"].endswith("_systems")]
        assert all(number == least or number > least > 1 for number in slices_found)
        check(name, arguments, state, dtype, device)


@pytest.mark.parametrize(
    ("name", "slices", "dtype"),
    [*((name, 2, torch.float64) for name in FIRST), *((name, 4, torch.bfloat16) for name in NARROW)],
)
def test_slices(name, slices, dtype):
    check_slices(name, slices, dtype)


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "gated_delta_rule"])
def test_slices_of_grouped_heads(name):
    check_slices(name, slices=2, dtype=torch.float64, heads=4, key_heads=2)


@pytest.mark.parametrize("name", ["gla", "lawcat", "gsa", "rwkv6", "delta_rule", "linear_attn", "bla", "based", "abc"])
def test_segments_of_slices(name):
    """Slices that carry the same leave it where none of them reads it any more."""
    with slices_of(4), walks_of(1):
        check_segments(name, chunks=1, tokens=330, **FIRST[name] | {"width": 16, "value_width": 64})


@stretto.variant
def remembering(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"]):
    "Linear attention beside a row that has nothing to do with values."
    S = sl.write(sl.state("K", "V"), k, v)
    return sl.read(S, q, along="K"), sl.softmax(q) * k


def test_what_every_slice_has_counts_once():
    """The cotangent of the second result is whole in every slice, where the first leaves parts."""
    rows = [torch.randn(1, 70, 2, size, dtype=torch.float64).requires_grad_() for size in (16, 16, 64)]
    cotangents = [torch.randn(1, 70, 2, size, dtype=torch.float64) for size in (64, 16)]
    with slices_of(2):
        found = torch.autograd.grad(remembering(*rows), rows, cotangents)
        assert remembering.explain(*rows, backward=True)["kernels"][-1]["slices"] == 2
    with slices_of(1):
        expected = torch.autograd.grad(remembering(*rows), rows, cotangents)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y)


def test_few_heads_are_divided_among_threads():
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        found, _ = explanation("gla", 256, torch.float32, heads=1, key_heads=1, width=16, value_width=64)
        assert {kernel["slices"] for kernel in found["kernels"]} == {4}
        found, _ = explanation("gla", 256, torch.float32, heads=4, key_heads=4, width=16, value_width=64)
        assert {kernel["slices"] for kernel in found["kernels"]} == {1}
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize(
    ("name", "width"), [*((name, 128) for name in FIRST), ("gla", 64), ("linear_attn", 64), ("gsa", 64)]
)
def test_checkpoints_take_no_more_than_two_inputs(name, width):
    # States of Taylor features are as large as hundreds of tokens: few tokens allow no fewer checkpoints.
    lengths, options = [2048, 8192, 32768], {}
    if name == "based":
        lengths, options = [8192, 32768], {"width": 16}
    for tokens in lengths:
        found, size = explanation(name, tokens, torch.bfloat16, **{"width": width, "value_width": width} | options)
        assert bytes_taken(found) <= most_bytes(found, size), (tokens, found)


@pytest.mark.parametrize("slices", [1, 2])
def test_parts_take_no_more_than_two_inputs(slices):
    """Neither of the heads that share a key, nor of slices."""
    with slices_of(slices):
        for tokens in (2048, 32768):
            found, size = explanation("gla", tokens, torch.bfloat16, heads=8, key_heads=1, width=64, value_width=64)
            assert found["part_bytes"] > 0
            assert found["checkpoint_bytes"] + found["part_bytes"] <= 2 * size, (tokens, found)


@pytest.mark.parametrize("slices", [1, 2])
@pytest.mark.parametrize("sequences", [1, 16])
def test_parts_of_packed_sequences_take_no_more_than_two_inputs(slices, sequences):
    with slices_of(slices):
        for tokens in (16384, 65536):
            sizes = {"heads": 8, "key_heads": 1, "width": 64, "value_width": 64}
            lengths = [tokens // sequences] * sequences
            found, size = explanation("gla", tokens, torch.bfloat16, lengths=lengths, **sizes)
            assert found["part_bytes"] > 0
            assert found["checkpoint_bytes"] + found["part_bytes"] <= 2 * size, (tokens, found)


def test_what_fits_is_walked_once():
    found, size = explanation("gla", 8192, torch.float32, width=64, value_width=64)
    assert found["segments"] == 1 and found["checkpoint_bytes"] <= 2 * size
    found, _ = explanation("gla", 8192, torch.float32, width=256, value_width=256)
    assert found["segments"] > 1


def test_what_gradients_take():
    found, _ = explanation("gla", 8192, torch.bfloat16, width=64, value_width=64)
    walks = [kernel["walks"] for kernel in found["kernels"]]
    assert found["gradients"] == ["q", "k", "v", "g"] and walks == ["forwards", "backwards"]
    assert [kept["what"].split()[0] for kept in found["saved"]] == ["'S'"]
    assert sum(kept["bytes"] for kept in found["saved"]) == found["checkpoint_bytes"] == found["workspace_bytes"]
    assert found["bytes"] == (2 * 4 + 1) * 2 * 8192 * 64 * 2  # four rows with their gradients, and a cotangent
    # The walk back reads a state and its cotangent, three times, and writes to the one, for each of two heads.
    assert found["kernels"][1]["flops"] >= 8192 * 2 * 4 * 2 * 64 * 64
    assert "walks backwards" in str(found)
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(1, 20, 2, 8, generator=generator) for _ in range(4))
    found = stretto.ops.gla.variant.explain(q, k, v, -g.abs(), backward=True, wanted=["v"])
    assert found["gradients"] == ["v"] and len(found["kernels"]) == 1 and not found["workspace_bytes"]
    with pytest.raises(
        stretto.Error, match=r"gla: \[R14\] the gradient of 'w' is asked for, which is neither an input"
    ):
        stretto.ops.gla.variant.explain(q, k, v, g, backward=True, wanted=["w"])
