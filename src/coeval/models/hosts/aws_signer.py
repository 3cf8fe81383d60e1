"""Who asks Amazon Bedrock: an API key of its own, or IAM credentials by Signature Version 4. The latter sign
for Amazon S3 as well, where batches are kept.

The signature is made by botocore, which is imported where IAM credentials are given: an API key needs none of
AWS's libraries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import Any

from coeval.core.errors import UsageError
from coeval.models.hosts.signers import RequestSigner, Signer
from coeval.models.keys import Credential

__all__ = ["AwsSigner", "aws"]

INSTALL = "pip install '.[bedrock]' in CoEval's folder, or: pip install botocore"
_SERVICE = "bedrock"
_PAIR = ("access_key_id", "secret_access_key")
_CONTENT_TYPE = "application/json"


@dataclass(frozen=True, slots=True)
class AwsSigner(RequestSigner):
    """Signature Version 4; ``auth`` is botocore's, for one account, service and region."""

    auth: Any = field(repr=False)

    def for_s3(self, region: str) -> AwsSigner:
        """Who asks Amazon S3 in a region, for the same account."""
        from botocore.auth import S3SigV4Auth

        return AwsSigner({}, S3SigV4Auth(self.auth.credentials, "s3", region))

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

    Raises
    ------
    UsageError
        half a pair, no region to sign for, or botocore is not installed.
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
