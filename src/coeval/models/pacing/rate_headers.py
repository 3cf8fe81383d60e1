"""What a provider says about time: when to ask again, and until when to ask a model nothing.

``Retry-After`` is RFC 9110 §10.2.3 (seconds or a date); the ``…-remaining-…`` and ``…-reset-…``
headers are OpenAI's, which most hosts copy, Cerebras's (by day and minute), OpenRouter's (one limit) and
Anthropic's; they are about the model that was asked.
Names are asked for in lower case.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_RETRY_AFTER = "retry-after"
_RETRY_AFTER_MS = "retry-after-ms"
_SHOULD_RETRY = "x-should-retry"
_DATE = "date"
_LIMITS = (
    ("x-ratelimit-remaining-requests", "x-ratelimit-reset-requests"),
    ("x-ratelimit-remaining-tokens", "x-ratelimit-reset-tokens"),
    ("x-ratelimit-remaining-requests-day", "x-ratelimit-reset-requests-day"),
    ("x-ratelimit-remaining-tokens-minute", "x-ratelimit-reset-tokens-minute"),
    ("x-ratelimit-remaining", "x-ratelimit-reset"),
    ("anthropic-ratelimit-requests-remaining", "anthropic-ratelimit-requests-reset"),
    ("anthropic-ratelimit-tokens-remaining", "anthropic-ratelimit-tokens-reset"),
    ("anthropic-ratelimit-input-tokens-remaining", "anthropic-ratelimit-input-tokens-reset"),
    ("anthropic-ratelimit-output-tokens-remaining", "anthropic-ratelimit-output-tokens-reset"),
)
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|us|µs|ns|d|h|m|s)")
_UNIT_S = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
# A wait of so many seconds would be 31 years: such a number is a time of day, in seconds or milliseconds.
_EPOCH_S, _EPOCH_MS = 1e9, 1e12


def requested_wait_s(headers: Mapping[str, str]) -> float | None:
    """Seconds the provider asks this request to wait before it is sent again; None if it does not say."""
    milliseconds = _number(headers.get(_RETRY_AFTER_MS, ""))
    if milliseconds is not None:
        return max(0.0, milliseconds / 1000)
    text = headers.get(_RETRY_AFTER)
    if text is None:
        return None
    seconds = _number(text)
    return max(0.0, seconds) if seconds is not None else _until(text, headers)


def requested_retry(headers: Mapping[str, str]) -> bool | None:
    """The provider's own word on sending this request again (``x-should-retry``), if it gave one."""
    return {"true": True, "false": False}.get(headers.get(_SHOULD_RETRY, "").strip().lower())


def requested_hold_s(headers: Mapping[str, str]) -> float:
    """Seconds for which the provider will take nothing more for this model: the reset of a limit with
    nothing left."""
    longest = 0.0
    for remaining, reset in _LIMITS:
        if headers.get(remaining) == "0":
            longest = max(longest, _reset_s(headers.get(reset, ""), headers) or 0.0)
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
