"""Kernels on disk: found again by another process, compiled again where an entry is no good."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

ROOT = pathlib.Path(__file__).parents[2]

PROGRAM = textwrap.dedent(
    """
    import torch, stretto
    torch.set_grad_enabled(False)
    from operator_cases import CASES, Shape, check
    case = CASES["simple_gla"]
    inputs = case.inputs(Shape(K=16, V=16))
    check(case, inputs)
    print("from cache:", stretto.ops.simple_gla.variant.explain(**inputs)["from_cache"])
    """
)


@pytest.fixture
def environment(tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    return {**os.environ, "STRETTO_CACHE_DIR": str(folder), "XDG_STATE_HOME": str(tmp_path / "state"),
            "PYTHONPATH": f"{ROOT}/frontends/python:{ROOT}/test/python"}  # fmt: skip


def start(environment) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def run(environment) -> tuple[bool, str]:
    """Whether the kernel came from the cache, and what was noted."""
    process = start(environment)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return "from cache: True" in out, "\n".join(line for line in err.splitlines() if line.startswith("stretto: "))


def entry(environment) -> pathlib.Path:
    (found,) = pathlib.Path(environment["STRETTO_CACHE_DIR"]).glob("*.kernel")
    return found


def test_another_process_finds_the_kernel(environment):
    assert run(environment) == (False, "")
    assert run(environment) == (True, "")


DAMAGES = {
    "truncated": lambda contents: contents[: len(contents) // 2],
    "empty": lambda contents: b"",
    "another byte of code": lambda contents: contents[:-100] + bytes([contents[-100] ^ 1]) + contents[-99:],
    "another version": lambda contents: contents.replace(b"stretto kernel 1", b"stretto kernel 0", 1),
    "not ours": lambda contents: b"\x7fELF" + contents,
}


def test_an_entry_that_is_no_good_is_compiled_again(environment):
    run(environment)
    whole = entry(environment).read_bytes()
    for name, damage in DAMAGES.items():
        assert damage(whole) != whole
        entry(environment).write_bytes(damage(whole))
        from_cache, notes = run(environment)
        assert not from_cache, name
        assert "is damaged or not ours; compiling it again" in notes, name
        assert entry(environment).read_bytes() not in (damage(whole), b""), name
    assert run(environment) == (True, "")


def test_processes_that_compile_at_once_are_all_right(environment):
    processes = [start(environment) for _ in range(4)]
    for process in processes:
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert "stretto: " not in err
    entry(environment)
    assert run(environment) == (True, "")


def test_without_a_cache(environment, tmp_path):
    environment |= {"STRETTO_CACHE_DIR": "", "XDG_CACHE_HOME": str(tmp_path / "home")}
    assert run(environment) == (False, "")
    assert not list(tmp_path.rglob("*.kernel"))


def test_the_cache_of_the_user(environment, tmp_path):
    del environment["STRETTO_CACHE_DIR"]
    environment["XDG_CACHE_HOME"] = str(tmp_path / "home")
    assert run(environment) == (False, "")
    assert list((tmp_path / "home/stretto").glob("*.kernel"))


def test_a_folder_that_cannot_be_used_is_noted(environment):
    os.chmod(environment["STRETTO_CACHE_DIR"], 0o777)
    from_cache, notes = run(environment)
    assert not from_cache
    assert "can be written by others" in notes


@pytest.mark.parametrize("given", [None, "", "/usr/local/bin/ptxas"])
def test_packages_bring_an_assembler_where_nobody_chose_one(environment, given):
    environment.pop("STRETTO_PTXAS", None)
    if given is not None:
        environment["STRETTO_PTXAS"] = given
    program = "import os, stretto; print(os.environ['STRETTO_PTXAS'])"
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    )
    chosen = result.stdout.strip()
    if given is not None:
        assert chosen == given
    else:
        version = subprocess.run([chosen, "--version"], capture_output=True, text=True, check=True).stdout
        assert "ptxas" in version
