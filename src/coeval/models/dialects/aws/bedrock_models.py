"""Bedrock's models, as its control plane lists them: those that are asked by their own id in a region, then
the inference profiles, by which the others are.

Written against the service model that botocore carries (`bedrock`, 2023-04-20). That a model is listed does
not say that the account may ask it: access is given apart.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from coeval.core import foreign
from coeval.core.errors import Misshapen
from coeval.models.dialects.dialect import ListedModel, ModelList, ModelPage

__all__ = ["BEDROCK_MODELS"]

_MODELS = "/foundation-models?byOutputModality=TEXT&byInferenceType=ON_DEMAND"
_PROFILES = "/inference-profiles?maxResults=1000"
_FIRST_PROFILES = ""
"""What the page of profiles that no token stands for is called."""


class _FoundationModel(msgspec.Struct, rename="camel"):
    model_id: str


class _InferenceProfile(msgspec.Struct, rename="camel"):
    inference_profile_id: str


class _BedrockPage(msgspec.Struct, rename="camel"):
    """An answer of either operation: each has its own list."""

    model_summaries: list[_FoundationModel] | None = None
    inference_profile_summaries: list[_InferenceProfile] | None = None
    next_token: str | None = None


_read_page = foreign.decoder(_BedrockPage)


def _path(page: str | None) -> str:
    if page is None:
        return _MODELS
    return f"{_PROFILES}&nextToken={quote(page, safe='')}" if page != _FIRST_PROFILES else _PROFILES


def _page(body: bytes) -> ModelPage:
    page = _read_page(body)
    if page.model_summaries is not None:
        return ModelPage(tuple(ListedModel(each.model_id) for each in page.model_summaries), _FIRST_PROFILES)
    if page.inference_profile_summaries is None:
        raise Misshapen("it lists neither models nor inference profiles")
    profiles = (ListedModel(each.inference_profile_id) for each in page.inference_profile_summaries)
    return ModelPage(tuple(profiles), page.next_token)


BEDROCK_MODELS = ModelList(_path, _page)
