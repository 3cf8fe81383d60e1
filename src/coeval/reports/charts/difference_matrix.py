"""A cell for every two names: by how much the one is ahead, and whether that is sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named

__all__ = ["difference_matrix"]

_STEP = 44


def difference_matrix(table: str, order: Sequence[str]) -> dict[str, Any]:
    """Of a table with the columns ``better``, ``other``, ``difference`` (a measure), ``p``, ``sure``, ``n``
    and ``detectable``."""
    base = alt.Chart(named(table)).encode(
        y=alt.Y(
            "better:N", sort=list(order), title=None, axis=alt.Axis(labelLimit=180, ticks=False, domain=False)
        ),
        x=alt.X(
            "other:N",
            sort=list(order),
            title=None,
            axis=alt.Axis(orient="top", labelAngle=-30, labelLimit=140, ticks=False, domain=False),
        ),
        tooltip=[
            alt.Tooltip("better:N", title="student"),
            alt.Tooltip("other:N", title="less"),
            alt.Tooltip("difference:Q", format="+.3f"),
            alt.Tooltip("difference_low:Q", title="from", format="+.3f"),
            alt.Tooltip("difference_high:Q", title="to", format="+.3f"),
            alt.Tooltip("p:Q", title="p (Holm)", format=".2g"),
            alt.Tooltip("n:Q", title="items"),
            alt.Tooltip("detectable:Q", title="could be seen", format=".3f"),
        ],
    )
    cells = base.mark_rect(cornerRadius=3).encode(
        color=alt.Color("difference:Q", scale=alt.Scale(domainMin=0, scheme="blues"), legend=None)
    )
    dots = base.transform_filter("datum.sure").mark_point(filled=True, size=40, opacity=1)
    words = base.mark_text(dy=12).encode(text=alt.Text("difference:Q", format="+.2f"))
    return chart_spec(
        alt.layer(cells, dots, words).properties(width="container", height=max(len(order) - 1, 1) * _STEP)
    )
