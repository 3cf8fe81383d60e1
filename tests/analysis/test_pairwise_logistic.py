from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from coeval.analysis.pairwise.rates import fit_logistic


def example(count: int = 300) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    rng = np.random.default_rng(7)
    features = np.column_stack([np.ones(count), rng.normal(size=(count, 3))])
    chance = 1 / (1 + np.exp(-features @ [0.4, -1.2, 0.0, 0.7]))
    targets = np.clip(chance + rng.normal(scale=0.2, size=count), 0, 1)
    return features, targets, rng.integers(0, 4, size=(3, count)).astype(np.float64)


def test_equals_a_binomial_model_for_each_row_of_weights() -> None:
    api = pytest.importorskip("statsmodels.api")
    features, targets, weights = example()
    fits = fit_logistic(features, targets, weights)
    for row, fit in zip(weights, fits, strict=True):
        used = row > 0  # statsmodels takes the logarithm of what weighs nothing
        oracle = api.GLM(targets[used], features[used], family=api.families.Binomial(), var_weights=row[used])
        assert fit == pytest.approx(oracle.fit(tol=1e-12).params, abs=1e-6)


@pytest.mark.parametrize("strength", [0.1, 5.0, 40.0, 500.0])
def test_the_lasso_equals_scikit_learns(strength: float) -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    features, targets, weights = example()
    count = len(targets)
    oracle = linear_model.LogisticRegression(
        C=1 / strength, l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-10, max_iter=10_000
    )
    oracle.fit(
        np.vstack([features, features]),
        np.repeat([1, 0], count),
        sample_weight=np.concatenate([targets, 1 - targets]) * np.tile(weights[0], 2),
    )
    fit = fit_logistic(features, targets, weights[:1], l1=strength)[0]
    assert fit == pytest.approx(oracle.coef_[0], abs=1e-5)
    assert (fit == 0).any() == (strength >= 40)


def test_strengths_of_many_players_are_bradley_terrys() -> None:
    choix = pytest.importorskip("choix")
    rng = np.random.default_rng(2)
    strengths = np.array([0.9, 0.1, -0.3, -0.7])
    pairs = [rng.choice(4, size=2, replace=False) for _ in range(400)]
    games = [
        (a, b) if rng.random() < 1 / (1 + np.exp(strengths[b] - strengths[a])) else (b, a) for a, b in pairs
    ]
    expected = choix.opt_pairwise(4, games, tol=1e-9)
    columns = np.zeros((len(games), 4))
    for row, (winner, loser) in zip(columns, games, strict=True):
        row[winner], row[loser] = 1, -1
    fit = fit_logistic(columns, np.ones(len(games)), np.ones((1, len(games))))[0]
    assert fit - fit.mean() == pytest.approx(expected - expected.mean(), abs=1e-4)


def test_perfect_separation_ends_with_finite_coefficients() -> None:
    features = np.ones((20, 1))
    won, lost = (fit_logistic(features, np.full(20, target), np.ones((1, 20)))[0, 0] for target in (1.0, 0.0))
    assert 10 < won < 30
    assert lost == pytest.approx(-won, abs=1e-6)


def test_a_column_of_nothing_gets_no_coefficient() -> None:
    features, targets, weights = example()
    features[:, 2] = 0
    for strength in (0.0, 1.0):
        assert (fit_logistic(features, targets, weights, l1=strength)[:, 2] == 0).all()


def test_huge_margins_do_not_throw_the_search_off() -> None:
    features, targets, weights = example()
    scaled = features * [1, 1e4, 1, 1]
    plain, large = fit_logistic(features, targets, weights), fit_logistic(scaled, targets, weights)
    assert large[:, 1] * 1e4 == pytest.approx(plain[:, 1], abs=1e-4)


@pytest.mark.parametrize("l1", [1e-4, 7.7e-4, 0.05, 2.8])
def test_the_minimum_is_found_where_features_are_nearly_collinear(l1: float) -> None:
    """A dozen answers that are all shorter and nearly all better: its slopes are within the penalty's."""
    rng = np.random.default_rng(2)
    apart = rng.integers(500, 3000, size=12)
    features = np.column_stack([np.tanh(apart / apart.std()), np.zeros(12), np.ones(12)])
    targets = 1 - 0.02 * rng.random(12)
    weights = np.vstack([np.ones(12), rng.multinomial(12, np.full(12, 1 / 12), size=20)])
    fitted = fit_logistic(features, targets, weights, l1=l1)
    chance = 1 / (1 + np.exp(-fitted @ features.T))
    slopes = (weights * (chance - targets)) @ features
    at_zero = fitted == 0
    assert np.abs(slopes[at_zero]).max() <= l1 + 1e-5
    assert slopes[~at_zero] == pytest.approx(-l1 * np.sign(fitted[~at_zero]), abs=1e-4)
    assert (fitted[:, 1] == 0).all()
