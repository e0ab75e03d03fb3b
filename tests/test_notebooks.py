"""Every chapter, executed by the same code at the smallest scale: profile `ci`, real weights, a fresh artifacts folder."""

import json
from pathlib import Path

import pytest

from ragkit.evaluation.experiment import run_profile_arm
from ragkit.lab import run_notebook
from ragkit.profile import load_profile
from ragkit.retrieval import freeze

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted(path.stem for path in (ROOT / "notebooks").glob("[0-9][0-9]_*.py"))

pytestmark = pytest.mark.models


@pytest.fixture(scope="module")
def artifacts(tmp_path_factory):
    """The index, the query vectors and the rows of every arm of profile ci."""
    folder = tmp_path_factory.mktemp("artifacts")
    freeze("ci", folder)
    for arm in load_profile("ci").evaluation.arms:
        run_profile_arm("ci", "dev", arm, folder)
    return folder


def test_the_stages_leave_what_the_design_names(artifacts):
    here = artifacts / "ci"
    index = json.loads((here / "index.json").read_text(encoding="utf-8"))
    assert len(json.loads((here / "query_ids.json").read_text(encoding="utf-8"))) == index["queries"]
    for arm in load_profile("ci").evaluation.arms:
        rows = [json.loads(line) for line in (here / "runs" / "dev" / f"{arm}.jsonl").read_text(encoding="utf-8").splitlines()]
        assert len(rows) == load_profile("ci").evaluation.limit
        assert {row["arm"] for row in rows} == {arm}
    assert not list((here / "journal").glob("*.jsonl"))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_the_chapter_runs_top_to_bottom(name, artifacts):
    path = run_notebook(ROOT / "notebooks" / f"{name}.py", "ci", artifacts=artifacts, progress=False)
    outputs = [out for cell in json.loads(path.read_text(encoding="utf-8"))["cells"] for out in cell.get("outputs", [])]
    assert outputs
    assert [out for out in outputs if out["output_type"] == "error"] == []
    metrics = json.loads((artifacts / "ci" / "metrics" / f"{name}.json").read_text(encoding="utf-8"))
    assert metrics


def test_a_second_run_of_a_chapter_gives_the_same_bytes(artifacts):
    source = ROOT / "notebooks" / f"{NOTEBOOKS[-1]}.py"
    first = run_notebook(source, "ci", artifacts=artifacts, progress=False).read_bytes()
    assert run_notebook(source, "ci", artifacts=artifacts, progress=False).read_bytes() == first
