from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coeval.core.errors import EmptyReply, ReplyError, Unparsable
from coeval.core.text import fold_name
from coeval.pipeline.phases.proposals import (
    merge_attributes,
    merge_rubrics,
    parse_attributes,
    parse_item,
    parse_rubric,
)

texts = st.text(min_size=1, max_size=12)
attributes = st.dictionaries(texts, st.lists(texts, min_size=1, max_size=4, unique=True), max_size=4)


@pytest.mark.parametrize(
    "reply",
    [
        '{"prompt": "Why?", "response": "Because."}',
        'Sure:\n```json\n{"Question": "Why?", "Answer": "Because."}\n```',
        '{"INPUT": "Why?", "Reference_Response": "Because."}',
        '{"instruction": "Why?", "ideal-response": "Because.", "notes": "x"}',
        '{"item": {"query": "Why?", "completion": "Because."}}',
        '{"items": [{"text": "Why?", "output": "Because."}, {"text": "Who?", "output": "You."}]}',
        '[{"prompt": "Why?", "reference": "Because."}]',
    ],
)
def test_an_item_is_read_under_every_common_name(reply: str) -> None:
    assert parse_item(reply) == ("Why?", "Because.", False)


def test_damaged_items_are_mended_and_say_so() -> None:
    assert parse_item("{'prompt': 'Why?', 'response': 'Because.',}") == ("Why?", "Because.", True)


def test_what_is_not_text_becomes_json() -> None:
    item = parse_item('{"prompt": {"rows": [1, "ü"]}, "response": 42}')
    assert (item.prompt, item.response) == ('{"rows": [1, "ü"]}', "42")


@pytest.mark.parametrize(
    "reply",
    [
        '{"prompt": " ", "response": "x"}',
        '{"prompt": null, "response": "x"}',
        '{"prompt": "x", "response": ""}',
        '{"prompt": "x"}',
        '{"prompt": "x", "response": NaN}',
    ],
)
def test_half_an_item_is_an_empty_reply(reply: str) -> None:
    with pytest.raises(EmptyReply) as caught:
        parse_item(reply)
    assert caught.value.raw == reply


@pytest.mark.parametrize("prompt", ["NaN", "-Infinity", "42", "4.5", "true", "[]", '["Why?"]'])
def test_what_cannot_be_a_question_is_not_taken_for_one(prompt: str) -> None:
    with pytest.raises(Unparsable, match="no prompt"):
        parse_item(f'{{"prompt": {prompt}, "response": "x"}}')
    reply = f'{{"text": {prompt}, "item": {{"prompt": "Why?", "response": 42}}}}'
    assert parse_item(reply) == ("Why?", "42", False)


