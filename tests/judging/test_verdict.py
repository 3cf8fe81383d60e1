"""What a judge's reply says: levels, grades, criteria met, preferences, log-probabilities."""

from __future__ import annotations

import json
from collections.abc import Iterable
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.analysis.pairwise.arena import VERDICTS
from coeval.core.errors import Unparsable
from coeval.core.records import LEVELS, Completion, Level, TokenLogprob
from coeval.core.scale import HIGH_MEDIUM_LOW, parse_scale
from coeval.judging import verdict
from coeval.judging.verdict import (
    Levels,
    answer_logprobs,
    criterion_hash,
    is_lost_in_reasoning,
    order_answers,
    parse_and_check_last_label,
    parse_criteria_met,
    parse_criterion_score,
    parse_identifier,
    parse_level,
    parse_levels,
)

FACTORS = ("accuracy", "issue_resolution")
BOTH: dict[str, Level] = {"accuracy": "High", "issue_resolution": "Low"}


def find_levels(reply: str, factors: Iterable[str]) -> Levels:
    """Read a reply about factors on the default scale."""
    return parse_levels(reply, dict.fromkeys(factors, HIGH_MEDIUM_LOW))


@pytest.mark.parametrize(
    "reply",
    [
        '{"accuracy": "High", "issue_resolution": "Low"}',
        'Here:\n```json\n{"accuracy": "HIGH", "issue_resolution": " low "}\n```',
        "{'accuracy': 'high', 'issue_resolution': 'low',}",
        '{"Accuracy": "High", "Issue Resolution": "Low", "extra": "Medium"}',
        '{"accuracy": "High", "issue-resolution": "Low"}',
        '{"scores": {"accuracy": "High", "issue_resolution": "Low"}, "comment": "High"}',
        '{"accuracy": {"score": "High", "why": "…"}, "issue_resolution": {"level": "Low"}}',
        '[{"factor": "accuracy", "score": "High"}, {"factor": "issue_resolution", "score": "Low"}]',
        '{"scores": [{"name": "accuracy", "level": "High"}, {"name": "Issue resolution", "level": "Low"}]}',
        '[{"accuracy": "High"}, {"issue_resolution": "Low"}]',
    ],
)
def test_levels_are_read_in_every_common_shape(reply: str) -> None:
    assert find_levels(reply, FACTORS)[:2] == (BOTH, ())


@pytest.mark.parametrize(
    "value",
    [
        "8/10",
        "medium-high",
        "Very High",
        "",
        "High!",
        "High/Medium",
        None,
        3,
        True,
        ["High"],
        {"why": "High"},
    ],
)
def test_any_other_value_is_missing_never_a_default(value: object) -> None:
    levels = find_levels(json.dumps({"accuracy": value, "issue_resolution": "Low"}), FACTORS)[:2]
    assert levels == ({"issue_resolution": "Low"}, ("accuracy",))


def test_factors_that_are_not_mentioned_are_missing_in_the_order_asked() -> None:
    assert find_levels('{"b": "High", "z": "Low"}', ("c", "b", "a"))[:2] == ({"b": "High"}, ("c", "a"))
    assert find_levels('{"verdict": "High"}', ("c",))[:2] == ({}, ("c",))


def test_a_factor_named_like_a_container_is_still_a_factor() -> None:
    assert find_levels('{"scores": "Low"}', ("scores",))[:2] == ({"scores": "Low"}, ())


def test_factors_that_differ_in_spelling_only_need_their_exact_names() -> None:
    factors = ("tone", "Tone")
    assert find_levels('{"tone": "High", "Tone": "Low"}', factors).scores == {"tone": "High", "Tone": "Low"}
    assert find_levels('{"TONE": "High"}', factors).missing == factors


@pytest.mark.parametrize("reply", ["", "High", "accuracy is High and issue_resolution is Low"])
def test_a_reply_without_json_is_unparsable_and_kept(reply: str) -> None:
    with pytest.raises(Unparsable) as caught:
        find_levels(reply, FACTORS)
    assert caught.value.raw == reply


@given(st.dictionaries(st.text(min_size=1, max_size=12), st.sampled_from(LEVELS), max_size=6))
def test_what_a_judge_writes_under_the_exact_names_is_what_is_read(scores: dict[str, Level]) -> None:
    assert find_levels("Scores: " + json.dumps(scores), tuple(scores))[:2] == (scores, ())


