from __future__ import annotations

import pytest

from coeval.core.errors import Unparsable
from coeval.judging.verdict import parse_criteria_met


@pytest.mark.parametrize("met", [True, False])
def test_met_or_not(met: bool) -> None:
    word = str(met).lower()
    reply = f'```json\n{{"explanation": "because", "criteria_met": {word}}}\n```'
    assert parse_criteria_met(reply) == (met, "because", False)
    assert parse_criteria_met(f'{{"criteria_met": {word}}}').met is met


@pytest.mark.parametrize("value", ['"true"', "1", "0", "null", '"yes"', "[true]", '{"is": true}'])
def test_only_a_truth_value_is_a_verdict(value: str) -> None:
    with pytest.raises(Unparsable):
        parse_criteria_met(f'{{"explanation": "because", "criteria_met": {value}}}')


@pytest.mark.parametrize("reply", ["", "true", "The criteria are met.", '{"met": true}'])
def test_a_reply_without_a_verdict_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_criteria_met(reply)
