"""Where Google's models are asked: the Gemini API by a key, Vertex AI in a project and a location."""

from __future__ import annotations

import re

from coeval.models.dialects.google.gemini import generate_path
from coeval.models.hosts.api_place import ApiPlace, GivenAddress

__all__ = ["gemini"]

_VERSION = re.compile(r"[^/]/v\d")


def gemini(given: GivenAddress) -> ApiPlace:
    """The Gemini API; its version may be left out of the base URL."""
    return ApiPlace(_versioned(given.url, "v1beta"), generate_path(given.model))


def _versioned(url: str, version: str) -> str:
    address = url.rstrip("/")
    return address if _VERSION.search(address) else f"{address}/{version}"
