"""What `evidence.measure_coverage` measures, on a few cells; and that its page is what it measures."""

from __future__ import annotations

import numpy as np
import pytest

from coeval.analysis.measures.score_grid import ScoreGrid
from evidence.measure_coverage import (
    END,
    MIDDLE,
    PAGE,
    RANKED,
    RANKED_ITEMS,
    REPEATS,
    World,
    coverage,
    drawn_grid,
    shown_ranks,
)
from evidence.planted import ranked, true_ranks

MEANS = {"student overall", "student score"}
SHARES = {"pair spa", "pair wpa", "judge spa_mean"}
CHANCE_CORRECTED = {"pair kappa", "judge kappa_mean", "panel icc_2_1", "panel icc_2_k"}
ALPHA = {"panel krippendorff_alpha"}


@pytest.mark.system
@pytest.mark.parametrize(
    ("world", "items", "least", "most"),
    [(MIDDLE, 6, 0.91, 1.0), (MIDDLE, 20, 0.9, 0.985), (END, 20, 0.91, 1.0), (END, 100, 0.9, 1.0)],
    ids=str,
)
def test_intervals_of_agreement_and_of_means_hold_the_truth(
    world: World, items: int, least: float, most: float
) -> None:
    """200 experiments: 90 to 98.5 % may stand for 93 to 97 %."""
    found = {one.measure: one for one in coverage(world, items, 200)}
    for measure in MEANS | SHARES | CHANCE_CORRECTED | ALPHA:
        assert least <= found[measure].coverage <= most, found[measure]
        if world is MIDDLE or items == 100:
            assert found[measure].none <= 6, "who has no interval is not counted"


@pytest.mark.system
def test_intervals_of_agreement_are_no_wider_than_they_need_be() -> None:
    """Twice 1.96 standard deviations of the measure itself over 200 runs, and a tenth."""
    found = {one.measure: one for one in coverage(MIDDLE, 40, 200)}
    for measure in SHARES | CHANCE_CORRECTED | ALPHA:
        assert found[measure].width < 1.15 * found[measure].scatter, found[measure]


@pytest.mark.system
def test_intervals_of_teachers_hold_the_truth() -> None:
    found = {one.measure: one for one in coverage(MIDDLE, 100, 200)}
    for formula in ("v1", "s2", "r3"):
        assert found[f"teacher {formula}"].coverage >= 0.88


def runs(world: World, items: int, repeats: int) -> list[ScoreGrid]:
    return [drawn_grid(world, items, np.random.default_rng(seed)) for seed in range(repeats)]


@pytest.mark.process
def test_the_true_ranks_lie_within_the_ranges() -> None:
    """In 150 runs all four at once, of which 95% are promised; what is sure is right."""
    apart, near, alike, _ = RANKED
    for world in (near, alike):
        assert ranked(world.abilities, iter(runs(world, 40, 150))).held >= 0.9, world
    found = ranked(apart.abilities, iter(runs(apart, 40, 60)))
    assert found.held == 1.0
    assert found.order >= 0.95
    assert 0.5 < found.decided < 1.0


def test_students_who_are_alike_share_their_ranks() -> None:
    assert true_ranks((0.5, 0.5, 0.35, -0.6)) == [(1, 2), (1, 2), (3, 3), (4, 4)]
    assert true_ranks((0.0, 0.0)) == [(1, 2), (1, 2)]


@pytest.mark.system
def test_its_ranks_are_those_of_1000_runs() -> None:
    shown = shown_ranks(RANKED[1], RANKED_ITEMS[0], REPEATS)
    assert shown in PAGE.read_text(encoding="utf-8"), "write it again: python -m evidence.measure_coverage"
