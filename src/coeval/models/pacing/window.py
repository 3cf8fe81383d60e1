"""How many requests a host is given at once: more while it keeps up, fewer when it says it is too much."""

from __future__ import annotations

from typing import NamedTuple

# --- Slow answers, and whether fewer requests help

# Answers whose mean is the first base: with fewer, one slow answer would set it.
_WARM_UP = 16
# The mean over about the last 16 answers.
_SMOOTHING = 1 / 16
# Round trips over which the base follows a slower host; longer than any growth of the window takes.
_DRIFT_ROUNDS = 64.0
# Delays of our own event loop at full load, which are no news of the host.
_SLACK_S = 0.05
# Half of fewer is one request: rates of so few are noise.
_FEWEST = 4
# Symmetric (1 / 1.15 = 0.87): a count of 50 answers scatters by 14 % (1/√50), so less is no news.
_GAIN, _LOSS = 1.15, 0.87
# A host that fewer requests never help is tried again after 64 windows of slow answers.
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


# The wait before growing doubles with each failure, up to 32 round trips.
_MOST_DOUBLINGS = 5
# A refusal that comes alone does not halve a small window: below the usual start nothing is gained.
_FEW = 16


class Window:
    """The most that may be in flight, between 1 and ``ceiling``. All times are seconds of one clock.

    Until the host is first overloaded the size doubles each round trip. Refusals take one off each, at
    most half in an answer's time; where they go on (the request sent next was refused as well), and on a
    time-out, it is half at once. After a round trip without any the size doubles back to what was good
    before. From there it probes: one more, and while nothing is refused two, four, eight more; a probe
    that fails is taken back, and the next one waits twice as many round trips. While answers are slow
    there is no growth, and half is good where half gives more (`Slowness`).
    """

    def __init__(self, ceiling: int, start: int) -> None:
        self._ceiling = self._good = float(ceiling)
        self.size = self._start = float(min(start, ceiling))  # its whole part may be in flight
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
        begun = max(self.size, self._start) if self._refused_at == float("-inf") else self.size
        self.size = min(begun, self._ceiling)

    def answered(self, rank: int, latency_s: float, in_flight: int, now: float) -> None:
        """An answer came. A size that is not used, or at which answers take longer, is not raised."""
        slow = self._slowness.after(rank, latency_s, self.size)
        known_s = latency_s if self._answer_s is None else self._answer_s
        self._answer_s = known_s + (latency_s - known_s) * _SMOOTHING
        if in_flight * 2 < self.size:
            self._slowness.abandon()
            return
        if slow or self._slowness.trying:
            tried = self._slowness.half_tried(self.size, now)
            self.size = tried.size
            if tried.gained:
                self._slowed += 1
                self._take_back(self.size, 2 ** min(self._slowed, _MOST_DOUBLINGS))
            elif tried.share is not None:
                self._slowed = 0
            return
        if self.size >= self._ceiling:
            return
        if now - latency_s <= self._refused_at:
            return  # it was sent before that refusal was known, and says nothing about the time after it
        if self.size < self._good:
            self.size = min(self._good, self.size + 1)
            self._raised = True
            return
        self._held_for += 1
        if self._held_for >= self._patience * self.size:
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
        if self.size > self._good:
            self._take_back(self._good, min(2 * self._patience, 2**_MOST_DOUBLINGS))
            self._begin_round(now, self.size)
            return False
        if self._is_round_over(now):
            self._begin_round(now, self.size / 2)
        if again:
            self.size = self._floor
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
            self.size = max(min(self.size, self._start, _FEW), self.size / 2)
        else:
            self._good = self.size = max(1.0, self.size / 2)
        self._begin_round(now, self.size)

    def reopen(self) -> None:
        """Be at least as large as in the beginning."""
        self.size = max(self.size, self._start)

    def _take_back(self, good: float, patience: int) -> None:
        """A larger size was too much; the next probe waits for so many round trips."""
        self.size = self._good = good
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
        self.size = max(self._floor, self.size - 1)
        if self._raised:
            self._good = self.size
            self._patience = 1

    def _probe(self) -> None:
        """The size has been good for as long as patience asks: try a larger one."""
        if self.size > self._good:
            self._good = self.size
            self._step *= 2
            self._patience = 1
        self._held_for = 0
        self.size = min(self._ceiling, self.size + self._step)
        self._raised = True
