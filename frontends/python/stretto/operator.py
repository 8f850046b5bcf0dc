"""Operators of PyTorch that declarations become: torch.ops.stretto.<name>."""

import ctypes
import json
import pathlib
import sys
import warnings
from collections.abc import Mapping, Sequence

import torch

from .native import Error, Module, library
from .state import State

torch.ops.load_library(library("libstretto_torch.so"))


@ctypes.CFUNCTYPE(None, ctypes.c_char_p)
def _warn(message: bytes) -> None:
    """Warns where an operator was called: behind functions of ours and of PyTorch's, which are not always as many."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back and frame.f_globals.get("__name__", "").partition(".")[0] in ("stretto", "torch"):
        level, frame = level + 1, frame.f_back
    warnings.warn(message.decode(), stacklevel=level)


# Forms that were found for machines we had; it is read when it is first needed.
torch.ops.stretto._set_tuned_table(str(pathlib.Path(__file__).with_name("tuned.json")))

torch.ops.stretto._set_warning_handler(ctypes.cast(_warn, ctypes.c_void_p).value)

_PREFIX = "stretto: "


class Operator:
    """A declaration as an operator of PyTorch. Shipped variants have the name that is given, others one of their own:
    the variant's name and a digest of the declaration, so that a declaration may be changed and run again.
    """

    def __init__(self, module: Module, name: str | None = None):
        self.name = torch.ops.stretto._declare(str(module), name)
        self.variant = name or self.name.rpartition("_")[0]
        self.overload = getattr(torch.ops.stretto, self.name).default
        self.step_overload = getattr(torch.ops.stretto, f"{self.name}_step").default
        # After the inputs; three arguments follow that all operators have.
        self.options = tuple(x.name for x in self.overload._schema.arguments if x.kwarg_only)[:-3]

    def __call__(
        self,
        inputs: Sequence[torch.Tensor | None],
        options: Mapping[str, object],
        initial_state: Sequence[torch.Tensor] | None,
        output_final_state: bool,
        cu_seqlens: torch.Tensor | None,
    ) -> tuple:
        """The results of the operator, and last its final state as a list."""
        if torch.compiler.is_compiling():
            return self.overload(
                *inputs,
                **options,
                initial_state=initial_state,
                output_final_state=output_final_state,
                cu_seqlens=cu_seqlens,
            )
        try:
            return self.overload(
                *inputs,
                **options,
                initial_state=initial_state,
                output_final_state=output_final_state,
                cu_seqlens=cu_seqlens,
            )
        except RuntimeError as error:
            self._check_tensors(inputs, initial_state=initial_state or (), cu_seqlens=[cu_seqlens])
            raise _own(error) from None

    def step(
        self,
        inputs: Sequence[torch.Tensor | None],
        options: Mapping[str, object],
        state: Sequence[torch.Tensor],
        slots: torch.Tensor | None,
    ) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The results for one token of each sequence; the state is updated."""
        if torch.compiler.is_compiling():
            return self.step_overload(*inputs, state=state, **options, slots=slots)
        try:
            return self.step_overload(*inputs, state=state, **options, slots=slots)
        except RuntimeError as error:
            self._check_tensors(inputs, state=state, slots=[slots])
            raise _own(error) from None

    def _check_tensors(self, inputs: Sequence, **others: Sequence) -> None:
        """Says in our words what PyTorch refused that is no tensor."""
        names = [argument.name for argument in self.overload._schema.arguments]
        given = [*zip(names, inputs, strict=False), *((name, value) for name in others for value in others[name])]
        for name, value in given:
            if value is not None and not isinstance(value, torch.Tensor):
                raise Error(f"{self.variant}: [R4] '{name}' is a {type(value).__name__}, expected a tensor")

    def explain(
        self,
        inputs: Sequence[torch.Tensor | None],
        options: Mapping[str, object],
        initial_state: Sequence[torch.Tensor] | None,
        cu_seqlens: torch.Tensor | None,
        wanted: Sequence[str] | None = None,
    ) -> "Explanation":
        """Which kernel runs a call, and where it comes from; or what the gradient of what is wanted takes."""
        try:
            call = self._described(inputs, options, initial_state, cu_seqlens)
            if wanted is None:
                text = torch.ops.stretto._explain(*call)
            else:
                text = torch.ops.stretto._explain_backward(*call, list(wanted))
        except RuntimeError as error:
            raise _own(error) from None
        return Explanation(operator=f"stretto::{self.name}", **json.loads(text))

    def tune(
        self,
        inputs: Sequence[torch.Tensor | None],
        options: Mapping[str, object],
        initial_state: Sequence[torch.Tensor] | None,
        cu_seqlens: torch.Tensor | None,
        wanted: Sequence[str] | None,
        seconds: float,
    ) -> "Explanation":
        """Measures a call in several forms, or the gradient of what is wanted, and keeps the fastest."""
        try:
            call = self._described(inputs, options, initial_state, cu_seqlens)
            text = torch.ops.stretto._tune(*call, None if wanted is None else list(wanted), seconds)
        except RuntimeError as error:
            raise _own(error) from None
        return Explanation(operator=f"stretto::{self.name}", **json.loads(text))

    def _described(self, inputs, options, initial_state, cu_seqlens) -> tuple:
        """A call as the operators take it that say something of it."""
        words = {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in options.items()}
        return self.name, list(inputs), words, initial_state or [], cu_seqlens


class Explanation(dict):
    """What there is to know of a kernel, by name; one line each when printed, and one for each part of a list."""

    def __str__(self) -> str:
        width = max(map(len, self))
        lines = []
        for name, value in self.items():
            parts = value if isinstance(value, list) and value else [value]
            for index, part in enumerate(parts):
                text = ", ".join(f"{key} {x}" for key, x in part.items()) if isinstance(part, dict) else part
                lines.append(f"{'' if index else name:{width}}  {text}")
        return "\n".join(lines)


def _own(error: RuntimeError) -> Exception:
    """What the compiler or its checks said is a stretto.Error; anything else is passed on."""
    message = str(error)
    return Error(message.removeprefix(_PREFIX)) if message.startswith(_PREFIX) else error


def ordered_state(
    variant: str, names: Sequence[str], state: object, argument: str = "initial_state"
) -> list[torch.Tensor] | None:
    """The entries of a state in the order of the operator; a tensor stands for the only one."""
    if state is None:
        return None
    if isinstance(state, State) and state.names == names:
        return list(state.tensors)
    if isinstance(state, torch.Tensor) and len(names) == 1:
        return [state]
    expected = f"a stretto.State or a mapping with {', '.join(names)}" if names else "None: the variant has no state"
    if not isinstance(state, Mapping):
        raise Error(f"{variant}: [R6] '{argument}' is a {type(state).__name__}, expected {expected}")
    if set(state) != set(names):
        raise Error(f"{variant}: [R6] '{argument}' has {', '.join(sorted(state))}, expected {expected}")
    return [state[name] for name in names]


class debug:  # noqa: N801  used as a context, in lower case
    """Checks the contents of tensors on devices too (signs of decays, cu_seqlens), which waits for the device.

    stretto.debug(True)            # from now on
    with stretto.debug(): ...      # in a block
    """

    def __init__(self, enabled: bool = True):
        self.before = torch.ops.stretto._set_debug(enabled)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        torch.ops.stretto._set_debug(self.before)
