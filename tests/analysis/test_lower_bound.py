"""The lower bound of a paired difference: exact where there is an exact one, and never without width."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from coeval.analysis.comparison.lower_bound import (
    count_items_to_decide,
    lower_bound_of_b_minus_a,
    lower_bound_with_missing_at_worst,
    p_value_of_loss_within_allowed,
)
from coeval.analysis.comparison.paired_difference import PairedScores
from coeval.analysis.comparison.pairing import ScoredPairs
from coeval.analysis.intervals import SHARE, Floats


def scored(
    differences: Floats, weights: Floats | None = None, clusters: NDArray[np.int64] | None = None
) -> PairedScores:
    a = np.where(differences < 0, -differences, 0.0)
    once = np.ones(len(differences)) if weights is None else weights
    return PairedScores(a, a + differences, once, clusters)


@pytest.mark.parametrize("n", [1, 2, 10, 100, 541, 20_000])
@pytest.mark.parametrize("alpha", [0.025, 0.001])
def test_where_no_pair_differs_it_is_exact(n: int, alpha: float) -> None:
    assert lower_bound_of_b_minus_a([scored(np.zeros(n))], alpha) == pytest.approx(
        alpha ** (1 / n) - 1, abs=2e-5
    )


@pytest.mark.parametrize(("lost", "n"), [(1, 10), (5, 10), (2, 40), (7, 300), (300, 301)])
def test_of_items_that_are_lost_or_kept_it_is_the_bound_of_clopper_and_pearson(lost: int, n: int) -> None:
    differences = np.repeat([-1.0, 0.0], [lost, n - lost])
    oracle = stats.binomtest(lost, n).proportion_ci(0.95, "exact").high
    assert lower_bound_of_b_minus_a([scored(differences)]) == pytest.approx(-oracle, abs=2e-5)


def test_of_graded_scores_it_is_the_quantile_of_random_weights() -> None:
    """Items, one of which counts three times and two of which are one, and the one that was not drawn."""
    draw = np.random.default_rng(1)
    differences, weights = draw.normal(0.02, 0.2, 40).clip(-1, 1), np.ones(40)
    weights[3], clusters = 3.0, np.arange(40, dtype=np.int64)
    clusters[7] = 6
    values = np.append(np.delete(differences, 7), -1.0)
    values[6] = differences[6:8].mean()
    shares = np.append(np.delete(weights, 7), 3.0)
    shares[6] = 2.0
    times = draw.exponential(size=(200_000, 40)) * shares
    simulated = np.quantile(times @ values / times.sum(axis=1), 0.025)
    found = lower_bound_of_b_minus_a([scored(differences, weights, clusters)])
    assert found == pytest.approx(simulated, abs=0.004)
    assert found < differences.mean() - stats.sem(differences) * stats.t.ppf(0.975, 39)


def test_over_tasks_each_counts_alike() -> None:
    draw = np.random.default_rng(2)
    small, large = draw.normal(0.3, 0.1, 30).clip(-1, 1), draw.normal(-0.3, 0.1, 3_000).clip(-1, 1)
    middle = (small.mean() + large.mean()) / 2
    assert middle - 0.2 < lower_bound_of_b_minus_a([scored(small), scored(large)]) < middle - 0.03


def with_missing(differences: Floats, missing: int) -> ScoredPairs:
    share = len(differences) / (len(differences) + missing)
    seen = share * float(differences.mean())
    return ScoredPairs(scored(differences), missing, seen - (1 - share), seen + 1 - share, SHARE)


def test_over_tasks_of_which_one_misses_more_it_is_no_better_than_the_worst_case() -> None:
    """The task that is scored whole loses; the one that is hardly scored gains on what is."""
    strata = [with_missing(np.full(1_000, -0.4), 0), with_missing(np.full(1_000, 0.4), 9_000)]
    worst = float(np.mean([one.low for one in strata]))
    assert worst - 0.01 < lower_bound_with_missing_at_worst(strata) < worst
    one = with_missing(np.repeat([-1.0, 0.0], [5, 95]), 25)
    assert lower_bound_with_missing_at_worst([one]) == pytest.approx(
        0.8 * lower_bound_of_b_minus_a([one.pairs]) - 0.2
    )
    assert lower_bound_with_missing_at_worst([one, one]) < one.low


@pytest.mark.process
def test_strata_that_count_unlike_are_a_quantile_of_random_weights() -> None:
    draw = np.random.default_rng(4)
    parts = [draw.normal(-0.2, 0.2, 30).clip(-1, 1), draw.normal(0.2, 0.3, 60).clip(-1, 1)]
    weights = np.repeat([0.9 / 30, 0.3 / 60], [30, 60])
    times = draw.exponential(size=(200_000, 91)) * np.append(weights, weights.max())
    simulated = np.quantile(times @ np.append(np.concatenate(parts), -1.0) / times.sum(axis=1), 0.025)
    found = lower_bound_of_b_minus_a([scored(part) for part in parts], shares=[0.9, 0.3])
    assert found == pytest.approx(simulated, abs=0.004)


def test_the_items_that_it_would_take() -> None:
    """If no pair ever differs, 2 points need 183 items; a loss of the margin no number decides."""
    needed = count_items_to_decide([scored(np.zeros(10))], 0.02)
    assert needed is not None
    assert needed == pytest.approx(np.log(0.025) / np.log(0.98), rel=0.02)
    at_margin = np.repeat([-1.0, 0.0], [2, 98])
    assert count_items_to_decide([scored(at_margin)], 0.02) is None
    worse = np.tile([-0.2, 0.0, 0.1, -0.1], 5)
    found = count_items_to_decide([scored(worse)], 0.01)
    assert found is not None
    assert found > 20
    error = worse.std() / np.sqrt(found)
    assert stats.norm.cdf((0.05 - 0.01) / error) > 0.79
    assert stats.norm.sf(1.96 - 0.05 / error) > 0.79


@pytest.mark.process
@pytest.mark.parametrize("mean", [0.02, 0.1, 0.5])
def test_a_loss_of_the_margin_passes_seldom(mean: float) -> None:
    """False GO at the margin, of items that are all kept or lost: never above 2.5 %, where the paired t test
    passes whatever shows no loss."""
    draw = np.random.default_rng(3)
    passed = naive = 0
    for _ in range(400):
        lost = (draw.random(30) < mean).astype(float)
        passed += lower_bound_of_b_minus_a([scored(-lost)]) > -mean
        error = lost.std(ddof=1) / np.sqrt(30)
        naive += -lost.mean() - stats.t.ppf(0.975, 29) * error > -mean
    assert passed / 400 <= 0.025 + 2.6 * np.sqrt(0.025 * 0.975 / 400)
    if mean < 0.1:
        assert naive / 400 > 0.3


@pytest.mark.parametrize("items", [50, 300])
@pytest.mark.parametrize(("mean", "drop"), [(0.5, 0.05), (0.8, 0.02), (0.9, 0.1)])
def test_a_loss_that_is_allowed_is_seldom_called_more(items: int, mean: float, drop: float) -> None:
    """Significant and seen to be more than allowed it is far more often."""
    draw = np.random.default_rng([items, int(100 * mean)])
    found = []
    for _ in range(400):
        hard = draw.normal(size=items)
        a, b = (stats.norm.cdf((hard + draw.normal(size=items)) / np.sqrt(2)) for _ in range(2))
        pairs = [PairedScores((a < mean) * 1.0, (b < mean - drop) * 1.0, np.ones(items))]
        found.append(
            (p_value_of_loss_within_allowed(pairs, drop), p_value_of_loss_within_allowed(pairs, 0.0))
        )
    assert np.mean([p < 0.05 for p, _ in found]) <= 0.045  # 2.5%, and twice its standard error
    assert all(p >= of_none for p, of_none in found)


def test_a_loss_that_is_far_beyond_what_is_allowed_is_called_so() -> None:
    lost = PairedScores(np.ones(200), np.repeat([0.0, 1.0], [40, 160]), np.ones(200))
    assert p_value_of_loss_within_allowed([lost], 0.1) < 0.001
    assert p_value_of_loss_within_allowed([lost], 0.2) == 1.0
