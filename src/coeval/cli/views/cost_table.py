"""What a folder's models cost, as a table; nothing where all of them are one's own."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from coeval.analysis.costs import Bill, ModelCost, bill
from coeval.cli.say import say
from coeval.cli.views.name_table import Column, NameRow, print_table
from coeval.core.text import dollars
from coeval.engine.figures import short
from coeval.pricing.tariff import sources_told

__all__ = ["print_costs"]

UNKNOWN = "unknown"
_COLUMNS = [Column(heading) for heading in ("requests", "input", "output", "cost")]
_PERHAPS = Column("perhaps")


def print_costs(costs: Sequence[ModelCost], console: Console) -> None:
    """A row for each model, the sum of them, and whose prices these are."""
    of_all, perhaps = bill(costs), sum(cost.perhaps_usd for cost in costs)
    if not of_all and not perhaps:
        return
    console.print()
    rows = [
        NameRow(cost.model, (*_figures([cost]), _cell(cost), *_perhaps(cost.perhaps_usd, perhaps)))
        for cost in costs
    ]
    if len(costs) > 1:
        rows.append(NameRow("total", (*_figures(costs), _total(of_all), *_perhaps(perhaps, perhaps)), "bold"))
    columns = [*_COLUMNS, _PERHAPS] if perhaps else _COLUMNS
    print_table(console, "Cost, in tokens and US dollars", "model", columns, rows)
    if perhaps:
        say(
            console,
            f"perhaps: {dollars(perhaps)} was set aside for requests of which nobody knows whether they were "
            "billed; coeval status RUN --settle MODEL=USD takes the provider's bill for it",
            "dim",
        )
    for sentence in _notes(of_all):
        say(console, sentence, "dim")


def _figures(costs: Sequence[ModelCost]) -> tuple[str, str, str]:
    return (
        f"{sum(cost.requests for cost in costs):,}",
        short(sum(cost.input_tokens for cost in costs)),
        short(sum(cost.output_tokens for cost in costs)),
    )


def _cell(cost: ModelCost) -> str:
    if cost.cost_usd is None:
        return UNKNOWN if cost.unpriced else ""
    return dollars(cost.cost_usd) + "+" * bool(cost.unpriced)


def _perhaps(usd: float, of_all: float) -> tuple[str, ...]:
    """The cell of what is perhaps spent, where any model has some."""
    return () if not of_all else (dollars(usd) if usd else "",)


def _total(of_all: Bill) -> str:
    return dollars(of_all.cost_usd) + "+" * of_all.is_partial if of_all.cost_usd else UNKNOWN


def _notes(of_all: Bill) -> list[str]:
    notes = []
    if of_all.unknown:
        plus = "; +: and what these took" if of_all.cost_usd else ""
        notes.append(
            f"price unknown for {', '.join(of_all.unknown)}{plus}; overrides in Config/provider_pricing.yaml "
            "can name one (docs/prices.md)"
        )
    if of_all.untold:
        notes.append(
            f"cost unknown of some answers of {', '.join(of_all.untold)}: the host told no tokens of them, "
            "or they came before the price was known"
        )
    if of_all.sources:
        notes.append(f"Prices: {sources_told(of_all.sources)}.")
    return notes
