"""Google's generateContent, of the Gemini API and Vertex AI.

Written against Google's API reference and its guides on thinking, structured output and Gemma
(November 2026), and against what `google-genai` sends.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core import errors, foreign
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, TokenLogprob, Usage
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects import dialect
from coeval.models.dialects.openai_answer import Counts
from coeval.models.dialects.openai_chat import move_system_to_user
from coeval.models.dialects.refusals import classify_refusal
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import error_behind_200, excerpt

# --- Google's error details (``google.rpc.Status``)

_NO_KEY = frozenset({"API_KEY_INVALID", "API_KEY_EXPIRED", "ACCESS_TOKEN_EXPIRED", "CREDENTIALS_MISSING"})


class _GoogleViolation(msgspec.Struct, rename="camel"):
    quota_id: str = ""
    quota_value: str = ""


class _GoogleDetail(msgspec.Struct, rename="camel"):
    """A detail of google.rpc: an ErrorInfo's reason, a RetryInfo's delay, a QuotaFailure's violations."""

    reason: str = ""
    retry_delay: str = ""
    violations: list[_GoogleViolation] = []


class _GoogleStatus(msgspec.Struct):
    """google.rpc.Status."""

    message: str | None = None
    status: str | None = None
    details: list[Any] = []


def explain(status: int, body: bytes, redactor: Redactor) -> errors.ModelError | None:
    """Explain an error reply; None leaves it to the status. Besides the table of all dialects, this reads
    Google's details: invalid keys (a 400), the requested wait, and a daily quota (waiting does not help)."""
    problem = dialect.read_nested_error(body, _GoogleStatus)
    if problem == _GoogleStatus():
        return None
    message = excerpt(problem.message or body, redactor)
    details = [detail for part in problem.details if (detail := _parse_detail(part)) is not None]
    if _is_access_denied(status, problem, details):
        return errors.AccessDenied(message, status=status)
    wait_s = next((_parse_duration_s(detail.retry_delay) for detail in details if detail.retry_delay), None)
    if status == 429:
        return _make_rate_limit_error(message, details, wait_s)
    if status >= 500 and wait_s is not None:
        return errors.ServerFault(message, status=status, retry_after_s=wait_s)
    return classify_refusal(status, message)


def _is_access_denied(status: int, problem: _GoogleStatus, details: list[_GoogleDetail]) -> bool:
    """Check for an invalid key, or a country or account that Google does not serve (both may be 400)."""
    if problem.status == "UNAUTHENTICATED" or (status == 400 and problem.status == "FAILED_PRECONDITION"):
        return True
    return any(detail.reason in _NO_KEY for detail in details)


def _make_rate_limit_error(
    message: str, details: list[_GoogleDetail], wait_s: float | None
) -> errors.RateLimited:
    """Make the error for too many requests. Google names seconds even for a daily quota."""
    violations = [violation for detail in details for violation in detail.violations]
    if any("PerDay" in violation.quota_id for violation in violations):
        reason = "the daily quota is used up"
    elif any(violation.quota_value == "0" for violation in violations):
        reason = "the account has no quota for this model"
    else:
        return errors.RateLimited(message, status=429, retry_after_s=wait_s)
    return errors.RateLimited(f"{message}; {reason}", status=429, retry_advised=False)


def _parse_duration_s(delay: str) -> float | None:
    match = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?)s", delay)
    return float(match[1]) if match else None


def _parse_detail(part: Any) -> _GoogleDetail | None:
    """Parse a detail; None for the kinds that we do not read."""
    try:
        return foreign.convert(part, _GoogleDetail)
    except errors.Undecodable:
        return None


class _GeminiCall(msgspec.Struct):
    args: Any = msgspec.field(default_factory=dict)


class _GeminiPart(msgspec.Struct, rename="camel"):
    text: str | None = None
    thought: bool | None = None
    function_call: _GeminiCall | None = None


class _GeminiContent(msgspec.Struct):
    parts: list[_GeminiPart] | None = None


