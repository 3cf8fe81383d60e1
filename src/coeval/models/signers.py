"""Who asks: the headers that a host knows its users by."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, TypeAlias

from coeval.core.entry_points import loaded
from coeval.core.errors import UsageError
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
    maker = SIGNERS[host.signer] if host.signer in SIGNERS else loaded(host.signer, host.name)
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
    return AwsSigner({}, _auth(fields))


def _auth(fields: Mapping[str, str]) -> Any:
    from botocore.auth import SigV4Auth
    from botocore.credentials import Credentials

    credentials = Credentials(*(fields[name] for name in _PAIR), fields.get("session_token"))
    return SigV4Auth(credentials, _SERVICE, fields["region"])
