"""What did it cost, and what is missing?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.panel.g_study import Component, GStudy, label_components
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.readers.run_records import FILTERED_SQL, discarded_draft_notes
from coeval.analysis.run_results import perhaps_billed_cost_sentences, sum_costs
from coeval.core.figures import dollars, format_points
from coeval.core.plain import escape_line
from coeval.core.text import join_names, pluralize, warning_to_sentence
from coeval.reports.charts.plots import score_by_amount_plot
from coeval.reports.content import Cell, Picture, ReportColumn, ReportSection, ReportTable, make_columns
from coeval.reports.costs import cost_table
from coeval.reports.experiment.leading_section import SCORE_TITLE
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import MeasureTable

# --- What answers are worth
#
# What does quality cost? Scores against dollars and seconds per answer.

_LINE = "No other student shown scores higher for the same {} or less"


class _StudentValue(NamedTuple):
    """A student's score, and the price and time of its answers; ``ranks`` is None if the score covers only
    some tasks, so that it cannot be compared."""

    student: str
    score: Measured
    ranks: str | None
    usd: float | None
    seconds: float | None


def value_section(evidence: RunEvidence, front: ReportTable) -> ReportSection | None:
    """Make the section from the rows of the first screen; None if no answer's cost or time is known."""
    values = [_StudentValue(*row) for row in front.rows]  # type: ignore[arg-type]
    title = next(column.title for column in front.columns if column.name == "score")
    table = _value_for_money_table(values, front, title)
    pictures = []
    known_values = 0
    for amount, axis, better in (("usd", "price", "cheaper"), ("seconds", "time", "faster")):
        known = [value for value in values if getattr(value, amount) is not None]
        known_values += len(known)
        if len(known) > 1:
            caption = (
                f"{title} against {axis}. Line: no student is both better and {better}. Bars: 95% intervals."
            )
            plot = _plot_value(amount, known, evidence)
            pictures.append(Picture(f"value-{amount}", caption, table.name, plot))
    if not known_values:
        return None
    texts = (*_cheaper_alternative_sentence(evidence, values, title), *_not_drawn_sentences(values))
    question = "What does quality cost?"
    return ReportSection.with_rows("value", question, map(escape_line, texts), pictures, [table], table.name)


def pareto_students(values: Sequence[_StudentValue], amount: str) -> set[str]:
    """Return the students whom no other beats in score for the same or a smaller ``usd`` or ``seconds``."""
    candidates = [
        (getattr(value, amount), -value.score.value, value.student)
        for value in values
        if getattr(value, amount) is not None and value.score.value is not None and value.ranks is not None
    ]
    best, line = float("inf"), set()
    for _, score, student in sorted(candidates):
        if score < best:
            best = score
            line.add(student)
    return line


def _value_for_money_table(values: Sequence[_StudentValue], front: ReportTable, title: str) -> ReportTable:
    """Copy the rows of the first screen, and say who is best for its price and for its time."""
    columns, rows = list(front.columns), [list(row) for row in front.rows]
    for name, amount in (("usd", "price"), ("seconds", "time")):
        best = pareto_students(values, name)
        columns.append(ReportColumn(f"{name}_line", f"Best for its {amount}", "text", _LINE.format(amount)))
        for row, value in zip(rows, values, strict=True):
            row.append(None if getattr(value, name) is None else value.student in best)
    title, cells = f"{title}, price and time", tuple(map(tuple, rows))
    return ReportTable("quality-cost", title, tuple(columns), cells, links=front.links)


# Amounts that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10


def _plot_value(amount: str, values: Sequence[_StudentValue], evidence: RunEvidence) -> dict[str, Any]:
    amounts = [getattr(value, amount) for value in values]
    log = min(amounts) > 0 and max(amounts) > _WIDE * min(amounts)
    title = "$ per 1,000 answers" if amount == "usd" else "median seconds per answer"
    return score_by_amount_plot("quality-cost", amount, title, evidence.models, log_scale=log)


