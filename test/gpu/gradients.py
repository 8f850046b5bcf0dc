"""Gradients of operators for tests of generated PTX: their kernels as chunk IR, and launches with what autograd says.

Needs the compiler and PyTorch, as the machine that builds has them. What is made here is plain arrays, so that another
machine can launch the kernels (launch.py) without either.
"""

import pathlib
import re
import sys

import numpy as np

sys.path[:0] = [str(pathlib.Path(__file__).parents[2] / folder) for folder in ("frontends/python", "test/python")]

import stretto  # noqa: E402
import torch  # noqa: E402
from formulas import FORMULAS  # noqa: E402
from formulas.examples import WITH_DECAY, example  # noqa: E402
from stretto.signature import Signature  # noqa: E402
from test_gradients import entry_names  # noqa: E402

TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
NAMES = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}
# The named sizes of an operator: a key's width, a value's, and others, which are the key's unless a test says more.
SIZES = {
    "linear_attn": {"K": 0, "V": 1},
    "retention": {"K": 0, "V": 1},
    "simple_gla": {"K": 0, "V": 1},
    "ssd": {"N": 0, "P": 1},
    "gla": {"K": 0, "V": 1},
    "hgrn2": {"K": 0, "V": 1},
    "rwkv6": {"K": 0, "V": 1},
    "lawcat": {"D": 0, "V": 1},
    "delta_rule": {"K": 0, "V": 1},
    "gated_delta_rule": {"K": 0, "V": 1},
    "gsa": {"K": 0, "V": 1, "N": 2},
    "abc": {"K": 0, "V": 1, "N": 2},
    "bla": {"K": 0, "V": 1},
    "supra": {"D": 0, "F": 0, "V": 1},
    "based": {"K": 0, "V": 1},
}
WITH_GRADIENTS = tuple(SIZES)
# Inputs that may be absent, and are not.
PRESENT = {"ssd": ["D"], "supra": ["weight", "bias"]}
SLOTS = 16


