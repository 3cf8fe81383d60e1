"""A preview of a run that starts now: what it will find, and what it will owe. Nothing is changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from coeval.analysis.doubtful_answers import empty_answers_sentence
from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE, ONLY_MODELS, OVERWRITE
from coeval.core.records import model_of, task_prefix
from coeval.core.text import pluralize
from coeval.engine.progress import Calls
from coeval.pipeline.config.schema import Config, Phase, TaskConfig
from coeval.pipeline.phases.answer_file import read_answer_files
from coeval.pipeline.phases.blueprint import KINDS, PHASE_OF, Blueprint, Kind
from coeval.pipeline.phases.proposals import MOST_NAMES
from coeval.pipeline.phases.supplied import Supply, declare_item_labels, list_short_answer_tables, read_supply
from coeval.pipeline.plan.count_plan import PlanCount, count_plan, refuse_changed_records
from coeval.pipeline.plan.recorded import RunIndex
from coeval.pipeline.plan.run_plan import FLOWING, Plan
from coeval.pipeline.plan.task_setup import PROPOSED_PREFIX, TaskBlueprint, TaskSetup, build_setup
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.start.inherit import (
    find_item_source_run,
    find_source_run,
    foresee_cleared_folder,
    phases_to_inherit,
)
from coeval.store.rundir import RunDir
from coeval.tables.documents import CutDocuments


@dataclass(frozen=True, slots=True)
class Preview:
    """What a start would find. ``unsettled``: tasks whose blueprint phases 1–2 have yet to settle.

    Teachers may add nothing to the rubric of such a task, or a lot: ``plan`` and ``plan_count`` hold the
    most that may be owed, ``least`` the least; they are equal if every rubric is known. ``records_folder``
    holds the records: the run's own folder, or that of the source it inherits from; ``supply`` is what
    benchmark teachers supplied.
    """

    blueprint: Blueprint
    plan: Plan
    plan_count: PlanCount
    least: PlanCount
    unsettled: frozenset[str]
    records_folder: RunDir
    supply: Supply

    def refuse_start(self, options: RunOptions) -> None:
        """Refuse a start. Raises UsageError: good records are outdated whatever teachers propose, documents
        are missing, or records would be moved away for a run that could do nothing."""
        changed = self.supply.describe_changed_tables_by_task()
        refuse_changed_records(
            self.least, self.plan.setups, self.records_folder, options.change_policy, changed
        )
        for setup in self.plan.setups:
            task = setup.task
            owed = self.plan_count.total("data_generation", task=task.name).owed
            if task.documents is not None and owed and not setup.space.passages:
                raise UsageError(
                    f"{pluralize(owed, 'item')} of {task.name} are missing, and the documents cannot be "
                    f"read: put {task.documents.path} back, or lower sampling.total"
                )
        if options.overwrite and options.only_models and not self.plan_count.total().owed:
            raise UsageError(
                f"{OVERWRITE} with {ONLY_MODELS} {','.join(options.only_models)} leaves nothing to do: "
                f"their work needs work of other models first; use {CONTINUE}, or name those too"
            )


def plan_records(
    config: Config,
    options: RunOptions,
    setups: Sequence[TaskSetup],
    recorded: RunIndex,
    regenerated_ids: Set[str] = frozenset(),
) -> Plan:
    """Build the plan of phases 3–5 under the run's modes; ``regenerated_ids``: see `Plan`."""
    plan = Plan(
        setups,
        recorded,
        {phase: options.mode(config, phase) for phase in FLOWING},
        options.change_policy,
        _with_variant_names(config, options.only_models) if options.only_models else None,
        regenerated_ids,
    )
    plan.scores_by_rule = options.checked_judge is None
    return plan


def _with_variant_names(config: Config, names: Sequence[str]) -> frozenset[str]:
    """Return these names, and those of these models' variants."""
    students = (student.name for student in config.with_role("student"))
    return frozenset([*names, *(student for student in students if model_of(student) in names)])


def read_start_supply(config: Config, options: RunOptions) -> Supply:
    """Read what is supplied to a run that starts now; raises ConfigError if some cannot be used."""
    taken = None if options.continue_run else find_item_source_run(config)
    folder = run_folder(config)
    supply = read_supply(config, folder, taken)
    run_files = foresee_cleared_folder(config, folder) if options.overwrite else folder
    items_in = [
        path
        for source in (taken, run_files)
        if source is not None
        for path in source.files("data_generation")
    ]
    items_in += [path for path in supply.unwritten_lines if path not in items_in]
    supply.answers.extend(read_answer_files(config, folder, items_in, supply.unwritten_lines))
    supply.refuse_flawed_lines()
    return supply


