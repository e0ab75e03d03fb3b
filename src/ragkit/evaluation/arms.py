"""The arms of the experiment: one item, one template, one token budget; only the context differs (design, section 7).

An arm is a rule that turns a task and its hits into a prompt. Nothing here calls a model or looks at an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ragkit.answering.prompts import Messages, bare_prompt, fit_sources, grounded_prompt, template_prompt
from ragkit.corpus.tasks import gold_chunk
from ragkit.errors import InputError
from ragkit.records import Chunk, Hit, Task

ARMS = {
    "A0": "bare: no context, the bare question; what the model knows",
    "A1": "template: no context, the instructions of A4 without the clause about context; the instruction's own effect",
    "A4": "retrieved: the k nearest chunks; retrieval",
    "A6": "oracle chunk: the chunk that holds the gold span; the ceiling given perfect retrieval",
}


@dataclass(frozen=True, slots=True)
class ArmPrompt:
    """What one arm puts to the reader for one task.

    `context` are the chunks in the order they are numbered, `cut` how many the token budget left out,
    `context_tokens` what the context took of it.
    """

    task: Task
    arm: str
    messages: Messages
    context: tuple[Chunk, ...] = ()
    context_tokens: int = 0
    cut: int = 0


def _gold_chunks(task: Task, chunks_by_article: Mapping[str, Sequence[Chunk]]) -> list[Chunk]:
    own = [chunk for key in dict.fromkeys(gold.article_id for gold in task.golds) for chunk in chunks_by_article.get(key, ())]
    found: dict[Chunk, None] = {}
    for gold, chunk in zip(task.golds, gold_chunk(task, own), strict=True):
        if chunk is None:
            lacks = "holds no such span or answer" if gold.article_id in chunks_by_article else "is not in the corpus"
            raise InputError(f"task {task.task_id}: gold article {gold.article_id!r} {lacks}: arm A6 cannot be supplied")
        found[chunk] = None
    return list(found)


def arm_prompts(
    arm: str,
    tasks: Sequence[Task],
    hits: Sequence[Sequence[Hit]],
    chunks: Sequence[Chunk],
    budget: int,
    count_tokens: Callable[[str], int],
) -> list[ArmPrompt]:
    """Prompts of one arm for every task that it can serve (A6 needs a gold chunk: answerable tasks only).

    Parameters
    ----------
    hits : for each task the k nearest chunks, best first.
    chunks : the whole corpus, where the oracle finds its chunk.
    budget : the cap on context tokens, the same for all arms; never padded.

    Raises
    ------
    InputError
        Unknown arm, or a gold article that the corpus does not hold.
    """
    if arm not in ARMS:
        raise InputError(f"unknown arm {arm!r}: choose from {', '.join(ARMS)}")
    if arm == "A0":
        return [ArmPrompt(task, arm, bare_prompt(task.question)) for task in tasks]
    if arm == "A1":
        return [ArmPrompt(task, arm, template_prompt(task.question)) for task in tasks]
    by_article: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        by_article.setdefault(chunk.article_id, []).append(chunk)
    prompts = []
    for task, found in zip(tasks, hits, strict=True):
        if arm == "A6" and not task.golds:
            continue
        context = _gold_chunks(task, by_article) if arm == "A6" else [hit.chunk for hit in found]
        kept, cut, used = fit_sources(context, budget, count_tokens)
        prompts.append(ArmPrompt(task, arm, grounded_prompt(task.question, kept), tuple(kept), used, cut))
    return prompts
