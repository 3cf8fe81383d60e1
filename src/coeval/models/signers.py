"""Who asks: the headers that a host knows its users by."""

from __future__ import annotations

import asyncio
import os
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol, TypeAlias

from coeval.core import foreign
from coeval.core.entry_points import import_object
from coeval.core.errors import (
    AccessDenied,
    ConnectionFailed,
    ModelError,
    ServerFault,
    Undecodable,
    UsageError,
)
from coeval.core.redaction import Redactor
from coeval.core.regular_files import read_file_bytes
from coeval.core.shown_url import is_credential_name
from coeval.models.catalog import Host
from coeval.models.keys import Credential


@dataclass(frozen=True, slots=True)
class Signer:
    """Shows who asks at one endpoint: ``fixed`` headers, the same in every request. Its repr shows none.

    ``brings`` are settings of the host that come with the credential, for where nobody set them.
    """

    fixed: Mapping[str, str] = field(repr=False)
    brings: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def lacks(self) -> str | None:
        """What has to be done before there is a credential to show, in a sentence, as far as that can be told
        without asking anybody; None where nothing has."""
        return None


class RequestSigner(Signer, ABC):
    """Signs each request by itself: it shows a token that expires, or a signature of the request."""

    @abstractmethod
    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:
        """The headers of one request beside the fixed ones; ``now`` in seconds since 1970. A token that is
        about to expire is renewed here: whoever asks waits for it.

        Raises ModelError: there are no credentials to sign with any more.
        """

    def refused(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Take it that the host answered these headers with 401; whether the next ones will be others."""
        return False

    def shown(self, headers: Mapping[str, str]) -> Iterable[str]:
        """What of these headers is taken out of all that the host says: all that have the name of a
        credential."""
        return (value for name, value in headers.items() if is_credential_name(name))


SignerMaker: TypeAlias = Callable[[Credential | None], Signer | None]


def _in_headers(**before: str) -> SignerMaker:
    """A key in headers: what stands before it in each; ``_`` in their names is ``-``."""

    def maker(credential: Credential | None) -> Signer | None:
        key = credential.api_key if credential is not None else None
        if key is None:
            return None
        return Signer({name.replace("_", "-"): f"{words}{key}" for name, words in before.items()})

    return maker


SIGNERS: Mapping[str, SignerMaker] = MappingProxyType(
    {
        "bearer": _in_headers(Authorization="Bearer "),
        "api-key": _in_headers(api_key=""),
        "api-key and bearer": _in_headers(api_key="", Authorization="Bearer "),
        "x-api-key": _in_headers(x_api_key=""),
        "x-goog-api-key": _in_headers(x_goog_api_key=""),
    }
)
"""How a key is shown, by the name that a host's row has for it."""


def signer_of(host: Host, credential: Credential | None) -> Signer | None:
    """Who signs what a host is sent; None where there is nothing to show.

    Raises UsageError: a host of another package names a signer that is not there, or is none.
    """
    maker = SIGNERS[host.signer] if host.signer in SIGNERS else import_object(host.signer, host.name)
    signer = maker(credential) if callable(maker) else maker
    if signer is not None and not isinstance(signer, Signer):
        raise UsageError(f"{host.name}: {host.signer} makes no Signer; reinstall its package")
    return signer


# --- Amazon Bedrock: API key or Signature Version 4
#
# The signature is made by botocore, which is imported where IAM credentials are given: an API key needs none
# of AWS's libraries.

INSTALL = "pip install '.[bedrock]' in CoEval's folder, or: pip install botocore"
_SERVICE = "bedrock"
_PAIR = ("access_key_id", "secret_access_key")
_CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class AwsSigner(RequestSigner):
    """Signature Version 4; ``auth`` is botocore's, for one account, service and region."""

    auth: Any = field(repr=False)

    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:  # noqa: ARG002
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method=method, url=url, data=body, headers={"Content-Type": _CONTENT_TYPE})
        self.auth.add_auth(request)
        return dict(request.headers.items())

    def shown(self, headers: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        """Nothing new: a signature opens nothing but its own request, and the session token is known."""
        return ()


def aws(credential: Credential | None) -> Signer | None:
    """The signer of Bedrock; None where there is neither an API key nor a pair of IAM keys. An API key goes
    first, as it does for AWS's own clients.

    Raises UsageError: half a pair, no region to sign for, or botocore is not installed.
    """
    if credential is None:
        return None
    fields = credential.fields
    if credential.api_key is not None:
        return Signer({"Authorization": f"Bearer {credential.api_key}"})
    missing = [name for name in _PAIR if name not in fields]
    if len(missing) == len(_PAIR):
        return None
    if missing:
        raise UsageError(f"interface bedrock: IAM credentials are a pair, and {missing[0]} was not found.")
    if "region" not in fields:
        raise UsageError(
            "interface bedrock needs region and none was found: set `providers.bedrock.region` in a key "
            "file, AWS_REGION or AWS_DEFAULT_REGION in the environment, or parameters.region of the model."
        )
    if find_spec("botocore") is None:
        raise UsageError(
            f"interface bedrock needs botocore to sign with IAM credentials. Install it:\n  {INSTALL}\n"
            "or use an API key of Bedrock (`providers.bedrock.api_key`, AWS_BEARER_TOKEN_BEDROCK)."
        )
    from botocore.auth import SigV4Auth
    from botocore.credentials import Credentials

    credentials = Credentials(*(fields[name] for name in _PAIR), fields.get("session_token"))
    return AwsSigner({}, SigV4Auth(credentials, _SERVICE, fields["region"]))


# --- Google Cloud: an access token, renewed while a run goes on
#
# `google-auth` makes it, from a service account's key or from the application default credentials. It is
# imported when an interface needs it, and talks to the token endpoint in a thread, so that the event loop
# stays free.

GOOGLE_INSTALL = "pip install '.[vertex]' in CoEval's folder, or: pip install google-auth requests"
_LOGIN = "gcloud auth application-default login"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"
_NO_CREDENTIALS = (
    "no credentials of Google Cloud were found: set `providers.vertex.service_account_key` in a "
    f"key file or {_VARIABLE} to a service account's key, or run `{_LOGIN}`"
)
# What Linux knows of the machine that it runs on.
_PRODUCT_NAME = Path("/sys/class/dmi/id/product_name")
# A token takes well under a second, and requests wait for it.
_TOKEN_TIMEOUT_S = 20.0
# A token is renewed so long before it expires, or in the last fifth of its life if that is shorter.
_RENEWED_BEFORE_S = 300.0
# Seconds between two renewals of a token that is still good: the endpoint may be away.
_TRIED_AGAIN_S = 5.0
# google-auth repeats whole answers in its errors; their first line says what is wrong.
_MOST_WORDS = 300


class _Credentials(Protocol):
    """What is used of google-auth's credentials, which have no types."""

    token: str | None
    expiry: datetime | None

    def refresh(self, request: Any, /) -> None: ...


class _AccessToken(NamedTuple):
    """Times are seconds since 1970."""

    value: str
    renewed_at: float
    expires_at: float


class AccessTokens:
    """The tokens of one account: the one in force, and its renewal, which all who wait for it share."""

    def __init__(self, credentials: _Credentials | None) -> None:
        self._credentials = credentials
        self._token: _AccessToken | None = None
        self._renewal: asyncio.Task[_AccessToken] | None = None
        self._tried_at = float("-inf")

    async def token(self, now: float) -> str:
        """A token that is good now. One that is about to expire is renewed meanwhile: nobody waits for that,
        and a renewal that fails is no matter as long as the old one is good.

        Raises ModelError: there is none and none is to be had.
        """
        token = self._token
        if token is None or now >= token.expires_at:
            return (await self._renewed()).value
        if now >= token.renewed_at and now >= self._tried_at + _TRIED_AGAIN_S:
            self._tried_at = now
            self._renewing()
        return token.value

    def refused(self, token: str) -> None:
        """Renew a token that the host does not take, whatever was said of its life."""
        if self._token is not None and self._token.value == token:
            self._token = None

    @property
    def lack(self) -> str | None:
        """What to do for there to be credentials, where as far as it shows there are none."""
        return None if self._credentials is not None or _has_defaults() else _NO_CREDENTIALS

    @property
    def billed_to(self) -> str | None:
        """The project that a user's credentials name for quotas."""
        return getattr(self._credentials, "quota_project_id", None)

    async def _renewed(self) -> _AccessToken:
        """The renewal that is under way, else a new one; who is cancelled while waiting leaves it to the
        others, and each has an error of its own, as more is said in it of every request."""
        try:
            return await asyncio.shield(self._renewing())
        except ModelError as error:
            raise type(error)(str(error)) from None

    def _renewing(self) -> asyncio.Task[_AccessToken]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(_heard)
        return self._renewal

    async def _renew(self) -> _AccessToken:
        self._token = await asyncio.to_thread(self._fetch)
        return self._token

    def _fetch(self) -> _AccessToken:
        """Ask the token endpoint; in a thread. Foreign errors become ours here, and are left behind: they may
        hold what the endpoint was sent."""
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError

        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=[_SCOPE])
            return _fetched(self._credentials)
        except DefaultCredentialsError:
            raise AccessDenied(_NO_CREDENTIALS) from None
        except TransportError as error:
            raise ConnectionFailed(f"no access token: {_words(error)}") from None
        except GoogleAuthError as error:
            if error.retryable:
                raise ServerFault(f"no access token: {_words(error)}") from None
            raise AccessDenied(
                f"no access token: {_words(error)}; check the service account's key, or renew your own "
                f"credentials with `{_LOGIN}`"
            ) from None


