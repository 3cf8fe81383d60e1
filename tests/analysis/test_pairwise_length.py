from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from published_alpaca import MODELS, needs_published, published

from coeval.analysis.pairwise.pairwise_models import (
    GamedAnnotations,
    alpaca_length_controlled,
    fit_length_control,
)

LENGTH, DIFFICULTY, MODEL = (
    "np.tanh(std_delta_len)",
    "instruction_difficulty",
    "not_gamed_baseline.astype(float)",
)


class Invented:
    """Preferences drawn from known weights, for a model that writes more than the baseline."""

    def __init__(self, count: int = 600) -> None:
        rng = np.random.default_rng(11)
        self.baseline_lengths = rng.integers(500, 3000, size=count)
        self.lengths = self.baseline_lengths + rng.normal(600, 700, size=count).round()
        self.difficulties = rng.normal(size=count)
        apart = self.baseline_lengths - self.lengths
        margins = -1.5 * np.tanh(apart / apart.std(ddof=1)) + 0.8 * self.difficulties - 0.5
        self.truth = 100 * float((1 / (1 + np.exp(0.5 - 0.8 * self.difficulties))).mean())
        self.preferences = 1 + 1 / (1 + np.exp(-margins - rng.normal(scale=0.3, size=count)))

    @property
    def gamed(self) -> GamedAnnotations:
        apart = np.concatenate([np.full(len(self.lengths), 1.2), np.full(len(self.lengths), -0.9)])
        difficulties = np.tile(self.difficulties, 2)
        shares = 1 / (1 + np.exp(0.9 * np.tanh(apart) - 0.2 * difficulties))
        return GamedAnnotations(tuple(shares), tuple(apart), tuple(difficulties))


@needs_published
@pytest.mark.parametrize("model", MODELS)
def test_fitted_weights_are_near_the_published_regularised_ones(model: str) -> None:
    annotations = published(model)
    fit = fit_length_control(
        annotations.column("preference"),
        annotations.column("len_output_2"),
        annotations.column("len_output_1"),
        annotations.difficulties,
    )
    assert fit is not None
    assert fit.formula == "length_controlled_noreg"
    assert fit.n == 805
    assert fit.win_rate.value == pytest.approx(annotations.expected["length_controlled_winrate"], abs=1.0)
    for name, weight in annotations.expected["glm_weights"].items():
        assert fit.weights[name] == pytest.approx(weight, rel=0.45)
    assert fit.win_rate.value == pytest.approx(
        alpaca_length_controlled(fit.weights, annotations.difficulties.tolist()), abs=1e-9
    )


def test_takes_length_out_and_finds_the_truth() -> None:
    invented = Invented()
    raw = 100 * float(invented.preferences.mean() - 1)
    fit = fit_length_control(
        invented.preferences.tolist(), invented.lengths, invented.baseline_lengths, invented.difficulties
    )
    assert fit is not None
    assert raw > invented.truth + 10
    assert fit.win_rate.value == pytest.approx(invented.truth, abs=2)
    assert fit.weights[LENGTH] == pytest.approx(-1.5, abs=0.1)
    assert fit.weights[DIFFICULTY] == pytest.approx(0.8, abs=0.1)
    assert fit.win_rate.low_95 is not None
    assert fit.win_rate.high_95 is not None
    assert fit.win_rate.low_95 < invented.truth < fit.win_rate.high_95


@pytest.mark.slow
def test_the_published_procedure_by_another_library_agrees() -> None:
    """Cross-validation over ten penalties and the refit, with the gamed baselines at weight 0.1."""
    invented = Invented(300)
    gamed = invented.gamed
    apart = invented.baseline_lengths - invented.lengths
    pull = np.tanh(np.concatenate([gamed.std_delta_lengths, apart / apart.std(ddof=1)]))
    own = np.repeat([0.0, 1.0], [len(pull) - len(apart), len(apart)])
    features = np.column_stack([pull, np.concatenate([gamed.difficulties, invented.difficulties]), own])
    shares = np.concatenate([gamed.win_shares, invented.preferences - 1])
    chosen, coefficients = cross_validated(features, shares, np.where(own == 1, 1.0, 0.1))

    fit = fit_length_control(
        invented.preferences.tolist(),
        invented.lengths,
        invented.baseline_lengths,
        invented.difficulties,
        gamed=gamed,
    )
    assert fit is not None
    assert fit.formula == "length_controlled_v1"
    assert fit.inverse_penalty == pytest.approx(chosen)
    assert [fit.weights[name] for name in (LENGTH, DIFFICULTY, MODEL)] == pytest.approx(
        coefficients, abs=1e-4
    )


