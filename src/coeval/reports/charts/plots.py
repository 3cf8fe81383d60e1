"""The pictures of reports, each a Vega-Lite specification over the rows of one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from coeval.core.figures import FORMATS, IN_POINTS
from coeval.reports.charts.chart_spec import (
    LONGEST_NAME,
    NUMBER_ROWS,
    Spec,
    add_columns,
    chart_spec,
    colour_by_student,
    encode_column,
    encode_columns,
    filter_rows,
    interval_layers,
    keep_rows_with_ends,
    make_layer,
    measure_tooltip,
    names_axis,
    names_legend,
    quote_names,
    scale_to_points,
    short_name_expression,
)
from coeval.reports.content import Picture, PictureToggle, ReportTable

# --- Judge biases

# Pixels per judge and between biases: points of 10 pixels must not touch.
_BIAS_STEP, _GAP = 16, 14


def bias_plot(table: str, biases: Sequence[str], judges: Sequence[str], models: Sequence[str]) -> Spec:
    """Draw the columns ``bias``, ``judge``, ``value`` (a measure) and ``sure`` of a table."""
    legend = names_legend(judges, values=list(judges))
    shared = {
        "y": encode_column("bias:N", sort=list(biases), title=None, axis=names_axis(biases)),
        "yOffset": encode_column("judge:N", sort=list(judges)),
        "color": encode_column("judge:N", scale={"domain": list(models)}, legend=legend),
        "tooltip": [*encode_columns("judge:N", "bias:N"), *measure_tooltip("value", number_format="+.1f")],
    }
    zero = make_layer("rule", {"x": {"datum": 0}}, strokeDash=[3, 3])
    drawn = interval_layers("value", (encode_column("begin:Q", title="points"), "end"), 65, 2, **shared)
    height = max(len(biases), 1) * (len(judges) * _BIAS_STEP + _GAP)
    return chart_spec(table, [zero, *drawn], height, *scale_to_points("value"), *keep_rows_with_ends("value"))


# --- Forest plot

OVERALL, EACH_TASK = "overall", "by task"
# Pixels per row: a line of text, and an interval that is seen as a row of its own.
_FOREST_STEP = 30
_IS_OVERALL = f"by === '{OVERALL}'"
_IS_CHOSEN = f"datum.scores === scores && ({_IS_OVERALL}) === !isValid(datum.task)"


def forest_plot(
    table: str, students: Sequence[str], tasks: Sequence[str], models: Sequence[str], scores: str
) -> Spec:
    """Draw the columns ``scores``, ``task``, ``student``, ``score`` (a measure) and ``ranks`` (at the right).

    Two parameters choose rows, drawn in the table's order: ``scores``, at first the argument, and ``by``,
    `OVERALL` (rows without a task) or `EACH_TASK`. Overall, a band behind all rows shows the first
    student's interval.
    """
    student = short_name_expression(students, name_expression="datum.student")
    task = short_name_expression(tasks, 16, name_expression="datum.task")
    y = encode_column("row:N", sort=None, title=None, axis=names_axis(()))
    ticks = {"tickCount": 8, "labelOverlap": "greedy", "labelSeparation": 6}
    low = encode_column("score_low:Q", scale={"domain": [0, 100]}, title="score, points", axis=ticks)
    colour = colour_by_student(models)
    tooltip = [
        *encode_columns("student:N", "task:N"),
        *measure_tooltip("score", "items"),
        encode_column("ranks:N"),
    ]
    until = f"datum.place === 1 && {_IS_OVERALL} ? datum.score_high : datum.score_low"
    first = {"x": low, "x2": {"field": "until"}, "color": colour}
    shared = {"y": y, "color": colour, "tooltip": tooltip}
    ranks = {"y": y, "x": {"value": "width"}, "text": encode_column("ranks:N")}
    layers = [
        make_layer("rect", first, NUMBER_ROWS, *add_columns(until=until), opacity=0.12),
        make_layer(
            "rule", shared | {"x": low, "x2": {"field": "score_high"}}, strokeWidth=3, strokeCap="round"
        ),
        make_layer("point", shared | {"x": encode_column("score:Q")}, filled=True, size=110, opacity=1),
        make_layer("text", ranks, filter_rows("isValid(datum.ranks)"), align="left", dx=12),
    ]
    rows = (
        filter_rows(_IS_CHOSEN),
        *scale_to_points("score"),
        filter_rows("isValid(datum.score)"),
        *add_columns(row=f"({_IS_OVERALL} ? '' : ({task}) + ' · ') + ({student})"),
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
_COLUMN, _NARROW, _NARROW_UNWRITTEN = 110, 52, 22
# Pixels of names beside rows, and of a letter.
_LABELS, _LETTER = 220, 8
# Characters of a name above a column that has room.
_LONGEST_LEVEL = _COLUMN // _LETTER
_DOTTED_NUMBER = len("● +12.3") + 1
# Up to so many columns have their names above them level, if these are short, and numbers in their cells.
_FEW_COLUMNS, _MOST_WRITTEN = 4, 24


class HeatMap(NamedTuple):
    """``rows`` and ``columns`` are the values of the columns ``row`` and ``column`` of the table, in order.
    Cells show ``value``. ``shade`` (by default the same) gives the colour: none at 0, strongest at its
    largest amount, at least ``least``. A dot precedes the number if the column ``dot`` is true. ``format``
    is d3's. ``tooltip`` names further columns of a cell's tooltip."""

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
    def point_columns(self) -> list[str]:
        """Return the drawn columns that are scores or differences of scores."""
        drawn = {self.value, self.shade, *self.tooltip}
        return [
            column.name for column in self.table.columns if column.name in drawn and column.kind in IN_POINTS
        ]


def heat_map(name: str, title: str, grid: HeatMap, toggles: Sequence[PictureToggle] = ()) -> Picture:
    """Draw the rows of the grid's table, or those that its ``chosen`` values choose."""
    grid, table = grid._replace(shade=grid.shade or grid.value), grid.table
    many = len(grid.columns) > _FEW_COLUMNS
    names = dict.fromkeys((*grid.rows, *grid.columns))  # together, so that a name has one label
    above = names_axis(names, narrow=LONGEST_NAME, orient="top", labelAngle=-90)
    if not many:
        above = names_axis(names, _LONGEST_LEVEL, orient="top", labelAngle=0)
    # Where all are 0, none has a colour.
    most = table.largest_amount(grid.shade, grid.least) or 1.0
    most *= 100 if grid.shade in grid.point_columns else 1
    scale = {"interpolate": "rgb", "domain": [-most, 0, most], "range": "diverging", "clamp": True}
    points = {f"{name}{end}" for name in grid.point_columns for end in ("", "_low", "_high")}
    tooltip = [
        *encode_columns(f"{grid.row}:N", f"{grid.column}:N"),
        encode_column(f"{grid.value}:Q", format=grid.format),
        *(
            encode_column("shown_p:N", title="p")
            if name == "p"
            else encode_column(
                f"{name}:Q", title=name.replace("_", " "), format=".1f" if name in points else ".3~f"
            )
            for name in grid.tooltip
        ),
    ]
    rows = scale_to_points(*grid.point_columns)
    if "p" in grid.tooltip:
        style = FORMATS["probability"]
        p_text = f"format(datum.p, '.{style.decimals}f')"
        rows += add_columns(shown_p=f"datum.p < {style.least} ? '<{style.least}' : {p_text}")
    position = {
        "y": encode_column(
            f"{grid.row}:N", sort=list(grid.rows), title=None, axis=names_axis(names, narrow=LONGEST_NAME)
        ),
        "x": encode_column(f"{grid.column}:N", sort=list(grid.columns), title=None, axis=above),
        "tooltip": tooltip,
    }
    cells = {**position, "color": encode_column(f"{grid.shade}:Q", scale=scale, legend=None)}
    layers = [make_layer("rect", cells, cornerRadius=3)]
    if written := len(grid.columns) <= _MOST_WRITTEN:
        layers.append(_number_layer(position, grid, many_columns=many))
    columns = max(len(grid.columns), 1)
    # with its name level above it, or with a dot and three digits
    longest = max(map(len, grid.columns), default=0)
    narrowest = (
        (_NARROW if written else _NARROW_UNWRITTEN)
        if many
        else _LETTER * max(_DOTTED_NUMBER, min(_LONGEST_LEVEL, longest))
    )
    height, width = max(len(grid.rows), 1) * _HEAT_STEP, _LABELS + _COLUMN * columns
    spec = chart_spec(table.name, layers, height, *_parameter_filters(table), *rows, width=width)
    spec["usermeta"] |= {"row": grid.row, "step": _HEAT_STEP, "least": _LABELS + narrowest * columns}
    return Picture(name, title, table.name, spec | _parameters(table), tuple(toggles))


