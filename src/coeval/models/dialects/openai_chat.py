"""OpenAI's chat completions, as most hosts speak them.

Written against OpenAI's reference for `POST /chat/completions` and the deviations that vLLM,
OpenRouter, Groq, DeepSeek, Mistral, Ollama and others document: content in parts, a reasoning
field, usage left out, an error inside a 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import Misshapen, ModelError, Undecodable
from coeval.core.model import ModelSpec
from coeval.core.records import LABELS_KEY, Completion, Request, Schema
from coeval.core.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import MOST_TOKENS, Dialect, ListedModel, ModelList, ModelPage
from coeval.models.dialects.openai_answer import decode
from coeval.models.dialects.openai_error import astray, explain
from coeval.models.dialects.openai_words import Memo, ModelTraits, draw, said_by, traits_at
from coeval.models.pacing.rate_headers import requested_wait_s
from coeval.models.transport.connection import HttpReply

# --- Model list, ``GET /models``
#
# Written against OpenAI's reference and what others add to it: the context window under several names (Groq,
# Mistral, OpenRouter, vLLM; DeepInfra within `metadata`; Hugging Face for each provider behind it), prices
# (OpenRouter's are texts, US dollars per token; DeepInfra's are numbers, US dollars per million), and what is
# not served or makes no text (Groq, Mistral, OpenRouter, Hugging Face).

_ROUTED_AT = 1_677_610_602  # of every model that LiteLLM's proxy lists
_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")


class _Model(msgspec.Struct):
    """One entry. Only its id is relied on; whether the rest is what it should be is looked at one by one."""

    id: str
    created: Any = None
    context_window: Any = None
    context_length: Any = None
    max_context_length: Any = None
    max_model_len: Any = None
    parent: Any = None
    pricing: Any = None
    metadata: Any = None
    active: Any = None
    capabilities: Any = None
    architecture: Any = None
    providers: Any = None


class _List(msgspec.Struct):
    data: list[_Model]


_read_list = foreign.decoder(_List)
_read_bare_list = foreign.decoder(list[_Model])


def _path(_: str | None) -> str:
    return "/models"


def _page(body: bytes) -> ModelPage:
    """The whole list: the dialect has no pages. Some hosts leave out the `data` around it."""
    try:
        models = _read_list(body).data
    except Misshapen as error:
        try:
            models = _read_bare_list(body)
        except Undecodable:
            raise error from None
    windows = {model.id: _window(model) for model in models}
    # Names are routes where there is a wildcard, or all were made at LiteLLM's one moment.
    at_once = bool(models) and all(model.created == _ROUTED_AT for model in models)
    routed = at_once or any("*" in model.id for model in models)
    listed = (_listed(model, windows) for model in models if _answers(model))
    return ModelPage(tuple(model._replace(routed=routed) for model in listed))


def _answers(model: _Model) -> bool:
    """Not where the host says that it is not served, or answers no messages with text."""
    capabilities = model.capabilities if isinstance(model.capabilities, dict) else {}
    architecture = model.architecture if isinstance(model.architecture, dict) else {}
    made = architecture.get("output_modalities")
    return (
        model.active is not False
        and capabilities.get("completion_chat") is not False
        and (not isinstance(made, list) or "text" in made)
        and (not _behind(model) or any(_is_live(provider) for provider in _behind(model)))
    )


def _behind(model: _Model) -> list[dict[str, Any]]:
    """What a router says of those that serve the model for it."""
    listed = model.providers if isinstance(model.providers, list) else []
    return [provider for provider in listed if isinstance(provider, dict)]


def _is_live(provider: dict[str, Any]) -> bool:
    return provider.get("status") in ("live", None)


def _listed(model: _Model, windows: Mapping[str, int | None]) -> ListedModel:
    about = model.metadata if isinstance(model.metadata, dict) else {}
    window = windows[model.id]
    if window is None and isinstance(model.parent, str):  # vLLM lists an adapter without its base's window
        window = windows.get(model.parent)
    told = {f"{provider.get('context_length')}" for provider in _behind(model) if _is_live(provider)}
    prices = _prices(model.pricing, about.get("pricing"))
    return ListedModel(model.id, window, *prices, bounds=len(told) < 2)


def _window(model: _Model) -> int | None:
    about = model.metadata if isinstance(model.metadata, dict) else {}
    behind = [provider.get("context_length") for provider in _behind(model) if _is_live(provider)]
    reported = (*(getattr(model, name) for name in _WINDOWS), about.get("context_length"))
    # A router may take any of its providers: the least of their windows is there in any case.
    least = min((number for number in behind if isinstance(number, int) and _is_count(number)), default=None)
    return next((number for number in reported if _is_count(number)), least)


def _is_count(reported: Any) -> bool:
    return type(reported) is int and 0 < reported <= MOST_TOKENS


def _prices(per_token: Any, per_mtok: Any) -> tuple[float | None, float | None]:
    """US dollars per million tokens of input and output, where they are told in one of the two shapes."""
    if isinstance(per_token, dict):
        return _per_mtok(per_token.get("prompt")), _per_mtok(per_token.get("completion"))
    if isinstance(per_mtok, dict):
        return _price(per_mtok.get("input_tokens")), _price(per_mtok.get("output_tokens"))
    return None, None


def _per_mtok(reported: Any) -> float | None:
    """A price per token, written as text so that it loses no digit; a negative one means that it varies."""
    if not isinstance(reported, str) or len(reported) > 32:
        return None
    try:
        return _price(float(reported) * 1e6)
    except ValueError:
        return None


def _price(reported: Any) -> float | None:
    if isinstance(reported, bool) or not isinstance(reported, int | float) or not 0 <= reported < 1e9:
        return None
    return round(float(reported), 9)


OPENAI_MODELS = ModelList(_path, _page)


METADATA = "metadata"


class OpenAIChat(Dialect):
    """Chat completions; see `Dialect`."""

    labels_field = METADATA
    model_list = OPENAI_MODELS

    def path(self, _: ModelSpec) -> str:
        return "/chat/completions"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        """The JSON body of a request; ``structured=False`` leaves its schema out.

        What the provider has besides, and then ``extra_body``, are laid over what is ours.
        """
        traits = traits_at(host.name, spec.base_model or spec.model)
        body: dict[str, Any] = {"model": spec.model, "messages": request.messages}
        if traits.system != "system":
            body["messages"] = said_by(request.messages, traits.system)
        draw(body, request, spec, host, traits)
        if structured and spec.structured_output and request.schema is not None:
            response_format = _response_format(request, request.schema, host, traits)
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
        passes = requested_wait_s(reply.headers) is not None
        said = explain(reply.status, reply.body, redactor, passes=passes)
        return said or astray(reply.status, reply.body, url, redactor)


OPENAI_CHAT = OpenAIChat()


def _response_format(
    request: Request, schema: Schema, host: Host, traits: ModelTraits
) -> msgspec.Raw | dict[str, str] | None:
    match traits.structured or host.structured:
        case "json_schema":
            return _json_schema(schema, traits.strict)
        # JSON mode answers 400 unless a message says "JSON".
        case "json_object" if any("json" in m.content.lower() for m in request.messages):
            return {"type": "json_object"}
        case _:
            return None


def _as_openai_takes_it(schema: Schema, strict: bool) -> msgspec.Raw:
    needed = {"name": schema.name, "schema": schema.body, "strict": strict and _is_closed(schema.body)}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "json_schema": needed}))


# Encoded once: a run asks for few schemas many times.
_json_schema = Memo(_as_openai_takes_it)


def _is_closed(schema: Any) -> bool:
    """Whether every object of a schema lists all its keys, which strict mode asks for."""
    if isinstance(schema, list):
        return all(map(_is_closed, schema))
    if not isinstance(schema, dict):
        return True
    if schema.get("type") == "object":
        listed = set(schema.get("required", ())) == set(schema.get("properties", ()))
        if not listed or schema.get("additionalProperties") is not False:
            return False
    return all(map(_is_closed, schema.values()))
