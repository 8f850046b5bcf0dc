"""Publishes the generated reference into docs/reference, or checks that what is there is up to date.

The CMake target stretto-doc generates one Markdown page per dialect and for the passes in <build>/docs/reference.
"""

import argparse
import difflib
import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PUBLISHED = ROOT / "docs/reference"


def pages(folder: pathlib.Path) -> dict[pathlib.Path, str]:
    return {page.relative_to(folder): page.read_text() for page in sorted(folder.rglob("*.md"))}


def drift(published: dict[pathlib.Path, str], generated: dict[pathlib.Path, str]) -> int:
    """Prints how the two sets of pages differ and returns the number of pages that do."""
    stale = [name for name in sorted({*published, *generated}) if published.get(name) != generated.get(name)]
    for name in stale:
        before, after = published.get(name, "").splitlines(), generated.get(name, "").splitlines()
        print("\n".join(difflib.unified_diff(before, after, f"docs/reference/{name}", "generated", lineterm="")))
    return len(stale)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev")
    parser.add_argument("--check", action="store_true", help="change nothing; fail where docs/reference is stale")
    options = parser.parse_args()
    subprocess.run(["cmake", "--build", options.build, "--target", "stretto-doc"], check=True)
    generated = pages(options.build / "docs/reference")
    if not generated:
        print("stretto-doc generated no page", file=sys.stderr)
        return 1
    if options.check:
        stale = drift(pages(PUBLISHED), generated)
        print(f"docs/reference: {len(generated)} pages, {stale} differ" + ("; run `make docs`" if stale else ""))
        return int(stale > 0)
    shutil.rmtree(PUBLISHED, ignore_errors=True)
    for name, text in generated.items():
        (PUBLISHED / name).parent.mkdir(parents=True, exist_ok=True)
        (PUBLISHED / name).write_text(text)
    print(f"docs/reference: {len(generated)} pages")
    return 0


if __name__ == "__main__":
    sys.exit(main())
