"""Chunkings compared: one set of articles cut in several ways, each searched with the same questions, scored on the same spans.

What is held equal between two cuts is the number of context tokens. It keeps no index, opens no model, and judges nothing.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from ragkit.corpus import chunk_article, count_tokens, untruncated
from ragkit.errors import InputError
from ragkit.evaluation.items import covers
from ragkit.evaluation.report import retrieval_rows
from ragkit.records import Article, Chunk, Gold, Hit, Task
from ragkit.retrieval.index import build_index

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from ragkit.models import Embedder


# After a full stop that is no initial's ("U.S. Navy"), another mark, or before an item of a list; never before a small letter.
_SENTENCE_END = re.compile(
    r"(?:(?<!\b[A-Z])\.|[!?…])[\"'”’»)\]]*(?=\s+[^\sa-z])|(?<=\S)(?=\s*\n[ \t]*(?:[-*+]|\d{1,3}[.)])[ \t])",
)


# Ways of cutting that are no windows


def sentences(article: Article, tokenizer: Tokenizer, size: int) -> list[Chunk]:
    """Each sentence as one chunk; a title or heading, which ends in no mark, belongs to the sentence after it.

    A sentence of more than `size` tokens (special ones included) is cut at its words' ends, since a model would truncate it.
    `heading` is None: a sentence stands for itself.

    Raises
    ------
    InputError
        As `chunk_article`, where a sentence has to be cut.
    """
    text, exact = article.text, untruncated(tokenizer)
    edges = [0, *(match.end() for match in _SENTENCE_END.finditer(text)), len(text)]
    chunks = []
    for low, high in pairwise(edges):
        part = text[low:high].strip()
        if not part:
            continue
        start = low + text[low:high].index(part)
        alone = replace(article, text=part, title="")
        pieces = [(0, len(part))]
        if count_tokens(exact, part) > size:
            pieces = [(c.start, c.end) for c in chunk_article(alone, exact, "recursive", size, overlap=0)]
        chunks += [_piece(article, start + a, start + b) for a, b in pieces]
    return chunks


def _piece(article: Article, start: int, end: int) -> Chunk:
    a = article
    return Chunk(
        f"{a.article_id}::{start}", a.article_id, a.title, a.url, a.published_at, None, a.text[start:end], start, end, a.source
    )


def whole_articles(articles: Iterable[Article]) -> list[Chunk]:
    """Each article as one chunk: nothing is cut, so the embedder may see its beginning only."""
    return [_piece(article, 0, len(article.text)) for article in articles]


# What a cut costs, before any question is asked


def index_bytes(chunks: Sequence[Chunk], dimension: int) -> int:
    """What an index must hold at least: float32 vectors and the chunks' text in UTF-8, in bytes; stamps and files not counted."""
    return 4 * dimension * len(chunks) + sum(len(chunk.text.encode()) for chunk in chunks)


def unseen_share(chunks: Sequence[Chunk], articles: Iterable[Article], tokenizer: Tokenizer, max_tokens: int) -> float:
    """The share of the articles' characters (white space not counted) that are in no vector, in [0, 1].

    A model that takes `max_tokens` tokens, special ones included, sees the beginning of a longer chunk; what neither that chunk
    nor a neighbour shows it is in no vector.
    """
    exact = untruncated(tokenizer)
    room = max_tokens - exact.num_special_tokens_to_add(False)
    seen: dict[str, list[tuple[int, int]]] = {}
    for chunk in chunks:
        offsets = exact.encode(chunk.text, add_special_tokens=False).offsets
        length = len(chunk.text) if len(offsets) <= room else offsets[room - 1][1]
        seen.setdefault(chunk.article_id, []).append((chunk.start, chunk.start + length))
    total = unseen = 0
    for article in articles:
        shown = [False] * len(article.text)
        for start, end in seen.get(article.article_id, []):
            shown[start:end] = [True] * (end - start)
        total += sum(not letter.isspace() for letter in article.text)
        unseen += sum(not (there or letter.isspace()) for there, letter in zip(shown, article.text, strict=True))
    return unseen / total if total else 0.0


# The search, and what it brings into a prompt


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


def repeated_share(hits: Sequence[Hit]) -> float:
    """The share of the chunks' characters that a better hit has brought already, in [0, 1]: what overlap costs a prompt."""
    given: dict[str, set[int]] = {}
    total = again = 0
    for hit in hits:
        places = range(hit.chunk.start, hit.chunk.end)
        before = given.setdefault(hit.chunk.article_id, set())
        total += len(places)
        again += sum(place in before for place in places)
        before.update(places)
    return again / total if total else 0.0


def copies(golds: Iterable[Gold], chunks: Iterable[Chunk]) -> int:
    """In how many of these chunks the best served gold lies whole: above 1, one fact is matched more than once."""
    chunks = list(chunks)
    return max((sum(_holds(chunk, gold) for chunk in chunks) for gold in golds), default=0)


def _holds(chunk: Chunk, gold: Gold) -> bool:
    """Whether the gold's span lies whole in the chunk; a gold without a span lies in none."""
    if gold.start is None or gold.end is None or chunk.article_id != gold.article_id:
        return False
    return chunk.start <= gold.start and gold.end <= chunk.end


def context_rows(
    tasks: Sequence[Task], hits: Sequence[Sequence[Hit]], k: int, articles: Iterable[Article], tokenizer: Tokenizer
) -> list[dict[str, Any]]:
    """`retrieval_rows` of the tasks that have golds, each with what its first k chunks bring into a prompt.

    Returns
    -------
    One mapping a task: the keys of `retrieval_rows`; `span_share`, `repeated_share` and `copies` (see there); `matches`, the most
    chunks that touch one and the same gold; `context_tokens`, of the k chunks' text for this tokenizer, special ones not counted.
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
            "repeated_share": repeated_share(found),
            "copies": copies(task.golds, [hit.chunk for hit in found]),
            "matches": max(sum(covers(task, gold, hit.chunk) for hit in found) for gold in task.golds),
            "context_tokens": sum(lengths[hit.chunk] for hit in found),
        }
        for row, (task, found) in zip(retrieval_rows(tasks, hits, k), pairs, strict=True)
    ]
