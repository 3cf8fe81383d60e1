"""The connections to one host: those at rest, those being made, and who waits for one."""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from functools import partial
from typing import NamedTuple

from coeval.models.connections.connection import Connection
from coeval.models.connections.dial import Dialler
from coeval.models.connections.route import Origin
from coeval.models.connections.wire_errors import Closed, ConnectTimeout, NoConnection, NoTurn

__all__ = ["KEPT_IDLE_S", "Pool"]

KEPT_IDLE_S = 60.0
"""A connection at rest for longer is not trusted to be there."""

_ROOM_AFTER_S = 0.05
_Waiter = asyncio.Future[Connection]


class _Unheard(NamedTuple):
    """A request on a new connection that has brought nothing yet.

    ``since`` (the loop's time) it waits, or waits again after room was made for it ``times`` times;
    ``answers`` is how many the host had given then.
    """

    since: float
    answers: int
    times: int


class Pool:
    """Gives each request a connection of its own.

    The one used last is used next, so that those which a smaller load does not need grow old and are
    closed. Where none is at rest, a new one is made, and whichever comes first, it or one that comes to
    rest meanwhile, serves who has waited longest.

    Some servers serve only so many connections at a time and leave the others unread, though they seem
    connected. So while a new connection stays silent, others make room for it: one that nobody needs
    just now, and one of those in use when the host has answered many requests that came later. Room
    made in vain costs a handshake; each silent connection asks for it at growing intervals.
    """

    def __init__(self, origin: Origin, dialler: Dialler) -> None:
        self._loop = asyncio.get_running_loop()
        self._origin = origin
        self._dialler = dialler
        self._idle: deque[Connection] = deque()
        self._waiters: deque[_Waiter] = deque()
        self._dials: dict[asyncio.Task[Connection], None] = {}
        self._unheard: dict[Connection, _Unheard] = {}
        self._answers = 0
        self._making_room: asyncio.TimerHandle | None = None
        self._closed = False
        self.open: set[Connection] = set()

    def take(self, now: float) -> Connection | None:
        """The connection that was used last, if there is one at rest that can be used."""
        idle = self._idle
        while idle and idle[0].at_rest_since < now - KEPT_IDLE_S:
            idle[0].end()
        while idle:
            connection = idle.pop()
            connection.resting = False
            if connection.usable:
                return connection
        return None

    async def wait(self, deadline: float) -> Connection:
        """A new connection, or one that comes to rest before that; ``deadline`` is in the loop's time.

        Raises
        ------
        WireError, TimeoutError, socket.gaierror, ssl.SSLError
            none came about; see `models.wire_errors`.
        """
        if self._closed:
            raise Closed(sent=False)
        waiter: _Waiter = self._loop.create_future()
        self._waiters.append(waiter)
        self._dial()
        try:
            async with asyncio.timeout_at(deadline):
                connection = await waiter
        except asyncio.CancelledError:
            self._withdraw(waiter)
            raise
        except TimeoutError:
            self._withdraw(waiter)
            raise NoTurn from None
        if connection.usable:
            return connection
        if not connection.heard:
            raise NoConnection(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        return await self.wait(deadline)  # it ended as others do that were used: another may be had

    async def aclose(self) -> None:
        """End every connection, those being made included; returns when their sockets are closed."""
        self._closed = True
        if self._making_room is not None:
            self._making_room.cancel()
        while (waiter := self._next_waiter()) is not None:
            waiter.set_exception(Closed(sent=False))
        for dial in list(self._dials):
            dial.cancel()
        await asyncio.gather(*self._dials, return_exceptions=True)
        await asyncio.gather(*(connection.aclose() for connection in list(self.open)))

    # What connections tell

    def opened(self, connection: Connection) -> None:
        self.open.add(connection)

    def asked_first(self, connection: Connection) -> None:
        """Its first request is sent."""
        self._unheard[connection] = _Unheard(self._loop.time(), self._answers, 0)

    def heard_first(self, connection: Connection) -> None:
        """Its first bytes have come."""
        self._unheard.pop(connection, None)

    def rests(self, connection: Connection) -> None:
        """Its answer is whole, and another request can follow."""
        self._answers += 1
        if self._unheard and self._is_overtaken():
            connection.end()
        elif self._waiters:
            self._offer(connection)
        else:
            self._rest(connection)

    def leaves(self, connection: Connection) -> None:
        """It is at rest no more, because it ends."""
        self._idle.remove(connection)

    def gone(self, connection: Connection) -> None:
        self.open.discard(connection)
        self._unheard.pop(connection, None)

    # Who waits

    def _offer(self, connection: Connection) -> None:
        if self._closed:
            connection.end()
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_result(connection)
        else:
            self._rest(connection)

    def _rest(self, connection: Connection) -> None:
        connection.at_rest_since = self._loop.time()
        connection.resting = True
        self._idle.append(connection)
        if self._unheard and self._making_room is None:
            self._making_room = self._loop.call_later(_ROOM_AFTER_S, self._make_room)

    def _next_waiter(self) -> _Waiter | None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                return waiter
        return None

    def _withdraw(self, waiter: _Waiter) -> None:
        """It waits no more, whatever it was given in the same moment."""
        if waiter in self._waiters:
            self._waiters.remove(waiter)
        elif not waiter.cancelled() and waiter.exception() is None:
            self._offer(waiter.result())
        if len(self._dials) > len(self._waiters):
            next(reversed(self._dials)).cancel()

    # Making connections

    def _dial(self) -> None:
        """Make a connection, unless as many are being made as are waited for.

        What was begun for somebody who took another goes on: it will be needed if the load stays, and
        given up each time it would never be had.
        """
        if len(self._dials) < len(self._waiters):
            make = partial(Connection, self._loop, self)
            dial = self._loop.create_task(self._dialler.dial(self._origin, make))
            self._dials[dial] = None
            dial.add_done_callback(self._dialled)

    def _dialled(self, dial: asyncio.Task[Connection]) -> None:
        del self._dials[dial]
        if dial.cancelled():
            self._dial()  # for whoever came while it was being ended
            return
        error = dial.exception()
        if error is None:
            self._offer(dial.result())
        elif isinstance(error, ConnectTimeout) and self.open:
            self._dial()  # the host serves others meanwhile: one of theirs may come to rest
        elif (waiter := self._next_waiter()) is not None:
            waiter.set_exception(error)

    # Making room

    def _is_overtaken(self) -> bool:
        """Whether the request that has waited longest makes room for itself now.

        As many answers as there are connections may belong to requests that were sent before it.
        """
        connection, unheard = next(iter(self._unheard.items()))
        if self._answers - unheard.answers < 2 * len(self.open) << unheard.times:
            return False
        self._made_room(connection, unheard)
        return True

    def _make_room(self) -> None:
        """Close connections at rest while requests on new ones hear nothing: one for each."""
        self._making_room = None
        now = self._loop.time()
        while self._unheard and self._idle:
            connection, unheard = next(iter(self._unheard.items()))
            rested_at = self._idle[0].at_rest_since
            due = max(rested_at + _ROOM_AFTER_S, unheard.since + (_ROOM_AFTER_S * 2**unheard.times))
            if due > now:
                self._making_room = self._loop.call_at(due, self._make_room)
                return
            self._made_room(connection, unheard)
            self._idle[0].end()

    def _made_room(self, connection: Connection, unheard: _Unheard) -> None:
        """Last in turn, and less eager the next time."""
        del self._unheard[connection]
        self._unheard[connection] = _Unheard(self._loop.time(), self._answers, unheard.times + 1)
