"""Citations: `[n]` in an answer resolved to the chunk that was given under n. It never guesses what a wrong number meant."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ragkit.records import Chunk, Citation

_BRACKET = re.compile(r"\[(\d{1,3}(?:\s*[,;]\s*\d{1,3})*)\]")


def cited_numbers(text: str) -> list[int]:
    """The numbers cited as `[n]` or `[n, m]`, each once, in order of first appearance."""
    numbers = (int(part) for group in _BRACKET.findall(text) for part in re.findall(r"\d+", group))
    return list(dict.fromkeys(numbers))


def resolve_citations(text: str, chunks: Sequence[Chunk]) -> tuple[tuple[Citation, ...], tuple[int, ...]]:
    """Split an answer's citations into those that resolve and those whose number was never given.

    Parameters
    ----------
    chunks : the sources as numbered in the prompt, `chunks[0]` being [1].

    Returns
    -------
    (citations, unknown_numbers)
    """
    citations, unknown = [], []
    for number in cited_numbers(text):
        if 1 <= number <= len(chunks):
            chunk = chunks[number - 1]
            citations.append(Citation(number, chunk.chunk_id, chunk.title, chunk.published_at, chunk.url))
        else:
            unknown.append(number)
    return tuple(citations), tuple(unknown)
