"""POST /v1/responses, as OpenAI documents it: one answer, whole or as a stream of named events.

Nothing is stored: what refers to an earlier response is refused.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Literal
from uuid import uuid4

import msgspec

from coeval.core.foreign import decoder
from coeval.core.records import Completion, Message, Request, SamplingParameters, Schema
from coeval.simulation.server.asked_for import (
    JSON_MODE,
    ROLES,
    Content,
    Function,
    Limit,
    arguments_schema,
    called_function,
    text_of,
)
from coeval.simulation.server.events import Timed, tokens
from coeval.simulation.server.openai_errors import Refusal


class InputItem(msgspec.Struct):
    """A message, a call, or what a call gave back; other items are passed over."""

    type: str = "message"
    role: Literal["system", "developer", "user", "assistant"] = "user"
    content: Content = None
    name: str = ""
    arguments: str = ""
    output: Content = None

    def message(self) -> Message | None:
        match self.type:
            case "message":
                return Message(ROLES[self.role], text_of(self.content))
            case "function_call":
                return Message("assistant", f"{self.name}({self.arguments})")
            case "function_call_output":
                return Message("user", text_of(self.output))
            case _:
                return None


class Format(msgspec.Struct, frozen=True):
    type: Literal["text", "json_object", "json_schema"] = "text"
    name: str = "answer"
    schema: dict[str, Any] = {}


class Text(msgspec.Struct):
    format: Format = Format()


class ResponseTool(msgspec.Struct):
    type: Literal["function"]
    name: str
    parameters: dict[str, Any] | None = None


class ResponsesBody(msgspec.Struct):
    """The fields of the body that are heeded; ``seed`` is none of OpenAI's here, and heeded all the same."""

    model: str
    input: str | list[InputItem]
    instructions: str | None = None
    max_output_tokens: Limit | None = None
    text: Text | None = None
    tools: list[ResponseTool] | None = None
    tool_choice: Any = None
    seed: int | None = None
    stream: bool | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None

    def called(self) -> Function | None:
        return called_function(
            (Function(tool.name, tool.parameters) for tool in self.tools or ()), self.tool_choice
        )

    def request(self) -> Request:
        """
        Raises
        ------
        Refusal
            the body asks for what was said before, or for an answer in the background.
        """
        for name in ("previous_response_id", "conversation", "background"):
            if getattr(self, name):
                raise Refusal(
                    f"simulated models keep nothing between requests, so {name} is not served", param=name
                )
        items = [InputItem(content=self.input)] if isinstance(self.input, str) else self.input
        messages = [message for item in items if (message := item.message()) is not None]
        if not messages:
            raise Refusal("input holds no message", param="input")
        if self.instructions:
            messages.insert(0, Message("system", self.instructions))
        function = self.called()
        return Request(
            messages=tuple(messages),
            sampling=SamplingParameters(max_tokens=self.max_output_tokens),
            schema=arguments_schema(function) if function else self._schema(),
            seed=self.seed,
        )

    def _schema(self) -> Schema | None:
        wanted = self.text.format if self.text else Format()
        if wanted.type == "json_object":
            return JSON_MODE
        return Schema(wanted.name, wanted.schema) if wanted.type == "json_schema" else None


read_responses = decoder(ResponsesBody)


def responses_body(body: ResponsesBody, completion: Completion) -> dict[str, Any]:
    """The whole answer, ``object: response``."""
    return _response(body, completion, _item(body, completion.text))


def responses_events(body: ResponsesBody, completion: Completion) -> Iterator[Timed]:
    """The documented order: created, the item and its part, the deltas, all of them done, completed."""
    whole = _item(body, completion.text)
    response = _response(body, completion, whole)
    begun = {**response, "status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    number = 0

    def event(kind: str, characters: int = 0, **fields: Any) -> Timed:
        nonlocal number
        number += 1
        body = {"type": f"response.{kind}", "sequence_number": number - 1, **fields}
        return Timed(body, body["type"], characters)

    is_call = whole["type"] == "function_call"
    place = {"item_id": whole["id"], "output_index": 0} | ({} if is_call else {"content_index": 0})
    yield event("created", response=begun)
    yield event("in_progress", response=begun)
    nothing: dict[str, Any] = {"arguments": ""} if is_call else {"content": []}
    empty = whole | {"status": "in_progress"} | nothing
    yield event("output_item.added", output_index=0, item=empty)
    if is_call:
        for piece in tokens(completion.text):
            yield event("function_call_arguments.delta", len(piece), **place, delta=piece)
        yield event("function_call_arguments.done", **place, name=whole["name"], arguments=completion.text)
    else:
        yield event("content_part.added", **place, part=_part(""))
        for piece in tokens(completion.text):
            yield event("output_text.delta", len(piece), **place, delta=piece, logprobs=[])
        yield event("output_text.done", **place, text=completion.text, logprobs=[])
        yield event("content_part.done", **place, part=whole["content"][0])
    yield event("output_item.done", output_index=0, item=whole)
    ended = "incomplete" if completion.truncated else "completed"
    yield event(ended, response=response)


def _item(body: ResponsesBody, text: str) -> dict[str, Any]:
    function = body.called()
    if function is None:
        said = {"role": "assistant", "content": [_part(text)]}
        return {"type": "message", "id": f"msg_{uuid4().hex}", "status": "completed", **said}
    return {
        "type": "function_call",
        "id": f"fc_{uuid4().hex}",
        "status": "completed",
        "call_id": f"call_{uuid4().hex[:24]}",
        "name": function.name,
        "arguments": text,
    }


def _part(text: str) -> dict[str, Any]:
    return {"type": "output_text", "text": text, "annotations": [], "logprobs": []}


def _response(body: ResponsesBody, completion: Completion, item: dict[str, Any]) -> dict[str, Any]:
    usage = completion.usage
    return {
        "id": f"resp_{uuid4().hex}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if completion.truncated else "completed",
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if completion.truncated else None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": {},
        "model": body.model,
        "output": [item],
        "parallel_tool_calls": True,
        "previous_response_id": None,
        "temperature": 1.0,
        "text": {"format": msgspec.to_builtins((body.text or Text()).format)},
        "tool_choice": body.tool_choice or "auto",
        "tools": [msgspec.to_builtins(tool) | {"strict": None} for tool in body.tools or ()],
        "top_p": 1.0,
        "truncation": "disabled",
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": usage.output_tokens,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.input_tokens + usage.output_tokens,
        },
    }
