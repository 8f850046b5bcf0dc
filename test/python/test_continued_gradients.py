"""Gradients of calls that continue: those of windows and of states that are read at an earlier time, against autograd
through independent formulas in fp64; and whatever a sequence is cut into, the gradients of one pass.
"""

import random

import pytest
import stretto
import torch
from formulas import FORMULAS
from formulas.examples import example
from stretto import lang as sl
from test_gradients import entry_names
from test_operator_gradients import FIRST
from test_reference import CASES, in_our_words
from test_wanted_gradients import leaves_of

# With one denominator for both parts, test_a_cut_of_lolcats.
LOOKING_BACK = [
    (name, options) for name, options in CASES if name in ("swa", "lolcats") and options.get("beta") != "affine"
]


def compare(found, expected, names, tolerance=1e-10):
    for name, x, y in zip(names, found, expected, strict=True):
        x, y = (torch.zeros(()) if g is None else g for g in (x, y))
        assert (x - y).norm() <= tolerance * max(y.norm().item(), 1.0), (name, (x - y).norm().item(), y.norm().item())


def in_ring(rows, position, length):
    """A window of so many rows that holds these, the last of which is the token before the position."""
    slots = torch.arange(position - rows.shape[1], position).remainder(length)
    window = torch.full((rows.shape[0], length, *rows.shape[2:]), 0.5, dtype=rows.dtype)
    return window.index_copy(1, slots, rows)


def out_of_ring(window, position, count):
    return window.index_select(1, torch.arange(position - count, position).remainder(window.shape[1]))


def example_with_window(name, options, tokens):
    """Arguments, the formula's state of real numbers, by name, and the position of the first token."""
    arguments, state = example(name, tokens=tokens, heads=2, key_heads=1, width=8, value_width=4, **options)
    if name == "swa":
        return arguments, dict(zip(("k_window", "v_window"), state, strict=True)), state[0].shape[1]
    return arguments, dict(zip(("S", "k_window", "v_window"), state[:-1], strict=True)), int(state[-1][0])


@pytest.mark.parametrize(("name", "options"), LOOKING_BACK)
@pytest.mark.parametrize("tokens", [0, 1, 9, 65, 130])
def test_gradients_of_windows(name, options, tokens):
    """Cotangents come in at the output and all of the final state; gradients go out at all of the initial one."""
    arguments, state, position = example_with_window(name, options, tokens)
    leaves, initial = leaves_of(arguments), leaves_of(state)
    every = leaves | initial
    place = torch.full((2,), position)
    given = tuple(initial.values()) + ((place,) if name == "lolcats" else ())
    expected_output, final = FORMULAS[name].function(**{**arguments, **leaves}, initial_state=given)
    expected = dict(zip(initial, final, strict=False))

    variant = getattr(stretto.ops, name).variant
    ours = in_our_words({**arguments, **leaves})
    length = variant(**ours, output_final_state=True)[1]["k_window"].shape[1]
    entries = {key: x if key == "S" else in_ring(x, position, length) for key, x in initial.items()}
    output, final = variant(**ours, initial_state={**entries, "position": place}, output_final_state=True)
    end = position + tokens
    found = {key: final[key] if key == "S" else out_of_ring(final[key], end, x.shape[1]) for key, x in expected.items()}

    results, expected_results = [output, *found.values()], [expected_output, *expected.values()]
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in expected_results]
    compare(
        torch.autograd.grad(results, every.values(), cotangents, allow_unused=True),
        torch.autograd.grad(expected_results, every.values(), cotangents, allow_unused=True),
        every,
    )


@stretto.variant
def beside_a_state(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row["K"](heads="G")):
    "A window, a state that decays, and a running maximum."
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, k, v)
    _m, l, acc = sl.lookback(sl.position() - 8.0, lambda past: (sl.dot(q, past(k)), past(v)), fold="softmax")
    return acc / l + sl.read(S, q * sl.scan(sl.sum(k), "add", log=-abs(sl.mean(g))), along="K")


