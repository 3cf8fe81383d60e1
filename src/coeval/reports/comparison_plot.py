"""The pictures of a comparison: differences from a baseline that a reader chooses, and every pair."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import altair as alt

from coeval.reports.chart_spec import (
    chart_spec,
    in_points,
    interval_marks,
    measure_tips,
    named,
    names_axis,
    text_list,
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


def difference_forest(table: ReportTable, others: Mapping[str, str]) -> dict[str, Any]:
    """Of the columns ``row``, ``baseline``, ``difference`` (a measure, from 0 to 1) and ``sure``, which
    fills the mark, those rows that are chosen. ``others``: by baseline, who is better where a number is
    positive."""
    rows, chosen = list(dict.fromkeys(str(row[0]) for row in table.rows)), table.chosen
    most = 100 * table.largest("difference", 0.01, ends=True)
    base = (
        in_points(alt.Chart(named(table.name)), "difference")
        .transform_filter(" && ".join(f"datum.{name} === {name}" for name in chosen))
        .transform_filter("isValid(datum.difference)")
        .transform_window(place="row_number()")
        .transform_filter(f"datum.place <= {MOST_DRAWN}")
    )
    y = alt.Y("row:N", sort=None, title=None, axis=names_axis(rows, _LONGEST, narrow=_LONGEST_NARROW))
    ends = alt.Scale(domain=[-most, most], nice=True)
    x = alt.X("difference_low:Q", scale=ends, title="points", axis=alt.Axis(tickCount=6))
    of = (alt.Tooltip("row:N", title="of"), alt.Tooltip("baseline:N", title="against"))
    tips = [*of, *measure_tips("difference", "items", written="+.1f")]
    zero = alt.Chart(named(table.name)).mark_rule(strokeDash=[3, 3]).encode(x=alt.datum(0))
    marks = interval_marks(base, "difference", (x, "difference_high:Q"), 90, y=y, tooltip=tips)
    number = "format(datum.difference, '+.1f')"
    bounds = "' [' + format(datum.difference_low, '.1f') + ', ' + format(datum.difference_high, '.1f') + ']'"
    figures = (
        base.transform_calculate(figures=f"{number} + (containerSize()[0] < {_NARROW} ? '' : {bounds})")
        .mark_text(align="left", dx=8)
        .encode(y=y, x=alt.value("width"), text="figures:N")
    )
    better = f"{text_list(others.values())}[indexof({text_list(others)}, baseline)]"
    words = [
        _words(table.name, "'← better: ' + baseline", "left", 0, 2),
        _words(table.name, f"'better: ' + {better} + ' →'", "right", "width", 1),
    ]
    params = [alt.param(name=name, value=value) for name, value in chosen.items()]
    chart = alt.layer(zero, *marks, figures, *words).add_params(*params)
    spec = chart_spec(chart, max(min(len(table.first_rows), MOST_DRAWN), 1) * _STEP)
    return spec | {"usermeta": {"step": _STEP, "most": MOST_DRAWN}}


def _words(table: str, words: str, align: str, edge: float | str, line: int) -> alt.Chart:
    """Above the plot, at one of its edges."""
    mark: dict[str, Any] = {"align": align, "dy": -_LINE * line + _LINE // 2}
    once = (
        alt.Chart(named(table)).transform_window(place="row_number()").transform_filter("datum.place === 1")
    )
    said = once.transform_calculate(words=words).mark_text(**mark)
    found: alt.Chart = said.encode(x=alt.value(edge), y=alt.value(0), text="words:N")
    return found


def pair_matrix(table: ReportTable, sides: Sequence[str], most: float) -> dict[str, Any]:
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
    conditions = [{"filter": f"datum.{name} === {name}"} for name in table.chosen]
    params = [{"name": name, "value": value} for name, value in table.chosen.items()]
    return spec | {"transform": [*conditions, *spec.get("transform", [])], "params": params}
