"""Anthropic's Messages API, as Anthropic serves it and others imitate it.

Written against Anthropic's reference for `POST /v1/messages` of the API version ``2023-06-01``. The later
``2026-10-21`` takes no temperature, top_p and top_k for any model; what we use of it is otherwise the
same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.core import foreign
from coeval.core.errors import BadRequest, ContentFiltered, Misshapen, ModelError, NotFound
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects import dialect
from coeval.models.dialects.openai_answer import Counts
from coeval.models.dialects.refusals import classify_refusal
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import error_behind_200, excerpt, read_error_message

# --- Model list, ``GET /v1/models``

_GONE = "retired"


class _ClaudeModel(msgspec.Struct):
    id: str
    lifecycle: str | None = None
    max_input_tokens: Any = None


class _ClaudePage(msgspec.Struct):
    data: list[_ClaudeModel]
    has_more: bool = False
    last_id: str | None = None


_read_page = foreign.make_decoder(_ClaudePage)


def _read_model_page(body: bytes) -> dialect.ModelPage:
    page = _read_page(body)
    models = tuple(
        dialect.ListedModel(model.id, dialect.read_window(model.max_input_tokens), bounds=False)
        for model in page.data
        if model.lifecycle != _GONE
    )
    return dialect.ModelPage(models, page.last_id if page.has_more else None)


ANTHROPIC_MODELS = dialect.ModelList("/v1/models?limit=1000", _read_model_page, after="after_id")


# --- Claude families and the parameters they take
#
# Sources: Anthropic's pages on thinking ("support, defaults and rejected configurations by model"), effort,
# structured outputs and prompt caching, and its migration guides, read in November 2026.

Drawing: TypeAlias = Literal["any", "one of them", "none"]


class ClaudeFamily(NamedTuple):
    """The parameters that a family of models takes.

    ``drawing`` says which of temperature and top_p may be set; if none may, nor may top_k. A model
    ``budgets`` its thinking in tokens, or ``adapts`` it to the question; ``effort`` controls all that it
    does. ``off`` turns thinking off; None: nothing does. If it ``hides`` its reasoning, that must be
    requested. ``schemas``: it follows a JSON schema; else a tool call is forced. ``cached_from`` is the
    least tokens of a prefix that the cache keeps; ``max_tokens`` is the limit of an answer, thinking
    included, if the user sets none: the API demands one.
    """

    drawing: Drawing = "any"
    budgets: bool = False
    adapts: bool = False
    effort: bool = False
    off: Literal["disabled", "between_tools"] | None = "disabled"
    hides: bool = False
    schemas: bool = False
    cached_from: int = 1024
    max_tokens: int = 8192


# No Claude by its name, behind an address that speaks Anthropic's API: it is sent what it is asked with.
_OTHER = ClaudeFamily(budgets=True, effort=True)
_OLD = ClaudeFamily(cached_from=2048, max_tokens=4096)
_BUDGETED = ClaudeFamily(budgets=True)
_ONE = _BUDGETED._replace(drawing="one of them")
_FOUR_FIVE = _ONE._replace(schemas=True)
_FOUR_SIX = _FOUR_FIVE._replace(adapts=True, effort=True)
_ADAPTIVE = ClaudeFamily(
    drawing="none", adapts=True, effort=True, hides=True, schemas=True, max_tokens=16_384
)
_FIVE = _ADAPTIVE._replace(cached_from=512)
_ALWAYS = _FIVE._replace(off=None)

# A line of models ("": any), the first version, and what it takes: the first row that a model is not older
# than holds. A minimum for the cache that is too low does no harm: a prefix that is too short is priced as
# any other.
_FAMILIES: tuple[tuple[str, tuple[int, int], ClaudeFamily], ...] = (
    ("fable", (5, 0), _ALWAYS),
    ("mythos", (5, 0), _ALWAYS),
    ("mythos", (0, 0), _ALWAYS._replace(budgets=True)),
    ("opus", (5, 5), _ALWAYS),
    ("opus", (5, 0), _FIVE),
    ("opus", (4, 8), _ADAPTIVE),
    ("opus", (4, 7), _ADAPTIVE._replace(cached_from=2048)),
    ("opus", (4, 6), _FOUR_SIX._replace(cached_from=4096)),
    ("opus", (4, 5), _FOUR_FIVE._replace(effort=True, cached_from=4096)),
    ("opus", (4, 1), _ONE),
    ("opus", (4, 0), _BUDGETED),
    ("sonnet", (5, 5), _FIVE._replace(off="between_tools")),
    ("sonnet", (5, 0), _FIVE._replace(cached_from=1024)),
    ("sonnet", (4, 6), _FOUR_SIX),
    ("sonnet", (4, 5), _FOUR_FIVE),
    ("sonnet", (3, 7), _BUDGETED),
    ("haiku", (5, 0), _FIVE),
    ("haiku", (4, 5), _FOUR_FIVE._replace(cached_from=4096)),
    ("haiku", (3, 5), _OLD._replace(max_tokens=8192)),
    ("sonnet", (3, 5), ClaudeFamily()),
    ("", (5, 0), _FIVE),
    ("", (0, 0), _OLD),
)

_VERSION = r"(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)"
_NAMES = (
    re.compile(rf"claude-(?P<line>[a-z]+)-{_VERSION}"),
    re.compile(rf"claude-{_VERSION}-(?P<line>[a-z]+)"),
    re.compile(r"claude-(?P<line>mythos)"),
)


@lru_cache(maxsize=1024)
def find_claude_family(model: str) -> ClaudeFamily:
    """Find a model's family by its id, in any host's spelling: ``claude-sonnet-4-5-20250929``,
    ``anthropic.claude-opus-4-1-20250805-v1:0``, ``claude-3-7-sonnet-latest``."""
    for name in _NAMES:
        if (match := name.search(model.lower())) is not None:
            numbers = [int(number or 0) for number in match.groups() if number is None or number.isdigit()]
            line, version = match["line"], (*numbers, 0, 0)[:2]
            return next(
                family
                for family_line, first, family in _FAMILIES
                if family_line in (line, "") and version >= first
            )
    return _OTHER


_THINKS = ("enabled", "adaptive")
# Anthropic's documented minimum of ``thinking.budget_tokens``.
_LEAST_BUDGET = 1024
# With extended thinking Anthropic takes a top_p from 0.95 to 1, and no other drawing parameter.
_LEAST_TOP_P_THINKING = 0.95
# English has four or more; a mark on a prefix that is too short is ignored, and costs nothing.
_LEAST_BYTES_PER_TOKEN = 3


class Anthropic(dialect.Dialect):
    """Anthropic's messages; see `Dialect`."""

    labels_field = None
    model_list = ANTHROPIC_MODELS

    def path(self, _: ModelSpec) -> str:
        return "/v1/messages"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        if request.top_logprobs is not None:
            raise BadRequest(f"{host.name} has no log-probabilities; leave top_logprobs out")
        family = find_claude_family(spec.model)
        body: dialect.BodyFields = {"model": spec.model}
        thinking = encode_thinking(request.sampling, spec.model, family)
        body["max_tokens"] = _answer_limit(request.sampling, family, thinking)
        body["messages"] = turns = _encode_nonsystem_turns(request.messages, host.name)
        if keeps_prefix(request, spec):
            turns[-1] = _split_message_for_cache(request.messages[-1], request.shared)
        system = "\n\n".join(m.content for m in request.messages if m.role == "system" and m.content.strip())
        if system:
            body["system"] = system
        body |= encode_drawing(
            request, spec.model, family, thinks=thinking is not None and thinking["type"] in _THINKS
        )
        _set_stop_and_refuse_seed(body, request, host.name)
        if thinking is not None:
            body["thinking"] = thinking
        if request.sampling.reasoning_effort is not None:
            body["output_config"] = {"effort": request.sampling.reasoning_effort}
        if (schema := dialect.get_schema(request, spec, structured=structured)) is not None:
            _add_schema(body, schema, family)
        body.update(request.sampling.rest)
        body.update(spec.extra_body)
        return msgspec.json.encode(body)

    def keeps_prefix(self, request: Request, spec: ModelSpec) -> bool:
        return keeps_prefix(request, spec)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """Decode an answer; see `Dialect`. The arguments of a forced tool call are its text."""
        answer, notes = _read_answer(body)
        if answer.error:
            status = read_error_status(body, 502)
            raise error_behind_200(status, body, redactor, explain(status, body, redactor))
        if answer.content is None:
            raise Misshapen("no content")
        usage = Counts(answer.usage).read_usage_adding_cache(
            "input_tokens",
            "output_tokens",
            "cache_read_input_tokens",
            "cache_creation_input_tokens",
            *("output_tokens_details", "thinking_tokens"),
        )
        if answer.stop_reason == "refusal":
            raise ContentFiltered(_describe_refusal(answer.stop_details, redactor), usage=usage)
        finish = dialect.finish_reason_or_raise(answer.stop_reason, usage)
        calls = [
            dialect.encode_arguments(block.input) for block in answer.content if block.type == "tool_use"
        ]
        if calls:  # what is said beside the call of a forced tool is no part of the answer
            text = "\n".join(calls)
        else:
            text = "".join(block.text or "" for block in answer.content if block.type == "text")
        completion = Completion(
            text=text,
            usage=usage,
            finish_reason=finish,
            reasoning=_join_reasoning(answer.content),
            truncated=finish in _CUT,
            served_by=dialect.read_model_name(answer.model),
        )
        return dialect.finish_completion(completion, redactor, notes)

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        return explain(reply.status, reply.body, redactor) or explain_wrong_address(reply, url, redactor)


