"""Replies of a chat completions endpoint: an answer, or an error instead.

The structs are partial: further fields are skipped, missing ones have defaults.
"""

from __future__ import annotations

import math
import re
from typing import Any, Literal

import msgspec

from coeval.core import foreign
from coeval.core.errors import ContentFiltered, Misshapen, ModelError, NotFound, Undecodable, Unreadable
from coeval.core.records import Completion, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects import dialect
from coeval.models.dialects.refusals import classify_refusal
from coeval.models.transport.faults import error_behind_200, excerpt, read_error_message

# --- Token counts

# Of an answer or a prompt: the largest contexts hold 10 million. A body's size does not tell.
_MOST_TOKENS = 1 << 24


class Counts:
    """Reads the token counts of an answer by name, each by itself, so that one bad count loses no other.
    ``uncounted`` becomes True if there are no counts, a required one is missing, or one is impossible:
    negative, no whole number, or more than any context holds. Such a count reads as zero, which must not pass
    for its cost."""

    def __init__(self, reported: bytes | msgspec.Raw) -> None:
        self.uncounted: Literal[True] | msgspec.UnsetType = msgspec.UNSET
        try:
            self._reported = foreign.decode(reported, dict[str, Any])
        except Undecodable:
            self.uncounted, self._reported = True, {}

    def count_or_mark_uncounted(self, *path: str) -> int:
        """Return a count that every answer has; ``path`` are the names that lead to it."""
        number = self.count_or_unset(*path)
        if number is msgspec.UNSET:
            self.uncounted = True
            return 0
        return number

    def count_or_unset(self, *path: str) -> int | msgspec.UnsetType:
        """Return a count that may be missing or null, which is UNSET."""
        inner: Any = self._reported
        for name in path:
            if not isinstance(inner, dict):
                self.uncounted = True
                return msgspec.UNSET
            if (inner := inner.get(name)) is None:
                return msgspec.UNSET
        if type(inner) in (int, float) and 0 <= inner <= _MOST_TOKENS and inner == int(inner):
            return int(inner)
        self.uncounted = True
        return 0

    def read_usage_adding_cache(
        self, uncached: str, output: str, cache_read: str, cache_written: str, *reasoning: str
    ) -> Usage:
        """Read the usage of a host that counts only the uncached prompt, and cache reads and writes beside
        it; ours counts the whole prompt."""
        others, made = self.count_or_mark_uncounted(uncached), self.count_or_mark_uncounted(output)
        cached, kept = self.count_or_unset(cache_read), self.count_or_unset(cache_written)
        thoughts = self.count_or_unset(*reasoning) if reasoning else msgspec.UNSET
        return Usage(
            others + (cached or 0) + (kept or 0),
            sum_output_tokens(made, thoughts),
            cached_tokens=cached,
            cache_write_tokens=kept,
            reasoning_tokens=thoughts,
            uncounted=self.uncounted,
        )


def sum_output_tokens(output: int, reasoning: int | msgspec.UnsetType, beyond: int = 0) -> int:
    """Return all output tokens, of a host that may count reasoning separately. ``beyond`` is the total
    without prompt and output. xAI's holds the reasoning; that of Google's OpenAI-like endpoint holds thoughts
    that no other count includes."""
    if reasoning is msgspec.UNSET:
        return output + max(beyond, 0)
    return output + reasoning if reasoning > output or reasoning == beyond else output


FROM_REASONING = "the answer was in `reasoning` and its content null (the reasoning parser does not fit)"
"""The note of an answer that a reasoning parser took for reasoning."""

# For one answer; what is more is no price.
_MOST_USD = 10_000.0


class _Part(msgspec.Struct):
    """A piece of content: text, or (Mistral) thinking, which holds pieces itself."""

    type: str | None = None
    text: str | None = None
    thinking: list[_Part] | str | None = None
    refusal: str | None = None

    @property
    def thought(self) -> str:
        if isinstance(self.thinking, list):
            return "".join(part.text or "" for part in self.thinking)
        return self.thinking or (self.text or "" if self.type in ("thinking", "reasoning") else "")


class _Function(msgspec.Struct):
    arguments: Any = ""


class _ToolCall(msgspec.Struct):
    function: _Function | None = None


