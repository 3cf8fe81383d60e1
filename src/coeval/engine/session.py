"""Session: models, ledger, journal and progress of one start, whatever it works on.

Pipeline and benchmarks supply the works, what follows from a record and where it is stored.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from coeval.core.errors import BadRequest, Draining
from coeval.core.model import ModelSpec
from coeval.core.plain import PlainFormatter
from coeval.core.records import Evaluation, Kept, Usage
from coeval.core.regular_files import open_file
from coeval.core.text import digest
from coeval.engine.model_work import LONGEST_MESSAGE
from coeval.engine.progress import Board, Watcher
from coeval.engine.work import Done, Flow, Work
from coeval.models.answer_store import AnswerStore
from coeval.models.batch.batches import Batches
from coeval.models.batch.job_list import Batching
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.metering.meter import Ledger
from coeval.models.open import Models
from coeval.models.transport.http import Http
from coeval.store.jsonl import MOST_KEPT, Journal, store_error
from coeval.store.rundir import ErrorLine, utc_now

# --- Error log: ``run_errors.jsonl``

log = logging.getLogger("coeval")


_NUMBER = re.compile(r"\d+")
# One refusal is an item's, the same one again is the settings'.
_REPEATED = 2

# --- Messages on troubled hosts, and interruption

T = TypeVar("T")

# A person waits for the sentence; hosts change over seconds.
LOOK_S = 1.0
# Seconds between two messages about the same troubled host.
AGAIN_AFTER_S = 60.0


async def await_unless_interrupted(work: Coroutine[Any, Any, T], interrupt: asyncio.Event, message: str) -> T:
    """Await ``work``; raise Draining with ``message`` as soon as the run is interrupted."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(interrupt.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Draining(message)
        return working.result()
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)


@asynccontextmanager
async def report_host_problems(
    http: Http,
    note: Callable[[str], None],
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Coroutine[Any, Any, None]] = asyncio.sleep,
) -> AsyncIterator[None]:
    """Report, while entered, hosts that only fail (see `Http.describe_outages`) and an unshared throttle; on
    exit, hosts that repeated a credential, whose answers were redacted, and replies of odd shapes."""
    telling = asyncio.create_task(_report_troubles_every_second(http, note, clock, sleep), name="waits")
    try:
        yield
    finally:
        for sentence in (
            *http.hosts.pop_throttle_problems(),
            *http.describe_repeated_credentials(),
            *http.describe_odd_replies(),
        ):
            note(sentence)
        telling.cancel()
        await asyncio.wait({telling})
        if not telling.cancelled():
            telling.result()  # it ends by itself only where nobody can be told


async def _report_troubles_every_second(
    http: Http,
    note: Callable[[str], None],
    clock: Callable[[], float],
    sleep: Callable[[float], Coroutine[Any, Any, None]],
) -> None:
    """Report throttle problems and hosts that only fail, every second; a host at most once a minute."""
    reported: dict[object, float] = {}
    while True:
        await sleep(LOOK_S)
        now = clock()
        for problem in http.hosts.pop_throttle_problems():
            note(problem)
        for host, sentence in http.describe_outages().items():
            if now >= reported.get(host, float("-inf")) + AGAIN_AFTER_S:
                reported[host] = now
                note(sentence)


# Delay before requests without a ceiling are counted on disk.
USAGE_INTERVAL_S = 1.0
# Seconds for requests in flight to finish after an interruption.
DRAIN_S = 5.0


