"""What warps of a block do beside each other on a GPU: roles that the model takes and forms ask for, and that ptxas
assembles them without spills.
"""

import functools
import re

import pytest
import stretto
from declarations import normalised
from stretto import lang as sl
from test_inventions import INVENTIONS
from test_ptx import OPERATORS, WITH_SEGMENTS, bytes_spilled, lower, ptxas, spilled

__all__ = ["ptxas"]


@pytest.mark.parametrize(
    "operator, width, ahead",
    [
        *[("gla", 64, 8), ("hgrn2", 64, 8), ("bla", 64, 4), ("bla", 128, 4)],
        *[
            ("ssd", 128, 0),
            ("gla", 128, 0),
            ("linear_attn", 128, 0),
            ("lawcat", 64, 0),
            ("gated_delta_rule", 64, 0),
        ],
    ],
)
def test_warps_run_ahead_where_that_is_a_quarter_of_the_work(operator, width, ahead):
    """Up to four fifths of it, and where memory suffices; none where nobody asks for them."""
    sizes = dict.fromkeys(OPERATORS[operator], width)
    variant = getattr(stretto.ops, operator).variant
    text = variant.lower("kernel", target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1), **sizes)
    assert (f"#kernel.role<ahead, {ahead}>" in text) if ahead else ("#kernel.role<ahead" not in text)
    assert "#kernel.role<ahead" not in variant.lower("kernel", target="sm_90a", dtype="bf16", **sizes)


@pytest.mark.parametrize("segments", [False, True], ids=["whole", "segments"])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("modes", [8, 32])
def test_slots_of_half_the_width_have_warps_ahead(ptxas, tmp_path, modes, blocks, segments):
    """17 slots and 65, whose one role has eight warps. Of few slots two blocks of one role are as fast."""
    variant = stretto.ops.bla.variant
    options = {"modes": modes, "period": 4.0 * modes + 2}
    form = (0, 1, 0, 1, 0, -1, blocks, -1)
    text = variant.lower("ptx", target="sm_90a", dtype="bf16", K=64, V=64, segments=segments, form=form, **options)
    warps = 4 if modes == 8 and blocks == 2 else 8
    results = text.split(".visible .entry bla(")[1]
    assert re.search(r"\.reqntid (\d+)", results)[1] == str(32 * warps)
    assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}
    kernel = variant.lower("kernel", target="sm_90a", dtype="bf16", K=64, V=64, segments=segments, form=form, **options)
    assert ("#kernel.role<ahead, 4>" in kernel) == (warps == 8)


@pytest.mark.parametrize("segments", [False, True], ids=["whole", "segments"])
@pytest.mark.parametrize("blocks", [1, 2])
@pytest.mark.parametrize("name", INVENTIONS)
def test_declarations_that_nobody_knows_have_code_with_roles(name, blocks, segments):
    """The model's roles, of declarations that no pass was written for."""
    variant = INVENTIONS[name].variant
    rows = [row for row in variant.signature.declared.values() if hasattr(row, "axis")]
    sizes = {row.axis: 64 for row in rows if row.axis} | {row.heads: {"H": 4, "G": 2}[row.heads] for row in rows}
    form = (0, 1, 0, 0, 0, -1, blocks, -1)
    try:
        variant.lower("ptx", target="sm_90a", dtype="bf16", segments=segments, form=form, **sizes)
    except stretto.Error as error:
        assert segments and "[R14]" in str(error)


@pytest.mark.parametrize(
    "operator, width, ahead",
    [("ssd", 128, 4), ("gla", 64, 8), ("hgrn2", 64, 8), ("linear_attn", 128, 4), ("gla", 128, 4)],
)
def test_roles_assemble_without_spills(ptxas, tmp_path, operator, width, ahead):
    """The registers that each role has, which ptxas is told, suffice."""
    text = lower(operator, "bf16", width, form=(64, 1, 4, 0, 0, ahead))
    assert f".reqntid {32 * (4 + ahead)}" in text
    assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}


