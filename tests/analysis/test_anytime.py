"""Tests that hold at any look: exact where the mixture is, and rarely wrong however often one looks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import integrate, optimize, stats

from coeval.analysis.intervals import (
    Bounds,
    Looks,
    alpha_at_any_look,
    bounds_at_level,
    combine_looks,
    detectable_gap_at_any_look,
    p_value_at_any_look,
)

MANY = Looks(3, 0.6)


def test_one_look_costs_nothing() -> None:
    for looks in (None, Looks(1, 0.4), Looks(1, 1.0)):
        assert p_value_at_any_look(0.04, looks) == 0.04
        assert alpha_at_any_look(0.025, looks) == 0.025
    assert Looks(1, 0.4, growing=True).is_repeated


@pytest.mark.parametrize("share", [0.05, 0.3, 1.0])
@pytest.mark.parametrize("z", [1.0, 2.5, 4.0])
def test_it_is_the_mixture_of_likelihood_ratios(share: float, z: float) -> None:
    """E is the integral of exp(θ S − θ² t / 2) over normal θ, with S = z √t."""
    variance = -2 * np.log(0.05) + np.log(1 - 2 * np.log(0.05))

    def ratio(theta: float) -> float:
        weight = stats.norm.pdf(theta, scale=np.sqrt(variance))
        return float(np.exp(theta * z * np.sqrt(share) - theta**2 * share / 2) * weight)

    expected, _ = integrate.quad(ratio, -40, 40)
    p = 2 * stats.norm.sf(z)
    assert p_value_at_any_look(p, Looks(2, share)) == pytest.approx(max(p, min(1.0, 1 / expected)), rel=1e-6)


def test_interval_level_and_p_value_say_the_same() -> None:
    """A difference whose p-value is 5% at any look is the arm of the interval; so is the one-sided level."""
    z = optimize.brentq(lambda z: p_value_at_any_look(2 * stats.norm.sf(z), MANY) - 0.05, 1, 9)
    low, high = bounds_at_level(0.0, Bounds(-0.0196, 0.0196), 1_000_000, 0.05, MANY)
    assert high == -low == pytest.approx(0.01 * z, rel=1e-4)
    assert alpha_at_any_look(0.025, MANY) == pytest.approx(stats.norm.sf(z), rel=1e-6)
    few = bounds_at_level(0.0, Bounds(-0.0196, 0.0196), 5, 0.05, MANY)
    assert few.high > high


def test_the_interval_is_narrowest_at_the_planned_items() -> None:
    """In standard errors of all items: √t arms, whose quotient with t is least at t = 1."""
    arms = [bounds_at_level(0.0, Bounds(-0.01, 0.01), 10**6, 0.05, Looks(2, t)).high for t in (0.2, 0.6, 1.0)]
    assert arms == sorted(arms, reverse=True)


def test_whoever_looks_ten_times_is_not_fooled() -> None:
    draw = np.random.default_rng(5)
    sums = np.cumsum(draw.standard_normal((4_000, 10)), axis=1) / np.sqrt(np.arange(1, 11))
    p = 2 * stats.norm.sf(np.abs(sums))
    sure = [
        [p_value_at_any_look(one, Looks(n + 1, (n + 1) / 10, n < 9)) < 0.05 for n, one in enumerate(row)]
        for row in p
    ]
    assert (p < 0.05).any(axis=1).mean() > 0.15
    assert np.any(sure, axis=1).mean() < 0.05


def test_a_comparison_is_as_often_looked_at_as_the_run_looked_at_most() -> None:
    assert combine_looks((None, Looks(1, 0.3))) is None
    assert combine_looks((Looks(2, 0.9), Looks(1, 0.3), Looks(4, 0.5))) == Looks(4, 0.5)
    assert [Looks(n, 1.0).in_words for n in (2, 3, 12)] == ["second look", "third look", "look 12"]


def test_what_a_test_at_any_look_finds_is_larger() -> None:
    """At the difference it names, 80 of 100 tests at any look are significant, of one pair and of six."""
    least = (stats.norm.isf(0.025) + stats.norm.ppf(0.8)) * 0.01
    for family in (1, 6):
        fixed = least if family == 1 else (stats.norm.isf(0.025 / family) + stats.norm.ppf(0.8)) * 0.01
        found = detectable_gap_at_any_look(fixed, MANY, power=0.8, family=family)
        drawn = np.random.default_rng(3).normal(found / 0.01, size=4_000)
        p = [p_value_at_any_look(2 * float(stats.norm.sf(abs(z))), MANY) for z in drawn]
        assert np.mean(np.array(p) < 0.05 / family) == pytest.approx(0.8, abs=0.02)
