"""Authentication: the headers that tell a host who sends a request."""

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

from coeval.core import errors, foreign
from coeval.core.entry_points import import_object
from coeval.core.redaction import Redactor
from coeval.core.regular_files import read_file_bytes
from coeval.core.shown_url import is_credential_name
from coeval.models.catalog import Host
from coeval.models.keys import Credential


@dataclass(frozen=True)
class Signer:
    """Constant headers that authenticate requests to one endpoint. Its repr shows none. ``supplied_settings``
    are settings of the host that come with the credential; configured ones go first."""

    fixed: Mapping[str, str] = field(repr=False)
    supplied_settings: Mapping[str, str] = field(default_factory=dict, kw_only=True)

    @property
    def missing_credential(self) -> str | None:
        """Return what the user must do to get a credential, as far as can be told offline; else None."""
        return None


class RequestSigner(Signer, ABC):
    """A signer of single requests, by a token that expires or by a signature of the request."""

    @abstractmethod
    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:
        """Return the headers that authenticate one request, besides the fixed ones; ``now`` in seconds since
        1970. Wait for a new token if the old one has expired. Raises ModelError: the credentials are gone."""

    def discard_refused(self, headers: Mapping[str, str]) -> bool:  # noqa: ARG002
        """Discard headers that the host refused with 401; return True if the next ones will differ."""
        return False

    def secret_values(self, headers: Mapping[str, str]) -> Iterable[str]:
        """Return the values to redact from replies: those of headers with a credential's name."""
        return (value for name, value in headers.items() if is_credential_name(name))


SignerMaker: TypeAlias = Callable[[Credential | None], Signer | None]


def make_header_signer(**prefixes: str) -> SignerMaker:
    """Make a signer for a key in headers, each with its prefix (``_`` in a name is ``-``)."""

    def make(credential: Credential | None) -> Signer | None:
        key = credential.api_key if credential is not None else None
        if key is None:
            return None
        return Signer({name.replace("_", "-"): f"{prefix}{key}" for name, prefix in prefixes.items()})

    return make


SIGNERS: Mapping[str, SignerMaker] = MappingProxyType(
    {
        "bearer": make_header_signer(Authorization="Bearer "),
        "api-key": make_header_signer(api_key=""),
        "api-key and bearer": make_header_signer(api_key="", Authorization="Bearer "),
        "x-api-key": make_header_signer(x_api_key=""),
        "x-goog-api-key": make_header_signer(x_goog_api_key=""),
    }
)
"""How a key is shown, by the name that a host's row has for it."""


def make_signer(host: Host, credential: Credential | None) -> Signer | None:
    """Make the signer for a host's requests, or None without a credential. Raises UsageError: another
    package's host names a signer that is missing or not one."""
    maker = SIGNERS[host.signer] if host.signer in SIGNERS else import_object(host.signer, host.name)
    signer = maker(credential) if callable(maker) else maker
    if signer is not None and not isinstance(signer, Signer):
        raise errors.UsageError(f"{host.name}: {host.signer} makes no Signer; reinstall its package")
    return signer


# --- Amazon Bedrock: API key or Signature Version 4
#
# The signature is made by botocore, which is imported where IAM credentials are given: an API key needs none
# of AWS's libraries.

INSTALL = "pip install '.[bedrock]' in CoEval's folder, or: pip install botocore"
_SERVICE = "bedrock"
_PAIR = ("access_key_id", "secret_access_key")
_CONTENT_TYPE = "application/json"


@dataclass(frozen=True)
class AwsSigner(RequestSigner):
    """Signature Version 4; ``auth`` is botocore's, for one account, service and region."""

    auth: Any = field(repr=False)

    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:  # noqa: ARG002
        from botocore.awsrequest import AWSRequest

        request = AWSRequest(method=method, url=url, data=body, headers={"Content-Type": _CONTENT_TYPE})
        self.auth.add_auth(request)
        return dict(request.headers.items())

    def secret_values(self, headers: Mapping[str, str]) -> Iterable[str]:  # noqa: ARG002
        """Return nothing: a signature opens its own request only; the session token is redacted anyway."""
        return ()


