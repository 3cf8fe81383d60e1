"""``coeval.evaluate``: published benchmarks on one model, from Python."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coeval.analysis.run_results import ModelCost
from coeval.api import find_keys
from coeval.api.run_handle import Run
from coeval.api.stoppable import RunView, drawn, wait_for
from coeval.benchmarks.run.eval_choice import evaluation_of, idle_options
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.benchmarks.run.runner import EndOfAsking, ask_alone, prepare
from coeval.benchmarks.run.task_summary import Outcome, TaskSummary, conclude, entered
from coeval.core.html_table import html_lines, html_table
from coeval.core.settings import taking
from coeval.engine.progress import Unwatched, Watcher
from coeval.exchange.trackers import log_after_command, parse_destinations
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, throttle_of
from coeval.pipeline.config.settings_file import check_settings

if TYPE_CHECKING:
    from coeval.reports.result_tables import Results


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationRun:
    """What an evaluation came to; its output folder is ``path``."""

    path: Path
    outcome: Outcome

    @property
    def tasks(self) -> Mapping[str, TaskSummary]:
        """Summaries of the tasks that were scored: metrics with 95% intervals, n, what failed. By the name of
        the task, which begins with ``run_<k>`` where there are several samples."""
        return {task.label: task.summary for task in self.outcome.tasks if task.summary is not None}

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is missing, in words; the same call again asks for it."""
        return self.outcome.gaps

    @property
    def exit_code(self) -> int:
        """0 all there, 3 with gaps, 130 interrupted."""
        return self.outcome.exit_code

    @property
    def costs(self) -> Sequence[ModelCost]:
        """What each model was sent over the life of the folder, and what that cost."""
        return self.outcome.costs

    @property
    def run(self) -> Run:
        """The output folder, opened for reading: ``table("scores")``, ``measures()``."""
        return Run(self.path)

    def results(self) -> Results:
        """The metrics of all tasks in the folder over their samples, those of earlier calls included."""
        return self.run.results()

    def __repr__(self) -> str:
        lacking = f", gaps={len(self.gaps)}" if self.gaps else ""
        return f"EvaluationRun({str(self.path)!r}, {', '.join(self.tasks)}{lacking})"

    def _repr_html_(self) -> str:
        rows = [
            (label, name, metric.value, *(metric.ci95 or (None, None)), metric.n)
            for label, summary in self.tasks.items()
            for name, metric in summary.metrics.items()
        ]
        table = html_table(str(self.path), ("task", "metric", "value", "low", "high", "n"), rows)
        return table + html_lines(self.gaps)


class Evaluate(EvalSettings, frozen=True, kw_only=True):
    """The keywords of `evaluate`: all settings, and how it is watched and stopped."""

    progress: bool | None = None
    watcher: Watcher | None = None
    interrupt: asyncio.Event | None = None


@taking(Evaluate)
def evaluate(requested: Evaluate) -> EvaluationRun:
    """Score a model on published benchmarks, as ``eval-framework`` does: ask it, judge its answers, score.

    The same call again asks only for what is missing. It works in notebooks, beside a loop that is running
    already. Ctrl-C ends it as it ends `coeval.run`: finished work is on disk, and the rest is a gap.

    ``progress``: show it as it goes; None: in a notebook only, unless there is a ``watcher``, which is told
    what happens (see `coeval.Watcher`). Setting ``interrupt``, on the loop of the evaluation, does what the
    first Ctrl-C does.

    Raises
    ------
    UsageError
        the request was wrong, or another process is at work in the folder.
    ModelUnavailable
        a probed model does not answer.
    StoreError
        the output folder cannot be read or written.
    """
    settings = check_settings(requested)
    keys = find_keys(settings.keys)
    throttle = throttle_of(os.environ, default_s=DEFAULT_INTERVAL_S)
    evaluation, log_to = evaluation_of(settings, keys), parse_destinations(settings.log_to)
    event = requested.interrupt or asyncio.Event()
    view = RunView(requested.watcher or Unwatched(), event)
    if said := idle_options(settings, {task.name for task in evaluation.tasks}):
        view.warn(said)
    prepared = prepare(evaluation, view)

    async def ask() -> EndOfAsking:
        async with drawn(view, requested.progress, watched=requested.watcher is not None):
            return await ask_alone(prepared, keys, view, event, throttle)

    with entered(prepared):
        outcome = conclude(prepared, wait_for(ask, event))
    if outcome.tasks and not outcome.interrupted:
        log_after_command(evaluation.output, log_to, view.warn)
    return EvaluationRun(evaluation.output, outcome)
