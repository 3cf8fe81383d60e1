"""How often one request is sent."""

from __future__ import annotations

import random

from coeval.core.errors import (
    ConnectionFailed,
    RateLimited,
    RequestTimeout,
    ServerFault,
)
from coeval.core.records import Usage
from coeval.models.transport.call import ATTEMPTS, TURNED_AWAY, Fault, Tries

PASSING = Fault(RateLimited("429"), again=True)
CROWDED = Fault(ConnectionFailed("reset"), again=True, crowded=True)


def attempts(*faults: Fault) -> int:
    """How many attempts a request gets that meets with these, and then with the last one for ever."""
    tries, made = Tries(), 1
    while tries.failed(faults[min(made, len(faults)) - 1]):
        made += 1
    return made


def test_what_may_not_be_sent_again_is_not() -> None:
    assert attempts(Fault(ConnectionFailed("certificate"), again=False)) == 1
    assert attempts(PASSING, Fault(ConnectionFailed("certificate"), again=False, crowded=True)) == 2


def test_a_mixture_has_eight_attempts_and_two_time_outs() -> None:
    late = Fault(RequestTimeout("late"), again=True)
    assert attempts(late, *[PASSING] * 20) == ATTEMPTS
    assert attempts(PASSING, late, PASSING, late, PASSING) == 4


def test_replies_that_are_billed_and_broken_off_are_not_bought_eight_times() -> None:
    broken = Fault(ServerFault("broken off", usage=Usage(20, 500)), again=True)
    assert attempts(broken) == 2
    assert broken.error.retry_advised is False
    assert attempts(broken, *[PASSING] * 3, broken, PASSING) == 5
    assert attempts(Fault(ServerFault("away", usage=Usage(0, 0)), again=True)) == ATTEMPTS


def test_being_turned_away_is_no_attempt_but_has_an_end() -> None:
    assert attempts(*[CROWDED] * 40, PASSING) == 40 + ATTEMPTS
    assert attempts(CROWDED) == TURNED_AWAY


def test_who_is_turned_away_comes_back_soon_and_obeys_the_host_all_the_same() -> None:
    tries, rng = Tries(), random.Random(0)
    waits = []
    for _ in range(20):
        tries.failed(CROWDED)
        waits.append(tries.wait_s(CROWDED, rng))
    assert 0.25 <= waits[0] <= 0.5
    assert max(waits) <= 4.0
    tries.failed(PASSING)
    assert tries.wait_s(PASSING, rng) <= 0.5, "the first that counts"
    requested = Fault(RateLimited("429", retry_after_s=30.0), again=True)
    tries.failed(requested)
    assert 30 <= tries.wait_s(requested, rng) <= 31
