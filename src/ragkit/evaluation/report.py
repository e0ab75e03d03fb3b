"""From stored rows to `rag_report.json`: paired comparisons with items named, retrieval metrics apart, refusals apart.

Pure functions on rows: nothing here runs a model, and verdicts come from `paired_binary` alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ragkit.evaluation.items import Record, paired
from ragkit.evaluation.metrics import dedupe, hit_at_k, recall_at_k, reciprocal_rank
from ragkit.evaluation.statistics import PairedBinary, bca_interval, paired_binary, wilson_interval
from ragkit.records import Hit, Task


def compare(treated: Sequence[Record], control: Sequence[Record], seed: int = 0) -> tuple[PairedBinary, dict[str, Any]]:
    """Pair two arms on their answerable items, clusters being gold articles.

    Returns
    -------
    (result, row): the result of `paired_binary`, and the same as plain JSON with the ids of gains and harms first.
    """
    pairs = paired(treated, control)
    result = paired_binary(
        [int(a["correct"]) for a, _ in pairs], [int(b["correct"]) for _, b in pairs], [a["cluster"] for a, _ in pairs], seed
    )
    row = {
        "treated": treated[0]["arm"],
        "control": control[0]["arm"],
        "n": result.n,
        "harm_ids": [a["task_id"] for a, b in pairs if b["correct"] and not a["correct"]],
        "gain_ids": [a["task_id"] for a, b in pairs if a["correct"] and not b["correct"]],
        "both": result.both,
        "gains": result.gains,
        "harms": result.harms,
        "neither": result.neither,
        "delta": result.delta,
        "interval": list(result.interval),
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


def retrieval_rows(tasks: Sequence[Task], hits: Sequence[Sequence[Hit]], k: int) -> list[dict[str, Any]]:
    """Per-task retrieval metrics of the answerable tasks, at the level of articles and of gold chunks.

    Articles are ranked by their best chunk, deduplicated, before an article metric is taken; a chunk counts where it overlaps
    the gold span.
    """
    rows = []
    for task, found in zip(tasks, hits, strict=True):
        if not task.golds:
            continue
        articles = dedupe([hit.chunk.article_id for hit in found])
        relevant = {gold.article_id for gold in task.golds}
        span_hit = [
            any(
                g.article_id == h.chunk.article_id and (g.start or 0) < h.chunk.end and h.chunk.start < (g.end or 0)
                for g in task.golds
            )
            for h in found[:k]
        ]
        rows.append(
            {
                "task_id": task.task_id,
                "cluster": task.golds[0].article_id,
                "article_hit": hit_at_k(articles, relevant, k),
                "article_recall": recall_at_k(articles, relevant, k),
                "article_rr": reciprocal_rank(articles, relevant, k),
                "chunk_hit": float(any(span_hit)),
                "chunk_rr": 1.0 / (span_hit.index(True) + 1) if any(span_hit) else 0.0,
            }
        )
    return rows


def mean_with_interval(values: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """A mean with n and its BCa 95 % interval."""
    array = np.asarray(values, dtype=float)
    low, high = bca_interval(array, seed=seed)
    return {"n": len(array), "mean": float(array.mean()), "interval": [low, high]}


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
    """
    wanted = dict.fromkeys([primary, ("A4", "A1"), ("A4", "A0"), ("A6", "A4"), ("A1", "A0")])
    comparisons = {f"{a}-{b}": compare(records[a], records[b], seed)[1] for a, b in wanted if a in records and b in records}
    names = {"A0": "parametric", "A1": "template", "A4": "rag", "A6": "oracle"}
    end_task: dict[str, Any] = {names[arm]: accuracy(rows)["rate"] for arm, rows in records.items()}
    for suffix, key in (("", "A4-A0"), ("_template", "A4-A1")):
        if key in comparisons:
            end_task[f"paired_delta{suffix}"] = comparisons[key]["delta"]
            end_task[f"paired_interval{suffix}"] = comparisons[key]["interval"]
            end_task[f"mcnemar_p{suffix}"] = comparisons[key]["mcnemar_p"]
            end_task[f"mcnemar_effect{suffix}"] = comparisons[key]["mcnemar_effect"]
    first = next(iter(comparisons.values()), None)
    return {
        "n": first["n"] if first else accuracy(next(iter(records.values())))["n"],
        "k": k,
        "retrieval": {
            "recall_at_k": mean_with_interval([row["article_recall"] for row in retrieval], seed)["mean"],
            "mrr": mean_with_interval([row["article_rr"] for row in retrieval], seed)["mean"],
            "detail": {name: mean_with_interval([row[name] for row in retrieval], seed) for name in _RETRIEVAL},
        },
        "end_task": end_task,
        "arms": {
            arm: {
                "accuracy": accuracy(rows),
                "refusals": refusals(rows),
                "truncated": [row["task_id"] for row in rows if row["finish_reason"] == "length"],
                "cut_contexts": sum(row["cut"] > 0 for row in rows),
                "context_tokens": sum(row["context_tokens"] for row in rows),
                "prompt_tokens": sum(row["prompt_tokens"] for row in rows),
                "completion_tokens": sum(row["completion_tokens"] for row in rows),
            }
            for arm, rows in records.items()
        },
        "comparisons": comparisons,
        "primary": f"{primary[0]}-{primary[1]}",
        "provenance": dict(provenance),
    }


_RETRIEVAL = ("article_hit", "article_recall", "article_rr", "chunk_hit", "chunk_rr")