def _number_layer(position: Spec, grid: HeatMap, *, many_columns: bool) -> Spec:
    number = f"format(datum['{grid.value}'], '{grid.format}')"
    if grid.dot:
        number = f"(datum['{grid.dot}'] ? '● ' : '') + {number}"
    numbered = (filter_rows(f"isValid(datum['{grid.value}'])"), *add_columns(written=number))
    encoding = {**position, "text": encode_column("written:N")}
    return make_layer("text", encoding, *numbered, fontSize=11 if many_columns else 12)


# --- Intervals beside a reference line

# Pixels per row: a line of text and an interval.
_INTERVAL_STEP = 28


def interval_plot(table: str, rows: Sequence[str]) -> Spec:
    """Draw ``row``, ``shown`` (a measure, in points) and ``sure``, which fills the mark, of these rows."""
    chosen = {"filter": {"field": "row", "oneOf": list(rows)}}
    y = encode_column("row:N", sort=list(rows), title=None, axis=names_axis(rows, 56, narrow=24))
    scale = {"zero": False, "nice": True, "padding": 6}
    tips = [encode_column("row:N", title="of"), *measure_tooltip("shown", "n", title="value")]
    low = encode_column("begin:Q", scale=scale, title="points", axis={"tickCount": 8})
    layers = interval_layers("shown", (low, "end"), 100, y=y, tooltip=tips)
    height = max(len(rows), 1) * _INTERVAL_STEP
    return chart_spec(table, layers, height, chosen, *scale_to_points("shown"), *keep_rows_with_ends("shown"))


