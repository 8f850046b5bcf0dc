"""Operators as code for a GPU: ptxas assembles it, without spills for heads of up to 128; heads of 256 fit."""

import functools
import importlib.util
import itertools
import pathlib
import re
import subprocess
import sys

import pytest
import stretto

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
from machine_code import has_operands_in_registers, kernels_of, overwritten_operands
from test_inventions import channel_delta

# The named sizes that are a head's width.
OPERATORS = {
    "linear_attn": "KV",
    "retention": "KV",
    "simple_gla": "KV",
    "gla": "KV",
    "ssd": "NP",
    "lawcat": "DV",
    "hgrn2": "KV",
    "rwkv6": "KV",
    "supra": "DFV",
    "gsa": "KNV",
    "abc": "KNV",
    "bla": "KV",
    "delta_rule": "KV",
    "gated_delta_rule": "KV",
}
LOOKBACKS = {"swa": "KV", "lolcats": "DV", "relation_kl": ("Ds", "Dt")}
OPTIONS = {"bla": {"decay": "signed"}}
# What has no state has nothing to find for a segment.
WITH_SEGMENTS = [*OPERATORS, "lolcats"]


@pytest.fixture(scope="module")
def ptxas() -> pathlib.Path:
    """The assembler of the pinned nvidia-cuda-nvcc."""
    folders = importlib.util.find_spec("nvidia").submodule_search_locations
    return next(path for folder in folders if (path := pathlib.Path(folder, "cu13/bin/ptxas")).exists())


# Gradients that want more registers than there are: most by less than 50, which are spilled, and by hundreds where two
# states or matrices of parameters are 128 wide.
SPILLS = {
    "linear_attn": [("fp32", 128)],
    "retention": [("fp32", 128)],
    "gla": [("fp32", 128)],
    "hgrn2": [("bf16", 64)],
    "lawcat": [("bf16", 128), ("fp32", 128)],
    "supra": [("fp32", 128)],
    "gsa": [("bf16", 128), ("fp32", 128)],
    "abc": [("bf16", 128), ("fp32", 128)],
    "lolcats": [("fp32", 128)],
    "swa": [("bf16", 128)],
}
# Forwards: up to 160 bytes of chunks.
CHUNK_SPILLS = {
    "linear_attn": [("bf16", 128)],
    "retention": [("fp32", 128)],
    "simple_gla": [("fp32", 128)],
    "abc": [("fp32", 128)],
    "supra": [("bf16", 128)],
    "gsa": [("bf16", 128), ("fp32", 128)],
    "ssd": [("fp32", 64)],
}
# Steps: 8 bytes, since they clear what sequences without a slot give.
STEP_SPILLS = {"rwkv6": [("bf16", 128)]}
# And of the kernels over segments that are walked side by side, of which some are those of whole walks.
SEGMENT_SPILLS = {
    "gated_delta_rule": [("bf16", 128)],
    "lawcat": [("bf16", 128)],
    "supra": [("bf16", 128)],
    "abc": [("bf16", 128)],
}
# And of gradients in bf16 at width 128 whose segments are side by side. Where one walk has no chunk form so, and one of
# states alone would have fewer than 32 tokens a chunk, there is none.
GRADIENT_SEGMENT_SPILLS = ("linear_attn", "ssd", "hgrn2", "gsa", "lawcat")
WITHOUT_GRADIENT_SEGMENTS = ("abc", "delta_rule", "gated_delta_rule", "swa", "relation_kl")
# Of what looks back, kernels that keep a state beside tiles of other tokens: steps.
LOOKBACK_SPILLS = {
    ("lolcats", True): [("bf16", 64), ("bf16", 128)],
}
CONFIGURATIONS = [("bf16", 16), ("bf16", 64), ("bf16", 128), ("fp32", 64), ("fp32", 128)]
# Of what has several kernels, which take seconds; in fp32 the wider one has fewer registers to spare.
OF_SEVERAL_KERNELS = [("bf16", 16), ("bf16", 64), ("bf16", 128), ("fp32", 128)]


