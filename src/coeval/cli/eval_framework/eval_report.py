"""What ``eval-framework`` prints: downloads, progress, figures, estimates."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console

from coeval.analysis.doubtful_answers import (
    CutOffAnswers,
    EmptyAnswers,
    Incomparable,
    cut_off_sentence,
    empty_answers_sentence,
    too_many_cut_off_warning,
)
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
    lock_affordable_output_folder,
)
from coeval.cli import streams
from coeval.cli.commands.datasets import draw_fetch_progress
from coeval.cli.commands.estimate_report import print_budget_fit, print_estimate
from coeval.cli.loop import run_async, run_interruptible
from coeval.cli.streams import say, warn
from coeval.cli.views.progress_view import Terminal, print_open_batches
from coeval.cli.views.results_view import write_json
from coeval.cli.views.table_view import print_full_names, show_costs, show_incomparable, show_table
from coeval.core.options import BUDGET
from coeval.core.shown_names import ShownNames
from coeval.exchange.trackers import log_after_command, parse_destinations
from coeval.models.keys import load_keys
from coeval.models.metering.account_file import read_accounts
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, read_throttle
from coeval.pricing.estimate import check_budget_fit
from coeval.pricing.price_book import PriceBook
from coeval.reports.content import ReportTable, make_columns
from coeval.reports.measure_table import (
    SAMPLE_COLUMNS,
    TaskMetrics,
    mean_sem_cells,
    metric_as_share,
    task_metrics_table,
)
from coeval.store.jsonl import write_json_atomic

if TYPE_CHECKING:
    from coeval.analysis.training.aggregate import SampleFigure

# --- Final table of an evaluation


def print_outcome(outcome: Outcome, results: Console, messages: Console) -> None:
    """Print an evaluation's figures and caveats on ``results``, and what to do about gaps on ``messages``."""
    if not outcome.tasks:
        say(messages, "Stopped before the first request. Repeat the command to start.")
        return
    if results.file.isatty():
        results.print()
    _print_metrics_by_task(outcome, results)
    if figures := read_figures_by_task_and_metric(outcome):
        results.print()
        _print_sample_figures(figures, results)
    names = ShownNames.of(cost.model for cost in outcome.costs)
    incomparable = [
        Incomparable(task.label, summary.compared_with, "; ".join(summary.reasons))
        for task in outcome.tasks
        if (summary := task.summary) and summary.metrics
        if not (summary.comparable or summary.not_measured)
    ]
    show_incomparable(names.shorten_in(incomparable), results)
    results.print()
    for task in outcome.tasks:
        _print_task_gap_and_remarks(task, results, messages)
    _print_cut_off_and_empty_answers(outcome, results)
    show_costs(names.shorten_in(outcome.costs), results)
    print_full_names(results, names)
    for reason in outcome.stopped.values():
        warn(messages, reason)
    gaps = [task.summary for task in outcome.tasks if task.summary is not None and task.summary.missing]
    if outcome.batches:
        print_open_batches(outcome.batches, messages)
    if outcome.interrupted:
        say(messages, "Stopped. The same command continues from here.")
    elif any(summary.requestable_missing for summary in gaps):
        if any(summary.missing.get("cut_off") for summary in gaps):
            warn(messages, "Judges were cut off: raise --judge-max-tokens, or it happens again.")
        if any(summary.not_measured for summary in gaps):
            cause = "Most requests failed because of a setting or the connection; fix that first."
            say(messages, f"{cause} Then the same command requests only what is missing.")
        else:
            say(messages, "To fill the gaps, run the same command: it requests only what is missing.")
        if outcome.errors is not None:
            say(messages, f"What failed, and why: {outcome.errors}")
    folders = ", ".join(dict.fromkeys(str(task.folder) for task in outcome.tasks))
    say(messages, f"Results: {folders}")


def _print_metrics_by_task(outcome: Outcome, console: Console) -> None:
    """Print a table of all metrics by task, and what n counts."""
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
            (name, metric_as_share(metric.value, metric.ci95, metric.unit), metric.n)
            for name, metric in summary.metrics.items()
        ]
        counts = (f"{summary.n_expected:,} {summary.counted}", sum(summary.n_failed.values()))
        tasks.append(TaskMetrics(task.label, state, counts, metrics))
    show_table(console, task_metrics_table(tasks))
    names = [name for task in outcome.tasks if task.summary is not None for name in task.summary.metrics]
    if names:
        by_instruction = any(name.startswith("instruction_level_") for name in names)
        counted = "prompts (instructions in instruction_level rows)" if by_instruction else "prompts"
        own_line = "a task's own line counts what it scores, and how many of these failed"
        say(console, f"n: {counted}; {own_line}.", "dim")


def read_figures_by_task_and_metric(outcome: Outcome) -> dict[str, dict[str, SampleFigure]]:
    """Return figures over numbered samples by task and metric; tasks without such samples are absent."""
    folder_by_task = {
        task.summary.task: task.folder.parents[1]
        for task in outcome.tasks
        if task.summary is not None and task.summary.run is not None
    }
    if not folder_by_task:
        return {}
    from coeval.analysis.readers.output_reader import OutputReader  # duckdb and numpy
    from coeval.analysis.training.aggregate import compute_figures_of_counted_runs

    with OutputReader(next(iter(folder_by_task.values()))) as reader:
        return {
            task: figures.metrics
            for task, figures in compute_figures_of_counted_runs(reader).items()
            if task in folder_by_task
        }


