"""From stored rows to `rag_report.json`: paired comparisons with items named, retrieval metrics apart, refusals apart.

Pure functions on rows: nothing here runs a model, and verdicts come from `paired_binary` alone.
"""

from __future__ import annotations

import math
import os
from collections.abc import Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from ragkit.errors import InputError, ServiceError
from ragkit.evaluation.items import Record, covers, paired, write_whole
from ragkit.evaluation.metrics import article_ranking, hit_at_k, recall_at_k, reciprocal_rank
from ragkit.evaluation.statistics import PairedBinary, bca_interval, holm, paired_binary, wilson_interval
from ragkit.records import Hit, Task

METRICS = ("article_hit", "article_recall", "article_rr", "chunk_hit", "chunk_recall", "chunk_rr")
# Columns of items.parquet; what a row of an older run lacks is null there.
_COLUMNS = {
    "task_id": "string", "arm": "string", "split": "string", "kind": "string", "answerable": "bool", "cluster": "string",
    "question": "string", "gold_answer": "string", "answer": "string", "correct": "bool", "rule": "string", "refused": "bool",
    "gives_counterfactual": "bool",
    "finish_reason": "string", "context": "list", "context_tokens": "int64", "cut": "int64", "article_in_context": "bool",
    "gold_chunk_rank": "int64", "prompt_tokens": "int64", "completion_tokens": "int64", "prompt_sha256": "string",
    "key": "string",
}  # fmt: skip
_END_TASK = {"A0": "parametric", "A1": "template", "A4": "rag", "A6": "oracle"}


# One comparison


def compare(treated: Sequence[Record], control: Sequence[Record], seed: int = 0) -> tuple[PairedBinary, dict[str, Any]]:
    """Pair two arms on their answerable items, clusters being gold articles.

    Returns
    -------
    (result, row): the result of `paired_binary`, and the same as plain JSON with the ids of gains and harms first.

    Raises
    ------
    InputError
        The arms share no answerable item.
    """
    pairs = paired(treated, control)
    result = paired_binary(
        [int(a["correct"]) for a, _ in pairs], [int(b["correct"]) for _, b in pairs], [a["cluster"] for a, _ in pairs], seed
    )
    row = {
        "treated": treated[0]["arm"],
        "control": control[0]["arm"],
        "n": result.n,
        "clusters": len({a["cluster"] for a, _ in pairs}),
        "harm_ids": [a["task_id"] for a, b in pairs if b["correct"] and not a["correct"]],
        "gain_ids": [a["task_id"] for a, b in pairs if a["correct"] and not b["correct"]],
        "both": result.both,
        "gains": result.gains,
        "harms": result.harms,
        "neither": result.neither,
        "delta": result.delta,
        "interval": list(result.interval),
        "interval_method": result.interval_method,
        "cluster_interval": list(result.cluster_interval) if result.cluster_interval else None,
        "mcnemar_p": result.p_exact,
        "mcnemar_midp": result.p_midp,
        "mcnemar_effect": _finite(result.odds_ratio),
        "verdict": result.verdict,
    }
    return result, row


def _finite(value: float | None) -> float | None:
    """JSON has no infinity: an odds ratio without harms is null there, beside the counts that say why."""
    return value if value is not None and math.isfinite(value) else None


# One arm


def rate(successes: int, n: int) -> dict[str, Any]:
    """A proportion with n and its Wilson 95 % interval; no n, no rate."""
    if n == 0:
        return {"n": 0, "count": 0, "rate": None, "interval": None}
    return {"n": n, "count": successes, "rate": successes / n, "interval": list(wilson_interval(successes, n))}


def accuracy(records: Sequence[Record]) -> dict[str, Any]:
    """Share of answerable items answered correctly."""
    rows = [row for row in records if row["answerable"]]
    return rate(sum(row["correct"] for row in rows), len(rows))


def refusals(records: Sequence[Record]) -> dict[str, Any]:
    """Refusals on unanswerable items (due) and on answerable ones (undue)."""
    due = [row for row in records if not row["answerable"]]
    undue = [row for row in records if row["answerable"]]
    return {
        "due": rate(sum(row["refused"] for row in due), len(due)),
        "undue": rate(sum(row["refused"] for row in undue), len(undue)),
    }


