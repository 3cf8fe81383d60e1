"""Connections where a server keeps few of them, and what becomes of those who wait."""

from __future__ import annotations

import asyncio
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
import trustme
import uvloop
from raw_server import OK, Script, Server, client, hang, server, until
from wire_client import LONG_S, Asking, asking

from coeval.models.transport import pool as dial_module
from coeval.models.transport.body import Lost, NoConnection
from coeval.models.transport.connection import Connection
from coeval.models.transport.pool import Dialler, Origin, Pool

FEW = 8
LATENCY_S = 0.25
P = TypeVar("P", bound=asyncio.Protocol)
How = Literal["left in the backlog", "accepted and not read"]
HOWS: tuple[How, ...] = ("left in the backlog", "accepted and not read")


def after(seconds: float) -> Script:
    async def write(writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(seconds)
        writer.write(OK)

    return write


@asynccontextmanager
async def keeping(
    few: int, how: How, *answers: bytes | Script, tls: ssl.SSLContext | None = None
) -> AsyncIterator[Server]:
    """A server that serves so many connections at a time, and the next one when one of them is closed."""
    fake = Server(list(answers))
    loop = asyncio.get_running_loop()
    slots = asyncio.Semaphore(few)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(accepted: socket.socket) -> None:
        if how == "accepted and not read":
            try:
                await slots.acquire()
            except asyncio.CancelledError:
                accepted.close()
                raise
        try:
            reader = asyncio.StreamReader()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_accepted_socket(lambda: protocol, accepted, ssl=tls)
            await fake.serve(reader, asyncio.StreamWriter(transport, protocol, reader, loop))
        except OSError:
            pass  # who was to be served has left
        finally:
            slots.release()

    async def accept_all(listener: socket.socket) -> None:
        while True:
            if how == "left in the backlog":
                await slots.acquire()
            accepted, _ = await loop.sock_accept(listener)
            tasks.add(asyncio.create_task(serve(accepted)))

    with socket.create_server(("127.0.0.1", 0), backlog=256) as listener:
        listener.setblocking(False)
        fake.port = listener.getsockname()[1]
        tasks.add(asyncio.create_task(accept_all(listener)))
        try:
            yield fake
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)


def certificate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A server's, which we trust from now on."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    return context


@pytest.mark.process
@pytest.mark.parametrize("how", HOWS)
async def test_48_requests_on_8_connections_take_no_more_than_three_times_the_ideal(how: How) -> None:
    ideal_s = 48 / FEW * LATENCY_S
    async with keeping(FEW, how, after(LATENCY_S)) as fake, asking(fake.url) as requested:
        replies = await asyncio.gather(*(requested.send(timeout_s=3 * ideal_s) for _ in range(48)))
        assert {reply.status for reply in replies} == {200}
        assert len(fake.requested) == 48, "nothing is sent twice"


@pytest.mark.process
@pytest.mark.parametrize("how", HOWS)
async def test_the_same_with_retries_and_limits_above(how: How) -> None:
    ideal_s = 48 / FEW * LATENCY_S
    async with keeping(FEW, how, after(LATENCY_S)) as fake, client(fake) as requested:
        answers = await asyncio.gather(*(requested.post(timeout_s=3 * ideal_s) for _ in range(48)))
        assert {answered.attempts for answered in answers} == {1}
        assert len(fake.requested) == 48


@pytest.mark.process
async def test_where_a_handshake_has_to_wait_a_connection_that_comes_to_rest_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path, monkeypatch)
    ideal_s = 48 / FEW * LATENCY_S
    async with (
        keeping(FEW, "accepted and not read", after(LATENCY_S), tls=tls) as fake,
        asking(fake.url.replace("http", "https")) as requested,
    ):
        replies = await asyncio.gather(*(requested.send(timeout_s=3 * ideal_s) for _ in range(48)))
        assert {reply.status for reply in replies} == {200}
        assert fake.connections == FEW


@pytest.mark.process
async def test_who_waits_for_a_handshake_waits_as_long_as_others_are_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tls = certificate(tmp_path, monkeypatch)
    monkeypatch.setattr(dial_module, "CONNECT_TIMEOUT_S", 0.2)
    async with (
        keeping(1, "left in the backlog", after(0.7), OK, tls=tls) as fake,
        asking(fake.url.replace("http", "https")) as requested,
    ):
        replies = await asyncio.gather(requested.send(), requested.send(), requested.send())
        assert {reply.status for reply in replies} == {200}
        assert fake.connections == 1


async def first_answers(requested: Asking, workers: int, each: int) -> list[int]:
    """How many answers had come in all when each worker, asking one by one, got its first."""
    answers = 0
    first = []

    async def work() -> None:
        nonlocal answers
        for number in range(each):
            await requested.send()
            answers += 1
            if number == 0:
                first.append(answers)

    await asyncio.gather(*(work() for _ in range(workers)))
    return first


