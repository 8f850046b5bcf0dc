"""Variants: operators that a declaration describes, in Python or in a file."""

import functools
import json
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.compiler import is_dynamo_compiling

from . import reference
from .calls import FINAL_STATE, RESULTS_ALONE, Plan, Plans, make_caller, plan_of_call, plan_of_step
from .native import Module
from .operator import Explanation, Operator, ordered_state
from .signature import Signature
from .state import State
from .tracing import Trace

DEFAULT_SIZE = 128
KEEPS = ("nothing", "chunks", "segments")

ELEMENT_TYPES = {"fp16": "f16", "bf16": "bf16", "fp32": "f32", "fp64": "f64"}


@dataclass(frozen=True)
class Program:
    """An operator of PyTorch, the inputs that it takes, the options that choose the program, its state's entries."""

    operator: Operator
    inputs: tuple[str, ...]
    options: dict[str, str | bool]
    state: tuple[str, ...]


def _apart_from_state(inputs: tuple, keywords: dict) -> tuple[Sequence, dict, object]:
    """The inputs of a step, its keywords, and its state, which comes last where it is no keyword."""
    if "state" in keywords:
        return inputs, {name: value for name, value in keywords.items() if name != "state"}, keywords["state"]
    *inputs, state = inputs or [None]
    return inputs, keywords, state


