"""Runs generated PTX on a GPU and compares it with loops in fp64: `run_ptx.py DIR [pattern] [--time]`.

DIR holds NAME.ptx and NAME.json as build_ptx.py leaves them. Only numpy and the CUDA driver are needed. Each line is a
launch and its errors; `--time` adds the time of a long one.
"""

import argparse
import ctypes
import fnmatch
import pathlib
import sys

import launch


class Cuda:
    """The few calls of the driver that a launch takes."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device, self.context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)

    def call(self, function, *arguments):
        code = getattr(self.driver, function)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self.driver.cuGetErrorString(code, ctypes.byref(text))
            raise RuntimeError(f"{function}: {(text.value or b'unknown error').decode()}")

    def load(self, ptx, symbol, shared):
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx + b"\0")
        self.call("cuModuleGetFunction", ctypes.byref(function), module, symbol.encode())
        maximal_dynamic_shared = 8
        self.call("cuFuncSetAttribute", function, maximal_dynamic_shared, shared)
        return function

    def allocate(self, size):
        pointer = ctypes.c_uint64()
        self.call("cuMemAlloc_v2", ctypes.byref(pointer), ctypes.c_size_t(max(size, 16)))
        return pointer.value

    def encode_boxes(self, words):
        """The driver's description of a tensor, in place of ours (runtime/TensorBoxes.h)."""
        pointer, number, size, *rest = words
        sizes, strides, (columns, tokens) = rest[:4], rest[4:7], rest[7:9]
        storage = (ctypes.c_int64 * 24)()  # of which 16, from a multiple of 64 bytes on
        skipped = -ctypes.addressof(storage) % 64
        width = columns * size
        exchange = 3 if width >= 128 else 2 if width >= 64 else 1 if width >= 32 else 0
        self.call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(ctypes.addressof(storage) + skipped),
            number,
            4,
            ctypes.c_void_p(pointer),
            (ctypes.c_uint64 * 4)(*sizes),
            (ctypes.c_uint64 * 3)(*strides),
            (ctypes.c_uint32 * 4)(columns, 1, tokens, 1),
            (ctypes.c_uint32 * 4)(1, 1, 1, 1),
            0,
            exchange,
            3,
            0,
        )
        return storage[skipped // 8 : skipped // 8 + launch.BOX_WORDS]

    def launch(self, function, blocks, threads, shared, block, first_box):
        block = list(block)
        for place in range(first_box, len(block), launch.BOX_WORDS):
            block[place : place + launch.BOX_WORDS] = self.encode_boxes(block[place : place + launch.BOX_WORDS])
        data = (ctypes.c_int64 * len(block))(*block)
        parameters = (ctypes.c_void_p * 1)(ctypes.addressof(data))
        if blocks:
            self.call("cuLaunchKernel", function, blocks, 1, 1, threads, 1, 1, shared, None, parameters, None)

    def milliseconds(self, action, repeats=20):
        start, stop = ctypes.c_void_p(), ctypes.c_void_p()
        for event in (start, stop):
            self.call("cuEventCreate", ctypes.byref(event), 0)
        action()
        self.call("cuEventRecord", start, None)
        for _ in range(repeats):
            action()
        self.call("cuEventRecord", stop, None)
        self.call("cuEventSynchronize", stop)
        result = ctypes.c_float()
        self.call("cuEventElapsedTime", ctypes.byref(result), start, stop)
        return result.value / repeats


def pointer(array):
    return array.ctypes.data_as(ctypes.c_void_p)


def on_device(cuda, run):
    """Copies a launch's buffers to the device; the addresses."""
    places = []
    for buffer in run.buffers:
        place = cuda.allocate(buffer.nbytes)
        if buffer.nbytes:
            cuda.call("cuMemcpyHtoD_v2", ctypes.c_uint64(place), pointer(buffer), ctypes.c_size_t(buffer.nbytes))
        places.append(place)
    return places


def block_on_device(block, places):
    """The argument block with addresses in place."""
    return [relocated(int(word), places) for word in block]


def relocated(word, places):
    """An address counts buffers in its upper half; numbers of launches are smaller."""
    return places[(word >> 32) - 1] + (word & 0xFFFFFFFF) if word >> 32 else word


def execute(cuda, functions, run, stages):
    """Runs the stages of a launch on its buffers, which then hold what the kernels left."""
    places = on_device(cuda, run)
    for function, stage in zip(functions, stages, strict=True):
        threads, shared = stage.manifest["threads"], stage.manifest["sharedBytes"]
        first_box = launch.first_box_word(stage.manifest)
        cuda.launch(function, stage.blocks, threads, shared, block_on_device(stage.block, places), first_box)
    cuda.call("cuCtxSynchronize")
    for buffer, place in zip(run.buffers, places, strict=True):
        if buffer.nbytes:
            cuda.call("cuMemcpyDtoH_v2", pointer(buffer), ctypes.c_uint64(place), ctypes.c_size_t(buffer.nbytes))
        cuda.call("cuMemFree_v2", ctypes.c_uint64(place))


def timed(cuda, function, manifest, tokens=8192, heads=32):
    """Milliseconds of one sequence of 8192 tokens with 32 heads."""
    run = launch.Launch(manifest, [tokens], heads=heads, initial=False, final=False)
    places = on_device(cuda, run)
    block = block_on_device(run.block, places)
    threads, shared = manifest["threads"], manifest["sharedBytes"]
    first_box = launch.first_box_word(manifest)
    result = cuda.milliseconds(lambda: cuda.launch(function, run.blocks, threads, shared, block, first_box))
    for place in places:
        cuda.call("cuMemFree_v2", ctypes.c_uint64(place))
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("pattern", nargs="?", default="*")
    parser.add_argument("--time", action="store_true")
    options = parser.parse_args()
    cuda, failed = Cuda(), 0
    loaded = {}
    for path in sorted(options.folder.glob("*.json")):
        if not fnmatch.fnmatch(path.stem, options.pattern):
            continue
        manifest = launch.read_manifest(path)
        function = cuda.load(path.with_suffix(".ptx").read_bytes(), manifest["symbol"], manifest["sharedBytes"])
        loaded[path.stem] = (manifest, function)
        if "." in path.stem:  # one of the kernels of a gradient
            continue
        for case, settings in launch.cases(manifest):
            run = launch.Launch(manifest, **settings)
            execute(cuda, [function], run, [run])
            good, line = launch.verdict(path.stem, case, run.errors())
            failed += not good
            print(line, flush=True)
        if options.time:
            print(f"time {path.stem}: {timed(cuda, function, manifest):.3f} ms", flush=True)
    for path in sorted(options.folder.glob("*.npz")):
        name, case = path.stem.split(".")
        kernels = [loaded[key] for key in sorted(loaded) if key.split(".")[0] == name]
        if not kernels:
            continue
        problem, tables, division = launch.load_problem(path)
        run = launch.GradientLaunch([manifest for manifest, _ in kernels], problem, tables, **division)
        execute(cuda, [kernels[stage.kernel][1] for stage in run.stages], run, run.stages)
        good, line = launch.verdict(name, case, run.errors())
        failed += not good
        print(line, flush=True)
    print(f"{failed} failed")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
