"""What the report of a comparison says: who is better than whom in what, and how sure that is."""

from __future__ import annotations

from collections.abc import Sequence

from coeval.analysis.comparison.comparison_report import ComparisonReport
from coeval.analysis.comparison.comparison_sentence import Comparison
from coeval.analysis.measures.measured import Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.plain import plain
from coeval.core.text import listed, numbered
from coeval.reports.charts.interval_plot import interval_plot
from coeval.reports.content.report_content import (
    Cell,
    Picture,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)

__all__ = ["comparison_page"]

_QUESTIONS = {
    "overall": "Is one better than another?",
    "task": "In which tasks?",
    "part": "In which factors and metrics?",
}
_TITLES = {
    "overall": "Differences overall",
    "task": "Differences by task",
    "part": "Differences by factor and metric",
}
_MOST_TOLD = 12
_DIFFERENCE = "second less first, as a share of the scale"


def comparison_page(compared: ComparisonReport) -> Report:
    sides = [
        f"{label}: {plain(side['model'])} in {plain(side['folder'])}"
        for label, side in compared.sides.items()
    ]
    sections = []
    for family, question in _QUESTIONS.items():
        found = [one for one in compared.comparisons if one.family == family]
        if found:
            sections.append(_section(family, question, found))
    notes = tuple(Sentence(plain(note)) for note in compared.notes)
    sections.append(ReportSection("sides", "What was compared?", (*map(Sentence, sides), *notes)))
    first = compared.comparisons[0].family
    told = [one for one in compared.comparisons if one.family == first]
    return Report(
        kind="comparison",
        title=f"Comparison of {plain(listed(compared.sides))}",
        facts=(numbered(len(compared.sides), "side"), numbered(len(compared.comparisons), "comparison")),
        lead=(
            *(Sentence(f"{plain(one.sentence)}.", first) for one in told[:_MOST_TOLD]),
            *(Sentence(plain(doubt), "sides") for doubt in compared.doubts),
        ),
        sections=tuple(sections),
        banner=SIMULATED if compared.simulated else "",
    )


def _section(family: str, question: str, found: Sequence[Comparison]) -> ReportSection:
    pairs = {(one.a, one.b) for one in found}
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        pair = f"{one.b} − {one.a}"
        row = pair if one.task is None else f"{one.place} · {pair}" if len(pairs) > 1 else one.place
        low, high = one.ci95
        shown = Measured(one.difference / one.scale, low / one.scale, high / one.scale, one.n, one.missing)
        own = Measured(one.difference, low, high, one.n, one.missing)
        sure = (one.p_adjusted, one.significant, one.n, one.missing, one.minimum_detectable)
        rows.append((row, one.a, one.b, one.mean_a, one.mean_b, own, one.unit, *sure, one.test, shown))
    table = ReportTable(
        f"{family}-comparisons",
        _TITLES[family],
        (
            ReportColumn("row", "Of"),
            ReportColumn("a", "First"),
            ReportColumn("b", "Second"),
            ReportColumn("mean_a", "First's mean", "score"),
            ReportColumn("mean_b", "Second's mean", "score"),
            ReportColumn("difference", "Difference", "score", "Second less first, paired by item"),
            ReportColumn("unit", "Unit"),
            ReportColumn("p", "p (Holm)", "probability", "Adjusted for the number of comparisons"),
            ReportColumn("sure", "Sure", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
            ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
            ReportColumn("could_be_seen", "Could be seen", "score", "Found with 80 % power"),
            ReportColumn("test", "Test"),
            ReportColumn("shown", "Of the scale", "score"),
        ),
        tuple(rows),
    )
    names = list(dict.fromkeys(str(row[0]) for row in rows))
    picture = Picture(
        f"{family}-plot",
        "Differences with their 95 % intervals. Right of zero the second is better; filled: surely so.",
        table.name,
        interval_plot(table.name, names, _DIFFERENCE, zero=True),
    )
    sentences = tuple(Sentence(f"{plain(one.sentence)}.", table.name) for one in found[:_MOST_TOLD])
    return ReportSection(family, question, sentences, (picture,), (table,))
