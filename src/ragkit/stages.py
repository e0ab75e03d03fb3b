"""What `dvc.yaml` calls: one stage of one profile, ending with its parent. Each stage loads only the rooms that it needs.

python -m ragkit.stages index cpu
python -m ragkit.stages eval cpu A4
python -m ragkit.stages lab cpu 01_chunking
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

from ragkit.errors import RagkitError
from ragkit.lab.processes import end_with_parent
from ragkit.lab.receipts import write_receipt
from ragkit.profile import load_profile

ARTIFACTS = "artifacts"
JOURNALS = Path(".ragkit-work/journal")


@contextmanager
def _receipt(name: str, profile: str) -> Iterator[list[dict]]:
    """Time a stage and write its receipt if it ends well; the list takes the identities of the models that it used."""
    evaluation = load_profile(profile).evaluation
    used: list[dict] = []
    started, clock = datetime.now(UTC), time.perf_counter()
    yield used
    data = (evaluation.snapshot, evaluation.tasks)
    write_receipt(name, profile, started=started, seconds=time.perf_counter() - clock, data=data, used=used, artifacts=ARTIFACTS)


def run_index(profile: str) -> None:
    """Phase A: build the frozen index and embed the tasks' questions."""
    from ragkit.retrieval.frozen import freeze

    with _receipt("index", profile) as used:
        used.append(freeze(profile, ARTIFACTS)["embedder"])


def run_eval(profile: str, arm: str) -> None:
    """Phase B: one arm on the frozen tasks."""
    from ragkit.evaluation.experiment import run_profile_arm

    with _receipt(f"eval_{arm}", profile) as used:
        used.append(run_profile_arm(profile, arm, ARTIFACTS, JOURNALS / profile / f"{arm}.jsonl"))


def run_lab(profile: str, notebook: str) -> None:
    """Execute one notebook over what the earlier stages stored."""
    from ragkit.lab.runner import run_notebook

    run_notebook(f"notebooks/{notebook}.py", profile, artifacts=ARTIFACTS)


def main(words: list[str]) -> int:
    """Run the stage that `words` names; exit status 0, 1 (the work failed) or 2 (wrong words)."""
    stages: dict[str, tuple[Callable[..., None], int]] = {"index": (run_index, 1), "eval": (run_eval, 2), "lab": (run_lab, 2)}
    if not words or words[0] not in stages or len(words) - 1 != stages[words[0]][1]:
        print("stages: give index PROFILE, eval PROFILE ARM, or lab PROFILE NOTEBOOK", file=sys.stderr)
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
