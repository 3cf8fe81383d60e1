"""What the fakes of batch interfaces have in common: jobs that go through states as they are looked at,
items carried out one by one, answers that are lost, listings that lag behind."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, ClassVar, TypeAlias

import msgspec
from aiohttp import web
from multidict import CIMultiDict, CIMultiDictProxy

from fakes.scripted import Behaviour, Broken, Refusal, Requested, ScriptedHost


class Lost(Enum):
    LOST = auto()


LOST = Lost.LOST
"""The request is carried out, and its answer never arrives."""


@dataclass(frozen=True)
class Belied:
    """The request is carried out, and answered with this error."""

    error: Behaviour


Watch: TypeAlias = Callable[[str, bool], Awaitable[None]]
"""Called with the kind of a request and whether it has been carried out; its answer goes out afterwards."""

Item: TypeAlias = tuple[str, int, dict[str, Any]]
"""An item that was carried out: the key it came with, and the status and body it would have had live."""


Gives: TypeAlias = Callable[[int, list[bytes]], list[bytes] | None]
"""Makes what a host gives out of the results of a job: called with how often they were asked for, this time
among them, and with all of them, a line each. None: 204, or nothing in the storage. Counts stay the same."""


def _with_id(line: bytes, custom_id: bytes) -> bytes:
    """A line of any interface, with another id: ours are 32 hex digits."""
    return re.sub(rb'"[0-9a-f]{32}"', custom_id, line, count=1)


def _renamed(line: bytes) -> bytes:
    """A line without the field that holds its answer, whatever an interface calls it."""
    return re.sub(rb'"(response|modelOutput|result)":', b'"other":', line)


DAMAGES: Mapping[str, Callable[[bytes], bytes]] = {
    "cut": lambda line: line[: len(line) // 2],
    "not UTF-8": lambda line: _with_id(line, b'"\xff\xfe"'),
    "null": lambda _: b"null",
    "deep": lambda line: b'{"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"," + line[1:],
    "a number for an id": lambda line: _with_id(line, b"17"),
    "no answer": lambda line: _renamed(line),
}
"""What makes a line of results one that nobody can read."""


@dataclass
class GivesResults:
    """A host whose results are as ``gives`` makes them; None: whole."""

    gives: Gives | None = None
    requested_for_results: Counter[str] = field(default_factory=Counter)

    def given(self, job_id: str, lines: Sequence[bytes]) -> list[bytes] | None:
        """The results of a job as they go out this time."""
        if self.gives is None:
            return list(lines)
        self.requested_for_results[job_id] += 1
        return self.gives(self.requested_for_results[job_id], list(lines))

    def given_file(self, job_id: str, content: bytes) -> web.Response:
        """A file of results, likewise."""
        lines = self.given(job_id, content.splitlines())
        if lines is None:
            return web.Response(status=204)
        return web.Response(body=b"".join(line + b"\n" for line in lines))


@dataclass
class FakeJob:
    """``looks`` counts how often its state was asked for; ``made`` is its number among the host's jobs."""

    id: str
    name: str
    made: int
    body: Mapping[str, Any]
    items: list[Item] = field(default_factory=list)
    total: int = 0
    looks: int = 0
    ended_by: str | None = None


