"""Reference execution: tensors to the interpreter of declarations and back."""

import json
from collections.abc import Mapping

import numpy
import torch

from .native import Error, Module
from .signature import Signature
from .tracing import user_location


def _common_device(signature: Signature, tensors: Mapping[str, torch.Tensor]) -> torch.device:
    """The device of all tensors."""
    device = None
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise signature.error(f"[R4] '{name}' is a {type(tensor).__name__}, expected a tensor")
        if tensor.is_complex() or tensor.is_quantized:
            raise signature.error(f"[R4] '{name}' has type {tensor.dtype}, expected real numbers")
        if device is not None and tensor.device != device:
            first = next(iter(tensors))
            raise signature.error(f"[R5] '{name}' is on {tensor.device}, expected {device}, where '{first}' is")
        device = tensor.device
    return device or torch.device("cpu")


def _numbers(tensor: torch.Tensor) -> numpy.ndarray:
    return tensor.detach().to("cpu", torch.float64).contiguous().numpy()


def _offsets(signature: Signature, cu_seqlens: object) -> numpy.ndarray | None:
    if cu_seqlens is None:
        return None
    if not isinstance(cu_seqlens, torch.Tensor) or cu_seqlens.dtype not in (torch.int32, torch.int64):
        kind = cu_seqlens.dtype if isinstance(cu_seqlens, torch.Tensor) else type(cu_seqlens).__name__
        raise signature.error(f"[R7] 'cu_seqlens' is of type {kind}, expected a tensor of int32 or int64")
    if cu_seqlens.dim() != 1:
        raise signature.error(f"[R7] 'cu_seqlens' has shape {list(cu_seqlens.shape)}, expected one dimension")
    return cu_seqlens.cpu().to(torch.int64).contiguous().numpy()


def _named_state(signature: Signature, module: Module, state: object) -> Mapping[str, torch.Tensor]:
    """The entries of a state by name; a tensor stands for the only one."""
    if state is None:
        return {}
    if isinstance(state, Mapping):
        return state
    names = [entry["name"] for entry in json.loads(module.state())]
    if len(names) != 1:
        raise signature.error(
            f"[R6] 'initial_state' is a {type(state).__name__}, expected a mapping from the names {', '.join(names)}"
        )
    return {names[0]: state}


def run(
    signature: Signature,
    module: Module,
    inputs: Mapping[str, torch.Tensor],
    options: Mapping[str, str],
    initial_state: object,
    output_final_state: bool,
    cu_seqlens: object,
):
    """Runs a program on its inputs, by name; see Variant.reference."""
    state = _named_state(signature, module, initial_state)
    offsets = _offsets(signature, cu_seqlens)
    device = _common_device(signature, {**inputs, **{f"initial_state[{name}]": t for name, t in state.items()}})
    try:
        results, final = module.interpret(
            {name: _numbers(tensor) for name, tensor in inputs.items()},
            options=options,
            initial_state={name: _numbers(tensor) for name, tensor in state.items()},
            sequence_offsets=offsets,
            final_state=output_final_state,
        )
    except Error as error:
        file, line, column = user_location()
        raise Error(f"{error}\n  {file}:{line}:{column}: note: in this call of {signature.name}") from None
    tensors = tuple(torch.from_numpy(result).to(device) for result in results)
    output = tensors[0] if len(tensors) == 1 else tensors
    if not output_final_state:
        return output
    positions = {entry["name"] for entry in json.loads(module.state()) if entry["kind"] == "position"}
    entries = {name: torch.from_numpy(array).to(device) for name, array in final.items()}
    return output, {name: t.to(torch.int64) if name in positions else t for name, t in entries.items()}
