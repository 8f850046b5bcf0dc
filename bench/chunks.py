"""The chunk form of every operator beside its step form, token by token. A table of bench/run.py.

Both run the same tokens and leave the same state; of each the fastest of several runs counts. A step is a call of its
own, and part of its time is the call: what as many calls on next to nothing take is printed beside it.
"""

import functools

import stretto
import torch
from baselines import inputs, measure
from operators import flops_of

# All of models/ but relation_kl, a loss, which has no step. Based maps a row of D to one of D (D + 1) + 1.
OPTIONS = {
    "abc": {},
    "based": {},
    "bla": {"modes": 16, "period": 66.0},
    "delta_rule": {},
    "gated_delta_rule": {},
    "gla": {},
    "gsa": {},
    "hgrn2": {},
    "lawcat": {},
    "linear_attn": {},
    "lolcats": {},
    "retention": {},
    "rwkv6": {},
    "simple_gla": {},
    "ssd": {},
    "supra": {},
    "swa": {"window": 64},
}
WIDTHS = {"based": 16}
TOKENS = (256, 1024)
TYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def prepare(name, tokens, heads, width, dtype, device):
    """Both forms as functions, the least bytes and the flops of the first."""
    width = WIDTHS.get(name, width)
    tensors = inputs.make(name, 1, tokens, heads, width, dtype=dtype, device=device)
    variant = getattr(stretto.ops, name).variant
    options = OPTIONS[name]
    chunks = functools.partial(variant, **tensors, **options, output_final_state=True)
    output, state = chunks()
    is_row = {key: x.shape[:2] == (1, tokens) for key, x in tensors.items()}
    parameters = {key: x for key, x in tensors.items() if not is_row[key]}
    rows = [{key: x[:, t] for key, x in tensors.items() if is_row[key]} for t in range(tokens)]

    def steps():
        for entry in state.values():
            entry.zero_()
        for row in rows:
            variant.step(**row, **parameters, **options, state=state)

    size = sum(x.numel() * x.element_size() for x in [*tensors.values(), output, *state.values()])
    return chunks, steps, size, flops_of(state, tensors, tokens)


def calls_alone(tokens, device):
    """As many steps as there are tokens, on next to nothing."""
    _, steps, _, _ = prepare("retention", tokens, 1, 16, torch.float32, device)
    return steps


def lines(types, device, rates, rounds):
    """The lines of the table, one by one, as dictionaries."""
    heads, width = (4, 64) if device == "cpu" else (32, 128)
    for dtype in types:
        for tokens in TOKENS:
            nothing = calls_alone(tokens, device)
            for name in OPTIONS:
                call = {"operator": name, "B": 1, "T": tokens, "H": heads, "D": WIDTHS.get(name, width), "dtype": dtype}
                try:
                    chunks, steps, size, flops = prepare(name, tokens, heads, width, TYPES[dtype], device)
                    steps()
                except (RuntimeError, stretto.Error) as error:  # there may be no kernel of this width
                    yield {**call, "refused": str(error).splitlines()[0]}
                    continue
                calls = {"chunks": chunks, "steps": steps, "calls": nothing}
                timings = measure.in_turns(calls, device, rounds=rounds, seconds=5)
                chunk, step, alone = (timings[key].fastest for key in calls)
                yield {
                    **call,
                    "chunk_milliseconds": 1e3 * chunk,
                    "step_milliseconds": 1e3 * step,
                    "call_milliseconds": 1e3 * alone,
                    "floor_milliseconds": 1e3 * max(size / rates["copy_bytes"], flops / rates["matmul_flops"][dtype]),
                    "ratio": step / chunk,
                }


def show(line):
    shape = " ".join(f"{name}{line[name]}" for name in "BTHD")
    if "refused" in line:
        print(f"{line['operator']:18} {shape:18} {line['dtype']:5} {line['refused']}", flush=True)
        return
    print(
        f"{line['operator']:18} {shape:18} {line['dtype']:5} chunks {line['chunk_milliseconds']:8.2f} ms"
        f"  floor {line['floor_milliseconds']:7.2f}  steps {line['step_milliseconds']:8.2f}"
        f"  of which calls {line['call_milliseconds']:7.2f}  {line['ratio']:6.1f}x",
        flush=True,
    )
