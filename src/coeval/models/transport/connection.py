"""One connection to a host: a request out, its answer in, and again."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from coeval.models.transport.body import Body, Closed, Lost, NotHttp

# --- One answer on its way in: from bytes, however they are cut, to a `HttpReply`
#
# llhttp does the parsing (by ``httptools``). What stands here is what a parser leaves to its user: limits,
# interim answers, and answers that end with the connection.

LONGEST_LINE = 1 << 16  # eight times what servers accept by default; a header is some hundred bytes
LARGEST_HEAD = 1 << 18
"""In bytes."""

# Headers that are one list when they are repeated; of all others the first counts.
_LISTS = frozenset({"content-encoding", "transfer-encoding"})


class HttpReply(NamedTuple):
    """A whole answer. Header names are lower-case; the body is unpacked."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], body: Body) -> HttpReply:
        """The answer that has come whole. Raises NotHttp when it cannot be unpacked.

        An error that cannot be has no body: its status says what matters.
        """
        try:
            content = body.whole()
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

    def __init__(self) -> None:
        # A parser of its own: one that is used again hands trailers on to the next answer.
        self.parser = parser = HttpResponseParser(self)
        # Servers in the field need these; aiohttp and, in the main, browsers read answers so too.
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: Body
        self._head_size = self._idle_bytes = 0
        self._head_done = self._whole = self._fed = self.begun = self.keep_alive = False

    def feed(self, data: bytes) -> bool:
        """Take in what arrived; True once the answer is whole.

        Raises NotHttp: this is no answer, or a larger one than we take.
        """
        self._fed = False
        try:
            self.parser.feed_data(data)
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
        return self._head_done and not self.headers.keys() & {"content-length", "transfer-encoding"}

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
        if key not in self.headers:
            self.headers[key] = value.strip().decode("latin-1")
        elif key in _LISTS:
            self.headers[key] += f", {value.strip().decode('latin-1')}"

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self._head_done = True
        self.body = Body(self.headers.get("content-encoding"))
        transfer = self.headers.get("transfer-encoding")
        if transfer is not None and transfer.lower() != "chunked":
            raise NotHttp(f"the transfer coding {transfer[:40]!r} is not one we read")

    def on_body(self, data: bytes) -> None:
        self._fed = True
        self.body.take(data)

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim answer (RFC 9110 §15.2); the one that counts follows
            self.headers = {}
            self._head_done = False
            return
        self._whole = True
        self.keep_alive = self.parser.should_keep_alive()


LARGE_BODY = 1 << 20
"""Bytes above which a body is written piece by piece, so that the event loop goes on."""

_PIECE = 1 << 18  # about a socket's buffer: written or read in one call
_TICK_S = 0.001  # the resolution of the event loop's timers


