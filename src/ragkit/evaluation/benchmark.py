"""The benchmark under test: what its tasks give away, repeat or leak, which articles are confusable, how splits are drawn.

Everything here looks at tasks, articles and chunks before any arm is run on them. It changes no task and scores no arm.
"""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from ragkit.answering.prompts import bare_prompt, fit_sources, grounded_prompt
from ragkit.corpus.tasks import tasks_digest
from ragkit.errors import InputError
from ragkit.evaluation.arms import ArmPrompt
from ragkit.evaluation.experiment import run_arm
from ragkit.lab.metrics import read_metrics_file, write_text
from ragkit.records import Chunk, Task
from ragkit.retrieval.lexical import tokenize

if TYPE_CHECKING:
    from ragkit.models import Reader

_WORD = re.compile(r"\w[\w'’-]*")


# What a question gives away


@dataclass(frozen=True, slots=True)
class Overlap:
    """Content words (stems) of a question, names and numbers left out, and those of them that its gold spans use too."""

    task_id: str
    words: tuple[str, ...]
    shared: tuple[str, ...]


def question_overlap(task: Task, texts: Mapping[str, str]) -> Overlap:
    """How far a question repeats the wording of its evidence, names and numbers excepted.

    A word counts by its Snowball stem; stop words do not. A name is a word that holds a digit, or that stands with a capital
    letter in the evidence or, other than as the first word, in the question.

    Parameters
    ----------
    texts : article id -> `Article.text`.
    """
    spans = " ".join(texts[g.article_id][g.start : g.end] for g in task.golds if g.start is not None)
    names = _names(spans, first=True) | _names(task.question, first=False)
    asked, used = (_stems(text, names) for text in (task.question, spans))
    return Overlap(task.task_id, tuple(sorted(asked)), tuple(sorted(asked & used)))


def _names(text: str, first: bool) -> set[str]:
    words = _WORD.findall(text)
    return {word.casefold() for word in (words if first else words[1:]) if word[0].isupper() or any(map(str.isdigit, word))}


def _stems(text: str, names: set[str]) -> set[str]:
    return {stem for word in _WORD.findall(text) if word.casefold() not in names for stem in tokenize(word)}


def same_questions(tasks: Sequence[Task], threshold: float = 0.8) -> list[tuple[str, str, float]]:
    """Pairs of tasks that may ask the same thing: the Jaccard similarity of their questions' stems is at least `threshold`."""
    stems = {task.task_id: set(tokenize(task.question)) for task in tasks}
    found = []
    for a, b in combinations(stems, 2):
        union = stems[a] | stems[b]
        similarity = len(stems[a] & stems[b]) / len(union) if union else 0.0
        if similarity >= threshold:
            found.append((a, b, similarity))
    return sorted(found, key=lambda pair: (-pair[2], pair[0], pair[1]))


# Articles that can be taken for each other


def similar_articles(chunks: Sequence[Chunk], vectors: np.ndarray, threshold: float) -> list[tuple[str, str, float]]:
    """Pairs of articles whose mean vectors have a cosine of at least `threshold`, the nearest pair first.

    Parameters
    ----------
    vectors : float32, shape (n, d), one row a chunk.
    """
    if len(chunks) != len(vectors):
        raise InputError(f"{len(chunks)} chunks and {len(vectors)} vectors: give one row a chunk")
    ids = sorted({chunk.article_id for chunk in chunks})
    place = {key: number for number, key in enumerate(ids)}
    means = np.zeros((len(ids), vectors.shape[1]))
    np.add.at(means, [place[chunk.article_id] for chunk in chunks], vectors)
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    cosines = means @ means.T
    rows, columns = np.nonzero(np.triu(cosines >= threshold, k=1))
    pairs = [(ids[a], ids[b], float(cosines[a, b])) for a, b in zip(rows, columns, strict=True)]
    return sorted(pairs, key=lambda pair: (-pair[2], pair[0], pair[1]))


def clusters(links: Iterable[Sequence[str]], members: Iterable[str] = ()) -> list[tuple[str, ...]]:
    """Groups of ids that hang together through links (any number of ids each), the largest first; a lone member is its own."""
    links = [list(link) for link in links if link]
    ids = sorted({key for link in links for key in link} | set(members))
    place = {key: number for number, key in enumerate(ids)}
    edges = [(place[link[0]], place[key]) for link in links for key in link[1:]]
    rows, columns = ([edge[side] for edge in edges] for side in (0, 1))
    graph = coo_matrix((np.ones(len(edges)), (rows, columns)), shape=(len(ids), len(ids)))
    labels = connected_components(graph, directed=False)[1]
    groups: dict[int, list[str]] = {}
    for key, label in zip(ids, labels, strict=True):
        groups.setdefault(int(label), []).append(key)
    return sorted((tuple(group) for group in groups.values()), key=lambda group: (-len(group), group))


# Splits


def task_articles(task: Task) -> tuple[str, ...]:
    """The articles that a task hangs on: those of its golds, or those an unanswerable one is near to."""
    return tuple(dict.fromkeys([gold.article_id for gold in task.golds] or task.near))


