"""Shares of variance and purchases, on scores whose parts are planted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from coeval.analysis.intervals import Floats
from coeval.analysis.panel.panel_worth import standing_parts
from coeval.analysis.panel.variance_budget import Prices, purchases, variance_parts
from perf.judge_bias import Planted, simulate
from perf.planted import PARTS, planted_scores


def planted(
    seed: int, *, items: int = 200, students: int = 5, judges: int = 4, parts: Mapping[str, float] = PARTS
) -> Floats:
    drawn = np.random.default_rng(seed)
    return planted_scores(drawn, items=items, students=students, judges=judges, parts=parts)


def test_they_are_those_of_an_analysis_of_variance() -> None:
    """Mean squares of statsmodels' table, solved for the variances."""
    pandas = pytest.importorskip("pandas")
    formula = pytest.importorskip("statsmodels.formula.api")
    anova = pytest.importorskip("statsmodels.stats.anova")
    y = planted(1, items=12, students=3, judges=3)
    item, student, judge = (place.ravel() for place in np.indices(y.shape))
    frame = pandas.DataFrame({"y": y.ravel(), "i": item, "s": student, "j": judge})
    table = anova.anova_lm(formula.ols("y ~ C(i) * C(s) + C(j)", frame).fit())
    squares = (table["sum_sq"] / table["df"]).to_dict()
    rest = squares["Residual"]
    found = variance_parts(y)
    assert found is not None
    assert found.residual == pytest.approx(rest, rel=1e-9)
    assert found.student_item == pytest.approx((squares["C(i):C(s)"] - rest) / 3, rel=1e-9)
    assert found.item == pytest.approx((squares["C(i)"] - squares["C(i):C(s)"]) / 9, rel=1e-9)
    assert found.judge == pytest.approx((squares["C(j)"] - rest) / 36, rel=1e-9)


def test_more_items_and_judges_do_what_is_foretold() -> None:
    """The standard error of a difference after buying, on fresh scores, is the one foretold."""
    parts = variance_parts(planted(3, items=100))
    assert parts is not None
    now, *more = purchases([parts], Prices(0.01, 0.002, 0.001))
    assert (now.items, now.judges, now.cost_usd) == (0, 0, 0.0)
    doubled = next(each for each in more if each.items == 100)
    judged = next(each for each in more if each.judges == 2)
    assert doubled.difference == pytest.approx(now.difference / np.sqrt(2))
    assert doubled.cost_usd == pytest.approx(100 * (0.01 + 5 * (0.002 + 4 * 0.001)))
    assert judged.cost_usd == pytest.approx(2 * 100 * 5 * 0.001)
    for bought, size in ((now, (100, 4)), (doubled, (200, 4)), (judged, (100, 6))):
        drawn = [planted(seed, items=size[0], judges=size[1]) for seed in range(400)]
        means = np.array([y.mean(axis=(0, 2)) for y in drawn])
        assert bought.difference == pytest.approx((means[:, 0] - means[:, 1]).std(), rel=0.2)
        assert bought.headline == pytest.approx(means[:, 0].std(), rel=0.2)


def test_what_has_no_known_price_has_none() -> None:
    parts = variance_parts(planted(3))
    assert parts is not None
    assert [each.cost_usd for each in purchases([parts], Prices(0.01, None, 0.001))][1:4] == [None] * 3
    assert purchases([parts], Prices(0.01, None, 0.001))[-1].cost_usd is not None
    assert purchases([], Prices(0, 0, 0)) == []


def test_what_cannot_be_told_of_one_judge_or_one_student() -> None:
    assert variance_parts(planted(1)[:, :, :1]) is None
    assert variance_parts(planted(1)[:, :1]) is None


def test_purchases_start_from_all_datapoints_of_the_run() -> None:
    """With all scores there, as they stand: the paired standard errors of students. With some lost, still of
    as many datapoints."""
    grid, _ = simulate({"a": Planted(), "b": Planted(0.1), "c": Planted()}, 48, 1)
    now, *more = purchases(standing_parts(grid), Prices(None, None, None))
    assert [each.items for each in more[:3]] == [24, 48, 144]
    means = np.array(
        [
            [
                grid.levels[(grid.item == item) & (grid.student == student)].mean() / 2
                for student in range(len(grid.students))
            ]
            for item in range(48)
        ]
    )
    apart = [means[:, a] - means[:, b] for a in range(means.shape[1]) for b in range(a)]
    paired = [float(each.std(ddof=1)) / np.sqrt(48) for each in apart]
    assert now.difference == pytest.approx(np.mean(paired), rel=0.05)
    grid.levels[grid.item < 16, 0] = -1
    fewer, *more = purchases(standing_parts(grid), Prices(None, None, None))
    assert [each.items for each in more[:3]] == [24, 48, 144]
    assert fewer.difference == pytest.approx(now.difference, rel=0.25)