def lower(operator, dtype, width, stage="ptx", **settings):
    sizes = dict.fromkeys({**OPERATORS, **LOOKBACKS}[operator], width)
    if operator == "lolcats":
        sizes["F"] = width // 2  # Hedgehog has two features for each
    variant = getattr(stretto.ops, operator).variant
    return variant.lower(stage, target="sm_90a", dtype=dtype, **sizes, **OPTIONS.get(operator, {}), **settings)


def assert_that_kernels_wait(ptx):
    """Each kernel waits for those that were launched before it ahead of all accesses to memory that they share."""
    for body in ptx.split(".visible .entry ")[1:]:
        accesses = re.findall(r"griddepcontrol\.\w+|\b(?:ld|st|red|atom)\.(?:\w+\.)*global|cp\.async", body)
        # The next kernel may come beside what finds the starts of segments.
        if re.match(r"\w+_(starts|sum_turns)\(", body) and not re.match(r"\w+_segment_starts\(", body):
            assert accesses.pop(0) == "griddepcontrol.launch_dependents"
        waits = [place for place, access in enumerate(accesses) if access == "griddepcontrol.wait"]
        assert waits[0] == 0 and len(waits) <= 2 and "griddepcontrol.launch_dependents" not in accesses
        # A packed batch reads where its sequences begin, for which it waits before.
        assert {access.split(".")[0] for access in accesses[1 : waits[-1]]} <= {"ld"}
        assert accesses[waits[-1] + 1 :]


def spilled(ptxas, folder, ptx):
    """Bytes of the stack and of spills of each kernel."""
    assert_that_kernels_wait(ptx)
    (folder / "kernel.ptx").write_text(ptx)
    command = [ptxas, "-v", "-arch=sm_90a", folder / "kernel.ptx", "-o", folder / "kernel.cubin"]
    report = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    # Where products of warpgroups wait for each other, ptxas says so, in a note.
    assert "warning" not in report and "serialized" not in report
    assert not (has_operands_in_registers(ptx) and overwritten_operands(folder / "kernel.cubin"))
    return re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores", report)


@pytest.mark.parametrize(
    "operator, dtype, is_so", [("gla", "bf16", True), ("gla", "fp32", False), ("linear_attn", "bf16", True)]
)
def test_operands_in_registers_are_seen(operator, dtype, is_so):
    """Else nobody would look at what the assembler does to them."""
    ptx = lower(operator, dtype, 64)
    assert has_operands_in_registers(ptx) == is_so
    assert ("wgmma.mma_async" in ptx) == (dtype == "bf16")


@pytest.mark.parametrize("dtype, width", CONFIGURATIONS)
@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("step", [False, True], ids=["chunk", "step"])
def test_assembles_without_spills(ptxas, tmp_path, operator, dtype, width, step, request):
    if (dtype, width) in (STEP_SPILLS if step else CHUNK_SPILLS).get(operator, ()):
        request.applymarker(pytest.mark.xfail(strict=True, reason="more numbers than registers"))
    inverts = operator in ("delta_rule", "gated_delta_rule") and dtype == "bf16" and not step
    assert spilled(ptxas, tmp_path, lower(operator, dtype, width, step=step)) == [("0", "0")] * (1 + inverts)


@pytest.mark.parametrize("dtype, width", OF_SEVERAL_KERNELS)
@pytest.mark.parametrize("operator", WITH_SEGMENTS)
def test_segments_assemble_without_spills(ptxas, tmp_path, operator, dtype, width, request):
    if (dtype, width) in SEGMENT_SPILLS.get(operator, ()):
        request.applymarker(pytest.mark.xfail(strict=True, reason="more numbers than registers"))
    kernels = spilled(ptxas, tmp_path, lower(operator, dtype, width, segments=True))
    feedback = 5 if dtype == "bf16" else 4  # what feedback does to states, and inverses
    parts = {"lawcat": 4, "abc": 5, "delta_rule": feedback, "gated_delta_rule": feedback}
    assert len(kernels) == parts.get(operator, 3)
    assert set(kernels) == {("0", "0")}


@pytest.mark.parametrize("backward, part", [(False, "starts"), (True, "backward_cotangent_starts")])
def test_what_finds_the_starts_of_segments_has_slices(backward, part):
    """It is asked for where heads are few, and adds up numbers of a column by themselves."""
    kernels = lower("gla", "bf16", 128, "kernel", segments=True, backward=backward)
    slices = re.search(rf"@gla_{part}\(.*slices[^:]*:(\d+)", kernels)
    assert slices and slices[1] == "8"


