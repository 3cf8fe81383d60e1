"""Strict and loose verdicts, and the accuracies made of them."""

from __future__ import annotations

from typing import Any

import pytest

from coeval.benchmarks.language.text_analysis import LONG_TEXT, Language
from coeval.benchmarks.tasks.following import (
    Accuracy,
    Followed,
    FollowingItem,
    check,
    instruction,
    readings,
    score_prompt,
    summarise,
)
from coeval.benchmarks.tasks.ifeval_checks import NoComma
from coeval.core.errors import UsageError

NO_COMMA: tuple[str, dict[str, Any]] = ("punctuation:no_comma", {})
THREE_WORDS: tuple[str, dict[str, Any]] = (
    "length_constraints:number_words",
    {"num_words": 3, "relation": "at least"},
)


def item(*wanted: tuple[str, dict[str, Any]], key: int | str = 1) -> FollowingItem:
    return FollowingItem(key, "Write.", [kind for kind, _ in wanted], [kwargs for _, kwargs in wanted])


def test_the_eight_readings() -> None:
    assert readings("Sure:\n*one*\n two \nBye") == [
        "Sure:\n*one*\n two \nBye",
        "*one*\n two \nBye",
        "Sure:\n*one*\n two",
        "*one*\n two",
        "Sure:\none\n two \nBye",
        "one\n two \nBye",
        "Sure:\none\n two",
        "one\n two",
    ]


def test_equal_readings_are_tried_once() -> None:
    assert readings("one line") == ["one line", ""]


def test_a_greeting_is_forgiven_only_when_read_loosely() -> None:
    followed = score_prompt(item(NO_COMMA), "Sure, here it is:\nOne two three", Language())
    assert (followed.strict, followed.loose) == ([False], [True])


def test_each_instruction_finds_its_own_reading() -> None:
    followed = score_prompt(item(NO_COMMA, THREE_WORDS), "One, two, three\nfour", Language())
    assert (followed.strict, followed.loose) == ([False, True], [True, True])


@pytest.mark.parametrize("response", ["", " \n\t", "\n\n"])
def test_a_blank_response_follows_nothing(response: str) -> None:
    assert score_prompt(item(NO_COMMA), response, Language()) == Followed([False], [False])
    assert not check(*NO_COMMA, response, Language())


def test_arguments_that_are_none_are_left_out_and_whole_floats_are_numbers() -> None:
    assert check("count:numbers", {"N": 2.0, "keyword": None}, "1 and 2", Language())


@pytest.mark.parametrize(
    ("kind", "kwargs", "words"),
    [
        ("count:nothing", {}, "no instruction type 'count:nothing'"),
        ("count:numbers", {}, "missing required field `N`"),
        ("count:numbers", {"N": 2.5}, "Expected `int`"),
        ("count:numbers", {"N": 2, "M": 1}, "unknown field `M`"),
        ("keywords:frequency", {"keyword": "a", "frequency": 1, "relation": "about"}, "relation"),
    ],
)
def test_wrong_arguments_are_named(kind: str, kwargs: dict[str, Any], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        instruction(kind, kwargs)


def test_an_item_needs_arguments_for_each_instruction() -> None:
    with pytest.raises(UsageError, match="item 7"):
        score_prompt(FollowingItem(7, "Write.", ["punctuation:no_comma"], []), "text", Language())


def test_a_verifier_that_raises_is_not_followed_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: NoComma, response: str) -> bool:
        raise ZeroDivisionError("by comma")

    monkeypatch.setattr(NoComma, "holds", broken)
    followed = score_prompt(item(NO_COMMA, THREE_WORDS), "one two three", Language())
    assert followed == Followed(
        [False, True], [False, True], {"punctuation:no_comma": "ZeroDivisionError: by comma"}
    )


def test_a_long_response_says_that_its_sentences_were_found_by_rule() -> None:
    sentences = ("length_constraints:number_sentences", {"num_sentences": 2, "relation": "at least"})
    language = Language()
    assert score_prompt(item(sentences), "Long. " * (LONG_TEXT // 6 + 1), language).simplified
    assert not score_prompt(item(sentences), "Short. Text.", language).simplified


def test_summary() -> None:
    both = item(NO_COMMA, THREE_WORDS)
    summary = summarise(
        [
            (both, Followed([True, False], [True, True])),
            (
                both,
                Followed([False, False], [False, True], {"punctuation:no_comma": "E: x"}, simplified=True),
            ),
            (item(NO_COMMA, key="2"), Followed([True], [True])),
        ]
    )
    assert summary.metrics == {
        "prompt_level_strict_accuracy": Accuracy(1, 3),
        "instruction_level_strict_accuracy": Accuracy(2, 5),
        "prompt_level_loose_accuracy": Accuracy(2, 3),
        "instruction_level_loose_accuracy": Accuracy(4, 5),
    }
    assert summary.by_type == {
        "length_constraints:number_words": {"strict": Accuracy(0, 2), "loose": Accuracy(2, 2)},
        "punctuation:no_comma": {"strict": Accuracy(2, 3), "loose": Accuracy(2, 3)},
    }
    assert (summary.raised, summary.simplified) == ({"punctuation:no_comma": 1}, 1)
    assert summary.metrics["instruction_level_strict_accuracy"].value == pytest.approx(0.4)
    assert Accuracy(0, 0).value is None