ANTHROPIC = Anthropic()


def keeps_prefix(request: Request, spec: ModelSpec) -> bool:
    """Check whether to mark a request's shared prefix for the cache: it may be long enough. A token counts as
    three bytes, which overestimates tokens: a mark on too short a prefix does no harm."""
    if not (request.shared and spec.prompt_caching):
        return False
    *before, last = request.messages
    head = last.content[: request.shared]
    if not head.strip() or last.role != "user":
        return False
    size = sum(len(message.content.encode()) for message in before) + len(head.encode())
    return size >= _LEAST_BYTES_PER_TOKEN * find_claude_family(spec.model).cached_from


def split_shared_prefix(text: str, shared_characters: int) -> tuple[str, str]:
    """Split a text into what the cache keeps and the rest; no block may be blank."""
    head, rest = text[:shared_characters], text[shared_characters:]
    return (head, rest) if rest.strip() else (text, "")


def _split_message_for_cache(last: Message, shared_characters: int) -> dialect.BodyFields:
    """Split a message into two blocks, and mark the first, with all before it, for the cache."""
    head, rest = split_shared_prefix(last.content, shared_characters)
    kept = {"type": "text", "text": head, "cache_control": {"type": "ephemeral"}}
    return {"role": last.role, "content": [kept, {"type": "text", "text": rest}] if rest else [kept]}


