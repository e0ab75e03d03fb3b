"""The arms of the experiment: one item, one template, one token budget; only the context differs (design, section 7).

An arm is a rule that turns a task and its hits into a prompt. Nothing here calls a model or looks at an answer.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ragkit.answering.prompts import Messages, bare_prompt, fit_sources, grounded_prompt, template_prompt
from ragkit.corpus.tasks import gold_chunk, holds, occurrences
from ragkit.errors import InputError
from ragkit.evaluation.items import covers
from ragkit.records import Chunk, Hit, Task

ARMS = {
    "A0": "bare: no context, the bare question; what the model knows",
    "A1": "template: no context, the instructions of A4 without the clause about context; the instruction's own effect",
    "A2": "random: k chunks drawn from other articles than the gold ones; the harm of noise",
    "A3": "distractor: the k nearest chunks without the gold articles; the harm of near misses",
    "A4": "retrieved: the k best chunks of the profile's retrieval; retrieval",
    "A5": "rung: the k best chunks with one technique added to that retrieval; the technique's own effect",
    "A6": "oracle chunk: the chunk that holds the gold span; the ceiling given perfect retrieval",
    "A7": "oracle article: all chunks of the gold article; the ceiling without chunking luck",
    "A8": "leak: the one sentence that states the answer; pure lookup",
    "A9": "redacted: the gold chunk with the answer masked; what leaks through the context",
    "A10": "counterfactual: the gold chunk with the answer swapped for a wrong one; does it read, or remember?",
}
SEARCHED = ("A3", "A4", "A5")  # the arms whose context is searched for
MASK = "[...]"
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")

ByArticle = Mapping[str, Sequence[Chunk]]


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


def arm_prompts(
    arm: str,
    tasks: Sequence[Task],
    hits: Sequence[Sequence[Hit]],
    chunks: Sequence[Chunk],
    k: int,
    budget: int,
    count_tokens: Callable[[str], int],
    seed: int = 0,
) -> list[ArmPrompt]:
    """Prompts of one arm for every task that it can serve.

    A0, A1, A2, A4 and A5 serve all tasks; A3, A6 and A7 those with golds; A8 those of which a sentence of the gold chunk
    states the answer; A9 those whose answer stands in the gold chunk, A10 those of them that have a counterfactual.

    Parameters
    ----------
    hits : for each task the best chunks of this arm's retrieval, best first: at least k where there are as many, and for A3
        `arm_depth` of them; empty lists do for an arm that is not `SEARCHED`.
    chunks : the whole corpus, where the oracles find their chunks.
    k : how many chunks an arm with a searched or drawn context is given.
    budget : the cap on context tokens, the same for all arms; never padded.
    seed : of the draw of A2, together with the task's id.

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
        context = _context(arm, task, found, by_article, k, seed)
        if context is not None:
            kept, cut, used = fit_sources(context, budget, count_tokens)
            prompts.append(ArmPrompt(task, arm, grounded_prompt(task.question, kept), tuple(kept), used, cut))
    return prompts


def arm_depth(arm: str, k: int, chunks: Sequence[Chunk]) -> int:
    """How many hits a task an arm needs: k, and for A3 enough to leave k when the longest gold articles are taken out."""
    if arm != "A3":
        return k
    sizes: dict[str, int] = {}
    for chunk in chunks:
        sizes[chunk.article_id] = sizes.get(chunk.article_id, 0) + 1
    return k + sum(sorted(sizes.values())[-2:])


def _context(arm: str, task: Task, hits: Sequence[Hit], by_article: ByArticle, k: int, seed: int) -> list[Chunk] | None:
    """The chunks that an arm gives for a task, None where it cannot serve it."""
    gold_articles = {gold.article_id for gold in task.golds}
    if arm in ("A4", "A5"):
        return [hit.chunk for hit in hits[:k]]
    if arm == "A2":
        others = [chunk for article, own in sorted(by_article.items()) if article not in gold_articles for chunk in own]
        return random.Random(f"{seed}:{task.task_id}").sample(others, min(k, len(others)))
    if not task.golds:
        return None
    if arm == "A3":
        return [hit.chunk for hit in hits if hit.chunk.article_id not in gold_articles][:k]
    gold = _gold_chunks(arm, task, by_article)
    if arm == "A6":
        return gold
    if arm == "A7":
        return [chunk for article in dict.fromkeys(gold.article_id for gold in task.golds) for chunk in by_article[article]]
    if arm == "A8":
        return _stating_sentence(task, gold)
    if arm == "A9":
        return _with_answer_replaced(task, gold, MASK)
    return _with_answer_replaced(task, gold, task.counterfactual) if task.counterfactual else None


def _gold_chunks(arm: str, task: Task, by_article: ByArticle) -> list[Chunk]:
    own = [chunk for key in dict.fromkeys(gold.article_id for gold in task.golds) for chunk in by_article.get(key, ())]
    found: dict[Chunk, None] = {}
    for gold, chunk in zip(task.golds, gold_chunk(task, own), strict=True):
        if chunk is None:
            lacks = "holds no such span or answer" if gold.article_id in by_article else "is not in the corpus"
            raise InputError(f"task {task.task_id}: gold article {gold.article_id!r} {lacks}: arm {arm} cannot be supplied")
        found[chunk] = None
    return list(found)


def _stating_sentence(task: Task, gold: Sequence[Chunk]) -> list[Chunk] | None:
    """The first sentence of the gold chunks that lies in a gold span and holds the answer, as a chunk of its own."""
    for chunk in gold:
        start = 0
        for end in [*(gap.start() for gap in _SENTENCE_END.finditer(chunk.text)), len(chunk.text)]:
            text = chunk.text[start:end].strip()
            place = chunk.start + chunk.text.index(text, start)
            sentence = replace(
                chunk, chunk_id=f"{chunk.article_id}::{place}", text=text, start=place, end=place + len(text), heading=None
            )
            if any(covers(task, one, sentence) for one in task.golds) and _states(text, task):
                return [sentence]
            start = end
    return None


def _states(text: str, task: Task) -> bool:
    return any(holds(text, answer) for answer in (task.gold_answer, *task.aliases))


def _with_answer_replaced(task: Task, gold: Sequence[Chunk], by: str) -> list[Chunk] | None:
    """The gold chunks with every form of the answer replaced, in their titles too; None where it stands nowhere."""
    answers = (task.gold_answer, *task.aliases)

    def swapped(text: str) -> str:
        for start, end in reversed(occurrences(text, answers)):
            text = f"{text[:start]}{by}{text[end:]}"
        return text

    if not any(occurrences(chunk.text, answers) for chunk in gold):
        return None
    return [replace(chunk, text=swapped(chunk.text), title=swapped(chunk.title)) for chunk in gold]
