"""Retrieval metrics: worked examples, properties, and parity with ir_measures on random runs."""

from __future__ import annotations

import math
import random

import ir_measures
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ir_measures import AP, RR, P, R, Success, nDCG

import ragkit.evaluation as evaluation
from ragkit.errors import InputError
from ragkit.evaluation import (
    article_ranking,
    average_precision,
    dedupe,
    hit_at_k,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
    reciprocal_rank,
)
from ragkit.records import Chunk, Hit

settings.register_profile("ragkit", deadline=None)  # a busy machine is no failure
settings.load_profile("ragkit")

IDS = st.lists(st.sampled_from("abcdefgh"), max_size=14)
RELEVANT = st.sets(st.sampled_from("abcdefghij"), min_size=1)
GAINS = st.dictionaries(st.sampled_from("abcdefghij"), st.floats(-1e300, 1e300), min_size=1).filter(
    lambda gains: any(gain > 0 for gain in gains.values())
)
CUTOFF = st.integers(1, 12)


def test_every_exported_name_resolves() -> None:
    assert set(evaluation.__all__) == set(evaluation._WHERE)
    for name in evaluation.__all__:
        assert getattr(evaluation, name).__class__ is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        evaluation.nothing


def test_worked_example_by_hand() -> None:
    ranked, relevant = ["d3", "d1", "d7", "d2"], {"d1", "d2", "d9"}
    assert hit_at_k(ranked, relevant, 1) == 0.0
    assert hit_at_k(ranked, relevant, 2) == 1.0
    assert recall_at_k(ranked, relevant, 4) == 2 / 3
    assert precision_at_k(ranked, relevant, 5) == 2 / 5
    assert reciprocal_rank(ranked, relevant) == 1 / 2
    assert reciprocal_rank(ranked, relevant, k=1) == 0.0
    assert average_precision(ranked, relevant) == pytest.approx((1 / 2 + 2 / 4) / 3, abs=1e-15)
    assert average_precision(ranked, relevant, k=3) == pytest.approx(1 / 6, abs=1e-15)


def test_ndcg_has_linear_gain_and_log2_of_rank_plus_one() -> None:
    dcg = 1 / math.log2(2) + 3 / math.log2(4)
    ideal = 3 / math.log2(2) + 1 / math.log2(3)
    assert ndcg_at_k(["b", "x", "a"], {"a": 3, "b": 1}, 10) == pytest.approx(dcg / ideal, abs=1e-15)


def test_exponential_gain_is_two_to_the_grade_less_one() -> None:
    dcg = 1 / math.log2(2) + 7 / math.log2(4)
    ideal = 7 / math.log2(2) + 1 / math.log2(3)
    assert ndcg_at_k(["b", "x", "a"], {"a": 3, "b": 1, "x": 0}, 10, "exponential") == pytest.approx(dcg / ideal, abs=1e-15)
    assert ndcg_at_k(["b", "a"], {"a": 2, "b": 1}, 2, "exponential") < ndcg_at_k(["b", "a"], {"a": 2, "b": 1}, 2, "linear")


@given(IDS, RELEVANT, CUTOFF)
def test_of_grades_zero_and_one_both_gains_are_the_same(ranked: list[str], relevant: set[str], k: int) -> None:
    grades = dict.fromkeys("abcdefghij", 0) | dict.fromkeys(relevant, 1)
    assert ndcg_at_k(ranked, grades, k, "exponential") == ndcg_at_k(ranked, grades, k)


def test_an_unknown_gain_is_refused() -> None:
    with pytest.raises(InputError, match="gain 'log' is unknown: choose linear or exponential"):
        ndcg_at_k(["a"], {"a": 1}, 1, "log")


def test_gains_of_zero_or_less_are_irrelevant() -> None:
    assert ndcg_at_k(["a", "n", "z"], {"a": 2, "z": 0, "n": -1}, 3) == 1.0
    assert ndcg_at_k(["n", "a"], {"a": 2, "n": -5}, 2) == ndcg_at_k(["x", "a"], {"a": 2}, 2)


def test_gains_near_the_largest_float_do_not_overflow() -> None:
    for gain in ("linear", "exponential"):
        assert ndcg_at_k(["a", "b", "c"], {"a": 1.7e308, "b": 1.7e308, "c": 1.7e308}, 3, gain) == 1.0


def test_two_chunks_of_one_article_count_once() -> None:
    hits = [Hit(_chunk(article, start), 0.9, rank) for rank, (article, start) in enumerate([("a", 0), ("a", 50), ("b", 0)], 1)]
    assert article_ranking(hits) == ["a", "b"]
    assert article_ranking([]) == []
    assert dedupe(["a", "a", "b", "a"]) == ["a", "b"]
    assert recall_at_k(["a", "a", "b"], {"a", "b"}, 2) == 1.0  # the second place is b's
    assert reciprocal_rank(["a", "a", "b"], {"b"}) == 1 / 2


def _chunk(article: str, start: int) -> Chunk:
    return Chunk(f"{article}::{start}", article, "", None, None, None, "text", start, start + 4)


@given(IDS, RELEVANT, CUTOFF)
def test_binary_metrics_lie_in_the_unit_interval(ranked: list[str], relevant: set[str], k: int) -> None:
    values = [
        metric(ranked, relevant, k) for metric in (hit_at_k, recall_at_k, precision_at_k, reciprocal_rank, average_precision)
    ]
    values += [reciprocal_rank(ranked, relevant), average_precision(ranked, relevant)]
    assert all(0.0 <= value <= 1.0 for value in values)


