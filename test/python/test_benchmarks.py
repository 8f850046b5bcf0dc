"""What the committed results of the benchmark have to show. Nothing is measured here."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = [path for path in sorted((ROOT / "bench/results").glob("*.json")) if "chunks" in json.loads(path.read_text())]
WITHOUT_STEPS = {"relation_kl"}  # a loss


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_no_chunk_form_is_slower_than_its_step_form(path):
    """Of a GPU some kernels may be refused, where shared memory is too small for a width."""
    results = json.loads(path.read_text())
    lines = results["chunks"]
    measured = [line for line in lines if "refused" not in line]
    ratios = {(line["operator"], line["T"], line["dtype"]): line["ratio"] for line in measured}
    slower = {form: ratio for form, ratio in ratios.items() if not ratio >= 1}
    assert measured
    assert not slower
    assert all(line["T"] >= 256 for line in lines)
    assert {line["operator"] for line in lines} == {path.name for path in (ROOT / "models").iterdir()} - WITHOUT_STEPS
    assert "NVIDIA" in results["machine"]["processor"] or measured == lines


def test_forms_were_measured():
    assert RESULTS, "no file of bench/results/ has the table 'chunks'; bench/run.py --tables chunks writes it"
