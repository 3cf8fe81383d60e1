"""The contract of a provider's batch interface: how a request becomes a line of a job, and what is done with
jobs.

Each provider has a file. What they share (parking requests, splitting them into jobs, recording a job
before it is submitted, polling, keeping results) is done once, above.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, TypeAlias

from coeval.core import errors
from coeval.core.entry_points import import_object
from coeval.core.model import ModelSpec
from coeval.models.catalog import Host
from coeval.store.jsonl import raise_store_errors

if TYPE_CHECKING:
    from coeval.models.batch.batch_http import BatchHttp

# --- Batch API of a host, by the name in its row, ours or another package's

BATCH_APIS: Mapping[str, str] = MappingProxyType(
    {
        "openai_files": "coeval.models.batch.openai_files:OpenAiBatches",
        "anthropic": "coeval.models.batch.anthropic_batches:MessageBatches",
        "azure_openai": "coeval.models.batch.openai_files:AzureBatches",
        "mistral": "coeval.models.batch.openai_files:MistralBatches",
        "gemini": "coeval.models.batch.gemini_batches:GeminiBatches",
    }
)
"""By `Host.batch`; imported when a batch is in use."""


BatchMaker: TypeAlias = "Callable[[BatchHttp, ModelSpec, Mapping[str, str]], BatchApi]"
"""Makes the batch interface of one model at one endpoint. The settings are the host's that are no credentials
(`Host.places`), from the model's parameters, the key file, the environment or defaults. Raises UsageError: a
setting that batches need is missing or unusable."""


def load_batch_maker(host: Host) -> BatchMaker:
    """Load the maker of a host's batch interface; UsageError if another package's does not exist."""
    maker: BatchMaker = import_object(BATCH_APIS.get(host.batch, host.batch), host.name)
    if not callable(maker):
        raise errors.UsageError(f"{host.name}: {host.batch} makes no batch interface; reinstall its package")
    return maker


# --- Batch API

BatchState: TypeAlias = Literal["running", "ended", "failed", "expired", "cancelled"]
"""An ``ended`` job has processed every request, failed ones too. An ``expired`` or ``cancelled`` one ended
before: its other requests were never processed. A ``failed`` one was refused whole, and nothing of it is paid
unless its counts say that requests were done."""


class BatchLimits(NamedTuple):
    """The most requests and bytes in one job. ``batches_only``: the deployment serves no live requests."""

    requests: int
    bytes: int
    batches_only: bool = False


class BatchJob(NamedTuple):
    """One job, before and after it is submitted. ``lines`` is the file of its requests, a line each
    (`BatchApi.line`); ``tag`` 32 unique hex digits, which the provider stores if it can; ``written_at`` when
    the intent was written to disk, in seconds since 1970. ``others`` are the ids of known jobs: full jobs of
    one run look alike, and `BatchApi.find` must not take one of these for a job whose id was lost."""

    tag: str
    lines: Path
    requests: int
    bytes: int
    written_at: float
    others: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Return the job's name at providers that have one, by which it is found again."""
        return f"coeval-{self.tag}"


class Undecided(errors.ServerFault, kind="undecided"):
    """The provider stores no tag, and discloses whether a job is ours only when it has ended."""


class Unmade(errors.ServerFault, kind="unmade"):
    """A job's requests could not be uploaded, so there is no job; it may be retried."""


@contextmanager
def raise_retryable_as_unmade() -> Iterator[None]:
    """Raise passing failures before a job is made as `Unmade`, except for too many requests."""
    try:
        yield
    except errors.ModelError as error:
        if not error.retryable or isinstance(error, errors.RateLimited):
            raise
        raise Unmade(str(error), status=error.status, retry_after_s=error.retry_after_s) from error


class BatchProgress(NamedTuple):
    """The state of a job. ``shown`` is the provider's own word for it. Counts are of requests, None if the
    provider gives none: ``done`` were answered, ``failed`` ended in an error or were not processed.
    Collected results are checked against them. ``error`` is why a failed job failed."""

    state: BatchState
    shown: str
    total: int | None = None
    done: int | None = None
    failed: int | None = None
    error: errors.ModelError | None = None


class BatchReply(NamedTuple):
    """The outcome of one request. ``status`` and ``body`` are those of the same request sent live: 200 and
    the answer in the dialect's form, or an error's; if a provider names errors by words, the status of
    that word. ``status`` is None if the provider says that the request was never processed (expired or
    cancelled): it is not paid, and owed."""

    custom_id: str
    status: int | None
    body: bytes


