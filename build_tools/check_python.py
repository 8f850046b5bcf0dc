"""Says what a Python environment of the user's own lacks. Nothing is installed into it."""

import pathlib
import re
import sys
from importlib import metadata

SUPPORTED = [(3, 11), (3, 12)]


def lacks(requirement: str) -> str | None:
    """What stands between this environment and one line of requirements.in, or None where it is met."""
    name, _, wanted = requirement.partition("==")
    try:
        found = metadata.version(name)
    except metadata.PackageNotFoundError:
        return requirement
    # "2.11.0+cu130" is a build of 2.11.0.
    return f"{requirement} (found {found})" if wanted and found.partition("+")[0] != wanted else None


def main() -> int:
    if sys.version_info[:2] not in SUPPORTED:
        print(f"stretto: needs Python 3.11 or 3.12; {sys.executable} is {sys.version.split()[0]}", file=sys.stderr)
        return 1
    requirements = pathlib.Path(__file__).parent.parent.joinpath("requirements.in").read_text()
    names = re.findall(r"^[\w.=-]+", requirements, re.MULTILINE)
    missing = list(filter(None, map(lacks, names)))
    if missing:
        print(f"stretto: the Python environment {sys.prefix} lacks: {', '.join(missing)}", file=sys.stderr)
        print(f"Either install them ({sys.executable} -m pip install -r requirements.txt),", file=sys.stderr)
        print("or leave that environment (`deactivate`, no PYTHON=), and .venv is made here.", file=sys.stderr)
    return bool(missing)


sys.exit(main())
