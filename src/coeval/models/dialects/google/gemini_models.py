"""Google's list of models, `GET /models`, as the Gemini API answers it."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import msgspec

from coeval.core import foreign
from coeval.models.dialects.dialect import ListedModel, ModelList, ModelPage

__all__ = ["GEMINI_MODELS"]

_PAGE = 1000
"""The most models that Google puts on a page."""
_MOST_TOKENS = 1 << 32


class _GeminiModel(msgspec.Struct, rename="camel"):
    name: str
    input_token_limit: Any = None
    supported_generation_methods: list[str] | None = None


class _GeminiList(msgspec.Struct, rename="camel"):
    models: list[_GeminiModel] = []
    next_page_token: str | None = None


_read = foreign.decoder(_GeminiList)


def _path(page: str | None) -> str:
    token = f"&pageToken={quote(page, safe='')}" if page is not None else ""
    return f"/models?pageSize={_PAGE}{token}"


def _page(body: bytes) -> ModelPage:
    """Those that answer generateContent: others embed, count or paint."""
    found = _read(body)
    answering = (
        model
        for model in found.models
        if model.supported_generation_methods is None
        or "generateContent" in model.supported_generation_methods
    )
    return ModelPage(tuple(map(_listed, answering)), found.next_page_token or None)


def _listed(model: _GeminiModel) -> ListedModel:
    window = model.input_token_limit
    known = type(window) is int and 0 < window <= _MOST_TOKENS
    return ListedModel(model.name.removeprefix("models/"), window if known else None)


GEMINI_MODELS = ModelList(_path, _page)
