"""Where Google's models are asked: the Gemini API by a key, Vertex AI in a project and a location."""

from __future__ import annotations

import re
from collections.abc import Mapping

from yarl import URL

from coeval.core.errors import UsageError
from coeval.models.dialects.google.gemini import generate_path
from coeval.models.hosts.api_place import ApiPlace, GivenAddress

__all__ = ["gemini", "vertex", "vertex_name"]

_VERSION = re.compile(r"[^/]/v\d")
_FULL_NAME = re.compile(r"projects/[^/]+/locations/([^/]+)/")
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
    name = vertex_name(given.settings, given.model)
    location = name.split("/")[3]
    url = given.url.rstrip("/")
    if URL(url).host == _VERTEX and location != _EVERYWHERE:
        regional = f"aiplatform.{location}.rep.googleapis.com"
        url = str(URL(url).with_host(regional if location in _MULTI_REGIONS else f"{location}-{_VERTEX}"))
    return ApiPlace(_versioned(url, "v1"), generate_path(name))


def vertex_name(settings: Mapping[str, str], model: str) -> str:
    """The full name of a model of Vertex AI: ``projects/…/locations/…/`` and what stands below."""
    full = _FULL_NAME.match(model)
    location = _location(full[1] if full else settings["location"])
    return model if full else f"projects/{settings['project']}/locations/{location}/{_below(model)}"


def _location(given: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", given):
        raise UsageError(
            f"`{given}` is no location of Vertex AI; it reads like `global` or `us-central1` "
            "(`providers.vertex.location`, GOOGLE_CLOUD_LOCATION or parameters.location)."
        )
    return given


def _below(model: str) -> str:
    """A model's name below project and location."""
    name = model.removeprefix("models/")
    if name.startswith(("publishers/", "endpoints/")):
        return name
    publisher, _, name = name.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


def _versioned(url: str, version: str) -> str:
    address = url.rstrip("/")
    return address if _VERSION.search(address) else f"{address}/{version}"
