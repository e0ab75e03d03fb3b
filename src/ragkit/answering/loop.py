"""One question through the loop: embed, search, assemble, ask. Every hop is a plain call; nothing is kept between questions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ragkit.answering.citations import resolve_citations
from ragkit.answering.prompts import REFUSAL, bare_prompt, fit_sources, grounded_prompt, is_refusal
from ragkit.errors import InputError
from ragkit.records import Answer

if TYPE_CHECKING:
    from ragkit.models import Embedder, Reader
    from ragkit.retrieval import Index, Retriever


def _checked(question: str) -> str:
    question = question.strip()
    if not question:
        raise InputError("the question is empty: give at least one word")
    return question


def answer_question(
    question: str,
    index: Index,
    embedder: Embedder,
    reader: Reader | Callable[[], Reader],
    k: int = 5,
    where: Mapping[str, Any] | None = None,
    min_cosine: float | None = None,
    context_tokens: int = 1600,
    retriever: Retriever | None = None,
) -> Answer:
    """Answer from the index, with citations; below `min_cosine` say so and do not call the reader.

    A `retriever` of this index finds the chunks by its own method (see `Retriever` on what `min_cosine` then does); without one
    the search is dense. `reader` may be a function that opens one: it is called only when there is something to read.
    The hits of an answer refused at the threshold are those of the search without the threshold, so that the best
    score can be shown and the threshold tuned. Citations resolve among the chunks that fitted the budget.

    Raises
    ------
    InputError
        An empty question, k, `where` or `min_cosine` out of range, an index of another embedder, or a budget too small for
        the best chunk.
    """
    question = _checked(question)
    if min_cosine is not None and not -1.0 <= min_cosine <= 1.0:
        raise InputError(f"min_cosine is {min_cosine}: give a number from -1 to 1")
    if retriever is not None and retriever.index is not index:
        raise InputError("the retriever searches another index than the one given: open it on this one")
    index.check_embedder(embedder)
    start = time.perf_counter()
    vector = embedder.encode_queries([question])[0]
    found = None if retriever is None else retriever.search(question, vector, k, where=where)
    hits = index.search(vector, k, where=where) if found is None else found.hits
    retrieval_seconds = time.perf_counter() - start
    rerank_seconds = None if found is None or found.rerank_ms is None else found.rerank_ms / 1000
    passing = [hit for hit in hits if min_cosine is None or hit.cosine >= min_cosine]
    if not passing:
        return Answer(question, REFUSAL["en"], tuple(hits), (), (), "threshold", None, retrieval_seconds, rerank_seconds)
    reader = reader() if callable(reader) else reader
    chunks, _, _ = fit_sources([hit.chunk for hit in passing], context_tokens, reader.count_tokens)
    if not chunks:
        raise InputError(
            f"the best chunk alone exceeds the context budget of {context_tokens} tokens: raise reader.context_tokens"
        )
    completion = reader.answer([grounded_prompt(question, chunks)])[0]
    citations, unknown = resolve_citations(completion.text, chunks)
    refused = "reader" if is_refusal(completion.text) else None
    made = (completion.text, tuple(passing), citations, unknown, refused, completion)
    return Answer(question, *made, retrieval_seconds, rerank_seconds)


def answer_bare(question: str, reader: Reader) -> Answer:
    """The same question with no retrieval: what the reader says by itself."""
    question = _checked(question)
    completion = reader.answer([bare_prompt(question)])[0]
    return Answer(question, completion.text, (), (), (), None, completion, 0.0)
