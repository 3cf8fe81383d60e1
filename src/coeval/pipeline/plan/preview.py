"""What a run that starts now will find, and what it will owe: worked out before anything is changed."""

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
from coeval.pipeline.phases.supplied import Supply, read_supply, short_answers, with_found_labels
from coeval.pipeline.plan.count_plan import PlanCount, count_plan, refuse_changed
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.plan.run_plan import FLOWING, Plan
from coeval.pipeline.plan.task_setup import FORESEEN, TaskBlueprint, TaskSetup, build_setup
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.start.inherit import (
    find_item_source_run,
    find_source_run,
    foresee_cleared_folder,
    list_inherited_phases,
)
from coeval.store.rundir import RunDir
from coeval.tables.documents import CutDocuments


@dataclass(frozen=True, slots=True)
class Preview:
    """``unsettled``: the tasks whose blueprint phases 1–2 have yet to draw; their setups stand in for it.

    Teachers may add nothing to the rubric of such a task, or a great deal. ``plan_count`` (and ``plan``) hold
    the most that may be owed then, ``least`` the least; they are one where every rubric is known.
    ``standing`` is the folder whose records these are: the run's own, or the one it takes over;
    ``supply`` what benchmark teachers have put there.
    """

    blueprint: Blueprint
    plan: Plan
    plan_count: PlanCount
    least: PlanCount
    unsettled: frozenset[str]
    records_folder: RunDir
    supply: Supply

    def refuse(self, options: RunOptions) -> None:
        """
        Raises UsageError: good records stand that would be made otherwise now, whatever teachers propose; or
        what stands would be moved away for a run that could not do anything.
        """
        changed = self.supply.changed_tables()
        refuse_changed(self.least, self.plan.setups, self.records_folder, options.change_policy, changed)
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
                f"{OVERWRITE} with {ONLY_MODELS} {','.join(options.only_models)} leaves nothing to do: what "
                f"they take part in needs work of others first; use {CONTINUE}, or name those too"
            )


def make_plan(
    config: Config,
    options: RunOptions,
    setups: Sequence[TaskSetup],
    recorded: Recorded,
    regenerated_ids: Set[str] = frozenset(),
) -> Plan:
    """The plan of phases 3–5 under the run's modes; ``regenerated_ids``: see `Plan`."""
    plan = Plan(
        setups,
        recorded,
        {phase: options.mode(config, phase) for phase in FLOWING},
        options.change_policy,
        _players(config, options.only_models) if options.only_models else None,
        regenerated_ids,
    )
    plan.computes = options.checked_judge is None
    return plan


def _players(config: Config, names: Sequence[str]) -> frozenset[str]:
    """Return these names, and those of the variants of these models."""
    students = (student.name for student in config.with_role("student"))
    return frozenset([*names, *(student for student in students if model_of(student) in names)])


def supply_of(config: Config, options: RunOptions) -> Supply:
    """What benchmark teachers and tables supply to a run that starts now; nothing is changed.

    Raises ConfigError: some of it cannot be used.
    """
    taken = None if options.continue_run else find_item_source_run(config)
    folder = run_folder(config)
    supply = read_supply(config, folder, taken)
    there = foresee_cleared_folder(config, folder) if options.overwrite else folder
    items_in = [path for of in (taken, there) if of is not None for path in of.files("data_generation")]
    items_in += [path for path in supply.rewritten if path not in items_in]
    supply.answers.extend(read_answer_files(config, folder, items_in, supply.rewritten))
    supply.refuse_flawed()
    return supply


