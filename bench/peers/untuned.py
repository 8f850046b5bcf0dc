"""Peers that do not tune themselves first: what they compute, and not how fast, is asked for."""

import contextlib
import sys


@contextlib.contextmanager
def untuned():
    """Kernels of Triton that tune themselves take the first of their configurations, which spares minutes of
    compilation. Without Triton nothing changes.
    """
    if "triton" not in sys.modules:
        yield
        return
    from triton.runtime.autotuner import Autotuner

    tuned = Autotuner.run

    def run(self, *arguments, **options):
        every = self.configs
        self.configs = every[:1]
        try:
            return tuned(self, *arguments, **options)
        finally:
            self.configs = every

    Autotuner.run = run
    try:
        yield
    finally:
        Autotuner.run = tuned
