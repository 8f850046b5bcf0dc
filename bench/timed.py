"""Forwards, and forwards with gradients: every operator beside its peers, in one process, timed in turns. Two tables of
bench/run.py.

A line has the times of the operator and of each peer, with a cold cache on a GPU; what the least traffic and the least
arithmetic would take (`floor_milliseconds`); the memory that a call holds beyond its inputs; what the first call cost
(`cold_seconds`, which is compilation where nothing has compiled the kernel before) and what of it our compiler took
(`compile_seconds`). Errors are those of calls on two heads and few tokens against formulas in double precision, of
outputs or, the worst of all inputs, of gradients; `difference` is that between the peer's results and ours on the
tensors that are timed.
"""

import dataclasses
import functools
import time

import baselines
import peers
import stretto
import torch
from baselines import measure
from operators import Shape

TOKENS_OF_CHECK = 256
#: Inputs whose gradient is judged as that of a gate.
GATES = ("g", "f", "w", "z", "dt", "beta", "A_log", "log_gamma", "factor")


# ---------------------------------------------------------------------------------------------------------------------
# Calls
# ---------------------------------------------------------------------------------------------------------------------


def cotangent_like(output, device):
    """That of a loss is 1, of rows the same numbers for every function, drawn on a device."""
    if not output.dim():
        return torch.ones_like(output)
    generator = torch.Generator(device).manual_seed(1)
    return torch.randn(output.shape, generator=generator, device=device).to(output.dtype).to(output.device)


def forward(function, tensors, _constants, _drawn_on=None):
    """A call that gives the output."""
    return functools.partial(function, **tensors)


def both(function, tensors, constants, drawn_on=None):
    """A call forwards and backwards that gives the gradients of all inputs but the constants."""
    leaves = {name: x.detach().requires_grad_(name not in constants) for name, x in tensors.items()}
    wanted = [x for x in leaves.values() if x.requires_grad]
    with torch.no_grad():
        output = function(**tensors)
    cotangent = cotangent_like(output, drawn_on or output.device)

    def run():
        with torch.enable_grad():
            return torch.autograd.grad(function(**leaves), wanted, cotangent)

    return run


MAKERS = {"forward": forward, "gradients": both}


def gates_of(dtype, options):
    """The type of gates beside rows of a type."""
    return torch.float32 if options.gates == "fp32" else dtype


def kinds_of(tensors, leading):
    """Which inputs are rows, with batch and tokens before all else, and which are parameters."""
    return {name: "row" if x.shape[:2] == leading else "parameter" for name, x in tensors.items()}


def bytes_of(tensors, output, constants, table):
    """Every input and the output once; with gradients those of the inputs and the cotangent, too."""
    size = {name: x.numel() * x.element_size() for name, x in tensors.items()}
    total = sum(size.values()) + output.numel() * output.element_size()
    return total if table == "forward" else 2 * total - sum(size[name] for name in constants)


def flops_of(operator, shape, dtype, table):
    """A product of matrices becomes two in the gradient."""
    return operator.flops(shape, dtype) * (1 if table == "forward" else 3)


def floor_of(size, flops, rates, name_of_type):
    """The seconds that so many bytes or so many operations take at the least."""
    return max(size / rates["copy_bytes"], flops / rates["matmul_flops"][name_of_type])


# ---------------------------------------------------------------------------------------------------------------------
# Errors
# ---------------------------------------------------------------------------------------------------------------------


def results_of(call):
    results = call()
    return [results] if isinstance(results, torch.Tensor) else list(results)


def relative(found, expected, floor=0.0):
    found, expected = found.double(), expected.double()
    deviation = float((found - expected).norm() / expected.norm().clamp(min=max(floor, 1e-30)))
    return deviation if deviation == deviation else float("inf")


def of_first_heads(kind, tensor, heads):
    """The part of an input, an output or their gradients that belongs to the first heads, which rows have behind batch
    and time, and parameters before all else.
    """
    return tensor[:heads] if kind == "parameter" else tensor[:, :, :heads]


