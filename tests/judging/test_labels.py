from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from coeval.judging.labels import score_labels

SENTIMENTS = {"sentiment": ["positive", "negative", "mixed"]}
ERRORS = {"kind": ["wrong_result", "crash", "not reproducible", "reproducible"]}


def said(response: str, declared: dict[str, list[str]]) -> str | None:
    """What an answer gives to the one label there is, whatever would have been right."""
    ((label, values),) = declared.items()
    found = {score_labels(response, {label: value}, declared)[label].predicted for value in values}
    assert len(found) == 1, "what an answer says does not depend on what is right"
    return found.pop()


@pytest.mark.parametrize(
    "response",
    [
        "positive",
        "Positive.",
        "**Positive**",
        "Sentiment: Positive",
        "**Sentiment:** positive",
        "**Sentiment:**\npositive",
        "- sentiment: positive",
        "The text is warm.\n\nSentiment: positive",
        "Answer: positive",
        "It is warm.\nFinal answer: **positive**",
        "Few words are negative.\n**The correct answer is: positive**",
        "Review sentiment: positive",
        "Positive or negative: positive",
        '{"sentiment": "Positive"}',
        '{"Sentiment": ["positive"], "confidence": 0.9}',
        '{"label": "positive", "why": "warm, not negative"}',
        '```json\n{"answer": "positive"}\n```',
        '{"verdict": "positive"}',
        '{"verdict": {"label": "positive"}}',
        'On balance:\n{"verdict": "positive"}\nFew negative words.',
        r"Negative words are few, so \boxed{positive}.",
        r"$\boxed{\text{Positive}}$",
        "The answer is positive.",
        "It is hard to call this one: positive",
        "I would say that it is **positive** overall",
        "Sentiment: it is rather positive\n\nNegative words are few.",
        "positive\n\nIt is not negative at all; mixed would be too harsh.",
        "Positive\n\nSentiment: the text is warm",
    ],
)
def test_a_single_label_is_found_in_every_common_form(response: str) -> None:
    score = score_labels(response, {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.expected, score.predicted, score.match) == ("positive", "positive", True)


@pytest.mark.parametrize(
    "response",
    [
        "",
        "neutral",
        "not positive",
        "It isn't positive.",
        "positive or negative",
        "Sentiment: positive\nSentiment: negative",
        "Sentiment: unclear\nThere are positive words.",
        "Answer: positive\nFinal answer: negative",
        '{"a": "positive", "b": "negative"}',
        '{"sentiment": "unclear", "why": "positive words"}',
        '{"sentiment": null}',
        '{"sentiment": NaN}',
        '{"positive": 0.7, "warm": 0.2}',
        r"\boxed{positive} or \boxed{negative}",
        "positively glowing",
        "non-positive",
    ],
)
def test_an_answer_that_states_no_value_or_several_is_none_of_the_labels(response: str) -> None:
    score = score_labels(response, {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == (None, False)


@pytest.mark.parametrize(
    ("response", "value"),
    [
        ("The answer is wrong_result.", "wrong_result"),
        ("wrong result", "wrong_result"),
        ("It is a Wrong-Result, clearly.", "wrong_result"),
        (r"\boxed{wrong\_result}", "wrong_result"),
        (r"This is a wrong\_result.", "wrong_result"),
        ("It's a **wrong** result.", "wrong_result"),
        ("This bug is not reproducible here.", "not reproducible"),
        ("This bug is reproducible here.", "reproducible"),
        ("The wrong things result from it", None),
    ],
)
def test_values_are_recognised_in_natural_wording(response: str, value: str | None) -> None:
    assert said(response, ERRORS) == value


def test_a_wrong_answer_says_which_value_it_gave() -> None:
    score = score_labels("Negative!", {"sentiment": "positive"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == ("negative", False)


def test_a_stated_name_goes_before_a_general_one() -> None:
    assert said('{"sentiment": "negative", "label": "positive"}', SENTIMENTS) == "negative"


def test_json_that_an_answer_only_talks_about_is_not_the_answer() -> None:
    response = 'It returns {"a": 1} where {"a": 2} is right.\nThe answer is wrong_result.'
    assert said(response, ERRORS) == "wrong_result"


@pytest.mark.parametrize(
    "response",
    [
        '{"tone": "formal", "Product Category": "food"}',
        "Tone: formal\nProduct category: Food",
        'Here it is:\n```json\n{"tone": "formal"}\n```\nProduct category: food',
        "It is about food, in a formal tone.",
    ],
)
def test_several_labels_each_look_for_their_own_name(response: str) -> None:
    declared = {"product_category": ["food", "tools"], "tone": ["formal", "informal"]}
    scores = score_labels(response, {"product_category": "food", "tone": "informal"}, declared)
    assert scores["product_category"].match
    assert (scores["tone"].predicted, scores["tone"].match) == ("formal", False)


def test_what_is_said_under_one_label_answers_no_other() -> None:
    declared = {"spam": ["yes", "no"], "toxic": ["yes", "no", "unsure"]}
    scores = score_labels("Spam: yes\nToxic: maybe, no idea", {"spam": "yes", "toxic": "yes"}, declared)
    assert (scores["spam"].predicted, scores["toxic"].predicted) == ("yes", "no")
    scores = score_labels("Spam: yes\nToxic: maybe", {"spam": "yes", "toxic": "yes"}, declared)
    assert (scores["spam"].predicted, scores["toxic"].predicted) == ("yes", None)


def test_a_label_that_holds_a_colon_is_not_torn_apart() -> None:
    assert score_labels("10:30", {"time": "10:30"}, {})["time"].match


def test_the_right_value_counts_though_it_is_not_declared() -> None:
    score = score_labels("It is sarcastic.", {"sentiment": "sarcastic"}, SENTIMENTS)["sentiment"]
    assert (score.predicted, score.match) == ("sarcastic", True)


@pytest.mark.slow
def test_a_long_answer_is_compared_as_well() -> None:
    assert said("positive " * 30_000, SENTIMENTS) == "positive"
    long = "x" * 300
    assert score_labels(long, {"sentiment": long}, {})["sentiment"].match


VALUES = st.lists(
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), max_size=5, unique=True
)


@given(st.text(max_size=200), st.dictionaries(st.text(min_size=1, max_size=8), VALUES, max_size=3))
def test_whatever_is_answered_a_declared_value_or_none_is_predicted(
    response: str, declared: dict[str, list[str]]
) -> None:
    expected = {label: values[-1] for label, values in declared.items() if values}
    scores = score_labels(response, expected, declared)
    assert list(scores) == list(expected)
    for label, score in scores.items():
        assert score.expected in declared[label]
        assert score.predicted is None or score.predicted in declared[label]
        assert score.match == (score.predicted == score.expected)


@given(VALUES, st.data())
def test_a_declared_value_said_as_it_stands_is_that_value(values: list[str], data: st.DataObject) -> None:
    assume(values)
    value = data.draw(st.sampled_from(values))
    assert score_labels(value, {"label": value}, {"label": values})["label"].match
