"""A run killed in the middle loses no finished item and ends with the records of an unbroken one."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import ClassVar

import pytest

from ragkit.answering import bare_prompt
from ragkit.errors import ServiceError
from ragkit.evaluation.arms import ArmPrompt
from ragkit.evaluation.experiment import Journal, run_arm
from ragkit.records import Completion, Task

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


class Recording:
    """A stand-in that answers each prompt with the prompts of its batch, as a real one's last bits depend on them."""

    batch_size = 2
    identity: ClassVar[dict] = {"model": "recording"}

    def __init__(self, answers: int = 99):
        self.asked: list[str] = []
        self._left = answers

    def iter_answers(self, prompts):
        for start in range(0, len(prompts), self.batch_size):
            batch = [prompt[0]["content"] for prompt in prompts[start : start + self.batch_size]]
            for text in batch:
                if not self._left:
                    raise KeyboardInterrupt
                self._left -= 1
                self.asked.append(text)
                yield Completion(f"{text} of {batch}", "stop", 1, 1, 0.0)


@pytest.mark.parametrize("answers", range(5))
def test_a_batch_that_was_cut_is_asked_again_whole(tmp_path, answers):
    tasks = [Task(f"t{n}", f"question {n}", "x", (), ()) for n in range(5)]
    prompts = [ArmPrompt(task, "A0", bare_prompt(task.question)) for task in tasks]
    whole, _ = run_arm(prompts, Recording(), tmp_path / "whole.jsonl", progress=False)
    with pytest.raises(KeyboardInterrupt):
        run_arm(prompts, Recording(answers), tmp_path / "cut.jsonl", progress=False)
    second = Recording()
    again, _ = run_arm(prompts, second, tmp_path / "cut.jsonl", progress=False)
    assert again == whole
    assert len(second.asked) == 5 - answers // 2 * 2
