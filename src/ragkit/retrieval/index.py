"""The frozen index: one immutable LanceDB table per content, searched exactly. It never changes a table and never approximates.

A folder holds `KEY/chunks.lance` and `KEY/manifest.json` for each index, KEY naming what it was built from, and the file CURRENT
that names the newest. An index appears by one rename, so a reader sees a whole one or none.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa
from filelock import FileLock
from tqdm import tqdm

from ragkit.errors import InputError, ServiceError
from ragkit.records import Chunk, Hit
from ragkit.retrieval.filters import to_sql

if TYPE_CHECKING:
    from ragkit.models import Embedder

FORMAT = 1
KEPT = 3  # whole indexes kept in a folder: the current one and two before it
PART = 256  # chunks embedded between two writes of the journal: a killed build loses at most these
_MARGIN = 1e-4  # far above the rounding of a float32 dot product of unit vectors, so the first pass never loses a true neighbour
_BLOCK = 1 << 24  # scores held at once by a batched search: 64 MiB of float32
_CHUNK_FIELDS = tuple(field.name for field in fields(Chunk))


def _digest(value: Any) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, ensure_ascii=False).encode("utf-8", "surrogatepass")).hexdigest()


def chunks_digest(chunks: Sequence[Chunk]) -> str:
    """SHA-256 (64 hex) over all fields of the chunks in order of their ids: the content, not the order it came in."""
    return _digest([astuple(chunk) for chunk in sorted(chunks, key=lambda chunk: chunk.chunk_id)])


class Index:
    """One whole index, opened. Search is exact: a miss is a fact about embedding or chunking, never about approximation."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.manifest: dict[str, Any] = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))
        self._table = lancedb.connect(str(folder)).open_table("chunks")
        arrow = self._table.to_arrow().sort_by("position").combine_chunks()
        self.dimension = int(self.manifest["dimension"])
        flat = arrow["vector"].combine_chunks().flatten().to_numpy(zero_copy_only=False)
        self.vectors = np.ascontiguousarray(flat, dtype=np.float32).reshape(-1, self.dimension)
        columns = [arrow[name].to_pylist() for name in _CHUNK_FIELDS]
        self.chunks = tuple(Chunk(*values) for values in zip(*columns, strict=True))
        if len(self.chunks) != self.manifest["chunks"]:
            raise ServiceError(
                f"index {folder} holds {len(self.chunks)} of {self.manifest['chunks']} chunks: rebuild it with --rebuild"
            )

    def __len__(self) -> int:
        return len(self.chunks)

    def check_embedder(self, embedder: Embedder) -> None:
        """Refuse an embedder whose vectors cannot be compared with these (another model, prefix, pooling or dimension)."""
        built, given = self.manifest["embedder"], _plain(embedder.identity)
        if built != given:
            raise InputError(
                f"the index in {self.folder.parent} was built with another embedder ({_name(built)}, {self.dimension} dimensions; "
                f"this one is {_name(given)}): rebuild it with this profile, or choose the profile it was built with"
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
            block = queries[start : start + step]
            for query, scores in zip(block, block @ matrix.T, strict=True):
                found.append(self._best(query, scores, matrix, positions, k, min_cosine))
        return found

    def _unit_rows(self, vectors: np.ndarray) -> np.ndarray:
        array = np.asarray(vectors, dtype=np.float32)
        if array.ndim != 2 or array.shape[1] != self.dimension:
            raise InputError(
                f"query vectors of shape {array.shape}: this index ({_name(self.manifest['embedder'])}) takes (n, {self.dimension})"
            )
        norms = np.linalg.norm(array.astype(np.float64), axis=1, keepdims=True)
        if not np.isfinite(norms).all() or (norms == 0).any():
            row = int(np.flatnonzero(~np.isfinite(norms[:, 0]) | (norms[:, 0] == 0))[0])
            raise InputError(f"query vector {row} is zero or not finite: it has no direction, so no cosine")
        return (array / norms).astype(np.float32)

    def _positions(self, where: Mapping[str, Any]) -> np.ndarray:
        table = self._table.search().where(to_sql(where)).select(["position"]).limit(len(self)).to_arrow()
        return np.sort(table["position"].to_numpy())

    def _best(
        self,
        query: np.ndarray,
        scores: np.ndarray,
        matrix: np.ndarray,
        positions: np.ndarray | None,
        k: int,
        min_cosine: float | None,
    ) -> list[Hit]:
        # float32 products differ in their last bits with the shape of the batch: take all that could be among the k best,
        # score those again row by row in float64, and only then sort, ties by id.
        if k < len(scores):
            kth = np.partition(scores, len(scores) - k)[len(scores) - k]
            candidates = np.flatnonzero(scores >= kth - _MARGIN)
        else:
            candidates = np.arange(len(scores))
        rows = matrix[candidates].astype(np.float64)
        wide = query.astype(np.float64)
        exact = (rows * wide).sum(axis=1) / np.sqrt((rows * rows).sum(axis=1) * (wide * wide).sum())
        exact = np.clip(exact, -1.0, 1.0)
        places = candidates if positions is None else positions[candidates]
        ranked = sorted(
            zip(exact.tolist(), places.tolist(), strict=True), key=lambda pair: (-pair[0], self.chunks[pair[1]].chunk_id)
        )
        kept = [(cosine, place) for cosine, place in ranked[:k] if min_cosine is None or cosine >= min_cosine]
        return [Hit(self.chunks[place], cosine, rank) for rank, (cosine, place) in enumerate(kept, start=1)]


def _plain(identity: Any) -> Any:
    """An embedder's identity as JSON gives it back, so that a stored one and a fresh one compare equal."""
    return json.loads(json.dumps(identity))


def _name(identity: Any) -> str:
    return str(identity.get("model", identity)) if isinstance(identity, Mapping) else str(identity)


def _whole(folder: Path) -> list[Path]:
    """The whole indexes of a folder, newest first."""
    if not folder.is_dir():
        return []
    whole = [path.parent for path in folder.glob("*/manifest.json") if not path.parent.name.startswith(".")]
    return sorted(whole, key=lambda path: (path.stat().st_mtime_ns, path.name), reverse=True)


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
    whole = _whole(folder)
    if not whole:
        raise InputError(f"no index in {folder}: build one with `ragkit index SOURCE`")
    try:
        current = folder / (folder / "CURRENT").read_text(encoding="utf-8").strip()
    except OSError:
        current = whole[0]
    try:
        return Index(current if current in whole else whole[0])
    except (OSError, ValueError, KeyError, RuntimeError, pa.ArrowException) as error:
        if isinstance(error, InputError | ServiceError):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ServiceError(
            f"the index in {folder} cannot be read ({reason}): rebuild it with `ragkit index SOURCE --rebuild`"
        ) from error


def _check_chunks(chunks: Sequence[Chunk]) -> list[Chunk]:
    if not chunks:
        raise InputError("no chunks to index: the snapshot has no text")
    ordered = sorted(chunks, key=lambda chunk: chunk.chunk_id)
    for before, after in zip(ordered, ordered[1:], strict=False):
        if before.chunk_id == after.chunk_id:
            raise InputError(f"chunk id {after.chunk_id!r} occurs twice: article ids must be unique")
    return ordered


def _embed(chunks: list[Chunk], embedder: Embedder, journal: Path, truncate: bool) -> np.ndarray:
    """Embed all chunks, longest first (little padding), writing each finished part, so that a killed build resumes."""
    order = sorted(range(len(chunks)), key=lambda place: (-len(chunks[place].text), place))
    vectors = np.empty((len(chunks), embedder.dimension), dtype=np.float32)
    bar = tqdm(total=len(chunks), desc="embed", unit="chunk", disable=None if len(chunks) > PART else True)
    for start in range(0, len(order), PART):
        places = order[start : start + PART]
        file = journal / f"part-{start:09d}.npy"
        part = _read_part(file, (len(places), embedder.dimension))
        if part is None:
            texts = [chunks[place].text for place in places]
            part = embedder.encode_passages(texts, truncate=truncate)
            norms = np.linalg.norm(part.astype(np.float64), axis=1)
            bad = np.flatnonzero(~(np.abs(norms - 1.0) < 1e-3))
            if len(bad):
                raise ServiceError(
                    f"chunk {chunks[places[bad[0]]].chunk_id!r} got a vector of norm {norms[bad[0]]:.3g}: it could never be found"
                )
            with (journal / "writing").open("wb") as handle:
                np.save(handle, part)
            os.replace(journal / "writing", file)
        vectors[places] = part
        bar.update(len(places))
    bar.close()
    return vectors


def _read_part(file: Path, shape: tuple[int, int]) -> np.ndarray | None:
    try:
        part = np.load(file)
    except (OSError, ValueError, EOFError):
        return None
    return part if part.shape == shape else None


def _write_table(chunks: list[Chunk], vectors: np.ndarray, folder: Path) -> None:
    """Write the one table of an index in a single write, so in a single version."""
    dimension = vectors.shape[1]
    columns: dict[str, Any] = {name: pa.array([getattr(chunk, name) for chunk in chunks]) for name in _CHUNK_FIELDS}
    for name in ("chunk_id", "article_id", "title", "url", "published_at", "heading", "text", "source"):
        columns[name] = columns[name].cast(pa.large_string() if name == "text" else pa.string())
    columns["position"] = pa.array(range(len(chunks)), pa.int64())
    columns["vector"] = pa.FixedSizeListArray.from_arrays(pa.array(vectors.reshape(-1)), dimension)
    lancedb.connect(str(folder)).create_table("chunks", pa.table(columns), mode="overwrite")


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
    rebuild : build again even where it exists.
    truncate : let the embedder cut over-long texts (only published figures do), else they raise.

    Raises
    ------
    InputError
        No chunks, duplicate ids, or a chunk longer than the embedder takes.
    ServiceError
        The folder cannot be written, the disk is full, or a vector is unusable. A later call goes on where this one stopped.
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
    target = folder / key
    journal = folder / f".building-{key}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with FileLock(str(folder / ".lock")):  # a second build waits, and then finds the first one's work
            if rebuild or not (target / "manifest.json").is_file():
                journal.mkdir(exist_ok=True)
                vectors = _embed(ordered, embedder, journal, truncate)
                staging = journal / "index"
                shutil.rmtree(staging, ignore_errors=True)
                staging.mkdir()
                _write_table(ordered, vectors, staging)
                manifest = {
                    **content,
                    "key": key,
                    "chunks": len(ordered),
                    "dimension": embedder.dimension,
                    "provenance": provenance,
                }
                (staging / "manifest.json").write_text(
                    json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False), encoding="utf-8"
                )
                if target.exists():
                    shutil.rmtree(target)
                os.rename(staging, target)
                shutil.rmtree(journal)
            os.utime(target)
            (folder / ".CURRENT").write_text(key, encoding="utf-8")
            os.replace(folder / ".CURRENT", folder / "CURRENT")
            for old in [path for path in _whole(folder) if path != target][KEPT - 1 :]:
                shutil.rmtree(old, ignore_errors=True)
    except (OSError, RuntimeError, pa.ArrowException) as error:
        if isinstance(error, InputError | ServiceError):
            raise
        reason = str(error).splitlines()[0]
        raise ServiceError(
            f"the index could not be written to {folder} ({reason}): free space or choose another --index folder; what was embedded is kept"
        ) from error
    return Index(target)
