"""Where on a host a model is asked: what its base URL says, in the shape the host's API has.

Most hosts are asked at their base URL and their dialect's path. Some are known by an address that says more,
or less: Azure's portal shows several for one resource, and ``OLLAMA_HOST`` may be a name alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs, quote

from yarl import URL

from coeval.core.errors import UsageError
from coeval.models.dialects.gemini import generate_path

# --- From a base URL to an API's place


class GivenAddress(NamedTuple):
    """What a place is made of: the base URL as the user wrote it, the row's settings, and the model's id.

    ``settings[name]`` raises the UsageError that says where to set it, where it is not set.
    """

    url: str
    settings: Mapping[str, str]
    model: str


class ApiPlace(NamedTuple):
    """A base URL, and the path that is appended to it, quoted."""

    url: str
    path: str


Placer: TypeAlias = Callable[[GivenAddress], ApiPlace]
"""What it makes of a URL that is none, or holds more than an address, is refused by `address_of`."""


# --- Google's places: Gemini API and Vertex AI

_VERSION = re.compile(r"[^/]/v\d")
_FULL_NAME = re.compile(r"projects/[^/]+/locations/([^/]+)/")
_GOOGLE_EVERYWHERE = "global"
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
    if URL(url).host == _VERTEX and location != _GOOGLE_EVERYWHERE:
        regional = f"aiplatform.{location}.rep.googleapis.com"
        url = str(URL(url).with_host(regional if location in _MULTI_REGIONS else f"{location}-{_VERTEX}"))
    return ApiPlace(_versioned(url, "v1"), generate_path(name))


def vertex_name(settings: Mapping[str, str], model: str) -> str:
    """The full name of a model of Vertex AI: ``projects/…/locations/…/`` and what stands below."""
    full = _FULL_NAME.match(model)
    location = _location(full[1] if full else settings["location"])
    return model if full else f"projects/{settings['project']}/locations/{location}/{_below_google(model)}"


def _location(given: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", given):
        raise UsageError(
            f"`{given}` is no location of Vertex AI; it reads like `global` or `us-central1` "
            "(`providers.vertex.location`, GOOGLE_CLOUD_LOCATION or parameters.location)."
        )
    return given


def _below_google(model: str) -> str:
    """A model's name below project and location."""
    name = model.removeprefix("models/")
    if name.startswith(("publishers/", "endpoints/")):
        return name
    publisher, _, name = name.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


def _versioned(url: str, version: str) -> str:
    address = url.rstrip("/")
    return address if _VERSION.search(address) else f"{address}/{version}"


_CHAT = "/chat/completions"
_DEPLOYMENT = re.compile(r"/openai(/deployments/[^/]*)?$")
# Versions of Azure OpenAI's API that have no date; `v1` is asked where none is named.
_UNDATED = ("", "v1", "preview", "latest")
_AI_VERSION = "2024-05-01-preview"
_SERVERLESS = (".models.ai.azure.com", ".inference.ai.azure.com", ".inference.ml.azure.com")
_COHERE_VERSION = re.compile(r"(/compatibility)?/v[12](/chat)?$")
# Where `ollama serve` listens unless ``OLLAMA_HOST`` says otherwise.
_OLLAMA_PORT = 11434
_HERE = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"  # noqa: S104  what a server listens at is no address to ask, and nothing is bound


def azure_openai(given: GivenAddress) -> ApiPlace:
    """A deployment of Azure OpenAI.

    At an ``api_version`` with a date: ``/openai/deployments/{model}/chat/completions``. Without one, at
    ``v1``, ``preview`` or ``latest``, and where the endpoint ends in ``/v1``: the newer API, which is
    OpenAI's. What the portal shows as a deployment's target URI serves as an endpoint too; its deployment is
    passed over for the model's.
    """
    address, shown = _azure_address(given.url)
    version = given.settings.get("api_version", shown)
    resource = _DEPLOYMENT.sub("", address)
    if not address.endswith("/v1"):
        if version not in _UNDATED:
            deployment = f"/openai/deployments/{quote(given.model, safe='')}"
            return ApiPlace(resource, deployment + _CHAT + _api_version(version))
        address = f"{resource}/openai/v1"
    named = version in _UNDATED and version not in ("", "v1")
    return ApiPlace(address, _CHAT + (_api_version(version) if named else ""))


def azure_ai(given: GivenAddress) -> ApiPlace:
    """A model of Azure AI Foundry: below ``/models``; at the endpoint itself where that ends in ``/v1``, or
    serves a single model."""
    address, shown = _azure_address(given.url)
    if address.endswith("/v1"):
        return ApiPlace(address, _CHAT)
    single = (URL(address).host or "").endswith(_SERVERLESS)
    below = address if single or address.endswith("/models") else f"{address}/models"
    version = given.settings.get("api_version") or shown or _AI_VERSION
    return ApiPlace(below, _CHAT + _api_version(version))


def anthropic(given: GivenAddress) -> ApiPlace:
    """Anthropic's API: its base URL has no ``/v1``, as its own clients take it; one that has serves too."""
    address = given.url.rstrip("/").removesuffix("/messages").removesuffix("/v1")
    return ApiPlace(address, "/v1/messages")


def _below(prefix: str) -> Placer:
    """A host whose own client is given an address without ``prefix``: it may be left out."""

    def place(given: GivenAddress) -> ApiPlace:
        address = URL(given.url)
        if not address.path.strip("/"):
            address = address.with_path(prefix, keep_query=True, keep_fragment=True)
        return ApiPlace(str(address), _CHAT)

    return place


def cohere(given: GivenAddress) -> ApiPlace:
    """Cohere's chat, version 2; the base URL may name a version, or the endpoint of OpenAI's shape."""
    return ApiPlace(_COHERE_VERSION.sub("", given.url.rstrip("/")), "/v2/chat")


def ollama(given: GivenAddress) -> ApiPlace:
    """Ollama's address, read as it reads ``OLLAMA_HOST``: scheme, host, port and ``/v1`` may be missing."""
    scheme, found, rest = given.url.strip().rpartition("://")
    if rest.startswith(":"):
        rest = _HERE + rest
    address = URL(f"{scheme or 'http'}://{rest}")
    if address.host == _EVERYWHERE:
        address = address.with_host(_HERE)
    if not found and address.explicit_port is None:
        address = address.with_port(_OLLAMA_PORT)
    if not address.path.strip("/"):
        address = address.with_path("/v1", keep_query=True, keep_fragment=True)
    return ApiPlace(str(address), _CHAT)


def _azure_address(url: str) -> tuple[str, str]:
    """An address without a target URI's ``/chat/completions?api-version=…``, and that version."""
    address, _, query = url.partition("?")
    reported = parse_qs(query, keep_blank_values=True)
    version = reported.pop("api-version", [""])[0]
    if reported:
        address = url  # refused, as a query may hold a credential
    return address.rstrip("/").removesuffix(_CHAT), version


def _api_version(version: str) -> str:
    return f"?api-version={quote(version, safe='')}"


PLACERS: Mapping[str, Placer] = MappingProxyType(
    {
        "anthropic": anthropic,
        "azure_openai": azure_openai,
        "azure_ai": azure_ai,
        "below /v1": _below("/v1"),
        "below /openai/v1": _below("/openai/v1"),
        "cohere": cohere,
        "gemini": gemini,
        "ollama": ollama,
        "vertex": vertex,
    }
)
"""How the address of a host is read, by the name that its row has for it."""
