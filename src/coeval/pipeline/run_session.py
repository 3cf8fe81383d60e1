"""A run in progress: its session and folder, and the outcome of each phase."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from coeval.core.errors import GAPS, INTERRUPTED
from coeval.core.html_table import html_lines, html_table
from coeval.core.records import Kept, is_good
from coeval.engine.model_work import Asking
from coeval.engine.progress import Board, PhaseCount
from coeval.engine.session import Session
from coeval.engine.work import Done, Work, iterate_works
from coeval.models.batch.job_list import PendingJob
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.blueprint import Proposal, ProposalWork
from coeval.pipeline.phases.supplied import ShortSupply
from coeval.pipeline.run_options import RunOptions
from coeval.store.rundir import RunDir

# --- Outcome of a run


@dataclass(slots=True)
class PhaseOutcome:
    """Records of one phase at the end of a run: planned, recorded, made, and why others are missing.
    ``unsupplied`` items are for people to supply; ``pending`` records wait for batch jobs."""

    planned: int = 0
    recorded: int = 0
    made: int = 0
    failed: Counter[str] = field(default_factory=Counter)
    gaps: Counter[str] = field(default_factory=Counter)
    incomplete: int = 0
    unsupplied: int = 0
    pending: int = 0

    def set_from_count(self, count: PhaseCount, planned: int) -> None:
        """Copy the counts of a phase from the board."""
        self.planned, self.recorded, self.made = planned, count.recorded, count.done
        self.incomplete, self.failed = count.lacking, count.failed
        self.gaps, self.pending = count.gaps, count.pending

    @property
    def missing(self) -> int:
        """Return how many records are still owed, those that lack factors included."""
        return self.planned - self.recorded - self.made + self.incomplete

    @property
    def blocked(self) -> int:
        """Return how many records are missing because the records they are made from are missing."""
        explained = self.failed.total() + self.gaps.total() + self.incomplete + self.unsupplied + self.pending
        return max(0, self.missing - explained)


@dataclass(slots=True, repr=False)
class RunSummary:
    """The end of a run.

    ``interrupted``: somebody stopped it; ``notes`` are for the user; ``short``: files of items that people
    have to extend; ``batches``: jobs still open at providers; ``mixed``: the note on records of another
    configuration, if any. Not ``begun``: stopped before it changed its folder, which may hold an earlier run.
    """

    phases: dict[Phase, PhaseOutcome] = field(default_factory=lambda: {p: PhaseOutcome() for p in PHASES})
    stopped: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    short: list[ShortSupply] = field(default_factory=list)
    batches: list[PendingJob] = field(default_factory=list)
    interrupted: bool = False
    begun: bool = True
    mixed: str = ""

    @property
    def missing(self) -> int:
        return sum(outcome.missing for outcome in self.phases.values())

    @property
    def shows_scores(self) -> bool:
        """Return False if the run was stopped: its scores would be a look that nobody requested."""
        return self.begun and not self.interrupted

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 3 with gaps, 130 if interrupted."""
        if self.interrupted:
            return INTERRUPTED
        return GAPS if self.missing else 0

    def __repr__(self) -> str:
        planned = sum(outcome.planned for outcome in self.phases.values())
        state = "interrupted, " if self.interrupted else ""
        return f"Summary({state}{planned - self.missing:,} of {planned:,} records there)"

    def _repr_html_(self) -> str:
        """Show the outcome of each phase as a table in notebooks."""
        rows = [
            (
                phase,
                outcome.planned,
                outcome.planned - outcome.missing,
                outcome.made,
                outcome.failed.total(),
                outcome.gaps.total(),
            )
            for phase, outcome in self.phases.items()
        ]
        header = ("phase", "planned", "there", "made now", "failed", "not sent")
        title = f"{'Interrupted' if self.interrupted else 'Finished'}, exit code {self.exit_code}"
        return html_table(title, header, rows) + html_lines([*self.notes, *self.stopped.values()])


@dataclass(slots=True)
class RunSession:
    """A session on one anchored run folder, and its summary; ``home``: where we were before user code ran."""

    config: Config
    options: RunOptions
    folder: RunDir
    session: Session
    home: Path = field(default_factory=Path.cwd)
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
        """Do works and their followers; ``path`` gives the file that a record is appended to."""
        append = self.session.journal.append
        return self.session.carry_out(works, lambda _, record: append(path(record), record), follow)

    async def collect_proposals(
        self, works: Sequence[ProposalWork], path: Callable[[Kept], Path]
    ) -> dict[str, Proposal]:
        """Ask teachers for proposals; return the good ones by key."""
        proposals_by_key: dict[str, Proposal] = {}
        async for done in self.carry_out(iterate_works(works), path, lambda _work, _kept: ()):
            if isinstance(done.record, Proposal) and is_good(done.record):
                proposals_by_key[done.work.key] = done.record
        return proposals_by_key