class DamagedResult(NamedTuple):
    """An unreadable result: which one, as people count them, and why. It may have been paid."""

    where: str
    why: str


class BatchApi(Protocol):
    """A provider's batch interface for one model at one endpoint; it keeps no state between calls. All
    methods but `line` call the provider and raise ModelError, whose class says whether to retry. A `create`
    that raises a retryable error may have made the job: call `find` before another `create`, except after
    `Unmade`."""

    limits: BatchLimits

    def line(self, custom_id: str, body: bytes) -> bytes:
        """Encode a request as a line of a job's file, with its line feed; ``body`` is the dialect's."""

    async def create(self, job: BatchJob) -> str:
        """Submit a job, its file as a stream; return the provider's id for it."""

    async def find(self, job: BatchJob) -> str | None:
        """Find the id of a submitted job whose id was lost; None if there is none. Match the tag if the
        provider stores it, else the custom ids of jobs since ``written_at``. Raises Undecided: a running job
        may be it. Ask again, as with `check`, and submit nothing meanwhile."""

    async def check(self, job_id: str) -> BatchProgress: ...

    def collect(self, job_id: str, empty_folder: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        """Yield the outcome of each request that the provider has, in any order; an unreadable result as a
        `DamagedResult`. The caller checks them against the counts of `check`. ``empty_folder`` takes
        the downloads."""

    async def cancel(self, job_id: str) -> None:
        """Ask the provider to stop a job; finished requests stay, and are paid. For a job that has ended it
        may raise a `BadRequest`, or a `ServerFault` of the status 409: see `cancel_job`."""


async def cancel_job(api: BatchApi, job_id: str) -> None:
    """Cancel a job, unless it has ended meanwhile. Raises ModelError: the provider refuses."""
    try:
        await api.cancel(job_id)
    except (errors.BadRequest, errors.ServerFault) as error:
        refused = isinstance(error, errors.BadRequest) or error.status == HTTPStatus.CONFLICT
        if not refused or (await api.check(job_id)).state == "running":
            raise


# --- Reading answers and result files

# How far a host's clock may differ from ours.
CLOCKS_APART_S: Final = 3600.0
# Jobs on a page of a list: OpenAI's maximum, which the others take too.
PAGE: Final = 100
# The status of an error without one: it may be retried.
UNKNOWN_ERROR: Final = 500
# Bytes: 64 MiB, longer than any answer, so that a file without line feeds does not fill the memory.
_LONGEST_LINE = 1 << 26


def _read_lines(results: Path) -> Iterator[bytes]:
    """Yield the lines of a downloaded file, the last one even without a line feed; of a line longer than any
    answer only the beginning, which is not JSON. Raises StoreError: the file cannot be read."""
    with raise_store_errors("read", results), results.open("rb") as file:
        while line := file.readline(_LONGEST_LINE):
            if not line.isspace():
                yield line
            while line and not line.endswith(b"\n"):
                line = file.readline(_LONGEST_LINE)


class HttpBatches(BatchApi):
    """A batch interface whose results are files of lines at the host."""

    def __init__(self, http: BatchHttp, spec: ModelSpec, settings: Mapping[str, str]) -> None:  # noqa: ARG002
        self._http = http
        self._model = spec.model

    async def list_results(self, job_id: str) -> list[str]:
        """List the paths or URLs of a job's result files."""
        raise NotImplementedError

    @staticmethod
    def read_result(line: bytes) -> BatchReply:
        """Read a line of a result file. Raises Undecodable, Unreadable: it is damaged."""
        raise NotImplementedError

    async def collect(self, job_id: str, empty_folder: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        for path in await self.list_results(job_id):
            async for reply in self._download_results(path, empty_folder):
                yield reply

    async def _download_results(self, path: str, folder: Path) -> AsyncIterator[BatchReply | DamagedResult]:
        file = folder / "results.jsonl"
        await self._http.download(path, file)
        for number, line in enumerate(_read_lines(file), 1):
            reply: BatchReply | DamagedResult
            try:
                reply = self.read_result(line)
            except (errors.Undecodable, errors.Unreadable) as error:
                reply = DamagedResult(f"line {number:,}", str(error))
            yield reply


def is_made_before(reported: float | str | None, since: float) -> bool:
    """Check whether a time, in seconds since 1970 or RFC 3339 text, is known to be before another."""
    if isinstance(reported, str):
        try:
            reported = datetime.fromisoformat(reported).timestamp()
        except ValueError:
            return False
    return reported is not None and reported < since