def _encode_nonsystem_turns(messages: Sequence[Message], host: str) -> list[Message | dialect.BodyFields]:
    """Encode the conversation without system prompts. The API refuses a blank turn, and blanks at the end of
    an answer to be continued; it joins consecutive turns of one role itself."""
    turns: list[Message | dialect.BodyFields] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.content.strip():
            turns.append(message)
        elif message.role == "user":
            raise BadRequest(f"{host} takes no empty message, and a user message is empty; remove it")
    if not turns:
        raise BadRequest(f"{host} needs a message besides the system prompt")
    last = messages[-1]
    if last.role == "assistant" and last is turns[-1]:
        turns[-1] = Message("assistant", last.content.rstrip())
    return turns


def encode_thinking(
    sampling: SamplingParameters, model: str, family: ClaudeFamily
) -> dialect.BodyFields | None:
    """Encode how the model thinks; None for its own default."""
    budget = sampling.thinking_budget
    if sampling.reasoning_effort is not None and not family.effort:
        other = "set thinking_budget instead" if family.budgets else "leave it out"
        raise BadRequest(f"{model} takes no reasoning_effort; {other}")
    if budget is None:
        if sampling.reasoning_effort is None or not family.adapts:
            return None
        return {"type": "adaptive", "display": "summarized"} if family.hides else {"type": "adaptive"}
    if budget == 0:
        if family.off is None:
            raise BadRequest(f"{model} always thinks and takes no thinking_budget of 0; leave it out")
        return {"type": family.off}
    if not family.budgets:
        other = "set reasoning_effort instead" if family.effort else "leave it out"
        raise BadRequest(f"{model} takes no thinking_budget; {other}")
    if budget < _LEAST_BUDGET:
        raise BadRequest(f"thinking_budget is {budget}, and {model} takes {_LEAST_BUDGET} or more, or 0")
    return {"type": "enabled", "budget_tokens": budget}


def _answer_limit(
    sampling: SamplingParameters, family: ClaudeFamily, thinking: dialect.BodyFields | None
) -> int:
    """Return the most tokens of an answer, its thinking included."""
    budget = (thinking or {}).get("budget_tokens", 0)
    if sampling.max_tokens is None:
        return family.max_tokens + int(budget)
    if budget >= sampling.max_tokens:
        raise BadRequest(
            f"thinking_budget ({budget}) has to be less than max_tokens ({sampling.max_tokens}), which holds "
            "thinking and answer; raise max_tokens"
        )
    return sampling.max_tokens


