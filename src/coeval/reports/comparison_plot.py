"""The pictures of a comparison: differences from a baseline that a reader chooses, and every pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coeval.reports.chart_spec import (
    NUMBERED,
    Spec,
    chart_spec,
    column,
    computed,
    in_points,
    interval_marks,
    marks,
    measure_tips,
    names_axis,
    text_list,
    where,
)
from coeval.reports.content import ReportTable
from coeval.reports.plots import HeatMap, heat_map

# Pixels per row: a line of text, and an interval that is seen as a row of its own.
_STEP = 26
# Rows of a picture; the table has all.
MOST_DRAWN = 60
# Pixels: each half's words have a line of their own, so that long ones do not run into each other.
_LINE = 16
# Pixels of a picture's place below which a figure stands without its interval.
_NARROW = 480
# Characters of a name beside the picture, and where its place is narrow.
_LONGEST, _LONGEST_NARROW = 44, 20


def difference_forest(table: ReportTable, others: Mapping[str, str]) -> Spec:
    """Of the columns ``row``, ``baseline``, ``difference`` (a measure, from 0 to 1) and ``sure``, which
    fills the mark, those rows that are chosen. ``others``: by baseline, who is better where a number is
    positive."""
    rows = dict.fromkeys(str(row[0]) for row in table.rows)
    most = 100 * table.largest("difference", 0.01, ends=True)
    y = column("row:N", sort=None, title=None, axis=names_axis(rows, _LONGEST, narrow=_LONGEST_NARROW))
    ends = {"domain": [-most, most], "nice": True}
    x = column("difference_low:Q", scale=ends, title="points", axis={"tickCount": 6})
    of = [column("row:N", title="of"), column("baseline:N", title="against")]
    tips = [*of, *measure_tips("difference", "items", written="+.1f")]
    number = "format(datum.difference, '+.1f')"
    bounds = "' [' + format(datum.difference_low, '.1f') + ', ' + format(datum.difference_high, '.1f') + ']'"
    figures = computed(figures=f"{number} + (containerSize()[0] < {_NARROW} ? '' : {bounds})")
    beside = {"y": y, "x": {"value": "width"}, "text": column("figures:N")}
    better = f"{text_list(others.values())}[indexof({text_list(others)}, baseline)]"
    layers = [
        marks("rule", {"x": {"datum": 0}}, strokeDash=[3, 3]),
        *interval_marks("difference", (x, "difference_high"), 90, y=y, tooltip=tips),
        marks("text", beside, *figures, align="left", dx=8),
        _words("'← better: ' + baseline", "left", 0, 2),
        _words(f"'better: ' + {better} + ' →'", "right", "width", 1),
    ]
    drawn = (
        *in_points("difference"),
        *_conditions(table),
        where("isValid(datum.difference)"),
        NUMBERED,
        where(f"datum.place <= {MOST_DRAWN}"),
    )
    spec = chart_spec(table.name, layers, max(min(len(table.first_rows), MOST_DRAWN), 1) * _STEP, *drawn)
    return spec | {"params": _parameters(table), "usermeta": {"step": _STEP, "most": MOST_DRAWN}}


def _words(words: str, align: str, edge: float | str, line: int) -> Spec:
    """Above the plot, at one of its edges."""
    places = {"x": {"value": edge}, "y": {"value": 0}, "text": column("words:N")}
    once = where("datum.place === 1")
    return marks("text", places, once, *computed(words=words), align=align, dy=-_LINE * line + _LINE // 2)


def _conditions(table: ReportTable) -> list[Spec]:
    """Transforms that keep the rows which the parameters choose."""
    return [where(f"datum.{name} === {name}") for name in table.chosen]


def _parameters(table: ReportTable) -> list[Spec]:
    return [{"name": name, "value": value} for name, value in table.chosen.items()]


def pair_matrix(table: ReportTable, sides: Sequence[str], most: float) -> Spec:
    """Of the columns ``ahead``, ``behind``, ``difference`` (a measure, a share of the scale), ``p``, ``sure``
    and ``of``, of which one place is chosen; ``sides`` are the best first."""
    grid = HeatMap(
        table=table.name,
        row="ahead",
        column="behind",
        value="difference",
        shade="difference",
        rows=sides[:-1],
        columns=sides[1:],
        most=most,
        format="+.1f",
        dot="sure",
        tooltip=("difference_low", "difference_high", "p", "n"),
        points=("difference",),
    )
    spec = heat_map(grid)
    return spec | {"transform": [*_conditions(table), *spec["transform"]], "params": _parameters(table)}
