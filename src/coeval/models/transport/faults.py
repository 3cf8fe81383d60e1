"""Maps foreign failures to our errors: exceptions of the wire and of sockets, and HTTP statuses.

No message repeats a header, a query or a foreign text with a URL: only the request, as `describe_request`
writes it, and the cause.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from yarl import URL

from coeval.core import errors
from coeval.core.foreign import decode
from coeval.core.options import PROBE_OFF, TIMEOUT
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
from coeval.models.transport.call import PROBE_TIMEOUT_S
from coeval.models.transport.pool import CONNECT_TIMEOUT_S

# The model may have answered even so: time-outs, closed requests and gateways (520–524 are Cloudflare's).
_PERHAPS_BILLED = (408, 499, 502, 504, 520, 522, 524)
# Of the others, those below 500 are a BadRequest, those above a ServerFault.
_KINDS: Mapping[int, type[errors.ModelError]] = {
    **dict.fromkeys((408, 504), errors.RequestTimeout),  # a gateway gave up; the model behind it may go on
    **dict.fromkeys((409, 425, 499), errors.ServerFault),
    **dict.fromkeys((401, 403, 407), errors.AccessDenied),
    402: errors.AccountSpent,
    404: errors.NotFound,
    429: errors.RateLimited,
}
# Characters: hosts' refusals are a sentence or two, and some repeat the whole prompt.
_EXCERPT = 500
# Characters of a host's text that are read; messages show fewer.
_READ = 1 << 14
# Proxies wrap a provider's error in their own, two or three deep; hostile JSON may nest without end.
_DEEPEST = 8
# Fields of an error body that hold its message, or a part that does.
_MESSAGE_FIELDS = ("message", "detail", "error", "errors", "metadata")
# LiteLLM appends advice on its own configuration to a provider's message.
_ADVICE = re.compile(
    r"(?<=\S)\.?\s*(?:Received Model Group=|Available Model Group |LiteLLM Retried:|LiteLLM: model group"
    r"|To drop these, set `?litellm).*"
)
_NEVER_SENT = (NoConnection, ConnectTimeout, NoTurn, NoProxy, ProxyRefusal, socket.gaierror, ssl.SSLError)
_TRANSIENT_TLS = (ssl.SSLEOFError, ssl.SSLZeroReturnError, ssl.SSLSyscallError)


SENDING_ERRORS = (WireError, OSError)
"""Every exception type that sending a request and reading its reply raises; TimeoutError is an OSError."""


def may_be_billed(status: int) -> bool:
    """Check whether a request with this status may be billed: a proxy may have missed the answer."""
    return status in _PERHAPS_BILLED


def was_never_sent(error: Exception) -> bool:
    """Check whether a foreign error means that nothing of the request was sent, for want of a connection."""
    return isinstance(error, _NEVER_SENT) or (isinstance(error, Closed) and not error.sent)


def describe_request(method: str, url: URL) -> str:
    """``POST host:port/path``: enough to find the endpoint, nothing that could be a credential."""
    port = f":{url.explicit_port}" if url.explicit_port else ""
    return f"{method} {url.host}{port}{url.path}"


def error_from_exception(
    error: Exception, where: str, timeout_s: float, *, probe: bool = False
) -> errors.ModelError:
    """Make the ModelError for one of `SENDING_ERRORS`, with retries not advised if they cannot help. A
    ``probe`` waits less long than other requests."""
    match error:
        case ConnectTimeout():
            return errors.ConnectionFailed(
                f"{where}: no connection within {min(timeout_s, CONNECT_TIMEOUT_S):g} s"
            )
        case NoConnection():
            return errors.ConnectionFailed(f"{where}: no connection ({_describe_cause(error.cause)})")
        case Lost(begun=True):
            return errors.ConnectionFailed(f"{where}: the answer was cut off")
        case Lost(cause=None):
            return errors.ConnectionFailed(f"{where}: the server closed the connection without an answer")
        case Lost():
            return errors.ConnectionFailed(f"{where}: the connection failed ({_describe_cause(error.cause)})")
        case NoTurn():
            return errors.RequestTimeout(
                f"{where}: no connection within {timeout_s:g} s; lower max_concurrency if it takes only a few"
            )
        case Closed():
            return errors.ConnectionFailed(
                f"{where}: the connection was closed, because the run ends", retry_advised=False
            )
        case NoProxy():
            return make_proxy_error(where, error.cause)
        case ProxyRefusal():
            return _error_from_proxy(error.status, str(error), where)
        case NotHttp():
            why = _first_line(str(error))
            return errors.Unreadable(f"{where}: the answer is not HTTP as we read it ({why})")
        case ssl.SSLError():
            return _error_from_tls(error, where)
        case socket.gaierror():
            return errors.ConnectionFailed(
                f"{where}: the host name cannot be resolved ({error.strerror or 'no address'}); check "
                "base_url and the network"
            )
        case TimeoutError() if not error.errno:
            longer = f"raise {TIMEOUT} if it needs longer"
            if probe and timeout_s >= PROBE_TIMEOUT_S and str(PROBE_OFF):
                longer = f"if it needs longer (to load the model, say), start without a probe: {PROBE_OFF}"
            return errors.RequestTimeout(f"{where}: no answer within {timeout_s:g} s; {longer}")
        case _:
            return errors.ConnectionFailed(f"{where}: the connection failed ({_describe_cause(error)})")


def make_proxy_error(where: str, cause: OSError) -> errors.ConnectionFailed:
    return errors.ConnectionFailed(
        f"{where}: no connection to the proxy ({_describe_cause(cause)}); check HTTP_PROXY, HTTPS_PROXY and "
        "NO_PROXY"
    )


def error_from_status(status: int, body: bytes, where: str, redactor: Redactor) -> errors.ModelError:
    """Make the ModelError for an error reply, by its status alone."""
    try:
        phrase = f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        phrase = str(status)
    words = read_error_message(body, redactor)
    message = f"{where} answered {phrase}" + (f": {words}" if words else "")
    if status < 400:
        return errors.NotFound(f"{message}; the endpoint has moved, correct base_url", status=status)
    return _KINDS.get(status, errors.BadRequest if status < 500 else errors.ServerFault)(
        message, status=status
    )


def error_behind_200(
    status: int, body: bytes, redactor: Redactor, explained: errors.ModelError | None
) -> errors.ModelError:
    """Return the error that a 200 reply holds: as the dialect explained it, else by its own status."""
    return explained or error_from_status(status, body, "the host, behind a 200,", redactor)


def error_from_garbage(
    status: int, body: bytes, cause: Exception, where: str, redactor: Redactor
) -> errors.Unreadable:
    words = excerpt(body, redactor) or "nothing"
    return errors.Unreadable(
        f"{where} answered {status} with an invalid answer ({cause}): {words}", status=status
    )


def _error_from_tls(error: Exception, where: str) -> errors.ConnectionFailed:
    """Make the error for a failed TLS handshake; only a cut connection may be retried."""
    if isinstance(error, ssl.SSLCertVerificationError):
        cause = getattr(error, "verify_message", "") or "not trusted"
        return errors.ConnectionFailed(
            f"{where}: the server's certificate was refused ({cause}); if the host is your own, name its "
            "bundle of certificates in REQUESTS_CA_BUNDLE, which goes first, or SSL_CERT_FILE",
            retry_advised=False,
        )
    if isinstance(error, _TRANSIENT_TLS):
        return errors.ConnectionFailed(f"{where}: the connection was cut during the TLS handshake")
    reason = getattr(error, "reason", None) or type(error).__name__
    return errors.ConnectionFailed(
        f"{where}: no TLS connection ({reason}); check whether base_url should begin with http://",
        retry_advised=False,
    )


def _error_from_proxy(status: int, reply: str, where: str) -> errors.ModelError:
    message = f"{where}: the proxy answered {status} {_first_line(reply)}"
    if status in (401, 403, 407):
        return errors.AccessDenied(f"{message}; check HTTPS_PROXY and its credentials", status=status)
    return errors.ConnectionFailed(message, status=status)


def _describe_cause(error: Exception | None) -> str:
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


def read_error_message(body: bytes, redactor: Redactor) -> str:
    """Return the messages in an error body, also of a provider behind the host; else an excerpt."""
    try:
        words = "; ".join(dict.fromkeys(filter(None, _find_messages(decode(body)))))
    except errors.Undecodable:
        words = ""
    return excerpt(words or body, redactor)


def _find_messages(part: Any, depth: int = 0) -> Iterator[str]:
    """Find an error's messages, in FastAPI's ``{loc, msg}`` and OpenRouter's ``raw`` reply, too."""
    if depth > _DEEPEST:
        return
    match part:
        case str():
            yield part
        case list():
            for item in part:
                yield from _find_messages(item, depth + 1)
        case {"msg": str(text), **rest}:
            location = rest.get("loc")
            names = [str(name) for name in location if name != "body"] if isinstance(location, list) else []
            yield f"{'.'.join(names)}: {text}" if names else text
        case dict():
            for name in _MESSAGE_FIELDS:
                yield from _find_messages(part.get(name), depth + 1)
            if raw := part.get("raw"):
                yield "; ".join(_find_messages(_decode_raw_reply(raw), depth + 1)) or f"{raw}"


def _decode_raw_reply(raw: Any) -> Any:
    """Decode what a provider replied to OpenRouter, which is usually JSON."""
    try:
        return decode(raw) if isinstance(raw, str) else raw
    except errors.Undecodable:
        return raw


def excerpt(raw: str | bytes, redactor: Redactor, longest: int = _EXCERPT) -> str:
    """Return the start of a host's text in one line, without a gateway's advice; redacted, then cut."""
    text = raw[:_READ].decode(errors="replace") if isinstance(raw, bytes) else raw[:_READ]
    text = _ADVICE.sub("", redactor.redact_message(" ".join(text.split())))
    return text if len(text) <= longest else f"{text[:longest]}…"


def _first_line(text: str) -> str:
    return text.strip().split("\n", 1)[0].rstrip(":")
