"""What each judge leans on: a point with its interval around zero, hollow where it is not sure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, named, names_axis, names_legend

__all__ = ["bias_plot"]

_STEP, _GAP = 16, 14


def bias_plot(
    table: str, biases: Sequence[str], judges: Sequence[str], models: Sequence[str]
) -> dict[str, Any]:
    """Of a table with the columns ``bias``, ``judge``, ``value`` (a measure) and ``sure``."""
    base = alt.Chart(named(table)).transform_filter("isValid(datum.value)")
    shared: dict[str, Any] = {
        "y": alt.Y("bias:N", sort=list(biases), title=None, axis=names_axis(biases)),
        "yOffset": alt.YOffset("judge:N", sort=list(judges)),
        "color": alt.Color(
            "judge:N",
            scale=alt.Scale(domain=list(models)),
            legend=names_legend(judges, values=list(judges), columns=3),
        ),
        "tooltip": [
            alt.Tooltip("judge:N"),
            alt.Tooltip("bias:N"),
            alt.Tooltip("value:Q", format="+.3f"),
            alt.Tooltip("value_low:Q", title="from", format="+.3f"),
            alt.Tooltip("value_high:Q", title="to", format="+.3f"),
        ],
    }
    x = alt.X("value_low:Q", title="of a score from 0 to 1")
    zero = alt.Chart().mark_rule(strokeDash=[3, 3]).encode(x=alt.datum(0))
    line = base.mark_rule(strokeWidth=2).encode(x=x, x2="value_high:Q", **shared)
    hollow = base.mark_point(size=60, strokeWidth=1.5).encode(x="value:Q", **shared)
    sure = alt.condition("datum.sure", alt.value(1), alt.value(0))
    filled = base.mark_point(filled=True, size=70).encode(x="value:Q", opacity=sure, **shared)
    chart = alt.layer(zero, line, hollow, filled, data=named(table))
    return chart_spec(chart, max(len(biases), 1) * (len(judges) * _STEP + _GAP))
