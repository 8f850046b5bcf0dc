"""The state that a variant carries from call to call."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from torch.utils import _pytree as pytree


class State(Mapping):
    """Tensors by name, whose first dimension counts batch rows or packed sequences. A pytree: functions that map over
    tensors, torch.compile and checkpoints see the tensors in it.
    """

    def __init__(self, names: Sequence[str], tensors: Sequence[torch.Tensor]):
        self.names = tuple(names)
        self.tensors = tuple(tensors)

    def __getitem__(self, name: str) -> torch.Tensor:
        if name not in self.names:
            raise KeyError(name)
        return self.tensors[self.names.index(name)]

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)

    def __len__(self) -> int:
        return len(self.names)

    def __repr__(self) -> str:
        tensors = zip(self.names, self.tensors, strict=True)
        return f"stretto.State({', '.join(f'{name}: {str(t.dtype)[6:]}{list(t.shape)}' for name, t in tensors)})"


pytree.register_pytree_node(
    State,
    lambda state: (list(state.tensors), state.names),
    lambda tensors, names: State(names, tensors),
    serialized_type_name="stretto.State",
)
