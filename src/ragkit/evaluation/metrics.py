"""Retrieval metrics: one ranking and its relevant ids in, one number in [0, 1] out.

Ids are whatever was ranked (articles or chunks); a repeated id counts once, at its first place. Nothing here searches,
averages over queries or knows what an id stands for.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Hashable, Mapping, Sequence
from typing import Any, Literal

from ragkit.errors import InputError
from ragkit.records import Hit


def dedupe(ranked_ids: Sequence[Hashable]) -> list[Hashable]:
    """Each id once, in the order of first places.

    Two chunks of one article would otherwise let recall and nDCG exceed 1.

    Raises
    ------
    InputError
        `ranked_ids` has no order (a set, a mapping), is one string, or holds an unhashable id.
    """
    if isinstance(ranked_ids, (str, bytes, set, frozenset, Mapping)):
        raise InputError(f"ranked ids come as a {type(ranked_ids).__name__}: give a list of ids, best first")
    return list(dict.fromkeys(_hashable(ranked_ids, "ranked ids")))


def article_ranking(hits: Sequence[Hit]) -> list[str]:
    """Article ids of ranked chunks, deduplicated: an article stands where its best chunk stands."""
    return list(dict.fromkeys(hit.chunk.article_id for hit in hits))


def hit_at_k(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int) -> float:
    """1.0 where any relevant id is among the first `k`, else 0.0 (success@k).

    Raises
    ------
    InputError
        No relevant ids, `k` below 1, or ids that cannot be ranked (see `dedupe`).
    """
    return float(_found(ranked_ids, relevant_ids, k) > 0)


def recall_at_k(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int) -> float:
    r"""Share of the relevant ids that are among the first `k`.

    Equation (1.4) of the book is its mean over queries:
    :math:`\text{recall@}k = |R \cap \text{top}_k| \, / \, |R|`.

    Raises
    ------
    InputError
        As for `hit_at_k`.
    """
    return _found(ranked_ids, relevant_ids, k) / len(_relevant(relevant_ids))


def precision_at_k(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int) -> float:
    r"""Share of `k` places that hold a relevant id: :math:`|R \cap \text{top}_k| \, / \, k`, empty places counted as misses.

    Raises
    ------
    InputError
        As for `hit_at_k`.
    """
    return _found(ranked_ids, relevant_ids, k) / _cutoff(k)


def reciprocal_rank(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int | None = None) -> float:
    r"""One over the rank of the first relevant id, 0 where none is among the first `k` (`None`: anywhere).

    Equation (1.5) of the book is its mean over queries: :math:`\text{RR} = 1 / \min\{r : d_r \in R\}`, ranks from 1.

    Raises
    ------
    InputError
        As for `hit_at_k`.
    """
    relevant = _relevant(relevant_ids)
    for rank, ranked in enumerate(_top(ranked_ids, k), start=1):
        if ranked in relevant:
            return 1.0 / rank
    return 0.0


def average_precision(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int | None = None) -> float:
    r"""Mean over *all* relevant ids of the precision at each one's rank, 0 for those not among the first `k`.

    :math:`\text{AP} = \frac{1}{|R|} \sum_{r \le k,\, d_r \in R} |R \cap \text{top}_r| \, / \, r`.

    Raises
    ------
    InputError
        As for `hit_at_k`.
    """
    relevant = _relevant(relevant_ids)
    ranks = (rank for rank, ranked in enumerate(_top(ranked_ids, k), start=1) if ranked in relevant)
    return min(1.0, math.fsum(found / rank for found, rank in enumerate(ranks, start=1)) / len(relevant))


def ndcg_at_k(
    ranked_ids: Sequence[Hashable], gains: Mapping[Hashable, float], k: int, gain: Literal["linear", "exponential"] = "linear"
) -> float:
    r"""Normalised discounted cumulative gain of graded relevance.

    :math:`\text{nDCG@}k = \text{DCG@}k / \text{IDCG@}k` with
    :math:`\text{DCG@}k = \sum_{r \le k} g(d_r) / \log_2(r + 1)`, ranks from 1; IDCG is the DCG of the best order of all known
    grades. With linear gain :math:`g(d)` is the grade itself (Järvelin and Kekäläinen 2002; trec_eval and BEIR), with
    exponential gain it is :math:`2^{\text{grade}} - 1` (Burges et al. 2005). With grades 0 and 1 alone the two are equal.
    Grades of zero or less count as irrelevant in both.

    Parameters
    ----------
    gains : id -> grade, larger is better.

    Raises
    ------
    InputError
        `gains` is no mapping of id to finite number, none is positive, `k` is below 1, or `gain` is neither of the two.
    """
    if gain not in ("linear", "exponential"):
        raise InputError(f"gain {gain!r} is unknown: choose linear or exponential")
    if not isinstance(gains, Mapping):
        raise InputError(f"gains come as a {type(gains).__name__}: give a mapping of id to gain")
    for key, grade in gains.items():
        if not _is_finite(grade):
            raise InputError(f"gain {grade!r} of id {key!r} is no finite number")
    positive = {key: float(grade) for key, grade in gains.items() if grade > 0}
    if not positive:
        raise InputError("no id has a positive gain: leave a query without relevant ids out of the mean, and count it")
    largest = max(positive.values())
    share = _exponential_share if gain == "exponential" else operator.truediv
    shares = {key: share(grade, largest) for key, grade in positive.items()}
    ranked = [shares.get(ranked, 0.0) for ranked in _top(ranked_ids, _cutoff(k))]
    return min(1.0, _dcg(ranked) / _dcg(sorted(shares.values(), reverse=True)[: _cutoff(k)]))


def _exponential_share(grade: float, largest: float) -> float:
    """(2^grade - 1) / (2^largest - 1) without computing either power, which would overflow from a grade of 1024 on."""
    return 2.0 ** (grade - largest) * math.expm1(-grade * math.log(2)) / math.expm1(-largest * math.log(2))


def _dcg(gains: Sequence[float]) -> float:
    return math.fsum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains, start=1))


def _found(ranked_ids: Sequence[Hashable], relevant_ids: Collection[Hashable], k: int) -> int:
    relevant = _relevant(relevant_ids)
    return sum(ranked in relevant for ranked in _top(ranked_ids, _cutoff(k)))


def _top(ranked_ids: Sequence[Hashable], k: int | None) -> list[Hashable]:
    unique = dedupe(ranked_ids)
    return unique if k is None else unique[: _cutoff(k)]


def _cutoff(k: int) -> int:
    try:
        cutoff = 0 if isinstance(k, bool) else operator.index(k)
    except TypeError:
        cutoff = 0
    if cutoff < 1:
        raise InputError(f"k is {k!r}: give a whole number of at least 1")
    return cutoff


def _relevant(relevant_ids: Collection[Hashable]) -> set[Hashable]:
    if isinstance(relevant_ids, (str, bytes, Mapping)):
        raise InputError(f"relevant ids come as a {type(relevant_ids).__name__}: give a set or list of ids")
    relevant = set(_hashable(relevant_ids, "relevant ids"))
    if not relevant:
        raise InputError("no relevant ids: leave such a query out of the mean, and count it")
    return relevant


def _hashable(ids: Any, what: str) -> list[Hashable]:
    try:
        listed = list(ids)
    except TypeError as error:
        raise InputError(f"{what} come as a {type(ids).__name__}: give a list of ids") from error
    for one in listed:
        try:
            hash(one)
        except TypeError as error:
            raise InputError(f"{what} hold {one!r}, which cannot be compared as an id: give strings or numbers") from error
    return listed


def _is_finite(gain: Any) -> bool:
    try:
        return not isinstance(gain, (str, bytes)) and math.isfinite(gain)
    except (TypeError, OverflowError):
        return False
