"""What Google says to a generateContent request: an answer, or the error in its place.

The structs are partial: what a host adds is skipped, what it leaves out has a default.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ContentFiltered,
    Misshapen,
    ModelError,
    RateLimited,
    ServerFault,
    Undecodable,
    Unreadable,
)
from coeval.core.records import Completion, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.dialects.dialect import FieldRejected, SchemaRejected, finished, name_of
from coeval.models.dialects.openai_answer import Counts
from coeval.models.transport.faults import excerpt, from_status

# --- Google's error details (``google.rpc.Status``)

_SCHEMA_WORDS = re.compile(
    r"response_?(json_?|mime_?)?(schema|type)|json ?(mode|schema)|controlled generation"
)
# Our names → what Google's messages call them, in small letters.
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
    message = excerpt(trouble.message or body, redactor)
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


_FINISH = {
    None: "stop",
    "STOP": "stop",
    "FINISH_REASON_UNSPECIFIED": "stop",
    "MAX_TOKENS": "length",
    "CONTINUATION": "length",
}
_FILTERED = frozenset(
    {
        "BLOCKLIST", "ESCALATION", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION", "IMAGE_SAFETY", "LANGUAGE",
        "MODEL_ARMOR", "PROHIBITED_CONTENT", "PUP_LIMITED_DISABLED", "RECITATION", "SAFETY", "SPII",
    }
)  # fmt: skip
# Finish reasons of answers that came to nothing without the content being the reason.
_FAILED = frozenset(
    {
        "IMAGE_OTHER", "MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "MISSING_THOUGHT_SIGNATURE",
        "NO_IMAGE", "OTHER", "TOO_MANY_TOOL_CALLS", "UNEXPECTED_TOOL_CALL",
    }
)  # fmt: skip


class _GeminiCall(msgspec.Struct):
    args: msgspec.Raw = msgspec.Raw(b"{}")


class _GeminiPart(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _GeminiCall | None = None


class _GeminiContent(msgspec.Struct):
    parts: list[_GeminiPart] | None = None


class _GeminiToken(msgspec.Struct, rename="camel"):
    token: str = ""
    log_probability: float | str = 0.0

    @property
    def logprob(self) -> float:
        """Protobuf's JSON writes a number that is none, or infinite, as a text."""
        return float("-inf") if isinstance(self.log_probability, str) else self.log_probability


class _GeminiAlternatives(msgspec.Struct):
    candidates: list[_GeminiToken] | None = None


class _GeminiLogprobs(msgspec.Struct, rename="camel"):
    chosen_candidates: list[_GeminiToken] | None = None
    top_candidates: list[_GeminiAlternatives] | None = None


class _GeminiCandidate(msgspec.Struct, rename="camel"):
    content: _GeminiContent | None = None
    finish_reason: str | None = None
    finish_message: str | None = None
    logprobs_result: _GeminiLogprobs | None = None


class _GeminiFeedback(msgspec.Struct, rename="camel"):
    block_reason: str | None = None
    block_reason_message: str | None = None


class _GeminiAnswer(msgspec.Struct, rename="camel"):
    candidates: list[_GeminiCandidate] | None = None
    prompt_feedback: _GeminiFeedback | None = None
    usage_metadata: msgspec.Raw = msgspec.Raw(b"{}")
    error: Any = None
    model_version: Any = None


_read_answer = foreign.decoder(_GeminiAnswer)


def decode(body: bytes, redactor: Redactor) -> Completion:
    """The answer in a 200, without credentials; time and attempts are not known here.

    Raises ModelError: the body holds an error, or Google withheld the answer; Undecodable: it is no answer.
    """
    answer = _read_answer(body)
    if answer.error:
        code = answer.error.get("code") if isinstance(answer.error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 502
        raise explain(status, body, redactor) or from_status(
            status, body, "the host, behind a 200,", redactor
        )
    usage = _booked(bytes(answer.usage_metadata), answer.candidates or [])
    if not answer.candidates:
        feedback = answer.prompt_feedback
        if feedback is None or feedback.block_reason is None:
            raise Misshapen("no candidates")
        raise _withheld("prompt", feedback.block_reason, feedback.block_reason_message, usage, redactor)
    candidate = answer.candidates[0]
    reason = candidate.finish_reason
    if reason in _FILTERED:
        raise _withheld("answer", reason, candidate.finish_message, usage, redactor)
    if reason in _FAILED:
        why = excerpt(candidate.finish_message or "", redactor)
        detail = f"{reason}: {why}" if why else reason
        raise Unreadable(f"the host broke off its answer (finish reason {detail})", usage=usage)
    finish = _FINISH.get(reason) or (reason or "stop").lower()
    text, reasoning = _texts(candidate)
    completion = Completion(
        text=text,
        usage=usage,
        finish_reason=finish,
        reasoning=reasoning,
        logprobs=_logprobs(candidate.logprobs_result),
        truncated=finish == "length",
        served_by=name_of(answer.model_version),
    )
    return finished(completion, redactor)


def _withheld(
    what: str, reason: str | None, message: str | None, usage: Usage, redactor: Redactor
) -> ContentFiltered:
    why = excerpt(message or "", redactor)
    detail = f"{reason}: {why}" if why else f"{reason}"
    return ContentFiltered(
        f"the host's content filter withheld the {what} ({redactor.message(detail)})", usage=usage
    )


def _booked(reported: bytes, candidates: list[_GeminiCandidate]) -> Usage:
    """Google counts cached tokens within the prompt, and thoughts beside the answer. Protobuf's JSON leaves a
    count of zero out, so one may be missing where the answer has nothing of its kind."""
    parts = [part for one in candidates if one.content for part in one.content.parts or []]
    thinks = any(part.text for part in parts if part.thought)
    says = any(part.text or part.function_call for part in parts if not part.thought)
    counts = Counts(reported)
    thoughts = (counts.needed if thinks else counts.optional)("thoughtsTokenCount")
    said = (counts.needed if says else counts.optional)("candidatesTokenCount")
    return Usage(
        counts.needed("promptTokenCount") + (counts.optional("toolUsePromptTokenCount") or 0),
        (said or 0) + (thoughts or 0),
        cached_tokens=counts.optional("cachedContentTokenCount"),
        reasoning_tokens=thoughts,
        uncounted=counts.uncounted,
    )


def _texts(candidate: _GeminiCandidate) -> tuple[str, str | None]:
    """``(text, reasoning)``; a call of a tool stands for text that is not there."""
    parts = (candidate.content.parts if candidate.content is not None else None) or []
    text = "".join(part.text or "" for part in parts if not part.thought)
    thoughts = "".join(part.text or "" for part in parts if part.thought)
    if not text:
        calls = (bytes(part.function_call.args) for part in parts if part.function_call)
        text = "\n".join(call.decode(errors="replace") for call in calls)
    return text, thoughts or None


def _logprobs(given: _GeminiLogprobs | None) -> tuple[TokenLogprob, ...]:
    if given is None or not given.chosen_candidates:
        return ()
    tops = given.top_candidates or []
    return tuple(
        TokenLogprob(chosen.token, chosen.logprob, _top(tops[at] if at < len(tops) else None))
        for at, chosen in enumerate(given.chosen_candidates)
    )


def _top(alternatives: _GeminiAlternatives | None) -> dict[str, float]:
    """Of two that read as one token the likelier, which comes first, is kept."""
    given = alternatives.candidates if alternatives is not None else None
    return {other.token: other.logprob for other in reversed(given or [])}
