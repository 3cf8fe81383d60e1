"""What Google's two batch interfaces have in common: the words for states, and how errors are told."""

from __future__ import annotations

import re
from collections.abc import Mapping
from http import HTTPStatus
from typing import NamedTuple

import msgspec

from coeval.core import foreign
from coeval.core.errors import ModelError, Undecodable
from coeval.core.secrets.redaction import Redactor
from coeval.models.batch.batch_api import BatchReply, BatchState
from coeval.models.transport.faults import excerpt, from_status

__all__ = ["GoogleError", "failed_reply", "int64", "job_error", "job_name", "line_status", "state_of"]

_STATES: Mapping[str, BatchState] = {
    "UNSPECIFIED": "waiting",
    "PENDING": "waiting",
    "QUEUED": "waiting",
    "SUCCEEDED": "ended",
    "PARTIALLY_SUCCEEDED": "expired",
    "FAILED": "failed",
    "CANCELLED": "cancelled",
    "EXPIRED": "expired",
}
"""Every other word is of a job that goes on."""


class _RpcCode(NamedTuple):
    name: str
    status: int


_CANCELLED = 1
_CODES: Mapping[int, _RpcCode] = {
    2: _RpcCode("UNKNOWN", 500),
    3: _RpcCode("INVALID_ARGUMENT", 400),
    4: _RpcCode("DEADLINE_EXCEEDED", 504),
    5: _RpcCode("NOT_FOUND", 404),
    6: _RpcCode("ALREADY_EXISTS", 409),
    7: _RpcCode("PERMISSION_DENIED", 403),
    8: _RpcCode("RESOURCE_EXHAUSTED", 429),
    9: _RpcCode("FAILED_PRECONDITION", 400),
    10: _RpcCode("ABORTED", 409),
    11: _RpcCode("OUT_OF_RANGE", 400),
    12: _RpcCode("UNIMPLEMENTED", 501),
    13: _RpcCode("INTERNAL", 500),
    14: _RpcCode("UNAVAILABLE", 503),
    15: _RpcCode("DATA_LOSS", 500),
    16: _RpcCode("UNAUTHENTICATED", 401),
}
"""google.rpc.Code, and the HTTP status that the API answers with where it is asked live."""


class GoogleError(msgspec.Struct, frozen=True):
    """google.rpc.Status; ``code`` is one of google.rpc.Code, or an HTTP status."""

    code: int = 2
    message: str = ""
    details: list[msgspec.Raw] | None = None


class _LiveError(msgspec.Struct, frozen=True):
    error: GoogleError


def job_name(tag: str) -> str:
    """What a job is called: both interfaces keep its name, and list it."""
    return f"coeval-{tag}"


def state_of(word: str) -> BatchState:
    """``JOB_STATE_…`` or ``BATCH_STATE_…``."""
    return _STATES.get(word.partition("_STATE_")[2], "running")


def job_error(error: GoogleError, redactor: Redactor) -> ModelError:
    """Why a job failed; its words without credentials."""
    found = from_status(_status(error.code), b"", "", redactor)
    found.args = (excerpt(error.message, redactor) or "Google gives no reason",)
    found.status = None  # nobody was answered with it
    return found


def failed_reply(custom_id: str, error: GoogleError) -> BatchReply:
    """What became of a request that failed, as it would have been answered live. One that was cancelled was
    never carried out."""
    if error.code == _CANCELLED:
        return BatchReply(custom_id, None, msgspec.json.encode(error))
    status = _status(error.code)
    name = _CODES[error.code].name if error.code in _CODES else ""
    told = {"code": status, "message": error.message, "status": name, "details": error.details or []}
    return BatchReply(custom_id, status, msgspec.json.encode({"error": told}))


def line_status(words: str) -> GoogleError:
    """The error in the ``status`` of a line that Vertex AI writes: ``Bad Request: {"error": {…}}``, or words
    alone, in which a name of google.rpc.Code or an HTTP status may stand."""
    before, brace, rest = words.partition("{")
    if brace:
        try:
            return foreign.decode(brace + rest, _LiveError).error
        except Undecodable:
            pass  # its words are shown as they stand
    named = next((code for code, told in _CODES.items() if re.search(rf"\b{told.name}\b", words)), None)
    if named is not None:
        return GoogleError(named, words)
    number = re.search(r"\b[45][0-9]{2}\b", words)
    if number is not None:
        return GoogleError(int(number[0]), words)
    phrase = before.strip().rstrip(":").casefold()
    status = next((each.value for each in HTTPStatus if each.phrase.casefold() == phrase), 500)
    return GoogleError(status, words)


def _status(code: int) -> int:
    if code in _CODES:
        return _CODES[code].status
    return code if 400 <= code < 600 else 500


def int64(told: str | int) -> int | None:
    """A 64-bit number, for which JSON has a text; None where it is not known."""
    try:
        number = int(told)
    except ValueError:
        return None
    return number if number >= 0 else None
