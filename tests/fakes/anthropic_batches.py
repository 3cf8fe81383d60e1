"""Anthropic's Message Batches, beside the Messages API at the same host.

As the reference and the guide have it, read in November 2026: a batch is one JSON body, its requests are
looked at only as they are worked on, its counts all stand at ``processing`` until the whole has ended, its
results come in any order, and nothing of ours is stored but the custom ids, told with the results alone.
"""

from __future__ import annotations

import random
import re
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import msgspec
from aiohttp import web

from fakes.anthropic_messages import AnthropicServer, Error, Spoken, error_answer, error_body
from fakes.batch_jobs import GivesResults, Watch
from fakes.scripted import cut, serving

Fate: TypeAlias = Spoken | Error | Literal["canceled", "expired"]
Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]
Loss: TypeAlias = Literal["before", "after", "belied"]
"""When the connection is cut at a create: before the batch is made, or after; or the batch is made, and the
answer says that it was refused."""

_CUSTOM_ID = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass
class Batch:
    """A batch as the host has it; ``polls`` is how often it is asked for until it ends (None: never)."""

    id: str
    requests: list[dict[str, Any]]
    created: float
    version: str
    polls: int | None
    results: list[dict[str, Any]] | None = None
    ended: float | None = None
    cancelled: float | None = None
    archived: float | None = None


