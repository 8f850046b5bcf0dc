"""Compiles what belongs to one Python environment against a libstretto.so that exists: `build_bindings.py FOLDER`.

FOLDER holds libstretto.so. Beside it come `_compiler`, the module of this Python, libstretto_torch.so, the operators of
this PyTorch, and `_calls`, which calls these from Python. All see the C interface only. A machine that is given a
release build of the library thus needs PyTorch, pybind11 and a C++20 compiler, and neither LLVM nor CMake. Set
STRETTO_NATIVE=FOLDER to use them.
"""

import argparse
import os
import pathlib
import shlex
import subprocess
import sysconfig
from concurrent.futures import ThreadPoolExecutor

import pybind11
import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
COMPILER = [
    *shlex.split(os.environ.get("CXX", "c++")),
    "-std=c++20",
    "-O2",
    "-fPIC",
    "-fvisibility=hidden",
    f"-I{ROOT}",
]


def compile_objects(sources: list[pathlib.Path], flags: list[str], folder: pathlib.Path) -> list[pathlib.Path]:
    objects = [folder / f"{source.stem}.o" for source in sources]
    commands = [
        [*COMPILER, *flags, "-c", source, "-o", target] for source, target in zip(sources, objects, strict=True)
    ]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        list(pool.map(lambda command: subprocess.run(command, check=True), commands))
    return objects


def link(objects: list[pathlib.Path], libraries: list, target: pathlib.Path) -> None:
    # The C++ library that PyTorch uses, and no copy of it, which a compiler takes that has the archive alone.
    own = [f"-L{target.parent}", "-lstretto", "-Wl,-rpath,$ORIGIN", "-l:libstdc++.so.6"]
    subprocess.run([*COMPILER, "-shared", *objects, *own, *libraries, "-o", target], check=True)
    print(target)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path, help="the folder that holds libstretto.so")
    folder = parser.parse_args().folder.resolve()
    if not (folder / "libstretto.so").exists():
        parser.error(f"{folder} holds no libstretto.so: `make release` compiles one")
    objects = folder / "objects"
    objects.mkdir(exist_ok=True)

    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    of_python = [f"-I{path}" for path in {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}]
    flags = [*of_python, f"-I{pybind11.get_include()}"]
    module = compile_objects([ROOT / "frontends/python/compiler.cpp"], flags, objects)
    link(module, [], folder / f"_compiler{suffix}")

    torch_folder = pathlib.Path(torch.__file__).parent
    headers = [torch_folder / "include", torch_folder / "include/torch/csrc/api/include"]
    of_torch = [f"-isystem{path}" for path in headers]
    flags = [*of_torch, "-include", "ATen/ATen.h", "-include", "torch/library.h"]
    operators = compile_objects(sorted((ROOT / "runtime/torch").glob("*.cpp")), flags, objects)
    libraries = [torch_folder / "lib" / name for name in ("libtorch_cpu.so", "libc10.so")]
    link(operators, libraries, folder / "libstretto_torch.so")

    caller = compile_objects([ROOT / "runtime/torch/python/Caller.cpp"], [*of_python, *of_torch], objects)
    link(caller, [torch_folder / "lib/libtorch_python.so", *libraries], folder / f"_calls{suffix}")


if __name__ == "__main__":
    main()
