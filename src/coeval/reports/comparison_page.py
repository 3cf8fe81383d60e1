"""What the report of a comparison says: who is better than whom in what, and how sure that is.

Every difference is there from either side, so that a reader may choose the baseline; a page only chooses
among the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from coeval.analysis.comparison.comparison_leaders import best_first, leading_sentences
from coeval.analysis.comparison.comparison_report import Comparison, ComparisonReport, point_of
from coeval.analysis.measures.measured import NOT_MEASURED, Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.figures import FigureKind
from coeval.core.plain import fitted_names, plain, short_names, short_paths
from coeval.core.text import listed, numbered
from coeval.reports.comparison_plot import difference_forest, pair_matrix
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
)

_P = (
    "Adjusted for all comparisons: tasks are tested where overall is significant, parts where their task is, "
    "labels by themselves"
)
# Characters of a side's name on the page; the table of sides has the whole one.
_LONGEST_SIDE = 28
# Sentences above the first picture.
_MOST_TOLD = 3
# Where all differences are smaller, none has the strongest colour.
_NOTEWORTHY = 0.1
_DIFFERENCES, _PAIRS = "differences", "pairs"
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
    leading = list(leading_sentences(named, len(shown.groups)))
    place = {label: at for at, label in enumerate(shown.names)}
    order = list(shown.names.values())
    sections = [_differences_section(compared, shown, place)]
    if not shown.few and (pairs := _pairs(compared, shown, place)):
        sections.append(_pairs_section(pairs, shown))
    sections.append(_sides_section(compared, shown))
    return Report(
        kind="comparison",
        title=f"Comparison of {listed(order, 3)}",
        facts=(numbered(len(compared.sides), "side"), numbered(len(compared.comparisons), "comparison")),
        lead=(
            *(Sentence(text, _DIFFERENCES) for text in leading[: _MOST_TOLD - bool(compared.doubts)]),
            *(Sentence(plain(doubt), "sides") for doubt in compared.doubts[:1]),
        ),
        sections=tuple(sections),
        alerts=(Alert(as_sentence(SIMULATED)),) if compared.simulated else (),
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
    folders = [side["folder"] for side in compared.sides.values()]
    if len(groups) > 1:  # each student against itself in another folder: the folder is the baseline
        tails = short_paths(folders)
        baselines = {label: tails[side["folder"]] for label, side in compared.sides.items()}
        return _Shown(names, groups, baselines, baselines[compared.bases[0]])
    usual = compared.bases[0] if len(set(folders)) > 1 else order[0]
    return _Shown(names, groups, names, names[usual])


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
        "Differences from the baseline with their 95% intervals, paired by item. Filled: significant. Right "
        "of zero the side of the row is better, left of it the baseline."
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
    kind, per = _kind(compared.comparisons)
    rows: list[tuple[Cell, ...]] = []
    for one, base in found:
        side = shown.names[_other(one, base)]
        where = one.place if shown.few or one.family in several else ""
        row = where if shown.few else f"{where} · {side}" if where else side
        by = _BY["task"] if shown.few and one.family == "overall" else _BY[one.family]
        rows.append((row, shown.baselines[base], by, *_figures(one, base, per)))
    return ReportTable(
        _DIFFERENCES,
        "Differences from the baseline",
        (
            ReportColumn("row", "Of"),
            ReportColumn("baseline", "Baseline"),
            ReportColumn("by", "By"),
            ReportColumn("mean", "Score", kind),
            ReportColumn("mean_baseline", "Baseline's", kind),
            ReportColumn("difference", "Difference", kind, "Less the baseline, paired by item"),
            ReportColumn("over_judges", "Over items and judges", kind, "Judges are a sample too"),
            ReportColumn("p", "p", "probability", _P),
            ReportColumn("p_over_judges", "p, judges too", "probability", _P),
            ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
            ReportColumn("missing", "Missing", "count", "Items without a score on both sides"),
            ReportColumn(
                "could_be_seen",
                "Detectable",
                kind,
                "The true difference that would be detected four times in five",
            ),
            ReportColumn(
                "agreeing", "Judges agreeing", "count", "By themselves they put the same side ahead"
            ),
            ReportColumn("test", "Test"),
            ReportColumn(
                "shown", "Of the scale", "points", "The difference as a share of the metric's scale"
            ),
        ),
        tuple(rows),
        chosen={"baseline": str(rows[0][1]), "by": str(rows[0][2])},
    )


def _other(one: Comparison, base: str) -> str:
    return one.a if base == one.b else one.b


def _places(comparisons: Sequence[Comparison], family: str) -> set[tuple[str | None, str]]:
    return {(one.task, one.metric) for one in comparisons if one.family == family}


def _kind(comparisons: Sequence[Comparison]) -> tuple[FigureKind, bool]:
    """How scores are written; True: in the metric's own scale from 1 to 10, which needs a second decimal."""
    of_ten = all(one.unit == "points" for one in comparisons)
    return ("coefficient", True) if of_ten else ("points", False)


