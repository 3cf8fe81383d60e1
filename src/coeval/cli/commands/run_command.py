"""`coeval run`, `plan` and `describe`: run an experiment, or show what it takes."""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import quote
from typing import Annotated

import typer
from rich.console import Console

from coeval.api import Run, run_checked_config
from coeval.cli import streams
from coeval.cli.command_names import (
    ExperimentFile,
    KeyFile,
    LogLevel,
    OnlyModels,
    Probe,
    ProbeOnFail,
    split_names,
)
from coeval.cli.streams import say, warn
from coeval.cli.views.gaps_view import describe_failure_of_owed_checks, print_gaps, print_remedy
from coeval.cli.views.progress_view import print_open_batches, show_progress_while
from coeval.cli.views.results_view import print_results
from coeval.cli.views.table_view import show_tables
from coeval.core.errors import KeyMissing, UsageError
from coeval.core.process_limits import address_space_left
from coeval.engine.session import SessionContext
from coeval.exchange.trackers import Destination, log_after_command, parse_destinations
from coeval.models.batch.job_list import BatchMode
from coeval.models.catalog import HOSTS
from coeval.models.keys import load_keys
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.config.load_file import LoadedConfig, read_config
from coeval.pipeline.config.roles import describe_user_code
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.preview import forecast_start
from coeval.pipeline.run_options import ChangePolicy, RunOptions
from coeval.pipeline.start.checks import describe_check_code
from coeval.pipeline.start.session_start import resolve_hosts
from coeval.pricing.price_book import PriceBook
from coeval.reports.description_report import models_and_roles_table, phases_table, tasks_table
from coeval.store.jsonl import write_bytes_atomic
from coeval.store.rundir import RunDir

ContinueRun = Annotated[
    bool, typer.Option("--continue", help="Continue the run: request only what is missing.")
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Start over; records of phases in mode New move to replaced/.")
]
Resume = Annotated[
    str | None, typer.Option(metavar="ID", help="Reuse artifacts of another run; overrides resume_from.")
]
RedoChanged = Annotated[
    bool,
    typer.Option(
        "--redo-changed", help="Regenerate records of another configuration, and those that depend on them."
    ),
]
KeepChanged = Annotated[bool, typer.Option("--keep-changed", help="Keep records of another configuration.")]
PhaseBarriers = Annotated[
    bool, typer.Option("--phase-barriers", help="Finish each phase before the next begins.")
]

EstimateSamples = Annotated[
    int | None,
    typer.Option(
        "--estimate-samples",
        min=0,
        metavar="N",
        help="Sample requests to each model for the estimate, over all its roles; 0 sends none.",
        show_default="the file's estimate_samples, else 2",
    ),
]


def run(
    config: ExperimentFile,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check the file and count the calls; send and write nothing.")
    ] = False,
    continue_run: ContinueRun = False,
    only_models: OnlyModels = None,
    keys: KeyFile = None,
    log_level: Annotated[
        LogLevel | None,
        typer.Option(help="Level of run.log; DEBUG also shows tracebacks. Overrides the file."),
    ] = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    probe: Probe = None,
    probe_on_fail: ProbeOnFail = None,
    redo_changed: RedoChanged = False,
    keep_changed: KeepChanged = False,
    phase_barriers: PhaseBarriers = False,
    report: Annotated[
        bool, typer.Option("--report", help="At the end, write the run's report.html into its folder.")
    ] = False,
    no_wait: Annotated[
        bool, typer.Option("--no-wait", help="Exit once batch jobs are submitted; --continue collects them.")
    ] = False,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option(
            "--allow-unsandboxed", help="Run the programs of checks without a sandbox (docs/checks.md)."
        ),
    ] = False,
    log_to: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TRACKER[:PROJECT]",
            help="At the end, log to mlflow, wandb or trackio, as coeval log does; may be repeated.",
        ),
    ] = None,
    estimate_only: Annotated[
        bool, typer.Option("--estimate-only", help="Estimate the cost, as coeval plan does, and exit.")
    ] = False,
    estimate_samples: EstimateSamples = None,
) -> None:
    """Run an experiment and print its scores.

    Teachers write items, students answer them, judges score the answers. The scores go to standard
    output, progress and messages to standard error.

    \b
    Examples:
      coeval run --config examples/quickstart.yaml
      coeval run --config my.yaml --report
      coeval run --config my.yaml --dry-run
      coeval run --config my.yaml --estimate-only --estimate-samples 0
      coeval run --config my.yaml --continue
      coeval run --config my.yaml --continue --only-models llama3-8b

    \b
    Exit codes: 0 complete, 1 usage error, 2 a model is unavailable,
    3 finished with gaps, 130 interrupted (finished work is on disk).
    """
    if log_level == "DEBUG":
        logging.getLogger("coeval").setLevel(logging.DEBUG)  # what shows a traceback, see cli.ending
    policy, names = choose_change_policy(redo_changed, keep_changed), split_names(only_models)
    batches = BatchMode.SUBMIT if no_wait else BatchMode.WAIT
    options = RunOptions(
        continue_run, overwrite, names, policy, phase_barriers, batches, allow_unsandboxed=allow_unsandboxed
    )
    settled = read_experiment_file(config, options, resume).with_experiment_settings(
        log_level=log_level,
        probe_mode=probe,
        probe_on_fail=probe_on_fail,
        estimate_samples=estimate_samples,
        report=report or None,
    )
    trackers = parse_destinations(log_to or ())
    if dry_run:
        print_dry_run(settled.config, options, keys)
    elif estimate_only:
        from coeval.cli.commands.estimate_report import estimate_write_and_print

        estimate_write_and_print(settled.config, options, keys)
    else:
        raise typer.Exit(run_and_print(settled.config, options, keys, config, trackers))


