"""Doing what `coeval sweep` is asked for: begun under its lock, carried out, told."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from coeval.api import find_keys
from coeval.cli import streams
from coeval.cli.commands.sweep.sweep_view import SweepView, tell_end, tell_plan, tell_status
from coeval.cli.loop import interruptible, run_async
from coeval.pipeline.config.settings_file import read_settings_file
from coeval.sweeps.sweep_choice import absent_program, asked_for
from coeval.sweeps.sweep_settings import SweepSettings
from coeval.sweeps.sweep_start import checkpoints_of, to_be_plotted, under_way

_AT_ONCE = "Stopped at once; what was finished is on disk, and the same command goes on from there."
FIRST_KEYS = "checkpoints:, out: and tasks:"


def settings_of(flags: dict[str, Any], file: Path | None) -> SweepSettings:
    """The flags over the file.

    Raises
    ------
    ConfigError
        the file cannot be read, or has a mistake.
    """
    read = {} if file is None else read_settings_file(file, SweepSettings, FIRST_KEYS)
    return SweepSettings(**{**read, **flags})


def show_status(settings: SweepSettings) -> int:
    """How far the sweep is, from its files alone."""
    return tell_status(settings, streams.results())


def sweep_and_report(settings: SweepSettings, log_level: str, *, dry_run: bool) -> int:
    """Do what is asked for and show it; the exit code."""
    logging.getLogger("coeval").setLevel(log_level)  # what shows a traceback, see cli.ending
    results, messages = streams.results(), streams.messages()
    asked = asked_for(settings, find_keys(settings.keys))
    view = SweepView(messages)
    checkpoints = checkpoints_of(asked, view.warn)
    if dry_run:
        return tell_plan(asked.sweep, asked.phases, checkpoints, results, absent_program(asked))
    with under_way(asked, checkpoints, view) as sweeping:
        try:
            with view:
                run_async(interruptible(sweeping.run, view.note))
        except KeyboardInterrupt:
            raise KeyboardInterrupt(_AT_ONCE) from None
        code = tell_end(sweeping.board, asked.sweep, results, messages)
        if to_be_plotted(asked, sweeping.board):
            # Here, because it loads duckdb, numpy and vl-convert.
            from coeval.cli.commands.sweep.plot_phase import put_together_and_drawn

            lacking = put_together_and_drawn(asked.sweep)
            if asked.phases.inference and asked.phases.judge:  # else it may lack what it was to leave out
                code = max(code, lacking)
    return code