def preview_run(config: Config, options: RunOptions, supply: Supply | None = None) -> Preview:
    """Read what there is; nothing is asked, created or changed. A start reads and counts this once.

    Benchmark teachers without items yet count with ``sampling.total`` of them. ``supply``: as `supply_of`
    read it.

    Raises ConfigError: items that benchmark teachers supply cannot be used; UsageError: part of what the
    run's folder held has moved to ``replaced/``, and part of it has not.
    """
    folder = run_folder(config)
    folder.refuse_unreadable()
    source = None if options.continue_run else find_source_run(config)
    supply = supply_of(config, options) if supply is None else supply
    config = with_found_labels(config, supply)
    recorded = _records(config, options, folder, source, supply)
    blueprint = _Foreseen(config, options, folder, source)
    unsettled: set[str] = set()
    least, most = [], []
    for task in config.tasks:
        drawn = blueprint.known(task)
        if drawn is None:
            unsettled.add(task.name)
            small, large = _bounds(config, task, blueprint, recorded, supply.documents.get(task.name))
        else:
            small = large = build_setup(config, task, drawn, supply.documents.get(task.name))
        least.append(small)
        most.append(large)
    plan = make_plan(config, options, most, recorded)
    found = count_plan(plan)
    settled = all(small is large for small, large in zip(least, most, strict=True))
    lower = found if settled else count_plan(make_plan(config, options, least, recorded))
    return Preview(blueprint, plan, found, lower, frozenset(unsettled), source or folder, supply)


def _bounds(
    config: Config,
    task: TaskConfig,
    blueprint: Blueprint,
    recorded: Recorded,
    documents: CutDocuments | None,
) -> tuple[TaskSetup, TaskSetup]:
    """A task whose blueprint is open, with the smallest and with the largest rubric that may come of what
    teachers are still to propose."""
    target, nuanced = (blueprint.known_part(task, kind) or {} for kind in KINDS[:2])

    def setup(rubric: dict[str, str]) -> TaskSetup:
        return build_setup(config, task, TaskBlueprint(target, nuanced, rubric), documents)

    if (known := blueprint.known_part(task, "rubric")) is not None:
        settled = setup(known)
        return settled, settled
    heard = blueprint.heard_rubric(task)
    proposals = len(blueprint.owed_proposals(task, "rubric"))
    proposed = {f"{FORESEEN}{n})": "" for n in range(1, MOST_NAMES * proposals + 1)}
    least = setup(heard) if heard else _as_judged(setup(dict(islice(proposed.items(), 1))), recorded)
    return least, setup(heard | proposed)


def _as_judged(setup: TaskSetup, recorded: Recorded) -> TaskSetup:
    """A task whose teachers propose just what the most judgments on record have scored already."""
    scored: Counter[tuple[str, str]] = Counter()
    for key in recorded.evaluations:
        entry = recorded.evaluations.get(key)
        if entry is not None and entry.good and key.startswith(task_prefix(setup.task.name)):
            scored.update(entry.scored)
    return replace(setup, criteria=dict([scored.most_common(1)[0][0]])) if scored else setup


def _records(
    config: Config, options: RunOptions, folder: RunDir, source: RunDir | None, supply: Supply
) -> Recorded:
    """Those of the run that goes on; else what is taken over, and what stands in the folder and stays."""
    recorded = Recorded()
    if options.continue_run:
        recorded.read(folder, supplied=supply.rewritten)
    else:
        if source is not None:
            recorded.read(
                _Taken(source.path, folder), list_inherited_phases(config), supplied=supply.rewritten
            )
        recorded.read(foresee_cleared_folder(config, folder), FLOWING, supplied=supply.rewritten)
    for task, teacher in supply.absent.values():
        recorded.assume_items(task.name, teacher, task.sampling.most or 0)
    return recorded


class _Taken(RunDir):
    """A source as a run takes it over: of files that the run's own folder has, its own are used."""

    def __init__(self, path: Path, own: RunDir) -> None:
        super().__init__(path)
        self._own = own

    def files(self, phase: str) -> list[Path]:
        own = self._own.folder(phase)
        return [path for path in super().files(phase) if not (own / path.name).exists()]


