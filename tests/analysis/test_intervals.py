from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coeval.analysis.intervals import (
    PERCENT,
    Bounds,
    Interval,
    Scale,
    Scatter,
    beta_bounds,
    clustered_mean,
    mean_bounds,
    mean_over_strata,
    wilson_interval,
)

LEVELS = st.sampled_from([0.0, 0.5, 1.0])
SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=12)


def bounds(interval: Interval) -> tuple[float, float]:
    assert interval.low is not None
    assert interval.high is not None
    return interval.low, interval.high


def single(*scores: float) -> Interval:
    return clustered_mean(scores, range(len(scores)))


def test_of_yes_or_no_scores_it_is_jeffreys_interval() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for k, n in [(1, 7), (5, 7), (50, 1000), (999, 1000)]:
        expected = proportion.proportion_confint(k, n, alpha=0.05, method="jeffreys")
        assert beta_bounds(k / n, k / n * (1 - k / n), n) == pytest.approx(expected, abs=1e-9)
        narrower = proportion.proportion_confint(k, n, alpha=0.1, method="jeffreys")
        assert beta_bounds(k / n, k / n * (1 - k / n), n, level=0.9) == pytest.approx(narrower, abs=1e-9)
    low, _ = proportion.proportion_confint(20, 20, alpha=0.05, method="jeffreys")
    assert bounds(single(*[1.0] * 20)) == pytest.approx((low, 1.0))


def test_it_is_the_bayesian_bootstrap_with_half_an_observation_at_either_end() -> None:
    rng = np.random.default_rng(8)
    for scores in (rng.uniform(0.4, 0.9, size=12), rng.beta(8, 0.5, size=25)):
        weights = rng.dirichlet([1.0] * len(scores) + [0.5, 0.5], size=100_000)
        means = weights @ np.append(scores, [0.0, 1.0])
        drawn = np.quantile(means, [0.025, 0.975]).tolist()
        assert beta_bounds(scores.mean(), scores.var(), len(scores)) == pytest.approx(drawn, abs=0.015)


def test_one_stratum_by_hand() -> None:
    """SS 0.125 (a third of m(1 − m) is less), s² = (0.125 + 4 · 0.125) / 5; φ = 0.125 / 0.1875;
    r⁴ = 0.75⁴, φ₀ = (0.125 + r⁴) / (0.1875 + r⁴) = 0.875969, h = 0.437984; 0.398740 squares for 0.125 seen,
    so 1 / (1 − φ) · 3.189922² degrees of freedom; M = 1.937984 / 2.875969."""
    stats = pytest.importorskip("scipy.stats")
    stretch = stats.t.ppf(0.975, 3 * 3.1899225**2) / stats.norm.ppf(0.975)
    centre = 1.9379845 / 2.875969
    variance = ((2 * (0.125 + 0.5625) + 0.4379845) / 2.875969 - centre**2) / 3.875969 * stretch**2
    size = centre * (1 - centre) / variance - 1
    expected = stats.beta(centre * size, (1 - centre) * size).ppf([0.025, 0.975]).tolist()
    assert bounds(single(1.0, 0.5)) == pytest.approx(expected, abs=1e-6)


def test_two_strata_by_hand() -> None:
    """Means 1 and ½, m = ¾; SS 0 and 0.5 over 1 + 2 degrees of freedom, s₀² = 0.16666667.

    s² = 4 · 0.16666667 / 5 = 0.13333333 and (0.5 + 0.66666667) / 6 = 0.19444444; v = (0.06666667 +
    0.06481481) / 4; n = 4 / (1/2 + 1/3) = 4.8; s² = 0.15777778, φ = 0.84148148; φ₀ = (0.5 + 0.31640625) /
    (0.5625 + 0.31640625) = 0.92888889, h = 0.46444444; 0.79027778 squares for 0.5.
    """
    stats = pytest.importorskip("scipy.stats")
    degrees = 3 / (1 - 0.84148148) * (0.79027778 / 0.5) ** 2
    stretch = stats.t.ppf(0.975, degrees) / stats.norm.ppf(0.975)
    expected = beta_bounds(0.75, 0.15777778, 4.8, 0.46444444, stretch)
    assert bounds(mean_over_strata([[1.0, 1.0], [0.0, 0.5, 1.0]])) == pytest.approx(expected, abs=1e-7)


def test_a_cluster_counts_by_how_far_it_takes_the_mean() -> None:
    """In the middle, and of many clusters, it is the interval of a cluster-robust regression."""
    linear_model = pytest.importorskip("statsmodels.regression.linear_model")
    rng = np.random.default_rng(4)
    clusters = np.repeat(np.arange(400), rng.integers(1, 7, size=400))
    values = rng.uniform(0.2, 0.8, size=400)[clusters] + rng.uniform(-0.2, 0.2, size=len(clusters))
    fit = linear_model.OLS(values, np.ones_like(values)).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "df_correction": True}, use_t=True
    )
    interval = clustered_mean(values, clusters)
    assert interval.mean == pytest.approx(fit.params[0])
    assert interval.n == 400
    assert bounds(interval) == pytest.approx(tuple(fit.conf_int(alpha=0.05)[0]), abs=0.001)


