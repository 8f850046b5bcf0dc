"""Symbolic values, and the declaration that is being traced.

A declaration is run once with symbolic values; every operation on them is passed to the compiler's builder together
with the line it stands on. What is known about rows is known there.
"""

import contextlib
import itertools
import numbers
import sys
from collections.abc import Iterator
from contextvars import ContextVar

from .native import Builder, Error, Module

Location = tuple[str, int, int]

_INTERNAL_MODULES = frozenset(
    f"stretto.{name}" for name in ("lang", "operator", "ops", "reference", "signature", "tracing", "variant")
)
_current: ContextVar["Trace | None"] = ContextVar("stretto_trace", default=None)


def user_location() -> Location:
    """File, line and column of the innermost expression outside of this package's language."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__") in _INTERNAL_MODULES and frame.f_back is not None:
        frame = frame.f_back
    positions = itertools.islice(frame.f_code.co_positions(), max(frame.f_lasti, 0) // 2, None)
    line, _, column, _ = next(positions, (None,) * 4)
    return frame.f_code.co_filename, line or frame.f_lineno, (column or 0) + 1


def user_error(message: str, location: Location | None = None) -> Error:
    """An error at the user's own line."""
    file, line, column = location or user_location()
    return Error(f"{file}:{line}:{column}: error: {message}")


class Trace:
    """The declaration that is being traced."""

    def __init__(self, name: str, summary: str, location: Location):
        self.builder = Builder(name, summary, location)

    def handle(self, operand: object) -> int:
        """The builder's name for a value, a number or a condition."""
        if isinstance(operand, Value):
            if operand.trace is not self:
                raise user_error("found a value of another declaration")
            return operand.handle
        if isinstance(operand, bool):
            return self.apply("condition", value=str(operand).lower()).handle
        if isinstance(operand, numbers.Real):
            return self.apply("number", value=repr(float(operand))).handle
        raise user_error(f"found {operand!r} of type {type(operand).__name__}, expected a row, a state or a number")

    def apply(self, operation: str, *operands: object, **settings: str) -> "Value | tuple[Value, ...]":
        handles = [self.handle(operand) for operand in operands]
        results = self.builder.apply(operation, handles, settings, user_location())
        values = tuple(Value(self, result) for result in results)
        return values[0] if len(values) == 1 else values

    def finish(self, results: object) -> Module:
        rows = results if isinstance(results, tuple | list) else (results,)
        return self.builder.finish([self.handle(row) for row in rows], user_location())

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


def apply(operation: str, *operands: object, **settings: str) -> "Value | tuple[Value, ...]":
    """Adds an operation to the declaration that is being traced."""
    trace = _current.get()
    if trace is None:
        raise user_error(f"sl.{operation} outside of a declaration; it belongs into a function under @stretto.variant")
    return trace.apply(operation, *operands, **settings)


def axis_text(axis: object) -> str:
    """The spelling of an axis: a named size or an expression over sizes, a symbolic size, a number, or () for none."""
    if isinstance(axis, str):
        return axis
    if isinstance(axis, tuple) and not axis:
        return ""
    if isinstance(axis, int) and not isinstance(axis, bool):
        return str(axis)
    if isinstance(axis, Value):
        return axis.trace.builder.size(axis.handle, user_location())
    raise user_error(f"found {axis!r} as an axis, expected a size such as 'K' or 'V + 1'")


class Value:
    """A value of the declaration: a row, a parameter, a state, a condition or a symbolic number."""

    __slots__ = ("handle", "trace")
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, trace: Trace, handle: int):
        self.trace = trace
        self.handle = handle

    @property
    def width(self) -> "Value":
        """The size of a row's axis."""
        return apply("width", self)

    def __bool__(self) -> bool:
        raise user_error(
            "a value of a declaration has no truth value: it is known when the operator runs. "
            "sl.where(condition, a, b) chooses between rows; an option that is a condition or has choices=(...) "
            "chooses the program"
        )

    def __float__(self) -> float:
        raise user_error(
            "a value of a declaration is not a number yet; use the functions of stretto.lang, such as sl.cos in place "
            "of math.cos"
        )

    __int__ = __index__ = __float__

    def __neg__(self):
        return apply("negate", self)

    def __pos__(self):
        return self

    def __abs__(self):
        return apply("absolute", self)

    def __add__(self, other):
        return apply("add", self, other)

    def __radd__(self, other):
        return apply("add", other, self)

    def __sub__(self, other):
        return apply("subtract", self, other)

    def __rsub__(self, other):
        return apply("subtract", other, self)

    def __mul__(self, other):
        return apply("multiply", self, other)

    def __rmul__(self, other):
        return apply("multiply", other, self)

    def __truediv__(self, other):
        return apply("divide", self, other)

    def __rtruediv__(self, other):
        return apply("divide", other, self)

    def __floordiv__(self, other):
        return apply("floor_divide", self, other)

    def __rfloordiv__(self, other):
        return apply("floor_divide", other, self)

    def __pow__(self, other):
        return apply("power", self, other)

    def __rpow__(self, other):
        return apply("power", other, self)

    def __lt__(self, other):
        return apply("compare", self, other, predicate="olt")

    def __le__(self, other):
        return apply("compare", self, other, predicate="ole")

    def __gt__(self, other):
        return apply("compare", self, other, predicate="ogt")

    def __ge__(self, other):
        return apply("compare", self, other, predicate="oge")

    def __eq__(self, other):
        return apply("compare", self, other, predicate="oeq")

    def __ne__(self, other):
        return apply("compare", self, other, predicate="une")

    def __and__(self, other):
        return apply("and", self, other)

    __rand__ = __and__

    def __or__(self, other):
        return apply("or", self, other)

    __ror__ = __or__

    def __invert__(self):
        return apply("not", self)
