"""What the environment says about reaching hosts: proxy, certificates, open files; and file downloads."""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
import sys
import urllib.request
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

from yarl import URL

from coeval.core.errors import CoevalError, UsageError
from coeval.core.redaction import Redactor
from coeval.core.shown_url import find_url_secrets, mask_url

# More than any run opens; a system without a limit would otherwise set a billion.
_ENOUGH_FILES = 65_536
# The first that is set replaces the default (the system's, or OpenSSL's own variables).
_BUNDLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")


def find_proxy(url: URL) -> URL | None:
    """Return the proxy that ``HTTP_PROXY``, ``HTTPS_PROXY``, ``ALL_PROXY`` and ``NO_PROXY`` name for a URL.
    Called once per endpoint: aiohttp's own ``trust_env`` asks a thread twice for every request."""
    proxies = urllib.request.getproxies()
    address = proxies.get(url.scheme) or proxies.get("all")
    if not address or urllib.request.proxy_bypass(f"{url.host}:{url.port}"):
        return None
    try:
        proxy = URL(address if "://" in address else f"http://{address}")
    except ValueError:
        # The reason would quote what may be a part of a password.
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// is not a URL: http://host:port, where "
            "signs of a password such as / and @ are written %2F and %40. Correct it, or name the host in "
            "NO_PROXY."
        ) from None
    if proxy.scheme not in ("http", "https") or not proxy.host:
        raise UsageError(
            f"the proxy set in the environment for {url.scheme}:// ({proxy.scheme}://{proxy.host}) cannot be "
            "used: only http:// and https:// proxies are. Set another, or name the host in NO_PROXY."
        )
    return proxy


def load_certificates() -> ssl.SSLContext:
    """Load the certificate bundle of ``REQUESTS_CA_BUNDLE`` or ``CURL_CA_BUNDLE``, else the default.
    ``SSL_CERT_FILE`` and ``SSL_CERT_DIR`` are part of the default: OpenSSL reads them."""
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
                f"{name}={bundle} is not a usable certificate bundle ({error.strerror or error}); "
                "correct it or unset it"
            ) from error
    return ssl.create_default_context()


def raise_open_file_limit() -> None:
    """Raise the limit on open files: a process needs a socket per request, more than the usual 1,024."""
    if sys.platform == "win32":
        return
    import resource  # not on Windows

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = _ENOUGH_FILES if hard == resource.RLIM_INFINITY else min(hard, _ENOUGH_FILES)
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


# --- File downloads
#
# A host must decide neither how long we wait nor whom we contact: one that sends too little is given up, and
# a redirect may lead no nearer to this machine than the named address.

# As for connections to models (`CONNECT_TIMEOUT_S`).
_TIMEOUT_S = 30
# A pipe's buffer on Linux; larger reads return no more.
_CHUNK = 1 << 16
# An index page has some hundred kilobytes; this bounds an endless one.
_LARGEST_PAGE = 32 << 20
# Above every asset of the manifest (`du ~/.cache/coeval`); this bounds an endless file.
_LARGEST_FILE = 256 << 20
_LEAST_PACE, _PERIODS = 1024, 2
"""Bytes a second, and for how many periods of ``patience_s`` a host may send less: two, since a process that
was stopped for a while finds one such period when it resumes. A modem of the nineties had three times this
pace; a slower host only keeps the connection open with a byte now and then."""

_LINK_LOCAL, _LOOPBACK = 3, 2
# How near to this machine an address is, by rank: 3 for link-local ones, and others at which clouds (AWS,
# Alibaba, Azure) give a machine its credentials; 2 for loopback; 1 for other private ones; 0 for public ones.
_NEAR = {
    _LINK_LOCAL: ("169.254.0.0/16", "fe80::/10", "fd00:ec2::/32", "100.100.100.200/32", "168.63.129.16/32"),
    _LOOPBACK: ("127.0.0.0/8", "::1/128", "0.0.0.0/8", "::/128"),
}
_NETWORKS = [(rank, ipaddress.ip_network(network)) for rank, held in _NEAR.items() for network in held]
_METADATA_NAMES = ("metadata", "metadata.google.internal", "instance-data")


class SourceFailed(CoevalError, kind="source_failed"):
    """A source does not give what it should; the next one is tried."""


