"""HTTP for batch interfaces: files as large as they are, from disk and to disk, errors from the one tree.

It stands beside the wire on which models are asked, not on it: what is sent here is rare and large, waits for
no turn, and is counted in no ceiling. aiohttp streams it; this module is imported where a batch is in use.
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
from typing import IO, Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import quote

import aiohttp
from multidict import CIMultiDict
from yarl import URL

from coeval.core.errors import (
    AccessDenied,
    ModelError,
    RateLimited,
    ServerFault,
    StoreError,
    Undecodable,
    Unreadable,
)
from coeval.core.foreign import decode
from coeval.core.redaction import Redactor
from coeval.models.pacing.limits import LONGEST_HOLD_S
from coeval.models.transport.body import Body
from coeval.models.transport.call import Fault, Tries, read_retry_advice, read_retry_wait_s
from coeval.models.transport.connection import LARGE_BODY, HttpReply
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.faults import (
    describe_request,
    error_from_exception,
    error_from_status,
    foreign_errors,
    was_never_sent,
)
from coeval.models.transport.network import find_proxy
from coeval.models.transport.pool import CONNECT_TIMEOUT_S, RequestRoute
from coeval.models.transport.proxied import open_session, read_headers
from coeval.store.jsonl import store_error

# --- Replies, read into memory or to disk

# Bytes. No provider's results are as large; a host does not fill the disk.
_LARGEST_DOWNLOAD: Final = 1 << 34
# Bytes per piece of a download: it goes to disk, so memory stays small.
_CHUNK = 1 << 20


async def read_reply(response: aiohttp.ClientResponse, into: Path | None) -> HttpReply:
    """The answer; of one that goes to disk, without its body."""
    headers, body = read_headers(response), Body()
    if into is None or not 200 <= response.status < 300:
        async for piece in response.content.iter_any():
            body.add(piece)
        return HttpReply.read(response.status, headers, body)
    await _write(response, into)
    return HttpReply(response.status, headers, b"")


async def _write(response: aiohttp.ClientResponse, into: Path) -> None:
    received = 0
    try:
        file = into.open("wb")
    except OSError as error:
        raise store_error("write to", into, error) from error
    with file:
        async for piece in response.content.iter_chunked(_CHUNK):
            received += len(piece)
            if received > _LARGEST_DOWNLOAD:
                raise StoreError(f"{into}: the host sends more than {_LARGEST_DOWNLOAD >> 30} GiB of results")
            try:
                file.write(piece)
            except OSError as error:
                raise store_error("write to", into, error) from error


# A host that says nothing for so long, once all has been sent, is given up: some read a large file first.
SILENCE_S: Final = 300.0
# A request and its answer take no longer, though both arrive byte by byte: the largest files, of 2 GB, take
# so long at 1.1 Mbit/s.
LONGEST_EXCHANGE_S: Final = 4 * 3600.0
_NOTHING: Mapping[str, str] = MappingProxyType({})
_REPEATABLE = frozenset({"GET", "HEAD", "PUT", "DELETE"})
_JSONL = "application/jsonl"
# A hundred thousand jobs of one account; a list that never ends must not hold a start for ever.
MOST_PAGES: Final = 1_000


class UploadForm(NamedTuple):
    """A form (multipart/form-data) that a file is sent in: ``fields``, then the file as the part ``name``."""

    fields: Mapping[str, str]
    file: Path
    name: str = "file"


Content: TypeAlias = bytes | Path | UploadForm | AsyncIterable[bytes]
"""What is sent. An iterable begins anew each time it is iterated over, if it is to be sent again."""


@dataclass(frozen=True, slots=True)
class _Sending:
    method: str
    path: str
    content: Content | None
    headers: Mapping[str, str]
    repeatable: bool
    is_busy: Callable[[bytes], bool] | None = None


T = TypeVar("T")


def read_answer(body: bytes, kind: type[T], what: str) -> T:
    """An answer of the interface in its shape; Unreadable where it has another."""
    try:
        return decode(body, kind)
    except Undecodable as error:
        raise Unreadable(f"the host's answer is not {what} ({error})") from error


class ListPage(Protocol):
    """A page of a list; ``next`` is what the host calls the one after it."""

    @property
    def next(self) -> str | None: ...


PageT = TypeVar("PageT", bound=ListPage)


class BatchHttp:
    """What a provider's batch interface is asked through, at one endpoint.

    A ``path`` is appended to ``url`` as it stands; an absolute URL is asked as it is, and shown the
    credentials only where it leads to the same scheme, host and port: what a host answers cannot lead them
    away. What may be sent again after a failure that passes is, as live requests are: with pauses, and the
    longer ones that the host asks for. All methods raise a ModelError where that comes to nothing; what it
    quotes holds no credential.

    Parameters
    ----------
    endpoint:
        the base URL, who asks there, and its redactor; its limiter is not used.
    sleep, rng:
        how to wait, and what spreads retries.
    explain:
        `Dialect.explain` of the host: some say by a 400 that a key is none.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
        rng: random.Random | None = None,
        explain: Callable[[HttpReply, str, Redactor], ModelError | None] | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._explain = explain
        self._sleep = sleep
        self._rng = rng or random.Random()
        self._session: aiohttp.ClientSession | None = None
        self.url: str = endpoint.url

    @property
    def redactor(self) -> Redactor:
        """What takes credentials out of what this host says."""
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
        """A 2xx answer with its headers, whose names are lower-case.

        ``headers`` go before those of the endpoint. A file is sent as a stream with its length, an iterable
        in chunks unless ``headers`` have a Content-Length. What is not ``repeatable`` is sent again only
        where it was not received, or was turned away by 429; None: everything but POST and PATCH is.
        ``is_busy`` tells by the body of a 400 whether it stands for what another host says by 429:
        RateLimited.
        """
        again = method in _REPEATABLE if repeatable is None else repeatable
        return await self._until_taken(_Sending(method, path, content, headers, again, is_busy))

    async def read(self, path: str, kind: type[T], what: str) -> T:
        """What a GET gives; raises Unreadable where it is not ``what``."""
        return read_answer((await self.send("GET", path)).body, kind, what)

    async def pages(self, path: str, kind: type[PageT], after: str) -> AsyncIterator[PageT]:
        """The pages of a list, read as by `read`, until one names no next one, `MOST_PAGES` of them;
        ``after`` is the parameter that asks for it, beside those that ``path`` has."""
        token = ""
        for _ in range(MOST_PAGES):
            page = await self.read(f"{path}{token}", kind, "a page of a list")
            yield page
            if not page.next:
                return
            token = f"&{after}={quote(page.next, safe='')}"

    async def download(self, path: str, into: Path) -> None:
        """Write what a GET gives to a file, which takes the place of any that is there. A body that is cut
        off is an error, and asked for anew from its beginning."""
        await self._until_taken(_Sending("GET", path, None, _NOTHING, repeatable=True), into)

    async def pause(self, seconds: float) -> None:
        """Wait for what the host has yet to do."""
        await self._sleep(seconds)

    async def aclose(self) -> None:
        """End it for good."""
        if self._session is not None:
            await self._session.close()

    async def _until_taken(self, sending: _Sending, into: Path | None = None) -> HttpReply:
        tries = Tries()
        while True:
            outcome = await self._once(sending, into)
            if isinstance(outcome, HttpReply):
                return outcome
            if not tries.count_failure(outcome):
                raise outcome.error
            await self._sleep(tries.wait_s(outcome, self._rng))

    async def _once(self, sending: _Sending, into: Path | None) -> HttpReply | Fault:
        endpoint = self._endpoint
        route, ours = self._route(sending)
        where = describe_request(sending.method, route.url)
        if ours and endpoint.signs_each:
            body = sending.content if isinstance(sending.content, bytes) else None
            try:
                route = await endpoint.sign_route(route, body, time.time())
            except ModelError as error:
                error.args = (f"{where}: {endpoint.redact_message(str(error))}",)
                return Fault(error, error.retryable and error.retry_advised)
        try:
            async with self._sent(route, sending) as response:
                reply = await read_reply(response, into)
        except foreign_errors() as error:
            failed = error_from_exception(error, where, SILENCE_S)
            failed.args = (endpoint.redact_message(str(failed)),)
            again = sending.repeatable or was_never_sent(error)
            return Fault(failed, again and failed.retryable and failed.retry_advised)
        if 200 <= reply.status < 300:
            return reply
        fault = self._refused(reply, where, sending)
        if not (ours and reply.status == 401 and endpoint.discard_refused(route)):
            return fault
        if sending.repeatable:
            return fault._replace(again=True)
        # It may have been carried out all the same: whoever sent it looks before it is sent again.
        return Fault(ServerFault(str(fault.error), status=reply.status), again=False)

    def _refused(self, reply: HttpReply, where: str, sending: _Sending) -> Fault:
        error = error_from_status(reply.status, reply.body, where, self._endpoint.redactor)
        if reply.status == 400 and sending.is_busy is not None and sending.is_busy(reply.body):
            error = RateLimited(str(error), status=reply.status)
        elif self._explain is not None:
            explained = self._explain(reply, self.url, self._endpoint.redactor)
            if isinstance(explained, AccessDenied):
                error = type(explained)(str(error), status=reply.status)
        error.args = (self._endpoint.redact_message(str(error)),)
        error.retry_after_s = read_retry_wait_s(reply.headers)
        word = read_retry_advice(reply.headers)
        again = error.retryable if word is None else word
        in_time = (error.retry_after_s or 0.0) <= LONGEST_HOLD_S
        return Fault(error, again and in_time and (sending.repeatable or reply.status == 429))

    def _route(self, sending: _Sending) -> tuple[RequestRoute, bool]:
        """How to get there, and whether the endpoint's credentials are shown there."""
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
    async def _sent(self, route: RequestRoute, sending: _Sending) -> AsyncIterator[aiohttp.ClientResponse]:
        async with AsyncExitStack() as opened:
            data = _data(sending.content, opened)
            headers = CIMultiDict(route.headers)
            if isinstance(sending.content, Path):
                headers.setdefault("Content-Type", _JSONL)
            yield await opened.enter_async_context(
                self._opened().request(
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

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = open_session(headers={"Accept": "*/*"})
        return self._session


def _data(content: Content | None, opened: AsyncExitStack) -> Any:
    """What aiohttp sends; files are closed with ``opened``."""
    if isinstance(content, Path):
        return opened.enter_context(_opened(content))
    if not isinstance(content, UploadForm):
        return io.BytesIO(content) if isinstance(content, bytes) and len(content) > LARGE_BODY else content
    parts = aiohttp.FormData()
    for field, value in content.fields.items():
        parts.add_field(field, value)
    file = opened.enter_context(_opened(content.file))
    parts.add_field(content.name, file, filename=content.file.name, content_type=_JSONL)
    return parts


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except OSError as error:
        raise store_error("read", path, error) from error
