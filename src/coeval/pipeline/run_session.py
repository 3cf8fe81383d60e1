"""A run in progress: what its phases share, and carrying out their work with an account of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coeval.core.good import is_good
from coeval.core.records import Kept
from coeval.engine.execute import Done, from_iterable
from coeval.engine.model_work import Asking
from coeval.engine.progress import Board
from coeval.engine.session import Session
from coeval.engine.work import Work
from coeval.models.batch.waiting.batching import BatchMode
from coeval.pipeline.config.schema import PHASES, Config, Mode, Phase
from coeval.pipeline.phases.blueprint import Proposal, ProposalWork
from coeval.pipeline.plan.recorded import Stance
from coeval.pipeline.run_summary import RunSummary
from coeval.store.rundir import RunDir


@dataclass(frozen=True, slots=True)
class RunOptions:
    """How a run is started; the defaults are those of ``coeval run`` without flags."""

    continue_run: bool = False
    overwrite: bool = False
    only_models: tuple[str, ...] = ()
    stance: Stance = Stance.REFUSE
    phase_barriers: bool = False
    batches: BatchMode = BatchMode.WAIT

    def mode(self, config: Config, phase: Phase) -> Mode:
        """A phase's mode: ``--continue`` is Keep for phases 1–2 and Extend for 3–5."""
        if self.continue_run:
            return "Keep" if phase in PHASES[:2] else "Extend"
        return config.experiment.mode(phase)


@dataclass(slots=True)
class RunSession:
    """A session on the phases of one run folder, and what comes of it."""

    config: Config
    options: RunOptions
    folder: RunDir
    session: Session
    summary: RunSummary = field(default_factory=RunSummary)

    @property
    def board(self) -> Board:
        return self.session.board

    @property
    def interrupted(self) -> bool:
        return self.session.interrupted

    @property
    def asking(self) -> Asking:
        return Asking(self.session.models, self.config.experiment.generation_retries)

    def carry_out(
        self,
        works: AsyncIterator[Work],
        path: Callable[[Kept], Path],
        follow: Callable[[Work, Kept], Iterable[Work]],
    ) -> AsyncIterator[Done]:
        """Do works and what follows from them; ``path`` is the file that a record is appended to."""
        append = self.session.journal.append
        return self.session.carry_out(works, lambda _, record: append(path(record), record), follow)

    async def hear_proposals(
        self, works: Sequence[ProposalWork], path: Callable[[Kept], Path]
    ) -> dict[str, Proposal]:
        """Ask teachers for proposals; the good ones, by key."""

        def nothing_follows(_: Work, __: Kept) -> Iterable[Work]:
            return ()

        heard: dict[str, Proposal] = {}
        async for done in self.carry_out(from_iterable(works), path, nothing_follows):
            if isinstance(done.record, Proposal) and is_good(done.record):
                heard[done.work.key] = done.record
        return heard
