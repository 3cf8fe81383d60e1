"""Routes, access and timing of the simulated server."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
import signal
from collections.abc import Callable, Iterable
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from coeval.core.errors import ModelError, ServerFault, Undecodable
from coeval.core.records import Completion, Request
from coeval.simulation.chat_completions import (
    ChatBody,
    Refusal,
    chat_body,
    chat_events,
    json_response,
    read_chat,
    seeded,
    stream,
)
from coeval.simulation.simulated_model import SimulatedModel

STATUS_HEADER = "x-simulate-status"
# Longer than the longest context as text, images aside.
_LONGEST_BODY_BYTES = 64 * 2**20
_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,255}|\[[0-9a-fA-F:.]{2,45}\])(?::\d{1,5})?")
# Characters of a prompt above which reading it takes a moment.
_LONG = 50_000
# Answers to one request after which others have their turn.
_SOME = 100


def make_app(
    models: Iterable[SimulatedModel],
    *,
    api_key: str | None = None,
    rate_limit_every: int | None = None,
) -> web.Application:
    """Make an application that serves the models under their ids.

    With ``api_key``, requests without ``Authorization: Bearer KEY`` get 401. With
    ``rate_limit_every=N``, each Nth request for an answer gets 429 with ``Retry-After: 1``. A request
    with the header ``x-simulate-status: 4xx or 5xx`` gets that status.
    """
    handlers = _Handlers({model.model: model for model in models}, rate_limit_every)
    middlewares = [_in_their_shape, *([_keyed(api_key)] if api_key is not None else [])]
    app = web.Application(client_max_size=_LONGEST_BODY_BYTES, middlewares=middlewares)
    app.router.add_post("/v1/chat/completions", handlers.chat)
    app.router.add_get("/v1/models", handlers.models)
    app.router.add_get("/v1/models/{id:.+}", handlers.model)
    app.router.add_get("/health", handlers.health)
    return app


async def serve(app: web.Application, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; ``ready`` is called with the port once it listens.

    Raises OSError where the port is not available.
    """
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Windows has no signal handlers in its loop; Ctrl-C ends the process there by itself.
    with suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
    logging.getLogger("aiohttp.server").addFilter(_is_our_fault)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        ready(runner.addresses[0][1])
        await stopped.wait()
    finally:
        await runner.cleanup()


def _is_our_fault(record: logging.LogRecord) -> bool:
    """Whether an error is worth a word here: a client that speaks no HTTP has been told so."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


@web.middleware
async def _in_their_shape(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Every error as OpenAI writes them, those of the router included."""
    if not _is_here(request.host):
        reason = "simulated models are served under the names of this machine only"
        return Refusal(reason, status=403).response
    try:
        return await handler(request)
    except Refusal as refusal:
        return refusal.response
    except web.HTTPRequestEntityTooLarge:
        return Refusal(f"the request is larger than {_LONGEST_BODY_BYTES >> 20} MiB", status=413).response
    except web.RequestPayloadError:
        return Refusal("the request body cannot be read as its headers announce it").response
    except web.HTTPNotFound:
        return Refusal(
            f"unknown URL: {request.method} {request.path}", status=404, code="unknown_url"
        ).response
    except web.HTTPMethodNotAllowed as error:
        allowed = ", ".join(sorted(error.allowed_methods))
        return Refusal(
            f"{request.method} is not allowed here; use {allowed}", status=405, headers={"Allow": allowed}
        ).response


def _keyed(api_key: str) -> Middleware:
    """Refuse requests without the key, all but those for the server's health."""
    expected = f"Bearer {api_key}".encode()

    @web.middleware
    async def keyed(request: web.Request, handler: Handler) -> web.StreamResponse:
        given = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if request.path != "/health" and not hmac.compare_digest(given, expected):
            raise Refusal(
                "wrong or missing API key; send the one that `coeval simulate` was given",
                status=401,
                code="invalid_api_key",
            )
        return await handler(request)

    return keyed


def _is_here(host: str) -> bool:
    """Whether a Host header names this machine: another name is a page that was led here (DNS rebinding)."""
    found = _HOST.fullmatch(host)
    if found is None or found["name"] == "localhost":
        return found is not None
    try:
        return ip_address(found["name"].strip("[]")).is_loopback
    except ValueError:
        return False


