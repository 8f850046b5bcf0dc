"""The code in the documents runs as it is printed, block after block."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize("document", ["README.md", "docs/first-variant.md"])
def test_code_runs_as_printed(document, tmp_path):
    blocks = re.findall(r"^```python\n(.*?)^```$", (ROOT / document).read_text(), re.MULTILINE | re.DOTALL)
    assert blocks
    # A file, because errors of declarations quote the line of the user's file.
    script = tmp_path / "document.py"
    script.write_text("\n".join(blocks))
    exec(compile(script.read_text(), str(script), "exec"), {"__name__": "document"})