def cut_anywhere(run, leaves, initial, tokens, seed):
    """The gradients of one pass and those of three, of which each begins with the state that the one before leaves.

    `run(first, last, state)` gives the output and the final state of these tokens.
    """
    choose = random.Random(seed)
    edges = [0, 1, 63, 64, 65, tokens - 1, tokens]
    first, second = sorted(choose.choice([*edges, choose.randrange(tokens)]) for _ in range(2))
    output, final = run(0, tokens, initial)
    outputs, state = [], initial
    for start, end in ((0, first), (first, second), (second, tokens)):
        part, state = run(start, end, state)
        outputs.append(part)
    finals = [key for key, x in final.items() if x.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    results = [output, *(final[key] for key in finals)]
    cotangents = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in results]
    every = {**leaves, **(initial or {})}
    every = {key: x for key, x in every.items() if x.requires_grad}
    compare(
        torch.autograd.grad([torch.cat(outputs, 1), *(state[key] for key in finals)], every.values(), cotangents),
        torch.autograd.grad(results, every.values(), cotangents),
        every,
    )


def tokens_of(arguments, rows, start, end):
    return {key: x[:, start:end] if key in rows else x for key, x in arguments.items()}


@pytest.mark.parametrize("name", FIRST)
def test_a_cut_changes_no_gradient(name):
    tokens = 150
    arguments, state = example(name, tokens=tokens, heads=2, key_heads=1, **FIRST[name])
    leaves = leaves_of(arguments)
    arguments = {**arguments, **leaves}
    initial = None
    if name not in ("swa", "lolcats"):
        entries = dict(zip(entry_names(name), state, strict=True))
        initial = {**entries, **leaves_of(entries)}

    def run(start, end, state):
        part = in_our_words(tokens_of(arguments, FORMULAS[name].rows, start, end))
        return getattr(stretto.ops, name).variant(**part, initial_state=state, output_final_state=True)

    cut_anywhere(run, leaves, initial, tokens, seed=len(name))


@pytest.mark.parametrize("seed", range(3))
def test_a_cut_of_lolcats(seed):
    arguments, _ = example("lolcats", tokens=150, heads=2, key_heads=1)
    leaves, options = leaves_of(arguments), dict(window=32, prev_blocks=2, affine=True)

    def run(start, end, state):
        part = tokens_of(leaves, "qkv", start, end)
        return stretto.ops.lolcats.variant(**part, **options, initial_state=state, output_final_state=True)

    cut_anywhere(run, leaves, None, 150, seed)


def test_windows_beside_other_states():
    generator = torch.Generator().manual_seed(0)
    q, k, v, g = (torch.randn(2, 90, heads, 6, dtype=torch.float64, generator=generator) for heads in (2, 1, 1, 1))
    leaves = leaves_of({"q": q, "k": k, "v": v, "g": -g.abs()})

    def run(start, end, state):
        part = tokens_of(leaves, "qkvg", start, end)
        return beside_a_state(**part, initial_state=state, output_final_state=True)

    for seed in range(3):
        cut_anywhere(run, leaves, None, 90, seed)


@stretto.variant
def beside_tails(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    taps: sl.Param["H", "K", 4],
    last=sl.Option(8.0),
):
    "Windows, a tail of a row of no window, one of a row that a window holds, and one of computed rows."
    query = sl.conv(q, taps) + sl.delay(sl.tanh(q), 2)
    _m, l, acc = sl.lookback(sl.position() - last, lambda past: (sl.dot(query, past(k)), past(v)), fold="softmax")
    return acc / l + sl.delay(v, 3)


def formula_beside_tails(q, k, v, taps, last, q_tail, tail, v_tail, k_window, v_window):
    """The output and the final tails; windows in time order."""
    tokens, held = q.shape[1], k_window.shape[1]
    earlier = {"q_tail": torch.cat([q_tail, q], 1), "tail": torch.cat([tail, q.tanh()], 1)}
    earlier["v_tail"] = torch.cat([v_tail, v], 1)
    query = sum(earlier["q_tail"][:, tap : tap + tokens] * taps[..., tap] for tap in range(4))
    scores = torch.einsum("bihd,bjd->bhij", query + earlier["tail"][:, :tokens], torch.cat([k_window, k], 1)[:, :, 0])
    age = held + torch.arange(tokens).unsqueeze(1) - torch.arange(held + tokens)
    weights = scores.masked_fill((age < 0) | (age > last), -torch.inf).softmax(-1)
    output = torch.einsum("bhij,bjv->bihv", weights, torch.cat([v_window, v], 1)[:, :, 0])
    final = {name: rows[:, tokens:] for name, rows in earlier.items()}
    return output + earlier["v_tail"][:, :tokens], final


def inputs_beside_tails(tokens):
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, tokens, heads, 6, dtype=torch.float64, generator=generator) for heads in (2, 1, 1))
    return leaves_of({"q": q, "k": k, "v": v, "taps": torch.randn(2, 6, 4, dtype=torch.float64, generator=generator)})


