"""An estimate as tables: calls, tokens and money by phase, model and provider, and what it comes to."""

from __future__ import annotations

from rich.console import Console

from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import say_names, show_each
from coeval.core.shown_names import ShownNames
from coeval.pipeline.plan.estimate.run_estimate import sources, summed_up
from coeval.pricing.estimate import BudgetFit, Estimate
from coeval.reports.description_report import estimate_tables


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Tables, the sum in a sentence, where the money goes, what would save some, and whose words these
    are."""
    shown = ShownNames.of(estimate.by_model)
    estimate = shown.renamed(estimate)
    *tables, savings = estimate_tables(estimate)
    say(console, "Estimate, in tokens and US dollars; [low, high] holds the cost in 95 of 100 cases")
    show_each(console, tables)
    console.print()
    for sentence in summed_up(estimate):
        say(console, sentence)
    show_each(console, [savings])
    for sentence in sources(estimate):
        say(console, sentence, "dim")
    say_names(console, shown)


def tell_budget(fit: BudgetFit, console: Console) -> None:
    """Say whether a budget holds the estimate: what surely does is no warning."""
    if fit.fits:
        say(console, fit.sentence)
    else:
        warn(console, fit.sentence)