@pytest.mark.parametrize(
    "operator, width, options, is_behind",
    [
        *[("linear_attn", width, {"normalize": normalize}, True) for width in (64, 128) for normalize in (False, True)],
        *[("simple_gla", 128, {}, True), ("simple_gla", 64, {}, False), ("retention", 128, {}, True)],
        *[("ssd", 128, {}, True), ("gla", 64, {}, False), ("delta_rule", 128, {}, False)],
    ],
)
def test_outputs_are_found_behind_walks_that_make_only_states(operator, width, options, is_behind):
    """Which they multiply, and add products to: if outputs are not much more work. None where nobody asks for them."""
    sizes = dict.fromkeys(OPERATORS[operator], width)
    variant = getattr(stretto.ops, operator).variant
    lower = functools.partial(variant.lower, "kernel", target="sm_90a", dtype="bf16", **sizes, **options)
    assert ("#kernel.role<outputs, 4>" in lower(form=(0, 1, 0, 0, 0, 0, 1, -1))) == is_behind
    assert ("#kernel.role<outputs, 4>" in lower(form=(0, 1, 0, 0, 0, 0, 1, -1), segments=True)) == is_behind
    assert "#kernel.role<outputs" not in lower()


@pytest.mark.parametrize(
    "operator, width, options, is_behind",
    [
        *[("linear_attn", width, {"normalize": True}, True) for width in (64, 128)],
        *[("linear_attn", 64, {"normalize": False}, True), ("linear_attn", 128, {"normalize": False}, False)],
        *[("retention", 128, {}, False), ("simple_gla", 64, {}, False), ("gsa", 64, {}, False)],
    ],
)
def test_results_are_found_behind_walks_back_that_only_add(ptxas, tmp_path, operator, width, options, is_behind):
    """Of few states, or of many numbers for each byte."""
    sizes = dict.fromkeys(OPERATORS[operator], width) | {"H": 4, "G": 4}
    variant = getattr(stretto.ops, operator).variant
    form = dict(target="sm_90a", dtype="bf16", backward=True, form=(0, 1, 0, 1, 0, 0, 1, -1))
    planned = variant.lower("kernel", **form, **sizes, **options)
    assert planned.count("#kernel.role<outputs, 4>") == (2 if is_behind else 0)
    assert "#kernel.role<outputs" not in variant.lower("kernel", **(form | {"form": None}), **sizes, **options)
    if is_behind:
        text = variant.lower("ptx", **form, **sizes, **options)
        assert text.count(".reqntid 256,") == 2
        assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}


@pytest.mark.parametrize("outputs", [4, 8])
@pytest.mark.parametrize(
    "operator, width, slices",
    [("linear_attn", 128, 4), ("simple_gla", 128, 1), ("retention", 128, 1), ("ssd", 64, 1)],
)
def test_outputs_behind_a_walk_assemble_without_spills(ptxas, tmp_path, operator, width, slices, outputs):
    """In one group of four warps, or in two that take chunks in turns, for which a warpgroup sends."""
    text = lower(operator, "bf16", width, form=(64, slices, 4, 0, 0, 0, 0, outputs))
    assert f".reqntid {32 * (4 + outputs + (4 if outputs > 4 else 0))}" in text
    assert bytes_spilled(ptxas, tmp_path, text)[0] == 0


@pytest.mark.parametrize("operator", ["simple_gla", "retention", "ssd"])
@pytest.mark.parametrize("width, slices", [(128, 1), (128, 4), (64, 4), (64, 2)])
def test_three_roles_and_a_producer_assemble_without_spills(ptxas, tmp_path, operator, width, slices):
    """What the model takes where heads fill the chip, and where values are divided: then two groups on either side."""
    sizes = dict.fromkeys(OPERATORS[operator], width)
    variant, groups = getattr(stretto.ops, operator).variant, 2 if slices > 1 else 1
    form = dict(target="sm_90a", dtype="bf16", form=(0, slices, 0, 0, 0, -1, 1, -1))
    planned = variant.lower("kernel", **form, **sizes)
    roles = re.findall(r"roles \[#kernel.role<([a-z]+), 4(?:, (\d))?>\]", planned)
    turns = "2" if groups == 2 else ""
    assert roles == [("walk", ""), ("ahead", turns), ("outputs", turns), ("producer", "")]
    text = variant.lower("ptx", **form, **sizes)
    assert f".reqntid {128 * (2 + 2 * groups)}" in text
    assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}
    assert "setmaxnreg.dec.sync.aligned.u32 \t24;" in text


