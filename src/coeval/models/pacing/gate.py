"""When the next request of an endpoint may be sent, however few are in flight."""

from __future__ import annotations

from coeval.models.pacing.throttle import Turn

# --- Pace, and gaps after refusals

# Seconds between two requests to a host that refuses everything.
LONGEST_GAP_S = 1.0
# What the first refusal costs at least: the order of one round trip to a host nearby.
_SHORTEST_GAP_S = 0.01
# Half the shortest gap: below it the event loop's own delays are as large.
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


# The mean over about the last 16 answers.
_SMOOTHING = 1 / 16
_NEVER = float("-inf")


class Gate:
    """What keeps requests back: rates, refusals, times that the host named, and the turn among all processes.

    All times are seconds of one clock, but those of ``turn``, which has its own; None: no turn is waited for.
    """

    __slots__ = (
        "_charged_ahead",
        "_held_until",
        "_is_paced",
        "_look_until",
        "_mean_tokens",
        "_requests",
        "_settled",
        "_spacing",
        "_tokens",
        "_turn",
        "counts_tokens",
        "shut",
    )

    def __init__(self, turn: Turn | None = None) -> None:
        self._turn = turn
        self._spacing = Spacing()
        self._requests: Pace | None = None
        self._tokens: Pace | None = None
        self.counts_tokens = False
        """Whether it is to be told of answers (`answered`, `ended`)."""
        self._mean_tokens = self._charged_ahead = 0.0
        self._settled = False
        self._held_until = self._look_until = _NEVER
        self._is_paced = turn is not None
        self.shut = self._is_paced
        """Whether something may keep a request; where nothing can, nothing has to be asked."""

    def set_rates(self, requests_per_minute: float | None, tokens_per_minute: float | None) -> None:
        self._requests = self._tokens = None
        if requests_per_minute is not None:
            # One second's worth may go at once: a fast pace then needs one timer a second's worth.
            self._requests = Pace(requests_per_minute, max(0.0, 1.0 - 60.0 / requests_per_minute))
        if tokens_per_minute is not None:
            self._tokens = Pace(tokens_per_minute, 6.0)
        self.counts_tokens = self._tokens is not None
        self._is_paced = any(each is not None for each in (self._requests, self._tokens, self._turn))
        self.shut = self.shut or self._is_paced

    def hold(self, until: float) -> None:
        """Let nothing pass until then."""
        self._held_until = max(self._held_until, until)
        self.shut = True

    def look_until(self, until: float) -> None:
        """Be asked of each request until then, as some of them are held."""
        self._look_until = max(self._look_until, until)
        self.shut = True

    @property
    def spaced(self) -> bool:
        """Requests are kept apart, as some were refused."""
        return not self._spacing.open

    def refused(self, sent_at: float, now: float) -> None:
        self._spacing.refused(sent_at, now)
        self.shut = True

    def forget_refusals(self) -> None:
        self._spacing.forget()

    def wait_s(self, now: float, needed: int) -> float:
        """Seconds until the next request may pass, of so many that could be sent; it opens when nothing can
        keep one any more."""
        wait_s = self._held_until - now
        if not self._spacing.open:
            wait_s = max(wait_s, self._spacing.wait_s(now))
        if self._requests is not None:
            wait_s = max(wait_s, self._requests.wait_s(now))
        if self._tokens is not None:
            wait_s = max(wait_s, self._tokens.wait_s(now))
        if self._turn is not None and wait_s <= 0:
            wait_s = self._turn.wait_s(needed)
        if wait_s <= 0:
            self.shut = self._is_paced or not self._spacing.open or self._look_until > now
        return wait_s

    def passed(self, now: float) -> None:
        """One request goes through."""
        if not self._spacing.open:
            self._spacing.sent(now)
        if self._requests is not None:
            self._requests.charge(now, 1)
        if self._tokens is not None:
            self._tokens.charge(now, self._mean_tokens)
            self._charged_ahead += self._mean_tokens
        if self._turn is not None:
            self._turn.take()

    def answered(self, tokens: int, in_flight: int, now: float) -> None:
        """A request took so many tokens; told before it has `ended`. ``in_flight`` counts it."""
        if self._tokens is not None:
            self._settle(self._tokens, tokens, in_flight, now)
            self._settled = True
            self._mean_tokens += (tokens - self._mean_tokens) * (_SMOOTHING if self._mean_tokens else 1.0)

    def ended(self, in_flight: int, now: float) -> None:
        """A request is over, however it went."""
        if self._tokens is not None and not self._settled:
            self._settle(self._tokens, 0, in_flight, now)
        self._settled = False

    def _settle(self, pace: Pace, tokens: int, in_flight: int, now: float) -> None:
        """Charge what one request took in place of its share of what was charged ahead."""
        share = self._charged_ahead / in_flight
        self._charged_ahead -= share
        pace.charge(now, tokens - share)