# --- Item difficulty and discrimination


def item_difficulty_plot(table: str, flags: Sequence[str]) -> Spec:
    """Draw ``item``, ``task``, ``teacher``, ``difficulty``, ``discrimination`` and ``flag``; ``flags``: first
    none."""
    title = "difficulty (100 − mean score)"
    places = {
        "x": encode_column("difficulty:Q", scale={"domain": [0, 100]}, title=title),
        "y": encode_column("height:Q", title="discrimination"),
        "color": encode_column("flag:N", scale={"domain": list(flags)}, legend=names_legend(flags)),
        "tooltip": [
            *encode_columns("item:N", "task:N", "teacher:N"),
            encode_column("difficulty:Q", format=".1f"),
            encode_column("discrimination:Q", format=".2f"),
            encode_column("flag:N"),
        ],
    }
    rows = (
        *scale_to_points("difficulty"),
        filter_rows("isValid(datum.difficulty)"),
        *add_columns(height="isValid(datum.discrimination) ? datum.discrimination : 0"),
    )
    dots = make_layer("point", places, filled=True, opacity=0.65, size=36)
    return chart_spec(table, [dots], 300, *rows, width=760)


# --- Quality against cost


def score_by_amount_plot(
    table: str, amount_column: str, axis_title: str, models: Sequence[str], *, log_scale: bool
) -> Spec:
    """Draw scores (0 to 1) against an amount such as cost, with a line through rows whose
    ``{amount_column}_line`` is true."""
    rows = (
        filter_rows(f"isValid(datum.score) && isValid(datum['{amount_column}'])"),
        *add_columns(
            points="100 * datum.score",
            low="100 * (isValid(datum.score_low) ? datum.score_low : datum.score)",
            high="100 * (isValid(datum.score_high) ? datum.score_high : datum.score)",
        ),
    )
    scale = {"type": "log", "nice": False} if log_scale else {"zero": False}
    x = encode_column(
        f"{amount_column}:Q",
        title=axis_title,
        scale=scale | {"padding": 40},
        axis={"tickCount": 5, "format": "~g"},
    )
    y = encode_column("points:Q", title="points", scale={"zero": False, "nice": True})
    tooltip = [
        encode_column("student:N"),
        encode_column("points:Q", format=".1f"),
        encode_column("low:Q", title="from", format=".1f"),
        encode_column("high:Q", title="to", format=".1f"),
        encode_column(f"{amount_column}:Q", title=axis_title, format=".3~g"),
    ]
    colour = colour_by_student(models)
    best = filter_rows(f"datum['{amount_column}_line']")
    line_settings = {"strokeDash": [4, 3], "strokeWidth": 1.5, "interpolate": "step-after"}
    bar = {"x": x, "y": encode_column("low:Q"), "y2": {"field": "high"}, "color": colour}
    point = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers = [
        make_layer(
            "line", {"x": x, "y": y, "order": encode_column(f"{amount_column}:Q")}, best, **line_settings
        ),
        make_layer("rule", bar, strokeWidth=2),
        make_layer("point", point, filled=True, size=110, opacity=1),
        *_name_layers(
            amount_column, models, {"x": x, "y": y, "text": encode_column("name:N")}, log_scale=log_scale
        ),
    ]
    spec = chart_spec(table, layers, 260, *rows, width=760)
    spec["usermeta"]["needs"] = amount_column
    return spec


