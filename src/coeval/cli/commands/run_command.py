"""`coeval run`, `plan` and `describe`: carry an experiment as far as it goes, or say what it takes."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from coeval.api import find_keys
from coeval.cli import streams
from coeval.cli.command_names import (
    ExperimentFile,
    KeyFile,
    LogLevel,
    OnlyModels,
    Probe,
    ProbeOnFail,
    names_in,
)
from coeval.core.errors import UsageError
from coeval.exchange.trackers import destinations
from coeval.models.batch.job_list import BatchMode
from coeval.pipeline.config.load_file import Loaded, read_config
from coeval.pipeline.run_options import RunOptions, Stance

ContinueRun = Annotated[
    bool, typer.Option("--continue", help="Continue the run: request only what is missing.")
]
Overwrite = Annotated[
    bool,
    typer.Option("--overwrite", help="Start over; records of phases in mode New move to replaced/."),
]
Resume = Annotated[
    str | None,
    typer.Option(metavar="ID", help="Take over artifacts of another run; overrides resume_from."),
]
RedoChanged = Annotated[
    bool,
    typer.Option(
        "--redo-changed",
        help="Regenerate records of another configuration, and those that depend on them.",
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
        help="For an estimate, send N sample requests to each model, over its roles; 0 sends none.",
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
        bool, typer.Option("--no-wait", help="End when batch jobs are submitted; --continue collects them.")
    ] = False,
    allow_unsandboxed: Annotated[
        bool,
        typer.Option(
            "--allow-unsandboxed",
            help="Run the programs of checks without a sandbox (docs/checks.md).",
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
        bool, typer.Option("--estimate-only", help="Estimate the cost, as coeval plan does, and end.")
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
    Exit codes: 0 complete, 1 wrong request, 2 a model is unavailable,
    3 finished with gaps, 130 interrupted (finished work is on disk).
    """
    if log_level == "DEBUG":
        logging.getLogger("coeval").setLevel(logging.DEBUG)  # what shows a traceback, see cli.ending
    from coeval.cli.commands.run_report import count_calls, run_and_report

    stance, names = stance_of(redo_changed, keep_changed), names_in(only_models)
    batches = BatchMode.SUBMIT if no_wait else BatchMode.WAIT
    options = RunOptions(
        continue_run, overwrite, names, stance, phase_barriers, batches, allow_unsandboxed=allow_unsandboxed
    )
    settled = started_file(config, options, resume).with_settings(
        log_level=log_level,
        probe_mode=probe,
        probe_on_fail=probe_on_fail,
        estimate_samples=estimate_samples,
        report=report or None,
    )
    trackers = destinations(log_to or ())
    if dry_run:
        raise typer.Exit(count_calls(settled.config, options, keys))
    if estimate_only:
        from coeval.cli.commands.estimate_report import estimate_and_report

        raise typer.Exit(estimate_and_report(settled.config, options, keys))
    raise typer.Exit(run_and_report(settled.config, options, keys, config, trackers))


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

    The options say how the run would be started, which it is not. Every figure
    comes by phase, model and provider, with a 95% range. Text lengths come from
    existing records, from samples (--estimate-samples), or else from rules of
    thumb. All figures are in cost_estimate.json of the run's folder.

    \b
    Examples:
      coeval plan --config my.yaml
      coeval plan --config my.yaml --estimate-samples 0
      coeval plan --config my.yaml --continue
      coeval plan --config my.yaml --estimate-samples 0 --json | jq .cost_usd.central

    \b
    Exit codes: 0 estimated, 1 wrong request, 130 interrupted.
    """
    from coeval.cli.commands.estimate_report import estimate_and_report

    stance = stance_of(redo_changed, keep_changed)
    options = RunOptions(continue_run, overwrite, names_in(only_models), stance, phase_barriers)
    settled = started_file(config, options, resume).with_settings(estimate_samples=estimate_samples)
    raise typer.Exit(estimate_and_report(settled.config, options, keys, as_json=as_json))


PAGE_ONLY = ("values",)
"""Tables that are too long for a terminal; the page has them."""


def describe(
    config: ExperimentFile,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write a page. Example: --out experiment.html"),
    ] = None,
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
    Exit codes: 0 described, 1 wrong request.
    """
    from coeval.cli.views.description_view import (
        described_experiment,
        print_report,
        refuse_place,
        write_description,
    )
    from coeval.reports.description_report import description_report

    if out is not None:
        refuse_place(out, config)
    described = described_experiment(read_config(config).config, find_keys(keys))
    report = description_report(described)
    print_report(report, streams.results(), without=PAGE_ONLY, passages=prompts)
    messages = streams.messages()
    if not prompts:
        streams.say(messages, "--prompts prints the prompts in full.", "dim")
    if out is not None:
        write_description(report, out)
        streams.say(messages, f"written: {out}")


def stance_of(redo_changed: bool, keep_changed: bool) -> Stance:
    """What to do with records of another configuration; raises UsageError where both flags say it."""
    if redo_changed and keep_changed:
        raise UsageError("--redo-changed and --keep-changed exclude each other; give one of them")
    return Stance.REDO if redo_changed else Stance.KEEP if keep_changed else Stance.REFUSE


def started_file(file: Path, options: RunOptions, resume: str | None) -> Loaded:
    """The experiment file, checked for a start with these options; ``resume`` overrides resume_from."""
    if options.continue_run and resume is not None:
        raise UsageError("--continue and --resume exclude each other; give one of them")
    return read_config(file, resume_from=resume, start=options)
