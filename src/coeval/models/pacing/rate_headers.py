"""What a provider says about time: when to ask again, and until when to ask a model nothing.

``Retry-After`` is RFC 9110 §10.2.3 (seconds or a date). A limit is a header with ``remaining`` in its name
and its twin with ``reset``: OpenAI's, which most hosts copy, Cerebras's (by day and minute), OpenRouter's and
Anthropic's; or one ``RateLimit`` header (IETF draft). They are about the model that was asked. Names
that a gateway changes end as these do (``llm_provider-retry-after``). They are asked for in lower case.
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
