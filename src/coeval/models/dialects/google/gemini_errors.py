"""What Google's errors say beyond their HTTP status: google.rpc.Status, and the details in it."""

from __future__ import annotations

import re

import msgspec

from coeval.core import foreign
from coeval.core.errors import AccessDenied, BadRequest, ModelError, RateLimited, ServerFault, Undecodable
from coeval.core.secrets.redaction import Redactor
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected
from coeval.models.transport.faults import excerpt

__all__ = ["LONGEST_MESSAGE", "explain"]

LONGEST_MESSAGE = 500
_SCHEMA_WORDS = re.compile(
    r"response_?(json_?|mime_?)?(schema|type)|json ?(mode|schema)|controlled generation"
)
_FIELDS = {
    "temperature": "temperature",
    "top_p": "top_?p",
    "top_k": "top_?k",
    "max_tokens": "max_?output_?tokens",
    "stop": "stop_?sequences?",
    "seed": "seed",
    "thinking_budget": "thinking[_ ]?budget|budget [0-9]+ is invalid",
    "reasoning_effort": "thinking[_ ]?level|thinking is not",
}
"""Our names → what Google's messages call them, in small letters."""
_NAMED = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _FIELDS.items()))
_NO_KEY = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED", "ACCESS_TOKEN_EXPIRED", "CREDENTIALS_MISSING"})


class _GoogleViolation(msgspec.Struct, rename="camel"):
    quota_id: str = ""
    quota_value: str = ""


class _GoogleDetail(msgspec.Struct, rename="camel"):
    """Of google.rpc: an ErrorInfo's reason, a RetryInfo's delay, a QuotaFailure's violations."""

    reason: str = ""
    retry_delay: str = ""
    violations: list[_GoogleViolation] = []


class _GoogleStatus(msgspec.Struct):
    """google.rpc.Status."""

    message: str | None = None
    status: str | None = None
    details: list[msgspec.Raw] = []


class _GoogleTrouble(msgspec.Struct):
    error: _GoogleStatus


def explain(status: int, body: bytes, redactor: Redactor) -> ModelError | None:
    """What an error says beyond its HTTP status; None where that says it all.

    Recognised are keys that are not valid (a 400), the wait that Google asks for, the quota of a day (waiting
    does not help), a schema that is not taken, and a parameter that is not.
    """
    trouble = _problem(body)
    if trouble is None:
        return None
    message = excerpt(trouble.message or body, redactor, LONGEST_MESSAGE)
    details = [found for raw in trouble.details if (found := _detail(raw)) is not None]
    if _no_access(status, trouble, details):
        return AccessDenied(message, status=status)
    wait_s = next((_seconds(detail.retry_delay) for detail in details if detail.retry_delay), None)
    if status == 429:
        return _limited(message, details, wait_s)
    if status >= 500 and wait_s is not None:
        return ServerFault(message, status=status, retry_after_s=wait_s)
    if status == 400:
        return _refused(message, status)
    return None


def _no_access(status: int, trouble: _GoogleStatus, details: list[_GoogleDetail]) -> bool:
    """Whether it is about who asks: a key that is none is a 400, and so is a place or an account that Google
    does not serve."""
    if trouble.status == "UNAUTHENTICATED" or (status == 400 and trouble.status == "FAILED_PRECONDITION"):
        return True
    return any(detail.reason in _NO_KEY for detail in details)


def _limited(message: str, details: list[_GoogleDetail], wait_s: float | None) -> RateLimited:
    """Too many requests. Google names a wait of seconds beside a quota that is spent until tomorrow, too."""
    violations = [violation for detail in details for violation in detail.violations]
    if any("PerDay" in violation.quota_id for violation in violations):
        reason = "the quota of the day is spent"
    elif any(violation.quota_value == "0" for violation in violations):
        reason = "the account has no quota for this model"
    else:
        return RateLimited(message, status=429, retry_after_s=wait_s)
    return RateLimited(f"{message}; {reason}", status=429, retry_advised=False)


def _refused(message: str, status: int) -> BadRequest | None:
    about = message.lower()
    if _SCHEMA_WORDS.search(about):
        return SchemaRejected(message, status=status)
    named = _NAMED.search(about)
    if named is None:
        return None
    field = str(named.lastgroup)
    return FieldRejected(f"{message}; leave {field} out or change it", status=status, field=field)


def _seconds(delay: str) -> float | None:
    """google.protobuf.Duration as JSON: ``"38.8s"``."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", delay)
    return float(found[1]) if found else None


def _detail(raw: msgspec.Raw) -> _GoogleDetail | None:
    """None for a detail of another shape: there are kinds of which nothing is read."""
    try:
        return foreign.decode(raw, _GoogleDetail)
    except Undecodable:
        return None


def _problem(body: bytes) -> _GoogleStatus | None:
    """The error of a body; some gateways put it into a list."""
    try:
        return foreign.decode(body, _GoogleTrouble).error
    except Undecodable:
        pass
    try:
        listed = foreign.decode(body, list[_GoogleTrouble])
    except Undecodable:
        return None
    return listed[0].error if listed else None
