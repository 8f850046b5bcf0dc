"""FlashAttention-2 through PyTorch."""

from torch.nn.attention import SDPBackend

from .backend import forms_of, missing
from .softmax import beside

PEER = beside("FlashAttention-2", ("cuda",), missing, forms_of(SDPBackend.FLASH_ATTENTION))
