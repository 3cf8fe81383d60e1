"""A host that works, and repeats what it is sent wherever it can: simulated models behind a gossip."""

from __future__ import annotations

import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import cycle
from typing import Any

from aiohttp import web

from coeval.core.model import ModelSpec
from coeval.simulation.server import make_app
from coeval.simulation.simulated_model import SimulatedModel
from fakes.scripted import listening

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
_ASKED = "/v1/chat/completions"
_REFUSED_PROBES = 3
_PROBE = b"single word: ok"
_LEVELS = {"high", "medium", "low"}
_FAULTS: tuple[str, ...] = (
    "error", "", "page", "", "no JSON", "", "no HTTP", "", "headers", "", "error behind a 200", "", "moved",
)  # fmt: skip


@dataclass
class EchoHost:
    """Where it is, and how often each kind of fault was given; ``heard`` are credentials that came in."""

    url: str = ""
    heard: list[str] = field(default_factory=list)
    faults: dict[str, int] = field(default_factory=dict)


@asynccontextmanager
async def echo_host(names: list[str], encode: Callable[[str], str]) -> AsyncIterator[EchoHost]:
    """Serve simulated models under ``names`` that repeat the request's headers, written by ``encode``, and
    its end in all they say. Every other answer is an error, and so are those to the first probes."""
    host = EchoHost()
    faults = cycle(_FAULTS)
    refused_probes = 0

    @web.middleware
    async def gossiping(request: web.Request, handler: Handler) -> web.StreamResponse:
        nonlocal refused_probes
        sent = await request.read()
        echo = _echo(request, sent, encode, host)
        if request.path != _ASKED:
            return _listed(echo) if request.path == "/v1/models" else _error(404, echo)
        if _PROBE in sent:
            refused_probes += 1
            fault = "error" if refused_probes <= _REFUSED_PROBES else ""
        else:
            fault = next(faults)
        if fault:
            host.faults[fault] = host.faults.get(fault, 0) + 1
            return _fault(fault, request, echo)
        answered = await handler(request)
        if not isinstance(answered, web.Response) or not isinstance(answered.body, bytes):
            return answered
        body = json.loads(answered.body)
        return web.json_response(_gossip(body, echo) if "choices" in body else body, status=answered.status)

    models = [SimulatedModel(ModelSpec(name=name, interface="simulated", model=name)) for name in names]
    app = make_app(models)
    app.middlewares.append(gossiping)
    async with listening(app) as url:
        host.url = f"{url}/v1"
        yield host


def _echo(request: web.Request, body: bytes, encode: Callable[[str], str], host: EchoHost) -> str:
    """What came: the credentials, each header, and the end of the body."""
    secrets = list(_credentials(request))
    host.heard += secrets
    said = [f"{name} {encode(value)}" for name, value in request.headers.items() if name != "Host"]
    said += [f"<{encode(secret)}>" for secret in secrets]
    return f"[you sent {'; '.join(said)} and {body[-60:].decode(errors='replace')!r}]"


def _credentials(request: web.Request) -> Iterator[str]:
    for header in ("Authorization", "Proxy-Authorization"):
        scheme, _, sent = request.headers.get(header, "").partition(" ")
        if scheme == "Basic":
            sent = base64.b64decode(sent).decode().partition(":")[2]
        if sent:
            yield sent


def _gossip(body: dict[str, Any], echo: str) -> dict[str, Any]:
    """A chat completion with the echo in every field that is text."""
    for choice in body["choices"]:
        message = choice["message"]
        message["content"] = _woven(message.get("content") or "", echo)
        message["reasoning_content"] = f"I was told {echo}"
        message["annotations"] = [echo]
        for token in ((choice.get("logprobs") or {}).get("content") or ())[1:]:
            token["token"] = echo
        choice["finish_reason"] = f"{choice['finish_reason']} {echo}"
    return {**body, "model": echo, "system_fingerprint": echo, "usage": {"prompt_tokens": echo, "note": echo}}


def _woven(content: str, echo: str) -> str:
    """The answer with the echo in it: in each text of JSON, else at its end."""
    try:
        said = json.loads(content)
    except ValueError:
        return content if content.strip().lower() in _LEVELS else f"{content}\n{echo}"
    return json.dumps(_in_texts(said, echo)) if isinstance(said, dict | list) else content


def _in_texts(value: Any, echo: str) -> Any:
    match value:
        case dict():
            return {key: _in_texts(item, echo) for key, item in value.items()} | {f"note {echo}": echo}
        case list():
            return [_in_texts(item, echo) for item in value]
        case str() if value.lower() not in _LEVELS:
            return f"{value} {echo}"
        case _:
            return value


def _listed(echo: str) -> web.Response:
    return web.json_response({"object": "list", "data": [{"id": echo, "object": "model"}]})


def _fault(kind: str, request: web.Request, echo: str) -> web.StreamResponse:
    headers = {"X-Request-Id": echo, "Retry-After": echo, "X-RateLimit-Reset-Requests": echo}
    match kind:
        case "error":
            return _error(400, echo)
        case "page":
            return web.Response(text=f"<html>{'x' * 290}{echo}", status=404, reason=echo)
        case "no JSON":
            return web.Response(text=f"{echo} {{", content_type="application/json")
        case "no HTTP":
            assert request.transport is not None
            request.transport.write(f"HTTP/1.1 {echo}\r\n\r\n".encode())
            request.transport.close()
            return web.Response()
        case "headers":
            return web.Response(text=echo, status=422, headers={**headers, "Content-Encoding": echo})
        case "error behind a 200":
            problem = {"message": echo, "code": 400, "type": echo, "param": echo}
            return web.json_response({"error": problem, "choices": []})
        case _:
            return web.Response(status=307, headers={"Location": f"/v1/{echo}"}, text=echo)


def _error(status: int, echo: str) -> web.Response:
    """An error in OpenAI's shape, the echo across the character at which messages are cut."""
    message = f"{'This request was refused. ' * 11}{echo}"
    problem = {"message": message, "type": echo, "param": echo, "code": echo}
    return web.json_response({"error": problem}, status=status, headers={"X-Request-Id": echo})
