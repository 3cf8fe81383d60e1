"""Mean squares and what judges add to an error, against an analysis of variance by other people's code."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from statsmodels.formula.api import ols
from statsmodels.stats.anova import anova_lm

from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.mean_squares import (
    JudgeScatter,
    JudgeValues,
    average_judge_scores_over_factors,
    average_scatters,
    estimate_judge_scatter,
    mean_squares,
    spread_over_judges,
)
from evidence.measure_coverage import MIDDLE, drawn_grid

Cells = NDArray[np.float64]


def drawn(seed: int, n: int = 9, s: int = 3, k: int = 4) -> Cells:
    """(n, s, k): each main effect and each pair of them moves scores."""
    random = np.random.default_rng(seed)
    return (
        random.normal(size=(n, 1, 1))
        + random.normal(size=(1, s, 1))
        + random.normal(size=(1, 1, k))
        + random.normal(size=(n, s, 1))
        + random.normal(size=(1, s, k))
        + random.normal(size=(n, 1, k))
        + random.normal(size=(n, s, k))
    )


def pairs(cells: Cells) -> list[JudgeScatter | None]:
    return [
        estimate_judge_scatter([JudgeValues(cells[:, b] - cells[:, a])])
        for a, b in combinations(range(cells.shape[1]), 2)
    ]


@pytest.mark.parametrize(("n", "s", "k"), [(9, 3, 4), (5, 2, 3), (12, 4, 2)])
def test_mean_squares_are_those_of_statsmodels(n: int, s: int, k: int) -> None:
    cells = drawn(n, n, s, k)
    item, student, judge = (axis.ravel() for axis in np.indices(cells.shape))
    frame = pd.DataFrame({"y": cells.ravel(), "i": item, "s": student, "j": judge})
    table = anova_lm(ols("y ~ C(i) * C(s) * C(j) - C(i):C(s):C(j)", frame).fit())["mean_sq"]
    found = mean_squares(cells)
    expected = [table["C(i)"], table["C(s)"], table["C(j)"], table["C(i):C(s)"]]
    expected += [table["C(s):C(j)"], table["C(i):C(j)"], table["Residual"]]
    assert [float(one[0]) for one in found[:7]] == pytest.approx(expected, abs=1e-9)


def test_leaving_out_a_group_of_items_is_the_analysis_of_the_others() -> None:
    cells, group = drawn(4, 12, 3, 4), np.arange(12) % 5
    found = mean_squares(cells, group, 5)
    for place in range(5):
        alone = mean_squares(cells[group != place])
        for one, other in zip(found, alone, strict=True):
            assert one[place + 1] == pytest.approx(other[0], abs=1e-9)


@pytest.mark.parametrize("s", [2, 3, 5])
def test_scatter_of_all_pairs_is_the_mean_square_of_students_and_judges(s: int) -> None:
    cells = drawn(s, 8, s, 4)
    table, found = mean_squares(cells), average_scatters(pairs(cells), s - 1)
    assert found is not None
    assert found.between == pytest.approx(2 * float(table.students_judges[0]) / 8, abs=1e-12)
    assert found.within == pytest.approx(2 * float(table.residual[0]) / 8, abs=1e-12)
    assert (found.judges, found.degrees_between) == (4, (s - 1) * 3)
    assert found.degrees_within == 7 * (s - 1) * 3


def test_spread_is_the_formula_with_satterthwaites_degrees() -> None:
    """Fewer where judges' few degrees let the formula say too many, but never fewer than theirs for that."""
    cells = drawn(1, 10, 3, 5)
    table, scatter = mean_squares(cells), average_scatters(pairs(cells), 2)
    assert scatter is not None
    per, of_judges, rest = 2 / (10 * 5), float(table.students_judges[0]), float(table.residual[0])
    more = max(of_judges - rest, 0) * per
    assert more > 0
    expected = []
    for v_items in (0.02, 0.3):
        spread = spread_over_judges(v_items, 9, scatter)
        v = v_items + more
        assert spread.error == pytest.approx(v**0.5, abs=1e-12)
        spent = v_items**2 / 9 + (per * of_judges) ** 2 / 8 + (per * rest) ** 2 / 72
        careful = v**2 / (spent + (per * of_judges) ** 2 / 8 * 2 / 8)
        expected.append((v**2 / spent, careful))
        assert spread.degrees == pytest.approx(max(min(v**2 / spent, max(careful, 8)), 4))
    (plain, _), (most, careful) = expected
    assert plain < 8 < careful < most
    alone = spread_over_judges(1e-9, 9, scatter._replace(within=0.0))
    assert alone.degrees == pytest.approx(8), "of judges alone it is theirs"


