"""Asking under way, whatever is asked for: models, ledger, journal and board, and an account of every end.

Pipeline and benchmarks say which works there are, what follows from a record and where it is kept.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType

from coeval.core.errors import Draining
from coeval.core.good import is_good
from coeval.core.model import ModelSpec
from coeval.core.records import Evaluation, Kept, Usage
from coeval.engine.error_lines import ErrorLine, torn_line
from coeval.engine.execute import Done, Flow
from coeval.engine.progress import Board, Watcher
from coeval.engine.waiting import telling_of_hosts, unless_interrupted
from coeval.engine.work import Work
from coeval.models.batch.waiting.batches import Batches
from coeval.models.batch.waiting.batching import Batching
from coeval.models.batch.waiting.id_table import IdTable
from coeval.models.keys import Keys
from coeval.models.metering.account_file import Terms
from coeval.models.metering.ledger import Ledger
from coeval.models.open import Models
from coeval.models.transport.http import Http
from coeval.store.journal import Journal
from coeval.store.rundir import now

__all__ = ["Accounts", "Session", "SessionContext", "opened"]

log = logging.getLogger("coeval")

USAGE_INTERVAL_S = 1.0
"""How much later than they were sent requests without a ceiling may be counted on disk."""
DRAIN_S = 5.0
"""How long requests on the wire may still finish after an interruption."""
_LONGEST_MESSAGE = 2_000


@dataclass(slots=True)
class Session:
    """What all works of a run share. Setting ``context.interrupt`` ends it, saving all that is finished.

    Works that wait for batch jobs are done in rounds: `carry_out` does what can be done now, and as long as
    there is `another_round`, all that is owed then is walked over again. Afterwards ``stopped`` says which
    models were given up and why, ``interrupted`` whether somebody ended it. ``clears_batches`` is for whoever
    has walked over all there is: what jobs have brought is not kept any longer.
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
    _short: IdTable = field(default_factory=IdTable)
    _to_come: dict[tuple[str, str], int] = field(default_factory=dict)

    async def carry_out(
        self,
        works: AsyncIterator[Work],
        keep: Callable[[Work, Kept], None],
        follow: Callable[[Work, Kept], Iterable[Work]],
    ) -> AsyncIterator[Done]:
        """Do works and what follows from them; keep, count and report each end."""
        flow: Flow = Flow(keep, follow, begin=self._begin)
        usage = asyncio.create_task(self._write_usage())
        beside = [usage, asyncio.create_task(self._stop_when_interrupted(flow))]
        try:
            async for done in flow.run(works if self.batches is None else self._not_done_with(works)):
                self._account(done)
                yield done
            if usage.done():
                usage.result()  # it ends only where it cannot be written
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    def foresee(self, phase: str, model: str, works: int) -> None:
        """So many works of a phase will ask this model in this round: when all have, what is parked of it
        need not wait for slower models to be submitted."""
        self._to_come[phase, model] = works

    def _count_down(self, work: Work, batches: Batches) -> None:
        place = (work.phase, work.model)
        if (left := self._to_come.get(place)) is not None:
            self._to_come[place] = left - 1
            if left == 1:
                batches.submit(work.model)

    async def another_round(self) -> bool:
        """Submit what is parked, and wait until results of batch jobs have come; False where none will, or
        nobody waits.

        Raises
        ------
        StoreError
            requests or results could not be written.
        """
        batches = self.batches
        if batches is None or self.interrupted:
            return False
        try:
            more = await unless_interrupted(
                batches.more(), self.context.interrupt, "the run is being interrupted"
            )
        except Draining:
            self.interrupted = True
            return False
        finally:
            self._tell_of_short(batches)
        if more:
            batches.begin_round()
            self.board.begin_round()
        return more

    def _tell_of_short(self, batches: Batches) -> None:
        """Results of batch jobs that are missing: a warning, and a line among the errors."""
        for job in batches.short():
            message = f"batch {job.id} of {job.name}: {job.note}"
            self.context.watcher.warn(message)
            line = ErrorLine(
                at=now(),
                phase=", ".join(job.phases),
                id=job.id or job.tag,
                model=job.name,
                kind="batch",
                message=message[:_LONGEST_MESSAGE],
            )
            self.journal.append(self.accounts.errors, line)

    async def _not_done_with(self, works: AsyncIterator[Work]) -> AsyncIterator[Work]:
        """Without those that an earlier round has ended short: they are asked again by the next start."""
        async for work in works:
            if not len(self._short) or _identity(work) not in self._short:
                yield work

    def _begin(self, work: Work) -> None:
        self.board.begun(work.phase)

    async def _write_usage(self) -> None:
        """Let ``usage.json`` follow the counts of models without a ceiling, should one be set later."""
        while True:
            await asyncio.sleep(USAGE_INTERVAL_S)
            self.ledger.flush()

    async def _stop_when_interrupted(self, flow: Flow) -> None:
        await self.context.interrupt.wait()
        self.interrupted = True
        flow.drain()
        self.models.drain()
        await asyncio.sleep(DRAIN_S)
        flow.cancel()

    def _account(self, done: Done) -> None:
        work, record = done.work, done.record
        if self.batches is not None:
            self._count_down(work, self.batches)
        if done.pending:
            self.board.waits(work.phase)
            return
        if done.gap is not None or record is None:
            self._remember_short(work)
            if done.gap is not None:
                self.board.left(work.phase, done.gap)
                if not isinstance(done.gap, Draining) and work.model not in self.stopped:
                    self.stopped[work.model] = str(done.gap)
                    log.warning("%s", done.gap)
            return
        failed = not is_good(record)
        kind = record.error.kind if record.error else "internal"
        lacking = isinstance(record, Evaluation) and bool(record.missing)
        if failed or lacking:
            self._remember_short(work)
        self.board.ended(work.phase, work.calls, record.usage, kind if failed else None, lacking=lacking)
        if done.error is not None:
            self._report(done, record)

    def _remember_short(self, work: Work) -> None:
        if self.batches is not None:
            self._short.set(_identity(work), 0)

    def _report(self, done: Done, record: Kept) -> None:
        error, work = done.error, done.work
        kind = record.error.kind if record.error else error.kind if error else "internal"
        line = ErrorLine(
            at=now(),
            phase=work.phase,
            id=work.key,
            model=work.model,
            kind=kind,
            message=str(error)[:_LONGEST_MESSAGE],
            attempts=record.attempts,
        )
        self.journal.append(self.accounts.errors, line)
        log.warning("%s %s: %s (%s)", work.model, work.key, line.message, kind)


