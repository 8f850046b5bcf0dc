"""Forms that are chosen by measuring on a CUDA device, each check in a process of its own, as in test/python."""

import json

import pytest
import torch
from test_tuning import environment, run  # noqa: F401  a fixture

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch sees no GPU")

CALL = """
    case, inputs = call({name!r}, torch.bfloat16, gradients=True, device="cuda", T=1024, H=8, G=8, K=64, V=64)
"""


@pytest.mark.parametrize("name", ["gla", "linear_attn", "gated_delta_rule", "gsa"])
def test_tuning(environment, name):  # noqa: F811
    program = (
        CALL
        + """
    reference = case.reference(inputs)[0].detach()
    def gradients():
        o, _ = case(inputs)
        assert error(o.detach(), reference) < BOUNDS[torch.bfloat16][0]
        return torch.autograd.grad(o, list(inputs.values()), torch.ones_like(o))
    expected = gradients()
    found = variant(case).tune(**inputs)
    for part, tuning in found.items():
        assert tuning["seconds"] < 45, (part, tuning["seconds"])
        assert sum("milliseconds" in candidate for candidate in tuning["candidates"]) > 2, tuning
        assert tuning["to_floor"] > 0.5, tuning
    assert variant(case).explain(**inputs)["chosen_by"] == "tuner"
    assert variant(case).explain(**inputs, backward=True)["chosen_by"] == "tuner"
    for x, y in zip(gradients(), expected):
        assert error(x, y) < 2.5e-2
    print(json.dumps({{part: [tuning["chunk"], tuning["slices"], tuning["warps"]] for part, tuning in found.items()}}))
    """
    )
    out, notes = run(environment, program.format(name=name))
    assert notes == ""
    tuned = json.loads(out)
    program = (
        CALL
        + """
    forwards = variant(case).explain(**inputs)
    assert forwards["chosen_by"] == "tuner"
    others = sum(forwards.get(f"threads_{{role}}", 0) for role in ("ahead", "of_outputs", "of_producer"))
    warps = (forwards["threads"] - others) // 32
    assert [forwards["chunk"], forwards["slices"], warps] == {tuned}["forward"]
    """
    )
    run(environment, program.format(name=name, tuned=tuned))


def test_a_captured_call_keeps_its_form(environment):  # noqa: F811
    """Looking up a tuned form waits for nothing: a call may be captured."""
    program = (
        CALL
        + """
    inputs = {{key: x.detach() for key, x in inputs.items()}}
    variant(case).tune(**inputs, seconds=5)
    expected, _ = case(inputs)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        o, _ = case(inputs)
    graph.replay()
    assert torch.equal(o, expected)
    """
    )
    run(environment, program.format(name="gla"))