@pytest.mark.parametrize("operator", WITH_SEGMENTS)
def test_segments_of_the_widest_heads_fit_shared_memory(operator):
    # In fp32 the matrices that feedback leaves do not fit, and calls have no segments.
    dtype = "bf16" if operator in ("delta_rule", "gated_delta_rule") else "fp32"
    assert f"kernel.func @{operator}_starts(" in lower(operator, dtype, 256, "kernel", segments=True)


@pytest.mark.parametrize("dtype, width", CONFIGURATIONS)
@pytest.mark.parametrize("operator", LOOKBACKS)
@pytest.mark.parametrize("step", [False, True], ids=["chunk", "step"])
def test_lookbacks_assemble_without_spills(ptxas, tmp_path, operator, dtype, width, step, request):
    if operator == "relation_kl" and step:
        with pytest.raises(stretto.Error, match="no step form: looks back at earlier tokens without a bound"):
            lower(operator, dtype, width, step=True)
        return
    if (dtype, width) in LOOKBACK_SPILLS.get((operator, step), ()):
        request.applymarker(pytest.mark.xfail(strict=True, reason="more tiles than registers"))
    assert spilled(ptxas, tmp_path, lower(operator, dtype, width, step=step)) == [("0", "0")]


@pytest.mark.parametrize("dtype, width", OF_SEVERAL_KERNELS)
@pytest.mark.parametrize("operator", {**OPERATORS, **LOOKBACKS})
def test_gradients_assemble_without_spills(ptxas, tmp_path, operator, dtype, width, request):
    kernels = spilled(ptxas, tmp_path, lower(operator, dtype, width, backward=True))
    if (dtype, width) in SPILLS.get(operator, ()):
        request.applymarker(pytest.mark.xfail(strict=True, reason="more tiles than registers"))
    assert set(kernels) == {("0", "0")}


def bytes_spilled(ptxas, folder, ptx):
    """Of each kernel, the most first."""
    return sorted((int(stored) for _, stored in spilled(ptxas, folder, ptx)), reverse=True)


@pytest.mark.parametrize(
    "operator, form, most",
    [("simple_gla", (64, 1, 8, 1), 9), ("ssd", (64, 1, 8, 1), 11), ("gated_delta_rule", (32, 1, 8, 1), 16)],
)
def test_walks_back_of_token_decays_meet_at_few_barriers(operator, form, most):
    """Sums that warps leave to each other have bytes of their own, where other tiles have none, too."""
    text = lower(operator, "bf16", 128, "kernel", backward=True, form=form)
    walk = text[text.index(f"@{operator}_backward(") :].split("kernel.func")[0]
    assert len(re.findall(r"kernel\.(?:barrier|await)", walk)) <= most


@pytest.mark.parametrize("operator, most", [("delta_rule", 0), ("gated_delta_rule", 48)])
def test_slices_of_walks_spill_little(ptxas, tmp_path, operator, most):
    first, *others = bytes_spilled(ptxas, tmp_path, lower(operator, "bf16", 128, backward=True, form=(64, 1, 0, 2, 4)))
    assert first <= most and not any(others)


@pytest.mark.parametrize(
    "operator, walks, divided", [("lawcat", 0, False), ("lawcat", 1, False), ("simple_gla", 1, True)]
)
def test_slices_repeat_little_where_heads_fill_the_chip(operator, walks, divided):
    """Each slice of LAWCAT's gradient forms all feature maps; of simple GLA's, at width 256, little that others do."""
    sizes = dict.fromkeys(OPERATORS[operator], 128 if operator == "lawcat" else 256)
    variant = getattr(stretto.ops, operator).variant
    text = variant.lower("chunk", target="sm_90a", dtype="bf16", backward=True, form=(0, 1, 0, walks), **sizes)
    assert ("slices 4" in text) == divided


