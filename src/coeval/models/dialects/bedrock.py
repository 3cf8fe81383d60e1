"""Amazon Bedrock's Converse, which speaks to the models of all makers in one way.

Written against the service model that botocore carries (`bedrock-runtime`, 2023-09-30) and Bedrock's user
guide, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    Misshapen,
    ModelError,
    NotFound,
    RateLimited,
    ServerFault,
)
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects.anthropic_messages import (
    REDACTED_THINKING,
    TOOL_DESCRIPTION,
    drawing_of,
    family_of,
    keeps_prefix,
    split_shared,
    thinking_of,
)
from coeval.models.dialects.dialect import (
    Dialect,
    FieldRejected,
    arguments_text,
    finish_of,
    finished,
    lay_over,
    problem_of,
    reply_reader,
    schema_for,
    seed_of,
)
from coeval.models.dialects.openai_answer import Counts
from coeval.models.dialects.openai_chat import in_first_turn
from coeval.models.dialects.refusals import refusal_of
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import excerpt

# --- Replies of Converse, and what errors say beyond their HTTP status


class _ConverseThought(msgspec.Struct):
    text: str = ""


class _ConverseReasoning(msgspec.Struct, rename="camel"):
    """``redacted_content`` is there, or not: nobody can read it."""

    reasoning_text: _ConverseThought | None = None
    redacted_content: msgspec.Raw = msgspec.Raw()


class _ConverseCall(msgspec.Struct):
    input: Any = msgspec.field(default_factory=dict)


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


_read_answer = reply_reader(_ConverseAnswer)


def _text(content: list[_ConverseBlock]) -> str:
    """What was said; a call of a tool stands for text that is not there."""
    said: list[str] = []
    for block in content:
        if block.text is not None:
            said.append(block.text)
        if block.citations_content is not None:
            said += (part.text for part in block.citations_content.content)
    calls = (arguments_text(block.tool_use.input) for block in content if block.tool_use)
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


_NO_ACCESS = (
    "AccessDeniedException", "IncompleteSignatureException", "InvalidClientTokenId",
    "InvalidSignatureException", "MissingAuthenticationTokenException", "NotAuthorized", "OptInRequired",
    "UnrecognizedClientException",
)  # fmt: skip
_EXPIRED = ("ExpiredTokenException", "ExpiredToken", "RequestExpired")
_RENEW = "; renew the credentials (aws sso login, or a new session) and go on with --continue"
_DAY = "; the quota of the day is spent"
# What AWS's names say: the error, and what is added to its words where waiting does not help.
_NAMED: Mapping[str, tuple[type[ModelError], str]] = {
    **dict.fromkeys(_NO_ACCESS, (AccessDenied, "")),
    **dict.fromkeys(_EXPIRED, (AccessDenied, _RENEW)),
    "ThrottlingException": (RateLimited, ""),
    "ServiceQuotaExceededException": (RateLimited, "; the account's quota is spent"),
    "ModelNotReadyException": (ServerFault, ""),
    "ModelErrorException": (ServerFault, ""),
    "ResourceNotFoundException": (NotFound, ""),
}
_PER_DAY = re.compile(r"per day|daily")


class _AwsProblem(msgspec.Struct, rename="camel"):
    message: str | None = None
    capitalized: str | None = msgspec.field(default=None, name="Message")
    kind: str | None = msgspec.field(default=None, name="__type")
    original_status_code: int | None = None


# --- Parameters beyond Converse's own, by model maker
#
# Sources: the user guide's inference parameters by model, its pages on structured outputs and on the models
# and features that Converse supports, and the guides of Amazon Nova (November 2026). Claude's families have a
# table of their own (`ClaudeFamily`).


class BedrockFamily(NamedTuple):
    """``top_k`` and ``effort`` are where a parameter lies in ``additionalModelRequestFields``, outermost
    name first, empty where there is nothing for it; ``beside_effort`` goes with it. ``follows`` is how a
    schema is given: as the format of the answer, as a tool that has to be called, or not at all."""

    top_k: tuple[str, ...] = ()
    effort: tuple[str, ...] = ()
    beside_effort: tuple[tuple[str, str], ...] = ()
    follows: Literal["format", "tool", "none"] = "none"
    system: bool = True


_NOVA = BedrockFamily(top_k=("inferenceConfig", "topK"), follows="tool")
# The first whose pattern occurs in a model's id counts; the last is for what nobody knows: it is sent what
# Converse has for all.
_FAMILIES = (
    (
        r"amazon\.nova-2",
        _NOVA._replace(
            effort=("reasoningConfig", "maxReasoningEffort"), beside_effort=(("type", "enabled"),)
        ),
    ),
    (r"amazon\.nova", _NOVA),
    (r"openai\.gpt-oss", BedrockFamily(effort=("reasoning_effort",), follows="format")),
    (r"openai\.", BedrockFamily(effort=("reasoning", "effort"), follows="format")),
    (r"cohere\.command-r", BedrockFamily(top_k=("k",))),
    (r"mistral\.(mistral-7b|mixtral)", BedrockFamily(top_k=("top_k",), system=False)),
    (r"mistral\.(mistral-large-3|magistral|ministral|voxtral)", BedrockFamily(follows="format")),
    (r"mistral\.", BedrockFamily(top_k=("top_k",))),
    (
        r"(qwen\.qwen3|deepseek\.v|moonshot(ai)?\.|minimax\.|nvidia\.|google\.gemma|zai\.)",
        BedrockFamily(follows="format"),
    ),
    (r"amazon\.titan-text|cohere\.command-(text|light)", BedrockFamily(system=False)),
    (r"", BedrockFamily()),
)


@lru_cache(maxsize=1024)
def bedrock_family(model: str) -> BedrockFamily:
    """The family of a model by its id, the id of an inference profile, or an ARN that holds one."""
    return next(family for ids, family in _FAMILIES if re.search(ids, model.lower()))


def nested(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """``("a", "b")`` and a value: ``{"a": {"b": value}}``."""
    outer, *inner = place
    return {outer: nested(tuple(inner), value) if inner else value}


Body: TypeAlias = dict[str, Any]

# Converse's own fields; every other parameter is the model's.
_OF_THE_BODY = frozenset(
    {
        "additionalModelRequestFields", "additionalModelResponseFieldPaths", "guardrailConfig",
        "inferenceConfig", "outputConfig", "performanceConfig", "promptVariables", "requestMetadata",
        "serviceTier", "toolConfig",
    }
)  # fmt: skip
_OF_THE_MODEL = "additionalModelRequestFields"
# Of these, users set some fields and leave ours.
_GROUPS = (_OF_THE_MODEL, "inferenceConfig", "outputConfig")


class Bedrock(Dialect):
    """Converse; see `Dialect`."""

    labels_field = None

    def path(self, spec: ModelSpec) -> str:
        return f"/model/{quote(spec.model, safe='')}/converse"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        if request.top_logprobs is not None:
            raise BadRequest(f"{host.name} has no log-probabilities; leave top_logprobs out")
        if seed_of(request) is not None:
            raise FieldRejected(f"{host.name} has nothing for seed; leave it out", field="seed")
        family = bedrock_family(spec.model)
        body = _said(request, spec, family)
        claude = _is_claude(spec.model)
        drawn = _of_claude(request, spec.model) if claude else _of_others(request, spec.model, family)
        sampling = request.sampling
        body["inferenceConfig"] = _set(
            maxTokens=sampling.max_tokens,
            temperature=drawn.pop("temperature", None),
            topP=drawn.pop("top_p", None),
            stopSequences=sampling.stop,
        )
        body["outputConfig"] = _set(effort=drawn.pop("effort", None))
        body[_OF_THE_MODEL] = drawn
        if (schema := schema_for(request, spec, structured=structured)) is not None:
            follows = _claude_follows(spec.model, drawn) if claude else family.follows
            _follow(body, schema, follows)
        for name, value in sampling.rest.items():
            lay_over(body, {name: value} if name in _OF_THE_BODY else {_OF_THE_MODEL: {name: value}}, _GROUPS)
        lay_over(body, spec.extra_body, _GROUPS)
        return msgspec.json.encode({name: value for name, value in body.items() if value != {}})

    def keeps_prefix(self, request: Request, spec: ModelSpec) -> bool:
        return _is_claude(spec.model) and keeps_prefix(request, spec)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """See `Dialect`. ``tool_calls`` is how an answer ends that a forced tool was handed: its text are the
        arguments."""
        answer, notes = _read_answer(body)
        message = answer.output.message if answer.output is not None else None
        if message is None:
            raise Misshapen("no message")
        usage = Counts(answer.usage).cache_apart(
            "inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"
        )
        finish = finish_of(answer.stop_reason, usage)
        content = message.content or []
        completion = Completion(
            text=_text(content),
            usage=usage,
            finish_reason=finish,
            reasoning=_reasoning(content),
            truncated=finish == "length",
        )
        return finished(completion, redactor, notes)

    def explain(self, reply: HttpReply, _: str, redactor: Redactor) -> ModelError | None:
        """See `Dialect`. Beside the table of all dialects, AWS's names tell of credentials that are none or
        have expired, the quota of a day or an account (waiting does not help), a model that is not ready, and
        an error of the model."""
        problem = problem_of(reply.body, _AwsProblem)
        # ``com.amazon.coral#ThrottlingException``, or that name before a colon and a URL.
        named = reply.headers.get("x-amzn-errortype") or problem.kind or ""
        kind = named.partition(":")[0].rpartition("#")[2].strip()
        said = problem.message or problem.capitalized
        message = excerpt(said if said is not None else reply.body, redactor)
        if kind not in _NAMED:
            return refusal_of(reply.status, message)
        error, more = _NAMED[kind]
        if error is RateLimited and _PER_DAY.search(message.lower()):
            more = more or _DAY
        if kind == "ModelErrorException" and 400 <= (problem.original_status_code or 0) < 500:
            error = BadRequest
        return error(f"{message}{more}", status=reply.status, retry_advised=not more)


BEDROCK = Bedrock()


def _is_claude(model: str) -> bool:
    return "anthropic.claude" in model.lower()


def _set(**fields: Any) -> Body:
    return {name: value for name, value in fields.items() if value is not None}


def _said(request: Request, spec: ModelSpec, family: BedrockFamily) -> Body:
    """Turns that alternate, as Converse wants them, and the system prompt where the model takes one; one that
    stands alone is what is asked."""
    messages: Sequence[Message] = request.messages
    if not family.system or all(message.role == "system" for message in messages):
        messages = in_first_turn(messages)
    system = [{"text": m.content} for m in messages if m.role == "system" and m.content.strip()]
    turns: list[Body] = []
    for message in messages:
        if message.role != "system":
            _add(turns, message.role, _blocks(message, spec))
    if request.shared and _is_claude(spec.model) and keeps_prefix(request, spec):
        _mark(turns[-1]["content"], request.shared)
    return {"messages": turns, "system": system} if system else {"messages": turns}


def _add(turns: list[Body], role: str, blocks: Sequence[Body]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    elif blocks:
        turns.append({"role": role, "content": [*blocks]})


def _blocks(message: Message, spec: ModelSpec) -> list[Body]:
    """A message's text, as blocks may not be blank."""
    if message.content.strip():
        return [{"text": message.content}]
    if message.role == "user":
        raise BadRequest(f"{spec.interface} takes no empty message, and one of the user's is; leave it out")
    return []