def _fetched(credentials: _Credentials) -> _AccessToken:
    from google.auth.transport.requests import Request

    http = Request()

    def request(url: str, **how: Any) -> Any:
        return http(url, **{**how, "timeout": _TOKEN_TIMEOUT_S})

    requested_at = time.time()
    credentials.refresh(request)
    expiry = credentials.expiry  # UTC, without saying so; None: it does not expire
    expires_at = expiry.replace(tzinfo=UTC).timestamp() if expiry is not None else float("inf")
    renewed_at = expires_at - min(_RENEWED_BEFORE_S, max(0.0, expires_at - requested_at) / 5)
    return _AccessToken(str(credentials.token), renewed_at, expires_at)


def _heard(renewal: asyncio.Task[_AccessToken]) -> None:
    """An error that nobody waits for any more is no warning of the event loop's."""
    if not renewal.cancelled():
        renewal.exception()


def _words(error: Exception) -> str:
    """What went wrong, as google-auth says it, in one line; a token endpoint may repeat what it was sent."""
    said = Redactor().redact_message(" ".join(str(error.args[0] if error.args else error).split()))
    return said if len(said) <= _MOST_WORDS else f"{said[:_MOST_WORDS]}…"


@dataclass(frozen=True, slots=True)
class GoogleSigner(RequestSigner):
    tokens: AccessTokens = field(repr=False)

    @property
    def lacks(self) -> str | None:
        return self.tokens.lack

    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:  # noqa: ARG002
        shown = {"Authorization": f"Bearer {await self.tokens.token(now)}"}
        billed_to = self.tokens.billed_to
        return shown if billed_to is None else {**shown, "x-goog-user-project": billed_to}

    def refused(self, headers: Mapping[str, str]) -> bool:
        self.tokens.refused(headers["Authorization"].removeprefix("Bearer "))
        return True


