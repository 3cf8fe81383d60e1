"""POST /v1/chat/completions, as OpenAI documents it, with its stream.

Fields that are not listed here (``temperature``, ``top_k``, …) are accepted and change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal
from uuid import uuid4

import msgspec

from coeval.core.foreign import decoder
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema, TokenLogprob
from coeval.simulation.server.asked_for import (
    JSON_MODE,
    ROLES,
    Content,
    Count,
    Function,
    Limit,
    Stops,
    arguments_schema,
    called_function,
    labels_of,
    text_of,
    usage_body,
)
from coeval.simulation.server.events import Timed, tokens

FINGERPRINT = "fp_simulated"


class Called(msgspec.Struct):
    name: str = ""
    arguments: str = ""


class ToolCall(msgspec.Struct):
    function: Called | None = None


class ChatMessage(msgspec.Struct):
    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: Content = None
    tool_calls: list[ToolCall] | None = None

    def text(self) -> str:
        calls = [f"{c.function.name}({c.function.arguments})" for c in self.tool_calls or () if c.function]
        return "\n".join(filter(None, [text_of(self.content), *calls]))


class JsonSchema(msgspec.Struct):
    name: str
    schema: dict[str, Any] = {}


class ResponseFormat(msgspec.Struct):
    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None

    def schema(self) -> Schema | None:
        if self.type == "json_object":
            return JSON_MODE
        wanted = self.json_schema if self.type == "json_schema" else None
        return Schema(wanted.name, wanted.schema) if wanted else None


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Tool(msgspec.Struct):
    type: Literal["function"]
    function: Function


class ChatBody(msgspec.Struct):
    """The fields of the body that are heeded."""

    model: str
    messages: Annotated[list[ChatMessage], msgspec.Meta(min_length=1)]
    max_tokens: Limit | None = None
    max_completion_tokens: Limit | None = None
    n: Count | None = None
    stop: Stops | None = None
    seed: int | None = None
    response_format: ResponseFormat | None = None
    tools: list[Tool] | None = None
    tool_choice: Any = None
    metadata: dict[str, Any] | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, msgspec.Meta(ge=0, le=20)] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None

    @property
    def with_usage(self) -> bool:
        return bool(self.stream_options and self.stream_options.include_usage)

    def called(self) -> Function | None:
        """The function to be called, where the client insists on one."""
        return called_function((tool.function for tool in self.tools or ()), self.tool_choice)

    def request(self) -> Request:
        """The request that a client of ours would have made of the body."""
        sampling = {"max_tokens": self.max_completion_tokens or self.max_tokens, "stop": self.stop}
        schema = self.response_format.schema() if self.response_format else None
        function = self.called()
        return Request(
            messages=tuple(Message(ROLES[message.role], message.text()) for message in self.messages),
            sampling=SamplingParameters.of(sampling),
            schema=arguments_schema(function) if function else schema,
            seed=self.seed,
            labels=labels_of(self.metadata),
            top_logprobs=(self.top_logprobs or 0) if self.logprobs else None,
        )


read_chat = decoder(ChatBody)


def chat_body(body: ChatBody, completions: list[Completion]) -> dict[str, Any]:
    """The whole answer, ``object: chat.completion``."""
    function = body.called()
    choices = [
        {
            "index": index,
            "message": _message(completion.text, function),
            "logprobs": _logprobs(completion.logprobs) if body.logprobs else None,
            "finish_reason": _finish(completion, function),
        }
        for index, completion in enumerate(completions)
    ]
    return {**_head(body.model, "chat.completion"), "choices": choices, "usage": usage_body(completions)}


def chat_events(body: ChatBody, completions: list[Completion]) -> Iterator[Timed]:
    """The answer as events: of each choice a role, the text in pieces, the end; then the usage if asked."""
    head = _head(body.model, "chat.completion.chunk")
    usage = {"usage": None} if body.with_usage else {}
    function = body.called()

    def event(
        index: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None
    ) -> dict[str, Any]:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        return {**head, "choices": [choice], **usage}

    for index, completion in enumerate(completions):
        yield Timed(event(index, _first_delta(function)))
        for at, piece in enumerate(tokens(completion.text)):
            logprobs = _logprobs(completion.logprobs[at : at + 1]) if body.logprobs else None
            yield Timed(event(index, _delta(piece, function), None, logprobs), characters=len(piece))
        yield Timed(event(index, {}, _finish(completion, function)))
    if body.with_usage:
        yield Timed({**head, "choices": [], "usage": usage_body(completions)})


def _message(text: str, function: Function | None) -> dict[str, Any]:
    if function is None:
        return {"role": "assistant", "content": text, "refusal": None}
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [_call(function, text)]}


def _first_delta(function: Function | None) -> dict[str, Any]:
    if function is None:
        return {"role": "assistant", "content": "", "refusal": None}
    call = {"index": 0, **_call(function, "")}
    return {"role": "assistant", "content": None, "refusal": None, "tool_calls": [call]}


def _delta(piece: str, function: Function | None) -> dict[str, Any]:
    if function is None:
        return {"content": piece}
    return {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _call(function: Function, arguments: str) -> dict[str, Any]:
    return {
        "id": f"call_{uuid4().hex[:24]}",
        "type": "function",
        "function": {"name": function.name, "arguments": arguments},
    }


def _finish(completion: Completion, function: Function | None) -> str:
    return "tool_calls" if function and completion.finish_reason == "stop" else completion.finish_reason


def _head(model: str, kind: str) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{uuid4().hex}",
        "object": kind,
        "created": int(time.time()),
        "model": model,
        "system_fingerprint": FINGERPRINT,
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
