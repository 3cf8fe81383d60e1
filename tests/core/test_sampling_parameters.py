"""Parameters that every provider has by one name, and those of some by their own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.records import SamplingParameters

NAMES = ("temperature", "top_p", "top_k", "max_tokens", "seed", "min_p", "reasoning_effort")
NAMED = st.dictionaries(st.sampled_from(NAMES), st.integers(0, 9))


@given(NAMED, NAMED)
def test_what_is_set_later_goes_over_what_was_set(first: dict[str, Any], second: dict[str, Any]) -> None:
    parameters = SamplingParameters.of(first)
    assert parameters.to_dict() == first
    assert (parameters | SamplingParameters.of(second)).to_dict() == first | second
    left = {name: value for name, value in first.items() if name not in second}
    assert parameters.without(second).to_dict() == left


@pytest.mark.parametrize(
    ("given_", "meant"),
    [
        ({"temperature": 0, "top_p": None}, SamplingParameters(temperature=0)),
        ({"max_new_tokens": 5}, SamplingParameters(max_tokens=5)),
        ({"max_completion_tokens": 5}, SamplingParameters(rest={"max_completion_tokens": 5})),
        ({"stop": "END"}, SamplingParameters(stop=("END",))),
        ({"stop": ["a", "b"]}, SamplingParameters(stop=("a", "b"))),
        ({"min_p": 0.1, "user": None}, SamplingParameters(rest={"min_p": 0.1})),
    ],
)
def test_what_parameters_mean(given_: dict[str, Any], meant: SamplingParameters) -> None:
    assert SamplingParameters.of(given_) == meant
