"""One connection to a host: a request out, its reply in, then the next."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple, Protocol, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpResponseParser

from coeval.models.transport.body import Body, Closed, Lost, NotHttp

# --- From bytes, however they are cut, to a `HttpReply`
#
# llhttp parses (by ``httptools``) and leaves to its user: limits, interim replies, and replies that end with
# the connection.

LONGEST_LINE = 1 << 16  # eight times what servers accept by default; a header is some hundred bytes
LARGEST_HEAD = 1 << 18
"""In bytes."""

# Headers that form one list if repeated; of all others, the first counts.
_LISTS = frozenset({"content-encoding", "transfer-encoding"})


class HttpReply(NamedTuple):
    """A complete reply. Header names are lower-case; the body is unpacked."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @classmethod
    def read(cls, status: int, headers: Mapping[str, str], body: Body) -> HttpReply:
        """Read a complete reply; NotHttp if it cannot be unpacked. An error reply that cannot be unpacked has
        no body: its status says what matters."""
        try:
            content = body.read()
        except NotHttp:
            if 200 <= status < 300:
                raise
            content = b""
        return cls(status, headers, content)


class ReplyParser:
    """Parses the reply to one request from bytes as they arrive. ``keep_alive``: the connection may be used
    again; known once the reply is complete, and False if anything follows it, as nobody asked for that.
    ``begun``: some of the reply has come."""

    def __init__(self) -> None:
        # A new parser for each reply: a used one passes trailers on to the next reply.
        self.parser = parser = HttpResponseParser(self)
        # Real servers need these; aiohttp and, mostly, browsers are as lenient.
        parser.set_dangerous_leniencies(
            lenient_headers=True, lenient_optional_cr_before_lf=True, lenient_spaces_after_chunk_size=True
        )
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body: Body
        self._head_size = self._idle_bytes = 0
        self._head_done = self._whole = self._fed = self.begun = self.keep_alive = False

    def feed(self, data: bytes) -> bool:
        """Parse bytes as they arrive; return True once the reply is complete. NotHttp if it is none."""
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
        # Bytes without a body are headers, trailers or extensions, which the parser keeps or skips.
        self._idle_bytes = 0 if self._fed else self._idle_bytes + len(data)
        if self._idle_bytes > LARGEST_HEAD:
            raise NotHttp(f"more than {LARGEST_HEAD >> 10} KiB of headers")
        return False

    def is_whole_at_end(self) -> bool:
        """Check whether a reply without a length of its own is complete if the connection ends now."""
        return self._head_done and not self.headers.keys() & {"content-length", "transfer-encoding"}

    # What the parser calls

    def on_message_begin(self) -> None:
        if self._whole:
            self.keep_alive = False
            raise NotHttp("bytes after the answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, within the limits on size; skip trailers."""
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
        self.body.add(data)

    def on_message_complete(self) -> None:
        if self.status < 200:  # an interim reply (RFC 9110 §15.2); the final one follows
            self.headers = {}
            self._head_done = False
            return
        self._whole = True
        self.keep_alive = self.parser.should_keep_alive()


LARGE_BODY = 1 << 20
"""Bytes above which a body is written in pieces, so that the event loop is not blocked."""

_PIECE = 1 << 18  # about a socket's buffer: written or read in one call
_TICK_S = 0.001  # the resolution of the event loop's timers


class ConnectionObserver(Protocol):
    """Gets the events of a connection; see `Pool`."""

    def on_open(self, connection: Connection) -> None: ...
    def on_first_request(self, connection: Connection) -> None: ...
    def on_first_bytes(self, connection: Connection) -> None: ...
    def on_idle(self, connection: Connection) -> None: ...
    def on_no_longer_idle(self, connection: Connection) -> None: ...
    def on_gone(self, connection: Connection) -> None: ...


class Connection(asyncio.Protocol):
    """A keep-alive connection with at most one request on it. It reports its events to ``observer``, which
    sets `is_idle` and ``idle_since`` (the loop's time) and may use the connection again while it is idle."""

    def __init__(self, loop: asyncio.AbstractEventLoop, observer: ConnectionObserver) -> None:
        self._loop = loop
        self._observer = observer
        self._transport: asyncio.Transport
        self._answer: ReplyParser | None = None
        self._waiter: asyncio.Future[HttpReply] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] | None = None
        self.has_received = False
        """Whether any bytes ever came on it."""
        self._paused = self._is_writing_body = self.is_idle = self._open = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = self._deadline = self.idle_since = 0.0

    @property
    def is_usable(self) -> bool:
        return not self._transport.is_closing()

    def send_request(self, data: bytes, deadline: float) -> asyncio.Future[HttpReply]:
        """Write a request, or its head; the future holds the reply or a `WireError`. ``deadline`` is in the
        loop's time. Whoever stops waiting calls `abandon`."""
        self._answer = ReplyParser()
        waiter = self._waiter = self._loop.create_future()
        self._deadline = deadline
        # An earlier request's timer serves if it fires no later: it then checks the deadline again.
        if self._timer is None or deadline < self._timer_at:
            self._set_timer()
        if not self.has_received:
            self._observer.on_first_request(self)
        self._transport.write(data)
        return waiter

    async def write_body_until_reply(self, body: bytes) -> None:
        """Write the large body of the request just sent, until it is written or the reply is there."""
        waiter = self._waiter
        self._is_writing_body = True
        view = memoryview(body)
        for start in range(0, len(body), _PIECE):
            if waiter is None or waiter.done():
                return  # still marked as writing: half a request cannot be followed by another
            self._transport.write(view[start : start + _PIECE])
            if self._paused:
                self._writable = self._loop.create_future()
                await self._writable
            else:
                await asyncio.sleep(0)
        self._is_writing_body = False

    def abandon(self, waiter: asyncio.Future[HttpReply]) -> None:
        """Abandon a reply; if it has not come yet, the connection is closed."""
        if self._waiter is waiter:
            self._detach_waiter()
            self._transport.abort()
        elif not waiter.cancelled():
            waiter.exception()  # retrieved, so that the event loop does not warn

    def end(self) -> None:
        """Close; a request in flight gets `Closed`."""
        self._stop_being_idle()
        self._fail_and_close(Closed(sent=True))

    async def aclose(self) -> None:
        """Close as `end`, and wait until the socket is closed."""
        self.end()
        if self._open:
            self._gone = self._loop.create_future()
            await self._gone

    # What the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._open = True
        self._observer.on_open(self)

    def data_received(self, data: bytes) -> None:
        if not self.has_received:
            self.has_received = True
            self._observer.on_first_bytes(self)
        answer = self._answer
        if answer is None:
            self.end()  # unrequested bytes, which must not answer the next request
            return
        try:
            if answer.feed(data):
                self._deliver_reply(answer)
        except NotHttp as error:
            self._fail_and_close(error)

    def eof_received(self) -> None:
        self._end_answer_with_connection(None)
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None and self._answer is not None:
            self._read_unread_bytes()
        self._end_answer_with_connection(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._open = False
        self._observer.on_gone(self)
        if self._gone is not None and not self._gone.done():
            self._gone.set_result(None)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._wake_writer()

    def _read_unread_bytes(self) -> None:
        """Read a reply that may have come before a reset of our writing. A server that refuses a large body
        replies and hangs up; either event loop may then close the socket unread. What came by TLS is lost:
        only the event loop could decrypt it."""
        unread = self._transport.get_extra_info("socket")
        if unread is None or self._transport.get_extra_info("sslcontext") is not None:
            return
        self._is_writing_body = True  # whatever comes, no other request can follow
        # uvloop's own kind of socket can neither be read nor duplicated, but its descriptor can.
        with suppress(OSError), socket.socket(fileno=os.dup(unread.fileno())) as rest:
            while self._answer is not None and (data := rest.recv(_PIECE)):
                self.data_received(data)

    # How a request ends

    def _deliver_reply(self, answer: ReplyParser) -> None:
        reply = HttpReply.read(answer.status, answer.headers, answer.body)
        waiter = self._detach_waiter()
        if answer.keep_alive and not self._is_writing_body and not self._paused:
            self._observer.on_idle(self)
        else:
            self._transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_result(reply)

    def _fail_and_close(self, error: Exception) -> None:
        waiter = self._detach_waiter()
        self._transport.abort()
        if waiter is not None and not waiter.done():
            waiter.set_exception(error)

    def _end_answer_with_connection(self, cause: Exception | None) -> None:
        """End the pending reply with the connection: complete if it has no length of its own, else `Lost`."""
        self._stop_being_idle()
        answer = self._answer
        if answer is None:
            return
        if cause is None and answer.is_whole_at_end():
            try:
                self._deliver_reply(answer)
            except NotHttp as error:
                self._fail_and_close(error)
        else:
            self._fail_and_close(Lost(begun=answer.begun, cause=cause))

    def _stop_being_idle(self) -> None:
        if self.is_idle:
            self.is_idle = False
            self._observer.on_no_longer_idle(self)

    def _detach_waiter(self) -> asyncio.Future[HttpReply] | None:
        """Detach and return the waiter of the request, which is over."""
        waiter, answer = self._waiter, self._answer
        self._waiter = self._answer = None
        if answer is not None:
            del answer.parser  # a reference cycle
        if self._writable is not None:
            self._wake_writer()
        return waiter

    def _wake_writer(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # Time

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = self._deadline
        self._timer = self._loop.call_at(self._deadline, self._fail_if_overdue)

    def _fail_if_overdue(self) -> None:
        self._timer = None
        if self._waiter is None:
            return
        if self._loop.time() + _TICK_S < self._deadline:
            self._set_timer()
        else:
            self._fail_and_close(TimeoutError())
