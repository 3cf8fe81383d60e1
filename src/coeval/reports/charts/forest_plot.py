"""A row for each name, with its point and its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, model_colour, named, names_axis, shown_name

__all__ = ["EACH_TASK", "OVERALL", "forest_plot"]

OVERALL, EACH_TASK = "overall", "by task"
_STEP = 30
_OVERALL = f"by === '{OVERALL}'"
_CHOSEN = f"datum.scores === scores && ({_OVERALL}) === !isValid(datum.task)"


def forest_plot(
    table: str, students: Sequence[str], tasks: Sequence[str], models: Sequence[str], scores: str
) -> dict[str, Any]:
    """Of the columns ``scores``, ``task``, ``student``, ``score`` (a measure) and ``ranks``, which stand at
    the right. Two parameters choose among the rows, which stand in the order of the table: ``scores``, at
    first the one given, and ``by``, `OVERALL` (rows without a task) or `EACH_TASK`. Overall the first
    student's interval lies behind all as a band."""
    student, task = (shown_name(students, of="datum.student"), shown_name(tasks, 16, of="datum.task"))
    chosen, by = alt.param(name="scores", value=scores), alt.param(name="by", value=OVERALL)
    base = (
        alt.Chart(named(table))
        .transform_filter(_CHOSEN)
        .transform_filter("isValid(datum.score)")
        .transform_calculate(row=f"({_OVERALL} ? '' : ({task}) + ' · ') + ({student})")
    )
    y = alt.Y("row:N", sort=None, title=None, axis=names_axis(()))
    low = alt.X(
        "score_low:Q",
        scale=alt.Scale(domain=[0, 1]),
        title="score",
        axis=alt.Axis(tickCount=8, labelOverlap="greedy", labelSeparation=6),
    )
    colour = model_colour("student", models)
    shown = [
        alt.Tooltip("student:N", title="student"),
        alt.Tooltip("task:N", title="task"),
        alt.Tooltip("score:Q", format=".3f"),
        alt.Tooltip("score_low:Q", title="from", format=".3f"),
        alt.Tooltip("score_high:Q", title="to", format=".3f"),
        alt.Tooltip("score_n:Q", title="items"),
        alt.Tooltip("ranks:N", title="ranks"),
    ]
    band = (
        base.transform_window(place="row_number()")
        .transform_calculate(until=f"datum.place === 1 && {_OVERALL} ? datum.score_high : datum.score_low")
        .mark_rect(opacity=0.12)
        .encode(x=low, x2="until:Q", color=colour)
    )
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        y=y, x=low, x2="score_high:Q", color=colour, tooltip=shown
    )
    point = base.mark_point(filled=True, size=110, opacity=1).encode(
        y=y, x="score:Q", color=colour, tooltip=shown
    )
    ranks = (
        base.transform_filter("isValid(datum.ranks)")
        .mark_text(align="left", dx=12)
        .encode(y=y, x=alt.value("width"), text="ranks:N")
    )
    chart = alt.layer(band, line, point, ranks).add_params(chosen, by)
    return chart_spec(chart, max(len(students), 1) * _STEP) | {"usermeta": {"step": _STEP}}
