"""Collections of others: a BEIR folder retrieved as the published runs did it, and SQuAD 1.1 read as articles and tasks.

Whole documents, truncated by the embedder and counted: this is the one place where the book truncates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ragkit.corpus import read_snapshot
from ragkit.errors import InputError
from ragkit.evaluation.metrics import average_precision, hit_at_k, ndcg_at_k, recall_at_k, reciprocal_rank
from ragkit.records import Article, Gold, Task

if TYPE_CHECKING:
    from ragkit.models import Embedder

MEASURES: dict[str, Callable[[Sequence[str], Mapping[Any, float]], float]] = {
    "ndcg@10": lambda ranked, gains: ndcg_at_k(ranked, gains, 10),
    "map@1000": lambda ranked, gains: average_precision(ranked, _relevant(gains), 1000),
    "mrr@10": lambda ranked, gains: reciprocal_rank(ranked, _relevant(gains), 10),
    "recall@1": lambda ranked, gains: recall_at_k(ranked, _relevant(gains), 1),
    "recall@5": lambda ranked, gains: recall_at_k(ranked, _relevant(gains), 5),
    "recall@10": lambda ranked, gains: recall_at_k(ranked, _relevant(gains), 10),
    "recall@100": lambda ranked, gains: recall_at_k(ranked, _relevant(gains), 100),
    "hit@5": lambda ranked, gains: hit_at_k(ranked, _relevant(gains), 5),
}


def _relevant(gains: Mapping[str, float]) -> set[str]:
    return {key for key, gain in gains.items() if gain > 0}


@dataclass(frozen=True, slots=True)
class Collection:
    """A test collection: documents, queries by id, judgements {query id: {document id: gain}}."""

    articles: tuple[Article, ...]
    queries: dict[str, str]
    qrels: dict[str, dict[str, float]]


def _lines(path: Path) -> list[tuple[int, str]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read ({type(error).__name__}): a BEIR folder holds it as UTF-8 text") from error
    # Not splitlines: a query may hold a line separator that JSON leaves as it is.
    return [(number, line.rstrip("\r")) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]


def _read_queries(path: Path) -> dict[str, str]:
    queries: dict[str, str] = {}
    for number, line in _lines(path):
        try:
            row = json.loads(line)
            key, text = str(row["_id"]), row["text"]
            if not isinstance(text, str):
                raise TypeError("text is no string")
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}:{number} is not a query with _id and text: {line[:60]!r}") from error
        if key in queries:
            raise InputError(f"{path}:{number} repeats query id {key!r}: ids must be unique")
        queries[key] = text
    return queries


def _read_qrels(path: Path) -> dict[str, dict[str, float]]:
    qrels: dict[str, dict[str, float]] = {}
    for number, line in _lines(path):
        parts = line.split("\t")
        if number == 1 and parts[0] == "query-id":
            continue
        try:
            query, document, gain = parts[0], parts[1], float(parts[2])
        except (IndexError, ValueError) as error:
            raise InputError(f"{path}:{number} is not query<TAB>document<TAB>gain: {line[:60]!r}") from error
        if not np.isfinite(gain):
            raise InputError(f"{path}:{number} has gain {parts[2]!r}: give a finite number")
        qrels.setdefault(query, {})[document] = gain
    return qrels


def read_beir(folder: str | Path, split: str = "test") -> Collection:
    """Read a BEIR folder: corpus.jsonl(.gz), queries.jsonl, qrels/SPLIT.tsv; queries with no relevant document are left out.

    Raises
    ------
    InputError
        A file is missing or a line does not parse; a judged query or document does not exist; nothing is judged relevant.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise InputError(f"{folder} is not a folder: give a BEIR folder with corpus.jsonl, queries.jsonl and qrels/{split}.tsv")
    corpus = next((folder / name for name in ("corpus.jsonl", "corpus.jsonl.gz") if (folder / name).is_file()), None)
    if corpus is None:
        raise InputError(f"{folder} holds no corpus.jsonl or corpus.jsonl.gz: is it a BEIR folder?")
    articles = read_snapshot(corpus).articles
    queries, qrels = _read_queries(folder / "queries.jsonl"), _read_qrels(folder / "qrels" / f"{split}.tsv")
    known = {article.article_id for article in articles}
    for query, gains in qrels.items():
        if query not in queries:
            raise InputError(f"qrels/{split}.tsv judges query {query!r}, which queries.jsonl does not hold")
        unknown = next((document for document in gains if document not in known), None)
        if unknown is not None:
            raise InputError(f"qrels/{split}.tsv judges document {unknown!r}, which {corpus.name} does not hold")
    judged = {query: gains for query, gains in sorted(qrels.items()) if _relevant(gains)}
    if not judged:
        raise InputError(f"qrels/{split}.tsv judges nothing relevant: nothing can be measured")
    return Collection(articles, {query: queries[query] for query in judged}, judged)


def dense_run(collection: Collection, embedder: Embedder, folder: str | Path, depth: int = 1000) -> dict[str, list[str]]:
    """Rank documents for every query with the book's own index: {query id: document ids, best first}.

    Over-long documents are truncated as the published runs did; `embedder.truncated` counts them. Ties are ordered by id.
    """
    from ragkit.evaluation.sweep import whole_articles
    from ragkit.retrieval import build_index

    index = build_index(whole_articles(collection.articles), embedder, folder, {"reproduce": True}, truncate=True)
    vectors = embedder.encode_queries(list(collection.queries.values()), truncate=True)
    return {
        query: [hit.chunk.article_id for hit in hits]
        for query, hits in zip(collection.queries, index.search_many(vectors, depth), strict=True)
    }


def retrieval_report(run: Mapping[str, Sequence[str]], qrels: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """Mean of every published measure over the judged queries; a query that the run lacks counts zero."""
    return {
        name: float(np.mean([measure(run.get(query, ()), gains) for query, gains in qrels.items()]))
        for name, measure in MEASURES.items()
    }


def read_squad(path: str | Path, sample: int | None = None, seed: int = 0) -> tuple[tuple[Article, ...], tuple[Task, ...]]:
    """Read a SQuAD 1.1 file as articles (one a paragraph) and tasks with gold spans; `sample` draws that many questions.

    Raises
    ------
    InputError
        The file is not SQuAD 1.1, or `sample` is below 1.
    """
    if sample is not None and sample < 1:
        raise InputError(f"sample is {sample}: draw at least 1 question")
    try:
        data = json.loads(Path(path).read_text(encoding="utf-8"))["data"]
        articles, tasks = [], []
        for document in data:
            for number, paragraph in enumerate(document["paragraphs"]):
                key, title = f"{document['title']}-{number:03d}", document["title"].replace("_", " ")
                text = f"{title}\n\n{paragraph['context']}"
                articles.append(Article(key, title, text))
                shift = len(text) - len(paragraph["context"])
                for question in paragraph["qas"]:
                    answers = list(dict.fromkeys(answer["text"] for answer in question["answers"]))
                    start = question["answers"][0]["answer_start"] + shift
                    golds = (Gold(key, start, start + len(question["answers"][0]["text"])),)
                    tasks.append(Task(str(question["id"]), question["question"], answers[0], tuple(answers[1:]), golds))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, IndexError) as error:
        raise InputError(f"{path} is not a SQuAD 1.1 file ({type(error).__name__}: {error})") from error
    if sample is not None:
        # A draw that depends on ids and seed alone, so that file order does not matter.
        tasks.sort(key=lambda task: hashlib.sha256(f"{seed}:{task.task_id}".encode()).hexdigest())
        tasks = tasks[:sample]
    return tuple(articles), tuple(tasks)
