"""What comes back from Converse."""

from __future__ import annotations

import msgspec

from coeval.core import foreign
from coeval.core.errors import ContentFiltered, Misshapen, Undecodable, Unreadable
from coeval.core.records import Completion, Usage
from coeval.core.secrets.redaction import Redactor
from coeval.core.text import split_reasoning
from coeval.models.dialects.anthropic.claude_words import FINISH, REDACTED_THINKING
from coeval.models.dialects.token_counts import UNCOUNTED, Counts, cache_apart
from coeval.models.discreet import without_secrets

__all__ = ["decode"]

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


class _ConverseUsage(msgspec.Struct, rename="camel"):
    """Read apart, see `token_counts`."""

    input_tokens: msgspec.Raw = msgspec.Raw()
    output_tokens: msgspec.Raw = msgspec.Raw()
    cache_read_input_tokens: msgspec.Raw = msgspec.Raw()
    cache_write_input_tokens: msgspec.Raw = msgspec.Raw()


class _ConverseAnswer(msgspec.Struct, rename="camel"):
    output: _ConverseOutput | None = None
    stop_reason: str | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")


_read_answer = foreign.decoder(_ConverseAnswer)
_read_usage = foreign.decoder(_ConverseUsage)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """The answer in a 200, without credentials; time and attempts are not known here.

    ``tool_calls`` is how an answer ends that a forced tool was handed: its text are the arguments.

    Raises
    ------
    ModelError
        a guardrail or the host's filter withheld the answer, or the host made none that it can hand over.
    Undecodable
        it is no answer.
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
    text, reasoning, unclosed = _text(content), _reasoning(content), False
    if reasoning is None:
        text, reasoning, unclosed = split_reasoning(text)
    completion = Completion(
        text=text,
        usage=usage,
        finish_reason=finish,
        reasoning=reasoning,
        truncated=unclosed or finish == "length",
    )
    return without_secrets(completion, redactor)


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
            told = thought.reasoning_text
            thoughts.append(told.text if told is not None else REDACTED_THINKING)
    return "\n".join(thought for thought in thoughts if thought) or None


def _booked(told: bytes) -> Usage:
    """The token counts of an answer."""
    try:
        usage = _read_usage(told)
    except Undecodable:
        return UNCOUNTED
    counts = Counts()
    return cache_apart(
        counts.needed(usage.input_tokens),
        counts.needed(usage.output_tokens),
        counts.optional(usage.cache_read_input_tokens),
        counts.optional(usage.cache_write_input_tokens),
        uncounted=counts.uncounted,
    )
