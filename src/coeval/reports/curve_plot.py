"""A figure over training steps: for each run a line with its intervals, its name at its end and in a legend.

Lines that coincide are told apart: later ones are dashed and have smaller marks of another shape, so that
those below them show.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

import altair as alt

from coeval.core.plain import plain
from coeval.reports.chart_spec import (
    AnyChart,
    chart_spec,
    in_points,
    named,
    names_legend,
    plain_spec,
    shown_name,
    text_list,
)
from coeval.reports.content import ReportTable

# Pixels: with its sentences on a laptop's screen at once.
_HEIGHT = 300
_CELL = {"width": 250, "height": 190}
# Three cells and the names beside their lines fill the page's width.
_COLUMNS = 3
# Pixels between the names at the ends of two lines, and characters of a name.
_APART, _LONGEST, _LONGEST_NARROW = 15, 24, 12
# The first is drawn first, below the others; further runs begin again.
_DASHES = ([1, 0], [7, 5], [2, 4], [12, 4, 2, 4])
_SHAPES = ("circle", "square", "diamond", "triangle-up")
_SIZES = (130, 70, 55, 40)
# Of the range of what is drawn, above and below it.
_MARGIN = 0.05


class _LineEnds(NamedTuple):
    """What is drawn of a table: by task and run, the ``last`` step and where its name stands; by task, the
    ends of the axis."""

    last: Mapping[tuple[str, str], int]
    names: Mapping[tuple[str, str], float]
    ends: Mapping[str, tuple[float, float]]
    steps: list[int]


class _MeanAxis(NamedTuple):
    """The title of the axis, and where it ends (None: by the rows)."""

    title: str | None
    ends: tuple[float, float] | None


def curve_plot(table: ReportTable, runs: Sequence[str], title: str) -> dict[str, Any]:
    """Of the columns ``run``, ``task``, ``step``, ``mean`` (a measure) and ``comparable``, which fills the
    mark; ``title`` is that of the axis."""
    lines = _lines(table, _HEIGHT)
    ends = next(iter(lines.ends.values()), None)
    chart = _curves(table.name, runs, lines, _MeanAxis(title, ends))
    return chart_spec(chart, _HEIGHT, width=860)


def curve_grid(table: ReportTable, tasks: Sequence[str], runs: Sequence[str]) -> dict[str, Any]:
    """A small plot for each ``task``, each with its own scale."""
    header = alt.Header(labelFontSize=13, labelExpr=shown_name(tasks, 40), labelLimit=0)
    lines = _lines(table, _CELL["height"])
    grid = (
        _curves(table.name, runs, lines, _MeanAxis(None, None))
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


def _lines(table: ReportTable, height: float) -> _LineEnds:
    """Where lines end, and where their names stand without touching."""
    rows = [row for row in table.records() if row["mean"] is not None]
    last: dict[tuple[str, str], int] = {}
    at_end: dict[tuple[str, str], float] = {}
    reach: dict[str, list[float]] = {}
    for row in rows:
        key = (row["task"], row["run"])
        figures = (row["mean"], row["mean_low"], row["mean_high"])
        reach.setdefault(row["task"], []).extend(100 * each for each in figures if each is not None)
        if row["step"] >= last.get(key, row["step"]):
            last[key], at_end[key] = row["step"], 100 * row["mean"]
    ends: dict[str, tuple[float, float]] = {}
    names: dict[tuple[str, str], float] = {}
    for task, values in reach.items():
        low, high = min(values), max(values)
        margin = _MARGIN * ((high - low) or 1.0)
        ends[task] = (low - margin, high + margin)
        mine = {key: value for key, value in at_end.items() if key[0] == task}
        gap = _APART * (ends[task][1] - ends[task][0]) / height
        names |= dict(zip(mine, spread(list(mine.values()), gap), strict=True))
    return _LineEnds(last, names, ends, sorted({row["step"] for row in rows}))


def spread(values: Sequence[float], gap: float) -> list[float]:
    """The places nearest to the values, in their order, that are ``gap`` apart."""
    groups: list[list[int]] = []

    def centre(group: Collection[int]) -> float:
        return sum(values[at] for at in group) / len(group)

    for at in sorted(range(len(values)), key=lambda each: values[each]):
        groups.append([at])
        while len(groups) > 1:
            below, above = groups[-2:]
            if centre(above) - centre(below) >= gap * (len(above) + len(below)) / 2:
                break
            groups[-2:] = [below + above]
    found = [0.0] * len(values)
    for group in groups:
        for place, at in enumerate(group):
            found[at] = centre(group) + (place - (len(group) - 1) / 2) * gap
    return found


def _curves(table: str, runs: Sequence[str], lines: _LineEnds, axis_of: _MeanAxis) -> AnyChart:
    title, ends = axis_of
    rows = alt.Chart(named(table))
    base = in_points(rows, "mean").transform_filter("isValid(datum.mean)")
    legend = names_legend(runs, symbolOpacity=1, symbolStrokeWidth=0) if len(runs) > 1 else None
    colour = alt.Color("run:N", scale=alt.Scale(domain=list(runs)), legend=legend)
    dashed, marked = _run_looks(runs, legend)
    axis = alt.Axis(values=lines.steps, format="d", labelOverlap="greedy", labelFlush=False, grid=False)
    x = alt.X("step:Q", title="step", scale=alt.Scale(zero=False, nice=False, padding=10), axis=axis)
    domain = {"domain": list(ends)} if ends else {"padding": 8}
    scale = alt.Scale(zero=False, nice=False, **domain)
    y = alt.Y("mean:Q", title=title, scale=scale, axis=alt.Axis(tickCount=6))
    reported = [
        alt.Tooltip("run:N"),
        alt.Tooltip("step:Q"),
        alt.Tooltip("mean:Q", format=".1f"),
        alt.Tooltip("mean_low:Q", title="from", format=".1f"),
        alt.Tooltip("mean_high:Q", title="to", format=".1f"),
        alt.Tooltip("n_items:Q", title="items"),
    ]
    shaded = base.transform_filter("isValid(datum.mean_low)").mark_area(opacity=0.13).encode(
        x=x, y=alt.Y("mean_low:Q", title=title, scale=scale), y2="mean_high:Q", color=colour
    )  # fmt: skip
    line = base.mark_line(strokeWidth=2).encode(x=x, y=y, color=colour, **dashed)
    marks: dict[str, Any] = {"x": x, "y": y, "color": colour, **marked}
    hollow = base.mark_point(strokeWidth=2, fill="white").encode(**marks, tooltip=reported)
    filled = base.mark_point(filled=True).encode(
        **marks, opacity=alt.condition("datum.comparable", alt.value(1), alt.value(0)), tooltip=reported
    )
    layers = [shaded, line, hollow, filled]
    if len(runs) > 1:
        named_at = _at_end(lines, runs)
        ended = base.transform_calculate(end=named_at.step, name_at=named_at.place).transform_filter(
            "datum.step === datum.end"
        )
        text = ended.transform_calculate(
            called=shown_name(runs, _LONGEST, of="datum.run", narrow=_LONGEST_NARROW)
        )
        layers.append(
            text.mark_text(align="left", dx=10).encode(
                x=x, y=alt.Y("name_at:Q", scale=scale, title=title), text="called:N", color=colour
            )
        )
    return alt.layer(*layers)


class _RunLooks(NamedTuple):
    """Channels of lines, and of the marks on them."""

    dashed: dict[str, Any]
    marked: dict[str, Any]


def _run_looks(runs: Sequence[str], legend: alt.Legend | None) -> _RunLooks:
    if legend is None:
        return _RunLooks({}, {"size": alt.value(_SIZES[1])})

    def by_run(looks: Sequence[Any]) -> dict[str, Any]:
        scale = alt.Scale(domain=list(runs), range=[*islice(cycle(looks), len(runs))])
        return {"scale": scale, "legend": legend}  # one for all: Vega warns of others of the same field

    return _RunLooks(
        {"strokeDash": alt.StrokeDash("run:N", **by_run(_DASHES))},
        {"shape": alt.Shape("run:N", **by_run(_SHAPES)), "size": alt.Size("run:O", **by_run(_SIZES))},
    )


class _AtEnd(NamedTuple):
    """Expressions of a row: the last step of its line, and where the name of it stands."""

    step: str
    place: str


def _at_end(lines: _LineEnds, runs: Sequence[str]) -> _AtEnd:
    tasks = list(lines.ends)
    keys = [(task, plain(run)) for task in tasks for run in runs]
    place = f"[indexof({text_list(tasks)}, datum.task) * {len(runs)} + indexof({text_list(runs)}, datum.run)]"
    steps, places = ([of.get(key) for key in keys] for of in (lines.last, lines.names))
    return _AtEnd(f"{json.dumps(steps)}{place}", f"{json.dumps(places)}{place}")
