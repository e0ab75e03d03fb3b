"""Tasks: questions with their gold answers and spans, read from JSON lines and checked against the articles.

Never mends a task and never scores an answer: it says what is wrong and where.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ragkit.errors import InputError
from ragkit.records import Article, Chunk, Gold, Task

KINDS = ("fact", "reason", "recency", "multi-article", "unanswerable")
SPLITS = ("dev", "test")
DIFFICULTIES = ("easy", "medium", "hard")


def read_tasks(path: str | Path) -> tuple[Task, ...]:
    """Read tasks, one JSON object a line, in the file's order.

    The full form has task_id, question, gold_answer, aliases, golds [{article_id, start, end}], kind, answerable, counterfactual,
    split, and optionally difficulty (easy, medium, hard) and, of an unanswerable one, near (article ids) and why; the minimal
    form question, gold_answer, gold_article_id. A missing task_id is made from the content; other fields are
    left alone. Spans count characters of `Article.text`; a gold may have none.

    Raises
    ------
    InputError
        The file is missing, empty or not UTF-8, or a line (its number is named) is no JSON object, repeats a task_id, has a
        field of a wrong type, an unknown kind or split, is answerable without a gold answer or gold, or the reverse.
    """
    path = Path(path)
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 (byte {error.start}): save it as UTF-8") from error
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror or error}): give a file of JSON lines") from error
    tasks: dict[str, tuple[int, Task]] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            task = _task(json.loads(line))
        except (ValueError, RecursionError) as error:
            raise InputError(f"{path}, line {number}: {error}: mend the line") from error
        if task.task_id in tasks:
            raise InputError(
                f"{path}, line {number}: task_id {task.task_id!r} stands in line {tasks[task.task_id][0]} too: rename one"
            )
        tasks[task.task_id] = (number, task)
    if not tasks:
        raise InputError(f"{path} holds no tasks: write one JSON object a line")
    return tuple(task for _, task in tasks.values())


def check_tasks(tasks: Iterable[Task], articles: Iterable[Article]) -> list[str]:
    """What is wrong between tasks and articles, one line each; an empty list where nothing is.

    A gold or near article that is gone, a span outside its text, spans of which none holds the gold answer or an alias (on token
    borders, without regard to case), an answer that the question gives away, a counterfactual that is right, a question asked
    twice, a multi-article task with fewer than two articles.
    """
    texts = {article.article_id: article.text for article in articles}
    problems: list[str] = []
    asked: dict[str, str] = {}
    for task in tasks:
        answers = (task.gold_answer, *task.aliases) if task.answerable else ()
        found = [problem for gold in task.golds if (problem := _misplaced(gold, texts))]
        spans = [texts[g.article_id][g.start : g.end] for g in task.golds if g.start is not None and not _misplaced(g, texts)]
        if spans and not any(holds(span, answer) for span in spans for answer in answers):
            found.append(f"no span holds the gold answer {task.gold_answer!r} or an alias")
        found += [f"the question gives the answer {answer!r} away" for answer in answers if holds(task.question, answer)]
        if task.counterfactual is not None and any(_plain(task.counterfactual) == _plain(answer) for answer in answers):
            found.append(f"the counterfactual {task.counterfactual!r} is a right answer")
        if task.kind == "multi-article" and len({gold.article_id for gold in task.golds}) < 2:
            found.append("multi-article, but its golds are in fewer than two articles")
        found += [f"near article {key!r} is not in the corpus" for key in task.near if key not in texts]
        question = _plain(task.question).rstrip(" ?.!")
        if question in asked:
            found.append(f"asks the same as {asked[question]}")
        asked.setdefault(question, task.task_id)
        problems += [f"task {task.task_id}: {problem}" for problem in found]
    return problems


def gold_chunk(task: Task, chunks: Sequence[Chunk]) -> tuple[Chunk | None, ...]:
    """For each gold of the task the chunk of its article that shares most characters with its span, the earlier of equals.

    A gold without a span takes the first chunk of its article that holds the gold answer or an alias. None where no chunk does.
    """
    return tuple(_gold_chunk(task, gold, chunks) for gold in task.golds)


def tasks_digest(tasks: Iterable[Task]) -> str:
    """SHA-256 (64 hex) over the tasks' fields, sorted by task_id: the content, not the file or the order of its lines."""
    rows = [asdict(task) for task in sorted(tasks, key=lambda task: task.task_id)]
    return hashlib.sha256("\n".join(json.dumps(row, sort_keys=True) for row in rows).encode()).hexdigest()


def holds(text: str, answer: str) -> bool:
    """Whether `text` holds `answer` on token borders, whatever the case and spacing: "5 km" is in "(5  km)", not in "1.5 km"."""
    words = _plain(answer)
    return bool(words) and _on_borders(re.escape(words)).search(_plain(text)) is not None


def occurrences(text: str, answers: Iterable[str]) -> list[tuple[int, int]]:
    """Where `text` holds any of the answers, as `holds` reads them: (start, end) in order, the longest where two overlap."""
    forms = sorted({tuple(answer.split()) for answer in answers if answer.strip()}, key=lambda form: -len(" ".join(form)))
    taken: list[tuple[int, int]] = []
    for form in forms:
        pattern = _on_borders(r"\s+".join(map(re.escape, form)))
        for found in pattern.finditer(text):
            if all(found.end() <= start or end <= found.start() for start, end in taken):
                taken.append(found.span())
    return sorted(taken)


