"""Operators that look back at tokens, for tests of generated code: their kernels as chunk IR, and launches with what
independent formulas in fp64 say.
"""

import math
import pathlib
import sys

import numpy as np
import segments
from gradients import split
from launch import OUTPUT, STATE, argument_block, from_bits, items, range_words, to_bits

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / folder) for folder in ("frontends/python", "test/python")]

import stretto  # noqa: E402
import torch  # noqa: E402
from formulas import windows  # noqa: E402
from stretto import lang as sl  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}


@stretto.variant
def computed_values(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], scale=sl.Option("K**-0.5")):
    "Softmax attention over all tokens so far, to values that would be infinite where there is no token."
    first = sl.position() * 0.0
    _m, l, acc = sl.lookback(
        first, lambda past: (sl.dot(q * scale, past(k)), sl.log(sl.absolute(past(v)))), fold="softmax"
    )
    return acc / l


def computed_values_formula(q, k, v):
    scores = torch.einsum("bihd,bjhd->bhij", q, k) * q.shape[-1] ** -0.5
    past = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    weights = scores.masked_fill(~past, -np.inf).softmax(-1)
    return torch.einsum("bhij,bjhv->bihv", weights, v.abs().log()), ()


# The variant, its options, and the formula.
CASES = {
    "swa": ("swa", {"window": 9}),
    "swa of a chunk": ("swa", {"window": 64}),
    "swa of more than a chunk": ("swa", {"window": 100}),
    "swa of everything": ("swa", {"window": 100_000}),
    "lolcats": ("lolcats", {"window": 20}),
    "lolcats of a chunk": ("lolcats", {"window": 64}),
    "lolcats sliding": ("lolcats", {"window": 70, "mode": "sliding"}),
    "lolcats sliding by a chunk": ("lolcats", {"window": 64, "mode": "sliding"}),
    "lolcats t2r": ("lolcats", {"window": 5, "feature": "t2r"}),
    "relation_kl": ("relation_kl", {}),
    "relation_kl with keys, not causal": ("relation_kl", {"causal": False, "k_s": True, "k_t": True}),
    "relation_kl masked": ("relation_kl", {"mask": True}),
    "relation_kl of large scores": ("relation_kl", {"scale_s": 20.0, "scale_t": 19.0}),
    "computed_values": ("computed_values", {}),
}
WITH_GRADIENTS = tuple(name for name in CASES if name != "computed_values")
# Cases of which no state continues a call.
UNBOUNDED = ("relation_kl", "computed_values")
WITH_STEPS = tuple(name for name, (operator, _) in CASES.items() if operator not in UNBOUNDED)
# Those with a state beside the tokens that they look back at.
WITH_SEGMENTS = tuple(name for name, (operator, _) in CASES.items() if operator == "lolcats")


