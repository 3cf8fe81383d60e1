"""The interfaces that the suite is run against, and those still to come."""

from __future__ import annotations

from conformance.interface import Interface
from conformance.of_anthropic import AnthropicInterface
from conformance.of_gemini import GeminiInterface, VertexInterface
from conformance.of_openai import OpenAIInterface

__all__ = ["NOT_ASKED_OVER_HTTP", "REGISTERED", "STILL_TO_COME"]

REGISTERED: tuple[Interface, ...] = (
    OpenAIInterface(),
    AnthropicInterface(),
    GeminiInterface(),
    VertexInterface(),
)

NOT_ASKED_OVER_HTTP = frozenset({"simulated", "benchmark", "huggingface"})

STILL_TO_COME = frozenset(
    {
        "azure_ai",
        "azure_openai",
        "bedrock",
        "cerebras",
        "cohere",
        "deepinfra",
        "deepseek",
        "groq",
        "huggingface_api",
        "mistral",
        "ollama",
        "openrouter",
        "vllm",
    }
)
"""Has to be empty before a release: take a name out as its interface is registered."""