def _cheaper_alternative_sentence(
    evidence: RunEvidence, values: Sequence[_StudentValue], title: str
) -> Iterator[str]:
    """Name the cheapest student that is tied with the leader, or else the best cheaper one."""
    usd = {value.student: value.usd for value in values if value.usd is not None and value.ranks is not None}
    if len({*usd.values()}) < 2:
        return
    prices = {student: f"{dollars(price)} per 1,000 answers" for student, price in usd.items()}
    among = "" if len(usd) == len(values) else f" of the {len(usd)} that can be compared"
    ranks = evidence.measured.measures.ranking
    leader = ranks.order[0] if ranks.order and title == SCORE_TITLE else ""
    below = sorted(
        (price, student) for student, price in usd.items() if price < usd.get(leader, float("inf"))
    )
    if leader not in usd:
        yield f"{below[0][1]} is cheapest{among}: {prices[below[0][1]]}."
        return
    if not below:
        yield f"{leader} has the highest score and is cheapest{among}: {prices[leader]}."
        return
    gaps = {student: ranks.difference(leader, student) for _, student in below}
    for student, gap in gaps.items():
        if gap is not None and not gap.significant:
            instead = f"instead of {dollars(usd[leader])}"
            yield f"{student} is tied with {leader} and costs {prices[student]} {instead}."
            return
    scores = {value.student: value.score.value or 0.0 for value in values}
    best = max(gaps, key=lambda student: (scores[student], student))
    saved, lost = 1 - usd[best] / usd[leader], format_points(scores[leader] - scores[best])
    yield (
        f"{best} costs {saved:.0%} less than {leader} ({dollars(usd[best])} instead of {prices[leader]}) and "
        f"scores {lost} points lower."
    )


def _not_drawn_sentences(values: Sequence[_StudentValue]) -> Iterator[str]:
    """Name the students that are not in the pictures."""
    if unpriced := [value.student for value in values if value.usd is None]:
        yield f"No known price, so not in the picture: {join_names(unpriced)}."
    if untimed := [value.student for value in values if value.usd is not None and value.seconds is None]:
        yield f"No recorded time: {join_names(untimed)}."


# --- Failures by phase, model and reason

# Files, the reader's table of them, whose records they are, what these are.
_PHASES = (
    ("data_generation", "datapoint", "teacher_model_id", "items"),
    ("response_collection", "response", "student_model_id", "answers"),
    ("evaluation", "evaluation", "judge_model_id", "judgments"),
)


def failure_table(reader: RunReader) -> ReportTable:
    """Count records that failed and were not repaired later. Files are read only if there are any."""
    rows: list[tuple[Cell, ...]] = []
    for phase, table, model, noun in _PHASES:
        [(failed,)] = reader.rows(f"SELECT count(*) FROM {table} WHERE failed")  # noqa: S608
        if failed:
            types = {model: "VARCHAR", "id": "VARCHAR", "error": "STRUCT(kind VARCHAR)"}
            sql = _REASONS.format(table=table, model=model, lines="{lines}")
            rows += [(noun, *row) for row in reader.query_lines(phase, types, sql)]
    columns = (*make_columns("What", "Model", "Reason"), ReportColumn("count", "Failed", "count"))
    return ReportTable("failures", "What failed", columns, tuple(rows))


_REASONS = """
SELECT model, reason, count(*) FROM (
    SELECT md5_number(id) AS key, any_value({model}) AS model,
           coalesce(last(error.kind), 'nothing usable') AS reason
    FROM {lines} WHERE id IS NOT NULL GROUP BY ALL
) SEMI JOIN (SELECT key FROM {table} WHERE failed) USING (key)
GROUP BY ALL ORDER BY count(*) DESC, model, reason
"""


# --- Tokens and time by phase and model


