"""What Python has to do for a call, found once for all calls that look alike.

Which argument is which input, what is left at its default and which program the options choose follows from the form
of a call: the number of its arguments, the names of its keywords, and the values of all that are no tensors. A plan
says it for a form; a call of a form that was met before costs a look-up.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .variant import Program

_MOST_PLANS = 1024  # a number may be another in each call


class _Place(int):
    """Stands for a tensor: the value with this number, those of keywords after the arguments."""


@dataclass(frozen=True)
class Plan:
    """A program, what it takes, with places for tensors, and the options of its operator."""

    program: "Program"
    inputs: list
    options: dict

    @functools.cached_property
    def takes_all(self) -> bool:
        """Whether its inputs are all values of a call, as they come."""
        return all(x.__class__ is _Place and x == index for index, x in enumerate(self.inputs))

    def fill(self, values: tuple) -> Sequence:
        """The inputs of a call that gives these values."""
        if self.takes_all and len(values) == len(self.inputs):
            return values
        return [values[x] if x.__class__ is _Place else x for x in self.inputs]


class Plans:
    """Plans by forms. `make` finds one for arguments and keywords in which places stand for tensors."""

    def __init__(self, make: Callable[[tuple, Mapping], Plan]):
        self._make = make
        self._plans: dict[tuple, Plan] = {}
        self._of_tensors: dict[tuple, Plan] = {}  # by types alone, of calls that give tensors and nothing else

    def find(self, arguments: tuple, keywords: Mapping[str, object]) -> tuple["Program", Sequence, dict]:
        """The program for a call, its inputs, and the options of its operator."""
        if torch.compiler.is_compiling():
            plan = self._make(arguments, keywords)
            return plan.program, plan.inputs, plan.options
        values = (*arguments, *keywords.values()) if keywords else arguments
        types = (len(arguments), *keywords, *map(type, values))
        plan = self._of_tensors.get(types)
        if plan is not None:
            return plan.program, plan.fill(values), plan.options
        forms = [x.__class__ if x.__class__ is torch.Tensor else _form_of(x) for x in values]
        key = (len(arguments), *keywords, *forms)
        plan = self._plans.get(key)
        if plan is None:
            marked = [_Place(i) if forms[i] is torch.Tensor else x for i, x in enumerate(values)]
            count = len(arguments)
            plan = self._make(tuple(marked[:count]), dict(zip(keywords, marked[count:], strict=True)))
            if object not in forms:
                if len(self._plans) == _MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
        if all(x is torch.Tensor or x is None for x in forms):
            if len(self._of_tensors) == _MOST_PLANS:
                self._of_tensors.clear()
            self._of_tensors[types] = plan
        return plan.program, plan.fill(values), plan.options


def _form_of(value: object) -> object:
    """What calls that look alike share; `object` for what nothing else looks like."""
    if value is None or isinstance(value, torch.Tensor):
        return None if value is None else torch.Tensor
    return (value.__class__, value) if isinstance(value, bool | int | float | str) else object
