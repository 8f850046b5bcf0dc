"""Variants: operators that a declaration describes, in Python or in a file."""

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from . import reference
from .native import Module
from .signature import Signature
from .tracing import Trace

# What has to be run on a specialised declaration to reach a stage; the pipelines are those of stretto-opt.
STAGES = {"stretto": ""}

DEFAULT_SIZE = 128


class Variant(ABC):
    """An operator. `program` gives its declaration once the options that choose the program are fixed."""

    def __init__(self, signature: Signature):
        self.signature = signature
        self.__name__ = signature.name
        self.__doc__ = signature.summary
        self._programs: dict[tuple, Module] = {}

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

    def mlir(self, **settings) -> str:
        """The declaration as MLIR, for some options. Optional inputs are absent unless named, as in `D=True`."""
        module, numeric = self._choose(settings)
        return str(module.specialize(options=numeric) if numeric else module)

    def lower(self, stage: str, **settings) -> str:
        """The operator at a stage of the compiler. Beside options, the settings are sizes and head counts (`K=64`,
        `H=8`); a size that is not given is 128.
        """
        if stage not in STAGES:
            raise self.signature.error(f"there is no stage '{stage}'; the stages are {', '.join(STAGES)}")
        of_options = {
            name: value
            for name, value in settings.items()
            if name in self.signature.options or name in self.signature.inputs
        }
        module, numeric = self._choose(of_options)
        declared = Signature.of_module(module)
        dims = dict.fromkeys(declared.sizes, DEFAULT_SIZE)
        heads = {}
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
        return str(module.run(STAGES[stage]) if STAGES[stage] else module)

    def reference(self, *inputs, initial_state=None, output_final_state: bool = False, cu_seqlens=None, **keywords):
        """The operator in double precision, token by token, on tensors of any type. The results are in double precision
        on the inputs' device; with `output_final_state`, the final state is returned beside them, tensors by name.
        """
        given, options = self.signature.bind(inputs, keywords)
        structure, numeric = self.signature.split(options)
        module = self.program(structure, frozenset(given))
        return reference.run(
            self.signature, module, given, numeric, initial_state, output_final_state, cu_seqlens
        )

    def __repr__(self) -> str:
        return f"<stretto variant {self.signature.name}({', '.join([*self.signature.inputs, *self.signature.options])})>"


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


class LoadedVariant(Variant):
    """A variant whose declaration is a file."""

    def __init__(self, module: Module):
        super().__init__(Signature.of_module(module))
        self.module = module

    def _build(self, structure, absent):
        options = {name: str(value).lower() if isinstance(value, bool) else value for name, value in structure.items()}
        return self.module.specialize(options=options, absent=sorted(absent))


def variant(function: Callable) -> Variant:
    """Declares an operator by what one token does; see stretto.lang."""
    return TracedVariant(function)


def load(path: str | os.PathLike, name: str | None = None) -> Variant:
    """The variant that a file of MLIR declares; of several, the one with that name."""
    return LoadedVariant(Module.load(os.fspath(path)).variant(name))
