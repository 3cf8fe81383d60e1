"""The pictures of reports, each a Vega-Lite specification over the rows of one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.core.figures import IN_POINTS
from coeval.reports.chart_spec import (
    LONGEST_NAME,
    NUMBERED,
    Spec,
    chart_spec,
    coloured_marks,
    column,
    columns_noted,
    computed,
    in_points,
    interval_marks,
    marks,
    measure_tips,
    names_axis,
    names_legend,
    shown_name,
    student_colour,
    text_list,
    where,
    with_ends,
)
from coeval.reports.content import Picture, PictureToggle, ReportTable

# --- Judge biases

# Pixels per judge and between biases: points of 10 pixels must not touch.
_BIAS_STEP, _GAP = 16, 14


def bias_plot(table: str, biases: Sequence[str], judges: Sequence[str], models: Sequence[str]) -> Spec:
    """Of a table with the columns ``bias``, ``judge``, ``value`` (a measure) and ``sure``."""
    legend = names_legend(judges, values=list(judges))
    shared = {
        "y": column("bias:N", sort=list(biases), title=None, axis=names_axis(biases)),
        "yOffset": column("judge:N", sort=list(judges)),
        "color": column("judge:N", scale={"domain": list(models)}, legend=legend),
        "tooltip": [*columns_noted("judge:N", "bias:N"), *measure_tips("value", written="+.1f")],
    }
    zero = marks("rule", {"x": {"datum": 0}}, strokeDash=[3, 3])
    drawn = interval_marks("value", (column("begin:Q", title="points"), "end"), 65, 2, **shared)
    height = max(len(biases), 1) * (len(judges) * _BIAS_STEP + _GAP)
    return chart_spec(table, [zero, *drawn], height, *in_points("value"), *with_ends("value"))


# --- Forest plot

OVERALL, EACH_TASK = "overall", "by task"
# Pixels per row: a line of text, and an interval that is seen as a row of its own.
_FOREST_STEP = 30
_OVERALL = f"by === '{OVERALL}'"
_CHOSEN = f"datum.scores === scores && ({_OVERALL}) === !isValid(datum.task)"


def forest_plot(
    table: str, students: Sequence[str], tasks: Sequence[str], models: Sequence[str], scores: str
) -> Spec:
    """Of the columns ``scores``, ``task``, ``student``, ``score`` (a measure) and ``ranks``, which stand at
    the right. Two parameters choose among the rows, which stand in the order of the table: ``scores``, at
    first the one given, and ``by``, `OVERALL` (rows without a task) or `EACH_TASK`. Overall the first
    student's interval lies behind all as a band."""
    student, task = (shown_name(students, of="datum.student"), shown_name(tasks, 16, of="datum.task"))
    y = column("row:N", sort=None, title=None, axis=names_axis(()))
    ticks = {"tickCount": 8, "labelOverlap": "greedy", "labelSeparation": 6}
    low = column("score_low:Q", scale={"domain": [0, 100]}, title="score, points", axis=ticks)
    colour = student_colour(models)
    shown = [*columns_noted("student:N", "task:N"), *measure_tips("score", "items"), column("ranks:N")]
    until = f"datum.place === 1 && {_OVERALL} ? datum.score_high : datum.score_low"
    first = {"x": low, "x2": {"field": "until"}, "color": colour}
    ranks = {"y": y, "x": {"value": "width"}, "text": column("ranks:N")}
    layers = [
        marks("rect", first, NUMBERED, *computed(until=until), opacity=0.12),
        *coloured_marks("score", low, y=y, color=colour, tooltip=shown),
        marks("text", ranks, where("isValid(datum.ranks)"), align="left", dx=12),
    ]
    rows = (
        where(_CHOSEN),
        *in_points("score"),
        where("isValid(datum.score)"),
        *computed(row=f"({_OVERALL} ? '' : ({task}) + ' · ') + ({student})"),
    )
    spec = chart_spec(table, layers, max(len(students), 1) * _FOREST_STEP, *rows)
    chosen = [{"name": "scores", "value": scores}, {"name": "by", "value": OVERALL}]
    return spec | {"params": chosen, "usermeta": {"step": _FOREST_STEP}}


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
    ``value`` is written. ``shade`` (by default the same) gives the colour: none at 0, strongest at its
    largest amount, and at no less than ``least``. Where the column ``dot`` is true, a dot stands before the
    number. ``format`` is d3's. ``tooltip`` names further columns that a cell tells of."""

    table: ReportTable
    row: str
    column: str
    value: str
    rows: Sequence[str]
    columns: Sequence[str]
    shade: str = ""
    least: float = 0.0
    format: str = ".2f"
    dot: str = ""
    tooltip: Sequence[str] = ()

    @property
    def points(self) -> list[str]:
        """The columns shown that are scores or differences of scores."""
        shown = {self.value, self.shade, *self.tooltip}
        return [one.name for one in self.table.columns if one.name in shown and one.kind in IN_POINTS]


