"""Running a notebook: percent source in, executed notebook and receipt out; nothing half done is ever left in `artifacts/`.

A run never changes its source, never takes an unknown parameter, and its kernel never outlives it.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import nbformat
import psutil
from nbformat import NotebookNode

import ragkit
from ragkit.errors import InputError, RagkitError, ServiceError
from ragkit.lab.metrics import RUNNING, profile_folder, write_text
from ragkit.lab.normalise import KERNELSPEC, as_text, normalise_notebook, with_stable_ids
from ragkit.lab.processes import end_with_parent
from ragkit.lab.receipts import write_receipt
from ragkit.profile import Profile, load_profile

WORK = ".ragkit-work"
_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int,),
    "float": (int, float),
    "str": (str,),
    "bool": (bool,),
    "list": (list,),
    "dict": (dict,),
}


def run_notebook(
    notebook: str | Path,
    profile: str | Path | Profile = "cpu",
    parameters: Mapping[str, Any] | None = None,
    artifacts: str | Path = "artifacts",
    progress: bool = True,
) -> Path:
    """Execute ``notebooks/NN_name.py`` with papermill and keep what it leaves, if it ends well.

    The kernel is this interpreter, works in the folder above ``notebooks/`` and dies with this process. The parameters
    ``profile`` and ``artifacts`` are passed on where the notebook declares them. A value that equals the notebook's default
    is not injected, so that the default profile's page shows the source and nothing else.

    Parameters
    ----------
    notebook : str or Path
        A percent-format source.
    profile : str, Path or Profile
        Names the folder under `artifacts`.
    parameters : mapping, optional
        Values for names that the cell tagged ``parameters`` assigns.
    artifacts : str or Path
        Where runs are kept, from the repository's root.
    progress : bool
        Print a bar, one step a cell, to standard error.

    Returns
    -------
    Path
        ``artifacts/PROFILE/runs/NN_name.ipynb``, normalised; its receipt is ``artifacts/PROFILE/receipts/NN_name.json``.

    Raises
    ------
    InputError
        The notebook is missing or not percent format, or a parameter is unknown or of the wrong type.
    ServiceError
        A cell failed or the kernel died. The broken notebook is kept as ``.ragkit-work/PROFILE-NN_name.failed.ipynb``; an earlier
        run in `artifacts` stays as it was.
    """
    source = Path(notebook).resolve()
    content = read_notebook(source)
    chosen = load_profile(profile)
    declared = notebook_parameters(content, source.name)
    given = _with_standard(declared, profile, artifacts, parameters or {})
    check_parameters(given, declared, source.name)
    root = source.parent.parent if source.parent.name == "notebooks" else Path.cwd()
    if os.environ.get("DVC_STAGE"):
        end_with_parent()

    changed = {key: value for key, value in given.items() if value != declared[key][1]}
    started, clock = datetime.now(UTC), time.perf_counter()
    executed, record = _execute(content, changed, source.stem, chosen, root, progress)
    seconds = time.perf_counter() - clock

    folder = root / artifacts
    path = write_text(
        profile_folder(chosen, folder) / "runs" / f"{source.stem}.ipynb", as_text(normalise_notebook(executed, root))
    )
    write_receipt(
        source.stem, chosen, started=started, seconds=seconds, notebook=source, record=record, root=root, artifacts=folder
    )
    (root / WORK / f"{chosen.name}-{source.stem}.failed.ipynb").unlink(missing_ok=True)
    return path


def read_notebook(path: Path) -> NotebookNode:
    """Read a percent-format source with the kernel named and stable cell ids.

    Raises
    ------
    InputError
        It is missing, is no ``.py`` file, or is not percent format.
    """
    import jupytext

    if path.suffix != ".py":
        raise InputError(
            f"notebook {path.name}: give the percent-format source notebooks/NN_name.py, not a {path.suffix or 'bare'} file"
        )
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        there = ", ".join(sorted(other.name for other in path.parent.glob("[0-9]*.py"))) or "none"
        raise InputError(f"notebook {path} does not exist; there are: {there}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"notebook {path} cannot be read: {error}") from error
    if not re.search(r"^# %%", text, re.MULTILINE):
        raise InputError(f"notebook {path.name} has no '# %%' cell: write it in jupytext's percent format")
    notebook = jupytext.reads(text, fmt="py:percent")
    notebook.metadata = nbformat.from_dict({"kernelspec": KERNELSPEC, "language_info": {"name": "python"}})
    return with_stable_ids(notebook)


def notebook_parameters(notebook: NotebookNode | str | Path, name: str = "notebook") -> dict[str, tuple[str, Any]]:
    """The parameters a notebook declares: name -> (type, default).

    They are the literal assignments (``k: int = 5``) of the one cell tagged ``parameters``; without an annotation the default's
    type counts. A notebook without such a cell declares none.

    Raises
    ------
    InputError
        Two such cells, or a statement that is not ``name: type = literal`` (papermill would pass over it).
    """
    if isinstance(notebook, (str, Path)):
        name, notebook = Path(notebook).name, read_notebook(Path(notebook).resolve())
    cells = [cell for cell in notebook.cells if "parameters" in cell.metadata.get("tags", [])]
    if len(cells) > 1:
        raise InputError(f"{name} has {len(cells)} cells tagged parameters: keep one")
    found: dict[str, tuple[str, Any]] = {}
    for statement in ast.parse(cells[0].source).body if cells else []:
        target, kind, value = _assignment(statement)
        try:
            default = ast.literal_eval(value) if value is not None else None
        except ValueError:
            value = None
        if target is None or value is None:
            raise InputError(f"{name}: the parameters cell holds {ast.unparse(statement)!r}: write name: type = literal")
        found[target] = (kind or type(default).__name__, default)
    return found


def check_parameters(given: Mapping[str, Any], declared: Mapping[str, tuple[str, Any]], name: str) -> None:
    """Refuse what the notebook does not declare.

    Raises
    ------
    InputError
        An unknown name (the message lists those there are) or a value of the wrong type.
    """
    for key, value in given.items():
        if key not in declared:
            raise InputError(f"{name} has no parameter {key!r}: choose from {', '.join(declared) or 'none'}")
        kind, default = declared[key]
        if not _fits(value, kind, default):
            raise InputError(f"{name}: parameter {key} is {value!r}, a {type(value).__name__}: give {kind}")


def pair_notebooks(folder: str | Path = "notebooks", check: bool = False) -> list[Path]:
    """Write each ``NN_name.py``'s paired ``NN_name.ipynb``, without outputs, where it differs.

    Parameters
    ----------
    folder : str or Path
        Where the sources lie.
    check : bool
        Write nothing.

    Returns
    -------
    list of Path
        The pairs that differed from their source (and, unless `check`, no longer do).
    """
    different = []
    for source in sorted(Path(folder).glob("[0-9]*_*.py")):
        notebook = read_notebook(source.resolve())
        notebook.metadata["jupytext"] = {"formats": "ipynb,py:percent"}
        text, pair = as_text(notebook), source.with_suffix(".ipynb")
        if pair.is_file() and pair.read_text(encoding="utf-8") == text:
            continue
        different.append(pair)
        if not check:
            write_text(pair, text)
            # Jupytext refuses to open a pair whose outputs are newer than its source.
            os.utime(pair, ns=(source.stat().st_atime_ns, source.stat().st_mtime_ns))
    return different


def _execute(
    notebook: NotebookNode, parameters: Mapping[str, Any], name: str, profile: Profile, root: Path, progress: bool
) -> tuple[NotebookNode, dict[str, Any]]:
    import papermill
    from nbclient.exceptions import DeadKernelError
    from papermill.exceptions import PapermillExecutionError

    work = root / WORK
    failed = work / f"{profile.name}-{name}.failed.ipynb"
    try:
        work.mkdir(parents=True, exist_ok=True)
        _sweep(work)
        scratch = tempfile.TemporaryDirectory(dir=work, prefix=f"run-{os.getpid()}-")
    except OSError as error:
        raise ServiceError(f"cannot write {work}: {error.strerror}; a run needs a writable repository") from error
    with scratch as place:
        source, output, record = (Path(place) / leaf for leaf in ("in.ipynb", "out.ipynb", "record.json"))
        source.write_text(as_text(_watched(notebook, root, record)), encoding="utf-8")
        try:
            executed = papermill.execute_notebook(
                source,
                output,
                parameters=dict(parameters),
                kernel_name="python3",
                language="python",
                cwd=root,
                progress_bar={"desc": name, "unit": "cell", "leave": False} if progress else False,
                kernel_manager_class=_kernel_manager(name, place),
            )
        except PapermillExecutionError as error:
            _keep(output, failed)
            raise ServiceError(f"{name}: {_failure(error)}; see {failed.relative_to(root)}") from None
        except DeadKernelError:
            _keep(output, failed)
            raise ServiceError(
                f"{name}: the kernel died (out of memory, or killed); the cells that ended are in {failed.relative_to(root)}"
            ) from None
        except RuntimeError as error:
            raise ServiceError(f"{name}: the kernel did not start: {str(error).splitlines()[0]}") from error
        if not record.is_file():
            _keep(output, failed)
            raise ServiceError(f"{name}: the notebook ended itself before its last cell; see {failed.relative_to(root)}")
        executed.cells = [cell for cell in executed.cells if not _is_ours(cell)]
        return executed, json.loads(record.read_text(encoding="utf-8"))


def _sweep(work: Path) -> None:
    # A killed run could not tidy up after itself.
    for left in work.glob("run-*-*"):
        owner = left.name.split("-")[1]
        if owner.isdigit() and not psutil.pid_exists(int(owner)):
            shutil.rmtree(left, ignore_errors=True)


def _watched(notebook: NotebookNode, root: Path, record: Path) -> NotebookNode:
    # Two cells of ours around the notebook; they are taken out again before anything is kept.
    first = f"from ragkit.lab.receipts import begin_recording as _begin; _begin({str(root)!r}); del _begin"
    last = f"from ragkit.lab.receipts import end_recording as _end; _end({str(record)!r})"
    cells = [nbformat.v4.new_code_cell(text, metadata={"tags": ["ragkit-run"]}) for text in (first, last)]
    whole = nbformat.from_dict(notebook)
    whole.cells = [cells[0], *notebook.cells, cells[1]]
    return with_stable_ids(whole)


def _is_ours(cell: NotebookNode) -> bool:
    return "ragkit-run" in cell.metadata.get("tags", [])


def _kernel_manager(name: str, place: str) -> type:
    import zmq
    from ipykernel.kernelspec import get_kernel_dict
    from jupyter_client.kernelspec import KernelSpec
    from jupyter_client.manager import AsyncKernelManager

    package = str(Path(ragkit.__file__).parents[1])
    environment = {
        RUNNING: name,
        "IPYTHONDIR": place,  # no startup files or history of the user's
        "MPLBACKEND": "module://matplotlib_inline.backend_inline",
        "PYTHONHASHSEED": "0",
        "PYTHONPATH": os.pathsep.join(part for part in (package, os.environ.get("PYTHONPATH")) if part),
    }

    quiet = ["--log-level=CRITICAL"]  # the interrupt that ends a kernel is no error of the run

    class ThisInterpreter(AsyncKernelManager):
        """Starts the running interpreter, whatever kernels called python3 the user has installed."""

        def __init__(self, **options: Any) -> None:
            super().__init__(transport_encryption="auto" if zmq.has("curve") else "disabled", **options)

        @property
        def kernel_spec(self) -> KernelSpec:
            return KernelSpec(**get_kernel_dict(extra_arguments=quiet), env=environment)

    return ThisInterpreter


def _failure(error: Any) -> str:
    # Where in the cell: IPython marks the line with an arrow in the frame of the cell.
    text = re.sub(r"\x1b\[[0-9;]*m", "", "\n".join(error.traceback))
    frame = re.search(r"Cell In\[\d+\], line (\d+)", text)
    lines = error.source.splitlines()
    number = int(frame.group(1)) if frame else 1
    line = lines[number - 1].strip() if 0 < number <= len(lines) else lines[0]
    message = " ".join(str(error.evalue).split())
    # Our own first cell is counted neither here nor in the notebook that is kept.
    return f"code cell {(error.exec_count or 1) - 1} failed at line {number} ({line[:80]!r}): {error.ename}: {message[:300]}"


def _keep(output: Path, failed: Path) -> None:
    if output.is_file():
        notebook = nbformat.read(output, as_version=4)
        notebook.cells = [cell for cell in notebook.cells if not _is_ours(cell)]
        write_text(failed, as_text(notebook))


def _with_standard(
    declared: Mapping[str, Any], profile: str | Path | Profile, artifacts: str | Path, parameters: Mapping[str, Any]
) -> dict[str, Any]:
    standard = {"profile": profile.name if isinstance(profile, Profile) else str(profile), "artifacts": str(artifacts)}
    for key in standard:
        if key in parameters:
            raise InputError(f"{key} is not set as a notebook's parameter: give the run's own {key}")
    return {**{key: value for key, value in standard.items() if key in declared}, **parameters}


def _assignment(statement: ast.stmt) -> tuple[str | None, str | None, ast.expr | None]:
    if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
        return statement.target.id, ast.unparse(statement.annotation), statement.value
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1 and isinstance(statement.targets[0], ast.Name):
        return statement.targets[0].id, None, statement.value
    return None, None, None


def _fits(value: Any, kind: str, default: Any) -> bool:
    kinds = {part.strip().strip("'\"").split("[")[0] for part in kind.split("|")}
    if value is None:
        return default is None or bool(kinds & {"None", "NoneType"})
    if isinstance(value, bool):
        return bool(kinds & {"bool", "Any", "NoneType"})
    accepted = tuple(one for part in kinds for one in _TYPES.get(part, ()))
    # An annotation of another sort, or a bare None, says nothing that could be checked.
    return isinstance(value, accepted) if accepted else True


def _main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m ragkit.lab.runner",
        description="Write the paired .ipynb of every notebook.",
        epilog="example: python -m ragkit.lab.runner --check",
    )
    parser.add_argument("folder", nargs="?", default="notebooks")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a pair differs from its source")
    chosen = parser.parse_args(arguments)
    try:
        different = pair_notebooks(chosen.folder, check=chosen.check)
    except RagkitError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for path in different:
        print(f"{path} {'differs from its source: run make pair' if chosen.check else 'written'}")
    return int(chosen.check and bool(different))


if __name__ == "__main__":
    sys.exit(_main())
