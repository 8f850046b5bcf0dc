"""Errors over several draws of the inputs beside those of peers on the same tensors. A table of bench/run.py.

Errors are relative to formulas in double precision: of the output, and of the gradient of each input. Of each the
median over the draws is compared, so that no single draw decides. Peers take the first of the configurations that they
would have tuned among.
"""

import statistics

import peers
import torch
from operators import Shape
from peers.untuned import untuned
from timed import Check, gates_of, reason, start_of_line

DRAWS = 16
TOKENS, HEADS, WIDTH = 256, 2, 64


def medians(function, checks):
    """The median error of each result of a function."""
    errors = [check.errors(function) for check in checks]
    return {name: statistics.median(each[name] for each in errors) for name in errors[0]}


def line_of(table, operator, name_of_type, device, options):
    """One line, as a dictionary."""
    dtype = getattr(torch, name_of_type)
    gates = gates_of(dtype, options)
    shape = Shape(1, TOKENS, HEADS, WIDTH)
    checks = [Check(operator, shape, dtype, device, gates, table, seed) for seed in range(DRAWS)]
    ours = medians(operator.call(), checks)
    line = {
        **start_of_line(operator, shape, name_of_type, gates),
        "direction": table,
        "draws": DRAWS,
        "medians": ours,
        "peers": [],
    }
    for peer in peers.of(operator.name, device):
        if not peer.same or peer.missing() or (options.peers is not None and peer.name not in options.peers):
            continue
        for form, function in peer.forms(operator=operator, dtype=dtype, device=device, eager=True).items():
            beside = {"peer": peer.name, "form": form}
            try:
                with untuned():
                    theirs = medians(function, checks)
                beside["medians"] = theirs
                # What both have exactly is no ratio.
                beside["ratio"] = max(ours[name] / theirs[name] for name in ours if theirs[name])
            except Exception as error:  # a library may refuse in any way it likes
                beside["refused"] = reason(error)
            line["peers"].append(beside)
    return line


def lines(operators, types, device, options):
    """The lines of the table, one by one."""
    for name_of_type in types:
        for operator in operators:
            for table in ("forward", "gradients"):
                yield line_of(table, operator, name_of_type, device, options)


def spelled(errors):
    return "  ".join(f"{name} {error:.1e}" for name, error in errors.items())


def show(line):
    print(f"{line['operator']:22} {line['dtype']:9} {line['direction']:9} {spelled(line['medians'])}", flush=True)
    for peer in line["peers"]:
        start = f"    {peer['peer']:28} {peer['form']}".rstrip()
        if "refused" in peer:
            said = f"refused: {peer['refused']}"
        else:
            said = f"{peer['ratio']:.2f}x of {spelled(peer['medians'])}"
        print(f"{start} {said}", flush=True)
