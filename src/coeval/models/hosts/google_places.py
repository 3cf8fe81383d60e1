"""Where Google's models are asked: the Gemini API by a key, Vertex AI in a project and a location."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yarl import URL

from coeval.models.dialects.google.gemini import generate_path
from coeval.models.hosts.api_place import ApiPlace, GivenAddress

__all__ = ["gemini", "vertex"]

_VERSION = re.compile(r"[^/]/v\d")
_EVERYWHERE = "global"
_VERTEX = "aiplatform.googleapis.com"
_MULTI_REGIONS = ("eu", "us")


def gemini(given: GivenAddress) -> ApiPlace:
    """The Gemini API; its version may be left out of the base URL, and `/openai` below it leads to the same
    models."""
    address = given.url.rstrip("/").removesuffix("/openai")
    return ApiPlace(_versioned(address, "v1beta"), generate_path(given.model))


def vertex(given: GivenAddress) -> ApiPlace:
    """Vertex AI. A model is named by its id (Google's own), by ``publisher/id``, as ``endpoints/NUMBER`` (one
    that was tuned or deployed), or by its full name, which names project and location too."""
    name = _full_name(given.model, given.settings)
    location = name.split("/")[3]
    url = given.url.rstrip("/")
    if URL(url).host == _VERTEX and location != _EVERYWHERE:
        regional = f"aiplatform.{location}.rep.googleapis.com"
        url = str(URL(url).with_host(regional if location in _MULTI_REGIONS else f"{location}-{_VERTEX}"))
    return ApiPlace(_versioned(url, "v1"), generate_path(name))


def _full_name(model: str, settings: Mapping[str, str]) -> str:
    """``projects/P/locations/L/…``."""
    if re.match(r"projects/[^/]+/locations/[^/]+/", model):
        return model
    name = model.removeprefix("models/")
    if not name.startswith(("publishers/", "endpoints/")):
        publisher, _, name = name.rpartition("/")
        name = f"publishers/{publisher or 'google'}/models/{name}"
    return f"projects/{settings['project']}/locations/{settings['location']}/{name}"


def _versioned(url: str, version: str) -> str:
    address = url.rstrip("/")
    return address if _VERSION.search(address) else f"{address}/{version}"
