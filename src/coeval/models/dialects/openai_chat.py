"""OpenAI's chat completions, as most hosts speak them.

Written against OpenAI's reference for `POST /chat/completions` and the deviations that vLLM,
OpenRouter, Groq, DeepSeek, Mistral, Ollama and others document: content in parts, a reasoning
field, usage left out, an error inside a 200.
"""

from __future__ import annotations

from typing import Any

import msgspec

from coeval.core.errors import ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import LABELS_KEY, Completion, Request, Schema
from coeval.core.secrets.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.dialects.dialect import Dialect
from coeval.models.dialects.memo import Memo
from coeval.models.dialects.openai_answer import decode
from coeval.models.dialects.openai_error import astray, explain
from coeval.models.dialects.openai_families import ModelTraits, traits_at
from coeval.models.dialects.openai_models import OPENAI_MODELS
from coeval.models.dialects.openai_words import draw, said_by

__all__ = ["OPENAI_CHAT", "OPENROUTER_CHAT", "OpenAIChat", "encode"]

METADATA = "metadata"


class OpenAIChat(Dialect):
    """Chat completions; see `Dialect`. ``charged``: its hosts say what they charge for an answer."""

    labels_field = METADATA
    model_list = OPENAI_MODELS

    def __init__(self, *, charged: bool = False) -> None:
        self._charged = charged

    def path(self, _: ModelSpec) -> str:
        return "/chat/completions"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        return encode(request, spec, host, structured=structured)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        return decode(body, redactor, charged=self._charged)

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        said = explain(reply.status, reply.body, redactor)
        return said or astray(reply.status, reply.body, url, redactor)


OPENAI_CHAT = OpenAIChat()
OPENROUTER_CHAT = OpenAIChat(charged=True)


def encode(request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
    """The JSON body of a request; ``structured=False`` leaves its schema out.

    What the provider has besides, and then ``extra_body``, are laid over what is ours.
    """
    traits = traits_at(host.name, spec.known_as)
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
    wanted = {"name": schema.name, "schema": schema.body, "strict": strict and _is_closed(schema.body)}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "json_schema": wanted}))


_json_schema = Memo(_as_openai_takes_it)
"""Encoded once: a run asks for few schemas many times."""


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
