"""/v1/files and /v1/batches: jobs of simulated models, made of uploaded files of requests.

Source: OpenAI's API reference (Files, Batch) and its guide to batches, November 2026. A job's state is a
function of the clock; its requests are carried out when it is first seen ended.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, Literal, NamedTuple
from uuid import uuid4

import msgspec
from aiohttp import BodyPartReader, MultipartReader, web
from aiohttp.http_exceptions import HttpProcessingError

from coeval.core.errors import Undecodable
from coeval.core.foreign import decoder
from coeval.simulation.server.events import Refusal, json_response

# OpenAI's limits of one job.
_MOST_REQUESTS = 50_000
_LARGEST_FILE_BYTES = 200_000_000
# All files together, results included: twenty of the largest, and no client in a loop fills a disk.
_MOST_STORED_BYTES = 4_000_000_000
# Files, and jobs: a kilobyte of memory each.
_MOST_KEPT = 10_000
# Above the longest context of a simulated model: a file without line feeds must not fill the memory.
_LONGEST_LINE_BYTES = 8 << 20
_CHUNK_BYTES = 1 << 16
# Requests carried out before others have their turn.
_SOME = 100
_WINDOW_S = 86_400

Metadata = Annotated[
    dict[Annotated[str, msgspec.Meta(max_length=64)], Annotated[str, msgspec.Meta(max_length=512)]],
    msgspec.Meta(max_length=16),
]
AnswerLine = Callable[[bytes], Awaitable[dict[str, Any]]]
"""Carries out one request by its body; raises Refusal."""


class BatchFates(NamedTuple):
    """What becomes of jobs: each takes ``delay_s``; each ``fail_every``th is refused whole, each
    ``expire_every``th expires with half of its requests done, and each ``line_fail_every``th request of all
    jobs fails. None: none does."""

    delay_s: float = 0.0
    fail_every: int | None = None
    expire_every: int | None = None
    line_fail_every: int | None = None


AT_ONCE = BatchFates()


class _NewBatch(msgspec.Struct):
    input_file_id: str
    endpoint: Literal["/v1/chat/completions"]
    completion_window: Literal["24h"]
    metadata: Metadata | None = None


class _Line(msgspec.Struct):
    custom_id: Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
    method: Literal["POST"]
    url: Literal["/v1/chat/completions"]
    body: msgspec.Raw


_read_batch, _read_line = decoder(_NewBatch), decoder(_Line)


class _FileHere(NamedTuple):
    id: str
    filename: str
    purpose: str
    bytes: int
    created_at: int

    def row(self) -> dict[str, Any]:
        return {**self._asdict(), "object": "file", "status": "processed"}


@dataclass(slots=True)
class _Job:
    """``trouble`` is why it failed; ``expires``: it ends half done; ``results`` are the files of good and bad
    ones, None if they would be empty, and ``counts`` what they hold, None until it was seen ended."""

    id: str
    made_of: _NewBatch
    lines: Path
    created: float
    delay_s: float
    expires: bool
    total: int = 0
    trouble: dict[str, Any] | None = None
    cancelled: float | None = None
    results: tuple[_FileHere | None, _FileHere | None] = (None, None)
    counts: tuple[int, int] | None = None

    def end(self) -> str | None:
        """How it ended; None before that."""
        if self.trouble is not None:
            return "failed"
        if self.cancelled is not None:
            return "cancelled"
        if time.time() < self.created + self.delay_s:
            return None
        return "expired" if self.expires else "completed"

    def status(self) -> str:
        end = self.end() or "in_progress"
        return "finalizing" if end in _WITH_RESULTS and self.counts is None else end

    def done(self) -> int:
        """Requests carried out by now; those of an ended job are no more than by its end."""
        most = self.total // 2 if self.expires else self.total
        passed_s = (self.cancelled or time.time()) - self.created
        return most if passed_s >= self.delay_s else int(most * max(0.0, passed_s) / self.delay_s)

    def row(self, status: str) -> dict[str, Any]:
        done, failed = self.counts or (self.done(), 0)
        output, errors = (file and file.id for file in self.results)
        ended_at = int(self.cancelled or self.created + self.delay_s)
        return {
            "id": self.id,
            "object": "batch",
            "endpoint": self.made_of.endpoint,
            "errors": {"object": "list", "data": [self.trouble]} if status == "failed" else None,
            "input_file_id": self.made_of.input_file_id,
            "completion_window": self.made_of.completion_window,
            "status": status,
            "output_file_id": output,
            "error_file_id": errors,
            "created_at": int(self.created),
            "expires_at": int(self.created) + _WINDOW_S,
            **({f"{status}_at": ended_at} if status == self.end() else {}),
            "request_counts": {"total": self.total, "completed": done, "failed": failed},
            "metadata": self.made_of.metadata,
        }


_WITH_RESULTS = ("completed", "expired", "cancelled")


class ServedBatches:
    """The files and jobs of one server, on disk until it ends."""

    def __init__(self, answer: AnswerLine, fates: BatchFates) -> None:
        self._answer = answer
        self._fates = fates
        self._files: dict[str, _FileHere] = {}
        self._jobs: dict[str, _Job] = {}
        self._job_numbers, self._line_numbers = count(1), count(1)
        self._folder = Path()
        self._stored = 0
        # One file of requests is gone through at a time, so that memory holds one line.
        self._turn = asyncio.Lock()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/files", self._upload),
            web.get("/v1/files/{id}", self._file),
            web.get("/v1/files/{id}/content", self._content),
            web.post("/v1/batches", self._create),
            web.get("/v1/batches", self._list),
            web.get("/v1/batches/{id}", self._batch),
            web.post("/v1/batches/{id}/cancel", self._cancel),
        ]

    async def opened(self, _: web.Application) -> AsyncIterator[None]:
        """Keep the folder of the files as long as the application runs."""
        with TemporaryDirectory(prefix="coeval-simulate-") as folder:
            self._folder = Path(folder)
            yield

    # --- Files

    async def _upload(self, request: web.Request) -> web.Response:
        if request.content_type != "multipart/form-data":
            raise Refusal("a file is uploaded as multipart/form-data, with the fields purpose and file")
        with self._new_file() as path:
            try:
                filename = await self._receive(await request.multipart(), path)
            except (ValueError, RuntimeError, HttpProcessingError) as error:
                raise Refusal(f"the form cannot be read: {error}") from None
            except OSError as error:
                raise Refusal(f"the file cannot be stored: {error.strerror}", status=507) from None
            return json_response(self._keep(path, filename, "batch").row())

    async def _receive(self, form: MultipartReader, path: Path) -> str:
        """Write the form's file, and return its name."""
        filename, purpose = "", b""
        async for part in form:
            if not isinstance(part, BodyPartReader):
                raise Refusal("a form within the form cannot be read")
            if part.name == "file" and not filename:
                filename = part.filename or "file"
                with path.open("wb") as file:
                    while chunk := await part.read_chunk(_CHUNK_BYTES):
                        if file.tell() + len(chunk) > _LARGEST_FILE_BYTES:
                            reason = f"a file may have {_LARGEST_FILE_BYTES:,} bytes"
                            raise Refusal(reason, status=413, param="file")
                        self._hold(len(chunk))
                        file.write(chunk)
            elif part.name == "purpose":
                purpose = await part.read_chunk(_CHUNK_BYTES)
        if not filename or purpose != b"batch":
            raise Refusal("the fields wanted are file and purpose, which is `batch`", param="purpose")
        return filename

    @contextmanager
    def _new_file(self) -> Iterator[Path]:
        """A place for a file, which is removed again unless it is kept."""
        path = self._folder / f"file-{uuid4().hex}"
        try:
            yield path
        finally:
            if path.name not in self._files and path.exists():
                self._forget(path)

    def _hold(self, size: int) -> None:
        """Count bytes that are about to be stored; Refusal where no more may be."""
        if self._stored + size > _MOST_STORED_BYTES or max(len(self._files), len(self._jobs)) >= _MOST_KEPT:
            reason = "this server stores no more files and batches; start it again"
            raise Refusal(reason, status=413)
        self._stored += size

    def _forget(self, path: Path) -> None:
        self._stored -= path.stat().st_size
        path.unlink()

    def _keep(self, path: Path, filename: str, purpose: str) -> _FileHere:
        name = filename[:200].encode("utf-8", "replace").decode()
        file = _FileHere(path.name, name, purpose, path.stat().st_size, int(time.time()))
        self._files[file.id] = file
        return file

    async def _file(self, request: web.Request) -> web.Response:
        return json_response(self._found_file(request.match_info["id"]).row())

    async def _content(self, request: web.Request) -> web.FileResponse:
        path = self._folder / self._found_file(request.match_info["id"]).id
        return web.FileResponse(path, headers={"Content-Type": "application/octet-stream"})

    def _found_file(self, name: str) -> _FileHere:
        if (file := self._files.get(name)) is None:
            raise Refusal(f"No such File object: {name[:200]}", status=404, param="id")
        return file

    # --- Jobs

    async def _create(self, request: web.Request) -> web.Response:
        try:
            needed = _read_batch(await request.read())
        except Undecodable as error:
            raise Refusal(f"the request body is wrong: {error}") from None
        self._hold(0)
        number, fates = next(self._job_numbers), self._fates
        job = _Job(
            id=f"batch_{uuid4().hex}",
            made_of=needed,
            lines=self._folder / self._found_file(needed.input_file_id).id,
            created=time.time(),
            delay_s=fates.delay_s,
            expires=_is_nth(number, fates.expire_every),
        )
        if _is_nth(number, fates.fail_every):
            job.trouble = _trouble("simulated_failure", "simulated failure of a whole batch")
        else:
            async with self._turn:
                job.total, job.trouble = await asyncio.to_thread(_checked, job.lines)
        self._jobs[job.id] = job
        return json_response(job.row("validating"))

    async def _list(self, request: web.Request) -> web.Response:
        """A page of jobs, the newest first: ``limit`` of those that follow the id ``after``."""
        limit, after = request.query.get("limit", "20"), request.query.get("after")
        if not re.fullmatch(r"[1-9]\d?|100", limit):
            raise Refusal("limit must be a number from 1 to 100", param="limit")
        newest = list(reversed(self._jobs.values()))
        start = next((at + 1 for at, job in enumerate(newest) if job.id == after), 0)
        rows = [job.row(job.status()) for job in newest[start : start + int(limit)]]
        more = start + len(rows) < len(newest)
        return json_response({"object": "list", "data": rows, "has_more": more})

    async def _batch(self, request: web.Request) -> web.Response:
        """The job as it is now, its results made if it has ended."""
        job = self._found_job(request)
        if job.end() in _WITH_RESULTS:
            async with self._turn:
                if job.counts is None:
                    await self._carry_out(job)
        return json_response(job.row(job.status()))

    async def _cancel(self, request: web.Request) -> web.Response:
        job = self._found_job(request)
        if (end := job.end()) is not None:
            raise Refusal(f"Cannot cancel a batch with status '{end}'.", status=409)
        job.cancelled = time.time()
        return json_response(job.row("cancelling"))

    def _found_job(self, request: web.Request) -> _Job:
        name = request.match_info["id"]
        if (job := self._jobs.get(name)) is None:
            raise Refusal(f"No batch found with id '{name[:200]}'.", status=404, param="id")
        return job

    async def _carry_out(self, job: _Job) -> None:
        ended, done, counts = job.end(), job.done(), [0, 0]
        with self._new_file() as good, self._new_file() as bad:
            try:
                with good.open("wb") as output, bad.open("wb") as errors, job.lines.open("rb") as lines:
                    for number, line in enumerate(_read_line(line) for line in lines if not line.isspace()):
                        result = await self._result(line, None if number < done else ended)
                        is_bad = result["error"] is not None or result["response"]["status_code"] != 200
                        file, written = errors if is_bad else output, msgspec.json.encode(result) + b"\n"
                        self._hold(len(written))
                        file.write(written)
                        counts[is_bad] += 1
                        if number % _SOME == 0:
                            await asyncio.sleep(0)
            except (Refusal, OSError) as error:
                job.trouble = _trouble("storage_full", f"{error}")
                return
            kept = [
                self._keep(path, f"{job.id}.jsonl", "batch_output") if path.stat().st_size else None
                for path in (good, bad)
            ]
        job.results, job.counts = (kept[0], kept[1]), (counts[0], counts[1])

    async def _result(self, line: _Line, ended: str | None) -> dict[str, Any]:
        """``ended``: how the job ended before this request was carried out."""
        result = {"id": f"batch_req_{uuid4().hex}", "custom_id": line.custom_id}
        if ended is not None:
            why = {"code": f"batch_{ended}", "message": f"The batch {ended} before this request."}
            return {**result, "response": None, "error": why}
        try:
            if _is_nth(next(self._line_numbers), self._fates.line_fail_every):
                raise _line_failure()
            status, body = 200, await self._answer(bytes(line.body))
        except Refusal as refusal:
            status, body = refusal.status, refusal.body
        response = {"status_code": status, "request_id": f"req_{uuid4().hex}", "body": body}
        return {**result, "response": response, "error": None}


