"""Builds the memory of a launch from a kernel's manifest, and judges what the kernel left in it.

Used by run_ptx.py, which launches on a GPU, and by simulate.py, which executes the threads on the host.
"""

import json
import math

import kernels
import numpy as np
from kernel_references import reference_delta

# The largest errors allowed, by input type: outputs and final states (specification, section 1.4), then gradients of
# rows and states, and of gates and parameters.
OUTPUT = {"f32": 5e-6, "f16": 2e-3, "bf16": 8e-3}
STATE = {"f32": 1e-5, "f16": 2e-3, "bf16": 8e-3}
GRADIENT = {"f32": 2e-5, "f16": 3e-3, "bf16": 1.2e-2}
GRADIENT_OF_OTHERS = {
    "f32": 1e-4,
    "f16": 5e-3,
    "bf16": 6e-3,
}  # 2e-2 is allowed in bf16; what should cancel shows before
ROWS = ("q", "k", "v", "r", "x", "B", "C")


def to_bits(values, element):
    """fp64 values as an array in memory; bf16 rounds to nearest even."""
    if element == "bf16":
        bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
        rounded = ((bits + 0x7FFF + ((bits >> np.uint64(16)) & np.uint64(1))) >> np.uint64(16)).astype(np.uint16)
        return np.where(np.isnan(values), np.uint16(0x7FC0), rounded)
    return values.astype({"f16": np.float16, "f32": np.float32}[element])