def _figures(one: Comparison, base: str, of_ten: bool) -> tuple[Cell, ...]:
    sign = 1 if base == one.a else -1
    per = 1.0 if of_ten else 100 * point_of(one)
    means = (one.mean_b, one.mean_a) if sign > 0 else (one.mean_a, one.mean_b)
    low, high = sorted(sign * bound for bound in one.ci95)
    difference = Measured(sign * one.difference / per, low / per, high / per, one.n, one.missing)
    over = NOT_MEASURED
    if one.ci95_over_judges is not None:
        least, most = sorted(sign * bound / per for bound in one.ci95_over_judges)
        over = difference._replace(low=least, high=most)
    detectable = None if one.minimum_detectable is None else one.minimum_detectable / per
    share = Measured(sign * one.difference / one.scale, low / one.scale, high / one.scale, one.n, one.missing)
    p_values = (one.p_adjusted, one.p_over_judges_adjusted, one.significant)
    counts = (one.n, one.missing, detectable, one.agreeing)
    return (*(mean / per for mean in means), difference, over, *p_values, *counts, one.test, share)


# --- Every pair


def _pairs(compared: ComparisonReport, shown: _Shown, place: dict[str, int]) -> list[tuple[Cell, ...]]:
    """Overall and by task; none where nothing but parts and labels is compared."""
    rows: list[tuple[Cell, ...]] = []
    for one in compared.comparisons:
        if one.family not in ("overall", "task"):
            continue
        ahead, behind = sorted((one.a, one.b), key=place.__getitem__)
        sign = 1 if ahead == one.b else -1
        low, high = sorted(sign * bound / one.scale for bound in one.ci95)
        difference = Measured(sign * one.difference / one.scale, low, high, one.n, one.missing)
        names = (shown.names[ahead], shown.names[behind])
        rows.append((*names, one.place, difference, one.p_adjusted, one.significant, one.n))
    return rows


def _pairs_section(rows: Sequence[tuple[Cell, ...]], shown: _Shown) -> ReportSection:
    table = ReportTable(
        _PAIRS,
        "Pairs",
        (
            ReportColumn("ahead", "Row"),
            ReportColumn("behind", "Column"),
            ReportColumn("of", "Of"),
            ReportColumn("difference", "Row less column", "points", "As a share of the metric's scale"),
            ReportColumn("p", "p", "probability", _P),
            ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
        ),
        tuple(rows),
        chosen={"of": str(rows[0][2])},
    )
    places = tuple(dict.fromkeys(str(row[2]) for row in rows))
    title = "Every pair: row less column, in points. A dot: significant after adjustment for all comparisons."
    most = table.largest("difference", _NOTEWORTHY)
    spec = pair_matrix(table, list(shown.names.values()), most)
    toggles = (PictureToggle("of", places),) if len(places) > 1 else ()
    return ReportSection(
        _PAIRS,
        "Which differences are significant?",
        (),
        (Picture("matrix", title, _PAIRS, spec, toggles),),
        (table,),
    )


# --- What was compared


def _sides_section(compared: ComparisonReport, shown: _Shown) -> ReportSection:
    tails = short_paths(side["folder"] for side in compared.sides.values())
    rows = tuple(
        (shown.names[label], plain(side["model"]), tails[side["folder"]])
        for label, side in compared.sides.items()
    )
    columns = (ReportColumn("side", "Side"), ReportColumn("model", "Model"), ReportColumn("folder", "Folder"))
    notes = (*compared.doubts, *compared.missing, *compared.notes)
    sentences = tuple(Sentence(plain(note)) for note in notes)
    return ReportSection(
        "sides", "What was compared?", sentences, (), (ReportTable("sides", "Sides", columns, rows),)
    )
