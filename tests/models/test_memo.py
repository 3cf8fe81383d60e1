from __future__ import annotations

import pytest

from coeval.models.dialects.openai_words import Memo


def test_it_works_out_once_for_the_same_objects_and_again_for_equal_ones() -> None:
    asked: list[tuple[object, ...]] = []

    def make(*of: object) -> int:
        asked.append(of)
        return len(asked)

    memo = Memo(make)
    one, same = ["a"], ["a"]
    assert [memo(one, None), memo(one, None), memo(same, None), memo(one, None)] == [1, 1, 2, 1]


def test_an_object_that_is_gone_is_not_taken_for_another_in_its_place() -> None:
    memo = Memo(lambda texts: texts[0])
    assert [memo([f"{number}"]) for number in range(1000)] == [f"{number}" for number in range(1000)]


def test_it_keeps_no_more_than_it_is_told() -> None:
    memo = Memo(lambda texts: texts[0], most=3)
    asked = [[f"{number}"] for number in range(10)]
    assert [memo(texts) for texts in asked * 2] == [texts[0] for texts in asked] * 2


def test_an_error_is_not_kept() -> None:
    broken = [True]

    def make(_: object) -> str:
        if broken:
            broken.clear()
            raise ValueError("not yet")
        return "made"

    memo = Memo(make)
    of = object()
    with pytest.raises(ValueError, match="not yet"):
        memo(of)
    assert memo(of) == "made"
