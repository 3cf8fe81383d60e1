"""How many requests a host gets at once: more while it keeps up, fewer when it refuses some."""

from __future__ import annotations

from typing import NamedTuple

# Answers in the first base latency: with fewer, a single slow answer would set it.
_WARM_UP = 16
# The mean over about the last 16 answers.
_SMOOTHING = 1 / 16
# Round trips over which the base follows a slower host; longer than any growth of the window takes.
_DRIFT_ROUNDS = 64.0
# Delays of our own event loop at full load, which say nothing about the host.
_SLACK_S = 0.05
# Half of fewer is one request, whose rate is noise.
_FEWEST = 4
# Symmetric (1 / 1.15 = 0.87): a count of 50 answers scatters by 14 % (1/√50), so less is no evidence.
_GAIN, _LOSS = 1.15, 0.87
# If fewer requests never help, half is tried again after 64 windows of slow answers.
_MOST_DOUBTS = 6


class TrialStep(NamedTuple):
    """The number in flight from now on. ``rate_ratio``: answers a second with half of them, relative to those
    with all, once known."""

    size: float
    rate_ratio: float | None = None

    @property
    def is_half_faster(self) -> bool:
        return self.rate_ratio is not None and self.rate_ratio >= _GAIN


class _Latency:
    """Latency of one priority's answers: smoothed, and the base it had with fewer requests in flight."""

    def __init__(self) -> None:
        self._count = 0
        self._smoothed_s = self._base_s = 0.0

    def add_latency_and_check_slowness(self, latency_s: float, size: float) -> bool:
        """Add a latency; return True while the smoothed one exceeds about twice the base. The base is the
        mean of the first answers. It follows a faster host at once, and a slower one over dozens of round
        trips, so that longer answers do not stop growth for good. The slack excludes the jitter of our own
        event loop, which matters for very fast hosts."""
        self._count += 1
        if self._count <= _WARM_UP:
            self._smoothed_s += (latency_s - self._smoothed_s) / self._count
            self._base_s = self._smoothed_s
            return False
        self._smoothed_s += (latency_s - self._smoothed_s) * _SMOOTHING
        change = self._smoothed_s - self._base_s
        self._base_s += change * (_SMOOTHING if change < 0 else 1 / (_DRIFT_ROUNDS * size))
        return self._smoothed_s > 2 * self._base_s + _SLACK_S

    def rebase(self) -> None:
        """Make the present latency the base."""
        self._base_s = self._smoothed_s


class _Trial:
    """A trial: answers a second with all requests in flight, and then with half of them."""

    def __init__(self, size: float, now: float) -> None:
        self.size = size
        self._count = 0
        self._began_at = now
        self._rate: float | None = None

    def count_answer(self, now: float) -> TrialStep | None:
        """Count an answer; return the next step, if this one ends a step. With half of the requests, counting
        starts after a round trip of the whole."""
        self._count += 1
        if self._rate is None:
            if self._count < self.size:
                return None
            self._rate = self._count / max(now - self._began_at, 1e-9)
            self._count = 0
            return TrialStep(self.size / 2)
        counted = self._count - int(self.size)
        if counted <= 0:
            self._began_at = now
        if counted < self.size / 2:
            return None
        share = counted / max(now - self._began_at, 1e-9) / self._rate
        return TrialStep(self.size / 2 if share >= _GAIN else self.size, share)


class Slowness:
    """Decides after slow answers whether half as many requests get more answers a second. An overloaded host
    may; one that merely writes longer answers will not, and latency alone cannot tell them apart. If half is
    slower, the present latency becomes the base; unless half is faster, the next trial waits longer."""

    def __init__(self) -> None:
        self._latency: dict[int, _Latency] = {}
        self._trial: _Trial | None = None
        self._slow = 0  # answers since the last trial
        self._doubts = 0

    @property
    def is_trying(self) -> bool:
        return self._trial is not None

    def add_latency_and_check_slowness(self, priority: int, latency_s: float, size: float) -> bool:
        """Add an answer's latency; return whether answers of its priority are slow now."""
        latency = self._latency.get(priority)
        if latency is None:
            latency = self._latency[priority] = _Latency()
        return latency.add_latency_and_check_slowness(latency_s, size)

    def step_trial_or_count_slow(self, size: float, now: float) -> TrialStep:
        """Count an answer while answers are slow or a trial runs; ``size`` is the number in flight."""
        trial = self._trial
        if trial is None:
            self._slow += 1
            if size >= _FEWEST and self._slow >= size * 2**self._doubts:
                self._trial = _Trial(size, now)
            return TrialStep(size)
        step = trial.count_answer(now)
        if step is None:
            return TrialStep(size)
        if step.rate_ratio is not None:
            self.abandon_trial()
            self._doubts = 0 if step.is_half_faster else min(self._doubts + 1, _MOST_DOUBTS)
            if step.rate_ratio < _LOSS:
                for latency in self._latency.values():
                    latency.rebase()
        return step

    def abandon_trial(self) -> None:
        """Abandon the trial: too few requests are in flight, or some were refused, so rates say nothing."""
        self._trial = None
        self._slow = 0


