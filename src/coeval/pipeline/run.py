"""A run from configuration to scores: the five phases, their modes as plans, and the end's account."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace

from coeval.core.errors import Draining
from coeval.core.options import OVERWRITE, REDO_CHANGED
from coeval.core.records import Kept
from coeval.engine.execute import from_iterable
from coeval.engine.progress import Board, Calls, Unwatched, Watcher
from coeval.engine.work import Work
from coeval.models.keys import Keys
from coeval.models.transport.http import Http
from coeval.pipeline.config.doubts import doubts
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.blueprint import Proposal, ProposalWork
from coeval.pipeline.phases.supplied import short_supplies
from coeval.pipeline.plan.changes import NOUN, refuse_changed, remember_recipes
from coeval.pipeline.plan.count_plan import Survey, survey
from coeval.pipeline.plan.forecast import expected
from coeval.pipeline.plan.preview import look_ahead, make_plan
from coeval.pipeline.plan.recorded import Recorded, Stance
from coeval.pipeline.plan.run_plan import FLOWING, Plan
from coeval.pipeline.plan.setup_tasks import UNKNOWN, build_scene
from coeval.pipeline.plan.task_setup import Scene
from coeval.pipeline.run_flow import River
from coeval.pipeline.run_session import Options, Running
from coeval.pipeline.run_summary import Summary
from coeval.pipeline.start.begin import Begun, begun

log = logging.getLogger("coeval")


class _Logged:
    """A watcher that logs what it is told, and passes it on."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher

    def note(self, message: str) -> None:
        log.info(message)
        self._watcher.note(message)

    def warn(self, message: str) -> None:
        log.warning(message)
        self._watcher.warn(message)

    def begin(self, board: Board) -> None:
        self._watcher.begin(board)


async def arun(
    config: Config,
    options: Options | None = None,
    *,
    keys: Keys,
    watcher: Watcher | None = None,
    interrupt: asyncio.Event | None = None,
    http: Http | None = None,
) -> Summary:
    """Carry a run as far as it goes: everything owed is asked for, every end is recorded.

    Failures and gaps do not raise; they stand in the summary. Setting ``interrupt`` ends the run within
    a few seconds, and its account is whole; cancelling ends it at once, with what was finished on disk.
    ``http`` is the way to the hosts, where it is not to be the usual one.

    Raises
    ------
    UsageError
        the request was wrong; nothing was asked of any model but a probe.
    ModelUnavailable
        a probed model does not answer.
    StoreError
        the run folder cannot be read or written; what was recorded stays.
    """
    options, told = options or Options(), watcher or Unwatched()
    watcher, doubtful = _Logged(told), list(doubts(config))
    for sentence in doubtful:
        told.warn(sentence)  # at once; there is no log yet
    try:
        async with begun(config, options, keys, watcher, interrupt or asyncio.Event(), http) as start:
            for sentence in doubtful:
                log.warning(sentence)
            watcher.begin(start.running.board)
            with _noted_if_cancelled(start):
                plan, found = await _phases(start, watcher)
            _sum_up(start, plan, found)
            return start.running.summary
    except Draining as stopped:  # before there was anything to wait for
        return Summary(interrupted=True, notes=[str(stopped)])


@contextmanager
def _noted_if_cancelled(start: Begun) -> Iterator[None]:
    """A run that is ended at once does not stay "running" in ``meta.json``; there is no account of it."""
    try:
        yield
    except asyncio.CancelledError:
        start.meta.status = "interrupted"
        start.running.folder.write_meta(start.meta)
        raise


async def _phases(start: Begun, watcher: Watcher) -> tuple[Plan, Survey]:
    running, outlook = start.running, start.outlook
    scenes = await _draw_blueprint(start)
    for scene in scenes:
        for sentence in scene.clippings():
            watcher.warn(sentence)
    if outlook is not None and not outlook.unsettled and not start.blocked:
        plan, found = outlook.plan, outlook.survey
    else:
        plan = _plan(running, running.options, scenes)
        found = survey(plan)
        refuse_changed(found, scenes, running.folder, running.options.stance)
    for phase in FLOWING:
        planned, owed = found.phase(found.planned, phase), found.phase(found.owed, phase)
        calls = found.phase(found.calls, phase)
        running.board.expect(phase, recorded=planned - owed, owed=owed, calls=Calls(calls, calls))
    remember_recipes(running.folder, scenes)
    if running.options.phase_barriers:
        await _one_by_one(running, scenes)
    else:
        await _flow(running, plan, found, FLOWING)
    return plan, found


async def _one_by_one(running: Running, scenes: list[Scene]) -> None:
    """Phases 3–5 with barriers between them. Each is planned from what the one before has left on disk;
    what followed from a record that this run has made anew no longer stands, whatever its stance."""
    renewed: set[str] = set()
    for phase in FLOWING:
        if not running.summary.interrupted:
            plan = _plan(running, running.options, scenes, renewed)
            await _flow(running, plan, survey(plan), (phase,), renewed)


