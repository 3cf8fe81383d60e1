"""What did it cost, what is missing, what to buy next?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from coeval.analysis.measures.measured import ShownAs, declared
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.panel.panel_worth import Purchase, VarianceShares
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import bill
from coeval.core.text import dollars, numbered
from coeval.pipeline.upkeep.batch_jobs import continue_command
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.plots import purchase_plot, share_bars

# --- Failures by phase, model and reason

_FAILURE_PHASES = (
    ("data_generation", "datapoint", "teacher_model_id", "items"),
    ("response_collection", "response", "student_model_id", "answers"),
    ("evaluation", "evaluation", "judge_model_id", "judgments"),
)


def failure_table(reader: RunReader) -> ReportTable:
    """Records that failed and did not come good later; files are looked through only where there are any."""
    rows: list[tuple[Cell, ...]] = []
    for phase, table, model, what in _FAILURE_PHASES:
        [(failed,)] = reader.rows(f"SELECT count(*) FROM {table} WHERE failed")  # noqa: S608
        if failed:
            columns = {model: "VARCHAR", "id": "VARCHAR", "error": "STRUCT(kind VARCHAR)"}
            sql = _REASONS.format(table=table, model=model, lines="{lines}")
            rows += [(what, *found) for found in reader.of_lines(phase, columns, sql)]
    return ReportTable(
        "failures",
        "What failed",
        (
            ReportColumn("what", "What"),
            ReportColumn("model", "Model"),
            ReportColumn("reason", "Reason"),
            ReportColumn("count", "Failed", "count"),
        ),
        tuple(rows),
    )


_REASONS = """
SELECT model, reason, count(*) FROM (
    SELECT md5_number(id) AS key, any_value({model}) AS model,
           coalesce(last(error.kind), 'nothing usable') AS reason
    FROM {lines} WHERE id IS NOT NULL GROUP BY ALL
) SEMI JOIN (SELECT key FROM {table} WHERE failed) USING (key)
GROUP BY ALL ORDER BY count(*) DESC, model, reason
"""


# --- Tokens and time by phase and model

_PHASES = (
    ("data_generation", "teacher_model_id", "items"),
    ("response_collection", "student_model_id", "answers"),
    ("evaluation", "judge_model_id", "judgments"),
)


def spending_table(reader: RunReader) -> ReportTable:
    """Of the records that tell their usage, every line counted: what was made anew was paid for too."""
    rows: list[tuple[Cell, ...]] = []
    for phase, model, what in _PHASES:
        sql = _SPENT.format(model=model, lines="{lines}")
        rows += [(what, *found) for found in reader.of_lines(phase, {model: "VARCHAR", **_USAGE}, sql)]
    return ReportTable(
        "phases",
        "By phase and model",
        (
            ReportColumn("what", "What"),
            ReportColumn("model", "Model"),
            ReportColumn("records", "Records", "count"),
            ReportColumn("input", "Tokens in", "count"),
            ReportColumn("output", "Tokens out", "count"),
            ReportColumn("cost", "Cost", "usd"),
            ReportColumn("latency", "Seconds each", "seconds", "Mean time from request to answer"),
        ),
        tuple(rows),
        note="Of the records on disk; probes, samples and retries stand in the table by model alone.",
    )


_USAGE = {
    "latency_s": "DOUBLE",
    "usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT, cost_usd DOUBLE)",
}
_SPENT = """
SELECT {model}, count(*), sum(usage.input_tokens)::BIGINT, sum(usage.output_tokens)::BIGINT,
       sum(usage.cost_usd), avg(latency_s)
