"""Feature maps that no operator of stretto.ops has, checked where STRETTO_FEATURES says that they run before the rest.
test_features.py runs it.
"""

import stretto
import torch
from stretto import lang as sl


@stretto.variant
def two_layers(
    q: sl.Row["D"],
    k: sl.Row["D"](heads="G"),
    v: sl.Row["V"](heads="G"),
    x: sl.Row["D"],
    w_first: sl.Param["G", "D", "E"],
    w_second: sl.Param["G", "E", "F"],
    w_q: sl.Param["H", "D", "F"],
    w_v: sl.Param["G", "V", "U"],
    w_o: sl.Param["H", "D", "U"],
    tau=sl.Option(2.0),
    scale=sl.Option("F**-0.5"),
):
    """Features of two layers with matrices of key heads, gates of queries, projected values, a gated output."""
    S = sl.decay(sl.state("F", "U"), log=sl.logsigmoid(sl.matvec(q, w_q)) / tau, along="F")
    S = sl.write(S, sl.tanh(sl.matvec(sl.tanh(sl.matvec(k, w_first)), w_second)), sl.matvec(v, w_v))
    return sl.read(S, sl.softmax(sl.matvec(q, w_q)) * scale, along="F") * sl.sigmoid(sl.matvec(x, w_o))


@stretto.variant
def one_row(
    q: sl.Row["D"],
    v: sl.Row["V"],
    conv: sl.Param["H", "D", 3],
    w: sl.Param["H", "D", "F"],
    skip: sl.Param["H"] = None,
):
    """One row of features is written and read."""
    feature = sl.exp(sl.matvec(sl.conv(q, conv), w) * 0.3)
    S = sl.write(sl.state("F", "V"), feature, v)
    o = sl.read(S, feature, along="F")
    return o if skip is None else o + skip * v


@stretto.variant
def head_decay(q: sl.Row["D"], v: sl.Row["V"], A_log: sl.Param["H"], w: sl.Param["H", "D", "F"]):
    """A decay of each head that no row has a part in: no features, though it takes an exponential."""
    S = sl.write(sl.decay(sl.state("F", "V"), log=-sl.exp(A_log)), sl.tanh(sl.matvec(q, w)), v)
    return sl.read(S, sl.tanh(sl.matvec(q, w)), along="F")


def check(name, variant, inputs):
    """Results and states against the interpreter, in one call and in two; gradients against differences."""
    explained = variant.explain(*inputs)
    assert [part["kernel"] for part in explained["features"]] == [f"{name}_features_0"], explained
    assert explained["kernel"] == f"{name}_rest", explained

    def differ(found, expected):
        return (found.detach() - expected).norm() > 1e-10 * expected.norm()

    expected, final = variant.reference(*inputs, output_final_state=True)
    rows = [x.dim() == 4 for x in inputs]
    half = inputs[0].shape[1] // 2
    first = [x[:, :half] if is_row else x for x, is_row in zip(inputs, rows, strict=True)]
    second = [x[:, half:] if is_row else x for x, is_row in zip(inputs, rows, strict=True)]
    o, state = variant(*inputs, output_final_state=True)
    before, between = variant(*first, output_final_state=True)
    behind, last = variant(*second, initial_state=between, output_final_state=True)
    assert not differ(o, expected) and not differ(torch.cat([before, behind], 1), expected)
    for entry, x in final.items():
        if x.is_floating_point():
            assert not differ(state[entry], x) and not differ(last[entry], x)
    assert torch.autograd.gradcheck(variant, inputs, fast_mode=True)


def main():
    generator = torch.Generator().manual_seed(0)

    def draw(*shape):
        x = torch.randn(shape, generator=generator, dtype=torch.float64) * 0.5
        return x.requires_grad_()

    B, T, H, G, D, E, F, V, U = 2, 37, 4, 2, 6, 5, 8, 7, 9
    rows = draw(B, T, H, D), draw(B, T, G, D), draw(B, T, G, V), draw(B, T, H, D)
    matrices = draw(G, D, E), draw(G, E, F), draw(H, D, F), draw(G, V, U), draw(H, D, U)
    check("two_layers", two_layers, [*rows, *matrices])
    inputs = [draw(B, T, H, D), draw(B, T, H, V), draw(H, D, 3), draw(H, D, F)]
    check("one_row", one_row, inputs)
    check("one_row", one_row, [*inputs, draw(H)])
    # So many that they would be found by parts of their own.
    check("head_decay", head_decay, [draw(1, 9, 2, 220), draw(1, 9, 2, 4), draw(2), draw(2, 220, 200)])
    print("agrees")


if __name__ == "__main__":
    main()
