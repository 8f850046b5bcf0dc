"""Compiles the text of one chunk.kernel for this machine's CPU and runs it on tensors, through the C interface."""

import ctypes
import os
import pathlib

import torch

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("STRETTO_BUILD", ROOT / "build/dev"))


class _Info(ctypes.Structure):
    _fields_ = [("function", ctypes.c_void_p), ("scratch_bytes", ctypes.c_int64), ("milliseconds", ctypes.c_double)]


def _load_library() -> ctypes.CDLL:
    library = ctypes.CDLL(str(BUILD / "lib/libstretto.so"))
    library.strettoCpuKernelCompile.restype = ctypes.c_void_p
    library.strettoCpuKernelCompile.argtypes = [
        ctypes.c_char_p,
        ctypes.c_int64,
        ctypes.POINTER(_Info),
        ctypes.POINTER(ctypes.c_void_p),
    ]
    library.strettoCpuKernelDestroy.argtypes = library.strettoFree.argtypes = [ctypes.c_void_p]
    return library


_library = _load_library()
_Function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_void_p)


def pointer(tensor: torch.Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def tile(x: torch.Tensor) -> list[int]:
    """An input or output [B, T, H, ...]."""
    return [pointer(x), x.stride(0), x.stride(1), x.stride(2)]


def parameter(x: torch.Tensor) -> list[int]:
    """A parameter [H, ...]."""
    return [pointer(x), x.stride(0)]


def table(x: torch.Tensor, period: int = 0, varying: bool = False) -> list[int]:
    """A table [H, ...], or [H, positions, ...] if it varies with time."""
    return [pointer(x), x.stride(0), x.stride(1) if varying else 0, period]


def state(initial: torch.Tensor | None, final: torch.Tensor | None, like: torch.Tensor) -> list[int]:
    """A state [N, H, rows, columns] or [N, H, rows]."""
    return [pointer(initial), pointer(final), *like.stride()[:3]]


class Kernel:
    """A compiled kernel; calling it runs all items on this thread."""

    def __init__(self, text: str, vector_bits: int = 0):
        info, error = _Info(), ctypes.c_void_p()
        self.handle = _library.strettoCpuKernelCompile(
            text.encode(), vector_bits, ctypes.byref(info), ctypes.byref(error)
        )
        if not self.handle:
            message = ctypes.string_at(error.value).decode()
            _library.strettoFree(error)
            raise RuntimeError(message)
        self.function = _Function(info.function)
        self.milliseconds = info.milliseconds
        # What a thread's scratch holds is anything at all.
        self.scratch = torch.full((info.scratch_bytes + 64,), 0xFF, dtype=torch.uint8)
        self.scratch_pointer = (self.scratch.data_ptr() + 63) // 64 * 64

    def __del__(self):
        if getattr(self, "handle", None):
            _library.strettoCpuKernelDestroy(self.handle)

    def block(self, sequences: int, tokens: int, heads: int, arguments: list[list[int]], offsets=None):
        words = [sequences, tokens, heads, pointer(offsets), 0, *(word for words in arguments for word in words)]
        return torch.tensor(words, dtype=torch.int64)

    def __call__(self, sequences: int, tokens: int, heads: int, arguments: list[list[int]], offsets=None, slices=1):
        block = self.block(sequences, tokens, heads, arguments, offsets)
        self.function(block.data_ptr(), 0, sequences * heads * slices, self.scratch_pointer)
