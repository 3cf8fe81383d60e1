"""`coeval status`: shows what a folder holds and lacks, with recent errors; settles bills and batch jobs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from getpass import getuser
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from coeval.cli import streams
from coeval.cli.command_names import KeyFile, RunFolder, RunWord, require_folder
from coeval.cli.loop import run_async
from coeval.cli.views.folder_status import read_folder_status, show_status, show_until_idle
from coeval.cli.views.progress_view import show_progress_while
from coeval.cli.views.results_view import json_text
from coeval.core.errors import UsageError
from coeval.core.figures import dollars
from coeval.core.model import judge_name
from coeval.core.records import Usage
from coeval.core.text import pluralize
from coeval.models.batch.batches import cancel_jobs_and_count_left
from coeval.models.batch.job_list import read_jobs
from coeval.models.keys import load_keys
from coeval.models.metering.account_file import read_accounts, settle_accounts
from coeval.pipeline.start.session_start import sum_own_usage
from coeval.pipeline.upkeep.batch_jobs import fetch_or_cancel_batches
from coeval.store.output_folder import find_writer_pid, list_output_tasks, require_results
from coeval.store.record_index import sum_recorded_usage
from coeval.store.rundir import RunDir


def status(
    word: RunWord = None,
    run: RunFolder = None,
    fetch_batches: Annotated[
        bool, typer.Option("--fetch-batches", help="First collect the batch jobs that have ended.")
    ] = False,
    cancel_batches: Annotated[
        bool,
        typer.Option(
            "--cancel-batches",
            help="First cancel all batch jobs; finished work is charged. Repeat to abandon them.",
        ),
    ] = False,
    settle: Annotated[
        list[str] | None,
        typer.Option(
            metavar="MODEL=USD",
            help="First settle MODEL's uncertain cost: USD is its cost for this folder by the provider's "
            "bill. Example: --settle judge-1=2.15",
        ),
    ] = None,
    keys: KeyFile = None,
    watching: Annotated[bool, typer.Option("--watch", help="Refresh until the run has ended.")] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document; with --watch, one line for each change.")
    ] = False,
) -> None:
    """Show a run's progress, costs, batch jobs and recent errors.

    \b
    Examples:
      coeval status --run ./runs/quickstart
      coeval status --run ./runs/quickstart --watch
      coeval status --run ./runs/quickstart --json
      coeval status --run ./runs/quickstart --fetch-batches
      coeval status --run ./runs/quickstart --settle judge-1=2.15
      coeval status --run ./outputs

    \b
    Exit codes: 0 shown, 1 usage error, or a batch job that could not be checked or cancelled.
    """
    path = require_results(require_folder(word, run, "status"), whole=fetch_batches or cancel_batches)
    is_run = RunDir(path).is_run()
    _check_flags(path, fetch=fetch_batches, cancel=cancel_batches, watch=watching, is_run=is_run)
    if settle:
        _book_bills(path, settle, is_run=is_run, writer_pid=find_writer_pid(path))
    failed_jobs = 0
    if fetch_batches or cancel_batches:
        if is_run:
            failed_jobs = _settle_batches_and_count_unchecked(RunDir(path), keys, cancel=cancel_batches)
        else:
            failed_jobs = _cancel_jobs_and_count_failures(RunDir(path), keys, find_writer_pid(path))
    console = streams.results()

    def render_status() -> str:
        if as_json:
            return json_text(read_folder_status(path), indent=0 if watching else 2) + "\n"
        with console.capture() as captured:
            show_status(path, console)
        return captured.get()

    if watching:
        show_until_idle(render_status, lambda: find_writer_pid(path) is not None, console)
    elif as_json:
        typer.echo(render_status(), nl=False)
    else:
        show_status(path, console)
    if failed_jobs:
        raise typer.Exit(1)


def _check_flags(path: Path, *, fetch: bool, cancel: bool, watch: bool, is_run: bool) -> None:
    """Raise UsageError for flags that exclude each other or do not fit the folder."""
    if fetch and cancel:
        raise UsageError(
            "--fetch-batches and --cancel-batches exclude each other; the latter also collects finished work"
        )
    if watch and (fetch or cancel):
        raise UsageError(
            "--watch only shows what a folder holds; leave out --fetch-batches and "
            "--cancel-batches, or --watch"
        )
    if fetch and not is_run:
        raise UsageError(
            f"{path} holds results of eval-framework, whose batch jobs are collected by the eval-framework "
            "command that submitted them: repeat it, without --no-wait to wait for them"
        )


def _book_bills(path: Path, texts: Sequence[str], *, is_run: bool, writer_pid: int | None) -> None:
    """Book the amounts of provider bills in place of what was perhaps spent."""
    if writer_pid is not None:
        raise UsageError(f"{path} is in use by process {writer_pid}, which does the accounting; wait for it")
    bills: dict[str, float] = {}
    for name, usd in map(_parse_model_and_usd, texts):
        if name in bills:
            raise UsageError(f"--settle names {name} twice; give its total bill once")
        bills[name] = usd
    try:
        by = getuser()
    except (KeyError, OSError):
        by = "unknown"
    with _lock_folder_and_tasks(path):
        recorded = sum_own_usage(RunDir(path)) if is_run else _sum_output_usage_by_account(path)
        accounts = settle_accounts(path / "usage.json", bills, by, recorded)
    for name, account in accounts.items():
        spent, perhaps = dollars(account.spent_usd), dollars(account.settlements[-1].perhaps_usd)
        settled = f"{name}: settled at {spent}, replacing an uncertain {perhaps}"
        streams.say(streams.messages(), f"{settled}; usage.json records it.")


@contextmanager
def _lock_folder_and_tasks(path: Path) -> Iterator[None]:
    """Hold the locks of a run, or of an output folder and its tasks, as eval-framework does. Raises
    UsageError: another process is at work there."""
    tasks = [] if RunDir(path).is_run() else list_output_tasks(path)
    with ExitStack() as stack:
        for folder in dict.fromkeys((path, *tasks)):
            stack.enter_context(RunDir(folder).hold_lock())
        yield


def _sum_output_usage_by_account(output: Path) -> dict[str, Usage]:
    """Return the usage in an output folder's records by account name. A judge may have another name in its
    records, and answers may bear a checkpoint's name, which has no account."""
    accounts = read_accounts(output / "usage.json")
    recorded: dict[str, Usage] = {}
    for pattern, named in (("responses*.jsonl", str), ("judgments.*.jsonl", judge_name)):
        for called, usage in sum_recorded_usage(sorted(output.rglob(pattern))).items():
            name = next((name for name in (named(called), called) if name in accounts), None)
            if name is not None:
                recorded[name] = recorded[name] + usage if name in recorded else usage
    return recorded


