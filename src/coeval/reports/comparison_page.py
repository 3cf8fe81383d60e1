"""What the report of a comparison says: who is better than whom in what, and how sure that is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from coeval.analysis.comparison.comparison_report import Comparison, ComparisonReport, point_of
from coeval.analysis.measures.measured import NOT_MEASURED, Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.figures import FigureKind
from coeval.core.plain import fitted_names, plain
from coeval.core.text import listed, numbered
from coeval.reports.content import (
    Alert,
    Cell,
    Picture,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    as_sentence,
)
from coeval.reports.plots import Halves, interval_plot

_QUESTIONS = {
    "overall": "Is one better than another?",
    "task": "In which tasks?",
    "label": "In which labels?",
    "part": "In which factors and metrics?",
}
_TITLES = {
    "overall": "Differences overall",
    "task": "Differences by task",
    "label": "Differences by label",
    "part": "Differences by factor and metric",
}
_P = (
    "Adjusted for all comparisons: tasks are tested where overall is significant, parts where their task is, "
    "labels by themselves"
)
# Above the first picture no more is read; the table has all.
_MOST_TOLD = 12
# Rows of a picture; the table has all.
_MOST_DRAWN = 60
# Up to three sides have three pairs, which sentences can name; more are a table's work.
_FEW_SIDES = 3
# Characters of a side's name in a picture; the table below has it whole.
_LONGEST_SIDE = 20


def comparison_page(compared: ComparisonReport) -> Report:
    sides = [
        f"{label}: {plain(side['model'])} in {plain(side['folder'])}"
        for label, side in compared.sides.items()
    ]
    order = _best_first(compared)
    place = {label: at for at, label in enumerate(order)}
    ranked = sorted(compared.comparisons, key=lambda one: sorted((place[one.a], place[one.b])))
    sections = []
    for family, question in _QUESTIONS.items():
        found = [one for one in ranked if one.family == family]
        if found:
            sections.append(_section(family, question, found))
    notes = tuple(Sentence(plain(note)) for note in compared.notes)
    sections.append(ReportSection("sides", "What was compared?", (*map(Sentence, sides), *notes)))
    first = compared.comparisons[0].family
    reported = [one for one in ranked if one.family == first]
    return Report(
        kind="comparison",
        title=f"Comparison of {plain(listed(order, _FEW_SIDES))}",
        facts=(numbered(len(compared.sides), "side"), numbered(len(compared.comparisons), "comparison")),
        lead=(
            *(Sentence(said, first) for said in _ranking(order, reported)),
            *(
                Sentence(f"{plain(one.sentence)}.", first)
                for one in reported[: _MOST_TOLD if len(order) <= _FEW_SIDES else _FEW_SIDES]
            ),
            *(Sentence(plain(doubt), "sides") for doubt in compared.doubts),
        ),
        sections=tuple(sections),
        alerts=(Alert(as_sentence(SIMULATED)),) if compared.simulated else (),
    )


def _best_first(compared: ComparisonReport) -> list[str]:
    """Sides by how far they are ahead of the others, as a share of each scale, in what stands first."""
    ahead = dict.fromkeys(compared.sides, 0.0)
    first = compared.comparisons[0].family
    for one in compared.comparisons:
        if one.family == first:
            ahead[one.b] += one.difference / one.scale
            ahead[one.a] -= one.difference / one.scale
    return sorted(ahead, key=lambda label: -ahead[label])


def _ranking(order: Sequence[str], reported: Sequence[Comparison]) -> Iterator[str]:
    """Who stands where, before pairs are told one by one."""
    if len(order) > 2:
        sure = sum(one.significant for one in reported)
        yield f"Best first: {plain(listed(order, _MOST_TOLD))}."
        yield f"Of {numbered(len(reported), 'comparison')} between them, {sure:,} are sure."


def _section(family: str, question: str, found: Sequence[Comparison]) -> ReportSection:
    pairs = {(one.a, one.b) for one in found}
    short = fitted_names((side for pair in pairs for side in pair), _LONGEST_SIDE)
    # A scale from 1 to 10: one decimal is too coarse for it.
    of_ten = all(one.unit == "points" for one in found)
    kind: FigureKind = "coefficient" if of_ten else "points"
    rows: list[tuple[Cell, ...]] = []
    for one in found:
        pair = f"{short[one.a]} ↔ {short[one.b]}"
        row = pair if one.task is None else f"{one.place} · {pair}" if len(pairs) > 1 else one.place
        low, high = one.ci95
        shown = Measured(one.difference / one.scale, low / one.scale, high / one.scale, one.n, one.missing)
        per = 1.0 if of_ten else 100 * point_of(one)
        own = Measured(one.difference / per, low / per, high / per, one.n, one.missing)
        least = None if one.minimum_detectable is None else one.minimum_detectable / per
        sure = (one.p_adjusted, one.significant, one.n, one.missing, least)
        over = NOT_MEASURED
        if one.ci95_over_judges is not None:
            over = own._replace(low=one.ci95_over_judges[0] / per, high=one.ci95_over_judges[1] / per)
        judged = (over, one.p_over_judges_adjusted, one.agreeing)
        means = (one.mean_a / per, one.mean_b / per, own)
        rows.append((row, one.a, one.b, *means, *sure, *judged, one.test, shown))
    table = ReportTable(
        f"{family}-comparisons",
        _TITLES[family],
        _columns(kind),
        tuple(rows),
    )
    left, right = (
        ("the left side", "the right side")
        if len(pairs) > 1
        else [short[n] for n in (found[0].a, found[0].b)]
    )
    halves = Halves(f"{left} is better", f"{right} is better", table.largest("shown", ends=True))
    picture = _picture(f"{family}-plot", table, halves)
    sentences = tuple(Sentence(f"{plain(one.sentence)}.", table.name) for one in found[:_MOST_TOLD])
    return ReportSection(family, question, sentences, (picture,), (table,))


def _columns(kind: FigureKind) -> tuple[ReportColumn, ...]:
    """``kind`` is that of means and differences."""
    return (
        ReportColumn("row", "Of"),
        ReportColumn("a", "First"),
        ReportColumn("b", "Second"),
        ReportColumn("mean_a", "First's mean", kind),
        ReportColumn("mean_b", "Second's mean", kind),
        ReportColumn("difference", "Difference", kind, "Second less first, paired by item"),
        ReportColumn("p", "p", "probability", _P),
        ReportColumn("sure", "Sure", "text", "p below 0.05 after the adjustment"),
        ReportColumn("n", "Items", "count"),
        ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
        ReportColumn(
            "could_be_seen",
            "Could be seen",
            kind,
            "The true difference that would be detected four times in five",
        ),
        ReportColumn("over_judges", "Over items and judges", kind, "Judges are a sample too"),
        ReportColumn("p_over_judges", "p, judges too", "probability", _P),
        ReportColumn("agreeing", "Judges see it so", "count", "By themselves they put the same side ahead"),
        ReportColumn("test", "Test"),
        ReportColumn("shown", "Of the scale", "points"),
    )


def _picture(name: str, table: ReportTable, halves: Halves) -> Picture:
    rows = list(dict.fromkeys(str(row[0]) for row in table.rows))
    drawn = (
        f"The first {_MOST_DRAWN} of {len(rows):,} differences" if len(rows) > _MOST_DRAWN else "Differences"
    )
    reported = f"{drawn} with their 95% intervals. Left of zero {halves.left}, right of it {halves.right}."
    plot = interval_plot(table.name, rows[:_MOST_DRAWN], "points of the scale", halves)
    return Picture(name, f"{reported} Filled: significant.", table.name, plot)
