"""What Converse answers: completions, and what Bedrock's errors say beyond their HTTP status."""

from __future__ import annotations

import re

import msgspec

from coeval.core import foreign
from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    Misshapen,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
    Undecodable,
    Unreadable,
)
from coeval.core.records import Completion, Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects.anthropic_answer import FINISH, REDACTED_THINKING
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected, finished
from coeval.models.dialects.openai_answer import Counts, cache_apart
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import excerpt

# --- Converse replies

_FILTERED = {
    "guardrail_intervened": "a guardrail intervened",
    "content_filtered": "the host's content filter withheld the answer",
}
_FAILED = ("malformed_model_output", "malformed_tool_use")


class _ConverseThought(msgspec.Struct):
    text: str = ""


class _ConverseReasoning(msgspec.Struct, rename="camel"):
    """``redacted_content`` is there, or not: nobody can read it."""

    reasoning_text: _ConverseThought | None = None
    redacted_content: msgspec.Raw = msgspec.Raw()


class _ConverseCall(msgspec.Struct):
    input: msgspec.Raw = msgspec.Raw(b"{}")


class _ConverseCited(msgspec.Struct):
    content: list[_ConverseThought] = []


class _ConverseBlock(msgspec.Struct, rename="camel"):
    """A piece of content, one of these; what is not known here has none of them."""

    text: str | None = None
    reasoning_content: _ConverseReasoning | None = None
    tool_use: _ConverseCall | None = None
    citations_content: _ConverseCited | None = None


class _ConverseMessage(msgspec.Struct):
    content: list[_ConverseBlock] | None = None


class _ConverseOutput(msgspec.Struct):
    message: _ConverseMessage | None = None


class _ConverseAnswer(msgspec.Struct, rename="camel"):
    output: _ConverseOutput | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_read_answer = foreign.decoder(_ConverseAnswer)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """The answer in a 200, without credentials; time and attempts are not known here.

    ``tool_calls`` is how an answer ends that a forced tool was handed: its text are the arguments.

    Raises ModelError: a guardrail or the host's filter withheld the answer, or the host made none that it can
    hand over; Undecodable: it is no answer.
    """
    answer = _read_answer(body)
    message = answer.output.message if answer.output is not None else None
    if message is None:
        raise Misshapen("no message")
    usage = _booked(bytes(answer.usage))
    reason = answer.stop_reason
    if reason in _FILTERED:
        raise ContentFiltered(f"{_FILTERED[reason]} (stop reason {reason})", usage=usage)
    if reason in _FAILED:
        raise Unreadable(f"the host broke off its answer (stop reason {reason})", usage=usage)
    finish = FINISH.get(reason) or reason or "stop"
    content = message.content or []
    completion = Completion(
        text=_text(content),
        usage=usage,
        finish_reason=finish,
        reasoning=_reasoning(content),
        truncated=finish == "length",
    )
    return finished(completion, redactor)


def _text(content: list[_ConverseBlock]) -> str:
    """What was said; a call of a tool stands for text that is not there."""
    said: list[str] = []
    for block in content:
        if block.text is not None:
            said.append(block.text)
        if block.citations_content is not None:
            said += (part.text for part in block.citations_content.content)
    calls = (bytes(block.tool_use.input).decode(errors="replace") for block in content if block.tool_use)
    return "".join(said) or "\n".join(calls)


def _reasoning(content: list[_ConverseBlock]) -> str | None:
    """All thoughts in a row; None where there are none."""
    thoughts: list[str] = []
    for block in content:
        thought = block.reasoning_content
        if thought is not None:
            reported = thought.reasoning_text
            thoughts.append(reported.text if reported is not None else REDACTED_THINKING)
    return "\n".join(thought for thought in thoughts if thought) or None


def _booked(reported: bytes) -> Usage:
    """The token counts of an answer."""
    counts = Counts(reported)
    return cache_apart(
        counts.needed("inputTokens"),
        counts.needed("outputTokens"),
        counts.optional("cacheReadInputTokens"),
        counts.optional("cacheWriteInputTokens"),
        uncounted=counts.uncounted,
    )


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
_FILTERED_ERRORS = re.compile(r"content filter|filtering policy")
# Our names → what Bedrock's messages call them, in small letters.
_FIELDS = {
    "stop": "stop_?sequences",
    "temperature": "temperature",
    "top_p": "top_?p",
    "top_k": "top_?k",
    "max_tokens": "max_?tokens",
    "thinking_budget": "budget_tokens|thinking",
    "reasoning_effort": "(reasoning_?)?effort|reasoning_?config|reasoning",
}
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
    message = excerpt(said if said is not None else reply.body, redactor)
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
    if _FILTERED_ERRORS.search(about):
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
