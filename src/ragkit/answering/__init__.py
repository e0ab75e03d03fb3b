"""Prompt assembly, citations, refusal, and one question answered. It never searches by itself and never scores."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragkit.answering.citations import resolve_citations
    from ragkit.answering.loop import answer_bare, answer_question
    from ragkit.answering.prompts import REFUSAL, bare_prompt, grounded_prompt, is_refusal, template_prompt

_WHERE = {
    "REFUSAL": "prompts",
    "bare_prompt": "prompts",
    "grounded_prompt": "prompts",
    "is_refusal": "prompts",
    "template_prompt": "prompts",
    "resolve_citations": "citations",
    "answer_question": "loop",
    "answer_bare": "loop",
}

__all__ = [
    "REFUSAL",
    "answer_bare",
    "answer_question",
    "bare_prompt",
    "grounded_prompt",
    "is_refusal",
    "resolve_citations",
    "template_prompt",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"ragkit.answering.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
