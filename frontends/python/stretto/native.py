"""The compiled half of the package: the modules `_compiler`, over libstretto.so, and `_calls`, over PyTorch.

They are found in the folder that STRETTO_NATIVE names, or else in `_native` beside this file, which `make build` links
to the libraries it made.
"""

import importlib.machinery
import importlib.util
import os
import pathlib
import sys
from types import ModuleType

# Before our module: PyTorch for CUDA 13 crashed in its own import where our module came first.
import torch  # noqa: F401

_FOLDER = pathlib.Path(os.environ.get("STRETTO_NATIVE") or pathlib.Path(__file__).with_name("_native"))


def library(name: str) -> str:
    """The path of a compiled library."""
    return str(_FOLDER / name)


def _assembler() -> str:
    """A `ptxas` that Python packages brought: NVIDIA's own, or the one that PyTorch's triton has; else none."""
    for package, place in (("nvidia", "cu13/bin/ptxas"), ("triton", "backends/nvidia/bin/ptxas")):
        spec = importlib.util.find_spec(package)
        for folder in (spec and spec.submodule_search_locations) or ():
            if os.access(program := os.path.join(folder, place), os.X_OK):
                return program
    return ""


def _load(name: str) -> ModuleType:
    spec = importlib.machinery.PathFinder.find_spec(name, [str(_FOLDER)])
    if spec is None or spec.loader is None:
        raise ImportError(
            f"{_FOLDER} holds no compiled module `{name}` for Python {sys.version_info[0]}.{sys.version_info[1]}: "
            "run `make build`, or name its folder in STRETTO_NATIVE"
        )
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# Where nobody chose one.
os.environ.setdefault("STRETTO_PTXAS", _assembler())
_compiler = _load("_compiler")

Module = _compiler.Module
Builder = _compiler.Builder
Error = _compiler.Error
Error.__module__ = "stretto"
Error.__doc__ = "What is wrong with a declaration or a call: where, which argument, what was found and expected."

Caller = _load("_calls").Caller
