"""Pinned weights, the embedder and the reader: what turns texts into vectors and prompts into answers.

Each runs in this process or behind any OpenAI-compatible server; the profile says which. Names load lazily.
This room never installs or imports what it downloads, and never uses bytes whose sha256 differs from the pin.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

_HOMES = {
    "Embedder": "embedder",
    "open_embedder": "embedder",
    "Prompt": "reader",
    "Reader": "reader",
    "open_reader": "reader",
    "ModelEntry": "weights",
    "delete": "weights",
    "ensure": "weights",
    "fetch": "weights",
    "list_models": "weights",
    "model_entry": "weights",
    "model_path": "weights",
    "verify": "weights",
    "weights_folder": "weights",
}
__all__ = [
    "Embedder",
    "ModelEntry",
    "Prompt",
    "Reader",
    "delete",
    "ensure",
    "fetch",
    "list_models",
    "model_entry",
    "model_path",
    "open_embedder",
    "open_reader",
    "verify",
    "weights_folder",
]

if TYPE_CHECKING:
    from ragkit.models.embedder import Embedder, open_embedder
    from ragkit.models.reader import Prompt, Reader, open_reader
    from ragkit.models.weights import (
        ModelEntry,
        delete,
        ensure,
        fetch,
        list_models,
        model_entry,
        model_path,
        verify,
        weights_folder,
    )


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
