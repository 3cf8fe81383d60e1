"""What comes back from Anthropic's Messages API: an answer, or the error in its place."""

from __future__ import annotations

from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import ContentFiltered, Misshapen, ModelError, NotFound, Undecodable
from coeval.core.records import Completion, Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import arguments_text, finish_of, finished, name_of, reply_reader
from coeval.models.dialects.openai_answer import Counts, cache_apart
from coeval.models.dialects.refusals import refusal_of
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import excerpt, from_status, said

# --- Shared by the Messages API and Bedrock's Converse

REDACTED_THINKING = "[a part of the reasoning is withheld by the provider]"

TOOL_DESCRIPTION = "Give the answer, in the form that is asked for."
"""Of the tool that has to be called where a schema is followed in no other way."""


# The API's own, beyond the limit: a turn that it ends before the model does.
_CUT = ("length", "pause_turn")

# The statuses that the API documents for its types of errors.
_STATUS = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}


class _AnthropicBlock(msgspec.Struct):
    """A piece of content, of any type; what is not known here has none of these fields."""

    type: str = "text"
    text: str | None = None
    thinking: str | None = None
    input: Any = None


class _AnthropicStopDetails(msgspec.Struct):
    category: str | None = None
    explanation: str | None = None


class _AnthropicAnswer(msgspec.Struct):
    content: list[_AnthropicBlock] | None = None
    stop_reason: str | None = None
    stop_details: _AnthropicStopDetails | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None
    model: Any = None


_read_answer = reply_reader(_AnthropicAnswer)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """The answer in a 200, without credentials; time and attempts are not known here.

    ``tool_calls`` is how an answer ends that a forced tool was handed: its text are the arguments.

    Raises ModelError: the body holds an error, or the host's classifiers withheld the answer; Undecodable: it
    is no message.
    """
    answer, notes = _read_answer(body)
    if answer.error:
        raise _inner_error(body, redactor)
    if answer.content is None:
        raise Misshapen("no content")
    usage = _booked(bytes(answer.usage))
    if answer.stop_reason == "refusal":
        raise ContentFiltered(_withheld(answer.stop_details, redactor), usage=usage)
    finish = finish_of(answer.stop_reason, usage)
    calls = [arguments_text(block.input) for block in answer.content if block.type == "tool_use"]
    if calls:  # what is said beside the call of a forced tool is no part of the answer
        text = "\n".join(calls)
    else:
        text = "".join(block.text or "" for block in answer.content if block.type == "text")
    completion = Completion(
        text=text,
        usage=usage,
        finish_reason=finish,
        reasoning=_reasoning(answer.content),
        truncated=finish in _CUT,
        served_by=name_of(answer.model),
    )
    return finished(completion, redactor, notes)


def _reasoning(content: list[_AnthropicBlock]) -> str | None:
    """All thinking in a row; None where there is none, or none that is told."""
    parts = [
        block.thinking if block.type == "thinking" else REDACTED_THINKING
        for block in content
        if block.type in ("thinking", "redacted_thinking")
    ]
    return "\n".join(part for part in parts if part) or None


def _withheld(details: _AnthropicStopDetails | None, redactor: Redactor) -> str:
    reported = [part for part in (details.category, details.explanation) if part] if details else []
    why = f" ({': '.join(reported)})" if reported else ""
    return excerpt(f"the host's classifiers withheld the answer{why}", redactor)


def _booked(reported: bytes) -> Usage:
    """The token counts of an answer."""
    counts = Counts(reported)
    return cache_apart(
        counts.needed("input_tokens"),
        counts.needed("output_tokens"),
        counts.optional("cache_read_input_tokens"),
        counts.optional("cache_creation_input_tokens"),
        counts.optional("output_tokens_details", "thinking_tokens"),
        counts.uncounted,
    )


class _AnthropicProblem(msgspec.Struct):
    """The parts of an error that decide what it is."""

    type: Any = None
    message: Any = None
    details: Any = None


class _AnthropicTrouble(msgspec.Struct):
    error: _AnthropicProblem | None = None


def _inner_error(body: bytes, redactor: Redactor) -> ModelError:
    """The error of a 200 that holds one: by its type."""
    status = status_of_error(body, 502)
    return explain(status, body, redactor) or from_status(status, body, "the host, behind a 200,", redactor)


def status_of_error(body: bytes, unknown: int) -> int:
    """The status that an error has, by its type, where it comes without one; ``unknown`` for other types."""
    kind = _problem(body).type
    return _STATUS.get(kind, unknown) if isinstance(kind, str) else unknown


def explain(status: int, body: bytes, redactor: Redactor) -> ModelError | None:
    """What an error body says beyond its status; None where the status says it all."""
    problem = _problem(body)
    reported = problem.message if isinstance(problem.message, str) else body
    details = problem.details if isinstance(problem.details, dict) else {}
    return refusal_of(status, excerpt(reported, redactor), codes=f"{details.get('error_code')}")


def astray(reply: HttpReply, base_url: str, redactor: Redactor) -> NotFound | None:
    """For a 404 that is none of the API's own: the same, with how its address is made."""
    if reply.status != 404 or _problem(reply.body).type is not None:
        return None
    hint = f"this is no address of Anthropic's API, which has /v1/messages below {base_url}: correct base_url"
    words = said(reply.body, redactor)
    return NotFound(f"{words}; {hint}" if words else hint, status=404)


def _problem(body: bytes) -> _AnthropicProblem:
    try:
        return foreign.decode(body, _AnthropicTrouble).error or _AnthropicProblem()
    except Undecodable:
        return _AnthropicProblem()
