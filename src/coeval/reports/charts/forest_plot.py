"""A row for each name, with its point and its interval."""

from __future__ import annotations

from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named

__all__ = ["forest_plot"]

_STEP = 30


def forest_plot(table: str, name: str, value: str, rows: int) -> dict[str, Any]:
    """``rows`` in the order of the table; columns ``name`` and ``value`` (a measure), and ``ranks`` to be
    written at the right. The first row's interval lies behind all of them as a band."""
    base = alt.Chart(named(table)).transform_filter(f"isValid(datum.{value})")
    y = alt.Y(f"{name}:N", sort=None, title=None, axis=alt.Axis(labelLimit=180, ticks=False, domain=False))
    scale = alt.Scale(zero=False, nice=True, padding=6)
    low = alt.X(f"{value}_low:Q", scale=scale, title="score, with its 95 % interval")
    colour = alt.Color(f"{name}:N", legend=None)
    shown = [
        alt.Tooltip(f"{name}:N", title="student"),
        alt.Tooltip(f"{value}:Q", format=".3f"),
        alt.Tooltip(f"{value}_low:Q", title="from", format=".3f"),
        alt.Tooltip(f"{value}_high:Q", title="to", format=".3f"),
        alt.Tooltip(f"{value}_n:Q", title="items"),
        alt.Tooltip("ranks:N", title="ranks"),
    ]
    band = (
        base.transform_window(order="row_number()")
        .transform_filter("datum.order == 1")
        .mark_rect(opacity=0.1)
        .encode(x=low, x2=f"{value}_high:Q", color=colour)
    )
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        y=y, x=low, x2=f"{value}_high:Q", color=colour, tooltip=shown
    )
    point = base.mark_point(filled=True, size=90, opacity=1).encode(
        y=y, x=alt.X(f"{value}:Q"), color=colour, tooltip=shown
    )
    ranks = base.mark_text(align="left", dx=10).encode(y=y, x=alt.value("width"), text="ranks:N")
    chart = alt.layer(band, line, point, ranks).properties(width="container", height=max(rows, 1) * _STEP)
    return chart_spec(chart)
