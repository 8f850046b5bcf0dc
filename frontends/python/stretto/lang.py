"""The language of declarations, imported as `sl`.

A declaration says what one token of one head does. Its statements are executed in the order in which they stand, once
for each token: a read that stands before a write does not see it.

- A **row** belongs to one token and one head. `Row["K"]` has an axis of size K, `Row[()]` is a number. Its head set is
  the query heads "H" unless it says otherwise: `heads="G"` are the heads of keys and values, `heads=1` is one for all.
- A **parameter** is the same for all tokens: `Param["H", "D", "F"]` is a D by F matrix for each query head.
- An **option** that is a number is symbolic: it may take any value without changing the program. An option that is a
  condition or one of several words is an ordinary Python value and chooses the program.
- Where rows meet, coarser head sets, numbers and axes of size one are repeated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from .tracing import Value, apply, axis_text, user_error

# ---------------------------------------------------------------------------------------------------------------------
# Arguments
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class projection:  # noqa: N801  reads as a word of the language: source=sl.projection(rank=32)
    """Where a row comes from that no teacher has: a linear map of the hidden state, of low rank if one is given."""

    rank: int | None = None
    bias: bool = False

    def attribute(self) -> str:
        rank = "" if self.rank is None else f", rank = {self.rank}"
        return f'{{bias = {str(self.bias).lower()}, kind = "projection"{rank}}}'


@dataclass(frozen=True)
class Row:
    """A row argument: `Row["K"]`, `Row["K"](heads="G")`, `Row[()]`."""

    axis: str
    heads: str = "H"
    source: projection | None = None

    def __class_getitem__(cls, axis) -> "Row":
        return cls(axis_text(axis))

    def __call__(self, heads: str | int | None = None, source: projection | None = None) -> "Row":
        return replace(self, heads=self.heads if heads is None else str(heads), source=source or self.source)

    def request(self) -> tuple[str, dict[str, str]]:
        source = {} if self.source is None else {"stretto.source": self.source.attribute()}
        return "row", {"axis": self.axis, "heads": self.heads, **source}


@dataclass(frozen=True)
class Param:
    """A parameter argument: its head set, then its axes, as in `Param["H", "D", 4]`."""

    heads: str
    axes: tuple[str, ...]

    def __class_getitem__(cls, items) -> "Param":
        heads, *axes = items if isinstance(items, tuple) else (items,)
        return cls(str(heads), tuple(axis_text(axis) for axis in axes))

    def request(self) -> tuple[str, dict[str, str]]:
        return "parameter", {"axes": ",".join(self.axes), "heads": self.heads}


@dataclass(frozen=True)
class Option:
    """An option and its default: a number, an expression over sizes and options such as "K**-0.5", a condition, or one
    of several words.
    """

    default: float | str | bool
    choices: tuple[str, ...] = ()

    def __post_init__(self):
        if self.choices and self.default not in self.choices:
            raise user_error(f"the default {self.default!r} is not one of the choices {', '.join(self.choices)}")
        if not isinstance(self.default, bool | int | float | str):
            raise user_error(f"found {self.default!r} as a default, expected a number, an expression or a condition")

    @property
    def is_structural(self) -> bool:
        """Whether the option chooses the program."""
        return bool(self.choices) or isinstance(self.default, bool)


# ---------------------------------------------------------------------------------------------------------------------
# States
# ---------------------------------------------------------------------------------------------------------------------


def state(first, second, name: str | None = None) -> Value:
    """A matrix for each head, as the previous token left it. It has the finest head set of what decays it and what is
    written to it.
    """
    named = {} if name is None else {"name": name}
    return apply("state", first=axis_text(first), second=axis_text(second), **named)


def decay(S: Value, *, log=None, factor=None, along=None) -> Value:
    """Multiplies the state by `factor`, or by the exponential of `log`, along an axis or as a whole."""
    if (log is None) == (factor is None):
        raise user_error("sl.decay takes either log= or factor=")
    form, amount = ("factor", factor) if log is None else ("log", log)
    axis = {} if along is None else {"along": axis_text(along)}
    return apply("decay", S, amount, form=form, **axis)


def write(S: Value, first, second) -> Value:
    """Adds the outer product of two rows to the state."""
    return apply("write", S, first, second)


def read(S: Value, row, *, along, at=None) -> Value:
    """Row times state along one of its axes, now or as the state was at an earlier time."""
    return apply("read", S, row, *(() if at is None else (at,)), along=axis_text(along))


# ---------------------------------------------------------------------------------------------------------------------
# Time
# ---------------------------------------------------------------------------------------------------------------------


def position() -> Value:
    """The position of the token in its sequence, counted from 0."""
    return apply("position")


def conv(row, taps) -> Value:
    """Causal depthwise convolution over time; the last tap meets the token itself."""
    return apply("conv", row, taps)


def delay(row, by: int = 1) -> Value:
    """The row of an earlier token, 0 before the start."""
    return apply("delay", row, by=str(by))


def scan(row, kind: str = "add", *, log=None, exclusive: bool = False) -> Value:
    """Running "add", "logaddexp" or "max" over time. `log` shifts what is carried, as a log decay; `exclusive` gives
    the value before the token.
    """
    flags = {"exclusive": ""} if exclusive else {}
    return apply("scan", row, *(() if log is None else (log,)), kind=kind, **flags)


def table(body: Callable, axis=(), *, period=None) -> Value:
    """A row that is known before the data: body(t, i) is its entry i at position t, in real numbers. With a period, t
    is first reduced to t mod period.
    """
    t, _, i = apply("table", *(() if period is None else (period,)), axis=axis_text(axis), heads="1")
    return apply("yield", body(t, i))


def per_head(body: Callable, heads: str = "H") -> Value:
    """A number for each head: body(h)."""
    _, h, _ = apply("table", axis="", heads=heads)
    return apply("yield", body(h))


def lookback(first, body: Callable, fold: str = "softmax", stop: float | None = None):
    """Folds pairs of this token with every token from `first` on, up to this one, or to the end of the sequence for
    stop=math.inf. In the body, `past(x)` is the row x of the other token. The folds:

    - "softmax": body gives a score and a row; the results are the largest score m, l = sum e^(score - m) and
      acc = sum e^(score - m) row;
    - "sum": body gives a row, the result is the sum;
    - "divergence": body gives a teacher's and a student's score; the results are the Kullback-Leibler divergence of
      their softmaxes and the log-sum-exp of each.
    """
    if stop is not None and stop != math.inf:
        raise user_error(f"stop is {stop!r}, expected None or math.inf")
    apply("lookback", first, fold=fold, **({} if stop is None else {"to_end": ""}))
    results = body(lambda row: apply("past", row))
    return apply("yield", *(results if isinstance(results, tuple | list) else (results,)))


# ---------------------------------------------------------------------------------------------------------------------
# Rows
# ---------------------------------------------------------------------------------------------------------------------


def axis(**size):
    """Binds a named size to arithmetic on options, or to another size: `n = sl.axis(N=2 * modes + 1)`."""
    if len(size) != 1:
        raise user_error(f"sl.axis binds one name, found {len(size)}")
    ((name, value),) = size.items()
    return apply("axis", value, name=name)


def matvec(row, matrix, *, transpose: bool = False) -> Value:
    """Row times the parameter matrix of its head."""
    return apply("contract", row, matrix, **({"transpose": ""} if transpose else {}))


def softmax(row) -> Value:
    return apply("softmax", row)


def concat(*rows) -> Value:
    """Rows side by side; a number is a row of size one."""
    return apply("concat", *rows)


def append(row, number) -> Value:
    """The row with one more entry."""
    return concat(row, number)


def split(row, at) -> tuple[Value, Value]:
    """The first `at` entries and the others; one entry alone is a number."""
    return apply("split", row, at=axis_text(at))


def dot(left, right) -> Value:
    return apply("dot", left, right)


def outer(left, right) -> Value:
    """All products of two rows, flattened."""
    return apply("outer", left, right)


def inner(matrix, row, axis, *, transpose: bool = False) -> Value:
    """A flattened matrix times a row, as a row on `axis`: the adjoint of `outer`."""
    return apply("inner", matrix, row, axis=axis_text(axis), **({"transpose": ""} if transpose else {}))


def sum(row) -> Value:
    return apply("reduce", row, kind="sum")


def mean(row) -> Value:
    return apply("reduce", row, kind="mean")


def max(row) -> Value:
    return apply("reduce", row, kind="max")


def where(condition, yes, no) -> Value:
    """Entry by entry, `yes` where the condition holds and `no` elsewhere."""
    return apply("where", condition, yes, no)


def stop_gradient(row) -> Value:
    return apply("stop_gradient", row)


# ---------------------------------------------------------------------------------------------------------------------
# Entry by entry
# ---------------------------------------------------------------------------------------------------------------------


def maximum(left, right) -> Value:
    return apply("maximum", left, right)


def minimum(left, right) -> Value:
    return apply("minimum", left, right)


def absolute(x) -> Value:
    return apply("absolute", x)


def exp(x) -> Value:
    return apply("exp", x)


def log(x) -> Value:
    return apply("log", x)


def log1p(x) -> Value:
    """log(1 + x), accurate near 0."""
    return apply("log1p", x)


def sqrt(x) -> Value:
    return apply("sqrt", x)


def square(x) -> Value:
    return x * x


def logsigmoid(x) -> Value:
    return apply("logsigmoid", x)


def sigmoid(x) -> Value:
    return exp(logsigmoid(x))


def relu(x) -> Value:
    return maximum(x, 0.0)


def tanh(x) -> Value:
    return apply("tanh", x)


def sin(x) -> Value:
    return apply("sin", x)


def cos(x) -> Value:
    return apply("cos", x)


def floor(x) -> Value:
    return apply("floor", x)


def round(x) -> Value:
    """The nearest whole number, halves to even."""
    return apply("round", x)


def fmod(x, y) -> Value:
    """The remainder of x / y, with the sign of x."""
    return apply("fmod", x, y)
