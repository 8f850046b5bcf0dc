"""The command line: `stretto info gla`, `stretto compile gla --stage ptx`, `stretto tune gla --shape 1,8192,32`.

A variant is a shipped one, by its name, or a file of MLIR. Sizes, head counts and options are given as NAME=VALUE; a
size that is not given is 128, and a number of heads the third of the shape.
"""

import argparse
import ast
import json
import operator
import os
import pathlib
import re
import sys

import torch

from . import ops
from .native import Error
from .variant import DEFAULT_SIZE, Variant, load

TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
_OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.floordiv}


def shipped() -> dict[str, Variant]:
    found = {name: getattr(x, "variant", None) for name, x in vars(ops).items() if not name.startswith("_")}
    return {name: x for name, x in sorted(found.items()) if isinstance(x, Variant)}


def variant_of(name: str) -> Variant:
    if pathlib.Path(name).suffix == ".mlir":
        return load(name)
    variants = shipped()
    if name not in variants:
        known = ", ".join(variants)
        raise Error(f"there is no variant '{name}'; a file ends in .mlir, and those that are shipped are {known}")
    return variants[name]


def settings_of(texts: list[str]) -> dict[str, object]:
    """NAME=VALUE as Python values."""
    settings = {}
    for text in texts:
        name, _, value = text.partition("=")
        try:
            settings[name] = json.loads(value)
        except json.JSONDecodeError:
            settings[name] = value
    return settings


def width_of(axis: str, sizes: dict[str, int]) -> int:
    """The size of an axis such as "D/2"."""

    def value(node):
        if isinstance(node, ast.BinOp):
            return _OPERATORS[type(node.op)](value(node.left), value(node.right))
        return node.value if isinstance(node, ast.Constant) else sizes.get(node.id, DEFAULT_SIZE)

    return value(ast.parse(axis, mode="eval").body)


def inputs_of(variant: Variant, options, settings) -> tuple[dict[str, torch.Tensor], dict[str, object]]:
    """Tensors of random numbers in [-1, 0], which logarithms of decays may be, or in [0, 1] where that is asked for,
    and the options of a call.
    """
    batch, tokens, heads = options.shape
    chosen = {name: value for name, value in settings.items() if name in variant.signature.options}
    sizes = {name: value for name, value in settings.items() if name not in chosen}
    structure, _ = variant.signature.split(chosen)
    (declared,) = json.loads(variant.program(structure, frozenset()).signatures())
    for name in sizes:
        if name not in declared["sizes"] + declared["heads"]:
            known = ", ".join([*variant.signature.options, *declared["sizes"], *declared["heads"]])
            raise Error(f"{variant.signature.name}: there is no setting '{name}'; the settings are {known}")
    generator = torch.Generator(options.device).manual_seed(0)
    tensors = {}
    for argument in declared["arguments"]:
        count = 1 if argument["heads"] == "1" else sizes.get(argument["heads"], heads)
        widths = [width_of(axis, sizes) for axis in argument["axes"]]
        leading = (batch, tokens) if argument["kind"] == "row" else ()
        sign = 1 if argument["name"] in options.positive else -1
        numbers = sign * torch.rand(*leading, count, *widths, generator=generator, device=options.device)
        tensors[argument["name"]] = numbers.to(TYPES[options.dtype])
    return tensors, chosen


def show(found: dict) -> None:
    for part, explanation in found.items():
        print(f"{part}\n{explanation}\n")


def info(options) -> None:
    if not options.variant:
        for name, variant in shipped().items():
            print(f"{name:18} {variant.signature.summary}")
        return
    variant = variant_of(options.variant)
    inputs = [f"{name} (optional)" if optional else name for name, optional in variant.signature.inputs.items()]
    print(f"{variant.signature.name}: {variant.signature.summary}\ninputs   {', '.join(inputs)}")
    for name, option in variant.signature.options.items():
        print(f"option   {name} = {option.default}{' of ' + ', '.join(option.choices) if option.choices else ''}")
    print(f"\n{variant.mlir()}")


