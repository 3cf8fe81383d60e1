"""What comes back from a chat completions endpoint: an answer, or the error in its place.

The structs are partial: what a host adds is skipped, what it leaves out has a default.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import (
    ContentFiltered,
    Misshapen,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
    Undecodable,
)
from coeval.core.records import Completion, TokenLogprob, Usage
from coeval.core.secrets.redaction import Redactor
from coeval.core.text import split_reasoning
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected
from coeval.models.dialects.token_counts import count
from coeval.models.discreet import without_secrets
from coeval.models.transport.faults import excerpt, from_status, said

__all__ = ["astray", "decode", "explain"]

_LONGEST_MESSAGE = 500

_FINISH = {
    None: "stop",
    "end_turn": "stop",
    "eos": "stop",
    "function_call": "tool_calls",
    "max_tokens": "length",
    "model_length": "length",
}
"""Other hosts' names for OpenAI's finish reasons; the rest stays as it came."""

_BROKEN_OFF = frozenset({"error", "abort", "insufficient_system_resource"})
"""Finish reasons of answers that the host itself broke off."""

_FILTERED = frozenset({"content_filter", "content_policy_violation", "moderation_blocked"})
_SPENT = frozenset({"insufficient_quota", "billing_hard_limit_reached"})
_VERSION = re.compile(r"[^/]/v\d")
_FORMAT_WORDS = ("response_format", "json_schema", "structured output")


_NOT_EVERYWHERE = ("top_k", "metadata")
"""Fields that some hosts of OpenAI's shape take, and others refuse."""
_UNKNOWN_FIELD = re.compile(
    r"unexpected|unrecogni[sz]ed|unknown|unsupported|not (?:permitted|allowed|supported)|extra"
)


class _Part(msgspec.Struct):
    """A piece of content: text, or (Mistral) thinking, which holds pieces itself."""

    text: str | None = None
    thinking: list[_Part] | str | None = None
    refusal: str | None = None


