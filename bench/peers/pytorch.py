"""The chunked forms of `baselines` in plain PyTorch, eager and through torch.compile."""

import baselines

from .peer import Peer

CHUNK_ON_GPU = 64  # what torch.compile takes for each form is minutes of a GPU


def forms(operator, dtype, device, eager):
    found = baselines.forms(operator.name.removesuffix("_strong"), dtype, device, compile_too=not eager)
    if device == "cpu":
        return found
    return {name: form for name, form in found.items() if f"chunk {CHUNK_ON_GPU}" in name}


PEER = Peer("PyTorch", tuple(baselines.OPERATORS), lambda: None, forms, devices=("cpu", "cuda"))
