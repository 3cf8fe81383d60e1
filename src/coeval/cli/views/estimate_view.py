"""An estimate as tables: calls, tokens and money by phase, model and provider, and what it comes to."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console

from coeval.cli.streams import say, warn
from coeval.cli.views.table_view import say_names, show_rows, show_table
from coeval.core.shown_names import ShownNames
from coeval.core.text import dollars
from coeval.pipeline.plan.estimate.run_estimate import calls, ends, share, summed_up, tokens
from coeval.pricing.estimate import BudgetFit, Estimate, EstimateLine
from coeval.pricing.lengths import Span
from coeval.pricing.tariff import sources_reported
from coeval.reports.content import ReportTable, columns_of

_FIGURES = columns_of("calls", "input", "output", "cost", "from – to", kind="count")
_UNKNOWN = "unknown"


def print_estimate(estimate: Estimate, console: Console) -> None:
    """Tables, the sum in a sentence, where the money goes, what would save some, and whose words these
    are."""
    shown = ShownNames.of(estimate.by_model)
    estimate = shown.renamed(estimate)
    parts = (("phase", estimate.by_phase), ("model", estimate.by_model), ("provider", estimate.by_provider))
    for heading, lines in parts:
        if heading == "provider" and len(lines) < 2:
            continue
        rows = [_row(name, line) for name, line in lines.items()]
        if heading == "phase":
            rows.append(_row("total", estimate.total))
        title = "Estimate, in tokens and US dollars" if heading == "phase" else ""
        bold = frozenset({(len(lines), 0)})
        show_table(console, ReportTable("", title, (*columns_of(heading), *_FIGURES), tuple(rows), bold=bold))
        console.print()
    for sentence in summed_up(estimate):
        say(console, sentence)
    if estimate.savings:
        console.print()
        rows = [_saving(estimate, saving.change, saving.cost_usd) for saving in estimate.savings]
        figures = columns_of("cost", "from – to", "saves", kind="count")
        show_rows(console, "What would cost less", (*columns_of("change"), *figures), rows)
    for sentence in _sources(estimate):
        say(console, sentence, "dim")
    say_names(console, shown)


def tell_budget(fit: BudgetFit, console: Console) -> None:
    """Say whether a budget holds the estimate: what surely does is no warning."""
    if fit.fits:
        say(console, fit.sentence)
    else:
        warn(console, fit.sentence)


def _row(name: str, line: EstimateLine) -> tuple[str, ...]:
    taken = (tokens(line.input_tokens), tokens(line.output_tokens))
    cost = (_UNKNOWN, "") if line.cost_usd is None else (dollars(line.cost_usd.central), ends(line.cost_usd))
    return (name, calls(line.calls), *taken, *cost)


def _saving(estimate: Estimate, change: str, cost: Span) -> tuple[str, ...]:
    before = estimate.total.cost_usd.central if estimate.total.cost_usd is not None else 0.0
    return (change, dollars(cost.central), ends(cost), share(before - cost.central, before))


def _sources(estimate: Estimate) -> Iterator[str]:
    by_source: dict[str, list[str]] = {}
    for name, source in estimate.basis.items():
        by_source.setdefault(source, []).append(name)
    for source, names in by_source.items():
        yield f"Lengths of {', '.join(names)}: {source}."
    if estimate.prices:
        yield f"Prices: {sources_reported(estimate.prices.values())}."
    yield from estimate.notes
