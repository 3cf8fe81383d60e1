"""What models cost, as a table; it loads neither numpy nor DuckDB, since ``coeval status`` shows it."""

from __future__ import annotations

from collections.abc import Sequence

from coeval.analysis.run_results import ModelCost, sum_costs
from coeval.core.figures import dollars
from coeval.reports.content import Cell, ReportColumn, ReportTable


def cost_table(costs: Sequence[ModelCost]) -> ReportTable:
    """Make a row for each model, and one for the sum of several; ``+``: some answers have no known price."""
    rows: list[tuple[Cell, ...]] = [
        (
            cost.model,
            cost.requests,
            cost.input_tokens,
            cost.output_tokens,
            _cost_cell(cost.cost_usd, partial=bool(cost.unpriced)),
            cost.perhaps_usd or None,
            cost.priced_by,
        )
        for cost in costs
    ]
    if len(costs) > 1:
        of_all, counts = sum_costs(costs), (sum(row[at] for row in rows) for at in (1, 2, 3))  # type: ignore[misc]
        perhaps = sum(cost.perhaps_usd for cost in costs) or None
        rows.append(("total", *counts, _cost_cell(of_all.cost_usd, partial=of_all.is_partial), perhaps, None))
    columns = (
        ReportColumn("model", "Model"),
        ReportColumn("requests", "Requests", "count", "Probes, samples and retries among them"),
        ReportColumn("input", "Tokens in", "count", terminal="input"),
        ReportColumn("output", "Tokens out", "count", terminal="output"),
        ReportColumn("cost", "Cost", "usd"),
        ReportColumn("perhaps", "Perhaps", "usd", "Requests that may have been billed"),
        ReportColumn("priced_by", "Price from", terminal=""),
    )
    title = "Cost by model, in tokens and US dollars"
    return ReportTable("models", title, columns, tuple(rows), bold=frozenset({(len(costs), 0)}))


def _cost_cell(usd: float | None, *, partial: bool) -> Cell:
    of_known = f"{dollars(usd)}+" if usd else "unknown"
    return of_known if partial else usd
