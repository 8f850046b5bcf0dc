"""Times the CPU kernels of variants by themselves, on one thread, beside torch.mm in the same run.

    python bench/cpu_kernels.py gla simple_gla linear_attn --chunk 16 32 --shape 2048,8,64 --element f32

Below all that the runtime does: stretto-opt brings the variant to the chunk level, and the C interface compiles the one
kernel. Times are those of the thread's CPU clock, that of compilation too, so that a busy machine spoils them less; the
smallest of several runs counts. The work is that of the kernel at chunks of 64 tokens, half of the pairs: what
the chunk size saves is speed. `own` counts the work at the chunk size at hand.
"""

import argparse
import ctypes
import functools
import pathlib
import re
import subprocess
import time

import baselines
import torch
from baselines import inputs, measure

ROOT = pathlib.Path(__file__).resolve().parents[1]
TYPES = {"f32": torch.float32, "f64": torch.float64, "bf16": torch.bfloat16, "f16": torch.float16}
# Numbers that a variant wants other than normal ones: log decays and factors.
MAKERS = {
    "g": lambda x: torch.nn.functional.logsigmoid(x) / 16,
    "f": torch.sigmoid,
    "w": lambda x: -x.exp(),
    "beta": torch.sigmoid,
}


class Info(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("scratch_bytes", ctypes.c_int64), ("milliseconds", ctypes.c_double)]


