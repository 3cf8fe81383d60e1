"""OpenAI's chat completions, as most hosts speak them.

Written against OpenAI's reference for `POST /chat/completions` and the deviations that vLLM,
OpenRouter, Groq, DeepSeek, Mistral, Ollama and others document: content in parts, a reasoning
field, usage left out, an error inside a 200.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import BadRequest, ModelError
from coeval.core.model import ModelSpec
from coeval.core.records import LABELS_KEY, Completion, Request, Schema
from coeval.core.secrets.redaction import Redactor
from coeval.models.catalog import Host
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.dialects.dialect import Dialect
from coeval.models.dialects.openai_answer import astray, decode, explain
from coeval.models.dialects.openai_models import OPENAI_MODELS

__all__ = ["OPENAI_CHAT", "OpenAIChat", "encode"]

METADATA = "metadata"


class OpenAIChat(Dialect):
    """Chat completions; see `Dialect`."""

    labels_field = METADATA
    model_list = OPENAI_MODELS

    def path(self, _: ModelSpec) -> str:
        return "/chat/completions"

    def encode(self, request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
        return encode(request, spec, host, structured=structured)

    def decode(self, body: bytes, redactor: Redactor) -> Completion:
        return decode(body, redactor)

    def explain(self, reply: HttpReply, url: str, redactor: Redactor) -> ModelError | None:
        said = explain(reply.status, reply.body, redactor)
        return said or astray(reply.status, reply.body, url, redactor)


OPENAI_CHAT = OpenAIChat()


def encode(request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
    """The JSON body of a request; ``structured=False`` leaves its schema out.

    What the provider has besides, and then ``extra_body``, are laid over what is ours.
    """
    body: dict[str, Any] = {"model": spec.model, "messages": request.messages}
    _draw(body, request, spec, host)
    if request.top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs
    if structured and spec.structured_output and request.schema is not None:
        response_format = _response_format(request, request.schema, host)
        if response_format is not None:
            body["response_format"] = response_format
    if request.labels and host.takes_labels:
        body[METADATA] = {LABELS_KEY: msgspec.json.encode(request.labels).decode()}
    body.update(request.sampling.rest)
    body.update(spec.extra_body)
    return msgspec.json.encode(body)


def _draw(body: dict[str, Any], request: Request, spec: ModelSpec, host: Host) -> None:
    """Put in the typed parameters, by the names of the host."""
    sampling = request.sampling
    if sampling.temperature is not None:
        body["temperature"] = sampling.temperature
    if sampling.top_p is not None:
        body["top_p"] = sampling.top_p
    if sampling.top_k is not None:
        body["top_k"] = sampling.top_k
    if sampling.max_tokens is not None:
        body[host.output_limit_field(spec.model)] = sampling.max_tokens
    if sampling.stop is not None:
        body["stop"] = sampling.stop
    if sampling.reasoning_effort is not None:
        body["reasoning_effort"] = sampling.reasoning_effort
    if sampling.thinking_budget is not None:
        raise BadRequest(f"{host.name} has nothing for thinking_budget; leave it out")
    seed = sampling.seed if request.seed is None else request.seed
    if seed is not None:
        body[host.seed_field] = seed


def _response_format(request: Request, schema: Schema, host: Host) -> msgspec.Raw | dict[str, str] | None:
    if host.structured == "json_schema":
        return _json_schema(schema.name, msgspec.json.encode(schema.body))
    # JSON mode answers 400 unless a message says "JSON".
    if host.structured == "json_object" and any("json" in m.content.lower() for m in request.messages):
        return {"type": "json_object"}
    return None


@lru_cache(maxsize=256)
def _json_schema(name: str, body: bytes) -> msgspec.Raw:
    """A schema as OpenAI takes it; encoded once, for a run asks for few schemas many times."""
    schema = {"name": name, "schema": msgspec.Raw(body), "strict": _is_closed(foreign.decode(body))}
    return msgspec.Raw(msgspec.json.encode({"type": "json_schema", "json_schema": schema}))


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
