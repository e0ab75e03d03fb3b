"""The frozen index: one immutable LanceDB table per content, searched exactly. It never changes a table and never approximates.

A folder holds NAME/{chunks.lance, table.sha256, manifest.json} for each index, NAME being the key of what it was built from
(-2, -3 ... after a rebuild), and the file CURRENT that names the newest. An index appears by one rename: whole or not at all.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from itertools import count, pairwise
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa
from filelock import FileLock, Timeout
from tqdm import tqdm

from ragkit.errors import InputError, RagkitError, ServiceError
from ragkit.records import Chunk, Hit
from ragkit.retrieval.filters import to_sql

if TYPE_CHECKING:
    from ragkit.models import Embedder

FORMAT = 1
KEPT = 3  # whole indexes kept in a folder: the current one and two before it; journals of killed builds likewise
PART = 256  # chunks embedded between two writes of the journal: a killed build loses at most these
_MARGIN = 1e-4  # far above the rounding of a float32 dot product of unit vectors, so the first pass never loses a true neighbour
_BLOCK = 1 << 24  # scores held at once by a batched search: 64 MiB of float32
_RESCORED = 1 << 6  # candidates scored again at once: few enough to stay in the processor's cache
_CHUNK_FIELDS = tuple(field.name for field in fields(Chunk))
_CHUNK_TYPES = {"start": pa.int64(), "end": pa.int64(), "text": pa.large_string()}  # the others are strings
_values = attrgetter(*_CHUNK_FIELDS)
_log = logging.getLogger(__name__)


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def chunks_digest(chunks: Sequence[Chunk]) -> str:
    """SHA-256 (64 hex) over all fields of the chunks in order of their ids: the content, not the order it came in."""
    return _digest([_values(chunk) for chunk in sorted(chunks, key=lambda chunk: chunk.chunk_id)])


def _files_digest(folder: Path) -> str:
    """SHA-256 (64 hex) over the names and bytes of all files below a folder: one flipped bit changes it."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        with path.open("rb") as handle:
            total.update(f"{path.relative_to(folder).as_posix()} {hashlib.file_digest(handle, 'sha256').hexdigest()}\n".encode())
    return total.hexdigest()


