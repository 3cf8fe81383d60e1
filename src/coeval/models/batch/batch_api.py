"""What a provider's batch interface is: how a request becomes a line of a job, and what is done with a job.

One file for each provider; everything that they share (parking requests, splitting them into jobs, writing
down what is about to be submitted, polling, keeping results) is done once, above.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Raw

from coeval.core.entry_points import import_object
from coeval.core.errors import (
    BadRequest,
    ModelError,
    RateLimited,
    ServerFault,
    Undecodable,
    Unreadable,
    UsageError,
)
from coeval.core.model import ModelSpec
from coeval.models.catalog import Host
from coeval.store.jsonl import store_error

if TYPE_CHECKING:
    from coeval.models.batch.batch_http import BatchHttp

# --- Batch API of a host
#
# Which batch interface a host has: by the name in its row, ours or another package's.

BATCH_APIS: Mapping[str, str] = MappingProxyType(
    {
        "openai_files": "coeval.models.batch.openai_files:OpenAiBatches",
        "anthropic": "coeval.models.batch.anthropic_batches:MessageBatches",
        "azure_openai": "coeval.models.batch.openai_files:AzureBatches",
        "mistral": "coeval.models.batch.openai_files:MistralBatches",
        "gemini": "coeval.models.batch.gemini_batches:GeminiBatches",
    }
)
"""Where each stands, by the name that rows have for it: loaded where a batch is in use."""


class BatchMaker(Protocol):
    """Makes the batch interface of one model at one endpoint. ``settings`` are those of the host that are no
    credentials (`Host.places`), from the model's parameters, the key file, the environment or defaults.

    Raises UsageError: a setting is missing that batches need, or cannot be used.
    """

    def __call__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str], /) -> BatchApi: ...


def batch_maker(host: Host) -> BatchMaker:
    """What makes the batch interface of a host that has one.

    Raises UsageError: a host of another package names what is not there.
    """
    maker: BatchMaker = import_object(BATCH_APIS.get(host.batch, host.batch), host.name)
    if not callable(maker):
        raise UsageError(f"{host.name}: {host.batch} makes no batch interface; reinstall its package")
    return maker


# --- Batch API

BatchState: TypeAlias = Literal["running", "ended", "failed", "expired", "cancelled"]
"""An ``ended`` job has carried out every request, well or not. An ``expired`` or ``cancelled`` one ended
before that: what it had not done by then was never carried out. A ``failed`` one was refused whole, and
nothing of it is paid, unless its counts say that requests were done."""


class BatchLimits(NamedTuple):
    """What the provider takes in one job: so many requests and bytes of its file. ``batches_only``: what
    serves jobs serves no live requests."""

    requests: int
    bytes: int
    batches_only: bool = False


class BatchJob(NamedTuple):
    """One job as it is about to be submitted, and afterwards.

    ``lines`` is the file of its requests, a line each as `BatchApi.line` makes them; ``tag`` 32 hex digits
    that no other job has, for the provider to store where it stores anything of ours; ``written_at`` when
    the intent was put on disk, in seconds since 1970. ``others`` are the ids of the jobs that are known
    already: full jobs of one run look alike, and `BatchApi.find` takes none of these for one whose id was
    lost.
    """

    tag: str
    lines: Path
    requests: int
    bytes: int
    written_at: float
    others: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """What the job is called where it has a name, by which it is found again."""
        return f"coeval-{self.tag}"


class Undecided(ServerFault):
    """Whether a job is ours cannot be known yet: its provider stores no tag, and tells the custom ids of a
    job only when that has ended."""

    kind = "undecided"


class Unmade(ServerFault):
    """What a job is made of could not be handed over, so that there is no job; it may be tried again."""

    kind = "unmade"


@contextmanager
def before_the_job() -> Iterator[None]:
    """Raise a passing failure of what comes before a job is made as `Unmade`."""
    try:
        yield
    except ModelError as error:
        if not error.retryable or isinstance(error, RateLimited):
            raise
        raise Unmade(str(error), status=error.status, retry_after_s=error.retry_after_s) from error


class BatchProgress(NamedTuple):
    """The state of a job. ``shown`` is the provider's own word for it. Counts are of requests, None where the
    provider gives none: ``done`` were answered, ``failed`` ended in an error or were not carried out. What
    is collected is held against them. ``error`` is why a failed job failed."""

    state: BatchState
    shown: str
    total: int | None = None
    done: int | None = None
    failed: int | None = None
    error: ModelError | None = None


class BatchReply(NamedTuple):
    """What became of one request. ``status`` and ``body`` are those that the same request would have had if
    it had been asked live: 200 and the answer in the dialect's form, or an error's status and body; where a
    provider names its errors by words, the status that this word has live. ``status`` is None where the
    provider says that the request was never carried out (it expired or was cancelled): it is not paid, and
    owed."""

    custom_id: str
    status: int | None
    body: bytes


class DamagedResult(NamedTuple):
    """A result that cannot be read: which one, as a person counts them, and why. Nobody knows what became of
    its request, which may have been paid."""

    where: str
    why: str


class BatchApi(Protocol):
    """One provider's batch interface for one model at one endpoint; it keeps nothing between calls but what
    it was made of.

    All but `line` ask the provider, and raise ModelError, from the one tree, where that fails: its class says
    whether to ask again. A `create` that raises a retryable error may have made the job: whoever called it
    calls `find` before it calls `create` again, but for `Unmade`.
    """

    limits: BatchLimits

    def line(self, custom_id: str, body: bytes) -> bytes:
        """One request of a job's file, its line feed included; ``body`` is what the dialect makes of it."""

    async def create(self, job: BatchJob) -> str:
        """Submit a job, its file as a stream; the id that the provider knows it by."""

    async def find(self, job: BatchJob) -> str | None:
        """The id of a job that was submitted, and whose id was lost; None where there is none. By the tag
        where the provider stores one, else among the jobs since ``written_at`` by the custom ids.

        Raises Undecided: one that is under way may be it: asked again, as `check` is, until it is known.
        Nothing is submitted meanwhile.
        """

    async def check(self, job_id: str) -> BatchProgress: ...

    def collect(self, job_id: str, into: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        """Yield what became of each request, in any order, as far as the provider has it now; a result that
        cannot be read is yielded as a `DamagedResult`, and the others follow. Whoever calls it holds them
        against the counts of `check`. ``into`` is an empty folder for what has to be downloaded whole."""

    async def cancel(self, job_id: str) -> None:
        """Ask the provider to do no more of it; what is done already stays, and is paid. Of one that has
        ended it may raise a `BadRequest`, or a `ServerFault` of the status 409: see `cancel_job`."""


async def cancel_job(api: BatchApi, job_id: str) -> None:
    """Ask the provider to do no more of a job, unless it has ended by then.

    Raises ModelError: that is refused.
    """
    try:
        await api.cancel(job_id)
    except (BadRequest, ServerFault) as error:
        refused = isinstance(error, BadRequest) or error.status == HTTPStatus.CONFLICT
        if not refused or (await api.check(job_id)).state == "running":
            raise


# --- Reading answers and result files

# How far a host's clock may differ from ours.
CLOCKS_APART_S: Final = 3600.0
# Entries of one page of a list of jobs: OpenAI's maximum, which the others take too.
PAGE: Final = 100
# The status of an error that names none: it may be tried again.
UNKNOWN_ERROR: Final = 500
# Bytes: 64 MiB, longer than any answer, so that a file without line feeds does not fill the memory.
_LONGEST_LINE = 1 << 26


def result_lines(results: Path) -> Iterator[bytes]:
    """The lines of a file that was downloaded whole: so the last one counts without a line feed, too. Of a
    line that is longer than any answer, only the beginning, which is no JSON.

    Raises StoreError: the file cannot be read.
    """
    try:
        with results.open("rb") as file:
            while line := file.readline(_LONGEST_LINE):
                if not line.isspace():
                    yield line
                while line and not line.endswith(b"\n"):
                    line = file.readline(_LONGEST_LINE)
    except OSError as error:
        raise store_error("read", results, error) from error


def readable(
    results: Iterable[bytes], read: Callable[[bytes], BatchReply], noun: str = "line"
) -> Iterator[BatchReply | DamagedResult]:
    """Each result as ``read`` makes it out; what that cannot (Undecodable, Unreadable), as a `DamagedResult`.
    ``noun``: what a person counts."""
    for number, result in enumerate(results, 1):
        reply: BatchReply | DamagedResult
        try:
            reply = read(result)
        except (Undecodable, Unreadable) as error:
            reply = DamagedResult(f"{noun} {number:,}", str(error))
        yield reply


async def download_results(
    http: BatchHttp, path: str, into: Path, read: Callable[[bytes], BatchReply]
) -> AsyncIterator[BatchReply | DamagedResult]:
    """The lines of a file of results, which is put into the folder ``into``; see `readable`."""
    file = into / "results.jsonl"
    await http.download(path, file)
    for reply in readable(result_lines(file), read):
        yield reply


def answered_reply(custom_id: str, answer: Raw) -> BatchReply:
    """What became of a request of which no error is told: its answer. Raises Unreadable where there is none:
    that says nothing of what was done."""
    reported = bytes(answer)
    if reported in (b"", b"null"):
        raise Unreadable("it holds neither an answer nor an error")
    return BatchReply(custom_id, 200, reported)


def made_before(reported: float | str | None, since: float) -> bool:
    """Whether a time, told in seconds since 1970 or as text (RFC 3339), is before another; False where it is
    neither."""
    if isinstance(reported, str):
        try:
            reported = datetime.fromisoformat(reported).timestamp()
        except ValueError:
            return False
    return reported is not None and reported < since
