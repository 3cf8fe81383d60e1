"""A request and its outcome, as dialects and `Http` exchange them; retries, and headers about them."""

from __future__ import annotations

import math
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Generic, NamedTuple, TypeVar

from coeval.core.errors import AccessDenied, CoevalError, ModelError, RequestTimeout, Unreadable
from coeval.core.redaction import Redactor
from coeval.models.pacing.limits import Lane, refuse_nothing
from coeval.models.transport.connection import HttpReply

PROBE_TIMEOUT_S = 60.0
"""The longest that a probe waits, whatever ``timeout_s`` is."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """How to send one request, and what to do with its outcome.

    ``decode`` reads the value of a 2xx reply, redacted; Undecodable: it is no answer, and the request is
    retried once; a ModelError is kept as it is. ``explain`` reads an error reply in the dialect; None
    leaves it to the status alone. ``timeout_s`` is for one attempt, from sending to the last byte. Larger
    priorities are sent first. ``permit`` is called just before a request is sent; it raises QuotaExhausted or
    ModelStopped; if it returns an awaitable, money is missing: that is awaited, without a slot, and
    `permit` called again. ``refusal`` returns what it would raise, for waiting requests. ``unsent`` is
    called if the request was not sent after all, for want of a connection; ``unbilled`` if it got an error
    that no host bills; ``ended`` once with the outcome: None for an answer, else the error that is raised.
    ``tokens`` counts a value's tokens, for the endpoint's ``tokens_per_minute``. ``lane``: the requests
    that share the model's own limit; None: all of the endpoint. A ``probe`` only finds out whether anybody
    answers; it is not repeated after a time-out. ``goes_on``: it is sent even while the session ends.
    """

    decode: Callable[[HttpReply, Redactor], T]
    explain: Callable[[HttpReply, Redactor], ModelError | None]
    timeout_s: float
    priority: int
    permit: Callable[[], Awaitable[None] | None]
    unsent: Callable[[], None] = refuse_nothing
    unbilled: Callable[[], None] = refuse_nothing
    tokens: Callable[[T], int] | None = None
    ended: Callable[[ModelError | None], None] | None = None
    refusal: Callable[[], CoevalError | None] = refuse_nothing
    lane: Lane | None = None
    probe: bool = False
    goes_on: bool = False


class Answered(NamedTuple, Generic[T]):
    """A decoded answer; ``latency_s`` is that of the attempt that brought it."""

    value: T
    latency_s: float
    attempts: int


# --- How often a request is sent, and how long to wait before each retry

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 28.0)
"""Longest wait before each retry; 59.5 s in all."""
ATTEMPTS = len(BACKOFF_S) + 1
FEWER_ATTEMPTS: Mapping[type[ModelError], int] = {AccessDenied: 2, RequestTimeout: 2, Unreadable: 2}
"""This many errors of a kind end a request, whatever else it met: retries gain little and may cost a lot.
After a denial, there is a second one only if the credential was renewed."""
PAID_ATTEMPTS = 2
"""This many billed replies without an answer, such as ones that the host broke off, end a request, too."""
TURNED_AWAY = 64
"""How often a crowded host may refuse a request before the request itself counts as the cause."""
# A slot at a crowded host is free within an answer or two; waiting longer would leave it idle.
_TURNED_AWAY_WAIT_S = 4.0


class Fault(NamedTuple):
    """A failed attempt. ``again``: sending the same request again may help. ``crowded``: the host refused it
    for the number of requests, so it does not count as an attempt; nor does one whose host takes no
    connections yet (``awaited``)."""

    error: ModelError
    again: bool
    crowded: bool = False
    awaited: bool = False


class Tries:
    """Counts the failed attempts of one request, by kind."""

    def __init__(self) -> None:
        self._awaited = self._counted = self._paid = self._turned_away = 0
        self._met: Counter[type[ModelError]] = Counter()

    def count_failure(self, fault: Fault) -> bool:
        """Count a failed attempt; return whether to make another."""
        if fault.crowded:
            self._turned_away += 1
            return fault.again and self._turned_away < TURNED_AWAY
        if fault.awaited:
            self._awaited += 1
            return fault.again
        self._counted += 1
        kind, usage = type(fault.error), fault.error.usage
        self._met[kind] += 1
        self._paid += usage is not None and usage.tokens > 0
        if self._met[kind] == FEWER_ATTEMPTS.get(kind) or self._paid == PAID_ATTEMPTS:
            fault.error.retry_advised = False
            return False
        return fault.again and self._counted < ATTEMPTS

    def wait_s(self, fault: Fault, rng: random.Random) -> float:
        """Return how long to wait before the next attempt: our backoff, or the provider's wait if longer."""
        if fault.awaited:  # a refused connection costs nothing
            longest_s = BACKOFF_S[min(self._awaited, 4) - 1]
        elif fault.crowded:
            longest_s = min(_TURNED_AWAY_WAIT_S, BACKOFF_S[min(self._turned_away, len(BACKOFF_S)) - 1])
        else:
            longest_s = BACKOFF_S[self._counted - 1]
        requested_s = fault.error.retry_after_s or 0.0
        return max(
            longest_s * rng.uniform(0.5, 1.0), requested_s + rng.uniform(0.0, min(1.0, requested_s / 10))
        )


