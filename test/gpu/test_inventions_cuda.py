"""Variants that no library ships, on a CUDA device: those of test/python/test_inventions.py, by the same references."""

import pytest
import torch
from test_inventions import INVENTIONS, Invention, check_backward, check_decode, check_forward
from test_operator_gradients import walks_of
from test_segments import segments

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

DEVICE = "cuda"
DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
WIDTHS = pytest.mark.parametrize(("K", "V"), [(16, 24), (64, 64), (128, 128)])


@pytest.fixture(params=INVENTIONS)
def invention(request) -> Invention:
    return INVENTIONS[request.param]


@DTYPES
@WIDTHS
@pytest.mark.parametrize("T", [1, 64, 150])
def test_forward(invention, T, dtype, K, V):
    check_forward(invention, T, dtype, device=DEVICE, K=K, V=V)


@DTYPES
@WIDTHS
@pytest.mark.parametrize("walks", [0, 1, 2])
def test_backward(invention, walks, dtype, K, V):
    with walks_of(walks):
        check_backward(invention, 150, dtype, device=DEVICE, K=K, V=V)


@DTYPES
def test_segments_side_by_side(invention, dtype):
    """Where a declaration has them; others are walked as ever."""
    with segments(3):
        check_forward(invention, 300, dtype, device=DEVICE)
        check_backward(invention, 300, dtype, device=DEVICE)


@DTYPES
def test_decode(invention, dtype):
    check_decode(invention, dtype, device=DEVICE)
