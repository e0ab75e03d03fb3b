"""The experiment: every arm on the same items, journalled so that a killed run loses nothing, and its records as plain rows.

It puts prompts to a reader and checks what comes back. It never searches by itself and never decides what is significant.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.evaluation.arms import ArmPrompt, arm_prompts
from ragkit.evaluation.checking import check_answer
from ragkit.lab import write_timings
from ragkit.models import open_reader
from ragkit.profile import Profile, load_profile
from ragkit.records import Completion
from ragkit.retrieval.frozen import open_frozen

if TYPE_CHECKING:
    from ragkit.models import Reader

Record = dict[str, Any]


def _sha(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode()).hexdigest()


class Journal:
    """Completions written one by one as they come, keyed by prompt and reader, in a folder that is not committed."""

    def __init__(self, file: Path):
        self.file = file
        self._lock = FileLock(f"{file}.lock")
        self._done: dict[str, Completion] = {}

    def __enter__(self) -> Journal:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            self._lock.acquire(timeout=0)
        except Timeout as error:
            raise ServiceError(f"another run is writing {self.file}: wait for it to end, or stop it") from error
        whole = 0
        if self.file.exists():
            for line in self.file.read_bytes().splitlines(keepends=True):
                try:
                    row = json.loads(line)
                    self._done[row["key"]] = Completion(**row["completion"])
                except (ValueError, TypeError, KeyError):
                    break  # the line that a kill tore: everything before it is whole
                whole += len(line)
            with self.file.open("r+b") as handle:
                handle.truncate(whole)
        self._handle = self.file.open("a", encoding="utf-8")
        return self

    def __exit__(self, *_: object) -> None:
        self._handle.close()
        self._lock.release()

    def get(self, key: str) -> Completion | None:
        """The completion kept under a key, or None."""
        return self._done.get(key)

    def put(self, key: str, completion: Completion) -> None:
        """Keep a completion; it is on disk when this returns."""
        fields = ("text", "finish_reason", "prompt_tokens", "completion_tokens", "seconds")
        row = {"key": key, "completion": {name: getattr(completion, name) for name in fields}}
        self._handle.write(json.dumps(row, ensure_ascii=False) + "\n")
        self._handle.flush()
        os.fsync(self._handle.fileno())
        self._done[key] = completion

    def forget(self) -> None:
        """Remove the journal: its run is complete and stored elsewhere."""
        self.file.unlink(missing_ok=True)


def _rank_of(ids: Iterable[str], wanted: set[str]) -> int | None:
    """Rank (from 1) of the first wanted id, or None."""
    return next((rank for rank, key in enumerate(ids, start=1) if key in wanted), None)


def _record(prompt: ArmPrompt, prompt_digest: str, completion: Completion) -> Record:
    task = prompt.task
    verdict = check_answer(
        completion.text, task.gold_answer, task.aliases, answerable=task.answerable, finish_reason=completion.finish_reason
    )
    gold_articles = {gold.article_id for gold in task.golds}
    covering = [
        chunk.chunk_id
        for chunk in prompt.context
        if any(g.article_id == chunk.article_id and _overlaps(g.start, g.end, chunk.start, chunk.end) for g in task.golds)
    ]
    return {
        "task_id": task.task_id,
        "arm": prompt.arm,
        "split": task.split,
        "kind": task.kind,
        "answerable": task.answerable,
        "cluster": task.golds[0].article_id if task.golds else None,
        "question": task.question,
        "gold_answer": task.gold_answer,
        "answer": completion.text,
        "correct": verdict.correct,
        "rule": verdict.rule,
        "refused": verdict.refused,
        "finish_reason": completion.finish_reason,
        "context": [chunk.chunk_id for chunk in prompt.context],
        "context_tokens": prompt.context_tokens,
        "cut": prompt.cut,
        "article_in_context": bool(gold_articles & {chunk.article_id for chunk in prompt.context}),
        "gold_chunk_rank": _rank_of((chunk.chunk_id for chunk in prompt.context), set(covering)),
        "prompt_tokens": completion.prompt_tokens,
        "completion_tokens": completion.completion_tokens,
        "prompt_sha256": prompt_digest,
    }


def _overlaps(start: int | None, end: int | None, low: int, high: int) -> bool:
    return start is not None and end is not None and start < high and low < end


def run_arm(prompts: Sequence[ArmPrompt], reader: Reader, journal: Path, progress: bool = True) -> tuple[list[Record], list[float]]:
    """Put one arm's prompts to the reader and check the answers; what a killed run finished is not asked again.

    Parameters
    ----------
    journal : file of this run's journal; it stays until `Journal.forget`, so that the caller stores the records first.

    Returns
    -------
    (records, seconds): one row a task in the order of `prompts`, and the reader's wall seconds for each.
    """
    digests = [_sha(prompt.messages) for prompt in prompts]
    keys = [_sha([digest, reader.identity]) for digest in digests]
    with Journal(journal) as kept:
        missing = [place for place, key in enumerate(keys) if kept.get(key) is None]
        name = prompts[0].arm if prompts else "arm"
        bar = tqdm(total=len(prompts), initial=len(prompts) - len(missing), desc=name, unit="item", disable=not progress)
        for place, completion in zip(missing, reader.iter_answers([prompts[p].messages for p in missing]), strict=True):
            kept.put(keys[place], completion)
            bar.update(1)
        bar.close()
        completions = [kept.get(key) for key in keys]
    records = [_record(p, d, c) for p, d, c in zip(prompts, digests, completions, strict=True) if c is not None]
    return records, [completion.seconds for completion in completions if completion is not None]


def write_records(records: Sequence[Record], file: Path) -> None:
    """Write rows as JSON lines, whole or not at all."""
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}")
    beside.write_text("".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in records), encoding="utf-8")
    os.replace(beside, file)


def read_records(folder: str | Path, arms: Sequence[str]) -> dict[str, list[Record]]:
    """The stored rows of each arm of a run.

    Raises
    ------
    InputError
        An arm has not been run, or its file does not parse.
    """
    records = {}
    for arm in arms:
        file = Path(folder) / f"{arm}.jsonl"
        if not file.is_file():
            raise InputError(f"arm {arm} has no records in {folder}: run `make rerun`, or `ragkit eval --arms {arm}`")
        try:
            records[arm] = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        except ValueError as error:
            raise InputError(f"{file} does not parse ({error}): run the arm again") from error
    return records


def paired(treated: Sequence[Record], control: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Rows of two arms on the same items, in order of task id; answerable items that both arms ran.

    Raises
    ------
    InputError
        The arms share no answerable item.
    """
    other: Mapping[str, Record] = {row["task_id"]: row for row in control}
    pairs = [(row, other[row["task_id"]]) for row in treated if row["answerable"] and row["task_id"] in other]
    if not pairs:
        raise InputError("the two arms share no answerable item: nothing can be paired")
    return sorted(pairs, key=lambda pair: pair[0]["task_id"])