def encode_drawing(request: Request, model: str, family: ClaudeFamily, *, thinks: bool) -> dict[str, float]:
    """Encode temperature, top_p and top_k, as far as the model takes them together."""
    sampling = request.sampling
    named = (("temperature", sampling.temperature), ("top_p", sampling.top_p), ("top_k", sampling.top_k))
    drawing = {name: value for name, value in named if value is not None}
    if not drawing:
        return drawing
    crowded = family.drawing == "one of them" and {"temperature", "top_p"} <= drawing.keys()
    if thinks or crowded or family.drawing == "none":
        # A 1 holds anyway, and need not be sent.
        drawing = {name: value for name, value in drawing.items() if name == "top_k" or value != 1}
    for name, value in drawing.items():
        if family.drawing == "none":
            raise dialect.FieldRejected(f"{model} takes no {name}; leave it out", field=name)
        if thinks and not (name == "top_p" and value >= _LEAST_TOP_P_THINKING):
            raise dialect.FieldRejected(
                f"{model} takes no {name} of {value} while it thinks; leave it out", field=name
            )
    if crowded and {"temperature", "top_p"} <= drawing.keys():
        spare = next((name for name in request.droppable if name in ("temperature", "top_p")), "top_p")
        raise dialect.FieldRejected(
            f"{model} takes temperature or top_p, not both; leave {spare} out", field=spare
        )
    return drawing


def _set_stop_and_refuse_seed(body: dialect.BodyFields, request: Request, host: str) -> None:
    """Set where to stop, and refuse a seed."""
    sampling = request.sampling
    if dialect.get_seed(request) is not None:
        raise dialect.FieldRejected(f"{host} takes no seed; leave it out", field="seed")
    if sampling.stop is not None:
        if any(not text.strip() for text in sampling.stop):
            raise BadRequest(f"{host} takes no blank stop text; leave it out of stop")
        body["stop_sequences"] = sampling.stop


def _add_schema(body: dialect.BodyFields, schema: Schema, family: ClaudeFamily) -> None:
    """Make the answer follow a schema: directly, or as the arguments of a forced tool call."""
    encoded = msgspec.json.encode(schema.body)
    if family.schemas:
        body["output_config"] = {**body.get("output_config", {}), "format": _encode_format(encoded)}
    elif "thinking" not in body and schema.body.get("type") == "object":  # who thinks is not forced
        body["tools"] = [_encode_tool(schema.name, encoded)]
        body["tool_choice"] = {"type": "tool", "name": schema.name, "disable_parallel_tool_use": True}


@lru_cache(maxsize=256)
def _encode_format(schema: bytes) -> msgspec.Raw:
    """Encode a schema as the answer's format; cached, since a run repeats few schemas many times."""
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "schema": msgspec.Raw(schema)}))


@lru_cache(maxsize=256)
def _encode_tool(name: str, schema: bytes) -> msgspec.Raw:
    return msgspec.Raw(
        msgspec.json.encode(
            {"name": name, "description": TOOL_DESCRIPTION, "input_schema": msgspec.Raw(schema)}
        )
    )


# --- Replies (the first two are Bedrock's, too)

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
    """A piece of content; one of an unknown type has none of these fields."""

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


_read_answer = dialect.make_reply_reader(_AnthropicAnswer)


def _join_reasoning(content: list[_AnthropicBlock]) -> str | None:
    """Join all thinking; None if there is none, or it is not disclosed."""
    parts = [
        block.thinking if block.type == "thinking" else REDACTED_THINKING
        for block in content
        if block.type in ("thinking", "redacted_thinking")
    ]
    return "\n".join(part for part in parts if part) or None


def _describe_refusal(details: _AnthropicStopDetails | None, redactor: Redactor) -> str:
    reported = [part for part in (details.category, details.explanation) if part] if details else []
    why = f" ({': '.join(reported)})" if reported else ""
    return excerpt(f"the host's classifiers withheld the answer{why}", redactor)


class _AnthropicProblem(msgspec.Struct):
    type: Any = None
    message: Any = None
    details: Any = None


def read_error_status(body: bytes, unknown: int) -> int:
    """Return the HTTP status for an error's type, if it comes without one; ``unknown`` for other types."""
    kind = dialect.read_nested_error(body, _AnthropicProblem).type
    return _STATUS.get(kind, unknown) if isinstance(kind, str) else unknown


def explain(status: int, body: bytes, redactor: Redactor) -> ModelError | None:
    """Explain an error reply; None leaves it to the status."""
    problem = dialect.read_nested_error(body, _AnthropicProblem)
    reported = problem.message if isinstance(problem.message, str) else body
    details = problem.details if isinstance(problem.details, dict) else {}
    return classify_refusal(status, excerpt(reported, redactor), codes=f"{details.get('error_code')}")


def explain_wrong_address(reply: HttpReply, base_url: str, redactor: Redactor) -> NotFound | None:
    """Explain a 404 that is not the API's own: say what the base URL must be."""
    if reply.status != 404 or dialect.read_nested_error(reply.body, _AnthropicProblem).type is not None:
        return None
    hint = f"this is not Anthropic's API, which has /v1/messages below {base_url}: correct base_url"
    words = read_error_message(reply.body, redactor)
    return NotFound(f"{words}; {hint}" if words else hint, status=404)