@pytest.mark.parametrize(
    "operator, most",
    [("gla", (0, 40)), ("hgrn2", (0, 24)), ("rwkv6", (0, 40)), ("simple_gla", (0, 12)), ("ssd", (0, 36))],
)
def test_kept_states_are_stored_by_those_who_find_outputs(ptxas, tmp_path, operator, most):
    """A call that is recorded keeps the states at the start of each chunk: the memory system stores them from where the
    walk has passed them. Of segments, the addresses of what is kept are a few too many for the registers of a role.
    """
    sizes = dict.fromkeys(OPERATORS[operator], 128)
    variant = getattr(stretto.ops, operator).variant
    form = dict(target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1, 1, -1), keeps="chunks") | sizes
    assert variant.lower("chunk", **form).count("S: tensor<128x128xbf16> checkpoint") == 1
    planned = variant.lower("kernel", **form)
    outputs = planned[planned.index(f"@{operator}.outputs(") : planned.index(f"@{operator}.producer(")]
    assert len(re.findall(r"kernel\.store .* to %S\S* at .* bulk : tensor<128x128xbf16", outputs)) == 1
    for segments in (False, True):
        text = variant.lower("ptx", **form, segments=segments)
        assert bytes_spilled(ptxas, tmp_path, text)[0] <= most[segments]


@stretto.variant
def normalised_gla(
    q: sl.Row["K"],
    k: sl.Row["K"](heads="G"),
    v: sl.Row["V"](heads="G"),
    g: sl.Row["K"](heads="G"),
    eps=sl.Option(1e-6),
):
    S = sl.write(sl.decay(sl.state("K", "V + 1"), log=g, along="K"), k, sl.append(v, 1.0))
    return normalised(S, q, "K", "V", eps)


def test_a_normaliser_decays_with_its_state(ptxas, tmp_path):
    """Rows are rescaled once for a state and the column that is its normaliser: the roles of GLA have the registers for
    that, where the walk sums up keys, and so have walks back of as many tokens.
    """
    settings = dict(target="sm_90a", dtype="bf16", K=128, V=128)
    form = (0, 1, 0, 1, 0, -1, 1, -1)
    planned = normalised_gla.lower("kernel", **settings, form=form)
    walk, *others = (
        planned[planned.index(f"@normalised_gla{role}(") :].split("kernel.return")[0]
        for role in ("", ".ahead", ".outputs", ".producer")
    )
    assert walk.count("kernel.matvec") == 1 and others[1].count("kernel.matvec") == 1
    assert "kernel.matvec" not in others[0] and "chunk.expect" in others[0]
    for segments, most in ((False, 0), (True, 28)):
        text = normalised_gla.lower("ptx", **settings, form=form, segments=segments)
        assert bytes_spilled(ptxas, tmp_path, text)[0] <= most
    for width, tokens, segments in ((128, 32, False), (64, 64, True)):
        sizes = dict(target="sm_90a", dtype="bf16", K=width, V=width, backward=True, segments=segments)
        text = normalised_gla.lower("ptx", **sizes, form=(tokens, 1, 8, 1))
        assert bytes_spilled(ptxas, tmp_path, text)[0] == 0


def test_a_normaliser_is_saved_beside_the_result(ptxas, tmp_path):
    """Those who find outputs leave it on the way, with as many warps and products under way as without it. No kernel of
    the gradient reads the state for the result again.
    """
    settings = dict(target="sm_90a", dtype="bf16", K=128, V=128, form=(0, 1, 0, 1, 0, -1, 1, -1))
    made = {}
    for saved in (False, True):
        planned = normalised_gla.lower("kernel", **settings, saved=saved)
        roles = re.findall(r"#kernel.role<(\w+), (\d+)>", planned)
        outputs = planned[planned.index("@normalised_gla.outputs(") : planned.index("@normalised_gla.producer(")]
        products = re.findall(r"chunk\.dot|kernel\.finish|kernel\.matvec", outputs)
        text = normalised_gla.lower("ptx", **settings, saved=saved)
        assert bytes_spilled(ptxas, tmp_path, text)[0] == 0
        made[saved] = roles, products, re.findall(r"setmaxnreg\S* \s*(\d+)", text)
        assert outputs.count("to %saved.0 at") == saved
    assert made[True] == made[False]
    counts = {}
    for saved in (False, True):
        text = stretto.ops.lawcat.variant.lower(
            "ptx", target="sm_90a", dtype="bf16", D=64, V=64, backward=True, segments=True, saved=saved
        )
        assert sum(bytes_spilled(ptxas, tmp_path, text)) == 0
        bodies = {body.split("(")[0]: body for body in text.split(".visible .entry ")[1:]}
        walks = ("cotangent_writes", "cotangents")
        counts[saved] = [bodies[f"lawcat_backward_{walk}"].count("mma.sync") for walk in walks]
    assert all(3 * few <= many for few, many in zip(counts[True], counts[False], strict=True))


