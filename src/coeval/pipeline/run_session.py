"""A run in progress: what its phases share, and carrying out their work with an account of it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from coeval.core.errors import Draining
from coeval.core.records import Evaluation, Kept
from coeval.engine.execute import Done, Flow
from coeval.engine.progress import Board
from coeval.engine.work import Work
from coeval.models.open import Models
from coeval.models.quota import UsageLedger
from coeval.pipeline.config.schema import PHASES, Config, Mode, Phase
from coeval.pipeline.plan.recorded import Stance
from coeval.pipeline.plan.task_setup import Asking
from coeval.pipeline.run_summary import ErrorLine, RunSummary
from coeval.store.journal import Journal
from coeval.store.rundir import RunDir, now

log = logging.getLogger("coeval")

USAGE_INTERVAL_S = 1.0
"""How much later than they were sent requests without a ceiling may be counted on disk."""
DRAIN_S = 5.0
"""How long requests on the wire may still finish after an interruption."""


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is started; the defaults are those of ``coeval run`` without flags."""

    continue_run: bool = False
    overwrite: bool = False
    only_models: tuple[str, ...] = ()
    stance: Stance = Stance.REFUSE
    phase_barriers: bool = False

    def mode(self, config: Config, phase: Phase) -> Mode:
        """A phase's mode: ``--continue`` is Keep for phases 1–2 and Extend for 3–5."""
        if self.continue_run:
            return "Keep" if phase in PHASES[:2] else "Extend"
        return config.experiment.mode(phase)


@dataclass(slots=True)
class RunSession:
    """What the phases of one run share. Setting ``interrupt`` ends it, saving all that is finished."""

    config: Config
    options: RunOptions
    folder: RunDir
    models: Models
    ledger: UsageLedger
    journal: Journal
    board: Board
    interrupt: asyncio.Event
    summary: RunSummary = field(default_factory=RunSummary)

    @property
    def asking(self) -> Asking:
        experiment = self.config.experiment
        return Asking(self.models, experiment.seed, experiment.generation_retries)

    async def carry_out(
        self,
        works: AsyncIterator[Work],
        path: Callable[[Kept], Path],
        follow: Callable[[Work, Kept], Iterable[Work]],
    ) -> AsyncIterator[Done]:
        """Do works and what follows from them; journal, count and report each end."""
        append = self.journal.append
        flow: Flow = Flow(lambda _, record: append(path(record), record), follow, begin=self._begin)
        usage = asyncio.create_task(self._write_usage())
        beside = [usage, asyncio.create_task(self._stop_when_interrupted(flow))]
        try:
            async for done in flow.run(works):
                self._account(done)
                yield done
            if usage.done():
                usage.result()  # it ends only where it cannot be written
        finally:
            for task in beside:
                task.cancel()
            await asyncio.wait(beside)

    def _begin(self, work: Work) -> None:
        self.board.begun(work.phase)

    async def _write_usage(self) -> None:
        """Let ``usage.json`` follow the counts of models without a ceiling, should one be set later."""
        while True:
            await asyncio.sleep(USAGE_INTERVAL_S)
            self.ledger.flush()

    async def _stop_when_interrupted(self, flow: Flow) -> None:
        await self.interrupt.wait()
        self.summary.interrupted = True
        flow.drain()
        self.models.drain()
        await asyncio.sleep(DRAIN_S)
        flow.cancel()

    def _account(self, done: Done) -> None:
        work, record = done.work, done.record
        if done.gap is not None or record is None:
            if done.gap is not None:
                self.board.left(work.phase, done.gap)
                if not isinstance(done.gap, Draining) and work.model not in self.summary.stopped:
                    self.summary.stopped[work.model] = str(done.gap)
                    log.warning("%s", done.gap)
            return
        failed = record.status == "failed"
        kind = record.error.kind if record.error else "internal"
        lacking = isinstance(record, Evaluation) and bool(record.missing)
        self.board.ended(work.phase, work.calls, record.usage, kind if failed else None, lacking=lacking)
        if record.usage is not None:
            self.ledger.add_tokens(work.model, record.usage)
        if done.error is not None:
            self._report(done, record)

    def _report(self, done: Done, record: Kept) -> None:
        error, work = done.error, done.work
        kind = record.error.kind if record.error else error.kind if error else "internal"
        line = ErrorLine(
            at=now(),
            phase=work.phase,
            id=work.key,
            model=work.model,
            kind=kind,
            message=str(error)[:2_000],
            attempts=record.attempts,
        )
        self.journal.append(self.folder.errors, line)
        log.warning("%s %s: %s (%s)", work.model, work.key, line.message, kind)