class Check:
    """Tensors of few tokens, and what formulas in double precision give for two of their heads. There are as many heads
    as in the calls that are timed, so that no kernel is compiled for the check alone; but a loss is that of all heads.
    """

    def __init__(self, operator, shape, dtype, device, gates, table, seed=0):
        small = Shape(1, min(TOKENS_OF_CHECK, shape.T), 2 if operator.is_loss else shape.H, shape.D)
        self.make = MAKERS[table]
        self.operator = operator
        self.tensors = operator.inputs(small, dtype, device, gates, seed)
        heads = min(2, small.H)
        leading = (small.B, small.T)
        kinds = kinds_of(self.tensors, leading)
        wanted = [kind for name, kind in kinds.items() if name not in operator.constants]

        def part(kind, tensor):
            return tensor if operator.is_loss else of_first_heads(kind, tensor, heads)

        self.parts = [functools.partial(part, kind) for kind in (wanted if table == "gradients" else ["row"])]
        self.names = [name for name in kinds if name not in operator.constants] if table == "gradients" else ["output"]
        wide = {name: part(kinds[name], x).double().cpu() for name, x in self.tensors.items()}
        formula = operator.formula()
        output = formula(**wide)
        if table == "forward":
            self.expected, self.floors = [output], [0.0]
            return
        # The cotangent of the check is that of all heads, of which the formula has the first.
        whole = torch.empty((*output.shape[:2], small.H, *output.shape[3:]), dtype=dtype)
        cotangent = torch.ones_like(output) if operator.is_loss else part("row", cotangent_like(whole, "cpu")).double()
        leaves = {name: x.requires_grad_(name not in operator.constants) for name, x in wide.items()}
        with torch.enable_grad():
            self.expected = torch.autograd.grad(
                formula(**leaves), [x for x in leaves.values() if x.requires_grad], cotangent
            )
        # The floors of the specification, section 1.4.
        of_gates = 0.1 * float((cotangent * output).sum(-1 if output.dim() else ()).norm())
        of_rows = 0.1 * float(cotangent.norm() * output.norm())
        self.floors = [
            of_gates if name in GATES else of_rows / max(float(x.detach().norm()), 1e-30)
            for name, x in leaves.items()
            if x.requires_grad
        ]

    def errors(self, function):
        """Those of the output that a function returns, or of the gradient of each input, by its name."""
        found = results_of(self.make(function, self.tensors, self.operator.constants, "cpu"))
        found = [part(x).cpu() for part, x in zip(self.parts, found, strict=True)]
        errors = [relative(*three) for three in zip(found, self.expected, self.floors, strict=True)]
        return dict(zip(self.names, errors, strict=True))

    def error(self, function):
        """The largest of them."""
        return max(self.errors(function).values())


CHECKS: dict[tuple, Check] = {}


def check_of(operator, shape, dtype, device, gates, table):
    """Lines that differ in batch and time alone have one check."""
    key = (operator.name, shape.H, shape.D, min(shape.T, TOKENS_OF_CHECK), dtype, gates, table)
    if key not in CHECKS:
        CHECKS[key] = Check(operator, shape, dtype, device, gates, table)
    return CHECKS[key]


# ---------------------------------------------------------------------------------------------------------------------
# Lines
# ---------------------------------------------------------------------------------------------------------------------


def memory_of(call, device):
    """The most bytes that a call holds beyond what there was before it. None on a CPU, where nothing counts them."""
    if device == "cpu":
        return None
    call()
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def times_of(timing):
    """What a line says of a timing."""
    return {
        "milliseconds": 1e3 * timing.median,
        "fastest_milliseconds": 1e3 * timing.fastest,
        "host_milliseconds": None if timing.host is None else 1e3 * timing.host,
    }