def test_tiles_that_are_left_over_others_have_as_many_places():
    """States that are kept leave memory for one tile of keys: what is left over these has one place, too."""
    form = dict(target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1, 1, -1), keeps="chunks", K=128, V=96)
    planned = stretto.ops.gla.variant.lower("kernel", **form)
    depths = dict(re.findall(r"passed (\d+) bulk depth (\d+)", planned))
    left = set(re.findall(r"over (\d+) depth (\d+)", planned))
    assert {depth for _, depth in left} == {"1", "3"} and all(depths[number] == depth for number, depth in left)
    assert stretto.ops.gla.variant.lower("ptx", **form)


def test_windows_are_met_behind_a_walk(ptxas, tmp_path):
    """Of LoLCATs at width 128 others make features and a third role meets the window, with a register too few for one
    of the roles; others run ahead of walks of a gradient, too.
    """
    settings = dict(target="sm_90a", dtype="bf16", segments=True, D=128, V=128, F=64)
    variant = stretto.ops.lolcats.variant
    form = (0, 1, 0, 0, 0, -1, 1, -1)
    planned = variant.lower("kernel", **settings, form=form)
    roles = [f"@lolcats.{role}(" in planned for role in ("ahead", "outputs", "producer")]
    assert all(roles) and "@lolcats_writes.ahead(" in planned and "@lolcats_writes.producer(" in planned
    outputs = planned[planned.index("@lolcats.outputs(") : planned.index("@lolcats.producer(")]
    assert outputs.count("scf.for") == 2 and "kernel.span" not in planned
    text = variant.lower("ptx", **settings, form=form)
    assert bytes_spilled(ptxas, tmp_path, text)[0] <= 4
    planned = variant.lower("kernel", **settings, backward=True)
    walks = ("checkpoints", "cotangents", "cotangent_writes")
    assert all(f"@lolcats_backward_{walk}.ahead(" in planned for walk in walks)


@pytest.mark.parametrize("operator, most", [("gla", 0), ("hgrn2", 0), ("rwkv6", 12)])
def test_rows_that_are_expected_in_range_have_three_roles(ptxas, tmp_path, operator, most):
    """Where channels have decays, too, if nothing else is to be done where rows are out of range: another kernel takes
    what is left. Eight warps rescale rows, of segments as well, and leave them where they came; those that a segment
    writes ask for no range. What RWKV-6's tokens read of their own is summed up by those who rescale rows, which takes
    three numbers of a thread too many in segments.
    """
    sizes = dict.fromkeys(OPERATORS[operator], 128)
    variant = getattr(stretto.ops, operator).variant
    form = dict(target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1, 1, -1))
    planned = variant.lower("kernel", **form, **sizes)
    roles = re.findall(r"roles \[#kernel.role<([a-z]+), (\d)>\]", planned)
    assert roles == [("walk", "4"), ("ahead", "8"), ("outputs", "4"), ("producer", "4")]
    assert planned.count("chunk.expect") == 1 and "scf.if" not in planned
    assert re.search(r"kernel.store .* staged matrices bulk", planned)
    assert len(set(re.findall(r"passed (\d+) over", planned))) == {"gla": 3, "hgrn2": 2, "rwkv6": 3}[operator]
    outputs = planned[planned.index(f"@{operator}.outputs(") : planned.index(f"@{operator}.producer(")]
    assert "chunk.reduce" not in outputs and ("chunk.reduce" in planned) == (operator == "rwkv6")
    assert set(spilled(ptxas, tmp_path, variant.lower("ptx", **form, **sizes))) == {("0", "0")}

    segments = variant.lower("kernel", **form, **sizes, segments=True)
    writes = segments[segments.index(f"@{operator}_writes(") : segments.index(f"@{operator}_starts(")]
    assert re.findall(r"#kernel.role<([a-z]+)", writes) == ["walk", "ahead", "producer"]
    assert "chunk.within" not in writes and "chunk.expect" in segments
    assert "#kernel.role<ahead, 8>" in segments
    assert bytes_spilled(ptxas, tmp_path, variant.lower("ptx", **form, **sizes, segments=True))[0] <= most