def _on_borders(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?<!\d[.,])(?:{pattern})(?!\w)(?![.,]\d)", re.IGNORECASE)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _misplaced(gold: Gold, texts: dict[str, str]) -> str | None:
    if gold.article_id not in texts:
        return f"gold article {gold.article_id!r} is not in the corpus"
    length = len(texts[gold.article_id])
    if gold.end is not None and gold.end > length:
        return f"span {gold.start}:{gold.end} is outside article {gold.article_id!r} of {length} characters"
    return None


def _gold_chunk(task: Task, gold: Gold, chunks: Sequence[Chunk]) -> Chunk | None:
    own = sorted((chunk for chunk in chunks if chunk.article_id == gold.article_id), key=lambda chunk: chunk.start)
    if gold.start is None or gold.end is None:
        answers = (task.gold_answer, *task.aliases)
        return next((chunk for chunk in own if any(holds(chunk.text, answer) for answer in answers)), None)
    low, high = gold.start, gold.end

    def shared(chunk: Chunk) -> int:
        return min(chunk.end, high) - max(chunk.start, low)

    best = max(own, key=shared, default=None)  # max keeps the first of equals
    return best if best is not None and shared(best) > 0 else None


# Reading one line ----------------------------------------------------------------------------------------------------


def _task(row: Any) -> Task:
    """A task from one line's content; ValueError says what is wrong with it."""
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    question = _string(row, "question")
    if not question:
        raise ValueError("no question")
    kind = _string(row, "kind") or ("unanswerable" if row.get("answerable") is False else "fact")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}, choose from {', '.join(KINDS)}")
    split = _string(row, "split") or "dev"
    if split not in SPLITS:
        raise ValueError(f"unknown split {split!r}, choose from {', '.join(SPLITS)}")
    answerable = row.get("answerable", kind != "unanswerable")
    if not isinstance(answerable, bool):
        raise ValueError(f"answerable is {answerable!r}, not true or false")
    if answerable == (kind == "unanswerable"):
        raise ValueError(f"kind {kind!r} and answerable {str(answerable).lower()} contradict each other")
    difficulty = _string(row, "difficulty") or None
    if difficulty not in (None, *DIFFICULTIES):
        raise ValueError(f"unknown difficulty {difficulty!r}, choose from {', '.join(DIFFICULTIES)}")
    gold_answer, golds = _string(row, "gold_answer"), _golds(row)
    if answerable and not gold_answer:
        raise ValueError("answerable, but no gold_answer")
    if answerable and not golds:
        raise ValueError("answerable, but no golds or gold_article_id")
    if not answerable and (gold_answer or golds):
        raise ValueError("unanswerable, but with a gold_answer or golds")
    return Task(
        task_id=_identifier(row.get("task_id"), "task_id") or _made_id(question, gold_answer, golds),
        question=question,
        gold_answer=gold_answer,
        aliases=_texts(row, "aliases"),
        golds=golds,
        kind=kind,
        answerable=answerable,
        counterfactual=_string(row, "counterfactual") or None,
        split=split,
        difficulty=difficulty,
        near=_texts(row, "near"),
        why=_string(row, "why") or None,
    )


def _string(row: dict[str, Any], name: str) -> str:
    value = row.get(name)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return (value or "").strip()


def _identifier(value: Any, name: str) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return _string({name: value}, name)


def _texts(row: dict[str, Any], name: str) -> tuple[str, ...]:
    texts = row.get(name) or []
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError(f"{name} is {texts!r}, not a list of texts")
    return tuple(text.strip() for text in texts)


def _golds(row: dict[str, Any]) -> tuple[Gold, ...]:
    golds = row.get("golds") or []
    if not isinstance(golds, list):
        raise ValueError(f"golds is {golds!r}, not a list")
    read = tuple(_gold(gold) for gold in golds)
    minimal = _identifier(row.get("gold_article_id"), "gold_article_id")
    return read or ((Gold(minimal),) if minimal else ())


def _gold(gold: Any) -> Gold:
    article_id = _identifier(gold.get("article_id"), "article_id") if isinstance(gold, dict) else ""
    if not article_id:
        raise ValueError(f"gold {gold!r} has no article_id")
    start, end = gold.get("start"), gold.get("end")
    if start is None and end is None:
        return Gold(article_id)
    if not all(isinstance(place, int) and not isinstance(place, bool) for place in (start, end)) or not 0 <= start < end:
        raise ValueError(f"span {start!r}:{end!r} of {article_id!r} is not two whole numbers, 0 <= start < end")
    return Gold(article_id, start, end)


def _made_id(question: str, gold_answer: str, golds: tuple[Gold, ...]) -> str:
    content = json.dumps([question, gold_answer, [(gold.article_id, gold.start, gold.end) for gold in golds]])
    return f"task-{hashlib.sha256(content.encode()).hexdigest()[:12]}"
