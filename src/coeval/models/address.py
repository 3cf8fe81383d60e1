"""Where a model is asked, and as whom: its host's row, filled with what the user set."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple, TypeAlias
from urllib.parse import parse_qs, quote

from yarl import URL

from coeval.core.entry_points import import_object
from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import ACCESS_KEY, BASE_URL
from coeval.core.redaction import Redactor
from coeval.core.text import canonical_json
from coeval.models.catalog import Host
from coeval.models.dialects.dialect import Dialect
from coeval.models.dialects.gemini import generate_path
from coeval.models.dialects.openai_chat import OPENAI_CHAT
from coeval.models.keys import Credential, Keys
from coeval.models.signers import Signer, signer_of

# --- Dialects by name

# Names in rows of hosts that are OpenAI's chat completions where a URL is asked.
_OPENAI_SHAPED = frozenset({"openai_chat", "local", "simulated", "benchmark"})
# Each is loaded when a host of that dialect is asked, as those of other packages are.
_OURS = "coeval.models.dialects"
_DIALECTS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": f"{_OURS}.anthropic_messages:ANTHROPIC",
        "bedrock": f"{_OURS}.bedrock:BEDROCK",
        "cohere": f"{_OURS}.cohere:COHERE",
        "gemini": f"{_OURS}.gemini:GEMINI",
    }
)


def dialect_of(host: Host) -> Dialect:
    """The dialect of a host that is asked over HTTP.

    Models in this process have OpenAI's where the user names an OpenAI-shaped address that serves them.

    Raises UsageError: a host names a dialect that is not there, or is none.
    """
    if host.dialect in _OPENAI_SHAPED:
        return OPENAI_CHAT
    named = _DIALECTS.get(host.dialect, host.dialect)
    found = import_object(named, host.name) if ":" in named else None
    if not isinstance(found, Dialect) or isinstance(found, type):
        raise UsageError(f"{host.name}: {host.dialect} is no Dialect; reinstall its package")
    return found


EndpointKey: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Where, and as whom: two accounts at one host are two endpoints."""

_SETTING = re.compile(r"\{(\w+)\}")


class ModelAddress(NamedTuple):
    """``url`` is the base URL, to which ``path`` is appended. ``settings`` are those of the host by name; one
    that is not set raises the UsageError that says where to set it."""

    spec: ModelSpec
    host: Host
    dialect: Dialect
    url: str
    path: str
    credential: Credential | None
    signer: Signer | None
    settings: Mapping[str, str] = MappingProxyType({})

    @property
    def key(self) -> EndpointKey:
        """Where a model's batches are kept makes no other endpoint of it."""
        found = self.credential.fields if self.credential is not None else {}
        fields = {name: value for name, value in found.items() if not name.startswith("batch_")}
        headers = tuple(sorted(self.host.headers.items()))
        return self.url, self.host.signer, headers, tuple(sorted(fields.items()))

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.credential.secrets if self.credential is not None else ()


def address_of(spec: ModelSpec, host: Host, keys: Keys) -> ModelAddress:
    """Where a hosted model is asked.

    Raises UsageError: a key, a setting or a usable URL is missing, or the model's key stands where it would
    be kept.
    """
    who = f'interface "{spec.interface}" (model {spec.name})'
    try:
        found = keys.credential(spec.interface, spec.access_key, spec.account)
    except UsageError as error:
        raise UsageError(f"{who}: {error}") from None
    credential = _with_places(found, spec, host)
    signer = signer_of(host, credential)
    if signer is None and host.needs_key and spec.base_url is None:
        raise UsageError(f"{who} needs a key and none was found. {keys.places(spec.interface)}")
    if credential is not None and _holds(spec, credential):
        raise UsageError(
            f"{who}: parameters.extra_body holds the model's key, which would be kept with the results; "
            "take it out, as the key is sent without it."
        )
    settings = _Settings(_settings(host, credential, signer), host, who)
    dialect = dialect_of(host)
    url, path = _place(spec, host, dialect, settings)
    return ModelAddress(spec, host, dialect, url, path, credential, signer, settings)


