"""Kernels of flash-linear-attention as baselines, where that library is installed.

It is none of our requirements: `pip install flash-linear-attention`, or a checkout of it on the path. Its kernels run
on a GPU; the first call of each tunes it, which takes up to minutes.
"""


def operators():
    """Its functions by our names of the operators, from the tensors of `inputs.make` to an output; none without it."""
    try:
        from fla.ops.delta_rule import chunk_delta_rule
        from fla.ops.gated_delta_rule import chunk_gated_delta_rule
        from fla.ops.gla import chunk_gla
        from fla.ops.gsa import chunk_gsa
        from fla.ops.linear_attn import chunk_linear_attn
        from fla.ops.simple_gla import chunk_simple_gla
    except ImportError:
        return {}
    functions = {
        "linear_attn": chunk_linear_attn,
        "simple_gla": chunk_simple_gla,
        "gla": chunk_gla,
        "gsa": chunk_gsa,
        "delta_rule": chunk_delta_rule,
        "gated_delta_rule": chunk_gated_delta_rule,
    }

    def output_of(function):
        return lambda **tensors: function(**tensors)[0]

    return {name: output_of(function) for name, function in functions.items()}
