"""What uncertainty is left, against what it costs."""

from __future__ import annotations

from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named

__all__ = ["purchase_plot"]


def purchase_plot(table: str, cost: str, title: str) -> dict[str, Any]:
    """Of a table with the columns ``step``, ``kind``, ``difference``, ``headline`` and the one that ``cost``
    names; the least ``difference`` for the money is told by the column ``best``."""
    base = alt.Chart(named(table)).encode(
        x=alt.X(f"{cost}:Q", title=title, scale=alt.Scale(nice=True)),
        y=alt.Y("difference:Q", title="standard error of a difference", scale=alt.Scale(zero=True)),
        color=alt.Color("kind:N", legend=alt.Legend(title=None, orient="top")),
        tooltip=[
            alt.Tooltip("step:N"),
            alt.Tooltip("difference:Q", format=".4f"),
            alt.Tooltip("headline:Q", format=".4f"),
            alt.Tooltip(f"{cost}:Q", format=",.4~f"),
        ],
    )
    line = base.mark_line(strokeWidth=1.5, opacity=0.6)
    points = base.mark_point(filled=True, size=80, opacity=1)
    words = base.mark_text(align="left", dx=8, dy=-8).encode(text="step:N")
    return chart_spec(alt.layer(line, points, words), 240, 760)
