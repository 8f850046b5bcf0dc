"""Every shipped variant as a function, in the argument convention of flash-linear-attention.

    o, state = stretto.ops.gla(q, k, v, g, scale=None, initial_state=None, output_final_state=False, cu_seqlens=None)

Tensors are `[B, T, heads, width]`; keys and values may have fewer heads than queries. With `cu_seqlens`, packed
sequences lie in `[1, tokens, heads, width]`. The state is None unless `output_final_state` is set. What an operator
computes stands in models/<name>.
"""

import inspect
import pathlib

import torch
from torch.compiler import is_dynamo_compiling

from .calls import FINAL_STATE, NO_STATE, Plan, Plans, make_caller, plan_of_call, plan_of_step
from .native import Error, Module
from .variant import LoadedVariant

_MODELS = pathlib.Path(__file__).with_name("models")

_COMMON = {"initial_state": None, "output_final_state": False, "cu_seqlens": None}


class ShippedOperator:
    """A variant of models/. `parameters` are its inputs and options in the order of a call; what is left out here
    comes after them: inputs first, by their order in the declaration, and `scale` last.
    """

    def __init__(self, name: str, *parameters: str):
        self.variant = LoadedVariant(Module.load(str(_MODELS / name / "variant.mlir")), operator_name=name)
        signature = self.variant.signature
        rest = [name for name in [*signature.inputs, *signature.options] if name not in (*parameters, "scale")]
        scale = ["scale"] if "scale" in signature.options else []
        self.parameters = (*parameters, *rest, *scale, *_COMMON)
        self._plans = Plans(self._plan)
        self._caller = make_caller(self._plan_of_call, self._call)
        self._step_caller = make_caller(self._plan_of_step, self._step)
        self.__name__ = name
        self.__doc__ = signature.summary
        self.__signature__ = inspect.Signature(
            [
                inspect.Parameter(
                    name,
                    inspect.Parameter.POSITIONAL_OR_KEYWORD,
                    default=_COMMON.get(name, None if self._is_optional(name) else inspect.Parameter.empty),
                )
                for name in self.parameters
            ]
        )

    def _is_optional(self, name: str) -> bool:
        return self.variant.signature.inputs.get(name, True)

    def _bind(self, arguments: tuple, keywords: dict) -> dict:
        """The arguments of a call by name, those left out that are None: what leaves an option at its default."""
        if len(arguments) > len(self.parameters):
            expected = f"at most {len(self.parameters)}: {', '.join(self.parameters)}"
            raise Error(f"{self.__name__} is given {len(arguments)} arguments, expected {expected}")
        given = dict(zip(self.parameters, arguments, strict=False))
        for name, value in keywords.items():
            if name in given:
                raise Error(f"{self.__name__}: '{name}' is given twice")
            given[name] = value
        return {name: value for name, value in given.items() if value is not None}

    def _plan(self, arguments: tuple, keywords: dict) -> Plan:
        return self.variant.plan((), self._bind(arguments, keywords))

    def __call__(self, *arguments, **keywords):
        call = self._call if is_dynamo_compiling() else self._caller
        return call(*arguments, **keywords)

    def _apart_from_common(self, arguments: tuple, keywords: dict) -> tuple[tuple, dict, list]:
        """The arguments and keywords of a call without those that all operators have, and these."""
        if len(arguments) + len(_COMMON) > len(self.parameters):  # some of those in common are given by position
            arguments, keywords = (), self._bind(arguments, keywords)
        common = [keywords.get(name, default) for name, default in _COMMON.items()]
        return arguments, {name: value for name, value in keywords.items() if name not in _COMMON}, common

    def _call(self, *arguments, **keywords):
        arguments, keywords, common = self._apart_from_common(arguments, keywords)
        outputs = self.variant.run(self._plans.find(arguments, keywords), *common)
        _, output_final_state, _ = common
        return outputs if output_final_state else (outputs, None)

    def _plan_of_call(self, *arguments, **keywords):
        arguments, keywords, common = self._apart_from_common(arguments, keywords)
        _, output_final_state, _ = common
        return plan_of_call(self._plan(arguments, keywords), *common, FINAL_STATE if output_final_state else NO_STATE)

    def step(self, *arguments, state, slots=None, **keywords):
        """One token of each sequence, `[B, heads, width]`; see Variant.step."""
        step = self._step if is_dynamo_compiling() else self._step_caller
        return step(state, slots, *arguments, **keywords)

    def _step(self, state, slots, *arguments, **keywords):
        return self.variant.run_step(self._plans.find(arguments, keywords), state, slots)

    def _plan_of_step(self, state, slots, *arguments, **keywords):
        return plan_of_step(self._plan(arguments, keywords), state, slots)

    def __repr__(self) -> str:
        return f"<stretto operator {self.__name__}{self.__signature__}>"


linear_attn = ShippedOperator("linear_attn", "q", "k", "v", "normalize", "eps")
retention = ShippedOperator("retention")
simple_gla = ShippedOperator("simple_gla")
gla = ShippedOperator("gla")
hgrn2 = ShippedOperator("hgrn2")
ssd = ShippedOperator("ssd")
rwkv6 = ShippedOperator("rwkv6")
based = ShippedOperator("based")
supra = ShippedOperator("supra")
lawcat = ShippedOperator("lawcat")
delta_rule = ShippedOperator("delta_rule")
gated_delta_rule = ShippedOperator("gated_delta_rule")
gsa = ShippedOperator("gsa")
abc = ShippedOperator("abc")
swa = ShippedOperator("swa", "q", "k", "v", "window")
bla = ShippedOperator("bla", "q", "k", "v", "modes", "period", "decay", "masked")
lolcats = ShippedOperator(
    "lolcats", "q", "k", "v", "w_q", "w_k", "factor", "window", "mode", "prev_blocks", "beta", "feature", "b_q", "b_k",
    "max_gradient",
)  # fmt: skip
_relation_kl_rows = ShippedOperator("relation_kl")


def relation_kl(
    q_s, q_t, k_s=None, k_t=None, mask=None, scale_s=None, scale_t=None, causal=True, denominator_heads=None
) -> torch.Tensor:
    """The divergence of a student's relation from its teacher's: the sum of that of all rows, divided by the number of
    valid tokens times `denominator_heads`, by default those of `q_s`. `mask` [B, T] is nonzero for valid tokens.
    """
    valid = max(1, q_s.shape[0] * q_s.shape[1])
    if mask is not None:
        if mask.is_floating_point() or mask.is_complex():
            raise Error(f"relation_kl: [R12] 'mask' has entries of type {mask.dtype}, expected booleans or integers")
        if mask.shape != q_s.shape[:2]:
            expected = list(q_s.shape[:2])
            raise Error(f"relation_kl: [R12] 'mask' has shape {list(mask.shape)}, expected that of tokens, {expected}")
        mask = mask != 0
        valid = mask.sum().clamp(min=1)
        mask = mask.to(q_s.dtype)[..., None]
    rows, _ = _relation_kl_rows(
        q_s=q_s, q_t=q_t, k_s=k_s, k_t=k_t, mask=mask, scale_s=scale_s, scale_t=scale_t, causal=causal
    )
    total = rows.sum(dtype=torch.promote_types(rows.dtype, torch.float32))
    return total / (valid * (q_s.shape[2] if denominator_heads is None else denominator_heads))


relation_kl.variant = _relation_kl_rows.variant
