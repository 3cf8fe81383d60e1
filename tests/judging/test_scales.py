"""Scales: how they are written, what judges are shown of them, and how verdicts on them are read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.errors import Unparsable
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale, parse_scale
from coeval.judging.verdict import criterion_hash, parse_level, parse_levels
from coeval.pipeline.plan.judge_form import JudgeForm

FIVE = parse_scale("1-5")
WORDS = parse_scale(["poor", "fair", "good", "excellent"])


@pytest.mark.parametrize(
    ("written", "levels", "values"),
    [
        ("1-5", ("1", "2", "3", "4", "5"), (0, 0.25, 0.5, 0.75, 1)),
        ("0-10", tuple(map(str, range(11))), tuple(n / 10 for n in range(11))),
        (["pass", "fail"], ("fail", "pass"), (0, 1)),
        (["no", "yes"], ("no", "yes"), (0, 1)),
        ([True, False], ("false", "true"), (0, 1)),
        (["poor", "fair", "good", "excellent"], ("poor", "fair", "good", "excellent"), (0, 1 / 3, 2 / 3, 1)),
        (["strong", "middling", "thin"], ("thin", "middling", "strong"), (0, 0.5, 1)),
        ([1, 2, 3], ("1", "2", "3"), (0, 0.5, 1)),
        ([5, 3, 1], ("1", "3", "5"), (0, 0.5, 1)),
        (["nein", "teils", "ja"], ("nein", "teils", "ja"), (0, 0.5, 1)),
        ({"bad": 0, "so so": 20, "good": 100}, ("bad", "so so", "good"), (0, 0.2, 1)),
        (["High", "Medium", "Low"], ("Low", "Medium", "High"), (0, 0.5, 1)),
    ],
)
def test_a_scale_is_read_as_people_write_it(
    written: Any, levels: tuple[str, ...], values: tuple[float, ...]
) -> None:
    scale = parse_scale(written)
    assert (scale.levels, scale.values) == (levels, values)
    assert parse_scale(scale.to_config()) == scale


def test_the_default_in_other_words_is_the_default() -> None:
    assert parse_scale(["low", "medium", "high"]) is HIGH_MEDIUM_LOW


@pytest.mark.parametrize(
    "written",
    [
        "5-1",
        "1-1",
        "five",
        "0-1000",
        [],
        ["one"],
        ["a", "A"],
        ["a", "b:"],
        {"a": 1, "b": 1},
        {"a": "x", "b": 2},
    ],
)
def test_what_is_no_scale_is_refused(written: Any) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        parse_scale(written)


@pytest.mark.parametrize(
    "written",
    [
        ["A", "B", "C"],
        ["gelöst", "nicht gelöst"],
        ["good", "fair", "perfect"],
        ["no", "maybe", "wrong"],
        [1, 3, 2],
    ],
)
def test_a_list_whose_best_level_is_unknown_is_refused_with_both_ways_out(written: list[Any]) -> None:
    first, last = written[0], written[-1]
    with pytest.raises(ValueError, match="give the levels numbers") as refused:
        parse_scale(written)
    assert f"{{{first}: 0, " in str(refused.value)
    assert f" if it is {last}, {{{last}: 0, " in str(refused.value)


def test_a_description_names_the_best_end() -> None:
    assert FIVE.levels_naming_best() == "1 (worst) to 5 (best)"
    assert parse_scale(["yes", "no"]).levels_naming_best() == "no (0), yes (1)"
    assert (
        parse_scale({"bad": 0, "so so": 1, "good": 3}).levels_naming_best()
        == "bad (0), so so (0.333), good (1)"
    )


@pytest.mark.parametrize(
    ("reply", "level"),
    [
        ("4", "4"),
        ('{"score": 4}', "4"),
        ('{"score": 4.0}', "4"),
        ('{"score": "4"}', "4"),
        ("**Score: 4**", "4"),
    ],
)
def test_a_number_is_read_as_a_level(reply: str, level: str) -> None:
    assert parse_level(reply, FIVE).value == level


@pytest.mark.parametrize(
    "reply", ["4.5", "0", "6", "4/5", '{"score": 4.5}', '{"score": true}', "4 or 5", "good"]
)
def test_what_is_off_the_scale_is_no_level(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_level(reply, FIVE)


def test_levels_of_several_scales_and_reasons_are_read_from_one_reply() -> None:
    scales = {"tone": WORDS, "detail": FIVE, "accuracy": HIGH_MEDIUM_LOW}
    reply: dict[str, dict[str, Any]] = {
        "tone": {"reason": 'It says: "High" twice, score: poor.', "score": "Good"},
        "detail": {"reason": "Two steps lack.", "score": 3},
        "accuracy": {"reason": "All figures hold.", "score": "High"},
    }
    found = parse_levels(json.dumps(reply), scales)
    assert found.scores == {"tone": "good", "detail": "3", "accuracy": "High"}
    assert found.reasons == {factor: verdict["reason"] for factor, verdict in reply.items()}
    damaged = parse_levels("Here:\n" + json.dumps(reply)[:-1] + ",}", scales)
    assert (damaged.scores, damaged.reasons) == (found.scores, found.reasons)


def test_a_factor_with_two_levels_of_its_scale_is_missing() -> None:
    reply = '{"tone": {"reason": "a", "score": "good"}, "Tone": {"reason": "b", "score": "poor"}}'
    assert parse_levels(reply, {"tone": WORDS}).missing == ("tone",)


@given(st.sampled_from([FIVE, WORDS, HIGH_MEDIUM_LOW, parse_scale("0-100")]), st.data())
def test_every_level_is_read_back_in_every_form(scale: RubricScale, data: st.DataObject) -> None:
    level = data.draw(st.sampled_from(scale.levels))
    form = JudgeForm({"tone": "It is kind."}, {"tone": scale}, rationale=data.draw(st.booleans()))
    verdict = {"reason": "Since it is so.", "score": level}
    assert form.parse_joint_reply(json.dumps({"tone": verdict}), ("tone",)).scores == {"tone": level}
    assert form.parse_factor_reply(json.dumps(verdict), "tone").scores == {"tone": level}
    assert form.parse_factor_reply(level, "tone").scores == {"tone": level}
    scored = form.split_by_scale({"tone": level})
    if scale is HIGH_MEDIUM_LOW:
        assert scored == ({"tone": level}, {})
    else:
        assert scale.nearest_level(scored[1]["tone"]) == level


def test_a_judge_is_shown_the_levels_and_asked_for_a_reason_first() -> None:
    form = JudgeForm({"tone": "It is kind.", "detail": "It is full."}, {"tone": WORDS, "detail": WORDS})
    values, schema = form.build_joint_question(("tone", "detail"))
    assert "from worst to best: poor, fair, good, excellent" in values["scale"]
    assert list(schema.body["properties"]["tone"]["properties"]) == ["reason", "score"]
    assert schema.body["properties"]["tone"]["properties"]["score"]["enum"] == list(WORDS.levels)
    plain = JudgeForm({"tone": "It is kind."}, {"tone": FIVE}, rationale=False)
    assert plain.build_joint_question(("tone",)).schema.body["properties"]["tone"]["enum"] == [
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
    assert "reason" not in plain.build_factor_question("tone").values["answer_format"]


def test_factors_on_several_scales_each_name_their_levels() -> None:
    form = JudgeForm({"tone": "It is kind.", "detail": "It is full."}, {"tone": WORDS, "detail": FIVE})
    shown = form.build_joint_question(("tone", "detail")).values
    assert "- detail: It is full. (levels: 1 to 5)" in shown["rubric"]
    assert "each factor lists them from worst to best" in shown["scale"]


def test_another_scale_is_another_question() -> None:
    assert criterion_hash("It is kind.", FIVE) != criterion_hash("It is kind.")
    assert criterion_hash("It is kind.", parse_scale([1, 2, 3, 4, 5])) == criterion_hash("It is kind.", FIVE)