@pytest.mark.parametrize("reply", ["I cannot help with that.", "", '{"foo": "x"}', "[1, 2]"])
def test_a_reply_without_an_item_is_unparsable(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_item(reply)


TONE = ["formal", "casual"]
LENGTH = ["short", 2, True]
PROPOSED = {"tone": TONE, "text_length": ["short", "2", "true"]}


@pytest.mark.parametrize(
    "reply",
    [
        {"attributes": [{"name": "tone", "values": TONE}, {"name": "text length", "values": LENGTH}]},
        [{"name": "tone", "values": TONE}, {"attribute": "text length", "options": LENGTH}],
        {"tone": TONE, "text length": LENGTH},
        {"note": "two of them", "target_attributes": {"tone": TONE, "text length": LENGTH}},
        {"anything": {"tone": TONE, " text \n length: ": ["short", " short", 2, True, None, {}]}},
        {"tone": {"values": TONE}, "**text length**": {"values": ["short", "Short", 2, True]}},
        [{"tone": ["formal"]}, {"Tone": ["casual", "FORMAL"]}, {"text length": LENGTH}],
    ],
)
def test_attributes_are_read_in_every_common_shape(reply: object) -> None:
    assert parse_attributes(json.dumps(reply)) == (PROPOSED, False)


RIGHT = "It is right."


def test_a_single_attribute_is_not_taken_for_a_wrapper() -> None:
    assert parse_attributes('{"tone": {"values": ["a"]}}').values == {"tone": ["a"]}
    assert parse_attributes('{"factors": ["a", "b"]}').values == {"factors": ["a", "b"]}


@pytest.mark.parametrize(
    "reply",
    [
        {
            "factors": [
                {"name": "accuracy", "criterion": RIGHT},
                {"name": "Tone of voice", "criterion": "Calm."},
            ]
        },
        {"accuracy": "It is\n right.", "Tone of voice": "Calm."},
        {"rubric": {"accuracy": "It is right.", "Tone of voice": "Calm."}, "version": 2},
        {"accuracy": {"description": "It is right."}, "Tone of voice": {"description": "Calm.", "weight": 1}},
        [{"factor": "accuracy", "criterion": RIGHT}, {"factor": "Tone of voice", "criterion": "Calm."}],
    ],
)
def test_rubrics_are_read_in_every_common_shape(reply: object) -> None:
    assert parse_rubric(json.dumps(reply)) == {"accuracy": "It is right.", "Tone_of_voice": "Calm."}


@pytest.mark.parametrize(
    "reply", ["{}", "[1]", '{"a": []}', '{"a": {"b": {"c": 1}}}', '{"": ["x"]}', '{"a": [" "]}']
)
def test_proposals_of_nothing_are_empty_replies(reply: str) -> None:
    with pytest.raises(EmptyReply):
        parse_attributes(reply)
    with pytest.raises(EmptyReply):
        parse_rubric(reply)


def test_what_is_taken_from_a_boundless_proposal_is_bounded() -> None:
    reply = {"n" * 500 + str(i): ["v" * 1000 + str(i)] for i in range(100)} | {
        "x": [str(i) for i in range(999)]
    }
    found = parse_attributes(json.dumps({"x": reply["x"], **reply})).values
    assert len(found) <= 40
    assert max(map(len, found)) <= 64
    assert len(found["x"]) == 50
    assert max(len(value) for values in found.values() for value in values) <= 200


@pytest.mark.slow
@given(st.dictionaries(st.text(max_size=90), st.lists(st.text(max_size=20), max_size=3), max_size=5))
def test_names_and_values_are_clean_whatever_a_teacher_writes(proposal: dict[str, list[str]]) -> None:
    try:
        found = parse_attributes(json.dumps(proposal)).values
    except ReplyError:
        return
    for name, values in found.items():
        assert name.isprintable()
        assert name
        assert not set(name) & set(' :*`"{}')
        assert values
        assert all(value.isprintable() and value == value.strip() for value in values)


def test_merging_keeps_the_first_spelling_and_the_order() -> None:
    merged = merge_attributes(
        {"tone": ["formal"]},
        {"Tone": ["Formal", "very casual"], "length": ["a"]},
        {"TONE": ["very_casual", "rude"]},
    )
    assert merged == {"tone": ["formal", "very casual", "rude"], "length": ["a"]}
    assert list(merged) == ["tone", "length"]


def test_merging_rubrics_keeps_the_first_criterion() -> None:
    merged = merge_rubrics({"issue_resolution": "Solved."}, {"Issue Resolution": "Fixed.", "tone": "Calm."})
    assert merged == {"issue_resolution": "Solved.", "tone": "Calm."}


def test_spellings_in_one_proposal_are_merged_as_those_of_several_are() -> None:
    proposed = {"NONE": ["0"], "NoNE": ["00", "x y"], "none": ["X_Y", "000"]}
    assert merge_attributes({}, proposed) == {"NONE": ["0", "00", "x y", "000"]}
    assert merge_rubrics({}, {"To Point": "One.", "to_point": "Two."}) == {"To Point": "One."}


def test_seeds_that_differ_in_spelling_only_stay_apart() -> None:
    seeds = {"Case": ["upper"], "case": ["lower"]}
    assert merge_attributes(seeds, {"case": ["mixed"], "CASE": ["none"]}) == {
        "Case": ["upper", "none"],
        "case": ["lower", "mixed"],
    }


@example({}, [{"NONE": ["0"], "NoNE": ["00"]}])
@given(attributes, st.lists(attributes, max_size=3))
def test_seeds_are_always_kept_as_they_stand(
    seed: dict[str, list[str]], others: list[dict[str, list[str]]]
) -> None:
    merged = merge_attributes(seed, *others)
    assert list(merged)[: len(seed)] == list(seed)
    for name, values in seed.items():
        assert merged[name][: len(values)] == values
    assert merge_attributes(merged, *others) == merged
    together = [fold_name(name) for name in merged if name not in seed]
    assert len(set(together)) == len(together)