@dataclass
class BatchingHost(GivesResults, ScriptedHost):
    """``states`` are what a job shows each time it is looked at, the last one from then on; an item that
    comes after the first ``done`` of a job is not carried out. ``troubles`` are what becomes of the next
    request of a kind (``create``, ``list`` …): an error, `LOST` or `Belied`. A new job is missing from the
    first ``lag`` listings. ``watch`` is told of each request of a kind, before it is carried out and then."""

    states: Sequence[str] = ()
    done: int | None = None
    troubles: list[tuple[str, Behaviour]] = field(default_factory=list)
    lag: int = 0
    watch: Watch | None = None
    says: Callable[[dict[str, Any]], Behaviour] | None = None
    jobs: dict[str, FakeJob] = field(default_factory=dict)
    heard: list[str] = field(default_factory=list)
    cancelled: str = ""

    ended: ClassVar[frozenset[str]] = frozenset()
    """The states that a job does not leave."""

    @abstractmethod
    def admit(self, request: web.Request, content: bytes) -> None:
        """Raise the `Refusal` of whoever may not ask."""

    @abstractmethod
    def job_of(self, request: web.Request) -> FakeJob:
        """The job that a request names."""

    @abstractmethod
    def seen(self, job: FakeJob, state: str) -> web.Response:
        """A job as it is told in a state."""

    @abstractmethod
    def over(self, job: FakeJob) -> Behaviour:
        """The refusal to cancel a job that has ended."""

    def cancelling(self, job: FakeJob) -> web.Response:
        """The answer to whoever cancels a job."""
        return web.json_response({})

    async def called(
        self, kind: str, request: web.Request, carry_out: Callable[[bytes], web.StreamResponse]
    ) -> web.StreamResponse:
        """The answer to a request of a kind, whose body ``carry_out`` is given."""
        content = await request.read()

        def admitted() -> web.StreamResponse:
            self.admit(request, content)
            return carry_out(content)

        return await self.answered(kind, request, admitted)

    async def get(self, request: web.Request) -> web.StreamResponse:
        def found(_: bytes) -> web.Response:
            job = self.job_of(request)
            return self.seen(job, self.looked_at(job))

        return await self.called("get", request, found)

    async def cancel(self, request: web.Request) -> web.StreamResponse:
        def cancelled(_: bytes) -> web.Response:
            job = self.job_of(request)
            if self.shown(job) in self.ended:
                raise Refusal(self.over(job))
            job.ended_by = self.cancelled
            return self.cancelling(job)

        return await self.called("cancel", request, cancelled)

    def trouble(self, kind: str) -> Behaviour | None:
        """What becomes of this request, if anything is planned for its kind."""
        self.heard.append(kind)
        found = next((each for each in self.troubles if each[0] == kind), None)
        if found is None:
            return None
        self.troubles.remove(found)
        return found[1]

    async def answered(
        self, kind: str, request: web.Request, carry_out: Callable[[], web.StreamResponse]
    ) -> web.StreamResponse:
        """The answer to a request of a kind, or the trouble that is planned for it."""
        trouble = self.trouble(kind)
        if trouble is not None and trouble is not LOST and not isinstance(trouble, Belied):
            return await self._behave(request, trouble, {})
        try:
            await self._tell(kind, done=False)
            answer = carry_out()
            await self._tell(kind, done=True)
        except Refusal as refusal:
            return self.behave(refusal.args[0], {})
        if isinstance(trouble, Belied):
            return await self._behave(request, trouble.error, {})
        return await self._behave(request, Broken.RESET, {}) if trouble is LOST else answer

    async def _tell(self, kind: str, *, done: bool) -> None:
        if self.watch is not None:
            await self.watch(kind, done)

    def carry_out(
        self, path: str, body: dict[str, Any], misfit: Behaviour | None
    ) -> tuple[int, dict[str, Any]]:
        """What an item gets: what is wrong with it, else the next of the script."""
        self.requested.append(Requested(CIMultiDictProxy(CIMultiDict()), body, path))
        self._arrival.set()
        behaviour = misfit
        if behaviour is None and self.script:
            behaviour = self.script.popleft()
        if behaviour is None:
            behaviour = self.answer_to(body)
        answer = self.behave(behaviour, body)
        assert isinstance(answer.body, bytes)
        return answer.status, msgspec.json.decode(answer.body)

    def answer_to(self, body: dict[str, Any]) -> Behaviour:
        return self.says(body) if self.says is not None else self.usual

    def looked_at(self, job: FakeJob) -> str:
        """The state that a job shows now; the next look may find it further on."""
        state = self.states[min(job.looks, len(self.states) - 1)]
        job.looks += 1
        return job.ended_by or state

    def shown(self, job: FakeJob) -> str:
        """The state that a job showed last."""
        return job.ended_by or self.states[min(max(job.looks - 1, 0), len(self.states) - 1)]

    def page(
        self, jobs: Sequence[FakeJob], query: Mapping[str, str], usual: int, names: tuple[str, str]
    ) -> tuple[Sequence[FakeJob], dict[str, Any]]:
        """A page of jobs, and the token of the next by its name; ``names`` are those of token and size."""
        token, size = names
        start = int(query.get(token, 0))
        end = start + int(query.get(size, usual))
        following = "nextToken" if token == "nextToken" else "nextPageToken"
        return jobs[start:end], {following: str(end)} if end < len(jobs) else {}

    def newest_first(self) -> list[FakeJob]:
        """The newest first; without the last one while the listing lags."""
        jobs = sorted(self.jobs.values(), key=lambda job: -job.made)
        if self.lag:
            self.lag -= 1
            return jobs[1:]
        return jobs