@pytest.mark.parametrize("operator, has_roles", [("hgrn2", True), ("gla", False), ("rwkv6", False)])
def test_factors_of_half_the_width_have_roles(ptxas, tmp_path, operator, has_roles):
    """They were seen to gain there, too, with half the warps for rows, where logarithms are as fast in two blocks of
    four warps that do everything. A producer keeps the addresses of its tiles, as others leave registers.
    """
    sizes = dict.fromkeys(OPERATORS[operator], 64)
    variant = getattr(stretto.ops, operator).variant
    for blocks in (1, 2):
        settings = dict(target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1, blocks, -1), **sizes)
        planned = variant.lower("kernel", **settings)
        roles = re.findall(r"roles \[#kernel.role<([a-z]+), (\d)>\]", planned)
        if not has_roles:
            assert "outputs" not in dict(roles) and "chunk.expect" not in planned
            continue
        assert roles == [("walk", "4"), ("ahead", "4"), ("outputs", "4"), ("producer", "4")]
        assert planned.count("chunk.expect") == 1 and "scf.if" not in planned
        for segments in (False, True):
            text = variant.lower("ptx", **settings, segments=segments)
            assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}
            assert re.search(r"setmaxnreg\S+\s+40;", text)


def test_rows_are_asked_and_masked_by_few_instructions():
    """Of words that rows came in the halves are not taken apart to ask for their range, and chunks with all of their
    tokens compare no row of the sixteen that a thread has.
    """
    settings = dict.fromkeys(OPERATORS["hgrn2"], 128) | dict(target="sm_90a", dtype="bf16")
    form = (0, 1, 0, 0, 0, -1, 1, -1)
    assert len(re.findall(r"mov.b32\s+{%rs", stretto.ops.hgrn2.variant.lower("ptx", form=form, **settings))) <= 4
    text = stretto.ops.hgrn2.variant.lower("llvm", form=form, **settings)
    ahead = text[text.index("nvvm.setmaxregister  decrease") :]
    ahead = ahead[: ahead.index("nvvm.setmaxregister  increase")]
    [masked] = [block for block in re.split(r"\n  \^bb", ahead) if block.count("llvm.select") >= 32]
    assert masked.count("llvm.icmp") == 16 and "llvm.load" not in masked


@pytest.mark.parametrize("operator", ["simple_gla", "ssd"])
def test_groups_ahead_of_groups_assemble_without_spills(ptxas, tmp_path, operator):
    """Two warpgroups on either side of a walk, and one that sends, share the registers."""
    text = lower(operator, "bf16", 128, form=(64, 4, 4, 0, 0, 8, 1, 8))
    assert f".reqntid {128 * 6}" in text
    assert set(spilled(ptxas, tmp_path, text)) == {("0", "0")}


@pytest.mark.parametrize("operator", ["simple_gla", "retention", "ssd"])
def test_walks_that_segments_begin_with_have_two_groups_ahead(ptxas, tmp_path, operator):
    """Beside three roles and a producer of the results; of parameters each group has a copy of its own."""
    sizes = dict.fromkeys(OPERATORS[operator], 128)
    variant = getattr(stretto.ops, operator).variant
    form = dict(target="sm_90a", dtype="bf16", form=(0, 1, 0, 0, 0, -1, 1, -1), segments=True)
    planned = variant.lower("kernel", **form, **sizes)
    writes = planned[planned.index(f"@{operator}_writes(") : planned.index(f"@{operator}_starts(")]
    roles = re.findall(r"roles \[#kernel.role<([a-z]+), 4(?:, (\d))?>\]", writes)
    assert roles == [("walk", ""), ("ahead", "2"), ("producer", "")]
    assert set(spilled(ptxas, tmp_path, variant.lower("ptx", **form, **sizes))) == {("0", "0")}


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize("operator", WITH_SEGMENTS)
def test_walks_that_segments_begin_with_have_roles_where_results_have_some(operator, width):
    """All kernels have as many warps: four alone have no registers for results that roles were not found for."""
    planned = lower(operator, "bf16", width, "kernel", segments=True, form=(0, 1, 0, 0, 0, -1, 1, -1))
    roles = dict(re.findall(r"kernel\.func @(\w+)\(.*roles \[#kernel\.role<([a-z]+),", planned))
    assert roles[operator] in ("walk", "all") and roles[f"{operator}_writes"] in ("walk", "all")
    assert roles[operator] == "walk" or roles[f"{operator}_writes"] == "all"


@pytest.mark.parametrize("operator", ["linear_attn", "simple_gla"])
def test_groups_that_take_turns_have_places_of_their_own(operator):
    """Where memory is scarce, too: who comes back to a place finds no tile of another group's turn."""
    planned = lower(operator, "bf16", 128, "kernel", form=(64, 1, 4, 0, 0, 0, 0, 8))
    depths = re.findall(r"kernel.channel passed \d+ depth (\d+)", planned)
    assert depths and set(depths) <= {"2", "4", "6"}
