"""Random arguments and initial states for every operator, in the regimes of decay that the specification asks for.

    arguments, state = example("gla", tokens=33, regime="strong")
    o, final = FORMULAS["gla"].function(**arguments, initial_state=state)

`arguments` holds rows, parameters and options by name. Sizes are small by default; H and G are the query and the key
heads.
"""

import math

import torch

# : Regimes of decay. "zeros": a quarter of the decays is exactly 0. "mixed": every regime in one tensor, and decays of
# exactly 1. Gradients on a GPU ask for "sudden" as well: one decay in sixteen is about e^-6, all others are near 1.
REGIMES = ("ordinary", "strong", "zeros", "near_one", "mixed")

#: Operators whose decay is an input, so that a regime changes them.
WITH_DECAY = ("gla", "simple_gla", "ssd", "hgrn2", "rwkv6", "supra", "lawcat", "gated_delta_rule", "gsa", "abc")


def log_decay(shape, regime, generator):
    """Natural logarithms of decays in [0, 1]."""
    ordinary = torch.nn.functional.logsigmoid(torch.randn(shape, dtype=torch.float64, generator=generator))
    uniform = torch.rand(shape, dtype=torch.float64, generator=generator)
    strong, near_one = -50 - uniform, -1e-6 * uniform
    if regime == "ordinary":
        return ordinary
    if regime == "strong":
        return strong
    if regime == "near_one":
        return near_one
    zeros = torch.where(uniform < 0.25, -math.inf, ordinary)
    if regime == "zeros":
        return zeros
    if regime == "sudden":
        small = torch.empty(shape, dtype=torch.float64).uniform_(-7, -5, generator=generator)
        return torch.where(torch.rand(shape, generator=generator) < 1 / 16, small, small / 500)
    if regime == "mixed":
        pick = torch.randint(0, 5, shape, generator=generator)
        return torch.stack([ordinary, strong, near_one, zeros, torch.zeros(shape, dtype=torch.float64)]).gather(
            0, pick[None]
        )[0]
    raise ValueError(f"unknown regime {regime!r}")


def gate_logits(shape, regime, generator):
    """Logits z for LAWCAT, whose log decay is logsigmoid(z) / 16: -800 makes -50, infinities make 0 and 1."""
    ordinary = torch.randn(shape, dtype=torch.float64, generator=generator)
    decay = log_decay(shape, regime, generator)
    if regime == "ordinary":
        return ordinary
    return torch.where(
        decay == 0, math.inf, torch.where(decay < -1, 16 * decay, torch.where(decay > -1e-5, 20.0, ordinary))
    )