def spending_table(reader: RunReader) -> ReportTable:
    """Sum tokens and cost over all lines that record their usage: regenerated records were paid for too."""
    rows: list[tuple[Cell, ...]] = []
    for phase, _, model, noun in _PHASES:
        sql = _SPENT.format(model=model, lines="{lines}")
        rows += [(noun, *row) for row in reader.query_lines(phase, {model: "VARCHAR", **_USAGE}, sql)]
    stored = any(row[-1] for row in rows)
    columns = (
        ReportColumn("what", "What", "text", "Teachers write items, students answers, judges judgments"),
        ReportColumn("model", "Model"),
        ReportColumn("records", "Records", "count"),
        ReportColumn("input", "Tokens in", "count"),
        ReportColumn("output", "Tokens out", "count"),
        ReportColumn("cost", "Cost", "usd"),
        ReportColumn("latency", "Seconds each", "seconds", "Mean time from request to answer"),
        ReportColumn("stored", "From the store", "count", "Requests paid by another run"),
    )
    kept = len(columns) - (not stored)
    title, note = "Cost by role and model", "Excludes probes, samples and retries; see Cost by model."
    return ReportTable("phases", title, columns[:kept], tuple(row[:kept] for row in rows), note=note)


_USAGE = {
    "latency_s": "DOUBLE",
    "usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT, cost_usd DOUBLE, stored BIGINT)",
}
_SPENT = """
SELECT {model}, count(*), sum(usage.input_tokens)::BIGINT, sum(usage.output_tokens)::BIGINT,
       sum(usage.cost_usd), avg(latency_s), coalesce(sum(usage.stored), 0)::BIGINT
FROM {lines} WHERE usage IS NOT NULL AND {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


def cost_and_missing_section(evidence: RunEvidence) -> ReportSection:
    """Make the section of cost and of missing and failed records."""
    measures = evidence.measured.measures
    spending = spending_table(evidence.reader)
    gaps = evidence.missing.gaps
    lacking = evidence.missing.sentences if gaps is None else gaps.describe(with_files=False)
    discarded = discarded_draft_notes(dict(evidence.reader.rows(FILTERED_SQL)))
    texts = [*_spending_sentences(evidence), *map(warning_to_sentence, (*lacking, *discarded))]
    failures = failure_table(evidence.reader)
    columns = (ReportColumn("file", "File"), ReportColumn("missing", "Missing", "count"))
    missing = ReportTable("missing", "Missing", columns, () if gaps is None else tuple(gaps.missing_by_file))
    costs = cost_table(evidence.results.costs)
    tables = (spending, costs, missing, failures, scatter_by_source_table(measures.g_study))
    question = "What did it cost, and what is missing?"
    return ReportSection.with_rows("cost", question, texts, (), tables, spending.name)


def _spending_sentences(evidence: RunEvidence) -> Iterator[str]:
    costs = evidence.results.costs
    if not costs:
        return
    tokens = sum(cost.input_tokens + cost.output_tokens for cost in costs)
    requests = sum(cost.requests for cost in costs)
    requested = f"{pluralize(requests, 'request')} took {pluralize(tokens, 'token')}"
    reported = sum_costs(costs)
    perhaps = list(perhaps_billed_cost_sentences(costs))
    free = "at no known cost" if perhaps else "at no cost"
    yield f"{requested}, and cost {reported}." if reported else f"{requested}, {free}."
    yield from perhaps


def scatter_by_source_table(study: GStudy | None) -> ReportTable:
    """Make a table of the variance components of a G study."""
    declared = MeasureTable("variance", "Sources of score variation, in points", ("Part",), Component)
    table = declared.fill({} if study is None else label_components(study.components))
    if study is None:
        return table
    without = f", without {pluralize(study.left_out, 'item')} that lack some" if study.left_out else ""
    sides = f"{pluralize(len(study.students), 'student')} and {pluralize(len(study.judges), 'judge')}"
    note = f"On items with all scores of {sides}{without}. Intervals treat items as a sample."
    return msgspec.structs.replace(table, note=note)
