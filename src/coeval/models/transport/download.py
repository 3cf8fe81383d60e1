"""A file over HTTP to disk, with proxies, certificates and passwords as the environment and the URL say."""

from __future__ import annotations

import ssl
from base64 import b64encode
from collections.abc import Callable
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from typing import IO
from urllib.error import HTTPError
from urllib.parse import SplitResult, unquote, urlsplit, urlunsplit
from urllib.request import HTTPSHandler, Request, build_opener

from coeval.core.errors import CoevalError
from coeval.core.secrets.redaction import Redactor
from coeval.core.secrets.shown_url import shown_url, url_secrets
from coeval.models.transport.network import trusted_certificates

__all__ = ["SourceFailed", "download", "read_page"]

_TIMEOUT_S = 30
_CHUNK = 1 << 16
_LARGEST_PAGE = 32 << 20
_LARGEST_FILE = 256 << 20


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

    More than ``size`` bytes are not taken. The host may be silent for ``patience_s``, else 30 s.

    Raises
    ------
    SourceFailed
        it cannot be had, is cut off, or is larger than it should be.
    """
    limit = _LARGEST_FILE if size is None else size
    with target.open("wb") as file:
        _take(_open(url, "*/*", patience_s), url, file, limit, tell)


def read_page(url: str, accept: str, patience_s: float | None = None) -> tuple[str, bytes]:
    """``(media type, content)`` of a small page; fails as `download` does."""
    with _open(url, accept, patience_s) as response:
        return response.headers.get_content_type(), _read(response, _LARGEST_PAGE, url)


def _take(response: HTTPResponse, url: str, file: IO[bytes], limit: int, tell: Callable[[int], None]) -> None:
    taken = 0
    with response:
        promised = response.headers.get("Content-Length", "")
        while chunk := _read(response, _CHUNK, url):
            taken += len(chunk)
            if taken > limit:
                raise SourceFailed(f"{shown_url(url)} holds more than the {limit:,} bytes expected")
            file.write(chunk)
            tell(taken)
    if promised.isdecimal() and taken < int(promised):
        raise SourceFailed(f"{shown_url(url)} was cut off after {taken:,} of {int(promised):,} bytes")


def _open(url: str, accept: str, patience_s: float | None) -> HTTPResponse:
    parts = _parts(url)
    request = Request(urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])))  # noqa: S310  checked above
    request.add_header("Accept", accept)
    request.add_header("User-Agent", "coeval")
    if parts.username:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        # Unredirected: another host gets no password.
        request.add_unredirected_header("Authorization", f"Basic {b64encode(pair.encode()).decode()}")
    trusted = trusted_certificates()
    context = trusted if isinstance(trusted, ssl.SSLContext) else ssl.create_default_context()
    opener = build_opener(HTTPSHandler(context=context))
    try:
        response: HTTPResponse = opener.open(request, timeout=patience_s or _TIMEOUT_S)
    except (OSError, HTTPException, ValueError) as error:
        if isinstance(error, HTTPError):
            error.close()  # it holds the connection
        raise _failed(url, error) from error
    return response


def _parts(url: str) -> SplitResult:
    """The parts of an address; what is wrong with one is not quoted, as it may be part of a password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise SourceFailed(f"{shown_url(url)} is no http:// or https:// address")
    return parts


def _read(response: HTTPResponse, size: int, url: str) -> bytes:
    try:
        return response.read(size)
    except (OSError, HTTPException) as error:
        raise _failed(url, error) from error


def _failed(url: str, error: Exception) -> SourceFailed:
    reason = f"status {error.code}" if isinstance(error, HTTPError) else str(getattr(error, "reason", error))
    said = Redactor(url_secrets(url)).message(reason)
    return SourceFailed(f"{shown_url(url)}: {said or type(error).__name__}")
