"""What `dvc.yaml` calls: one stage of one profile, ending with its parent. Each stage loads only the rooms that it needs.

    python -m ragkit.stages index cpu
    python -m ragkit.stages eval cpu A4
    python -m ragkit.stages lab cpu 01_chunking
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

from ragkit.errors import RagkitError

ARTIFACTS = "artifacts"
WORK = Path(".ragkit-work")


def end_with_parent(poll_seconds: float = 1.0) -> None:
    """End this process when the process that ordered the stage is gone, so that a killed rerun leaves nothing writing.

    The shell between the two does not count: whichever of parent and grandparent was there at the start must stay.
    """
    import psutil

    ancestors = psutil.Process().parents()[:2]

    def watch() -> None:
        while all(process.is_running() and process.status() != psutil.STATUS_ZOMBIE for process in ancestors):
            time.sleep(poll_seconds)
        os._exit(143)

    threading.Thread(target=watch, daemon=True).start()


def run_index(profile: str) -> None:
    """Phase A: build the frozen index and embed the tasks' questions."""
    from ragkit.lab.receipts import stage_receipt
    from ragkit.retrieval.frozen import freeze

    with stage_receipt(f"index@{profile}", "index", profile, ARTIFACTS):
        freeze(profile, ARTIFACTS)


def run_eval(profile: str, arm: str) -> None:
    """Phase B: one arm on the frozen tasks."""
    from ragkit.evaluation.experiment import run_profile_arm
    from ragkit.lab.receipts import stage_receipt

    with stage_receipt(f"eval@{profile}-{arm}", f"eval_{arm}", profile, ARTIFACTS):
        run_profile_arm(profile, arm, ARTIFACTS, WORK / "journal" / profile / f"{arm}.jsonl")


def run_lab(profile: str, notebook: str) -> None:
    """Execute one notebook over what the earlier stages stored."""
    from ragkit.lab.runner import run_notebook

    run_notebook(f"notebooks/{notebook}.py", profile, {}, ARTIFACTS)


def main(words: list[str]) -> int:
    """Run the stage that `words` names; exit status 0, 1 (the work failed) or 2 (wrong words)."""
    stages = {"index": (run_index, 1), "eval": (run_eval, 2), "lab": (run_lab, 2)}
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
