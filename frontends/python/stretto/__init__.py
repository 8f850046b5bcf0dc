"""stretto: a compiler for linear-recurrence attention.

import stretto
from stretto import lang as sl

@stretto.variant
def gla(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row["K"](heads="G"),
        scale=sl.Option("K**-0.5")):
    S = sl.state("K", "V")
    S = sl.decay(S, log=g, along="K")
    S = sl.write(S, k, v)
    return sl.read(S, q * scale, along="K")
"""

from . import lang, ops
from .native import Error
from .operator import debug
from .state import State
from .variant import Variant, load, variant

__all__ = ["Error", "State", "Variant", "debug", "lang", "load", "ops", "variant"]
