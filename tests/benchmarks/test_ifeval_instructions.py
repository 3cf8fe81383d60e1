"""Each instruction type of IFEval, on responses that follow it and that do not."""

from __future__ import annotations

from typing import Any

import pytest

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.following import check
from coeval.benchmarks.tasks.ifeval_instructions import INSTRUCTIONS
from coeval.benchmarks.tasks.instruction import Instruction, PlainInstruction

GERMAN = "Der Fluss trat über die Ufer und die Brücke war nicht mehr zu sehen."
ENGLISH = "the run_flow rose over its banks and the bridge could no longer be seen from here."

CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    (
        "keywords:existence",
        {"keywords": ["oak", "Elm"]},
        ["An elm and an OAK.", "Oaken helmets."],
        ["Only an oak.", "o ak elm"],
    ),
    (
        "keywords:frequency",
        {"keyword": "tea", "frequency": 2, "relation": "at least"},
        ["Tea, steam.", "teatea"],
        ["tea", "t e a"],
    ),
    (
        "keywords:frequency",
        {"keyword": "tea", "frequency": 2, "relation": "less than"},
        ["tea", "none"],
        ["tea Tea"],
    ),
    (
        "keywords:forbidden_words",
        {"forbidden_words": ["ice", "snow"]},
        ["A nice price.", "Snowy"],
        ["Ice!", "let it-snow"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "q", "let_frequency": 2, "let_relation": "at least"},
        ["Q and q", "quique"],
        ["q", "none"],
    ),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "less than"},
        ["Stop!", "a a a"],
        ["Stop! Now!"],
    ),
    ("punctuation:no_comma", {}, ["One two; three.", "全角，"], ["One, two."]),
    ("language:response_language", {"language": "de"}, [GERMAN, "12 + 3"], [ENGLISH]),
    (
        "change_case:english_capital",
        {},
        [ENGLISH.upper()],
        [ENGLISH.upper() + " no", ENGLISH, GERMAN.upper().replace("Ü", "UE"), "12"],
    ),
    ("change_case:english_lowercase", {}, [ENGLISH], [ENGLISH + " No", GERMAN.lower(), "12"]),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["I saw NASA.", "DON'T", "A. B!"],
        ["I saw it.", "NaSA", "12 34"],
    ),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "less than"},
        ["NASA", "none"],
        ["THE END", "THE END OF IT"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "at least"},
        ["one two three", "it's 1"],
        ["one two", "one-two"],
    ),
    (
        "length_constraints:number_words",
        {"num_words": 3, "relation": "less than"},
        ["one two", "... one"],
        ["one two three"],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "at least"},
        ["It rained. We left.", "Why? Because."],
        ["It rained at 3.30 today."],
    ),
    (
        "length_constraints:number_sentences",
        {"num_sentences": 2, "relation": "less than"},
        ["Dr. Low left."],
        ["One. Two."],
    ),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["one\n***\ntwo", "one***two", "***one***two***"],
        ["one", "one *** *** two", "one\n\ntwo", "one***two***three"],
    ),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "Then"},
        ["First.\n\nThen it ended.", 'a\n\n"then," she said', "a\n\n'THEN'!"],
        ["a\n\nNext then", "then\n\nb", "a\n\nthen\n\nc", "a\nthen", "\n\na\n\nthen", "a\n\nthenceforth"],
    ),
    (
        "detectable_content:number_placeholders",
        {"num_placeholders": 2},
        ["[name] of [place]", "[][] and more", "[a [b] [c]"],
        ["[name]", "[a\nb] [c]", "]]["],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["Bye. P.S. Write!", "p. s. so"],
        ["P.S", "P.  S."],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.P.S"},
        ["p. p. s", "P.P.S more"],
        ["P.S. more"],
    ),
    (
        "detectable_content:postscript",
        {"postscript_marker": "N.B."},
        ["and n.b. this"],
        ["and nxbx this"],
    ),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* one\n* two", "- one\n  - two", "Text\n\n * one\n- two", "*\nnext\n* two"],
        ["* one", "** one\n* two", "* one\n* two\n* three", "1. one\n2. two"],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*one* and *two*", "**bold** and *slim*", "**one** **two**"],
        ["*one*", "** **one", "*one\ntwo*", "plain"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Part", "num_sections": 2},
        ["Part 1\ntext\nPart 2\ntext", "Part1Part2"],
        ["Part 1", "part 1 part 2", "Part one Part two"],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes.", "Well. My answer is maybe. So."],
        ["My answer is yes", "my answer is no.", "yes"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1, null]}', '```json\n{"a": 1}\n```', "```\n3\n```", '"text"'],
        ["{'a': 1}", 'Here: {"a": 1}', "{", "[" * 100_000],
    ),
    (
        "detectable_format:title",
        {},
        ["<<A storm>>\ntext", "text <<x>> text", "<< < > >>x>>"],
        ["<<>>", "<< >>", "<<a\nb>>", "<a>", "text"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Name a tree. "},
        ["name a TREE. Oak.", " Name a tree."],
        ["Oak. Name a tree.", "Name one tree."],
    ),
    (
        "combination:two_responses",
        {},
        ["one******two", "******one\n******\ntwo******"],
        ["one", "one******one", "one************two", "one******two******three"],
    ),
    (
        "startend:end_checker",
        {"end_phrase": "That is all."},
        ["Well. That is all.", 'He said: "that is ALL."', "That is all. \n"],
        ["That is all. Bye", "That is all"],
    ),
    ("startend:quotation", {}, ['"All of it."', ' "a" \n', '""'], ['"', '"a" b', "“a”", "a"]),
]


@pytest.fixture(scope="module")
def language() -> Language:
    return Language()


def each(followed: bool) -> list[tuple[str, dict[str, Any], str]]:
    return [
        (kind, kwargs, response)
        for kind, kwargs, good, bad in CASES
        for response in (good if followed else bad)
    ]


@pytest.mark.parametrize(("kind", "kwargs", "response"), each(True))
def test_followed(kind: str, kwargs: dict[str, Any], response: str, language: Language) -> None:
    assert check(kind, kwargs, response, language)


@pytest.mark.parametrize(("kind", "kwargs", "response"), each(False))
def test_not_followed(kind: str, kwargs: dict[str, Any], response: str, language: Language) -> None:
    assert not check(kind, kwargs, response, language)


def test_there_are_25_types_and_each_is_tried() -> None:
    assert len(INSTRUCTIONS) == 25
    assert {kind for kind, *_ in CASES} == {instruction.id for instruction in INSTRUCTIONS}


def test_a_type_that_says_not_what_it_asks_for_cannot_be_made() -> None:
    class Silent(Instruction, frozen=True):
        id = "silent"

    class Plain(PlainInstruction, frozen=True):
        id = "plain"

    with pytest.raises(TypeError, match="follows"):
        Silent()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="holds"):
        Plain()  # type: ignore[abstract]
