"""The group `coeval sweep`: the sweep itself, and commands on its results."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from coeval.cli.command_names import LogLevel
from coeval.cli.settings_flags import GroupedCommands, read_set_flags, with_settings_flags
from coeval.core.errors import UsageError
from coeval.sweeps.sweep_settings import SweepSettings


@with_settings_flags(SweepSettings)
def sweep(
    context: typer.Context,
    config: Annotated[
        Path | None, typer.Option(help="A YAML file with these flags as keys, _ for -; flags override it.")
    ] = None,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Count jobs and calls, price the judging; send and write nothing."),
    ] = False,
    status: Annotated[
        bool,
        typer.Option("--status", help="Show the sweep's progress, also while it runs; needs only --out."),
    ] = False,
    log_level: Annotated[LogLevel, typer.Option(help="DEBUG also shows tracebacks.")] = "INFO",
    **settings: Any,  # noqa: ARG001  the context has them, and which of them were given
) -> None:
    """Evaluate the checkpoints of a training run, with curves.

    It serves each checkpoint, samples every task's prompts N times, has the answers
    judged and draws the curves. Each slot (GPU) takes the next checkpoint when it is
    free; judging runs in parallel. The same command continues where it stopped: finished work is never
    repeated.

    \b
    Examples:
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --tasks ifeval,ifbench
      coeval sweep --checkpoints ckpts/run_a --out outputs/run_a --steps 120,240 --gpus 0,1,2,3 \\
        --judge-model gpt-4.1 --judge-base-url https://api.openai.com/v1
      coeval sweep --config sweep.yaml --dry-run
      coeval sweep --out outputs/run_a --status

    \b
    Exit codes: 0 complete, 1 usage error, 2 no server started,
    3 finished with gaps or failed jobs, 130 interrupted (finished work is on disk).
    """
    if context.invoked_subcommand is not None:
        return
    from coeval.cli.commands.sweep import sweep_report

    sweep_settings = sweep_report.read_sweep_settings(read_set_flags(context, SweepSettings), config)
    logging.getLogger("coeval").setLevel(log_level)  # what shows a traceback, see cli.ending
    if status:
        sweep_report.print_sweep_status(sweep_settings)
    elif dry_run:
        sweep_report.print_sweep_plan(sweep_settings)
    else:
        raise typer.Exit(sweep_report.sweep_and_print(sweep_settings))


app = typer.Typer(
    name="sweep",
    cls=GroupedCommands,
    invoke_without_command=True,
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.callback()(sweep)


_Steps: TypeAlias = Annotated[str | None, typer.Option(metavar="120,240", help="Only these steps.")]
_Tasks: TypeAlias = Annotated[str | None, typer.Option(metavar="ifeval,…", help="Only these tasks.")]
_Pattern: TypeAlias = Annotated[
    str, typer.Option(metavar="PATTERN", help="Name pattern of the checkpoint folders.")
]


@app.command("submit")
def submit(
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="The sweep's folder. Example: --out outputs/run_a")
    ],
    step: Annotated[int, typer.Option(min=0, help="The training step. Example: --step 240")],
    path: Annotated[
        Path, typer.Option(metavar="DIR", help="The saved checkpoint. Example: --path ckpts/step_240")
    ],
    wait: Annotated[bool, typer.Option("--wait", help="Wait until it is scored, or has failed.")] = False,
) -> None:
    """Submit a checkpoint to a running coeval sweep --watch, and return at once.

    The queue is kept in the sweep's folder, whether or not a sweep is running. An
    overwritten checkpoint counts as a new one.

    \b
    Examples:
      coeval sweep submit --out outputs/run_a --step 240 --path ckpts/run_a/step_240
      coeval sweep submit --out outputs/run_a --step 240 --path ckpts/run_a/step_240 --wait

    \b
    Exit codes: 0 submitted (with --wait: scored), 1 usage error, 3 it failed or has gaps, 130 interrupted.
    """
    from coeval.cli import streams
    from coeval.sweeps.submission import explain_idle_sweep, submit_checkpoint

    messages = streams.messages()
    code = submit_checkpoint(out, step, path, wait, lambda line: streams.say(messages, line))
    if not wait:
        streams.say(streams.results(), f"step {step} submitted to {out}")
        if idle := explain_idle_sweep(out):
            streams.warn(messages, idle)
    raise typer.Exit(code)


@app.command("aggregate")
def aggregate(
    out: Annotated[
        Path,
        typer.Option(
            "--out",
            "--out-dir",
            metavar="DIR",
            help="The folder with the checkpoint folders. Example: --out outputs/run_a",
        ),
    ],
    steps: _Steps = None,
    tasks: _Tasks = None,
    n_samples: Annotated[
        str | None,
        typer.Option(
            metavar="ifeval=8,…",
            help="Expected number of samples: missing ones are reported, and runs beyond it do not count.",
        ),
    ] = None,
    name_pattern: _Pattern = "step_{step}",
    base: Annotated[
        int | None,
        typer.Option(metavar="STEP", help="Compare checkpoints with this step; default: the first one."),
    ] = None,
) -> None:
    """Aggregate the samples of each checkpoint, and draw conclusions.

    Writes each checkpoint's summary_agg.json. Shows which checkpoint to ship,
    whether the last step gained on the one before, and for each task the first
    step that is significantly better than the base. Samples are combined if
    sampling and judging are equal; others, and unfinished ones, are left out and
    reported. No model is called. docs/training-runs.md explains the figures.

    Exit codes: 0 complete, 1 usage error, 3 something is missing.

    \b
    Examples:
      coeval sweep aggregate --out outputs/run_a
      coeval sweep aggregate --out outputs/run_a --steps 120,240 --tasks ifeval,healthbench --base 120
      coeval sweep aggregate --out outputs/run_a --n-samples ifeval=8,healthbench=8,arena-hard=1
    """
    from coeval.core.errors import GAPS
    from coeval.sweeps import sweep_settings

    task_names, step_numbers = sweep_settings.parse_names(tasks), sweep_settings.parse_steps(steps)
    expected = sweep_settings.parse_counts(n_samples)
    # Here, because they load duckdb and numpy.
    from coeval.analysis.training.aggregate import (
        aggregate_checkpoint,
        find_evaluated_steps,
        write_aggregates,
    )
    from coeval.analysis.training.sweep_comparison import compare_checkpoints
    from coeval.analysis.training.training_curves import build_training_run
    from coeval.cli import streams
    from coeval.cli.commands.sweep.sweep_tables import print_aggregates_and_check_gaps, print_conclusions

    checkpoints = find_evaluated_steps(out, name_pattern, step_numbers, base)
    aggregated = [aggregate_checkpoint(checkpoint, task_names, expected) for checkpoint in checkpoints]
    if sum(len(write_aggregates(checkpoint)) for checkpoint in aggregated):
        runs = [build_training_run(out.name, out, aggregated, task_names, base)]
        print_conclusions(runs, compare_checkpoints(runs), streams.results(), aggregated)
    if print_aggregates_and_check_gaps(aggregated, out, task_names, step_numbers, name_pattern):
        raise typer.Exit(GAPS)


@app.command("judges")
def judges(
    judges: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=DIR",
            help="A judge's output folder, or the folder of a whole sweep. Repeat for each judge.",
        ),
    ],
    tasks: _Tasks = None,
    steps: _Steps = None,
    name_pattern: _Pattern = "step_{step}",
    out: Annotated[
        Path | None, typer.Option(metavar="FILE.json", help="Also write everything as one JSON document.")
    ] = None,
) -> None:
    """Compare judges: means, paired differences, order of checkpoints.

    No model is called. Items are paired, samples that only one judge scored are left out, and answers that
    differ between the folders are reported. docs/training-runs.md explains the figures.

    \b
    Examples:
      coeval sweep judges --judges flash=outputs/run_a --judges plus=outputs/run_a-plus
      coeval sweep judges --judges flash=outputs/a --judges plus=outputs/b --out judges.json
    """
    from coeval.cli import streams
    from coeval.sweeps import sweep_settings

    folders = _parse_named_folders(judges, "--judges")
    if out is not None and out.is_dir():
        raise UsageError(f"--out {out} is a folder; name a file")
    task_names, step_numbers = sweep_settings.parse_names(tasks), sweep_settings.parse_steps(steps)
    # Here, because they load duckdb and numpy.
    from coeval.analysis.training.judge_comparison import compare_judges
    from coeval.cli.commands.sweep.sweep_tables import print_judges
    from coeval.store.jsonl import write_json_atomic

    compared = compare_judges(folders, task_names, step_numbers, name_pattern)
    print_judges(compared, streams.results())
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_json_atomic(out, compared)
        streams.say(streams.messages(), f"written: {out}")


@app.command("plot")
def plot(
    runs: Annotated[
        list[str],
        typer.Option(
            metavar="NAME=DIR",
            help="A name for a training run, and the folder that holds its checkpoint folders; repeatable. "
            "Example: --runs run_a=outputs/run_a",
        ),
    ],
    plot_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Where the files go. Example: --plot-dir outputs/plots")
    ],
    name_pattern: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=PATTERN",
            help="Name pattern of a run's checkpoint folders; repeatable.",
            show_default="step_{step}",
        ),
    ] = None,
    steps: _Steps = None,
    tasks: _Tasks = None,
    show_errorbar: Annotated[
        Literal["ci95", "sem", "std", "none"],
        typer.Option(help="What is shaded: 95% interval, standard error or deviation over samples, or none."),
    ] = "ci95",
) -> None:
    """Draw the curves of training runs, with the items behind each point.

    Writes TASK.png and TASK.svg for print, all_tasks.png and all_tasks.svg, and curves.html, which opens
    without a network. docs/training-runs.md explains the figures and sentences.

    \b
    Examples:
      coeval sweep plot --runs run_a=outputs/run_a --plot-dir outputs/plots
      coeval sweep plot --runs a=outputs/a --runs b=outputs/b --tasks ifeval,healthbench \\
        --steps 120,240,360 --show-errorbar sem --plot-dir outputs/plots

    \b
    Exit codes: 0 drawn, 1 usage error.
    """
    from coeval.cli import streams
    from coeval.sweeps import sweep_settings

    folders = _parse_named_folders(runs, "--runs")
    patterns = _parse_patterns_by_run(name_pattern or [], folders)
    step_numbers, task_names = sweep_settings.parse_steps(steps), sweep_settings.parse_names(tasks)
    # Here, because they load duckdb and vl-convert.
    from coeval.analysis.training.sweep_comparison import compare_checkpoints
    from coeval.analysis.training.training_curves import read_training_curves
    from coeval.cli.commands.sweep.sweep_tables import print_conclusions
    from coeval.reports.training_files import write_curve_pictures_and_page

    messages = streams.messages()
    curves = read_training_curves(folders, task_names, step_numbers, patterns)
    for run in curves:
        for note in run.notes:
            streams.warn(messages, note if len(curves) == 1 else f"{run.label}: {note}")
    compared = compare_checkpoints(curves)
    print_conclusions(curves, compared, streams.results())
    written = list(write_curve_pictures_and_page(curves, compared, plot_dir, show_errorbar))
    streams.say(messages, f"written: {written[-1]} and {len(written) - 1} pictures")


# --- Flags that give a name to a value


def _parse_named_folders(texts: Sequence[str], flag: str) -> dict[str, Path]:
    """Parse ``NAME=DIR`` texts, in order. Raises UsageError: one has another form, a name occurs twice, or
    there is no such folder."""
    folders: dict[str, Path] = {}
    for text in texts:
        name, _, folder = text.partition("=")
        if not (name and folder):
            raise UsageError(f"{flag} {text}: give a name and a folder, for example {flag} a=outputs/a")
        if name in folders:
            raise UsageError(f"{flag} {text}: {name} already names {folders[name]}")
        if not Path(folder).is_dir():
            raise UsageError(f"{flag} {text}: there is no folder {folder}")
        folders[name] = Path(folder)
    return folders


def _parse_patterns_by_run(texts: Sequence[str], runs: Mapping[str, Path]) -> dict[str, str]:
    """Parse ``NAME=step_{step}`` texts. Raises UsageError: one has another form, or names no run."""
    patterns = {}
    for text in texts:
        name, sign, pattern = text.partition("=")
        if not (sign and "{step}" in pattern):
            example = "--name-pattern run_a=step_{step}"
            raise UsageError(f"--name-pattern {text}: give a run and a pattern, for example {example}")
        if name not in runs:
            raise UsageError(f"--name-pattern {text}: there is no --runs {name}=…; given: {', '.join(runs)}")
        patterns[name] = pattern
    return patterns
