"""From stored runs to the HTML book: lays the published profile's executed notebooks under `book/labs/` and runs Jupyter Book.

It never executes a notebook; where a run is missing it says so and stops.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from pathlib import Path

from ragkit.errors import RagkitError, ServiceError
from ragkit.lab.metrics import profile_folder, write_text
from ragkit.profile import Profile, load_profile

LABS = Path("book/labs")


def lay_out_labs(
    profile: str | Path | Profile = "cpu", artifacts: str | Path = "artifacts", root: str | Path = "."
) -> tuple[list[str], list[str]]:
    """Copy ``artifacts/PROFILE/runs/NN_name.ipynb`` to ``book/labs/``, one for each source in ``notebooks/``.

    Equal copies are left alone (their pages are not built again); copies without a source are taken away.

    Returns
    -------
    (laid, missing) : two lists of str
        Names of the notebooks that lie there now, and of those that have not been run on this profile.
    """
    root = Path(root)
    runs = profile_folder(load_profile(profile), root / artifacts) / "runs"
    names = sorted(path.stem for path in (root / "notebooks").glob("[0-9]*_*.py"))
    laid = [name for name in names if (runs / f"{name}.ipynb").is_file()]
    for old in (root / LABS).glob("*.ipynb"):
        if old.stem not in laid:
            old.unlink()
    for name in laid:
        write_text(root / LABS / f"{name}.ipynb", (runs / f"{name}.ipynb").read_text(encoding="utf-8"))
    return laid, [name for name in names if name not in laid]


def build_book(profile: str | Path | Profile = "cpu", artifacts: str | Path = "artifacts", root: str | Path = ".") -> Path:
    """Build ``_build/html`` from what is stored; any warning is an error.

    Returns
    -------
    Path
        The book's first page.

    Raises
    ------
    ServiceError
        A notebook has not been run on this profile, or the build warned or failed.
    """
    root = Path(root).resolve()
    _, missing = lay_out_labs(profile, artifacts, root)
    if missing:
        raise ServiceError(
            f"not run yet: {', '.join(missing)}: make rerun PROFILE={load_profile(profile).name} measures them here"
        )
    command = [sys.executable, "-c", "from jupyter_book.cli.main import main; main()"]
    done = subprocess.run([*command, "build", str(root), "-W", "--keep-going", "-n"], cwd=root, check=False)
    if done.returncode:
        raise ServiceError(f"the book was not built (exit status {done.returncode}): mend the warnings above")
    return root / "_build" / "html" / "index.html"


def _main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ragkit.lab.build",
        description="Build the HTML book from stored runs.",
        epilog="example: python -m ragkit.lab.build",
    )
    parser.add_argument("--profile", default="cpu", help="the published profile")
    parser.add_argument("--artifacts", default="artifacts")
    chosen = parser.parse_args(arguments)
    clock = time.perf_counter()
    try:
        page = build_book(chosen.profile, chosen.artifacts)
    except RagkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"built in {time.perf_counter() - clock:.0f} s: {page}")
    return 0


if __name__ == "__main__":
    sys.exit(_main())
