"""Every exception that the wire, or aiohttp, can raise has its place in our tree."""

from __future__ import annotations

import errno
import socket
import ssl
from collections.abc import Iterator
from typing import Any
from unittest.mock import MagicMock

import aiohttp
import pytest
from aiohttp import http_exceptions
from yarl import URL

from coeval.core.errors import (
    AccessDenied,
    BadRequest,
    ConnectionFailed,
    ModelError,
    NotFound,
    RateLimited,
    RequestTimeout,
    ServerFault,
    Unreadable,
)
from coeval.core.redaction import Redactor
from coeval.models.transport.body import (
    Closed,
    ConnectTimeout,
    Lost,
    NoConnection,
    NoProxy,
    NotHttp,
    NoTurn,
    ProxyRefusal,
    WireError,
)
from coeval.models.transport.faults import (
    SENDING_ERRORS,
    describe_request,
    error_from_exception,
    error_from_status,
    was_never_sent,
)
from coeval.models.transport.proxied import raise_wire_errors

WHERE = "POST host/v1/chat"
URL_WITH_KEY = URL("http://host/v1/chat?key=hidden")
UNTRUSTED = ssl.SSLCertVerificationError()
REFUSED = OSError(errno.ECONNREFUSED, "Connection refused")


def response_error(cls: type[aiohttp.ClientResponseError], status: int = 400) -> aiohttp.ClientResponseError:
    return cls(MagicMock(real_url=URL_WITH_KEY), (), status=status, message="Bad status line\n  b'SSH'")


def connector_error(cls: type[Any], cause: Exception = REFUSED) -> aiohttp.ClientConnectorError:
    error: aiohttp.ClientConnectorError = cls(MagicMock(host="host", port=80, ssl=None), cause)
    return error


MAPPED: dict[Exception, type[ModelError]] = {
    WireError(): ConnectionFailed,
    NoConnection(REFUSED): ConnectionFailed,
    ConnectTimeout(): ConnectionFailed,
    Lost(begun=True): ConnectionFailed,
    Lost(begun=False): ConnectionFailed,
    Lost(begun=False, cause=ConnectionResetError(errno.ECONNRESET, "reset")): ConnectionFailed,
    NoTurn(): RequestTimeout,
    Closed(sent=True): ConnectionFailed,
    NotHttp("Invalid character"): Unreadable,
    NoProxy(REFUSED): ConnectionFailed,
    ProxyRefusal(502, "Bad Gateway"): ConnectionFailed,
    socket.gaierror(-2, "unknown"): ConnectionFailed,
    aiohttp.ClientError(): ConnectionFailed,
    aiohttp.ClientConnectionError("Connector is closed."): ConnectionFailed,
    aiohttp.ClientConnectionResetError("Cannot write"): ConnectionFailed,
    aiohttp.ClientOSError(errno.EPIPE, "Broken pipe"): ConnectionFailed,
    connector_error(aiohttp.ClientConnectorError): ConnectionFailed,
    connector_error(aiohttp.ClientConnectorDNSError, socket.gaierror(-2, "unknown")): ConnectionFailed,
    connector_error(aiohttp.ClientProxyConnectionError): ConnectionFailed,
    connector_error(
        aiohttp.ClientConnectorCertificateError, ssl.SSLCertVerificationError()
    ): ConnectionFailed,
    connector_error(aiohttp.ClientConnectorSSLError, ssl.SSLError(1, "x")): ConnectionFailed,
    connector_error(aiohttp.ClientSSLError, ssl.SSLEOFError(8, "eof")): ConnectionFailed,
    aiohttp.ServerConnectionError(): ConnectionFailed,
    aiohttp.ServerDisconnectedError(): ConnectionFailed,
    aiohttp.ServerFingerprintMismatch(b"a", b"b", "host", 443): ConnectionFailed,
    aiohttp.ConnectionTimeoutError(): ConnectionFailed,
    aiohttp.ServerTimeoutError(): RequestTimeout,
    aiohttp.SocketTimeoutError(): RequestTimeout,
    aiohttp.ClientPayloadError("not all bytes"): ConnectionFailed,
    aiohttp.InvalidURL("http://host/?key=hidden"): ConnectionFailed,
    aiohttp.InvalidUrlClientError("x?key=hidden"): ConnectionFailed,
    aiohttp.InvalidUrlRedirectClientError("x?key=hidden"): ConnectionFailed,
    aiohttp.NonHttpUrlClientError("x?key=hidden"): ConnectionFailed,
    aiohttp.NonHttpUrlRedirectClientError("x?key=hidden"): ConnectionFailed,
    aiohttp.RedirectClientError("x?key=hidden"): ConnectionFailed,
    response_error(aiohttp.ClientResponseError): Unreadable,
    response_error(aiohttp.ContentTypeError): Unreadable,
    response_error(aiohttp.TooManyRedirects): Unreadable,
    response_error(aiohttp.WSServerHandshakeError): Unreadable,
    response_error(aiohttp.ClientHttpProxyError, 502): ConnectionFailed,
    http_exceptions.HttpProcessingError(message="no"): Unreadable,
    http_exceptions.BadHttpMessage("no"): Unreadable,
    http_exceptions.HttpBadRequest("no"): Unreadable,
    http_exceptions.PayloadEncodingError("no"): Unreadable,
    http_exceptions.ContentEncodingError("no"): Unreadable,
    http_exceptions.TransferEncodingError("no"): Unreadable,
    http_exceptions.ContentLengthError("no"): Unreadable,
    http_exceptions.DecompressSizeError("no"): Unreadable,
    http_exceptions.LineTooLong(b"no", 1): Unreadable,
    http_exceptions.InvalidHeader("no"): Unreadable,
    http_exceptions.BadStatusLine("no"): Unreadable,
    http_exceptions.BadHttpMethod("no"): Unreadable,
    http_exceptions.InvalidURLError("no"): Unreadable,
    aiohttp.EofStream(): ConnectionFailed,
    TimeoutError(): RequestTimeout,
    TimeoutError(errno.ETIMEDOUT, "Connection timed out"): ConnectionFailed,
    ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"): ConnectionFailed,
    OSError(errno.EMFILE, "Too many open files"): ConnectionFailed,
    ssl.SSLError(1, "wrong version"): ConnectionFailed,
}
NOT_OURS = {"UnixClientConnectorError", "UploadAbortedError"}
"""We open no Unix sockets and abort no upload ourselves; both are ClientErrors and so ConnectionFailed."""


