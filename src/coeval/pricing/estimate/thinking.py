"""How many tokens a model thinks before it answers: they count as output, and nobody knows how many
beforehand.

By the families' own pages, where these say whether a model thinks unless it is told otherwise; the numbers
are rules of thumb for questions of a paragraph, to be corrected by what is seen."""

from __future__ import annotations

import re

from coeval.core.records import SamplingParameters

__all__ = ["thinking_tokens"]

_BY_EFFORT = {"none": 0, "minimal": 40, "low": 200, "medium": 500, "high": 1400, "xhigh": 3000, "max": 4000}
_USUALLY = 500
_FAMILIES = {
    r"(.*/)?(ft:)?(o[1-9]|gpt-[5-9](?!.*chat))": 450,
    r"(.*/)?gpt-oss": 250,
    r"(.*/)?gemini-(2\.5|3)[\d.]*-flash-lite": 0,
    r"(.*/)?gemini-(2\.5|[3-9])[\d.]*-flash": 280,
    r"(.*/)?gemini-(2\.5|[3-9])": 700,
    r"(.*[/.])?deepseek-(r1|reasoner)": 800,
    r"(.*/)?(qwq|qwen3(?!.*instruct)|.*thinking)": 700,
    r"(.*/)?(magistral|grok-4(?!.*non-reasoning))": 500,
}
"""Start of a model's id → tokens, the first that fits; others think only where they are told to."""


def thinking_tokens(model: str, sampling: SamplingParameters) -> int:
    """What is expected of one answer; 0 for a model that does not think."""
    if sampling.thinking_budget is not None:
        return max(0, min(sampling.thinking_budget // 2, 2000))
    if sampling.reasoning_effort is not None:
        return _BY_EFFORT.get(sampling.reasoning_effort, _USUALLY)
    fitting = (tokens for pattern, tokens in _FAMILIES.items() if re.match(pattern, model, re.IGNORECASE))
    return next(fitting, 0)
