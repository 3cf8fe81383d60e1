"""How far apart requests are sent."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from coeval.models.pacing.limits import LONGEST_GAP_S, Pace, Spacing
from coeval.models.pacing.window import Slowness, TrialStep
from perf.trouble import TROUBLES, measure


def test_a_pace_waits_off_what_was_charged_after_the_fact() -> None:
    pace = Pace(per_minute=60, burst_s=2)
    pace.charge(10.0, 5)
    assert pace.wait_s(10.0) == pytest.approx(3.0)
    pace.charge(10.0, -1)
    assert pace.wait_s(10.0) == pytest.approx(2.0)
    assert pace.wait_s(12.0) == pytest.approx(0.0)


def test_each_refusal_doubles_the_gap_up_to_a_second() -> None:
    spacing, gaps, now = Spacing(), list[float](), 0.0
    for _ in range(8):
        spacing.record_refusal(sent_at=now, now=now + 0.05)
        gaps.append(spacing.wait_s(now + 0.05))
        now += 0.05 + gaps[-1]
        spacing.record_send(now)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0])


def test_the_gap_is_gone_two_seconds_after_the_last_refusal() -> None:
    spacing, now = Spacing(), 0.0
    for _ in range(8):
        spacing.record_refusal(sent_at=now, now=now)
    while not spacing.is_open:
        now += spacing.wait_s(now)
        spacing.record_send(now)
    assert LONGEST_GAP_S < now <= 2 * LONGEST_GAP_S + 1


def test_a_refusal_that_took_long_calls_for_a_longer_gap() -> None:
    spacing = Spacing()
    spacing.record_refusal(sent_at=0.0, now=0.3)
    assert spacing.wait_s(0.3) == pytest.approx(0.6)


Host = Callable[[float], float]
"""The latency, in seconds, with so many in flight."""


class Asking:
    """Answers come evenly, as many a second as in flight over latency."""

    def __init__(self, host: Host, size: float) -> None:
        self.host = host
        self.size = size
        self.now = 0.0
        self.answers = 0
        self.sizes = [size]
        self._slowness = Slowness()

    def one(self) -> TrialStep | None:
        """Take in one answer; what comes of it while answers are slow."""
        latency_s = self.host(self.size)
        self.now += latency_s / self.size
        self.answers += 1
        slow = self._slowness.add_latency_and_check_slowness(0, latency_s, self.size)
        if not slow and not self._slowness.is_trying:
            return None
        tried = self._slowness.step_trial_or_count_slow(self.size, self.now)
        if tried.size != self.size:
            self.size = tried.size
            self.sizes.append(self.size)
        return tried

    def abandon(self) -> None:
        self._slowness.abandon_trial()
        assert not self._slowness.is_trying


def usual(_: float) -> float:
    return 1.0


def long(_: float) -> float:
    return 4.0


def overrun(size: float) -> float:
    """64 answers a second at best, with twice as many in flight half of that."""
    return max(1.0, (size / 64) ** 2)


def made_slow(host: Host, size: float = 256) -> Asking:
    asking = Asking(usual, size)
    for _ in range(100):
        assert asking.one() is None
    asking.host = host
    return asking


def test_half_is_kept_where_it_gives_more() -> None:
    asking = made_slow(overrun)
    gained = [tried for _ in range(3_000) if (tried := asking.one()) is not None and tried.is_half_faster]
    assert [tried.size for tried in gained] == [128, 64]
    assert asking.sizes == [256, 128, 64]


def test_longer_answers_are_the_usual_ones_after_one_trial() -> None:
    asking = made_slow(long)
    tried = [asking.one() for _ in range(2_000)]
    assert asking.sizes == [256, 128, 256]
    assert not any(outcome and outcome.is_half_faster for outcome in tried)
    assert tried[-1] is None, "they are not slow any more"


def test_a_host_that_gives_no_more_to_more_keeps_what_it_has_and_is_seldom_tried() -> None:
    asking = made_slow(lambda size: size / 64)
    trials = []
    for _ in range(60_000):
        before = len(asking.sizes)
        asking.one()
        if len(asking.sizes) > before and asking.size == 128:
            trials.append(asking.answers)
    assert set(asking.sizes) == {256, 128}
    waits = [later - earlier for earlier, later in pairwise(trials)]
    assert 2 <= len(waits) <= 8
    assert waits == sorted(waits)


def test_few_in_flight_are_not_halved() -> None:
    asking = made_slow(long, size=3)
    for _ in range(1_000):
        asking.one()
    assert asking.sizes == [3]


def test_a_trial_that_is_abandoned_begins_anew() -> None:
    asking = made_slow(overrun)
    while asking.size == 256:
        asking.one()
    asking.abandon()
    asking.size = 256
    while asking.size == 256:
        asking.one()
    assert asking.sizes == [256, 128, 128]


@pytest.mark.system
@pytest.mark.parametrize("name", TROUBLES)
def test_it_takes_little_more_than_the_least_possible_and_asks_no_more_often_than_it_did(name: str) -> None:
    trouble = TROUBLES[name]
    assert trouble.broken(measure(trouble)) == []