def download(
    url: str,
    target: Path,
    size: int | None,
    tell: Callable[[int], None],
    patience_s: float | None = None,
) -> None:
    """Download ``url`` to ``target``, which may be left half-written on failure. Takes at most ``size``
    bytes. The host may be silent for ``patience_s`` (default 30 s), and slower than `_LEAST_PACE` for twice
    that. Raises SourceFailed: it cannot be had, is cut off, or is too large."""
    limit = _LARGEST_FILE if size is None else size
    with target.open("wb") as file, _Download(url, "*/*", patience_s) as source:
        _copy_limited(source, file, limit, tell)


def read_page(url: str, patience_s: float | None = None) -> bytes:
    content = BytesIO()
    with _Download(url, "application/json", patience_s) as source:
        _copy_limited(source, content, _LARGEST_PAGE, lambda _: None)
    return content.getvalue()


def _copy_limited(source: _Download, file: IO[bytes], limit: int, tell: Callable[[int], None]) -> None:
    received = 0
    announced = source.headers.get("Content-Length", "")
    for chunk in source.read_chunks():
        received += len(chunk)
        if received > limit:
            raise SourceFailed(f"{mask_url(source.url)} holds more than the {limit:,} bytes expected")
        file.write(chunk)
        tell(received)
    if announced.isdecimal() and received < int(announced):
        problem = f"was cut off after {received:,} of {int(announced):,} bytes"
        raise SourceFailed(f"{mask_url(source.url)} {problem}")


class _Download:
    """A download in progress, as a context within which its pace is watched."""

    def __init__(self, url: str, accept: str, patience_s: float | None) -> None:
        self.url = url
        self.headers = HTTPMessage()
        self._accept = accept
        self._patience_s = patience_s or _TIMEOUT_S
        self._open = ExitStack()

    def __enter__(self) -> Self:
        """Send the request, with the URL's password if it has one; SourceFailed if that fails."""
        parts = _split_http_url(self.url)
        bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
        request = urllib.request.Request(urlunsplit(bare))  # noqa: S310  checked above
        request.add_header("Accept", self._accept)
        request.add_header("User-Agent", "coeval")
        if parts.username:
            pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            # Unredirected: another host gets no password.
            request.add_unredirected_header("Authorization", f"Basic {b64encode(pair.encode()).decode()}")
        self._watch = _PaceWatch(self._patience_s)
        guard = _RedirectGuard(
            self._watch,
            mask_url(self.url),
            _rate_nearness_by_name(parts.hostname or ""),
            _port_or_zero(parts),
        )
        opener = urllib.request.build_opener(_Redirects(guard), _Handler(guard))
        with ExitStack() as undoing:
            undoing.callback(self._watch.end)
            with self._raise_source_failed():
                self._response: HTTPResponse = opener.open(request, timeout=self._patience_s)
            undoing.enter_context(self._response)
            self._open = undoing.pop_all()
        self.headers = self._response.headers
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def read_chunks(self) -> Iterator[bytes]:
        """Yield the content; SourceFailed if it breaks off or is too slow."""
        with self._raise_source_failed():
            while chunk := self._response.read1(_CHUNK):
                self._watch.received_bytes += len(chunk)
                yield chunk
            if self._watch.slow:
                raise TimeoutError

    @contextmanager
    def _raise_source_failed(self) -> Iterator[None]:
        try:
            yield
        except (OSError, HTTPException, ValueError) as error:
            if isinstance(error, HTTPError):
                error.close()  # it holds the connection
            if self._watch.slow:
                pace = f"less than {_LEAST_PACE:,} bytes a second for {_PERIODS * self._patience_s:g} s"
                raise SourceFailed(f"{mask_url(self.url)} is too slow: {pace}") from error
            raise _make_download_error(self.url, error) from error


class _PaceWatch:
    """Shuts down a download's connections once they are slower than `_LEAST_PACE`."""

    def __init__(self, period_s: float) -> None:
        self.received_bytes = 0
        self.slow = False
        self._period_s = period_s
        self._sockets: list[socket.socket] = []
        self._ended = Event()
        Thread(target=self._watch_pace, daemon=True).start()

    def add(self, connected: socket.socket) -> None:
        """Watch a connection by a duplicate descriptor: TLS takes over the original."""
        if self.slow:
            raise TimeoutError
        self._sockets.append(connected.dup())

    def _watch_pace(self) -> None:
        behind = before = 0
        while not self._ended.wait(self._period_s):
            behind = behind + 1 if self.received_bytes - before < _LEAST_PACE * self._period_s else 0
            before = self.received_bytes
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


