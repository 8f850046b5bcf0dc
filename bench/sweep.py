"""Every operator beside its peer over a grid of sizes, few calls each, to find sizes where it is slower. A table of
bench/run.py; `python bench/sweep.py FILE...` sums up what several runs have measured.

Each operator, direction and width is a job with a process of its own, so that a peer that does not end or that breaks
the device costs no more than its job: it is ended after `--limit` seconds without a word, and the rest of its sizes are
measured without the peer. The results come point by point. Sizes that a file has already are not measured again, so
that a run that was stopped (`--within`) is begun again with the same command.

The inputs are stretches of the same tokens, one after the other and in every sequence, which saves the memory and the
time of drawing them. `ratio` is the peer's time over ours, `difference` the largest, relative to the peer's norm, of
outputs or gradients of two heads at both ends of the time. A point whose tensors do not fit in `--gigabytes` has no
call: that is those that both need in any case, until the first point of a job has told what both hold beyond them.
"""

import argparse
import collections
import contextlib
import dataclasses
import functools
import importlib.util
import itertools
import json
import math
import os
import pathlib
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import peers
import stretto
import timed
import torch
from baselines import measure
from operators import OPERATORS, Operator, Shape

DIRECTIONS = ("forward", "gradients")
HEADS = (1, 4, 16, 32, 128, 512, 2048)  # batch times heads
TOKENS = (512, 2048, 8192, 32768, 131072)
WIDTHS = (64, 128)
HEADS_OF_ONE = 32  # beyond as many the batch grows
#: Those of the library that the sweep is about; elsewhere than on a GPU whatever computes the same.
BESIDE = ("flash-linear-attention", "flash-linear-attention's GSA", "FLA composition")
#: Peers tune themselves on the first sizes that they see: these are neither small nor slow.
TUNED_AT = 8192
#: A library's tuner times each candidate for so long, in place of 25 and 100 ms.
TUNER_MILLISECONDS = {"warmup": 5, "rep": 20}
STRETCH = 4096
#: Tokens times heads from which on memory grows with them.
ENOUGH_TO_TELL = 1 << 17
ROUNDS, SECONDS = 7, 0.3
SECONDS_TO_START = 120
OURS = "stretto"
#: Results that differ by more are named.
DIFFERENT = 0.1
BEGUN = time.monotonic()


def split(heads):
    """Batch and heads whose product is so many."""
    of_one = min(heads, HEADS_OF_ONE)
    if heads % of_one:
        raise ValueError(f"{heads} heads in all are no multiple of {of_one}")
    return heads // of_one, of_one


@dataclasses.dataclass
class Job:
    """Points that a process measures: an operator in one direction and width, beside one peer."""

    operator: Operator
    peer: peers.Peer
    direction: str
    dtype: str
    gates: str
    device: str
    shapes: list[Shape]

    def start_of_line(self, shape):
        start = timed.start_of_line(self.operator, shape, self.dtype, getattr(torch, self.gates))
        return {**start, "direction": self.direction}

    def told(self, prepare):
        """What its process has to know at its start."""
        names = {"operator": self.operator.name, "peer": self.peer.name, "prepare": prepare}
        return {name: getattr(self, name) for name in ("direction", "dtype", "gates", "device")} | names


def peer_of(operator, device, wanted):
    """The one that an operator stands beside, or None. One that is wanted by name is tried on any device."""
    names = wanted or (BESIDE if device == "cuda" else [peer.name for peer in peers.of(operator, device) if peer.same])
    return next((peers.PEERS[name] for name in names if peers.PEERS[name].covers(operator)), None)


def in_order(shapes):
    """Those first on which a peer tunes itself, one for each number of heads; then from the smallest to the largest."""
    ordered, first = sorted(shapes, key=lambda shape: shape.B * shape.T * shape.H), []
    for heads in sorted({shape.H for shape in shapes}, reverse=True):
        first += [shape for shape in ordered if shape == Shape(1, TUNED_AT, heads, shape.D)]
    return first + [shape for shape in ordered if shape not in first]


