"""Simulated server: chat completions as OpenAI documents them, with their stream; routes, access, timing.

Fields that are not listed here (``temperature``, ``top_k``, …) are accepted and change nothing.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import math
import re
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from ipaddress import ip_address
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from coeval.core.errors import ModelError, ServerFault, Undecodable
from coeval.core.foreign import convert, decode, make_decoder
from coeval.core.records import (
    LABELS_KEY,
    Completion,
    Message,
    ModelRole,
    Request,
    SamplingParameters,
    Schema,
    TokenLogprob,
)
from coeval.simulation.simulated_model import CHARACTERS_PER_TOKEN, SimulatedModel

# --- Server-sent events, at the pace of a model's tokens

# Events that need no waiting go out together, up to about so many bytes.
_HELD_BYTES = 1 << 14


class Timed(NamedTuple):
    """An event: its body, and the characters of text in it."""

    body: dict[str, Any]
    characters: int = 0


async def stream_events(
    request: web.Request, events: Iterable[Timed], tokens_per_s: float
) -> web.StreamResponse:
    """Send the events, each no earlier than its tokens would be there; 0 tokens a second means at once."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    with suppress(ConnectionError):  # a client may leave at any moment, and nobody is left to be told
        await response.prepare(request)
        characters_per_s = CHARACTERS_PER_TOKEN * tokens_per_s or math.inf
        loop = asyncio.get_running_loop()
        began, characters, held = loop.time(), 0, b""
        for event in events:
            characters += event.characters
            held += b"data: %s\n\n" % msgspec.json.encode(event.body)
            wait_s = began + characters / characters_per_s - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            if tokens_per_s or len(held) > _HELD_BYTES:
                await response.write(held)
                held = b""
        await response.write(held + b"data: [DONE]\n\n")
        await response.write_eof()
        return response
    return web.StreamResponse()


# --- Errors in OpenAI's shape


class Refusal(Exception):
    """A request that is refused; ``response`` says why."""

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        """Make the body that OpenAI would send for the error."""
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }
        self._headers = headers

    @property
    def response(self) -> web.Response:
        return make_json_response(self.body, self.status, self._headers)


def make_json_response(
    body: dict[str, Any], status: int = 200, headers: dict[str, str] | None = None
) -> web.Response:
    return web.Response(
        status=status, body=msgspec.json.encode(body), content_type="application/json", headers=headers
    )


# --- Requests and answers

_ROLES: dict[str, ModelRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}
"""OpenAI's roles → ours; a tool's result is read as the user's."""

_Limit: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class TextPart(msgspec.Struct):
    """A content part with text, of any type name; others are ignored."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""


Content: TypeAlias = str | list[TextPart] | None


def parse_labels(metadata: dict[str, Any] | None) -> dict[str, list[str]]:
    """Parse the labels of a request's metadata. Raises Refusal: they are not written as we write them."""
    reported = (metadata or {}).get(LABELS_KEY)
    if reported is None:
        return {}
    try:
        return decode(convert(reported, str), dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]])
    except Undecodable:
        reason = f"metadata.{LABELS_KEY} must be a JSON object that holds lists of labels"
        raise Refusal(reason, param="metadata") from None


def join_text(content: Content) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


class ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = None


class JsonSchema(msgspec.Struct):
    name: str
    schema: dict[str, Any] = {}


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema(self) -> Schema | None:
        if self.type == "json_object":
            return Schema("json_object", {"type": "object"})
        needed = self.json_schema if self.type == "json_schema" else None
        return Schema(needed.name, needed.schema) if needed else None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class ChatBody(msgspec.Struct):
    """Request body; other fields are ignored."""

    model: str
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_tokens: _Limit | None = None
    max_completion_tokens: _Limit | None = None
    n: Annotated[int, msgspec.Meta(ge=1, le=1)] | None = None
    stop: str | Annotated[list[str], msgspec.Meta(max_length=4)] | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    tool_choice: Literal["none", "auto"] | None = None  # simulated models call no function
    metadata: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def request(self) -> Request:
        sampling = {"max_tokens": self.max_completion_tokens or self.max_tokens, "stop": self.stop}
        return Request(
            messages=tuple(
                Message(_ROLES[message.role], join_text(message.content)) for message in self.messages
            ),
            sampling=SamplingParameters.of(sampling),
            schema=self.response_format.schema() if self.response_format else None,
            seed=self.seed,
            labels=parse_labels(self.metadata),
            top_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


read_chat = make_decoder(ChatBody)


def make_chat_body(body: ChatBody, completion: Completion) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": completion.text, "refusal": None},
        "logprobs": _encode_logprobs(completion.logprobs) if body.logprobs else None,
        "finish_reason": completion.finish_reason,
    }
    return {
        **_make_head(body.model, "chat.completion"),
        "choices": [choice],
        "usage": _encode_usage(completion),
    }


