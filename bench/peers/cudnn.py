"""cuDNN's attention through PyTorch."""

from torch.nn.attention import SDPBackend

from .backend import forms_of, missing
from .softmax import beside

PEER = beside("cuDNN attention", ("cuda",), missing, forms_of(SDPBackend.CUDNN_ATTENTION))
