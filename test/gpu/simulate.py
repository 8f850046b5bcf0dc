"""Executes generated kernels on the host, thread by thread: `simulate.py BUILD [family ...] [--sizes 16x16,...]`.

BUILD is the build folder that holds `stretto-opt` and `simulate-block`. Every kernel of kernels.py is lowered to what
one thread does and run by the simulator in test/simulator, on small launches; each line is a launch and its errors.
`make check` runs a few of them.
"""

import argparse
import copy
import functools
import itertools
import json
import pathlib
import re
import subprocess
import sys
import tempfile

import kernels
import launch
import numpy as np

LOWERING = (
    "builtin.module({chunk}stretto-fold-over-chunks{fold},stretto-divide-roles{{{roles}}},kernel.func("
    "stretto-fetch-states{{chip={chip}}},"
    "stretto-assign-layouts{{read-again={room} repeat-left={room} warpgroups={room}}},control-flow-sink,"
    "stretto-select-products{{chip={chip}}},stretto-overlap-products,stretto-select-copies{{chip={chip}}}),"
    "stretto-pass-late,stretto-share-channels,stretto-plan-shared-memory{{chip={chip}}},"
    "kernel.func(stretto-send-ahead,stretto-insert-barriers,stretto-store-behind-barriers{{chip={chip}}},"
    "stretto-set-tiles-aside{{chip={chip} registers={registers}}}),"
    "stretto-lower-to-threads{{chip={chip}}},llvm.func(cse,stretto-merge-choices{math}))"
)


def manifest_of(text):
    """The manifest of the one function in a lowered module."""
    start = text.index('stretto.manifest = "') + len('stretto.manifest = "')
    return json.loads(text[start : text.index('"}', text.index("]}", start))].replace("\\22", '"').replace('\\"', '"'))


def simulate(tool, threads, run, folder):
    """Runs a launch; its buffers then hold what the kernel left."""
    words = [
        np.array([run.manifest["threads"], run.blocks, run.manifest["sharedBytes"], len(run.block), len(run.buffers)])
    ]
    words.append(run.block)
    for buffer in run.buffers:
        data = buffer.tobytes()
        words += [np.array([len(data)]), np.frombuffer(data + bytes(-len(data) % 8), dtype=np.int64)]
    memory = folder / "memory.bin"
    np.concatenate([w.astype(np.int64) for w in words]).tofile(memory)
    subprocess.run([tool, threads, memory], check=True)
    data, position = np.fromfile(memory, dtype=np.int64), 5 + len(run.block)
    for index, buffer in enumerate(run.buffers):
        count = (buffer.nbytes + 7) // 8
        whole = data[position + 1 : position + 1 + count].tobytes()[: buffer.nbytes]
        run.buffers[index] = np.frombuffer(whole, dtype=buffer.dtype)
        position += 1 + count


@functools.cache
def lowered(tools, pipeline, text):
    """What one thread does, and the manifest. Cases of one kernel ask for the same."""
    command = [tools / "stretto-opt", f"--pass-pipeline={pipeline}", "-"]
    whole = subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout
    # Tables stay in the module for the host.
    return re.sub(r"\n  chunk\.table .*?\n  }(?=\n)", "", whole, flags=re.DOTALL), manifest_of(whole)


def lower(tools, pipeline, text, threads):
    """Leaves in the file `threads` what one thread does; a manifest that is the caller's."""
    code, manifest = lowered(tools, pipeline, text)
    threads.write_text(code)
    return copy.deepcopy(manifest)


def simulate_gradients(tools, pipeline, source, operators, elements, sizes, chip):
    """Runs the gradients that a module knows, by pairs of kernels; the number of failures."""
    import gradients

    failed, kernels_of = 0, functools.cache(source.gradient_kernels)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for operator, element, (K, V) in itertools.product(operators, elements, sizes):
            kernel = f"{operator}_{element}_k{K}_v{V}"
            for case, settings in source.gradient_cases(operator, element):
                try:
                    heads = settings["heads"], settings["key_heads"]
                    texts = kernels_of(operator, element, K, V, *heads, chip)
                except gradients.stretto.Error as error:
                    failed += 1
                    print(f"FAIL {kernel}: {error}", flush=True)
                    break
                files = [folder / f"threads{number}.mlir" for number in range(len(texts))]
                try:
                    manifests = [
                        lower(tools, pipeline, text, threads) for text, threads in zip(texts, files, strict=True)
                    ]
                    tables = {}
                    for text in texts:
                        tables |= gradients.tables_of(text, settings["heads"])
                    division = launch.division_of(settings)
                    problem = source.gradient_problem(operator, element, K, V, **settings)
                    run = launch.GradientLaunch(manifests, problem, tables, **division)
                    for stage in run.stages:
                        simulate(tools / "simulate-block", files[stage.kernel], stage, folder)
                except subprocess.CalledProcessError as error:
                    failed += 1
                    print(
                        f"FAIL {kernel} {case}: {(error.stderr or 'the simulator stopped').splitlines()[0]}", flush=True
                    )
                    continue
                good, line = launch.verdict(kernel, case, run.errors())
                failed += not good
                print(line, flush=True)
    return bool(failed)


