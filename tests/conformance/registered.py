"""The interfaces that the suite is run against, and those still to come."""

from __future__ import annotations

from conformance.interface import Interface
from conformance.of_anthropic import AnthropicInterface
from conformance.of_cohere import CohereInterface
from conformance.of_gemini import GeminiInterface, VertexInterface
from conformance.of_openai import OpenAIInterface
from conformance.of_shaped import SHAPED

__all__ = ["NOT_ASKED_OVER_HTTP", "REGISTERED", "STILL_TO_COME"]

REGISTERED: tuple[Interface, ...] = (
    OpenAIInterface(),
    *SHAPED,
    CohereInterface(),
    AnthropicInterface(),
    GeminiInterface(),
    VertexInterface(),
)

NOT_ASKED_OVER_HTTP = frozenset({"simulated", "benchmark", "huggingface"})

STILL_TO_COME = frozenset(
    {
        "bedrock",
    }
)
"""Has to be empty before a release: take a name out as its interface is registered."""
