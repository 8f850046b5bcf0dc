"""Breaks the text of the round-trip test in thousands of ways, the same in every run; none may crash the compiler.

What a mutation leaves valid is printed, read again, canonicalised and specialised with its default options.

RUN: %python %s %S/roundtrip.mlir
"""

import random
import re
import subprocess
import sys

MUTANTS = 2000
SEPARATOR = "\n// -----\n"
TOKEN = re.compile(r'"[^"\n]*"|[%@#!^]?[\w.$]+|->|\s+|.')
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


def run(arguments: list[str], text: str) -> subprocess.CompletedProcess:
    return subprocess.run(["stretto-opt", *arguments], input=text.encode(), capture_output=True)


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


def mutate(text: str, rng: random.Random) -> str:
    if rng.random() < 0.3:
        lines = text.split("\n")
        i, j = rng.randrange(len(lines)), rng.randrange(len(lines))
        match rng.randrange(4):
            case 0:
                del lines[i]
            case 1:
                lines.insert(i, lines[j])
            case 2:
                lines[i], lines[j] = lines[j], lines[i]
            case 3:
                del lines[i + 1 :]
        return "\n".join(lines)
    tokens = TOKEN.findall(text)
    solid = [n for n, token in enumerate(tokens) if not token.isspace()] or [0]
    i = rng.choice(solid)
    # Two thirds of the time, what takes a token's place is of its kind, which the parser is likelier to let through.
    alike = [n for n in solid if tokens[n][:1] == tokens[i][:1]] if rng.random() < 0.7 else solid
    j = rng.choice(alike)
    match rng.randrange(5):
        case 0:
            tokens[i] = ""
        case 1:
            tokens[i] += " " + tokens[i]
        case 2:
            tokens[i], tokens[j] = tokens[j], tokens[i]
        case 3:
            tokens[i] = tokens[j]
        case 4:
            tokens[i] = rng.choice(STRANGE)
    return "".join(tokens)


def crashes(arguments: list[str], mutants: list[str]) -> bool:
    return run(arguments, SEPARATOR.join(mutants)).returncode not in (0, 1)


def culprit(arguments: list[str], mutants: list[str]) -> str:
    while len(mutants) > 1:
        half = len(mutants) // 2
        mutants = mutants[:half] if crashes(arguments, mutants[:half]) else mutants[half:]
    return mutants[0]


def main() -> int:
    originals = declarations(sys.argv[1])
    assert len(originals) >= 14, "the round-trip test holds fewer declarations than expected"
    rng = random.Random(20)
    mutants = [rng.choice(originals) for _ in range(MUTANTS)]
    mutants = [mutate(text, rng) if rng.random() < 0.6 else mutate(mutate(text, rng), rng) for text in mutants]
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
