"""Who asks: a token made of the key and the time, good for one period of the clock.

Nothing else has to be done to keep it secret: what a signer shows under the name of a credential is taken
out of all that the host says.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from coeval.core.errors import UsageError
from coeval.models.keys import Credential
from coeval.models.signers import RequestSigner

__all__ = ["RotatingToken", "rotating_token", "token_at"]

PERIOD_S = 60.0


def token_at(key: str, now: float, period_s: float) -> str:
    """The token of the period in which ``now`` (seconds since 1970) lies: 64 hex digits."""
    return hmac.new(key.encode(), str(int(now // period_s)).encode(), "sha256").hexdigest()


@dataclass(frozen=True, slots=True)
class RotatingToken(RequestSigner):
    key: str = field(repr=False)
    period_s: float

    async def headers(self, method: str, url: str, body: bytes | None, now: float) -> Mapping[str, str]:  # noqa: ARG002
        return {"X-Parley-Token": token_at(self.key, now, self.period_s)}


def rotating_token(credential: Credential | None) -> RotatingToken | None:
    """What the host's row names as its signer; ``fields`` are the key and the row's ``settings``."""
    if credential is None or credential.api_key is None:
        return None
    given = credential.fields.get("period_s", str(PERIOD_S))
    try:
        period_s = float(given)
    except ValueError:
        period_s = 0.0
    if not period_s > 0:
        raise UsageError(f"PARLEY_PERIOD_S is {given}; it is a number of seconds above 0")
    return RotatingToken(fixed={}, key=credential.api_key, period_s=period_s)