def heat_map(name: str, title: str, grid: HeatMap, toggles: Sequence[PictureToggle] = ()) -> Picture:
    """Draw the rows of the grid's table, or those that its ``chosen`` values choose."""
    grid, table = grid._replace(shade=grid.shade or grid.value), grid.table
    many = len(grid.columns) > _FEW_COLUMNS
    names = dict.fromkeys((*grid.rows, *grid.columns))  # together, so that a name has one label
    above = names_axis(names, narrow=LONGEST_NAME, orient="top", labelAngle=-90)
    if not many:
        above = names_axis(names, _LONGEST_LEVEL, orient="top", labelAngle=0)
    # Where all are 0, none has a colour.
    most = table.largest(grid.shade, grid.least) or 1.0
    most *= 100 if grid.shade in grid.points else 1
    scale = {"interpolate": "rgb", "domain": [-most, 0, most], "range": "diverging", "clamp": True}
    points = {f"{name}{end}" for name in grid.points for end in ("", "_low", "_high")}
    reported = [
        *columns_noted(f"{grid.row}:N", f"{grid.column}:N"),
        column(f"{grid.value}:Q", format=grid.format),
        *(
            column("shown_p:N", title="p")
            if name == "p"
            else column(f"{name}:Q", title=name.replace("_", " "), format=".1f" if name in points else ".3~f")
            for name in grid.tooltip
        ),
    ]
    rows = in_points(*grid.points)
    if "p" in grid.tooltip:  # as `coeval.core.text.probability` has it
        rows += computed(shown_p="datum.p < 0.001 ? '<0.001' : format(datum.p, '.3f')")
    place = {
        "y": column(
            f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names_axis(names, narrow=LONGEST_NAME)
        ),
        "x": column(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=above),
        "tooltip": reported,
    }
    cells = {**place, "color": column(f"{grid.shade}:Q", scale=scale, legend=None)}
    layers = [marks("rect", cells, cornerRadius=3)]
    if written := len(grid.columns) <= _MOST_WRITTEN:
        layers.append(_numbers(place, grid, many=many))
    columns = max(len(grid.columns), 1)
    # with its name level above it, or with a dot and three digits
    longest = max(map(len, grid.columns), default=0)
    narrowest = (
        (_NARROW if written else _UNWRITTEN) if many else _LETTER * max(_DOTTED, min(_LONGEST_LEVEL, longest))
    )
    height, width = max(len(grid.rows), 1) * _HEAT_STEP, _LABELS + _COLUMN * columns
    spec = chart_spec(table.name, layers, height, *_conditions(table), *rows, width=width)
    spec["usermeta"] |= {"row": grid.row, "step": _HEAT_STEP, "least": _LABELS + narrowest * columns}
    return Picture(name, title, table.name, spec | _parameters(table), tuple(toggles))


def _numbers(place: Spec, grid: HeatMap, *, many: bool) -> Spec:
    number = f"format(datum['{grid.value}'], '{grid.format}')"
    if grid.dot:
        number = f"(datum['{grid.dot}'] ? '● ' : '') + {number}"
    known = (where(f"isValid(datum['{grid.value}'])"), *computed(written=number))
    return marks("text", {**place, "text": column("written:N")}, *known, fontSize=11 if many else 12)


# --- Intervals beside a reference line

# Pixels per row: a line of text and an interval.
_INTERVAL_STEP = 28


