"""Batches made of files: the requests go up as one, the results come down as others, in OpenAI's form.

What OpenAI, Azure OpenAI and Mistral have in common; how a job is made of a file stands in a module each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping
from pathlib import Path
from typing import Final, NamedTuple
from urllib.parse import quote

import msgspec

from coeval.core.errors import BadRequest, ServerFault, Undecodable, Unreadable
from coeval.core.foreign import decode, decoder
from coeval.models.batch.batch_api import (
    UNKNOWN_ERROR,
    BatchReply,
    DamagedResult,
    read_answer,
    readable,
    result_lines,
)
from coeval.models.batch.batch_http import BatchHttp, UploadForm

TAG: Final = "coeval_tag"
"""The entry of a batch's metadata that holds our tag."""

_STATUS_OF_CODE: Mapping[str | None, int | None] = {
    "batch_expired": None,
    "batch_cancelled": None,
    "request_timeout": 504,
}
_NOT_READY = frozenset({"pending", "uploading", "running"})
_UNUSABLE = frozenset({"error", "failed", "deleted"})
# With pauses that double up to ten seconds, a file may take some nine minutes to be ready.
_LOOKS: Final = 60
# Small beside a batch's hours, and no burden on the host.
_LONGEST_PAUSE_S: Final = 10.0


class BatchPaths(NamedTuple):
    """Where an interface stands below a base URL: what comes before each path, and what each query has."""

    before: str = ""
    query: str = ""

    def to(self, path: str, query: str = "") -> str:
        """The path to ask at; it and ``query`` are quoted already."""
        whole = "&".join(part for part in (self.query, query) if part)
        return f"{self.before}{path}" + (f"?{whole}" if whole else "")


class UploadedFile(msgspec.Struct, frozen=True):
    id: str
    filename: str = ""
    status: str | None = None


class _Response(msgspec.Struct, frozen=True):
    status_code: int
    body: msgspec.Raw = msgspec.Raw(b"null")


class _Result(msgspec.Struct, frozen=True):
    custom_id: str
    response: _Response | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


class _Unanswered(msgspec.Struct, frozen=True):
    code: str | None = None


_read_result = decoder(_Result)


class BatchFiles:
    """The files of an account at one host."""

    def __init__(self, http: BatchHttp, paths: BatchPaths) -> None:
        self._http = http
        self._paths = paths

    async def upload(self, lines: Path) -> str:
        """The id of a file of requests, once the host can make a job of it.

        A file that is uploaded and not used costs nothing: it may be sent twice.
        """
        form = UploadForm({"purpose": "batch"})
        reply = await self._http.upload("POST", self._paths.to("/files"), lines, form=form, repeatable=True)
        file = read_answer(reply.body, UploadedFile, "an uploaded file")
        pause_s = 0.5
        for _ in range(_LOOKS):
            state = (file.status or "").lower()
            if state in _UNUSABLE:
                raise BadRequest(f"the host cannot use the file of requests {file.id}: its status is {state}")
            if state not in _NOT_READY:
                return file.id
            await self._http.pause(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            file = await self.about(file.id)
        raise ServerFault(f"the host has not read the file of requests {file.id} yet; its status is {state}")

    async def about(self, file_id: str) -> UploadedFile:
        """What the host says of a file."""
        path = self._paths.to(f"/files/{quote(file_id, safe='')}")
        return read_answer(await self._http.call("GET", path), UploadedFile, "a file")

    async def replies(self, file_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        """The lines of a file of results or of errors; ``into`` is the folder that it is put in."""
        results = into / "results.jsonl"
        await self._http.download(self._paths.to(f"/files/{quote(file_id, safe='')}/content"), results)
        for reply in file_replies(results):
            yield reply


def file_replies(results: Path) -> Iterator[BatchReply | DamagedResult]:
    """The lines of a file of results or of errors, as OpenAI writes both."""
    return readable(result_lines(results), _reply)


def _reply(line: bytes) -> BatchReply:
    result = _read_result(line)
    if result.response is not None:
        return BatchReply(result.custom_id, result.response.status_code, bytes(result.response.body))
    if bytes(result.error) == b"null":
        raise Unreadable("it holds neither an answer nor an error")
    return BatchReply(result.custom_id, _status(result.error), b'{"error":%s}' % bytes(result.error))


def _status(error: msgspec.Raw) -> int | None:
    """The status that an error without an answer would have had live; None where nothing was asked."""
    try:
        return _STATUS_OF_CODE.get(decode(error, _Unanswered).code, UNKNOWN_ERROR)
    except Undecodable:
        return UNKNOWN_ERROR