def example(
    name,
    batch=2,
    tokens=33,
    heads=4,
    key_heads=2,
    width=8,
    value_width=6,
    slots=5,
    regime="ordinary",
    with_state=True,
    seed=0,
    value_heads=None,
    **options,
):
    """Arguments of operator `name` and an initial state for it (None with `with_state=False` or where there is none).

    `value_heads` is for the delta rules (W; by default H). Options are passed through to the arguments.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    def row(count, *trailing):
        return normal(batch, tokens, count, *trailing)

    def decay(*trailing):
        return log_decay((batch, tokens, *trailing), regime, generator)

    def matrix(count, rows, columns):
        return normal(batch, count, rows, columns)

    position = torch.full((batch,), 7, dtype=torch.int64)
    query, key, value = row(heads, width), row(key_heads, width), row(key_heads, value_width)
    arguments = {"q": query, "k": key, "v": value}
    state = (matrix(key_heads, width, value_width),)

    if name == "linear_attn":
        if options.get("normalize", True):
            # Positive features keep the denominator away from 0.
            arguments.update(q=query.abs(), k=key.abs())
            state = (matrix(key_heads, width, value_width + 1).abs(),)
    elif name == "gla":
        arguments.update(g=decay(key_heads, width))
    elif name == "simple_gla":
        arguments.update(g=decay(key_heads))
    elif name == "ssd":
        rate = normal(heads)
        step = -decay(heads).clamp(min=-800) / rate.exp()
        arguments = {
            "x": row(heads, value_width),
            "dt": step,
            "A_log": rate,
            "B": row(key_heads, width),
            "C": row(key_heads, width),
            "D": normal(heads),
        }
        state = (matrix(heads, width, value_width),)
    elif name == "hgrn2":
        arguments = {"q": query, "f": decay(key_heads, width).exp(), "v": value}
    elif name == "rwkv6":
        arguments = {"r": query, "k": key, "v": value, "w": decay(key_heads, width), "u": normal(key_heads, width)}
    elif name == "supra":
        arguments.update(
            w_q=normal(heads, width, width),
            b_q=normal(heads, width),
            w_k=normal(heads, width, width),
            b_k=normal(heads, width),
            log_gamma=log_decay((heads,), regime, generator),
            weight=normal(heads, value_width),
            bias=normal(heads, value_width),
        )
        state = (matrix(heads, width, value_width), position)
    elif name == "based":
        # A state that keys have made keeps the denominator positive.
        earlier = normal(batch, key_heads, 9, width)
        square = torch.einsum("...i,...j->...ij", earlier, earlier).flatten(-2) / 2**0.5
        features = torch.cat([torch.ones_like(earlier[..., :1]), earlier, square], -1)
        values = torch.cat([normal(batch, key_heads, 9, value_width), torch.ones_like(earlier[..., :1])], -1)
        state = (features.mT @ values,)
    elif name == "lawcat":
        arguments.update(
            z=gate_logits((batch, tokens, key_heads, width), regime, generator),
            conv_q=normal(heads, width, 4),
            conv_k=normal(key_heads, width, 4),
            w_phi=normal(heads, width, width // 2) / width**0.5,
        )
        state = (
            torch.cat([matrix(heads, width, value_width), matrix(heads, width, 1).abs()], -1),
            normal(batch, 3, heads, width),
            normal(batch, 3, key_heads, width),
        )
    elif name in ("delta_rule", "gated_delta_rule"):
        value_heads = heads if value_heads is None else value_heads
        arguments = dict(
            q=query,
            k=torch.nn.functional.normalize(key, dim=-1),
            v=row(value_heads, value_width),
            **({"g": decay(value_heads)} if name == "gated_delta_rule" else {}),
            beta=row(value_heads).sigmoid(),
        )
        state = (matrix(value_heads, width, value_width),)
    elif name == "gsa":
        arguments.update(s=row(key_heads, slots).sigmoid(), g=decay(key_heads, slots))
        state = (matrix(key_heads, slots, width), matrix(key_heads, slots, value_width))
    elif name == "abc":
        size = {"ordinary": 1, "near_one": 1e-6, "strong": 50, "zeros": 800, "mixed": 20}[regime]
        arguments.update(s=size * row(key_heads, slots))
        state = (
            matrix(key_heads, slots, width),
            matrix(key_heads, slots, value_width),
            normal(batch, key_heads, slots),
        )
    elif name == "bla":
        slots = 2 * options["modes"] + 1
        state = (matrix(key_heads, slots, width), matrix(key_heads, slots, value_width), position)
    elif name == "swa":
        cached = min(3, options["window"])
        state = (normal(batch, cached, key_heads, width), normal(batch, cached, key_heads, value_width))
    elif name == "lolcats":
        t2r = options.get("feature") == "t2r"
        features = width if t2r else width // 2
        bias = options.pop("bias", None)  # None, "vector" or "scalar"
        shape = {None: None, "vector": (heads, features), "scalar": (heads, 1)}[bias]
        arguments.update(
            w_q=normal(heads, width, features),
            w_k=normal(heads, width, features),
            factor=normal(heads),
            **({} if shape is None else {"b_q": normal(*shape), "b_k": normal(*shape)}),
        )
        window, last = options.get("window", 64), 6
        first = (
            last - window + 1
            if options.get("mode") == "sliding"
            else (last // window - options.get("prev_blocks", 1)) * window
        )
        cached = last + 1 - max(0, first)
        linear = matrix(heads, width, value_width + 1)
        linear[..., -1] = linear[..., -1].abs()
        # Nothing has left the window as long as it starts at the first token.
        state = (
            linear if first > 0 else torch.zeros_like(linear),
            normal(batch, cached, key_heads, width),
            normal(batch, cached, key_heads, value_width),
            position,
        )
    elif name == "relation_kl":
        arguments = {"q_s": query, "q_t": row(heads, value_width)}
        if options.pop("keys", False):
            arguments.update(k_s=key, k_t=row(key_heads, value_width))
        if options.pop("masked", False):
            arguments.update(mask=torch.rand(batch, tokens, generator=generator) < 0.7)
        state = None
    elif name != "retention":
        raise ValueError(f"no example for {name!r}")
    return {**arguments, **options}, state if with_state else None
