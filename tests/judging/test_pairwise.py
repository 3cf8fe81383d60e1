from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.analysis.pairwise.pairwise_models import VERDICTS
from coeval.core.errors import Unparsable
from coeval.judging.pairwise import parse_identifier, parse_label, shown


@pytest.mark.parametrize("label", VERDICTS)
def test_every_verdict_is_read_in_brackets(label: str) -> None:
    assert parse_label(f"My final verdict is: [[{label}]].", VERDICTS) == label
    assert parse_label(f"My final verdict is: [[{label.lower()}]]", VERDICTS) == label
    assert parse_label(f"verdict: [{label}]", VERDICTS) == label


def test_the_last_verdict_counts_and_double_brackets_go_first() -> None:
    assert parse_label("At first [[A>B]], but on reflection [[B>>A]]", VERDICTS) == "B>>A"
    assert parse_label("[[A=B]] is my verdict; see [B>A]", VERDICTS) == "A=B"


@pytest.mark.parametrize(
    "reply",
    ["", "A is better", "A>>B", "[[A]]", "[[A>B>B]]", "[[A>A]]", "[[A>B]] or rather [[B]]", "[[C>A]]"],
)
def test_what_is_no_verdict_is_refused(reply: str) -> None:
    with pytest.raises(Unparsable):
        parse_label(reply, VERDICTS)


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
    assert shown("baseline-first", "ours", "theirs") == ("theirs", "ours")
    assert shown("model-first", "ours", "theirs") == ("ours", "theirs")
