"""What did it cost, what is missing, what to buy next?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from coeval.analysis.costs import bill
from coeval.analysis.measures.measured import Branch
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.core.text import dollars, numbered
from coeval.pipeline.upkeep.way_on import continue_command
from coeval.reports.charts.purchase_plot import purchase_plot
from coeval.reports.charts.share_bars import share_bars
from coeval.reports.content.report_content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.failures import failure_table
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.spending import spending_table

__all__ = ["as_sentence", "cost_section"]

_PARTS = {
    "items": "items differ",
    "students_items": "students differ by item",
    "judges": "judges differ",
    "residual": "noise, and judges' own views",
}


def cost_section(evidence: RunEvidence) -> ReportSection:
    tree = evidence.measured.tree
    said = [*_money(evidence), *(c.text for c in evidence.measured.conclusions if c.topic == "cost")]
    said += list(_most_for_the_money(tree["next"]))
    said += [as_sentence(told) for told in (*evidence.missing.sentences, *evidence.missing.notes)]
    failures = failure_table(evidence.reader)
    if evidence.missing.sentences or failures.rows:
        said.append(f"What is missing or failed is asked again by: {continue_command(evidence.reader.run)}")
    variance, steps = _variance(tree["variance"]), _steps(tree["next"], evidence.measured.grid)
    pictures = []
    if variance.rows:
        pictures.append(
            Picture(
                "variance-bar",
                "Where the variance of single scores comes from. More items make up for the first two, "
                "more judges for the last two.",
                variance.name,
                share_bars(variance.name, ("name", "part"), ["variance"], list(_PARTS.values())),
            )
        )
    if steps.rows:
        priced = all(row[5] is not None for row in steps.rows) and any(row[5] for row in steps.rows)
        cost, title = ("cost", "US dollars more") if priced else ("judgments", "judgments more")
        pictures.append(
            Picture(
                "purchases",
                "What to buy next. What more items or judges would leave of the standard error of a "
                "difference between two students.",
                steps.name,
                purchase_plot(steps.name, cost, title),
            )
        )
    tables = (_models(evidence), spending_table(evidence.reader), failures, variance, steps)
    return section_of(
        "cost",
        "What did it cost, what is missing, what to buy next?",
        [Sentence(text, "models") for text in said],
        pictures,
        tables,
    )


def as_sentence(told: str) -> str:
    """What a terminal shows behind "warning:", for a page."""
    return f"{told[:1].upper()}{told[1:]}."


def _money(evidence: RunEvidence) -> Iterator[str]:
    costs = evidence.results.costs
    if not costs:
        return
    tokens = sum(cost.input_tokens + cost.output_tokens for cost in costs)
    requests = sum(cost.requests for cost in costs)
    asked = f"{numbered(requests, 'request')} took {numbered(tokens, 'token')}"
    told = bill(costs)
    yield f"{asked}, and cost {told}." if told else f"{asked}, at no cost."


def _models(evidence: RunEvidence) -> ReportTable:
    rows: list[tuple[Cell, ...]] = [
        (cost.model, cost.requests, cost.input_tokens, cost.output_tokens, cost.cost_usd, cost.priced_by)
        for cost in evidence.results.costs
    ]
    return ReportTable(
        "models",
        "By model",
        (
            ReportColumn("model", "Model"),
            ReportColumn("requests", "Requests", "count", "Probes, samples and retries among them"),
            ReportColumn("input", "Tokens in", "count"),
            ReportColumn("output", "Tokens out", "count"),
            ReportColumn("cost", "Cost", "usd"),
            ReportColumn("priced_by", "Price from"),
        ),
        tuple(rows),
    )


def _variance(variance: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = [
        ("variance", words, variance[name], variance["datapoints"])
        for name, words in _PARTS.items()
        if name in variance
    ]
    return ReportTable(
        "variance",
        "Where the variance comes from",
        (
            ReportColumn("name", "Of"),
            ReportColumn("part", "Part"),
            ReportColumn("share", "Share", "share"),
            ReportColumn("count", "Items", "count", "That all students and judges of a task have"),
        ),
        tuple(rows),
        note="A share below zero is an estimate too: of a part that is not there, or too small to be seen."
        if any(variance[name] is not None and variance[name] < 0 for name in _PARTS if name in variance)
        else "",
    )


def _steps(purchases: list[Mapping[str, Any]], grid: ScoreGrid) -> ReportTable:
    """The steps, each with the judgments that it takes; both kinds begin with what there is now."""
    best = _cheapest(purchases)
    rows: list[tuple[Cell, ...]] = []
    for place, each in enumerate(purchases):
        kind = "more judges" if each["judges"] else "more items"
        rows.append(
            (
                _step(each),
                kind,
                each["difference"],
                each["headline"],
                _judgments(each, grid),
                each["cost_usd"],
                place == best,
            )
        )
        if place == 0 and any(other["judges"] for other in purchases):  # where both lines begin
            rows.append(("", "more judges", each["difference"], each["headline"], 0, each["cost_usd"], False))
    return ReportTable(
        "next",
        "What to buy next",
        (
            ReportColumn("step", "Step"),
            ReportColumn("kind", "Of"),
            ReportColumn("difference", "Error of a difference", "number", "Standard error, two students"),
            ReportColumn("headline", "Error of a score", "number", "Standard error of a student's score"),
            ReportColumn("judgments", "Judgments more", "count"),
            ReportColumn("cost", "Cost", "usd"),
            ReportColumn("best", "Most for the money", "text"),
        ),
        tuple(rows),
    )


def _step(purchase: Mapping[str, Any]) -> str:
    if purchase["judges"]:
        return f"+{numbered(purchase['judges'], 'judge')}"
    return f"+{purchase['items']:,} items a task" if purchase["items"] else "now"


def _judgments(purchase: Mapping[str, Any], grid: ScoreGrid) -> int:
    """Of new items by all judges, or of all items by new judges, in the tasks that are judged."""
    judged = [task for task, design in enumerate(grid.designs) if design.factors and design.judges]
    if purchase["judges"]:
        items = int(np.isin(grid.items.task, judged).sum())
        return int(purchase["judges"]) * items * len(grid.students)
    panels = sum(len(grid.designs[task].judges) for task in judged)
    return int(purchase["items"]) * panels * len(grid.students)


def _cheapest(purchases: list[Mapping[str, Any]]) -> int | None:
    """The step whose dollar takes most off the error of a difference; None where prices are not known."""
    gains = [
        ((purchases[0]["difference"] - each["difference"]) / each["cost_usd"], place)
        for place, each in enumerate(purchases)
        if each["cost_usd"]
    ]
    return max(gains)[1] if gains else None


def _most_for_the_money(purchases: list[Mapping[str, Any]]) -> Iterator[str]:
    best = _cheapest(purchases)
    if best is not None:
        found = purchases[best]
        yield f"Most for the money: {_step(found)}, for about {dollars(found['cost_usd'])}."