@pytest.mark.process
def test_in_the_middle_it_is_no_wider_than_the_t_interval() -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(6)
    for n in (6, 10, 40, 100):
        ours, of_t = [], []
        for _ in range(200):
            values = rng.beta(2, 2, size=n)
            low, high = bounds(clustered_mean(values, np.arange(n)))
            ours.append(high - low)
            of_t.append(2 * stats.t.ppf(0.975, n - 1) * stats.sem(values))
        assert 0.8 < np.mean(ours) / np.mean(of_t) < 1.0


def test_all_alike_they_have_a_width_that_shrinks_with_their_number() -> None:
    for score in (0.0, 0.5, 1.0):
        widths = [high - low for low, high in (bounds(single(*[score] * n)) for n in (1, 2, 5, 20, 1000))]
        assert widths == sorted(widths, reverse=True)
        assert 0.001 < widths[-1] < 0.01
    assert bounds(single(*[1.0] * 20))[0] == pytest.approx(0.8834, abs=1e-4)
    low, high = bounds(clustered_mean([1.0] * 12, [1] * 12))
    assert (low, high) == bounds(single(1.0)), "twelve judgments of one item are one item"


def test_a_single_item_says_little() -> None:
    assert bounds(single(1.0)) == pytest.approx((0.1467, 1.0), abs=1e-4)
    assert bounds(single(0.5)) == pytest.approx((0.025, 0.975))
    assert bounds(mean_over_strata([[0.5], np.full(30, 0.5)])) == pytest.approx((0.3974, 0.6026), abs=1e-4)


@pytest.mark.process
@example([[0.0, 6.3e-142]])
@given(st.lists(SCORES, min_size=1, max_size=5))
def test_it_holds_the_mean_stays_on_the_scale_and_has_a_width(strata: list[list[float]]) -> None:
    interval = mean_over_strata(strata)
    low, high = bounds(interval)
    assert interval.mean is not None
    assert 0 <= low <= interval.mean <= high <= 1
    assert high - low > 0.01
    assert interval.n == sum(map(len, strata))


@given(SCORES)
def test_of_the_scale_turned_over_it_is_the_mirror_image(scores: list[float]) -> None:
    low, high = bounds(single(*scores))
    mirrored = bounds(single(*(1 - score for score in scores)))
    assert (1 - high, 1 - low) == pytest.approx(mirrored, abs=1e-6)


def test_another_scale_only_renames_the_scores() -> None:
    scores = np.array([1.0, 0.5, 0.75, 1.0])
    low, high = bounds(single(*scores))
    percent = clustered_mean(100 * scores, np.arange(4), PERCENT)
    assert percent.mean == 81.25
    assert bounds(percent) == pytest.approx((100 * low, 100 * high))
    points = clustered_mean(1 + 9 * scores, np.arange(4), Scale(1, 10))
    assert bounds(points) == pytest.approx((1 + 9 * low, 1 + 9 * high))


def test_one_stratum_is_the_plain_mean() -> None:
    values = np.random.default_rng(3).random(17)
    assert bounds(mean_over_strata([values])) == pytest.approx(bounds(clustered_mean(values, np.arange(17))))


def test_strata_count_alike_whatever_their_size() -> None:
    few = mean_over_strata([[0.0, 0.5], [1.0, 0.5, 1.0, 0.5], []])
    assert (few.mean, few.n) == (0.5, 6)


def test_more_scatter_than_scores_can_have_says_nothing() -> None:
    assert mean_bounds(0.5, [Scatter(10, 1e6)]) == Bounds(0.0, 1.0)


def test_wilson_equals_statsmodels() -> None:
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    for k, n in [(0, 7), (1, 7), (5, 7), (7, 7), (50, 1000), (999, 1000)]:
        expected = proportion.proportion_confint(k, n, alpha=0.05, method="wilson")
        assert bounds(wilson_interval(k, n)) == pytest.approx(expected, abs=1e-12)


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_wilson_contains_the_share_and_stays_between_0_and_1(counts: tuple[int, int]) -> None:
    k, n = counts
    low, high = bounds(wilson_interval(k, n))
    assert 0 <= low <= k / n <= high <= 1
    assert (low == 0) == (k == 0)
    assert (high == 1) == (k == n)


def test_wilson_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="k=3, n=2"):
        wilson_interval(3, 2)


def test_nothing_gives_nothing() -> None:
    nothing = Interval(None, None, None, 0)
    assert clustered_mean([], []) == nothing
    assert mean_over_strata([]) == nothing
    assert mean_over_strata([[], []]) == nothing
    assert wilson_interval(0, 0) == nothing


def test_refuses_what_is_no_score() -> None:
    with pytest.raises(ValueError, match="finite"):
        clustered_mean([1.0, float("nan")], [1, 2])
    with pytest.raises(ValueError, match="equally long"):
        clustered_mean([1.0, 0.0], [1, 2, 3])
    with pytest.raises(ValueError, match="a mean of 7 lies outside the scale, 0 to 1"):
        single(7.0)


@given(st.lists(st.tuples(LEVELS, st.integers(0, 30)), min_size=1, max_size=60))
def test_the_order_of_units_does_not_matter(units: list[tuple[float, int]]) -> None:
    shuffled = sorted(units, key=lambda unit: (unit[1] * 7 % 31, unit[0]))
    first, again = (
        clustered_mean([value for value, _ in each], [cluster for _, cluster in each])
        for each in (units, shuffled)
    )
    assert first.n == again.n
    assert (first.mean, *bounds(first)) == pytest.approx((again.mean, *bounds(again)))