def simulate_segments(tools, lowering, of_left, source, operators, elements, sizes, chip, slices):
    """Runs calls that a module knows, whose segments are walked side by side; the number of failures. `lowering` and
    `of_left` give the passes of kernels, and of those that take what others have left, for options of the walk.
    """
    import gradients

    failed, kernels_of = 0, functools.cache(source.segment_kernels)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for operator, element, (K, V) in itertools.product(operators, elements, sizes):
            kernel, form = f"{operator}_{element}_k{K}_v{V}", (64, slices, 0) if slices else None
            for case, settings in source.segment_cases(operator, element):
                segment = settings.pop("segment")
                try:
                    heads = settings["heads"], settings["key_heads"]
                    texts = kernels_of(operator, element, K, V, *heads, chip, form)
                    problem = source.segment_problem(operator, element, K, V, **settings)
                    pipeline = lowering("" if problem["positions"].any() else "from-start")
                    files = [folder / f"threads{number}.mlir" for number in range(len(texts))]
                    manifests = [
                        lower(tools, pipeline, text, threads) for text, threads in zip(texts, files, strict=True)
                    ]
                    for text, manifest in zip(texts, list(manifests), strict=True):
                        if manifest["expects"]:
                            files.append(folder / "left.mlir")
                            manifests.append(lower(tools, of_left("takes-left"), text, files[-1]))
                    tables = {}
                    for text in texts:
                        tables |= gradients.tables_of(text, settings["heads"])
                    run = source.SegmentLaunch(manifests, problem, tables, segment)
                    for stage in run.stages:
                        simulate(tools / "simulate-block", files[stage.kernel], stage, folder)
                except (subprocess.CalledProcessError, gradients.stretto.Error) as error:
                    failed += 1
                    reason = getattr(error, "stderr", None) or str(error)
                    print(f"FAIL {kernel} {case}: {reason.splitlines()[0]}", flush=True)
                    continue
                good, line = launch.verdict(kernel, case, run.errors())
                failed += not good
                print(line, flush=True)
    return bool(failed)