class _Handlers:
    """Who takes the requests: knows the models, and how many have come."""

    def __init__(self, models: dict[str, SimulatedModel], rate_limit_every: int | None) -> None:
        self._models = models
        self._rate_limit_every = rate_limit_every
        self._taken = 0

    async def health(self, _: web.Request) -> web.Response:
        return json_response({"status": "ok"})

    async def models(self, _: web.Request) -> web.Response:
        return json_response({"object": "list", "data": [_model_row(name) for name in self._models]})

    async def model(self, request: web.Request) -> web.Response:
        return json_response(_model_row(self._served(request.match_info["id"]).model))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await self._body(request)
        model = self._served(body.model)
        answers = await _first_tokens(model, seeded(body.request(), body.n or 1))
        if body.stream:
            return await stream(request, chat_events(body, answers), model.traits.tokens_per_s)
        await _last_token(model, answers)
        return json_response(chat_body(body, answers))

    async def _body(self, request: web.Request) -> ChatBody:
        """The body of a request for an answer, once it is clear that it gets one."""
        _heed_orders(request)
        self._limit()
        return _read(await request.read())

    def _served(self, name: str) -> SimulatedModel:
        model = self._models.get(name)
        if model is None:
            raise Refusal(
                f"the model `{name[:200]}` is not served here; the models are {', '.join(self._models)}",
                status=404,
                param="model",
                code="model_not_found",
            )
        return model

    def _limit(self) -> None:
        self._taken += 1
        if self._rate_limit_every and self._taken % self._rate_limit_every == 0:
            raise _rate_limited()


async def _first_tokens(model: SimulatedModel, requests: list[Request]) -> list[Completion]:
    """The answers, at the moment at which the first token of each would be there."""
    try:
        return await _answers(model, requests)
    finally:
        await asyncio.sleep(model.traits.latency_s)


async def _answers(model: SimulatedModel, requests: list[Request]) -> list[Completion]:
    """Raises Refusal: the model fails, or cannot answer."""
    answers = []
    try:
        for request in requests:
            if sum(len(message.content) for message in request.messages) < _LONG:
                answers.append(model.answer(request))
            else:  # others are served meanwhile
                answers.append(await asyncio.to_thread(model.answer, request))
            if len(answers) % _SOME == 0:
                await asyncio.sleep(0)
    except ServerFault as fault:
        # The header keeps clients from asking again what would fail again.
        raise Refusal(
            f"{fault}", status=500, kind="server_error", headers={"x-should-retry": "false"}
        ) from None
    except ModelError as error:
        raise Refusal(f"{error}", param="response_format") from None
    return answers


async def _last_token(model: SimulatedModel, answers: list[Completion]) -> None:
    """Wait until the longest answer would be whole; answers to one request are written side by side."""
    if model.traits.tokens_per_s:
        longest = max(answer.usage.output_tokens for answer in answers)
        await asyncio.sleep(longest / model.traits.tokens_per_s)


def _heed_orders(request: web.Request) -> None:
    """Raise the error that the request itself asks for."""
    ordered = request.headers.get(STATUS_HEADER)
    if ordered is None:
        return
    if not (ordered.isascii() and ordered.isdigit() and 400 <= int(ordered) <= 599):
        raise Refusal(f"{STATUS_HEADER} must be a status from 400 to 599")
    if ordered == "429":
        raise _rate_limited()
    kind = "server_error" if ordered.startswith("5") else "invalid_request_error"
    raise Refusal(f"simulated status {ordered}", status=int(ordered), kind=kind)


def _rate_limited() -> Refusal:
    return Refusal(
        "simulated rate limit; ask again after the time in Retry-After (s)",
        status=429,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"Retry-After": "1"},
    )


def _read(content: bytes) -> ChatBody:
    """Raises Refusal: the body cannot be read."""
    try:
        return read_chat(content)
    except Undecodable as error:
        raise Refusal(f"the request body is wrong: {error}", param=_field(str(error))) from None


def _field(reason: str) -> str | None:
    """The field that a decoding error names, such as ``messages`` of "… - at `$.messages[0].role`"."""
    _, found, path = reason.rpartition("at `$.")
    return path.rstrip("`").split(".")[0].split("[")[0] or None if found else None


def _model_row(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "simulated"}
