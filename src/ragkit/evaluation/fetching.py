"""Where the collections of published figures lie: in a folder that is given, or in a cache that their public addresses fill.

An archive appears unpacked as a whole or not at all; one that differs from its pin, or from what came before, is refused.
Nothing is fetched unless it is asked for by name.
"""

from __future__ import annotations

import hashlib
import json
import os
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import httpx
import yaml
from filelock import FileLock
from pydantic import BaseModel, ConfigDict, Field
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.lab.metrics import write_text

ADDRESSES = Path(__file__).with_name("addresses.yaml")
_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0


class NothingAtHand(InputError):
    """A folder that was given holds no set with published figures."""


class Address(BaseModel):
    """One set: the kind of its folder, the names it is looked for under, and the archive at its public address."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    kind: Literal["beir", "cranfield", "npl", "trec"]
    folders: tuple[str, ...] = Field(min_length=1)
    url: str
    bytes: int = Field(gt=0)
    md5: str = Field(pattern="^[0-9a-f]{32}$")
    inside: str = "."


def addresses() -> dict[str, Address]:
    """Every set that is known, by name."""
    content = yaml.safe_load(ADDRESSES.read_text(encoding="utf-8"))
    return {name: Address(name=name, **fields) for name, fields in content.items()}


def collections_folder() -> Path:
    """The folder of fetched collections: `RAGKIT_COLLECTIONS`, else `ragkit/collections` in the user's cache folder."""
    if chosen := os.environ.get("RAGKIT_COLLECTIONS"):
        return Path(chosen).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "ragkit" / "collections"


def collections_at_hand(data: str | Path | None = None) -> dict[str, tuple[Path, str]]:
    """The known sets that are there: name -> (folder, kind). Those under `data` come before those that were fetched.

    Raises
    ------
    InputError
        `data` is no folder, or (NothingAtHand) holds none of the sets.
    """
    known = addresses()
    found: dict[str, tuple[Path, str]] = {
        name: (where / entry.inside, entry.kind) for name, entry in known.items() if (where := _fetched(name)).is_dir()
    }
    if data is None:
        return found
    data = Path(data)
    if not data.is_dir():
        raise InputError(f"{data} is not a folder: give one that holds collections, such as scifact/")
    given: dict[str, tuple[Path, str]] = {}
    for name, entry in known.items():
        places = [data / folder for folder in entry.folders if (data / folder).is_dir()]
        places += [data] if data.resolve().name in entry.folders else []
        if places:
            given[name] = (places[0], entry.kind)
    if not given:
        looked_for = ", ".join(folder for entry in known.values() for folder in entry.folders)
        raise NothingAtHand(f"{data} holds no collection with published figures: looked for {looked_for}")
    return found | given


def fetch_collection(name: str, progress: bool = True) -> Path:
    """Bring one set from its public address into `collections_folder()`; one that is there is not fetched again.

    A download that was broken off goes on where it ended. Size and digests of what came are kept in `fetched.json` there.

    Raises
    ------
    InputError
        The set is unknown.
    ServiceError
        No network, an error of the server, other bytes than pinned or than last time, no archive, or no space.
    """
    known = addresses()
    if name not in known:
        raise InputError(f"collection {name!r} is unknown: choose from {', '.join(known)}")
    entry, folder = known[name], _fetched(name)
    with _disk(folder.parent):
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.parent / f".{name}.lock"):
            if not folder.is_dir():
                archive = folder.parent / f".{name}.partial"
                _download(entry, archive, progress)
                _remember(entry, archive)
                _unpack(entry, archive, folder)
                archive.unlink()
    return folder / entry.inside


def _fetched(name: str) -> Path:
    return collections_folder() / name


def _download(entry: Address, target: Path, progress: bool) -> None:
    have = target.stat().st_size if target.is_file() else 0
    timeout = httpx.Timeout(_READ_SECONDS, connect=_CONNECT_SECONDS)
    with tqdm(total=entry.bytes, initial=have, unit="B", unit_scale=True, desc=entry.name, disable=not progress) as bar:
        while have < entry.bytes:
            try:
                headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
                with httpx.stream("GET", entry.url, headers=headers, timeout=timeout, follow_redirects=True) as response:
                    response.raise_for_status()
                    goes_on = response.status_code == httpx.codes.PARTIAL_CONTENT
                    if not goes_on:
                        bar.reset()
                    with target.open("ab" if goes_on else "wb") as stream:
                        for block in response.iter_raw():
                            stream.write(block)
                            bar.update(len(block))
            except httpx.HTTPStatusError as error:
                raise _failure(entry, f"the server answered {error.response.status_code}") from error
            except httpx.HTTPError as error:
                raise _failure(entry, f"{type(error).__name__}; what came is kept") from error
            before, have = have, target.stat().st_size
            if have <= before:
                break
    if have != entry.bytes:
        target.unlink()
        raise _failure(entry, f"it gave {have} bytes, not the pinned {entry.bytes}")


def _remember(entry: Address, archive: Path) -> None:
    """Compare an archive with its pin and with what came from the same address before, and keep its digest."""
    with archive.open("rb") as stream:
        md5 = hashlib.file_digest(stream, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
        stream.seek(0)
        sha256 = hashlib.file_digest(stream, "sha256").hexdigest()
    if md5 != entry.md5:
        archive.unlink()
        raise _failure(entry, f"it gave other bytes (md5 {md5}, pinned {entry.md5})")
    path = archive.parent / "fetched.json"
    try:
        seen = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        seen = {}
    now = {"url": entry.url, "bytes": entry.bytes, "sha256": sha256}
    if seen.get(entry.name, now) != now:
        archive.unlink()
        raise _failure(entry, f"it gave other bytes than before (sha256 {sha256}); delete its entry in {path} to accept them")
    write_text(path, json.dumps(seen | {entry.name: now}, indent=1, sort_keys=True) + "\n")


def _unpack(entry: Address, archive: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix=f".{entry.name}.") as scratch:
        files = Path(scratch) / "files"
        files.mkdir()
        try:
            if zipfile.is_zipfile(archive):
                with zipfile.ZipFile(archive) as packed:
                    packed.extractall(files)  # member names that lead outside are made to stay inside
            else:
                with tarfile.open(archive) as packed:
                    packed.extractall(files, filter="data")
        except (zipfile.BadZipFile, tarfile.TarError, EOFError) as error:
            archive.unlink()
            raise _failure(entry, f"what came is no whole archive ({error})") from error
        inside = list(files.iterdir())
        os.replace(inside[0] if len(inside) == 1 and inside[0].is_dir() else files, folder)


def _failure(entry: Address, why: str) -> ServiceError:
    return ServiceError(
        f"cannot fetch {entry.name} from {entry.url}: {why}; connect and try again, or put the collection into a folder and "
        "give it with --data"
    )


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise ServiceError(
            f"cannot use {folder} ({error.strerror or error}): free space, or set RAGKIT_COLLECTIONS to another folder"
        ) from error
