"""What the machine's environment says about reaching a host: proxy, certificates, open files."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import sys
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPMessage, HTTPResponse, HTTPSConnection
from io import BytesIO
from pathlib import Path
from threading import Event, Thread
from typing import IO, Any, Self
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import (
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    Request,
    build_opener,
    getproxies,
    proxy_bypass,
)

from yarl import URL

from coeval.core.errors import CoevalError, UsageError
from coeval.core.redaction import Redactor
from coeval.core.shown_url import find_url_secrets, mask_url

# More than any run has open; systems without a limit would otherwise be asked for a billion.
_ENOUGH_FILES = 65_536
# The first that is set takes the place of the default, the system's or OpenSSL's own variables.
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def proxy_for(url: URL) -> URL | None:
    """The proxy that ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL.

    Read once per endpoint: aiohttp's own ``trust_env`` asks a thread twice for every request.
    """
    proxies = getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        # The reason would quote what may be a part of a password.
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// is no address: http://host:port, where "
            "signs of a password such as / and @ are written %2F and %40. Correct it, or name the host in "
            "NO_PROXY."
        ) from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// ({proxy.scheme}://{proxy.host}) cannot be "
            "used: only http:// and https:// proxies are. Set another, or name the host in NO_PROXY."
        )
    return proxy


def trusted_certificates() -> ssl.SSLContext:
    """The certificate bundle of ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else the default.

    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are part of the default: OpenSSL reads them.
    """
    for name in _BUNDLES:
        bundle = os.environ.get(name)
        if not bundle:
            continue
        path = Path(bundle)
        try:
            if path.is_dir():
                return ssl.create_default_context(capath=bundle)
            return ssl.create_default_context(cafile=bundle)
        except OSError as error:
            raise UsageError(
                f"{name}={bundle} is no usable certificate bundle ({error.strerror or error}); "
                "correct it or unset it"
            ) from error
    return ssl.create_default_context()


def raise_open_file_limit() -> None:
    """Let the process hold a socket per request in flight: the usual soft limit of 1,024 is too few."""
    if sys.platform == "win32":
        return
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# --- File downloads
#
# Whoever answers decides neither how long we wait nor whom we ask: a host that sends too little is given up,
# and a redirect leads no nearer to this machine than the address that was named.

# As for connections to models (`CONNECT_TIMEOUT_S`).
_TIMEOUT_S = 30
# A pipe's buffer on Linux; larger reads come back no fuller.
_CHUNK = 1 << 16
# An index page is text of some hundred kilobytes; one without an end must end here.
_LARGEST_PAGE = 32 << 20
# Above every asset of the manifest (`du ~/.cache/coeval`); a file without an end must end here.
_LARGEST_FILE = 256 << 20
_LEAST_PACE, _PERIODS = 1024, 2
"""Bytes a second, and for how many times the patience a host may send less: twice, since a process that was
stopped for a while finds one such period when it goes on. A modem of the nineties brings three times as much;
what is slower keeps the connection open by a byte now and then."""

_LINK_LOCAL, _LOOPBACK = 3, 2
# How near to this machine an address is: those of the link, and others at which clouds (AWS, Alibaba, Azure)
# tell a machine its own credentials; then loopback. 1 is what else is not of the public network, and 0 is.
_NEAR = {
    _LINK_LOCAL: ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32"),
    _LOOPBACK: ("127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"),
}
_NETWORKS = [(rank, ipaddress.ip_network(network)) for rank, held in _NEAR.items() for network in held]
_METADATA_NAMES = ("metadata", "metadata.google.internal", "instance-data")


class SourceFailed(CoevalError):
    """One source does not give what it should; the next one is tried."""

    kind = "source_failed"


def download(
    url: str,
    target: Path,
    size: int | None,
    tell: Callable[[int], None],
    patience_s: float | None = None,
) -> None:
    """Write what is at ``url`` to ``target``, which may be left half-written on failure.

    More than ``size`` bytes are not taken. The host may be silent for ``patience_s``, else 30 s, and slower
    than `_LEAST_PACE` for twice that.

    Raises SourceFailed: it cannot be had, is cut off, or is larger than it should be.
    """
    limit = _LARGEST_FILE if size is None else size
    with target.open("wb") as file, _Source(url, "*/*", patience_s) as source:
        _take(source, file, limit, tell)


def read_page(url: str, patience_s: float | None = None) -> bytes:
    """The content of a small page of JSON; fails as `download` does."""
    content = BytesIO()
    with _Source(url, "application/json", patience_s) as source:
        _take(source, content, _LARGEST_PAGE, lambda _: None)
    return content.getvalue()


def _take(source: _Source, file: IO[bytes], limit: int, tell: Callable[[int], None]) -> None:
    taken = 0
    promised = source.headers.get("Content-Length", "")
    for chunk in source.chunks():
        taken += len(chunk)
        if taken > limit:
            raise SourceFailed(f"{mask_url(source.url)} holds more than the {limit:,} bytes expected")
        file.write(chunk)
        tell(taken)
    if promised.isdecimal() and taken < int(promised):
        said = f"was cut off after {taken:,} of {int(promised):,} bytes"
        raise SourceFailed(f"{mask_url(source.url)} {said}")


class _Source:
    """What a host sends, as it comes; a context, within which its connections are watched."""

    def __init__(self, url: str, accept: str, patience_s: float | None) -> None:
        self.url = url
        self.headers = HTTPMessage()
        self._accept = accept
        self._patience_s = patience_s or _TIMEOUT_S
        self._open = ExitStack()

    def __enter__(self) -> Self:
        parts = _parts(self.url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        request = Request(urlunsplit(bare))  # noqa: S310  checked above
        request.add_header("Accept", self._accept)
        request.add_header("User-Agent", "coeval")
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            # Unredirected: another host gets no password.
            request.add_unredirected_header("Authorization", f"Basic {b64encode(pair.encode()).decode()}")
        self._watch = _Watch(self._patience_s)
        way = _Way(self._watch, mask_url(self.url), _nearness_of_name(parts.hostname or ""), _port(parts))
        opener = build_opener(_Redirects(way), _Handler(way))
        with ExitStack() as undoing:
            undoing.callback(self._watch.end)
            with self._explained():
                self._response: HTTPResponse = opener.open(request, timeout=self._patience_s)
            undoing.enter_context(self._response)
            self._open = undoing.pop_all()
        self.headers = self._response.headers
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def chunks(self) -> Iterator[bytes]:
        """Raises SourceFailed where it breaks off, or is too slow."""
        with self._explained():
            while chunk := self._response.read1(_CHUNK):
                self._watch.taken += len(chunk)
                yield chunk
            if self._watch.slow:
                raise TimeoutError

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            if self._watch.slow:
                pace = f"less than {_LEAST_PACE:,} bytes a second for {_PERIODS * self._patience_s:g} s"
                raise SourceFailed(f"{mask_url(self.url)} is too slow: {pace}") from error
            raise _failed(self.url, error) from error


class _Watch:
    """Shuts a request's connections where they bring less than `_LEAST_PACE`: reading then ends at once,
    whatever it waits for, and ``slow`` says why. ``taken`` is the bytes so far."""

    def __init__(self, period_s: float) -> None:
        self.taken = 0
        self.slow = False
        self._period_s = period_s
        self._sockets: list[socket.socket] = []
        self._ended = Event()
        Thread(target=self._look, daemon=True).start()

    def add(self, connected: socket.socket) -> None:
        """Watch a connection, by a descriptor of its own: TLS takes the other one over."""
        if self.slow:
            raise TimeoutError
        self._sockets.append(connected.dup())

    def _look(self) -> None:
        behind = before = 0
        while not self._ended.wait(self._period_s):
            behind = behind + 1 if self.taken - before < _LEAST_PACE * self._period_s else 0
            before = self.taken
            if behind == _PERIODS:
                self.slow = True
                for connected in self._sockets:
                    with suppress(OSError):
                        connected.shutdown(socket.SHUT_RDWR)
                return

    def end(self) -> None:
        self._ended.set()
        for connected in self._sockets:
            connected.close()


class _Way:
    """Where a request leads: ``allowed`` is how near to this machine, which the address that was named says,
    and the one that it is connected to; ``port`` the only one of this machine."""

    def __init__(self, watch: _Watch, shown: str, allowed: int, port: int) -> None:
        self._watch = watch
        self._shown = shown
        self._allowed = allowed
        self._port = port
        self._redirected = False

    def redirect(self, url: str) -> None:
        """Raises SourceFailed where a redirect is not followed."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise SourceFailed(f"{self._shown} redirects to something else than http:// or https://")
        self._redirected = True
        self._check(_nearness_of_name(unquote(parts.hostname or "")), _port(parts))  # as urllib reads it

    def connected(self, connection: HTTPConnection, *, proxied: bool) -> None:
        """Raises SourceFailed where a redirect has led to an address that is too near; of one behind a proxy
        only the name is known."""
        self._watch.add(connection.sock)
        if not proxied:
            host, port, *_ = connection.sock.getpeername()
            self._check(_nearness(str(host)), port)

    def _check(self, found: int, port: int) -> None:
        if not self._redirected:
            self._allowed = max(self._allowed, found)
        elif found > self._allowed or (found >= _LOOPBACK and port != self._port):
            raise SourceFailed(
                f"{self._shown} redirects to an address of this machine or its own network, which is not "
                "asked; if a mirror there is meant, name its address in place of this one"
            )


