"""Preferences of AlpacaEval: win rates as published, and with length controlled."""

from __future__ import annotations

import json
import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from written_run import REFERENCE, WHY_SKIPPED

from coeval.analysis.intervals import clustered_mean
from coeval.analysis.pairwise.alpaca import (
    GamedAnnotations,
    LengthControl,
    alpaca_preference,
    alpaca_win_rate,
    fit_length_control,
    switched_order,
)
from coeval.analysis.pairwise.rates import draw_counts, fit_logistic, rate_with_spread
from coeval.core.errors import Unparsable

# Published AlpacaEval annotations, as the pairwise tests read them.

ALPACA = REFERENCE / "alpaca_eval"
MODELS = ("FuseChat-Llama-3.2-3B-Instruct", "alpaca-7b")

needs_published = pytest.mark.skipif(not ALPACA.exists(), reason=WHY_SKIPPED)


class Published(NamedTuple):
    """A model's annotations, its expected figures, and the difficulties in the annotations' order."""

    rows: list[dict[str, Any]]
    expected: dict[str, Any]
    difficulties: NDArray[np.float64]

    def column(self, name: str) -> list[float]:
        return [row[name] for row in self.rows]


def published(model: str) -> Published:
    lines = (ALPACA / f"{model}.annotations.jsonl").read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    table = json.loads((ALPACA / "instruction_difficulty.json").read_text(encoding="utf-8"))
    expected = json.loads((ALPACA / "expected.json").read_text(encoding="utf-8"))[model]
    return Published(rows, expected, np.array([table[row["instruction"]] for row in rows]))


LOGPROBS = st.floats(-700, 0)


@needs_published
def test_preferences_are_those_published_for_the_same_logprobs() -> None:
    requested = [row for row in published("alpaca-7b").rows if row["raw_completion"] is not None]
    assert len(requested) == 802
    for row in requested:
        top = row["raw_completion"]["logprobs"]["content"][0]["top_logprobs"]
        logprobs = {entry["token"]: entry["logprob"] for entry in top}
        preference = alpaca_preference(logprobs, switched_order(row["instruction"]))
        assert preference == pytest.approx(row["preference"], abs=1e-9)


@needs_published
@pytest.mark.parametrize("model", MODELS)
def test_win_rates_are_the_published_ones(model: str) -> None:
    annotations = published(model)
    rate = alpaca_win_rate(annotations.column("preference"))
    assert rate.win_rate == pytest.approx(annotations.expected["win_rate"], abs=1e-6)
    assert rate.standard_error == pytest.approx(annotations.expected["standard_error"], abs=1e-6)


@given(LOGPROBS, LOGPROBS)
def test_the_order_is_undone(m: float, big_m: float) -> None:
    straight = alpaca_preference({"m": m, "M": big_m}, switched=False)
    switched = alpaca_preference({"M": m, "m": big_m}, switched=True)
    assert straight == pytest.approx(switched, abs=1e-12)
    assert 1 <= straight <= 2
    assert (straight > 1.5) == (big_m > m) or math.isclose(m, big_m, abs_tol=1e-12)


@pytest.mark.parametrize(
    ("top", "expected"),
    [
        ({"m": math.log(0.25), "M": math.log(0.75)}, 1.75),
        ({"M": -0.01, "The": -5.0}, 2.0),  # a token that is not listed has probability 0, as published
        ({"m": -9999.0, "M": -2.0}, 2.0),
        ({"m": -9999.0, "M": -9999.0}, 1.5),
        ({"M": math.log(0.6), "m": math.log(0.2), " m": math.log(0.2)}, 1.75),  # as published: exact tokens
        ({" M": math.log(0.6), " m": math.log(0.2)}, 1.75),
        ({"▁m": math.log(0.5), "m": math.log(0.1), "ĠM": math.log(0.2)}, 1.25),
        ({"M\n": -0.1}, 2.0),
    ],
)
def test_what_counts_as_an_answer(top: dict[str, float], expected: float) -> None:
    assert alpaca_preference(top, switched=False) == pytest.approx(expected, abs=1e-12)
    assert alpaca_preference(top, switched=True) == pytest.approx(3 - expected, abs=1e-12)


@pytest.mark.parametrize("top", [{}, {"The": -0.1, "Mm": -3.0}, {"m": float("-inf")}, {"M": float("nan")}])
def test_no_answer_is_no_preference(top: dict[str, float]) -> None:
    with pytest.raises(Unparsable, match="neither 'm' nor 'M'"):
        alpaca_preference(top, switched=False)


