"""What Python has to do for a call, found once for all calls that look alike.

Which argument is which input, what is left at its default and which program the options choose follows from the form
of a call: the number of its arguments, the names of its keywords, and the values of all that are no tensors. A plan
says it for a form; a call of a form that was met before costs a look-up.

Most calls are made in C++, once it was told how (`make_caller`, runtime/torch/python/Caller.cpp). The others are made
here: those that are compiled, those with subclasses of tensors or under modes that override functions, and those with
values that look like nothing else.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from .native import Caller, Error
from .state import State

if TYPE_CHECKING:
    from .variant import Program

_MOST_PLANS = 1024  # a number may be another in each call


class Place:
    """Stands for a tensor or a state: the value with this number, those of keywords after the arguments."""

    def __init__(self, index: int, value: object):
        self.index = index
        self.is_state = isinstance(value, State)

    def __repr__(self) -> str:
        return "a state" if self.is_state else "a tensor"


@dataclass(frozen=True)
class Plan:
    """A program, what it takes, with places for tensors, and the options of its operator."""

    program: "Program"
    inputs: list
    options: dict

    def fill(self, values: Sequence) -> list:
        """The inputs of a call that gives these values."""
        return [values[x.index] if x.__class__ is Place else x for x in self.inputs]


class Plans:
    """Plans by forms. `make` finds one for arguments and keywords in which places stand for tensors."""

    def __init__(self, make: Callable[[tuple, Mapping], Plan]):
        self._make = make
        self._plans: dict[tuple, Plan] = {}

    def find(self, arguments: tuple, keywords: Mapping[str, object]) -> tuple["Program", Sequence, dict]:
        """The program for a call, its inputs, and the options of its operator."""
        if torch.compiler.is_compiling():
            plan = self._make(arguments, keywords)
            return plan.program, plan.inputs, plan.options
        values = (*arguments, *keywords.values())
        forms = [_form_of(x) for x in values]
        key = (len(arguments), *keywords, *forms)
        plan = self._plans.get(key)
        if plan is None:
            plan = self._make(*_marked(arguments, keywords))
            if object not in forms:
                if len(self._plans) == _MOST_PLANS:
                    self._plans.clear()
                self._plans[key] = plan
        return plan.program, plan.fill(values), plan.options


def _marked(arguments: tuple, keywords: Mapping[str, object]) -> tuple[tuple, dict]:
    """The values of a call, with places for tensors and states."""
    values = enumerate((*arguments, *keywords.values()))
    marked = [Place(i, x) if isinstance(x, torch.Tensor | State) else x for i, x in values]
    return tuple(marked[: len(arguments)]), dict(zip(keywords, marked[len(arguments) :], strict=True))


def _form_of(value: object) -> object:
    """What calls that look alike share; `object` for what nothing else looks like."""
    if value is None or isinstance(value, torch.Tensor):
        return None if value is None else torch.Tensor
    return (value.__class__, value) if isinstance(value, bool | int | float | str) else object


# What a call returns: results alone, beside None, or beside the final state. Caller.cpp has the same numbers.
RESULTS_ALONE, NO_STATE, FINAL_STATE = -3, -2, -1


class NoPlanError(Exception):
    """A call has a form that only looks like others: it is made in Python."""


def make_caller(plan_of: Callable[..., tuple], otherwise: Callable) -> Caller:
    """Calls an operator of PyTorch with what it is called with itself. `plan_of` says of values with places for tensors
    and states what becomes of them, as `plan_of_call` and `plan_of_step` do; `otherwise` makes the other calls.
    """

    def find(*values, **keywords):
        arguments, keywords = _marked(values, keywords)
        try:
            return plan_of(*arguments, **keywords)
        except (NoPlanError, Error):  # the long way says what is wrong
            return None

    return Caller(find, otherwise, State, Error)


def plan_of_call(plan: Plan, initial_state, output_final_state, cu_seqlens, returned: int) -> tuple:
    """What Caller.cpp wants to know of an operator: its name, its arguments, the entries of its state, and what is
    returned. Among the arguments the number of a value stands for it, and a tuple of numbers for a list.
    """
    if not isinstance(output_final_state, bool):
        raise NoPlanError
    program = plan.program
    inputs = map(_number_of, plan.inputs)
    options = map(plan.options.get, program.operator.options)
    state = None if initial_state is None else _numbers_of_state(program, initial_state)
    arguments = (*inputs, *options, state, output_final_state, _number_of(cu_seqlens))
    return f"stretto::{program.operator.name}", arguments, program.state, returned


def plan_of_step(plan: Plan, state, slots) -> tuple:
    """The same of one token of each sequence, whose state is returned as it was given."""
    program = plan.program
    inputs = map(_number_of, plan.inputs)
    options = map(plan.options.get, program.operator.options)
    arguments = (*inputs, _numbers_of_state(program, state), *options, _number_of(slots))
    return f"stretto::{program.operator.name}_step", arguments, program.state, state.index


def _number_of(value: Place | None) -> int | None:
    if value is None:
        return None
    if not isinstance(value, Place) or value.is_state:
        raise NoPlanError
    return value.index


def _numbers_of_state(program: "Program", state: Place) -> int | tuple[int]:
    """A tensor stands for the only entry."""
    if isinstance(state, Place) and state.is_state:
        return state.index
    if isinstance(state, Place) and len(program.state) == 1:
        return (state.index,)
    raise NoPlanError
