"""Operators as PyTorch sees them: schemas, fake kernels, torch.compile, and other compilers in the process."""

import os
import pathlib
import subprocess
import sys
import textwrap

import pytest
import stretto
import torch
from operator_cases import CASES, Shape, error, initial_state, offsets

ROOT = pathlib.Path(__file__).parents[2]

NAMES = ["gla", "linear_attn", "lawcat", "ssd", "supra"]


@pytest.fixture(params=NAMES)
def case(request):
    return CASES[request.param]


def arguments_of(case, shape=None):
    """The arguments of torch.ops.stretto.<name> for a call with everything."""
    shape = shape or Shape(B=1, T=70)
    inputs = case.inputs(shape)
    with torch.no_grad():
        state = initial_state(case, inputs, cu_seqlens=offsets([30, 0, 40]))
    keywords = {"initial_state": list(state.tensors), "output_final_state": True, "cu_seqlens": offsets([30, 0, 40])}
    schema = getattr(torch.ops.stretto, case.operator).default._schema
    return tuple(inputs.get(argument.name) for argument in schema.arguments if not argument.kwarg_only), keywords


def test_opcheck(case):
    overload = getattr(torch.ops.stretto, case.operator).default
    arguments, keywords = arguments_of(case)
    torch.library.opcheck(overload, arguments, keywords)
    torch.library.opcheck(overload, arguments)


def test_the_schema_is_the_declaration():
    schema = str(torch.ops.stretto.ssd.default._schema)
    assert schema == (
        "stretto::ssd(Tensor x, Tensor dt, Tensor A_log, Tensor B, Tensor C, Tensor? D=None, *, "
        "Tensor[]? initial_state=None, bool output_final_state=False, Tensor? cu_seqlens=None) "
        "-> (Tensor o, Tensor[] final_state)"
    )


@pytest.mark.parametrize("dynamic", [False, True])
def test_compile_fullgraph(case, dynamic):
    torch._dynamo.reset()
    operator = getattr(stretto.ops, case.operator)

    @torch.compile(fullgraph=True, dynamic=dynamic)
    def layer(inputs, state):
        inputs = {name: x * 1.0 for name, x in inputs.items()}
        o, final = operator(**inputs, initial_state=state, output_final_state=True)
        return o + 1.0, final

    with torch.no_grad():
        for T in (64, 70, 91):
            inputs = case.inputs(Shape(T=T))
            state = initial_state(case, inputs)
            o, final = layer(inputs, state)
            expected, expected_final = operator(**inputs, initial_state=state, output_final_state=True)
            assert isinstance(final, stretto.State)
            torch.testing.assert_close(o, expected + 1.0)
            for name in final:
                torch.testing.assert_close(final[name], expected_final[name])


@pytest.mark.parametrize("options", [{}, {"scale": 0.5}, {"scale": "K**-1"}], ids=str)
def test_compile_before_any_other_call(options):
    """The program of a call is made while it is traced."""
    torch._dynamo.reset()
    gla = stretto.load(ROOT / "models/gla/variant.mlir")
    inputs = CASES["gla"].inputs(Shape())
    with torch.no_grad():
        o = torch.compile(lambda x: gla(**x, **options) * 2.0, fullgraph=True)(inputs)
        torch.testing.assert_close(o, 2.0 * gla(**inputs, **options))


def test_compile_a_declaration_in_python():
    from stretto import lang as sl

    torch._dynamo.reset()

    @stretto.variant
    def compiled_from_python(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], scale=sl.Option("K**-0.5")):
        S = sl.write(sl.state("K", "V"), k, v)
        return sl.read(S, q * scale, along="K")

    inputs = CASES["retention"].inputs(Shape(G=4))
    with torch.no_grad():
        compiled = torch.compile(lambda q, k, v: compiled_from_python(q, k, v, scale=0.5) * 2.0, fullgraph=True)
        torch.testing.assert_close(compiled(**inputs), 2.0 * compiled_from_python(**inputs, scale=0.5))


def test_packed_batches_stay_dynamic():
    torch._dynamo.reset()
    graphs = []

    def count(module, _):
        graphs.append(module)
        return module.forward

    @torch.compile(fullgraph=True, dynamic=True, backend=count)
    def layer(q, k, v, g, cu_seqlens):
        return stretto.ops.gla(q, k, v, g, cu_seqlens=cu_seqlens, output_final_state=True)

    with torch.no_grad():
        # Sizes that are equal at first are one symbol: as many offsets as heads would be as fixed as these.
        for lengths in ([10, 20, 3, 8, 1], [5, 0, 7, 40], [64, 64, 1, 2, 3, 0, 9]):
            inputs = CASES["gla"].inputs(Shape(B=1, T=sum(lengths)))
            o, state = layer(**inputs, cu_seqlens=offsets(lengths))
            expected, expected_state = CASES["gla"].reference(inputs, cu_seqlens=offsets(lengths))
            assert error(o, expected) < 5e-6
            assert error(state["S"], expected_state["S"]) < 1e-5
    assert len(graphs) == 1