def test_the_order_is_drawn_per_instruction_and_never_changes() -> None:
    drawn = [switched_order(f"Name {count} rivers.") for count in range(400)]
    assert drawn == [switched_order(f"Name {count} rivers.") for count in range(400)]
    assert 150 < sum(drawn) < 250


def test_few_preferences() -> None:
    assert alpaca_win_rate([]) == (None, None)
    assert alpaca_win_rate([1.25]) == (25.0, None)
    assert alpaca_win_rate([0, 1.5]) == (50.0, 0.0)


@pytest.mark.parametrize("wrong", [0.5, 2.01, -1.0, float("nan")])
def test_a_failed_judgment_is_never_averaged(wrong: float) -> None:
    with pytest.raises(ValueError, match="leave out what failed"):
        alpaca_win_rate([1.5, wrong])


# test_pairwise_length

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


def rate_of(fit: LengthControl, difficulties: NDArray[np.float64]) -> float:
    """The published formula: ``100 · mean_i σ(w_model + w_difficulty · d_i)``."""
    margins = fit.weights[MODEL] + fit.weights.get(DIFFICULTY, 0.0) * difficulties
    return 100 * float((1 / (1 + np.exp(-margins))).mean())


@pytest.mark.process
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
    assert fit.win_rate.value == pytest.approx(rate_of(fit, annotations.difficulties), abs=1e-9)


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
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


@pytest.mark.process
def test_without_difficulties_the_minimal_formula() -> None:
    invented = Invented()
    fit = fit_length_control(invented.preferences.tolist(), invented.lengths, invented.baseline_lengths)
    assert fit is not None
    assert fit.formula == "length_controlled_minimal"
    assert set(fit.weights) == {LENGTH, MODEL}
    assert fit.win_rate.value == pytest.approx(rate_of(fit, np.zeros(1)), abs=1e-9)
    assert fit.win_rate.value == pytest.approx(invented.truth, abs=4)


@pytest.mark.process
def test_a_missing_preference_counts_in_the_prediction_only() -> None:
    invented = Invented(60)
    some: list[float | None] = invented.preferences.tolist()
    some[::6] = [None] * 10
    fit = fit_length_control(some, invented.lengths, invented.baseline_lengths, invented.difficulties)
    assert fit is not None
    assert fit.n == 50
    assert fit.win_rate.value == pytest.approx(rate_of(fit, invented.difficulties), abs=1e-9)


def test_equal_lengths_leave_nothing_to_control() -> None:
    preferences = np.random.default_rng(3).uniform(1, 2, size=200)
    fit = fit_length_control(preferences.tolist(), np.full(200, 900), np.full(200, 900))
    assert fit is not None
    assert fit.weights[LENGTH] == 0
    assert fit.win_rate.value == pytest.approx(100 * (preferences.mean() - 1), abs=1.5)


@pytest.mark.process
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


# test_pairwise_rates


def test_resampled_means_have_the_interval_of_the_mean() -> None:
    wins = np.random.default_rng(2).choice([0.0, 50.0, 100.0], size=80, p=[0.05, 0.15, 0.8])
    drawn = draw_counts(80, np.random.default_rng(3), resamples=4000)
    found = rate_with_spread(float(wins.mean()), drawn @ wins / 80, 80)
    assert found.standard_error == pytest.approx(wins.std() / np.sqrt(80), rel=0.05)
    mean = clustered_mean(wins / 100, range(80))
    assert mean.low is not None
    assert mean.high is not None
    assert (found.low_95, found.high_95) == pytest.approx((100 * mean.low, 100 * mean.high), abs=0.3)
    assert found.low_95 < found.low_90 < found.value < found.high_90 < found.high_95


@pytest.mark.parametrize("value", [0.0, 50.0, 100.0])
def test_where_all_items_agree_there_is_a_width(value: float) -> None:
    found = rate_with_spread(value, [value] * 1000, 60)
    assert found.standard_error == 0
    assert 0 <= found.low_95 <= value <= found.high_95 <= 100
    assert 1 < found.high_95 - found.low_95 < 20


def test_one_item_has_a_rate_and_a_wide_interval_and_no_error() -> None:
    found = rate_with_spread(100.0, [], 1)
    assert (found.standard_error, found.high_95) == (None, 100.0)
    assert 10 < found.low_95 < found.low_90 < 25


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
