"""When the next request may be sent: a pace that its user sets, and the distance that refusals call for."""

from __future__ import annotations

__all__ = ["LONGEST_GAP_S", "Pace", "Spacing"]

LONGEST_GAP_S = 1.0
"""Seconds between two requests to a host that refuses everything."""
_SHORTEST_GAP_S = 0.01
_NO_GAP_S = 0.005


class Pace:
    """At most ``per_minute`` units a minute, with bursts of ``burst_s`` seconds' worth.

    What is charged is waited off, also after it was spent; a charge below zero is a refund. This is
    the generic cell rate algorithm: one number, the time at which everything charged is paid for.
    """

    __slots__ = ("_burst_s", "_paid_at", "_seconds_each")

    def __init__(self, per_minute: float, burst_s: float) -> None:
        self._seconds_each = 60.0 / per_minute
        self._burst_s = burst_s
        self._paid_at = 0.0

    def charge(self, now: float, units: float) -> None:
        self._paid_at = max(self._paid_at, now) + units * self._seconds_each

    def wait_s(self, now: float) -> float:
        """Seconds until the next may go; zero or less: now."""
        return self._paid_at - self._burst_s - now


class Spacing:
    """How far apart requests are sent to a host that refuses them.

    After a refusal nothing is sent for twice the time that the refusal took; each further refusal
    doubles the gap, each request sent without one halves it. So a host that refuses everything is
    asked about once a second, and one that takes requests again has its full load two seconds later.
    """

    __slots__ = ("_gap_s", "_refused", "_sent_from")

    def __init__(self) -> None:
        self._gap_s = self._sent_from = 0.0
        self._refused = False

    @property
    def open(self) -> bool:
        """Nothing is kept apart."""
        return self._gap_s == 0.0

    def refused(self, sent_at: float, now: float) -> None:
        self._refused = True
        self._gap_s = min(LONGEST_GAP_S, max(2 * self._gap_s, 2 * (now - sent_at), _SHORTEST_GAP_S))
        self._sent_from = now + self._gap_s

    def sent(self, now: float) -> None:
        if not self._refused:
            self._gap_s = self._gap_s / 2 if self._gap_s > _NO_GAP_S else 0.0
        self._refused = False
        self._sent_from = now + self._gap_s

    def wait_s(self, now: float) -> float:
        """Seconds until the next may go; zero or less: now."""
        return self._sent_from - now

    def forget(self) -> None:
        """Send as if nothing had been refused."""
        self._gap_s = 0.0