def reason(error):
    """The first line of what a library says it cannot do."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class Beside:
    """A peer beside an operator: its fastest forms, or why there is none."""

    def __init__(self, peer, operator, shape, dtype, device, gates, table, eager, tensors):
        self.peer, self.calls, self.functions = peer, {}, {}
        self.line = {"peer": peer.name, "same": peer.same}
        if missing := peer.missing():
            self.line["absent"] = missing
            return
        inputs = peer.own_inputs(shape=shape, dtype=dtype, device=device, gates=gates) if peer.own_inputs else tensors
        constants = () if peer.own_inputs else operator.constants
        refusals, cold = [], {}
        try:
            forms = peer.forms(operator=operator, dtype=dtype, device=device, eager=eager)
        except Exception as error:  # another version of the library may lack a function
            self.line["refused"] = reason(error)
            return
        for name, function in forms.items():
            try:
                start = time.perf_counter()
                call = MAKERS[table](function, inputs, constants)
                cold[name] = measure.seconds_of(call, torch.device(device)) + time.perf_counter() - start
                self.calls[name], self.functions[name] = call, function
            except Exception as error:  # a library may refuse in any way it likes
                refusals.append(reason(error))
        if not self.calls:
            self.line["refused"] = refusals[0]
            return
        if len(self.calls) > 1:
            kept = baselines.fastest(self.calls, device, count=3)
            self.calls = {name: self.calls[name] for name in kept}
        self.line["cold_seconds"] = sum(cold.values())

    def fastest(self, timings):
        """The name of the fastest form, and its timing."""
        name = min(self.calls, key=lambda name: timings[self.peer.name, name].fastest)
        return name, timings[self.peer.name, name]

    def finish(self, timings, ours, check, results, device):
        if not self.calls:
            return self.line
        name, timing = self.fastest(timings)
        call = self.calls[name]
        self.line |= {
            "form": name,
            **times_of(timing),
            "ratio": timing.median / ours.median,
            "memory_bytes": memory_of(call, device),
        }
        if self.peer.same:
            try:
                self.line["error"] = check.error(self.functions[name])
            except Exception as error:  # it may refuse so few tokens
                self.line |= {"error": None, "error_refused": reason(error)}
            pairs = zip(results_of(call), results, strict=True)
            self.line["difference"] = max(relative(*pair) for pair in pairs)
        return self.line


def explained(operator, tensors, table):
    """What the compiler says of the kernels of a call."""
    wanted = [name for name in tensors if name not in operator.constants]
    forwards = operator.variant.explain(**tensors, **operator.options)
    kernels, by = [forwards], forwards.get("chosen_by")
    if table == "gradients":
        backwards = operator.variant.explain(**tensors, **operator.options, backward=True, wanted=wanted)
        kernels, by = [forwards, *backwards["kernels"]], backwards.get("chosen_by")
    shown = {key: kernels[-1][key] for key in ("form", "schedule", "chunk", "slices")}
    return {**shown, "chosen_by": by}, sum(kernel["compile_ms"] for kernel in kernels)


def tune(operator, tensors, table):
    """Has the compiler tune the kernels of a call; the seconds that it took."""
    wanted = [name for name in tensors if name not in operator.constants]
    found = operator.variant.tune(**tensors, **operator.options, backward=table == "gradients", wanted=wanted)
    return sum(tuning["seconds"] for tuning in found.values())


def start_of_line(operator, shape, name_of_type, gates):
    """What is measured."""
    return {
        "operator": operator.name,
        **dataclasses.asdict(shape),
        "dtype": name_of_type,
        "gates": str(gates).removeprefix("torch."),
    }


def line_of(table, operator, shape, name_of_type, rates, device, options):
    """One line, as a dictionary."""
    dtype = getattr(torch, name_of_type)
    gates = gates_of(dtype, options)
    line = start_of_line(operator, shape, name_of_type, gates)
    tensors = operator.inputs(shape, dtype, device, gates)
    function = operator.call()
    try:
        call = MAKERS[table](function, tensors, operator.constants)
        start = time.perf_counter()
        measure.seconds_of(call, torch.device(device))
        cold = time.perf_counter() - start
        tuned = tune(operator, tensors, table) if options.tune else None
        chosen, compile_milliseconds = explained(operator, tensors, table)
        memory = memory_of(call, device)
    except (RuntimeError, stretto.Error) as error:  # there may be no kernel of this width
        return {**line, "refused": reason(error)}
    beside = [
        Beside(peer, operator, shape, dtype, device, gates, table, options.eager, tensors)
        for peer in peers.of(operator.name, device)
        if options.peers is None or peer.name in options.peers
    ]
    calls = {"stretto": call}
    calls |= {(each.peer.name, name): other for each in beside for name, other in each.calls.items()}
    timings = measure.with_cold_cache(calls, device, rounds=options.rounds, seconds=options.seconds)
    ours, results = timings["stretto"], results_of(call)
    check = check_of(operator, shape, dtype, device, gates, table)
    with torch.no_grad():
        output = function(**tensors)
    size, flops = bytes_of(tensors, output, operator.constants, table), flops_of(operator, shape, dtype, table)
    floor = floor_of(size, flops, rates, name_of_type)
    return {
        **line,
        **times_of(ours),
        "floor_milliseconds": 1e3 * floor,
        "to_floor": ours.median / floor,
        "terabytes_per_second": 1e-12 * size / ours.median,
        "teraflops_per_second": 1e-12 * flops / ours.median,
        "part_of_matmul": flops / ours.median / rates["matmul_flops"][name_of_type],
        "error": check.error(function),
        "memory_bytes": memory,
        "bytes_of_an_input": shape.B * shape.T * shape.H * shape.D * dtype.itemsize,
        "compile_seconds": 1e-3 * compile_milliseconds,
        "cold_seconds": cold,
        "tune_seconds": tuned,
        "kernel": chosen,
        "peers": [each.finish(timings, ours, check, results, device) for each in beside],
    }


def lines(table, operators, shapes, types, rates, device, options):
    """The lines of a table, one by one. `shapes` None: those of each operator."""
    for name_of_type in types:
        for operator in operators:
            for shape in shapes or operator.default_shapes(device):
                yield line_of(table, operator, shape, name_of_type, rates, device, options)
                if device == "cuda":
                    torch.cuda.empty_cache()


# ---------------------------------------------------------------------------------------------------------------------
# Printing
# ---------------------------------------------------------------------------------------------------------------------


def megabytes(line):
    return "" if line["memory_bytes"] is None else f"  {line['memory_bytes'] / 1e6:7.0f} MB"


def tuning(line):
    return "" if line["tune_seconds"] is None else f", tuned in {line['tune_seconds']:.1f} s"


def host(line):
    """Marks what the host takes longer to launch than the device to run."""
    spent = line["host_milliseconds"]
    return "" if spent is None else f"  host {spent:.2f}{'!' if spent > line['milliseconds'] else ''}"


def label(line):
    shape = " ".join(f"{name}{line[name]}" for name in "BTHD")
    return f"{line['operator']:22} {shape:20} {line['dtype']:9}"


def show(line):
    start = label(line)
    if "refused" in line:
        print(f"{start} refused: {line['refused']}", flush=True)
        return
    print(
        f"{start} {line['milliseconds']:9.3f} ms  floor {line['floor_milliseconds']:8.3f} = {line['to_floor']:6.2f}x"
        f"  {line['terabytes_per_second']:6.3f} TB/s  {line['teraflops_per_second']:6.1f} TF/s"
        f"  error {line['error']:.1e}  compiled in {line['compile_seconds']:.2f} s{tuning(line)}{megabytes(line)}"
        f"{host(line)}",
        flush=True,
    )
    for peer in line["peers"]:
        show_peer(peer)


def show_peer(peer):
    start = f"    {peer['peer']:28}"
    if "absent" in peer or "refused" in peer:
        print(f"{start} {'absent' if 'absent' in peer else 'refused'}: {peer.get('absent') or peer['refused']}")
        return
    errors = ""
    if peer["same"]:
        error = f"({peer['error_refused']})" if peer["error"] is None else f"{peer['error']:.1e}"
        errors = f"  error {error}  difference {peer['difference']:.1e}"
    print(
        f"{start} {peer['milliseconds']:9.3f} ms = {peer['ratio']:6.2f}x{errors}"
        f"  first call {peer['cold_seconds']:.1f} s{megabytes(peer)}{host(peer)}  {peer['form']}".rstrip(),
        flush=True,
    )
