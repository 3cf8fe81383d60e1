"""What the report of a comparison says: who is better than whom in what, and how sure that is.

Every difference is there from either side, so that a reader may choose the baseline; a page only chooses
among the rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

import msgspec

from coeval.analysis.comparison.comparison_report import (
    Comparison,
    ComparisonReport,
    against,
    best_first,
    count_sentence,
    leading_sentences,
)
from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.doubtful_answers import Incomparable
from coeval.analysis.measures.measured import NOT_MEASURED
from coeval.analysis.run_results import SIMULATED
from coeval.core.figures import share_of_scale
from coeval.core.plain import plain
from coeval.core.shown_names import fitted_names, short_names, short_paths
from coeval.core.text import listed, numbered
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
    as_sentence,
    cell_text,
)
from coeval.reports.measure_table import declared_column, error_in_points, gap_in_points
from coeval.reports.plots import difference_forest, pair_matrix

_P = (
    "Adjusted for all pairs: tasks are tested where overall is significant, parts where their task is, "
    "labels by themselves"
)
_DETECTABLE = declared_column(PairDifference, "minimum_detectable", "could_be_seen")
# Characters of a side's name on the page; the table of sides has the whole one.
_LONGEST_SIDE = 28
# Sides that a title names; of more, it names the first.
_MOST_IN_TITLE = 3
# Where all differences are smaller, none has the strongest colour.
_NOTEWORTHY = 0.1
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
    pairs = [] if shown.few else _pairs(compared, shown, place)
    if pairs:
        sections.append(_pairs_section(pairs, shown, Sentence(count_sentence(named))))
    sections.append(_sides_section(compared, shown))
    return Report(
        kind="comparison",
        title=f"Comparison of {listed(order, _MOST_IN_TITLE if len(order) <= _MOST_IN_TITLE else 1)}",
        facts=(numbered(len(compared.sides), "side"), numbered(len(compared.comparisons), "comparison")),
        lead=(
            *_leading(named, shown, [str(row[2]) for row in pairs]),
            *_cost_sentence(compared, shown),
        ),
        sections=tuple(sections),
        alerts=tuple(_alerts(compared)),
        labels={label: name for label, name in shown.names.items() if label != name},
    )


def _shown(compared: ComparisonReport) -> _Shown:
    order = best_first(compared.comparisons, list(compared.sides))
    short = short_names(order)
    fitted = fitted_names((short[label] for label in order), _LONGEST_SIDE)
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
        yield Alert(as_sentence(SIMULATED))
    apart = [found for note in compared.notes if (found := Incomparable.of(note)) is not None]
    if apart:
        pairs = (f"{one.task} with {one.with_what}" for one in apart)
        yield Alert(plain(f"Not comparable: {listed(pairs, 3)}."))
    for doubt in compared.doubts[:1]:
        yield Alert(plain(doubt))


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
    prices = [cell_text(side.usd_per_1000, "usd") for side in sides]
    said = f"1,000 answers of {one} cost {prices[0]}, of {other} {prices[1]}"
    if all(side.seconds for side in sides):
        seconds = [cell_text(side.seconds, "seconds") for side in sides]
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
    several = {one.family for one, _ in found if len(_places(compared.comparisons, one.family)) > 1}
    rows: list[tuple[Cell, ...]] = []
    for one, base in found:
        side = shown.names[_other(one, base)]
        where = one.place if shown.few or one.family in several else ""
        row = where if shown.few else f"{where} · {side}" if where else side
        by = _BY["task"] if shown.few and one.family == "overall" else _BY[one.family]
        rows.append((row, shown.baselines[base], by, *_figures(one, base)))
    mean, mean_of_baseline, _ = compared.headings("Score", "Baseline's")
    columns = (
        ReportColumn("row", "Of"),
        ReportColumn("baseline", "Baseline"),
        ReportColumn("by", "By"),
        ReportColumn("mean", mean, "points"),
        ReportColumn("mean_baseline", mean_of_baseline, "points"),
        ReportColumn("difference", "Difference", "gap", "Less the baseline, paired by item"),
        declared_column(PairDifference, "ci95_over_judges_adjusted", "over_judges"),
        ReportColumn("p", "p", "probability", _P),
        ReportColumn("p_over_judges", "p, judges too", "probability", _P),
        ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment"),
        ReportColumn("n", "Items", "count"),
        ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
        _DETECTABLE,
        declared_column(PairDifference, "agreeing"),
        ReportColumn("test", "Test"),
    )
    # one judge, or none, says nothing of others
    kept = [at for at in range(len(columns)) if any(row[at] not in (None, NOT_MEASURED) for row in rows)]
    return ReportTable(
        _DIFFERENCES,
        "Differences from the baseline",
        tuple(columns[at] for at in kept),
        tuple(tuple(row[at] for at in kept) for row in rows),
        chosen={"baseline": str(rows[0][1]), "by": str(rows[0][2])},
    )


def _other(one: Comparison, base: str) -> str:
    return one.a if base == one.b else one.b


def _places(comparisons: Sequence[Comparison], family: str) -> set[tuple[str | None, str]]:
    return {(one.task, one.metric) for one in comparisons if one.family == family}


def _figures(one: Comparison, base: str) -> tuple[Cell, ...]:
    one = against(one, base)
    over = NOT_MEASURED
    if one.ci95_over_judges_adjusted is not None:
        over = gap_in_points(one.difference, one.ci95_over_judges_adjusted, one.unit, one.n)
    return (
        share_of_scale(one.mean_b, one.unit),
        share_of_scale(one.mean_a, one.unit),
        gap_in_points(one.difference, one.ci95_adjusted, one.unit, one.n),
        over,
        one.p_adjusted,
        one.p_over_judges_adjusted,
        one.significant,
        one.n,
        one.missing,
        error_in_points(one.minimum_detectable, one.unit),
        one.agreeing,
        one.test,
    )


# --- Every pair


def _pairs(compared: ComparisonReport, shown: _Shown, place: dict[str, int]) -> list[tuple[Cell, ...]]:
    """Overall and by task; none where nothing but parts and labels is compared."""
    rows: list[tuple[Cell, ...]] = []
    for one in compared.comparisons:
        if one.family not in ("overall", "task"):
            continue
        one = against(one, max(one.a, one.b, key=place.__getitem__))
        difference = gap_in_points(one.difference, one.ci95_adjusted, one.unit, one.n)
        names = (shown.names[one.b], shown.names[one.a])
        least = error_in_points(one.minimum_detectable, one.unit)
        rows.append((*names, one.place, difference, one.p_adjusted, one.significant, one.n, least))
    return rows


def _pairs_section(rows: Sequence[tuple[Cell, ...]], shown: _Shown, counted: Sentence) -> ReportSection:
    table = ReportTable(
        _PAIRS,
        "Pairs",
        (
            ReportColumn("ahead", "Row"),
            ReportColumn("behind", "Column"),
            ReportColumn("of", "Of"),
            ReportColumn("difference", "Row less column", "gap", "Paired by item"),
            ReportColumn("p", "p", "probability", _P),
            ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
            _DETECTABLE,
        ),
        tuple(rows),
        chosen={"of": str(rows[0][2])},
    )
    places = tuple(dict.fromkeys(str(row[2]) for row in rows))
    title = "Every pair: row less column, in points. A dot: significant after adjustment for all pairs."
    most = table.largest("difference", _NOTEWORTHY)
    spec = pair_matrix(table, list(shown.names.values()), most)
    toggles = (PictureToggle("of", places),) if len(places) > 1 else ()
    return ReportSection(
        _PAIRS,
        "Which differences are significant?",
        (counted,),
        (Picture("matrix", title, _PAIRS, spec, toggles),),
        (table,),
    )


# --- What was compared


def _sides_section(compared: ComparisonReport, shown: _Shown) -> ReportSection:
    tails = short_paths(side.folder for side in compared.sides.values())
    rows = tuple(
        (shown.names[label], plain(side.model), tails[side.folder], side.usd_per_1000, side.seconds)
        for label, side in compared.sides.items()
    )
    columns = (
        ReportColumn("side", "Side"),
        ReportColumn("model", "Model"),
        ReportColumn("folder", "Folder"),
        ReportColumn("usd", "$ per 1,000 answers", "usd", "Mean over answers whose price is known"),
        ReportColumn("seconds", "Seconds", "seconds", "Median over answers"),
    )
    notes = (*compared.doubts, *compared.missing, *compared.notes)
    sentences = tuple(Sentence(plain(note)) for note in notes)
    return ReportSection(
        _SIDES, "What was compared?", sentences, (), (ReportTable(_SIDES, "Sides", columns, rows),)
    )
