"""Compare every form of every baseline with the fp64 formulas: `python -m baselines.check` in bench/; `--compiled` adds
torch.compile.

Checked are grouped heads, lengths that no chunk divides, mild and strong decays, and gradients. Exits with 1 if a form
is off.
"""

import argparse
import pathlib
import sys

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "test" / "python"))

from formulas import FORMULAS, in_segments

from . import OPERATORS, forms, inputs

#: Relative errors of outputs and of gradients, after section 1.4 of the specification.
TOLERANCE = {
    torch.float32: (5e-6, 1e-4),
    torch.float16: (2e-3, 5e-3),
    torch.bfloat16: (8e-3, 2e-2),
}

#: The cases that compiled forms are checked on: each costs a compilation of every form.
COMPILED = ("ragged", "strong decay", "bf16")


def reference(operator, tensors):
    """The formula's output for the same, already rounded inputs."""
    if operator == "softmax_attn":
        return FORMULAS["swa"].function(**tensors, window=tensors["q"].shape[1])[0]
    if operator.startswith("linear_attn"):
        return in_segments("linear_attn", {**tensors, "normalize": operator == "linear_attn_normalized"})[0]
    return in_segments(operator, tensors, 64)[0]


def error(value, expected):
    relative = float((value.double() - expected).norm() / expected.norm())
    return relative if relative == relative else float("inf")  # max() would pass over a NaN


def cases():
    """(label, B, T, H, D, key heads, dtype, strongest log decay)."""
    yield "plain", 2, 512, 4, 32, 4, torch.float32, None
    yield "ragged", 1, 301, 4, 32, 4, torch.float32, None
    yield "grouped", 2, 130, 6, 16, 2, torch.float32, None
    yield "short", 1, 1, 2, 16, 1, torch.float32, None
    yield "strong decay", 1, 200, 2, 32, 2, torch.float32, -50.0
    yield "exact zeros", 1, 200, 2, 32, 2, torch.float32, -torch.inf
    yield "bf16", 1, 512, 4, 64, 2, torch.bfloat16, None
    yield "bf16, strong decay", 1, 200, 2, 32, 2, torch.bfloat16, -50.0


def strengthened(tensors, operator, decay):
    """Replace a third of the log decays; LAWCAT's logits so that they come out the same."""
    name = "z" if operator == "lawcat" else "g"
    gate = tensors[name]
    chosen = torch.rand(gate.shape, generator=torch.Generator().manual_seed(1)).to(gate.device) < 0.3
    tensors[name] = gate.masked_fill(chosen, 16 * decay if operator == "lawcat" else decay)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compiled", action="store_true", help="check the compiled forms too: minutes")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--operator", choices=[*OPERATORS, "softmax_attn"], action="append")
    arguments = parser.parse_args()
    failures = 0
    for operator in arguments.operator or [*OPERATORS, "softmax_attn"]:
        for label, batch, tokens, heads, width, key_heads, dtype, decay in cases():
            tensors = inputs.make(operator, batch, tokens, heads, width, dtype, arguments.device, key_heads)
            if decay is not None:
                if operator not in ("gla", "simple_gla", "lawcat"):
                    continue
                strengthened(tensors, operator, decay)
            leaves = {name: tensor.double().requires_grad_() for name, tensor in tensors.items()}
            expected = reference(operator, leaves)
            cotangent = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
            cotangent = cotangent.to(expected.device)
            expected_gradients = torch.autograd.grad(expected, list(leaves.values()), cotangent)
            worst, worst_gradient = (0.0, ""), (0.0, "")
            for name, form in forms(
                operator, dtype, arguments.device, compile_too=arguments.compiled and label in COMPILED
            ).items():
                copies = {key: tensor.clone().requires_grad_() for key, tensor in tensors.items()}
                output = form(**copies)
                worst = max(worst, (error(output.detach(), expected.detach()), name))
                if decay is None:
                    gradients = torch.autograd.grad(output, list(copies.values()), cotangent.to(dtype))
                    for argument, gradient, gradient_expected in zip(
                        copies, gradients, expected_gradients, strict=True
                    ):
                        if float(gradient_expected.norm()) > 1e-6:
                            worst_gradient = max(
                                worst_gradient, (error(gradient, gradient_expected), f"{argument} of {name}")
                            )
            tolerance, gradient_tolerance = TOLERANCE[dtype]
            bad = not worst[0] < tolerance or not worst_gradient[0] < gradient_tolerance
            failures += bad
            line = f"{'BAD' if bad else 'ok'} {operator} {label}: output {worst[0]:.1e}"
            if decay is None:
                line += f", gradients {worst_gradient[0]:.1e}"
            print(line + (f" ({worst[1]}; {worst_gradient[1]})" if bad else ""), flush=True)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
