"""One answer on its way in: from bytes, however they are cut, to a `Reply`.

llhttp does the parsing (by ``httptools``). What stands here is what a parser leaves to its user:
limits, interim answers, answers that end with the connection, and content codings.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from coeval.models.wire_errors import NotHttp

__all__ = ["LARGEST_BODY", "LARGEST_HEAD", "LONGEST_LINE", "Answer", "Reply"]

LONGEST_LINE = 1 << 16
LARGEST_HEAD = 1 << 18
LARGEST_BODY = 1 << 28
"""In bytes. A body's limit holds before and after decoding."""

_LISTS = frozenset({"content-encoding", "transfer-encoding"})
"""Headers that are one list when they are repeated; of all others the first counts."""


class Reply(NamedTuple):
    """A whole answer. Header names are lower-case; the body is decoded."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Unusable(Exception):
    """Raised through the parser, which ends with it."""


class Answer:
    """The answer to one request, fed with what arrives until it is whole.

    Attributes
    ----------
    keep_alive:
        whether the connection may be used again; known once the answer is whole. False when
        anything follows the answer: nobody asked for it.
    begun:
        whether some of it has come.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_head_done",
        "_head_size",
        "_headers",
        "_idle_bytes",
        "_parser",
        "_status",
        "_whole",
        "begun",
        "keep_alive",
    )

    def __init__(self) -> None:
        # A parser of its own: one that is used again hands trailers on to the next answer.
        self._parser = HttpResponseParser(self)
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._body_size = self._head_size = self._idle_bytes = 0
        self._head_done = self._whole = self.begun = self.keep_alive = False

    def feed(self, data: bytes) -> bool:
        """Take in what arrived; True once the answer is whole.

        Raises
        ------
        NotHttp
            this is no answer, or a larger one than we take.
        """
        size_before = self._body_size
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise NotHttp("it changes to another protocol") from None
        except HttpParserError as error:
            if not self._whole:
                cause = error.__context__
                raise NotHttp(str(cause if isinstance(cause, _Unusable) else error)) from None
            self.keep_alive = False
        if self._whole:
            return True
        self.begun = True
        # What brings no body is kept by the parser, or read over: a header, a trailer, an extension.
        self._idle_bytes = self._idle_bytes + len(data) if self._body_size == size_before else 0
        if self._idle_bytes > LARGEST_HEAD:
            raise NotHttp(f"more than {LARGEST_HEAD >> 10} KiB of headers")
        return False

    def ends_here(self) -> bool:
        """Whether an answer without a length of its own is whole when the connection ends now."""
        return self._head_done and not self._headers.keys() & {"content-length", "transfer-encoding"}

    def reply(self) -> Reply:
        """The answer, once it is whole. Raises NotHttp when its coding cannot be undone."""
        body = self._body[0] if len(self._body) == 1 else b"".join(self._body)
        coding = self._headers.get("content-encoding")
        if coding is not None and body:
            body = _decoded(body, coding)
        return Reply(self._status, self._headers, body)

    def drop(self) -> None:
        """Let go of the parser, which holds on to this answer as this answer does to it: the last call."""
        del self._parser

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._whole:
            self.keep_alive = False
            raise _Unusable("bytes after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        size = len(name) + len(value)
        self._head_size += size
        if size > LONGEST_LINE or self._head_size > LARGEST_HEAD:
            raise _Unusable(
                f"a header of more than {LONGEST_LINE >> 10} KiB, or {LARGEST_HEAD >> 10} KiB of them"
            )
        if self._head_done:
            return  # a trailer
        key = name.decode("latin-1").lower()
        if key not in self._headers:
            self._headers[key] = value.strip().decode("latin-1")
        elif key in _LISTS:
            self._headers[key] += f", {value.strip().decode('latin-1')}"

    def on_headers_complete(self) -> None:
        self._status = self._parser.get_status_code()
        self._head_done = True
        transfer = self._headers.get("transfer-encoding")
        if transfer is not None and transfer.lower() != "chunked":
            raise _Unusable(f"the transfer coding {transfer[:40]!r} is not one we read")

    def on_body(self, data: bytes) -> None:
        self._body_size += len(data)
        if self._body_size > LARGEST_BODY:
            raise _Unusable(f"a body of more than {LARGEST_BODY >> 20} MiB")
        self._body.append(data)

    def on_message_complete(self) -> None:
        if self._status < 200:  # an interim answer (RFC 9110 §15.2); the one that counts follows
            self._headers = {}
            self._head_done = False
            return
        self._whole = True
        self.keep_alive = self._parser.should_keep_alive()


def _decoded(body: bytes, coding: str) -> bytes:
    """A body without the codings it was sent in. We ask for none, but some hosts compress all the same."""
    for name in reversed(coding.lower().split(",")):
        match name.strip():
            case "identity" | "":
                pass
            case "gzip" | "x-gzip":
                body = _inflated(body, 16 + zlib.MAX_WBITS)
            case "deflate":
                # Both spellings of deflate are about: with the header of RFC 1950 and without.
                zlib_header = body[0] & 15 == 8 and int.from_bytes(body[:2]) % 31 == 0
                body = _inflated(body, zlib.MAX_WBITS if zlib_header else -zlib.MAX_WBITS)
            case other:
                raise NotHttp(f"the content coding {other[:40]!r} is not one we read")
    return body


def _inflated(body: bytes, wbits: int) -> bytes:
    parts: list[bytes] = []
    left = LARGEST_BODY
    try:
        while body:  # a gzip body may consist of several members
            stream = zlib.decompressobj(wbits)
            parts.append(stream.decompress(body, left + 1))
            left -= len(parts[-1])
            if left < 0:
                raise NotHttp(f"a body that unpacks to more than {LARGEST_BODY >> 20} MiB")
            if not stream.eof:
                raise NotHttp("its compressed body is cut off")
            body = stream.unused_data
    except zlib.error as error:
        raise NotHttp(f"its compressed body is damaged ({error})") from None
    return b"".join(parts)
