"""A row for each name, with its point and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, model_colour, named, names_axis

__all__ = ["forest_plot"]

_STEP = 30


def forest_plot(table: str, rows: Sequence[str], models: Sequence[str]) -> dict[str, Any]:
    """Of the columns ``student``, ``score`` and ``robust`` (measures) and ``ranks``, which stand at the
    right. The interval of the first of ``rows`` lies behind all of them as a band; what the robust set gives
    is a hollow mark."""
    base = alt.Chart(named(table)).transform_filter("isValid(datum.score)")
    y = alt.Y("student:N", sort=list(rows), title=None, axis=names_axis())
    low = alt.X(
        "score_low:Q",
        scale=alt.Scale(zero=False, nice=True, padding=6),
        title="score",
        axis=alt.Axis(tickCount=8),
    )
    colour = model_colour("student", models)
    shown = [
        alt.Tooltip("student:N", title="student"),
        alt.Tooltip("score:Q", format=".3f"),
        alt.Tooltip("score_low:Q", title="from", format=".3f"),
        alt.Tooltip("score_high:Q", title="to", format=".3f"),
        alt.Tooltip("score_n:Q", title="items"),
        alt.Tooltip("robust:Q", title="robust set", format=".3f"),
        alt.Tooltip("ranks:N", title="ranks"),
    ]
    band = (
        base.transform_filter(alt.FieldEqualPredicate(field="student", equal=rows[0] if rows else ""))
        .mark_rect(opacity=0.12)
        .encode(x=low, x2="score_high:Q", color=colour)
    )
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        y=y, x=low, x2="score_high:Q", color=colour, tooltip=shown
    )
    point = base.mark_point(filled=True, size=110, opacity=1).encode(
        y=y, x="score:Q", color=colour, tooltip=shown
    )
    hollow = (
        base.transform_calculate(place="isValid(datum.robust) ? datum.robust : datum.score")
        .mark_point(shape="diamond", size=70, strokeWidth=1.5)
        .encode(
            y=y,
            x="place:Q",
            color=colour,
            opacity=alt.condition("isValid(datum.robust)", alt.value(1), alt.value(0)),
            tooltip=shown,
        )
    )
    ranks = base.mark_text(align="left", dx=12).encode(y=y, x=alt.value("width"), text="ranks:N")
    chart = alt.layer(band, line, hollow, point, ranks)
    return chart_spec(chart, max(len(rows), 1) * _STEP)
