"""Products of bf16 numbers by the tiles of AMX, where the processor has them and the operating system permits them."""

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import stretto
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from operator_cases import BOUNDS, CASES, Shape, check, error, offsets

pytestmark = pytest.mark.usefixtures("no_gradients")

ROOT = pathlib.Path(__file__).parents[2]
CPU_INFO = pathlib.Path("/proc/cpuinfo")
NAMES = ("linear_attn", "simple_gla", "gla", "gated_delta_rule", "lawcat", "gsa")


def what_runs(name: str, **sizes: int) -> dict:
    case = CASES[name]
    return getattr(stretto.ops, case.operator).variant.explain(**case.inputs(Shape(**sizes), torch.bfloat16))


@pytest.fixture
def processor():
    """One that has AMX, whether it may be used or not."""
    if not CPU_INFO.exists() or "amx_bf16" not in CPU_INFO.read_text():
        pytest.skip("this processor has no AMX_BF16")


@pytest.fixture
def tiles(processor):
    why_not = what_runs("simple_gla").get("why_no_tiles")
    if why_not:
        pytest.skip(f"AMX is not used here: {why_not}")


@pytest.mark.parametrize("name", NAMES)
def test_their_instructions_are_in_the_code(tiles, name):
    assert what_runs(name)["instructions"] == ["AVX512", "AVX512_BF16", "AMX_BF16"]
    case = CASES[name]
    widths = {axis: 32 for axis in "KVM" if f'"{axis}"' in (ROOT / f"models/{case.operator}/variant.mlir").read_text()}
    code = getattr(stretto.ops, case.operator).variant.lower("asm", dtype="bf16", **widths, **case.options)
    assert "tdpbf16ps" in code


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture], derandomize=True)
@given(
    name=st.sampled_from(NAMES),
    batch=st.integers(1, 2),
    tokens=st.integers(1, 150),
    width=st.sampled_from([8, 24, 32, 33, 40, 64, 100]),
    values=st.sampled_from([1, 16, 17, 31, 32, 48, 80]),
)
def test_odd_sizes(tiles, name, batch, tokens, width, values):
    case = CASES[name]
    shape = Shape(B=batch, T=tokens, K=min(width + width % 2 * (name == "lawcat"), case.widest), V=values)
    check(case, case.inputs(shape, torch.bfloat16))


@pytest.mark.parametrize("name", NAMES)
def test_packed_sequences(tiles, name):
    case = CASES[name]
    lengths = [1, 63, 0, 64, 65, 7]
    check(case, case.inputs(Shape(B=1, T=200, K=40, V=24), torch.bfloat16), cu_seqlens=offsets(lengths))


@pytest.mark.parametrize("name", NAMES)
def test_threads_leave_the_same_bits(tiles, name):
    case = CASES[name]
    inputs = case.inputs(Shape(B=4, T=200, H=8, G=8, K=64, V=64), torch.bfloat16)
    threads = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone, _ = case(inputs)
        torch.set_num_threads(4)
        for _ in range(5):
            assert torch.equal(case(inputs)[0], alone)
    finally:
        torch.set_num_threads(threads)


@pytest.mark.parametrize("name", NAMES)
def test_steps_go_on_from_them(tiles, name):
    case, tokens, first = CASES[name], 80, 70
    inputs = case.inputs(Shape(T=tokens, K=32, V=48), torch.bfloat16)
    rows = [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == tokens]
    expected, expected_state = case.reference(inputs)
    o, state = case({**inputs, **{name: inputs[name][:, :first] for name in rows}}, output_final_state=True)
    steps = []
    for token in range(first, tokens):
        present = {**inputs, **{name: inputs[name][:, token] for name in rows}}
        steps.append(getattr(stretto.ops, case.operator).step(**present, **case.options, state=state)[0])
    output_bound, state_bound = BOUNDS[torch.bfloat16]
    assert error(torch.cat([o, torch.stack(steps, 1)], 1), expected) <= output_bound
    for entry, numbers in state.items():
        assert error(numbers, expected_state[entry]) <= state_bound


# ---------------------------------------------------------------------------------------------------------------------
# Without them
# ---------------------------------------------------------------------------------------------------------------------

PROGRAM = textwrap.dedent(
    """
    import ctypes, json, sys

    # What a process has whose handlers of signals run on a stack of their own that has no room for tiles.
    class Stack(ctypes.Structure):
        _fields_ = [("memory", ctypes.c_void_p), ("flags", ctypes.c_int), ("bytes", ctypes.c_size_t)]

    if "small stack" in sys.argv:
        room = ctypes.create_string_buffer(4096)
        stack = Stack(ctypes.addressof(room), 0, len(room))
        if ctypes.CDLL(None, use_errno=True).sigaltstack(ctypes.byref(stack), None):
            sys.exit(f"no stack of 4096 bytes for signals: errno {ctypes.get_errno()}")
    import torch, stretto
    torch.set_grad_enabled(False)
    from operator_cases import CASES, Shape, check
    case = CASES["simple_gla"]
    inputs = case.inputs(Shape(T=100, K=40, V=48), torch.bfloat16)
    check(case, inputs)
    variant = stretto.ops.simple_gla.variant
    told = variant.explain(**inputs)
    told["tiles in code"] = "tdpbf16ps" in variant.lower("asm", dtype="bf16", K=40, V=48)
    print(json.dumps(told))
    """
)


def run(*arguments: str, **environment: str) -> tuple[dict, str]:
    """What another process tells of the kernel that it runs, and what it notes."""
    finished = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": f"{ROOT}/frontends/python:{ROOT}/test/python",
            "STRETTO_CACHE_DIR": "",
            **environment,
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert finished.returncode == 0, finished.stderr
    return json.loads(finished.stdout), finished.stderr


def test_they_can_be_switched_off(processor):
    told, _ = run(STRETTO_TILES="0")
    assert told["why_no_tiles"] == "STRETTO_TILES is 0"
    assert told["instructions"] == ["AVX512", "AVX512_BF16"]
    assert not told["tiles in code"]


def test_a_refusal_is_told(tiles):
    told, notes = run("small stack")
    assert told["why_no_tiles"].startswith("the operating system refuses them to this process: ")
    assert f"products of bf16 do without AMX, which the processor has: {told['why_no_tiles']}" in notes
    assert told["instructions"] == ["AVX512", "AVX512_BF16"]
    assert not told["tiles in code"]


def test_code_with_them_is_not_taken_for_code_without(tiles, tmp_path):
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    kept = {"STRETTO_CACHE_DIR": str(folder), "XDG_STATE_HOME": str(tmp_path / "state")}
    assert [run(**kept)[0]["from_cache"] for _ in range(2)] == [False, True]
    assert [run(**kept, STRETTO_TILES="0")[0]["from_cache"] for _ in range(2)] == [False, True]
