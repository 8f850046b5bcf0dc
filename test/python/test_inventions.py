"""Variants that no library ships, declared here: each runs forward, backward and token by token from its declaration.

The references are loops over tokens in plain torch, in fp64, and autograd through them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import stretto
import torch
from operator_cases import BOUNDS, error, log_decay, offsets, rows
from stretto import lang as sl
from test_operator_gradients import TOLERANCES, walks_of
from torch.nn.functional import logsigmoid, normalize

# ---------------------------------------------------------------------------------------------------------------------
# The declarations
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def two_timescales(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row["K"](heads="G"),
                   mix: sl.Row[()], slow: sl.Param["G"]):  # fmt: skip
    """A quick state that forgets each channel at its own rate, a slow one that has one rate; each token mixes both."""
    quick = sl.write(sl.decay(sl.state("K", "V", name="quick"), log=g, along="K"), k, v)
    long = sl.write(sl.decay(sl.state("K", "V", name="long"), log=sl.logsigmoid(slow)), k, v)
    share = sl.sigmoid(mix)
    return share * sl.read(quick, q, along="K") + (1 - share) * sl.read(long, q, along="K")


@stretto.variant
def forgetting_values(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), f: sl.Row["V"](heads="G"),
                      weight: sl.Param["H", "V"], eps=sl.Option(1e-5)):  # fmt: skip
    """Channels of the values are forgotten, by factors that may be 0; the output is normalised by its own size."""
    S = sl.write(sl.decay(sl.state("K", "V"), factor=f, along="V"), sl.square(sl.relu(k)), v)
    o = sl.read(S, sl.square(sl.relu(q)), along="K")
    return o / sl.sqrt(sl.mean(sl.square(o)) + eps) * weight


@stretto.variant
def convolved_delta(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], beta: sl.Row[()],
                    taps: sl.Param["H", "K", 3], eps=sl.Option(1e-6)):  # fmt: skip
    """A delta rule with a gate for each channel, whose keys pass a short convolution and are scaled to length 1."""
    x = sl.conv(k, taps)
    key = x / sl.sqrt(sl.sum(sl.square(x)) + eps)
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, key, beta * (v - sl.read(S, key, along="K")))
    return sl.read(S, q, along="K")


@stretto.variant
def channel_delta(q: sl.Row["K"], k: sl.Row["K"], v: sl.Row["V"], g: sl.Row["K"], beta: sl.Row[()]):
    """A gated delta rule whose gate has a number for each channel."""
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, k, beta * (v - sl.read(S, k, along="K")))
    return sl.read(S, q, along="K")


@stretto.variant
def weighed_average(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), s: sl.Row[()](heads="G")):
    """The average of all products k^T v so far, each weighed by e^s: a softmax over the past that no token repeats."""
    total, before = sl.scan(s, "logaddexp"), sl.scan(s, "logaddexp", exclusive=True)
    S = sl.decay(sl.state("K", "V"), log=before - total)
    return sl.read(sl.write(S, sl.exp(s - total) * k, v), q, along="K")


@stretto.variant
def there_and_back(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row[()](heads="G"),
                   scale=sl.Option("K**-0.5")):  # fmt: skip
    """A memory is read along its keys, and what it gives is read along its values: the query that it remembers."""
    S = sl.write(sl.decay(sl.state("K", "V"), log=g), k, v)
    return sl.read(S, sl.tanh(sl.read(S, q * scale, along="K")), along="V")


@stretto.variant
def rotating_slots(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), s: sl.Row["N"](heads="G"),
                   theta=sl.Option(100.0)):  # fmt: skip
    """Slots that share their softmaxes with the slots written: keys are rotated by their position, writing is a softmax
    over the slots, and what is written is forgotten elsewhere.
    """
    half = q.width // 2

    def rotate(x):
        cos = sl.table(lambda t, i: sl.cos(t * theta ** (-sl.fmod(i, half) / half)), "K")
        sin = sl.table(lambda t, i: sl.sin(t * theta ** (-sl.fmod(i, half) / half)), "K")
        first, second = sl.split(x, half)
        return x * cos + sl.concat(-second, first) * sin

    written = sl.softmax(s)
    keys = sl.write(sl.decay(sl.state("N", "K"), factor=1 - written, along="N"), written, rotate(k))
    values = sl.write(sl.decay(sl.state("N", "V"), factor=1 - written, along="N"), written, v)
    return sl.read(values, sl.softmax(sl.read(keys, rotate(q), along="K")), along="N")


@stretto.variant
def surprise(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row[()](heads="G")):
    """Two layers of memory: the second learns what the first did not foresee, with the token before as its key."""
    first = sl.state("K", "V", name="first")
    unforeseen = v - sl.read(first, k, along="K") * 0.125
    first = sl.write(sl.decay(first, log=g), k * 0.25, v)
    second = sl.write(sl.decay(sl.state("K", "V", name="second"), log=g), sl.delay(k), unforeseen)
    return sl.read(first, q, along="K") + sl.read(second, q, along="K")


@stretto.variant
def convolved_projections(q: sl.Row["D"], k: sl.Row["D"], v: sl.Row["V"], f: sl.Row[()],
                          w: sl.Param["H", "D", 12], taps: sl.Param["H", 12, 3]):  # fmt: skip
    """Queries and keys are projected by one matrix, and the projections of keys pass a short convolution."""
    S = sl.decay(sl.state(12, "V"), log=sl.logsigmoid(f))
    S = sl.write(S, sl.conv(sl.matvec(k, w), taps), v)
    return sl.read(S, sl.tanh(sl.matvec(q, w)), along=12)


# ---------------------------------------------------------------------------------------------------------------------
# The references: what one token does, again, in the words of torch
# ---------------------------------------------------------------------------------------------------------------------


def repeated(x, q):
    """The heads of a row as many as the queries have."""
    return x.repeat_interleave(q.shape[2] // x.shape[2], 2)


def product(k, v):
    return k[..., :, None] * v[..., None, :]


def along_keys(S, row):
    return torch.einsum("bhk,bhkv->bhv", row, S)


def along_values(S, row):
    return torch.einsum("bhv,bhkv->bhk", row, S)


def loop(step, q, *others):
    """The outputs of `step(memory, t, q_t, ...)`, which changes `memory`."""
    memory = {}
    tokens = [step(memory, t, *(x[:, t] for x in (q, *others))) for t in range(q.shape[1])]
    return torch.stack(tokens, 1)


def two_timescales_reference(q, k, v, g, mix, slow):
    k, v, g = (repeated(x, q) for x in (k, v, g))
    rate = torch.sigmoid(slow).repeat_interleave(q.shape[2] // len(slow))[None, :, None, None]

    def step(memory, t, q, k, v, g, mix):
        memory["quick"] = memory.get("quick", 0) * g.exp()[..., None] + product(k, v)
        memory["long"] = memory.get("long", 0) * rate + product(k, v)
        share = torch.sigmoid(mix)[..., None]
        return share * along_keys(memory["quick"], q) + (1 - share) * along_keys(memory["long"], q)

    return loop(step, q, k, v, g, mix)


def forgetting_values_reference(q, k, v, f, weight):
    k, v, f = (repeated(x, q) for x in (k, v, f))

    def step(memory, t, q, k, v, f):
        memory["S"] = memory.get("S", 0) * f[..., None, :] + product(k.relu() ** 2, v)
        o = along_keys(memory["S"], q.relu() ** 2)
        return o / (o.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight

    return loop(step, q, k, v, f)


def channel_delta_reference(q, k, v, g, beta):
    def step(memory, t, q, k, v, g, beta):
        S = memory.get("S", torch.zeros(*k.shape, v.shape[-1], dtype=v.dtype)) * g.exp()[..., None]
        memory["S"] = S + product(k, beta[..., None] * (v - along_keys(S, k)))
        return along_keys(memory["S"], q)

    return loop(step, q, k, v, g, beta)


def convolved_delta_reference(q, k, v, g, beta, taps):
    padded = torch.nn.functional.pad(k, (0, 0, 0, 0, 2, 0))
    x = sum(padded[:, i : i + k.shape[1]] * taps[..., i] for i in range(3))
    key = x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt()
    return channel_delta_reference(q, key, v, g, beta)


def convolved_projections_reference(q, k, v, f, w, taps):
    x = torch.einsum("bthd,hdf->bthf", k, w)
    padded = torch.nn.functional.pad(x, (0, 0, 0, 0, 2, 0))
    key = sum(padded[:, i : i + k.shape[1]] * taps[..., i] for i in range(3))

    def step(memory, t, q, k, v, f):
        memory["S"] = memory.get("S", 0) * torch.sigmoid(f)[..., None, None] + product(k, v)
        return along_keys(memory["S"], q)

    return loop(step, torch.einsum("bthd,hdf->bthf", q, w).tanh(), key, v, f)


def weighed_average_reference(q, k, v, s):
    """All pairs at once, as a softmax over the past."""
    k, v, s = (repeated(x, q) for x in (k, v, s))
    past = torch.ones(q.shape[1], q.shape[1], dtype=torch.bool).tril()
    weights = s.transpose(1, 2)[:, :, None, :].masked_fill(~past, -math.inf).softmax(-1)
    return torch.einsum("bhij,bihd,bjhd,bjhv->bihv", weights, q, k, v)


def there_and_back_reference(q, k, v, g):
    k, v, g = (repeated(x, q) for x in (k, v, g))

    def step(memory, t, q, k, v, g):
        memory["S"] = memory.get("S", 0) * g.exp()[..., None, None] + product(k, v)
        return along_values(memory["S"], along_keys(memory["S"], q / math.sqrt(q.shape[-1])).tanh())

    return loop(step, q, k, v, g)


def rotating_slots_reference(q, k, v, s):
    def rotate(x):
        half = x.shape[-1] // 2
        angles = torch.arange(x.shape[1])[:, None] * 100.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        turned = torch.complex(x[..., :half], x[..., half:]) * torch.polar(torch.ones_like(angles), angles)[:, None]
        return torch.cat([turned.real, turned.imag], -1)

    k, v, s = repeated(rotate(k), q), repeated(v, q), repeated(s.softmax(-1), q)

    def step(memory, t, q, k, v, s):
        for name, row in (("keys", k), ("values", v)):
            memory[name] = memory.get(name, 0) * (1 - s)[..., None] + product(s, row)
        return along_keys(memory["values"], along_values(memory["keys"], q).softmax(-1))

    return loop(step, rotate(q), k, v, s)


def surprise_reference(q, k, v, g):
    k, v, g = (repeated(x, q) for x in (k, v, g))
    delayed = torch.nn.functional.pad(k, (0, 0, 0, 0, 1, 0))[:, :-1]

    def step(memory, t, q, k, v, g, delayed):
        first = memory.get("first", torch.zeros(*k.shape, v.shape[-1], dtype=v.dtype))
        unforeseen = v - along_keys(first, k) / 8
        memory["first"] = first * g.exp()[..., None, None] + product(k / 4, v)
        memory["second"] = memory.get("second", 0) * g.exp()[..., None, None] + product(delayed, unforeseen)
        return along_keys(memory["first"], q) + along_keys(memory["second"], q)

    return loop(step, q, k, v, g, delayed)


# ---------------------------------------------------------------------------------------------------------------------
# Inputs
# ---------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Invention:
    variant: stretto.Variant
    reference: Callable
    # What it takes besides q, k and v: for batch, time, heads, key heads, key size, value size.
    others: Callable[..., dict[str, torch.Tensor]]
    shares_heads: bool = True

    def inputs(self, T, B=2, H=4, G=2, K=16, V=24, dtype=torch.float64, device="cpu"):
        g = torch.Generator().manual_seed(T)
        G = G if self.shares_heads else H
        made = {"q": rows(g, B, T, H, K), "k": rows(g, B, T, G, K), "v": rows(g, B, T, G, V)}
        made |= self.others(g, B, T, H, G, K, V)
        return {name: x.to(dtype).to(device) for name, x in made.items()}

    def expected(self, inputs):
        return self.reference(**{name: x.cpu().double() for name, x in inputs.items()})


def with_zeros(g, *shape):
    """Factors between 0 and 1, some of which are 0."""
    f = torch.sigmoid(rows(g, *shape) + 1)
    return torch.where(torch.rand(shape, generator=g) < 0.02, 0.0, f)


INVENTIONS = {
    "two_timescales": Invention(
        two_timescales,
        two_timescales_reference,
        lambda g, B, T, H, G, K, V: {
            "g": log_decay(g, B, T, G, K),
            "mix": rows(g, B, T, H),
            "slow": rows(g, G) + 4,
        },
    ),
    "forgetting_values": Invention(
        forgetting_values,
        forgetting_values_reference,
        lambda g, B, T, H, G, K, V: {"f": with_zeros(g, B, T, G, V), "weight": rows(g, H, V)},
    ),
    "convolved_delta": Invention(
        convolved_delta,
        convolved_delta_reference,
        lambda g, B, T, H, G, K, V: {
            "g": log_decay(g, B, T, H, K),
            "beta": torch.sigmoid(rows(g, B, T, H)),
            "taps": rows(g, H, K, 3),
        },
        shares_heads=False,
    ),
    "convolved_projections": Invention(
        convolved_projections,
        convolved_projections_reference,
        lambda g, B, T, H, G, K, V: {
            "f": rows(g, B, T, H) + 2,
            "w": rows(g, H, K, 12) / math.sqrt(K),
            "taps": rows(g, H, 12, 3),
        },
        shares_heads=False,
    ),
    "channel_delta": Invention(
        channel_delta,
        channel_delta_reference,
        lambda g, B, T, H, G, K, V: {
            "k": normalize(rows(g, B, T, H, K), dim=-1),
            "g": log_decay(g, B, T, H, K),
            "beta": torch.sigmoid(rows(g, B, T, H)),
        },
        shares_heads=False,
    ),
    "weighed_average": Invention(
        weighed_average, weighed_average_reference, lambda g, B, T, H, G, K, V: {"s": 3 * rows(g, B, T, G)}
    ),
    "there_and_back": Invention(
        there_and_back, there_and_back_reference, lambda g, B, T, H, G, K, V: {"g": logsigmoid(rows(g, B, T, G))}
    ),
    "rotating_slots": Invention(
        rotating_slots, rotating_slots_reference, lambda g, B, T, H, G, K, V: {"s": rows(g, B, T, G, 10)}
    ),
    "surprise": Invention(surprise, surprise_reference, lambda g, B, T, H, G, K, V: {"g": log_decay(g, B, T, G)}),
}


@pytest.fixture(params=INVENTIONS)
def invention(request) -> Invention:
    return INVENTIONS[request.param]


# ---------------------------------------------------------------------------------------------------------------------
# Forward, backward, decode
# ---------------------------------------------------------------------------------------------------------------------


def check_forward(invention, T, dtype, **settings):
    inputs = invention.inputs(T, dtype=dtype, **settings)
    with torch.no_grad():
        o = invention.variant(**inputs)
    assert o.dtype == dtype
    assert error(o, invention.expected(inputs)) <= BOUNDS[dtype][0]


def check_backward(invention, T, dtype=torch.float64, **settings):
    inputs = {name: x.requires_grad_() for name, x in invention.inputs(T, dtype=dtype, **settings).items()}
    exact = {name: x.detach().cpu().double().requires_grad_() for name, x in inputs.items()}
    o, expected = invention.variant(**inputs), invention.expected(exact)
    d_o = torch.randn(o.shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found = torch.autograd.grad(o, list(inputs.values()), d_o.to(o.device))
    wanted = torch.autograd.grad(expected, list(exact.values()), d_o.double(), allow_unused=True)
    of_rows, of_others = TOLERANCES[dtype]
    for name, x, y in zip(inputs, found, wanted, strict=True):
        y = torch.zeros_like(exact[name]) if y is None else y
        deviation = (x.cpu().double() - y).norm().item()
        tolerance = of_rows if name in ("q", "k", "v") else of_others
        assert deviation <= tolerance * max(y.norm().item(), 1.0), (name, deviation, y.norm().item())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("T", [1, 64, 150])
def test_forward(invention, T, dtype):
    check_forward(invention, T, dtype)


@pytest.mark.parametrize("T", [1, 64, 100])
def test_backward(invention, T):
    check_backward(invention, T)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("walks", [1, 2])
def test_backward_in_types(invention, walks, dtype):
    with walks_of(walks):
        check_backward(invention, 100, dtype)


@pytest.mark.parametrize("backward", [False, True])
@pytest.mark.parametrize("dtype", ["fp32", "bf16", "fp16"])
@pytest.mark.parametrize("width", [16, 64])
def test_kernels_for_a_gpu(invention, width, dtype, backward):
    """They are compiled here; test/gpu runs them."""
    inputs = invention.inputs(1, K=width, V=width)
    sizes = {"D": width} if invention is INVENTIONS["convolved_projections"] else {"K": width}
    slots = {"N": inputs["s"].shape[-1]} if invention is INVENTIONS["rotating_slots"] else {}
    lowered = invention.variant.lower("llvm", dtype, "sm_90a", backward=backward, V=width, **sizes, **slots)
    assert "nvvm.kernel" in lowered


def check_decode(invention, dtype=torch.float64, **settings):
    T, cut = 70, 66
    inputs = invention.inputs(T, dtype=dtype, **settings)
    timed = [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == T]
    with torch.no_grad():
        _, state = invention.variant(
            **{**inputs, **{name: inputs[name][:, :cut] for name in timed}}, output_final_state=True
        )
        for t in range(cut, T):
            o, _ = invention.variant.step(**{**inputs, **{name: inputs[name][:, t] for name in timed}}, state=state)
            assert error(o, invention.expected(inputs)[:, t]) <= BOUNDS[dtype][0]


def test_decode(invention):
    check_decode(invention)


def test_packed_sequences(invention):
    inputs = invention.inputs(100, B=1)
    timed = [name for name, x in inputs.items() if x.dim() >= 3 and x.shape[1] == 100]
    with torch.no_grad():
        o = invention.variant(**inputs, cu_seqlens=offsets([30, 0, 70]))
    for start, end in ((0, 30), (30, 100)):
        alone = invention.expected({**inputs, **{name: inputs[name][:, start:end] for name in timed}})
        assert error(o[:, start:end], alone) <= BOUNDS[torch.float64][0]
