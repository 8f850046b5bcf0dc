"""What a peer is."""

from collections.abc import Callable, Collection
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Peer:
    """Somebody else's way to what an operator does.

    `operators` are those that it has a form of, by the names of the tables; None stands for all. `missing` says why it
    cannot be used here, or None. `forms` gives its functions of the operator's inputs by name, of which the fastest
    counts; with `own_inputs` they take tensors of their own instead. `same` says whether they compute the same as the
    operator, so that results are compared.
    """

    name: str
    operators: Collection[str] | None
    missing: Callable[[], str | None]
    forms: Callable[..., dict[str, Callable]]
    devices: tuple[str, ...] = ("cuda",)
    same: bool = True
    own_inputs: Callable[..., dict[str, torch.Tensor]] | None = None

    def covers(self, operator: str) -> bool:
        return self.operators is None or operator in self.operators


def missing_module(name: str) -> Callable[[], str | None]:
    """Why a module cannot be imported."""

    def why() -> str | None:
        try:
            __import__(name)
        except ImportError as error:
            return f"not installed ({error})"
        return None

    return why


def first_of(function: Callable) -> Callable:
    """A function that returns an output and a state, without the state."""
    return lambda **tensors: function(**tensors)[0]
