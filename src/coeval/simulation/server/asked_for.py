"""What both interfaces share in what they are asked: messages, forms of answers, tools."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Annotated, Any, Literal

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import convert, decode
from coeval.core.records import LABELS_KEY, Completion, ModelRole, Request, Schema
from coeval.simulation.server.openai_errors import Refusal

ROLES: dict[str, ModelRole] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "user",
    "function": "user",
}
"""OpenAI's roles → ours; what a tool gave back is read as the user's."""

Count = Annotated[int, msgspec.Meta(ge=1, le=128)]
Limit = Annotated[int, msgspec.Meta(ge=1)]
Stops = str | Annotated[list[str], msgspec.Meta(max_length=4)]

JSON_MODE = Schema("json_object", {"type": "object"})


class TextPart(msgspec.Struct):
    """A piece of content: text, under any of the types that the interfaces give it; nothing else is read."""

    type: Literal["text", "input_text", "output_text", "refusal"]
    text: str = ""


Content = str | list[TextPart] | None


class Function(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


def labels_of(metadata: dict[str, Any] | None) -> dict[str, list[str]]:
    """The labels that a request's metadata tells of.

    Raises
    ------
    Refusal
        they are not written as we write them.
    """
    told = (metadata or {}).get(LABELS_KEY)
    if told is None:
        return {}
    try:
        return decode(convert(told, str), dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]])
    except Undecodable:
        reason = f"metadata.{LABELS_KEY} must be a JSON object that holds lists of labels"
        raise Refusal(reason, param="metadata") from None


def text_of(content: Content) -> str:
    if isinstance(content, list):
        return "".join(part.text for part in content)
    return content or ""


def seeded(request: Request, count: int) -> list[Request]:
    """The request ``count`` times; all but the first with a seed of its own, so that the answers differ."""
    return [request, *(_another(request, number) for number in range(1, count))]


def _another(request: Request, number: int) -> Request:
    digest = blake2b(f"{request.seed}\\0{number}".encode(), digest_size=4).digest()
    return msgspec.structs.replace(request, seed=int.from_bytes(digest, "big") >> 1)


def called_function(functions: Iterable[Function], choice: Any) -> Function | None:
    """The function that must be called; None where an answer in words will do.

    Simulated models call a function where the client insists (``required``, or one by name), and
    never of their own accord.

    Raises
    ------
    Refusal
        a function is asked for that was not offered.
    """
    offered = {function.name: function for function in functions}
    if choice in (None, "auto", "none"):
        return None
    if choice == "required" and offered:
        return next(iter(offered.values()))
    if isinstance(choice, dict):
        inner = choice.get("function")
        name = inner.get("name") if isinstance(inner, dict) else choice.get("name")
        if isinstance(name, str) and name in offered:
            return offered[name]
    raise Refusal(
        "tool_choice must be none, auto, required, or one of the tools by name", param="tool_choice"
    )


def arguments_schema(function: Function) -> Schema:
    return Schema("arguments", function.parameters or {"type": "object"})


def usage_body(completions: list[Completion]) -> dict[str, int]:
    """One prompt, and the answers to it."""
    taken = completions[0].usage.input_tokens
    given = sum(completion.usage.output_tokens for completion in completions)
    return {"prompt_tokens": taken, "completion_tokens": given, "total_tokens": taken + given}
