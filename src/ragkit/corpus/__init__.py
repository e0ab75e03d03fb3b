"""The corpus room: snapshots in, rejected rows out, articles cut into chunks, tasks read and checked.

Never touches a model's weights or the clock, and the network in `fetch_news` alone. Names load their module when first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragkit.corpus.chunking import chunk_article, count_tokens, markdown_headings, measured_overlap, untruncated
    from ragkit.corpus.feeds import Fetch, NewsQuery, Reading, day_or_moment, fetch_news, plain_text, read_feeds
    from ragkit.corpus.snapshot import Snapshot, read_snapshot, snapshot_digest, write_snapshot
    from ragkit.corpus.tasks import KINDS, check_tasks, gold_chunk, read_tasks, tasks_digest

_MODULES = {
    "chunk_article": "chunking",
    "count_tokens": "chunking",
    "markdown_headings": "chunking",
    "measured_overlap": "chunking",
    "untruncated": "chunking",
    "Fetch": "feeds",
    "NewsQuery": "feeds",
    "Reading": "feeds",
    "day_or_moment": "feeds",
    "fetch_news": "feeds",
    "plain_text": "feeds",
    "read_feeds": "feeds",
    "Snapshot": "snapshot",
    "read_snapshot": "snapshot",
    "snapshot_digest": "snapshot",
    "write_snapshot": "snapshot",
    "KINDS": "tasks",
    "check_tasks": "tasks",
    "gold_chunk": "tasks",
    "read_tasks": "tasks",
    "tasks_digest": "tasks",
}

__all__ = [
    "KINDS",
    "Fetch",
    "NewsQuery",
    "Reading",
    "Snapshot",
    "check_tasks",
    "chunk_article",
    "count_tokens",
    "day_or_moment",
    "fetch_news",
    "gold_chunk",
    "markdown_headings",
    "measured_overlap",
    "plain_text",
    "read_feeds",
    "read_snapshot",
    "read_tasks",
    "snapshot_digest",
    "tasks_digest",
    "untruncated",
    "write_snapshot",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