# The wait before growth doubles with each failure, up to 32 round trips.
_MOST_DOUBLINGS = 5
# A lone refusal does not halve a small window: below the usual start, nothing is gained.
_FEW = 16


class Window:
    """The most requests in flight, between 1 and ``ceiling``. All times are seconds of one clock.

    The size doubles each round trip until the host is first overloaded. Each refusal takes one off, at most
    half within one latency; if the next request is refused too, or one times out, the size halves at once.
    After a round trip without refusals it doubles back to the last good size. From there it probes: one more,
    and while nothing is refused two, four, eight more. A probe that fails is taken back, and the next one
    waits twice as many round trips. While answers are slow, the size does not grow, and it halves if half is
    faster (`Slowness`).
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

    def set_limits(self, ceiling: int, start: int) -> None:
        """Set another ceiling, and another start if the host has refused nothing yet."""
        if self._good == self._ceiling:
            self._good = float(ceiling)
        self._ceiling = float(ceiling)
        self._start = float(min(start, ceiling))
        self._good = min(self._good, self._ceiling)
        size_now = max(self.size, self._start) if self._refused_at == float("-inf") else self.size
        self.size = min(size_now, self._ceiling)

    def record_answer_and_resize(self, priority: int, latency_s: float, in_flight: int, now: float) -> None:
        """Record an answer, and grow unless the size is unused or answers are slow."""
        slow = self._slowness.add_latency_and_check_slowness(priority, latency_s, self.size)
        mean_s = latency_s if self._answer_s is None else self._answer_s
        self._answer_s = mean_s + (latency_s - mean_s) * _SMOOTHING
        if in_flight * 2 < self.size:
            self._slowness.abandon_trial()
            return
        if slow or self._slowness.is_trying:
            step = self._slowness.step_trial_or_count_slow(self.size, now)
            self.size = step.size
            if step.is_half_faster:
                self._slowed += 1
                self._settle_at(self.size, 2 ** min(self._slowed, _MOST_DOUBLINGS))
            elif step.rate_ratio is not None:
                self._slowed = 0
            return
        if self.size >= self._ceiling:
            return
        if now - latency_s <= self._refused_at:
            return  # sent before the last refusal was known, so no evidence about the time after it
        if self.size < self._good:
            self.size = min(self._good, self.size + 1)
            self._raised = True
            return
        self._held_for += 1
        if self._held_for >= self._patience * self.size:
            self._probe_larger()

    def record_refusal_and_check_spacing(self, sent_at: float, now: float, *, is_spacing: bool) -> bool:
        """Record that the host refused a request for overload; return True if requests should be (further)
        apart. ``is_spacing``: they are apart already. A refusal of a probe, or of a request sent before the
        last refusal was known, asks for no gap."""
        if sent_at <= self._refused_at:
            self._shrink_by_one()
            return False
        self._refused_at = now
        self._step = 1.0
        self._slowness.abandon_trial()
        if self.size > self._good:
            self._settle_at(self._good, min(2 * self._patience, 2**_MOST_DOUBLINGS))
            self._begin_round(now, self.size)
            return False
        if self._is_round_over(now):
            self._begin_round(now, self.size / 2)
        if is_spacing:
            self.size = self._floor
            self._raised = False
        else:
            self._shrink_by_one()
        return True

    def record_timeout_and_shrink(self, sent_at: float, now: float, *, alone: bool) -> None:
        """Record a request without an answer in time. ``alone``: no other had one lately. The cause may be
        load, or a host that is away; so the last good size is kept, and the size does not fall below what is
        few for any host."""
        if sent_at <= self._refused_at:
            return
        self._refused_at = now
        self._step = 1.0
        self._slowness.abandon_trial()
        self._raised = False
        if alone:
            self.size = max(min(self.size, self._start, _FEW), self.size / 2)
        else:
            self._good = self.size = max(1.0, self.size / 2)
        self._begin_round(now, self.size)

    def grow_to_start(self) -> None:
        self.size = max(self.size, self._start)

    def _settle_at(self, good_size: float, patience_rounds: int) -> None:
        """Settle at a good size; the next probe of a larger one waits ``patience_rounds`` round trips."""
        self.size = self._good = good_size
        self._step = 1.0
        self._patience = patience_rounds
        self._held_for = 0

    def _begin_round(self, now: float, floor_size: float) -> None:
        """Begin a round: for as long as an answer takes, the size falls no lower than ``floor``."""
        self._round_at = now
        self._floor = max(1.0, floor_size)

    def _is_round_over(self, now: float) -> bool:
        """Check whether every request sent before the round could have been answered."""
        if self._round_at is None:
            return True
        return self._answer_s is not None and now >= self._round_at + self._answer_s

    def _shrink_by_one(self) -> None:
        """Shrink by one, as far as this round allows."""
        self.size = max(self._floor, self.size - 1)
        if self._raised:
            self._good = self.size
            self._patience = 1

    def _probe_larger(self) -> None:
        """Try a larger size; if this one was a probe, it has proved good."""
        if self.size > self._good:
            self._good = self.size
            self._step *= 2
            self._patience = 1
        self._held_for = 0
        self.size = min(self._ceiling, self.size + self._step)
        self._raised = True