FROM {lines} WHERE usage IS NOT NULL AND {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


_PARTS = {
    name: reported.meaning
    for name, reported in declared(VarianceShares).items()
    if isinstance(reported, ShownAs) and name != "datapoints"
}


def cost_section(evidence: RunEvidence) -> ReportSection:
    measures = evidence.measured.measures
    said = [*_money(evidence), *(c.text for c in evidence.measured.conclusions if c.topic == "cost")]
    said += list(_most_for_the_money(measures.next))
    said += [as_sentence(reported) for reported in (*evidence.missing.sentences, *evidence.missing.notes)]
    failures = failure_table(evidence.reader)
    if evidence.missing.sentences or failures.rows:
        said.append(f"What is missing or failed is asked again by: {continue_command(evidence.reader.run)}")
    variance, steps = _variance(measures.variance), _steps(measures.next, evidence.measured.grid)
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


def as_sentence(reported: str) -> str:
    """What a terminal shows behind "warning:", for a page."""
    return f"{reported[:1].upper()}{reported[1:]}."


def _money(evidence: RunEvidence) -> Iterator[str]:
    costs = evidence.results.costs
    if not costs:
        return
    tokens = sum(cost.input_tokens + cost.output_tokens for cost in costs)
    requests = sum(cost.requests for cost in costs)
    requested = f"{numbered(requests, 'request')} took {numbered(tokens, 'token')}"
    reported = bill(costs)
    perhaps = sum(cost.perhaps_usd for cost in costs)
    free = "at no known cost" if perhaps else "at no cost"
    yield f"{requested}, and cost {reported}." if reported else f"{requested}, {free}."
    if perhaps:
        yield (
            f"Requests that may have been billed cost up to {dollars(perhaps)} more; "
            "coeval status RUN --settle MODEL=USD takes the provider's bill for it."
        )


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


def _variance(variance: VarianceShares | None) -> ReportTable:
    shares = {} if variance is None else {words: getattr(variance, name) for name, words in _PARTS.items()}
    items = 0 if variance is None else variance.datapoints
    rows: list[tuple[Cell, ...]] = [("variance", words, share, items) for words, share in shares.items()]
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
        if any(share is not None and share < 0 for share in shares.values())
        else "",
    )


def _steps(purchases: Sequence[Purchase], grid: ScoreGrid) -> ReportTable:
    """The steps, each with the judgments that it takes; both kinds begin with what there is now."""
    best = _cheapest(purchases)
    rows: list[tuple[Cell, ...]] = []
    for place, each in enumerate(purchases):
        kind = "more judges" if each.judges else "more items"
        errors = (each.difference, each.headline)
        rows.append((_step(each), kind, *errors, _judgments(each, grid), each.cost_usd, place == best))
        if place == 0 and any(other.judges for other in purchases):  # where both lines begin
            rows.append(("", "more judges", *errors, 0, each.cost_usd, False))
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


def _step(purchase: Purchase) -> str:
    if purchase.judges:
        return f"+{numbered(purchase.judges, 'judge')}"
    return f"+{purchase.items:,} items a task" if purchase.items else "now"


def _judgments(purchase: Purchase, grid: ScoreGrid) -> int:
    """Of new items by all judges, or of all items by new judges, in the tasks that are judged."""
    judged = [task for task, design in enumerate(grid.designs) if design.factors and design.judges]
    if purchase.judges:
        items = int(np.isin(grid.items.task, judged).sum())
        return purchase.judges * items * len(grid.students)
    panels = sum(len(grid.designs[task].judges) for task in judged)
    return purchase.items * panels * len(grid.students)


def _cheapest(purchases: Sequence[Purchase]) -> int | None:
    """The step whose dollar takes most off the error of a difference; None where prices are not known."""
    gains = [
        ((purchases[0].difference - each.difference) / each.cost_usd, place)
        for place, each in enumerate(purchases)
        if each.cost_usd
    ]
    return max(gains)[1] if gains else None


def _most_for_the_money(purchases: Sequence[Purchase]) -> Iterator[str]:
    best = _cheapest(purchases)
    if best is not None:
        found = purchases[best]
        yield f"Most for the money: {_step(found)}, for about {dollars(found.cost_usd or 0.0)}."
