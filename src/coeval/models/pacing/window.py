"""How many requests a host is given at once: more while it keeps up, fewer when it says it is too much."""

from __future__ import annotations

from coeval.models.pacing.slowness import Slowness

__all__ = ["Window"]

_SMOOTHING = 1 / 16
_MOST_DOUBLINGS = 5
_FEW = 16


class Window:
    """The most that may be in flight, between 1 and ``ceiling``. All times are seconds of one clock.

    Until the host is first overloaded the size doubles each round trip. Refusals take one off each, at
    most half in an answer's time; where they go on (the request sent next was refused as well), and on a
    time-out, it is half at once. After a round trip without any the size doubles back to what was good
    before. From there it probes: one more, and while nothing is refused two, four, eight more; a probe
    that fails is taken back, and the next one waits twice as many round trips. While answers are slow
    there is no growth, and half is good where half gives more (`models.slowness`).
    """

    __slots__ = (
        "_answer_s",
        "_ceiling",
        "_floor",
        "_good",
        "_held_for",
        "_patience",
        "_raised",
        "_refused_at",
        "_round_at",
        "_size",
        "_slowed",
        "_slowness",
        "_start",
        "_step",
    )

    def __init__(self, ceiling: int, start: int) -> None:
        self._ceiling = self._good = float(ceiling)
        self._size = self._start = float(min(start, ceiling))
        self._floor = 1.0
        self._raised = True  # since the last cut
        self._step = 1.0
        self._patience = 1  # round trips before the next probe
        self._held_for = 0  # answers since the last one
        self._refused_at = float("-inf")
        self._round_at: float | None = None
        self._answer_s: float | None = None
        self._slowness = Slowness()
        self._slowed = 0  # times in a row that half of them gave more

    def limit_to(self, ceiling: int, start: int) -> None:
        """Another ceiling, and another size to begin with, where the host has refused nothing as yet."""
        if self._good == self._ceiling:
            self._good = float(ceiling)
        self._ceiling = float(ceiling)
        self._start = float(min(start, ceiling))
        self._good = min(self._good, self._ceiling)
        begun = max(self._size, self._start) if self._refused_at == float("-inf") else self._size
        self._size = min(begun, self._ceiling)

    @property
    def size(self) -> float:
        """Its whole part is how many may be in flight."""
        return self._size

    def answered(self, rank: int, latency_s: float, in_flight: int, now: float) -> None:
        """An answer came. A size that is not used, or at which answers take longer, is not raised."""
        slow = self._slowness.after(rank, latency_s, self._size)
        known_s = latency_s if self._answer_s is None else self._answer_s
        self._answer_s = known_s + (latency_s - known_s) * _SMOOTHING
        if in_flight * 2 < self._size:
            self._slowness.abandon()
            return
        if slow or self._slowness.trying:
            tried = self._slowness.half_tried(self._size, now)
            self._size = tried.size
            if tried.gained:
                self._slowed += 1
                self._take_back(self._size, 2 ** min(self._slowed, _MOST_DOUBLINGS))
            elif tried.share is not None:
                self._slowed = 0
            return
        if self._size >= self._ceiling:
            return
        if now - latency_s <= self._refused_at:
            return  # it was sent before that refusal was known, and says nothing about the time after it
        if self._size < self._good:
            self._size = min(self._good, self._size + 1)
            self._raised = True
            return
        self._held_for += 1
        if self._held_for >= self._patience * self._size:
            self._probe()

    def refused(self, sent_at: float, now: float, *, again: bool) -> bool:
        """The host would not take a request sent at ``sent_at``, because it has too many.

        ``again``: requests are kept apart already, because of earlier refusals. True if they should be
        (further) apart; not if this was sent before the last refusal was known, or is a probe's.
        """
        if sent_at <= self._refused_at:
            self._lower()
            return False
        self._refused_at = now
        self._step = 1.0
        self._slowness.abandon()
        if self._size > self._good:
            self._take_back(self._good, min(2 * self._patience, 2**_MOST_DOUBLINGS))
            self._begin_round(now, self._size)
            return False
        if self._is_round_over(now):
            self._begin_round(now, self._size / 2)
        if again:
            self._size = self._floor
            self._raised = False
        else:
            self._lower()
        return True

    def timed_out(self, sent_at: float, now: float, *, alone: bool) -> None:
        """A request sent at ``sent_at`` had no answer in time.

        ``alone``: no other had one lately either. That may be the load, or a host that is away; so what
        was good stays so, and the size does not fall below what is few for any host.
        """
        if sent_at <= self._refused_at:
            return
        self._refused_at = now
        self._step = 1.0
        self._slowness.abandon()
        self._raised = False
        if alone:
            self._size = max(min(self._size, self._start, _FEW), self._size / 2)
        else:
            self._good = self._size = max(1.0, self._size / 2)
        self._begin_round(now, self._size)

    def reopen(self) -> None:
        """Be at least as large as in the beginning."""
        self._size = max(self._size, self._start)

    def _take_back(self, good: float, patience: int) -> None:
        """A larger size was too much; the next probe waits for so many round trips."""
        self._size = self._good = good
        self._step = 1.0
        self._patience = patience
        self._held_for = 0

    def _begin_round(self, now: float, floor: float) -> None:
        """From now on, for as long as an answer takes, the size falls no lower."""
        self._round_at = now
        self._floor = max(1.0, floor)

    def _is_round_over(self, now: float) -> bool:
        """Whether what was sent since the round began can have been answered."""
        if self._round_at is None:
            return True
        return self._answer_s is not None and now >= self._round_at + self._answer_s

    def _lower(self) -> None:
        """One fewer, as far as this round allows."""
        self._size = max(self._floor, self._size - 1)
        if self._raised:
            self._good = self._size
            self._patience = 1

    def _probe(self) -> None:
        """The size has been good for as long as patience asks: try a larger one."""
        if self._size > self._good:
            self._good = self._size
            self._step *= 2
            self._patience = 1
        self._held_for = 0
        self._size = min(self._ceiling, self._size + self._step)
        self._raised = True
