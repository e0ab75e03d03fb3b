"""Rows of a run: one JSON line an item and arm, stored whole, read back, and paired on the same items. It loads no model."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ragkit.errors import InputError

Record = dict[str, Any]


def write_records(records: Sequence[Record], file: Path) -> None:
    """Write rows as JSON lines, whole or not at all."""
    _replace(file, "".join(json.dumps(row, ensure_ascii=False, sort_keys=True) + "\n" for row in records))


def write_whole(file: Path, value: Any) -> None:
    """Write one JSON value, whole or not at all; NaN is refused."""
    _replace(file, json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n")


def _replace(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    beside = file.with_name(f".{file.name}")
    beside.write_text(text, encoding="utf-8")
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
