"""HTTP for batch interfaces: large files streamed from and to disk, errors from the one tree.

Separate from the wire that models are called on: these requests are rare and large, wait for no slot, and
count in no quota. aiohttp streams them; this module is imported when a batch is in use.
"""

from __future__ import annotations

import asyncio
import io
import random
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from coeval.core import errors
from coeval.core.foreign import decode
from coeval.core.redaction import Redactor
from coeval.models.pacing.limits import LONGEST_HOLD_S
from coeval.models.transport import faults
from coeval.models.transport.body import Body
from coeval.models.transport.call import Fault, Tries, read_retry_advice, read_retry_wait_s
from coeval.models.transport.connection import LARGE_BODY, HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.network import find_proxy
from coeval.models.transport.pool import CONNECT_TIMEOUT_S, RequestRoute
from coeval.models.transport.proxied import open_session, raise_wire_errors, read_headers
from coeval.store.jsonl import raise_store_errors

# --- Replies, read into memory or to disk

# Bytes, above any provider's results: a host must not fill the disk.
_LARGEST_DOWNLOAD: Final = 1 << 34
# Bytes per piece of a download: it goes to disk, so memory stays small.
_CHUNK = 1 << 20


async def read_reply(response: aiohttp.ClientResponse, into: Path | None) -> HttpReply:
    """Read a reply; one that goes to disk comes without its body."""
    headers, body = read_headers(response), Body()
    if into is None or not 200 <= response.status < 300:
        async for piece in response.content.iter_any():
            body.add(piece)
        return HttpReply.read(response.status, headers, body)
    await _write_download(response, into)
    return HttpReply(response.status, headers, b"")


async def _write_download(response: aiohttp.ClientResponse, into: Path) -> None:
    """Write a reply's body to disk; StoreError if it is too large, or the disk refuses."""
    received = 0
    with raise_store_errors("write to", into):
        file = into.open("wb")
    with file:
        async for piece in response.content.iter_chunked(_CHUNK):
            received += len(piece)
            if received > _LARGEST_DOWNLOAD:
                raise errors.StoreError(
                    f"{into}: the host sent more than {_LARGEST_DOWNLOAD >> 30} GiB of results"
                )
            with raise_store_errors("write to", into):
                file.write(piece)


# A host silent for so long after the upload is given up: some first read a large file.
SILENCE_S: Final = 300.0
# Limit of a whole exchange, even one that arrives byte by byte: the largest files, of 2 GB, take so long at
# 1.1 Mbit/s.
LONGEST_EXCHANGE_S: Final = 4 * 3600.0
_NOTHING: Mapping[str, str] = MappingProxyType({})
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_JSONL = "application/jsonl"
# A hundred thousand jobs of one account; bounds a list that never ends.
MOST_PAGES: Final = 1_000


class UploadForm(NamedTuple):
    """A multipart/form-data upload: ``fields``, then the file as the part ``name``."""

    fields: Mapping[str, str]
    file: Path
    name: str = "file"


Content: TypeAlias = bytes | Path | UploadForm | AsyncIterable[bytes]
"""What is sent. An iterable must be iterable again if it may be sent again."""


@dataclass(frozen=True, slots=True)
class _Sending:
    method: str
    path: str
    content: Content | None
    headers: Mapping[str, str]
    repeatable: bool
    is_busy: Callable[[bytes], bool] | None = None


T = TypeVar("T")


def decode_answer(body: bytes, kind: type[T], expected: str) -> T:
    """Decode a reply; Unreadable if it is not ``expected``."""
    try:
        return decode(body, kind)
    except errors.Undecodable as error:
        raise errors.Unreadable(f"the host's answer is not {expected} ({error})") from error


class ListPage(Protocol):
    """A page of a list; ``next`` is the host's name for the next one."""

    @property
    def next(self) -> str | None: ...


PageT = TypeVar("PageT", bound=ListPage)


