"""Gradients on a CUDA device whose sequences are divided into segments that are walked side by side."""

import pytest
import torch
from formulas.examples import WITH_DECAY, example
from test_gradient_segments import SIDE_BY_SIDE, WALKS, packed_gradients
from test_operator_gradients import FIRST, WIDE, bytes_taken, check, explanation, most_bytes, segments_of, walks_of
from test_segments import segments

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

DEVICE = "cuda"
ON_DEVICE = [name for name in SIDE_BY_SIDE if name != "based"]


@pytest.mark.parametrize(("name", "walks"), [(name, walks) for name, walks in WALKS if name in ON_DEVICE])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_gradients_agree_with_autograd(name, walks, dtype):
    sizes = FIRST[name] | WIDE.get(name, {})
    with walks_of(walks):
        for count in (2, 1000):
            with segments(count):
                check(name, *example(name, tokens=330, **sizes), dtype, DEVICE)
                assert "why_serial" not in explanation(name, 330, dtype, DEVICE, **sizes)[0]


# Where SUPRA forgets everything, the gradient of its norm is what rounds.
@pytest.mark.parametrize("name", sorted({*WITH_DECAY} & {*ON_DEVICE} - {"supra"}))
@pytest.mark.parametrize("regime", ["strong", "zeros", "mixed"])
def test_regimes_of_decay(name, regime):
    with segments(1000):
        check(
            name, *example(name, tokens=200, regime=regime, **FIRST[name] | WIDE.get(name, {})), torch.float32, DEVICE
        )


@pytest.mark.parametrize("name", ["linear_attn", "gla", "ssd", "gsa", "rwkv6", "lolcats"])
def test_packed_sequences(name):
    for lengths in ([0, 17, 1, 0, 64, 433, 0], [900, 1, 1], [140] * 6):
        whole = packed_gradients(name, lengths, torch.float32, DEVICE)
        for chunks in (0, 1, 3):
            with segments(1000), segments_of(chunks):
                found = packed_gradients(name, lengths, torch.float32, DEVICE)
            for key, expected in whole.items():
                assert (found[key] - expected).norm() <= 1e-5 * expected.norm().clamp(min=1), (key, lengths, chunks)


@pytest.mark.parametrize("name", ON_DEVICE)
def test_few_heads_take_them(name):
    """Without being told to, and no more than three inputs beside the rows that are kept."""
    sizes = {} if name == "bla" else {"width": 64, "value_width": 64}
    found, size = explanation(name, 16384, torch.bfloat16, DEVICE, **sizes)
    assert found["chosen_by"] == "model"
    assert found["side_by_side"] > 1, found.get("why_serial")
    assert bytes_taken(found) <= most_bytes(found, size, DEVICE), found
