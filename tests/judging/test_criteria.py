from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import Unparsable
from coeval.judging.verdict import parse_criterion_score


@pytest.mark.parametrize("score", range(1, 11))
def test_the_scale_is_read(score: int) -> None:
    given = parse_criterion_score(f'{{"score": {score}, "reason": "so"}}')
    assert given == (score, "so", False)


@pytest.mark.parametrize(
    "reply",
    [
        '```json\n{"score": 7.0, "reason": "so"}\n```',
        'Here it is:\n{"reason": "so", "score": 7}\nDone.',
        '{"score": 7, "reason": "so"',
        "{'score': 7, 'reason': 'so'}",
    ],
)
def test_forms_of_the_same_score(reply: str) -> None:
    given = parse_criterion_score(reply)
    assert (given.score, given.reason) == (7, "so")
    assert isinstance(given.score, int)


def test_repair_is_told() -> None:
    assert parse_criterion_score('{"score": 7, "reason": "he said "no" twice"}').repaired


@pytest.mark.parametrize(
    "score",
    ["42", "0", "11", "-3", "true", "false", "null", '"8"', "7.5", "[7]", "1e400", "NaN", '{"value": 7}'],
)
def test_what_is_no_score_is_refused(score: str) -> None:
    with pytest.raises(Unparsable):
        parse_criterion_score(f'{{"score": {score}, "reason": "so"}}')


@pytest.mark.parametrize("reply", ["", "8", "Score: 8/10", '{"rating": 8}', "[8]", '[{"score": 8}]'])
def test_a_reply_without_a_score_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_criterion_score(reply)


@given(st.one_of(st.integers(), st.floats(), st.booleans(), st.text(max_size=5), st.none()))
def test_nothing_but_whole_numbers_of_the_scale_passes(value: object) -> None:
    reply = json.dumps({"score": value, "reason": ""})
    if not isinstance(value, bool) and isinstance(value, int | float) and value in range(1, 11):
        assert parse_criterion_score(reply).score == value
    else:
        with pytest.raises(Unparsable):
            parse_criterion_score(reply)
