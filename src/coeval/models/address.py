"""A model's URL, credential and settings: its host's row, completed by the user's settings."""

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
from coeval.models.signers import Signer, make_signer

# --- Dialects by name

# Dialect names of hosts that speak OpenAI's chat completions once they have a URL.
_OPENAI_SHAPED = frozenset({"openai_chat", "local", "simulated", "benchmark"})
# Imported at first use, as dialects of other packages are.
_OURS = "coeval.models.dialects"
_DIALECTS: Mapping[str, str] = MappingProxyType(
    {
        "anthropic": f"{_OURS}.anthropic_messages:ANTHROPIC",
        "bedrock": f"{_OURS}.bedrock:BEDROCK",
        "cohere": f"{_OURS}.cohere:COHERE",
        "gemini": f"{_OURS}.gemini:GEMINI",
    }
)


def load_dialect(host: Host) -> Dialect:
    """Load the dialect of a host that is called over HTTP. Models of this process have OpenAI's if the user
    names an OpenAI-shaped address that serves them. Raises UsageError: the host's row names no `Dialect`."""
    if host.dialect in _OPENAI_SHAPED:
        return OPENAI_CHAT
    import_path = _DIALECTS.get(host.dialect, host.dialect)
    dialect = import_object(import_path, host.name) if ":" in import_path else None
    if not isinstance(dialect, Dialect) or isinstance(dialect, type):
        raise UsageError(f"{host.name}: {host.dialect} is not a Dialect; reinstall its package")
    return dialect


EndpointKey: TypeAlias = tuple[str, str, tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]
"""Base URL, signer, headers and credential fields: two accounts at one host are two endpoints."""

_SETTING = re.compile(r"\{(\w+)\}")


class ModelAddress(NamedTuple):
    """Where requests for a model go, and with which credential. ``path`` is appended to the base ``url``. A
    missing one of the host's ``settings`` raises the UsageError that says where to set it."""

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
        """Return the identity of the endpoint. Settings of batch storage make no other endpoint."""
        own_fields = self.credential.fields if self.credential is not None else {}
        fields = {name: value for name, value in own_fields.items() if not name.startswith("batch_")}
        headers = tuple(sorted(self.host.headers.items()))
        return self.url, self.host.signer, headers, tuple(sorted(fields.items()))

    @property
    def secrets(self) -> tuple[str, ...]:
        return self.credential.secrets if self.credential is not None else ()


def resolve_address(spec: ModelSpec, host: Host, keys: Keys) -> ModelAddress:
    """Resolve a hosted model's URL, credential and settings. Raises UsageError: a key, a setting or a usable
    URL is missing, or the request body would hold the key."""
    who = f'interface "{spec.interface}" (model {spec.name})'
    try:
        credential = keys.credential(spec.interface, spec.access_key, spec.account)
    except UsageError as error:
        raise UsageError(f"{who}: {error}") from None
    credential = _override_by_options(credential, spec, host)
    signer = make_signer(host, credential)
    if signer is None and host.needs_key and spec.base_url is None:
        raise UsageError(f"{who} needs a key and none was found. {keys.describe_places(spec.interface)}")
    if credential is not None and _is_key_in_body(spec, credential):
        raise UsageError(
            f"{who}: parameters.extra_body holds the model's key, which would be kept with the results; "
            "remove it; the key is sent anyway."
        )
    settings = _Settings(_merge_settings(host, credential, signer), host, who)
    dialect = load_dialect(host)
    url, path = _find_base_url_and_path(spec, host, dialect, settings)
    return ModelAddress(spec, host, dialect, url, path, credential, signer, settings)


