"""What Bedrock's errors say beyond their HTTP status: an exception's name in a header or in the body."""

from __future__ import annotations

import re

import msgspec

from coeval.core import foreign
from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
    Undecodable,
)
from coeval.core.secrets.redaction import Redactor
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected
from coeval.models.transport.faults import excerpt

__all__ = ["explain"]

_LONGEST_MESSAGE = 500
_EXPIRED = frozenset({"ExpiredTokenException", "ExpiredToken", "RequestExpired"})
_NO_ACCESS = _EXPIRED | {
    "AccessDeniedException", "IncompleteSignatureException", "InvalidClientTokenId",
    "InvalidSignatureException", "MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired",
    "UnrecognizedClientException",
}  # fmt: skip
_NO_MODEL = re.compile(
    r"model identifier is invalid|on-demand throughput|model (?:id )?(?:is )?(?:not found|end of)"
)
_PER_DAY = re.compile(r"per day|daily")
_SCHEMA_WORDS = re.compile(
    r"output_?config|toolconfig|toolchoice|tool use|json_?schema|\bschema\b|textformat|tools\."
)
_FILTERED = re.compile(r"content filter|filtering policy")
_FIELDS = {
    "stop": "stop_?sequences",
    "temperature": "temperature",
    "top_p": "top_?p",
    "top_k": "top_?k",
    "max_tokens": "max_?tokens",
    "thinking_budget": "budget_tokens|thinking",
    "reasoning_effort": "(reasoning_?)?effort|reasoning_?config|reasoning",
}
"""Our names → what Bedrock's messages call them, in small letters."""
_NAMED = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _FIELDS.items()))


class _AwsProblem(msgspec.Struct, rename="camel"):
    message: str | None = None
    capitalized: str | None = msgspec.field(default=None, name="Message")
    kind: str | None = msgspec.field(default=None, name="__type")
    original_status_code: int | None = None


def explain(reply: HttpReply, redactor: Redactor) -> ModelError | None:
    """None where the status says it all.

    Recognised are credentials that are none or have expired, the quota of a day or an account (waiting does
    not help), a model that is not ready or not there, an error of the model itself, a schema that is not
    taken, and a parameter that is not.
    """
    problem = _problem(reply.body)
    kind = _name(reply.headers.get("x-amzn-errortype") or problem.kind or "")
    said = problem.message or problem.capitalized
    message = excerpt(said if said is not None else reply.body, redactor, _LONGEST_MESSAGE)
    status, about = reply.status, message.lower()
    if kind in _EXPIRED:
        way_out = "renew the credentials (aws sso login, or a new session) and go on with --continue"
        return AccessDenied(f"{message}; {way_out}", status=status)
    if kind in _NO_ACCESS:
        return AccessDenied(message, status=status)
    match kind:
        case "ThrottlingException" if _PER_DAY.search(about):
            return RateLimited(
                f"{message}; the quota of the day is spent", status=status, retry_advised=False
            )
        case "ServiceQuotaExceededException":
            return RateLimited(f"{message}; the account's quota is spent", status=status, retry_advised=False)
        case "ThrottlingException":
            return RateLimited(message, status=status)
        case "ModelNotReadyException":
            return ServerFault(message, status=status)
        case "ModelErrorException":
            original = problem.original_status_code
            refused = original is not None and 400 <= original < 500
            return BadRequest(message, status=status) if refused else ServerFault(message, status=status)
        case "ResourceNotFoundException":
            return NotFound(message, status=status)
    return _refused(message, status) if status == 400 else None


def _refused(message: str, status: int) -> ModelError | None:
    about = message.lower()
    if _NO_MODEL.search(about):
        return NotFound(message, status=status)
    if _FILTERED.search(about):
        return ContentFiltered(message, status=status)
    if _SCHEMA_WORDS.search(about):
        return SchemaRejected(message, status=status)
    named = _NAMED.search(about)
    if named is None:
        return None
    field = str(named.lastgroup)
    return FieldRejected(f"{message}; leave {field} out or change it", status=status, field=field)


def _name(kind: str) -> str:
    """``com.amazon.coral#ThrottlingException``, or that name before a colon and a URL."""
    return kind.partition(":")[0].rpartition("#")[2].strip()


def _problem(body: bytes) -> _AwsProblem:
    try:
        return foreign.decode(body, _AwsProblem)
    except Undecodable:
        return _AwsProblem()
