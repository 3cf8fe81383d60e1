"""Starts that stop early: probing the models of an experiment, asking them for a few samples, or its teachers
for attributes and rubrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coeval.core.errors import UsageError
from coeval.core.model import ModelSpec
from coeval.core.options import NO_SAMPLES
from coeval.core.text import dollars, join_names
from coeval.engine.model_work import RoleModel
from coeval.engine.probing import ProbeResult, Probing, probe_models, try_models
from coeval.engine.progress import Board, Calls
from coeval.engine.session import Session, SessionContext
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.open import check_askable, find_model_obstacle
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
from coeval.pipeline.plan.estimate.live_samples import add_samples, sampled_models
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.run_session import RunSession, RunSummary
from coeval.pipeline.start.inherit import source_folder
from coeval.pipeline.start.open_start import (
    SessionOptions,
    lock_and_open_session,
    owing,
    requested_under,
    resolve_hosts,
)
from coeval.pricing.lengths import Lengths
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir

# --- Probing the models alone


class ProbedConfig(NamedTuple):
    """The configuration, ``auto`` resolved, and what was found of its models."""

    config: Config
    results: list[ProbeResult]


async def probe_config(config: Config, probing: Probing, context: SessionContext) -> ProbedConfig:
    """Find out which of a configuration's models can be asked, as a start of its run does, and write
    ``probe_results.json`` into its folder. What is sent counts there, against the ceilings of models.

    With the mode ``resume`` those are tried that have work left in the run, all of them where there is none.

    Raises UsageError: a model cannot be asked at all: it has no address or no key; StoreError: the run is at
    work, or its folder cannot be written; Draining: somebody interrupted it.
    """
    prices, options = PriceBook(), RunOptions.so_far(config)
    config = resolve_hosts(config, options, context.keys, prices).config
    if probing.mode == "disable":
        check_askable([model.spec() for model in config.models], context.keys)
        return ProbedConfig(config, [])
    async with lock_and_open_session(config, prices, context) as session:
        begun = probing.mode == "resume" and options.continue_run
        work_left = owing(preview_run(config, options)) if begun else None
        return ProbedConfig(config, await try_models(session, probing, work_left))


async def sample_for_estimate(
    config: Config, preview: Preview, lengths: Lengths, prices: PriceBook, context: SessionContext
) -> None:
    """Add to ``lengths`` what ``experiment.estimate_samples`` of each model show, whatever its roles;
    functions and programs of the user's are not run. A model that cannot be asked is reported; what is sent
    counts in the run's folder, against the ceilings of models.

    Raises UsageError: the run is at work: its folder counts what it sends by itself; StoreError: the folder
    cannot be written; Draining: somebody interrupted it.
    """
    folder = run_folder(config)
    needed = sampled_models(preview)
    askable = []
    for spec in (model.spec() for model in config.models if model.name in needed):
        if HOSTS[spec.interface].dialect == OWN_CODE:
            context.watcher.note(f"no samples of {spec.name}: an estimate runs no code")
        elif (why := find_model_obstacle(spec, context.keys)) is None:
            askable.append(spec)
        else:
            context.watcher.warn(f"no samples of {spec.name}: {why}")
    if not config.experiment.estimate_samples or not askable:
        return
    if (writer := folder.writer()) is not None:
        raise UsageError(
            f"{folder.path} is in use by process {writer}, and samples would count there too; wait for "
            f"it, or estimate without samples ({NO_SAMPLES})"
        )
    async with lock_and_open_session(config, prices, context, SessionOptions(askable)) as session:
        before = _spent(askable, session)
        await add_samples(config, preview, lengths, [spec.name for spec in askable], session)
        if cost := _spent(askable, session) - before:
            context.watcher.note(
                f"samples cost {dollars(cost)}: {folder.usage} keeps it, and it counts towards the "
                "budgets of the run"
            )


def _spent(specs: Iterable[ModelSpec], session: Session) -> float:
    return sum(session.ledger.meter(spec.name).spent_usd for spec in specs)


# --- Asking the teachers for attributes and rubrics alone, so that people can edit what they propose

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
class Proposals:
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


async def request_proposals(
    config: Config, probing: Probing, context: SessionContext, *, anew: bool = False
) -> Proposals:
    """Ask for all that ``config`` leaves to its teachers. What is sent counts in the run's folder, against
    the ceilings and budgets of the run; proposals are kept there too, and none is asked for twice unless
    ``anew``.

    Raises UsageError: a model cannot be asked at all, or the run is at work; ModelUnavailable: a probed model
    does not answer; StoreError: the folder cannot be written; Draining: somebody interrupted it before
    anything was asked.
    """
    prices, folder = PriceBook(), run_folder(config)
    options = RunOptions.so_far(config)
    config, choices = resolve_hosts(config, options, context.keys, prices)
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
    async with lock_and_open_session(config, prices, context, SessionOptions(specs, board)) as session:
        await probe_models(session, probing, owing, requested_under(config))
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
        summary.phases[phase].take(running.board.phases[phase], sum(work.phase == phase for work in works))
    return summary


def _settled(
    config: Config, proposals: _Proposals, heard: Mapping[str, Proposal], summary: RunSummary
) -> Proposals:
    found = Proposals(summary=summary)
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


def _unheard(config: Config, proposals: _Proposals, found: Proposals) -> Iterator[str]:
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
            yield f"{part.task}: {part.kind} is without what {join_names(silent)} would have proposed"