def _parse_model_and_usd(text: str) -> tuple[str, float]:
    name, _, amount = text.rpartition("=")
    with suppress(ValueError):
        usd = float(amount.strip().removeprefix("$"))
        if name and isfinite(usd) and usd >= 0:
            return name, usd
    raise UsageError(f"--settle {text}: write MODEL=USD, as in judge-1=2.15")


def _cancel_jobs_and_count_failures(output: RunDir, keys: Path | None, writer_pid: int | None) -> int:
    """Cancel an output folder's batch jobs; return how many failed. ``writer_pid``: who works there."""
    messages = streams.messages()
    jobs = read_jobs(output.pending_batches)
    if not jobs:
        streams.say(messages, "There are no batch jobs.")
        return 0
    if writer_pid is not None:
        raise UsageError(
            f"process {writer_pid} is running in {output.path}; end it first (Ctrl-C, or kill {writer_pid})"
        )
    key_set, note = load_keys(keys), partial(streams.say, messages)
    with _lock_folder_and_tasks(output.path):
        jobs = read_jobs(output.pending_batches)
        failed_jobs = run_async(cancel_jobs_and_count_left(jobs, output, key_set, note))
    streams.say(
        messages,
        "Work finished by then is charged. The eval-framework command that submitted them collects it, "
        "and requests the rest again. Repeat --cancel-batches to abandon the jobs that are listed then.",
    )
    return failed_jobs


def _settle_batches_and_count_unchecked(folder: RunDir, keys: Path | None, *, cancel: bool) -> int:
    """Make records of what batch jobs returned, without requests; return how many could not be checked."""
    messages = streams.messages()
    if not folder.pending_batches.exists():
        streams.say(messages, "There are no batch jobs.")
        return 0
    summary = show_progress_while(
        load_keys(keys),
        lambda context: fetch_or_cancel_batches(
            folder, context.keys, context.watcher, context.interrupt, cancel=cancel
        ),
    )
    made = sum(outcome.made for outcome in summary.phases.values())
    streams.say(messages, f"{pluralize(made, 'record')} made from finished batch jobs.")
    return sum(bool(job.note) for job in summary.batches)