def attribution(records: Sequence[Record]) -> dict[str, int]:
    """Answerable items by whether a gold chunk stood in the context and whether the answer was right: four counts."""
    rows = [(row["gold_chunk_rank"] is not None, bool(row["correct"])) for row in records if row["answerable"]]
    return {
        "evidence_right": rows.count((True, True)),
        "evidence_wrong": rows.count((True, False)),
        "no_evidence_right": rows.count((False, True)),
        "no_evidence_wrong": rows.count((False, False)),
    }


def _arm(rows: Sequence[Record]) -> dict[str, Any]:
    return {
        "accuracy": accuracy(rows),
        "refusals": refusals(rows),
        "attribution": attribution(rows),
        "truncated": [row["task_id"] for row in rows if row["finish_reason"] == "length"],
        "cut_contexts": sum(row["cut"] > 0 for row in rows),
        "context_tokens": sum(row["context_tokens"] for row in rows),
        "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
        "completion_tokens": sum(row["completion_tokens"] for row in rows),
    }


# Retrieval


def retrieval_rows(tasks: Sequence[Task], hits: Sequence[Sequence[Hit]], k: int) -> list[dict[str, Any]]:
    """Per-task retrieval metrics (`METRICS`) of the tasks that have golds, at the level of articles and of gold chunks.

    The reader is given chunks, so k counts chunks at both levels. Articles are those of the first k chunks, each once, at the
    place of its best chunk. A chunk counts for each gold that it `covers`; chunk recall is the share of golds covered by any.

    Parameters
    ----------
    hits : for each task its hits, best first, at least k of them where the corpus has as many.

    Returns
    -------
    One row a task: `task_id`, `cluster` (the first gold's article), each metric at `k`, and `by_k`, the metrics at 1, 2, ... k.
    """
    rows = []
    for task, found in zip(tasks, hits, strict=True):
        if task.golds:
            by_k = [_at(task, found[:cut], cut) for cut in range(1, k + 1)]
            rows.append({"task_id": task.task_id, "cluster": task.golds[0].article_id, **by_k[-1], "by_k": by_k})
    return rows


def _at(task: Task, found: Sequence[Hit], k: int) -> dict[str, float]:
    """The metrics of one task on its first k hits."""
    articles, relevant = article_ranking(found), {gold.article_id for gold in task.golds}
    golds = list(dict.fromkeys(task.golds))
    first = [next((rank for rank, hit in enumerate(found, 1) if covers(task, gold, hit.chunk)), None) for gold in golds]
    ranks = [rank for rank in first if rank is not None]
    return {
        "article_hit": hit_at_k(articles, relevant, k),
        "article_recall": recall_at_k(articles, relevant, k),
        "article_rr": reciprocal_rank(articles, relevant, k),
        "chunk_hit": float(bool(ranks)),
        "chunk_recall": len(ranks) / len(golds),
        "chunk_rr": 1.0 / min(ranks) if ranks else 0.0,
    }


def mean_with_interval(values: Sequence[float], seed: int = 0, clusters: Sequence[Hashable] | None = None) -> dict[str, Any]:
    """The mean of a metric in [0, 1] with n and its BCa 95 % interval, over clusters where they are given.

    Raises
    ------
    InputError
        No values, or one outside [0, 1].
    """
    array = np.asarray(values, dtype=float)
    low, high = bca_interval(array, clusters, seed=seed, bounds=(0.0, 1.0))
    return {"n": len(array), "mean": float(array.mean()), "interval": [low, high]}