@given(IDS, GAINS, CUTOFF, st.sampled_from(["linear", "exponential"]))
def test_ndcg_lies_in_the_unit_interval_and_the_ideal_order_reaches_one(
    ranked: list[str], gains: dict[str, float], k: int, gain: str
) -> None:
    assert 0.0 <= ndcg_at_k(ranked, gains, k, gain) <= 1.0
    assert ndcg_at_k(sorted(gains, key=lambda key: -gains[key]), gains, k, gain) == 1.0


@given(IDS, RELEVANT, CUTOFF)
def test_recall_and_hit_never_fall_as_k_grows(ranked: list[str], relevant: set[str], k: int) -> None:
    assert recall_at_k(ranked, relevant, k) <= recall_at_k(ranked, relevant, k + 1)
    assert hit_at_k(ranked, relevant, k) >= recall_at_k(ranked, relevant, k)


@given(IDS, RELEVANT, CUTOFF)
def test_repeated_ids_change_nothing(ranked: list[str], relevant: set[str], k: int) -> None:
    for metric in (hit_at_k, recall_at_k, precision_at_k, reciprocal_rank, average_precision):
        assert metric(ranked, relevant, k) == metric(dedupe(ranked), list(relevant) * 2, k)


@pytest.mark.parametrize("seed", range(5))
def test_parity_with_ir_measures(seed: int) -> None:
    rng = random.Random(seed)
    documents = [f"d{number}" for number in range(60)]
    qrels, run, rankings = [], [], {}
    for query in (f"q{number}" for number in range(25)):
        grades = {document: rng.choice([0, 1, 1, 2, 3]) for document in rng.sample(documents, 12)} | {"d0": 1}
        rankings[query] = (rng.sample(documents, rng.randint(1, 50)), grades)
        qrels += [ir_measures.Qrel(query, document, grade) for document, grade in grades.items()]
        run += [ir_measures.ScoredDoc(query, document, 100.0 - place) for place, document in enumerate(rankings[query][0])]
    exponential = nDCG(gains={grade: 2**grade - 1 for grade in range(4)})
    ours = {
        exponential @ 10: lambda ranked, gains, _: ndcg_at_k(ranked, gains, 10, "exponential"),
        nDCG @ 10: lambda ranked, gains, _: ndcg_at_k(ranked, gains, 10),
        AP: lambda ranked, _, relevant: average_precision(ranked, relevant),
        AP @ 10: lambda ranked, _, relevant: average_precision(ranked, relevant, 10),
        RR: lambda ranked, _, relevant: reciprocal_rank(ranked, relevant),
        RR @ 10: lambda ranked, _, relevant: reciprocal_rank(ranked, relevant, 10),
        R @ 5: lambda ranked, _, relevant: recall_at_k(ranked, relevant, 5),
        P @ 5: lambda ranked, _, relevant: precision_at_k(ranked, relevant, 5),
        Success @ 5: lambda ranked, _, relevant: hit_at_k(ranked, relevant, 5),
    }
    compared = 0
    for score in ir_measures.iter_calc(list(ours), qrels, run):
        ranked, gains = rankings[score.query_id]
        relevant = {document for document, grade in gains.items() if grade > 0}
        assert ours[score.measure](ranked, gains, relevant) == pytest.approx(score.value, abs=1e-12), score
        compared += 1
    assert compared == 25 * len(ours)


@pytest.mark.parametrize("k", [0, -1, 2.0, "3", True, None])
@pytest.mark.parametrize("metric", [hit_at_k, recall_at_k, precision_at_k])
def test_a_cutoff_below_one_or_not_whole_is_refused(metric, k) -> None:
    with pytest.raises(InputError, match="at least 1"):
        metric(["a"], {"a"}, k)


@pytest.mark.parametrize("k", [0, -3, 1.5])
def test_optional_cutoffs_are_checked_too(k) -> None:
    for metric in (reciprocal_rank, average_precision):
        with pytest.raises(ValueError, match="at least 1"):
            metric(["a"], {"a"}, k)
    with pytest.raises(ValueError, match="at least 1"):
        ndcg_at_k(["a"], {"a": 1}, k)


@pytest.mark.parametrize("metric", [hit_at_k, recall_at_k, precision_at_k, reciprocal_rank, average_precision])
def test_no_relevant_ids_and_wrong_containers_are_refused(metric) -> None:
    with pytest.raises(InputError, match="no relevant ids"):
        metric(["a"], set(), 1)
    for ranked in ("abc", {"a", "b"}, {"a": 1}, None, 7, [["a"]]):
        with pytest.raises(InputError, match="ranked ids"):
            metric(ranked, {"a"}, 1)
    for relevant in ("a", {"a": 1}, None, [["a"]]):
        with pytest.raises(InputError, match="relevant ids"):
            metric(["a"], relevant, 1)


@pytest.mark.parametrize("gains", [{}, {"a": 0}, {"a": -1}, {"a": math.nan}, {"a": math.inf}, {"a": "1"}, {"a": None}, ["a"]])
def test_gains_that_give_no_ideal_are_refused(gains) -> None:
    with pytest.raises(InputError, match="gain"):
        ndcg_at_k(["a"], gains, 1)
