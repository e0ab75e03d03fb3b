"""The same code on others' collections, by hand: published figures reproduced, and the paired evaluation on SQuAD's questions.

    python -m ragkit.verify FOLDER        a folder that holds scifact/ (BEIR) and squad11_apollo_program.json

What it measures is stored as `artifacts/cpu/metrics/verify_*.json` with receipts, outside the DVC graph; the data stay put.
"""

from __future__ import annotations

import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from ragkit.corpus import tasks_digest
from ragkit.errors import InputError, RagkitError
from ragkit.evaluation.collections import dense_run, read_beir, read_squad, retrieval_report
from ragkit.evaluation.experiment import evaluate
from ragkit.lab.metrics import write_metrics
from ragkit.lab.receipts import write_receipt
from ragkit.models import open_embedder
from ragkit.profile import load_profile

PROFILE = "cpu"
SAMPLE = 80
ARMS = ("A0", "A1", "A4", "A6")


def verify_scifact(folder: Path) -> tuple[bool, dict[str, Any]]:
    """SciFact, dense, against `data/published/scifact.yaml`; True where every figure is within its tolerance."""
    published = yaml.safe_load(Path("data/published/scifact.yaml").read_text(encoding="utf-8"))
    collection = read_beir(folder)
    with tempfile.TemporaryDirectory() as scratch, open_embedder(load_profile(PROFILE).in_float32()) as embedder:
        run = dense_run(collection, embedder, scratch)
        truncated, identity = embedder.truncated, embedder.identity
    got = retrieval_report(run, collection.qrels)
    rows = {
        name.replace("@", "_at_"): {
            "expected": value,
            "got": got[name],
            "passed": abs(got[name] - value) <= published["tolerance"],
        }
        for name, value in published["figures"].items()
    }
    passed = all(row["passed"] for row in rows.values())
    values = {"figures": rows, "passed": passed, "queries": len(collection.queries), "documents": len(collection.articles)}
    return passed, {**values, "truncated": truncated, "tolerance": published["tolerance"], "identity": identity}


def verify_squad(file: Path) -> dict[str, Any]:
    """The paired evaluation on a fixed draw of SQuAD questions, its own paragraphs being the corpus and the clusters."""
    articles, tasks = read_squad(file, SAMPLE)
    provenance = {"source": file.name, "sample": SAMPLE, "tasks": tasks_digest(tasks), "articles": len(articles)}
    return evaluate(PROFILE, articles, tasks, Path(".ragkit-work/verify") / file.stem, ARMS, provenance)


def verify(folder: Path) -> bool:
    """Run what the folder holds and store it; True where nothing missed its published figure."""
    scifact, squad = folder / "scifact", folder / "squad11_apollo_program.json"
    if not scifact.is_dir() and not squad.is_file():
        raise InputError(f"{folder} holds neither scifact/ nor squad11_apollo_program.json: nothing to verify")
    passed = True
    profile = load_profile(PROFILE)
    if scifact.is_dir():
        started, clock = datetime.now(UTC), time.perf_counter()
        passed, values = verify_scifact(scifact)
        identity = values.pop("identity")
        write_metrics("verify_scifact", values, PROFILE)
        write_receipt("verify_scifact", profile, started=started, seconds=time.perf_counter() - clock, used=[identity])
        for name, row in values["figures"].items():
            outcome = "pass" if row["passed"] else "FAIL"
            print(f"{name:<14} expected {row['expected']:.4f}  got {row['got']:.4f}  {outcome}")
    if squad.is_file():
        started, clock = datetime.now(UTC), time.perf_counter()
        report = verify_squad(squad)
        write_metrics("verify_squad", report, PROFILE)
        used = [report["provenance"]["reader"]]
        write_receipt("verify_squad", profile, started=started, seconds=time.perf_counter() - clock, used=used)
        for name, row in report["comparisons"].items():
            low, high = row["interval"]
            print(f"{name}: n {row['n']}, gains {row['gains']}, harms {row['harms']}", end=", ")
            print(f"difference {row['delta']:+.3f} ({low:+.3f} to {high:+.3f})")
    return passed


def main(words: list[str]) -> int:
    """Exit status 0, 1 (a figure was missed, or the work failed) or 2 (wrong words)."""
    if len(words) != 1:
        print("verify: give one folder", file=sys.stderr)
        return 2
    try:
        return 0 if verify(Path(words[0])) else 1
    except RagkitError as error:
        print(f"verify: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
