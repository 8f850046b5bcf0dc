"""Breaks the text of the round-trip test in thousands of ways, the same in every run; none may crash the compiler.

What a mutation leaves valid is printed, read again, canonicalised and specialised with its default options.

RUN: %python %s %S/roundtrip.mlir
"""

import pathlib
import random
import re
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "Inputs"))
from mutants import SEPARATOR, culprit, mutate, run

MUTANTS = 2000
STRANGE = [
    *("", "?", "x", "0", "-1", "1", "4096", "9223372036854775808", "1.0e999", "0x7FF8000000000001", "-"),
    *('""', '"K"', '"K - 9"', '"1/0"', '"((((("', '"K*K*K*K*K*K*K*K*K"', '"H|W"', '"1|G"', '"\\FF\\00"', '"S"', '"-K"'),
    *("f64", "i1", "index", "none", "tensor<*xf64>", "tensor<0xf64>", "vector<4xf64>", "() -> ()"),
    *("tensor<?xf64, #stretto.row<K>>", "tensor<f64, #stretto.row<()>>", "tensor<4xf64, #stretto.row<4, G>>"),
    *("tensor<?xi1, #stretto.row<K>>", "tensor<?x?xf64, #stretto.param<[K, V]>>", "!stretto.state<K, V, reverse>"),
    *("dense<0.0> : tensor<4xf64>", "dense<> : tensor<0xi1>", "true", "unit", "[]", "{}", "@x", "%q", "%0", "%x:2"),
    *("stretto.yield", "stretto.state", "scf.yield", "scf.if", "arith.constant", "reverse", "at", "period"),
]
PIPELINE = "builtin.module(canonicalize,cse,stretto.variant(stretto-specialize),canonicalize)"


def declarations(source: str) -> list[str]:
    """Each declaration of the source without aliases, in its own syntax and in the generic one."""
    found = []
    for options, pattern in (
        ([], r"^  stretto\.variant .*?^  }$"),
        (["--mlir-print-op-generic"], r'^  "stretto\.variant"\(\).*?^  }\)[^\n]*$'),
    ):
        printed = run(["--mlir-print-local-scope", *options, source], "").stdout.decode()
        found += re.findall(pattern, printed, re.MULTILINE | re.DOTALL)
    return found


def main() -> int:
    originals = declarations(sys.argv[1])
    assert len(originals) >= 14, "the round-trip test holds fewer declarations than expected"
    rng = random.Random(20)
    mutants = [rng.choice(originals) for _ in range(MUTANTS)]
    mutants = [mutate(text, rng, STRANGE) for text in mutants]
    mutants = [text if rng.random() < 0.6 else mutate(text, rng, STRANGE) for text in mutants]
    split = ["--split-input-file", "--mlir-disable-threading", "--mlir-print-local-scope"]
    split.append("--allow-unregistered-dialect")

    for arguments in ([*split, "--verify-roundtrip"], [*split, f"--pass-pipeline={PIPELINE}"]):
        result = run(arguments, SEPARATOR.join(mutants))
        if result.returncode not in (0, 1):
            print(f"stretto-opt {' '.join(arguments)} ended with {result.returncode} on\n{culprit(arguments, mutants)}")
            print(result.stderr.decode(errors="replace")[-2000:])
            return 1
        if b"roundtrip" in result.stderr:
            print(result.stderr.decode(errors="replace"))
            return 1
        valid = len(re.findall(rb"stretto\.variant", result.stdout))
        print(f"{MUTANTS} mutants, {valid} of them valid")
        # Mutants that are all refused by the parser would test nothing but the parser.
        if valid < MUTANTS // 50:
            return 1
    return 0


sys.exit(main())
