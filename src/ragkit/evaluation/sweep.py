"""Chunkings compared: one set of articles cut in several ways, each searched with the same questions, scored on the same spans.

What is held equal between two cuts is the number of context tokens. It keeps no index, opens no model, and judges nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ragkit.corpus import count_tokens, untruncated
from ragkit.errors import InputError
from ragkit.evaluation.report import retrieval_rows
from ragkit.records import Article, Chunk, Hit, Task
from ragkit.retrieval.index import build_index

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ragkit.models import Embedder


def whole_articles(articles: Iterable[Article]) -> list[Chunk]:
    """Each article as one chunk: nothing is cut, so the embedder may see its beginning only."""
    return [
        Chunk(f"{a.article_id}::0", a.article_id, a.title, a.url, a.published_at, None, a.text, 0, len(a.text), a.source)
        for a in articles
    ]


def index_bytes(chunks: Sequence[Chunk], dimension: int) -> int:
    """What an index must hold at least: float32 vectors and the chunks' text in UTF-8, in bytes; stamps and files not counted."""
    return 4 * dimension * len(chunks) + sum(len(chunk.text.encode()) for chunk in chunks)


def hits_of(chunks: Sequence[Chunk], embedder: Embedder, vectors: np.ndarray, k: int, truncate: bool = False) -> list[list[Hit]]:
    """The k nearest of these chunks for each row of `vectors`, shape (n, d), from an index that is thrown away.

    Raises
    ------
    InputError
        As `build_index`: a chunk longer than the embedder takes (unless `truncate`), and as a search does.
    """
    with tempfile.TemporaryDirectory() as folder:
        return build_index(chunks, embedder, folder, truncate=truncate).search_many(vectors, k)


def within_budget(hits: Sequence[Hit], tokenizer: Tokenizer, budget: int) -> list[Hit]:
    """The first of these hits, as many as `budget` tokens of text hold (special ones not counted); the last one is cut to fit.

    Chunks of any size then bring the same number of tokens into a prompt, and only the last of them may be a part of itself.

    Raises
    ------
    InputError
        `budget` is below 1.
    """
    if budget < 1:
        raise InputError(f"budget is {budget}: give at least one token")
    exact, kept = untruncated(tokenizer), []
    for hit in hits:
        offsets = exact.encode(hit.chunk.text, add_special_tokens=False).offsets
        if len(offsets) > budget:
            text = hit.chunk.text[: offsets[budget - 1][1]]
            hit = replace(hit, chunk=replace(hit.chunk, text=text, end=hit.chunk.start + len(text)))
        kept.append(hit)
        budget -= len(offsets)
        if budget <= 0:
            break
    return kept


def span_share(task: Task, hits: Sequence[Hit], texts: dict[str, str]) -> float:
    """The share of the gold spans' characters that these chunks hold together, in [0, 1]; white space is not counted.

    Parameters
    ----------
    texts : article id -> `Article.text`, in which the spans lie.

    Raises
    ------
    InputError
        The task has no span, or its article is not among `texts`.
    """
    wanted, held = 0, 0
    for gold in task.golds:
        if gold.start is None or gold.end is None:
            continue
        if gold.article_id not in texts:
            raise InputError(f"task {task.task_id}: article {gold.article_id!r} is not among the texts: give the whole snapshot")
        text = texts[gold.article_id]
        places = {place for place in range(gold.start, gold.end) if not text[place].isspace()}
        found = [range(hit.chunk.start, hit.chunk.end) for hit in hits if hit.chunk.article_id == gold.article_id]
        wanted += len(places)
        held += sum(any(place in window for window in found) for place in places)
    if not wanted:
        raise InputError(f"task {task.task_id} has no gold span: score its articles only")
    return held / wanted


def context_rows(
    tasks: Sequence[Task], hits: Sequence[Sequence[Hit]], k: int, articles: Iterable[Article], tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """`retrieval_rows` of the tasks that have golds, each with what its first k chunks bring into a prompt.

    Returns
    -------
    One mapping a task: the keys of `retrieval_rows`, `span_share` (see there) and `context_tokens` (tokens of the k chunks'
    text for this tokenizer, special tokens not counted).
    """
    texts = {article.article_id: article.text for article in articles}
    special = tokenizer.num_special_tokens_to_add(False)
    lengths: dict[Chunk, int] = {}  # by the whole chunk: one that was cut to a budget keeps its id
    for found in hits:
        for hit in found[:k]:
            if hit.chunk not in lengths:
                lengths[hit.chunk] = count_tokens(tokenizer, hit.chunk.text) - special
    pairs = [(task, found[:k]) for task, found in zip(tasks, hits, strict=True) if task.golds]
    return [
        {
            **row,
            "span_share": span_share(task, found, texts),
            "context_tokens": sum(lengths[hit.chunk] for hit in found),
        }
        for row, (task, found) in zip(retrieval_rows(tasks, hits, k), pairs, strict=True)
    ]