def test_slices_that_a_form_leaves_open():
    """They are one, where the first form that is looked at does not fit, too: the search then divides the values."""
    made = functools.partial(stretto.ops.lolcats.variant.lower, "kernel", target="sm_90a", dtype="bf16", backward=True)
    texts = [made(form=(0, slices, 0, 1), D=128, V=128, F=128) for slices in (0, 1)]
    assert texts[0] == texts[1]


def test_one_walk_back_keeps_some_of_its_tiles_in_memory():
    """Rather than that it took half as many tokens, and twice as many states out of memory."""
    variant = stretto.ops.rwkv6.variant
    text = variant.lower("chunk", target="sm_90a", dtype="bf16", backward=True, form=(0, 1, 0, 1), K=128, V=128)
    assert "@rwkv6_backward chunk 32 reverse" in text


def test_two_walks_back_where_they_have_more_tokens():
    """With segments side by side one walk back is enough, unless it has so much to do for each token that its chunks
    are smaller: here a layer norm lies between the state and the results.
    """
    variant = stretto.load(pathlib.Path(__file__).parents[1] / "Inputs/retention_layer_norm.mlir")
    sizes = dict(target="sm_90a", dtype="bf16", backward=True, segments=True, K=128, V=128)

    def kernels(walks):
        chunks = variant.lower("chunk", **sizes, form=(0, 1, 0, walks))
        return dict(re.findall(r"chunk\.kernel @\w+_backward(\w*) chunk (\d+)", chunks))

    assert set(kernels(walks=1).values()) == {"32"} and "_cotangents" not in kernels(walks=1)
    assert kernels(walks=0) == kernels(walks=2)
    assert set(kernels(walks=0).values()) == {"64"} and "_cotangents" in kernels(walks=0)


@pytest.mark.parametrize("operator, bytes_of_form", [("gla", 0), ("hgrn2", 24), ("rwkv6", 0), ("delta_rule", None)])
def test_walks_back_find_states_between_checkpoints(ptxas, tmp_path, operator, bytes_of_form):
    """Of chunks of 32 tokens every second one has a checkpoint where one product makes the next state of that."""
    sizes = dict.fromkeys(OPERATORS[operator], 128)
    variant = getattr(stretto.ops, operator).variant
    settings = dict(target="sm_90a", dtype="bf16", backward=True, form=(32, 1, 8, 1)) | sizes
    text = variant.lower("chunk", **settings)
    assert (f"reverse between @{operator}_backward_checkpoints(" in text) == (bytes_of_form is not None)
    planned = variant.lower("kernel", **settings)
    assert planned.count("kernel.replace") == (bytes_of_form is not None)
    if bytes_of_form is not None:
        assert bytes_spilled(ptxas, tmp_path, variant.lower("ptx", **settings))[0] <= bytes_of_form


@pytest.mark.parametrize("segments", [False, True])
@pytest.mark.parametrize(
    "operator, warps",
    [("gla", 4), ("hgrn2", 4), ("lolcats", 4), ("bla", 4), ("gsa", 8), ("lawcat", 8), ("rwkv6", 4)],
)
def test_two_blocks_share_a_multiprocessor(ptxas, tmp_path, operator, warps, segments):
    """Those of four warps whose registers and memory suffice, where calls have so many."""
    ptx = lower(operator, "bf16", 64, segments=segments, form=(0, 1, 0, 0, 0, 0, 2))
    results = ptx[ptx.index(f".entry {operator}(") :]
    assert f".reqntid {32 * warps}," in results[: results.index("{")]
    assert set(spilled(ptxas, tmp_path, ptx)) == {("0", "0")}
    if warps == 4:
        planned = lower(operator, "bf16", 64, "kernel", segments=segments, form=(0, 1, 0, 0, 0, 0, 2))
        assert int(re.search(rf"@{operator}\(.* shared (\d+) ", planned)[1]) <= (228 - 2) * 1024 // 2


@pytest.mark.parametrize("width", [64, 128])
def test_two_blocks_of_chunks_that_meet_others_share_a_multiprocessor(ptxas, tmp_path, width):
    """Of a gradient, too, whose outputs leave by way of tiles that nobody reads any longer."""
    ptx = lower("relation_kl", "bf16", width, backward=True)
    assert ptx.count(".reqntid 128,") == 2
    assert set(spilled(ptxas, tmp_path, ptx)) == {("0", "0")}
    planned = lower("relation_kl", "bf16", width, "kernel", backward=True)
    shared = [int(number) for number in re.findall(r"@relation_kl\w*\(.* shared (\d+) ", planned)]
    assert len(shared) == 2 and max(shared) <= (228 - 2) * 1024 // 2


