"""Doing what `coeval sweep` is asked for: begun under its lock, carried out, told."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from coeval.cli import streams
from coeval.cli.commands.sweep.asked_sweep import KEY_VARIABLE, AskedFor, asked_for
from coeval.cli.commands.sweep.checkpoint_choice import refuse_ambiguous
from coeval.cli.commands.sweep.engine_choice import engine_of
from coeval.cli.commands.sweep.sweep_end import tell_end
from coeval.cli.loop import interruptible, run_async
from coeval.cli.say import say
from coeval.cli.starting import begin
from coeval.core.errors import UsageError
from coeval.core.text import numbered
from coeval.models.keys import Keys
from coeval.store.rundir import RunDir
from coeval.sweeps.checkpoints import Checkpoint
from coeval.sweeps.engines.engine import SweepEngine
from coeval.sweeps.jobs.job_plan import job_plan
from coeval.sweeps.jobs.job_table import JobTable
from coeval.sweeps.judging.concluder import JudgingProcess, judging_command
from coeval.sweeps.schedule.scheduler import Scheduler, problems_of
from coeval.sweeps.schedule.sweep_board import SweepBoard
from coeval.sweeps.servers.leftovers import end_leftovers
from coeval.sweeps.sweep_settings import SweepSettings

Flags = Mapping[str, Any]


def sweep_and_report(flags: Flags) -> int:
    """Do what the flags ask for and show it; the exit code."""
    logging.getLogger("coeval").setLevel(flags["log_level"])  # what shows a traceback, see cli.ending
    settings = settings_of(flags)
    keys = Keys.load(settings.keys, env=os.environ, cwd=Path.cwd(), home=Path.home())
    asked = asked_for(settings, keys)
    checkpoints = [] if asked.watch is not None else asked.places.found()
    refuse_ambiguous(asked.sweep, checkpoints)
    if not checkpoints and asked.watch is None:
        raise UsageError(
            f"{asked.places.folder} holds no whole checkpoint; name how they are called: --name-pattern"
        )
    begin()
    with RunDir(asked.sweep.own_folder).locked():
        board = _carried_out(asked, settings, checkpoints)
    return tell_end(board, asked.sweep, streams.results(), streams.messages())


def settings_of(flags: Flags) -> SweepSettings:
    """The flags over the file.

    Raises
    ------
    ConfigError
        the file cannot be read, or has a mistake.
    """
    said = {name: flags[name] for name in SweepSettings.__struct_fields__ if flags.get(name) is not None}
    for name in ("external", "task_options"):
        if name in said:
            said[name] = tuple(said[name])
    return SweepSettings(**said)


def _carried_out(asked: AskedFor, settings: SweepSettings, checkpoints: Sequence[Checkpoint]) -> SweepBoard:
    sweep, messages = asked.sweep, streams.messages()
    plan = job_plan(sweep, tuple(checkpoints))
    table = JobTable(sweep.out, plan)
    table.read()
    for sentence in end_leftovers(sweep.own_folder / "legs"):
        say(messages, sentence, "dim")
    plan.write(sweep.own_folder)
    environment = dict(os.environ)
    if settings.api_key:
        environment[KEY_VARIABLE] = settings.api_key
    log = sweep.own_folder / "judging.log"
    concluder = JudgingProcess(judging_command(log, settings.keys), log, environment)
    with ExitStack() as stack:
        stack.callback(table.close)
        engine = engine_of(settings, sweep, environment)
        scheduler = Scheduler(sweep, table, engine, concluder, asked.phases)
        for checkpoint in plan.checkpoints:
            scheduler.add(checkpoint)
        board = scheduler.board
        say(
            messages,
            f"{numbered(board.jobs, 'job')} owed of {numbered(board.checkpoints, 'checkpoint')}",
            "dim",
        )
        try:
            run_async(
                interruptible(lambda event: _run(scheduler, engine, event), lambda text: say(messages, text))
            )
        except BaseExceptionGroup as group:
            raise next(problems_of(group), group) from None
    return board


async def _run(scheduler: Scheduler, engine: SweepEngine, interrupt: asyncio.Event) -> None:
    try:
        await scheduler.run(interrupt)
    finally:
        await engine.aclose()
