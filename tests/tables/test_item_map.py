"""A row becomes an item as the map says: places in values, texts with columns, choices, conditions."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pytest

from coeval.tables.item_map import Condition, ItemMaker, ItemMap, MappedItem, Misfit, find_unknown_columns

ROW: dict[str, Any] = {
    "q": "Which?",
    "a.b": "dotted",
    "nested": {"en": ["one", "two"]},
    "n": 3,
    "x": "1.50",
    "yes": True,
    "day": datetime.date(2026, 1, 2),
    "money": Decimal("1.10"),
    "none": None,
    "nan": float("nan"),
    "raw": b"\x00",
}


def made(row: dict[str, Any] = ROW, **needed: Any) -> MappedItem:
    item = ItemMaker(ItemMap(**needed), tuple(row)).make_item(row)
    assert item is not None
    return item


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("q", "Which?"),
        ("a.b", "dotted"),
        ("nested.en[1]", "two"),
        ("n", "3"),
        ("x", "1.50"),
        ("yes", "true"),
        ("day", "2026-01-02"),
        ("money", "1.10"),
        (r"{q}\nA) {nested.en[0]} {{not}}", "Which?\nA) one {not}"),
    ],
)
def test_a_prompt_is_a_column_or_a_text_with_columns(prompt: str, expected: str) -> None:
    assert made(prompt=prompt).prompt == expected


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("none", "its `none` is empty"),
        ("nan", "its `nan` is empty"),
        ("{q} {none}", "its `none` is empty"),
        ("nested.en[7]", "its `nested.en[7]` is empty"),
        ("nested", "its `nested` is a mapping; name a part of it, such as nested.en"),
        ("nested.en", "its `nested.en` is a list; name an entry of it, such as nested.en[0]"),
        ("q.part", "there is no `q.part`: what is before it is text"),
        ("raw", "its `raw` is bytes, and no text"),
    ],
)
def test_what_gives_no_prompt_is_told(prompt: str, why: str) -> None:
    with pytest.raises(Misfit) as misfit:
        made(prompt=prompt)
    assert str(misfit.value) == why


MMLU = {"q": "?", "choices": ["red", "blue", "1"], "answer": 1}
ARC = {"q": "?", "choices": {"text": ["red", "blue"], "label": ["1", "2"]}, "answer": "2"}
MEDQA = {"q": "?", "choices": {"A": "red", "B": "blue"}, "answer": "B"}
HELLASWAG = {"q": "?", "choices": ["red", "blue"], "answer": "1"}
BY_TEXT = {"q": "?", "choices": ["red", "blue"], "answer": "blue"}
BY_LETTER = {"q": "?", "choices": ["red", "blue"], "answer": "B"}


@pytest.mark.parametrize("row", [MMLU, ARC, MEDQA, HELLASWAG, BY_TEXT, BY_LETTER])
def test_choices_of_every_shape_are_lettered(row: dict[str, Any]) -> None:
    item = made(row, prompt="q", choices="choices", reference="answer", attributes={"key": "answer"})
    assert item.prompt.startswith("?\n\nA. red\nB. blue")
    assert item.reference == "B. blue"
    assert item.attributes == {"key": "B"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        (MMLU | {"answer": 3}, "its `answer` is 3, and the choices are 0 to 2"),
        (MMLU | {"answer": "1"}, "its `answer` (1) may mean more than one of the choices"),
        (MMLU | {"answer": "green"}, "its `answer` (green) names none of the choices"),
        (MMLU | {"answer": None}, "its `answer`, the right choice, is empty"),
        (MMLU | {"choices": "red, blue"}, "its `choices` is text, and no list of choices"),
        (MMLU | {"choices": ["red"]}, "its `choices` holds 1 choices; 2 to 26 can be lettered"),
        (MMLU | {"choices": ["red", ["blue"]]}, "its `choices` is a list; name an entry of it"),
    ],
)
def test_choices_that_cannot_be_told_apart_are_told(row: dict[str, Any], why: str) -> None:
    with pytest.raises(Misfit, match=r".") as misfit:
        made(row, prompt="q", choices="choices", reference="answer")
    assert str(misfit.value).startswith(why)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("q = Which?", True), ("q == 'Which?'", True), ("q != Which?", False), ("q='which?'", False),
        ("n = 3", True), ("n=3.0", True), ("n > 2", True), ("n>=10", False), ("n < 10", True),
        ("x = 1.5", True), ("x <= 1.5", True), ("yes = true", True), ("day > 2025-12-31", True),
        ("none = ''", True), ("none !=", False), ("none < 5", False), ("q > 5", False),
        ("nested.en[0] = one", True), ('"a.b" = dotted', True), ("q = 'Rock and roll >= jazz'", False),
    ],
)  # fmt: skip
def test_conditions(text: str, holds: bool) -> None:
    assert Condition.parse(text).make_test(tuple(ROW))(ROW) is holds


def test_columns_that_are_not_there_are_all_named() -> None:
    needed = ItemMap(prompt="{q} {p}", reference="r", attributes={"level": "nested.x"}, where=("z = 1",))
    missing = [(found.key, found.column) for found in find_unknown_columns(needed, tuple(ROW))]
    assert missing == [(("prompt",), "p"), (("reference",), "r"), (("where",), "z")]
