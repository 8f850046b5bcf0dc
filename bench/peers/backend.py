"""Softmax attention by one of the back ends of PyTorch's scaled_dot_product_attention."""

import baselines
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


def missing() -> str | None:
    return None if torch.cuda.is_available() else "PyTorch sees no GPU"


def forms_of(backend: SDPBackend):
    def attention(q, k, v):
        with sdpa_kernel(backend):
            return baselines.softmax_attn(q, k, v)

    return lambda **_: {"": attention}
