"""Agreement, reliability and likeness on random runs with gaps, against other people's code."""

from __future__ import annotations

from itertools import combinations

import krippendorff
import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.metrics import accuracy_score, cohen_kappa_score, pairwise_distances

from coeval.analysis.intervals import Floats
from coeval.analysis.measures.agreement import (
    DEFAULT_LEVELS,
    PanelSums,
    Reweighting,
    compute_alpha_and_icc,
    krippendorff_alpha,
    panel_sums_by_unit,
    tabulate_pair_levels,
)
from coeval.analysis.measures.judge_measures import compare_judge_pairs, measure_judge_pairs, measure_panel
from coeval.analysis.measures.near_duplicates import find_earlier_duplicates, mean_prompt_similarity
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.teacher_measures import measure_differentiation
from evidence.measure_coverage import MIDDLE, World, drawn_grid

HIGH = World("means of 0.9", (1.4, 1.7, 2.0, 2.2))
CASES = [
    (seed, world, gaps)
    for seed, (world, gaps) in enumerate(
        (world, gaps) for world in (MIDDLE, HIGH) for gaps in (0.0, 0.02, 0.1, 0.3, 0.5)
    )
]


def gappy(seed: int, world: World, gaps: float) -> tuple[ScoreGrid, Reweighting]:
    """A run of 40 datapoints in which that share of scores is missing at random."""
    random = np.random.default_rng(seed)
    grid = drawn_grid(world, 40, random)
    levels = np.where(random.random(grid.levels.shape) < gaps, -1, grid.levels).astype(np.int8)
    return grid._replace(levels=levels), Reweighting(40)


def complete(grid: ScoreGrid) -> NDArray[np.int8]:
    found: NDArray[np.int8] = grid.levels[(grid.levels >= 0).all(axis=1)]
    return found


@pytest.mark.parametrize(("seed", "world", "gaps"), CASES)
def test_alpha_is_krippendorffs(seed: int, world: World, gaps: float) -> None:
    """Over the units that all judges scored; of ordinal levels."""
    grid, reweighting = gappy(seed, world, gaps)
    levels, found = complete(grid), measure_panel(grid, reweighting)
    assert found.count == len(levels) >= 30
    expected = krippendorff.alpha(levels.T.astype(float), level_of_measurement="ordinal")
    assert found.krippendorff_alpha.value == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("seed", "world", "gaps"), CASES)
def test_correlations_are_those_of_an_analysis_of_variance(seed: int, world: World, gaps: float) -> None:
    grid, reweighting = gappy(seed, world, gaps)
    levels, found = complete(grid), measure_panel(grid, reweighting)
    n, k = levels.shape
    y = levels / 2
    by_unit, by_judge = y.mean(axis=1, keepdims=True), y.mean(axis=0)
    rest = y - by_unit - by_judge + y.mean()
    r, c = k * by_unit.var(ddof=1), n * by_judge.var(ddof=1)
    e = (rest**2).sum() / ((n - 1) * (k - 1))
    single, average = (r - e) / (r + (k - 1) * e + k * (c - e) / n), (r - e) / (r + (c - e) / n)
    assert found.icc_2_1.value == pytest.approx(single, abs=1e-9)
    assert found.icc_2_k.value == pytest.approx(average, abs=1e-9)