class _Foreseen(Blueprint):
    """The blueprint as the run will find it: artifacts that it takes over lie in ``source`` still, and
    those that ``--overwrite`` moves away are gone."""

    def __init__(self, config: Config, options: RunOptions, folder: RunDir, source: RunDir | None) -> None:
        left = foresee_cleared_folder(config, folder) if options.overwrite else folder
        super().__init__(config, left, follow_file=options.continue_run, inherited=source)
        self._source = source
        self._taken = frozenset(list_inherited_phases(config)) if source is not None else frozenset()
        self._extended = {task.name for task in config.tasks if task.rubric == "extend"}

    def artifact(self, task: str, kind: Kind) -> Path:
        own = super().artifact(task, kind)
        extended = kind == "rubric" and task in self._extended
        if self._source is None or PHASE_OF[kind] not in self._taken or extended or own.exists():
            return own
        theirs = Blueprint(self._config, self._source, follow_file=False).artifact(task, kind)
        older = theirs.with_name(theirs.name.replace(f"{task}_", f"{task}.", 1))
        return older if older.exists() and not theirs.exists() else theirs


# --- Calls of a run that starts now

NO_CALLS = Calls(0, 0)
Place: TypeAlias = tuple[Phase, str]
"""A phase of a task."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """Calls, and the records of the plan of which so many are owed; of phases 1–2 a record is a teacher's
    proposal. ``warnings`` say what of the file is not carried out as it stands; ``preview``: what they were
    counted in."""

    preview: Preview
    calls: Mapping[Place, Calls]
    planned: Counter[Place]
    owed: Mapping[Place, Calls]
    warnings: Sequence[str]

    def calls_of_phase(self, phase: Phase) -> Calls:
        return sum((calls for (of, _), calls in self.calls.items() if of == phase), NO_CALLS)

    def calls_of_task(self, task: str) -> Calls:
        return sum((calls for (_, of), calls in self.calls.items() if of == task), NO_CALLS)

    def planned_of_phase(self, phase: Phase) -> int:
        return sum(records for (of, _), records in self.planned.items() if of == phase)

    def owed_of_phase(self, phase: Phase) -> Calls:
        return sum((records for (of, _), records in self.owed.items() if of == phase), NO_CALLS)

    @property
    def total(self) -> Calls:
        return sum(self.calls.values(), NO_CALLS)

    @property
    def total_owed(self) -> Calls:
        return sum(self.owed.values(), NO_CALLS)


def forecast_start(config: Config, options: RunOptions) -> Forecast:
    """Count the calls of a run that starts now; nothing is asked, created or changed.

    Raises UsageError: it would not start: see `Preview.refuse`.
    """
    preview = preview_run(config, options)
    preview.refuse(options)
    return build_forecast(config, preview)


def build_forecast(config: Config, preview: Preview) -> Forecast:
    """The forecast of a run that finds what ``preview`` says."""
    calls: dict[Place, Calls] = {}
    owed: dict[Place, Calls] = {}
    planned: Counter[Place] = Counter()
    for task in config.tasks:
        for kind in KINDS:
            proposals = len(preview.blueprint.owed_proposals(task, kind))
            place = (PHASE_OF[kind], task.name)
            calls[place] = owed[place] = calls.get(place, NO_CALLS) + Calls(proposals, proposals)
            planned[place] += proposals
        for phase in FLOWING:
            place = (phase, task.name)
            few, many = (c.total(phase, task=task.name) for c in (preview.least, preview.plan_count))
            planned[place] = many.planned
            calls[place] = Calls(few.calls - few.spared_calls, many.calls)
            owed[place] = Calls(few.owed - few.spared, many.owed)
    warnings = [sentence for setup in preview.plan.setups for sentence in setup.clippings()]
    warnings += preview.supply.remarks()
    for short in short_answers(preview.plan_count.unanswered, config):
        answers = pluralize(short.missing, "answer")
        warnings.append(f"{short.task}: {short.path} lacks {answers} of {short.student}")
    if said := empty_answers_sentence(preview.plan.recorded.empty_answers(), "of"):
        warnings.append(said)
    return Forecast(preview, calls, planned, owed, warnings)
