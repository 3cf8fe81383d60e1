from __future__ import annotations

import numpy as np
import pytest

from coeval.analysis.intervals import clustered_mean
from coeval.analysis.pairwise.rates import draws, rate


def test_resampled_means_have_the_interval_of_the_mean() -> None:
    wins = np.random.default_rng(2).choice([0.0, 50.0, 100.0], size=80, p=[0.05, 0.15, 0.8])
    drawn = draws(80, np.random.default_rng(3), resamples=4000)
    found = rate(float(wins.mean()), drawn @ wins / 80, 80)
    assert found.standard_error == pytest.approx(wins.std() / np.sqrt(80), rel=0.05)
    mean = clustered_mean(wins / 100, range(80))
    assert mean.low is not None
    assert mean.high is not None
    assert (found.low_95, found.high_95) == pytest.approx((100 * mean.low, 100 * mean.high), abs=0.3)
    assert found.low_95 < found.low_90 < found.value < found.high_90 < found.high_95


@pytest.mark.parametrize("value", [0.0, 50.0, 100.0])
def test_where_all_items_agree_there_is_a_width(value: float) -> None:
    found = rate(value, [value] * 1000, 60)
    assert found.standard_error == 0
    assert 0 <= found.low_95 <= value <= found.high_95 <= 100
    assert 1 < found.high_95 - found.low_95 < 20


def test_one_item_has_a_rate_and_a_wide_interval_and_no_error() -> None:
    found = rate(100.0, [], 1)
    assert (found.standard_error, found.high_95) == (None, 100.0)
    assert 10 < found.low_95 < found.low_90 < 25
