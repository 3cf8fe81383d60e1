"""The report of a comparison: who is better than whom in what, and whether that is significant.

Every difference is there from either side, so that a reader may choose the baseline; a page only chooses
among the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from coeval.analysis.comparison.comparison_report import (
    Comparison,
    ComparisonReport,
    leaders_or_summary,
    significant_count_sentence,
    sort_by_total_lead,
    with_base_as_a,
)
from coeval.analysis.doubtful_answers import Incomparable
from coeval.analysis.run_results import SIMULATED
from coeval.core.plain import escape_line
from coeval.core.shown_names import fit_names, short_names, short_paths
from coeval.core.text import join_names, pluralize, warning_to_sentence
from coeval.reports.charts.plots import NOTEWORTHY, HeatMap, baseline_picture, heat_map
from coeval.reports.content import (
    Alert,
    Cell,
    PictureToggle,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    format_cell,
    make_columns,
)
from coeval.reports.difference_table import add_difference_columns

_P = (
    "Adjusted for all pairs: tasks are tested if overall is significant, parts if their task is, labels by "
    "themselves"
)
# Characters of a side's name on the page; the table of sides has the whole one.
_LONGEST_SIDE = 28
# Sides that a title names; of more, it names the first.
_MOST_IN_TITLE = 3
_DIFFERENCES, _PAIRS, _SIDES = "differences", "pairs", "sides"
_BY = {"overall": "overall", "task": "by task", "label": "by label", "part": "by factor or metric"}


class _PageLayout(NamedTuple):
    """Names and baselines of a page: ``names`` by label, the best first; the ``groups`` within which all
    pairs are compared; by label, the name of its baseline; and the baseline chosen at first."""

    names: dict[str, str]
    groups: list[list[str]]
    baselines: dict[str, str]
    first_baseline: str

    @property
    def is_single_pair(self) -> bool:
        """Check whether there is one pair, so that a row needs no name of a side."""
        return len(self.groups) == 1 and len(self.groups[0]) == 2


def comparison_page(report: ComparisonReport) -> Report:
    """Make the page of a comparison: differences from a baseline, all pairs, and the sides."""
    layout = _choose_names_groups_and_baselines(report)
    names = list(layout.names.values())
    named = [
        msgspec.structs.replace(comparison, a=layout.names[comparison.a], b=layout.names[comparison.b])
        for comparison in report.comparisons
    ]
    sections = [_differences_section(report, layout)]
    pair_places: list[str] = []
    if not layout.is_single_pair and (pairs := _ranked_pairs_table(report, layout)).rows:
        pair_places = [str(row[2]) for row in pairs.rows]
        sections.append(_pairs_section(pairs, names, Sentence(significant_count_sentence(named))))
    sections.append(_sides_and_notes_section(report, layout))
    return Report(
        kind="comparison",
        title=f"Comparison of {join_names(names, _MOST_IN_TITLE if len(names) <= _MOST_IN_TITLE else 1)}",
        facts=(pluralize(len(report.sides), "side"), pluralize(len(report.comparisons), "comparison")),
        lead=(
            *_leader_or_summary_sentences(named, len(layout.groups), pair_places),
            *_leading_pair_cost_sentence(report, layout),
        ),
        sections=tuple(sections),
        alerts=tuple(_find_alerts(report)),
        labels={label: name for label, name in layout.names.items() if label != name},
    )


def _choose_names_groups_and_baselines(report: ComparisonReport) -> _PageLayout:
    """Shorten names, group the sides that are compared, and choose the first baseline."""
    order = sort_by_total_lead(report.comparisons, list(report.sides))
    short = short_names(order)
    fitted = fit_names((short[label] for label in order), _LONGEST_SIDE)
    names = {label: fitted[short[label]] for label in order}
    groups: list[list[str]] = []
    for label in report.sides:
        if label in report.bases or not groups:
            groups.append([])
        groups[-1].append(label)
    folders = [side.folder for side in report.sides.values()]
    if len(groups) > 1:  # each student against itself in another folder: the folder is the baseline
        tails = short_paths(folders)
        baselines = {label: tails[side.folder] for label, side in report.sides.items()}
        return _PageLayout(names, groups, baselines, baselines[report.bases[0]])
    first = report.bases[0] if len(set(folders)) > 1 else order[0]
    return _PageLayout(names, groups, names, names[first])


# --- Above the first picture


def _find_alerts(report: ComparisonReport) -> Iterator[Alert]:
    """Yield warnings on the numbers as a whole; the last section has the reasons."""
    if report.simulated:
        yield Alert(warning_to_sentence(SIMULATED))
    incomparable = [pair for note in report.notes if (pair := Incomparable.parse_note(note)) is not None]
    if incomparable:
        pairs = (f"{pair.task} with {pair.with_what}" for pair in incomparable)
        yield Alert(escape_line(f"Do not compare {join_names(pairs, 3)}."))
    for doubt in report.doubts[:1]:
        yield Alert(escape_line(doubt))


def _leader_or_summary_sentences(
    comparisons: Sequence[Comparison], n_groups: int, pair_places: Sequence[str]
) -> Iterator[Sentence]:
    """Yield who leads. ``pair_places``: the places in the table of pairs, which shows the first one."""
    for sentence in leaders_or_summary(comparisons, n_groups):
        anchor = _DIFFERENCES if sentence.place else ""
        if sentence.place in pair_places:
            is_first = sentence.place == pair_places[0]
            anchor = _PAIRS if is_first else f"{_PAIRS}?{urlencode({'of': sentence.place})}"
        yield Sentence(sentence.text, anchor)


def _leading_pair_cost_sentence(report: ComparisonReport, layout: _PageLayout) -> Iterator[Sentence]:
    """Say what answers of the leader and the next cost and how long they took, if that is recorded."""
    leading = list(layout.names)[:2]
    sides = [report.sides[label] for label in leading]
    if len(layout.groups) > 1 or not all(side.usd_per_1000 for side in sides):
        return
    first, second = (layout.names[label] for label in leading)
    prices = [format_cell(side.usd_per_1000, "usd") for side in sides]
    text = f"1,000 answers of {first} cost {prices[0]}, of {second} {prices[1]}"
    if all(side.seconds for side in sides):
        seconds = [format_cell(side.seconds, "seconds") for side in sides]
        text += f"; the median answer takes {' and '.join(dict.fromkeys(seconds))}"
    yield Sentence(f"{text}.", _SIDES)


# --- Differences from a baseline


def _differences_section(report: ComparisonReport, layout: _PageLayout) -> ReportSection:
    """Make the section of differences from a baseline that a reader chooses."""
    table = _differences_from_each_side_table(report, layout)
    baselines = dict.fromkeys([layout.first_baseline, *(layout.baselines[label] for label in layout.names)])
    better_by_baseline = dict.fromkeys(baselines, "the row's side")
    if layout.is_single_pair:
        better_by_baseline = dict(zip(baselines, reversed(baselines), strict=True))
    title = (
        "Differences from the baseline, paired by item, with intervals adjusted for all pairs. Filled: "
        "significant. Right: the row's side is better. Left: the baseline."
    )
    picture = baseline_picture(f"{_DIFFERENCES}-plot", title, table, better_by_baseline)
    question = "Is one better, and where?" if layout.is_single_pair else "Who is better than the baseline?"
    return ReportSection(_DIFFERENCES, question, (), (picture,), (table,))


def _differences_from_each_side_table(report: ComparisonReport, layout: _PageLayout) -> ReportTable:
    """Make a row for each difference and each of its sides as the baseline."""
    families = ["overall", "task", "label", "part"]
    rank = {label: at for at, label in enumerate(layout.names)}
    tasks = list(dict.fromkeys(comparison.task for comparison in report.comparisons))
    from_base = [
        (with_base_as_a(comparison, base), base)
        for comparison in report.comparisons
        for base in (comparison.a, comparison.b)
    ]
    from_base.sort(
        key=lambda turned: (
            layout.baselines[turned[1]] != layout.first_baseline,
            rank[turned[1]] if len(layout.groups) == 1 else 0,
            families.index(turned[0].family),
            tasks.index(turned[0].task),
            rank[turned[0].b],
        )
    )
    places = {(comparison.family, comparison.task, comparison.metric) for comparison in report.comparisons}
    times_by_family = Counter(family for family, *_ in places)
    rows: list[tuple[Cell, ...]] = []
    for comparison, base in from_base:
        family, side = comparison.family, layout.names[comparison.b]
        level = comparison.place if layout.is_single_pair or times_by_family[family] > 1 else ""
        row = level if layout.is_single_pair else f"{level} · {side}" if level else side
        by = _BY["task"] if layout.is_single_pair and family == "overall" else _BY[family]
        rows.append((row, layout.baselines[base], by))
    columns = (ReportColumn("row", "Comparison"), *make_columns("Baseline"), ReportColumn("by", "Level"))
    chosen = {"baseline": str(rows[0][1]), "by": str(rows[0][2])}
    names = ReportTable(_DIFFERENCES, "Differences from the baseline", columns, tuple(rows), chosen=chosen)
    fields = (
        *("mean", "mean_baseline", "difference", "over_judges", "p", "p_over_judges", "sure"),
        *("n", "missing", "could_be_seen", "agreeing", "test"),
    )
    table = add_difference_columns(
        names, [comparison for comparison, _ in from_base], fields, _P, only_used=True
    )
    titles = dict(
        zip(("mean", "mean_baseline"), report.mean_headings("Score", "Baseline score"), strict=False)
    )
    titled = (
        msgspec.structs.replace(column, title=titles.get(column.name, column.title))
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=tuple(titled))


# --- Every pair


def _ranked_pairs_table(report: ComparisonReport, layout: _PageLayout) -> ReportTable:
    """Make a row for each pair overall and by task, the better-ranked side first."""
    rank = {label: at for at, label in enumerate(layout.names)}
    comparisons = [
        with_base_as_a(comparison, max(comparison.a, comparison.b, key=rank.__getitem__))
        for comparison in report.comparisons
        if comparison.family in ("overall", "task")
    ]
    columns = (ReportColumn("ahead", "Row"), ReportColumn("behind", "Column"), ReportColumn("of", "Task"))
    rows = tuple((layout.names[pair.b], layout.names[pair.a], pair.place) for pair in comparisons)
    chosen = {"of": comparisons[0].place} if comparisons else {}
    names = ReportTable(_PAIRS, "Pairs", columns, rows, chosen=chosen)
    return add_difference_columns(names, comparisons, ("difference", "p", "sure", "n", "could_be_seen"), _P)


def _pairs_section(table: ReportTable, names: list[str], counted: Sentence) -> ReportSection:
    """Make the section of all pairs as a heat map."""
    places = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    title = "Every pair: row − column, in points. Dot: significant after adjustment for all pairs."
    grid = HeatMap(
        table,
        *("ahead", "behind", "difference"),
        *(names[:-1], names[1:]),
        least=NOTEWORTHY,
        format="+.1f",
        dot="sure",
        tooltip=("difference_low", "difference_high", "p", "n"),
    )
    toggles = [PictureToggle("of", places)] if len(places) > 1 else []
    picture = heat_map("matrix", title, grid, toggles)
    return ReportSection(_PAIRS, "Which differences are significant?", (counted,), (picture,), (table,))


# --- What was compared


def _sides_and_notes_section(report: ComparisonReport, layout: _PageLayout) -> ReportSection:
    """Make the section of what was compared, with its doubts, gaps and notes."""
    tails = short_paths(side.folder for side in report.sides.values())
    rows = tuple(
        (layout.names[label], escape_line(side.model), tails[side.folder], side.usd_per_1000, side.seconds)
        for label, side in report.sides.items()
    )
    columns = (
        *make_columns("Side", "Model", "Folder"),
        ReportColumn("usd", "$ per 1,000 answers", "usd", "Mean over answers whose price is known"),
        ReportColumn("seconds", "Seconds", "seconds", "Median over answers"),
    )
    notes = (*report.doubts, *report.missing, *report.notes)
    sentences = tuple(Sentence(escape_line(note)) for note in notes)
    table = ReportTable(_SIDES, "Sides", columns, rows)
    return ReportSection(_SIDES, "What was compared?", sentences, (), (table,))
