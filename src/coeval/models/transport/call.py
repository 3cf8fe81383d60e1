"""One thing to ask of a host, and what came of it: what dialects and `models.http` hand each other."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, NamedTuple, TypeVar

from coeval.core.errors import CoevalError, ModelError
from coeval.core.secrets.redaction import Redactor
from coeval.models.connections.reply_parser import HttpReply
from coeval.models.pacing.limits import Lane, unrefused

__all__ = ["PROBE_TIMEOUT_S", "Answered", "Call"]

PROBE_TIMEOUT_S = 60.0
"""A probe waits no longer for its token, whatever ``timeout_s`` allows."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """What a dialect knows of a request.

    Attributes
    ----------
    decode:
        the value of a 2xx body, without the credentials that the redactor knows. Undecodable means that
        it is no answer, which is asked for once more; a ModelError is taken as it is.
    explain:
        the dialect's reading of an answer that is an error; None leaves it to the status alone. What it
        quotes has passed the redactor before anything was cut off it.
    timeout_s:
        for one attempt, from sending to the last byte.
    probe:
        it only finds out whether anybody answers: one that has met with silence is not sent again.
    rank:
        which waiting requests go first: larger before smaller.
    permit:
        called once per request, just before it is sent; raises QuotaExhausted or ModelStopped. Where it
        returns something, there is no money for the request as yet: that is awaited, without a slot, before
        it is called again.
    unsent:
        called where that request was not sent after all, because there was no connection.
    unbilled:
        called where that request was answered with an error that no host bills.
    tokens:
        how many tokens a value took, for the endpoint's ``tokens_per_minute``.
    ended:
        told once how it went: None for an answer, else the error that is raised.
    refusal:
        what ``permit`` would raise, asked of requests that wait for their turn.
    lane:
        whom the host means when it says that a limit of the model is used up; None: all who ask there.
    """

    decode: Callable[[bytes, Redactor], T]
    explain: Callable[[HttpReply, Redactor], ModelError | None]
    timeout_s: float
    rank: int
    permit: Callable[[], Awaitable[None] | None]
    unsent: Callable[[], None] = unrefused
    unbilled: Callable[[], None] = unrefused
    tokens: Callable[[T], int] | None = None
    ended: Callable[[ModelError | None], None] | None = None
    refusal: Callable[[], CoevalError | None] = unrefused
    lane: Lane | None = None
    probe: bool = False


class Answered(NamedTuple, Generic[T]):
    """A decoded answer; ``latency_s`` is that of the attempt which brought it."""

    value: T
    latency_s: float
    attempts: int