def interval_plot(table: str, rows: Sequence[str]) -> Spec:
    """Of the columns ``row``, ``shown`` (a measure, in points) and ``sure``, which fills the mark, those that
    ``rows`` names."""
    chosen = {"filter": {"field": "row", "oneOf": list(rows)}}
    y = column("row:N", sort=list(rows), title=None, axis=names_axis(rows, 56, narrow=24))
    scale = {"zero": False, "nice": True, "padding": 6}
    tips = [column("row:N", title="of"), *measure_tips("shown", "n", title="value")]
    low = column("begin:Q", scale=scale, title="points", axis={"tickCount": 8})
    layers = interval_marks("shown", (low, "end"), 100, y=y, tooltip=tips)
    height = max(len(rows), 1) * _INTERVAL_STEP
    return chart_spec(table, layers, height, chosen, *in_points("shown"), *with_ends("shown"))


# --- Item difficulty and discrimination


def item_dots(table: str, flags: Sequence[str]) -> Spec:
    """Of a table with the columns ``item``, ``task``, ``teacher``, ``difficulty``, ``discrimination`` and
    ``flag``: the first of ``flags`` is that of items that nothing is wrong with."""
    title = "difficulty (100 − mean score)"
    places = {
        "x": column("difficulty:Q", scale={"domain": [0, 100]}, title=title),
        "y": column("height:Q", title="discrimination"),
        "color": column("flag:N", scale={"domain": list(flags)}, legend=names_legend(flags)),
        "tooltip": [
            *columns_noted("item:N", "task:N", "teacher:N"),
            column("difficulty:Q", format=".1f"),
            column("discrimination:Q", format=".2f"),
            column("flag:N"),
        ],
    }
    rows = (
        *in_points("difficulty"),
        where("isValid(datum.difficulty)"),
        *computed(height="isValid(datum.discrimination) ? datum.discrimination : 0"),
    )
    dots = marks("point", places, filled=True, opacity=0.65, size=36)
    return chart_spec(table, [dots], 300, *rows, width=760)


# --- Quality against cost


def value_plot(table: str, amount: str, title: str, models: Sequence[str], *, log: bool) -> Spec:
    """Of the columns ``student``, ``score`` (a measure, 0 to 1), the ``amount`` and its ``…_line``: whether a
    student is on the line that is drawn; ``log``: amounts on a logarithmic axis."""
    rows = (
        where(f"isValid(datum.score) && isValid(datum['{amount}'])"),
        *computed(
            points="100 * datum.score",
            low="100 * (isValid(datum.score_low) ? datum.score_low : datum.score)",
            high="100 * (isValid(datum.score_high) ? datum.score_high : datum.score)",
        ),
    )
    scale = {"type": "log", "nice": False} if log else {"zero": False}
    x = column(
        f"{amount}:Q", title=title, scale=scale | {"padding": 40}, axis={"tickCount": 5, "format": "~g"}
    )
    y = column("points:Q", title="points", scale={"zero": False, "nice": True})
    shown = [
        column("student:N"),
        column("points:Q", format=".1f"),
        column("low:Q", title="from", format=".1f"),
        column("high:Q", title="to", format=".1f"),
        column(f"{amount}:Q", title=title, format=".3~g"),
    ]
    colour = student_colour(models)
    best = where(f"datum['{amount}_line']")
    look = {"strokeDash": [4, 3], "strokeWidth": 1.5, "interpolate": "step-after"}
    bar = {"x": x, "y": column("low:Q"), "y2": {"field": "high"}, "color": colour}
    point = {"x": x, "y": y, "color": colour, "tooltip": shown}
    layers = [
        marks("line", {"x": x, "y": y, "order": column(f"{amount}:Q")}, best, **look),
        marks("rule", bar, strokeWidth=2),
        marks("point", point, filled=True, size=110, opacity=1),
        *_names_towards_middle(amount, models, {"x": x, "y": y, "text": column("name:N")}, log=log),
    ]
    spec = chart_spec(table, layers, 260, *rows, width=760)
    spec["usermeta"]["needs"] = amount
    return spec


