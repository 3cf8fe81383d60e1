from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from published_alpaca import MODELS, needs_published, published

from coeval.analysis.pairwise.pairwise_models import (
    alpaca_length_controlled,
    alpaca_preference,
    alpaca_win_rate,
    switched_order,
)
from coeval.core.errors import Unparsable

LOGPROBS = st.floats(-700, 0)


@needs_published
def test_preferences_are_those_published_for_the_same_logprobs() -> None:
    asked = [row for row in published("alpaca-7b").rows if row["raw_completion"] is not None]
    assert len(asked) == 802
    for row in asked:
        top = row["raw_completion"]["logprobs"]["content"][0]["top_logprobs"]
        preference = alpaca_preference(top, switched_order(row["instruction"]))
        assert preference == pytest.approx(row["preference"], abs=1e-9)


@needs_published
@pytest.mark.parametrize("model", MODELS)
def test_win_rates_are_the_published_ones(model: str) -> None:
    annotations = published(model)
    rate = alpaca_win_rate(annotations.column("preference"))
    assert rate.win_rate == pytest.approx(annotations.expected["win_rate"], abs=1e-6)
    assert rate.standard_error == pytest.approx(annotations.expected["standard_error"], abs=1e-6)


@needs_published
@pytest.mark.parametrize("model", MODELS)
def test_published_weights_give_the_published_length_controlled_rate(model: str) -> None:
    annotations = published(model)
    rate = alpaca_length_controlled(annotations.expected["glm_weights"], annotations.difficulties.tolist())
    assert rate == pytest.approx(annotations.expected["length_controlled_winrate"], abs=1e-6)


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
    listed = [{"token": token, "logprob": logprob, "bytes": None} for token, logprob in top.items()]
    assert alpaca_preference(listed, switched=False) == pytest.approx(expected, abs=1e-12)


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


def test_length_controlled_rate_without_difficulties_is_the_models_strength() -> None:
    weights = {"np.tanh(std_delta_len)": -1.0, "not_gamed_baseline.astype(float)": math.log(3)}
    assert alpaca_length_controlled(weights, [4.0, -2.0]) == pytest.approx(75.0)
    with pytest.raises(ValueError, match="not_gamed_baseline"):
        alpaca_length_controlled({"intercept": 1.0}, [0.0])
    with pytest.raises(ValueError, match="at least one"):
        alpaca_length_controlled(weights, [])
