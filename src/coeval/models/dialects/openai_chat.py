"""OpenAI's chat completions, as most hosts speak them.

Written against OpenAI's reference for `POST /chat/completions` and the deviations that vLLM,
OpenRouter, Groq, DeepSeek, Mistral, Ollama and others document: content in parts, a reasoning
field, usage left out, an error inside a 200.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Coroutine
from functools import lru_cache
from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import ModelError
from coeval.core.records import Completion, Request, Schema
from coeval.core.redaction import Redactor
from coeval.models.base import Model, ModelSpec
from coeval.models.call import Answered, Call
from coeval.models.catalog import LABELS_KEY, Host
from coeval.models.dialects.openai_answer import FieldRejected, SchemaRejected, astray, decode, explain
from coeval.models.http import Endpoint, Http
from coeval.models.reach import reach
from coeval.models.standing import Standing

__all__ = ["OpenAIChat", "encode"]

METADATA = "metadata"
_PATH = "/chat/completions"
_log = logging.getLogger(__name__)


class OpenAIChat(Model):
    """A model behind a chat completions endpoint."""

    def __init__(
        self,
        spec: ModelSpec,
        host: Host,
        http: Http,
        endpoint: Endpoint,
        standing: Standing,
    ) -> None:
        self.name = spec.name
        self.interface = spec.interface
        self._spec = spec
        self._host = host
        self._http = http
        self._endpoint = endpoint
        self._standing = standing
        self._rejected: set[str] = set()
        self._unknown: set[str] = set()
        self._calls: dict[int, Call[Completion]] = {}

    async def reach(self) -> None:
        if self._standing.refusal() is None:  # else nothing will be asked there
            await reach(self._endpoint, _PATH)

    async def complete(self, request: Request) -> Completion:
        schema = request.schema
        structured = schema is not None and schema.name not in self._rejected
        dropped = self._unknown.intersection(request.droppable, request.sampling) if self._unknown else ()
        sent = _without(request, dropped) if dropped else request
        if request.labels and METADATA in self._unknown:
            sent = msgspec.structs.replace(sent, labels={})
        try:
            completion, latency_s, attempts = await self._send(sent, structured)
        except SchemaRejected as error:
            # No host lists which of its models follow a schema; its 400 is how one learns it.
            if schema is None or not structured:
                raise
            self._learn(self._rejected, schema.name, f"the schema {schema.name}", error)
            return await self.complete(request)
        except FieldRejected as error:
            if not _may_go(error.field, sent):
                raise
            self._learn(self._unknown, error.field, error.field, error)
            return await self.complete(request)
        return msgspec.structs.replace(
            completion, latency_s=latency_s, attempts=attempts, dropped=tuple(sorted(dropped))
        )

    def _learn(self, refused: set[str], name: str, shown: str, error: ModelError) -> None:
        """Leave out from now on what the host refused."""
        if name not in refused:
            refused.add(name)
            _log.warning("%s is asked without %s from now on: %s", self.name, shown, error)

    def _send(self, request: Request, structured: bool) -> Coroutine[Any, Any, Answered[Completion]]:
        body = encode(request, self._spec, self._host, structured=structured)
        return self._http.post(self._endpoint, _PATH, body, self._call(request.rank))

    def _call(self, rank: int) -> Call[Completion]:
        call = self._calls.get(rank)
        if call is None:
            call = self._calls[rank] = Call(
                decode=decode,
                explain=self._explain,
                timeout_s=self._spec.timeout_s,
                rank=rank,
                permit=self._standing.permit,
                unsent=self._standing.unsent,
                tokens=_tokens,
                ended=self._standing.ended,
                refusal=self._standing.refusal,
                lane=self._endpoint.lane(self._spec.model),
            )
        return call

    def _explain(self, status: int, body: bytes, redactor: Redactor) -> ModelError | None:
        return explain(status, body, redactor) or astray(status, body, self._endpoint.url, redactor)


def _without(request: Request, names: Collection[str]) -> Request:
    kept = {name: value for name, value in request.sampling.items() if name not in names}
    return msgspec.structs.replace(request, sampling=kept)


def _may_go(field: str, sent: Request) -> bool:
    """Whether a field that was sent may be left out: it holds nothing that the user asked for."""
    if field == METADATA:
        return bool(sent.labels)
    return field in sent.sampling and field in sent.droppable


def _tokens(completion: Completion) -> int:
    return completion.usage.input_tokens + completion.usage.output_tokens


def encode(request: Request, spec: ModelSpec, host: Host, *, structured: bool = True) -> bytes:
    """The JSON body of a request; ``structured=False`` leaves its schema out.

    A sampling parameter that is None is not sent; ``extra_body`` is laid over the rest.
    """
    body: dict[str, Any] = {"model": spec.model, "messages": request.messages}
    for name, value in request.sampling.items():
        if value is not None:
            body[_field(name, spec, host)] = value
    if request.seed is not None:
        body[host.seed_field] = request.seed
    if request.top_logprobs is not None:
        body["logprobs"] = True
        body["top_logprobs"] = request.top_logprobs
    if structured and spec.structured_output and request.schema is not None:
        response_format = _response_format(request, request.schema, host)
        if response_format is not None:
            body["response_format"] = response_format
    if request.labels and host.takes_labels:
        body[METADATA] = {LABELS_KEY: msgspec.json.encode(request.labels).decode()}
    body.update(spec.extra_body)
    return msgspec.json.encode(body)


def _field(name: str, spec: ModelSpec, host: Host) -> str:
    match name:
        case "max_tokens" | "max_new_tokens":
            return host.output_limit_field(spec.model)
        case "seed":
            return host.seed_field
        case _:
            return name


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
