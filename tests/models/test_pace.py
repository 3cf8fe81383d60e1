"""How far apart requests are sent."""

from __future__ import annotations

import pytest

from coeval.models.pacing.gate import LONGEST_GAP_S, Pace, Spacing


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
        spacing.refused(sent_at=now, now=now + 0.05)
        gaps.append(spacing.wait_s(now + 0.05))
        now += 0.05 + gaps[-1]
        spacing.sent(now)
    assert gaps == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0, 1.0, 1.0])


def test_the_gap_is_gone_two_seconds_after_the_last_refusal() -> None:
    spacing, now = Spacing(), 0.0
    for _ in range(8):
        spacing.refused(sent_at=now, now=now)
    while not spacing.open:
        now += spacing.wait_s(now)
        spacing.sent(now)
    assert LONGEST_GAP_S < now <= 2 * LONGEST_GAP_S + 1


def test_a_refusal_that_took_long_calls_for_a_longer_gap() -> None:
    spacing = Spacing()
    spacing.refused(sent_at=0.0, now=0.3)
    assert spacing.wait_s(0.3) == pytest.approx(0.6)