def cross_validated(
    features: NDArray[np.float64], shares: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[float, list[float]]:
    linear_model = pytest.importorskip("sklearn.linear_model")
    count = len(shares)

    def fitted(inverse_penalty: float, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        model = linear_model.LogisticRegression(
            C=inverse_penalty, l1_ratio=1, solver="liblinear", fit_intercept=False, tol=1e-9, max_iter=5000
        )
        split = np.concatenate([shares[rows], 1 - shares[rows]]) * np.tile(weights[rows], 2)
        model.fit(np.vstack([features[rows]] * 2), np.repeat([1, 0], len(rows)), sample_weight=split)
        coefficients: NDArray[np.float64] = model.coef_[0]
        return coefficients

    losses = {}
    for inverse_penalty in np.logspace(-4, 4, 10).tolist():
        by_fold = []
        for fold in range(5):
            out = np.arange(count)[::-1] % 5 == fold
            chance = 1 / (1 + np.exp(-features[out] @ fitted(inverse_penalty, np.flatnonzero(~out))))
            loss = -(shares[out] * np.log(chance) + (1 - shares[out]) * np.log(1 - chance))
            by_fold.append(np.mean(weights[out] * loss))
        losses[inverse_penalty] = np.mean(by_fold)
    best = min(losses, key=lambda penalty: losses[penalty])
    return best, fitted(best, np.arange(count)).tolist()


def test_the_gamed_baselines_pull_the_length_weight_toward_theirs() -> None:
    invented = Invented(100)
    arguments = (
        invented.preferences.tolist(),
        invented.lengths,
        invented.baseline_lengths,
        invented.difficulties,
    )
    free, held = fit_length_control(*arguments), fit_length_control(*arguments, gamed=invented.gamed)
    assert free is not None
    assert held is not None
    assert free.weights[LENGTH] < held.weights[LENGTH] < -0.9


def test_without_difficulties_the_minimal_formula() -> None:
    invented = Invented()
    fit = fit_length_control(invented.preferences.tolist(), invented.lengths, invented.baseline_lengths)
    assert fit is not None
    assert fit.formula == "length_controlled_minimal"
    assert set(fit.weights) == {LENGTH, MODEL}
    assert fit.win_rate.value == pytest.approx(alpaca_length_controlled(fit.weights, [0.0]), abs=1e-9)
    assert fit.win_rate.value == pytest.approx(invented.truth, abs=4)


def test_a_missing_preference_counts_in_the_prediction_only() -> None:
    invented = Invented(60)
    some: list[float | None] = invented.preferences.tolist()
    some[::6] = [None] * 10
    fit = fit_length_control(some, invented.lengths, invented.baseline_lengths, invented.difficulties)
    assert fit is not None
    assert fit.n == 50
    predicted = alpaca_length_controlled(fit.weights, invented.difficulties.tolist())
    assert fit.win_rate.value == pytest.approx(predicted, abs=1e-9)


def test_equal_lengths_leave_nothing_to_control() -> None:
    preferences = np.random.default_rng(3).uniform(1, 2, size=200)
    fit = fit_length_control(preferences.tolist(), np.full(200, 900), np.full(200, 900))
    assert fit is not None
    assert fit.weights[LENGTH] == 0
    assert fit.win_rate.value == pytest.approx(100 * (preferences.mean() - 1), abs=1.5)


def test_is_the_same_each_time_and_refuses_what_it_cannot_use() -> None:
    invented = Invented(40)
    preferences: list[float | None] = invented.preferences.tolist()
    lengths, baseline = invented.lengths, invented.baseline_lengths
    assert fit_length_control(preferences, lengths, baseline) == fit_length_control(
        preferences, lengths, baseline
    )
    assert fit_length_control(preferences[:4], lengths[:4], baseline[:4]) is None
    assert fit_length_control([], [], []) is None
    with pytest.raises(ValueError, match="equally long"):
        fit_length_control(preferences, lengths[:-1], baseline[:-1])
    with pytest.raises(ValueError, match="1 … 2"):
        fit_length_control([*preferences[:-1], 2.5], lengths, baseline)
    with pytest.raises(ValueError, match="difficulties"):
        fit_length_control(preferences, lengths, baseline, gamed=invented.gamed)


@pytest.mark.parametrize("count", [99, 100])
def test_a_rate_that_the_penalty_decides_shows_no_interval(count: int) -> None:
    invented = Invented(count)
    fit = fit_length_control(invented.preferences.tolist(), invented.lengths, invented.baseline_lengths)
    assert fit is not None
    shown = fit.as_plain()["win_rate"]
    assert shown["value"] == fit.win_rate.value
    assert fit.has_interval == (count == 100)
    assert (shown["low_95"] is not None, shown["standard_error"] is not None) == (count == 100,) * 2
