"""What `dvc.yaml` calls: one stage of one profile, ending with its parent. Each stage loads only the rooms that it needs.

python -m ragkit.stages index cpu
python -m ragkit.stages eval cpu dev A4
python -m ragkit.stages lab cpu 01_chunking
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from ragkit.errors import RagkitError
from ragkit.lab.processes import end_with_parent
from ragkit.lab.receipts import write_receipt
from ragkit.profile import load_profile

ARTIFACTS = "artifacts"
FRESH = "RAGKIT_FRESH"  # set by `make rerun`: nothing stored is taken over, everything is measured again


@contextmanager
def _receipt(name: str, profile: str) -> Iterator[dict[str, Any]]:
    """Time a stage; write its receipt if it ends well. The stage adds what it knows: `used` (models' identities), `answers`."""
    evaluation = load_profile(profile).evaluation
    known: dict[str, Any] = {}
    started, clock = datetime.now(UTC), time.perf_counter()
    yield known
    data = (evaluation.snapshot, evaluation.tasks)
    seconds = time.perf_counter() - clock
    write_receipt(name, profile, started=started, seconds=seconds, data=data, artifacts=ARTIFACTS, **known)


def run_index(profile: str) -> None:
    """Phase A: build the frozen index and embed the tasks' questions."""
    from ragkit.retrieval.frozen import freeze

    with _receipt("index", profile) as known:
        known["used"] = [freeze(profile, ARTIFACTS)["embedder"]]


def run_eval(profile: str, split: str, arm: str) -> None:
    """Phase B: one arm on the frozen tasks of one split."""
    from ragkit.evaluation.experiment import run_profile_arm

    with _receipt(f"eval_{split}_{arm}", profile) as known:
        ran = run_profile_arm(profile, split, arm, ARTIFACTS, fresh=bool(os.environ.get(FRESH)))
        known["used"] = [ran["identity"]]
        known["answers"] = {"asked": ran["asked"], "kept": ran["kept"]}


def run_lab(profile: str, notebook: str) -> None:
    """Execute one notebook over what the earlier stages stored."""
    from ragkit.lab.runner import run_notebook

    run_notebook(f"notebooks/{notebook}.py", profile, artifacts=ARTIFACTS)


def main(words: list[str]) -> int:
    """Run the stage that `words` names; exit status 0, 1 (the work failed) or 2 (wrong words)."""
    stages: dict[str, tuple[Callable[..., None], int]] = {"index": (run_index, 1), "eval": (run_eval, 3), "lab": (run_lab, 2)}
    if not words or words[0] not in stages or len(words) - 1 != stages[words[0]][1]:
        print("stages: give index PROFILE, eval PROFILE SPLIT ARM, or lab PROFILE NOTEBOOK", file=sys.stderr)
        return 2
    end_with_parent()
    try:
        stages[words[0]][0](*words[1:])
    except RagkitError as error:
        print(f"ragkit: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
