"""What did it cost, and what is missing?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.panel.g_study import Component, GStudy, part_names
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.readers.run_records import FILTERED_SQL, filtered_note
from coeval.analysis.run_results import bill, perhaps_billed
from coeval.core.figures import format_points
from coeval.core.plain import escape_line
from coeval.core.text import dollars, join_names, pluralize
from coeval.reports.content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_columns,
    make_section,
    warning_to_sentence,
)
from coeval.reports.experiment.leading_section import SCORE_TITLE
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.measure_table import TableHeading, measure_table
from coeval.reports.plots import value_plot
from coeval.reports.result_tables import cost_table

# --- What answers are worth
#
# What does quality cost? Scores against dollars and seconds per answer.

_ANCHOR = "value"
_LINE = "No other student shown scores higher for the same {} or less"


class _Valued(NamedTuple):
    """A student with its score, and what its answers cost and take; ``ranks`` None: of some tasks only, so
    that its score is not held against others'."""

    student: str
    score: Measured
    ranks: str | None
    usd: float | None
    seconds: float | None


def value_section(evidence: RunEvidence, front: ReportTable) -> ReportSection | None:
    """By the rows of the first screen; None where no answer's cost or time is known."""
    found = [_Valued(*row) for row in front.rows]  # type: ignore[arg-type]
    priced = [one for one in found if one.usd is not None]
    timed = [one for one in found if one.seconds is not None]
    if not priced and not timed:
        return None
    title = next(column.title for column in front.columns if column.name == "score")
    table = _table(found, front, title)
    pictures = [
        Picture(f"value-{name}", f"{title} against {what}. {_PARETO}", table.name, _plot(name, of, evidence))
        for name, what, of in (("usd", "price", priced), ("seconds", "time", timed))
        if len(of) > 1
    ]
    said = (*_bargain(evidence, found, title), *_unpriced(found))
    sentences = tuple(Sentence(escape_line(text), table.name) for text in said)
    return ReportSection(_ANCHOR, "What does quality cost?", sentences, tuple(pictures), (table,))


_PARETO = "The line joins the students that nobody beats on both. Bars: 95% intervals."


def on_line(found: Sequence[_Valued], name: str) -> set[str]:
    """The students whom no other beats in score for the same or less of ``name`` (Pareto)."""
    known = [
        (getattr(one, name), -one.score.value, one.student)
        for one in found
        if getattr(one, name) is not None and one.score.value is not None and one.ranks is not None
    ]
    best, line = float("inf"), set()
    for _, score, student in sorted(known):
        if score < best:
            best = score
            line.add(student)
    return line


def _table(found: Sequence[_Valued], front: ReportTable, title: str) -> ReportTable:
    """The rows of the first screen, with who is best for its price and for its time."""
    columns, rows = list(front.columns), [list(row) for row in front.rows]
    for name, amount in (("usd", "price"), ("seconds", "time")):
        best = on_line(found, name)
        columns.append(ReportColumn(f"{name}_line", f"Best for its {amount}", "text", _LINE.format(amount)))
        for row, one in zip(rows, found, strict=True):
            row.append(None if getattr(one, name) is None else one.student in best)
    return ReportTable(
        "quality-cost",
        f"{title}, price and time",
        tuple(columns),
        tuple(map(tuple, rows)),
        links=front.links,
    )


# Amounts that differ by more than this factor are drawn on a logarithmic axis.
_WIDE = 10


def _plot(name: str, found: Sequence[_Valued], evidence: RunEvidence) -> dict[str, Any]:
    amounts = [getattr(one, name) for one in found]
    log = min(amounts) > 0 and max(amounts) > _WIDE * min(amounts)
    title = "$ per 1,000 answers" if name == "usd" else "median seconds per answer"
    return value_plot("quality-cost", name, title, evidence.models, log_scale=log)


def _bargain(evidence: RunEvidence, found: Sequence[_Valued], title: str) -> Iterator[str]:
    """Who is cheapest among those that are not significantly behind the leader, or else at all."""
    usd = {one.student: one.usd for one in found if one.usd is not None and one.ranks is not None}
    if len({*usd.values()}) < 2:
        return
    prices = {student: f"{dollars(price)} per 1,000 answers" for student, price in usd.items()}
    among = "" if len(usd) == len(found) else f" of the {len(usd)} that can be compared"
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
    gaps = {student: ranks.between(leader, student) for _, student in below}
    for student, gap in gaps.items():
        if gap is not None and not gap.significant:
            instead = f"instead of {dollars(usd[leader])}"
            yield f"{student} is tied with {leader} and costs {prices[student]} {instead}."
            return
    scores = {one.student: one.score.value or 0.0 for one in found}
    best = max(gaps, key=lambda student: (scores[student], student))
    fewer = format_points(scores[leader] - scores[best])
    yield (
        f"{leader} costs {prices[leader]}; the best that costs less is {best}: {dollars(usd[best])} for "
        f"{fewer} points fewer."
    )


def _unpriced(found: Sequence[_Valued]) -> Iterator[str]:
    """Who is not in the pictures."""
    if unpriced := [row.student for row in found if row.usd is None]:
        yield f"Without a known price, and so not in the picture: {join_names(unpriced)}."
    if untimed := [row.student for row in found if row.usd is not None and row.seconds is None]:
        yield f"Without a recorded time: {join_names(untimed)}."


