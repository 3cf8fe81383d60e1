"""POST /v1/chat/completions, as OpenAI documents it, with its stream.

Fields that are not listed here (``temperature``, ``top_k``, …) are accepted and change nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from hashlib import blake2b
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias
from uuid import uuid4

import msgspec
from aiohttp import web

from coeval.core.errors import Undecodable
from coeval.core.foreign import convert, decode, decoder
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
from coeval.simulation.simulated_model import CHARACTERS_PER_TOKEN

# --- Server-sent events, at the pace of a model's tokens

# Events that need no waiting go out together, up to about so many bytes.
_HELD_BYTES = 1 << 14


class Timed(NamedTuple):
    """An event: its body, and the characters of text in it."""

    body: dict[str, Any]
    characters: int = 0

    def written(self) -> bytes:
        return b"data: %s\n\n" % msgspec.json.encode(self.body)


def tokens(text: str) -> Iterator[str]:
    """Split a text into tokens."""
    return (text[at : at + CHARACTERS_PER_TOKEN] for at in range(0, len(text), CHARACTERS_PER_TOKEN))


async def stream(request: web.Request, events: Iterable[Timed], tokens_per_s: float) -> web.StreamResponse:
    """Send the events at this pace; 0 tokens a second means without waiting."""
    with suppress(ConnectionError):  # a client may leave at any moment, and nobody is left to be told
        return await _sent(request, events, tokens_per_s)
    return web.StreamResponse()


async def _sent(request: web.Request, events: Iterable[Timed], tokens_per_s: float) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    loop = asyncio.get_running_loop()
    began, characters, held = loop.time(), 0, b""
    for event in events:
        characters += event.characters
        held += event.written()
        wait_s = (
            began + characters / (CHARACTERS_PER_TOKEN * tokens_per_s) - loop.time() if tokens_per_s else 0.0
        )
        if wait_s > 0:
            await asyncio.sleep(wait_s)
        if tokens_per_s or len(held) > _HELD_BYTES:
            await response.write(held)
            held = b""
    await response.write(held + b"data: [DONE]\n\n")
    await response.write_eof()
    return response


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
        super().__init__(message)
        self.status = status
        self.body: dict[str, Any] = {
            "error": {"message": message, "type": kind, "param": param, "code": code}
        }
        self._headers = headers

    @property
    def response(self) -> web.Response:
        return json_response(self.body, self.status, self._headers)


def json_response(
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


def labels_of(metadata: dict[str, Any] | None) -> dict[str, list[str]]:
    """Parse the labels of a request's metadata.

    Raises Refusal: they are not written as we write them.
    """
    reported = (metadata or {}).get(LABELS_KEY)
    if reported is None:
        return {}
    try:
        return decode(convert(reported, str), dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]])
    except Undecodable:
        reason = f"metadata.{LABELS_KEY} must be a JSON object that holds lists of labels"
        raise Refusal(reason, param="metadata") from None


def text_of(content: Content) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


def seeded(request: Request, count: int) -> list[Request]:
    """Repeat the request ``count`` times; all but the first get their own seed, so that answers differ."""
    return [request, *(_another(request, number) for number in range(1, count))]


def _another(request: Request, number: int) -> Request:
    digest = blake2b(f"{request.seed}\\0{number}".encode(), digest_size=4).digest()
    return msgspec.structs.replace(request, seed=int.from_bytes(digest, "big") >> 1)


def usage_body(completions: list[Completion]) -> dict[str, int]:
    """Make the usage of one prompt and its answers."""
    taken = completions[0].usage.input_tokens
    given = sum(completion.usage.output_tokens for completion in completions)
    return {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}


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
    n: Annotated[int, msgspec.Meta(ge=1, le=128)] | None = None
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
        """Convert the body to a Request."""
        sampling = {"max_tokens": self.max_completion_tokens or self.max_tokens, "stop": self.stop}
        return Request(
            messages=tuple(
                Message(_ROLES[message.role], text_of(message.content)) for message in self.messages
            ),
            sampling=SamplingParameters.of(sampling),
            schema=self.response_format.schema() if self.response_format else None,
            seed=self.seed,
            labels=labels_of(self.metadata),
            top_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


read_chat = decoder(ChatBody)


def chat_body(body: ChatBody, completions: list[Completion]) -> dict[str, Any]:
    """Make the whole answer, ``object: chat.completion``."""
    choices = [
        {
            "index": index,
            "message": {"role": "assistant", "content": completion.text, "refusal": None},
            "logprobs": _logprobs(completion.logprobs) if body.logprobs else None,
            "finish_reason": completion.finish_reason,
        }
        for index, completion in enumerate(completions)
    ]
    return {**_head(body.model, "chat.completion"), "choices": choices, "usage": usage_body(completions)}


def chat_events(body: ChatBody, completions: list[Completion]) -> Iterator[Timed]:
    """Yield the answer as events: per choice a role, the text in pieces, the end; then usage if requested."""
    head = _head(body.model, "chat.completion.chunk")
    usage = {"usage": None} if body.with_usage else {}

    def event(
        index: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**head, "choices": [choice], **usage}

    for index, completion in enumerate(completions):
        yield Timed(event(index, {"role": "assistant", "content": "", "refusal": None}))
        for at, piece in enumerate(tokens(completion.text)):
            logprobs = _logprobs(completion.logprobs[at : at + 1]) if body.logprobs else None
            yield Timed(event(index, {"content": piece}, None, logprobs), characters=len(piece))
        yield Timed(event(index, {}, completion.finish_reason))
    if body.with_usage:
        yield Timed({**head, "choices": [], "usage": usage_body(completions)})


def _head(model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": "fp_simulated",
    }


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any]:
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