class _GeminiToken(msgspec.Struct, rename="camel"):
    token: str = ""
    log_probability: Any = 0.0

    @property
    def logprob(self) -> float:
        """Return the log-probability. Protobuf's JSON writes non-finite numbers as text, and omits zeros."""
        value = self.log_probability
        return float(value) if isinstance(value, int | float) else float("-inf")


class _GeminiAlternatives(msgspec.Struct):
    candidates: tuple[_GeminiToken, ...] | None = None


class _GeminiLogprobs(msgspec.Struct, rename="camel"):
    chosen_candidates: tuple[_GeminiToken, ...] | None = None
    top_candidates: tuple[_GeminiAlternatives, ...] | None = None


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


_read_answer = dialect.make_reply_reader(_GeminiAnswer)


def _read_usage(reported: bytes, candidates: list[_GeminiCandidate]) -> Usage:
    """Read token counts. Google counts cached tokens within the prompt, and thoughts beside the answer.
    Protobuf's JSON omits a zero, so a count may be missing if the answer has nothing of its kind."""
    parts = [part for candidate in candidates if candidate.content for part in candidate.content.parts or []]
    thinks = any(part.text for part in parts if part.thought)
    answers = any(part.text or part.function_call for part in parts if not part.thought)
    counts = Counts(reported)
    thoughts = (counts.count_or_mark_uncounted if thinks else counts.count_or_unset)("thoughtsTokenCount")
    output = (counts.count_or_mark_uncounted if answers else counts.count_or_unset)("candidatesTokenCount")
    return Usage(
        counts.count_or_mark_uncounted("promptTokenCount")
        + (counts.count_or_unset("toolUsePromptTokenCount") or 0),
        (output or 0) + (thoughts or 0),
        cached_tokens=counts.count_or_unset("cachedContentTokenCount"),
        reasoning_tokens=thoughts,
        uncounted=counts.uncounted,
    )


def _split_texts(candidate: _GeminiCandidate) -> tuple[str, str | None]:
    """Split a candidate into text and reasoning; a tool call replaces missing text."""
    parts = (candidate.content.parts if candidate.content is not None else None) or []
    text = "".join(part.text or "" for part in parts if not part.thought)
    thoughts = "".join(part.text or "" for part in parts if part.thought)
    if not text:
        text = "\n".join(
            dialect.encode_arguments(part.function_call.args) for part in parts if part.function_call
        )
    return text, thoughts or None


def _read_logprobs(logprobs: _GeminiLogprobs | None) -> tuple[TokenLogprob, ...]:
    if logprobs is None or not logprobs.chosen_candidates:
        return ()
    tops = logprobs.top_candidates or ()
    return tuple(
        TokenLogprob(chosen.token, chosen.logprob, _read_alternatives(tops[index : index + 1]))
        for index, chosen in enumerate(logprobs.chosen_candidates)
    )


def _read_alternatives(alternatives: Sequence[_GeminiAlternatives]) -> dict[str, float]:
    """Read alternatives by token; of two with the same text, keep the likelier, which comes first."""
    return {
        other.token: other.logprob
        for alternative in alternatives
        for other in reversed(alternative.candidates or ())
    }


# --- Model list, ``GET /models``


class _GeminiModel(msgspec.Struct, rename="camel"):
    name: str
    input_token_limit: Any = None
    supported_generation_methods: list[str] | None = None


class _GeminiList(msgspec.Struct, rename="camel"):
    models: list[_GeminiModel] = []
    next_page_token: str | None = None


_read_list = foreign.make_decoder(_GeminiList)


def _read_model_page(body: bytes) -> dialect.ModelPage:
    """Read a page of models that answer generateContent: others embed, count or paint."""
    page = _read_list(body)
    answering = (
        model
        for model in page.models
        if model.supported_generation_methods is None
        or "generateContent" in model.supported_generation_methods
    )
    listed = (
        dialect.ListedModel(
            model.name.removeprefix("models/"), dialect.read_window(model.input_token_limit), bounds=False
        )
        for model in answering
    )
    return dialect.ModelPage(tuple(listed), page.next_page_token or None)


