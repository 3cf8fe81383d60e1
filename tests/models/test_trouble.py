"""Hosts in trouble, in virtual time: `perf.trouble` keeps what it promises."""

from __future__ import annotations

import pytest

from perf.trouble import TROUBLES, measure


@pytest.mark.slow
@pytest.mark.parametrize("name", TROUBLES)
def test_it_takes_little_more_than_the_least_possible_and_asks_no_more_often_than_it_did(name: str) -> None:
    trouble = TROUBLES[name]
    assert trouble.broken(measure(trouble)) == []
