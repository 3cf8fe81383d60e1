"""A conversation for models that take no system prompt."""

from __future__ import annotations

from collections.abc import Sequence

from coeval.core.records import Message

__all__ = ["in_first_turn"]


def in_first_turn(messages: Sequence[Message]) -> list[Message]:
    """The messages with the system prompts at the beginning of what the user says first."""
    prompt = "\n\n".join(message.content for message in messages if message.role == "system")
    turns = [message for message in messages if message.role != "system"]
    if not prompt:
        return turns
    if turns and turns[0].role == "user":
        prompt = f"{prompt}\n\n{turns.pop(0).content}"
    return [Message("user", prompt), *turns]
