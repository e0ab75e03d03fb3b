"""Measure a whole profile again, stage by stage, and go on where an unfinished rerun stopped. DVC runs the stages.

python -m ragkit.rerun cpu
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from ragkit.errors import RagkitError, ServiceError
from ragkit.lab.metrics import write_text
from ragkit.lab.processes import end_with_parent
from ragkit.models import list_models, model_entry
from ragkit.profile import Profile, load_profile
from ragkit.stages import FRESH

PROFILES = Path("artifacts/profiles.yaml")
WORK = Path(".ragkit-work")


def downloads(profile: Profile) -> list[tuple[str, int]]:
    """Models of a profile that have weights of their own and are not here yet: (name, bytes)."""
    needed = {model_entry(profile.embedder.model).name}
    if profile.reader.backend != "openai":
        needed.add(model_entry(profile.reader.model).name)
    return [
        (status.name, status.bytes) for status in list_models() if status.name in needed and status.bytes and not status.present
    ]


def took_elsewhere(artifacts: Path = Path("artifacts")) -> dict[str, tuple[float, str]]:
    """Seconds and machine of the stored runs, by profile: what the receipts add up to."""
    found = {}
    for folder in sorted(artifacts.glob("*/receipts")):
        receipts = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))]
        if receipts:
            machine = receipts[-1]["machine"]
            where = f"{machine.get('cpu')}, {machine.get('logical_cores')} cores"
            found[folder.parent.name] = (sum(_worked(receipt, folder.parent) for receipt in receipts), where)
    return found


def _worked(receipt: Mapping[str, Any], folder: Path) -> float:
    """Seconds of one run; where it took answers over from an earlier run, the seconds that its reader took for them then."""
    timings = folder / "metrics" / f"{receipt['name']}.timings.json"
    if not (receipt.get("answers") or {}).get("kept") or not timings.is_file():
        return float(receipt["seconds"])
    return max(float(receipt["seconds"]), float(json.loads(timings.read_text(encoding="utf-8"))["seconds"]))


def register(profile: str) -> None:
    """Add a profile to those that `dvc.yaml` makes stages for."""
    known = yaml.safe_load(PROFILES.read_text(encoding="utf-8"))["profiles"]
    if profile not in known:
        PROFILES.write_text(PROFILES.read_text(encoding="utf-8").rstrip() + f"\n  - {profile}\n", encoding="utf-8")


def _dvc(*words: str, quiet: bool = False) -> subprocess.CompletedProcess[str]:
    """Run this environment's DVC; it ends with this process, and `python` in a stage's command is this interpreter."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "dvc", *words],
        env={**os.environ, "PATH": path, FRESH: "1"},
        capture_output=quiet,
        text=True,
        check=False,
        preexec_fn=end_with_parent,
    )


def stages(profile: str) -> list[str]:
    """Names of a profile's stages in the order of `dvc.yaml`, which is an order they can run in."""
    listed = _dvc("stage", "list", "--name-only", quiet=True)
    if listed.returncode:
        raise ServiceError(f"dvc cannot read dvc.yaml: {listed.stderr.strip().splitlines()[-1]}")
    return ["snapshot", *(name for name in listed.stdout.split() if _profile_of(name) == profile)]


def _profile_of(stage: str) -> str:
    """Which profile a stage measures: `index@PROFILE`, `lab-NN@PROFILE`, `eval@PROFILE-SPLIT-ARM`."""
    group, _, item = stage.partition("@")
    return item.rsplit("-", 2)[0] if group == "eval" else item


def rerun(name: str) -> None:
    """Run every stage of a profile by force, remembering which are done until all are."""
    profile = load_profile(name)
    register(profile.name)
    done_file = WORK / f"rerun-{profile.name}.json"
    done = json.loads(done_file.read_text(encoding="utf-8")) if done_file.is_file() else []
    for model, size in downloads(profile):
        print(f"will download {model}: {size / 1e6:,.0f} MB")
    for other, (seconds, where) in took_elsewhere().items():
        print(f"profile {other} took {seconds / 60:.0f} minutes on {where}")
    names = stages(profile.name)
    if done:
        print(f"an unfinished rerun is going on: {len(done)} of {len(names)} stages are done")
    for number, stage in enumerate(names, start=1):
        if stage in done:
            continue
        print(f"[{number}/{len(names)}] {stage}", flush=True)
        # `-s -f`: this stage alone and by force; the ones it needs have just run.
        if _dvc("repro", "--quiet", "-s", "-f", stage).returncode:
            raise ServiceError(
                f"stage {stage} failed; mend what it says above and run `make rerun PROFILE={profile.name}` to go on from there"
            )
        done.append(stage)
        write_text(done_file, json.dumps(done))
    done_file.unlink(missing_ok=True)
    print(f"profile {profile.name} is measured: artifacts/{profile.name}/")


def main(words: list[str]) -> int:
    """Exit status 0, 1 (a stage failed) or 2 (wrong words)."""
    if len(words) != 1:
        print("rerun: give one profile, such as cpu", file=sys.stderr)
        return 2
    try:
        rerun(words[0])
    except RagkitError as error:
        print(f"rerun: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nrerun: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