class _Message(msgspec.Struct):
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
    top_logprobs: tuple[_Alternative, ...] | None = None


class _Logprobs(msgspec.Struct):
    """All tokens or none: with one missing, another would be taken for the verdict."""

    content: tuple[_Token, ...] | None = None


class _Choice(msgspec.Struct):
    message: _Message
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None
    error: Any = None


class _CostDetails(msgspec.Struct):
    upstream_inference_cost: float | None = None


class _Charge(msgspec.Struct):
    """The cost in OpenRouter's usage, in US dollars; gateways before it pass it on."""

    cost: float | None = None
    is_byok: bool = False
    cost_details: _CostDetails | None = None


class _Answer(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: msgspec.Raw = msgspec.Raw(b"null")
    error: Any = None
    model: Any = None
    id: Any = None
    provider: Any = None


_read_answer = dialect.make_reply_reader(_Answer)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """Decode an answer; see `Dialect`. Missing or impossible usage is marked ``uncounted``."""
    answer, notes = _read_answer(body)
    if answer.error:
        raise read_inner_error(body, redactor)
    if answer.choices is None:
        raise Misshapen("no choices")
    usage = _read_usage(bytes(answer.usage))
    if (usd := _read_charge(bytes(answer.usage))) is not None:
        usage = msgspec.structs.replace(usage, cost_usd=usd)
    if not answer.choices:
        raise Unreadable("the answer has no choices", status=200, usage=usage)
    choice = answer.choices[0]
    if choice.error:  # OpenRouter's, in the words of whoever it asked
        error = read_inner_error(msgspec.json.encode({"error": choice.error}), redactor)
        error.usage = usage
        raise error
    text, reasoning, refusal = _split_message(choice.message)
    finish = dialect.finish_reason_or_raise(choice.finish_reason, usage, text=text)
    if text is None and reasoning and not refusal and finish == "stop":
        # vLLM's reasoning parsers take all that a model says for reasoning until it ends its thinking.
        text, reasoning, notes = reasoning, None, (*notes, FROM_REASONING)
    model, provider = (
        dialect.read_model_name(answer.model),
        dialect.read_model_name(answer.provider),
    )  # OpenRouter says both
    completion = Completion(
        text=text or "",
        usage=usage,
        finish_reason=finish,
        reasoning=reasoning,
        logprobs=_read_logprobs(choice.logprobs) if choice.logprobs is not None else (),
        truncated=finish == "length",
        refusal=refusal,
        served_by=f"{model} ({provider})" if provider else model,
        reply_id=dialect.read_model_name(answer.id),
    )
    return dialect.finish_completion(completion, redactor, notes)


def _read_usage(reported: bytes) -> Usage:
    counts = Counts(reported)
    cached = counts.count_or_unset("prompt_tokens_details", "cached_tokens")
    if cached is msgspec.UNSET:
        cached = counts.count_or_unset("prompt_cache_hit_tokens")
    prompt = counts.count_or_mark_uncounted("prompt_tokens")
    output = counts.count_or_mark_uncounted("completion_tokens")
    reasoning = counts.count_or_unset("completion_tokens_details", "reasoning_tokens")
    written = counts.count_or_unset("prompt_tokens_details", "cache_write_tokens")
    uncounted = counts.uncounted
    beyond = (counts.count_or_unset("total_tokens") or 0) - prompt - output
    return Usage(
        prompt,
        output if uncounted else sum_output_tokens(output, reasoning, 0 if beyond == cached else beyond),
        cached_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=reasoning,
        uncounted=uncounted,
    )


def _read_charge(reported: bytes) -> float | None:
    """Read the cost in US dollars, if the usage has it; with the user's own key at the provider behind the
    host, plus that provider's charge."""
    try:
        charge = foreign.decode(reported, _Charge)
    except Undecodable:
        return None
    usd = charge.cost
    if charge.is_byok and usd is not None:
        upstream = charge.cost_details.upstream_inference_cost if charge.cost_details is not None else None
        usd = usd + upstream if upstream is not None else None
    return usd if usd is not None and is_charge(usd) else None


def is_charge(usd: float) -> bool:
    """Check that a number may be the cost of one answer."""
    return math.isfinite(usd) and 0 <= usd <= _MOST_USD


def _split_message(message: _Message) -> tuple[str | None, str | None, str | None]:
    """Split a message into text, reasoning and refusal; a tool call replaces missing text."""
    reasoning = message.reasoning_content or message.reasoning
    refusal = message.refusal
    content = message.content
    if isinstance(content, list):
        reasoning = reasoning or "".join(part.thought for part in content)
        refusal = refusal or "".join(part.refusal or "" for part in content)
        content = "".join(part.text or "" for part in content if not part.thought)
    if not content and message.tool_calls:
        content = "\n".join(
            dialect.encode_arguments(call.function.arguments) for call in message.tool_calls if call.function
        )
    return content, reasoning or None, refusal or None


def _read_logprobs(logprobs: _Logprobs) -> tuple[TokenLogprob, ...]:
    if not logprobs.content:
        return ()
    # Two byte sequences can read as one token: the likelier, which comes first, is kept.
    return tuple(
        TokenLogprob(
            token.token,
            token.logprob,
            {other.token: other.logprob for other in reversed(token.top_logprobs or ())},
        )
        for token in logprobs.content
    )


# --- Error replies
#
# OpenAI-like hosts agree on little here: Mistral and DeepInfra send FastAPI's lists of locations, Hugging
# Face and Ollama a bare text, OpenRouter the provider's message, Azure the verdicts of its filter.

_NO_DEPLOYMENT = "DeploymentNotFound"
# An HTTP status, as a number or in quotes.
_STATUS = re.compile(r"[45]\d\d")
_VERSION = re.compile(r"[^/]/v\d")


class _Problem(msgspec.Struct):
    code: Any = None
    type: Any = None
    param: Any = None
    metadata: Any = None
    innererror: Any = None


def read_inner_error(body: bytes, redactor: Redactor) -> ModelError:
    """Return the error in a 200 reply: by its code if that is an HTTP status, else by its message."""
    code = f"{dialect.read_nested_error(body, _Problem).code}"
    status = int(code) if _STATUS.fullmatch(code) else None
    return error_behind_200(status or 502, body, redactor, explain(status or 400, body, redactor))


def explain(status: int, body: bytes, redactor: Redactor, *, names_wait: bool = False) -> ModelError | None:
    """Explain an error reply; None leaves it to the status. Besides the table of all dialects, this reads
    Azure's filter verdicts and its code for a missing deployment."""
    problem = dialect.read_nested_error(body, _Problem)
    message = read_error_message(body, redactor)
    param = redactor.redact_message(problem.param) if isinstance(problem.param, str) else ""
    codes = [code for code in (problem.code, problem.type) if isinstance(code, str)]
    codes += problem.metadata if isinstance(problem.metadata, dict) else ()
    if status == 404 and _NO_DEPLOYMENT in codes:
        return NotFound(f"{message} (`model` is the name of the deployment)", status=status)
    error = classify_refusal(status, message, codes=" ".join(codes), param=param, names_wait=names_wait)
    if isinstance(error, ContentFiltered) and (
        verdicts := excerpt(_describe_verdicts(problem.innererror), redactor)
    ):
        return ContentFiltered(f"{message} ({verdicts})", status=status)
    return error


def explain_missing_version(status: int, body: bytes, base_url: str, redactor: Redactor) -> NotFound | None:
    """Explain a 404 that may come of a base URL without ``/v1``, and name the URL to try. None if the host
    mentions the model, or gives the error a code: then the API was reached."""
    words = read_error_message(body, redactor)
    if status != 404 or _VERSION.search(base_url) or "model" in words.lower():
        return None
    if isinstance(dialect.read_nested_error(body, _Problem).code, str):
        return None
    # Most servers put the API below /v1, and people copy the address that the server prints.
    hint = f"the base URL {base_url} has no /v1: try {base_url}/v1"
    return NotFound(f"{words}; {hint}" if words else hint, status=status)


def _describe_verdicts(inner: Any) -> str:
    """Describe what Azure's filter detected, as ``hate: high``."""
    results = inner.get("content_filter_result") if isinstance(inner, dict) else None
    verdicts = [
        f"{kind}: {verdict.get('severity', 'detected')}"
        for kind, verdict in (results.items() if isinstance(results, dict) else ())
        if isinstance(verdict, dict) and verdict.get("filtered") is True
    ]
    return ", ".join(verdicts)