def jobs_of(operators, types, options):
    """All jobs of this part. Parts differ in operators and widths: a peer tunes itself for each of those."""
    part, parts = options.part
    jobs = []
    for direction, dtype, (row, operator), (column, width) in itertools.product(
        options.directions, types, enumerate(operators), enumerate(options.widths)
    ):
        peer = peer_of(operator.name, options.device, options.peers)
        if peer is None or (row + column) % parts != part - 1:
            continue
        gates = str(timed.gates_of(getattr(torch, dtype), options)).removeprefix("torch.")
        sizes = itertools.product(options.heads, options.tokens)
        shapes = in_order([Shape(batch, T, heads, width) for n, T in sizes for batch, heads in [split(n)]])
        jobs.append(Job(operator, peer, direction, dtype, gates, options.device, shapes))
    return jobs


# ---------------------------------------------------------------------------------------------------------------------
# In a process of its own
# ---------------------------------------------------------------------------------------------------------------------


class Sizes:
    """The inputs of an operator at any batch and length, and their bytes."""

    def __init__(self, operator, heads, width, dtype, gates, device):
        self.operator = operator
        self.made = operator.inputs(Shape(1, STRETCH, heads, width), dtype, device, gates)
        self.kinds = timed.kinds_of(self.made, (1, STRETCH))

    def tensors(self, shape):
        stretch = min(STRETCH, shape.T)
        times = -(-shape.T // stretch)
        return {
            name: x[:, :stretch].repeat(shape.B, times, *[1] * (x.dim() - 2))[:, : shape.T].contiguous()
            if self.kinds[name] == "row"
            else x
            for name, x in self.made.items()
        }

    def without_memory(self, shape):
        """Tensors of the sizes and types of the inputs, of one token that all share: enough to choose a kernel by."""
        return {
            name: x[:, :1].expand(shape.B, shape.T, *x.shape[2:]) if self.kinds[name] == "row" else x
            for name, x in self.made.items()
        }

    def linear(self, count):
        """What counts bytes of inputs and an output, as a function of the tokens of all sequences."""

        def at(tokens):
            some = {name: x[:, :tokens] if self.kinds[name] == "row" else x for name, x in self.made.items()}
            return count(some, self.operator.call()(**{name: x.to("meta") for name, x in some.items()}))

        one, two = at(1), at(2)
        return lambda tokens: one + (tokens - 1) * (two - one)


def lasting_bytes(tensors, output, direction):
    """What stays from call to call: the inputs, and with gradients a cotangent for each of both contenders."""
    size = sum(x.numel() * x.element_size() for x in tensors.values())
    return size + (2 * output.numel() * output.element_size() if direction == "gradients" else 0)


class Worker:
    """Measures the points of a job, in its process. `say` passes a message on."""

    def __init__(self, told, say):
        self.say = say
        operator, peer = OPERATORS[told["operator"]], peers.PEERS[told["peer"]]
        self.job = Job(operator, peer, *(told[name] for name in ("direction", "dtype", "gates", "device")), [])
        self.operator, self.device, self.direction = operator, self.job.device, self.job.direction
        self.dtype, self.gates = getattr(torch, self.job.dtype), getattr(torch, self.job.gates)
        self.of_width = functools.cache(self._of_width)
        self.held = None  # bytes for each token and head, once a point has told

    def _of_width(self, heads, width):
        """The sizes of so many heads of a width, and functions of the tokens: the least bytes, and those that last."""
        sizes = Sizes(self.operator, heads, width, self.dtype, self.gates, self.device)
        least = functools.partial(timed.bytes_of, constants=self.operator.constants, table=self.direction)
        return sizes, sizes.linear(least), sizes.linear(functools.partial(lasting_bytes, direction=self.direction))

    def names(self):
        """Those of the results, and whether each is of rows or of parameters."""
        if self.direction == "forward":
            return {"output": "row"}
        return {name: kind for name, kind in self.kinds.items() if name not in self.operator.constants}

    def corners(self, call):
        """What is compared of the results of a call."""
        return {
            name: corner(kind, result)
            for (name, kind), result in zip(self.names().items(), timed.results_of(call), strict=True)
        }

    def broken(self):
        """Why the device takes no more calls of this process, or None."""
        try:
            if self.device == "cuda":
                torch.cuda.synchronize()
        except RuntimeError as error:
            return timed.reason(error)
        return None

    def call(self, tensors):
        return timed.MAKERS[self.direction](self.operator.call(), tensors, self.operator.constants)

    def beside(self, shape, tensors):
        """The peer, whose first call is made."""
        device, gates, table = self.device, self.gates, self.direction
        return timed.Beside(self.job.peer, self.operator, shape, self.dtype, device, gates, table, True, tensors)

    def point(self, shape, alone, gigabytes, rates):
        """A line. `alone` says why the peer is not called, or None."""
        line = self.job.start_of_line(shape)
        sizes, least, lasting = self.of_width(shape.H, shape.D)
        tokens = shape.B * shape.T
        line["needed_bytes"] = needed = max(least(tokens), (self.held or 0) * tokens * shape.H)
        if needed > 1e9 * gigabytes:
            why = f"does not fit: {needed / 1e9:.3g} GB are needed, expected at most {gigabytes:g} GB"
            return {**line, "left_out": why}
        self.kinds = sizes.kinds
        self.say({"doing": OURS})
        try:
            tensors = sizes.tensors(shape)
            call = self.call(tensors)
            start = time.perf_counter()
            results = self.corners(call)
            line["cold_seconds"] = time.perf_counter() - start
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, stretto.Error) as error:  # there may be no kernel of this width
            return {**line, "refused": timed.reason(error)}
        calls, peer, beside = {OURS: call}, {"peer": self.job.peer.name, "same": self.job.peer.same}, None
        if alone is not None:
            peer["refused"] = alone
        else:
            self.say({"doing": "peer"})
            beside = self.beside(shape, tensors)
            if why := self.broken():
                self.say({"broken": why})
                os._exit(1)
            peer = beside.line
            calls |= {(self.job.peer.name, name): other for name, other in beside.calls.items()}
        timings = measure.with_cold_cache(calls, self.device, rounds=ROUNDS, seconds=SECONDS, warm=True)
        ours = timings[OURS]
        if beside and beside.calls:
            form, theirs = beside.fastest(timings)
            peer |= {"form": form, **timed.times_of(theirs), "ratio": theirs.median / ours.median}
            if self.job.peer.same:
                found = self.corners(beside.calls[form])
                differences = {name: timed.relative(results[name], found[name]) for name in results}
                worst = max(differences, key=differences.get)
                peer |= {"difference": differences[worst], "differs": worst}
        if self.held is None and self.device == "cuda" and tokens * shape.H >= ENOUGH_TO_TELL:
            most = max(timed.memory_of(each, self.device) for each in calls.values())
            self.held = (lasting(tokens) + most) / (tokens * shape.H)
        flops = timed.flops_of(self.operator, shape, self.dtype, self.direction)
        floor = timed.floor_of(least(tokens), flops, rates, self.job.dtype)
        return {
            **line,
            **timed.times_of(ours),
            "samples": len(ours.samples),
            "floor_milliseconds": 1e3 * floor,
            "to_floor": ours.median / floor,
            "peers": [peer],
        }

    def measure(self, points, gigabytes, rates):
        for sizes, alone in points:
            shape = Shape(*sizes)
            try:
                line = self.point(shape, alone, gigabytes, rates)
            except torch.OutOfMemoryError as error:
                line = {**self.job.start_of_line(shape), "left_out": f"does not fit: {timed.reason(error)}"}
            self.say({"line": line})
            if self.broken():
                os._exit(1)
            if self.device == "cuda":
                torch.cuda.empty_cache()

    def prepare(self, points):
        """Has both compile what the points take, ours for each, the peer by a call for each number of heads."""
        shapes = [Shape(*sizes) for sizes, _ in points]
        for shape in shapes:
            try:
                tensors = self.of_width(shape.H, shape.D)[0].without_memory(shape)
                timed.explained(self.operator, tensors, self.direction)
            except (RuntimeError, stretto.Error) as error:  # that will be a line where it is measured
                print(timed.reason(error), file=sys.stderr)
        for heads, width in dict.fromkeys((shape.H, shape.D) for shape in shapes):
            shape = Shape(1, min(TOKENS), heads, width)
            self.beside(shape, self.of_width(heads, width)[0].tensors(shape))


