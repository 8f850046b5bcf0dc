"""The ids of constraints: every id that a description gives is checked by a verifier and has a test, and the other way
round.

An id is <operation>_c<number>. Descriptions stand in .td files, messages `[id] ...` in .cpp files; a negative test
in invalid.mlir, or a unit test where no text leads to it, expects the message.

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
    for tests in sorted(root.glob("test/dialect/*/invalid.mlir")):
        dialect = root / "dialect" / tests.parent.name
        described = ids(f"`({ID})`", *dialect.glob("*.td"))
        checked = ids(f'["[]({ID})["\\]]', *dialect.glob("*.cpp"))
        tested = ids(rf"\[({ID})\]", tests)
        tested_in_code = ids(rf"\[({ID})\]", *root.glob("test/unit/dialect/*.cpp"))
        print(f"{dialect.name}: {len(described)} constraints")
        for problem, which in (
            ("checked but not described", checked - described),
            ("described but not checked", described - checked),
            ("without a test", described - tested - tested_in_code),
            ("tested but not described", tested - described),
        ):
            if which:
                print(f"{dialect.name}: {problem}: {', '.join(sorted(which))}")
                wrong += len(which)
    return int(wrong > 0)


sys.exit(main())