def family(cls: type[BaseException]) -> Iterator[type[BaseException]]:
    yield cls
    for child in cls.__subclasses__():
        yield from family(child)


def as_raised(error: Exception) -> Exception:
    """What a wire raises for it."""
    try:
        with raise_wire_errors():
            raise error
    except SENDING_ERRORS as raised:
        return raised


def test_no_exception_of_aiohttp_is_without_a_place() -> None:
    known = {type(error).__name__ for error in MAPPED} | NOT_OURS
    roots = (aiohttp.ClientError, http_exceptions.HttpProcessingError, aiohttp.EofStream)
    theirs = {cls.__name__ for root in roots for cls in family(root) if cls.__module__.startswith("aiohttp")}
    assert theirs - known == set()


def test_no_exception_of_the_wire_is_without_a_place() -> None:
    assert set(family(WireError)) - {type(error) for error in MAPPED} == set()


def test_what_found_no_connection_was_never_sent_and_whatever_may_have_been_was() -> None:
    """A permit of ``max_calls`` comes back for these, and for nothing else."""
    assert {type(error) for error in MAPPED if was_never_sent(as_raised(error))} == {
        NoConnection,
        ConnectTimeout,
        NoTurn,
        NoProxy,
        ProxyRefusal,
        socket.gaierror,
        ssl.SSLError,
        aiohttp.ClientConnectorError,
        aiohttp.ClientConnectorDNSError,
        aiohttp.ClientProxyConnectionError,
        aiohttp.ClientConnectorCertificateError,
        aiohttp.ClientConnectorSSLError,
        aiohttp.ClientSSLError,
        aiohttp.ClientHttpProxyError,
        aiohttp.ConnectionTimeoutError,
    }
    assert was_never_sent(Closed(sent=False))


