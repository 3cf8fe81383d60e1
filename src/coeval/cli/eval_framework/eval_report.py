"""What ``eval-framework`` shows: assets being fetched, the tasks as they go, and what came of them."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from coeval.analysis.doubtful_answers import (
    CutOffAnswers,
    EmptyAnswers,
    Incomparable,
    cut_off_sentence,
    cut_off_warning,
    empty_answers_sentence,
)
from coeval.api import find_keys
from coeval.benchmarks.run.eval_choice import describe_idle_options, make_evaluation
from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.eval_settings import EvalSettings
from coeval.benchmarks.run.runner import Prepared, ask_alone, prepare_evaluation, usage_file
from coeval.benchmarks.run.task_folder import SuppliedCounts
from coeval.benchmarks.run.task_summary import (
    OF_INFERENCE,
    Outcome,
    TaskOutcome,
    conclude,
    open_output_folder,
)
from coeval.cli import streams
from coeval.cli.commands.datasets import fetch_bar
from coeval.cli.commands.estimate_report import print_estimate, tell_budget
from coeval.cli.loop import interruptible, run_async
from coeval.cli.streams import say, warn
from coeval.cli.views.progress_view import Terminal, tell_batches
from coeval.cli.views.results_view import write_json
from coeval.cli.views.table_view import say_names, show_costs, show_incomparable, show_table
from coeval.core.options import BUDGET
from coeval.core.shown_names import ShownNames
from coeval.exchange.trackers import destinations, log_at_end
from coeval.models.metering.account_file import read_accounts
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, read_throttle
from coeval.pricing.estimate import check_budget_fit
from coeval.pricing.price_book import PriceBook
from coeval.reports.content import ReportTable, make_columns
from coeval.reports.measure_table import (
    SAMPLE_COLUMNS,
    TaskMetrics,
    metric_in_points,
    sample_cells,
    task_metrics_table,
)
from coeval.store.jsonl import write_json_atomic

if TYPE_CHECKING:
    from coeval.analysis.training.sample_figures import SampleFigure

# --- Final table of an evaluation


def show(outcome: Outcome, results: Console, messages: Console) -> None:
    """Print what came of an evaluation: its figures and what is to be known of them as ``results``, what
    to do about the rest as ``messages``."""
    if not outcome.tasks:
        say(messages, "Stopped before anything was asked. Repeat the command to start over.")
        return
    if results.file.isatty():
        results.print()
    _show_figures(outcome, results)
    if figures := over_runs(outcome):
        results.print()
        _show_over_runs(figures, results)
    shown = ShownNames.of(cost.model for cost in outcome.costs)
    incomparable = [
        Incomparable(task.label, task.summary.compared_with, "; ".join(task.summary.reasons))
        for task in outcome.tasks
        if task.summary is not None
        and task.summary.metrics
        and not task.summary.comparable
        and not task.summary.not_measured
    ]
    show_incomparable(shown.shorten_in(incomparable), results)
    results.print()
    for task in outcome.tasks:
        _remark(task, results, messages)
    _tell_bad_answers(outcome, results)
    show_costs(shown.shorten_in(outcome.costs), results)
    say_names(results, shown)
    for reason in outcome.stopped.values():
        warn(messages, reason)
    gaps = [task.summary for task in outcome.tasks if task.summary is not None and task.summary.missing]
    if outcome.batches:
        tell_batches(outcome.batches, messages)
    if outcome.interrupted:
        say(messages, "Stopped. The same command again goes on from here.")
    elif any(summary.requestable_missing for summary in gaps):
        if any(summary.missing.get("cut_off") for summary in gaps):
            warn(messages, "Judges were cut off: raise --judge-max-tokens, or they will be again.")
        way = "To fill the gaps, run the same command: it requests only what is missing."
        if any(summary.not_measured for summary in gaps):
            way = (
                "Most requests failed because of a setting or the connection: fix that first. Then the "
                "same command requests only what is missing."
            )
        say(messages, way)
        if outcome.errors is not None:
            say(messages, f"What failed, and why: {outcome.errors}")
    folders = ", ".join(dict.fromkeys(str(task.folder) for task in outcome.tasks))
    say(messages, f"Results: {folders}")


def _show_figures(outcome: Outcome, console: Console) -> None:
    tasks = []
    for task in outcome.tasks:
        summary = task.summary
        if summary is None:
            state = "no result" if task.left_at is None else "stopped"
            tasks.append(TaskMetrics(task.label, state, (), ()))
            continue
        state = "" if summary.metrics else "not judged"
        if summary.not_measured:
            state = f"not measured: {summary.not_measured}"
        metrics = [
            (name, metric_in_points(one.value, one.ci95, one.unit), one.n)
            for name, one in summary.metrics.items()
        ]
        counts = (f"{summary.n_expected:,} {summary.counted}", sum(summary.n_failed.values()))
        tasks.append(TaskMetrics(task.label, state, counts, metrics))
    show_table(console, task_metrics_table(tasks))
    names = [name for task in outcome.tasks if task.summary is not None for name in task.summary.metrics]
    if names:
        by_instruction = any(name.startswith("instruction_level_") for name in names)
        counted = "prompts (instructions in instruction_level rows)" if by_instruction else "prompts"
        own = "in a task's own line what it is scored by, and how many of these failed"
        say(console, f"n: {counted}; {own}.", "dim")


def over_runs(outcome: Outcome) -> dict[str, dict[str, SampleFigure]]:
    """By task and metric, the figures over the samples that the output folder holds; none of tasks without
    numbered samples."""
    sampled = {
        task.summary.task: task.folder.parents[1]
        for task in outcome.tasks
        if task.summary is not None and task.summary.run is not None
    }
    if not sampled:
        return {}
    from coeval.analysis.readers.output_reader import OutputReader  # duckdb and numpy
    from coeval.analysis.training.sample_figures import compute_task_figures

    with OutputReader(next(iter(sampled.values()))) as reader:
        return {task: one.metrics for task, one in compute_task_figures(reader).items() if task in sampled}


def _show_over_runs(figures: Mapping[str, Mapping[str, SampleFigure]], console: Console) -> None:
    rows = tuple(
        (task, name, *sample_cells(one, one.ci95))
        for task, metrics in figures.items()
        for name, one in metrics.items()
    )
    columns = (*make_columns("task", "metric"), *SAMPLE_COLUMNS)
    show_table(console, ReportTable("", "Over runs", columns, rows, names=2))


def _remark(task: TaskOutcome, results: Console, messages: Console) -> None:
    if task.summary is None:
        if task.problem is not None:
            say(messages, f"error: {task.label}: {task.gap}", "red")
        else:
            say(results, f"{task.label} was {task.gap}", "yellow")
        return
    if task.gap is not None:
        warn(messages, f"{task.label}: {task.gap}")
    if task.summary.given is not None and (said := _misfits(task.summary.given)):
        warn(messages, f"{task.label}: {said}")
    for remark in task.summary.remarks:
        say(results, f"{task.label}: {remark}", "yellow")
    if not task.summary.metrics:
        say(results, f"{task.label}: {OF_INFERENCE}")


def _tell_bad_answers(outcome: Outcome, results: Console) -> None:
    """How many answers were cut off, how many are empty, and what to think of it."""
    found = [(task.label, task.summary) for task in outcome.tasks if task.summary is not None]
    cut = [
        CutOffAnswers(label, of.truncated.n, of.truncated.answers, of.truncated.by_window)
        for label, of in found
    ]
    empty = [
        EmptyAnswers(label, of.empty.n, of.empty.truncated, of.empty.answers, given=of.given is not None)
        for label, of in found
    ]
    if (said := cut_off_sentence(cut, "to")) is not None:
        say(results, said, "yellow")
    for warning in (cut_off_warning(cut), empty_answers_sentence(empty, "to")):
        if warning is not None:
            warn(results, warning)


def _misfits(given: SuppliedCounts) -> str:
    """What of a file of responses was not used, and why."""
    parts = []
    if given.doubled:
        parts.append(f"{given.doubled:,} replaced by a later one of the same prompt")
    if given.unknown:
        parts.append(f"{given.unknown:,} about no prompt of the task")
    return f"not used of the file's {given.records:,} records: {', '.join(parts)}" if parts else ""


class EvalOutput(NamedTuple):
    """What belongs to the command line alone."""

    estimate_only: bool
    as_json: bool
    log_level: str


def run_and_report(settings: EvalSettings, shown: EvalOutput) -> int:
    """Do what is asked for and show it; the exit code."""
    logging.getLogger("coeval").setLevel(shown.log_level)  # what shows a traceback, see cli.ending
    messages = streams.messages()
    keys = find_keys(settings.keys)
    throttle = read_throttle(os.environ, default_s=DEFAULT_INTERVAL_S)
    evaluation, log_to = make_evaluation(settings, keys), destinations(settings.log_to)
    with Terminal(messages) as terminal:
        if said := describe_idle_options(settings, {task.name for task in evaluation.tasks}):
            terminal.warn(said)
        with fetch_bar(messages) as progress:
            prepared: Prepared = prepare_evaluation(evaluation, terminal, progress)
        if shown.estimate_only:
            return _tell_estimate(prepared, messages, as_json=shown.as_json)
        with open_output_folder(prepared, shown.log_level):
            ended = run_async(
                interruptible(
                    lambda event: ask_alone(prepared, keys, terminal, event, throttle), terminal.note
                )
            )
            outcome = conclude(prepared, ended)
    if shown.as_json:
        write_json(_plain(outcome))
    else:
        show(outcome, streams.results(), messages)
    if outcome.tasks and not outcome.interrupted:
        log_at_end(evaluation.output, log_to, lambda sentence: warn(messages, sentence))
    return outcome.exit_code


def _tell_estimate(prepared: Prepared, messages: Console, *, as_json: bool) -> int:
    """What is owed costs so much: written into the output folder, and shown."""
    estimate = estimate_evaluation(prepared, PriceBook())
    written = prepared.evaluation.output / "cost_estimate.json"
    write_json_atomic(written, estimate.as_json())
    if as_json:
        write_json(estimate.as_json())
    else:
        print_estimate(estimate, streams.results())
    if (budget := prepared.evaluation.budget_usd) is not None:
        accounts = read_accounts(usage_file(prepared.evaluation)).values()
        spent = sum(account.spent_usd + account.reserved_usd for account in accounts)
        priced = not estimate.unpriced
        tell_budget(check_budget_fit(str(BUDGET), budget, spent, estimate.total, priced=priced), messages)
    say(messages, f"Written: {written}", "dim")
    return 0


def _plain(outcome: Outcome) -> dict[str, Any]:
    return {
        "exit_code": outcome.exit_code,
        "interrupted": outcome.interrupted,
        "tasks": {
            task.label: {
                "folder": str(task.folder),
                "problem": task.problem,
                "summary": task.summary,
                "left_at": task.left_at,
            }
            for task in outcome.tasks
        },
        "over_runs": over_runs(outcome),
        "costs": list(outcome.costs),
    }
