"""Paired differences against independent implementations, and at the ends of the scale."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from coeval.analysis.comparison.paired_difference import (
    Difference,
    PairedScores,
    holm_adjust,
    mcnemar_p_value,
    paired_difference,
    sign_flip_p_value,
)
from coeval.analysis.intervals import Floats, mean_over_strata


def difference(a: Floats, b: Floats, weights: Floats | None = None) -> Difference:
    return paired_difference([PairedScores(a, b, np.ones(len(a)) if weights is None else weights)])


def graded(n: int, shift: float = 0.05, seed: int = 0) -> tuple[Floats, Floats]:
    """Correlated scores in the middle of the scale."""
    generator = np.random.default_rng(seed)
    hard = generator.normal(0, 0.15, n)
    a = np.clip(0.5 + hard + generator.normal(0, 0.1, n), 0, 1)
    return a, np.clip(0.5 + shift + hard + generator.normal(0, 0.1, n), 0, 1)


@pytest.mark.parametrize("n", [2, 3, 4, 6, 10, 20, 50, 200])
@pytest.mark.parametrize("levels", [[0.0, 1.0], [0.0, 0.5, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0]])
def test_the_interval_holds_zero_where_p_is_no_less_than_005(levels: list[float], n: int) -> None:
    generator = np.random.default_rng(n)
    for _ in range(100):
        a, b = (generator.choice(levels, n, p=generator.dirichlet(np.ones(len(levels)))) for _ in range(2))
        found = difference(a, np.where(generator.random(n) < generator.random(), b, a))
        assert found.p is not None
        assert (found.low <= 0 <= found.high) == (found.p >= 0.05)


def test_two_items_that_differ_show_nothing() -> None:
    found = difference(np.zeros(2), np.ones(2))
    assert (found.p, found.low, found.high) == (0.5, 0.0, 1.0)


@pytest.mark.parametrize("n", [6, 20, 541])
def test_in_the_middle_it_is_the_paired_t_test(n: int) -> None:
    a, b = graded(n)
    found = difference(a, b)
    oracle = stats.ttest_rel(b, a)
    low, high = oracle.confidence_interval()
    assert (found.test, found.n) == ("paired t", n)
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((low, high), abs=1e-12)
    assert (found.mean_a, found.mean_b) == pytest.approx((a.mean(), b.mean()), abs=1e-12)


@pytest.mark.parametrize(("only_a", "only_b"), [(0, 0), (0, 5), (3, 9), (40, 61), (100, 100)])
def test_mcnemar_is_statsmodels_exact_one(only_a: int, only_b: int) -> None:
    table = pytest.importorskip("statsmodels.stats.contingency_tables")
    expected = table.mcnemar([[7, only_a], [only_b, 8]], exact=True).pvalue if only_a + only_b else 1.0
    assert mcnemar_p_value(only_a, only_b) == pytest.approx(expected, abs=1e-12)
    a = np.repeat([1.0, 0.0, 1.0, 0.0], [only_a, only_b, 20, 20])
    b = np.repeat([0.0, 1.0, 1.0, 0.0], [only_a, only_b, 20, 20])
    found = difference(a, b)
    assert found.test == "exact McNemar"
    assert found.p == pytest.approx(expected, abs=1e-12)
    assert found.low < found.difference < found.high


def test_all_sign_flips_are_scipys() -> None:
    d = np.random.default_rng(3).normal(0.3, 0.5, 12)
    oracle = stats.permutation_test(
        (d,),
        lambda x, axis: x.sum(axis=axis),
        permutation_type="samples",
        n_resamples=np.inf,
        vectorized=True,
    )
    assert sign_flip_p_value(d) == pytest.approx(oracle.pvalue, rel=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_of_many_the_tail_is_that_of_all_flips(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Smooth differences and such that are multiples of a step, against all 2**20 flips."""
    generator = np.random.default_rng(seed)
    d = generator.normal(0.3, 0.6, 20) if seed % 2 else generator.choice([-0.5, 0.25, 0.5, 1.0], 20)
    tail = sign_flip_p_value(d)
    monkeypatch.setattr("coeval.analysis.comparison.paired_difference._ALL_FLIPS", 20)
    assert tail == pytest.approx(sign_flip_p_value(d), rel=0.15, abs=0.002)


