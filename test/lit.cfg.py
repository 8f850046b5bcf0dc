"""Configuration of the lit tests. `make check` runs them, and so does `lit test/dialect` once `make build` has run.

`-Dbuild=<folder>` names a build folder other than build/dev.
"""

import importlib.util
import os
import pathlib
import re
import sys

import lit.formats

root = pathlib.Path(__file__).resolve().parent.parent
build = pathlib.Path(lit_config.params.get("build", root / "build/dev")).resolve()


def llvm_tools() -> pathlib.Path:
    """The folder of FileCheck, not and count, of the LLVM that the build uses."""
    cache = build / "CMakeCache.txt"
    found = re.search(r"^LLVM_DIR:\w+=(.+)$", cache.read_text(), re.MULTILINE) if cache.exists() else None
    if not found:
        lit_config.fatal(f"{build} holds no configured build: run `make build`")
    return pathlib.Path(found[1]).joinpath("../../../bin").resolve()


def ptxas() -> pathlib.Path:
    """The assembler that judges generated PTX, from the pinned nvidia-cuda-nvcc."""
    package = importlib.util.find_spec("nvidia")
    for folder in package.submodule_search_locations if package else []:
        if (found := pathlib.Path(folder, "cu13/bin/ptxas")).exists():
            return found
    lit_config.fatal(f"no ptxas: {sys.executable} lacks nvidia-cuda-nvcc 13.0 (requirements.txt)")


config.name = "stretto"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".test", ".py"]
config.excludes = ["lit.cfg.py", "conftest.py", "Inputs", "python", "unit", "gpu"]
config.test_source_root = str(root / "test")
config.test_exec_root = str(build / "test")
config.environment["PATH"] = os.pathsep.join([str(build / "bin"), str(llvm_tools()), config.environment["PATH"]])
config.environment["PYTHONPATH"] = str(root / "frontends/python")
if "STRETTO_PYTHON:BOOL=OFF" not in (build / "CMakeCache.txt").read_text():
    config.available_features.add("python")
config.substitutions += [("%ptxas", str(ptxas())), ("%python", sys.executable), ("%build", str(build))]
