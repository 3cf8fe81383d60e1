"""How a connection comes about, or does not: time, names, addresses, certificates."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
import uvloop
from raw_server import Server, hang, reply, server
from wire_client import OK, asking, listening

from coeval.models.transport import pool as dial_module
from coeval.models.transport.body import Closed, ConnectTimeout, NoConnection
from coeval.models.transport.connection import LARGE_BODY
from coeval.models.transport.pool import Dialler, Origin


async def nothing_but_accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(-1)


async def test_connecting_has_a_time_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async with listening(nothing_but_accept) as port, asking(f"https://127.0.0.1:{port}") as client:
        with pytest.raises(TimeoutError):
            await client.send(timeout_s=0.05)
        monkeypatch.setattr(dial_module, "CONNECT_TIMEOUT_S", 0.05)
        with pytest.raises(ConnectTimeout):
            await client.send()


async def test_closing_ends_what_is_still_connecting() -> None:
    async with listening(nothing_but_accept) as port, asking(f"https://127.0.0.1:{port}") as client:
        sending = [asyncio.create_task(client.send()) for _ in range(3)]
        await asyncio.sleep(0.01)
        sending[0].cancel()
        await client.wire.aclose()
        results = await asyncio.gather(*sending, return_exceptions=True)
        assert [type(result) for result in results] == [asyncio.CancelledError, Closed, Closed]


async def test_a_port_where_nobody_listens() -> None:
    async with server(OK) as fake:
        pass
    async with asking(fake.url) as client:
        with pytest.raises(NoConnection) as caught:
            await client.send()
        assert isinstance(caught.value.cause, ConnectionRefusedError)


async def test_a_name_that_does_not_exist_is_looked_up_once_for_all_who_wait() -> None:
    async with asking("http://nowhere.invalid/v1") as client:
        results = await asyncio.gather(*(client.send() for _ in range(5)), return_exceptions=True)
        assert [type(result) for result in results] == [socket.gaierror] * 5
        assert len({id(result) for result in results}) == 1


def _has_ipv6() -> bool:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6):
            return True
    except OSError:
        return False


@pytest.mark.parametrize(
    ("listens", "named"), [("127.0.0.1", "localhost"), ("::1", "[::1]"), ("::1", "localhost")]
)
async def test_a_host_is_reached_at_whichever_address_answers(listens: str, named: str) -> None:
    fake = Server([OK])
    if listens == "::1" and not _has_ipv6():
        pytest.skip("this machine has no IPv6")
    async with listening(fake.serve, listens) as port, asking(f"http://{named}:{port}") as client:
        addresses = {address[4][0] for address in socket.getaddrinfo("localhost", port)}
        if named == "localhost" and listens not in addresses:
            pytest.skip(f"localhost is not {listens} here")
        assert (await client.send()).body == b"fine"
        assert fake.requested[0].headers["host"] == f"{named}:{port}"


# TLS


def certificate(*names: str) -> tuple[trustme.CA, ssl.SSLContext]:
    authority = trustme.CA()
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert(*names).configure_cert(context)
    return authority, context


async def test_tls_with_a_bundle_of_ones_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority, context = certificate("localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    fake = Server([OK, reply(200, bytes(LARGE_BODY)), hang])
    async with listening(fake.serve, tls=context) as port, asking(f"https://localhost:{port}") as client:
        assert (await client.send()).body == b"fine"
        assert (await client.send(bytes(4 * LARGE_BODY))).body == bytes(LARGE_BODY)
        with pytest.raises(TimeoutError):
            await client.send(timeout_s=0.05)
        assert fake.connections == 1


@pytest.mark.parametrize("trusted", [False, True], ids=["unknown authority", "another name"])
async def test_a_certificate_that_proves_nothing_is_refused(
    trusted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, context = certificate("elsewhere.test" if trusted else "localhost")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    if trusted:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "ca.pem"))
    fake = Server([OK])
    async with listening(fake.serve, tls=context) as port, asking(f"https://localhost:{port}") as client:
        with pytest.raises(ssl.SSLCertVerificationError):
            await client.send()
    assert fake.requested == []


@pytest.mark.process
@pytest.mark.parametrize(
    "scenario",
    [
        test_closing_ends_what_is_still_connecting,
        test_a_port_where_nobody_listens,
        partial(test_a_host_is_reached_at_whichever_address_answers, "127.0.0.1", "localhost"),
    ],
)
def test_uvloop_makes_no_difference(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    uvloop.run(scenario())


def test_tls_on_uvloop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    uvloop.run(test_tls_with_a_bundle_of_ones_own(tmp_path, monkeypatch))


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_connection_that_is_given_up_as_it_is_made_has_an_end(
    loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    """Who closes a wire waits for the end of every connection that it was told of."""
    events = []
    dials: list[asyncio.Task[asyncio.Protocol]] = []

    class GivenUp(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            events.append("made")
            dials[0].cancel()

        def connection_lost(self, error: Exception | None) -> None:
            events.append("lost")

    async def give_up(port: int) -> None:
        dials.append(asyncio.ensure_future(Dialler().dial(Origin("127.0.0.1", port, False), GivenUp)))
        with pytest.raises(asyncio.CancelledError):
            await dials[0]

    with socket.create_server(("127.0.0.1", 0)) as listening, asyncio.Runner(loop_factory=loop) as runner:
        runner.run(give_up(listening.getsockname()[1]))
    assert events[:2] == ["made", "lost"]
