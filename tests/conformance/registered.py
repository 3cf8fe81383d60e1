"""The interfaces that the suite is run against."""

from __future__ import annotations

from conformance.interface import Interface
from conformance.of_anthropic import AnthropicInterface
from conformance.of_bedrock import BedrockInterface
from conformance.of_cohere import CohereInterface
from conformance.of_gemini import GeminiInterface, VertexInterface
from conformance.of_openai import SHAPED

__all__ = ["NOT_ASKED_OVER_HTTP", "REGISTERED"]

REGISTERED: tuple[Interface, ...] = (
    *SHAPED,
    CohereInterface(),
    AnthropicInterface(),
    GeminiInterface(),
    VertexInterface(),
    BedrockInterface(),
)

NOT_ASKED_OVER_HTTP = frozenset({"simulated", "benchmark", "huggingface"})