def corner(kind, tensor):
    """The part of a result that is compared: two heads, of rows at both ends of the time. A loss is a number."""
    if not tensor.dim() or kind == "parameter":
        return tensor[:2].double() if tensor.dim() else tensor.double()
    return torch.cat([tensor[:1, :128, :2], tensor[-1:, -128:, :2]], 1).double()


def listen(told):
    """Passes on the lines of the standard input; ends the process with it, so that none outlives its parent."""
    for text in sys.stdin:
        told.put(json.loads(text))
    os._exit(1)


def work():
    """The process of a job: a line of the standard input says which one it is, a second one its points."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print what they like
    told = queue.Queue()
    threading.Thread(target=listen, args=(told,), daemon=True).start()
    torch.set_grad_enabled(False)

    def say(message):
        print(json.dumps(message), file=answers, flush=True)

    about = told.get()
    if about["device"] == "cuda":
        shorten_tuning(about["prepare"])
    else:
        measure.reuse_memory()
    worker = Worker(about, say)
    # What a peer loads it loads now, while another process measures; why it cannot a line will say.
    with contextlib.suppress(Exception):
        worker.job.peer.forms(operator=worker.operator, dtype=worker.dtype, device=worker.device, eager=True)
    say({"ready": True})
    then = told.get()
    if about["prepare"]:
        worker.prepare(**then)
    else:
        worker.measure(**then)
    answers.close()
    os._exit(0)  # nothing is left to do but to wait for libraries


def shorten_tuning(once):
    """Has Triton's tuner take less time for each candidate; where all is compiled ahead, a call and no more."""
    if importlib.util.find_spec("triton") is None:
        return
    import triton.testing

    def call_once(call, *_, quantiles=(0.5,), **__):
        call()
        return [0.0] * len(quantiles)

    shorter = functools.partial(triton.testing.do_bench, **TUNER_MILLISECONDS)
    triton.testing.do_bench = call_once if once else shorter


