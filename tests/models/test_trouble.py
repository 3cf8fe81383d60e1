"""Hosts in trouble, in virtual time: `perf.trouble` keeps within what it promises."""

from __future__ import annotations

import pytest

from perf.trouble import TROUBLES, measure


@pytest.mark.parametrize("name", TROUBLES)
def test_it_takes_little_more_than_the_least_possible_and_asks_no_more_often_than_it_did(name: str) -> None:
    trouble = TROUBLES[name]
    outcome = measure(trouble)
    assert outcome.took_s <= trouble.at_most * trouble.ideal_s
    if trouble.refusals_before is not None:
        assert outcome.refusals <= 2 * trouble.refusals_before


@pytest.mark.parametrize("name", [name for name in TROUBLES if not name.startswith("outage-")])
def test_every_call_is_answered_in_the_end(name: str) -> None:
    assert measure(TROUBLES[name], seed=2).failed == 0


def test_what_an_outage_leaves_is_less_than_was_asked_meanwhile() -> None:
    assert measure(TROUBLES["outage-429"]).failed == 0
    assert measure(TROUBLES["outage-silent"]).failed <= 256