@pytest.mark.parametrize(("error", "ours"), MAPPED.items(), ids=[type(error).__name__ for error in MAPPED])
def test_each_foreign_exception_has_its_class_and_a_clean_message(
    error: Exception, ours: type[ModelError]
) -> None:
    reported = error_from_exception(as_raised(error), WHERE, 60)
    assert type(reported) is ours
    assert str(reported).startswith(f"{WHERE}: ")
    assert "hidden" not in str(reported)
    assert "\n" not in str(reported)


@pytest.mark.parametrize(
    ("error", "advised", "words"),
    [
        (NoConnection(REFUSED), True, "no connection (Connection refused)"),
        (NoConnection(OSError(errno.EHOSTUNREACH, "Connect call failed")), True, "(No route to host)"),
        (
            Lost(begun=False, cause=ssl.SSLError(1, "[SSL: BAD_RECORD] bad record")),
            True,
            "[SSL: BAD_RECORD] bad record",
        ),
        (ConnectTimeout(), True, "no connection within 30 s"),
        (Lost(begun=True), True, "the answer was cut off"),
        (Lost(begun=False), True, "closed the connection without an answer"),
        (NotHttp("Invalid character"), True, "the answer is not HTTP"),
        (UNTRUSTED, False, "SSL_CERT_FILE"),
        (ssl.SSLError(1, "x"), False, "http://"),
        (ssl.SSLEOFError(8, "x"), True, "handshake"),
        (socket.gaierror(-2, "unknown"), True, "cannot be resolved (unknown)"),
        (NoConnection(OSError(errno.EMFILE, "Too many open files")), True, "ulimit -n"),
        (
            connector_error(aiohttp.ClientConnectorCertificateError, UNTRUSTED),
            False,
            "SSL_CERT_FILE",
        ),
        (connector_error(aiohttp.ClientConnectorSSLError, ssl.SSLError(1, "x")), False, "http://"),
        (connector_error(aiohttp.ClientConnectorSSLError, ssl.SSLEOFError(8, "x")), True, "handshake"),
        (connector_error(aiohttp.ClientConnectorDNSError, socket.gaierror(-2, "unknown")), True, "resolved"),
        (connector_error(aiohttp.ClientProxyConnectionError), True, "NO_PROXY"),
        (OSError(errno.EMFILE, "Too many open files"), True, "ulimit -n"),
    ],
)
def test_what_another_attempt_cannot_mend_is_not_advised(
    error: Exception, advised: bool, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        monkeypatch.delenv(name, raising=False)
    reported = error_from_exception(as_raised(error), WHERE, 60)
    assert reported.retry_advised is advised
    assert words in str(reported)


def test_a_proxy_that_wants_credentials_says_so() -> None:
    error = error_from_exception(as_raised(response_error(aiohttp.ClientHttpProxyError, 407)), WHERE, 60)
    assert isinstance(error, AccessDenied)
    assert "HTTPS_PROXY" in str(error)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b'{"error": {"message": "too long", "type": "x"}}', ": too long"),
        (b'{"message": "too long"}', ": too long"),
        (b'{"detail": "too long"}', ": too long"),
        (b'{"detail": [{"loc": 1}]}', ': {"detail": [{"loc": 1}]}'),
        (b"<html>\n  too   long</html>", ": <html> too long</html>"),
        (b"x" * 5000, ": " + "x" * 500 + "…"),
        (b"", ""),
    ],
)
def test_an_error_repeats_the_providers_words(body: bytes, said: str) -> None:
    assert (
        str(error_from_status(429, body, WHERE, Redactor()))
        == f"{WHERE} answered 429 Too Many Requests{said}"
    )


@pytest.mark.parametrize(
    ("status", "kind"), [(429, RateLimited), (599, ServerFault), (418, BadRequest), (301, NotFound)]
)
def test_statuses_without_a_row_of_their_own_are_read_by_their_hundred(
    status: int, kind: type[ModelError]
) -> None:
    error = error_from_status(status, b"", WHERE, Redactor())
    assert type(error) is kind
    assert error.status == status


def test_a_place_holds_neither_query_nor_user() -> None:
    assert (
        describe_request("GET", URL("https://u:p@host:8443/v1/models?key=hidden"))
        == "GET host:8443/v1/models"
    )
