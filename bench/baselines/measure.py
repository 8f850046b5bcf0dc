"""Timing on a machine that others use too, and the ceilings that a kernel's floor is computed from.

Calls to be compared are timed in turns, one call of each in a round, so that a busy minute hits all of them. A `Timing`
holds every sample: `median` is what to report on a quiet machine, `fastest` is what a busy one disturbs least.
"""

import ctypes
import statistics
import time
from dataclasses import dataclass, field

import torch


@dataclass
class Timing:
    """Seconds of each call; `cold` is the first call, which compiles, None where that was before; `host` is what a call
    on a GPU keeps the host busy for.
    """

    cold: float | None
    samples: list[float] = field(default_factory=list)
    host: float | None = None

    @property
    def median(self):
        return statistics.median(self.samples)

    @property
    def fastest(self):
        return min(self.samples)


def reuse_memory():
    """Let malloc keep freed memory: else each temporary of a PyTorch operation is mapped and cleared by the kernel
    anew.

    Halves the time of baselines with large temporaries on a CPU. A process-wide setting of glibc; elsewhere nothing
    happens.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    mmap_threshold, trim_threshold = -3, -1
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, (1 << 31) - 1)


def seconds_of(call, device):
    """One call, the work on the device included."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    call()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return time.perf_counter() - start


def first_calls(calls, device, warm):
    """Timings without samples: of the first calls, unless those were before."""
    return {name: Timing(cold=None if warm else seconds_of(call, device)) for name, call in calls.items()}


def in_turns(calls, device="cpu", rounds=15, seconds=30.0, warm=False):
    """Time the calls {name: callable} round by round, for at most so many rounds or seconds; `warm` ones have been made
    before. Returns {name: Timing}.
    """
    device = torch.device(device)
    timings = first_calls(calls, device, warm)
    for call in () if warm else calls.values():
        call()
    start = time.perf_counter()
    for _ in range(rounds):
        for name, call in calls.items():
            timings[name].samples.append(seconds_of(call, device))
        if time.perf_counter() - start > seconds:
            break
    return timings


def with_cold_cache(calls, device="cpu", rounds=15, seconds=30.0, warm=False):
    """Time the calls {name: callable} round by round. On a GPU by its own clock, each call behind writes of a buffer
    twice as large as its second-level cache, so many that what the host takes to launch the call is hidden behind them,
    and behind a sum over another such buffer: what was written is in memory then, so that no call pays for it. On a CPU
    the same as `in_turns`. Returns {name: Timing}.
    """
    device = torch.device(device)
    if device.type != "cuda":
        return in_turns(calls, device, rounds, seconds, warm)
    timings = first_calls(calls, device, warm)
    bytes_of_buffer = 2 * torch.cuda.get_device_properties(device).L2_cache_size
    buffer = torch.empty(bytes_of_buffer, dtype=torch.uint8, device=device)
    unchanged = torch.zeros(bytes_of_buffer // 4, device=device)
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def on_device(call):
        start.record()
        call()
        stop.record()
        stop.synchronize()
        return 1e-3 * start.elapsed_time(stop)

    of_write = min(on_device(buffer.zero_) for _ in range(5))
    for name, call in calls.items():
        if not warm:
            call()
        torch.cuda.synchronize(device)
        begin = time.perf_counter()
        call()
        timings[name].host = time.perf_counter() - begin
        torch.cuda.synchronize(device)
    begin = time.perf_counter()
    for _ in range(rounds):
        for name, call in calls.items():
            for _ in range(1 + int(1.5 * timings[name].host / of_write)):
                buffer.zero_()
            unchanged.sum()
            timings[name].samples.append(on_device(call))
        if time.perf_counter() - begin > seconds:
            break
    return timings


def in_bursts(calls, rounds=15, burst=20):
    """Time the calls {name: callable} on a GPU, so many of each in a row, by its own clock: what it takes to launch one
    is hidden behind the one before. Returns {name: Timing} of single calls.
    """
    timings = {name: Timing(cold=seconds_of(call, torch.device("cuda"))) for name, call in calls.items()}
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            start.record()
            for _ in range(burst):
                call()
            stop.record()
            stop.synchronize()
            timings[name].samples.append(1e-3 * start.elapsed_time(stop) / burst)
    return timings


def matmul_rate(dtype=torch.float32, size=None, device="cpu"):
    """Flops per second of `torch.mm` on square matrices: the matrix rate of the floor."""
    size = size or (2048 if torch.device(device).type == "cpu" else 8192)
    a, b = (torch.randn(size, size, device=device).to(dtype) for _ in range(2))
    return 2 * size**3 / in_turns({"mm": lambda: torch.mm(a, b)}, device, rounds=9)["mm"].fastest


def copy_rate(size=None, device="cpu"):
    """Bytes per second, read plus written, of a large copy: the bandwidth of the floor."""
    size = size or (1 << 28 if torch.device(device).type == "cpu" else 1 << 31)
    source = torch.ones(size // 4, device=device)
    target = torch.empty_like(source)
    return 2 * size / in_turns({"copy": lambda: target.copy_(source)}, device, rounds=9)["copy"].fastest
