"""TREC's exchange formats: qrels (judgements) and runs (ranked results) read and written, and BEIR's qrels read.

It scores nothing: per-query grades and rankings go to `ragkit.evaluation.metrics`, and their callers keep per-query values.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ragkit.errors import InputError
from ragkit.lab.metrics import write_text


@dataclass(frozen=True, slots=True)
class Qrels:
    """Judgements, {query id: {document id: grade}}, and what of them cannot be met.

    `unknown_queries` were left out (nobody can ask them). `unknown_documents` are (query id, document id) pairs that stay in:
    a relevant document that the corpus lacks is a miss. Both are empty where no known ids were given.
    """

    grades: dict[str, dict[str, float]]
    unknown_queries: tuple[str, ...] = ()
    unknown_documents: tuple[tuple[str, str], ...] = ()


def read_qrels(path: str | Path, queries: Collection[str] | None = None, documents: Collection[str] | None = None) -> Qrels:
    """Read judgements: TREC's `query iteration document grade`, or BEIR's three columns set apart by tabs, with its header.

    Grades are kept as they are (binary, graded, negative). A judgement that is repeated word for word counts once.

    Parameters
    ----------
    queries, documents : ids that exist; judgements of others are reported in the result.

    Raises
    ------
    InputError
        The file cannot be read or judges nothing, a line does not parse, a grade is not finite, or two lines disagree.
    """
    grades: dict[str, dict[str, float]] = {}
    columns = None
    for place, line in _lines(path):
        if columns is None:
            columns = 3 if line.count("\t") == 2 else 4
            if line.split("\t")[0] == "query-id":
                continue
        parts = line.split("\t") if columns == 3 else line.split()
        if len(parts) != columns or not all(parts):
            form = "query<TAB>document<TAB>grade" if columns == 3 else "query iteration document grade"
            raise InputError(f"{place} is not {form}: {line[:60]!r}")
        query, document, grade = parts[0], parts[-2], _number(parts[-1], "grade", place)
        if grades.setdefault(query, {}).setdefault(document, grade) != grade:
            raise InputError(f"{place} judges document {document!r} of query {query!r} again, with another grade: keep one")
    if not grades:
        raise InputError(f"{path} holds no judgements: give qrels of at least one line")
    asked = grades.keys() if queries is None else set(queries)
    known = {query: judged for query, judged in grades.items() if query in asked}
    pairs = [(query, document) for query, judged in known.items() for document in judged]
    there = {document for _, document in pairs} if documents is None else set(documents)
    unknown = tuple(query for query in grades if query not in asked)
    return Qrels(known, unknown, tuple(pair for pair in pairs if pair[1] not in there))


def read_run(path: str | Path) -> dict[str, dict[str, float]]:
    """Read a run, `query Q0 document rank score tag`: {query id: {document id: score}}, best first.

    The order is that of the scores, equal ones by document id, as everywhere in this package; the column of ranks is not used
    (trec_eval does not either, but orders equal scores by falling id).

    Raises
    ------
    InputError
        The file cannot be read or is empty, a line does not parse, a score is NaN or infinite, or a query repeats a document.
    """
    run: dict[str, dict[str, float]] = {}
    for place, line in _lines(path):
        parts = line.split()
        if len(parts) != 6:
            raise InputError(f"{place} is not query Q0 document rank score tag: {line[:60]!r}")
        query, document, score = parts[0], parts[2], _number(parts[4], "score", place)
        scores = run.setdefault(query, {})
        if document in scores:
            raise InputError(f"{place} repeats document {document!r} of query {query!r}: a run names a document once a query")
        scores[document] = score
    if not run:
        raise InputError(f"{path} holds no results: give a run of at least one line")
    return {query: dict(_ranked(scores)) for query, scores in run.items()}


def write_qrels(path: str | Path, grades: Mapping[str, Mapping[str, float]]) -> None:
    """Write judgements as TREC qrels, sorted by ids, whole or not at all; `read_qrels` gives the same grades back.

    Raises
    ------
    InputError
        No judgements, an id with white space in it, or a grade that is not finite.
    """
    lines = []
    for query, judged in sorted(grades.items()):
        for document, grade in sorted(judged.items()):
            value = _finite(grade, "grade", query, document)
            lines.append(f"{_id(query)} 0 {_id(document)} {int(value) if value.is_integer() else repr(value)}")
    _write(path, lines, "judgements")


def write_run(path: str | Path, run: Mapping[str, Mapping[str, float] | Sequence[str]], tag: str = "ragkit") -> None:
    """Write a run in TREC's format, whole or not at all: best first, equal scores by document id, ranks from 1.

    Parameters
    ----------
    run : {query id: {document id: score}}; or, for a query, its document ids best first, which get the scores n, n - 1, ..., 1:
        every tool then sees this order, while tools disagree on equal scores. A query without results leaves no line.
    tag : the run's name.

    Raises
    ------
    InputError
        No results at all, an id or tag with white space in it, a score that is not finite, or a repeated document.
    """
    lines = []
    for query, found in run.items():
        for rank, (document, score) in enumerate(_ranked(_scores(query, found)), start=1):
            lines.append(f"{_id(query)} Q0 {_id(document)} {rank} {_finite(score, 'score', query, document)!r} {_id(tag)}")
    _write(path, lines, "results")


def _scores(query: str, found: Mapping[str, float] | Sequence[str]) -> Mapping[str, float]:
    if isinstance(found, Mapping):
        return found
    if isinstance(found, str) or len(set(found)) < len(found):
        raise InputError(f"results of query {query!r} are a string or repeat a document: give each document id once, best first")
    return {document: float(len(found) - place) for place, document in enumerate(found)}


def _ranked(scores: Mapping[str, float]) -> list[tuple[str, float]]:
    return sorted(scores.items(), key=lambda pair: (-pair[1], pair[0]))


def _lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """Lines that are not blank, each with the place to name in an error."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}): give a file of UTF-8 text") from error
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield f"{path}:{number}", line.rstrip("\r")


def _number(text: str, what: str, place: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InputError(f"{place} has {what} {text!r}: give a finite number")
    return value


def _finite(value: float, what: str, query: str, document: str) -> float:
    if not math.isfinite(value):
        raise InputError(f"{what} of document {document!r} for query {query!r} is {value}: give a finite number")
    return float(value)


def _id(key: str) -> str:
    if not isinstance(key, str) or key.split() != [key]:
        raise InputError(f"id {key!r} is no string without white space: TREC's columns are set apart by it")
    return key


def _write(path: str | Path, lines: Sequence[str], what: str) -> None:
    if not lines:
        raise InputError(f"no {what} to write to {path}: a file of none cannot be told from a broken one")
    write_text(Path(path), "".join(f"{line}\n" for line in lines))