def from_bits(array, element):
    if element == "bf16":
        return (array.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return array.astype(np.float64)


def gates(rng, shape, kind, form):
    """Amounts of decay: gentle, strong, with exact zeros, mixed, firm, late, or factors of any sign, also above 1."""
    if kind == "signed":
        return rng.uniform(-1.1, 1.1, size=shape)
    soft = -np.log1p(np.exp(-rng.normal(size=shape))) / 16
    log = {
        "soft": soft,
        "strong": np.full(shape, -50.0),
        # A chunk of these is not in range, but eight of its tokens are.
        "firm": rng.uniform(-10.0, 0.0, size=shape),
        # A chunk of these is not in range because of its last token alone.
        "late": np.where(np.indices(shape, sparse=True)[1] % 64 == 63, -100.0, np.full(shape, -1e-4)),
        "near": np.full(shape, -1e-4),
        "zeros": np.where(rng.random(shape) < 0.1, -math.inf, soft),
        "mixed": rng.choice([-50.0, -1e-3, -0.7, -math.inf, 0.0, -5.0], size=shape, p=[0.1, 0.3, 0.3, 0.05, 0.05, 0.2]),
    }[kind]
    return np.exp(log) if form == "factor" else log


# Words of the argument block (runtime/Manifest.h), of its header, and of a tensor in boxes (runtime/TensorBoxes.h).
WORDS = {"input": 4, "output": 4, "table": 4, "parameter": 2, "checkpoint": 3, "kept": 3, "state": 5, "window": 5}
HEADER_WORDS, BOX_WORDS = 15, 16
TYPES_OF_DRIVER = {"f16": (6, 2), "f32": (7, 4), "bf16": (9, 2)}


def range_words(first, chunks, between_checkpoints=1, between_starts=0, before=0, placed=(0, 0), left=0):
    """Those of the header that say which chunks a launch walks, and where it says which work items it leaves."""
    return [first, chunks, between_checkpoints, between_starts, before, *placed, left]


def words_of(manifest, a):
    """Those of an argument; of a state whose segments are apart also of what they begin with and leave."""
    return WORDS[a["kind"]] + (4 if a["kind"] == "state" and manifest["segments"] == "apart" else 0)


def first_box_word(manifest):
    return -(-(HEADER_WORDS + sum(words_of(manifest, a) for a in manifest["arguments"])) // 8) * 8


def argument_block(manifest, words):
    """The block of a launch: its header and arguments, and behind them what boxes are copied of."""
    block = list(words) + [0] * (first_box_word(manifest) - len(words))
    sequences, tokens, heads, offsets = block[:4]
    place = HEADER_WORDS
    for a in manifest["arguments"]:
        if a["box"]:
            number, size = TYPES_OF_DRIVER[a["type"]]
            columns, rows = a["shape"][-1] * (manifest["slices"] if a["sliced"] else 1), a["boxRows"]
            pointer, *strides = block[place : place + words_of(manifest, a)]
            sizes = [columns, heads // a["group"], tokens, 1 if offsets else sequences]
            strides = strides[::-1]
            if a["kind"] == "checkpoint":
                # How many there are, only the caller knows.
                chunk_stride, head_stride = strides[::-1]
                sizes[2:] = [rows, 1 << 30]
                strides = [head_stride, columns, chunk_stride]
            strides = [s * size if n > 1 else 16 for s, n in zip(strides, sizes[1:], strict=True)]
            described = [pointer, number, size, *(max(n, 1) for n in sizes), *strides, a["box"], rows]
            block += described + [0] * (BOX_WORDS - len(described))
        place += words_of(manifest, a)
    return np.array(block, dtype=np.int64)


def table_rows(numbers, period, chunk, element):
    """The numbers [heads, positions, width] of a table as kernels read them, the stride of its rows and its period. A
    period is repeated until it has as many rows as a chunk; rows of several numbers begin at multiples of 16 bytes.
    """
    bits = to_bits(numbers, element)
    bits = bits.reshape(*bits.shape[:2], -1)
    together = 1 if bits.shape[2] == 1 else 16 // bits.itemsize
    repeats = -(-chunk // period) if period else 1
    rows = np.pad(np.tile(bits, (1, repeats, 1)), ((0, 0), (0, 0), (0, -bits.shape[2] % together)))
    return np.ascontiguousarray(rows), rows.shape[2], period * repeats


class Launch:
    """One launch: `lengths` are those of the sequences; with `packed` they lie in one row of tokens."""

    def __init__(
        self, manifest, lengths, heads=2, gate="soft", packed=False, initial=True, final=True, pool=False, seed=0
    ):
        self.manifest, self.lengths, self.heads, self.packed = manifest, lengths, heads, packed
        self.family = kernels.family(manifest["symbol"])
        rng = np.random.default_rng(seed)
        self.buffers, self.values, self.words, self.outputs, self.states = [], {}, [], {}, {}
        slices, N, in_place = manifest["slices"], len(lengths), manifest["inPlace"]
        total, longest = sum(lengths), max(lengths)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
        together = math.lcm(*(a["group"] for a in manifest["arguments"] if a["kind"] == "state")) if in_place else 1
        self.blocks = items(manifest, N, total if packed else longest, packed) * heads // together * slices
        # States in a pool have rows in any order; the sequence in the middle has none.
        self.slots = np.arange(N, dtype=np.int64)
        if pool:
            self.slots = rng.permutation(2 * N)[:N].astype(np.int64)
            self.slots[N // 2] = -1
        rows_of_state = 2 * N if pool else N
        self.positions = rng.integers(0, 50, size=rows_of_state)
        has_tables = any(a["kind"] == "table" for a in manifest["arguments"])
        words_of_rows = [
            self.buffer(self.positions) if has_tables else 0,
            self.buffer(self.slots) if pool else 0,
            rows_of_state,
        ]
        header = [N, total if packed else longest, heads, self.buffer(offsets) if packed else 0, *words_of_rows]
        # Where a kernel that expects something of its chunks says which work items it leaves to another.
        self.left, self.gate = len(self.buffers), gate
        left = self.buffer(np.full(self.blocks, -1, dtype=np.int32))
        header += range_words(0, -(-header[1] // manifest["chunk"]), left=left)
        self.offsets = offsets
        rows = (1, total) if packed else (N, longest)
        entries = {}
        for a in manifest["arguments"]:
            name, kind, shape, element = a["name"], a["kind"], list(a["shape"]), a["type"]
            owners = heads // a["group"]
            if a["sliced"]:
                shape[-1] *= slices
            if kind in ("input", "output"):
                whole = (*rows, owners, *shape)
                values = self.input_values(rng, name, whole, gate) if kind == "input" else np.full(whole, np.nan)
                bits = to_bits(values, element)
                address = self.buffer(bits)
                strides = [s // bits.itemsize for s in bits.strides]
                self.words += [address, strides[0], strides[1], strides[2]]
                if kind == "output":
                    self.outputs[name] = (len(self.buffers) - 1, bits.shape, element)
                else:
                    self.values[name] = from_bits(bits, element)
            elif kind == "parameter":
                bits = to_bits(rng.normal(size=(owners, *shape)) / math.sqrt(max(1, *shape, 1)), element)
                self.words += [self.buffer(bits), bits[0].size]
                self.values[name] = from_bits(bits, element)
            elif kind == "table" and self.family.computes_tables:
                self.words += [0, 0, 0, 0]
            elif kind == "table":
                # Tables with rows are periodic in these kernels.
                varying = len(shape) > 0
                period = 5 if varying else 0
                numbers = rng.normal(size=(owners, *((period, *shape) if varying else shape)))
                if varying:
                    table, stride, period = table_rows(numbers, period, manifest["chunk"], element)
                    self.words += [self.buffer(table), table[0].size, stride, period]
                else:
                    self.words += [self.buffer(to_bits(numbers, element)), 1, 0, 0]
                self.values[name] = from_bits(to_bits(numbers, element), element)
            elif kind == "state":
                columns = a["columns"] * (slices if a["sliced"] and a["columns"] == a["shape"][-1] else 1)
                height = a["shape"][0]
                if a["entry"] not in entries:
                    start = to_bits(0.3 * rng.normal(size=(rows_of_state, owners, height, columns)), element)
                    if "z" in [b["name"] for b in manifest["arguments"]]:
                        start = to_bits(np.abs(from_bits(start, element)), element)
                    first = self.buffer(start) if initial else 0
                    last = first if in_place else 0
                    if final and not in_place:
                        last = self.buffer(to_bits(np.full(start.shape, np.nan), element))
                    entries[a["entry"]] = (first, last, start, len(self.buffers) - 1)
                first, last, start, index = entries[a["entry"]]
                column, item = a["row"] * a["columns"] + a["column"], start.itemsize
                width = shape[1] if len(shape) == 2 else 1
                strides = [s // item for s in start.strides]
                self.words += [first + column * item if first else 0, last + column * item if last else 0]
                self.words += [strides[0], strides[1], strides[2]]
                begin = from_bits(start, element)[..., column : column + width]
                if not initial:
                    begin = np.full_like(begin, -math.inf if name in self.family.lowest else 0)
                self.values[name] = begin if len(shape) == 2 else begin[..., 0]
                if final:
                    self.states[name] = (index, start.shape, element, column, width, len(shape))
        self.header = header
        self.take(manifest)

    def take(self, manifest):
        """Another kernel for the same call, which takes what the one before has left."""
        self.manifest = manifest
        self.block = argument_block(manifest, self.header + self.words)

    def problem_of_left(self):
        """What is wrong with what a kernel says it leaves: gentle gates are in range, strong ones of several tokens are
        not.
        """
        left, lengths = self.buffers[self.left], np.repeat(self.lengths, self.heads)
        known = {"soft": np.zeros(len(left)), "near": np.zeros(len(left)), "strong": lengths > 2}.get(self.gate, left)
        if not np.isin(left, (0, 1)).all():
            return f"the kernel leaves {left.tolist()}, expected 0 or 1 of each work item"
        return "" if (left == known).all() else f"the kernel leaves {left.tolist()}, expected {known.tolist()}"

    def input_values(self, rng, name, shape, gate):
        options = self.family.options
        if name == "g":
            return gates(rng, shape, gate, options.get("form", "log"))
        values = rng.normal(size=shape)
        # Slots that add up to much make a softmax so sharp that no 16-bit number says where.
        if name == "s":
            return 0.2 * values
        if name == "b":
            return rng.random(size=shape)
        if name == "k" and self.family.reference is reference_delta:
            return values / np.linalg.norm(values, axis=-1, keepdims=True)
        if name == "q":
            values /= math.sqrt(shape[-1])
        # A denominator near zero would be ill-conditioned.
        return np.abs(values) if options.get("normalize") and name in "qk" else values

    def buffer(self, array):
        """Adds a buffer; its address is a placeholder that the launcher replaces."""
        self.buffers.append(np.ascontiguousarray(array))
        return len(self.buffers) << 32

    # -------------------------------------------------------------------------------------------- the verdict
    def rows_of(self, array, n, head_index):
        if self.packed:
            return array[0, self.offsets[n] : self.offsets[n + 1], head_index]
        return array[n, : self.lengths[n], head_index]

    def state(self, name):
        """What a state is after the launch, of all rows."""
        index, shape, element, column, width, rank = self.states[name]
        entry = from_bits(self.buffers[index].reshape(shape), element)[..., column : column + width]
        return entry if rank == 2 else entry[..., 0]

    def errors(self):
        """Relative errors, in the Frobenius norm, of every output and final state against the fp64 loops.

        What belongs to no sequence has to be as it was, and outputs of a sequence without a row 0.
        """
        groups = {a["name"]: a["group"] for a in self.manifest["arguments"]}
        kinds = {a["name"]: a["kind"] for a in self.manifest["arguments"]}
        element = self.manifest["arguments"][0]["type"]
        found, wanted = {}, {}

        def compare(name, array, expected):
            found.setdefault(name, []).append(np.asarray(array).ravel())
            wanted.setdefault(name, []).append(np.asarray(expected).ravel())

        got = {name: from_bits(self.buffers[i].reshape(shape), e) for name, (i, shape, e) in self.outputs.items()}
        for n, row in enumerate(self.slots):
            for h in range(self.heads):
                if row < 0:
                    for name in got:
                        cleared = self.rows_of(got[name], n, h) == 0
                        compare("left out", cleared, np.ones_like(cleared))
                    continue
                x, states = {"position": self.positions[row], "head": h}, {}
                for name, values in self.values.items():
                    own = h // groups[name]
                    if kinds[name] == "input":
                        x[name] = self.rows_of(values, n, own)
                    elif kinds[name] == "state":
                        states[name] = values[row, own]
                    else:
                        x[name] = values[own]
                more = {"chunk": self.manifest["chunk"]} if self.family.by_chunk else {}
                out, last = self.family.reference(x, states, **more)
                for name, rows in out.items():
                    compare(name, self.rows_of(got[name], n, h), rows)
                for name in self.states:
                    compare("state " + name, self.state(name)[row, h // groups[name]], last[name])
        for name in self.states:
            others = np.setdiff1d(np.arange(len(self.values[name])), self.slots)
            compare("left out", self.state(name)[others], self.values[name][others])
        result = {}
        for name in found:
            a, b = np.concatenate(found[name]), np.concatenate(wanted[name])
            limit = 0 if name == "left out" else (STATE if name.startswith("state") else OUTPUT)[element]
            with np.errstate(invalid="ignore"):
                error = float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30)) if a.size else 0.0
            result[name] = (error, limit)
        return result


def items(manifest, sequences, tokens, packed, chunks=None):
    """What heads and slices multiply: sequences, or their chunks, of which each has so many at most, where those are
    items of their own. `tokens` are those of each sequence, or of all that are packed.
    """
    if not manifest.get("independentChunks"):
        return sequences
    of_longest = sequences * (chunks or -(-tokens // manifest["chunk"]))
    return min(of_longest, tokens // manifest["chunk"] + sequences) if packed else of_longest


def division_of(settings):
    """Takes from the settings of a case how a GradientLaunch divides it."""
    return {key: settings.pop(key, 0) for key in ("packed", "segment", "of_long")}


def save_problem(path, problem, tables, division):
    """Leaves in a file what a GradientLaunch is made of."""
    arrays = {f"{part}/{name}": array for part, named in problem.items() for name, array in named.items()}
    for name, (period, varying, numbers) in tables.items():
        arrays |= {f"tables/{name}": numbers, f"meta/{name}": np.array([period, varying])}
    arrays |= {f"division/{name}": np.array(value) for name, value in division.items()}
    np.savez_compressed(path, **arrays)


def load_problem(path):
    arrays, problem, tables, division = np.load(path), {}, {}, {}
    for key in arrays.files:
        part, _, name = key.partition("/")
        if part == "tables":
            period, varying = arrays[f"meta/{name}"].tolist()
            tables[name] = (period, bool(varying), arrays[key])
        elif part == "division":
            division[name] = int(arrays[key])
        elif part != "meta":
            problem.setdefault(part, {})[name] = arrays[key]
    for part in ("initial", "cotangents"):
        problem.setdefault(part, {})
    return problem, tables, division


class Stage:
    """One of the launches of a gradient, of one of its kernels; they share their buffers."""

    def __init__(self, kernel, manifest, blocks, block, buffers):
        self.kernel, self.manifest, self.blocks, self.buffers = kernel, manifest, blocks, buffers
        self.block = argument_block(manifest, block)


ROWS = ("input", "output")


class GradientLaunch:
    """The launches of a gradient on the arrays of a problem (gradients.py), the kernel that walks back last. With
    `packed` the sequences of the batch lie in one row of tokens; with `segment` they are walked in segments of as many
    chunks, and with `of_long` the starts of so many segments at a time are kept, as runtime/LaunchGradient.cpp does.
    """

    def __init__(self, manifests, problem, tables, packed=False, segment=0, of_long=0):
        self.problem, self.buffers, self.outputs, self.entries = problem, [], {}, {}
        arguments = [a for manifest in manifests for a in manifest["arguments"]]
        self.element = next(a["type"] for a in arguments if a["name"] == "d_o")
        self.batch, self.tokens, self.heads = problem["inputs"]["d_o"].shape[:3]
        offsets = np.arange(self.batch + 1, dtype=np.int64) * self.tokens
        tokens = self.batch * self.tokens if packed else self.tokens
        self.header = [self.batch, tokens, self.heads, self.buffer(offsets) if packed else 0, 0, 0, self.batch]
        self.tables, self.packed, self.shared, self.places = tables, packed, {}, {}
        self.manifests, self.stages = manifests, []
        chunks = -(-tokens // manifests[-1]["chunk"])
        self.interval = max(manifest["interval"] for manifest in manifests)
        reads_checkpoints = any(a["kind"] == "checkpoint" for a in arguments)
        # Where no state is kept for the walk back, the walk forward is one over all chunks.
        walks_forward_first = not reads_checkpoints and manifests[-1]["reverse"]
        segment = -(-segment // self.interval) * self.interval
        self.segment = (min(segment, chunks) if reads_checkpoints or walks_forward_first else 0) or chunks
        self.chunks = chunks
        self.long = min(self.segment * of_long or chunks, chunks)
        starts = "segments" if self.segment < chunks else None
        # Of the kernels before the last one may be for the starts of segments alone.
        own = [index for index, manifest in enumerate(manifests) if manifest["symbol"].endswith("_segment_starts")]
        systems = [index for index, manifest in enumerate(manifests) if manifest["symbol"].endswith("_systems")]
        walks = [index for index in range(len(manifests)) if index not in own + systems]
        # What asks for rows that another keeps comes behind it.
        rows = [{kind: {a["name"] for a in m["arguments"] if a["kind"] == kind} for kind in ROWS} for m in manifests]
        for keeper in [index for index in walks if manifests[index]["earlier"]]:
            askers = [index for index in walks if rows[index]["input"] & rows[keeper]["output"]]
            if askers and walks.index(askers[0]) < walks.index(keeper):
                walks.remove(keeper)
                walks.insert(walks.index(askers[0]), keeper)
        for kernel in systems:
            self.add_stage(kernel, "chunks", 0, chunks)
        forward = [index for index in walks if manifests[index]["symbol"].endswith("_checkpoints")]
        if walks_forward_first:
            walks = [index for index in walks if index not in forward]
            for kernel in forward:
                self.add_stage(kernel, "chunks", 0, chunks)
            starts = None
        elif starts and self.long < chunks:
            self.add_stage([*own, *walks][0], "long segments", 0, chunks)
        for first_of_long in reversed(range(0, chunks, self.long)):
            of_long = min(self.long, chunks - first_of_long)
            if starts:
                begins = "long segments" if self.long < chunks else None
                self.add_stage([*own, *walks][0], "segments", first_of_long, of_long, begins)
            for first in reversed(range(first_of_long, first_of_long + of_long, self.segment)):
                count = min(self.segment, first_of_long + of_long - first)
                for kernel in walks:
                    self.add_stage(kernel, "chunks", first, count, starts if kernel in forward else None)

    def add_stage(self, kernel, kept, first, count, begins=None):
        """A launch over so many chunks from a first one on, which keeps checkpoints and may begin with others."""
        self.manifest, self.kept, self.begins, self.first = self.manifests[kernel], kept, begins, first
        words = [word for argument in self.manifest["arguments"] for word in self.words_of(argument)]
        tokens = self.batch * self.tokens if self.packed else self.tokens
        blocks = items(self.manifest, self.batch, tokens, self.packed, count) * self.heads * self.manifest["slices"]
        of_long = first - first % self.long if begins == "segments" else 0
        placed = (of_long, min(self.long, self.chunks - of_long) if begins == "segments" else self.chunks)
        interval, between_starts = self.kept_of(kept)[0], self.kept_of(begins)[0] if begins else 0
        block = [*self.header, *range_words(first, count, interval, between_starts, placed=placed), *words]
        self.stages.append(Stage(kernel, self.manifest, blocks, block, self.buffers))

    def kept_of(self, kept):
        """The chunks from one checkpoint to the next, and those of which there are checkpoints."""
        intervals = {
            "long segments": (self.long, self.chunks),
            "segments": (self.segment, self.long),
            "chunks": (self.interval, self.segment),
        }
        return intervals[kept]

    def buffer(self, array):
        self.buffers.append(np.ascontiguousarray(array))
        return len(self.buffers) << 32

    def once(self, name, array, element):
        """An array that several arguments are about."""
        if (name, element) not in self.shared:
            self.shared[name, element] = self.buffer(to_bits(array, element))
        return self.shared[name, element]

    def words_of(self, a):
        kind, name, shape, element, group = a["kind"], a["name"], list(a["shape"]), a["type"], a["group"]
        if a["sliced"]:
            shape[-1] *= self.manifest["slices"]
        if kind in ("input", "output"):
            # An output that heads share has the parts of each, and of each slice.
            owners = self.heads * self.parts_of(a) if kind == "output" else max(1, self.heads // group)
            size = int(np.prod(shape))
            strides = [0 if self.packed else self.tokens * owners * size, owners * size, size]
            if kind == "output" and self.packed and (a["group"] > 1 or a["partial"]):
                return self.words_of_parts(a, owners, shape)
            if name.startswith(("kept.", "inverse.")):  # what one kernel leaves for others
                array = np.full((self.batch, self.tokens, owners, *shape), np.nan)
                return [self.once(name, array, element), *strides]
            if kind == "input":
                return [self.once(name, self.problem["inputs"][name], element), *strides]
            if name not in self.outputs:
                whole = (self.batch, self.tokens, owners, *shape)
                self.outputs[name] = (len(self.buffers), whole, element, group)
                self.buffer(to_bits(np.full(whole, np.nan), element))
            return [(self.outputs[name][0] + 1) << 32, *strides]
        if kind == "parameter":
            whole = a["entry"] or name  # some columns of it
            array = self.problem["inputs"][whole]
            return [
                self.once(whole, array, element) + a["column"] * to_bits(np.zeros(1), element).itemsize,
                array[0].size,
            ]
        if kind == "table":
            period, varying, numbers = self.tables[name]
            numbers = numbers[: max(1, self.heads // group)]
            if varying:
                rows, stride, period = table_rows(numbers, period, self.manifest["chunk"], element)
                return [self.buffer(rows), rows[0].size, stride, period]
            return [self.buffer(to_bits(numbers, element)), numbers[0].size, 0, 0]
        if kind == "window":
            return [0, 0, 0, 0, 0]
        if kind in ("checkpoint", "kept"):
            return self.checkpoint_words(a, self.kept)
        assert kind == "state", kind
        if self.begins:
            address, *strides = self.checkpoint_words(a, self.begins)
            return [address, 0, *strides, shape[1] if len(shape) == 2 else 1]
        return self.reverse_words(a) if a["entry"].startswith("d_") else self.forward_words(a)

    def words_of_parts(self, a, owners, shape):
        """Each segment's parts have places of their own here, where no one adds them up before the next."""
        name, element, size = a["name"], a["type"], int(np.prod(shape))
        tokens = self.segment * self.manifest["chunk"]
        of_segment, count = min(self.batch * tokens, self.batch * self.tokens), -(-self.batch * self.tokens // tokens)
        if name not in self.outputs:
            self.outputs[name] = (len(self.buffers), (owners, *shape), element, a["group"])
            self.places[name] = tokens, of_segment
            self.buffer(to_bits(np.full((count * (tokens + of_segment), owners, *shape), np.nan), element))
        index = self.outputs[name][0]
        before = self.first // self.segment * of_segment * owners * size * self.buffers[index].itemsize
        return [((index + 1) << 32) + before, tokens * owners * size, owners * size, size]

    def rows_in_place(self, name):
        """The rows of an output, wherever each segment left them."""
        index, whole, element, _group = self.outputs[name]
        if name not in self.places:
            return from_bits(self.buffers[index].reshape(whole), element)
        rows = from_bits(self.buffers[index].reshape(-1, *whole), element)
        tokens, of_segment = self.places[name]
        n, t = np.divmod(np.arange(self.batch * self.tokens), self.tokens)
        segment = t // tokens
        place = np.minimum(n * tokens, n * self.tokens) + t - segment * tokens
        return rows[segment * (of_segment + tokens) + place][None]

    def parts_of(self, *arguments):
        return self.manifest["slices"] if any(a["partial"] for a in arguments) else 1

    def checkpoint_words(self, a, kept):
        """Of checkpoints that are kept: no more than there are to be."""
        heads, size, chunk = self.heads // a["group"], int(np.prod(a["shape"])), self.manifest["chunk"]
        if a["sliced"]:
            size *= self.manifest["slices"]
        interval, chunks = self.kept_of(kept)
        together = self.batch * self.tokens // (chunk * interval) + self.batch
        count = min(self.batch * -(-chunks // interval), together)
        array = np.full(count * heads * size, np.nan)
        return [self.once(f"checkpoint {a['name']} of {kept}", array, a["type"]), heads * size, size]

    def strides_of(self, entry, shape):
        """Of a sequence, a head and a row, in an array with heads on the second axis, or in a tail on the third."""
        strides = [int(np.prod(shape[axis + 1 :])) for axis in range(4)]
        return [strides[0], strides[2], strides[1]] if entry.endswith(("_tail", "_window")) else strides[:3]

    def forward_words(self, a):
        array = self.problem["initial"][a["entry"]]
        array = array if array.ndim == 4 else array[..., None] if a["columns"] == 1 else array[:, :, None]
        address = self.once("initial " + a["entry"], array, a["type"])
        column = (a["row"] * a["columns"] + a["column"]) * to_bits(np.zeros(1), a["type"]).itemsize
        return [address + column, 0, *self.strides_of(a["entry"], array.shape)]

    def reverse_words(self, a):
        entry, columns, height = a["entry"], a["columns"], a["shape"][0]
        if a["sliced"] and len(a["shape"]) == 1:
            height *= self.manifest["slices"]
        tail = entry.split(".")[0].endswith("_tail")
        parts_of_head = self.parts_of(*(other for other in self.manifest["arguments"] if other["entry"] == entry))
        heads = self.heads * parts_of_head
        whole = (self.batch, height, heads, columns) if tail else (self.batch, heads, height, columns)
        if entry not in self.entries:
            cotangent = self.problem["cotangents"].get(entry[2:])
            first = 0
            if cotangent is not None:
                # All of a head that heads or slices share is with the first of them.
                parts = np.zeros(whole)
                axis = 2 if tail else 1
                group = heads // cotangent.shape[axis]
                place = [slice(None)] * 4
                place[axis] = slice(None, None, group)
                parts[tuple(place)] = cotangent.reshape(parts[tuple(place)].shape)
                first = self.buffer(to_bits(parts, a["type"]))
            index = len(self.buffers)
            last = self.buffer(to_bits(np.full(whole, 0 if parts_of_head > 1 else np.nan), a["type"]))
            self.entries[entry] = (first, last, index, whole, a["type"], tail)
        first, last, *_ = self.entries[entry]
        # What is carried begins with what the segment behind has left.
        if any(stage.manifest is self.manifest for stage in self.stages):
            first = last
        column = (a["row"] * a["columns"] + a["column"]) * to_bits(np.zeros(1), a["type"]).itemsize
        sequence, head, row = self.strides_of("_tail" if tail else "", whole)
        places = 1 if a["partial"] else parts_of_head
        return [first + column if first else 0, last + column, sequence, head * places, row]

    def errors(self):
        """Errors of every gradient, by the size that it has or that its terms have by nature, and limits."""
        found = {}
        for name in self.outputs:
            found[name[2:]] = self.rows_in_place(name)
        for name, (_first, _last, index, whole, element, tail) in self.entries.items():
            parts = from_bits(self.buffers[index].reshape(whole), element)
            parts = parts.swapaxes(1, 2) if tail else parts
            subject = name[2:].split(".")[0]
            if subject not in self.problem["gradients"]:
                subject = subject.rstrip("_")
            found[subject] = found.get(subject, 0) + (
                parts if subject in self.problem["initial"] else parts.sum(0)[None]
            )
        result = {}
        for name, parts in found.items():
            if name not in self.problem["gradients"]:  # of a state that is read at an earlier time there is none
                continue
            wanted = self.problem["gradients"][name]
            if name in self.problem["inputs"] and wanted.ndim < parts.ndim and parts.shape[0] == 1:
                wanted = wanted[None]
            if name.endswith("_tail"):
                wanted = wanted.swapaxes(1, 2)
            axis = 2 if name in self.outputs_of_rows() else 1
            group = parts.shape[axis] // wanted.shape[axis]
            parts = parts.reshape(*parts.shape[:axis], -1, group, *parts.shape[axis + 1 :]).sum(axis + 1)
            error = float(np.linalg.norm(parts.reshape(wanted.shape) - wanted) / max(np.linalg.norm(wanted), 1.0))
            limits = GRADIENT if name in ROWS or name in self.problem["initial"] else GRADIENT_OF_OTHERS
            result["d_" + name] = (error, limits[self.element])
        missing = self.problem["gradients"].keys() - found.keys()
        assert not missing, f"no gradient of {', '.join(missing)}"
        return result

    def outputs_of_rows(self):
        return {name[2:] for name in self.outputs}


def cases(manifest):
    """The launches that every kernel goes through: lengths about the chunk, packing, gates at their extremes."""
    C, group = manifest["chunk"], max(a["group"] for a in manifest["arguments"])
    heads = max(2, group)
    gated = any(a["name"] == "g" for a in manifest["arguments"])
    if manifest["inPlace"]:
        yield "one token", dict(lengths=[1] * 3, heads=heads)
        yield "a pool", dict(lengths=[1] * 5, heads=2 * group, pool=True)
        return
    yield "one chunk", dict(lengths=[C], heads=heads)
    yield "one token", dict(lengths=[1, 1], heads=heads, initial=False)
    yield "ragged", dict(lengths=[2 * C + 5], heads=heads)
    # More than any ring of tiles has places.
    yield "many chunks", dict(lengths=[9 * C], heads=group)
    yield "packed", dict(lengths=[0, C + 7, 1, 3], heads=heads, packed=True)
    kinds = ("strong", "near", "zeros", "mixed") if gated else ()
    options = kernels.family(manifest["symbol"]).options if gated else {}
    if options.get("form") == "factor":
        kinds += ("signed",)
    if options.get("rescaled"):
        kinds += ("firm", "late")
    for kind in kinds:
        yield kind, dict(lengths=[2 * C + 1], heads=group, gate=kind)


def verdict(name, case, errors):
    """One line; whether all errors are within their limits."""
    good = all(error <= limit for error, limit in errors.values())
    text = ", ".join(f"{what} {error:.1e}" for what, (error, _) in errors.items())
    return good, f"{'ok  ' if good else 'FAIL'} {name} {case}: {text}"


def read_manifest(path):
    return json.loads(path.read_text())