def retrieval_summary(rows: Sequence[Mapping[str, Any]], seed: int = 0) -> dict[str, Any]:
    """Means of `retrieval_rows` with intervals over gold articles: `recall_at_k`, `mrr`, `detail` at k, and `by_k`.

    Without rows there is nothing to be found (unanswerable tasks have no recall): None, and nothing in detail.
    """
    if not rows:
        return {"recall_at_k": None, "mrr": None, "detail": {}, "by_k": []}
    clusters = [row["cluster"] for row in rows]

    def means(cut: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        return {name: mean_with_interval([row[name] for row in cut], seed, clusters) for name in METRICS}

    detail = means(rows)
    by_k = [{"k": k, **means(cut)} for k, cut in enumerate(zip(*(row["by_k"] for row in rows), strict=True), start=1)]
    return {
        "recall_at_k": detail["article_recall"]["mean"],
        "mrr": detail["article_rr"]["mean"],
        "detail": detail,
        "by_k": by_k,
    }


# The report


def rag_report(
    records: Mapping[str, Sequence[Record]],
    retrieval: Sequence[Mapping[str, Any]],
    k: int,
    primary: tuple[str, str],
    provenance: Mapping[str, Any],
    seed: int = 0,
) -> dict[str, Any]:
    """The report of one run (`rag_report.json`): two families of numbers, never mixed.

    Parameters
    ----------
    records : rows by arm.
    retrieval : rows of `retrieval_rows`.
    primary : (treated, control), declared before looking.
    provenance : what was run on what: digests, split, reader, embedder.

    Returns
    -------
    n (answerable items), k, retrieval, end_task, arms, comparisons (of the arms that were run on answerable items), primary
    (the one that was declared, run or not), secondary (Holm over the exact p of the others, with the size of their family),
    provenance.

    Raises
    ------
    InputError
        No arm was run, or two arms share no answerable item.
    """
    if not records:
        raise InputError("no arm was run: nothing to report")
    answerable = {arm for arm, rows in records.items() if any(row["answerable"] for row in rows)}
    wanted = dict.fromkeys([primary, ("A4", "A1"), ("A4", "A0"), ("A6", "A4"), ("A1", "A0")])
    comparisons = {f"{a}-{b}": compare(records[a], records[b], seed)[1] for a, b in wanted if {a, b} <= answerable}
    end_task: dict[str, Any] = {_END_TASK.get(arm, arm): accuracy(rows)["rate"] for arm, rows in records.items()}
    for suffix, key in (("", "A4-A0"), ("_template", "A4-A1")):
        if key in comparisons:
            end_task[f"paired_delta{suffix}"] = comparisons[key]["delta"]
            end_task[f"paired_interval{suffix}"] = comparisons[key]["interval"]
            end_task[f"mcnemar_p{suffix}"] = comparisons[key]["mcnemar_p"]
            end_task[f"mcnemar_effect{suffix}"] = comparisons[key]["mcnemar_effect"]
    declared = f"{primary[0]}-{primary[1]}"
    others = [name for name in comparisons if name != declared]
    first = next(iter(comparisons.values()), None)
    adjusted = holm([comparisons[name]["mcnemar_p"] for name in others]) if others else []
    return {
        "n": first["n"] if first else accuracy(next(iter(records.values())))["n"],
        "k": k,
        "retrieval": retrieval_summary(retrieval, seed),
        "end_task": end_task,
        "arms": {arm: _arm(rows) for arm, rows in records.items()},
        "comparisons": comparisons,
        "primary": declared,
        "secondary": {"family_size": len(others), "holm": dict(zip(others, adjusted, strict=True))},
        "provenance": dict(provenance),
    }


def write_report(report: Mapping[str, Any], folder: str | Path) -> Path:
    """Write `rag_report.json`, whole or not at all, the same bytes for the same report.

    Raises
    ------
    InputError
        A value is NaN, infinite or no plain data.
    ServiceError
        The folder cannot be written or the disk is full.
    """
    file = Path(folder) / "rag_report.json"
    write_whole(file, report)
    return file


def write_items(records: Mapping[str, Sequence[Record]], folder: str | Path) -> Path:
    """Write `items.parquet`: the rows of all arms, sorted by task id and arm, whole or not at all, the same bytes each time.

    Raises
    ------
    ServiceError
        The folder cannot be written or the disk is full.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = sorted((row for arm in records.values() for row in arm), key=lambda row: (row["task_id"], row["arm"]))
    kinds = {"string": pa.string(), "bool": pa.bool_(), "int64": pa.int64(), "list": pa.list_(pa.string())}
    table = pa.table({name: pa.array([row.get(name) for row in rows], kinds[kind]) for name, kind in _COLUMNS.items()})
    file = Path(folder) / "items.parquet"
    beside = file.with_name(f".{file.name}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, beside)
        os.replace(beside, file)
    except OSError as error:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise ServiceError(f"cannot write {file}: {error.strerror or error}; free space or choose another folder") from error
    return file
