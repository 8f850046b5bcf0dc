"""Calls whose segments are walked side by side, for tests of generated code: their kernels as chunk IR, and launches
with what the formulas say (`simulate.py BUILD --segments [operator ...]`).
"""

import gradients
import numpy as np
import torch
from formulas import FORMULAS
from formulas.examples import WITH_DECAY, example
from gradients import SIZES, chunks_of, options_of, rounded
from launch import OUTPUT, STATE, GradientLaunch, Stage, from_bits, items, range_words, to_bits

# Those whose writes depend on a read have no segments side by side: one kernel walks the whole, behind one that finds
# the inverses which it multiplies by.
WITH_SYSTEMS = ("delta_rule", "gated_delta_rule")
OF_CHANNELS = ("gla", "hgrn2", "rwkv6")
WITH_SEGMENTS = tuple(name for name in SIZES if name not in WITH_SYSTEMS)


def segment_kernels(name, element, K, V, heads=2, key_heads=1, chip="sm_90a", form=None):
    """The text of each kernel."""
    text = chunks_of(name, element, K, V, heads, key_heads, chip, segments=name not in WITH_SYSTEMS, form=form)
    return gradients.split(text)


def segment_problem(name, element, K, V, tokens, regime="ordinary", batch=2, heads=2, key_heads=1):
    """Arrays of a call by name, of rounded numbers: its `inputs`, `initial` state, result `o` and `final` state, and
    the `positions` of first tokens. Where `tokens` are a list, those of sequences that lie in one row.
    """
    lengths = tokens if isinstance(tokens, list) else None
    shape = (1, sum(lengths)) if lengths else (batch, tokens)
    sizes = (heads, key_heads, K, V, gradients.SLOTS)
    arguments, state = example(name, *shape, *sizes, regime=regime, **options_of(name))
    if lengths:
        state = example(name, len(lengths), 1, *sizes, **options_of(name))[1]
    tensors, names, state = rounded(name, element, K, arguments, state)
    output, final = in_sequences(FORMULAS[name].function, arguments | tensors, state, lengths or [shape[1]])
    return {
        "lengths": lengths,
        "positions": np.zeros(len(lengths or range(shape[0])), dtype=np.int64),
        "inputs": {key: x.numpy() for key, x in tensors.items()},
        "initial": {key: x.double().numpy() for key, x in zip(names, state, strict=True)},
        "o": output.numpy(),
        "final": {key: x.double().numpy() for key, x in zip(names, final or (), strict=True)},
    }


def in_sequences(function, arguments, state, lengths):
    """The results and the final state of sequences that lie one after the other, each with its row of the state."""
    if len(lengths) == 1:
        return function(**arguments, initial_state=tuple(state) or None)
    outputs, finals, first = [], [], 0
    for number, length in enumerate(lengths):
        own = [entry[number : number + 1] for entry in state]
        if length:
            rows = {key: x[:, first : first + length] if is_row(x, lengths) else x for key, x in arguments.items()}
            o, own = function(**rows, initial_state=tuple(own) or None)
            outputs.append(o)
        finals.append(own or ())
        first += length
    return torch.cat(outputs, 1), [torch.cat(entries) for entries in zip(*finals, strict=True)]


def is_row(x, lengths):
    return isinstance(x, torch.Tensor) and x.dim() > 2 and x.shape[:2] == (1, sum(lengths))


def segment_cases(name, element):
    """The problems that every operator goes through: lengths about the segment, shared heads, packing, strong decay."""
    heads = dict(heads=2, key_heads=1)
    yield "one token", dict(tokens=1, segment=1, **heads)
    yield "segments", dict(tokens=200, segment=1, **heads)
    yield "segments of two chunks", dict(tokens=330, segment=2, batch=1, **heads)
    yield "packed", dict(tokens=[0, 70, 1, 0, 200, 64, 0], segment=1, **heads)
    yield "packed in long segments", dict(tokens=[150, 0, 0, 3], segment=2, **heads)
    # Rows of bf16 whose channels decay may be expected in range: walks end where they are not.
    if name in WITH_DECAY and (element == "f32" or (element == "bf16" and name in OF_CHANNELS)):
        yield "strong", dict(tokens=150, segment=1, regime="strong", batch=1, **heads)
        yield "mixed", dict(tokens=150, segment=1, regime="mixed", batch=1, **heads)


