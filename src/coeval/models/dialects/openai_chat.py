"""OpenAI's chat completions, as most hosts speak them.

Written against OpenAI's reference for `POST /chat/completions` and the deviations that vLLM,
OpenRouter, Groq, DeepSeek, Mistral, Ollama and others document: content in parts, a reasoning
field, usage left out, an error inside a 200.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias, TypeVar

import msgspec

from coeval.core import foreign
from coeval.core.errors import BadRequest, Misshapen, ModelError, Undecodable
from coeval.core.model import ModelSpec
from coeval.core.records import LABELS_KEY, Completion, Message, Request, SamplingParameters, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host, Structured
from coeval.models.dialects import dialect
from coeval.models.dialects.openai_answer import decode, explain, explain_missing_version
from coeval.models.transport.call import read_retry_wait_s
from coeval.models.transport.connection import HttpReply

# --- Model list, ``GET /models``
#
# Written against OpenAI's reference and what others add to it: the context window under several names (Groq,
# Mistral, OpenRouter, vLLM; DeepInfra within `metadata`), and what is not served or makes no text (Groq,
# Mistral, OpenRouter, Hugging Face).

_ROUTED_AT = 1_677_610_602  # of every model that LiteLLM's proxy lists
_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")


class _Model(msgspec.Struct):
    """An entry of a model list. Only the id is required; each other field is checked when it is read."""

    id: str
    created: Any = None
    context_window: Any = None
    context_length: Any = None
    max_context_length: Any = None
    max_model_len: Any = None
    parent: Any = None
    metadata: Any = None
    active: Any = None
    capabilities: Any = None
    architecture: Any = None


class _List(msgspec.Struct):
    data: list[_Model]


_read_list = foreign.make_decoder(_List)
_read_bare_list = foreign.make_decoder(list[_Model])


def _read_model_page(body: bytes) -> dialect.ModelPage:
    """Read the whole list: the dialect has no pages. Some hosts leave out the `data` around it."""
    try:
        models = _read_list(body).data
    except Misshapen as error:
        try:
            models = _read_bare_list(body)
        except Undecodable:
            raise error from None
    windows = {model.id: _find_window(model) for model in models}
    # Names are routes where there is a wildcard, or all were made at LiteLLM's one moment.
    at_once = bool(models) and all(model.created == _ROUTED_AT for model in models)
    routed = at_once or any("*" in model.id for model in models)
    listed = (_make_listed_model(model, windows, routed=routed) for model in models if _is_chat_model(model))
    return dialect.ModelPage(tuple(listed))


def _is_chat_model(model: _Model) -> bool:
    """Check that the host does not mark a model as inactive, or as one that answers no messages with text."""
    capabilities = model.capabilities if isinstance(model.capabilities, dict) else {}
    architecture = model.architecture if isinstance(model.architecture, dict) else {}
    made = architecture.get("output_modalities")
    return (
        model.active is not False
        and capabilities.get("completion_chat") is not False
        and (not isinstance(made, list) or "text" in made)
    )


def _make_listed_model(
    model: _Model, windows: Mapping[str, int | None], *, routed: bool
) -> dialect.ListedModel:
    window = windows[model.id]
    if window is None and isinstance(model.parent, str):  # vLLM lists an adapter without its base's window
        window = windows.get(model.parent)
    return dialect.ListedModel(model.id, window, routed=routed)


def _find_window(model: _Model) -> int | None:
    about = model.metadata if isinstance(model.metadata, dict) else {}
    candidates = (*(getattr(model, name) for name in _WINDOWS), about.get("context_length"))
    return next(filter(None, map(dialect.read_window, candidates)), None)


OPENAI_MODELS = dialect.ModelList("/models", _read_model_page)


# --- Model families with parameters of their own
#
# Rows are held to what the providers document; what is not certain is left to the host, whose refusal names
# the parameter. Sources: OpenAI's and Azure's references and guides to reasoning models, DeepSeek's guide to
# its reasoner, Groq's page on structured outputs, Gemma's model cards, read in November 2026.

SystemRole: TypeAlias = Literal["system", "developer", "user"]
"""Who says the system prompt; `user`: the first turn begins with it, as the model knows no such role."""

NOT_AT_ALL = None
_AS_IT_IS: Mapping[str, Any] = MappingProxyType({})


class ModelTraits(NamedTuple):
    """What a family of models takes at a host: ``models`` matches the start of a model's id, in any case, at
    ``hosts``. ``takes`` gives the only value that a parameter may have, or `NOT_AT_ALL`; ``reasoning_takes``
    the same for requests that ask for reasoning. ``strict``: a schema may be sent as one to follow
    strictly."""

    hosts: tuple[str, ...]
    models: str
    takes: Mapping[str, Any] = _AS_IT_IS
    reasoning_takes: Mapping[str, Any] = _AS_IT_IS
    system: SystemRole = "system"
    structured: Structured | None = None
    strict: bool = True


_OPENAI = ("openai", "azure_openai")
_DEFAULTS_ONLY = {"temperature": 1, "top_p": 1, "logprobs": NOT_AT_ALL}

_FAMILIES = (
    ModelTraits(
        _OPENAI,
        r"(ft:)?o1-(mini|preview)",
        takes={**_DEFAULTS_ONLY, "reasoning_effort": NOT_AT_ALL},
        system="user",
        structured="none",
    ),
    ModelTraits(_OPENAI, r"(ft:)?o1(?!-mini|-preview)\b", takes=_DEFAULTS_ONLY, system="developer"),
    ModelTraits(_OPENAI, r"(ft:)?o[3-9]\b", takes={**_DEFAULTS_ONLY, "stop": NOT_AT_ALL}, system="developer"),
    ModelTraits(
        _OPENAI, r"gpt-5(?!-chat|\.)\b", takes={**_DEFAULTS_ONLY, "stop": NOT_AT_ALL}, system="developer"
    ),
    ModelTraits(_OPENAI, r"gpt-5\.\d+(?!-chat)\b", reasoning_takes=_DEFAULTS_ONLY, system="developer"),
    ModelTraits(
        _OPENAI,
        r"(ft:)?gpt-(3\.5|4-(turbo|1106|0125|vision)|4o-2024-05-13)",
        structured="json_object",
    ),
    ModelTraits(_OPENAI, r"(ft:)?gpt-4(-32k)?(-0314|-0613)?$", structured="none"),
    # The first two would be passed over without a word, and records would say that they were asked for.
    ModelTraits(
        ("deepseek",),
        r"deepseek-reasoner",
        takes={"temperature": NOT_AT_ALL, "top_p": NOT_AT_ALL, "logprobs": NOT_AT_ALL},
    ),
    ModelTraits(("groq",), r"openai/gpt-oss", structured="json_schema"),
    ModelTraits(("groq",), r"meta-llama/llama-4|moonshotai/kimi-k2", structured="json_schema", strict=False),
    # Its chat template raises an error at a system prompt; that of Gemma 3 does not.
    ModelTraits(
        ("vllm", "huggingface_api"),
        r"(google/)?(gemma-(1\.1-|2-|2b|7b)|codegemma|recurrentgemma|shieldgemma)",
        system="user",
    ),
)


@lru_cache(maxsize=1024)
def find_traits(host: str, model: str) -> ModelTraits:
    """Find and merge the traits of all families that a model belongs to."""
    rows = [row for row in _FAMILIES if host in row.hosts and re.match(row.models, model, re.IGNORECASE)]
    return ModelTraits(
        (host,),
        model,
        takes={name: value for row in rows for name, value in row.takes.items()},
        reasoning_takes={name: value for row in rows for name, value in row.reasoning_takes.items()},
        system=next((row.system for row in rows if row.system != "system"), "system"),
        structured=next((row.structured for row in rows if row.structured is not None), None),
        strict=all(row.strict for row in rows),
    )


# --- Conversations without a system prompt


def move_system_to_user(messages: Sequence[Message]) -> list[Message]:
    prompt = "\n\n".join(message.content for message in messages if message.role == "system")
    turns = [message for message in messages if message.role != "system"]
    if not prompt:
        return turns
    if turns and turns[0].role == "user":
        prompt = f"{prompt}\n\n{turns.pop(0).content}"
    return [Message("user", prompt), *turns]


# --- The typed parameters in the words of each host of OpenAI's shape, and those that it has no word for

T = TypeVar("T")


def _cache_by_identity(make: Callable[..., T]) -> Callable[..., T]:
    """Cache results by the identity of the arguments: hashing these would cost as much as the result. The
    cache keeps the arguments alive, so that no other object takes their identity."""
    results: dict[tuple[int, ...], tuple[T, tuple[Any, ...]]] = {}

    def cached(*arguments: Any) -> T:
        key = tuple(map(id, arguments))
        if (entry := results.get(key)) is None:
            if len(results) >= 256:
                results.clear()
            entry = results[key] = make(*arguments), arguments
        return entry[0]

    return cached


@_cache_by_identity  # a model is asked in few ways, each of them very often
def _encode_parameters(
    sampling: SamplingParameters, spec: ModelSpec, host: Host, top_logprobs: int | None, seed: int | None
) -> dialect.BodyFields:
    """Encode the typed parameters by the host's names. Raises BadRequest: one is set that the host, or this
    model of it, does not support; FieldRejected if it may be left out."""
    traits = find_traits(host.name, spec.lookup_name)
    values = {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "top_k": sampling.top_k,
        host.output_limit_field(spec.lookup_name): sampling.max_tokens,
        "stop": sampling.stop,
        "logprobs": None if top_logprobs is None else True,
        "top_logprobs": top_logprobs,
        host.seed_field: sampling.seed if seed is None else seed,
    }
    body: dialect.BodyFields = {name: value for name, value in values.items() if value is not None}
    if sampling.reasoning_effort is not None or sampling.thinking_budget is not None:
        body.update(_encode_reasoning(sampling.reasoning_effort, sampling.thinking_budget, host))
    if not (host.any_shaped and spec.base_url is not None):
        _reject_unsupported_by_host(body, host)
    if traits.takes or traits.reasoning_takes:
        reasons = sampling.reasoning_effort not in (None, "none")
        _reject_unsupported_by_model(
            body, {**traits.takes, **(traits.reasoning_takes if reasons else {})}, spec.lookup_name
        )
    return body


def _encode_reasoning(effort: str | None, budget: int | None, host: Host) -> dialect.BodyFields:
    if budget is not None and host.reasons_by != "reasoning":
        raise dialect.FieldRejected(
            f"{host.name} does not support thinking_budget; leave it out", field="thinking_budget"
        )
    match host.reasons_by:
        case "reasoning":
            if effort is not None and budget is not None:
                raise BadRequest(f"{host.name} takes reasoning_effort or thinking_budget, not both")
            return {"reasoning": {"max_tokens": budget} if budget else {"effort": effort or "none"}}
        case "thinking" if effort == "none":
            return {"thinking": {"type": "disabled"}}
        case "thinking":
            return {"thinking": {"type": "enabled"}, "reasoning_effort": effort}
        case _:
            return {"reasoning_effort": effort}


def _reject_unsupported_by_host(body: Mapping[str, Any], host: Host) -> None:
    for name in sorted(host.lacks.intersection(body)):
        raise dialect.FieldRejected(
            f"{host.name} does not support {name}; leave it out, or set it in extra_body where the host has "
            "it after all",
            field=name,
        )
    stop, most = body.get("stop", ()), host.most_stops
    if most is not None and len(stop) > most:
        raise dialect.FieldRejected(
            f"{host.name} takes at most {most} texts in stop, not {len(stop)}", field="stop"
        )


def _reject_unsupported_by_model(body: Mapping[str, Any], only_values: Mapping[str, Any], model: str) -> None:
    for name, value in only_values.items():
        if name in body and body[name] != value:
            only = "" if value is NOT_AT_ALL else f" other than {value}"
            raise dialect.FieldRejected(
                f"{model} takes no {name}{only}; leave {name} out of the model's parameters", field=name
            )


def assign_system_role(messages: Sequence[Message], system: SystemRole) -> Sequence[Any]:
    if all(message.role != "system" for message in messages):
        return messages
    if system == "developer":
        return [
            {"role": "developer", "content": message.content} if message.role == "system" else message
            for message in messages
        ]
    return move_system_to_user(messages)


# --- The dialect

METADATA = "metadata"


class OpenAIChat(dialect.Dialect):
    """OpenAI's chat completions; see `Dialect`."""

    labels_field = METADATA
    model_list = OPENAI_MODELS

    def path(self, _: ModelSpec) -> str:
        return "/chat/completions"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        traits = find_traits(host.name, spec.lookup_name)
        body: dialect.BodyFields = {"model": spec.model, "messages": request.messages}
        if traits.system != "system":
            body["messages"] = assign_system_role(request.messages, traits.system)
        body.update(
            _encode_parameters(request.sampling, spec, host, request.top_logprobs, request.seed and 1)
        )
        if request.seed is not None:
            body[host.seed_field] = request.seed
        if (schema := dialect.get_schema(request, spec, structured=structured)) is not None:
            response_format = _make_response_format(request, schema, host, traits)
            if response_format is not None:
                body["response_format"] = response_format
        if request.labels and host.takes_labels:
            body[METADATA] = {LABELS_KEY: msgspec.json.encode(request.labels).decode()}
        body.update(request.sampling.rest)
        body.update(spec.extra_body)
        return msgspec.json.encode(body)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        return decode(body, redactor)

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        names_wait = read_retry_wait_s(reply.headers) is not None
        error = explain(reply.status, reply.body, redactor, names_wait=names_wait)
        return error or explain_missing_version(reply.status, reply.body, url, redactor)


OPENAI_CHAT = OpenAIChat()


def _make_response_format(
    request: Request, schema: Schema, host: Host, traits: ModelTraits
) -> msgspec.Raw | dict[str, str] | None:
    match traits.structured or host.structured:
        case "json_schema":
            return _encode_response_schema(schema, traits.strict)
        # JSON mode answers 400 unless a message says "JSON".
        case "json_object" if any("json" in m.content.lower() for m in request.messages):
            return {"type": "json_object"}
        case _:
            return None


@_cache_by_identity  # a run asks for few schemas many times
def _encode_response_schema(schema: Schema, strict: bool) -> msgspec.Raw:
    needed = {"name": schema.name, "schema": schema.body, "strict": strict and _fits_strict_mode(schema.body)}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "json_schema": needed}))


def _fits_strict_mode(schema: Any) -> bool:
    """Check whether every object of a schema requires all its keys, as strict mode demands."""
    if isinstance(schema, list):
        return all(map(_fits_strict_mode, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        listed = set(schema.get("required", ())) == set(schema.get("properties", ()))
        if not listed or schema.get("additionalProperties") is not False:
            return False
    return all(map(_fits_strict_mode, schema.values()))
