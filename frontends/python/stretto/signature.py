"""What a variant takes: its inputs and its options, and the checks of a caller's options."""

import inspect
import json
import numbers
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .lang import Option, Param, Row
from .native import Module
from .tracing import Location, user_error


@dataclass(frozen=True)
class Signature:
    """`inputs` says of each name whether it is optional, in the order of a call. Of a Python function, `declared` are
    their annotations; of a file, `sizes` and `heads` are the names that its types hold.
    """

    name: str
    summary: str
    inputs: dict[str, bool]
    options: dict[str, Option]
    declared: dict[str, Row | Param] = field(default_factory=dict)
    sizes: frozenset[str] = frozenset()
    heads: frozenset[str] = frozenset()

    @classmethod
    def of_module(cls, module: Module) -> "Signature":
        """The signature of a module's only variant."""
        (declared,) = json.loads(module.signatures())
        return cls(
            declared["name"],
            declared["summary"],
            {argument["name"]: argument["optional"] for argument in declared["arguments"]},
            {name: Option(o["default"], tuple(o.get("choices", ()))) for name, o in declared["options"].items()},
            sizes=frozenset(declared["sizes"]),
            heads=frozenset(declared["heads"]),
        )

    @classmethod
    def of_function(cls, function: Callable, location: Location) -> "Signature":
        """The signature that a declaration's annotations and defaults describe."""
        inputs, options, declared = {}, {}, {}
        for name, parameter in inspect.signature(function, eval_str=True).parameters.items():
            if isinstance(parameter.default, Option):
                options[name] = parameter.default
                continue
            if not isinstance(parameter.annotation, Row | Param):
                message = "is neither annotated as sl.Row[...] or sl.Param[...], nor has it an sl.Option as its default"
                raise user_error(f"the argument '{name}' of {function.__name__} {message}", location)
            if parameter.default not in (parameter.empty, None):
                raise user_error(f"the default of '{name}' is {parameter.default!r}, expected None or none", location)
            inputs[name] = parameter.default is None
            declared[name] = parameter.annotation
        summary = (inspect.getdoc(function) or "").partition("\n\n")[0].replace("\n", " ")
        return cls(function.__name__, summary, inputs, options, declared=declared)

    def bind(self, arguments: tuple, keywords: Mapping) -> tuple[dict[str, object], dict[str, object]]:
        """The inputs that a call gives, by name, and its options."""
        if len(arguments) > len(self.inputs):
            raise self.error(f"takes {len(self.inputs)} inputs ({', '.join(self.inputs)}), found {len(arguments)}")
        inputs = dict(zip(self.inputs, arguments, strict=False))
        options = {}
        for name, value in keywords.items():
            if name in inputs:
                raise self.error(f"'{name}' is given twice")
            (inputs if name in self.inputs else options)[name] = value
        for name, optional in self.inputs.items():
            if inputs.get(name) is None and not optional:
                raise self.error(f"'{name}' is missing; the inputs are {', '.join(self.inputs)}")
        return {name: value for name, value in inputs.items() if value is not None}, options

    def split(self, options: Mapping[str, object]) -> tuple[dict[str, str | bool], dict[str, str]]:
        """Every option that chooses the program, and the numbers that are given, as text."""
        for name in options:
            if name not in self.options:
                raise self.error(f"there is no option '{name}'; the options are {', '.join(self.options) or 'none'}")
        structure, numeric = {}, {}
        for name, option in self.options.items():
            value = options.get(name, option.default)
            if isinstance(option.default, bool):
                if not isinstance(value, bool):
                    raise self.error(f"the option '{name}' is {value!r}, expected True or False")
                structure[name] = value
            elif option.choices:
                if value not in option.choices:
                    raise self.error(f"the option '{name}' is {value!r}, expected one of {', '.join(option.choices)}")
                structure[name] = value
            elif name in options:
                if isinstance(value, bool) or not isinstance(value, numbers.Real | str):
                    raise self.error(f"the option '{name}' is {value!r}, expected a number or an expression")
                numeric[name] = value if isinstance(value, str) else repr(float(value))
        return structure, numeric

    def error(self, message: str):
        return user_error(f"{self.name}: {message}")