class SegmentLaunch(GradientLaunch):
    """The launches of a call, as runtime/Segments.cpp makes them: with `segment` chunks in each."""

    def __init__(self, manifests, problem, tables, segment=1):
        self.problem, self.buffers, self.outputs, self.finals = problem, [], {}, {}
        self.batch, self.tokens, self.heads = problem["o"].shape[:3]
        self.element = next(a["type"] for a in manifests[0]["arguments"] if a["name"] == "o")
        lengths, tokens = problem["lengths"] or [self.tokens] * self.batch, self.tokens
        packed, positions = problem["lengths"] is not None, problem["positions"]
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        sequences = len(lengths)
        self.header = [sequences, tokens, self.heads, self.buffer(offsets) if packed else 0]
        self.header += [self.buffer(positions) if positions.any() else 0, 0, sequences]
        self.tables, self.packed, self.shared, self.places, self.stages = tables, packed, {}, {}, []
        chunk = manifests[0]["chunk"]
        chunks = -(-tokens // chunk)
        count, placed = -(-chunks // segment), (0, chunks)
        self.rows = min(sequences * count, sum(lengths) // (chunk * segment) + sequences)
        kernels = {self.part_of(manifest): number for number, manifest in enumerate(manifests)}
        self.manifests = manifests
        if "systems" in kernels:
            self.add(kernels, "systems", 1, range_words(0, chunks))
        if "tails" in kernels:
            rows = sum(a["shape"][0] for a in manifests[kernels["tails"]]["arguments"] if a["kind"] == "state")
            before = -(-rows // chunk)
            self.add(kernels, "tails", count, range_words(0, chunks, 1, segment, before, placed))
        for walk, starts in (("totals", "total_starts"), ("writes", "starts")):
            if count > 1 and walk in kernels:
                self.add(kernels, walk, count - 1, range_words(0, chunks, 1, segment, placed=placed))
                self.add(kernels, starts, 1, range_words(0, chunks, segment, placed=placed))
        for walk in ("results", "left"):
            if walk not in kernels:
                continue
            if manifests[kernels[walk]]["segments"] == "apart":
                self.add(kernels, walk, count, range_words(0, chunks, 1, segment, placed=placed))
            else:
                self.add(kernels, walk, 1, range_words(0, chunks))

    def part_of(self, manifest):
        if manifest["takesLeft"]:
            return "left"
        if manifest["symbol"].endswith("_systems"):
            return "systems"
        if any(a["kind"] == "output" for a in manifest["arguments"]):
            return "results"
        return next(
            part
            for part in ("tails", "totals", "total_starts", "writes", "starts")
            if manifest["symbol"].endswith(part)
        )

    def add(self, kernels, part, apart, segment):
        self.part, self.manifest = part, self.manifests[kernels[part]]
        words = [word for argument in self.manifest["arguments"] for word in self.words_of(argument)]
        blocks = items(self.manifest, self.header[0], self.header[1], self.packed) * apart
        if self.packed and self.manifest["segments"] == "apart":
            blocks = self.tokens // (self.manifest["chunk"] * segment[3]) + self.header[0]
        blocks *= self.heads * self.manifest["slices"]
        header = [*self.header, *segment]
        if self.manifest["expects"]:
            # Where the kernel says of each block whether it leaves it to another one, which follows.
            self.left = self.buffer(np.full(blocks, -1, dtype=np.int32))
        if self.manifest["expects"] or self.manifest["takesLeft"]:
            header[-1] = self.left
        self.stages.append(Stage(kernels[part], self.manifest, blocks, [*header, *words], self.buffers))

    def words_of(self, a):
        if a["kind"] in ("checkpoint", "kept"):
            left = a["kind"] == "kept"
            return self.place(("start " if left else "end ") + a["name"].removesuffix(".left"), a)
        if a["kind"] != "state":
            return super().words_of(a)
        if a["entry"] not in self.problem["initial"]:  # what decays do
            initial = [0, 0, 0, 0, 0]
        elif self.manifest["segments"] == "turns":
            return [0, 0, 0, 0, 0]
        else:
            initial = self.forward_words(a)
        is_tail, is_total = a["entry"].endswith("_tail"), "logaddexp" in a["entry"]
        if self.part in ("results", "left"):
            initial[1] = self.final(a)
        if self.manifest["segments"] != "apart":
            return initial
        begins = self.part in ("results", "left") or (self.part == "writes" and (is_tail or is_total))
        ends = self.part in ("tails", "totals") or (self.part == "writes" and not begins)
        address, *strides = self.place(("tail " if is_tail else "start " if begins else "end ") + a["name"], a)
        return [*initial, address if begins else 0, address if ends else 0, *strides]

    def place(self, name, a):
        """Words of what is kept of each segment."""
        heads, size = max(1, self.heads // a["group"]), int(np.prod(a["shape"]))
        size *= self.manifest["slices"] if a["sliced"] else 1
        return [self.once(name, np.full(self.rows * heads * size, np.nan), a["type"]), heads * size, size]

    def final(self, a, before=None):
        """The address of a final state, which holds what there was before."""
        entry = a["entry"]
        array = self.problem["initial"][entry]
        if entry not in self.finals:
            self.finals[entry] = (len(self.buffers), a["type"])
            self.buffer(to_bits(np.full(array.shape, np.nan) if before is None else before, a["type"]))
        offset = (a["row"] * a["columns"] + a["column"]) * to_bits(np.zeros(1), a["type"]).itemsize
        return ((self.finals[entry][0] + 1) << 32) + offset

    def errors(self):
        result = {}

        def compare(name, found, wanted, limit):
            error = float(np.linalg.norm(found.reshape(wanted.shape) - wanted) / max(np.linalg.norm(wanted), 1e-30))
            result[name] = (error, limit)

        compare("o", self.rows_in_place("o"), self.problem["o"], OUTPUT[self.element])
        for entry, (index, element) in self.finals.items():
            found = from_bits(self.buffers[index], element)
            compare("state " + entry, found, self.problem["final"][entry], STATE[self.element])
        return result