# The most models that Google puts on a page.
GEMINI_MODELS = dialect.ModelList("/models?pageSize=1000", _read_model_page, after="pageToken")


_ROLES = {"user": "user", "assistant": "model"}
_CONFIG = "generationConfig"
# Fields of a request; all other parameters stand within ``generationConfig``.
_OF_THE_BODY = frozenset(
    {
        _CONFIG, "cachedContent", "contents", "labels", "modelArmorConfig", "safetySettings", "serviceTier",
        "store", "systemInstruction", "toolConfig", "tools",
    }
)  # fmt: skip


class _GeminiFamily(NamedTuple):
    """What the models whose ids match a pattern take. ``thinking``: `level` is a word, `budget` a number of
    tokens. ``drawing``: temperature, top_p and top_k have an effect; other models ignore them silently."""

    ids: str
    thinking: Literal["none", "budget", "level"] = "level"
    always_thinks: bool = False
    drawing: bool = True
    system: bool = True
    structured: bool = True


# The first that matches counts; the last is what nobody knows, such as an endpoint of one's own.
_FAMILIES = (
    _GeminiFamily(r"gemma-3", thinking="none", system=False, structured=False),
    _GeminiFamily(r"gemini-(1|2\.0)", thinking="none"),
    _GeminiFamily(r"gemini-2\.5-pro", thinking="budget", always_thinks=True),
    _GeminiFamily(r"gemini-2\.5", thinking="budget"),
    _GeminiFamily(r"gemini-3\.5-flash-lite|gemini-(3\.[6-9]|[4-9])", always_thinks=True, drawing=False),
    _GeminiFamily(r"gemini-3", always_thinks=True),
    _GeminiFamily(r""),
)

# What the words for effort come to in tokens: Google's table for its OpenAI-shaped endpoint.
_BUDGETS = {"none": 0, "minimal": 1024, "low": 1024, "medium": 8192, "high": 24576}


class Gemini(dialect.Dialect):
    """Google's generateContent; see `Dialect`."""

    labels_field = None
    model_list = GEMINI_MODELS

    def path(self, spec: ModelSpec) -> str:
        return generate_path(spec.model)

    def encode(self, request: Request, spec: ModelSpec, _: Host, *, structured: bool = True) -> bytes:
        """Encode a request; see `Dialect`. ``extra_body`` may replace fields of ``generationConfig``."""
        family = _find_family(spec.model)
        body = _encode_messages(request, family)
        config = _encode_parameters(request, spec, family)
        if request.top_logprobs is not None:
            config["responseLogprobs"] = True
            if request.top_logprobs:
                config["logprobs"] = request.top_logprobs
        if (
            family.structured
            and (schema := dialect.get_schema(request, spec, structured=structured)) is not None
        ):
            config["responseMimeType"] = "application/json"
            config["responseJsonSchema"] = schema.body
        body[_CONFIG] = config
        return dialect.encode_merged_groups(body, request, spec, _OF_THE_BODY, (_CONFIG,))

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """Decode an answer; see `Dialect`. A withheld prompt raises ContentFiltered."""
        answer, notes = _read_answer(body)
        if answer.error:
            code = answer.error.get("code") if isinstance(answer.error, dict) else None
            status = code if isinstance(code, int) and 400 <= code < 600 else 502
            raise error_behind_200(status, body, redactor, explain(status, body, redactor))
        usage = _read_usage(bytes(answer.usage_metadata), answer.candidates or [])
        if not answer.candidates:
            feedback = answer.prompt_feedback
            if feedback is None or feedback.block_reason is None:
                raise errors.Misshapen("no candidates")
            why = ": ".join(filter(None, (feedback.block_reason, feedback.block_reason_message)))
            raise errors.ContentFiltered(
                f"the host's content filter withheld the prompt ({excerpt(why, redactor)})", usage=usage
            )
        candidate = answer.candidates[0]
        finish = dialect.finish_reason_or_raise(
            candidate.finish_reason, usage, excerpt(candidate.finish_message or "", redactor)
        )
        text, reasoning = _split_texts(candidate)
        completion = Completion(
            text=text,
            usage=usage,
            finish_reason=finish,
            reasoning=reasoning,
            logprobs=_read_logprobs(candidate.logprobs_result),
            truncated=finish == "length",
            served_by=dialect.read_model_name(answer.model_version),
        )
        return dialect.finish_completion(completion, redactor, notes)

    def explain(self, reply: HttpReply, _: str, redactor: Redactor) -> errors.ModelError | None:
        return explain(reply.status, reply.body, redactor)