async def _draw_blueprint(start: Begun) -> list[Scene]:
    """Phases 1–2; the scenes of the tasks that can go on."""
    running, blueprint = start.running, start.blueprint
    works = list(blueprint.works(running.asking))
    if works:
        _foretell(start)
    proposals: dict[str, Proposal] = {}

    def nothing_follows(_: Work, __: Kept) -> Iterable[Work]:
        return ()

    async for done in running.carry_out(from_iterable(works), blueprint.path, nothing_follows):
        if isinstance(done.record, Proposal) and done.record.status == "ok":
            proposals[done.work.key] = done.record
    scenes = []
    for task in running.config.tasks:
        settled = None if running.summary.interrupted else blueprint.settle(task, proposals)
        if settled is not None:
            scenes.append(build_scene(running.config, task, settled))
            unheard = [work for work in works if work.task == task.name and work.key not in proposals]
            running.summary.notes += _without(task.name, unheard)
        else:
            start.blocked.append(task)
    return scenes


def _foretell(start: Begun) -> None:
    """Show what is planned from the first moment on; calls of phases 3–5 that depend on what phases 1–2
    find are a range until then."""
    running = start.running
    outlook = start.outlook or look_ahead(running.config, running.options)
    foreseen = expected(running.config, outlook)
    for phase in PHASES:
        planned, owed = foreseen.planned_of_phase(phase), foreseen.owed_of_phase(phase).high
        calls = foreseen.calls_of_phase(phase)
        running.board.expect(phase, recorded=planned - owed, owed=owed, calls=calls)


def _without(task: str, unheard: Sequence[ProposalWork]) -> Iterator[str]:
    """What a task's blueprint lacks for good: everything from now on is made from it as it is."""
    for phase in PHASES[:2]:
        if teachers := sorted({work.model for work in unheard if work.phase == phase}):
            yield (
                f"{task}: {phase} was drawn without {', '.join(teachers)}, and stays so; "
                f"another experiment id or {OVERWRITE} asks again"
            )


def _plan(
    running: Running, options: Options, scenes: Sequence[Scene], renewed: Set[str] = frozenset()
) -> Plan:
    return make_plan(running.config, options, scenes, Recorded().read(running.folder), renewed)


async def _flow(
    running: Running,
    plan: Plan,
    found: Survey,
    phases: tuple[Phase, ...],
    renewed: set[str] | None = None,
) -> None:
    """Do what is owed in these phases; add the ids of what took the place of other records to ``renewed``."""
    river = River(plan, found.open, running.folder, running.asking, phases)
    async for done in running.carry_out(river.works(), river.path, river.follow):
        if done.record is None or done.record.status != "ok":
            for phase, records in river.cut_off(done.work).items():
                running.board.cut_off(phase, records)
            continue
        if renewed is not None and river.replaces(done.work, done.record):
            renewed.add(done.record.id)
            continue
        for spared in river.spared(done.work, done.record):
            running.board.stands(*spared)


def _sum_up(start: Begun, plan: Plan, found: Survey) -> None:
    """Account for every planned record, and close ``meta.json`` with it."""
    running, summary = start.running, start.running.summary
    if start.blocked:
        scenes = [build_scene(running.config, task, UNKNOWN) for task in start.blocked]
        blocked = survey(make_plan(running.config, running.options, scenes, Recorded()))
        found.planned.update(blocked.planned)
        if not summary.interrupted:
            names = ", ".join(task.name for task in start.blocked)
            summary.notes.append(f"phases 1–2 are not finished for {names}: nothing could follow from them")
    for phase in PHASES:
        count, outcome = running.board.phases[phase], summary.phases[phase]
        outcome.planned = found.phase(found.planned, phase) if phase in FLOWING else count.owed
        outcome.recorded = count.recorded
        outcome.made, outcome.incomplete = count.done, count.lacking
        outcome.failed, outcome.gaps = count.failed, count.gaps
        log.info("%s: %d planned, %d made, %d missing", phase, outcome.planned, outcome.made, outcome.missing)
    items = summary.phases["data_generation"]
    items.unsupplied = found.unsupplied
    items.planned += found.unsupplied
    summary.short = short_supplies(plan, running.folder)
    summary.notes += _mixed(running, plan)
    meta = start.meta
    elsewhere = _owed_elsewhere(running, plan)
    meta.phases_completed = [p for p in PHASES if not summary.phases[p].missing and p not in elsewhere]
    meta.phases_in_progress = [p for p in PHASES if p not in meta.phases_completed]
    status = "incomplete" if meta.phases_in_progress else "completed"
    meta.status = "interrupted" if summary.interrupted else status
    running.folder.write_meta(meta)


def _mixed(running: Running, plan: Plan) -> Iterator[str]:
    """What stands in the run, and so in its scores, of another configuration, where it may: kept, or not
    made again by the end."""
    if running.options.stance is Stance.REFUSE:
        return
    options = replace(running.options, stance=Stance.REFUSE, only_models=())
    changed = survey(_plan(running, options, plan.scenes)).changed
    counts = {phase: sum(n for of, n in changed.items() if of.phase == phase) for phase in FLOWING}
    shown = ", ".join(f"{count:,} {NOUN[phase]}" for phase, count in counts.items() if count)
    if shown:
        yield f"of another configuration, and counted all the same: {shown}; {REDO_CHANGED} makes them again"


def _owed_elsewhere(running: Running, plan: Plan) -> set[Phase]:
    """The phases in which models are owed work that ``--only-models`` left out."""
    if not running.options.only_models:
        return set()
    found = survey(_plan(running, replace(running.options, only_models=()), plan.scenes))
    owed = {phase for phase in FLOWING if found.phase(found.owed, phase)}
    return owed | {"data_generation"} if found.unsupplied else owed
