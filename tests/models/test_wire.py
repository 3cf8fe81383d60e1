"""Requests and answers over sockets that are kept, on either event loop."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
import uvloop
from aiohttp import web
from raw_server import Script, endless_headers, hang, reply, reset, server, until
from wire_client import LONG_S, OK, asking, in_pieces, listening, then_closing
from yarl import URL

from coeval.models.transport import pool as pool_module
from coeval.models.transport.body import Closed, Lost, NotHttp
from coeval.models.transport.connection import LARGE_BODY
from coeval.models.transport.pool import RequestRoute


async def test_a_request_is_as_asked_and_its_answer_whole() -> None:
    async with server(reply(200, b"fine", X_Who="me")) as fake, asking(fake.url) as client:
        answered = await client.send(b"{}")
        assert answered == (200, {"content-length": "4", "x-who": "me"}, b"fine")
        await client.wire.send(RequestRoute.make("GET", client.route.url, {}), None, LONG_S)
        assert fake.requested[0].line == "POST /v1/chat HTTP/1.1"
        assert fake.requested[0].body == b"{}"
        assert fake.requested[0].headers == {
            "host": f"127.0.0.1:{fake.port}",
            "accept": "*/*",
            "accept-encoding": "identity",
            "authorization": "Bearer x",
            "content-length": "2",
            "": "",
        }
        assert "content-length" not in fake.requested[1].headers


# Connections


async def test_one_connection_serves_all_that_comes_one_by_one() -> None:
    async with server(OK, reply(500, b"x" * 300_000), OK) as fake, asking(fake.url) as client:
        for _ in range(50):
            await client.send()
        assert fake.connections == client.wire.connections == 1


async def test_as_many_connections_as_requests_at_once_and_the_last_used_goes_first() -> None:
    all_there = asyncio.Event()

    async def when_all_are_there(writer: asyncio.StreamWriter) -> None:
        if len(fake.requested) == 30:
            all_there.set()
        await all_there.wait()
        writer.write(OK)

    async with server(when_all_are_there) as fake, asking(fake.url) as client:
        await asyncio.gather(*(client.send() for _ in range(30)))
        assert fake.connections == client.wire.connections == 30
        for _ in range(5):
            await client.send()
        assert len({requested.connection for requested in fake.requested[-5:]}) == 1
        assert fake.connections == 30


@pytest.mark.parametrize(
    "answer",
    [
        reply(200, b"fine", Connection="close"),
        OK.replace(b"1.1", b"1.0"),
        OK + b"garbage",
        OK + reply(200, b"smuggled"),
    ],
)
async def test_a_connection_that_cannot_be_trusted_is_not_used_again(answer: bytes) -> None:
    async with server(answer) as fake, asking(fake.url) as client:
        for turn in range(1, 4):
            assert (await client.send()).body == b"fine"
            assert fake.connections == turn
        await until(lambda: client.wire.connections == 0)


async def test_what_arrives_unasked_never_answers_the_next_request() -> None:
    speak = asyncio.Event()

    async def answer_twice(writer: asyncio.StreamWriter) -> None:
        writer.write(OK)
        await speak.wait()
        writer.write(reply(200, b"smuggled"))

    async with server(answer_twice, OK) as fake, asking(fake.url) as client:
        await client.send()
        assert client.wire.connections == 1
        speak.set()
        await until(lambda: client.wire.connections == 0)
        assert (await client.send()).body == b"fine"
        assert fake.connections == 2


async def test_a_connection_the_server_closed_is_gone_at_once() -> None:
    async with server(then_closing(OK), OK) as fake, asking(fake.url) as client:
        await client.send()
        await until(lambda: client.wire.connections == 0)
        await client.send()
        assert fake.connections == 2


async def test_a_connection_at_rest_for_long_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with server(OK) as fake, asking(fake.url) as client:
        await asyncio.gather(*(client.send() for _ in range(3)))
        monkeypatch.setattr(pool_module, "KEPT_IDLE_S", -1.0)
        await client.send()
        assert fake.connections == 4
        await until(lambda: client.wire.connections == 1)


async def test_closing_ends_what_is_under_way() -> None:
    async with server(hang) as fake, asking(fake.url) as client:
        sending = [asyncio.create_task(client.send()) for _ in range(3)]
        await until(lambda: len(fake.requested) == 3)
        await client.wire.aclose()
        assert client.wire.connections == 0
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(result) for result in results] == [Closed] * 3


async def test_a_wire_that_was_closed_sends_nothing() -> None:
    async with server(OK) as fake, asking(fake.url) as client:
        await client.send()
        await client.wire.aclose()
        with pytest.raises(Closed):
            await client.send()
        assert len(fake.requested) == fake.connections == 1


# Answers


async def test_an_answer_byte_by_byte() -> None:
    async with server(in_pieces(OK, 1)) as fake, asking(fake.url) as client:
        assert [(await client.send()).body for _ in range(2)] == [b"fine"] * 2
        assert fake.connections == 1


async def test_an_answer_that_ends_with_the_connection() -> None:
    async with server(then_closing(b"HTTP/1.1 200 OK\r\n\r\nfine")) as fake, asking(fake.url) as client:
        assert [(await client.send()).body for _ in range(2)] == [b"fine"] * 2
        assert fake.connections == 2


@pytest.mark.parametrize(
    ("script", "begun"),
    [
        (reset, False),
        (then_closing(b""), False),
        (then_closing(OK[:20]), True),
        (then_closing(OK[:-1]), True),
    ],
)
async def test_a_connection_lost_on_the_way(script: Script, begun: bool) -> None:
    async with server(script) as fake, asking(fake.url) as client:
        with pytest.raises(Lost) as caught:
            await client.send()
        assert caught.value.begun is begun
        await until(lambda: client.wire.connections == 0)


async def test_what_is_no_http_ends_the_connection() -> None:
    async with server(b"SSH-2.0-OpenSSH_9.6\r\n") as fake, asking(fake.url) as client:
        with pytest.raises(NotHttp):
            await client.send()
        await until(lambda: client.wire.connections == 0)


@pytest.mark.process
async def test_large_bodies_go_both_ways_and_the_event_loop_goes_on() -> None:
    large = bytes(range(256)) * (1 << 16)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async with server(reply(200, large), OK) as fake, asking(fake.url) as client:
        counting = asyncio.create_task(count())
        answered = await client.send(large)
        counting.cancel()
        assert answered.body == large
        assert fake.requested[0].body == large
        assert turns > len(large) // (1 << 18)
        assert (await client.send()).body == b"fine"
        assert fake.connections == 1


async def test_an_answer_before_the_request_is_written_is_an_answer() -> None:
    async def answer_the_head(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(reply(413, b"too large"))
        await asyncio.Event().wait()

    async with listening(answer_the_head) as port, asking(f"http://127.0.0.1:{port}") as client:
        answered = await client.send(bytes(64 * LARGE_BODY))
        assert (answered.status, answered.body) == (413, b"too large")
        await until(lambda: client.wire.connections == 0)


@pytest.mark.parametrize("size", [LARGE_BODY // 2, 2 * LARGE_BODY, 64 * LARGE_BODY])
async def test_an_answer_is_read_though_its_server_hangs_up_on_the_rest_of_the_request(size: int) -> None:
    turns = 20

    def refuse_and_leave() -> None:
        for _ in range(turns):
            accepted, _ = listener.accept()
            with accepted:
                while b"\r\n\r\n" not in accepted.recv(1 << 16):
                    pass
                accepted.sendall(reply(413, b"too large", Connection="close"))

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(20)
        # In a thread, so that it leaves at any moment.
        refusing = asyncio.create_task(asyncio.to_thread(refuse_and_leave))
        async with asking(f"http://127.0.0.1:{listener.getsockname()[1]}") as client:
            for _ in range(turns):
                assert (await client.send(bytes(size))).body == b"too large"
            await until(lambda: client.wire.connections == 0)
        await refusing


# Time


@pytest.mark.parametrize("script", [hang, endless_headers, in_pieces(OK[:-1], 1)])
async def test_the_time_of_an_attempt_ends_it(script: Script) -> None:
    async with server(script) as fake, asking(fake.url) as client:
        with pytest.raises(TimeoutError):
            await client.send(timeout_s=0.02)
        await until(lambda: client.wire.connections == 0)


async def test_a_body_that_nobody_reads_ends_in_time() -> None:
    async def read_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        await asyncio.Event().wait()

    async with listening(read_nothing) as port, asking(f"http://127.0.0.1:{port}") as client:
        with pytest.raises(TimeoutError):
            await client.send(bytes(64 * LARGE_BODY), timeout_s=0.1)
        await until(lambda: client.wire.connections == 0)


@pytest.mark.process
async def test_each_request_on_a_connection_has_its_own_time() -> None:
    answer = asyncio.Event()

    async def when_reported(writer: asyncio.StreamWriter) -> None:
        await answer.wait()
        writer.write(OK)

    async with server(OK, when_reported, OK, hang) as fake, asking(fake.url) as client:
        await client.send(timeout_s=0.3)
        second = asyncio.create_task(client.send(timeout_s=LONG_S))
        await until(lambda: len(fake.requested) == 2)
        await asyncio.sleep(0.31)  # the time of the first is over
        answer.set()
        assert (await second).body == b"fine"
        await client.send(timeout_s=LONG_S)
        with pytest.raises(TimeoutError):
            await client.send(timeout_s=0.02)
        assert fake.connections == 1


async def test_cancelling_ends_the_connection_and_nothing_else() -> None:
    async with server(hang, OK) as fake, asking(fake.url) as client:
        hanging = asyncio.create_task(client.send())
        await until(lambda: len(fake.requested) == 1)
        hanging.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hanging
        await until(lambda: client.wire.connections == 0)
        assert (await client.send()).body == b"fine"


async def test_cancelling_as_the_answer_comes_leaves_the_connection_whole() -> None:
    async with server(OK) as fake, asking(fake.url) as client:
        await client.send()
        for _ in range(20):
            sending = asyncio.create_task(client.send())
            seen = len(fake.requested)
            await until(lambda: len(fake.requested) > seen or sending.done())  # noqa: B023
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
            assert (await client.send()).body == b"fine"
        assert client.wire.connections <= 1


# A server as others write it


async def test_what_a_common_server_sends_is_read() -> None:
    text = "Grüße " * 5000

    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for at in range(0, len(text), 1000):
            await response.write(text[at : at + 1000].encode())
        return response

    async def packed(request: web.Request) -> web.Response:
        response = web.Response(text=text)
        response.enable_compression(web.ContentCoding.deflate)
        return response

    async def echo(request: web.Request) -> web.Response:
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=1 << 26)
    app.add_routes([web.post("/stream", stream), web.post("/packed", packed), web.post("/echo", echo)])
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = URL(str(runner.addresses and f"http://127.0.0.1:{runner.addresses[0][1]}"))
    async with asking(str(url)) as client:
        for path, sent in (("stream", b""), ("packed", b""), ("echo", text.encode())):
            answered = await client.wire.send(RequestRoute.make("POST", url / path, {}), sent, LONG_S)
            assert (answered.status, answered.body.decode()) == (200, text)
        assert client.wire.connections == 1
    await runner.cleanup()


@pytest.mark.process
@pytest.mark.parametrize(
    "scenario",
    [
        test_one_connection_serves_all_that_comes_one_by_one,
        test_as_many_connections_as_requests_at_once_and_the_last_used_goes_first,
        test_what_arrives_unasked_never_answers_the_next_request,
        test_a_connection_the_server_closed_is_gone_at_once,
        test_closing_ends_what_is_under_way,
        test_an_answer_byte_by_byte,
        test_an_answer_that_ends_with_the_connection,
        partial(test_a_connection_lost_on_the_way, then_closing(OK[:-1]), begun=True),
        test_large_bodies_go_both_ways_and_the_event_loop_goes_on,
        test_an_answer_before_the_request_is_written_is_an_answer,
        partial(test_an_answer_is_read_though_its_server_hangs_up_on_the_rest_of_the_request, 2 * LARGE_BODY),
        partial(test_the_time_of_an_attempt_ends_it, hang),
        test_a_body_that_nobody_reads_ends_in_time,
        test_each_request_on_a_connection_has_its_own_time,
        test_cancelling_ends_the_connection_and_nothing_else,
        test_cancelling_as_the_answer_comes_leaves_the_connection_whole,
        test_what_a_common_server_sends_is_read,
    ],
)
def test_uvloop_makes_no_difference(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scenario())


@pytest.mark.parametrize(
    ("url", "host", "line"),
    [
        ("http://api.test/v1", "api.test", "/v1"),
        ("http://api.test:80/v1", "api.test", "/v1"),
        ("https://api.test:443/v1", "api.test", "/v1"),
        ("https://api.test:8443/v1", "api.test:8443", "/v1"),
        ("http://[::1]:8000/v1", "[::1]:8000", "/v1"),
        ("http://bücher.test/ä b?q=ö&r=%2F", "xn--bcher-kva.test", "/%C3%A4%20b?q=%C3%B6&r=/"),
        ("http://api.test", "api.test", "/"),
        ("http://api.test/base/v1/x%2Fy", "api.test", "/base/v1/x%2Fy"),
    ],
)
def test_how_a_request_begins(url: str, host: str, line: str) -> None:
    route = RequestRoute.make("POST", URL(url), {"Authorization": "Bearer x", "X-Who": "ä"})
    assert route.head.decode() == (
        f"POST {line} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        "Authorization: Bearer x\r\nX-Who: ä\r\n"
    )


def test_whom_the_connection_is_with() -> None:
    assert RequestRoute.make("GET", URL("https://bücher.test/v1"), {}).origin == (
        "xn--bcher-kva.test",
        443,
        True,
    )
    assert RequestRoute.make("GET", URL("http://[::1]:8000/v1"), {}).origin == ("::1", 8000, False)


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}])
def test_a_header_with_a_line_break_is_never_sent(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        RequestRoute.make("GET", URL("http://host"), headers)