def _print_sample_figures(figures: Mapping[str, Mapping[str, SampleFigure]], console: Console) -> None:
    rows = tuple(
        (task, name, *mean_sem_cells(figure, figure.ci95))
        for task, metrics in figures.items()
        for name, figure in metrics.items()
    )
    columns = (*make_columns("task", "metric"), *SAMPLE_COLUMNS)
    show_table(console, ReportTable("", "Over runs", columns, rows, names=2))


def _print_task_gap_and_remarks(task: TaskOutcome, results: Console, messages: Console) -> None:
    """Print a task's gap, unused records and remarks, or why it has no summary."""
    if task.summary is None:
        if task.problem is not None:
            say(messages, f"error: {task.label}: {task.gap}", "red")
        else:
            say(results, f"{task.label} was {task.gap}", "yellow")
        return
    if task.gap is not None:
        warn(messages, f"{task.label}: {task.gap}")
    if task.summary.given is not None and (sentence := _describe_unused_records(task.summary.given)):
        warn(messages, f"{task.label}: {sentence}")
    for remark in task.summary.remarks:
        say(results, f"{task.label}: {remark}", "yellow")
    if not task.summary.metrics:
        say(results, f"{task.label}: {OF_INFERENCE}")


def _print_cut_off_and_empty_answers(outcome: Outcome, results: Console) -> None:
    """Print how many answers are cut off or empty, with what that means."""
    summaries = [(task.label, task.summary) for task in outcome.tasks if task.summary is not None]
    cut = [
        CutOffAnswers(label, summary.truncated.n, summary.truncated.answers, summary.truncated.by_window)
        for label, summary in summaries
    ]
    empty = []
    for label, summary in summaries:
        counts, given = summary.empty, summary.given is not None
        empty.append(EmptyAnswers(label, counts.n, counts.truncated, counts.answers, given=given))
    if (sentence := cut_off_sentence(cut, "to")) is not None:
        say(results, sentence, "yellow")
    for warning in (too_many_cut_off_warning(cut), empty_answers_sentence(empty, "to")):
        if warning is not None:
            warn(results, warning)


def _describe_unused_records(counts: SuppliedCounts) -> str:
    """Say which records of a file of responses were not used, and why; "" if all were."""
    parts = []
    if counts.doubled:
        parts.append(f"{counts.doubled:,} replaced by a later one of the same prompt")
    if counts.unknown:
        parts.append(f"{counts.unknown:,} for prompts that the task lacks")
    return f"not used of the file's {counts.records:,} records: {', '.join(parts)}" if parts else ""


class EvalOutput(NamedTuple):
    """How to show an evaluation: flags that are no settings of it."""

    estimate_only: bool
    as_json: bool
    log_level: str


def evaluate_and_print(settings: EvalSettings, output: EvalOutput) -> int:
    """Run the evaluation, or only its estimate, and print the outcome; return the exit code."""
    logging.getLogger("coeval").setLevel(output.log_level)  # what shows a traceback, see cli.ending
    messages = streams.messages()
    keys = load_keys(settings.keys)
    throttle = read_throttle(os.environ, default_s=DEFAULT_INTERVAL_S)
    evaluation, log_to = make_evaluation(settings, keys), parse_destinations(settings.log_to)
    with Terminal(messages) as terminal:
        if sentence := describe_idle_options(settings, {task.name for task in evaluation.tasks}):
            terminal.warn(sentence)
        with draw_fetch_progress(messages) as progress:
            prepared: Prepared = prepare_evaluation(evaluation, terminal, progress)
        if output.estimate_only:
            return _write_and_print_estimate(prepared, messages, as_json=output.as_json)
        ask = partial(ask_alone, prepared, keys, terminal, throttle=throttle)
        with lock_affordable_output_folder(prepared, output.log_level):
            outcome = conclude(prepared, run_async(run_interruptible(ask, terminal.note)))
    if output.as_json:
        write_json(_outcome_to_json(outcome))
    else:
        print_outcome(outcome, streams.results(), messages)
    if outcome.tasks and not outcome.interrupted:
        log_after_command(evaluation.output, log_to, lambda sentence: warn(messages, sentence))
    return outcome.exit_code


def _write_and_print_estimate(prepared: Prepared, messages: Console, *, as_json: bool) -> int:
    """Estimate the owed calls, write the estimate into the output folder, and print it."""
    estimate = estimate_evaluation(prepared, PriceBook())
    path = prepared.evaluation.output / "cost_estimate.json"
    write_json_atomic(path, estimate.as_json())
    if as_json:
        write_json(estimate.as_json())
    else:
        print_estimate(estimate, streams.results())
    if (budget := prepared.evaluation.budget_usd) is not None:
        accounts = read_accounts(usage_file(prepared.evaluation)).values()
        spent = sum(account.spent_usd + account.reserved_usd for account in accounts)
        fit = check_budget_fit(str(BUDGET), budget, spent, estimate.total, all_priced=not estimate.unpriced)
        print_budget_fit(fit, messages)
    say(messages, f"Written: {path}", "dim")
    return 0


def _outcome_to_json(outcome: Outcome) -> dict[str, Any]:
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
        "over_runs": read_figures_by_task_and_metric(outcome),
        "costs": list(outcome.costs),
    }
