"""``coeval.evaluate``: published benchmarks on one model, from Python."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coeval.analysis.run_results import ModelCost
from coeval.api.run_handle import Run
from coeval.api.stoppable import RunView, draw_progress, wait_for
from coeval.benchmarks.run.eval_choice import describe_idle_options, make_evaluation
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.benchmarks.run.runner import EndOfAsking, ask_alone, prepare_evaluation
from coeval.benchmarks.run.task_summary import Outcome, TaskSummary, conclude, lock_affordable_output_folder
from coeval.core.html_table import html_lines, html_table
from coeval.core.settings import with_keywords_of
from coeval.engine.progress import Unwatched, Watcher
from coeval.exchange.trackers import log_after_command, parse_destinations
from coeval.models.keys import load_keys
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, read_throttle
from coeval.pipeline.config.settings_file import check_settings

if TYPE_CHECKING:
    from coeval.reports.result_tables import Results


@dataclass(frozen=True, slots=True, repr=False)
class EvaluationRun:
    """The outcome of an evaluation; ``path`` is its output folder."""

    path: Path
    outcome: Outcome

    @property
    def tasks(self) -> Mapping[str, TaskSummary]:
        """Return summaries of the scored tasks: metrics with 95% intervals, n, failures. Keys are task names,
        which begin with ``run_<k>`` for several samples."""
        return {task.label: task.summary for task in self.outcome.tasks if task.summary is not None}

    @property
    def gaps(self) -> tuple[str, ...]:
        """Say what is missing; the same call again requests it."""
        return self.outcome.gaps

    @property
    def exit_code(self) -> int:
        """Return 0 if complete, 3 with gaps, 130 if interrupted."""
        return self.outcome.exit_code

    @property
    def costs(self) -> Sequence[ModelCost]:
        """Return requests and cost by model, over the life of the folder."""
        return self.outcome.costs

    @property
    def run(self) -> Run:
        """Open the output folder for reading: ``table("scores")``, ``measures()``."""
        return Run(self.path)

    def results(self) -> Results:
        """Return the metrics of all tasks in the folder over their samples, earlier calls included."""
        return self.run.results()

    def __repr__(self) -> str:
        gaps = f", gaps={len(self.gaps)}" if self.gaps else ""
        return f"EvaluationRun({str(self.path)!r}, {', '.join(self.tasks)}{gaps})"

    def _repr_html_(self) -> str:
        rows = [
            (label, name, metric.value, *(metric.ci95 or (None, None)), metric.n)
            for label, summary in self.tasks.items()
            for name, metric in summary.metrics.items()
        ]
        table = html_table(str(self.path), ("task", "metric", "value", "low", "high", "n"), rows)
        return table + html_lines(self.gaps)


class Evaluate(EvalSettings, frozen=True, kw_only=True):
    """The keywords of `evaluate`: all settings, and how to watch and stop it."""

    progress: bool | None = None
    watcher: Watcher | None = None
    interrupt: asyncio.Event | None = None


@with_keywords_of(Evaluate)
def evaluate(requested: Evaluate) -> EvaluationRun:
    """Score a model on published benchmarks, as ``eval-framework`` does: ask it, judge its answers, score.

    The same call again requests only what is missing. It works in notebooks, beside a running loop. Ctrl-C
    ends it as it ends `coeval.run`: finished work is on disk, and what is missing is a gap.

    ``progress``: show it; None: only in a notebook without a ``watcher`` (see `coeval.Watcher`). Setting
    ``interrupt``, on the loop of the evaluation, acts like the first Ctrl-C.

    Raises UsageError: the request was wrong, or another process is at work in the folder; ModelUnavailable:
    a probed model does not answer; StoreError: the output folder cannot be read or written.

    >>> done = coeval.evaluate(
    ...     tasks="coeval:runs/quickstart", model="tiny", judge_model="judge", max_examples=5,
    ...     base_url="http://localhost:8000/v1", output_dir="outputs/tiny",
    ... )
    >>> [metric.n for metric in done.results().metrics]
    [5]
    """
    settings = check_settings(requested)
    keys = load_keys(settings.keys)
    throttle = read_throttle(os.environ, default_s=DEFAULT_INTERVAL_S)
    evaluation, log_to = make_evaluation(settings, keys), parse_destinations(settings.log_to)
    event = requested.interrupt or asyncio.Event()
    view = RunView(requested.watcher or Unwatched(), event)
    if sentence := describe_idle_options(settings, {task.name for task in evaluation.tasks}):
        view.warn(sentence)
    prepared = prepare_evaluation(evaluation, view)

    async def ask_model() -> EndOfAsking:
        async with draw_progress(view, requested.progress, own_watcher=requested.watcher is not None):
            return await ask_alone(prepared, keys, view, event, throttle)

    with lock_affordable_output_folder(prepared):
        outcome = conclude(prepared, wait_for(ask_model, event))
    if outcome.tasks and not outcome.interrupted:
        log_after_command(evaluation.output, log_to, view.warn)
    return EvaluationRun(evaluation.output, outcome)
