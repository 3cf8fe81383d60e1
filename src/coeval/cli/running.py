"""What ``coeval run`` shows: the forecast, the run as it goes, and what came of it."""

from __future__ import annotations

import asyncio
import importlib
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from coeval.api import Run, arun, find_keys
from coeval.cli.loop import interruptible, run_async
from coeval.cli.progress_view import Terminal
from coeval.cli.result_table import render
from coeval.cli.say import say
from coeval.core.errors import UsageError
from coeval.pipeline.config.passed_on import doubtful_parameters
from coeval.pipeline.config.resolve import resolve_models
from coeval.pipeline.config.schema import PHASES, Config, Phase
from coeval.pipeline.forecast import forecast
from coeval.pipeline.inherit import inherited_phases
from coeval.pipeline.outcome import PhaseOutcome, Summary
from coeval.pipeline.recorded import Stance
from coeval.pipeline.running import Options
from coeval.store.rundir import RunDir


def count_calls(config: Config, how: dict[str, Any]) -> int:
    """``--dry-run``: models, tasks, modes and calls; the exit code."""
    console = Console(highlight=False)
    options = Options(
        continue_run=how["continue_run"],
        overwrite=how["overwrite"],
        only_models=how["only_models"],
        stance=Stance(how["changed"]),
    )
    config = _resolved(config, how["keys"], console)
    models = Table("model", "interface", "roles", title="Models", title_justify="left", box=None)
    for model in config.models:
        models.add_row(Text(model.name), model.interface, ", ".join(model.roles))
    console.print(models)
    expected = forecast(config, options)
    tasks = Table("phase", "mode", title="Calls", title_justify="left", box=None)
    for name in expected.tasks:
        tasks.add_column(Text(name), justify="right")
    tasks.add_column("total", justify="right")
    for phase in PHASES:
        counts = [str(expected.calls[phase, task]) for task in expected.tasks]
        tasks.add_row(phase, _mode(config, options, phase), *counts, str(expected.of_phase(phase)))
    sums = [str(expected.of_task(task)) for task in expected.tasks]
    tasks.add_row("total", "", *sums, str(expected.total), style="bold")
    console.print()
    console.print(tasks)
    for task in config.tasks:
        sampling = task.sampling
        console.print(
            Text(f"{task.name}: {sampling.total} items per teacher, target {sampling.target}, ")
            + Text(f"nuance {sampling.nuance}, {task.evaluation_mode} evaluation")
        )
    for sentence in doubtful_parameters(config):
        say(console, sentence, "yellow")
    console.print(f"\n{expected.total} calls, without probes and retries. Nothing was asked or written.")
    return 0


def _mode(config: Config, options: Options, phase: Phase) -> str:
    """A phase's mode in words: with ``resume_from``, phases 1–2 are New only where the file says so."""
    mode = options.mode(config, phase)
    takes_over = config.experiment.resume_from is not None and not options.continue_run
    return "taken over" if mode == "New" and takes_over and phase in inherited_phases(config) else mode


def _resolved(config: Config, keys: Path | None, console: Console) -> Config:
    try:
        found = find_keys(keys)
        return resolve_models(config, lambda interface: found.credential(interface) is not None)
    except UsageError as error:
        console.print(Text(f"interface auto is not resolved yet: {error}", style="yellow"))
        return config


def run_and_report(config: Config, how: dict[str, Any], file: Path) -> int:
    """Run, with progress on the terminal, and print scores, gaps and the way on; the exit code."""
    console = Console(highlight=False)
    with Terminal(console) as terminal:
        run = run_async(interruptible(lambda event: _run(config, how, terminal, event), terminal.note))
    _report(run, console, _way_on(file, how))
    return run.exit_code


async def _run(config: Config, how: dict[str, Any], terminal: Terminal, interrupt: asyncio.Event) -> Run:
    loading = asyncio.create_task(_load_analysis())
    try:
        return await arun(config, **how, watcher=terminal, interrupt=interrupt)
    finally:
        loading.cancel()


async def _load_analysis() -> None:
    """Import what the table at the end needs while requests are on the wire: a third of a second."""
    await asyncio.sleep(0.2)
    await asyncio.to_thread(importlib.import_module, "coeval.analysis.scores")


def _way_on(file: Path, how: dict[str, Any]) -> str:
    """The command that goes on as this one began."""
    changed = {"redo": " --redo-changed", "keep": " --keep-changed"}.get(how["changed"], "")
    only = f" --only-models {','.join(how['only_models'])}" if how["only_models"] else ""
    return f"coeval run --config {file} --continue{changed}{only}"


def _report(run: Run, console: Console, way_on: str) -> None:
    summary = run.summary
    if summary is None:
        return
    console.print()
    begun = RunDir(run.path).is_run()  # not if it was stopped while the models were probed
    if begun:
        render(run.results(), console)
    for sentence in (*summary.notes, *summary.stopped.values()):
        say(console, sentence, "yellow")
    if summary.missing:
        _tell_gaps(summary, console)
        console.print(Text(f"Fill the gaps with: {way_on}"), soft_wrap=True)
        if any(outcome.failed for outcome in summary.phases.values()):
            console.print(Text(f"What failed, and why: coeval status --run {run.path}"), soft_wrap=True)
    elif summary.interrupted:
        way = way_on if begun else "the same command"
        console.print(Text(f"Stopped. Go on with: {way}"), soft_wrap=True)
    console.print(Text(f"Artifacts: {run.path}"))


def _tell_gaps(summary: Summary, console: Console) -> None:
    table = Table("phase", "planned", "there", "missing", "why", title_justify="left", box=None)
    for phase, outcome in summary.phases.items():
        if outcome.missing:
            there = outcome.planned - outcome.missing
            table.add_row(phase, *map(str, (outcome.planned, there, outcome.missing)), _why(outcome))
    console.print(Text("Not all that was asked for is there:", style="bold yellow"))
    console.print(table)


def _why(outcome: PhaseOutcome) -> str:
    reasons = [f"{count} failed: {kind}" for kind, count in outcome.failed.most_common()]
    reasons += [f"{count} not asked: {kind}" for kind, count in outcome.gaps.most_common()]
    if outcome.incomplete:
        reasons.append(f"{outcome.incomplete} lack factors")
    if outcome.waiting:
        reasons.append(f"{outcome.waiting} wait for what they need")
    return "; ".join(reasons)
