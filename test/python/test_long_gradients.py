"""Gradients of long sequences in fp32, against fp64 autograd through the formulas, a segment of tokens at a time."""

import pytest
import stretto
import torch
from formulas import FORMULAS
from formulas.examples import example
from test_gradients import entry_names
from test_operator_gradients import TOLERANCES
from test_reference import in_our_words
from test_wanted_gradients import leaves_of
from torch.utils.checkpoint import checkpoint

# Most of the time is the formulas': on the CPU only one has as many tokens as all have on a GPU.
OPERATORS = {"linear_attn": 32768, "gla": 131072, "gsa": 32768, "delta_rule": 32768, "swa": 32768}
SEGMENT = 128


def in_segments(name, arguments, state):
    """The formula's output and final state; of each segment nothing is kept but the state before it."""
    rows = FORMULAS[name].rows
    outputs = []
    for start in range(0, arguments["q"].shape[1], SEGMENT):
        part = {key: x[:, start : start + SEGMENT] if key in rows else x for key, x in arguments.items()}
        run = lambda state, part=part: FORMULAS[name].function(**part, initial_state=state)  # noqa: E731
        output, state = checkpoint(run, state, use_reentrant=False)
        outputs.append(output)
    return torch.cat(outputs, 1), state


def check_long(name, device="cpu", tokens=131072):
    """The formulas run on the CPU, where their tokens take no launch each."""
    options = {"window": 100} if name == "swa" else {}
    sizes = dict(batch=1, tokens=tokens, heads=1, key_heads=1, width=8, value_width=8)
    arguments, state = example(name, **sizes, **options)
    arguments = {key: x.float() if isinstance(x, torch.Tensor) else x for key, x in arguments.items()}
    exact = {key: x.double() if isinstance(x, torch.Tensor) else x for key, x in arguments.items()}
    ours = leaves_of({key: x.to(device) if isinstance(x, torch.Tensor) else x for key, x in arguments.items()})
    theirs = leaves_of(exact)
    state = None if name == "swa" else state
    expected, _final = in_segments(name, {**exact, **theirs}, state)
    names = entry_names(name)
    entries = None if state is None else dict(zip(names, (x.float().to(device) for x in state), strict=True))
    variant = getattr(stretto.ops, name).variant
    output = variant(**in_our_words({**arguments, **ours}), initial_state=entries)
    cotangent = torch.randn(output.shape, generator=torch.Generator().manual_seed(1))
    found = torch.autograd.grad(output, ours.values(), cotangent.to(device))
    wanted = torch.autograd.grad(expected, theirs.values(), cotangent.double())
    of_rows, of_others = TOLERANCES[torch.float32]
    for key, x, y in zip(ours, found, wanted, strict=True):
        deviation = (x.cpu().double() - y).norm().item()
        assert deviation <= (of_rows if key in "qkv" else of_others) * y.norm().item(), (
            key,
            deviation,
            y.norm().item(),
        )


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients_of_long_sequences(name):
    check_long(name, tokens=OPERATORS[name])