@pytest.mark.parametrize("width", [64, 128])
def test_three_blocks_of_a_divergence_share_a_multiprocessor(ptxas, tmp_path, width):
    """Where tiles are read by products alone, at the beginning, they come one at a time; descriptors of products stay
    in uniform registers, so that three instructions stand between two of them.
    """
    ptx = lower("relation_kl", "bf16", width)
    assert ".minnctapersm 3" in ptx
    assert set(spilled(ptxas, tmp_path, ptx)) == {("0", "0")}
    (shared,) = re.findall(r"@relation_kl\(.* shared (\d+) ", lower("relation_kl", "bf16", width, "kernel"))
    assert int(shared) <= (228 - 3) * 1024 // 3
    (instructions,) = kernels_of(tmp_path / "kernel.cubin").values()
    products = [place for place, line in enumerate(instructions) if line.startswith("HGMMA")]
    assert len(products) == 2 * width // 16
    apart = [later - earlier for earlier, later in itertools.pairwise(products)]
    assert sum(apart) <= 4 * len(products)


@pytest.mark.parametrize("segments", [False, True], ids=["whole", "segments"])
def test_slots_take_columns_by_the_eight(ptxas, tmp_path, segments):
    """65 slots are formed by warpgroups as 72 columns, not as 128 rows: 2900 instructions, where 6400 were."""
    sizes = dict(modes=32.0, period=130.0, decay="none", K=128, V=128)
    variant = stretto.ops.bla.variant
    ptx = variant.lower("ptx", target="sm_90a", dtype="bf16", segments=segments, **sizes)
    assert set(spilled(ptxas, tmp_path, ptx)) == {("0", "0")}
    kernels = kernels_of(tmp_path / "kernel.cubin")
    products = [line.split(".")[1:2] for line in kernels["bla"] if line.startswith(("HGMMA", "HMMA"))]
    assert products.count(["64x72x16"]) == 32 and products.count(["64x64x16"]) == 27 and len(products) == 59
    if not segments:
        assert len(kernels["bla"]) <= 3000


def test_gradients_of_slots_spill_little(ptxas, tmp_path):
    """The walk back nothing; the walk forward, which leaves what that asks for, 68 bytes where 228 were."""
    sizes = dict(modes=32.0, period=130.0, decay="none", K=128, V=128)
    ptx = stretto.ops.bla.variant.lower("ptx", target="sm_90a", dtype="bf16", backward=True, form=(0, 1, 0, 1), **sizes)
    first, second = bytes_spilled(ptxas, tmp_path, ptx)
    assert first <= 72 and second == 0


def test_whole_tiles_ask_for_no_pairs(ptxas, tmp_path):
    """1688 instructions, where 2280 were as long as each tile asked which of its pairs are in range."""
    spilled(ptxas, tmp_path, lower("relation_kl", "bf16", 128))
    (instructions,) = kernels_of(tmp_path / "kernel.cubin").values()
    assert len(instructions) <= 1750


def test_gradients_of_a_delta_rule_of_channels_assemble(ptxas, tmp_path):
    """The results keep 48 bytes in memory: numbers of tokens are there before tiles are."""
    ptx = channel_delta.lower("ptx", target="sm_90a", dtype="bf16", backward=True, K=128, V=128)
    assert "channel_delta_backward_cotangents" in ptx
    first, *others = bytes_spilled(ptxas, tmp_path, ptx)
    assert first <= 48 and not any(others)


