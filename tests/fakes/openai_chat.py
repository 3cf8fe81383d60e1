"""A host that speaks OpenAI's chat completions: strict about requests, and faulty on demand.

What it accepts and answers follows OpenAI's API reference; ``extra_fields`` are the additions of
another host (vLLM's ``top_k``). Requests are answered by the script first, then by ``reply``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeAlias

from aiohttp import web

from fakes.openai_request import misfit_of
from fakes.scripted import Broken, Raw, Refusal, Requested, ScriptedHost, serving

__all__ = ["Answer", "Broken", "Fault", "Raw", "Requested", "Server", "completion_of", "fake"]


@dataclass(frozen=True)
class Answer:
    """A good answer; ``message`` is laid over the fields of its message, ``body`` over the whole."""

    text: str | None = "ok"
    finish_reason: str | None = "stop"
    usage: tuple[int, int] = (11, 3)
    message: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0


@dataclass(frozen=True)
class Fault:
    """An error in OpenAI's shape."""

    status: int
    message: str = "something went wrong"
    code: str | None = None
    param: str | None = None
    kind: str = "invalid_request_error"
    headers: Mapping[str, str] = field(default_factory=dict)


Behaviour: TypeAlias = Answer | Fault | Raw | Broken
Reply: TypeAlias = Callable[[list[dict[str, Any]]], Behaviour]

CONTENT_FILTER = Fault(400, "The prompt was filtered.", code="content_filter", param="prompt")
SPENT = Fault(429, "You have no credit left.", code="insufficient_quota", kind="insufficient_quota")


@dataclass
class Server(ScriptedHost):
    """A running fake; ``keys`` and ``models`` are those that are known (None: any), ``listed`` the entries of
    its list of models (None: it has none), and ``lists`` counts the requests for it."""

    reply: Reply = lambda _: Answer()
    keys: frozenset[str] | None = None
    models: frozenset[str] | None = None
    extra_fields: frozenset[str] = frozenset()
    listed: Sequence[Mapping[str, Any]] | None = None
    lists: int = 0

    usual: ClassVar[Behaviour] = Answer()

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/v1/chat/completions", self.handle), web.get("/v1/models", self.list_models)]

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        return self.reply(body["messages"])

    async def list_models(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        if (denial := self._denial(request)) is not None:
            return _error(denial)
        if self.listed is None:
            return _error(Fault(404, f"Invalid URL (GET {request.path})"))
        usual = {"object": "model", "created": 1_700_000_000, "owned_by": "system"}
        return web.json_response({"object": "list", "data": [{**usual, **model} for model in self.listed]})

    def behave(self, behaviour: Any, body: dict[str, Any]) -> web.Response:
        if isinstance(behaviour, Fault):
            return _error(behaviour)
        assert isinstance(behaviour, Answer), behaviour
        return web.json_response(completion_of(body, behaviour), headers=behaviour.headers)

    def no_json(self) -> Behaviour:
        return Fault(400, "We could not parse the JSON body of your request.")

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        if (denial := self._denial(request)) is not None:
            raise Refusal(denial)
        misfit = misfit_of({name: value for name, value in body.items() if name not in self.extra_fields})
        if misfit is not None:
            raise Refusal(Fault(400, misfit.message, misfit.code, misfit.param))
        if self.models is not None and body["model"] not in self.models:
            raise Refusal(Fault(404, f"The model `{body['model']}` does not exist.", code="model_not_found"))

    def _denial(self, request: web.Request) -> Fault | None:
        key = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.keys is not None and key not in self.keys:
            return Fault(401, f"Incorrect API key provided: {key}.", code="invalid_api_key")
        return None


def completion_of(body: dict[str, Any], answer: Answer) -> dict[str, Any]:
    logprobs = None
    if body.get("logprobs"):
        tokens = [_token(token, body.get("top_logprobs", 0)) for token in (answer.text or "").split()]
        logprobs = {"content": tokens, "refusal": None}
    prompt, completion = answer.usage
    if answer.finish_reason == "length" and answer.usage == Answer.usage:
        completion = body.get("max_tokens") or body.get("max_completion_tokens") or completion
    message: dict[str, Any] = {
        "role": "assistant",
        "content": answer.text,
        "refusal": None,
        "annotations": [],
    }
    choice = {"index": 0, "message": {**message, **answer.message}, "logprobs": logprobs}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{**choice, "finish_reason": answer.finish_reason}],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
        },
        "system_fingerprint": None,
        **answer.body,
    }


def _token(token: str, alternatives: int) -> dict[str, Any]:
    tops = [(token, -0.1), *((f"alternative-{n}", -2.0 - n) for n in range(1, alternatives))]
    return {**_likelihood(token, -0.1), "top_logprobs": [_likelihood(*top) for top in tops[:alternatives]]}


def _likelihood(token: str, logprob: float) -> dict[str, Any]:
    return {"token": token, "logprob": logprob, "bytes": list(token.encode())}


def _error(fault: Fault) -> web.Response:
    problem = {"message": fault.message, "type": fault.kind, "param": fault.param, "code": fault.code}
    return web.json_response({"error": problem}, status=fault.status, headers=fault.headers)


@asynccontextmanager
async def fake(
    *script: Behaviour,
    reply: Reply = lambda _: Answer(),
    keys: Iterable[str] | None = None,
    models: Iterable[str] | None = None,
    extra_fields: Iterable[str] = (),
    listed: Sequence[Mapping[str, Any]] | None = None,
) -> AsyncIterator[Server]:
    """Serve on loopback, with the fields of `Server`."""
    server = Server(
        deque(script),
        reply=reply,
        keys=None if keys is None else frozenset(keys),
        models=None if models is None else frozenset(models),
        extra_fields=frozenset(extra_fields),
        listed=listed,
    )
    async with serving(server, "/v1"):
        yield server