def _port(parts: SplitResult) -> int:
    """The port of an address; 0 where it names none that there can be."""
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return 0


class _Redirects(HTTPRedirectHandler):
    def __init__(self, way: _Way) -> None:
        self._way = way

    def redirect_request(  # its parameters are the library's
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Request | None:
        try:
            self._way.redirect(newurl)
        except SourceFailed:
            fp.close()  # it holds the connection
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connection(HTTPConnection):
    way: _Way
    proxied: bool

    def connect(self) -> None:
        super().connect()
        self.way.connected(self, proxied=self.proxied)


class _SecureConnection(HTTPSConnection, _Connection):
    """``connect`` of `_Connection` comes before TLS."""


class _Handler(HTTPHandler, HTTPSHandler):
    """Opens what a request leads to, with TLS or without."""

    def __init__(self, way: _Way) -> None:
        self._trusted = trusted_certificates()
        super().__init__()
        self._way = way

    def http_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_made, _Connection, self._way, req), req)

    def https_open(self, req: Request) -> HTTPResponse:
        return self.do_open(partial(_made, _SecureConnection, self._way, req), req, context=self._trusted)


def _made(kind: type[_Connection], way: _Way, request: Request, host: str, **settings: Any) -> _Connection:
    """A connection on a request's way; the library names its settings."""
    connection = kind(host, **settings)
    named = unquote(urlsplit(request.full_url).netloc)  # as urllib reads it
    connection.way, connection.proxied = way, request.host != named
    return connection


def _nearness(address: str) -> int:
    """Of an address in digits; see `_NEAR`."""
    found = ipaddress.ip_address(address)
    found = getattr(found, "ipv4_mapped", None) or found
    for rank, network in _NETWORKS:
        if found.version == network.version and found in network:
            return rank
    return 0 if found.is_global else 1


def _nearness_of_name(host: str) -> int:
    """As far as a name says; 0 where only the network knows."""
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return _LINK_LOCAL
    if name == "localhost" or name.endswith(".localhost"):
        return _LOOPBACK
    with suppress(ValueError):
        return _nearness(name)
    with suppress(OSError):
        return _nearness(socket.inet_ntoa(socket.inet_aton(name)))  # 127.1, 2130706433
    return 0


def _parts(url: str) -> SplitResult:
    """The parts of an address; what is wrong with one is not quoted, as it may be part of a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SourceFailed(f"{mask_url(url)} is no http:// or https:// address")
    return parts


def _failed(url: str, error: Exception) -> SourceFailed:
    reason = f"status {error.code}" if isinstance(error, HTTPError) else str(getattr(error, "reason", error))
    said = Redactor(find_url_secrets(url)).redact_message(reason)
    return SourceFailed(f"{mask_url(url)}: {said or type(error).__name__}")
