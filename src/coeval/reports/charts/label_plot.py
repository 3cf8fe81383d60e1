"""How often each student states the right label, with intervals: a row for each label and student."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from coeval.reports.charts.chart_spec import chart_spec, model_colour, named, names_axis, shown_name

__all__ = ["label_plot"]

_STEP = 28


def label_plot(table: str, rows: Sequence[tuple[str, str, str]], models: Sequence[str]) -> dict[str, Any]:
    """Of a table with the columns ``student``, ``task``, ``label`` and ``accuracy`` (a measure); ``rows`` are
    its students, tasks and labels, in order. Several labels are named beside the students."""
    students, tasks, labels = (list(dict.fromkeys(part)) for part in zip(*rows, strict=True))
    name = shown_name(students, of="datum.student")
    if len({(task, label) for _, task, label in rows}) > 1:
        task, label = shown_name(tasks, 16, of="datum.task"), shown_name(labels, 16, of="datum.label")
        name = f"({task}) + ' (' + ({label}) + ') · ' + ({name})"
    base = alt.Chart(named(table)).transform_filter("isValid(datum.accuracy)").transform_calculate(place=name)
    y = alt.Y("place:N", sort=None, title=None, axis=names_axis(()))
    colour = model_colour("student", models)
    told = [
        alt.Tooltip("student:N"),
        alt.Tooltip("task:N"),
        alt.Tooltip("label:N"),
        alt.Tooltip("accuracy:Q", format=".3f"),
        alt.Tooltip("accuracy_low:Q", title="from", format=".3f"),
        alt.Tooltip("accuracy_high:Q", title="to", format=".3f"),
        alt.Tooltip("accuracy_n:Q", title="answers"),
    ]
    x = alt.X("accuracy_low:Q", scale=alt.Scale(domain=[0, 1]), title="accuracy", axis=alt.Axis(tickCount=6))
    line = base.mark_rule(strokeWidth=3, strokeCap="round").encode(
        y=y, x=x, x2="accuracy_high:Q", color=colour, tooltip=told
    )
    point = base.mark_point(filled=True, size=110, opacity=1).encode(
        y=y, x="accuracy:Q", color=colour, tooltip=told
    )
    return chart_spec(alt.layer(line, point), max(len(rows), 1) * _STEP)
