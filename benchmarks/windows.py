"""A hundred thousand vectors of real text from a small corpus: windows of its articles, however overlapping, embedded once.

Windows of 16, 24 and 32 tokens begin at every second token of every article, so that one sentence lies in dozens of them: the
times are those of real vectors, and a neighbour missed among so many near-copies costs less than in a corpus of that size.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from ragkit.corpus import read_snapshot, read_tasks
from ragkit.errors import InputError
from ragkit.models import Embedder
from ragkit.profile import REPOSITORY
from ragkit.records import Article, Chunk
from ragkit.retrieval import build_index

LENGTHS = (16, 24, 32)  # tokens, special ones not counted
STRIDE = 2


@dataclass(frozen=True)
class Windows:
    """Chunks with their unit vectors, shape (n, d), and real questions with theirs, shape (q, d).

    `digest` is that of all the windows, `identity` the embedder's.
    """

    chunks: tuple[Chunk, ...]
    vectors: np.ndarray
    questions: tuple[str, ...]
    queries: np.ndarray
    digest: str
    identity: dict[str, Any]

    def part(self, count: int) -> Windows:
        """`count` of these windows, evenly spread: a smaller part overlaps less."""
        places = spread(len(self.chunks), count)
        return replace(self, chunks=tuple(self.chunks[place] for place in places), vectors=self.vectors[places])


class Stored:
    """Stands in for an embedder while an index is built: gives each window the vector that it has."""

    def __init__(self, windows: Windows) -> None:
        self.identity, self.dimension = windows.identity, windows.vectors.shape[1]
        self._vectors = windows.vectors
        self._place = {chunk.text: place for place, chunk in enumerate(windows.chunks)}

    def encode_passages(self, texts: Sequence[str], truncate: bool = False) -> np.ndarray:
        return self._vectors[[self._place[text] for text in texts]]


def spread(there: int, wanted: int) -> np.ndarray:
    """Places of `wanted` of `there` things, evenly spaced."""
    return np.arange(wanted) * there // wanted


def cut(articles: Sequence[Article], tokenizer: Tokenizer, count: int) -> tuple[Chunk, ...]:
    """`count` windows, evenly spread over all there are; of windows with the same tokens only the first.

    Raises
    ------
    InputError
        The articles have fewer.
    """
    seen: set[tuple[int, ...]] = set()
    found = []
    for article in articles:
        tokens = tokenizer.encode(article.text, add_special_tokens=False)
        for first in range(0, len(tokens), STRIDE):
            for length in LENGTHS:
                ids = tuple(tokens.ids[first : first + length])
                if len(ids) < length or ids in seen:
                    continue
                seen.add(ids)
                start, end = tokens.offsets[first][0], tokens.offsets[first + length - 1][1]
                found.append((article, start, end))
    if len(found) < count:
        raise InputError(f"{len(articles)} articles have {len(found)} windows, not {count}: give more articles or a smaller size")
    chunks = []
    for place in spread(len(found), count):
        article, start, end = found[place]
        name = f"{article.article_id}::{start}-{end}"
        text = article.text[start:end]
        chunks.append(
            Chunk(
                name, article.article_id, article.title, article.url, article.published_at, None, text, start, end, article.source
            )
        )
    return tuple(chunks)


def read_windows(embedder: Embedder, articles: Path, tasks: Path, count: int, queries: int, work: Path) -> Windows:
    """Cut, embed and add the questions of the tasks. The vectors stay in an index under `work`: a killed run goes on there."""
    asked = list(dict.fromkeys(task.question for task in read_tasks(tasks)))
    if len(asked) < queries:
        raise InputError(f"{tasks.name} has {len(asked)} different questions, not {queries}: ask for fewer queries")
    questions = tuple(asked[place] for place in spread(len(asked), queries))
    index = build_index(cut(read_snapshot(articles).articles, embedder.tokenizer, count), embedder, work / "windows")
    digest = index.manifest["chunks_digest"]
    return Windows(index.chunks, index.vectors, questions, embedder.encode_queries(questions), digest, embedder.identity)


def size(text: str) -> int:
    """A number of vectors that every kind of index can be trained on: a product quantiser needs 256."""
    if not text.isdecimal() or int(text) < 256:
        raise argparse.ArgumentTypeError(f"{text} is no whole number of at least 256")
    return int(text)


def add_options(parser: argparse.ArgumentParser) -> None:
    """What every benchmark takes."""
    parser.add_argument("--profile", default="cpu", help="whose embedder and chunks (default: cpu)")
    parser.add_argument("--articles", type=Path, default=REPOSITORY / "data" / "articles", help="the texts")
    parser.add_argument(
        "--tasks", type=Path, default=REPOSITORY / "data" / "tasks" / "sda_qualitative_tasks.jsonl", help="whose questions"
    )
    parser.add_argument(
        "--work",
        type=Path,
        default=REPOSITORY / ".ragkit-work" / "benchmarks",
        help="keeps the windows' vectors, and the tables while they are measured",
    )


def add_search_options(parser: argparse.ArgumentParser) -> None:
    """What both searches take."""
    parser.add_argument("--sizes", type=size, nargs="+", default=[1_000, 10_000, 100_000], help="windows searched")
    parser.add_argument("--queries", type=int, default=200, help="questions of a batch (default: 200)")
    parser.add_argument("--singles", type=int, default=20, help="questions asked one by one in a turn (default: 20)")
    parser.add_argument("--turns", type=int, default=7, help="turns after the one that warms up (default: 7)")
    parser.add_argument("--k", type=int, default=10, help="hits a question (default: 10)")
