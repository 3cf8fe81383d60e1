"""Shares of variance and purchases, on scores whose parts are planted."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from coeval.analysis.intervals import Floats
from coeval.analysis.panel.panel_worth import (
    Prices,
    TaskErrors,
    errors_by_task,
    purchases,
    task_errors,
    variance_parts,
)
from perf.judge_bias import Planted, simulate
from perf.planted import PARTS, found_errors, planted_scores


def planted(
    seed: int, *, items: int = 200, students: int = 5, judges: int = 4, parts: Mapping[str, float] = PARTS
) -> Floats:
    drawn = np.random.default_rng(seed)
    return planted_scores(drawn, items=items, students=students, judges=judges, parts=parts)


def errors_of(y: Floats) -> TaskErrors:
    found = task_errors(y.mean(axis=2).T, np.arange(len(y)), y.shape[2], variance_parts(y))
    assert found is not None
    return found


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
    now, *more = purchases([errors_of(planted(3, items=100))], Prices(0.01, 0.002, 0.001))
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


def test_an_estimate_below_zero_is_shown_and_not_cut_off() -> None:
    """Judges whose views of an item are their own, whoever answered it: MS_SI is below the residual."""
    y = planted_scores(np.random.default_rng(1), items=200, parts={**PARTS, "students_items": 0.0}, views=0.2)
    parts = variance_parts(y)
    assert parts is not None
    assert parts.student_item < 0
    assert sum(share for share in parts.shares.values() if share is not None) == pytest.approx(1)
    assert (parts.shares["students_items"] or 0.0) < 0
    now, *_, one_more, two_more = purchases([errors_of(y)], Prices(None, None, None))
    squares = 4 * (parts.student_item + parts.residual / 4)  # MS_SI
    assert now.difference == pytest.approx(np.sqrt(2 * squares / (4 * 200)), rel=1e-9)
    assert one_more.difference == pytest.approx(now.difference * np.sqrt(4 / 5))
    assert two_more.headline < one_more.headline < now.headline


def test_the_error_of_a_difference_is_that_of_the_pairs() -> None:
    """docs/evidence/measure-coverage.md has those of a thousand runs."""
    for found in found_errors(60):
        assert found.reported == pytest.approx(found.pairs, rel=0.05)
        assert found.reported == pytest.approx(found.true, rel=0.1)


def test_one_judge_says_what_items_add_and_nothing_of_judges() -> None:
    y = planted(4, judges=2)[:, :, :1]
    steps = purchases([errors_of(y)], Prices(None, None, None))
    assert [(step.items, step.judges) for step in steps] == [(0, 0), (100, 0), (200, 0), (600, 0)]
    apart = y[:, 0, 0] - y[:, 1, 0]
    assert steps[0].difference == pytest.approx(apart.std(ddof=1) / np.sqrt(200), rel=0.2)


def test_what_has_no_known_price_has_none() -> None:
    errors = errors_of(planted(3))
    assert [each.cost_usd for each in purchases([errors], Prices(0.01, None, 0.001))][1:4] == [None] * 3
    assert purchases([errors], Prices(0.01, None, 0.001))[-1].cost_usd is not None
    assert purchases([], Prices(0, 0, 0)) == []


def test_what_cannot_be_told_of_one_judge_or_one_student() -> None:
    assert variance_parts(planted(1)[:, :, :1]) is None
    assert variance_parts(planted(1)[:, :1]) is None


def test_purchases_start_from_all_datapoints_of_the_run() -> None:
    """With all scores there, as they stand: the paired standard errors of students. With some lost, still of
    as many datapoints."""
    grid, _ = simulate({"a": Planted(), "b": Planted(0.1), "c": Planted()}, 48, 1)
    now, *more = purchases(errors_by_task(grid), Prices(None, None, None))
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
    fewer, *more = purchases(errors_by_task(grid), Prices(None, None, None))
    assert [each.items for each in more[:3]] == [24, 48, 144]
    assert fewer.difference == pytest.approx(now.difference, rel=0.1)