def features_of(K):
    """As many features as models have of heads of this width."""
    return max(16, K // 2)


def variant_of(name):
    operator = CASES[name][0]
    return computed_values if operator == "computed_values" else getattr(stretto.ops, operator).variant


def lowered(name, element, K, V, heads, key_heads, chip="sm_90a", **more):
    """A case as chunk IR."""
    operator, options = CASES[name]
    sizes = {
        "swa": {"K": K, "V": V},
        "lolcats": {"D": K, "V": V, "F": features_of(K)},
        "relation_kl": {"Ds": K, "Dt": V},
    }
    sizes = sizes.get(operator, {"K": K, "V": V})
    shares = {"H": heads, "G": key_heads}
    if operator == "computed_values" or (operator == "relation_kl" and "k_s" not in options):
        del shares["G"]
    return variant_of(name).lower("chunk", target=chip, dtype=NAMES[element], **sizes, **shares, **options, **more)


def inputs_of(name, tokens, heads, key_heads, K, V, generator):
    """Rows of one sequence, [1, tokens, heads, width]."""

    def rows(*shape):
        return torch.randn(1, tokens, *shape, generator=generator, dtype=torch.float64)

    operator, options = CASES[name]
    if operator != "relation_kl":
        return {"q": rows(heads, K), "k": rows(key_heads, K), "v": rows(key_heads, V)}
    made = {"q_s": rows(heads, K), "q_t": rows(heads, V)}
    if "k_s" in options:
        made |= {"k_s": rows(key_heads, K), "k_t": rows(key_heads, V)}
    if "mask" in options:
        made["mask"] = (rows(1)[..., 0] > -0.5).double()[:, :, None]
    return made


def parameters_of(name, heads, K, generator):
    if CASES[name][0] != "lolcats":
        return {}
    width = features_of(K)
    made = {
        weights: torch.randn(heads, K, width, generator=generator, dtype=torch.float64) for weights in ("w_q", "w_k")
    }
    made = {weights: x / K**0.5 for weights, x in made.items()}
    return {**made, "factor": torch.randn(heads, generator=generator, dtype=torch.float64)}


def formula(name, inputs, parameters):
    """The results of one sequence, and the states that it leaves beside windows."""
    operator, options = CASES[name]
    if operator == "relation_kl":
        arguments = {key: x[..., 0] if key == "mask" else x for key, x in inputs.items()}
        arguments |= {key: option for key, option in options.items() if key in ("causal", "scale_s", "scale_t")}
        return windows.relation_kl_rows(**arguments), {}
    if operator == "computed_values":
        return computed_values_formula(**inputs)[0], {}
    o, state = getattr(windows, operator)(**inputs, **parameters, **options)
    return o, {"S": state[0]} if operator == "lolcats" else {}


def gradient_problem(name, element, K, V, tokens, batch, heads, key_heads):
    """The arrays of a launch of a gradient (launch.py), with what autograd finds through the formula."""
    generator = torch.Generator().manual_seed(2)
    leaves = {}
    for _ in range(batch):
        for key, x in inputs_of(name, tokens, heads, key_heads, K, V, generator).items():
            leaves[key] = torch.cat([leaves[key], x]) if key in leaves else x
    leaves |= parameters_of(name, heads, K, generator)
    leaves = {key: x.to(TYPES[element]).double() for key, x in leaves.items()}
    is_constant = [key for key in leaves if key in ("q_t", "k_t", "mask")]
    wanted = {key: x.requires_grad_() for key, x in leaves.items() if key not in is_constant}
    arguments = {key: x for key, x in leaves.items() if x.dim() > 3 or key == "mask"}
    parameters = {key: x for key, x in leaves.items() if key not in arguments}
    o, _ = formula(name, arguments, parameters)
    d_o = torch.randn(o.shape, generator=generator, dtype=torch.float64).to(TYPES[element]).double()
    found = torch.autograd.grad(o, list(wanted.values()), d_o)
    problem = {
        "inputs": {key: x.detach().numpy() for key, x in (leaves | {"d_o": d_o}).items()},
        "gradients": {key: x.numpy() for key, x in zip(wanted, found, strict=True)},
        "initial": {},
        "cotangents": {},
    }
    problem["gradients"] |= {key: np.zeros(x.shape) for key, x in leaves.items() if key in ("q_t", "k_t")}
    if CASES[name][0] == "lolcats":
        features = parameters["w_k"].shape[-1] * (1 if CASES[name][1].get("feature") == "t2r" else 2)
        problem["initial"]["S"] = np.zeros((batch, heads, features, V + 1))
    return problem


def gradient_kernels(name, element, K, V, heads, key_heads, chip="sm_90a"):
    """The text of the kernel that leaves rows and checkpoints, and of the one that walks back."""
    return split(lowered(name, element, K, V, heads, key_heads, chip, backward=True))


def gradient_cases(name, element):
    """The problems that every gradient goes through: lengths about the chunk, shared heads, packing."""
    sizes = dict(batch=2, heads=2, key_heads=2 if name == "computed_values" else 1)
    yield "one token", dict(tokens=1, **sizes)
    yield "ragged", dict(tokens=133, **sizes)
    yield "packed", dict(tokens=71, packed=True, **sizes)
    yield "segments", dict(tokens=150, segment=1, **sizes)
    yield "packed segments", dict(tokens=71, packed=True, segment=1, **sizes)


def window_after(rows, length):
    """What the window of an input holds after its rows, [1, tokens, heads, ...]."""
    window = np.zeros((length, *rows.shape[2:]))
    for token in range(max(0, rows.shape[1] - length), rows.shape[1]):
        window[token % length] = rows[0, token]
    return window


class LookbackLaunch:
    """One launch: for each sequence the tokens of an earlier call, and those of this one. With `packed` the sequences
    lie in one row of tokens; in a `pool` states have rows in any order, and the sequence in the middle has none.
    """

    def __init__(self, name, manifest, lengths, heads, key_heads, sizes, element, packed=False, pool=False, seed=0):
        self.manifest, self.element, self.packed, self.heads = manifest, element, packed, heads
        self.buffers, self.outputs, self.finals, self.wanted = [], {}, {}, {}
        generator = torch.Generator().manual_seed(seed)

        def rounded(made):
            return {key: x.to(TYPES[element]).double() for key, x in made.items()}

        self.parameters = rounded(parameters_of(name, heads, sizes[0], generator))
        self.sequences = [
            rounded(inputs_of(name, before + tokens, heads, key_heads, *sizes, generator)) for before, tokens in lengths
        ]
        self.lengths = lengths
        results = [formula(name, inputs, self.parameters) for inputs in self.sequences]
        self.results = [o[0, before:].numpy() for (o, _), (before, _) in zip(results, lengths, strict=True)]
        self.final_states = [state for _, state in results]
        self.initial_states = [
            formula(name, {key: x[:, :before] for key, x in inputs.items()}, self.parameters)[1]
            for inputs, (before, _) in zip(self.sequences, lengths, strict=True)
        ]
        self.continues = any(before for before, _ in lengths) or manifest["inPlace"]
        tokens, N, C = [tokens for _, tokens in lengths], len(lengths), manifest["chunk"]
        together = 1
        if manifest["inPlace"]:
            together = math.lcm(1, *(a["group"] for a in manifest["arguments"] if a["kind"] in ("state", "window")))
        of_sequences = items(manifest, N, sum(tokens) if packed else max(tokens), packed)
        self.blocks = of_sequences * heads // together * manifest["slices"]
        self.rows, self.slots = N, np.arange(N, dtype=np.int64)
        if pool:
            self.rows, self.slots = 2 * N, np.random.default_rng(seed).permutation(2 * N)[:N].astype(np.int64)
            self.slots[N // 2] = -1
        positions = self.in_rows(np.array([before for before, _ in lengths], dtype=np.int64))
        header = [N, sum(tokens) if packed else max(tokens), heads]
        header.append(self.buffer(np.concatenate([[0], np.cumsum(tokens)]).astype(np.int64)) if packed else 0)
        header += [self.buffer(positions) if self.continues else 0, self.buffer(self.slots) if pool else 0, self.rows]
        header += range_words(0, -(-header[1] // C))
        words = [word for argument in manifest["arguments"] for word in self.words_of(argument)]
        self.block = argument_block(manifest, header + words)

    def buffer(self, array):
        self.buffers.append(np.ascontiguousarray(array))
        return len(self.buffers) << 32

    def in_rows(self, array):
        """What sequences have, in the rows of the state; those of nobody hold something else."""
        rows = np.full((self.rows, *array.shape[1:]), 7, dtype=array.dtype)
        rows[self.slots[self.slots >= 0]] = array[self.slots >= 0]
        return rows

    def batch(self, rows):
        """Rows of each sequence in one array."""
        return np.concatenate(rows)[None] if self.packed else np.stack(rows)

    def words_of(self, a):
        kind, name, element = a["kind"], a["name"], a["type"]
        if kind == "input":
            rows = [x[name][0, before:].numpy() for x, (before, _) in zip(self.sequences, self.lengths, strict=True)]
            array = to_bits(self.batch(rows).reshape(*self.batch(rows).shape[:2], -1, *a["shape"]), element)
            return [self.buffer(array), *(s // array.itemsize for s in array.strides[:3])]
        if kind == "output":
            array = to_bits(np.full(self.batch(self.results).shape, np.nan), element)
            self.outputs[name] = (len(self.buffers), array.shape)
            return [self.buffer(array), *(s // array.itemsize for s in array.strides[:3])]
        if kind == "parameter":
            array = to_bits(self.parameters[a["entry"] or name].numpy(), element)
            return [self.buffer(array) + a["column"] * array.itemsize, array[0].size]
        if kind == "table":
            return [0, 0, 0, 0]  # positions, which kernels compute
        if kind == "window":
            rows = [x[a["entry"]].numpy() for x in self.sequences]
            before = [window_after(x[:, :b], a["shape"][0]) for x, (b, _) in zip(rows, self.lengths, strict=True)]
            after = [window_after(x, a["shape"][0]) for x in rows]
            return self.entry(name, np.stack(before), np.stack(after), element, sides=(1, 0))
        before = [state["S"][0].numpy() for state in self.initial_states]
        after = [state["S"][0].numpy() for state in self.final_states]
        first, last, *strides = self.entry(a["entry"], np.stack(before), np.stack(after), element, sides=(0, 1))
        column = a["column"] * 4
        return [first + column if first else 0, last + column, *strides]

    def entry(self, name, before, after, element, sides):
        """Words of an entry of the state, whose heads and rows are on these sides behind the sequences. What a window
        had stays where nothing newer comes.
        """
        if name not in self.finals:
            before, after = self.in_rows(before), self.in_rows(after)
            index = len(self.buffers)
            first = last = self.buffer(to_bits(before, element)) if self.continues else 0
            if not self.manifest["inPlace"]:
                index = len(self.buffers)
                was = before if name.endswith("_window") else np.full(after.shape, np.nan)
                last = self.buffer(to_bits(was, element))
            self.finals[name] = (first, last, index, after, element)
        first, last, *_ = self.finals[name]
        strides = [int(np.prod(before.shape[axis + 1 :])) for axis in range(3)]
        return [first, last, strides[0], *(strides[1 + side] for side in sides)]

    def errors(self):
        """Relative errors, in the Frobenius norm, of the output and of every final state."""
        result = {}

        def compare(name, found, wanted, limit):
            with np.errstate(invalid="ignore"):
                difference = float(np.linalg.norm(found - wanted)) / max(float(np.linalg.norm(wanted)), 1e-30)
            result[name] = (difference if found.size else 0.0, limit)

        for name, (index, shape) in self.outputs.items():
            array, wanted = from_bits(self.buffers[index].reshape(shape), self.element), self.batch(self.results)
            if (self.slots < 0).any():
                left_out = (array[self.slots < 0] == 0).astype(float)
                compare("left out", left_out, np.ones_like(left_out), 0)
                array, wanted = array[self.slots >= 0], wanted[self.slots >= 0]
            compare(name, array, wanted, OUTPUT[self.element])
        for name, (_first, _last, index, after, element) in self.finals.items():
            found = from_bits(self.buffers[index].reshape(after.shape), element)
            compare("state " + name, found, after, 0 if name.endswith("_window") else STATE[self.element])
        return result


def step_launches(name, element):
    """The steps that every case goes through: from no token on, within a window and beyond it, of a pool."""
    heads = dict(heads=2, key_heads=1)
    yield "steps", dict(lengths=[(before, 1) for before in (0, 1, 3, 70, 131)], **heads)
    yield "a pool", dict(lengths=[(before, 1) for before in (64, 2, 9)], pool=True, **heads)


def launches(name, element):
    """The launches that every case goes through: lengths about the chunk, shared heads, packing, continuing."""
    sizes = dict(heads=2, key_heads=2 if name == "computed_values" else 1)
    yield "one token", dict(lengths=[(0, 1)] * 2, **sizes)
    yield "ragged", dict(lengths=[(0, 133)], **sizes)
    yield "packed", dict(lengths=[(0, 0), (0, 71), (0, 1), (0, 40), (0, 0)], packed=True, **sizes)
    if CASES[name][0] not in UNBOUNDED:
        yield "continued", dict(lengths=[(5, 70), (130, 70)], **sizes)
        yield "continued and packed", dict(lengths=[(64, 30), (0, 3), (90, 0), (7, 1)], packed=True, **sizes)


class SegmentLaunch(segments.SegmentLaunch):
    """The launches of a call whose segments are walked side by side, and that continues from windows."""

    def words_of(self, a):
        if a["kind"] != "window":
            return super().words_of(a)
        length, positions = a["shape"][0], self.problem["positions"]
        rows = self.problem["rows"][a["entry"]]
        before = np.stack([window_after(x[:, :b], length) for x, b in zip(rows, positions, strict=True)])
        self.problem["initial"][a["name"]] = before
        self.problem["final"][a["name"]] = np.stack([window_after(x, length) for x in rows])
        initial = self.forward_words(a | {"entry": a["name"], "column": 0, "columns": before.shape[-1]})
        if self.part == "results":
            initial[1] = self.final(a | {"entry": a["name"], "column": 0}, before)
        return initial


def segment_kernels(name, element, K, V, heads, key_heads, chip="sm_90a", form=None):
    """The text of each kernel."""
    return split(lowered(name, element, K, V, heads, key_heads, chip, segments=True, form=form))


def segment_problem(name, element, K, V, lengths, heads, key_heads, packed=False):
    """Arrays of a call (segments.py): of each sequence the tokens of an earlier one, and those of this one."""
    generator = torch.Generator().manual_seed(0)

    def rounded(made):
        return {key: x.to(TYPES[element]).double() for key, x in made.items()}

    parameters = rounded(parameters_of(name, heads, K, generator))
    sequences = [rounded(inputs_of(name, sum(both), heads, key_heads, K, V, generator)) for both in lengths]
    outputs, initial, final = [], [], []
    for inputs, (before, _) in zip(sequences, lengths, strict=True):
        o, after = formula(name, inputs, parameters)
        outputs.append(o[0, before:].numpy())
        final.append(after["S"][0].numpy())
        initial.append(formula(name, {key: x[:, :before] for key, x in inputs.items()}, parameters)[1]["S"][0].numpy())
    together = np.concatenate if packed else np.stack

    def batch(rows):
        return together(rows)[None] if packed else together(rows)

    own = {
        key: batch([x[key][0, before:].numpy() for x, (before, _) in zip(sequences, lengths, strict=True)])
        for key in sequences[0]
    }
    return {
        "lengths": [tokens for _, tokens in lengths] if packed else None,
        "positions": np.array([before for before, _ in lengths], dtype=np.int64),
        "inputs": own | {key: x.numpy() for key, x in parameters.items()},
        "rows": {key: [x[key].numpy() for x in sequences] for key in sequences[0]},
        "initial": {"S": np.stack(initial)},
        "o": batch(outputs),
        "final": {"S": np.stack(final)},
    }


def segment_cases(name, element):
    """The problems that every case goes through: lengths about the segment, shared heads, packing, continuing."""
    heads = dict(heads=2, key_heads=1)
    yield "one token", dict(lengths=[(0, 1)] * 2, segment=1, **heads)
    yield "segments", dict(lengths=[(0, 200)], segment=1, **heads)
    yield "packed", dict(lengths=[(0, 0), (0, 70), (0, 1), (0, 200), (0, 0)], packed=True, segment=1, **heads)
    yield "continued", dict(lengths=[(5, 200), (130, 200)], segment=1, **heads)
    yield "continued in long segments", dict(lengths=[(64, 300), (90, 0), (7, 3)], packed=True, segment=2, **heads)