# --- Failures by phase, model and reason

# Files, the reader's table of them, whose records they are, what these are.
_PHASES = (
    ("data_generation", "datapoint", "teacher_model_id", "items"),
    ("response_collection", "response", "student_model_id", "answers"),
    ("evaluation", "evaluation", "judge_model_id", "judgments"),
)


def failure_table(reader: RunReader) -> ReportTable:
    """Records that failed and did not come good later; files are looked through only where there are any."""
    rows: list[tuple[Cell, ...]] = []
    for phase, table, model, what in _PHASES:
        [(failed,)] = reader.rows(f"SELECT count(*) FROM {table} WHERE failed")  # noqa: S608
        if failed:
            columns = {model: "VARCHAR", "id": "VARCHAR", "error": "STRUCT(kind VARCHAR)"}
            sql = _REASONS.format(table=table, model=model, lines="{lines}")
            rows += [(what, *found) for found in reader.of_lines(phase, columns, sql)]
    return ReportTable(
        "failures",
        "What failed",
        (
            *make_columns("What", "Model", "Reason"),
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


def spending_table(reader: RunReader) -> ReportTable:
    """Of the records that tell their usage, every line counted: what was made anew was paid for too."""
    rows: list[tuple[Cell, ...]] = []
    for phase, _, model, what in _PHASES:
        sql = _SPENT.format(model=model, lines="{lines}")
        rows += [(what, *found) for found in reader.of_lines(phase, {model: "VARCHAR", **_USAGE}, sql)]
    stored = any(row[-1] for row in rows)
    columns = (
        ReportColumn("what", "What", "text", "Teachers write items, students answers, judges judgments"),
        ReportColumn("model", "Model"),
        ReportColumn("records", "Records", "count"),
        ReportColumn("input", "Tokens in", "count"),
        ReportColumn("output", "Tokens out", "count"),
        ReportColumn("cost", "Cost", "usd"),
        ReportColumn("latency", "Seconds each", "seconds", "Mean time from request to answer"),
        ReportColumn("stored", "From the store", "count", "Requests that another run had paid"),
    )
    kept = len(columns) - (not stored)
    return ReportTable(
        "phases",
        "By role and model",
        columns[:kept],
        tuple(row[:kept] for row in rows),
        note="Of the records on disk; probes, samples and retries stand in the table by model alone.",
    )


_USAGE = {
    "latency_s": "DOUBLE",
    "usage": "STRUCT(input_tokens BIGINT, output_tokens BIGINT, cost_usd DOUBLE, stored BIGINT)",
}
_SPENT = """
SELECT {model}, count(*), sum(usage.input_tokens)::BIGINT, sum(usage.output_tokens)::BIGINT,
       sum(usage.cost_usd), avg(latency_s), coalesce(sum(usage.stored), 0)::BIGINT
FROM {lines} WHERE usage IS NOT NULL AND {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""


def cost_section(evidence: RunEvidence) -> ReportSection:
    measures = evidence.measured.measures
    spending = spending_table(evidence.reader)
    gaps = evidence.missing.gaps
    lacking = evidence.missing.sentences if gaps is None else gaps.sentences(files=False)
    discarded = filtered_note(dict(evidence.reader.rows(FILTERED_SQL)))
    said = [*_money(evidence), *map(warning_to_sentence, (*lacking, *discarded))]
    failures = failure_table(evidence.reader)
    columns = (ReportColumn("file", "File"), ReportColumn("missing", "Missing", "count"))
    missing = ReportTable("missing", "Missing", columns, () if gaps is None else tuple(gaps.lacking))
    costs = cost_table(evidence.results.costs)
    tables = (spending, costs, missing, failures, variance_table(measures.g_study))
    return make_section(
        "cost",
        "What did it cost, and what is missing?",
        [Sentence(text, "phases") for text in said],
        (),
        tables,
    )


def _money(evidence: RunEvidence) -> Iterator[str]:
    costs = evidence.results.costs
    if not costs:
        return
    tokens = sum(cost.input_tokens + cost.output_tokens for cost in costs)
    requests = sum(cost.requests for cost in costs)
    requested = f"{pluralize(requests, 'request')} took {pluralize(tokens, 'token')}"
    reported = bill(costs)
    perhaps = list(perhaps_billed(costs))
    free = "at no known cost" if perhaps else "at no cost"
    yield f"{requested}, and cost {reported}." if reported else f"{requested}, {free}."
    yield from perhaps


def variance_table(study: GStudy | None) -> ReportTable:
    components = {} if study is None else part_names(study.components)
    title = "Where the scores scatter, in points"
    table = measure_table(TableHeading("variance", title, ("Part",)), Component, components)
    if study is None:
        return table
    left = f"; {pluralize(study.left_out, 'item')} that lack some are left out" if study.left_out else ""
    who = f"{pluralize(len(study.students), 'student')} and {pluralize(len(study.judges), 'judge')}"
    note = f"Of the scores that all have: {who}{left}. Intervals are over items, by these judges."
    return msgspec.structs.replace(table, note=note)
