"""One answer on its way in: from bytes, however they are cut, to a `HttpReply`.

llhttp does the parsing (by ``httptools``). What stands here is what a parser leaves to its user:
limits, interim answers, and answers that end with the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from coeval.models.connections.body import Body
from coeval.models.connections.wire_errors import NotHttp

__all__ = ["LARGEST_HEAD", "LONGEST_LINE", "HttpReply", "ReplyParser"]

LONGEST_LINE = 1 << 16
LARGEST_HEAD = 1 << 18
"""In bytes."""

_LISTS = frozenset({"content-encoding", "transfer-encoding"})
"""Headers that are one list when they are repeated; of all others the first counts."""


class HttpReply(NamedTuple):
    """A whole answer. Header names are lower-case; the body is unpacked, and UTF-8 if it is a text."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], body: Body) -> HttpReply:
        """The answer that has come whole. Raises NotHttp when it cannot be unpacked.

        An error that cannot be has no body: its status says what matters.
        """
        try:
            content = body.whole(headers.get("content-type", ""))
        except NotHttp:
            if 200 <= status < 300:
                raise
            content = b""
        return cls(status, headers, content)


class ReplyParser:
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
        "_fed",
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
        self._parser = parser = HttpResponseParser(self)
        # Servers in the field need these; aiohttp and, in the main, browsers read answers so too.
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self._status = 0
        self._headers: dict[str, str] = {}
        self._body: Body
        self._head_size = self._idle_bytes = 0
        self._head_done = self._whole = self._fed = self.begun = self.keep_alive = False

    def feed(self, data: bytes) -> bool:
        """Take in what arrived; True once the answer is whole.

        Raises
        ------
        NotHttp
            this is no answer, or a larger one than we take.
        """
        self._fed = False
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:
            raise NotHttp("it changes to another protocol") from None
        except HttpParserError as error:
            if not self._whole:
                cause = error.__context__
                raise NotHttp(str(cause if isinstance(cause, NotHttp) else error)) from None
            self.keep_alive = False
        if self._whole:
            return True
        self.begun = True
        # What brings no body is kept by the parser, or read over: a header, a trailer, an extension.
        self._idle_bytes = 0 if self._fed else self._idle_bytes + len(data)
        if self._idle_bytes > LARGEST_HEAD:
            raise NotHttp(f"more than {LARGEST_HEAD >> 10} KiB of headers")
        return False

    def ends_here(self) -> bool:
        """Whether an answer without a length of its own is whole when the connection ends now."""
        return self._head_done and not self._headers.keys() & {"content-length", "transfer-encoding"}

    def reply(self) -> HttpReply:
        """The answer, once it is whole. Raises NotHttp when a good answer cannot be unpacked."""
        return HttpReply.read(self._status, self._headers, self._body)

    def drop(self) -> None:
        """Let go of the parser, which holds on to this answer as this answer does to it: the last call."""
        del self._parser

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._whole:
            self.keep_alive = False
            raise NotHttp("bytes after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        if 0 in value:
            raise NotHttp("a NUL in a header")
        size = len(name) + len(value)
        self._head_size += size
        if size > LONGEST_LINE or self._head_size > LARGEST_HEAD:
            raise NotHttp(
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
        self._body = Body(self._headers.get("content-encoding"))
        transfer = self._headers.get("transfer-encoding")
        if transfer is not None and transfer.lower() != "chunked":
            raise NotHttp(f"the transfer coding {transfer[:40]!r} is not one we read")

    def on_body(self, data: bytes) -> None:
        self._fed = True
        self._body.take(data)

    def on_message_complete(self) -> None:
        if self._status < 200:  # an interim answer (RFC 9110 §15.2); the one that counts follows
            self._headers = {}
            self._head_done = False
            return
        self._whole = True
        self.keep_alive = self._parser.should_keep_alive()
