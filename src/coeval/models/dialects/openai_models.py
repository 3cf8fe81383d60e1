"""OpenAI's list of models, `GET /models`, as its hosts answer it.

Written against OpenAI's reference and what others add to it: the context window under several names
(Groq, Mistral, OpenRouter, vLLM; DeepInfra within `metadata`; Hugging Face for each provider behind it),
prices (OpenRouter's are texts, US dollars per token; DeepInfra's are numbers, US dollars per million), and
what is not served or makes no text (Groq, Mistral, OpenRouter, Hugging Face).
"""

from __future__ import annotations

from typing import Any

import msgspec

from coeval.core import foreign
from coeval.core.errors import Misshapen, Undecodable
from coeval.models.dialects.dialect import ListedModel, ModelList, ModelPage

__all__ = ["OPENAI_MODELS"]

_WINDOWS = ("context_window", "context_length", "max_context_length", "max_model_len")
_MOST_TOKENS = 1 << 32


class _Model(msgspec.Struct):
    """One entry. Only its id is relied on; whether the rest is what it should be is looked at one by one."""

    id: str
    context_window: Any = None
    context_length: Any = None
    max_context_length: Any = None
    max_model_len: Any = None
    pricing: Any = None
    metadata: Any = None
    active: Any = None
    capabilities: Any = None
    architecture: Any = None
    providers: Any = None


class _List(msgspec.Struct):
    data: list[_Model]


_read_list = foreign.decoder(_List)
_read_bare_list = foreign.decoder(list[_Model])


def _path(_: str | None) -> str:
    return "/models"


def _page(body: bytes) -> ModelPage:
    """The whole list: the dialect has no pages. Some hosts leave out the `data` around it."""
    try:
        models = _read_list(body).data
    except Misshapen as error:
        try:
            models = _read_bare_list(body)
        except Undecodable:
            raise error from None
    return ModelPage(tuple(_listed(model) for model in models if _answers(model)))


def _answers(model: _Model) -> bool:
    """Not where the host says that it is not served, or answers no messages with text."""
    capabilities = model.capabilities if isinstance(model.capabilities, dict) else {}
    architecture = model.architecture if isinstance(model.architecture, dict) else {}
    made = architecture.get("output_modalities")
    return (
        model.active is not False
        and capabilities.get("completion_chat") is not False
        and (not isinstance(made, list) or "text" in made)
        and (not _behind(model) or any(_is_live(provider) for provider in _behind(model)))
    )


def _behind(model: _Model) -> list[dict[str, Any]]:
    """What a router says of those that serve the model for it."""
    listed = model.providers if isinstance(model.providers, list) else []
    return [provider for provider in listed if isinstance(provider, dict)]


def _is_live(provider: dict[str, Any]) -> bool:
    return provider.get("status") in ("live", None)


def _listed(model: _Model) -> ListedModel:
    about = model.metadata if isinstance(model.metadata, dict) else {}
    behind = [provider.get("context_length") for provider in _behind(model) if _is_live(provider)]
    told = (*(getattr(model, name) for name in _WINDOWS), about.get("context_length"))
    # A router may take any of its providers: the least of their windows is there in any case.
    least = min((number for number in behind if isinstance(number, int) and _is_count(number)), default=None)
    window = next((number for number in told if _is_count(number)), least)
    return ListedModel(model.id, window, *_prices(model.pricing, about.get("pricing")))


def _is_count(told: Any) -> bool:
    return type(told) is int and 0 < told <= _MOST_TOKENS


def _prices(per_token: Any, per_mtok: Any) -> tuple[float | None, float | None]:
    """US dollars per million tokens of input and output, where they are told in one of the two shapes."""
    if isinstance(per_token, dict):
        return _per_mtok(per_token.get("prompt")), _per_mtok(per_token.get("completion"))
    if isinstance(per_mtok, dict):
        return _price(per_mtok.get("input_tokens")), _price(per_mtok.get("output_tokens"))
    return None, None


def _per_mtok(told: Any) -> float | None:
    """A price per token, written as text so that it loses no digit; a negative one means that it varies."""
    if not isinstance(told, str) or len(told) > 32:
        return None
    try:
        return _price(float(told) * 1e6)
    except ValueError:
        return None


def _price(told: Any) -> float | None:
    if isinstance(told, bool) or not isinstance(told, int | float) or not 0 <= told < 1e9:
        return None
    return round(float(told), 9)


OPENAI_MODELS = ModelList(_path, _page)
