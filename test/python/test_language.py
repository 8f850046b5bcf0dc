"""What the language infers, and the errors it reports at the user's own line."""

import inspect
import math
import re

import pytest
import stretto
import torch
from stretto import lang as sl


def line_of(function, marker):
    """The line of this file in `function` that holds `marker`."""
    lines, first = inspect.getsourcelines(function)
    (offset,) = [index for index, line in enumerate(lines) if marker in line]
    return f"{__file__}:{first + offset}:"


def refused(function, message):
    """Declaring `function` fails with `message` at its line that ends in `# here`."""
    with pytest.raises(stretto.Error, match=re.escape(message)) as caught:
        stretto.variant(function)
    assert line_of(function, "# here") in str(caught.value)


# ---------------------------------------------------------------------------------------------------------------------
# Inference
# ---------------------------------------------------------------------------------------------------------------------


def test_state_has_the_finest_heads_of_what_changes_it():
    @stretto.variant
    def f(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="W"), g: sl.Row[()](heads=1)):
        S = sl.decay(sl.state("K", "V"), log=g)
        return sl.read(sl.write(S, k, v), q, along="K")

    assert 'stretto.state "S" : !state_K_by_V_per_W' in f.mlir()
    assert "-> !V_per_H_and_W" in f.mlir()


