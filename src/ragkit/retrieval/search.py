"""A profile's retrieval choices turned into hits: dense, BM25 or a hybrid of both, with or without rerank, filtered before.

It embeds nothing and asks no reader for an answer. Words are counted, and a reranker opened, only where they are chosen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ragkit.errors import InputError
from ragkit.profile import Profile, RetrievalChoice
from ragkit.records import Chunk, Hit
from ragkit.retrieval.index import Index

if TYPE_CHECKING:
    from ragkit.retrieval.rerank import Reranker


@dataclass(frozen=True, slots=True)
class Found:
    """Hits of one question; with rerank, the milliseconds that scoring took and how many pairs had no readable score."""

    hits: list[Hit]
    rerank_ms: float | None = None
    unparsable: int = 0


class Retriever:
    """Hits of an index by any of its methods. Made by `open_retriever`; a context manager that frees the reranker at its end.

    Every hit carries its cosine, recomputed from the index's vectors where another method ranked it. So `min_cosine` means the
    same for all methods: of a hybrid's or a reranked list it takes out the hits that are far from the question in the
    embedding, wherever they rank, and leaves the order of the others; a chunk that BM25 alone put first may be among those
    taken out. Cosines of such a list do not fall with the rank.

    Attributes
    ----------
    index : Index
    choice : the retrieval choices in force.
    """

    def __init__(self, index: Index, choice: RetrievalChoice, reranker: Reranker | None = None) -> None:
        if (reranker is None) != (choice.rerank is None):
            raise InputError("a reranker belongs to a choice with rerank, and to no other: open both with open_retriever")
        self.index, self.choice, self._reranker = index, choice, reranker
        if choice.method != "dense":
            # Imported here: a dense search must not load, or go stale with, the parts that count words.
            from ragkit.retrieval.lexical import build_lexical

            self._lexical = build_lexical(index.chunks, choice.tokenizer, choice.k1, choice.b)
            self._places = {chunk.chunk_id: place for place, chunk in enumerate(index.chunks)}

    def search(self, question: str, vector: np.ndarray, k: int | None = None, where: Mapping[str, Any] | None = None) -> Found:
        """The k best chunks for one question, ranks from 1; BM25 finds fewer where fewer share a word with it.

        The first hits do not depend on how many are asked for, up to the choice's `candidates`.

        Parameters
        ----------
        question : counted and reranked by. vector : shape (d,), its embedding, for the dense list and all cosines.
        k : the choice's by default.
        where : conditions that a chunk must meet before any search, see `ragkit.retrieval.filters.to_sql`.

        Raises
        ------
        InputError
            As `Index.search` and `LexicalIndex.search`; a pair too long for the reranker.
        ServiceError
            As `Reranker.scores`.
        """
        k = self.choice.k if k is None else k
        if self._reranker is None or self.choice.rerank is None:
            return Found(self._ranked(question, vector, k, where))
        from ragkit.retrieval.rerank import rerank

        wide = self.choice.rerank.candidates
        hits = self._ranked(question, vector, max(k, wide), where)
        made = rerank(question, hits, self._reranker, k, wide)
        return Found(made.hits, made.milliseconds, made.unparsable)

    def search_many(
        self, questions: Sequence[str], vectors: np.ndarray, k: int | None = None, where: Mapping[str, Any] | None = None
    ) -> list[Found]:
        """Search for each question and its row of `vectors`, shape (n, d): the same as `search` one by one.

        Raises
        ------
        InputError
            As `search`; another number of questions than of vectors.
        """
        if isinstance(questions, str) or len(questions) != len(vectors):
            raise InputError(f"{len(questions)} questions for {len(vectors)} vectors: give a list with one question a vector")
        if self.choice.dense_only:  # one matrix product for all
            return [Found(hits) for hits in self.index.search_many(vectors, self.choice.k if k is None else k, where=where)]
        return [self.search(question, vector, k, where) for question, vector in zip(questions, vectors, strict=True)]

    def close(self) -> None:
        """Free the reranker."""
        if self._reranker is not None:
            self._reranker.close()

    def __enter__(self) -> Retriever:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _ranked(self, question: str, vector: np.ndarray, k: int, where: Mapping[str, Any] | None) -> list[Hit]:
        if self.choice.method == "dense":
            return self.index.search(vector, k, where=where)
        if self.choice.method == "bm25":
            return self._with_cosines(vector, [hit.chunk for hit in self._lexical.search(question, k, where=where)])
        from ragkit.retrieval.lexical import search_hybrid

        fused = search_hybrid(self.index, self._lexical, question, vector, k, where=where, candidates=self.choice.candidates)
        return self._with_cosines(vector, [hit.chunk for hit in fused])

    def _with_cosines(self, vector: np.ndarray, chunks: Sequence[Chunk]) -> list[Hit]:
        cosines = self.index.cosines(vector, [self._places[chunk.chunk_id] for chunk in chunks])
        return [
            Hit(chunk, float(cosine), rank) for rank, (chunk, cosine) in enumerate(zip(chunks, cosines, strict=True), start=1)
        ]


def open_retriever(index: Index, profile: Profile, choice: RetrievalChoice | None = None, *, progress: bool = True) -> Retriever:
    """The retriever of a profile over an index: words counted and the reranker opened where they are chosen.

    Parameters
    ----------
    choice : another than `profile.retrieval`, such as `profile.rung`.
    progress : show the fetch of a reranker's weights.

    Raises
    ------
    InputError, ServiceError
        As `build_lexical` and `open_reranker`.
    """
    choice = choice or profile.retrieval
    if choice.rerank is None:
        return Retriever(index, choice)
    from ragkit.retrieval.rerank import open_reranker

    return Retriever(index, choice, open_reranker(profile, choice.rerank, progress=progress))


def rerank_times(found: Sequence[Found]) -> dict[str, float] | None:
    """Questions, mean and longest milliseconds that rerank took, and pairs without a readable score; None where it was off."""
    times = [one.rerank_ms for one in found if one.rerank_ms is not None]
    if not times:
        return None
    return {
        "questions": len(times),
        "mean_ms": sum(times) / len(times),
        "longest_ms": max(times),
        "unparsable": sum(one.unparsable for one in found),
    }
