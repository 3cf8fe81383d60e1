"""Numbers with their intervals, a row for each, beside a line that they may lie on either side of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named, names_axis

__all__ = ["Halves", "interval_plot"]

_STEP = 28
_LINE = 16
"""Pixels: each half's words have a line of their own, so that long ones do not run into each other."""


class Halves(NamedTuple):
    """What a number left of zero speaks for, and what one right of it; ``most``: how far the axis reaches."""

    left: str
    right: str
    most: float


def interval_plot(
    table: str, rows: Sequence[str], title: str, halves: Halves | None = None
) -> dict[str, Any]:
    """Of the columns ``row``, ``shown`` (a measure) and ``sure``, which fills the mark, those that ``rows``
    names; ``title`` is that of the axis. ``halves``: with a line at 0, and words above either side of it."""
    chosen = alt.FieldOneOfPredicate(field="row", oneOf=list(rows))
    base = (
        alt.Chart(named(table))
        .transform_filter(chosen)
        .transform_filter("isValid(datum.shown)")
        # What has no interval is a point: an axis cannot be made of nothing.
        .transform_calculate(
            begin="isValid(datum.shown_low) ? datum.shown_low : datum.shown",
            end="isValid(datum.shown_high) ? datum.shown_high : datum.shown",
        )
    )
    y = alt.Y("row:N", sort=list(rows), title=None, axis=names_axis(rows, 56, narrow=24))
    ends = (-halves.most, halves.most) if halves is not None else None
    scale = alt.Scale(domain=ends, nice=True) if ends else alt.Scale(zero=False, nice=True, padding=6)
    told = [
        alt.Tooltip("row:N", title="of"),
        alt.Tooltip("shown:Q", title="value", format=".4f"),
        alt.Tooltip("shown_low:Q", title="from", format=".4f"),
        alt.Tooltip("shown_high:Q", title="to", format=".4f"),
        alt.Tooltip("shown_n:Q", title="n"),
    ]
    axis = alt.Axis(tickCount=8)
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        y=y,
        x=alt.X("begin:Q", scale=scale, title=title, axis=axis),
        x2="end:Q",
        tooltip=told,
    )
    hollow = base.mark_point(size=100, strokeWidth=2).encode(y=y, x="shown:Q", tooltip=told)
    filled = base.mark_point(filled=True, size=100).encode(
        y=y, x="shown:Q", opacity=alt.condition("datum.sure", alt.value(1), alt.value(0)), tooltip=told
    )
    layers: list[alt.Chart] = [line, hollow, filled]
    if halves is not None:
        layers.insert(0, alt.Chart(named(table)).mark_rule(strokeDash=[3, 3]).encode(x=alt.datum(0)))
        layers += _words(table, halves)
    return chart_spec(alt.layer(*layers), max(len(rows), 1) * _STEP)


def _words(table: str, halves: Halves) -> Iterator[alt.Chart]:
    """Above the plot, from its edges inward."""
    base = alt.Chart(named(table)).transform_window(place="row_number()")
    once = base.transform_filter("datum.place === 1")
    for words, align, edge, line in (
        (f"← {halves.left}", "left", 0, 2),
        (f"{halves.right} →", "right", "width", 1),
    ):
        mark: dict[str, Any] = {"align": align, "dy": -_LINE * line + _LINE // 2}
        yield once.mark_text(**mark).encode(x=alt.value(edge), y=alt.value(0), text=alt.value(words))