def google_cloud(credential: Credential | None) -> Signer:
    """The signer of Vertex AI: an access token that is given (as the model's ``access_key``), else a service
    account's key, else the application default credentials. The account's project is the one that is asked
    where no other is set.

    Raises UsageError: google-auth is not installed, or the file that is named holds no credentials.
    """
    if credential is not None and credential.api_key is not None:
        return Signer({"Authorization": f"Bearer {credential.api_key}"})
    if not all(find_spec(name) is not None for name in ("google", "requests", "google.auth")):
        raise UsageError(
            f"interface vertex needs google-auth and requests. Install them:\n  {GOOGLE_INSTALL}"
        )
    named = credential.fields.get("service_account_key") if credential is not None else None
    if named is None:
        return GoogleSigner({}, AccessTokens(None))
    account = _read(Path(named).expanduser())
    project = account.get("project_id") or account.get("quota_project_id")
    brings = {"project": project} if isinstance(project, str) and project else {}
    return GoogleSigner({}, AccessTokens(_of_file(account, named)), brings=brings)


def _has_defaults() -> bool:
    """Whether google-auth will find application default credentials: a file of them, or those of a machine of
    Google's. It finds out itself when it is asked for some, over the network."""
    if os.environ.get(_VARIABLE):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    return (folder / "application_default_credentials.json").is_file() or _is_machine_of_google()


def _is_machine_of_google() -> bool:
    if os.environ.get("NO_GCE_CHECK") == "true":  # google-auth's own switch
        return False
    if os.environ.get("K_SERVICE") or os.environ.get("GCE_METADATA_HOST"):
        return True
    try:
        return _PRODUCT_NAME.read_text().startswith("Google")
    except OSError:
        return False


def _read(path: Path) -> dict[str, Any]:
    try:
        return foreign.decode(read_file_bytes(path), dict[str, Any])
    except OSError as error:
        raise UsageError(f"{path}, a service account's key, cannot be read: {error.strerror}.") from error
    except Undecodable:  # which may quote the file
        raise UsageError(f"{path} is no key of a service account: it is not a JSON object.") from None


# Kinds of files, each with the class of google-auth that reads it and by which method.
_READERS = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
}


def _of_file(account: Mapping[str, Any], named: str) -> _Credentials | None:
    """None leaves it to google-auth, which reads the same file: see `google.auth.default`."""
    if (reader := _READERS.get(str(account.get("type")))) is not None:
        module, method = reader
        try:
            made: _Credentials = getattr(import_module(module).Credentials, method)(account, scopes=[_SCOPE])
        except (ValueError, KeyError):  # google-auth's MalformedError is a ValueError; it may quote the key
            raise UsageError(f"{named} holds no key that can be used; make a new one and fetch it.") from None
        return made
    if os.environ.get(_VARIABLE) == named:
        return None
    raise UsageError(
        f"{named} is neither a service account's key nor a user's credentials; other kinds (workload "
        f"identity, impersonation) are taken from {_VARIABLE}."
    )