def _place(spec: ModelSpec, host: Host, dialect: Dialect, settings: _Settings) -> ApiPlace:
    """The base URL, the user's own before the row's, and the path below it."""
    name = str(BASE_URL)
    if spec.base_url is None and (names := _SETTING.findall(host.url)):
        name = f"its {' and '.join(names)}"
    url = spec.base_url if spec.base_url is not None else _filled(host.url, settings)
    if not host.placed:
        return ApiPlace(_normalised(url, settings.who, name), dialect.path(spec))
    placer = PLACERS.get(host.placed) or import_object(host.placed, host.name)
    try:
        place = placer(GivenAddress(url, settings, spec.model))
    except ValueError:
        place = ApiPlace(url, "")  # what is wrong with it is said below
    return place._replace(url=_normalised(place.url, settings.who, name))


def _with_places(credential: Credential | None, spec: ModelSpec, host: Host) -> Credential | None:
    """A credential with the model's own settings in place of those of the key file and the environment: a
    request is signed for the region that it goes to."""
    own = {name: str(value) for name, value in spec.options.items() if name in host.places}
    if not own:
        return credential
    return Credential({**(credential.fields if credential is not None else {}), **own})


def _settings(host: Host, credential: Credential | None, signer: Signer | None) -> dict[str, str]:
    """What fills a row: what was set, else what comes with the credential, else defaults."""
    found = credential.fields if credential is not None else {}
    brought = signer.brings if signer is not None else {}
    return {**host.defaults, **brought, **{name: found[name] for name in host.places if name in found}}


class _Settings(dict[str, str]):
    """The settings of a host by name; what asks for one that is not set raises the error that says where to
    set it."""

    def __init__(self, found: Mapping[str, str], host: Host, who: str) -> None:
        super().__init__(found)
        self._host = host
        self.who = who

    def __missing__(self, name: str) -> str:
        variables = " or ".join(self._host.settings.get(name, ()))
        in_environment = f", {variables} in the environment," if variables else ""
        raise UsageError(
            f"{self.who} needs {name} and none was found: set `providers.{self._host.name}.{name}` in a key "
            f"file{in_environment} or parameters.{name} of the model."
        )


def _filled(template: str, settings: Mapping[str, str]) -> str:
    return _SETTING.sub(lambda name: settings[name[1]], template)


def _holds(spec: ModelSpec, credential: Credential) -> bool:
    text = canonical_json(spec.extra_body)
    return Redactor(credential.secrets, names=spec.open_names).redact_answer(text) != text


def _normalised(url: str, who: str, name: str) -> str:
    """A base URL as given, without a trailing slash or the path that we add ourselves."""
    odd = next((at for at, char in enumerate(url, 1) if char.isspace() or not char.isprintable()), None)
    if odd is not None:
        raise UsageError(
            f"{who}: {name} holds a blank or another character that cannot be seen "
            f"(number {odd} of {len(url)}); take it out."
        )
    try:
        parsed = URL(url)
    except ValueError:
        parsed = URL()
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(
            f"{who}: {name} must begin with http:// or https:// and name a host, "
            "with its port as a number if it has one."
        )
    if "#" in url:
        raise UsageError(f"{who}: {name} has a fragment (from # on), which no server is sent; take it out.")
    if parsed.user is not None or parsed.password is not None or "?" in url:
        # A base_url is part of a run's snapshot and of messages; credentials must not be.
        raise UsageError(
            f"{who}: {name} may hold no user name, password or query; "
            f"put the credential into {ACCESS_KEY} or a key file."
        )
    return url.rstrip("/").removesuffix("/chat/completions")


# --- From a base URL to an API's place, in the shape the host's API has
#
# Most hosts are asked at their base URL and their dialect's path. Some are known by an address that says
# more, or less: Azure's portal shows several for one resource, and ``OLLAMA_HOST`` may be a name alone.


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