def test_degrees_are_never_fewer_than_judges_less_one() -> None:
    scatter = JudgeScatter(1e-9, 1.0, 6, 5, 10)
    assert scatter.variance == 0
    assert spread_over_judges(1e-6, 50, scatter).degrees == 5
    assert spread_over_judges(1e-6, 50, scatter).error == pytest.approx(1e-3)


def test_two_judges_are_a_guess_and_one_is_not_known() -> None:
    cells = drawn(2, 10, 2, 2)
    [found] = pairs(cells)
    assert found is not None
    assert found.judges == 2
    assert pairs(cells[:, :, :1]) == [None]
    assert average_scatters([None], 1) is None


def test_holes_leave_out_items_and_seldom_judges() -> None:
    """What is left is a block, and its figures are those of that block alone."""
    cells = drawn(3, 12, 2, 4)
    whole = cells[2:, :, [0, 1, 3]]
    gappy = cells.copy()
    gappy[0, 1, 0] = gappy[1, 0, 3] = np.nan
    gappy[:9, :, 2] = np.nan
    assert pairs(gappy) == pairs(whole)


def test_a_judge_that_leans_alike_in_two_tasks_adds_as_much_as_in_one() -> None:
    """And two judges that lean against each other add nothing where their tasks even out."""
    leaning = np.array([0.1, -0.1, 0.0])
    task, other = (JudgeValues(np.tile(sign * leaning, (6, 1))) for sign in (1, -1))
    one, both = estimate_judge_scatter([task]), estimate_judge_scatter([task, task])
    assert one is not None
    assert both is not None
    assert one.variance == pytest.approx(0.01 / 3)
    assert both.variance == pytest.approx(one.variance)
    opposed = estimate_judge_scatter([task, other])
    assert opposed is not None
    assert opposed.variance == pytest.approx(0)


def test_judges_of_different_tasks_are_independent() -> None:
    nobody = np.full((6, 2), np.nan)
    first = np.tile([0.1, -0.1], (6, 1))
    found = estimate_judge_scatter(
        [JudgeValues(np.hstack([first, nobody])), JudgeValues(np.hstack([nobody, first]))]
    )
    alone = estimate_judge_scatter([JudgeValues(first)])
    assert found is not None
    assert alone is not None
    assert found.variance == pytest.approx(2 * alone.variance / 2**2)


def test_checks_dilute_what_judges_add() -> None:
    values = drawn(4, 10, 1, 3)[:, 0]
    whole = estimate_judge_scatter([JudgeValues(values)])
    half = estimate_judge_scatter([JudgeValues(values, 0.5)])
    none = estimate_judge_scatter([JudgeValues(values), JudgeValues(np.zeros((4, 3)), 0.0)])
    assert whole is not None
    assert half is not None
    assert none is not None
    assert half.variance == pytest.approx(whole.variance / 4)
    assert none.variance == pytest.approx(whole.variance / 4), "a task of checks is half of the score"
    assert estimate_judge_scatter([JudgeValues(np.zeros((4, 3)), 0.0)]) is None


def test_cells_are_means_over_factors(random_grid: ScoreGrid) -> None:
    cells = average_judge_scores_over_factors(random_grid, 0)
    assert cells.shape == (10, 4, 3)
    at = (random_grid.item == 3) & (random_grid.student == 2)
    expected = random_grid.values[random_grid.levels[at]].mean(axis=0)
    assert cells[3, 2] == pytest.approx(expected)


@pytest.fixture
def random_grid() -> ScoreGrid:
    return drawn_grid(MIDDLE, 10, np.random.default_rng(5))
