"""Inputs for every operator that has a kernel, and how its results are judged: against the fp64 interpreter, by the
bounds of section 1.4 of the specification.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import stretto
import torch

# Output and final state, relative in the Frobenius norm.
BOUNDS = {
    torch.float64: (1e-12, 1e-12),
    torch.float32: (5e-6, 1e-5),
    torch.float16: (2e-3, 2e-3),
    torch.bfloat16: (8e-3, 8e-3),
}


@dataclass(frozen=True)
class Shape:
    B: int = 2
    T: int = 65
    H: int = 4
    G: int = 2
    K: int = 32
    V: int = 32


@dataclass(frozen=True)
class Case:
    """An operator of stretto.ops with options. `make` gives its inputs for a shape, in fp64."""

    operator: str
    make: Callable[[Shape, torch.Generator], dict[str, torch.Tensor]]
    options: Mapping[str, object] = field(default_factory=dict)
    # Inputs that stay in fp32 where the others are narrower.
    wide: tuple[str, ...] = ()
    # Whether results are divided by sums that the state holds, so that not every state is one that tokens leave.
    normalizes: bool = False
    # The largest key size that is tried.
    widest: int = 256

    def inputs(self, shape: Shape, dtype: torch.dtype = torch.float32, device: str = "cpu", seed: int = 0):
        made = self.make(shape, torch.Generator().manual_seed(seed))
        wide = torch.float64 if dtype == torch.float64 else torch.float32
        return {name: x.to(wide if name in self.wide else dtype).to(device) for name, x in made.items()}

    def __call__(self, inputs: Mapping[str, torch.Tensor], **keywords):
        return getattr(stretto.ops, self.operator)(**inputs, **self.options, **keywords)

    def reference(self, inputs: Mapping[str, torch.Tensor], **keywords):
        """Results and final state in fp64."""
        variant = getattr(stretto.ops, self.operator).variant
        return variant.reference(**inputs, **self.options, output_final_state=True, **keywords)


def rows(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def log_decay(generator: torch.Generator, *shape: int) -> torch.Tensor:
    return torch.nn.functional.logsigmoid(rows(generator, *shape)) / 4


def qkv(s: Shape, g: torch.Generator) -> dict[str, torch.Tensor]:
    return {"q": rows(g, s.B, s.T, s.H, s.K), "k": rows(g, s.B, s.T, s.G, s.K), "v": rows(g, s.B, s.T, s.G, s.V)}


def positive_qkv(s: Shape, g: torch.Generator) -> dict[str, torch.Tensor]:
    made = qkv(s, g)
    return {**made, "q": made["q"].exp(), "k": made["k"].exp()}


def gla(s: Shape, g: torch.Generator):
    return {**qkv(s, g), "g": log_decay(g, s.B, s.T, s.G, s.K)}


def simple_gla(s: Shape, g: torch.Generator):
    return {**qkv(s, g), "g": log_decay(g, s.B, s.T, s.G)}


def hgrn2(s: Shape, g: torch.Generator):
    made = qkv(s, g)
    return {"q": made["q"], "f": torch.sigmoid(made["k"] + 2), "v": made["v"]}


def ssd(s: Shape, g: torch.Generator):
    return {
        "x": rows(g, s.B, s.T, s.H, s.V),
        "dt": torch.nn.functional.softplus(rows(g, s.B, s.T, s.H) - 2),
        "A_log": rows(g, s.H) / 2,
        "B": rows(g, s.B, s.T, s.G, s.K),
        "C": rows(g, s.B, s.T, s.G, s.K),
        "D": rows(g, s.H),
    }


def rwkv6(s: Shape, g: torch.Generator):
    made = qkv(s, g)
    gate = -torch.exp(rows(g, s.B, s.T, s.G, s.K) - 2)
    return {"r": made["q"], "k": made["k"], "v": made["v"], "w": gate, "u": rows(g, s.G, s.K)}


def taps(g: torch.Generator, heads: int, width: int) -> torch.Tensor:
    return rows(g, heads, width, 4) / 4 + torch.tensor([0.0, 0.0, 0.0, 1.0])


def lawcat(s: Shape, g: torch.Generator):
    return {
        **qkv(s, g),
        "z": rows(g, s.B, s.T, s.G, s.K),
        "conv_q": taps(g, s.H, s.K),
        "conv_k": taps(g, s.G, s.K),
        "w_phi": rows(g, s.H, s.K, s.K // 2) / math.sqrt(s.K),
    }


def supra(s: Shape, g: torch.Generator):
    def weights():
        return rows(g, s.H, s.K, s.K) / math.sqrt(s.K)

    log_gamma = torch.log1p(-(2.0 ** (-5.0 - torch.arange(s.H, dtype=torch.float64))))
    biases = {name: rows(g, s.H, s.K) / 4 for name in ("b_q", "b_k")}
    return {**qkv(s, g), "w_q": weights(), "w_k": weights(), **biases, "log_gamma": log_gamma}


def abc(s: Shape, g: torch.Generator):
    return {**qkv(s, g), "s": rows(g, s.B, s.T, s.G, s.K // 2)}


def gsa(s: Shape, g: torch.Generator):
    gate = torch.nn.functional.logsigmoid(rows(g, s.B, s.T, s.G, s.K // 2)) / 8
    return {**qkv(s, g), "s": 1 - gate.exp(), "g": gate}


def delta_rule(s: Shape, g: torch.Generator):
    """Keys of length 1; values have as many heads as queries, keys have fewer."""
    made = qkv(s, g)
    key = torch.nn.functional.normalize(made["k"], dim=-1)
    beta = torch.sigmoid(rows(g, s.B, s.T, s.H))
    return {"q": made["q"], "k": key, "v": rows(g, s.B, s.T, s.H, s.V), "beta": beta}


def gated_delta_rule(s: Shape, g: torch.Generator):
    return {**delta_rule(s, g), "g": log_decay(g, s.B, s.T, s.H)}


CASES = {
    "linear_attn": Case("linear_attn", positive_qkv, normalizes=True),
    "linear_attn without normaliser": Case("linear_attn", qkv, {"normalize": False}),
    "retention": Case("retention", qkv),
    "simple_gla": Case("simple_gla", simple_gla, wide=("g",)),
    "gla": Case("gla", gla, wide=("g",)),
    "gla with gates as narrow as the rest": Case("gla", gla),
    "hgrn2": Case("hgrn2", hgrn2, wide=("f",)),
    "ssd": Case("ssd", ssd, wide=("dt", "A_log", "D")),
    "rwkv6": Case("rwkv6", rwkv6, wide=("w", "u")),
    "lawcat": Case("lawcat", lawcat, wide=("z",), normalizes=True),
    "supra": Case("supra", supra),
    "bla": Case("bla", qkv, {"modes": 3, "period": 14.0}),
    "bla with a period between tokens": Case("bla", qkv, {"modes": 4, "period": 20.5, "masked": False}),
    "bla with decay": Case("bla", qkv, {"modes": 3, "period": 14.0, "decay": "abs"}),
    "bla with factors above one": Case("bla", qkv, {"modes": 4, "period": 20.5, "decay": "signed"}),
    "gsa": Case("gsa", gsa, wide=("g",)),
    "abc": Case("abc", abc, wide=("s",)),
    "delta_rule": Case("delta_rule", delta_rule, wide=("beta",)),
    "gated_delta_rule": Case("gated_delta_rule", gated_delta_rule, wide=("beta", "g")),
    "based": Case("based", qkv, normalizes=True, widest=64),
}


def error(x: torch.Tensor, reference: torch.Tensor, floor: float = 1e-30) -> float:
    x, reference = x.to("cpu", torch.float64), reference.to("cpu", torch.float64)
    # The total of no numbers is -inf on both sides.
    difference = torch.where(x == reference, 0.0, x - reference).norm()
    size = reference[reference.isfinite()].norm()
    return (difference / size.clamp(min=floor)).item() if reference.numel() else 0.0


def initial_state(case: Case, inputs: Mapping[str, torch.Tensor], seed: int = 0, **keywords) -> stretto.State:
    """A state with random numbers, of the shapes and types that the operator returns; where results are divided by
    what it holds, the one that the same tokens leave.
    """
    _, state = case(inputs, output_final_state=True, **keywords)
    if case.normalizes:
        return state
    generator = torch.Generator().manual_seed(seed + 1)
    made = {}
    for name, entry in state.items():
        if name == "position":
            made[name] = torch.randint(0, 100, entry.shape, generator=generator).to(entry.device)
            continue
        numbers = torch.randn(entry.shape, generator=generator, dtype=torch.float64)
        made[name] = numbers.to(entry.dtype).to(entry.device)
    return stretto.State(tuple(made), tuple(made.values()))


def check(
    case: Case, inputs: Mapping[str, torch.Tensor], bounds: tuple[float, float] | None = None, **keywords
) -> None:
    """Runs the operator and holds it against the interpreter."""
    o, state = case(inputs, output_final_state=True, **keywords)
    expected, expected_state = case.reference(inputs, **keywords)
    output_bound, state_bound = bounds or BOUNDS[o.dtype]
    assert o.shape == expected.shape
    assert tuple(state) == tuple(expected_state)
    found = error(o, expected)
    assert found <= output_bound, f"the output's error is {found:.2e}, expected at most {output_bound:.0e}"
    for name, entry in state.items():
        assert entry.shape == expected_state[name].shape
        found = error(entry, expected_state[name])
        assert found <= state_bound, f"the error of '{name}' is {found:.2e}, expected at most {state_bound:.0e}"


def check_ordinary_inputs_in_bf16(case: Case, inputs: Mapping[str, torch.Tensor]) -> None:
    """Without extremes the output is better than the bound of every regime."""
    check(case, inputs, bounds=(4e-3, BOUNDS[torch.bfloat16][1]))


def check_that_a_nan_stays(case: Case, dtype: torch.dtype, packed: bool, device: str = "cpu") -> None:
    """A NaN reaches no earlier chunk of 64 tokens, no other sequence, and no head that does not read it."""
    key = {"hgrn2": "f", "ssd": "B"}.get(case.operator, "k")
    inputs = case.inputs(Shape(B=1, T=400) if packed else Shape(B=2, T=200), dtype, device)
    keywords = {"cu_seqlens": offsets([200, 200], device=device)} if packed else {}

    def sequences():
        return case(inputs, **keywords)[0].view(2, 200, 4, -1)

    clean = sequences()
    inputs[key].view(2, 200, 2, -1)[1, 130, 0, 3] = math.nan
    o = sequences()
    assert torch.equal(o[0], clean[0])
    assert torch.equal(o[1, :, 2:], clean[1, :, 2:])  # heads 2 and 3 read the other key head
    assert torch.equal(o[1, :128], clean[1, :128])
    assert o[1, 130:, :2].isnan().any()


def offsets(lengths: list[int], dtype: torch.dtype = torch.int64, device: str = "cpu") -> torch.Tensor:
    return torch.tensor([0, *lengths]).cumsum(0).to(dtype).to(device)