def plan(
    config: ExperimentFile,
    estimate_samples: EstimateSamples = None,
    continue_run: ContinueRun = False,
    only_models: OnlyModels = None,
    as_json: Annotated[bool, typer.Option("--json", help="The figures as JSON on standard output.")] = False,
    keys: KeyFile = None,
    overwrite: Overwrite = False,
    resume: Resume = None,
    redo_changed: RedoChanged = False,
    keep_changed: KeepChanged = False,
    phase_barriers: PhaseBarriers = False,
) -> None:
    """Estimate calls, tokens, cost and time of an experiment.

    The options describe the run to estimate, which is not started. Figures
    are by phase, model and provider, each with a 95% range. Text lengths come from
    existing records, from samples (--estimate-samples), or else from rules of
    thumb. All figures go to cost_estimate.json in the run's folder.

    \b
    Examples:
      coeval plan --config my.yaml
      coeval plan --config my.yaml --estimate-samples 0
      coeval plan --config my.yaml --continue
      coeval plan --config my.yaml --estimate-samples 0 --json | jq .cost_usd.central

    \b
    Exit codes: 0 estimated, 1 usage error, 130 interrupted.
    """
    from coeval.cli.commands.estimate_report import estimate_write_and_print

    policy = choose_change_policy(redo_changed, keep_changed)
    options = RunOptions(continue_run, overwrite, split_names(only_models), policy, phase_barriers)
    settled = read_experiment_file(config, options, resume).with_experiment_settings(
        estimate_samples=estimate_samples
    )
    estimate_write_and_print(settled.config, options, keys, as_json=as_json)


PAGE_ONLY = ("values",)
"""Tables that are too long for a terminal; the page has them."""


def describe(
    config: ExperimentFile,
    out: Annotated[Path | None, typer.Option(help="Write a page. Example: --out experiment.html")] = None,
    prompts: Annotated[
        bool, typer.Option("--prompts", help="Print the prompts in full, as they will be sent.")
    ] = False,
    keys: KeyFile = None,
) -> None:
    """Show an experiment before it runs: prompts, calls, cost.

    No model is called, and the run's folder is unchanged. Prompts are shown with
    the attributes of a planned item; text that a model will write is marked. If
    the run has started, calls and cost are those that remain. --out writes all of
    it as one page.

    \b
    Examples:
      coeval describe --config examples/quickstart.yaml
      coeval describe --config my.yaml --prompts
      coeval describe --config my.yaml --out my.html

    \b
    Exit codes: 0 described, 1 usage error.
    """
    from coeval.cli.views.description_view import check_page_path, preview_experiment, print_report
    from coeval.reports.description_report import description_report
    from coeval.reports.site.page import make_page

    if out is not None:
        check_page_path(out, config)
    report = description_report(preview_experiment(read_config(config).config, load_keys(keys)))
    print_report(report, streams.results(), skipped_tables=PAGE_ONLY, with_passages=prompts)
    messages = streams.messages()
    if not prompts:
        streams.say(messages, "--prompts prints the prompts in full.", "dim")
    if out is not None:
        write_bytes_atomic(out, make_page(report))
        streams.say(messages, f"written: {out}")


def choose_change_policy(redo_changed: bool, keep_changed: bool) -> ChangePolicy:
    """Return what to do with records of another configuration; raises UsageError if both flags are given."""
    if redo_changed and keep_changed:
        raise UsageError("--redo-changed and --keep-changed exclude each other; give one of them")
    return ChangePolicy.REDO if redo_changed else ChangePolicy.KEEP if keep_changed else ChangePolicy.REFUSE


def read_experiment_file(file: Path, options: RunOptions, resume: str | None) -> LoadedConfig:
    """Read the experiment file, and check it for these options; ``resume`` overrides resume_from."""
    if options.continue_run and resume is not None:
        raise UsageError("--continue and --resume exclude each other; give one of them")
    return read_config(file, resume_from=resume, start=options)


# --- `coeval run` on the terminal: the forecast, the run as it goes, and what came of it