@dataclass(frozen=True, slots=True)
class Accounts:
    """Where a folder keeps its account: ``usage`` what was sent to each model and what that took, ``errors``
    what failed, ``probes`` which models answered before it began, ``jobs`` its batch jobs and ``batches``
    their requests and results.
    ``phase_of`` names the phase (or task) that a file of records belongs to; ``budget_usd`` is the most that
    may be spent, all models together, None: any. ``recorded`` is what the folder's own records took, by
    model."""

    usage: Path
    errors: Path
    probes: Path
    jobs: Path
    batches: Path
    phase_of: Callable[[Path], str]
    budget_usd: float | None = None
    recorded: Mapping[str, Usage] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SessionContext:
    """What a session has from whoever starts it: the keys, who is told of its progress, what ends it, the way
    to the hosts, where it is not to be the usual one, and what goes by batch jobs."""

    keys: Keys
    watcher: Watcher
    interrupt: asyncio.Event
    http: Http | None = None
    batching: Batching = field(default_factory=Batching)


def _identity(work: Work) -> bytes:
    return blake2b(f"{work.phase}\0{work.key}".encode(), digest_size=16).digest()


def _batches(accounts: Accounts, context: SessionContext) -> Batches | None:
    """The batch jobs of a folder, where there are any or will be some."""
    if not context.batching.phases and not accounts.jobs.exists():
        return None
    return Batches(accounts.batches, accounts.jobs, context.batching, context.watcher.note)


def _warn(watcher: Watcher, sentence: str) -> None:
    log.warning("%s", sentence)
    watcher.warn(sentence)


@asynccontextmanager
async def opened(
    accounts: Accounts,
    specs: Iterable[ModelSpec],
    board: Board,
    context: SessionContext,
    terms: Mapping[str, Terms] = MappingProxyType({}),
) -> AsyncIterator[Session]:
    """Hold models, ledger and journal open; ``terms`` are those on which models are asked.

    Raises
    ------
    UsageError
        a model has no address or no key.
    StoreError
        the account cannot be read or written.
    """
    ledger = Ledger(accounts.usage, terms, budget_usd=accounts.budget_usd, recorded=accounts.recorded)
    ledger.warn = lambda sentence: _warn(context.watcher, sentence)
    batches = _batches(accounts, context)
    if batches is not None:
        ledger.jobs_free_money(batches.free_money)
        batches.when_one_ends = ledger.look_again

    def note_torn(path: Path, torn: bytes) -> ErrorLine:
        return torn_line(path, torn, accounts.phase_of(path))

    try:
        async with (
            Models(specs, context.keys, ledger=ledger, http=context.http, batches=batches) as models,
            telling_of_hosts(models.http, context.watcher.warn),
            Journal(accounts.errors, note_torn) as journal,
        ):
            session = Session(models, ledger, journal, board, accounts, context, batches)
            if not context.batching.mode.asks:
                models.drain()
            yield session
        if batches is not None and session.clears_batches and not session.interrupted:
            batches.clear()  # the journal is closed: what was made of results is on disk
    finally:
        ledger.close()
