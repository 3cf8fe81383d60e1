"""Doing what `coeval sweep` is asked for: begun under its lock, carried out, told."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from coeval.cli import streams
from coeval.cli.commands.sweep.sweep_choice import (
    KEY_VARIABLE,
    AskedFor,
    absent_program,
    asked_for,
    engine_of,
    refuse_absent_program,
    refuse_ambiguous,
)
from coeval.cli.commands.sweep.sweep_view import (
    SweepView,
    tell_done_otherwise,
    tell_end,
    tell_plan,
    tell_status,
)
from coeval.cli.loop import interruptible, run_async
from coeval.cli.starting import begin
from coeval.cli.streams import say, warn
from coeval.core.errors import UsageError
from coeval.core.text import numbered
from coeval.models.keys import Keys
from coeval.models.pacing.throttle import throttle_of
from coeval.store.rundir import RunDir
from coeval.sweeps.checkpoints import Checkpoint, CheckpointWatch
from coeval.sweeps.engine import SweepEngine
from coeval.sweeps.job_plan import job_plan
from coeval.sweeps.job_table import JobTable, refuse_others
from coeval.sweeps.judge_worker import JudgingProcess, judging_command
from coeval.sweeps.scheduler import Scheduler, SweepBoard, problems_of
from coeval.sweeps.server_process import end_leftovers
from coeval.sweeps.sweep import WORKERS
from coeval.sweeps.sweep_settings import SweepSettings, read_sweep_file

Flags = Mapping[str, Any]
_AT_ONCE = "Stopped at once; what was finished is on disk, and the same command goes on from there."


def sweep_and_report(flags: Flags) -> int:
    """Do what the flags ask for and show it; the exit code."""
    logging.getLogger("coeval").setLevel(flags["log_level"])  # what shows a traceback, see cli.ending
    settings = settings_of(flags)
    if flags["status"]:
        return tell_status(settings, streams.results())
    keys = Keys.load(settings.keys, env=os.environ, cwd=Path.cwd(), home=Path.home())
    asked = asked_for(settings, keys)
    throttle_of(os.environ)  # wrong variables are told before anything begins
    checkpoints = [] if asked.watch is not None else asked.places.found()
    if asked.watch is None:
        for path, why in asked.places.passed_over().items():
            warn(streams.messages(), f"{path} is passed over: {why}; --watch waits for such ones")
    refuse_ambiguous(asked.sweep, checkpoints, watched=asked.watch is not None)
    if not checkpoints and asked.watch is None:
        raise UsageError(
            f"{asked.places.folder} holds no whole checkpoint; say where they lie below it: --name-pattern"
        )
    if flags["dry_run"]:
        absent = absent_program(asked.sweep, settings)
        return tell_plan(asked.sweep, asked.phases, checkpoints, streams.results(), absent)
    begin()
    with RunDir(asked.sweep.own_folder).locked():
        refuse_others(asked.sweep, checkpoints)
        board = _carried_out(asked, settings, checkpoints)
        code = tell_end(board, asked.sweep, streams.results(), streams.messages())
        ends = not board.interrupted or asked.watch is not None  # what is watched ends by Ctrl-C
        if asked.phases.plot and ends and any(asked.sweep.out.glob("step_*/run_*/*/summary.json")):
            # Here, because it loads duckdb, numpy and vl-convert.
            from coeval.cli.commands.sweep.plot_phase import put_together_and_drawn

            lacking = put_together_and_drawn(asked.sweep)
            if asked.phases.inference and asked.phases.judge:  # else it may lack what it was to leave out
                code = max(code, lacking)
    return code


def settings_of(flags: Flags) -> SweepSettings:
    """The flags over the file.

    Raises
    ------
    ConfigError
        the file cannot be read, or has a mistake.
    """
    said = {name: flags[name] for name in SweepSettings.__struct_fields__ if flags.get(name) is not None}
    for name in ("external", "task_options"):  # lists in the file, repeated flags here
        if name in said:
            said[name] = tuple(said[name])
    over = SweepSettings(**said)
    file = flags["config"]
    return over if file is None else read_sweep_file(file).under(over)


def _carried_out(asked: AskedFor, settings: SweepSettings, checkpoints: Sequence[Checkpoint]) -> SweepBoard:
    sweep, messages = asked.sweep, streams.messages()
    table = JobTable(sweep.out, job_plan(sweep))
    table.read()
    for sentence in end_leftovers(sweep.own_folder / WORKERS):
        say(messages, sentence, "dim")
    environment = dict(os.environ)
    if settings.api_key:
        environment[KEY_VARIABLE] = settings.api_key
    log = sweep.own_folder / "judging.log"
    judge_worker = JudgingProcess(judging_command(log, settings.keys), log, environment)
    engine = engine_of(settings, sweep, environment)
    scheduler = Scheduler(sweep, table, engine, judge_worker, asked.phases)
    with closing(table):
        table.include(checkpoints)
        tell_done_otherwise(table, checkpoints)
        for checkpoint in checkpoints:
            scheduler.add(checkpoint)
        board = scheduler.board
        if board.workers or asked.watch is not None:
            refuse_absent_program(sweep, settings)
        owed = f"{numbered(board.jobs, 'job')} owed of {numbered(board.checkpoints, 'checkpoint')}"
        say(messages, owed if asked.watch is None else f"watching {asked.places.folder}", "dim")
        try:
            with SweepView(messages, board) as view:
                run_async(interruptible(lambda event: _run(scheduler, engine, event, asked.watch), view.note))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_AT_ONCE) from None
        except BaseExceptionGroup as group:
            raise next(problems_of(group), group) from None
    return board


async def _run(
    scheduler: Scheduler, engine: SweepEngine, interrupt: asyncio.Event, watch: CheckpointWatch | None
) -> None:
    try:
        await scheduler.run(interrupt, watch)
    finally:
        await engine.aclose()
