"""A run from configuration to scores: the five phases, their modes as plans, and the end's account."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import aclosing, contextmanager
from dataclasses import replace

from coeval.core.errors import Draining
from coeval.core.options import OVERWRITE
from coeval.core.records import Purpose, model_of
from coeval.engine.progress import Board, Calls, Unwatched, Watcher
from coeval.engine.session import SessionContext
from coeval.judging.checks.check_runner import CheckRunner
from coeval.models.answer_store import AnswerStore
from coeval.models.keys import Keys
from coeval.models.transport.http import Http
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.phases.blueprint import ProposalWork
from coeval.pipeline.phases.supplied import short_answers, short_supplies
from coeval.pipeline.plan.count_plan import (
    PlanCount,
    count_plan,
    mixed_sentence,
    refuse_changed,
    remember_recipes,
)
from coeval.pipeline.plan.preview import build_forecast, make_plan
from coeval.pipeline.plan.recorded import Recorded
from coeval.pipeline.plan.run_plan import FLOWING, Plan
from coeval.pipeline.plan.task_setup import UNKNOWN, TaskSetup, build_setup
from coeval.pipeline.run_flow import RunFlow
from coeval.pipeline.run_options import RunOptions, Stance, run_folder
from coeval.pipeline.run_session import RunSession, RunSummary
from coeval.pipeline.start.begin_run import StartedRun, start_run

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


async def run_phases(
    config: Config,
    options: RunOptions | None = None,
    *,
    keys: Keys,
    watcher: Watcher | None = None,
    interrupt: asyncio.Event | None = None,
    http: Http | None = None,
) -> RunSummary:
    """Carry a run as far as it goes: everything owed is asked for, every end is recorded.

    Failures and gaps do not raise; they stand in the summary. Setting ``interrupt`` ends the run within
    a few seconds, and its account is whole; cancelling ends it at once, with what was finished on disk.
    ``http`` is the way to the hosts, where it is not to be the usual one.

    Raises UsageError: the request was wrong; nothing was asked of any model but a probe; ModelUnavailable: a
    probed model does not answer; StoreError: the run folder cannot be read or written; what was recorded
    stays.
    """
    options, reported = options or RunOptions(), watcher or Unwatched()
    watcher, doubtful = _Logged(reported), list(find_doubtful_settings(config))
    for sentence in doubtful:
        reported.warn(sentence)  # at once; there is no log yet
    try:
        settings = config.experiment
        shared = (
            AnswerStore.open_named(settings.store, os.environ, seed=settings.seed or 0)
            if options.only_asked is None
            else None
        )
        context = SessionContext(keys, watcher, interrupt or asyncio.Event(), http, store=shared)
        async with start_run(config, options, context) as start:
            for sentence in doubtful:
                log.warning(sentence)
            watcher.begin(start.running.board)
            with _noted_if_cancelled(start):
                plan, found = await _phases(start, watcher)
            _sum_up(start, plan, found)
            return start.running.summary
    except Draining as stopped:  # before there was anything to wait for
        return RunSummary(interrupted=True, begun=False, notes=[str(stopped)])


@contextmanager
def _noted_if_cancelled(start: StartedRun) -> Iterator[None]:
    """A run that is ended at once does not stay "running" in ``meta.json``; there is no account of it."""
    try:
        yield
    except asyncio.CancelledError:
        start.meta.status = "interrupted"
        start.running.folder.write_meta(start.meta)
        raise


async def _phases(start: StartedRun, watcher: Watcher) -> tuple[Plan, PlanCount]:
    running = start.running
    setups = await _draw_blueprint(start)
    for setup in setups:
        for sentence in setup.clippings():
            watcher.warn(sentence)
    if start.as_previewed:
        plan, found = start.preview.plan, start.preview.plan_count
    else:
        plan = _plan(running, running.options, setups)
        found = count_plan(plan)
        refuse_changed(found, setups, run_folder(running.config), running.options.stance)
    for phase in FLOWING:
        total = found.total(phase)
        calls = Calls(total.calls, total.calls)
        running.board.expect(phase, recorded=total.planned - total.owed, owed=total.owed, calls=calls)
    remember_recipes(running.folder, setups)
    if running.options.phase_barriers:
        await _one_by_one(running, setups)
    else:
        renewed = None if running.session.batches is None else set[str]()
        await _flow(running, plan, found, FLOWING, renewed)
    return plan, found


async def _one_by_one(running: RunSession, setups: list[TaskSetup]) -> None:
    """Phases 3–5 with barriers between them. Each is planned from what the one before has left on disk;
    what followed from a record that this run has made anew no longer stands, whatever its stance."""
    renewed: set[str] = set()
    for phase in FLOWING:
        if not running.interrupted:
            plan = _plan(running, running.options, setups, renewed)
            await _flow(running, plan, count_plan(plan), (phase,), renewed)


async def _draw_blueprint(start: StartedRun) -> list[TaskSetup]:
    """Phases 1–2; the setups of the tasks that can go on."""
    running, blueprint = start.running, start.blueprint
    works = list(blueprint.works(running.asking))
    if works:
        _foretell(start)
    proposals = await running.hear_proposals(works, blueprint.path)
    setups = []
    for task in running.config.tasks:
        settled = None if running.interrupted else blueprint.settle(task, proposals)
        if settled is not None:
            documents = start.preview.supply.documents.get(task.name)
            setups.append(build_setup(running.config, task, settled, documents))
            unheard = [work for work in works if work.task == task.name and work.key not in proposals]
            running.summary.notes += _without(task.name, unheard)
        else:
            start.blocked.append(task)
    return setups


def _foretell(start: StartedRun) -> None:
    """Show what is planned from the first moment on; calls of phases 3–5 that depend on what phases 1–2
    find are a range until then."""
    running = start.running
    foreseen = build_forecast(running.config, start.preview)
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
    running: RunSession, options: RunOptions, setups: Sequence[TaskSetup], renewed: Set[str] = frozenset()
) -> Plan:
    return make_plan(running.config, options, setups, Recorded().read(running.folder), renewed)


async def _flow(
    running: RunSession,
    plan: Plan,
    found: PlanCount,
    phases: tuple[Phase, ...],
    renewed: set[str] | None,
) -> None:
    """Do what is owed in these phases, in as many rounds as batch jobs take; add the ids of what took the
    place of other records, and of what was made from that, to ``renewed``."""
    short = set[str]()
    works: Counter[tuple[Purpose, str]] = Counter()
    for (phase, _, name), count in found.by_model.items():
        works[phase, model_of(name)] += count.owed
    for (phase, model), owed in works.items():
        running.session.foresee(phase, model, owed)
    runner = CheckRunner(sandboxed=not running.options.allow_unsandboxed, home=running.home)
    async with aclosing(runner) as checks:

        def run_flow(slots: Sequence[int]) -> RunFlow:
            flow = RunFlow(plan, slots, running.folder, running.asking, checks, phases)
            flow.short = short
            return flow

        await _round(running, run_flow(found.open), renewed, short)
        while await running.session.another_round():
            plan.read_again(running.folder, renewed or set())
            await _round(running, run_flow(count_plan(plan).open), renewed, short)


async def _round(running: RunSession, run_flow: RunFlow, renewed: set[str] | None, short: set[str]) -> None:
    """Do what can be done now; add what came to nothing to ``short``."""
    async for done in running.carry_out(run_flow.works(), run_flow.path, run_flow.follow):
        if done.pending:
            continue
        if done.record is None or not done.good:
            short.add(done.work.key)
            for phase, records in run_flow.cut_off(done.work).items():
                running.board.cut_off(phase, records)
            continue
        if not run_flow.builds_on_records or (renewed is None and done.work.at_once):
            continue  # nothing was to follow from it
        replaces = renewed is not None and run_flow.replaces(done.work, done.record, renewed)
        if not (replaces and running.options.phase_barriers):  # behind a barrier, it is counted anew
            for spared in run_flow.spared(done.work, done.record):
                running.board.stands(spared.phase, spared.records, spared.calls)
        if replaces and renewed is not None:
            renewed.add(done.record.id)


def _sum_up(start: StartedRun, plan: Plan, found: PlanCount) -> None:
    """Account for every planned record, and close ``meta.json`` with it."""
    running, summary = start.running, start.running.summary
    summary.interrupted, summary.stopped = running.session.interrupted, running.session.stopped
    if start.blocked:
        setups = [build_setup(running.config, task, UNKNOWN) for task in start.blocked]
        blocked = count_plan(make_plan(running.config, running.options, setups, Recorded()))
        for place, count in blocked.by_model.items():
            found.of(*place).planned += count.planned
        if not summary.interrupted:
            names = ", ".join(task.name for task in start.blocked)
            summary.notes.append(f"phases 1–2 are not finished for {names}: nothing could follow from them")
    for phase in PHASES:
        seen, outcome = running.board.phases[phase], summary.phases[phase]
        outcome.take(seen, found.total(phase).planned if phase in FLOWING else seen.owed)
        log.info("%s: %d planned, %d made, %d missing", phase, outcome.planned, outcome.made, outcome.missing)
    items = summary.phases["data_generation"]
    items.unsupplied = found.unsupplied
    items.planned += found.unsupplied
    responses = summary.phases["response_collection"]
    responses.unsupplied = found.unanswered.total()
    responses.planned += found.unanswered.total()
    shown = run_folder(running.config)
    summary.short = [*short_supplies(plan, shown), *short_answers(found.unanswered, running.config)]
    summary.mixed = _mixed(running, plan)
    summary.notes += [summary.mixed] if summary.mixed else []
    if running.session.batches is not None:
        summary.batches = running.session.batches.jobs()
        # what other models' results are for was not walked over
        whole = not running.options.only_models and (running.options.batches.asks or not summary.missing)
        running.session.clears_batches = whole
    meta = start.meta
    elsewhere = _owed_elsewhere(running, plan)
    meta.phases_completed = [p for p in PHASES if not summary.phases[p].missing and p not in elsewhere]
    meta.phases_in_progress = [p for p in PHASES if p not in meta.phases_completed]
    status = "incomplete" if meta.phases_in_progress else "completed"
    meta.status = "interrupted" if summary.interrupted else status
    running.folder.write_meta(meta)


def _mixed(running: RunSession, plan: Plan) -> str:
    """What stands in the run, and so in its scores, of another configuration, where it may: kept, or not
    made again by the end."""
    if running.options.stance is Stance.REFUSE:
        return ""
    options = replace(running.options, stance=Stance.REFUSE, only_models=())
    return mixed_sentence(count_plan(_plan(running, options, plan.setups)).changed)


def _owed_elsewhere(running: RunSession, plan: Plan) -> set[Phase]:
    """The phases in which models are owed work that ``--only-models`` left out."""
    if not running.options.only_models:
        return set()
    found = count_plan(_plan(running, replace(running.options, only_models=()), plan.setups))
    owed = {phase for phase in FLOWING if found.total(phase).owed}
    supplied: dict[Phase, bool] = {
        "data_generation": bool(found.unsupplied),
        "response_collection": bool(found.unanswered),
    }
    return owed | {phase for phase, lacks in supplied.items() if lacks}