def test_differences_that_all_point_one_way() -> None:
    assert sign_flip_p_value(np.full(20, 0.5)) == 2**-19
    assert sign_flip_p_value(np.zeros(30)) == 1.0
    assert sign_flip_p_value(np.array([1.0] * 10 + [-1.0] * 10)) == pytest.approx(1.0)


def test_items_that_count_more_often_are_a_weighted_regression() -> None:
    """The cluster-robust error of a weighted mean is that of a regression with robust errors (HC1)."""
    models = pytest.importorskip("statsmodels.api")
    a, b = graded(60)
    weights = np.random.default_rng(1).integers(1, 5, 60).astype(float)
    fit = models.WLS(b - a, np.ones(60), weights=weights).fit(cov_type="HC1", use_t=True)
    found = difference(a, b, weights)
    assert found.difference == pytest.approx(fit.params[0], abs=1e-12)
    assert (found.low, found.high) == pytest.approx(tuple(fit.conf_int()[0]), abs=1e-12)
    assert found.p == pytest.approx(fit.pvalues[0], rel=1e-9)


def test_tasks_count_alike_with_welchs_degrees_of_freedom() -> None:
    """Of two tasks, the mean of the differences is half of the difference of (d1, −d2): Welch's test."""
    first, second = graded(12, 0.1), graded(40, 0.02, seed=5)
    found = paired_difference([PairedScores(*first, np.ones(12)), PairedScores(*second, np.ones(40))])
    one, two = first[1] - first[0], -(second[1] - second[0])
    oracle = stats.ttest_ind(one, two, equal_var=False)
    low, high = oracle.confidence_interval()
    assert found.p == pytest.approx(oracle.pvalue, rel=1e-9)
    assert (found.low, found.high) == pytest.approx((low / 2, high / 2), abs=1e-12)


def test_the_smallest_difference_is_that_of_a_power_analysis() -> None:
    power = pytest.importorskip("statsmodels.stats.power")
    for n in (20, 100, 541):
        a, b = graded(n)
        found = difference(a, b)
        effect = power.TTestPower().solve_power(nobs=n, alpha=0.05, power=0.8)
        needed = effect * (b - a).std(ddof=1)
        assert found.minimum_detectable is not None
        assert 0.99 < found.minimum_detectable / needed < 1 + 3 / n  # more where few items tell the scatter


def test_equal_outputs_have_an_interval_with_a_width() -> None:
    for scores in (np.ones(50), np.repeat([0.0, 1.0], 25), np.full(50, 0.5)):
        found = difference(scores, scores)
        assert found.difference == 0
        assert found.p == 1.0
        assert found.low < 0 < found.high
        assert found.high - found.low < 0.15
        assert found.minimum_detectable is not None
        assert found.minimum_detectable > 0


def test_few_items_that_differ_near_the_end_make_no_discovery() -> None:
    a, b = np.ones(20), np.ones(20)
    b[0] = 0.0
    found = difference(a, b)
    assert (found.test, found.p) == ("exact McNemar", 1.0)
    assert found.low < -0.05 < 0 < found.high
    graded_b = b.copy()
    graded_b[0] = 0.5
    assert difference(a, graded_b).test == "sign flips"


def test_a_single_item_has_an_interval_and_no_p_value() -> None:
    found = difference(np.array([0.5]), np.array([1.0]))
    assert (found.p, found.minimum_detectable, found.n) == (None, None, 1)
    assert found.low < 0.5 <= found.high <= 1


def test_intervals_stay_on_the_scale() -> None:
    found = difference(np.zeros(6), np.array([1.0, 1, 1, 1, 1, 0.9]))
    assert -1 <= found.low < found.difference <= found.high <= 1
    assert mean_over_strata([np.zeros(6)]).high is not None


@pytest.mark.process
def test_adjusted_p_values_are_statsmodels() -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    p = np.random.default_rng(0).beta(0.3, 1, 40).tolist()
    p[3] = p[4]
    assert holm_adjust(p) == pytest.approx(multitest.multipletests(p, method="holm")[1], abs=1e-12)
    assert (holm_adjust([]), holm_adjust([0.7])) == ([], [0.7])