def make_chat_events(body: ChatBody, completion: Completion) -> Iterator[Timed]:
    """Yield the answer as events: a role, the text in pieces, the end; then usage if requested."""
    head = _make_head(body.model, "chat.completion.chunk")
    usage = {"usage": None} if body.with_usage else {}

    def event(delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> dict[str, Any]:
        choice = {"index": 0, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**head, "choices": [choice], **usage}

    yield Timed(event({"role": "assistant", "content": "", "refusal": None}))
    text = completion.text
    for at, start in enumerate(range(0, len(text), CHARACTERS_PER_TOKEN)):
        piece = text[start : start + CHARACTERS_PER_TOKEN]
        logprobs = _encode_logprobs(completion.logprobs[at : at + 1]) if body.logprobs else None
        yield Timed(event({"content": piece}, None, logprobs), characters=len(piece))
    yield Timed(event({}, completion.finish_reason))
    if body.with_usage:
        yield Timed({**head, "choices": [], "usage": _encode_usage(completion)})


def _encode_usage(completion: Completion) -> dict[str, int]:
    taken, output = completion.usage.input_tokens, completion.usage.output_tokens
    return {"prompt_tokens": taken, "completion_tokens": output, "total_tokens": taken + output}


def _make_head(model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": "fp_simulated",
    }


def _encode_logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
    def entry(token: str, logprob: float) -> dict[str, Any]:
        return {"token": token, "logprob": logprob, "bytes": list(token.encode("utf-8", "replace"))}

    content = [
        {
            **entry(token.token, token.logprob),
            "top_logprobs": [entry(other, logprob) for other, logprob in token.top.items()],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


STATUS_HEADER = "x-simulate-status"
# Longer than the longest context as text, images aside.
_LONGEST_BODY_BYTES = 64 * 2**20
_HOST = re.compile(r"(?P<name>[A-Za-z0-9.-]{1,255}|\[[0-9a-fA-F:.]{2,45}\])(?::\d{1,5})?")
# Characters of a prompt above which reading it takes a moment.
_LONG = 50_000


def make_app(
    models: Iterable[SimulatedModel], *, api_key: str | None = None, rate_limit_every: int | None = None
) -> web.Application:
    """Make an application that serves the models under their ids. With ``api_key``, requests without
    ``Authorization: Bearer KEY`` get 401; with ``rate_limit_every=N`` each Nth request for an answer gets
    429 and ``Retry-After: 1``; one with the header ``x-simulate-status: 4xx or 5xx`` gets that status."""
    handlers = _Handlers({model.model: model for model in models}, rate_limit_every)
    key_check = [_make_key_check(api_key)] if api_key is not None else []
    middlewares = [_refuse_hosts_and_answer_errors, *key_check]
    app = web.Application(client_max_size=_LONGEST_BODY_BYTES, middlewares=middlewares)
    app.router.add_post("/v1/chat/completions", handlers.chat)
    app.router.add_get("/v1/models", handlers.models)
    app.router.add_get("/v1/models/{id:.+}", handlers.model)
    app.router.add_get("/health", handlers.health)
    return app


async def serve(app: web.Application, host: str, port: int, ready: Callable[[int], None]) -> None:
    """Serve until SIGINT or SIGTERM; call ``ready`` with the port once it listens. Raises OSError."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Windows has no signal handlers in its loop; Ctrl-C ends the process there by itself.
    with suppress(NotImplementedError):
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stopped.set)
    logging.getLogger("aiohttp.server").addFilter(_is_no_client_error)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        ready(runner.addresses[0][1])
        await stopped.wait()
    finally:
        await runner.cleanup()


def _is_no_client_error(record: logging.LogRecord) -> bool:
    """Check whether a log record is worth showing: a client that speaks no HTTP has been told already."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, HttpProcessingError | web.RequestPayloadError)


@web.middleware
async def _refuse_hosts_and_answer_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error as OpenAI writes it, the router's own included."""
    if not _is_this_machine(request.host):
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


def _make_key_check(api_key: str) -> Middleware:
    """Refuse requests without the key, all but those for the server's health."""
    expected = f"Bearer {api_key}".encode()

    @web.middleware
    async def check_key_unless_health(request: web.Request, handler: Handler) -> web.StreamResponse:
        authorization = request.headers.get("Authorization", "").encode("utf-8", "surrogateescape")
        if request.path != "/health" and not hmac.compare_digest(authorization, expected):
            raise Refusal(
                "wrong or missing API key; send the one that `coeval simulate` was given",
                status=401,
                code="invalid_api_key",
            )
        return await handler(request)

    return check_key_unless_health


def _is_this_machine(host: str) -> bool:
    """Check whether a Host header names this machine: another name is a page led here by DNS rebinding."""
    match = _HOST.fullmatch(host)
    if match is None or match["name"] == "localhost":
        return match is not None
    try:
        return ip_address(match["name"].strip("[]")).is_loopback
    except ValueError:
        return False


class _Handlers:
    """Who takes the requests: knows the models, and how many have come."""

    def __init__(self, models: dict[str, SimulatedModel], rate_limit_every: int | None) -> None:
        self._models = models
        self._rate_limit_every = rate_limit_every
        self._requests = 0

    async def health(self, _: web.Request) -> web.Response:
        return make_json_response({"status": "ok"})

    async def models(self, _: web.Request) -> web.Response:
        return make_json_response({"object": "list", "data": [_model_row(name) for name in self._models]})

    async def model(self, request: web.Request) -> web.Response:
        return make_json_response(_model_row(self._find_model(request.match_info["id"]).model))

    async def chat(self, request: web.Request) -> web.StreamResponse:
        _raise_ordered_error(request)
        self._requests += 1
        if self._rate_limit_every and self._requests % self._rate_limit_every == 0:
            raise _make_rate_limit_refusal()
        body = _read_body(await request.read())
        model = self._find_model(body.model)
        answer = await _answer_after_latency(model, body.request())
        pace = model.traits.tokens_per_s
        if body.stream:
            return await stream_events(request, make_chat_events(body, answer), pace)
        if pace:
            await asyncio.sleep(answer.usage.output_tokens / pace)
        return make_json_response(make_chat_body(body, answer))

    def _find_model(self, name: str) -> SimulatedModel:
        model = self._models.get(name)
        if model is None:
            raise Refusal(
                f"the model `{name[:200]}` is not served here; the models are {', '.join(self._models)}",
                status=404,
                param="model",
                code="model_not_found",
            )
        return model


async def _answer_after_latency(model: SimulatedModel, request: Request) -> Completion:
    """Return the answer at the moment of its first token; raises Refusal: the model fails, or cannot."""
    try:
        if sum(len(message.content) for message in request.messages) < _LONG:
            return model.answer(request)
        return await asyncio.to_thread(model.answer, request)  # others are served meanwhile
    except ServerFault as fault:
        # The header keeps clients from asking again what would fail again.
        raise Refusal(
            f"{fault}", status=500, kind="server_error", headers={"x-should-retry": "false"}
        ) from None
    except ModelError as error:
        raise Refusal(f"{error}", param="response_format") from None
    finally:
        await asyncio.sleep(model.traits.latency_s)


def _raise_ordered_error(request: web.Request) -> None:
    """Raise the error that the request itself asks for."""
    ordered = request.headers.get(STATUS_HEADER)
    if ordered is None:
        return
    if not (ordered.isascii() and ordered.isdigit() and 400 <= int(ordered) <= 599):
        raise Refusal(f"{STATUS_HEADER} must be a status from 400 to 599")
    if ordered == "429":
        raise _make_rate_limit_refusal()
    kind = "server_error" if ordered.startswith("5") else "invalid_request_error"
    raise Refusal(f"simulated status {ordered}", status=int(ordered), kind=kind)


def _make_rate_limit_refusal() -> Refusal:
    return Refusal(
        "simulated rate limit; ask again after the time in Retry-After (s)",
        status=429,
        kind="rate_limit_error",
        code="rate_limit_exceeded",
        headers={"Retry-After": "1"},
    )


def _read_body(content: bytes) -> ChatBody:
    """Parse a request body; raises Refusal if it is wrong."""
    try:
        return read_chat(content)
    except Undecodable as error:
        raise Refusal(f"the request body is wrong: {error}", param=_name_field(str(error))) from None


def _name_field(reason: str) -> str | None:
    """Return the field that a decoding error names: ``messages`` of "… - at `$.messages[0].role`"."""
    _, mark, path = reason.rpartition("at `$.")
    return path.rstrip("`").split(".")[0].split("[")[0] or None if mark else None


def _model_row(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "simulated"}
