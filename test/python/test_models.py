"""The files of models/ and the declarations in Python are the same programs.

Both are brought to a canonical text by the pass stretto-specialize, which decides options and optional inputs, folds,
and removes repeated operations: a file by deciding its conditions, a declaration in Python by being traced with these
options. What is compared is that text, types, names of arguments and remaining options included.
"""

import itertools
import pathlib

import declarations
import pytest
import stretto

MODELS = pathlib.Path(__file__).parents[2] / "models"
NAMES = sorted(path.parent.name for path in MODELS.glob("*/variant.mlir"))


def programs(name):
    """Every combination of the options that choose the program and of optional inputs."""
    signature = getattr(declarations, name).signature
    choices = {
        option: declared.choices or (True, False)
        for option, declared in signature.options.items()
        if declared.is_structural
    }
    choices |= {argument: (True, False) for argument, optional in signature.inputs.items() if optional}
    for values in itertools.product(*choices.values()):
        yield dict(zip(choices, values, strict=True))


@pytest.fixture(scope="module")
def loaded():
    return {name: stretto.load(MODELS / name / "variant.mlir") for name in NAMES}


def test_every_declaration_has_a_file():
    declared = {value.signature.name for value in vars(declarations).values() if isinstance(value, stretto.Variant)}
    assert declared == set(NAMES)


@pytest.mark.parametrize(
    ("name", "settings"),
    [pytest.param(name, settings, id=f"{name}-{settings}") for name in NAMES for settings in programs(name)],
)
def test_file_and_trace_are_one_text(loaded, name, settings):
    assert loaded[name].mlir(**settings) == getattr(declarations, name).mlir(**settings)


@pytest.mark.parametrize("name", NAMES)
def test_file_and_trace_have_one_signature(loaded, name):
    declared, read = getattr(declarations, name).signature, loaded[name].signature
    assert list(read.inputs.items()) == list(declared.inputs.items())
    assert read.options == declared.options
    assert read.summary == declared.summary


def test_readme_beside_every_file():
    for name in NAMES:
        assert (MODELS / name / "README.md").read_text().startswith(f"# {name}\n")