def make_aws_signer(credential: Credential | None) -> Signer | None:
    """Make the signer of Bedrock, or None without an API key or a pair of IAM keys. An API key goes first, as
    in AWS's own clients. Raises UsageError: half a pair, no region to sign for, or botocore is not
    installed."""
    if credential is None:
        return None
    fields = credential.fields
    if credential.api_key is not None:
        return Signer({"Authorization": f"Bearer {credential.api_key}"})
    missing = [name for name in _PAIR if name not in fields]
    if len(missing) == len(_PAIR):
        return None
    if missing:
        raise errors.UsageError(
            f"interface bedrock: IAM credentials are a pair, and {missing[0]} was not found."
        )
    if "region" not in fields:
        raise errors.UsageError(
            "interface bedrock needs region and none was found: set `providers.bedrock.region` in a key "
            "file, AWS_REGION or AWS_DEFAULT_REGION in the environment, or parameters.region of the model."
        )
    if find_spec("botocore") is None:
        raise errors.UsageError(
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
_LONGEST_MESSAGE = 300


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


class GoogleSigner(RequestSigner):
    """Signs with the access token of one account (None: google-auth's default), which is renewed while a run
    goes on; requests that wait for a renewal share it."""

    def __init__(self, credentials: _Credentials | None, supplied_settings: Mapping[str, str]) -> None:
        super().__init__({}, supplied_settings=supplied_settings)
        self._credentials = credentials
        self._token: _AccessToken | None = None
        self._renewal: asyncio.Task[_AccessToken] | None = None
        self._tried_at = float("-inf")

    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:  # noqa: ARG002
        headers = {"Authorization": f"Bearer {await self.token(now)}"}
        quota_project = self.quota_project
        return headers if quota_project is None else {**headers, "x-goog-user-project": quota_project}

    async def token(self, now: float) -> str:
        """Return a valid token. One that expires soon is renewed in the background, and its renewal may fail
        as long as the old token is valid. Raises ModelError: there is no valid token, and none can be had."""
        token = self._token
        if token is None or now >= token.expires_at:
            return (await self._await_renewal()).value
        if now >= token.renewed_at and now >= self._tried_at + _TRIED_AGAIN_S:
            self._tried_at = now
            self._start_renewal()
        return token.value

    def discard_refused(self, headers: Mapping[str, str]) -> bool:
        """Discard a token that the host refused, whatever its expiry says."""
        if self._token is not None and f"Bearer {self._token.value}" == headers["Authorization"]:
            self._token = None
        return True

    @property
    def missing_credential(self) -> str | None:
        """Return what the user must do if credentials seem to be missing; else None."""
        return None if self._credentials is not None or _has_default_credentials() else _NO_CREDENTIALS

    @property
    def quota_project(self) -> str | None:
        return getattr(self._credentials, "quota_project_id", None)

    async def _await_renewal(self) -> _AccessToken:
        """Wait for the running renewal, or a new one. A cancelled waiter leaves it to the others; each gets
        an error object of its own, as callers add to it."""
        try:
            return await asyncio.shield(self._start_renewal())
        except errors.ModelError as error:
            raise type(error)(str(error)) from None

    def _start_renewal(self) -> asyncio.Task[_AccessToken]:
        if self._renewal is None or self._renewal.done():
            self._renewal = asyncio.create_task(self._renew())
            self._renewal.add_done_callback(_retrieve_error)
        return self._renewal

    async def _renew(self) -> _AccessToken:
        self._token = await asyncio.to_thread(self._fetch)
        return self._token

    def _fetch(self) -> _AccessToken:
        """Request a token, in a thread. Foreign errors, which may hold what was sent, become ours."""
        import google.auth
        from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError, TransportError

        try:
            if self._credentials is None:
                self._credentials, _ = google.auth.default(scopes=[_SCOPE])
            return _fetch_token(self._credentials)
        except DefaultCredentialsError:
            raise errors.AccessDenied(_NO_CREDENTIALS) from None
        except TransportError as error:
            raise errors.ConnectionFailed(f"no access token: {_redact_message(error)}") from None
        except GoogleAuthError as error:
            if error.retryable:
                raise errors.ServerFault(f"no access token: {_redact_message(error)}") from None
            raise errors.AccessDenied(
                f"no access token: {_redact_message(error)}; check the service account's key, or renew your "
                f"own credentials with `{_LOGIN}`"
            ) from None


def _fetch_token(credentials: _Credentials) -> _AccessToken:
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


def _retrieve_error(renewal: asyncio.Task[_AccessToken]) -> None:
    """Retrieve a renewal's error, so that the event loop does not warn if nobody waits for it any more."""
    if not renewal.cancelled():
        renewal.exception()


def _redact_message(error: Exception) -> str:
    """Return google-auth's message in one line, redacted: a token endpoint may repeat what it was sent."""
    said = Redactor().redact_message(" ".join(str(error.args[0] if error.args else error).split()))
    return said if len(said) <= _LONGEST_MESSAGE else f"{said[:_LONGEST_MESSAGE]}…"


def make_google_signer(credential: Credential | None) -> Signer:
    """Make the signer of Vertex AI: with a given access token (the model's ``access_key``), else a service
    account's key, else the application default credentials. The account's project is the default project.
    Raises UsageError: google-auth is not installed, or the key file holds no credentials."""
    if credential is not None and credential.api_key is not None:
        return Signer({"Authorization": f"Bearer {credential.api_key}"})
    if not all(find_spec(name) is not None for name in ("google", "requests", "google.auth")):
        raise errors.UsageError(
            f"interface vertex needs google-auth and requests. Install them:\n  {GOOGLE_INSTALL}"
        )
    key_path = credential.fields.get("service_account_key") if credential is not None else None
    if key_path is None:
        return GoogleSigner(None, {})
    account = _read_service_account(Path(key_path).expanduser())
    project = account.get("project_id") or account.get("quota_project_id")
    supplied_settings = {"project": project} if isinstance(project, str) and project else {}
    return GoogleSigner(_parse_unless_default_credentials(account, key_path), supplied_settings)


def _has_default_credentials() -> bool:
    """Check for application default credentials as google-auth does, but without its network request."""
    if os.environ.get(_VARIABLE):
        return True
    folder = Path(os.environ.get("CLOUDSDK_CONFIG") or "~/.config/gcloud").expanduser()
    return (folder / "application_default_credentials.json").is_file() or _is_google_machine()


def _is_google_machine() -> bool:
    if os.environ.get("NO_GCE_CHECK") == "true":  # google-auth's own switch
        return False
    if os.environ.get("K_SERVICE") or os.environ.get("GCE_METADATA_HOST"):
        return True
    try:
        return _PRODUCT_NAME.read_text().startswith("Google")
    except OSError:
        return False


def _read_service_account(path: Path) -> dict[str, Any]:
    try:
        return foreign.decode(read_file_bytes(path), dict[str, Any])
    except OSError as error:
        raise errors.UsageError(
            f"{path}, a service account's key, cannot be read: {error.strerror}."
        ) from error
    except errors.Undecodable:  # which may quote the file
        raise errors.UsageError(f"{path} is not a service account key: it is not a JSON object.") from None


# Kinds of files, each with the class of google-auth that reads it and by which method.
_READERS = {
    "service_account": ("google.oauth2.service_account", "from_service_account_info"),
    "authorized_user": ("google.oauth2.credentials", "from_authorized_user_info"),
}


def _parse_unless_default_credentials(account: Mapping[str, Any], key_path: str) -> _Credentials | None:
    """Parse credentials; None leaves it to google-auth, which reads the same file (`google.auth.default`)."""
    if (reader := _READERS.get(str(account.get("type")))) is not None:
        module, method = reader
        try:
            credentials: _Credentials = getattr(import_module(module).Credentials, method)(
                account, scopes=[_SCOPE]
            )
        except (ValueError, KeyError):  # google-auth's MalformedError is a ValueError; it may quote the key
            raise errors.UsageError(
                f"{key_path} holds no key that can be used; make a new one and fetch it."
            ) from None
        return credentials
    if os.environ.get(_VARIABLE) == key_path:
        return None
    raise errors.UsageError(
        f"{key_path} is neither a service account's key nor a user's credentials; other kinds (workload "
        f"identity, impersonation) are taken from {_VARIABLE}."
    )