# --- Times in a provider's headers: when to retry, and until when to send a model nothing
#
# ``Retry-After`` is RFC 9110 §10.2.3 (seconds or a date). A limit is a header with ``remaining`` in its name
# and its twin with ``reset``: OpenAI's, which most hosts copy, Cerebras's (by day and minute), OpenRouter's
# and Anthropic's; or one ``RateLimit`` header (IETF draft). They apply to the request's model. Names that a
# gateway changes end the same (``llm_provider-retry-after``). We look them up in lower case.

_LIMITS = re.compile(r"rate-?limit")
# `limit=100, remaining=0, reset=50`, and "default";r=0;t=50
_AT_ONCE = re.compile(r"\b(?:remaining|r)=0\b.*?\b(?:reset|t)=(\d+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# As a wait, it would be 31 years: such a number is a date, in seconds or milliseconds since 1970.
_EPOCH_S, _EPOCH_MS = 1e9, 1e12


def read_retry_wait_s(headers: Mapping[str, str]) -> float | None:
    """Read for how many seconds the provider asks to wait before a retry; None if it does not say."""
    milliseconds = _parse_number(_get_header_with_any_prefix(headers, "retry-after-ms"))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    text = _get_header_with_any_prefix(headers, "retry-after")
    seconds = _parse_number(text)
    return max(0.0, seconds) if seconds is not None else _seconds_until(text, headers)


def read_retry_advice(headers: Mapping[str, str]) -> bool | None:
    """Read the provider's advice on whether to retry (``x-should-retry``); None if it gives none."""
    return {"true": True, "false": False}.get(
        _get_header_with_any_prefix(headers, "x-should-retry").strip().lower()
    )


def _get_header_with_any_prefix(headers: Mapping[str, str], name: str) -> str:
    """Return a header's value, by its name or one that a gateway makes of it; '' if it is missing."""
    if name in headers:
        return headers[name]
    return next((value for key, value in headers.items() if key.lower().endswith(f"-{name}")), "")


def read_limit_hold_s(headers: Mapping[str, str]) -> float:
    """Read for how many seconds a used-up limit holds requests for this model back."""
    longest = 0.0
    for name, value in headers.items():
        if not _LIMITS.search(name := name.lower()):
            continue
        if name.endswith("ratelimit"):
            resets = _AT_ONCE.findall(value)
        elif "remaining" in name and (left := _parse_number(value)) is not None and left <= 0:
            resets = [headers.get(name.replace("remaining", word), "") for word in ("reset", "reset-after")]
        else:
            continue
        longest = max(longest, *(_parse_reset_s(reset, headers) or 0.0 for reset in resets), 0.0)
    return longest


def _parse_reset_s(text: str, headers: Mapping[str, str]) -> float | None:
    """Parse ``6m0s``, ``20ms``, ``1.5``, an epoch time or an RFC 3339 time into seconds from now."""
    text = text.strip()
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return math.fsum(float(number) * _UNIT_S[unit] for number, unit in parts)
    number = _parse_number(text)
    if number is None:
        return _seconds_until(text, headers)
    if number >= _EPOCH_S:
        at = number / 1000 if number >= _EPOCH_MS else number
        return max(0.0, at - _provider_time(headers).timestamp())
    return max(0.0, number)


def _seconds_until(text: str, headers: Mapping[str, str]) -> float | None:
    at = _parse_time(text)
    return None if at is None else max(0.0, (at - _provider_time(headers)).total_seconds())


def _provider_time(headers: Mapping[str, str]) -> datetime:
    """Return the time of the provider's own clock, if it sends it: ours may be minutes off."""
    return _parse_time(headers.get("date", "")) or datetime.now(UTC)


def _parse_time(text: str) -> datetime | None:
    """Parse a time as HTTP or RFC 3339 writes it; without a zone it is UTC."""
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _parse_number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