def test_fake_tensors_are_checked():
    inputs = CASES["gla"].inputs(Shape())
    meta = {name: x.to("meta") for name, x in inputs.items()}
    with torch.no_grad():
        o, state = stretto.ops.gla(**meta, output_final_state=True)
        assert o.device.type == "meta"
        assert o.shape == (2, 65, 4, 32)
        assert state["S"].shape == (2, 2, 32, 32)
        meta["v"] = meta["v"][:, :-1]
        with pytest.raises(stretto.Error, match=r"\[R1\].*'v'.*64.*65"):
            stretto.ops.gla(**meta)
        meta["v"] = inputs["v"].to("meta", torch.bfloat16)
        with pytest.raises(stretto.Error, match=r"\[R4\] 'v'"):
            stretto.ops.gla(**meta)


def test_autocast_and_inference_mode():
    inputs = CASES["gla"].inputs(Shape())
    with torch.inference_mode():
        expected, _ = stretto.ops.gla(**inputs)
        with torch.autocast("cpu", torch.bfloat16):
            o, _ = stretto.ops.gla(**inputs)
    torch.testing.assert_close(o, expected)


IMPORTS = {"torch": "import torch", "triton": "import triton", "stretto": "import stretto"}


@pytest.mark.parametrize("order", ["torch triton stretto", "stretto triton torch"])
def test_other_compilers_live_in_the_same_process(order, tmp_path):
    """LLVM is in stretto, in triton and behind inductor; each compiles something after all are loaded."""
    program = "\n".join(IMPORTS[name] for name in order.split()) + textwrap.dedent(
        """
        torch.set_grad_enabled(False)
        from operator_cases import CASES, Shape, check
        check(CASES["retention"], CASES["retention"].inputs(Shape(K=16, V=16)))
        print(torch.compile(lambda x: x.sin() + 1)(torch.zeros(8))[0].item())
        from triton.compiler import ASTSource, compile
        from triton.backends.compiler import GPUTarget
        import kernels
        source = ASTSource(kernels.double, {"x": "*fp32", "n": "constexpr"}, {"n": 128})
        print("triton", ".visible .entry double" in compile(source, target=GPUTarget("cuda", 90, 32)).asm["ptx"])
        print(stretto.ops.gla.variant.lower("asm", K=16, V=16)[:1] != "")
        """
    )
    kernel = """
        import triton
        import triton.language as tl

        @triton.jit
        def double(x, n: tl.constexpr):
            i = tl.arange(0, n)
            tl.store(x + i, 2 * tl.load(x + i))
        """
    (tmp_path / "kernels.py").write_text(textwrap.dedent(kernel))
    path = f"{tmp_path}:{ROOT}/frontends/python:{ROOT}/test/python"
    environment = {**os.environ, "PYTHONPATH": path, "TRITON_CACHE_DIR": str(tmp_path / "triton")}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1.0", "triton", "True", "True"]


def test_importing_brings_no_other_compiler():
    program = "import sys, stretto; print([m for m in ('torch._dynamo', 'triton', 'transformers') if m in sys.modules])"
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/frontends/python"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == "[]", done.stderr


def flags_of_memory(address):
    """What the system knows of the mapping that holds an address."""
    holds = False
    for line in pathlib.Path("/proc/self/smaps").read_text().splitlines():
        words = line.split()
        if "-" in words[0] and not words[0].endswith(":"):
            begin, end = (int(bound, 16) for bound in words[0].split("-"))
            holds = begin <= address < end
        elif holds and words[0] == "VmFlags:":
            return words[1:]
    raise AssertionError(f"{address:#x} is not mapped")


@pytest.mark.skipif(
    not pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled").exists(), reason="the system has no large pages"
)
def test_large_memory_is_asked_for_in_large_pages():
    """Results and gradients of 16 MiB: a system that gives large pages to who asks clears them at once."""
    rows = [torch.randn(1, 2048, 16, 128, requires_grad=True) for _ in range(3)]
    output, _ = stretto.ops.linear_attn(*rows)
    output.sum().backward()
    for tensor in (output.detach(), *(row.grad for row in rows)):
        assert tensor.nbytes == 16 << 20
        assert "hg" in flags_of_memory(tensor.data_ptr() + tensor.nbytes // 2)


def test_a_call_costs_microseconds():
    """At steady state a call adds little to the kernel's own time; printed by pytest -s."""
    import timeit

    inputs = CASES["simple_gla"].inputs(Shape(B=1, T=1, H=1, G=1, K=16, V=16))
    values = tuple(inputs.values())
    overload = torch.ops.stretto.simple_gla.default
    with torch.no_grad():
        stretto.ops.simple_gla(*values)
        count = 500
        through_python = min(timeit.repeat(lambda: stretto.ops.simple_gla(*values), number=count, repeat=5)) / count
        direct = min(timeit.repeat(lambda: overload(*values), number=count, repeat=5)) / count
    print(f"\na call of one token: {through_python * 1e6:.1f} us, of torch.ops.stretto alone {direct * 1e6:.1f} us")
    assert through_python < 200e-6