class Home(Protocol):
    """Who is told what becomes of a connection: `Pool` says what each word means."""

    def opened(self, connection: Connection) -> None: ...
    def requested_first(self, connection: Connection) -> None: ...
    def heard_first(self, connection: Connection) -> None: ...
    def rests(self, connection: Connection) -> None: ...
    def leaves(self, connection: Connection) -> None: ...
    def gone(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request on it.

    It tells ``home`` what becomes of it, and may be used again while it stands there, which keeps
    ``resting`` and ``at_rest_since`` (the loop's time).
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, home: Home) -> None:
        self._loop = loop
        self._home = home
        self._transport: asyncio.Transport
        self._answer: ReplyParser | None = None
        self._waiter: asyncio.Future[HttpReply] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self.heard = False
        """Whether anything has ever come on it."""
        self._paused = self._pouring = self.resting = self._open = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._deadline = self.at_rest_since = 0.0

    @property
    def usable(self) -> bool:
        return not self._transport.is_closing()

    def ask(self, data: bytes, deadline: float) -> asyncio.Future[HttpReply]:
        """Write a request, or its head; the future brings the answer, or what `WireError` names.

        ``deadline`` is in the loop's time. Whoever stops waiting calls `abandon`.
        """
        self._answer = ReplyParser()
        waiter = self._waiter = self._loop.create_future()
        self._deadline = deadline
        # The timer of an earlier request serves if it comes no later: it looks again when it fires.
        if self._timer is None or deadline < self._timer_at:
            self._arm()
        if not self.heard:
            self._home.requested_first(self)
        self._transport.write(data)
        return waiter

    async def pour(self, body: bytes) -> None:
        """Write the large body of the request just asked, until it is written or answered before that."""
        waiter = self._waiter
        self._pouring = True
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            if waiter is None or waiter.done():
                return  # it counts as pouring for good: half a request cannot be followed by another
            self._transport.write(view[start : start + _PIECE])
            if self._paused:
                self._writable = self._loop.create_future()
                await self._writable
            else:
                await asyncio.sleep(0)
        self._pouring = False

    def abandon(self, waiter: asyncio.Future[HttpReply]) -> None:
        """Nobody waits for this answer any more; if it is still to come, the connection is of no use."""
        if self._waiter is waiter:
            self._take()
            self._transport.abort()
        elif not waiter.cancelled():
            waiter.exception()  # seen, as far as the event loop is concerned

    def end(self) -> None:
        """Close; a request that is on the way gets `Closed`."""
        self._leave()
        self._fail(Closed(sent=True))

    async def aclose(self) -> None:
        """As `end`; returns when the socket is gone."""
        self.end()
        if self._open:
            self._gone = self._loop.create_future()
            await self._gone

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open = True
        self._home.opened(self)

    def data_received(self, data: bytes) -> None:
        if not self.heard:
            self.heard = True
            self._home.heard_first(self)
        answer = self._answer
        if answer is None:
            self.end()  # nothing was asked: whatever this is, it must not answer the next request
            return
        try:
            if answer.feed(data):
                self._finish(answer)
        except NotHttp as error:
            self._fail(error)

    def eof_received(self) -> None:
        self._over(None)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._answer is not None:
            self._read_what_is_left()
        self._over(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open = False
        self._home.gone(self)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writer()

    def _read_what_is_left(self) -> None:
        """Writing met with a reset: the answer may have come before it.

        A server that refuses a large body answers and hangs up; either event loop may then close the socket
        unread. What came by TLS is lost: only the event loop could decrypt it.
        """
        unread = self._transport.get_extra_info("socket")
        if unread is None or self._transport.get_extra_info("sslcontext") is not None:
            return
        self._pouring = True  # whatever comes, no other request can follow
        # uvloop's own kind of socket can neither be read nor duplicated, but its descriptor can.
        with suppress(OSError), socket.socket(fileno=os.dup(unread.fileno())) as rest:
            while self._answer is not None and (data := rest.recv(_PIECE)):
                self.data_received(data)

    # How a request ends

    def _finish(self, answer: ReplyParser) -> None:
        """The answer is whole: hand it over, and rest."""
        reply = HttpReply.read(answer.status, answer.headers, answer.body)
        waiter = self._take()
        if answer.keep_alive and not self._pouring and not self._paused:
            self._home.rests(self)
        else:
            self._transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _fail(self, error: Exception) -> None:
        waiter = self._take()
        self._transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def _over(self, cause: Exception | None) -> None:
        """The connection ends, and with it the answer that is on its way."""
        self._leave()
        answer = self._answer
        if answer is None:
            return
        if cause is None and answer.ends_here():
            try:
                self._finish(answer)
            except NotHttp as error:
                self._fail(error)
        else:
            self._fail(Lost(begun=answer.begun, cause=cause))

    def _leave(self) -> None:
        if self.resting:
            self.resting = False
            self._home.leaves(self)

    def _take(self) -> asyncio.Future[HttpReply] | None:
        """The waiter of the request on this connection, which is over now."""
        waiter, answer = self._waiter, self._answer
        self._waiter = self._answer = None
        if answer is not None:
            del answer.parser  # it holds on to the answer as the answer does to it
        if self._writable is not None:
            self._wake_writer()
        return waiter

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Time

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._look_at_the_time)

    def _look_at_the_time(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() + _TICK_S < self._deadline:
            self._arm()
        else:
            self._fail(TimeoutError())
