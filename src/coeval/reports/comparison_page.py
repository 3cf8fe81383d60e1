"""What the report of a comparison says: who is better than whom in what, and how sure that is.

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
    leading_sentences,
    orient_to_base,
    significant_count_sentence,
    sort_best_first,
)
from coeval.analysis.doubtful_answers import Incomparable
from coeval.analysis.run_results import SIMULATED
from coeval.core.plain import escape_line
from coeval.core.shown_names import fit_names, short_names, short_paths
from coeval.core.text import join_names, pluralize
from coeval.reports.content import (
    Alert,
    Cell,
    Picture,
    PictureToggle,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    format_cell,
    make_columns,
    warning_to_sentence,
)
from coeval.reports.difference_table import add_difference_columns
from coeval.reports.plots import NOTEWORTHY, HeatMap, difference_forest, heat_map

_P = (
    "Adjusted for all pairs: tasks are tested where overall is significant, parts where their task is, "
    "labels by themselves"
)
# Characters of a side's name on the page; the table of sides has the whole one.
_LONGEST_SIDE = 28
# Sides that a title names; of more, it names the first.
_MOST_IN_TITLE = 3
_DIFFERENCES, _PAIRS, _SIDES = "differences", "pairs", "sides"
_BY = {"overall": "overall", "task": "by task", "label": "by label", "part": "by factor or metric"}


class _Shown(NamedTuple):
    """Who is compared with whom: ``names`` by label, the best first; the ``groups`` within which every two
    are; by label, what its ``baseline`` is called; ``usual``, the first baseline that is shown."""

    names: dict[str, str]
    groups: list[list[str]]
    baselines: dict[str, str]
    usual: str

    @property
    def few(self) -> bool:
        """A single pair, so that a row needs no name of a side."""
        return len(self.groups) == 1 and len(self.groups[0]) == 2


def comparison_page(compared: ComparisonReport) -> Report:
    shown = _shown(compared)
    named = [
        msgspec.structs.replace(one, a=shown.names[one.a], b=shown.names[one.b])
        for one in compared.comparisons
    ]
    place = {label: at for at, label in enumerate(shown.names)}
    order = list(shown.names.values())
    sections = [_differences_section(compared, shown, place)]
    pairs = _pairs(compared, shown, place)
    paired = [] if shown.few else [str(row[2]) for row in pairs.rows]
    if paired:
        sections.append(_pairs_section(pairs, shown, Sentence(significant_count_sentence(named))))
    sections.append(_sides_section(compared, shown))
    return Report(
        kind="comparison",
        title=f"Comparison of {join_names(order, _MOST_IN_TITLE if len(order) <= _MOST_IN_TITLE else 1)}",
        facts=(pluralize(len(compared.sides), "side"), pluralize(len(compared.comparisons), "comparison")),
        lead=(
            *_leading(named, shown, paired),
            *_cost_sentence(compared, shown),
        ),
        sections=tuple(sections),
        alerts=tuple(_alerts(compared)),
        labels={label: name for label, name in shown.names.items() if label != name},
    )


def _shown(compared: ComparisonReport) -> _Shown:
    order = sort_best_first(compared.comparisons, list(compared.sides))
    short = short_names(order)
    fitted = fit_names((short[label] for label in order), _LONGEST_SIDE)
    names = {label: fitted[short[label]] for label in order}
    groups: list[list[str]] = []
    for label in compared.sides:
        if label in compared.bases or not groups:
            groups.append([])
        groups[-1].append(label)
    folders = [side.folder for side in compared.sides.values()]
    if len(groups) > 1:  # each student against itself in another folder: the folder is the baseline
        tails = short_paths(folders)
        baselines = {label: tails[side.folder] for label, side in compared.sides.items()}
        return _Shown(names, groups, baselines, baselines[compared.bases[0]])
    usual = compared.bases[0] if len(set(folders)) > 1 else order[0]
    return _Shown(names, groups, names, names[usual])


# --- Above the first picture


def _alerts(compared: ComparisonReport) -> Iterator[Alert]:
    """What speaks against the figures as a whole; the last section has the reasons."""
    if compared.simulated:
        yield Alert(warning_to_sentence(SIMULATED))
    apart = [found for note in compared.notes if (found := Incomparable.of(note)) is not None]
    if apart:
        pairs = (f"{one.task} with {one.with_what}" for one in apart)
        yield Alert(escape_line(f"Not comparable: {join_names(pairs, 3)}."))
    for doubt in compared.doubts[:1]:
        yield Alert(escape_line(doubt))


def _leading(named: Sequence[Comparison], shown: _Shown, paired: Sequence[str]) -> Iterator[Sentence]:
    """``paired``: the places of the pairs' table, the first of which is shown at first."""
    for said in leading_sentences(named, len(shown.groups)):
        anchor = "" if not said.place else _DIFFERENCES
        if said.place in paired:
            anchor = _PAIRS if said.place == paired[0] else f"{_PAIRS}?{urlencode({'of': said.place})}"
        yield Sentence(said.text, anchor) if anchor else Sentence(said.text)