# ---------------------------------------------------------------------------------------------------------------------
# The processes of the jobs
# ---------------------------------------------------------------------------------------------------------------------


class Child:
    """A process for a job, which hears of its points later: what it loads meanwhile is loaded then."""

    def __init__(self, job, prepare=False, **environment):
        # The sweep measures no compilation: what was compiled stays on disk, where the run itself keeps nothing.
        inherited = {name: value for name, value in os.environ.items() if name != "STRETTO_CACHE_DIR"}
        self.errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--work"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
            env=inherited | environment,
            start_new_session=True,
        )
        self.said = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()
        self.tell(job.told(prepare))

    def listen(self):
        for text in self.process.stdout:
            self.said.put(json.loads(text))
        self.said.put(None)

    def tell(self, message):
        with contextlib.suppress(BrokenPipeError):  # its end is heard
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()

    def hear(self, seconds):
        """What it says next, None when it has ended."""
        try:
            return self.said.get(timeout=max(0.0, seconds))
        except queue.Empty:
            raise TimeoutError(f"no result in {seconds:.3g} s") from None

    def last_words(self):
        self.process.wait()
        self.errors.seek(0)
        said = self.errors.read().strip().splitlines()
        return f"the process ended with status {self.process.returncode}: {said[-1] if said else 'no message'}"

    def end(self):
        """Ends it and what it has begun, an assembler perhaps."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.errors.close()


class Run:
    """The lines of all jobs, one by one."""

    def __init__(self, jobs, options, rates):
        self.jobs, self.options, self.rates = jobs, options, rates
        self.until = math.inf if options.within is None else BEGUN + options.within
        self.ahead = {}

    def left(self):
        return self.until - time.monotonic()

    def child(self, job):
        """That of a job, which may have been begun ahead."""
        return self.ahead.pop(id(job), None) or Child(job)

    def lines(self):
        try:
            if self.options.prepare:
                self.prepare()
            for index, job in enumerate(self.jobs):
                following = self.jobs[index + 1] if index + 1 < len(self.jobs) else None
                yield from self.of_job(job, following)
                if self.left() <= 0:
                    return
        finally:
            for child in self.ahead.values():
                child.end()

    def prepare(self):
        """Compiles for all jobs, as many processes at a time as there are cores, and no longer than `--prepare`."""
        environment = {"FLA_CACHE_RESULTS": "0", "TRITON_CACHE_AUTOTUNING": "0"}  # nothing is timed
        until = time.monotonic() + min(self.options.prepare, self.left())
        begun = time.monotonic()
        waiting, running, done = collections.deque(self.jobs), [], 0
        self.start_ahead(self.jobs[0] if self.jobs else None)
        try:
            while (waiting or running) and time.monotonic() < until:
                while waiting and len(running) < max(1, (os.cpu_count() or 1) // self.options.part[1]):
                    job = waiting.popleft()
                    running.append(child := Child(job, prepare=True, **environment))
                    child.tell({"points": [(dataclasses.astuple(shape), None) for shape in job.shapes]})
                time.sleep(0.1)
                for child in [child for child in running if child.process.poll() is not None]:
                    running.remove(child)
                    done += child.process.returncode == 0
                    child.end()
        finally:
            for child in running:
                child.end()
        spent = time.monotonic() - begun
        print(f"{done} of {len(self.jobs)} jobs were compiled ahead in {spent:.0f} s", flush=True)

    def of_job(self, job, following):
        """The lines of a job. Its process is begun again for what it leaves behind where it does not end well."""
        points = [(shape, None) for shape in job.shapes]
        while points and self.left() > 0:
            child, doing, progress = self.child(job), None, False
            limit, cut = SECONDS_TO_START, False
            try:
                while points:
                    message = child.hear(min(limit, self.left()))
                    if message is None:
                        why = child.last_words()
                        break
                    if "ready" in message:
                        self.begin(child, points, following)
                        limit = self.options.limit
                    doing = message.get("doing", doing)
                    if "broken" in message:
                        why = message["broken"]
                        break
                    if "line" in message:
                        yield message["line"]
                        points, doing, progress = points[1:], None, True
            except TimeoutError as error:
                if self.left() <= 0:
                    return
                why, cut = str(error), True
            finally:
                child.end()
            if not points:
                return
            if doing == "peer" and points[0][1] is None:
                # What does not end once may not end again; what breaks may be due to the size.
                stopped = len(points) if cut else 1
                points = [(shape, why if index < stopped else alone) for index, (shape, alone) in enumerate(points)]
            elif doing is not None or not progress:
                failed, points = (points[:1], points[1:]) if doing else (points, [])
                for shape, _ in failed:
                    yield {**job.start_of_line(shape), "refused": why}

    def begin(self, child, points, following):
        told = [(dataclasses.astuple(shape), alone) for shape, alone in points]
        child.tell({"points": told, "gigabytes": self.options.gigabytes, "rates": self.rates})
        self.start_ahead(following)

    def start_ahead(self, job):
        """Begins the process of a job whose turn comes next. On a CPU it would disturb what is measured."""
        if job and self.options.device == "cuda" and id(job) not in self.ahead:
            self.ahead[id(job)] = Child(job)


def part(text):
    """The part of I/N, from 1 to N."""
    index, _, count = text.partition("/")
    if not 1 <= int(index) <= int(count):
        raise ValueError(text)
    return int(index), int(count)


def add_options(parser):
    """Those of the sweep alone."""
    group = parser.add_argument_group("the sweep")
    group.add_argument("--directions", nargs="+", default=[*DIRECTIONS], choices=DIRECTIONS)
    group.add_argument("--heads", nargs="+", type=int, default=HEADS, help="products of batch and heads")
    group.add_argument("--tokens", nargs="+", type=int, default=TOKENS)
    group.add_argument("--widths", nargs="+", type=int, default=WIDTHS)
    group.add_argument("--part", type=part, default=(1, 1), metavar="I/N", help="the I-th of N parts, for N devices")
    group.add_argument("--within", type=float, metavar="SECONDS", help="stop then, counted from the start")
    group.add_argument("--limit", type=float, default=120.0, metavar="SECONDS", help="for a peer to tune itself")
    group.add_argument(
        "--prepare", type=float, default=0.0, metavar="SECONDS", help="compile on all cores first, for so long at most"
    )
    group.add_argument("--gigabytes", type=float, default=60.0, help="what the tensors of a point may take")


def left_of(jobs, lines, key_of):
    """The jobs with those of their points that are not among the lines."""
    known = {key_of(line) for line in lines}
    left = []
    for job in jobs:
        shapes = [shape for shape in job.shapes if key_of(job.start_of_line(shape)) not in known]
        if shapes:
            left.append(dataclasses.replace(job, shapes=shapes))
    return left


def lines(jobs, rates, options):
    """The lines of the table, one by one."""
    return Run(jobs, options, rates).lines()


# ---------------------------------------------------------------------------------------------------------------------
# Printing
# ---------------------------------------------------------------------------------------------------------------------


def name_of(line):
    return f"{timed.label(line)} {line['direction']:9}"


def show(line):
    if why := line.get("left_out") or line.get("refused"):
        print(f"{name_of(line)} {'left out' if 'left_out' in line else 'refused'}: {why}", flush=True)
        return
    (peer,) = line["peers"]
    if "ratio" in peer:
        difference = f"  difference {peer['difference']:.1e}" if "difference" in peer else ""
        beside = f"{peer['milliseconds']:9.3f} ms = {peer['ratio']:6.2f}x{timed.host(peer)}{difference}"
    else:
        beside = f"{'absent' if 'absent' in peer else 'refused'}: {peer.get('absent') or peer['refused']}"
    print(
        f"{name_of(line)} {line['milliseconds']:9.3f} ms  floor {line['floor_milliseconds']:8.3f} ="
        f" {line['to_floor']:6.2f}x{timed.host(line)}  {peer['peer']} {beside}",
        flush=True,
    )


def summary(lines, left=0):
    """Sentences about the lines, beside which so many points are left to measure."""
    beside = [(line, peer) for line in lines for peer in line.get("peers", ()) if "ratio" in peer]
    slower = [(line, peer) for line, peer in beside if not peer["ratio"] >= 1]
    different = [(line, peer) for line, peer in beside if not peer.get("difference", 0) <= DIFFERENT]
    alone = [line for line in lines if "to_floor" in line and not any("ratio" in peer for peer in line["peers"])]
    sentences = [
        f"{len(lines)} points, {len(beside)} beside a peer, {len(alone)} without one,"
        f" {sum('left_out' in line for line in lines)} do not fit, {sum('refused' in line for line in lines)} refused"
    ]
    if left:
        sentences.append(f"{left} points were not reached")
    for why, count in collections.Counter(
        (line["operator"], line["direction"], line["peers"][0].get("absent") or line["peers"][0].get("refused"))
        for line in alone
    ).items():
        sentences.append(f"without a peer, {count} points of {why[0]}, {why[1]}: {why[2]}")
    sentences += [f"refused: {name_of(line)} {line['refused']}" for line in lines if "refused" in line]
    sentences.append(f"{len(slower)} slower than the peer")
    for line, peer in sorted(slower, key=lambda pair: pair[1]["ratio"]):
        sentences.append(
            f"slower: {name_of(line)} {line['milliseconds']:.3f} ms{timed.host(line)} for"
            f" {peer['milliseconds']:.3f} ms{timed.host(peer)} = {peer['ratio']:.3f}x"
        )
    for line, peer in different:
        sentences.append(f"different: {name_of(line)} {peer['differs']} by {peer['difference']:.1e}")
    for direction in dict.fromkeys(line["direction"] for line, _ in beside):
        ratios = [peer["ratio"] for line, peer in beside if line["direction"] == direction]
        mean = statistics.geometric_mean(ratios)
        sentences.append(f"{direction}: the geometric mean of {len(ratios)} ratios is {mean:.2f}")
    measured = [line for line in lines if "to_floor" in line]
    for kind in dict.fromkeys((line["operator"], line["direction"]) for line in measured):
        worst = max(
            (line for line in measured if (line["operator"], line["direction"]) == kind),
            key=lambda line: line["to_floor"],
        )
        sentences.append(f"furthest from the floor: {name_of(worst)} {worst['to_floor']:.2f}x")
    return sentences


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=pathlib.Path, metavar="FILE", help="results that have the table")
    parser.add_argument("--work", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.work:
        work()
    found = [line for path in options.files for line in json.loads(path.read_text()).get("sweep", [])]
    print("\n".join(summary(found)))