class BatchHttp:
    """Sends the requests of a provider's batch interface, at one endpoint, whose limiter is not used.

    A ``path`` is appended to ``url`` unchanged. An absolute URL is used as it is, and gets the credentials
    only at the same scheme, host and port: no reply can lead them elsewhere. Passing failures are retried
    as those of live requests are: with pauses (``sleep``, spread by ``rng``), longer ones if the host asks
    for them. All methods raise a ModelError if that fails, redacted. ``explain`` is the host's
    `Dialect.explain`: some report an invalid key by a 400.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        rng: random.Random | None = None,
        explain: Callable[[HttpReply, str, Redactor], errors.ModelError | None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._explain = explain
        self.sleep = sleep
        self._rng = rng or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self.url: str = endpoint.url

    @property
    def redactor(self) -> Redactor:
        return self._endpoint.redactor

    async def send(
        self,
        method: str,
        path: str,
        content: Content | None = None,
        *,
        headers: Mapping[str, str] = _NOTHING,
        repeatable: bool | None = None,
        is_busy: Callable[[bytes], bool] | None = None,
    ) -> HttpReply:
        """Send a request until it gets a 2xx reply, whose header names are lower-case.

        ``headers`` replace those of the endpoint. A file is streamed with its length, an iterable in
        chunks unless ``headers`` have a Content-Length. A request that is not ``repeatable`` is retried
        only if it was not received or got 429; None: all but POST and PATCH are repeatable. ``is_busy``
        reads from the body of a 400 whether it means what other hosts say by 429: RateLimited.
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        return await self._send_with_retries(_Sending(method, path, content, headers, again, is_busy))

    async def read(self, path: str, kind: type[T], expected: str) -> T:
        """Decode the reply to a GET; Unreadable if it is not ``expected``."""
        return decode_answer((await self.send("GET", path)).body, kind, expected)

    async def read_pages(self, path: str, kind: type[PageT], next_parameter: str) -> AsyncIterator[PageT]:
        """Yield the pages of a list until one names no next page, at most `MOST_PAGES`; ``next_parameter`` is
        the parameter for the next page, besides those in ``path``."""
        token = ""
        for _ in range(MOST_PAGES):
            page = await self.read(f"{path}{token}", kind, "a page of a list")
            yield page
            if not page.next:
                return
            token = f"&{next_parameter}={quote(page.next, safe='')}"

    async def download(self, path: str, into: Path) -> None:
        """Write the reply to a GET to a file, replacing any; restart a body that is cut off."""
        await self._send_with_retries(_Sending("GET", path, None, _NOTHING, repeatable=True), into)

    async def aclose(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send_with_retries(self, sending: _Sending, into: Path | None = None) -> HttpReply:
        tries = Tries()
        while True:
            outcome = await self._send_once(sending, into)
            if isinstance(outcome, HttpReply):
                return outcome
            if not tries.count_failure(outcome):
                raise outcome.error
            await self.sleep(tries.wait_s(outcome, self._rng))

    async def _send_once(self, sending: _Sending, into: Path | None) -> HttpReply | Fault:
        """Send a request once, signed if it goes to the endpoint's host."""
        endpoint = self._endpoint
        route, ours = self._make_route_and_check_origin(sending)
        where = faults.describe_request(sending.method, route.url)
        if ours and endpoint.signs_each:
            body = sending.content if isinstance(sending.content, bytes) else None
            try:
                route = await endpoint.sign_route(route, body, time.time())
            except errors.ModelError as error:
                return Fault(error, error.retryable and error.retry_advised)
        try:
            with raise_wire_errors():
                async with self._open_response(route, sending) as response:
                    reply = await read_reply(response, into)
        except faults.SENDING_ERRORS as error:
            failed = faults.error_from_exception(error, where, SILENCE_S)
            failed.args = (endpoint.redact_own_message(str(failed)),)
            again = sending.repeatable or faults.was_never_sent(error)
            return Fault(failed, again and failed.retryable and failed.retry_advised)
        if 200 <= reply.status < 300:
            return reply
        fault = self._make_status_fault(reply, where, sending)
        if not (ours and reply.status == 401 and endpoint.discard_refused(route)):
            return fault
        if sending.repeatable:
            return fault._replace(again=True)
        # It may have been processed all the same: the caller checks before it sends it again.
        return Fault(errors.ServerFault(str(fault.error), status=reply.status), again=False)

    def _make_status_fault(self, reply: HttpReply, where: str, sending: _Sending) -> Fault:
        error = faults.error_from_status(reply.status, reply.body, where, self._endpoint.redactor)
        if reply.status == 400 and sending.is_busy is not None and sending.is_busy(reply.body):
            error = errors.RateLimited(str(error), status=reply.status)
        elif self._explain is not None:
            explained = self._explain(reply, self.url, self._endpoint.redactor)
            if isinstance(explained, errors.AccessDenied):
                error = type(explained)(str(error), status=reply.status)
        error.args = (self._endpoint.redact_own_message(str(error)),)
        error.retry_after_s = read_retry_wait_s(reply.headers)
        advice = read_retry_advice(reply.headers)
        again = error.retryable if advice is None else advice
        in_time = (error.retry_after_s or 0.0) <= LONGEST_HOLD_S
        return Fault(error, again and in_time and (sending.repeatable or reply.status == 429))

    def _make_route_and_check_origin(self, sending: _Sending) -> tuple[RequestRoute, bool]:
        """Make the route of a request; also return whether it carries the endpoint's credentials."""
        endpoint = self._endpoint
        headers = CIMultiDict(endpoint.headers)
        if "://" not in sending.path:
            url, ours, proxy = URL(endpoint.url + sending.path, encoded=True), True, endpoint.proxy
        else:
            url = URL(sending.path, encoded=True)
            ours = url.origin() == URL(endpoint.url).origin()
            proxy = endpoint.proxy if ours else find_proxy(url)
        if not ours:
            headers = CIMultiDict({"User-Agent": headers["User-Agent"]})
        if not isinstance(sending.content, bytes):
            headers.pop("Content-Type", None)
        headers.update(sending.headers)
        return RequestRoute.make(sending.method, url, headers, proxy), ours

    @asynccontextmanager
    async def _open_response(
        self, route: RequestRoute, sending: _Sending
    ) -> AsyncIterator[aiohttp.ClientResponse]:
        """Open the response to a request, whose files are closed with it."""
        async with AsyncExitStack() as opened:
            data = _make_upload(sending.content, opened)
            headers = CIMultiDict(route.headers)
            if isinstance(sending.content, Path):
                headers.setdefault("Content-Type", _JSONL)
            yield await opened.enter_async_context(
                self._get_session().request(
                    route.method,
                    route.url,
                    data=data,
                    headers=headers,
                    allow_redirects=False,
                    proxy=route.proxy,
                    timeout=aiohttp.ClientTimeout(
                        LONGEST_EXCHANGE_S, connect=CONNECT_TIMEOUT_S, sock_read=SILENCE_S
                    ),
                )
            )

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(headers={"Accept": "*/*"})
        return self._session


def _make_upload(content: Content | None, opened: AsyncExitStack) -> Any:
    """Make what aiohttp sends; files are closed with ``opened``."""
    if isinstance(content, Path):
        with raise_store_errors("read", content):
            return opened.enter_context(content.open("rb"))
    if not isinstance(content, UploadForm):
        return io.BytesIO(content) if isinstance(content, bytes) and len(content) > LARGE_BODY else content
    parts = aiohttp.FormData()
    for field, value in content.fields.items():
        parts.add_field(field, value)
    with raise_store_errors("read", content.file):
        file = opened.enter_context(content.file.open("rb"))
    parts.add_field(content.name, file, filename=content.file.name, content_type=_JSONL)
    return parts
