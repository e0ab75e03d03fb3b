"""Search: the immutable LanceDB index, its filters, BM25, reciprocal rank fusion, and rerank.

It never asks a reader for an answer, and never changes an index that is there.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragkit.retrieval.frozen import Frozen, freeze, open_frozen, profile_chunks
    from ragkit.retrieval.fusion import fuse
    from ragkit.retrieval.index import Index, build_index, chunks_digest, open_index
    from ragkit.retrieval.lexical import Fused, LexicalIndex, Scored, build_lexical, hybrid, search_hybrid, tokenize
    from ragkit.retrieval.rerank import Reranked, Reranker, open_reranker
    from ragkit.retrieval.search import Found, Retriever, open_retriever, rerank_times

_WHERE = {
    "build_index": "index",
    "open_index": "index",
    "Index": "index",
    "chunks_digest": "index",
    "fuse": "fusion",
    "Frozen": "frozen",
    "freeze": "frozen",
    "open_frozen": "frozen",
    "profile_chunks": "frozen",
    "Fused": "lexical",
    "LexicalIndex": "lexical",
    "Scored": "lexical",
    "build_lexical": "lexical",
    "hybrid": "lexical",
    "search_hybrid": "lexical",
    "tokenize": "lexical",
    "Reranked": "rerank",
    "Reranker": "rerank",
    "open_reranker": "rerank",
    "Found": "search",
    "Retriever": "search",
    "open_retriever": "search",
    "rerank_times": "search",
}

__all__ = [
    "Found",
    "Frozen",
    "Fused",
    "Index",
    "LexicalIndex",
    "Reranked",
    "Reranker",
    "Retriever",
    "Scored",
    "build_index",
    "build_lexical",
    "chunks_digest",
    "freeze",
    "fuse",
    "hybrid",
    "open_frozen",
    "open_index",
    "open_reranker",
    "open_retriever",
    "profile_chunks",
    "rerank_times",
    "search_hybrid",
    "tokenize",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"ragkit.retrieval.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