def run_profile_arm(profile: str | Path | Profile, arm: str, artifacts: str | Path, journal: Path) -> None:
    """One arm of a profile on its frozen tasks: rows to `runs/ARM.jsonl`, times to `metrics/eval_ARM.timings.json`."""
    profile = load_profile(profile)
    frozen = open_frozen(profile, artifacts)
    tasks = frozen.select(profile.evaluation.split, profile.evaluation.limit)
    with open_reader(profile) as reader:
        prompts = arm_prompts(
            arm,
            tasks,
            frozen.hits(tasks, profile.retrieval.k),
            frozen.index.chunks,
            profile.reader.context_tokens,
            reader.count_tokens,
        )
        records, seconds = run_arm(prompts, reader, journal)
    folder = Path(artifacts) / profile.name
    write_records(records, folder / "runs" / f"{arm}.jsonl")
    write_timings(f"eval_{arm}", timings(records, seconds), profile.name, artifacts)
    Journal(journal).forget()


def timings(records: Sequence[Record], seconds: Sequence[float]) -> dict[str, float]:
    """Seconds an item and tokens a second of one arm (wall time of the reader alone)."""
    total = sum(seconds)
    return {
        "items": len(records),
        "seconds": total,
        "seconds_per_item": total / len(records) if records else 0.0,
        "completion_tokens_per_second": sum(row["completion_tokens"] for row in records) / total if total else 0.0,
    }
