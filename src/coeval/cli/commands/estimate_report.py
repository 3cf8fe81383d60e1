"""What ``coeval plan`` and ``coeval run --estimate-only`` show: what a run costs, before it is asked for."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import msgspec
from rich.console import Console

from coeval.api import find_keys
from coeval.cli import streams
from coeval.cli.streams import say, warn
from coeval.cli.views.progress_view import with_progress
from coeval.cli.views.results_view import write_json
from coeval.cli.views.table_view import say_names, show_each
from coeval.core.options import BUDGET, max_cost
from coeval.core.shown_names import ShownNames
from coeval.core.text import join_names, pluralize
from coeval.models.answer_store import note_paid_answers
from coeval.models.batch.job_list import read_jobs
from coeval.models.catalog import HOSTS
from coeval.models.metering.account_file import read_accounts
from coeval.pipeline.config.doubtful_settings import find_doubtful_settings
from coeval.pipeline.config.roles import describe_user_code
from coeval.pipeline.config.schema import Config
from coeval.pipeline.plan.estimate.recorded_lengths import read_recorded_lengths
from coeval.pipeline.plan.estimate.run_estimate import (
    EstimateInputs,
    describe_sources,
    estimate_run,
    summarise_estimate,
)
from coeval.pipeline.plan.estimate.start_preview import PreviewedStart, add_batch_savings, preview_valid_start
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.start.partial_starts import sample_for_estimate
from coeval.pricing.estimate import BudgetFit, Estimate, check_budget_fit
from coeval.pricing.price_book import PriceBook
from coeval.reports.description_report import estimate_tables
from coeval.store.human_labels import LABELS_FILE
from coeval.store.jsonl import write_json_atomic
from coeval.store.rundir import RunDir


def estimate_and_report(
    config: Config, options: RunOptions, key_file: Path | None, *, as_json: bool = False
) -> int:
    """Estimate what a run that starts so costs, write it beside where the run will be, and show it; the exit
    code."""
    results, messages = streams.results(), streams.messages()
    prices = PriceBook()
    prices.check_interfaces(HOSTS, HOSTS.own)
    for sentence in find_doubtful_settings(config):
        warn(messages, sentence)
    keys = find_keys(key_file)
    start = preview_valid_start(config, options, keys, prices)
    for sentence in start.warnings:
        warn(messages, sentence)
    lengths = read_recorded_lengths(start.config, start.preview)
    if start.config.experiment.estimate_samples:
        with_progress(
            keys, lambda context: sample_for_estimate(start.config, start.preview, lengths, prices, context)
        )
    assumed = EstimateInputs(prices, lengths, options.phase_barriers)
    estimate = estimate_run(start.config, start.preview, assumed)
    estimate = add_batch_savings(estimate, start.config, start.preview, assumed)
    stored = note_paid_answers(config.experiment.store, os.environ)
    notes = (*_shortfalls(start), *filter(None, [stored]))
    estimate = msgspec.structs.replace(estimate, notes=notes)
    written = run_folder(config).cost_estimate
    write_json_atomic(written, estimate.as_json())
    if as_json:
        write_json(estimate.as_json())
    else:
        for sentence in (*start.choices, *describe_user_code(start.config.models)):
            say(results, sentence)
        print_estimate(estimate, results)
    for fit in _budget_fits(start.config, estimate):
        tell_budget(fit, messages)
    if options.continue_run and (said := _in_jobs(config)):
        say(messages, said)
    for sentence in _labels_needed(run_folder(config)):
        say(messages, sentence)
    say(messages, f"Written: {written}", "dim")
    return 0


def _labels_needed(folder: RunDir) -> Iterator[str]:
    """How many labels by people ± 3 points take, where the run has some already."""
    if (folder.path / LABELS_FILE).exists() and folder.is_run():
        # Here, because they load duckdb and numpy.
        from coeval.analysis.measures.score_grid import read_score_grid
        from coeval.analysis.people.people_measures import labels_needed_sentences, measure_people
        from coeval.pipeline.plan.run_reading import open_run_reader

        with open_run_reader(folder) as (reader, _):
            found = measure_people(reader, read_score_grid(reader))
        if found is not None and found.whole is not None:
            yield from labels_needed_sentences(found.whole)


def _shortfalls(start: PreviewedStart) -> Iterator[str]:
    """What the items of each task cannot cover, though it is declared; and that judges give reasons."""
    for setup in start.preview.plan.setups:
        if setup.judges and setup.reasons.are_given and setup.reasons.limits:
            yield f"{setup.task.name}: judges give reasons (`rationale`); their max_tokens is sent unchanged"
        yield from (f"{setup.task.name}: {sentence}" for sentence in setup.describe_shortfalls())


def _in_jobs(config: Config) -> str:
    """A sentence on what of the estimate is in batch jobs already; empty where nothing is."""
    folder = run_folder(config)
    jobs = [job for job in read_jobs(folder.pending_batches) if job.state != "collected"]
    if not jobs:
        return ""
    shown = join_names([job.id or f"{job.tag[:8]}…" for job in jobs])
    requests = pluralize(sum(job.requests for job in jobs), "request")
    return (
        f"Of these, {requests} are in batch jobs already ({shown}): they are asked and paid once, and "
        f"coeval status --run {quote(str(folder.path))} --fetch-batches collects them."
    )


def _budget_fits(config: Config, estimate: Estimate) -> Iterator[BudgetFit]:
    """Each budget of the file beside what the estimate says, and what is spent of it already."""
    experiment = config.experiment
    accounts = read_accounts(run_folder(config).usage)
    gone = {name: account.spent_usd + account.reserved_usd for name, account in accounts.items()}
    if (budget := experiment.budget_usd) is not None:
        yield check_budget_fit(
            str(BUDGET), budget, sum(gone.values()), estimate.total, priced=not estimate.unpriced
        )
    for name, quota in experiment.quota.items():
        if quota.max_cost_usd is not None and (line := estimate.by_model.get(name)) is not None:
            spent, priced = gone.get(name, 0.0), name not in estimate.unpriced
            yield check_budget_fit(str(max_cost(name)), quota.max_cost_usd, spent, line, priced=priced)


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Tables, the sum in a sentence, where the money goes, what would save some, and whose words these
    are."""
    shown = ShownNames.of(estimate.by_model)
    estimate = shown.shorten_in(estimate)
    *tables, savings = estimate_tables(estimate)
    say(console, "Estimate, in tokens and US dollars; [low, high] holds the cost in 95 of 100 cases")
    show_each(console, tables)
    console.print()
    for sentence in summarise_estimate(estimate):
        say(console, sentence)
    show_each(console, [savings])
    for sentence in describe_sources(estimate):
        say(console, sentence, "dim")
    say_names(console, shown)


def tell_budget(fit: BudgetFit, console: Console) -> None:
    """Say whether a budget holds the estimate: what surely does is no warning."""
    if fit.fits:
        say(console, fit.sentence)
    else:
        warn(console, fit.sentence)