def compile_variant(options) -> None:
    settings = settings_of(options.settings)
    text = variant_of(options.variant).lower(
        options.stage, options.dtype, options.target, backward=options.backward, step=options.step, **settings
    )
    print(text)


def explain(options) -> None:
    variant = variant_of(options.variant)
    tensors, chosen = inputs_of(variant, options, settings_of(options.settings))
    print(variant.explain(**tensors, **chosen, backward=options.backward))


def tune(options) -> None:
    variant = variant_of(options.variant)
    tensors, chosen = inputs_of(variant, options, settings_of(options.settings))
    show(variant.tune(**tensors, **chosen, backward=options.backward, seconds=options.seconds))


def bench(arguments: list[str]) -> None:
    """The benchmark belongs to a checkout; its arguments are those of bench/run.py."""
    driver = pathlib.Path(__file__).resolve().parents[3] / "bench/run.py"
    if not driver.exists():
        raise Error(f"the benchmark is not here: expected {driver}, in a checkout of stretto")
    folders = [str(pathlib.Path(__file__).resolve().parents[1]), os.environ.get("PYTHONPATH")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, folders))}
    os.execve(sys.executable, [sys.executable, str(driver), *arguments], environment)


def shape(text: str) -> list[int]:
    sizes = [int(part) for part in text.split(",")]
    if len(sizes) != 3:
        raise argparse.ArgumentTypeError(f"{text} has {len(sizes)} sizes, expected B,T,H")
    return sizes


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="stretto", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name, function, text, variant="variant"):
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(function=function)
        added.add_argument(variant, nargs="?" if function is info else None, metavar="VARIANT")
        return added

    command("info", info, "the variants that are shipped, or what one takes and its declaration")
    compiles = command("compile", compile_variant, "the code of a variant, or its text on the way there")
    compiles.add_argument("--stage", default="ptx", help="stretto, chunk, kernel, llvm, asm or ptx (default)")
    compiles.add_argument("--target", default="sm_90a", help="cpu or a chip; default: sm_90a")
    compiles.add_argument("--step", action="store_true", help="what one token does")
    cuda = torch.cuda.is_available()
    explains = command("explain", explain, "which kernel runs a call, and who chose its form")
    tunes = command("tune", tune, "measure the forms that kernels of a call can have, and keep the fastest")
    tunes.add_argument("--seconds", type=float, default=30.0, help="after which nothing new is tried")
    for called in (explains, tunes):
        called.add_argument("--shape", type=shape, default=[1, 8192, 32] if cuda else [1, 2048, 8], metavar="B,T,H")
        called.add_argument(
            "--positive", nargs="+", default=(), metavar="INPUT", help="inputs that may not be negative"
        )
        called.add_argument("--device", default="cuda" if cuda else "cpu", choices=("cpu", "cuda"))
    for each in (compiles, explains, tunes):
        each.add_argument("--dtype", default="bf16" if cuda else "fp32", choices=TYPES)
        each.add_argument("--backward", action="store_true", help="its gradient; of tune: that, too")
        each.usage = f"{each.prog} VARIANT [NAME=VALUE ...] [options]"
    commands.add_parser("bench", help="measure kernels against their floors and peers (bench/run.py)")
    # They may stand anywhere, which positional arguments of argparse may not.
    settings = [text for text in arguments if re.match(r"\w+=", text)]
    options = parser.parse_args([text for text in arguments if text not in settings])
    options.settings = settings
    return options


def main() -> None:
    try:
        if sys.argv[1:2] == ["bench"]:
            bench(sys.argv[2:])
        options = parse(sys.argv[1:])
        options.function(options)
    except Error as error:
        raise SystemExit(f"stretto: {error}") from None
    except BrokenPipeError:  # whoever reads has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
