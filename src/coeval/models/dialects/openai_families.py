"""Families of models that refuse what others at their host take: one row each.

Rows are held to what the providers document; what is not certain is left to the host, whose refusal names
the parameter. Sources: OpenAI's and Azure's references and guides to reasoning models, DeepSeek's guide to
its reasoner, Groq's page on structured outputs, Gemma's model cards, read in November 2026.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

from coeval.models.catalog import Structured

__all__ = ["ModelTraits", "SystemRole", "traits_at"]

SystemRole: TypeAlias = Literal["system", "developer", "user"]
"""Who says the system prompt; `user`: the first turn begins with it, as the model knows no such role."""

NOT_AT_ALL = None
_AS_IT_IS: Mapping[str, Any] = MappingProxyType({})


class _Family(NamedTuple):
    """``models`` is matched at the start of a model's id, in either case, at the ``hosts``.

    ``takes`` gives the only value that a parameter may have, `NOT_AT_ALL` for none; ``reasoning_takes`` the
    same for requests that ask for reasoning. ``strict``: a schema may be sent as one to be followed strictly.
    """

    hosts: tuple[str, ...]
    models: str
    takes: Mapping[str, Any] = _AS_IT_IS
    reasoning_takes: Mapping[str, Any] = _AS_IT_IS
    system: SystemRole = "system"
    structured: Structured | None = None
    strict: bool = True


class ModelTraits(NamedTuple):
    """What is to be known of one model at one host; see `_Family`."""

    takes: Mapping[str, Any]
    reasoning_takes: Mapping[str, Any]
    system: SystemRole
    structured: Structured | None
    strict: bool


_OPENAI = ("openai", "azure_openai")
_DEFAULTS_ONLY = {"temperature": 1, "top_p": 1, "logprobs": NOT_AT_ALL}

_FAMILIES = (
    _Family(
        _OPENAI,
        r"(ft:)?o1-(mini|preview)",
        takes={**_DEFAULTS_ONLY, "reasoning_effort": NOT_AT_ALL},
        system="user",
        structured="none",
    ),
    _Family(_OPENAI, r"(ft:)?o1(?!-mini|-preview)\b", takes=_DEFAULTS_ONLY, system="developer"),
    _Family(_OPENAI, r"(ft:)?o[3-9]\b", takes={**_DEFAULTS_ONLY, "stop": NOT_AT_ALL}, system="developer"),
    _Family(
        _OPENAI, r"gpt-5(?!-chat|\.)\b", takes={**_DEFAULTS_ONLY, "stop": NOT_AT_ALL}, system="developer"
    ),
    _Family(_OPENAI, r"gpt-5\.\d+(?!-chat)\b", reasoning_takes=_DEFAULTS_ONLY, system="developer"),
    _Family(
        _OPENAI,
        r"(ft:)?gpt-(3\.5|4-(turbo|1106|0125|vision)|4o-2024-05-13)",
        structured="json_object",
    ),
    _Family(_OPENAI, r"(ft:)?gpt-4(-32k)?(-0314|-0613)?$", structured="none"),
    # The first two would be passed over without a word, and records would say that they were asked for.
    _Family(
        ("deepseek",),
        r"deepseek-reasoner",
        takes={"temperature": NOT_AT_ALL, "top_p": NOT_AT_ALL, "logprobs": NOT_AT_ALL},
    ),
    _Family(("groq",), r"openai/gpt-oss", structured="json_schema"),
    _Family(("groq",), r"meta-llama/llama-4|moonshotai/kimi-k2", structured="json_schema", strict=False),
    # Its chat template raises an error at a system prompt; that of Gemma 3 does not.
    _Family(
        ("vllm", "huggingface_api"),
        r"(google/)?(gemma-(1\.1-|2-|2b|7b)|codegemma|recurrentgemma|shieldgemma)",
        system="user",
    ),
)


@lru_cache(maxsize=1024)
def traits_at(host: str, model: str) -> ModelTraits:
    """What the families of a model say of it together."""
    found = [row for row in _FAMILIES if host in row.hosts and re.match(row.models, model, re.IGNORECASE)]
    return ModelTraits(
        takes={name: value for row in found for name, value in row.takes.items()},
        reasoning_takes={name: value for row in found for name, value in row.reasoning_takes.items()},
        system=next((row.system for row in found if row.system != "system"), "system"),
        structured=next((row.structured for row in found if row.structured is not None), None),
        strict=all(row.strict for row in found),
    )
