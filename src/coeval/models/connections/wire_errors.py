"""What can go wrong between a request and its answer, before anybody has read the answer.

Beside these the wire raises TimeoutError (the attempt's time is over), ``socket.gaierror`` (the host
name cannot be resolved) and ``ssl.SSLError`` (no TLS). `models.faults` gives all of them their place
in our error tree.
"""

from __future__ import annotations

__all__ = ["Closed", "ConnectTimeout", "Lost", "NoConnection", "NoTurn", "NotHttp", "WireError"]


class WireError(Exception):
    """Base of what only the wire raises."""


class NoConnection(WireError):
    """None of the host's addresses took a connection."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ConnectTimeout(WireError):
    """Connecting took longer than connecting may take."""


class NoTurn(WireError, TimeoutError):
    """The request's time was over before there was a connection for it."""


class Lost(WireError):
    """The connection ended before the answer did; ``begun`` says whether some of it had come."""

    def __init__(self, *, begun: bool, cause: Exception | None = None) -> None:
        super().__init__(str(cause or ""))
        self.begun = begun
        self.cause = cause


class Closed(WireError):
    """We ended the connection ourselves, because the run is over; ``sent`` says whether the request was."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class NotHttp(WireError):
    """What came is no HTTP/1 answer, or one that we do not take; the message says why."""
