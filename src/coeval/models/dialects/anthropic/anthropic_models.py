"""Anthropic's list of models, `GET /v1/models`, a thousand to a page."""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from coeval.core import foreign
from coeval.models.dialects.dialect import ListedModel, ModelList, ModelPage
from coeval.models.dialects.token_counts import Counts

__all__ = ["ANTHROPIC_MODELS"]

_PATH = "/v1/models?limit=1000"
_GONE = "retired"


class _ClaudeModel(msgspec.Struct):
    id: str
    lifecycle: str | None = None
    max_input_tokens: msgspec.Raw = msgspec.Raw()


class _ClaudePage(msgspec.Struct):
    data: list[_ClaudeModel]
    has_more: bool = False
    last_id: str | None = None


_read_page = foreign.decoder(_ClaudePage)


def _path(last: str | None) -> str:
    return _PATH if last is None else f"{_PATH}&after_id={quote(last, safe='')}"


def _page(body: bytes) -> ModelPage:
    page = _read_page(body)
    models = tuple(
        ListedModel(model.id, Counts().optional(model.max_input_tokens) or None)
        for model in page.data
        if model.lifecycle != _GONE
    )
    return ModelPage(models, page.last_id if page.has_more else None)


ANTHROPIC_MODELS = ModelList(_path, _page)
