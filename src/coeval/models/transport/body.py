"""The body of an answer: unpacked as it comes in, and never larger than we take."""

from __future__ import annotations

import codecs
import zlib

# --- What can go wrong between a request and its answer, before anybody has read the answer
#
# Beside these the wire raises TimeoutError (the attempt's time is over), ``socket.gaierror`` (the host name
# cannot be resolved) and ``ssl.SSLError`` (no TLS). `models.transport.faults` gives all of them their place
# in our error tree.


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


LARGEST_BODY = 1 << 26
"""Bytes of a body, both as it comes and unpacked; the longest answers with log-probabilities have a tenth."""

_PIECE = 1 << 20  # of a bomb, no more than this is unpacked beyond the limit
_PLAIN = frozenset({"", "identity", "none"})
_PACKED = frozenset({"gzip", "x-gzip", "deflate"})
# Either of the two headers is told by itself.
_ANY_HEADER = 32 + zlib.MAX_WBITS


class Body:
    """Takes what arrives, as it was sent, and gives the whole.

    Parameters
    ----------
    coding:
        the Content-Encoding header. We ask for none, but some hosts pack all the same.

    What cannot be unpacked is told at the end, by `whole`; what is too large, at once.
    """

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

    def take(self, data: bytes) -> None:
        """Take in what arrived. Raises NotHttp when it is more than `LARGEST_BODY`."""
        self._received += len(data)
        if self._received > LARGEST_BODY:
            raise self._too_large("a body of")
        if self._fault:
            return
        if self._stream is not None:
            self._unpack(self._stream, data)
        elif not self._content:
            self._content = data  # most bodies come in one piece
        else:
            self._append(data)

    def whole(self) -> bytes:
        """The body, unpacked, without a byte order mark: JSON is UTF-8 (RFC 8259). Raises NotHttp when that
        cannot be."""
        if not self._received:
            return b""
        if self._stream is not None and not self._stream.eof:
            self._fault = self._fault or "its compressed body is cut off"
        if self._fault:
            raise NotHttp(self._fault)
        content = self._content if isinstance(self._content, bytes) else bytes(self._content)
        return content.removeprefix(codecs.BOM_UTF8)

    def _unpack(self, stream: zlib._Decompress, data: bytes) -> None:
        """Unpack piece by piece, so that little packed never becomes much at once."""
        try:
            while piece := stream.decompress(data, _PIECE):
                self._append(piece)
                if len(self._content) > LARGEST_BODY:
                    raise self._too_large("a body that unpacks to")
                data = stream.unconsumed_tail
        except zlib.error as error:
            self._fault = f"its compressed body is damaged ({error})"
        if stream.unused_data:
            self._fault = "its compressed body is damaged (bytes after its end)"
        if self._fault:
            self._content = b""

    def _too_large(self, what: str) -> NotHttp:
        self._content = b""  # whoever holds the error holds this too, by its traceback
        return NotHttp(f"{what} more than {LARGEST_BODY >> 20} MiB")

    def _append(self, data: bytes) -> None:
        if isinstance(self._content, bytes):
            self._content = bytearray(self._content)
        self._content += data