def test_state_heads_follow_reads_of_other_states():
    """T is written with a row that has its heads from S, which gets them only later, from a decay by q's heads."""

    @stretto.variant
    def f(q: sl.Row["K"], k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G")):
        S, T = sl.state("K", "V", name="S"), sl.state("K", "V", name="T")
        T = sl.write(T, k, sl.read(S, k, along="K"))
        S = sl.write(sl.decay(S, log=-sl.mean(q * q)), k, v)
        return sl.read(T, k, along="K")

    assert 'stretto.state "S" : !state_K_by_V\n' in f.mlir()
    assert 'stretto.state "T" : !state_K_by_V\n' in f.mlir()


def test_state_of_its_own_reads():
    @stretto.variant
    def f(k: sl.Row["K"](heads="G"), v: sl.Row["V"](heads="G"), b: sl.Row[()]):
        S = sl.state("K", "V")
        error = v - sl.read(S, k, along="K")
        S = sl.write(sl.write(S, k, error), k, b * error)
        return sl.read(S, k, along="K")

    assert 'stretto.state "S" : !state_K_by_V\n' in f.mlir()


def test_sizes_are_symbolic():
    @stretto.variant
    def f(x: sl.Row["2*D"]):
        half = x.width // 2
        a, b = sl.split(x, half)
        n = sl.axis(N=a.width)
        S = sl.write(sl.state("N", "D + 1"), a, sl.append(b, n))
        return sl.read(S, a, along="N")

    assert '!stretto.state<D, "D + 1">' in f.mlir()
    assert 'stretto.size "D" : !number' in f.mlir()


def test_size_bound_to_options():
    @stretto.variant
    def f(x: sl.Row["N"], modes=sl.Option(4)):
        n = sl.axis(N=2 * modes + 1)
        return x / n

    assert 'axes(N = "2*modes + 1")' in f.mlir()
    assert "tensor<7xf64" in f.lower("stretto", modes=3)


def test_parameter_axis_of_size_one():
    @stretto.variant
    def f(x: sl.Row["F"], b: sl.Param["H", "E"]):
        return x + b

    x, b = torch.ones(1, 2, 3, 4), torch.arange(3.0).unsqueeze(-1)
    assert torch.equal(f.reference(x, b), x.double() + b)
    assert torch.equal(f.reference(x, b.expand(3, 4)), x.double() + b)
    with pytest.raises(stretto.Error, match=r"'E' of size 2 over 'F' of size 4"):
        f.reference(x, b.expand(3, 2))


def test_numeric_options_share_a_program():
    @stretto.variant
    def f(x: sl.Row["K"], scale=sl.Option("K**-0.5"), shift=sl.Option(1)):
        return x * scale + shift

    x = torch.ones(1, 1, 1, 4)
    assert f.reference(x).tolist() == [[[[1.5] * 4]]]
    assert f.reference(x, scale="K", shift=0.25).tolist() == [[[[4.25] * 4]]]
    assert f.mlir().count("stretto.option") == 2
    assert "stretto.constant 2.0" in f.mlir(shift=2)


def test_conditions_and_words_choose_the_program():
    @stretto.variant
    def f(x: sl.Row["K"], twice=sl.Option(False), sign=sl.Option("plus", choices=("plus", "minus"))):
        y = x + x if twice else x
        return y if sign == "plus" else -y

    x = torch.ones(1, 1, 1, 1)
    assert f.reference(x, twice=True, sign="minus").item() == -2
    assert "arith" not in f.mlir() and "negf" in f.mlir(sign="minus")


def test_vocabulary():
    """Every function of the language, against torch."""

    @stretto.variant
    def f(x: sl.Row["K"], y: sl.Row["K"], w: sl.Param["H", "K", "F"]):
        inside = (x > 0.0) & ~(y >= 1.0) | (x == y) | (x != x) | (x < -9.0) | (x <= -9.0)
        z = sl.where(inside, sl.tanh(x) + sl.sin(y), sl.cos(x) - sl.sigmoid(y))
        z = z * sl.exp(-sl.absolute(x)) + sl.log(sl.square(x) + 1.0) + sl.log1p(sl.relu(y)) - sl.sqrt(x**2)
        z = sl.maximum(sl.minimum(z, 2.0), -2.0) + sl.fmod(x, 0.5) + sl.floor(x) + sl.round(y) + x // 0.5
        z = z / (1.0 + 2.0**y) + (x * x) ** 0.5 + (x * x) ** 1.5 + (3.0 - x) + abs(x) + (+x)
        z = z + sl.dot(x, y) + sl.sum(x) + sl.mean(x) + sl.max(y) + sl.inner(sl.outer(x, y), y, "K")
        z = z + sl.inner(sl.outer(x, y), x, "K", transpose=True) + sl.softmax(x) + sl.logsigmoid(y)
        z = z + sl.matvec(sl.matvec(x, w), w, transpose=True) + sl.stop_gradient(x) + sl.delay(x, 2)
        return z + sl.scan(x, log=-sl.absolute(y)) + sl.scan(x, "max", exclusive=True) * 0.0 * sl.position()

    torch.manual_seed(0)
    x, y, w = torch.randn(1, 5, 2, 3).double(), torch.randn(1, 5, 2, 3).double(), torch.randn(2, 3, 4).double()
    # The maximum before the first token is -inf, which a product with 0 does not hide.
    assert f.reference(x, y, w)[:, 0].isnan().all()

    inside = (x > 0) & ~(y >= 1)
    z = torch.where(inside, x.tanh() + y.sin(), x.cos() - y.sigmoid())
    z = z * (-x.abs()).exp() + (x * x + 1).log() + y.relu().log1p() - x.abs()
    z = z.clamp(-2, 2) + x.fmod(0.5) + x.floor() + y.round() + torch.floor(x / 0.5)
    z = z / (1 + 2**y) + x.abs() + x.abs() ** 3 + (3 - x) + x.abs() + x
    z = z + (x * y).sum(-1, True) + x.sum(-1, True) + x.mean(-1, True) + y.amax(-1, True) + x * (y * y).sum(-1, True)
    z = z + y * (x * x).sum(-1, True) + x.softmax(-1) + torch.nn.functional.logsigmoid(y)
    z = z + torch.einsum("bthk,hkf,hlf->bthl", x, w, w) + x + torch.cat([torch.zeros_like(x[:, :2]), x[:, :-2]], 1)
    carried = [x[:, 0]]
    for t in range(1, 5):
        carried.append(carried[-1] * (-y[:, t].abs()).exp() + x[:, t])
    z = z + torch.stack(carried, 1)
    assert torch.allclose(f.reference(x, y, w)[:, 1:], z[:, 1:], rtol=1e-12, atol=1e-12)


def test_source_is_an_attribute_of_the_argument():
    @stretto.variant
    def f(x: sl.Row["K"](heads="G", source=sl.projection(rank=32, bias=True))):
        return x

    assert '%x: !K_per_G {stretto.source = {bias = true, kind = "projection", rank = 32 : i64}}' in f.mlir()


def test_text_is_loaded_again(tmp_path):
    @stretto.variant
    def f(x: sl.Row["K"], y: sl.Row["K"] = None, gain=sl.Option(2.0)):
        "Twice a row."
        return x * gain if y is None else x * gain + y

    path = tmp_path / "f.mlir"
    for settings in ({}, {"y": True}):
        path.write_text(f.mlir(**settings))
        again = stretto.load(path)
        assert again.mlir() == f.mlir(**settings)
        assert again.__doc__ == f.__doc__ == "Twice a row."


# ---------------------------------------------------------------------------------------------------------------------
# Errors of declarations
# ---------------------------------------------------------------------------------------------------------------------


def test_axes_differ():
    def f(q: sl.Row["K"], v: sl.Row["V"](heads="G")):
        return q + v  # here

    refused(f, "the axes differ: 'q', a row on the axis 'K' of the heads 'H', and 'v', a row on the axis 'V'")


def test_wrong_axis_of_a_read():
    def f(q: sl.Row["K"], v: sl.Row["V"]):
        S = sl.write(sl.state("K", "V"), q, v)
        return sl.read(S, v, along="K")  # here

    refused(f, "[read_c2] the row's axis is 'V', expected 'K'")


def test_wrong_axis_of_a_write():
    def f(q: sl.Row["K"], v: sl.Row["V"]):
        S = sl.state("K", "V")
        S = sl.write(S, v, q)  # here
        return sl.read(S, q, along="K")

    refused(f, "[write_c1] the first row's axis is 'V', expected 'K'")


def test_unknown_axis_of_a_decay():
    def f(q: sl.Row["K"], v: sl.Row["V"]):
        S = sl.state("K", "V")
        S = sl.decay(S, log=q, along="N")  # here
        return sl.read(S, q, along="K")

    refused(f, "decays along 'N', the axes of the state are 'K' and 'V'")


def test_state_changed_twice():
    def f(q: sl.Row["K"], v: sl.Row["V"]):
        S = sl.state("K", "V")
        sl.write(S, q, v)
        return sl.read(sl.write(S, q, v), q, along="K")  # here

    refused(f, "is changed twice; expected a chain")


def test_truth_value_of_a_number():
    def f(x: sl.Row["K"], scale=sl.Option(1.0)):
        if scale > 0.5:  # here
            return x
        return -x

    refused(f, "a value of a declaration has no truth value")


def test_python_mathematics():
    def f(x: sl.Row["K"], scale=sl.Option(1.0)):
        return x * math.cos(scale)  # here

    refused(f, "use the functions of stretto.lang, such as sl.cos in place of math.cos")


def test_row_used_as_a_state():
    def f(x: sl.Row["K"]):
        return sl.read(x, x, along="K")  # here

    refused(f, "expected a state, found 'x', a row on the axis 'K' of the heads 'H'")


def test_state_used_as_a_row():
    def f(x: sl.Row["K"]):
        S = sl.state("K", "V")
        return x + S  # here

    refused(f, "expected a row, found a state 'K' by 'V'; sl.read gives a row of it")


def test_condition_used_as_a_number():
    def f(x: sl.Row["K"]):
        return x + (x > 0)  # here

    refused(f, "expected a number or a row, found a condition on the axis 'K'")


def test_size_that_does_not_parse():
    def f(x: sl.Row["K"]):
        return sl.read(sl.state("K", "V +"), x, along="K")  # here

    refused(f, "'V +' ends where a number or a name is expected")


def test_axis_bound_to_a_row():
    def f(x: sl.Row["K"]):
        sl.axis(N=x)  # here
        return x

    refused(f, "the size of 'N' is 'x', a row on the axis 'K' of the heads 'H', expected arithmetic on numbers")


def test_split_beyond_the_row():
    def f(x: sl.Row["K"]):
        return sl.split(x, "K + 1")[0]  # here

    refused(f, "splits 'x', a row on the axis 'K' of the heads 'H' at 'K + 1', expected both pieces to have entries")


def test_value_that_leaves_its_body():
    def f(x: sl.Row["K"]):
        kept = []
        sl.table(lambda t, i: kept.append(t) or t, "K")
        return x * kept[0]  # here

    refused(f, "from the body of a table or a look-back that has ended")


def test_row_in_a_table():
    def f(x: sl.Row["K"]):
        return x * sl.table(lambda t, i: x, "K")  # here

    refused(f, "expected one real number")


def test_body_of_a_lookback():
    def f(x: sl.Row["K"]):
        return sl.lookback(0.0, lambda past: (x, past(x)))  # here

    refused(f, "[lookback_c3] a score has the axis 'K', expected a number")


def test_time_of_a_head():
    def f(x: sl.Row["K"], s: sl.Row[()]):
        return sl.lookback(s, lambda past: (s, past(x)))  # here

    refused(f, "a time is a number that is the same for all heads, found 's', a number of the heads 'H'")


def test_parameter_of_two_axes_as_a_row():
    def f(x: sl.Row["K"], w: sl.Param["H", "K", "K"]):
        return x * w  # here

    refused(f, "expected a row or a parameter of at most one axis, found 'w', a parameter [K, K] of the heads 'H'")


def test_something_else_as_a_row():
    def f(x: sl.Row["K"]):
        return sl.maximum(x, "0")  # here

    refused(f, "found '0' of type str, expected a row, a state or a number")


def test_log_and_factor():
    def f(x: sl.Row["K"]):
        S = sl.decay(sl.state("K", "V"), log=x, factor=x)  # here
        return sl.read(S, x, along="K")

    refused(f, "sl.decay takes either log= or factor=")


def test_value_of_another_declaration():
    kept = []
    stretto.variant(keep(kept))

    def f(x: sl.Row["K"]):
        return x + kept[0]  # here

    refused(f, "found a value of another declaration")


def keep(kept):
    def f(x: sl.Row["K"]):
        kept.append(x)
        return x

    return f


def test_argument_without_annotation():
    with pytest.raises(stretto.Error, match=r"the argument 'y' of <lambda> is neither annotated"):
        stretto.variant(lambda y: y)


def test_axis_of_a_state_that_is_none():
    def f(x: sl.Row["K"]):
        return sl.read(sl.state("K", ()), x, along="K")

    with pytest.raises(stretto.Error, match=r"\[axis_c1\] '' ends where a number or a name is expected"):
        stretto.variant(f)


def test_default_that_is_no_choice():
    with pytest.raises(stretto.Error, match="the default 'c' is not one of the choices a, b"):
        sl.Option("c", choices=("a", "b"))


def test_function_outside_of_a_declaration():
    with pytest.raises(stretto.Error, match=r"test_language\.py:\d+:\d+: error: sl\.position outside of a declaration"):
        sl.position()


# ---------------------------------------------------------------------------------------------------------------------
# Errors of calls
# ---------------------------------------------------------------------------------------------------------------------


@stretto.variant
def gla(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    g: sl.Row["K"](heads="G") = None,
    scale=sl.Option("K**-0.5"),
    twice=sl.Option(False),
    mode=sl.Option("a", choices=("a", "b")),
):
    S = sl.state("K", "V")
    S = S if g is None else sl.decay(S, log=g, along="K")
    return sl.read(sl.write(S, k, v), q * scale, along="K")


def rows(**changed):
    inputs = {"q": torch.ones(2, 3, 4, 8), "k": torch.ones(2, 3, 2, 8), "v": torch.ones(2, 3, 2, 6)}
    return {**inputs, **changed}


def call(inputs, options):
    return gla.reference(**inputs, **options)  # here


@pytest.mark.parametrize(
    ("inputs", "options", "message"),
    [
        (rows(), {"scal": 1.0}, "gla: there is no option 'scal'; the options are scale, twice, mode"),
        (rows(), {"twice": 1}, "gla: the option 'twice' is 1, expected True or False"),
        (rows(), {"mode": "c"}, "gla: the option 'mode' is 'c', expected one of a, b"),
        (rows(), {"scale": None}, "gla: the option 'scale' is None, expected a number or an expression"),
        (rows(), {"scale": "D**-0.5"}, "'D'"),
        ({"q": torch.ones(1, 1, 1, 1)}, {}, "gla: 'k' is missing; the inputs are q, k, v, g"),
        (rows(q=1.0), {}, "[R4] 'q' is a float, expected a tensor"),
        (rows(q=torch.ones(2, 3, 4, 8, dtype=torch.complex64)), {}, "[R4] 'q' has type torch.complex64"),
        (rows(v=torch.ones(2, 3, 2, 6, device="meta")), {}, "[R5] 'v' is on meta, expected cpu, where 'q' is"),
        (rows(k=torch.ones(2, 3, 2, 7)), {}, "'k'"),
        (rows(k=torch.ones(2, 3, 2)), {}, "'k'"),
        (rows(k=torch.ones(2, 4, 2, 8)), {}, "'k'"),
        (rows(k=torch.ones(2, 3, 3, 8), v=torch.ones(2, 3, 3, 6)), {}, "[R2]"),
        (rows(initial_state={"T": torch.ones(2, 2, 8, 6)}), {}, "'T'"),
        (rows(initial_state=torch.ones(2, 2, 8, 7)), {}, "[R6]"),
        (rows(cu_seqlens=torch.tensor([0, 3])), {}, "[R7]"),
        (rows(cu_seqlens=torch.tensor([0.0, 3.0])), {}, "[R7] 'cu_seqlens' is of type torch.float32"),
        (rows(cu_seqlens=torch.tensor([[0, 3]])), {}, "[R7] 'cu_seqlens' has shape [1, 2], expected one dimension"),
    ],
)
def test_refused_calls(inputs, options, message):
    with pytest.raises(stretto.Error, match=re.escape(message)) as caught:
        call(inputs, options)
    assert line_of(call, "# here") in str(caught.value)


def test_too_many_inputs():
    with pytest.raises(stretto.Error, match=r"gla: takes 4 inputs \(q, k, v, g\), found 5"):
        gla.reference(1, 2, 3, 4, 5)


def test_input_given_twice():
    with pytest.raises(stretto.Error, match="gla: 'q' is given twice"):
        gla.reference(torch.ones(1, 1, 1, 1), q=1)


def test_stages():
    with pytest.raises(stretto.Error, match=r"there is no stage 'wasm' .*; the stages are stretto, "):
        gla.lower("wasm")
    with pytest.raises(
        stretto.Error, match="gla: there is no setting 'X'; the settings are scale, twice, mode, K, V, G, H"
    ):
        gla.lower("stretto", X=3)
    with pytest.raises(stretto.Error, match=r"gla: 'K' is 1.5, expected a whole number"):
        gla.lower("stretto", K=1.5)
    assert "tensor<64xf64, #stretto.row<K>>" in gla.lower("stretto", K=64, H=8, G=2)
    assert "tensor<128xf64, #stretto.row<V>>" in gla.lower("stretto", K=64)


# ---------------------------------------------------------------------------------------------------------------------
# Errors of files
# ---------------------------------------------------------------------------------------------------------------------

GOOD = """stretto.variant @f(%x: tensor<?xf64, #stretto.row<K>>) -> tensor<?xf64, #stretto.row<K>> {
  stretto.yield %x : tensor<?xf64, #stretto.row<K>>
}
"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stretto.variant @f(", "f.mlir:1:19: error: expected SSA operand"),
        (GOOD.replace("#stretto.row<K>>)", '#stretto.row<"K +">>)'), "f.mlir:1:"),
        (GOOD.replace("yield %x", "yield %y"), "f.mlir:1:1: error: line 2 uses %y before its definition"),
        (GOOD + GOOD, "redefinition of symbol named 'f'"),
        (GOOD + GOOD.replace("@f", "@g"), "holds 2 variants, expected one or the name of one: f, g"),
        ("", "holds 0 variants"),
        ("(" * 100000, "f.mlir:1:1: error: line 1 is nested more than 200 deep"),
        ('"' + "a" * (1 << 20) + '"', "the text has 1048578 bytes, expected at most 1048576"),
        ("ML\u00efR", "error"),
        ("a\0b", "f.mlir:1:1: error:"),
    ],
)
def test_files_that_are_refused(tmp_path, text, message):
    path = tmp_path / "f.mlir"
    path.write_text(text)
    with pytest.raises(stretto.Error, match=re.escape(message)):
        stretto.load(path)


def test_bytecode_is_refused(tmp_path):
    path = tmp_path / "f.mlir"
    path.write_bytes(b"ML\xefR\x01\x02\x03")
    with pytest.raises(stretto.Error, match="found bytecode, expected text"):
        stretto.load(path)


def test_file_that_is_not_there(tmp_path):
    with pytest.raises(stretto.Error, match=r"f\.mlir:1:1: error: cannot be read: No such file"):
        stretto.load(tmp_path / "f.mlir")


def test_one_of_several_variants(tmp_path):
    path = tmp_path / "f.mlir"
    path.write_text(GOOD + GOOD.replace("@f", "@g"))
    assert stretto.load(path, "g").signature.name == "g"
    with pytest.raises(stretto.Error, match="holds no variant 'h'; its variants are: f, g"):
        stretto.load(path, "h")


def test_text_with_pieces_missing(tmp_path):
    """A file cut off anywhere, or with a piece left out, is an error and nothing worse."""
    import pathlib

    text = (pathlib.Path(__file__).parents[2] / "models/lolcats/variant.mlir").read_text()
    path = tmp_path / "f.mlir"
    for start in range(0, len(text), 211):
        for broken in (
            text[:start],
            text[:start] + text[start + 17 :],
            text[:start] + text[start : start + 31] + text[start:],
        ):
            path.write_text(broken)
            try:
                stretto.load(path).mlir()
            except stretto.Error as error:
                assert str(error)
