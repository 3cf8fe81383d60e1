"""The body of a reply: unpacked as it arrives, and bounded in size."""

from __future__ import annotations

import codecs
import zlib

# --- Errors between a request and its reply
#
# The wire also raises TimeoutError (the attempt's time is over), ``socket.gaierror`` (the host name cannot be
# resolved) and ``ssl.SSLError`` (no TLS). `models.transport.faults` maps all of them into our error tree.


class WireError(Exception):
    """Base of the errors that only our wire raises."""


class NoConnection(WireError):
    """None of the host's addresses accepted a connection."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ConnectTimeout(WireError):
    """Connecting took longer than connecting may take."""


class NoTurn(WireError, TimeoutError):
    """The request's time was over before it got a connection."""


class Lost(WireError):
    """The connection ended before the reply did; ``begun``: some of it had come."""

    def __init__(self, *, begun: bool, cause: Exception | None = None) -> None:
        super().__init__(str(cause or ""))
        self.begun = begun
        self.cause = cause


class Closed(WireError):
    """We closed the connection, because the run is over; ``sent``: the request had been sent."""

    def __init__(self, *, sent: bool) -> None:
        super().__init__()
        self.sent = sent


class NoProxy(WireError):
    """The proxy accepts no connection."""

    def __init__(self, cause: OSError) -> None:
        super().__init__(str(cause))
        self.cause = cause


class ProxyRefusal(WireError):
    """The proxy refuses to connect us to the host."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class NotHttp(WireError):
    """The reply is no HTTP/1 reply, or one that we do not accept; the message says why."""


LARGEST_BODY = 1 << 26
"""Bytes of a body, both packed and unpacked: ten times the longest answers with log-probabilities."""

_PIECE = 1 << 20  # at most this much of a decompression bomb is unpacked beyond the limit
_PLAIN = frozenset({"", "identity", "none"})
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
# zlib detects which of the two headers it is.
_ANY_HEADER = 32 + zlib.MAX_WBITS


class Body:
    """Collects a reply's body and unpacks it. ``coding`` is the Content-Encoding: we ask for none, but some
    hosts compress all the same. `read` raises if the body cannot be unpacked; `add` as soon as it is too
    large."""

    def __init__(self, coding: str | None = None) -> None:
        self._stream: zlib._Decompress | None = None
        self._fault = ""
        self._content: bytes | bytearray = b""
        self._received = 0
        codings = [name for part in (coding or "").lower().split(",") if (name := part.strip()) not in _PLAIN]
        if len(codings) == 1 and codings[0] in _PACKED:
            self._stream = zlib.decompressobj(_ANY_HEADER)
        elif codings:
            self._fault = f"the content coding {', '.join(codings)[:40]!r} is not one we read"

    def add(self, data: bytes) -> None:
        """Add bytes as they arrive; NotHttp if there are more than `LARGEST_BODY`."""
        self._received += len(data)
        if self._received > LARGEST_BODY:
            raise self._make_size_error("a body of")
        if self._fault:
            return
        if self._stream is not None:
            self._unpack(self._stream, data)
        elif not self._content:
            self._content = data  # most bodies come in one piece
        else:
            self._append_unchecked(data)

    def read(self) -> bytes:
        """Return the unpacked body without a byte order mark (RFC 8259); NotHttp if it is damaged."""
        if not self._received:
            return b""
        if self._stream is not None and not self._stream.eof:
            self._fault = self._fault or "its compressed body is cut off"
        if self._fault:
            raise NotHttp(self._fault)
        content = self._content if isinstance(self._content, bytes) else bytes(self._content)
        return content.removeprefix(codecs.BOM_UTF8)

    def _unpack(self, stream: zlib._Decompress, data: bytes) -> None:
        """Unpack in pieces, so that a decompression bomb stays small."""
        try:
            while piece := stream.decompress(data, _PIECE):
                self._append_unchecked(piece)
                if len(self._content) > LARGEST_BODY:
                    raise self._make_size_error("a body that unpacks to")
                data = stream.unconsumed_tail
        except zlib.error as error:
            self._fault = f"its compressed body is damaged ({error})"
        if stream.unused_data:
            self._fault = "its compressed body is damaged (bytes after its end)"
        if self._fault:
            self._content = b""

    def _make_size_error(self, what: str) -> NotHttp:
        self._content = b""  # else the error's traceback would keep it alive
        return NotHttp(f"{what} more than {LARGEST_BODY >> 20} MiB")

    def _append_unchecked(self, data: bytes) -> None:
        if isinstance(self._content, bytes):
            self._content = bytearray(self._content)
        self._content += data
