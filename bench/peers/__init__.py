"""What the operators are measured beside: a module for each peer.

A peer that is not installed, or that the device does not run, is named in every line all the same, with the reason.
None of the libraries is a requirement of ours: `pip install flash-linear-attention`, or a checkout of it on the path.
"""

from . import cudnn, fla, fla_slots, flash, lawcat, linearard, linearard_kernels, pytorch, softmax
from .peer import Peer

PEERS: dict[str, Peer] = {
    module.PEER.name: module.PEER
    for module in (fla, fla_slots, lawcat, linearard, linearard_kernels, pytorch, softmax, cudnn, flash)
}


def of(operator: str, device: str) -> list[Peer]:
    """The peers of an operator on a device, those that are missing too."""
    return [peer for peer in PEERS.values() if peer.covers(operator) and device in peer.devices]
