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


@pytest.mark.parametrize("document", [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")], ids=lambda path: path.name)
def test_what_is_referred_to_exists(document):
    text = re.sub(r"^```.*?^```$", "", document.read_text(), flags=re.MULTILINE | re.DOTALL)
    links = [document.parent / link for link in re.findall(r"\]\(([^)#:]+)\)", text)]
    names = re.findall(r"`((?:[\w-]+/)+[\w.-]*)`", text)
    files = [ROOT / name for name in names if (ROOT / name.split("/")[0]).is_dir()]
    assert [str(path) for path in [*links, *files] if not path.exists()] == []


def variables_of_the_page(section: str) -> list[str]:
    """The first words of the table of a section."""
    page = (ROOT / "docs/settings.md").read_text()
    text = re.search(rf"^## {re.escape(section)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL).group(1)
    return re.findall(r"^\| `([A-Z_]+)`", text, re.MULTILINE)


def test_every_variable_of_the_environment_is_on_the_page():
    sources = [*ROOT.glob("runtime/**/*.cpp"), *ROOT.glob("frontends/**/*.cpp"), *ROOT.glob("frontends/**/*.py")]
    reads = r"(?:GetEnv\(|getenv\(|environ\.get\(|environ\[|read\()\"(STRETTO_[A-Z_]+)\""
    found = [name for path in sources for name in re.findall(reads, path.read_text())]
    assert sorted(found) == sorted(variables_of_the_page("From the environment"))


def test_every_setting_of_make_is_on_the_page():
    settings = re.findall(r"^\s*'([A-Z_]+)=", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert settings == variables_of_the_page("Of `make`")