def _name_layers(
    amount_column: str, models: Sequence[str], position: Spec, *, log_scale: bool
) -> Iterator[Spec]:
    """Place names towards the middle, so that no edge cuts them, and those of beaten students below. Each
    layer has all rows: of an empty one, Vega warns that its axis has no extent."""
    middle = "sqrt(datum.least * datum.most)" if log_scale else "(datum.least + datum.most) / 2"
    ends = [
        {"op": op, "field": amount_column, "as": name} for op, name in (("min", "least"), ("max", "most"))
    ]
    whole = short_name_expression(models, 22, name_expression="datum.student")
    for right, align, dx in (("false", "left", 9), ("true", "right", -9)):
        for best, dy in (("true", -9), ("false", 14)):
            on_side = f"(datum['{amount_column}'] > {middle}) === {right}"
            on_line = f"datum['{amount_column}_line'] === {best}"
            named = add_columns(name=f"{on_side} && {on_line} ? ({whole}) : ''")
            yield make_layer("text", position, {"joinaggregate": ends}, *named, align=align, dx=dx, dy=dy)


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


def baseline_picture(
    name: str, title: str, table: ReportTable, better_by_baseline: Mapping[str, str]
) -> Picture:
    """Draw differences from a baseline that a reader chooses, and of which of the table's third column;
    ``better_by_baseline``: who is better where a difference from that baseline is positive."""
    choices = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    toggles = [PictureToggle("baseline", tuple(better_by_baseline))]
    if len(choices) > 1:
        toggles.append(PictureToggle(table.columns[2].name, choices))
    return Picture(name, title, table.name, _difference_forest(table, better_by_baseline), tuple(toggles))


def _difference_forest(table: ReportTable, better_by_baseline: Mapping[str, str]) -> Spec:
    """Draw the columns ``row``, ``baseline``, ``difference`` (a measure, from 0 to 1) and ``sure``, which
    fills the mark."""
    rows = dict.fromkeys(str(row[0]) for row in table.rows)
    most = 100 * table.largest_amount("difference", 0.01, with_intervals=True)
    names = names_axis(rows, _LONGEST_ROW, narrow=_LONGEST_NARROW_ROW)
    y = encode_column("row:N", sort=None, title=None, axis=names)
    ends = {"domain": [-most, most], "nice": True}
    x = encode_column("difference_low:Q", scale=ends, title="points", axis={"tickCount": 6})
    sides = [encode_column("row:N", title="of"), encode_column("baseline:N", title="against")]
    tips = [*sides, *measure_tooltip("difference", "items", number_format="+.1f")]
    number = "format(datum.difference, '+.1f')"
    bounds = "' [' + format(datum.difference_low, '.1f') + ', ' + format(datum.difference_high, '.1f') + ']'"
    figures = add_columns(figures=f"{number} + (containerSize()[0] < {_NARROW_FIGURES} ? '' : {bounds})")
    beside = {"y": y, "x": {"value": "width"}, "text": encode_column("figures:N")}
    better = (
        f"{quote_names(better_by_baseline.values())}[indexof({quote_names(better_by_baseline)}, baseline)]"
    )
    layers = [
        make_layer("rule", {"x": {"datum": 0}}, strokeDash=[3, 3]),
        *interval_layers("difference", (x, "difference_high"), 90, y=y, tooltip=tips),
        make_layer("text", beside, *figures, align="left", dx=8),
        _edge_text_layer("'← better: ' + baseline", "left", 0, 2),
        _edge_text_layer(f"'better: ' + {better} + ' →'", "right", "width", 1),
    ]
    drawn = (
        *scale_to_points("difference"),
        *_parameter_filters(table),
        filter_rows("isValid(datum.difference)"),
        NUMBER_ROWS,
        filter_rows(f"datum.place <= {_MOST_DRAWN}"),
    )
    height = max(min(len(table.chosen_rows), _MOST_DRAWN), 1) * _DIFFERENCE_STEP
    spec = chart_spec(table.name, layers, height, *drawn)
    return spec | _parameters(table) | {"usermeta": {"step": _DIFFERENCE_STEP, "most": _MOST_DRAWN}}


def _edge_text_layer(text_expression: str, align: str, x: float | str, line: int) -> Spec:
    """Return a text above the plot, at its left or right edge."""
    places = {"x": {"value": x}, "y": {"value": 0}, "text": encode_column("words:N")}
    once = filter_rows("datum.place === 1")
    return make_layer(
        "text", places, once, *add_columns(words=text_expression), align=align, dy=-_LINE * line + _LINE // 2
    )


def _parameter_filters(table: ReportTable) -> list[Spec]:
    """Return transforms that keep the rows chosen by the picture's parameters."""
    return [filter_rows(f"datum.{name} === {name}") for name in table.chosen]


def _parameters(table: ReportTable) -> Spec:
    params = [{"name": name, "value": value} for name, value in table.chosen.items()]
    return {"params": params} if params else {}