def preview_run(config: Config, options: RunOptions, supply: Supply | None = None) -> Preview:
    """Preview a run that starts now. Nothing is requested or changed; a start does this once.

    Benchmark teachers without items count with ``sampling.total``. ``supply``: as `read_start_supply` read
    it.

    Raises ConfigError: supplied items cannot be used; UsageError: a move of the folder's records to
    ``replaced/`` was interrupted.
    """
    folder = run_folder(config)
    folder.refuse_foreign_or_half_replaced()
    source = None if options.continue_run else find_source_run(config)
    supply = read_start_supply(config, options) if supply is None else supply
    config = declare_item_labels(config, supply)
    recorded = _read_records(config, options, folder, source, supply)
    blueprint = _FutureBlueprint(config, options, folder, source)
    unsettled: set[str] = set()
    least, most = [], []
    for task in config.tasks:
        drawn = blueprint.read_blueprint_if_known(task)
        if drawn is None:
            unsettled.add(task.name)
            small, large = _build_smallest_and_largest_setups(
                config, task, blueprint, recorded, supply.documents.get(task.name)
            )
        else:
            small = large = build_setup(config, task, drawn, supply.documents.get(task.name))
        least.append(small)
        most.append(large)
    plan = plan_records(config, options, most, recorded)
    counts = count_plan(plan)
    settled = all(small is large for small, large in zip(least, most, strict=True))
    lower = counts if settled else count_plan(plan_records(config, options, least, recorded))
    return Preview(blueprint, plan, counts, lower, frozenset(unsettled), source or folder, supply)


def _build_smallest_and_largest_setups(
    config: Config, task: TaskConfig, blueprint: Blueprint, recorded: RunIndex, documents: CutDocuments | None
) -> tuple[TaskSetup, TaskSetup]:
    """Build an unsettled task's setups with the smallest and the largest rubric that may be proposed."""
    target, nuanced = (blueprint.read_part_or_declared(task, kind) or {} for kind in KINDS[:2])

    def setup(rubric: dict[str, str]) -> TaskSetup:
        return build_setup(config, task, TaskBlueprint(target, nuanced, rubric), documents)

    if (known_rubric := blueprint.read_part_or_declared(task, "rubric")) is not None:
        settled = setup(known_rubric)
        return settled, settled
    rubric_so_far = blueprint.merge_inherited_and_proposed_rubrics(task)
    proposals = len(blueprint.list_owed_proposals(task, "rubric"))
    proposed = {f"{PROPOSED_PREFIX}{n})": "" for n in range(1, MOST_NAMES * proposals + 1)}
    least = (
        setup(rubric_so_far)
        if rubric_so_far
        else _with_most_scored_criterion(setup(dict(islice(proposed.items(), 1))), recorded)
    )
    return least, setup(rubric_so_far | proposed)


def _with_most_scored_criterion(setup: TaskSetup, recorded: RunIndex) -> TaskSetup:
    """Copy a setup with the criterion that most judgments have scored, so that the fewest calls are owed."""
    scored: Counter[tuple[str, str]] = Counter()
    for key in recorded.evaluations:
        entry = recorded.evaluations.get(key)
        if entry is not None and entry.good and key.startswith(task_prefix(setup.task.name)):
            scored.update(entry.scored)
    return replace(setup, criteria=dict([scored.most_common(1)[0][0]])) if scored else setup


def _read_records(
    config: Config, options: RunOptions, folder: RunDir, source: RunDir | None, supply: Supply
) -> RunIndex:
    """Index the records of a continued run; else inherited ones, and those in the folder that stay."""
    recorded = RunIndex()
    if options.continue_run:
        recorded.read(folder, supplied=supply.unwritten_lines)
    else:
        if source is not None:
            recorded.read(
                _InheritedFolder(source.path, folder),
                phases_to_inherit(config),
                supplied=supply.unwritten_lines,
            )
        recorded.read(foresee_cleared_folder(config, folder), FLOWING, supplied=supply.unwritten_lines)
    for task, teacher in supply.absent.values():
        recorded.assume_items(task.name, teacher, task.sampling.max_items or 0)
    return recorded