def _find_base_url_and_path(spec: ModelSpec, host: Host, dialect: Dialect, settings: _Settings) -> ApiPlace:
    """Return the base URL (the model's own, else the host row's) and the API's path below it."""
    name = str(BASE_URL)
    if spec.base_url is None and (names := _SETTING.findall(host.url)):
        name = f"its {' and '.join(names)}"
    url = spec.base_url if spec.base_url is not None else _fill_template(host.url, settings)
    if not host.placed:
        return ApiPlace(_check_and_trim_base_url(url, settings.who, name), dialect.path(spec))
    locate = _LOCATORS.get(host.placed) or import_object(host.placed, host.name)
    try:
        api_place = locate(ConfiguredAddress(url, settings, spec.model))
    except ValueError:
        api_place = ApiPlace(url, "")  # `_check_and_trim_base_url` says what is wrong with it
    return api_place._replace(url=_check_and_trim_base_url(api_place.url, settings.who, name))


def _override_by_options(credential: Credential | None, spec: ModelSpec, host: Host) -> Credential | None:
    """Replace settings of a credential by the model's own: a request is signed for the region it goes to."""
    own = {name: str(value) for name, value in spec.options.items() if name in host.places}
    if not own:
        return credential
    return Credential({**(credential.fields if credential is not None else {}), **own})


def _merge_settings(host: Host, credential: Credential | None, signer: Signer | None) -> dict[str, str]:
    """Merge a host's settings: configured ones before the signer's (a project, say) before defaults."""
    own_fields = credential.fields if credential is not None else {}
    supplied = signer.supplied_settings if signer is not None else {}
    return {
        **host.defaults,
        **supplied,
        **{name: own_fields[name] for name in host.places if name in own_fields},
    }


class _Settings(dict[str, str]):
    """A host's settings by name; a missing one raises the UsageError that says where to set it."""

    def __init__(self, settings: Mapping[str, str], host: Host, who: str) -> None:
        super().__init__(settings)
        self._host = host
        self.who = who

    def __missing__(self, name: str) -> str:
        variables = " or ".join(self._host.settings.get(name, ()))
        in_environment = f", {variables} in the environment," if variables else ""
        raise UsageError(
            f"{self.who} needs {name} and none was found: set `providers.{self._host.name}.{name}` in a key "
            f"file{in_environment} or parameters.{name} of the model."
        )


def _fill_template(template: str, settings: Mapping[str, str]) -> str:
    return _SETTING.sub(lambda name: settings[name[1]], template)


def _is_key_in_body(spec: ModelSpec, credential: Credential) -> bool:
    text = canonical_json(spec.extra_body)
    return Redactor(credential.secrets, names=spec.open_names).redact_answer(text) != text


