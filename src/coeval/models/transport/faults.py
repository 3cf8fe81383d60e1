"""Where foreign failures become ours: the wire's exceptions, the sockets', aiohttp's, and HTTP statuses.

No message repeats a header, a query or a foreign text that holds a URL: only the place, as
`place` writes it, and the cause.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
import sys
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from yarl import URL

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    BadRequest,
    ConnectionFailed,
    ModelError,
    NotFound,
    RateLimited,
    RequestTimeout,
    ServerFault,
    Undecodable,
    Unreadable,
)
from coeval.core.foreign import decode
from coeval.core.options import PROBE_OFF, TIMEOUT
from coeval.core.redaction import Redactor
from coeval.models.transport.body import (
    Closed,
    ConnectTimeout,
    Lost,
    NoConnection,
    NotHttp,
    NoTurn,
    WireError,
)
from coeval.models.transport.call import PROBE_TIMEOUT_S
from coeval.models.transport.pool import CONNECT_TIMEOUT_S

# After these the model may have answered: time-outs, closed requests and gateways (520–524 are Cloudflare's).
_PERHAPS_BILLED = (408, 499, 502, 504, 520, 522, 524)
# Of the others, those below 500 are a BadRequest, those above a ServerFault.
_KINDS: Mapping[int, type[ModelError]] = {
    **dict.fromkeys((408, 504), RequestTimeout),  # a gateway waited no longer; what is behind it may yet work
    **dict.fromkeys((409, 425, 499), ServerFault),
    **dict.fromkeys((401, 403, 407), AccessDenied),
    402: AccountSpent,
    404: NotFound,
    429: RateLimited,
}
# Characters: hosts' refusals are a sentence or two, and some repeat the whole prompt.
_EXCERPT = 500
# Characters of what a host says that are looked at; no message shows so many.
_READ = 1 << 14
# Proxies wrap a provider's error in their own, two or three deep; JSON could nest for ever.
_DEEPEST = 8
# Where an error body has its words, or more of it that has.
_SAYING = ("message", "detail", "error", "errors", "metadata")
# What LiteLLM adds to a provider's words: advice on its own configuration.
_ADVICE = re.compile(
    r"(?<=\S)\.?\s*(?:Received Model Group=|Available Model Group |LiteLLM Retried:|LiteLLM: model group"
    r"|To drop these, set `?litellm).*"
)
_TRANSIENT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


def foreign() -> tuple[type[Exception], ...]:
    """All that sending a request and reading its answer raises; TimeoutError is an OSError.

    aiohttp's exceptions are among them where it is loaded, that is, where a proxy is in use.
    """
    if "aiohttp" not in sys.modules:
        return WireError, OSError
    from aiohttp import ClientError, EofStream
    from aiohttp.http_exceptions import HttpProcessingError

    return WireError, OSError, ClientError, HttpProcessingError, EofStream


def perhaps_billed(status: int) -> bool:
    """Whether a request that ends in this status may be billed all the same: somebody on the way did not wait
    for the answer, or could not read it."""
    return status in _PERHAPS_BILLED


def never_sent(error: Exception) -> bool:
    """Whether one of `foreign` means that nothing of the request went out: there was no connection."""
    error = _as_wire(error)
    if isinstance(error, NoConnection | ConnectTimeout | NoTurn | socket.gaierror | ssl.SSLError):
        return True
    return not error.sent if isinstance(error, Closed) else _at_proxy(error, "") is not None


def _as_wire(error: Exception) -> Exception:
    """What our own wire raises where aiohttp raised this; itself where the wire knows nothing like it."""
    if "aiohttp" not in sys.modules:
        return error
    import aiohttp
    from aiohttp.http_exceptions import HttpProcessingError

    match error:
        case aiohttp.ClientProxyConnectionError() | aiohttp.ClientHttpProxyError():
            return error
        case aiohttp.ConnectionTimeoutError():
            return ConnectTimeout()
        case aiohttp.ClientConnectorCertificateError():
            return error.certificate_error
        case aiohttp.ClientSSLError():
            return error.os_error
        case aiohttp.ClientConnectorDNSError():
            return socket.gaierror(socket.EAI_NONAME, error.os_error.strerror)
        case aiohttp.ClientConnectorError():
            return NoConnection(error.os_error)
        case aiohttp.ServerDisconnectedError() | aiohttp.EofStream():
            return Lost(begun=False)
        case aiohttp.ClientPayloadError():
            return Lost(begun=True)
        case aiohttp.ClientResponseError() | HttpProcessingError():
            return NotHttp(error.message)
        case _:
            return error


def _at_proxy(error: Exception, where: str) -> ModelError | None:
    """The ModelError for what went wrong between us and a proxy; None for anything else."""
    if "aiohttp" not in sys.modules:
        return None
    import aiohttp

    match error:
        case aiohttp.ClientProxyConnectionError():
            return no_proxy(where, error.os_error)
        case aiohttp.ClientHttpProxyError():
            return _from_proxy(error.status, error.message, where)
        case _:
            return None


def place(method: str, url: URL) -> str:
    """``POST host:port/path``: enough to find the endpoint, nothing that could be a credential."""
    port = f":{url.explicit_port}" if url.explicit_port else ""
    return f"{method} {url.host}{port}{url.path}"


def from_exception(error: Exception, where: str, timeout_s: float, *, probe: bool = False) -> ModelError:
    """The ModelError for one of `foreign`; retrying is not advised where it cannot help. A ``probe`` waits
    less long than other requests do."""
    error = _as_wire(error)
    if (at_proxy := _at_proxy(error, where)) is not None:
        return at_proxy
    match error:
        case ConnectTimeout():
            return ConnectionFailed(f"{where}: no connection within {min(timeout_s, CONNECT_TIMEOUT_S):g} s")
        case NoConnection():
            return ConnectionFailed(f"{where}: no connection ({_cause(error.cause)})")
        case Lost(begun=True):
            return ConnectionFailed(f"{where}: the answer was cut off")
        case Lost(cause=None):
            return ConnectionFailed(f"{where}: the server closed the connection without an answer")
        case Lost():
            return ConnectionFailed(f"{where}: the connection failed ({_cause(error.cause)})")
        case NoTurn():
            return RequestTimeout(
                f"{where}: no connection within {timeout_s:g} s; lower max_concurrency if it keeps but a few"
            )
        case Closed():
            return ConnectionFailed(
                f"{where}: the connection was closed, because the run ends", retry_advised=False
            )
        case NotHttp():
            why = _first_line(str(error))
            return Unreadable(f"{where}: the answer is not HTTP as we read it ({why})")
        case ssl.SSLError():
            return _from_tls(error, where)
        case socket.gaierror():
            return ConnectionFailed(
                f"{where}: the host name cannot be resolved ({error.strerror or 'no address'}); check "
                "base_url and the network"
            )
        case TimeoutError() if not error.errno:
            longer = f"raise {TIMEOUT} if it needs longer"
            if probe and timeout_s >= PROBE_TIMEOUT_S and str(PROBE_OFF):
                longer = f"if it needs longer (to load the model, say), start without a probe: {PROBE_OFF}"
            return RequestTimeout(f"{where}: no answer within {timeout_s:g} s; {longer}")
        case _:
            return ConnectionFailed(f"{where}: the connection failed ({_cause(error)})")


def no_proxy(where: str, cause: OSError) -> ConnectionFailed:
    """The error for a proxy that cannot be reached."""
    return ConnectionFailed(
        f"{where}: no connection to the proxy ({_cause(cause)}); check HTTP_PROXY, HTTPS_PROXY and NO_PROXY"
    )


def from_status(status: int, body: bytes, where: str, redactor: Redactor) -> ModelError:
    """The ModelError for an answer that is an error, by its status alone."""
    try:
        phrase = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = str(status)
    words = said(body, redactor)
    message = f"{where} answered {phrase}" + (f": {words}" if words else "")
    if status < 400:
        return NotFound(f"{message}; the endpoint has moved, correct base_url", status=status)
    return _KINDS.get(status, BadRequest if status < 500 else ServerFault)(message, status=status)


def behind_200(status: int, body: bytes, redactor: Redactor, explained: ModelError | None) -> ModelError:
    """The error in a 200 that holds one, of that status: as its words say, else by the status alone."""
    return explained or from_status(status, body, "the host, behind a 200,", redactor)


def from_garbage(status: int, body: bytes, cause: Exception, where: str, redactor: Redactor) -> Unreadable:
    """The error for a body that should be an answer and is none."""
    said = excerpt(body, redactor) or "nothing"
    return Unreadable(f"{where} answered {status} with what is no answer ({cause}): {said}", status=status)


def _from_tls(error: Exception, where: str) -> ConnectionFailed:
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = getattr(error, "verify_message", "") or "not trusted"
        return ConnectionFailed(
            f"{where}: the server's certificate was refused ({cause}); if the host is your own, name its "
            "bundle of certificates in REQUESTS_CA_BUNDLE, which goes first, or SSL_CERT_FILE",
            retry_advised=False,
        )
    if isinstance(error, _TRANSIENT_TLS):
        return ConnectionFailed(f"{where}: the connection was cut during the TLS handshake")
    reason = getattr(error, "reason", None) or type(error).__name__
    return ConnectionFailed(
        f"{where}: no TLS connection ({reason}); check whether base_url should begin with http://",
        retry_advised=False,
    )


def _from_proxy(status: int, said: str, where: str) -> ModelError:
    message = f"{where}: the proxy answered {status} {_first_line(said)}"
    if status in (401, 403, 407):
        return AccessDenied(f"{message}; check HTTPS_PROXY and its credentials", status=status)
    return ConnectionFailed(message, status=status)


def _cause(error: Exception | None) -> str:
    if isinstance(error, OSError):
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return "too many open files; raise `ulimit -n` or lower max_concurrency"
        # TLS and the resolver number their errors themselves.
        number = None if isinstance(error, ssl.SSLError | socket.gaierror) else error.errno
        if number is not None and number in errno.errorcode:
            return os.strerror(number)  # an event loop may put the address in place of the reason
        if error.strerror:
            return error.strerror
    return type(error).__name__


def said(body: bytes, redactor: Redactor) -> str:
    """Return what an error body says in words, of whoever stands behind the host too; else an excerpt."""
    try:
        words = "; ".join(dict.fromkeys(filter(None, _words(decode(body)))))
    except Undecodable:
        words = ""
    return excerpt(words or body, redactor)


def _words(part: Any, depth: int = 0) -> Iterator[str]:
    """Find the texts of an error: messages, FastAPI's ``{loc, msg}``, the ``raw`` reply of OpenRouter's
    provider."""
    if depth > _DEEPEST:
        return
    match part:
        case str():
            yield part
        case list():
            for item in part:
                yield from _words(item, depth + 1)
        case {"msg": str(text), **rest}:
            place = rest.get("loc")
            names = [str(name) for name in place if name != "body"] if isinstance(place, list) else []
            yield f"{'.'.join(names)}: {text}" if names else text
        case dict():
            for name in _SAYING:
                yield from _words(part.get(name), depth + 1)
            if raw := part.get("raw"):
                yield "; ".join(_words(_behind(raw), depth + 1)) or f"{raw}"


def _behind(raw: Any) -> Any:
    """What a provider replied to OpenRouter, which is JSON more often than not."""
    try:
        return decode(raw) if isinstance(raw, str) else raw
    except Undecodable:
        return raw


def excerpt(said: str | bytes, redactor: Redactor, longest: int = _EXCERPT) -> str:
    """The beginning of what a host said, in one line; without a gateway's advice, and without credentials,
    which go before it is cut."""
    text = said[:_READ].decode(errors="replace") if isinstance(said, bytes) else said[:_READ]
    text = _ADVICE.sub("", redactor.redact_message(" ".join(text.split())))
    return text if len(text) <= longest else f"{text[:longest]}…"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].rstrip(":")
