"""A run from configuration to scores: its five phases, planned by their modes, and its summary."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import Counter
from collections.abc import Iterator, Sequence, Set
from contextlib import aclosing
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
from coeval.pipeline.phases.supplied import find_short_supplies, list_short_answer_tables
from coeval.pipeline.plan.count_plan import (
    PlanCount,
    count_plan,
    describe_mixed_records,
    record_recipes,
    refuse_changed_records,
)
from coeval.pipeline.plan.preview import forecast_calls, plan_records
from coeval.pipeline.plan.recorded import RunIndex
from coeval.pipeline.plan.run_plan import FLOWING, Plan
from coeval.pipeline.plan.task_setup import UNKNOWN, TaskSetup, build_setup
from coeval.pipeline.run_flow import RunFlow
from coeval.pipeline.run_options import ChangePolicy, RunOptions, run_folder
from coeval.pipeline.run_session import RunSession, RunSummary
from coeval.pipeline.start.run_start import StartedRun, start_run

log = logging.getLogger("coeval")


class _LoggingWatcher:
    """A watcher that logs each message and passes it on."""

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
    """Run all phases as far as they go: request what is owed, record every result and failure.

    Failures and gaps do not raise; the summary counts them. ``interrupt`` ends the run within seconds,
    with a complete summary; cancelling ends it at once, and what was finished is on disk. ``http``
    replaces the usual transport.

    Raises UsageError: the start was invalid, and only probes were sent; ModelUnavailable: a probe failed;
    StoreError: the run folder cannot be read or written; recorded work stays.
    """
    options, reported = options or RunOptions(), watcher or Unwatched()
    watcher, doubtful = _LoggingWatcher(reported), list(find_doubtful_settings(config))
    for sentence in doubtful:
        reported.warn(sentence)  # at once; there is no log yet
    try:
        settings = config.experiment
        shared = (
            AnswerStore.open_or_make_if_named(settings.store, os.environ, seed=settings.seed or 0)
            if options.checked_judge is None
            else None
        )
        context = SessionContext(keys, watcher, interrupt or asyncio.Event(), http, store=shared)
        async with start_run(config, options, context) as start:
            for sentence in doubtful:
                log.warning(sentence)
            watcher.begin(start.run.board)
            try:
                plan, counts = await _settle_and_run(start, watcher)
            except asyncio.CancelledError:
                start.meta.status = "interrupted"
                start.run.folder.write_meta(start.meta)
                raise
            _summarise_run_and_write_meta(start, plan, counts)
            return start.run.summary
    except Draining as stopped:  # before there was anything to wait for
        return RunSummary(interrupted=True, begun=False, notes=[str(stopped)])


async def _settle_and_run(start: StartedRun, watcher: Watcher) -> tuple[Plan, PlanCount]:
    """Settle the blueprints, then run phases 3–5; return the plan and its counts."""
    run = start.run
    setups = await _settle_blueprints_or_block_tasks(start)
    for setup in setups:
        for sentence in setup.describe_clipped_ranges_and_reasons():
            watcher.warn(sentence)
    if start.matches_preview:
        plan, counts = start.preview.plan, start.preview.plan_count
    else:
        plan = _read_plan(run, run.options, setups)
        counts = count_plan(plan)
        refuse_changed_records(counts, setups, run_folder(run.config), run.options.change_policy)
    for phase in FLOWING:
        total = counts.total(phase)
        calls = Calls(total.calls, total.calls)
        run.board.expect(phase, recorded=total.planned - total.owed, owed=total.owed, calls=calls)
    record_recipes(run.folder, setups)
    if run.options.phase_barriers:
        await _run_with_barriers(run, setups)
    else:
        regenerated_ids = None if run.session.batches is None else set[str]()
        await _run_flow(run, plan, counts, FLOWING, regenerated_ids)
    return plan, counts


async def _run_with_barriers(run: RunSession, setups: list[TaskSetup]) -> None:
    """Run phases 3–5 one by one, each planned from the records before it; what follows from records that this
    run regenerated is outdated, whatever its `ChangePolicy`."""
    regenerated_ids: set[str] = set()
    for phase in FLOWING:
        if not run.interrupted:
            plan = _read_plan(run, run.options, setups, regenerated_ids)
            await _run_flow(run, plan, count_plan(plan), (phase,), regenerated_ids)


async def _settle_blueprints_or_block_tasks(start: StartedRun) -> list[TaskSetup]:
    """Run phases 1–2; return the setups of the tasks that can continue."""
    run, blueprint = start.run, start.blueprint
    works = list(blueprint.make_works(run.asking))
    if works:
        _show_forecast(start)
    proposals = await run.collect_proposals(works, blueprint.record_path)
    setups = []
    for task in run.config.tasks:
        settled = None if run.interrupted else blueprint.write_and_return_blueprint(task, proposals)
        if settled is not None:
            documents = start.preview.supply.documents.get(task.name)
            setups.append(build_setup(run.config, task, settled, documents))
            missing = [work for work in works if work.task == task.name and work.key not in proposals]
            run.summary.notes += _describe_missing_proposals(task.name, missing)
        else:
            start.blocked_tasks.append(task)
    return setups


def _show_forecast(start: StartedRun) -> None:
    """Show the forecast on the board; calls of phases 3–5 are a range until phases 1–2 are done."""
    run = start.run
    foreseen = forecast_calls(run.config, start.preview)
    for phase in PHASES:
        planned, owed = foreseen.sum_phase_planned(phase), foreseen.sum_phase_owed(phase).high
        calls = foreseen.sum_phase_calls(phase)
        run.board.expect(phase, recorded=planned - owed, owed=owed, calls=calls)


def _describe_missing_proposals(task: str, unanswered_works: Sequence[ProposalWork]) -> Iterator[str]:
    """Say which teachers' proposals a task's blueprint lacks for good: all later records are made from it."""
    for phase in PHASES[:2]:
        if teachers := sorted({work.model for work in unanswered_works if work.phase == phase}):
            yield (
                f"{task}: {phase} was drawn without {', '.join(teachers)}, and stays so; "
                f"use another experiment id or {OVERWRITE} to draw it again"
            )


def _read_plan(
    run: RunSession, options: RunOptions, setups: Sequence[TaskSetup], regenerated_ids: Set[str] = frozenset()
) -> Plan:
    return plan_records(run.config, options, setups, RunIndex().read(run.folder), regenerated_ids)


async def _run_flow(
    run: RunSession,
    plan: Plan,
    counts: PlanCount,
    phases: tuple[Phase, ...],
    regenerated_ids: set[str] | None,
) -> None:
    """Do the owed work of these phases, in as many rounds as batch jobs need. Adds the ids of regenerated
    records, and of those made from them, to ``regenerated_ids``."""
    missed_keys = set[str]()
    works: Counter[tuple[Purpose, str]] = Counter()
    for (phase, _, name), count in counts.by_model.items():
        works[phase, model_of(name)] += count.owed
    for (phase, model), owed in works.items():
        run.session.announce_works(phase, model, owed)
    runner = CheckRunner(sandboxed=not run.options.allow_unsandboxed, home=run.home)
    async with aclosing(runner) as checks:

        def make_flow(open_slots: Sequence[int]) -> RunFlow:
            flow = RunFlow(plan, open_slots, run.folder, run.asking, checks, phases)
            flow.missed_keys = missed_keys
            return flow

        await _run_round(run, make_flow(counts.open_slots), regenerated_ids, missed_keys)
        while await run.session.await_next_round():
            plan.reread_records(run.folder, regenerated_ids or set())
            await _run_round(run, make_flow(count_plan(plan).open_slots), regenerated_ids, missed_keys)


async def _run_round(
    run: RunSession, flow: RunFlow, regenerated_ids: set[str] | None, missed_keys: set[str]
) -> None:
    """Do the work that can be done now; add the keys of records that were not made to ``missed_keys``."""
    async for done in run.carry_out(flow.iterate_works(), flow.record_path, flow.make_followers):
        if done.pending:
            continue
        if done.record is None or not done.good:
            missed_keys.add(done.work.key)
            for phase, records in flow.note_loss_and_count_followers(done.work).items():
                run.board.count_cut_off(phase, records)
            continue
        if not flow.builds_on_records or (regenerated_ids is None and done.work.at_once):
            continue  # nothing was to follow from it
        work, record = done.work, done.record
        replaces = regenerated_ids is not None and flow.is_remade_or_outdates(work, record, regenerated_ids)
        if not (replaces and run.options.phase_barriers):  # behind a barrier, it is counted again
            for reusable in flow.list_reusable_records(done.work, done.record):
                run.board.count_owed_as_recorded(reusable.phase, reusable.records, reusable.calls)
        if replaces and regenerated_ids is not None:
            regenerated_ids.add(done.record.id)


def _summarise_run_and_write_meta(start: StartedRun, plan: Plan, counts: PlanCount) -> None:
    """Count every planned record in the summary, and write ``meta.json``."""
    run, summary = start.run, start.run.summary
    summary.interrupted, summary.stopped = run.session.interrupted, run.session.stopped
    if start.blocked_tasks:
        setups = [build_setup(run.config, task, UNKNOWN) for task in start.blocked_tasks]
        blocked = count_plan(plan_records(run.config, run.options, setups, RunIndex()))
        for key, count in blocked.by_model.items():
            counts.count_for(*key).planned += count.planned
        if not summary.interrupted:
            names = ", ".join(task.name for task in start.blocked_tasks)
            summary.notes.append(f"phases 1–2 are not finished for {names}: no later phase could start")
    for phase in PHASES:
        seen, outcome = run.board.phases[phase], summary.phases[phase]
        outcome.set_from_count(seen, counts.total(phase).planned if phase in FLOWING else seen.owed)
        log.info("%s: %d planned, %d made, %d missing", phase, outcome.planned, outcome.made, outcome.missing)
    items = summary.phases["data_generation"]
    items.unsupplied = counts.unsupplied
    items.planned += counts.unsupplied
    responses = summary.phases["response_collection"]
    responses.unsupplied = counts.unanswered.total()
    responses.planned += counts.unanswered.total()
    named_folder = run_folder(run.config)
    summary.short = [
        *find_short_supplies(plan, named_folder),
        *list_short_answer_tables(counts.unanswered, run.config),
    ]
    summary.mixed = _describe_mixed_records(run, plan)
    summary.notes += [summary.mixed] if summary.mixed else []
    if run.session.batches is not None:
        summary.batches = run.session.batches.list_uncollected()
        # what other models' results are for was not walked over
        whole = not run.options.only_models and (run.options.batches.calls_models or not summary.missing)
        run.session.clears_batches = whole
    meta = start.meta
    elsewhere = _find_phases_owed_by_others(run, plan)
    meta.phases_completed = [p for p in PHASES if not summary.phases[p].missing and p not in elsewhere]
    meta.phases_in_progress = [p for p in PHASES if p not in meta.phases_completed]
    status = "incomplete" if meta.phases_in_progress else "completed"
    meta.status = "interrupted" if summary.interrupted else status
    run.folder.write_meta(meta)


def _describe_mixed_records(run: RunSession, plan: Plan) -> str:
    """Say which records of another configuration the run's scores include; empty if none."""
    if run.options.change_policy is ChangePolicy.REFUSE:
        return ""
    options = replace(run.options, change_policy=ChangePolicy.REFUSE, only_models=())
    return describe_mixed_records(count_plan(_read_plan(run, options, plan.setups)).changed)


def _find_phases_owed_by_others(run: RunSession, plan: Plan) -> set[Phase]:
    """Return the phases in which models outside ``--only-models`` have owed work."""
    if not run.options.only_models:
        return set()
    counts = count_plan(_read_plan(run, replace(run.options, only_models=()), plan.setups))
    owed = {phase for phase in FLOWING if counts.total(phase).owed}
    supplied: dict[Phase, bool] = {
        "data_generation": bool(counts.unsupplied),
        "response_collection": bool(counts.unanswered),
    }
    return owed | {phase for phase, lacks in supplied.items() if lacks}
