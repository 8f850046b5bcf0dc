"""What all tests share: none may leave PyTorch otherwise than it was, since they run in one process."""

import os
import tempfile

import pytest
import torch

# Graphs that torch.compile has kept call operators as they were declared then.
graphs = tempfile.TemporaryDirectory(prefix="stretto-inductor-")  # until the process ends
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", graphs.name)
# Code around operators need not be fast: which vector instructions there are PyTorch's compiler finds by compiling, in
# every process and for 20 s, and that headers are compiled ahead is not worth 10 s for a few graphs.
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
os.environ.setdefault("TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS", "0")
# What whoever runs the tests has tuned is not what they test.
os.environ["STRETTO_TUNED"] = "0"


def settings_of_pytorch() -> dict[str, object]:
    return {
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        "default type": torch.get_default_dtype(),
        "deterministic algorithms": torch.are_deterministic_algorithms_enabled(),
    }


AT_THE_START = settings_of_pytorch()  # before any file of tests is imported


@pytest.fixture(autouse=True, scope="module")
def settings_are_kept():
    assert settings_of_pytorch() == AT_THE_START
    yield
    assert settings_of_pytorch() == AT_THE_START


@pytest.fixture
def no_gradients():
    """For files whose calls want none: `pytestmark = pytest.mark.usefixtures("no_gradients")`."""
    with torch.no_grad():
        yield
