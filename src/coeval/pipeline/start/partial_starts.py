"""Starts that stop before a run: probe an experiment's models, sample them, or ask teachers for proposals."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from coeval.core.errors import UsageError
from coeval.core.figures import dollars
from coeval.core.model import ModelSpec
from coeval.core.options import NO_SAMPLES
from coeval.core.text import join_names
from coeval.engine.model_work import RoleModel
from coeval.engine.probing import ProbeResult, Probing, probe_and_write_results, probe_models
from coeval.engine.progress import Board, Calls
from coeval.engine.session import Session, SessionContext
from coeval.models.catalog import HOSTS, OWN_CODE
from coeval.models.open import find_model_obstacle, raise_unless_askable
from coeval.pipeline.config.schema import PHASES, Config, TaskConfig
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF, Blueprint, Kind, Proposal, find_declaration
from coeval.pipeline.plan.estimate.live_samples import add_live_samples, list_models_with_calls
from coeval.pipeline.plan.preview import Preview, preview_run
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.run_session import RunSession, RunSummary
from coeval.pipeline.start.inherit import find_source_run
from coeval.pipeline.start.session_start import (
    SessionOptions,
    find_models_with_work,
    list_role_requests,
    lock_and_open_session,
    resolve_hosts,
)
from coeval.pricing.lengths import Lengths
from coeval.pricing.price_book import PriceBook
from coeval.store.rundir import RunDir

# --- Probing the models alone


class ProbedConfig(NamedTuple):
    """A configuration with ``auto`` resolved, and the probe results of its models."""

    config: Config
    results: list[ProbeResult]


async def probe_config(config: Config, probing: Probing, context: SessionContext) -> ProbedConfig:
    """Probe the models of a configuration as a start would, and write ``probe_results.json`` into its folder.
    Requests count towards the ceilings there.

    The mode ``resume`` probes models with work left in the run, or all if there is no run.

    Raises UsageError: a model has no address or no key; StoreError: the run is in use, or its folder
    cannot be written; Draining: interrupted.
    """
    prices, options = PriceBook(), RunOptions.continue_if_started(config)
    config = resolve_hosts(config, options, context.keys, prices).config
    if probing.mode == "disable":
        raise_unless_askable([model.spec() for model in config.models], context.keys)
        return ProbedConfig(config, [])
    async with lock_and_open_session(config, prices, context) as session:
        resumes = probing.mode == "resume" and options.continue_run
        work_left = find_models_with_work(preview_run(config, options)) if resumes else None
        return ProbedConfig(config, await probe_and_write_results(session, probing, work_left))


async def add_sampled_lengths(
    config: Config, preview: Preview, lengths: Lengths, prices: PriceBook, context: SessionContext
) -> None:
    """Add to ``lengths`` what ``experiment.estimate_samples`` requests of each model show.

    The user's functions and programs are not run, and a model that cannot be reached is only reported.
    Requests count in the run's folder, towards its ceilings.

    Raises UsageError: a process is running this run, and counts there too; StoreError: the folder cannot
    be written; Draining: interrupted.
    """
    folder = run_folder(config)
    needed = list_models_with_calls(preview)
    askable = []
    for spec in (model.spec() for model in config.models if model.name in needed):
        if HOSTS[spec.interface].dialect == OWN_CODE:
            context.watcher.note(f"no samples of {spec.name}: estimates run no code")
        elif (why := find_model_obstacle(spec, context.keys)) is None:
            askable.append(spec)
        else:
            context.watcher.warn(f"no samples of {spec.name}: {why}")
    if not config.experiment.estimate_samples or not askable:
        return
    if (writer := folder.writer_pid()) is not None:
        raise UsageError(
            f"{folder.path} is in use by process {writer}, and samples would count there too; wait for "
            f"it, or estimate without samples ({NO_SAMPLES})"
        )
    async with lock_and_open_session(config, prices, context, SessionOptions(askable)) as session:
        before = _sum_spent_usd(askable, session)
        await add_live_samples(config, preview, lengths, [spec.name for spec in askable], session)
        if cost := _sum_spent_usd(askable, session) - before:
            context.watcher.note(
                f"samples cost {dollars(cost)}: {folder.usage} keeps it, and it counts towards the "
                "budgets of the run"
            )


def _sum_spent_usd(specs: Iterable[ModelSpec], session: Session) -> float:
    return sum(session.ledger.meter(spec.name).spent_usd for spec in specs)


# --- Asking the teachers for attributes and rubrics alone, so that people can edit what they propose

FOLDER = "proposed"
"""Where in the run's folder proposals are kept that are no part of the run: an interrupted session goes on
from them."""


class ProposedPart(NamedTuple):
    """What replaces ``auto``, ``complete`` or ``extend`` in a task: attribute → values, or factor →
    criterion. ``authors`` are the teachers who proposed it; none if it is the run's own."""

    task: str
    kind: Kind
    value: dict[str, Any]
    authors: tuple[str, ...]


@dataclass(slots=True)
class Proposals:
    """Proposed parts; ``lacking`` names parts without any proposal, as ``task: kind``."""

    parts: list[ProposedPart] = field(default_factory=list)
    lacking: list[str] = field(default_factory=list)
    summary: RunSummary = field(default_factory=RunSummary)