class _InheritedFolder(RunDir):
    """A source run as it is inherited: files that the run's own folder has are taken from there."""

    def __init__(self, path: Path, own: RunDir) -> None:
        super().__init__(path)
        self._own = own

    def files(self, phase: str) -> list[Path]:
        own = self._own.folder(phase)
        return [path for path in super().files(phase) if not (own / path.name).exists()]


class _FutureBlueprint(Blueprint):
    """The blueprint as the run will find it: inherited parts in ``source``, overwritten ones gone."""

    def __init__(self, config: Config, options: RunOptions, folder: RunDir, source: RunDir | None) -> None:
        left = foresee_cleared_folder(config, folder) if options.overwrite else folder
        super().__init__(config, left, follow_file=options.continue_run, inherited=source)
        self._source = source
        self._taken = frozenset(phases_to_inherit(config)) if source is not None else frozenset()
        self._extended = {task.name for task in config.tasks if task.rubric == "extend"}

    def artifact_path(self, task: str, kind: Kind) -> Path:
        own = super().artifact_path(task, kind)
        extended = kind == "rubric" and task in self._extended
        if self._source is None or PHASE_OF[kind] not in self._taken or extended or own.exists():
            return own
        theirs = Blueprint(self._config, self._source, follow_file=False).artifact_path(task, kind)
        older = theirs.with_name(theirs.name.replace(f"{task}_", f"{task}.", 1))
        return older if older.exists() and not theirs.exists() else theirs


# --- Calls of a run that starts now

NO_CALLS = Calls(0, 0)
PhaseOfTask: TypeAlias = tuple[Phase, str]


@dataclass(frozen=True, slots=True)
class Forecast:
    """A start's calls and records by phase and task (in phases 1–2, teachers' proposals). ``warnings`` name
    settings that will not be followed as written."""

    preview: Preview
    calls: Mapping[PhaseOfTask, Calls]
    planned: Counter[PhaseOfTask]
    owed: Mapping[PhaseOfTask, Calls]
    warnings: Sequence[str]

    def sum_phase_calls(self, phase: Phase) -> Calls:
        return sum((calls for (p, _), calls in self.calls.items() if p == phase), NO_CALLS)

    def sum_task_calls(self, task: str) -> Calls:
        return sum((calls for (_, name), calls in self.calls.items() if name == task), NO_CALLS)

    def sum_phase_planned(self, phase: Phase) -> int:
        return sum(records for (p, _), records in self.planned.items() if p == phase)

    def sum_phase_owed(self, phase: Phase) -> Calls:
        return sum((records for (p, _), records in self.owed.items() if p == phase), NO_CALLS)

    @property
    def total(self) -> Calls:
        return sum(self.calls.values(), NO_CALLS)

    @property
    def total_owed(self) -> Calls:
        return sum(self.owed.values(), NO_CALLS)


def forecast_start(config: Config, options: RunOptions) -> Forecast:
    """Forecast a start's calls; raises UsageError if it would not start: see `Preview.refuse_start`."""
    preview = preview_run(config, options)
    preview.refuse_start(options)
    return forecast_calls(config, preview)


def forecast_calls(config: Config, preview: Preview) -> Forecast:
    """Build the forecast of a run that finds what ``preview`` says."""
    calls: dict[PhaseOfTask, Calls] = {}
    owed: dict[PhaseOfTask, Calls] = {}
    planned: Counter[PhaseOfTask] = Counter()
    for task in config.tasks:
        for kind in KINDS:
            proposals = len(preview.blueprint.list_owed_proposals(task, kind))
            key = (PHASE_OF[kind], task.name)
            calls[key] = owed[key] = calls.get(key, NO_CALLS) + Calls(proposals, proposals)
            planned[key] += proposals
        for phase in FLOWING:
            key = (phase, task.name)
            few, many = (c.total(phase, task=task.name) for c in (preview.least, preview.plan_count))
            planned[key] = many.planned
            calls[key] = Calls(few.calls - few.reusable_calls, many.calls)
            owed[key] = Calls(few.owed - few.reusable, many.owed)
    warnings = [
        sentence for setup in preview.plan.setups for sentence in setup.describe_clipped_ranges_and_reasons()
    ]
    warnings += preview.supply.list_remarks()
    for short in list_short_answer_tables(preview.plan_count.unanswered, config):
        answers = pluralize(short.missing, "answer")
        warnings.append(f"{short.task}: {short.path} lacks {answers} of {short.student}")
    if empty_note := empty_answers_sentence(preview.plan.recorded.count_empty_answers(), "of"):
        warnings.append(empty_note)
    return Forecast(preview, calls, planned, owed, warnings)