def options_of(name):
    """The options of an operator: BLA has an odd number of slots."""
    return {"modes": SLOTS // 2 if SLOTS % 2 else 2, "period": 10.0, "decay": "abs"} if name == "bla" else {}


def gradient_kernels(name, element, K, V, heads=2, key_heads=1, chip="sm_90a"):
    """The texts of the kernels of a gradient, that of the rows last."""
    return split(chunks_of(name, element, K, V, heads, key_heads, chip, backward=True))


def chunks_of(name, element, K, V, heads, key_heads, chip, **settings):
    """An operator as chunk IR."""
    sizes = {size: (K, V, SLOTS)[which] for size, which in SIZES[name].items()}
    variant = getattr(stretto.ops, name).variant
    options = options_of(name) | dict.fromkeys(PRESENT.get(name, ()), True)
    shares = {"H": heads, "G": key_heads, "W": heads}
    declared = Signature.of_module(variant._choose(options)[0]).heads
    shares = {key: count for key, count in shares.items() if key in declared}
    return variant.lower("chunk", target=chip, dtype=NAMES[element], **sizes, **shares, **options, **settings)


def split(text):
    """The kernels of a module, each with the tables that it reads."""
    tables = re.findall(r"^  chunk\.table @.*?^  }\n", text, re.DOTALL | re.MULTILINE)
    parts = re.findall(r"^  chunk\.kernel @.*?^  }\n", text, re.DOTALL | re.MULTILINE)
    named = {re.search(r"@(\w+)", part).group(1): part for part in parts}
    for index, part in enumerate(parts):
        if between := re.match(r"  chunk\.kernel @\w+ [^(]*between @(\w+)", part):
            other = named[between.group(1)].replace(") {\n", ') attributes {sym_visibility = "private"} {\n', 1)
            parts[index] = other + part
    return ["".join([*(table for table in tables if f"table %{table_name(table)}:" in part), part]) for part in parts]


def table_name(table):
    return re.search(r"@(\w+)", table).group(1)


# ------------------------------------------------------------------------------------------------ tables
UNARY = {
    "arith.negf": np.negative, "math.exp": np.exp, "math.log": np.log, "math.log1p": np.log1p, "math.exp2": np.exp2,
    "math.sin": np.sin, "math.cos": np.cos, "math.absf": np.abs, "math.roundeven": np.round, "math.floor": np.floor,
    "math.sqrt": np.sqrt,
}  # fmt: skip
BINARY = {
    "arith.addf": np.add, "arith.subf": np.subtract, "arith.mulf": np.multiply, "arith.divf": np.divide,
    "arith.remf": np.fmod, "math.powf": np.power, "arith.maximumf": np.maximum, "arith.minimumf": np.minimum,
}  # fmt: skip
COMPARE = {"oeq": np.equal, "olt": np.less, "ole": np.less_equal, "ogt": np.greater, "oge": np.greater_equal}


def evaluate_table(text, heads, positions, width):
    """The numbers [heads, positions, width] of a `chunk.table`."""
    known = dict(
        zip(("%t", "%h", "%d"), np.meshgrid(*map(np.arange, (positions, heads, width)), indexing="ij"), strict=True)
    )
    known = {name: grid.astype(np.float64) for name, grid in known.items()}
    for line in text.splitlines():
        line = line.strip()
        if line.startswith("chunk.result"):
            result = known[line.split()[1]]
            return np.broadcast_to(result, (positions, heads, width)).transpose(1, 0, 2)
        if " = " not in line:
            continue
        name, rest = line.split(" = ")
        op, *operands = rest.split(" : ")[0].replace(",", "").split()
        with np.errstate(all="ignore"):
            if op == "arith.constant":
                known[name] = np.float64(operands[0])
            elif op in UNARY:
                known[name] = UNARY[op](known[operands[0]])
            elif op in BINARY:
                known[name] = BINARY[op](known[operands[0]], known[operands[1]])
            elif op == "arith.cmpf":
                known[name] = COMPARE[operands[0]](known[operands[1]], known[operands[2]])
            elif op == "arith.select":
                known[name] = np.where(*(known[operand] for operand in operands))
            else:
                raise ValueError(f"no rule for {op}")
    raise ValueError("a table without a result")


def tables_of(text, heads):
    """Period and numbers of each table of a kernel, by its name."""
    found = {}
    for table in re.findall(r"^  chunk\.table @.*?^  }\n", text, re.DOTALL | re.MULTILINE):
        name = table_name(table)
        header = table.splitlines()[0]
        period = int(match.group(1)) if (match := re.search(r"period (\d+)", header)) else 0
        shape = re.search(rf"table %{name}: tensor<([\dx]*)f32>", text).group(1).split("x")[:-1]
        varying = period or "varying" in header
        width = int(shape[-1]) if len(shape) > (1 if varying else 0) else 1
        found[name] = (
            period,
            bool(varying),
            evaluate_table(table, heads, period if period else 4096 if varying else 1, width),
        )
    return found


# ------------------------------------------------------------------------------------------------ problems
def rounded(name, element, K, arguments, state):
    """The tensors of a call and its state, with the names of its entries, as numbers of the types that kernels take."""
    for weights in ("w_q", "w_k"):
        if weights in arguments:
            arguments[weights] = arguments[weights] / K**0.5
    tensors = {key: x.to(TYPES[element]).double() for key, x in arguments.items() if isinstance(x, torch.Tensor)}
    names = entry_names(name)
    types = [TYPES[element] if entry.endswith("_tail") else torch.float32 for entry in names]
    # No kernel for a GPU begins at a position.
    state = [x.to(t).double() if x.is_floating_point() else 0 * x for x, t in zip(state, types, strict=True)]
    return tensors, names, state


def gradient_problem(name, element, K, V, tokens, regime="ordinary", batch=2, heads=2, key_heads=1):
    """Arrays of a call by name, of rounded numbers: `inputs` with the cotangents of the results, the `initial` state,
    the `cotangents` of the final one, and the `gradients`.
    """
    arguments, state = example(name, batch, tokens, heads, key_heads, K, V, SLOTS, regime=regime, **options_of(name))
    tensors, names, state = rounded(name, element, K, arguments, state)
    leaves = {key: x.requires_grad_() for key, x in tensors.items()}
    entries = {key: x.requires_grad_(x.is_floating_point()) for key, x in zip(names, state, strict=True)}
    output, final = FORMULAS[name].function(**arguments | leaves, initial_state=tuple(entries.values()) or None)
    final = {key: x for key, x in zip(entries, final or (), strict=True) if x.requires_grad}
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(x.shape, dtype=torch.float64, generator=generator) for x in (output, *final.values())]
    cotangents = [x.to(TYPES[element] if i == 0 else torch.float32).double() for i, x in enumerate(cotangents)]
    wanted = leaves | {key: x for key, x in entries.items() if x.requires_grad}
    gradients = torch.autograd.grad([output, *final.values()], wanted.values(), cotangents, allow_unused=True)
    return {
        "inputs": {key: x.detach().numpy() for key, x in (leaves | {"d_o": cotangents[0]}).items()},
        "initial": {key: x.detach().double().numpy() for key, x in entries.items()},
        "cotangents": {key: x.numpy() for key, x in zip(final, cotangents[1:], strict=True)},
        "gradients": {key: x.numpy() for key, x in zip(wanted, gradients, strict=True) if x is not None},
    }


def gradient_cases(name, element):
    """The problems that every gradient goes through: lengths about the chunk, shared heads, packing; strong decay."""
    heads = dict(heads=2, key_heads=1)
    yield "one token", dict(tokens=1, **heads)
    yield "ragged", dict(tokens=70, **heads)
    yield "packed", dict(tokens=37, packed=True, **heads)
    yield "segments", dict(tokens=150, segment=1, **heads)
    yield "packed segments", dict(tokens=70, packed=True, segment=1, **heads)
    yield "long segments", dict(tokens=290, segment=1, of_long=2, **heads)
    yield "packed long segments", dict(tokens=150, packed=True, segment=1, of_long=2, **heads)
    # What rounding to 16 bits takes of several recurrences is larger than the bound of ordinary decays.
    is_exact = element == "f32" or (element == "bf16" and name in ("gla", "simple_gla", "hgrn2", "rwkv6"))
    if name in WITH_DECAY and is_exact:
        yield "strong", dict(tokens=40, regime="strong", batch=1, **heads)
        yield "sudden", dict(tokens=70, regime="sudden", batch=1, **heads)
        # Steps of 800 multiply what is rounded in the gradient of ssd's rate.
        if name != "ssd":
            yield "mixed", dict(tokens=70, regime="mixed", batch=1, **heads)
