"""Breaks kernels on their way to threads in hundreds of ways, the same in every run; none may crash the compiler.

They are broken behind a few of the passes, in what files may say there: layouts, channels, what an operation lacks, and
manifests. What a mutation leaves valid takes the passes that follow.

RUN: %python %s
"""

import itertools
import pathlib
import random
import re
import sys

tests = pathlib.Path(__file__).parents[2]
sys.path[:0] = [str(tests / "Inputs"), str(tests / "gpu")]
import kernels  # noqa: E402
from mutants import SEPARATOR, culprit, mutate, run  # noqa: E402

MUTANTS, SECONDS = 600, 120
FAMILIES = ("linear", "gla", "rowmaps", "mixes", "halves", "delta", "scans", "stepgla", "steprowmaps")
PASSES = [
    *("stretto-divide-roles", "stretto-multiply-vectors", "stretto-assign-layouts", "control-flow-sink"),
    "stretto-select-products",
    *("stretto-overlap-products", "stretto-select-copies", "stretto-plan-shared-memory", "stretto-send-ahead"),
    *("stretto-insert-barriers", "stretto-store-behind-barriers", "stretto-set-tiles-aside"),
]
BEHIND = (3, 8, len(PASSES))
# Of a block, in whose functions several roles are planned together.
OF_BLOCKS = ("stretto-divide-roles", "stretto-plan-shared-memory")
OPTIONS = {
    "stretto-select-products": "{chip=sm_90a}",
    "stretto-select-copies": "{chip=sm_90a}",
    "stretto-plan-shared-memory": "{chip=sm_90a}",
    "stretto-set-tiles-aside": "{chip=sm_90a registers=255}",
}
KINDS = ("input", "output", "state", "parameter", "table", "checkpoint", "kept", "window", "bf16", "f16", "f32")
WORD = r"(?<=\\22)(?:" + "|".join(KINDS) + r")(?=\\22)"
NUMBER = r"(?<=[:\[,])(?:true|false|-?\d+)(?=[,\]}])"
MAY_LACK = re.compile(
    r" (?:at|turn|add|valid|after|fence|staged|matrices|lowest|strict|transpose\w*)(?: %[\w#]+)?(?=[ ,:])"
)
OPERAND = re.compile(r"(?<=[ ,(])%\w+(?=[ ,)])")


def passes(first: int, last: int, ahead: int = 0) -> str:
    """Those behind others; with so many warps that run ahead of those that walk."""
    options = OPTIONS | {"stretto-divide-roles": f"{{ahead={ahead}}}"}
    names = [(name, name + options.get(name, "")) for name in PASSES[first:last]]
    return ",".join(text if name in OF_BLOCKS else f"kernel.func({text})" for name, text in names) or "cse"


def change(text: str, rng: random.Random) -> str:
    """Something of the kernel, as one who writes it by hand may have it wrong."""
    first = text.index("stretto.manifest")
    last = text.index('"}', first)
    match rng.randrange(4):
        case 0:
            found = list(MAY_LACK.finditer(text))
            replacement = ""
        case 1:
            found = list(re.compile(f"{WORD}|{NUMBER}").finditer(text, first, last))
            replacement = None
        case 2:
            found = list(OPERAND.finditer(text))
            replacement = rng.choice(found).group() if found else ""
        case _:
            return mutate(text, rng, ["0", "1", "-1", "64", "4096", "9223372036854775807"])
    if not found:
        return text
    place = rng.choice(found)
    if replacement is None:
        is_word = place.group() in KINDS
        flip = {"true": "false", "false": "true"}
        numbers = ("0", "1", "2", "16", "-1", "1099511627776")
        replacement = rng.choice(KINDS) if is_word else flip.get(place.group()) or rng.choice(numbers)
    return text[: place.start()] + replacement + text[place.end() :]


def main() -> int:
    texts = [text for _, text in kernels.all_kernels(FAMILIES, ("bf16",), ((16, 16), (64, 64)))]
    split = ["--split-input-file", "--mlir-disable-threading"]
    rng = random.Random(21)
    for behind, ahead in itertools.product(BEHIND, (0, 4)):
        pipeline = f"builtin.module(stretto-fold-over-chunks,{passes(0, behind, ahead)})"
        # Without aliases, which parts of the output would share.
        printed = run([*split, "--mlir-print-local-scope", f"--pass-pipeline={pipeline}"], SEPARATOR.join(texts))
        originals = [
            text for text in printed.stdout.decode().split(SEPARATOR.strip("\n")) if "stretto.manifest" in text
        ]
        assert len(originals) >= len(FAMILIES), printed.stderr.decode()
        mutants = [change(rng.choice(originals), rng) for _ in range(MUTANTS // len(BEHIND) // 2)]
        rest = [*split, f"--pass-pipeline=builtin.module({passes(behind, len(PASSES))},stretto-lower-to-threads)"]
        result = run(rest, SEPARATOR.join(mutants), SECONDS)
        if result.returncode not in (0, 1):
            print(f"stretto-opt {' '.join(rest)} ended with {result.returncode} on\n{culprit(rest, mutants)}")
            print(result.stderr.decode(errors="replace")[-2000:])
            return 1
        valid = result.stdout.count(b"llvm.func")
        print(f"{len(mutants)} mutants behind {behind} passes, {ahead} warps ahead, {valid} of them valid")
        # Mutants that are all refused by the parser would test nothing but the parser.
        if valid < len(mutants) // 20:
            return 1
    return 0


sys.exit(main())
