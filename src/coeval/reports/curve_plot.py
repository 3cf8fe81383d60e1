"""A figure over training steps: for each run a line with its intervals, its name at its end and in a legend.

Lines that coincide are told apart: later ones are dashed and have smaller marks of another shape, so that
those below them show.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from itertools import cycle, islice
from typing import Any, NamedTuple

from coeval.core.plain import plain
from coeval.reports.chart_spec import (
    Spec,
    chart_spec,
    column,
    columns_noted,
    computed,
    filled_where,
    in_points,
    marks,
    names_legend,
    shown_name,
    text_list,
    where,
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
    ends of the axis; ``shaded``: some mean has an interval."""

    last: Mapping[tuple[str, str], int]
    names: Mapping[tuple[str, str], float]
    ends: Mapping[str, tuple[float, float]]
    steps: list[int]
    shaded: bool


def curve_plot(table: ReportTable, runs: Sequence[str], title: str) -> Spec:
    """Of the columns ``run``, ``task``, ``step``, ``mean`` (a measure) and ``comparable``, which fills the
    mark; ``title`` is that of the axis."""
    lines = _lines(table, _HEIGHT)
    layers = _curves(runs, lines, title, next(iter(lines.ends.values()), None))
    return chart_spec(table.name, layers, _HEIGHT, *_POINTS, width=860)


def curve_grid(table: ReportTable, tasks: Sequence[str], runs: Sequence[str]) -> Spec:
    """A small plot for each ``task``, each with its own scale."""
    header = {"labelFontSize": 13, "labelExpr": shown_name(tasks, 40), "labelLimit": 0}
    layers = _curves(runs, _lines(table, _CELL["height"]))
    return {
        "data": {"name": table.name},
        "transform": [*_POINTS],
        "facet": column("task:N", sort=list(tasks), title=None, header=header),
        "columns": min(_COLUMNS, len(tasks)),
        "resolve": {"scale": {"y": "independent"}, "axis": {"x": "independent"}},
        "spec": {"layer": layers, **_CELL},
    }


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
    shaded = any(row["mean_low"] is not None for row in rows)
    return _LineEnds(last, names, ends, sorted({row["step"] for row in rows}), shaded)


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


# Of all layers.
_POINTS = (*in_points("mean"), where("isValid(datum.mean)"))


def _curves(
    runs: Sequence[str],
    lines: _LineEnds,
    title: str | None = None,
    ends: tuple[float, float] | None = None,
) -> list[Spec]:
    """``title`` is that of the axis of means, which ``ends`` there; None: by the rows."""
    legend = names_legend(runs, symbolOpacity=1, symbolStrokeWidth=0) if len(runs) > 1 else None
    colour = column("run:N", scale={"domain": list(runs)}, legend=legend)
    dashed, marked = _run_looks(runs, legend)
    ticks = {"values": lines.steps, "format": "d", "labelOverlap": "greedy", "labelFlush": False}
    fitted = {"zero": False, "nice": False}
    x = column("step:Q", title="step", scale=fitted | {"padding": 10}, axis=ticks | {"grid": False})
    scale = fitted | ({"domain": list(ends)} if ends else {"padding": 8})
    y = column("mean:Q", title=title, scale=scale, axis={"tickCount": 6})
    reported = [
        *columns_noted("run:N", "step:Q"),
        column("mean:Q", format=".1f"),
        column("mean_low:Q", title="from", format=".1f"),
        column("mean_high:Q", title="to", format=".1f"),
        column("n_items:Q", title="items"),
    ]
    low = column("mean_low:Q", title=title, scale=scale)
    interval = {"x": x, "y": low, "y2": {"field": "mean_high"}, "color": colour}
    point = {"x": x, "y": y, "color": colour, **marked, "tooltip": reported}
    shaded = [marks("area", interval, where("isValid(datum.mean_low)"), opacity=0.13)]
    layers = [
        *(shaded if lines.shaded else []),  # Vega warns of an empty layer
        marks("line", {"x": x, "y": y, "color": colour, **dashed}, strokeWidth=2),
        marks("point", point, strokeWidth=2, fill="white"),
        marks("point", point | {"opacity": filled_where("datum.comparable")}, filled=True),
    ]
    if len(runs) > 1:
        step, place = _at_end(lines, runs)
        called = shown_name(runs, _LONGEST, of="datum.run", narrow=_LONGEST_NARROW)
        ended = (
            *computed(end=step, name_at=place),
            where("datum.step === datum.end"),
            *computed(called=called),
        )
        beside = {"x": x, "y": column("name_at:Q", scale=scale, title=title), "color": colour}
        layers.append(marks("text", beside | {"text": column("called:N")}, *ended, align="left", dx=10))
    return layers


def _run_looks(runs: Sequence[str], legend: Spec | None) -> tuple[Spec, Spec]:
    """Channels of lines, and of the marks on them."""
    if legend is None:
        return {}, {"size": {"value": _SIZES[1]}}

    def by_run(kind: str, looks: Sequence[Any]) -> Spec:
        scale = {"domain": list(runs), "range": [*islice(cycle(looks), len(runs))]}
        # One legend: Vega warns of others of the same field.
        return column(f"run:{kind}", scale=scale, legend=legend)

    marked = {"shape": by_run("N", _SHAPES), "size": by_run("O", _SIZES)}
    return {"strokeDash": by_run("N", _DASHES)}, marked


def _at_end(lines: _LineEnds, runs: Sequence[str]) -> tuple[str, str]:
    """Expressions of a row: the last step of its line, and where the name of it stands."""
    tasks = list(lines.ends)
    keys = [(task, plain(run)) for task in tasks for run in runs]
    place = f"[indexof({text_list(tasks)}, datum.task) * {len(runs)} + indexof({text_list(runs)}, datum.run)]"
    steps, places = ([of.get(key) for key in keys] for of in (lines.last, lines.names))
    return f"{json.dumps(steps)}{place}", f"{json.dumps(places)}{place}"
