"""The pictures of reports, each a Vega-Lite specification over the rows of one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import altair as alt

from coeval.reports.chart_spec import (
    LONGEST_NAME,
    chart_spec,
    coloured_marks,
    in_points,
    interval_marks,
    measure_tips,
    model_colour,
    named,
    names_axis,
    names_legend,
    shown_name,
    text_list,
    with_ends,
)

# --- Judge biases

# Pixels per judge and between biases: points of 10 pixels must not touch.
_BIAS_STEP, _GAP = 16, 14


def bias_plot(
    table: str, biases: Sequence[str], judges: Sequence[str], models: Sequence[str]
) -> dict[str, Any]:
    """Of a table with the columns ``bias``, ``judge``, ``value`` (a measure) and ``sure``."""
    base = with_ends(in_points(alt.Chart(named(table)), "value"), "value")
    shared: dict[str, Any] = {
        "y": alt.Y("bias:N", sort=list(biases), title=None, axis=names_axis(biases)),
        "yOffset": alt.YOffset("judge:N", sort=list(judges)),
        "color": alt.Color(
            "judge:N",
            scale=alt.Scale(domain=list(models)),
            legend=names_legend(judges, values=list(judges)),
        ),
        "tooltip": [alt.Tooltip("judge:N"), alt.Tooltip("bias:N"), *measure_tips("value", written="+.1f")],
    }
    zero = alt.Chart().mark_rule(strokeDash=[3, 3]).encode(x=alt.datum(0))
    marks = interval_marks(base, "value", (alt.X("begin:Q", title="points"), "end:Q"), 65, 2, **shared)
    chart = alt.layer(zero, *marks, data=named(table))
    return chart_spec(chart, max(len(biases), 1) * (len(judges) * _BIAS_STEP + _GAP))


# --- Forest plot

OVERALL, EACH_TASK = "overall", "by task"
# Pixels per row: a line of text, and an interval that is seen as a row of its own.
_FOREST_STEP = 30
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
        in_points(alt.Chart(named(table)).transform_filter(_CHOSEN), "score")
        .transform_filter("isValid(datum.score)")
        .transform_calculate(row=f"({_OVERALL} ? '' : ({task}) + ' · ') + ({student})")
    )
    y = alt.Y("row:N", sort=None, title=None, axis=names_axis(()))
    low = alt.X(
        "score_low:Q",
        scale=alt.Scale(domain=[0, 100]),
        title="score, points",
        axis=alt.Axis(tickCount=8, labelOverlap="greedy", labelSeparation=6),
    )
    colour = model_colour("student", models)
    shown = [
        *map(alt.Tooltip, ("student:N", "task:N")),
        *measure_tips("score", "items"),
        alt.Tooltip("ranks:N"),
    ]
    band = (
        base.transform_window(place="row_number()")
        .transform_calculate(until=f"datum.place === 1 && {_OVERALL} ? datum.score_high : datum.score_low")
        .mark_rect(opacity=0.12)
        .encode(x=low, x2="until:Q", color=colour)
    )
    marks = coloured_marks(base, "score", low, y=y, color=colour, tooltip=shown)
    ranks = (
        base.transform_filter("isValid(datum.ranks)")
        .mark_text(align="left", dx=12)
        .encode(y=y, x=alt.value("width"), text="ranks:N")
    )
    chart = alt.layer(band, *marks, ranks).add_params(chosen, by)
    return chart_spec(chart, max(len(students), 1) * _FOREST_STEP) | {"usermeta": {"step": _FOREST_STEP}}


# --- Heat map

# Of a score: where all differences are smaller, none has the strongest colour.
NOTEWORTHY = 0.1

# Pixels per row: a figure of 11 pixels with air around it.
_HEAT_STEP = 26
# Pixels of a column: the most that it makes good use of, the least with a number, and without.
_COLUMN, _NARROW, _UNWRITTEN = 110, 52, 22
# Pixels of names beside rows, and of a letter.
_LABELS, _LETTER = 220, 8
# Characters of a name above a column that has room.
_LONGEST_LEVEL = _COLUMN // _LETTER
_DOTTED = len("● +12.3") + 1
# Up to so many columns have their names above them level, if these are short, and numbers in their cells.
_FEW_COLUMNS, _MOST_WRITTEN = 4, 24


class HeatMap(NamedTuple):
    """``rows`` and ``columns`` are the values of the columns ``row`` and ``column`` of the table, in order.
    ``value`` is written. ``shade`` gives the colour: none at 0, strongest at ``most`` and at ``-most``. Where
    the column ``dot`` is true, a dot stands before the number. ``format`` is d3's. ``points``: the columns
    among them that are scores or differences of scores."""

    table: str
    row: str
    column: str
    value: str
    shade: str
    rows: Sequence[str]
    columns: Sequence[str]
    most: float
    format: str = ".2f"
    dot: str = ""
    tooltip: Sequence[str] = ()
    points: Sequence[str] = ()


def heat_map(grid: HeatMap) -> dict[str, Any]:
    """``tooltip`` names further columns that a cell tells of."""
    many = len(grid.columns) > _FEW_COLUMNS
    names = dict.fromkeys((*grid.rows, *grid.columns))  # together, so that a name has one label
    above = names_axis(names, narrow=LONGEST_NAME, orient="top", labelAngle=-90)
    if not many:
        above = names_axis(names, _LONGEST_LEVEL, orient="top", labelAngle=0)
    column = alt.X(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=above)
    row = alt.Y(
        f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names_axis(names, narrow=LONGEST_NAME)
    )
    most = (grid.most or 1.0) * (
        100 if grid.shade in grid.points else 1
    )  # where all are 0, none has a colour
    scale = alt.Scale(interpolate="rgb", domain=[-most, 0, most], range="diverging", clamp=True)
    reported = [
        alt.Tooltip(f"{grid.row}:N"),
        alt.Tooltip(f"{grid.column}:N"),
        alt.Tooltip(f"{grid.value}:Q", format=grid.format),
        *(
            alt.Tooltip("shown_p:N", title="p")
            if name == "p"
            else alt.Tooltip(f"{name}:Q", title=name.replace("_", " "), format=_tooltip_format(name, grid))
            for name in grid.tooltip
        ),
    ]
    base = (
        in_points(alt.Chart(named(grid.table)), *grid.points) if grid.points else alt.Chart(named(grid.table))
    )
    if "p" in grid.tooltip:  # as `coeval.core.text.probability` has it
        base = base.transform_calculate(shown_p="datum.p < 0.001 ? '<0.001' : format(datum.p, '.3f')")
    base = base.encode(y=row, x=column, tooltip=reported)
    cells = base.mark_rect(cornerRadius=3).encode(
        color=alt.Color(f"{grid.shade}:Q", scale=scale, legend=None)
    )
    written = len(grid.columns) <= _MOST_WRITTEN
    layers = [cells, _numbers(base, grid, many=many)] if written else [cells]
    columns = max(len(grid.columns), 1)
    spec = chart_spec(alt.layer(*layers), max(len(grid.rows), 1) * _HEAT_STEP, _LABELS + _COLUMN * columns)
    narrowest = (_NARROW if written else _UNWRITTEN) if many else _least_level(grid.columns)
    least = _LABELS + narrowest * columns
    spec["usermeta"] |= {"row": grid.row, "step": _HEAT_STEP, "least": least}
    return spec


def _tooltip_format(name: str, grid: HeatMap) -> str:
    """Of d3: one decimal for scores."""
    return ".1f" if name.removesuffix("_low").removesuffix("_high") in grid.points else ".3~f"


def _least_level(columns: Sequence[str]) -> int:
    """Pixels of a column with its name level above it, or with a dot and three digits."""
    return _LETTER * max(_DOTTED, min(_LONGEST_LEVEL, max(map(len, columns), default=0)))


def _numbers(base: alt.Chart, grid: HeatMap, *, many: bool) -> alt.Chart:
    number = f"format(datum['{grid.value}'], '{grid.format}')"
    if grid.dot:
        number = f"(datum['{grid.dot}'] ? '● ' : '') + {number}"
    known = base.transform_filter(f"isValid(datum['{grid.value}'])").transform_calculate(written=number)
    numbers: alt.Chart = known.mark_text(fontSize=11 if many else 12).encode(text="written:N")
    return numbers


# --- Intervals beside a reference line

# Pixels per row: a line of text and an interval.
_INTERVAL_STEP = 28


def interval_plot(table: str, rows: Sequence[str], title: str) -> dict[str, Any]:
    """Of the columns ``row``, ``shown`` (a measure) and ``sure``, which fills the mark, those that ``rows``
    names; ``title`` is that of the axis."""
    chosen = alt.FieldOneOfPredicate(field="row", oneOf=list(rows))
    base = with_ends(in_points(alt.Chart(named(table)).transform_filter(chosen), "shown"), "shown")
    y = alt.Y("row:N", sort=list(rows), title=None, axis=names_axis(rows, 56, narrow=24))
    scale = alt.Scale(zero=False, nice=True, padding=6)
    tips = [alt.Tooltip("row:N", title="of"), *measure_tips("shown", "n", title="value")]
    low = alt.X("begin:Q", scale=scale, title=title, axis=alt.Axis(tickCount=8))
    marks = interval_marks(base, "shown", (low, "end:Q"), 100, y=y, tooltip=tips)
    return chart_spec(alt.layer(*marks), max(len(rows), 1) * _INTERVAL_STEP)


# --- Item difficulty and discrimination


def item_dots(table: str, flags: Sequence[str]) -> dict[str, Any]:
    """Of a table with the columns ``item``, ``task``, ``teacher``, ``difficulty``, ``discrimination`` and
    ``flag``: the first of ``flags`` is that of items that nothing is wrong with."""
    chart = (
        in_points(alt.Chart(named(table)), "difficulty")
        .transform_filter("isValid(datum.difficulty)")
        .transform_calculate(height="isValid(datum.discrimination) ? datum.discrimination : 0")
        .mark_point(filled=True, opacity=0.65, size=36)
        .encode(
            x=alt.X(
                "difficulty:Q", scale=alt.Scale(domain=[0, 100]), title="difficulty: 100 less the mean score"
            ),
            y=alt.Y("height:Q", title="discrimination"),
            color=alt.Color(
                "flag:N",
                scale=alt.Scale(domain=list(flags)),
                legend=names_legend(flags),
            ),
            tooltip=[
                alt.Tooltip("item:N"),
                alt.Tooltip("task:N"),
                alt.Tooltip("teacher:N"),
                alt.Tooltip("difficulty:Q", format=".1f"),
                alt.Tooltip("discrimination:Q", format=".2f"),
                alt.Tooltip("flag:N"),
            ],
        )
    )
    return chart_spec(chart, 300, 760)


# --- Label accuracy

# Pixels per row: a line of text and an interval.
_LABEL_STEP = 28


def label_plot(table: str, rows: Sequence[tuple[str, str, str]], models: Sequence[str]) -> dict[str, Any]:
    """Of a table with the columns ``student``, ``task``, ``label`` and ``accuracy`` (a measure); ``rows`` are
    its students, tasks and labels, in order. Several labels are named beside the students."""
    students, tasks, labels = (list(dict.fromkeys(part)) for part in zip(*rows, strict=True))
    name = shown_name(students, of="datum.student")
    if len({(task, label) for _, task, label in rows}) > 1:
        task, label = shown_name(tasks, 16, of="datum.task"), shown_name(labels, 16, of="datum.label")
        name = f"({task}) + ' (' + ({label}) + ') · ' + ({name})"
    base = in_points(alt.Chart(named(table)).transform_filter("isValid(datum.accuracy)"), "accuracy")
    base = base.transform_calculate(place=name)
    y = alt.Y("place:N", sort=None, title=None, axis=names_axis(()))
    tips = [*map(alt.Tooltip, ("student:N", "task:N", "label:N")), *measure_tips("accuracy", "answers")]
    x = alt.X(
        "accuracy_low:Q",
        scale=alt.Scale(domain=[0, 100]),
        title="accuracy, points",
        axis=alt.Axis(tickCount=6),
    )
    colour = model_colour("student", models)
    marks = coloured_marks(base, "accuracy", x, y=y, color=colour, tooltip=tips)
    return chart_spec(alt.layer(*marks), max(len(rows), 1) * _LABEL_STEP)


# --- Quality against cost


def value_plot(table: str, amount: str, title: str, models: Sequence[str], *, log: bool) -> dict[str, Any]:
    """Of the columns ``student``, ``score`` (a measure, 0 to 1), the ``amount`` and its ``…_line``: whether a
    student is on the line that is drawn; ``log``: amounts on a logarithmic axis."""
    base = (
        alt.Chart(named(table))
        .transform_filter(f"isValid(datum.score) && isValid(datum['{amount}'])")
        .transform_calculate(
            points="100 * datum.score",
            low="100 * (isValid(datum.score_low) ? datum.score_low : datum.score)",
            high="100 * (isValid(datum.score_high) ? datum.score_high : datum.score)",
        )
    )
    scale = alt.Scale(type="log", nice=False, padding=40) if log else alt.Scale(zero=False, padding=40)
    x = alt.X(f"{amount}:Q", title=title, scale=scale, axis=alt.Axis(tickCount=5, format="~g"))
    y = alt.Y("points:Q", title="points", scale=alt.Scale(zero=False, nice=True))
    shown = [
        alt.Tooltip("student:N"),
        alt.Tooltip("points:Q", format=".1f"),
        alt.Tooltip("low:Q", title="from", format=".1f"),
        alt.Tooltip("high:Q", title="to", format=".1f"),
        alt.Tooltip(f"{amount}:Q", title=title, format=".3~g"),
    ]
    colour = model_colour("student", models)
    line = (
        base.transform_filter(f"datum['{amount}_line']")
        .mark_line(strokeDash=[4, 3], strokeWidth=1.5, interpolate="step-after")
        .encode(x=x, y=y, order=f"{amount}:Q")
    )
    bar = base.mark_rule(strokeWidth=2).encode(x=x, y=alt.Y("low:Q"), y2="high:Q", color=colour)
    point = base.mark_point(filled=True, size=110, opacity=1).encode(x=x, y=y, color=colour, tooltip=shown)
    # Names stand towards the middle, so that none is cut at an edge, and of those who are beaten below. Each
    # layer has all rows: of none, Vega warns that its axis has no extent.
    middle = "sqrt(datum.least * datum.most)" if log else "(datum.least + datum.most) / 2"
    extent = base.transform_joinaggregate(least=f"min({amount})", most=f"max({amount})")
    whole = shown_name(models, 22, of="datum.student")
    names = []
    for right in ("false", "true"):
        for best in ("true", "false"):
            place: dict[str, Any] = {"align": "left", "dx": 9}
            if right == "true":
                place = {"align": "right", "dx": -9}
            here = f"(datum['{amount}'] > {middle}) === {right} && datum['{amount}_line'] === {best}"
            names.append(
                extent.transform_calculate(name=f"{here} ? ({whole}) : ''")
                .mark_text(**place, dy=-9 if best == "true" else 14)
                .encode(x=x, y=y, text="name:N")
            )
    spec = chart_spec(alt.layer(line, bar, point, *names), 260, 760)
    spec["usermeta"]["needs"] = amount
    return spec


# Pixels per row: a bar with a figure in it.
_SHARE_STEP = 26


def share_bars(
    table: str, fields: tuple[str, str], names: Sequence[str], parts: Sequence[str], *, ranked: bool = False
) -> dict[str, Any]:
    """Of a table with a name and a part in its ``fields``, and the columns ``share`` (0 to 1) and ``count``.
    Where parts are ``ranked``, the first has the strongest of one colour."""
    name, part = fields
    legend = names_legend(parts)
    shades = [1 - 0.75 * place / max(len(parts) - 1, 1) for place in range(len(parts))]
    colour: dict[str, Any] = {
        "color": alt.Color(f"{part}:N", scale=alt.Scale(domain=list(parts)), legend=legend)
    }
    if ranked:
        scale = alt.Scale(domain=list(parts), range=shades)
        colour = {"opacity": alt.Opacity(f"{part}:N", sort=list(parts), scale=scale, legend=legend)}
    chart = (
        alt.Chart(named(table))
        .transform_calculate(order=f"indexof({text_list(parts)}, datum['{part}'])")
        .mark_bar(cornerRadius=2)
        .encode(
            y=alt.Y(f"{name}:N", sort=list(names), title=None, axis=names_axis(names)),
            x=alt.X(
                "share:Q",
                title=None,
                scale=alt.Scale(domainMax=1, clamp=True),
                axis=alt.Axis(format=".0%", tickCount=5),
            ).stack("zero"),
            order="order:Q",
            tooltip=[
                alt.Tooltip(f"{name}:N"),
                alt.Tooltip(f"{part}:N"),
                alt.Tooltip("share:Q", format=".1%"),
                alt.Tooltip("count:Q", format=","),
            ],
            **colour,
        )
    )
    return chart_spec(chart, max(len(names), 1) * _SHARE_STEP)