def _names_towards_middle(amount: str, models: Sequence[str], places: Spec, *, log: bool) -> Iterator[Spec]:
    """Names stand towards the middle, so that none is cut at an edge, and of those who are beaten below. Each
    layer has all rows: of none, Vega warns that its axis has no extent."""
    middle = "sqrt(datum.least * datum.most)" if log else "(datum.least + datum.most) / 2"
    ends = [{"op": op, "field": amount, "as": name} for op, name in (("min", "least"), ("max", "most"))]
    whole = shown_name(models, 22, of="datum.student")
    for right, align, dx in (("false", "left", 9), ("true", "right", -9)):
        for best, dy in (("true", -9), ("false", 14)):
            here = f"(datum['{amount}'] > {middle}) === {right} && datum['{amount}_line'] === {best}"
            named = computed(name=f"{here} ? ({whole}) : ''")
            yield marks("text", places, {"joinaggregate": ends}, *named, align=align, dx=dx, dy=dy)


# --- Comparisons
#
# Differences from a baseline that a reader chooses, and every pair.

# Pixels per row: a line of text, and an interval that is seen as a row of its own.
_DIFFERENCE_STEP = 26
# Rows of a picture; the table has all.
_MOST_DRAWN = 60
# Pixels: each half's words have a line of their own, so that long ones do not run into each other.
_LINE = 16
# Pixels of a picture's place below which a figure stands without its interval.
_NARROW_FIGURES = 480
# Characters of a name beside the picture, and where its place is narrow.
_LONGEST_ROW, _LONGEST_NARROW_ROW = 44, 20


def difference_forest(table: ReportTable, others: Mapping[str, str]) -> Spec:
    """Of the columns ``row``, ``baseline``, ``difference`` (a measure, from 0 to 1) and ``sure``, which
    fills the mark, those rows that are chosen. ``others``: by baseline, who is better where a number is
    positive."""
    rows = dict.fromkeys(str(row[0]) for row in table.rows)
    most = 100 * table.largest("difference", 0.01, ends=True)
    names = names_axis(rows, _LONGEST_ROW, narrow=_LONGEST_NARROW_ROW)
    y = column("row:N", sort=None, title=None, axis=names)
    ends = {"domain": [-most, most], "nice": True}
    x = column("difference_low:Q", scale=ends, title="points", axis={"tickCount": 6})
    of = [column("row:N", title="of"), column("baseline:N", title="against")]
    tips = [*of, *measure_tips("difference", "items", written="+.1f")]
    number = "format(datum.difference, '+.1f')"
    bounds = "' [' + format(datum.difference_low, '.1f') + ', ' + format(datum.difference_high, '.1f') + ']'"
    figures = computed(figures=f"{number} + (containerSize()[0] < {_NARROW_FIGURES} ? '' : {bounds})")
    beside = {"y": y, "x": {"value": "width"}, "text": column("figures:N")}
    better = f"{text_list(others.values())}[indexof({text_list(others)}, baseline)]"
    layers = [
        marks("rule", {"x": {"datum": 0}}, strokeDash=[3, 3]),
        *interval_marks("difference", (x, "difference_high"), 90, y=y, tooltip=tips),
        marks("text", beside, *figures, align="left", dx=8),
        _words("'← better: ' + baseline", "left", 0, 2),
        _words(f"'better: ' + {better} + ' →'", "right", "width", 1),
    ]
    drawn = (
        *in_points("difference"),
        *_conditions(table),
        where("isValid(datum.difference)"),
        NUMBERED,
        where(f"datum.place <= {_MOST_DRAWN}"),
    )
    height = max(min(len(table.first_rows), _MOST_DRAWN), 1) * _DIFFERENCE_STEP
    spec = chart_spec(table.name, layers, height, *drawn)
    return spec | _parameters(table) | {"usermeta": {"step": _DIFFERENCE_STEP, "most": _MOST_DRAWN}}


def _words(words: str, align: str, edge: float | str, line: int) -> Spec:
    """Above the plot, at one of its edges."""
    places = {"x": {"value": edge}, "y": {"value": 0}, "text": column("words:N")}
    once = where("datum.place === 1")
    return marks("text", places, once, *computed(words=words), align=align, dy=-_LINE * line + _LINE // 2)


def _conditions(table: ReportTable) -> list[Spec]:
    """Transforms that keep the rows which the parameters choose."""
    return [where(f"datum.{name} === {name}") for name in table.chosen]


def _parameters(table: ReportTable) -> Spec:
    params = [{"name": name, "value": value} for name, value in table.chosen.items()]
    return {"params": params} if params else {}
