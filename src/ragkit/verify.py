"""The same code on others' collections, by hand: published figures reproduced, and the paired evaluation on SQuAD's questions.

    python -m ragkit.verify FOLDER [reproduce|squad]    a folder with scifact/, cranfield/, ... and squad11_apollo_program.json

What it measures is stored under `artifacts/cpu/metrics/` with receipts, outside the DVC graph; the data stay put.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ragkit.corpus import tasks_digest
from ragkit.errors import InputError, RagkitError
from ragkit.evaluation.collections import read_squad
from ragkit.evaluation.experiment import evaluate
from ragkit.evaluation.fetching import NothingAtHand, collections_at_hand
from ragkit.evaluation.reproduce import read_published, reproduce
from ragkit.lab.metrics import write_metrics
from ragkit.lab.receipts import write_receipt
from ragkit.profile import load_profile

PROFILE = "cpu"
PARTS = ("reproduce", "squad")
PUBLISHED = Path("data/published")
SQUAD = "squad11_apollo_program.json"
SAMPLE = 80
ARMS = ("A0", "A1", "A4", "A6")


def verify_published(at_hand: Mapping[str, tuple[Path, str]]) -> bool:
    """Every published figure whose collection is at hand; True where each is within its tolerance. Stored and printed."""
    started, clock, profile = datetime.now(UTC), time.perf_counter(), load_profile(PROFILE)
    found = reproduce(read_published(PUBLISHED), at_hand, profile, lambda line: print(line, file=sys.stderr, flush=True))
    write_metrics("reproduced", found.as_dict(), PROFILE)
    seconds = time.perf_counter() - clock
    write_receipt("reproduced", profile, started=started, seconds=seconds, data=[PUBLISHED], used=found.used)
    print("\n".join(found.lines()))
    return not found.missed


def verify_squad(file: Path) -> dict[str, Any]:
    """The paired evaluation on a fixed draw of SQuAD questions, its own paragraphs being the corpus and the clusters."""
    articles, tasks = read_squad(file, SAMPLE)
    provenance = {"source": file.name, "sample": SAMPLE, "tasks": tasks_digest(tasks), "articles": len(articles)}
    return evaluate(PROFILE, articles, tasks, Path(".ragkit-work/verify") / file.stem, ARMS, provenance)


def verify(folder: Path, parts: tuple[str, ...] = PARTS) -> bool:
    """Run what the folder holds of the parts, and store it; True where nothing missed its published figure.

    Raises
    ------
    InputError
        The folder holds nothing of a part that was asked for by itself, or nothing at all.
    """
    squad, passed = folder / SQUAD, True
    if parts == ("squad",) and not squad.is_file():
        raise InputError(f"{folder} holds no {SQUAD}: nothing to verify")
    if "reproduce" in parts:
        try:
            passed = verify_published(collections_at_hand(folder))
        except NothingAtHand:
            if "squad" not in parts or not squad.is_file():
                raise
    if "squad" not in parts or not squad.is_file():
        return passed
    started, clock = datetime.now(UTC), time.perf_counter()
    report = verify_squad(squad)
    write_metrics("verify_squad", report, PROFILE)
    used = [report["provenance"]["reader"]]
    write_receipt("verify_squad", load_profile(PROFILE), started=started, seconds=time.perf_counter() - clock, used=used)
    for name, row in report["comparisons"].items():
        low, high = row["interval"]
        print(f"{name}: n {row['n']}, gains {row['gains']}, harms {row['harms']}", end=", ")
        print(f"difference {row['delta']:+.3f} ({low:+.3f} to {high:+.3f})")
    return passed


def main(words: list[str]) -> int:
    """Exit status 0, 1 (a figure was missed, or the work failed) or 2 (wrong words)."""
    if len(words) not in (1, 2) or any(part not in PARTS for part in words[1:]):
        print(f"verify: give one folder, and at most one of {', '.join(PARTS)}", file=sys.stderr)
        return 2
    try:
        return 0 if verify(Path(words[0]), tuple(words[1:]) or PARTS) else 1
    except RagkitError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
