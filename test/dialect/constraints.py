"""The ids of constraints: every id that a description gives is checked by a verifier and has a test, and the other way
round.

An id is <operation>_c<number>. Descriptions stand in .td files, messages `[id] ...` in .cpp files; a negative test
expects the message, or names the id where no text leads to the message.

RUN: %python %s %S/../..
"""

import pathlib
import re
import sys

ID = r"[a-z_]+_c\d+"


def ids(pattern: str, *files: pathlib.Path) -> set[str]:
    return {found for file in files for found in re.findall(pattern, file.read_text())}


def main() -> int:
    root = pathlib.Path(sys.argv[1])
    wrong = 0
    for dialect in sorted(path for path in root.joinpath("dialect").iterdir() if path.is_dir()):
        described = ids(f"`({ID})`", *dialect.glob("*.td"))
        checked = ids(f'["[]({ID})["\\]]', *dialect.glob("*.cpp"))
        tests = [*root.glob(f"test/dialect/{dialect.name}/invalid.mlir"), *root.glob("test/unit/**/*.cpp")]
        tested = ids(rf"\[({ID})\]", *tests)
        print(f"{dialect.name}: {len(described)} constraints")
        for problem, which in (
            ("checked but not described", checked - described),
            ("described but not checked", described - checked),
            ("without a test", described - tested),
            ("tested but not described", tested - described if dialect.name == "stretto" else set()),
        ):
            if which:
                print(f"{dialect.name}: {problem}: {', '.join(sorted(which))}")
                wrong += len(which)
    return int(wrong > 0)


sys.exit(main())