def _cost_sentence(compared: ComparisonReport, shown: _Shown) -> Iterator[Sentence]:
    """What answers of the leader and the next cost and how long they took, where that is on record."""
    leading = list(shown.names)[:2]
    sides = [compared.sides[label] for label in leading]
    if len(shown.groups) > 1 or not all(side.usd_per_1000 for side in sides):
        return
    one, other = (shown.names[label] for label in leading)
    prices = [format_cell(side.usd_per_1000, "usd") for side in sides]
    said = f"1,000 answers of {one} cost {prices[0]}, of {other} {prices[1]}"
    if all(side.seconds for side in sides):
        seconds = [format_cell(side.seconds, "seconds") for side in sides]
        said += f"; the median answer takes {' and '.join(dict.fromkeys(seconds))}"
    yield Sentence(f"{said}.", _SIDES)


# --- Differences from a baseline


def _differences_section(compared: ComparisonReport, shown: _Shown, place: dict[str, int]) -> ReportSection:
    table = _differences(compared, shown, place)
    others = dict.fromkeys(dict.fromkeys(str(row[1]) for row in table.rows), "the side of the row")
    if shown.few:
        one, other = shown.groups[0]
        others = {shown.names[one]: shown.names[other], shown.names[other]: shown.names[one]}
    baselines = dict.fromkeys([shown.usual, *(shown.baselines[label] for label in shown.names)])
    choices = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    plot = difference_forest(table, others)
    title = (
        "Differences from the baseline, paired by item; intervals allow for all pairs. Filled: significant. "
        "Right of zero the side of the row is better, left of it the baseline."
    )
    toggles = [PictureToggle("baseline", tuple(baselines))]
    if len(choices) > 1:
        toggles.append(PictureToggle("by", choices))
    picture = Picture(f"{_DIFFERENCES}-plot", title, table.name, plot, tuple(toggles))
    question = "Is one better, and where?" if shown.few else "Who is better than the baseline?"
    return ReportSection(_DIFFERENCES, question, (), (picture,), (table,))