def print_dry_run(config: Config, options: RunOptions, keys: Path | None) -> None:
    """Print models, tasks, modes, records and calls of ``--dry-run``. A missing key is only a warning: a dry
    run needs no credential."""
    results, messages = streams.results(), streams.messages()
    prices = PriceBook()
    prices.refuse_unknown_interfaces(HOSTS, HOSTS.own)
    choices: Sequence[str] = ()
    try:
        config, choices = resolve_hosts(config, options, load_keys(keys), prices)
    except KeyMissing as error:
        warn(messages, f"interface auto is not resolved, and a run would not start (exit code 1): {error}")
    for sentence in find_doubtful_settings(config):
        warn(messages, sentence)
    forecast = forecast_start(config, options)
    for sentence in forecast.warnings:
        warn(messages, sentence)
    show_tables(
        results, [models_and_roles_table(config, options.models_to_open(config))], has_text_above=False
    )
    for sentence in (*choices, *describe_user_code(options.models_to_open(config))):
        say(results, sentence)
    show_tables(results, [phases_table(config, forecast, options), tasks_table(forecast)])
    for task in config.tasks:
        if scales := task.describe_custom_scales():
            say(results, f"Levels of {task.name}: {scales}")
    results.print()
    for sentence in describe_check_code(config):
        say(results, sentence)
    say(
        results,
        f"{forecast.total} calls, excluding probes and retries. No model was called and nothing was written.",
    )


def run_and_print(
    config: Config, options: RunOptions, key_file: Path | None, file: Path, log_to: Sequence[Destination] = ()
) -> int:
    """Run with progress; print scores, gaps and the next command. Return the exit code."""
    messages = streams.messages()
    run = run_with_progress(config, options, key_file)
    labels = {model.name: model.label for model in config.models if model.label is not None}
    _print_scores_and_gaps(run, labels, messages, _build_continue_command(file, options))
    if run.summary is not None and run.summary.shows_scores:
        if config.experiment.report:
            say(messages, f"Report: {run.path / 'report.html'}")
        log_after_command(run.path, log_to, lambda sentence: warn(messages, sentence))
    return run.exit_code


def run_with_progress(config: Config, options: RunOptions, key_file: Path | None) -> Run:

    async def work(context: SessionContext) -> Run:
        loading = asyncio.create_task(_preload_result_tables())
        try:
            return await run_checked_config(
                config, options, keys=context.keys, watcher=context.watcher, interrupt=context.interrupt
            )
        finally:
            loading.cancel()

    return show_progress_while(load_keys(key_file), work)


async def _preload_result_tables() -> None:
    """Import what the final table needs while requests are on the wire: a third of a second."""
    await asyncio.sleep(0.2)
    if address_space_left() is not None:
        return  # little may be left, and what is missed at the end is told there
    await asyncio.to_thread(importlib.import_module, "coeval.reports.result_tables")


def _build_continue_command(file: Path, options: RunOptions) -> str:
    """Return the command that continues this one, with the flags that matter."""
    policy = options.change_policy
    changed = f" --{policy.value}-changed" if policy in (ChangePolicy.REDO, ChangePolicy.KEEP) else ""
    only = f" --only-models {quote(','.join(options.only_models))}" if options.only_models else ""
    free = " --allow-unsandboxed" if options.allow_unsandboxed else ""
    return f"coeval run --config {quote(str(file))} --continue{changed}{only}{free}"


def _print_scores_and_gaps(run: Run, labels: Mapping[str, str], messages: Console, next_command: str) -> None:
    """Print the scores as ``results``; what is missing, why, and the next command as ``messages``."""
    summary = run.summary
    if summary is None:
        return
    if messages.file.isatty():
        messages.print()
    if summary.shows_scores:
        print_results(run.results(), streams.results(), labels)
    for sentence in (*summary.notes, *summary.stopped.values()):
        warn(messages, sentence)
    if summary.batches:
        print_open_batches(summary.batches, messages)
    if summary.missing:
        print_gaps(summary, messages)
        if any(outcome.failed["cut_off"] for outcome in summary.phases.values()):
            warn(
                messages,
                "Answers were cut off at max_tokens (of your own code: max_answer_bytes): raise it before "
                "you continue, or it happens again.",
            )
        used_up = any(outcome.gaps["quota"] for outcome in summary.phases.values())
        first = "First raise the limits that the warnings above name." if used_up else ""
        others = summary.missing - sum(supply.missing for supply in summary.short)
        first = first or describe_failure_of_owed_checks(RunDir(run.path), others)
        print_remedy(messages, summary.short, next_command, owed=summary.missing, first=first)
        if any(outcome.failed or outcome.incomplete for outcome in summary.phases.values()):
            say(messages, f"What failed, and why: coeval status --run {quote(str(run.path))}")
    elif summary.interrupted:
        untouched = "the same command; no record has changed, only the run's log and account"
        next_step = next_command if summary.begun else untouched
        say(messages, f"Stopped. Continue with: {next_step}")
    if summary.begun:
        say(messages, f"Artifacts: {run.path}")
