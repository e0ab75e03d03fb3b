"""Rows of a run: one JSON line an item and arm, stored whole, read back, and paired on the same items. It loads no model.

The same rows go to `items.parquet`, one row an item and arm, for whoever wants to look at them with another tool.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragkit.corpus.tasks import holds
from ragkit.errors import InputError, ServiceError
from ragkit.lab.metrics import as_json, write_text
from ragkit.records import Chunk, Gold, Task

Record = dict[str, Any]

# Columns of items.parquet; what a row of an older run lacks is null there.
_COLUMNS = {
    "task_id": "string", "arm": "string", "split": "string", "kind": "string", "answerable": "bool", "cluster": "string",
    "question": "string", "gold_answer": "string", "answer": "string", "correct": "bool", "rule": "string", "refused": "bool",
    "finish_reason": "string", "context": "list", "context_tokens": "int64", "cut": "int64", "article_in_context": "bool",
    "gold_chunk_rank": "int64", "prompt_tokens": "int64", "completion_tokens": "int64", "prompt_sha256": "string",
}  # fmt: skip


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


def write_items(records: Mapping[str, Sequence[Record]], folder: str | Path) -> Path:
    """Write `items.parquet`: the rows of all arms, sorted by task id and arm, whole or not at all, the same bytes each time.

    Raises
    ------
    ServiceError
        As for `write_records`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted((row for arm in records.values() for row in arm), key=lambda row: (row["task_id"], row["arm"]))
    kinds = {"string": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "list": pa.list_(pa.string())}
    table = pa.table({name: pa.array([row.get(name) for row in rows], kinds[kind]) for name, kind in _COLUMNS.items()})
    file = Path(folder) / "items.parquet"
    beside = file.with_name(f".{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, beside)
        os.replace(beside, file)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ServiceError(f"cannot write {file}: {error.strerror or error}; free space or choose another folder") from error
    return file


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
