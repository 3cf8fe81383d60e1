"""Agreement, reliability and differentiation against others' code, or the definition spelled out."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.metrics import cohen_kappa_score
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import (
    PanelSums,
    agreement,
    correlations,
    kappa,
    krippendorff_alpha,
    pair_tables,
    panel_sums,
)
from coeval.analysis.measures.robust_set import differentiation

Levels = NDArray[np.int8]
WEIGHT = {0: 1.0, 1: 0.5, 2: 0.0}


def drawn_levels(seed: int, units: int = 200, judges: int = 3) -> Levels:
    random = np.random.default_rng(seed)
    quality = random.normal(size=(units, 1))
    seen = quality + random.normal(scale=0.8, size=(units, judges)) + np.linspace(0, 0.6, judges)
    return ((seen > -0.3).astype(np.int8) + (seen > 0.8)).astype(np.int8)


def table(first: Levels, second: object) -> Floats:
    [found] = pair_tables(first, np.asarray(second, np.int8), np.zeros(len(first), np.int64), 1)
    return np.asarray(found)


@pytest.mark.parametrize("seed", range(5))
def test_agreement_of_two_judges(seed: int) -> None:
    levels = drawn_levels(seed)
    first, second = levels[:, 0], levels[:, 1]
    found = agreement(table(first, second))
    assert found.kappa == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)
    assert found.spa == pytest.approx(np.mean(first == second), abs=1e-12)
    weights = [WEIGHT[abs(int(a) - int(b))] for a, b in zip(first, second, strict=True)]
    assert found.wpa == pytest.approx(np.mean(weights), abs=1e-12)


def test_units_that_one_judge_did_not_score_are_in_no_table() -> None:
    first, second = np.array([2, 2, -1, 0], np.int8), np.array([2, -1, 1, 1], np.int8)
    tables = pair_tables(first, second, np.array([0, 0, 1, 1]), 2)
    assert tables.sum() == 2
    assert tables[0, 2, 2] == tables[1, 0, 1] == 1


def test_kappa_is_not_defined_where_chance_agrees_in_all() -> None:
    alike = np.full(20, 2, np.int8)
    found = agreement(table(alike, alike))
    assert [float(found.spa), float(found.wpa)] == [1, 1]
    assert np.isnan(found.kappa)
    assert kappa(np.stack([table(alike, alike), table(np.array([0, 2] * 10, np.int8), [0, 2] * 10)]))[1] == 1


def alpha_by_definition(levels: Levels) -> float:
    """Krippendorff 2011: every pair of values within units, against every pair of all values."""
    values = levels.ravel()
    counts = np.bincount(values, minlength=3)

    def squared(a: int, b: int) -> float:
        low, high = min(a, b), max(a, b)
        return float((counts[low : high + 1].sum() - (counts[a] + counts[b]) / 2) ** 2)

    judges = levels.shape[1]
    within = sum(
        squared(a, b) / (judges - 1)
        for unit in levels.tolist()
        for i, a in enumerate(unit)
        for j, b in enumerate(unit)
        if i != j
    ) / len(values)
    n = len(values)
    overall = sum(squared(a, b) * counts[a] * counts[b] for a in range(3) for b in range(3)) / (n * (n - 1))
    return float(1 - within / overall)


@pytest.mark.parametrize("judges", [2, 3, 5])
def test_alpha_is_that_of_its_definition(judges: int) -> None:
    levels = drawn_levels(judges, 80, judges)
    found = krippendorff_alpha(summed(levels).coincidences)
    assert found == pytest.approx(alpha_by_definition(levels), abs=1e-9)


def test_alpha_is_one_where_all_agree_and_undefined_where_nothing_varies() -> None:
    agreed = np.array([[0, 0], [1, 1], [2, 2], [0, 0], [2, 2]], np.int8)
    assert krippendorff_alpha(summed(agreed).coincidences) == pytest.approx(1.0)
    assert np.isnan(krippendorff_alpha(summed(np.full((10, 3), 1, np.int8)).coincidences))


@pytest.mark.parametrize("judges", [2, 4])
def test_correlations_are_those_of_an_analysis_of_variance(judges: int) -> None:
    levels = drawn_levels(10 + judges, 60, judges)
    units = len(levels)
    frame = pd.DataFrame(
        {
            "y": levels.ravel().astype(float),
            "unit": np.repeat(np.arange(units), judges),
            "judge": np.tile(np.arange(judges), units),
        }
    )
    table = anova_lm(ols("y ~ C(unit) + C(judge)", frame).fit())
    r, c, e = (table.loc[name, "mean_sq"] for name in ("C(unit)", "C(judge)", "Residual"))
    found = correlations(summed(levels))
    assert found.single == pytest.approx(
        (r - e) / (r + (judges - 1) * e + judges * (c - e) / units), abs=1e-9
    )
    assert found.average == pytest.approx((r - e) / (r + (c - e) / units), abs=1e-9)


def test_correlations_are_those_of_shrout_and_fleiss() -> None:
    """Their table 2: six targets, four judges; ICC(2,1) 0.29 and ICC(2,4) 0.62."""
    ratings = np.array(
        [[9, 2, 5, 8], [6, 1, 3, 2], [8, 4, 6, 8], [7, 1, 2, 6], [10, 5, 6, 9], [6, 2, 4, 7]], np.float64
    )
    sums = PanelSums(
        np.zeros((3, 3)),
        np.array(6.0),
        np.array((ratings**2).sum()),
        np.array((ratings.sum(axis=1) ** 2).sum()),
        ratings.sum(axis=0),
    )
    found = correlations(sums)
    assert (round(float(found.single), 2), round(float(found.average), 2)) == (0.29, 0.62)


def summed(levels: Levels) -> PanelSums:
    return PanelSums(*(np.asarray(part).sum(axis=0) for part in panel_sums(levels)))


def test_teachers_measures_are_those_of_numpy() -> None:
    means = np.random.default_rng(4).random((6, 5))
    found = differentiation(means)
    assert found.v1 == pytest.approx(means.var(axis=1, ddof=1).mean(), abs=1e-12)
    assert found.s2 == pytest.approx(np.sqrt(means.var(axis=1, ddof=1).mean()), abs=1e-12)
    assert found.r3 == pytest.approx((means.max(axis=1) - means.min(axis=1)).mean(), abs=1e-12)


def test_a_single_student_is_told_from_nobody() -> None:
    assert all(np.isnan(value) for value in differentiation(np.array([[0.4], [0.8]])))
    missing = np.array([[0.2, np.nan, 0.6], [0.9, np.nan, np.nan]])
    assert differentiation(missing).v1 == pytest.approx(np.var([0.2, 0.6], ddof=1))
