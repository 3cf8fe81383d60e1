"""Ids of records and calls."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coeval.core import records as ids
from coeval.core.records import EXACT_MATCH, CallId

names = st.from_regex(r"[A-Za-z0-9.-]+(_[A-Za-z0-9.-]+)*", fullmatch=True)


@pytest.mark.process
@given(names, names, st.integers(1, 10**6), names, names)
def test_an_id_comes_apart_as_it_was_made(task: str, teacher: str, n: int, student: str, judge: str) -> None:
    item = ids.item_id(task, teacher, n)
    response = ids.response_id(item, student)
    evaluation = ids.evaluation_id(response, judge)
    assert item.startswith(ids.item_prefix(task, teacher))
    assert evaluation.startswith(ids.task_prefix(task))
    assert ids.item_number(item) == n
    assert (ids.parent_id(evaluation), ids.parent_id(response)) == (response, item)
    assert (ids.student_or_judge_of(evaluation), ids.student_or_judge_of(response)) == (judge, student)
    assert ids.split_id(evaluation) == [task, teacher, f"{n:05d}", student, judge]


def test_labels_are_compared_under_an_id_of_their_own() -> None:
    assert ids.evaluation_id("t__a__00001__b") == f"t__a__00001__b__{EXACT_MATCH}"


def test_an_ingested_item_has_no_number() -> None:
    assert ids.item_number(f"{ids.item_prefix('t', 'own')}case-7") is None


calls = st.builds(CallId, st.text(max_size=20), st.integers(0, 9), st.integers(0, 9))


@given(calls, calls)
def test_two_calls_share_nothing_that_follows_from_their_ids(one: CallId, other: CallId) -> None:
    alike = one == other
    assert (one.custom_id == other.custom_id) is alike
    assert (one.seed(0) == other.seed(0)) is alike


@given(calls)
def test_a_batch_takes_the_id_of_any_call(call: CallId) -> None:
    assert re.fullmatch(r"[a-f0-9]{32}", call.custom_id)


def test_a_call_in_words() -> None:
    assert str(CallId("t__a__00001")) == "t__a__00001"
    assert str(CallId("t__a__00001", 2, 1)) == "t__a__00001 sample 2 attempt 2"