@dataclass(slots=True)
class Session:
    """Shared state of all works of a run. Setting ``context.interrupt`` ends it and saves all finished
    records.

    Works that wait for batch jobs are done in rounds: `carry_out` does what it can, and while
    `await_next_round` returns True, all missing work is walked again. Afterwards ``stopped`` names the models
    that were given up and why, ``interrupted`` whether the user ended it. Set ``clears_batches`` once all
    works were walked: results of jobs are deleted then.
    """

    models: Models
    ledger: Ledger
    journal: Journal
    board: Board
    accounts: Accounts
    context: SessionContext
    batches: Batches | None = None
    interrupted: bool = False
    stopped: dict[str, str] = field(default_factory=dict)
    clears_batches: bool = False
    _short: set[bytes] = field(default_factory=set)
    _refused: Counter[str] = field(default_factory=Counter)
    _to_come: dict[tuple[str, str], int] = field(default_factory=dict)

    async def carry_out(
        self,
        works: AsyncIterator[Work],
        keep: Callable[[Work, Kept], None],
        follow: Callable[[Work, Kept], Iterable[Work]],
    ) -> AsyncIterator[Done]:
        """Run works and what follows from them; record, count and report each outcome."""
        flow: Flow = Flow(keep, follow, begin=self.board.note_phase_begun)
        usage = asyncio.create_task(self._write_usage_every_second())
        beside = [usage, asyncio.create_task(self._stop_when_interrupted(flow))]
        try:
            async for done in flow.run(works if self.batches is None else self._skip_tried_in_vain(works)):
                self._count_and_log_outcome(done)
                yield done
            if usage.done():
                usage.result()  # it ends only where it cannot be written
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    def announce_works(self, phase: str, model: str, works: int) -> None:
        """Announce a model's works of a phase in this round: its batch is submitted once all have come."""
        self._to_come[phase, model] = works

    def _count_work_and_submit_last(self, work: Work, batches: Batches) -> None:
        phase_and_model = (work.phase, work.model)
        if (left := self._to_come.get(phase_and_model)) is not None:
            self._to_come[phase_and_model] = left - 1
            if left == 1:
                batches.submit_parked(work.model)

    async def await_next_round(self) -> bool:
        """Submit batches and wait for results; False where none will come or the session does not wait.
        Raises StoreError: requests or results could not be written."""
        batches = self.batches
        if batches is None or self.interrupted:
            return False
        try:
            more = await await_unless_interrupted(
                batches.submit_parked_and_await_results(),
                self.context.interrupt,
                "the run is being interrupted",
            )
        except Draining:
            self.interrupted = True
            return False
        finally:
            self._report_jobs_lacking_results(batches)
        if more:
            batches.begin_round()
            self.board.clear_pending()
        return more

    def _report_jobs_lacking_results(self, batches: Batches) -> None:
        """Report results that are missing from batch jobs: a warning each, and a line in the error log."""
        for job in batches.pop_jobs_with_unknown_results():
            message = f"batch {job.id} of {job.name}: {job.note}"
            self.context.watcher.warn(message)
            line = ErrorLine(
                at=utc_now(),
                phase=", ".join(job.phases),
                id=job.id or job.tag,
                model=job.name,
                kind="batch",
                message=message[:LONGEST_MESSAGE],
            )
            self.journal.append(self.accounts.errors, line)

    async def _skip_tried_in_vain(self, works: AsyncIterator[Work]) -> AsyncIterator[Work]:
        """Skip works that an earlier round ended without a whole record; the next start repeats them."""
        async for work in works:
            if not self._short or _identity(work) not in self._short:
                yield work

    async def _write_usage_every_second(self) -> None:
        """Write the counts of models without a ceiling to ``usage.json``, should one be set later."""
        while True:
            await asyncio.sleep(USAGE_INTERVAL_S)
            self.ledger.write_with_reservations_of_one_block()

    async def _stop_when_interrupted(self, flow: Flow) -> None:
        await self.context.interrupt.wait()
        self.interrupted = True
        flow.drain()
        self.models.drain()
        await asyncio.sleep(DRAIN_S)
        flow.cancel()

    def _count_and_log_outcome(self, done: Done) -> None:
        """Count a work's outcome on the board, remember what is short, and log its error."""
        work, record = done.work, done.record
        if self.batches is not None:
            self._count_work_and_submit_last(work, self.batches)
        if record is None and done.gap is None:  # it waits for a batch job
            self.board.phases[work.phase].pending += 1
            return
        if done.gap is not None or record is None:
            self._remember_short(work)
            if done.gap is not None:
                self.board.phases[work.phase].gaps[done.gap.kind] += 1
                if not isinstance(done.gap, Draining) and work.model not in self.stopped:
                    self.stopped[work.model] = str(done.gap)
                    log.warning("%s", done.gap)
            return
        failed = not done.good
        kind = record.error.kind if record.error else "internal"
        lacking = not failed and isinstance(record, Evaluation) and bool(record.missing)
        if failed or lacking:
            self._remember_short(work)
        self.board.count_outcome(
            work.phase, work.calls, record.usage, kind if failed else None, incomplete=lacking
        )
        if done.error is not None:
            self._log_error_and_count_refusals(done, record)

    def _remember_short(self, work: Work) -> None:
        if self.batches is not None:
            self._short.add(_identity(work))

    def _log_error_and_count_refusals(self, done: Done, record: Kept) -> None:
        """Write a failed work to the error log; warn of a model that refuses several for one reason."""
        error, work = done.error, done.work
        kind = record.error.kind if record.error else error.kind if error else "internal"
        line = ErrorLine(
            at=utc_now(),
            phase=work.phase,
            id=work.key,
            model=work.model,
            kind=kind,
            message=str(error)[:LONGEST_MESSAGE],
            attempts=record.attempts,
        )
        self.journal.append(self.accounts.errors, line)
        log.warning("%s %s: %s (%s)", work.model, work.key, line.message, kind)
        if kind == BadRequest.kind and work.model not in self.stopped:
            # Requests differ in their lengths, and so do the numbers in a refusal of the same thing.
            alike = digest(work.model, _NUMBER.sub("", line.message))
            self._refused[alike] += 1
            if self._refused[alike] == _REPEATED:
                self.context.watcher.warn(f"{work.model} refuses requests: {line.message}")


