"""Receipts: what ran (sha256 of everything it depends on), on what, when, how long, in how much memory.

A receipt is written next to the results, never into them: it is the one file of a run that may differ between two equal runs.
It never records who ran it, where, or under which host name.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from ragkit.errors import InputError
from ragkit.lab.metrics import RUNNING, checked_name, profile_folder, read_metrics_file, write_text
from ragkit.lab.processes import peak_memory_mib
from ragkit.profile import Profile, load_profile

# Distribution -> the module by which its use is recognised: only what can move a figure.
_LIBRARIES = {
    "bm25s": "bm25s",
    "lancedb": "lancedb",
    "matplotlib": "matplotlib",
    "numpy": "numpy",
    "openai": "openai",
    "openvino": "openvino",
    "openvino-genai": "openvino_genai",
    "pandas": "pandas",
    "pyarrow": "pyarrow",
    "scipy": "scipy",
    "sentence-transformers": "sentence_transformers",
    "sgp4": "sgp4",
    "tokenizers": "tokenizers",
    "torch": "torch",
    "transformers": "transformers",
}


@dataclass(frozen=True, slots=True)
class Receipt:
    """One run. Digests are sha256 (64 hex) by path or name; `started` is ISO 8601 UTC; memory in MiB.

    `package` maps every module of ragkit that was loaded to its file's digest; `models` maps a model's name to what identifies
    its weights; `machine` is what `machine` returns; `answers` how many answers a reader was `asked` for in this run and how
    many were `kept` from an earlier one with the same prompts, batches and reader.
    """

    name: str
    profile: dict[str, str]
    notebook: dict[str, str] | None
    package: dict[str, str]
    data: dict[str, str]
    constraints: str | None
    libraries: dict[str, str]
    models: dict[str, Any]
    machine: dict[str, Any]
    started: str
    seconds: float
    peak_memory_mib: int
    answers: dict[str, int] | None = None


def write_receipt(
    name: str,
    profile: str | Path | Profile,
    *,
    started: datetime,
    seconds: float,
    notebook: Path | None = None,
    data: Iterable[str | Path] = (),
    used: Iterable[Any] = (),
    record: Mapping[str, Any] | None = None,
    answers: dict[str, int] | None = None,
    root: Path | None = None,
    artifacts: str | Path = "artifacts",
) -> Path:
    """Write ``artifacts/PROFILE/receipts/NAME.json`` for a run that ended well.

    Parameters
    ----------
    name : str
        The run's name, the same as that of its metrics.
    started, seconds
        When it began (an aware datetime) and how long it took by a monotonic clock.
    notebook : Path, optional
        The notebook's source.
    data : paths
        Files or folders that were read.
    used : objects
        Embedders, readers, or anything else with an ``identity`` mapping.
    record : mapping, optional
        What another process (a notebook's kernel) says about itself, as `record_of_this_process` does; this one by default.
    answers : mapping, optional
        Of a reader's stage: how many answers were `asked`, how many `kept`.
    root : Path, optional
        Paths are written from here; the working directory by default.

    Raises
    ------
    InputError
        A data file does not exist.
    """
    root = Path(root or Path.cwd()).resolve()
    chosen = load_profile(profile)
    seen = dict(record) if record is not None else record_of_this_process()
    lock = root / "constraints.txt"
    receipt = Receipt(
        name=checked_name(name),
        profile={"name": chosen.name, "digest": chosen.digest},
        notebook={"path": _shown(notebook, root), "sha256": digest_of(notebook)} if notebook else None,
        package=seen["package"],
        data={
            _shown(path, root): digest_of(root / path) for path in sorted({*map(Path, data), *map(Path, seen.get("data", ()))})
        },
        constraints=digest_of(lock) if lock.is_file() else None,
        libraries=seen["libraries"],
        models={**seen.get("models", {}), **identities(used)},
        machine=machine(),
        started=started.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        seconds=round(seconds, 1),
        peak_memory_mib=seen["peak_memory_mib"] + (peak_memory_mib(children=False) if record is not None else 0),
        answers=answers,
    )
    text = json.dumps(asdict(receipt), indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return write_text(profile_folder(chosen, artifacts) / "receipts" / f"{name}.json", text)


def read_receipt(path: Path) -> Receipt:
    """Read one receipt.

    Raises
    ------
    InputError
        It is missing, or no receipt of this form.
    """
    content = read_metrics_file(path)
    try:
        return Receipt(**content)
    except TypeError as error:
        raise InputError(f"{path} is no receipt of this version ({error}): run it again") from error


def machine() -> dict[str, Any]:
    """What this machine is: ``cpu``, ``logical_cores`` (usable by this process), ``memory_gib``, ``gpu``, ``system``, ``python``.

    ``gpu`` is None where no driver answers, else its ``name``, ``memory_mib`` and ``driver``.
    """
    import psutil

    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return {
        "cpu": _cpu_model(),
        "logical_cores": usable,
        "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
        "gpu": _gpu(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
    }


def record_of_this_process() -> dict[str, Any]:
    """What this process has loaded: ``package`` (module -> digest), ``libraries`` (versions), ``peak_memory_mib``."""
    modules = {
        name: digest_of(file)
        for name, module in sorted(sys.modules.items())
        if name.split(".")[0] == "ragkit" and (file := getattr(module, "__file__", None))
    }
    libraries = {name: metadata.version(name) for name, module in _LIBRARIES.items() if module in sys.modules}
    return {"package": modules, "libraries": libraries, "peak_memory_mib": peak_memory_mib()}


def show_receipt(profile: str | Path | Profile = "cpu", used: Iterable[Any] = (), data: Iterable[str | Path] = ()) -> None:
    """Close a notebook: display on what it ran. In a recorded run the page prints the receipt itself, which knows the clock.

    Parameters
    ----------
    profile : str, Path or Profile
        The profile of this session.
    used : objects
        The embedder and reader that were opened (anything with an ``identity`` mapping).
    data : paths
        Files read by a library that Python cannot watch (Parquet through Arrow, for one).
    """
    from IPython.display import Markdown, display

    models, files = identities(used), [str(path) for path in data]
    _recorder.note(models, files)
    run = os.environ.get(RUNNING)
    if run:
        chosen = load_profile(profile).name
        display(Markdown(f"```{{receipt}} {run}\nThe receipt of this run is `artifacts/{chosen}/receipts/{run}.json`.\n```"))
        return
    display(Markdown(_live_receipt(load_profile(profile), models, files)))


def identities(used: Iterable[Any]) -> dict[str, Any]:
    """Model name -> identity of each object that has one.

    Raises
    ------
    InputError
        An object has no ``identity`` mapping.
    """
    found = {}
    for item in used:
        identity = item if isinstance(item, Mapping) else getattr(item, "identity", None)
        if not isinstance(identity, Mapping) or "model" not in identity:
            raise InputError(f"{type(item).__name__} has no identity with a model's name: give an embedder or a reader")
        found[str(identity["model"])] = {key: value for key, value in identity.items() if key != "model"}
    return found


def digest_of(path: str | Path) -> str:
    """SHA-256 (64 hex) of a file's bytes; of a folder, over its files' relative paths and digests.

    Raises
    ------
    InputError
        There is nothing at the path.
    """
    path = Path(path)
    if path.is_dir():
        total = hashlib.sha256()
        for file in sorted(file for file in path.rglob("*") if file.is_file()):
            total.update(f"{file.relative_to(path).as_posix()}\n{digest_of(file)}\n".encode())
        return total.hexdigest()
    try:
        with path.open("rb") as stream:
            return hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError as error:
        raise InputError(f"cannot read {path} for the receipt: {error.strerror}") from error


class _Recorder:
    """What a notebook's kernel reads, noted while it runs. Watches Python's own opening of files below the given folders."""

    def __init__(self) -> None:
        self.folders: tuple[str, ...] = ()
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.models: dict[str, Any] = {}
        self.files: set[str] = set()

    def watch(self, root: Path) -> None:
        """Begin: note files opened below `data/` and `artifacts/` of the root."""
        self.folders = tuple(f"{root.resolve() / name}{os.sep}" for name in ("data", "artifacts"))
        sys.addaudithook(self._hear)

    def note(self, models: Mapping[str, Any], files: Iterable[str]) -> None:
        """Remember what the notebook itself declares."""
        self.models.update(models)
        self.files.update(files)

    def report(self) -> dict[str, Any]:
        """The record of this kernel, for `write_receipt`."""
        self.folders = ()
        read = sorted({os.path.relpath(path) for path in self.read - self.written if os.path.isfile(path)} | self.files)
        return {**record_of_this_process(), "data": read, "models": self.models}

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if not self.folders or event not in ("open", "os.rename"):
            return
        place = arguments[1 if event == "os.rename" else 0]
        if not isinstance(place, (str, bytes)):
            return
        path = os.path.abspath(os.fsdecode(place))
        # An index folder is named by its manifest, not by its bytes; what this run wrote is no input of it.
        if not path.startswith(self.folders) or ".lance" in path or Path(path).name.split(".")[0] == os.environ.get(RUNNING):
            return
        writes = event == "os.rename" or (arguments[2] or 0) & (os.O_WRONLY | os.O_RDWR)
        (self.written if writes else self.read).add(path)


_recorder = _Recorder()


def begin_recording(root: str | Path) -> None:
    """First statement of a recorded run's kernel (the runner adds and removes it)."""
    _recorder.watch(Path(root))


def end_recording(path: str | Path) -> None:
    """Last statement of a recorded run's kernel: write its record as JSON."""
    Path(path).write_text(json.dumps(_recorder.report(), default=str), encoding="utf-8")


def _live_receipt(profile: Profile, models: Mapping[str, Any], files: Iterable[str]) -> str:
    here, seen = machine(), record_of_this_process()
    gpu = f"{here['gpu']['name']}, driver {here['gpu']['driver']}" if here["gpu"] else "no GPU (GPU figures: not measured)"
    rows = {
        "Profile": f"{profile.name} (`{profile.digest[:12]}`)",
        "Models": ", ".join(f"{name} (`{str(identity.get('weights') or 'served')[:12]}`)" for name, identity in models.items())
        or "none",
        "Data": ", ".join(f"{file} (`{digest_of(file)[:12]}`)" for file in files) or "none declared",
        "Libraries": ", ".join(f"{name} {version}" for name, version in seen["libraries"].items()) or "none",
        "Machine": f"{here['cpu']}, {here['logical_cores']} cores, {here['memory_gib']} GiB, {gpu}, Python {here['python']}",
        "Peak memory": f"{seen['peak_memory_mib']} MiB so far",
    }
    return "*A live session: nothing is recorded; `ragkit run` writes a receipt.*\n\n| | |\n|---|---|\n" + "".join(
        f"| {name} | {text} |\n" for name, text in rows.items()
    )


def _shown(path: str | Path, root: Path) -> str:
    absolute = Path(os.path.abspath(root / path))
    # Files from outside the repository are named, their place on this machine is nobody's business.
    return absolute.relative_to(root).as_posix() if absolute.is_relative_to(root) else absolute.name


def _cpu_model() -> str:
    listing = Path("/proc/cpuinfo")
    if listing.is_file():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            if line.lower().startswith(("model name", "hardware")):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _gpu() -> dict[str, Any] | None:
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    command = [tool, "--query-gpu=name,memory.total,driver_version", "--format=csv,noheader,nounits"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        name, memory, driver = (part.strip() for part in answer.splitlines()[0].split(","))
        return {"name": name, "memory_mib": int(memory), "driver": driver}
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
