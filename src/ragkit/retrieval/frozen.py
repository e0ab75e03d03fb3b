"""The frozen index of a profile: built once from the frozen snapshot, with the tasks' query vectors beside it.

Phase A of the time-shared plan: the embedder works alone, everything that needs it is written, and it is closed. Later stages
read what was written here and open no embedder, unless the (uncommitted) table is gone and has to be built again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragkit.corpus import chunk_article, read_snapshot, read_tasks, tasks_digest
from ragkit.errors import InputError
from ragkit.lab.metrics import write_text
from ragkit.models import open_embedder
from ragkit.profile import Profile, RetrievalChoice, load_profile, resolve
from ragkit.records import Chunk, Hit, Task
from ragkit.retrieval.index import Index, build_index, open_index

if TYPE_CHECKING:
    from ragkit.retrieval.search import Found


@dataclass(frozen=True, slots=True)
class Frozen:
    """The frozen parts of a run: tasks (all splits), their query vectors in the same order, the index, and whose they are."""

    tasks: tuple[Task, ...]
    vectors: np.ndarray
    index: Index
    profile: Profile

    def select(self, split: str = "dev", limit: int | None = None) -> tuple[Task, ...]:
        """Tasks of one split ("all" for every one), the first `limit` of them."""
        return tuple(task for task in self.tasks if split in ("all", task.split))[:limit]

    def hits(self, tasks: Sequence[Task], k: int, choice: RetrievalChoice | None = None) -> list[list[Hit]]:
        """The k best chunks of each task by the profile's retrieval, or by another `choice`, from the stored query vectors."""
        choice = choice or self.profile.retrieval
        if choice.dense_only:
            return self.index.search_many(self._vectors_of(tasks), k)
        return [found.hits for found in self.find(tasks, k, choice)]

    def find(self, tasks: Sequence[Task], k: int, choice: RetrievalChoice | None = None) -> list[Found]:
        """The same hits with what rerank took; a reranker is opened and closed again."""
        # Imported here: stages that search by vectors alone must not go stale with the other methods.
        from ragkit.retrieval.search import open_retriever

        with open_retriever(self.index, self.profile, choice) as retriever:
            return retriever.search_many([task.question for task in tasks], self._vectors_of(tasks), k)

    def _vectors_of(self, tasks: Sequence[Task]) -> np.ndarray:
        place = {task.task_id: number for number, task in enumerate(self.tasks)}
        return self.vectors[[place[task.task_id] for task in tasks]]


def profile_chunks(profile: Profile, articles: Sequence[Any], tokenizer: Any) -> list[Chunk]:
    """All chunks of these articles, cut as the profile says."""
    cut = profile.chunking
    return [
        chunk
        for article in articles
        for chunk in chunk_article(article, tokenizer, strategy=cut.strategy, size=cut.size, overlap=cut.overlap, unit=cut.unit)
    ]


def _folder(profile: Profile, artifacts: str | Path) -> Path:
    return Path(artifacts) / profile.name


def _build(profile: Profile, embedder: Any, folder: Path) -> Index:
    source = resolve(profile.evaluation.snapshot)
    snapshot = read_snapshot(source)
    chunks = profile_chunks(profile, snapshot.articles, embedder.tokenizer)
    provenance = {"snapshot": snapshot.digest, "source": profile.evaluation.snapshot, "chunking": profile.chunking.model_dump()}
    return build_index(chunks, embedder, folder / "space_rag.lance", provenance)


def freeze(profile: str | Path | Profile, artifacts: str | Path = "artifacts") -> dict[str, Any]:
    """Build the index of a profile, embed its tasks' questions, and write both under `artifacts/PROFILE/`.

    Writes `space_rag.lance/` (not committed), `index.json` (its manifest, which is what is pinned), `query_vectors.npy`
    (float32, shape (n, d)) and `query_ids.json` (the n task ids in the same order).
    """
    profile = load_profile(profile)
    folder = _folder(profile, artifacts)
    folder.mkdir(parents=True, exist_ok=True)
    tasks = read_tasks(resolve(profile.evaluation.tasks))
    with open_embedder(profile) as embedder:
        index = _build(profile, embedder, folder)
        vectors = embedder.encode_queries([task.question for task in tasks])
    manifest = {**index.manifest, "tasks_digest": tasks_digest(tasks), "queries": len(tasks)}
    with (folder / ".query_vectors.npy").open("wb") as handle:
        np.save(handle, vectors)
    os.replace(folder / ".query_vectors.npy", folder / "query_vectors.npy")
    write_text(folder / "query_ids.json", json.dumps([task.task_id for task in tasks], indent=0) + "\n")
    write_text(folder / "index.json", json.dumps(manifest, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
    return manifest


def open_frozen(profile: str | Path | Profile, artifacts: str | Path = "artifacts") -> Frozen:
    """Open what `freeze` wrote; the table is built again where it is missing or is not the pinned one.

    Raises
    ------
    InputError
        Nothing was frozen for this profile, or the tasks changed since.
    """
    profile = load_profile(profile)
    folder = _folder(profile, artifacts)
    try:
        manifest = json.loads((folder / "index.json").read_text(encoding="utf-8"))
        ids = json.loads((folder / "query_ids.json").read_text(encoding="utf-8"))
        vectors = np.load(folder / "query_vectors.npy")
    except OSError as error:
        raise InputError(
            f"no frozen index of profile {profile.name} in {folder}: run `make rerun PROFILE={profile.name}`"
        ) from error
    tasks = read_tasks(resolve(profile.evaluation.tasks))
    if [task.task_id for task in tasks] != ids or tasks_digest(tasks) != manifest["tasks_digest"]:
        raise InputError(
            f"the tasks changed since {folder / 'query_vectors.npy'} was written: run the stage index@{profile.name} again"
        )
    try:
        index = open_index(folder / "space_rag.lance")
    except InputError:
        index = None
    if index is None or index.manifest["key"] != manifest["key"]:
        with open_embedder(profile) as embedder:
            index = _build(profile, embedder, folder)
        if index.manifest["key"] != manifest["key"]:
            raise InputError(
                f"the corpus or the embedder changed since {folder / 'index.json'}: run the stage index@{profile.name} again"
            )
    return Frozen(tasks, vectors, index, profile)
