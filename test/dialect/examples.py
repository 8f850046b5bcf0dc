"""Parses and verifies every example in the descriptions of every dialect.

An example stands between ```mlir and ``` in a .td file. It is a whole file, or a fragment that uses values it does
not define. A fragment becomes the body of a function that has those values for arguments; their names and types are
what the parser says it misses.

RUN: %python %s %S/../../dialect
"""

import pathlib
import re
import subprocess
import sys
import textwrap
from dataclasses import dataclass, field

EXAMPLE = re.compile(r"^( *)```mlir\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
ERROR = re.compile(r"^<stdin>:(\d+):(\d+): error: (.*)$", re.MULTILINE)
UNKNOWN = "use of undeclared SSA value name"
OTHER_TYPE = re.compile(r"use of value '(%[\w.$]+)' expects different type than prior uses: '(.*)' vs 'none'")
SEPARATOR = "// -----"


@dataclass
class Example:
    place: str
    text: str
    arguments: dict[str, str] = field(default_factory=dict)
    wrapped: bool = False

    def source(self) -> str:
        if not self.wrapped:
            return self.text
        arguments = ", ".join(f"{name}: {kind}" for name, kind in self.arguments.items())
        return f"func.func @example({arguments}) {{\n{self.text}return\n}}\n"

    def learn(self, text: str, message: str) -> bool:
        """Whether an error at `text` tells something about the arguments that is not known yet."""
        if message == UNKNOWN:
            self.wrapped = True
            name = re.match(r"%[\w.$]+", text)[0]
            return self.arguments.setdefault(name, "none") == "none"
        if (found := OTHER_TYPE.fullmatch(message)) and self.arguments.get(found[1]) == "none":
            self.arguments[found[1]] = found[2]
            return True
        return False


def errors(examples: list[Example]) -> dict[int, list[tuple[str, str]]]:
    """The errors of each example, by its number: the text at which they stand and the message."""
    text, owner = "", []
    for number, example in enumerate(examples):
        part = f"{example.source()}{SEPARATOR}\n"
        owner += [(number, line) for line in part.splitlines()]
        text += part
    result = subprocess.run(["stretto-opt", "--split-input-file"], input=text, capture_output=True, text=True)
    found: dict[int, list[tuple[str, str]]] = {}
    for line, column, message in ERROR.findall(result.stderr):
        number, source_line = owner[int(line) - 1]
        found.setdefault(number, []).append((source_line[int(column) - 1 :], message))
    assert (result.returncode == 0) == (not found), result.stderr
    return found


def read(path: pathlib.Path) -> list[Example]:
    source = path.read_text()
    return [
        Example(f"{path.name}:{source.count(chr(10), 0, match.start()) + 1}", textwrap.dedent(match[2]))
        for match in EXAMPLE.finditer(source)
    ]


def main() -> int:
    examples = [example for path in sorted(pathlib.Path(sys.argv[1]).rglob("*.td")) for example in read(path)]
    total, wrong = len(examples), []
    while examples:
        found = errors(examples)
        open_examples = []
        for number, of_example in found.items():
            learned = [examples[number].learn(*error) for error in of_example]
            if any(learned):
                open_examples.append(examples[number])
            else:
                wrong.append(f"{examples[number].place}: {of_example[0][1]}\n{examples[number].source()}")
        examples = open_examples
    print(*wrong, f"{total} examples, {len(wrong)} wrong", sep="\n")
    return int(bool(wrong) or total < 30)


sys.exit(main())
