"""What ``eval-framework`` shows: assets being fetched, the tasks as they go, and what came of them."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from rich.console import Console

from coeval.benchmarks.assets import Progress
from coeval.benchmarks.run.conclusion import Outcome, conclude, over_runs
from coeval.benchmarks.run.eval_budget import refuse_too_dear
from coeval.benchmarks.run.eval_estimate import estimate_evaluation
from coeval.benchmarks.run.runner import EndOfAsking, Prepared, ask_owed, held, prepare, usage_file
from coeval.cli import streams
from coeval.cli.commands.datasets import fetch_bar
from coeval.cli.eval_framework.report import show
from coeval.cli.eval_framework.spec_of_flags import Flags, evaluation_of, idle_options
from coeval.cli.loop import interruptible, run_async
from coeval.cli.say import say
from coeval.cli.starting import begin
from coeval.cli.views.estimate_view import print_estimate, tell_budget
from coeval.cli.views.json_text import json_text
from coeval.cli.views.progress.progress_view import Terminal
from coeval.core.options import BUDGET
from coeval.engine.run_log import logged
from coeval.models.keys import Keys
from coeval.models.metering.account_file import read_accounts
from coeval.models.pacing.throttle import DEFAULT_INTERVAL_S, throttle_of
from coeval.models.transport.shared_hosts import SharedHosts
from coeval.pricing.estimate.budget_fit import budget_fit
from coeval.pricing.price_book import PriceBook
from coeval.store.jsonl import write_json_atomic

_LOG = "run.log"


def run_and_report(flags: Flags) -> int:
    """Do what the flags ask for and show it; the exit code."""
    logging.getLogger("coeval").setLevel(flags["log_level"])  # what shows a traceback, see cli.ending
    messages = streams.messages()
    keys = Keys.load(flags["keys"], env=os.environ, cwd=Path.cwd(), home=Path.home())
    throttle = throttle_of(os.environ, default_s=DEFAULT_INTERVAL_S)
    evaluation = evaluation_of(flags, keys)
    with Terminal(messages) as terminal:
        if said := idle_options(flags, {task.name for task in evaluation.tasks}):
            terminal.warn(said)
        begin()  # files may be fetched now, and are not to be left in pieces
        with _bars(messages) as progress:
            prepared: Prepared = prepare(evaluation, terminal, progress)
        if flags["estimate_only"]:
            return _tell_estimate(prepared, messages, as_json=flags["as_json"])
        output = evaluation.output
        with _output_made(output), logged(output / _LOG, flags["log_level"]), held(prepared):
            refuse_too_dear(prepared)

            async def ask(interrupt: asyncio.Event) -> EndOfAsking:
                async with SharedHosts(throttle=throttle) as hosts:
                    return await ask_owed(prepared, keys, terminal, interrupt, hosts)

            ended = run_async(interruptible(ask, terminal.note))
            outcome = conclude(prepared, ended)
    if flags["as_json"]:
        sys.stdout.write(json_text(_plain(outcome), indent=2) + "\n")
    else:
        show(outcome, streams.results(), messages)
    return outcome.exit_code


def _tell_estimate(prepared: Prepared, messages: Console, *, as_json: bool) -> int:
    """What is owed costs so much: written into the output folder, and shown."""
    estimate = estimate_evaluation(prepared, PriceBook())
    written = prepared.evaluation.output / "cost_estimate.json"
    write_json_atomic(written, estimate.as_json())
    if as_json:
        sys.stdout.write(json_text(estimate.as_json(), indent=2) + "\n")
    else:
        print_estimate(estimate, streams.results())
    if (budget := prepared.evaluation.budget_usd) is not None:
        accounts = read_accounts(usage_file(prepared.evaluation)).values()
        spent = sum(account.spent_usd + account.reserved_usd for account in accounts)
        priced = not estimate.unpriced
        tell_budget(budget_fit(str(BUDGET), budget, spent, estimate.total, priced=priced), messages)
    say(messages, f"Written: {written}", "dim")
    return 0


@contextmanager
def _bars(console: Console) -> Iterator[Progress]:
    """Bars for what is fetched; nothing is drawn where all is there."""
    with ExitStack() as stack:
        shown: list[Progress] = []

        def tell(what: str, taken: int, size: int | None) -> None:
            if not shown:
                shown.append(stack.enter_context(fetch_bar(console)))
            shown[0](what, taken, size)

        yield tell


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
        "over_runs": over_runs(outcome.tasks),
        "costs": list(outcome.costs),
    }


@contextmanager
def _output_made(folder: Path) -> Iterator[None]:
    """The output folder; one that was made now and stays empty is removed."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        yield
    finally:
        with suppress(OSError):
            for path in made:
                path.rmdir()
