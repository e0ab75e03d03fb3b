"""The plain records that flow from a snapshot to a page: frozen dataclasses, nothing else.

snapshot -> chunks -> vectors -> index -> hits -> prompt -> answer -> scores -> paired statistics -> page
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Article:
    """One document of a snapshot.

    `text` is title + blank line + body; every offset in the book counts characters of this one string.
    `published_at` is ISO 8601 or None; `url`, `source` may be None.
    """

    article_id: str
    title: str
    text: str
    url: str | None = None
    published_at: str | None = None
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Chunk:
    """A window of one article: `article.text[start:end] == text`, always.

    `chunk_id` is `article_id::start`. The stamps (title, url, date, source) serve citation, filters and measurement.
    """

    chunk_id: str
    article_id: str
    title: str
    url: str | None
    published_at: str | None
    heading: str | None
    text: str
    start: int
    end: int
    source: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A chunk found by a search: cosine in [-1, 1], rank counted from 1."""

    chunk: Chunk
    cosine: float
    rank: int


@dataclass(frozen=True, slots=True)
class Gold:
    """A span of one article's text that supports the gold answer, in characters of `Article.text`."""

    article_id: str
    start: int | None = None
    end: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """One question with its gold answer and evidence (design: kinds fact, reason, recency, multi-article, unanswerable).

    `difficulty` is the writer's guess, made before any run: easy, medium, hard, or None. An unanswerable task may name the
    articles `near` it, and say `why` they do not answer it.
    """

    task_id: str
    question: str
    gold_answer: str
    aliases: tuple[str, ...]
    golds: tuple[Gold, ...]
    kind: str = "fact"
    answerable: bool = True
    counterfactual: str | None = None
    split: str = "dev"
    difficulty: str | None = None
    near: tuple[str, ...] = ()
    why: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """What a reader returned for one prompt: tokens counted by the reader, wall seconds spent on it."""

    text: str
    finish_reason: str
    prompt_tokens: int
    completion_tokens: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Citation:
    """A `[n]` of an answer resolved to the chunk that was given under that number."""

    number: int
    chunk_id: str
    title: str
    published_at: str | None
    url: str | None


@dataclass(frozen=True, slots=True)
class Answer:
    """One question answered.

    `refused` is None, "threshold" (nothing scored high enough; the reader was not called) or "reader" (it said so itself).
    `unknown_citations` are the numbers the answer cites that were never given. `rerank_seconds` is part of `retrieval_seconds`,
    None without rerank.
    """

    question: str
    text: str
    hits: tuple[Hit, ...]
    citations: tuple[Citation, ...]
    unknown_citations: tuple[int, ...]
    refused: str | None
    completion: Completion | None
    retrieval_seconds: float
    rerank_seconds: float | None = None
