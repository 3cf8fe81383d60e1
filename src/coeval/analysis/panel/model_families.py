"""Which models are of one family, by their names: a judge may be kind to its own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

__all__ = ["kin_of_one", "model_families", "model_family"]

_KNOWN = {
    "gpt": r"gpt|chatgpt|davinci|(?:^|[/.-])o[134](?:$|[^a-z0-9])",
    "claude": r"claude",
    "gemini": r"gemini|gemma",
    "llama": r"llama",
    "qwen": r"qwen|qwq",
    "mistral": r"mistral|mixtral|ministral|magistral|codestral|pixtral",
    "deepseek": r"deepseek",
    "command": r"command|(?:^|/)c4ai",
    "phi": r"(?:^|/)phi[-\d]",
    "nova": r"amazon\.nova|(?:^|/)nova-",
    "grok": r"grok",
    "glm": r"(?:^|/)(?:chat)?glm",
    "kimi": r"kimi|moonshot",
}
"""Of names like ``us.anthropic.claude-sonnet-4``, in which the family does not stand first."""


def model_family(name: str) -> str:
    """
    >>> model_family("meta-llama/Llama-3.1-8B"), model_family("gpt-4o-mini"), model_family("sim-large")
    ('llama', 'gpt', 'sim')
    """
    folded = name.casefold()
    for family, pattern in _KNOWN.items():
        if re.search(pattern, folded):
            return family
    last = folded.rstrip("/").rpartition("/")[2]
    found = re.match(r"[^-:_.\d]+", last)
    return found[0] if found else last


def model_families(names: Iterable[str], told: Mapping[str, str]) -> dict[str, str]:
    """By name; ``told``: what a configuration says of some of them."""
    return {name: model_family(told.get(name, name)) for name in names}


def kin_of_one(judge: str, first: str, second: str, families: Mapping[str, str]) -> str | None:
    """The one of two models that is the judge, or alone is of its family: such a judge's scores are left out
    where the two are compared without kin. None where it is kin to neither, or to both alike."""
    if first == second:
        return None
    if judge in (first, second):
        return judge
    kin = [model for model in (first, second) if families.get(model, "") == families[judge]]
    return kin[0] if len(kin) == 1 else None
