"""What the tables of forwards and gradients measure: every operator of `stretto.ops`, some with several settings, and a
declaration of its own, whose peer is KDA.
"""

import dataclasses
import functools
import pathlib
import sys
from collections.abc import Callable, Mapping

import stretto
import torch
from baselines import inputs
from stretto import lang as sl

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "test" / "python"))

NOMINAL_CHUNK = 64


@dataclasses.dataclass(frozen=True)
class Shape:
    """Batch, tokens, heads and width of queries, keys and values."""

    B: int
    T: int
    H: int
    D: int

    @classmethod
    def parse(cls, text):
        return cls(*(int(part) for part in text.split(",")))

    def __str__(self):
        return " ".join(f"{name}{size}" for name, size in dataclasses.asdict(self).items())


SHAPES = {
    "cpu": (Shape(1, 2048, 8, 64), Shape(1, 4096, 16, 128)),
    "cuda": (
        Shape(1, 8192, 32, 128),
        Shape(4, 2048, 32, 128),
        Shape(8, 4096, 32, 128),
        Shape(1, 8192, 32, 64),
        Shape(16, 8192, 32, 64),
    ),
}


@stretto.variant
def kda(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], beta: sl.Row[()], scale=sl.Option("K**-0.5")):
    """A delta rule whose state decays by channel."""
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, k, beta * (v - sl.read(S, k, along="K")))
    return sl.read(S, q * scale, along="K")


def kda_by_tokens(q, k, v, g, beta):
    """The same by its definition, a token after the other."""
    state, outputs = 0, []
    for t in range(q.shape[1]):
        query, key, value, decay = (x[:, t, :, :, None] for x in (q, k, v, g.exp()))
        state = decay * state
        recalled = (key * state).sum(-2) if t else torch.zeros_like(value[..., 0])
        state = state + key * (beta[:, t, :, None] * (value[..., 0] - recalled))[..., None, :]
        outputs.append((query * state).sum(-2) * q.shape[-1] ** -0.5)
    return torch.stack(outputs, 1)


DECLARED = {"kda": (kda, kda_by_tokens)}


@dataclasses.dataclass(frozen=True)
class Operator:
    """An operator of `stretto.ops`, or one that is declared here, with options, as one row of the tables.

    `made_as` is what `inputs.make` calls its inputs, `constants` are those that have no gradient, `key_width` is the
    width of queries and keys where the shape does not say it, and `shapes` are its own where others would be of no use.
    """

    name: str
    operator: str = ""
    options: Mapping[str, object] = dataclasses.field(default_factory=dict)
    made_as: str = ""
    constants: tuple[str, ...] = ()
    key_width: int | None = None
    shapes: Mapping[str, tuple[Shape, ...]] = dataclasses.field(default_factory=dict)

    @property
    def function(self) -> str:
        return self.operator or self.name

    @property
    def is_loss(self) -> bool:
        return self.function == "relation_kl"

    @property
    def variant(self):
        return DECLARED[self.name][0] if self.name in DECLARED else getattr(stretto.ops, self.function).variant

    def default_shapes(self, device: str) -> tuple[Shape, ...]:
        return self.shapes.get(device, SHAPES[device])

    def call(self) -> Callable[..., torch.Tensor]:
        """The operator as a function of its inputs that returns its output."""
        if self.is_loss:
            return functools.partial(stretto.ops.relation_kl, **self.options)
        return functools.partial(self.variant, **self.options)

    def inputs(self, shape: Shape, dtype, device, gates=None, seed=0) -> dict[str, torch.Tensor]:
        width = self.key_width or shape.D
        sizes = (shape.B, shape.T, shape.H, width)
        name = self.made_as or self.name
        return inputs.make(name, *sizes, dtype=dtype, device=device, value_width=shape.D, seed=seed, gates=gates)

    def formula(self) -> Callable[..., torch.Tensor]:
        """The same in fp64, by a formula that has nothing to do with the compiler."""
        if self.name in DECLARED:
            return DECLARED[self.name][1]
        from formulas import FORMULAS

        function = functools.partial(FORMULAS[self.function].function, **self.options)
        return function if self.is_loss else lambda **tensors: function(**tensors)[0]

    def flops(self, shape: Shape, dtype) -> int:
        """Multiplications and additions forwards: see `flops_of`."""
        if self.is_loss:  # two products of half of the pairs of tokens
            return 2 * shape.B * shape.H * shape.T * shape.T * shape.D
        one = self.inputs(dataclasses.replace(shape, B=1, T=1), dtype, "cpu")
        shapes = {name: x.to("meta") for name, x in one.items()}
        _, state = self.variant(**shapes, **self.options, output_final_state=True)
        return shape.B * flops_of(state, one, shape.T)


def flops_of(state, tensors, tokens) -> int:
    """Multiplications and additions in chunks of 64 tokens, half of the pairs of tokens: the least that is customary.
    What another chunk size saves is speed. For each token and head: 4 K V for each state of K by V and (K + V) (64 + 1)
    for pairs; (K + V) twice for each token of a window; twice the entries of a matrix of parameters.
    """
    flops = 0
    for name, entry in state.items():
        if name.endswith("_window"):
            flops += 2 * entry[0, 0].numel() * min(entry.shape[1], tokens)
        elif entry.dim() == 4 and not name.endswith("_tail"):
            heads, rows, columns = entry.shape[1:]
            flops += heads * (4 * rows * columns + (rows + columns) * (NOMINAL_CHUNK + 1))
    return tokens * (flops + sum(2 * x.numel() for name, x in tensors.items() if name.startswith("w_")))


OPERATORS = {
    operator.name: operator
    for operator in (
        Operator("linear_attn", options={"normalize": False}),
        Operator("linear_attn_normalized", "linear_attn", {"normalize": True}),
        Operator("retention"),
        Operator("simple_gla"),
        Operator("ssd"),
        Operator("gla"),
        Operator("gla_strong", "gla"),
        Operator("hgrn2"),
        Operator("rwkv6"),
        Operator("lawcat"),
        Operator("supra"),
        Operator("based", key_width=16),
        Operator("gsa"),
        Operator("abc"),
        Operator("bla", options={"modes": 32, "period": 130.0}),
        Operator("delta_rule"),
        Operator("gated_delta_rule"),
        Operator("kda"),
        Operator("swa", options={"window": 64}),
        Operator("lolcats", options={"window": 64}),
        Operator(
            "relation_kl",
            constants=("q_t",),
            shapes={"cpu": (Shape(1, 1024, 8, 64),), "cuda": (Shape(1, 4096, 32, 128), Shape(1, 8192, 32, 128))},
        ),
    )
}
