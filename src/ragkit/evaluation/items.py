"""Rows of a run: one JSON line an item and arm, stored whole, read back, and paired on the same items. It loads no model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragkit.corpus.tasks import holds
from ragkit.errors import InputError
from ragkit.lab.metrics import as_json, write_text
from ragkit.records import Chunk, Gold, Task

Record = dict[str, Any]


def covers(task: Task, gold: Gold, chunk: Chunk) -> bool:
    """Whether a chunk is evidence for one gold of a task: it shares characters with the gold span.

    A gold without a span is covered by a chunk of its article that holds the gold answer or an alias.
    """
    if gold.article_id != chunk.article_id:
        return False
    if gold.start is None or gold.end is None:
        return any(holds(chunk.text, answer) for answer in (task.gold_answer, *task.aliases))
    return gold.start < chunk.end and chunk.start < gold.end


def write_records(records: Sequence[Record], file: Path) -> None:
    """Write rows as JSON lines, whole or not at all.

    Raises
    ------
    ServiceError
        The folder cannot be written or the disk is full.
    """
    write_text(file, "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in records))


def write_whole(file: Path, value: Mapping[str, Any]) -> None:
    """Write one JSON object, whole or not at all; floats keep six significant digits, NaN is refused.

    Raises
    ------
    InputError
        A value is NaN, infinite or no plain data.
    ServiceError
        As for `write_records`.
    """
    write_text(file, as_json(value))


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
            # Not splitlines: an answer may hold a line separator that JSON leaves as it is.
            records[arm] = [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line]
        except ValueError as error:
            raise InputError(f"{file} does not parse ({error}): run the arm again") from error
    return records


def paired(treated: Sequence[Record], control: Sequence[Record]) -> list[tuple[Record, Record]]:
    """Rows of two arms on the same items, in order of task id; answerable items that both arms ran.

    Raises
    ------
    InputError
        The arms share no answerable item, or were asked different questions under one task id (runs of different tasks).
    """
    other: Mapping[str, Record] = {row["task_id"]: row for row in control}
    pairs = [(row, other[row["task_id"]]) for row in treated if row["answerable"] and row["task_id"] in other]
    if not pairs:
        raise InputError("the two arms share no answerable item: nothing can be paired")
    for a, b in pairs:
        if a["question"] != b["question"]:
            raise InputError(f"task {a['task_id']} was another question in arm {b['arm']}: run both arms on the same tasks")
    return sorted(pairs, key=lambda pair: pair[0]["task_id"])