def assign_splits(
    tasks: Sequence[Task], test: tuple[int, int], dev_articles: Iterable[str] = (), seed: int = 0
) -> dict[str, str]:
    """Task id -> "dev" or "test", all tasks of an article, and of articles that one task joins, on one side.

    Groups are drawn at random, the larger ones first; one goes to the test split as long as that lacks tasks of a kind that the
    group has.

    Parameters
    ----------
    test : how many (answerable, unanswerable) tasks the test split must have at least.
    dev_articles : articles that were looked at already; their groups stay in the development split.

    Raises
    ------
    InputError
        The groups that are free do not hold that many tasks.
    """
    groups: dict[tuple[str, ...], list[Task]] = {}
    grouped = clusters(task_articles(task) or (f"task {task.task_id}",) for task in tasks)
    group_of = {key: group for group in grouped for key in group}
    for task in tasks:
        groups.setdefault(group_of[(task_articles(task) or (f"task {task.task_id}",))[0]], []).append(task)
    seen = set(dev_articles)
    free = sorted(group for group in groups if not seen & set(group))
    random.Random(seed).shuffle(free)
    free.sort(key=lambda group: -len(groups[group]))
    chosen: set[str] = set()
    held = [0, 0]
    for group in free:
        counts = [sum(task.answerable is side for task in groups[group]) for side in (True, False)]
        if any(count and have < want for count, have, want in zip(counts, held, test, strict=True)):
            chosen |= {task.task_id for task in groups[group]}
            held = [have + count for have, count in zip(held, counts, strict=True)]
    if held[0] < test[0] or held[1] < test[1]:
        raise InputError(f"only {held[0]} answerable and {held[1]} unanswerable tasks are free for the test split: ask for fewer")
    return {task.task_id: "test" if task.task_id in chosen else "dev" for task in tasks}


def split_digest(tasks: Iterable[Task], split: str) -> str:
    """`tasks_digest` of one split: what is frozen."""
    return tasks_digest(task for task in tasks if task.split == split)


def freeze_split(tasks: Sequence[Task], split: str, file: str | Path, today: date) -> dict[str, Any]:
    """Write what a split is from now on: its digest, its counts and the day. The same split may be frozen again, another not.

    Raises
    ------
    InputError
        The split has no tasks, or `file` holds the freeze of other tasks: delete it to freeze anew, and say so where you report.
    """
    of_split = [task for task in tasks if task.split == split]
    if not of_split:
        raise InputError(f"no task has the split {split!r}: nothing to freeze")
    file = Path(file)
    digest = split_digest(tasks, split)
    if file.exists():
        known = read_freeze(file)
        if known["digest"] == digest:
            return known
        raise InputError(f"{file} froze other tasks on {known['frozen_on']}: delete it to freeze anew, and say so in the report")
    freeze = {
        "split": split,
        "digest": digest,
        "answerable": sum(task.answerable for task in of_split),
        "unanswerable": sum(not task.answerable for task in of_split),
        "articles": len({gold.article_id for task in of_split for gold in task.golds}),
        "frozen_on": today.isoformat(),
    }
    write_text(file, json.dumps(freeze, indent=1) + "\n")
    return freeze


def read_freeze(file: str | Path) -> dict[str, Any]:
    """What `freeze_split` wrote.

    Raises
    ------
    InputError
        The file is missing or is no freeze.
    """
    freeze = read_metrics_file(Path(file))
    if not {"split", "digest", "frozen_on"} <= freeze.keys():
        raise InputError(f"{file} is no freeze of a split: write it with `ragkit tasks freeze`")
    return freeze


def is_frozen(tasks: Iterable[Task], freeze: Mapping[str, Any]) -> bool:
    """Whether these tasks hold the frozen split unchanged."""
    return split_digest(tasks, freeze["split"]) == freeze["digest"]


# Tasks that need no evidence


def random_article_prompts(
    tasks: Sequence[Task], chunks: Sequence[Chunk], budget: int, count_tokens: Callable[[str], int], seed: int
) -> list[ArmPrompt]:
    """The grounded prompt of each task with the chunks of one article drawn at random, none of its golds', up to the budget.

    A task that is answered from it needs no evidence: its answer is guessed, known, or given away by its question.
    """
    by_article: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        by_article.setdefault(chunk.article_id, []).append(chunk)
    prompts = []
    for task in tasks:
        others = sorted(by_article.keys() - {gold.article_id for gold in task.golds})
        drawn = random.Random(f"{seed}:{task.task_id}").choice(others)
        kept, cut, used = fit_sources(by_article[drawn], budget, count_tokens)
        prompts.append(ArmPrompt(task, "random_article", grounded_prompt(task.question, kept), tuple(kept), used, cut))
    return prompts


def solved_without_evidence(
    tasks: Sequence[Task], chunks: Sequence[Chunk], reader: Reader, budget: int, seed: int, journals: Path
) -> dict[str, list[str]]:
    """Ids of the answerable tasks that a reader answers right `bare` (the question alone) and from a `random_article`.

    For curation before a freeze: by another reader and seed than the evaluation's, so that nothing is fitted to them. What a
    killed call finished lies in the folder `journals` and is not asked again.
    """
    asked = [task for task in tasks if task.answerable]
    prompts = {
        "bare": [ArmPrompt(task, "bare", bare_prompt(task.question)) for task in asked],
        "random_article": random_article_prompts(asked, chunks, budget, reader.count_tokens, seed),
    }
    solved = {}
    for name, of_arm in prompts.items():
        records, _ = run_arm(of_arm, reader, journals / f"{name}.jsonl")
        solved[name] = [row["task_id"] for row in records if row["correct"]]
    return solved