def _differences(compared: ComparisonReport, shown: _Shown, place: dict[str, int]) -> ReportTable:
    """A row for each difference and each of its sides as the baseline; the usual baseline first."""
    families = ["overall", "task", "label", "part"]
    found = [(one, base) for one in compared.comparisons for base in (one.a, one.b)]
    usual = shown.usual
    tasks = list(dict.fromkeys(one.task for one in compared.comparisons))
    found.sort(
        key=lambda each: (
            shown.baselines[each[1]] != usual,
            place[each[1]] if len(shown.groups) == 1 else 0,
            families.index(each[0].family),
            tasks.index(each[0].task),
            place[_other(*each)],
        )
    )
    places = {(one.family, one.task, one.metric) for one in compared.comparisons}
    several = {family for family, times in Counter(family for family, *_ in places).items() if times > 1}
    rows: list[tuple[Cell, ...]] = []
    for one, base in found:
        side = shown.names[_other(one, base)]
        where = one.place if shown.few or one.family in several else ""
        row = where if shown.few else f"{where} · {side}" if where else side
        by = _BY["task"] if shown.few and one.family == "overall" else _BY[one.family]
        rows.append((row, shown.baselines[base], by))
    names = ReportTable(
        _DIFFERENCES,
        "Differences from the baseline",
        (ReportColumn("row", "Of"), *make_columns("Baseline", "By")),
        tuple(rows),
        chosen={"baseline": str(rows[0][1]), "by": str(rows[0][2])},
    )
    fields = (
        *("mean", "mean_baseline", "difference", "over_judges", "p", "p_over_judges", "sure"),
        *("n", "missing", "could_be_seen", "agreeing", "test"),
    )
    pairs = [orient_to_base(one, base) for one, base in found]
    table = add_difference_columns(names, pairs, fields, _P, only_used=True)
    titles = dict(zip(("mean", "mean_baseline"), compared.mean_headings("Score", "Baseline's"), strict=False))
    columns = (
        msgspec.structs.replace(column, title=titles.get(column.name, column.title))
        for column in table.columns
    )
    return msgspec.structs.replace(table, columns=tuple(columns))


def _other(one: Comparison, base: str) -> str:
    return one.a if base == one.b else one.b


# --- Every pair


def _pairs(compared: ComparisonReport, shown: _Shown, place: dict[str, int]) -> ReportTable:
    """Overall and by task; no rows where nothing but parts and labels is compared."""
    found = [
        orient_to_base(one, max(one.a, one.b, key=place.__getitem__))
        for one in compared.comparisons
        if one.family in ("overall", "task")
    ]
    names = ReportTable(
        _PAIRS,
        "Pairs",
        (ReportColumn("ahead", "Row"), ReportColumn("behind", "Column"), ReportColumn("of", "Of")),
        tuple((shown.names[one.b], shown.names[one.a], one.place) for one in found),
        chosen={"of": found[0].place} if found else {},
    )
    return add_difference_columns(names, found, ("difference", "p", "sure", "n", "could_be_seen"), _P)


def _pairs_section(table: ReportTable, shown: _Shown, counted: Sentence) -> ReportSection:
    places = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    title = "Every pair: row less column, in points. A dot: significant after adjustment for all pairs."
    sides = list(shown.names.values())
    grid = HeatMap(
        table,
        *("ahead", "behind", "difference"),
        *(sides[:-1], sides[1:]),
        least=NOTEWORTHY,
        format="+.1f",
        dot="sure",
        tooltip=("difference_low", "difference_high", "p", "n"),
    )
    toggles = [PictureToggle("of", places)] if len(places) > 1 else []
    picture = heat_map("matrix", title, grid, toggles)
    return ReportSection(_PAIRS, "Which differences are significant?", (counted,), (picture,), (table,))


# --- What was compared


def _sides_section(compared: ComparisonReport, shown: _Shown) -> ReportSection:
    tails = short_paths(side.folder for side in compared.sides.values())
    rows = tuple(
        (shown.names[label], escape_line(side.model), tails[side.folder], side.usd_per_1000, side.seconds)
        for label, side in compared.sides.items()
    )
    columns = (
        *make_columns("Side", "Model", "Folder"),
        ReportColumn("usd", "$ per 1,000 answers", "usd", "Mean over answers whose price is known"),
        ReportColumn("seconds", "Seconds", "seconds", "Median over answers"),
    )
    notes = (*compared.doubts, *compared.missing, *compared.notes)
    sentences = tuple(Sentence(escape_line(note)) for note in notes)
    return ReportSection(
        _SIDES, "What was compared?", sentences, (), (ReportTable(_SIDES, "Sides", columns, rows),)
    )
