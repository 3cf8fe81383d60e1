"""A judge held against its earlier scores: what counts, and how often drift is found."""

from __future__ import annotations

import pytest

from coeval.analysis.panel.judge_drift import ScoreKey, compare_with_anchor
from coeval.core.errors import UsageError
from evidence.judge_drift import checked


def place(item: int, factor: str = "clarity", task: str = "t") -> ScoreKey:
    return ScoreKey(task, f"{task}-{item}", f"{task}-{item}-ann", factor)


def test_only_scores_that_both_have_are_compared_and_tasks_count_alike() -> None:
    anchor = {place(n): 0.5 for n in range(8)} | {place(n, task="u"): 1.0 for n in range(2)}
    again = {place(n): 1.0 for n in range(8)} | {place(n, task="u"): 1.0 for n in range(2)}
    del again[place(7)]
    again[place(9)] = 0.0  # the anchor has no such item
    found = compare_with_anchor("judge", anchor, again)
    assert (found.items, found.answers, found.scores, found.missing) == (9, 9, 9, 1)
    assert found.flips.mean == pytest.approx(7 / 9)
    assert found.shift.difference == pytest.approx(0.25)
    assert [(one.task, one.n, one.flips, one.shift) for one in found.factors] == [
        ("t", 7, 1.0, 0.5),
        ("u", 2, 0.0, 0.0),
    ]


def test_two_people_and_a_judge_between_them_flip_nothing_by_rounding() -> None:
    found = compare_with_anchor("judge", {place(1): 0.1 + 0.2, place(2): 0.5}, {place(1): 0.3, place(2): 0.5})
    assert found.flips.mean == 0


def test_nothing_in_common_is_refused() -> None:
    with pytest.raises(UsageError, match="scored nothing that the anchor also scores"):
        compare_with_anchor("judge", {place(1): 0.5}, {place(2): 0.5})


@pytest.mark.parametrize(("drift", "least", "most"), [(0.0, 0.0, 0.09), (0.05, 0.95, 1.0), (0.1, 0.99, 1.0)])
def test_drift_is_found_with_the_power_that_is_stated(drift: float, least: float, most: float) -> None:
    """``docs/evidence/judge-drift.md`` has more of it."""
    found = checked(60, drift, 200)
    assert least <= found.alarms <= most
    if drift:
        assert found.alarms == pytest.approx(found.expected, abs=0.04)