class _ProposalBlueprint(Blueprint):
    """A blueprint beside the run; proposals by another recipe, or if ``ask_again`` all, are owed."""

    def __init__(self, config: Config, folder: RunDir, preview: Preview, *, ask_again: bool) -> None:
        super().__init__(
            config,
            RunDir(folder.path / FOLDER).at_absolute_path(),
            follow_file=False,
            inherited=find_source_run(config),
        )
        self._known, self._ask_again = preview.blueprint, ask_again

    def list_open_kinds(self, task: TaskConfig) -> list[Kind]:
        """List the kinds that neither the file nor the run, nor the one it resumes, has settled."""
        return [kind for kind in KINDS if self._known.read_part_or_declared(task, kind) is None]

    def list_owed_proposals(self, task: TaskConfig, kind: Kind) -> list[tuple[RoleModel, str]]:
        return super().list_owed_proposals(task, kind) if kind in self.list_open_kinds(task) else []

    def _is_recorded(self, teacher: RoleModel, key: str) -> bool:
        entry = self._proposals.get(key)
        made = entry is not None and entry.good and entry.recipe == teacher.recipe.hash
        return made and not self._ask_again

    def build_part(
        self, task: TaskConfig, kind: Kind, proposals_by_key: Mapping[str, Proposal]
    ) -> ProposedPart | None:
        """Merge the proposals of one kind, or take the run's own; None if there are none."""
        if kind not in self.list_open_kinds(task):
            return ProposedPart(task.name, kind, dict(self._known.read_part_or_declared(task, kind)), ())
        value = self.merge_seeds_and_proposals(task, kind, proposals_by_key)
        if value is None:
            return None
        return ProposedPart(task.name, kind, value, tuple(self.list_proposers(task, kind, proposals_by_key)))


async def request_proposals(
    config: Config, probing: Probing, context: SessionContext, *, ask_again: bool = False
) -> Proposals:
    """Request all that ``config`` leaves to its teachers.

    Requests count in the run's folder, towards its ceilings and budgets. Proposals are kept there too, and
    reused unless ``ask_again``.

    Raises UsageError: a model has no address or key, or the run is in use; ModelUnavailable: a probe
    failed; StoreError: the folder cannot be written; Draining: interrupted before the first request.
    """
    prices, folder = PriceBook(), run_folder(config)
    options = RunOptions.continue_if_started(config)
    config, choices = resolve_hosts(config, options, context.keys, prices)
    for choice in choices:
        context.watcher.note(choice)
    proposals = _ProposalBlueprint(config, folder, preview_run(config, options), ask_again=ask_again)
    teachers_with_work = {
        teacher.name
        for task in config.tasks
        for kind in KINDS
        for teacher, _ in proposals.list_owed_proposals(task, kind)
    }
    if not teachers_with_work:
        return _collect_parts(config, proposals, {}, RunSummary())
    RunDir(folder.path / FOLDER).refuse_foreign()
    specs = [m.spec() for m in config.models if probing.mode == "full" or m.name in teachers_with_work]
    board = Board(PHASES[:2], {})
    async with lock_and_open_session(config, prices, context, SessionOptions(specs, board)) as session:
        await probe_models(session, probing, teachers_with_work, list_role_requests(config))
        running = RunSession(config, options, folder, session)
        works, summary = list(proposals.make_works(running.asking)), running.summary
        owed = Counter(work.phase for work in works)
        for phase in PHASES[:2]:
            board.expect(phase, recorded=0, owed=owed[phase], calls=Calls(owed[phase], owed[phase]))
        context.watcher.begin(board)
        proposals_by_key = await running.collect_proposals(works, proposals.record_path)
        summary.interrupted, summary.stopped = session.interrupted, session.stopped
        for phase in PHASES[:2]:
            summary.phases[phase].set_from_count(board.phases[phase], owed[phase])
    return _collect_parts(config, proposals, proposals_by_key, summary)


def _collect_parts(
    config: Config,
    proposals: _ProposalBlueprint,
    proposals_by_key: Mapping[str, Proposal],
    summary: RunSummary,
) -> Proposals:
    """Collect the parts that were left to teachers, and name those without a proposal."""
    result = Proposals(summary=summary)
    for task in config.tasks:
        for kind in KINDS:
            if not isinstance(find_declaration(task, kind), str):
                continue
            part = proposals.build_part(task, kind, proposals_by_key)
            if part is None:
                result.lacking.append(f"{task.name}: {PHASE_OF[kind]} ({kind})")
            else:
                result.parts.append(part)
    result.summary.notes += _name_silent_teachers(config, proposals, result)
    return result


def _name_silent_teachers(config: Config, proposals: _ProposalBlueprint, result: Proposals) -> Iterator[str]:
    """Say which parts lack the proposals of which teachers."""
    tasks = {task.name: task for task in config.tasks}
    for part in result.parts:
        teachers = [
            teacher.name for teacher, _ in proposals.list_possible_proposals(tasks[part.task], part.kind)
        ]
        silent = [name for name in teachers if name not in part.authors]
        if part.authors and silent:
            yield f"{part.task}: {part.kind} lacks proposals from {join_names(silent)}"
