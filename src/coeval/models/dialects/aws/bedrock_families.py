"""What the makers of models on Amazon Bedrock take beside the parameters that Converse has for all.

Sources: the user guide's inference parameters by model, its pages on structured outputs and on the models and
features that Converse supports, and the guides of Amazon Nova (November 2026). Claude's families have a table
of their own (`claude_families`).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal, NamedTuple

__all__ = ["BedrockFamily", "bedrock_family", "nested"]


class BedrockFamily(NamedTuple):
    """``top_k`` and ``effort`` are where a parameter stands within `additionalModelRequestFields`, outermost
    name first, empty where there is nothing for it; ``beside_effort`` goes with it. ``follows`` is how a
    schema is given: as the format of the answer, as a tool that has to be called, or not at all."""

    top_k: tuple[str, ...] = ()
    effort: tuple[str, ...] = ()
    beside_effort: tuple[tuple[str, str], ...] = ()
    follows: Literal["format", "tool", "none"] = "none"
    system: bool = True


_NOVA = BedrockFamily(top_k=("inferenceConfig", "topK"), follows="tool")
_FAMILIES = (
    (
        r"amazon\.nova-2",
        _NOVA._replace(
            effort=("reasoningConfig", "maxReasoningEffort"), beside_effort=(("type", "enabled"),)
        ),
    ),
    (r"amazon\.nova", _NOVA),
    (r"openai\.gpt-oss", BedrockFamily(effort=("reasoning_effort",), follows="format")),
    (r"openai\.", BedrockFamily(effort=("reasoning", "effort"), follows="format")),
    (r"cohere\.command-r", BedrockFamily(top_k=("k",))),
    (r"mistral\.(mistral-7b|mixtral)", BedrockFamily(top_k=("top_k",), system=False)),
    (r"mistral\.(mistral-large-3|magistral|ministral|voxtral)", BedrockFamily(follows="format")),
    (r"mistral\.", BedrockFamily(top_k=("top_k",))),
    (
        r"(qwen\.qwen3|deepseek\.v|moonshot(ai)?\.|minimax\.|nvidia\.|google\.gemma|zai\.)",
        BedrockFamily(follows="format"),
    ),
    (r"amazon\.titan-text|cohere\.command-(text|light)", BedrockFamily(system=False)),
    (r"", BedrockFamily()),
)
"""The first whose pattern occurs in a model's id counts; the last is for what nobody knows: it is sent what
Converse has for all."""


@lru_cache(maxsize=1024)
def bedrock_family(model: str) -> BedrockFamily:
    """The family of a model by its id, the id of an inference profile, or an ARN that holds one."""
    return next(family for ids, family in _FAMILIES if re.search(ids, model.lower()))


def nested(place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """``("a", "b")`` and a value: ``{"a": {"b": value}}``."""
    outer, *inner = place
    return {outer: nested(tuple(inner), value) if inner else value}