def _checked(path: Path) -> tuple[int, dict[str, Any] | None]:
    """Count the requests of a file, or say why it is refused whole: the first of its lines that is wrong."""
    seen, number = set[str](), 0
    with path.open("rb") as file:
        while raw := file.readline(_LONGEST_LINE_BYTES + 1):
            number += 1
            if raw.isspace():
                continue
            if len(raw) > _LONGEST_LINE_BYTES:
                most = f"a line may have {_LONGEST_LINE_BYTES:,} bytes"
                return 0, _trouble("invalid_json_line", most, number)
            try:
                line = _read_line(raw)
            except Undecodable as error:
                return 0, _trouble("invalid_json_line", f"no request of a batch: {error}", number)
            if line.custom_id in seen:
                return 0, _trouble("duplicate_custom_id", "an earlier line has this custom_id", number)
            seen.add(line.custom_id)
            if len(seen) > _MOST_REQUESTS:
                return 0, _trouble("too_many_tasks", f"a batch may have {_MOST_REQUESTS:,} requests", number)
    return len(seen), None if seen else _trouble("empty_file", "the file holds no request")


def _is_nth(number: int, every: int | None) -> bool:
    return every is not None and number % every == 0


def _line_failure() -> Refusal:
    return Refusal("simulated failure of one request", status=500, kind="server_error")


def _trouble(code: str, message: str, line: int | None = None) -> dict[str, Any]:
    return {"code": code, "message": message, "line": line, "param": None}
