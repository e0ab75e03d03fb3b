"""Scoring: search metrics, answer checking, arms, the experiment, paired statistics. It never builds an index or loads models.

Names load their module when first used, so that a notebook depends only on what it uses.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ragkit.evaluation.arms import ARMS, arm_prompts
    from ragkit.evaluation.checking import Check, check_answer, contains_answer, exact_match, is_refusal, normalise, token_f1
    from ragkit.evaluation.collections import Collection, read_beir, read_collection
    from ragkit.evaluation.experiment import run_arm
    from ragkit.evaluation.items import read_records
    from ragkit.evaluation.metrics import (
        article_ranking,
        average_precision,
        dedupe,
        hit_at_k,
        ndcg_at_k,
        precision_at_k,
        recall_at_k,
        reciprocal_rank,
    )
    from ragkit.evaluation.report import rag_report
    from ragkit.evaluation.reproduce import retrieval_report
    from ragkit.evaluation.statistics import (
        PairedBinary,
        PairedDifference,
        bca_interval,
        design_effect,
        effective_sample_size,
        holm,
        intraclass_correlation,
        mcnemar_exact,
        mcnemar_midp,
        minimum_detectable_effect,
        minimum_detectable_effect_clustered,
        newcombe_interval,
        paired_binary,
        paired_difference,
        tango_interval,
        wilson_interval,
    )

_WHERE = {
    "ARMS": "arms",
    "arm_prompts": "arms",
    "Check": "checking",
    "check_answer": "checking",
    "contains_answer": "checking",
    "exact_match": "checking",
    "is_refusal": "checking",
    "normalise": "checking",
    "token_f1": "checking",
    "Collection": "collections",
    "read_beir": "collections",
    "read_collection": "collections",
    "retrieval_report": "reproduce",
    "rag_report": "report",
    "read_records": "items",
    "run_arm": "experiment",
    "article_ranking": "metrics",
    "average_precision": "metrics",
    "dedupe": "metrics",
    "hit_at_k": "metrics",
    "ndcg_at_k": "metrics",
    "precision_at_k": "metrics",
    "recall_at_k": "metrics",
    "reciprocal_rank": "metrics",
    "PairedBinary": "statistics",
    "PairedDifference": "statistics",
    "bca_interval": "statistics",
    "design_effect": "statistics",
    "effective_sample_size": "statistics",
    "holm": "statistics",
    "intraclass_correlation": "statistics",
    "mcnemar_exact": "statistics",
    "mcnemar_midp": "statistics",
    "minimum_detectable_effect": "statistics",
    "minimum_detectable_effect_clustered": "statistics",
    "newcombe_interval": "statistics",
    "paired_binary": "statistics",
    "paired_difference": "statistics",
    "tango_interval": "statistics",
    "wilson_interval": "statistics",
}

__all__ = [
    "ARMS",
    "Check",
    "Collection",
    "PairedBinary",
    "PairedDifference",
    "arm_prompts",
    "article_ranking",
    "average_precision",
    "bca_interval",
    "check_answer",
    "contains_answer",
    "dedupe",
    "design_effect",
    "effective_sample_size",
    "exact_match",
    "hit_at_k",
    "holm",
    "intraclass_correlation",
    "is_refusal",
    "mcnemar_exact",
    "mcnemar_midp",
    "minimum_detectable_effect",
    "minimum_detectable_effect_clustered",
    "ndcg_at_k",
    "newcombe_interval",
    "normalise",
    "paired_binary",
    "paired_difference",
    "precision_at_k",
    "rag_report",
    "read_beir",
    "read_collection",
    "read_records",
    "recall_at_k",
    "reciprocal_rank",
    "retrieval_report",
    "run_arm",
    "tango_interval",
    "token_f1",
    "wilson_interval",
]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        return getattr(import_module(f"ragkit.evaluation.{_WHERE[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