def _check_and_trim_base_url(url: str, who: str, name: str) -> str:
    """Return a base URL without a trailing slash or the path that requests append. Raises UsageError: it is
    no HTTP URL, or holds a credential, a query, a fragment or invisible characters."""
    position = next(
        (index for index, char in enumerate(url, 1) if char.isspace() or not char.isprintable()), None
    )
    if position is not None:
        raise UsageError(
            f"{who}: {name} holds a blank or an invisible character "
            f"(number {position} of {len(url)}); take it out."
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
        raise UsageError(f"{who}: {name} has a fragment (from #), which no server receives; remove it.")
    if parsed.user is not None or parsed.password is not None or "?" in url:
        # A base_url is part of a run's snapshot and of messages; credentials must not be.
        raise UsageError(
            f"{who}: {name} may hold no user name, password or query; "
            f"put the credential into {ACCESS_KEY} or a key file."
        )
    return url.rstrip("/").removesuffix("/chat/completions")


# --- From a configured base URL to the API's URL and path
#
# Most hosts serve their API at the base URL and the dialect's path. For some, users copy an address that
# says more, or less: Azure's portal shows several for one resource, ``OLLAMA_HOST`` may be a host name alone.


class ConfiguredAddress(NamedTuple):
    """A base URL as the user wrote it, the host's settings and the model's id. A missing ``settings[name]``
    raises the UsageError that says where to set it."""

    url: str
    settings: Mapping[str, str]
    model: str


class ApiPlace(NamedTuple):
    """The base URL of a model's API, and the quoted path appended to it."""

    url: str
    path: str


ApiLocator: TypeAlias = Callable[[ConfiguredAddress], ApiPlace]
"""Invalid URLs need no check: `resolve_address` refuses them in what a locator returns."""


# --- Google's places: Gemini API and Vertex AI

_VERSION = re.compile(r"[^/]/v\d")
_FULL_NAME = re.compile(r"projects/[^/]+/locations/([^/]+)/")
_GOOGLE_EVERYWHERE = "global"
_VERTEX = "aiplatform.googleapis.com"
_MULTI_REGIONS = ("eu", "us")


def locate_gemini(base: ConfiguredAddress) -> ApiPlace:
    """Locate the Gemini API. A base URL may omit the version, or end in `/openai`."""
    address = base.url.rstrip("/").removesuffix("/openai")
    return ApiPlace(_append_version(address, "v1beta"), generate_path(base.model))


def locate_vertex(base: ConfiguredAddress) -> ApiPlace:
    """Locate a model of Vertex AI, named by its id (Google's own), as ``publisher/id`` or
    ``endpoints/NUMBER`` (a tuned or deployed model), or by its full name, which includes project and
    location."""
    name = expand_vertex_name(base.settings, base.model)
    location = name.split("/")[3]
    url = base.url.rstrip("/")
    if URL(url).host == _VERTEX and location != _GOOGLE_EVERYWHERE:
        regional = f"aiplatform.{location}.rep.googleapis.com"
        url = str(URL(url).with_host(regional if location in _MULTI_REGIONS else f"{location}-{_VERTEX}"))
    return ApiPlace(_append_version(url, "v1"), generate_path(name))


def expand_vertex_name(settings: Mapping[str, str], model: str) -> str:
    """Return a Vertex AI model's full name, ``projects/…/locations/…/…``."""
    full = _FULL_NAME.match(model)
    location = _check_location(full[1] if full else settings["location"])
    return (
        model
        if full
        else f"projects/{settings['project']}/locations/{location}/{_name_below_location(model)}"
    )


def _check_location(location: str) -> str:
    if not re.fullmatch(r"[a-z0-9-]+", location):
        raise UsageError(
            f"`{location}` is not a location of Vertex AI; it reads like `global` or `us-central1` "
            "(`providers.vertex.location`, GOOGLE_CLOUD_LOCATION or parameters.location)."
        )
    return location


def _name_below_location(model: str) -> str:
    """Return the part of a Vertex AI model's name below project and location."""
    name = model.removeprefix("models/")
    if name.startswith(("publishers/", "endpoints/")):
        return name
    publisher, _, name = name.rpartition("/")
    return f"publishers/{publisher or 'google'}/models/{name}"


def _append_version(url: str, version: str) -> str:
    address = url.rstrip("/")
    return address if _VERSION.search(address) else f"{address}/{version}"


_CHAT = "/chat/completions"
_DEPLOYMENT = re.compile(r"/openai(/deployments/[^/]*)?$")
# Versions of Azure OpenAI's API that have no date; `v1` is asked where none is named.
_UNDATED = ("", "v1", "preview", "latest")
_AI_VERSION = "2024-05-01-preview"
_SERVERLESS = (".models.ai.azure.com", ".inference.ai.azure.com", ".inference.ml.azure.com")
# Where `ollama serve` listens unless ``OLLAMA_HOST`` says otherwise.
_OLLAMA_PORT = 11434
_HERE = "127.0.0.1"
_EVERYWHERE = "0.0.0.0"  # noqa: S104  what a server listens at is not an address to ask, and nothing is bound


def locate_azure_openai(base: ConfiguredAddress) -> ApiPlace:
    """Locate a deployment of Azure OpenAI. An ``api_version`` with a date selects
    ``/openai/deployments/{model}/chat/completions``. Without one, with ``v1``, ``preview`` or ``latest``, or
    if the endpoint ends in ``/v1``, it is the newer API, which is OpenAI's. The target URI that the portal
    shows is accepted too; the model replaces its deployment."""
    address, url_version = _split_off_api_version(base.url)
    version = base.settings.get("api_version", url_version)
    resource = _DEPLOYMENT.sub("", address)
    if not address.endswith("/v1"):
        if version not in _UNDATED:
            deployment = f"/openai/deployments/{quote(base.model, safe='')}"
            return ApiPlace(resource, deployment + _CHAT + _format_api_version(version))
        address = f"{resource}/openai/v1"
    named = version in _UNDATED and version not in ("", "v1")
    return ApiPlace(address, _CHAT + (_format_api_version(version) if named else ""))


def locate_azure_ai(base: ConfiguredAddress) -> ApiPlace:
    """Locate a model of Azure AI Foundry: below ``/models``, or at the endpoint itself if that ends in
    ``/v1`` or serves a single model."""
    address, url_version = _split_off_api_version(base.url)
    if address.endswith("/v1"):
        return ApiPlace(address, _CHAT)
    single = (URL(address).host or "").endswith(_SERVERLESS)
    below = address if single or address.endswith("/models") else f"{address}/models"
    version = base.settings.get("api_version") or url_version or _AI_VERSION
    return ApiPlace(below, _CHAT + _format_api_version(version))


def make_default_path_locator(default_path: str) -> ApiLocator:
    """Make a locator for a host whose own client adds ``default_path`` to a bare host name."""

    def locate_with_default_path(base: ConfiguredAddress) -> ApiPlace:
        address = URL(base.url)
        if not address.path.strip("/"):
            address = address.with_path(default_path, keep_query=True, keep_fragment=True)
        return ApiPlace(str(address), _CHAT)

    return locate_with_default_path


def make_path_locator(path: str, ending: str) -> ApiLocator:
    """Make a locator of ``path`` below a base URL that may end in what the pattern ``ending`` matches."""
    return lambda base: ApiPlace(re.sub(f"(?:{ending})$", "", base.url.rstrip("/")), path)


def locate_ollama(base: ConfiguredAddress) -> ApiPlace:
    """Locate Ollama as ``OLLAMA_HOST`` does: scheme, host, port and ``/v1`` may be missing."""
    scheme, separator, rest = base.url.strip().rpartition("://")
    if rest.startswith(":"):
        rest = _HERE + rest
    address = URL(f"{scheme or 'http'}://{rest}")
    if address.host == _EVERYWHERE:
        address = address.with_host(_HERE)
    if not separator and address.explicit_port is None:
        address = address.with_port(_OLLAMA_PORT)
    if not address.path.strip("/"):
        address = address.with_path("/v1", keep_query=True, keep_fragment=True)
    return ApiPlace(str(address), _CHAT)


def _split_off_api_version(url: str) -> tuple[str, str]:
    """Split an Azure URL into the address, without ``/chat/completions``, and its ``api-version``."""
    address, _, query = url.partition("?")
    parameters = parse_qs(query, keep_blank_values=True)
    version = parameters.pop("api-version", [""])[0]
    if parameters:
        address = url  # refused, as a query may hold a credential
    return address.rstrip("/").removesuffix(_CHAT), version


def _format_api_version(version: str) -> str:
    return f"?api-version={quote(version, safe='')}"


_LOCATORS: Mapping[str, ApiLocator] = MappingProxyType(
    {
        "anthropic": make_path_locator("/v1/messages", "(/v1)?(/messages)?"),  # as its own clients do
        "azure_openai": locate_azure_openai,
        "azure_ai": locate_azure_ai,
        "below /v1": make_default_path_locator("/v1"),
        "below /openai/v1": make_default_path_locator("/openai/v1"),
        "cohere": make_path_locator("/v2/chat", "(/compatibility)?/v[12](/chat)?"),
        "gemini": locate_gemini,
        "ollama": locate_ollama,
        "vertex": locate_vertex,
    }
)
"""By `Host.placed`."""
