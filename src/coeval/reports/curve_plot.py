"""A figure over training steps: a line for each run, with error bars and a band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.chart_spec import (
    LONGEST_NAME,
    AnyChart,
    chart_spec,
    in_points,
    named,
    names_legend,
    plain_spec,
    shown_name,
    text_list,
)

# Pixels: with its legend on a laptop's screen at once.
_HEIGHT = 300
_CELL = {"width": 310, "height": 190}
# Three cells of 310 pixels fill the page's width.
_COLUMNS = 3


class ErrorsShown(NamedTuple):
    """What there is to draw: points with an error bar, with a band."""

    bars: bool
    band: bool
    apart: float = 0.0
    """How many steps lie between the marks of two runs at one step, so that none hides another."""
    own: bool = False
    """Whether means are on a scale of their own, and not hundredths of points."""


def curve_plot(table: str, runs: Sequence[str], title: str, shown: ErrorsShown) -> dict[str, Any]:
    """Of the columns ``run``, ``step``, ``mean`` and ``band`` (measures) and ``comparable``, which fills the
    mark; ``title`` is that of the axis."""
    return chart_spec(_curves(table, runs, title, shown), _HEIGHT, width=860)


def curve_grid(table: str, tasks: Sequence[str], runs: Sequence[str], shown: ErrorsShown) -> dict[str, Any]:
    """A small plot for each ``task``, each with its own scale."""
    header = alt.Header(labelFontSize=13, labelExpr=shown_name(tasks, 40), labelLimit=0)
    grid = (
        _curves(table, runs, None, shown)
        .properties(**_CELL)
        .facet(
            facet=alt.Facet("task:N", sort=list(tasks), title=None, header=header),
            columns=min(_COLUMNS, len(tasks)),
        )
        .resolve_scale(y="independent")
        .resolve_axis(x="independent")
    )
    spec: dict[str, Any] = grid.to_dict()
    spec.pop("config", None)
    found: dict[str, Any] = plain_spec(spec)
    return found


def _curves(table: str, runs: Sequence[str], title: str | None, shown: ErrorsShown) -> AnyChart:
    place = f"(indexof({text_list(runs)}, datum.run) - {(len(runs) - 1) / 2}) * {shown.apart}"
    rows = alt.Chart(named(table))
    base = (
        (rows if shown.own else in_points(rows, "mean", "band"))
        .transform_filter("isValid(datum.mean)")
        .transform_calculate(at=f"datum.step + {place}")
    )
    legend = names_legend(runs, 2 * LONGEST_NAME, symbolOpacity=1) if len(runs) > 1 else None
    colour = alt.Color("run:N", scale=alt.Scale(domain=list(runs)), legend=legend)
    scale = alt.Scale(zero=False, nice=False, padding=10)
    x = alt.X("at:Q", title="step", scale=scale, axis=alt.Axis(tickMinStep=1, labelFlush=False, grid=False))
    y = alt.Y("mean:Q", title=title, scale=alt.Scale(zero=False, nice=True), axis=alt.Axis(tickCount=6))
    reported = [
        alt.Tooltip("run:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("mean:Q", format=".2~f" if shown.own else ".1f"),
        alt.Tooltip("mean_low:Q", title="error bar from", format=".2~f" if shown.own else ".1f"),
        alt.Tooltip("mean_high:Q", title="to", format=".2~f" if shown.own else ".1f"),
        alt.Tooltip("n_items:Q", title="items"),
        alt.Tooltip("n_runs:Q", title="samples"),
    ]
    band = base.transform_filter("isValid(datum.band_low)").mark_area(opacity=0.13).encode(
        x=x, y=alt.Y("band_low:Q", title=title), y2="band_high:Q", color=colour
    )  # fmt: skip
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour)
    errors = base.transform_filter("isValid(datum.mean_low)").mark_rule(strokeWidth=1.5).encode(
        x=x, y=alt.Y("mean_low:Q", title=title), y2="mean_high:Q", color=colour, tooltip=reported
    )  # fmt: skip
    ends = [
        base.transform_filter(f"isValid(datum.{end})")
        .mark_tick(thickness=1.5, size=9, orient="horizontal")
        .encode(x=x, y=alt.Y(f"{end}:Q", title=title), color=colour)
        for end in ("mean_low", "mean_high")
    ]  # fmt: skip
    hollow = base.mark_point(size=60, strokeWidth=2, fill="white").encode(
        x=x, y=y, color=colour, tooltip=reported
    )
    filled = base.mark_point(size=60, filled=True).encode(
        x=x,
        y=y,
        color=colour,
        opacity=alt.condition("datum.comparable", alt.value(1), alt.value(0)),
        tooltip=reported,
    )
    layers = [*([band] if shown.band else []), line, *([errors, *ends] if shown.bars else []), hollow, filled]
    return alt.layer(*layers)