def simulate_lookbacks(tools, lowering, names, elements, sizes, step):
    """Runs operators that look back, or their steps; the number of failures. As in a call, kernels of sequences that
    begin with their first tokens are made for these.
    """
    import lookbacks

    names = names or [
        name for name in lookbacks.CASES if not step or lookbacks.CASES[name][0] not in lookbacks.UNBOUNDED
    ]
    launches = lookbacks.step_launches if step else lookbacks.launches
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        for name, element, (K, V) in itertools.product(names, elements, sizes):
            kernel, threads = f"{name} {element} {K} {V}", folder / "threads.mlir"
            for case, settings in launches(name, element):
                try:
                    heads = settings["heads"], settings["key_heads"]
                    text = lookbacks.lowered(name, element, K, V, *heads, step=step)
                    continues = any(first for first, _ in settings["lengths"])
                    pipeline = lowering("in-place" if step else "" if continues else "from-start")
                    manifest = lower(tools, pipeline, text, threads)
                    run = lookbacks.LookbackLaunch(name, manifest, sizes=(K, V), element=element, **settings)
                    simulate(tools / "simulate-block", threads, run, folder)
                except (subprocess.CalledProcessError, lookbacks.stretto.Error) as error:
                    failed += 1
                    reason = getattr(error, "stderr", None) or str(error)
                    print(f"FAIL {kernel} {case}: {reason.splitlines()[0]}", flush=True)
                    continue
                good, line = launch.verdict(kernel, case, run.errors())
                failed += not good
                print(line, flush=True)
    return bool(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("build", type=pathlib.Path)
    parser.add_argument("families", nargs="*")
    parser.add_argument("--sizes", default="16x16,64x32")
    parser.add_argument("--elements", default="bf16,f16,f32")
    parser.add_argument("--math", action="store_true", help="expand elementary functions too")
    parser.add_argument(
        "--chunk-passes",
        default="chunk.kernel(stretto-expand-decay{warps=WARPS},stretto-sink-factors,stretto-round-operands,cse,stretto-shorten-lifetimes{forwards=ROOM})",
    )
    parser.add_argument("--chip", default="sm_90a", help="the one whose memory and instructions are taken")
    parser.add_argument("--gradients", action="store_true", help="gradients of the operators that are named")
    parser.add_argument("--segments", action="store_true", help="calls of the operators in segments side by side")
    parser.add_argument("--slices", type=int, default=0, help="of the values of gradients, at least, or of segments")
    parser.add_argument("--slots", type=int, default=0, help="of states that have some, in gradients and segments")
    parser.add_argument("--registers", type=int, default=0, help="of a thread, beyond which tiles are set aside")
    parser.add_argument("--ahead", type=int, default=0, help="warps that run ahead of those that walk")
    parser.add_argument("--warps", type=int, default=0, help="of a block; 0: as many as states ask for")
    parser.add_argument("--outputs", type=int, default=0, help="warps that find outputs behind those that walk")
    parser.add_argument("--within", action="store_true", help="rows are expected to be in range; what is left follows")
    parser.add_argument("--walk", type=int, default=0, help="warps that walk, where there are others")
    parser.add_argument("--steps", action="store_true", help="steps of the cases of lookbacks.py")
    parser.add_argument("--lookbacks", action="store_true", help="cases of lookbacks.py")
    options = parser.parse_args()
    sizes = [tuple(map(int, size.split("x"))) for size in options.sizes.split(",")]
    tools = options.build / "bin"
    # On this chip kernels make room for chunks of more tokens, and warpgroups form products (codegen/nvptx/Nvptx.cpp).
    room, warps = str(options.chip == "sm_90a").lower(), options.warps or 8
    chunk = options.chunk_passes.replace("ROOM", room).replace("WARPS", str(warps if room == "true" else 0))
    chunk = f"{chunk}," if chunk else ""
    math = ",stretto-expand-device-math" if options.math else ""
    within = chunk.replace("stretto-expand-decay{", "stretto-expand-decay{within ") if options.within else chunk
    settings = dict(chunk=within, math=math, chip=options.chip, room=room, registers=options.registers)
    settings["roles"] = f"ahead={options.ahead} walk={options.walk} outputs={options.outputs}"
    pipeline = LOWERING.format(fold=f"{{warps={options.warps} warpgroups={room}}}", **settings)
    elements = options.elements.split(",")
    if options.slots:
        import gradients

        gradients.SLOTS = options.slots

    def lowering(fold):
        return LOWERING.format(fold=f"{{{fold} warpgroups={room}}}", **settings)

    def lowering_of_left(fold):
        return LOWERING.format(fold=f"{{{fold} warpgroups={room}}}", **{**settings, "chunk": chunk, "roles": ""})

    if options.segments:
        import lookbacks
        import segments

        source = lookbacks if options.lookbacks else segments
        names = options.families or source.WITH_SEGMENTS
        passes = lowering, lowering_of_left
        sys.exit(simulate_segments(tools, *passes, source, names, elements, sizes, options.chip, options.slices))
    if options.gradients:
        import gradients
        import lookbacks

        source = lookbacks if options.lookbacks else gradients
        gradients.torch.ops.stretto._set_slices(options.slices)
        names = options.families or source.WITH_GRADIENTS
        # As in a call, kernels of sequences that begin with their first tokens meet no windows.
        pipeline = lowering("from-start") if options.lookbacks else pipeline
        sys.exit(simulate_gradients(tools, pipeline, source, names, elements, sizes, options.chip))
    if options.lookbacks:
        sys.exit(simulate_lookbacks(tools, lowering, options.families, elements, sizes, options.steps))
    failed = 0
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for kernel, text in kernels.all_kernels(options.families, elements, sizes):
            threads = folder / "threads.mlir"
            fold = f"{{{' '.join([*kernels.fold_options(kernel), f'warpgroups={room}'])}}}"
            pipeline = LOWERING.format(fold=fold, **settings)
            try:
                manifest = lower(tools, pipeline, text, threads)
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"FAIL {kernel}: does not compile: {error.stderr.splitlines()[0]}", flush=True)
                continue
            of_left, rest = None, folder / "left.mlir"
            if options.within and not manifest["expects"]:
                failed += 1
                print(f"FAIL {kernel}: expects nothing of its chunks", flush=True)
                continue
            if manifest["expects"]:
                fold = f"{{takes-left {' '.join(kernels.fold_options(kernel))}}}"
                of_all = {**settings, "chunk": chunk, "roles": ""}
                of_left = lower(tools, LOWERING.format(fold=fold, **of_all), text, rest)
            for case, how in launch.cases(manifest):
                run = launch.Launch(manifest, **how)
                try:
                    simulate(tools / "simulate-block", threads, run, folder)
                    if of_left and (problem := run.problem_of_left()):
                        failed += 1
                        print(f"FAIL {kernel} {case}: {problem}", flush=True)
                        continue
                    if of_left:
                        run.take(of_left)
                        simulate(tools / "simulate-block", rest, run, folder)
                except subprocess.CalledProcessError:
                    failed += 1
                    print(f"FAIL {kernel} {case}: the simulator stopped", flush=True)
                    continue
                good, line = launch.verdict(kernel, case, run.errors())
                failed += not good
                print(line, flush=True)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
