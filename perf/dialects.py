"""What a dialect takes of the CPU for a call: a judge's request into bytes, and its answer read.

python -m perf.run dialects
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.core.redaction import Redactor
from coeval.models.address import load_dialect
from coeval.models.catalog import HOSTS
from coeval.pipeline.plan.judge_form import JudgeForm

__all__ = ["SAID", "TYPICAL", "DialectCost", "Typical", "costs"]

SAID = '{"plot": "High", "style": "Medium", "length": "Low"}'
_ROUNDS, _CALLS = 7, 4_000

_FACTORS = ("plot", "style", "length")


class Typical(NamedTuple):
    """A model of an interface, and what its host sends for `SAID`."""

    model: str
    answer: Mapping[str, Any]


TYPICAL: Mapping[str, Typical] = {
    "openai": Typical(
        "gpt-4o-mini",
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_700_000_000,
            "model": "gpt-4o-mini-2024-07-18",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": SAID, "refusal": None, "annotations": []},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 500,
                "completion_tokens": 20,
                "total_tokens": 520,
                "prompt_tokens_details": {"cached_tokens": 0, "audio_tokens": 0},
                "completion_tokens_details": {"reasoning_tokens": 0, "audio_tokens": 0},
            },
            "service_tier": "default",
            "system_fingerprint": "fp_1",
        },
    ),
    "anthropic": Typical(
        "claude-haiku-4-5",
        {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": "claude-haiku-4-5-20251001",
            "content": [{"type": "text", "text": SAID}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": 500,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": 0,
                "cache_creation": {"ephemeral_5m_input_tokens": 0, "ephemeral_1h_input_tokens": 0},
                "output_tokens": 20,
                "service_tier": "standard",
            },
        },
    ),
    "cohere": Typical(
        "command-a-03-2025",
        {
            "id": "c-1",
            "message": {"role": "assistant", "content": [{"type": "text", "text": SAID}]},
            "finish_reason": "COMPLETE",
            "usage": {
                "billed_units": {"input_tokens": 500, "output_tokens": 20},
                "tokens": {"input_tokens": 500, "output_tokens": 20},
                "cached_tokens": 0,
            },
        },
    ),
    "gemini": Typical(
        "gemini-2.5-flash",
        {
            "candidates": [
                {
                    "content": {"parts": [{"text": SAID}], "role": "model"},
                    "finishReason": "STOP",
                    "index": 0,
                }
            ],
            "usageMetadata": {
                "promptTokenCount": 500,
                "candidatesTokenCount": 20,
                "totalTokenCount": 520,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": 500}],
            },
            "modelVersion": "gemini-2.5-flash",
            "responseId": "r-1",
        },
    ),
    "bedrock": Typical(
        "us.anthropic.claude-haiku-4-5-20251001-v1:0",
        {
            "output": {"message": {"role": "assistant", "content": [{"text": SAID}]}},
            "stopReason": "end_turn",
            "usage": {
                "inputTokens": 500,
                "outputTokens": 20,
                "totalTokens": 520,
                "cacheReadInputTokens": 0,
                "cacheWriteInputTokens": 0,
            },
            "metrics": {"latencyMs": 700},
        },
    ),
}
"""By interface: one for each dialect."""


class DialectCost(NamedTuple):
    """Microseconds of CPU a call."""

    encode_us: float
    decode_us: float

    @property
    def whole_us(self) -> float:
        return self.encode_us + self.decode_us


def costs() -> dict[str, DialectCost]:
    """Of each dialect, by an interface that speaks it."""
    return {interface: _cost(interface, typical) for interface, typical in TYPICAL.items()}


def _cost(interface: str, typical: Typical) -> DialectCost:
    host = HOSTS[interface]
    dialect, spec = load_dialect(host), ModelSpec(name="m", interface=interface, model=typical.model)
    request = Request(
        (Message("system", "You are an impartial judge."), Message("user", "Score this answer. " * 100)),
        sampling=SamplingParameters(temperature=0.0, max_tokens=512),
        schema=JudgeForm(dict.fromkeys(_FACTORS, "")).build_joint_question(_FACTORS).schema,
        purpose="evaluation",
    )
    answer, redactor = json.dumps(typical.answer).encode(), Redactor(["sk-abcdefghijklmnopqrstuvwxyz012345"])
    if dialect.decode(answer, redactor).text != SAID:
        raise AssertionError(f"the typical answer of {interface} is none that its dialect reads")
    return DialectCost(
        _least_us(lambda: dialect.encode(request, spec, host)),
        _least_us(lambda: dialect.decode(answer, redactor)),
    )


def _least_us(step: Callable[[], object]) -> float:
    """Of a step, in the round in which the machine did least besides."""
    least = float("inf")
    for _ in range(_ROUNDS):
        began = time.process_time()
        for _ in range(_CALLS):
            step()
        least = min(least, time.process_time() - began)
    return least / _CALLS * 1e6