@pytest.mark.parametrize(
    "reply",
    [
        "High",
        " high\n",
        "High.",
        "**High**",
        '"High"',
        "`HIGH`",
        "Score: High",
        "**Final score:** High.",
        "issue_resolution: High",
        '{"score": "High"}',
        '```json\n{"score": "high"}\n```',
        '{"accuracy": {"score": "High"}}',
        '["High"]',
    ],
)
def test_one_level(reply: str) -> None:
    assert parse_level(reply).value == "High"


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I would say High",
        "not High",
        "High or Medium",
        "High: it is right",
        "Very High",
        "8/10",
        "I could not possibly call this: High",
        "accuracy: High\nbrevity: Low",
        '{"score": "8/10"}',
        '{"score": null}',
        '{"accuracy": "High", "brevity": "Low"}',
        '{"score": "High", "score": "Low"}',
        '{"score": "High"} {"score": "Low"}',
        "{'score': 'High', 'score': 'Low'}",
        "High: Low",
        '{"score": ["High", "Low"]}',
        "{}",
        "[]",
    ],
)
def test_anything_else_is_no_level(reply: str) -> None:
    with pytest.raises(Unparsable) as caught:
        parse_level(reply)
    assert caught.value.raw == reply


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
    assert (given.value, given.reason) == (7, "so")
    assert isinstance(given.value, int)


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
        assert parse_criterion_score(reply).value == value
    else:
        with pytest.raises(Unparsable):
            parse_criterion_score(reply)


def test_the_hash_follows_the_words_not_the_wrapping() -> None:
    assert len(criterion_hash("It is right.")) == 8
    assert criterion_hash("It is\n  right.\n") == criterion_hash("It is right.")
    assert criterion_hash("It is right") != criterion_hash("It is right.")


@pytest.mark.parametrize("met", [True, False])
def test_met_or_not(met: bool) -> None:
    word = str(met).lower()
    reply = f'```json\n{{"explanation": "because", "criteria_met": {word}}}\n```'
    assert parse_criteria_met(reply) == (met, "because", False)
    assert parse_criteria_met(f'{{"criteria_met": {word}}}').value is met


@pytest.mark.parametrize("value", ['"true"', "1", "0", "null", '"yes"', "[true]", '{"is": true}'])
def test_only_a_truth_value_is_a_verdict(value: str) -> None:
    with pytest.raises(Unparsable):
        parse_criteria_met(f'{{"explanation": "because", "criteria_met": {value}}}')


@pytest.mark.parametrize("reply", ["", "true", "The criteria are met.", '{"met": true}'])
def test_a_reply_without_a_verdict_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_criteria_met(reply)


@pytest.mark.parametrize("label", VERDICTS)
def test_every_verdict_is_read_in_brackets(label: str) -> None:
    assert parse_and_check_last_label(f"My final verdict is: [[{label}]].", VERDICTS) == label
    assert parse_and_check_last_label(f"My final verdict is: [[{label.lower()}]]", VERDICTS) == label
    assert parse_and_check_last_label(f"verdict: [{label}]", VERDICTS) == label


def test_the_last_verdict_counts_and_double_brackets_go_first() -> None:
    assert parse_and_check_last_label("At first [[A>B]], but on reflection [[B>>A]]", VERDICTS) == "B>>A"
    assert parse_and_check_last_label("[[A=B]] is my verdict; see [B>A]", VERDICTS) == "A=B"


@pytest.mark.parametrize(
    "reply",
    ["", "A is better", "A>>B", "[[A]]", "[[A>B>B]]", "[[A>A]]", "[[A>B]] or rather [[B]]", "[[C>A]]"],
)
def test_what_is_no_verdict_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_and_check_last_label(reply, VERDICTS)


@pytest.mark.parametrize(
    ("reply", "named"),
    [
        ("M", "M"),
        ("m", "m"),
        (" M\n", "M"),
        ("**M**", "M"),
        ('"m".', "m"),
        ("I'm going with M", "M"),
        ("I’m going with m.", "m"),
        ("M. It is the more complete one.", "M"),
        ("m - shorter, and right", "m"),
        ("The best model is `M`.", "M"),
        ("m says more than M does, and it is right.\n\nm", "m"),
        ("M\n\nModel m is too terse.", "M"),
    ],
)
def test_the_model_named_in_words_is_found(reply: str, named: str) -> None:
    assert parse_identifier(reply) == named


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "I'm not sure",
        "both",
        "M is too long",
        "M or m",
        "I prefer M over m",
        "M\nm",
        "Model B",
        "mM",
        "I’m",
    ],
)
def test_what_names_no_model_or_two_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_identifier(reply)


@given(st.text(alphabet="mM .'\n*ab", max_size=30))
def test_a_named_model_stands_as_a_word_of_the_reply(reply: str) -> None:
    try:
        named = parse_identifier(reply)
    except Unparsable:
        return
    assert named in reply
    assert parse_identifier(reply.swapcase()) != named


def test_orders_show_the_same_two_answers() -> None:
    assert order_answers("baseline-first", "ours", "theirs") == ("theirs", "ours")
    assert order_answers("model-first", "ours", "theirs") == ("ours", "theirs")


def token(text: str, **top: float) -> TokenLogprob:
    return TokenLogprob(text, -0.1, top)


def test_the_first_token_of_a_short_answer() -> None:
    said = Completion("M", logprobs=(token("M", M=-0.1, m=-2.3),))
    assert answer_logprobs(said) == {"M": -0.1, "m": -2.3}