class Kernel:
    """One chunk kernel, compiled from its text."""

    Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)

    def __init__(self, library: ctypes.CDLL, text: str):
        compile_kernel = library.strettoCpuKernelCompile
        compile_kernel.restype = ctypes.c_void_p
        info, error = Info(), ctypes.c_char_p()
        start = time.thread_time()
        if not compile_kernel(text.encode(), ctypes.c_int64(0), ctypes.byref(info), ctypes.byref(error)):
            raise SystemExit(error.value.decode())
        self.milliseconds = (time.thread_time() - start) * 1e3
        self.function = self.Function(info.function)
        self.scratch = torch.zeros(info.scratch_bytes + 64, dtype=torch.uint8)

    def run(self, block: torch.Tensor, items: int) -> None:
        self.function(block.data_ptr(), 0, items, (self.scratch.data_ptr() + 63) // 64 * 64)


def milliseconds(run, repetitions: int = 9) -> float:
    """CPU time of the fastest of several runs."""
    run()
    best = float("inf")
    for _ in range(repetitions):
        start = time.thread_time()
        run()
        best = min(best, time.thread_time() - start)
    return best * 1e3


def chunk_kernel(name: str, width: int, chunk: int, element: str, build: pathlib.Path) -> str:
    """The variant at the chunk level, as text."""
    source = ROOT / "models" / name / "variant.mlir"
    types = " ".join(re.findall(r"(?:row|state|param)<[^>]*>", source.read_text()))
    names = set(re.findall(r"\b[A-Z]\b", types)) | {"H"}
    groups = "GHW"  # head sets; every other name is a width
    dims = ",".join(f"{name}={width}" for name in sorted(names) if name not in groups)
    heads = ",".join(f"{name}=1" for name in sorted(names) if name in groups)
    options = f"dims={dims} heads={heads} chunk={chunk} element={element}"
    command = [build / "bin/stretto-opt", f"--stretto-pipeline-chunk={options}", source]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def arguments(text: str):
    """Kind, name, shape and element type of each argument and output of the kernel in a text."""
    signature = re.search(
        r"chunk\.kernel @\w+ chunk \d+[^(]*\((.*?)\)\s*->\s*\((.*?)\)\s*(?:attributes|\{)", text, re.S
    )
    for kind, name, shape in re.findall(r"(input|parameter|table|state) %([\w.]+): tensor<([^>]*)>", signature[1]):
        *sizes, element = shape.split("x")
        yield kind, name, [int(size) for size in sizes], element
    for name, shape in re.findall(r"(\w+): tensor<([^>]*)>", signature[2]):
        *sizes, element = shape.split("x")
        yield "output", name, [int(size) for size in sizes], element


def block(text: str, tokens: int, heads: int):
    """The argument block of a call on random numbers, and the tensors that it points to."""
    chunk = int(re.search(r"chunk\.kernel @\w+ chunk (\d+)", text)[1])
    # The header of the block, as runtime/Manifest.h has it: one sequence, walked whole.
    words, tensors = [1, tokens, heads, 0, 0, 0, 1, 0, -(-tokens // chunk), 1, 0, 0, 0, 0], []
    for kind, name, shape, element in arguments(text):
        tile = kind in ("input", "output")
        tensor = torch.randn(1, tokens, heads, *shape[1:]) if tile else torch.randn(heads, *shape)
        if tile:
            tensor = MAKERS.get(name, lambda x: x)(tensor)
        tensor = tensor.to(TYPES[element]).contiguous()
        tensors.append(tensor)
        if tile:
            words += [tensor.data_ptr(), tensor.stride(0), tensor.stride(1), tensor.stride(2)]
        elif kind == "parameter":
            words += [tensor.data_ptr(), tensor.stride(0)]
        elif kind == "table":
            words += [tensor.data_ptr(), tensor.stride(0), 0, 0]
        else:
            words += [0, tensor.data_ptr(), 0, tensor.stride(0), tensor.stride(1) if len(shape) > 1 else 1]
    return torch.tensor(words), tensors


def report_peer(name: str, shape: tuple[int, int, int], dtype: torch.dtype, compile_too: bool) -> None:
    """The fastest of PyTorch's chunked forms, on the same thread and clock."""
    if name not in baselines.OPERATORS:
        print(f"{name:12} has no chunked form in PyTorch here")
        return
    tokens, heads, width = shape
    tensors = inputs.make(name, 1, tokens, heads, width, dtype=dtype)
    with torch.no_grad():
        times = {
            form: milliseconds(functools.partial(call, **tensors), repetitions=5)
            for form, call in baselines.forms(name, dtype, compile_too=compile_too).items()
        }
    fastest = min(times, key=times.get)
    print(f"{name:12} T {tokens} H {heads} D {width} in PyTorch: {times[fastest]:7.2f} ms, {fastest}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variants", nargs="+")
    parser.add_argument("--chunk", type=int, nargs="+", default=[16])
    parser.add_argument("--shape", nargs="+", default=["2048,8,64", "4096,16,128"], help="tokens,heads,width")
    parser.add_argument("--element", default="f32", choices=TYPES)
    parser.add_argument(
        "--peers", choices=["eager", "compiled"], help="time PyTorch's chunked forms beside, eager or also compiled"
    )
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/dev")
    options = parser.parse_args()
    torch.set_num_threads(1)
    measure.reuse_memory()
    library = ctypes.CDLL(str(options.build / "lib/libstretto.so"))

    a, b = torch.randn(2, 1024, 1024)
    product = torch.empty(1024, 1024)

    def report_mm():
        print(f"torch.mm 1024: {2 * 1024**3 / milliseconds(lambda: torch.mm(a, b, out=product)) / 1e6:.0f} GF/s")

    report_mm()
    for shape in options.shape:
        tokens, heads, width = (int(part) for part in shape.split(","))
        for name in options.variants:
            if options.peers:
                report_peer(name, (tokens, heads, width), TYPES[options.element], options.peers == "compiled")
            for chunk in options.chunk:
                text = chunk_kernel(name, width, chunk, options.element, options.build)
                kernel = Kernel(library, text)
                words, _tensors = block(text, tokens, heads)
                time_of = milliseconds(functools.partial(kernel.run, words, heads))
                work = [tokens * heads * (4 * width * width + 2 * width * (pairs + 1)) for pairs in (64, chunk)]
                rates = [count / time_of / 1e6 for count in work]
                print(
                    f"{name:12} T {tokens} H {heads} D {width} {options.element} chunk {chunk}: {time_of:7.2f} ms, "
                    f"{rates[0]:.0f} GF/s, own {rates[1]:.0f}; compiled in {kernel.milliseconds:.0f} ms",
                    flush=True,
                )
    report_mm()


if __name__ == "__main__":
    main()
