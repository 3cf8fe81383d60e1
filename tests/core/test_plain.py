"""Names for people: short, and never two alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core.plain import plain, short_names

QWEN = ("Qwen/Qwen2.5-72B-Instruct-Turbo", "Qwen/Qwen2.5-72B-Instruct-Turbo-2")


@given(st.lists(st.text("ab-7\u2028", max_size=40), unique=True, max_size=30), st.integers(10, 32))
def test_no_two_labels_are_alike_or_too_long(names: list[str], longest: int) -> None:
    labels = short_names(names, longest)
    assert list(labels) == names
    assert len(set(labels.values())) == len(names)
    for label in labels.values():
        assert len(label) <= longest
        assert label == plain(label)


def test_a_number_takes_the_place_of_letters() -> None:
    """Of names that no cut tells apart, ten characters have room for an end beside the number."""
    names = ["bb---a-babaa-ab/baa-ab/", "bb---a-babab-ab/baa-ab/", "bb---a-baabb-ab/baa-ab/"]
    names += [f"bb---{'a' * count}-ab/" for count in range(7, 20)]
    labels = list(short_names(names, 10).values())
    assert any(label.endswith("(2)") for label in labels)
    assert len(set(labels)) == len(names)
    assert max(map(len, labels)) <= 10


@pytest.mark.parametrize("longest", [16, 24, 30])
def test_what_differs_stays(longest: int) -> None:
    first, second = short_names(QWEN, longest).values()
    assert first.endswith("Turbo")
    assert second.endswith("Turbo-2")
    assert short_names(QWEN, 40) == dict(zip(QWEN, QWEN, strict=True))
    sizes = [f"some-org/model-{size}-instruct-that-was-tuned-for-long" for size in ("7B", "13B", "70B")]
    for size, label in zip(("7B", "13B", "70B"), short_names(sizes, 24).values(), strict=True):
        assert size.rstrip("B") in label
    items = [f"story__{QWEN[0]}__{number:05d}" for number in (1, 2, 31)]
    for label, number in zip(short_names(items, longest).values(), ("00001", "00002", "00031"), strict=True):
        assert label.endswith(number)