@pytest.mark.process
@pytest.mark.parametrize("how", HOWS)
async def test_requests_that_nobody_reads_are_not_left_behind_while_others_come_and_go(how: How) -> None:
    async with keeping(FEW, how, after(0.005)) as fake, asking(fake.url) as requested:
        first = await first_answers(requested, 3 * FEW, 40)
        assert max(first) < 3 * FEW * 40 / 3


async def test_a_slow_answer_costs_the_others_few_of_their_connections() -> None:
    slow = asyncio.Event()

    async def when_reported(writer: asyncio.StreamWriter) -> None:
        await slow.wait()
        writer.write(OK)

    async with server(when_reported, OK) as fake, asking(fake.url) as requested:
        sending = asyncio.create_task(requested.send())
        await until(lambda: len(fake.requested) == 1)
        await first_answers(requested, 8, 200)
        slow.set()
        assert (await sending).status == 200
        assert fake.connections < 9 + 8


@pytest.mark.process
async def test_nor_where_requests_come_now_and_then() -> None:
    async with server(hang, OK) as fake, asking(fake.url) as requested:
        sending = asyncio.create_task(requested.send())
        await until(lambda: len(fake.requested) == 1)
        for _ in range(12):
            await requested.send()
            await asyncio.sleep(0.07)
        sending.cancel()
        assert 2 < fake.connections < 9


# Those who wait


class Hanging(Dialler):
    """Never connects."""

    async def dial(self, origin: Origin, protocol: Callable[[], P]) -> P:
        await asyncio.Event().wait()
        raise AssertionError("unreachable")


@asynccontextmanager
async def pool_with_one() -> AsyncIterator[tuple[Pool, Connection]]:
    """A pool that gets no second connection, and its first, which has served and is in use."""
    async with server(OK) as fake:
        origin = Origin("127.0.0.1", fake.port, False)
        pool = Pool(origin, Hanging())
        connection = await Dialler().dial(origin, partial(Connection, asyncio.get_running_loop(), pool))
        await connection.send_request(b"GET / HTTP/1.1\r\n\r\n", in_a_while())
        assert pool.take_idle(0.0) is connection
        yield pool, connection
        await pool.aclose()
        assert pool.open == set()


def in_a_while() -> float:
    return asyncio.get_running_loop().time() + LONG_S


async def test_who_waited_longest_is_served_first_and_nobody_overtakes() -> None:
    async with pool_with_one() as (pool, connection):
        waiting = [asyncio.create_task(pool.wait_for_connection(in_a_while())) for _ in range(3)]
        await asyncio.sleep(0)
        for turn in range(3):
            pool.on_idle(connection)
            assert pool.take_idle(0.0) is None, "it belongs to those who wait"
            assert await waiting[turn] is connection
        pool.on_idle(connection)
        assert pool.take_idle(0.0) is connection


async def test_what_is_given_to_somebody_who_just_left_goes_to_the_next() -> None:
    async with pool_with_one() as (pool, connection):
        gone, patient = (asyncio.create_task(pool.wait_for_connection(in_a_while())) for _ in range(2))
        await asyncio.sleep(0)
        pool.on_idle(connection)
        gone.cancel()
        assert await patient is connection
        assert gone.cancelled()


@pytest.mark.process
async def test_a_connection_that_ends_as_it_is_given_is_not_used() -> None:
    async with pool_with_one() as (pool, connection):
        waiting = asyncio.create_task(pool.wait_for_connection(asyncio.get_running_loop().time() + 0.2))
        await asyncio.sleep(0)
        pool.on_idle(connection)
        connection.end()
        with pytest.raises(TimeoutError):
            await waiting


async def test_who_is_turned_away_as_soon_as_connected_is_told_so_and_does_not_try_again_unseen() -> None:
    turned_away = 0
    loop = asyncio.get_running_loop()

    async def turn_away_all(listener: socket.socket) -> None:
        nonlocal turned_away
        while True:
            accepted, _ = await loop.sock_accept(listener)
            turned_away += 1
            accepted.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            accepted.close()  # by a reset

    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listener:
        listener.setblocking(False)
        turning_away = asyncio.create_task(turn_away_all(listener))
        async with asking(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            sent = [client.send() for _ in range(300)]
            results = await asyncio.gather(*sent, return_exceptions=True)
        turning_away.cancel()
    assert {type(result) for result in results} <= {NoConnection, Lost}
    assert turned_away <= 300


@pytest.mark.process
@pytest.mark.parametrize(
    "scenario",
    [
        partial(test_48_requests_on_8_connections_take_no_more_than_three_times_the_ideal, HOWS[0]),
        partial(test_requests_that_nobody_reads_are_not_left_behind_while_others_come_and_go, HOWS[1]),
        test_a_slow_answer_costs_the_others_few_of_their_connections,
        test_what_is_given_to_somebody_who_just_left_goes_to_the_next,
    ],
)
def test_uvloop_makes_no_difference(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scenario())


@pytest.mark.process
def test_handshakes_that_wait_on_uvloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop.run(
        test_where_a_handshake_has_to_wait_a_connection_that_comes_to_rest_is_taken(tmp_path, monkeypatch)
    )
