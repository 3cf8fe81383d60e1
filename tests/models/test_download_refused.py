"""Files of hosts that refuse, drip, or lead elsewhere: the connection ends, and a message says why."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from urllib.error import HTTPError

import pytest
import trustme
from fakes.hub import serving_hub

from coeval.models.transport.network import SourceFailed, download, read_page

PATIENCE_S = 0.2
DRIP_S = 0.02
"""Far below the patience: no read is ever silent for so long."""


def test_a_refused_file_leaves_no_connection_open() -> None:
    with serving_hub([]) as hub, pytest.raises(SourceFailed, match="status 404") as refused:
        read_page(f"{hub.url}/nothing", 10.0)
    cause = refused.value.__cause__
    assert isinstance(cause, HTTPError)
    assert cause.fp.closed


@contextmanager
def raw_host(
    first: bytes, drop: bytes = b"", heard: list[bytes] | None = None, tls: ssl.SSLContext | None = None
) -> Iterator[str]:
    """A host that answers every request with ``first``, and then, without end, with a ``drop`` now and then;
    what it is asked goes into ``heard``."""
    ended = Event()

    def serve(plain: socket.socket) -> None:
        with suppress(OSError), tls.wrap_socket(plain, server_side=True) if tls else plain as taken:
            request = taken.recv(1 << 16)
            if heard is not None and request:
                heard.append(request)
            taken.sendall(first)
            while drop and not ended.wait(DRIP_S):
                taken.sendall(drop)

    def accept() -> None:
        with suppress(OSError):
            while True:
                Thread(target=serve, args=(listener.accept()[0],), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        Thread(target=accept, daemon=True).start()
        try:
            yield f"http{'s' if tls else ''}://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            listener.shutdown(socket.SHUT_RDWR)


DRIPPING = {
    "its first line": (b"HTTP/1.1 2", b"0"),
    "its headers": (b"HTTP/1.1 200 OK\r\n", b"X: y\r\n"),
    "its body": (b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n", b"x"),
    "a body of unknown length": (b"HTTP/1.1 200 OK\r\n\r\n", b"x"),
    "chunks": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "the size of a chunk": (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"0"),
    "after a burst": (b"HTTP/1.1 200 OK\r\nContent-Length: 9999999\r\n\r\n" + b"x" * 500_000, b"x"),
}


@pytest.mark.process
@pytest.mark.parametrize(("first", "drop"), DRIPPING.values(), ids=DRIPPING)
def test_a_host_that_drips_is_given_up(tmp_path: Path, first: bytes, drop: bytes) -> None:
    with raw_host(first, drop) as url:
        with pytest.raises(SourceFailed, match=r"is too slow: less than 1,024 bytes a second for 0\.4 s"):
            download(url, tmp_path / "file", None, lambda _: None, PATIENCE_S)
        with pytest.raises(SourceFailed, match="is too slow"):
            read_page(url, PATIENCE_S)


def moved(to: str, code: int = 302) -> bytes:
    return f"HTTP/1.1 {code} Moved\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n".encode()


PAGE = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nsecret"
NEARER = {
    "metadata of a cloud": "http://169.254.169.254/latest/meta-data/iam",
    "the same, of IPv6": "http://[fd00:ec2::254]/latest",
    "the same, mapped": "http://[::ffff:169.254.169.254]/",
    "the same, as one number": "http://2852039166/",
    "the same, by its name": "http://Metadata.Google.Internal./computeMetadata/v1/",
    "another cloud's": "http://100.100.100.200/latest/meta-data",
    "the link": "http://[fe80::1]:8080/",
}


@pytest.mark.parametrize("to", NEARER.values(), ids=NEARER)
@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_from_this_machine_to_the_link_is_not_followed(to: str, code: int) -> None:
    with raw_host(moved(to, code)) as url, pytest.raises(SourceFailed, match="which is refused") as refused:
        read_page(url, 5.0)
    assert "if a mirror there is meant, name its address" in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "127.1", "[::ffff:127.0.0.1]", "0"])
def test_a_redirect_to_another_port_of_this_machine_is_not_followed(host: str) -> None:
    """A mirror on this machine does not choose which of its services is asked."""
    heard: list[bytes] = []
    with (
        raw_host(PAGE, heard=heard) as other,
        raw_host(moved(other.replace("127.0.0.1", host))) as url,
        pytest.raises(SourceFailed, match="which is refused"),
    ):
        read_page(url, 5.0)
    assert heard == []


@pytest.mark.parametrize("to", ["file:///etc/passwd", "ftp://127.0.0.1/x", "data:,secret", "http:///x"])
def test_a_redirect_leads_to_nothing_but_http(to: str) -> None:
    with raw_host(moved(to)) as url, pytest.raises(SourceFailed):
        read_page(url, 5.0)


LOOPBACK = (
    "127.0.0.1",
    "127.1",
    "localhost",
    "a.localhost",
    "[::1]",
    "0",
    "[::ffff:127.0.0.1]",
    "10.0.0.1",
    "%31%32%37.0.0.1",
    "%6cocalhost",
)


@pytest.mark.parametrize("host", LOOPBACK)
def test_a_redirect_of_a_public_host_to_this_machine_is_not_followed(
    host: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The public host is behind a proxy, which speaks for it."""
    heard: list[bytes] = []
    with raw_host(PAGE, heard=heard) as inner, raw_host(moved(inner.replace("127.0.0.1", host))) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "127.0.0.1,localhost")
        with pytest.raises(SourceFailed, match="which is refused"):
            read_page("http://hub.example/api", 5.0)
    assert heard == []


@pytest.mark.parametrize("written", ["cdn.example", "%63dn.example"])
def test_a_name_that_leads_to_this_machine_is_known_when_it_is_connected_to(
    written: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard: list[bytes] = []
    known = socket.getaddrinfo

    def resolve(host: str, *rest: object, **more: object) -> object:
        return known("127.0.0.1" if host == "cdn.example" else host, *rest, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with raw_host(PAGE, heard=heard) as inner, raw_host(moved(inner.replace("127.0.0.1", written))) as proxy:
        monkeypatch.setenv("http_proxy", proxy)
        monkeypatch.setenv("no_proxy", "cdn.example")
        with pytest.raises(SourceFailed, match="which is refused"):
            read_page("http://hub.example/api", 5.0)
    assert heard == []


def test_a_mirror_on_this_machine_leads_to_itself() -> None:
    heard: list[bytes] = []
    with raw_host(moved("/next"), heard=heard) as url, pytest.raises(SourceFailed, match="status 302"):
        read_page(url, 5.0)
    assert len([request for request in heard if request.startswith(b"GET /next ")]) > 1


@pytest.fixture
def tls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ssl.SSLContext:
    """A certificate for this machine that is trusted here."""
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "trusted.pem"))
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path / "trusted.pem"))
    return context


@pytest.mark.process
def test_the_same_holds_over_tls(tls: ssl.SSLContext, tmp_path: Path) -> None:
    with raw_host(PAGE, tls=tls) as url:
        assert read_page(url, 5.0) == b"secret"
    with raw_host(*DRIPPING["its body"], tls=tls) as url, pytest.raises(SourceFailed, match="is too slow"):
        download(url, tmp_path / "file", None, lambda _: None, PATIENCE_S)
    to = moved(NEARER["metadata of a cloud"])
    with raw_host(to, tls=tls) as url, pytest.raises(SourceFailed, match="which is refused"):
        read_page(url, 5.0)
