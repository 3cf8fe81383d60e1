"""Every item as a dot: how hard it is, and how well it tells students apart."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named

__all__ = ["item_dots"]


def item_dots(table: str, flags: Sequence[str]) -> dict[str, Any]:
    """Of a table with the columns ``item``, ``task``, ``teacher``, ``difficulty``, ``discrimination`` and
    ``flag``: the first of ``flags`` is that of items that nothing is wrong with."""
    chart = (
        alt.Chart(named(table))
        .transform_filter("isValid(datum.difficulty)")
        .transform_calculate(height="isValid(datum.discrimination) ? datum.discrimination : 0")
        .mark_point(filled=True, opacity=0.65, size=36)
        .encode(
            x=alt.X(
                "difficulty:Q", scale=alt.Scale(domain=[0, 1]), title="difficulty: 1 less the mean score"
            ),
            y=alt.Y("height:Q", title="discrimination"),
            color=alt.Color(
                "flag:N",
                scale=alt.Scale(domain=list(flags)),
                legend=alt.Legend(title=None, orient="top", columns=3),
            ),
            tooltip=[
                alt.Tooltip("item:N"),
                alt.Tooltip("task:N"),
                alt.Tooltip("teacher:N"),
                alt.Tooltip("difficulty:Q", format=".2f"),
                alt.Tooltip("discrimination:Q", format=".2f"),
                alt.Tooltip("flag:N"),
            ],
        )
    )
    return chart_spec(chart, 300, 760)