def test_a_token_without_alternatives_is_its_own_list() -> None:
    assert answer_logprobs(Completion("M", logprobs=(token("M"),))) == {"M": -0.1}


@pytest.mark.parametrize(
    "tokens",
    [
        ("<think>", "m", " or", " M", "?", "</think>", "\n\n", "M", "<|im_end|>"),
        ("Better", ":", " M", " wins", "\n", "M"),
        ("<think>", "ĠM", "</think>", "Ċ", "M"),
    ],
)
def test_reasoning_is_passed_over(tokens: tuple[str, ...]) -> None:
    last = max(number for number, text in enumerate(tokens) if text == "M")
    logprobs = tuple(token(text, right=-1.0) if n == last else token(text) for n, text in enumerate(tokens))
    assert answer_logprobs(Completion("M", reasoning="…", logprobs=logprobs)) == {"right": -1.0}


def test_an_answer_spelt_in_other_signs_begins_after_the_reasoning() -> None:
    logprobs = (token("<think>"), token("x"), token("</think>"), token("\n"), token("Ā", right=-1.0))
    assert answer_logprobs(Completion("é", reasoning="x", logprobs=logprobs)) == {"right": -1.0}


def test_a_blank_first_token_still_has_alternatives() -> None:
    assert answer_logprobs(Completion(" ", logprobs=(token(" ", M=-1.0),))) == {"M": -1.0}


@pytest.mark.parametrize(
    "said",
    [
        Completion("", reasoning="still thinking", logprobs=(token("still"),), truncated=True),
        Completion("", logprobs=(token("<think>"),), truncated=True),
    ],
)
def test_a_reply_that_is_all_reasoning_has_no_answer(said: Completion) -> None:
    assert is_lost_in_reasoning(said)
    with pytest.raises(Unparsable, match="before its answer"):
        answer_logprobs(said)


def test_without_log_probabilities_there_is_nothing_to_read() -> None:
    with pytest.raises(Unparsable, match="without log-probabilities"):
        answer_logprobs(Completion("M"))


# --- The fast reader and the slow one

_NAMES = ("accuracy", "tone", "Accuracy", "ac curacy", "overall", "score", "level", "name", "reason", "tone ")
_VALUES = (
    "High",
    "low",
    " Medium ",
    7,
    3.0,
    None,
    True,
    "score",
    "accuracy",
    'a "High" one',
    "back\\\\slash\\\\",
)
_BEFORE = ("", "```json\n", "```\n", "Here it is: ", "Tone: Low. ", "[1] ", "{} ")
_CUT_OFF = '\n```json\n{"tone": "Low"'
_AFTER = ("", "", "\n```", " I hope {this", " helps.", "}", ' ["tone"]', _CUT_OFF, '[{"tone": 1')


def _random_value(draw: Random, depth: int) -> object:
    kind = draw.random()
    if depth and kind < 0.5:
        names = draw.sample(
            ("score", "reason", "score", "note", "level", "tone", "rationale"), draw.randint(0, 3)
        )
        return _Object([(name, _random_value(draw, depth - 1)) for name in names])
    return [draw.choice(_VALUES)] if kind > 0.97 else draw.choice(_VALUES[:3] if kind < 0.9 else _VALUES)


class _Object(list[tuple[str, object]]):
    """Keys and values of an object, of which a key may stand twice."""


def _write(value: object) -> str:
    if isinstance(value, _Object):
        return "{" + ", ".join(f"{json.dumps(key)}: {_write(part)}" for key, part in value) + "}"
    return json.dumps(value)


def test_the_fast_reader_agrees_with_the_slow_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """On 40,000 random replies, with repeated and further keys, other spellings, words around, and damage."""
    draw, scales = Random(43), {"accuracy": HIGH_MEDIUM_LOW, "tone": HIGH_MEDIUM_LOW}
    fast, agreed = verdict._parse_requested_form, 0
    monkeypatch.setattr(verdict, "_parse_requested_form", lambda *_: None)
    for _ in range(40_000):
        names = [*(name for name in scales if draw.random() < 0.95)]
        names += draw.choices(_NAMES, k=draw.choice((0, 0, 0, 1, 2)))
        draw.shuffle(names)
        text = _write(_Object([(name, _random_value(draw, 1)) for name in names]))
        text = draw.choice(_BEFORE) + text + draw.choice(_AFTER)
        text = f"[[{text}]]" if draw.random() < 0.02 else text
        if draw.random() < 0.03:
            text = text.replace(draw.choice('"{}:,'), "", 1)
        if (levels := fast(text, scales)) is not None:
            assert parse_levels(text, scales) == levels, text
            agreed += 1
    assert agreed > 2_000


def test_a_repeated_key_is_seen_beside_backslashes_at_the_ends_of_reasons() -> None:
    text = r'{"a": 1, "a": {"score": 5, "reason": "x\\"}, "b": {"score": 5, "reason": "y\\"}}'
    assert parse_levels(text, dict.fromkeys("ab", parse_scale("1-5"))).missing == ("a",)
