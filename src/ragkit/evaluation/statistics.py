"""Paired statistics: two arms on the same items in, a difference with its interval, p-values and a verdict out.

Tango's and Newcombe's intervals, McNemar's exact and mid-p tests, power, BCa bootstrap over items or articles, Holm.
Nothing here compares two marginal intervals by eye, and nothing is random beyond the seed that is passed in.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from scipy.special import bdtr, ndtr, ndtri

from ragkit.errors import InputError

Interval = tuple[float, float]
Numbers = Sequence[float] | np.ndarray
Verdict = Literal["helps", "hurts", "not established"]

RESAMPLES = 10_000
# Below this many discordant pairs Tango's chi-square approximation is not relied on (design: Newcombe's method 10 instead).
FEW_DISCORDANT = 5
_BLOCK_CELLS = 2_000_000  # bounds the memory of one block of resamples (16 MB of indices)


@dataclass(frozen=True, slots=True)
class PairedBinary:
    """Two arms scored right (1) or wrong (0) on the same items; differences are fractions, treated minus control.

    Attributes
    ----------
    n : number of items.
    both, gains, harms, neither : items right in both arms, only treated, only control, in neither; they sum to `n`.
    delta : (gains - harms) / n.
    interval, interval_method : the primary interval, "tango", or "newcombe" where gains + harms < 5.
    p_exact, p_midp : McNemar's exact and mid-p tests (printed; they do not rule).
    odds_ratio : gains / harms; `math.inf` where only harms is 0 (JSON has no such number), None where both are 0.
    cluster_interval : BCa bootstrap over clusters, None without clusters.
    verdict : "helps", "hurts" or "not established".
    """

    n: int
    both: int
    gains: int
    harms: int
    neither: int
    delta: float
    interval: Interval
    interval_method: Literal["tango", "newcombe"]
    p_exact: float
    p_midp: float
    odds_ratio: float | None
    cluster_interval: Interval | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class PairedDifference:
    """Two systems' per-query metric on the same queries; `delta` = `mean_a` - `mean_b`.

    `better`, `worse`, `equal` count queries by the sign of a - b; `interval` is a paired BCa over queries, `cluster_interval`
    over clusters (None without them); `verdict` says whether a helps against b.
    """

    n: int
    mean_a: float
    mean_b: float
    better: int
    worse: int
    equal: int
    delta: float
    interval: Interval
    cluster_interval: Interval | None
    verdict: Verdict


# Intervals for proportions


def wilson_interval(successes: int, n: int, confidence: float = 0.95) -> Interval:
    r"""Wilson's score interval for one proportion.

    :math:`\frac{\hat p + z^2/2n \pm z\sqrt{\hat p(1-\hat p)/n + z^2/4n^2}}{1 + z^2/n}` (Wilson 1927).

    Raises
    ------
    InputError
        Counts that are no whole numbers, `n` < 1, `successes` outside 0..n, `confidence` outside (0, 1).
    """
    successes, n = _count(successes, "successes"), _count(n, "n")
    if n < 1 or successes > n:
        raise InputError(f"{successes} successes of {n}: give 0 <= successes <= n and n >= 1")
    z = _z(confidence)
    share = successes / n
    centre = share + z * z / (2 * n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # At 0 and n the limits are 0 and 1 exactly; rounding would leave them a hair off.
    low = 0.0 if successes == 0 else (centre - half) / scale
    high = 1.0 if successes == n else (centre + half) / scale
    return low, high


def tango_interval(both: int, gains: int, harms: int, neither: int, confidence: float = 0.95) -> Interval:
    r"""Tango's score interval for the difference of paired proportions.

    All :math:`\delta` with :math:`|g - h - n\delta| \le z\sqrt{n(2\tilde q + \delta(1 - \delta))}`, where
    :math:`\tilde q`, the control-only probability's maximum-likelihood estimate given :math:`\delta`, solves
    :math:`2n q^2 + \left((2n - g + h)\delta - g - h\right) q - h\delta(1 - \delta) = 0` (Tango 1998, Statistics in Medicine 17).

    Parameters
    ----------
    both, gains, harms, neither : counts of items right in both arms, only in the treated, only in the control, in neither.
    confidence : coverage aimed at, a fraction.

    Returns
    -------
    (low, high), fractions in [-1, 1]; swapping gains and harms mirrors it exactly.

    Raises
    ------
    InputError
        Counts that are negative or no whole numbers, all zero, `confidence` outside (0, 1).
    """
    both, gains, harms, neither = _table(both, gains, harms, neither)
    n = both + gains + harms + neither
    z = _z(confidence)
    return -_tango_upper(n, harms, gains, z), _tango_upper(n, gains, harms, z)


def _tango_upper(n: int, gains: int, harms: int, z: float) -> float:
    """The upper limit by bisection between the estimate (inside) and 1; each step is a sign, so no edge case divides by 0."""

    def inside(delta: float) -> bool:
        linear = (2 * n - gains + harms) * delta - gains - harms
        constant = -harms * delta * (1 - delta)
        root = math.sqrt(max(0.0, linear * linear - 8 * n * constant))
        nuisance = (root - linear) / (4 * n) if linear <= 0 else -2 * constant / (root + linear)
        variance = n * (2 * nuisance + delta * (1 - delta))
        return (gains - harms - n * delta) ** 2 <= z * z * max(0.0, variance)

    low, high = (gains - harms) / n, 1.0
    if inside(high):
        return high
    while True:
        middle = (low + high) / 2
        if middle in (low, high):
            return low
        low, high = (middle, high) if inside(middle) else (low, middle)


def newcombe_interval(both: int, gains: int, harms: int, neither: int, confidence: float = 0.95) -> Interval:
    r"""Newcombe's method 10 for the difference of paired proportions: two Wilson intervals and a continuity-corrected phi.

    Upper limit :math:`\hat\delta + \sqrt{(u_1 - p_1)^2 - 2\hat\varphi (u_1 - p_1)(p_2 - l_2) + (p_2 - l_2)^2}`, the lower one
    likewise with :math:`p_1 - l_1` and :math:`u_2 - p_2`; in :math:`\hat\varphi` the product difference
    both · neither − gains · harms is lowered by n/2 where positive, not below 0 (Newcombe 1998, Statistics in Medicine 17).

    Parameters, returned limits and errors as for `tango_interval`.
    """
    both, gains, harms, neither = _table(both, gains, harms, neither)
    _z(confidence)
    return -_newcombe_upper(both, harms, gains, neither, confidence), _newcombe_upper(both, gains, harms, neither, confidence)


def _newcombe_upper(both: int, gains: int, harms: int, neither: int, confidence: float) -> float:
    n = both + gains + harms + neither
    treated, control = both + gains, both + harms
    margins = math.sqrt(treated * (n - treated) * control * (n - control))
    product = both * neither - gains * harms
    corrected = max(product - n / 2, 0.0) if product > 0 else product
    phi = corrected / margins if margins else 0.0
    up = wilson_interval(treated, n, confidence)[1] - treated / n
    down = control / n - wilson_interval(control, n, confidence)[0]
    return min(1.0, (gains - harms) / n + math.sqrt(max(0.0, up * up - 2 * phi * (up * down) + down * down)))


# McNemar's tests


def mcnemar_exact(gains: int, harms: int) -> float:
    r"""Two-sided exact McNemar p: :math:`\min(1, 2 P(X \le \min(g, h)))`, X binomial(g + h, 1/2). No discordant pair: 1.

    Raises
    ------
    InputError
        Counts that are negative or no whole numbers.
    """
    gains, harms = _count(gains, "gains"), _count(harms, "harms")
    if gains == harms:
        return 1.0
    return min(1.0, 2.0 * float(bdtr(min(gains, harms), gains + harms, 0.5)))


def mcnemar_midp(gains: int, harms: int) -> float:
    r"""McNemar mid-p: the exact p less the probability of the observed table, :math:`p - P(X = \min(g, h))`.

    With gains = harms > 0 it is :math:`1 - P(X = g)/2`; with no discordant pair 1 (Fagerland, Lydersen and Laake 2013, BMC
    Medical Research Methodology 13:91).

    Raises
    ------
    InputError
        Counts that are negative or no whole numbers.
    """
    gains, harms = _count(gains, "gains"), _count(harms, "harms")
    total, fewer = gains + harms, min(gains, harms)
    if total == 0:
        return 1.0
    at_most = float(bdtr(fewer, total, 0.5))
    below = float(bdtr(fewer - 1, total, 0.5)) if fewer else 0.0
    if gains == harms:
        return 1.0 - (at_most - below) / 2
    return at_most + below


# Power


def minimum_detectable_effect(n: int, discordance: float, power: float = 0.8, alpha: float = 0.05) -> float | None:
    r"""Smallest true difference that the exact McNemar test would find with the wanted power, before any item is run.

    Unconditional power (the number of discordant pairs M is random):
    :math:`\sum_m P(M = m)\, P(p_\text{exact}(X, m - X) \le \alpha)`, M binomial(n, ψ), X binomial(m, (ψ + δ) / 2ψ).

    Parameters
    ----------
    n : items.
    discordance : ψ, the share of items on which the arms differ, in (0, 1].
    power, alpha : fractions in (0, 1).

    Returns
    -------
    δ, a fraction of n (0.13 is 13 points) in [0, ψ], or None where not even δ = ψ, every change a gain, reaches the power.

    Raises
    ------
    InputError
        A value out of range.
    """
    n = _count(n, "n")
    discordance, power, alpha = float(discordance), float(power), float(alpha)
    if n < 1:
        raise InputError(f"n is {n}: give at least 1 item")
    if not 0 < discordance <= 1:
        raise InputError(f"discordance is {discordance}: give a fraction above 0 and up to 1")
    for name, value in (("power", power), ("alpha", alpha)):
        if not 0 < value < 1:
            raise InputError(f"{name} is {value}: give a fraction between 0 and 1")

    # Numbers of discordant pairs further than 10 standard deviations off weigh less than 1e-20.
    spread = 10 * math.sqrt(n * discordance * (1 - discordance)) + 10
    pairs = np.arange(max(0, math.floor(n * discordance - spread)), min(n, math.ceil(n * discordance + spread)) + 1)
    weight = _at_most(pairs, n, discordance) - _at_most(pairs - 1, n, discordance)
    critical = _critical(pairs, alpha)

    def power_at(effect: float) -> float:
        share = (discordance + effect) / (2 * discordance)
        rejected = _at_most(critical, pairs, share) + _at_most(critical, pairs, 1 - share)
        return float(weight @ rejected)

    if power_at(discordance) < power:
        return None
    if power_at(0.0) >= power:
        return 0.0
    low, high = 0.0, discordance
    while high - low > 1e-9:
        middle = (low + high) / 2
        low, high = (low, middle) if power_at(middle) >= power else (middle, high)
    return high


def _at_most(count: Any, n: Any, share: float) -> np.ndarray:
    """P(X <= count) for X binomial(n, share), 0 where count is negative."""
    count = np.asarray(count, dtype=float)
    return np.where(count < 0, 0.0, bdtr(np.maximum(count, 0), n, min(max(share, 0.0), 1.0)))


def _critical(pairs: np.ndarray, alpha: float) -> np.ndarray:
    """For each number of discordant pairs the largest smaller count at which the exact test rejects, -1 where it never does."""
    low, high = np.full(pairs.shape, -1), (pairs - 1) // 2
    while np.any(low < high):
        middle = (low + high + 1) // 2
        rejects = 2 * _at_most(middle, pairs, 0.5) <= alpha
        low, high = np.where(rejects, middle, low), np.where(rejects, high, middle - 1)
    return low


def intraclass_correlation(values: Numbers, clusters: Sequence[Hashable]) -> float:
    r"""One-way ANOVA estimate of the intraclass correlation, clipped to [0, 1].

    :math:`\frac{MS_B - MS_W}{MS_B + (n_0 - 1) MS_W}`, :math:`n_0 = \frac{1}{k-1}\left(N - \sum n_j^2 / N\right)`
    (Donner and Koval 1980). 0 where every cluster has one item (its value then has no effect on the design effect) and where
    all values are equal.

    Raises
    ------
    InputError
        Unequal lengths, empty, values that are not finite, or fewer than two clusters (no variation between clusters to see).
    """
    numbers = _numbers(values, "values")
    groups = _groups(clusters, len(numbers))
    sizes = np.bincount(groups)
    k, n = len(sizes), len(numbers)
    if k < 2:
        raise InputError("one cluster only: intraclass correlation needs at least two")
    if k == n:
        return 0.0
    means = np.bincount(groups, weights=numbers) / sizes
    between = float(sizes @ (means - numbers.mean()) ** 2) / (k - 1)
    within = float(np.sum((numbers - means[groups]) ** 2)) / (n - k)
    typical = (n - float(sizes @ sizes) / n) / (k - 1)
    whole = between + (typical - 1) * within
    return min(1.0, max(0.0, (between - within) / whole)) if whole > 0 else 0.0


def design_effect(mean_cluster_size: float, icc: float) -> float:
    r"""Factor by which clustering shrinks a sample: :math:`1 + (\bar m - 1)\,\text{ICC}` (Kish 1965).

    Raises
    ------
    InputError
        `mean_cluster_size` below 1 or `icc` outside [0, 1].
    """
    if not (math.isfinite(mean_cluster_size) and mean_cluster_size >= 1):
        raise InputError(f"mean cluster size is {mean_cluster_size}: give items / clusters, at least 1")
    if not 0 <= icc <= 1:
        raise InputError(f"intraclass correlation is {icc}: give a fraction from 0 to 1")
    return 1 + (mean_cluster_size - 1) * icc


def effective_sample_size(n: int, mean_cluster_size: float, icc: float) -> int:
    """Independent items that `n` clustered ones are worth: n / `design_effect`, rounded down, at least 1.

    Raises
    ------
    InputError
        As for `design_effect`, or `n` below 1.
    """
    n = _count(n, "n")
    if n < 1:
        raise InputError(f"n is {n}: give at least 1 item")
    # The tiny addition keeps 100 / 1.0000000000000002 at 100.
    return max(1, math.floor(n / design_effect(mean_cluster_size, icc) + 1e-9))


def minimum_detectable_effect_clustered(
    n: int, discordance: float, mean_cluster_size: float, icc: float, power: float = 0.8, alpha: float = 0.05
) -> float | None:
    """`minimum_detectable_effect` with n replaced by the effective sample size of n items in clusters.

    Raises
    ------
    InputError
        As for `effective_sample_size` and `minimum_detectable_effect`.
    """
    return minimum_detectable_effect(effective_sample_size(n, mean_cluster_size, icc), discordance, power, alpha)


# Bootstrap


def bca_interval(
    differences: Numbers,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    resamples: int = RESAMPLES,
    bounds: Interval = (-1.0, 1.0),
) -> Interval:
    r"""Bias-corrected and accelerated bootstrap interval of a mean paired difference.

    Items, or whole clusters with all their items, are drawn with replacement; the statistic is the mean difference over the
    items drawn. Limits are the quantiles :math:`\Phi\!\left(z_0 + \frac{z_0 \pm z}{1 - a(z_0 \pm z)}\right)` of the resampled
    means, with :math:`z_0` from the share of them below the estimate (ties by half) and :math:`a` from the jackknife over the
    same units (Efron 1987, JASA 82).

    Parameters
    ----------
    differences : length n, treated minus control per item.
    clusters : length n, the label of each item's cluster (its article), or None: each item is its own.
    bounds : the range that a difference can have.

    Returns
    -------
    (low, high), holding the estimate. All differences equal: that one point. One unit only says nothing about variation
    between units: `bounds`. With a handful of units every bootstrap interval is too short.

    Raises
    ------
    InputError
        Empty, unequal lengths, differences not finite or outside `bounds`, `confidence` outside (0, 1), `resamples` < 1.
    """
    numbers = _numbers(differences, "differences")
    if numbers.min() < bounds[0] or numbers.max() > bounds[1]:
        raise InputError(f"a difference lies outside {bounds}: give the metric's own range as bounds")
    resamples = _count(resamples, "resamples")
    if resamples < 1:
        raise InputError("resamples is 0: give at least 1, better 10000")
    z = _z(confidence)

    groups = np.arange(len(numbers)) if clusters is None else _groups(clusters, len(numbers))
    sizes = np.bincount(groups).astype(float)
    sums = np.bincount(groups, weights=numbers)
    if len(sizes) < 2:
        return float(bounds[0]), float(bounds[1])
    if numbers.min() == numbers.max():
        return float(numbers[0]), float(numbers[0])

    estimate = float(sums.sum() / sizes.sum())
    means = np.concatenate(list(_resampled_means(sums, sizes, resamples, seed)))
    ties = np.abs(means - estimate) <= 1e-12 * float(np.abs(numbers).max())
    share = (np.count_nonzero((means < estimate) & ~ties) + np.count_nonzero(ties) / 2) / resamples
    # A share of 0 or 1 would send the correction to infinity; half a resample is the least that was seen.
    bias = float(ndtri(min(max(share, 0.5 / resamples), 1 - 0.5 / resamples)))
    left_out = (sums.sum() - sums) / (sizes.sum() - sizes)
    deviations = left_out.mean() - left_out
    largest = float(np.abs(deviations).max())
    scaled = deviations / largest if largest else deviations  # the acceleration has no unit, and tiny squares would vanish
    acceleration = float(np.sum(scaled**3)) / (6 * float(np.sum(scaled**2)) ** 1.5) if largest else 0.0

    low, high = np.quantile(means, [_bca_level(bias, acceleration, -z), _bca_level(bias, acceleration, z)])
    return min(float(low), estimate), max(float(high), estimate)


def _bca_level(bias: float, acceleration: float, z: float) -> float:
    moved = bias + z
    scale = 1 - acceleration * moved
    if scale <= 0:  # beyond the pole of the correction: the limit is the extreme of the resamples
        return 1.0 if moved > 0 else 0.0
    return float(ndtr(bias + moved / scale))


def _resampled_means(sums: np.ndarray, sizes: np.ndarray, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Means of `resamples` draws of units with replacement, in blocks of bounded memory."""
    random = np.random.default_rng(seed)
    units = len(sums)
    block = max(1, _BLOCK_CELLS // units)
    for start in range(0, resamples, block):
        drawn = random.integers(units, size=(min(block, resamples - start), units))
        yield sums[drawn].sum(axis=1) / sizes[drawn].sum(axis=1)


# The two comparisons that pages print


def paired_binary(treated: Numbers, control: Numbers, clusters: Sequence[Hashable] | None = None, seed: int = 0) -> PairedBinary:
    """Compare two arms that were scored right or wrong on the same items.

    Parameters
    ----------
    treated, control : n scores each, 0 or 1, in the same order of items.
    clusters : n labels (the gold article of each item), or None.
    seed : of the bootstrap over clusters.

    Returns
    -------
    PairedBinary. `verdict` is "helps" ("hurts") where the 95 % `interval` and, with clusters, `cluster_interval` lie wholly
    above (below) zero, else "not established". With one cluster `cluster_interval` is (-1, 1): nothing is known between articles.

    Raises
    ------
    InputError
        Empty, unequal lengths, or a score that is not 0 or 1.
    """
    first, second = _scores(treated, "treated"), _scores(control, "control")
    if len(first) != len(second):
        raise InputError(f"treated has {len(first)} scores and control {len(second)}: give both arms the same items")
    n = len(first)
    both = sum(a and b for a, b in zip(first, second, strict=True))
    gains, harms = sum(first) - both, sum(second) - both
    neither = n - both - gains - harms

    few = gains + harms < FEW_DISCORDANT
    interval = (newcombe_interval if few else tango_interval)(both, gains, harms, neither)
    cluster_interval = None
    if clusters is not None:
        differences = [a - b for a, b in zip(first, second, strict=True)]
        cluster_interval = bca_interval(differences, clusters, seed=seed)
    return PairedBinary(
        n=n,
        both=both,
        gains=gains,
        harms=harms,
        neither=neither,
        delta=(gains - harms) / n,
        interval=interval,
        interval_method="newcombe" if few else "tango",
        p_exact=mcnemar_exact(gains, harms),
        p_midp=mcnemar_midp(gains, harms),
        odds_ratio=gains / harms if harms else (math.inf if gains else None),
        cluster_interval=cluster_interval,
        verdict=_verdict(interval, cluster_interval),
    )


def paired_difference(
    metric_a: Numbers,
    metric_b: Numbers,
    seed: int = 0,
    clusters: Sequence[Hashable] | None = None,
    confidence: float = 0.95,
) -> PairedDifference:
    """Compare two systems by a per-query metric in [0, 1] on the same queries: paired BCa of the mean of a - b.

    Raises
    ------
    InputError
        Empty, unequal lengths, or a value that is not in [0, 1].
    """
    a, b = _numbers(metric_a, "metric_a"), _numbers(metric_b, "metric_b")
    if len(a) != len(b):
        raise InputError(f"metric_a has {len(a)} values and metric_b {len(b)}: give both systems the same queries")
    for name, values in (("metric_a", a), ("metric_b", b)):
        if values.min() < 0 or values.max() > 1:
            raise InputError(f"{name} has a value outside [0, 1]: give one retrieval metric per query")
    differences = a - b
    interval = bca_interval(differences, confidence=confidence, seed=seed)
    cluster_interval = None if clusters is None else bca_interval(differences, clusters, confidence, seed)
    return PairedDifference(
        n=len(a),
        mean_a=float(a.mean()),
        mean_b=float(b.mean()),
        better=int(np.count_nonzero(differences > 0)),
        worse=int(np.count_nonzero(differences < 0)),
        equal=int(np.count_nonzero(differences == 0)),
        delta=float(differences.sum() / len(a)),
        interval=interval,
        cluster_interval=cluster_interval,
        verdict=_verdict(interval, cluster_interval),
    )


def holm(p_values: Numbers) -> list[float]:
    r"""Holm's step-down adjusted p-values, in the order given: :math:`\max_{j \le i} \min(1, (m - j + 1) p_{(j)})` (Holm 1979).

    The family is what is passed in; its size is to be printed with the result.

    Raises
    ------
    InputError
        Empty, or a value outside [0, 1].
    """
    values = _numbers(p_values, "p-values")
    if values.min() < 0 or values.max() > 1:
        raise InputError("a p-value lies outside [0, 1]")
    order = np.argsort(values, kind="stable")
    stepped = np.minimum(1.0, np.maximum.accumulate(values[order] * np.arange(len(values), 0, -1)))
    adjusted = np.empty_like(values)
    adjusted[order] = stepped
    return [float(value) for value in adjusted]


def _verdict(*intervals: Interval | None) -> Verdict:
    known = [interval for interval in intervals if interval is not None]
    if all(low > 0 for low, _ in known):
        return "helps"
    if all(high < 0 for _, high in known):
        return "hurts"
    return "not established"


# What is refused


def _z(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise InputError(f"confidence is {confidence}: give a fraction between 0 and 1, such as 0.95")
    return float(ndtri((1 + confidence) / 2))


def _count(value: Any, name: str) -> int:
    try:
        count = operator.index(value)
    except TypeError as error:
        raise InputError(f"{name} is {value!r}: give a whole number") from error
    if count < 0:
        raise InputError(f"{name} is {count}: give a count of 0 or more")
    return count


def _table(both: int, gains: int, harms: int, neither: int) -> tuple[int, int, int, int]:
    table = _count(both, "both"), _count(gains, "gains"), _count(harms, "harms"), _count(neither, "neither")
    if sum(table) == 0:
        raise InputError("both, gains, harms and neither are all 0: give at least one item")
    return table


def _listed(values: Any, name: str) -> list[Any]:
    if isinstance(values, (str, bytes, set, frozenset, Mapping)):
        raise InputError(f"{name} come as a {type(values).__name__}: give a list in the order of the items")
    try:
        listed = list(values)
    except TypeError as error:
        raise InputError(f"{name} come as a {type(values).__name__}: give a list in the order of the items") from error
    if not listed:
        raise InputError(f"{name} is empty: give at least one item")
    return listed


def _scores(values: Numbers, name: str) -> list[int]:
    scores = []
    for place, value in enumerate(_listed(values, name)):
        if not isinstance(value, (bool, int, float, np.bool_, np.number)) or value not in (0, 1):
            raise InputError(f"{name}[{place}] is {value!r}: give 0 (wrong) or 1 (right)")
        scores.append(int(value))
    return scores


def _numbers(values: Numbers, name: str) -> np.ndarray:
    listed = _listed(values, name)
    for place, value in enumerate(listed):
        if not isinstance(value, (bool, int, float, np.bool_, np.number)) or not np.isfinite(value):
            raise InputError(f"{name}[{place}] is {value!r}: give finite numbers")
    return np.array(listed, dtype=float)


def _groups(clusters: Sequence[Hashable], n: int) -> np.ndarray:
    """Cluster labels as integers 0..k-1, numbered by the label's text so that the order of rows does not matter."""
    labels = _listed(clusters, "clusters")
    if len(labels) != n:
        raise InputError(f"clusters has {len(labels)} labels for {n} items: give one per item")
    for place, label in enumerate(labels):
        if label is None or label != label or not isinstance(label, Hashable):
            raise InputError(f"clusters[{place}] is {label!r}: give every item the id of its article")
    number = {label: index for index, label in enumerate(sorted(set(labels), key=str))}
    return np.array([number[label] for label in labels])
