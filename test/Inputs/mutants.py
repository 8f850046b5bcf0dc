"""What tests that break the text of programs have in common."""

import random
import re
import subprocess

SEPARATOR = "\n// -----\n"
TOKEN = re.compile(r'"[^"\n]*"|[%@#!^]?[\w.$]+|->|\s+|.')


def run(arguments: list[str], text: str, seconds: float | None = None) -> subprocess.CompletedProcess:
    return subprocess.run(["stretto-opt", *arguments], input=text.encode(), capture_output=True, timeout=seconds)


def mutate(text: str, rng: random.Random, strange: list[str]) -> str:
    """The text without a line or a token, with one twice, or with another or a strange one in its place."""
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
            tokens[i] = rng.choice(strange)
    return "".join(tokens)


def crashes(arguments: list[str], mutants: list[str]) -> bool:
    return run(arguments, SEPARATOR.join(mutants)).returncode not in (0, 1)


def culprit(arguments: list[str], mutants: list[str]) -> str:
    while len(mutants) > 1:
        half = len(mutants) // 2
        mutants = mutants[:half] if crashes(arguments, mutants[:half]) else mutants[half:]
    return mutants[0]