@pytest.mark.parametrize("of_state", [True, False], ids=["and the state", "alone"])
@pytest.mark.parametrize("tokens", [1, 2, 5, 70])
@pytest.mark.parametrize("last", [8.0, 1.0])
def test_gradients_of_tails_beside_windows(last, tokens, of_state):
    """Of the call's tokens, and the state. A tail and a window may say different things of a token: each has its own
    gradient. Windows have more rows than a tail, and fewer.
    """
    leaves, position = inputs_beside_tails(tokens), 20
    place = torch.full((2,), position)
    entries = beside_tails(**leaves, last=last, output_final_state=True)[1]
    generator = torch.Generator().manual_seed(1)
    initial = leaves_of(
        {
            name: torch.randn(x.shape, dtype=torch.float64, generator=generator)
            for name, x in entries.items()
            if name != "position"
        }
    )
    if not of_state:
        initial = {name: x.detach() for name, x in initial.items()}
    length = initial["k_window"].shape[1]
    given = {name: in_ring(x, position, length) if "window" in name else x for name, x in initial.items()}
    output, final = beside_tails(
        **leaves, last=last, initial_state={**given, "position": place}, output_final_state=True
    )
    expected_output, expected = formula_beside_tails(**leaves, last=last, **initial)
    if not of_state:
        final = expected = {}
    results = [output, *(final[name] for name in expected)]
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in results]
    every = leaves | initial if of_state else leaves
    compare(
        torch.autograd.grad(results, every.values(), cotangents, allow_unused=True),
        torch.autograd.grad([expected_output, *expected.values()], every.values(), cotangents, allow_unused=True),
        every,
    )


@pytest.mark.parametrize("last", [8.0, 1.0])
def test_a_cut_of_tails_beside_windows(last):
    leaves = inputs_beside_tails(90)

    def run(start, end, state):
        part = tokens_of(leaves, "qkv", start, end)
        return beside_tails(**part, last=last, initial_state=state, output_final_state=True)

    for seed in range(4):
        cut_anywhere(run, leaves, None, 90, seed)


def check_types_of_tails(dtype, device="cpu"):
    """Tails of rows have the type of these, those of computed rows that of arithmetic."""
    inputs = inputs_beside_tails(90)
    leaves = {name: x.detach().to(device, dtype).requires_grad_() for name, x in inputs.items()}

    def run(start, end, state):
        return beside_tails(**tokens_of(leaves, "qkv", start, end), initial_state=state, output_final_state=True)

    first, state = run(0, 40, None)
    second, state = run(40, 90, state)
    found = torch.cat([first, second], 1).float().square().sum() + state["tail"].sin().sum()
    output, state = run(0, 90, None)
    expected = output.float().square().sum() + state["tail"].sin().sum()
    found, expected = (torch.autograd.grad(result, leaves.values()) for result in (found, expected))
    compare(found, expected, leaves, {torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3}[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_types_of_tails_beside_windows(dtype):
    check_types_of_tails(dtype)


def test_packed_sequences_that_continue():
    """Sequences of one batch that are at different positions, some without tokens."""
    arguments, _ = example("lolcats", batch=1, tokens=60, heads=2, key_heads=1)
    leaves, options = leaves_of(arguments), dict(window=8)
    lolcats = stretto.ops.lolcats.variant
    before, after = torch.tensor([0, 3, 3, 25, 30]), torch.tensor([0, 0, 9, 19, 30])

    def both(tokens, offsets, **keywords):
        part = tokens_of(leaves, "qkv", *tokens)
        return lolcats(**part, **options, output_final_state=True, cu_seqlens=offsets, **keywords)

    first, state = both((0, 30), before)
    second, final = both((30, 60), after, initial_state=state)
    found = first.square().sum() + second.square().sum() + sum(x.sin().sum() for x in final.values() if x.requires_grad)
    expected = 0
    for index in range(4):
        pieces = [slice(*before[index : index + 2].tolist()), slice(*(after[index : index + 2] + 30).tolist())]
        part = {key: torch.cat([x[:, piece] for piece in pieces], 1) for key, x in leaves.items() if key in "qkv"}
        output, state = lolcats(**{**leaves, **part}, **options, output_final_state=True)
        expected = expected + output.square().sum() + sum(x.sin().sum() for x in state.values() if x.requires_grad)
    torch.testing.assert_close(found, expected)
    compare(torch.autograd.grad(found, leaves.values()), torch.autograd.grad(expected, leaves.values()), leaves)
