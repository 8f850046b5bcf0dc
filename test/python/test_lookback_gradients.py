"""Gradients of the operators that look back at tokens, on the CPU: sliding windows, LoLCATs, the relation divergence,
against autograd through independent formulas in fp64.
"""

import itertools

import pytest
import stretto
import torch
from formulas import FORMULAS, relation_kl, windows
from operator_cases import Shape, offsets
from stretto import lang as sl
from test_lookbacks import CASES, DTYPES, RELATIONS, SOME, relation, run, tokens_of
from test_operator_gradients import TOLERANCES, walks_of

ROWS = ("q", "k", "v", "q_s", "k_s", "q_t", "k_t")


# Of all that runs forwards, what differs backwards: each is three kernels to compile.
DISTINCT = ["swa of one token", "swa of few tokens", "swa of more than a chunk", "lolcats", "lolcats of few tokens",
            "lolcats of its own block", "lolcats sliding over few tokens", "lolcats affine", "lolcats t2r with biases",
            "lolcats t2r with one bias", "lolcats with a constant maximum"]  # fmt: skip
SMALL = Shape(B=1, T=6, H=2, G=1, K=4, V=3)


def windows_of(case, inputs, **keywords):
    """The result and the state of a case's formula."""
    return getattr(windows, case.operator)(**inputs, **case.options, **case.formula_options, **keywords)


def leaves_of(arguments, dtype=None):
    """The arguments that have gradients, as leaves of a graph."""
    return {
        name: x.detach().clone().to(dtype or x.dtype).requires_grad_()
        for name, x in arguments.items()
        if isinstance(x, torch.Tensor) and x.is_floating_point()
    }


def gradients(run, arguments, cotangent, dtype=None):
    leaves = leaves_of(arguments, dtype)
    output = run({**arguments, **leaves})
    cotangent = torch.as_tensor(cotangent).expand(output.shape)
    found = torch.autograd.grad(output, list(leaves.values()), cotangent.to(output), allow_unused=True)
    return {name: torch.zeros_like(x) if g is None else g for (name, x), g in zip(leaves.items(), found, strict=True)}


def check(run, formula, arguments, dtype=torch.float64):
    """Judges each gradient by its own size, or by the natural size of noise (specification, 1.4)."""
    output = formula(arguments)
    generator = torch.Generator().manual_seed(1)
    cotangent = torch.randn(output.shape, dtype=torch.float64, generator=generator).to(dtype).double()
    found = gradients(run, arguments, cotangent)
    of_rows, of_others = TOLERANCES[dtype]
    for name, value in gradients(formula, arguments, cotangent, dtype=torch.float64).items():
        deviation = (found[name].double() - value).norm().item()
        floor = 0.1 * cotangent.norm() * output.norm() / arguments[name].double().norm().clamp(min=1e-300)
        size = max(value.norm().item(), floor.item())
        assert deviation <= (of_rows if name in ROWS else of_others) * size, (name, deviation, size)


@pytest.mark.parametrize("name", DISTINCT)
@pytest.mark.parametrize("T", [0, 1, 64, 65, 130])
def test_gradients_agree_with_autograd(name, T):
    case = CASES[name]
    check(case, case.formula, case.inputs(Shape(B=2, T=T, K=16, V=8), torch.float64))


@stretto.variant
def full_attention(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), scale=sl.Option("K**-0.5")):
    "Softmax attention over all tokens so far; what is computed of the own token stands among the rest."
    first = sl.position() * 0.0
    _m, l, acc = sl.lookback(first, lambda past: (sl.dot(q * scale, past(k)), past(v)), fold="softmax")
    return acc / l


def check_full_attention(shape, dtype, device="cpu"):
    inputs = CASES["swa of few tokens"].inputs(shape, dtype)
    inputs = {name: x.to(device) for name, x in inputs.items()}

    def formula(given):
        rows = {name: x.double() for name, x in given.items()}
        return windows.swa(**rows, window=shape.T)[0]

    check(lambda given: full_attention(**given), formula, inputs, dtype)


@pytest.mark.parametrize("T", [1, 64, 130])
def test_gradients_of_full_attention(T):
    check_full_attention(Shape(B=1, T=T, K=16, V=8), torch.float64)


@SOME
def test_gradients_of_long_sequences(name):
    case = CASES[name]
    check(case, case.formula, case.inputs(Shape(B=1, T=517, K=16, V=8), torch.float64))