def _mark(content: list[Body], shared: int) -> None:
    """End what the cache is to keep within the last text: a point after its first ``shared`` characters."""
    head, rest = split_shared(content.pop()["text"], shared)
    content += [{"text": head}, {"cachePoint": {"type": "default"}}]
    if rest:
        content.append({"text": rest})


def _of_claude(request: Request, model: str) -> Body:
    """What Claude's families take, by the names of Anthropic's API; ``effort`` is Converse's."""
    claude = family_of(model)
    thinking = thinking_of(request.sampling, model, claude)
    thinks = thinking is not None and thinking["type"] in ("enabled", "adaptive")
    drawn: Body = dict(drawing_of(request, model, claude, thinks=thinks))
    return drawn | _set(thinking=thinking, effort=request.sampling.reasoning_effort)


def _of_others(request: Request, model: str, family: BedrockFamily) -> Body:
    sampling = request.sampling
    drawn = _set(temperature=sampling.temperature, top_p=sampling.top_p)
    if sampling.thinking_budget is not None:
        raise FieldRejected(f"{model} has nothing for thinking_budget; leave it out", field="thinking_budget")
    if sampling.top_k is not None:
        if not family.top_k:
            raise FieldRejected(f"{model} has nothing for top_k; leave it out", field="top_k")
        drawn |= nested(family.top_k, sampling.top_k)
    if sampling.reasoning_effort is not None:
        if not family.effort:
            raise FieldRejected(
                f"{model} has nothing for reasoning_effort; leave it out, or set what it has in "
                "parameters.extra_body, within additionalModelRequestFields",
                field="reasoning_effort",
            )
        said = nested(family.effort, sampling.reasoning_effort)
        if family.beside_effort:
            said[family.effort[0]] |= dict(family.beside_effort)
        drawn |= said
    return drawn


def _claude_follows(model: str, drawn: Body) -> str:
    if family_of(model).schemas:
        return "format"
    return "none" if "thinking" in drawn else "tool"  # who thinks is not forced


def _follow(body: Body, schema: Schema, how: str) -> None:
    """Have the answer follow a schema."""
    encoded = msgspec.json.encode(schema.body)
    if how == "format":
        body["outputConfig"]["textFormat"] = _format(schema.name, encoded)
    elif how == "tool" and schema.body.get("type") == "object":
        body["toolConfig"] = {
            "tools": [_tool(schema.name, encoded)],
            "toolChoice": {"tool": {"name": schema.name}},
        }


@lru_cache(maxsize=256)
def _format(name: str, schema: bytes) -> msgspec.Raw:
    """Encoded once, as a run asks for few schemas many times; Converse takes a schema as a text."""
    structure = {"jsonSchema": {"schema": schema.decode(), "name": name}}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "structure": structure}))


@lru_cache(maxsize=256)
def _tool(name: str, schema: bytes) -> msgspec.Raw:
    tool = {"name": name, "description": TOOL_DESCRIPTION, "inputSchema": {"json": msgspec.Raw(schema)}}
    return msgspec.Raw(msgspec.json.encode({"toolSpec": tool}))