@dataclass(frozen=True, slots=True)
class Accounts:
    """Paths of a folder's accounts: ``usage`` of each model, ``errors``, ``probes``, batch ``jobs`` and the
    folder ``batches`` of their requests and results. ``phase_of`` names the phase (or task) of a record
    file; ``budget_usd`` is that of all models together, None for no limit; ``recorded``: usage by model."""

    usage: Path
    errors: Path
    probes: Path
    jobs: Path
    batches: Path
    phase_of: Callable[[Path], str]
    budget_usd: float | None = None
    recorded: Mapping[str, Usage] = field(default_factory=dict)

    def log_torn_line_as_error(self, path: Path, torn: bytes) -> ErrorLine:
        """Note a torn last line in the error log; its record is missing again."""
        log.warning("%s ended in a torn line of %d bytes; it was cut off", path, len(torn))
        return ErrorLine(
            at=utc_now(),
            phase=self.phase_of(path),
            id="",
            model="",
            kind="torn_line",
            message=f"cut off the end of {path.name}",
            torn=torn[:MOST_KEPT].decode(errors="backslashreplace"),
        )


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session's starter supplies: keys, the observer of its progress, the interrupt, the HTTP client
    if not the usual one, the batched phases, and the store that paid answers are shared in."""

    keys: Keys
    watcher: Watcher
    interrupt: asyncio.Event
    http: Http | None = None
    batching: Batching = field(default_factory=Batching)
    store: AnswerStore | None = None


def _identity(work: Work) -> bytes:
    return blake2b(f"{work.phase}\0{work.key}".encode(), digest_size=16).digest()


@asynccontextmanager
async def open_session(
    accounts: Accounts,
    specs: Iterable[ModelSpec],
    board: Board,
    context: SessionContext,
    terms: Mapping[str, Terms] = MappingProxyType({}),
) -> AsyncIterator[Session]:
    """Open models, ledger and journal; ``terms`` are the prices and ceilings of the models. Raises
    UsageError: a model has no address or no key; StoreError: the account cannot be read or written."""
    ledger = Ledger(accounts.usage, terms, budget_usd=accounts.budget_usd, recorded=accounts.recorded)
    batches: Batches | None = None
    if context.batching.phases or accounts.jobs.exists():
        batches = Batches(accounts.batches, accounts.jobs, context.batching, context.watcher.note)
        ledger.budget_gate.free_jobs_money = batches.submit_requests_that_hold_money
        batches.when_one_ends = ledger.budget_gate.serve_waiting

    def warn(sentence: str) -> None:
        log.warning("%s", sentence)
        context.watcher.warn(sentence)

    ledger.warn = warn

    try:
        async with (
            Models(
                specs, context.keys, ledger=ledger, http=context.http, batches=batches, store=context.store
            ) as models,
            report_host_problems(models.http, context.watcher.warn),
            Journal(accounts.errors, accounts.log_torn_line_as_error) as journal,
        ):
            session = Session(models, ledger, journal, board, accounts, context, batches)
            if not context.batching.mode.calls_models:
                models.drain()
            yield session
        if context.store is not None and context.store.hits:
            context.watcher.note(f"{context.store.hits:,} answers came from the store, at no cost")
        if batches is not None and session.clears_batches and not session.interrupted:
            batches.remove_recorded_jobs()  # the journal is closed: what was made of results is on disk
    finally:
        ledger.close()


# --- ``run.log``


class _RunLog(logging.FileHandler):
    """A log that ends where the disk does: what matters is in the records, whose errors say so."""

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(OSError):  # opening the file is not guarded by the base class
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the base class's name
        if not isinstance(sys.exc_info()[1], OSError):
            super().handleError(record)

    def close(self) -> None:
        with suppress(OSError):  # what could not be written is tried once more
            super().close()


@contextmanager
def write_log(path: Path, level: str) -> Iterator[None]:
    """Write the package's log of this level and above to a file while entered; the first line creates it.
    Raises StoreError: what stands there is no file; a pipe would keep us waiting."""
    try:
        with suppress(FileNotFoundError):
            open_file(path).close()
    except OSError as error:
        raise store_error("write", path, error) from error
    handler = _RunLog(path, encoding="utf-8", delay=True)
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    handler.setLevel(level)
    package = logging.getLogger("coeval")
    before = package.level
    package.addHandler(handler)
    package.setLevel(min(handler.level, before or handler.level))
    try:
        yield
    finally:
        package.removeHandler(handler)
        package.setLevel(before)
        handler.close()