GEMINI = Gemini()


def generate_path(model: str) -> str:
    """Return the path of a model, by its id or resource name (``models/…``, ``tunedModels/…``)."""
    return f"/{quote(model if '/' in model else f'models/{model}')}:generateContent"


def _find_family(model: str) -> _GeminiFamily:
    name = model.rpartition("/")[2].lower()
    return next(family for family in _FAMILIES if re.match(family.ids, name))


def _encode_messages(request: Request, family: _GeminiFamily) -> dialect.BodyFields:
    """Encode the turns and the system prompt; one that stands alone becomes the user's."""
    messages: Sequence[Message] = request.messages
    if not family.system or all(message.role == "system" for message in messages):
        messages = move_system_to_user(messages)
    system = [{"text": message.content} for message in messages if message.role == "system"]
    turns = [
        {"role": _ROLES[message.role], "parts": [{"text": message.content}]}
        for message in messages
        if message.role != "system"
    ]
    return {"systemInstruction": {"parts": system}, "contents": turns} if system else {"contents": turns}


def _encode_parameters(request: Request, spec: ModelSpec, family: _GeminiFamily) -> dialect.BodyFields:
    """Encode the typed parameters by Google's names."""
    sampling = request.sampling
    for name in () if family.drawing else ("temperature", "top_p", "top_k"):
        if getattr(sampling, name) is not None:
            raise dialect.FieldRejected(
                f"{spec.model} takes no {name}, and would ignore it; leave it out", field=name
            )
    config: dialect.BodyFields = {
        "temperature": sampling.temperature,
        "topP": sampling.top_p,
        "topK": sampling.top_k,
        "maxOutputTokens": sampling.max_tokens,
        "stopSequences": sampling.stop,
        "seed": dialect.get_seed(request),
        "thinkingConfig": _encode_thinking(sampling, spec.model, family),
    }
    return {name: value for name, value in config.items() if value is not None}


def _encode_thinking(
    sampling: SamplingParameters, model: str, family: _GeminiFamily
) -> dialect.BodyFields | None:
    """Encode how much to reason, and request the reasoning itself, which is not disclosed otherwise. Raises
    BadRequest: the model's family does not support what is set."""
    effort, budget = sampling.reasoning_effort, sampling.thinking_budget
    if effort is None and budget is None:
        return None
    if effort is not None and budget is not None:
        raise errors.BadRequest("reasoning_effort and thinking_budget mean the same to Gemini; leave one out")
    name = "thinking_budget" if effort is None else "reasoning_effort"
    if family.thinking == "none":
        raise dialect.FieldRejected(f"{model} does not support {name}; leave it out", field=name)
    if effort is not None and family.thinking == "level" and effort != "none":
        return {"includeThoughts": True, "thinkingLevel": effort.upper()}
    if effort is not None:
        budget = _BUDGETS.get(effort)
        if budget is None:
            words = ", ".join(_BUDGETS)
            raise dialect.FieldRejected(f"{model} has no {name} of {effort}; it may be {words}", field=name)
    if budget == 0:
        if family.always_thinks:
            raise dialect.FieldRejected(f"{model} always reasons; raise {name} or leave it out", field=name)
        return {"thinkingBudget": 0}
    return {"includeThoughts": True, "thinkingBudget": budget}
