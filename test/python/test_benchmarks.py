"""What the committed results of the benchmark have to show. Nothing is measured here."""

import json
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[2]
RESULTS = [path for path in sorted((ROOT / "bench/results").glob("*.json")) if "chunks" in json.loads(path.read_text())]
WITHOUT_STEPS = {"relation_kl"}  # a loss


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.stem)
def test_no_chunk_form_is_slower_than_its_step_form(path):
    lines = json.loads(path.read_text())["chunks"]
    slower = [(line["operator"], line["T"], line["dtype"], line["ratio"]) for line in lines if not line["ratio"] >= 1]
    assert not slower
    assert all(line["T"] >= 256 for line in lines)
    assert {line["operator"] for line in lines} == {path.name for path in (ROOT / "models").iterdir()} - WITHOUT_STEPS


def test_forms_were_measured():
    assert RESULTS, "no file of bench/results/ has the table 'chunks'; bench/run.py --tables chunks writes it"
