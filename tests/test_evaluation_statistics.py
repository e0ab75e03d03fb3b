"""Paired statistics: published check values, brute-force and library references, properties of intervals and verdicts."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.contingency_tables import mcnemar
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.proportion import proportion_confint

from ragkit.errors import InputError
from ragkit.evaluation import (
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

settings.register_profile("ragkit", deadline=None)  # a busy machine is no failure
settings.load_profile("ragkit")

COUNT = st.integers(0, 60)
TABLE = st.tuples(COUNT, COUNT, COUNT, COUNT).filter(lambda table: sum(table) > 0)
INTERVALS = (tango_interval, newcombe_interval)


def arms(both: int, gains: int, harms: int, neither: int) -> tuple[list[int], list[int]]:
    return [1] * (both + gains) + [0] * (harms + neither), [1] * both + [0] * gains + [1] * harms + [0] * neither


# Intervals


@pytest.mark.parametrize(
    ("table", "tango", "newcombe"),
    [
        ((36, 12, 2, 0), (0.0611, 0.3447), (0.0569, 0.3404)),
        ((67, 17, 5, 11), (0.0305, 0.2152), (0.0282, 0.2116)),
        ((171, 14, 4, 35), (0.0084, 0.0869), (0.0066, 0.0841)),
    ],
)
def test_published_check_values(table, tango, newcombe) -> None:
    assert tango_interval(*table) == pytest.approx(tango, abs=5e-5)
    assert newcombe_interval(*table) == pytest.approx(newcombe, abs=5e-5)


@pytest.mark.parametrize("table", [(36, 12, 2, 0), (3, 1, 4, 7), (0, 2, 0, 9), (5, 0, 0, 5)])
def test_tango_limits_solve_the_score_equation(table) -> None:
    both, gains, harms, neither = table
    n, z = sum(table), stats.norm.ppf(0.975)
    for limit in tango_interval(*table):
        # The constrained maximum of the likelihood, found by search instead of by Tango's quadratic.
        harm = np.linspace(max(0.0, -limit), (1 - limit) / 2, 400_001)[1:-1]
        likelihood = gains * np.log(harm + limit) + harms * np.log(harm) + (both + neither) * np.log1p(-2 * harm - limit)
        best = harm[np.argmax(likelihood)]
        score = (gains - harms - n * limit) / math.sqrt(n * (2 * best + limit * (1 - limit)))
        assert abs(score) == pytest.approx(z, abs=2e-3)


@pytest.mark.parametrize("n", [1, 5, 400])
def test_tango_closed_forms_at_the_edges(n: int) -> None:
    z2 = stats.norm.ppf(0.975) ** 2
    assert tango_interval(n, 0, 0, 0) == pytest.approx((-z2 / (n + z2), z2 / (n + z2)), abs=1e-12)
    assert tango_interval(0, n, 0, 0) == pytest.approx(((n - z2) / (n + z2), 1.0), abs=1e-12)


@pytest.mark.parametrize("interval", INTERVALS)
@given(table=TABLE, confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]))
def test_intervals_hold_the_estimate_and_mirror_when_arms_swap(interval, table, confidence) -> None:
    both, gains, harms, neither = table
    low, high = interval(both, gains, harms, neither, confidence)
    assert -1 <= low <= (gains - harms) / sum(table) <= high <= 1
    assert interval(both, harms, gains, neither, confidence) == (-high, -low)


@pytest.mark.parametrize("interval", INTERVALS)
@given(table=TABLE)
def test_more_confidence_widens(interval, table) -> None:
    narrow, wide = interval(*table, 0.8), interval(*table, 0.99)
    assert wide[0] <= narrow[0]
    assert narrow[1] <= wide[1]


def test_tango_covers_where_wald_does_not() -> None:
    """Exact coverage over every table of n = 30 with gains .10, harms .02 (no simulation)."""
    n, gain, harm = 30, 0.10, 0.02
    covered = dict.fromkeys(("tango", "wald"), 0.0)
    for gains, harms in itertools.product(range(n + 1), repeat=2):
        if gains + harms > n:
            continue
        chance = stats.multinomial.pmf([gains, harms, n - gains - harms], n, [gain, harm, 1 - gain - harm])
        delta = (gains - harms) / n
        half = 1.96 * math.sqrt(max(0.0, (gains + harms) / n - delta**2) / n)
        low, high = tango_interval(0, gains, harms, n - gains - harms) if chance > 1e-9 else (-1, 1)
        covered["tango"] += chance * (low <= gain - harm <= high)
        covered["wald"] += chance * (delta - half <= gain - harm <= delta + half)
    assert 0.93 <= covered["tango"] <= 0.98
    assert covered["wald"] < covered["tango"]


@given(n=st.integers(1, 500), data=st.data(), confidence=st.sampled_from([0.8, 0.95, 0.99]))
def test_wilson_equals_two_libraries(n: int, data, confidence: float) -> None:
    successes = data.draw(st.integers(0, n))
    ours = wilson_interval(successes, n, confidence)
    assert ours == pytest.approx(proportion_confint(successes, n, 1 - confidence, "wilson"), abs=1e-12)
    reference = stats.binomtest(successes, n).proportion_ci(confidence, "wilson")
    assert ours == pytest.approx((reference.low, reference.high), abs=1e-12)
    assert 0 <= ours[0] <= successes / n <= ours[1] <= 1


def test_wilson_of_27_in_30() -> None:
    assert wilson_interval(27, 30) == pytest.approx((0.744, 0.965), abs=5e-4)


# McNemar


def test_mcnemar_check_values() -> None:
    assert mcnemar_exact(14, 4) == pytest.approx(0.0309, abs=5e-5)
    assert mcnemar_midp(14, 4) == pytest.approx(0.0192, abs=5e-5)


@given(gains=st.integers(0, 200), harms=st.integers(0, 200))
def test_mcnemar_exact_equals_two_libraries(gains: int, harms: int) -> None:
    ours = mcnemar_exact(gains, harms)
    assert ours == pytest.approx(mcnemar([[3, gains], [harms, 4]], exact=True).pvalue, rel=1e-9)
    if gains + harms:
        assert ours == pytest.approx(stats.binomtest(gains, gains + harms, 0.5).pvalue, rel=1e-9)
    assert ours == mcnemar_exact(harms, gains)


@given(gains=st.integers(0, 60), harms=st.integers(0, 60))
def test_midp_weighs_the_observed_table_by_half(gains: int, harms: int) -> None:
    """Two-sided mid-p: all tables further from the middle, and half of those as far."""
    total = gains + harms
    if total == 0:
        assert mcnemar_midp(0, 0) == mcnemar_exact(0, 0) == 1.0
        return
    chances = stats.binom.pmf(np.arange(total + 1), total, 0.5)
    off = np.abs(2 * np.arange(total + 1) - total)
    expected = chances[off > abs(gains - harms)].sum() + chances[off == abs(gains - harms)].sum() / 2
    assert mcnemar_midp(gains, harms) == pytest.approx(expected, abs=1e-12)
    assert mcnemar_midp(gains, harms) < mcnemar_exact(gains, harms)


# Power


@pytest.mark.parametrize(
    ("n", "discordance", "points"), [(50, 0.2, 18), (50, 0.4, 26), (100, 0.2, 13), (100, 0.4, 19), (200, 0.2, 10), (200, 0.4, 13)]
)
def test_minimum_detectable_effect_check_values(n: int, discordance: float, points: int) -> None:
    effect = minimum_detectable_effect(n, discordance)
    assert effect is not None
    assert math.ceil(100 * effect) == points


def power_by_enumeration(n: int, discordance: float, effect: float, alpha: float) -> float:
    gain, harm = (discordance + effect) / 2, (discordance - effect) / 2
    return sum(
        stats.multinomial.pmf([gains, harms, n - gains - harms], n, [gain, harm, 1 - gain - harm])
        for gains, harms in itertools.product(range(n + 1), repeat=2)
        if gains + harms <= n and mcnemar_exact(gains, harms) <= alpha
    )


@pytest.mark.parametrize(
    ("n", "discordance", "power", "alpha"), [(25, 0.5, 0.8, 0.05), (30, 0.9, 0.7, 0.01), (40, 0.3, 0.5, 0.1)]
)
def test_power_at_the_effect_is_the_power_asked_for(n, discordance, power, alpha) -> None:
    effect = minimum_detectable_effect(n, discordance, power, alpha)
    assert effect is not None
    assert power_by_enumeration(n, discordance, effect, alpha) == pytest.approx(power, abs=1e-6)
    assert power_by_enumeration(n, discordance, 0.95 * effect, alpha) < power


def test_no_effect_is_detectable_with_too_few_discordant_pairs() -> None:
    # Six gains and no harm are the least that the exact test calls significant at .05.
    assert minimum_detectable_effect(5, 1.0) is None
    assert minimum_detectable_effect(6, 1.0) is not None
    assert minimum_detectable_effect(20, 0.2) is None


def test_large_samples_detect_small_effects() -> None:
    effects = [minimum_detectable_effect(n, 0.2) for n in (100, 1_000, 10_000, 100_000)]
    assert effects == sorted(effects, reverse=True)
    normal = (stats.norm.ppf(0.975) + stats.norm.ppf(0.8)) * math.sqrt(0.2 / 100_000)
    assert effects[-1] == pytest.approx(normal, rel=0.02)


def test_design_effect_and_effective_sample_size() -> None:
    assert design_effect(1, 0.7) == 1.0
    assert design_effect(5, 0.25) == 2.0
    assert effective_sample_size(200, 5, 0.25) == 100
    assert effective_sample_size(100, 3, 1.0) == 33
    assert minimum_detectable_effect_clustered(200, 0.2, 5, 0.25) == minimum_detectable_effect(100, 0.2)
    assert minimum_detectable_effect_clustered(200, 0.2, 5, 0.0) == minimum_detectable_effect(200, 0.2)


def test_intraclass_correlation_by_hand() -> None:
    # Clusters (1, 3) and (5, 7): MSB 16, MSW 2, n0 2 -> 14 / 18.
    assert intraclass_correlation([1, 3, 5, 7], ["a", "a", "b", "b"]) == pytest.approx(14 / 18, abs=1e-15)
    # Sizes 1, 3: n0 = (4 - 10 / 4) / 1 = 1.5; means 4 and 1, grand 1.75: MSB = 6.75, MSW = 2 / 2.
    assert intraclass_correlation([4, 0, 1, 2], [1, 2, 2, 2]) == pytest.approx(5.75 / (6.75 + 0.5), abs=1e-15)
    assert intraclass_correlation([0, 1, 0, 1], ["a", "a", "b", "b"]) == 0.0  # the estimate is negative: clipped
    assert intraclass_correlation([1, 1, 0, 0], ["a", "a", "b", "b"]) == 1.0
    assert intraclass_correlation([1, 1, 1, 1], ["a", "a", "b", "b"]) == 0.0
    assert intraclass_correlation([1, 0, 1], ["a", "b", "c"]) == 0.0


def test_intraclass_correlation_finds_the_simulated_one() -> None:
    rng = np.random.default_rng(1)
    clusters = np.repeat(np.arange(400), 5)
    values = rng.normal(size=400)[clusters] * math.sqrt(0.3) + rng.normal(size=2000) * math.sqrt(0.7)
    assert intraclass_correlation(values, clusters) == pytest.approx(0.3, abs=0.06)


# Bootstrap


def test_bca_equals_scipy_up_to_resampling_noise() -> None:
    differences = np.clip(np.random.default_rng(3).gamma(0.8, 0.2, size=40) - 0.1, -1, 1)
    ours = bca_interval(differences, seed=0, resamples=40_000)
    theirs = stats.bootstrap((differences,), np.mean, n_resamples=40_000, method="BCa", rng=np.random.default_rng(0))
    assert ours == pytest.approx((theirs.confidence_interval.low, theirs.confidence_interval.high), abs=2e-3)


def test_cluster_bootstrap_draws_whole_clusters() -> None:
    """Ten copies of each item in a cluster add nothing to what the items alone say."""
    rng = np.random.default_rng(0)
    differences = rng.choice([-1, 0, 1], size=30, p=[0.1, 0.5, 0.4])
    copies, labels = np.repeat(differences, 10), np.repeat(np.arange(30), 10)
    assert bca_interval(copies, labels) == pytest.approx(bca_interval(differences, np.arange(30)), abs=1e-12)
    naive, clustered = bca_interval(copies), bca_interval(copies, labels)
    assert clustered[1] - clustered[0] > 2 * (naive[1] - naive[0])


def test_cluster_bootstrap_does_not_depend_on_the_order_of_rows() -> None:
    rng = np.random.default_rng(5)
    differences, labels = rng.choice([-1, 0, 1], size=60), rng.integers(12, size=60)
    order = rng.permutation(60)
    assert bca_interval(differences, labels) == bca_interval(differences[order], labels[order])


@example(differences=[0.0, 3.862421444551039e-112], clusters=None)
@settings(max_examples=60)
@given(
    differences=st.lists(st.floats(-1, 1), min_size=1, max_size=20),
    clusters=st.none() | st.lists(st.integers(0, 5), min_size=20, max_size=20),
)
def test_bca_is_finite_and_holds_the_estimate(differences, clusters) -> None:
    labels = clusters if clusters is None else clusters[: len(differences)]
    low, high = bca_interval(differences, labels, resamples=200)
    assert -1 <= low <= high <= 1
    estimate = math.fsum(differences) / len(differences)
    assert low - 1e-12 <= estimate <= high + 1e-12


def test_degenerate_differences_give_a_point_and_one_unit_gives_no_knowledge() -> None:
    assert bca_interval([0.25] * 8) == (0.25, 0.25)
    assert bca_interval([0, 0, 0], ["a", "b", "b"]) == (0.0, 0.0)
    assert bca_interval([1.0]) == (-1.0, 1.0)
    assert bca_interval([1, 1, 0], ["a", "a", "a"]) == (-1.0, 1.0)
    assert bca_interval([3.0], bounds=(-9, 9)) == (-9.0, 9.0)


def test_one_outlier_moves_the_limits_as_bca_says() -> None:
    """All nought but one: the bootstrap mean is skewed, and the interval leans to the long side."""
    low, high = bca_interval([0.0] * 29 + [1.0])
    assert low == 0.0
    assert high - 1 / 30 > 1 / 30


# paired_binary


def test_paired_binary_fields() -> None:
    result = paired_binary(*arms(171, 14, 4, 35))
    assert (result.n, result.both, result.gains, result.harms, result.neither) == (224, 171, 14, 4, 35)
    assert result.delta == 10 / 224
    assert result.interval == tango_interval(171, 14, 4, 35)
    assert result.interval_method == "tango"
    assert (result.p_exact, result.p_midp) == (mcnemar_exact(14, 4), mcnemar_midp(14, 4))
    assert result.odds_ratio == 3.5
    assert result.cluster_interval is None
    assert result.verdict == "helps"


@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1)), min_size=1, max_size=60))
def test_the_method_follows_the_number_of_discordant_pairs(pairs) -> None:
    result = paired_binary([a for a, _ in pairs], [b for _, b in pairs])
    table = (result.both, result.gains, result.harms, result.neither)
    assert sum(table) == result.n == len(pairs)
    few = result.gains + result.harms < 5
    assert result.interval_method == ("newcombe" if few else "tango")
    assert result.interval == (newcombe_interval if few else tango_interval)(*table)


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 1), st.integers(0, 1), st.integers(0, 9)), min_size=1, max_size=60))
def test_swapping_arms_turns_the_verdict_and_the_rule_is_the_stated_one(rows) -> None:
    treated, control, clusters = (list(column) for column in zip(*rows, strict=True))
    one, other = paired_binary(treated, control, clusters), paired_binary(control, treated, clusters)
    assert other.delta == -one.delta
    assert other.interval == (-one.interval[1], -one.interval[0])
    assert one.cluster_interval is not None
    assert other.cluster_interval == pytest.approx((-one.cluster_interval[1], -one.cluster_interval[0]), abs=1e-9)
    assert (other.p_exact, other.p_midp) == (one.p_exact, one.p_midp)
    intervals = (one.interval, one.cluster_interval)
    if one.verdict == "helps":
        assert all(low > 0 for low, _ in intervals)
        assert other.verdict == "hurts"
    elif one.verdict == "hurts":
        assert all(high < 0 for _, high in intervals)
    else:
        assert any(low <= 0 for low, _ in intervals)
        assert any(high >= 0 for _, high in intervals)


def test_verdicts_without_clusters() -> None:
    assert paired_binary(*arms(36, 12, 2, 0)).verdict == "helps"
    assert paired_binary(*arms(36, 2, 12, 0)).verdict == "hurts"
    assert paired_binary(*arms(36, 5, 4, 0)).verdict == "not established"


def test_clusters_can_take_a_verdict_away() -> None:
    """Twelve gains of one article are one observation: items say that it helps, articles do not."""
    treated, control = arms(30, 12, 2, 0)
    clusters = [f"a{number % 10}" for number in range(30)] + ["b"] * 12 + ["c", "d"]
    result = paired_binary(treated, control, clusters)
    assert result.interval[0] > 0
    assert result.cluster_interval is not None
    assert result.cluster_interval[0] <= 0
    assert result.verdict == "not established"


def test_one_cluster_establishes_nothing() -> None:
    result = paired_binary([1] * 20, [0] * 20, ["same"] * 20)
    assert result.cluster_interval == (-1.0, 1.0)
    assert result.verdict == "not established"


def test_edges_of_the_table() -> None:
    one = paired_binary([1], [0])
    assert (one.delta, one.p_exact, one.odds_ratio, one.verdict) == (1.0, 1.0, math.inf, "not established")
    same = paired_binary([1, 1, 1], [1, 1, 1], ["a", "b", "c"])
    assert (same.delta, same.p_exact, same.p_midp, same.odds_ratio) == (0.0, 1.0, 1.0, None)
    assert same.cluster_interval == (0.0, 0.0)
    assert same.verdict == "not established"
    assert paired_binary([1] * 30, [0] * 30, range(30)).verdict == "helps"
    assert paired_binary([0, 0], [1, 1]).odds_ratio == 0.0


def test_a_seed_gives_the_same_interval_twice() -> None:
    rng = np.random.default_rng(2)
    treated, control, clusters = rng.integers(2, size=80), rng.integers(2, size=80), rng.integers(20, size=80)
    assert paired_binary(treated, control, clusters, seed=4) == paired_binary(treated, control, clusters, seed=4)


def test_bools_floats_and_arrays_are_scores() -> None:
    assert paired_binary([True, False], np.array([0.0, 1.0])) == paired_binary([1, 0], (0, 1))


# paired_difference, holm


def test_paired_difference_counts_and_means() -> None:
    result = paired_difference([1.0, 0.5, 0.0, 0.25] * 10, [0.5, 0.5, 0.25, 0.0] * 10)
    assert (result.n, result.better, result.worse, result.equal) == (40, 20, 10, 10)
    assert result.mean_a - result.mean_b == pytest.approx(result.delta, abs=1e-15)
    assert result.interval == bca_interval([0.5, 0.0, -0.25, 0.25] * 10)
    assert result.interval[0] <= result.delta <= result.interval[1]
    assert result.verdict == "helps"
    assert paired_difference([0.5], [0.1]).verdict == "not established"
    clustered = paired_difference([1.0] * 4 + [0.0] * 4, [0.0] * 4 + [0.1] * 4, clusters=["a"] * 4 + ["b"] * 4)
    assert clustered.cluster_interval is not None
    assert clustered.cluster_interval[0] < 0


@settings(max_examples=20)  # multipletests collects garbage at every call
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_equals_statsmodels(p_values) -> None:
    assert holm(p_values) == pytest.approx(list(multipletests(p_values, method="holm")[1]), abs=1e-12)


def test_holm_by_hand() -> None:
    assert holm([0.04, 0.01, 0.03]) == pytest.approx([0.06, 0.03, 0.06], abs=1e-15)


# What is refused


@pytest.mark.parametrize(
    ("treated", "control"),
    [
        ([], []),
        ([1], []),
        ([1, 0], [1]),
        ([2], [0]),
        ([0.5], [0]),
        ([-1], [0]),
        (["1"], ["0"]),
        ([None], [0]),
        ([math.nan], [0]),
        ("10", "01"),
        ({0, 1}, [0, 1]),
        ({"a": 1}, [1]),
        (None, [1]),
        (np.ones((2, 2)), np.ones((2, 2))),
    ],
)
def test_scores_that_are_not_0_or_1_are_refused(treated, control) -> None:
    with pytest.raises(InputError, match="give"):
        paired_binary(treated, control)


@pytest.mark.parametrize("clusters", [[], ["a"], ["a", None], ["a", math.nan], [["a"], ["b"]], "ab", {"a", "b"}])
def test_clusters_that_do_not_fit_are_refused(clusters) -> None:
    with pytest.raises(InputError, match="clusters"):
        paired_binary([1, 0], [0, 0], clusters)


@pytest.mark.parametrize("interval", INTERVALS)
def test_tables_that_are_no_counts_are_refused(interval) -> None:
    for table in [(0, 0, 0, 0), (-1, 2, 0, 0), (1.5, 2, 0, 0), ("1", 2, 0, 0), (None, 1, 1, 1), (math.nan, 1, 1, 1)]:
        with pytest.raises(InputError, match="give"):
            interval(*table)
    for confidence in (0, 1, 95, -0.1, math.nan):
        with pytest.raises(InputError, match="confidence"):
            interval(1, 1, 1, 1, confidence)


@pytest.mark.parametrize(
    "call",
    [
        lambda: mcnemar_exact(-1, 2),
        lambda: mcnemar_midp(1.5, 2),
        lambda: wilson_interval(3, 2),
        lambda: wilson_interval(0, 0),
        lambda: minimum_detectable_effect(0, 0.2),
        lambda: minimum_detectable_effect(50, 0.0),
        lambda: minimum_detectable_effect(50, 1.1),
        lambda: minimum_detectable_effect(50, math.nan),
        lambda: minimum_detectable_effect(50, 0.2, power=1.0),
        lambda: minimum_detectable_effect(50, 0.2, alpha=0.0),
        lambda: minimum_detectable_effect(50.5, 0.2),
        lambda: design_effect(0.5, 0.1),
        lambda: design_effect(2, 1.5),
        lambda: design_effect(math.inf, 0.5),
        lambda: effective_sample_size(0, 2, 0.5),
        lambda: intraclass_correlation([1, 0], ["a", "a"]),
        lambda: intraclass_correlation([], []),
        lambda: bca_interval([]),
        lambda: bca_interval([math.nan]),
        lambda: bca_interval([2.0, 0.0]),
        lambda: bca_interval([0.1, 0.2], resamples=0),
        lambda: bca_interval([0.1, 0.2], confidence=1),
        lambda: paired_difference([0.1], [0.1, 0.2]),
        lambda: paired_difference([1.2], [0.1]),
        lambda: paired_difference([], []),
        lambda: holm([]),
        lambda: holm([0.1, 1.1]),
        lambda: holm([math.nan]),
    ],
)
def test_values_out_of_range_are_refused_as_value_errors(call) -> None:
    with pytest.raises(ValueError, match=r"\w") as caught:
        call()
    assert isinstance(caught.value, InputError)
    assert "\n" not in str(caught.value)