class _RedirectGuard:
    """Lets redirects lead no nearer to this machine than the named address, and to its ``port``."""

    def __init__(self, watch: _PaceWatch, shown: str, allowed: int, port: int) -> None:
        self._watch = watch
        self._shown = shown
        self._allowed = allowed
        self._port = port
        self._redirected = False

    def note_and_check_redirect(self, url: str) -> None:
        """Raise SourceFailed unless a redirect may be followed."""
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https"):
            raise SourceFailed(f"{self._shown} redirects to an address that is not http:// or https://")
        self._redirected = True
        self._allow_or_check_nearness(
            _rate_nearness_by_name(unquote(parts.hostname or "")), _port_or_zero(parts)
        )  # as urllib reads it

    def watch_and_check_connection(self, connection: HTTPConnection, *, proxied: bool) -> None:
        """Raise SourceFailed if a redirect led too near. Behind a proxy, only the name is known."""
        self._watch.add(connection.sock)
        if not proxied:
            host, port, *_ = connection.sock.getpeername()
            self._allow_or_check_nearness(_rate_ip_nearness(str(host)), port)

    def _allow_or_check_nearness(self, nearness: int, port: int) -> None:
        if not self._redirected:
            self._allowed = max(self._allowed, nearness)
        elif nearness > self._allowed or (nearness >= _LOOPBACK and port != self._port):
            raise SourceFailed(
                f"{self._shown} redirects to an address of this machine or its own network, which is "
                "refused; if a mirror there is meant, name its address in place of this one"
            )


def _port_or_zero(parts: SplitResult) -> int:
    try:
        return parts.port or (443 if parts.scheme == "https" else 80)
    except ValueError:
        return 0


class _Redirects(urllib.request.HTTPRedirectHandler):
    def __init__(self, guard: _RedirectGuard) -> None:
        self._guard = guard

    def redirect_request(  # its parameters are the library's
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        try:
            self._guard.note_and_check_redirect(newurl)
        except SourceFailed:
            fp.close()  # it holds the connection
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


class _Connection(HTTPConnection):
    guard: _RedirectGuard
    proxied: bool

    def connect(self) -> None:
        super().connect()
        self.guard.watch_and_check_connection(self, proxied=self.proxied)


class _SecureConnection(HTTPSConnection, _Connection):
    """``connect`` of `_Connection` comes before TLS."""


class _Handler(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    """Opens a request's connections, with TLS or without."""

    def __init__(self, guard: _RedirectGuard) -> None:
        self._trusted = load_certificates()
        super().__init__()
        self._guard = guard

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_make_connection, _Connection, self._guard, req), req)

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(
            partial(_make_connection, _SecureConnection, self._guard, req), req, context=self._trusted
        )


def _make_connection(
    kind: type[_Connection],
    guard: _RedirectGuard,
    request: urllib.request.Request,
    host: str,
    **settings: Any,
) -> _Connection:
    connection = kind(host, **settings)
    target_host = unquote(urlsplit(request.full_url).netloc)  # as urllib reads it
    connection.guard, connection.proxied = guard, request.host != target_host
    return connection


def _rate_ip_nearness(address: str) -> int:
    """Rank how near an IP address is to this machine; see `_NEAR`."""
    ip = ipaddress.ip_address(address)
    ip = getattr(ip, "ipv4_mapped", None) or ip
    for rank, network in _NETWORKS:
        if ip.version == network.version and ip in network:
            return rank
    return 0 if ip.is_global else 1


def _rate_nearness_by_name(host: str) -> int:
    """Rank a host name's nearness by the name alone; 0 if only the network knows."""
    name = host.rstrip(".").lower()
    if name in _METADATA_NAMES:
        return _LINK_LOCAL
    if name == "localhost" or name.endswith(".localhost"):
        return _LOOPBACK
    with suppress(ValueError):
        return _rate_ip_nearness(name)
    with suppress(OSError):
        return _rate_ip_nearness(socket.inet_ntoa(socket.inet_aton(name)))  # 127.1, 2130706433
    return 0


def _split_http_url(url: str) -> SplitResult:
    """Split a URL. The message about an invalid one does not quote it, as it may hold a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SourceFailed(f"{mask_url(url)} is no http:// or https:// address")
    return parts


def _make_download_error(url: str, error: Exception) -> SourceFailed:
    reason = f"status {error.code}" if isinstance(error, HTTPError) else str(getattr(error, "reason", error))
    cause = Redactor(find_url_secrets(url)).redact_message(reason)
    return SourceFailed(f"{mask_url(url)}: {cause or type(error).__name__}")
