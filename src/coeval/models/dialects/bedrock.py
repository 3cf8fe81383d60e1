"""Amazon Bedrock's Converse API, one format for the models of all makers.

Written against the service model in botocore (`bedrock-runtime`, 2023-09-30) and Bedrock's user guide,
read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from coeval.core import errors
from coeval.core.model import ModelSpec
from coeval.core.records import Completion, Message, Request, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects import dialect
from coeval.models.dialects.anthropic_messages import (
    REDACTED_THINKING,
    TOOL_DESCRIPTION,
    encode_drawing,
    encode_thinking,
    find_claude_family,
    keeps_prefix,
    split_shared_prefix,
)
from coeval.models.dialects.openai_answer import Counts
from coeval.models.dialects.openai_chat import move_system_to_user
from coeval.models.dialects.refusals import classify_refusal
from coeval.models.transport.connection import HttpReply
from coeval.models.transport.faults import excerpt

# --- Replies of Converse, and what errors say beyond their HTTP status


class _ConverseThought(msgspec.Struct):
    text: str = ""


class _ConverseReasoning(msgspec.Struct, rename="camel"):
    """Reasoning; ``redacted_content`` is unreadable, and matters only by its presence."""

    reasoning_text: _ConverseThought | None = None
    redacted_content: msgspec.Raw = msgspec.Raw()


class _ConverseCall(msgspec.Struct):
    input: Any = msgspec.field(default_factory=dict)


class _ConverseCited(msgspec.Struct):
    content: list[_ConverseThought] = []


class _ConverseBlock(msgspec.Struct, rename="camel"):
    """A piece of content, one of these; one of an unknown kind has none of them."""

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


_read_answer = dialect.make_reply_reader(_ConverseAnswer)


def _join_text_else_calls(content: list[_ConverseBlock]) -> str:
    texts: list[str] = []
    for block in content:
        if block.text is not None:
            texts.append(block.text)
        if block.citations_content is not None:
            texts += (part.text for part in block.citations_content.content)
    calls = (dialect.encode_arguments(block.tool_use.input) for block in content if block.tool_use)
    return "".join(texts) or "\n".join(calls)


def _join_reasoning(content: list[_ConverseBlock]) -> str | None:
    """Join all thoughts; None if there are none."""
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
_RENEW = "; renew the credentials (aws sso login, or a new session) and resume with --continue"
_DAY = "; the daily quota is used up"
# What AWS's names say: the error, and what is added to its words where waiting does not help.
_NAMED: Mapping[str, tuple[type[errors.ModelError], str]] = {
    **dict.fromkeys(_NO_ACCESS, (errors.AccessDenied, "")),
    **dict.fromkeys(_EXPIRED, (errors.AccessDenied, _RENEW)),
    "ThrottlingException": (errors.RateLimited, ""),
    "ServiceQuotaExceededException": (errors.RateLimited, "; the account's quota is used up"),
    "ModelNotReadyException": (errors.ServerFault, ""),
    "ModelErrorException": (errors.ServerFault, ""),
    "ResourceNotFoundException": (errors.NotFound, ""),
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


SchemaMode: TypeAlias = Literal["format", "tool", "none"]


class BedrockFamily(NamedTuple):
    """What a family of models takes. ``top_k`` and ``effort`` are paths in ``additionalModelRequestFields``,
    empty if there is none; ``beside_effort`` goes with effort. ``follows``: a schema is sent as the
    answer's format, as a forced tool, or not at all."""

    top_k: tuple[str, ...] = ()
    effort: tuple[str, ...] = ()
    beside_effort: tuple[tuple[str, str], ...] = ()
    follows: SchemaMode = "none"
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
def find_bedrock_family(model: str) -> BedrockFamily:
    """Find a model's family by its id, an inference profile's id, or an ARN that holds one."""
    return next(family for ids, family in _FAMILIES if re.search(ids, model.lower()))


