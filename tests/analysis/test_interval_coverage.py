"""What `evidence.coverage` measures, on a few cells; and that its page is what it measures."""

from __future__ import annotations

import numpy as np
import pytest

from evidence.coverage import (
    MEANS,
    PAGE,
    REPEATS,
    SIX,
    TRUTHS,
    Found,
    Truth,
    grid,
    page,
    shown_cell,
    simulate,
    t_interval,
    wilson_effective,
    wilson_mover,
)

ONE_VERDICT, MANY, RARE = TRUTHS[1:4]


@pytest.mark.process
@pytest.mark.parametrize("tasks", [1, 4])
@pytest.mark.parametrize("items", [4, 6, 20])
@pytest.mark.parametrize("mean", [0.5, 0.9, 0.98, 0.999])
def test_95_in_100_intervals_hold_the_mean_in_the_middle_and_at_the_end(
    mean: float, items: int, tasks: int
) -> None:
    for truth in (SIX, MANY):
        found = simulate(truth, mean, tasks, items, repeats=400)
        assert found["ours"].coverage > 0.93, truth.said


def test_t_intervals_do_not() -> None:
    found = simulate(SIX, 0.98, 1, 20, repeats=400)
    assert found["t"].coverage < 0.85
    assert simulate(SIX, 0.98, 1, 6, repeats=400)["t"].coverage < 0.6


@pytest.mark.process
@pytest.mark.parametrize("truth", [ONE_VERDICT, RARE], ids=lambda truth: truth.said)
def test_of_scores_that_take_two_values_most_intervals_hold_it(truth: Truth) -> None:
    found = [simulate(truth, mean, 1, items, repeats=400) for mean in MEANS for items in (6, 20, 50)]
    assert min(each["ours"].coverage for each in found) > 0.85
    assert np.mean([each["ours"].coverage for each in found]) > 0.95


def test_over_four_tasks_they_are_narrower_than_by_mover() -> None:
    for mean in (0.95, 0.98, 0.992):
        found = simulate(SIX, mean, 4, 6, repeats=200)
        assert found["ours"].width < 0.85 * found["Wilson"].width


def test_every_distribution_has_the_mean_it_is_drawn_with() -> None:
    generator = np.random.default_rng(1)
    for truth in TRUTHS:
        for mean in (0.5, 0.98):
            drawn = truth.draw(mean, (200, 1000), generator)
            assert drawn.mean() == pytest.approx(mean, abs=0.004), truth.said
            assert 0 <= drawn.min() <= drawn.max() <= 1


def test_the_others_are_what_they_are_called() -> None:
    """Wilson's own where v = m(1 − m)/n; MOVER by hand from 1 with (0.8, 1) and 0.5 with (0.2, 0.8)."""
    stats = pytest.importorskip("scipy.stats")
    scores = np.array([1.0, 0.0, 1.0, 1.0, 0.5, 0.0])
    expected = stats.t.interval(0.95, 5, loc=scores.mean(), scale=stats.sem(scores))
    assert t_interval([scores]) == pytest.approx((max(expected[0], 0), min(expected[1], 1)))
    proportion = pytest.importorskip("statsmodels.stats.proportion")
    many = np.repeat([1.0, 0.0], [900, 100])
    assert wilson_effective(many) == pytest.approx(
        proportion.proportion_confint(900, 1000, method="wilson"), abs=1e-4
    )
    all_right = np.ones(6)
    t = stats.t.ppf(0.975, 5)
    assert wilson_effective(all_right) == pytest.approx((6 / (6 + t**2), 1.0))
    low, high = wilson_effective(scores)
    both = wilson_mover([all_right, scores])
    down = np.hypot(1 - 6 / (6 + t**2), scores.mean() - low) / 2
    assert both == pytest.approx(
        ((1 + scores.mean()) / 2 - down, (1 + scores.mean()) / 2 + (high - scores.mean()) / 2)
    )


@pytest.mark.process
def test_the_page_is_what_is_measured() -> None:
    written = PAGE.read_text(encoding="utf-8")
    for mean, tasks, items in ((0.98, 1, 20), (0.95, 4, 10)):
        for found in simulate(SIX, mean, tasks, items, repeats=REPEATS).values():
            assert shown_cell(found) in written, "write it again: python -m evidence.coverage"


def test_the_page_has_a_row_for_every_mean_and_distribution() -> None:
    cells = dict.fromkeys(grid(1), Found(0.951, 0.1234))
    text = page(cells, 1)
    assert text.count("95.1 · 0.123") == 2 * 3 * len(MEANS) * 6
    assert all(f"| {truth.said} | {tasks} | ours | 95.1 |" in text for truth in TRUTHS for tasks in (1, 4))
