"""A run killed in the middle loses no finished item and ends with the records of an unbroken one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ragkit.errors import ServiceError
from ragkit.evaluation.experiment import Journal
from ragkit.records import Completion

ROOT = Path(__file__).resolve().parents[1]
DONE = Completion("Paris", "stop", 3, 1, 0.25)


def test_a_journal_gives_back_what_was_put(tmp_path):
    with Journal(tmp_path / "j.jsonl") as journal:
        journal.put("a", DONE)
    with Journal(tmp_path / "j.jsonl") as journal:
        assert journal.get("a") == DONE
        assert journal.get("b") is None


@pytest.mark.parametrize(
    "torn", ['{"key": "b", "compl', "\x00\x00\x00", '{"key": "b"}\n{"key": "c", "completion": {"text": 1}}\n']
)
def test_a_torn_end_is_cut_off_and_the_rest_is_kept(tmp_path, torn):
    file = tmp_path / "j.jsonl"
    with Journal(file) as journal:
        journal.put("a", DONE)
    whole = file.read_text(encoding="utf-8")
    file.write_text(whole + torn, encoding="utf-8")
    with Journal(file) as journal:
        assert journal.get("a") == DONE
        journal.put("b", DONE)
    assert file.read_text(encoding="utf-8") == whole + whole.replace('"a"', '"b"')


def test_two_runs_cannot_write_one_journal(tmp_path):
    with Journal(tmp_path / "j.jsonl"), pytest.raises(ServiceError, match="another run"), Journal(tmp_path / "j.jsonl"):
        pass


def evaluation(out: Path) -> subprocess.Popen:
    words = ["eval", "--profile", "ci", "--arms", "A0", "--limit", "5", "--out", str(out)]
    return subprocess.Popen(
        [sys.executable, "-m", "ragkit.cli", *words], cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True
    )


@pytest.mark.models
def test_an_evaluation_killed_twice_ends_as_an_unbroken_one(tmp_path):
    assert evaluation(tmp_path / "whole").wait() == 0
    journal = tmp_path / "killed" / "journal" / "A0.jsonl"
    for items in (1, 3):
        running = evaluation(tmp_path / "killed")
        while running.poll() is None and (not journal.exists() or journal.read_bytes().count(b"\n") < items):
            time.sleep(0.02)
        os.killpg(running.pid, signal.SIGKILL)
        running.wait()
    kept = journal.read_bytes()
    assert kept.count(b"\n") >= 3
    assert evaluation(tmp_path / "killed").wait() == 0
    assert journal.read_bytes().startswith(kept[: kept.rindex(b"\n") + 1])
    assert (tmp_path / "killed" / "A0.jsonl").read_bytes() == (tmp_path / "whole" / "A0.jsonl").read_bytes()
    report = json.loads((tmp_path / "killed" / "rag_report.json").read_text(encoding="utf-8"))
    assert report["arms"]["A0"]["accuracy"]["n"] == 5