@pytest.mark.parametrize(("seed", "world", "gaps"), CASES)
def test_pairs_are_those_of_scikit_learn(seed: int, world: World, gaps: float) -> None:
    """κ, the share of equal levels, and by way of the linearly weighted κ the weighted share."""
    grid, reweighting = gappy(seed, world, gaps)
    found = measure_judge_pairs(compare_judge_pairs(grid, reweighting))
    for one, other in combinations(range(len(grid.judges)), 2):
        both = (grid.levels[:, [one, other]] >= 0).all(axis=1)
        first, second = grid.levels[both, one], grid.levels[both, other]
        measured = found[grid.judges[one], grid.judges[other]]
        assert measured.count == len(first)
        assert measured.spa.value == pytest.approx(accuracy_score(first, second), abs=1e-9)
        shares = [np.bincount(levels, minlength=3) / len(levels) for levels in (first, second)]
        by_chance = float(np.outer(*shares).ravel() @ DEFAULT_LEVELS.linear.ravel())
        weighted = cohen_kappa_score(first, second, labels=[0, 1, 2], weights="linear")
        assert measured.wpa.value == pytest.approx(by_chance + weighted * (1 - by_chance), abs=1e-9)
        assert measured.kappa.value == pytest.approx(cohen_kappa_score(first, second), abs=1e-9)
        tables = tabulate_pair_levels(grid.levels[:, one], grid.levels[:, other], grid.item, 40)
        assert DEFAULT_LEVELS.plain_or_linear_kappa(tables.sum(axis=0)) == measured.kappa.value


def test_likeness_of_prompts_is_scikit_learns() -> None:
    """Word 3-grams and the Jaccard distance, over all pairs; near duplicates are at most 0.3 apart."""
    random = np.random.default_rng(2)
    words = [f"w{n}" for n in range(6)]
    prompts = [" ".join(random.choice(words, size=12)) for _ in range(60)]
    for n in (10, 30, 50):
        prompts[n] = prompts[n - 5] + " more"
    grams = CountVectorizer(ngram_range=(3, 3), binary=True).fit_transform(prompts).toarray().astype(bool)
    apart = pairwise_distances(grams, metric="jaccard")
    above = np.triu_indices(len(prompts), 1)
    found = mean_prompt_similarity(prompts)
    assert found.pairs == len(above[0])
    assert found.mean == pytest.approx(1 - apart[above].mean(), abs=1e-9)
    twins = {n for n in range(len(prompts)) if (apart[n, :n] <= 0.3).any()}
    assert {twin.later for twin in find_earlier_duplicates(prompts)} == twins
    assert {10, 30, 50} <= twins


def table(first: NDArray[np.int8], second: object) -> Floats:
    [found] = tabulate_pair_levels(first, np.asarray(second, np.int8), np.zeros(len(first), np.int64), 1)
    return np.asarray(found)


def test_units_that_one_judge_did_not_score_are_in_no_table() -> None:
    first, second = np.array([2, 2, -1, 0], np.int8), np.array([2, -1, 1, 1], np.int8)
    tables = tabulate_pair_levels(first, second, np.array([0, 0, 1, 1]), 2)
    assert tables.sum() == 2
    assert tables[0, 2, 2] == tables[1, 0, 1] == 1


def test_kappa_is_not_defined_where_chance_agrees_in_all() -> None:
    alike = np.full(20, 2, np.int8)
    tables = np.stack([table(alike, alike), table(np.array([0, 2] * 10, np.int8), [0, 2] * 10)])
    assert DEFAULT_LEVELS.plain_or_linear_kappa(tables) == pytest.approx([np.nan, 1], nan_ok=True)


def test_alpha_is_one_where_all_agree_and_undefined_where_nothing_varies() -> None:
    agreed = np.array([[0, 0], [1, 1], [2, 2], [0, 0], [2, 2]], np.int8)
    assert krippendorff_alpha(summed(agreed).coincidences) == pytest.approx(1.0)
    assert np.isnan(krippendorff_alpha(summed(np.full((10, 3), 1, np.int8)).coincidences))


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
    found = compute_alpha_and_icc(sums)
    assert (round(float(found.single), 2), round(float(found.average), 2)) == (0.29, 0.62)


def summed(levels: NDArray[np.int8]) -> PanelSums:
    return PanelSums(*(np.asarray(part).sum(axis=0) for part in panel_sums_by_unit(levels)))


def test_a_single_student_is_told_from_nobody() -> None:
    assert all(np.isnan(value) for value in measure_differentiation(np.array([[0.4], [0.8]])))
    missing = np.array([[0.2, np.nan, 0.6], [0.9, np.nan, np.nan]])
    assert measure_differentiation(missing).v1 == pytest.approx(np.var([0.2, 0.6], ddof=1))