class _Function(msgspec.Struct):
    arguments: str = ""


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Said(msgspec.Struct):
    content: str | list[_Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[_ToolCall] | None = None


class _Alternative(msgspec.Struct):
    token: str
    logprob: float


class _Token(msgspec.Struct):
    token: str
    logprob: float
    top_logprobs: list[_Alternative] | None = None


class _Logprobs(msgspec.Struct):
    content: list[_Token] | None = None


class _Choice(msgspec.Struct):
    message: _Said
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Usage(msgspec.Struct):
    """Read apart, see `token_counts`."""

    prompt_tokens: msgspec.Raw = msgspec.Raw()
    completion_tokens: msgspec.Raw = msgspec.Raw()


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None


_read_usage = foreign.decoder(_Usage)
_read_answer = foreign.decoder(_Answer)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """The answer in a 200, without credentials; time and attempts are not known here.

    Usage that is left out counts as zero, and so do counts that cannot be: negative, no whole number, or
    more than any context holds.

    Raises
    ------
    ModelError
        the body holds an error, or the host filtered or broke off the answer.
    Undecodable
        it is no chat completion.
    """
    answer = _read_answer(body)
    if answer.error:
        raise _inner_error(body, redactor)
    if not answer.choices:
        raise Misshapen("no choices")
    choice, usage = answer.choices[0], _booked(bytes(answer.usage))
    finish = _FINISH.get(choice.finish_reason) or choice.finish_reason or "stop"
    if finish in _BROKEN_OFF:
        raise ServerFault(f"the host broke off its answer (finish reason {finish})", usage=usage)
    if finish == "content_filter":
        raise ContentFiltered("the host's content filter withheld the answer", usage=usage)
    text, reasoning, refusal = _read(choice.message)
    unclosed = False
    if reasoning is None:
        text, reasoning, unclosed = split_reasoning(text)
    completion = Completion(
        text=text,
        usage=usage,
        finish_reason=finish,
        reasoning=reasoning,
        logprobs=_logprobs(choice.logprobs),
        truncated=unclosed or finish == "length",
        refusal=refusal,
    )
    return without_secrets(completion, redactor)


def _booked(told: bytes) -> Usage:
    """The token counts of an answer; one that is left out, or cannot be, counts as zero."""
    try:
        usage = _read_usage(told)
    except Undecodable:
        return Usage()
    return Usage(count(usage.prompt_tokens), count(usage.completion_tokens))


def _read(said: _Said) -> tuple[str, str | None, str | None]:
    """``(text, reasoning, refusal)`` of a message; a call of a tool stands for text that is not there."""
    reasoning = said.reasoning_content or said.reasoning
    refusal = said.refusal
    content = said.content
    if isinstance(content, list):
        reasoning = reasoning or "".join(_thought(part.thinking) for part in content)
        refusal = refusal or "".join(part.refusal or "" for part in content)
        content = "".join(part.text or "" for part in content)
    if not content and said.tool_calls:
        content = "\n".join(call.function.arguments for call in said.tool_calls if call.function)
    return content or "", reasoning or None, refusal or None


def _thought(thinking: list[_Part] | str | None) -> str:
    if isinstance(thinking, list):
        return "".join(part.text or "" for part in thinking)
    return thinking or ""


def _logprobs(given: _Logprobs | None) -> tuple[TokenLogprob, ...]:
    if given is None or not given.content:
        return ()
    # Two byte sequences can read as one token: the likelier, which comes first, is kept.
    return tuple(
        TokenLogprob(
            token.token,
            token.logprob,
            {other.token: other.logprob for other in reversed(token.top_logprobs or ())},
        )
        for token in given.content
    )


class _Problem(msgspec.Struct):
    """The parts of an error that decide what it is; some hosts leave out the `error` around it."""

    message: Any = None
    code: Any = None
    type: Any = None
    param: Any = None
    metadata: Any = None


class _Trouble(_Problem):
    error: _Problem | str | None = None


def _inner_error(body: bytes, redactor: Redactor) -> ModelError:
    """The error of a 200 that holds one: by its own code where that is an HTTP status."""
    problem = _problem(body)
    code = problem.code if isinstance(problem.code, int) and 400 <= problem.code < 600 else 502
    return explain(code, body, redactor) or from_status(code, body, "the host, behind a 200,", redactor)


def explain(status: int, body: bytes, redactor: Redactor) -> ModelError | None:
    """What an error body says beyond its status; None where the status says it all.

    Recognised are content filters, spent accounts (waiting does not help them), a schema that
    is not taken and a sampling parameter that is not known.
    """
    problem = _problem(body)
    message = excerpt(
        problem.message if isinstance(problem.message, str) else body, redactor, _LONGEST_MESSAGE
    )
    codes = {code for code in (problem.code, problem.type) if isinstance(code, str)}
    if codes & _FILTERED or (isinstance(problem.metadata, dict) and "flagged_input" in problem.metadata):
        return ContentFiltered(message, status=status)
    if status == 429 and codes & _SPENT:
        return RateLimited(message, status=status, retry_advised=False)
    if status in (400, 422):
        about = f"{problem.param} {message}".lower()
        if any(word in about for word in _FORMAT_WORDS):
            return SchemaRejected(message, status=status)
        if _UNKNOWN_FIELD.search(about):
            return _field_rejected(about, message, status)
    return None


def astray(status: int, body: bytes, base_url: str, redactor: Redactor) -> NotFound | None:
    """For a 404 that may be due to a base URL without its ``/v1``: the same, naming the URL to try.

    Not where the host speaks of the model: then it was reached.
    """
    words = said(body, redactor)
    if status != 404 or _VERSION.search(base_url) or "model" in words.lower():
        return None
    # Most servers put the API below /v1, and people copy the address that the server prints.
    hint = f"the base URL {base_url} has no /v1: try {base_url}/v1"
    return NotFound(f"{words}; {hint}" if words else hint, status=status)


def _field_rejected(about: str, message: str, status: int) -> FieldRejected | None:
    field = next((name for name in _NOT_EVERYWHERE if name in about), None)
    if field is None:
        return None
    rejected = FieldRejected(message, status=status)
    rejected.field = field
    return rejected


def _problem(body: bytes) -> _Problem:
    try:
        trouble = foreign.decode(body, _Trouble)
    except Undecodable:
        return _Problem()
    if isinstance(trouble.error, str):
        return _Problem(message=trouble.error, code=trouble.code)
    return trouble.error or trouble