@contextmanager
def _faults(what: str, remedy: str) -> Iterator[None]:
    """Say whatever the disk, Arrow or LanceDB raises on one line: they use RuntimeError and ValueError for a damaged file."""
    try:
        yield
    except RagkitError:
        raise
    except (OSError, RuntimeError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
        reason = next(iter(str(error).splitlines()), "") or type(error).__name__
        raise ServiceError(f"{what} ({reason}): {remedy}") from error


class Index:
    """One whole index, opened. Search is exact: a miss is a fact about embedding or chunking, never about approximation.

    Attributes
    ----------
    chunks : tuple of Chunk, in order of their ids.
    vectors : float32, shape (n, d), read-only; row i is the unit vector of `chunks[i]`.
    manifest : what it was built from.
    embedded : how many chunks the call of `build_index` that returned this index had to embed.
    """

    def __init__(self, folder: Path):
        self.folder = folder
        self.embedded = 0
        with _faults(f"the index in {folder.parent} cannot be read", "rebuild it with `ragkit index SOURCE --rebuild`"):
            self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
            if self.manifest["format"] != FORMAT:
                raise ValueError(f"its format is {self.manifest['format']}, this program's is {FORMAT}")
            if (folder / "table.sha256").read_text(encoding="utf-8") != _files_digest(folder / "chunks.lance"):
                raise ValueError(f"{folder.name}/chunks.lance is damaged: its sha256 is not the one in table.sha256")
            self.dimension = int(self.manifest["dimension"])
            self._table = lancedb.connect(str(folder)).open_table("chunks")
            arrow = self._table.to_arrow().sort_by("position").combine_chunks()
            flat = arrow["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
            self.vectors = np.ascontiguousarray(flat, dtype=np.float32).reshape(-1, self.dimension)
            self.vectors.flags.writeable = False
            columns = [arrow[name].to_pylist() for name in _CHUNK_FIELDS]
            self.chunks = tuple(Chunk(*values) for values in zip(*columns, strict=True))

    def __len__(self) -> int:
        return len(self.chunks)

    def check_embedder(self, embedder: Embedder) -> None:
        """Refuse an embedder whose vectors cannot be compared with these (another model, prefix, pooling or dimension)."""
        built, given = self.manifest["embedder"], _plain(embedder.identity)
        if built != given:
            raise InputError(
                f"the index in {self.folder.parent} was built with another embedder ({_name(built)}, {self.dimension} "
                f"dimensions; this one is {_name(given)}): rebuild it with this profile, or choose the profile it was built with"
            )

    def search(
        self, vector: np.ndarray, k: int, where: Mapping[str, Any] | None = None, min_cosine: float | None = None
    ) -> list[Hit]:
        """Exact cosine top-k, equation (1.3).

        Parameters
        ----------
        vector : shape (d,), any norm above zero.
        k : how many; more than there are gives all.
        where : conditions that a chunk must meet *before* the search, see `ragkit.retrieval.filters.to_sql`.
        min_cosine : hits below it are left out.

        Raises
        ------
        InputError
            k < 1, a vector of another dimension, a zero or non-finite vector, an unknown filter field.
        """
        return self.search_many(np.asarray(vector)[None, ...], k, where=where, min_cosine=min_cosine)[0]

    def search_many(
        self, vectors: np.ndarray, k: int, where: Mapping[str, Any] | None = None, min_cosine: float | None = None
    ) -> list[list[Hit]]:
        """Search for each row of `vectors`, shape (n, d): the same hits as `search` one by one, to the last id."""
        if isinstance(k, bool) or not isinstance(k, int | np.integer) or k < 1:
            raise InputError(f"k is {k!r}: give a whole number of at least 1")
        if min_cosine is not None and not -1.0 <= min_cosine <= 1.0:
            raise InputError(f"min_cosine is {min_cosine}: give a number from -1 to 1")
        queries = self._unit_rows(vectors)
        positions = self._positions(where) if where else None
        matrix = self.vectors if positions is None else self.vectors[positions]
        found: list[list[Hit]] = []
        if not len(matrix):
            return [[] for _ in queries]
        step = max(1, _BLOCK // len(matrix))
        for start in range(0, len(queries), step):
            for places, cosines in _best(queries[start : start + step], matrix, k):
                found.append(
                    [
                        Hit(self.chunks[place if positions is None else positions[place]], cosine, rank)
                        for rank, (place, cosine) in enumerate(zip(places, cosines, strict=True), start=1)
                        if min_cosine is None or cosine >= min_cosine
                    ]
                )
        return found

    def cosines(self, vector: np.ndarray, places: Sequence[int]) -> np.ndarray:
        """Cosines of a query with some `chunks`, by their places: float64, shape (n,), the same bits that a search gives.

        Raises
        ------
        InputError
            A vector of another dimension, zero or not finite.
        """
        return _cosines(self._unit_rows(np.asarray(vector)[None, ...])[0], self.vectors[np.asarray(places, dtype=np.int64)])

    def _unit_rows(self, vectors: np.ndarray) -> np.ndarray:
        try:
            array = np.asarray(vectors, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise InputError(f"query vectors are not numbers in rows of equal length: {error}") from error
        if array.ndim != 2 or array.shape[1] != self.dimension:
            raise InputError(
                f"query vectors of shape {array.shape}: this index takes (n, {self.dimension}), "
                f"from {_name(self.manifest['embedder'])}"
            )
        largest = np.abs(array).max(axis=1, keepdims=True)
        bad = np.flatnonzero(~(np.isfinite(largest) & (largest > 0)))
        if len(bad):
            raise InputError(f"query vector {bad[0]} is zero or not finite: it has no direction, so no cosine")
        array = array / largest  # so that no square overflows or vanishes
        return (array / np.linalg.norm(array, axis=1, keepdims=True)).astype(np.float32)

    def _positions(self, where: Mapping[str, Any]) -> np.ndarray:
        predicate = to_sql(where)
        with _faults(f"the index {self.folder} cannot be filtered", "open it again: a later build may have replaced it"):
            table = self._table.search().where(predicate).select(["position"]).limit(len(self)).to_arrow()
        return np.sort(table["position"].to_numpy())


def _best(queries: np.ndarray, matrix: np.ndarray, k: int) -> Iterator[tuple[list[int], list[float]]]:
    """For each unit query, shape (q, d), the places of its k best rows of `matrix`, shape (n, d), and their cosines."""
    scores = queries @ matrix.T
    # float32 products differ in their last bits with the shape of the batch: take all that could be among the k best,
    # score those again row by row in float64, and only then sort.
    found = [np.flatnonzero(row >= _kth(row, k) - _MARGIN) for row in scores]
    places, owners = np.concatenate(found), np.repeat(np.arange(len(found)), [len(some) for some in found])
    cosines = np.empty(len(places))
    for start in range(0, len(places), _RESCORED):
        part = slice(start, start + _RESCORED)
        cosines[part] = _cosines(queries[owners[part]], matrix[places[part]])
    order = np.lexsort((places, -cosines, owners))  # ties by chunk_id, since chunks lie in that order
    ends = np.searchsorted(owners, np.arange(len(queries) + 1))
    for first, last in pairwise(ends):
        best = order[first : min(last, first + k)]
        yield places[best].tolist(), cosines[best].tolist()


def _kth(scores: np.ndarray, k: int) -> Any:
    """The k-th largest score, of fewer the smallest. Row by row: a row fits the processor's cache, a block of rows does not."""
    return np.partition(scores, len(scores) - k)[len(scores) - k] if k < len(scores) else scores.min()


def _cosines(queries: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """The one routine that scores: row by row in float64, so that a cosine does not depend on what it was computed with.

    `queries` is one, shape (d,), or one for each row, shape (n, d).
    """
    rows, queries = rows.astype(np.float64), queries.astype(np.float64)
    lengths = np.sqrt((rows * rows).sum(axis=-1) * (queries * queries).sum(axis=-1))
    found: np.ndarray = np.clip((rows * queries).sum(axis=-1) / lengths, -1.0, 1.0)
    return found


def _plain(identity: Any) -> Any:
    """An embedder's identity as JSON gives it back, so that a stored one and a fresh one compare equal."""
    return json.loads(json.dumps(identity))


def _name(identity: Any) -> str:
    return str(identity.get("model", identity)) if isinstance(identity, Mapping) else str(identity)


def _newest(paths: Iterator[Path]) -> list[Path]:
    return sorted(paths, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


def _whole(folder: Path) -> list[Path]:
    """The whole indexes of a folder, newest first."""
    return _newest(path.parent for path in folder.glob("*/manifest.json") if not path.parent.name.startswith("."))


def _current(folder: Path) -> Path | None:
    """The index that CURRENT names; where it names none, the newest whole one."""
    whole = _whole(folder)
    try:
        named = folder / (folder / "CURRENT").read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):
        named = None
    return named if named in whole else next(iter(whole), None)


def open_index(folder: str | Path) -> Index:
    """Open the newest whole index of a folder.

    Raises
    ------
    InputError
        There is none.
    ServiceError
        The one there is cannot be read.
    """
    folder = Path(folder)
    current = _current(folder)
    while current is not None:
        try:
            return Index(current)
        except ServiceError:
            # Builds that ended since may have put another in its place and removed this one.
            before, current = current, _current(folder)
            if current == before:
                raise
    raise InputError(f"no index in {folder}: build one with `ragkit index SOURCE`")


def _check_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    if not chunks:
        raise InputError("no chunks to index: the snapshot has no text")
    ordered = sorted(chunks, key=lambda chunk: chunk.chunk_id)
    for before, after in pairwise(ordered):
        if before.chunk_id == after.chunk_id:
            raise InputError(f"chunk id {after.chunk_id!r} occurs twice: article ids must be unique")
    for chunk in ordered:
        try:
            "".join(value for value in _values(chunk) if isinstance(value, str)).encode()
        except UnicodeEncodeError as error:
            raise InputError(f"chunk {chunk.chunk_id!r} holds a lone surrogate: repair the text's encoding") from error
    return ordered


def _embed(chunks: list[Chunk], embedder: Embedder, journal: Path, truncate: bool) -> tuple[np.ndarray, int]:
    """Embed all chunks, longest first (little padding), writing each finished part, so that a killed build resumes.

    Returns the vectors, shape (n, d), and how many of them this call embedded.
    """
    embedded = 0
    order = sorted(range(len(chunks)), key=lambda place: (-len(chunks[place].text), place))
    vectors = np.empty((len(chunks), embedder.dimension), dtype=np.float32)
    with tqdm(total=len(chunks), desc="embed", unit="chunk", disable=None if len(chunks) > PART else True) as bar:
        for start in range(0, len(order), PART):
            places = order[start : start + PART]
            file = journal / f"part-{start:09d}.npy"
            part = _read_part(file, (len(places), embedder.dimension))
            if part is None:
                part = _embed_part([chunks[place] for place in places], embedder, truncate)
                embedded += len(places)
                with _unwritable(journal.parent):
                    with (journal / "writing").open("wb") as handle:
                        np.save(handle, part)
                    os.replace(journal / "writing", file)
            vectors[places] = part
            bar.update(len(places))
    return vectors, embedded


def _embed_part(chunks: list[Chunk], embedder: Embedder, truncate: bool) -> np.ndarray:
    """Unit vectors of some chunks, float32, shape (n, d)."""
    vectors = np.asarray(embedder.encode_passages([chunk.text for chunk in chunks], truncate=truncate), dtype=np.float64)
    if vectors.shape != (len(chunks), embedder.dimension):
        raise ServiceError(
            f"{_name(embedder.identity)} gave vectors of shape {vectors.shape}, not {(len(chunks), embedder.dimension)}: "
            "the profile names another model than the one that runs"
        )
    norms = np.linalg.norm(vectors, axis=1, keepdims=True)
    bad = np.flatnonzero(~(np.isfinite(norms) & (norms > 0)))
    if len(bad):
        raise ServiceError(
            f"chunk {chunks[bad[0]].chunk_id!r} got a vector of norm {norms[bad[0], 0]:.3g} and could never be found: "
            "look at its text and at the embedder"
        )
    return (vectors / norms).astype(np.float32)


def _read_part(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    try:
        part = np.load(file)
    except (OSError, ValueError, EOFError):
        return None
    return part if part.shape == shape else None


@contextmanager
def _unwritable(folder: Path) -> Iterator[None]:
    remedy = "free space or choose another --index folder; what was embedded is kept"
    with _faults(f"the index could not be written to {folder}", remedy):
        yield


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Make the folder and hold its lock; the kernel frees it when its holder is killed."""
    with _unwritable(folder):
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(str(folder / ".lock"))
        try:
            lock.acquire(blocking=False)
        except Timeout:
            _log.warning("another build is writing to %s: waiting until it ends", folder)
            lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _write_table(chunks: list[Chunk], vectors: np.ndarray, folder: Path) -> None:
    """Write the one table of an index in a single write, so in a single version."""
    columns: dict[str, Any] = {
        name: pa.array([getattr(chunk, name) for chunk in chunks], _CHUNK_TYPES.get(name, pa.string())) for name in _CHUNK_FIELDS
    }
    columns["position"] = pa.array(range(len(chunks)), pa.int64())
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), vectors.shape[1])
    lancedb.connect(str(folder)).create_table("chunks", pa.table(columns))


def _write(chunks: list[Chunk], vectors: np.ndarray, manifest: Mapping[str, Any], journal: Path) -> Path:
    """Write a whole index aside, then give it its name in one rename; an index that is there is never touched."""
    staging = journal / "index"
    shutil.rmtree(staging, ignore_errors=True)
    try:
        staging.mkdir()
        _write_table(chunks, vectors, staging)
        # Beside the manifest, not in it: LanceDB names its files at random, and the manifest is the same after every build.
        (staging / "table.sha256").write_text(_files_digest(staging / "chunks.lance"), encoding="utf-8")
        text = json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False)
        (staging / "manifest.json").write_text(text, encoding="utf-8")
        key = manifest["key"]
        names = (key if serial == 1 else f"{key}-{serial}" for serial in count(1))
        target = next(path for name in names if not (path := journal.parent / name).exists())
        os.rename(staging, target)
    finally:
        shutil.rmtree(staging, ignore_errors=True)  # a full disk needs the room
    return target


def _make_current(target: Path) -> None:
    folder = target.parent
    os.utime(target)
    (folder / ".CURRENT").write_text(target.name, encoding="utf-8")
    os.replace(folder / ".CURRENT", folder / "CURRENT")


def _prune(current: Path) -> None:
    """Remove all but the newest indexes and journals; an index goes by one rename first, so that none is ever seen in part."""
    folder = current.parent
    for old in [path for path in _whole(folder) if path != current][KEPT - 1 :]:
        os.replace(old, folder / f".old-{old.name}")
    journals = _newest(folder.glob(".building-*"))
    for path in [*folder.glob(".old-*"), *journals[KEPT:]]:
        shutil.rmtree(path, ignore_errors=True)


def build_index(
    chunks: Sequence[Chunk],
    embedder: Embedder,
    folder: str | Path,
    provenance: Mapping[str, Any] | None = None,
    rebuild: bool = False,
    truncate: bool = False,
) -> Index:
    """Build the index of these chunks under `folder`, or open it where it exists: unchanged input embeds nothing.

    Parameters
    ----------
    provenance : plain JSON kept in the manifest; its entry "snapshot" (the digest) is part of the index's key.
    rebuild : build again even where it exists; the former one stays until the new one is whole.
    truncate : let the embedder cut over-long texts (only published figures do), else they raise.

    Raises
    ------
    InputError
        No chunks, duplicate ids, text that is not Unicode, or a chunk longer than the embedder takes.
    ServiceError
        The folder cannot be written, the disk is full, a vector is unusable, or the index that exists is damaged.
        A later call goes on where this one stopped.
    """
    ordered = _check_chunks(chunks)
    provenance = dict(provenance or {})
    content = {
        "format": FORMAT,
        "chunks_digest": chunks_digest(ordered),
        "embedder": _plain(embedder.identity),
        "snapshot": provenance.get("snapshot"),
        "truncate": truncate,
    }
    key = _digest(content)[:24]
    folder = Path(folder)

    def built() -> list[Path]:
        return [] if rebuild else [path for path in _whole(folder) if path.name.partition("-")[0] == key]

    current = _current(folder)
    if current in built():
        return Index(current)  # nothing to write: works on a read-only disk and beside another build
    journal = folder / f".building-{key}"
    with _alone(folder):
        found = built()  # a second build waited, and finds the first one's work
        if found:
            index = Index(found[0])
        else:
            with _unwritable(folder):
                journal.mkdir(exist_ok=True)
            vectors, embedded = _embed(ordered, embedder, journal, truncate)
            manifest = {
                **content,
                "key": key,
                "chunks": len(ordered),
                "dimension": embedder.dimension,
                "provenance": provenance,
            }
            with _unwritable(folder):
                index = Index(_write(ordered, vectors, manifest, journal))
            index.embedded = embedded
        with _unwritable(folder):
            shutil.rmtree(journal, ignore_errors=True)  # first: what is current leaves nothing behind, wherever a kill falls
            _make_current(index.folder)
            _prune(index.folder)
    return index
