"""A rerun by real DVC on a small pipeline: it forces every stage, stops where one fails, and goes on from there."""

import json

import pytest

from ragkit import rerun
from ragkit.errors import ServiceError

PIPELINE = """
vars: [artifacts/profiles.yaml]
stages:
  snapshot:
    cmd: echo snapshot >> log.txt
    deps: [source.txt]
  index:
    matrix: {profile: "${profiles}"}
    cmd: echo index-${item.profile} >> log.txt
    deps: [source.txt]
  eval:
    matrix: {profile: "${profiles}", split: [dev], arm: [A0, A1]}
    cmd: test -f allowed || test ${item.arm} = A0 && echo eval-${item.profile}-${item.arm} >> log.txt
    deps: [source.txt]
"""


@pytest.fixture
def pipeline(tmp_path, monkeypatch, root):
    (tmp_path / ".dvc").mkdir()
    (tmp_path / ".dvc" / "config").write_text((root / ".dvc" / "config").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "dvc.yaml").write_text(PIPELINE, encoding="utf-8")
    (tmp_path / "source.txt").write_text("source", encoding="utf-8")
    (tmp_path / "artifacts").mkdir()
    (tmp_path / "artifacts" / "profiles.yaml").write_text("profiles:\n  - cpu\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log(folder) -> list[str]:
    return (folder / "log.txt").read_text(encoding="utf-8").split()


def test_an_unfinished_rerun_goes_on_and_a_finished_one_begins_again(pipeline, capsys):
    with pytest.raises(ServiceError, match="eval@ci-dev-A1 failed"):
        rerun.rerun("ci")
    assert log(pipeline) == ["snapshot", "index-ci", "eval-ci-A0"]
    (pipeline / "allowed").touch()
    rerun.rerun("ci")
    assert log(pipeline) == ["snapshot", "index-ci", "eval-ci-A0", "eval-ci-A1"]
    assert "3 of 4 stages are done" in capsys.readouterr().out
    rerun.rerun("ci")
    assert log(pipeline)[4:] == ["snapshot", "index-ci", "eval-ci-A0", "eval-ci-A1"]


def test_another_profile_is_added_and_keeps_its_own_stages(pipeline):
    rerun.register("vllm-cpu")
    rerun.register("vllm-cpu")
    assert rerun.stages("cpu") == ["snapshot", "index@cpu", "eval@cpu-dev-A0", "eval@cpu-dev-A1"]
    assert rerun.stages("vllm-cpu") == ["snapshot", "index@vllm-cpu", "eval@vllm-cpu-dev-A0", "eval@vllm-cpu-dev-A1"]


def test_what_it_took_elsewhere_is_the_receipts_sum(tmp_path):
    folder = tmp_path / "cpu" / "receipts"
    folder.mkdir(parents=True)
    for name, seconds in (("index", 60.0), ("eval_dev_A4", 90.5)):
        receipt = {"name": name, "seconds": seconds, "machine": {"cpu": "A CPU", "logical_cores": 2}}
        (folder / f"{name}.json").write_text(json.dumps(receipt), encoding="utf-8")
    assert rerun.took_elsewhere(tmp_path) == {"cpu": (150.5, "A CPU, 2 cores")}


def test_answers_that_were_taken_over_count_with_the_time_they_took_then(tmp_path):
    for folder in ("receipts", "metrics"):
        (tmp_path / "cpu" / folder).mkdir(parents=True)
    receipt = {"name": "eval_dev_A4", "seconds": 5.0, "machine": {}, "answers": {"asked": 0, "kept": 8}}
    (tmp_path / "cpu/receipts/eval_dev_A4.json").write_text(json.dumps(receipt), encoding="utf-8")
    (tmp_path / "cpu/metrics/eval_dev_A4.timings.json").write_text('{"seconds": 90.5}', encoding="utf-8")
    assert rerun.took_elsewhere(tmp_path)["cpu"][0] == 90.5


@pytest.mark.parametrize("words", [[], ["cpu", "ci"]])
def test_wrong_words_are_status_2(words):
    assert rerun.main(words) == 2


def test_an_unknown_profile_is_status_1(pipeline, capsys):
    assert rerun.main(["no-such-profile"]) == 1
    assert "unknown profile" in capsys.readouterr().err
