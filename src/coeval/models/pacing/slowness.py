"""Whether answers have become slow, and whether that is for the number in flight."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Slowness", "Tried"]

_WARM_UP = 16
_SMOOTHING = 1 / 16
_DRIFT_ROUNDS = 64.0
_SLACK_S = 0.05
_FEWEST = 4
_GAIN, _LOSS = 1.15, 0.87
_MOST_DOUBTS = 6


class Tried(NamedTuple):
    """The number in flight to go on with. ``share``: answers a second with half of them beside those with
    all, once that is known."""

    size: float
    share: float | None = None

    @property
    def gained(self) -> bool:
        """Fewer give more."""
        return self.share is not None and self.share >= _GAIN


class _Latency:
    """Whether answers of one rank still take about as long as they did with less in flight."""

    __slots__ = ("_base_s", "_seen", "_smoothed_s")

    def __init__(self) -> None:
        self._seen = 0
        self._smoothed_s = self._base_s = 0.0

    def is_long_after(self, latency_s: float, size: float) -> bool:
        """Take in one latency; True while the smoothed one is more than about twice the base.

        The base is the mean of the first answers. It follows a faster host at once and a slower
        one over dozens of round trips, so that longer answers do not end growth for good. The
        slack keeps the jitter of our own event loop out of the judgment of a very fast host.
        """
        self._seen += 1
        if self._seen <= _WARM_UP:
            self._smoothed_s += (latency_s - self._smoothed_s) / self._seen
            self._base_s = self._smoothed_s
            return False
        self._smoothed_s += (latency_s - self._smoothed_s) * _SMOOTHING
        change = self._smoothed_s - self._base_s
        self._base_s += change * (_SMOOTHING if change < 0 else 1 / (_DRIFT_ROUNDS * size))
        return self._smoothed_s > 2 * self._base_s + _SLACK_S

    def accept(self) -> None:
        """Take the latency of now for the usual one."""
        self._base_s = self._smoothed_s


class _Trial:
    """Answers a second with all in flight that there were, and then with half of them."""

    __slots__ = ("_began_at", "_rate", "_seen", "size")

    def __init__(self, size: float, now: float) -> None:
        self.size = size
        self._seen = 0
        self._began_at = now
        self._rate: float | None = None

    def take(self, now: float) -> Tried | None:
        """Count an answer; what to go on with, where that changes now.

        With half of them a round trip of the whole passes before answers are counted.
        """
        self._seen += 1
        if self._rate is None:
            if self._seen < self.size:
                return None
            self._rate = self._seen / max(now - self._began_at, 1e-9)
            self._seen = 0
            return Tried(self.size / 2)
        counted = self._seen - int(self.size)
        if counted <= 0:
            self._began_at = now
        if counted < self.size / 2:
            return None
        share = counted / max(now - self._began_at, 1e-9) / self._rate
        return Tried(self.size / 2 if share >= _GAIN else self.size, share)


class Slowness:
    """What is made of slow answers: a host that is overrun may give more answers to fewer requests.

    Slow answers alone do not tell that from longer ones. So half is tried. Where it gives fewer answers a
    second, the latency of now becomes the usual one; where it gives no more, the next trial waits longer.
    """

    __slots__ = ("_doubts", "_latency", "_slow", "_trial")

    def __init__(self) -> None:
        self._latency: dict[int, _Latency] = {}
        self._trial: _Trial | None = None
        self._slow = 0  # answers since the last trial
        self._doubts = 0

    @property
    def trying(self) -> bool:
        return self._trial is not None

    def after(self, rank: int, latency_s: float, size: float) -> bool:
        """Take in an answer; whether those of its rank are slow now."""
        latency = self._latency.get(rank)
        if latency is None:
            latency = self._latency[rank] = _Latency()
        return latency.is_long_after(latency_s, size)

    def half_tried(self, size: float, now: float) -> Tried:
        """Told of each answer while they are slow or a trial is under way; ``size`` is what there are now."""
        trial = self._trial
        if trial is None:
            self._slow += 1
            if size >= _FEWEST and self._slow >= size * 2**self._doubts:
                self._trial = _Trial(size, now)
            return Tried(size)
        tried = trial.take(now)
        if tried is None:
            return Tried(size)
        if tried.share is not None:
            self.abandon()
            self._doubts = 0 if tried.gained else min(self._doubts + 1, _MOST_DOUBTS)
            if tried.share < _LOSS:
                for latency in self._latency.values():
                    latency.accept()
        return tried

    def abandon(self) -> None:
        """Too few are in flight, or the host has refused some: nothing can be learnt from rates now."""
        self._trial = None
        self._slow = 0
