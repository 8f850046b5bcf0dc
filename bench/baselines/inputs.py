"""Inputs of the benchmarked operators, by the names that `stretto.ops` gives them."""

import torch


def make(
    operator,
    batch,
    tokens,
    heads,
    width,
    dtype=torch.float32,
    device="cpu",
    key_heads=None,
    value_width=None,
    seed=0,
    gates=None,
):
    """A dictionary of tensors for `operator` at shape B, T, H, D; gates as the layers of the papers make them.

    Gates have the type `gates`, fp32 unless it is given; parameters of a few numbers are fp32, all else has `dtype`.
    """
    key_heads, value_width = key_heads or heads, value_width or width
    of_gates = gates or torch.float32
    generator = torch.Generator(device).manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=generator, device=device)

    def gate(*trailing):
        return torch.nn.functional.logsigmoid(normal(batch, tokens, key_heads, *trailing)) / 16

    rows = {
        "q": normal(batch, tokens, heads, width),
        "k": normal(batch, tokens, key_heads, width),
        "v": normal(batch, tokens, key_heads, value_width),
    }
    gates, numbers = {}, {}
    if operator == "linear_attn_normalized":
        rows.update(q=torch.nn.functional.elu(rows["q"]) + 1, k=torch.nn.functional.elu(rows["k"]) + 1)
    elif operator == "gla":
        gates.update(g=gate(width))
    elif operator == "gla_strong":  # no half chunk can be rescaled
        gates.update(g=-4 - 8 * torch.rand(batch, tokens, key_heads, width, generator=generator, device=device))
    elif operator == "simple_gla":
        gates.update(g=gate())
    elif operator == "gsa":
        rows.update(s=normal(batch, tokens, key_heads, 64))
        gates.update(g=gate(64))
    elif operator == "gated_delta_rule":
        rows.update(k=torch.nn.functional.normalize(rows["k"], dim=-1))
        gates.update(g=gate(), beta=torch.sigmoid(normal(batch, tokens, key_heads)))
    elif operator == "lawcat":
        taps = torch.tensor([1e-3, 1e-3, 1e-3, 1.0], device=device)
        bound = (6 / (width * width // 2)) ** 0.5
        rows.update(
            z=normal(batch, tokens, key_heads, width),
            conv_q=taps.expand(heads, width, 4) + 0.1 * normal(heads, width, 4),
            conv_k=taps.expand(key_heads, width, 4) + 0.1 * normal(key_heads, width, 4),
            w_phi=(2 * torch.rand(heads, width, width // 2, generator=generator, device=device) - 1) * bound,
        )
    elif operator == "kda":
        rows.update(k=torch.nn.functional.normalize(rows["k"], dim=-1))
        gates.update(g=gate(width), beta=torch.sigmoid(normal(batch, tokens, heads)))
    elif operator == "delta_rule":
        rows.update(k=torch.nn.functional.normalize(rows["k"], dim=-1))
        gates.update(beta=torch.sigmoid(normal(batch, tokens, key_heads)))
    elif operator == "hgrn2":
        gates.update(f=gate(width).exp())
        del rows["k"]
    elif operator == "rwkv6":
        gates.update(w=gate(width))
        numbers.update(u=normal(key_heads, width))
        rows["r"] = rows.pop("q")
    elif operator == "abc":
        gates.update(s=normal(batch, tokens, key_heads, 64))
    elif operator == "ssd":
        rows = {"x": rows["v"], "B": rows["k"], "C": rows["q"]}
        gates.update(dt=torch.nn.functional.softplus(normal(batch, tokens, heads) - 2))
        numbers.update(A_log=normal(heads))
    elif operator == "supra":
        rows.update(w_q=normal(heads, width, width) / width, w_k=normal(heads, width, width) / width)
        numbers.update(b_q=normal(heads, width), b_k=normal(heads, width))
        numbers.update(log_gamma=-torch.rand(heads, generator=generator, device=device) / 64)
    elif operator == "lolcats":
        rows.update({name: normal(heads, width, width // 2) / width**0.5 for name in ("w_q", "w_k")})
        numbers.update(factor=normal(heads))
    elif operator == "relation_kl":
        rows = {"q_s": rows["q"], "q_t": normal(batch, tokens, heads, width)}
    elif operator not in ("linear_attn", "softmax_attn", "retention", "based", "bla", "swa"):
        raise ValueError(f"no baseline for {operator!r}")
    made = {name: tensor.to(dtype) for name, tensor in rows.items()}
    made |= {name: tensor.to(of_gates) for name, tensor in gates.items()} | numbers
    return {name: tensor.contiguous() for name, tensor in made.items()}