@dataclass
class BatchServer(GivesResults, AnthropicServer):
    """A running host with batches. ``fate`` says what becomes of a request, by its parameters; ``polls`` is
    how often a new batch is asked for until it ends (None: not before `end`); ``losses`` are the connections
    that are cut at the next creations; for ``hidden`` lists a new batch is not among them; the host's clock
    is ``clock_ahead_s`` ahead of ours. ``creations`` are the bodies of those that came, refused ones too;
    ``watch`` is told of each request for a batch, as that of a `BatchingHost` is."""

    fate: Callable[[dict[str, Any]], Fate] = lambda _: Spoken()
    polls: int | None = 1
    most_requests: int = 100_000
    most_bytes: int = 256_000_000
    losses: deque[Loss] = field(default_factory=deque)
    hidden: int = 0
    clock_ahead_s: float = 0.0
    batches: dict[str, Batch] = field(default_factory=dict)
    creations: list[bytes] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)
    results_at: str = ""
    watch: Watch | None = None
    _lists_left: dict[str, int] = field(default_factory=dict)
    _order: random.Random = field(default_factory=lambda: random.Random(7))

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/v1/messages/batches", self._watched("create", self.create)),
            web.get("/v1/messages/batches", self._watched("list", self.list_batches)),
            web.get("/v1/messages/batches/{id}", self._watched("get", self.retrieve)),
            web.delete("/v1/messages/batches/{id}", self.delete),
            web.post("/v1/messages/batches/{id}/cancel", self._watched("cancel", self.cancel)),
            web.get("/v1/messages/batches/{id}/results", self._watched("download", self.results)),
            *super().routes(),
        ]

    def _watched(self, kind: str, carry_out: Handler) -> Handler:
        async def watched(request: web.Request) -> web.StreamResponse:
            if self.watch is not None:
                await self.watch(kind, False)
            answer = await carry_out(request)
            if self.watch is not None:
                await self.watch(kind, True)
            return answer

        return watched

    async def create(self, request: web.Request) -> web.StreamResponse:
        body = await self._received(request)
        if isinstance(body, Error):
            return error_answer(body)
        self.creations.append(body)
        requested = self.denial(request) or self._requests(body)
        if isinstance(requested, Error):
            return error_answer(requested)
        loss = self.losses.popleft() if self.losses else None
        if loss == "before":
            return cut(request)
        made = Batch(
            f"msgbatch_{len(self.batches) + 1:05d}",
            requested,
            self._now(),
            request.headers["anthropic-version"],
            self.polls,
        )
        self.batches[made.id] = made
        self._lists_left[made.id] = self.hidden
        if loss == "belied":
            return error_answer(Error(400, "The request could not be read."))
        return cut(request) if loss == "after" else self._reported(made)

    async def retrieve(self, request: web.Request) -> web.Response:
        found = self._found(request)
        if isinstance(found, Error):
            return error_answer(found)
        if found.polls is not None and found.ended is None:
            found.polls -= 1
            if found.polls < 0:
                self.end(found.id)
        return self._reported(found)

    async def list_batches(self, request: web.Request) -> web.Response:
        """Those created last come first."""
        if (denial := self.denial(request)) is not None:
            return error_answer(denial)
        self.lists.append(request.path_qs)
        limit = int(request.query.get("limit", "20"))
        if not 1 <= limit <= 1000 or set(request.query) - {"limit", "after_id", "before_id"}:
            return error_answer(Error(400, "limit: Input should be less than or equal to 1000"))
        for batch in self.batches:
            self._lists_left[batch] -= 1
        known = [batch for batch in reversed(self.batches.values()) if self._lists_left[batch.id] < 0]
        ids = [batch.id for batch in known]
        start = ids.index(request.query["after_id"]) + 1 if "after_id" in request.query else 0
        shown = known[start : start + limit]
        return web.json_response(
            {
                "data": [self._described(batch) for batch in shown],
                "has_more": start + len(shown) < len(known),
                "first_id": shown[0].id if shown else None,
                "last_id": shown[-1].id if shown else None,
            }
        )

    async def cancel(self, request: web.Request) -> web.Response:
        found = self._found(request)
        if isinstance(found, Error):
            return error_answer(found)
        if found.ended is not None:
            return error_answer(Error(400, f"Batch {found.id} has already ended and cannot be canceled."))
        found.cancelled = self._now()
        found.polls = found.polls or 1
        return self._reported(found)

    async def delete(self, request: web.Request) -> web.Response:
        found = self._found(request)
        if isinstance(found, Error):
            return error_answer(found)
        if found.ended is None:
            return error_answer(Error(400, f"Batch {found.id} is still in progress: cancel it first."))
        del self.batches[found.id]
        return web.json_response({"id": found.id, "type": "message_batch_deleted"})

    async def results(self, request: web.Request) -> web.StreamResponse:
        found = self._found(request)
        if isinstance(found, Error):
            return error_answer(found)
        if found.results is None or found.archived is not None:
            return error_answer(Error(404, f"Batch {found.id} has no available results."))
        return self.given_file(found.id, b"\n".join(msgspec.json.encode(each) for each in found.results))

    def end(self, name: str) -> None:
        """Have a batch end with what `fate` says of its requests; one that is being cancelled does not begin
        with those that would have been answered in its second half."""
        batch = self.batches[name]
        results = [
            {"custom_id": requested["custom_id"], "result": self._result(batch, n)}
            for n, requested in enumerate(batch.requests)
        ]
        self._order.shuffle(results)
        batch.results, batch.ended = results, self._now()

    def archive(self, name: str) -> None:
        """Have its results be there no more, as they are after 29 days."""
        self.batches[name].archived = self._now()

    def _result(self, batch: Batch, number: int) -> dict[str, Any]:
        params = batch.requests[number]["params"]
        if batch.cancelled is not None and number >= len(batch.requests) / 2:
            return {"type": "canceled"}
        fate: Fate = self.refusal_of(params, batch.version) or self.fate(params)
        match fate:
            case Spoken():
                message = self.message(params, fate, "batch")
                self.keep(params)
                return {"type": "succeeded", "message": message}
            case Error():
                return {"type": "errored", "error": error_body(fate)}
            case _:
                return {"type": fate}

    async def _received(self, request: web.Request) -> bytes | Error:
        """The body of a creation, if it is not too large."""
        parts, size = [], 0
        try:
            async for part in request.content.iter_any():
                size += len(part)
                parts.append(part if size <= self.most_bytes else b"")
        except ConnectionResetError:
            return Error(400, "The request body was cut off.")
        if size > self.most_bytes:
            return Error(413, "Request exceeds the maximum size")
        return b"".join(parts)

    def _requests(self, body: bytes) -> list[dict[str, Any]] | Error:
        """What a batch is asked for, or why it is refused whole. Parameters are looked at later, one by
        one."""
        try:
            whole = msgspec.json.decode(body)
        except msgspec.DecodeError:
            return Error(400, "The request body is not valid JSON.")
        if not isinstance(whole, dict) or set(whole) != {"requests"}:
            return Error(400, "requests: Field required, and no other")
        requested = whole["requests"]
        if not isinstance(requested, list) or not 1 <= len(requested) <= self.most_requests:
            return Error(400, f"requests: List should have at least 1 and at most {self.most_requests} items")
        for number, one in enumerate(requested):
            if not isinstance(one, dict) or set(one) != {"custom_id", "params"}:
                return Error(400, f"requests.{number}: custom_id and params are wanted, and no more")
            if not isinstance(one["custom_id"], str) or not _CUSTOM_ID.fullmatch(one["custom_id"]):
                return Error(400, f"requests.{number}.custom_id: String should match '{_CUSTOM_ID.pattern}'")
            if not isinstance(one["params"], dict):
                return Error(400, f"requests.{number}.params: Input should be an object")
        if len({one["custom_id"] for one in requested}) < len(requested):
            return Error(400, "requests: custom_id must be unique within the batch")
        return requested

    def _found(self, request: web.Request) -> Batch | Error:
        name = request.match_info["id"]
        return self.denial(request) or self.batches.get(name) or Error(404, f"Batch {name} not found.")

    def _reported(self, batch: Batch) -> web.Response:
        return web.json_response(self._described(batch))

    def _described(self, batch: Batch) -> dict[str, Any]:
        counts = dict.fromkeys(("processing", "succeeded", "errored", "canceled", "expired"), 0)
        for result in batch.results or ():
            counts[result["result"]["type"]] += 1
        if batch.results is None:
            counts["processing"] = len(batch.requests)
        status = "ended" if batch.ended else "canceling" if batch.cancelled else "in_progress"
        there = batch.ended is not None and batch.archived is None
        at = self.results_at or f"{self.url}/v1/messages/batches/{batch.id}/results"
        return {
            "id": batch.id,
            "type": "message_batch",
            "processing_status": status,
            "request_counts": counts,
            "created_at": _time(batch.created),
            "expires_at": _time(batch.created + timedelta(hours=24).total_seconds()),
            "ended_at": _time(batch.ended),
            "cancel_initiated_at": _time(batch.cancelled),
            "archived_at": _time(batch.archived),
            "results_url": at if there else None,
        }

    def _now(self) -> float:
        return time.time() + self.clock_ahead_s


def _time(at: float | None) -> str | None:
    return None if at is None else datetime.fromtimestamp(at, UTC).isoformat().replace("+00:00", "Z")


@asynccontextmanager
async def batch_fake(
    keys: Iterable[str] | None = None, models: Iterable[str] | None = None
) -> AsyncIterator[BatchServer]:
    """Serve on loopback; ``keys`` and ``models`` are those that are known (None: any)."""
    server = BatchServer(
        script=deque(),
        keys=None if keys is None else frozenset(keys),
        models=None if models is None else tuple(models),
    )
    async with serving(server):
        yield server