@pytest.mark.parametrize(
    "name", ["swa of one token", "swa of more than a chunk", "lolcats", "lolcats t2r with one bias"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gradients_of_types(name, dtype):
    case = CASES[name]
    check(case, case.formula, case.inputs(Shape(T=150), dtype), dtype)


@SOME
@pytest.mark.parametrize(("K", "V", "H", "G"), [(64, 16, 4, 4), (128, 40, 4, 1), (24, 256, 2, 2)])
def test_gradients_of_widths_and_heads(name, K, V, H, G):
    case = CASES[name]
    check(case, case.formula, case.inputs(Shape(B=1, T=140, K=K, V=V, H=H, G=G), torch.float64))


@pytest.mark.parametrize("name", DISTINCT)
def test_gradients_of_packed_sequences(name):
    case, lengths = CASES[name], [0, 17, 1, 130, 64, 0]
    inputs = case.inputs(Shape(B=1, T=sum(lengths), K=16, V=8), torch.float64)
    cotangent = torch.randn(1, sum(lengths), 4, 8, dtype=torch.float64)
    packed = gradients(lambda given: case(given, cu_seqlens=offsets(lengths)), inputs, cotangent)
    starts, parameters = offsets(lengths).tolist(), dict.fromkeys(set(packed) - {"q", "k", "v"}, 0)
    for first, last in itertools.pairwise(starts):
        alone = gradients(case, tokens_of(inputs, first, last), cotangent[:, first:last])
        for name in ("q", "k", "v"):
            torch.testing.assert_close(packed[name][:, first:last], alone[name], rtol=0, atol=1e-11)
        parameters = {name: x + alone[name] for name, x in parameters.items()}
    for name, x in parameters.items():
        torch.testing.assert_close(packed[name], x, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", [name for name in DISTINCT if name.startswith("lolcats")])
def test_gradients_of_independent_chunks(name):
    """States have walks of their own, and so have sums over all tokens; all else is found chunk by chunk."""
    case = CASES[name]
    with walks_of(2):
        inputs = case.inputs(Shape(B=1, T=1), torch.float64)
        variant = getattr(stretto.ops, case.operator).variant
        kernels = variant.explain(**inputs, **case.options, backward=True)["kernels"]
        names = [kernel["kernel"].removeprefix("lolcats_backward") for kernel in kernels]
        assert names == ["_checkpoints", "_rows", "_cotangents", "", "_sums"]
        for T in (1, 64, 65, 300):
            check(case, case.formula, case.inputs(Shape(B=2, T=T, K=16, V=8), torch.float64))
        test_gradients_of_packed_sequences(name)


@pytest.mark.parametrize("name", ["swa of few tokens", "swa of a chunk", "swa of more than a chunk"])
@pytest.mark.parametrize("cut", [1, 40, 64, 100])
def test_gradients_of_a_call_that_continues(name, cut):
    """Of its own tokens; what came before is a constant."""
    case = CASES[name]
    inputs = case.inputs(Shape(T=170, K=16, V=8), torch.float64)
    before, after = tokens_of(inputs, 0, cut), tokens_of(inputs, cut, 170)
    _, state = run(case, before)
    _, past = windows_of(case, before)
    check(
        lambda given: case(given, initial_state=state),
        lambda given: windows_of(case, given, initial_state=past)[0],
        after,
    )


def test_ties_share_the_gradient_of_the_maximum():
    """Tokens with the same key attain the largest score together; scores of small integers are exact."""
    case = CASES["lolcats of few tokens"]
    inputs = case.inputs(Shape(B=1, T=90, K=16, V=8), torch.float64)
    inputs["q"] = inputs["q"].round()
    inputs["k"] = inputs["k"].round()[:, ::3].repeat_interleave(3, 1)
    check(case, case.formula, inputs)


def test_large_scores():
    for name in ("swa of more than a chunk", "lolcats"):
        inputs = CASES[name].inputs(Shape(T=150, K=16, V=8), torch.float64)
        inputs["q"] *= 100
        check(CASES[name], CASES[name].formula, inputs)


def test_reruns_are_identical():
    case = CASES["lolcats"]
    inputs, threads = case.inputs(Shape(T=300)), torch.get_num_threads()
    cotangent = torch.randn(2, 300, 4, 32)
    try:
        torch.set_num_threads(4)
        first = gradients(case, inputs, cotangent)
        torch.set_num_threads(1)
        second = gradients(case, inputs, cotangent)
    finally:
        torch.set_num_threads(threads)
    assert all(torch.equal(first[name], second[name]) for name in first)


# ---------------------------------------------------------------------------------------------------------------------
# Declarations of one's own
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def tied(q: sl.Row["K"], k: sl.Row["K"](heads="G")):
    "Keys are values, too."
    _m, l, acc = sl.lookback(sl.position() - 8.0, lambda past: (sl.dot(q, past(k)), past(k)), fold="softmax")
    return acc / l


@stretto.variant
def beside_a_state(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), g: sl.Row["K"](heads="G")):
    "A window and a state that decays."
    S = sl.decay(sl.state("K", "V"), log=g, along="K")
    S = sl.write(S, k, v)
    _m, l, acc = sl.lookback(sl.position() - 8.0, lambda past: (sl.dot(q, past(k)), past(v)), fold="softmax")
    return acc / l + sl.read(S, q, along="K")


@pytest.mark.parametrize("T", [70, 130])
def test_gradients_of_other_declarations(T):
    inputs = CASES["swa of few tokens"].inputs(Shape(B=1, T=T, K=8, V=4), torch.float64)
    q, k = inputs["q"], inputs["k"]
    check(
        lambda given: tied(**given),
        lambda given: windows.swa(given["q"], given["k"], given["k"], 9, scale=1.0)[0],
        {"q": q, "k": k},
    )
    inputs["g"] = -torch.rand(k.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    check(
        lambda given: beside_a_state(**given),
        lambda given: (
            windows.swa(given["q"], given["k"], given["v"], 9, scale=1.0)[0]
            + FORMULAS["gla"].function(**given, scale=1.0)[0]
        ),
        inputs,
    )


# ---------------------------------------------------------------------------------------------------------------------
# Relations
# ---------------------------------------------------------------------------------------------------------------------


def relation_loss(arguments):
    return stretto.ops.relation_kl(**arguments)


def relation_formula(arguments):
    given = {name: x.double() if name in ROWS else x for name, x in arguments.items()}
    return relation_kl(**given)


@pytest.mark.parametrize("name", RELATIONS)
@pytest.mark.parametrize("T", [1, 64, 130])
def test_gradients_of_relations(name, T):
    check(relation_loss, relation_formula, relation(T=T, dtype=torch.float64, **RELATIONS[name]))


@pytest.mark.parametrize("name", RELATIONS)
@DTYPES
def test_gradients_of_relations_in_types(name, dtype):
    """The mean of a row's gradient is tiny: it is judged as that of the sum."""
    arguments = relation(dtype=dtype, **RELATIONS[name])
    heads = arguments.get("denominator_heads", arguments["q_s"].shape[2])
    tokens = arguments["mask"].sum().item() if "mask" in arguments else 2 * 130
    scaled = lambda loss: lambda given: loss(given) * tokens * heads  # noqa: E731
    check(scaled(relation_loss), scaled(relation_formula), arguments, dtype)


@pytest.mark.parametrize("causal", [True, False])
def test_relations_of_no_token(causal):
    arguments = relation(T=0, causal=causal)
    found = gradients(relation_loss, arguments, torch.tensor(1.0))
    assert all(x.shape == arguments[name].shape for name, x in found.items())


def test_the_teacher_has_no_gradient():
    found = gradients(relation_loss, relation(keys=True, dtype=torch.float64), torch.tensor(1.0))
    assert not found["q_t"].any()
    assert not found["k_t"].any()
    assert found["k_s"].any()


@pytest.mark.parametrize("causal", [True, False])
def test_relations_need_linear_memory(causal):
    """Of 4096 tokens the scores of one head alone would be 64 MiB."""
    g = torch.Generator().manual_seed(3)
    leaves = [torch.randn(1, 4096, 2, 16, generator=g).requires_grad_() for _ in range(2)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        stretto.ops.relation_kl(*leaves, causal=causal).backward()
    allocated = sum(max(event.self_cpu_memory_usage, 0) for event in profile.events())
    assert allocated < 8 * leaves[0].nbytes


# ---------------------------------------------------------------------------------------------------------------------
# PyTorch
# ---------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats of few tokens", "lolcats t2r with one bias"])
def test_gradcheck(name):
    inputs = leaves_of(CASES[name].inputs(SMALL, torch.float64))
    run = lambda *given: CASES[name](dict(zip(inputs, given, strict=True)))  # noqa: E731
    assert torch.autograd.gradcheck(run, list(inputs.values()), fast_mode=True)


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats"])
def test_operators_are_checked_by_pytorch(name):
    case = CASES[name]
    inputs = leaves_of(case.inputs(Shape(T=70, K=16, V=8), torch.float64))
    run = lambda *given: case(dict(zip(inputs, given, strict=True))).square().sum()  # noqa: E731
    rows = list(inputs.values())
    expected = torch.autograd.grad(run(*rows), rows)
    found = torch.autograd.grad(torch.compile(run, fullgraph=True)(*rows), rows)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-12)


def test_opcheck():
    inputs = tuple(leaves_of(CASES["swa of few tokens"].inputs(Shape(T=20, K=8, V=8), torch.float64)).values())
    torch.library.opcheck(torch.ops.stretto.swa.default, inputs, {"window": 9.0})


@pytest.mark.parametrize("name", ["swa of few tokens", "lolcats"])
def test_second_derivatives_are_refused(name):
    inputs = leaves_of(CASES[name].inputs(SMALL, torch.float64))
    with pytest.raises(RuntimeError, match=r"\[R14\] a second derivative is asked for"):
        torch.autograd.grad(CASES[name](inputs).sum(), inputs["q"], create_graph=True)


@stretto.variant
def mapped(
    q: sl.Row["K"],
    k: sl.Row["K"],
    v: sl.Row["V"],
    phi_q: sl.Row["2*F"],
    phi_k: sl.Row["2*F"],
    factor: sl.Param["H"],
    window=sl.Option(8),
):
    "LoLCATs with features that are given: of its parameters' gradients only that of the weight is added up."
    first = (sl.position() // window - 1.0) * window
    _m, l, acc = sl.lookback(first, lambda past: (sl.dot(q, past(k)), past(v)), fold="softmax")
    S = sl.write(sl.state("2*F", "V + 1"), phi_k, sl.append(v, 1.0))
    num, den = sl.split(sl.read(S, phi_q, along="2*F", at=first - 1.0), "V")
    gamma = sl.sigmoid(factor)
    return (gamma * acc + num) / (gamma * l + den)


def weighed_softmax(q, k, v, phi_q, phi_k, factor, window=8):
    """All pairs at once."""
    token = torch.arange(q.shape[1])
    first = (token // window - 1) * window
    is_past = token[None, :] <= token[:, None]
    is_near = (token[None, :] >= first[:, None]) & is_past
    near = torch.einsum("bthd,bshd->bhts", q, k).masked_fill(~is_near, -torch.inf)
    near = (near - near.amax(-1, keepdim=True)).exp() * factor.sigmoid()[:, None, None]
    weights = near + torch.einsum("bthd,bshd->bhts", phi_q, phi_k) * (is_past & ~is_near)
    return torch.einsum("bhts,bshd->bthd", weights / weights.sum(-1, keepdim=True), v)


@pytest.mark.parametrize("walks", [1, 2])
@pytest.mark.parametrize("T", [5, 130])
def test_sums_of_rows_that_are_kept_for_others(T, walks):
    """What is added up apart may ask for no rows but those that other walks ask for, too. The size F is told by an axis
    of twice as much."""
    generator = torch.Generator().manual_seed(0)

    def draw(width):
        return torch.randn(2, T, 2, width, dtype=torch.float64, generator=generator)

    arguments = {"q": draw(8), "k": draw(8), "v": draw(4), "phi_q": draw(6).exp(), "phi_k": draw(6).exp()}
    arguments["factor"] = torch.randn(2, dtype=torch.float64, generator=generator)
    with walks_of(walks):
        check(lambda given: mapped(**given), lambda given: weighed_softmax(**given), arguments)


def test_a_size_that_no_axis_tells_is_refused():
    rows = {name: torch.randn(1, 4, 1, 8) for name in ("q", "k", "v")}
    with pytest.raises(stretto.Error, match=r"'phi_q' has the axis '2\*F', in which a size is fixed by no argument"):
        mapped(**rows, phi_q=torch.randn(1, 4, 1, 7), phi_k=torch.randn(1, 4, 1, 7), factor=torch.zeros(1))
