"""Asking the teachers of an experiment for attributes and rubrics, and nothing else: so that people can edit
what they propose before anything is made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coeval.core.text import listed
from coeval.engine.model_work import RoleModel
from coeval.engine.probing import Probing, probe_models
from coeval.engine.progress import Board, Calls
from coeval.engine.session import SessionContext
from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import (
    KINDS,
    PHASE_OF,
    Blueprint,
    Kind,
    Proposal,
    ProposalWork,
    declared_part,
)
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.run_session import RunSession, RunSummary
from coeval.pipeline.start.inherit import source_folder
from coeval.pipeline.start.open_start import Opening, open_start, resolved_models
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir

FOLDER = "proposed"
"""Where in the run's folder proposals are kept that are no part of the run: an interrupted session goes on
from them."""


class ProposedPart(NamedTuple):
    """What takes the place of ``auto``, ``complete`` or ``extend`` in a task: attribute → values, or factor →
    criterion; ``authors`` are the teachers that had a part in it, none where a run's own is taken over."""

    task: str
    kind: Kind
    value: dict[str, Any]
    authors: tuple[str, ...]


@dataclass(slots=True)
class Proposed:
    """``lacking`` names the parts of which there is nothing, as ``task: kind``."""

    parts: list[ProposedPart] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    summary: RunSummary = field(default_factory=RunSummary)


class _Proposals(Blueprint):
    """Proposals beside the run: those made otherwise than they would be now are asked for again, and with
    ``anew`` all are."""

    def __init__(self, config: Config, folder: RunDir, known: Preview, *, anew: bool) -> None:
        super().__init__(
            config,
            RunDir(folder.path / FOLDER).anchored(),
            follow_file=False,
            inherited=source_folder(config),
        )
        self._known, self._anew = known.blueprint, anew

    def open_kinds(self, task: TaskConfig) -> list[Kind]:
        """What neither the file nor a run that is there, or is taken over, tells."""
        return [kind for kind in KINDS if self._known.known_part(task, kind) is None]

    def owed_proposals(self, task: TaskConfig, kind: Kind) -> list[tuple[RoleModel, str]]:
        return super().owed_proposals(task, kind) if kind in self.open_kinds(task) else []

    def _stands(self, teacher: RoleModel, key: str) -> bool:
        entry = self._proposals.get(key)
        made = entry is not None and entry.good and entry.recipe == teacher.recipe.hash
        return made and not self._anew

    def part(self, task: TaskConfig, kind: Kind, heard: Mapping[str, Proposal]) -> ProposedPart | None:
        """None where nobody has proposed anything."""
        if kind not in self.open_kinds(task):
            return ProposedPart(task.name, kind, dict(self._known.known_part(task, kind)), ())
        value = self.merged(task, kind, heard)
        if value is None:
            return None
        return ProposedPart(task.name, kind, value, tuple(self.authors(task, kind, heard)))


async def propose_only(
    config: Config, probing: Probing, context: SessionContext, *, anew: bool = False
) -> Proposed:
    """Ask for all that ``config`` leaves to its teachers. What is sent counts in the run's folder, against
    the ceilings and budgets of the run; proposals are kept there too, and none is asked for twice unless
    ``anew``.

    Raises UsageError: a model cannot be asked at all, or the run is at work; ModelUnavailable: a probed model
    does not answer; StoreError: the folder cannot be written; Draining: somebody interrupted it before
    anything was asked.
    """
    prices, folder = PriceBook(), run_folder(config)
    options = RunOptions.so_far(config)
    config, choices = resolved_models(config, options, context.keys, prices)
    for choice in choices:
        context.watcher.note(choice)
    proposals = _Proposals(config, folder, preview_run(config, options), anew=anew)
    owing = {
        teacher.name
        for task in config.tasks
        for kind in KINDS
        for teacher, _ in proposals.owed_proposals(task, kind)
    }
    if not owing:
        return _settled(config, proposals, {}, RunSummary())
    RunDir(folder.path / FOLDER).refuse_foreign()
    specs = [m.spec() for m in config.models if probing.mode == "full" or m.name in owing]
    board = Board(PHASES[:2], {})
    async with open_start(config, prices, context, Opening(specs, board)) as session:
        await probe_models(session, probing, owing)
        running = RunSession(config, options, folder, session)
        works = list(proposals.works(running.asking))
        _expect(board, works)
        context.watcher.begin(board)
        heard = await running.hear_proposals(works, proposals.path)
        summary = _summed_up(running, works)
    return _settled(config, proposals, heard, summary)


def _expect(board: Board, works: Sequence[ProposalWork]) -> None:
    for phase in PHASES[:2]:
        owed = sum(work.phase == phase for work in works)
        board.expect(phase, recorded=0, owed=owed, calls=Calls(owed, owed))


def _summed_up(running: RunSession, works: Sequence[ProposalWork]) -> RunSummary:
    summary = running.summary
    summary.interrupted, summary.stopped = running.session.interrupted, running.session.stopped
    for phase in PHASES[:2]:
        outcome, seen = summary.phases[phase], running.board.phases[phase]
        outcome.planned = sum(work.phase == phase for work in works)
        outcome.made, outcome.failed, outcome.gaps = seen.done, seen.failed, seen.gaps
    return summary


def _settled(
    config: Config, proposals: _Proposals, heard: Mapping[str, Proposal], summary: RunSummary
) -> Proposed:
    found = Proposed(summary=summary)
    for task in config.tasks:
        for kind in KINDS:
            if not isinstance(declared_part(task, kind), str):
                continue
            part = proposals.part(task, kind, heard)
            if part is None:
                found.lacking.append(f"{task.name}: {PHASE_OF[kind]} ({kind})")
            else:
                found.parts.append(part)
    found.summary.notes += _unheard(config, proposals, found)
    return found


def _unheard(config: Config, proposals: _Proposals, found: Proposed) -> Iterator[str]:
    """Parts that lack what some teacher would have proposed."""
    tasks = {task.name: task for task in config.tasks}
    for part in found.parts:
        if not part.authors:
            continue
        silent = [
            teacher.name
            for teacher, _ in proposals.requested(tasks[part.task], part.kind)
            if teacher.name not in part.authors
        ]
        if silent:
            yield f"{part.task}: {part.kind} is without what {listed(silent)} would have proposed"
