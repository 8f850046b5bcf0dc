"""Chunk kernels for tests of generated PTX: their texts by name, and what they must compute.

A kernel's name is that of a family and its sizes, as in `gla_bf16_k64_v64`; `family` finds the former.
"""

import dataclasses
import itertools

from kernel_references import (
    reference_computed,
    reference_delta,
    reference_halves,
    reference_mixes,
    reference_recurrent,
    reference_rowmaps,
    reference_scans,
    reference_slots,
    reference_step_rowmaps,
    reference_turns,
)
from kernel_text import CHUNK, computed, delta, halves, mixes, recurrent, rowmaps, scans, slots, turns
from step_text import step, step_rowmaps, step_slots


@dataclasses.dataclass
class Family:
    """How to write a kernel of a family, and what it computes."""

    write: object
    reference: object
    options: dict = dataclasses.field(default_factory=dict)
    # States that are -inf where none is given.
    lowest: tuple = ()
    # Whether the reference has to know where chunks begin.
    by_chunk: bool = False
    # Whether it takes single tokens: then there is a kernel that updates states in place, too.
    steps: bool = False
    # Whether the kernel computes tables at positions that only the device knows.
    computes_tables: bool = False
    # How many times more registers a token takes than in other families.
    weight: int = 1

    def text(self, name, element, K, V, **more):
        return self.write(name, element, K, V, **{**self.options, **more})


def family_of(**options):
    reference_options = {k: v for k, v in options.items() if k in ("decay", "form", "normalize", "before")}
    return Family(recurrent, lambda x, s: reference_recurrent(x, s, **reference_options), options)


def step_family(**options):
    return dataclasses.replace(family_of(**options), write=step, steps=True)


FAMILIES = {
    "linear": family_of(),
    "normalized": family_of(normalize=True),
    "simple": family_of(decay="scalar", gate="f32"),
    "simplebefore": family_of(decay="scalar", gate="f32", before=True),
    "simplefactor": family_of(decay="scalar", gate="f32", form="factor"),
    "gla": family_of(decay="channel", gate="f32"),
    "glanorm": family_of(decay="channel", normalize=True),
    "glabefore": family_of(decay="channel", before=True),
    "rescaled": family_of(decay="channel", rescaled=True),
    "rescaledbefore": family_of(decay="channel", before=True, rescaled=True),
    "hgrn": family_of(decay="channel", form="factor"),
    "rowmaps": Family(rowmaps, reference_rowmaps),
    "computed": Family(computed, reference_computed, computes_tables=True, weight=4),
    "slots": Family(slots, reference_slots, weight=2),
    "slotsfactor": Family(slots, lambda x, s: reference_slots(x, s, "factor"), {"form": "factor"}, weight=2),
    "mixes": Family(mixes, reference_mixes, by_chunk=True, weight=4),
    "halves": Family(halves, reference_halves, by_chunk=True, weight=4),
    "turns": Family(turns, reference_turns, by_chunk=True, weight=2),
    "delta": Family(delta, reference_delta, weight=2),
    "deltachannel": Family(delta, reference_delta, {"decay": "channel"}, weight=2),
    "steplinear": step_family(normalize=True),
    "stepsimple": step_family(decay="scalar"),
    "stepgla": step_family(decay="channel"),
    "stepdelta": Family(step, reference_delta, {"decay": "scalar", "delta": True}, steps=True),
    "stepslots": Family(step_slots, reference_slots, steps=True),
    "steprowmaps": Family(step_rowmaps, reference_step_rowmaps, lowest=("L",), steps=True),
    "scans": Family(scans, reference_scans, lowest=("L", "M"), by_chunk=True, weight=2),
}


def family(name):
    return FAMILIES[name.split("_")[0]]


def chunk_of(family, K):
    """As many tokens as registers have room for."""
    if FAMILIES[family].steps:
        return 1
    return max(16, (CHUNK if K <= 64 else CHUNK // 2) // FAMILIES[family].weight)


def fold_options(name):
    """What `stretto-fold-over-chunks` is told."""
    written = FAMILIES.get(name.split("_")[0])
    options = ["in-place"] if name.endswith("_inplace") else []
    return options + (["compute-tables"] if written and written.computes_tables else [])


def all_kernels(
    families=None, elements=("bf16", "f16", "f32"), sizes=((16, 16), (32, 64), (64, 64), (96, 32), (128, 128))
):
    """Names and texts of the kernels that tests run."""
    for name, text in written(families, elements, sizes):
        yield name, text
        if family(name).steps:
            yield name + "_inplace", text.replace(f"@{name} ", f"@{name}_inplace ")


def written(families, elements, sizes):
    for name, element, (K, V) in itertools.product(families or FAMILIES, elements, sizes):
        full = f"{name}_{element}_k{K}_v{V}"
        yield full, FAMILIES[name].text(full, element, K, V, chunk=chunk_of(name, K))
    for name, element, K, V, options in (
        ("linear_group", "bf16", 64, 64, {"group": 2}),
        ("linear_slices", "bf16", 128, 32, {"slices": 4}),
        ("gla_group", "bf16", 64, 32, {"group": 4, "slices": 2}),
        ("stepgla_group", "bf16", 64, 32, {"group": 2, "slices": 2}),
        ("steplinear_group", "bf16", 16, 24, {"group": 4}),
    ):
        if not families or name.split("_")[0] in families:
            yield name, family(name).text(name, element, K, V, **options)