@pytest.mark.parametrize("operator, most", [("gla", 0), ("hgrn2", 32), ("rwkv6", 0)])
def test_walks_back_form_tokens_across(ptxas, tmp_path, operator, most):
    """Warpgroups form all products but those of 32 by 32, and lanes of one warp have all tokens of a channel: GLA's
    walk back had 216 products of warps, 230 loads for them and 40 barriers.
    """
    ptx = lower(operator, "bf16", 128, backward=True, form=(32, 1, 0, 1))
    assert max(bytes_spilled(ptxas, tmp_path, ptx)) <= most
    instructions = kernels_of(tmp_path / "kernel.cubin")[f"{operator}_backward"]

    assert sum("HGMMA" in line for line in instructions) >= 48
    # With those of the branch that forms pairs exactly.
    assert sum("HMMA" in line for line in instructions) <= 56
    assert sum("LDSM" in line for line in instructions) <= 152
    assert sum("BAR.SYNC" in line for line in instructions) <= 39


@pytest.mark.parametrize("width", [64, 128])
@pytest.mark.parametrize(("operator", "are_by_halves"), [("gla", True), ("rwkv6", True), ("hgrn2", False)])
def test_gradients_out_of_range_come_by_halves(operator, are_by_halves, width):
    """Pairs that no rescaled rows have in range come from products, and from no walk over tokens, where decays are
    logarithms."""
    planned = lower(operator, "bf16", width, "kernel", backward=True)
    assert ("chunk.decay_mix" in planned or "chunk.decay_dot" in planned) != are_by_halves
    assert ("chunk.middle" in planned) == are_by_halves


@pytest.mark.parametrize("operator", {**OPERATORS, **LOOKBACKS})
def test_gradients_in_segments_assemble_without_spills(ptxas, tmp_path, operator, request):
    if operator in WITHOUT_GRADIENT_SEGMENTS:
        with pytest.raises(stretto.Error, match="no segmented form"):
            lower(operator, "bf16", 128, backward=True, segments=True)
        return
    kernels = spilled(ptxas, tmp_path, lower(operator, "bf16", 128, backward=True, segments=True))
    if operator in GRADIENT_SEGMENT_SPILLS:
        request.applymarker(pytest.mark.xfail(strict=True, reason="more tiles than registers"))
    assert set(kernels) == {("0", "0")}


WIDE = [
    (operator, dtype, form)
    for operator in {**OPERATORS, **LOOKBACKS}
    for dtype in ("bf16", "fp32")
    for form in ("chunk", "step", "backward")
    if (operator, form) != ("relation_kl", "step")
]


@pytest.mark.parametrize("operator, dtype, form", WIDE)
def test_the_widest_heads_fit_shared_memory(operator, dtype, form):
    settings = {} if form == "chunk" else {form: True}
    assert f"kernel.func @{operator}" in lower(operator, dtype, 256, "kernel", **settings)


def test_tiles_of_branches_stay_there_where_memory_is_scarce():
    """They were stored in front of the branch that makes them."""
    assert "kernel.func @lawcat" in lower("lawcat", "bf16", 256, "kernel", form=(64, 1, 0))


@pytest.mark.parametrize(
    "operator, dtype, backward", [("supra", "fp32", True), ("gsa", "bf16", True), ("lolcats", "fp32", False)]
)
def test_matrices_in_panels_assemble(ptxas, tmp_path, operator, dtype, backward):
    assert spilled(ptxas, tmp_path, lower(operator, dtype, 256, backward=backward))


def test_panels_are_columns_of_what_a_call_has():
    """Panels of a state are columns of its entry, panels of a parameter columns of the parameter."""
    text = stretto.ops.supra.variant.lower("chunk", target="sm_90a", dtype="fp32", D=256, F=256, V=256)
    assert 'parameter %w_q$128: tensor<256x128xf32> of "w_q" column 128 columns 256' in text
    assert 'state %S$128: tensor<256x128xf32> of "S" column 128 columns 256' in text
    # Where matrices fit as a whole, they stay so.
    assert "$" not in stretto.ops.supra.variant.lower("chunk", target="sm_90a", dtype="fp32", D=128, F=128, V=128)


def test_whole_sequences_with_few_heads_carry_reverse_states_alone():
    """Linear attention, whose walk back asks for no state of the walk forward: segments side by side have one walk."""
    lower = stretto.ops.linear_attn.variant.lower
    kernels = dict(target="sm_90a", dtype="bf16", backward=True)
    assert "@linear_attn_backward_cotangents" in lower("kernel", **kernels)
    assert "@linear_attn_backward_cotangents" not in lower("kernel", **kernels, form=(0, 1, 0, 1))
