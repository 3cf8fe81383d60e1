from __future__ import annotations

import numpy as np
import pytest

from coeval.analysis.intervals import clustered_mean
from coeval.analysis.pairwise.pairwise_models import clipped_mean, healthbench_score


@pytest.mark.parametrize(
    ("points", "met", "expected"),
    [
        ([7, 5, 10, -6], [True, False, True, True], 0.5),
        ([7, 5, 10, -6], [True, True, True, False], 1.0),
        ([5, -6], [False, True], -1.2),
        ([5], [False], 0.0),
        ([-6, -1], [True, False], None),
        ([], [], None),
    ],
)
def test_points_met_as_a_share_of_those_within_reach(
    points: list[float], met: list[bool], expected: float | None
) -> None:
    assert healthbench_score(points, met) == expected


def test_each_rubric_item_needs_a_verdict() -> None:
    with pytest.raises(ValueError, match="2 items, 1 verdicts"):
        healthbench_score([1, 2], [True])


def test_only_the_mean_is_clipped() -> None:
    assert clipped_mean([-1.0, 0.5, 1.0], [-1.0] * 3).mean == pytest.approx(1 / 6)
    below = clipped_mean([-1.0, -0.8, 0.1], [-2.0] * 3)
    assert below.mean == 0.0
    assert below.bootstrap_std is not None
    assert below.bootstrap_std < np.std([-1.0, -0.8, 0.1]) / np.sqrt(3) / 4  # most resamples are clipped too


def test_the_bootstrap_deviation_is_the_error_of_the_mean() -> None:
    scores = np.random.default_rng(42).uniform(0.2, 0.8, size=500).tolist()
    result = clipped_mean(scores, [-0.5] * 500)
    assert result.n == 500
    assert result.bootstrap_std == pytest.approx(np.std(scores) / np.sqrt(500), rel=0.07)
    assert result == clipped_mean(scores, [-0.5] * 500)
    assert result != clipped_mean(scores, [-0.5] * 500, seed=1)


def test_its_interval_knows_how_far_down_the_scores_can_go_and_ends_at_0() -> None:
    scores = [1.0, 0.9, 1.0, 0.2, 0.6]
    plain = clustered_mean(scores, range(5))
    assert clipped_mean(scores, [0.0] * 5).bounds == (plain.low, plain.high)
    deeper = clipped_mean(scores, [-1.0, -2.0, 0.0, -1.0, -1.0]).bounds
    assert deeper is not None
    assert plain.low is not None
    assert 0 < deeper.low < plain.low
    around = clipped_mean([-0.5, 0.4, 0.1], [-1.0] * 3).bounds
    assert around is not None
    assert (around.low, 0.2 < around.high < 0.8) == (0.0, True)


def test_surely_below_0_its_interval_is_that_of_zeros() -> None:
    far_below = clipped_mean([-1.0 + n / 1000 for n in range(40)], [-1.0] * 40)
    zeros = clustered_mean([0.0] * 40, range(40))
    assert (far_below.mean, far_below.bounds) == (0.0, (zeros.low, zeros.high))


def test_nothing_has_no_mean_and_a_failure_is_no_value() -> None:
    assert clipped_mean([], []) == (None, None, None, 0)
    with pytest.raises(ValueError, match="leave out what has no score"):
        clipped_mean([0.5, float("nan")], [0.0, 0.0])