def _requires_gradient(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _state_of(module: Module) -> tuple[str, ...]:
    return tuple(entry["name"] for entry in json.loads(module.state()))


class Variant(ABC):
    """An operator. `program` gives its declaration once the options that choose the program are fixed."""

    def __init__(self, signature: Signature):
        self.signature = signature
        self.__name__ = signature.name
        self.__doc__ = signature.summary
        self._programs: dict[tuple, Module] = {}
        self._compiled: dict[tuple, Program] = {}
        self._plans = Plans(self.plan)
        self._caller = make_caller(self._plan_of_call, self._call)
        self._step_caller = make_caller(self._plan_of_step, self._step)

    @abstractmethod
    def _build(self, structure: Mapping[str, str | bool], absent: frozenset[str]) -> Module:
        """The declaration for a program that was not asked for yet."""

    def program(self, structure: Mapping[str, str | bool], present: frozenset[str]) -> Module:
        """The declaration for one value of every option that chooses the program, and some of the optional inputs."""
        optional = frozenset(name for name, is_optional in self.signature.inputs.items() if is_optional)
        absent = optional - present
        key = (*structure.items(), absent)
        if key not in self._programs:
            self._programs[key] = self._build(structure, absent)
        return self._programs[key]

    def _choose(self, settings: Mapping[str, object]) -> tuple[Module, dict[str, str]]:
        """The program that options and optional inputs (`D=True`) choose, and the options that are numbers."""
        present = frozenset(name for name in settings if self.signature.inputs.get(name) and settings[name])
        options = {name: value for name, value in settings.items() if not self.signature.inputs.get(name)}
        structure, numeric = self.signature.split(options)
        return self.program(structure, present), numeric

    def _backward(self, module: Module, wanted: Sequence[str], saved: bool = False) -> Module:
        """The declaration of the gradient of a program, of all that has one unless some is named."""
        options = [f"wanted={','.join(wanted)}"] * bool(wanted) + ["saved=true"] * saved
        pipeline = f"stretto-differentiate{{{' '.join(options)}}}" if options else "stretto-differentiate"
        return module.run(pipeline).variant(f"{self.signature.name}_backward")

    def mlir(self, backward: bool = False, wanted: Sequence[str] = (), **settings) -> str:
        """The declaration as MLIR, or that of its gradient: of all inputs and states, or of those that `wanted` names.
        Optional inputs are absent unless named, as in `D=True`.
        """
        module, numeric = self._choose(settings)
        module = module.specialize(options=numeric) if numeric else module
        return str(self._backward(module, wanted) if backward else module)

    def lower(
        self,
        stage: str,
        dtype: str = "fp32",
        target: str = "cpu",
        backward: bool = False,
        wanted: Sequence[str] = (),
        step: bool = False,
        segments: bool = False,
        keeps: str = "nothing",
        saved: bool = False,
        form: Sequence[int] | None = None,
        **settings,
    ) -> str:
        """The operator at a stage of the compiler: "stretto", "chunk", "kernel" (GPU), "llvm", "asm" (CPU) or "ptx"
        (GPU). The target is "cpu" or a chip such as "sm_90a". Beside options, the settings are sizes and head counts
        (`K=64`, `H=8`); a size that is not given is 128, a number of heads 1. With `backward` it is the gradient, of
        what `wanted` names or of all, with `step` what one token does, with `segments` the kernels that walk segments
        of a sequence side by side; with `saved` the kernel of the results saves rows for its gradient, which takes
        them, if there are some; with `keeps` the kernel of the results is that of a call which is recorded, and
        keeps the states at the start of each of its "chunks" for its gradient, or of "segments" that a launch
        chooses. `form` fixes what the model would choose: the tokens of a chunk, the slices of the values, the warps
        of a block, the walks back of a gradient, the slices of those of its walks that carry states alone (0, or left
        out: those of the model), the warps that run ahead of others (0: none, -1: the model's), how many blocks a
        call has for each multiprocessor, which the model goes by (1, or 2 for more), and the warps that find outputs
        behind others (as those ahead).
        """
        if dtype not in ELEMENT_TYPES:
            raise self.signature.error(f"'dtype' is {dtype!r}, expected one of {', '.join(ELEMENT_TYPES)}")
        if keeps not in KEEPS:
            raise self.signature.error(f"'keeps' is {keeps!r}, expected one of {', '.join(KEEPS)}")
        of_options = {
            name: value
            for name, value in settings.items()
            if name in self.signature.options or name in self.signature.inputs
        }
        module, numeric = self._choose(of_options)
        declared = Signature.of_module(module)
        dims = dict.fromkeys(declared.sizes, DEFAULT_SIZE)
        heads = {} if stage == "stretto" else dict.fromkeys(declared.heads, 1)
        for name, value in settings.items():
            if name in of_options:
                continue
            if name not in declared.sizes | declared.heads:
                known = ", ".join([*self.signature.options, *sorted(declared.sizes), *sorted(declared.heads)])
                raise self.signature.error(f"there is no setting '{name}'; the settings are {known}")
            if not isinstance(value, int):
                raise self.signature.error(f"'{name}' is {value!r}, expected a whole number")
            (heads if name in declared.heads else dims)[name] = value
        module = module.specialize(
            dims={name: str(size) for name, size in dims.items()},
            heads={name: str(count) for name, count in heads.items()},
            options=numeric,
        )
        if backward:
            module = self._backward(module, wanted, saved)
        elif saved:
            module = module.run("stretto.variant(stretto-save-rows)").variant(self.signature.name)
        if stage == "stretto":
            return str(module)
        part = "step" if step else "segments" if segments else "results"
        fixed = form and (*form, *(0,) * (8 - len(form)))
        return module.lower(stage, target, ELEMENT_TYPES[dtype], part, keeps, fixed)

    @abstractmethod
    def _make_program(self, structure: Mapping, expressions: Mapping, present: frozenset[str]) -> Program:
        """The program for options and inputs that were not met yet."""

    def _ensure_program(self, key: tuple, structure: Mapping, expressions: Mapping, present: frozenset[str]) -> None:
        """Makes what runs calls with these options and inputs, where it is not there."""
        if key not in self._compiled:
            self._compiled[key] = self._make_program(structure, expressions, present)

    # While torch.compile traces a call, Python itself makes the program: torch.compiler.assume_constant_result, without
    # importing all of PyTorch's compiler for it.
    _ensure_program._dynamo_marked_constant = True

    def plan(self, inputs: tuple, keywords: Mapping[str, object]) -> Plan:
        """The program for a call, what it takes and the options of its operator."""
        given, options = self.signature.bind(inputs, keywords)
        structure, numeric = self.signature.split(options)
        values = {name: float(options[name]) for name in numeric if not isinstance(options[name], str)}
        expressions = {name: text for name, text in numeric.items() if name not in values}
        key = (*structure.values(), *given, *expressions.items())
        self._ensure_program(key, structure, expressions, frozenset(given))
        program = self._compiled[key]
        return Plan(program, [given.get(name) for name in program.inputs], {**program.options, **values})

    def __call__(self, *inputs, initial_state=None, output_final_state: bool = False, cu_seqlens=None, **keywords):
        """Runs the operator on tensors `[B, T, heads, width]`, or `[1, tokens, heads, width]` with `cu_seqlens`. With
        `output_final_state` a stretto.State is returned beside the results; without, the results alone.
        """
        call = self._call if is_dynamo_compiling() else self._caller
        return call(initial_state, output_final_state, cu_seqlens, *inputs, **keywords)

    def _call(self, initial_state, output_final_state, cu_seqlens, *inputs, **keywords):
        return self.run(self._plans.find(inputs, keywords), initial_state, output_final_state, cu_seqlens)

    def _plan_of_call(self, initial_state, output_final_state, cu_seqlens, *inputs, **keywords):
        returned = FINAL_STATE if output_final_state else RESULTS_ALONE
        return plan_of_call(self.plan(inputs, keywords), initial_state, output_final_state, cu_seqlens, returned)

    def run(self, prepared: tuple[Program, list, dict], initial_state, output_final_state: bool, cu_seqlens):
        """Runs a program on its inputs, with options of its operator."""
        program, tensors, options = prepared
        state = None if initial_state is None else ordered_state(self.signature.name, program.state, initial_state)
        *results, final = program.operator(tensors, options, state, output_final_state, cu_seqlens)
        output = results[0] if len(results) == 1 else tuple(results)
        return (output, State(program.state, final)) if output_final_state else output

    def step(self, *inputs, slots=None, **keywords):
        """Runs the operator on one token of each sequence: tensors `[B, heads, width]`, and after them the state, which
        is updated where it lies. Returns the results and the same state.

        With `slots` the state is a pool: sequence `n` has its row `slots[n]`. A sequence whose slot is -1 is left out:
        its results are 0. Slots are distinct.
        """
        step = self._step if is_dynamo_compiling() else self._step_caller
        return step(slots, *inputs, **keywords)

    def _step(self, slots, *inputs, **keywords):
        inputs, keywords, state = _apart_from_state(inputs, keywords)
        return self.run_step(self._plans.find(inputs, keywords), state, slots)

    def _plan_of_step(self, slots, *inputs, **keywords):
        inputs, keywords, state = _apart_from_state(inputs, keywords)
        return plan_of_step(self.plan(inputs, keywords), state, slots)

    def run_step(self, prepared: tuple[Program, list, dict], state, slots):
        """Runs a program on one token of each sequence, with options of its operator."""
        program, tensors, options = prepared
        entries = ordered_state(self.signature.name, program.state, state, "state") or []
        return program.operator.step(tensors, options, entries, slots), state

    def explain(
        self,
        *inputs,
        initial_state=None,
        cu_seqlens=None,
        backward: bool = False,
        wanted: Sequence[str] = (),
        **keywords,
    ) -> Explanation:
        """Which kernel runs a call; it is compiled if need be, but not run. With `backward`, what the gradient of what
        `wanted` names takes, or that of all: its kernels, what is saved between them, and what is computed anew.
        """
        program, tensors, options = self._plans.find(inputs, keywords)
        state = ordered_state(self.signature.name, program.state, initial_state)
        return program.operator.explain(tensors, options, state, cu_seqlens, wanted if backward else None)

    def tune(
        self,
        *inputs,
        initial_state=None,
        cu_seqlens=None,
        backward: bool | None = None,
        wanted: Sequence[str] = (),
        seconds: float = 30.0,
        **keywords,
    ) -> dict[str, Explanation]:
        """Measures the forms that kernels of this call can have and keeps the fastest, in this and later processes, for
        calls of these types, widths and ratios of heads whose batch times heads, and whose lengths, have the same power
        of two above them.

        With `backward` the kernels of the gradient are tuned too: of what `wanted` names, or else of the inputs that
        require one, or else of all. Unless it is said, they are where an input requires a gradient. Nothing new is
        tried after so many seconds for each. Says what was tried, for "forward" and "backward".
        """
        program, tensors, options = self._plans.find(inputs, keywords)
        state = ordered_state(self.signature.name, program.state, initial_state)
        differentiated = [name for name, x in zip(program.inputs, tensors, strict=True) if _requires_gradient(x)]
        with torch.no_grad():
            found = {"forward": program.operator.tune(tensors, options, state, cu_seqlens, None, seconds)}
            if backward or (backward is None and differentiated):
                names = wanted or differentiated
                found["backward"] = program.operator.tune(tensors, options, state, cu_seqlens, names, seconds)
        return found

    def reference(self, *inputs, initial_state=None, output_final_state: bool = False, cu_seqlens=None, **keywords):
        """The operator in double precision, token by token, on tensors of any type. The results are in double precision
        on the inputs' device; with `output_final_state`, the final state is returned beside them, tensors by name.
        """
        given, options = self.signature.bind(inputs, keywords)
        structure, numeric = self.signature.split(options)
        module = self.program(structure, frozenset(given))
        return reference.run(self.signature, module, given, numeric, initial_state, output_final_state, cu_seqlens)

    def __repr__(self) -> str:
        arguments = ", ".join([*self.signature.inputs, *self.signature.options])
        return f"<stretto variant {self.signature.name}({arguments})>"


class TracedVariant(Variant):
    """A variant whose declaration is a Python function."""

    def __init__(self, function: Callable):
        self.location = (function.__code__.co_filename, function.__code__.co_firstlineno, 1)
        super().__init__(Signature.of_function(function, self.location))
        functools.update_wrapper(self, function, updated=())
        self.function = function
        # A mistake is reported where it is made, not at the first call.
        self.mlir()

    def _build(self, structure, absent):
        trace = Trace(self.signature.name, self.signature.summary, self.location)
        with trace.active():
            arguments = {}
            for name, declared in self.signature.declared.items():
                operation, settings = declared.request()
                arguments[name] = None if name in absent else trace.apply(operation, name=name, **settings)
            for name, option in self.signature.options.items():
                if option.is_structural:
                    arguments[name] = structure[name]
                else:
                    default = option.default if isinstance(option.default, str) else repr(float(option.default))
                    arguments[name] = trace.apply("option", name=name, default=default)
            return trace.finish(self.function(**arguments)).specialize()

    def _make_program(self, structure, expressions, present):
        module = self.program(structure, present)
        if expressions:
            module = module.specialize(options=expressions)
        inputs = tuple(name for name in self.signature.inputs if name in present)
        return Program(Operator(module), inputs, {}, _state_of(module))


class LoadedVariant(Variant):
    """A variant whose declaration is a file. A shipped one has an operator of its own name."""

    def __init__(self, module: Module, operator_name: str | None = None):
        super().__init__(Signature.of_module(module))
        self.module = module
        self.operator = Operator(module, operator_name)

    def _build(self, structure, absent):
        options = {name: str(value).lower() if isinstance(value, bool) else value for name, value in structure.items()}
        return self.module.specialize(options=options, absent=sorted(absent))

    def _make_program(self, structure, expressions, present):
        operator = Operator(self.module.specialize(options=expressions)) if expressions else self.operator
        return Program(operator, tuple(self.signature.inputs), structure, _state_of(self.program(structure, present)))


def variant(function: Callable) -> Variant:
    """Declares an operator by what one token does; see stretto.lang."""
    return TracedVariant(function)


def load(path: str | os.PathLike, name: str | None = None) -> Variant:
    """The variant that a file of MLIR declares; of several, the one with that name."""
    return LoadedVariant(Module.load(os.fspath(path)).variant(name))