def nest_value(keys: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Nest a value: ``("a", "b")`` gives ``{"a": {"b": value}}``."""
    outer, *inner = keys
    return {outer: nest_value(tuple(inner), value) if inner else value}


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


class Bedrock(dialect.Dialect):
    """Bedrock's Converse; see `Dialect`."""

    labels_field = None

    def path(self, spec: ModelSpec) -> str:
        return f"/model/{quote(spec.model, safe='')}/converse"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        if request.top_logprobs is not None:
            raise errors.BadRequest(f"{host.name} has no log-probabilities; leave top_logprobs out")
        if dialect.get_seed(request) is not None:
            raise dialect.FieldRejected(f"{host.name} does not support seed; leave it out", field="seed")
        family = find_bedrock_family(spec.model)
        body = _encode_messages(request, spec, family)
        claude = _is_claude(spec.model)
        parameters = (
            _encode_by_anthropic_names(request, spec.model)
            if claude
            else _encode_by_makers_names(request, spec.model, family)
        )
        sampling = request.sampling
        body["inferenceConfig"] = _drop_unset(
            maxTokens=sampling.max_tokens,
            temperature=parameters.pop("temperature", None),
            topP=parameters.pop("top_p", None),
            stopSequences=sampling.stop,
        )
        body["outputConfig"] = _drop_unset(effort=parameters.pop("effort", None))
        body[_OF_THE_MODEL] = parameters
        if (schema := dialect.get_schema(request, spec, structured=structured)) is not None:
            follows = _choose_claude_schema_mode(spec.model, parameters) if claude else family.follows
            _add_schema(body, schema, follows)
        return dialect.encode_merged_groups(body, request, spec, _OF_THE_BODY, _GROUPS)

    def keeps_prefix(self, request: Request, spec: ModelSpec) -> bool:
        return _is_claude(spec.model) and keeps_prefix(request, spec)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        """Decode an answer; see `Dialect`. The arguments of a forced tool call are its text."""
        answer, notes = _read_answer(body)
        message = answer.output.message if answer.output is not None else None
        if message is None:
            raise errors.Misshapen("no message")
        usage = Counts(answer.usage).read_usage_adding_cache(
            "inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens"
        )
        finish = dialect.finish_reason_or_raise(answer.stop_reason, usage)
        content = message.content or []
        completion = Completion(
            text=_join_text_else_calls(content),
            usage=usage,
            finish_reason=finish,
            reasoning=_join_reasoning(content),
            truncated=finish == "length",
        )
        return dialect.finish_completion(completion, redactor, notes)

    def explain(self, reply: HttpReply, _: str, redactor: Redactor) -> errors.ModelError | None:
        """Explain an error reply; see `Dialect`. Besides the table of all dialects, AWS's error types say
        that credentials are invalid or expired, that a daily or account quota is used up (waiting does not
        help), or that the model is not ready or failed."""
        problem = dialect.read_nested_error(reply.body, _AwsProblem)
        # ``com.amazon.coral#ThrottlingException``, or that name before a colon and a URL.
        error_type = reply.headers.get("x-amzn-errortype") or problem.kind or ""
        kind = error_type.partition(":")[0].rpartition("#")[2].strip()
        text = problem.message or problem.capitalized
        message = excerpt(text if text is not None else reply.body, redactor)
        if kind not in _NAMED:
            return classify_refusal(reply.status, message)
        error, more = _NAMED[kind]
        if error is errors.RateLimited and _PER_DAY.search(message.lower()):
            more = more or _DAY
        if kind == "ModelErrorException" and 400 <= (problem.original_status_code or 0) < 500:
            error = errors.BadRequest
        return error(f"{message}{more}", status=reply.status, retry_advised=not more)


BEDROCK = Bedrock()


def _is_claude(model: str) -> bool:
    return "anthropic.claude" in model.lower()


def _drop_unset(**fields: Any) -> dialect.BodyFields:
    return {name: value for name, value in fields.items() if value is not None}


def _encode_messages(request: Request, spec: ModelSpec, family: BedrockFamily) -> dialect.BodyFields:
    """Encode alternating turns and the system prompt; one that stands alone becomes the user's."""
    messages: Sequence[Message] = request.messages
    if not family.system or all(message.role == "system" for message in messages):
        messages = move_system_to_user(messages)
    system = [{"text": m.content} for m in messages if m.role == "system" and m.content.strip()]
    turns: list[dialect.BodyFields] = []
    for message in messages:
        if message.role != "system":
            _append_turn(turns, message.role, _encode_blocks(message, spec))
    if request.shared and _is_claude(spec.model) and keeps_prefix(request, spec):
        _split_last_text_for_cache(turns[-1]["content"], request.shared)
    return {"messages": turns, "system": system} if system else {"messages": turns}


def _append_turn(turns: list[dialect.BodyFields], role: str, blocks: Sequence[dialect.BodyFields]) -> None:
    if turns and turns[-1]["role"] == role:
        turns[-1]["content"] += blocks
    elif blocks:
        turns.append({"role": role, "content": [*blocks]})


def _encode_blocks(message: Message, spec: ModelSpec) -> list[dialect.BodyFields]:
    """Encode a message's text as blocks, none of which may be blank."""
    if message.content.strip():
        return [{"text": message.content}]
    if message.role == "user":
        raise errors.BadRequest(
            f"{spec.interface} takes no empty message, and a user message is empty; remove it"
        )
    return []


def _split_last_text_for_cache(content: list[dialect.BodyFields], shared_characters: int) -> None:
    """Split the last text after the characters that requests share; a mark ends what the cache keeps."""
    head, rest = split_shared_prefix(content.pop()["text"], shared_characters)
    content += [{"text": head}, {"cachePoint": {"type": "default"}}]
    if rest:
        content.append({"text": rest})


def _encode_by_anthropic_names(request: Request, model: str) -> dialect.BodyFields:
    """Encode the parameters of Claude's families by Anthropic's names; ``effort`` is Converse's."""
    claude = find_claude_family(model)
    thinking = encode_thinking(request.sampling, model, claude)
    thinks = thinking is not None and thinking["type"] in ("enabled", "adaptive")
    parameters: dialect.BodyFields = dict(encode_drawing(request, model, claude, thinks=thinks))
    return parameters | _drop_unset(thinking=thinking, effort=request.sampling.reasoning_effort)


def _encode_by_makers_names(request: Request, model: str, family: BedrockFamily) -> dialect.BodyFields:
    sampling = request.sampling
    parameters = _drop_unset(temperature=sampling.temperature, top_p=sampling.top_p)
    if sampling.thinking_budget is not None:
        raise dialect.FieldRejected(
            f"{model} does not support thinking_budget; leave it out", field="thinking_budget"
        )
    if sampling.top_k is not None:
        if not family.top_k:
            raise dialect.FieldRejected(f"{model} does not support top_k; leave it out", field="top_k")
        parameters |= nest_value(family.top_k, sampling.top_k)
    if sampling.reasoning_effort is not None:
        if not family.effort:
            raise dialect.FieldRejected(
                f"{model} does not support reasoning_effort; leave it out, or set what it has in "
                "parameters.extra_body, within additionalModelRequestFields",
                field="reasoning_effort",
            )
        effort = nest_value(family.effort, sampling.reasoning_effort)
        if family.beside_effort:
            effort[family.effort[0]] |= dict(family.beside_effort)
        parameters |= effort
    return parameters


def _choose_claude_schema_mode(model: str, parameters: dialect.BodyFields) -> SchemaMode:
    if find_claude_family(model).schemas:
        return "format"
    return "none" if "thinking" in parameters else "tool"  # who thinks is not forced


def _add_schema(body: dialect.BodyFields, schema: Schema, schema_mode: SchemaMode) -> None:
    encoded = msgspec.json.encode(schema.body)
    if schema_mode == "format":
        body["outputConfig"]["textFormat"] = _encode_format(schema.name, encoded)
    elif schema_mode == "tool" and schema.body.get("type") == "object":
        body["toolConfig"] = {
            "tools": [_encode_tool(schema.name, encoded)],
            "toolChoice": {"tool": {"name": schema.name}},
        }


@lru_cache(maxsize=256)
def _encode_format(name: str, schema: bytes) -> msgspec.Raw:
    """Encode a schema as the answer's format, a text in Converse; cached, since a run repeats few schemas."""
    structure = {"jsonSchema": {"schema": schema.decode(), "name": name}}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "structure": structure}))


@lru_cache(maxsize=256)
def _encode_tool(name: str, schema: bytes) -> msgspec.Raw:
    tool = {"name": name, "description": TOOL_DESCRIPTION, "inputSchema": {"json": msgspec.Raw(schema)}}
    return msgspec.Raw(msgspec.json.encode({"toolSpec": tool}))
