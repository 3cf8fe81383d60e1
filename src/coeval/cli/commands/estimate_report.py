"""What ``coeval plan`` and ``coeval run --estimate-only`` print: the cost of a run before it starts."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from shlex import quote

import msgspec
from rich.console import Console

from coeval.cli import streams
from coeval.cli.streams import say, warn
from coeval.cli.views.progress_view import show_progress_while
from coeval.cli.views.results_view import write_json
from coeval.cli.views.table_view import print_full_names, show_tables
from coeval.core.options import BUDGET, max_cost
from coeval.core.shown_names import ShownNames
from coeval.core.text import join_names, pluralize
from coeval.models.answer_store import describe_paid_answers
from coeval.models.batch.job_list import read_jobs
from coeval.models.catalog import HOSTS
from coeval.models.keys import load_keys
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
from coeval.pipeline.plan.estimate.start_preview import PreviewedStart, add_batch_savings, preview_start
from coeval.pipeline.run_options import RunOptions, run_folder
from coeval.pipeline.start.partial_starts import add_sampled_lengths
from coeval.pricing.estimate import BudgetFit, Estimate, check_budget_fit
from coeval.pricing.price_book import PriceBook
from coeval.reports.description_report import estimate_and_possible_savings_tables
from coeval.store.human_labels import LABELS_FILE
from coeval.store.jsonl import write_json_atomic
from coeval.store.rundir import RunDir


def estimate_write_and_print(
    config: Config, options: RunOptions, key_file: Path | None, *, as_json: bool = False
) -> None:
    """Estimate such a start, write the estimate into the run's folder, and print it."""
    results, messages = streams.results(), streams.messages()
    prices = PriceBook()
    prices.refuse_unknown_interfaces(HOSTS, HOSTS.own)
    for sentence in find_doubtful_settings(config):
        warn(messages, sentence)
    keys = load_keys(key_file)
    start = preview_start(config, options, keys, prices)
    start.preview.refuse_start(options)
    for sentence in start.warnings:
        warn(messages, sentence)
    lengths = read_recorded_lengths(start.config, start.preview)
    if start.config.experiment.estimate_samples:
        show_progress_while(
            keys, lambda context: add_sampled_lengths(start.config, start.preview, lengths, prices, context)
        )
    assumed = EstimateInputs(prices, lengths, options.phase_barriers)
    estimate = estimate_run(start.config, start.preview, assumed)
    estimate = add_batch_savings(estimate, start.config, start.preview, assumed)
    store_note = describe_paid_answers(config.experiment.store, os.environ)
    notes = (*_describe_uncovered_values_and_rationales(start), *filter(None, [store_note]))
    estimate = msgspec.structs.replace(estimate, notes=notes)
    path = run_folder(config).cost_estimate
    write_json_atomic(path, estimate.as_json())
    if as_json:
        write_json(estimate.as_json())
    else:
        for sentence in (*start.choices, *describe_user_code(start.config.models)):
            say(results, sentence)
        print_estimate(estimate, results)
    for fit in _compare_budgets_with_estimate(start.config, estimate):
        print_budget_fit(fit, messages)
    if options.continue_run and (sentence := _describe_requests_already_in_jobs(config)):
        say(messages, sentence)
    for sentence in _describe_label_count_for_precision(run_folder(config)):
        say(messages, sentence)
    say(messages, f"Written: {path}", "dim")


def _describe_label_count_for_precision(folder: RunDir) -> Iterator[str]:
    """Say how many human labels give ± 3 points, if the run has some already."""
    if (folder.path / LABELS_FILE).exists() and folder.is_run():
        # Here, because they load duckdb and numpy.
        from coeval.analysis.measures.score_grid import read_score_grid
        from coeval.analysis.people.people_measures import labels_needed_sentences, measure_people
        from coeval.pipeline.plan.run_reading import open_run_reader

        with open_run_reader(folder) as (reader, _):
            measures = measure_people(reader, read_score_grid(reader))
        if measures is not None and measures.whole_scale is not None:
            yield from labels_needed_sentences(measures.whole_scale)


def _describe_uncovered_values_and_rationales(start: PreviewedStart) -> Iterator[str]:
    """Say which declared attribute values each task's items cannot cover, and which judges give reasons."""
    for setup in start.preview.plan.setups:
        if setup.judges and setup.reasons.are_given and setup.reasons.limits:
            yield f"{setup.task.name}: judges give reasons (`rationale`); their max_tokens is sent unchanged"
        yield from (f"{setup.task.name}: {sentence}" for sentence in setup.describe_coverage_shortfalls())


def _describe_requests_already_in_jobs(config: Config) -> str:
    """Say how many of the estimated requests are in batch jobs already; "" if none."""
    folder = run_folder(config)
    if not (jobs := [job for job in read_jobs(folder.pending_batches) if job.state != "collected"]):
        return ""
    job_ids = join_names([job.id or f"{job.tag[:8]}…" for job in jobs])
    requests = pluralize(sum(job.requests for job in jobs), "request")
    return (
        f"Of these, {requests} are in batch jobs already ({job_ids}): each is requested and paid once, and "
        f"coeval status --run {quote(str(folder.path))} --fetch-batches collects them."
    )


def _compare_budgets_with_estimate(config: Config, estimate: Estimate) -> Iterator[BudgetFit]:
    """Compare each budget of the file, less what is spent, with the estimate."""
    experiment = config.experiment
    accounts = read_accounts(run_folder(config).usage)
    spent_by_model = {name: account.spent_usd + account.reserved_usd for name, account in accounts.items()}
    if (budget := experiment.budget_usd) is not None:
        spent, priced = sum(spent_by_model.values()), not estimate.unpriced
        yield check_budget_fit(str(BUDGET), budget, spent, estimate.total, all_priced=priced)
    for name, quota in experiment.quota.items():
        if quota.max_cost_usd is not None and (line := estimate.by_model.get(name)) is not None:
            spent, priced = spent_by_model.get(name, 0.0), name not in estimate.unpriced
            yield check_budget_fit(str(max_cost(name)), quota.max_cost_usd, spent, line, all_priced=priced)


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Print the estimate: tables, the total in a sentence, savings, and its sources."""
    names = ShownNames.of(estimate.by_model)
    estimate = names.shorten_in(estimate)
    *tables, savings = estimate_and_possible_savings_tables(estimate)
    say(console, "Estimate, in tokens and US dollars; [low, high] holds the cost in 95 of 100 cases")
    show_tables(console, tables)
    console.print()
    for sentence in summarise_estimate(estimate):
        say(console, sentence)
    show_tables(console, [savings])
    for sentence in describe_sources(estimate):
        say(console, sentence, "dim")
    print_full_names(console, names)


def print_budget_fit(fit: BudgetFit, console: Console) -> None:
    """Say whether the estimate fits into a budget; a warning unless it certainly does."""
    if fit.fits:
        say(console, fit.sentence)
    else:
        warn(console, fit.sentence)
