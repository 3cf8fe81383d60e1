"""One thing to ask of a host, and what came of it: what dialects and `Http` hand each other."""

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
"""A probe waits no longer for its token, whatever ``timeout_s`` allows."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What a dialect knows of a request.

    Attributes
    ----------
    decode:
        the value of a 2xx reply, without the credentials that the redactor knows. Undecodable means that
        it is no answer, which is asked for once more; a ModelError is taken as it is.
    explain:
        the dialect's reading of an answer that is an error; None leaves it to the status alone. What it
        quotes has passed the redactor before anything was cut off it.
    timeout_s:
        for one attempt, from sending to the last byte.
    probe:
        it only finds out whether anybody answers: one that has met with silence is not sent again.
    rank:
        which waiting requests go first: larger before smaller.
    permit:
        called once per request, just before it is sent; raises QuotaExhausted or ModelStopped. Where it
        returns something, there is no money for the request as yet: that is awaited, without a slot, before
        it is called again.
    unsent:
        called where that request was not sent after all, because there was no connection.
    unbilled:
        called where that request was answered with an error that no host bills.
    tokens:
        how many tokens a value took, for the endpoint's ``tokens_per_minute``.
    ended:
        told once how it went: None for an answer, else the error that is raised.
    refusal:
        what ``permit`` would raise, asked of requests that wait for their turn.
    goes_on:
        it is sent though the session is being ended.
    lane:
        whom the host means when it says that a limit of the model is used up; None: all who ask there.
    """

    decode: Callable[[HttpReply, Redactor], T]
    explain: Callable[[HttpReply, Redactor], ModelError | None]
    timeout_s: float
    rank: int
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
    """A decoded answer; ``latency_s`` is that of the attempt which brought it."""

    value: T
    latency_s: float
    attempts: int


# --- How often one request is sent, and how long it waits before it is sent again

BACKOFF_S = (0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 28.0)
"""Longest wait before each further attempt; 59.5 s in all."""
ATTEMPTS = len(BACKOFF_S) + 1
FEWER_ATTEMPTS: Mapping[type[ModelError], int] = {AccessDenied: 2, RequestTimeout: 2, Unreadable: 2}
"""Of these, so many end a request, whatever else it met with: another try gains little and may cost a lot.
Without access there is one more only where the credential has been renewed."""
PAID_ATTEMPTS = 2
"""Replies that are billed and no answer, as one that the host broke off: so many end a request too."""
TURNED_AWAY = 64
"""Times that a request is turned away because of others, before it is taken to be itself the reason."""
# A place at a crowded host is free within an answer or two; waiting longer would leave it idle.
_TURNED_AWAY_WAIT_S = 4.0


class Fault(NamedTuple):
    """A failed attempt.

    ``again``: sending the same request again may help. ``crowded``: the host turned it away for the
    number of requests, which is none of its own doing; it is not counted among the attempts. Nor is it where
    the host takes no connection and is ``awaited``.
    """

    error: ModelError
    again: bool
    crowded: bool = False
    awaited: bool = False


class Tries:
    """What failed attempts of one request have come to."""

    def __init__(self) -> None:
        self._awaited = self._counted = self._paid = self._turned_away = 0
        self._met: Counter[type[ModelError]] = Counter()

    def failed(self, fault: Fault) -> bool:
        """Count a failed attempt; whether another one is made."""
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
        """Our own backoff, or what the provider asked for if that is longer; never less than asked."""
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


# --- What a provider says about time: when to ask again, and until when to ask a model nothing
#
# ``Retry-After`` is RFC 9110 §10.2.3 (seconds or a date). A limit is a header with ``remaining`` in its name
# and its twin with ``reset``: OpenAI's, which most hosts copy, Cerebras's (by day and minute), OpenRouter's
# and Anthropic's; or one ``RateLimit`` header (IETF draft). They are about the model that was asked. Names
# that a gateway changes end as these do (``llm_provider-retry-after``). They are asked for in lower case.

_RETRY_AFTER = "retry-after"
_RETRY_AFTER_MS = "retry-after-ms"
_SHOULD_RETRY = "x-should-retry"
_DATE = "date"
_LIMITS = re.compile(r"rate-?limit")
# `limit=100, remaining=0, reset=50`, and "default";r=0;t=50
_AT_ONCE = re.compile(r"\b(?:remaining|r)=0\b.*?\b(?:reset|t)=(\d+)")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# A wait of so many seconds would be 31 years: such a number is a time of day, in seconds or milliseconds.
_EPOCH_S, _EPOCH_MS = 1e9, 1e12


def requested_wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the provider asks this request to wait before it is sent again; None if it does not say."""
    milliseconds = _number(_said(headers, _RETRY_AFTER_MS))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    text = _said(headers, _RETRY_AFTER)
    seconds = _number(text)
    return max(0.0, seconds) if seconds is not None else _until(text, headers)


def requested_retry(headers: Mapping[str, str]) -> bool | None:
    """The provider's own word on sending this request again (``x-should-retry``), if it gave one."""
    return {"true": True, "false": False}.get(_said(headers, _SHOULD_RETRY).strip().lower())


def _said(headers: Mapping[str, str], name: str) -> str:
    """A header's value, by its name or what a gateway makes of that; empty where there is none."""
    if name in headers:
        return headers[name]
    return next((value for key, value in headers.items() if key.lower().endswith(f"-{name}")), "")


def requested_hold_s(headers: Mapping[str, str]) -> float:
    """Seconds for which the provider will take nothing more for this model: the reset of a limit with
    nothing left."""
    longest = 0.0
    for name, value in headers.items():
        if not _LIMITS.search(name := name.lower()):
            continue
        if name.endswith("ratelimit"):
            resets = _AT_ONCE.findall(value)
        elif "remaining" in name and (left := _number(value)) is not None and left <= 0:
            resets = [headers.get(name.replace("remaining", word), "") for word in ("reset", "reset-after")]
        else:
            continue
        longest = max(longest, *(_reset_s(reset, headers) or 0.0 for reset in resets), 0.0)
    return longest


def _reset_s(text: str, headers: Mapping[str, str]) -> float | None:
    """Seconds of ``6m0s``, ``20ms``, ``1.5``, an epoch time or an RFC 3339 time."""
    text = text.strip()
    parts = _PART.findall(text)
    if parts and "".join(number + unit for number, unit in parts) == text:
        return math.fsum(float(number) * _UNIT_S[unit] for number, unit in parts)
    number = _number(text)
    if number is None:
        return _until(text, headers)
    if number >= _EPOCH_S:
        at = number / 1000 if number >= _EPOCH_MS else number
        return max(0.0, at - _now(headers).timestamp())
    return max(0.0, number)


def _until(text: str, headers: Mapping[str, str]) -> float | None:
    at = _time(text)
    return None if at is None else max(0.0, (at - _now(headers)).total_seconds())


def _now(headers: Mapping[str, str]) -> datetime:
    """The provider's own clock where it shows it: ours may be minutes off."""
    return _time(headers.get(_DATE, "")) or datetime.now(UTC)


def _time(text: str) -> datetime | None:
    """A time as HTTP or RFC 3339 writes it; one without a zone is UTC."""
    try:
        at = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None
